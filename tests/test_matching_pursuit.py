"""Matching pursuit: warps against SciPy, the search against the plain loop and against brute force,
bounds, odd inputs.
"""

import math
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from conftest import examples, together
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import affine_transform, gaussian_filter

from capslit.composition import pursuit as module
from capslit.composition.rules import bernoulli_log_likelihood, max_minus_min
from capslit.composition.pursuit import (
    Transforms,
    exhaustive_search,
    matching_pursuit,
    plain_pursuit,
    warp,
)
from capslit.em.compiling import compiled

seeds = st.integers(0, 2**32 - 1)


def equal(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


def problem(seed, n=5):
    "Images, templates and options of a random small problem, of all kinds of templates and q."
    rng = np.random.default_rng(seed)
    height, width = map(int, rng.integers(2, 8, 2))
    shape = int(rng.integers(1, 5)), height * width
    templates = [
        rng.random(shape),
        rng.integers(0, 3, shape) / 2,
        rng.beta(0.3, 0.3, shape),
        rng.integers(1, 6, shape) / 6,
    ][rng.integers(4)]
    turns = rng.choice([0.0, 10.0, -30.0, 90.0], rng.integers(1, 4))
    options = {
        "q": float(rng.choice([0, 0.01, 0.3, 0.5, 0.9, 1])),
        "truncated": bool(rng.random() < 0.3),
        "transforms": Transforms((height, width), tuple(map(int, rng.integers(0, 3, 2))), turns),
    }
    options |= {"repeats": True, "max_experts": 5} if rng.random() < 0.3 else {}
    options |= {"expert_cost": float(rng.uniform(0, 4))} if rng.random() < 0.4 else {}
    return rng.random((n, shape[1])) < rng.random(), templates, options


@pytest.fixture
def strokes():
    "Templates (3, 400) of soft strokes."
    ink = np.zeros((3, 20, 20))
    ink[0, 4:16, 9:11] = ink[1, 9:11, 4:16] = ink[2, 4:8, 4:8] = 1
    return np.maximum(0.01, 0.95 * gaussian_filter(ink, (0, 0.8, 0.8))).reshape(3, 400)


# costs


@pytest.mark.parametrize("search", [matching_pursuit, plain_pursuit, exhaustive_search])
def test_an_expert_is_active_only_if_it_gains_more_than_its_cost(search):
    bars = np.where(
        np.eye(3, dtype=bool).repeat(4, axis=1), 0.9, 0.5
    )  # 4 ln 1.8 = 2.35 nats for a whole bar
    X = np.array([[1] * 4 + [0, 1] * 2 + [1] * 4])
    gain = 4 * np.log(1.8)
    for cost, count in ((0.0, 2), (0.99 * gain, 2), (1.01 * gain, 0)):
        found = search(X, bars, expert_cost=cost)
        assert np.sum(found.experts >= 0) == count
        assert np.isclose(
            found.log_likelihood[0], count * gain - 12 * np.log(2)
        )  # of the image alone


# warps


@examples(40)
@given(seeds, st.sampled_from([(5, 5), (6, 4), (1, 7), (9, 8)]), st.sampled_from([0.0, 0.3, -2.0]))
def test_warp_agrees_with_scipy(seed, shape, fill):
    rng = np.random.default_rng(seed)
    image, (down, right, degrees) = (
        rng.random(shape),
        (*rng.uniform(-3, 3, 2), rng.uniform(-180, 180)),
    )
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    back, middle = np.array([[cos, sin], [-sin, cos]]), (np.array(shape) - 1) / 2
    offset = middle - back @ (middle + [down, right])
    expected = affine_transform(
        np.pad(image, 9, constant_values=fill),
        back,
        offset + 9,
        output_shape=shape,
        order=1,
        cval=fill,
    )
    found = warp(image.reshape(1, -1), [down, right, degrees], shape, fill)
    assert np.allclose(found.reshape(shape), expected, atol=1e-9)


def test_whole_shifts_and_quarter_turns_are_exact():
    x = np.random.default_rng(0).normal(size=(3, 6, 6)) * 1e9
    for shift in product(range(-7, 8), repeat=2):
        a, b = (np.clip(s, -6, 6) for s in shift)
        expected = np.full_like(x, 0.25)
        expected[:, max(a, 0) : 6 + min(a, 0), max(b, 0) : 6 + min(b, 0)] = x[
            :, max(-a, 0) : 6 - max(a, 0), max(-b, 0) : 6 - max(b, 0)
        ]
        assert np.array_equal(
            warp(x.reshape(3, -1), [*shift, 0], (6, 6), 0.25).reshape(x.shape), expected
        )
    for quarter in range(-4, 5):
        turned = warp(x.reshape(3, -1), [0, 0, 90 * quarter], (6, 6)).reshape(x.shape)
        assert np.array_equal(turned, np.rot90(x, quarter, axes=(1, 2)))


def test_warp_is_linear_keeps_precision_and_broadcasts():
    rng = np.random.default_rng(0)
    a, b, poses = rng.random((4, 30)), rng.random((4, 30)), rng.uniform(-3, 3, (4, 3)) * [1, 1, 40]
    assert np.allclose(
        warp(2 * a - 3 * b, poses, (5, 6)), 2 * warp(a, poses, (5, 6)) - 3 * warp(b, poses, (5, 6))
    )
    assert warp(a.astype(np.float32), poses, (5, 6)).dtype == np.float32
    assert np.array_equal(warp(a[:1], poses, (5, 6)), warp(np.tile(a[:1], (4, 1)), poses, (5, 6)))
    assert np.array_equal(warp(a, poses[0], (5, 6))[2], warp(a[2:3], poses[:1], (5, 6))[0])
    assert warp(a[:0], poses[:0], (5, 6)).shape == (0, 30)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            (np.zeros((2, 9)), np.zeros((3, 3)), (3, 3)),
            r"poses has shape \(3, 3\), but shape \(2, 3\) is needed; pass one pose for each image",
        ),
        ((np.zeros((2, 9)), np.zeros((2, 2)), (3, 3)), "poses has shape"),
        ((np.zeros((2, 8)), np.zeros(3), (3, 3)), "images has shape"),
        ((np.full((2, 9), np.nan), np.zeros(3), (3, 3)), "images contains NaN"),
        ((np.zeros((2, 9)), [0, np.inf, 0], (3, 3)), "poses contains infinity"),
        ((np.zeros((2, 9)), np.zeros(3), (3, 0)), "image_shape"),
        ((np.zeros((2, 9)), np.zeros(3), 9), "image_shape"),
        ((np.zeros((2, 9)), np.zeros(3), (3, 3), np.nan), "fill"),
    ],
)
def test_warp_says_what_is_wrong(arguments, said):
    with pytest.raises(ValueError, match=said):
        warp(*arguments)


