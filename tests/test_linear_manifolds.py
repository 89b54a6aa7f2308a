"""Mixtures of linear manifolds and classes by their densities as a demanding user of scikit-learn
meets them, and against brute force.
"""

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from capslit.mixtures import (
    ClassConditionalClassifier,
    GaussianMixture as OurMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
)
from capslit.mixtures.factor_analysers import SHARES, _fifths
from capslit.mixtures.linear_manifolds import _component
from capslit.mixtures.tangents import tangent_vectors
from capslit.storage import load_arrays, save_arrays

from conftest import blobs, classes, together

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
KINDS = {
    "factors": lambda m=2, r=2, **k: MixtureOfFactorAnalyzers(m, r, random_state=0, n_jobs=1, **k),
    "isotropic": lambda m=2, r=2, **k: MixtureOfFactorAnalyzers(
        m, r, noise="isotropic", random_state=0, n_jobs=1, **k
    ),
    "pca": lambda m=2, r=2, **k: MixtureOfPCA(m, r, random_state=0, n_jobs=1, **k),
    "hard-pca": lambda m=2, r=2, **k: MixtureOfPCA(
        m, r, responsibilities="hard", random_state=0, n_jobs=1, **k
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)
EXACT = {"tol": 1e-11, "max_iter": 5000, "acceleration": "squarem"}

BASE = blobs(40)


def outputs(model, X):
    return [
        model.score_samples(X),
        model.predict_proba(X),
        model.transform(X),
        model.reconstruct(X),
        model.sample(6)[0],
    ]


def state(model):
    return pickle.dumps(vars(model))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y


# ── against brute force and against scikit-learn
# ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("r, kind", [(0, "diag"), (4, "full")])
def test_without_factors_and_with_as_many_as_features_it_is_a_gaussian_mixture(r, kind):
    X = StandardScaler().fit_transform(load_iris().data)
    ours = MixtureOfFactorAnalyzers(
        2, r, noise=Noise(added=0, minimum=0 if r == 0 else 1e-6), random_state=0, **EXACT
    ).fit(X)
    S = ours.get_covariance()
    given = {
        "weights_init": ours.weights_,
        "means_init": ours.means_,
        "precisions_init": 1 / ours.noise_variances_ if r == 0 else np.linalg.inv(S),
    }
    theirs = GaussianMixture(
        2, covariance_type=kind, tol=1e-11, reg_covar=0, max_iter=5000, **given
    ).fit(X)
    found = np.diagonal(S, axis1=1, axis2=2) if r == 0 else S
    assert np.allclose(found, theirs.covariances_, atol=1e-4) and np.isclose(
        ours.score(X), theirs.score(X), rtol=0, atol=1e-8 if r == 0 else 1e-7
    )
    assert ours.n_parameters_ == theirs._n_parameters() and abs(ours.bic(X) - theirs.bic(X)) < 1e-6
    assert ours.codes(X).shape == (len(X), 2, r) and (
        r > 0 or np.allclose(ours.reconstruct(X)[0], ours.means_)
    )


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_as_many_factors_as_features_make_any_covariance_in_a_step(noise):
    X = blobs()
    near = np.column_stack([X, X.sum(axis=1) + 1e-2 * X[::-1, 0]])  # nearly on a plane
    one = MixtureOfFactorAnalyzers(
        1, near.shape[1], noise=Noise(noise, added=0), random_state=0
    ).fit(near)
    assert (
        np.allclose(one.get_covariance()[0], np.cov(near.T, ddof=0), rtol=1e-6) and one.n_iter_ < 10
    )
    some = MixtureOfFactorAnalyzers(
        3, X.shape[1], noise=Noise(noise, added=1e-3), random_state=0, tol=1e-6
    ).fit(X)
    assert np.all(np.diff(some.history_["objective"]) > -1e-8)
    by_means = MixtureOfFactorAnalyzers(
        3,
        X.shape[1],
        noise=Noise(noise, added=1e-3),
        init_params="kmeans",
        random_state=0,
        tol=1e-6,
    ).fit(X)
    assert some.lower_bound_ == by_means.lower_bound_


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_densities_and_codes_by_definition(noise):
    X = blobs()
    model = MixtureOfFactorAnalyzers(2, 2, noise=noise, random_state=0).fit(X)
    C = model.get_covariance()
    joint = np.stack(
        [
            np.log(w) + multivariate_normal(mu, c).logpdf(X)
            for w, mu, c in zip(model.weights_, model.means_, C)
        ],
        axis=1,
    )
    assert np.allclose(model.score_samples(X), logsumexp(joint, axis=1)) and np.isclose(
        model.score(X), logsumexp(joint, axis=1).mean()
    )
    assert np.allclose(
        model.predict_proba(X), np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    )
    assert np.array_equal(model.predict(X), joint.argmax(axis=1)) and np.array_equal(
        model.fit_predict(X), model.predict(X)
    )
    codes = np.stack(
        [(X - mu) @ np.linalg.solve(c, G) for mu, c, G in zip(model.means_, C, model.loadings_)],
        axis=1,
    )  # GᵀC⁻¹(x − μ)
    assert np.allclose(model.codes(X), codes)
    assert np.allclose(
        model.transform(X), (model.predict_proba(X)[:, :, None] * codes).reshape(len(X), -1)
    )
    assert np.allclose(
        model.reconstruct(X)[:, 1], model.means_[1] + codes[:, 1] @ model.loadings_[1].T
    )
    if noise == "isotropic":
        assert np.allclose(np.ptp(model.noise_variances_, axis=1), 0)


@pytest.mark.parametrize("hard", [False, True])
def test_pca_by_definition(hard):
    X = blobs()
    model = MixtureOfPCA(2, 2, responsibilities="hard" if hard else "soft", random_state=0).fit(X)
    U, v = model.components_, model.temperature_
    assert np.allclose(U @ np.swapaxes(U, 1, 2), np.eye(2))
    inside = np.einsum("njp,jrp,jrq->njq", X[:, None] - model.means_, U, U)
    error = np.sum((X[:, None] - model.means_ - inside) ** 2, axis=2)
    assert np.allclose(np.sum((X[:, None] - model.reconstruct(X)) ** 2, axis=2), error)
    assert np.array_equal(model.predict(X), error.argmin(axis=1))
    density = np.max(-error / (2 * v), axis=1) if hard else logsumexp(-error / (2 * v), axis=1)
    assert np.allclose(model.score_samples(X), density - np.log(2) - 1.5 * np.log(2 * np.pi * v))
    assert np.allclose(model.weights_.sum(), 1) and np.all(
        np.diff(model.explained_variances_, axis=1) <= 0
    )


@pytest.mark.parametrize("r", [2, 4])
def test_one_factor_analyser_is_that_of_scikit_learn(digits, r):
    X = digits[0][:, digits[0].var(axis=0) > 0.5]
    ours = MixtureOfFactorAnalyzers(1, r, noise=Noise(added=0, minimum=0), **EXACT).fit(X)
    theirs = FactorAnalysis(r, tol=1e-10, max_iter=5000, svd_method="lapack").fit(X)
    assert abs(ours.score(X) - theirs.score(X)) < 1e-8
    assert np.allclose(ours.get_covariance()[0], theirs.get_covariance(), atol=1e-2)
    turn = np.linalg.lstsq(theirs.transform(X), ours.transform(X))[0]
    assert np.allclose(turn @ turn.T, np.eye(r), atol=1e-4) and np.allclose(
        theirs.transform(X) @ turn, ours.transform(X), atol=1e-3
    )


def test_equal_noise_is_probabilistic_pca(digits):
    X = digits[0]
    ours = MixtureOfFactorAnalyzers(
        1, 5, noise=Noise("isotropic", added=0, minimum=0), **EXACT
    ).fit(X)
    C = np.cov(X.T, bias=True)
    values, vectors = np.linalg.eigh(C)
    noise = values[:-5].mean()
    best = (vectors[:, -5:] * (values[-5:] - noise)) @ vectors[:, -5:].T + noise * np.eye(64)
    assert np.allclose(ours.get_covariance()[0], best, atol=1e-5)
    assert abs(ours.score(X) - PCA(5).fit(X).score(X)) < 1e-4  # theirs divides by n − 1
    pca = MixtureOfPCA(1, 5).fit(X)
    assert np.allclose(pca.explained_variances_[0], values[:-6:-1]) and np.allclose(
        pca.noise_variances_[0], noise
    )


def test_noise_left_open_is_that_of_examples_left_out():
    """Against a search by hand: fit with the least noise on four fifths, add noise, and ask the
    last.
    """
    X = StandardScaler().fit_transform(load_iris().data)
    model = MixtureOfFactorAnalyzers(2, 2, random_state=0).fit(X)
    total = np.zeros(len(SHARES))
    for own, held in _fifths(X, None):
        fitted = MixtureOfFactorAnalyzers(
            2, 2, noise=Noise(added=SHARES[0], unit=1.0), random_state=0
        ).fit(X[own])
        for k, share in enumerate(SHARES):
            noise = fitted.noise_variances_ + share - SHARES[0]
            parts = [
                multivariate_normal(m, G @ G.T + np.diag(v)).logpdf(X[held])
                for m, G, v in zip(fitted.means_, fitted.loadings_, noise)
            ]
            total[k] += logsumexp(np.stack(parts, axis=1) + np.log(fitted.weights_), axis=1).sum()
    assert model.added_noise_ == SHARES[np.argmax(total)] and 0 < np.argmax(total) < len(SHARES) - 1
    same = clone(model).set_params(noise=Noise(added=model.added_noise_)).fit(X)
    assert np.array_equal(same.loadings_, model.loadings_)
    doubled, order = np.concatenate([X, X]), np.random.default_rng(0).permutation(len(X))
    assert (
        clone(model).fit(doubled).added_noise_
        == clone(model).fit(X[order]).added_noise_
        == model.added_noise_
    )
    assert (
        clone(model).fit(X, sample_weight=np.full(len(X), 2.0)).added_noise_ == model.added_noise_
    )


def test_sizes_left_open_find_what_was_planted():
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [
            rng.normal(size=(100, 1)) @ (3 * rng.normal(size=(1, 6)))
            + 0.3 * rng.normal(size=(100, 6))
            + 12 * rng.normal(size=6)
            for _ in range(4)
        ]
    )
    model = MixtureOfFactorAnalyzers("auto", "auto", random_state=0).fit(X[::2])
    assert (
        (model.n_components_, model.n_factors_) == (4, 1)
        and model.means_.shape == (4, 6)
        and model.loadings_.shape == (4, 6, 1)
    )
    for m, r in ((1, 2), (4, 4)):
        assert model.score(X[1::2]) > MixtureOfFactorAnalyzers(m, r, random_state=0).fit(
            X[::2]
        ).score(X[1::2])
    assert (
        MixtureOfFactorAnalyzers("auto", 2, random_state=0).fit(X[:4]).n_factors_ == 2
    )  # hardly any examples


