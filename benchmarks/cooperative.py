"""Factorial vector quantisation beside their floor and beside methods that have a prototype for
every configuration.

The floor of the exact E-step is what any version needs: the products y Wᵀ and ⟨s⟩ᵀ y, and, since
every configuration of every example must be weighed, a multiplication and an addition for each in
the sum that its probabilities are divided by, another for the expectations, and another for the
counts, as products of matrices with a row for each configuration of one half of the vectors and a
column for each of the other. It is taken in blocks of several sizes, and the fastest counts: these
products are so small that they take little longer than reading the examples from the memory. What
an E-step has to do beside is measured by `parts.py`: the exponentials, what is taken from and
multiplied with every number between two products, ‖y‖², and what is done once for a block. Beside
the floor stands the time of the exponentials of one table, in blocks that stay in the cache: what a
version costs at least that takes one for each configuration. A mixture has a component for each of
the kᵈ configurations: that is what a user of scikit-learn would need for the same distribution.
k-means has as many centres, and dictionary learning as many atoms as we have vectors for all
states; of these the time of an iteration, on embedded digits.
"""

import numpy as np
from _table import Row, alone, in_turns, per_iteration
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import DictionaryLearning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from capslit import FactorialVectorQuantizer
from capslit.factorial.e_steps import _STEPS, configurations
from capslit.factorial.model import CauseParameters, FactorialVectorModel
from capslit.em.statistics import accumulate

SIZES = 256, 512, 1024, 2048  # of the blocks of the floor, of which the fastest counts


def problem(d, k, p, n, seed=0):
    "A random model of unit noise, its parameters and examples."
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((1, d, k, p))
    states = rng.integers(k, size=(n, d))
    y = sum(weights[0, i, states[:, i]] for i in range(d)) + rng.standard_normal((n, p))
    parameters = CauseParameters(np.full((1, d, k), -np.log(k)), weights, np.zeros(1), np.zeros(1))
    return FactorialVectorModel(d, k), parameters, y


def floor(y, weights, n_rows, tables=True):
    """The products y Wᵀ and ⟨s⟩ᵀ y, and three products with a table of the configurations of one
    half of the vectors and of the other, or without them.
    """
    d, k, p = weights.shape
    columns, a, b = (
        np.ascontiguousarray(weights.reshape(d * k, p).T),
        k ** (d - d // 2),
        k ** (d // 2),
    )
    table, left, right = np.ones((a, b)), np.ones((a, n_rows)), np.ones((b, n_rows))

    def once():
        for start in range(0, len(y), n_rows):
            part = y[start : start + n_rows]
            s = part @ columns
            if tables:
                L, R = left[:, : len(part)], right[:, : len(part)]
                table @ R, table.T @ L, L @ R.T
            s.T @ part

    return once


def exponentials(y, weights, n_rows):
    """The products y Wᵀ and ⟨s⟩ᵀ y, and the exponentials of a table with a column for each
    configuration.
    """
    d, k, p = weights.shape
    W, block = weights.reshape(d * k, p), np.zeros((n_rows, k**d))

    def once():
        for start in range(0, len(y), n_rows):
            part = y[start : start + n_rows]
            s = part @ W.T
            table = block[: len(part)]
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


def rows(n=20_000, p=64, d=3, k=8):
    with threadpool_limits(1):
        for vectors, states in ((2, 4), (4, 4), (3, 8)):
            model, parameters, y = problem(vectors, states, p, n)
            W, small = parameters.weights[0], int(np.clip(2**17 // states**vectors, 16, 4096))

            def ours_by(loops):
                for step in _STEPS:
                    step.asked = step.enough if loops else -(10**12)
                return accumulate(
                    lambda block: model.e_step(parameters, block),
                    (y, None, None),
                    model.block_rows(parameters),
                )

            ours_by(True)  # compiles
            blocked = [floor(y, W, size) for size in SIZES]
            ours, arrays, exps, theirs, *floors = in_turns(
                lambda: ours_by(True),
                lambda: ours_by(False),
                exponentials(y, W, small),
                mixture(parameters, y),
                *blocked,
                rounds=15,
            )
            least = min(floors)
            what = f"quantizers, exact E-step, {vectors} vectors of {states} states"
            yield Row(what, ours / least, "its floor, matrix products", 1.5)
            yield Row(f"{what}, as arrays", arrays / least, "its floor, matrix products")
            yield Row(what, ours / exps, "exponentials of all configurations")
            yield Row(
                what,
                ours / theirs,
                f"E-step of a mixture of {states**vectors}",
                1.0 if states**vectors > 100 else None,
            )
        X = load_digits().data / 16
        fits = {
            "ours": lambda steps: FactorialVectorQuantizer(
                d,
                k,
                init="random",
                n_init=1,
                tol=0,
                patience=steps,
                max_iter=steps,
                n_jobs=1,
                random_state=0,
            ).fit(X),
            f"k-means with {k**d} centres": lambda steps: KMeans(
                k**d, init="random", n_init=1, tol=0, max_iter=steps, random_state=0
            ).fit(X),
            f"DictionaryLearning, {d * k} atoms": lambda steps: DictionaryLearning(
                d * k, tol=0, max_iter=steps, random_state=0
            ).fit(X),
        }
        seconds = {name: per_iteration(fit, 2, 5, 2) for name, fit in fits.items()}
        for name in list(fits)[1:]:
            yield Row(
                f"quantizers, digits, {d} vectors of {k} states: iteration",
                seconds["ours"] / seconds[name],
                name,
            )


if __name__ == "__main__":
    alone(rows)
