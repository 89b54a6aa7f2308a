"""Letters: images of one size, straight strokes, and the experiment in its
quick form.
"""

import numpy as np
from conftest import together

from capslit.data.datasets import load_digits
from capslit.experiments.letters import (
    _draw_poses,
    _Geometry,
    _geometry_of,
    _letters_of,
    _normalise,
    _stroke_shape,
)
from capslit.experiments.records import load_record


def written_t(zoom):
    "A T, drawn by a pen of three pixels in a frame of 105 × 105."
    image = np.zeros((105, 105), np.uint8)
    top, left, middle, right, bottom = (round(zoom * z) + 50 for z in (-35, -35, -10, 15, 35))
    image[top - 1 : top + 2, left - 1 : right + 2] = 1
    image[top - 1 : bottom + 2, middle - 1 : middle + 2] = 1
    return image


@together("zoom", [0.5, 0.8, 1.2])
def test_a_letter_looks_the_same_whatever_its_size_and_place(zoom):
    moved = _normalise(np.roll(written_t(zoom), (3, -4), (0, 1)))
    assert np.mean(moved != _normalise(written_t(1.0))) < 0.02
    dot = _normalise(np.pad(np.ones((3, 3)), 20))  # the pen keeps its width
    assert 9 <= dot.sum() <= 25


def test_geometry_is_mean_and_covariance_of_what_is_active():
    g = np.random.default_rng(0).normal(size=(40, 6)) + [1, 2, 3, -1, 0, 5]
    for n_second in (40, 10):
        active = np.ones((40, 2))
        active[n_second:, 1] = 0
        found = _geometry_of(np.c_[active, g], 2)
        second = g[:n_second, 3:]
        assert np.allclose(found.mean, [g[:, :3].mean(axis=0), second.mean(axis=0)])
        assert np.allclose(found.covariance[:3, :3], np.cov(g[:, :3].T, bias=True))
        assert np.allclose(found.covariance[3:, 3:], np.cov(second.T, bias=True))
        assert np.linalg.eigvalsh(found.covariance).min() > -1e-12


def test_drawn_poses_have_the_moments():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    geometry = _Geometry(np.ones(2), 1, rng.normal(size=(2, 3)), root @ root.T)
    drawn = _draw_poses(geometry, 40_000, 1).reshape(40_000, 6)
    variance = np.diag(geometry.covariance)
    assert np.all((drawn.mean(axis=0) - geometry.mean.ravel()) ** 2 < 25 * variance / 40_000)
    assert np.allclose(np.cov(drawn.T), geometry.covariance, atol=0.05 * variance.max())
    lone = _geometry_of(np.array([[1, 0, 1, -1, 10, 0, 0, 0]], float), 2)  # of one letter
    assert np.allclose(_draw_poses(lone, 5, 0)[:, 0], [1, -1, 10])


@together("angle", [0, 30, 60, 90, -45])
def test_direction_and_elongation_of_a_bar(angle):
    down, right = np.indices((40, 40)) - 19.5
    a = np.deg2rad(angle)
    along = np.abs(right * np.cos(a) - down * np.sin(a)) < 12.001
    bar = along & (np.abs(right * np.sin(a) + down * np.cos(a)) < 1.501)
    elongation, direction = _stroke_shape(0.5 + 0.5 * bar.ravel(), (40, 40))
    assert abs((direction - angle + 90) % 180 - 90) < 2 and -90 < direction <= 90
    assert 5 < elongation < 10
    assert _stroke_shape(np.full(1600, 0.5), (40, 40)) == (0.0, 0.0)


def test_quick_record(quick_record):
    record = load_record(quick_record("letters"))
    online = record.array("online", "templates").astype(float)
    first = _letters_of(load_digits()).images[7, 0].ravel()
    assert online.shape == (10, 2, 144) and np.allclose(online[0, 0], (first + 1) / 3, atol=1e-3)
