"""Routing, as arrays and in compiled loops: against the plain procedure, units, other array
libraries, adversarial votes, gradients.
"""

import math

import numpy as np
import pytest
from conftest import FORMS, examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax, xlogy
from test_em import other_namespaces

from capslit.routing import kernels
from capslit.routing.procedure import (
    Parents,
    corrected_procedure,
    _procedure_1,
    em_routing,
    procedure_2,
    procedure_3,
)


@pytest.fixture(scope="module", params=["arrays", "loops"])
def way(request):
    """Loops serve those calls that they can serve, of whatever size: of NumPy's arrays, or tensors
    without a gradient.
    """
    loops = request.param == "loops"
    if loops:
        pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "worth_compiling", lambda *sizes: loops)
        yield


both = pytest.mark.usefixtures("way")


def problem(seed, *batch, n=12, m=3, d=4, dtype=np.float64):
    "Votes with an agreement in each parent, activations, β_u, β_a of one random problem."
    rng = np.random.default_rng(seed)
    votes = rng.normal(size=(*batch, n, m, d))
    for j in range(m):
        votes[..., j::m, j, :] = rng.normal(size=(*batch, 1, d)) + 0.2 * votes[..., j::m, j, :]
    arrays = votes, rng.uniform(0.05, 1, (*batch, n)), rng.normal(size=m), rng.normal(size=m)
    return tuple(a.astype(dtype) for a in arrays)


def plainly(votes, activations, beta_u, beta_a, lambdas):
    "The same by the corrected procedure: poses, activations, assignments of the last M-step."
    after = np.full(votes.shape[:-1], 1 / votes.shape[-2])
    for lam in lambdas:
        R = after
        parents, after = corrected_procedure(votes, activations, R, beta_u, beta_a, lam)
    return parents.poses, parents.activations, R


def close(found, expected, tol=1e-10):
    return all(np.allclose(a, b, rtol=tol, atol=tol) for a, b in zip(found, expected, strict=True))


seeds = st.integers(0, 2**32 - 1)


def descending(votes, a, beta_u, beta_a, lambdas):
    """Routing with activations as exponents, by its equations; and the joint energy
    (routing-joint-energy) at the last λ after each iteration.
    """
    n, m, d = votes.shape
    R = np.full((n, m), 1 / m)
    energies = []
    beta = beta_u - np.log(2 * np.pi * np.e) / 2
    for lam in lambdas:
        (M, v, aj), _ = corrected_procedure(votes, a, R, beta_u, beta_a, lam)
        ln_p = -0.5 * np.sum((votes - M) ** 2 / v + np.log(2 * np.pi * v), axis=2)
        cost = np.sum(a[:, None] * R * (d * beta - ln_p), axis=0) - beta_a
        states = (xlogy(aj, aj) + xlogy(1 - aj, 1 - aj)) / lam
        energies.append(np.sum(aj * cost + states) + np.sum(a[:, None] * xlogy(R, R)))
        last = R
        R = softmax(aj * (ln_p - d * beta), axis=1)
    return (M, aj, last), energies


@examples(40)
@given(seeds, st.integers(1, 6), st.sampled_from([0.03, 0.3]))
def test_with_activations_as_exponents(seed, iterations, lam):
    votes, a, beta_u, beta_a = problem(seed, n=20)
    lambdas = [lam] * iterations
    with np.errstate(divide="ignore", invalid="ignore"):
        expected, energies = descending(votes, a, beta_u, beta_a, lambdas)
    if not np.all(np.isfinite(energies)) or np.min(expected[2].sum(axis=0)) < 2:
        return
    settings = {"inverse_temperature": lambdas, "e_step": "exponent", "variance_floor": 0}
    found = em_routing(votes[None], a[None], beta_u, beta_a, iterations, **settings)
    assert close([part[0] for part in found], expected, 1e-6)
    assert np.all(np.diff(energies) < 1e-9 * (1 + np.abs(energies[0])))


@both
def test_batch_axes_blocks_and_betas():
    votes, a, _, _ = problem(0, 5, 7)
    beta_u, beta_a = np.random.default_rng(0).normal(size=(2, 5, 7, 3))
    whole = em_routing(votes, a, beta_u, beta_a)
    assert [part.shape for part in whole] == [(5, 7, 3, 4), (5, 7, 3), (5, 7, 12, 3)]
    for ij in np.ndindex(5, 7):
        one = em_routing(votes[ij], a[ij], beta_u[ij], beta_a[ij])
        assert close(one, [part[ij] for part in whole])
    problem_bytes = votes[0, 0].nbytes
    for block_bytes in (1, *(rows * problem_bytes for rows in (2, 34, 35, 36)), math.inf):
        assert close(em_routing(votes, a, beta_u, beta_a, block_bytes=block_bytes), whole)
    broadcast = em_routing(votes, a, 0.5, np.ones((5, 7, 1)))
    assert close(broadcast, em_routing(votes, a, np.full(3, 0.5), 1))


