"""The exact E-step of cooperative vector quantizers beside its floor: the exponentials of one table, and its matrix products.

Prints, for several numbers of vectors and states, the time of an E-step as a ratio to that of np.exp over a table of examples and
configurations, in blocks that stay in the cache, and of the two products with the templates; and to that of a mixture's E-step with a
component for every configuration, which is what a user of scikit-learn would need for the same distribution.
"""
import numpy as np
from sklearn.mixture import GaussianMixture

from _timing import best
from capslit.cooperative import CauseParameters, CooperativeQuantizers, configurations
from capslit.em import accumulate


def problem(d, k, p, n, seed=0):
    "A random model of unit noise, its parameters and examples."
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((1, d, k, p))
    states = rng.integers(k, size=(n, d))
    y = sum(weights[0, i, states[:, i]] for i in range(d)) + rng.standard_normal((n, p))
    parameters = CauseParameters(np.full((1, d, k), -np.log(k)), weights, np.zeros(1), np.zeros(1))
    return CooperativeQuantizers(d, k), parameters, y


def floor(y, weights, rows):
    "The products y Wᵀ and ⟨s⟩ᵀ y, and the exponentials of a table with a column for each configuration."
    d, k, p = weights.shape
    W, block = weights.reshape(d * k, p), np.zeros((rows, k**d))

    def once():
        for start in range(0, len(y), rows):
            part = y[start:start + rows]
            s = part @ W.T
            table = block[:len(part)]
            np.exp(table, out=table)
            table[:] = 0
            s.T @ part
    return once


def mixture(parameters, y):
    "scikit-learn's E-step for a mixture with one spherical component for each configuration."
    _, d, k, p = parameters.weights.shape
    model = GaussianMixture(k**d, covariance_type="spherical")
    model.means_ = configurations(d, k) @ parameters.weights[0].reshape(d * k, p)
    model.weights_, model.covariances_ = np.full(k**d, 1.0 / k**d), np.ones(k**d)
    model.precisions_cholesky_ = np.ones(k**d)
    return lambda: model._e_step(y)


def main(n=20_000, p=64):
    print(f"exact E-step, n = {n}, p = {p}, one thread: time as a ratio")
    print(f"{'d':>3} {'k':>3} {'k^d':>6} {'to its floor':>13} {'to a mixture of k^d':>20}")
    for d, k in ((2, 4), (4, 4), (2, 16), (3, 8), (5, 4)):
        model, parameters, y = problem(d, k, p, n)
        rows = model.block_rows(parameters)
        ours = best(lambda: accumulate(lambda block: model.e_step(parameters, block), (y, None, None), rows), 3)
        least, theirs = best(floor(y, parameters.weights[0], rows), 3), best(mixture(parameters, y), 3)
        print(f"{d:3d} {k:3d} {k**d:6d} {ours / least:13.1f} {ours / theirs:20.2f}", flush=True)


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        main()
