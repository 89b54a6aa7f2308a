"""Unusual arrays, degenerate data and wrong arguments, for every public function: it works, or one
clear error names the argument.

Every warning is an error here unless a test expects it. (Wrong arguments of `special`, `inference`,
`storage` and the loaders have tests of their own beside those modules.)
"""

import os
import pickle
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from conftest import FORMS, together
import scipy.sparse as sp
from matplotlib.figure import Figure

import capslit.em.loop as em_loop
from capslit import CapsuleClassifier, cli, em, plotting, storage, validation
from capslit.data import datasets
from capslit.capsules import inference, special
from capslit.experiments import records, summary
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.problems import capsule_targets
from capslit.capsules.initialisation import random_weights, subspace

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("error")

ARCHITECTURES = ["multiclass", "ovr", "ovo"]
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}


def blobs(n=90, p=4, m=3, seed=0, spread=2.5):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + spread * rng.standard_normal((m, p))[y], y


X, Y = blobs()
FITTED = CapsuleClassifier.paper(2, **QUICK).fit(X, Y)
MODEL = CapsuleRegression(
    np.arange(3)[None], np.full((1, 3), 2), LeastSquares.from_gram((X.T @ X)[None])
)
START = CapsuleParameters(np.random.default_rng(1).standard_normal((1, 3, 2, 4)))


def quick(**parameters):
    return CapsuleClassifier.paper(**({"capsule_dim": 2} | QUICK | parameters))


# ── any kind of array
# ─────────────────────────────────────────────────────────────────────────────────────────────────

POSITIVE, CUBE, MOMENT = X**2, X[:60, :].reshape(20, 3, 4), np.rint(8 * X).T @ np.rint(8 * X)
FUNCTIONS = {
    "interpolating_integral": (lambda a: special.interpolating_integral(2.5, a), POSITIVE),
    "interpolating_integral, order": (lambda a: special.interpolating_integral(a, 1.5), POSITIVE),
    "interpolating_derivative": (lambda a: special._interpolating_derivative(2.5, a), POSITIVE),
    "interpolating_coefficients": (lambda a: special.interpolating_coefficients(a, 7), POSITIVE),
    "class_probabilities": (lambda a: inference.class_probabilities(a, 2), POSITIVE),
    "log_class_probabilities": (
        lambda a: inference.log_class_probabilities(a, [1, 2, 3, 2]),
        POSITIVE,
    ),
    "posterior_ratios": (lambda a: inference.posterior_ratios(a, Y, 2), POSITIVE),
    "posterior_mean": (lambda a: inference.posterior_mean(a, Y[:20]), CUBE),
    "squash": (inference.squash, CUBE),
    "sample_latents": (lambda a: inference.sample_latents(a, random_state=0), CUBE),
    "subspace": (lambda a: subspace(a, 2, MOMENT, np.random.default_rng(0))[0] ** 2, MOMENT),
    "subspace, overall": (
        lambda a: subspace(MOMENT, 6, a, np.random.default_rng(0))[0] ** 2,
        MOMENT,
    ),
    "random_weights": (lambda a: random_weights((2, 4), a, 0.1, np.random.default_rng(0)), MOMENT),
    "LeastSquares": (lambda a: LeastSquares.from_gram(a).solve(START.weights), MOMENT[None]),
    "e_step": (lambda a: MODEL.e_step(START, (a, Y, None)), X),
    "e_step, weight": (lambda a: MODEL.e_step(START, (X, Y, a)), POSITIVE[:, 0]),
    "count_errors": (lambda a: MODEL.count_errors(START, (a, Y, None)), X),
    "second_moments": (lambda a: second_moments((a, Y, None), range(3)), X),
    "svd_projection": (lambda a: datasets.svd_projection(a, 2) ** 2, X),
    "project": (lambda a: datasets.project(a, X[:4].T), X),
    "project, projection": (lambda a: datasets.project(X[:, :3], a), X[:3]),
    "fit": (lambda a: quick().fit(a, Y).predict_proba(X), X),
    "fit, sample_weight": (lambda a: quick().fit(X, Y, a).predict_proba(X), POSITIVE[:, 0]),
    "fit, X_val": (lambda a: quick().fit(X, Y, X_val=a, y_val=Y).predict_proba(X), X),
    "partial_fit": (lambda a: quick().partial_fit(a, Y, classes=[0, 1, 2]).predict_proba(X), X),
    **{
        name: ((lambda a, name=name: getattr(FITTED, name)(a)), X)
        for name in (
            "predict",
            "predict_proba",
            "predict_log_proba",
            "decision_function",
            "transform",
            "squash",
        )
    },
    "posterior_mean of the estimator": (lambda a: FITTED.posterior_mean(a, Y), X),
    "prototypes": (lambda a: FITTED.prototypes(a, Y), X),
}
TAKE_SPARSE = (
    "fit",
    "fit, X_val",
    "partial_fit",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "squash",
    "posterior_mean of the estimator",
    "prototypes",
)


