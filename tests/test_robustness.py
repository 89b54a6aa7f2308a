"""What is promised beyond the contracts of `test_contracts`: degenerate tables are learned from in
every architecture, functions take any array and name a wrong argument, and what is wrong in a
table is named with its column and what helps.

Every warning is an error here unless a test expects it.
"""

import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from conftest import NO_WARNINGS, FORMS, classes, together
from estimators import each
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags

from capslit import (
    CapsuleClassifier,
    ClassConditionalClassifier,
    CompositionalModel,
    FactorialVectorQuantizer,
    GaussianMixture,
    em,
)
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.initialisation import random_weights, subspace
from capslit.capsules.learning import _share_elsewhere
from capslit.capsules.settings import Schedule

pytestmark = [
    pytest.mark.filterwarnings(*NO_WARNINGS),
    pytest.mark.filterwarnings("ignore:the examples of the classes"),
]
X, Y = classes(90, 4)
N = len(X)


def quick(dim=2, **settings):
    short = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
    return CapsuleClassifier.paper(dim, **short | settings)


# ── degenerate tables

rng = np.random.default_rng(0)
ONE_EACH = [np.flatnonzero(Y == c)[0] for c in range(3)]
DEGENERATE = {  # inputs, labels, accuracy
    "zero columns": (np.insert(X, [0, 2], 0, axis=1), Y, 0.85),
    "a constant column": (np.c_[X, np.full(N, 7.0)], Y, 0.85),
    "collinear columns": (X @ rng.standard_normal((4, 9)), Y, 0.85),
    "duplicated columns": (np.c_[X, X], Y, 0.85),
    "fewer examples than features": (rng.standard_normal((24, 100)), Y[:24], 0.999),
    "rows of zeros": (X * (np.arange(N) % 5 > 0)[:, None], Y, 0.6),
    "one example of each class": (X[ONE_EACH], Y[ONE_EACH], 1),
    "one enormous example": (X * np.where(np.arange(N) == 5, 1e150, 1)[:, None], Y, 0),
    "very different units": (X * (1e-100, 1, 1e100, 1), Y, 0.7),
    "one column in a tiny unit": (X * (1e-200, 1, 1, 1), Y, 0.7),
    "all the same": (np.full_like(X, 3), np.where(np.arange(N) < 60, 2, Y), 0.7),
}


@pytest.fixture(params=["multiclass", "ovr", "ovo"])
def architecture(request):
    return request.param


def learned(inputs, labels, weight=None, **settings):
    model = quick(random_state=0, **settings).fit(inputs, labels, weight)
    p = model.predict_proba(inputs)
    assert np.allclose(p.sum(axis=1), 1) and np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.history_["objective"][0]))
    return model, p


@together("fit_intercept", [True, False])
def test_degenerate_tables_are_learned_from(architecture, fit_intercept):
    ways = {"architecture": architecture, "fit_intercept": fit_intercept}
    found = {}
    for name, (inputs, labels, right) in DEGENERATE.items():
        model, _ = found[name] = learned(inputs, labels, **ways)
        assert model.score(inputs, labels) >= right, name
    names = ("zero columns", "duplicated columns", "rows of zeros")
    padded, twice, zeros = map(found.get, names)
    assert np.abs(padded[0].coef_[..., [0, 3]]).max() < 1e-12
    assert np.abs(found["collinear columns"][0].coef_).max() < 1e3
    # the solution of least norm shares every weight out
    halves = np.split(twice[0].coef_, 2, axis=-1)
    np.testing.assert_allclose(*halves, rtol=1e-6, atol=1e-9)
    assert np.ptp(zeros[1][::5], axis=0).max() < 1e-12
    assert np.ptp(found["all the same"][1], axis=0).max() == 0
    if not fit_intercept:
        p = learned(X, Y, **ways)[1]
        np.testing.assert_allclose(padded[1], p, rtol=1e-7)
        np.testing.assert_allclose(twice[1], p, rtol=1e-6)
        np.testing.assert_allclose(zeros[1][::5], 1 / 3, rtol=1e-12)