def test_a_stack_is_the_weighted_sum_of_members_and_beats_each_on_examples_left_out():
    "Against a search by hand over the amounts of noise of one size."
    X = StandardScaler().fit_transform(load_iris().data)
    model = MixtureOfFactorAnalyzers(2, 1, stacked=True, random_state=0).fit(X)
    least = MixtureOfFactorAnalyzers(2, 1, noise=Noise(added=SHARES[0], unit=1.0), random_state=0)

    def density(fitted, share, Z):
        noise = fitted.noise_variances_ + share - SHARES[0]
        parts = [
            multivariate_normal(m, G @ G.T + np.diag(v)).logpdf(Z)
            for m, G, v in zip(fitted.means_, fitted.loadings_, noise)
        ]
        return logsumexp(np.stack(parts, axis=1) + np.log(fitted.weights_), axis=1)

    weights, shares = (
        np.array([member[name] for member in model.stack_]) for name in ("weight", "added_noise")
    )
    whole = clone(least).fit(X)
    assert len(weights) > 1 and np.isclose(weights.sum(), 1)
    assert np.allclose(
        model.score_samples(X),
        logsumexp(
            [density(whole, share, X) + np.log(w) for w, share in zip(weights, shares)], axis=0
        ),
    )
    left_out = np.empty((len(X), len(SHARES)))
    for own, held in _fifths(X, None):
        fitted = clone(least).fit(X[own])
        left_out[held] = np.stack([density(fitted, share, X[held]) for share in SHARES], axis=1)
    total = logsumexp(
        left_out[:, [SHARES.index(share) for share in shares]] + np.log(weights), axis=1
    )
    assert (
        np.isclose(total.mean(), model.lower_bound_) and total.mean() > left_out.mean(axis=0).max()
    )
    ratios = np.exp(left_out - total[:, None]).mean(axis=0)  # no weights gain more than a nat
    assert (
        np.log(ratios.max()) * len(X) <= 1
        and model.n_parameters_ == whole.n_parameters_ + len(weights) - 1
    )


