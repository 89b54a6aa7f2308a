"""What every model promises: sums add up, weights count, stacked problems are problems alone, EM
never lowers what it maximises, other types and libraries give the same; and every density: as many
free parameters as it has directions, criteria, samples, starts.
"""

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

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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
    for xp in filter(None, (library.values[0] for library in other_namespaces())):
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
            assert np.allclose(model.recognition(there)[0], model.recognition(parameters)[0])


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
    variance = np.full_like(start.means, start.covariances.mean(axis=(1, 2), keepdims=True))
    start = start._replace(covariances=variance, precisions_cholesky=variance**-0.5)
    return _EqualSpheres("spherical"), start, data


def random_manifolds(seed, **shared):
    settings = test_factor_analysis.settings_of(seed)
    return test_factor_analysis.problem(seed, **shared, **settings)


def shared_manifolds(seed):
    "Components with one covariance"
    noise = ("diagonal", "isotropic")[seed % 2]
    model, start, data = random_manifolds(seed, noise=noise, tied=True)
    loadings, log_noise = (
        np.repeat(leaf[:, :1], start.means.shape[1], axis=1)
        for leaf in (start.loadings, start.log_noise)
    )
    return model, start._replace(loadings=loadings, log_noise=log_noise), data


def random_chains(seed, e_step):
    rng = np.random.default_rng(seed)
    d, k, p, T = (int(rng.integers(*n)) for n in ((1, 4), (2, 4), (1, 5), (2, 9)))
    scale = rng.choice([1e-3, 1, 1e3])
    start = test_factorial_hmm.random_parameters(rng, d, k, p, s=2, scale=scale)
    Y = scale * (rng.normal(size=(5, T, p)) + 2 * rng.integers(0, 3, (5, T, 1)))
    lengths = rng.integers(1, T + 1, 5)
    sweeps = {"n_sweeps": int(rng.integers(1, 4))} if e_step == "mean_field" else {}
    model = FactorialChains(
        e_step, floor=scale**2 * rng.choice([0, 0.5]), sequences=(5, T, d, k), **sweeps
    )
    return model.with_memory(model.warm_starts(2)), start, (Y, lengths, np.arange(5))


def random_vectors(seed, e_step):
    rng = np.random.default_rng(seed)
    sizes = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    learned = {"noise": "learned", "priors": "learned", "n_examples": 40}
    model = FactorialVectorModel(*sizes, e_step, **learned)
    y = 2 * rng.normal(size=(40, 3))
    start = model.initialise(y, 3, seed)
    return model.with_memory(model.warm_starts(3)), start, (y, None, np.arange(len(y)))


def random_means(seed):
    rng = np.random.default_rng(seed)
    K, D = (int(rng.integers(*n)) for n in ((1, 6), (1, 8)))
    noise = None if seed % 2 else float(rng.uniform(0.3, 2))
    settings = rng.normal(), rng.choice([0.0, 1.0]), [None, 1, 2][seed % 4 % 3], noise
    start = _Means(2 * rng.normal(size=(2, K, D)), np.full(2, noise or 1.0))
    model = GaussianCompositions(RULES[seed % 3], *settings)
    return model, start, (2 * rng.normal(size=(40, D)), None)


RANDOM = {  # a random problem for each seed, and how many of them
    "capsules": (capsules, 100),
    "capsules, expanded": (lambda seed: capsules(seed, True), 40),
    "capsules, dropout": (test_penalties.with_dropout, 30),
    "capsules, lasso": (test_penalties.with_norms, 36),
    "Gaussians": (lambda seed: random_gaussians(seed, "full"), 60),
    "Gaussians, diagonal": (lambda seed: random_gaussians(seed, "diag"), 60),
    "Gaussians, one variance": (spheres, 60),
    "manifolds": (random_manifolds, 100),
    "manifolds, one covariance": (shared_manifolds, 100),
    "chains": (lambda seed: random_chains(seed, "exact"), 40),
    "chains, mean field": (lambda seed: random_chains(seed, "mean_field"), 40),
    "vectors": (lambda seed: random_vectors(seed, "exact"), 20),
    "vectors, mean field": (lambda seed: random_vectors(seed, "mean_field"), 20),
    "means": (random_means, 60),
}
REVIVED = {  # whether a component is about to be revived, which is no EM step
    "Gaussians": lambda sums: np.any(sums.mass < 1e-6 * sums.weight[:, None]),
    "manifolds": lambda sums: np.any(_halves(sums.mass)[1] < 1),
}