def parts(result):
    return list(result) if isinstance(result, tuple) else [result]


@together("form", FORMS)
@together("name", FUNCTIONS)
def test_the_form_of_an_array_does_not_matter(name, form):
    function, array = FUNCTIONS[name]
    given = FORMS[form](array)
    before = np.array(given, dtype=float)
    for found, wanted in zip(parts(function(given)), parts(function(array.copy()))):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert np.array_equal(np.asarray(given, dtype=float), before)  # nothing is changed in place


@together("dtype", [np.float32, np.float16, np.int64, np.int8, np.uint8, bool])
@together("name", FUNCTIONS)
def test_the_type_of_an_array_does_not_matter(name, dtype):
    function, array = FUNCTIONS[name]
    if dtype is not np.float32:  # values that the type can express
        array = np.rint(array) > 1 if dtype is bool else np.rint(array / np.abs(array).max() * 10)
        array = np.abs(array) if np.dtype(dtype).kind == "u" else array
        if array.shape[-2:] == (4, 4):
            array = np.eye(4)[None][0 if array.ndim == 2 else slice(None)]
    narrow = array.astype(dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the examples of the classes", UserWarning)
        results = zip(parts(function(narrow)), parts(function(narrow.astype(np.float64))))
        for found, wanted in results:
            if name not in ("predict", "prototypes", "fit", "fit, X_val", "fit, sample_weight"):
                np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
            assert np.isfinite(np.asarray(found, dtype=float)).all()


@together("matrix", [sp.csr_matrix, sp.csc_array, sp.coo_matrix])
@together("name", [name for name in FUNCTIONS if name not in TAKE_SPARSE])
def test_sparse_matrices_are_refused(name, matrix):
    function, array = FUNCTIONS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        function(matrix(array.reshape(len(array), -1)))
    assert "\n" not in str(caught.value).strip() and len(str(caught.value)) > 15


# ── degenerate data
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def ways(test):
    "Each architecture with and without intercepts."
    return together("architecture", ARCHITECTURES)(together("fit_intercept", [True, False])(test))


class TestDegenerateData:
    def fit(self, X, y, architecture, fit_intercept, **options):
        return quick(
            architecture=architecture, fit_intercept=fit_intercept, random_state=0, **options
        ).fit(X, y)

    @ways
    def test_zero_columns_add_nothing(self, architecture, fit_intercept):
        padded = np.insert(X, [0, 2], 0, axis=1)
        model = self.fit(padded, Y, architecture, fit_intercept)
        assert np.abs(model.coef_[..., [0, 3]]).max() < 1e-12 and model.score(padded, Y) > 0.85
        if not fit_intercept:
            np.testing.assert_allclose(
                model.predict_proba(padded),
                self.fit(X, Y, architecture, False).predict_proba(X),
                rtol=1e-7,
            )

    @ways
    @together(
        "case",
        {
            "a constant column": lambda: (np.c_[X, np.full(len(X), 7.0)], Y, 0.85),
            "collinear columns": lambda: (
                X @ np.random.default_rng(0).standard_normal((4, 9)),
                Y,
                0.85,
            ),
            "fewer examples than features": lambda: (
                np.random.default_rng(0).standard_normal((24, 100)),
                Y[:24],
                0.999,
            ),
            "one feature": lambda: (
                4.0 * Y[:, None] + np.linspace(0, 1, len(Y))[:, None] + 1,
                Y,
                0,
            ),
        }.items(),
    )
    def test_columns_of_every_kind(self, architecture, fit_intercept, case):
        Z, y, right = case[1]()
        model = self.fit(
            Z, y, architecture, fit_intercept, **{"capsule_dim": 1} if Z.shape[1] == 1 else {}
        )
        assert (
            model.score(Z, y) > right
            and np.abs(model.coef_).max() < 1e3
            and model.coef_.shape[-1] == Z.shape[1]
        )
        assert np.allclose(model.predict_proba(Z).sum(axis=1), 1)

    @ways
    def test_duplicated_columns_are_one_column(self, architecture, fit_intercept):
        "[X, X] is X in other units, and the solution of least norm shares every weight out."
        twice = np.c_[X, X]
        model = self.fit(twice, Y, architecture, fit_intercept)
        np.testing.assert_allclose(model.coef_[..., :4], model.coef_[..., 4:], rtol=1e-6, atol=1e-9)
        if not fit_intercept:
            np.testing.assert_allclose(
                model.predict_proba(twice),
                self.fit(X, Y, architecture, False).predict_proba(X),
                rtol=1e-6,
            )
        assert model.score(twice, Y) > 0.85

    @ways
    def test_rows_of_zeros(self, architecture, fit_intercept):
        Z = X.copy()
        Z[::5] = 0
        p = self.fit(Z, Y, architecture, fit_intercept).predict_proba(Z)
        assert np.allclose(p.sum(axis=1), 1) and np.ptp(p[::5], axis=0).max() < 1e-12
        if not fit_intercept:
            np.testing.assert_allclose(p[::5], 1 / 3, rtol=1e-12)

    @ways
    @together("value", [0.0, 3.0])
    def test_inputs_that_are_all_the_same(self, architecture, fit_intercept, value):
        same, y = (
            np.full_like(X, value),
            np.where(np.arange(len(Y)) < 60, 2, Y),
        )  # mostly of class 2
        with pytest.warns(UserWarning, match="capsule_dim"):
            model = self.fit(same, y, architecture, fit_intercept, patience=(20, 20))
        p = model.predict_proba(same)
        assert (
            np.allclose(p.sum(axis=1), 1)
            and np.ptp(p, axis=0).max() == 0
            and np.isfinite(model.coef_).all()
        )
        assert set(model.predict(same)) == (
            {2} if value or fit_intercept else {0}
        )  # nothing to go by: the first

    @ways
    def test_one_example_of_each_class(self, architecture, fit_intercept):
        rows = [np.flatnonzero(Y == c)[0] for c in range(3)]
        with pytest.warns(
            UserWarning, match=r"classes \[0, 1, 2\] span fewer directions than capsule_dim"
        ):
            model = self.fit(X[rows], Y[rows], architecture, fit_intercept)
        assert model.score(X[rows], Y[rows]) == 1

    @ways
    def test_a_class_without_weight_is_never_predicted(self, architecture, fit_intercept):
        model = quick(architecture=architecture, fit_intercept=fit_intercept).fit(
            X, Y, (Y != 1) * 1.0
        )
        assert set(model.predict(X)) == {0, 2} and model.score(X[Y != 1], Y[Y != 1]) > 0.85

    @ways
    def test_two_classes_without_weight(self, architecture, fit_intercept):
        Z, y = blobs(m=4)
        model = quick(architecture=architecture, fit_intercept=fit_intercept).fit(
            Z, y, (y % 2) * 1.0
        )
        assert set(model.predict(Z)) == {1, 3} and model.score(Z[y % 2 == 1], y[y % 2 == 1]) > 0.9
        # what has no weight counts nowhere: the model is that of the other two classes
        alone = quick(architecture=architecture, fit_intercept=fit_intercept).fit(
            Z[y % 2 == 1], y[y % 2 == 1]
        )
        assert model.classes_.tolist() == [1, 3]
        assert np.allclose(model.predict_proba(Z), alone.predict_proba(Z), rtol=1e-9)

    @ways
    @together("factor", [1e30, 1e120, 1e150])
    def test_one_enormous_example(self, architecture, fit_intercept, factor):
        Z = X.copy()
        Z[5] *= factor
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the examples of the classes", UserWarning)
            model = self.fit(Z, Y, architecture, fit_intercept)
        assert np.isfinite(model.coef_).all() and np.allclose(model.predict_proba(Z).sum(axis=1), 1)

    @ways
    @together("scales", [(1e-100, 1, 1e100, 1), (1e-200, 1, 1, 1)])
    def test_columns_in_very_different_units(self, architecture, fit_intercept, scales):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the examples of the classes", UserWarning)
            model = self.fit(X * scales, Y, architecture, fit_intercept)
        assert model.score(X * scales, Y) > 0.7 and np.isfinite(model.coef_).all()

    @ways
    def test_inputs_far_beyond_the_training_data(self, architecture, fit_intercept):
        model = self.fit(X, Y, architecture, fit_intercept)
        for factor in (1e-300, 1e100, 1e160, 1e300):
            p, logs = model.predict_proba(X * factor), model.predict_log_proba(X * factor)
            assert (
                np.allclose(p.sum(axis=1), 1)
                and np.isfinite(logs).all()
                and np.isfinite(model.decision_function(X * factor)).all()
            )
        np.testing.assert_allclose(
            model.predict_proba(X * 1e160), model.predict_proba(X * 1e150), rtol=1e-9
        )  # the limit of the ratios
        np.testing.assert_allclose(
            model.predict_proba((X * 1e25).astype(np.float32)),
            model.predict_proba(X * 1e25),
            rtol=1e-4,
        )

    @ways
    def test_random_weights_of_any_size_and_an_enormous_penalty(self, architecture, fit_intercept):
        assert np.allclose(
            self.fit(X, Y, architecture, fit_intercept, alpha=1e300).predict_proba(X).sum(axis=1), 1
        )
        for init_scale in (1e-200, 1e-5, 1e100):
            model = self.fit(
                X, Y, architecture, fit_intercept, init="random", init_scale=init_scale
            )
            assert (
                np.isfinite(model.coef_).all() and np.isfinite(model.history_["objective"][0]).all()
            )
        assert np.isfinite(
            self.fit(
                X * 1e-100, Y, architecture, fit_intercept, init="random", init_scale=1e100
            ).coef_
        ).all()
        assert np.isfinite(
            self.fit(X * 0, Y, architecture, fit_intercept, init="random").coef_
        ).all()


def test_early_stopping_with_few_examples():
    for n in (4, 6, 90):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the examples of the classes", UserWarning)
            model = quick(early_stopping=True, random_state=0).fit(X[:n], Y[:n])
        assert np.isfinite(model.history_["validation_error"]).all() and np.allclose(
            model.predict_proba(X).sum(axis=1), 1
        )


# ── wrong arguments of the estimator
# ─────────────────────────────────────────────────────────────────────────────────────────

NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf


def state(model):
    return {name: pickle.dumps(value) for name, value in vars(model).items()}


def named(name):
    return rf"(?s)(^|\W){name}(\W|$)"


def test_warm_start_and_batches_need_the_same_shapes():
    model = quick(warm_start=True).fit(X, Y)
    before = state(model)
    for args in [(X[:, :3], Y), (X, Y // 2)]:
        with pytest.raises(ValueError, match="coef_"):
            model.fit(*args)
    assert state(model) == before
    with pytest.raises(ValueError, match="coef_"):
        model.set_params(capsule_dim=3).partial_fit(X, Y)


def test_a_warning_that_is_an_error_changes_nothing():
    model = quick().fit(pd.DataFrame(X, columns=list("abcd")), Y)
    before = state(model)
    with pytest.raises(UserWarning, match="max_iter"):  # as errors
        model.set_params(max_iter=2).fit(X, Y)
    model.set_params(max_iter=2000)
    assert state(model) == before


def test_a_checkpoint_that_cannot_be_written_is_reported_before_the_work(monkeypatch):
    def work(*_):
        raise AssertionError("an iteration was done")

    monkeypatch.setattr(em_loop, "accumulate_all", work)
    with pytest.raises(storage.StorageError, match="cannot write"):
        quick().fit(X, Y, checkpoint=os.devnull + "/run.npz")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    FITTED.save(tmp_path / "model.npz")
    before = (tmp_path / "model.npz").read_bytes()
    monkeypatch.setattr(storage, "_write_member", full)
    for attempt in (
        lambda: FITTED.save(tmp_path / "model.npz"),
        lambda: quick().fit(X, Y, checkpoint=tmp_path / "run.npz"),
    ):
        with pytest.raises(storage.StorageError, match="the disk is full"):
            attempt()
    assert os.listdir(tmp_path) == ["model.npz"] and (tmp_path / "model.npz").read_bytes() == before


METHODS = [
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "squash",
]


@together("method", METHODS)
def test_poses_that_overflow_are_an_error(method):
    with pytest.raises(ValueError, match="X is too large for this model"):
        getattr(quick().fit(X * 1e-9, Y), method)(np.clip(X * 1e307, -1e308, 1e308))


def test_files_that_cannot_be_written(tmp_path):
    with pytest.raises(storage.StorageError, match="folder"):
        FITTED.save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(storage.StorageError, match="folder"):
        FITTED.save(tmp_path / "file" / "model.npz")
    assert os.listdir(tmp_path) == ["file"]


# ── wrong arguments of the functions below it
# ────────────────────────────────────────────────────────────────────────────────

RNG = np.random.default_rng(0)
DATA = (X, Y, None)
IMAGES = datasets.ImageData("whole", np.ones((4, 4, 4)), np.arange(4), tuple("0123"), 4, 1.0, {})


def draw():
    return Figure()


CALLS = [
    (lambda: validation.as_floating("q", None), "q"),
    (lambda: validation.as_floating("q", [[1], [1, 2]]), "q"),
    (lambda: validation.as_floating("q", {"a": 1}), "q"),
    (lambda: validation.check_shape("q", X, (3, None)), "q"),
    (lambda: validation.check_values("q", NAN), "q"),
    (lambda: validation.check_labels("q", [0, 3], 3, (2,)), "q"),
    (lambda: subspace(NAN[:4], 2, MOMENT, RNG), "moment"),
    (lambda: subspace(X, 2, MOMENT, RNG), "moment"),
    (lambda: subspace(np.triu(MOMENT), 2, MOMENT, RNG), "moment"),
    (lambda: subspace(MOMENT, 2, MOMENT[:3, :3], RNG), "overall"),
    (lambda: subspace(MOMENT, 2, MOMENT * np.nan, RNG), "overall"),
    *(
        (lambda d=d: subspace(MOMENT, d, MOMENT, RNG), "dim")
        for d in (0, -1, 2.5, None, "two", True)
    ),
    (lambda: subspace(MOMENT, 2, MOMENT, 0), "rng"),
    (lambda: random_weights((2, 3), MOMENT, 0.1, RNG), "shape"),
    (lambda: random_weights(4, MOMENT, 0.1, RNG), "shape"),
    (lambda: random_weights((2, 4), X, 0.1, RNG), "overall"),
    *(
        (lambda s=s: random_weights((2, 4), MOMENT, s, RNG), "scale")
        for s in (0, -1, np.nan, np.inf)
    ),
    (lambda: random_weights((2, 4), MOMENT, 0.1, None), "rng"),
    (lambda: capsule_targets(3, "pairs"), "architecture"),
    (lambda: LeastSquares.from_gram(MOMENT), "gram"),
    (lambda: LeastSquares.from_gram(MOMENT[None] * np.nan), "gram"),
    (lambda: LeastSquares.from_gram(MOMENT[None], alpha=-1), "alpha"),
    (lambda: LeastSquares.from_gram(MOMENT[None], which=(1,)), "which"),
    (lambda: CapsuleRegression(np.arange(3), np.full((1, 3), 2)), "targets"),
    (lambda: CapsuleRegression(np.arange(3)[None], np.full(3, 2)), "dims"),
    (lambda: CapsuleRegression(np.arange(3)[None], np.full((1, 3), 0)), "dims"),
    (lambda: CapsuleRegression(np.arange(4)[None], np.full((1, 3), 2)), "targets"),
    (lambda: CapsuleRegression(np.arange(3)[None], np.full((1, 3), 2), alpha=-1), "alpha"),
    (
        lambda: CapsuleRegression(np.arange(3)[None], np.full((1, 3), 2)).m_step(
            START, MODEL.e_step(START, DATA)
        ),
        "solver",
    ),
    *(
        (call, name)
        for method in (MODEL.e_step, MODEL.count_errors)
        for call, name in (
            (lambda method=method: method(START, (X[:, :3], Y, None)), "x"),
            (lambda method=method: method(START, (X, Y[:9], None)), "y"),
            (lambda method=method: method(START, (X, Y + 1, None)), "y"),
            (lambda method=method: method(START, (X, Y - 1, None)), "y"),
            (lambda method=method: method(START, (X, Y + 0.5, None)), "y"),
            (lambda method=method: method(START, (X, Y, np.ones(9))), "weight"),
            (lambda method=method: method(CapsuleParameters(START.weights[0]), DATA), "weights"),
        )
    ),
    (lambda: second_moments((X[0], Y, None), range(3)), "x"),
    (lambda: second_moments((X, Y[:9], None), range(3)), "y"),
    (lambda: second_moments((X, Y, np.ones(9)), range(3)), "weight"),
    *(
        (lambda data=data: em.fit(MODEL, START, data), "data")
        for data in (
            iter([DATA]),
            (X, Y[:9], None),
            [X, Y],
            (),
            [],
            (X[:0], Y[:0], None),
            (X, Y, np.ones(9)),
            (NAN, Y, None),
            (INF, Y, None),
            (X.tolist(), Y, None),
        )
    ),
    (
        lambda: em.fit(MODEL, START, DATA, validation=(NAN, Y, None), monitor="validation"),
        "validation",
    ),
    (lambda: em.fit(MODEL, START, DATA, monitor="validation"), "validation"),
    (lambda: em.fit(MODEL, CapsuleParameters(START.weights * np.nan), DATA), "parameters"),
    (lambda: em.fit(MODEL, START, DATA, rounds=()), "rounds"),
    (lambda: em.fit(MODEL, START, DATA, rounds=[3]), "rounds"),
    (lambda: em.fit(MODEL, START, DATA, rounds=[em.Round(0)]), "rounds"),
    (
        lambda: em.fit(MODEL, START, DATA, rounds=[em.Round(1), em.Round(1, {"threshold": 0.0})]),
        "rounds",
    ),
    (lambda: em.fit(MODEL, START, DATA, monitor="loss"), "monitor"),
    *((lambda g=g: em.fit(MODEL, START, DATA, momentum=g), "momentum") for g in (-0.1, 1, np.nan)),
    *((lambda t=t: em.fit(MODEL, START, DATA, tol=t), "tol") for t in (-1, np.nan)),
    (lambda: em.fit(MODEL, START, DATA, max_iter=0), "max_iter"),
    (lambda: em.fit(MODEL, START, DATA, n_threads=0), "n_threads"),
    (lambda: em.fit(MODEL, START, DATA, checkpoint=7), "checkpoint"),
    *(
        (lambda n=n: datasets.svd_projection(X, n), "n_components")
        for n in (0, 5, 2.5, "two", None)
    ),
    *(
        (lambda a=a: datasets.svd_projection(a, 1), "train_images")
        for a in (NAN, X[0], X[:0], X + 1j, X * 1e200, sp.csr_array(X), np.full((2, 2), "a"))
    ),
    (lambda: datasets.project(X, X[:3].T[:3]), "projection"),
    *(
        (lambda a=a: datasets.project(X, a), "projection")
        for a in (np.ones(4), np.full((4, 2), np.nan), np.full((4, 2), "a"))
    ),
    *(
        (lambda s=s: datasets.project(X, np.eye(4), s), "scale")
        for s in (0, -1, np.nan, np.inf, "one")
    ),
    *(
        (lambda a=a: datasets.project(a, np.eye(4)), "images")
        for a in (NAN, X[0], X * 1e200, X + 1j)
    ),
    (lambda: datasets.load_mnist(data_home=3.5), "data_home"),
    (lambda: records.load_protocol(IMAGES), "data"),
    (lambda: records.load_protocol(datasets.load_digits(), "slow"), "profile"),
    (lambda: summary.reproduce("figure9"), "name"),
    (lambda: summary.reproduce("figure2", "cifar"), "data"),
    (lambda: summary.reproduce("figure2", seed=-1), "seed"),
    *(
        (lambda show=show: show(3, alt="a", caption="b"), "draw")
        for show in (plotting.show, plotting._figure_html)
    ),
    (lambda: plotting.show(lambda: None, alt="a", caption="b"), "draw"),
    *(
        (lambda text=text: plotting.show(draw, alt=text, caption="b"), "alt")
        for text in ("", " ", None, 3)
    ),
    *(
        (lambda text=text: plotting.show(draw, alt="a", caption=text), "caption")
        for text in ("", None)
    ),
    *(
        (lambda w=w: plotting.show(draw, alt="a", caption="b", width=w), "width")
        for w in (0, -5, np.nan, np.inf, "wide")
    ),
    (lambda: plotting.style("sepia").__enter__(), "theme"),
]


@together("call, name", CALLS, ids=[f"{i}-{name}" for i, (_, name) in enumerate(CALLS)])
def test_wrong_arguments_are_named(call, name):
    with pytest.raises((ValueError, TypeError, FloatingPointError), match=named(name)) as caught:
        call()
    assert len(str(caught.value)) > 20 and not isinstance(caught.value, np.exceptions.AxisError)


def test_labels_outside_the_classes_do_not_wrap_around():
    for y in (Y - 1, Y + 1):
        with pytest.raises(ValueError, match="y must lie between 0 and 2"):
            em.fit(MODEL, START, (X, y, None))


def test_the_command_line_says_what_is_wrong(capsys):
    for words in (
        ["reproduce", "figure9"],
        ["reproduce", "figure2", "--data", "cifar"],
        ["reproduce", "figure2", "--profile", "slow"],
        ["reproduce", "figure2", "--seed", "-1"],
    ):
        assert cli.main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("capslit: ") and error.count("\n") == 1


def test_show_with_good_arguments(capsys):
    plotting.show(draw, alt="Nothing at all.", caption="An empty figure.", width=300)
