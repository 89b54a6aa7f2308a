"""Figures 6, 7 and 8: stacked problems are those that they stack, and the trends can be refuted."""

import numpy as np
from conftest import together

from capslit.experiments.figure8 import _random_streams
from capslit.experiments.updates import (
    TRENDS,
    UPDATES,
    _trends,
)


def test_random_streams_differ_by_seed_by_level_and_by_number():
    pairs = [(0, 1), (0, 2), (1, 1), (1, 2)]
    draws = [rng.standard_normal() for pair in pairs for rng in _random_streams(*pair, 5)]
    assert len(set(draws)) == 20
    # More starts leave the first ones as they are
    assert [rng.standard_normal() for rng in _random_streams(0, 1, 3)] == draws[:3]


def perfect():
    "Curves of 200 updates for which everything holds that the paper says."
    t = np.arange(201.0)
    curves = {}
    for name in UPDATES:
        loss, error = (0.4, 0.03) if "thresholded" in name else (0.2, 0.1)
        falling = np.exp(-t * (10 if "momentum" in name else 1) / 300)
        floors = {"log_loss": loss, "training_error": error}
        curves[name] = {key: low + (0.9 - low) * falling for key, low in floors.items()}
    return curves


def test_the_trends_hold_where_they_should():
    found = _trends(perfect(), 10_000)
    assert found["n_updates"] == 200 and all(found[name] == [200, 200] for name in TRENDS)
    assert found["log_loss_rises"] == [0, 0, 0, 0]
    for quantity in ("log_loss", "training_error"):
        assert found[f"momentum_reaches_{quantity}"] == [20, 20]
    assert np.all(np.diff(found["gap_means"][0]) > 0)


@together("trend", TRENDS)
def test_each_trend_can_fail(trend):
    quantity, pairs = TRENDS[trend]
    for i, (lower, higher) in enumerate(pairs):
        curves = perfect()
        spoiled = curves[lower][quantity]
        bound = curves[higher][quantity]
        spoiled[[7, 50]] = bound[[7, 50]] + [0.0, 0.01]  # equal is not lower
        assert _trends(curves, 10_000)[trend][i] == 198
        spoiled[:] = bound + 0.01
        assert _trends(curves, 10_000)[trend][i] == 0
