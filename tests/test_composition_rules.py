"""The composition rules: against direct formulas, at 0 and 1, for every kind of array, and with
faulty input.
"""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import NO_WARNINGS, examples, together
from hypothesis import given
from hypothesis import strategies as st
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
    normalized_sum,
)

pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS)
rules = together("name", RULES)
opinions = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)), min_size=1, max_size=8
)


def share(p):
    "The expected share of votes for 1, from the distributions of the votes for either side."
    counts = [np.ones(1), np.ones(1)]
    for x in p:
        v = abs(2 * x - 1)
        counts[int(x < 0.5)] = np.convolve(counts[int(x < 0.5)], [1 - v, v])
    a, b = np.meshgrid(*(np.arange(len(c)) for c in counts), indexing="ij")
    return counts[0] @ np.where(a + b == 0, 0.5, a / np.maximum(a + b, 1)) @ counts[1]


@given(opinions, st.integers(0, 8))
@examples(80)
def test_order_silence_and_exchanged_colours(p, place):
    for name, rule in RULES.items():
        value = compose(p, name)
        assert 0 <= value <= 1 and np.isclose(compose(p[::-1], name), value, rtol=1e-9, atol=1e-12)
        # one expert is believed
        assert np.isclose(compose(p[:1], name), p[0], rtol=1e-12, atol=1e-16)
        if rule.abstention is not None:
            silent = np.insert(p, min(place, len(p)), rule.abstention)
            assert np.isclose(compose(silent, name), value, rtol=1e-12, atol=1e-300)
        if rule.abstention == 0:
            assert min(p) <= value + 1e-15
        else:
            rounded = np.round(p, 6)  # then 1 − p is as exact as p
            exchanged = 1 - compose(1 - rounded, name)
            assert np.isclose(exchanged, compose(rounded, name), rtol=0, atol=1e-9)


@given(p=opinions, q=st.floats(0, 1), place=st.integers(0, 8))
@examples(60)
def test_extremes_are_exact_for_any_q(p, q, place):
    value = max_minus_min(p, q=q)
    assert max_minus_min(np.insert(p, min(place, len(p)), q), q=q) == value
    assert max_minus_min([*p, p[0]], q=q) == value
    assert max_minus_min(p, q=0) == max(p) and max_minus_min(p, q=1) == min(p)
    (u, l), (v, m) = extremes(p[:place], q=q), extremes(p[place:], q=q)
    assert compose_extremes(np.maximum(u, v), np.minimum(l, m), q) == value


@rules
def test_the_table_knows_which_rules_are_associative(name):
    p = np.random.default_rng(1).uniform(0.05, 0.95, (3, 200))
    grouped = compose([compose(p[:2], name), p[2]], name)
    assert np.allclose(grouped, compose(p, name), rtol=1e-12) == RULES[name].associative


CERTAIN = [[0.0], [1.0], [0, 0], [1, 1], [0, 1], [0, 1, 1], [1, 0, 0.3], [5e-324, 1e-310]]


@rules
@together("p", CERTAIN)
@together("dtype", [np.float32, np.float64])
def test_certain_and_tiny_opinions(name, p, dtype):
    value = compose(np.array(p, dtype), name)
    assert value.dtype == dtype and 0 <= value <= 1
    quiet = RULES[name].abstention == 0
    if quiet and 1 in p:
        assert value == 1
    if len(set(p)) == 1:
        assert value == p[0]
    if p == [0, 1]:
        assert value == (1 if quiet else 0.5)


def test_small_probabilities_keep_their_digits_and_crowds():
    assert np.isclose(compose([1e-20, 1e-20], "sum_of_log_odds"), 1e-40, rtol=1e-12)
    assert compose(np.full(5000, 0.01), "sum_of_log_odds") == 0
    p = np.random.default_rng(2).random(1500)
    assert np.isclose(normalized_sum(p), share(p), rtol=1e-12)
    assert np.isclose(normalized_sum(p.astype(np.float32)), share(p), rtol=1e-4)
    assert normalized_sum(np.ones(999)) == 1 and normalized_sum(np.zeros(999)) == 0
    assert np.isclose(normalized_sum([*np.zeros(998), 1.0]), 1 / 999, rtol=1e-11)


@rules
def test_nobody(name):
    none = np.zeros((0, 2, 3), np.float32)
    silence = RULES[name].abstention
    if silence is None:
        with pytest.raises(ValueError, match="the mean of no experts is not defined; pass at"):
            compose(none, name)
    else:
        value = compose(none, name)
        assert value.shape == (2, 3) and value.dtype == np.float32
        assert np.all(value == silence) and not np.any(np.signbit(value))
    assert compose(np.zeros((3, 0)), name).shape == (0,)


# Arrays of every kind