@together("fit_intercept", [True, False])
def test_classes_without_weight_are_never_predicted(architecture, fit_intercept):
    ways = {"architecture": architecture, "fit_intercept": fit_intercept}
    Z, y = classes(90, 4, 4)
    for kept in (y != 1, y % 2 == 1):
        model, p = learned(Z, y, kept * 1.0, **ways)
        alone, _ = learned(Z[kept], y[kept], **ways)
        assert set(model.predict(Z)) == set(model.classes_) == set(y[kept])
        assert np.allclose(p, alone.predict_proba(Z), rtol=1e-9)


def test_inputs_far_beyond_the_training_data(architecture):
    model, _ = learned(X, Y, architecture=architecture)
    for factor in (1e-300, 1e100, 1e160, 1e300):
        p = model.predict_proba(X * factor)
        assert np.allclose(p.sum(axis=1), 1)
        for method in (model.predict_log_proba, model.decision_function):
            assert np.all(np.isfinite(method(X * factor)))
    limit = model.predict_proba(X * 1e150)
    np.testing.assert_allclose(model.predict_proba(X * 1e160), limit, rtol=1e-9)
    single = model.predict_proba((X * 1e25).astype(np.float32))
    np.testing.assert_allclose(single, model.predict_proba(X * 1e25), rtol=1e-4)
    tiny = quick(architecture=architecture).fit(X * 1e-9, Y)
    for method in ("predict", "predict_proba", "decision_function", "transform", "squash"):
        with pytest.raises(ValueError, match="X is too large for this model"):
            getattr(tiny, method)(np.clip(X * 1e307, -1e308, 1e308))


def test_random_weights_of_any_size_enormous_penalties_and_few_examples(architecture):
    learned(X, Y, architecture=architecture, alpha=1e300)
    for unit, scale in ((1, 1e-200), (1, 1e-5), (1, 1e100), (1e-100, 1e100), (0, 1)):
        learned(X * unit, Y, architecture=architecture, init="random", init_scale=scale)
    for n in (4, 6, 90):
        model, _ = learned(X[:n], Y[:n], architecture=architecture, early_stopping=True)
        assert np.isfinite(model.history_["validation_error"][0]).any()
    with pytest.warns(UserWarning, match=r"classes \[0, 1, 2\] span fewer directions than caps"):
        quick(architecture=architecture).fit(X[ONE_EACH], Y[ONE_EACH])


# ── functions

MOMENT = np.rint(8 * X).T @ np.rint(8 * X)
MODEL = CapsuleRegression(
    np.arange(3)[None], np.full((1, 3), 2), LeastSquares.from_gram((X.T @ X)[None])
)
START = CapsuleParameters(np.random.default_rng(1).standard_normal((1, 3, 2, 4)))
FITTED = quick().fit(X, Y)
FUNCTIONS = {
    "subspace": (lambda a: subspace(a, 2, MOMENT, np.random.default_rng(0))[0] ** 2, MOMENT),
    "weights": (lambda a: random_weights((2, 4), a, 0.1, np.random.default_rng(0)), MOMENT),
    "LeastSquares": (lambda a: LeastSquares.from_gram(a).solve(START.weights), MOMENT[None]),
    "e_step": (lambda a: MODEL.e_step(START, (a, Y, None)), X),
    "e_step, weight": (lambda a: MODEL.e_step(START, (X, Y, a)), X[:, 0] ** 2),
    "count_errors": (lambda a: MODEL.count_errors(START, (a, Y, None)), X),
    "second_moments": (lambda a: second_moments((a, Y, None), range(3)), X),
    "fit, sample_weight": (lambda a: quick().fit(X, Y, a).predict_proba(X), X[:, 0] ** 2),
    "fit, X_val": (lambda a: quick().fit(X, Y, X_val=a, y_val=Y).predict_proba(X), X),
    "partial_fit": (lambda a: quick().partial_fit(a, Y, classes=range(3)).predict_proba(X), X),
    "posterior_mean": (lambda a: FITTED.posterior_mean(a, Y), X),
    "prototypes": (lambda a: FITTED.prototypes(a, Y), X),
}
SPARSE = ("fit, X_val", "partial_fit", "posterior_mean", "prototypes")


