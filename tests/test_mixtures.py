"""Gaussian mixtures: the engine's model against dense formulas, the estimator against
scikit-learn's, and data of every kind.
"""

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
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from sklearn.preprocessing import StandardScaler

from capslit import em
from capslit.mixtures import GaussianMixture
from capslit.mixtures.gaussian import MixtureParameters, Mixtures, log_sum, mixture_parameters

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
blobs, classes = partial(conftest.blobs, p=4), partial(conftest.classes, p=4)
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
    X = scale * (centres[rng.integers(0, 3, n)] + rng.normal(size=(n, p)) @ rng.normal(size=(p, p)))
    S = np.atleast_2d(np.cov(X.T)) + 1e-3 * scale**2 * np.eye(p)
    S = (S if kind == "full" else np.diag(S)) * rng.uniform(
        0.3, 3, (k, m) + (1,) * (1 + (kind == "full"))
    )
    start = mixture_parameters(rng.dirichlet(np.ones(m), k), X[rng.integers(0, n, (k, m))], S)
    return start, (X, rng.random(n) if weighted else None)


def dense(S):
    return S if S.ndim == 3 else np.stack([np.diag(v) for v in S])


# ── the model on the engine
# ──────────────────────────────────────────────────────────────────────────────────────────────────


@types
@together("seed", range(5))
def test_with_added_variance_the_likelihood_less_its_price_hardly_falls(kind, seed):
    parameters, data = problem(seed, kind)
    for added in (1e-6, 0.1):
        model = Mixtures(kind, reg_covar=added * float(data[0].var(axis=0).mean()))
        path = em.fit(
            model, parameters, data, rounds=[em.Round(30)], max_iter=30, n_threads=1
        ).history["objective"][:, 0] / len(data[0])
        assert np.all(np.diff(path) > (-1e-7 if added < 1e-3 else -2e-3)) and path[-1] > path[0]


def test_ending_while_the_objective_falls_is_not_called_convergence():
    "Wines with 0.3 added to variances of 1: three falls on end, and a better place beyond them."
    X, how = (
        TABLES["wine"],
        {
            "n_components": 3,
            "reg_covar": 0.3,
            "init_params": "random_from_data",
            "random_state": 2,
            "n_jobs": 1,
        },
    )
    with pytest.warns(
        ConvergenceWarning,
        match="reg_covar = 0.3 is large beside the covariances.*lower reg_covar, or raise patience",
    ):
        hasty = GaussianMixture(**how).fit(X)
    path = hasty.history_["objective"] / len(X)
    assert (
        not hasty.converged_
        and np.all(np.diff(path)[-3:] < 0)
        and np.isclose(hasty.lower_bound_, path.max())
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        patient, coarse = (
            GaussianMixture(**how, patience=20).fit(X),
            GaussianMixture(**how, tol=0.01).fit(X),
        )
        small = GaussianMixture(**how | {"reg_covar": 1e-6}).fit(X)
    assert (
        patient.converged_
        and coarse.converged_
        and small.converged_
        and patient.lower_bound_ > hasty.lower_bound_ + 3e-3
    )


@types
@together("seed", range(6))
def test_the_roots_of_new_covariances(kind, seed):
    start, (X, w) = problem(seed, kind, weighted=True)
    model = Mixtures(kind)
    statistics = model.e_step(start, (X, w))
    assert np.allclose(statistics.weight, w.sum())
    if np.all(statistics.mass > 1e-3):
        new = model.m_step(start, statistics)
        U = new.precisions_cholesky[0]
        precision = U @ np.swapaxes(U, 1, 2) if kind == "full" else U**2
        unit = precision @ new.covariances[0] if kind == "full" else precision * new.covariances[0]
        assert np.allclose(unit, np.eye(X.shape[1]) if kind == "full" else 1, atol=1e-6)
        assert kind == "diag" or not np.any(np.tril(U, -1))


@types
@pytest.mark.parametrize("far", [1e-3, 1e3, 1e6, 1e9])
def test_narrow_components_far_from_the_origin_keep_their_digits(kind, far):
    """Two heaps of width one at ± far: densities and variances as if each had been measured from
    its own mean.
    """
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 50, 3))
    X = np.concatenate([left - far, right + far])
    place = np.array([[-far] * 3, [far] * 3])
    unit = np.ones((2, 3)) if kind == "diag" else np.stack([np.eye(3)] * 2)
    start, model = mixture_parameters([[0.5, 0.5]], place[None], unit[None]), Mixtures(kind)
    found = model.log_joint(start, X)[0]
    digits = 1e-9 + 1e-15 * far  # that the examples themselves have lost
    assert np.allclose(
        found[0, :50],
        np.log(0.5) - (left**2).sum(axis=1) / 2 - 1.5 * np.log(2 * np.pi),
        atol=40 * digits,
    )
    if far > 10:
        new = model.m_step(start, model.e_step(start, (X, None)))
        S = [np.cov(Y.T, ddof=0) for Y in (left, right)]
        assert np.allclose(
            new.covariances[0], S if kind == "full" else [np.diag(C) for C in S], atol=40 * digits
        )


