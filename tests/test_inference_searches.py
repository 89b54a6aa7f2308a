"""Rivals of matching pursuit: mean field against its equations, and the experiment in its
quick form.
"""

import itertools

import numpy as np
import pytest

from capslit.composition.pursuit import exhaustive_search
from capslit.experiments.inference import (
    SEARCHES,
    _mean_field,
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


def test_mean_field_is_a_fixed_point_of_its_equations(values):
    rho, bounds = _mean_field(values, sweeps=500)
    assert np.all(np.diff(bounds, axis=0) > -1e-9)
    a = all_sets(4)
    for i, k in itertools.product(range(5), range(4)):
        others = np.delete(np.where(a, rho[i], 1 - rho[i]), k, axis=1).prod(axis=1)
        gap = np.sum(others * values[i] * (2 * a[:, k] - 1))
        assert np.isclose(rho[i, k], 1 / (1 + np.exp(-gap)), atol=1e-4)


def test_the_quick_record(quick_record):
    record = load_record(quick_record("inference", "quadrants"))
    assert len(record.parts) == 8
    for part in record.parts.values():
        short = {search: np.array(part["metrics"][search]["short"]) for search in SEARCHES}
        assert min(map(np.min, short.values())) > -1e-9 and np.max(short["all sets"]) < 1e-9
        assert np.mean(short["at most 1"]) >= np.mean(short["at most 3"])
