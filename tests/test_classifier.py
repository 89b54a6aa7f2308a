"""`CapsuleClassifier` under the protocol of the paper: architectures, starts, batches, symmetries
and predictions, against their definitions and against problems that are learned alone.

The contracts of all estimators are in `test_contracts`, the conventions of scikit-learn in
`test_conventions`.
"""

import warnings
from itertools import combinations

import joblib
import numpy as np
import pytest
from conftest import together
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score, train_test_split

import capslit.em.loop as em_loop
from capslit import CapsuleClassifier
from capslit.capsules.inference import class_probabilities, posterior_mean

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
ARCHITECTURES = ["multiclass", "ovr", "ovo"]
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
PLAIN = {"thresholds": (0.0,), "momentum": 0.0, "monitor": "likelihood", "n_jobs": 1}
LETTERS = np.array(["ant", "bee", "cat", "dog", "eel"])
of_each = together("architecture", ARCHITECTURES)


def blobs(n=120, p=5, m=3, seed=0, spread=2.5):
    "Gaussian classes, every class with n/m examples, in mixed order."
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + spread * rng.standard_normal((m, p))[y], y


def quick(architecture="multiclass", dim=2, **settings):
    return CapsuleClassifier.paper(dim, architecture=architecture, **QUICK | settings)


def same(one, other, rtol=1e-7):
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=rtol, atol=1e-9)


@of_each
def test_columns_of_poses_have_the_names_of_their_capsules(architecture):
    "The capsule of a name is longer for its own class than for the other of its problem."
    X, y = blobs()
    model = quick(architecture).set_output(transform="pandas").fit(X, LETTERS[y])
    out = model.transform(X)
    name = {"multiclass": "{a}_{i}", "ovr": "{a}|rest_{a}_{i}", "ovo": "{a}|{b}_{a}_{i}"}
    for a, b in combinations(model.classes_, 2):
        columns = [name[architecture].format(a=a, b=b, i=i) for i in (0, 1)]
        lengths = np.sum(out[columns].to_numpy() ** 2, axis=1)
        assert lengths[LETTERS[y] == a].mean() > 2 * lengths[LETTERS[y] == b].mean()


# ── learning


@of_each
def test_the_objective_is_the_log_posterior(architecture):
    "It never falls; the weights that are kept are its last ones; alpha is per example."
    X, y = blobs(spread=0.7)
    settings = {"alpha": 0.1, "patience": (100,), "max_iter": 60} | PLAIN
    with pytest.warns(ConvergenceWarning):
        model = quick(architecture, 3, **settings).fit(X, y)
    objective = model.history_["objective"]
    assert np.diff(objective, axis=0).min() >= -1e-10 * np.abs(objective).max()
    seen = len(y)
    if architecture == "ovo":
        seen = np.array([np.isin(y, pair).sum() for pair in combinations(range(3), 2)])
    prior = 0.1 * seen / 2 * (model.coef_**2).sum(axis=(-1, -2, -3))
    logs = model.history_["log_likelihood"][-1]
    if architecture == "multiclass":
        logs = model.predict_log_proba(X)[np.arange(len(y)), y].sum()
    np.testing.assert_allclose(logs - prior, objective[-1], rtol=1e-9)