@types
def test_far_components_do_not_underflow(kind):
    """In logarithms an example at 1000 standard deviations still has responsibilities and a
    likelihood.
    """
    start = mixture_parameters(
        [[0.3, 0.7]], [[[0.0], [1.0]]], [[[[1.0]], [[1.0]]]] if kind == "full" else [[[1.0], [1.0]]]
    )
    statistics = Mixtures(kind).e_step(start, (np.array([[2000.0]]), None))
    assert np.isclose(
        statistics.log_likelihood[0], np.log(0.7) - 1999**2 / 2 - np.log(2 * np.pi) / 2
    )
    assert np.allclose(statistics.mass, [[0, 1]])
    total, r = log_sum(np.array([[[-1e300], [-np.inf]]]))
    assert total[0, 0] == -1e300 and r.ravel().tolist() == [1, 0]


@types
def test_an_empty_component_takes_half_of_the_heaviest(kind):
    X = blobs(200)
    S = np.cov(X.T) if kind == "full" else X.var(axis=0)
    means = np.stack([X.mean(axis=0), X.mean(axis=0) + 1e6, X.mean(axis=0) - 1e6])
    start, model = (
        mixture_parameters([[1 / 3] * 3], means[None], np.stack([S] * 3)[None]),
        Mixtures(kind),
    )
    new = model.m_step(start, model.e_step(start, (X, None)))
    weights = np.exp(new.log_weights[0])
    assert (
        np.allclose(np.sort(weights), [0.25, 0.25, 0.5])
        and len(np.unique(new.means[0], axis=0)) == 3
    )
    assert np.allclose(weights @ new.means[0], X.mean(axis=0))  # together what there was
    away = new.means[0] - X.mean(axis=0)
    if kind == "full":
        together = np.einsum("j,jab->ab", weights, new.covariances[0]) + np.einsum(
            "j,ja,jb->ab", weights, away, away
        )
        assert np.allclose(together, np.cov(X.T, ddof=0))
    else:
        assert np.allclose(weights @ (new.covariances[0] + away**2), X.var(axis=0))
    run = em.fit(model, start, (X, None), rounds=[em.Round(5)], tol=1e-9, n_threads=1)
    one = em.fit(
        model,
        MixtureParameters(*(leaf[:, :1] for leaf in start))._replace(log_weights=np.zeros((1, 1))),
        (X, None),
        rounds=[em.Round(5)],
    )
    assert -run.score[0] > -one.score[0] + 0.1  # and then learns


