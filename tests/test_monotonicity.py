"""EM never lowers what it maximises: every model on many random problems, one iteration at
a time.
"""

import numpy as np
import pytest
import test_em
import test_factor_analysis
import test_factorial_hmm
import test_mixtures
import test_penalties

from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.composition.gaussian import RULES, GaussianCompositions, _Means
from capslit.deeper.patches import _EqualSpheres
from capslit.factorial.chains import FactorialChains
from capslit.factorial.model import FactorialVectorModel
from capslit.mixtures.factor_analysis import _halves
from capslit.mixtures.gaussian import Mixtures


def capsules(seed, expanded=False):
    model, start, data = test_em.problem(
        seed,
        architecture=["multiclass", "ovr", "ovo"][seed % 3],
        weighted=seed % 5 == 0,
        affine=seed % 4 == 0,
        alpha=[0, 0, 0.3, 10][seed % 4],
        mixed=seed % 7 == 0,
    )
    if expanded:
        model = ExpandedCapsuleRegression(
            model.targets, model.dims, model.solver, model.alpha, model.affine
        )
    return model, start, data


def gaussians(seed, kind):
    start, data = test_mixtures.problem(seed, kind, k=1 + seed % 2, weighted=seed % 3 == 0)
    return Mixtures(kind), start, data


def spheres(seed):
    start, data = test_mixtures.problem(seed, "diag", k=1 + seed % 2, weighted=seed % 3 == 0)
    variance = np.broadcast_to(
        start.covariances.mean(axis=(1, 2), keepdims=True), start.means.shape
    ).copy()
    return (
        _EqualSpheres("spherical"),
        start._replace(covariances=variance, precisions_cholesky=variance**-0.5),
        data,
    )


def manifolds(seed):
    return test_factor_analysis.problem(seed, **test_factor_analysis.settings_of(seed))


def shared_manifolds(seed):
    "Components with one covariance"
    settings = test_factor_analysis.settings_of(seed)
    model, start, data = test_factor_analysis.problem(
        seed, ("diagonal", "isotropic")[seed % 2], tied=True, **settings
    )
    start = start._replace(
        **{
            name: np.repeat(getattr(start, name)[:, :1], start.means.shape[1], axis=1)
            for name in ("loadings", "log_noise")
        }
    )
    return model, start, data


def chains(seed, e_step):
    rng = np.random.default_rng(seed)
    d, k, p, T = (int(rng.integers(*n)) for n in ((1, 4), (2, 4), (1, 5), (2, 9)))
    scale = rng.choice([1e-3, 1, 1e3])
    start = test_factorial_hmm.random_parameters(rng, d, k, p, s=2, scale=scale)
    Y, lengths = (
        scale * rng.normal(size=(5, T, p)) + 2 * scale * rng.integers(0, 3, (5, T, 1)),
        rng.integers(1, T + 1, 5),
    )
    sweeps = {"n_sweeps": int(rng.integers(1, 4))} if e_step == "mean_field" else {}
    model = FactorialChains(
        e_step, floor=scale**2 * rng.choice([0, 0.5]), sequences=(5, T, d, k), **sweeps
    )
    return model.with_memory(model.warm_starts(2)), start, (Y, lengths, np.arange(5))


def vectors(seed, e_step):
    rng = np.random.default_rng(seed)
    model = FactorialVectorModel(
        int(rng.integers(1, 4)),
        int(rng.integers(2, 4)),
        e_step,
        noise="learned",
        priors="learned",
        n_examples=40,
    )
    y = 2 * rng.normal(size=(40, 3))
    start = model.initialise(y, 3, seed)
    return model.with_memory(model.warm_starts(3)), start, (y, None, np.arange(len(y)))


def means(seed):
    rng = np.random.default_rng(seed)
    K, D = (int(rng.integers(*n)) for n in ((1, 6), (1, 8)))
    noise = None if seed % 2 else float(rng.uniform(0.3, 2))
    model = GaussianCompositions(
        RULES[seed % 3], rng.normal(), rng.choice([0.0, 1.0]), [None, 1, 2][seed % 4 % 3], noise
    )
    return (
        model,
        _Means(2 * rng.normal(size=(2, K, D)), np.full(2, noise or 1.0)),
        (2 * rng.normal(size=(40, D)), None),
    )


# name → a random problem for each seed, how many of them, and which statistics tell of a component
# that is about to be revived, which is no EM step
MODELS = {
    "capsule regression": (capsules, 100, None),
    "capsule regression, expanded": (lambda seed: capsules(seed, True), 40, None),
    "capsule regression, dropout": (test_penalties.with_dropout, 30, None),
    "capsule regression, lasso": (test_penalties.with_norms, 36, None),
    "Gaussian mixtures": (
        lambda seed: gaussians(seed, "full"),
        60,
        lambda s: s.mass < 1e-6 * s.weight[:, None],
    ),
    "Gaussian mixtures, diagonal": (
        lambda seed: gaussians(seed, "diag"),
        60,
        lambda s: s.mass < 1e-6 * s.weight[:, None],
    ),
    "Gaussian mixtures, one variance": (spheres, 60, lambda s: s.mass < 1e-6 * s.weight[:, None]),
    "linear manifolds": (manifolds, 100, lambda s: _halves(s.mass)[1] < 1),
    "linear manifolds, one covariance": (shared_manifolds, 100, lambda s: _halves(s.mass)[1] < 1),
    "factorial HMM": (lambda seed: chains(seed, "exact"), 40, None),
    "factorial HMM, mean field": (lambda seed: chains(seed, "mean_field"), 40, None),
    "factorial vectors": (lambda seed: vectors(seed, "exact"), 20, None),
    "factorial vectors, mean field": (lambda seed: vectors(seed, "mean_field"), 20, None),
    "compositions of means": (means, 60, None),
}


@pytest.mark.parametrize("name", MODELS)
def test_em_never_lowers_what_it_maximises(name):
    make, count, revived = MODELS[name]
    collapsed = 0
    for seed in range(count):
        model, parameters, data = make(seed)
        path, unit = [], sum(np.size(a) for a in data[:1])
        for _ in range(12):
            statistics = model.e_step(parameters, data)
            now = getattr(statistics, "bound", model.objective(parameters, statistics))
            assert np.all(np.isfinite(now)), seed
            if path:
                assert np.all(now >= path[-1] - 1e-9 * (np.abs(now) + unit)), seed
            path = [*path, now] if revived is None or not np.any(revived(statistics)) else []
            try:
                parameters = model.m_step(parameters, statistics)
            except ValueError as error:  # collapsed: the likelihood has no maximum
                assert "raise reg_covar" in str(error)
                collapsed += 1
                break
        assert len(path) < 3 or np.any(path[-1] > path[0]), seed
    assert collapsed < count / 4  # the others are full courses
