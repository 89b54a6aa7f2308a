"""Scores of probabilities against hand computation, scikit-learn and brute force."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import together
from sklearn.metrics import log_loss as reference_log_loss

from capslit.experiments.calibration import (
    CALIBRATION,
    _assess,
    brier_score,
    calibration_error,
    _fit_temperature,
    _least_calibration_error,
    log_loss,
    _perfect_rejection,
    rejection_curve,
    reliability,
    _temper,
)
from capslit.experiments.peers import PEERS, peer_parts
from capslit.experiments.records import load_record, perform


@pytest.fixture(scope="module")
def sample():
    "Log-probabilities of four classes, and labels drawn from them."
    rng = np.random.default_rng(0)
    logs = _temper(2 * rng.normal(size=(4000, 4)), 1.0)
    return logs, np.array([rng.choice(4, p=p) for p in np.exp(logs)])


def test_bins_by_hand():
    confidence, correct = [0.31, 0.39, 0.75, 0.85, 0.95, 1.0], [0, 1, 1, 0, 1, 1]
    bins = reliability(confidence, correct, 2)
    assert np.allclose(bins, [[2, 4], [0.35, 0.8875], [0.5, 0.75]])
    assert np.isclose(calibration_error(bins), (2 * 0.15 + 4 * 0.1375) / 6)
    bins = reliability(confidence, correct, 3, equal="mass")
    assert np.allclose(bins, [[2, 2, 2], [0.35, 0.8, 0.975], [0.5, 0.5, 1.0]])
    empty = reliability([0.9, 0.91], [1, 1], 10)
    assert empty[0].tolist() == [0] * 9 + [2] or empty[0].sum() == 2
    assert np.isnan(empty[1, 0]) and np.isclose(calibration_error(empty), 0.095)
    with pytest.raises(ValueError, match="equal must be"):
        reliability(confidence, correct, equal="size")


def test_losses(sample):
    logs, y = sample
    assert np.isclose(log_loss(logs, y), reference_log_loss(y, np.exp(logs)))
    assert np.isclose(
        brier_score(logs, y), np.mean(np.sum((np.exp(logs) - np.eye(4)[y]) ** 2, axis=1))
    )
    with np.errstate(divide="ignore"):
        assert (
            brier_score(np.log(np.eye(4)), np.arange(4)) == 0
            and brier_score(np.log(np.eye(4)), np.arange(4)[::-1]) == 2
        )


def test_honest_probabilities_have_the_least_error(sample):
    logs, y = sample
    confidence, correct = np.exp(logs.max(axis=1)), logs.argmax(axis=1) == y
    for equal in ("width", "mass"):
        least = _least_calibration_error(confidence, np.random.default_rng(1), equal=equal)
        assert (
            0.005 < least < 0.02
            and calibration_error(reliability(confidence, correct, equal=equal)) < 2 * least
        )
        for wrong in (0.5, 2):
            other = np.exp(_temper(logs, wrong).max(axis=1))
            assert calibration_error(reliability(other, correct, equal=equal)) > 4 * least


@together("wrong", [0.1, 1.0, 7.0])
def test_the_temperature_is_found(sample, wrong):
    logs, y = sample
    found = _fit_temperature(_temper(logs, wrong), y)
    assert abs(found * wrong - 1) < 0.06
    best = log_loss(_temper(_temper(logs, wrong), found), y)
    assert best <= log_loss(logs, y) and all(
        best < log_loss(_temper(_temper(logs, wrong), found * f), y) for f in (0.9, 1.1)
    )


def test_temperature_keeps_the_order(sample):
    logs, _ = sample
    assert np.allclose(_temper(logs, 1), logs)
    assert np.array_equal(np.argsort(_temper(logs, 3), axis=1), np.argsort(logs, axis=1))
    assert np.allclose(_temper(logs, 1e6), -np.log(4), atol=1e-4)


def test_rejection_with_ties_is_the_mean_over_all_orders():
    rng = np.random.default_rng(0)
    confidence, correct = rng.integers(0, 4, 30) / 4, rng.random(30) < 0.6
    curves = []
    for _ in range(4000):
        order = np.lexsort((rng.random(30), -confidence))
        curves.append(np.cumsum(~correct[order]) / np.arange(1, 31))
    assert np.abs(rejection_curve(confidence, correct) - np.mean(curves, axis=0)).max() < 0.03
    assert np.isclose(rejection_curve(confidence, correct)[-1], np.mean(~correct))


def test_nothing_is_better_than_perfect_rejection():
    correct = np.random.default_rng(0).random(50) < 0.7
    wrong = int(np.sum(~correct))
    assert np.isclose(
        rejection_curve(correct.astype(float), correct).mean(), _perfect_rejection(wrong, 50)
    )
    assert (
        rejection_curve(1 - correct, correct).mean()
        > rejection_curve(np.ones(50), correct).mean()
        > _perfect_rejection(wrong, 50)
    )
    assert _perfect_rejection(0, 50) == 0


def test_assessment_of_certain_and_correct_probabilities():
    logs = np.log(np.full((20, 2), 1e-9))
    logs[:, 1] = 0
    metrics, arrays = _assess(logs, np.ones(20, int), np.random.default_rng(0))
    assert (
        metrics["error"] == metrics["rejection_area"] == metrics["log_loss"] == 0
        and metrics["ece_width"] < 1e-8
    )
    assert arrays["bins_width"].shape == (3, 15) and not arrays["rejection"].any()


def test_the_experiment_twice(tmp_path):
    names = ("multiclass-8", "logistic", "neighbours")
    some = lambda parts: (
        lambda data, profile: tuple(p for p in parts(data, profile) if p.name in names)
    )
    perform(
        "peers", replace(PEERS, parts=some(peer_parts)), "digits", profile="quick", out=tmp_path
    )
    calibration = replace(CALIBRATION, parts=some(CALIBRATION.parts))
    records = [
        load_record(
            perform("calibration", calibration, "digits", profile="quick", out=tmp_path, again=True)
        )
        for _ in range(2)
    ]
    assert all(
        np.array_equal(a, records[1].arrays[key], equal_nan=True)
        for key, a in records[0].arrays.items()
    )
    for name in names:
        metrics = records[0].metrics(name)
        assert metrics == records[1].metrics(name)
        assert (
            metrics["error_before"] == metrics["error_after"]
            and metrics["perfect_area_before"] <= metrics["rejection_area_before"]
        )
        assert np.isclose(records[0].array(name, "rejection_before")[-1], metrics["error_before"])
    ours = records[0].metrics("multiclass-8")
    assert (
        ours["temperature"] < 0.5 and ours["log_loss_after"] < 0.8 * ours["log_loss_before"]
    )  # too modest as they come