@types
def test_collapse_is_one_clear_error(kind):
    X = np.array([[0.0, 0], [0, 0], [0, 0], [3, 1], [4, 2], [5, -1]])
    S = np.eye(2) if kind == "full" else np.ones(2)
    start = mixture_parameters([[0.5, 0.5]], [[[0, 0], [4, 0]]], np.stack([S, S])[None])
    with pytest.raises(
        ValueError, match="component 0 is singular.*raise reg_covar.*lower n_components"
    ):
        em.fit(Mixtures(kind), start, (X, None), rounds=[em.Round(200)], max_iter=200, n_threads=1)
    held = em.fit(
        Mixtures(kind, reg_covar=1e-4),
        start,
        (X, None),
        rounds=[em.Round(200)],
        max_iter=200,
        n_threads=1,
    )
    S = held.parameters.covariances[0, 0]
    assert np.allclose(S if kind == "diag" else np.diag(S), 1e-4) and np.isfinite(held.score[0])
    for data in (
        np.c_[blobs(50), np.full(50, 3.0)],
        np.c_[blobs(50), blobs(50)[:, 0]] if kind == "full" else np.full((50, 2), 3.0),
    ):
        with pytest.raises(ValueError, match="raise reg_covar"):
            GaussianMixture(1, covariance_type=kind, reg_covar=0).fit(data)
        GaussianMixture(1, covariance_type=kind).fit(data)


