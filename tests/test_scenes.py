"""Scenes of digits: the search against brute force, its repetition, what counts as found, and the
experiment in its quick form.
"""

import math

import numpy as np
import pytest
from conftest import together

from capslit.data.datasets import load_digits
from capslit.experiments import scenes as module
from capslit.experiments.records import load_record
from capslit.experiments.scenes import (
    LEVELS,
    METHODS,
    Found,
    SceneSearch,
    _Scenes,
    _agreement,
    handwritten,
    _in_the_middle,
    judge,
    learn_templates,
    make_scenes,
    _rates,
    read,
    _scene_parts,
    _set_the_scene,
)


def problem(seed=0, K=3, size=(4, 5), shape=(9, 11), n=4):
    "Templates, and scenes drawn from them with noise."
    rng = np.random.default_rng(seed)
    templates = rng.integers(LEVELS, size=(K, *size))
    return templates, make_scenes(templates, n, 2, shape, 0.1, rng)


def composed_by_hand(templates, p, shape, placed):
    "The composed probabilities of experts (k, row, column)."
    composed = np.full(shape, p[0])
    for k, row, column in placed:
        for i, j in np.ndindex(templates.shape[1:]):
            composed[row + i, column + j] = max(
                composed[row + i, column + j], p[templates[k, i, j]]
            )
    return composed


def placed(found, i):
    "The experts (k, row, column) of a scene."
    return [
        (k, r, c) for k, r, c in zip(found.experts[i], found.rows[i], found.columns[i]) if k >= 0
    ]


def score(scene, composed):
    "ln P by its definition."
    return sum(math.log(q if black else 1 - q) for black, q in zip(scene.ravel(), composed.ravel()))


# templates and scenes


def test_digits_are_black_and_white_and_in_the_middle():
    data = load_digits()
    images = handwritten(data.images[:40], data.scale)
    assert images.shape == (40, 16, 16) and images.dtype == bool
    for image in images:
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        for inked in (rows, columns):
            assert inked[0] + inked[-1] in (14, 15)
    assert not _in_the_middle(np.zeros((2, 5, 6), bool)).any()
    large = np.zeros((1, 28, 28), np.uint8)
    large[0, 3:9, 4:6] = 255
    assert handwritten(large, 255.0).sum() == 12


def test_templates_are_twentieths_of_means_and_of_one_image():
    images = np.array([[[1, 0]], [[1, 0]], [[1, 1]], [[0, 1]]], bool)
    labels = np.array([3, 3, 3, 7])
    assert learn_templates(images, labels, "mean").tolist() == [
        [[16, 8]],
        [[7, 13]],
    ]  # 4/5, 2/5; 1/3, 2/3
    assert learn_templates(images, labels, "one").tolist() == [[[19, 0]], [[0, 19]]]
    many = learn_templates(np.ones((500, 2, 2), bool), np.zeros(500, int), "mean")
    assert many.max() == LEVELS - 1


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
    made = make_scenes(
        np.zeros((1, 2, 2), int), 30, 2, (3, 3), 0.0, np.random.default_rng(1), [stamp]
    )
    for i in range(30):
        covers = []
        for row, column in zip(made.rows[i], made.columns[i]):
            cover = np.zeros((3, 3), bool)
            cover[row : row + 2, column : column + 2] = stamp[0]
            covers.append(cover)
        assert np.array_equal(made.clean[i], covers[0] | covers[1])
        assert (
            made.inked[i].tolist() == [3, 3]
            and made.shared[i].tolist() == [np.sum(covers[0] & covers[1])] * 2
        )
    assert 0 < made.shared.sum() < made.inked.sum()


# the search


