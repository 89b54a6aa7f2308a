"""Routing, as arrays and in compiled loops: against the plain procedure, symmetries, other array
libraries, adversarial votes, gradients.
"""

import math

import numpy as np
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax, xlogy
from test_em import other_namespaces

from capslit.routing import kernels
from capslit.routing.procedure import (
    Parents,
    corrected_procedure,
    em_routing,
    inverse_temperatures,
    _procedure_1,
    procedure_2,
    procedure_3,
)


@pytest.fixture(scope="module", params=["arrays", "loops"], autouse=True)
def way(request):
    "Every test is made twice; loops serve those calls that they can serve, of whatever size."
    if request.param == "loops":
        pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    usual, kernels.worth_compiling = (
        kernels.worth_compiling,
        lambda *sizes: request.param == "loops",
    )
    yield request.param
    kernels.worth_compiling = usual


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


sizes = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
seeds = st.integers(0, 2**32 - 1)


@examples(60)
@given(
    seeds, sizes, st.integers(1, 3), st.sampled_from([(), (1,), (3,), (2, 3)]), st.integers(1, 7)
)
def test_agrees_with_the_plain_procedure(seed, size, iterations, batch, rows):
    (n, m, d), rng = size, np.random.default_rng(seed)
    votes, a, beta_u, beta_a = problem(seed, *batch, n=n + 6, m=m, d=d)
    lambdas = inverse_temperatures(iterations, 0.1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parent left with one vote collapses
        expected = plainly(votes, a, beta_u, beta_a, lambdas)
    if (
        not all(np.all(np.isfinite(part)) for part in expected)
        or np.min(expected[2].sum(axis=-2)) < 0.5
    ):
        return
    ways = {
        "inverse_temperature": [0.1, lambdas][rng.integers(2)],
        "block_bytes": rows * votes[..., 0].nbytes,
    }
    assert close(
        em_routing(votes, a, beta_u, beta_a, iterations, variance_floor=0, **ways), expected, 1e-7
    )


def descending(votes, a, beta_u, beta_a, lambdas):
    """Routing with activations as exponents, by its equations; and the joint energy
    (routing-joint-energy) at the last λ after each iteration.
    """
    n, m, d = votes.shape
    R, energies = np.full((n, m), 1 / m), []
    beta = beta_u - np.log(2 * np.pi * np.e) / 2
    for lam in lambdas:
        parents, _ = corrected_procedure(votes, a, R, beta_u, beta_a, lam)
        M, v, aj = parents
        ln_p = -0.5 * np.sum((votes - M) ** 2 / v + np.log(2 * np.pi * v), axis=2)
        cost = np.sum(a[:, None] * R * (d * beta - ln_p), axis=0) - beta_a
        energies.append(
            np.sum(aj * cost + (xlogy(aj, aj) + xlogy(1 - aj, 1 - aj)) / lam)
            + np.sum(a[:, None] * xlogy(R, R))
        )
        last, R = R, softmax(aj * (ln_p - d * beta), axis=1)
    return (M, aj, last), energies


@examples(40)
@given(seeds, st.integers(1, 6), st.sampled_from([0.03, 0.3]))
def test_with_activations_as_exponents(seed, iterations, lam):
    votes, a, beta_u, beta_a = problem(seed, n=20)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parent left with one vote collapses
        expected, energies = descending(votes, a, beta_u, beta_a, [lam] * iterations)
    if not np.all(np.isfinite(energies)) or np.min(expected[2].sum(axis=0)) < 2:
        return
    found = em_routing(
        votes,
        a,
        beta_u,
        beta_a,
        iterations,
        inverse_temperature=[lam] * iterations,
        e_step="exponent",
        variance_floor=0,
    )
    assert close(found, expected, 1e-6) and np.all(
        np.diff(energies) < 1e-9 * (1 + np.abs(energies[0]))
    )
    whole = em_routing(
        votes[None, None],
        a[None, None],
        beta_u,
        beta_a,
        iterations,
        inverse_temperature=[lam] * iterations,
        e_step="exponent",
        variance_floor=0,
    )
    assert close([part[0, 0] for part in whole], found)


def test_gradients_with_activations_as_exponents():
    torch = pytest.importorskip("torch")
    given = tensors(torch, *problem(1, 2, n=5, m=3, d=2))
    routing = lambda *given: tuple(
        em_routing(*given, 3, inverse_temperature=0.5, variance_floor=1e-2, e_step="exponent")
    )
    assert torch.autograd.gradcheck(routing, given, eps=1e-6, atol=1e-5, rtol=1e-4)


def test_batch_axes_and_blocks_change_nothing():
    votes, a, beta_u, beta_a = problem(0, 5, 7)
    whole = em_routing(votes, a, beta_u, beta_a)
    assert [part.shape for part in whole] == [(5, 7, 3, 4), (5, 7, 3), (5, 7, 12, 3)]
    for i, j in np.ndindex(5, 7):
        assert close(
            em_routing(votes[i, j], a[i, j], beta_u, beta_a), [part[i, j] for part in whole]
        )
    for rows in (1, 2, 34, 35, 36, 1000):
        assert close(
            em_routing(votes, a, beta_u, beta_a, block_bytes=rows * votes[0, 0].nbytes), whole
        )
    assert close(em_routing(votes, a, beta_u, beta_a, block_bytes=1), whole)


def test_betas_may_differ_between_problems():
    votes, a, _, _ = problem(1, 4)
    beta_u, beta_a = np.random.default_rng(0).normal(size=(2, 4, 3))
    whole = em_routing(votes, a, beta_u, beta_a, block_bytes=1)
    for i in range(4):
        assert close(em_routing(votes[i], a[i], beta_u[i], beta_a[i]), [part[i] for part in whole])
    assert close(
        em_routing(votes, a, 0.5, np.ones((4, 1))), em_routing(votes, a, np.full(3, 0.5), 1)
    )


@examples(40)
@given(seeds)
def test_order_does_not_matter(seed):
    votes, a, beta_u, beta_a = problem(seed)
    rng = np.random.default_rng(seed)
    children, parents = rng.permutation(12), rng.permutation(3)
    routed = em_routing(votes, a, beta_u, beta_a)
    turned = em_routing(votes[children][:, parents], a[children], beta_u[parents], beta_a[parents])
    expected = (
        routed.poses[parents],
        routed.activations[parents],
        routed.assignments[children][:, parents],
    )
    assert close(turned, expected, 1e-7)


@examples(40)
@given(seeds, st.floats(-12, 12))
def test_units_are_a_shift_of_beta_u(seed, power):
    votes, a, beta_u, beta_a = problem(seed)
    c = 10.0**power
    routed = em_routing(votes, a, beta_u, beta_a, variance_floor=1e-9)
    scaled = em_routing(c * votes, a, beta_u - np.log(c), beta_a, variance_floor=1e-9 * c**2)
    assert close((scaled.poses / c, *scaled[1:]), routed, 1e-6)


@examples(40)
@given(seeds)
def test_activations_count_children(seed):
    votes, _, beta_u, beta_a = problem(seed)
    times = np.random.default_rng(seed).integers(0, 4, 12)
    times[:3] = 1
    weighted = em_routing(votes, times, beta_u, beta_a)
    repeated = em_routing(np.repeat(votes, times, axis=0), np.ones(times.sum()), beta_u, beta_a)
    assert close((*weighted[:2], np.repeat(weighted.assignments, times, axis=0)), repeated, 1e-6)


@examples(40)
@given(seeds)
def test_viewpoints_pass_through(seed):
    rng = np.random.default_rng(seed)
    P, W, T = rng.normal(size=(9, 4, 4)), rng.normal(size=(9, 2, 4, 4)), rng.normal(size=(4, 4))
    t, a = rng.uniform(0.5, 2, 4), rng.random(9) + 0.1

    def routed(P, iterations, beta_u=0.0):
        return em_routing(
            (P[:, None] @ W).reshape(9, 2, 16), a, beta_u, 0.5, iterations, variance_floor=0
        )

    def turned(poses, T):
        return (T @ poses.reshape(2, 4, 4)).reshape(2, 16)

    assert np.allclose(routed(T @ P, 1).poses, turned(routed(P, 1).poses, T))
    seen, stretched = routed(P, 3), routed(np.diag(t) @ P, 3, -np.mean(np.log(t)))
    assert np.allclose(stretched.poses, turned(seen.poses, np.diag(t)), atol=1e-6)
    assert np.allclose(stretched.assignments, seen.assignments, atol=1e-6)


def test_a_silent_child_has_no_say():
    votes, a, beta_u, beta_a = problem(2)
    a[4:] = 0
    heard = em_routing(votes[:4], a[:4], beta_u, beta_a)
    votes[4:] *= (
        0.9 * np.abs(votes[:4]).max() / np.abs(votes).max()
    )  # units are those of the greatest vote
    assert close(
        [
            part[:4] if part.ndim == 2 and len(part) == 12 else part
            for part in em_routing(votes, a, beta_u, beta_a)
        ],
        heard,
    )


@pytest.mark.parametrize("level", [0, 1e-30])
def test_parents_of_silent_children(level):
    "Their pose is 0, their width the unit of the problem, and nothing is paid or gained."
    votes, a, _, _ = problem(2, dtype=np.float32)
    routed = em_routing(
        votes, np.float32(level) * a, 3.0, 50.0, 2, inverse_temperature=[0.01, 0.02]
    )
    squares = (votes / np.abs(votes).max()) ** 2
    assert np.allclose(routed.poses, 0) and np.allclose(routed.activations, 1 / (1 + np.exp(-1.0)))
    assert np.allclose(routed.assignments, softmax(-0.5 * squares.sum(axis=-1), axis=-1), atol=1e-6)
    heard = em_routing(votes, np.float32(1e-15) * a, 3.0, 50.0, 1)
    assert np.allclose(heard.poses, em_routing(votes, a, 3.0, 50.0, 1).poses, atol=1e-5)


def test_a_parent_that_everybody_shuns_keeps_its_mean():
    "Shares are ratios: R may be too small for the precision, the mean of the votes is not."
    votes = np.random.default_rng(0).normal(size=(10, 2, 16)).astype(np.float32)
    votes[:, 0] = 3
    routed = em_routing(votes, np.ones(10, np.float32), 0.0, 0.0)
    assert np.all(routed.assignments[:, 1] < 1e-30) and np.all(np.abs(routed.poses[1]) > 0)
    assert routed.activations[0] > routed.activations[1] > 0.49


def test_procedures_take_batch_axes():
    rng = np.random.default_rng(0)
    P, a = rng.normal(size=(2, 5, 9, 3)), rng.random((2, 5, 9))
    parents = Parents(
        rng.normal(size=(2, 5, 4, 3)), rng.uniform(0.5, 2, (2, 5, 4, 3)), rng.random((2, 5, 4))
    )
    votes, R = rng.normal(size=(2, 5, 9, 4, 3)), rng.dirichlet(np.ones(4), (2, 5, 9))
    prices = 0.1, 0.2, 0.3
    for whole, part in (
        (_procedure_1(P, parents), lambda i: _procedure_1(P[i], Parents(*(x[i] for x in parents)))),
        (
            procedure_2(P, parents, *prices),
            lambda i: procedure_2(P[i], Parents(*(x[i] for x in parents)), *prices),
        ),
        (
            procedure_3(P, a, parents, *prices),
            lambda i: procedure_3(P[i], a[i], Parents(*(x[i] for x in parents)), *prices),
        ),
        (
            corrected_procedure(votes, a, R, *prices),
            lambda i: corrected_procedure(votes[i], a[i], R[i], *prices),
        ),
    ):
        for i in np.ndindex(2, 5):
            one = part(i)
            assert close([x[i] for x in whole[0]], one[0]) and np.allclose(whole[1][i], one[1])


def test_procedure_3_with_equal_activations_is_procedure_2():
    rng = np.random.default_rng(1)
    P, parents = (
        rng.normal(size=(9, 3)),
        Parents(rng.normal(size=(4, 3)), np.ones((4, 3)), rng.random(4)),
    )
    two, three = (
        procedure_2(P, parents, 0.1, 0.2, 0.3),
        procedure_3(P, np.full(9, 0.7), parents, 0.1, 0.2, 0.3),
    )
    assert close(two[0], three[0]) and np.allclose(two[1], three[1])


@pytest.mark.parametrize("xp", list(other_namespaces()))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_array_libraries(xp, dtype):
    arrays = problem(3, 2, 5, dtype=np.dtype(dtype))
    expected = em_routing(*arrays, block_bytes=1)
    found = em_routing(*(xp.asarray(a) for a in arrays), block_bytes=1)
    for mine, theirs in zip(expected, found):
        assert theirs.dtype == getattr(xp, dtype) and type(theirs) is type(xp.asarray(arrays[0]))
        assert np.allclose(
            mine, np.asarray(theirs), rtol=0, atol=1e-12 if dtype == "float64" else 1e-4
        )


def test_votes_set_the_precision():
    votes, a, beta_u, beta_a = problem(4)
    exact = em_routing(votes, a, beta_u, beta_a)
    for dtype, expected in (
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.int64, np.float64),
        (">f8", np.float64),
    ):
        routed = em_routing((10 * votes).astype(dtype), a, beta_u, beta_a)
        assert all(part.dtype == expected and np.all(np.isfinite(part)) for part in routed)
    single = em_routing(votes.astype(np.float32), a, list(beta_u), beta_a.astype(np.float16))
    assert all(np.allclose(x, y, atol=2e-3) for x, y in zip(single, exact))
    for same in (votes.tolist(), np.asfortranarray(votes), np.repeat(votes, 2, axis=0)[::2]):
        assert close(em_routing(same, a.tolist(), beta_u, beta_a), exact)
    votes.setflags(write=False), a.setflags(write=False)
    assert close(em_routing(votes, a, beta_u, beta_a), exact)
    assert np.all(em_routing(votes > 0, a > 0.5, 0, True).activations <= 1)