@pytest.mark.parametrize("name", RANDOM)
def test_em_never_lowers_what_it_maximises(name):
    make, count = RANDOM[name]
    revived = REVIVED.get(name.split(",")[0], lambda sums: False)
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
KINDS = ("full", "tied", "diag", "spherical")
NOISES = ("diagonal", "isotropic")
CASES = {
    **{f"Gaussians, {kind}": (GaussianMixture(2, covariance_type=kind), X) for kind in KINDS},
    "one Gaussian": (GaussianMixture(), X),
    **{
        f"factors, {noise}, {r}{', shared' * tied}": (
            MixtureOfFactorAnalyzers(2, r, noise=noise, tied=tied),
            np.c_[X, X[::-1, :2]],
        )
        for noise in NOISES
        for r, tied in ((1, False), (2, False), (1, True))
    },
    "quantizer": (FactorialVectorQuantizer(2, 3), X),
    "quantizer with priors": (FactorialVectorQuantizer(2, 2, priors="learned"), X),
    "quantizer of known noise": (FactorialVectorQuantizer(1, 3, noise=1.0), X),
    "quantizer of bits": (FactorialVectorQuantizer(1, 2, observable="bernoulli"), BITS),
    "quantizer of counts": (
        FactorialVectorQuantizer(1, 2, observable="poisson", priors="learned"),
        COUNTS,
    ),
    "chains": (FactorialHMM(2, 2, n_init=2), X),
    "one chain": (FactorialHMM(1, 3, n_init=2), X),
}
LENGTHS = np.full(60, 4)


def shares(logs):
    return np.exp(logs) / np.exp(logs).sum(axis=-1, keepdims=True)


def coordinates(model):
    """The parameters: for each its name, coordinates that may take any value, and what makes the
    parameter of them.

    Distributions are normalised exponentials; covariances A Aᵀ; variances exponentials. There are
    more coordinates than free parameters.
    """
    held = vars(model).keys()
    distributions = held & {"initial_", "transitions_"}
    if getattr(model, "priors", "learned") == "learned":
        distributions |= held & {"priors_"}
    numbers = held & {"means_", "components_", "intercept_"}
    (numbers if isinstance(model, FactorialHMM) else distributions).update(held & {"weights_"})
    for name in distributions:
        yield name, np.log(getattr(model, name)), shares
    for name in numbers:
        yield name, getattr(model, name), np.asarray
    if "loadings_" in held:
        G, psi = model.loadings_, model.noise_variances_
        same, flat = (1 if shared else None for shared in (model.tied, model.noise == "isotropic"))
        yield "loadings_", G[:same], lambda new: np.zeros_like(G) + new
        logs = np.log(psi[:same, :flat])
        yield "noise_variances_", logs, lambda new: np.zeros_like(psi) + np.exp(new)
    noise = getattr(model, "noise_variance_", None)
    if noise is not None and getattr(model, "noise", "learned") == "learned":
        yield "noise_variance_", np.log(noise), np.exp
    if getattr(model, "covariance_type", None) in ("full", "tied"):
        yield "covariances_", np.linalg.cholesky(model.covariances_), lambda A: A @ A.mT
    elif "covariances_" in held:
        yield "covariances_", np.log(model.covariances_), np.exp


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_counted_criteria_defined_and_samples_follow(name):
    """The rank of the derivatives of the log-densities of many examples is the number of parameters
    that matter. The mean log-density of samples is that of other samples, and greater than that of
    another density.
    """
    model, X = CASES[name]
    chains = isinstance(model, FactorialHMM)
    model = clone(model).set_params(random_state=0, max_iter=20)
    model.fit(X, **{"lengths": LENGTHS} if chains else {})
    n = model.n_parameters_
    for lengths in [(), (LENGTHS,)][: 1 + chains]:
        total = np.sum(model.score_samples(X, *lengths))
        assert np.isclose(model.aic(X, *lengths), 2 * n - 2 * total)
        assert np.isclose(model.bic(X, *lengths), n * np.log(len(X)) - 2 * total)
    drawn, again = (copy(model).set_params(random_state=k).sample(4000)[0] for k in (1, 2))
    assert drawn.shape == (4000, X.shape[1]) and not np.array_equal(drawn, again)
    spread = np.sqrt(2 * drawn.var(axis=0) / 4000) + 1e-12
    wide = 40 if chains else 6  # sequences: far fewer that are independent
    assert np.all(np.abs(drawn.mean(axis=0) - again.mean(axis=0)) < wide * spread)
    assert model.score(again) > clone(model).fit(drawn).score(again) - 0.05
    assert abs(model.score(drawn) - model.score(again)) < 0.3
    if "bits" in name or "counts" in name:
        axes = [np.arange(2 if "bits" in name else 6.0)] * 3
        X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
    h, J = 1e-5, []
    for parameter, values, link in coordinates(model):
        for step in h * np.eye(np.size(values)):
            ends = []
            for end in (step, -step):
                moved = copy(model)
                setattr(moved, parameter, link(values + end.reshape(np.shape(values))))
                if parameter == "covariances_":
                    moved.precisions_cholesky_ = _compute_precision_cholesky(
                        moved.covariances_, model.covariance_type
                    )
                ends.append(moved.score_samples(X, *lengths))
            J.append((ends[0] - ends[1]) / (2 * h))
    J = np.transpose(J) / np.maximum(np.linalg.norm(J, axis=1), 1e-6)
    singular = np.linalg.svd(J, compute_uv=False)
    assert np.sum(singular > 1e-6 * singular[0]) == n < len(X), singular
    if isinstance(model, GaussianMixture):
        peer = Peer(model.n_components, covariance_type=model.covariance_type, random_state=0)
        assert n == peer.fit(X)._n_parameters()


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
    for _ in range(3):
        parts.fit(X)
    # four iterations hold three M-steps
    straight = clone(parts).set_params(max_iter=10, warm_start=False).fit(X)
    assert np.allclose(parts.score_samples(X), straight.score_samples(X), rtol=1e-8, atol=1e-8)
    assert np.allclose(parts.means_, straight.means_, atol=1e-8)
    for inputs, k in ((X[:, :2], 3), (X, 2)):
        with pytest.raises(ValueError, match="warm_start goes on from the last fit"):
            parts.set_params(n_components=k).fit(inputs)


