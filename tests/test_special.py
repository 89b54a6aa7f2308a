"""Interpolating functions against mpmath, their properties, other array libraries, threads, and bad
input.
"""

import warnings
from concurrent.futures import ThreadPoolExecutor

import array_api_strict as strict
import mpmath
import numpy as np
import pandas
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from capslit.capsules import special
from capslit.em.compiling import OnDemand
from capslit.capsules.special import (
    interpolating_coefficients,
    _interpolating_derivative,
    interpolating_integral,
    remainder_ratio,
)

ORDERS = [0, 0.5, 1, 1.5, 2, 3.5, 5, 10, 20.5, 40, 98, 300, 1000, 2500.5, 5000]


@pytest.fixture(autouse=True)
def no_warnings():
    "A RuntimeWarning anywhere is a failure."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def exact(s, beta):
    "I_s(β) by the Kummer function, with 30 digits."
    with mpmath.workdps(30):
        s, beta = mpmath.mpf(float(s)), mpmath.mpf(float(beta))
        return beta / (s + 1) * mpmath.hyp1f1(1, s + 2, -beta)


def exact_derivative(s, beta):
    "I_s′(β) by the Kummer function, with 30 digits."
    with mpmath.workdps(30):
        s, beta = mpmath.mpf(float(s)), mpmath.mpf(float(beta))
        return mpmath.hyp1f1(2, s + 2, -beta) / (s + 1)


def places(found, truth, dtype=np.float64):
    "Largest difference in units of the last place of the truth."
    assert found.dtype == dtype
    return max(
        float(abs(mpmath.mpf(float(f)) - t)) / float(np.spacing(dtype(float(t))))
        for f, t in zip(found, truth)
    )


def betas(s, n=60, seed=0, low=-300, high=300):
    "β's from end to end of the range, around the crossover β ≈ s, and at it."
    rng, a = np.random.default_rng(seed), s + 1
    return np.abs(
        np.concatenate(
            [
                10 ** rng.uniform(low, high, n),
                10 ** rng.uniform(-3, 5, n),
                a + np.sqrt(a) * rng.standard_normal(n),
                rng.exponential(a, n),
                [s + 0.5, a, 10.0**low, 10.0**high],
            ]
        )
    )


# ── accuracy
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@together("s", ORDERS)
def test_four_units_in_the_last_place(s):
    """Relative error at most 4 ulp for one order (from the table) and for an array of orders (from
    the continued fraction).
    """
    beta = betas(s)
    truth = [exact(s, b) for b in beta]
    assert places(interpolating_integral(s, beta), truth) <= 4
    assert places(interpolating_integral(np.full(beta.shape, float(s)), beta), truth) <= 4


@pytest.mark.parametrize("s", [-0.999, -0.9, -0.51, -0.5, -0.1, 0.1, 0.3, 17.123])
def test_any_real_order(s):
    beta = betas(s, 40)
    assert places(interpolating_integral(s, beta), [exact(s, b) for b in beta]) <= (
        4 if s >= -0.5 else 8
    )


@together("s", ORDERS)
def test_single_precision(s):
    beta = betas(s, 40, low=-30, high=30).astype(np.float32)
    truth = [exact(s, b) for b in beta]
    assert places(interpolating_integral(s, beta), truth, np.float32) <= 4
    assert places(interpolating_integral(np.full(beta.shape, s), beta), truth, np.float32) <= 4


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 20, 81, 160, 9998])
def test_coefficients_and_remainder(dim):
    beta = betas(dim / 2, 25)
    lambda0, lambda1 = interpolating_coefficients(beta, dim)
    assert places(lambda0, [exact(dim / 2, b) for b in beta]) <= 4
    assert places(lambda1, [exact(dim / 2 + 1, b) for b in beta]) <= 4
    a, r = dim / 2 + 1, remainder_ratio(beta, dim)
    t = beta / (a + beta) * r
    # 1 − I_s = (s/β) I_{s−1}, by A.3
    np.testing.assert_allclose(
        (a - t) / (a + beta - t),
        [float(dim / 2 * exact(dim / 2 - 1, b) / b) for b in beta],
        rtol=1e-14,
    )
    np.testing.assert_allclose(
        1 - r / (a + beta), [float(exact(a, b) / exact(dim / 2, b)) for b in beta], rtol=1e-14
    )
    assert remainder_ratio(beta.clip(0, 1e38).astype(np.float32), dim).dtype == np.float32