FAULTS = [
    ("votes has shape", dict(votes=np.zeros((3, 4)))),
    ("votes has shape", dict(votes=np.zeros((0, 3, 4)))),
    ("votes has shape", dict(votes=np.zeros((12, 0, 4)))),
    ("votes has shape", dict(votes=np.zeros((12, 3, 0)))),
    ("votes has shape", dict(votes=1.0)),
    ("votes contains", dict(votes=np.full((12, 3, 4), np.nan))),
    ("votes contains", dict(votes=np.where(np.arange(4) == 2, np.inf, np.ones((12, 3, 4))))),
    ("votes must hold real", dict(votes=np.zeros((12, 3, 4), complex))),
    ("votes is None", dict(votes=None)),
    ("activations has shape", dict(activations=np.ones(11))),
    ("activations has shape", dict(activations=1.0)),
    ("activations has shape", dict(activations=np.ones((12, 3)))),
    ("activations must be at least 0", dict(activations=-np.ones(12))),
    ("activations contains NaN", dict(activations=np.full(12, np.nan))),
    ("activations contains inf", dict(activations=np.full(12, np.inf))),
    ("beta_u has shape", dict(beta_u=np.zeros(2))),
    ("beta_a has shape", dict(beta_a=np.zeros((2, 3)))),
    ("beta_u contains", dict(beta_u=np.nan)),
    ("beta_a contains", dict(beta_a=np.inf)),
    ("beta_a must hold", dict(beta_a="one")),
    ("n_iterations", dict(n_iterations=0)),
    ("n_iterations", dict(n_iterations=2.0)),
    ("n_iterations", dict(n_iterations=None)),
    ("inverse_temperature has shape", dict(inverse_temperature=[0.1, 0.2])),
    ("inverse_temperature must", dict(inverse_temperature=-1)),
    ("inverse_temperature contains", dict(inverse_temperature=[0.1, np.nan, 0.1])),
    ("e_step must be 'factor' or 'exponent'", dict(e_step="sum")),
    ("variance_floor must", dict(variance_floor=-1e-9)),
    ("variance_floor contains", dict(variance_floor=np.nan)),
]


