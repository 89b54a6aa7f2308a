"""Two layers learned together: statistics that add up, a bound that never falls and stays below the
likelihood, and what the controls hold.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from capslit import em
from capslit.deeper.joint import (
    GateCodes,
    GatedRegression,
    JointRegression,
    MixtureCodes,
    gate_solver,
    _improved_kinds,
    pooled,
    stochastic_em,
    _uncertainty,
)


def problem(seed, gated, n=24, L=3, K=3, p=2, m=4, d=2, G=2, size=1.0, **settings):
    "A model, parameters and data, all random."
    rng = np.random.default_rng(seed)
    z, y, W = (
        rng.normal(size=(n, L, p)),
        rng.integers(m, size=n),
        size * rng.normal(size=(1, m, d, G * K + 1)),
    )
    pooling, settings = rng.dirichlet(np.ones(L), size=G), {"n_images": n} | settings
    if gated:
        model = GatedRegression(pooling, K, solver=gate_solver(z), **settings)
        return model, GateCodes(rng.normal(size=(1, K, p + 1)), W), (z, y, None, np.arange(n))
    start = MixtureCodes(
        np.log(rng.dirichlet(np.ones(K)))[None], rng.normal(size=(1, K, p)), np.zeros(1), W
    )
    return JointRegression(pooling, K, **settings), start, (z, y, None, np.arange(n))


def exact(model, parameters, z, y):
    "The log-likelihood, by a sum over all choices of kinds."
    scores, found = model.scores(parameters, z), []
    L, K = scores.shape[1:]
    for s in product(range(K), repeat=L):
        own, logs, _ = model.terms(
            parameters, scores, np.broadcast_to(np.eye(K)[list(s)], scores.shape), y
        )
        found.append(own + logs)
    return np.sum(np.logaddexp.reduce(found, axis=0))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_draws": 7},
        {"label_weight": 20.0},
        {"alpha": 2.0, "n_sweeps": 3},
        {"n_draws": 3, "label_weight": 5.0},
    ],
)
def test_the_bound_never_falls(gated, settings):
    for seed, size in product(range(3), (1.0, 12.0)):
        model, start, data = problem(seed, gated, L=5, size=size, **settings)
        curve = em.fit(model, start, data, max_iter=15).history["objective"][:, 0]
        assert np.all(np.diff(curve) > -1e-9 * abs(curve[0])) and curve[-1] > curve[0]


@pytest.mark.parametrize("gated", [False, True])
def test_the_bound_is_below_the_likelihood_which_it_raises(gated):
    for seed in range(3):
        model, start, data = problem(seed, gated)
        run = em.fit(model, start, data, max_iter=60)
        first, last = (exact(model, some, *data[:2]) for some in (start, run.parameters))
        assert run.history["objective"][0, 0] < first < last > run.history["objective"][-1, 0]


@pytest.mark.parametrize("n_draws, label_weight", [(1, 1.0), (1, 9.0), (4, 1.0), (4, 9.0)])
def test_kinds_are_improved_one_patch_after_the_other(n_draws, label_weight):
    rng = np.random.default_rng(0)
    q, scores, V = (
        rng.dirichlet(np.ones(4), size=(50, 5)),
        rng.normal(size=(50, 5, 4)),
        2 * rng.normal(size=(5, 6, 4)),
    )
    mean = rng.normal(size=(50, 6))

    def bound(q):
        gap = mean - np.einsum("nlk,ljk->nj", q, V)
        own = np.sum(q * (scores - np.log(np.maximum(q, 1e-300))), axis=(1, 2))
        return n_draws * own - label_weight / 2 * (
            np.sum(gap**2, axis=1) + _uncertainty(q, V) / n_draws
        ), gap

    before, gap = bound(q)
    for _ in range(5):
        after, left = bound(_improved_kinds(q, scores, V, gap, n_draws, label_weight))
        assert np.all(after > before - 1e-9) and np.allclose(gap, left)
        before = after


@pytest.mark.parametrize("gated", [False, True])
def test_a_first_layer_that_is_held_stays_and_its_kinds_see_no_labels(gated):
    model, start, data = problem(2, gated)
    control = replace(model, n_sweeps=0, held=start[:-1])
    run = em.fit(control, start, data, max_iter=30)
    assert all(np.array_equal(a, b) for a, b in zip(run.parameters[:-1], start[:-1]))
    assert not np.array_equal(run.parameters.weights, start.weights)
    scores, q = control.kinds(start, *data[:2], data[3])
    again = control.kinds(start, data[0], (data[1] + 1) % 4, data[3])[1]
    assert np.array_equal(q, again) and np.allclose(q.sum(axis=2), 1)
    assert pooled(q, model.pooling).shape == (24, 6)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("label_weight", [1.0, 4.0])
def test_redrawing_keeps_the_posterior_that_a_sum_gives(gated, label_weight):
    model, start, (z, y, _, _) = problem(0, gated, n=2, K=2, size=3.0)
    scores, logs, count = model.scores(start, z), [], 20_000
    for s in product(range(2), repeat=3):
        own, label, _ = model.terms(
            start, scores, np.broadcast_to(np.eye(2)[list(s)], scores.shape), y
        )
        logs.append(own + label_weight * label)
    expected, rng = np.exp(logs - np.logaddexp.reduce(logs, axis=0)).T, np.random.default_rng(0)
    numbers = np.concatenate([rng.choice(8, size=count, p=p) for p in expected])
    begun = np.eye(2)[(numbers[:, None] >> np.array([2, 1, 0])) & 1]
    chains = replace(model, rng=rng, label_weight=label_weight).with_memory(
        begun[None], np.zeros((1, *begun.shape))
    )
    _, q = chains.kinds(
        start, np.repeat(z, count, axis=0), np.repeat(y, count), np.arange(2 * count)
    )
    moved = np.argmax(q, axis=2).reshape(2, count, 3) @ [4, 2, 1]
    counted = np.array([np.bincount(row, minlength=8) for row in moved]) / count
    assert np.all(np.abs(counted - expected) < 4 * np.sqrt(expected / count) + 1e-4)
    assert np.mean(moved.ravel() != numbers) > 0.02 and np.array_equal(chains.memory[1][0], q)


@pytest.mark.parametrize("gated", [False, True])
def test_stochastic_em_reaches_a_likelihood_that_the_bound_does_not(gated):
    model, start, data = problem(1, gated, K=2)
    bounded = em.fit(model, start, data, max_iter=100).parameters
    path = stochastic_em(model, start, *data[:2], 8, 100, np.random.default_rng(0), momentum=0.5)
    likelihood = [exact(model, some, *data[:2]) for some in (start, bounded, path[-1])]
    assert likelihood[0] < likelihood[1] < likelihood[2] and len(path) == 100
    again = stochastic_em(model, start, *data[:2], 8, 100, np.random.default_rng(0), momentum=0.5)
    assert all(np.array_equal(a, b) for a, b in zip(path[-1], again[-1]))
