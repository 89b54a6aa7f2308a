"""Compositional models of real numbers: the steps against brute force, special cases, recovery,
units and streams.
"""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from capslit import FactorialVectorQuantizer
from capslit.composition import GaussianCompositionalModel
from capslit.composition.gaussian import (
    RULES,
    GaussianCompositions,
    _Means,
    _best_above,
    compose_means,
    _exact_means,
)
from capslit.composition.exact import small_sets
from capslit.experiments.inference import noisy_bars

together = pytest.mark.parametrize("rule", RULES)


def problem(seed=0, n=40, K=3, D=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D), scale=2), rng.normal(size=(K, D), scale=2)


def test_of_equal_sets_the_smaller_is_taken():
    twins = np.ones((2, 4))
    assert GaussianCompositions().explain(twins, 1.0, np.ones((1, 4)))[0].tolist() == [1]
    assert GaussianCompositions().explain(twins, 1.0, np.zeros((1, 4)))[0].tolist() == [0]
    assert GaussianCompositions(max_active=1).explain(2 * np.eye(4), 1.0, np.full((1, 4), 2.0))[
        0
    ].tolist() == [1]
    rng = np.random.default_rng(0)
    w = rng.normal(size=64)  # of 794 sets; products of matrices round them differently
    best, _ = GaussianCompositions("max_minus_min").explain(
        np.stack([w] * 12), 1.3, rng.normal(size=(501, 64)) + w
    )
    assert small_sets(12)[best].sum(axis=1).max() == 1


def test_the_best_piece_by_trying_every_subset_of_the_kinks():
    rng = np.random.default_rng(0)
    for _ in range(30):
        u, S, N = (
            rng.normal(size=(4, 3)),
            3 * rng.normal(size=(4, 3)),
            rng.integers(1, 5, (4, 1)).astype(float),
        )
        v, gain = _best_above(u, S, N)
        grid = np.linspace(u.min(axis=0), 8, 4001)
        said = np.maximum(grid[:, None], u)
        saved = np.sum(N * (u**2 - said**2) - 2 * S * (u - said), axis=1)
        own = np.maximum(v, u)
        assert np.allclose(gain, np.sum(N * (u**2 - own**2) - 2 * S * (u - own), axis=0))
        assert np.all(gain >= saved.max(axis=0) - 1e-9) and np.all(gain <= saved.max(axis=0) + 0.02)


def test_the_sum_is_solved_for_all_experts_together():
    X, templates = problem(n=200)
    sets, active = small_sets(3), np.random.default_rng(1).integers(8, size=200)
    times, sums = (
        np.bincount(active, minlength=8).astype(float),
        np.stack([X[active == s].sum(axis=0) for s in range(8)]),
    )
    found = _exact_means(templates, sets, times, sums, 0.3, "sum")
    wanted = 0.3 + np.linalg.lstsq(sets[active].astype(float), X - 0.3, rcond=None)[0]
    assert np.allclose(found, wanted)


@together
def test_an_idle_expert_stays_as_it_is(rule):
    X, templates = problem()
    sets = small_sets(3)
    times = np.where(sets[:, 1], 0.0, 2.0)
    found = _exact_means(templates, sets, times, 2.0 * (times > 0)[:, None] * X[:8], 0.0, rule)
    assert np.array_equal(found[1], templates[1]) and not np.allclose(found[0], templates[0])


@together
def test_learning_climbs_and_ends_at_rest(rule):
    X, templates = problem(n=120, D=4)
    for settings in ({}, {"noise": 0.8}, {"expert_cost": 1.0}):
        model = GaussianCompositionalModel(
            3,
            rule=rule,
            init=templates[:, :4],
            background=0.2,
            tol=0.0,
            max_iter=300,
            n_jobs=1,
            **settings,
        ).fit(X)
        objective = model.history_["objective"]
        assert (
            np.all(np.diff(objective) >= -1e-9 * np.abs(objective[:-1]))
            and model.converged_
            and model.n_iter_ > 3
        )
        again = GaussianCompositionalModel(
            3,
            rule=rule,
            init=model.templates_,
            background=0.2,
            n_jobs=1,
            **settings | {"noise": model.noise_variance_},
        ).fit(X)
        assert np.allclose(again.templates_, model.templates_) and np.isclose(
            again.lower_bound_, model.lower_bound_
        )
        J = model.transform(X).sum(axis=1).mean()
        assert np.isclose(model.score(X) - settings.get("expert_cost", 0) * J, model.lower_bound_)
        if "noise" not in settings:
            assert np.isclose(
                np.mean((model.inverse_transform(model.transform(X)) - X) ** 2),
                model.noise_variance_,
            )


