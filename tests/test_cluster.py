"""Dask: the same bits on every scheduler; a worker that dies changes nothing; faults are named.

Nothing here depends on where a scheduler puts a task, or when. `test_places` holds what is the same
wherever the data live.
"""

import gc
import logging
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import PATIENCE, examples, together
from hypothesis import given
from hypothesis import strategies as st

from capslit import em
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.data.open import as_source
from capslit.em.statistics import BatchError
from capslit.mixtures.gaussian import Mixtures, mixture_parameters

dask = pytest.importorskip("dask", reason="Dask is not installed; pip install capslit[dask]")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from capslit.data.dask import DaskSource, _add_statistics  # noqa: E402

N, P, CLASSES = 3000, 8, 3
rng = np.random.default_rng(0)
Y = rng.integers(0, CLASSES, N)
X = rng.standard_normal((N, P)) + 2 * rng.standard_normal((CLASSES, P))[Y]
W = rng.random(N)
CUTS = [0, 500, 501, 1800, 2500, N]


class Moments(NamedTuple):
    gram: np.ndarray
    label: np.ndarray


def moments(block):
    x, y, w = block
    w = np.ones(len(x)) if w is None else w
    return Moments((x * w[:, None]).T @ x, np.sum(np.zeros(len(x)) if y is None else y * w))


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def chunked(rows=256, x=X, y=Y, w=None, **options):
    return DaskSource(da.from_array(x, chunks=(rows, -1)), y, w, labelled=y is not None, **options)


@pytest.fixture(scope="module")
def client():
    """Two processes with a thread each, on a machine that may be busy.

    One that dies is begun again however long that takes: a cluster gives it up after 15 s, and
    there would never be two again. What no process can do is an error, and does not wait for one
    that could. Without a limit of memory none is paused.
    """
    patient = {
        "deploy.lost-worker-timeout": "1h",
        "scheduler.no-workers-timeout": "1h",
        "scheduler.worker-ttl": "1h",
        "comm.timeouts.connect": "60s",
    }
    with (
        dask.config.set({f"distributed.{name}": value for name, value in patient.items()}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["synchronous", "threads", "processes", "cluster"])
def scheduler(request):
    if request.param == "cluster":
        yield request.getfixturevalue("client")
    elif request.param == "processes":
        with (
            ProcessPoolExecutor(2, get_context("spawn")) as pool,
            dask.config.set(scheduler="processes", pool=pool),
        ):
            yield pool
    else:
        with dask.config.set(scheduler=request.param):
            yield request.param


@pytest.fixture
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


# sums


@given(st.lists(st.floats(-1e10, 1e10), min_size=1, max_size=150))
def test_groups_of_eight_add_up_in_the_order_of_the_balanced_tree(values):
    numbers = [Moments(np.float64(v), np.float64(v)) for v in values]
    parts = numbers
    while len(parts) > 1:
        parts = [_add_statistics(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    assert parts[0] == em.tree_sum(numbers)


@examples(30)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=20).filter(sum), st.integers(1, 100))
def test_chunks_of_any_lengths_hold_the_same_examples(lengths, rows):
    n = sum(lengths)
    chunks = da.from_array(X[:n], chunks=(tuple(lengths), P))
    source = DaskSource(chunks, Y[:n], W[:n], labelled=True)
    with dask.config.set(scheduler="synchronous"):
        for one, other in zip(source.accumulate(moments, rows), moments((X[:n], Y[:n], W[:n]))):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        assert equal(em.join(list(source)), (X[:n], Y[:n], W[:n]))


def capsules():
    def gram_of(block):
        return second_moments(block, range(CLASSES))

    gram = em.accumulate(gram_of, (X, Y, None), 256).gram.sum(0)[None]
    solver = LeastSquares.from_gram(gram)
    model = CapsuleRegression(np.arange(CLASSES)[None], np.full((1, CLASSES), 2), solver)
    weights = 0.1 * np.random.default_rng(1).standard_normal((1, CLASSES, 2, P))
    return model, CapsuleParameters(weights)


def gaussians():
    shares = np.full((1, CLASSES), 1 / CLASSES)
    means = np.random.default_rng(1).standard_normal((1, CLASSES, P))
    covariances = np.tile(np.eye(P), (1, CLASSES, 1, 1))
    return Mixtures(), mixture_parameters(shares, means, covariances)


def without_labels(batch, start):
    return batch[0], batch[2]


class Fine:
    "A model with small blocks."

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["model"], name)

    @property
    def without_solver(self):
        return getattr(self.model, "without_solver", self.model)

    def block_rows(self, parameters):
        return 64


