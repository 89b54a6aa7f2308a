"""Sparse matrices: the same models as from dense arrays, and never more than a part of
them dense.
"""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import together
from sklearn.base import clone

from capslit import CapsuleClassifier
from capslit.arrays import SparseRows
from capslit.capsules import engine, features, problems, search
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.settings import RBF, Schedule

rng = np.random.default_rng(0)
Y = np.arange(240) % 3
X = np.maximum(rng.standard_normal((240, 12)) + 1.5 * rng.standard_normal((3, 12))[Y] - 1, 0)
S = sp.csr_array(X)
LINEAR = {"kernel": None, "alpha": 0.05, "sharpness": 1.0}
HELD_OUT = {"early_stopping": True, "random_state": 0}
WAYS = [
    {},
    LINEAR,
    {"kernel": RBF(n_landmarks=30)},
    HELD_OUT | {"kernel": "poly"},
    HELD_OUT | {"kernel": None},
    {"class_weight": "balanced", "fit_intercept": False},
    CapsuleClassifier.paper(2, patience=(4, 2, 2, 1, 1)).get_params(deep=False),
]
METHODS = ("predict_proba", "predict_log_proba", "decision_function", "transform", "squash")


@pytest.mark.filterwarnings("ignore:EM stopped")
@together("architecture", ["multiclass", "ovr", "ovo"])
@together("way", WAYS)
def test_the_model_is_that_of_the_dense_inputs(way, architecture):
    options = {"capsule_dim": 2, "n_jobs": 1} | way | {"architecture": architecture}
    dense, sparse = (CapsuleClassifier(**options).fit(inputs, Y) for inputs in (X, S))
    for method in METHODS:
        expected = getattr(dense, method)(X)
        for inputs in (S, X):
            found = getattr(sparse, method)(inputs)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8, err_msg=method)
    assert sparse.score(S, Y) == dense.score(X, Y) > 0.8


