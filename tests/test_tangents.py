"""Tangent vectors against moved images, distances against least squares, and the classifier as
scikit-learn wants it.
"""

import numpy as np
import pandas as pd
import pytest
from conftest import examples, together
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from capslit.mixtures import tangents
from capslit.data.datasets import load_digits
from capslit.mixtures.tangents import (
    BORDERS,
    TANGENTS,
    TangentDistanceClassifier,
    smooth,
    _tangent_basis,
    tangent_distance,
    tangent_vectors,
)

pytestmark = pytest.mark.filterwarnings("error")
DIGITS = load_digits()
IMAGES = DIGITS.images[:60].astype(np.float64)
X, Y = IMAGES.reshape(60, -1), DIGITS.labels[:60]


def least_squares(d, plane, spring=0.0):
    "The smallest ‖d + planeᵀ a‖² + k ‖a‖² by a general solver."
    system = np.concatenate([plane, np.sqrt(spring) * np.eye(len(plane))], axis=1).T
    target = np.concatenate([d, np.zeros(len(plane))])
    rest = target - system @ np.linalg.lstsq(system, target, rcond=1e-9)[0]
    return rest @ rest


# ── vectors
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sigma", [0, 0.02, 0.3, 1.0, 2.5])
def test_ramps_have_exact_slopes_and_constants_none(sigma):
    y, x = np.mgrid[:20.0, :24.0]
    images = np.stack([3 * x, -2 * y, np.full((20, 24), 7.0)])
    T = tangent_vectors(images, sigma, ("horizontal", "vertical"), mode="nearest").reshape(
        3, 2, 20, 24
    )
    inner = T[:, :, 11:-11, 11:-11] if sigma == 2.5 else T[:, :, 5:-5, 5:-5]
    assert np.allclose(inner[0, 0], -3) and np.allclose(inner[0, 1], 0)
    assert np.allclose(inner[1, 1], 2) and np.allclose(inner[1, 0], 0)
    assert np.allclose(inner[2], 0)


def test_kinds_are_those_asked_for_and_natural_units_differ_by_half_the_side():
    whole = tangent_vectors(IMAGES)
    assert np.array_equal(
        tangent_vectors(IMAGES, kinds=("thickness", "horizontal")), whole[:, [6, 0]]
    )
    assert np.array_equal(tangent_vectors(IMAGES, kinds="rotation")[:, 0], whole[:, 2])
    pixel, natural = (tangent_vectors(IMAGES, unit=unit) for unit in ("pixel", "natural"))
    ratio = np.where(
        [kind in ("horizontal", "vertical", "thickness") for kind in TANGENTS], 1, 8 / 2
    )
    assert np.allclose(natural, pixel * ratio[:, None])


def test_a_turned_image_has_the_turned_tangents():
    T = tangent_vectors(IMAGES).reshape(60, 7, 8, 8)
    turned = tangent_vectors(np.rot90(IMAGES, axes=(1, 2))).reshape(60, 7, 8, 8)
    back = np.rot90(turned, -1, axes=(2, 3))
    signs = {"rotation": 1, "scaling": 1, "hyperbolic": -1, "diagonal": -1, "thickness": 1}
    for kind, sign in signs.items():
        assert np.allclose(back[:, TANGENTS.index(kind)], sign * T[:, TANGENTS.index(kind)])
    assert np.allclose(back[:, 1], T[:, 0]) or np.allclose(back[:, 1], -T[:, 0])


@pytest.mark.parametrize("factor", [1e-150, 1e-6, 1.0, 1e150])
def test_tangents_grow_with_the_grey_values(factor):
    assert np.allclose(
        tangent_vectors(factor * IMAGES) / factor, tangent_vectors(IMAGES), atol=1e-12
    )


def test_thickness_adds_as_much_ink_as_edges_that_move_by_one_pixel():
    disc = (np.hypot(*np.mgrid[-30:31, -30:31]) < 12).astype(float)
    ink = tangent_vectors(disc[None], 1.5, ("thickness",)).sum()
    assert abs(ink / (2 * np.pi * 12) - 1) < 0.04  # the circumference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floating_types_are_kept(dtype):
    images = IMAGES.astype(dtype)
    T = tangent_vectors(images)
    flat = smooth(images).reshape(60, -1)
    assert {a.dtype for a in (T, flat, _tangent_basis(T), tangent_distance(flat, flat, T, T))} == {
        np.dtype(dtype)
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool, np.float16])
def test_other_numbers_are_converted(dtype):
    images = (IMAGES > 8).astype(dtype)
    assert np.allclose(tangent_vectors(images), tangent_vectors(images.astype(float)), atol=1e-6)