def test_bars_are_recovered_from_their_noisy_maxima():
    found = 0
    for seed in range(5):
        X, bars, active = noisy_bars(300, np.random.default_rng(seed))
        model = GaussianCompositionalModel(10, random_state=seed, n_jobs=1).fit(X)
        far = np.linalg.norm(model.templates_[:, None] - bars, axis=2)
        found += sorted(far.argmin(axis=1)) == list(range(10)) and far.min(axis=1).max() < 0.7
        assert abs(model.noise_variance_**0.5 - 0.3) < 0.03
    assert found >= 4


def test_experts_for_more_and_for_less_are_recovered():
    rng = np.random.default_rng(0)
    truth = np.kron(np.eye(4), np.ones(5)) * np.array([[2], [-2], [3], [-1.5]]) + 7
    active = rng.random((300, 4)) < 0.4
    for rule in ("max_minus_min", "sum"):
        X = compose_means(truth, active, 7.0, rule) + 0.3 * rng.normal(size=(300, 20))
        model = GaussianCompositionalModel(
            4, rule=rule, background=7.0, random_state=0, n_jobs=1
        ).fit(X)
        order = np.linalg.norm(model.templates_[:, None] - truth, axis=2).argmin(axis=0)
        assert (
            np.allclose(model.templates_[order], truth, atol=0.2)
            and np.mean(model.transform(X)[:, order] == active) > 0.99
        )


def test_the_sum_is_factorial_learning_with_two_states():
    rng = np.random.default_rng(0)
    truth, active = rng.normal(size=(3, 8), scale=2), rng.random((400, 3)) < 0.5
    X = active @ truth + 0.2 * rng.normal(size=(400, 8))
    ours = GaussianCompositionalModel(3, rule="sum", random_state=0, n_jobs=1).fit(X)
    theirs = FactorialVectorQuantizer(3, 2, random_state=0, n_jobs=1).fit(X)
    assert (
        np.isclose(ours.noise_variance_, theirs.noise_variance_, rtol=0.02)
        and abs(ours.noise_variance_ - 0.04) < 0.005
    )


@together
def test_units_do_not_matter(rule):
    X, _ = problem(n=80)
    plain = GaussianCompositionalModel(3, rule=rule, background=0.5, random_state=0, n_jobs=1).fit(
        X
    )
    for unit in (2.0**-300, 2.0**10, 2.0**300):
        scaled = GaussianCompositionalModel(
            3, rule=rule, background=0.5 * unit, random_state=0, n_jobs=1
        ).fit(unit * X)
        assert np.allclose(scaled.templates_ / unit, plain.templates_) and np.array_equal(
            scaled.transform(unit * X), plain.transform(X)
        )
        assert np.isclose(scaled.score(unit * X) + 5 * np.log(unit), plain.score(X))


def test_streams_and_what_is_said_when_nothing_is_learned():
    X, bars, _ = noisy_bars(200, np.random.default_rng(0))
    settings = {"n_experts": 4, "random_state": 0, "n_jobs": 1, "tol": 0.0}
    whole = GaussianCompositionalModel(**settings).fit(X)
    parts = GaussianCompositionalModel(**settings).fit(
        lambda: (X[i : i + 50] for i in range(0, 200, 50))
    )
    assert np.allclose(parts.templates_, whole.templates_)
    with pytest.warns(ConvergenceWarning, match="no expert is active"):
        GaussianCompositionalModel(2, expert_cost=1e6, random_state=0, n_jobs=1).fit(X)
    with pytest.warns(UserWarning, match="lies below background=0"):
        GaussianCompositionalModel(2, random_state=0, n_jobs=1).fit(X - np.mean(X, axis=0))
    with pytest.raises(ValueError, match="leave the weights out"):
        GaussianCompositionalModel(2).fit(lambda: iter([(X, np.ones(200))]))


def test_one_example_and_more_experts_than_examples():
    one = GaussianCompositionalModel(3, random_state=0, n_jobs=1).fit([[1.0, 2.0, 0.5]])
    assert np.allclose(
        one.inverse_transform(one.transform([[1.0, 2.0, 0.5]])), [[1.0, 2.0, 0.5]], atol=0.05
    )
    statistics = GaussianCompositions().e_step(
        _Means(np.ones((2, 3, 4)), np.ones(2)), (np.ones((5, 4)), None)
    )
    assert statistics.weight.tolist() == [5, 5] and statistics.times.sum(axis=1).tolist() == [5, 5]
