"""`CapsuleClassifier` as a demanding user of scikit-learn meets it, and against brute force."""

import functools
import warnings
from itertools import combinations

import joblib
import numpy as np
import pandas as pd
import pytest
from conftest import together
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import ThreadpoolController

import capslit.em.loop as em_loop
from capslit import CapsuleClassifier, em
from capslit.capsules.inference import class_probabilities, posterior_mean
from capslit.storage import load_arrays, save_arrays

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
ARCHITECTURES = ["multiclass", "ovr", "ovo"]
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
PLAIN = {"thresholds": (0.0,), "momentum": 0.0, "monitor": "likelihood", "n_jobs": 1}
LETTERS = np.array(["ant", "bee", "cat", "dog", "eel"])


def blobs(n=120, p=5, m=3, seed=0, spread=2.5):
    "Gaussian classes, every class with n/m examples, in mixed order."
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + spread * rng.standard_normal((m, p))[y], y


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=500, stratify=y, random_state=0)


def poses(model, X):
    "E[h|x] (n, m, d) by its definition."
    return np.einsum("mdp,np->nmd", model.coef_, X) + model.intercept_


# ── a citizen of scikit-learn
# ────────────────────────────────────────────────────────────────────────────────────────────────


@together("architecture", ARCHITECTURES)
@together(
    "labels",
    [
        LETTERS,
        LETTERS.astype(object),
        np.array([-3, 7, 40]),
        np.array([0.0, 0.5, 2.0]).astype(int) * 10 + 1,
    ],
)
def test_labels_of_any_kind(architecture, labels):
    X, y = blobs()
    names = labels[y]
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X, names)
    assert model.classes_.tolist() == sorted(set(names.tolist()))
    assert set(model.predict(X)) <= set(names) and model.score(X, names) > 0.9


def test_pipeline_clone_and_search():
    X, y = blobs()
    pipeline = make_pipeline(StandardScaler(), CapsuleClassifier.paper(2, **QUICK))
    assert clone(pipeline).fit(X, LETTERS[y]).score(X, LETTERS[y]) > 0.9
    grid = {
        "capsuleclassifier__capsule_dim": [1, 3],
        "capsuleclassifier__architecture": ARCHITECTURES,
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, LETTERS[y])
    assert search.best_score_ > 0.85 and len(search.cv_results_["params"]) == 6
    features = make_pipeline(
        CapsuleClassifier.paper(2, **QUICK), CapsuleClassifier.paper(1, **QUICK)
    )  # poses as features
    assert features.fit(X, y).score(X, y) > 0.9


def test_calibration():
    X, y = blobs()
    model = CalibratedClassifierCV(CapsuleClassifier.paper(2, **QUICK), cv=2).fit(X, y)
    assert model.score(X, y) > 0.85


@together("architecture, columns", [("multiclass", 3 * 2), ("ovr", 3 * 2 * 2), ("ovo", 3 * 2 * 2)])
def test_frames_and_names(architecture, columns):
    X, y = blobs()
    frame = pd.DataFrame(
        X, columns=[f"feature {i}" for i in range(5)], index=np.arange(len(y)) + 100
    )
    model = (
        CapsuleClassifier.paper(2, architecture=architecture, **QUICK)
        .set_output(transform="pandas")
        .fit(frame, pd.Series(LETTERS[y]))
    )
    out = model.transform(frame)
    assert (
        isinstance(out, pd.DataFrame)
        and out.shape == (120, columns)
        and out.index.equals(frame.index)
    )
    names = {"multiclass": "{a}_{i}", "ovr": "{a}|rest_{a}_{i}", "ovo": "{a}|{b}_{a}_{i}"}[
        architecture
    ]
    a, b, c = model.classes_.tolist()
    assert out.columns.tolist() == model.get_feature_names_out().tolist() and out.columns.is_unique
    for own, other in ((a, b), (a, c), (b, c)):  # the capsule of that name is longer for its class
        lengths = sum(out[names.format(a=own, b=other, i=i)] ** 2 for i in (0, 1)).to_numpy()
        assert lengths[LETTERS[y] == own].mean() > 2 * lengths[LETTERS[y] == other].mean()
    with pytest.raises(ValueError, match="input_features"):
        model.get_feature_names_out(["other"])
    assert model.n_features_in_ == 5 and model.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])
    assert not hasattr(model.fit(X, y), "feature_names_in_")


