"""Deformed images: the same for the same seed, harmless at strength zero, of any shape, and clear
about what they refuse.
"""

import dataclasses

import numpy as np
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st

from capslit.data import deformations
from capslit.data.deformations import (
    DeformedImages,
    Deformations,
    TangentDeformations,
    deform,
    _deform_along_tangents,
    linear_maps,
    resample,
    sources,
    _thicken,
)

STRENGTHS = ("translation", "rotation", "scaling", "shear", "thickness", "elastic")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 12, 9)).astype(np.uint8)
LABELS = np.arange(30) % 7


@given(
    start=st.integers(0, 5000),
    length=st.integers(1, 70),
    batch=st.integers(1, 90),
    seed=st.integers(0, 2**100),
    kind=st.sampled_from([Deformations, TangentDeformations]),
)
@examples(25)
def test_any_slice_has_the_same_bits(start, length, batch, seed, kind):
    stream = DeformedImages(IMAGES, LABELS, start + length, kind(seed=seed), batch)
    images, labels = stream.part(start, start + length)
    pieces = [
        stream.part(i, min(i + batch, start + length)) for i in range(start, start + length, batch)
    ]
    assert np.array_equal(np.concatenate([p[0] for p in pieces]), images)
    assert np.array_equal(labels, LABELS[np.arange(start, start + length) % 30])


def test_threads_change_nothing():
    stream = DeformedImages(IMAGES, LABELS, 501, batch=17)
    out = [np.empty((501, 12, 9), np.float32) for _ in range(3)]
    for n, array in zip((1, 2, 5), out):
        stream.write(array, n_threads=n)
    assert np.array_equal(out[0], out[1]) and np.array_equal(out[0], out[2])
    assert np.array_equal(np.concatenate([x for x, _ in stream]), out[0])


def test_seed_and_place_both_matter():
    first = Deformations(seed=1).draw(0, 50)
    for other in (Deformations(seed=2).draw(0, 50), Deformations(seed=1).draw(1, 51)):
        for a, b in zip(first, other):
            assert not np.any(
                a[..., 0].ravel()[a[..., 0].ravel() != 0]
                == b[..., 0].ravel()[a[..., 0].ravel() != 0]
            )


@together("name", STRENGTHS)
def test_a_component_is_switched_off_alone(name):
    "Without one kind, the draws of the others are what they were."
    all_on, without = Deformations().draw(0, 40), Deformations(**{name: 0}).draw(0, 40)
    belongs = {"translation": "translation", "thickness": "thickness", "elastic": "elastic"}.get(
        name, "matrix"
    )
    for part in all_on._fields:
        assert np.array_equal(getattr(all_on, part), getattr(without, part)) == (part != belongs)
    if belongs != "matrix":
        assert not np.any(getattr(without, belongs))


@together("dtype", [np.uint8, bool, np.int64, np.float32, np.float64])
def test_strength_zero_is_the_identity(dtype):
    images = IMAGES.astype(dtype)
    assert np.array_equal(deform(images, Deformations(strength=0, seed=3).draw(0, 30)), images)
    assert np.array_equal(
        deform(images, Deformations(**dict.fromkeys(STRENGTHS, 0)).draw(5, 35)), images
    )


def test_strength_multiplies_the_logarithms_and_lengths():
    one, three = (
        Deformations(shear=0, rotation=0).draw(0, 20),
        Deformations(strength=3, shear=0, rotation=0).draw(0, 20),
    )
    for name in ("translation", "thickness", "elastic"):
        assert np.allclose(getattr(three, name), 3 * getattr(one, name), rtol=1e-6)
    assert np.allclose(three.matrix, np.linalg.matrix_power(one.matrix, 3))
    slanted = Deformations(strength=2, rotation=0, scaling=0).draw(0, 500).matrix
    assert np.all(np.abs(slanted[:, 1, 0]) <= 0.2) and slanted[:, 1, 0].max() > 0.19


@together("shape", [(1, 1), (1, 7), (6, 1), (2, 3), (28, 28), (16, 20)])
def test_any_height_and_width(shape):
    images = RNG.random((5, *shape)).astype(np.float32)
    out = deform(images, Deformations(strength=3).draw(0, 5))
    assert out.shape == images.shape and np.isfinite(out).all()
    assert out.min() >= 0 and np.all(out.max(axis=(1, 2)) <= images.max(axis=(1, 2)))