@both
@together("power", [-300, -150, -40, -12, 12, 40, 150, 300])
def test_units_are_a_shift_of_beta_u(power):
    c = 10.0**power
    floor = 1e-9 if abs(power) < 150 else 0
    for seed in range(6, 10):
        votes, a, beta_u, beta_a = problem(seed)
        routed = em_routing(votes, a, beta_u, beta_a, variance_floor=floor)
        floor_there = floor and floor * c**2
        with np.errstate(all="raise", under="ignore"):
            scaled = em_routing(
                c * votes, a, beta_u - np.log(c), beta_a, variance_floor=floor_there
            )
        assert close((scaled.poses / c, *scaled[1:]), routed, 1e-9)


@both
def test_a_silent_child_has_no_say():
    votes, a, beta_u, beta_a = problem(2)
    a[4:] = 0
    heard = em_routing(votes[:4], a[:4], beta_u, beta_a)
    # units are those of the greatest vote
    votes[4:] *= 0.9 * np.abs(votes[:4]).max() / np.abs(votes).max()
    routed = em_routing(votes, a, beta_u, beta_a)
    assert close((*routed[:2], routed.assignments[:4]), heard)


@both
@together("level", [0, 1e-30])
def test_parents_of_silent_children(level):
    "Their pose is 0, their width the unit of the problem, and nothing is paid or gained."
    votes, a, _, _ = problem(2, dtype=np.float32)
    lambdas = [0.01, 0.02]
    routed = em_routing(votes, np.float32(level) * a, 3.0, 50.0, 2, inverse_temperature=lambdas)
    squares = (votes / np.abs(votes).max()) ** 2
    assert np.allclose(routed.poses, 0) and np.allclose(routed.activations, 1 / (1 + np.exp(-1.0)))
    assert np.allclose(routed.assignments, softmax(-0.5 * squares.sum(axis=-1), axis=-1), atol=1e-6)
    heard = em_routing(votes, np.float32(1e-15) * a, 3.0, 50.0, 1)
    assert np.allclose(heard.poses, em_routing(votes, a, 3.0, 50.0, 1).poses, atol=1e-5)


@both
def test_a_parent_that_everybody_shuns_keeps_its_mean():
    "Shares are ratios: R may be too small for the precision, the mean of the votes is not."
    votes = np.random.default_rng(0).normal(size=(10, 2, 16)).astype(np.float32)
    votes[:, 0] = 3
    routed = em_routing(votes, np.ones(10, np.float32), 0.0, 0.0)
    assert np.all(routed.assignments[:, 1] < 1e-30) and np.all(np.abs(routed.poses[1]) > 0)
    assert routed.activations[0] > routed.activations[1] > 0.49


@both
@pytest.mark.parametrize("xp", list(other_namespaces()))
@together("dtype, tol", [("float32", 1e-4), ("float64", 1e-12)])
def test_other_array_libraries(xp, dtype, tol):
    arrays = problem(3, 2, 5, dtype=np.dtype(dtype))
    expected = em_routing(*arrays, block_bytes=1)
    found = em_routing(*(xp.asarray(a) for a in arrays), block_bytes=1)
    for wanted, part in zip(expected, found):
        assert part.dtype == getattr(xp, dtype) and type(part) is type(xp.asarray(wanted))
        assert np.allclose(wanted, np.asarray(part), rtol=0, atol=tol)


@both
def test_votes_set_the_precision():
    votes, a, beta_u, beta_a = problem(4)
    exact = em_routing(votes, a, beta_u, beta_a)
    for dtype, expected in ((np.float16, np.float32), (np.float32, np.float32), (int, np.float64)):
        routed = em_routing((10 * votes).astype(dtype), a, beta_u, beta_a)
        assert all(part.dtype == expected and np.all(np.isfinite(part)) for part in routed)
    single = em_routing(votes.astype(np.float32), a, list(beta_u), beta_a.astype(np.float16))
    assert close(single, exact, 2e-3)
    for form in ("list", "Fortran", "strided", "read-only", "other byte order"):
        assert close(em_routing(FORMS[form](votes), FORMS[form](a), beta_u, beta_a), exact)
    assert np.all(em_routing(votes > 0, a > 0.5, 0, True).activations <= 1)


