"""Inference at extremes, in other array libraries and with bad input.

The formulas themselves are proved, integrated, sampled and compared with the code in their chapter.
"""

import warnings

import numpy as np
import pytest
from conftest import read_only, strided, together

from capslit.capsules.inference import (
    class_probabilities,
    log_class_probabilities,
    posterior_mean,
    posterior_ratios,
    squash,
)

# capsule dimensions and classes, of odd and even sum
SHAPES = [(3, 1), (1, 2), (1, 3), (2, 2), (5, 3), (8, 10), ([1, 2, 4], 3), ([3, 1], 2)]
SHAPES += [([1, 1, 1, 2], 4)]


def pose_problem(dims, m, scale=1.0):
    "Five poses padded with zeros, their squared norms and labels."
    rng = np.random.default_rng(0)
    dims = np.broadcast_to(dims, m)
    poses = scale * rng.standard_normal((5, m, dims.max()))
    poses *= np.arange(dims.max()) < dims[:, None]
    return poses, (poses**2).sum(-1), rng.integers(0, m, 5)


@together("dims, m", SHAPES)
@together("scale", [0.0, 1e-150, 1e-3, 1.0, 30.0, 1e6, 1e150])
def test_normalisation_and_consistency(dims, m, scale):
    """Σ_j P(y = j) = 1 and Σ_j P(y = j) E[h | y = j] = E[h]; a squashed pose has the direction of
    the pose, and all of an example together have the length one; in single precision as well.
    """
    poses, w, y = pose_problem(dims, m, scale)
    P = class_probabilities(w, dims)
    np.testing.assert_allclose(P.sum(1), 1, rtol=1e-14)
    if m == 1:
        assert (P == 1).all() and not log_class_probabilities(w, dims).any()
    means = [posterior_mean(poses, np.full(5, j), dims) for j in range(m)]
    total = sum(P[:, j, None, None] * mean for j, mean in enumerate(means))
    np.testing.assert_allclose(total, poses, rtol=1e-13, atol=0)
    np.testing.assert_allclose(np.exp(log_class_probabilities(w, dims)), P, rtol=1e-12)
    length = scale and np.sqrt(((poses / scale) ** 2).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(squash(poses) * length * scale, poses, rtol=1e-12)
    if 1e-3 <= scale <= 1e6:
        single = w.astype(np.float32)
        for found, wanted in (
            (class_probabilities(single, dims), P),
            (log_class_probabilities(single, dims), np.log(P)),
            (posterior_ratios(single, y, dims), posterior_ratios(w, y, dims)),
        ):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, rtol=3e-6)


# ── extremes


@together("d", [1, 2, 7])
@together("dtype", [np.float32, np.float64])
def test_no_overflow_and_no_warning(d, dtype):
    big = np.finfo(dtype).max
    small = np.finfo(dtype).tiny
    w = np.array([[big, big, big], [big, 0, 0], [small, 0, 0], [0, 0, 0], [1, small, big]], dtype)
    with warnings.catch_warnings(action="error"):
        P = class_probabilities(w, d)
        logs = log_class_probabilities(w, d)
        ratios = [posterior_ratios(w, np.full(5, j), d) for j in range(3)]
    assert P.dtype == logs.dtype == ratios[0].dtype == dtype
    np.testing.assert_allclose(P.sum(1), 1, rtol=1e-6)
    assert np.isfinite(logs).all()
    assert np.isfinite(ratios).all()
    np.testing.assert_allclose(P[[0, 2, 3]], 1 / 3, rtol=1e-6)
    poses = np.array([[[2 * np.sqrt(big)], [1], [0]]], dtype)
    np.testing.assert_allclose(posterior_mean(poses, [0]), poses, rtol=1e-6)


# ── forms of arrays


@pytest.mark.parametrize("dims, m", [(2, 3), ([1, 3], 2)])
@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries(library, dims, m):
    "Arrays of another library give arrays of that library, with NumPy's numbers."
    xp = pytest.importorskip(library, reason="PyTorch is not installed; pip install capslit[torch]")
    poses, w, y = pose_problem(dims, m)
    for function, *arguments in (
        (class_probabilities, w),
        (log_class_probabilities, w),
        (posterior_ratios, w, y),
        (posterior_mean, poses, y),
        (squash, poses),
    ):
        options = {} if function is squash else {"capsule_dim": dims}
        theirs = [xp.asarray(a) for a in arguments]
        found = function(*theirs, **options)
        assert type(found) is type(theirs[0])
        assert found.dtype == theirs[0].dtype
        np.testing.assert_allclose(np.asarray(found), function(*arguments, **options), rtol=1e-14)


def test_other_layouts():
    poses, w, y = pose_problem(2, 3)
    w = np.round(3 * w)
    plain = class_probabilities(w, 2)
    for form in (np.asfortranarray, read_only, strided, np.int_, np.ndarray.tolist):
        np.testing.assert_array_equal(class_probabilities(form(w), 2), plain)
    np.testing.assert_array_equal(class_probabilities(w, [2, 2, 2]), plain)
    np.testing.assert_array_equal(posterior_mean(poses, y, [2, 2, 2]), posterior_mean(poses, y))
    assert class_probabilities(np.empty((0, 3)), 2).shape == (0, 3)
    assert posterior_ratios(np.empty((0, 3)), np.empty(0, int), 2).shape == (0, 3)


# ── bad input

W = np.ones((4, 3))
Y = np.array([0, 1, 2, 0])
H = np.ones((4, 3, 2))
BAD = {
    "squared_norms": [
        (class_probabilities, bad, 2)
        for bad in (np.ones(3), W[:, :0], -W, W * np.nan, W * np.inf, W + 1j, W.astype(str))
    ],
    "capsule_dim": [
        *((class_probabilities, W, bad) for bad in (0, [1, 2], [1, 2, -1], [[1, 2, 1]])),
        *((class_probabilities, W, bad) for bad in (2.5, True, None)),
        (posterior_mean, H, Y, 3),
    ],
    "y": [(posterior_ratios, W, bad, 2) for bad in (Y[:3], Y + 1, Y - 1, Y + 0.5, Y.astype(str))],
    "poses": [
        *((posterior_mean, bad, Y, 2) for bad in (W, H * np.inf, H[:, :, :0])),
        *((posterior_mean, H, Y, bad) for bad in (1, [2, 1, 2])),
        *((squash, bad) for bad in (H * np.nan, W, "poses")),
    ],
}


@together("name", BAD)
def test_bad_input_is_named(name):
    for function, *arguments in BAD[name]:
        with pytest.raises((TypeError, ValueError), match=rf"^{name} "):
            function(*arguments)


def test_logarithms_at_both_ends():
    "Small relative errors near P = 1 and P = 0; for D = 6, 1 − λ₀ approaches 3/β."
    beta = 1e12
    logs = log_class_probabilities([[2 * beta, 0.0, 0.0]], 2)[0]
    np.testing.assert_allclose(logs, [-2 / beta, np.log(1 / beta), np.log(1 / beta)], rtol=1e-11)
