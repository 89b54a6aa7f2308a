"""Interpolating functions against mpmath, their properties, other array libraries, threads, and bad
input.
"""

from concurrent.futures import ThreadPoolExecutor

import array_api_strict as strict
import mpmath
import numpy as np
import pytest
from conftest import NO_WARNINGS, examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from capslit.capsules import special
from capslit.capsules.special import (
    interpolating_coefficients,
    interpolating_integral,
    remainder_ratio,
)
from capslit.em.compiling import OnDemand

ORDERS = [0, 0.5, 1, 1.5, 2, 3.5, 5, 10, 20.5, 40, 98, 300, 1000, 2500.5, 5000]
REAL = [-0.999, -0.9, -0.51, -0.5, -0.1, 0.1, 0.3, 17.123]
pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS)
FUNCTIONS = {
    "integral": lambda b: interpolating_integral(10, b),
    "integral of high order": lambda b: interpolating_integral(5000, b),
    "integral of negative order": lambda b: interpolating_integral(-0.7, b),
    "remainder": lambda b: remainder_ratio(b, 7),
    "coefficient": lambda b: interpolating_coefficients(b, 9)[1],
}


def exact(s, beta):
    "I_s(β) by the Kummer function, with 30 digits."
    with mpmath.workdps(30):
        s = mpmath.mpf(float(s))
        beta = mpmath.mpf(float(beta))
        return beta / (s + 1) * mpmath.hyp1f1(1, s + 2, -beta)


def places(found, truth):
    "Largest difference in units of the last place of the truth."
    unit = found.dtype.type
    pairs = zip(found, truth, strict=True)
    return max(abs(mpmath.mpf(float(f)) - t) / float(np.spacing(unit(float(t)))) for f, t in pairs)


def betas(s, n, power=300):
    "β's from end to end of the range, around the crossover β ≈ s, and at it."
    rng, a = np.random.default_rng(0), s + 1
    parts = [
        10 ** rng.uniform(-power, power, n),
        10 ** rng.uniform(-3, 5, n),
        a + np.sqrt(a) * rng.standard_normal(n),
        rng.exponential(a, n),
        [s + 0.5, a, 10.0**-power, 10.0**power],
    ]
    return np.abs(np.concatenate(parts))


# ── accuracy


@together("s, dtype", [(s, np.float32) for s in ORDERS] + [(s, np.float64) for s in ORDERS + REAL])
def test_four_units_in_the_last_place(s, dtype):
    "From the table of one order, and from the continued fraction of an array of orders."
    beta = betas(s, 40, 30 if dtype == np.float32 else 300).astype(dtype)
    truth = [exact(s, b) for b in beta]
    for orders in (s, np.full(beta.shape, float(s))):
        found = interpolating_integral(orders, beta)
        assert found.dtype == dtype and places(found, truth) <= (4 if s >= -0.5 else 8)


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 81, 9998])
def test_coefficients_and_remainder(dim):
    beta = betas(dim / 2, 25)
    zeroth, first = ([exact(s, b) for b in beta] for s in (dim / 2, dim / 2 + 1))
    for found, truth in zip(interpolating_coefficients(beta, dim), (zeroth, first)):
        assert places(found, truth) <= 4
    a = dim / 2 + 1
    r = remainder_ratio(beta, dim)
    t = beta / (a + beta) * r
    # 1 − I_s = (s/β) I_{s−1}, by A.3
    lower = [float(dim / 2 * exact(dim / 2 - 1, b) / b) for b in beta]
    np.testing.assert_allclose((a - t) / (a + beta - t), lower, rtol=1e-14)
    quotient = [float(one / zero) for one, zero in zip(first, zeroth)]
    np.testing.assert_allclose(1 - r / (a + beta), quotient, rtol=1e-14)


# ── compiled loops