@pytest.mark.parametrize("mode", BORDERS)
def test_borders(mode):
    assert np.isfinite(tangent_vectors(IMAGES, mode=mode)).all()
    flat = np.full((1, 5, 6), 2.0)
    assert np.allclose(smooth(flat, 1.0, mode=mode), flat) is (mode != "constant")


def test_images_are_not_changed_and_need_not_be_contiguous():
    images = np.asfortranarray(IMAGES[:, ::-1, ::-1])
    images.setflags(write=False)
    assert np.array_equal(tangent_vectors(images), tangent_vectors(images.copy(order="C")))


@pytest.mark.parametrize(
    "images, message",
    [
        (X, "images has shape"),
        (np.full((1, 4, 4), np.nan), "images contains NaN"),
        (np.full((1, 4, 4), np.inf), "images contains infinity"),
        (np.zeros((2, 0, 3)), "the number of pixels of images must be"),
    ],
)
def test_bad_images_are_named(images, message):
    for function in (smooth, tangent_vectors):
        with pytest.raises(ValueError, match=message):
            function(images)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"sigma": -1}, "sigma"),
        ({"sigma": np.nan}, "sigma"),
        ({"sigma": "wide"}, "sigma"),
        ({"sigma": 1e6}, "sigma"),
        ({"mode": "round"}, "mode"),
        ({"unit": "inch"}, "unit"),
        ({"kinds": ()}, "kinds"),
        ({"kinds": ("rotation", "rotation")}, "kinds"),
        ({"kinds": ("twist",)}, "kinds"),
    ],
)
def test_bad_arguments_of_tangents_are_named(wrong, message):
    with pytest.raises(ValueError, match=f"^{message} must"):
        tangent_vectors(IMAGES, **wrong)


# ── planes and distances
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_bases_span_the_tangents_whatever_their_scale():
    T = tangent_vectors(IMAGES)
    B = _tangent_basis(T)
    assert np.allclose(B @ B.swapaxes(1, 2), np.eye(7), atol=1e-12)
    for factors in (np.logspace(-140, 140, 7), [1, -1, 1e-9, 1e9, 1, 2, 3]):
        C = _tangent_basis(T * np.asarray(factors)[:, None])
        assert np.allclose(C.swapaxes(1, 2) @ C, B.swapaxes(1, 2) @ B, atol=1e-9)


def test_dependent_and_zero_tangents_leave_rows_of_zeros():
    T = np.zeros((3, 4, 9))
    T[0] = np.random.default_rng(0).normal(size=(2, 9))[[0, 1, 0, 1]]
    T[1, 2, 5] = 1e-200
    rank = np.sum(_tangent_basis(T) ** 2, axis=(1, 2))
    assert np.allclose(rank, [2, 1, 0])
    assert _tangent_basis(np.ones((2, 5, 3))).shape == (2, 3, 3)


@examples(40)
@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 1.0]), st.integers(0, 5), st.integers(0, 5)
)
def test_distances_are_least_squares(seed, spring, j, l):
    rng = np.random.default_rng(seed)
    n, m, p = rng.integers(1, 5, 3) + [0, 0, 5]
    A, B, T, S = (
        rng.normal(size=(n, p)),
        rng.normal(size=(m, p)),
        rng.normal(size=(n, j, p)),
        rng.normal(size=(m, l, p)),
    )
    if j > 1:
        T[0, 1] = -T[0, 0]
    if j and l:
        S[0, 0] = T[0, 0]  # a direction that two planes share
    D = tangent_distance(A, B, T, S, spring=spring)
    U, V = _tangent_basis(T), _tangent_basis(S)
    expected = [
        [
            least_squares(a - b, np.concatenate([u[u.any(axis=1)], v[v.any(axis=1)]]), spring)
            for b, v in zip(B, V)
        ]
        for a, u in zip(A, U)
    ]
    assert np.allclose(D, expected, atol=1e-9)
    near = rng.integers(0, m, (n, 4))
    assert np.allclose(
        tangent_distance(A, B, T, S, candidates=near, spring=spring),
        np.take_along_axis(D, near, axis=1),
        atol=1e-9,
    )


