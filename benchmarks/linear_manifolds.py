"""Factor analysers beside scikit-learn, on smooth random images: CPU time of an iteration, and
memory.

One analyser beside scikit-learn's `FactorAnalysis`; a mixture of them beside `GaussianMixture` with
full covariances, which has p²/2 numbers for each component where ours has p (r + 2). The memory is
what a component more takes at the height of a fit. Ours includes the codes of one block of
examples, at most a million numbers for all components together, which is what shows at p = 64. The
floor of an iteration are its matrix products (codes, squared distances, and the sums of x, x², x zᵀ
and z zᵀ) and the exponentials of its responsibilities, for all examples and components.
"""

import tracemalloc

import numpy as np
from _table import Row, alone, cpu_seconds, per_iteration
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis
from sklearn.mixture import GaussianMixture

from capslit.mixtures import MixtureOfFactorAnalyzers, Noise


def images(n, side, seed=0):
    "Smooth random images (n, side²) with a little noise."
    rng = np.random.default_rng(seed)
    smooth = gaussian_filter(rng.standard_normal((n, side, side)), (0, side / 8, side / 8))
    return (smooth / smooth.std() + 0.1 * rng.standard_normal(smooth.shape)).reshape(n, -1)


def per_component(model, X, few=16, many=64):
    "Bytes that one component more takes at the height of a fit."

    def peak(m):
        tracemalloc.start()
        clone(model).set_params(n_components=m).fit(X)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    return (peak(many) - peak(few)) / (many - few)


def steps_of(model, X, **more):
    "A function of a number of iterations that fits with so many."
    return lambda steps: (
        clone(model).set_params(max_iter=steps, **{name: steps for name in more}).fit(X)
    )


def floor(X, m, r):
    "CPU seconds of the products and exponentials of one iteration."
    rng, square = np.random.default_rng(0), X * X
    loadings, precisions, shares = (
        rng.random((m, X.shape[1], r)),
        rng.random((X.shape[1], m)),
        rng.random((m, len(X))),
    )

    def once():
        square @ precisions, np.exp(shares), shares @ X, shares @ square
        for V in loadings:
            z = X @ V
            X.T @ z, z.T @ z

    return min(cpu_seconds(once) for _ in range(9))


def rows(n=3000, m=5, r=10):
    ours = MixtureOfFactorAnalyzers(
        m, r, noise=Noise(added=1e-2), init_params="random", n_init=1, tol=0, random_state=0
    )
    theirs = GaussianMixture(m, init_params="random", tol=0, random_state=0)
    for side in (8, 16):
        X, p = images(n, side), side * side
        single = clone(ours).set_params(n_components=1)
        both = [
            per_iteration(steps_of(single, X, patience=True)),
            per_iteration(steps_of(FactorAnalysis(r, tol=0, svd_method="lapack"), X)),
        ]
        yield Row(
            f"factor analysis, p = {p}, r = {r}: iteration",
            both[0] / both[1],
            "scikit-learn's FactorAnalysis",
            1.0,
        )
        yield Row(
            f"factor analysis, p = {p}, r = {r}: iteration",
            both[0] / floor(X, 1, r),
            "its products and exponentials",
        )
        both = [per_iteration(steps_of(ours, X, patience=True)), per_iteration(steps_of(theirs, X))]
        yield Row(
            f"mixture of {m} analysers, p = {p}, r = {r}: iteration",
            both[0] / both[1],
            "GaussianMixture, full covariances",
            1.0,
        )
        yield Row(
            f"mixture of {m} analysers, p = {p}, r = {r}: iteration",
            both[0] / floor(X, m, r),
            "its products and exponentials",
        )
        both = [per_component(clone(model).set_params(max_iter=2), X) for model in (ours, theirs)]
        yield Row(
            f"mixture of analysers, p = {p}, r = {r}: memory",
            both[0] / both[1],
            "GaussianMixture, full covariances",
        )


if __name__ == "__main__":
    alone(rows)