def assert_close(found, wanted, tolerance):
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted))):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@together("name", FUNCTIONS)
def test_form_and_type_of_an_array_do_not_matter(name):
    function, array = FUNCTIONS[name]
    for change in FORMS.values():
        given = change(array)
        before = np.array(given, dtype=float)
        assert_close(function(given), function(array.copy()), 1e-9)
        assert np.array_equal(np.asarray(given, dtype=float), before)  # not changed in place
    assert_close(function(array.astype(np.float32)), function(array), 2e-4)
    whole = np.rint(array / np.abs(array).max() * 10)
    for dtype in (np.int8, np.float16):
        narrow = whole.astype(dtype)
        assert_close(function(narrow), function(narrow.astype(float)), 2e-4)
    if name not in SPARSE:
        with pytest.raises((TypeError, ValueError), match="(?s).{15}"):
            function(sp.csr_matrix(array.reshape(len(array), -1)))


BAD, RNG = X * np.nan, np.random.default_rng(0)
DATA = (X, Y, None)
LONE = np.arange(3)[None]
BATCH = {"x": X, "y": Y, "weight": None}
WRONG = [  # a function, good arguments, and bad ones, each with what the error must say
    (
        subspace,
        {"moment": MOMENT, "dim": 2, "overall": MOMENT, "rng": RNG},
        each(
            moment=[BAD[:4], X, np.triu(MOMENT)],
            overall=[MOMENT[:3, :3], BAD[:4]],
            dim=[0, 2.5],
            rng=[0],
        ),
    ),
    (
        random_weights,
        {"shape": (2, 4), "overall": MOMENT, "scale": 0.1, "rng": RNG},
        each(shape=[(2, 3), 4], overall=[X], scale=[0, np.inf], rng=[None]),
    ),
    (
        LeastSquares.from_gram,
        {"gram": MOMENT[None]},
        each(gram=[MOMENT, BAD[None, :4]], alpha=[-1], which=[(1,)]),
    ),
    (
        CapsuleRegression,
        {"targets": LONE, "dims": LONE + 2},
        each(
            targets=[LONE[0], np.arange(4)[None]],
            dims=[LONE[0] + 1, LONE * 0],
            alpha=[-1],
        ),
    ),
    *(
        (
            lambda f=function, start=START, **batch: f(start, tuple(batch.values())),
            BATCH,
            (
                *each(x=[X[:, :3]], y=[Y[:9], Y + 0.5], weight=[np.ones(9)]),
                ({"start": CapsuleParameters(START.weights[0])}, "weights"),
                *(({"y": y}, "y must lie between 0 and 2") for y in (Y + 1, Y - 1)),
            ),
        )
        for function in (MODEL.e_step, MODEL.count_errors)
    ),
    (
        lambda **batch: second_moments(tuple(batch.values()), range(3)),
        BATCH,
        each(x=[X[0]], y=[Y[:9]], weight=[np.ones(9)]),
    ),
    (
        em.fit,
        {"model": MODEL, "parameters": START, "data": DATA},
        (
            *each(
                data=[
                    *(iter([DATA]), (X, Y[:9], None), [X, Y], (), [], (X[:0], Y[:0], None)),
                    *((BAD, Y, None), (X * np.inf, Y, None), (X.tolist(), Y, None)),
                ],
                parameters=[CapsuleParameters(START.weights * np.nan)],
                rounds=[(), [3], [em.Round(0)]],
                monitor=["loss"],
                momentum=[-0.1, np.nan],
                tol=[-1, np.nan],
                max_iter=[0],
                checkpoint=[7],
                checkpoint_every=["10", -1, np.nan],
                acceleration=["squarem"],
            ),
            ({"validation": (BAD, Y, None), "monitor": "validation"}, "validation"),
            ({"monitor": "validation"}, "validation is None"),
        ),
    ),
]