def test_misuse_is_explained():
    start, (X, w) = problem(12, "full", weighted=True)
    for wrong, message in [
        ((np.c_[X, X], w), "x has shape"),
        ((X, w[1:]), "weight has shape"),
        ((X.astype(complex), w), "x must hold real numbers"),
        ((None, w), "x is None"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            Mixtures().e_step(start, wrong)
    with pytest.raises(ValueError, match="log_weights has shape"):
        Mixtures().e_step(start._replace(log_weights=np.zeros((1, 9))), (X, None))
    for settings in (
        {"covariance_type": "round"},
        {"reg_covar": -1},
        {"reg_covar": np.inf},
        {"reg_covar": np.nan},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            Mixtures(**settings)


# ── beside scikit-learn
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def tables():
    digits = load_digits().data - load_digits().data.mean(axis=0)
    axes = np.linalg.svd(digits, full_matrices=False)[2]
    return {
        "iris": load_iris().data,
        "wine": StandardScaler().fit_transform(load_wine().data),
        "wine as it is": load_wine().data,
        "digits": digits @ axes[:10].T,
        "digits, two axes": digits @ axes[:2].T,
    }


TABLES = tables()


def common_start(X, kind, m):
    means = X[:: len(X) // m][:m]
    S = np.cov(X.T) if kind in ("full", "tied") else X.var(axis=0)
    return (
        np.full(m, 1 / m),
        means,
        {"tied": S, "spherical": np.full(m, np.mean(S))}.get(kind, np.stack([S] * m)),
    )


def given_start(X, kind, m=2):
    weights, means, S = common_start(X, kind, m)
    return {
        "weights_init": weights,
        "means_init": means,
        "precisions_init": np.linalg.inv(S) if kind in ("full", "tied") else 1 / S,
    }


def peer(X, kind, m, steps, reg_covar=0.0):
    model = Peer(
        m,
        covariance_type=kind,
        tol=0,
        reg_covar=reg_covar,
        max_iter=steps,
        **given_start(X, kind, m),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def ours(X, kind, m, steps, reg_covar=0.0):
    "Weights, means, covariances after some steps, log-likelihoods per example before each."
    origin = X.mean(axis=0)
    weights, means, S = common_start(X, kind, m)
    model, here = (
        Mixtures(kind, reg_covar, origin),
        mixture_parameters(weights[None], (means - origin)[None], S[None]),
    )
    path = []
    for _ in range(steps):
        statistics = model.e_step(here, (X, None))
        here = model.m_step(here, statistics)
        path.append(statistics.log_likelihood[0] / len(X))
    return np.exp(here.log_weights[0]), here.means[0] + origin, here.covariances[0], path


@types
@together("m", [1, 2])
@together("name", TABLES)
@together("reg_covar", [0.0, 1e-3])
def test_step_by_step_as_scikit_learn(kind, m, name, reg_covar):
    X = TABLES[name]
    for steps in (1, 2, 5, 20):
        weights, means, S, path = ours(X, kind, m, steps, reg_covar)
        theirs = peer(X, kind, m, steps, reg_covar)
        unit = X.std(axis=0)
        assert np.allclose(weights, theirs.weights_, rtol=0, atol=1e-8) and np.allclose(
            means / unit, theirs.means_ / unit, rtol=0, atol=1e-8
        )
        units = unit**2 if kind == "diag" else np.outer(unit, unit)
        assert np.allclose(S / units, theirs.covariances_ / units, rtol=0, atol=1e-8)
        assert abs(path[-1] - theirs.lower_bound_) <= 1e-8 * max(1, abs(theirs.lower_bound_))


@types
@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_an_offset_costs_no_digits_but_those_of_the_data(kind, offset):
    """Theirs at home, ours far away: the examples themselves have lost digits out there, and no
    more are lost.
    """
    X = np.round(TABLES["iris"] * 2**20) / 2**20  # numbers to which the offset can be added exactly
    home = peer(X, kind, 2, 5)
    weights, means, S, path = ours(X + offset, kind, 2, 5)
    assert np.allclose(weights, home.weights_, atol=1e-8) and np.allclose(
        S, home.covariances_, atol=1e-8
    )
    assert np.allclose(means - offset, home.means_, atol=1e-8) and np.isclose(
        path[-1], home.lower_bound_, atol=1e-8
    )


@all_types
def test_the_fit_ends_where_scikit_learn_does(kind):
    X = TABLES["iris"]
    given = given_start(X, kind)
    a = GaussianMixture(2, covariance_type=kind, tol=1e-12, max_iter=2000, **given).fit(X)
    b = Peer(2, covariance_type=kind, tol=1e-12, max_iter=2000, **given).fit(X)
    assert (
        abs(a.score(X) - b.score(X)) < 1e-8
        and abs(a.history_["log_likelihood"].max() / len(X) - b.lower_bound_) < 1e-8
        and a.converged_
    )
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-5), name
    b.weights_, b.means_, b.precisions_cholesky_ = a.weights_, a.means_, a.precisions_cholesky_
    assert np.allclose(a.score_samples(X), b.score_samples(X), atol=1e-9) and np.allclose(
        a.predict_proba(X), b.predict_proba(X), atol=1e-9
    )
    assert (
        np.array_equal(a.predict(X), b.predict(X))
        and np.isclose(a.bic(X), b.bic(X), atol=1e-6)
        and np.isclose(a.aic(X), b.aic(X), atol=1e-6)
    )
    assert a.n_parameters_ == b._n_parameters()


def fitted_parts(model, X, parts=1):
    "The model after several fits, which may end before they converge."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(parts):
            model.fit(X)
    return model


@all_types
@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_from_a_given_start_the_estimator_is_where_scikit_learn_is(kind, steps):
    """An iteration of ours is an E-step, and the best parameters seen are kept, so that one more of
    them is needed.
    """
    X = TABLES["digits, two axes"]
    given = given_start(X, kind) | {"covariance_type": kind, "tol": 0}
    model, theirs = (
        fitted_parts(GaussianMixture(2, max_iter=steps + 1, patience=100, **given), X),
        peer(X, kind, 2, steps, 1e-6),
    )
    for name in ("weights_", "means_", "covariances_"):
        assert np.allclose(getattr(model, name), getattr(theirs, name), rtol=0, atol=1e-6), name


@all_types
def test_warm_starts_go_on_as_those_of_scikit_learn(kind):
    X = TABLES["digits, two axes"]
    given = given_start(X, kind) | {"covariance_type": kind, "tol": 0, "warm_start": True}
    model, theirs, straight = (
        GaussianMixture(2, max_iter=4, patience=100, **given),
        Peer(2, max_iter=3, **given),
        peer(X, kind, 2, 9, 1e-6),
    )
    fitted_parts(model, X, 3), fitted_parts(theirs, X, 3)
    for name in ("weights_", "means_", "covariances_"):
        assert np.allclose(getattr(model, name), getattr(theirs, name), rtol=0, atol=1e-6), name
        assert np.allclose(getattr(model, name), getattr(straight, name), rtol=0, atol=1e-6), name
    assert model.n_iter_ == 4 == len(model.history_["objective"])  # those of the last fit
    anew = fitted_parts(
        GaussianMixture(2, max_iter=4, patience=100, **given | {"warm_start": False}), X, 3
    )
    assert not np.allclose(anew.means_, model.means_, atol=1e-6)


@all_types
def test_a_warm_start_is_one_start_and_not_drawn(kind, tmp_path):
    X, path = blobs(200), tmp_path / "mixture.npz"
    model = fitted_parts(
        make(kind, 3, init_params="random", n_init=4, max_iter=3, warm_start=True), X
    )
    first = model.lower_bound_
    assert (
        np.isclose(fitted_parts(model, X).history_["objective"][0] / len(X), first, rtol=1e-12)
        and model.lower_bound_ > first
    )
    model.set_params(random_state=None, max_iter=300)  # of whatever random state
    other = pickle.loads(pickle.dumps(model)).set_params(max_iter=3)
    with pytest.warns(ConvergenceWarning, match="max_iter = 3"):
        other.fit(X, checkpoint=path)
    resumed, straight = (pickle.loads(pickle.dumps(model)) for _ in range(2))
    resumed.fit(X, checkpoint=path), straight.fit(X)
    assert (
        np.array_equal(resumed.covariances_, straight.covariances_)
        and resumed.n_iter_ == straight.n_iter_
    )
    with pytest.raises(ValueError, match="checkpoint needs random_state"):
        clone(model).fit(X, checkpoint=tmp_path / "fresh.npz")


@types
def test_a_warm_start_from_other_shapes_is_refused(kind):
    X, other = blobs(), {"full": "diag", "diag": "full"}[kind]
    changes = {
        "weights_": ({"n_components": 3}, X),
        "means_": ({}, X[:, :3]),
        "covariances_": ({"covariance_type": other}, X),
    }
    for name, (settings, data) in changes.items():
        model = make(kind, warm_start=True).fit(X).set_params(**settings)
        before = state(model)
        with pytest.raises(ValueError, match=f"^{name} has shape .* warm_start"):
            model.fit(data)
        assert state(model) == before
        model.set_params(warm_start=False).fit(data)
    one, two = make(kind).fit(X), make(kind, warm_start=True).fit(X)
    assert np.array_equal(one.means_, two.means_) and np.array_equal(
        one.covariances_, two.covariances_
    )


# ── the estimator
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def make(kind, m=2, **settings):
    return GaussianMixture(m, covariance_type=kind, random_state=0, n_jobs=1, **settings)


def state(model):
    return pickle.dumps(vars(model))


@types
@pytest.mark.parametrize("init", ["kmeans", "k-means++", "random", "random_from_data"])
def test_densities_by_definition(kind, init):
    X = blobs()
    model = make(kind, init_params=init).fit(X)
    joint = np.stack(
        [
            np.log(w) + multivariate_normal(mu, C).logpdf(X)
            for w, mu, C in zip(model.weights_, model.means_, dense(model.covariances_))
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
    trace = np.stack([np.trace(np.linalg.inv(C)) for C in dense(model.covariances_)])
    assert np.isclose(
        model.lower_bound_,
        model.score(X) - 0.5e-6 * model.predict_proba(X).mean(axis=0) @ trace,
        rtol=1e-12,
    )
    assert len(model.history_["log_likelihood"]) == model.n_iter_ and np.isclose(
        model.lower_bound_, model.history_["objective"].max() / len(X)
    )
    one = make(kind, 1, reg_covar=0).fit(X)
    assert np.allclose(one.means_[0], X.mean(axis=0)) and np.allclose(
        dense(one.covariances_)[0], np.cov(X.T, ddof=0) * (1 if kind == "full" else np.eye(4))
    )


@types
def test_known_parameters_are_found_again(kind):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 3, 3)) / 2 + np.eye(3)
    S = (
        A @ A.transpose(0, 2, 1)
        if kind == "full"
        else np.stack([np.diag(v) for v in rng.uniform(0.3, 2, (2, 3))])
    )
    weights, means = np.array([0.35, 0.65]), np.array([[0.0, 0, 0], [3, -2, 2]])
    by = rng.choice(2, 40_000, p=weights)
    X = means[by] + np.einsum(
        "nab,nb->na", np.linalg.cholesky(S)[by], rng.standard_normal((len(by), 3))
    )
    model = make(kind, tol=1e-7).fit(X)
    order = np.argsort(model.weights_)
    assert np.allclose(model.weights_[order], weights, atol=0.01) and np.allclose(
        model.means_[order], means, atol=0.06
    )
    assert np.allclose(dense(model.covariances_)[order], S, atol=0.08)
    drawn, made_by = model.sample(40_000)
    assert np.all(np.diff(made_by) >= 0) and np.allclose(
        np.bincount(made_by) / 40_000, model.weights_, atol=0.01
    )
    for j in range(2):
        assert np.allclose(np.cov(drawn[made_by == j].T), dense(model.covariances_)[j], atol=0.1)
    assert np.array_equal(model.sample(5)[0], model.sample(5)[0])


@types
def test_what_is_given_of_a_start_is_used(kind):
    X = blobs()
    means = X[[0, 1]]
    a, b = (make(kind, means_init=means, max_iter=1, n_init=n) for n in (1, 5))
    with pytest.warns(ConvergenceWarning):
        a.fit(X), b.fit(X)
    assert np.allclose(a.means_, means) and np.allclose(b.means_, means)
    labels = np.argmin(((X[:, None] - means) ** 2).sum(axis=2), axis=1)
    assert np.allclose(a.weights_, np.bincount(labels) / len(X))
    assert np.allclose(
        dense(a.covariances_)[0],
        np.cov(X[labels == 0].T, ddof=0) * (1 if kind == "full" else np.eye(4)),
        atol=1e-5,
    )
    P = np.stack([2 * np.eye(4)] * 2) if kind == "full" else np.full((2, 4), 2.0)
    with pytest.warns(ConvergenceWarning):
        c = make(kind, weights_init=[0.2, 0.8], precisions_init=P, max_iter=1).fit(X)
    assert np.allclose(c.weights_, [0.2, 0.8]) and np.allclose(c.precisions_, P)
    with pytest.warns(ConvergenceWarning):
        zero = make(kind, weights_init=[0, 1], means_init=means, precisions_init=P, max_iter=1).fit(
            X
        )
    assert np.isfinite(zero.score(X)) and zero.predict_proba(X)[:, 0].max() < 1e-200


# ── data of every kind
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_units_of_the_features_do_not_matter():
    X = blobs()
    units = np.array([1e-8, 1, 1e8, 3])
    given = {
        "means_init": X[[0, 1]],
        "weights_init": [0.5, 0.5],
        "precisions_init": np.stack([np.linalg.inv(np.cov(X.T))] * 2),
    }
    moved = given | {
        "means_init": X[[0, 1]] * units,
        "precisions_init": given["precisions_init"] / units[:, None] / units,
    }
    one, two = (
        make("full", reg_covar=0, **start).fit(Y) for start, Y in ((given, X), (moved, X * units))
    )
    assert np.allclose(one.predict_proba(X), two.predict_proba(X * units), atol=1e-6)