def test_capsules_of_different_dimensions():
    X, y = blobs(m=4)
    names = LETTERS[y]
    dims = {"ant": 1, "bee": 4, "cat": 2, "dog": 3, "no such class": 9}
    model = quick(dim=dims).fit(X, names)
    assert model.capsule_dims_.tolist() == [1, 4, 2, 3] and model.coef_.shape == (4, 4, 5)
    beyond = np.arange(4) >= model.capsule_dims_[:, None]
    assert not model.coef_[beyond].any() and not model.intercept_[beyond].any()
    poses = np.einsum("mdp,np->nmd", model.coef_, X) + model.intercept_
    np.testing.assert_allclose(model.transform(X), poses.reshape(len(X), -1), rtol=1e-12)
    P = class_probabilities((poses**2).sum(-1), [1, 4, 2, 3])
    np.testing.assert_allclose(model.predict_proba(X), P, rtol=1e-12)
    mean = posterior_mean(poses, y, [1, 4, 2, 3])
    np.testing.assert_allclose(model.posterior_mean(X, names), mean, rtol=1e-12)
    found = model.prototypes(X[y < 3], names[y < 3])
    assert np.array_equal(found == -1, beyond | (np.arange(4) == 3)[:, None])
    for architecture, wanted in (
        ("ovr", [[4, 1], [3, 4], [4, 2], [4, 3]]),
        ("ovo", [[1, 4], [1, 2], [1, 3], [4, 2], [4, 3], [2, 3]]),
    ):
        model = quick(architecture, dims).fit(X, names)
        assert model.capsule_dims_.tolist() == wanted and model.score(X, names) > 0.9


@together("architecture", ["ovr", "ovo"])
def test_smaller_capsules_learn_on_when_the_largest_have_stopped(architecture):
    for seed in range(6):
        X, y = blobs(m=4, seed=seed, spread=0.6)
        dims = {0: 1, 1: 3, 2: 2, 3: 1}
        model = quick(architecture, dims, thresholds=(0.6, 0.0), patience=(3, 2)).fit(X, y)
        assert model.coef_.shape[2] == 3 and np.all(np.isfinite(model.coef_))


@of_each
def test_more_capsule_dimensions_than_features_or_examples(architecture):
    X, y = blobs(p=3)
    with pytest.warns(UserWarning, match="capsule_dim"):
        assert quick(architecture, 7, random_state=0).fit(X, y).score(X, y) > 0.8
    few = np.r_[np.flatnonzero(y > 0), np.flatnonzero(y == 0)[:2]]
    with pytest.warns(UserWarning, match=r"classes \['ant'\]"):
        model = quick(architecture, 3, random_state=0).fit(X[few], LETTERS[y[few]])
    assert model.score(X, LETTERS[y]) > 0.6


def test_starts_that_are_given_or_drawn():
    X, y = blobs()
    start = np.random.default_rng(0).standard_normal((3, 2, 5))
    same(quick(init=start).fit(X, y), quick(init=start.tolist()).fit(X, y), 0)
    one, other = (quick(init="random", random_state=seed).fit(X, y) for seed in (1, 2))
    assert not np.allclose(one.coef_, other.coef_)


@of_each
def test_warm_start_goes_on_where_the_last_fit_ended(architecture):
    X, y = blobs(spread=0.7)
    settings = {"warm_start": True, "patience": (50,), "max_iter": 10} | PLAIN
    model = quick(architecture, **settings)
    objectives = []
    for _ in range(2):
        with pytest.warns(ConvergenceWarning):
            objectives.append(model.fit(X, y).history_["objective"])
    first, second = objectives
    np.testing.assert_allclose(second[0], first.max(axis=0), rtol=1e-9)
    assert np.all(second[-1] > first[-1])


@of_each
def test_validation_examples_decide(architecture):
    "Pairs of which they say nothing are learned as well."
    X, y = blobs(n=240, spread=1.0)
    held_out = {"X_val": X[120:], "y_val": y[120:]}
    model = quick(architecture).fit(X[:120], y[:120], **held_out)
    errors = model.history_["validation_error"]
    assert np.isfinite(errors[0]).all() and 0 <= np.nanmin(errors) <= np.nanmax(errors) <= 1
    if architecture == "multiclass":
        assert 1 - model.score(X[120:], y[120:]) == pytest.approx(errors.min())
    weight = np.full(120, 2.0)
    same(model, quick(architecture).fit(X[:120], y[:120], sample_weight_val=weight, **held_out), 0)
    X, y = blobs(n=200, m=4)
    known = np.flatnonzero(y[100:] < 2) + 100
    model = quick("ovo").fit(X[:100], y[:100], X_val=X[known], y_val=y[known])
    assert model.score(X, y) > 0.85


