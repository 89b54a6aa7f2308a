"""The engine, its accelerations and the capsule model on it: sums, schedules, interruption, other
array libraries, learning batch by batch.
"""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from conftest import classes, together
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController, threadpool_limits

import capslit.em.checkpoint as em_checkpoint
import capslit.em.loop as em_loop
from capslit import CapsuleClassifier, em
from capslit.capsules import plain
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.capsules.problems import capsule_dims, capsule_targets
from capslit.capsules.settings import Incremental, PassiveAggressive, Stepwise
from capslit.em.acceleration import Anderson, SafeMomentum, Squarem
from capslit.storage import save_arrays

ARCHITECTURES = ["multiclass", "ovr", "ovo"]
MOMENTUM = {"momentum": 0.9}
METHODS = [Squarem(), Squarem(1.5), Anderson(), Anderson(1), SafeMomentum(), SafeMomentum(0.99)]
SETTINGS = [MOMENTUM, *({"acceleration": method} for method in METHODS)]


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
TWO = [em.Round(6, {"threshold": 0.8}), em.Round(3, {"threshold": 0.0})]


def assert_same(run, other):
    "To the same bits."
    assert run.parameters.weights.tobytes() == other.parameters.weights.tobytes()
    for name, values in other.history.items():
        assert np.array_equal(run.history[name], values, equal_nan=True), name


# ── sums


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 50))
def test_blocks_do_not_depend_on_how_the_data_were_cut(lengths, rows):
    x = np.arange(sum(lengths))
    wanted = [x[i : i + rows].tolist() for i in range(0, len(x), rows)]
    batches = [(part, -part, None) for part in np.split(x, np.cumsum(lengths)[:-1])]
    for data in ((x, -x, None), batches, lambda: iter(batches)):
        found = list(em.blocks(data, rows))
        assert [b[0].tolist() for b in found] == wanted
        assert all((b[1] == -b[0]).all() and b[2] is None for b in found)


class Total(NamedTuple):
    of: int


def test_a_pass_of_one_block_is_made_where_it_is_asked_for():
    class NoPool:
        _max_workers = 2

        def submit(self, *_):
            raise AssertionError("work was handed to another thread")

    def total(block):
        return Total(block[0].sum())

    data = (np.arange(8),)
    assert em.accumulate_all([(total, data)] * 2, 16, NoPool()) == [Total(28)] * 2
    for jobs, rows in (([(total, data)], 7), ([(total, data)] * 2, 15), ([(total, [data])], 16)):
        with pytest.raises(AssertionError, match="another thread"):
            em.accumulate_all(jobs, rows, NoPool())


@together("architecture", ARCHITECTURES)
@together("options", [{}, {"mixed": True, "affine": True}])
@together("compiled", [False, True])
def test_statistics_against_a_loop_over_examples(architecture, options, compiled):
    options |= {"architecture": architecture, "compiled": compiled, "weighted": True}
    model, parameters, (X, y, w) = problem(3, m=4, d=3, p=5, n=30, **options)
    thresholds = np.linspace(0.2, 0.9, len(model.targets))
    found = model.e_step(parameters, (X, y, w), threshold=thresholds)
    expected = brute_statistics(parameters.weights, model, X, y, w, thresholds, model.affine)
    for name, value in expected.items():
        assert np.allclose(getattr(found, name), value, rtol=1e-11, atol=1e-11), name
    counted = model.count_errors(parameters, (X, y, w))
    assert np.allclose(counted.errors, expected["errors"])
    assert np.allclose(counted.weight, expected["weight"])


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


