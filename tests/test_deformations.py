"""Deformed images: the same for the same seed, of any shape, and clear about what they refuse."""

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
    _deform_along_tangents,
    _thicken,
    deform,
    sources,
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
    end = start + length
    stream = DeformedImages(IMAGES, LABELS, end, kind(seed=seed), batch)
    images, labels = stream.part(start, end)
    pieces = [stream.part(i, min(i + batch, end))[0] for i in range(start, end, batch)]
    assert np.array_equal(np.concatenate(pieces), images)
    assert np.array_equal(labels, LABELS[np.arange(start, end) % 30])
    if start < 300:
        whole = np.empty((end, 12, 9), np.float32)
        stream.write(whole, n_threads=1 + 4 * (seed % 2))
        assert np.array_equal(whole[start:], images)


@together("name", STRENGTHS)
def test_a_component_is_switched_off_alone(name):
    "Without one kind, the draws of the others are what they were."
    all_on, without = Deformations().draw(0, 40), Deformations(**{name: 0}).draw(0, 40)
    alone = ("translation", "thickness", "elastic")
    belongs = name if name in alone else "matrix"
    for part in all_on._fields:
        same = np.array_equal(getattr(all_on, part), getattr(without, part))
        assert same == (part != belongs)
    assert belongs == "matrix" or not np.any(getattr(without, belongs))


def test_strength_multiplies_the_logarithms_and_lengths():
    one = Deformations(shear=0, rotation=0).draw(0, 20)
    three = Deformations(strength=3, shear=0, rotation=0).draw(0, 20)
    for name in ("translation", "thickness", "elastic"):
        assert np.allclose(getattr(three, name), 3 * getattr(one, name), rtol=1e-6)
    assert np.allclose(three.matrix, np.linalg.matrix_power(one.matrix, 3))
    slanted = Deformations(strength=2, rotation=0, scaling=0).draw(0, 500).matrix
    assert np.all(np.abs(slanted[:, 1, 0]) <= 0.2) and slanted[:, 1, 0].max() > 0.19
    one, two = (TangentDeformations(strength, 4).draw(0, 30) for strength in (1.0, 2.0))
    assert np.array_equal(two.alpha, 2 * one.alpha) and np.array_equal(one.fields, two.fields)


@together("shape", [(1, 1), (1, 7), (6, 1), (2, 3), (28, 28), (16, 20)])
def test_any_height_and_width(shape):
    images = np.asfortranarray(RNG.random((10, *shape)).astype(np.float32)[::2])
    kept = images.copy()
    images.setflags(write=False)
    out = deform(images, Deformations(strength=3).draw(0, 5))
    assert np.array_equal(images, kept) and out.shape == images.shape and np.isfinite(out).all()
    assert out.min() >= 0 and np.all(out.max(axis=(1, 2)) <= images.max(axis=(1, 2)))
    draws = TangentDeformations(0, seed=8)
    for image, by, moved in zip(kept, draws.draw(0, 5).shift, draws.apply(kept, 0)):
        assert np.array_equal(moved, np.roll(np.pad(image, 1), by, axis=(0, 1))[1:-1, 1:-1])


def test_the_map_and_its_inverse():
    "Where the pixels come from, sent forward again, is where they are."
    draws = Deformations(strength=2, elastic=0).draw(0, 10)
    rows, columns = sources(draws, 10, 14)
    points = np.stack([rows - 4.5, columns - 6.5], axis=-1)
    forward = np.einsum("nij,nhwj->nhwi", draws.matrix, points)
    forward += np.sqrt(140) * draws.translation[:, None, None]
    expected = np.stack(np.indices((10, 14)), axis=-1) - [4.5, 6.5]
    assert np.allclose(forward, expected, atol=1e-4)


@together("shape", [(1, 1), (1, 7), (6, 1), (28, 20), (0, 3), (3, 0)])
def test_loops_give_the_bits_of_arrays(shape, monkeypatch):
    """Weak, strong and far outside, for images that are read-only, strided, of other types, or
    none; and where a place is no number they read no foreign memory.
    """
    pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    images = (255 * RNG.random((40, *shape))).astype(np.uint8)
    images.setflags(write=False)
    compiled = deformations._compiled_deformation
    others = images[::-3], images.astype(float) - 100, np.asfortranarray(images), images[:0]
    for x in (images, *others):
        for strength in (0, 1, 2, 30):
            draws = Deformations(strength=strength, seed=strength).draw(0, len(x))
            monkeypatch.setattr(compiled, "asked", -(10**10))
            known = deform(x, draws)
            monkeypatch.setattr(compiled, "asked", 10**10)
            np.testing.assert_array_equal(deform(x, draws), known)
    nowhere = Deformations().draw(0, 40)._replace(translation=np.full((40, 2), np.nan))
    assert np.isfinite(deform(images, nowhere)).all()


