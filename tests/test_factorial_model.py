"""Factorial vector quantisation: monotonicity, bounds, sums, sampling, scoring, symmetries, awkward
data.
"""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from conftest import together
import scipy.sparse
from scipy.special import log_expit, logsumexp
from scipy.stats import norm, poisson

from capslit import em
from capslit.factorial import e_steps
from capslit.factorial.e_steps import (
    Exact,
    _Field,
    Gibbs,
    MeanField,
    Truncated,
    configurations,
    _gaussian_field,
    _pairwise,
)
from capslit.factorial.model import (
    OBSERVABLES,
    CauseParameters,
    FactorialVectorModel,
    _score_weights,
)


def problem(seed, q=25, n=30, d=None, k=None, p=4, observable="gaussian", **settings):
    "q stacked random starts on data of one random model: (model, parameters, y)."
    rng = np.random.default_rng(seed)
    d, k = d or int(rng.integers(1, 4)), k or int(rng.integers(1, 4))
    model = FactorialVectorModel(d, k, observable=observable, **settings)
    log_priors = np.log(rng.dirichlet(np.ones(k), (1, d)))
    truth = CauseParameters(
        log_priors, 2 * rng.normal(size=(1, d, k, p)) / np.sqrt(d), rng.normal(size=1), np.zeros(1)
    )
    y = model.sample(truth, n, seed)[0][0]
    return model, model.initialise(y, q, seed), y


MONOTONE = {
    "exact": {},
    "exact, all learned": dict(noise="learned", priors="learned"),
    "exact, ridge": dict(noise="learned", ridge=0.5),
    "mean field": dict(inference="mean_field"),
    "one sweep": dict(inference=MeanField(1), noise="learned", priors="learned"),
    "truncated": dict(inference=Truncated(4), noise="learned"),
    "bernoulli": dict(observable="bernoulli", priors="learned"),
    "poisson": dict(observable="poisson"),
    "bernoulli, ridge": dict(observable="bernoulli", ridge=1.0),
}


@together("seed", range(2))
@pytest.mark.parametrize("settings", MONOTONE.values(), ids=MONOTONE)
def test_em_never_lowers_the_bound_which_never_exceeds_the_likelihood(settings, seed):
    model, parameters, y = problem(seed, **settings)
    model = replace(model, n_examples=len(y))
    model, before, data = (
        model.with_memory(model.warm_starts(25)),
        -np.inf,
        (y, None, np.arange(len(y))),
    )
    for _ in range(12):
        statistics = model.e_step(parameters, data)
        value = model.objective(parameters, statistics)
        likelihood = model.log_likelihood(parameters, y).sum(axis=1)
        assert np.all(statistics.bound <= likelihood + 1e-9 * np.abs(likelihood))
        assert np.all(value >= before - 1e-9 * np.abs(value))
        before, parameters = value, model.m_step(parameters, statistics)


@pytest.mark.parametrize("seed", range(3))
def test_no_sweep_of_mean_field_lowers_the_bound(seed):
    model, parameters, y = problem(seed, k=3)
    bounds = np.stack(
        [
            replace(model, inference=MeanField(n, 0.0)).bound(parameters, y)
            for n in (1, 2, 3, 4, 5, 6, 40)
        ]
    )
    assert np.all(np.diff(bounds, axis=0) >= -1e-9 * np.abs(bounds[1:])) and np.any(
        bounds[5] > bounds[0]
    )


