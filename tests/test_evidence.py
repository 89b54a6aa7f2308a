"""Evidence: the bound rises, fixed priors give ridge EM, known precisions are recovered,
predictions integrate the weights out.
"""

import numpy as np
import pytest
import test_em

from capslit import em
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.capsules.evidence import (
    EvidencePredictor,
    EvidenceRegression,
    WeightPosterior,
    fit_evidence,
    information_grams,
    _label_information,
    typical_length,
    _unequal_shares,
)
from capslit.capsules.inference import class_probabilities, posterior_mean, sample_latents
from capslit.capsules.prediction import coupled

PLAIN = dict(rounds=[em.Round(40, {"threshold": 0.0})], max_iter=40, n_threads=1)


def problem(seed, **options):
    "A random stack of problems without a prior, its start, and its examples in memory."
    model, start, (x, y, w) = test_em.problem(
        seed,
        architecture=["multiclass", "ovr", "ovo"][seed % 3],
        weighted=seed % 2 == 0,
        affine=seed % 4 < 2,
        mixed=seed % 5 == 0,
        **options,
    )
    return (
        CapsuleRegression(model.targets, model.dims, affine=model.affine),
        start,
        (np.asarray(x), np.asarray(y), w),
    )


@pytest.mark.parametrize("share", ["all", "capsule", "input"])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_never_falls(seed, share):
    model, start, batch = problem(seed)
    found = fit_evidence(
        model, start, batch, share=share, information="latent", n_updates=15, tol=0, **PLAIN
    )
    assert found.log_evidence.shape == (15, len(model.dims)) and found.precision.shape[2] == (
        model.dims.shape[1] if share == "capsule" else 1
    )
    assert np.all(np.diff(found.log_evidence, axis=0) >= -1e-9 * abs(found.log_evidence[0]))
    assert np.any(np.diff(found.log_evidence, axis=0) > 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_under_a_fixed_prior_the_weights_are_those_of_ridge_em(seed):
    model, start, batch = problem(seed)
    found = fit_evidence(
        CapsuleRegression(model.targets, model.dims, alpha=1.7, affine=model.affine),
        start,
        batch,
        n_updates=1,
        **PLAIN,
    )
    alpha = np.full(start.weights.shape[-1], 1.7)
    alpha[alpha.size - model.affine :] = 0
    grams = information_grams(model, start.weights, batch, "latent")
    ridge = CapsuleRegression(
        model.targets,
        model.dims,
        LeastSquares.from_gram(grams, tuple(range(len(grams))), alpha),
        1.7,
        model.affine,
    )
    assert np.allclose(found.weights, em.fit(ridge, start, batch, **PLAIN).parameters.weights)


def test_capsules_with_precisions_of_their_own_are_ridge_problems_of_their_own():
    rng = np.random.default_rng(0)
    X, moments = rng.normal(size=(30, 4)), rng.normal(size=(1, 3, 2, 4))
    precision = rng.uniform(0.5, 5, (1, 3, 1)) * np.ones(4)
    model = EvidenceRegression(
        np.arange(3)[None],
        np.full((1, 3), 2),
        posterior=WeightPosterior.of((X.T @ X)[None], precision),
    )
    weights = model.m_step(None, em_statistics(moments)).weights
    for i in range(3):
        alone = LeastSquares.from_gram((X.T @ X)[None], alpha=precision[0, i, 0])
        assert np.allclose(weights[:, i : i + 1], alone.solve(moments[:, i : i + 1]))


def em_statistics(moments):
    from capslit.capsules.engine import CapsuleStatistics

    return CapsuleStatistics(moments, *np.zeros((3, 1)))


@pytest.mark.parametrize("dims", [(2, 2), (1, 3), (2, 1, 3)])
def test_label_information_is_what_the_label_takes_from_the_variance(dims):
    "1 − E_y tr Cov[h | x, y] / D, with the variances from exact samples."
    rng, D, width = np.random.default_rng(1), sum(dims), max(dims)
    poses = (
        1.5 * rng.normal(size=(1, len(dims), width)) * (np.arange(width) < np.array(dims)[:, None])
    )
    norms = (poses**2).sum(-1)
    left = []
    for y, probability in enumerate(class_probabilities(norms, np.array(dims))[0]):
        h = sample_latents(poses, np.array(dims), [y], size=200_000, random_state=rng)[:, 0]
        left.append(
            probability * ((h - posterior_mean(poses, [y], np.array(dims))[0]) ** 2).sum((1, 2))
        )
    error = np.sqrt(sum(part.var() / len(part) for part in left)) / D
    share = 1 - sum(part.mean() for part in left) / D
    found = _label_information(norms, np.array(dims))[0]
    assert abs(found - share) < 5 * error < 0.5 * found and found < (len(dims) - 1) / D


def drawn(rng, precision, n, d=2, m=2):
    "Inputs and labels of the model itself, with weights from the prior."
    X = rng.normal(size=(n, len(precision)))
    W = rng.normal(size=(1, m, d, len(precision))) / np.sqrt(precision)
    h = np.einsum("mdp,np->nmd", W[0], X) + rng.normal(size=(n, m, d))
    share = (h**2).sum(-1)
    y = (rng.random(n)[:, None] > np.cumsum(share / share.sum(1, keepdims=True), axis=1)).sum(1)
    return (
        CapsuleRegression(np.arange(m)[None], np.full((1, m), d)),
        CapsuleParameters(W),
        (X, y, None),
    )


def test_a_known_precision_is_recovered_from_labels_and_not_from_the_bound():
    ratios = {"label": [], "latent": []}
    for seed in range(6):
        model, start, batch = drawn(np.random.default_rng(seed), np.full(10, 10.0), 400)
        for information, ratio in ratios.items():
            found = fit_evidence(
                model, start, batch, information=information, **PLAIN | {"momentum": 0.9}
            )
            ratio.append(np.log(found.precision[-1, 0, 0, 0] / 10))
    assert abs(np.mean(ratios["label"])) < np.log(1.3) and np.max(np.abs(ratios["label"])) < np.log(
        2
    ), np.exp(ratios["label"])
    assert np.min(ratios["latent"]) > np.log(100), np.exp(ratios["latent"])


def test_typical_weights_are_nearer_to_those_that_made_the_labels():
    """Poses are long, the mode is too short, and τ undoes a part of it: of the length itself, and
    of what new examples lose.
    """
    for seed in range(3):
        model, truth, (X, y, _) = drawn(np.random.default_rng(seed), np.full(20, 1.0), 2000)
        learn, new = (X[:1000], y[:1000], None), (X[1000:], y[1000:], None)
        found = fit_evidence(model, truth, learn, **PLAIN | {"momentum": 0.9})
        tau = typical_length(model, found.weights, found.precision[-1], learn)[:, None, None, None]
        length = [
            np.sum((factor * found.weights) ** 2) / np.sum(truth.weights**2) for factor in (1, tau)
        ]
        worth = [
            model.e_step(CapsuleParameters(factor * found.weights), new).log_likelihood[0] / 1000
            for factor in (1, tau)
        ]
        assert 1.4 * length[0] < length[1] < 1 and worth[1] > worth[0] + 0.002, (length, worth)


@pytest.mark.parametrize("seed", range(3))
def test_each_problem_finds_its_own_length(seed):
    model, start, batch = problem(seed)
    found = fit_evidence(model, start, batch, n_updates=2, **PLAIN)
    tau = typical_length(model, found.weights, found.precision[-1], batch, 200)
    for q in range(len(tau)):
        penalty, one = (
            np.sum(found.precision[-1][q, :, None] * found.weights[q] ** 2),
            model.select(np.array([q])),
        )

        def density(t):
            log_likelihood = one.e_step(
                CapsuleParameters(t * found.weights[q : q + 1]), batch
            ).log_likelihood[0]
            return (
                log_likelihood
                - penalty * t**2 / 2
                + model.dims[q].sum() * found.weights.shape[3] * np.log(t)
            )

        best = max(map(density, np.geomspace(1, max(2 * tau[q], 4), 50)))
        assert density(tau[q]) > best - 0.02 * max(1, abs(best))


def test_irrelevant_inputs_are_recognised():
    model, start, batch = drawn(np.random.default_rng(3), np.array([0.5] * 3 + [1e6] * 3), 1500)
    start = CapsuleParameters(np.random.default_rng(0).normal(size=start.weights.shape))
    found = fit_evidence(model, start, batch, share="input", **PLAIN | {"momentum": 0.9})
    alpha = found.precision[-1, 0, 0]
    assert alpha[3:].min() > 5 * alpha[:3].max(), alpha


@pytest.mark.parametrize("affine", [False, True])
def test_pairs_and_constant_inputs_are_predicted_as_the_formula_says(affine):
    rng = np.random.default_rng(2)
    x, weights, root = (
        rng.normal(size=(7, 4)),
        rng.normal(size=(3, 2, 2, 4 + affine)),
        rng.normal(size=(3, 1, 4 + affine, 4 + affine)),
    )
    covariance = root @ np.swapaxes(root, 2, 3)
    z = np.c_[x, np.ones((7, int(affine)))]
    first = []
    for q in range(3):
        s = np.array([row @ covariance[q, 0] @ row for row in z])
        first.append(
            class_probabilities(
                ((z @ np.swapaxes(weights[q], 1, 2)) ** 2).sum(-1).T / (1 + s)[:, None], 2
            )[:, 0]
        )
    pairs = EvidencePredictor(weights, np.full((3, 2), 2), pairs=True, covariance=covariance)
    assert np.allclose(pairs.probabilities(x), coupled(np.stack(first, axis=1)))


def test_capsules_of_unequal_variance_agree_with_samples():
    rng = np.random.default_rng(4)
    norms, v, dims = (
        rng.exponential(4, (1, 3, 1)),
        rng.uniform(1, 6, (1, 3, 1)),
        np.array([[1, 2, 3]]),
    )
    h = (
        rng.normal(size=(400_000, 3, 3))
        * (np.arange(3) < dims[0][:, None])
        * np.sqrt(v[0])[..., None].reshape(1, 3, 1)
    )
    h[:, :, 0] += np.sqrt(norms[0, :, 0])
    share = (h**2).sum(-1)
    share /= share.sum(1, keepdims=True)
    found = _unequal_shares(norms, v, dims)[0, :, 0]
    assert np.all(abs(share.mean(0) - found) < 5 * share.std(0) / np.sqrt(len(h)))


def test_arguments_that_make_no_sense_are_named():
    model, start, batch = problem(0)
    for name, value in {"share": "row", "information": "none", "n_updates": 0, "tol": -1}.items():
        with pytest.raises((ValueError, TypeError), match=name):
            fit_evidence(model, start, batch, **{name: value}, **PLAIN)