def test_a_stack_is_saved_and_refuses_what_it_cannot_do(tmp_path):
    X = blobs()
    model = MixtureOfFactorAnalyzers(1, "auto", noise="auto", stacked=True, random_state=0).fit(X)
    model.save(tmp_path / "stack.npz")
    again = MixtureOfFactorAnalyzers.load(tmp_path / "stack.npz")
    assert again.stack_ == model.stack_ and all(
        np.array_equal(a, b) for a, b in zip(outputs(again, X), outputs(model, X))
    )
    assert model.means_.shape[0] == model.n_components_ and model.loadings_.shape[
        2
    ] == model.n_factors_ == max(m["n_factors"] for m in model.stack_)
    before = state(model)
    with pytest.raises(ValueError, match="warm_start"):
        model.set_params(warm_start=True).fit(X)
    with pytest.raises(ValueError, match="checkpoint"):
        model.set_params(warm_start=False).fit(X, checkpoint=tmp_path / "c.npz")
    assert state(model) == before
    assert not hasattr(model.set_params(stacked=False).fit(X), "stack_")
    nothing = MixtureOfFactorAnalyzers(2, 1, stacked=True, noise=Noise(added=0.1), random_state=0)
    before = state(nothing)
    with pytest.raises(ValueError, match='nothing is "auto".*n_components="auto"'):
        nothing.fit(X)
    assert state(nothing) == before


