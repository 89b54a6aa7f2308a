"""One EM iteration of capsule regression against its floor: the two matrix products X Wᵀ and Eᵀ X
alone, in their best form.

For each capsule dimension, the time of an iteration, compiled and as arrays; and for one of them
the memory that it allocates beside the size of X. The products are made as one call each, and block
by block; the faster form is the floor. Setting of the aim: n = 50,000 examples, p = 196 inputs, m =
10 classes, float32, as many threads as the matrix library uses.
"""

import tracemalloc
from collections import deque
from functools import partial
from itertools import islice

import numpy as np
from _table import Row, alone, in_turns

from capslit import em
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.kernels import FEW

AIMS = {1: 1.3, 2: 1.2, 4: 1.15, 8: 1.15, 16: 1.15, 32: 1.15}
ITERATIONS = 4  # at a time: a fit starts its threads once


def rows(n=50_000, p=196, m=10, rounds=10):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, m, n)
    gram = em.accumulate(
        lambda batch: second_moments(batch, [0], False), (X, np.zeros_like(y), None), 4096
    ).gram
    for d, aim in AIMS.items():
        parameters = CapsuleParameters(0.05 * rng.standard_normal((1, m, d, p)))
        arrays, loops = (
            iterations(
                CapsuleRegression(
                    np.arange(m)[None],
                    np.full((1, m), d),
                    LeastSquares.from_gram(gram),
                    compiled=compiled,
                ),
                parameters,
                (X, y, None),
            )
            for compiled in (False, True)
        )
        W = parameters.weights.reshape(-1, p).astype(np.float32)
        E = X @ W.T
        blocked = [partial(in_blocks, W, X, size) for size in (512, 1024, 2048, 4096, 8192)]
        ours, plain, *floor = in_turns(
            loops, arrays, lambda: X @ W.T, lambda: E.T @ X, *blocked, rounds=rounds
        )
        floor = min(sum(floor[:2]), *floor[2:])
        yield Row(
            f"EM iteration, d = {d}",
            ours / ITERATIONS / floor,
            "its two matrix products, in blocks or whole",
            aim,
        )
        yield Row(
            f"EM iteration, d = {d}, as arrays",
            plain / ITERATIONS / floor,
            "its two matrix products, in blocks or whole",
        )
        if d == 4:
            yield Row(
                f"EM iteration, d = {d}: memory allocated",
                allocated(loops) / X.nbytes,
                "its inputs",
                0.5,
            )


def iterations(model, parameters, batch):
    "A function that makes a few iterations."
    state, data = em.State.start(parameters), model.prepare(batch)

    def step():
        with em.threads() as pool:
            deque(
                islice(
                    em.iterate(
                        model,
                        state,
                        data,
                        (em.Round(10**9, {"threshold": 0.5}),),
                        momentum=0.9,
                        pool=pool,
                    ),
                    ITERATIONS,
                ),
                maxlen=0,
            )

    return step


def in_blocks(W, X, size):
    "The two products block by block, as an E-step makes them, and the sum of the second ones."

    def block(start):
        x = X[start : start + size]
        return (W @ x.T if len(W) > FEW else np.ascontiguousarray((x @ W.T).T)) @ x

    with em.threads() as pool:
        return sum(
            map(block, range(0, len(X), size))
            if pool is None
            else pool.map(block, range(0, len(X), size))
        )


def allocated(step):
    "Bytes that a second call of `step` allocates at its height."
    step()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    alone(rows)
