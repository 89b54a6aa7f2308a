"""Densities of every model: as many free parameters as the log-density has directions, criteria, samples, warm starts and starts, for all alike."""
import warnings
from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky

from capslit import FactorialHMM, FactorialVectorQuantizer, GaussianMixture, MixtureOfFactorAnalyzers, MixtureOfPCA

rng = np.random.default_rng(3)
X = rng.standard_normal((240, 3)) @ rng.standard_normal((3, 3)) + 3 * rng.standard_normal((3, 3))[rng.integers(0, 3, 240)]
BITS = (X > X.mean(axis=0)).astype(float)
COUNTS = rng.poisson(2.0, (240, 3)).astype(float)
QUICK = {"random_state": 0, "max_iter": 20}
KINDS = ("full", "tied", "diag", "spherical")
CASES = {
    **{f"Gaussians, {kind}": (GaussianMixture(2, covariance_type=kind, **QUICK), X) for kind in KINDS},
    "one Gaussian": (GaussianMixture(1, **QUICK), X),
    **{f"factors, {noise}, {r}": (MixtureOfFactorAnalyzers(2, r, noise=noise, **QUICK), np.c_[X, X[::-1, :2]]) for noise, r in
       (("diagonal", 1), ("diagonal", 2), ("isotropic", 1), ("isotropic", 2))},
    **{f"shared factors, {noise}": (MixtureOfFactorAnalyzers(2, 1, noise=noise, tied=True, **QUICK), np.c_[X, X[::-1, :2]]) for noise in ("diagonal", "isotropic")},
    "quantizer": (FactorialVectorQuantizer(2, 3, **QUICK), X),
    "quantizer with priors": (FactorialVectorQuantizer(2, 2, priors="learned", **QUICK), X),
    "quantizer of known noise": (FactorialVectorQuantizer(1, 3, noise=1.0, **QUICK), X),
    "quantizer of bits": (FactorialVectorQuantizer(1, 2, observable="bernoulli", **QUICK), BITS),
    "quantizer of counts": (FactorialVectorQuantizer(1, 2, observable="poisson", priors="learned", **QUICK), COUNTS),
    "chains": (FactorialHMM(2, 2, n_init=2, **QUICK), X),
    "one chain": (FactorialHMM(1, 3, n_init=2, **QUICK), X),
}
LENGTHS = np.full(60, 4)


def learned(model, X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(model).fit(X, **options)


@pytest.fixture(scope="module")
def fitted():
    "fitted(name): the model and its examples."
    done = {}

    def get(name):
        if name not in done:
            model, X = CASES[name]
            done[name] = learned(model, X, **({"lengths": LENGTHS} if isinstance(model, FactorialHMM) else {}))
        return done[name], CASES[name][1]
    return get


def moved(model, step):
    """The model with its parameters moved by `step` (one number for each coordinate), and how many coordinates there are.

    Distributions move as exp(logarithm + step), normalised; covariances as A Aᵀ with A = root + step; variances as exp. There are more coordinates than free parameters.
    """
    made, used = copy(model), 0

    def some(shape):
        nonlocal used
        size = int(np.prod(shape))
        part, used = step[used:used + size], used + size
        return np.reshape(part, shape) if len(part) == size else np.zeros(shape)

    held = {name for name in vars(model) if name.endswith("_")}
    if getattr(model, "priors", "learned") == "equal":
        held.discard("priors_")
    for name in sorted(held & {"weights_", "priors_", "initial_", "transitions_"}):
        if name != "weights_" or not isinstance(model, FactorialHMM):
            values = getattr(model, name)
            values = np.exp(np.log(values) + some(values.shape))
            setattr(made, name, values / values.sum(axis=-1, keepdims=True))
    for name in sorted(held & {"means_", "loadings_", "components_", "intercept_"} | ({"weights_"} if isinstance(model, FactorialHMM) else set())):
        shape = np.shape(getattr(model, name))
        setattr(made, name, getattr(model, name) + some((1, *shape[1:]) if name == "loadings_" and getattr(model, "tied", False) else shape))
    if "noise_variances_" in held:
        m, p = model.noise_variances_.shape
        made.noise_variances_ = model.noise_variances_ * np.exp(some((1 if model.tied else m, 1 if model.noise == "isotropic" else p)))
    if held >= {"noise_variance_"} and model.noise_variance_ is not None and getattr(model, "noise", "learned") == "learned":
        made.noise_variance_ = model.noise_variance_ * float(np.exp(some(())))
    if "covariances_" in held:
        if model.covariance_type in ("full", "tied"):
            A = np.linalg.cholesky(model.covariances_) + some(model.covariances_.shape)
            made.covariances_ = A @ np.swapaxes(A, -1, -2)
        else:
            made.covariances_ = model.covariances_ * np.exp(some(model.covariances_.shape))
        made.precisions_cholesky_ = _compute_precision_cholesky(made.covariances_, model.covariance_type)
    return made, used


def scores(model, X):
    return model.score_samples(X, LENGTHS) if isinstance(model, FactorialHMM) else model.score_samples(X)


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_counted_by_the_rank_of_the_density(name, fitted):
    "The rank of the derivatives of the log-densities of many examples is the number of parameters that matter."
    model, X = fitted(name)
    if "bits" in name or "counts" in name:
        X = np.stack(np.meshgrid(*[np.arange(2 if "bits" in name else 6.0)] * 3), axis=-1).reshape(-1, 3)
    n, h = moved(model, np.zeros(0))[1], 1e-5
    steps = h * np.eye(n)
    J = np.stack([(scores(moved(model, s)[0], X) - scores(moved(model, -s)[0], X)) / (2 * h) for s in steps], axis=1)
    J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-6)
    singular = np.linalg.svd(J, compute_uv=False)
    rank = int(np.sum(singular > 1e-6 * singular[0]))
    assert rank == model.n_parameters_ < len(X), singular
    if isinstance(model, GaussianMixture):
        assert rank == learned(Peer(model.n_components, covariance_type=model.covariance_type, random_state=0), X)._n_parameters()


