"""One EM iteration of capsule regression against its floor: the two matrix products X Wᵀ and Eᵀ X alone.

For each capsule dimension, the time of an iteration; and for one of them the memory that an iteration allocates beside the size of X.
Setting of the aim: n = 50,000 examples, p = 196 inputs, m = 10 classes, float32, as many threads as the matrix library uses.
"""
import tracemalloc

import numpy as np
from _table import Row, alone, in_turns

from capslit import em
from capslit.capsules.em_steps import CapsuleParameters, CapsuleRegression, LeastSquares, second_moments

AIMS = {1: 2.0, 2: 2.0, 4: 1.3, 8: 1.3, 16: 1.3, 32: 1.3}


def rows(n=50_000, p=196, m=10, rounds=24):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, m, n)
    gram = em.accumulate(lambda batch: second_moments(batch, [0], False), (X, np.zeros_like(y), None), 4096).gram
    for d, aim in AIMS.items():
        model = CapsuleRegression(np.arange(m)[None], np.full((1, m), d), LeastSquares.from_gram(gram))
        parameters = CapsuleParameters(0.05 * rng.standard_normal((1, m, d, p)))
        state, data = em.State.start(parameters), model.prepare((X, y, None))

        def step():
            nonlocal state
            with em.threads() as pool:
                state = next(em.iterate(model, state, data, (em.Round(10**9, {"threshold": 0.5}),), momentum=0.9, pool=pool))

        if d == 4:
            yield Row(f"EM iteration, d = {d}: memory allocated", allocated(step) / X.nbytes, "its inputs", 0.5)
        W = parameters.weights.reshape(-1, p).astype(np.float32)
        E = X @ W.T
        ours, forward, backward = in_turns(step, lambda: X @ W.T, lambda: E.T @ X, rounds=rounds)
        yield Row(f"EM iteration, d = {d}", ours / (forward + backward), "its two matrix products", aim)


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