def test_images_are_not_changed_and_may_be_read_only_or_strided():
    images = np.asfortranarray(IMAGES[::2].astype(np.float32))
    kept = images.copy()
    images.setflags(write=False)
    out = deform(images, Deformations(strength=2).draw(0, 15))
    assert np.array_equal(images, kept)
    assert np.array_equal(out, deform(kept, Deformations(strength=2).draw(0, 15)))


def test_whole_pixels_are_moved_without_loss():
    image = np.zeros((1, 11, 13), np.float32)
    image[0, 4:7, 5:9] = RNG.random((3, 4))
    rows, columns = np.indices((11, 13)).astype(np.float32)[:, None]
    moved = resample(image, rows - 2, columns + 3)
    assert np.array_equal(moved[0, 6:9, 2:6], image[0, 4:7, 5:9]) and np.isclose(
        moved.sum(), image.sum()
    )
    assert (
        not resample(image, rows + 50, columns).any()
        and not resample(image, rows, columns - 50).any()
    )


def test_the_map_and_its_inverse():
    "Where the pixels come from, sent forward again, is where they are."
    draws = Deformations(strength=2, elastic=0).draw(0, 10)
    rows, columns = sources(draws, 10, 14)
    points = np.stack([rows - 4.5, columns - 6.5], axis=-1)
    forward = (
        np.einsum("nij,nhwj->nhwi", draws.matrix, points)
        + np.sqrt(140) * draws.translation[:, None, None]
    )
    assert np.allclose(forward, np.stack(np.indices((10, 14)), axis=-1) - [4.5, 6.5], atol=1e-4)


@together("shape", [(1, 1), (1, 7), (6, 1), (28, 20), (0, 3), (3, 0)])
def test_loops_give_the_bits_of_arrays(shape, monkeypatch):
    """Weak, strong and far outside, for images that are read-only, strided, of other types, or
    none; and where a place is no number they read no foreign memory.
    """
    pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    images = (255 * RNG.random((40, *shape))).astype(np.uint8)
    images.setflags(write=False)
    for x in (
        images,
        images[::-3],
        images.astype(float) - 100,
        np.asfortranarray(images),
        images[:0],
    ):
        for strength in (0, 1, 2, 30):
            draws = Deformations(strength=strength, seed=strength).draw(0, len(x))
            monkeypatch.setattr(deformations._compiled_deformation, "asked", -(10**10))
            known = deform(x, draws)
            monkeypatch.setattr(deformations._compiled_deformation, "asked", 10**10)
            np.testing.assert_array_equal(deform(x, draws), known)
    nowhere = (
        Deformations().draw(0, len(images))._replace(translation=np.full((len(images), 2), np.nan))
    )
    assert np.isfinite(deform(images, nowhere)).all()


def test_positive_angles_turn_down_to_right():
    matrix = linear_maps(np.array([np.pi / 2]), np.zeros(1), np.zeros(1), np.zeros(1))[0]
    assert np.allclose(matrix @ [1, 0], [0, 1])


def test_thickening_takes_several_steps():
    point = np.zeros((3, 9, 9), np.float32)
    point[:, 4, 4] = 1
    grown = _thicken(point, np.array([1.0, 2.0, 3.0]))
    assert grown.sum(axis=(1, 2)).tolist() == [5, 13, 25]  # diamonds
    assert np.array_equal(
        _thicken(1 - point, np.array([-1.0, -2.0, -3.0]))[:, 2:7, 2:7], 1 - grown[:, 2:7, 2:7]
    )


def test_the_elastic_field_is_smooth_and_of_its_size():
    for smoothness in (8.0, 15.0, 40.0, 300.0):
        moved = deformations._elastic_field(
            Deformations(elastic=10, smoothness=smoothness).draw(0, 3000).elastic, 24, 24
        )
        size = np.sqrt(np.mean(np.sum(moved**2, axis=1)))
        assert (
            np.isclose(size, 0.1, rtol=0.05) if smoothness < 100 else size == 0
        )  # beyond the image only the constant is left
        assert abs(moved.mean()) < 1e-3


@together(
    "arguments, word",
    [
        ({"strength": -1}, "strength"),
        ({"strength": np.nan}, "strength"),
        ({"elastic": np.inf}, "elastic"),
        ({"rotation": "much"}, "rotation"),
        ({"smoothness": 0}, "smoothness"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**128}, "seed"),
        ({"shear": True}, "shear"),
    ],
)
def test_settings_are_checked(arguments, word):
    with pytest.raises(ValueError, match=word):
        Deformations(**arguments)