@together("dtype", [np.float32, np.float64])
@together("architecture", ARCHITECTURES)
def test_precision_is_kept(dtype, architecture):
    X, y = blobs()
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X.astype(dtype), y)
    outputs = [
        model.coef_,
        model.intercept_,
        *(
            getattr(model, f)(X.astype(dtype))
            for f in ("transform", "predict_proba", "decision_function", "squash")
        ),
    ]
    assert {a.dtype for a in outputs} == {np.dtype(dtype)}
    double = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X, y)
    assert np.mean(model.predict(X) == double.predict(X)) > 0.97


# ── learning
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_digits_are_learned(digits, architecture):
    X, X_test, y, y_test = digits
    model = CapsuleClassifier.paper(4, architecture=architecture, patience=(16, 8, 4, 2, 1)).fit(
        X, y
    )
    assert model.score(X_test, y_test) > 0.94
    assert {len(values) for values in model.history_.values()} == {model.n_iter_}
    assert set(model.history_) == {
        "log_likelihood",
        "objective",
        "training_error",
        "validation_error",
        "threshold",
    }


@together("architecture", ARCHITECTURES)
@together("fit_intercept", [True, False])
@together("alpha", [0.0, 0.5])
def test_a_weight_is_a_repetition(architecture, fit_intercept, alpha):
    X, y = blobs()
    w = np.random.default_rng(1).integers(0, 4, len(y))
    options = {
        "architecture": architecture,
        "fit_intercept": fit_intercept,
        "alpha": alpha,
        **QUICK,
    }
    weighted = CapsuleClassifier.paper(2, **options).fit(X, y, sample_weight=w)
    repeated = CapsuleClassifier.paper(2, **options).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-8, atol=1e-10)


@together("architecture", ARCHITECTURES)
@together("alpha", [0.0, 0.1, 30.0])
def test_the_log_posterior_never_decreases(architecture, alpha):
    X, y = blobs(spread=0.7)
    with pytest.warns(ConvergenceWarning):
        model = CapsuleClassifier.paper(
            3,
            architecture=architecture,
            alpha=alpha / len(y),
            patience=(100,),
            max_iter=60,
            **PLAIN,
        ).fit(X, y)
    objective = model.history_["objective"]
    assert np.diff(objective, axis=0).min() >= -1e-10 * np.abs(objective).max()
    share = (
        1.0
        if architecture != "ovo"
        else np.array([np.isin(y, pair).mean() for pair in combinations(model.classes_, 2)])
    )
    prior = (
        alpha * share / 2 * (model.coef_**2).sum(axis=(-1, -2, -3))
    )  # the parameter is per example
    logs = (
        model.predict_log_proba(X)[np.arange(len(y)), y].sum()
        if architecture == "multiclass"
        else model.history_["log_likelihood"][-1]
    )
    np.testing.assert_allclose(
        logs - prior, objective[-1], rtol=1e-9
    )  # the last weights are the best ones