def assert_same_fit(one, other):
    assert equal(one.parameters, other.parameters) and one.n_iter == other.n_iter
    assert np.array_equal(one.history["log_likelihood"], other.history["log_likelihood"])


SETTINGS = {
    "rounds": (em.Round(3, {"threshold": 0.0}), em.Round(2, {"threshold": 0.5})),
    "max_iter": 8,
    "momentum": 0.5,
}


def test_models_learn_the_same_bits_on_every_scheduler(scheduler):
    model, start = capsules()
    fits = [
        em.fit(Fine(model), start, data, validation=data, monitor="validation", **SETTINGS)
        for data in (chunked(512), (X, Y, None))
    ]
    assert_same_fit(*fits)
    model, start = gaussians()
    there = chunked(512, w=W).apply(without_labels)
    assert_same_fit(
        em.fit(Fine(model), start, there, max_iter=4),
        em.fit(Fine(model), start, (X, W), max_iter=4),
    )


# a worker dies


class Deadly(Fine):
    "A model for which a worker dies in the middle of an E-step."

    def __init__(self, model, flag):
        self.model, self.flag, self.passes = model, flag, 0

    @property
    def without_solver(self):
        return self

    def m_step(self, parameters, statistics):
        self.passes += 1
        if self.passes == 3:
            Path(self.flag).touch()
        return self.model.m_step(parameters, statistics)

    def e_step(self, parameters, block, **options):
        try:
            Path(self.flag).unlink()
        except FileNotFoundError:
            return self.model.e_step(parameters, block, **options)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_at_work_changes_no_bit(client, tmp_path):
    client.wait_for_workers(2, timeout=PATIENCE)
    model, start = capsules()
    arrays = da.from_array(X, chunks=(256, -1)), da.from_array(Y, chunks=256)
    x, y = client.persist(arrays)
    distributed.wait([x, y])
    before = set(client.run(os.getpid).values())
    deadly = Deadly(model, tmp_path / "flag")
    fit = em.fit(deadly, start, DaskSource(x, y, labelled=True), **SETTINGS)
    assert before - set(client.run(os.getpid).values()) and not (tmp_path / "flag").exists()
    assert fit.n_iter > 4
    assert_same_fit(fit, em.fit(Fine(model), start, (X, Y, None), **SETTINGS))


# faults


def with_nan(*numbers):
    bad = X.copy()
    bad[list(numbers), 3] = np.nan
    return bad


@dask.delayed(pure=False)
def load(number, fails=None):
    part = slice(CUTS[number], CUTS[number + 1])
    if number == fails:
        raise OSError("it is gone")
    return X[part] * (np.nan if number == 3 else 1), Y[part]


@together("fails", [0, 1, 4])
def test_the_first_bad_chunk_or_batch_is_named(fails, here):
    with pytest.raises(BatchError, match="^batch 3: X contains NaN") as caught:
        chunked(100, with_nan(2950, 317)).accumulate(moments, 64)
    assert caught.value.index == 3
    batches = [load(number, fails) for number in range(5)]
    first = min(fails, 3)
    with pytest.raises(BatchError, match=f"^batch {first}: ") as caught:
        as_source(batches, labelled=True).accumulate(moments, 64)
    assert caught.value.index == first


def test_a_fault_on_a_cluster_comes_with_the_last_good_parameters(client):
    model, start = capsules()
    with pytest.raises(BatchError, match="^batch 1: X contains NaN") as caught:
        em.fit(Fine(model), start, chunked(1024, with_nan(1500)), **SETTINGS)
    assert caught.value.index == 1 and caught.value.fit is None
    batches = [load(number, 2) for number in range(5)]
    with pytest.raises(BatchError, match="^batch 2: OSError: it is gone") as caught:
        em.fit(Fine(model), start, as_source(batches, labelled=True), **SETTINGS)
    assert caught.value.index == 2 and isinstance(caught.value.__cause__, OSError)


def test_errors_of_the_model_stay_what_they_are(here):
    def broken(block):
        raise KeyError("the E-step")

    with pytest.raises(KeyError, match="the E-step"):
        chunked().accumulate(broken, 64)


# what is taken, and what comes back


def lose():
    raise OSError("it is gone")


def first_two(batch):
    return batch[0][:, :2]


