"""Densities of every model: as many free parameters as the log-density has directions, criteria,
samples, starts, weights and courses, for all alike.
"""

import warnings
from copy import copy

import numpy as np
import pytest
import test_factorial
from conftest import blobs, together
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky

from capslit import (
    FactorialHMM,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
)

rng = np.random.default_rng(3)
X = (
    rng.standard_normal((240, 3)) @ rng.standard_normal((3, 3))
    + 3 * rng.standard_normal((3, 3))[rng.integers(0, 3, 240)]
)
BITS = (X > X.mean(axis=0)).astype(float)
COUNTS = rng.poisson(2.0, (240, 3)).astype(float)
QUICK = {"random_state": 0, "max_iter": 20}
KINDS = ("full", "tied", "diag", "spherical")
CASES = {
    **{
        f"Gaussians, {kind}": (GaussianMixture(2, covariance_type=kind, **QUICK), X)
        for kind in KINDS
    },
    "one Gaussian": (GaussianMixture(1, **QUICK), X),
    **{
        f"factors, {noise}, {r}": (
            MixtureOfFactorAnalyzers(2, r, noise=noise, **QUICK),
            np.c_[X, X[::-1, :2]],
        )
        for noise, r in (("diagonal", 1), ("diagonal", 2), ("isotropic", 1), ("isotropic", 2))
    },
    **{
        f"shared factors, {noise}": (
            MixtureOfFactorAnalyzers(2, 1, noise=noise, tied=True, **QUICK),
            np.c_[X, X[::-1, :2]],
        )
        for noise in ("diagonal", "isotropic")
    },
    "quantizer": (FactorialVectorQuantizer(2, 3, **QUICK), X),
    "quantizer with priors": (FactorialVectorQuantizer(2, 2, priors="learned", **QUICK), X),
    "quantizer of known noise": (FactorialVectorQuantizer(1, 3, noise=1.0, **QUICK), X),
    "quantizer of bits": (FactorialVectorQuantizer(1, 2, observable="bernoulli", **QUICK), BITS),
    "quantizer of counts": (
        FactorialVectorQuantizer(1, 2, observable="poisson", priors="learned", **QUICK),
        COUNTS,
    ),
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
            done[name] = learned(
                model, X, **({"lengths": LENGTHS} if isinstance(model, FactorialHMM) else {})
            )
        return done[name], CASES[name][1]

    return get


def moved(model, step):
    """The model with its parameters moved by `step` (one number for each coordinate), and how many
    coordinates there are.

    Distributions move as exp(logarithm + step), normalised; covariances as A Aᵀ with A = root +
    step; variances as exp. There are more coordinates than free parameters.
    """
    made, used = copy(model), 0

    def some(shape):
        nonlocal used
        size = int(np.prod(shape))
        part, used = step[used : used + size], used + size
        return np.reshape(part, shape) if len(part) == size else np.zeros(shape)

    held = {name for name in vars(model) if name.endswith("_")}
    if getattr(model, "priors", "learned") == "equal":
        held.discard("priors_")
    for name in sorted(held & {"weights_", "priors_", "initial_", "transitions_"}):
        if name != "weights_" or not isinstance(model, FactorialHMM):
            values = getattr(model, name)
            values = np.exp(np.log(values) + some(values.shape))
            setattr(made, name, values / values.sum(axis=-1, keepdims=True))
    for name in sorted(
        held & {"means_", "loadings_", "components_", "intercept_"}
        | ({"weights_"} if isinstance(model, FactorialHMM) else set())
    ):
        shape = np.shape(getattr(model, name))
        setattr(
            made,
            name,
            getattr(model, name)
            + some(
                (1, *shape[1:]) if name == "loadings_" and getattr(model, "tied", False) else shape
            ),
        )
    if "noise_variances_" in held:
        m, p = model.noise_variances_.shape
        made.noise_variances_ = model.noise_variances_ * np.exp(
            some((1 if model.tied else m, 1 if model.noise == "isotropic" else p))
        )
    if (
        held >= {"noise_variance_"}
        and model.noise_variance_ is not None
        and getattr(model, "noise", "learned") == "learned"
    ):
        made.noise_variance_ = model.noise_variance_ * float(np.exp(some(())))
    if "covariances_" in held:
        if model.covariance_type in ("full", "tied"):
            A = np.linalg.cholesky(model.covariances_) + some(model.covariances_.shape)
            made.covariances_ = A @ np.swapaxes(A, -1, -2)
        else:
            made.covariances_ = model.covariances_ * np.exp(some(model.covariances_.shape))
        made.precisions_cholesky_ = _compute_precision_cholesky(
            made.covariances_, model.covariance_type
        )
    return made, used


def scores(model, X):
    return (
        model.score_samples(X, LENGTHS)
        if isinstance(model, FactorialHMM)
        else model.score_samples(X)
    )


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_counted_by_the_rank_of_the_density(name, fitted):
    """The rank of the derivatives of the log-densities of many examples is the number of parameters
    that matter.
    """
    model, X = fitted(name)
    if "bits" in name or "counts" in name:
        X = np.stack(np.meshgrid(*[np.arange(2 if "bits" in name else 6.0)] * 3), axis=-1).reshape(
            -1, 3
        )
    n, h = moved(model, np.zeros(0))[1], 1e-5
    steps = h * np.eye(n)
    J = np.stack(
        [(scores(moved(model, s)[0], X) - scores(moved(model, -s)[0], X)) / (2 * h) for s in steps],
        axis=1,
    )
    J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-6)
    singular = np.linalg.svd(J, compute_uv=False)
    rank = int(np.sum(singular > 1e-6 * singular[0]))
    assert rank == model.n_parameters_ < len(X), singular
    if isinstance(model, GaussianMixture):
        assert (
            rank
            == learned(
                Peer(model.n_components, covariance_type=model.covariance_type, random_state=0), X
            )._n_parameters()
        )