def test_transforms():
    transforms = Transforms((4, 5), (1, 2), (0, 15))
    assert len(transforms) == len(transforms.poses) == 3 * 5 * 2
    assert len({tuple(pose) for pose in transforms.poses}) == 30
    assert transforms == Transforms([4, 5], np.array([1, 2]), np.array([0.0, 15])) and hash(
        transforms
    )
    assert Transforms((4, 5), 2).shifts == (2, 2) and len(Transforms((4, 5))) == 1
    x = np.random.default_rng(0).random((30, 20))
    moved = transforms.transform(x, np.arange(30), 0.5)
    assert np.array_equal(moved[17], warp(x[17:18], transforms.poses[17], (4, 5), 0.5)[0])
    for index in ([30], [-1], [0.0], [True], [[0]]):
        with pytest.raises(ValueError, match="index"):
            transforms.transform(x[:1], index)
    for wrong in (
        {"shifts": -1},
        {"shifts": 1.5},
        {"shifts": (1, 2, 3)},
        {"shifts": True},
        {"rotations": ()},
        {"rotations": (np.nan,)},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Transforms((4, 5), **wrong)
    with pytest.raises(ValueError, match="rotations has shape"):
        Transforms((4, 5), rotations=[[0, 10], [20, 30]])
    assert Transforms((4, 5), rotations=15) == Transforms((4, 5), rotations=[15.0])


@examples(40)
@given(seeds)
def test_what_is_moved_remains_a_probability(seed):
    rng = np.random.default_rng(seed)
    edge = np.array(
        [0, 5e-324, 2.2e-308, 1e-16, 0.1, 0.5, np.nextafter(0.5, 1), 0.9, np.nextafter(1, 0), 1]
    )
    transforms = Transforms(
        (4, 5), (1, 2), rng.choice([0, 1e-6, 30, 45, 90, 179.999999, -77], 3, replace=False)
    )
    canvas = module._candidates(rng.choice(edge, (3, 20)), transforms, rng.choice(edge)).canvas
    assert canvas.min() >= 0 and canvas.max() <= 1


def test_pull_back_undoes_the_motion():
    y, x = np.mgrid[:31, :31] - 15
    smooth = np.exp(-(y**2 + (x - 2) ** 2) / 30).reshape(1, -1)
    transforms = Transforms((31, 31), (6, 4), (0, 25, -70))
    index = np.arange(len(transforms))
    back = transforms.pull_back(transforms.transform(smooth, index), index)
    assert np.abs(back - smooth).max() < 0.15  # bilinear interpolation, twice
    forward = transforms.transform(transforms.pull_back(smooth, index), index)
    assert np.abs(forward - smooth).max() < 0.15  # bilinear interpolation, twice


# the search


def brute_force(x, templates, q, transforms, most):
    "Greedy search in plain Python, for one image: experts, poses, likelihood."
    chosen, T = [], len(transforms)
    moved = [transforms.transform(mu[None], np.arange(T), fill=q) for mu in templates]

    def likelihood(config):
        parts = np.array([moved[k][t] for k, t in config]).reshape(-1, len(x))
        return bernoulli_log_likelihood(x, max_minus_min(parts, q=q))

    now = likelihood([])
    while len(chosen) < most:
        options = {
            (k, t): likelihood([*chosen, (k, t)])
            for k in range(len(templates))
            for t in range(T)
            if k not in [before for before, _ in chosen]
        }
        best = max(options, key=options.get, default=None)
        if best is None or options[best] <= now + 1e-9:
            break
        chosen, now = [*chosen, best], options[best]
    return chosen, now


@pytest.mark.parametrize("search", [plain_pursuit, matching_pursuit])
@pytest.mark.parametrize("q, largest", [(0.03, 1), (0.5, 1), (1e-9, 1e-8)])
def test_agrees_with_brute_force(search, q, largest):
    rng = np.random.default_rng(1)
    templates, transforms = largest * rng.beta(0.5, 0.5, (3, 20)), Transforms((4, 5), 1, (0, 30))
    X = rng.random((8, 20)) < 0.4
    found = search(X, templates, q=q, transforms=transforms)
    for x, experts, poses, value, composed in zip(
        X, found.experts, found.poses, found.log_likelihood, found.composed
    ):
        chosen, expected = brute_force(x, templates, q, transforms, 3)
        assert [(k, t) for k, t in zip(experts, poses) if k >= 0] == chosen
        assert np.isclose(value, expected) and np.isclose(
            bernoulli_log_likelihood(x, composed), expected
        )
    assert np.all((found.experts < 0) == (found.poses < 0)) and np.all(
        np.diff(found.experts < 0, axis=1) >= 0
    )


@examples(80)
@given(seeds, st.integers(2, 12), st.sampled_from([1, 3000, 2**25]), st.booleans())
def test_fast_search_is_the_plain_one(seed, count, block_bytes, loops):
    X, templates, options = problem(seed)
    levels = module._levels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_levels", lambda values, q: levels(values, q, count))
        for kernel in (module._compiled_scores, module._compiled_greedy):
            patch.setattr(kernel, "asked", kernel.enough if loops else -(10**9))
        found = matching_pursuit(X, templates, block_bytes=block_bytes, **options)
    assert equal(found, plain_pursuit(X, templates, **options))


@examples(40)
@given(seeds, st.integers(2, 12))
def test_no_score_exceeds_its_bound(seed, count):
    X, templates, options = problem(seed)
    q, rng = options["q"], np.random.default_rng(seed)
    candidates = module._candidates(templates, options["transforms"], q)
    bounds = module._Bounds(candidates, q, module._levels(candidates.canvas, q, count))
    some = candidates[rng.integers(len(candidates), size=(len(X)))]
    others = candidates[rng.integers(len(candidates), size=(len(X)))]
    U, L = np.maximum(np.maximum(some, others), q), np.minimum(np.minimum(some, others), q)
    everything = np.array(list(product(range(len(X)), range(len(candidates))))).T
    for first, U, L in ((True, np.full_like(U, q), np.full_like(U, q)), (False, U, L)):
        score = module._score(X, U, L, q)
        bound = bounds(X, U, L, score, first=first)
        exact = module._scores_of(everything, X, U, L, candidates, q).reshape(bound.shape)
        assert np.all(bound >= exact)
        if first and 0 < q < 1 and 0 < templates.min() and templates.max() < 1:
            assert np.all(bound <= exact + 1e-3 * (1 + np.abs(exact).max()))


@pytest.mark.parametrize("count", [2, 3])
def test_bounds_hold_where_experts_are_opposed(count):
    """Few levels, and pixels that one expert wants black and another one white: the ends of the
    chords must be raised.
    """
    p = np.linspace(0.01, 0.99, 99)[:, None] * np.ones(8)
    candidates = module._candidates(p, Transforms((1, 8)), 0.5)
    bounds = module._Bounds(candidates, 0.5, module._levels(candidates.canvas, 0.5, count))
    X, U, L = (
        np.ones((40, 8), bool),
        np.full((40, 8), 0.5),
        np.linspace(0.01, 0.49, 40)[:, None] * np.ones(8),
    )
    for x, U, L in ((X, U, L), (~X, 1 - L, 1 - U)):
        bound = bounds(x, U, L, module._score(x, U, L, 0.5), first=False)
        exact = module._score(x[:, None], np.maximum(U[:, None], p), np.minimum(L[:, None], p), 0.5)
        assert np.all(bound >= exact)


@pytest.mark.parametrize("shape", [(1, 1), (1, 320), (70, 33), (400, 2)])
@pytest.mark.parametrize("lowest", [0.3, 1e-8, 1e-40, 0])
def test_scores_by_products(shape, lowest):
    "Of short and long rows, and of many pixels that are as good as impossible."
    pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    rng, D = np.random.default_rng(0), shape[0] * shape[1]
    transforms, q = Transforms(shape, (1, 2)), 0.4
    candidates = module._candidates(
        rng.choice([lowest, 0.3, 0.5, 1 - lowest], (2, D)), transforms, q
    )
    x, extremes = rng.random((3, D)) < 0.5, rng.choice([lowest, 0.3, 0.5, 0.9], (2, 3, D))
    U, L = np.maximum(q, extremes[0]), np.minimum(q, extremes[1])
    pairs = np.repeat(np.arange(3), len(candidates)), np.tile(np.arange(len(candidates)), 3)
    p, out = candidates[pairs[1]], np.empty(len(pairs[0]))
    kernel = compiled(
        module._scores, module._score_of, module._chance, module._window_of, exact=True
    )
    kernel(*pairs, x, U, L, candidates.canvas, candidates.windows.shape[1:3], q, out)
    known = module._score(x[pairs[0]], np.maximum(U[pairs[0]], p), np.minimum(L[pairs[0]], p), q)
    assert np.allclose(out, known, rtol=1e-12, atol=1e-12)


def test_few_candidates_are_scored(strokes, monkeypatch):
    transforms, rng, scored = Transforms((20, 20), 3, (-10, 0, 10)), np.random.default_rng(0), []
    parts = np.array(
        [transforms.transform(mu[None], rng.integers(len(transforms), size=30)) for mu in strokes]
    )
    X = rng.random((30, 400)) < np.maximum(0.01, np.max(parts, axis=0))
    count = module._scores_of
    monkeypatch.setattr(
        module,
        "_scores_of",
        lambda pairs, *rest: scored.append(len(pairs[0])) or count(pairs, *rest),
    )
    for options in ({"q": 0.01}, {"q": 0.01, "truncated": True}, {"q": 0.5}):
        scored.clear()
        found = matching_pursuit(X, strokes, transforms=transforms, **options)
        assert np.mean(found.experts >= 0) > 0.7 and sum(scored) < 30 * 3 * 3 * len(transforms) / 10
        assert equal(found, plain_pursuit(X, strokes, transforms=transforms, **options))


def test_many_experts_without_poses():
    rng = np.random.default_rng(0)
    templates = rng.beta(0.5, 0.5, (90, 25))
    X = rng.random((40, 25)) < 0.5
    for q in (0.02, 0.5):
        assert equal(matching_pursuit(X, templates, q=q), plain_pursuit(X, templates, q=q))


def test_finds_what_was_placed(strokes):
    transforms, rng = Transforms((20, 20), 3, (-15, 0, 15)), np.random.default_rng(3)
    placed = rng.integers(len(transforms), size=(2, 20))
    ink = [transforms.transform(strokes[[k]], index) for k, index in enumerate(placed)]
    X = np.maximum(*ink) > 0.5
    found = matching_pursuit(X, strokes, q=0.01, transforms=transforms, truncated=True)
    assert np.all(np.sort(found.experts[:, :2], axis=1) == [0, 1])
    order = np.argsort(found.experts[:, :2], axis=1)
    poses = transforms.poses[np.take_along_axis(found.poses, order, axis=1)]
    assert np.mean(np.abs(poses - transforms.poses[placed.T])[..., :2] <= 1) > 0.95


def test_nobody_comes_first():
    templates = np.array([[0.9, 0.9, 0.5, 0.5], [0.5, 0.5, 0.9, 0.9]])
    found = matching_pursuit([[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]], templates)
    assert found.experts.tolist() == [[-1, -1], [0, -1], [0, 1], [-1, -1]]
    assert np.allclose(found.log_likelihood[[0, 3]], 4 * math.log(0.5)) and np.all(
        found.composed[0] == 0.5
    )


def test_extremes_are_carried():
    templates = np.array([[0.9, 0.9, 0.9, 0.5], [0.1, 0.5, 0.5, 0.1], [0.2, 0.5, 0.5, 0.05]])
    found = matching_pursuit([[1, 1, 1, 0]], templates)
    config = [k for k in found.experts[0] if k >= 0]
    assert len(config) >= 2
    assert np.allclose(found.upper[0], np.max([*templates[config], np.full(4, 0.5)], axis=0))
    assert np.allclose(found.lower[0], np.min([*templates[config], np.full(4, 0.5)], axis=0))
    assert np.allclose(found.composed[0], max_minus_min(templates[config]))


def test_limits_and_repeats(strokes):
    transforms = Transforms((20, 20), 6)
    twice = (
        np.maximum(
            *(transforms.transform(strokes[[2]], [index])[0] for index in (0, len(transforms) - 1))
        )
        > 0.5
    )
    options = {"q": 0.01, "transforms": transforms, "truncated": True}
    once = matching_pursuit(twice[None], strokes[2:], **options)
    both = matching_pursuit(twice[None], strokes[2:], repeats=True, **options)
    assert once.experts.shape == (1, 1) and both.experts[0].tolist() == [0, 0]
    assert (
        sorted(both.poses[0]) == [0, len(transforms) - 1]
        and both.log_likelihood > once.log_likelihood
    )
    assert equal(both, plain_pursuit(twice[None], strokes[2:], repeats=True, **options))
    assert matching_pursuit(twice[None], strokes, max_experts=0, **options).experts.shape == (1, 0)
    assert matching_pursuit(twice[None], strokes, max_experts=2, **options).experts.shape == (1, 2)
    assert matching_pursuit(twice[None], strokes, max_experts=9, **options).experts.shape == (1, 3)


def test_blocks_with_different_numbers_of_experts():
    templates = np.eye(6) * 0.8 + 0.01
    X = np.tril(np.ones((6, 6)))
    found = matching_pursuit(X, templates, q=0.01, repeats=True, block_bytes=1)
    assert found.experts.shape == (6, 6) and np.array_equal(
        np.sum(found.experts >= 0, axis=1), np.arange(1, 7)
    )


@pytest.mark.parametrize("search", [plain_pursuit, matching_pursuit])
def test_equal_up_to_rounding_is_equal(search):
    "A level bar at an angle and half a turn further: the same image, but for rounding."
    bar, sharp = np.full((9, 9), 0.02), 0
    bar[3:6] = 0.9
    bar[4] = 0.7
    for angle in range(10, 180, 10):
        transforms = Transforms((9, 9), 0, (angle, angle + 180))
        x = transforms.transform(bar.reshape(1, -1), [0], 0.02) > 0.4
        score = bernoulli_log_likelihood(x, transforms.transform(bar.reshape(1, -1), [0, 1], 0.02))
        assert np.isclose(*score, rtol=1e-13, atol=0)
        sharp += score[1] > score[0]
        found = search(x, np.tile(bar.ravel(), (2, 1)), q=0.02, transforms=transforms)
        assert found.experts.tolist() == [[0, -1]] and found.poses.tolist() == [[0, -1]]
    assert sharp  # somewhere rounding would have preferred the second
    assert search(
        [[1, 1, 0, 0]], np.tile([0.9, 0.9, 0.02, 0.02], (3, 1)), q=0.02
    ).experts.tolist() == [[0, -1, -1]]
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(np.tile(rng.uniform(0.1, 0.9, 40), (50, 1)), axis=1)
    assert search(np.ones((1, 40)), shuffled, q=0.02, max_experts=1).experts.tolist() == [[0]]


def test_what_is_impossible_counts():
    templates = np.array([[1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0.0]])
    found = matching_pursuit([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0] * 6], templates, q=0)
    assert found.experts[:2, 0].tolist() == [0, 0] and set(found.experts[1, :2]) == {0, 2}
    assert found.log_likelihood.tolist() == [0, -np.inf, 0] and np.all(found.experts[2] == -1)


