"""Rivals of matching pursuit: mean field against its equations, and the experiment in its
quick form.
"""

import itertools

import numpy as np

from capslit.experiments.inference import SEARCHES, _mean_field, _set_values
from capslit.experiments.quadrants import all_sets
from capslit.experiments.records import load_record


def test_mean_field_is_a_fixed_point_of_its_equations():
    rng = np.random.default_rng(0)
    X = (rng.random((20, 10)) < 0.5).astype(float)
    values = _set_values(rng.uniform(0.05, 0.95, (4, 10)), X, 0.5)  # the aim of all sets
    rho, _ = _mean_field(values, sweeps=500)
    a = all_sets(4)
    for i, k in itertools.product(range(5), range(4)):
        others = np.delete(np.where(a, rho[i], 1 - rho[i]), k, axis=1).prod(axis=1)
        gap = np.sum(others * values[i] * (2 * a[:, k] - 1))
        assert np.isclose(rho[i, k], 1 / (1 + np.exp(-gap)), atol=1e-4)


def test_the_quick_record(quick_record):
    for part in load_record(quick_record("inference", "quadrants")).parts.values():
        short = {search: np.array(part["metrics"][search]["short"]) for search in SEARCHES}
        assert min(map(np.min, short.values())) > -1e-9 and np.max(short["all sets"]) < 1e-9
        assert np.mean(short["at most 1"]) >= np.mean(short["at most 3"])
