"""Factorial vector quantisation: monotone bounds, the exact E-step, runs that resume, messages."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import together
from scipy.special import log_expit, logsumexp
from scipy.stats import norm, poisson

from capslit import em
from capslit.factorial import e_steps
from capslit.factorial.e_steps import (
    Exact,
    Gibbs,
    MeanField,
    Truncated,
    _gaussian_field,
    configurations,
)
from capslit.factorial.model import CauseParameters, FactorialVectorModel


def problem(seed, q=8, n=30, d=None, k=None, p=4, observable="gaussian", **settings):
    "q stacked random starts on data of one random model: (model, parameters, y)."
    rng = np.random.default_rng(seed)
    d, k = d or int(rng.integers(1, 4)), k or int(rng.integers(1, 4))
    model = FactorialVectorModel(d, k, observable=observable, **settings)
    log_priors = np.log(rng.dirichlet(np.ones(k), (1, d)))
    weights = 2 * rng.normal(size=(1, d, k, p)) / np.sqrt(d)
    truth = CauseParameters(log_priors, weights, rng.normal(size=1), np.zeros(1))
    y = model.sample(truth, n, seed)[0][0]
    return model, model.initialise(y, q, seed), y


MONOTONE = {
    "exact": {},
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
    model = model.with_memory(model.warm_starts(8))
    before = -np.inf
    for _ in range(12):
        statistics = model.e_step(parameters, (y, None, np.arange(len(y))))
        value = model.objective(parameters, statistics)
        likelihood = model.log_likelihood(parameters, y).sum(axis=1)
        assert np.all(statistics.bound <= likelihood + 1e-9 * np.abs(likelihood))
        assert np.all(value >= before - 1e-9 * np.abs(value))
        before = value
        parameters = model.m_step(parameters, statistics)


def brute_force(model, parameters, y):
    "Log-joints (n, c) of the first stacked model and all configurations (c, d·k)."
    log_priors, weights, log_noise, _ = (leaf[0] for leaf in parameters)
    d, k, p = weights.shape
    S = configurations(d, k)
    eta = S @ weights.reshape(d * k, p)
    y = y[:, None]
    if model.observable == "gaussian":
        terms = norm.logpdf(y, eta, np.exp(log_noise / 2))
    elif model.observable == "bernoulli":
        terms = y * log_expit(eta) + (1 - y) * log_expit(-eta)
    else:
        terms = poisson.logpmf(y, np.exp(eta))
    return terms.sum(axis=2) + S @ log_priors.ravel(), S


@pytest.mark.parametrize("observable", ["gaussian", "bernoulli", "poisson"])
def test_the_exact_e_step_against_brute_force(observable):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model, parameters, y = problem(seed, q=1, observable=observable)
        weight = rng.random(len(y))
        priors = rng.dirichlet(np.ones(model.n_states), (1, model.n_vectors))
        parameters = parameters._replace(log_priors=np.log(priors))
        joint, S = brute_force(model, parameters, y)
        log_p = logsumexp(joint, axis=1)
        r = np.exp(joint - log_p[:, None]) * weight[:, None]
        found = model.e_step(parameters, (y, weight, None))
        expected = {
            "bound": weight @ log_p,
            "mass": r.sum(axis=0) @ S,
            "cross": (r @ S).T @ y,
            "moments": (S.T * r.sum(axis=0)) @ S,
            "second": weight @ np.sum(y**2, axis=1),
            "weight": weight.sum(),
        }
        for name, value in expected.items():
            assert np.allclose(getattr(found, name)[0], value, rtol=1e-9, atol=1e-9), name
        assert np.allclose(model.log_likelihood(parameters, y)[0], log_p)


@together("d, k", [(1, 5), (2, 4), (3, 3)])
def test_compiled_steps_have_the_same_bits(d, k, monkeypatch):
    rng = np.random.default_rng(0)
    y, weights = rng.normal(size=(2500, 6)), rng.normal(size=(d, k, 6))
    field = _gaussian_field(y, weights, np.log(rng.dirichlet(np.ones(k), d)), 0.0)
    weight = rng.random(2500)
    found = []
    for asked in -(10**12), 10**12:
        for step in e_steps._STEPS:
            monkeypatch.setattr(step, "asked", asked)
        found.append(Exact()(field, weight)[:4])
    assert all(np.array_equal(a, b) for a, b in zip(*found))


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
    learned = {"noise": "learned", "priors": "learned"}
    model, parameters, y = problem(2, q=3, n=300, d=2, k=3, inference=e_step, **learned)
    row = np.arange(300)
    path, settings = tmp_path / "run.npz", {"rounds": [em.Round(20)], "max_iter": 7}
    data = (y, None, row)
    whole = em.fit(model, parameters, data, n_threads=1, **settings)
    batches = [(y[a:b], None, row[a:b]) for a, b in ((0, 10), (10, 220), (220, 300))]
    cut = em.fit(model, parameters, batches, n_threads=3, **settings)
    em.fit(model, parameters, data, checkpoint=path, **settings | {"max_iter": 3})
    resumed = em.fit(model, parameters, data, checkpoint=path, **settings)
    for other in (cut, resumed):
        assert all(map(np.array_equal, whole.parameters, other.parameters))
        assert np.array_equal(whole.history["objective"], other.history["objective"])
    other = FactorialVectorModel(2, 3, e_step, noise="learned")
    with pytest.raises(ValueError, match="other settings"):
        em.fit(other, parameters, data, checkpoint=path, **settings)


def test_few_configurations_are_enumerated_unless_told_how_many_to_keep_and_never_too_many():
    def e_step(*arguments):
        return FactorialVectorModel(*arguments).inference

    assert e_step(3, 16, "truncated") == Exact() == e_step(12, 2, Truncated())
    assert e_step(13, 2, "truncated") == Truncated(32) == e_step(2, 3, Truncated(32))

    many = FactorialVectorModel(30, 2, "mean_field")
    y = np.zeros((4, 2))
    with pytest.raises(ValueError, match="more than .* use 'truncated', 'mean_field' or 'gibbs'"):
        many.log_likelihood(many.initialise(y), y)