@pytest.mark.parametrize("search", [plain_pursuit, matching_pursuit, exhaustive_search])
def test_small_probabilities_and_impossible_pixels_are_compared(search):
    assert search([[1]], [[1e-6], [1e-5]], q=0, max_experts=1).experts.tolist() == [[1]]
    two, one = [1, 0, 0], [0.01, 0.01, 0]  # so many pixels of the image remain impossible
    assert search([[1, 1, 1]], [two, one], q=0, max_experts=1).experts.tolist() == [[1]]


@pytest.mark.parametrize("search", [plain_pursuit, matching_pursuit, exhaustive_search])
def test_voters_for_white_are_not_seen_truncated(search):
    templates = np.array([[0.5, 0.5, 0.9, 0.9], [0.05, 0.05, 0.5, 0.5]])
    found, cut = (
        search([[0, 0, 1, 1]], templates, truncated=truncated) for truncated in (False, True)
    )
    assert sorted(found.experts[0]) == [0, 1] and cut.experts.tolist() == [[0, -1]]
    assert found.log_likelihood > cut.log_likelihood


def test_truncated_choice_can_be_worse_than_nobody():
    found = matching_pursuit([[1, 1, 1, 1]], [[0.9, 0.9, 0.001, 0.001]], q=0.1, truncated=True)
    assert found.experts.tolist() == [[0]] and found.log_likelihood < 4 * math.log(0.1)