@together("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@together("compiled", [False, True])
def test_same_bits_in_memory_in_batches_and_in_threads(architecture, dtype, compiled):
    kind = {"architecture": architecture, "dtype": dtype, "compiled": compiled}
    model, start, (X, y, w) = problem(5, n=1500, m=4, d=2, p=6, weighted=True, **kind)
    cuts = [0, 1, 300, 301, 900, 1500]
    batches = [(X[i:j], y[i:j], w[i:j]) for i, j in zip(cuts, cuts[1:])]
    schedule = dict(rounds=TWO, **MOMENTUM, monitor="error", max_iter=20)
    whole = em.fit(model, start, (X, y, w), n_threads=1, **schedule)
    for data, threads in (((X, y, w), 2), (batches, 1), (lambda: iter(batches), 2)):
        assert_same(em.fit(model, start, data, n_threads=threads, **schedule), whole)


def blas_threads():
    libraries = ThreadpoolController().info()
    return {lib["num_threads"] for lib in libraries if lib["user_api"] == "blas"}


@together("order", [(0, 1), (1, 0)])
def test_fits_that_overlap_in_two_threads_leave_the_matrix_library_as_it_was(order):
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal((n, 16)).astype(np.float32) for n in (2000, 80))

    def product():
        with em.threads(1):
            return (X @ W.T).tobytes()

    with threadpool_limits(2, user_api="blas"):
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            fits = [(pool, em.threads(1)) for pool in (first, second)]
            for pool, fit in fits:
                pool.submit(fit.__enter__).result()
                assert blas_threads() == {1}
            for left, index in enumerate(order):
                pool, fit = fits[index]
                pool.submit(fit.__exit__, None, None, None).result()
                assert blas_threads() == {1 + left}
            assert first.submit(product).result() == product()
        assert blas_threads() == {2}


# ── schedules


@together("settings", SETTINGS)
def test_rounds_follow_the_protocol(settings):
    """A round ends after `patience` iterations without improvement, and the next starts from the
    best parameters, at rest.
    """
    model, start, data = problem(8, n=300, m=4, d=2, p=5)
    run = em.fit(model, start, data, rounds=TWO, monitor="error", max_iter=500, **settings)
    errors, threshold = run.history["training_error"][:, 0], run.history["threshold"][:, 0]
    first = np.count_nonzero(threshold == 0.8)
    best = np.argmin(errors[:first])
    assert run.converged.all() and (threshold[first:] == 0).all()
    assert errors[first] == errors[best] and run.score[0] == errors.min()
    assert model.count_errors(run.parameters, data).errors[0] == 300 * errors.min()
    if settings is MOMENTUM:
        assert first == best + 1 + 6
        assert len(errors) == first + np.argmin(errors[first:]) + 1 + 3
    else:
        assert run.history["accepted"][first, 0] == 1  # its first step is the EM step


def test_small_improvements_do_not_count():
    "Of less than 0.02 nats per example beyond the last improvement; 5 of them end the round."
    model, start, data = problem(1)
    options = {"rounds": [em.Round(5, {"threshold": 0.0})], "max_iter": 60}
    free, strict = (
        em.fit(model, start, data, tol=tol, **options).history["log_likelihood"][:, 0] / 60
        for tol in (0.0, 0.02)
    )
    reference, since, steps = free[0], 0, 1
    while since < 5:
        reference, since = (
            (free[steps], 0) if free[steps] > reference + 0.02 else (reference, since + 1)
        )
        steps += 1
    assert len(strict) == steps < len(free)


@together("settings", SETTINGS)
def test_stacked_problems_equal_problems_alone(settings):
    models = [problem(seed, n=200, m=3, d=2, p=4)[:2] for seed in (1, 2, 3)]
    model, _, data = problem(1, n=200, m=3, d=2, p=4)
    stack = replace(model, targets=np.tile(model.targets, (3, 1)), dims=np.tile(model.dims, (3, 1)))
    starts = np.concatenate([start.weights for _, start in models])
    schedule = dict(rounds=TWO, monitor="error", max_iter=300, n_threads=1, **settings)
    together = em.fit(stack, CapsuleParameters(starts), data, **schedule)
    lengths = np.count_nonzero(np.isfinite(together.history["threshold"]), axis=0)
    for q in range(3):
        single = em.fit(model, CapsuleParameters(starts[q : q + 1]), data, **schedule)
        assert lengths[q] == single.n_iter and together.score[q] == single.score[0]
        weights = together.parameters.weights[q]
        assert np.allclose(weights, single.parameters.weights[0], rtol=1e-6, atol=1e-9)
    assert len(set(lengths)) > 1  # each stopped in its own time


