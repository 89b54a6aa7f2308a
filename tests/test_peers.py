"""The peers: fair settings, sizes, packed probabilities."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier

from capslit.capsules.classifier import CapsuleClassifier
from capslit.experiments import peers
from capslit.experiments.peers import GRIDS, build_peer, mcnemar, unpack
from capslit.experiments.records import load_record


def test_packed_probabilities_are_right_to_two_per_cent():
    rng = np.random.default_rng(0)
    logits = np.concatenate([rng.normal(size=(500, 7)) * scale for scale in (0.05, 1, 4)])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    logs = unpack(peers._pack(p))
    gaps, true = (a.max(axis=1, keepdims=True) - a for a in (logs, np.log(p)))
    assert np.array_equal(gaps.argmin(axis=1), p.argmax(axis=1))
    fine = (true > 2.0**-9) & (true < 16)
    assert np.abs(gaps[fine] / true[fine] - 1).max() < 0.02
    assert np.allclose(np.exp(logs).sum(axis=1), 1)
    p = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.2, 1e-300, 0.8]])
    code = peers._pack(p)
    assert code.dtype == np.uint8
    assert code[:3].tolist() == [[0, 255, 255], [0, 1, 255], [0, 1, 1]]
    assert code[3, 1:].tolist() == [255, 0]
    assert np.allclose(np.exp(unpack(code)), p, atol=6e-3)


def test_mcnemar():
    "Examples that both get wrong, in one way or in two, do not count."
    labels = np.zeros(40, int)
    first = np.select([np.arange(40) == 9, np.arange(40) > 30], [1, 2])
    second = np.select([np.arange(40) < 9, np.arange(40) > 30], [1, 3])
    both_tails = pytest.approx(2 * 11 / 2**10)  # of ten throws of a coin
    assert mcnemar(first, second, labels) == (9, 1, both_tails)
    assert mcnemar(second, first, labels) == (1, 9, both_tails)
    assert mcnemar(first, first, labels) == (0, 0, 1.0)


def test_sizes_are_those_that_prediction_needs():
    "Of the three whose numbers are not simply coefficients, or all examples."
    X, y = load_iris(return_X_y=True)
    settings = {
        "forest": {"n_estimators": 3},
        "network": {"hidden_layer_sizes": 5, "max_iter": 3},
        "svm": {"gamma": 1.0, "C": 1.0},
    }
    models = {
        name: peers._fit(build_peer(name, X, 0, **options), X, y, X, y)
        for name, options in settings.items()
    }
    trees = [tree.tree_ for tree in models["forest"].estimators_]
    expected = {
        "forest": sum(3 * t.n_leaves + 4 * (t.node_count - t.n_leaves) for t in trees),
        "network": 4 * 5 + 5 + 5 * 3 + 3,
        "svm": models["svm"].n_support_.sum() * (4 + 2) + 3,
    }
    assert {name: peers._model_size(model) for name, model in models.items()} == expected
    ours = CapsuleClassifier.paper(2, patience=(2,), thresholds=(0,)).fit(X, y)
    assert peers._model_size(ours) == 3 * 2 * 5


def test_pairwise_scores_elect_what_the_machine_predicts_and_give_probabilities():
    rng = np.random.default_rng(0)
    y = np.arange(900) % 5
    X = rng.normal(size=(900, 3)) + 1.5 * rng.normal(size=(5, 3))[y]
    machine = build_peer("svm", X[:300], 0, gamma=1.0, C=1.0).fit(X[:300], y[:300])
    held, test = np.split(machine.decision_function(X[300:]), [300])
    assert np.array_equal(peers._elected(test), machine.predict(X[600:]))
    p = peers._pairs_to_probabilities(held, y[300:600], test)
    assert np.allclose(p.sum(axis=1), 1)
    assert p.min() >= 0
    right = np.mean(p.argmax(axis=1) == y[600:])
    # The sigmoids make them honest, and may fall as well as rise
    assert right > 0.4
    assert abs(p.max(axis=1).mean() - right) < 0.08
    flipped = peers._pairs_to_probabilities(-held, y[300:600], -test)
    assert np.allclose(flipped, p, atol=1e-3)


def test_the_network_keeps_its_best_pass():
    X, y = load_iris(return_X_y=True)
    errors = []

    class Watched(MLPClassifier):
        def predict(self, X):
            predicted = super().predict(X)
            errors.append(np.mean(predicted != y[1::2]))
            return predicted

    network = Watched(8, max_iter=60, n_iter_no_change=5, random_state=0, learning_rate_init=0.1)
    peers._fit_network(network, X[::2], y[::2], X[1::2], y[1::2])
    best = int(np.argmin(errors))
    assert len(errors) == best + 6 < 60
    assert np.mean(network.predict(X[1::2]) != y[1::2]) == errors[best]


def test_each_part_is_measured_in_the_same_way(quick_record):
    record = load_record(quick_record("peers"))
    for name, part in record.parts.items():
        metrics = part["metrics"]
        labels = record.array(name, "labels")
        assert {"fit", "predict", "judge"} <= set(part["seconds"])
        logs = unpack(record.array(name, "test"))
        loss = -np.mean(logs[np.arange(len(labels)), labels])
        assert loss == pytest.approx(metrics["log_loss"], rel=0.02)
        if name in GRIDS:
            assert len(metrics["search_errors"]) > 1
            assert 0 <= min(metrics["search_errors"]) < 0.9
        # Labels and probabilities of support vectors may be at odds
        predicted = record.array(name, "predicted")
        assert np.array_equal(logs.argmax(axis=1), predicted) or name == "svm"