@pytest.mark.parametrize("s", [0, 0.5, 1, 4, 10.5, 80, 5000])
def test_derivative(s):
    beta = betas(s, 25, low=-100, high=2)
    truth = np.array([float(exact_derivative(s, b)) for b in beta])
    np.testing.assert_allclose(_interpolating_derivative(s, beta), truth, rtol=2e-15)
    with mpmath.workdps(30):
        slope = [
            float(mpmath.diff(lambda b: b / (s + 1) * mpmath.hyp1f1(1, s + 2, -b), b))
            for b in (0.5, 3.0, 40.0)
        ]
    np.testing.assert_allclose(_interpolating_derivative(s, [0.5, 3.0, 40.0]), slope, rtol=1e-12)


@pytest.mark.parametrize("s", [-0.9, -0.5, -0.1])
def test_derivative_below_order_zero(s):
    beta = betas(s, 25, low=-10, high=2)
    np.testing.assert_allclose(
        _interpolating_derivative(s, beta),
        [float(exact_derivative(s, b)) for b in beta],
        rtol=1e-14,
        atol=1e-14,
    )


# ── compiled loops
# ─────────────────────────────────────────────────────────────────────────────────────────────────


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
    with np.errstate(over="ignore"):
        beta = np.concatenate(
            [
                [0, np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal],
                betas(s, 500, low=-40, high=40),
            ]
        ).astype(dtype)
    beta = np.concatenate([beta, beta[::-1]]).reshape(2, -1)
    beta.flags.writeable = False
    for x in (
        beta,
        beta.T,
        beta[:, ::-3],
        beta[0, :1],
        beta[0, :0],
        beta[1, 7],
        special.TILE * [1.0],
        special.TILE * [1.0] + [3.0],
    ):
        asked(False)
        known = interpolating_integral(s, x), interpolating_coefficients(x, 2 * s)
        asked(True)
        for found, array in zip(
            (interpolating_integral(s, x), *interpolating_coefficients(x, 2 * s)),
            (known[0], *known[1]),
        ):
            np.testing.assert_array_equal(found, array, strict=True)


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
        for s, beta in (
            (5, np.ones(1999)),
            (0.3, np.ones(5000)),
            (np.full(5000, 5.0), np.ones(5000)),
            (5, strict.ones(5000)),
        ):
            interpolating_integral(s, beta)
        assert not used
        interpolating_integral(5, 1.0)
        assert used == [True]
        interpolating_integral(7, np.ones(3, np.float32))
        assert used == [True, True]


# ── properties
# ─────────────────────────────────────────────────────────────────────────────────────────────────

orders = st.floats(0, 5000)
arguments = st.floats(1e-300, 1e300)


@examples(200)
@given(st.sampled_from(ORDERS[1:]), arguments, arguments)
def test_increases_in_beta(s, b, c):
    low, high = interpolating_integral(s, np.sort([b, c]))
    assert 0 <= low <= high * (1 + 1e-15) and high <= 1


@examples(200)
@given(orders, orders, arguments)
def test_decreases_in_s(s, z, b):
    larger, smaller = interpolating_integral(np.sort([s, z]), b)
    assert smaller <= larger * (1 + 1e-15)


@examples(200)
@given(orders, arguments)
def test_bounds_and_recursion(s, b):
    """Bounds A.4; recursion A.3 in the form β (1 − I_{s+1}) = (s + 1) I_s; and I_s′ ≥ 0."""
    here, above = interpolating_integral(np.array([s, s + 1]), b)
    assert b / (s + 1 + b) * (1 - 1e-15) <= here <= b / (s + b) * (1 + 1e-15)
    assert abs(above - (1 - (s + 1) * (here / b))) <= 1e-15
    assert _interpolating_derivative(s, b) >= 0