def test_alpha_shrinks_the_weights():
    X, y = blobs(spread=0.7)
    sizes = [
        np.linalg.norm(
            CapsuleClassifier.paper(2, alpha=alpha, patience=(20,), tol=1e-4, **PLAIN)
            .fit(X, y)
            .coef_
        )
        for alpha in (0, 0.1, 10, 1e3)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 0.1 * sizes[0]


def test_capsules_of_different_dimensions():
    X, y = blobs(m=4)
    dims = {"ant": 1, "bee": 4, "cat": 2, "dog": 3, "no such class": 9}
    model = CapsuleClassifier.paper(dims, **QUICK).fit(X, LETTERS[y])
    assert model.capsule_dims_.tolist() == [1, 4, 2, 3] and model.coef_.shape == (4, 4, 5)
    beyond = np.arange(4) >= model.capsule_dims_[:, None]
    assert (
        not model.coef_[beyond].any()
        and not model.intercept_[beyond].any()
        and (model.prototypes(X, LETTERS[y])[beyond] == -1).all()
    )
    np.testing.assert_allclose(
        model.predict_proba(X),
        class_probabilities((poses(model, X) ** 2).sum(-1), [1, 4, 2, 3]),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        model.posterior_mean(X, LETTERS[y]),
        posterior_mean(poses(model, X), y, [1, 4, 2, 3]),
        rtol=1e-12,
    )
    assert model.score(X, LETTERS[y]) > 0.9
    rest = CapsuleClassifier.paper(dims, architecture="ovr", **QUICK).fit(X, LETTERS[y])
    assert (
        rest.capsule_dims_.tolist() == [[4, 1], [3, 4], [4, 2], [4, 3]]
        and rest.score(X, LETTERS[y]) > 0.9
    )
    pairs = CapsuleClassifier.paper(dims, architecture="ovo", **QUICK).fit(X, LETTERS[y])
    assert (
        pairs.capsule_dims_.tolist() == [[1, 4], [1, 2], [1, 3], [4, 2], [4, 3], [2, 3]]
        and pairs.score(X, LETTERS[y]) > 0.9
    )


@together("architecture", ARCHITECTURES)
def test_more_capsule_dimensions_than_features_or_examples(architecture):
    X, y = blobs(p=3)
    with pytest.warns(UserWarning, match="capsule_dim"):
        model = CapsuleClassifier.paper(7, architecture=architecture, random_state=0, **QUICK).fit(
            X, y
        )
    assert model.score(X, y) > 0.8 and np.isfinite(model.coef_).all()
    few = np.r_[np.flatnonzero(y > 0), np.flatnonzero(y == 0)[:2]]
    with pytest.warns(UserWarning, match=r"classes \['ant'\]"):
        model = CapsuleClassifier.paper(3, architecture=architecture, random_state=0, **QUICK).fit(
            X[few], LETTERS[y[few]]
        )
    assert model.score(X, LETTERS[y]) > 0.6


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert CapsuleClassifier.paper(2, max_iter=3).fit(*blobs()).n_iter_ == 3


def test_init_array_and_random_state():
    X, y = blobs()
    start = np.random.default_rng(0).standard_normal((3, 2, 5))
    given = CapsuleClassifier.paper(2, init=start, **QUICK).fit(X, y)
    assert (
        np.array_equal(
            given.coef_, CapsuleClassifier.paper(2, init=start.tolist(), **QUICK).fit(X, y).coef_
        )
        and given.score(X, y) > 0.9
    )
    fits = [
        CapsuleClassifier.paper(2, init="random", random_state=seed, **QUICK).fit(X, y).coef_
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(fits[0], fits[1]) and not np.allclose(fits[0], fits[2])


@together("architecture", ARCHITECTURES)
def test_warm_start_goes_on_where_the_last_fit_ended(architecture):
    X, y = blobs(spread=0.7)
    model = CapsuleClassifier.paper(
        2, architecture=architecture, warm_start=True, patience=(50,), max_iter=10, **PLAIN
    )
    with pytest.warns(ConvergenceWarning):
        first = model.fit(X, y).history_["objective"]
    with pytest.warns(ConvergenceWarning):
        second = model.fit(X, y).history_["objective"]
    np.testing.assert_allclose(second[0], first.max(axis=0), rtol=1e-9)
    assert np.all(second[-1] > first[-1])


@together("architecture", ARCHITECTURES)
def test_validation_examples_decide(architecture):
    X, y = blobs(n=240, spread=1.0)
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(
        X[:120], LETTERS[y[:120]], X_val=X[120:], y_val=LETTERS[y[120:]]
    )
    errors = model.history_["validation_error"]
    assert np.isfinite(errors[0]).all() and np.nanmin(errors) >= 0 and np.nanmax(errors) <= 1
    if architecture == "multiclass":
        assert 1 - model.score(X[120:], LETTERS[y[120:]]) == pytest.approx(errors.min())
    doubled = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(
        X[:120],
        LETTERS[y[:120]],
        X_val=X[120:],
        y_val=LETTERS[y[120:]],
        sample_weight_val=np.full(120, 2.0),
    )
    assert np.array_equal(doubled.coef_, model.coef_)


def test_validation_examples_of_some_classes_only():
    X, y = blobs(n=200, m=4)
    seen = y[100:] < 2
    model = CapsuleClassifier.paper(2, architecture="ovo", **QUICK).fit(
        X[:100], y[:100], X_val=X[100:][seen], y_val=y[100:][seen]
    )
    assert (
        model.score(X, y) > 0.85
    )  # the pair (2, 3), of which the validation examples say nothing, is learned as well


@pytest.mark.parametrize("held_out", [False, True])
@together("architecture", ARCHITECTURES)
def test_an_error_of_zero_ends_all_rounds(architecture, held_out, monkeypatch):
    """Of a problem whose error is zero, here of some or all of a stack, further iterations would
    not change the weights that are kept.
    """
    X, y = blobs(spread=8.0)
    validation = {"X_val": X[80:], "y_val": y[80:]} if held_out else {}
    model = CapsuleClassifier.paper(
        2, architecture=architecture, patience=(20,) * 5, random_state=0
    )
    stopped = clone(model).fit(X[:80], y[:80], **validation)
    monkeypatch.setattr(
        em_loop, "_cannot_improve", lambda score, monitor: np.zeros(score.shape, bool)
    )
    patient = clone(model).fit(X[:80], y[:80], **validation)
    assert np.array_equal(stopped.coef_, patient.coef_) and np.array_equal(
        stopped.intercept_, patient.intercept_
    )
    assert stopped.n_iter_ < patient.n_iter_ - 20


def test_early_stopping_holds_examples_out():
    X, y = blobs(n=300)
    model = CapsuleClassifier.paper(2, early_stopping=0.3, random_state=0, **QUICK).fit(X, y)
    assert np.isfinite(model.history_["validation_error"]).all() and model.score(X, y) > 0.9
    again = CapsuleClassifier.paper(2, early_stopping=0.3, random_state=0, **QUICK).fit(X, y)
    assert np.array_equal(model.coef_, again.coef_)
    assert np.isnan(
        CapsuleClassifier.paper(2, **QUICK).fit(X, y).history_["validation_error"]
    ).all()
    w = (np.arange(300) < 200) * 1.0  # examples of weight zero must not decide anything
    kept, zeroed = (
        CapsuleClassifier.paper(2, early_stopping=True, random_state=0, **QUICK).fit(*args)
        for args in ((X[:200], y[:200]), (X, y, w))
    )
    np.testing.assert_allclose(kept.coef_, zeroed.coef_, rtol=1e-9, atol=1e-12)


# ── batches
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def in_batches(model, X, y, size, passes):
    "partial_fit over batches in random order."
    rng = np.random.default_rng(0)
    for _ in range(passes):
        for rows in np.array_split(rng.permutation(len(X)), len(X) // size):
            model.partial_fit(X[rows], y[rows], classes=np.arange(10))
    return model


@pytest.mark.parametrize(
    "architecture, size, passes", [("multiclass", 32, 10), ("ovr", 32, 10), ("ovo", 128, 5)]
)
def test_small_batches_reach_the_accuracy_of_fit(digits, architecture, size, passes):
    X, X_test, y, y_test = digits
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # a small batch may lack the examples for a start
        online = in_batches(
            CapsuleClassifier.paper(4, architecture=architecture, n_jobs=1), X, y, size, passes
        )
    whole = CapsuleClassifier.paper(4, architecture=architecture, patience=(16, 8, 4, 2, 1)).fit(
        X, y
    )
    assert online.score(X_test, y_test) > whole.score(X_test, y_test) - 0.025


@together("architecture", ARCHITECTURES)
def test_classes_that_appear_late(architecture):
    X, y = blobs(n=400, m=4)
    early = np.flatnonzero(y[:200] < 2)
    model = CapsuleClassifier.paper(2, architecture=architecture, random_state=0, n_jobs=1)
    model.partial_fit(X[early], LETTERS[y[early]], classes=LETTERS[:4])
    assert set(model.predict(X)) == {"ant", "bee"}
    for rows in np.array_split(np.arange(200, 400), 5) * 4:
        model.partial_fit(X[rows], LETTERS[y[rows]])
    assert model.score(X, LETTERS[y]) > 0.9


def test_partial_fit_is_exact_in_one_batch():
    "The first step on all examples is one EM step from the subspace start."
    X, y = blobs()
    step = CapsuleClassifier.paper(2, n_jobs=1).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.warns(ConvergenceWarning):
        two = CapsuleClassifier.paper(2, patience=(9,), max_iter=2, **PLAIN).fit(
            X, y
        )  # judges the start, then the first step
    np.testing.assert_allclose(step.coef_, two.coef_, rtol=1e-10, atol=1e-13)


def test_partial_fit_says_what_is_wrong_with_classes():
    X, y = blobs()
    with pytest.raises(ValueError, match="classes must be passed"):
        CapsuleClassifier.paper().partial_fit(X, y)
    with pytest.raises(ValueError, match="classes has 1 class"):
        CapsuleClassifier.paper().partial_fit(X, y * 0, classes=[0])
    with pytest.raises(ValueError, match=r"y holds the labels \[2\]"):
        CapsuleClassifier.paper().partial_fit(X, y, classes=[0, 1])
    model = CapsuleClassifier.paper(2).partial_fit(X, y, classes=[0, 1, 2])
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="classes differ"):
        model.partial_fit(X, y, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :3], y)
    assert np.array_equal(model.coef_, before) and model.n_features_in_ == 5 and model.n_iter_ == 1


def test_partial_fit_after_fit_goes_on(digits):
    X, X_test, y, y_test = digits
    model = CapsuleClassifier.paper(4, patience=(16, 8, 4, 2, 1)).fit(X, y)
    score = model.score(X_test, y_test)
    for rows in np.array_split(np.arange(len(X)), 3):
        assert model.partial_fit(X[rows], y[rows]).score(X_test, y_test) > score - 0.03


# ── interruption and files
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def interrupt(monkeypatch, after):
    """Ctrl-C after some EM iterations, with a checkpoint after each of them; returns the list of
    iterations done.
    """
    original, done = em_loop.iterate, []

    def iterate(model, state, *args, **settings):
        for state in original(model, state, *args, **settings):
            if len(done) == after:
                raise KeyboardInterrupt
            done.append(state.n_iter - 1)
            yield state

    monkeypatch.setattr(em_loop, "iterate", iterate)
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    return done


@together("architecture", ARCHITECTURES)
@together("dtype", [np.float32, np.float64])
def test_an_interrupted_fit_resumes_to_the_bit(architecture, dtype, tmp_path, monkeypatch):
    X, y = blobs(spread=0.7)
    X, options = (
        X.astype(dtype),
        {"architecture": architecture, "thresholds": (0.5, 0.0), "patience": (6, 4), "n_jobs": 1},
    )
    straight = CapsuleClassifier.paper(2, **options).fit(X, y)
    model = CapsuleClassifier.paper(2, **options)
    with monkeypatch.context() as patch:
        interrupt(patch, after=7)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, checkpoint=tmp_path / "run.npz")
    assert not hasattr(model, "coef_") and not hasattr(model, "n_features_in_")
    with monkeypatch.context() as patch:
        done = interrupt(patch, after=10**9)
        model.fit(X, y, checkpoint=tmp_path / "run.npz")
    assert (
        done[:2] == [0, 7] and model.n_iter_ == straight.n_iter_ > 7
    )  # the first iteration is compared, then learning goes on
    assert np.array_equal(model.coef_, straight.coef_) and np.array_equal(
        model.intercept_, straight.intercept_
    )
    assert all(
        np.array_equal(model.history_[name], values, equal_nan=True)
        for name, values in straight.history_.items()
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    X, y = blobs()
    path = tmp_path / "run.npz"
    CapsuleClassifier.paper(2, **QUICK).fit(X, y, checkpoint=path)
    before = path.read_bytes()
    for model, inputs in [
        (CapsuleClassifier.paper(3, **QUICK), X),
        (CapsuleClassifier.paper(2, momentum=0.5, **QUICK), X),
        (CapsuleClassifier.paper(2, **QUICK), X + 1),
    ]:
        with pytest.raises(ValueError, match="checkpoint"):
            model.fit(inputs, y, checkpoint=path)
        assert not hasattr(model, "coef_") and path.read_bytes() == before


def files(architecture="multiclass", **parameters):
    return CapsuleClassifier.paper(
        **({"capsule_dim": 2, "architecture": architecture} | QUICK | parameters)
    )


def test_other_arrays_in_a_file_are_ignored(tmp_path):
    path = tmp_path / "model.npz"
    model = files().fit(*blobs())
    model.save(path)
    arrays, meta = load_arrays(path)
    save_arrays(path, arrays | {"predict": np.ones(1)}, meta)
    assert np.array_equal(
        CapsuleClassifier.load(path).predict(blobs()[0]), model.predict(blobs()[0])
    )


# ── symmetries
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@together("architecture", ARCHITECTURES)
@together("init", ["subspace", "random"])
@together("power", [-300, -7, 90, 400])
def test_units_do_not_matter(architecture, init, power):
    X, y = blobs(spread=0.7)
    plain, scaled = (
        CapsuleClassifier.paper(2, architecture=architecture, init=init, random_state=0, **QUICK)
        for _ in range(2)
    )
    plain.fit(X, y), scaled.fit(X * 2.0**power, y)
    assert np.array_equal(plain.predict(X), scaled.predict(X * 2.0**power))
    np.testing.assert_allclose(
        plain.predict_proba(X), scaled.predict_proba(X * 2.0**power), rtol=1e-9
    )


@together(
    "dtype, scale",
    [
        *((np.float64, 10.0**e) for e in (-150, -30, 30, 150)),
        *((np.float32, 10.0**e) for e in (-30, -10, 10, 30)),
    ],
)
@together("fit_intercept", [True, False])
@together("architecture", ARCHITECTURES)
def test_extreme_scales(dtype, scale, fit_intercept, architecture):
    X, y = blobs()
    X = (X * scale).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CapsuleClassifier.paper(
            2, architecture=architecture, fit_intercept=fit_intercept, **QUICK
        ).fit(X, y)
        assert model.score(X, y) > 0.8 and np.allclose(model.predict_proba(X).sum(axis=1), 1)
        assert np.isfinite(model.squash(X)).all() and np.isfinite(model.transform(X)).all()


@together("architecture", ARCHITECTURES)
@together("fit_intercept", [True, False])
def test_rotated_and_permuted_features(architecture, fit_intercept):
    X, y = blobs(spread=0.7)
    rng = np.random.default_rng(5)
    rotation, order = np.linalg.qr(rng.standard_normal((5, 5)))[0], rng.permutation(5)

    def probabilities(Z):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return (
                CapsuleClassifier.paper(
                    2,
                    architecture=architecture,
                    fit_intercept=fit_intercept,
                    patience=(50,),
                    max_iter=15,
                    **PLAIN,
                )
                .fit(Z, y)
                .predict_proba(Z)
            )

    np.testing.assert_allclose(probabilities(X @ rotation), probabilities(X), rtol=1e-7)
    np.testing.assert_allclose(probabilities(X[:, order]), probabilities(X), rtol=1e-7)


@together("architecture", ARCHITECTURES)
def test_the_order_of_examples_and_names_of_classes_do_not_matter(architecture):
    X, y = blobs()
    order = np.random.default_rng(0).permutation(len(y))
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X, y)
    shuffled = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(
        X[order], y[order]
    )
    np.testing.assert_allclose(shuffled.coef_, model.coef_, rtol=1e-7, atol=1e-10)
    renamed = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X, 2 - y)
    np.testing.assert_allclose(renamed.predict_proba(X)[:, ::-1], model.predict_proba(X), rtol=1e-7)


