"""Quadrants: the data, the table searches, the exact M-step, the peers, and the experiment in its
quick form.
"""

import itertools
import math

import numpy as np
import pytest
from conftest import together
from sklearn.decomposition import sparse_encode
from sklearn.neural_network import BernoulliRBM
from sklearn.preprocessing import normalize

from capslit.composition.rules import compose_extremes
from capslit.data.datasets import (
    QUADRANT_STATES,
    draw_quadrants,
    load_quadrants,
    quadrant_templates,
)
from capslit.experiments.quadrants import (
    AIMS,
    FIXED,
    FOUND,
    GRIDS,
    LEARNERS,
    PEERS,
    STARTS,
    VALUES,
    _best_templates,
    _learn_machine,
    _measure,
    as_rows,
    cross_entropy,
    _explain_small,
    extremes_of_sets,
    learn_experts,
    _learned_experts,
    _recovery,
    _sparse_codes,
    start_templates,
)
from capslit.experiments.records import load_record

TRUTH = as_rows(quadrant_templates())


@pytest.fixture(scope="module")
def X():
    return as_rows(draw_quadrants(100, np.random.RandomState(0))[0])


def test_the_data_set_is_always_the_same():
    data = load_quadrants()
    digest = "b6a21fbe207671b0db14bffa8d1587dafb355a27c464a8ce7ce998f6a5f643c5"
    assert data.sha256 == {"quadrants": digest} and data.n_train == 1000
    for label in data.labels[:20]:
        states = np.unravel_index(label, (3, 3, 3, 3))
        assert data.class_names[label] == ", ".join(QUADRANT_STATES[s] for s in states)


def test_matching_ignores_order_and_size_and_nothing_else():
    rng = np.random.default_rng(0)
    votes = (TRUTH - 0.5)[rng.permutation(8)] * rng.uniform(0.1, 2, (8, 1))
    assert np.sum(_recovery(votes[:5]) > FOUND) == 5 and np.sum(_recovery(-votes[[0]]) > FOUND) == 1
    assert np.max(_recovery(rng.normal(size=(8, 36)))) < FOUND
    assert np.all(_recovery(np.zeros((8, 36))) == 0)
    assert np.allclose(_recovery(votes * rng.choice([-1, 1], (8, 1)), signed=False), 1)


def test_true_experts_explain_images_at_their_cost_and_hidden_pixels_do_not_count(X):
    active, score = _explain_small(TRUTH, X)
    assert np.allclose(score, -9 * math.log(2) * (4 - active.sum(axis=1)))
    flipped = X.copy()
    flipped[:, 7] = 1 - X[:, 7]
    seen = np.arange(36) != 7
    both = [_explain_small(TRUTH * 0.9 + 0.05, images, visible=seen) for images in (X, flipped)]
    assert all(np.array_equal(a, b) for a, b in zip(*both))
    active, score = _explain_small(np.full((3, 4), 0.5), np.array([[0, 1, 1, 0.0]]))
    assert not np.any(active) and np.allclose(score, -4 * math.log(2))
    test = as_rows(load_quadrants().test_images)
    found = _measure(_learned_experts(np.clip(TRUTH, 0.004, 0.996)), test)
    assert found["found"] == 8 and abs(found["rebuilt"] - 18 * math.log(2)) < 0.5
    assert abs(found["squared"] - 4.5) < 0.4
    assert cross_entropy(test, test) < 1e-3 and np.isfinite(cross_entropy(test, 1 - test))


def test_the_exact_step_beats_every_single_change(X):
    templates = np.round(np.random.default_rng(5).uniform(0.1, 0.9, (8, 36)) / 0.02) * 0.02
    active, _ = _explain_small(templates, X)

    def aim(templates):
        mu = compose_extremes(*extremes_of_sets(templates, active))
        prior = np.log(templates * (1 - templates))
        return np.sum(np.log(np.where(X == 1, mu, 1 - mu)), axis=0) + np.sum(prior, axis=0)

    best = templates
    for _ in range(20):
        best = _best_templates(best, active, X)
    assert np.all(aim(best) >= aim(templates) - 1e-9)
    assert np.array_equal(best, _best_templates(best, active, X))
    for k, value in itertools.product(range(8), VALUES[::6]):
        other = best.copy()
        other[k] = value
        assert np.all(aim(other) <= aim(best) + 1e-7)
    assert np.all(_best_templates(templates, active & (np.arange(8) > 0), X)[0] == 0.5)


@together("learner", LEARNERS)
def test_the_most_probable_of_several_starts_is_kept(X, learner):
    for start in STARTS:
        rng = np.random.RandomState(8)
        courses = [learn_experts(X, 2, rng, learner, start) for _ in range(2)]
        course, scores = learn_experts(X, 2, np.random.RandomState(8), learner, start, n_starts=2)
        assert scores[-1] == max(one[1][-1] for one in courses) > -36 * math.log(2)
        assert course.shape == (3, 8, 36) and 0 <= course.min() < course.max() <= 1
        first = start_templates(start, X, np.random.RandomState(8))
        assert np.array_equal(courses[0][0][0], first)


@together("positive", [False, True])
def test_sparse_codes_are_those_of_the_library(X, positive):
    atoms = normalize(np.random.default_rng(9).normal(size=(8, 36)))
    options = {"alpha": 0.2, "positive": positive, "max_iter": 10_000}
    theirs = sparse_encode(X - 0.5, atoms, algorithm="lasso_cd", **options)
    assert np.allclose(_sparse_codes(X - 0.5, atoms, 0.2, positive, sweeps=200), theirs, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
@together("method", PEERS)
def test_peers_foretell_without_looking(X, method):
    settings = {name: values[-1] for name, values in GRIDS["paper"][method].items()}
    settings |= dict.fromkeys(FIXED[method], 3)
    one, two = (PEERS[method](X, 0, **settings) for _ in range(2))
    flipped = X.copy()
    flipped[:, 5] = 1 - X[:, 5]
    assert np.array_equal(one.votes, two.votes) and one.votes.shape == (8, 36)
    assert np.allclose(one.foretell(X)[:, 5], one.foretell(flipped)[:, 5])
    assert not np.allclose(one.rebuild(X), one.rebuild(flipped))
    for made in (one.rebuild(X), one.foretell(X)):
        assert made.shape == X.shape and 0 <= made.min() <= made.max() <= 1


def test_the_machine_s_conditional_probability_is_that_of_its_energy(X):
    learned = _learn_machine(X, 0, 0.1, 5, 5)
    model = BernoulliRBM(8, learning_rate=0.1, batch_size=5, n_iter=5, random_state=0).fit(X)
    both = np.stack([X, X])
    both[:, :, 3] = [[0], [1]]
    off, on = (-model._free_energy(images) for images in both)
    assert np.allclose(learned.foretell(X)[:, 3], 1 / (1 + np.exp(off - on)))


def test_metrics_are_within_sense(quick_record):
    record = load_record(quick_record("quadrants", "quadrants"))
    for name, part in record.parts.items():
        metrics = part["metrics"]
        if part["parameters"]["kind"] == "recovery":
            assert np.max(metrics["found"]) <= 8
            assert np.all(np.array(metrics["rebuilt"])[:, 1:] < 36 * math.log(2) + 5)
        else:
            assert all(min(metrics[aim]["foretold"]) > 12.54 for aim in AIMS)
        for aim in AIMS if "grid" in metrics else ():
            best = min(metrics["grid"], key=lambda one: one[aim])
            assert metrics[aim]["chosen"].items() <= best.items()
