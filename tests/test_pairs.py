"""Capsule regression with two labels per example: statistics that add up, an objective that never
falls, and the manners of the estimator.
"""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import get_tags

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


def test_probabilities_of_all_events_add_up():
    rng = np.random.default_rng(1)
    for d, m, scale in ((1, 3, 1.0), (2, 5, 30.0), (7, 4, 1e-3)):
        w = scale * rng.chisquare(2, (20, m))
        sets = np.array(list(combinations(range(m), 2)))
        P = np.stack([pair_probability(w, np.tile(s, (20, 1)), d) for s in sets])
        among = np.stack([P[(sets == j).any(axis=1)].sum(axis=0) for j in range(m)], axis=1)
        assert np.allclose(
            label_probabilities(w, d), 2 * among / among.sum(axis=1, keepdims=True), rtol=1e-12
        )
        assert (P.sum(axis=0) < 1).all() and (P < 0.5).all()
        assert (sets[P.argmax(axis=0)] == longest_two(w.T)).all()


@pytest.mark.parametrize("d, m", [(1, 3), (2, 4), (5, 6)])
def test_posterior_means_are_derivatives(d, m):
    rng = np.random.default_rng(m)
    w, pairs = rng.chisquare(3, (10, m)), np.tile([[0, m - 1]], (10, 1))
    ratios, step = pair_posterior_ratios(w, pairs, d), 1e-5
    for j in range(m):
        moved = [
            np.log(pair_probability(w + side * step * np.eye(m)[j], pairs, d)) for side in (1, -1)
        ]
        assert np.allclose(ratios[:, j], 1 + (moved[0] - moved[1]) / step, rtol=1e-6, atol=1e-6)


def test_extreme_lengths_are_finite():
    for size in (0.0, 1e-300, 1e-30, 1e30, 1e300):
        w = np.array([[size, size, 0.0], [size, 0, 0]])
        P, ratios = (
            pair_probability(w, [[0, 1], [0, 1]], 3),
            pair_posterior_ratios(w, [[0, 1], [0, 1]], 3),
        )
        assert np.isfinite(P).all() and (P >= 0).all() and np.isfinite(ratios).all()
        assert size > 1e-20 or np.allclose(
            P, 2 * 3 * 3 / (9 * 11)
        )  # shares of a Dirichlet distribution
    assert np.allclose(
        pair_posterior_ratios([[1e12, 1e12, 0]], [[0, 1]], 2), [[1, 1, 1]], atol=1e-5
    )


@pytest.mark.parametrize("seed", range(12))
def test_em_never_lowers_the_objective(seed):
    X, pairs = scenes(seed, m=3 + seed % 4, scale=10.0 ** (seed % 3 - 1))
    model, parameters = _problem_of_pairs(
        X, pairs, 3 + seed % 4, 1 + seed % 5, [0, 1.0, 30.0][seed % 3], bool(seed % 2)
    )
    path, weight = [], None if seed % 4 else np.random.default_rng(seed).random(len(X))
    if weight is not None:
        G = np.einsum(
            "n,np,nq->pq", weight, *[np.insert(X, X.shape[1], 1, axis=1) if model.affine else X] * 2
        )
        from capslit.capsules.problems import least_squares
        from dataclasses import replace

        model = replace(
            model, solver=least_squares(model.targets, G[None], model.alpha, model.affine)
        )
    for _ in range(15):
        statistics = model.e_step(parameters, (X, pairs, weight))
        path.append(model.objective(parameters, statistics)[0])
        parameters = model.m_step(parameters, statistics)
    assert np.all(np.diff(path) >= -1e-9 * (abs(path[0]) + len(X))) and path[-1] > path[0]


