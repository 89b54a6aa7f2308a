"""Gaussian mixtures: the engine's model and the estimator beside scikit-learn's, digits, starts."""

import pickle
import warnings
from functools import partial

import conftest
import numpy as np
import pytest
from conftest import together
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer

from capslit import em
from capslit.mixtures import GaussianMixture
from capslit.mixtures.gaussian import Mixtures, mixture_parameters

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
blobs = partial(conftest.blobs, p=4)
TYPES = ["full", "diag"]
types = pytest.mark.parametrize("kind", TYPES)
all_types = pytest.mark.parametrize("kind", [*TYPES, "tied", "spherical"])


def problem(seed, kind, *, k=1, n=80, weighted=False):
    """A random problem: start and data (X, weights or None); groups that may overlap, examples that
    may repeat.
    """
    rng = np.random.default_rng(seed)
    m, p = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    scale = rng.choice([1e-3, 1, 50])
    centres = rng.normal(size=(3, p)) * rng.choice([0.3, 2, 10])
    own = centres[rng.integers(0, 3, n)]
    X = scale * (own + rng.normal(size=(n, p)) @ rng.normal(size=(p, p)))
    S = np.atleast_2d(np.cov(X.T)) + 1e-3 * scale**2 * np.eye(p)
    S = (S if kind == "full" else np.diag(S)) * rng.uniform(
        0.3, 3, (k, m) + (1,) * (1 + (kind == "full"))
    )
    start = mixture_parameters(rng.dirichlet(np.ones(m), k), X[rng.integers(0, n, (k, m))], S)
    return start, (X, rng.random(n) if weighted else None)


def dense(S):
    return S if S.ndim == 3 else np.stack([np.diag(v) for v in S])


IRIS = load_iris().data
TWO_AXES = PCA(2).fit_transform(load_digits().data)


# ── the model on the engine


@types
def test_an_empty_component_takes_half_of_the_heaviest(kind):
    X = blobs(200)
    S = np.cov(X.T) if kind == "full" else X.var(axis=0)
    means = X.mean(axis=0) + np.array([0, 1e6, -1e6])[:, None]
    start = mixture_parameters([[1 / 3] * 3], means[None], np.stack([S] * 3)[None])
    new = Mixtures(kind).m_step(start, Mixtures(kind).e_step(start, (X, None)))
    weights = np.exp(new.log_weights[0])
    assert np.allclose(np.sort(weights), [0.25, 0.25, 0.5])
    assert len(np.unique(new.means[0], axis=0)) == 3
    assert np.allclose(weights @ new.means[0], X.mean(axis=0))  # together what there is


@types
@together("seed", range(3))
def test_with_added_variance_the_likelihood_less_its_price_hardly_falls(kind, seed):
    parameters, (X, weight) = problem(seed, kind)
    for added, fall in ((1e-6, 1e-7), (0.1, 2e-3)):
        model = Mixtures(kind, reg_covar=added * float(X.var(axis=0).mean()))
        settings = {"rounds": [em.Round(30)], "max_iter": 30, "n_threads": 1}
        history = em.fit(model, parameters, (X, weight), **settings).history
        path = history["objective"][:, 0] / len(X)
        assert np.all(np.diff(path) > -fall)
        assert path[-1] > path[0]


@types
@pytest.mark.parametrize("far", [1e-3, 1e3, 1e6, 1e9])
def test_narrow_components_far_from_the_origin_keep_their_digits(kind, far):
    """Two heaps of width one at ± far: densities and variances as if each had been measured from
    its own mean.
    """
    left, right = np.random.default_rng(0).normal(size=(2, 50, 3))
    X = np.concatenate([left - far, right + far])
    place = np.array([[-far] * 3, [far] * 3])
    unit = np.ones((2, 3)) if kind == "diag" else np.stack([np.eye(3)] * 2)
    start, model = mixture_parameters([[0.5, 0.5]], place[None], unit[None]), Mixtures(kind)
    digits = 40 * (1e-9 + 1e-15 * far)  # that the examples themselves have lost
    expected = np.log(0.5) - (left**2).sum(axis=1) / 2 - 1.5 * np.log(2 * np.pi)
    assert np.allclose(model.log_joint(start, X)[0, 0, :50], expected, atol=digits)
    if far > 10:
        found = dense(model.m_step(start, model.e_step(start, (X, None))).covariances[0])
        S = np.stack([np.cov(Y.T, ddof=0) for Y in (left, right)])
        assert np.allclose(found, S if kind == "full" else S * np.eye(3), atol=digits)


