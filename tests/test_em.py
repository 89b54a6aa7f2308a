"""The engine and the capsule model on it: sums, schedules, monotonicity, interruption, other array
libraries.
"""

import importlib.util
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from conftest import together
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_limits

import capslit.em.checkpoint as em_checkpoint
import capslit.em.loop as em_loop
from capslit import em
from capslit.capsules import plain
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.problems import capsule_dims, capsule_targets
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.storage import save_arrays


class Sum(NamedTuple):
    total: np.ndarray


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 50))
def test_blocks_do_not_depend_on_how_the_data_were_cut(lengths, rows):
    x = np.arange(sum(lengths))
    y = -x
    batches, start = [], 0
    for length in lengths:
        batches.append((x[start : start + length], y[start : start + length], None))
        start += length
    whole = list(em.blocks((x, y, None), rows))
    cut = list(em.blocks(batches, rows))
    made = list(em.blocks(lambda: iter(batches), rows))
    assert (
        [b[0].tolist() for b in whole]
        == [b[0].tolist() for b in cut]
        == [b[0].tolist() for b in made]
    )
    assert all(len(b[0]) == rows for b in whole[:-1]) and all(
        (b[1] == -b[0]).all() and b[2] is None for b in cut
    )
    assert np.concatenate([b[0] for b in cut]).tolist() == x.tolist()


class Term:
    "What can be added, and remembers how."

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Term(f"({self.text}{other.text})")


@pytest.mark.parametrize(
    "letters, tree",
    [
        ("a", "a"),
        ("ab", "(ab)"),
        ("abc", "((ab)c)"),
        ("abcd", "((ab)(cd))"),
        ("abcde", "(((ab)(cd))e)"),
        ("abcdef", "(((ab)(cd))(ef))"),
        ("abcdefg", "(((ab)(cd))((ef)g))"),
    ],
)
def test_sums_are_balanced_trees(letters, tree):
    assert em.tree_sum(Sum(Term(c)) for c in letters).total.text == tree
    with em.threads(2) as pool:
        found = em.accumulate(
            lambda block: Sum(Term(letters[block[0][0]])), (np.arange(len(letters)),), 1, pool
        )
    assert found.total.text == tree


@given(st.integers(1, 70), st.integers(0, 4))
def test_sums_over_chunks_of_a_power_of_two_blocks_have_the_bits_of_the_sum_over_all(n, power):
    items = [Sum(np.float32(v)) for v in np.random.default_rng(n).standard_normal(n)]
    size = 2**power
    chunks = [em.tree_sum(items[i : i + size]) for i in range(0, n, size)]
    assert em.tree_sum(chunks).total == em.tree_sum(items).total


def test_few_partial_sums_are_kept_and_rounding_stays_small():
    alive, most = set(), [0]

    class Counted(float):
        def __init__(self, value):
            alive.add(id(self))
            most[0] = max(most[0], len(alive))

        def __del__(self):
            alive.discard(id(self))

        def __add__(self, other):
            return Counted(np.float32(float(self)) + np.float32(float(other)))

    total = em.tree_sum(Sum(Counted(np.float32(0.1))) for _ in range(2**14)).total
    assert most[0] <= 14 + 4 and total == np.float32(0.1) * 2**14
    assert (
        abs(np.cumsum(np.full(2**14, np.float32(0.1)))[-1] / total - 1) > 1e-6
    )  # one after the other: not so


def test_work_can_be_sent_and_leaves_at_home_what_only_the_m_step_needs():
    model, start, data = problem(2)
    work = em.BoundStep(model, "e_step", start, {"threshold": np.array([0.5])})
    there = pickle.loads(pickle.dumps(work))
    assert (
        there(data).moments == model.e_step(start, data, threshold=np.array([0.5])).moments
    ).all()

    class Heavy:
        without_solver = model

    assert em.BoundStep(Heavy(), "count_errors", start).model is model
    assert (
        em.BoundStep(Heavy(), "count_errors", start)(data).errors
        == model.count_errors(start, data).errors
    )