@pytest.mark.parametrize("name", MIXTURES)
def test_starts_find_far_groups_are_stacked_and_heed_weights(name):
    def learned(data, seed=0, **settings):
        return clone(MIXTURES[name]).set_params(random_state=seed, **settings).fit(data)

    group = np.arange(90) % 3
    far = np.array([[0, 0, 0], [40.0, 0, 0], [0, 40, 0]])[group]
    far += np.random.default_rng(0).standard_normal((90, 3))
    usual = learned(far).score(far)
    for start in ("kmeans", "k-means++", "random_from_data", "random"):
        models = [learned(far, seed, init_params=start, n_init=8) for seed in range(2)]
        assert np.isfinite(models[0].score(far)), start
        if name != "directions":  # of which one may pass through two groups
            assert max(m.score(far) for m in models) > usual - 0.5, start
            pairs = set(zip(group, models[0].predict(far)))
            assert len(pairs) == 3 or start == "random", start
    chance = {"init_params": "random", "n_jobs": 1, "max_iter": 100}
    if name == "directions":
        chance["temperature"] = 1.0
    one_by_one, data = np.random.RandomState(0), blobs(200, 4)
    alone = [learned(data, one_by_one, n_init=1, **chance) for _ in range(4)]
    stacked = learned(data, np.random.RandomState(0), n_init=4, **chance)
    best = max(alone, key=lambda one: one.lower_bound_)
    assert len({round(one.lower_bound_, 6) for one in alone}) > 1
    assert np.isclose(stacked.lower_bound_, best.lower_bound_, rtol=1e-9)
    assert stacked.n_iter_ == best.n_iter_ and np.allclose(stacked.means_, best.means_)


@together(
    "model",
    [
        *(
            GaussianMixture(2, covariance_type=kind, init_params=init, tol=1e-8, random_state=0)
            for kind in ("full", "diag")
            for init in ("kmeans", "k-means++", "random", "random_from_data")
        ),
        *(MixtureOfFactorAnalyzers(2, 1, random_state=seed) for seed in range(2)),
    ],
)
def test_examples_without_weight_have_no_say_in_the_start(model):
    rng = np.random.default_rng(model.random_state)
    far = np.concatenate([rng.normal(c, 0.1, (30, 3)) for c in (-3.0, 0.0, 100.0)])
    found = clone(model).fit(far, sample_weight=np.repeat([1.0, 1.0, 0.0], 30))
    assert np.allclose(np.sort(found.means_[:, 0]), [-3, 0], atol=0.2)


MANY = GaussianMixture(20, reg_covar=0.1)


@together(
    "model", [MANY, clone(MANY).set_params(covariance_type="diag"), MixtureOfFactorAnalyzers(20, 5)]
)
def test_densities_do_not_depend_on_how_examples_are_cut_into_blocks(model, monkeypatch):
    many = blobs(300)
    model = clone(model).set_params(max_iter=5, random_state=0).fit(many)
    whole = model.score_samples(many)
    monkeypatch.setattr(type(model._fitted()[0]), "block_rows", lambda *_: 64)
    assert np.allclose(model.score_samples(many), whole)
    assert np.allclose([model.score_samples(x[None])[0] for x in many[::5]], whole[::5])