@together("architecture", ARCHITECTURES)
def test_the_number_of_threads_does_not_matter(architecture):
    X, y = blobs(n=3000, p=20)
    options = QUICK | {"patience": (2, 2)}
    one, two, all_ = (
        CapsuleClassifier.paper(4, architecture=architecture, **options | {"n_jobs": n}).fit(X, y)
        for n in (1, 2, -1)
    )
    assert (
        np.array_equal(one.coef_, two.coef_)
        and np.array_equal(one.intercept_, two.intercept_)
        and np.array_equal(one.coef_, all_.coef_)
    )


# ── predictions
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def fitted(architecture, m, fit_intercept):
    X, y = blobs(n=160, m=m, spread=1.0)
    return CapsuleClassifier.paper(
        3, architecture=architecture, fit_intercept=fit_intercept, **QUICK
    ).fit(X, LETTERS[y]), X


models = together(
    "architecture, m, fit_intercept",
    [(a, m, i) for a in ARCHITECTURES for m in (2, 4) for i in (True, False)],
)


@models
def test_predictions_agree_with_each_other(architecture, m, fit_intercept):
    model, X = fitted(architecture, m, fit_intercept)
    p, scores, labels = model.predict_proba(X), model.decision_function(X), model.predict(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-13)
    assert (p >= 0).all() and np.array_equal(model.classes_[p.argmax(axis=1)], labels)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p, rtol=1e-12)
    if len(model.classes_) == 2:
        assert np.array_equal(model.classes_[(scores > 0).astype(int)], labels)
        np.testing.assert_allclose(scores, np.log(p[:, 1] / p[:, 0]), rtol=1e-9, atol=1e-12)
    else:
        assert np.array_equal(model.classes_[scores.argmax(axis=1)], labels)


