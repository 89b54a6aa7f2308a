"""Scenes of digits: the search against brute force, what counts as found, and the experiment in its
quick form.
"""

import math

import numpy as np
import pytest
from conftest import together

from capslit.data.datasets import load_digits
from capslit.experiments.records import load_record
from capslit.experiments.scenes import (
    FAINT,
    LEAST,
    LEVELS,
    METHODS,
    Found,
    SceneSearch,
    _rates,
    _Scenes,
    handwritten,
    judge,
    _learn_templates,
    _make_scenes,
    read,
)

SHAPE = (9, 11)


@pytest.fixture
def problem():
    "Templates, and scenes drawn from them with noise."
    rng = np.random.default_rng(3)
    templates = rng.integers(LEVELS, size=(3, 4, 5))
    return templates, _make_scenes(templates, 11, 2, SHAPE, 0.1, rng).noisy


def placed(found, i):
    "The experts (k, row, column) of a scene."
    return [tuple(map(int, one)) for one in zip(*(a[i] for a in found[:3])) if one[0] >= 0]


def test_digits_are_black_and_white_and_in_the_middle():
    data = load_digits()
    for image in handwritten(data.images[:40], data.scale):
        assert image.shape == (16, 16) and image.dtype == bool
        for axis in (0, 1):
            inked = np.flatnonzero(image.any(axis=axis))
            assert inked[0] + inked[-1] in (14, 15)
    large = np.zeros((2, 28, 28), np.uint8)
    large[0, 3:9, 4:6] = 255
    assert handwritten(large, 255.0).sum(axis=(1, 2)).tolist() == [12, 0]


def test_templates_are_twentieths_of_means_and_of_one_image():
    images = np.array([[[1, 0]], [[1, 0]], [[1, 1]], [[0, 1]]], bool)
    labels = np.array([3, 3, 3, 7])
    assert _learn_templates(images, labels, "mean").tolist() == [[[16, 8]], [[7, 13]]]
    assert _learn_templates(images, labels, "one").tolist() == [[[19, 0]], [[0, 19]]]


def test_scenes_are_black_where_the_largest_template_says_so():
    rng = np.random.default_rng(0)
    templates = np.array([[[19, 0], [5, 19]], [[10, 10], [0, 0]]])
    made = _make_scenes(templates, 4000, 2, (2, 2), 0.0, rng)
    assert np.array_equal(made.clean, made.noisy) and not made.rows.any() and not made.columns.any()
    expected = np.max(templates[made.digits], axis=1) / LEVELS
    for same in (True, False):
        pairs = (made.digits[:, 0] == made.digits[:, 1]) == same
        assert np.all(np.abs(np.mean((made.clean - expected)[pairs], axis=0)) < 0.06)
    flipped = _make_scenes(np.zeros((1, 2, 2), int), 2000, 1, (6, 6), 0.2, rng)
    assert not flipped.clean.any() and abs(flipped.noisy.mean() - 0.2) < 0.01


def test_scenes_of_given_images_count_what_is_shared():
    stamp = np.array([[[True, True], [True, False]]])
    rng = np.random.default_rng(1)
    made = _make_scenes(np.zeros((1, 2, 2), int), 30, 2, (3, 3), 0.0, rng, [stamp])
    for i in range(30):
        covers = np.zeros((2, 3, 3), bool)
        for cover, row, column in zip(covers, made.rows[i], made.columns[i]):
            cover[row : row + 2, column : column + 2] = stamp[0]
        assert np.array_equal(made.clean[i], covers.any(axis=0))
        assert made.inked[i].tolist() == [3, 3]
        assert made.shared[i].tolist() == [np.sum(covers.all(axis=0))] * 2
    assert 0 < made.shared.sum() < made.inked.sum()


@together("reading", [("original", 1e-9), ("original", 0.15), ("truncated",), ("mixture", 0.6)])
def test_pursuit_records_its_gains_and_a_price_ends_it_earlier(problem, reading):
    "The chapter compares the experts with those of plain matching pursuit."
    templates, scenes = problem
    search = SceneSearch(templates, read(*reading), SHAPE)
    found = search.pursue(scenes, 30)
    steps = [search.compose(found.first(j)) for j in range(found.experts.shape[1] + 1)]
    rises = np.diff([search.log_likelihood(scenes, composed) for composed in steps], axis=0)
    assert np.allclose(rises.T, found.gains, atol=1e-3)
    assert search.all_gains(scenes, steps[-1]).max() <= LEAST + 1e-3
    for i in (0, 9):  # a scene alone is resolved as among others
        assert placed(search.pursue(scenes[i : i + 1], 30), 0) == placed(found, i)
    for price in (0.5, 3.0, 50.0):
        dear = search.pursue(scenes, 30, price)
        worth = found.worth(price)
        assert all(np.array_equal(a, b[:, : a.shape[1]]) for a, b in zip(dear, worth))
        assert np.all(worth.experts[:, dear.experts.shape[1] :] == -1)


