"""The composition rules: against direct formulas and brute force, at 0 and 1, for every kind of
array, and with faulty input.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from conftest import examples, together
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import bernoulli
from test_em import other_namespaces

from capslit.composition.rules import (
    RULES,
    as_probabilities,
    bernoulli_log_likelihood,
    compose,
    compose_extremes,
    extremes,
    max_minus_min,
    maximum,
    _mean,
    _noisy_or,
    normalized_sum,
    _sum_of_log_odds,
    _sum_of_odds,
)

pytestmark = pytest.mark.filterwarnings("error")
rules = pytest.mark.parametrize("name", RULES)
silent = pytest.mark.parametrize(
    "name", [name for name, rule in RULES.items() if rule.abstention is not None]
)
opinions = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)), min_size=1, max_size=8
)


def share(p):
    """The expected share of votes for 1, from the distributions of the numbers of votes for either
    side.
    """
    counts = [np.ones(1), np.ones(1)]
    for x in p:
        side, v = int(x < 0.5), abs(2 * x - 1)
        counts[side] = np.convolve(counts[side], [1 - v, v])
    a, b = np.meshgrid(*(np.arange(len(c)) for c in counts), indexing="ij")
    return counts[0] @ np.where(a + b == 0, 0.5, a / np.maximum(a + b, 1)) @ counts[1]


DIRECT = {
    "noisy_or": lambda p: 1 - np.prod(1 - p),
    "sum_of_odds": lambda p: 1 - 1 / (1 + np.sum(p / (1 - p))),
    "maximum": np.max,
    "mean": np.mean,
    "sum_of_log_odds": lambda p: expit(np.sum(logit(p))),
    "normalized_sum": share,
    "max_minus_min": lambda p: 0.5 + max(np.max(p) - 0.5, 0) - max(0.5 - np.min(p), 0),
}


# ── values
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rules
@together("count", [1, 2, 3, 4, 7, 40, 301])
def test_rules_are_what_their_formulas_say(name, count):
    rng = np.random.default_rng(count)
    p = np.clip(rng.random((count, 5)) ** rng.integers(1, 4), 1e-9, 1 - 1e-9)
    assert np.allclose(
        compose(p, name), [DIRECT[name](column) for column in p.T], rtol=1e-10, atol=1e-13
    )


def test_the_normalised_sum_interpolates_its_grid():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 5):
        p = rng.random(count)
        total = 0.0
        for corner in itertools.product([0.0, 0.5, 1.0], repeat=count):
            c = np.array(corner)
            votes = np.abs(c - 0.5).sum()
            value = (np.sum(c - 0.5) / votes + 1) / 2 if votes else 0.5
            assert np.isclose(normalized_sum(c), value, rtol=0, atol=1e-15)
            total += value * np.prod(np.maximum(0, 1 - 2 * np.abs(p - c)))
        assert np.isclose(normalized_sum(p), total, rtol=1e-13)


@given(opinions)
@examples(80)
def test_every_composition_is_a_probability_and_does_not_depend_on_the_order(p):
    for name in RULES:
        value = compose(p, name)
        assert 0 <= value <= 1 and np.isclose(compose(p[::-1], name), value, rtol=1e-9, atol=1e-12)
        assert min(p) <= value + 1e-15 or name in (
            "sum_of_log_odds",
            "normalized_sum",
            "max_minus_min",
        )
        assert np.isclose(
            compose(p[:1], name), p[0], rtol=1e-12, atol=1e-16
        )  # one expert is believed


@given(opinions)
@examples(80)
def test_symmetric_rules_treat_black_and_white_alike(p):
    p = np.round(p, 6)  # so that 1 − p is as exact as p
    for name in ("mean", "sum_of_log_odds", "normalized_sum", "max_minus_min"):
        assert np.isclose(compose(1 - p, name), 1 - compose(p, name), rtol=0, atol=1e-9)


@silent
@given(p=opinions, place=st.integers(0, 8))
@examples(30)
def test_silence_changes_nothing(name, p, place):
    with_silence = np.insert(p, min(place, len(p)), RULES[name].abstention)
    assert np.isclose(compose(with_silence, name), compose(p, name), rtol=1e-12, atol=1e-300)


@given(p=opinions, q=st.floats(0, 1), place=st.integers(0, 8))
@examples(60)
def test_silence_is_exact_for_any_q(p, q, place):
    assert max_minus_min(np.insert(p, min(place, len(p)), q), q=q) == max_minus_min(p, q=q)
    assert max_minus_min(p, q=0) == max(p) and max_minus_min(p, q=1) == min(p)
    assert max_minus_min([*p, p[0]], q=q) == max_minus_min(p, q=q)


@given(p=opinions, q=st.floats(0, 1), cut=st.integers(0, 8))
@examples(60)
def test_extremes_may_be_merged_in_any_order(p, q, cut):
    (u, l), (v, m) = extremes(p[:cut], q=q), extremes(p[cut:], q=q)
    assert compose_extremes(np.maximum(u, v), np.minimum(l, m), q) == max_minus_min(p, q=q)


@rules
def test_the_table_knows_which_rules_are_associative(name):
    p = np.random.default_rng(1).uniform(0.05, 0.95, (3, 200))
    grouped = compose([compose(p[:2], name), p[2]], name)
    assert np.allclose(grouped, compose(p, name), rtol=1e-12) == RULES[name].associative


# ── the ends
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rules
@together(
    "p",
    [
        [0.0],
        [1.0],
        [0, 0],
        [1, 1],
        [0, 1],
        [0, 1, 1],
        [0, 0, 1],
        [1, 0.3],
        [0, 0.3],
        [1, 0, 0.3],
        [0.5],
        [5e-324, 1e-310],
    ],
)
@together("dtype", [np.float32, np.float64])
def test_certain_and_tiny_opinions(name, p, dtype):
    value = compose(np.array(p, dtype), name)
    assert value.dtype == dtype and 0 <= value <= 1
    certain = {1.0: 1.0 in p, 0.0: 0.0 in p}
    if name in ("noisy_or", "sum_of_odds", "maximum") and certain[1.0]:
        assert value == 1
    if set(p) == {0.0} or set(p) == {1.0}:
        assert value == p[0]
    if p == [0, 1]:
        assert value == (1 if RULES[name].abstention == 0 else 0.5)


def test_certain_votes_cancel_in_pairs():
    assert (
        _sum_of_log_odds([0, 1]) == 0.5
        and _sum_of_log_odds([0, 1, 1]) == 1
        and _sum_of_log_odds([0, 1, 0]) == 0
    )
    assert (
        np.isclose(_sum_of_log_odds([0, 1, 0.8, 0.8]), 16 / 17)
        and _sum_of_log_odds([1, 0.01, 0.01]) == 1
    )


def test_small_probabilities_keep_their_digits():
    assert _noisy_or([1e-20, 1e-20]) == 2e-20 and _sum_of_odds([1e-20, 1e-20]) == 2e-20
    assert (
        np.isclose(_sum_of_log_odds([1e-20, 1e-20]), 1e-40, rtol=1e-12)
        and max_minus_min([1e-20, 0.4]) == 1e-20
    )
    assert np.isclose(normalized_sum([1e-20, 0.3]), share([0.0, 0.3]), atol=1e-16)
    assert (
        np.isclose(_sum_of_log_odds(np.full(5000, 0.99)), 1)
        and _sum_of_log_odds(np.full(5000, 0.01)) == 0
    )


def test_crowds():
    p = np.random.default_rng(2).random(1500)
    assert np.isclose(normalized_sum(p), share(p), rtol=1e-12) and np.isclose(
        normalized_sum(p.astype(np.float32)), share(p), rtol=1e-4
    )
    assert normalized_sum(np.ones(999)) == 1 and normalized_sum(np.zeros(999)) == 0
    assert np.isclose(normalized_sum([*np.zeros(998), 1.0]), 1 / 999, rtol=1e-11)


@rules
def test_nobody(name):
    none = np.zeros((0, 2, 3), np.float32)
    if RULES[name].abstention is None:
        with pytest.raises(
            ValueError, match="templates: the mean of no experts is not defined; pass at least one"
        ):
            compose(none, name)
    else:
        value = compose(none, name)
        assert (
            value.shape == (2, 3)
            and value.dtype == np.float32
            and np.all(value == RULES[name].abstention)
            and not np.any(np.signbit(value))
        )
    assert compose(np.zeros((3, 0)), name).shape == (0,)
    assert max_minus_min(np.zeros((0, 2)), q=0.2).tolist() == [0.2, 0.2]


# ── arrays of every kind
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rules
def test_axes_types_and_layouts(name):
    P = np.random.default_rng(3).random((4, 5, 6))
    P[0, 0, 0], P[1, 0, 0], P[2, 1, 1] = 0, 1, 0.5
    P.setflags(write=False)
    expected = compose(P, name)
    for axis in range(3):
        moved = np.moveaxis(P, 0, axis)
        assert np.allclose(compose(moved, name, axis=axis), expected, rtol=1e-12)
        assert np.allclose(compose(moved, name, axis=axis - 3), expected, rtol=1e-12)
    assert np.allclose(compose(np.asfortranarray(P), name), expected, rtol=1e-12)
    assert np.allclose(compose(P[:, ::2, ::-1], name), expected[::2, ::-1], rtol=1e-12)
    single = compose(P.astype(np.float32), name)
    assert single.dtype == np.float32 and np.allclose(single, expected, atol=2e-6)
    assert compose(P.astype(np.float16), name).dtype == np.float32
    assert np.allclose(compose(pd.DataFrame(P[:, 0]), name), expected[0], rtol=1e-12)
    assert np.allclose(compose(P[:, 0].tolist(), name), expected[0], rtol=1e-12)


@pytest.mark.parametrize("q", [0.7, np.float64(0.7), np.float32(0.7), np.array(0.7)])
def test_the_type_of_q_does_not_matter(q):
    p = np.array([[0.9, 0.8], [0.7, 0.2], [0.7, 0.7]], np.float32).T
    value = max_minus_min(p, q=q)
    assert value.dtype == np.float32 and np.array_equal(value, max_minus_min(p, q=0.7))
    assert compose_extremes(*extremes(p, q=q), q).dtype == np.float32 and value[2] == np.float32(
        0.7
    )


@rules
def test_integers_and_booleans_are_certain(name):
    whole = np.array([[0, 1, 0], [0, 1, 1]])
    for kind in (int, bool, np.uint8):
        value = compose(whole.astype(kind), name)
        assert value.dtype == np.float64 and np.array_equal(
            value, compose(whole.astype(float), name)
        )


@rules
@together("xp", list(other_namespaces()))
def test_other_array_libraries_agree(name, xp):
    P = np.random.default_rng(4).random((5, 7))
    P[0, 0], P[1, 0] = 0, 1
    found = compose(xp.asarray(P), name)
    assert type(found) is type(xp.asarray(P)) and np.allclose(
        np.asarray(found), compose(P, name), rtol=1e-12
    )


@pytest.mark.parametrize("xp", list(other_namespaces()))
def test_other_array_libraries_have_the_same_likelihood(xp):
    P, X = (
        np.random.default_rng(4).random((3, 7)),
        np.random.default_rng(5).integers(0, 2, (4, 1, 7)).astype(float),
    )
    found = bernoulli_log_likelihood(xp.asarray(X), xp.asarray(P))
    assert np.allclose(np.asarray(found), bernoulli_log_likelihood(X, P), rtol=1e-12)
    for mixed in ((X, xp.asarray(P)), (xp.asarray(X), P)):
        with pytest.raises(
            TypeError,
            match="X and templates belong to different array libraries; convert one of them first",
        ):
            bernoulli_log_likelihood(*mixed)


# ── the likelihood
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_likelihood_agrees_with_scipy_and_is_exact_at_the_ends():
    rng = np.random.default_rng(6)
    X, P = rng.integers(0, 2, (8, 1, 9)), rng.random((3, 9))
    P[0, :3], P[1, 3:5] = 0, 1
    with np.errstate(divide="ignore"):
        expected = bernoulli.logpmf(X, P).sum(axis=-1)
    found = bernoulli_log_likelihood(X, P)
    assert found.shape == (8, 3) and np.allclose(found, expected) and np.any(np.isneginf(found))
    assert (
        bernoulli_log_likelihood([1, 0], [1.0, 0.0]) == 0
        and bernoulli_log_likelihood([0, 1], [1.0, 0.5]) == -np.inf
    )
    assert bernoulli_log_likelihood(np.zeros((3, 0)), np.zeros(0)).tolist() == [0, 0, 0]
    assert bernoulli_log_likelihood([0.0], [1e-20]) == -1e-20  # log1p
    assert bernoulli_log_likelihood([0.25], [0.5]) == pytest.approx(
        np.log(0.5)
    )  # an expected pixel


@pytest.mark.parametrize("kind", [bool, int, np.float32, np.float64])
def test_likelihood_has_the_type_of_the_templates(kind):
    X, P = np.eye(3).astype(kind), np.full((3, 3), 0.25, np.float32)
    value = bernoulli_log_likelihood(X, P)
    assert value.dtype == np.float32 and np.allclose(value, np.log(0.25) + 2 * np.log(0.75))


# ── what is wrong is said
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rules
@together(
    "wrong, error, words",
    [
        ([0.5, np.nan], ValueError, "templates contains NaN"),
        ([0.5, np.inf], ValueError, "templates contains infinity"),
        ([0.5, 1.25], ValueError, "templates must be at most 1, but its largest value is 1.25"),
        (
            [-1e-9, 0.5],
            ValueError,
            "templates must be at least 0, but its smallest value is -1e-09",
        ),
        (["a", "b"], TypeError, "templates must hold real numbers"),
        ([0.5, 1j], TypeError, "templates must hold real numbers"),
        (None, TypeError, "templates is None"),
        ([[0.5], [0.5, 0.5]], ValueError, "templates must be a rectangular array"),
        (0.5, ValueError, r"axis must be .*, not 0; templates has shape \(\)"),
        (sp.eye(3), TypeError, "templates is a sparse matrix"),
    ],
)
def test_faulty_templates(name, wrong, error, words):
    with pytest.raises(error, match=words):
        compose(wrong, name)


def test_other_faults():
    p = np.full((2, 3), 0.5)
    with pytest.raises(
        ValueError, match="rule must be 'noisy_or', .* or 'max_minus_min', not 'max'"
    ):
        compose(p, "max")
    with pytest.raises(TypeError, match="rule must be one of"):
        compose(p, 3)
    for axis in (2, -3):
        with pytest.raises(
            ValueError,
            match=(
                rf"axis must be a number of at least -2 and below 2, not {axis}; templates has"
                r" shape \(2, 3\)"
            ),
        ):
            _mean(p, axis=axis)
    with pytest.raises(TypeError):
        maximum(p, axis=0.5)
    for q, words in (
        (1.5, "q must be at most 1"),
        (np.nan, "q contains NaN"),
        ([0.5, 0.5], r"q has shape \(2,\)"),
        (None, "q is None"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            max_minus_min(p, q=q)
    with pytest.raises(ValueError, match="X must be at most 1, but its largest value is 255"):
        bernoulli_log_likelihood([0, 255], [0.5, 0.5])
    with pytest.raises(
        ValueError,
        match=(
            r"X of shape \(3,\) does not fit templates of shape \(2, 4\); the last axis of both"
            r" holds the pixels"
        ),
    ):
        bernoulli_log_likelihood(np.zeros(3), np.full((2, 4), 0.5))
    with pytest.raises(ValueError, match="the_name contains NaN"):
        as_probabilities("the_name", [np.nan])


def test_callables_and_options():
    p = np.random.default_rng(7).random((4, 3))
    assert np.array_equal(compose(p, np.median, axis=1), np.median(p, axis=1))
    assert np.array_equal(compose(p, "max_minus_min", q=0.2), max_minus_min(p, q=0.2))
    assert np.array_equal(compose(p, maximum), p.max(axis=0))
