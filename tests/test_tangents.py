"""Tangent vectors, distances against least squares, and the classifier."""

import numpy as np
import pytest
from conftest import NO_WARNINGS, together
from sklearn.neighbors import KNeighborsClassifier

from capslit.data.datasets import load_digits
from capslit.mixtures import tangents
from capslit.mixtures.tangents import (
    TANGENTS,
    TangentDistanceClassifier,
    _tangent_basis,
    smooth,
    tangent_distance,
    tangent_vectors,
)

pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS)
DIGITS = load_digits()
IMAGES = DIGITS.images[:60].astype(np.float64)
X, Y = IMAGES.reshape(60, -1), DIGITS.labels[:60]
TEST = DIGITS.test_images.reshape(-1, 64).astype(float)


# ── vectors


def test_kinds_are_those_asked_for_and_natural_units_differ_by_half_the_side():
    whole = tangent_vectors(IMAGES)
    chosen = tangent_vectors(IMAGES, kinds=("thickness", "horizontal"))
    assert np.array_equal(chosen, whole[:, [6, 0]])
    assert np.array_equal(tangent_vectors(IMAGES, kinds="rotation")[:, 0], whole[:, 2])
    pixel, natural = (tangent_vectors(IMAGES, unit=unit) for unit in ("pixel", "natural"))
    straight = [kind in ("horizontal", "vertical", "thickness") for kind in TANGENTS]
    assert np.allclose(natural, pixel * np.where(straight, 1, 8 / 2)[:, None])


@together("factor", [1e-150, 1e150])
def test_tangents_and_distances_grow_with_the_grey_values(factor):
    T = tangent_vectors(IMAGES)
    assert np.allclose(tangent_vectors(factor * IMAGES) / factor, T, atol=1e-12)
    D = tangent_distance(factor * X, factor * X, T, T) / factor / factor
    assert np.allclose(D, tangent_distance(X, X, T, T), atol=1e-9)


@together("dtype", [np.float32, np.float64, np.uint8, bool, np.float16])
def test_floating_types_are_kept_and_other_numbers_converted(dtype):
    images = (IMAGES > 8).astype(dtype)
    T = tangent_vectors(images)
    flat = smooth(images).reshape(60, -1)
    kept = dtype if dtype in (np.float32, np.float64) else T.dtype
    for made in (T, flat, _tangent_basis(T), tangent_distance(flat, flat, T, T)):
        assert made.dtype == kept
    assert np.allclose(T, tangent_vectors(images.astype(float)), atol=1e-6)


def test_borders():
    flat = np.full((1, 5, 6), 2.0)
    for mode in tangents.BORDERS:
        assert np.isfinite(tangent_vectors(IMAGES, mode=mode)).all()
        assert np.allclose(smooth(flat, 1.0, mode=mode), flat) is (mode != "constant")


@together(
    "images, message",
    [
        (X, "images has shape"),
        (np.full((1, 4, 4), np.nan), "images contains NaN"),
        (np.zeros((2, 0, 3)), "the number of pixels of images must be"),
    ],
)
def test_bad_images_are_named(images, message):
    for function in (smooth, tangent_vectors):
        with pytest.raises(ValueError, match=message):
            function(images)


@together(
    "name, wrong",
    [
        *(("sigma", sigma) for sigma in (-1, np.nan, "wide", 1e6)),
        ("mode", "round"),
        ("unit", "inch"),
        *(("kinds", kinds) for kinds in ((), ("rotation", "rotation"), ("twist",))),
    ],
)
def test_bad_arguments_of_tangents_are_named(name, wrong):
    with pytest.raises(ValueError, match=f"^{name} must"):
        tangent_vectors(IMAGES, **{name: wrong})


# ── planes and distances


def test_bases_span_the_tangents_whatever_their_scale_and_dependent_ones_are_zero():
    T = tangent_vectors(IMAGES)
    B, C = _tangent_basis(T), _tangent_basis(T * np.logspace(-140, 140, 7)[:, None])
    assert np.allclose(C.mT @ C, B.mT @ B, atol=1e-9)
    T = np.zeros((3, 4, 9))
    T[0] = np.random.default_rng(0).normal(size=(2, 9))[[0, 1, 0, 1]]
    T[1, 2, 5] = 1e-200
    assert np.allclose(np.sum(_tangent_basis(T) ** 2, axis=(1, 2)), [2, 1, 0])
    assert _tangent_basis(np.ones((2, 5, 3))).shape == (2, 3, 3)


def test_blocks_and_threads_do_not_change_distances(monkeypatch):
    T = tangent_vectors(IMAGES)
    planes = X, X[:50], T, T[:50]
    D = tangent_distance(*planes)
    near = np.argsort(D, axis=1)[:, :9]
    assert np.allclose(np.diag(D), 0, atol=1e-9)  # of equal images
    monkeypatch.setattr(tangents, "ROWS", 7)
    monkeypatch.setattr(tangents, "COLUMNS", 11)
    for n_threads in (1, 3):
        assert np.allclose(tangent_distance(*planes, n_threads=n_threads), D, atol=1e-9)
        found = tangent_distance(*planes, candidates=near, n_threads=n_threads)
        assert np.allclose(found, np.take_along_axis(D, near, 1), atol=1e-9)
    monkeypatch.undo()
    single = tangent_distance(*(a.astype(np.float32) for a in planes))
    assert np.max(np.abs(single - D)) < 3e-6 * np.max(np.sum(X**2, axis=1))


