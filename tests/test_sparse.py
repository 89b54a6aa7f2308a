"""Sparse matrices: the same models as from dense arrays, and never more than a part of
them dense.
"""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import together
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from capslit import CapsuleClassifier
from capslit.arrays import SparseRows
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.settings import RBF, Schedule

rng = np.random.default_rng(0)
Y = np.arange(240) % 3
X = np.maximum(rng.standard_normal((240, 12)) + 1.5 * rng.standard_normal((3, 12))[Y] - 1, 0)
KINDS = {
    "csr_matrix": sp.csr_matrix,
    "csc_array": sp.csc_array,
    "coo_matrix": sp.coo_matrix,
    "lil_array": sp.lil_array,
}
LINEAR = {"kernel": None, "alpha": 0.05, "sharpness": 1.0}
WAYS = {
    "defaults": {},
    "linear": LINEAR,
    "rbf": {"kernel": RBF(n_landmarks=30)},
    "held out": {"early_stopping": True, "random_state": 0, "kernel": "poly"},
    "held out, linear": {"early_stopping": True, "random_state": 0, "kernel": None},
    "balanced": {"class_weight": "balanced", "fit_intercept": False},
    "paper": CapsuleClassifier.paper(2, patience=(4, 2, 2, 1, 1)).get_params(deep=False),
}
METHODS = ("predict_proba", "predict_log_proba", "decision_function", "transform", "squash")


@pytest.mark.filterwarnings("ignore:EM stopped")
@together("architecture", ["multiclass", "ovr", "ovo"])
@together("way", WAYS)
def test_the_model_is_that_of_the_dense_inputs(way, architecture):
    options = {"capsule_dim": 2, "n_jobs": 1} | WAYS[way] | {"architecture": architecture}
    dense, sparse = (CapsuleClassifier(**options).fit(inputs, Y) for inputs in (X, sp.csr_array(X)))
    for method in METHODS:
        expected = getattr(dense, method)(X)
        for inputs in (sp.csr_array(X), X):
            np.testing.assert_allclose(
                getattr(sparse, method)(inputs), expected, rtol=0, atol=1e-8, err_msg=method
            )
    assert sparse.score(sp.csr_array(X), Y) == dense.score(X, Y) > 0.8


@together("kind", KINDS)
def test_every_format_is_taken_and_left_as_it_is(kind):
    inputs = KINDS[kind](X.astype(np.float32))
    model = CapsuleClassifier(2, **LINEAR).fit(inputs, Y, X_val=inputs, y_val=Y)
    assert model.coef_.dtype == np.float32 and model.predict_proba(inputs).dtype == np.float32
    assert np.array_equal(inputs.toarray(), X.astype(np.float32)) and model.score(inputs, Y) > 0.8


@pytest.mark.filterwarnings("ignore:EM stopped")
def test_online_learning_cross_validation_and_looks_inside():
    S, weight = sp.csr_matrix(X), rng.uniform(0.5, 2, 240)
    dense, sparse = CapsuleClassifier(2, **LINEAR), CapsuleClassifier(2, **LINEAR)
    for part in (slice(0, 80), slice(80, 240)):
        dense.partial_fit(X[part], Y[part], [0, 1, 2], weight[part])
        sparse.partial_fit(S[part], Y[part], [0, 1, 2], weight[part])
    np.testing.assert_allclose(sparse.predict_proba(S), dense.predict_proba(X), atol=1e-8)
    for options in (
        LINEAR,
        LINEAR | {"early_stopping": True, "random_state": 0},
        {"kernel": "rbf"},
    ):
        together, alone = (
            cross_validate(CapsuleClassifier(2, **options), inputs, Y, cv=3)["test_score"]
            for inputs in (sp.coo_matrix(X), X)
        )
        assert np.array_equal(together, alone)
    assert np.array_equal(
        cross_val_score(CapsuleClassifier(2, **LINEAR), S, Y, cv=3),
        cross_validate(CapsuleClassifier(2, **LINEAR), S, Y, cv=3)["test_score"],
    )
    one = CapsuleClassifier.paper(2, patience=(2, 1, 1, 1, 1)).fit(S, Y)
    assert np.array_equal(one.prototypes(S, Y), one.prototypes(X, Y))
    np.testing.assert_allclose(one.posterior_mean(S, Y), one.posterior_mean(X, Y), atol=1e-8)


