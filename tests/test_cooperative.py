"""Cooperative vector quantizers on the engine: monotonicity, bounds, sums, sampling, scoring, symmetries, awkward data."""
import numpy as np
import pytest

from capslit import em
from capslit.cooperative import CauseParameters, CooperativeQuantizers, Exact, Gibbs, MeanField, Truncated


def problem(seed, q=25, n=30, d=None, k=None, p=4, observable="gaussian", **settings):
    "q stacked random starts on data of one random model: (model, parameters, y)."
    rng = np.random.default_rng(seed)
    d, k = d or int(rng.integers(1, 4)), k or int(rng.integers(1, 4))
    model = CooperativeQuantizers(d, k, observable=observable, **settings)
    log_priors = np.log(rng.dirichlet(np.ones(k), (1, d)))
    truth = CauseParameters(log_priors, 2 * rng.normal(size=(1, d, k, p)) / np.sqrt(d), rng.normal(size=1), np.zeros(1))
    y = model.sample(truth, n, seed)[0][0]
    return model, model.initialise(y, q, seed), y


MONOTONE = {
    "exact": {}, "exact, all learned": dict(noise="learned", priors="learned"), "exact, ridge": dict(noise="learned", ridge=0.5),
    "mean field": dict(inference="mean_field"), "one sweep": dict(inference=MeanField(1), noise="learned", priors="learned"),
    "truncated": dict(inference=Truncated(4), noise="learned"), "bernoulli": dict(observable="bernoulli", priors="learned"),
    "poisson": dict(observable="poisson"), "bernoulli, ridge": dict(observable="bernoulli", ridge=1.0),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", MONOTONE.values(), ids=MONOTONE)
def test_em_never_lowers_the_bound_which_never_exceeds_the_likelihood(settings, seed):
    model, parameters, y = problem(seed, **settings)
    model, before, data = model.remembering(25, len(y)), -np.inf, (y, None, np.arange(len(y)))
    for _ in range(12):
        statistics = model.e_step(parameters, data)
        value = model.objective(parameters, statistics)
        likelihood = model.log_likelihood(parameters, y).sum(axis=1)
        assert np.all(statistics.bound <= likelihood + 1e-9 * np.abs(likelihood))
        assert np.all(value >= before - 1e-9 * np.abs(value))
        before, parameters = value, model.m_step(statistics)
