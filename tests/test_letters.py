"""Letters: images of one size, the price of a code, straight strokes, and the experiment in its
quick form.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from capslit.composition.pursuit import Transforms
from capslit.composition.rules import bernoulli_log_likelihood
from capslit.data.datasets import load_digits
from capslit.experiments.letters import (
    CODES,
    GRIDS,
    _cautious,
    _code_lengths,
    _draw_poses,
    _Geometry,
    _geometry_of,
    _letters_of,
    _normalise,
    _split,
    _stroke_shape,
    learned,
)
from capslit.experiments.records import load_record


def written_t(zoom):
    "A T, drawn by a pen of three pixels in a frame of 105 × 105."
    image = np.zeros((105, 105), np.uint8)
    top, left, middle, right, bottom = (round(zoom * z) + 50 for z in (-35, -35, -10, 15, 35))
    image[top - 1 : top + 2, left - 1 : right + 2] = 1
    image[top - 1 : bottom + 2, middle - 1 : middle + 2] = 1
    return image


@pytest.mark.parametrize("zoom", [0.5, 0.8, 1.2])
def test_a_letter_looks_the_same_whatever_its_size_and_place(zoom):
    plain = _normalise(written_t(1.0))
    assert np.mean(_normalise(np.roll(written_t(zoom), (3, -4), (0, 1))) != plain) < 0.02
    rows = np.flatnonzero(plain.any(axis=1))
    assert abs(rows[-1] - rows[0] + 1 - 40) <= 1 and abs(rows[0] + rows[-1] - 55) <= 1
    assert abs(int(plain[rows[0] + 20].sum()) - 4) <= 1
    dot = _normalise(np.pad(np.ones((3, 3)), 20))  # the pen keeps its width
    assert 9 <= dot.sum() <= 25


def test_geometry_is_mean_and_covariance_of_what_is_active():
    g = np.random.default_rng(0).normal(size=(40, 6)) + [1, 2, 3, -1, 0, 5]
    for n_second in (40, 10):
        active = np.ones((40, 2))
        active[n_second:, 1] = 0
        found = _geometry_of(np.c_[active, g], 2)
        second = g[:n_second, 3:]
        assert found.counts.tolist() == [40, n_second] and found.n == 40
        assert np.allclose(found.mean, [g[:, :3].mean(axis=0), second.mean(axis=0)])
        assert np.allclose(found.covariance[:3, :3], np.cov(g[:, :3].T, bias=True))
        assert np.allclose(found.covariance[3:, 3:], np.cov(second.T, bias=True))
        assert np.linalg.eigvalsh(found.covariance).min() > -1e-12


def test_code_lengths_by_hand():
    T = Transforms((8, 8), 2, (-10.0, 0.0, 10.0))
    rng = np.random.default_rng(1)
    codes = np.c_[rng.random((6, 2)) < 0.6, rng.normal(size=(6, 6))].astype(float)
    codes[0, :2] = 0
    geometry = _geometry_of(codes, 2)
    found = _code_lengths(codes, geometry, T)
    active, poses = _split(codes, 2)
    presence = (geometry.counts + 1) / 8
    covariance = _cautious(geometry, T)
    for i in range(6):
        who = -np.sum(np.log(np.where(active[i], presence, 1 - presence)))
        joint = who
        rows = np.flatnonzero(np.repeat(active[i], 3))
        if rows.size:
            density = multivariate_normal(geometry.mean.ravel()[rows], covariance[rows][:, rows])
            joint -= density.logpdf(poses[i].ravel()[rows]) + active[i].sum() * np.log(10)
        assert np.isclose(found["uniform"][i], who + active[i].sum() * np.log(75))
        assert np.isclose(found["joint"][i], joint)
        if active[i].sum() < 2:
            assert np.isclose(found["separate"][i], joint)


@pytest.mark.parametrize("together", [True, False])
def test_the_joint_code_is_shorter_where_poses_go_together(together):
    T = Transforms((20, 20), 6, (0.0,))
    rng = np.random.default_rng(0)
    poses = np.clip(np.rint(rng.normal(size=(300, 3)) * [2, 2, 0]), -6, 6)
    other = poses if together else rng.permutation(poses)
    codes = np.c_[np.ones((300, 2)), poses, other]
    lengths = _code_lengths(codes[100:], _geometry_of(codes[:100], 2), T)
    uniform, separate, joint = (lengths[name].mean() for name in CODES)
    assert separate < uniform
    assert joint < separate - 2 if together else abs(joint - separate) < 0.2


def test_drawn_poses_have_the_moments():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    geometry = _Geometry(np.ones(2), 1, rng.normal(size=(2, 3)), root @ root.T)
    drawn = _draw_poses(geometry, 40_000, 1).reshape(40_000, 6)
    deviation = np.sqrt(np.diag(geometry.covariance))
    assert np.all(np.abs(drawn.mean(axis=0) - geometry.mean.ravel()) < 5 * deviation / 200)
    assert np.allclose(np.cov(drawn.T), geometry.covariance, atol=0.05 * deviation.max() ** 2)
    lone = _geometry_of(np.array([[1, 0, 1, -1, 10, 0, 0, 0]], float), 2)  # of one letter
    assert np.allclose(_draw_poses(lone, 5, 0)[:, 0], [1, -1, 10])


@pytest.mark.parametrize("angle", [0, 30, 60, 90, -45])
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
    letters = _letters_of(load_digits())
    online = record.array("online", "templates").astype(float)
    first = letters.images[7, 0].ravel()
    assert online.shape == (10, 2, 144) and np.allclose(online[0, 0], (first + 1) / 3, atol=1e-3)
    part = "sharper, shifts and rotations, 2"
    metrics = record.metrics(part)
    for name, mean in {f"code, {c}": metrics["code"][c] for c in CODES}.items():
        assert np.isclose(mean, record.array(part, name).mean(), atol=1e-4)
    assert metrics["n_new"] == 16 and np.isclose(metrics["numbers"], 3 * metrics["pieces"])
    # The likelihood of unseen digits, from a model learned here
    X, X_new = np.split(letters.images[1, :28].reshape(28, -1).astype(float), [20])
    model = learned(X, 2, Transforms((12, 12), *GRIDS["digits"]), "sharper", 2)
    model.set_params(truncated=False)
    expected = bernoulli_log_likelihood(X_new, model.inverse_transform(model.transform(X_new)))
    assert np.allclose(record.array(part, "log_likelihood")[1], expected, atol=1e-2)
