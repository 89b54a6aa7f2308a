"""Factorial hidden Markov models: against all paths written out, awkward sequences, messages."""

import itertools

import numpy as np
import pytest
from conftest import together
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from capslit.factorial.chains import (
    ChainParameters,
    FactorialChains,
    _sweep,
    most_probable_path,
    simulate,
)
from capslit.factorial.hmm import FactorialHMM

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
E_STEPS = pytest.mark.parametrize("e_step", ["exact", "mean_field"])


def random_parameters(rng, d, k, p, s=1, noise=None, scale=1.0, zeros=False):
    A = rng.dirichlet(np.ones(k), (s, d, k))
    if zeros:  # some transitions are impossible
        A = np.where((rng.random(A.shape) < 0.3) & ~np.eye(k, dtype=bool), 0, A)
        A /= A.sum(axis=-1, keepdims=True)
    log_noise = rng.normal(size=s) if noise is None else np.full(s, 2 * np.log(noise))
    with np.errstate(divide="ignore"):
        return ChainParameters(
            np.log(rng.dirichlet(np.ones(k), (s, d))),
            np.log(A),
            scale * rng.normal(size=(s, d * k, p)),
            log_noise + 2 * np.log(scale),
        )


def every_path(parameters, q, Y):
    "Paths (paths, T, d) of problem q and the logarithms of their joint probability with Y (T, p)."
    initial, A, W, log_noise = (leaf[q] for leaf in parameters)
    (d, k), T = initial.shape, len(Y)
    paths = np.array(list(itertools.product(range(k), repeat=d * T))).reshape(-1, T, d)
    chains = np.arange(d)
    joint = initial[chains, paths[:, 0]].sum(axis=1)
    joint = joint + A[chains, paths[:, :-1], paths[:, 1:]].sum(axis=(1, 2))
    mean = W.reshape(d, k, -1)[chains, paths].sum(axis=2)
    error = np.sum((Y - mean) ** 2, axis=(1, 2)) / np.exp(log_noise)
    return paths, joint - 0.5 * (error + Y.size * (log_noise + np.log(2 * np.pi)))


@together("seed", range(8))
def test_states_likelihoods_and_best_paths_are_those_of_all_paths(seed):
    "Sequences of several lengths, impossible transitions; the mean field stays below."
    rng = np.random.default_rng(seed)
    d, k, p = (int(rng.integers(1, n)) for n in (4, 4, 4))
    T = max(1, int(np.log(5000) / np.log(max(2, k**d))))
    lengths = rng.integers(1, T + 1, 3)
    lengths[0] = T
    parameters = random_parameters(rng, d, k, p, s=2, zeros=seed % 4 == 3)
    Y = 1.5 * rng.normal(size=(3, T, p))
    (states, likelihood), (expected, bound) = (
        FactorialChains(e_step).infer(parameters, Y, lengths) for e_step in ("exact", "mean_field")
    )
    likelihood, bound = np.sum(likelihood, axis=1), np.sum(bound, axis=1)
    best = most_probable_path(ChainParameters(*(leaf[:1] for leaf in parameters)), Y, lengths)
    assert np.all(bound <= likelihood + 1e-9)
    if d == 1:
        assert np.allclose(bound, likelihood)
        assert np.allclose(states, expected)
    for q, n in np.ndindex(2, 3):
        T = lengths[n]
        paths, joint = every_path(parameters, q, Y[n, :T])
        share = np.exp(joint - logsumexp(joint))
        found = np.einsum("q,qtia->tia", share, np.eye(k)[paths]).reshape(T, d * k)
        assert np.isclose(likelihood[n, q], logsumexp(joint))
        assert np.allclose(states[n, :T, q], found)
        assert not states[n, T:].any()
        assert q or np.array_equal(best[n, :T], paths[np.argmax(joint)])


def test_what_stands_in_the_padding_does_not_matter():
    rng = np.random.default_rng(4)
    parameters, Y = random_parameters(rng, 2, 2, 3), rng.normal(size=(4, 9, 3))
    lengths = np.array([9, 1, 4, 6])
    other = np.where(np.arange(9)[None, :, None] < lengths[:, None, None], Y, 1e6)
    for model in (FactorialChains(), FactorialChains("mean_field")):
        a, b = (model.e_step(parameters, (data, lengths, None)) for data in (Y, other))
        assert all(map(np.array_equal, a, b))