def test_blocks_and_threads_do_not_change_distances(monkeypatch):
    T = tangent_vectors(IMAGES)
    D = tangent_distance(X, X[:50], T, T[:50])
    assert np.allclose(np.diag(D), 0, atol=1e-9)  # of equal images
    monkeypatch.setattr(tangents, "ROWS", 7)
    monkeypatch.setattr(tangents, "COLUMNS", 11)
    near = np.argsort(D, axis=1)[:, :9]
    for n_threads in (1, 3):
        assert np.allclose(
            tangent_distance(X, X[:50], T, T[:50], n_threads=n_threads), D, atol=1e-9
        )
        assert np.allclose(
            tangent_distance(X, X[:50], T, T[:50], candidates=near, n_threads=n_threads),
            np.take_along_axis(D, near, 1),
            atol=1e-9,
        )


def test_single_precision_is_good_to_six_digits():
    T = tangent_vectors(IMAGES)
    D = tangent_distance(X, X, T, T)
    single = tangent_distance(*(a.astype(np.float32) for a in (X, X, T, T)))
    assert np.max(np.abs(single - D)) < 3e-6 * np.max(np.sum(X**2, axis=1))


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_enormous_and_tiny_numbers(factor):
    T = tangent_vectors(IMAGES)
    assert np.allclose(
        tangent_distance(factor * X, factor * X, T, T) / factor / factor,
        tangent_distance(X, X, T, T),
        atol=1e-9,
    )


def test_nothing_to_compare_and_nowhere_to_go():
    D = ((X[:, None] - X) ** 2).sum(-1)
    for planes in ((), (np.zeros((60, 7, 64)), np.zeros((60, 7, 64)))):
        assert np.allclose(tangent_distance(X, X, *planes, spring=3.0), D) and np.allclose(
            tangent_distance(X, X, *planes), D
        )
    assert tangent_vectors(np.zeros((0, 4, 5))).shape == (0, 7, 20) and smooth(
        np.zeros((0, 4, 5))
    ).shape == (0, 4, 5)
    assert tangent_distance(X[:0], X).shape == (0, 60) and tangent_distance(X, X[:0]).shape == (
        60,
        0,
    )
    assert tangent_distance(X, X, candidates=np.zeros((60, 0), int)).shape == (60, 0)


@together(
    "arguments, named, error, message",
    [
        ((X, X[:, 1:]), {}, ValueError, "Y has shape"),
        ((X[0], X), {}, ValueError, "X has shape"),
        ((X, X, np.zeros((60, 64))), {}, ValueError, "tangents_X has shape"),
        ((X, X, None, np.zeros((59, 7, 64))), {}, ValueError, "tangents_Y has shape"),
        ((X, X, None, np.full((60, 7, 64), np.nan)), {}, ValueError, "tangents_Y contains NaN"),
        ((X, np.where(X > 0, X, np.inf)), {}, ValueError, "Y contains infinity"),
        ((X, X), {"spring": -1}, ValueError, "spring must"),
        ((X, X), {"spring": np.nan}, ValueError, "spring must"),
        ((X, X), {"candidates": np.zeros((60, 3))}, TypeError, "candidates must hold row numbers"),
        (
            (X, X),
            {"candidates": np.full((60, 3), 60)},
            ValueError,
            "candidates must hold whole numbers from 0 to 59",
        ),
        (
            (X, X),
            {"candidates": np.full((60, 3), -1)},
            ValueError,
            "candidates must hold whole numbers from 0 to 59",
        ),
        ((X, X), {"candidates": np.zeros(60, int)}, ValueError, "candidates has shape"),
        ((sparse.csr_matrix(X), X), {}, TypeError, "X is a sparse matrix"),
    ],
)
def test_bad_arguments_of_distances_are_named(arguments, named, error, message):
    with pytest.raises(error, match=f"^{message}"):
        tangent_distance(*arguments, **named)