def test_data_that_can_add_up_themselves_do():
    class Elsewhere:
        def accumulate(self, function, rows, pool):
            return function, rows, pool

    assert em.accumulate(len, Elsewhere(), 7, "pool") == (len, 7, "pool")


class NoPool:
    "Threads that nobody may ask."

    _max_workers = 2

    def submit(self, *_):
        raise AssertionError("work was handed to another thread")


def test_a_pass_of_one_block_is_made_where_it_is_asked_for():
    Total = NamedTuple("Total", [("of", int)])
    total, data = lambda block: Total(block[0].sum()), (np.arange(8),)
    assert em.accumulate_all([(total, data), (total, data)], 16, NoPool()) == [Total(28), Total(28)]
    for jobs, rows in (
        ([(total, data)], 7),
        ([(total, data), (total, data)], 15),
        ([(total, [data])], 16),
    ):
        with pytest.raises(AssertionError, match="another thread"):
            em.accumulate_all(jobs, rows, NoPool())


def problem(
    seed,
    *,
    n=60,
    p=None,
    m=None,
    d=None,
    architecture="multiclass",
    weighted=False,
    affine=False,
    alpha=0.0,
    mixed=False,
    dtype=np.float64,
    compiled=False,
):
    "A random problem: (model, parameters, data)."
    rng = np.random.default_rng(seed)
    m, d, p = m or rng.integers(2, 6), d or rng.integers(1, 6), p or rng.integers(1, 9)
    X = rng.standard_normal((n, p)).astype(dtype) * rng.choice([0.1, 1, 30])
    y = rng.integers(0, m, n)
    w = rng.random(n).astype(dtype) if weighted else None
    targets = capsule_targets(m, architecture)
    dims = capsule_dims(targets, rng.integers(1, d + 1, m) if mixed else np.full(m, d))
    gram = em.accumulate(lambda b: second_moments(b, range(m), affine), (X, y, w), 17).gram
    paired = np.any(targets < 0)
    gram = np.tensordot((targets >= 0).astype(float), gram, 1) if paired else gram.sum(0)[None]
    penalty = np.append(np.full(p, alpha), np.zeros(int(affine)))
    solver = LeastSquares.from_gram(gram, range(len(targets)) if paired else (0,), alpha=penalty)
    model = CapsuleRegression(targets, dims, solver, alpha, affine, compiled=compiled)
    weights = rng.standard_normal((*dims.shape, dims.max(), p + affine)) * 10.0 ** rng.uniform(
        -3, 1
    )
    weights *= np.arange(dims.max())[:, None] < dims[..., None, None]
    return model, CapsuleParameters(weights), (X, y, w)


PLAIN = [em.Round(10**6, {"threshold": 0.0})]


def test_the_five_hundred_problems_have_odd_and_even_total_dimension():
    parities = {int(problem(seed)[0].dims.sum()) % 2 for seed in range(0, 30, 3)}
    assert parities == {0, 1}


