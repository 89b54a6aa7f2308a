"""Errors about a table say which column is to blame and what helps, whichever estimator it was
given to.
"""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import together

from capslit import (
    CapsuleClassifier,
    ClassConditionalClassifier,
    CompositionalModel,
    FactorialVectorQuantizer,
    GaussianMixture,
)
from capslit.capsules.settings import RBF

LABELS = [0, 1, 0, 1, 0, 1]
GOOD = pd.DataFrame({"age": np.arange(6.0), "income": np.arange(6.0) ** 2, "colour": 1.0})
ESTIMATORS = {
    "CapsuleClassifier": CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0),
    "ClassConditionalClassifier": ClassConditionalClassifier(GaussianMixture(1)),
    "GaussianMixture": GaussianMixture(1),
    "FactorialVectorQuantizer": FactorialVectorQuantizer(1, 2),
    "CompositionalModel": CompositionalModel(1, random_state=0),
}
FAULTS = {
    "NaN": (
        "age",
        np.nan,
        "X contains NaN in the column 'age'; .*SimpleImputer.*HistGradientBoostingClassifier",
    ),
    "None": ("age", None, "X contains NaN in the column 'age'; .*SimpleImputer"),
    "infinity": (
        "income",
        np.inf,
        "X contains infinity or a value too large for its type in the column 'income'; clip",
    ),
    "text": (
        "colour",
        "red",
        "X holds text, such as 'red', in the column 'colour', .*OneHotEncoder.*TableClassifier",
    ),
}

FITTED = CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0).fit(GOOD, LABELS)


def spoiled(column, value):
    frame = GOOD.astype({column: object})
    frame.loc[3, column] = value
    return frame


@together("fault", FAULTS)
@together("name", ESTIMATORS)
def test_the_column_is_named(name, fault):
    column, value, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        ESTIMATORS[name].fit(spoiled(column, value), LABELS)


@together("fault", FAULTS)
def test_so_it_is_for_predictions_validation_examples_and_other_forms(fault):
    column, value, message = FAULTS[fault]
    model, frame = (
        CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0).fit(GOOD, LABELS),
        spoiled(column, value),
    )
    for call in (model.predict, model.transform):
        with pytest.raises(ValueError, match=message):
            call(frame)
    with pytest.raises(ValueError, match=message.replace("X ", "X_val ", 1)):
        model.fit(GOOD, LABELS, X_val=frame, y_val=LABELS)
    number = f"{GOOD.columns.get_loc(column)} .from 0."
    with pytest.raises(ValueError, match=message.replace(f"'{column}'", number)):
        model.fit(frame.to_numpy(), LABELS)
    if fault in ("NaN", "infinity"):
        for form in (
            sp.csr_array(frame.to_numpy(dtype=float)),
            lambda: iter([(frame.to_numpy(dtype=float), LABELS)]),
        ):
            with pytest.raises(ValueError, match=message.replace(f"'{column}'", number)):
                model.fit(form, None if callable(form) else LABELS)