@types
def test_collapse_is_one_clear_error(kind):
    X = np.array([[0.0, 0], [0, 0], [0, 0], [3, 1], [4, 2], [5, -1]])
    S = np.eye(2) if kind == "full" else np.ones(2)
    start = mixture_parameters([[0.5, 0.5]], [[[0, 0], [4, 0]]], np.stack([S, S])[None])
    settings = {"rounds": [em.Round(200)], "max_iter": 200, "n_threads": 1}
    message = "component 0 is singular.*raise reg_covar.*lower n_components"
    with pytest.raises(ValueError, match=message):
        em.fit(Mixtures(kind), start, (X, None), **settings)
    held = em.fit(Mixtures(kind, reg_covar=1e-4), start, (X, None), **settings)
    assert np.allclose(np.diag(dense(held.parameters.covariances[0])[0]), 1e-4)
    constant = np.c_[blobs(50), np.full(50, 3.0)]
    follows = np.c_[blobs(50), blobs(50)[:, 0]]
    for data in (constant, follows if kind == "full" else np.full((50, 2), 3.0)):
        with pytest.raises(ValueError, match="raise reg_covar"):
            GaussianMixture(1, covariance_type=kind, reg_covar=0).fit(data)


# ── beside scikit-learn


def given_start(X, kind):
    S = np.cov(X.T) if kind in ("full", "tied") else X.var(axis=0)
    precisions = np.linalg.inv(S) if kind in ("full", "tied") else 1 / S
    both = {"tied": precisions, "spherical": np.full(2, 1 / np.mean(S))}
    return {
        "covariance_type": kind,
        "weights_init": [0.5, 0.5],
        "means_init": X[:: len(X) // 2][:2],
        "precisions_init": both.get(kind, np.stack([precisions] * 2)),
    }


def fitted_parts(model, X, parts=1):
    "The model after several fits, which may end before they converge."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(parts):
            model.fit(X)
    return model


@all_types
def test_the_fit_ends_where_scikit_learn_does(kind):
    X = IRIS
    given = given_start(X, kind) | {"tol": 1e-12, "max_iter": 2000}
    a, b = (Model(2, **given).fit(X) for Model in (GaussianMixture, Peer))
    assert abs(a.score(X) - b.score(X)) < 1e-8
    assert a.converged_
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-5), name
    b.weights_, b.means_, b.precisions_cholesky_ = a.weights_, a.means_, a.precisions_cholesky_
    for method in ("score_samples", "predict_proba", "predict"):
        assert np.allclose(getattr(a, method)(X), getattr(b, method)(X), atol=1e-9), method


@all_types
def test_from_a_given_start_the_estimator_is_where_scikit_learn_is(kind):
    """An iteration of ours is an E-step, and the best parameters seen are kept: one more is needed.
    A warm start goes on from there.
    """
    given = given_start(TWO_AXES, kind) | {"tol": 0, "reg_covar": 0.1}
    settings = given | {"max_iter": 4, "patience": 100}
    model = GaussianMixture(2, **settings, warm_start=True)
    for steps in (3, 6, 9):
        fitted_parts(model, TWO_AXES)
        theirs = fitted_parts(Peer(2, **given, max_iter=steps), TWO_AXES)
        for name in ("weights_", "means_", "covariances_"):
            found, wanted = getattr(model, name), getattr(theirs, name)
            assert np.allclose(found, wanted, rtol=0, atol=1e-6), name
    assert model.n_iter_ == 4 == len(model.history_["objective"])  # those of the last fit
    anew = fitted_parts(GaussianMixture(2, **settings), TWO_AXES, 3)
    assert not np.allclose(anew.means_, model.means_, atol=1e-6)


# ── the estimator


def make(kind, m=2, **settings):
    return GaussianMixture(m, covariance_type=kind, random_state=0, n_jobs=1, **settings)