def test_memory_is_that_of_the_active_problems():
    rng = np.random.default_rng(5)
    parameters, Y = random_parameters(rng, 2, 2, 3, s=3), rng.normal(size=(4, 6, 3))
    model = FactorialChains("mean_field", n_sweeps=3, sweep_tol=0, sequences=(4, 6, 2, 2))
    start, found, all_found = (model.warm_starts(3) for _ in range(3))
    model.with_memory(start, all_found).e_step(parameters, (Y, None, np.arange(4)))
    chosen, rows = ChainParameters(*(leaf[[0, 2]] for leaf in parameters)), [2, 0, 3, 1]
    model = model.with_memory(start, found).select(np.array([0, 2]))
    model.e_step(chosen, (Y[rows], None, np.array(rows)))
    assert np.all(found[1] == 0.5)
    assert np.all(start == 0.5)
    assert np.allclose(found[[0, 2]], all_found[[0, 2]], rtol=0, atol=1e-12)
    assert not np.any(np.all(found[0] == 0.5, axis=(1, 2, 3)))


def test_a_backward_sweep_is_a_forward_sweep_of_the_chains_in_reverse():
    rng = np.random.default_rng(7)
    parameters, Y = random_parameters(rng, 3, 2, 4), rng.normal(size=(5, 4, 6))
    initial, transitions, W, log_noise = parameters
    W = W.reshape(1, 3, 2, 4)[:, ::-1].reshape(1, 6, 4)
    turned = ChainParameters(initial[:, ::-1], transitions[:, ::-1], W, log_noise)
    backward, forward = (np.full((5, 1, 3, 2, 6), 0.5) for _ in range(2))
    bound = _sweep(parameters, Y, np.ones((5, 6)), backward, backwards=True)[1]
    assert np.allclose(bound, _sweep(turned, Y, np.ones((5, 6)), forward)[1])
    assert np.allclose(backward, forward[:, :, ::-1])


def test_long_sequences_do_not_underflow():
    truth = random_parameters(np.random.default_rng(6), 2, 3, 3, noise=0.3, scale=2.0)
    Y, states = simulate(truth, 1, 10_000, 0)
    expected, likelihood = FactorialChains().infer(truth, Y)
    expected = expected.reshape(10_000, 2, 3)
    assert np.isfinite(likelihood).all()
    assert np.sum(likelihood) < -5000
    assert np.allclose(expected.sum(axis=2), 1, atol=1e-10)
    assert np.mean(expected.argmax(axis=2) == states[0]) > 0.9
    bound = FactorialChains("mean_field", n_sweeps=2).infer(truth, Y)[1]
    assert np.isfinite(bound).all()
    assert np.sum(bound) <= np.sum(likelihood)


def test_impossible_and_sharp_observations():
    "Hardly any noise, and an observation that the only possible path cannot explain."
    A = np.log(np.maximum([[[[0, 1], [1, 0]], [[0, 1], [1, 0]]]], 1e-320))
    initial, W = np.log([[[1.0, 1e-300], [1.0, 1e-300]]]), np.array([[[0.0], [1], [0], [2]]])
    parameters = ChainParameters(initial, A, W, np.log([1e-12]))
    Y = np.array([[[0.0], [3], [0], [1], [0], [3.0]]])
    for model in (FactorialChains(), FactorialChains("mean_field")):
        states, value = model.infer(parameters, Y)
        assert np.isfinite(value).all()
        assert np.allclose(states.sum(axis=3), 2)


# ── the estimator


LENGTHS = [40] * 10


@pytest.fixture(scope="module")
def fitted():
    "Models of both E-steps and their observations: one chain stays, the other runs in a circle."
    rng, eye = np.random.default_rng(1), np.eye(3)
    A = np.array([0.9 * eye + 0.05 * (1 - eye), 0.3 * eye + 0.7 * np.roll(eye, 1, axis=1)])
    truth = ChainParameters(
        np.full((1, 2, 3), -np.log(3)),
        np.log(np.maximum(A, 1e-300))[None],
        1.5 * rng.normal(size=(1, 6, 3)),
        np.log([0.16]),
    )
    X = simulate(truth, 10, 40, 1)[0].reshape(400, 3)
    return {
        e_step: FactorialHMM(2, 3, e_step=e_step, n_init=6, random_state=0).fit(X, lengths=LENGTHS)
        for e_step in ("exact", "mean_field")
    }, X


