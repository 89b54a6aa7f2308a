"""The conventions of scikit-learn, by its own checks: once for each estimator, in the settings that
lead to other code.
"""

import pytest
from estimators import ESTIMATORS


@pytest.mark.first
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if " " not in name])
def test_conventions_of_scikit_learn(name, unpassed):
    entry = ESTIMATORS[name]
    for parameters, expected in [
        *((settings, {}) for settings in entry.conventions),
        *entry.excused,
    ]:
        count, failures = unpassed(type(entry.estimator), parameters, expected)
        assert count > 30 + 20 * (name == "CapsuleClassifier") and failures == [], parameters