@all_types
def test_a_warm_start_is_one_start_and_not_drawn(kind, tmp_path):
    X, path = blobs(200), tmp_path / "mixture.npz"
    settings = {"init_params": "random", "n_init": 4, "max_iter": 3, "warm_start": True}
    model = fitted_parts(make(kind, 3, **settings), X)
    first = model.lower_bound_
    path_of_next = fitted_parts(model, X).history_["objective"] / len(X)
    assert np.isclose(path_of_next[0], first, rtol=1e-12)
    assert model.lower_bound_ > first
    model.set_params(random_state=None, max_iter=300)  # of whatever random state
    other, resumed, straight = (pickle.loads(pickle.dumps(model)) for _ in range(3))
    with pytest.warns(ConvergenceWarning, match="max_iter = 3"):
        other.set_params(max_iter=3).fit(X, checkpoint=path)
    resumed.fit(X, checkpoint=path)
    straight.fit(X)
    assert np.array_equal(resumed.covariances_, straight.covariances_)
    assert resumed.n_iter_ == straight.n_iter_
    with pytest.raises(ValueError, match="checkpoint needs random_state"):
        clone(model).fit(X, checkpoint=tmp_path / "fresh.npz")


def test_a_warm_start_from_other_shapes_is_refused():
    X = blobs()
    for name, settings, data in (
        ("weights_", {"n_components": 3}, X),
        ("means_", {}, X[:, :3]),
        ("covariances_", {"covariance_type": "diag"}, X),
    ):
        model = make("full", warm_start=True).fit(X).set_params(**settings)
        before = pickle.dumps(vars(model))
        with pytest.raises(ValueError, match=f"^{name} has shape .* warm_start"):
            model.fit(data)
        assert pickle.dumps(vars(model)) == before


@types
def test_densities_by_definition(kind):
    X = blobs()
    model = make(kind).fit(X)
    S = dense(model.covariances_)
    parts = zip(model.weights_, model.means_, S)
    joint = np.array([np.log(w) + multivariate_normal(mu, C).logpdf(X) for w, mu, C in parts]).T
    log_p = logsumexp(joint, axis=1)
    q = np.exp(joint - log_p[:, None])
    assert np.allclose(model.score_samples(X), log_p)
    assert np.isclose(model.score(X), log_p.mean())
    assert np.allclose(model.predict_proba(X), q)
    assert np.array_equal(model.fit_predict(X), joint.argmax(axis=1))
    penalty = q.mean(axis=0) @ np.trace(np.linalg.inv(S), axis1=1, axis2=2)
    assert np.isclose(model.lower_bound_, model.score(X) - 0.5e-6 * penalty, rtol=1e-12)
    assert len(model.history_["log_likelihood"]) == model.n_iter_
    assert np.isclose(model.lower_bound_, model.history_["objective"].max() / len(X))
    drawn, made_by = model.sample(20_000)
    assert np.all(np.diff(made_by) >= 0)
    assert np.allclose(np.bincount(made_by) / 20_000, model.weights_, atol=0.02)
    for j, C in enumerate(S):
        assert np.allclose(np.cov(drawn[made_by == j].T), C, atol=0.05 * np.trace(C))


@types
def test_what_is_given_of_a_start_is_used(kind):
    X = blobs()
    means = X[:2]
    one = np.ones((4, 4)) if kind == "full" else np.eye(4)
    P = np.stack([2 * np.eye(4)] * 2) if kind == "full" else np.full((2, 4), 2.0)
    labels = np.argmin(((X[:, None] - means) ** 2).sum(axis=2), axis=1)
    for n in (1, 5):
        model = fitted_parts(make(kind, means_init=means, max_iter=1, n_init=n), X)
        assert np.allclose(model.means_, means)
        assert np.allclose(model.weights_, np.bincount(labels) / len(X))
        S = np.cov(X[labels == 0].T, ddof=0) * one
        assert np.allclose(dense(model.covariances_)[0], S, atol=1e-5)
    given = {"precisions_init": P, "max_iter": 1}
    model = fitted_parts(make(kind, weights_init=[0.2, 0.8], **given), X)
    assert np.allclose(model.weights_, [0.2, 0.8])
    assert np.allclose(model.precisions_, P)
    zero = fitted_parts(make(kind, weights_init=[0, 1], means_init=means, **given), X)
    assert np.isfinite(zero.score(X))
    assert zero.predict_proba(X)[:, 0].max() < 1e-200