def test_truncated_choice_takes_no_notice_of_foreign_ink(strokes):
    rng = np.random.default_rng(0)
    outside = np.max(strokes[:1], axis=0) <= 0.5
    X = rng.random((20, 400)) < strokes[0]
    inked = X | (outside & (rng.random((20, 400)) < 0.5))
    options = {"q": 0.01, "truncated": True}
    found = [matching_pursuit(images, strokes[:1], **options).experts for images in (X, inked)]
    assert np.array_equal(*found) and np.mean(found[0] == 0) > 0.7
    plain = [matching_pursuit(images, strokes[:1], q=0.01).log_likelihood for images in (X, inked)]
    assert np.all(plain[1] < plain[0] - 100)


def test_exhaustive_search_finds_the_best():
    rng = np.random.default_rng(0)
    for q, transforms, most in ((0.5, None, 4), (0.02, Transforms((2, 5), (0, 1)), 2)):
        templates, X = rng.beta(0.5, 0.5, (4, 10)), rng.random((10, 10)) < 0.5
        found = exhaustive_search(X, templates, q=q, transforms=transforms, max_experts=most)
        T = len(transforms) if transforms else 1
        moved = [
            transforms.transform(mu[None], np.arange(T), q) if transforms else mu[None]
            for mu in templates
        ]
        best = np.full(10, -np.inf)
        for j in range(most + 1):
            for experts in combinations(range(4), j):
                for poses in product(range(T), repeat=j):
                    p = np.array([moved[k][t] for k, t in zip(experts, poses)]).reshape(j, 10)
                    best = np.maximum(best, bernoulli_log_likelihood(X, max_minus_min(p, q=q)))
        assert np.allclose(found.log_likelihood, best)
        assert np.allclose(bernoulli_log_likelihood(X, found.composed), best)
        greedy = matching_pursuit(X, templates, q=q, transforms=transforms, max_experts=most)
        assert np.all(greedy.log_likelihood <= best + 1e-9)
    impossible = exhaustive_search(
        [[1, 1]], [[0.0, 0.5]], q=0
    )  # the first configuration is compared, too
    assert impossible.experts.tolist() == [[0]] and impossible.log_likelihood == -np.inf
    with pytest.raises(ValueError, match="max_configurations"):
        exhaustive_search(X, templates, transforms=Transforms((2, 5), 20), max_experts=4)
    with pytest.raises(ValueError, match="max_configurations"):
        exhaustive_search(X, templates, max_configurations=10)
    for wrong in (None, 0, "all", float("nan")):
        with pytest.raises(ValueError, match="max_configurations must be"):
            exhaustive_search(X, templates, max_configurations=wrong)


