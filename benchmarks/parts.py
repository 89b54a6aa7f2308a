"""What stands between us and the floor: the parts of those times that miss their aims, in units of the same floors.

One thread, processor time. A part is what its functions take by the clock of the thread, asked at each of their calls, or the difference between two runs of which
one goes further; the rest is the whole less its parts. Where work is unavoidable that the floor leaves out (random numbers, exponentials, another order of the
numbers), a row says what it takes by NumPy's own calls, or by those that we make.
"""
import time
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
from _table import Row, alone, cpu_seconds
from composition import SIZES as IMAGES
from composition import TRANSFORMS, correlations, letters, strokes
from cooperative import SIZES, floor, problem
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data
from threadpoolctl import threadpool_limits

from capslit import CapsuleClassifier, em
from capslit.capsules.em_steps import CapsuleRegression
from capslit.capsules.kernels import TILE
from capslit.composition import pursuit
from capslit.data import deformations
from capslit.em.statistics import accumulate
from capslit.factorial import e_steps


@contextmanager
def clocks(**functions):
    "Seconds (by name) that functions, given as (owner, name of its attribute), take of their threads."
    spent, stack = dict.fromkeys(functions, 0.0), ExitStack()

    def clocked(part, function):
        def call(*arguments, **options):
            start = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[part] += time.thread_time() - start
        return call

    with stack:
        for part, (owner, name) in functions.items():
            stack.enter_context(patch.object(owner, name, clocked(part, getattr(owner, name))))
        yield spent


def in_turns(*functions, rounds=5):
    "Least processor time of each of several functions, called in turn."
    return np.min([[cpu_seconds(function) for function in functions] for _ in range(rounds)], axis=0)


def least_parts(run, rounds=5, **functions):
    "Seconds of a whole run, and of the parts of the fastest of several runs with clocks, as a dict."
    found = []
    for _ in range(rounds):
        with clocks(**functions) as spent:
            found.append({"whole": cpu_seconds(run)} | spent)
    return min(found, key=lambda parts: parts["whole"])


def rows_of(what, floor, to, parts):
    "A row for each part, whose names have spaces in the place of underscores."
    for part, seconds in parts.items():
        yield Row(f"{what}, of which {part.replace('_', ' ')}", max(seconds, 1e-9) / floor, to)


def small_fits():
    "Fits with fixed settings, in units of a logistic regression."
    for load, gamma in ((load_iris, 1 / 8), (load_breast_cancer, 1 / 60)):
        X, y = load(return_X_y=True)
        X, what = StandardScaler().fit_transform(X), f"{load.__name__.removeprefix('load_').replace('_', ' ')}, fixed settings"
        fit = lambda: CapsuleClassifier(4, kernel="rbf", gamma=gamma, n_components=100, alpha=1e-3, sharpness=1.6, random_state=0).fit(X, y)
        model, logistic = fit(), LogisticRegression(max_iter=1000).fit(X, y)
        p, k = model.coef_.shape[-1] + 1, 3 if model.architecture_ == "ovo" else 1
        rows, root, moments = np.ones((len(X), p)), np.eye(p), np.ones((k, 8, p))
        columns, weights = np.ascontiguousarray(rows.T), moments.reshape(-1, p)

        def of_e_steps():
            for _ in range(model.n_iter_):
                (weights @ columns) @ rows

        def of_m_steps():
            for _ in range(model.n_iter_):
                (moments @ root) @ root.T

        unit, first, second = in_turns(lambda: LogisticRegression(max_iter=1000).fit(X, y), of_e_steps, of_m_steps, rounds=10)
        parts = least_parts(fit, 10, learning=(em, "fit"), E_steps=(CapsuleRegression, "e_step"))
        before = parts["whole"] - parts["learning"]
        yield from rows_of(what, unit, "scikit-learn's LogisticRegression", {"before_the_first_iteration": before, "matrix_products": first + second,
                           "the_rest_of_E-steps": parts["E_steps"] - first, "the_loop_around_them": parts["learning"] - parts["E_steps"] - second})
    row = X[:1]
    unit, check = in_turns(lambda: logistic.predict(row), lambda: validate_data(logistic, row, reset=False), rounds=200)
    yield Row("one row predicted, of which scikit-learn's check", check / unit, "scikit-learn's LogisticRegression")


def pairs(n=50_000, p=196):
    "Probabilities of pairs of capsules of one dimension, in units of their product."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, 10, n)
    model = CapsuleClassifier.paper(1, architecture="ovo", max_iter=1, early_stopping=False, n_jobs=1).fit(X[:5000], y[:5000])
    columns = np.ascontiguousarray(model.coef_.reshape(-1, p).T)
    turned = np.empty((columns.shape[1], TILE), np.float32)

    def slices():
        for start in range(0, n - TILE, TILE):
            turned[:] = (X[start:start + TILE] @ columns).T

    whole, votes, sliced, product = in_turns(lambda: model.predict_proba(X), lambda: model.decision_function(X), slices, lambda: X @ columns, rounds=8)
    yield from rows_of("predict_proba, all pairs, d = 1", product, "its one matrix product", {"the_product,_slice_by_slice": sliced,
                       "lengths,_probabilities_of_pairs_and_votes": votes - sliced, "coupling": whole - votes})


