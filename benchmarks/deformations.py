"""Deforming images against its floor and against SciPy.

The floor is what no resampling with sixteen weights can do without: reading sixteen pixels, here in their order, for each one that it makes. SciPy's
`map_coordinates` reads the same images at the same points, one image at a time, with linear weights (order 1) and with cubic splines
(order 3). Prints the time of everything that `DeformedImages` does as a ratio to each, measured in the same run on one core; how much more
two threads make; and the memory that a walk through the stream allocates as a ratio to its batch.
"""
import tracemalloc

import numpy as np
from _timing import best
from scipy.ndimage import map_coordinates
from threadpoolctl import threadpool_limits

from capslit.deformations import DeformedImages, Deformations, sources

TARGETS = {"sixteen readings": 6.0, "SciPy, linear": 2.5, "SciPy, cubic": 0.8}


def main(n=2048, side=28, batch=128, rounds=5):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, side, side)).astype(np.uint8)
    stream = DeformedImages(images, np.zeros(n, int), n, batch=batch)
    floats = images.astype(np.float32)
    places = np.arange(floats[:batch].size).reshape(floats[:batch].shape)
    points = [np.stack(pair) for pair in zip(*sources(Deformations().draw(0, n), side, side))]

    def scipy(order):
        return lambda: [map_coordinates(x, p, order=order) for x, p in zip(floats, points)]

    others = {"sixteen readings": lambda: [floats[:batch].take(places, mode="clip") for _ in range(16 * n // batch)], "SciPy, linear": scipy(1), "SciPy, cubic": scipy(3)}
    out = np.empty(floats.shape, np.float32)
    ours, two, times = np.inf, np.inf, dict.fromkeys(others, np.inf)
    with threadpool_limits(1):
        for _ in range(rounds):                               # in turns, so that a disturbance of the machine hits all alike
            ours = min(ours, best(lambda: stream.write(out, n_threads=1), 1))
            two = min(two, best(lambda: stream.write(out, n_threads=2), 1))
            times = {name: min(times[name], best(function, 1)) for name, function in others.items()}
    print(f"{n} images of {side} x {side}, one core: {n / ours:,.0f} a second\n{'compared with':<18} {'ratio':>6} {'target':>7}")
    missed = [name for name, target in TARGETS.items() if ours / times[name] > target]
    for name, target in TARGETS.items():
        print(f"{name:<18} {ours / times[name]:6.2f} {target:7.1f}")
    print(f"two threads: {ours / two:.2f} times as many")
    tracemalloc.start()
    for _ in stream:
        pass
    print(f"memory allocated by a walk: {tracemalloc.get_traced_memory()[1] / floats[:batch].nbytes:.1f} batches")
    print("all targets met" if not missed else f"targets missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
