"""Matching pursuit over letters of 56 × 56, four experts, 9 × 9 shifts, nine rotations, beside the
plain loop over all candidates.

The loop is run on some of the letters and said to take as long for the others. The results for
these letters are checked to be equal. The floor is the correlations alone, in blocks of the size
that suits them best. For the three kinds of searches: a write-black model, the same with truncated
templates, and a write-white-and-black model. Another number of letters may be given (`python
benchmarks/composition.py 1000`).

The correlations themselves depend on how tight the bounds are made: with half as many levels there
are half as many, and more scores. That made the search a quarter faster and its floor lower too, so
that the ratio remained. The updates of classical matching pursuit, from products of the templates
with each other, do not apply: what a pixel gains depends on the image and on the largest
probability so far, and not linearly. The spectra of the templates are computed once for a call.
`parts.py` measures what stands beside the correlations: gains of pixels, with a logarithm for each
pixel and level, the exact scores, these spectra, and the bounds of all candidates.

Then the estimator without poses beside scikit-learn's dictionary learning at its defaults, with as
many atoms: planted bars, quadrants and digits. For planted problems the row is the share of twenty
in which not all bars are found, to that of non-negative factors.
"""

import sys
import warnings

import numpy as np
from _table import Row, alone, in_turns, timed
from scipy.ndimage import gaussian_filter
from sklearn.decomposition import NMF, DictionaryLearning, MiniBatchDictionaryLearning

from capslit import CompositionalModel, em
from capslit.composition.pursuit import (
    Transforms,
    _Bounds,
    _Candidates,
    _candidates,
    _level_gains,
    _levels,
    matching_pursuit,
    plain_pursuit,
)
from capslit.data.datasets import draw_quadrants, load_digits

SIDE, TRANSFORMS = 56, Transforms((56, 56), shifts=4, rotations=np.linspace(-20, 20, 9))


def strokes(background=0.01):
    "Templates (4, 56²) of upright, level and slanted bars and a bow."
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    ink = [
        np.hypot(
            np.maximum(np.abs(np.cos(a) * y + np.sin(a) * x) - length, 0),
            np.cos(a) * x - np.sin(a) * y,
        )
        for a, length in ((0, 17), (np.pi / 2, 13), (0.55, 17))
    ] + [np.where(x > -2, np.abs(np.hypot(y, x) - 13), SIDE)]
    soft = [gaussian_filter((image < 2.2).astype(float), 1.4) for image in ink]
    return np.maximum(background, 0.95 * np.reshape(soft, (4, -1)))


def letters(templates, n, rng, share=0.5):
    "Binary images (n, 56²), each of some of the strokes in random poses."
    ink = np.full((n, templates.shape[1]), 0.01)
    for mu in templates:
        moved = TRANSFORMS.transform(mu[None], rng.integers(len(TRANSFORMS), size=n))
        ink = np.maximum(ink, np.where(rng.random((n, 1)) < share, moved, 0))
    return rng.random(ink.shape) < ink


SIZES = 8, 16, 32  # of the blocks of the floor, of which the fastest counts


