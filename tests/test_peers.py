"""The peers: fair settings, sizes, packed probabilities, the same record for the same seed."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import together
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier

from capslit.capsules.classifier import CapsuleClassifier
from capslit.experiments import peers
from capslit.experiments.peers import (
    GRIDS,
    PEERS,
    _elected,
    build_peer,
    _fit_network,
    mcnemar,
    _model_size,
    _pack,
    _pairs_to_probabilities,
    peer_parts,
    unpack,
)
from capslit.experiments.records import load_record, perform


def only(*names):
    return replace(
        PEERS,
        parts=lambda data, profile: tuple(p for p in peer_parts(data, profile) if p.name in names),
    )


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("peers"))


def test_packed_probabilities_are_right_to_two_per_cent():
    rng = np.random.default_rng(0)
    logits = np.concatenate([rng.normal(size=(500, 7)) * scale for scale in (0.05, 1, 4)])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gaps = lambda logs: logs.max(axis=1, keepdims=True) - logs
    found, true = gaps(unpack(_pack(p))), gaps(np.log(p))
    assert np.array_equal(found.argmin(axis=1), p.argmax(axis=1))
    fine = (true > 2.0**-9) & (true < 16)
    assert np.abs(found[fine] / true[fine] - 1).max() < 0.02
    assert np.allclose(np.exp(unpack(_pack(p))).sum(axis=1), 1)


def test_packed_extremes():
    p = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.2, 1e-300, 0.8]])
    code = _pack(p)
    assert code.dtype == np.uint8 and code.tolist() == [
        [0, 255, 255],
        [0, 1, 255],
        [0, 1, 1],
        [code[3, 0], 255, 0],
    ]
    assert np.allclose(np.exp(unpack(code)), p, atol=6e-3)


def test_mcnemar():
    labels = np.zeros(40, int)
    first, second = labels.copy(), labels.copy()
    second[:9], first[9:10] = 1, 1
    a, b, p = mcnemar(first, second, labels)
    assert (a, b) == (9, 1) and np.isclose(p, 2 * 11 / 2**10)  # both tails of ten throws of a coin
    assert mcnemar(labels, labels, labels) == (0, 0, 1.0)
    assert mcnemar(second, first, labels)[2] == p


@together("name", GRIDS)
def test_sizes_are_those_that_prediction_needs(name):
    X, y = load_iris(return_X_y=True)
    settings = {
        "logistic": {"max_iter": 1000},
        "forest": {"n_estimators": 3},
        "network": {"hidden_layer_sizes": 5, "max_iter": 3},
        "svm": {"gamma": 1.0, "C": 1.0},
    }
    model = build_peer(name, X, 0, **settings.get(name, {}))
    model.fit(X, y) if name != "network" else model.partial_fit(X, y, classes=[0, 1, 2])
    numbers, held = _model_size(model)
    n_support = getattr(model, "n_support_", np.zeros(1)).sum()
    expected = {
        "logistic": 3 * 4 + 3,
        "svm": n_support * (4 + 2) + 3,
        "neighbours": 150 * 5,
        "network": 4 * 5 + 5 + 5 * 3 + 3,
    }
    if name == "forest":
        trees = [e.tree_ for e in model.estimators_]
        assert numbers == sum(3 * t.n_leaves + 4 * (t.node_count - t.n_leaves) for t in trees)
    else:
        assert numbers == expected[name]
    assert held >= 4 * numbers - 4 * 150


def test_pairwise_scores_elect_what_the_machine_predicts_and_give_probabilities():
    rng = np.random.default_rng(0)
    y = np.arange(900) % 5
    X = rng.normal(size=(900, 3)) + 1.5 * rng.normal(size=(5, 3))[y]
    machine = build_peer("svm", X[:300], 0, gamma=1.0, C=1.0).fit(X[:300], y[:300])
    scores = machine.decision_function(X[300:])
    assert np.array_equal(_elected(scores), machine.predict(X[300:]))
    p = _pairs_to_probabilities(scores[:300], y[300:600], scores[300:])
    assert p.shape == (300, 5) and np.allclose(p.sum(axis=1), 1) and p.min() >= 0
    assert np.mean(p.argmax(axis=1) == y[600:]) > 0.4
    assert (
        abs(p.max(axis=1).mean() - np.mean(p.argmax(axis=1) == y[600:])) < 0.08
    )  # the sigmoids make them honest
    flipped = _pairs_to_probabilities(
        -scores[:300], y[300:600], -scores[300:]
    )  # a sigmoid may fall as well as rise
    assert np.allclose(flipped, p, atol=1e-3)


def test_the_size_of_ours():
    X, y = load_iris(return_X_y=True)
    assert (
        _model_size(
            CapsuleClassifier.paper(
                2, max_iter=2000, patience=(2,), thresholds=(0,), fit_intercept=False
            ).fit(X, y)
        )[0]
        == 3 * 2 * 4
    )
    assert (
        _model_size(
            CapsuleClassifier.paper(2, max_iter=2000, patience=(2,), thresholds=(0,)).fit(X, y)
        )[0]
        == 3 * 2 * 5
    )


def test_the_network_keeps_its_best_pass():
    X, y = load_iris(return_X_y=True)
    seen = []

    class Watched(MLPClassifier):
        def predict(self, X):
            predicted = super().predict(X)
            seen.append(np.mean(predicted != y[1::2]))
            return predicted

    network = Watched(8, max_iter=60, n_iter_no_change=5, random_state=0, learning_rate_init=0.1)
    _fit_network(network, X[::2], y[::2], X[1::2], y[1::2])
    passes = list(seen)
    best = int(np.argmin(passes))
    assert np.mean(network.predict(X[1::2]) != y[1::2]) == passes[best]
    assert len(passes) == min(best + 6, 60) and len(passes) < 60


def test_each_part_is_measured_in_the_same_way(record):
    assert list(record.parts) == sorted(record.parts) and set(record.parts) == {*peers.OURS, *GRIDS}
    for name, part in record.parts.items():
        metrics, labels = part["metrics"], record.array(name, "labels")
        assert {"fit", "predict", "judge"} <= set(part["seconds"]) and metrics["n_test"] == len(
            labels
        )
        assert metrics["test_error"] == np.mean(record.array(name, "predicted") != labels)
        logs = unpack(record.array(name, "test"))
        assert abs(-np.mean(logs[np.arange(len(labels)), labels]) / metrics["log_loss"] - 1) < 0.02
        if name in GRIDS:
            assert len(metrics["search_errors"]) > 1 and 0 <= min(metrics["search_errors"]) < 0.9
        if name != "svm":  # whose labels and probabilities may be at odds
            assert np.array_equal(logs.argmax(axis=1), record.array(name, "predicted"))


def test_the_full_size_grid_is_the_one_that_the_chapter_states():
    parts = {part.name: part.parameters for part in peer_parts("mnist", "paper")}
    assert parts["forest"]["fixed"]["n_estimators"] == 300 and all(
        parts[name]["grid"] == GRIDS[name][1] for name in GRIDS
    )
    assert {parts[name]["search_images"] for name in GRIDS} == {10_000}


def test_the_same_seed_gives_the_same_record_after_an_interruption(record, tmp_path, monkeypatch):
    some = only("multiclass-8", "logistic", "neighbours", "forest", "network", "svm")
    judge, stopped = peers._judge, []

    def interrupted(model, *rest):
        if type(model).__name__ == "RandomForestClassifier" and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        return judge(model, *rest)

    monkeypatch.setattr(peers, "_judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform("peers", some, "digits", profile="quick", out=tmp_path)
    said = []
    again = load_record(
        perform("peers", some, "digits", profile="quick", out=tmp_path, report=said.append)
    )
    assert stopped and not any("multiclass-8" in words for words in said)
    for name in again.parts:
        assert again.metrics(name) == record.metrics(name)
    assert all(np.array_equal(a, record.arrays[key]) for key, a in again.arrays.items())