# ── classifier
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("k", [1, 3, 5])
def test_no_sides_are_the_usual_neighbours(k):
    train, test = (
        DIGITS.train_images.reshape(-1, 64),
        DIGITS.test_images.reshape(-1, 64).astype(float),
    )
    ours = TangentDistanceClassifier(k, sides=0, sigma=0).fit(train, DIGITS.train_labels)
    theirs = KNeighborsClassifier(k, algorithm="brute").fit(train, DIGITS.train_labels)
    assert np.allclose(ours.kneighbors(test)[0], theirs.kneighbors(test)[0], atol=1e-5)
    assert (
        np.mean(ours.predict(test) == theirs.predict(test)) > 0.99
    )  # where distances are equal, the order is free


def test_moved_images_find_themselves():
    images = DIGITS.images[:300].astype(float)
    moved = images + 0.9 * tangent_vectors(images, 0)[:, 2].reshape(images.shape)
    for sides in (1, 2):
        model = TangentDistanceClassifier(sides=sides, sigma=0, spring=0).fit(
            images.reshape(300, -1), DIGITS.labels[:300]
        )
        distances, rows = model.kneighbors(moved.reshape(300, -1))
        assert np.array_equal(rows[:, 0], np.arange(300)) and np.allclose(distances, 0, atol=1e-4)


@pytest.mark.parametrize("sides", [0, 1, 2])
def test_all_candidates_are_as_good_as_none(sides):
    models = [
        TangentDistanceClassifier(3, sides=sides, n_candidates=c).fit(X, Y)
        for c in (None, 60, 59, 1000)
    ]
    test = DIGITS.test_images.reshape(-1, 64)
    distances, rows = models[0].kneighbors(test)
    for model in models[1:]:
        assert np.allclose(model.kneighbors(test)[0], distances, atol=1e-6)
    assert np.all(np.diff(distances, axis=1) >= 0) and rows.shape == (len(test), 3)


def test_neighbours_vote():
    model = TangentDistanceClassifier(4).fit(X, Y)
    rows = model.kneighbors(X, return_distance=False)
    votes = np.array([np.bincount(Y[row], minlength=10) for row in rows])
    assert np.allclose(model.predict_proba(X), votes / 4)
    assert np.array_equal(model.predict(X), votes.argmax(axis=1))
    assert model.kneighbors(X[:5], 2)[0].shape == (5, 2)


def test_images_need_not_be_square():
    wide = np.concatenate([IMAGES, np.zeros_like(IMAGES)], axis=2)
    model = TangentDistanceClassifier(image_shape=(8, 16)).fit(wide.reshape(60, -1), Y)
    assert model.image_shape_ == (8, 16) and np.array_equal(model.predict(wide.reshape(60, -1)), Y)
    assert TangentDistanceClassifier().fit(wide.reshape(60, -1), Y).image_shape_ == (1, 128)
    assert TangentDistanceClassifier().fit(X, Y).image_shape_ == (8, 8)
    assert TangentDistanceClassifier(image_shape=np.array([4, 16])).fit(X, Y).image_shape_ == (
        4,
        16,
    )


def test_labels_names_and_types():
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    names = np.array(["nought", "one", "two"])[Y % 3]
    model = TangentDistanceClassifier().fit(frame, names)
    assert np.array_equal(model.predict(frame), names) and list(model.feature_names_in_) == list(
        frame.columns
    )
    single = TangentDistanceClassifier().fit(X.astype(np.float32), Y)
    assert single.examples_.dtype == single.bases_.dtype == np.float32
    assert np.array_equal(single.predict(X), Y)


@pytest.mark.parametrize("factor", [1e-300, 1e-150, 1e150, 1e300])
def test_scale_of_the_images_does_not_matter(factor):
    test = DIGITS.test_images.reshape(-1, 64)
    usual, scaled = (
        TangentDistanceClassifier().fit(X, Y),
        TangentDistanceClassifier().fit(factor * X, Y),
    )
    assert np.array_equal(usual.predict(test), scaled.predict(factor * test))
    assert np.allclose(scaled.kneighbors(factor * test)[0] / factor, usual.kneighbors(test)[0])


def test_blank_and_equal_images():
    blank = np.zeros((4, 64))
    assert np.array_equal(
        TangentDistanceClassifier().fit(blank, [3, 1, 2, 0]).predict(blank), [3, 3, 3, 3]
    )
    twice = TangentDistanceClassifier(2).fit(np.concatenate([X, X]), np.concatenate([Y, Y]))
    assert np.array_equal(twice.predict(X), Y)
