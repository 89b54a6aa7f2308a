"""Figures 6, 7 and 8: stacked problems are those that they stack, and the trends can be refuted."""

import numpy as np
import pytest
from conftest import together

from capslit import em
from capslit.data.datasets import load_digits
from capslit.experiments.figure8 import _random_streams
from capslit.experiments.records import load_protocol, load_record
from capslit.experiments.updates import (
    FIGURE7,
    TRENDS,
    UPDATES,
    all_training_examples,
    _doubling_means,
    _gaps,
    multiclass_problem,
    _reach,
    _read_curves,
    _rises,
    _significant_from,
    _trends,
)


@pytest.fixture(scope="module")
def records(quick_record):
    return {name: load_record(quick_record(name)) for name in ("figure6", "figure7", "figure8")}


@pytest.fixture(scope="module")
def batch():
    return all_training_examples(load_protocol(load_digits()))


def starts(stream, count, scale=0.1):
    return [
        {"init": "random", "init_scale": scale, "rng": rng}
        for rng in _random_streams(0, stream, count)
    ]


def learn(batch, initialisations, n_updates=12, threshold=0.8):
    model, weights = multiclass_problem(batch, 10, 4, initialisations)
    return weights.weights, em.fit(
        model,
        weights,
        batch,
        rounds=(em.Round(100, {"threshold": threshold}),),
        momentum=0.9,
        monitor="error",
        max_iter=n_updates + 1,
        n_threads=1,
    )


def test_all_training_examples_are_used_and_no_others():
    protocol = load_protocol(load_digits())
    X, y, weight = all_training_examples(protocol)
    assert len(X) == len(y) == protocol.data.n_train and weight is None
    assert np.array_equal(y, protocol.data.labels[: protocol.data.n_train])


def test_stacked_problems_are_those_alone(batch):
    weights, together = learn(batch, starts(1, 3))
    for q in range(3):
        own, alone = learn(batch, [starts(1, 3)[q]])
        assert np.array_equal(own[0], weights[q])
        for name in ("log_likelihood", "training_error"):
            assert np.allclose(
                alone.history[name][:, 0],
                together.history[name][:, q],
                rtol=1e-4,
                atol=2 / len(batch[0]),
            )


def test_what_a_problem_does_does_not_depend_on_its_neighbours(batch):
    "A neighbour that starts ten thousand times as large must not be felt."
    _, quiet = learn(batch, starts(1, 2))
    _, beside = learn(batch, [starts(1, 2)[0], starts(1, 2, scale=1000.0)[1]])
    assert np.allclose(
        quiet.history["log_likelihood"][:, 0], beside.history["log_likelihood"][:, 0], rtol=1e-5
    )
    assert not np.allclose(
        quiet.history["log_likelihood"][:, 1], beside.history["log_likelihood"][:, 1], rtol=1e-2
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


def test_the_history_begins_with_the_initial_weights(batch, records):
    model, start = multiclass_problem(
        batch, 10, 4, [{"init": "subspace", "init_scale": 1.0, "rng": np.random.default_rng(0)}]
    )
    statistics = em.accumulate(
        lambda block: model.e_step(start, block, threshold=np.zeros(1)), batch, 10_000
    )
    for name in UPDATES:
        curves = {
            what: records["figure6"].array(name, what) for what in ("log_loss", "training_error")
        }
        assert len(curves["log_loss"]) == len(curves["training_error"]) == 101
        assert np.isclose(
            curves["log_loss"][0],
            -float(statistics.log_likelihood[0]) / len(batch[0]) / np.log(10),
            rtol=1e-6,
        )
        assert curves["training_error"][0] == float(statistics.errors[0]) / len(batch[0])


def test_the_updates_are_the_four(records):
    curves = _read_curves(records["figure6"])
    first = {name: curve["log_loss"][1] for name, curve in curves.items()}
    second = {name: curve["log_loss"][2] for name, curve in curves.items()}
    assert (
        first["em"] == first["momentum"] and first["thresholded"] == first["momentum-thresholded"]
    )
    assert len(set(second.values())) == 4
    assert {
        name: (part["parameters"]["momentum"], part["parameters"]["threshold"])
        for name, part in records["figure6"].parts.items()
    } == UPDATES


def test_figure7_needs_no_runs_of_its_own(records):
    assert FIGURE7.needs == ("figure6",)
    assert records["figure7"].metrics("trends") == _trends(_read_curves(records["figure6"]), 1540)
    for name in TRENDS:
        assert np.array_equal(
            records["figure7"].array("trends", name), _gaps(_read_curves(records["figure6"]), name)
        )


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


def test_a_gap_that_closes_again_is_not_significant():
    low, high = np.full(40, 0.1), np.full(40, 0.2)
    assert _significant_from(low, high, 1000) == 0
    low[25] = 0.2
    assert _significant_from(low, high, 1000) == 26
    low[39] = 0.2
    assert _significant_from(low, high, 1000) is None
    assert _significant_from(np.full(9, 0.1), np.full(9, 0.101), 1000) is None
    assert _significant_from(np.full(9, 0.1), np.full(9, 0.101), 10**8) == 0


def test_windows_marks_and_rises():
    assert _doubling_means(np.arange(1001.0))[-1] == np.mean(np.arange(640, 1001))
    assert len(_doubling_means(np.arange(1001.0))) == 7
    assert _reach(np.array([3.0, 2, 1, 2]), 1.5) == 2 and _reach(np.array([3.0, 2]), 1.0) is None
    assert _rises(np.array([1.0, 0.5, 0.6, 0.6, 0.2, 0.3])) == 2


def test_the_record_of_the_starts(records):
    record = records["figure8"]
    for name, part in record.parts.items():
        best, curves, n = (
            record.array(name, "best"),
            record.array(name, "training_error"),
            record.metrics(name)["n_train"],
        )
        assert (
            curves.shape == (part["parameters"]["n_starts"], part["parameters"]["n_updates"] + 1)
            and n == 1540
        )
        assert np.allclose(curves.min(axis=1), best) and np.array_equal(
            curves.argmin(axis=1), record.array(name, "reached")
        )
        assert np.allclose(best * n, np.round(best * n))
        assert part["metrics"]["lowest"] == best.min() and part["metrics"]["highest"] == best.max()
    assert len({record.array(name, "training_error").tobytes() for name in record.parts}) == 6