@examples(100)
@given(st.floats(-0.999, -0.01), st.floats(1e-10, 1e10))
def test_recursion_below_order_zero(s, b):
    here, above = interpolating_integral(np.array([s, s + 1]), b)
    assert abs(above - (1 - (s + 1) * (here / b))) <= 4e-15 * (1 + (s + 1) * here / b)


def test_ends():
    s = np.array([-0.5, 0, 0.5, 3, 5000])
    for f, at_zero, at_infinity in (
        (interpolating_integral, 0 * s, 1 + 0 * s),
        (_interpolating_derivative, 1 / (s + 1), 0 * s),
    ):
        np.testing.assert_array_equal(f(s, np.inf), at_infinity)
        np.testing.assert_allclose(f(s, 0.0), at_zero, rtol=1e-15)
        for order in s:
            np.testing.assert_allclose(
                f(order, [0.0, np.inf]), [f(order, 0.0), f(order, np.inf)], rtol=0
            )
            assert np.isnan(f(order, [1.0, np.nan])).tolist() == [False, True] and np.isnan(
                f(order, np.nan)
            )
    assert np.isnan(remainder_ratio(np.array([np.nan, 1]), 5)).tolist() == [True, False]
    assert remainder_ratio(np.array([np.inf, 0.0]), 5).tolist() == pytest.approx(
        [1, 3.5 / 4.5], rel=2e-15
    )
    assert interpolating_integral(2, [5e-324, 1e-310, 1.7e308])[[0, 2]].tolist() == [0.0, 1.0]


# ── shapes, types, libraries
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_broadcasting_and_types():
    s, beta = np.array([0.5, 1, 7]), np.array([[0.1], [2], [30], [np.inf]])
    table = interpolating_integral(s, beta)
    assert table.shape == (4, 3)
    for j, order in enumerate(s):
        np.testing.assert_allclose(
            table[:, j], interpolating_integral(order, beta[:, 0]), rtol=1e-15
        )
    assert (
        np.isscalar(interpolating_integral(2, 1))
        and interpolating_integral(2, 1).dtype == np.float64
    )
    assert interpolating_integral(2, np.float32(1)).dtype == np.float32
    assert interpolating_integral(np.array([1.0, 2.0]), np.float32(1)).dtype == np.float32
    assert interpolating_integral(2, np.array([1, 2])).dtype == np.float64
    assert interpolating_integral(2, [True, False]).tolist() == [
        interpolating_integral(2, 1.0),
        0.0,
    ]
    assert interpolating_integral(np.array(2), np.ones((0, 3))).shape == (0, 3)
    assert interpolating_integral(np.ones((2, 0)), 1.0).shape == (2, 0)
    lambda0, lambda1 = interpolating_coefficients(np.array([1.0, 2.0]), np.array([[3], [4], [5]]))
    assert lambda0.shape == lambda1.shape == (3, 2) and (lambda1 < lambda0).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda b: interpolating_integral(10, b),
        lambda b: _interpolating_derivative(10, b),
        lambda b: remainder_ratio(b, 20),
        lambda b: interpolating_coefficients(b, 20)[1],
    ],
)
def test_memory_layout(function):
    """Read-only, reversed, strided and Fortran-ordered arrays give the same bits as contiguous
    ones, in blocks or at once.
    """
    beta = np.random.default_rng(0).exponential(10, (300, 100))
    plain = function(beta)
    beta.flags.writeable = False
    np.testing.assert_array_equal(function(np.asfortranarray(beta)), plain)
    np.testing.assert_array_equal(function(beta[::-2, ::3]), plain[::-2, ::3])
    np.testing.assert_array_equal(function(beta[7]), plain[7])


def test_series_from_pandas():
    assert (
        interpolating_integral(2, pandas.Series([1.0, 2.0])).tolist()
        == interpolating_integral(2, [1.0, 2.0]).tolist()
    )


