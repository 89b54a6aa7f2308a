"""Gaussian mixtures beside scikit-learn's `GaussianMixture`: CPU time of one iteration, as a ratio ours / theirs; below 1 ours is faster.

Both run from random assignments, on examples drawn from as many groups as there are components. The last column runs four starts at once, as a stack, beside
scikit-learn's four one after another.
"""
import time
import warnings

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from capslit.mixtures import GaussianMixture

SHAPES = [(2_000, 2, 3), (20_000, 2, 10), (10_000, 16, 10), (3_000, 64, 10), (2_000, 16, 50)]


def groups(n, p, m, seed=0):
    "Examples (n, p) of m groups that overlap."
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((m, p))[rng.integers(0, m, n)] + rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) / np.sqrt(p)


def seconds(fit, steps, repeats=3):
    "CPU seconds of a fit with this many iterations, the best of a few."
    def once():
        start = time.process_time()
        fit(steps)
        return time.process_time() - start
    return min(once() for _ in range(repeats))


def per_iteration(fit, few=2, many=10):
    "CPU seconds of one iteration: what eight more take, divided by eight."
    return (seconds(fit, many) - seconds(fit, few)) / (many - few)


def ratio(X, m, kind, starts=1):
    def ours(steps):
        GaussianMixture(m, covariance_type=kind, init="random", n_init=starts, tol=0, patience=steps, max_iter=steps, n_jobs=1, random_state=0).fit(X)

    def theirs(steps):
        Peer(m, covariance_type=kind, init_params="random", n_init=starts, tol=0, max_iter=steps, random_state=0).fit(X)

    return per_iteration(ours) / per_iteration(theirs)


def main():
    warnings.simplefilter("ignore")
    print(f"{'n':>8} {'p':>4} {'m':>4} {'covariances':>12} {'one iteration, ours / theirs':>30} {'four starts':>12}")
    slower = []
    for n, p, m in SHAPES:
        X = groups(n, p, m)
        for kind in ("full", "diag"):
            one, four = ratio(X, m, kind), ratio(X, m, kind, 4)
            print(f"{n:8d} {p:4d} {m:4d} {kind:>12} {one:30.2f} {four:12.2f}", flush=True)
            slower += [(n, p, m, kind)] * (one > 1)
    print("never slower" if not slower else f"slower at {slower}")


if __name__ == "__main__":
    main()
