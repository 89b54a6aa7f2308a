"""Deforming images against its floor and against SciPy.

The floor is what no resampling with sixteen weights can do without: reading sixteen pixels, here in
their order, for each one that it makes. SciPy's `map_coordinates` reads the same images at the same
points, one image at a time, with linear weights (order 1) and with cubic splines (order 3). All on
one core; and two threads beside one, and the memory that a walk through the stream allocates beside
that of its batch. The images are made by compiled loops, if Numba is installed, and once by
operations on arrays.
"""

import tracemalloc

import numpy as np
from _table import Row, alone, in_turns
from scipy.ndimage import map_coordinates
from threadpoolctl import threadpool_limits

from capslit.data.deformations import DeformedImages, Deformations, _compiled_deformation, sources

AIMS = {
    "sixteen readings of each pixel": 1.5,
    "SciPy's map_coordinates, linear": 2.5,
    "SciPy's map_coordinates, cubic": 0.8,
}


def rows(n=2048, side=28, batch=128, rounds=5):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, side, side)).astype(np.uint8)
    stream = DeformedImages(images, np.zeros(n, int), n, batch=batch)
    floats, out = images.astype(np.float32), np.empty(images.shape, np.float32)
    places = np.arange(floats[:batch].size).reshape(floats[:batch].shape)
    points = [np.stack(pair) for pair in zip(*sources(Deformations().draw(0, n), side, side))]

    def scipy(order):
        return lambda: [map_coordinates(x, p, order=order) for x, p in zip(floats, points)]

    def ours(n_threads, loops=True):
        _compiled_deformation.asked = _compiled_deformation.enough if loops else -(10**12)
        return stream.write(out, n_threads=n_threads)

    ours(1)  # compiles
    pixels = np.empty_like(
        floats[:batch]
    )  # taken each time anew, it would mostly be the system's memory that is measured
    readings = lambda: [
        floats[:batch].take(places, out=pixels, mode="clip") for _ in range(16 * n // batch)
    ]
    with threadpool_limits(1):
        one, two, arrays, *others = in_turns(
            lambda: ours(1),
            lambda: ours(2),
            lambda: ours(1, False),
            readings,
            scipy(1),
            scipy(3),
            rounds=rounds,
        )
    for (name, aim), seconds in zip(AIMS.items(), others):
        yield Row("deformed images, one thread", one / seconds, name, aim)
    yield Row("deformed images, as arrays, one thread", arrays / others[0], next(iter(AIMS)))
    yield Row("deformed images, two threads", two / one, "one thread")
    tracemalloc.start()
    for _ in stream:
        pass
    yield Row(
        "deformed images, a walk: memory",
        tracemalloc.get_traced_memory()[1] / floats[:batch].nbytes,
        "a batch",
    )
    tracemalloc.stop()


if __name__ == "__main__":
    alone(rows)
