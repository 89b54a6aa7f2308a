"""Where the time of a whole fit goes: the classifier with forty iterations, from a table of 150 × 4
to a million examples of 196 inputs.

The time of all threads together, from beginning to end, is divided into that of the matrix products
of the E-steps, of what stands between these products, of all else (looking at the data, second
moments, M-steps, the loop itself), and the time in which a thread waits, idly or, as those of the
matrix library do, by asking again and again. The clock of each thread is read around each block of
an E-step. The products alone are made once more, afterwards, slice by slice, and take off their
part.
"""

import time
from threading import current_thread, main_thread
from unittest.mock import patch

import numpy as np
from _table import Row, alone
from threadpoolctl import threadpool_info, threadpool_limits

from capslit import CapsuleClassifier
from capslit.capsules.engine import CapsuleRegression
from capslit.capsules.kernels import FEW, SLICE

SIZES = {
    (150, 4): 3,
    (569, 30): 2,
    (1797, 64): 10,
    (10_000, 196): 10,
    (100_000, 196): 10,
    (1_000_000, 196): 10,
}  # examples and inputs: classes
KINDS = ("matrix products", "between the products", "around the E-steps", "waiting")


def products(W, X):
    "Seconds of the two products of an E-step, one thread."

    def once():
        start = time.thread_time()
        for first in range(0, len(X), SLICE):
            x = X[first : first + SLICE]
            (W @ x.T if len(W) > FEW else np.ascontiguousarray((x @ W.T).T)) @ x
        return time.thread_time() - start

    with threadpool_limits(1, user_api="blas"):
        return min(once() for _ in range(3))


def shares(n, p, m, iterations=40):
    "The shares of the KINDS in the time of all threads."
    rng, e_step, spent = np.random.default_rng(0), CapsuleRegression.e_step, []

    def clocked(*arguments, **options):
        start = time.thread_time()
        try:
            return e_step(*arguments, **options)
        finally:
            spent.append((current_thread() is main_thread(), time.thread_time() - start))

    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, m, n)
    model = CapsuleClassifier.paper(4, max_iter=iterations, early_stopping=False, random_state=0)
    hands = max(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
    with patch.object(CapsuleRegression, "e_step", clocked):
        model.fit(X, y)  # everything is imported and compiled
        spent.clear()
        wall, main = time.perf_counter(), time.thread_time()
        model.fit(X, y)
        wall, main = time.perf_counter() - wall, time.thread_time() - main
    steps, around = (
        sum(seconds for _, seconds in spent),
        main - sum(seconds for here, seconds in spent if here),
    )
    multiplied = min(steps, model.n_iter_ * products(model.coef_.reshape(-1, p), X))
    return np.array(
        [multiplied, steps - multiplied, around, max(0, hands * wall - steps - around)]
    ) / max(hands * wall, steps + around)


def rows():
    for (n, p), m in SIZES.items():
        for kind, share in zip(KINDS, np.maximum(shares(n, p, m), 1e-6)):
            yield Row(f"whole fit, {n:,} × {p}: {kind}", share, "the time of its threads")


if __name__ == "__main__":
    alone(rows)
