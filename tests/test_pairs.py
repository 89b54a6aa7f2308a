"""Capsule regression with two labels per example: statistics that add up, an objective that never
falls, and the manners of the estimator.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from conftest import together
from estimators import each
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import get_tags

from capslit.capsules.engine import second_moments
from capslit.capsules.problems import least_squares
from capslit.deeper.pairs import (
    CapsulePairClassifier,
    _among_two,
    _exactly_one,
    indicators,
    label_probabilities,
    longest_two,
    overlay,
    _pair_numbers,
    pair_posterior_ratios,
    pair_probability,
    _problem_of_pairs,
    _problems_of_two_labels,
    strengths,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def scenes(seed=0, n=300, m=4, p=6, scale=1.0):
    "Sums of two noisy prototypes, and their labels."
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(m), 2)))[rng.integers(m * (m - 1) // 2, size=n)]
    prototypes = 2 * rng.standard_normal((m, p))
    return scale * (prototypes[pairs].sum(axis=1) + 0.5 * rng.standard_normal((n, p))), pairs


X, PAIRS = scenes()
Y = indicators(PAIRS, 4)
QUICK = {"capsule_dim": 2, "max_iter": 30}


@together("d, m, scale", [(1, 3, 1.0), (2, 5, 30.0), (7, 4, 1e-3)])
def test_probabilities_add_up_and_posterior_means_are_their_derivatives(d, m, scale):
    w = scale * np.random.default_rng(m).chisquare(3, (20, m))
    sets, step = np.array(list(combinations(range(m), 2))), 1e-5
    P = np.stack([pair_probability(w, np.tile(s, (20, 1)), d) for s in sets])
    among = np.stack([P[(sets == j).any(axis=1)].sum(axis=0) for j in range(m)], axis=1)
    among /= among.sum(axis=1, keepdims=True)
    assert np.allclose(label_probabilities(w, d), 2 * among, rtol=1e-12)
    assert (P.sum(axis=0) < 1).all() and (P < 0.5).all()
    assert (sets[P.argmax(axis=0)] == longest_two(w.T)).all()
    pairs = np.tile([0, m - 1], (20, 1))
    ratios = pair_posterior_ratios(w, pairs, d)
    for j, e in enumerate(step * np.eye(m)):
        after, before = (np.log(pair_probability(moved, pairs, d)) for moved in (w + e, w - e))
        assert np.allclose(ratios[:, j], 1 + (after - before) / step, rtol=1e-6, atol=1e-6)


def test_extreme_lengths_are_finite():
    pairs = [[0, 1], [0, 1]]
    for size in (0.0, 1e-300, 1e-30, 1e30, 1e300):
        w = np.array([[size, size, 0.0], [size, 0, 0]])
        P = pair_probability(w, pairs, 3)
        assert np.isfinite(P).all() and (P >= 0).all()
        assert np.isfinite(pair_posterior_ratios(w, pairs, 3)).all()
    assert np.allclose(pair_posterior_ratios([[1e12, 1e12, 0]], [[0, 1]], 2), 1, atol=1e-5)


@together("seed", range(12))
def test_em_never_lowers_the_objective(seed):
    m, d, affine = 3 + seed % 4, 1 + seed % 5, bool(seed % 2)
    X, pairs = scenes(seed, m=m, scale=10.0 ** (seed % 3 - 1))
    model, parameters = _problem_of_pairs(X, pairs, m, d, [0, 1.0, 30.0][seed % 3], affine)
    weight = None if seed % 4 else np.random.default_rng(seed).random(len(X))
    if weight is not None:
        gram = second_moments((X, np.zeros(len(X)), weight), [0], affine).gram
        model = replace(model, solver=least_squares(model.targets, gram, model.alpha, affine))
    path = []
    for _ in range(15):
        statistics = model.e_step(parameters, (X, pairs, weight))
        path.append(model.objective(parameters, statistics)[0])
        parameters = model.m_step(parameters, statistics)
    assert np.all(np.diff(path) >= -1e-9 * (abs(path[0]) + len(X))) and path[-1] > path[0]


def test_statistics_add_up_and_thresholds_leave_what_is_sure():
    model, start = _problem_of_pairs(X, PAIRS, 4, 2, affine=True)

    def sums(rows=slice(None), pairs=PAIRS, weight=None, **options):
        return model.e_step(start, (X[rows], pairs[rows], weight), **options)

    whole = sums()
    for found, *parts in zip(whole, sums(slice(100)), sums(slice(100, None))):
        assert np.allclose(found, sum(parts))
    assert np.allclose(sums(pairs=PAIRS[:, ::-1]).moments, whole.moments)
    for once, twice in zip(whole, sums(weight=np.full(len(X), 2.0))):
        assert np.allclose(2 * once, twice)
    inputs, W = np.c_[X, np.ones(len(X))], start.weights[0]
    all_left = sums(threshold=np.array([np.inf]))
    assert np.allclose(all_left.moments[0], W @ (inputs.T @ inputs))
    norms = np.sum((W @ inputs.T) ** 2, axis=1)
    wrong = np.any(longest_two(norms) != PAIRS, axis=1).sum()
    assert whole.errors[0] == wrong == model.count_errors(start, (X, PAIRS, None)).errors[0]


@pytest.mark.parametrize("architecture", ["multiclass", "ovo"])
def test_the_estimator_learns_and_is_saved(architecture, tmp_path):
    settings = {"architecture": architecture, "momentum": 0.9}
    model = CapsulePairClassifier(2, max_iter=100, **settings).fit(X[:200], Y[:200])
    correct = (model.predict_pairs(X[200:]) == PAIRS[200:]).all(axis=1)
    assert model.score(X[200:], Y[200:]) == correct.mean() > 0.9
    assert (model.predict(X).sum(axis=1) == 2).all()
    P = model.predict_proba(X)
    assert np.allclose(P.sum(axis=1), 2) and P.max() <= 1
    assert (longest_two(P.T.copy()) == model.predict_pairs(X)).mean() > 0.99
    model.save(tmp_path / "model.npz")
    again = CapsulePairClassifier.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict_proba(X), P) and again.get_params() == model.get_params()
    stopped = CapsulePairClassifier(2, thresholds=(0.5, 0.0), patience=(5, 5), **settings)
    stopped.fit(X[:200], Y[:200], X[200:], Y[200:])
    error = np.atleast_2d(stopped.history_["validation_error"].T)
    assert np.isfinite(np.nanmin(error, axis=1)).all()
    if architecture == "multiclass":  # validation examples choose the weights
        assert np.isclose(1 - stopped.score(X[200:], Y[200:]), error.min())


def test_conventions():
    model, frame = CapsulePairClassifier(**QUICK), pd.DataFrame(X, columns=list("abcdef"))
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        named = clone(model).fit(frame, Y)
    assert named.feature_names_in_.tolist() == list("abcdef") and named.n_features_in_ == 6
    plain = clone(model).fit(np.asfortranarray(X), Y.astype(bool))
    assert np.array_equal(plain.coef_, named.coef_) and plain.transform(X).shape == (300, 8)
    X32 = X.astype(np.float32)
    single = model.fit(X32, Y)
    assert single.predict_proba(X32).dtype == np.float32
    assert np.mean(single.predict(X) != plain.predict(X)) < 0.02
    assert get_tags(plain).classifier_tags.multi_label
    assert np.array_equal(MultiLabelBinarizer(classes=range(4)).fit_transform(PAIRS), Y)


def test_each_two_labels_learn_from_the_scenes_with_one_of_them():
    """Each of the stacked problems is an ordinary capsule regression of the examples that it may
    see.
    """
    model = CapsulePairClassifier(2, architecture="ovo", alpha=0.5, max_iter=12).fit(X, Y)
    numbers, table = _pair_numbers(PAIRS, 4), _exactly_one(4)
    problem, start = _problems_of_two_labels(X, PAIRS, 4, 2, 0.5, True)
    learned = np.concatenate([model.coef_, model.intercept_[..., None]], axis=-1)
    for q, (j, k) in enumerate(combinations(range(4), 2)):
        mine = Y[:, j] != Y[:, k]
        assert mine.sum() < len(X) and ((table[q] >= 0)[numbers] == mine).all()
        alone, parameters = problem.select(np.array([q])), type(start)(start.weights[[q]])
        for _ in range(12):
            kept = parameters
            batch = X[mine], numbers[mine], None
            parameters = alone.m_step(parameters, alone.e_step(parameters, batch))
        assert any(np.allclose(learned[q], p.weights[0], atol=1e-6) for p in (kept, parameters))


def test_the_answer_of_the_two_named_does_not_count():
    odds = np.random.default_rng(0).normal(size=(50, 10))
    answers = np.zeros((50, 5, 5))
    answers[:, *np.triu_indices(5, 1)] = odds
    s = strengths(odds)
    assert np.allclose(s, (answers - np.swapaxes(answers, 1, 2)).mean(axis=2))
    extreme = _among_two(1e5 * s)
    assert np.isfinite(extreme).all() and np.allclose(extreme.sum(axis=1), 2)


SETTINGS = each(
    architecture=["ovr"],
    capsule_dim=[0],
    alpha=[-1],
    momentum=[1],
    thresholds=[(2,)],
    patience=[(1, 2)],
    max_iter=[0],
)
ARGUMENTS = [
    *each(Y=[PAIRS, PAIRS[:, 0], Y[:5], None], X=[X * np.nan, X[0], 1e200 * X]),
    ({"Y": 2 * Y}, "row 0"),
    ({"Y": np.ones_like(Y)}, "MultiLabelBinarizer"),
    ({"X_val": X, "Y_val": Y[:, :3]}, "Y_val"),
    ({"X_val": X[:, :2], "Y_val": Y}, "X_val"),
    ({"X_val": X}, "Y_val"),
]


@together(
    "settings, arguments, words",
    [(s, {}, w) for s, w in SETTINGS] + [({}, a, w) for a, w in ARGUMENTS],
)
def test_what_cannot_be_meant_is_refused(settings, arguments, words):
    model = CapsulePairClassifier(**QUICK | settings)
    with pytest.raises((ValueError, TypeError), match=words):
        model.fit(**{"X": X, "Y": Y} | arguments)
    assert not hasattr(model, "coef_") and not hasattr(model, "n_features_in_")


def test_images_are_moved_everywhere_in_the_scenes():
    images, labels = np.pad(np.full((4, 1, 1), 0.5), ((0, 0), (1, 1), (1, 1))), np.arange(4) % 3
    made = overlay(images, labels, 500, 2, np.random.default_rng(0))
    assert (labels[made.rows] == made.pairs).all()
    seen = made.scenes.any(axis=0)
    assert seen.shape == (7, 7) and seen[1:6, 1:6].all() and seen.sum() == 25
