"""What stands between us and the floor: the parts of those times that miss their aims, in units of
the same floors.

One thread, processor time. A part is what its functions take by the clock of the thread, asked at
each of their calls, or the difference between two runs of which one goes further; the rest is the
whole less its parts. Where work is unavoidable that the floor leaves out (random numbers,
exponentials, another order of the numbers), a row says what it takes by NumPy's own calls, or by
those that we make.
"""

import time
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
from _table import Row, alone, cpu_seconds
from classifier import OURS, PEERS, protocols
from composition import SIZES as IMAGES
from composition import TRANSFORMS, correlations, letters, strokes
from cooperative import SIZES, floor, problem
from scipy.special import hyp1f1
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data
from stacking import LIMIT
from threadpoolctl import threadpool_limits

from capslit import CapsuleClassifier, em
from capslit.capsules import kernels, special
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression
from capslit.capsules.kernels import FEW, SLICE, TILE, block_sums
from capslit.composition import pursuit
from capslit.data import datasets, deformations
from capslit.em.compiling import compiled, read_only
from capslit.em.statistics import accumulate
from capslit.experiments.peers import build_peer
from capslit.experiments.records import PAPER, load_protocol
from capslit.factorial import e_steps
from capslit.storage import StorageError
from capslit.capsules.settings import RBF


@contextmanager
def clocks(**functions):
    """Seconds (by name) that functions, given as (owner, name of its attribute), take of their
    threads.
    """
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
    return np.min(
        [[cpu_seconds(function) for function in functions] for _ in range(rounds)], axis=0
    )


def least_parts(run, rounds=5, **functions):
    """Seconds of a whole run, and of the parts of the fastest of several runs with clocks, as a
    dict.
    """
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
    for load, gamma in ((load_iris, 1 / 8), (load_wine, 1 / 26), (load_breast_cancer, 1 / 60)):
        X, y = load(return_X_y=True)
        X, what = (
            StandardScaler().fit_transform(X),
            f"{load.__name__.removeprefix('load_').replace('_', ' ')}, fixed settings",
        )
        fit = lambda: CapsuleClassifier(
            4,
            kernel=RBF(gamma, 100),
            alpha=1e-3,
            sharpness=1.6,
            random_state=0,
        ).fit(X, y)
        model = fit()
        p, k = model.coef_.shape[-1] + 1, 3 if model.architecture_ == "ovo" else 1
        rows, root, moments = np.ones((len(X), p)), np.eye(p), np.ones((k, 8, p))
        columns, weights = np.ascontiguousarray(rows.T), moments.reshape(-1, p)

        def of_e_steps():
            for _ in range(model.n_iter_):
                (weights @ columns) @ rows

        def of_m_steps():
            for _ in range(model.n_iter_):
                (moments @ root) @ root.T

        unit, first, second = in_turns(
            lambda: LogisticRegression(max_iter=1000).fit(X, y), of_e_steps, of_m_steps, rounds=10
        )
        parts = least_parts(fit, 10, learning=(em, "fit"), E_steps=(CapsuleRegression, "e_step"))
        before = parts["whole"] - parts["learning"]
        yield from rows_of(
            what,
            unit,
            "scikit-learn's LogisticRegression",
            {
                "before_the_first_iteration": before,
                "matrix_products": first + second,
                "the_rest_of_E-steps": parts["E_steps"] - first,
                "the_loop_around_them": parts["learning"] - parts["E_steps"] - second,
            },
        )


def one_row():
    """The prediction of one row by features of a kernel and pairs of classes, in units of that of a
    logistic regression.
    """
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = CapsuleClassifier(
        4,
        architecture="ovo",
        kernel=RBF(1 / 8, 100),
        alpha=1e-3,
        sharpness=1.6,
        random_state=0,
    ).fit(X, y)
    logistic, row, predictor = (
        LogisticRegression(max_iter=1000).fit(X, y),
        X[:1],
        model._predictor(None, 1),
    )
    whole, unit, check, features, poses, labels = in_turns(
        lambda: model.predict(row),
        lambda: logistic.predict(row),
        lambda: validate_data(logistic, row, reset=False),
        lambda: predictor.features(row),
        lambda: predictor.poses(row),
        lambda: predictor.labels(row),
        rounds=400,
    )
    yield from rows_of(
        "one row predicted",
        unit,
        "scikit-learn's LogisticRegression",
        {
            "scikit-learn's_check": check,
            "features_of_the_kernel": features,
            "pose_vectors_and_lengths": poses - features,
            "probabilities_of_pairs_and_votes": labels - poses,
            "all_else": whole - check - labels,
        },
    )


