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
SHAPES = [(1, 1, 1), (2, 1, 5), (15, 4, 1), (16, 2, 4), (17, 5, 3), (100, 10, 16), (333, 3, 7)]


def routed(monkeypatch, loops, *given, **settings):
    "The result of routing as arrays or by loops."
    monkeypatch.setattr(kernels, "worth_compiling", lambda *sizes: loops)
    return em_routing(*given, **settings)


@together("shape", SHAPES)
@together("spread, scale, silent", [(1, 1, 0), (1e-2, 1, 0), (1, 1e-12, 0.9), (1, 1e12, 0)])
def test_single_precision_is_as_exact_as_in_arrays(shape, spread, scale, silent, monkeypatch):
    "Beside the result in double; also where votes are nearly alike and most children silent."
    n, m, d = shape
    votes, a, beta_u, beta_a = problem(0, 3, n=n, m=m, d=d)
    votes = scale * (1 + spread * votes)
    a = a * (np.random.default_rng(0).random(a.shape) >= silent)
    given = [np.float32(x) for x in (votes, a, beta_u, beta_a)]
    settings = {
        "n_iterations": 1 + d % 3,
        "inverse_temperature": 0.1,
        "variance_floor": 1e-3 * (spread * scale) ** 2,
    }
    double = [x.astype(float) for x in given]
    exact = routed(monkeypatch, False, *double, **settings)
    same = routed(monkeypatch, True, *double, **settings)
    arrays = routed(monkeypatch, False, *given, **settings)
    loops = routed(monkeypatch, True, *given, **settings)
    for k, unit in enumerate((scale, 1, 1)):
        error, usual, rounding = (
            np.max(np.abs(found[k] - exact[k]), initial=0) / unit for found in (loops, arrays, same)
        )
        assert loops[k].dtype == np.float32 and rounding <= 1e-11
        assert error <= 5 * usual + 20 * np.finfo(np.float32).eps, (error, usual)


def test_threads_change_no_bit(monkeypatch):
    given = problem(0, 37, n=50, dtype=np.float32)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(kernels, "threads", lambda n=None, count=count: parallel.threads(count))
        found.append(routed(monkeypatch, True, *given))
    assert all(np.array_equal(x, y) for other in found[1:] for x, y in zip(found[0], other))


def test_tensors_that_need_no_gradient(monkeypatch):
    """They are not copied; those that do, in reverse or forward mode, or mapped over, are left to
    the arrays.
    """
    torch = pytest.importorskip("torch")
    V, a, u, b = (torch.tensor(x) for x in problem(3, 4))
    called = []
    usual = kernels.route_in_loops

    def counted(*given):
        called.append(given[0])
        return usual(*given)

    def poses(V):
        return routed(monkeypatch, True, V, a, u, b).poses

    monkeypatch.setattr(kernels, "route_in_loops", counted)
    expected = routed(monkeypatch, False, V, a, u, b).poses
    for gradient in (False, True):
        found = poses(V.clone().requires_grad_(gradient))
        assert len(called) == 1 and found.requires_grad == gradient
        assert torch.allclose(found, expected, rtol=1e-10)
    with torch.no_grad():
        W = V.clone().requires_grad_()
        poses(W)
    assert len(called) == 2 and np.shares_memory(called[1], W.detach().numpy())
    one = torch.ones_like(V)
    _, change = torch.func.jvp(poses, (V,), (one,))
    with torch.autograd.forward_ad.dual_level():
        dual = poses(torch.autograd.forward_ad.make_dual(V, one))
        assert torch.allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, change)
    # all votes moved by one move the poses by one
    assert torch.allclose(change, torch.ones_like(change)) and len(called) == 2


FEW = """
import sys
import numpy as np
from capslit.routing import em_routing
em_routing(np.ones((10, 1024, 10, 16), np.float32), np.ones((10, 1024), np.float32), 0, 0)
assert 'numba' not in sys.modules
"""


def test_many_votes_get_loops_and_few_do_not_wait():
    few = 1024 * 10 * 16
    assert kernels.worth_compiling(64 * few, 3) and not kernels.worth_compiling(few, 3)
    subprocess.run([sys.executable, "-c", FEW], check=True, timeout=PATIENCE)


def test_without_numba_arrays_are_used(monkeypatch):
    given = problem(4, 2)
    expected = routed(monkeypatch, False, *given)
    compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    try:
        found = routed(monkeypatch, True, *given)
    finally:
        compiled.cache_clear()
    assert all(np.array_equal(x, y) for x, y in zip(found, expected))