def test_nothing_to_compare_and_nowhere_to_go():
    D = ((X[:, None] - X) ** 2).sum(-1)
    still = np.zeros((60, 7, 64))
    for planes in ((), (still, still)):
        for spring in (0.0, 3.0):
            assert np.allclose(tangent_distance(X, X, *planes, spring=spring), D)
    assert tangent_vectors(np.zeros((0, 4, 5))).shape == (0, 7, 20)
    assert tangent_distance(X[:0], X).shape == (0, 60)
    assert tangent_distance(X, X, candidates=np.zeros((60, 0), int)).shape == (60, 0)


@together(
    "arguments, named, message",
    [
        ((X, X[:, 1:]), {}, "Y has shape"),
        ((X[0], X), {}, "X has shape"),
        ((X, X, np.zeros((60, 64))), {}, "tangents_X has shape"),
        ((X, X, None, np.zeros((59, 7, 64))), {}, "tangents_Y has shape"),
        ((X, X, None, np.full((60, 7, 64), np.nan)), {}, "tangents_Y contains NaN"),
        ((X, np.where(X > 0, X, np.inf)), {}, "Y contains infinity"),
        ((X, X), {"spring": -1}, "spring must"),
        ((X, X), {"candidates": np.zeros((60, 3))}, "candidates must hold row numbers"),
        *(
            ((X, X), {"candidates": np.full((60, 3), i)}, "candidates must hold .* from 0 to 59")
            for i in (60, -1)
        ),
        ((X, X), {"candidates": np.zeros(60, int)}, "candidates has shape"),
    ],
)
def test_bad_arguments_of_distances_are_named(arguments, named, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        tangent_distance(*arguments, **named)


# ── classifier


@together("k", [1, 5])
def test_no_sides_are_the_usual_neighbours(k):
    train = DIGITS.train_images.reshape(-1, 64)
    ours = TangentDistanceClassifier(k, sides=0, sigma=0).fit(train, DIGITS.train_labels)
    theirs = KNeighborsClassifier(k, algorithm="brute").fit(train, DIGITS.train_labels)
    assert np.allclose(ours.kneighbors(TEST)[0], theirs.kneighbors(TEST)[0], atol=1e-5)
    # where distances are equal, the order is free
    assert np.mean(ours.predict(TEST) == theirs.predict(TEST)) > 0.99


@together("sides", [1, 2])
def test_moved_images_find_themselves(sides):
    moved = IMAGES + 0.9 * tangent_vectors(IMAGES, 0)[:, 2].reshape(IMAGES.shape)
    model = TangentDistanceClassifier(sides=sides, sigma=0, spring=0).fit(X, Y)
    distances, rows = model.kneighbors(moved.reshape(60, -1))
    assert np.array_equal(rows[:, 0], np.arange(60))
    assert np.allclose(distances, 0, atol=1e-4)


@together("sides", [0, 1, 2])
def test_all_candidates_are_as_good_as_none(sides):
    models = (TangentDistanceClassifier(3, sides=sides, n_candidates=c) for c in (59, None))
    distances, wanted = (model.fit(X, Y).kneighbors(TEST)[0] for model in models)
    assert np.allclose(distances, wanted, atol=1e-6)
    assert np.all(np.diff(wanted, axis=1) >= 0)


def test_neighbours_vote():
    model = TangentDistanceClassifier(4).fit(X, Y)
    rows = model.kneighbors(X, return_distance=False)
    votes = np.array([np.bincount(Y[row], minlength=10) for row in rows])
    assert np.allclose(model.predict_proba(X), votes / 4)
    assert np.array_equal(model.predict(X), votes.argmax(axis=1))
    assert model.kneighbors(X[:5], 2)[0].shape == (5, 2)


def test_images_need_not_be_square():
    wide = np.concatenate([IMAGES, np.zeros_like(IMAGES)], axis=2).reshape(60, -1)
    model = TangentDistanceClassifier(image_shape=(8, 16)).fit(wide, Y)
    assert model.image_shape_ == (8, 16)
    assert np.array_equal(model.predict(wide), Y)
    assert TangentDistanceClassifier().fit(wide, Y).image_shape_ == (1, 128)
    assert TangentDistanceClassifier().fit(X, Y).image_shape_ == (8, 8)


@together("factor", [1e-300, 1e300])
def test_scale_of_the_images_does_not_matter(factor):
    usual = TangentDistanceClassifier().fit(X, Y).kneighbors(TEST)
    scaled = TangentDistanceClassifier().fit(factor * X, Y).kneighbors(factor * TEST)
    assert np.allclose(scaled[0] / factor, usual[0])
    assert np.array_equal(scaled[1], usual[1])


def test_blank_and_equal_images():
    blank = np.zeros((4, 64))
    model = TangentDistanceClassifier().fit(blank, [3, 1, 2, 0])
    assert np.array_equal(model.predict(blank), [3, 3, 3, 3])
    twice = TangentDistanceClassifier(2).fit(np.concatenate([X, X]), np.concatenate([Y, Y]))
    assert np.array_equal(twice.predict(X), Y)
