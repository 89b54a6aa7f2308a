"""Errors about a table say which column is to blame and what helps, whichever estimator it was given to."""
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import together

from capslit import CapsuleClassifier, ClassConditionalClassifier, CompositionalModel, FactorialVectorQuantizer, GaussianMixture

LABELS = [0, 1, 0, 1, 0, 1]
GOOD = pd.DataFrame({"age": np.arange(6.0), "income": np.arange(6.0) ** 2, "colour": 1.0})
ESTIMATORS = {"CapsuleClassifier": CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0), "ClassConditionalClassifier": ClassConditionalClassifier(GaussianMixture(1)),
              "GaussianMixture": GaussianMixture(1), "FactorialVectorQuantizer": FactorialVectorQuantizer(1, 2),
              "CompositionalModel": CompositionalModel(1, random_state=0)}
FAULTS = {"NaN": ("age", np.nan, "X contains NaN in the column 'age'; .*SimpleImputer.*HistGradientBoostingClassifier"),
          "None": ("age", None, "X contains NaN in the column 'age'; .*SimpleImputer"),
          "infinity": ("income", np.inf, "X contains infinity or a value too large for its type in the column 'income'; clip"),
          "text": ("colour", "red", "X holds text, such as 'red', in the column 'colour', .*OneHotEncoder.*TableClassifier")}


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
    model, frame = CapsuleClassifier(1, kernel=None, alpha=0.1, sharpness=1.0).fit(GOOD, LABELS), spoiled(column, value)
    for call in (model.predict, model.transform):
        with pytest.raises(ValueError, match=message):
            call(frame)
    with pytest.raises(ValueError, match=message.replace("X ", "X_val ", 1)):
        model.fit(GOOD, LABELS, X_val=frame, y_val=LABELS)
    number = f"{GOOD.columns.get_loc(column)} .from 0."
    with pytest.raises(ValueError, match=message.replace(f"'{column}'", number)):
        model.fit(frame.to_numpy(), LABELS)
    if fault in ("NaN", "infinity"):
        for form in (sp.csr_array(frame.to_numpy(dtype=float)), lambda: iter([(frame.to_numpy(dtype=float), LABELS)])):
            with pytest.raises(ValueError, match=message.replace(f"'{column}'", number)):
                model.fit(form, None if callable(form) else LABELS)


def test_too_large_values_and_labels():
    with pytest.raises(ValueError, match=r"X has 1e\+200 as its largest magnitude, in the column 'income', but"):
        CapsuleClassifier().fit(spoiled("income", -1e200).astype(float), LABELS)
    with pytest.raises(ValueError, match=r"X has 1e\+200 as its largest magnitude, in the column 1 \(from 0\), but"):
        CapsuleClassifier().fit(sp.csr_array(spoiled("income", -1e200).to_numpy(dtype=float)), LABELS)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        CapsuleClassifier().fit(GOOD, [0, 1, np.nan, 1, 0, 1])