def test_a_stack_of_too_few_examples_is_one_model():
    X = blobs()[:3]
    model = MixtureOfFactorAnalyzers(1, "auto", noise="auto", stacked=True, random_state=0)
    with pytest.warns(UserWarning, match="too few distinct examples"):
        model.fit(X)
    (member,) = model.stack_
    alone = (
        clone(model)
        .set_params(
            stacked=False,
            n_factors=member["n_factors"],
            noise=Noise(member["noise"], member["added_noise"]),
        )
        .fit(X)
    )
    assert (
        model.lower_bound_ == alone.lower_bound_
        and np.isfinite(alone.lower_bound_)
        and np.allclose(model.score(X), alone.score(X))
    )
    MixtureOfFactorAnalyzers(5, 1, random_state=0).fit(
        blobs()[:6]
    )  # four fifths have fewer than five examples


def test_a_stack_for_each_class_weighs_several_amounts_of_noise():
    X, y = load_iris(return_X_y=True)
    model = ClassConditionalClassifier(
        MixtureOfFactorAnalyzers(2, 1, stacked=True, random_state=0)
    ).fit(X, y)
    alone = MixtureOfFactorAnalyzers(2, 1, stacked=True, random_state=0).fit(X[y == 1])
    assert len(model.densities_[1].stack_) > 1 and model.densities_[1].stack_ == alone.stack_
    assert len(model.add_class(X[y == 1] + 9, 3).densities_[3].stack_) > 1