@rules
def test_axes_types_and_layouts(name):
    P = np.random.default_rng(3).random((4, 5, 6))
    P[:3, 0, 0] = 0, 1, 0.5
    P.setflags(write=False)
    expected = compose(P, name)
    for axis in range(-3, 3):
        moved = np.moveaxis(P, 0, axis)
        assert np.allclose(compose(moved, name, axis=axis), expected, rtol=1e-12)
    assert np.allclose(compose(P[:, ::2, ::-1], name), expected[::2, ::-1], rtol=1e-12)
    single = compose(P.astype(np.float32), name)
    assert single.dtype == np.float32 and np.allclose(single, expected, atol=2e-6)
    assert compose(P.astype(np.float16), name).dtype == np.float32
    for table in (pd.DataFrame(P[:, 0]), P[:, 0].tolist()):
        assert np.allclose(compose(table, name), expected[0], rtol=1e-12)
    whole = np.array([[0, 1, 0], [0, 1, 1]])
    for kind in (int, bool, np.uint8):
        value = compose(whole.astype(kind), name)
        assert value.dtype == np.float64
        assert np.array_equal(value, compose(whole.astype(float), name))


@together("q", [0.7, np.float64(0.7), np.float32(0.7), np.array(0.7)])
def test_the_type_of_q_does_not_matter(q):
    p = np.array([[0.9, 0.8], [0.7, 0.2], [0.7, 0.7]], np.float32).T
    value = max_minus_min(p, q=q)
    assert value.dtype == np.float32 and np.array_equal(value, max_minus_min(p, q=0.7))
    assert compose_extremes(*extremes(p, q=q), q).dtype == np.float32
    assert value[2] == np.float32(0.7)


@pytest.mark.parametrize("xp", list(other_namespaces()))
def test_other_array_libraries_agree(xp):
    rng = np.random.default_rng(4)
    P = rng.random((5, 7))
    P[0, 0], P[1, 0] = 0, 1
    for name in RULES:
        found = compose(xp.asarray(P), name)
        assert type(found) is type(xp.asarray(P))
        assert np.allclose(np.asarray(found), compose(P, name), rtol=1e-12)
    X = rng.integers(0, 2, (4, 1, 7)).astype(float)
    found = bernoulli_log_likelihood(xp.asarray(X), xp.asarray(P))
    assert np.allclose(np.asarray(found), bernoulli_log_likelihood(X, P), rtol=1e-12)
    for mixed in ((X, xp.asarray(P)), (xp.asarray(X), P)):
        with pytest.raises(TypeError, match="different array libraries; convert one of them first"):
            bernoulli_log_likelihood(*mixed)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_likelihood_agrees_with_scipy_and_is_exact_at_the_ends():
    rng = np.random.default_rng(6)
    X = rng.integers(0, 2, (8, 1, 9))
    P = rng.random((3, 9))
    P[0, :3], P[1, 3:5] = 0, 1
    expected = bernoulli.logpmf(X, P).sum(axis=-1)
    for kind in (bool, int, np.float32, np.float64):
        found = bernoulli_log_likelihood(X.astype(kind), P)
        assert np.allclose(found, expected) and np.any(np.isneginf(found))
        assert bernoulli_log_likelihood(X.astype(kind), P.astype(np.float32)).dtype == np.float32
    assert bernoulli_log_likelihood(np.zeros((3, 0)), np.zeros(0)).tolist() == [0, 0, 0]
    assert bernoulli_log_likelihood([0.0], [1e-20]) == -1e-20  # log1p
    # an expected pixel
    assert bernoulli_log_likelihood([0.25], [0.5]) == pytest.approx(np.log(0.5))


# What is wrong is said


@rules
@together(
    "wrong, words",
    [
        ([0.5, np.nan], "templates contains NaN"),
        ([0.5, 1.25], "templates must be at most 1, but its largest value is 1.25"),
        ([-1e-9, 0.5], "templates must be at least 0, but its smallest value is -1e-09"),
        (["a", "b"], "templates must hold real numbers"),
        (None, "templates is None"),
        (0.5, r"axis must be .*, not 0; templates has shape \(\)"),
        (sp.eye(3), "templates is a sparse matrix"),
    ],
)
def test_faulty_templates(name, wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        compose(wrong, name)


P = np.full((2, 3), 0.5)


@together(
    "function, arguments, words",
    [
        (compose, (P, "max"), "rule must be 'noisy_or', .* or 'max_minus_min', not 'max'"),
        (compose, (P, 3), "rule must be one of"),
        (compose, (P, "mean", 2), r"at least -2 and below 2, not 2; templates has shape \(2, 3\)"),
        (maximum, (P, 0.5), "'float' object cannot be interpreted as an integer"),
        (max_minus_min, (P, 0, 1.5), "q must be at most 1"),
        (max_minus_min, (P, 0, [0.5, 0.5]), r"q has shape \(2,\)"),
        (bernoulli_log_likelihood, ([0, 255], [0.5, 0.5]), "X must be at most 1, but its largest"),
        (bernoulli_log_likelihood, (np.zeros(2), P), r"X of shape \(2,\) does not fit templates"),
        (as_probabilities, ("the_name", [np.nan]), "the_name contains NaN"),
    ],
)
def test_other_faults(function, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        function(*arguments)