@together("d, k", [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 3)])
def test_products_give_what_the_table_gives(d, k, monkeypatch):
    """From much noise to hardly any, where the most probable configuration is that of neither half;
    with impossible configurations and examples that do not count.
    """
    looked_again, table = [], e_steps._enumerate
    monkeypatch.setattr(
        e_steps,
        "_enumerate",
        lambda field, weight: looked_again.append(len(weight)) or table(field, weight),
    )
    for seed, log_noise in enumerate((5.0, 0.0, -3.0, -6.0, -12.0)):
        rng = np.random.default_rng(seed)
        weights, weight = 3 * rng.normal(size=(d, k, 6)), rng.integers(0, 3, 400).astype(float)
        y = sum(weights[i, rng.integers(k, size=400)] for i in range(d)) + np.exp(
            log_noise / 2
        ) * rng.normal(size=(400, 6))
        field = _gaussian_field(y, weights, np.log(rng.dirichlet(np.ones(k), d)), log_noise)
        field = field._replace(constants=-_pairwise(field.coupling, (d, k)))
        impossible = (
            field._replace(constants=np.where(rng.random(k**d) < 0.3, -np.inf, field.constants))
            if k**d > 3
            else field
        )
        for given in (field, impossible):
            found, known = Exact()(given, weight), table(given, weight)
            rounding = (
                4
                * np.finfo(float).eps
                * sum(
                    np.abs(a).max() for a in (field.linear, field.constants, field.base, np.ones(1))
                )
            )
            for mine, theirs, size in zip(found[:4], known, (1, weight.sum(), 1, weight.sum())):
                assert np.allclose(mine, theirs, rtol=0, atol=rounding * size), (
                    seed,
                    np.max(np.abs(mine - theirs)) / rounding,
                )
    assert bool(looked_again) == (d > 1 < k) and sum(looked_again) < 10 * 400


@together("d, k", [(1, 5), (2, 4), (3, 3)])
def test_compiled_steps_have_the_same_bits(d, k, monkeypatch):
    rng, found = np.random.default_rng(0), []
    field = _gaussian_field(
        rng.normal(size=(2500, 6)),
        rng.normal(size=(d, k, 6)),
        np.log(rng.dirichlet(np.ones(k), d)),
        0.0,
    )
    weight = rng.random(2500)
    for asked in -(10**12), 10**12:
        for step in e_steps._STEPS:
            monkeypatch.setattr(step, "asked", asked)
        found.append(Exact()(field, weight)[:4])
    assert all(np.array_equal(a, b) for a, b in zip(*found))


def test_one_example_that_needs_the_table_changes_no_other():
    rng = np.random.default_rng(0)
    field = _Field(rng.normal(size=(9, 6)), None, np.zeros(9), (2, 3), rng.normal(size=9))
    field.constants[[0, 4]] = -3000.0
    usual = Exact()(field, np.ones(9)).means
    field.linear[5, [0, 3]] = 2000.0  # each half would have its first state
    found = Exact()(field, np.ones(9))
    assert np.array_equal(
        np.delete(found.means, 5, axis=0), np.delete(usual, 5, axis=0)
    ) and np.isclose(found.means[5].sum(), 2)
    assert np.isclose(found.counts.sum(), 9) and np.isclose(np.trace(found.moments), 18)


def brute_force(model, parameters, y):
    """Log-joints (n, c) of the first stacked model, one configuration after another, and the
    configurations (c, d·k).
    """
    log_priors, weights, log_noise, _ = (leaf[0] for leaf in parameters)
    d, k, _ = weights.shape
    states = list(np.ndindex(*(k,) * d))
    joint = []
    for s in states:
        eta, prior = (
            sum(weights[i, j] for i, j in enumerate(s)),
            sum(log_priors[i, j] for i, j in enumerate(s)),
        )
        density = {
            "gaussian": lambda: norm.logpdf(y, eta, np.exp(log_noise / 2)),
            "bernoulli": lambda: y * log_expit(eta) + (1 - y) * log_expit(-eta),
            "poisson": lambda: poisson.logpmf(y, np.exp(eta)),
        }[model.observable]()
        joint.append(prior + density.sum(axis=1))
    return np.stack(joint, axis=1), np.eye(k)[np.array(states)].reshape(len(states), d * k)