def test_what_is_tried_is_shown(capsys):
    X = blobs()
    MixtureOfFactorAnalyzers(1, "auto", random_state=0).fit(X)
    assert capsys.readouterr().out == ""
    model = MixtureOfFactorAnalyzers(1, "auto", stacked=True, random_state=0, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    tried = {line.split(":")[0] for line in lines if "left out" in line}
    learned = {
        line.split(": ")[1] for line in lines if line.startswith("learned from all examples")
    }
    assert len(tried) > len(learned) > 0 and learned <= tried
    assert learned == {
        f"n_components=1, n_factors={m['n_factors']}, noise='diagonal', tied=False"
        for m in model.stack_
    }


def test_starts_that_are_given_and_what_is_left_open():
    """Means are given in the units of X, also where several amounts of noise are tried; of
    components as many as are given.
    """
    X = blobs(90)
    means = np.stack([X[:30].mean(axis=0), X[30:].mean(axis=0)])
    for name, value in (("means_init", means), ("weights_init", [0.5, 0.5])):
        for stacked in (False, True):
            model = MixtureOfFactorAnalyzers("auto", 1, stacked=stacked, random_state=0).set_params(
                **{name: value}
            )
            before = state(model)
            with pytest.raises(
                ValueError, match=f'{name} must be None where n_components is "auto"'
            ):
                model.fit(X)
            assert state(model) == before
    near, far = (
        MixtureOfFactorAnalyzers(2, 1, means_init=means + shift, verbose=0).fit(X + shift)
        for shift in (0, 64)
    )
    assert near.added_noise_ == far.added_noise_ and np.isclose(near.score(X), far.score(X + 64))
    trials = near._choose(X - X.mean(axis=0), None, None, 1.0, X.mean(axis=0))
    assert np.allclose(
        trials.estimator(2, 1, ("diagonal", False)).means_init, means - X.mean(axis=0)
    )


def test_whole_weights_of_a_classifier_repeat_examples():
    X, y = load_iris(return_X_y=True)
    w = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    again = np.repeat(np.arange(len(X)), w.astype(int))
    model = ClassConditionalClassifier(
        MixtureOfFactorAnalyzers(
            1, 2, noise=Noise(added=0.01), tol=1e-9, patience=9, random_state=0
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = clone(model).fit(X, y, sample_weight=w), clone(model).fit(X[again], y[again])
        plain = clone(model).fit(X, y)
    assert np.allclose(one.predict_log_proba(X), other.predict_log_proba(X)) and np.allclose(
        one.counts_ * w.max(), other.counts_
    )
    assert not np.allclose(plain.predict_log_proba(X), other.predict_log_proba(X))
    assert np.allclose(
        clone(model).fit(X, y, sample_weight=np.full(len(X), 7)).predict_log_proba(X),
        plain.predict_log_proba(X),
    )
    with pytest.raises(ValueError, match="sample_weight must be None, since FactorAnalysis"):
        ClassConditionalClassifier(FactorAnalysis()).fit(X, y, sample_weight=w)


def test_weights_count_where_noise_is_chosen_for_all_classes():
    "Examples whose errors weigh nothing have no say; those that weigh most decide."
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(1)
    noisy = np.concatenate([X, X + 3 * rng.standard_normal(X.shape)])
    labels, light = np.tile(y, 2), np.repeat([1.0, 0.0], len(X))
    model = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 1, random_state=0))
    chosen = [
        clone(model).fit(noisy, labels, weight).densities_[0]
        for weight in (light, np.ones(len(light)))
    ]
    alone = clone(model).fit(X, y).densities_[0]
    assert chosen[0].noise.added == alone.noise.added
    assert np.isclose(chosen[0].noise.unit, alone.noise.unit)
    assert not np.isclose(chosen[1].noise.unit, alone.noise.unit)


@kinds
def test_starts_that_are_given(kind):
    X, r = blobs(90), np.random.RandomState(1)
    means = np.stack([X[:30].mean(axis=0), X[30:].mean(axis=0)])
    given = KINDS[kind](means_init=means, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, again = clone(given).fit(X), clone(given).set_params(random_state=r, n_init=3).fit(X)
    assert np.array_equal(first.means_, again.means_)  # nothing is drawn, so one start is all
    assert np.allclose(first.means_, means, atol=1.0)
    if "pca" not in kind:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tilted = clone(given).set_params(weights_init=[0.999, 0.001]).fit(X)
        assert tilted.weights_[0] > first.weights_[0]
    for name, value in {"means_init": means[:1], "weights_init": [0.7, 0.7]}.items():
        if name in given.get_params():
            with pytest.raises(ValueError, match=name):
                clone(given).set_params(**{name: value}).fit(X)


def test_covariances_and_directions_as_in_scikit_learn():
    X = blobs()
    model = MixtureOfFactorAnalyzers(2, 2, random_state=0).fit(X)
    assert np.array_equal(model.covariances_, model.get_covariance()) and np.allclose(
        model.precisions_ @ model.covariances_, np.eye(5), atol=1e-8
    )
    assert (
        model.components_.shape
        == MixtureOfPCA(2, 2, random_state=0).fit(X).components_.shape
        == (2, 2, 5)
    )
    assert np.array_equal(model.components_[1], model.loadings_[1].T)
    exact = MixtureOfFactorAnalyzers(1, 2, noise=Noise(added=0)).fit(X)
    assert np.isclose(exact.lower_bound_, exact.score(X), atol=1e-9)
    noisy = MixtureOfFactorAnalyzers(2, 2, noise=Noise(added=0.1), random_state=0).fit(X)
    assert noisy.lower_bound_ < noisy.score(X)


# ── learning
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
def test_accelerations_find_no_worse(acceleration):
    X = blobs(200, 6)
    plain, fast = (
        KINDS["factors"](noise=Noise(added=0.1), tol=1e-5, acceleration=how).fit(X)
        for how in (None, acceleration)
    )
    assert fast.lower_bound_ > plain.lower_bound_ - 1e-4 and fast.n_iter_ < plain.n_iter_


@pytest.mark.parametrize("r", [1, 2, 4, 5])
def test_a_component_starts_as_probabilistic_pca(r):
    """Tipping and Bishop: the noise is the mean of the p − r eigenvalues left over, and loadings
    have the others less the noise.
    """
    X = BASE @ np.diag([5.0, 3, 2, 1, 0.5])
    values, axes = np.linalg.eigh(np.cov(X.T, ddof=0))
    values, axes, floor = values[::-1], axes[:, ::-1], 1e-3
    noise = (np.mean(values[r:]) if r < 5 else 0) + floor
    mean, loadings, variances = _component(X, np.ones(len(X)), None, r, floor)
    assert np.allclose(mean, X.mean(axis=0)) and np.allclose(
        loadings @ loadings.T, axes[:, :r] * (values[:r] - noise) @ axes[:, :r].T, atol=1e-8
    )
    assert np.allclose(
        variances, np.maximum(X.var(axis=0) - np.sum(loadings**2, axis=1), noise / 10)
    )


def test_tangents_turn_the_directions(digits):
    images = digits[0][digits[1] == 1]
    tangents = tangent_vectors(images.reshape(-1, 8, 8))
    plain, taught = (
        MixtureOfPCA(1, 6).fit(images),
        MixtureOfPCA(1, 6).fit(images, tangents=2 * tangents),
    )
    left = [
        np.sum((tangents - tangents @ m.components_[0].T @ m.components_[0]) ** 2)
        for m in (plain, taught)
    ]
    assert left[1] < 0.8 * left[0]
    same = MixtureOfPCA(1, 6).fit(images, tangents=0 * tangents)
    assert np.allclose(same.score_samples(images), plain.score_samples(images))
    factors = MixtureOfFactorAnalyzers(2, 3, random_state=0).fit(images, tangents=tangents)
    assert factors.score(images) < MixtureOfFactorAnalyzers(2, 3, random_state=0).fit(images).score(
        images
    )


def test_samples_have_the_moments_of_the_model():
    X = blobs(300)
    for model in (KINDS["factors"]().fit(X), KINDS["pca"](1, 3).fit(X)):
        drawn, made_by = model.sample(40_000)
        assert (
            drawn.shape == (40_000, 5)
            and np.all(np.diff(made_by) >= 0)
            and np.array_equal(model.sample(5)[0], model.sample(5)[0])
        )
        assert np.allclose(np.bincount(made_by) / 40_000, model.weights_, atol=0.02)
        if isinstance(model, MixtureOfPCA):
            C = np.cov(X.T, bias=True)
            assert np.allclose(
                np.linalg.eigvalsh(np.cov(drawn.T))[-3:], np.linalg.eigvalsh(C)[-3:], rtol=0.05
            )
        else:
            assert np.allclose(
                np.cov(drawn[made_by == 1].T),
                model.get_covariance()[1],
                atol=0.15 * np.abs(model.get_covariance()).max(),
            )


def test_directions_beyond_the_share_of_variance_are_given_up():
    X = blobs(200) * [10, 1, 1, 0.1, 0.1]
    model = MixtureOfPCA(1, 4, explained_variance=0.9).fit(X)
    values = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    needed = int(np.searchsorted(np.cumsum(values) / values.sum(), 0.9)) + 1
    assert np.count_nonzero(model.explained_variances_) == needed < 4 and not np.any(
        model.components_[0, needed:]
    )
    assert model.transform(X).shape == (200, 4) and not np.any(model.transform(X)[:, needed:])


# ── data of every kind
# ─────────────────────────────────────────────────────────────────────────────────────────────────


# ── one density per class
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@together(
    "density",
    [
        None,
        MixtureOfPCA(2, 2, random_state=0),
        GaussianMixture(2, random_state=0),
        OurMixture(2, reg_covar=0.1, random_state=0),
        OurMixture(2, covariance_type="diag", random_state=0),
        KernelDensity(),
        PCA(2),
        make_pipeline(StandardScaler(), MixtureOfFactorAnalyzers()),
    ],
    ids=lambda d: type(d).__name__,
)
@pytest.mark.parametrize(
    "names",
    [
        np.array(["ant", "bee", "cat"]),
        np.array(["ant", "bee", "cat"], dtype=object),
        np.array([-3, 7, 40]),
    ],
    ids=["text", "objects", "numbers"],
)
def test_any_density_and_any_labels(density, names):
    X, y = classes()
    model = ClassConditionalClassifier(density).fit(X, names[y])
    assert (
        model.classes_.tolist() == names.tolist()
        and model.counts_.tolist() == [50, 50, 50]
        and model.score(X, names[y]) > 0.9
    )
    own = [clone(model.densities_[c]).fit(X[y == c]).score_samples(X) for c in range(3)]
    joint = np.stack(own, axis=1) + np.log(1 / 3)
    assert np.allclose(model.predict_joint_log_proba(X), joint)
    assert np.allclose(model.predict_log_proba(X), joint - logsumexp(joint, axis=1, keepdims=True))
    assert np.array_equal(model.predict(X), names[joint.argmax(axis=1)]) and np.allclose(
        model.predict_proba(X).sum(axis=1), 1
    )
    settled = (
        clone(model.densities_[0]) if density is None else density
    )  # with the noise that was chosen for all three
    grown = ClassConditionalClassifier(settled).fit(X[y != 1], names[y[y != 1]])
    others = [pickle.dumps(density) for density in grown.densities_]
    grown.add_class(X[y == 1], names[1])
    assert (
        grown.classes_.tolist() == names.tolist()
        and grown.classes_.dtype.kind == model.classes_.dtype.kind
    )
    assert [pickle.dumps(grown.densities_[c]) for c in (0, 2)] == others
    assert np.array_equal(grown.predict_proba(X), model.predict_proba(X)) and np.array_equal(
        grown.predict(X), model.predict(X)
    )


def test_priors():
    X, y = classes()
    rows = np.flatnonzero((y > 0) | (np.arange(150) < 60))
    model = ClassConditionalClassifier().fit(X[rows], y[rows])
    log_densities = model.log_densities(X)
    shares = np.bincount(y[rows]) / len(rows)
    for priors, p in (
        ("empirical", shares),
        ("uniform", np.full(3, 1 / 3)),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
    ):
        assert np.allclose(
            model.set_params(priors=priors).predict_joint_log_proba(X), log_densities + np.log(p)
        )
    with pytest.raises(ValueError, match="priors"):
        model.set_params(priors=[0.2, 0.3, 0.5]).add_class(X[:20], 9)


def test_classes_side_by_side():
    X, y = classes()
    for tangents in (None, 0.1 * np.ones((150, 1, 5))):
        a, b = (
            ClassConditionalClassifier(MixtureOfPCA(1, 2), n_jobs=n).fit(X, y, tangents=tangents)
            for n in (None, 2)
        )
        assert np.array_equal(a.predict_proba(X), b.predict_proba(X))


@pytest.mark.parametrize(
    "density",
    [None, MixtureOfPCA(), KernelDensity(kernel="tophat"), KernelDensity(bandwidth=0.1)],
    ids=str,
)
def test_far_from_all_classes_the_priors_decide(density):
    X, y = classes()
    rows = np.flatnonzero((y == 2) | (np.arange(150) < 75))
    model = ClassConditionalClassifier(density).fit(X[rows], y[rows])
    far = np.array([[1e200] * 5, [-1e170, 0, 0, 1e170, 0]])
    assert np.all(model.log_densities(far) == -np.inf)
    assert np.allclose(
        model.predict_proba(far), model.counts_ / model.counts_.sum()
    ) and model.predict(far).tolist() == [2, 2]
    assert not np.any(np.isnan(model.predict_log_proba(1e6 * X))) and model.rejects(far).all()


def test_rejects():
    X, y = classes(600)
    model = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 2), cv=4).fit(X[::2], y[::2])
    assert (
        not model.rejects(X, density=0).any() and model.rejects(X, density=0, probability=1).all()
    )
    for level in (0.05, 0.2, 0.5):
        own = np.array(
            [
                np.mean(
                    model.densities_[c].score_samples(X[1::2][y[1::2] == c])
                    < np.quantile(model.levels_[c], level)
                )
                for c in range(3)
            ]
        )
        assert np.all(np.abs(own - level) < 0.15)  # of examples not seen, about so many
        assert np.array_equal(
            model.rejects(X, density=level),
            np.all(
                [
                    d < np.quantile(l, level)
                    for d, l in zip(model.log_densities(X).T, model.levels_)
                ],
                axis=0,
            ),
        )
    assert np.array_equal(
        model.rejects(X, density=0, probability=0.9), model.predict_proba(X).max(axis=1) <= 0.9
    )
    assert model.rejects(10 + 10 * X).mean() > 0.9
    flattered = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 2)).fit(X[::2], y[::2])
    assert all(np.mean(a) > np.mean(b) for a, b in zip(flattered.levels_, model.levels_))