@together("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array])
def test_every_format_is_taken_and_left_as_it_is(kind):
    inputs = kind(X.astype(np.float32))
    model = CapsuleClassifier(2, **LINEAR).fit(inputs, Y, X_val=inputs, y_val=Y)
    assert model.coef_.dtype == model.predict_proba(inputs).dtype == np.float32
    assert np.array_equal(inputs.toarray(), X.astype(np.float32))
    assert model.score(inputs, Y) > 0.8


def test_online_learning_cross_validation_and_looks_inside():
    weight = rng.uniform(0.5, 2, 240)
    dense, sparse = (CapsuleClassifier(2, **LINEAR) for _ in range(2))
    for part in (slice(0, 80), slice(80, 240)):
        dense.partial_fit(X[part], Y[part], [0, 1, 2], weight[part])
        sparse.partial_fit(S[part], Y[part], [0, 1, 2], weight[part])
    np.testing.assert_allclose(sparse.predict_proba(S), dense.predict_proba(X), atol=1e-8)
    for options in (LINEAR, LINEAR | HELD_OUT, {"kernel": "rbf"}):
        model = CapsuleClassifier(2, **options)
        ours, theirs = (cross_validate(model, a, Y, cv=3) for a in (sp.coo_matrix(X), X))
        assert np.array_equal(ours["test_score"], theirs["test_score"])
    one = CapsuleClassifier.paper(2, patience=(2, 1, 1, 1, 1)).fit(S, Y)
    assert np.array_equal(one.prototypes(S, Y), one.prototypes(X, Y))
    np.testing.assert_allclose(one.posterior_mean(S, Y), one.posterior_mean(X, Y), atol=1e-8)


@pytest.mark.filterwarnings("ignore:EM stopped")
@together("kernel", [None, RBF(0.1, 20)])
def test_memory_stays_far_below_that_of_a_dense_array(kernel):
    wide = sp.random_array((60_000, 400), density=0.01, rng=np.random.default_rng(0), format="csr")
    y = np.asarray(wide.sum(axis=1) > 2, int)
    model = CapsuleClassifier(1, kernel=kernel, alpha=0.1, max_iter=3, n_jobs=1, **HELD_OUT)
    tracemalloc.start()
    model.fit(wide, y).predict(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000 * 400 * 8 / (2 if kernel else 4), f"{peak / 2**20:.0f} MB"


def test_products_leave_the_zeros_out(monkeypatch):
    monkeypatch.setattr(SparseRows, "toarray", None)
    assert CapsuleClassifier(2, **LINEAR).fit(S, Y).predict_proba(S).shape == (240, 3)


def test_what_is_too_wide():
    def wide(n, p, density):
        generator = np.random.default_rng(0)
        return sp.random_array((n, p), density=density, rng=generator), np.arange(n) % 2

    with pytest.raises(ValueError, match="kernel='rbf' needs dense landmarks.*SelectKBest"):
        CapsuleClassifier(2, kernel="rbf").fit(*wide(60, 6_000, 0.01))
    said = r"X has 40000 columns.*\(48 GB\); reduce the columns by TruncatedSVD or SelectKBest"
    with pytest.raises(ValueError, match=said):
        CapsuleClassifier(2, **LINEAR, early_stopping=False).fit(*wide(40_000, 40_000, 1e-6))


def test_few_rows_of_many_columns_need_no_matrix_of_all_columns(monkeypatch):
    sizes = []
    original = engine.root_of_inverse

    def root_of_inverse(gram):
        sizes.append(len(gram))
        return original(gram)

    for module in (engine, problems):
        monkeypatch.setattr(module, "root_of_inverse", root_of_inverse)
    # counts of words in texts on three topics
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(20_000, 0.02), 3)
    y = rng.integers(0, 3, 250)
    words = 0.3 * topics[y] + 0.7 * topics.mean(axis=0)
    counts = sp.csr_matrix(np.stack([rng.multinomial(80, row) for row in words]).astype(float))
    model = CapsuleClassifier()
    model.fit(counts[:150], y[:150], X_val=counts[150:200], y_val=y[150:200])
    assert 0 < max(sizes) <= 151
    assert model.coef_.shape == (3, 2, 4, 20_000)
    assert model.kernel_features_ is None
    assert model.score(counts[200:], y[200:]) > 0.8
    assert len(set(model.cv_results_["alpha"])) == 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"architecture": "multiclass"},
        {"architecture": "ovr"},
        {"kernel": RBF(1e-3)},
        {"fit_intercept": False},
        {"schedule": Schedule(parameter_expansion=True)},
        {"schedule": Schedule(acceleration="squarem")},
    ],
    ids=str,
)
def test_the_span_of_few_rows_gives_the_same_model(options, monkeypatch):
    "With a rotation into the span, and without; and where learning goes on from there."
    rng = np.random.default_rng(0)
    y = np.arange(160) % 3
    inputs = rng.standard_normal((160, 520)) + 1
    weight = rng.uniform(0.5, 2, 120)
    inputs[:, :5] += y[:, None]
    inputs[7], inputs[8] = inputs[4], 0  # rows that add no direction
    held_out = {"X_val": inputs[120:], "y_val": y[120:]}
    models = []
    for narrow in (500, 10_000):
        monkeypatch.setattr(features, "NARROW", narrow)
        monkeypatch.setattr(problems, "NARROW", narrow)
        model = CapsuleClassifier(**LINEAR | {"alpha": 0.1} | options).fit(
            inputs[:120], y[:120], weight, **held_out
        )
        models.append([model])
        if not options:
            start = Schedule(init=np.array(model.coef_))
            later = clone(model).set_params(warm_start=True, schedule=start)
            models[-1].append(later.fit(inputs[:120], y[:120]))
    for ours, plain in zip(*models):
        assert ours.coef_.shape == plain.coef_.shape
        assert ours.n_iter_ == plain.n_iter_
        # the sign of an eigenvector is arbitrary
        sign = np.sign(np.sum(ours.coef_ * plain.coef_, axis=-1, keepdims=True))
        largest = np.abs(plain.coef_).max()
        np.testing.assert_allclose(ours.coef_ * sign, plain.coef_, rtol=0, atol=1e-8 * largest)
        found, known = (model.predict_proba(inputs) for model in (ours, plain))
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-7)
        found, known = (model.history_["log_likelihood"] for model in (ours, plain))
        np.testing.assert_allclose(found, known, rtol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_thin_matrices_of_pairs_with_few_rows_give_the_same_model(fit_intercept, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(600) % 10
    inputs = rng.standard_normal((600, 510)) + 1 + rng.standard_normal((10, 510))[y] / 4
    ranks = []
    original = problems._thin_root

    def thin_root(*arguments):
        root = original(*arguments)
        ranks.append(root.shape[1])
        return root

    coefs = []
    for root in (thin_root, lambda *_: None):
        monkeypatch.setattr(problems, "_thin_root", root)
        model = CapsuleClassifier(1, **LINEAR, fit_intercept=fit_intercept, random_state=0)
        coefs.append(model.fit(inputs, y).coef_)
    assert len(ranks) == 45
    assert max(ranks) <= 121
    np.testing.assert_allclose(*coefs, rtol=0, atol=1e-9 * np.abs(coefs[1]).max())


@pytest.mark.filterwarnings("ignore:EM stopped")
def test_a_wide_matrix_gets_a_moderate_prior_and_no_kernel(monkeypatch):
    monkeypatch.setattr(search, "WIDE", 10)  # columns
    model = CapsuleClassifier(2).fit(S, Y)
    assert model.kernel_features_ is None
    assert model.score(X, Y) > 0.9
    monkeypatch.setattr(search, "STACK", 100)
    unchosen = CapsuleClassifier(2).fit(S, Y)
    assert unchosen.cv_results_ == {}
    assert unchosen.alpha_ == pytest.approx(1e-3 * np.mean(np.var(X, axis=0)))
    assert unchosen.score(X, Y) > 0.9


@together("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad):
    spoiled = S.copy()
    spoiled.data[5] = bad
    model = CapsuleClassifier(2, **LINEAR).fit(X, Y)
    for call in (lambda X: clone(model).fit(X, Y), model.predict, model.transform):
        with pytest.raises(ValueError, match="X contains (NaN|infinity)"):
            call(spoiled)