def deformed(n=2048, side=28, batch=128):
    "Deformed images, in units of sixteen readings of each pixel."
    images = np.random.default_rng(0).integers(0, 256, (n, side, side)).astype(np.uint8)
    stream, out, floats = deformations.DeformedImages(images, np.zeros(n, int), n, batch=batch), np.empty(images.shape, np.float32), images.astype(np.float32)
    places, pixels = np.arange(batch * side * side).reshape(batch, side, side), np.empty((batch, side, side), np.float32)
    deformations._compiled_deformation.asked = deformations._compiled_deformation.enough
    run = lambda: stream.write(out, n_threads=1)
    run()
    readings, = in_turns(lambda: [floats[:batch].take(places, out=pixels, mode="clip") for _ in range(16 * n // batch)], rounds=5)
    parts = least_parts(run, random_numbers=(deformations, "_draw"), fields_and_points=(deformations, "_motion"), all_of_it=(deformations, "deform"))
    yield from rows_of("deformed images", readings, "sixteen readings of each pixel", {
        "random_numbers": parts["random_numbers"], "fields_of_displacements": parts["fields_and_points"],
        "thickness,_points,_weights_and_readings": parts["all_of_it"] - parts["fields_and_points"], "copies": parts["whole"] - parts["all_of_it"] - parts["random_numbers"]})


def searches(n=100):
    "Matching pursuit, in units of its correlations."
    templates = strokes()
    X = letters(templates, n, np.random.default_rng(0))
    for name, q in (("write-black", 0.01), ("write-white-and-black", 0.5)):
        pursuit._compiled_scores.asked = pursuit._compiled_scores.enough
        run = lambda: pursuit.matching_pursuit(X, templates, q=q, transforms=TRANSFORMS)
        found = run()
        floor = min(in_turns(*[correlations(X, templates, found, q, False, size) for size in IMAGES], rounds=3))
        parts = least_parts(run, 3, correlations=(pursuit._Correlations, "__call__"), gains_of_pixels=(pursuit, "_level_gains"),
                            exact_scores=(pursuit, "_scores_of"), spectra_of_templates=(pursuit, "_Bounds"))
        whole = parts.pop("whole")
        yield from rows_of(f"matching pursuit, {name}", floor, "its correlations", parts | {"the_rest": whole - sum(parts.values())})


def quantized(n=20_000, p=64):
    "The exact E-step of quantizers, in units of its matrix products."
    for d, k in ((2, 4), (4, 4), (3, 8)):
        model, parameters, y = problem(d, k, p, n)
        for step in e_steps._STEPS:
            step.asked = step.enough
        run = lambda: accumulate(lambda block: model.e_step(parameters, block), (y, None, None), model.block_rows(parameters))
        run()
        times = in_turns(*[floor(y, parameters.weights[0], size, tables) for tables in (True, False) for size in SIZES], rounds=15)
        both, alone = np.min(times[:len(SIZES)]), np.min(times[len(SIZES):])
        parts = least_parts(run, 15, sums=(e_steps, "_exact_sums"), before=(e_steps, "_Products"), posteriors=(e_steps, "_part"), norms=(e_steps, "squared_norms"))
        once, reading = parts["whole"] - parts["sums"] + parts["before"], parts["sums"] - parts["before"] - parts["posteriors"] - parts["norms"]
        yield from rows_of(f"quantizers, exact E-step, {d} vectors of {k} states", both, "its floor, matrix products", {
            "products_with_the_examples": alone, "products_of_tables": both - alone, "exponentials,_factors_and_sums_of_states": parts["posteriors"] - both + alone,
            "squared_norms": parts["norms"], "the_order_of_fields_and_sums_over_examples": reading - alone, "once_for_each_block": once})


def routed():
    "What routing does beside its sums, by calls of a library, in units of reading the votes once."
    V = np.random.default_rng(0).standard_normal((64, 32 * 32, 10, 16), dtype=np.float32)
    logs, turned = -np.abs(V[..., 0]), np.empty((64, 10, 16, 32 * 32), np.float32)
    reading, turning, greatest, exponentials = in_turns(V.sum, lambda: np.copyto(turned, V.transpose(0, 2, 3, 1)), lambda: (V.max(), V.min()),
                                                        lambda: [np.exp(logs) for _ in range(2)])
    yield from rows_of("EM routing, NumPy's calls", reading, "reading the votes once", {"turning_the_votes": turning, "their_greatest": greatest, "exponentials": exponentials})


def rows():
    with threadpool_limits(1):
        for part in (small_fits, deformed, pairs, searches, quantized, routed):    # pairs find Numba in memory
            yield from part()


if __name__ == "__main__":
    alone(rows)