def test_noise_left_open_is_one_for_all_classes_and_of_the_fewest_errors(digits):
    X, y = digits[0][:600], digits[1][:600]
    model = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 6)).fit(X, y)
    chosen = {
        (density.noise.added, density.noise.unit, density.added_noise_)
        for density in model.densities_
    }
    share = model.densities_[0].noise.added
    assert chosen == {(share, float(np.var(X, axis=0).mean()), share)} and 0.03 <= share <= 0.8
    errors = {
        noise: np.sum(
            ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 6, noise=Noise(added=noise)))
            .fit(X, y)
            .predict(digits[0][600:])
            != digits[1][600:]
        )
        for noise in (1e-5, 0.01)
    }
    assert np.sum(model.predict(digits[0][600:]) != digits[1][600:]) < min(errors.values())
    grown = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 6)).fit(X[y != 3], y[y != 3])
    assert (
        grown.add_class(X[y == 3], 3).densities_[3].added_noise_ == grown.densities_[0].added_noise_
    )
    few = ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 2)).fit(
        np.arange(16.0).reshape(4, 4) ** 2, [0, 0, 1, 1]
    )
    assert few.densities_[0].added_noise_ == 0.1  # nothing can be left out


def test_settings_of_the_density_can_be_searched_for(digits):
    X, y = digits[0][::2], digits[1][::2]
    search = GridSearchCV(
        ClassConditionalClassifier(MixtureOfFactorAnalyzers(1, 4, noise=Noise())),
        {"density__noise__added": [0.001, 0.2]},
        cv=2,
    ).fit(X, y)
    assert search.best_params_ == {"density__noise__added": 0.2} and search.best_score_ > 0.9


