"""Compiled routing: as exact as arrays for votes of any shape and spread; the same from any number
of threads; and who gets it.
"""

import subprocess
import sys

import numpy as np
import pytest
from conftest import PATIENCE, together
from test_routing import problem

from capslit.em import parallel
from capslit.em.compiling import compiled
from capslit.routing import kernels
from capslit.routing.procedure import em_routing

pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
SHAPES = [
    (1, 1, 1),
    (1, 3, 2),
    (2, 1, 5),
    (15, 4, 1),
    (16, 2, 4),
    (17, 5, 3),
    (100, 10, 16),
    (333, 3, 7),
]


def routed(monkeypatch, loops, *given, **settings):
    "The result of routing as arrays or by loops."
    monkeypatch.setattr(kernels, "worth_compiling", lambda *sizes: loops)
    return em_routing(*given, **settings)


@together("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_are_as_exact_as_arrays(shape, dtype, monkeypatch):
    """In single precision beside the result in double, in double beside arrays; also where votes
    are nearly alike, tiny or huge, and most children silent.
    """
    n, m, d = shape
    for seed, (spread, scale, silent) in enumerate(
        [(1, 1, 0), (1e-2, 1, 0), (1, 1e-12, 0.9), (1, 1e12, 0)]
    ):
        votes, a, beta_u, beta_a = problem(seed, 3, n=n, m=m, d=d)
        votes, a = (
            scale * (1 + spread * votes),
            a * (np.random.default_rng(seed).random(a.shape) >= silent),
        )
        given = [np.asarray(x, dtype) for x in (votes, a, beta_u, beta_a)]
        settings = {
            "n_iterations": 3,
            "inverse_temperature": 0.1,
            "variance_floor": 1e-3 * (spread * scale) ** 2,
        }
        exact = routed(monkeypatch, False, *(x.astype(float) for x in given), **settings)
        arrays, loops = (routed(monkeypatch, way, *given, **settings) for way in (False, True))
        for mine, reference, truth, unit in zip(loops, arrays, exact, (scale, 1, 1)):
            error, usual = (np.max(np.abs(x - truth), initial=0) / unit for x in (mine, reference))
            assert mine.dtype == dtype and error <= (
                1e-11 if dtype == np.float64 else 5 * usual + 20 * np.finfo(dtype).eps
            ), (seed, error, usual)


def test_threads_change_no_bit(monkeypatch):
    given = problem(0, 37, n=50, dtype=np.float32)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(kernels, "threads", lambda n=None, count=count: parallel.threads(count))
        found.append(routed(monkeypatch, True, *given))
    assert all(np.array_equal(x, y) for other in found[1:] for x, y in zip(found[0], other))


@together("dtype", [np.float32, np.float64])
def test_the_loops_are_plain_python(dtype):
    """As Python they give what they give when compiled; also where one parent is shunned, and where
    children are silent.
    """
    votes, a, _, _ = problem(1, 3, n=19, dtype=dtype)
    votes[0, :, 0], a[2] = 3, a[2] * dtype(1e-30)
    given = votes, a, np.zeros((3, 3), dtype), np.zeros((3, 3), dtype), [0.01, 0.02, 0.03], 1e-9
    with np.errstate(all="ignore"):
        found = [
            kernels.route_in_loops(*given, kernel=kernel)
            for kernel in (kernels._route, kernels.compiled_route())
        ]
    assert all(
        np.allclose(
            x,
            y,
            rtol=1e-3 if dtype == np.float32 else 1e-11,
            atol=1e-5 if dtype == np.float32 else 1e-12,
        )
        for x, y in zip(*found)
    )


@together("value", [np.nan, np.inf, -np.inf])
def test_votes_that_are_not_finite(value, monkeypatch):
    votes, *rest = problem(2, 5)
    votes[4, 11, 2, 3] = value
    with pytest.raises(ValueError, match="votes contains NaN or infinity"):
        routed(monkeypatch, True, votes, *rest)


def test_tensors_that_need_no_gradient(monkeypatch):
    """They are not copied; those that do, in reverse or forward mode, or mapped over, are left to
    the arrays.
    """
    torch = pytest.importorskip("torch")
    V, a, u, b = (torch.tensor(x) for x in problem(3, 4))
    called, usual = [], kernels.route_in_loops
    monkeypatch.setattr(
        kernels, "route_in_loops", lambda *given: called.append(given[0]) or usual(*given)
    )
    expected = routed(monkeypatch, False, V, a, u, b)
    for grad, times in ((False, 1), (True, 1)):
        found = routed(monkeypatch, True, V.clone().requires_grad_(grad), a, u, b)
        assert (
            len(called) == times
            and found.poses.requires_grad == grad
            and torch.allclose(found.poses, expected.poses, rtol=1e-10)
        )
    with torch.no_grad():
        routed(monkeypatch, True, W := V.clone().requires_grad_(), a, u, b)
    assert len(called) == 2 and np.shares_memory(called[1], W.detach().numpy())
    poses, change = torch.func.jvp(
        lambda V: routed(monkeypatch, True, V, a, u, b).poses, (V,), (torch.ones_like(V),)
    )
    with torch.autograd.forward_ad.dual_level():
        dual = routed(
            monkeypatch, True, torch.autograd.forward_ad.make_dual(V, torch.ones_like(V)), a, u, b
        ).poses
        assert torch.allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, change)
    assert torch.allclose(change, torch.ones_like(change)) and len(called) == 2


def test_many_votes_get_loops_and_few_do_not_wait():
    assert kernels.worth_compiling(64 * 1024 * 10 * 16, 3) and not kernels.worth_compiling(
        1024 * 10 * 16, 3
    )
    program = (
        "import sys\nimport numpy as np\nfrom capslit.routing import"
        " em_routing\nem_routing(np.ones((10, 1024, 10, 16), np.float32), np.ones((10, 1024),"
        " np.float32), 0, 0)\nassert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def test_without_numba_arrays_are_used(monkeypatch):
    given = problem(4, 2)
    expected = routed(monkeypatch, False, *given)
    compiled.cache_clear()
    try:
        monkeypatch.setitem(sys.modules, "numba", None)
        assert all(
            np.array_equal(x, y) for x, y in zip(routed(monkeypatch, True, *given), expected)
        )
    finally:
        compiled.cache_clear()