@together("words, change", FAULTS)
def test_faults_name_the_argument(words, change):
    given = dict(zip(("votes", "activations", "beta_u", "beta_a"), problem(5))) | change
    with pytest.raises((ValueError, TypeError), match=words):
        em_routing(**given)


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
        "silent": (V, 0 * a),
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


@together("name", adversaries())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_warning_no_nan(name, dtype):
    votes, a = adversaries(dtype)[name]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for beta_u, beta_a in PRICES:
            for final, e_step in (
                (0.0, "factor"),
                (0.01, "factor"),
                (100.0, "factor"),
                (0.01, "exponent"),
                (100.0, "exponent"),
            ):
                routed = em_routing(
                    votes, a, beta_u, beta_a, 4, inverse_temperature=final, e_step=e_step
                )
                assert all(np.all(np.isfinite(part)) for part in routed)
                assert np.allclose(routed.assignments.sum(axis=-1), 1, atol=1e-5)
                assert np.all((routed.activations >= 0) & (routed.activations <= 1))
                largest = np.abs(votes).max(axis=(1, 3)) if votes.size else 0
                assert np.all(np.abs(routed.poses).max(axis=-1) <= largest * (1 + 1e-5))


@pytest.mark.parametrize("power", [-300, -150, -40, 40, 150, 300])
def test_scales_in_64_bits(power):
    votes, a, beta_u, beta_a = problem(6)
    c = 10.0**power
    routed = em_routing(votes, a, beta_u, beta_a, variance_floor=0)
    with np.errstate(all="raise", under="ignore"):
        scaled = em_routing(c * votes, a, beta_u - np.log(c), beta_a, variance_floor=0)
    assert close((scaled.poses / c, *scaled[1:]), routed, 1e-9)


