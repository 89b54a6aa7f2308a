"""Dask: the same bits on every scheduler and whoever was faster; a worker that dies changes
nothing; parameters travel once a pass.
"""

import gc
import logging
import os
import pickle
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
from sklearn.base import clone

from capslit import CapsuleClassifier, em
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.em.statistics import BatchError
from capslit.mixtures.gaussian import Mixtures, mixture_parameters
from capslit.data.open import as_source

dask = pytest.importorskip("dask", reason="Dask is not installed; pip install capslit[dask]")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from capslit.data.dask import DaskSource, _add_statistics  # noqa: E402

N, P, CLASSES = 3000, 8, 3
rng = np.random.default_rng(0)
Y = rng.integers(0, CLASSES, N)
X = rng.standard_normal((N, P)) + 2 * rng.standard_normal((CLASSES, P))[Y]
W = rng.random(N)


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
    """Two processes with a thread each, which do not take one another's data, on a machine that may
    be busy.

    One that dies is begun again however long that takes: a cluster gives it up after 15 s, and
    there would never be two again. What no process can do is an error, and does not wait for one
    that could. Without a limit of memory none is paused, and what one holds is not unpickled again.
    """
    patient = {
        "deploy.lost-worker-timeout": "1h",
        "scheduler.no-workers-timeout": "1h",
        "scheduler.worker-ttl": "1h",
        "scheduler.work-stealing": False,
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


@pytest.fixture
def two(client):
    """The client, when both processes are there: after ten minutes, if one does not come, with an
    error.
    """
    client.wait_for_workers(2, timeout=PATIENCE)
    return client


def dealt_out(client, array):
    "A persisted Dask array of blocks of 256 examples, which the workers hold by turns."
    workers = list(client.run(os.getpid))

    def place(key):
        return workers[key[1] % len(workers)]

    with dask.annotate(workers=place, allow_other_workers=True):  # others, when one has died
        blocks = da.from_array(array, chunks=(256, *array.shape[1:]))
    blocks = client.persist(blocks, optimize_graph=False)  # which would lose the annotations
    distributed.wait(blocks)
    assert all(held_by == (place(key),) for key, held_by in client.who_has(blocks).items())
    return blocks


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


@together("weighted", [False, True])
@together("rows", [64, 128, 256, 512, 1024, 4096])
def test_chunks_of_a_power_of_two_of_blocks_add_up_to_the_bits_of_memory(rows, weighted, here):
    w = W if weighted else None
    assert equal(chunked(rows, w=w).accumulate(moments, 64), em.accumulate(moments, (X, Y, w), 64))


class Number(NamedTuple):
    value: np.ndarray


@given(st.lists(st.floats(-1e10, 1e10), min_size=1, max_size=150))
def test_groups_of_eight_add_up_in_the_order_of_the_balanced_tree(values):
    numbers = [Number(np.float64(v)) for v in values]
    parts = numbers
    while len(parts) > 1:
        parts = [_add_statistics(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    assert parts[0] == em.tree_sum(numbers)


@examples(30)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=20).filter(sum), st.integers(1, 100))
def test_chunks_of_any_lengths_hold_the_same_examples(lengths, rows):
    n = sum(lengths)
    source = DaskSource(
        da.from_array(X[:n], chunks=(tuple(lengths), P)), Y[:n], W[:n], labelled=True
    )
    with dask.config.set(scheduler="synchronous"):
        for one, other in zip(source.accumulate(moments, rows), moments((X[:n], Y[:n], W[:n]))):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        assert equal(em.join(list(source)), (X[:n], Y[:n], W[:n]))


def capsules(x=X, y=Y, dim=2):
    gram = em.accumulate(
        lambda block: second_moments(block, range(CLASSES)), (x, y, None), 256
    ).gram.sum(0)[None]
    model = CapsuleRegression(
        np.arange(CLASSES)[None], np.full((1, CLASSES), dim), LeastSquares.from_gram(gram)
    )
    return model, CapsuleParameters(
        0.1 * np.random.default_rng(1).standard_normal((1, CLASSES, dim, x.shape[1]))
    )


def without_labels(batch, start):
    return batch[0], batch[2]


def gaussians():
    means = np.random.default_rng(1).standard_normal((1, CLASSES, P))
    return Mixtures(), mixture_parameters(
        np.full((1, CLASSES), 1 / CLASSES), means, np.tile(np.eye(P), (1, CLASSES, 1, 1))
    )


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


def same_fit(one, other):
    return (
        equal(one.parameters, other.parameters)
        and one.n_iter == other.n_iter
        and np.array_equal(one.history["log_likelihood"], other.history["log_likelihood"])
    )


SETTINGS = {
    "rounds": (em.Round(3, {"threshold": 0.0}), em.Round(2, {"threshold": 0.5})),
    "max_iter": 8,
    "momentum": 0.5,
}


def test_models_learn_the_same_bits_on_every_scheduler(scheduler):
    model, start = capsules()
    source = chunked(512)
    fit = em.fit(Fine(model), start, source, validation=source, monitor="validation", **SETTINGS)
    assert same_fit(
        fit,
        em.fit(
            Fine(model),
            start,
            (X, Y, None),
            validation=(X, Y, None),
            monitor="validation",
            **SETTINGS,
        ),
    )
    model, start = gaussians()
    fit = em.fit(Fine(model), start, chunked(512, w=W).apply(without_labels), max_iter=4)
    assert same_fit(fit, em.fit(Fine(model), start, (X, W), max_iter=4))


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


@pytest.mark.parametrize("persisted", [True, False])
def test_a_worker_that_is_killed_at_work_changes_no_bit(two, tmp_path, persisted):
    model, start = capsules()
    arrays = da.from_array(X, chunks=(256, -1)), da.from_array(Y, chunks=256)
    x, y = two.persist(arrays) if persisted else arrays
    distributed.wait([x, y])
    before = two.run(os.getpid)
    fit = em.fit(
        Deadly(model, tmp_path / "flag"), start, DaskSource(x, y, labelled=True), **SETTINGS
    )
    assert (
        len(set(before.values()) - set(two.run(os.getpid).values())) == 1
        and not (tmp_path / "flag").exists()
    )
    assert fit.n_iter > 4 and same_fit(fit, em.fit(Fine(model), start, (X, Y, None), **SETTINGS))


def test_the_classifier_ends_with_the_same_bits_when_a_waiting_worker_is_killed(two, monkeypatch):
    learner = CapsuleClassifier.paper(
        2, patience=(4, 2), thresholds=(0.5, 0.0), early_stopping=False
    )
    x, y = dealt_out(two, X), dealt_out(two, Y)
    expected = clone(learner).fit(x, y)
    before, passes, m_step = two.run(os.getpid), [], CapsuleRegression.m_step

    def fatal(self, parameters, statistics):
        passes.append(self)
        if len(passes) == 3:
            os.kill(list(before.values())[0], signal.SIGKILL)
        return m_step(self, parameters, statistics)

    monkeypatch.setattr(CapsuleRegression, "m_step", fatal)
    found = clone(learner).fit(x, y)
    assert len(passes) > 4 and len(set(before.values()) - set(two.run(os.getpid).values())) == 1
    assert found.coef_.tobytes() == expected.coef_.tobytes() and found.n_iter_ == expected.n_iter_
    assert np.array_equal(found.predict(x).compute(), expected.predict(X)) and found.score(
        x, y
    ) == expected.score(X, Y)


# what travels

ARRIVED = []


def arrive():
    ARRIVED.append(os.getpid())
    return Parcel()


class Parcel:
    "Something that notes each time that it arrives somewhere."

    def __reduce__(self):
        return arrive, ()

    def __call__(self, block):
        return moments(block)


def arrived():
    number = len(ARRIVED)
    ARRIVED.clear()
    return number


def received(dask_worker):
    "The keys of what a worker got from others."
    keys = [key for transfer in dask_worker.transfer_incoming_log for key in transfer["keys"]]
    dask_worker.transfer_incoming_log.clear()
    return [key[0] if isinstance(key, tuple) else key for key in keys]


def test_parameters_travel_once_a_pass_to_each_worker_that_holds_data_which_stay(two):
    x, y = dealt_out(two, X), dealt_out(two, Y)
    source = DaskSource(x, y, labelled=True).select(np.arange(N) % 7 > 0)
    source.accumulate(moments, 64)
    two.run(arrived), two.run(received)
    for _ in range(3):
        source.accumulate(Parcel(), 64)
        assert list(two.run(arrived).values()) == [1, 1]
    keys = {key for keys in two.run(received).values() for key in keys}
    assert not {x.name, y.name} & keys
    assert any(key.startswith("_PartitionTask") for key in keys)


# faults


def with_nan(*numbers):
    bad = X.copy()
    for number in numbers:
        bad[number, 3] = np.nan
    return bad


def test_the_first_bad_chunk_is_named(here):
    with pytest.raises(BatchError, match="^batch 3: X contains NaN") as caught:
        chunked(100, with_nan(2950, 317)).accumulate(moments, 64)
    assert caught.value.index == 3


def test_a_fault_on_a_cluster_comes_with_the_last_good_parameters(two):
    model, start = capsules()
    with pytest.raises(BatchError, match="^batch 1: X contains NaN") as caught:
        em.fit(Fine(model), start, chunked(1024, with_nan(1500)), **SETTINGS)
    assert caught.value.index == 1 and caught.value.fit is None
    with pytest.raises(BatchError, match="^batch 2: OSError: it is gone") as caught:
        em.fit(Fine(model), start, as_source(batches(fails=2), labelled=True), **SETTINGS)
    assert caught.value.index == 2 and isinstance(caught.value.__cause__, OSError)


CUTS = np.array([0, 500, 501, 1800, 2500, N])


@dask.delayed(pure=False)
def load(number, fails, changes, weighted):
    part = slice(CUTS[number], CUTS[number + 1])
    if number == fails:
        raise OSError("it is gone")
    batch = (X[part], Y[part], W[part])[: 2 + weighted]
    return changes(batch) if changes and number == 3 else batch


def batches(fails=None, changes=None, weighted=False):
    return [load(number, fails, changes, weighted) for number in range(len(CUTS) - 1)]


@together(
    ("changes", "said"),
    [
        (lambda b: (b[0][:0], b[1][:0]), "with no length of 0"),
        (lambda b: (b[0][:, :5], b[1]), "X has 5 features"),
        (lambda b: (b[0] * np.inf, b[1]), "infinity"),
        (lambda b: (b[0], b[1][1:]), "y has shape"),
        (
            lambda b: (b[0], b[1], np.ones(len(b[0]))),
            "sample_weight must come with every batch or with none",
        ),
        (lambda b: b[:1], "batch of 1 entries"),
        (lambda b: (b[0].astype(np.complex128), b[1]), "complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_delayed_batch_is_named(changes, said, here):
    with np.errstate(invalid="ignore"), pytest.raises(BatchError, match="^batch 3: ") as caught:
        as_source(batches(changes=changes), labelled=True).accumulate(moments, 64)
    assert caught.value.index == 3 and said in str(caught.value)


@together("fails", [0, 1, 4])
def test_the_first_delayed_batch_that_raises_is_named(fails, here):
    source = as_source(batches(fails=fails, changes=lambda b: (b[0] * np.nan, b[1])), labelled=True)
    with pytest.raises(BatchError, match=f"^batch {min(fails, 3)}: ") as caught:
        source.accumulate(moments, 64)
    assert caught.value.index == min(fails, 3)


def test_errors_of_the_model_stay_what_they_are(here):
    def broken(block):
        raise KeyError("the E-step")

    with pytest.raises(KeyError, match="the E-step"):
        chunked().accumulate(broken, 64)


def test_a_batch_error_can_be_sent():
    error = pickle.loads(pickle.dumps(BatchError(7, "is empty")))
    assert error.index == 7 and str(error) == "batch 7: is empty" and error.fit is None


# what is taken, and what comes back


def test_delayed_batches_are_the_examples(here):
    source = as_source(batches(weighted=True), labelled=True)
    assert (source.n_features, source.dtype, source.n_samples, source.lengths) == (
        P,
        np.float64,
        N,
        tuple(np.diff(CUTS)),
    )
    assert equal(em.join(list(source)), (X, Y, W))
    pairs = [
        (dask.delayed(X[:100]), dask.delayed(Y[:100])),
        (dask.delayed(X[100:300]), dask.delayed(Y[100:300])),
    ]
    assert equal(em.join([b[:2] for b in DaskSource(pairs, labelled=True)]), (X[:300], Y[:300]))
    alone = DaskSource(dask.delayed(X), labelled=False)
    assert alone.n_samples == N and list(alone)[0][1] is None


def test_tuples_of_delayed_arrays_are_batches(here):
    parts = [tuple(dask.delayed(a[i : i + 1000]) for a in (X, Y)) for i in range(0, N, 1000)]
    assert equal(
        as_source(parts, labelled=True).accumulate(moments, 64),
        chunked(1000).accumulate(moments, 64),
    )


def test_futures_are_batches(client):
    halves = [(X[:2048], Y[:2048]), (X[2048:], Y[2048:])]
    want = chunked(2048).accumulate(moments, 64)
    apart = [tuple(client.scatter(list(half))) for half in halves]
    for futures in (client.scatter(halves), client.map(tuple, halves), apart):
        assert equal(as_source(futures, labelled=True).accumulate(moments, 64), want)
    alone = as_source(client.scatter(X), labelled=False)
    assert isinstance(alone, DaskSource) and alone.n_samples == N
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
        client.run_on_scheduler(str)  # and what was released has gone by then
        assert np.array_equal(lazy.compute(), X[:, :2] + 1)


def lose():
    raise OSError("it is gone")


def test_columns_in_several_chunks_and_labels_cut_otherwise(here):
    source = DaskSource(
        da.from_array(X, chunks=(256, 3)),
        da.from_array(Y, chunks=700),
        da.from_array(W, chunks=11),
        labelled=True,
    )
    assert source.lengths == (256,) * 11 + (184,)
    assert equal(source.accumulate(moments, 64), chunked(256, w=W).accumulate(moments, 64))


def test_unknown_chunk_sizes(here):
    limit = np.sort(X[:, 0])[-60]
    keep = X[:, 0] > limit
    x, y, w = (da.from_array(a, chunks=(100, *a.shape[1:])) for a in (X, Y, W))
    mask = x[:, 0] > limit
    for labels, weights in ((y[mask], w[mask]), (Y[keep], W[keep]), (y[mask], W[keep])):
        source = DaskSource(x[mask], labels, weights, labelled=True)
        assert source.n_features == P and source.n_samples == keep.sum()
        assert equal(em.join(list(source)), (X[keep], Y[keep], W[keep]))
    lengths = np.add.reduceat(keep.astype(int), range(0, N, 100))
    assert source.lengths == tuple(lengths) and 0 in source.lengths
    lazy = DaskSource(x[mask]).map(first_two, np.float64, (2,))
    assert (
        np.isnan(lazy.shape[0])
        and lazy.shape[1:] == (2,)
        and np.array_equal(lazy.compute(), X[keep, :2])
    )
    with pytest.raises(ValueError, match=r"y has 1 chunks and X has 30.*compute_chunk_sizes"):
        DaskSource(x[mask], da.from_array(Y, chunks=N)[Y >= 0], labelled=True)


def first_two(batch):
    return batch[0][:, :2]


def test_labels_in_a_zarr_array(tmp_path, here):
    zarr = pytest.importorskip("zarr")
    stored = zarr.open(str(tmp_path / "x"), mode="w", shape=X.shape, chunks=(300, P), dtype=X.dtype)
    labels = zarr.open(str(tmp_path / "y"), mode="w", shape=Y.shape, chunks=(170,), dtype=Y.dtype)
    stored[:], labels[:] = X, Y
    assert equal(
        DaskSource(da.from_zarr(stored), labels, labelled=True).accumulate(moments, 64),
        chunked(300).accumulate(moments, 64),
    )


@together("dtype", [np.float32, np.float16, np.int8, bool])
def test_precision_is_that_of_the_other_sources(dtype, here):
    x = X.astype(dtype)
    source = DaskSource(da.from_array(x, chunks=(500, -1)))
    assert (
        source.dtype == as_source([x], labelled=False).dtype
        and list(source)[0][0].dtype == source.dtype
    )
    assert np.array_equal(
        np.concatenate([batch[0] for batch in source]),
        as_source([x], labelled=False).take(np.arange(N))[0],
    )


def test_images_are_laid_out_as_rows(here):
    images = da.from_array(X.reshape(N, 4, 2), chunks=(500, 3, 1))
    assert equal(
        DaskSource(images, Y, labelled=True, flat=True).accumulate(moments, 64),
        chunked(500).accumulate(moments, 64),
    )


def test_inspection(here):
    names = np.array(["cat", "dog", "zebra"])[Y]
    source = DaskSource(da.from_array(X, chunks=(256, -1)), names, W, labelled=True)
    found, local = source.inspect(), as_source([(X, names, W)], labelled=True).inspect()
    assert source.inspect() is found
    assert (found.n_samples, found.largest) == (N, local.largest)
    for name in ("classes", "counts", "weight", "labels", "weights"):
        assert np.array_equal(getattr(found, name), getattr(local, name)), name
    assert found.labels.dtype == np.uint8
    assert source.inspect(["cat", "cow", "dog", "zebra"]).counts.tolist() == [
        found.counts[0],
        0,
        *found.counts[1:],
    ]
    with pytest.raises(ValueError, match="not among the classes"):
        source.inspect(["cat", "dog"])
    assert np.allclose(DaskSource(da.from_array(X, chunks=(256, -1))).inspect().weight, N)


def numbered(batch, start):
    return np.arange(start, start + len(batch[0]))[:, None] + batch[0] * 0.0, *batch[1:]


def test_steps(here):
    source, mask = chunked(256, w=W), np.arange(N) % 3 == 1
    mask[256:512] = False
    some = source.select(mask)
    assert (some.n_samples, some.n_features) == (mask.sum(), P) and some.lengths[1] == 0
    assert equal(em.join(list(some)), (X[mask], Y[mask], W[mask]))
    assert some.apply(numbered).collect(first_two)[:, 0].tolist() == list(range(mask.sum()))
    assert (
        source.apply(numbered).select(mask).collect(first_two)[:, 0].tolist()
        == np.flatnonzero(mask).tolist()
    )
    rows = np.flatnonzero(mask)[[0, 5, 6, 700]]
    assert equal(source.take(rows), (X[rows], Y[rows], W[rows]))
    assert equal(some.take([0, 5, 6, 700]), (X[rows], Y[rows], W[rows]))
    with pytest.raises(ValueError, match="mask has shape .* a truth value for each example"):
        source.select(mask[1:])
    with pytest.raises(ValueError, match="index must hold sorted whole numbers"):
        source.take([1, N])
    with pytest.raises(
        BatchError, match="batch 0: the function that is applied makes 2 examples of 256"
    ):
        source.apply(lambda batch, start: tuple(a[:2] for a in batch)).accumulate(moments, 64)
    nothing = source.select(np.zeros(N, bool))
    with pytest.raises(ValueError, match="X holds no examples"):
        nothing.accumulate(moments, 64)


def test_predictions_are_lazy(here):
    lazy = chunked(256, y=None).map(first_two, np.float64, (2,))
    assert (
        isinstance(lazy, da.Array)
        and lazy.chunks == ((256,) * 11 + (184,), (2,))
        and np.array_equal(lazy.compute(), X[:, :2])
    )
    bad = chunked(256, with_nan(300), None).map(first_two, np.float64, (2,))
    assert np.array_equal(bad[:256].compute(), X[:256, :2])
    with pytest.raises(BatchError, match="batch 1: X contains NaN"):
        bad.compute()


def test_collect_into_an_array(here):
    out = np.empty((N, 2))
    assert chunked().collect(first_two, 100, out) is out and np.array_equal(out, X[:, :2])


@together(
    ("make", "error", "said"),
    [
        (lambda: DaskSource(da.from_array(X[:, 0])), ValueError, r"X has shape \(3000,\)"),
        (lambda: DaskSource(X), TypeError, "X is a ndarray; pass a Dask array"),
        (lambda: DaskSource([]), TypeError, "X holds no delayed batches"),
        (lambda: DaskSource([da.from_array(X)]), TypeError, r"da.concatenate\(X\)"),
        (
            lambda: DaskSource(batches(), Y, labelled=True),
            ValueError,
            "y and sample_weight belong in the batches of X",
        ),
        (
            lambda: DaskSource(da.from_array(X), labelled=True),
            ValueError,
            "y is None, but labels are needed",
        ),
        (
            lambda: chunked(y=Y[1:]),
            ValueError,
            r"y has shape \(2999,\), but shape \(3000,\) is needed",
        ),
        (lambda: chunked(w=da.from_array(W[1:])), ValueError, r"sample_weight has shape \(2999,\)"),
        (lambda: chunked(y=Y[:, None]), ValueError, r"y has shape \(3000, 1\)"),
        (lambda: chunked(x=X.astype(complex)), TypeError, "X must hold real numbers"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(make, error, said, here):
    with pytest.raises(error, match=said):
        make()


def test_blocks_within_partitions(here):
    fine = chunked(256).rebatch(100)
    assert (
        equal(em.join(list(fine.apply(first_rows))), em.join(list(chunked(256).apply(first_rows))))
        is False
    )
    starts = fine.apply(first_rows).collect(first_two)[:, 0].astype(int)
    ends = np.minimum(np.arange(N) % 256 // 100 * 100 + np.arange(N) // 256 * 256, N)
    assert np.array_equal(starts, ends)


def first_rows(batch, start):
    return np.full_like(batch[0], start), batch[1], batch[2]