@pytest.fixture
def asked(monkeypatch):
    "A function that says how many numbers have been asked for so far: none, or enough to compile."
    pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    kernel = special._compiled_integrals
    return lambda enough: monkeypatch.setattr(
        kernel, "asked", kernel.enough if enough else -(10**9)
    )


@together("s", [0.5, 0.7, 1, 5, 40.5, 500, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_and_arrays_give_the_same_bits(s, dtype, asked):
    """Over the whole range and its ends, for parts of tiles, and for arrays that are read-only,
    strided or have no axis.
    """
    ends = [0, np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]
    with np.errstate(over="ignore"):
        beta = np.concatenate([ends, betas(s, 500, 40)]).astype(dtype)
    beta = np.stack([beta, beta[::-1]])
    beta.flags.writeable = False
    tile = special.TILE * [1.0]
    parts = beta, beta.T, beta[:, ::-3], beta[0, :1], beta[0, :0], beta[1, 7], tile, [*tile, 3.0]
    for x in parts:
        results = []
        for enough in (False, True):
            asked(enough)
            results.append((interpolating_integral(s, x), *interpolating_coefficients(x, 2 * s)))
        for arrays, loops in zip(*results):
            np.testing.assert_array_equal(loops, arrays, strict=True)


def test_loops_are_compiled_when_it_pays(asked, monkeypatch):
    """The call with which enough numbers have been asked for uses them, none before, and no order
    or library for which there are none.
    """
    used = []
    monkeypatch.setattr(special, "_compiled_integrals", OnDemand(special.integrals, enough=2000))
    monkeypatch.setattr(
        "capslit.em.compiling.compiled", lambda *_, exact: used.append(exact) or special.integrals
    )
    with np.errstate(all="ignore"):
        interpolating_integral(5, np.ones(1999))
        interpolating_integral(0.3, np.ones(5000))
        interpolating_integral(np.full(5000, 5.0), np.ones(5000))
        interpolating_integral(5, strict.ones(5000))
        assert not used
        interpolating_integral(5, 1.0)
        assert used == [True]
        interpolating_integral(7, np.ones(3, np.float32))
        assert used == [True, True]


# ── properties

arguments = st.floats(1e-300, 1e300)


@examples(200)
@given(st.floats(0, 5000), st.floats(0, 5000), arguments, arguments)
def test_monotone_bounded_and_recursive(s, z, b, c):
    """It grows with β and falls with s; bounds A.4; recursion A.3 in the form
    β (1 − I_{s+1}) = (s + 1) I_s.
    """
    low, high = interpolating_integral(s, np.sort([b, c]))
    assert 0 <= low <= high * (1 + 1e-15)
    assert high <= 1
    larger, smaller = interpolating_integral(np.sort([s, z]), b)
    assert smaller <= larger * (1 + 1e-15)
    here, above = interpolating_integral(np.array([s, s + 1]), b)
    assert b / (s + 1 + b) * (1 - 1e-15) <= here <= b / (s + b) * (1 + 1e-15)
    assert abs(above - (1 - (s + 1) * (here / b))) <= 1e-15


def test_ends():
    orders = np.array([-0.5, 0, 0.5, 3, 5000])
    for s in (orders, *orders):
        found = [interpolating_integral(s, b) for b in (0.0, np.inf, np.nan)]
        np.testing.assert_array_equal(found, [0 * s, 0 * s + 1, 0 * s + np.nan])
    found = remainder_ratio(np.array([np.nan, np.inf, 0.0]), 5)
    np.testing.assert_allclose(found, [np.nan, 1, 3.5 / 4.5], rtol=2e-15)
    assert interpolating_integral(2, [5e-324, 1.7e308]).tolist() == [0.0, 1.0]


# ── shapes, types, libraries


def test_broadcasting_and_types():
    s = np.array([0.5, 1, 7])
    beta = np.array([[0.1], [2], [30], [np.inf]])
    table = interpolating_integral(s, beta)
    assert table.shape == (4, 3)
    for order, column in zip(s, table.T):
        np.testing.assert_allclose(column, interpolating_integral(order, beta[:, 0]), rtol=1e-15)
    one = interpolating_integral(2, 1)
    assert np.isscalar(one) and one.dtype == np.float64
    assert interpolating_integral(2, [True, False]).tolist() == [one, 0.0]
    assert interpolating_integral(s, np.float32(1)).dtype == np.float32
    assert interpolating_integral(np.array(2), np.ones((0, 3))).shape == (0, 3)
    assert interpolating_integral(np.ones((2, 0)), 1.0).shape == (2, 0)
    lambda0, lambda1 = interpolating_coefficients([1.0, 2.0], np.array([[3], [4], [5]]))
    assert lambda0.shape == (3, 2) and (lambda1 < lambda0).all()


@together("name", FUNCTIONS)
def test_memory_layout(name):
    "Read-only, reversed, strided and Fortran-ordered arrays, in blocks or at once."
    function = FUNCTIONS[name]
    beta = np.random.default_rng(0).exponential(10, (300, 100))
    plain = function(beta)
    beta.flags.writeable = False
    np.testing.assert_array_equal(function(np.asfortranarray(beta)), plain)
    np.testing.assert_array_equal(function(beta[::-2, ::3]), plain[::-2, ::3])
    np.testing.assert_array_equal(function(beta[7]), plain[7])


@together("library", ["array_api_strict", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_array_libraries(library, dtype):
    xp = pytest.importorskip(library, reason="PyTorch is not installed; pip install capslit[torch]")
    beta = np.array([[0, 1e-30, 0.3, 5.0], [11.0, 200.0, np.inf, np.nan]], dtype)
    theirs = xp.asarray(beta.copy())
    rtol = 4 * np.finfo(dtype).eps
    for function in FUNCTIONS.values():
        found = function(theirs)
        assert type(found) is type(theirs) and found.dtype == theirs.dtype
        np.testing.assert_allclose(np.asarray(found), function(beta), rtol=rtol)
    single = 2 * np.finfo(np.float32).eps
    for orders, numbers, there, rtol in (
        ([[0.5], [-0.5]], beta, theirs, rtol),
        ([0.5, 3], 2.0, 2.0, single),
    ):
        found = np.asarray(interpolating_integral(xp.asarray(orders), there))
        np.testing.assert_allclose(found, interpolating_integral(orders, numbers), rtol=rtol)


def test_threads_share_the_tables():
    special._ratio_table.cache_clear()
    beta = np.random.default_rng(0).exponential(10, 1000)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: interpolating_integral(1 + i % 7 / 2, beta), range(140)))
    for i, values in enumerate(found):
        np.testing.assert_array_equal(values, found[i % 7])
    assert not special._ratio_table(1.0, beta.dtype).flags.writeable


# ── bad input

RAGGED = [[1, 2], [3]]
BAD_BETA = -1, [1, -1e-300], [np.nan, -2], -np.inf, "one", [1j], RAGGED, csr_array(np.eye(2)), {}
BAD_ORDER = -1, -1.5, np.nan, [1, -np.inf], "two", 1 + 1j, RAGGED, csr_array(np.eye(2))


def test_bad_arguments_are_named():
    integral, both = interpolating_integral, interpolating_coefficients
    for function, arguments, said in (
        *((integral, (2, beta), "beta") for beta in BAD_BETA),
        *((both, (beta, 4), "beta") for beta in BAD_BETA),
        *((integral, (s, 1.0), "^s ") for s in BAD_ORDER),
        *((both, (1.0, dim), "^dim ") for dim in BAD_ORDER),
        (both, (1.0, 0), "dim must be greater than 0"),
        (integral, (np.ones(2), strict.ones(2)), "s and beta must belong to the same array lib"),
        (integral, (np.ones(2), np.ones(3)), "s and beta have shapes"),
        (both, (np.ones(2), np.ones(3)), "dim and beta have shapes"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            function(*arguments)