# ── accelerations


def test_accelerations_never_lower_the_objective_and_are_no_worse_than_em():
    "The accepted points; on the whole, for a single run may end in a slightly lower local maximum."
    gains = []
    for seed in range(10):
        options = {"architecture": ARCHITECTURES[seed % 3], "alpha": [0, 0, 0.3, 10][seed % 4]}
        options |= dict.fromkeys(("weighted", "affine", "mixed"), seed % 5 == 0)
        model, start, data = problem(seed, n=200, **options)
        run = {"rounds": PLAIN, "max_iter": 60, "n_threads": 1}
        plain = em.fit(model, start, data, **run).history["objective"].max(axis=0)
        for method in METHODS:
            history = em.fit(model, start, data, acceleration=method, **run).history
            for path, accepted in zip(history["objective"].T, history["accepted"].T):
                assert np.min(np.diff(path[accepted == 1])) > -1e-10 * np.abs(path[0]), method
                assert path.max() > path[0]
            gains.append(np.mean(history["objective"].max(axis=0) - plain) / 200)
    gains = np.reshape(gains, (-1, len(METHODS)))
    assert np.all(gains.mean(axis=0) > 0.02) and np.min(gains) > -0.1


def test_the_first_leap_is_discarded_when_it_falls():
    """The objective punishes every step beyond those of EM: the accelerations must come back to the
    path of EM.
    """
    model, start, data = problem(7, n=100, m=3, d=2, p=4)
    run = {"rounds": PLAIN, "n_threads": 1}
    straight = em.fit(model, start, data, max_iter=30, **run).history["objective"][:, 0]

    class Punished:
        def __getattr__(self, name):
            return getattr(model, name)

        def objective(self, *arguments):
            found = model.objective(*arguments)
            return found if np.isclose(found, straight, rtol=1e-9).any() else np.array([-np.inf])

    for method in (Squarem(), Anderson(), SafeMomentum()):
        run |= {"acceleration": method, "max_iter": 12}
        history = em.fit(Punished(), start, data, **run).history
        accepted = history["accepted"][:, 0] == 1
        assert 0 < np.sum(~accepted) <= 6
        found = history["objective"][accepted, 0]
        assert np.allclose(found, straight[: len(found)], rtol=1e-9)


@together(
    "make, wrong, name",
    [(Squarem, 1, "growth"), (Anderson, 0, "order"), (Anderson, 2.5, "order")]
    + [(SafeMomentum, 1, "rate")],
)
def test_wrong_settings_are_named(make, wrong, name):
    with pytest.raises(ValueError, match=name):
        make(wrong)


class Leap:
    "An acceleration whose every second parameters overflow, and are discarded."

    signature = {}

    def start(self, parameters):
        return {"safe": parameters, "away": np.zeros(parameters[0].shape[0])}

    def tentative(self, memory):
        return memory["away"] > 0

    def propose(self, memory, here, image, objective):
        away = memory["away"] > 0  # of the one problem
        following = memory["safe"] if away else CapsuleParameters(here.weights * 1e200)
        safe = memory["safe"] if away else image
        return following, {"safe": safe, "away": 1.0 - away}, ~away


@together("monitor", ["error", "objective"])
@together("compiled", [False, True])
def test_parameters_that_overflow_are_never_the_best(compiled, monitor):
    "Their errors are counted as none, or as NaN, and neither ends learning."
    model, start, data = problem(3, m=3, d=2, p=4, n=90, compiled=compiled)
    options = {"acceleration": Leap(), "monitor": monitor, "max_iter": 20}
    run = em.fit(model, start, data, rounds=[em.Round(6, {"threshold": 0.0})], **options)
    assert run.n_iter > 6 and np.abs(run.parameters.weights).max() < 1e100
    assert np.isfinite(run.score).all() and (monitor == "objective" or run.score > 0)