@pytest.mark.filterwarnings("ignore:EM stopped")
@together("kernel", [None, RBF(0.1, 20)])
def test_memory_stays_far_below_that_of_a_dense_array(kernel):
    wide = sp.random_array((60_000, 400), density=0.01, rng=np.random.default_rng(0), format="csr")
    y, dense = np.asarray(wide.sum(axis=1) > 2, int), 60_000 * 400 * 8
    tracemalloc.start()
    model = CapsuleClassifier(
        1,
        kernel=kernel,
        alpha=0.1,
        early_stopping=True,
        random_state=0,
        max_iter=3,
        n_jobs=1,
    ).fit(wide, y)
    model.predict(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < dense / (2 if kernel else 4), f"{peak / 2**20:.0f} MB"


def test_products_leave_the_zeros_out(monkeypatch):
    monkeypatch.setattr(SparseRows, "toarray", None)
    model = CapsuleClassifier(2, **LINEAR).fit(sp.csr_array(X), Y)
    assert model.predict_proba(sp.csr_array(X)).shape == (240, 3)


def test_what_is_too_wide():
    labels = np.arange(60) % 2
    wide = sp.random_array((60, 6_000), density=0.01, rng=np.random.default_rng(0), format="csr")
    with pytest.raises(
        ValueError, match="kernel='rbf' needs dense landmarks.*TruncatedSVD or SelectKBest"
    ):
        CapsuleClassifier(2, kernel="rbf").fit(wide, labels)
    long = sp.random_array(
        (40_000, 40_000), density=1e-6, rng=np.random.default_rng(0), format="csr"
    )
    with pytest.raises(
        ValueError,
        match=r"X has 40000 columns.*\(48 GB\); reduce the columns by TruncatedSVD or SelectKBest",
    ):
        CapsuleClassifier(2, alpha=1.0, sharpness=1.0, early_stopping=False).fit(
            long, np.arange(40_000) % 2
        )


def texts(n, p, m, seed=0):
    "Counts (n, p) of words in texts on m topics, and the topics (n,)."
    rng = np.random.default_rng(seed)
    topics, y = rng.dirichlet(np.full(p, 0.02), m), rng.integers(0, m, n)
    return sp.csr_matrix(
        np.stack(
            [rng.multinomial(80, 0.3 * topics[k] + 0.7 * topics.mean(axis=0)) for k in y]
        ).astype(float)
    ), y


def test_few_rows_of_many_columns_need_no_matrix_of_all_columns(monkeypatch):
    from capslit.capsules import engine, problems

    sizes = []
    for module in (engine, problems):
        found = module.root_of_inverse
        monkeypatch.setattr(
            module,
            "root_of_inverse",
            lambda gram, found=found: sizes.append(len(gram)) or found(gram),
        )
    (counts, topics), labels = texts(250, 20_000, 3), np.array(["a", "b", "c"])
    model = CapsuleClassifier().fit(
        counts[:150], labels[topics[:150]], X_val=counts[150:200], y_val=labels[topics[150:200]]
    )
    assert (
        0 < max(sizes) <= 151
        and model.coef_.shape == (3, 2, 4, 20_000)
        and model.kernel_features_ is None
    )
    assert (
        model.score(counts[200:], labels[topics[200:]]) > 0.8
        and len(set(model.cv_results_["alpha"])) == 4
    )


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
    from capslit.capsules import features, problems

    rng = np.random.default_rng(0)
    inputs, classes, weight = (
        rng.standard_normal((160, 520)) + 1,
        np.arange(160) % 3,
        rng.uniform(0.5, 2, 160),
    )
    inputs[:, :5] += classes[:, None]
    inputs[7], inputs[8] = inputs[4], 0  # rows that add no direction
    given = {"kernel": None, "alpha": 0.1, "sharpness": 1.0} | options
    models = []
    for narrow in (500, 10_000):  # with a rotation, and without
        monkeypatch.setattr(features, "NARROW", narrow)
        monkeypatch.setattr(problems, "NARROW", narrow)
        model = CapsuleClassifier(**given).fit(
            inputs[:120], classes[:120], weight[:120], X_val=inputs[120:], y_val=classes[120:]
        )
        models.append(model)
        if not options:  # and on from there
            models.append(
                clone(model)
                .set_params(warm_start=True, schedule=Schedule(init=np.array(model.coef_)))
                .fit(inputs[:120], classes[:120])
            )
    for ours, plain in zip(models[: len(models) // 2], models[len(models) // 2 :]):
        assert ours.coef_.shape == plain.coef_.shape and ours.n_iter_ == plain.n_iter_
        sign = np.sign(
            np.sum(ours.coef_ * plain.coef_, axis=-1, keepdims=True)
        )  # that of an eigenvector is anybody's
        np.testing.assert_allclose(
            ours.coef_ * sign, plain.coef_, rtol=0, atol=1e-8 * np.abs(plain.coef_).max()
        )
        np.testing.assert_allclose(
            ours.predict_proba(inputs), plain.predict_proba(inputs), rtol=0, atol=1e-7
        )
        np.testing.assert_allclose(
            ours.history_["log_likelihood"], plain.history_["log_likelihood"], rtol=1e-7
        )


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_thin_matrices_of_pairs_with_few_rows_give_the_same_model(fit_intercept, monkeypatch):
    from capslit.capsules import problems

    rng, classes = np.random.default_rng(0), np.arange(600) % 10
    inputs, models, ranks = (
        rng.standard_normal((600, 510)) + 1 + rng.standard_normal((10, 510))[classes] / 4,
        [],
        [],
    )
    thin = problems._thin_root
    for root in (
        lambda *given: ranks.append(thin(*given).shape[1]) or thin(*given),
        lambda *given: None,
    ):
        monkeypatch.setattr(problems, "_thin_root", root)
        models.append(
            CapsuleClassifier(1, **LINEAR, fit_intercept=fit_intercept, random_state=0).fit(
                inputs, classes
            )
        )
    assert len(ranks) == 45 and max(ranks) <= 121
    np.testing.assert_allclose(
        models[0].coef_, models[1].coef_, rtol=0, atol=1e-9 * np.abs(models[1].coef_).max()
    )


@pytest.mark.filterwarnings("ignore:EM stopped")
def test_a_wide_matrix_gets_a_moderate_prior_and_no_kernel(monkeypatch):
    import capslit.capsules.search as module

    monkeypatch.setattr(module, "WIDE", 10)  # columns
    model = CapsuleClassifier(2).fit(sp.csr_array(X), Y)
    assert model.kernel_features_ is None and model.score(X, Y) > 0.9
    monkeypatch.setattr(module, "STACK", 100)
    unchosen = CapsuleClassifier(2).fit(sp.csr_array(X), Y)
    assert (
        unchosen.cv_results_ == {}
        and unchosen.alpha_ == pytest.approx(1e-3 * np.mean(np.var(X, axis=0)))
        and unchosen.score(X, Y) > 0.9
    )


@together("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad):
    spoiled, model = sp.csr_array(X).copy(), CapsuleClassifier(2, **LINEAR).fit(X, Y)
    spoiled.data[5] = bad
    for call in (
        lambda: CapsuleClassifier(2).fit(spoiled, Y),
        lambda: model.predict(spoiled),
        lambda: model.transform(spoiled),
    ):
        with pytest.raises(ValueError, match="X contains (NaN|infinity)"):
            call()