def products(W, parts, learn=True):
    """Processor time of the products of an E-step with some inputs each, by weights (r, p) of their
    own; without those of moments unless `learn`.
    """

    def once():
        for w, x in zip(W, parts):
            for start in range(0, len(x), SLICE):
                some = x[start : start + SLICE]
                poses = w @ some.T if len(w) > FEW else np.ascontiguousarray((some @ w.T).T)
                if learn:
                    poses @ some

    return in_turns(once, rounds=8)[0]


def all_pairs(model, X, y, learn=True):
    """The products of an iteration of all pairs of ten classes, each of which sees the inputs X of
    two.
    """
    W = model.coef_.astype(np.float32)
    W = W.reshape(len(W), -1, W.shape[-1])
    first, second = np.triu_indices(10, 1)
    classes = [(first == c) | (second == c) for c in range(10)]
    return products(
        [W[mine].reshape(-1, W.shape[-1]) for mine in classes],
        [X[y == c] for c in range(10)],
        learn,
    )


def whole_fits():
    """Large fits: clothes with fixed settings, in units of scikit-learn's SVC on the same images,
    and all pairs of MNIST with validation.
    """
    for name, title, data in protocols():
        if name == "fashion":
            fit = lambda: CapsuleClassifier(**OURS[name], max_iter=60, tol=0, random_state=0).fit(
                data.X, data.y
            )
            model = fit()
            (unit,) = in_turns(
                lambda: build_peer("svm", data.X, 0, **PEERS[name]["svm"]).fit(data.X, data.y),
                rounds=2,
            )
            parts = least_parts(
                fit,
                3,
                learning=(em, "fit"),
                E_steps=(CapsuleRegression, "e_step"),
                M_steps=(CapsuleRegression, "m_step"),
            )
            multiplied = model.n_iter_ * all_pairs(model, model.kernel_features_(data.X), data.y)
            yield from rows_of(
                title,
                unit,
                "scikit-learn's SVC",
                {
                    "before_the_first_iteration": parts["whole"] - parts["learning"],
                    "matrix_products": multiplied,
                    "the_rest_of_E-steps": parts["E_steps"] - multiplied,
                    "M-steps": parts["M_steps"],
                    "the_loop_around_them": parts["learning"] - parts["E_steps"] - parts["M_steps"],
                },
            )
    try:
        whole = load_protocol(datasets.load_mnist())
    except StorageError:
        return
    model = CapsuleClassifier.paper(**PAPER | {"capsule_dim": 8, "architecture": "ovo"})
    parts = least_parts(
        lambda: model.fit(whole.X, whole.y, X_val=whole.X_val, y_val=whole.y_val),
        1,
        E_steps=(CapsuleRegression, "e_step"),
        validation=(CapsuleRegression, "count_errors"),
        M_steps=(CapsuleRegression, "m_step"),
    )
    rounds = np.mean(
        np.sum(np.isfinite(model.history_["objective"]), axis=0)
    )  # of a pair, in the mean
    learned, judged = (
        rounds * all_pairs(model, *part)
        for part in ((whole.X, whole.y), (whole.X_val, whole.y_val, False))
    )
    yield from rows_of(
        "MNIST, all pairs, d = 8, with validation",
        2 * LIMIT,
        f"{LIMIT:g} s of two cores",
        {
            "matrix_products": learned,
            "the_rest_of_E-steps": parts["E_steps"] - learned,
            "products_of_validation": judged,
            "the_rest_of_validation": parts["validation"] - judged,
            "M-steps": parts["M_steps"],
            "the_loop_around_them": parts["whole"]
            - parts["E_steps"]
            - parts["validation"]
            - parts["M_steps"],
        },
    )