def test_iteration_never_loses_and_ends_where_nothing_can_be_exchanged(problem):
    templates, scenes = problem
    search = SceneSearch(templates, read("original", 1e-4), SHAPE)
    for price in (0.0, 2.0):

        def value(found):
            costs = price * np.sum(found.experts >= 0, axis=1)
            return search.log_likelihood(scenes, search.compose(found)) - costs

        greedy = search.pursue(scenes, 6, price)
        better = search.iterate(scenes, greedy, 6, price)
        assert np.all(value(better) >= value(greedy) - 1e-6) and better.experts.shape[1] <= 6
        assert np.any(value(better) > value(greedy) + 0.1)
        for j in range(better.experts.shape[1]):
            rest = search.compose(better, without=j)
            gain = np.maximum(search.best(scenes, rest)[3] - price, 0)
            others = np.sum(np.delete(better.experts, j, axis=1) >= 0, axis=1)
            best = search.log_likelihood(scenes, rest) + gain - price * others
            assert np.all(best <= value(better) + 2 * LEAST)


def test_iteration_takes_away_what_later_experts_make_superfluous():
    bars = np.zeros((2, 3, 6), int)
    bars[0, 1] = 19  # one long bar, and a short one
    bars[1, 1, :3] = 19
    search = SceneSearch(bars, read("original", 0.02), (7, 12))
    scene = np.zeros((1, 7, 12), bool)
    nothing = search.pursue(scene, 4)
    assert nothing.experts.shape == (1, 0)
    assert np.all(search.iterate(scene, nothing, 4).experts < 0)
    scene[0, 3, 3:9] = True
    wrong = Found(np.array([[1, 1]]), np.array([[2, 2]]), np.array([[3, 4]]), np.ones((1, 2)))
    assert placed(search.iterate(scene, wrong, 4, price=1.0), 0) == [(0, 2, 3)]
    assert np.isclose(search.price, math.log(2 * 5 * 7))


@together(
    "digits, rows, experts, found_at, tolerance, expected",
    [
        ([2, 5], [10, 20], [5, 2], [22, 8], 2, [True, True]),
        ([2, 5], [10, 20], [2, -1], [13, -1], 2, [False, False]),
        ([4, 4], [10, 12], [4, 4], [12, 14], 2, [True, True]),
        ([4, 4], [10, 12], [4, 4], [10, 13], 0, [True, False]),
    ],
)
def test_the_largest_matching_of_digits_with_their_own_kind_nearby_counts(
    digits, rows, experts, found_at, tolerance, expected
):
    scene = _Scenes(None, None, *np.array([[digits], [rows], [[0, 0]]]), None, None)
    found = Found(*np.array([[experts], [found_at], [[0, 0]]]), None)
    is_found, detected = judge(found, scene, tolerance)
    assert is_found.tolist() == [expected] and detected == np.sum(found.experts >= 0)


def test_rates_have_errors_over_scenes_and_are_those_of_the_quick_record(quick_record):
    is_found = np.array([[True, True], [True, False], [True, True], [False, False]])
    rates = _rates(is_found, np.array([2, 3, 4, 0]))
    assert (rates["all"], rates["all_se"], rates["detected"]) == (0.5, 0.25, 2.25)
    assert rates["found_se"] == pytest.approx(np.std([1, 0.5, 1, 0]) / 2)
    record = load_record(quick_record("scenes"))
    for name, part in record.parts.items():
        settings = part["parameters"]
        metrics = part["metrics"]
        for method in METHODS:
            seen, detected = (record.array(name, f"{method} {a}") for a in ("seen", "detected"))
            rates = _rates(seen, detected)
            assert {key: metrics[method][key] for key in rates} == pytest.approx(rates)
        assert metrics["tuned background"]["value"] < 0.5
        exact = 1 - 2 * max(settings["noise"], FAINT)
        assert metrics["mixture, exact"]["value"] == pytest.approx(exact)
        assert metrics["original, priced"]["detected"] <= metrics["original"]["detected"]
    assert record.metrics("one, own, 5 digits, noise 0.05")["truncated"]["found"] > 0.8
