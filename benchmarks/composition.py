"""Matching pursuit over letters of 56 × 56, four experts, 9 × 9 shifts, nine rotations, beside the plain loop over all candidates.

The loop is run on some of the letters and said to take as long for the others. The results for these letters are checked to be equal. The floor is the correlations
alone. For the three kinds of searches: a write-black model, the same with truncated templates, and a write-white-and-black model. Another number of letters
may be given (`python benchmarks/composition.py 1000`).
"""
import sys

import numpy as np
from _table import Row, alone, in_turns, timed
from scipy.ndimage import gaussian_filter

from capslit import em
from capslit.composition.pursuit import (Transforms, _Bounds, _candidates, _compiled_scores, _level_gains, _levels, _seen, matching_pursuit,
                                      plain_pursuit)

SIDE, TRANSFORMS = 56, Transforms((56, 56), shifts=4, rotations=np.linspace(-20, 20, 9))


def strokes(background=0.01):
    "Templates (4, 56²) of upright, level and slanted bars and a bow."
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    ink = [np.hypot(np.maximum(np.abs(np.cos(a) * y + np.sin(a) * x) - length, 0), np.cos(a) * x - np.sin(a) * y)
           for a, length in ((0, 17), (np.pi / 2, 13), (0.55, 17))] + [np.where(x > -2, np.abs(np.hypot(y, x) - 13), SIDE)]
    soft = [gaussian_filter((image < 2.2).astype(float), 1.4) for image in ink]
    return np.maximum(background, 0.95 * np.reshape(soft, (4, -1)))


def letters(templates, n, rng, share=0.5):
    "Binary images (n, 56²), each of some of the strokes in random poses."
    ink = np.full((n, templates.shape[1]), 0.01)
    for mu in templates:
        moved = TRANSFORMS.transform(mu[None], rng.integers(len(TRANSFORMS), size=n))
        ink = np.maximum(ink, np.where(rng.random((n, 1)) < share, moved, 0))
    return rng.random(ink.shape) < ink


def correlations(X, templates, found, q, truncated, size=16):
    "A function that takes the correlations of all images and steps, and does nothing else with them."
    seen, q = _seen(_candidates(templates, TRANSFORMS, q), q, truncated)
    bounds = _Bounds(seen, q, _levels(seen.canvas, q))
    x, U = X[:size], np.full((size, X.shape[1]), q)
    first = np.stack([x.T, ~x.T]).astype(np.float32)
    later = _level_gains(x, U, U, q, bounds.levels).reshape(-1, X.shape[1], size)
    at_work = np.sum(found.experts[:, :-1] >= 0, axis=0)                # images, in the second step and the following
    blocks = [(bounds.first, first)] * -(-len(X) // size) + [(bounds.later, later)] * sum(-(-at_work // size))

    def once():
        with em.threads() as pool:
            for _ in (map if pool is None else pool.map)(lambda block: block[0](block[1]).shape, blocks):
                pass
    return once


def rows(n=200, some=1):
    templates, rng = strokes(), np.random.default_rng(0)
    X = letters(templates, n, rng)
    for name, q, truncated in (("write-black", 0.01, False), ("write-black, truncated", 0.01, True), ("write-white-and-black", 0.5, False)):
        options = {"q": q, "transforms": TRANSFORMS, "truncated": truncated}

        def ours(asked):
            _compiled_scores.asked = asked
            return matching_pursuit(X, templates, **options)

        found, enough = ours(0), _compiled_scores.enough
        assert all(np.array_equal(*pair) for pair in zip(found[:5], ours(enough)[:5]))    # compiles
        plain, theirs = timed(lambda: plain_pursuit(X[:some], templates, **options))
        assert all(np.array_equal(a[:some], b) for a, b in zip(found[:5], plain[:5]))
        loops, arrays, floor = in_turns(lambda: ours(enough), lambda: ours(0), correlations(X, templates, found, q, truncated), rounds=3)
        what = f"matching pursuit, {name}, {n:,} letters"
        yield Row(what, loops * some / (theirs * n), "the plain loop", 1.0)
        yield Row(what, loops / floor, "its correlations", 1.5)
        yield Row(f"{what}, as arrays", arrays / floor, "its correlations")


if __name__ == "__main__":
    alone(lambda: rows(*map(int, sys.argv[1:])))
