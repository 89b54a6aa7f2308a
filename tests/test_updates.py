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
    draws = [
        rng.standard_normal()
        for seed in (0, 1)
        for stream in (1, 2)
        for rng in _random_streams(seed, stream, 5)
    ]
    assert len(set(draws)) == 20
    assert [rng.standard_normal() for rng in _random_streams(0, 1, 3)] == draws[
        :3
    ]  # more starts leave the first ones as they are


def perfect(n_updates=200):
    "Curves for which everything holds that the paper says."
    t = np.arange(n_updates + 1.0)
    speed = {"em": 1, "thresholded": 1, "momentum": 10, "momentum-thresholded": 10}
    floor = {
        "em": (0.2, 0.1),
        "momentum": (0.2, 0.1),
        "thresholded": (0.4, 0.03),
        "momentum-thresholded": (0.4, 0.03),
    }
    loss = {
        name: floor[name][0] + (0.9 - floor[name][0]) * np.exp(-speed[name] * t / 300)
        for name in UPDATES
    }
    error = {
        name: floor[name][1] + (0.9 - floor[name][1]) * np.exp(-speed[name] * t / 300)
        for name in UPDATES
    }
    return {name: {"log_loss": loss[name], "training_error": error[name]} for name in UPDATES}


def test_the_trends_hold_where_they_should():
    found = _trends(perfect(), 10_000)
    assert found["n_updates"] == 200 and all(found[name] == [200, 200] for name in TRENDS)
    assert found["log_loss_rises"] == [0, 0, 0, 0]
    assert (
        found["momentum_reaches_log_loss"] == found["momentum_reaches_training_error"] == [20, 20]
    )
    assert all(np.all(np.diff(means) > 0) for means in found["gap_means"][:1])


@together("trend", TRENDS)
def test_each_trend_can_fail(trend):
    quantity, pairs = TRENDS[trend]
    for i, (lower, higher) in enumerate(pairs):
        curves = perfect()
        spoiled = curves[lower][quantity].copy()
        spoiled[[7, 50]] = curves[higher][quantity][[7, 50]] + [0.0, 0.01]  # equal is not lower
        curves[lower] = curves[lower] | {quantity: spoiled}
        assert _trends(curves, 10_000)[trend][i] == 198
        curves[lower] = curves[lower] | {quantity: curves[higher][quantity] + 0.01}
        assert _trends(curves, 10_000)[trend][i] == 0
