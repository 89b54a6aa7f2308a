"""Mixtures of linear manifolds on the engine: recognition, acceleration, empty components."""

import numpy as np
from conftest import together

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
    away = rng.normal(size=(n, r)) @ rng.normal(size=(r, p)) + rng.normal(size=(n, p)) / 2
    X = scale * (centres[rng.integers(0, 3, n)] + away)
    if noise == "diagonal":
        level = rng.normal(size=(k, m, p))
    else:
        level = np.zeros((k, m, p)) + rng.normal()
    if noise == "none":
        log_weights = np.zeros((k, m))
        settings = {"temperature": scale**2 * np.exp(level[0, 0, 0])} | settings
    else:
        log_weights = np.log(rng.dirichlet(np.ones(m), k))
    means = X[rng.integers(0, n, (k, m))]
    loadings = scale * rng.normal(size=(k, m, p, r))
    parameters = ManifoldParameters(log_weights, means, loadings, level + 2 * np.log(scale))
    weight = rng.random(n).astype(dtype) if weighted else None
    T = scale * rng.normal(size=(n, 2, p)).astype(dtype) / 4 if tangents else None
    return LinearManifolds(noise, **settings), parameters, (X.astype(dtype), weight, T)


def settings_of(seed, scale=1.0):
    return dict(
        k=1 + seed % 2,
        weighted=seed % 5 == 0,
        hard=seed % 4 == 1,
        added=[0.0, 0.05, 0.0, 2.0][seed % 4] * scale,
        floor=[0.0, 0.0, 1e-3, 0.3, 0.0][seed % 5] * scale,
    )


@together("noise", NOISES)
def test_recognition_against_the_joint_density(noise):
    model, parameters, _ = problem(1, noise)
    R, covariance = model.recognition(parameters)
    G = parameters.loadings[0]
    if noise == "none":
        assert np.allclose(R[0] @ G, np.eye(G.shape[2]))
        assert not np.any(covariance)
        return
    C = G @ G.mT + np.exp(parameters.log_noise[0])[:, :, None] * np.eye(G.shape[1])
    assert np.allclose(R[0], G.mT @ np.linalg.inv(C))
    assert np.allclose(covariance[0], np.eye(G.shape[2]) - R[0] @ G)


@together("acceleration", [Squarem(), Anderson()], ids=repr)
@together("noise", NOISES)
def test_accelerated_points_never_lower_the_bound_and_stay_admissible(acceleration, noise):
    for seed in range(4):
        model, parameters, data = problem(seed, noise, n=120, floor=0.05, added=0.05)
        settings = {"rounds": [em.Round(60)], "max_iter": 60, "n_threads": 1}
        run = em.fit(model, parameters, data, acceleration=acceleration, **settings)
        path = run.history["objective"][run.history["accepted"][:, 0] == 1, 0]
        assert np.all(np.diff(path) >= -1e-9 * np.abs(path[0]))
        assert path[-1] > path[0]
        best = model.admissible(run.parameters)
        if noise != "none":
            assert np.allclose(np.exp(best.log_weights).sum(axis=1), 1)
            assert np.all(np.exp(best.log_noise) >= 0.05 * (1 - 1e-12))
        bound = model.e_step(best, data).bound[0]
        assert np.isclose(bound, -run.score[0] * len(data[0]), rtol=1e-9)


def test_what_is_inadmissible_gains_nothing():
    model, parameters, data = problem(9, "diagonal", floor=0.2)
    wrong = parameters._replace(
        log_weights=parameters.log_weights + 3.0, log_noise=parameters.log_noise - 9.0
    )
    right = model.admissible(wrong)
    assert np.allclose(right.log_weights, parameters.log_weights)
    assert np.all(right.log_noise >= np.log(0.2))
    assert np.allclose(model.e_step(wrong, data).bound, model.e_step(right, data).bound)


@together("noise", NOISES)
def test_an_empty_component_takes_half_of_the_heaviest(noise):
    model, parameters, (X, _, _) = problem(2, noise, n=200)
    wide = ManifoldParameters(*(np.repeat(leaf[:, :1], 4, axis=1) for leaf in parameters))
    means = wide.means.copy()
    means[0, 3] += 0.3 * X.std()
    means[0, 1:3] += 1e6 * X.std()  # two components far from every example
    wide = wide._replace(means=means)
    new = model.m_step(wide, model.e_step(wide, (X, None, None)))
    assert all(np.all(np.isfinite(leaf)) for leaf in new)
    assert np.all(np.abs(new.means) < 100 * np.abs(X).max())
    assert noise == "none" or np.isclose(np.exp(new.log_weights).sum(), 1, rtol=1e-5)
    assert len(np.unique(new.means[0], axis=0)) == 4
