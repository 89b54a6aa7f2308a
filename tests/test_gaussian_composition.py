"""Compositional models of real numbers: ties, special cases, recovery, units and streams."""

import numpy as np
import pytest
from conftest import together
from sklearn.exceptions import ConvergenceWarning

from capslit import FactorialVectorQuantizer
from capslit.composition import GaussianCompositionalModel
from capslit.composition.exact import small_sets
from capslit.composition.gaussian import (
    RULES,
    GaussianCompositions,
    _exact_means,
    compose_means,
)
from capslit.experiments.inference import noisy_bars


def problem(n=40, K=3, D=5):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, D), scale=2), rng.normal(size=(K, D), scale=2)


def fitted(X, n_experts=3, **settings):
    return GaussianCompositionalModel(n_experts, n_jobs=1, random_state=0, **settings).fit(X)


def test_of_equal_sets_the_smaller_is_taken():
    twins = np.ones((2, 4))
    for x, best in ((np.ones((1, 4)), [1]), (np.zeros((1, 4)), [0])):
        assert GaussianCompositions().explain(twins, 1.0, x)[0].tolist() == best
    rng = np.random.default_rng(0)
    w = rng.normal(size=64)  # of 794 sets; products of matrices round them differently
    x = rng.normal(size=(501, 64)) + w
    best, _ = GaussianCompositions("max_minus_min").explain(np.stack([w] * 12), 1.3, x)
    assert small_sets(12)[best].sum(axis=1).max() == 1


def test_the_sum_is_solved_for_all_experts_together():
    X, templates = problem(n=200)
    sets = small_sets(3)
    active = np.random.default_rng(1).integers(8, size=200)
    times = np.bincount(active, minlength=8).astype(float)
    sums = np.stack([X[active == s].sum(axis=0) for s in range(8)])
    found = _exact_means(templates, sets, times, sums, 0.3, "sum")
    wanted = np.linalg.lstsq(sets[active].astype(float), X - 0.3, rcond=None)[0]
    assert np.allclose(found, 0.3 + wanted)


@together("rule", RULES)
def test_an_idle_expert_stays_as_it_is(rule):
    X, templates = problem()
    sets = small_sets(3)
    times = np.where(sets[:, 1], 0.0, 2.0)
    found = _exact_means(templates, sets, times, times[:, None] * X[:8], 0.0, rule)
    assert np.array_equal(found[1], templates[1]) and not np.allclose(found[0], templates[0])


@together("rule", RULES)
@together("settings", [{}, {"noise": 0.8}, {"expert_cost": 1.0}])
def test_learning_ends_at_rest(rule, settings):
    X, templates = problem(n=120, D=4)
    settings = {"rule": rule, "background": 0.2, **settings}
    model = fitted(X, init=templates, tol=0.0, max_iter=300, **settings)
    objective = model.history_["objective"]
    assert np.all(np.diff(objective) >= -1e-9 * np.abs(objective[:-1]))
    assert model.converged_ and model.n_iter_ > 3
    known = settings | {"noise": model.noise_variance_}
    again = fitted(X, init=model.templates_, **known)
    assert np.allclose(again.templates_, model.templates_)
    assert np.isclose(again.lower_bound_, model.lower_bound_)
    codes = model.transform(X)
    costs = settings.get("expert_cost", 0) * codes.sum(axis=1).mean()
    assert np.isclose(model.score(X) - costs, model.lower_bound_)
    if "noise" not in settings:
        error = np.mean((model.inverse_transform(codes) - X) ** 2)
        assert np.isclose(error, model.noise_variance_)


@together("rule", ["max_minus_min", "sum"])
def test_experts_for_more_and_for_less_are_recovered(rule):
    rng = np.random.default_rng(0)
    truth = np.kron(np.eye(4), np.ones(5)) * np.array([[2], [-2], [3], [-1.5]]) + 7
    active = rng.random((300, 4)) < 0.4
    X = compose_means(truth, active, 7.0, rule) + 0.3 * rng.normal(size=(300, 20))
    model = fitted(X, 4, rule=rule, background=7.0)
    order = np.linalg.norm(model.templates_[:, None] - truth, axis=2).argmin(axis=0)
    assert np.allclose(model.templates_[order], truth, atol=0.2)
    assert np.mean(model.transform(X)[:, order] == active) > 0.99


def test_the_sum_is_factorial_learning_with_two_states():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(3, 8), scale=2)
    X = (rng.random((400, 3)) < 0.5) @ truth + 0.2 * rng.normal(size=(400, 8))
    ours = fitted(X, rule="sum")
    theirs = FactorialVectorQuantizer(3, 2, random_state=0, n_jobs=1).fit(X)
    assert np.isclose(ours.noise_variance_, theirs.noise_variance_, rtol=0.02)
    assert abs(ours.noise_variance_ - 0.04) < 0.005


@together("rule", RULES)
@together("unit", [2.0**-300, 2.0**10, 2.0**300])
def test_units_do_not_matter(rule, unit):
    X, _ = problem()
    plain = fitted(X, rule=rule, background=0.5)
    scaled = fitted(unit * X, rule=rule, background=0.5 * unit)
    assert np.allclose(scaled.templates_ / unit, plain.templates_)
    assert np.array_equal(scaled.transform(unit * X), plain.transform(X))
    assert np.isclose(scaled.score(unit * X) + 5 * np.log(unit), plain.score(X))


def test_streams_and_what_is_said_when_nothing_is_learned():
    X, _, _ = noisy_bars(200, np.random.default_rng(0))
    whole = fitted(X, 4, tol=0.0)
    parts = fitted(lambda: (X[i : i + 50] for i in range(0, 200, 50)), 4, tol=0.0)
    assert np.allclose(parts.templates_, whole.templates_)
    with pytest.warns(ConvergenceWarning, match="no expert is active"):
        fitted(X, 2, expert_cost=1e6)
    with pytest.warns(UserWarning, match="lies below background=0"):
        fitted(X - np.mean(X, axis=0), 2)
    with pytest.raises(ValueError, match="leave the weights out"):
        fitted(lambda: iter([(X, np.ones(200))]), 2)