@pytest.mark.parametrize("name", CASES)
def test_criteria_by_definition(name, fitted):
    model, X = fitted(name)
    total = np.sum(model.score_samples(X))
    assert np.isclose(model.aic(X), 2 * model.n_parameters_ - 2 * total) and np.isclose(
        model.bic(X), model.n_parameters_ * np.log(len(X)) - 2 * total
    )
    if isinstance(model, FactorialHMM):
        assert np.isclose(
            model.bic(X, LENGTHS),
            model.n_parameters_ * np.log(len(X)) - 2 * np.sum(model.score_samples(X, LENGTHS)),
        )


@pytest.mark.parametrize("name", CASES)
def test_samples_follow_the_density(name, fitted):
    """The mean log-density of samples is that of two halves of other samples, and greater than that
    of another density.
    """
    model, X = fitted(name)
    drawn = copy(model).set_params(random_state=1).sample(4000)[0]
    again = copy(model).set_params(random_state=2).sample(4000)[0]
    assert drawn.shape == (4000, X.shape[1])
    spread = np.sqrt(2 * drawn.var(axis=0) / 4000) + 1e-12
    wide = 40 if isinstance(model, FactorialHMM) else 6  # sequences: far fewer that are independent
    assert np.all(
        np.abs(drawn.mean(axis=0) - again.mean(axis=0)) < wide * spread
    ) and not np.array_equal(drawn, again)
    other = learned(clone(model), drawn)
    assert (
        model.score(again) > other.score(again) - 0.05
        and abs(model.score(drawn) - model.score(again)) < 0.3
    )


MIXTURES = {
    **{f"Gaussians, {kind}": GaussianMixture(3, covariance_type=kind) for kind in KINDS},
    "factors": MixtureOfFactorAnalyzers(3, 1, noise=Noise(added=0.01)),
    "isotropic factors": MixtureOfFactorAnalyzers(3, 2, noise=Noise("isotropic", added=0.01)),
    "directions": MixtureOfPCA(3, 1),
}