@pytest.mark.parametrize("name", CASES)
def test_criteria_by_definition(name, fitted):
    model, X = fitted(name)
    total = np.sum(model.score_samples(X))
    assert np.isclose(model.aic(X), 2 * model.n_parameters_ - 2 * total) and np.isclose(model.bic(X), model.n_parameters_ * np.log(len(X)) - 2 * total)
    if isinstance(model, FactorialHMM):
        assert np.isclose(model.bic(X, LENGTHS), model.n_parameters_ * np.log(len(X)) - 2 * np.sum(model.score_samples(X, LENGTHS)))


@pytest.mark.parametrize("name", CASES)
def test_samples_follow_the_density(name, fitted):
    "The mean log-density of samples is that of two halves of other samples, and greater than that of another density."
    model, X = fitted(name)
    drawn = copy(model).set_params(random_state=1).sample(4000)[0]
    again = copy(model).set_params(random_state=2).sample(4000)[0]
    assert drawn.shape == (4000, X.shape[1])
    spread = np.sqrt(2 * drawn.var(axis=0) / 4000) + 1e-12
    wide = 40 if isinstance(model, FactorialHMM) else 6                       # sequences: far fewer that are independent
    assert np.all(np.abs(drawn.mean(axis=0) - again.mean(axis=0)) < wide * spread) and not np.array_equal(drawn, again)
    other = learned(clone(model), drawn)
    assert model.score(again) > other.score(again) - 0.05 and abs(model.score(drawn) - model.score(again)) < 0.3


MIXTURES = {**{f"Gaussians, {kind}": GaussianMixture(3, covariance_type=kind) for kind in KINDS}, "factors": MixtureOfFactorAnalyzers(3, 1, added_noise=0.01),
            "isotropic factors": MixtureOfFactorAnalyzers(3, 2, noise="isotropic", added_noise=0.01), "directions": MixtureOfPCA(3, 1)}


@pytest.mark.parametrize("name", [name for name in MIXTURES if "Gaussians" not in name])      # those beside scikit-learn's: test_mixtures
def test_a_warm_start_goes_on_where_the_last_fit_ended(name):
    settings = {"tol": 0, "patience": 100, "random_state": 0}
    parts = clone(MIXTURES[name]).set_params(max_iter=4, warm_start=True, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(3):
            parts.fit(X)
        straight = clone(parts).set_params(max_iter=10, warm_start=False).fit(X)      # four iterations hold three M-steps
    assert np.allclose(parts.score_samples(X), straight.score_samples(X), rtol=1e-8, atol=1e-8) and np.allclose(parts.means_, straight.means_, atol=1e-8)
    with pytest.raises(ValueError, match="warm_start goes on from the last fit"):
        parts.fit(X[:, :2])
    with pytest.raises(ValueError, match="warm_start goes on from the last fit"):
        parts.set_params(n_components=2).fit(X)


@pytest.mark.parametrize("name", MIXTURES)
def test_every_start_finds_groups_that_lie_far_apart(name):
    centres = np.array([[0, 0, 0], [40.0, 0, 0], [0, 40, 0]])
    group = np.arange(90) % 3
    far = centres[group] + np.random.default_rng(0).standard_normal((90, 3))
    for start in ("kmeans", "k-means++", "random_from_data", "random"):
        models = [learned(clone(MIXTURES[name]).set_params(init_params=start, n_init=8, random_state=seed), far) for seed in range(2)]
        assert np.isfinite(models[0].score(far)), start
        if name == "directions":                                              # of which one may pass through two groups
            continue
        assert max(m.score(far) for m in models) > learned(clone(MIXTURES[name]).set_params(random_state=0), far).score(far) - 0.5, start
        found = models[0].predict(far)
        if start != "random":
            assert len({(a, b) for a, b in zip(group, found)}) == 3, start
    with pytest.raises(ValueError, match="init_params"):
        clone(MIXTURES[name]).set_params(init_params="nearest").fit(far)
