"""What every model promises: sums add up, weights count, stacked problems are problems alone, EM
never lowers what it maximises, other types and libraries give the same; and every density: as many
free parameters as it has directions, criteria, samples, starts.
"""

import warnings
from copy import copy
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_composition
import test_em
import test_factor_analysis
import test_factorial_hmm
import test_factorial_model
import test_mixtures
import test_penalties
from conftest import blobs, together
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky
from test_em import other_namespaces

from capslit import (
    FactorialHMM,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
    em,
)
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.composition.gaussian import RULES, GaussianCompositions, _Means
from capslit.deeper.patches import _EqualSpheres
from capslit.em.stack import Running
from capslit.factorial.chains import FactorialChains
from capslit.factorial.model import FactorialVectorModel
from capslit.mixtures.factor_analysis import _halves
from capslit.mixtures.gaussian import Mixtures

strict = pytest.mark.filterwarnings("error::RuntimeWarning")


class Case(NamedTuple):
    """A model, parameters of three stacked problems, and data; tolerances of sums of parts and of
    stacks.
    """

    model: Any
    parameters: Any
    data: tuple
    close: float = 1e-10
    alone: float = 1e-9


def gaussians(kind):
    start, data = test_mixtures.problem(3, kind, k=3, weighted=True)
    return Case(Mixtures(kind, reg_covar=1e-3), start, data, alone=1e-10)


def manifolds(noise, hard=False):
    settings = {"k": 3, "n": 90, "weighted": True, "tangents": True, "hard": hard, "added": 0.1}
    return Case(*test_factor_analysis.problem(3, noise, **settings))


def vectors(e_step):
    model, parameters, y = test_factorial_model.problem(1, q=3, n=60, d=3, k=3, inference=e_step)
    times = np.random.default_rng(0).integers(0, 4, 60).astype(float)
    return Case(model, parameters, (y, times, np.arange(60)))


def chains(model):
    rng = np.random.default_rng(3)
    parameters = test_factorial_hmm.random_parameters(rng, 2, 3, 2, s=3)
    data = rng.normal(size=(6, 7, 2)), np.array([7, 3, 1, 5, 7, 2]), None
    return Case(model, parameters, data, 1e-6, 1e-6)


def templates(rule, transforms):
    X, one = test_composition.problem()
    others = [test_composition.problem(seed)[1] for seed in (3, 4)]
    stack = test_composition.stacked(one, *others)
    return Case(test_composition.make(rule, transforms), stack, (X, None), alone=0)


def means(rule):
    rng = np.random.default_rng(0)
    start = _Means(2 * rng.normal(size=(3, 4, 5)), np.ones(3))
    return Case(GaussianCompositions(rule), start, (2 * rng.normal(size=(60, 5)), None))


SMOOTH = {  # that take other libraries and single precision
    **{f"Gaussians, {kind}": (gaussians, kind) for kind in test_mixtures.TYPES},
    **{f"manifolds, {noise}": (manifolds, noise) for noise in test_factor_analysis.NOISES},
    "manifolds, hard": (manifolds, test_factor_analysis.NOISES[0], True),
}
MOVES = {"fixed": None, "shifts": test_composition.SHIFTS, "turns": test_composition.TURNS}
STACKS = SMOOTH | {
    **{f"vectors, {name}": (vectors, e) for name, e in test_factorial_model.E_STEPS.items()},
    "chains": (chains, FactorialChains()),
    "chains, mean field": (chains, FactorialChains("mean_field", n_sweeps=500, sweep_tol=0)),
    **{f"templates, {name}": (templates, "maximum", moves) for name, moves in MOVES.items()},
    "templates, turns, max_minus_min": (templates, "max_minus_min", MOVES["turns"]),
    **{f"means, {rule}": (means, rule) for rule in RULES},
}


def case(name):
    make, *arguments = STACKS[name]
    return make(*arguments)


def part(data, rows):
    return tuple(None if a is None else a[rows] for a in data)