@together("function, good, wrong", WRONG)
def test_wrong_arguments_of_functions_are_named(function, good, wrong):
    kinds = (ValueError, TypeError, FloatingPointError)
    for arguments, said in wrong:
        with pytest.raises(kinds, match=rf"(?s)(^|\W){said}(\W|$)") as caught:
            function(**good | arguments)
        assert len(str(caught.value)) > 20 and not isinstance(caught.value, np.exceptions.AxisError)


# ── tables: the column, the label and what helps

LABELS = [0, 1, 0, 1, 0, 1]
GOOD = pd.DataFrame({"age": np.arange(6.0), "income": np.arange(6.0) ** 2, "colour": 1.0})
SIMPLE = {"kernel": None, "alpha": 0.1, "sharpness": 1.0}
ESTIMATORS = (
    CapsuleClassifier(1, **SIMPLE),
    ClassConditionalClassifier(GaussianMixture(1)),
    GaussianMixture(1),
    FactorialVectorQuantizer(1, 2),
    CompositionalModel(1, random_state=0),
)
DATES = pd.to_datetime(["2026-01-01", "2026-01-05"] * 3)
NO_DATES = "X holds dates or times in the column 'C', where numbers are needed; make numbers of"
FAULTS = {  # column, its values or the one at fault, and what is said
    "NaN": ("age", np.nan, "X contains NaN in the column 'C'; .*SimpleImp.*HistGradientBoosting"),
    "None": ("age", None, "X contains NaN in the column 'C'; .*SimpleImputer"),
    "infinity": ("income", np.inf, "X contains infinity or a value too .* the column 'C'; clip"),
    "text": ("colour", "red", "X holds text, such as 'red', in the column 'C', .*OneHot.*TableCl"),
    "dates": ("colour", DATES, NO_DATES),
    "with a time zone": ("colour", DATES.tz_localize("UTC"), NO_DATES),
    "durations": (
        "colour",
        DATES - DATES[0],
        "X holds time spans in the column 'C', where .* days",
    ),
    "days of Python": ("colour", DATES.date, NO_DATES),
    "periods": ("colour", DATES.to_period("D"), NO_DATES),
    "lists": ("colour", [[1]] * 6, "X holds objects of the type list in the column 'C', where num"),
}


@together("fault", FAULTS)
def test_the_column_is_named(fault):
    column, values, said = FAULTS[fault]
    if np.ndim(values) == 0:
        values = np.array([*range(5), values], dtype=object)
    frame = GOOD.assign(**{column: values})
    named = said.replace("'C'", f"'{column}'")
    for estimator in ESTIMATORS:
        takes_gaps = get_tags(estimator).input_tags.allow_nan and "contains NaN" in said
        refused = pytest.raises(ValueError, match=named)
        with nullcontext() if takes_gaps else refused:
            estimator.fit(frame, LABELS)
    model = CapsuleClassifier(1, **SIMPLE).fit(GOOD, LABELS)
    for call in (model.predict, model.transform):
        with pytest.raises(ValueError, match=named):
            call(frame)
    with pytest.raises(ValueError, match=named.replace("X ", "X_val ", 1)):
        model.fit(GOOD, LABELS, X_val=frame, y_val=LABELS)
    number = said.replace("'C'", f"{list(frame).index(column)} .from 0.")
    with pytest.raises(ValueError, match=number):
        model.fit(frame.to_numpy(), LABELS)
    if fault in ("NaN", "infinity"):
        dense = frame.to_numpy(dtype=float)
        for form in (sp.csr_array(dense), lambda: iter([(dense, LABELS)])):
            with pytest.raises(ValueError, match=number):
                model.fit(form, None if callable(form) else LABELS)