def test_statistics_add_up_and_thresholds_leave_what_is_sure():
    model, start = _problem_of_pairs(X, PAIRS, 4, 2, affine=True)
    whole = model.e_step(start, (X, PAIRS, None))
    parts = [
        model.e_step(start, (X[rows], PAIRS[rows], None)) for rows in (slice(100), slice(100, None))
    ]
    assert all(np.allclose(a, b + c) for a, b, c in zip(whole, *parts))
    assert np.allclose(model.e_step(start, (X, PAIRS[:, ::-1], None)).moments, whole.moments)
    doubled = model.e_step(start, (X, PAIRS, np.full(len(X), 2.0)))
    assert all(np.allclose(2 * a, b) for a, b in zip(whole, doubled))
    all_left = model.e_step(start, (X, PAIRS, None), np.array([np.inf]))
    inputs = np.insert(X, X.shape[1], 1, axis=1)
    assert np.allclose(all_left.moments[0], start.weights[0] @ (inputs.T @ inputs))
    wrong = (
        longest_two(np.square(np.einsum("mdp,np->mdn", start.weights[0], inputs)).sum(axis=1))
        != PAIRS
    ).any(axis=1)
    assert whole.errors[0] == wrong.sum() == model.count_errors(start, (X, PAIRS, None)).errors[0]


@pytest.mark.parametrize("architecture", ["multiclass", "ovo"])
def test_the_estimator_learns_and_is_saved(architecture, tmp_path):
    settings = {"architecture": architecture, "momentum": 0.9}
    model = CapsulePairClassifier(2, max_iter=100, **settings).fit(X[:200], Y[:200])
    named = model.predict_pairs(X[200:])
    correct = (named == PAIRS[200:]).all(axis=1)
    assert model.score(X[200:], Y[200:]) == correct.mean() > 0.9
    assert (model.predict(X).sum(axis=1) == 2).all()
    P = model.predict_proba(X)
    assert np.allclose(P.sum(axis=1), 2) and P.max() <= 1
    assert (longest_two(P.T.copy()) == model.predict_pairs(X)).mean() > 0.99
    objective = np.atleast_2d(model.history_["objective"].T)
    for path, accepted in zip(objective, np.atleast_2d(model.history_["accepted"].T)):
        path = path[accepted & np.isfinite(path)]
        assert (np.diff(path) >= 0).all() and len(path) > 3
    model.save(tmp_path / "model.npz")
    again = CapsulePairClassifier.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict_proba(X), P) and again.get_params() == model.get_params()
    rounds = {"thresholds": (0.5, 0.0), "patience": (5, 5)}
    stopped = CapsulePairClassifier(2, **settings, **rounds)
    stopped.fit(X[:200], Y[:200], X[200:], Y[200:])
    error = np.atleast_2d(stopped.history_["validation_error"].T)
    assert np.isfinite(np.nanmin(error, axis=1)).all()
    if architecture == "multiclass":  # validation examples choose the weights
        assert np.isclose(1 - stopped.score(X[200:], Y[200:]), error.min())


def test_conventions():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = CapsulePairClassifier(**QUICK).fit(frame, Y)
    assert named.feature_names_in_.tolist() == list("abcdef") and named.n_features_in_ == 6
    plain = CapsulePairClassifier(**QUICK).fit(np.asfortranarray(X), Y.astype(bool))
    assert np.array_equal(plain.coef_, named.coef_) and plain.transform(X).shape == (300, 8)
    X32 = X.astype(np.float32)
    single = CapsulePairClassifier(**QUICK).fit(X32, Y)
    assert single.predict_proba(X32).dtype == np.float32
    assert np.mean(single.predict(X) != plain.predict(X)) < 0.02
    assert get_tags(plain).classifier_tags.multi_label
    assert np.array_equal(MultiLabelBinarizer(classes=range(4)).fit_transform(PAIRS), Y)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        CapsulePairClassifier(**QUICK).fit(X, Y)
    with pytest.raises(NotFittedError):
        CapsulePairClassifier().predict(X)