FAULTS = [
    *(("votes has shape", {"votes": np.zeros(s)}) for s in ((), (3, 4), (0, 3, 4), (12, 3, 0))),
    (
        "votes has shape .2, 5, 3, 4, 4.*vectors.*reshape",
        {"votes": np.ones((2, 5, 3, 4, 4)), "activations": np.ones((2, 5))},
    ),
    ("votes contains", {"votes": np.where(np.arange(4) == 2, -np.inf, np.ones((12, 3, 4)))}),
    ("votes must hold real", {"votes": np.zeros((12, 3, 4), complex)}),
    *(("activations has shape", {"activations": a}) for a in (np.ones(11), 1.0, np.ones((12, 3)))),
    ("beta_a has shape", {"beta_a": np.zeros((2, 3))}),
    ("inverse_temperature must", {"inverse_temperature": -1}),
    ("e_step must be 'factor' or 'exponent'", {"e_step": "sum"}),
    ("variance_floor must", {"variance_floor": -1e-9}),
]


@together("words, change", FAULTS)
def test_faults_name_the_argument(words, change):
    right = dict(zip(("votes", "activations", "beta_u", "beta_a"), problem(5)))
    with pytest.raises((ValueError, TypeError), match=words):
        em_routing(**right | change)


def adversaries(dtype=np.float32):
    "Names, votes and activations that 32 bits may find hard."
    rng = np.random.default_rng(0)
    V, a = rng.normal(size=(3, 12, 3, 16)).astype(dtype), rng.random((3, 12)).astype(dtype)
    one_alike = np.where(np.arange(3)[:, None] == 0, dtype(7), V)
    powers = dtype(10) ** rng.integers(-30, 31, V.shape).astype(dtype)
    return {
        "usual": (V, a),
        "all alike": (0 * V + 7, a),
        "zero": (0 * V, a),
        "one parent's alike": (one_alike, a),
        "huge": (V * dtype(1e30), a),
        "tiny": (V * dtype(1e-30), a),
        "huge and alike": (one_alike * dtype(1e30), a),
        "tiny and alike": (one_alike * dtype(1e-30), a),
        "of all sizes": (V * powers, a),
        "alike and silent": (0 * V + 7, 0 * a),
        "one speaks": (V, a * (a == a.max())),
        "faint": (V, a * dtype(1e-30)),
        "some silent": (V, a * (a > 0.5)),
        "one child": (V[:, :1], a[:, :1]),
        "one silent child": (V[:, :1], 0 * a[:, :1]),
        "one parent": (V[:, :, :1], a),
        "one dimension": (V[..., :1], a),
        "one of each": (V[:, :1, :1, :1], a[:, :1]),
        "two points": (np.sign(V), a),
        "no problem": (V[:0], a[:0]),
    }


PRICES = [(0.0, 0.0), (0.5, 1.0), (-30.0, 1e4), (1e4, -1e4), (1e6, 1e6), (-1e6, -1e6)]
SCHEDULES = [(0.0, "factor"), (0.01, "factor"), (100.0, "factor"), (0.01, "exponent")]
SCHEDULES.append((100.0, "exponent"))


@both
@together("name", adversaries())
@together("dtype", [np.float32, np.float64])
def test_no_warning_no_nan(name, dtype):
    votes, a = adversaries(dtype)[name]
    largest = np.abs(votes).max(axis=(1, 3), initial=0) * (1 + 1e-5)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for beta_u, beta_a in PRICES:
            for lam, e_step in SCHEDULES:
                settings = {"inverse_temperature": lam, "e_step": e_step}
                routed = em_routing(votes, a, beta_u, beta_a, 4, **settings)
                assert all(np.all(np.isfinite(part)) for part in routed)
                assert np.allclose(routed.assignments.sum(axis=-1), 1, atol=1e-5)
                assert np.all((routed.activations >= 0) & (routed.activations <= 1))
                assert np.all(np.abs(routed.poses).max(axis=-1) <= largest)


def test_procedures_take_batch_axes():
    rng = np.random.default_rng(0)
    P, votes = rng.normal(size=(2, 5, 9, 3)), rng.normal(size=(2, 5, 9, 4, 3))
    a, R = rng.random((2, 5, 9)), rng.dirichlet(np.ones(4), (2, 5, 9))
    means, variances = rng.normal(size=(2, 5, 4, 3)), rng.uniform(0.5, 2, (2, 5, 4, 3))
    parents = Parents(means, variances, rng.random((2, 5, 4)))
    prices = (0.1, 0.2, 0.3)

    def all_of(P, a, parents, votes, R):
        return (
            _procedure_1(P, parents),
            procedure_2(P, parents, *prices),
            procedure_3(P, a, parents, *prices),
            corrected_procedure(votes, a, R, *prices),
        )

    batches = all_of(P, a, parents, votes, R)
    for i in np.ndindex(2, 5):
        alone = all_of(P[i], a[i], Parents(*(leaf[i] for leaf in parents)), votes[i], R[i])
        for whole, one in zip(batches, alone, strict=True):
            assert close([leaf[i] for leaf in whole[0]], one[0])
            assert np.allclose(whole[1][i], one[1])