CLASSIFIER, BAYES = ESTIMATORS[:2]


@together(
    "labels, said",
    [
        (["a", None, "b", "a", "b", "a"], "NaN or None: example 1"),
        (np.array(["a", "b", np.nan, "a", "b", "a"], object), "NaN or None: example 2"),
        ([0, 1, np.nan, 1, 0, 1], "NaN or None: example 2"),
        (pd.Series(["a", "b", "a", pd.NA, "b", "a"], dtype="string"), "NaN or None: example 3"),
        (DATES.where(DATES.day > 1), "NaN or None: example 0"),
        (["a", 1, "a", 1, "a", 1], "labels of several kinds, such as 'a' and 1"),
        (np.array(["a", True] * 3, object), "labels of several kinds"),
    ],
)
def test_the_label_is_named(labels, said):
    for estimator in (CLASSIFIER, BAYES):
        with pytest.raises(ValueError, match=f"^y (contains|holds) {said}"):
            estimator.fit(GOOD, labels)
    with pytest.raises(ValueError, match=f"^y_val (contains|holds) {said}"):
        CLASSIFIER.fit(GOOD, LABELS, X_val=GOOD, y_val=labels)


def test_what_helps_is_said():
    large = GOOD.assign(income=-1e200)
    size = r"X has 1e\+200 as its largest magnitude, in the column"
    folds = r"cv: there are no folds; .* a list of \(train, test\) is not"
    sums = "sample_weight adds up to .* divide the weights of all batches"
    objects = np.array(GOOD, dtype=object)
    objects[2, 1] = {"a": 1}
    fitted = CapsuleClassifier(1, **SIMPLE).fit(GOOD, LABELS)
    single, heavy = GOOD.astype(np.float32), np.full(6, 1e38)
    for said, call in (
        (f"{size} 'income', but", lambda: fitted.fit(large, LABELS)),
        (rf"{size} 1 \(from", lambda: fitted.fit(sp.csr_array(large), LABELS)),
        ("X_val needs y_val", lambda: fitted.fit(GOOD, LABELS, X_val=GOOD)),
        (folds, lambda: CapsuleClassifier(cv=iter([])).fit(GOOD, LABELS)),
        (r"y is None, .* pass score\(X, y\)", lambda: fitted.score(GOOD)),
        (sums, lambda: quick(1).partial_fit(single, LABELS, [0, 1], heavy)),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(TypeError, match="objects of the type dict in.* a real number"):
        fitted.fit(objects, LABELS)
    pairs = CapsuleClassifier(1, **SIMPLE).fit(GOOD, [0, 1, 2] * 2)
    for method in ("prototypes", "posterior_mean"):
        assert not hasattr(pairs, method) and hasattr(fitted, method)  # two classes: one problem
        with pytest.raises(AttributeError, match=f"{method} needs .* architecture='multiclass'"):
            getattr(pairs, method)(GOOD, LABELS)


def test_more_folds_than_examples_of_a_class_are_warned_of():
    y = np.where(np.arange(len(X)) < 2, "rare", "usual")
    said = r"class '(rare|usual)' has \d examples, fewer than the cv=3 folds, .* pass a smaller cv"
    for n in (len(X), 3):  # also where there are too few rows for any folds
        with pytest.warns(UserWarning, match=said):
            CapsuleClassifier().fit(X[:n], y[:n])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "cv=")
        CapsuleClassifier(cv=2).fit(X, y)
        CapsuleClassifier(1, **SIMPLE).fit(X[:3], y[:3])  # nothing is selected