@pytest.mark.parametrize(
    "reading", [("original", 1e-9), ("original", 0.2), ("truncated",), ("mixture", 0.6)]
)
def test_gains_are_differences_of_likelihoods(reading):
    templates, scenes = problem()
    search, p = SceneSearch(templates, read(*reading), (9, 11)), read(*reading)
    found = search.pursue(scenes.noisy, 2)
    composed = search.compose(found)
    gains = search.all_gains(scenes.noisy, composed)
    assert gains.shape == (6, 7, 4, 3)
    for i in range(4):
        by_hand = composed_by_hand(templates, p, (9, 11), placed(found, i))
        assert np.allclose(p[composed[i]], by_hand)
        assert search.log_likelihood(scenes.noisy, composed)[i] == pytest.approx(
            score(scenes.noisy[i], by_hand)
        )
        for k, row, column in ((0, 0, 0), (1, 5, 6), (2, 3, 2)):
            more = np.maximum(by_hand, composed_by_hand(templates, p, (9, 11), [(k, row, column)]))
            expected = score(scenes.noisy[i], more) - score(scenes.noisy[i], by_hand)
            assert gains[row, column, i, k] == pytest.approx(expected, abs=1e-3)


def test_pursuit_adds_the_best_and_stops_when_nothing_gains():
    templates, scenes = problem(n=11)
    search = SceneSearch(templates, read("original", 0.15), (9, 11))
    found = search.pursue(scenes.noisy, 30)
    before = search.compose(found.first(0))
    for j in range(found.experts.shape[1]):
        after = search.compose(found.first(j + 1))
        there, gains = (
            found.experts[:, j] >= 0,
            np.moveaxis(search.all_gains(scenes.noisy, before), 2, 0).reshape(11, -1),
        )
        rise = search.log_likelihood(scenes.noisy, after) - search.log_likelihood(
            scenes.noisy, before
        )
        assert np.allclose(rise, found.gains[:, j], atol=1e-3) and np.allclose(
            rise[there], gains.max(axis=1)[there], atol=1e-3
        )
        assert np.all(gains.max(axis=1)[~there] <= module.LEAST + 1e-3)
        before = after
    assert search.all_gains(scenes.noisy, before).max() <= module.LEAST + 1e-3
    for price in (0.5, 3.0, 50.0):
        dear = search.pursue(scenes.noisy, 30, price)
        for a, b in zip(dear, found.worth(price)):
            assert np.array_equal(a, b[:, : a.shape[1]])
        assert np.all(found.worth(price).experts[:, dear.experts.shape[1] :] == -1)


def test_a_scene_alone_is_resolved_as_among_others():
    templates, scenes = problem(n=module.BLOCK + 3)
    search = SceneSearch(templates, read("truncated"), (9, 11))
    together = search.pursue(scenes.noisy, 5)
    for i in (0, module.BLOCK, module.BLOCK + 2):
        assert placed(search.pursue(scenes.noisy[i : i + 1], 5), 0) == placed(together, i)


def test_iteration_never_loses_and_ends_where_nothing_can_be_exchanged():
    templates, scenes = problem(seed=3, n=12)
    search = SceneSearch(templates, read("original", 1e-4), (9, 11))
    for price in (0.0, 2.0):
        greedy = search.pursue(scenes.noisy, 6, price)
        better = search.iterate(scenes.noisy, greedy, 6, price)
        value = lambda found: (
            search.log_likelihood(scenes.noisy, search.compose(found))
            - price * np.sum(found.experts >= 0, axis=1)
        )
        assert np.all(value(better) >= value(greedy) - 1e-6) and better.experts.shape[1] <= 6
        assert np.any(value(better) > value(greedy) + 0.1)
        for j in range(better.experts.shape[1]):
            rest = search.compose(better, without=j)
            best = search.log_likelihood(scenes.noisy, rest) + np.maximum(
                search.best(scenes.noisy, rest)[3] - price, 0
            )
            others = np.sum(np.delete(better.experts, j, axis=1) >= 0, axis=1)
            assert np.all(best - price * others <= value(better) + 2 * module.LEAST)


def test_iteration_takes_away_what_later_experts_make_superfluous():
    bar = np.zeros((2, 3, 6), int)
    bar[0, 1] = 19  # one long bar, and a short one
    bar[1, 1, :3] = 19
    search = SceneSearch(bar, read("original", 0.02), (7, 12))
    scene = np.zeros((1, 7, 12), bool)
    scene[0, 3, 3:9] = True
    wrong = Found(np.array([[1, 1]]), np.array([[2, 2]]), np.array([[3, 4]]), np.ones((1, 2)))
    mended = search.iterate(scene, wrong, 4, price=1.0)
    assert placed(mended, 0) == [(0, 2, 3)]


