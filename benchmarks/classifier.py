"""The classifier beside scikit-learn's support vector machine and network: CPU time to equal error;
prediction beside its floor.

10,000 training images of MNIST and Fashion-MNIST, projected as in Saul 3.1, or the embedded digits
where these are not to be had. Of two methods we take the worse of their final test errors, and for
each method the time after which its test error is first as small. A course in time is for ours a
fit with so many iterations, from the start; for the network, which is stopped by the same
validation images, its passes; for support vectors, which cannot be stopped, machines for the first
eighth of the images, the first sixth, and so on. All have settings that were found beforehand: the
peers those that their chapter has found best for the whole of the data, ours those near what it
chooses for itself (prior and kernel), with few landmarks. What that choice costs is a row of its
own.
"""

import time
import warnings
from dataclasses import replace

import numpy as np
from _table import Row, alone, in_turns
from sklearn.exceptions import ConvergenceWarning

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.data.datasets import TITLES
from capslit.experiments.peers import build_peer
from capslit.experiments.records import load_protocol
from capslit.storage import StorageError
from capslit.capsules.settings import RBF

FIXED = {
    "architecture": "ovo",
    "sharpness": 1.0,
    "early_stopping": False,
}
OURS = {
    "mnist": FIXED | {"capsule_dim": 4, "kernel": RBF(0.01, 300), "alpha": 5e-7},
    "fashion": FIXED | {"capsule_dim": 4, "kernel": RBF(0.008, 150), "alpha": 7e-4},
}
PEERS = {
    "mnist": {
        "svm": {"C": 2.0, "gamma": 2.0},
        "network": {"hidden_layer_sizes": [500], "alpha": 1e-2},
    },
    "fashion": {
        "svm": {"C": 10.0, "gamma": 2.0},
        "network": {"hidden_layer_sizes": [500], "alpha": 1e-4},
    },
}
NAMES = {"svm": "SVC", "network": "MLPClassifier"}


def protocols(n=10_000):
    "Key of the peers' settings, title and division of each data set."
    loaders = {"mnist": datasets.load_mnist, "fashion": datasets.load_fashion_mnist}
    for name, load in loaders.items():
        try:
            full = load_protocol(load())
        except StorageError:
            yield "mnist", TITLES["digits"], load_protocol(datasets.load_digits())
            return
        yield (
            name,
            TITLES[name],
            replace(
                full,
                X=full.X[:n],
                y=full.y[:n],
                X_val=full.X_val[:2000],
                y_val=full.y_val[:2000],
                X_test=full.X_test[::4],
                y_test=full.y_test[::4],
            ),
        )


def cpu(function):
    "Result and CPU seconds of a call."
    start = time.process_time()
    return function(), time.process_time() - start


def course_of_ours(data, settings):
    "CPU seconds and test error after more and more iterations."
    course = []
    for steps in (4, 6, 8, 12, 18, 27, 40, 60):
        model = CapsuleClassifier(**settings, max_iter=steps, tol=0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is meant to be stopped
            _, seconds = cpu(lambda: model.fit(data.X, data.y))
        course.append((seconds, 1 - model.score(data.X_test, data.y_test)))
    return course, course[-1][1]


def course_of_svm(data, settings):
    "The same for more and more images."
    course = []
    for n in (
        round(len(data.X) * share) for share in (1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1)
    ):
        model = build_peer("svm", data.X[:n], 0, **settings)
        _, seconds = cpu(lambda: model.fit(data.X[:n], data.y[:n]))
        course.append((seconds, 1 - model.score(data.X_test, data.y_test)))
    return course, course[-1][1]


def course_of_network(data, settings, patience=10, passes=100):
    """The same for more and more passes, and the test error of the pass that is best on the
    validation images.
    """
    model, seconds, course = build_peer("network", data.X, 0, **settings), 0.0, []
    best, waited = (np.inf, np.inf), 0
    while waited < patience and len(course) < passes:
        seconds += cpu(lambda: model.partial_fit(data.X, data.y, classes=np.unique(data.y)))[1]
        validation, test = (
            1 - model.score(*part)
            for part in ((data.X_val, data.y_val), (data.X_test, data.y_test))
        )
        course.append((seconds, test))
        best, waited = ((validation, test), 0) if validation < best[0] else (best, waited + 1)
    return course, best[1]


def first(course, error):
    "When a course first had a test error as small as this."
    return next(seconds for seconds, test, *_ in course if test <= error)


def predictions(n=50_000, p=196):
    "Rows of prediction: the classifier's probabilities beside the product that they need."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, 10, n)
    for architecture, aims in (("multiclass", {1: 1.5, 8: 1.2}), ("ovo", {1: 1.5, 8: 1.5})):
        for d, aim in aims.items():
            model = CapsuleClassifier.paper(
                d, architecture=architecture, max_iter=1, early_stopping=False
            ).fit(X[:5000], y[:5000])
            W = model.coef_.reshape(-1, p)
            ours, floor = in_turns(lambda: model.predict_proba(X), lambda: X @ W.T, rounds=10)
            yield Row(
                f"predict_proba, {'all pairs, ' * (architecture == 'ovo')}d = {d}",
                ours / floor,
                "its one matrix product",
                aim,
            )


def rows():
    for name, title, data in protocols():
        ours, final = course_of_ours(data, OURS[name])
        for peer, settings in PEERS[name].items():
            theirs, error = (course_of_svm if peer == "svm" else course_of_network)(data, settings)
            level = max(final, error)
            yield Row(
                f"{title}, {len(data.X):,} images: CPU time to {100 * level:.1f} % error",
                first(ours, level) / first(theirs, level),
                f"scikit-learn's {NAMES[peer]} (in the end {100 * error:.1f} %, ours"
                f" {100 * final:.1f} %)",
                1,
            )
        model = CapsuleClassifier(random_state=0)
        _, seconds = cpu(lambda: model.fit(data.X, data.y))
        yield Row(
            f"{title}, {len(data.X):,} images: CPU time of an automatic fit"
            f" ({100 - 100 * model.score(data.X_test, data.y_test):.1f} %)",
            seconds / ours[-1][0],
            f"sixty iterations with fixed settings ({100 * final:.1f} %)",
        )
    yield from predictions()


if __name__ == "__main__":
    alone(rows)