# what goes in


def test_inputs_of_all_kinds(strokes):
    X = (np.random.default_rng(0).random((4, 400)) < strokes[0]).astype(float)
    options = {"q": 0.01, "transforms": Transforms((20, 20), 1)}
    expected = matching_pursuit(X, strokes, **options)
    frozen = X.copy()
    frozen.setflags(write=False)
    for other in (
        X.astype(bool),
        X.astype(int),
        X.astype(np.float32),
        np.asfortranarray(X),
        X[::-1][::-1],
        frozen,
        X.tolist(),
        pd.DataFrame(X),
        X.astype(">f8"),
    ):
        assert equal(matching_pursuit(other, strokes, **options), expected)
    before = X.copy(), strokes.copy()
    matching_pursuit(X, np.asfortranarray(strokes), **options)
    assert np.array_equal(X, before[0]) and np.array_equal(strokes, before[1])
    single = matching_pursuit(X, strokes.astype(np.float32), **options)
    assert single.upper.dtype == np.float64 and np.array_equal(single.experts, expected.experts)


def test_tensors():
    torch = pytest.importorskip("torch")
    X, templates, transforms = (
        torch.tensor([[1.0, 0, 0, 1]]),
        torch.tensor([[0.9, 0.1, 0.1, 0.9]]),
        Transforms((2, 2), 1),
    )
    expected = matching_pursuit(X.numpy(), templates.numpy(), transforms=transforms)
    for search in (matching_pursuit, plain_pursuit):
        assert equal(search(X, templates, transforms=transforms), expected)
    assert np.array_equal(warp(X, torch.tensor([1, 0, 0]), (2, 2)), [[0, 0, 1, 0]])
    assert Transforms((2, 2), 1, torch.zeros(1)) == transforms


