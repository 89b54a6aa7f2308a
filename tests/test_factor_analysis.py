"""Mixtures of linear manifolds on the engine: against dense matrices, sums, monotonicity,
symmetries, other array libraries.
"""

import numpy as np
import pytest
from conftest import together
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from capslit import em
from capslit.em.acceleration import Anderson, Squarem
from capslit.mixtures.factor_analysis import LinearManifolds, ManifoldParameters

NOISES = ["diagonal", "isotropic", "none"]


def problem(
    seed, noise=None, *, k=1, n=60, weighted=False, tangents=False, dtype=np.float64, **settings
):
    "A random problem: (model, parameters, data)."
    rng = np.random.default_rng(seed)
    noise = noise or NOISES[seed % 3]
    m, p = rng.integers(1, 5), rng.integers(3, 8)
    r = rng.integers(1, p)
    scale = rng.choice([0.1, 1, 30])
    centres = rng.normal(size=(3, p)) * 2
    X = scale * (
        centres[rng.integers(0, 3, n)]
        + rng.normal(size=(n, r)) @ rng.normal(size=(r, p))
        + rng.normal(size=(n, p)) / 2
    )
    level = (
        rng.normal(size=(k, m, p)) if noise == "diagonal" else np.zeros((k, m, p)) + rng.normal()
    )
    log_weights = np.log(rng.dirichlet(np.ones(m), k)) if noise != "none" else np.zeros((k, m))
    model = LinearManifolds(
        noise,
        **({"temperature": scale**2 * np.exp(level[0, 0, 0])} if noise == "none" else {})
        | settings,
    )
    parameters = ManifoldParameters(
        log_weights,
        X[rng.integers(0, n, (k, m))],
        scale * rng.normal(size=(k, m, p, r)),
        level + 2 * np.log(scale),
    )
    data = (
        X.astype(dtype),
        rng.random(n).astype(dtype) if weighted else None,
        (scale * rng.normal(size=(n, 2, p)).astype(dtype) / 4 if tangents else None),
    )
    return model, parameters, data


def settings_of(seed, scale=1.0):
    return dict(
        k=1 + seed % 2,
        weighted=seed % 5 == 0,
        hard=seed % 4 == 1,
        added=[0.0, 0.05, 0.0, 2.0][seed % 4] * scale,
        floor=[0.0, 0.0, 1e-3, 0.3, 0.0][seed % 5] * scale,
    )


def dense(parameters, noise):
    """Means, covariances (m, p, p) and weights of the first stacked mixture; for PCA the
    'precision' (I − QQᵀ)/temperature.
    """
    log_weights, means, G, log_noise = (leaf[0] for leaf in parameters)
    if noise != "none":
        return (
            log_weights,
            means,
            G @ G.transpose(0, 2, 1) + np.exp(log_noise)[:, :, None] * np.eye(means.shape[1]),
        )
    Q = np.linalg.qr(G)[0]
    return (
        log_weights,
        means,
        (np.eye(means.shape[1]) - Q @ Q.transpose(0, 2, 1)) * np.exp(-log_noise)[:, :, None],
    )


def dense_joint(parameters, noise, X):
    log_weights, means, C = dense(parameters, noise)
    if noise == "none":
        return np.stack(
            [-np.einsum("np,pq,nq->n", X - mu, A, X - mu) / 2 for mu, A in zip(means, C)]
        )
    return np.stack(
        [
            w + np.atleast_1d(multivariate_normal(mu, c).logpdf(X))
            for w, mu, c in zip(log_weights, means, C)
        ]
    )