@pytest.mark.parametrize("observable", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("seed", range(3))
def test_the_exact_e_step_against_brute_force(seed, observable):
    model, parameters, y = problem(seed, q=1, observable=observable)
    weight = np.random.default_rng(seed).random(len(y))
    parameters = parameters._replace(
        log_priors=np.log(
            np.random.default_rng(0).dirichlet(np.ones(model.n_states), (1, model.n_vectors))
        )
    )
    joint, S = brute_force(model, parameters, y)
    r = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    found, rw = model.e_step(parameters, (y, weight, None)), r * weight[:, None]
    for mine, true in (
        (found.bound, weight @ logsumexp(joint, axis=1)),
        (found.mass, rw.sum(axis=0) @ S),
        (found.cross, (rw @ S).T @ y),
        (found.moments, (S.T * rw.sum(axis=0)) @ S),
        (found.second, weight @ np.sum(y**2, axis=1)),
        (found.weight, weight.sum()),
    ):
        assert np.allclose(mine[0], true, rtol=1e-9, atol=1e-9)
    assert np.allclose(model.log_likelihood(parameters, y)[0], logsumexp(joint, axis=1))
    assert np.allclose(model.expected_states(parameters, y)[0], r @ S)


E_STEPS = {
    "exact": "exact",
    "mean field": MeanField(3, 0.0),
    "Gibbs": Gibbs(3, 1),
    "truncated": Truncated(4),
}


@pytest.mark.parametrize("e_step", E_STEPS.values(), ids=E_STEPS)
def test_runs_resume_to_the_bit_and_do_not_depend_on_batches_or_threads(
    e_step, tmp_path, monkeypatch
):
    monkeypatch.setattr(FactorialVectorModel, "block_rows", lambda self, parameters: 64)
    model, parameters, y = problem(
        2, q=3, n=300, d=2, k=3, inference=e_step, noise="learned", priors="learned"
    )
    row, settings = np.arange(300), dict(rounds=[em.Round(20)], max_iter=7)
    data = (y, None, row)
    whole = em.fit(model, parameters, data, n_threads=1, **settings)
    batches = [(y[a:b], None, row[a:b]) for a, b in ((0, 10), (10, 220), (220, 300))]
    cut = em.fit(model, parameters, batches, n_threads=3, **settings)
    em.fit(model, parameters, data, checkpoint=tmp_path / "run.npz", **settings | {"max_iter": 3})
    resumed = em.fit(model, parameters, data, checkpoint=tmp_path / "run.npz", **settings)
    for other in (cut, resumed):
        assert all((a == b).all() for a, b in zip(whole.parameters, other.parameters))
        assert np.array_equal(whole.history["objective"], other.history["objective"])
    other = FactorialVectorModel(2, 3, e_step, noise="learned")
    with pytest.raises(ValueError, match="other settings"):
        em.fit(other, parameters, data, checkpoint=tmp_path / "run.npz", **settings)


def test_gibbs_statistics_approach_the_exact_ones_at_the_monte_carlo_rate():
    model, parameters, y = problem(4, q=1, n=50, d=2, k=3, noise=8.0)
    exact, chains, errors = model.e_step(parameters, (y, None, None)), 40, {}
    for n_samples in (8, 128):
        sampler = [FactorialVectorModel(2, 3, Gibbs(n_samples, 30, seed)) for seed in range(chains)]
        found = np.stack(
            [s.e_step(parameters, (y, None, np.arange(50))).moments[0] for s in sampler]
        )
        error = found.std(axis=0, ddof=1) / chains**0.5
        assert np.all(np.abs(found.mean(axis=0) - exact.moments[0]) <= 5 * error + 1e-9)
        errors[n_samples] = np.linalg.norm(error)
        assert all(
            np.all(s.bound(parameters, y) <= model.log_likelihood(parameters, y) + 1e-9)
            for s in sampler[:3]
        )
    assert 2.5 < errors[8] / errors[128] < 6.5  # √16 = 4


def test_gibbs_moments_keep_the_rank():
    model, parameters, y = problem(5, q=1, n=200, d=3, k=3, inference=Gibbs(1, 0))
    moments = model.e_step(parameters, (y, None, np.arange(200))).moments[0]
    values = np.linalg.eigvalsh(moments)
    assert (
        np.all(np.abs(values[:2]) < 1e-10)
        and values[2] > 0.1
        and np.linalg.matrix_rank(moments) == 3 * 2 + 1
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_truncated_posterior_with_room_for_all_is_exact_and_fewer_come_from_below(seed):
    model, parameters, y = problem(seed, q=3, n=40, d=3, k=3)
    exact, before = model.e_step(parameters, (y, None, None)), -np.inf
    for size in (1, 3, 9, 27):
        found = FactorialVectorModel(3, 3, Truncated(size)).e_step(parameters, (y, None, None))
        assert np.all(found.bound >= before - 1e-9) and np.all(found.bound <= exact.bound + 1e-9)
        before = found.bound
    assert all(np.allclose(a, b) for a, b in zip(found, exact))


def test_the_beam_finds_the_best_of_many_configurations():
    model, parameters, y = problem(6, q=1, n=100, d=8, k=2, p=12)
    best = np.max(brute_force(model, parameters, y)[0], axis=1)
    found = FactorialVectorModel(8, 2, Truncated(16)).bound(parameters, y)[0]
    assert np.mean(found >= best - 1e-9) > 0.98


@pytest.mark.parametrize("seed", range(3))
def test_the_m_step_solves_least_squares(seed):
    model, parameters, y = problem(seed, q=2, n=80, d=3, k=3, noise="learned", priors="learned")
    rng, d, k = np.random.default_rng(seed), 3, 3
    S = np.eye(k)[rng.integers(0, k, (80, d))].reshape(80, d * k)  # as if the states were known
    w = rng.random(80)
    statistics = model.e_step(parameters, (y, w, None))._replace(
        mass=np.stack([w @ S] * 2),
        moments=np.stack([(S.T * w) @ S] * 2),
        cross=np.stack([(S.T * w) @ y] * 2),
    )
    new = model.m_step(parameters, statistics)
    root = np.sqrt(w)[:, None]
    reference = np.linalg.lstsq(S * root, y * root, rcond=None)[0]
    assert np.allclose(new.weights.reshape(2, d * k, -1), reference, atol=1e-9)
    assert np.allclose(
        np.exp(new.log_noise), np.sum(root**2 * (y - S @ reference) ** 2) / (w.sum() * y.shape[1])
    )
    assert np.allclose(np.exp(new.log_priors)[0].ravel(), w @ S / w.sum())
    ridge = FactorialVectorModel(3, 3, ridge=0.7).m_step(parameters, statistics).weights
    ridge = ridge.reshape(2, d * k, -1)
    assert np.allclose(ridge, np.linalg.solve((S.T * w) @ S + 0.7 * np.eye(d * k), (S.T * w) @ y))


@pytest.mark.parametrize("observable", ["bernoulli", "poisson"])
@pytest.mark.parametrize("seed", range(2))
def test_scoring_comes_back_from_afar(observable, seed):
    rng, S, family = np.random.default_rng(seed), configurations(2, 3), OBSERVABLES[observable]
    truth, counts = rng.normal(size=(6, 5)), rng.uniform(1, 20, len(S))
    cross = S.T @ (counts[:, None] * family.mean(S @ truth))
    found = _score_weights(
        family, (S, counts), cross, 4 * rng.normal(size=truth.shape), n_steps=200
    )
    assert np.allclose(S @ found, S @ truth, atol=1e-4)


@pytest.mark.parametrize("observable", ["bernoulli", "poisson"])
def test_scoring_agrees_with_scikit_learn_when_the_states_are_known(observable):
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

    model, parameters, y = problem(7, q=1, n=400, d=2, k=3, p=3, observable=observable)
    table, index = configurations(2, 3), np.random.default_rng(0).integers(0, 9, 400)
    S = table[index]
    statistics = model.e_step(parameters, (y, None, None))._replace(
        counts=np.bincount(index, minlength=9)[None].astype(float), cross=(S.T @ y)[None]
    )
    new = parameters
    for _ in range(5):
        new = model.m_step(new, statistics)
    ours = model.reconstruct(new, table)[0]
    free = np.delete(S, [0, 3], axis=1)  # dummy coding: one state of each vector is the reference
    for j in range(3):
        if observable == "bernoulli":
            peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(free, y[:, j])
            theirs = peer.predict_proba(np.delete(table, [0, 3], axis=1))[:, 1]
        else:
            theirs = (
                PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000)
                .fit(free, y[:, j])
                .predict(np.delete(table, [0, 3], axis=1))
            )
        assert np.allclose(ours[:, j], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("observable", ["gaussian", "bernoulli", "poisson"])
def test_symmetries(observable):
    model, parameters, y = problem(8, q=2, d=3, k=3, observable=observable)
    rng = np.random.default_rng(0)
    parameters = parameters._replace(log_priors=np.log(rng.dirichlet(np.ones(3), (2, 3))))
    vectors, states, shift = rng.permutation(3), rng.permutation(3), rng.normal(size=y.shape[1])
    turned = parameters._replace(
        log_priors=parameters.log_priors[:, vectors][:, :, states],
        weights=parameters.weights[:, vectors][:, :, states],
    )
    moved = parameters.weights.copy()
    moved[:, 0], moved[:, 2] = moved[:, 0] + shift, moved[:, 2] - shift
    likelihood = model.log_likelihood(parameters, y)
    assert np.allclose(model.log_likelihood(turned, y), likelihood)
    assert np.allclose(model.log_likelihood(parameters._replace(weights=moved), y), likelihood)
    assert np.allclose(
        model.expected_states(turned, y).reshape(2, -1, 3, 3),
        model.expected_states(parameters, y).reshape(2, -1, 3, 3)[:, :, vectors][..., states],
    )


def test_separated_bits_stay_finite_and_never_fall():
    "Bits that the states predict perfectly send the weights to infinity; a ridge keeps them."
    y = np.repeat(np.eye(3), 10, axis=0)
    for ridge in (0.0, 0.1):
        model = FactorialVectorModel(1, 3, observable="bernoulli", ridge=ridge)
        run = em.fit(
            model,
            model.initialise(y, 5, 0),
            (y, None, None),
            rounds=[em.Round(40)],
            max_iter=40,
            n_threads=1,
        )
        assert np.nanmin(np.diff(run.history["objective"], axis=0)) > -1e-9
        assert np.all(np.isfinite(run.parameters.weights)) and (
            not ridge or np.abs(run.parameters.weights).max() < 5
        )


@together("scale", [1e-150, 1e-30, 1.0, 1e30, 1e140])
@pytest.mark.parametrize("e_step", E_STEPS.values(), ids=E_STEPS)
def test_units_do_not_matter(e_step, scale):
    rng = np.random.default_rng(0)
    y, row = rng.normal(size=(40, 3)), np.arange(40)
    model = FactorialVectorModel(2, 2, e_step, noise="learned")
    begin = model.initialise(y, 3, 0)
    there = begin._replace(
        weights=begin.weights * scale, log_noise=begin.log_noise + 2 * np.log(scale)
    )
    settings = dict(rounds=[em.Round(9)], max_iter=6, n_threads=1)
    ours, run = (
        em.fit(model, p, (data, None, row), **settings)
        for p, data in ((begin, y), (there, y * scale))
    )
    assert np.allclose(
        run.history["objective"] + 120 * np.log(scale),
        ours.history["objective"],
        rtol=1e-6,
        atol=1e-6 * (1 + abs(np.log(scale))),
    )


@pytest.mark.parametrize("e_step", E_STEPS.values(), ids=E_STEPS)
def test_awkward_data(e_step):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(30, 4))
    y[:, 1], y[:, 2] = 7.0, y[:, 3]
    kinds = {
        "float32": y.astype(np.float32),
        "fortran": np.asfortranarray(y),
        "frame": pandas.DataFrame(y),
        "strided": np.repeat(y, 2, axis=0)[::2],
    }
    y.setflags(write=False)
    model = FactorialVectorModel(2, 3, e_step, noise="learned", priors="learned")
    begin, row = model.initialise(y, 2, 0), np.arange(30)
    reference = model.e_step(begin, (y, None, row))
    for name, other in kinds.items():
        assert np.allclose(
            model.e_step(begin, (other, None, row)).bound, reference.bound, rtol=1e-5
        ), name
    for few in (y[:1], 0 * y, np.round(y).astype(int)):
        data = (few, None, np.arange(len(few)))
        run = em.fit(
            model, model.initialise(few, 2, 0), data, rounds=[em.Round(5)], max_iter=15, n_threads=1
        )
        assert all(np.all(np.isfinite(leaf)) for leaf in run.parameters)
    one = FactorialVectorModel(1, 1, e_step)
    alone = em.fit(
        one, one.initialise(y, 1, 0), (y, None, row), rounds=[em.Round(2)], max_iter=4, n_threads=1
    )
    assert np.allclose(alone.parameters.weights[0, 0, 0], y.mean(axis=0))
    for wrong in (np.nan, np.inf):
        bad = y.copy()
        bad[3, 1] = wrong
        with pytest.raises(ValueError, match="y contains"):
            model.initialise(bad)
        with pytest.raises(FloatingPointError, match="not finite at the start"):
            em.fit(model, begin, (bad, None, row), n_threads=1)


def test_misuse_is_explained():
    for settings, message in [
        (dict(n_vectors=0), "n_vectors must be"),
        (dict(n_states=2.5), "n_states must be"),
        (dict(noise=0), "noise must be"),
        (dict(noise="free"), "noise must be"),
        (dict(priors="flat"), "priors must be"),
        (dict(observable="gamma"), "observable must be"),
        (dict(inference="guess"), "inference must be"),
        (dict(n_vectors=20, n_states=4), "use 'truncated', 'mean_field' or 'gibbs'"),
        (dict(observable="poisson", inference="gibbs"), "needs the exact E-step"),
        (dict(ridge=-1), "ridge must be"),
        (dict(floor=np.inf), "floor must be"),
        (dict(inference=MeanField(0)), "n_sweeps must be"),
        (dict(inference=Gibbs(0)), "n_samples must be"),
        (dict(inference=Truncated(0)), "n_configurations"),
    ]:
        with pytest.raises(ValueError, match=message):
            FactorialVectorModel(**dict(n_vectors=2, n_states=2) | settings)
    model, parameters, y = problem(10, q=1, d=2, k=2, inference="gibbs")
    row = np.arange(len(y))
    for batch, message in [
        ((y[:, 1:], None, row), "y has shape"),
        ((y, np.ones(3), row), "weight has shape"),
        ((y, None, row[1:]), "row has shape"),
        ((y, None, None), "row is None"),
        ((y * 1j, None, row), "y must hold real numbers"),
        ((scipy.sparse.csr_matrix(y), None, row), "sparse"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            model.e_step(parameters, batch)
    with pytest.raises(ValueError, match="log_noise has shape"):
        model.e_step(parameters._replace(log_noise=np.zeros(3)), (y, None, row))
    with pytest.raises(ValueError, match="2 vectors of 3 states"):
        FactorialVectorModel(2, 3).e_step(parameters, (y, None, row))
    with pytest.raises(ValueError, match="too|more than"):
        FactorialVectorModel(30, 2, "mean_field").log_likelihood(
            FactorialVectorModel(30, 2, "mean_field").initialise(y), y
        )
    for observable, wrong in (
        ("bernoulli", 2.0),
        ("bernoulli", -1.0),
        ("poisson", -1.0),
        ("poisson", np.nan),
    ):
        with pytest.raises(ValueError, match="y must|y contains"):
            FactorialVectorModel(2, 2, observable=observable).initialise(np.full((4, 2), wrong))
