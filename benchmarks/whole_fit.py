"""Where the time of a whole fit goes: the classifier with forty iterations, from a table of 150 × 4 to a million examples of 196 inputs.

The time of all threads together, from beginning to end, is divided into that of the matrix products of the E-steps, of what stands between these products, of all
else (looking at the data, second moments, M-steps, the loop itself), and the time in which a thread waits. The clock of each thread is read around the products and
around the E-steps; these readings, a few for each iteration, are counted with what they measure.
"""
import time
from collections import Counter
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
from _table import Row, alone
from threadpoolctl import threadpool_info

from capslit import CapsuleClassifier
from capslit.capsules import em_steps

SIZES = {(150, 4): 3, (569, 30): 2, (1797, 64): 10, (10_000, 196): 10, (100_000, 196): 10, (1_000_000, 196): 10}   # examples and inputs: classes
KINDS = ("matrix products", "between the products", "around the E-steps", "waiting")


def clocked(function, name, spent):
    "`function`, which adds the time that its thread spends in it."
    def timed(*arguments):
        start = time.thread_time()
        try:
            return function(*arguments)
        finally:
            spent[name] += time.thread_time() - start
    return timed


def shares(n, p, m, iterations=40):
    "The shares of the KINDS in the time of all threads."
    rng, spent = np.random.default_rng(0), Counter()
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, m, n)
    model = CapsuleClassifier(4, max_iter=iterations, early_stopping=False, random_state=0)
    model.fit(X[:20 * m], y[:20 * m])                         # everything is imported and compiled
    hands = max(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
    with ExitStack() as watched:
        for name, kind in (("prior_means", "products"), ("_moments", "products"), ("_run_statistics", "steps")):
            watched.enter_context(patch.object(em_steps, name, clocked(getattr(em_steps, name), kind, spent)))
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    whole = max(hands * wall, cpu)
    return np.array([spent["products"], spent["steps"] - spent["products"], cpu - spent["steps"], whole - cpu]) / whole


def rows():
    for (n, p), m in SIZES.items():
        for kind, share in zip(KINDS, np.maximum(shares(n, p, m), 1e-6)):
            yield Row(f"whole fit, {n:,} × {p}: {kind}", share, "the time of its threads")


if __name__ == "__main__":
    alone(rows)