# PyTorch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def tensors(torch, *arrays):
    return [torch.tensor(a, requires_grad=True) for a in arrays]


def assert_gradients(torch, given, iterations=3, **settings):
    "By finite differences; the activations may be given without a gradient."

    def routing(*given):
        options = {"inverse_temperature": 0.5, "variance_floor": 1e-2, "block_bytes": 1}
        return tuple(em_routing(*given, iterations, **options | settings))

    assert torch.autograd.gradcheck(routing, given, eps=1e-6, atol=1e-5, rtol=1e-4)


OF_ALL_SIZES = [(5, 3, 2, 1), (4, 2, 1, 1), (5, 3, 2, 2), (1, 2, 3, 2), (5, 1, 2, 3), (1, 1, 1, 3)]


@together("n, m, d, iterations", OF_ALL_SIZES)
def test_gradients_agree_with_finite_differences(torch, n, m, d, iterations):
    given = tensors(torch, *problem(iterations, 2, n=n, m=m, d=d))
    assert_gradients(torch, given, iterations)
    assert_gradients(torch, given, iterations, e_step="exponent")


@together("name", ["all alike", "one parent's alike", "two points", "one dimension", "some silent"])
def test_gradients_agree_at_the_edges(torch, name):
    "With respect to all but the activations, which may be at their lower end."
    votes, a = (x[:1, :6] for x in adversaries(np.float64)[name])
    V, u, b = tensors(torch, votes[..., :2], np.zeros(votes.shape[2]), np.ones(votes.shape[2]))
    assert_gradients(torch, (V, torch.tensor(a), u, b))


def test_gradient_of_a_silent_child(torch):
    "A child with activation 0 would have a say if it spoke: the derivative from above."
    votes, a, beta_u, beta_a = problem(7)
    a[3] = 0
    step = np.eye(12)[3] * 1e-7
    V, active, u, b = tensors(torch, votes, a, beta_u, beta_a)
    em_routing(V, active, u, b, inverse_temperature=0.5).poses[1].sum().backward()
    after, before = (
        em_routing(votes, level, beta_u, beta_a, inverse_temperature=0.5).poses[1].sum()
        for level in (a + step, a)
    )
    slope = active.grad[3].item()
    assert slope != 0 and np.isclose(slope, (after - before) / 1e-7, rtol=1e-4)


@together("name", adversaries())
@together("lam", [0.01, 1.0])
def test_gradients_are_finite_in_32_bits(torch, name, lam):
    votes, a = adversaries()[name]
    largest = max(1e-30, np.abs(votes).max(initial=0))
    for beta_u, beta_a in PRICES:
        given = tensors(torch, votes, a, np.float32(beta_u), np.float32(beta_a))
        poses, activations, R = em_routing(*given, inverse_temperature=lam)
        (poses.sum() / largest + activations.sum() + (R**2).sum()).backward()
        assert all(torch.all(torch.isfinite(x.grad)) for x in given), (beta_u, beta_a)


def test_torch_takes_what_it_is_given(torch):
    arrays = problem(8, 2)
    expected = em_routing(*arrays)
    V, a, u, b = tensors(torch, *arrays)
    for arguments in (
        (V, a.float(), u.float(), b),
        (V, arrays[1], u, list(arrays[3])),
        (V.detach(), a, *arrays[2:]),
    ):
        routed = em_routing(*arguments)
        assert all(part.dtype == torch.float64 for part in routed)
        assert close([part.detach().numpy() for part in routed], expected, 1e-4)
        assert routed.poses.requires_grad and routed.activations.requires_grad
    half = em_routing(V.half(), a, u, b)
    assert half.poses.dtype == torch.float32
    assert all(torch.all(torch.isfinite(part)) for part in half)
    sideways = V.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    assert torch.allclose(em_routing(sideways, a, u, b).poses, em_routing(V, a, u, b).poses)


def test_torch_gradients_do_not_depend_on_blocks(torch):
    arrays = problem(9, 7, dtype=np.float32)
    gradients = []
    for block_bytes in (None, 1, 2 * arrays[0][0].nbytes):
        given = tensors(torch, *arrays)
        routed = em_routing(*given, block_bytes=block_bytes)
        (routed.poses.square().sum() + routed.activations.sum()).backward()
        gradients.append([x.grad for x in given])
        for x, y in zip(gradients[0], gradients[-1]):
            assert torch.allclose(x, y, rtol=1e-4, atol=1e-5)