@models
def test_one_by_one_is_all_at_once(architecture, m, fit_intercept):
    model, X = fitted(architecture, m, fit_intercept)
    for method in ("predict_proba", "decision_function", "transform", "squash"):
        whole, rows = (
            getattr(model, method)(X[:20]),
            [getattr(model, method)(X[i : i + 1]) for i in range(20)],
        )
        np.testing.assert_allclose(np.concatenate(rows), whole, rtol=1e-9, atol=1e-13)


@models
def test_many_examples_are_as_many_small_batches(architecture, m, fit_intercept):
    model, X = fitted(architecture, m, fit_intercept)
    for method in (
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "transform",
        "squash",
    ):
        few, many = (
            getattr(model, method)(X),
            getattr(model, method)(np.tile(X, (60, 1))),
        )  # 9,600 rows: more than one block
        assert len(many) == 60 * len(X)
        if method == "predict":
            assert np.array_equal(many, np.tile(few, 60))
        else:
            np.testing.assert_allclose(
                many, np.tile(few, (60,) + (1,) * (few.ndim - 1)), rtol=1e-9, atol=1e-13
            )


@models
def test_single_precision_inputs_of_a_double_precision_model(architecture, m, fit_intercept):
    model, X = fitted(architecture, m, fit_intercept)
    np.testing.assert_allclose(
        model.predict_proba(X.astype(np.float32)), model.predict_proba(X), rtol=1e-4, atol=1e-5
    )