@together("held_out", [False, True])
@of_each
def test_an_error_of_zero_ends_all_rounds(architecture, held_out, monkeypatch):
    "Of some or all problems; further iterations would not change the weights that are kept."
    X, y = blobs(spread=8.0)
    validation = {"X_val": X[80:], "y_val": y[80:]} if held_out else {}
    model = quick(architecture, thresholds=(0.8, 0.6, 0.4, 0.2, 0), patience=(20,) * 5)
    stopped = clone(model).fit(X[:80], y[:80], **validation)
    monkeypatch.setattr(em_loop, "_cannot_improve", lambda score, _: np.zeros(score.shape, bool))
    patient = clone(model).fit(X[:80], y[:80], **validation)
    same(stopped, patient, 0)
    assert stopped.n_iter_ < patient.n_iter_ - 20


def test_early_stopping_holds_examples_out():
    "Examples of weight zero are not among them."
    X, y = blobs(n=300)
    model = quick(early_stopping=0.3, random_state=0).fit(X, y)
    assert np.isfinite(model.history_["validation_error"]).all()
    assert np.isnan(quick().fit(X, y).history_["validation_error"]).all()
    some = quick(early_stopping=True, random_state=0)
    weight = (np.arange(300) < 200) * 1.0
    same(clone(some).fit(X[:200], y[:200]), clone(some).fit(X, y, weight))


# ── batches


@pytest.mark.parametrize(
    "architecture, size, passes", [("multiclass", 32, 10), ("ovr", 32, 10), ("ovo", 128, 5)]
)
def test_small_batches_reach_the_accuracy_of_fit(architecture, size, passes):
    "And learning goes on in batches after a fit."
    X, y = load_digits(n_class=5, return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=250, stratify=y, random_state=0)
    online = CapsuleClassifier.paper(4, architecture=architecture, n_jobs=1)
    rng = np.random.default_rng(0)
    for rows in passes * np.array_split(rng.permutation(len(X)), len(X) // size):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            online.partial_fit(X[rows], y[rows], classes=np.arange(5))
    whole = clone(online).set_params(schedule__patience=(16, 8, 4, 2, 1)).fit(X, y)
    score = whole.score(X_test, y_test)
    assert score > 0.94 and online.score(X_test, y_test) > score - 0.025
    for rows in np.array_split(np.arange(len(X)), 3):
        assert whole.partial_fit(X[rows], y[rows]).score(X_test, y_test) > score - 0.03


@of_each
def test_classes_that_appear_late(architecture):
    X, y = blobs(n=400, m=4)
    early = np.flatnonzero(y[:200] < 2)
    model = quick(architecture, random_state=0)
    model.partial_fit(X[early], LETTERS[y[early]], classes=LETTERS[:4])
    assert set(model.predict(X)) == {"ant", "bee"}
    for rows in np.array_split(np.arange(200, 400), 5) * 4:
        model.partial_fit(X[rows], LETTERS[y[rows]])
    assert model.score(X, LETTERS[y]) > 0.9


def test_the_first_batch_is_one_em_step_from_the_subspaces():
    X, y = blobs()
    step = quick().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.warns(ConvergenceWarning):  # judges the start, then the first step
        same(step, quick(patience=(9,), max_iter=2, **PLAIN).fit(X, y))


# ── symmetries


@of_each
@together("fit_intercept", [True, False])
def test_rotations_orders_and_names_do_not_matter(architecture, fit_intercept):
    X, y = blobs(spread=0.7)
    rng = np.random.default_rng(5)
    settings = {"patience": (50,), "max_iter": 15, "fit_intercept": fit_intercept} | PLAIN
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    columns, rows = rng.permutation(5), rng.permutation(len(y))

    def probabilities(Z, labels=y):
        with pytest.warns(ConvergenceWarning):
            return quick(architecture, **settings).fit(Z, labels).predict_proba(Z)

    wanted = probabilities(X)
    for found in (
        probabilities(X @ rotation),
        probabilities(X[:, columns]),
        probabilities(X[rows], y[rows])[np.argsort(rows)],
        probabilities(X, 2 - y)[:, ::-1],
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-7)


# ── predictions


@of_each
@together("m", [2, 4])
@together("fit_intercept", [True, False])
def test_predictions_agree_with_each_other(architecture, m, fit_intercept):
    "And many examples are judged as few are: 9,600 rows take more than one block."
    X, y = blobs(n=160, m=m, spread=1.0)
    model = quick(architecture, 3, fit_intercept=fit_intercept).fit(X, LETTERS[y])
    P, scores, labels = model.predict_proba(X), model.decision_function(X), model.predict(X)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-13)
    assert (P >= 0).all() and np.array_equal(model.classes_[P.argmax(axis=1)], labels)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), P, rtol=1e-12)
    np.testing.assert_allclose((model.squash(X) ** 2).sum(axis=(-1, -2)), 1, rtol=1e-13)
    if m == 2:
        assert model.coef_.shape[:2] == (2, 3) and scores.shape == (160,)
        np.testing.assert_allclose(scores, np.log(P[:, 1] / P[:, 0]), rtol=1e-9, atol=1e-12)
        scores = np.stack([-scores, scores], axis=1)
    assert np.array_equal(model.classes_[scores.argmax(axis=1)], labels)
    many = np.tile(X, (60, 1))
    assert np.array_equal(model.predict(many), np.tile(labels, 60))
    for method in "predict_proba", "predict_log_proba", "decision_function", "transform", "squash":
        few, found = (getattr(model, method)(inputs) for inputs in (X, many))
        wanted = np.tile(few, (60,) + (1,) * (few.ndim - 1))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-13)


