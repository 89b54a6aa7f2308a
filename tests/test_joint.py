"""Two layers learned together: a bound that never falls, and what the controls hold. The chapter
compares the bound, and stochastic EM, with the likelihood.
"""

from dataclasses import replace
from itertools import product

import numpy as np
from conftest import together

from capslit import em
from capslit.deeper.joint import (
    GateCodes,
    GatedRegression,
    JointRegression,
    MixtureCodes,
    gate_solver,
    _improved_kinds,
    pooled,
    _uncertainty,
    stochastic_em,
)


def problem(seed, gated, n=24, L=3, K=3, p=2, m=4, d=2, G=2, size=1.0, **settings):
    "A model, parameters and data, all random."
    rng = np.random.default_rng(seed)
    z, y = rng.normal(size=(n, L, p)), rng.integers(m, size=n)
    W = size * rng.normal(size=(1, m, d, G * K + 1))
    pooling, settings = rng.dirichlet(np.ones(L), size=G), {"n_images": n} | settings
    if gated:
        model = GatedRegression(pooling, K, solver=gate_solver(z), **settings)
        start = GateCodes(rng.normal(size=(1, K, p + 1)), W)
    else:
        model = JointRegression(pooling, K, **settings)
        shares = np.log(rng.dirichlet(np.ones(K)))[None]
        start = MixtureCodes(shares, rng.normal(size=(1, K, p)), np.zeros(1), W)
    return model, start, (z, y, None, np.arange(n))


@together("gated", [False, True])
@together(
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
    for seed, size in product(range(2), (1.0, 12.0)):
        model, start, data = problem(seed, gated, L=5, size=size, **settings)
        curve = em.fit(model, start, data, max_iter=15).history["objective"][:, 0]
        assert np.all(np.diff(curve) > -1e-9 * abs(curve[0])) and curve[-1] > curve[0]


@together("n_draws, label_weight", [(1, 1.0), (1, 9.0), (4, 1.0), (4, 9.0)])
def test_kinds_are_improved_one_patch_after_the_other(n_draws, label_weight):
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(4), size=(50, 5))
    scores, V = rng.normal(size=(50, 5, 4)), 2 * rng.normal(size=(5, 6, 4))
    mean = rng.normal(size=(50, 6))

    def bound(q):
        gap = mean - np.einsum("nlk,ljk->nj", q, V)
        own = np.sum(q * (scores - np.log(np.maximum(q, 1e-300))), axis=(1, 2))
        loss = np.sum(gap**2, axis=1) + _uncertainty(q, V) / n_draws
        return n_draws * own - label_weight / 2 * loss, gap

    before, gap = bound(q)
    for _ in range(5):
        after, left = bound(_improved_kinds(q, scores, V, gap, n_draws, label_weight))
        assert np.all(after > before - 1e-9) and np.allclose(gap, left)
        before = after


@together("gated", [False, True])
def test_a_first_layer_that_is_held_stays_and_its_kinds_see_no_labels(gated):
    model, start, (z, y, *rest) = problem(2, gated)
    control = replace(model, n_sweeps=0, held=start[:-1])
    learned = em.fit(control, start, (z, y, *rest), max_iter=30).parameters
    assert all(map(np.array_equal, learned[:-1], start[:-1]))
    assert not np.array_equal(learned.weights, start.weights)
    q, again = (control.kinds(start, z, labels, rest[1])[1] for labels in (y, (y + 1) % 4))
    assert np.array_equal(q, again) and np.allclose(q.sum(axis=2), 1)
    assert pooled(q, model.pooling).shape == (24, 6)


@together("gated", [False, True])
@together("label_weight", [1.0, 4.0])
def test_redrawing_keeps_the_posterior_that_a_sum_gives(gated, label_weight):
    model, start, (z, y, *_) = problem(0, gated, n=2, K=2, size=3.0)
    scores, logs, count = model.scores(start, z), [], 20_000
    for s in product(range(2), repeat=3):
        kinds = np.broadcast_to(np.eye(2)[list(s)], scores.shape)
        own, label, _ = model.terms(start, scores, kinds, y)
        logs.append(own + label_weight * label)
    expected, rng = np.exp(logs - np.logaddexp.reduce(logs, axis=0)).T, np.random.default_rng(0)
    numbers = np.concatenate([rng.choice(8, size=count, p=p) for p in expected])
    begun = np.eye(2)[(numbers[:, None] >> np.array([2, 1, 0])) & 1]
    chains = replace(model, rng=rng, label_weight=label_weight)
    chains = chains.with_memory(begun[None], np.zeros((1, *begun.shape)))
    many = np.repeat(z, count, axis=0), np.repeat(y, count), np.arange(2 * count)
    q = chains.kinds(start, *many)[1]
    moved = np.argmax(q, axis=2).reshape(2, count, 3) @ [4, 2, 1]
    counted = np.array([np.bincount(row, minlength=8) for row in moved]) / count
    assert np.all(np.abs(counted - expected) < 4 * np.sqrt(expected / count) + 1e-4)
    assert np.mean(moved.ravel() != numbers) > 0.02 and np.array_equal(chains.memory[1][0], q)


@together("gated", [False, True])
def test_stochastic_em_repeats_with_its_seed(gated):
    model, start, data = problem(1, gated, K=2)
    runs = (
        stochastic_em(model, start, *data[:2], 2, 5, np.random.default_rng(0), momentum=0.5)
        for _ in range(2)
    )
    path, again = runs
    assert len(path) == 5
    assert all(map(np.array_equal, path[-1], again[-1]))