@pytest.mark.parametrize("seed", range(6))
def test_densities_and_statistics_against_dense_matrices(seed):
    model, parameters, (X, w, T) = problem(
        seed, weighted=True, tangents=True, hard=seed % 2 == 1, added=0.1 * (seed % 3)
    )
    joint = dense_joint(parameters, model.noise, X)
    assert np.allclose(model.log_joint(parameters, X)[0], joint, rtol=1e-9)
    inverses = dense(parameters, model.noise)[2]
    inverses = inverses if model.noise == "none" else np.linalg.inv(inverses)
    charged = joint - model.added / 2 * np.trace(inverses, axis1=1, axis2=2)[:, None]
    q = (
        np.eye(len(joint))[:, np.argmax(charged, axis=0)]
        if model.hard
        else np.exp(charged - logsumexp(charged, axis=0))
    )
    reduced = np.max if model.hard else logsumexp
    found = model.e_step(parameters, (X, w, T))
    q = q * w
    assert np.allclose(found.mass[0], q.sum(axis=1)) and np.allclose(found.weight, w.sum())
    assert np.allclose(found.first[0], q @ X) and np.allclose(
        found.log_likelihood, np.sum(w * reduced(joint, axis=0))
    )
    second = q @ X**2 + np.einsum("jn,ntp->jp", q, T**2) + model.added * q.sum(axis=1)[:, None]
    assert np.allclose(found.second[0], second)
    cost = np.einsum("jn,ntp,jpq,ntq->", q, T, inverses, T) / 2
    assert np.allclose(found.bound, np.sum(w * reduced(charged, axis=0)) - cost, rtol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_recognition_against_the_joint_density(seed):
    model, parameters, (X, _, _) = problem(seed, ["diagonal", "isotropic"][seed % 2])
    R, covariance = model.recognition(parameters)
    _, _, C = dense(parameters, model.noise)
    G = parameters.loadings[0]
    assert np.allclose(R[0], G.transpose(0, 2, 1) @ np.linalg.inv(C))
    assert np.allclose(covariance[0], np.eye(G.shape[2]) - R[0] @ G)
    free, spread = LinearManifolds("none").recognition(parameters)
    assert np.allclose(free[0] @ G, np.eye(G.shape[2])) and not np.any(spread)


@pytest.mark.parametrize("noise", NOISES)
def test_the_order_of_components_does_not_matter(noise):
    model, parameters, data = problem(5, noise, added=0.1)
    order = np.random.default_rng(1).permutation(parameters.means.shape[1])
    turned = ManifoldParameters(*(leaf[:, order] for leaf in parameters))
    one, two = model.e_step(parameters, data), model.e_step(turned, data)
    assert np.allclose(one.bound, two.bound) and np.allclose(one.cross[:, order], two.cross)


@pytest.mark.parametrize("seed", range(4))
def test_factor_analysis_does_not_mind_units(seed):
    """Every feature in units of its own: the same fit, and a log-likelihood moved by the logarithms
    of the units.
    """
    model, parameters, (X, w, _) = problem(seed, "diagonal", weighted=True)
    units = 10 ** np.random.default_rng(seed).uniform(-20, 20, X.shape[1])
    moved = parameters._replace(
        means=parameters.means * units,
        loadings=parameters.loadings * units[:, None],
        log_noise=parameters.log_noise + 2 * np.log(units),
    )
    for _ in range(5):
        one, two = model.e_step(parameters, (X, w, None)), model.e_step(moved, (X * units, w, None))
        assert np.allclose(
            two.log_likelihood, one.log_likelihood - w.sum() * np.log(units).sum(), rtol=1e-8
        )
        parameters, moved = model.m_step(parameters, one), model.m_step(moved, two)


@pytest.mark.parametrize("noise", ["isotropic", "none"])
def test_models_without_axes_do_not_mind_rotations(noise):
    model, parameters, (X, _, _) = problem(6, noise)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1],) * 2))[0]
    turned = parameters._replace(
        means=parameters.means @ turn, loadings=turn.T @ parameters.loadings
    )
    for _ in range(5):
        one, two = (
            model.e_step(parameters, (X, None, None)),
            model.e_step(turned, (X @ turn, None, None)),
        )
        assert np.allclose(one.bound, two.bound, rtol=1e-9)
        parameters, turned = model.m_step(parameters, one), model.m_step(turned, two)


@pytest.mark.parametrize("noise", NOISES)
def test_the_origin_keeps_digits_and_changes_nothing_else(noise):
    model, parameters, (X, _, _) = problem(7, noise)
    origin = X.mean(axis=0)
    there = LinearManifolds(noise, temperature=model.temperature, origin=origin)
    moved = parameters._replace(means=parameters.means - origin)
    assert np.allclose(model.log_joint(parameters, X), there.log_joint(moved, X))
    far = LinearManifolds(noise, temperature=model.temperature, origin=origin + 1e8)
    assert np.allclose(
        far.log_joint(moved, X + 1e8), there.log_joint(moved, X), rtol=1e-4, atol=1e-4
    )


