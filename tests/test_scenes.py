"""Scenes of digits: the search against brute force, what counts as found, and the experiment in its
quick form.
"""

import math

import numpy as np
import pytest

from capslit.data.datasets import load_digits
from capslit.experiments.records import load_record
from capslit.experiments.scenes import (
    FAINT,
    LEAST,
    LEVELS,
    METHODS,
    Found,
    SceneSearch,
    _agreement,
    _rates,
    _Scenes,
    handwritten,
    judge,
    learn_templates,
    make_scenes,
    read,
)

SHAPE = (9, 11)


@pytest.fixture
def problem():
    "Templates, and scenes drawn from them with noise."
    rng = np.random.default_rng(3)
    templates = rng.integers(LEVELS, size=(3, 4, 5))
    return templates, make_scenes(templates, 11, 2, SHAPE, 0.1, rng).noisy


def composed_by_hand(templates, p, experts):
    "The composed probabilities of experts (k, row, column)."
    composed = np.full(SHAPE, p[0])
    for k, row, column in experts:
        for i, j in np.ndindex(templates.shape[1:]):
            place = row + i, column + j
            composed[place] = max(composed[place], p[templates[k, i, j]])
    return composed


def placed(found, i):
    "The experts (k, row, column) of a scene."
    return [tuple(map(int, one)) for one in zip(*(a[i] for a in found[:3])) if one[0] >= 0]


def test_digits_are_black_and_white_and_in_the_middle():
    data = load_digits()
    images = handwritten(data.images[:40], data.scale)
    assert images.shape == (40, 16, 16) and images.dtype == bool
    for image in images:
        for axis in (0, 1):
            inked = np.flatnonzero(image.any(axis=axis))
            assert inked[0] + inked[-1] in (14, 15)
    large = np.zeros((2, 28, 28), np.uint8)
    large[0, 3:9, 4:6] = 255
    assert handwritten(large, 255.0).sum(axis=(1, 2)).tolist() == [12, 0]


def test_templates_are_twentieths_of_means_and_of_one_image():
    images = np.array([[[1, 0]], [[1, 0]], [[1, 1]], [[0, 1]]], bool)
    labels = np.array([3, 3, 3, 7])
    assert learn_templates(images, labels, "mean").tolist() == [[[16, 8]], [[7, 13]]]
    assert learn_templates(images, labels, "one").tolist() == [[[19, 0]], [[0, 19]]]


def test_scenes_are_black_where_the_largest_template_says_so():
    rng = np.random.default_rng(0)
    templates = np.array([[[19, 0], [5, 19]], [[10, 10], [0, 0]]])
    made = make_scenes(templates, 4000, 2, (2, 2), 0.0, rng)
    assert np.array_equal(made.clean, made.noisy) and not made.rows.any() and not made.columns.any()
    for a, b in ((0, 0), (0, 1), (1, 1)):
        scenes = made.clean[np.all(np.sort(made.digits, axis=1) == (a, b), axis=1)]
        expected = np.maximum(templates[a], templates[b]) / LEVELS
        assert np.all(np.abs(scenes.mean(axis=0) - expected) < 0.06)
    flipped = make_scenes(np.zeros((1, 2, 2), int), 2000, 1, (6, 6), 0.2, rng)
    assert not flipped.clean.any() and abs(flipped.noisy.mean() - 0.2) < 0.01


def test_scenes_of_given_images_count_what_is_shared():
    stamp = np.array([[[True, True], [True, False]]])
    rng = np.random.default_rng(1)
    made = make_scenes(np.zeros((1, 2, 2), int), 30, 2, (3, 3), 0.0, rng, [stamp])
    for i in range(30):
        covers = np.zeros((2, 3, 3), bool)
        for cover, row, column in zip(covers, made.rows[i], made.columns[i]):
            cover[row : row + 2, column : column + 2] = stamp[0]
        assert np.array_equal(made.clean[i], covers.any(axis=0))
        assert made.inked[i].tolist() == [3, 3]
        assert made.shared[i].tolist() == [np.sum(covers.all(axis=0))] * 2
    assert 0 < made.shared.sum() < made.inked.sum()