@pytest.mark.parametrize("search", [matching_pursuit, plain_pursuit, exhaustive_search])
def test_extreme_sizes(search):
    t = np.array([[0.9, 0.1]])
    assert search(np.zeros((0, 2)), t).experts.shape == (0, 1)
    nobody = search([[0, 1]], np.zeros((0, 2)))
    assert nobody.experts.shape == (1, 0) and np.all(nobody.composed == 0.5)
    assert search([[1, 0]], t).experts.tolist() == [[0]]
    assert search([[1]], [[0.7]]).experts.tolist() == [[0]]
    assert search([[1, 0], [0, 0]], np.full((3, 2), 0.5)).experts.tolist() == [[-1] * 3] * 2
    assert search(
        [[1, 0]], np.full((3, 2), 0.5), transforms=Transforms((1, 2), (3, 3)), max_experts=1
    ).experts.tolist() == [[-1]]


@together("search", [matching_pursuit, plain_pursuit, exhaustive_search])
@pytest.mark.parametrize(
    "X, templates, options, error, said",
    [
        (
            [[0, 0.5]],
            [[0.5, 0.5]],
            {},
            ValueError,
            "X must hold zeros and ones, but holds 0.5; binarise",
        ),
        ([[0, np.nan]], [[0.5, 0.5]], {}, ValueError, "X contains NaN"),
        ([[0, np.inf]], [[0.5, 0.5]], {}, ValueError, "X contains infinity"),
        ([[0, 1, 1]], [[0.5, 0.5]], {}, ValueError, "X has shape"),
        ([0, 1], [[0.5, 0.5]], {}, ValueError, "X has shape"),
        ([["a", "b"]], [[0.5, 0.5]], {}, TypeError, "X must hold real numbers"),
        (scipy.sparse.csr_matrix([[0, 1]]), [[0.5, 0.5]], {}, TypeError, "X is a sparse matrix"),
        (None, [[0.5, 0.5]], {}, TypeError, "X is None"),
        ([[0, 1]], [0.5, 0.5], {}, ValueError, "templates has shape"),
        (np.zeros((2, 0)), np.zeros((1, 0)), {}, ValueError, "templates has no columns"),
        (
            [[0, 1]],
            [[0.5, 0.5]],
            {"truncated": "no"},
            ValueError,
            "truncated must be True or False",
        ),
        ([[0, 1]], [[0.5, 1.5]], {}, ValueError, "templates must be at most 1"),
        ([[0, 1]], [[0.5, -0.1]], {}, ValueError, "templates must be at least 0"),
        ([[0, 1]], [[0.5, np.nan]], {}, ValueError, "templates contains NaN"),
        (
            [[0, 1]],
            [[0.5, 0.5]],
            {"q": 2},
            ValueError,
            "q must be a number of at least 0 and at most 1",
        ),
        (
            [[0, 1]],
            [[0.5, 0.5]],
            {"q": "half"},
            ValueError,
            "q must be a number of at least 0 and at most 1",
        ),
        (
            [[0, 1]],
            [[0.5, 0.5]],
            {"q": float("nan")},
            ValueError,
            "q must be a number of at least 0 and at most 1",
        ),
        (
            [[0, 1]],
            [[0.5, 0.5]],
            {"transforms": Transforms((2, 2))},
            ValueError,
            "transforms is made for images",
        ),
        ([[0, 1]], [[0.5, 0.5]], {"transforms": (2, 1)}, TypeError, "transforms must be"),
        ([[0, 1]], [[0.5, 0.5]], {"max_experts": -1}, ValueError, "max_experts"),
        ([[0, 1]], [[0.5, 0.5]], {"max_experts": 1.0}, ValueError, "max_experts"),
        ([[0, 1]], [[0.5, 0.5]], {"expert_cost": -1}, ValueError, "expert_cost"),
    ],
)
def test_says_what_is_wrong(search, X, templates, options, error, said):
    with pytest.raises(error, match=said):
        search(X, templates, **options)


def test_repeats_and_block_bytes_are_checked():
    for search in (matching_pursuit, plain_pursuit):
        with pytest.raises(ValueError, match="repeats must be True or False"):
            search([[0, 1]], [[0.5, 0.5]], repeats=None)
    for wrong in (0, -1, "all", None, float("nan")):
        with pytest.raises(ValueError, match="block_bytes"):
            matching_pursuit([[0, 1]], [[0.5, 0.5]], block_bytes=wrong)
    assert matching_pursuit([[0, 1]], [[0.5, 0.9]], block_bytes=math.inf).experts.tolist() == [[0]]
