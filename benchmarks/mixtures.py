"""Gaussian mixtures beside scikit-learn's `GaussianMixture`: CPU time of one iteration.

Both run from random assignments, on examples drawn from as many groups as there are components. Some run four starts at once, as a stack, beside
scikit-learn's four one after another.
"""
import numpy as np
from _table import Row, alone, per_iteration
from sklearn.mixture import GaussianMixture as Peer

from capslit.mixtures.gaussian import GaussianMixture

SHAPES = [(20_000, 2, 10), (10_000, 16, 10), (3_000, 64, 10)]


def groups(n, p, m, seed=0):
    "Examples (n, p) of m groups that overlap."
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((m, p))[rng.integers(0, m, n)] + rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) / np.sqrt(p)


def ratio(X, m, kind, starts=1):
    def ours(steps):
        GaussianMixture(m, covariance_type=kind, init="random", n_init=starts, tol=0, patience=steps, max_iter=steps, n_jobs=1, random_state=0).fit(X)

    def theirs(steps):
        Peer(m, covariance_type=kind, init_params="random", n_init=starts, tol=0, max_iter=steps, random_state=0).fit(X)

    return per_iteration(ours) / per_iteration(theirs)


def rows():
    for n, p, m in SHAPES:
        X = groups(n, p, m)
        for kind in ("full", "diag"):
            yield Row(f"mixture, {kind}, n = {n:,}, p = {p}, m = {m}: iteration", ratio(X, m, kind), "scikit-learn's GaussianMixture", 1.0)
    yield Row("mixture, full, p = 64, m = 10, four starts: iteration", ratio(X, m, "full", 4), "scikit-learn's, four times", 1.0)


if __name__ == "__main__":
    alone(rows)