@models
def test_squashed_poses_lie_in_the_unit_ball(architecture, m, fit_intercept):
    model, X = fitted(architecture, m, fit_intercept)
    np.testing.assert_allclose((model.squash(X) ** 2).sum(axis=(-1, -2)), 1, rtol=1e-13)


@together("capsule_dim", [3, {0: 1, 1: 3, 2: 2}])
def test_poses_probabilities_means_and_prototypes_by_definition(capsule_dim):
    X, y = blobs(spread=1.0)
    model = CapsuleClassifier.paper(capsule_dim, **QUICK).fit(X, y)
    mu, dims = poses(model, X), model.capsule_dims_
    np.testing.assert_allclose(model.transform(X), mu.reshape(len(X), -1), rtol=1e-12)
    p = class_probabilities((mu**2).sum(-1), dims)
    np.testing.assert_allclose(model.predict_proba(X), p, rtol=1e-12)
    mean = sum(
        p[:, j, None, None] * model.posterior_mean(X, np.full(len(X), j)) for j in range(3)
    )  # Σ_j P(j) E[h|j] = E[h]
    np.testing.assert_allclose(mean, mu, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(
        model.squash(X), mu / np.sqrt((mu**2).sum(axis=(1, 2), keepdims=True)), rtol=1e-12
    )
    found = model.prototypes(X, y)
    for i in range(3):
        for a in range(dims[i]):
            members = [n for n in range(len(X)) if y[n] == i]
            assert found[i, a] == max(members, key=lambda n: mu[n, i, a] ** 2 / (mu[n] ** 2).sum())


@together("sign", [1, -1])
def test_enormous_poses_of_one_sign(sign):
    X, y = blobs()
    model = CapsuleClassifier.paper(2, fit_intercept=False, **QUICK).fit(X, y)
    model.coef_ = sign * np.abs(model.coef_)
    limit, beyond = (model.predict_proba(np.abs(X) * scale) for scale in (1e140, 1e170))
    np.testing.assert_allclose(beyond, limit, rtol=1e-10)


def test_prototypes_of_some_classes():
    X, y = blobs()
    model = CapsuleClassifier.paper(2, **QUICK).fit(X, y)
    found = model.prototypes(X[y < 2], y[y < 2])
    assert (found[2] == -1).all() and (found[:2] >= 0).all()


# ── one-versus-rest and one-versus-one against classifiers trained alone
# ─────────────────────────────────────────────────────


@together("fit_intercept", [True, False])
@together("alpha", [0.0, 0.2])
def test_one_versus_one_is_all_pairs_trained_alone(fit_intercept, alpha):
    X, y = blobs(n=160, m=4, spread=0.8)
    options = {"fit_intercept": fit_intercept, "alpha": alpha, **QUICK}
    stacked = CapsuleClassifier.paper(2, architecture="ovo", **options).fit(X, y)
    votes, confidence, q = np.zeros((len(X), 4)), np.zeros((len(X), 4)), 0
    for i in range(4):
        for j in range(i + 1, 4):
            pair = (y == i) | (y == j)
            alone = CapsuleClassifier.paper(2, **options).fit(X[pair], y[pair])
            np.testing.assert_allclose(stacked.coef_[q], alone.coef_, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(
                stacked.intercept_[q], alone.intercept_, rtol=1e-7, atol=1e-9
            )
            steps = alone.n_iter_
            np.testing.assert_allclose(
                stacked.history_["log_likelihood"][:steps, q],
                alone.history_["log_likelihood"],
                rtol=1e-9,
            )
            for n, (first, second) in enumerate(alone.predict_proba(X)):
                votes[n, i if first >= second else j] += 1
                confidence[n, i] += first
                confidence[n, j] += second
            q += 1
    assert q == len(stacked.coef_)
    winners = [max(range(4), key=lambda c: (votes[n, c], confidence[n, c])) for n in range(len(X))]
    assert np.array_equal(stacked.predict(X), winners)
    np.testing.assert_allclose(np.rint(stacked.decision_function(X)), votes)


@together("fit_intercept", [True, False])
def test_one_versus_rest_is_all_classes_trained_alone(fit_intercept):
    X, y = blobs(n=160, m=4, spread=0.8)
    stacked = CapsuleClassifier.paper(
        2, architecture="ovr", fit_intercept=fit_intercept, **QUICK
    ).fit(X, y)
    scores = np.zeros((len(X), 4))
    for c in range(4):
        alone = CapsuleClassifier.paper(2, fit_intercept=fit_intercept, **QUICK).fit(X, y == c)
        np.testing.assert_allclose(stacked.coef_[c], alone.coef_, rtol=1e-7, atol=1e-9)
        scores[:, c] = alone.predict_proba(X)[:, 1]
    np.testing.assert_allclose(
        stacked.predict_proba(X), scores / scores.sum(axis=1, keepdims=True), rtol=1e-6
    )
    assert np.array_equal(stacked.predict(X), scores.argmax(axis=1))


@together("architecture", ARCHITECTURES)
def test_two_classes_are_one_problem(architecture):
    X, y = blobs(m=2, spread=0.8)
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK).fit(X, y)
    assert model.coef_.shape == (2, 2, 5) and model.decision_function(X).shape == (120,)
    assert np.array_equal(model.coef_, CapsuleClassifier.paper(2, **QUICK).fit(X, y).coef_)


# ── several fits at once
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def blas_threads():
    return {
        library["num_threads"]
        for library in ThreadpoolController().info()
        if library["user_api"] == "blas"
    }


def test_overlapping_fits_leave_the_matrix_library_as_it_was():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        first, second = em.threads(1), em.threads(1)
        first.__enter__(), second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


def test_fits_in_parallel_threads():
    X, y = blobs(n=600)
    model = CapsuleClassifier.paper(2, **QUICK | {"n_jobs": 2})
    with joblib.parallel_backend("threading", n_jobs=4):
        parallel = cross_val_score(model, X, y, cv=8)
    assert np.array_equal(parallel, cross_val_score(model, X, y, cv=8))


@together("architecture", ["ovr", "ovo"])
def test_capsules_of_different_dimensions_when_the_largest_have_stopped(architecture):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = np.arange(120) % 4
        X = rng.normal(size=(120, 5)) + 0.6 * rng.normal(size=(4, 5))[y]
        model = CapsuleClassifier.paper(
            {0: 1, 1: 3, 2: 2, 3: 1},
            architecture=architecture,
            early_stopping=False,
            thresholds=(0.6, 0.0),
            patience=(3, 2),
        ).fit(X, y)
        assert (
            model.coef_.shape[2] == 3
            and np.all(np.isfinite(model.coef_))
            and model.score(X, y) > 0.4
        )


@pytest.mark.parametrize("architecture", ["multiclass", "ovo"])
def test_only_ratios_of_weights_count_whatever_is_chosen(architecture):
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    fitted = [
        CapsuleClassifier(architecture=architecture, random_state=0).fit(
            X, y, sample_weight=scale * weight
        )
        for scale in (1, 1e-3, 1e3)
    ]
    assert np.allclose([model.sharpness_ for model in fitted], fitted[0].sharpness_, rtol=1e-3)
    assert all(
        np.allclose(model.predict_proba(X), fitted[0].predict_proba(X), atol=1e-3)
        for model in fitted
    )
