"""Mixtures of linear manifolds and classes by their densities, against brute force."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from conftest import blobs, classes, together
from scipy.special import log_softmax, logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import FactorAnalysis
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from capslit.mixtures import (
    ClassConditionalClassifier,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
)
from capslit.mixtures.factor_analysers import SHARES, _fifths
from capslit.mixtures.linear_manifolds import _component
from capslit.mixtures.tangents import tangent_vectors

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
DIGITS, LABELS = load_digits(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
SCALED = StandardScaler().fit_transform(IRIS)


def factors(m=2, r=2, **settings):
    return MixtureOfFactorAnalyzers(m, r, random_state=0, **settings)


def refused(call, model, message):
    "Whether a call raises an error that says this, and leaves the model as it is."
    before = pickle.dumps(vars(model))
    with pytest.raises(ValueError, match=message):
        call()
    assert pickle.dumps(vars(model)) == before


def log_joint(model, X, more_noise=0.0):
    "Log-densities (n, m) with each component, by its public attributes."
    parts = zip(model.weights_, model.means_, model.loadings_, model.noise_variances_ + more_noise)
    joint = [
        np.log(w) + multivariate_normal(mu, G @ G.T + np.diag(v)).logpdf(X) for w, mu, G, v in parts
    ]
    return np.stack(joint, axis=1)


# ── densities


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_densities_and_codes_by_definition(noise):
    X = blobs()
    model = factors(noise=noise).fit(X)
    C, means, G = model.covariances_, model.means_, model.loadings_
    joint = log_joint(model, X)
    log_p = logsumexp(joint, axis=1)
    q = np.exp(joint - log_p[:, None])
    codes = np.einsum("njp,jpr->njr", X[:, None] - means, np.linalg.solve(C, G))  # GᵀC⁻¹(x − μ)
    assert np.allclose(C, G @ G.mT + model.noise_variances_[:, :, None] * np.eye(5))
    assert np.allclose(model.score_samples(X), log_p)
    assert np.isclose(model.score(X), log_p.mean())
    assert np.allclose(model.predict_proba(X), q)
    assert np.array_equal(model.fit_predict(X), joint.argmax(axis=1))
    assert np.allclose(model.codes(X), codes)
    assert np.allclose(model.transform(X), (q[:, :, None] * codes).reshape(len(X), -1))
    assert np.allclose(model.reconstruct(X)[:, 1], means[1] + codes[:, 1] @ G[1].T)
    assert np.allclose(model.precisions_ @ C, np.eye(5), atol=1e-8)
    assert np.array_equal(model.components_[1], G[1].T)
    assert np.allclose(np.ptp(model.noise_variances_, axis=1), 0) == (noise == "isotropic")


@together("responsibilities", ["soft", "hard"])
@together("p, r", [(1, 1), (2, 1), (2, 2), (5, 2)])
def test_pca_by_definition(responsibilities, p, r):
    "The score is a log-density; that across the manifolds has no cost of codes."
    X = blobs(p=p)
    model = MixtureOfPCA(2, r, responsibilities=responsibilities, random_state=0).fit(X)
    U, v, noise = model.components_, model.temperature_, model.noise_variances_
    assert np.allclose(U @ U.mT, np.eye(r))
    inside = np.einsum("njp,jrp,jrq->njq", X[:, None] - model.means_, U, U)
    error = np.sum((X[:, None] - model.means_ - inside) ** 2, axis=2)
    assert np.allclose(np.sum((X[:, None] - model.reconstruct(X)) ** 2, axis=2), error)
    if r < p:
        assert np.array_equal(model.predict(X), error.argmin(axis=1))
    across = (np.max if responsibilities == "hard" else logsumexp)(-error / (2 * v), axis=1)
    across -= np.log(2) + (p - r) / 2 * np.log(2 * np.pi * v)
    assert np.allclose(model.score_across(X), across)
    assert np.isclose(model.weights_.sum(), 1)
    spread = model.explained_variances_ - noise[:, None]
    C = U.mT * spread[:, None] @ U + noise[:, None, None] * np.eye(p)
    parts = zip(model.weights_, model.means_, C)
    joint = [np.log(w) + multivariate_normal(mu, S).logpdf(X) for w, mu, S in parts]
    assert np.allclose(model.score_samples(X), logsumexp(joint, axis=0))


def test_variances_of_one_pca_are_eigenvalues_and_few_may_be_enough():
    X = blobs(200) * [10, 1, 1, 0.1, 0.1]
    values = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1]
    model = MixtureOfPCA(1, 3, random_state=0).fit(X)
    assert np.allclose(model.explained_variances_[0], values[:3])
    assert np.allclose(model.noise_variances_[0], values[3:].mean())
    drawn = np.cov(model.sample(40_000)[0].T)
    assert np.allclose(np.linalg.eigvalsh(drawn)[:1:-1], values[:3], rtol=0.05)
    model = MixtureOfPCA(1, 4, explained_variance=0.9).fit(X)
    needed = int(np.searchsorted(np.cumsum(values) / values.sum(), 0.9)) + 1
    assert np.count_nonzero(model.explained_variances_) == needed < 4
    assert not np.any(model.components_[0, needed:])
    assert model.transform(X).shape == (200, 4)
    assert not np.any(model.transform(X)[:, needed:])


@together("r", [1, 2, 4, 5])
def test_a_component_starts_as_probabilistic_pca(r):
    """Tipping and Bishop: the noise is the mean of the p − r eigenvalues left over, and loadings
    have the others less the noise.
    """
    X, floor = blobs(40) @ np.diag([5.0, 3, 2, 1, 0.5]), 1e-3
    values, axes = np.linalg.eigh(np.cov(X.T, ddof=0))
    values, axes = values[::-1], axes[:, :-6:-1]
    noise = (np.mean(values[r:]) if r < 5 else 0) + floor
    mean, loadings, variances = _component(X, np.ones(len(X)), None, r, floor)
    expected = axes[:, :r] * (values[:r] - noise) @ axes[:, :r].T
    left = X.var(axis=0) - np.sum(loadings**2, axis=1)
    assert np.allclose(mean, X.mean(axis=0))
    assert np.allclose(loadings @ loadings.T, expected, atol=1e-8)
    assert np.allclose(variances, np.maximum(left, noise / 10))


def test_tangents_turn_the_directions():
    images = DIGITS[LABELS == 1]
    tangents = tangent_vectors(images.reshape(-1, 8, 8))
    left = []
    for scale in (0, 2):
        U = MixtureOfPCA(1, 6).fit(images, tangents=scale * tangents).components_[0]
        left.append(np.sum((tangents - tangents @ U.T @ U) ** 2))
    assert left[1] < 0.8 * left[0]
    plain, taught = factors(2, 3).fit(images), factors(2, 3).fit(images, tangents=tangents)
    assert taught.score(images) < plain.score(images)


# ── starts, courses, noise


@together("model", [factors(), MixtureOfPCA(2, 2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_starts_that_are_given(model):
    X = blobs(90)
    means = np.stack([X[:30].mean(axis=0), X[30:].mean(axis=0)])
    model = clone(model).set_params(means_init=means, max_iter=1)
    first = clone(model).fit(X)
    assert np.allclose(first.means_, means, atol=1.0)
    for settings in ({}, {"n_components": 1, "means_init": None}):  # nothing is drawn: one start
        one, same = (
            clone(model).set_params(**settings, random_state=seed, n_init=n).fit(X)
            for seed, n in ((0, 1), (1, 3))
        )
        assert np.array_equal(one.transform(X), same.transform(X))
    if isinstance(model, MixtureOfFactorAnalyzers):
        tilted = clone(model).set_params(weights_init=[0.999, 0.001]).fit(X)
        assert tilted.weights_[0] > first.weights_[0]


def test_starts_that_are_given_and_what_is_left_open():
    "Means are given in the units of X, also where several amounts of noise are tried."
    X = blobs(90)
    means = np.stack([X[:30].mean(axis=0), X[30:].mean(axis=0)])
    for name, value in (("means_init", means), ("weights_init", [0.5, 0.5])):
        for stacked in (False, True):
            model = factors("auto", 1, stacked=stacked).set_params(**{name: value})
            message = f'{name} must be None where n_components is "auto"'
            refused(lambda: model.fit(X), model, message)
    near, far = (factors(2, 1, means_init=means + shift).fit(X + shift) for shift in (0, 64))
    assert near.added_noise_ == far.added_noise_
    assert np.isclose(near.score(X), far.score(X + 64))
    origin = X.mean(axis=0)
    trials = near._choose(X - origin, None, None, 1.0, origin)
    trial = trials.estimator(2, 1, ("diagonal", False))
    assert np.allclose(trial.means_init, means - origin)


@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
def test_accelerations_find_no_worse_and_stay_admissible(acceleration):
    X = np.c_[blobs(200), np.zeros(200)]
    settings = {"noise": Noise(added=0, minimum=0.01), "tol": 1e-5}
    plain, fast = (factors(acceleration=how, **settings).fit(X) for how in (None, acceleration))
    assert fast.lower_bound_ > plain.lower_bound_ - 1e-4 and fast.n_iter_ < plain.n_iter_
    assert abs(np.sum(fast.weights_) - 1) < 1e-12
    assert np.min(fast.noise_variances_) >= 0.01 * np.mean(np.var(X, axis=0)) * (1 - 1e-12)


def test_a_common_unit_of_noise():
    X = blobs()
    unit = np.mean(np.var(X, axis=0))
    amounts = Noise(added=0.1), Noise(added=0.1, unit=unit), Noise(added=0.05, unit=2 * unit)
    amounts[2].minimum /= 2
    plain, *others = (factors(noise=noise).fit(X).score_samples(X) for noise in amounts)
    assert np.allclose(others, plain)
    exact, noisy = factors(noise=Noise(added=0)).fit(X), factors(noise=Noise(added=0.1)).fit(X)
    assert np.isclose(exact.lower_bound_, exact.score(X), atol=1e-9)
    assert noisy.lower_bound_ < noisy.score(X)


# ── what is left open


def of_shares(fitted, X, shares=SHARES):
    "Log-densities (n, n_shares) where less noise was learned with, and more is added."
    more = [share - SHARES[0] for share in shares]
    return logsumexp([log_joint(fitted, X, noise) for noise in more], axis=2).T


def left_out(least):
    "Those of examples left out, by hand."
    found = np.empty((len(SCALED), len(SHARES)))
    for own, held in _fifths(SCALED, None):
        found[held] = of_shares(clone(least).fit(SCALED[own]), SCALED[held])
    return found


def test_noise_left_open_is_that_of_examples_left_out():
    model = factors().fit(SCALED)
    least = factors(noise=Noise(added=SHARES[0], unit=1.0))
    best = np.argmax(left_out(least).sum(axis=0))
    assert model.added_noise_ == SHARES[best]
    assert 0 < best < len(SHARES) - 1
    same = factors(noise=Noise(added=model.added_noise_)).fit(SCALED)
    assert np.array_equal(same.loadings_, model.loadings_)
    order = np.random.default_rng(0).permutation(len(SCALED))
    for X, w in ((np.tile(SCALED, (2, 1)), None), (SCALED[order], None), (SCALED, np.full(150, 2))):
        assert factors().fit(X, sample_weight=w).added_noise_ == model.added_noise_


def test_a_stack_is_the_weighted_sum_of_members_and_beats_each_on_examples_left_out():
    model = factors(2, 1, stacked=True).fit(SCALED)
    weights = np.array([member["weight"] for member in model.stack_])
    shares = [member["added_noise"] for member in model.stack_]
    least = factors(2, 1, noise=Noise(added=SHARES[0], unit=1.0))
    each = left_out(least)
    members = of_shares(least.fit(SCALED), SCALED, shares)
    assert len(weights) > 1
    assert np.isclose(weights.sum(), 1)
    assert np.allclose(model.score_samples(SCALED), logsumexp(members + np.log(weights), axis=1))
    kept = each[:, [SHARES.index(share) for share in shares]]
    total = logsumexp(kept + np.log(weights), axis=1)
    assert np.isclose(total.mean(), model.lower_bound_)
    assert total.mean() > each.mean(axis=0).max()
    ratios = np.exp(each - total[:, None]).mean(axis=0)  # no weights gain more than a nat
    assert np.log(ratios.max()) * len(SCALED) <= 1
    assert model.n_parameters_ == least.n_parameters_ + len(weights) - 1


def test_a_stack_is_saved_and_refuses_what_it_cannot_do(tmp_path, capsys):
    X = blobs(60, 3)
    model = factors(1, "auto", noise="auto", stacked=True).fit(X)
    assert capsys.readouterr().out == ""
    model.save(tmp_path / "stack.npz")
    again = MixtureOfFactorAnalyzers.load(tmp_path / "stack.npz")
    assert again.stack_ == model.stack_
    for method in ("score_samples", "predict_proba", "transform", "reconstruct"):
        assert np.array_equal(getattr(again, method)(X), getattr(model, method)(X)), method
    assert model.n_factors_ == max(member["n_factors"] for member in model.stack_)
    model.set_params(warm_start=True)
    refused(lambda: model.fit(X), model, "warm_start")
    model.set_params(warm_start=False)
    refused(lambda: model.fit(X, checkpoint=tmp_path / "c.npz"), model, "checkpoint")
    assert not hasattr(model.set_params(stacked=False).fit(X), "stack_")
    factors(1, "auto", stacked=True, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert any("left out" in line for line in lines)
    assert any(line.startswith("learned from all examples") for line in lines)
    nothing = factors(stacked=True, noise=Noise(added=0.1))
    refused(lambda: nothing.fit(X), nothing, 'nothing is "auto".*n_components="auto"')


def test_sizes_and_noise_are_chosen_where_values_are_missing():
    "Two long heaps in three dimensions, of which a fifth of the values are missing."
    rng = np.random.default_rng(0)
    heaps = rng.standard_normal((90, 1)) * [1, 1, 0] + 0.1 * rng.standard_normal((90, 3))
    heaps[:45] += [0, 0, 5]
    gappy = np.where(rng.random(heaps.shape) < 0.2, np.nan, heaps)
    alone = factors("auto", "auto").fit(gappy)
    assert alone.n_components_ == 2 and alone.n_factors_ == 1
    # the first column is nearly the second, up to noise
    filled = np.isnan(gappy[:, 0]) & ~np.isnan(gappy[:, 1])
    assert np.std((alone.impute(gappy) - heaps)[filled, 0]) < 0.25
    stacked = factors(2, "auto", stacked=True).fit(gappy)
    assert np.isclose(sum(member["weight"] for member in stacked.stack_), 1)
    assert stacked.score(heaps) > alone.score(heaps) - 0.1


def test_a_stack_of_too_few_examples_is_one_model():
    X = blobs()[:3]
    model = factors(1, "auto", noise="auto", stacked=True)
    with pytest.warns(UserWarning, match="too few distinct examples"):
        model.fit(X)
    (member,) = model.stack_
    noise = Noise(member["noise"], member["added_noise"])
    alone = factors(1, member["n_factors"], noise=noise).fit(X)
    assert model.lower_bound_ == alone.lower_bound_ > -np.inf
    assert np.allclose(model.score(X), alone.score(X))
    factors(5, 1).fit(blobs()[:6])  # four fifths have fewer than five examples


# ── one density per class


@together(
    "density, names",
    [
        (MixtureOfFactorAnalyzers(noise=Noise(added=0.1)), np.array(["ant", "bee", "cat"])),
        (MixtureOfPCA(2, 2, random_state=0), np.array(["ant", "bee", "cat"], dtype=object)),
        (GaussianMixture(2, random_state=0), np.array([-3, 7, 40])),
        (KernelDensity(), np.array([-3, 7, 40])),
        (make_pipeline(StandardScaler(), MixtureOfFactorAnalyzers()), np.array(list("abc"))),
    ],
)
def test_any_density_and_any_labels(density, names):
    X, y = classes()
    model = ClassConditionalClassifier(density).fit(X, names[y])
    assert model.classes_.tolist() == names.tolist()
    assert model.counts_.tolist() == [50, 50, 50]
    # of PCA, the density across the manifold
    score = "score_across" if isinstance(density, MixtureOfPCA) else "score_samples"
    own = [getattr(clone(each).fit(X[y == c]), score)(X) for c, each in enumerate(model.densities_)]
    joint = np.stack(own, axis=1) - np.log(3)
    assert np.allclose(model.predict_joint_log_proba(X), joint)
    assert np.allclose(model.predict_log_proba(X), log_softmax(joint, axis=1))
    assert np.array_equal(model.predict(X), names[joint.argmax(axis=1)])
    grown = ClassConditionalClassifier(density).fit(X[y != 1], names[y[y != 1]])
    grown.add_class(X[y == 1], names[1])
    assert grown.classes_.tolist() == names.tolist()
    assert grown.classes_.dtype.kind == model.classes_.dtype.kind
    assert np.array_equal(grown.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_the_default_errs_as_little_as_discriminant_analysis(load):
    "Columns in different units, and covariances of which neither LDA nor QDA is the best."
    X, y = load(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    losses = []
    rules = LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis(reg_param=1e-4)
    for rule in (ClassConditionalClassifier(), *rules):
        predicted = cross_val_predict(rule, X, y, cv=folds, method="predict_proba")
        error = np.mean(np.argmax(predicted, axis=1) != y)
        losses.append((error, log_loss(y, predicted)))
    assert np.all(losses[0] <= np.min(losses[1:], axis=0) + 0.01)


def test_the_default_is_a_shrunk_gaussian_for_each_class():
    X, y = classes()
    weight = np.where(np.arange(150) % 5, 1.0, 2.0)
    model = ClassConditionalClassifier().fit(X, y, sample_weight=weight)
    a, C = model.common_
    for c, density in enumerate(model.densities_):
        S = np.cov(X[y == c].T, ddof=0, aweights=weight[y == c])
        assert np.allclose(density.covariances_, (1 - a) * S + a * C)
        assert np.allclose(density.means_, np.average(X[y == c], axis=0, weights=weight[y == c]))
    sharp = model.sharpness_ * model.predict_joint_log_proba(X)
    assert np.allclose(model.predict_log_proba(X), log_softmax(sharp, axis=1))
    repeated = np.repeat(np.arange(150), weight.astype(int))
    doubled = ClassConditionalClassifier().fit(X[repeated], y[repeated])
    assert np.allclose(doubled.predict_proba(X), model.predict_proba(X))
    model.add_class(X[:30] + 1, 3)
    added = (1 - a) * np.cov(X[:30].T, ddof=0) + a * C
    assert np.allclose(model.densities_[3].covariances_, added)
    single = ClassConditionalClassifier().fit(X[:3], [0, 1, 2])  # no covariances at all
    assert np.array_equal(single.predict(X[:3]), [0, 1, 2])


def test_shrinkage_keeps_the_mean_variance_within_the_classes():
    "The shares of the three covariances add up to one."
    X, y = load_wine(return_X_y=True)
    model = ClassConditionalClassifier().fit(X, y)
    assert 0 < model.common_[0] < 1
    learned, within = (
        np.average([np.trace(S) for S in each], weights=np.bincount(y))
        for each in (
            [density.covariances_[0] for density in model.densities_],
            [np.cov(X[y == c].T, ddof=0) for c in range(3)],
        )
    )
    assert np.isclose(learned, within, rtol=1e-4)


def test_priors():
    X, y = classes()
    rows = np.flatnonzero((y > 0) | (np.arange(150) < 60))
    model = ClassConditionalClassifier(MixtureOfPCA()).fit(X[rows], y[rows])
    shares, given = np.bincount(y[rows]) / len(rows), [0.2, 0.3, 0.5]
    for priors, p in (("empirical", shares), ("uniform", 1 / 3), (given, given)):
        joint = model.set_params(priors=priors).predict_joint_log_proba(X)
        assert np.allclose(joint, model.log_densities(X) + np.log(p))
    with pytest.raises(ValueError, match="priors"):
        model.add_class(X[:20], 9)


@together("density", [MixtureOfPCA(), KernelDensity(kernel="tophat")])
def test_far_from_all_classes_the_priors_decide(density):
    X, y = classes()
    rows = np.flatnonzero((y == 2) | (np.arange(150) < 75))
    model = ClassConditionalClassifier(density).fit(X[rows], y[rows])
    far = np.array([[1e200] * 5, [-1e170, 0, 0, 1e170, 0]])
    assert np.all(model.log_densities(far) == -np.inf)
    assert model.rejects(far).all()
    assert np.allclose(model.predict_proba(far), model.counts_ / model.counts_.sum())
    assert model.predict(far).tolist() == [2, 2]


def test_rejects():
    X, y = classes(600)
    density = MixtureOfFactorAnalyzers(1, 2)
    model = ClassConditionalClassifier(density, cv=4).fit(X[::2], y[::2])
    assert not model.rejects(X, density=0).any()
    assert model.rejects(X, density=0, probability=1).all()
    for level in (0.05, 0.2, 0.5):
        limits = np.array([np.quantile(own, level) for own in model.levels_])
        below = model.log_densities(X) < limits
        unseen = [np.mean(below[1::2][y[1::2] == c, c]) for c in range(3)]
        assert np.all(np.abs(np.array(unseen) - level) < 0.15)  # of unseen ones, about so many
        assert np.array_equal(model.rejects(X, density=level), np.all(below, axis=1))
    unsure = model.predict_proba(X).max(axis=1) <= 0.9
    assert np.array_equal(model.rejects(X, density=0, probability=0.9), unsure)


def test_noise_left_open_is_one_for_all_classes():
    X, y = DIGITS[:300], LABELS[:300]
    model = ClassConditionalClassifier(factors(1, 2)).fit(X, y)
    chosen = {(d.noise.added, d.noise.unit, d.added_noise_) for d in model.densities_}
    share = model.densities_[0].noise.added
    assert chosen == {(share, float(np.var(X, axis=0).mean()), share)}
    assert 0.03 <= share <= 0.8
    grown = ClassConditionalClassifier(factors(1, 2)).fit(X[y != 3], y[y != 3])
    old = grown.densities_[0].added_noise_
    assert grown.add_class(X[y == 3], 3).densities_[3].added_noise_ == old
    few = ClassConditionalClassifier(factors(1, 2))
    few.fit(np.arange(16.0).reshape(4, 4) ** 2, [0, 0, 1, 1])
    assert few.densities_[0].added_noise_ == 0.1  # nothing can be left out


def test_a_stack_for_each_class_weighs_several_amounts_of_noise():
    density = factors(2, 1, stacked=True)
    model = ClassConditionalClassifier(density).fit(IRIS[50:], SPECIES[50:])
    alone = density.fit(IRIS[SPECIES == 1])
    assert model.densities_[0].stack_ == alone.stack_ and len(alone.stack_) > 1


def test_weights_count_where_noise_is_chosen_for_all_classes():
    "Examples whose errors weigh nothing have no say; those that weigh most decide."
    noisy = np.concatenate([IRIS, IRIS + 3 * np.random.default_rng(1).normal(size=IRIS.shape)])
    labels = np.tile(SPECIES, 2)
    lightly, fully, alone = (
        ClassConditionalClassifier(factors(1, 1)).fit(*data).densities_[0].noise
        for data in (
            (noisy, labels, np.repeat([1.0, 0.0], 150)),
            (noisy, labels),
            (IRIS, SPECIES),
        )
    )
    assert lightly.added == alone.added
    assert np.isclose(lightly.unit, alone.unit)
    assert not np.isclose(fully.unit, alone.unit)


@together("density", [factors(1, 2), MixtureOfPCA(2, 2, random_state=0)])
def test_examples_freed_along_their_tangents(density):
    """Tangents of length zero change nothing, and long ones make the density forgive movements
    along them.
    """
    X, y = classes()
    T = np.random.default_rng(1).standard_normal((150, 1, 5))
    model = ClassConditionalClassifier(density).fit(X, y)
    plain, moved = model.log_densities(X), X + 3 * T[:, 0]
    assert np.allclose(model.log_densities(X, tangents=0 * T), plain)
    near, far = (model.log_densities(a, tangents=1e4 * T) for a in (X, moved))
    assert np.allclose(near, far, atol=1e-4)
    assert not np.allclose(model.log_densities(moved), plain, atol=0.1)
    best = model.predict_proba(X, tangents=T).argmax(axis=1)
    assert np.array_equal(model.predict(X, tangents=T), best)
    for wrong in (T[:9], T[:, :, :3], T * np.nan):
        with pytest.raises(ValueError, match="tangents"):
            model.predict(X, tangents=wrong)


def test_densities_that_cannot_be_used():
    X, y = classes()
    T = np.zeros((len(X), 2, X.shape[1]))
    model = ClassConditionalClassifier(GaussianMixture(1, reg_covar=1.0)).fit(X, y)
    for call in (model.predict, model.log_densities, partial(model.fit, y=y)):
        with pytest.raises(ValueError, match="tangents must be None, since GaussianMixture knows"):
            call(X, tangents=T)
    with pytest.raises(ValueError, match="sample_weight must be None, since FactorAnalysis"):
        ClassConditionalClassifier(FactorAnalysis()).fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match=r"class GaussianMixture; pass .* GaussianMixture\(\)"):
        ClassConditionalClassifier(GaussianMixture).fit(X, y)
    with pytest.raises(ValueError, match="density"):
        ClassConditionalClassifier(StandardScaler()).fit(X, y)
    model.densities_[1].score_samples = lambda X: np.full(len(X), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(X)


def test_the_best_of_short_runs_goes_on():
    "Of three groups whose factors differ more than their means."
    rng = np.random.default_rng(6)
    means, loadings = 0.4 * rng.normal(size=(3, 10)), rng.normal(size=(3, 10, 2))
    deviation = 0.4 * rng.uniform(0.3, 0.8, size=10)
    group, h = rng.integers(3, size=300), rng.normal(size=(300, 2))
    X = means[group] + np.einsum("nr,npr->np", h, loadings[group])
    X += deviation * rng.normal(size=X.shape)
    one, best = factors(3, n_init=1).fit(X), factors(3).fit(X)
    assert best.lower_bound_ > one.lower_bound_ + 3


def test_sizes_between_doubled_ones_are_tried():
    rng = np.random.default_rng(0)
    X = 0.5 * rng.normal(size=(90, 3)) + 6 * np.eye(3)[np.arange(90) % 3]
    assert factors("auto", 0).fit(X).n_components_ == 3


def test_columns_in_other_units_are_named():
    "Not those that are constant or rarely other than zero; nor where the least noise is given."
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * [1e-6, 1, 1e6, 0, 0]
    X[0, 4] = 1e4
    gappy = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    for rows in (X, gappy):
        for model in (factors(1, 1), factors(2, 1, noise="isotropic")):
            with pytest.warns(UserWarning, match="columns 0, 1 vary by .*StandardScaler"):
                model.fit(rows)
    with warnings.catch_warnings(action="error", category=UserWarning):
        factors(1, 1).fit(X[:, 2:])
        factors(1, 1).fit(X[:, :2] * [1e4, 1])
        for noise in (Noise(minimum=0, added=1e-6), Noise(minimum=0.1), Noise(unit=1.0)):
            factors(1, 1, noise=noise).fit(X[:, :2])
