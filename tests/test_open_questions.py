"""The open questions: rules and measures on cases with known answers, and the experiment itself on
the small digits.
"""

import numpy as np
import pytest
from conftest import examples
from hypothesis import example, given
from hypothesis import strategies as st

from capslit.experiments.open_questions import (
    _effective_dimensions,
    paired_difference,
    _share_out,
)


@examples(200)
@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=12).filter(lambda need: sum(need) > 0),
    st.integers(1, 40),
)
@example([0.0, 5e-324], 2)  # half of the smallest number is 0
def test_shares_add_up(need, mean):
    m = len(need)
    dims = _share_out(m * mean, need)
    assert dims.sum() == m * mean and dims.min() >= 1 and dims.min() >= mean // 2
    exact = m * mean * (0.5 / m + 0.5 * (np.array(need) / sum(need)))
    assert mean == 1 or np.abs(dims - exact).max() < 1 + 1e-6


def test_effective_dimensions_of_known_covariances():
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.standard_normal((20_000, 5)), rng.standard_normal((20_000, 5)) * [3, 3, 0, 0, 0] + 7]
    )
    y = np.repeat([0, 1], 20_000)
    np.testing.assert_allclose(_effective_dimensions(X, y, 2), [5, 2], rtol=0.01)


def test_paired_difference_is_that_of_the_errors_and_its_error_that_of_a_mean():
    rng = np.random.default_rng(1)
    first, second = rng.random((2, 400)) < 0.9
    difference, error = paired_difference(first, second)
    d = second.astype(float) - first
    assert difference == pytest.approx(np.mean(~first) - np.mean(~second)) == pytest.approx(
        d.mean()
    ) and error == pytest.approx(d.std() / 20)