# PyTorch


def tensors(torch, *arrays, grad=True):
    return [torch.tensor(a, requires_grad=grad) for a in arrays]


@together("shape", [(5, 3, 2), (4, 2, 1), (1, 2, 3), (5, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_gradients_agree_with_finite_differences(shape, iterations):
    torch = pytest.importorskip("torch")
    n, m, d = shape
    for seed in range(3):
        given = tensors(torch, *problem(seed, 2, n=n, m=m, d=d))
        routing = lambda *given: tuple(
            em_routing(
                *given, iterations, inverse_temperature=0.5, variance_floor=1e-2, block_bytes=1
            )
        )
        assert torch.autograd.gradcheck(routing, given, eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["all alike", "one parent's alike", "two points", "one dimension", "some silent"]
)
def test_gradients_agree_at_the_edges(name):
    "With respect to all but the activations, which may be at their lower end."
    torch = pytest.importorskip("torch")
    votes, a = (x[:1, :6] for x in adversaries(np.float64)[name])
    given = tensors(torch, votes[..., :2], np.zeros(votes.shape[2]), np.ones(votes.shape[2]))
    routing = lambda V, u, b: tuple(
        em_routing(V, torch.tensor(a), u, b, inverse_temperature=0.5, variance_floor=1e-2)
    )
    assert torch.autograd.gradcheck(routing, given, eps=1e-6, atol=1e-5, rtol=1e-4)


def test_gradient_of_a_silent_child():
    "A child with activation 0 would have a say if it spoke: the derivative from above."
    torch = pytest.importorskip("torch")
    votes, a, beta_u, beta_a = problem(7)
    a[3] = 0
    weights = np.random.default_rng(0).normal(size=(3, 4))

    def loss(a):
        return (em_routing(votes, a, beta_u, beta_a, inverse_temperature=0.5).poses * weights).sum()

    V, active, u, b, w = (torch.tensor(x) for x in (votes, a, beta_u, beta_a, weights))
    active.requires_grad_()
    (em_routing(V, active, u, b, inverse_temperature=0.5).poses * w).sum().backward()
    step = np.eye(12)[3] * 1e-7
    assert (
        np.isclose(active.grad[3].item(), (loss(a + step) - loss(a)) / 1e-7, rtol=1e-4)
        and active.grad[3] != 0
    )


@together("name", adversaries())
def test_gradients_are_finite_in_32_bits(name):
    torch = pytest.importorskip("torch")
    votes, a = adversaries()[name]
    for beta_u, beta_a in PRICES:
        for final in (0.01, 1.0):
            given = tensors(torch, votes, a, np.float32(beta_u), np.float32(beta_a))
            routed = em_routing(*given, inverse_temperature=final)
            largest = max(1e-30, np.abs(votes).max(initial=0))
            (
                routed.poses.sum() / largest
                + routed.activations.sum()
                + (routed.assignments**2).sum()
            ).backward()
            for x in given:
                assert torch.all(torch.isfinite(x.grad)), (beta_u, beta_a, final)


def test_torch_takes_what_it_is_given():
    torch = pytest.importorskip("torch")
    arrays = problem(8, 2)
    expected = em_routing(*arrays)
    V, a, u, b = tensors(torch, *arrays)
    for arguments in (
        (V, a, u, b),
        (V, a.float(), u.float(), b),
        (V, arrays[1], u, list(arrays[3])),
        (V.detach(), a, *arrays[2:]),
    ):
        routed = em_routing(*arguments)
        assert all(
            isinstance(part, torch.Tensor) and part.dtype == torch.float64 for part in routed
        )
        assert all(
            np.allclose(part.detach().numpy(), want, atol=1e-4)
            for part, want in zip(routed, expected)
        )
        assert routed.poses.requires_grad and routed.activations.requires_grad
    half = em_routing(V.half(), a, u, b)
    assert half.poses.dtype == torch.float32 and all(
        torch.all(torch.isfinite(part)) for part in half
    )
    sideways = V.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    assert torch.allclose(em_routing(sideways, a, u, b).poses, em_routing(V, a, u, b).poses)


def test_torch_gradients_do_not_depend_on_blocks():
    torch = pytest.importorskip("torch")
    arrays, found = problem(9, 7, dtype=np.float32), []
    for block_bytes in (1, 2 * arrays[0][0].nbytes, None):
        given = tensors(torch, *arrays)
        routed = em_routing(*given, block_bytes=block_bytes)
        (routed.poses.square().sum() + routed.activations.sum()).backward()
        found.append([x.grad for x in given])
    for other in found[1:]:
        assert all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(found[0], other))


def test_without_limit_all_problems_are_routed_at_once(monkeypatch, way):
    if way == "loops":
        pytest.skip("loops route one problem after another")
    import capslit.routing.procedure as routing

    calls, route = [], routing._route
    monkeypatch.setattr(
        routing, "_route", lambda *arguments: calls.append(arguments[0].shape) or route(*arguments)
    )
    votes = np.random.default_rng(0).normal(size=(50, 4, 3, 2))
    whole = em_routing(votes, np.ones((50, 4)), 0.0, 0.0, block_bytes=math.inf)
    assert len(calls) == 1
    single = em_routing(votes, np.ones((50, 4)), 0.0, 0.0, block_bytes=1)
    assert len(calls) == 51 and all(np.allclose(x, y) for x, y in zip(whole, single))


def test_poses_that_are_matrices_are_explained():
    with pytest.raises(ValueError, match="votes has shape .2, 5, 3, 4, 4.*vectors.*reshape"):
        em_routing(np.ones((2, 5, 3, 4, 4)), np.ones((2, 5)), 0.0, 0.0)