@together("acceleration", [Squarem(), Anderson()], ids=repr)
@together("noise", NOISES)
@pytest.mark.parametrize("seed", range(4))
def test_accelerated_points_never_lower_the_bound_and_stay_admissible(acceleration, noise, seed):
    model, parameters, data = problem(seed, noise, n=120, floor=0.05, added=0.05)
    run = em.fit(
        model,
        parameters,
        data,
        rounds=[em.Round(60)],
        max_iter=60,
        n_threads=1,
        acceleration=acceleration,
    )
    path = run.history["objective"][run.history["accepted"][:, 0] == 1, 0]
    assert np.all(np.diff(path) >= -1e-9 * np.abs(path[0])) and path[-1] > path[0]
    best = model.admissible(run.parameters)
    if noise != "none":
        assert np.allclose(np.exp(best.log_weights).sum(axis=1), 1) and np.all(
            np.exp(best.log_noise) >= 0.05 * (1 - 1e-12)
        )
    assert np.isclose(model.e_step(best, data).bound[0], -run.score[0] * len(data[0]), rtol=1e-9)


def test_what_is_inadmissible_gains_nothing():
    model, parameters, data = problem(9, "diagonal", floor=0.2)
    wrong = parameters._replace(
        log_weights=parameters.log_weights + 3.0, log_noise=parameters.log_noise - 9.0
    )
    right = model.admissible(wrong)
    assert np.allclose(right.log_weights, parameters.log_weights) and np.all(
        right.log_noise >= np.log(0.2)
    )
    assert np.allclose(model.e_step(wrong, data).bound, model.e_step(right, data).bound)


@pytest.mark.parametrize("noise", NOISES)
def test_an_empty_component_takes_half_of_the_heaviest(noise):
    model, parameters, (X, _, _) = problem(2, noise, n=200)
    m = 4
    wide = ManifoldParameters(*(np.repeat(leaf[:, :1], m, axis=1) for leaf in parameters))
    means = wide.means.copy()
    means[0, 3] += 0.3 * X.std()
    means[0, 1:3] += 1e6 * X.std()  # two components far from every example
    wide = wide._replace(means=means)
    new = model.m_step(wide, model.e_step(wide, (X, None, None)))
    assert all(np.all(np.isfinite(leaf)) for leaf in new)
    assert np.all(np.abs(new.means) < 100 * np.abs(X).max())
    if noise != "none":
        assert np.isclose(np.exp(new.log_weights).sum(), 1, rtol=1e-5)
    assert len(np.unique(new.means[0], axis=0)) == 4


@pytest.mark.parametrize("noise", NOISES)
def test_awkward_data(noise):
    """A silent column, a constant one, repeated ones, fewer examples than features: finite, and the
    bound rises.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 8))
    X[:, 0], X[:, 1], X[:, 2] = 0, 5, X[:, 3]
    parameters = ManifoldParameters(
        np.zeros((1, 1)), np.zeros((1, 1, 8)), rng.normal(size=(1, 1, 8, 3)), np.zeros((1, 1, 8))
    )
    run = em.fit(
        LinearManifolds(noise, origin=X.mean(axis=0)),
        parameters,
        (X, None, None),
        rounds=[em.Round(50)],
        max_iter=50,
        n_threads=1,
    )
    assert (
        np.all(np.isfinite(run.history["objective"]))
        and run.history["objective"][-1] > run.history["objective"][0]
    )
    blank = em.fit(
        LinearManifolds(noise),
        parameters,
        (0 * X, None, None),
        rounds=[em.Round(5)],
        max_iter=5,
        n_threads=1,
    )
    assert np.all(np.isfinite(blank.history["objective"]))


def test_misuse_is_explained():
    model, parameters, (X, w, T) = problem(12, "diagonal", weighted=True, tangents=True)
    for wrong, message in [
        ((X[:, 1:], w, T), "x has shape"),
        ((X, w[1:], T), "weight has shape"),
        ((X, w, T[:, 0]), "tangents has shape"),
        ((X, w, T[..., 1:]), "tangents has shape"),
        ((X.astype(complex), w, T), "x must hold real numbers"),
        ((None, w, T), "x is None"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            model.e_step(parameters, wrong)
    with pytest.raises(ValueError, match="log_noise has shape"):
        model.e_step(parameters._replace(log_noise=parameters.log_noise[..., :1]), (X, None, None))
    wide = parameters._replace(loadings=np.ones((*parameters.means.shape, X.shape[1] + 1)))
    with pytest.raises(ValueError, match="loadings has"):
        LinearManifolds("none").e_step(wide, (X, None, None))
    assert np.all(np.isfinite(model.m_step(wide, model.e_step(wide, (X, None, None))).loadings))
    for settings in (
        {"noise": "full"},
        {"temperature": 0},
        {"temperature": np.nan},
        {"added": -1},
        {"floor": np.inf},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            LinearManifolds(**settings)