@E_STEPS
def test_noise_and_reconstructions_are_those_of_the_truth(fitted, e_step):
    model, X = fitted[0][e_step], fitted[1]
    error = X - model.inverse_transform(model.transform(X, LENGTHS))
    assert abs(np.sqrt(model.noise_variance_) - 0.4) < 0.03
    assert abs(np.sqrt(np.mean(error**2)) - 0.4) < 0.05
    assert np.allclose(model.weights_.sum(axis=1), 0, atol=1e-9)
    path = model.history_["objective"]
    assert model.converged_
    assert len(path) == model.n_iter_
    assert np.all(np.diff(path) > -1e-8 * np.abs(path[1:]))
    assert np.isclose(path.max() / len(X), model.lower_bound_)
    rounding = 1e-6 if e_step == "exact" else 0.1
    assert model.score(X, lengths=LENGTHS) > model.lower_bound_ - rounding


@E_STEPS
def test_lengths_are_separate_sequences(fitted, e_step):
    model, X = fitted[0][e_step], fitted[1][:80]
    lengths, exact = [40, 1, 7, 32], e_step == "exact"
    parts = np.split(X, np.cumsum(lengths)[:-1])
    for method, near in (("score_samples", 1e-2), ("transform", 1e-2), ("predict", 0)):
        apply = getattr(model, method)
        alone = np.concatenate([apply(part) for part in parts])
        assert np.allclose(apply(X, lengths), alone, atol=1e-8 if exact else near), method
    scores = model.score_samples(X, lengths)
    sums = [part.sum() for part in np.split(scores, np.cumsum(lengths)[:-1])]
    alone = [model.score_samples(part).sum() for part in parts]
    assert np.allclose(sums, alone, atol=1e-3)
    assert np.isclose(model.score(X, lengths=lengths), scores.mean())
    joint = [model.decode(part)[0] for part in parts]
    assert np.isclose(model.decode(X, lengths)[0], sum(joint), rtol=1e-3)


def test_score_and_decode_by_brute_force(fitted):
    model, X = fitted[0]["exact"], fitted[1][:4]
    parameters = ChainParameters(
        np.log(model.initial_)[None],
        np.log(model.transitions_)[None],
        model.weights_.reshape(1, -1, 3),
        np.log([model.noise_variance_]),
    )
    away = X - model.intercept_
    prefixes = [logsumexp(every_path(parameters, 0, away[:T])[1]) for T in range(1, 5)]
    # each given those before it
    assert np.allclose(np.cumsum(model.score_samples(X)), prefixes)
    paths, joint = every_path(parameters, 0, away)
    best, states = model.decode(X)
    assert np.isclose(best, joint.max())
    assert np.array_equal(states, paths[np.argmax(joint)])


@E_STEPS
def test_short_sequences_and_single_states(e_step):
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = FactorialHMM(2, 2, e_step=e_step, n_init=2, random_state=0)
    short = model.fit(X[:6], lengths=[1] * 6)
    assert np.allclose(short.transitions_.sum(axis=2), 1)
    alone = model.set_params(n_states=1).fit(X)
    assert np.allclose(alone.transform(X), 1)
    assert np.all(alone.predict(X) == 0)


@E_STEPS
def test_log_densities_of_far_observations(fitted, e_step):
    """Half the squared distance in units of the noise where that is a number, −∞ beyond; also of a
    whole path.
    """
    model, X = fitted[0][e_step], np.zeros((4, 3))
    near = model.score_samples(X)
    for size in (1e145, 1e200):
        X[2, 1] = size
        log_densities = model.score_samples(X)
        distance = size / np.sqrt(model.noise_variance_)
        expected = -0.5 * distance * distance if size < 1e200 else -np.inf
        assert np.isclose(log_densities[2], expected, rtol=1e-12)
        assert np.all(np.isfinite(np.delete(log_densities, 2)))
        if e_step == "exact":  # the mean field of a sequence changes as a whole
            assert np.allclose(log_densities[:2], near[:2])
        assert np.isclose(model.decode(X)[0], log_densities[2], rtol=1e-9)
        assert np.all(np.isfinite(model.transform(X)))


def test_sequences_come_as_a_user_has_them():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.warns(ConvergenceWarning, match="max_iter = 2"):
        model = FactorialHMM(random_state=0, max_iter=2).fit(X)
    for method in (model.fit, model.transform):
        with pytest.raises(ValueError, match=r"pass np.concatenate\(X\), and lengths="):
            method([X[:10], X[10:]])