def test_each_two_labels_learn_from_the_scenes_with_one_of_them():
    """Each of the stacked problems is an ordinary capsule regression of the examples that it may
    see.
    """
    model = CapsulePairClassifier(2, architecture="ovo", alpha=0.5, max_iter=12).fit(X, Y)
    for q, (j, k) in enumerate(combinations(range(4), 2)):
        mine = Y[:, j] != Y[:, k]
        assert (
            mine.sum() < len(X)
            and ((_exactly_one(4)[q] >= 0)[_pair_numbers(PAIRS, 4)] == mine).all()
        )
        problem, start = _problems_of_two_labels(X, PAIRS, 4, 2, 0.5, True)
        alone, parameters = problem.select(np.array([q])), type(start)(start.weights[[q]])
        for _ in range(12):
            kept = parameters
            batch = X[mine], _pair_numbers(PAIRS[mine], 4), None
            parameters = alone.m_step(parameters, alone.e_step(parameters, batch))
        assert any(
            np.allclose(
                np.concatenate([model.coef_[q], model.intercept_[q][..., None]], axis=-1),
                p.weights[0],
                atol=1e-6,
            )
            for p in (kept, parameters)
        )


def test_the_answer_of_the_two_named_does_not_count():
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(50, 10))
    first, second = np.triu_indices(5, 1)
    s = strengths(odds)
    mean = [
        [
            sum(o[i] if first[i] == j else -o[i] for i in range(10) if j in (first[i], second[i]))
            / 5
            for j in range(5)
        ]
        for o in odds
    ]
    assert np.allclose(s, mean)
    P = _among_two(s)
    pi = np.exp(s - s.max(axis=1, keepdims=True))
    both = {(a, b): pi[:, a] * pi[:, b] for a, b in combinations(range(5), 2)}
    total = sum(both.values())
    assert np.allclose(
        P, np.stack([sum(v for S, v in both.items() if j in S) / total for j in range(5)], axis=1)
    )
    extreme = _among_two(1e5 * s)
    assert np.isfinite(extreme).all() and np.allclose(extreme.sum(axis=1), 2)


@pytest.mark.parametrize(
    "settings, arguments, words",
    [
        ({"architecture": "ovr"}, {}, "architecture"),
        ({"capsule_dim": 0}, {}, "capsule_dim"),
        ({"alpha": -1}, {}, "alpha"),
        ({"momentum": 1}, {}, "momentum"),
        ({"thresholds": (2,)}, {}, "thresholds"),
        ({"patience": (1, 2)}, {}, "patience"),
        ({"max_iter": 0}, {}, "max_iter"),
        ({}, {"Y": PAIRS}, "Y"),
        ({}, {"Y": PAIRS[:, 0]}, "Y"),
        ({}, {"Y": 2 * Y}, "row 0"),
        ({}, {"Y": np.ones_like(Y)}, "MultiLabelBinarizer"),
        ({}, {"Y": Y[:5]}, "Y"),
        ({}, {"Y": None}, "Y"),
        ({}, {"X": X * np.nan}, "X"),
        ({}, {"X": X[0]}, "X"),
        ({}, {"X": 1e200 * X}, "X"),
        ({}, {"X_val": X, "Y_val": Y[:, :3]}, "Y_val"),
        ({}, {"X_val": X[:, :2], "Y_val": Y}, "X_val"),
        ({}, {"X_val": X}, "Y_val"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, arguments, words):
    model = CapsulePairClassifier(**QUICK | settings)
    with pytest.raises((ValueError, TypeError), match=words):
        model.fit(**{"X": X, "Y": Y} | arguments)
    assert not hasattr(model, "coef_") and not hasattr(model, "n_features_in_")


def test_scenes_are_sums_of_two_moved_images():
    images, labels = np.zeros((4, 3, 3), np.float32), np.arange(4) % 3
    images[:, 1, 1] = [0.2, 0.4, 0.6, 0.8]
    made = overlay(images, labels, 500, 2, np.random.default_rng(0))
    assert (
        made.scenes.shape == (500, 7, 7)
        and (labels[made.rows] == made.pairs).all()
        and (made.pairs[:, 0] != made.pairs[:, 1]).all()
    )
    apart = (made.scenes > 0).sum(axis=(1, 2)) == 2
    assert (
        np.allclose(made.scenes.sum(axis=(1, 2))[apart], images[made.rows, 1, 1].sum(axis=1)[apart])
        and made.scenes.max() <= 1
    )
    seen = made.scenes.any(axis=0)
    assert seen[1:6, 1:6].all() and seen.sum() == 25
