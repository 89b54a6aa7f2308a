"""Inference against brute force: quadrature, Monte Carlo, symmetries, other array libraries, and
bad input.
"""

import warnings

import numpy as np
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad

from capslit.capsules.inference import (
    class_probabilities,
    log_class_probabilities,
    posterior_mean,
    posterior_ratios,
    sample_latents,
    squash,
)

SHAPES = [
    (1, 2),
    (1, 3),
    (2, 2),
    (3, 3),
    (5, 3),
    (8, 10),
    ([1, 2, 4], 3),
    ([3, 1], 2),
    ([1, 1, 1, 2], 4),
]  # d·m odd and even


def pose_problem(dims, m, n=4, seed=0, scale=1.0):
    "Poses padded with zeros, their squared norms and labels."
    rng = np.random.default_rng(seed)
    dims = np.broadcast_to(dims, m)
    poses = (
        scale * rng.standard_normal((n, m, dims.max())) * (np.arange(dims.max()) < dims[:, None])
    )
    return poses, (poses**2).sum(-1), rng.integers(0, m, n)


# ── brute force
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mu", [(0.0, 0.0), (0.8, -0.3), (2.0, 0.0), (1.5, 2.5)])
def test_two_dimensions_by_quadrature(mu):
    """D = 2, in polar coordinates: P(y = 0 | x) and E[h | x, y = 0] are
    two-dimensional integrals.
    """

    def expect(f):
        def integrand(r, t):
            h = r * np.cos(t), r * np.sin(t)
            return (
                f(*h) * r * np.exp(-((h[0] - mu[0]) ** 2 + (h[1] - mu[1]) ** 2) / 2) / (2 * np.pi)
            )

        return dblquad(integrand, 0, 2 * np.pi, 0, 14, epsabs=1e-9)[0]

    share = lambda a, b: a * a / (a * a + b * b) if a or b else 0.5
    p = expect(share)
    poses = np.array(mu).reshape(1, 2, 1)
    assert class_probabilities((poses**2).sum(-1), 1)[0, 0] == pytest.approx(p, abs=1e-7)
    mean = [expect(lambda a, b: a * share(a, b)) / p, expect(lambda a, b: b * share(a, b)) / p]
    np.testing.assert_allclose(posterior_mean(poses, [0])[0, :, 0], mean, atol=1e-6)


@pytest.mark.parametrize(
    "mu, dims",
    [((0.7, -0.4, 1.1), (1, 2)), ((0.7, -0.4, 1.1), (2, 1)), ((1.3, 0.2, 0.5), (1, 1, 1))],
)
def test_three_dimensions_by_quadrature(mu, dims):
    """D = 3, odd, with capsules of different dimensions: spherical product quadrature."""
    radius, weight = np.polynomial.legendre.leggauss(120)
    radius, weight = 6 * (radius + 1), 6 * weight
    cosine, cosine_weight = np.polynomial.legendre.leggauss(80)
    angle = 2 * np.pi * np.arange(160) / 160
    r, c, t = np.meshgrid(radius, cosine, angle, indexing="ij")
    sine = np.sqrt(1 - c**2)
    h = np.stack([r * sine * np.cos(t), r * sine * np.sin(t), r * c])
    measure = weight[:, None, None] * cosine_weight[None, :, None] * (2 * np.pi / 160) * r**2
    density = (
        measure * np.exp(-((h - np.reshape(mu, (3, 1, 1, 1))) ** 2).sum(0) / 2) / (2 * np.pi) ** 1.5
    )
    owner = np.repeat(np.arange(len(dims)), dims)
    poses = np.zeros((1, len(dims), max(dims)))
    poses[0, owner, np.concatenate([np.arange(d) for d in dims])] = mu
    p = class_probabilities((poses**2).sum(-1), dims)[0]
    for j in range(len(dims)):
        joint = density * (h[owner == j] ** 2).sum(0) / r**2
        assert p[j] == pytest.approx(joint.sum(), rel=1e-9)
        mean = posterior_mean(poses, [j], dims)[0][poses[0] != 0]
        np.testing.assert_allclose(mean, (joint * h).sum((1, 2, 3)) / joint.sum(), rtol=1e-8)