@together("architecture", ["multiclass", "ovr", "ovo"])
@together("mixed", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_against_a_loop_over_examples(architecture, mixed, affine, compiled):
    model, parameters, (X, y, w) = problem(
        3,
        m=4,
        d=3,
        p=5,
        n=30,
        architecture=architecture,
        weighted=True,
        mixed=mixed,
        affine=affine,
        compiled=compiled,
    )
    thresholds = np.linspace(0.2, 0.9, len(model.targets))
    found = model.e_step(parameters, (X, y, w), threshold=thresholds)
    expected = brute_statistics(parameters.weights, model, X, y, w, thresholds, affine)
    for name, value in expected.items():
        assert np.allclose(getattr(found, name), value, rtol=1e-11, atol=1e-11), name
    counted = model.count_errors(parameters, (X, y, w))
    assert np.allclose(counted.errors, expected["errors"]) and np.allclose(
        counted.weight, expected["weight"]
    )


def brute_statistics(weights, model, X, y, w, thresholds, affine):
    "The plain E-step of each problem, with the errors of its probabilities."
    X = np.hstack([X, np.ones((len(X), 1))]) if affine else X
    sums = []
    for W, targets, dims, threshold in zip(weights, model.targets, model.dims, thresholds):
        seen = targets[y] >= 0  # the examples of the classes of this problem
        x, label, mass = X[seen], targets[y][seen], w[seen]
        P = plain.class_probabilities(plain.pose_vectors(W, x)[1], dims)
        wrong = mass @ (P.argmax(1) != label)
        sums.append((*plain.e_step(W, x, label, dims, mass, threshold), wrong, mass.sum()))
    names = "moments", "log_likelihood", "errors", "weight"
    return {name: np.array(parts) for name, parts in zip(names, zip(*sums))}


@together("compiled, mixed", [(False, False), (True, False), (True, True)])
def test_ties_go_to_the_first_class(compiled, mixed):
    model, parameters, (X, y, w) = problem(0, m=3, d=2, p=4, n=6, compiled=compiled)
    if mixed:  # the first class has a smaller capsule, and is less probable than the two others
        model = replace(model, dims=np.array([[1, 2, 2]]))
    X[:] = 0  # all classes equally probable
    y = np.array([0, 1, 2, 0, 1, 0])
    errors = 4 if mixed else 3
    assert (
        model.e_step(parameters, (X, y, None)).errors
        == model.count_errors(parameters, (X, y, None)).errors
        == errors
    )


@pytest.mark.parametrize("architecture", ["multiclass", "ovr", "ovo"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compiled", [False, True])
def test_same_bits_in_memory_in_batches_and_in_threads(architecture, dtype, compiled):
    model, start, (X, y, w) = problem(
        5,
        n=1500,
        m=4,
        d=2,
        p=6,
        architecture=architecture,
        weighted=True,
        dtype=dtype,
        compiled=compiled,
    )
    cuts = [0, 1, 300, 301, 900, 1500]
    batches = [(X[i:j], y[i:j], w[i:j]) for i, j in zip(cuts, cuts[1:])]
    schedule = dict(
        rounds=[em.Round(3, {"threshold": 0.5}), em.Round(2, {"threshold": 0.0})],
        momentum=0.9,
        monitor="error",
        max_iter=30,
    )
    runs = [
        em.fit(model, start, data, n_threads=threads, **schedule)
        for data, threads in [
            ((X, y, w), 1),
            ((X, y, w), 2),
            (batches, 1),
            (lambda: iter(batches), 2),
        ]
    ]
    for run in runs[1:]:
        assert run.parameters.weights.tobytes() == runs[0].parameters.weights.tobytes()
        assert all(
            np.array_equal(run.history[name], runs[0].history[name], equal_nan=True)
            for name in run.history
        )


def blas_threads():
    return {
        library["num_threads"]
        for library in ThreadpoolController().info()
        if library["user_api"] == "blas"
    }


@pytest.fixture
def two_threads():
    "The matrix library with two threads, wherever the tests run."
    with threadpool_limits(2, user_api="blas"):
        yield
        assert blas_threads() == {2}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_fits_that_overlap_in_two_threads_leave_the_matrix_library_as_it_was(two_threads, order):
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        fits = [(pool, em.threads(1)) for pool in (first, second)]
        for pool, fit in fits:
            pool.submit(fit.__enter__).result()
            assert blas_threads() == {1}
        for left, index in enumerate(order):
            pool, fit = fits[index]
            pool.submit(fit.__exit__, None, None, None).result()
            assert blas_threads() == {1 + left}


def test_a_fit_in_another_thread_has_the_same_bits(two_threads):
    rng = np.random.default_rng(0)
    X, W = (
        rng.standard_normal((2000, 16)).astype(np.float32),
        rng.standard_normal((80, 16)).astype(np.float32),
    )

    def product():
        with em.threads(1):
            assert blas_threads() == {1}
            return (X @ W.T).tobytes()

    here = product()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(product).result() == here


def test_momentum_is_the_update_2_27():
    model, start, data = problem(7, n=200, m=3, d=2, p=4)
    runs = [
        em.fit(model, start, data, rounds=PLAIN, momentum=0.7, max_iter=t, monitor="objective")
        for t in (1, 2, 3, 4)
    ]

    def plain(W):
        here = CapsuleParameters(W)
        return model.m_step(here, model.e_step(here, data)).weights

    W = [start.weights, start.weights]
    for run in runs:
        best = W[1:][
            int(
                np.argmin(
                    [
                        -model.objective(
                            CapsuleParameters(w), model.e_step(CapsuleParameters(w), data)
                        )[0]
                        for w in W[1:]
                    ]
                )
            )
        ]
        assert np.allclose(run.parameters.weights, best, rtol=1e-9)
        W.append(plain(W[-1]) + 0.7 * (W[-1] - W[-2]))


def test_rounds_follow_the_protocol():
    """A round ends after `patience` iterations without improvement, and the next starts from the
    best parameters, at rest.
    """
    model, start, data = problem(8, n=300, m=4, d=2, p=5)
    rounds = [em.Round(5, {"threshold": 0.8}), em.Round(3, {"threshold": 0.0})]
    run = em.fit(model, start, data, rounds=rounds, momentum=0.9, monitor="error", max_iter=500)
    errors, threshold = run.history["training_error"][:, 0], run.history["threshold"][:, 0]
    first = np.count_nonzero(threshold == 0.8)
    best = np.argmin(errors[:first])
    assert run.converged.all() and first == best + 1 + 5
    assert errors[first] == errors[best] and (threshold[first:] == 0).all()
    assert run.score[0] == errors.min()
    finish = np.argmin(errors[first:])
    assert len(errors) == first + finish + 1 + 3


def test_small_improvements_do_not_count():
    model, start, data = problem(1)
    patient = [em.Round(5, {"threshold": 0.0})]
    free, strict = (
        em.fit(model, start, data, rounds=patient, tol=tol, max_iter=60) for tol in (0.0, 0.02)
    )
    gains = np.diff(free.history["log_likelihood"][:, 0]) / len(data[0])
    assert len(strict.history["log_likelihood"]) < len(free.history["log_likelihood"])
    reference, since = 0, 0
    for i, total in enumerate(
        np.cumsum(gains), start=1
    ):  # 5 iterations without 0.02 nats per example more than the last reference
        reference, since = (total, 0) if total > reference + 0.02 else (reference, since + 1)
        if since == 5:
            break
    assert len(strict.history["log_likelihood"]) == i + 1


def test_stacked_problems_equal_problems_alone():
    models = [problem(seed, n=200, m=3, d=2, p=4)[:2] for seed in (1, 2, 3)]
    _, _, data = problem(1, n=200, m=3, d=2, p=4)
    solver = LeastSquares.from_gram(
        em.accumulate(lambda b: second_moments(b, range(3)), data, 50).gram.sum(0)[None]
    )
    alone = CapsuleRegression(np.arange(3)[None], np.full((1, 3), 2), solver)
    stack = CapsuleRegression(np.tile(np.arange(3), (3, 1)), np.full((3, 3), 2), solver)
    starts = np.concatenate([start.weights for _, start in models])
    schedule = dict(
        rounds=[em.Round(4, {"threshold": 0.6}), em.Round(2, {"threshold": 0.0})],
        momentum=0.9,
        monitor="error",
        max_iter=300,
    )
    together = em.fit(stack, CapsuleParameters(starts), data, **schedule)
    lengths = np.count_nonzero(np.isfinite(together.history["objective"]), axis=0)
    for q in range(3):
        single = em.fit(alone, CapsuleParameters(starts[q : q + 1]), data, **schedule)
        assert lengths[q] == single.n_iter and together.score[q] == single.score[0]
        assert np.allclose(
            together.parameters.weights[q], single.parameters.weights[0], rtol=1e-6, atol=1e-9
        )
    assert len(set(lengths)) > 1  # each stopped in its own time


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    model, start, data = problem(9, n=400, m=4, d=2, p=5, architecture="ovo")
    schedule = dict(
        rounds=[em.Round(6, {"threshold": 0.8}), em.Round(3, {"threshold": 0.0})],
        momentum=0.9,
        monitor="error",
    )
    whole = em.fit(model, start, data, max_iter=500, **schedule)
    path = tmp_path / "run.npz"
    for stop in (1, 2, 5, 11, 12, 500):
        resumed = em.fit(
            model, start, data, max_iter=stop, checkpoint=path, checkpoint_every=0, **schedule
        )
    assert resumed.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert all(
        np.array_equal(resumed.history[name], whole.history[name], equal_nan=True)
        for name in whole.history
    )
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    model, start, data = problem(9, n=100, m=3, d=2, p=5)
    path = tmp_path / "run.npz"
    em.fit(model, start, data, rounds=PLAIN, max_iter=3, checkpoint=path)
    other = problem(10, n=100, m=3, d=2, p=5)
    with pytest.raises(ValueError, match="other data"):
        em.fit(model, start, other[2], rounds=PLAIN, max_iter=5, checkpoint=path)
    with pytest.raises(ValueError, match="other settings"):
        em.fit(model, start, data, rounds=PLAIN, momentum=0.5, max_iter=5, checkpoint=path)
    x, y, w = data
    for unit in (2, 1 + 2.0**-20):  # the same pose vectors, to the last bit or hardly otherwise
        with pytest.raises(ValueError, match="other initial parameters"):
            em.fit(
                model,
                CapsuleParameters(start.weights / unit),
                (unit * x, y, w),
                rounds=PLAIN,
                max_iter=5,
                checkpoint=path,
            )
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises((ValueError, OSError), match="run.npz"):
        em.fit(model, start, data, rounds=PLAIN, max_iter=5, checkpoint=path)


def permuted(start, x, y):
    "Starts, inputs and labels that give the same log-likelihood, to the last bit or nearly so."
    W = start.weights
    yield "classes", W[:, ::-1], x, 2 - y
    yield "features", W[..., ::-1], x[:, ::-1], y
    yield "dimensions", W[:, :, ::-1], x, y


@pytest.mark.parametrize("scale", [1, 1e-200, 1e100])
def test_a_checkpoint_of_permuted_classes_or_features_is_refused(tmp_path, monkeypatch, scale):
    model, start, (x, y, w) = problem(9, n=100, m=3, d=2, p=5)
    start, x = CapsuleParameters(start.weights / scale), x * scale
    model = CapsuleRegression(
        model.targets, model.dims, LeastSquares(model.solver.root / scale, (0,), model.solver.rank)
    )
    path = tmp_path / "run.npz"
    em.fit(model, start, (x, y, w), rounds=PLAIN, max_iter=3, checkpoint=path)
    monkeypatch.setattr(
        em_loop.np, "array_equal", lambda a, b, equal_nan=False: np.allclose(a, b, rtol=1e-9)
    )  # whatever the rounding
    for name, weights, inputs, labels in permuted(start, x, y):
        with pytest.raises(ValueError, match="other initial parameters"):
            em.fit(
                model,
                CapsuleParameters(np.ascontiguousarray(weights)),
                (inputs, labels, w),
                rounds=PLAIN,
                max_iter=5,
                checkpoint=path,
            )
    almost = CapsuleParameters(
        start.weights * (1 + 1e-13 * np.cos(np.arange(5)))
    )  # as from another machine
    assert em.fit(model, almost, (x, y, w), rounds=PLAIN, max_iter=5, checkpoint=path).n_iter == 5


def test_a_checkpoint_from_before_the_first_iteration_belongs_to_its_start(tmp_path, monkeypatch):
    model, start, data = problem(9, n=100, m=3, d=2, p=5)
    with monkeypatch.context() as patch:
        patch.setattr(em_loop, "accumulate_all", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            em.fit(model, start, data, rounds=PLAIN, max_iter=3, checkpoint=tmp_path / "run.npz")
    with pytest.raises(ValueError, match="other initial parameters"):
        em.fit(
            model,
            CapsuleParameters(2 * start.weights),
            data,
            rounds=PLAIN,
            max_iter=3,
            checkpoint=tmp_path / "run.npz",
        )


def test_parameters_may_be_zero_or_infinite_for_a_checkpoint():
    marks = [
        tuple(em_checkpoint.fingerprint((np.array(leaf),)))
        for leaf in ([0.0, 0], [[1e300, 1e300]], [-np.inf, 1], [np.nan, 1], [5e-324, 0])
    ]
    assert (
        np.all(np.isfinite(marks)) and len({mark for mark in marks}) == 4
    )  # of the infinite and the NaN nothing is left


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 100.0},
        {"affine": True},
        {"dims": np.array([[2, 1, 2]])},
        {"targets": np.array([[1, 0, 2]])},
    ],
)
@pytest.mark.parametrize("kind", [CapsuleRegression, ExpandedCapsuleRegression])
def test_a_checkpoint_belongs_to_its_model(tmp_path, change, kind):
    model, start, data = problem(9, n=100, m=3, d=2, p=5)
    settings = {
        name: getattr(model, name) for name in ("targets", "dims", "solver", "alpha", "affine")
    }
    em.fit(kind(**settings), start, data, rounds=PLAIN, max_iter=2, checkpoint=tmp_path / "run.npz")
    with pytest.raises(ValueError, match="other settings"):
        em.fit(
            kind(**settings | change),
            start,
            data,
            rounds=PLAIN,
            max_iter=5,
            checkpoint=tmp_path / "run.npz",
        )


def test_a_checkpoint_belongs_to_its_validation_data(tmp_path):
    model, start, (x, y, _) = problem(9, n=100, m=3, d=2, p=5)
    path = tmp_path / "run.npz"

    def learn(rows, max_iter=5):
        rows = np.array(rows)
        return em.fit(
            model,
            start,
            (x, y, None),
            validation=(x[rows], y[rows], None),
            monitor="validation",
            rounds=PLAIN,
            max_iter=max_iter,
            checkpoint=path,
        )

    wrong = [
        model.count_errors(start, (x[i : i + 1], y[i : i + 1], None)).errors[0] for i in range(100)
    ]
    first, second = (
        np.flatnonzero(wrong)[:2],
        np.flatnonzero(wrong)[2:4],
    )  # the same number of errors in both
    learn(first, 3)
    for other in (second, [*first, *first, *second]):
        with pytest.raises(ValueError, match="other data"):
            learn(other)
    assert learn(first).n_iter == 5


def test_a_file_of_another_kind_is_no_checkpoint_and_need_not_be_deleted(tmp_path):
    model, start, data = problem(9, n=100, m=3, d=2, p=5)
    for schema, said in (
        (
            "capslit.CapsuleClassifier/2",
            "is no checkpoint: the file holds 'capslit.CapsuleClassifier/2'; pass another path$",
        ),
        ("capslit.em/1", "another version of capslit; delete it, or pass another path$"),
    ):
        save_arrays(tmp_path / "file.npz", {"x": np.zeros(1)}, {"schema": schema})
        before = (tmp_path / "file.npz").read_bytes()
        with pytest.raises(ValueError, match=said):
            em.fit(model, start, data, checkpoint=tmp_path / "file.npz")
        assert (tmp_path / "file.npz").read_bytes() == before


def test_misuse_is_explained():
    model, start, data = problem(1)
    with pytest.raises(ValueError, match="items is empty"):
        em.tree_sum([])
    for every in ("10", None, -1, float("nan")):
        with pytest.raises(ValueError, match="checkpoint_every must be a number of at least 0"):
            em.fit(model, start, data, checkpoint_every=every)
    with pytest.raises(ValueError, match="validation is None"):
        em.fit(model, start, data, monitor="validation", rounds=PLAIN)
    with pytest.raises(TypeError, match="data is a one-shot iterator"):
        em.fit(model, start, (b for b in [data]), rounds=PLAIN)
    with pytest.raises(ValueError, match="data holds no examples"):
        em.fit(model, start, [], rounds=PLAIN)


def other_namespaces():
    import array_api_strict

    yield pytest.param(array_api_strict, id="array_api_strict")
    if importlib.util.find_spec("torch"):
        import array_api_compat.torch as torch

        yield pytest.param(torch, id="torch")
    else:
        yield pytest.param(
            None,
            id="torch",
            marks=pytest.mark.skip(reason="PyTorch is not installed; pip install capslit[torch]"),
        )


@together("xp", list(other_namespaces()))
@together("architecture", ["multiclass", "ovr", "ovo"])
@pytest.mark.parametrize(
    "options", [{}, {"mixed": True, "affine": True, "weighted": True}], ids=["plain", "everything"]
)
def test_other_array_libraries_agree_with_numpy(xp, architecture, options):
    model, start, (X, y, w) = problem(
        11, n=300, m=3, d=2, p=4, architecture=architecture, **options
    )
    schedule = dict(
        rounds=[em.Round(3, {"threshold": 0.5}), em.Round(2, {"threshold": 0.0})],
        momentum=0.5,
        monitor="objective",
        max_iter=8,
    )
    ours = em.fit(model, start, (X, y, w), validation=(X[:50], y[:50], None), **schedule)
    data = tuple(None if a is None else xp.asarray(a) for a in (X, y, w))
    solver = LeastSquares(xp.asarray(model.solver.root), model.solver.which, model.solver.rank)
    there = CapsuleRegression(model.targets, model.dims, solver, model.alpha, model.affine)
    run = em.fit(
        there,
        CapsuleParameters(xp.asarray(start.weights)),
        data,
        validation=(data[0][:50, :], data[1][:50], None),
        **schedule,
    )
    assert (
        type(run.parameters.weights).__module__.split(".")[0]
        == xp.__name__.replace("array_api_compat.", "").split(".")[0]
    )
    assert np.allclose(
        np.asarray(run.parameters.weights), ours.parameters.weights, rtol=1e-8, atol=1e-10
    )
    assert np.allclose(run.history["objective"], ours.history["objective"], equal_nan=True)
    assert np.array_equal(
        run.history["validation_error"], ours.history["validation_error"], equal_nan=True
    )


def test_float32_follows_float64():
    model, start, (X, y, _) = problem(12, n=2000, m=5, d=4, p=8)
    runs = [
        em.fit(model, start, (X.astype(t), y, None), rounds=PLAIN, max_iter=20)
        for t in (np.float32, np.float64)
    ]
    assert np.allclose(
        runs[0].history["log_likelihood"], runs[1].history["log_likelihood"], rtol=1e-5
    )


def test_progress_is_shown_on_request(capsys):
    model, start, data = problem(1)
    em.fit(model, start, data, rounds=PLAIN, max_iter=3, progress=True)
    assert "round 1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize("architecture", ["multiclass", "ovo"])
def test_prepared_labels_are_checked_where_they_are_used_otherwise(architecture):
    """With other examples than their own, or changed by arithmetic; parts of the batch are taken as
    they are.
    """
    model, parameters, data = problem(2, m=3, d=2, p=4, n=40, architecture=architecture)
    x, y, w = model.prepare(data)
    assert (
        model.e_step(parameters, (x[:9], y[:9], w)).weight
        == model.e_step(parameters, (x[:9], np.array(y[:9]), w)).weight
    ).all()
    with pytest.raises(ValueError, match="y has shape"):
        model.e_step(parameters, (x[:9], y, w))
    with pytest.raises(ValueError, match="y must|labels"):
        model.e_step(parameters, (x, y + 3, w))
    assert type(y.max()) is np.int64 and type(y[:5]) is type(y) and type(y + 0) is np.ndarray


@together("architecture", ["multiclass", "ovo"])
def test_what_is_remembered_of_a_block_belongs_to_it(architecture):
    "Other inputs, weights or problems with the same labels give what they give alone."
    model, parameters, data = problem(2, m=3, d=2, p=4, n=40, architecture=architecture)
    x, y, w = model.prepare(data)
    for batch in (
        (x, y, w),
        (x, y, np.linspace(0.5, 1, 40)),
        (2 * x, y, w),
        (x, y, w),
        (x[:9], y[:9], w),
    ):
        for some, rows in (
            (model, slice(None)),
            (model.select(np.array([0])), slice(0, 1)),
            (model, slice(None)),
        ):
            start = type(parameters)(parameters.weights[rows])
            alone = some.e_step(start, (batch[0], np.array(batch[1]), batch[2]))
            assert all(np.array_equal(a, b) for a, b in zip(some.e_step(start, batch), alone))
            assert np.array_equal(some.count_errors(start, batch).errors, alone.errors)


@together("dtype", [np.float64, np.float32])
@together("weighted", [False, True])
@together("affine", [False, True])
def test_small_blocks_of_pairs_are_summed_as_large_ones(dtype, weighted, affine, monkeypatch):
    """Ties go to the first class, and an example that is far away does not disturb problems that
    do not see it.
    """
    model, parameters, (x, y, _) = problem(2, m=3, d=2, p=4, n=60, architecture="ovo")
    rng, tolerance = np.random.default_rng(0), 1e3 * np.finfo(dtype).eps
    x, w = x.astype(dtype), rng.random(60).astype(dtype) if weighted else None
    if affine:
        model = replace(model, affine=True)
        parameters = CapsuleParameters(rng.standard_normal((*parameters.weights.shape[:3], 5)))
    far = np.where(y[:, None] == 2, np.finfo(dtype).max ** 0.6, 1).astype(dtype) * x
    for inputs in (x, 0 * x, far):
        batch, found = (inputs, y, w), []
        for small in (2**12, 0):
            monkeypatch.setattr(CapsuleRegression, "small", small)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found.append(
                    (model.e_step(parameters, batch), model.count_errors(parameters, batch))
                )
        monkeypatch.undo()
        for ours, theirs in zip(*found):
            for a, b in zip(ours, theirs):
                size = np.max(np.abs(b), initial=1, where=np.isfinite(b))
                assert np.allclose(a, b, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    assert np.all(np.isfinite(ours.errors[0])) and not np.all(np.isfinite(ours.errors[1:]))


class Leap:
    "An acceleration whose every second parameters overflow, and are discarded."

    signature = {}

    def start(self, parameters):
        return {"safe": parameters, "away": np.zeros(parameters[0].shape[0])}

    def tentative(self, memory):
        return memory["away"] > 0

    def propose(self, memory, here, image, objective):
        away, k = memory["away"][0] > 0, len(objective)
        following = memory["safe"] if away else CapsuleParameters(here.weights * 1e200)
        return (
            following,
            {"safe": memory["safe"] if away else image, "away": np.full(k, float(not away))},
            np.full(k, not away),
        )


@together("monitor", ["error", "objective"])
@together("compiled", [False, True])
def test_parameters_that_overflow_are_never_the_best(compiled, monitor):
    "Their errors are counted as none, or as NaN, and neither ends learning."
    model, start, data = problem(3, m=3, d=2, p=4, n=90, compiled=compiled)
    run = em.fit(
        model,
        start,
        data,
        acceleration=Leap(),
        monitor=monitor,
        rounds=[em.Round(6, {"threshold": 0.0})],
        max_iter=20,
    )
    assert (
        run.n_iter > 6
        and np.isfinite(run.parameters.weights).all()
        and np.abs(run.parameters.weights).max() < 1e100
    )
    assert np.isfinite(run.score).all() and (monitor == "objective" or run.score > 0)
