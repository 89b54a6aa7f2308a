"""Shared weights: what is seen where, sums over places, an objective that rises, and the
classifier.
"""

import numpy as np
import pytest
from conftest import together

from capslit import CapsuleClassifier
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, second_moments
from capslit.deeper import SharedCapsuleClassifier
from capslit.deeper.sharing import (
    _gathered,
    _layered_problem,
    _places,
    _shared_problem,
    _shift_grid,
    _spread,
)
from capslit.capsules.settings import Schedule

PLAN = Schedule((0.5, 0.0), (6, 4), monitor="error")
SHORT = {"schedule": PLAN, "n_jobs": 1, "early_stopping": False}


def pictures(n=150, shape=(4, 5), seed=0, noise=0.4):
    """Images of three classes, each a picture of its own that stands at a random place, and how it
    was moved (n, 2).
    """
    rng = np.random.default_rng(seed)
    moves, y = rng.integers(-1, 2, size=(n, 2)), np.arange(n) % 3
    drawn, padded = np.random.default_rng(9), np.zeros((3, shape[0] + 2, shape[1] + 2))
    inner = padded[:, 2:-2, 2:-2]
    inner[:] = drawn.uniform(0.5, 2, inner.shape) * drawn.choice([-1, 1], inner.shape)
    rolled = np.stack([np.roll(padded[c], move, (0, 1)) for c, move in zip(y, moves)])
    X = rolled[:, 1:-1, 1:-1].reshape(n, -1)
    return X + noise * rng.normal(size=X.shape), y, moves


@together("window, affine", [(None, True), (None, False), ((3, 3), True)])
def test_seen_from_a_place_is_the_image_moved_there(window, affine):
    "The rows of the larger capsule are what the shared weights see."
    rng, table = np.random.default_rng(0), _places((4, 5), (1, 2), window, affine=affine)
    x = rng.normal(size=20 + affine)
    padded = np.pad(x[:20].reshape(4, 5), 2)
    corners = [(0, 0)] if window is None else [(a, b) for a in range(2) for b in range(3)]
    high, wide = window or (4, 5)
    seen = np.append(x, 0.0)[table]  # −1 is the last entry
    for g, (top, left) in enumerate(corners):
        for t, (a, b) in enumerate(_shift_grid((1, 2), (4, 5))):
            moved = padded[2 + top + a :, 2 + left + b :][:high, :wide]
            assert np.array_equal(seen[g, t][: high * wide], moved.ravel())
            assert not affine or seen[g, t, -1] == x[-1]
    W = rng.normal(size=(2, len(table), 3, table.shape[2]))
    V = _spread(W, table, len(x))
    assert np.allclose(V @ x, np.einsum("mgdq,gtq->mgtd", W, seen).reshape(2, -1))
    if affine:  # all places see the constant
        assert np.allclose(_gathered(V, table)[..., -1], table.shape[1] * W[..., -1])


@together("layered", [False, True])
def test_the_objective_never_falls(layered):
    for seed in range(12):
        X, y, _ = pictures(60, seed=seed)
        options = {"affine": seed % 2 == 0, "alpha": [0.1, 2.0][seed % 2]}
        moments = second_moments((X, y, None), range(3), options["affine"])
        if layered:
            patches = _places((4, 5), 0, (2, 2), 1 + seed % 2)
            model, parameters = _layered_problem(moments, 2, 2, patches, **options)
        else:
            window = [None, (2, 3)][seed % 3 == 0]
            table = _places((4, 5), 1, window, affine=options["affine"])
            model, parameters = _shared_problem(moments, 2, table, **options)
        path = []
        for _ in range(15):
            statistics = model.e_step(parameters, (X, y, None))
            path.append(float(model.objective(parameters, statistics)[0]))
            parameters = model.m_step(parameters, statistics)
        assert np.all(np.diff(path) > -1e-9 * abs(path[0])) and path[-1] > path[0], seed


def test_without_sharing_it_is_plain_capsule_regression():
    X, y, _ = pictures()
    settings = SHORT | {"alpha": 0.01, "sharpness": 1.0}
    ours = SharedCapsuleClassifier(2, image_shape=(4, 5), shifts=0, **settings).fit(X, y)
    others = {"architecture": "multiclass", "kernel": None, "tol": 0.0, "max_iter": 400}
    plain = CapsuleClassifier(2, **others, **settings).fit(X, y)
    assert np.allclose(ours.coef_, plain.coef_, rtol=1e-6, atol=1e-8)
    assert ours.n_iter_ == plain.n_iter_ and np.array_equal(ours.shared_coef_[:, 0], ours.coef_)


def test_several_capsules_of_a_class_are_one_longer_capsule():
    """The same statistics, whether the label tells which of two equally long capsules of the class
    has won, or their squared lengths are added.
    """
    X, y, _ = pictures()
    W = np.random.default_rng(2).normal(size=(1, 3, 4, 20))
    one, two = (CapsuleRegression(np.arange(m)[None], np.full((1, m), 12 // m)) for m in (3, 6))
    whole = one.e_step(CapsuleParameters(W), (X, y, None))
    split, chance, moments = CapsuleParameters(W.reshape(1, 6, 2, 20)), 0, 0
    for k in (0, 1):  # as if the winner were the first, or the second
        sums = [two.e_step(split, (X[[i]], 2 * y[[i]] + k, None)) for i in range(len(X))]
        P = np.exp([s.log_likelihood[0] for s in sums])
        chance += P
        moments += P[:, None, None, None] * np.stack([s.moments[0] for s in sums])
    assert np.isclose(np.log(chance).sum(), whole.log_likelihood[0])
    moments = (moments / chance[:, None, None, None]).sum(axis=0)
    assert np.allclose(moments.reshape(3, 4, 20), whole.moments[0])


def test_sides_of_two_pixels_are_not_shifted():
    X, y, _ = pictures()
    fit = lambda X, **settings: SharedCapsuleClassifier(2, **SHORT | settings).fit(X, y)
    assert fit(X[:, :2]).shifts_.tolist() == [[0, 0]]
    assert fit(X, image_shape=(2, 10)).shifts_.tolist() == [[0, -1], [0, 0], [0, 1]]
    model = fit(X, image_shape=(4, 5))
    assert len(model.shifts_) == 9
    assert model.sharpness_ == 1  # there are no held-out examples
    assert np.allclose(model.predict_places(X).sum(axis=2), model.predict_proba(X))
    assert fit(X, image_shape=(4, 5), window=2, n_maps=2).shifts_.tolist() == [[0, 0]]


def test_what_does_not_fit_is_said():
    X, y, _ = pictures()
    for wrong, said in (
        ({"image_shape": (4, 4)}, "image_shape is .4, 4., 16 pixels, but X has 20"),
        ({"window": 6, "image_shape": (4, 5)}, "window is .6, 6., larger"),
        ({"n_maps": 2}, "n_maps=2 needs a window"),
        ({"n_maps": 1, "window": (1, 2), "shifts": 1}, "but window is .1, 2. and shifts 1"),
        ({"n_maps": 9, "window": 2, "shifts": 0, "image_shape": (4, 5)}, "at least as many pixels"),
    ):
        with pytest.raises(ValueError, match=said):
            SharedCapsuleClassifier(2, **SHORT | wrong).fit(X, y)
    model = SharedCapsuleClassifier(2, image_shape=(4, 5), **SHORT)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(TypeError, match="sklearn.model_selection.cross_validate"):
        cross_validate(model, X, y)