def test_images_are_told_apart(digits):
    X, y = digits
    model = ClassConditionalClassifier(MixtureOfPCA(2, 8, random_state=0)).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.975
    factors = ClassConditionalClassifier(
        MixtureOfFactorAnalyzers(1, 8, noise=Noise(added=0.2))
    ).fit(X[::2], y[::2])
    assert factors.score(X[1::2], y[1::2]) > 0.965


# ── what is shared by the models of the classes
# ──────────────────────────────────────────────────────────────────────────────


def test_a_common_unit_of_noise():
    X = blobs()
    unit = np.mean(np.var(X, axis=0))
    plain, named = (
        KINDS["factors"](noise=Noise(added=0.1)).fit(X),
        KINDS["factors"](noise=Noise(added=0.1, unit=unit)).fit(X),
    )
    assert np.allclose(plain.score_samples(X), named.score_samples(X))
    doubled = KINDS["factors"](noise=Noise(added=0.05, minimum=0.5e-6, unit=2 * unit)).fit(X)
    assert np.allclose(plain.score_samples(X), doubled.score_samples(X))


@pytest.mark.parametrize(
    "density",
    [MixtureOfFactorAnalyzers(1, 2), MixtureOfPCA(2, 2, random_state=0)],
    ids=lambda d: type(d).__name__,
)
def test_examples_freed_along_their_tangents(density):
    """Tangents of length zero change nothing, and long ones make the density forgive movements
    along them.
    """
    X, y = classes()
    T = np.random.default_rng(1).standard_normal((150, 1, 5))
    model = ClassConditionalClassifier(density).fit(X, y)
    plain = model.log_densities(X)
    assert np.allclose(model.log_densities(X, tangents=0 * T), plain)
    near, far = (model.log_densities(X + shift * T[:, 0], tangents=1e4 * T) for shift in (0, 3))
    assert np.allclose(near, far, atol=1e-4) and not np.allclose(
        model.log_densities(X + 3 * T[:, 0]), plain, atol=0.1
    )
    assert np.array_equal(
        model.predict(X, tangents=T),
        model.classes_[model.predict_proba(X, tangents=T).argmax(axis=1)],
    )
    for wrong in (T[:9], T[:, :, :3], T * np.nan):
        with pytest.raises(ValueError, match="tangents"):
            model.predict(X, tangents=wrong)