@pytest.mark.parametrize(
    "reading", [("original", 1e-9), ("original", 0.2), ("truncated",), ("mixture", 0.6)]
)
def test_gains_are_differences_of_likelihoods(problem, reading):
    templates, scenes = problem
    p = read(*reading)
    search = SceneSearch(templates, p, SHAPE)
    found = search.pursue(scenes, 2)
    composed = search.compose(found)
    gains = search.all_gains(scenes, composed)

    def score(scene, experts):
        black = composed_by_hand(templates, p, experts)
        return np.sum(np.log(np.where(scene, black, 1 - black)))

    assert gains.shape == (6, 7, 11, 3)
    for i in range(4):
        experts = placed(found, i)
        before = score(scenes[i], experts)
        assert np.isclose(search.log_likelihood(scenes, composed)[i], before)
        for k, row, column in ((0, 0, 0), (1, 5, 6), (2, 3, 2)):
            rise = score(scenes[i], [*experts, (k, row, column)]) - before
            assert np.isclose(gains[row, column, i, k], rise, atol=1e-3)
        # A scene alone is resolved as among others
        assert placed(search.pursue(scenes[i : i + 1], 2), 0) == experts


def test_pursuit_adds_the_best_and_stops_when_nothing_gains(problem):
    templates, scenes = problem
    search = SceneSearch(templates, read("original", 0.15), SHAPE)
    found = search.pursue(scenes, 30)
    before = search.compose(found.first(0))
    for j in range(found.experts.shape[1]):
        after = search.compose(found.first(j + 1))
        largest = search.all_gains(scenes, before).max(axis=(0, 1, 3))
        rise = search.log_likelihood(scenes, after) - search.log_likelihood(scenes, before)
        is_there = found.experts[:, j] >= 0
        assert np.allclose(rise, found.gains[:, j], atol=1e-3)
        assert np.allclose(rise[is_there], largest[is_there], atol=1e-3)
        assert np.all(largest[~is_there] <= LEAST + 1e-3)
        before = after
    assert search.all_gains(scenes, before).max() <= LEAST + 1e-3
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


@pytest.mark.parametrize(
    "experts, rows, columns, expected",
    [
        ([2, 5], [10, 20], [10, 20], [True, True]),
        ([5, 2], [22, 8], [18, 12], [True, True]),
        ([2, 2], [10, 10], [10, 11], [True, False]),
        ([2, -1], [13, -1], [10, -1], [False, False]),
        ([2, 5], [20, 10], [20, 10], [False, False]),
    ],
)
def test_a_digit_is_found_by_its_own_kind_nearby(experts, rows, columns, expected):
    digits, *places = np.array([[[2, 5]], [[10, 20]], [[10, 20]]])
    scene = _Scenes(None, None, digits, *places, None, None)
    found = Found(*np.array([[experts], [rows], [columns]]), None)
    is_found, detected = judge(found, scene)
    assert is_found.tolist() == [expected] and detected.tolist() == [sum(k >= 0 for k in experts)]


def test_one_expert_stands_for_one_digit_and_the_matching_is_the_largest():
    twins = _Scenes(None, None, *np.array([[[4, 4]], [[10, 12]], [[10, 10]]]), None, None)
    for rows, tolerance, n_found in (([11], 2, 1), ([12, 14], 2, 2), ([10, 13], 0, 1)):
        found = Found(np.full((1, len(rows)), 4), np.array([rows]), np.array([[10]]), None)
        assert judge(found, twins, tolerance)[0].sum() == n_found


def test_rates_and_their_errors():
    is_found = np.array([[True, True], [True, False], [True, True], [False, False]])
    detected = np.array([2, 3, 4, 0])
    expected = {"found": 0.625, "all": 0.5, "perfect": 0.25, "false": 1.0, "detected": 2.25}
    expected |= {"all_se": 0.25, "found_se": np.std([1, 0.5, 1, 0]) / 2}
    rates = _rates(is_found, detected)
    assert {name: rates[name] for name in expected} == pytest.approx(expected)
    assert _agreement(is_found, detected) == pytest.approx(10 / 17)


def test_quick_run(quick_record):
    record = load_record(quick_record("scenes"))
    for name, part in record.parts.items():
        settings = part["parameters"]
        metrics = part["metrics"]
        for method in METHODS:
            seen, detected = (record.array(name, f"{method} {a}") for a in ("seen", "detected"))
            assert seen.shape == (settings["n"], settings["n_digits"])
            assert detected.max() <= settings["most"] and np.all(detected >= seen.sum(axis=1))
            rates = _rates(seen, detected)
            assert {key: metrics[method][key] for key in rates} == pytest.approx(rates)
        assert metrics["tuned background"]["value"] < 0.5
        exact = 1 - 2 * max(settings["noise"], FAINT)
        assert metrics["mixture, exact"]["value"] == pytest.approx(exact)
        assert metrics["original, priced"]["detected"] <= metrics["original"]["detected"]
    assert record.metrics("one, own, 5 digits, noise 0.05")["truncated"]["found"] > 0.8