def test_other_classes_or_shapes_are_no_warm_start_and_change_nothing():
    model = CapsuleClassifier(1, **SIMPLE, warm_start=True).fit(GOOD, LABELS)
    before, names = vars(model).copy(), np.array(["no", "yes"])
    other = r"coef_, .* \[0, 1\], but y holds .* warm_start=False"
    for inputs, labels, said in (
        (GOOD, names[LABELS], other),
        (GOOD, [0, 2, 0, 2, 0, 2], other),
        (GOOD, [0, 1, 2, 0, 1, 2], other),
        (GOOD.to_numpy()[:, :2], LABELS, "coef_"),
    ):
        with pytest.raises(ValueError, match=said):
            model.fit(inputs, labels)
    with pytest.raises(UserWarning, match="max_iter"):  # as an error
        model.set_params(max_iter=1).fit(GOOD, LABELS)
    with pytest.raises(ValueError, match="coef_"):
        model.set_params(capsule_dim=3).partial_fit(GOOD, LABELS)
    model.set_params(max_iter=before["max_iter"], capsule_dim=1)
    assert all(vars(model)[name] is value for name, value in before.items())
    assert model.set_params(warm_start=False).fit(GOOD, names[LABELS]).classes_.tolist() == [*names]


# ── validation inputs that a pipeline has not transformed: warned of, unlike honest shifts

TABLES = (load_iris, load_wine, load_breast_cancer, load_digits)
SCALERS = (
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=50, output_distribution="normal"),
)


@np.errstate(all="ignore")
@together("load", TABLES)
def test_what_was_not_transformed_is_seen_and_honest_shifts_are_not(load):
    table, y = load(return_X_y=True)
    train, test = train_test_split(table, random_state=0)
    for scaler in SCALERS:
        transformed = scaler.fit_transform(train)
        assert _share_elsewhere(transformed, test) > 0.5, scaler
        assert _share_elsewhere(transformed, scaler.transform(test)) < 0.25, scaler
    scaled = StandardScaler().fit_transform(table)
    main = scaled @ np.linalg.svd(scaled, full_matrices=False)[2][0]
    for values in (scaled[:, 0], main, -main, y == 0):
        ordered = scaled[np.argsort(values, kind="stable")]
        for held in (len(ordered) // 4, 5, 1):  # the last ones of that order
            assert _share_elsewhere(ordered[:-held], ordered[-held:]) <= 0.5, held
    codes = np.sort(rng.integers(30, size=600))  # one-hot columns that a part lacks say nothing
    assert _share_elsewhere(np.eye(30)[codes[:400]], np.eye(30)[codes[400:]]) <= 0.5


def test_a_pipeline_warns_and_both_remedies_help():
    warnings.filterwarnings("ignore", "EM stopped")
    X, X_val, y, y_val = train_test_split(*load_wine(return_X_y=True), random_state=0)
    settings = SIMPLE | {"schedule": Schedule(monitor="error"), "max_iter": 5, "random_state": 0}
    classifier = CapsuleClassifier(1, **settings)
    pipeline = make_pipeline(StandardScaler(), classifier)
    words = r"X_val has another place or scale.*_input=\['X_val'\].*early_stopping=True"
    with pytest.warns(UserWarning, match=words):
        pipeline.fit(X, y, capsuleclassifier__X_val=X_val, capsuleclassifier__y_val=y_val)
    scale = pipeline[0].transform
    with pytest.warns(UserWarning, match=words):
        classifier.fit(sp.csr_array(scale(X)), y, X_val=sp.csr_array(X_val), y_val=y_val)
    with sklearn.config_context(enable_metadata_routing=True):
        steps = [("s", StandardScaler()), ("c", classifier.set_fit_request(X_val=True, y_val=True))]
        routed = Pipeline(steps, transform_input=["X_val"]).fit(X, y, X_val=X_val, y_val=y_val)
        early = CapsuleClassifier(1, **settings, early_stopping=True)
        split_off = make_pipeline(StandardScaler(), early).fit(X, y)
        by_hand = CapsuleClassifier(1, **settings).fit(scale(X), y, X_val=scale(X_val), y_val=y_val)
    assert np.array_equal(routed[-1].coef_, by_hand.coef_)
    assert min(routed.score(X_val, y_val), split_off.score(X_val, y_val)) > 0.9