# ── interruption


@together("settings", SETTINGS)
def test_a_killed_run_resumes_to_the_same_bits(settings, tmp_path):
    model, start, data = problem(9, n=200, m=4, d=2, p=5, architecture="ovo")
    schedule = dict(rounds=TWO, monitor="error", **settings)
    whole = em.fit(model, start, data, max_iter=30, **schedule)
    schedule |= dict(checkpoint=tmp_path / "run.npz", checkpoint_every=0)
    for stop in (1, 2, 5, 11, 12, 30):
        resumed = em.fit(model, start, data, max_iter=stop, **schedule)
    assert_same(resumed, whole)


@together("scale", [1, 1e-200, 1e100])
def test_a_checkpoint_of_another_start_is_refused(tmp_path, monkeypatch, scale):
    "Also of permuted classes and features, which give the same log-likelihood."
    model, start, (x, y, w) = problem(9, n=100, m=3, d=2, p=5)
    W, x = start.weights / scale, x * scale
    solver = LeastSquares(model.solver.root / scale, (0,), model.solver.rank)
    model = CapsuleRegression(model.targets, model.dims, solver)

    def learn(weights, inputs=x, labels=y, n=5):
        start = CapsuleParameters(np.ascontiguousarray(weights))
        run = {"rounds": PLAIN, "max_iter": n, "checkpoint": tmp_path / "run.npz"}
        return em.fit(model, start, (inputs, labels, w), **run).n_iter

    def refuse(*other):
        with pytest.raises(ValueError, match="other initial parameters"):
            learn(*other)

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(em_loop, "accumulate_all", lambda *_: 1 / 0)
        learn(W)
    refuse(2 * W)  # though there was no iteration yet
    learn(W, n=3)
    for unit in (2, 1 + 2.0**-20):  # the same pose vectors, to the last bit or hardly otherwise
        refuse(W / unit, unit * x)

    def nearly(a, b, equal_nan=False):
        return np.allclose(a, b, rtol=1e-9)

    monkeypatch.setattr(em_loop.np, "array_equal", nearly)  # whatever the rounding
    refuse(W[:, ::-1], x, 2 - y)
    refuse(W[..., ::-1], x[:, ::-1])
    refuse(W[:, :, ::-1])
    assert learn(W * (1 + 1e-13 * np.cos(np.arange(5)))) == 5  # as from another machine


@together("kind", [CapsuleRegression, ExpandedCapsuleRegression])
def test_a_checkpoint_belongs_to_its_model_and_validation_data(tmp_path, kind):
    model, start, (x, y, _) = problem(9, n=100, m=3, d=2, p=5)
    model = kind(model.targets, model.dims, model.solver)
    path = tmp_path / "run.npz"
    counts = [model.count_errors(start, (x[[i]], y[[i]], None)).errors[0] for i in range(100)]
    wrong = np.flatnonzero(counts)

    def learn(rows=wrong[:2], n=5, **change):
        return em.fit(
            replace(model, **change),
            start,
            (x, y, None),
            validation=(x[rows], y[rows], None),
            monitor="validation",
            rounds=PLAIN,
            max_iter=n,
            checkpoint=path,
        ).n_iter

    learn(n=3)
    for change in (
        {"alpha": 100.0},
        {"affine": True},
        {"dims": np.array([[2, 1, 2]])},
        {"targets": np.array([[1, 0, 2]])},
    ):
        with pytest.raises(ValueError, match="other settings"):
            learn(**change)
    for rows in (wrong[2:4], np.r_[wrong[:2], wrong[:4]]):  # all of them errors, as before
        with pytest.raises(ValueError, match="other data"):
            learn(rows)
    assert learn() == 5
    save_arrays(path, {"x": np.zeros(1)}, {"schema": "capslit.em/1"})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another version of capslit; delete it, or pass another"):
        learn()
    assert path.read_bytes() == before


