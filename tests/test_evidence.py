"""Evidence: the bound rises, fixed priors give ridge EM, known precisions are recovered,
predictions integrate the weights out.
"""

import numpy as np
import pytest
import test_em
from conftest import together

from capslit import em
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
)
from capslit.capsules.evidence import (
    EvidencePredictor,
    _label_information,
    _unequal_shares,
    fit_evidence,
    information_grams,
    typical_length,
)
from capslit.capsules.inference import class_probabilities, posterior_mean
from capslit.capsules.prediction import coupled

PLAIN = dict(rounds=[em.Round(40, {"threshold": 0.0})], max_iter=40, n_threads=1)


def problem(seed):
    "A random stack of problems without a prior, its start, and its examples in memory."
    model, start, batch = test_em.problem(
        seed,
        architecture=["multiclass", "ovr", "ovo"][seed % 3],
        weighted=seed % 2 == 0,
        affine=seed % 4 < 2,
        mixed=seed % 5 == 0,
    )
    return CapsuleRegression(model.targets, model.dims, affine=model.affine), start, batch


@together("share", ["all", "capsule", "input"])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_never_falls(seed, share):
    options = {"share": share, "information": "latent", "n_updates": 8, "tol": 0} | PLAIN
    model, start, batch = problem(seed)
    found = fit_evidence(model, start, batch, **options)
    k, m = model.dims.shape
    assert found.log_evidence.shape == (8, k)
    assert found.precision.shape[2] == (m if share == "capsule" else 1)
    steps = np.diff(found.log_evidence, axis=0)
    assert np.all(steps >= -1e-9 * abs(found.log_evidence[0]))
    assert np.any(steps > 1e-3)


@together("seed", range(3))
def test_under_a_fixed_prior_the_weights_are_those_of_ridge_em(seed):
    model, start, batch = problem(seed)
    settings = {"alpha": 1.7, "affine": model.affine}
    prior = CapsuleRegression(model.targets, model.dims, **settings)
    found = fit_evidence(prior, start, batch, n_updates=1, **PLAIN)
    alpha = np.full(start.weights.shape[-1], 1.7)
    alpha[alpha.size - model.affine :] = 0
    grams = information_grams(model, start.weights, batch, "latent")
    solver = LeastSquares.from_gram(grams, tuple(range(len(grams))), alpha)
    ridge = CapsuleRegression(model.targets, model.dims, solver, **settings)
    assert np.allclose(found.weights, em.fit(ridge, start, batch, **PLAIN).parameters.weights)


@together("dims", [(2, 2), (1, 3), (2, 1, 3)])
def test_label_information_is_what_the_label_takes_from_the_variance(dims):
    "1 − E_y tr Cov[h | x, y] / D, over samples of h given x, each with the probability of y."
    rng = np.random.default_rng(1)
    dims = np.array(dims)
    D = dims.sum()
    padding = np.arange(dims.max()) >= dims[:, None]
    poses = np.where(padding, 0, 1.5 * rng.normal(size=(1, len(dims), dims.max())))
    h = poses + np.where(padding, 0, rng.normal(size=(400_000, *padding.shape)))
    share = (h**2).sum(2) / (h**2).sum((1, 2))[:, None]
    left = np.zeros(len(h))
    for y in range(len(dims)):
        deviation = h - posterior_mean(poses, [y], dims)[0]
        left += share[:, y] * (deviation**2).sum((1, 2))
    error = left.std() / np.sqrt(len(h)) / D
    found = _label_information((poses**2).sum(2), dims)[0]
    assert abs(found - (1 - left.mean() / D)) < 5 * error < 0.5 * found
    assert found < (len(dims) - 1) / D


@together("seed", range(3))
def test_each_problem_finds_its_length(seed):
    model, start, batch = problem(seed)
    found = fit_evidence(model, start, batch, n_updates=2, **PLAIN)
    tau = typical_length(model, found.weights, found.precision[-1], batch, 200)
    for q in range(len(tau)):
        weights = found.weights[q : q + 1]
        penalty = np.sum(found.precision[-1][q, :, None] * weights[0] ** 2)
        n_weights = model.dims[q].sum() * weights.shape[3]
        one = model.select(np.array([q]))

        def density(t):
            log_likelihood = one.e_step(CapsuleParameters(t * weights), batch).log_likelihood[0]
            return log_likelihood - penalty * t**2 / 2 + n_weights * np.log(t)

        best = max(map(density, np.geomspace(1, max(2 * tau[q], 4), 50)))
        assert density(tau[q]) > best - 0.02 * max(1, abs(best))


@together("affine", [False, True])
def test_pairs_and_constant_inputs_are_predicted_as_the_formula_says(affine):
    rng = np.random.default_rng(2)
    p = 4 + affine
    x = rng.normal(size=(7, 4))
    weights = rng.normal(size=(3, 2, 2, p))
    root = rng.normal(size=(3, 1, p, p))
    covariance = root @ np.swapaxes(root, 2, 3)
    z = np.c_[x, np.ones((7, int(affine)))]
    first = []
    for q in range(3):
        variance = 1 + np.einsum("np,pq,nq->n", z, covariance[q, 0], z)
        norms = ((z @ np.swapaxes(weights[q], 1, 2)) ** 2).sum(-1).T
        first.append(class_probabilities(norms / variance[:, None], 2)[:, 0])
    pairs = EvidencePredictor(weights, np.full((3, 2), 2), pairs=True, covariance=covariance)
    assert np.allclose(pairs.probabilities(x), coupled(np.stack(first, axis=1)))


def test_capsules_of_unequal_variance_agree_with_samples():
    rng = np.random.default_rng(4)
    norms = rng.exponential(4, (1, 3, 1))
    variances = rng.uniform(1, 6, (1, 3, 1))
    present = np.tri(3)  # capsules of 1, 2 and 3 dimensions
    h = rng.normal(size=(400_000, 3, 3)) * present * np.sqrt(variances[0])
    h[:, :, 0] += np.sqrt(norms[0, :, 0])
    lengths = (h**2).sum(axis=-1)
    share = lengths / lengths.sum(axis=1, keepdims=True)
    expected = _unequal_shares(norms, variances, np.array([[1, 2, 3]]))[0, :, 0]
    assert np.all(abs(share.mean(axis=0) - expected) < 5 * share.std(axis=0) / np.sqrt(len(h)))


@together("change", [{"share": "row"}, {"information": "none"}, {"n_updates": 0}, {"tol": -1}])
def test_arguments_that_make_no_sense_are_named(change):
    with pytest.raises((ValueError, TypeError), match=next(iter(change))):
        fit_evidence(*problem(0), **change, **PLAIN)
