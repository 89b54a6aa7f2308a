"""The open questions: rules and measures on cases with known answers, and the experiment itself on
the small digits.
"""

import numpy as np
import pytest
from conftest import examples, together
from hypothesis import example, given
from hypothesis import strategies as st

from capslit.experiments.open_questions import (
    METHODS,
    RULES,
    batch_rows,
    _effective_dimensions,
    _open_question_parts,
    paired_difference,
    _share_out,
)
from capslit.experiments.records import load_record


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("open-questions"))


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


def test_equal_needs_get_equal_shares():
    assert _share_out(40, np.full(10, 3.7)).tolist() == [4] * 10


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


def test_batches_are_a_partition():
    rows = batch_rows(1283, 128, 0)
    assert (
        sorted(np.concatenate(rows).tolist()) == list(range(1283))
        and max(map(len, rows)) - min(map(len, rows)) <= 1
    )


@together("profile", ["paper", "quick"])
def test_every_question_has_its_parts(profile):
    names = [part.name for part in _open_question_parts("mnist", profile)]
    assert len(set(names)) == len(names) and "ridge-0" in names
    assert {name.split("-")[0] for name in names} == {
        "ridge",
        "dims",
        "online",
        "whole",
        "accelerated",
    }
    for d in {
        name.split("-")[1] for name in names if name.startswith("dims")
    }:  # "mistakes" reads the metrics of "equal"
        assert names.index(f"dims-{d}-equal") < names.index(f"dims-{d}-mistakes")


def test_the_record_of_the_quick_profile(record):
    n = len(record.array("dims-2-equal", "right"))
    for rule in RULES:
        m = record.metrics(f"dims-2-{rule}")
        assert (
            sum(m["dims"]) == 20
            and m["test_error"] == np.sum(~record.array(f"dims-2-{rule}", "right")) / n
        )
    assert sum(record.metrics("dims-2-equal")["mistakes"]) == 2 * round(
        257 * record.metrics("dims-2-equal")["validation_error"]
    )
    aggressive = record.metrics("online-passive-aggressive-128")
    assert (
        aggressive["aggressiveness"]
        == record.parts["online-passive-aggressive-128"]["parameters"]["aggressiveness"][
            int(np.argmin(aggressive["search"]))
        ]
    )
    assert record.metrics("ridge-1")["squared_norm"] < record.metrics("ridge-0")["squared_norm"]


def test_learning_from_batches_is_measured_along_the_way(record):
    for kind in ("stepwise", "incremental", "passive-aggressive"):
        passes, errors = (
            record.array(f"online-{kind}-128", name) for name in ("passes", "test_error")
        )
        assert (
            np.all(np.diff(passes) > 0)
            and passes[-1] == 3
            and errors[-1] < errors[0]
            and errors[-1] < 0.35
        )
        assert (
            errors[-1] < record.array("whole-em", "test_error")[3]
        )  # ten steps in a pass are worth more than one


def test_every_acceleration_reaches_what_em_reaches_and_sooner(record):
    goal = record.array("accelerated-em", "log_likelihood").max()
    for method in METHODS:
        path = record.array(f"accelerated-{method}", "log_likelihood")
        assert (
            len(path) == len(record.array(f"accelerated-{method}", "seconds")) == 80
            and path.max() >= goal
        )
        if method != "em":
            assert np.argmax(path >= goal) < 79
        if f"accelerated-{method}/accepted" in record.arrays:
            accepted = record.array(f"accelerated-{method}", "accepted") == 1
            assert np.diff(path[accepted]).min() > -1e-6 * abs(path[0])
            assert record.metrics(f"accelerated-{method}")["discarded"] == np.sum(~accepted)
