"""Rivals of matching pursuit: mean field against its equations, covers against all sets, and the
experiment in its quick form.
"""

import itertools

import numpy as np
import pytest

from capslit.composition.pursuit import exhaustive_search
from capslit.experiments.inference import (
    SEARCHES,
    _best_pair,
    _coverage,
    _greedy_cover,
    _mean_field,
    _mean_field_cover,
    _preselected,
    _set_values,
)
from capslit.experiments.quadrants import all_sets
from capslit.experiments.records import load_record


@pytest.fixture
def values():
    "The aim of all sets of four experts for twenty images."
    rng = np.random.default_rng(0)
    X = (rng.random((20, 10)) < 0.5).astype(float)
    templates = rng.uniform(0.05, 0.95, (4, 10))
    best = exhaustive_search(X, templates, expert_cost=0.5)
    costs = 0.5 * np.sum(best.experts >= 0, axis=1)
    values = _set_values(templates, X, 0.5)
    assert np.allclose(values.max(axis=1), best.log_likelihood - costs)
    return values


@pytest.fixture
def covers():
    "Six candidates, the gains of the pixels of five scenes, and what all sets are worth."
    rng = np.random.default_rng(1)
    masks = rng.random((6, 30)) < 0.3
    g = np.where(rng.random((5, 30)) < 0.5, 2.0, -1.5)
    worth = [_coverage(masks, g, np.repeat(row[None], 5, axis=0), 1.0) for row in all_sets(6)]
    return masks, g, np.stack(worth, axis=1)


def test_mean_field_is_a_fixed_point_of_its_equations(values):
    rho, bounds = _mean_field(values, sweeps=500)
    assert np.all(np.diff(bounds, axis=0) > -1e-9)
    a = all_sets(4)
    for i, k in itertools.product(range(5), range(4)):
        others = np.delete(np.where(a, rho[i], 1 - rho[i]), k, axis=1).prod(axis=1)
        gap = np.sum(others * values[i] * (2 * a[:, k] - 1))
        assert np.isclose(rho[i, k], 1 / (1 + np.exp(-gap)), atol=1e-4)


def test_covers_against_all_sets(covers):
    masks, g, worth = covers
    sizes = all_sets(6).sum(axis=1)
    best = worth.max(axis=1)
    pair = _coverage(masks, g, _best_pair(masks, g, 1.0), 1.0)
    assert np.allclose(pair, worth[:, sizes <= 2].max(axis=1))
    every = _preselected(masks, g, 1.0, count=6, max_experts=6)
    assert np.allclose(_coverage(masks, g, every, 1.0), best)
    greedy = _coverage(masks, g, _greedy_cover(masks, g, 1.0), 1.0)
    assert np.all(greedy <= best + 1e-9)
    assert np.all(greedy >= worth[:, sizes == 1].max(axis=1) - 1e-9)


def test_mean_field_of_covers_is_that_of_the_table(covers):
    masks, g, worth = covers
    rho = _mean_field_cover(masks, g, 1.0, 0.5, sweeps=300)
    assert np.allclose(rho, _mean_field(worth, sweeps=300)[0], atol=1e-3)


def test_the_quick_record(quick_record):
    record = load_record(quick_record("inference", "quadrants"))
    assert len(record.parts) == 8
    for part in record.parts.values():
        short = {search: np.array(part["metrics"][search]["short"]) for search in SEARCHES}
        assert min(map(np.min, short.values())) > -1e-9 and np.max(short["all sets"]) < 1e-9
        assert np.mean(short["at most 1"]) >= np.mean(short["at most 3"])
