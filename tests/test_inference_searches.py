"""Rivals of matching pursuit: mean field and gradient against their definitions, covers, L1 votes,
grey images, and the experiment in its quick form.
"""

import itertools

import numpy as np
import pytest

from capslit.composition.gaussian import GaussianCompositions, compose_means
from capslit.composition.exact import small_sets
from capslit.composition.pursuit import exhaustive_search
from capslit.composition.rules import bernoulli_log_likelihood, max_minus_min
from capslit.experiments import inference
from capslit.experiments.inference import (
    _best_pair,
    _coverage,
    _greedy_cover,
    _grey_estimate,
    _l1_templates,
    _learn_grey,
    _mean_field,
    _mean_field_cover,
    _preselected,
    _projected_gradient,
    _rebuild_means,
    _rebuild_sums,
    _set_values,
)
from capslit.experiments.quadrants import sparse_codes
from capslit.experiments.records import load_record


@pytest.fixture
def small():
    rng = np.random.default_rng(0)
    return (rng.random((20, 10)) < 0.5).astype(float), rng.uniform(0.05, 0.95, (4, 10))


@pytest.fixture
def covers():
    rng = np.random.default_rng(1)
    return rng.random((9, 30)) < 0.3, np.where(rng.random((5, 30)) < 0.5, 2.0, -1.5)


def all_activations(K):
    return np.array(list(itertools.product([0, 1], repeat=K)))


def test_values_of_sets_are_those_of_the_search(small):
    X, templates = small
    best = exhaustive_search(X, templates, expert_cost=0.7)
    J = np.sum(best.experts >= 0, axis=1)
    assert np.allclose(_set_values(templates, X, 0.7).max(axis=1), best.log_likelihood - 0.7 * J)
    alone = bernoulli_log_likelihood(X, max_minus_min(templates[[1, 2]]))
    assert np.allclose(_set_values(templates, X, 0.7)[:, 6], alone - 1.4)


def test_mean_field_is_a_fixed_point_of_its_equations(small):
    X, templates = small
    values = _set_values(templates, X, 0.5)
    lam, bounds = _mean_field(values, sweeps=500)
    assert np.all(np.diff(bounds, axis=0) > -1e-9)
    a = all_activations(4)
    for i in range(5):
        for k in range(4):
            others = np.delete(np.where(a, lam[i], 1 - lam[i]), k, axis=1).prod(axis=1)
            f = values[i, a @ 2 ** np.arange(4)]
            gap = np.sum(others * f * (2 * a[:, k] - 1))
            assert np.isclose(lam[i, k], 1 / (1 + np.exp(-gap)), atol=1e-4)


def test_ascent_stays_in_the_box_and_rises(small):
    X, templates = small
    a, path = _projected_gradient(X, templates, 0.3)
    assert (
        np.all(np.diff(path, axis=1) >= 0)
        and a.min() >= 0
        and a.max() <= 1
        and np.mean(path[:, -1] - path[:, 0]) > 0.5
    )


def test_covers_against_all_sets(covers):
    masks, g = covers
    a = all_activations(9).astype(bool)
    worth = np.array([_coverage(masks, g, np.repeat(row[None], 5, axis=0), 1.0) for row in a])
    few = worth[a.sum(axis=1) <= 2].max(axis=0)
    assert np.allclose(_coverage(masks, g, _best_pair(masks, g, 1.0), 1.0), few)
    assert np.allclose(
        _coverage(masks, g, _preselected(masks, g, 1.0, count=9, max_experts=9), 1.0),
        worth.max(axis=0),
    )
    greedy = _coverage(masks, g, _greedy_cover(masks, g, 1.0), 1.0)
    assert np.all(greedy <= worth.max(axis=0) + 1e-9) and np.all(
        greedy >= worth[a.sum(axis=1) == 1].max(axis=0) - 1e-9
    )


def test_mean_field_of_covers_is_that_of_the_table(covers):
    masks, g = covers[0][:6], covers[1]
    order = (np.arange(64)[:, None] >> np.arange(6)) % 2 == 1
    values = np.stack(
        [_coverage(masks, g, np.repeat(row[None], 5, axis=0), 1.0) for row in order], axis=1
    )
    assert np.allclose(
        _mean_field_cover(masks, g, 1.0, 0.5, sweeps=300),
        _mean_field(values, sweeps=300)[0],
        atol=1e-3,
    )