def test_thickening_takes_several_steps():
    point = np.zeros((3, 9, 9), np.float32)
    point[:, 4, 4] = 1
    steps = np.array([1.0, 2.0, 3.0])
    grown = _thicken(point, steps)
    assert grown.sum(axis=(1, 2)).tolist() == [5, 13, 25]  # diamonds
    assert np.array_equal(_thicken(1 - point, -steps)[:, 2:7, 2:7], 1 - grown[:, 2:7, 2:7])


def test_the_elastic_field_is_smooth_and_of_its_size():
    for smoothness, expected in ((8.0, 0.1), (40.0, 0.1), (300.0, 0)):  # then only the constant
        draws = Deformations(elastic=10, smoothness=smoothness).draw(0, 3000)
        moved = deformations._elastic_field(draws.elastic, 24, 24)
        size = np.sqrt(np.mean(np.sum(moved**2, axis=1)))
        assert np.isclose(size, expected, rtol=0.05) and abs(moved.mean()) < 1e-3


def tangent_sum(image, draws, k):
    "Image k of the construction, pixel by pixel as in the paper; fields as sums of cosines."
    height, width = image.shape
    n = np.arange(draws.fields.shape[-1])
    padded, out = np.pad(image.astype(float), 1), np.zeros((height + 2, width + 2))
    for r, c in np.ndindex(height, width):
        waves = np.outer(
            np.cos(np.pi * n * (r + 0.5) / height), np.cos(np.pi * n * (c + 0.5) / width)
        )
        first, second = np.sum(draws.fields[k] * waves, axis=(1, 2))
        right = padded[r + 1, c + 2] - padded[r + 1, c]
        down = padded[r + 2, c + 1] - padded[r, c + 1]
        value = image[r, c] + draws.alpha[k] * (first * right - second * down) / 2
        row, column = (1 + r, 1 + c) + draws.shift[k]
        out[row, column] = np.clip(value, 0, image.max())
    return out[1:-1, 1:-1]


def test_tangents_are_those_of_the_formula():
    draws = TangentDeformations(0.7, seed=3).draw(5, 15)
    out = _deform_along_tangents(IMAGES[:10], draws)
    for k in range(10):
        assert np.allclose(out[k], tangent_sum(IMAGES[k], draws, k), atol=1e-3)
    assert len(np.unique(draws.shift, axis=0)) > 3 and set(draws.alpha) == {-0.7, 0.7}


NOT_FINITE = np.full((3, 3, 3), np.nan)


@together(
    "word, make",
    [
        ("strength", lambda: Deformations(strength=np.nan)),
        ("elastic", lambda: Deformations(elastic=np.inf)),
        ("seed", lambda: Deformations(seed=-1)),
        ("seed", lambda: Deformations(seed=2**128)),
        ("shear", lambda: Deformations(shear=True)),
        ("strength", lambda: TangentDeformations(strength=-1)),
        ("start", lambda: TangentDeformations().draw(5, 4)),
        ("images contains NaN", lambda: TangentDeformations().apply(NOT_FINITE, 0)),
        ("images contains NaN", lambda: deform(NOT_FINITE, Deformations().draw(0, 3))),
        ("images", lambda: deform(IMAGES, Deformations().draw(0, 29))),
        ("labels", lambda: DeformedImages(IMAGES, LABELS[:-1], 10)),
        ("images", lambda: DeformedImages(IMAGES[0], LABELS, 10)),
        ("images", lambda: DeformedImages(IMAGES[:0], LABELS, 10)),
        ("size", lambda: DeformedImages(IMAGES, LABELS, 0)),
        ("out", lambda: DeformedImages(IMAGES, LABELS, 10).write(np.empty((9, 12, 9)))),
    ],
)
def test_what_cannot_be_is_refused(word, make):
    with pytest.raises(ValueError, match=word):
        make()