def classes(n=50_000, p=196):
    "Probabilities of classes with capsules of eight dimensions, in units of their product."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, 10, n)
    model = CapsuleClassifier.paper(8, max_iter=1, early_stopping=False, n_jobs=1).fit(
        X[:5000], y[:5000]
    )
    columns, predictor = (
        np.ascontiguousarray(model.coef_.reshape(-1, p).T),
        model._predictor(None, n),
    )

    def slices():
        for start in range(0, n, TILE):
            X[start : start + TILE] @ columns

    whole, answer, sliced, product = in_turns(
        lambda: model.predict_proba(X),
        lambda: predictor.probabilities(X),
        slices,
        lambda: X @ columns,
        rounds=15,
    )
    yield from rows_of(
        "predict_proba, d = 8",
        product,
        "its one matrix product",
        {
            "the_product,_slice_by_slice": sliced,
            "another_order,_lengths_and_probabilities": answer - sliced,
            "checks_and_calls": whole - answer,
        },
    )


def pairs(n=50_000, p=196):
    "Probabilities of pairs of capsules of one dimension, in units of their product."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p), dtype=np.float32), rng.integers(0, 10, n)
    model = CapsuleClassifier.paper(
        1, architecture="ovo", max_iter=1, early_stopping=False, n_jobs=1
    ).fit(X[:5000], y[:5000])
    columns = np.ascontiguousarray(model.coef_.reshape(-1, p).T)
    turned = np.empty((columns.shape[1], TILE), np.float32)

    def slices():
        for start in range(0, n - TILE, TILE):
            turned[:] = (X[start : start + TILE] @ columns).T

    shares, sizes, table = (
        compiled(
            kernels.class_shares, kernels.positions, special.polynomials, kernels._rest_and_shrink
        ),
        np.ones(2, np.float32),
        special.ratio_rows(1.0, X.dtype),
    )
    own, total, rest, shrink, cell = (
        np.ones((1, 8 * TILE), np.float32),
        np.ones(8 * TILE, np.float32),
        np.empty(8 * TILE, np.float32),
        np.empty(8 * TILE, np.float32),
        np.empty(8 * TILE, np.int32),
    )
    lengths = rng.chisquare(2, total.shape).astype(np.float32)

    def looked_up():
        for _ in range(45 * n // len(total)):
            own[0] = total[:] = lengths
            shares(own, total, sizes, table, rest, shrink, cell)

    whole, votes, sliced, probabilities, product = in_turns(
        lambda: model.predict_proba(X),
        lambda: model.decision_function(X),
        slices,
        looked_up,
        lambda: X @ columns,
        rounds=8,
    )
    yield from rows_of(
        "predict_proba, all pairs, d = 1",
        product,
        "its one matrix product",
        {
            "the_product,_slice_by_slice": sliced,
            "probabilities_of_pairs": probabilities,
            "lengths_and_votes": votes - sliced - probabilities,
            "coupling": whole - votes,
        },
    )


def deformed(n=2048, side=28, batch=128):
    "Deformed images, in units of sixteen readings of each pixel."
    images = np.random.default_rng(0).integers(0, 256, (n, side, side)).astype(np.uint8)
    stream, out, floats = (
        deformations.DeformedImages(images, np.zeros(n, int), n, batch=batch),
        np.empty(images.shape, np.float32),
        images.astype(np.float32),
    )
    places, pixels = (
        np.arange(batch * side * side).reshape(batch, side, side),
        np.empty((batch, side, side), np.float32),
    )
    deformations._compiled_deformation.asked = deformations._compiled_deformation.enough
    run = lambda: stream.write(out, n_threads=1)
    run()
    (readings,) = in_turns(
        lambda: [
            floats[:batch].take(places, out=pixels, mode="clip") for _ in range(16 * n // batch)
        ],
        rounds=5,
    )
    parts = least_parts(
        run,
        random_numbers=(deformations, "_draw"),
        fields_and_points=(deformations, "_motion"),
        all_of_it=(deformations, "deform"),
    )
    yield from rows_of(
        "deformed images",
        readings,
        "sixteen readings of each pixel",
        {
            "random_numbers": parts["random_numbers"],
            "fields_of_displacements": parts["fields_and_points"],
            "thickness,_points,_weights_and_readings": parts["all_of_it"]
            - parts["fields_and_points"],
            "copies": parts["whole"] - parts["all_of_it"] - parts["random_numbers"],
        },
    )


def searches(n=100):
    "Matching pursuit, in units of its correlations."
    templates = strokes()
    X = letters(templates, n, np.random.default_rng(0))
    for name, q in (("write-black", 0.01), ("write-white-and-black", 0.5)):
        run = lambda: pursuit.matching_pursuit(X, templates, q=q, transforms=TRANSFORMS)
        found = run()
        floor = min(
            in_turns(
                *[correlations(X, templates, found, q, False, size) for size in IMAGES], rounds=3
            )
        )
        parts = least_parts(
            run,
            3,
            correlations=(pursuit._Correlations, "__call__"),
            gains_of_pixels=(pursuit, "_level_gains"),
            exact_scores=(pursuit, "_scores_of"),
            spectra_of_templates=(pursuit, "_Bounds"),
        )
        whole = parts.pop("whole")
        yield from rows_of(
            f"matching pursuit, {name}",
            floor,
            "its correlations",
            parts | {"the_rest": whole - sum(parts.values())},
        )


def quantized(n=20_000, p=64):
    "The exact E-step of quantizers, in units of its matrix products."
    for d, k in ((2, 4), (4, 4), (3, 8)):
        model, parameters, y = problem(d, k, p, n)
        for step in e_steps._STEPS:
            step.asked = step.enough
        run = lambda: accumulate(
            lambda block: model.e_step(parameters, block),
            (y, None, None),
            model.block_rows(parameters),
        )
        run()
        times = in_turns(
            *[
                floor(y, parameters.weights[0], size, tables)
                for tables in (True, False)
                for size in SIZES
            ],
            rounds=15,
        )
        both, alone = np.min(times[: len(SIZES)]), np.min(times[len(SIZES) :])
        parts = least_parts(
            run,
            15,
            sums=(e_steps, "_exact_sums"),
            before=(e_steps, "_Products"),
            posteriors=(e_steps, "_part"),
            norms=(e_steps, "squared_norms"),
        )
        once, reading = (
            parts["whole"] - parts["sums"] + parts["before"],
            parts["sums"] - parts["before"] - parts["posteriors"] - parts["norms"],
        )
        yield from rows_of(
            f"quantizers, exact E-step, {d} vectors of {k} states",
            both,
            "its floor, matrix products",
            {
                "products_with_the_examples": alone,
                "products_of_tables": both - alone,
                "exponentials,_factors_and_sums_of_states": parts["posteriors"] - both + alone,
                "squared_norms": parts["norms"],
                "the_order_of_fields_and_sums_over_examples": reading - alone,
                "once_for_each_block": once,
            },
        )


def integrals(n=200_000, s=5.0):
    "I_s in double precision, in units of hyp1f1."
    beta = 10 ** np.random.default_rng(0).uniform(-3, 4, n)
    special._compiled_integrals.asked = special._compiled_integrals.enough
    table = special.ratio_rows(s, beta.dtype)
    look_up, x = compiled(special.polynomials, exact=True), np.full(n, 0.5)
    cell = ((s + 1) / (s + 1 + beta) * (len(table) - 1)).astype(np.int32)
    slices = [slice(start, start + 2**15) for start in range(0, n, 2**15)]
    ours = lambda: special.interpolating_integral(
        s, beta
    )  # once more before it counts: what comes after hyp1f1 finds no table in the cache
    _, whole, checks, looked, unit = in_turns(
        ours,
        ours,
        lambda: special._arguments("s", s, beta, -1),
        lambda: [look_up(table, cell[part], x[part]) for part in slices],
        lambda: beta / (s + 1) * hyp1f1(1, s + 2, -beta),
        rounds=30,
    )
    yield from rows_of(
        f"I_s(β), s = {s:g}, float64",
        unit,
        "scipy.special.hyp1f1, float64",
        {
            "checks_of_the_arguments": checks,
            "look-ups": looked,
            "divisions,_reading_and_writing": whole - checks - looked,
        },
    )


def widened(shape, rows, columns, constant, x, wide, capsules, sizes, table, thresholds, w, learn):
    """The moments of `block_sums` for inputs x (n, p) that are kept in eight bits; slice by slice
    they become `wide` (SLICE, p).
    """
    moments = np.zeros((len(rows), x.shape[1]))
    for start in range(0, len(x), len(wide)):
        part = wide[: min(len(wide), len(x) - start)]
        for i in range(len(part)):
            for j in range(x.shape[1]):
                part[i, j] = x[start + i, j]
        moments += block_sums(
            shape,
            rows,
            columns,
            constant,
            part,
            capsules[:, start : start + len(part)],
            sizes,
            table,
            thresholds,
            w,
            learn,
        )[0]
    return moments


def tried(n=50_000, p=196, m=10):
    "What an E-step would take in blocks of other sizes, and if its inputs were kept in eight bits."
    rng = np.random.default_rng(0)
    narrow, y = rng.integers(0, 256, (n, p)).astype(np.uint8), rng.integers(0, m, n)
    X, loops, narrow_loops = (
        narrow.astype(np.float32),
        kernels.compiled_sums(),
        compiled(widened, block_sums),
    )
    for d in (1, 8):
        parameters = CapsuleParameters(1e-3 * rng.standard_normal((1, m, d, p)))
        model = CapsuleRegression(np.arange(m)[None], np.full((1, m), d), compiled=True)
        batch, sizes, usual = (
            model.prepare((X, y, None)),
            (2048, 4096, 8192, 16384),
            em.block_rows(model, parameters),
        )
        arguments = kernels.weights_for(parameters.weights.astype(np.float32), p)
        others = (
            y[None].astype(np.int32),
            np.full(m, d, np.float32),
            special.ratio_rows(m * d / 2, X.dtype),
            np.zeros(1, np.float32),
            np.empty((0, 0), np.float32),
            True,
        )
        *blocks, whole, eight = in_turns(
            *[
                lambda size=size: accumulate(
                    lambda block: model.e_step(parameters, block), batch, size
                )
                for size in sizes
            ],
            lambda: loops(*arguments, read_only(X), *others),
            lambda: narrow_loops(
                *arguments, read_only(narrow), np.empty((SLICE, p), np.float32), *others
            ),
            rounds=15,
        )
        for size, seconds in zip(sizes, blocks):
            if size != usual:
                yield Row(
                    f"E-step, d = {d}, in blocks of {size:,} examples",
                    seconds / blocks[sizes.index(usual)],
                    f"blocks of {usual:,}",
                )
        yield Row(
            f"E-step, d = {d}, inputs of eight bits", eight / whole, "inputs in single precision"
        )


def routed():
    "What routing does beside its sums, by calls of a library, in units of reading the votes once."
    V = np.random.default_rng(0).standard_normal((64, 32 * 32, 10, 16), dtype=np.float32)
    logs, turned = -np.abs(V[..., 0]), np.empty((64, 10, 16, 32 * 32), np.float32)
    reading, turning, greatest, exponentials = in_turns(
        V.sum,
        lambda: np.copyto(turned, V.transpose(0, 2, 3, 1)),
        lambda: (V.max(), V.min()),
        lambda: [np.exp(logs) for _ in range(2)],
    )
    yield from rows_of(
        "EM routing, NumPy's calls",
        reading,
        "reading the votes once",
        {"turning_the_votes": turning, "their_greatest": greatest, "exponentials": exponentials},
    )


def rows():
    with threadpool_limits(1):
        for part in (
            small_fits,
            one_row,
            deformed,
            pairs,
            classes,
            whole_fits,
            searches,
            quantized,
            integrals,
            routed,
            tried,
        ):  # pairs find Numba in memory
            yield from part()


if __name__ == "__main__":
    alone(rows)
