"""Quadrants: the data, what is recovered, the table searches, the exact M-step, the peers, and the
experiment in its quick form.
"""

import itertools
import math

import numpy as np
import pytest
from sklearn.decomposition import sparse_encode

from capslit.composition.model import active_experts
from capslit.composition.rules import compose_extremes, max_minus_min
from capslit.data.datasets import (
    QUADRANT_STATES,
    compose_quadrants,
    draw_quadrants,
    load_quadrants,
    quadrant_templates,
)
from capslit.experiments import quadrants
from capslit.experiments.quadrants import (
    FOUND,
    LEARNERS,
    PEERS,
    STARTS,
    VALUES,
    all_sets,
    as_rows,
    _best_templates,
    cross_entropy,
    _em_step,
    explain_small,
    extremes_of_sets,
    _foretold_by_truth,
    learn_experts,
    learned_experts,
    _measure,
    recovery,
    sparse_codes,
    start_templates,
    _states_of,
)
from capslit.experiments.records import load_record
from capslit.composition.pursuit import exhaustive_search, matching_pursuit

TRUTH = as_rows(quadrant_templates())


@pytest.fixture(scope="module")
def X():
    return as_rows(draw_quadrants(100, np.random.RandomState(0))[0])


# the data


def test_experts_are_quadrants_in_two_colours():
    templates = quadrant_templates()
    assert templates.shape == (8, 6, 6) and set(np.unique(templates)) == {0, 0.5, 1}
    for k, (quadrant, colour) in enumerate(itertools.product(range(4), range(2))):
        row, column = divmod(quadrant, 2)
        inside = templates[k, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        assert np.all(inside == colour) and np.sum(templates[k] != 0.5) == 9


def test_images_are_drawn_from_their_templates():
    images, states = draw_quadrants(4000, np.random.RandomState(3))
    templates = compose_quadrants(states)
    assert images.dtype == np.uint8 and images.shape == templates.shape == (4000, 6, 6)
    assert np.all(images[templates != 0.5] == templates[templates != 0.5])
    assert abs(np.mean(images[templates == 0.5]) - 0.5) < 0.01
    assert np.all(
        np.abs(np.bincount(states.ravel(), minlength=3) / 16000 - (0.5, 0.25, 0.25)) < 0.02
    )
    assert (
        templates[0, 0, 0] == (0.5, 0, 1)[states[0, 0]]
        and templates[0, 5, 0] == (0.5, 0, 1)[states[0, 2]]
    )
    again, _ = draw_quadrants(4000, np.random.RandomState(3))
    assert np.array_equal(images, again)


def test_the_data_set_is_always_the_same():
    data = load_quadrants()
    assert (
        data.images.shape == (2000, 6, 6) and data.n_train == 1000 and len(data.class_names) == 81
    )
    assert (
        data.sha256
        == load_quadrants().sha256
        == {"quadrants": "b6a21fbe207671b0db14bffa8d1587dafb355a27c464a8ce7ce998f6a5f643c5"}
    )
    templates = compose_quadrants(_states_of(data.labels))
    assert np.all(data.images[templates != 0.5] == templates[templates != 0.5])
    for label, states in zip(data.labels[:20], _states_of(data.labels)):
        assert data.class_names[label] == ", ".join(QUADRANT_STATES[s] for s in states)


# what is recovered


def test_matching_ignores_order_and_size_and_nothing_else():
    rng = np.random.default_rng(0)
    votes = (TRUTH - 0.5)[rng.permutation(8)] * rng.uniform(0.1, 2, (8, 1))
    assert np.allclose(recovery(votes), 1)
    assert np.sum(recovery(votes[:5]) > FOUND) == 5 and np.sum(recovery(-votes[[0]]) > FOUND) == 1
    assert np.max(recovery(rng.normal(size=(8, 36)))) < FOUND
    assert np.all(recovery(np.zeros((8, 36))) == 0)
    assert np.allclose(recovery(votes * rng.choice([-1, 1], (8, 1)), signed=False), 1)


# searches


@pytest.mark.parametrize("K", [1, 3, 8])
def test_the_table_searches_are_those_of_the_package(X, K):
    templates = np.random.default_rng(K).uniform(0.05, 0.95, (K, 36))
    for greedy, search in ((True, matching_pursuit), (False, exhaustive_search)):
        active, score = explain_small(templates, X, greedy)
        found = search(X, templates)
        assert np.array_equal(active, active_experts(found.experts, K)) and np.allclose(
            score, found.log_likelihood
        )


def test_true_experts_explain_images_and_hidden_pixels_do_not_count(X):
    active, score = explain_small(TRUTH, X)
    images, states = draw_quadrants(100, np.random.RandomState(0))
    true = np.stack(
        [states[:, q] == 1 + c for q, c in itertools.product(range(4), range(2))], axis=1
    )
    assert np.all(active >= true) and np.mean(active == true) > 0.99
    assert np.allclose(score, -9 * math.log(2) * (4 - active.sum(axis=1)))
    seen = np.arange(36) != 7
    flipped = X.copy()
    flipped[:, 7] = 1 - X[:, 7]
    for a, b in zip(
        explain_small(TRUTH * 0.9 + 0.05, X, visible=seen),
        explain_small(TRUTH * 0.9 + 0.05, flipped, visible=seen),
    ):
        assert np.array_equal(a, b)
    assert not np.array_equal(explain_small(TRUTH, X)[1], explain_small(TRUTH, flipped)[1])


def test_no_expert_is_active_where_none_helps():
    active, score = explain_small(np.full((3, 4), 0.5), np.array([[0, 1, 1, 0.0]]))
    assert not np.any(active) and np.allclose(score, -4 * math.log(2))
    assert np.array_equal(all_sets(2), [[0, 0], [1, 0], [0, 1], [1, 1]])


def test_sets_compose_by_the_rule():
    templates = np.random.default_rng(4).uniform(size=(4, 6))
    for members, U, L in zip(all_sets(4), *extremes_of_sets(templates, all_sets(4))):
        assert np.allclose(
            compose_extremes(U, L), max_minus_min(templates[members]) if np.any(members) else 0.5
        )


# learning


def test_the_exact_step_beats_every_single_change(X):
    templates = np.round(np.random.default_rng(5).uniform(0.1, 0.9, (8, 36)) / 0.02) * 0.02
    active, _ = explain_small(templates, X)

    def aim(templates):
        mu = compose_extremes(*extremes_of_sets(templates, active))
        return np.sum(np.log(np.where(X == 1, mu, 1 - mu)), axis=0) + np.sum(
            np.log(templates * (1 - templates)), axis=0
        )

    best = templates
    for _ in range(20):
        best = _best_templates(best, active, X)
    settled = aim(best)
    assert np.all(settled >= aim(templates) - 1e-9) and np.array_equal(
        best, _best_templates(best, active, X)
    )
    for k in range(8):
        for value in VALUES[::6]:
            other = best.copy()
            other[k] = value
            assert np.all(aim(other) <= settled + 1e-7)


def test_the_exact_step_of_a_lone_expert_is_equation_1():
    X = np.repeat([[1.0, 0, 1, 0]], 98, axis=0)
    X[:49, 2] = 0
    found = _best_templates(np.array([[0.9, 0.1, 0.6, 0.5]]), np.ones((98, 1), bool), X)
    assert np.allclose(found, [[0.98, 0.02, 0.5, 0.02]])
    idle = _best_templates(np.full((2, 4), 0.8), np.repeat([[True, False]], 98, axis=0), X)
    assert np.all(idle[1] == 0.5)


def test_equation_1_turns_foreign_votes_over_and_the_exact_step_removes_them():
    X = as_rows(draw_quadrants(3000, np.random.RandomState(6))[0])
    start = np.clip(TRUTH, 0.02, 0.98)
    start[0, 35] = 0.54
    first = _em_step(start, X)[0]
    second = _em_step(first, X)[0]
    assert abs(first[0, 35] - 1 / 3) < 0.06 and abs(second[0, 35] - 2 / 3) < 0.06
    assert abs(_em_step(start, X, "exact M-step")[0][0, 35] - 0.5) < 0.03
    assert np.sum(recovery(second - 0.5) > FOUND) == 8


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("start", STARTS)
def test_learning_is_deterministic(X, learner, start):
    runs = [learn_experts(X, 3, np.random.RandomState(7), learner, start) for _ in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(*runs))
    course, scores = runs[0]
    assert (
        course.shape == (4, 8, 36)
        and scores.shape == (3,)
        and np.all((course >= 0) & (course <= 1))
    )
    assert np.array_equal(course[0], start_templates(start, X, np.random.RandomState(7)))
    assert scores[-1] > -36 * math.log(2)


def test_of_several_starts_the_most_probable_is_kept(X):
    rng = np.random.RandomState(8)
    scores = [learn_experts(X, 3, rng, n_starts=1)[1][-1] for _ in range(4)]
    assert (
        learn_experts(X, 3, np.random.RandomState(8), n_starts=4)[1][-1]
        == max(scores)
        > min(scores)
    )


def test_the_true_experts_stay_with_the_exact_step(X):
    templates = np.clip(TRUTH, 0.02, 0.98)
    for _ in range(5):
        templates, _ = _em_step(templates, X, "exact M-step")
    assert np.all(recovery(templates - 0.5) > 0.95)


# measures and peers


def test_what_the_truth_costs():
    test = as_rows(load_quadrants().test_images)
    found = _measure(learned_experts(np.clip(TRUTH, 0.004, 0.996)), test)
    assert (
        found["found"] == 8
        and abs(found["rebuilt"] - 18 * math.log(2)) < 0.5
        and abs(found["squared"] - 4.5) < 0.4
    )
    assert found["foretold"] == pytest.approx(
        cross_entropy(test, _foretold_by_truth(test)), abs=0.01
    )
    assert cross_entropy(test, np.full(test.shape, 0.5)) == pytest.approx(36 * math.log(2))
    assert cross_entropy(test, test) < 1e-3 and np.isfinite(cross_entropy(test, 1 - test))


@pytest.mark.parametrize("positive", [False, True])
def test_sparse_codes_are_those_of_the_library(X, positive):
    atoms = np.random.default_rng(9).normal(size=(8, 36))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    theirs = sparse_encode(
        X - 0.5, atoms, algorithm="lasso_cd", alpha=0.2, positive=positive, max_iter=10_000
    )
    assert np.allclose(sparse_codes(X - 0.5, atoms, 0.2, positive, sweeps=200), theirs, atol=1e-3)
    assert np.all(np.isfinite(sparse_codes(X - 0.5, np.zeros((8, 36)), 0.2, positive)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", PEERS)
def test_peers_foretell_without_looking(method, X):
    learn, grid, fixed = PEERS[method]
    settings = {name: values[-1] for name, values in grid.items()} | {name: 3 for name in fixed}
    one, two = (learn(X, 0, **settings) for _ in range(2))
    flipped = X.copy()
    flipped[:, 5] = 1 - X[:, 5]
    assert np.array_equal(one.votes, two.votes) and one.votes.shape == (8, 36)
    assert np.allclose(one.foretell(X)[:, 5], one.foretell(flipped)[:, 5])
    assert not np.allclose(one.rebuild(X), one.rebuild(flipped))
    for made in (one.rebuild(X), one.foretell(X)):
        assert made.shape == X.shape and np.all((made >= 0) & (made <= 1))


def test_the_machine_s_conditional_probability_is_that_of_its_energy(X):
    learned = quadrants._learn_machine(X[:, :36], 0, 0.1, 5, 5)
    from sklearn.neural_network import BernoulliRBM

    model = BernoulliRBM(8, learning_rate=0.1, batch_size=5, n_iter=5, random_state=0).fit(X)
    d, both = 3, np.stack([X, X])
    both[0, :, d], both[1, :, d] = 0, 1
    off, on = (-model._free_energy(images) for images in both)
    assert np.allclose(learned.foretell(X)[:, d], 1 / (1 + np.exp(off - on)))


# the experiment


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("quadrants", "quadrants"))


def test_metrics_are_within_sense(record):
    for name, part in record.parts.items():
        metrics, kind = part["metrics"], part["parameters"]["kind"]
        if kind == "recovery":
            found = np.array(metrics["found"])
            assert (
                found.shape == (part["parameters"]["n_runs"], len(metrics["steps"]))
                and found.min() >= 0
                and found.max() <= 8
            )
            assert record.array(name, "templates").shape == (2, len(metrics["steps"]), 8, 36)
            assert np.all(np.array(metrics["rebuilt"])[:, 1:] < 36 * math.log(2) + 5)
        if kind in ("composed", "peer"):
            for aim in quadrants.AIMS:
                assert (
                    all(0 <= n <= 8 for n in metrics[aim]["found"])
                    and min(metrics[aim]["foretold"]) > 12.54
                )
        if kind == "peer":
            tried = metrics["grid"]
            for aim in quadrants.AIMS:
                best = min(tried, key=lambda one: one[aim])
                assert all(best[key] == value for key, value in metrics[aim]["chosen"].items())
    assert len(record.parts) == len(LEARNERS) * len(STARTS) + 2 + 5 + 4 + len(quadrants.TUNED)
