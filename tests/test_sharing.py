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
    X = np.stack(
        [
            padded[c, 1 - a : 1 - a + shape[0], 1 - b : 1 - b + shape[1]].ravel()
            for c, (a, b) in zip(y, moves)
        ]
    )
    return X + noise * rng.normal(size=X.shape), y, moves


@together("window, affine", [(None, True), (None, False), ((3, 3), True)])
def test_seen_from_a_place_is_the_image_moved_there(window, affine):
    table, x = (
        _places((4, 5), (1, 2), window, affine=affine),
        np.random.default_rng(0).normal(size=21)[: 20 + affine],
    )
    padded = np.pad(x[:20].reshape(4, 5), 2)
    corners = [(0, 0)] if window is None else [(a, b) for a in range(2) for b in range(3)]
    high, wide = window or (4, 5)
    seen = np.append(x, 0.0)[table]  # −1 is the last entry
    for g, (top, left) in enumerate(corners):
        for t, (a, b) in enumerate(_shift_grid((1, 2), (4, 5))):
            assert np.array_equal(
                seen[g, t][: high * wide],
                padded[2 + top + a :, 2 + left + b :][:high, :wide].ravel(),
            )
            assert not affine or seen[g, t, -1] == x[-1]


def test_the_rows_of_the_larger_capsule_are_what_the_shared_weights_see():
    rng = np.random.default_rng(1)
    table = _places((3, 4), 1, (2, 2), affine=True)
    W, x = rng.normal(size=(2, len(table), 3, 5)), rng.normal(size=13)
    seen = np.append(x, 0.0)[table]
    expected = np.einsum("mgdq,gtq->mgtd", W, seen).reshape(2, -1)
    assert np.allclose(_spread(W, table, 13) @ x, expected)
    assert np.allclose(
        _gathered(_spread(W, table, 13), table)[..., -1], 9 * W[..., -1]
    )  # nine places see the constant


@together("layered", [False, True])
def test_the_objective_never_falls_and_a_wrong_step_is_noticed(layered):
    fallen = 0
    for seed in range(12):
        X, y, _ = pictures(60, seed=seed)
        affine, alpha, window = seed % 2 == 0, [0.1, 2.0][seed % 2], [None, (2, 3)][seed % 3 == 0]
        moments = second_moments((X, y, None), range(3), affine)
        if layered:
            model, parameters = _layered_problem(
                moments, 2, 2, _places((4, 5), 0, (2, 2), 1 + seed % 2), alpha=alpha, affine=affine
            )
        else:
            model, parameters = _shared_problem(
                moments, 2, _places((4, 5), 1, window, affine=affine), alpha=alpha, affine=affine
            )
        path = []
        for _ in range(15):
            statistics = model.e_step(parameters, (X, y, None))
            path.append(float(model.objective(parameters, statistics)[0]))
            parameters = model.m_step(parameters, statistics)
        assert np.all(np.diff(path) > -1e-9 * abs(path[0])) and path[-1] > path[0], seed
        if not layered:  # moved back the wrong way
            wrong = _gathered(statistics.moments[0], model.places[:, ::-1])
            found = np.moveaxis(
                model.solver.solve(np.ascontiguousarray(np.moveaxis(wrong, 1, 0))), 0, 1
            )
            other = CapsuleParameters(_spread(found, model.places, X.shape[1] + affine)[None])
            fallen += model.objective(other, model.e_step(other, (X, y, None)))[0] < path[-1] - 1e-6
    assert layered or fallen >= 4


def test_without_sharing_it_is_plain_capsule_regression():
    X, y, _ = pictures()
    settings = SHORT | {"alpha": 0.01, "sharpness": 1.0}
    ours = SharedCapsuleClassifier(2, image_shape=(4, 5), shifts=0, **settings).fit(X, y)
    plain = CapsuleClassifier(
        2,
        architecture="multiclass",
        kernel=None,
        tol=0.0,
        max_iter=400,
        **settings,
    ).fit(X, y)
    assert (
        np.allclose(ours.coef_, plain.coef_, rtol=1e-6, atol=1e-8) and ours.n_iter_ == plain.n_iter_
    )
    assert np.array_equal(ours.shared_coef_[:, 0], ours.coef_)


def test_several_capsules_of_a_class_are_one_longer_capsule():
    """The same statistics, whether the label tells which of two equally long capsules of the class
    has won, or their squared lengths are added.
    """
    X, y, _ = pictures()
    W = np.random.default_rng(2).normal(size=(1, 3, 4, 20))
    whole = CapsuleRegression(np.arange(3)[None], np.full((1, 3), 4)).e_step(
        CapsuleParameters(W), (X, y, None)
    )
    parts = CapsuleRegression(np.arange(6)[None], np.full((1, 6), 2))
    split, chance, moments = CapsuleParameters(W.reshape(1, 6, 2, 20)), [], 0
    for k in (0, 1):  # as if the winner were the first, or the second
        one = [parts.e_step(split, (X[[i]], 2 * y[[i]] + k, None)) for i in range(len(X))]
        chance.append(np.exp([s.log_likelihood[0] for s in one]))
        moments += chance[k][:, None, None, None] * np.stack([s.moments[0] for s in one])
    total = sum(chance)
    assert np.isclose(np.log(total).sum(), whole.log_likelihood[0])
    assert np.allclose(
        (moments / total[:, None, None, None]).sum(axis=0).reshape(3, 4, 20), whole.moments[0]
    )


def test_shared_weights_find_what_has_moved():
    X, y, moves = pictures(600)
    new, labels, true = pictures(600, seed=5)
    fit = lambda **given: SharedCapsuleClassifier(
        1, image_shape=(4, 5), max_iter=100, **SHORT | given
    ).fit(X, y)
    shared, plain = fit(), fit(shifts=0)
    assert np.mean(shared.predict(new) != labels) < 0.8 * np.mean(plain.predict(new) != labels)
    joint = shared.predict_places(new)
    assert np.allclose(joint.sum(axis=2), shared.predict_proba(new)) and shared.sharpness_ == 1
    own = joint[np.arange(600), labels]
    mean = own / own.sum(axis=1, keepdims=True) @ shared.shifts_
    assert all(np.corrcoef(mean[:, k], true[:, k])[0, 1] > 0.5 for k in (0, 1))


def test_sides_of_two_pixels_are_not_shifted():
    X, y, _ = pictures()
    fit = lambda X, **settings: SharedCapsuleClassifier(2, **SHORT | settings).fit(X, y)
    assert fit(X[:, :2]).shifts_.tolist() == [[0, 0]]
    assert fit(X, image_shape=(2, 10)).shifts_.tolist() == [[0, -1], [0, 0], [0, 1]]
    assert len(fit(X, image_shape=(4, 5)).shifts_) == 9
    maps = fit(X, image_shape=(4, 5), window=2, n_maps=2)
    assert maps.shifts_.tolist() == [[0, 0]]


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