def test_too_large_values_and_labels():
    with pytest.raises(
        ValueError, match=r"X has 1e\+200 as its largest magnitude, in the column 'income', but"
    ):
        CapsuleClassifier().fit(spoiled("income", -1e200).astype(float), LABELS)
    with pytest.raises(
        ValueError, match=r"X has 1e\+200 as its largest magnitude, in the column 1 \(from 0\), but"
    ):
        CapsuleClassifier().fit(
            sp.csr_array(spoiled("income", -1e200).to_numpy(dtype=float)), LABELS
        )
    with pytest.raises(ValueError, match="^y contains NaN or None: example 2"):
        CapsuleClassifier().fit(GOOD, [0, 1, np.nan, 1, 0, 1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        CapsuleClassifier().fit(GOOD, np.array([0, 1, np.nan, 1, 0, 1]))


DATES = pd.to_datetime(["2026-01-01", "2026-01-05"] * 3)
NO_NUMBERS = {
    "dates": (DATES, "dates or times"),
    "with a time zone": (DATES.tz_localize("UTC"), "dates or times"),
    "durations": (DATES - DATES[0], "dates or times"),
    "days of Python": (DATES.date, "dates or times"),
    "periods": (DATES.to_period("D"), "dates or times"),
    "lists": ([[1]] * 6, "objects of the type list"),
}


@together("kind", NO_NUMBERS)
def test_a_column_that_holds_no_numbers_is_named(kind):
    values, said = NO_NUMBERS[kind]
    frame = GOOD.assign(when=values)
    for name, estimator in ESTIMATORS.items():
        with pytest.raises(
            ValueError,
            match=(
                f"X holds {said} in the column 'when', where numbers are needed; make numbers of"
                " them"
            ),
        ):
            estimator.fit(frame, LABELS)
    with pytest.raises(ValueError, match=f"X holds {said} in the column 'when'"):
        ESTIMATORS["GaussianMixture"].fit(frame[["when"]])
    with pytest.raises(ValueError, match=f"X holds {said} in the column 'colour'"):
        FITTED.predict(frame[["age", "income", "when"]].rename(columns={"when": "colour"}))


@together(
    "labels, said",
    [
        (["a", None, "b", "a", "b", "a"], "NaN or None: example 1"),
        (np.array(["a", "b", np.nan, "a", "b", "a"], object), "NaN or None: example 2"),
        (pd.Series(["a", "b", "a", pd.NA, "b", "a"], dtype="string"), "NaN or None: example 3"),
        (DATES.where(DATES.day > 1), "NaN or None: example 0"),
        (["a", 1, "a", 1, "a", 1], "labels of several kinds, such as 'a' and 1"),
        (np.array(["a", True] * 3, object), "labels of several kinds"),
    ],
)
def test_labels_are_called_by_their_name(labels, said):
    for estimator in (ESTIMATORS["CapsuleClassifier"], ESTIMATORS["ClassConditionalClassifier"]):
        with pytest.raises(ValueError, match=f"^y (contains|holds) {said}"):
            estimator.fit(GOOD, labels)
    with pytest.raises(ValueError, match=f"^y_val (contains|holds) {said}"):
        ESTIMATORS["CapsuleClassifier"].fit(GOOD, LABELS, X_val=GOOD, y_val=labels)


def test_objects_that_are_no_numbers_raise_what_scikit_learn_raises():
    X = np.array(GOOD, dtype=object)
    X[2, 1] = {"a": 1}
    with pytest.raises(
        TypeError,
        match=(
            r"X holds objects of the type dict in the column 1 \(from 0\).*argument must be a"
            r" string or a real number"
        ),
    ):
        ESTIMATORS["CapsuleClassifier"].fit(X, LABELS)


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="X_val needs y_val"):
        ESTIMATORS["CapsuleClassifier"].fit(GOOD, LABELS, X_val=GOOD)
    with pytest.raises(ValueError, match=r"y is None, .* pass score\(X, y\)"):
        FITTED.score(GOOD)


def test_folds_that_are_used_up_are_missed():
    with pytest.raises(
        ValueError, match=r"cv: there are no folds; .* a list of \(train, test\) is not"
    ):
        CapsuleClassifier(cv=iter([])).fit(GOOD, LABELS)


@together(
    "parameters, said",
    [
        ({"alpha": []}, "alpha is empty; pass a number"),
        ({"kernel": RBF(())}, "gamma is empty"),
        ({"alpha": np.array([])}, "alpha is empty"),
        ({"cv": []}, "cv is empty; pass a number of folds"),
        ({"capsule_dim": True}, "capsule_dim must be a whole number .* not True"),
        (
            {"kernel": lambda x, z: 1},
            (
                r"kernel: its result must be an array .* not an object of the type int; it must be"
                r" a function \(x"
            ),
        ),
        ({"class_weight": {0: 1e200}}, "class_weight must be at most"),
    ],
)
def test_parameters_say_what_they_may_be(parameters, said):
    with pytest.raises((TypeError, ValueError), match=said):
        CapsuleClassifier(**parameters).fit(GOOD, LABELS)
    if "kernel" not in parameters:
        with pytest.raises(ValueError, match=said):
            CapsuleClassifier(**parameters).partial_fit(GOOD, LABELS, [0, 1])


def test_other_classes_are_no_warm_start():
    model = CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0, warm_start=True).fit(
        GOOD, LABELS
    )
    weights = model.coef_
    for labels in (np.array(["no", "yes"])[LABELS], [0, 2, 0, 2, 0, 2], [0, 1, 2, 0, 1, 2]):
        with pytest.raises(
            ValueError,
            match=(
                r"warm_start goes on from coef_, the weights of the classes \[0, 1\], but y holds"
                r" .* warm_start=False"
            ),
        ):
            model.fit(GOOD, labels)
    assert model.coef_ is weights and model.fit(GOOD, LABELS).coef_ is not weights
    assert model.set_params(warm_start=False).fit(
        GOOD, np.array(["no", "yes"])[LABELS]
    ).classes_.tolist() == ["no", "yes"]


def test_what_only_single_capsules_have():
    pairs = CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0).fit(GOOD, [0, 1, 2] * 2)
    for method in ("prototypes", "posterior_mean"):
        assert not hasattr(pairs, method) and hasattr(FITTED, method)  # two classes are one problem
        with pytest.raises(
            AttributeError,
            match=(
                f"{method} needs a classifier with one capsule for each class, .*"
                " architecture='multiclass'"
            ),
        ):
            getattr(pairs, method)(GOOD, LABELS)
    assert CapsuleClassifier.prototypes.__doc__.startswith("Indices")


def test_weights_that_single_precision_cannot_hold():
    heavy = pytest.raises(
        ValueError, match="sample_weight adds up to .* divide the weights of all batches"
    )
    with heavy:
        CapsuleClassifier().partial_fit(GOOD.astype(np.float32), LABELS, [0, 1], np.full(6, 1e38))