def correlations(X, templates, found, q, truncated, size):
    """A function that takes the correlations of all images and steps, `size` images at a time, and
    does nothing else with them.
    """
    seen = _candidates(templates, TRANSFORMS, q)
    if truncated:
        seen, q = _Candidates(np.maximum(0.5, seen.canvas), TRANSFORMS.image_shape), 0.5
    bounds = _Bounds(seen, q, _levels(seen.canvas, q))
    x, U = X[:size], np.full((size, X.shape[1]), q)
    first = np.stack([x.T, ~x.T]).astype(np.float32)
    later = _level_gains(x, U, U, q, bounds.levels).reshape(-1, X.shape[1], size)
    at_work = np.sum(
        found.experts[:, :-1] >= 0, axis=0
    )  # images, in the second step and the following
    blocks = [(bounds.first, first)] * -(-len(X) // size) + [(bounds.later, later)] * sum(
        -(-at_work // size)
    )

    def once():
        with em.threads() as pool:
            for _ in (map if pool is None else pool.map)(
                lambda block: block[0](block[1]).shape, blocks
            ):
                pass

    return once


def planted_bars(seed, side, n_bars, n=60):
    """Images (n, side²) of some bars, each in half of the images, one pixel in a hundred flipped;
    and the bars.
    """
    rng, bars = np.random.default_rng([side, seed]), np.zeros((n_bars, side, side))
    length, width = 3 * side // 4, max(1, side // 8)
    for bar in bars:
        along, across = rng.integers(0, side - length + 1), rng.integers(0, side - width + 1)
        (bar if rng.random() < 0.5 else bar.T)[along : along + length, across : across + width] = 1
    bars = bars.reshape(n_bars, -1)
    shown = (rng.random((n, n_bars)) < 0.5) @ bars > 0
    return (shown ^ (rng.random(shown.shape) < 0.01)).astype(float), bars


def all_found(templates, bars):
    """Whether each bar is what some template is surer of than ½, but for a twentieth of their
    pixels.
    """
    ink = templates > 0.5
    return all(np.any(np.sum(ink != bar, axis=1) <= np.sum(bar) / 20) for bar in bars)


def planted_rows(problems=20):
    "How often planted bars are missed, and the time."
    for side, n_bars in ((16, 3), (16, 6), (6, 3)):
        drawn = [planted_bars(seed, side, n_bars) for seed in range(problems)]
        ours = [
            lambda X=X: (
                CompositionalModel(n_bars, rule="maximum", n_init=1, random_state=0, n_jobs=1)
                .fit(X)
                .templates_
            )
            for X, _ in drawn
        ]
        scaled = lambda H: H / np.maximum(np.max(H, axis=1, keepdims=True), 1e-12)
        factors = [
            lambda X=X: scaled(NMF(n_bars, init="nndsvda", random_state=0).fit(X).components_)
            for X, _ in drawn
        ]
        missed = [
            sum(not all_found(fit(), bars) for fit, (_, bars) in zip(fits, drawn))
            for fits in (ours, factors)
        ]
        X, what = drawn[0][0], f"{n_bars} bars in 60 images of {side} × {side}"
        print(
            f"{what}: all found in {problems - missed[0]} of {problems}; by non-negative factors in"
            f" {problems - missed[1]}",
            flush=True,
        )
        yield Row(
            f"{what}, missed",
            max(missed[0], 0.5) / max(missed[1], 0.5),
            "non-negative factors (missed)",
            1.0,
        )
        times = in_turns(
            ours[0], factors[0], lambda: DictionaryLearning(n_bars, random_state=0).fit(X), rounds=3
        )
        yield Row(f"{what}, time", times[0] / times[1], "non-negative factors")
        yield Row(f"{what}, time", times[0] / times[2], "dictionary learning", 1.0)


def estimator_rows():
    "The time of a fit beside that of dictionary learning."
    digits = load_digits()
    problems = {
        "quadrants, 100 images, eight experts": (
            draw_quadrants(100, np.random.RandomState(0))[0],
            8,
            {"rule": "max_minus_min", "prune": True},
        ),
        "digits, ten experts": (2 * digits.images > digits.scale, 10, {"rule": "maximum"}),
    }
    for what, (images, K, settings) in problems.items():
        X = images.reshape(len(images), -1).astype(float)
        ours, theirs = in_turns(
            lambda: CompositionalModel(K, n_init=1, random_state=0, n_jobs=1, **settings).fit(X),
            lambda: MiniBatchDictionaryLearning(K, random_state=0).fit(X - 0.5),
            rounds=3,
        )
        yield Row(what, ours / theirs, "online dictionary learning", 1.0)


def rows(n=200, some=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from planted_rows()
        yield from estimator_rows()
    yield from pursuit_rows(n, some)


def pursuit_rows(n, some):
    templates, rng = strokes(), np.random.default_rng(0)
    X = letters(templates, n, rng)
    for name, q, truncated in (
        ("write-black", 0.01, False),
        ("write-black, truncated", 0.01, True),
        ("write-white-and-black", 0.5, False),
    ):
        options = {"q": q, "transforms": TRANSFORMS, "truncated": truncated}

        def ours():
            return matching_pursuit(X, templates, **options)

        found = ours()
        plain, theirs = timed(lambda: plain_pursuit(X[:some], templates, **options))
        assert all(np.array_equal(a[:some], b) for a, b in zip(found[:5], plain[:5]))
        floors = [correlations(X, templates, found, q, truncated, size) for size in SIZES]
        seconds, *floors = in_turns(ours, *floors, rounds=3)
        floor = min(floors)
        what = f"matching pursuit, {name}, {n:,} letters"
        yield Row(what, seconds * some / (theirs * n), "the plain loop", 1.0)
        yield Row(what, seconds / floor, "its correlations", 1.5)


if __name__ == "__main__":
    alone(lambda: rows(*map(int, sys.argv[1:])))
