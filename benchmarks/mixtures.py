"""Gaussian mixtures beside scikit-learn's `GaussianMixture`: CPU time of one iteration.

Both run from random assignments, on examples drawn from as many groups as there are components.
Some run four starts at once, as a stack, beside scikit-learn's four one after another. The floor of
an iteration are its matrix products (squared distances and second moments) and the exponentials of
its responsibilities.
"""

import numpy as np
from _table import Row, alone, cpu_seconds, per_iteration
from sklearn.mixture import GaussianMixture as Peer

from capslit.mixtures import GaussianMixture

SHAPES = [(20_000, 2, 10), (10_000, 16, 10), (3_000, 64, 10)]


def groups(n, p, m, seed=0):
    "Examples (n, p) of m groups that overlap."
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((m, p))[rng.integers(0, m, n)] + rng.standard_normal(
        (n, p)
    ) @ rng.standard_normal((p, p)) / np.sqrt(p)


def floor(X, m, kind):
    "CPU seconds of the products and exponentials of one iteration."
    rng, square = np.random.default_rng(0), X * X
    roots, shares = rng.random((m, X.shape[1], X.shape[1])), rng.random((m, len(X)))

    def once():
        np.exp(shares)
        if kind == "diag":
            X @ roots[:, 0].T, square @ roots[:, 0].T, shares @ X, shares @ square
        for U in roots if kind == "full" else ():
            X @ U, X.T @ X

    return min(cpu_seconds(once) for _ in range(9))


def ratios(X, m, kind, starts=1):
    "CPU time of an iteration beside scikit-learn's and beside the floor."

    def ours(steps):
        GaussianMixture(
            m,
            covariance_type=kind,
            init_params="random",
            n_init=starts,
            tol=0,
            patience=steps,
            max_iter=steps,
            n_jobs=1,
            random_state=0,
        ).fit(X)

    def theirs(steps):
        Peer(
            m,
            covariance_type=kind,
            init_params="random",
            n_init=starts,
            tol=0,
            max_iter=steps,
            random_state=0,
        ).fit(X)

    mine = per_iteration(ours)
    return mine / per_iteration(theirs), mine / (starts * floor(X, m, kind))


def rows():
    for n, p, m in SHAPES:
        X = groups(n, p, m)
        for kind in ("full", "diag"):
            peer, least = ratios(X, m, kind)
            yield Row(
                f"mixture, {kind}, n = {n:,}, p = {p}, m = {m}: iteration",
                peer,
                "scikit-learn's GaussianMixture",
                1.0,
            )
            yield Row(
                f"mixture, {kind}, n = {n:,}, p = {p}, m = {m}: iteration",
                least,
                "its products and exponentials",
            )
    yield Row(
        "mixture, full, p = 64, m = 10, four starts: iteration",
        ratios(X, m, "full", 4)[0],
        "scikit-learn's, four times",
        1.0,
    )


if __name__ == "__main__":
    alone(rows)