def test_futures_are_batches(client):
    halves = [(X[:2048], Y[:2048]), (X[2048:], Y[2048:])]
    want = chunked(2048).accumulate(moments, 64)
    apart = [tuple(client.scatter(list(half))) for half in halves]
    for futures in (client.scatter(halves), client.map(tuple, halves), apart):
        assert equal(as_source(futures, labelled=True).accumulate(moments, 64), want)
    for alone in (client.scatter(X), dask.delayed(X)):
        source = as_source(alone, labelled=False)
        assert isinstance(source, DaskSource) and source.n_samples == N
        assert next(iter(source))[1] is None
    with pytest.raises(BatchError, match="batch 1: .*it is gone"):
        as_source([client.submit(tuple, halves[0]), client.submit(lose)], labelled=True).inspect()


def test_lazy_predictions_hold_what_they_are_made_of(client):
    for make in (
        lambda: client.scatter(X + 1),
        lambda: [client.submit(np.add, X, 1)],
        lambda: client.persist(da.from_array(X + 1)),
        lambda: [tuple(client.scatter([X + 1, Y]))],
    ):
        lazy = as_source(make(), labelled=None).map(first_two, np.float64, (2,))
        gc.collect()
        client.run_on_scheduler(str)  # what was released has gone by then
        assert np.array_equal(lazy.compute(), X[:, :2] + 1)


def test_chunks_without_examples_and_of_unknown_lengths(here):
    limit = np.sort(X[:, 0])[-60]
    keep = X[:, 0] > limit
    x, y, w = (da.from_array(a, chunks=(100, *a.shape[1:])) for a in (X, Y, W))
    mask = x[:, 0] > limit
    for labels, weights in ((y[mask], w[mask]), (Y[keep], W[keep]), (y[mask], W[keep])):
        source = DaskSource(x[mask], labels, weights, labelled=True)
        assert source.n_features == P and source.n_samples == keep.sum()
        assert equal(em.join(list(source)), (X[keep], Y[keep], W[keep]))
    assert source.lengths == tuple(np.add.reduceat(keep.astype(int), range(0, N, 100)))
    lazy = DaskSource(x[mask]).map(first_two, np.float64, (2,))
    assert np.isnan(lazy.shape[0]) and lazy.shape[1:] == (2,)
    assert np.array_equal(lazy.compute(), X[keep, :2])
    with pytest.raises(ValueError, match=r"y has 1 chunks and X has 30.*compute_chunk_sizes"):
        DaskSource(x[mask], da.from_array(Y, chunks=N)[Y >= 0], labelled=True)


def test_images_are_laid_out_as_rows(here):
    images = da.from_array(X.reshape(N, 4, 2), chunks=(500, 3, 1))
    source = DaskSource(images, Y, labelled=True, flat=True)
    assert equal(source.accumulate(moments, 64), chunked(500).accumulate(moments, 64))


def test_only_the_partitions_that_are_wanted_are_computed(here):
    bad = chunked(256, with_nan(300), None).map(first_two, np.float64, (2,))
    assert bad.chunks == ((256,) * 11 + (184,), (2,))
    assert np.array_equal(bad[:256].compute(), X[:256, :2])
    with pytest.raises(BatchError, match="batch 1: X contains NaN"):
        bad.compute()


@together(
    "said, make",
    [
        (r"X has shape \(3000,\)", lambda: DaskSource(da.from_array(X[:, 0]))),
        ("X holds no delayed batches", lambda: DaskSource([])),
        (r"da.concatenate\(X\)", lambda: DaskSource([da.from_array(X)])),
        ("y and sample_weight belong", lambda: DaskSource([load(0)], Y, labelled=True)),
        ("y is None, but labels", lambda: DaskSource(da.from_array(X), labelled=True)),
        (r"sample_weight has shape \(2999,\)", lambda: chunked(w=da.from_array(W[1:]))),
        (r"y has shape \(3000, 1\)", lambda: chunked(y=Y[:, None])),
        ("X must hold real numbers", lambda: chunked(x=X.astype(complex))),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(said, make, here):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def first_row(batch, start):
    return np.full_like(batch[0], start), batch[1], batch[2]


def test_blocks_lie_within_partitions(here):
    starts = chunked(256).rebatch(100).apply(first_row).collect(first_two)[:, 0]
    within = np.arange(N) % 256 // 100 * 100
    assert np.array_equal(starts, within + np.arange(N) // 256 * 256)