def libraries():
    "array-api-strict, and PyTorch where it is installed."
    yield strict
    try:
        import torch
    except ImportError:
        return
    yield torch


@pytest.mark.parametrize("xp", list(libraries()), ids=lambda xp: xp.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_array_libraries(xp, dtype):
    beta = np.array([[0, 1e-30, 0.3, 5.0], [11.0, 200.0, np.inf, np.nan]], dtype)
    theirs = xp.asarray(beta.copy())
    rtol = 4 * np.finfo(dtype).eps
    for function in (
        lambda b: interpolating_integral(10, b),
        lambda b: interpolating_integral(5000, b),
        lambda b: interpolating_integral(-0.7, b),
        lambda b: _interpolating_derivative(10.5, b),
        lambda b: remainder_ratio(b, 7),
        lambda b: interpolating_coefficients(b, 9)[0],
    ):
        found = function(theirs)
        assert type(found) is type(theirs) and found.dtype == theirs.dtype
        np.testing.assert_allclose(np.asarray(found), function(beta), rtol=rtol)
    found = interpolating_integral(xp.asarray([[0.5], [-0.5]]), theirs)
    np.testing.assert_allclose(
        np.asarray(found), interpolating_integral(np.array([[0.5], [-0.5]]), beta), rtol=rtol
    )
    found = interpolating_integral(xp.asarray([0.5, 3]), 2.0)
    np.testing.assert_allclose(
        np.asarray(found), interpolating_integral([0.5, 3], 2.0), rtol=2 * np.finfo(np.float32).eps
    )


def test_threads_share_the_tables():
    special._ratio_table.cache_clear()
    beta = np.random.default_rng(0).exponential(10, 1000)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: interpolating_integral(1 + i % 7 / 2, beta), range(140)))
    for i, values in enumerate(found):
        np.testing.assert_array_equal(values, found[i % 7])
    assert not special._ratio_table(1.0, beta.dtype).flags.writeable


# ── bad input
# ─────────────────────────────────────────────────────────────────────────────────────────────────

BAD_BETA = [
    (-1, ValueError),
    ([1, -1e-300], ValueError),
    ([np.nan, -2], ValueError),
    (-np.inf, ValueError),
    ("one", TypeError),
    ([1j], TypeError),
    ([[1, 2], [3]], ValueError),
    (csr_array(np.eye(2)), TypeError),
    ({"a": 1}, TypeError),
    (["1", "2"], TypeError),
]
BAD_ORDER = [
    (-1, ValueError),
    (-1.5, ValueError),
    (np.nan, ValueError),
    (np.inf, ValueError),
    ([1, -np.inf], ValueError),
    ("two", TypeError),
    (1 + 1j, TypeError),
    (csr_array(np.eye(2)), TypeError),
    ([[1, 2], [3]], ValueError),
]


@together("function", [interpolating_integral, _interpolating_derivative])
@pytest.mark.parametrize("beta, error", BAD_BETA, ids=str)
def test_bad_beta(function, beta, error):
    with pytest.raises(error, match="beta"):
        function(2, beta)
    with pytest.raises(error, match="beta"):
        interpolating_coefficients(beta, 4)


@together("function", [interpolating_integral, _interpolating_derivative])
@pytest.mark.parametrize("s, error", BAD_ORDER, ids=str)
def test_bad_order(function, s, error):
    with pytest.raises(error, match=r"^s "):
        function(s, 1.0)
    with pytest.raises(error, match=r"^dim "):
        interpolating_coefficients(1.0, s)


def test_other_bad_input():
    with pytest.raises(ValueError, match="dim must be greater than 0"):
        interpolating_coefficients(1.0, 0)
    with pytest.raises(TypeError, match="s and beta must belong to the same array library"):
        interpolating_integral(np.ones(2), strict.ones(2))
    with pytest.raises(ValueError, match="s and beta have shapes"):
        interpolating_integral(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="dim and beta have shapes"):
        interpolating_coefficients(np.ones(2), np.ones(3))