@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
@pytest.mark.parametrize("seed", range(3))
def test_accelerated_mixtures_are_mixtures(acceleration, seed):
    X = load_digits().data
    model = MixtureOfFactorAnalyzers(
        5,
        3,
        acceleration=acceleration,
        random_state=seed,
        noise=Noise(added=0, minimum=0.01),
        tol=1e-5,
    ).fit(X)
    assert abs(np.sum(model.weights_) - 1) < 1e-12
    assert np.min(model.noise_variances_) >= 0.01 * np.mean(np.var(X, axis=0)) * (1 - 1e-12)


def test_densities_that_cannot_be_used():
    X, y = load_digits(return_X_y=True)
    T = np.zeros((len(X), 2, X.shape[1]))
    model = ClassConditionalClassifier(GaussianMixture(1, reg_covar=1.0)).fit(X, y)
    for method in (model.predict, model.predict_proba, model.log_densities):
        with pytest.raises(
            ValueError, match="tangents must be None, since GaussianMixture knows nothing of it"
        ):
            method(X, tangents=T)
    with pytest.raises(
        ValueError, match="tangents must be None, since GaussianMixture knows nothing of it"
    ):
        model.fit(X, y, tangents=T)
    with pytest.raises(
        TypeError,
        match=(
            r"density is the class GaussianMixture; pass an estimator, such as GaussianMixture\(\)"
        ),
    ):
        ClassConditionalClassifier(GaussianMixture).fit(X, y)
    with pytest.raises(ValueError, match="density"):
        ClassConditionalClassifier(StandardScaler()).fit(X, y)
    model = ClassConditionalClassifier().fit(X[:300], y[:300])
    model.densities_[1].score_samples = lambda X: np.full(len(X), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(X)


# ── files of earlier releases
# ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_called_reg_covar_is_read_as_added_noise(tmp_path):
    factors = KINDS["factors"](noise=Noise(added=0.3)).fit(BASE)
    model = ClassConditionalClassifier(factors).fit(BASE, np.arange(len(BASE)) % 2)
    for name, estimator in {"alone": factors, "inside": model}.items():
        estimator.save(tmp_path / name)
        arrays, meta = load_arrays(tmp_path / name)
        if name == "alone":
            meta["schema"], description = "capslit.MixtureOfFactorAnalyzers/1", meta
        else:
            kind, _, description = meta["parameters"]["density"]["estimator"]
            meta["parameters"]["density"]["estimator"] = [kind, 1, description]
        noise = description["parameters"].pop("noise")["Noise"]
        former = {
            "noise": noise["kind"],
            "reg_covar": noise["added"],
            "min_noise": noise["minimum"],
        }
        description["parameters"] |= former
        save_arrays(tmp_path / name, arrays, meta)
        again = type(estimator).load(tmp_path / name)
        assert again.get_params()[f"{'density__' * (name == 'inside')}noise__added"] == 0.3
        assert np.array_equal(again.predict_proba(BASE), estimator.predict_proba(BASE))
