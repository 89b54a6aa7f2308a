"""The open questions: a measure on cases with known answers, and the experiment itself on the small
digits.
"""

import numpy as np
import pytest

from capslit.experiments.open_questions import paired_difference


def test_paired_difference_is_that_of_the_errors_and_its_error_that_of_a_mean():
    rng = np.random.default_rng(1)
    first, second = rng.random((2, 400)) < 0.9
    difference, error = paired_difference(first, second)
    d = second.astype(float) - first
    assert difference == pytest.approx(np.mean(~first) - np.mean(~second)) == pytest.approx(
        d.mean()
    ) and error == pytest.approx(d.std() / 20)