@pytest.mark.parametrize("dims, m", SHAPES)
def test_monte_carlo(dims, m):
    """P and E[h | x, y] as weighted averages over samples of h given x, within five standard
    errors.
    """
    poses, w, y = pose_problem(dims, m, n=2, seed=3)
    h = sample_latents(poses, dims, size=40_000, random_state=5)
    share = (h**2).sum(-1) / (h**2).sum((-1, -2))[..., None]
    p = class_probabilities(w, dims)
    assert (abs(share.mean(0) - p) <= 5 * share.std(0) / 200).all()
    for i, label in enumerate(y):
        mean = posterior_mean(poses[i : i + 1], [label], dims)[0]
        residual = share[:, i, label, None, None] * (h[:, i] - mean)  # its expectation vanishes
        assert (abs(residual.mean(0)) <= 5 * residual.std(0) / 200).all()


# ── identities
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@together("dims, m", SHAPES)
@pytest.mark.parametrize("scale", [0.0, 1e-150, 1e-3, 1.0, 30.0, 1e6, 1e150])
def test_normalisation_and_consistency(dims, m, scale):
    """Σ_j P(y = j) = 1 and Σ_j P(y = j) E[h | y = j] = E[h], at every scale."""
    poses, w, _ = pose_problem(dims, m, n=5, scale=scale)
    p = class_probabilities(w, dims)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-14)
    total = sum(p[:, j, None, None] * posterior_mean(poses, np.full(5, j), dims) for j in range(m))
    np.testing.assert_allclose(total, poses, rtol=1e-13, atol=0)
    np.testing.assert_allclose(np.exp(log_class_probabilities(w, dims)), p, rtol=1e-12)


@pytest.mark.parametrize("dims, m", SHAPES)
def test_posterior_mean_is_the_gradient(dims, m):
    """E[h | x, y] − μ = ∂ log P(y | x) / ∂μ (Saul A.21), by central differences."""
    poses, _, y = pose_problem(dims, m, n=3, seed=1)
    step, mean = 1e-6, posterior_mean(poses, y, dims)
    for index in zip(*np.nonzero(poses)):
        change = np.zeros_like(poses)
        change[index] = step
        up, down = (
            log_class_probabilities(((poses + s * change) ** 2).sum(-1), dims)[
                index[0], y[index[0]]
            ]
            for s in (1, -1)
        )
        assert mean[index] - poses[index] == pytest.approx((up - down) / (2 * step), abs=2e-8)


@examples(60)
@given(
    seed=st.integers(0, 10**6), m=st.integers(2, 5), d=st.integers(1, 5), log_scale=st.floats(-4, 4)
)
def test_invariances(seed, m, d, log_scale):
    """Rotating each capsule, or permuting the classes, changes nothing but the coordinates; own
    ratio ≥ 1 ≥ the others.
    """
    poses, w, y = pose_problem(d, m, seed=seed, scale=10**log_scale)
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((m, d, d)))[0]
    turned = np.einsum("jab,njb->nja", rotation, poses)
    np.testing.assert_allclose(
        class_probabilities((turned**2).sum(-1), d), class_probabilities(w, d), rtol=1e-12
    )
    mean = np.einsum("jab,njb->nja", rotation, posterior_mean(poses, y))
    np.testing.assert_allclose(
        posterior_mean(turned, y), mean, rtol=1e-9, atol=1e-12 * 10**log_scale
    )
    order = rng.permutation(m)
    np.testing.assert_allclose(
        class_probabilities(w[:, order], d), class_probabilities(w, d)[:, order], rtol=1e-13
    )
    ratios, own = posterior_ratios(w, y, d), np.arange(m) == y[:, None]
    assert (ratios[own] >= 1 - 1e-14).all() and (ratios[~own] <= 1 + 1e-14).all()


