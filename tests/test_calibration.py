"""Scores of probabilities against hand computation, scikit-learn and brute force."""

import numpy as np
import pytest
from conftest import together
from sklearn import metrics as reference

from capslit.experiments import calibration
from capslit.experiments.calibration import (
    brier_score,
    calibration_error,
    log_loss,
    rejection_curve,
    reliability,
)
from capslit.experiments.records import load_record


@pytest.fixture(scope="module")
def sample():
    "Log-probabilities of four classes, and labels drawn from them."
    rng = np.random.default_rng(0)
    logs = calibration._temper(2 * rng.normal(size=(4000, 4)), 1.0)
    return logs, np.array([rng.choice(4, p=p) for p in np.exp(logs)])


def test_bins_by_hand():
    confidence = [0.31, 0.39, 0.75, 0.85, 0.95, 1.0]
    correct = [0, 1, 1, 0, 1, 1]
    bins = reliability(confidence, correct, 2)
    assert np.allclose(bins, [[2, 4], [0.35, 0.8875], [0.5, 0.75]])
    assert np.isclose(calibration_error(bins), (2 * 0.15 + 4 * 0.1375) / 6)
    bins = reliability(confidence, correct, 3, equal="mass")
    assert np.allclose(bins, [[2, 2, 2], [0.35, 0.8, 0.975], [0.5, 0.5, 1.0]])
    empty = reliability([0.92, 0.91], [1, 1], 10)
    assert empty[0].tolist() == [0] * 9 + [2] and np.isnan(empty[1, 0])
    assert np.isclose(calibration_error(empty), 0.085)
    with pytest.raises(ValueError, match="equal must be"):
        reliability(confidence, correct, equal="size")


def test_losses_are_those_of_the_definitions_and_honest_probabilities_have_the_least(sample):
    logs, y = sample
    assert np.isclose(log_loss(logs, y), reference.log_loss(y, np.exp(logs)))
    squares = np.sum((np.exp(logs) - np.eye(4)[y]) ** 2, axis=1)
    assert np.isclose(brier_score(logs, y), squares.mean())
    correct = logs.argmax(axis=1) == y
    confidence = np.exp(logs.max(axis=1))
    for equal in ("width", "mass"):
        rng = np.random.default_rng(1)
        least = calibration._least_calibration_error(confidence, rng, equal=equal)
        assert 0.005 < least < 0.02
        assert calibration_error(reliability(confidence, correct, equal=equal)) < 2 * least
        for wrong in (0.5, 2):
            other = np.exp(calibration._temper(logs, wrong).max(axis=1))
            assert calibration_error(reliability(other, correct, equal=equal)) > 4 * least


@together("wrong", [0.1, 1.0, 7.0])
def test_the_temperature_is_found(sample, wrong):
    logs, y = sample
    tempered = calibration._temper(logs, wrong)
    assert np.allclose(np.exp(tempered).sum(axis=1), 1)
    found = calibration._fit_temperature(tempered, y)
    assert abs(found * wrong - 1) < 0.06
    losses = [log_loss(calibration._temper(tempered, found * f), y) for f in (1, 0.9, 1.1)]
    assert losses[0] == min(losses) <= log_loss(logs, y)


def test_rejection_with_ties_is_the_mean_over_all_orders():
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 4, 30) / 4
    correct = rng.random(30) < 0.6
    curves = []
    for _ in range(4000):
        order = np.lexsort((rng.random(30), -confidence))
        curves.append(np.cumsum(~correct[order]) / np.arange(1, 31))
    curve = rejection_curve(confidence, correct)
    assert np.abs(curve - np.mean(curves, axis=0)).max() < 0.03
    perfect = calibration._perfect_rejection(np.sum(~correct), 30)
    assert np.isclose(rejection_curve(correct, correct).mean(), perfect)


def test_assessment_of_certain_and_correct_probabilities():
    logs = np.log(np.tile([1e-9, 1.0], (20, 1)))
    metrics, arrays = calibration._assess(logs, np.ones(20, int), np.random.default_rng(0))
    assert metrics["error"] == metrics["rejection_area"] == metrics["log_loss"] == 0
    assert metrics["ece_width"] < 1e-8 and not arrays["rejection"].any()
    assert np.isclose(brier_score(logs, np.zeros(20, int)), 2)


def test_the_quick_record(quick_record):
    record = load_record(quick_record("calibration"))
    for name in record.parts:
        metrics = record.metrics(name)
        assert metrics["perfect_area_before"] <= metrics["rejection_area_before"]
        last = record.array(name, "rejection_before")[-1]
        assert metrics["error_after"] == metrics["error_before"] == pytest.approx(last)
    ours = record.metrics("multiclass-8")  # too modest as they come
    assert ours["temperature"] < 0.5
    assert ours["log_loss_after"] < 0.8 * ours["log_loss_before"]
