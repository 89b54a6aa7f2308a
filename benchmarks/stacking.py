"""Fits of one shape that share their matrix products, beside the same fits one by one; and the
largest such fit of the paper.

The pairs of classes of an all-versus-all classifier, random restarts, and the folds of a
cross-validation: wall time, with as many threads as the matrix library uses, the better of two.
10,000 training images of MNIST, projected as in Saul 3.1, or the embedded digits where MNIST is not
to be had; and a fit to the whole of MNIST, with d = 8, its 45 pairs of classes and 10,000
validation images.
"""

from itertools import combinations

import numpy as np
import sklearn.model_selection
from _table import Row, alone, in_turns

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.capsules.cross_validation import cross_validate
from capslit.data.datasets import TITLES
from capslit.experiments.records import PAPER, load_protocol
from capslit.storage import StorageError

QUICK = {"patience": (8, 4, 2, 1, 1), "early_stopping": False}
LIMIT = 12.0  # seconds for the whole of MNIST, on two cores


def one_by_one(X, y, settings):
    "A classifier for each pair of classes, learned alone."
    for pair in combinations(np.unique(y), 2):
        here = np.isin(y, pair)
        CapsuleClassifier.paper(**settings).fit(X[here], y[here])


def rows(n=10_000, rounds=2):
    name = "mnist"
    try:
        whole = load_protocol(datasets.load_mnist())
        fit = lambda: CapsuleClassifier.paper(
            **PAPER | {"capsule_dim": 8, "architecture": "ovo"}
        ).fit(whole.X, whole.y, X_val=whole.X_val, y_val=whole.y_val)
        (seconds,) = in_turns(fit, rounds=rounds)
        yield Row(
            "MNIST, all pairs, d = 8, with validation: whole fit",
            seconds / LIMIT,
            f"{LIMIT:g} s of two cores",
            1.0,
        )
    except StorageError:
        name, whole = "digits", load_protocol(datasets.load_digits())
    X, y = whole.X[:n], whole.y[:n]
    images = f"{TITLES[name]}, {len(X):,} images"
    for d in (2, 8):
        settings = {"capsule_dim": d} | QUICK
        together, apart = in_turns(
            lambda: CapsuleClassifier.paper(architecture="ovo", **settings).fit(X, y),
            lambda: one_by_one(X, y, settings),
            rounds=rounds,
        )
        yield Row(f"{images}: all pairs together, d = {d}", together / apart, "pair by pair")
        settings |= {"init": "random"}
        together, apart = in_turns(
            lambda: CapsuleClassifier.paper(n_init=4, random_state=0, **settings).fit(X, y),
            lambda: [
                CapsuleClassifier.paper(random_state=i, **settings).fit(X, y) for i in range(4)
            ],
            rounds=rounds,
        )
        yield Row(f"{images}: four random starts together, d = {d}", together / apart, "one by one")
        model = CapsuleClassifier.paper(capsule_dim=d, **QUICK)
        together, apart = in_turns(
            lambda: cross_validate(model, X, y),
            lambda: sklearn.model_selection.cross_validate(model, X, y),
            rounds=rounds,
        )
        yield Row(
            f"{images}: five folds together, d = {d}",
            together / apart,
            "scikit-learn's cross_validate",
        )


if __name__ == "__main__":
    alone(rows)
