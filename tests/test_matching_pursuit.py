"""Matching pursuit: warps against SciPy, the fast search against the plain loop, bounds, ties,
impossible pixels, odd inputs.
"""

import math
from itertools import product

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS, examples, together
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import affine_transform

from capslit.composition import pursuit as module
from capslit.composition.pursuit import (
    Transforms,
    exhaustive_search,
    matching_pursuit,
    plain_pursuit,
    warp,
)
from capslit.composition.rules import bernoulli_log_likelihood, max_minus_min

seeds = st.integers(0, 2**32 - 1)
searches = together("search", [matching_pursuit, plain_pursuit, exhaustive_search])


def equal(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


def problem(seed, n=5):
    "Images, templates and options of a random small problem, of all kinds of templates and q."
    rng = np.random.default_rng(seed)
    height, width = map(int, rng.integers(2, 8, 2))
    shape = int(rng.integers(1, 5)), height * width
    kinds = [
        rng.random(shape),
        rng.integers(0, 3, shape) / 2,
        rng.beta(0.3, 0.3, shape),
        rng.integers(1, 6, shape) / 6,
    ]
    templates = kinds[rng.integers(4)]
    turns = rng.choice([0.0, 10.0, -30.0, 90.0], rng.integers(1, 4))
    shifts = tuple(map(int, rng.integers(0, 3, 2)))
    options = {
        "q": float(rng.choice([0, 0.01, 0.3, 0.5, 0.9, 1])),
        "truncated": bool(rng.random() < 0.3),
        "transforms": Transforms((height, width), shifts, turns),
    }
    if rng.random() < 0.4:
        options["expert_cost"] = float(rng.uniform(0, 4))
    return rng.random((n, shape[1])) < rng.random(), templates, options


# Warps


@examples(40)
@given(seeds, st.sampled_from([(5, 5), (6, 4), (1, 7), (9, 8)]), st.sampled_from([0.0, 0.3, -2.0]))
def test_warp_agrees_with_scipy(seed, shape, fill):
    rng = np.random.default_rng(seed)
    image = rng.random(shape)
    down, right = rng.uniform(-3, 3, 2)
    degrees = rng.uniform(-180, 180)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    back = np.array([[cos, sin], [-sin, cos]])
    middle = (np.array(shape) - 1) / 2
    expected = affine_transform(
        np.pad(image, 9, constant_values=fill),
        back,
        middle - back @ (middle + [down, right]) + 9,
        output_shape=shape,
        order=1,
        cval=fill,
    )
    found = warp(image.reshape(1, -1), [down, right, degrees], shape, fill)
    assert np.allclose(found.reshape(shape), expected, atol=1e-9)


def test_whole_shifts_and_quarter_turns_are_exact():
    x = np.random.default_rng(0).normal(size=(3, 6, 6)) * 1e9
    rows = x.reshape(3, -1)
    for shift in product(range(-7, 8), repeat=2):
        frame = np.pad(x, [(0, 0), (7, 7), (7, 7)], constant_values=0.25)
        expected = np.roll(frame, shift, axis=(1, 2))[:, 7:13, 7:13]
        assert np.array_equal(warp(rows, [*shift, 0], (6, 6), 0.25).reshape(x.shape), expected)
    for quarter in range(-4, 5):
        turned = warp(rows, [0, 0, 90 * quarter], (6, 6)).reshape(x.shape)
        assert np.array_equal(turned, np.rot90(x, quarter, axes=(1, 2)))


def test_warp_keeps_precision_and_broadcasts():
    rng = np.random.default_rng(0)
    a = rng.random((4, 30))
    poses = rng.uniform(-3, 3, (4, 3)) * [1, 1, 40]
    assert warp(a.astype(np.float32), poses, (5, 6)).dtype == np.float32
    assert np.array_equal(warp(a[:1], poses, (5, 6)), warp(np.tile(a[:1], (4, 1)), poses, (5, 6)))
    assert np.array_equal(warp(a, poses[0], (5, 6))[2], warp(a[2:3], poses[:1], (5, 6))[0])
    assert warp(a[:0], poses[:0], (5, 6)).shape == (0, 30)


@together(
    "changed, said",
    [
        ({"poses": np.zeros((3, 3))}, "poses has shape .*pass one pose for each image"),
        ({"images": np.zeros((2, 8))}, "images has shape"),
        ({"images": np.full((2, 9), np.nan)}, "images contains NaN"),
        ({"poses": [0, np.inf, 0]}, "poses contains infinity"),
        ({"image_shape": (3, 0)}, "image_shape"),
        ({"fill": np.nan}, "fill"),
    ],
)
def test_warp_says_what_is_wrong(changed, said):
    right = {"images": np.zeros((2, 9)), "poses": np.zeros(3), "image_shape": (3, 3)}
    with pytest.raises(ValueError, match=said):
        warp(**right | changed)


def test_transforms():
    transforms = Transforms((4, 5), (1, 2), (0, 15))
    assert len({tuple(pose) for pose in transforms.poses}) == len(transforms) == 30
    same = Transforms([4, 5], np.array([1, 2]), np.array([0.0, 15]))
    assert transforms == same and hash(transforms) == hash(same)
    assert Transforms((4, 5), 2).shifts == (2, 2) and len(Transforms((4, 5))) == 1
    assert Transforms((4, 5), rotations=15) == Transforms((4, 5), rotations=[15.0])
    x = np.random.default_rng(0).random((30, 20))
    moved = transforms.transform(x, np.arange(30), 0.5)
    assert np.array_equal(moved[17], warp(x[17:18], transforms.poses[17], (4, 5), 0.5)[0])
    for index in ([30], [-1], [0.0], [True], [[0]]):
        with pytest.raises(ValueError, match="index"):
            transforms.transform(x[:1], index)
    for name, values in (
        ("shifts", (-1, 1.5, (1, 2, 3), True)),
        ("rotations", ((), (np.nan,), [[0, 10], [20, 30]])),
    ):
        for wrong in values:
            with pytest.raises(ValueError, match=name):
                Transforms((4, 5), **{name: wrong})


@examples(40)
@given(seeds)
def test_what_is_moved_remains_a_probability(seed):
    rng = np.random.default_rng(seed)
    half, one = np.nextafter(0.5, 1), np.nextafter(1, 0)
    edge = np.array([0, 5e-324, 2.2e-308, 1e-16, 0.1, 0.5, half, 0.9, one, 1])
    turns = rng.choice([0, 1e-6, 30, 45, 90, 179.999999, -77], 3, replace=False)
    templates = rng.choice(edge, (3, 20))
    transforms = Transforms((4, 5), (1, 2), turns)
    canvas = module._candidates(templates, transforms, rng.choice(edge)).canvas
    assert canvas.min() >= 0 and canvas.max() <= 1


def test_pull_back_undoes_the_motion():
    y, x = np.mgrid[:31, :31] - 15
    smooth = np.exp(-(y**2 + (x - 2) ** 2) / 30).reshape(1, -1)
    transforms = Transforms((31, 31), (6, 4), (0, 25, -70))
    index = np.arange(len(transforms))
    back = transforms.pull_back(transforms.transform(smooth, index), index)
    assert np.abs(back - smooth).max() < 0.15  # bilinear interpolation, twice


# The search


@examples(50)
@given(seeds, st.integers(2, 12), st.sampled_from([1, 3000, 2**25]), st.booleans())
def test_fast_search_is_the_plain_one(seed, count, block_bytes, loops):
    X, templates, options = problem(seed)
    levels, kernel = module._levels, module._compiled_greedy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_levels", lambda values, q: levels(values, q, count))
        patch.setattr(kernel, "asked", kernel.enough if loops else -(10**9))
        found = matching_pursuit(X, templates, block_bytes=block_bytes, **options)
    assert equal(found, plain_pursuit(X, templates, **options))


def test_many_experts_without_poses():
    rng = np.random.default_rng(0)
    given = rng.random((40, 25)) < 0.5, rng.beta(0.5, 0.5, (90, 25))
    for q in (0.02, 0.5):
        assert equal(matching_pursuit(*given, q=q), plain_pursuit(*given, q=q))


@examples(40)
@given(seeds, st.integers(2, 12))
def test_no_score_exceeds_its_bound(seed, count):
    X, templates, options = problem(seed)
    q = options["q"]
    rng = np.random.default_rng(seed)
    candidates = module._candidates(templates, options["transforms"], q)
    bounds = module._Bounds(candidates, q, module._levels(candidates.canvas, q, count))
    two = candidates[rng.integers(len(candidates), size=2 * len(X))].reshape(2, *X.shape)
    pairs = np.array(list(product(range(len(X)), range(len(candidates))))).T
    nobody = np.full(X.shape, q)
    met = np.maximum(two.max(axis=0), q), np.minimum(two.min(axis=0), q)
    for first, (U, L) in ((True, (nobody, nobody)), (False, met)):
        bound = bounds(X, U, L, module._score(X, U, L, q), first=first)
        exact = module._scores_of(pairs, X, U, L, candidates, q).reshape(bound.shape)
        assert np.all(bound >= exact)
        if first and 0 < q < 1 and 0 < templates.min() and templates.max() < 1:
            assert np.all(bound <= exact + 1e-3 * (1 + np.abs(exact).max()))


@together("shape", [(1, 1), (1, 320), (12, 33)])
@together("lowest", [0.3, 1e-8, 1e-40, 0])
def test_scores_by_products(shape, lowest):
    "In loops, of short and long rows, and of many pixels that are as good as impossible."
    rng = np.random.default_rng(0)
    q, D = 0.4, shape[0] * shape[1]
    p = rng.choice([lowest, 0.3, 0.5, 1 - lowest], D)
    x = rng.random(D) < 0.5
    U, L = rng.choice([lowest, 0.3, 0.5, 0.9], (2, D))
    U, L = np.maximum(q, U), np.minimum(q, L)
    found = module._score_of(x, U, L, p.reshape(shape), q)
    expected = module._score(x, np.maximum(U, p), np.minimum(L, p), q)
    assert np.isclose(found, expected, rtol=1e-12, atol=1e-12)


def test_extremes_are_carried_and_the_limit_is_kept():
    X = [[1, 1, 1, 0]]
    templates = np.array([[0.9, 0.9, 0.9, 0.5], [0.1, 0.5, 0.5, 0.1], [0.2, 0.5, 0.5, 0.05]])
    found = matching_pursuit(X, templates, block_bytes=math.inf)
    chosen = templates[found.experts[0][found.experts[0] >= 0]]
    assert len(chosen) >= 2
    assert np.allclose(found.upper[0], np.maximum(0.5, chosen.max(axis=0)))
    assert np.allclose(found.lower[0], np.minimum(0.5, chosen.min(axis=0)))
    assert np.allclose(found.composed[0], max_minus_min(chosen))
    for most, width in ((0, 0), (2, 2), (9, 3)):
        limited = matching_pursuit(X, templates, max_experts=most).experts
        assert np.array_equal(limited, found.experts[:, :width])


@together("search", [plain_pursuit, matching_pursuit])
def test_equal_up_to_rounding_is_equal(search):
    "A level bar at an angle and half a turn further: the same image, but for rounding."
    bar = np.full((9, 9), 0.02)
    bar[3:6] = [[0.9], [0.7], [0.9]]
    row = bar.reshape(1, -1)
    sharp = 0
    for angle in range(10, 180, 10):
        transforms = Transforms((9, 9), 0, (angle, angle + 180))
        x = transforms.transform(row, [0], 0.02) > 0.4
        score = bernoulli_log_likelihood(x, transforms.transform(row, [0, 1], 0.02))
        sharp += score[1] > score[0]
        found = search(x, np.tile(row, (2, 1)), q=0.02, transforms=transforms)
        assert found.experts.tolist() == [[0, -1]] and found.poses.tolist() == [[0, -1]]
    assert sharp  # somewhere rounding would have preferred the second
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(np.tile(rng.uniform(0.1, 0.9, 40), (50, 1)), axis=1)
    assert search(np.ones((1, 40)), shuffled, q=0.02, max_experts=1).experts.tolist() == [[0]]


@searches
def test_small_probabilities_and_impossible_pixels_are_compared(search):
    assert search([[1]], [[1e-6], [1e-5]], q=0, max_experts=1).experts.tolist() == [[1]]
    two, one = [1, 0, 0], [0.01, 0.01, 0]  # so many pixels of the image remain impossible
    found = search([[1, 1, 1]], [two, one], q=0, max_experts=1)
    assert found.experts.tolist() == [[1]] and found.log_likelihood == -np.inf
    assert search([[1, 1]], [[0.0, 0.5]], q=0).experts.tolist() == [[0]]
    assert search([[0, 0]], [[0.0, 0.5]], q=0).experts.tolist() == [[-1]]


def test_truncated_templates_choose_and_the_others_are_scored():
    x, voters = [[0, 0, 1, 1]], np.array([[0.5, 0.5, 0.9, 0.9], [0.05, 0.05, 0.5, 0.5]])
    for search in (matching_pursuit, plain_pursuit):
        found, cut = (search(x, voters, truncated=truncated) for truncated in (False, True))
        assert sorted(found.experts[0]) == [0, 1] and cut.experts.tolist() == [[0, -1]]
        assert found.log_likelihood > cut.log_likelihood
        # the choice may be worse than nobody
        poor = search([[1, 1, 1, 1]], [[0.9, 0.9, 0.001, 0.001]], q=0.1, truncated=True)
        assert poor.experts.tolist() == [[0]] and poor.log_likelihood < 4 * math.log(0.1)


# What goes in


def test_inputs_of_all_kinds():
    rng = np.random.default_rng(0)
    templates = rng.random((3, 20))
    X = (rng.random((4, 20)) < 0.5).astype(float)
    options = {"q": 0.1, "transforms": Transforms((4, 5), 1)}
    expected = matching_pursuit(X, templates, **options)
    others = [change(X) for form, change in FORMS.items() if form != "matrix of memory"]
    for other in (X.astype(bool), X.astype(int), X.astype(np.float32), *others):
        assert equal(matching_pursuit(other, templates, **options), expected)
    single = matching_pursuit(X, templates.astype(np.float32), **options)
    assert single.upper.dtype == np.float64 and np.array_equal(single.experts, expected.experts)


def test_tensors():
    torch = pytest.importorskip("torch")
    X = torch.tensor([[1.0, 0, 0, 1]])
    templates = torch.tensor([[0.9, 0.1, 0.1, 0.9]])
    transforms = Transforms((2, 2), 1, torch.zeros(1))
    expected = matching_pursuit(X.numpy(), templates.numpy(), transforms=Transforms((2, 2), 1))
    for search in (matching_pursuit, plain_pursuit):
        assert equal(search(X, templates, transforms=transforms), expected)
    assert np.array_equal(warp(X, torch.tensor([1, 0, 0]), (2, 2)), [[0, 0, 1, 0]])


@searches
def test_extreme_sizes(search):
    assert search(np.zeros((0, 2)), [[0.9, 0.1]]).experts.shape == (0, 1)
    nobody = search([[0, 1]], np.zeros((0, 2)))
    assert nobody.experts.shape == (1, 0) and np.all(nobody.composed == 0.5)
    assert search([[1]], [[0.7]]).experts.tolist() == [[0]]
    assert search([[1, 0], [0, 0]], np.full((3, 2), 0.5)).experts.tolist() == [[-1] * 3] * 2


WRONG = [
    ({"X": [[0, 0.5]]}, "X must hold zeros and ones, but holds 0.5; binarise"),
    ({"X": [[0, np.nan]]}, "X contains NaN"),
    ({"X": [[0, 1, 1]]}, "X has shape"),
    ({"X": [["a", "b"]]}, "X must hold real numbers"),
    ({"X": scipy.sparse.csr_matrix([[0, 1]])}, "X is a sparse matrix"),
    ({"templates": [0.5, 0.5]}, "templates has shape"),
    ({"templates": np.zeros((1, 0))}, "templates has no columns"),
    ({"templates": [[0.5, 1.5]]}, "templates must be at most 1"),
    ({"q": 2}, "q must be a number of at least 0 and at most 1"),
    ({"max_experts": -1}, "max_experts"),
    ({"max_experts": 1.0}, "max_experts"),
    ({"expert_cost": -1}, "expert_cost"),
]
IN_POSES = [
    ({"truncated": "no"}, "truncated must be True or False"),
    ({"transforms": Transforms((2, 2))}, "transforms is made for images"),
    ({"transforms": (2, 1)}, "transforms must be"),
]
REFUSED = [
    *product((matching_pursuit, plain_pursuit, exhaustive_search), WRONG),
    *product((matching_pursuit, plain_pursuit), IN_POSES),
    (matching_pursuit, ({"block_bytes": 0}, "block_bytes")),
    (
        exhaustive_search,
        ({"templates": np.full((21, 2), 0.5)}, "2097152 configurations, more than"),
    ),
]


@together("search, fault", REFUSED)
def test_says_what_is_wrong(search, fault):
    changed, said = fault
    with pytest.raises((ValueError, TypeError), match=said):
        search(**{"X": [[0, 1]], "templates": [[0.5, 0.5]]} | changed)