def test_l1_votes_are_thresholded_and_equation_1_without_a_penalty():
    S, N = np.array([0.0, 5, 7, 12]), np.array([0.0, 10, 10, 12])
    assert np.allclose(_l1_templates(S, N, 0.0), (S + 1) / (N + 2))
    assert np.allclose(_l1_templates(S, N, 2.0), [0.5, 0.5, 0.5, 0.5 + 4 / 14])


def test_grey_templates_of_planted_levels():
    rng = np.random.RandomState(0)
    parts = np.array([[0.9, 0.9, 0.5, 0.5, 0.1, 0.5], [0.5, 0.5, 0.8, 0.2, 0.5, 0.5]]).repeat(
        4, axis=1
    )
    on = rng.random_sample((200, 2)) < 0.5
    X = np.clip(
        max_minus_min(np.where(on[..., None], parts, 0.5), axis=1)
        + 0.02 * rng.standard_normal((200, 24)),
        0,
        1,
    )
    errors = []
    for kind in ("ink", "means"):
        templates, variance = _learn_grey(X, kind, 4, 15, np.random.RandomState(1))
        errors.append(np.mean((_grey_estimate(templates, X, kind, variance, 1.0) - X) ** 2))
        assert np.all((templates >= 0) & (templates <= 1))
    assert max(errors) < np.mean((X - X.mean(axis=0)) ** 2)


@pytest.mark.parametrize("rule", ["maximum", "max_minus_min", "sum"])
def test_numbers_are_foretold_without_a_look_at_them(rule):
    rng = np.random.default_rng(0)
    X, templates = rng.normal(size=(12, 5), scale=2), rng.normal(size=(3, 5), scale=2)
    model = GaussianCompositions(rule, 0.5, 0.3)
    told = _rebuild_means(model, templates, 0.7, X, foretell=True)
    for d in range(5):
        others = np.delete(np.arange(5), d)
        spoiled = X.copy()
        spoiled[:, d] = 100.0
        assert np.array_equal(
            _rebuild_means(model, templates, 0.7, spoiled, foretell=True)[:, d], told[:, d]
        )
        best = model.explain(templates[:, others], 0.7, X[:, others])[0]
        assert np.allclose(told[:, d], compose_means(templates, small_sets(3), 0.5, rule)[best, d])
    sums = _rebuild_sums(templates, 0.1, False, X, foretell=True)
    assert np.allclose(
        sums[:, 2],
        sparse_codes(np.delete(X, 2, 1), np.delete(templates, 2, 1), 0.1, False) @ templates[:, 2],
    )
    assert np.allclose(_rebuild_sums(np.eye(5), 0.0, False, X), X, atol=1e-9)


@pytest.mark.parametrize("data", ["quadrants", "digits"])
def test_the_quick_record(quick_record, data):
    record = load_record(quick_record("inference", data))
    for name, part in record.parts.items():
        metrics = part["metrics"]
        if part["parameters"]["kind"] == "searches":
            assert all(
                np.min(found["short"]) > -1e-9
                for found in (metrics[search] for search in inference.SEARCHES)
            )
            assert np.max(metrics["all sets"]["short"]) < 1e-9 and np.mean(
                metrics["at most 1"]["short"]
            ) >= np.mean(metrics["at most 3"]["short"])
        if part["parameters"]["kind"] == "costs":
            active = [np.mean(metrics[cost]["active"]) for cost in inference.COSTS]
            assert np.all(np.diff(active) <= 1e-9)
        if part["parameters"]["kind"] == "bars":
            assert (
                all(0 <= count <= 6 for found in metrics.values() for count in found)
                and len(metrics) == 4
            )
        if part["parameters"]["kind"] == "means":
            assert all(
                inference.MEANS[name][int(np.argmin(found["validation"]))] == found["chosen"]
                for name, found in metrics.items()
            )
            assert all(min(found["rebuilt"]) > 0 for found in metrics.values())
    assert len(record.parts) == (4 if data == "digits" else 16)
