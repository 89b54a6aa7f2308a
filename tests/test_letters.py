"""Letters: images of one size, the price of a code, strokes and their likeness, and the experiment
in its quick form.
"""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from capslit.composition.estimator import CompositionalModel
from capslit.composition.rules import bernoulli_log_likelihood
from capslit.data.datasets import ImageData, load_digits
from capslit.experiments import letters
from capslit.experiments.letters import (
    CODES,
    GRIDS,
    MOTIONS,
    PLAN,
    SETTINGS,
    _Geometry,
    _at_home,
    _bar_and_stem,
    _bernoulli_mixture,
    _code_lengths,
    _draw_poses,
    _geometry_of,
    learned,
    _letters_of,
    _letters_parts,
    _likeness,
    _made_letters,
    _mixture_log_likelihood,
    _normalise,
    _split,
    _stroke_shape,
    _transforms_of,
)
from capslit.experiments.records import load_record
from capslit.composition.pursuit import Transforms


def path(points, side=105, width=3):
    "The image of a pen drawn along straight lines between points (row, column)."
    image = np.zeros((side, side), np.uint8)
    for (a, b), (c, d) in itertools.pairwise(points):
        for t in np.linspace(0, 1, 400):
            r, s = round(a + t * (c - a)), round(b + t * (d - b))
            image[r - width // 2 : r + width // 2 + 1, s - width // 2 : s + width // 2 + 1] = 1
    return image


T = path([(20, 20), (20, 70), (20, 45), (90, 45)])


# one size


@pytest.mark.parametrize("zoom", [0.5, 0.8, 1.2])
def test_a_letter_looks_the_same_whatever_its_size_and_place(zoom):
    points = np.array([(20, 20), (20, 70), (20, 45), (90, 45)])
    other = path(np.rint(zoom * (points - 55) + 52).astype(int))
    assert np.mean(_normalise(other) != _normalise(T)) < 0.02


def test_size_stroke_and_place_are_as_asked():
    for side, extent, stroke in ((56, 40, 4), (40, 30, 6), (64, 50, 3)):
        image = _normalise(T, side, extent, stroke)
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        assert (
            image.shape == (side, side)
            and image.dtype == np.uint8
            and set(np.unique(image)) == {0, 1}
        )
        assert abs(rows[-1] - rows[0] + 1 - extent) <= 1
        assert (
            abs(rows[0] + rows[-1] - (side - 1)) <= 1
            and abs(columns[0] + columns[-1] - (side - 1)) <= 1
        )
        assert abs(int(image[rows[0] + extent // 2].sum()) - stroke) <= 1


def test_what_cannot_be_brought_to_one_size_is_refused():
    for bad in (np.zeros((9, 9)), np.ones((2, 9, 9))):
        with pytest.raises(ValueError, match="image must have"):
            _normalise(bad)
    dot = _normalise(np.pad(np.ones((3, 3)), 20))  # a dot is not blown up: the pen keeps its width
    assert 9 <= dot.sum() <= 25


def data_named(name, side, scale=1.0):
    rng = np.random.default_rng(0)
    images = (scale * (rng.random((12, *side)) < 0.3)).astype(np.uint8)
    return ImageData(name, images, np.repeat(np.arange(3), 4), ("A", "B", "C"), 12, scale, {})


def test_letters_of_each_data_set():
    for name, side, expected in (
        ("omniglot", (105, 105), (56, 56)),
        ("alphadigits", (20, 16), (28, 24)),
        ("digits", (8, 8), (12, 12)),
    ):
        data = data_named(name, side)
        found = _letters_of(data)
        assert (
            found.images.shape == (3, 4, *expected)
            and found.shape == expected
            and found.images.max() == 1
        )
        if name != "omniglot":
            m = letters.MARGIN[name]
            assert np.array_equal(found.images[:, :, m:-m, m:-m].reshape(12, *side), data.images)
    assert _letters_of(data_named("omniglot", (105, 105))).names == ("a", "b", "c")
    assert len(_letters_of(load_digits()).images) == 10


# codes


def test_geometry_is_mean_and_covariance_of_what_is_active():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(40, 2, 3)) + [[1, 2, 3], [-1, 0, 5]]
    found = _geometry_of(np.c_[np.ones((40, 2)), g.reshape(40, -1)], 2)
    assert np.allclose(found.mean, g.mean(axis=0)) and np.allclose(
        found.covariance, np.cov(g.reshape(40, -1).T, bias=True)
    )
    assert found.counts.tolist() == [40, 40] and found.n == 40
    some = np.ones((40, 2))
    some[10:, 1] = 0
    found = _geometry_of(np.c_[some, g.reshape(40, -1)], 2)
    assert np.allclose(found.mean[1], g[:10, 1].mean(axis=0)) and np.allclose(
        found.covariance[3:, 3:], np.cov(g[:10, 1].T, bias=True)
    )
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12


def test_code_lengths_by_hand():
    T = Transforms((8, 8), 2, (-10.0, 0.0, 10.0))
    rng = np.random.default_rng(1)
    codes = np.c_[rng.random((6, 2)) < 0.6, rng.normal(size=(6, 6))].astype(float)
    codes[0, :2] = 0
    geometry = _geometry_of(codes, 2)
    found = _code_lengths(codes, geometry, T)
    active, poses = _split(codes, 2)
    presence, covariance = (geometry.counts + 1) / 8, letters._cautious(geometry, T)
    for i in range(6):
        who = -np.sum(np.log(np.where(active[i], presence, 1 - presence)))
        assert np.isclose(found["uniform"][i], who + active[i].sum() * np.log(75))
        rows = np.flatnonzero(np.repeat(active[i], 3))
        if rows.size:
            density = multivariate_normal.logpdf(
                poses[i].ravel()[rows], geometry.mean.ravel()[rows], covariance[np.ix_(rows, rows)]
            )
            assert np.isclose(found["joint"][i], who - density - active[i].sum() * np.log(10))
        else:
            assert np.isclose(found["joint"][i], who) and np.isclose(found["separate"][i], who)
        if active[i].sum() == 1:
            assert np.isclose(found["joint"][i], found["separate"][i])
    assert all(
        np.allclose(v, _code_lengths(codes, geometry, None)["joint"])
        for v in _code_lengths(codes, geometry, None).values()
    )


def test_the_joint_code_is_shorter_where_poses_go_together():
    T, rng = Transforms((20, 20), 6, (0.0,)), np.random.default_rng(0)
    together = np.clip(np.rint(rng.normal(size=(300, 1, 3)) * [2, 2, 0]), -6, 6)
    codes = np.c_[np.ones((300, 2)), np.concatenate([together, together], axis=1).reshape(300, -1)]
    mean = {
        name: v.mean()
        for name, v in _code_lengths(codes[100:], _geometry_of(codes[:100], 2), T).items()
    }
    assert mean["joint"] < mean["separate"] - 2 and mean["separate"] < mean["uniform"]
    apart = codes.copy()
    apart[:, 5:] = rng.permutation(apart[:, 5:])
    mean = {
        name: v.mean()
        for name, v in _code_lengths(apart[100:], _geometry_of(apart[:100], 2), T).items()
    }
    assert abs(mean["joint"] - mean["separate"]) < 0.2


def test_one_letter_is_enough_for_a_code_and_for_drawing():
    T = Transforms((8, 8), 1, (-10.0, 0.0, 10.0))
    codes = np.array([[1, 0, 1, -1, 10, 0, 0, 0]], float)
    geometry = _geometry_of(codes, 2)
    assert all(np.isfinite(v).all() for v in _code_lengths(codes, geometry, T).values())
    assert np.allclose(_draw_poses(geometry, 5)[:, 0], [1, -1, 10])


def test_drawn_poses_have_the_moments():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    geometry = _Geometry(np.ones(2), 1, rng.normal(size=(2, 3)), root @ root.T)
    drawn = _draw_poses(geometry, 40_000, 1).reshape(40_000, 6)
    deviation = np.sqrt(np.diag(geometry.covariance))
    assert np.all(np.abs(drawn.mean(axis=0) - geometry.mean.ravel()) < 5 * deviation / 200)
    assert np.allclose(np.cov(drawn.T), geometry.covariance, atol=0.05 * deviation.max() ** 2)


# baselines


def test_a_mixture_of_one_is_the_mean_template():
    X = (np.random.default_rng(0).random((15, 9)) < 0.4).astype(float)
    weights, templates = _bernoulli_mixture(X, 1)
    assert np.allclose(weights, 1) and np.allclose(templates[0], letters._mean_template(X))
    assert np.allclose(
        _mixture_log_likelihood(X, weights, templates), bernoulli_log_likelihood(X, templates)
    )


def test_a_mixture_finds_two_kinds_and_sums_to_one():
    rng = np.random.default_rng(3)
    kinds = np.array([[0.9] * 4 + [0.1] * 4, [0.1] * 4 + [0.9] * 4])
    X = (rng.random((80, 8)) < kinds[np.arange(80) % 2]).astype(float)
    weights, templates = _bernoulli_mixture(X, 2)
    assert np.abs(templates[np.argsort(-templates[:, 0])] - kinds).max() < 0.2 and np.allclose(
        weights, 0.5, atol=0.1
    )
    everything = np.array(list(itertools.product((0.0, 1.0), repeat=8)))
    assert np.isclose(logsumexp(_mixture_log_likelihood(everything, weights, templates)), 0)


# strokes


def bar(angle, shape=(40, 40), length=24, width=3):
    r, c = np.indices(shape) - (np.array(shape)[:, None, None] - 1) / 2
    a = np.deg2rad(angle)
    along, across = c * np.cos(a) - r * np.sin(a), c * np.sin(a) + r * np.cos(a)
    return (
        ((np.abs(along) <= length / 2 + 1e-6) & (np.abs(across) <= width / 2 + 1e-6))
        .astype(float)
        .ravel()
    )


@pytest.mark.parametrize("angle", [0, 30, 60, 90, -45])
def test_direction_and_elongation_of_a_bar(angle):
    long, direction = _stroke_shape(bar(angle), (40, 40))
    assert abs((direction - angle + 90) % 180 - 90) < 2 and -90 < direction <= 90 and 5 < long < 10
    assert np.allclose(_stroke_shape(0.5 + 0.5 * bar(angle), (40, 40)), (long, direction))


def test_no_ink_and_round_ink():
    assert _stroke_shape(np.full(100, 0.5), (10, 10)) == (0.0, 0.0)
    assert _stroke_shape(np.maximum(bar(0), bar(90)), (40, 40))[0] < 1.05


def test_a_bar_and_a_stem():
    shapes = {angle: _stroke_shape(bar(angle), (40, 40)) for angle in (0, 20, 80, 90)}
    cross = _stroke_shape(np.maximum(bar(0), bar(90)), (40, 40))
    assert _bar_and_stem((shapes[0], shapes[90])) and _bar_and_stem((shapes[80], shapes[20]))
    assert (
        not _bar_and_stem((shapes[80], shapes[90]))
        and not _bar_and_stem((cross, shapes[0]))
        and not _bar_and_stem((shapes[90], (0.0, 0.0)))
    )


def test_likeness_does_not_mind_names():
    templates = np.stack([bar(0), bar(60), bar(90)])
    assert np.isclose(_likeness(templates, templates[[2, 0, 1]]), 1)
    assert _likeness(templates[:2], np.stack([bar(90), bar(-30)])) < 0.5
    assert np.isclose(
        _likeness(templates, np.concatenate([templates[:2], np.zeros((1, 1600))])), 2 / 3
    )


# learning


def test_parts_that_move_on_their_own_are_found_in_a_lucky_order():
    X, truth, T = _made_letters()
    model = learned(X, 2, T, "sharper")
    homes = _at_home(model.templates_, _geometry_of(model.transform(X), 2), (24, 24))
    assert _bar_and_stem([_stroke_shape(home, (24, 24)) for home in homes])
    assert _likeness(homes, truth) > 0.9


def test_settings_are_those_of_the_estimator():
    X = _made_letters(6)[0]
    for name, settings in SETTINGS.items():
        model = CompositionalModel(2, **settings)
        assert {key: model.get_params()[key] for key in settings} == settings
        assert np.isfinite(learned(X, 2, None, name, max_iter=2).score(X))
    assert SETTINGS["paper"]["pseudocount"] == 1.0 and SETTINGS["paper"]["rule"] == "maximum"


def test_transforms_of_each_data_set():
    for name, (shifts, rotations) in GRIDS.items():
        assert _transforms_of(name, (12, 12), "none") is None
        assert len(_transforms_of(name, (12, 12), "shifts")) == (2 * shifts + 1) ** 2
        assert len(_transforms_of(name, (12, 12))) == (2 * shifts + 1) ** 2 * len(rotations)
    assert len(_transforms_of("omniglot", (56, 56))) == 729


# the experiment


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("letters"))


def test_quick_record(record):
    names = [part.name for part in _letters_parts("digits", "quick")]
    assert list(record.parts) == sorted(names) or set(record.parts) == set(names)
    found = record.metrics("online")
    D = np.prod(found["shape"])
    assert record.array("online", "templates").shape == (10, 2, D) and record.array(
        "online", "drawn"
    ).shape == (9, 2, 3)
    images = np.unpackbits(record.array("online", "images"), axis=-1)[:, :, : found["shape"][1]]
    assert np.array_equal(images, _letters_of(load_digits()).images[7][:10])
    first = record.array("online", "templates")[0, 0].astype(float)
    assert np.allclose(first, (images[0].ravel() + 1) / 3, atol=1e-3)
    alphabet = record.metrics("alphabet")
    assert (
        len(alphabet["names"]) == PLAN["digits"]["letters"]
        and record.array("alphabet", "templates").shape[2] == D
    )


def test_quick_numbers_agree_with_each_other(record):
    parts = [
        name
        for name in record.parts
        if name.endswith(tuple("12")) and name.split(", ")[0] in SETTINGS
    ]
    assert len(parts) == 5
    for name in parts:
        found = record.metrics(name)
        assert np.isclose(
            found["log_likelihood"], record.array(name, "log_likelihood").mean(), atol=1e-4
        )
        assert (
            found["n_new"]
            == record.array(name, "log_likelihood").size
            == 8 * PLAN["digits"]["letters"]
        )
        assert all(
            np.isclose(found["code"][code], record.array(name, f"code, {code}").mean(), atol=1e-4)
            for code in CODES
        )
        assert 0 <= found["pieces"] <= int(name[-1]) and np.isclose(
            found["numbers"], 3 * found["pieces"]
        )


def test_held_out_by_hand(record):
    "The likelihood of unseen digits, from a model learned here."
    all_letters = _letters_of(load_digits())
    part = "sharper, shifts and rotations, 2"
    settings = record.parts[part]["parameters"]
    X, X_new = (
        all_letters.images[1][rows].reshape(-1, 144).astype(float)
        for rows in (slice(20), slice(20, 28))
    )
    model = learned(
        X, 2, _transforms_of("digits", (12, 12)), "sharper", settings["max_iter"]
    ).set_params(truncated=False)
    expected = bernoulli_log_likelihood(X_new, model.inverse_transform(model.transform(X_new)))
    assert np.allclose(record.array(part, "log_likelihood")[1], expected, atol=1e-2)


def test_parts_of_the_paper_profile():
    for data in ("omniglot", "alphadigits"):
        parts = _letters_parts(data, "paper")
        assert len({part.name for part in parts}) == len(parts)
        assert {part.parameters["kind"] for part in parts} == {
            "online",
            "alphabet",
            "baselines",
            "held-out",
            "orders",
        }
        assert {part.parameters.get("motion") for part in parts} - {None} == set(MOTIONS)