def assert_close(found, wanted, rtol, atol=None):
    for leaf, a, b in zip(wanted._fields, found, wanted):
        assert np.allclose(a, b, rtol=rtol, atol=rtol if atol is None else atol), leaf


@strict
@pytest.mark.parametrize("name", STACKS)
def test_sums_add_up_weights_count_and_stacks_are_problems_alone(name):
    model, parameters, data, close, alone = case(name)
    whole, n = model.e_step(parameters, data), len(data[0])
    cuts = slice(n // 2, n), slice(0, 1), slice(1, n // 2)
    parts = [model.e_step(parameters, part(data, rows)) for rows in cuts]
    assert_close(reduce(em.add, parts), whole, close)
    backwards = model.e_step(parameters, part(data, slice(None, None, -1)))
    assert_close(backwards, whole, max(close, 1e-9))
    if name.split(",")[0] not in ("chains", "means", "templates"):
        times = np.random.default_rng(0).integers(0, 4, n)
        weighed = model.e_step(parameters, (data[0], times.astype(float), *data[2:]))
        x, _, *more = part(data, np.repeat(np.arange(n), times))
        assert_close(model.e_step(parameters, (x, None, *more)), weighed, 1e-10)
        if name in SMOOTH:  # without priors that count as examples
            light = model.e_step(parameters, (data[0], 1e-14 * times, *data[2:]))
            scaled = model.m_step(parameters, light)
            assert_close(scaled, model.m_step(parameters, weighed), 1e-5, 1e-8)
    rounds = {"rounds": [em.Round(9)], "max_iter": 9, "n_threads": 1}
    together = em.fit(model, parameters, data, **rounds).history["objective"]
    for q in range(3):
        one = Running(np.arange(3) == q).select(model)
        own = type(parameters)(*(leaf[q : q + 1] for leaf in parameters))
        sums = type(whole)(*(leaf[q : q + 1] for leaf in whole))
        assert_close(one.e_step(own, data), sums, alone)
        path = em.fit(one, own, data, **rounds).history["objective"][:, 0]
        assert np.allclose(path, together[: len(path), q], rtol=alone, atol=0)


@strict
@pytest.mark.parametrize("name", SMOOTH)
def test_other_libraries_and_single_precision_agree_with_numpy(name):
    model, parameters, data, *_ = case(name)
    rounds = {"rounds": [em.Round(8)], "max_iter": 8, "n_threads": 1}
    ours = em.fit(model, parameters, data, **rounds)
    narrow = tuple(None if a is None else a.astype(np.float32) for a in data)
    single = em.fit(model, parameters, narrow, **rounds)
    atol = 1e-2 if name.startswith("Gaussians") else 1e-8
    path = ours.history["objective"]
    assert np.allclose(single.history["objective"], path, rtol=1e-4, atol=atol)
    assert single.parameters.means.dtype == np.float64
    for xp in (library.values[0] for library in other_namespaces()):
        if xp is None:  # not installed
            continue
        there = type(parameters)(*map(xp.asarray, parameters))
        for given in (data, (data[0], *[None] * (len(data) - 1))):
            ours = em.fit(model, parameters, given, **rounds)
            moved = tuple(None if a is None else xp.asarray(a) for a in given)
            run = em.fit(model, there, moved, **rounds)
            assert type(run.parameters.means) is type(there.means)
            assert np.allclose(run.history["objective"], ours.history["objective"], rtol=1e-8)
            found = type(parameters)(*map(np.asarray, run.parameters))
            assert_close(found, ours.parameters, 1e-6, 1e-8)
        if hasattr(model, "recognition"):
            found = np.asarray(model.recognition(there)[0])
            assert np.allclose(found, model.recognition(parameters)[0])


# ── EM never lowers what it maximises: random problems, one iteration at a time


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


def random_gaussians(seed, kind):
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


def random_manifolds(seed):
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


def random_chains(seed, e_step):
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


def random_vectors(seed, e_step):
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


def random_means(seed):
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


def is_light(statistics):
    "Whether a component is about to be revived, which is no EM step."
    return np.any(statistics.mass < 1e-6 * statistics.weight[:, None])


def is_half(statistics):
    return np.any(_halves(statistics.mass)[1] < 1)


def never(statistics):
    return False


RANDOM = {  # a random problem for each seed, how many of them, and when a component is revived
    "capsules": (capsules, 100, never),
    "capsules, expanded": (lambda seed: capsules(seed, True), 40, never),
    "capsules, dropout": (test_penalties.with_dropout, 30, never),
    "capsules, lasso": (test_penalties.with_norms, 36, never),
    "Gaussians": (lambda seed: random_gaussians(seed, "full"), 60, is_light),
    "Gaussians, diagonal": (lambda seed: random_gaussians(seed, "diag"), 60, is_light),
    "Gaussians, one variance": (spheres, 60, is_light),
    "manifolds": (random_manifolds, 100, is_half),
    "manifolds, one covariance": (shared_manifolds, 100, is_half),
    "chains": (lambda seed: random_chains(seed, "exact"), 40, never),
    "chains, mean field": (lambda seed: random_chains(seed, "mean_field"), 40, never),
    "vectors": (lambda seed: random_vectors(seed, "exact"), 20, never),
    "vectors, mean field": (lambda seed: random_vectors(seed, "mean_field"), 20, never),
    "means": (random_means, 60, never),
}


@pytest.mark.parametrize("name", RANDOM)
def test_em_never_lowers_what_it_maximises(name):
    make, count, revived = RANDOM[name]
    collapsed = 0
    for seed in range(count):
        model, parameters, data = make(seed)
        path, unit = [], data[0].size
        for _ in range(12):
            statistics = model.e_step(parameters, data)
            now = getattr(statistics, "bound", model.objective(parameters, statistics))
            assert np.all(np.isfinite(now)), seed
            if path:
                assert np.all(now >= path[-1] - 1e-9 * (np.abs(now) + unit)), seed
            path = [] if revived(statistics) else [*path, now]
            try:
                parameters = model.m_step(parameters, statistics)
            except ValueError as error:  # collapsed: the likelihood has no maximum
                assert "raise reg_covar" in str(error)
                collapsed += 1
                break
        assert len(path) < 3 or np.any(path[-1] > path[0]), seed
    assert collapsed < count / 4  # the others are full courses


# ── densities


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


def learned(model, X, seed=None, **options):
    "A clone that has learned; a generator is shared, not cloned."
    made = clone(model) if seed is None else clone(model).set_params(random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return made.fit(X, **options)


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


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_counted_criteria_defined_and_samples_follow(name, fitted):
    """The rank of the derivatives of the log-densities of many examples is the number of parameters
    that matter. The mean log-density of samples is that of other samples, and greater than that of
    another density.
    """
    model, X = fitted(name)
    n = model.n_parameters_
    given = [(), (LENGTHS,)] if isinstance(model, FactorialHMM) else [()]
    for lengths in given:
        total = np.sum(model.score_samples(X, *lengths))
        assert np.isclose(model.aic(X), 2 * n - 2 * total) or lengths
        assert np.isclose(model.bic(X, *lengths), n * np.log(len(X)) - 2 * total)
    drawn, again = (copy(model).set_params(random_state=k).sample(4000)[0] for k in (1, 2))
    assert drawn.shape == (4000, X.shape[1]) and not np.array_equal(drawn, again)
    spread = np.sqrt(2 * drawn.var(axis=0) / 4000) + 1e-12
    wide = 40 if isinstance(model, FactorialHMM) else 6  # sequences: far fewer that are independent
    assert np.all(np.abs(drawn.mean(axis=0) - again.mean(axis=0)) < wide * spread)
    assert model.score(again) > learned(model, drawn).score(again) - 0.05
    assert abs(model.score(drawn) - model.score(again)) < 0.3
    if "bits" in name or "counts" in name:
        axes = [np.arange(2 if "bits" in name else 6.0)] * 3
        X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
    h = 1e-5
    steps = h * np.eye(moved(model, np.zeros(0))[1])

    def scores(step):
        return moved(model, step)[0].score_samples(X, *given[-1])

    J = np.stack([(scores(step) - scores(-step)) / (2 * h) for step in steps], axis=1)
    J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-6)
    singular = np.linalg.svd(J, compute_uv=False)
    assert np.sum(singular > 1e-6 * singular[0]) == n < len(X), singular
    if isinstance(model, GaussianMixture):
        peer = Peer(model.n_components, covariance_type=model.covariance_type, random_state=0)
        assert n == learned(peer, X)._n_parameters()


MIXTURES = {
    **{f"Gaussians, {kind}": GaussianMixture(3, covariance_type=kind) for kind in KINDS},
    "factors": MixtureOfFactorAnalyzers(3, 1, noise=Noise(added=0.01)),
    "isotropic factors": MixtureOfFactorAnalyzers(3, 2, noise=Noise("isotropic", added=0.01)),
    "directions": MixtureOfPCA(3, 1),
}


@together("name", ["factors", "isotropic factors", "directions"])  # others: test_mixtures
def test_a_warm_start_goes_on_where_the_last_fit_ended(name):
    settings = {"tol": 0, "patience": 100, "random_state": 0}
    parts = clone(MIXTURES[name]).set_params(max_iter=4, warm_start=True, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(3):
            parts.fit(X)
    # four iterations hold three M-steps
    straight = learned(clone(parts).set_params(max_iter=10, warm_start=False), X)
    assert np.allclose(parts.score_samples(X), straight.score_samples(X), rtol=1e-8, atol=1e-8)
    assert np.allclose(parts.means_, straight.means_, atol=1e-8)
    with pytest.raises(ValueError, match="warm_start goes on from the last fit"):
        parts.fit(X[:, :2])
    with pytest.raises(ValueError, match="warm_start goes on from the last fit"):
        parts.set_params(n_components=2).fit(X)


@pytest.mark.parametrize("name", MIXTURES)
def test_starts_find_far_groups_are_stacked_and_heed_weights(name):
    group = np.arange(90) % 3
    far = np.array([[0, 0, 0], [40.0, 0, 0], [0, 40, 0]])[group]
    far += np.random.default_rng(0).standard_normal((90, 3))
    usual = learned(clone(MIXTURES[name]).set_params(random_state=0), far).score(far)
    for start in ("kmeans", "k-means++", "random_from_data", "random"):
        settings = {"init_params": start, "n_init": 8}
        models = [
            learned(clone(MIXTURES[name]).set_params(random_state=seed, **settings), far)
            for seed in range(2)
        ]
        assert np.isfinite(models[0].score(far)), start
        if name != "directions":  # of which one may pass through two groups
            assert max(m.score(far) for m in models) > usual - 0.5, start
            pairs = set(zip(group, models[0].predict(far)))
            assert len(pairs) == 3 or start == "random", start
    chance = {"init_params": "random", "n_init": 1, "n_jobs": 1, "max_iter": 100}
    if name == "directions":
        chance["temperature"] = 1.0
    one_by_one = np.random.RandomState(0)
    data = blobs(200, 4)
    model = clone(MIXTURES[name]).set_params(**chance)
    alone = [learned(model, data, seed=one_by_one) for _ in range(4)]
    stacked = learned(model.set_params(n_init=4), data, seed=np.random.RandomState(0))
    best = max(alone, key=lambda one: one.lower_bound_)
    assert len({round(one.lower_bound_, 6) for one in alone}) > 1
    assert np.isclose(stacked.lower_bound_, best.lower_bound_, rtol=1e-9)
    assert stacked.n_iter_ == best.n_iter_ and np.allclose(stacked.means_, best.means_)


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