@pytest.mark.parametrize(
    "name", [name for name in MIXTURES if "Gaussians" not in name]
)  # those beside scikit-learn's: test_mixtures
def test_a_warm_start_goes_on_where_the_last_fit_ended(name):
    settings = {"tol": 0, "patience": 100, "random_state": 0}
    parts = clone(MIXTURES[name]).set_params(max_iter=4, warm_start=True, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(3):
            parts.fit(X)
        straight = (
            clone(parts).set_params(max_iter=10, warm_start=False).fit(X)
        )  # four iterations hold three M-steps
    assert np.allclose(
        parts.score_samples(X), straight.score_samples(X), rtol=1e-8, atol=1e-8
    ) and np.allclose(parts.means_, straight.means_, atol=1e-8)
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
        models = [
            learned(
                clone(MIXTURES[name]).set_params(init_params=start, n_init=8, random_state=seed),
                far,
            )
            for seed in range(2)
        ]
        assert np.isfinite(models[0].score(far)), start
        if name == "directions":  # of which one may pass through two groups
            continue
        assert (
            max(m.score(far) for m in models)
            > learned(clone(MIXTURES[name]).set_params(random_state=0), far).score(far) - 0.5
        ), start
        found = models[0].predict(far)
        if start != "random":
            assert len({(a, b) for a, b in zip(group, found)}) == 3, start
    with pytest.raises(ValueError, match="init_params"):
        clone(MIXTURES[name]).set_params(init_params="nearest").fit(far)


# ── weights, starts, blocks, courses
# ─────────────────────────────────────────────────────────────────────────────────────────


def quantizer(d=2, k=3, **settings):
    return FactorialVectorQuantizer(
        d, k, **{"random_state": 0, "n_init": 2, "n_jobs": 1} | settings
    )


MANIFOLDS = {
    "factors": MixtureOfFactorAnalyzers(2, 2, random_state=0, n_jobs=1),
    "equal noise": MixtureOfFactorAnalyzers(2, 2, noise="isotropic", random_state=0, n_jobs=1),
    "directions": MixtureOfPCA(2, 2, random_state=0, n_jobs=1),
    "hard": MixtureOfPCA(2, 2, responsibilities="hard", random_state=0, n_jobs=1),
}
HEAPS, PAIRS = blobs(60), test_factorial.BASE
WEIGHED = {  # an estimator, its examples, and how near scores and parameters must be
    **{
        f"Gaussians, {kind}": (
            GaussianMixture(
                2, covariance_type=kind, means_init=HEAPS[[1, 2]], tol=1e-9, random_state=0
            ),
            HEAPS,
            1e-5,
            1e-5,
        )
        for kind in KINDS
    },
    **{
        name: (
            clone(model).set_params(n_components=1, tol=1e-6, acceleration="squarem"),
            HEAPS,
            1e-4,
            1e-8,
        )
        for name, model in MANIFOLDS.items()
    },
    **{
        f"quantizer, {settings}": (quantizer(tol=1e-6, **settings), PAIRS, 1e-5, 1e-6)
        for settings in (
            {},
            {"e_step": "mean_field"},
            {"e_step": "truncated", "priors": "learned"},
            {"init": "points"},
            {"init": "random"},
        )
    },
}


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_are_repetitions(name):
    model, X, near, nearer = WEIGHED[name]
    w = np.arange(60) % 3
    weighed, place = (
        learned(model, X, sample_weight=w),
        "components_" if "quantizer" in name else "means_",
    )
    for other in (
        learned(model, np.repeat(X, w, axis=0)),
        *(learned(model, X, sample_weight=scale * w) for scale in (1e-200, 1e307)),
    ):
        assert np.allclose(
            weighed.score_samples(X), other.score_samples(X), atol=near
        ) and np.isclose(weighed.lower_bound_, other.lower_bound_)
        assert np.allclose(getattr(weighed, place), getattr(other, place), atol=nearer)


FIXED = {
    name: {"temperature": 1.0} if isinstance(model, MixtureOfPCA) else {"noise": Noise(added=0.01)}
    for name, model in MANIFOLDS.items()
}
STARTS = {
    **{
        f"Gaussians, {kind}": (GaussianMixture(3, covariance_type=kind, n_jobs=1), blobs(200, 4))
        for kind in KINDS
    },
    **{
        name: (clone(model).set_params(n_components=3, **FIXED[name]), blobs(200, 6))
        for name, model in MANIFOLDS.items()
    },
}


@pytest.mark.parametrize("name", STARTS)
def test_stacked_starts_are_those_one_by_one(name):
    model, X = STARTS[name]
    chance = np.random.RandomState(0)
    alone = [
        clone(model).set_params(random_state=chance, init_params="random").fit(X) for _ in range(4)
    ]
    stacked = (
        clone(model)
        .set_params(random_state=np.random.RandomState(0), init_params="random", n_init=4)
        .fit(X)
    )
    best = max(alone, key=lambda one: one.lower_bound_)
    assert len({round(one.lower_bound_, 6) for one in alone}) > 1
    assert (
        np.isclose(stacked.lower_bound_, best.lower_bound_, rtol=1e-9)
        and stacked.n_iter_ == best.n_iter_
    )
    assert np.allclose(stacked.means_, best.means_) and np.allclose(
        stacked.score_samples(X), best.score_samples(X)
    )


SILENT = [
    *(
        GaussianMixture(2, covariance_type=kind, init_params=init, tol=1e-8, random_state=0)
        for kind in ("full", "diag")
        for init in ("kmeans", "k-means++", "random", "random_from_data")
    ),
    *(MixtureOfFactorAnalyzers(2, 1, random_state=seed) for seed in range(2)),
]


@together("model", SILENT)
def test_examples_without_weight_have_no_say_in_the_start(model):
    rng = np.random.default_rng(model.random_state)
    far = np.concatenate([rng.normal(c, 0.1, (30, 3)) for c in (-3.0, 0.0, 100.0)])
    found = clone(model).fit(far, sample_weight=np.repeat([1.0, 1.0, 0.0], 30))
    assert np.allclose(np.sort(found.means_[:, 0]), [-3, 0], atol=0.2)


@together(
    "model",
    [
        GaussianMixture(20, reg_covar=0.1),
        GaussianMixture(20, covariance_type="diag", reg_covar=0.1),
        MixtureOfFactorAnalyzers(20, 5),
    ],
)
def test_densities_do_not_depend_on_how_examples_are_cut_into_blocks(model, monkeypatch):
    many = blobs(300)
    model = learned(clone(model).set_params(max_iter=5, random_state=0), many)
    whole = model.score_samples(many)
    monkeypatch.setattr(type(model._fitted()[0]), "block_rows", lambda *_: 64)
    assert np.allclose(model.score_samples(many), whole) and np.allclose(
        whole, np.concatenate([model.score_samples(x[None]) for x in many])
    )


COURSES = {
    **{
        name: (clone(model).set_params(n_components=3), blobs(200, 6))
        for name, model in MANIFOLDS.items()
    },
    **{
        f"quantizer, {settings}": (
            quantizer(3, 3, **settings),
            test_factorial.sums(100, 6, (3, 3))[0],
        )
        for settings in (
            {},
            {"priors": "learned"},
            {"noise": 0.5},
            {"ridge": 0.01},
            {"init": "random"},
            {"init": "points"},
        )
    },
}


@pytest.mark.parametrize("name", COURSES)
def test_the_objective_rises_and_ends_at_the_best(name):
    model, X = COURSES[name]
    model = learned(model, X)
    path = model.history_["objective"]
    assert len(path) == model.n_iter_ == len(model.history_["log_likelihood"]) and model.converged_
    assert np.all(np.diff(path) > -1e-8 * np.abs(path[:-1])) and np.isclose(
        path.max() / len(X), model.lower_bound_
    )