def tangent_sum(image, draws, k):
    """Image k of the construction, pixel by pixel, as the paper writes it; the fields as sums of
    cosines.
    """
    height, width = image.shape
    at = lambda r, c: float(image[r, c]) if 0 <= r < height and 0 <= c < width else 0.0
    n, out = draws.fields.shape[-1], np.zeros((height + 2, width + 2))
    for r in range(height):
        for c in range(width):
            waves = np.outer(
                np.cos(np.pi * np.arange(n) * (r + 0.5) / height),
                np.cos(np.pi * np.arange(n) * (c + 0.5) / width),
            )
            first, second = (np.sum(coefficients * waves) for coefficients in draws.fields[k])
            value = (
                at(r, c)
                + draws.alpha[k]
                * (first * (at(r, c + 1) - at(r, c - 1)) - second * (at(r + 1, c) - at(r - 1, c)))
                / 2
            )
            out[1 + r + draws.shift[k, 0], 1 + c + draws.shift[k, 1]] = min(
                max(value, 0), image.max()
            )
    return out[1:-1, 1:-1]


def test_tangents_are_those_of_the_formula():
    draws = TangentDeformations(0.7, seed=3).draw(5, 15)
    out = _deform_along_tangents(IMAGES[:10], draws)
    for k in range(10):
        assert np.allclose(out[k], tangent_sum(IMAGES[k], draws, k), atol=1e-3)
    assert len(np.unique(draws.shift, axis=0)) > 3 and set(draws.alpha) == {-0.7, 0.7}


@together("shape", [(1, 1), (1, 7), (6, 1), (28, 28)])
def test_tangents_without_strength_only_shift(shape):
    images = RNG.integers(0, 256, (40, *shape)).astype(np.uint8)
    shifts = TangentDeformations(0, seed=8).draw(0, 40).shift
    out = TangentDeformations(0, seed=8).apply(images, 0)
    for image, by, moved in zip(images, shifts, out):
        padded = np.pad(image, 1)
        assert np.array_equal(moved, np.roll(padded, by, axis=(0, 1))[1:-1, 1:-1])
    assert np.array_equal(
        TangentDeformations(5).apply(np.zeros((4, *shape)), 0), np.zeros((4, *shape))
    )


def test_twice_the_strength_is_twice_the_field():
    one, two = TangentDeformations(1.0, 4).draw(0, 30), TangentDeformations(2.0, 4).draw(0, 30)
    assert (
        np.array_equal(two.alpha, 2 * one.alpha)
        and np.array_equal(one.fields, two.fields)
        and np.array_equal(one.shift, two.shift)
    )
    other = TangentDeformations(1.0, 5).draw(0, 30)
    assert not np.any(other.fields[:, :, 0, 1] == one.fields[:, :, 0, 1])


def test_tangent_settings_are_checked():
    for arguments, word in (
        ({"strength": -1}, "strength"),
        ({"smoothness": 0}, "smoothness"),
        ({"seed": 1.5}, "seed"),
    ):
        with pytest.raises(ValueError, match=word):
            TangentDeformations(**arguments)
    with pytest.raises(ValueError, match="start"):
        TangentDeformations().draw(5, 4)
    with pytest.raises(ValueError, match="images contains NaN"):
        TangentDeformations().apply(np.full((1, 3, 3), np.nan), 0)


def test_streams_are_checked():
    with pytest.raises(ValueError, match="labels"):
        DeformedImages(IMAGES, LABELS[:-1], 10)
    with pytest.raises(ValueError, match="images"):
        DeformedImages(IMAGES[0], LABELS, 10)
    with pytest.raises(ValueError, match="images"):
        DeformedImages(IMAGES[:0], LABELS[:0], 10)
    with pytest.raises(ValueError, match="size"):
        DeformedImages(IMAGES, LABELS, 0)
    with pytest.raises(ValueError, match="out"):
        DeformedImages(IMAGES, LABELS, 10).write(np.empty((9, 12, 9)))
    with pytest.raises(ValueError, match="images"):
        deform(IMAGES, Deformations().draw(0, 29))
    with pytest.raises(ValueError, match="start"):
        Deformations().draw(5, 4)


def test_settings_can_be_kept_in_a_record():
    deformed = Deformations(strength=0.5, seed=9)
    assert Deformations(**dataclasses.asdict(deformed)) == deformed


def test_images_that_are_not_finite_are_refused():
    images = np.zeros((3, 8, 8))
    images[1, 2, 3] = np.nan
    with pytest.raises(ValueError, match="images contains NaN"):
        deform(images, Deformations().draw(0, 3))