# ── problems that are learned alone


@together("fit_intercept", [True, False])
@together("alpha", [0.0, 0.2])
def test_stacked_problems_are_problems_trained_alone(fit_intercept, alpha):
    X, y = blobs(n=160, m=4, spread=0.8)
    settings = {"fit_intercept": fit_intercept, "alpha": alpha}
    stacked, rest = (quick(kind, **settings).fit(X, y) for kind in ("ovo", "ovr"))
    votes = np.zeros((len(X), 4))
    for q, pair in enumerate(combinations(range(4), 2)):
        rows = np.isin(y, pair)
        alone = quick(**settings).fit(X[rows], y[rows])
        np.testing.assert_allclose(stacked.coef_[q], alone.coef_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(stacked.intercept_[q], alone.intercept_, rtol=1e-7, atol=1e-9)
        history = stacked.history_["log_likelihood"][: alone.n_iter_, q]
        np.testing.assert_allclose(history, alone.history_["log_likelihood"], rtol=1e-9)
        P = alone.predict_proba(X)
        votes[:, pair] += (P >= P[:, ::-1]) + (P - 0.5) / 4
    assert np.array_equal(stacked.predict(X), votes.argmax(axis=1))
    np.testing.assert_allclose(stacked.decision_function(X), votes, rtol=1e-6)
    scores = np.zeros((len(X), 4))
    for c, coef in enumerate(rest.coef_):
        alone = quick(**settings).fit(X, y == c)
        np.testing.assert_allclose(coef, alone.coef_, rtol=1e-7, atol=1e-9)
        scores[:, c] = alone.predict_proba(X)[:, 1]
    P = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rest.predict_proba(X), P, rtol=1e-6)
    assert np.array_equal(rest.predict(X), scores.argmax(axis=1))


def test_fits_in_parallel_threads():
    X, y = blobs(n=600)
    model = quick(n_jobs=2)
    with joblib.parallel_backend("threading", n_jobs=4):
        parallel = cross_val_score(model, X, y, cv=8)
    assert np.array_equal(parallel, cross_val_score(model, X, y, cv=8))