def test_nothing_is_found_in_nothing():
    templates, _ = problem()
    templates[:, 0, 0] = 19
    search = SceneSearch(templates, read("truncated"), (9, 11))
    empty = np.zeros((3, 9, 11), bool)
    found = search.pursue(empty, 4)
    assert found.experts.shape == (3, 0)
    assert np.all(search.iterate(empty, found, 4).experts < 0) and np.all(
        found.worth(1.0).experts < 0
    )
    nobody = SceneSearch(np.zeros((2, 3, 3), int), read("original", 0.1), (9, 11))
    assert nobody.pursue(np.ones((2, 9, 11), bool), 4).experts.shape == (2, 0)


def test_the_price_is_that_of_a_name_and_a_place():
    assert SceneSearch(
        np.ones((10, 28, 28), int), read("truncated"), (100, 100)
    ).price == pytest.approx(math.log(10 * 73**2))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, bool, "fortran", "read-only"])
def test_any_zeros_and_ones_are_scenes(kind):
    templates, scenes = problem()
    search = SceneSearch(templates, read("truncated"), (9, 11))
    given = (
        scenes.noisy.copy(order="F")
        if kind == "fortran"
        else scenes.noisy.astype(bool if kind == "read-only" else kind)
    )
    given.flags.writeable = kind != "read-only"
    assert placed(search.pursue(given, 3), 1) == placed(search.pursue(scenes.noisy, 3), 1)


