"""Mixtures of factor analysers beside scikit-learn's `GaussianMixture` with full covariances, on smooth random images.

Prints, for each image size, the CPU time of a fit as a ratio to that of `GaussianMixture` with the same numbers of components and
iterations, and the memory that one component more takes at the height of a fit: ours in units of the p (r + 2) numbers of its
parameters, and theirs in units of a p × p matrix. Ours includes the codes of one block of examples, at most a million numbers for all
components together, which is what shows at p = 64.
"""
import time
import tracemalloc
import warnings

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from capslit.linear_manifolds import MixtureOfFactorAnalyzers


def images(n, side, seed=0):
    "Smooth random images (n, side²) with a little noise."
    rng = np.random.default_rng(seed)
    smooth = gaussian_filter(rng.standard_normal((n, side, side)), (0, side / 8, side / 8))
    return (smooth / smooth.std() + 0.1 * rng.standard_normal(smooth.shape)).reshape(n, -1)


def seconds(model, X):
    "CPU seconds of a fit, the best of a few."
    def once():
        start = time.process_time()
        clone(model).fit(X)
        return time.process_time() - start
    return min(once() for _ in range(3))


def per_component(model, X, few=4, many=16):
    "Bytes that one component more takes at the height of a fit."
    def peak(m):
        tracemalloc.start()
        clone(model).set_params(n_components=m).fit(X)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest
    return (peak(many) - peak(few)) / (many - few)


def main(n=3000, m=5, r=10, steps=10):
    warnings.simplefilter("ignore")
    print(f"{steps} EM iterations, n = {n}, m = {m} components, r = {r} factors: time and memory")
    print(f"{'p':>5} {'time, ours / theirs':>20} {'component, ours / p (r + 2)':>30} {'theirs / p²':>13}")
    slower = []
    for side in (8, 16, 28):
        X, p = images(n, side), side * side
        ours = MixtureOfFactorAnalyzers(m, r, init="random", tol=0, patience=steps, max_iter=steps, random_state=0)
        theirs = GaussianMixture(m, init_params="random", tol=0, max_iter=steps, random_state=0)
        ratio = seconds(ours, X) / seconds(theirs, X)
        brief = ours.set_params(max_iter=2), theirs.set_params(max_iter=2)
        own, full = (per_component(model, X) / 8 for model in brief)
        print(f"{p:5d} {ratio:20.2f} {own / (p * (r + 2)):30.1f} {full / p**2:13.1f}", flush=True)
        if ratio > 1:
            slower.append(p)
    print("never slower" if not slower else f"slower at p = {slower}")


if __name__ == "__main__":
    main()
