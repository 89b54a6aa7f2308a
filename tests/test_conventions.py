"""The conventions of scikit-learn, by its own checks: once for each estimator, in the settings that
lead to other code.
"""

import pytest
from estimators import ESTIMATORS


@pytest.mark.first
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if " " not in name])
def test_conventions_of_scikit_learn(name, unpassed):
    entry = ESTIMATORS[name]
    cases = [*((settings, {}) for settings in entry.conventions), *entry.excused]
    results = unpassed(type(entry.estimator), cases)
    for (parameters, _), (count, failures) in zip(cases, results, strict=True):
        assert count > 30 + 20 * (name == "CapsuleClassifier") and failures == [], parameters