@examples(60)
@given(seed=st.integers(0, 10**6), log_scale=st.floats(-290, 290))
def test_squash_ignores_scale(seed, log_scale):
    """Squashing is invariant to a common scale, and squared lengths sum to one."""
    poses, _, _ = pose_problem(3, 4, seed=seed)
    squashed = squash(poses * 10.0**log_scale)
    np.testing.assert_allclose(squashed, squash(poses), rtol=1e-12)
    np.testing.assert_allclose((squashed**2).sum((1, 2)), 1, rtol=1e-14)


def test_squash_of_nothing_is_nothing():
    poses, _, _ = pose_problem(2, 3)
    poses[1] = 0
    assert (squash(poses)[1] == 0).all() and not np.isnan(squash(poses)).any()


# ── extremes
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_overflow_and_no_warning(d, dtype):
    """Squared norms from the smallest to the largest number: finite results, no warning, the type
    kept.
    """
    big, small = np.finfo(dtype).max, np.finfo(dtype).tiny
    w = np.array(
        [[big, big, big], [big, 0, 0], [small, 0, 0], [0, 0, 0], [1, small, big]], dtype=dtype
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, logs = class_probabilities(w, d), log_class_probabilities(w, d)
        ratios = [posterior_ratios(w, np.full(5, j), d) for j in range(3)]
    assert p.dtype == logs.dtype == ratios[0].dtype == dtype
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert np.isfinite(logs).all() and np.isfinite(ratios).all()
    np.testing.assert_allclose(p[[0, 2, 3]], 1 / 3, rtol=1e-6)
    huge = dtype(np.sqrt(big) * 2)
    mean = posterior_mean(np.array([[[huge], [1], [0]]], dtype=dtype), [0])
    np.testing.assert_allclose(mean, [[[huge], [1], [0]]], rtol=1e-6)


def test_logarithms_at_both_ends():
    """log P near P = 1 and near P = 0 has small relative error; the exact values follow from λ₀ →
    1.
    """
    beta = 1e12
    logs = log_class_probabilities([[2 * beta, 0.0, 0.0]], 2)[0]  # D = 6: 1 − λ₀ → 3/β
    np.testing.assert_allclose(logs, [-2 / beta, np.log(1 / beta), np.log(1 / beta)], rtol=1e-11)


@pytest.mark.parametrize("dims, m", SHAPES)
def test_float32_follows_float64(dims, m):
    poses, w, y = pose_problem(dims, m, n=50, scale=2.0)
    for f in (
        lambda w: class_probabilities(w, dims),
        lambda w: posterior_ratios(w, y, dims),
        lambda w: log_class_probabilities(w, dims),
    ):
        assert f(w.astype(np.float32)).dtype == np.float32
        np.testing.assert_allclose(f(w.astype(np.float32)), f(w), rtol=3e-6)


def test_equal_dimensions_as_integer_or_array():
    poses, w, y = pose_problem(3, 4)
    np.testing.assert_array_equal(class_probabilities(w, 3), class_probabilities(w, [3, 3, 3, 3]))
    np.testing.assert_array_equal(
        posterior_ratios(w, y, 3), posterior_ratios(w, y, np.array([3, 3, 3, 3]))
    )
    np.testing.assert_array_equal(posterior_mean(poses, y), posterior_mean(poses, y, 3))


def test_one_class_is_certain():
    poses, w, y = pose_problem(3, 1)
    assert (class_probabilities(w, 3) == 1).all() and (log_class_probabilities(w, 3) == 0).all()
    np.testing.assert_allclose(posterior_mean(poses, y), poses, rtol=1e-14)


@pytest.mark.parametrize("dims, m", [(2, 3), ([1, 3], 2)])
@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries(library, dims, m):
    """Arrays of another library give arrays of that library, with NumPy's numbers."""
    xp = pytest.importorskip(library, reason="PyTorch is not installed; pip install capslit[torch]")
    poses, w, y = pose_problem(dims, m)
    P, N, Y = xp.asarray(poses), xp.asarray(w), xp.asarray(y)
    pairs = [
        (class_probabilities(N, dims), class_probabilities(w, dims)),
        (log_class_probabilities(N, dims), log_class_probabilities(w, dims)),
        (posterior_ratios(N, Y, dims), posterior_ratios(w, y, dims)),
        (posterior_mean(P, Y, dims), posterior_mean(poses, y, dims)),
        (squash(P), squash(poses)),
        (sample_latents(P, dims, Y, 2, 0), sample_latents(poses, dims, y, 2, 0)),
    ]
    for other, numpy in pairs:
        assert type(other) is type(P) and other.dtype == P.dtype
        np.testing.assert_allclose(np.asarray(other), numpy, rtol=1e-14)


def test_other_layouts():
    """Integers, lists, Fortran order, read-only and strided arrays give what a plain array gives;
    inputs are left alone.
    """
    poses, w, y = pose_problem(2, 3)
    w = np.round(3 * w)
    plain, fortran = class_probabilities(w, 2), np.asfortranarray(w)
    fortran.flags.writeable = False
    strided = np.repeat(w, 2, axis=1)[:, ::2]
    for other in (fortran, strided, w.astype(int), w.tolist()):
        np.testing.assert_array_equal(class_probabilities(other, 2), plain)
    assert (
        class_probabilities(np.empty((0, 3)), 2).shape
        == posterior_ratios(np.empty((0, 3)), np.empty(0, int), 2).shape
        == (0, 3)
    )
    assert sample_latents(poses, size=0).shape == (0, 4, 3, 2)


# ── sampling
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@together("scale", [0.0, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("dims, m", [(1, 2), (1, 3), (2, 2), (3, 4), ([1, 3], 2), ([2, 1, 4], 3)])
def test_samples_of_the_posterior(dims, m, scale):
    """First and second moments of exact samples of h | x, y, within five standard errors.

    Second moments: E[h_a²|y] follows from samples of the prior, weighted by ‖h_y‖²/‖h‖²."""
    n = 30_000
    poses, w, _ = pose_problem(dims, m, n=1, seed=7, scale=scale)
    prior = sample_latents(poses, dims, size=n, random_state=0)[:, 0]
    for label in range(m):
        h = sample_latents(poses, dims, [label], n, label + 1)[:, 0]
        mean = posterior_mean(poses, [label], dims)[0]
        assert (abs(h.mean(0) - mean) <= 5 * h.std(0) / np.sqrt(n)).all()
        weight = (prior[:, label] ** 2).sum(-1) / (prior**2).sum((-1, -2))
        weight = (weight / weight.mean())[:, None, None]
        residual = weight * (prior**2 - (h**2).mean(0))
        error = np.sqrt(residual.var(0) / n + (h**2).var(0) / n)
        assert (abs(residual.mean(0)) <= 5 * error).all()


def test_sample_distribution_of_the_label():
    """Drawing h from the prior and then y from the squares is drawing y from P and then h from the
    posterior: ‖h_y‖/‖h‖ agrees.
    """
    from scipy.stats import ks_2samp

    poses, w, _ = pose_problem([1, 2, 4], 3, n=1, seed=2, scale=1.2)
    rng, dims = np.random.default_rng(0), [1, 2, 4]
    h = sample_latents(poses, dims, size=20_000, random_state=rng)[:, 0]
    share = (h**2).sum(-1) / (h**2).sum((-1, -2))[:, None]
    y = (rng.random((20_000, 1)) > share.cumsum(1)).sum(1)
    for label in range(3):
        g = sample_latents(poses, dims, [label], 20_000, rng)[:, 0]
        for a in range(3):
            assert ks_2samp((g[:, a] ** 2).sum(-1), (h[y == label, a] ** 2).sum(-1)).pvalue > 1e-4
            assert ks_2samp(g[:, a, 0], h[y == label, a, 0]).pvalue > 1e-4


def test_samples_repeat_with_their_seed():
    poses, _, y = pose_problem(2, 3)
    np.testing.assert_array_equal(
        sample_latents(poses, y=y, size=3, random_state=4),
        sample_latents(poses, y=y, size=3, random_state=4),
    )
    padded, dims = pose_problem([1, 3], 2)[0], [1, 3]
    assert (sample_latents(padded, dims, [0, 1, 0, 1], 5, 0)[:, :, 0, 1:] == 0).all()


# ── bad input
# ─────────────────────────────────────────────────────────────────────────────────────────────────

W, Y, H = np.ones((4, 3)), np.array([0, 1, 2, 0]), np.ones((4, 3, 2))
BAD = [
    (lambda: class_probabilities(np.ones(3), 2), ValueError, "squared_norms"),
    (lambda: class_probabilities(np.ones((4, 0)), 2), ValueError, "squared_norms"),
    (lambda: class_probabilities(-W, 2), ValueError, "squared_norms"),
    (lambda: class_probabilities(W * np.nan, 2), ValueError, "squared_norms"),
    (lambda: class_probabilities(W * np.inf, 2), ValueError, "squared_norms"),
    (lambda: class_probabilities(W + 1j, 2), TypeError, "squared_norms"),
    (lambda: class_probabilities(np.full((4, 3), "a"), 2), TypeError, "squared_norms"),
    (lambda: class_probabilities(W, 0), ValueError, "capsule_dim"),
    (lambda: class_probabilities(W, [1, 2]), ValueError, "capsule_dim"),
    (lambda: class_probabilities(W, [1, 2, -1]), ValueError, "capsule_dim"),
    (lambda: class_probabilities(W, [[1, 2, 1]]), ValueError, "capsule_dim"),
    (lambda: class_probabilities(W, 2.5), TypeError, "capsule_dim"),
    (lambda: class_probabilities(W, True), TypeError, "capsule_dim"),
    (lambda: class_probabilities(W, None), TypeError, "capsule_dim"),
    (lambda: log_class_probabilities(-W, 2), ValueError, "squared_norms"),
    (lambda: log_class_probabilities(W, 0), ValueError, "capsule_dim"),
    (lambda: posterior_ratios(W * np.nan, Y, 2), ValueError, "squared_norms"),
    (lambda: posterior_ratios(W, Y[:3], 2), ValueError, "y"),
    (lambda: posterior_ratios(W, Y + 1, 2), ValueError, "y"),
    (lambda: posterior_ratios(W, Y - 1, 2), ValueError, "y"),
    (lambda: posterior_ratios(W, Y + 0.5, 2), TypeError, "y"),
    (lambda: posterior_ratios(W, Y.astype(str), 2), TypeError, "y"),
    (lambda: posterior_ratios(W, Y, [1, 2]), ValueError, "capsule_dim"),
    (lambda: posterior_mean(W, Y, 2), ValueError, "poses"),
    (lambda: posterior_mean(H * np.inf, Y, 2), ValueError, "poses"),
    (lambda: posterior_mean(H, Y, 3), ValueError, "capsule_dim"),
    (lambda: posterior_mean(H, Y, 1), ValueError, "poses"),
    (lambda: posterior_mean(H, Y, [2, 1, 2]), ValueError, "poses"),
    (lambda: posterior_mean(H, Y - 1), ValueError, "y"),
    (lambda: posterior_mean(np.ones((4, 3, 0)), Y), ValueError, "poses"),
    (lambda: squash(H * np.nan), ValueError, "poses"),
    (lambda: squash(W), ValueError, "poses"),
    (lambda: squash("poses"), TypeError, "poses"),
    (lambda: sample_latents(H, y=Y, size=-1), ValueError, "size"),
    (lambda: sample_latents(H, y=Y, size=1.5), ValueError, "size"),
    (lambda: sample_latents(H, y=Y[:2]), ValueError, "y"),
    (lambda: sample_latents(1e200 * H, y=Y), ValueError, "poses"),
    (lambda: sample_latents(H, 3), ValueError, "capsule_dim"),
]


@together("call, error, name", BAD)
def test_bad_input_is_named(call, error, name):
    with pytest.raises(error, match=rf"^{name} "):
        call()