@together(
    "call, words",
    [
        (lambda s, t: s.pursue(np.full((2, 9, 11), 0.5), 3), "scenes must hold zeros and ones"),
        (lambda s, t: s.pursue(np.full((2, 9, 11), np.nan), 3), "scenes must hold zeros and ones"),
        (lambda s, t: s.pursue(np.zeros((9, 11)), 3), "scenes has shape"),
        (lambda s, t: s.iterate(np.zeros((2, 8, 11)), None, 3), "scenes has shape"),
        (
            lambda s, t: SceneSearch(t / 20, read("truncated"), (9, 11)),
            "templates must hold whole numbers from 0 to 19",
        ),
        (
            lambda s, t: SceneSearch(t + 10, read("truncated"), (9, 11)),
            "templates must hold whole numbers from 0 to 19",
        ),
        (
            lambda s, t: SceneSearch(t[0], read("truncated"), (9, 11)),
            "templates has shape .*20 . probabilities",
        ),
        (lambda s, t: SceneSearch(t, read("truncated"), (3, 11)), "shape must be"),
        (lambda s, t: SceneSearch(t, read("truncated")[::-1], (9, 11)), "probabilities must be 20"),
        (lambda s, t: SceneSearch(t, np.arange(20) / 20, (9, 11)), "probabilities must be 20"),
        (lambda s, t: SceneSearch(t, np.full(20, np.nan), (9, 11)), "probabilities must be 20"),
        (
            lambda s, t: make_scenes(t, 2, 1, (9, 11), 1.5, np.random.default_rng(0)),
            "noise must be",
        ),
        (
            lambda s, t: make_scenes(t, 2, 1, (2, 11), 0.5, np.random.default_rng(0)),
            "shape must be",
        ),
        (lambda s, t: learn_templates(np.ones((3, 2, 2)), [0, 1], "one"), "labels has shape"),
        (lambda s, t: learn_templates(np.ones((2, 2, 2)), [0, 1], "two"), "kind must be"),
        (lambda s, t: read("mixture"), "value must be"),
        (lambda s, t: read("original", 0.0), "value must be"),
        (lambda s, t: read("fair", 0.1), "name must be 'original', 'truncated' or 'mixture'"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    templates, _ = problem()
    with pytest.raises(ValueError, match=words):
        call(SceneSearch(templates, read("truncated"), (9, 11)), templates)


# what counts


def scene_of(digits, rows, columns):
    "A scene with these digits; no pixels."
    return _Scenes(
        None, None, np.array([digits]), np.array([rows]), np.array([columns]), None, None
    )


def found_at(experts, rows, columns):
    return Found(
        np.array([experts]), np.array([rows]), np.array([columns]), np.ones((1, len(experts)))
    )


@pytest.mark.parametrize(
    "found, expected",
    [
        (found_at([2, 5], [10, 20], [10, 20]), [True, True]),
        (found_at([5, 2], [22, 8], [18, 12]), [True, True]),
        (found_at([2, 2], [10, 10], [10, 11]), [True, False]),
        (found_at([2, -1], [13, -1], [10, -1]), [False, False]),
        (found_at([2, 5], [20, 10], [20, 10]), [False, False]),
        (found_at([-1, -1], [-1, -1], [-1, -1]), [False, False]),
    ],
)
def test_a_digit_is_found_by_its_own_kind_nearby(found, expected):
    seen, detected = judge(found, scene_of([2, 5], [10, 20], [10, 20]))
    assert seen.tolist() == [expected] and detected.tolist() == [int(np.sum(found.experts >= 0))]


def test_one_expert_stands_for_one_digit_and_the_matching_is_the_largest():
    twins = scene_of([4, 4], [10, 12], [10, 10])
    assert judge(found_at([4], [11], [10]), twins)[0].sum() == 1
    assert (
        judge(found_at([4, 4], [12, 14], [10, 10]), twins)[0].sum() == 2
    )  # the first expert must stand for the first digit
    assert judge(found_at([4, 4], [10, 13], [10, 10]), twins, tolerance=0)[0].tolist() == [
        [True, False]
    ]


def test_rates_and_their_errors():
    seen, detected = (
        np.array([[True, True], [True, False], [True, True], [False, False]]),
        np.array([2, 3, 4, 0]),
    )
    made = _rates(seen, detected)
    assert (made["found"], made["all"], made["perfect"], made["false"], made["detected"]) == (
        0.625,
        0.5,
        0.25,
        1.0,
        2.25,
    )
    assert made["all_se"] == pytest.approx(0.25) and made["found_se"] == pytest.approx(
        np.std([1, 0.5, 1, 0]) / 2
    )
    assert (
        _agreement(seen, detected) == pytest.approx(2 * 5 / (8 + 9))
        and _agreement(np.ones((2, 3), bool), np.array([3, 3])) == 1
    )


# the experiment


def test_paper_conditions_have_hundreds_of_scenes_in_large_pictures():
    parts = _scene_parts("mnist", "paper")
    assert len({part.name for part in parts}) == len(parts)
    assert all(
        part.parameters["n"] >= 200 and part.parameters["shape"] == [100, 100] for part in parts
    )
    kinds = {(part.parameters["templates"], part.parameters["instances"]) for part in parts}
    assert kinds == {(a, b) for a in ("one", "mean") for b in ("own", "unseen")}


def test_conditions_share_nothing_but_the_templates():
    data, settings = load_digits(), _scene_parts("digits", "quick")[0].parameters
    templates, scenes, tuning = _set_the_scene(settings, data, 0)
    again = _set_the_scene(settings, data, 0)
    assert (
        all(np.array_equal(a, b) for a, b in zip(scenes, again[1]))
        and len(tuning.noisy) == settings["n_tuning"]
    )
    assert not np.array_equal(scenes.digits[:6], tuning.digits)
    assert not np.array_equal(_set_the_scene(settings, data, 1)[1].digits, scenes.digits)
    assert np.array_equal(_set_the_scene(settings | {"noise": 0.2}, data, 0)[0], templates)


def test_quick_run(quick_record):
    record = load_record(quick_record("scenes"))
    for name, part in record.parts.items():
        settings, metrics = part["parameters"], record.metrics(name)
        for method in METHODS:
            seen, detected = (
                record.array(name, f"{method} seen"),
                record.array(name, f"{method} detected"),
            )
            assert (
                seen.shape == (settings["n"], settings["n_digits"])
                and detected.max() <= settings["most"]
            )
            made = _rates(seen, detected)
            assert {key: metrics[method][key] for key in made} == pytest.approx(made)
            assert np.all(detected >= seen.sum(axis=1))
        assert metrics["tuned background"]["value"] < 0.5
        assert metrics["mixture, exact"]["value"] == pytest.approx(
            1 - 2 * max(settings["noise"], module.FAINT)
        )
        assert metrics["original, priced"]["detected"] <= metrics["original"]["detected"]
    crisp = record.metrics("one, own, 5 digits, noise 0.05")
    assert crisp["truncated"]["found"] > 0.8