def test_parameters_may_be_zero_or_infinite_for_a_checkpoint():
    leaves = ([0.0, 0], [1e300, 1e300], [-np.inf, 1], [np.nan, 1], [5e-324, 0])
    marks = [tuple(em_checkpoint.fingerprint((np.array(leaf),))) for leaf in leaves]
    assert np.all(np.isfinite(marks))
    assert len(set(marks)) == 4  # of the infinite and the NaN nothing is left


# ── other arrays


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


def test_progress_is_shown_on_request_and_on_a_terminal_and_float32_follows(capsys, monkeypatch):
    model, start, (X, y, _) = problem(12, n=500, m=5, d=4, p=8)

    def learn(dtype=np.float64, **options):
        run = em.fit(model, start, (X.astype(dtype), y, None), rounds=PLAIN, max_iter=20, **options)
        return run.history["log_likelihood"]

    path = learn()
    assert capsys.readouterr() == ("", "")
    np.testing.assert_allclose(learn(np.float32, progress=True), path, rtol=1e-5)
    assert "round 1 of 1" in capsys.readouterr().out
    monkeypatch.setattr(em_loop, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    learn()
    out, errors = capsys.readouterr()
    assert out == "" and "at most" in errors and "20/20" in errors


# ── what is remembered of a block


@together("architecture", ARCHITECTURES)
def test_what_is_remembered_of_a_block_belongs_to_it(architecture):
    """Other inputs, weights or problems with the same labels give what they give alone; prepared
    labels are checked where they are used with other examples, or were changed by arithmetic.
    """
    model, parameters, data = problem(2, m=3, d=2, p=4, n=40, architecture=architecture)
    x, y, w = model.prepare(data)
    light = np.linspace(0.5, 1, 40)
    first = model.select(np.array([0])), CapsuleParameters(parameters.weights[:1])
    for batch in ((x, y, w), (x, y, light), (2 * x, y, w), (x, y, w), (x[:9], y[:9], w)):
        for some, start in ((model, parameters), first, (model, parameters)):
            alone = some.e_step(start, (batch[0], np.array(batch[1]), batch[2]))
            assert all(np.array_equal(a, b) for a, b in zip(some.e_step(start, batch), alone))
            assert np.array_equal(some.count_errors(start, batch).errors, alone.errors)
    with pytest.raises(ValueError, match="y has shape"):
        model.e_step(parameters, (x[:9], y, w))
    for call in (partial(model.e_step, parameters), model.prepare):
        with pytest.raises(ValueError, match="y must lie between 0 and 2"):
            call((x, y + 3, w))
    with pytest.raises(ValueError, match=r"weight has shape \(40, 2\)"):
        model.e_step(parameters, (*data[:2], np.ones((40, 2))))
    assert type(y.max()) is np.int64 and type(y[:5]) is type(y) and type(y + 0) is np.ndarray


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


# ── the classifier: accelerated, expanded, and batch by batch


def test_the_expanded_step_is_the_plain_one_times_one_number():
    model, start, data = problem(3, m=4, d=3, p=5, n=200, architecture="ovo", weighted=True)
    expanded = ExpandedCapsuleRegression(model.targets, model.dims, model.solver)
    step = model.m_step(start, model.e_step(start, data)).weights
    ratio = expanded.m_step(start, expanded.e_step(start, data)).weights / step
    assert np.allclose(ratio, ratio[:, :1, :1, :1], rtol=1e-10) and np.all(ratio != 1)


X, Y = classes(120)
BATCHES = np.array_split(np.arange(120), 4)


@together("acceleration", [None, "squarem", "anderson", "safe-momentum"])
@together("architecture", ARCHITECTURES)
def test_the_classifier_is_hurried_by_all_of_them(acceleration, architecture, tmp_path):
    quick = {"thresholds": (0.5, 0), "patience": (6, 4), "n_jobs": 1, "architecture": architecture}
    path = tmp_path / "run.npz"
    CapsuleClassifier.paper(2, **quick).fit(X, Y, checkpoint=path)
    for expansion in (False, True):
        hurried = {"acceleration": acceleration, "parameter_expansion": expansion}
        model = CapsuleClassifier.paper(2, **quick, **hurried).fit(X, Y)
        assert model.score(X, Y) > 0.9
        assert ("accepted" in model.history_) == (acceleration is not None)
        if acceleration or expansion:
            with pytest.raises(ValueError, match="other settings"):
                model.fit(X, Y, checkpoint=path)


def learner(online, **settings):
    return CapsuleClassifier.paper(2, online=online, n_jobs=1, fit_intercept=False, **settings)


def passes(model, batches=BATCHES, count=1):
    for _ in range(count):
        for name, rows in enumerate(batches):
            model.partial_fit(X[rows], Y[rows], classes=np.arange(3), batch=name)
    return model


def log_likelihood(model, rows=slice(None)):
    return np.sum(model.predict_log_proba(X[rows])[np.arange(len(Y[rows])), Y[rows]])


def residuals(model, E, rows):
    "Half the squared distance of posterior means E from the poses."
    return np.sum((E - np.einsum("idp,np->nid", model.coef_, X[rows])) ** 2) / 2


def test_incremental_em_is_em_where_it_must_be():
    "With one batch; and its fixed points, which it reaches faster, are those of EM."
    steps = {"thresholds": (0,), "patience": (9,), "momentum": 0, "monitor": "likelihood"}
    online = passes(learner(Incremental()), [np.arange(120)], 3)
    with pytest.warns(ConvergenceWarning):
        whole = learner(None, max_iter=4, **steps).fit(X, Y)
    np.testing.assert_allclose(online.coef_, whole.coef_, rtol=1e-9, atol=1e-12)
    online = passes(learner(Incremental(), alpha=1 / 120), count=8)
    with pytest.warns(ConvergenceWarning):
        whole = learner(None, max_iter=9, alpha=1 / 120, **steps).fit(X, Y)
    assert log_likelihood(online) > log_likelihood(whole)
    passes(online, count=140)
    moments = np.einsum("nid,np->idp", online.posterior_mean(X, Y), X)
    image = moments @ np.linalg.inv(X.T @ X + np.eye(5))
    near = 1e-3 * np.abs(online.coef_).max()
    np.testing.assert_allclose(image, online.coef_, rtol=1e-3, atol=near)


def test_incremental_em_never_lowers_what_it_climbs():
    """Neal and Hinton's function of posteriors and weights: each batch's bound, made at the weights
    of its own last E-step.
    """
    model = passes(learner(Incremental()))
    bounds, climbed = {}, []
    for _ in range(4):
        for name, rows in enumerate(BATCHES):
            E = model.posterior_mean(X[rows], Y[rows])
            bounds[name] = (E, rows, log_likelihood(model, rows) + residuals(model, E, rows))
            model.partial_fit(X[rows], Y[rows], batch=name)
            if len(bounds) == len(BATCHES):
                parts = bounds.values()
                climbed.append(sum(top - residuals(model, E, rows) for E, rows, top in parts))
                assert climbed[-1] <= log_likelihood(model) + 1e-8  # a lower bound
    assert len(climbed) == 13 and np.diff(climbed).min() > 0


@together("aggressiveness", [0.05, 1.0, 1e6])
def test_the_passive_aggressive_step_is_a_minimum(aggressiveness):
    model = learner(PassiveAggressive(aggressiveness)).partial_fit(X, Y, classes=np.arange(3))
    W, rows = model.coef_.copy(), slice(20)
    E = model.posterior_mean(X[rows], Y[rows])
    C = aggressiveness / np.mean(np.sum(X[rows] ** 2, axis=1))

    def cost(V):
        model.coef_ = V
        return np.sum((V - W) ** 2) / 2 + 2 * C * residuals(model, E, rows)

    best = model.partial_fit(X[rows], Y[rows]).coef_
    lowest = cost(best)
    for noise in 1e-4 * np.random.default_rng(0).standard_normal((50, *W.shape)):
        assert lowest < cost(best + noise)


def test_examples_within_the_threshold_change_nothing():
    model = learner(PassiveAggressive(threshold=0.5))
    for rows in BATCHES * 3:
        model.partial_fit(X[rows], Y[rows], classes=np.arange(3))
    own = np.arange(3) == Y[:, None]
    P = model.predict_proba(X)
    within = P[~own].reshape(-1, 2).max(1) <= 0.499 * P[own]
    W = model.coef_.copy()
    assert 0 < within.sum() < len(Y)
    for rows, moves in (within, False), (~within, True):
        change = model.partial_fit(X[rows], Y[rows]).coef_ - W
        assert (np.abs(change).max() > 1e-9 * np.abs(W).max()) == moves


@together("online", [Stepwise(), Incremental(), PassiveAggressive(0.1)])
@together("architecture", ARCHITECTURES)
def test_learning_goes_on_after_loading(online, architecture, tmp_path):
    model = learner(online, architecture=architecture)

    def step(model, b):
        name = f"part {b}" if isinstance(online, Incremental) else None
        rows = BATCHES[b]
        model.partial_fit(X[rows], Y[rows], classes=np.arange(3), batch=name)

    for b in (0, 1, 2, 3, 0):
        step(model, b)
    model.save(tmp_path / "model.npz")
    loaded = CapsuleClassifier.load(tmp_path / "model.npz")
    for b in (1, 2, 3, 0, 1):
        step(model, b)
        step(loaded, b)
    assert np.array_equal(model.coef_, loaded.coef_) and model.score(X, Y) > 0.6


def test_batches_must_be_named_rightly():
    half = X[60:], Y[60:]
    model = learner(Incremental()).partial_fit(X[:60], Y[:60], classes=np.arange(3), batch="first")
    before = model.coef_.copy()
    for wrong, options, said in (
        (model, {}, "batch must name"),
        (model, {"batch": 1.5}, "batch must be"),
        (model, {"batch": "first"}, "'first' came back with other examples"),
        (learner(None), {"classes": np.arange(3), "batch": 1}, "batch must name"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            wrong.partial_fit(*half, **options)
    assert np.array_equal(model.coef_, before) and model._online.names == ["first"]
    # another way of learning begins anew, from the weights
    model.set_params(online=Stepwise()).partial_fit(X, Y)
    assert model._online.steps == 1 and not model._online.batches


def test_pairs_are_sorted_within_blocks_once():
    model, start, (X, y, _) = problem(3, n=18_000, m=4, d=3, p=2, architecture="ovo")
    rows = model.block_rows(start)
    assert rows == 16384 and model.without_solver.solver is None
    x, labels, _ = model.prepare((X, y, None))
    for part in (slice(0, rows), slice(rows, None)):
        order = np.argsort(y[part], kind="stable")
        assert np.array_equal(labels[part], y[part][order])
        assert np.array_equal(x[part], X[part][order])
    assert model.prepare((x, labels, None))[0].tobytes() == x.tobytes()
    sums = [model.e_step(start, batch).moments for batch in ((x, labels, None), (X, y, None))]
    assert np.array_equal(*sums)


@pytest.mark.parametrize("architecture, m", [("multiclass", 3), ("ovo", 3)])  # one and three
def test_prepared_examples_need_weights_of_their_shape(architecture, m):
    model, start, (X, y, _) = problem(4, n=30, m=m, d=2, p=3, architecture=architecture)
    x, labels, w = model.prepare((X, y, np.linspace(0.5, 2, 30)))
    k = len(model.targets)
    each = np.repeat(w[:, None], k, axis=1)
    sums = [model.e_step(start, (x, labels, weight)).moments for weight in (w, each)]
    assert np.allclose(*sums)
    for wrong in (each[:-1], np.repeat(w[:, None], 2, axis=1), w[:-1], each[:, :, None]):
        for read in (model.e_step, model.count_errors):
            with pytest.raises(ValueError, match="^weight "):
                read(start, (x, labels, wrong))
