"""The same bits wherever the data live: PLACES puts the same examples somewhere, and FAMILIES learn
from them there.
"""

import functools
import os
import pickle
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import NO_WARNINGS, PATIENCE, together
from conftest import classes as groups
from estimators import METHODS
from sklearn.base import clone

from capslit import (
    CapsuleClassifier,
    CompositionalModel,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
    arrays,
    em,
)
from capslit.capsules.settings import Incremental, PassiveAggressive, Stepwise
from capslit.composition import Transforms
from capslit.data import arrow_source, as_source, sources
from capslit.em.statistics import BatchError
from capslit.estimator import training_data
from capslit.estimator.training_data import TrainingData, is_tensor

pytestmark = [
    pytest.mark.filterwarnings(*NO_WARNINGS, "ignore:X does not have valid feature names"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed|dask|zarr"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
ARCHITECTURES = ("multiclass", "ovr", "ovo")
CUTS = (1, 500, 501, 1800)  # lengths that fit no block
ROWS = 512  # of a partition: a power of two of the blocks
FAR = strict.Device("device1")  # refuses to hand its arrays to NumPy


# ── places ──


class Stored:
    "A stand-in for a zarr array: shape, type, chunks and slices, and a record of what was read."

    def __init__(self, array, chunks=None):
        self.array, self.reads = array, []
        self.shape, self.dtype = array.shape, array.dtype
        if chunks:
            self.chunks = (chunks, *array.shape[1:])

    def __getitem__(self, rows):
        self.reads.append((rows.start, rows.stop))
        return self.array[rows].copy()


class Anew:
    "Batches of another iterator on each pass."

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def stream(*columns, cuts=CUTS):
    "Batches of the columns that are not None."
    columns = [a for a in columns if a is not None]
    ends = [0, *(cut for cut in cuts if cut < len(columns[0])), len(columns[0])]
    return [tuple(a[i:j] for a in columns) for i, j in pairwise(ends)]


def careless(*columns):
    "A stream that fills the same arrays again and again."
    batches = stream(*columns, cuts=range(300, len(columns[0]), 300))
    same = tuple(a.copy() for a in batches[0])
    for batch in batches:
        for a, part in zip(same, batch):
            a[: len(part)] = part
        yield tuple(a[: len(batch[0])] for a in same)


def mapped(folder, a, name="X.npy", mode="r"):
    np.save(folder / name, a)
    return np.load(folder / name, mmap_mode=mode)


def zarr_of(folder, X):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed; pip install capslit[zarr]")
    chunks = (90, X.shape[1])
    array = zarr.create_array(str(folder / "x"), shape=X.shape, chunks=chunks, dtype=X.dtype)
    array[:] = X
    return array


def arrow(folder, X, y, w, form="path"):
    "A source of a table, which is a file, several of them, or in memory."
    pa = pytest.importorskip("pyarrow", reason="pip install capslit[parquet]")
    pytest.importorskip("pyarrow.parquet")
    columns = {f"x{k}": column for k, column in enumerate(X.T)} | {"label": y, "weight": w}
    table = pa.table({name: a for name, a in columns.items() if a is not None})
    opened = folder / "table.parquet"
    pa.parquet.write_table(table, opened, row_group_size=170)
    if form == "paths":
        opened = [folder / f"{part}.parquet" for part in range(-(-len(X) // 400))]
        for part, path in enumerate(opened):
            pa.parquet.write_table(table.slice(400 * part, 400), path, row_group_size=50)
    elif form == "ParquetFile":
        opened = pa.parquet.ParquetFile(opened)
    elif form == "record batch":
        opened = table.combine_chunks().to_batches()[0]
    target = None if y is None else "label"
    weight = None if w is None else "weight"
    return (arrow_source(opened, target, weight=weight, batch_rows=64),)


def dask_of(a, chunks=ROWS):
    import dask.array as da

    return None if a is None else da.from_array(a, chunks=(chunks, *a.shape[1:]))


def of_unknown_lengths(folder, *columns):
    "Dask arrays whose rows some condition has chosen, here all of them."
    X, *others = map(dask_of, columns)
    keep = X[:, 0] == X[:, 0]
    return X[keep], *(None if a is None else a[keep] for a in others)


def delayed(*columns):
    import dask

    return [dask.delayed(b) for b in stream(*columns, cuts=range(ROWS, 10**5, ROWS))]


def torch_of(a):
    torch = pytest.importorskip("torch", reason="pip install capslit[torch]")
    return None if a is None else torch.asarray(np.array(a))


def strict_of(a):
    return None if a is None else strict.asarray(a, device=FAR)


INPUTS = {  # labels and weights stay in memory
    "memory map": mapped,
    "Fortran memory map": lambda f, X: mapped(f, np.asfortranarray(X)),
    "private memory map": lambda f, X: mapped(f, X, mode="c"),
    "part of a memory map": lambda f, X: mapped(f, np.pad(X, ((5, 3), (2, 1))))[5:-3, 2:-1],
    "view of a memory map": lambda f, X: np.asarray(mapped(f, X)),
    "zarr": zarr_of,
    "sparse": lambda f, X: sp.csr_array(X),
    "strict": lambda f, X: strict_of(X),
    "torch": lambda f, X: torch_of(X),
}
STREAMS = {
    "function": lambda *columns: lambda: iter(stream(*columns)),
    "careless function": lambda *columns: lambda: careless(*columns),
    "object": lambda *columns: Anew(stream(*columns)),
    "list": stream,
    "list of lists": lambda *columns: list(map(list, stream(*columns))),
    "list of other arrays": lambda *columns: [
        tuple(map(strict.asarray, batch)) for batch in stream(*columns)
    ],
    "delayed": delayed,
}
PLACES = {
    **{name: lambda f, X, y, w, to=to: (to(f, X), y, w) for name, to in INPUTS.items()},
    **{name: lambda f, *a, to=to: (to(*a),) for name, to in STREAMS.items()},
    "labels in memory maps": lambda f, X, y, w: (
        mapped(f, X),
        mapped(f, y, "y.npy"),
        mapped(f, w, "w.npy"),
    ),
    "stored": lambda f, X, y, w: (Stored(X), Stored(y), w),
    "stored in chunks": lambda f, X, y, w: (Stored(X, 700), Stored(y, 33), w),
    "list of memory maps": lambda f, X, y, w: (
        [(mapped(f, x, f"{len(x)}.npy"), *others) for x, *others in stream(X, y, w, cuts=(1000,))],
    ),
    "source and columns": lambda f, X, y, w: (as_source(mapped(f, X), labelled=False), y, w),
    "Parquet file": arrow,
    **{form: partial(arrow, form=form) for form in ("paths", "ParquetFile", "record batch")},
    "Dask arrays": lambda f, *columns: tuple(map(dask_of, columns)),
    "Dask arrays cut otherwise": lambda f, X, y, w: (
        dask_of(X).rechunk({1: 3}),
        dask_of(y, 700),
        dask_of(w, 11),
    ),
    "unknown lengths": of_unknown_lengths,
}
IN_MEMORY = ("sparse", "strict", "torch")
CLUSTERED = [name for name in PLACES if "Dask" in name or name.startswith(("delayed", "unknown"))]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    "Dask computes here and now; what its sources are to do can be sent to other processes."
    dask = pytest.importorskip("dask", reason="pip install capslit[dask]")
    from capslit.data.dask import DaskSource

    def travelling(original):
        def method(self, function, *args):
            return original(self, pickle.loads(pickle.dumps(function)), *args)

        return method

    for name in ("accumulate", "apply", "map", "collect"):
        monkeypatch.setattr(DaskSource, name, travelling(getattr(DaskSource, name)))
    with dask.config.set(scheduler="synchronous"):
        yield


# ── sources ──

rng = np.random.default_rng(0)
X = rng.standard_normal((3000, 37)).astype(np.float32)
Y, W = rng.integers(0, 4, 3000), rng.random(3000)
W32 = W.astype(np.float32)


class Moments(NamedTuple):
    gram: np.ndarray
    label: np.ndarray


def moments(block):
    x, y, w = block
    w = np.ones(len(x), x.dtype) if w is None else w
    return Moments((x * w[:, None]).T @ x, np.sum(np.zeros(len(x)) if y is None else y))


@pytest.fixture(params=[name for name in PLACES if name not in IN_MEMORY])
def source(request, tmp_path, monkeypatch):
    "Each kind of source, in chunks of about 100 rows."
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    return as_source(*PLACES[request.param](tmp_path, X, Y, W), labelled=True)


def is_dask(source):
    return hasattr(source, "map")


def test_a_source_holds_the_examples_in_order_and_its_sums_have_the_same_bits(source):
    batches = list(source)
    assert all(type(a) is np.ndarray for batch in batches for a in batch) and len(batches) > 1
    for found, expected in zip(em.join(batches), (X, Y, W32)):
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    assert (source.n_samples, source.n_features, source.dtype) == (3000, 37, np.float32)
    found = source.inspect()
    assert source.inspect() is found and (found.n_samples, found.largest) == (3000, abs(X).max())
    assert found.classes.tolist() == [0, 1, 2, 3] and np.array_equal(found.weights, W32)
    assert found.labels.dtype == np.uint8 and np.array_equal(found.labels, Y)
    assert found.counts.tolist() == np.bincount(Y).tolist()
    assert np.allclose(found.weight, np.bincount(Y, W32))
    wider = source.inspect([3, 7, 0, 1, 2])
    assert wider.counts.tolist() == [found.counts[3], 0, *found.counts[:3]]
    assert np.array_equal(wider.classes[wider.labels], Y)
    with pytest.raises(ValueError, match=r"labels \[3\] are not among the classes"):
        source.inspect([0, 1, 2])
    with em.threads(2) as pool:
        for rows in (64, 512) if is_dask(source) else (64, 512, 5000):
            expected = em.accumulate(moments, (X, Y, W32), rows)
            for sums in (
                em.accumulate(moments, source, rows),
                source.accumulate(moments, rows, pool),
            ):
                assert all(map(np.array_equal, sums, expected))


def numbered(batch, start, offset=0):
    x, _, w = batch
    return 2 * x, start + offset + np.arange(len(x)), w


def inputs(batch):
    return batch[0]


def second(batch):
    return batch[1]


def short(batch, start):
    return (batch[0][:0],)


def fussy(batch, start):
    if start > 100:
        raise ValueError("y holds the label 9")
    return batch


def test_sources_from_sources(source):
    mask = np.random.default_rng(5).random(3000) < 0.3
    mask[:600] = False  # whole batches without an example
    rows = np.flatnonzero(mask)
    part = source.select(mask)
    assert np.array_equal(part.collect(inputs), X[mask]) and part.n_samples == mask.sum()
    assert np.array_equal(part.inspect().labels, Y[mask])
    assert np.array_equal(source.apply(numbered).select(mask).collect(second), rows)
    applied = part.apply(partial(numbered, offset=5))
    assert np.array_equal(applied.collect(second), np.arange(len(rows)) + 5)
    assert np.array_equal(applied.collect(inputs), 2 * X[mask])
    assert (applied.n_features, applied.dtype) == (37, np.float32)
    chosen = X[mask], Y[mask], W32[mask]
    for found, expected in zip(source.take(rows), chosen):
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    assert np.array_equal(part.take([0, 5, 300])[0], X[rows[[0, 5, 300]]])
    # Single precision: sums of 3,000 products in another order
    gram, expected = (em.accumulate(moments, data, 64).gram for data in (part, chosen))
    if is_dask(source):
        rounding = 4 * np.finfo(np.float32).eps * np.abs(expected).max()
        assert np.abs(gram - expected).max() < rounding
    else:
        assert np.allclose(gram, expected, rtol=1e-5)
        assert np.array_equal(source.collect(inputs), X)
        even = source.rebatch(256)
        assert [len(batch[0]) for batch in even] == [256] * 11 + [184]
        assert np.array_equal(even.take(rows)[0], X[mask])
        lengths = source.collect(lambda batch: np.full(len(batch[0]), len(batch[0])), rows=700)
        assert lengths.tolist() == [700] * 2800 + [200] * 200
    for wrong in ([5, 3000], [], [7, 5]):
        with pytest.raises(ValueError, match="index has shape|sorted whole numbers from 0 to 2999"):
            source.take(np.array(wrong, int))
    for wrong in (mask[:-1], mask.astype(int)):
        with pytest.raises(ValueError, match="mask"):
            source.select(wrong)
    for change, said in (
        (fussy, r"\d+: y holds the label 9"),
        (short, "0: the function that is applied makes 0 exam"),
    ):
        with pytest.raises(BatchError, match=f"^batch {said}"):
            source.apply(change).inspect()
    with pytest.raises(ValueError, match="(X|data) holds no (examples|batches)"):
        source.select(np.zeros(3000, bool)).accumulate(moments, 64)


@together("dtype", ["f2", "f4", "f8", "i1", "u2", "?", ">f4", ">f8"])
@together("place", ["memory map", "zarr", "function", "record batch", "Dask arrays", "delayed"])
def test_numbers_become_what_they_become_in_memory(place, dtype, tmp_path):
    if place == "record batch" and dtype[0] == ">":
        return  # Arrow has the order of this machine
    values = np.clip(100 * np.abs(X[:200]), 0, 100).astype(dtype)
    source = as_source(*PLACES[place](tmp_path, values, Y[:200], W[:200]), labelled=True)
    wanted = values.astype(np.float32 if dtype == "f4" else np.float64)
    found = source.collect(inputs)
    assert source.dtype == found.dtype == wanted.dtype and np.array_equal(found, wanted)


# ── estimators ──

N = 700
Z, GROUP = groups(N, 6, 4)
Z *= 0.8
NAMES = np.array(["ant", "bee", "cat", "dog"])[GROUP]
WEIGHT = (8 * np.random.default_rng(1).random(N)).astype(np.float32)  # in any precision
PATTERNS = [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0]]
BITS = (np.array(PATTERNS)[GROUP] ^ (rng.random((N, 6)) < 0.05)).astype(float)
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}


def quick(architecture="multiclass", **parameters):
    return CapsuleClassifier.paper(2, **QUICK | {"architecture": architecture} | parameters)


def mixture(*args, **options):
    return GaussianMixture(*args, random_state=0, **options)


def quantizer(*args, **options):
    return FactorialVectorQuantizer(2, *args, random_state=0, **options)


def composition(*args, **options):
    return CompositionalModel(*args, random_state=0, **options)


class Family(NamedTuple):
    "An estimator, its inputs and labels, and whether its examples may have weights."

    estimator: Any
    X: np.ndarray
    y: np.ndarray | None = None
    weighed: bool = True


Z32 = Z.astype(np.float32)
FAMILIES = {
    **{name: Family(quick(name), Z32, NAMES) for name in ARCHITECTURES},
    "Gaussians": Family(mixture(3, n_init=2), Z),
    "Gaussians of variances": Family(
        mixture(3, covariance_type="diag", init_params="k-means++"), Z32
    ),
    "factor analyzers": Family(
        MixtureOfFactorAnalyzers(3, 2, noise=Noise(added=0.01), random_state=0), Z32
    ),
    "PCA": Family(MixtureOfPCA(3, 2, explained_variance=0.9, random_state=0), Z32),
    "quantizer": Family(quantizer(3, n_init=2), Z32, weighed=False),
    "quantizer, sampled": Family(quantizer(2, e_step="gibbs", n_init=1, max_iter=8), Z),
    "quantizer of bits": Family(quantizer(2, observable="bernoulli", n_init=2), BITS),
    "composition": Family(composition(2, max_iter=10), BITS[:80], weighed=False),
    "composition of any number": Family(
        composition(max_active=2, binarize=0.5, max_iter=3), BITS[:40], weighed=False
    ),
    "composition in places": Family(
        composition(1, transforms=Transforms((2, 3), 1), max_iter=5), BITS[:60], weighed=False
    ),
}
# where the examples are, and whether they have weights there
WHERE = {
    "memory map": True,
    "zarr": False,
    "list": True,
    "function": False,
    "Parquet file": True,
    "Dask arrays": True,
    "delayed": False,
    "unknown lengths": False,
}


def call(X, y=None, w=None, **options):
    "The arguments of `fit`."
    columns = {"y": y, "sample_weight": w}
    return {"X": X} | {k: v for k, v in columns.items() if v is not None} | options


def fit(estimator, *args, **options):
    return clone(estimator).fit(**call(*args, **options))


def validation(X, y, n=90):
    "Examples by which a classifier is judged while it learns."
    return {} if y is None else {"X_val": X[:n, :], "y_val": y[:n]}


@functools.cache
def known(name, dtype, weighted):
    "The estimator that has learned in memory."
    estimator, inputs, y, _ = FAMILIES[name]
    inputs = inputs.astype(dtype)
    weight = WEIGHT[: len(inputs)] if weighted else None
    return fit(estimator, inputs, y, weight, **validation(inputs, y))


def same(a, b, rtol):
    "Whether two attributes hold the same numbers."
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], rtol) for key in a)
    if isinstance(a, tuple):
        return all(same(x, y, rtol) for x, y in zip(a, b, strict=True))
    a, b = np.asarray(a), np.asarray(arrays.to_numpy(b) if hasattr(b, "shape") else b)
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    if rtol:
        return np.allclose(b, a, rtol, rtol, equal_nan=True)
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


def assert_same(one, other, rtol=0.0):
    "The same attributes; where sums round otherwise, the course of learning may differ."
    left_out = {"history_", "statistics_"} if rtol else set()
    for name, value in vars(one).items():
        if name.endswith("_") and name not in left_out:
            assert same(value, getattr(other, name), rtol), name


def assert_predicts(model, elsewhere, want, method, tolerance, lazy=False):
    "What a method says of inputs elsewhere, and where it says it."
    found = getattr(model, method)(elsewhere)
    if lazy:
        assert type(found).__module__.startswith("dask") and found.dtype == want.dtype
        assert found.shape[1:] == want.shape[1:]
        found = found.compute()
    elif is_tensor(elsewhere) and method != "predict":  # whose names are NumPy's
        assert type(found) is type(elsewhere) and found.device == elsewhere.device
        found = arrays.to_numpy(found)
    if want.dtype.kind == "f":
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance, err_msg=method)
    else:
        assert np.array_equal(found, want), method


@together("place", [*WHERE, *IN_MEMORY])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_bits_wherever_the_data_live(name, place, tmp_path):
    estimator, inputs, y, weighed = FAMILIES[name]
    if place in IN_MEMORY and y is None:
        return  # the others take what NumPy takes
    exact = place not in (*CLUSTERED, *IN_MEMORY)
    if not exact:
        inputs = inputs.astype(np.float64)  # whose sums differ by little in another order
    weighted = weighed and WHERE.get(place, True)
    weight = WEIGHT[: len(inputs)] if weighted else None
    given = PLACES[place](tmp_path, inputs, y, weight)
    held = validation(given[0] if place in IN_MEMORY else inputs, y)
    model = fit(estimator, *given, **held)
    here = known(name, inputs.dtype, weighted)
    assert_same(here, model, 0.0 if exact else 1e-6)
    assert model.n_features_in_ == 6
    for method in (method for method in METHODS if hasattr(model, method)):
        want = getattr(here, method)(inputs)
        assert_predicts(model, given[0], want, method, 1e-10 if exact else 1e-5, place in CLUSTERED)
    for criterion in (name for name in ("score", "bic", "aic") if hasattr(model, name)):
        columns = ((y, weight), given[1:]) if y is not None else ((), ())
        want = getattr(here, criterion)(inputs, *columns[0])
        found = getattr(model, criterion)(given[0], *columns[1])
        assert isinstance(found, float) and found == pytest.approx(want, rel=1e-6)


@together("limit", [2**29, 0])
@together("place", [*WHERE, "strict", "torch"])
def test_early_stopping_holds_the_same_examples_out(place, limit, tmp_path, monkeypatch):
    "They are kept in memory, or read again after each step."
    monkeypatch.setattr(TrainingData, "IN_MEMORY", limit)
    weight = np.where(np.arange(N) % 7, WEIGHT, 0)
    model = quick(early_stopping=0.3, random_state=3)
    here = fit(model, Z, NAMES, weight)
    there = fit(model, *PLACES[place](tmp_path, Z, NAMES, weight))
    exact = place not in (*CLUSTERED, *IN_MEMORY)
    assert_same(here, there, 0.0 if exact else 1e-6)
    errors = here.history_["validation_error"]
    assert np.isfinite(errors).all() and same(errors, there.history_["validation_error"], 1e-12)


@pytest.fixture
def small_samples(monkeypatch):
    "EM starts from few examples."
    monkeypatch.setattr(training_data, "SAMPLE", 1)
    monkeypatch.setattr(training_data, "FEWEST", 60)


@together("name", [name for name in FAMILIES if name not in ARCHITECTURES])
def test_a_start_from_a_sample_is_the_same_everywhere(name, tmp_path, small_samples):
    "Classifiers start from sums."
    estimator, inputs, *_ = FAMILIES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_data, "FEWEST", N)
        whole = known(name, inputs.dtype, False)
    model = fit(estimator, inputs)
    for place in ("memory map", "list"):
        assert_same(model, fit(estimator, *PLACES[place](tmp_path, inputs, None, None)))
    if not name.startswith("composition"):  # another start, but no other problem
        assert model.history_["objective"][0] != whole.history_["objective"][0]
    if name.startswith(("Gaussians", "factor")):
        assert abs(model.lower_bound_ - whole.lower_bound_) < 0.5


@together("architecture", ARCHITECTURES)
def test_large_data_are_cut_into_the_same_blocks(architecture):
    "More examples than a block, more batches than one, several threads; early stopping is on."
    big, y = groups(40_000, 5, 3)
    weight = np.random.default_rng(0).random(len(big))
    few = big[:11_000], y[:11_000], weight[:11_000]
    model = quick(architecture, patience=(2, 1), random_state=0)
    here = fit(model, *few)
    assert np.isfinite(here.history_["validation_error"][0]).all()
    for n_jobs in (1, 2):
        model.set_params(n_jobs=n_jobs)
        assert_same(here, fit(model, stream(*few, cuts=(5000, 5001))))
    model.set_params(early_stopping=False)
    assert_same(fit(model, big, y), fit(model, dask_of(big, 16384), dask_of(y, 16384)))


@together("name", ["ovo", "Gaussians of variances"])
def test_large_inputs_are_predicted_in_the_same_blocks(name, tmp_path):
    estimator, _, y, _ = FAMILIES[name]
    big, labels = groups(40_000, 40, 3)
    big = big.astype(np.float32)
    model = fit(estimator, big[:900], None if y is None else labels[:900])
    with em.threads(1):  # products by two threads round otherwise
        for method in (method for method in METHODS if hasattr(model, method)):
            predict = getattr(model, method)
            want = predict(mapped(tmp_path, big))
            assert np.array_equal(predict(stream(big)), want)
            assert np.array_equal(predict(dask_of(big, 13107)).compute(), want) or y is not None
            if y is not None:
                assert np.array_equal(predict(big), want)
                assert np.array_equal(predict(dask_of(big, 16384)).compute(), want)


def test_other_things_that_are_done_with_batches(tmp_path):
    model = mixture(3).fit(Z)
    assert np.array_equal(clone(model).fit_predict(stream(Z)), clone(model).fit_predict(Z))
    file = mapped(tmp_path, Z)
    analyzers = MixtureOfFactorAnalyzers(3, 2, tol=0, patience=99, max_iter=12, random_state=0)
    fit(analyzers.set_params(max_iter=5), file, checkpoint=tmp_path / "run.npz")
    analyzers.set_params(max_iter=12)
    assert_same(fit(analyzers, Z), fit(analyzers, file, checkpoint=tmp_path / "run.npz"))
    classifier = quick().fit(Z, NAMES)
    assert np.array_equal(classifier.prototypes(file, NAMES), classifier.prototypes(Z, NAMES))
    for method in (classifier.prototypes, classifier.posterior_mean):
        with pytest.raises(TypeError, match="X is a stream"):
            method(stream(Z, NAMES), NAMES)


@together("model", [mixture(2), quantizer(2)])
def test_examples_of_a_source_without_weight_count_nowhere(model, small_samples):
    "The sample from which EM starts holds none of them, though nearly all weigh nothing."
    weight = (np.arange(N) % 20 < 1) * 1.0
    far = np.where(weight[:, None] > 0, Z, 1e9)
    there, here = fit(model, stream(far, weight)), fit(model, Z[weight > 0])
    np.testing.assert_allclose(there.history_["objective"], here.history_["objective"], 1e-9)
    np.testing.assert_allclose(there.score(Z), here.score(Z), rtol=1e-7)


def test_what_is_measured_is_measured_on_all_examples(small_samples, monkeypatch):
    options = {"random_state": 0, "max_iter": 300, "tol": 1e-9}
    model = MixtureOfFactorAnalyzers(1, 5, noise=Noise(added=0.1), **options).fit(stream(Z))
    S = np.cov(Z.T, ddof=0) + 0.1 * Z.var(axis=0).mean() * np.eye(6)
    np.testing.assert_allclose(model.get_covariance()[0], S, rtol=0.02, atol=0.02 * S.max())
    tangents = 0.1 * np.random.default_rng(2).standard_normal((N, 2, 6))  # go with their examples
    model = MixtureOfFactorAnalyzers(2, 1, random_state=0)
    few = fit(model, Z, tangents=tangents)
    monkeypatch.setattr(training_data, "FEWEST", N)
    every = fit(model, Z, tangents=tangents)
    assert abs(few.lower_bound_ - every.lower_bound_) < 0.5
    assert few.history_["objective"][0] != every.history_["objective"][0]


def test_names_of_columns_are_those_of_frames_in_memory():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(Z, columns=list("abcdef"))
    turned = frame.iloc[:, ::-1]
    for estimator, y in ((quick(), NAMES), (mixture(2), None), (quantizer(2), None)):
        batches, mixed = [frame[:300], frame[300:]], [frame, turned]
        here = fit(estimator, frame, y)
        there = fit(estimator, batches if y is None else stream(frame, y))
        assert_same(here, there, 1e-6)  # columns of frames lie otherwise in memory
        assert there.feature_names_in_.tolist() == list("abcdef")
        said = "^batch 1: X has the column 'f' where the batches before it have 'a'; bring all"
        method = "score_samples" if y is None else "predict_proba"
        for model in (here, there):
            predict = getattr(model, method)
            want = predict(frame)
            assert_predicts(model, batches, want, method, 1e-10)
            assert_predicts(model, delayed(frame), want, method, 1e-10, lazy=True)
            with pytest.raises(ValueError, match="(?s)^X: The feature names should match.*order"):
                predict([turned])
            with pytest.raises(BatchError, match=said):
                predict(mixed)
        with pytest.raises(BatchError, match=said):
            fit(estimator, mixed if y is None else [(inputs, y) for inputs in mixed])
    with pytest.raises(ValueError, match="^X_val: The feature names should match"):
        quick().fit(frame, NAMES, X_val=[(turned, NAMES)])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        quick().fit(stream(frame, NAMES)).predict(stream(Z))


# ── what is wrong ──


class Flaky:
    "Batches that are good until the pass number `good`; then `spoil` has changed the third."

    def __init__(self, batches, spoil, good):
        self.batches, self.spoil, self.good, self.passes = batches, spoil, good, 0

    def __call__(self):
        self.passes += 1
        for number, batch in enumerate(self.batches):
            bad = number == 2 and self.passes > self.good
            yield self.spoil(*batch) if bad else batch


def gone(*batch):
    raise OSError("the disk is gone")


def with_nan(x, *others):
    x = x.copy()
    x[len(x) // 2, 1] = np.nan
    return x, *others


@together("spoil", [gone, with_nan])
@together("good", [0, 9])
def test_a_batch_that_goes_bad_leaves_the_last_good_weights(spoil, good, tmp_path):
    batches = stream(Z, NAMES, cuts=(1, 40, 333))
    options = {"early_stopping": False, "momentum": 0}
    model = quick(**options).fit(Z[:100], NAMES[:100])
    before = model.coef_
    run = {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 0}
    with pytest.raises(BatchError, match=r"^batch 2") as caught:
        model.fit(Flaky(batches, spoil, good), **run)
    assert caught.value.index == 2 and model.coef_ is before
    if not good:  # it was bad in the first pass
        assert caught.value.estimator is None
        return
    kept = caught.value.estimator
    assert kept.score(Z, NAMES) > 0.6 and kept.n_iter_ >= 1 and kept.n_features_in_ == 6
    shorter = quick(**options, max_iter=kept.n_iter_).fit(Z, NAMES)
    assert np.array_equal(kept.coef_, shorter.coef_)
    assert len(kept.history_["objective"]) == kept.n_iter_
    resumed = quick(**options).fit(batches, checkpoint=tmp_path / "run.npz")
    assert_same(quick(**options).fit(Z, NAMES), resumed)


def test_a_bad_batch_changes_no_relative_and_brings_what_was_learned():
    batches = [(x,) for x in np.split(Z, [1, 130, 500])]
    model = fit(mixture(3, tol=0, patience=99), [x for (x,) in batches])
    before = dict(vars(model))
    with pytest.raises(BatchError, match="^batch 2: X contains NaN"):
        model.predict(Flaky(batches, with_nan, 0))
    with pytest.raises(BatchError, match="^batch 2: .*the disk is gone") as caught:
        model.fit(Flaky(batches, gone, 8))
    assert vars(model) == before and isinstance(caught.value.fit, em.Fit)
    assert caught.value.fit.parameters.means.shape == (1, 3, 6)


TENSOR, LABELS = strict_of(np.eye(6)), strict_of(np.arange(6) % 2)
BATCHES = stream(Z, NAMES)
OBJECTS = NAMES.astype(object)
OBJECTS[500] = None
ALONE = stream(Z)
HALF_BITS = quantizer(observable="bernoulli", init="random")
WRONG = [  # estimator, arguments, what is said
    (mixture(), call(iter(ALONE)), "X is a one-shot iterator"),
    (quick(), call([np.ones((3, 2))]), "X comes in a batch of 1 entries|y"),
    (quick(), call([(np.ones((3, 2)), np.zeros(3, int))]), "y"),
    (quick(), call(stream(Z, NAMES, 0 * WEIGHT)), "sample_weight"),
    (quick(), call(stream(Z * 1e200, NAMES)), "X"),
    (quick(), call(stream(Z, WEIGHT)), "y"),
    (quick(), call(TENSOR, LABELS[:3]), "^y has shape .*pass one label for each example"),
    (quick(), call(stream(Z, OBJECTS)), "^batch 2: y holds None, but labels that are objects must"),
    (quick(), call(Z, NAMES, y_val=NAMES), "X_val"),
    (quick(), call(Z, NAMES, X_val=stream(Z[:, :3], NAMES)), "^X_val: X has 3 features"),
    (quick(), call(Z, NAMES, X_val=Flaky(BATCHES, with_nan, 0)), "(?s)batch 2.*X_val"),
    (
        quick(),
        call(Z, NAMES, X_val=stream(Z, np.where(NAMES == "ant", "emu", "bee"))),
        "y_val.*emu",
    ),
    (
        quick(),
        call(Z, NAMES, X_val=Stored(Z * 1e155), y_val=NAMES),
        "^X_val: X has .* as its largest magnitude",
    ),
    (mixture(), call([Z[:1]]), "number of examples in X must be a number of at least 2"),
    (mixture(9), call([Z[:3], Z[3:8]]), "n_components must be .* at most 8, not 9"),
    (MixtureOfPCA(1, 7), call(ALONE), "n_dims must be a whole number of at most 6"),
    (mixture(), call(stream(Z * 1e155)), "divide X by its largest magnitude"),
    (mixture(), call(stream(Z, -WEIGHT)), "^batch 0: sample_weight must be at least 0"),
    (quantizer(), call(stream(Z, 0 * WEIGHT)), "sample_weight is zero for every example"),
    (HALF_BITS, call(ALONE), "X must lie between 0 and 1"),
    (HALF_BITS, call([BITS, 2 * BITS]), "X must lie between 0 and 1"),
    (composition(1, binarize=None), call(ALONE), "^batch 0: X must hold zeros and ones"),
    (composition(1), call(stream(BITS, WEIGHT)), "^batch 0: .*leave the weights out"),
    (
        MixtureOfFactorAnalyzers(1, 1),
        call(ALONE, tangents=np.zeros((N, 1, 6))),
        "^tangents can be given only with X in memory",
    ),
    *(
        (quick(), call(*args, **options), rf"(^|\W){name}(\W|$)")
        for name, options, *args in (
            ("X", {}, TENSOR[0, :], LABELS),
            ("X", {}, TENSOR[:, :0], LABELS),
            ("X", {}, TENSOR * 1e200, LABELS),
            ("y", {}, TENSOR, None),
            ("y", {}, TENSOR, LABELS * 0),
            ("y", {}, TENSOR, np.linspace(0, 1, 6)),
            ("sample_weight", {}, TENSOR, LABELS, TENSOR),
            ("sample_weight", {}, TENSOR, LABELS, -TENSOR[:, 0]),
            ("sample_weight", {}, TENSOR, LABELS, TENSOR[:, 0] * 0),
            ("X_val", {"X_val": np.eye(6), "y_val": np.arange(6) % 2}, TENSOR, LABELS),
            ("y_val", {"X_val": TENSOR, "y_val": LABELS + 1}, TENSOR, LABELS),
            ("X_val", {"X_val": TENSOR[:, :2], "y_val": LABELS}, TENSOR, LABELS),
            ("X_val", {"X_val": TENSOR, "y_val": LABELS}, np.eye(6), np.arange(6) % 2),
        )
    ),
]


@pytest.mark.filterwarnings("ignore:invalid value")
@together("estimator, arguments, said", WRONG)
def test_what_cannot_be_learned_from_is_refused_in_words(estimator, arguments, said):
    model = clone(estimator)
    with pytest.raises((TypeError, ValueError), match=f"(?s){said}"):
        model.fit(**arguments)
    assert not any(name.endswith("_") for name in vars(model))


def test_what_cannot_be_predicted_or_judged_is_refused_in_words(tmp_path):
    for estimator, inputs, y, _ in (FAMILIES["ovr"], FAMILIES["PCA"], FAMILIES["quantizer"]):
        model = fit(estimator, stream(inputs, y))
        for wrong in (stream(Z[:, :4]), mapped(tmp_path, Z[:, :4])):
            with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 6"):
                model.transform(wrong)
    index = np.searchsorted(np.unique(NAMES), NAMES)
    for place in ("memory map", "list", "Dask arrays"):
        for known, asked, kind in ((NAMES, index, "int64"), (index, NAMES, "<U3")):
            with pytest.raises(ValueError, match=f"y holds labels of the type {kind}"):
                quick().fit(Z, known).score(*PLACES[place](tmp_path, Z, asked, WEIGHT))


def test_early_stopping_notices_batches_in_another_order():
    order = np.random.default_rng(0)

    def shuffled():
        rows = order.permutation(N)
        return iter(stream(Z[rows], NAMES[rows], WEIGHT[rows]))

    with pytest.raises(ValueError, match="^X brings its examples in another order"):
        quick(early_stopping=True).fit(shuffled)
    here, there = quick().fit(Z, NAMES, WEIGHT), quick(early_stopping=False).fit(shuffled)
    assert np.mean(here.predict(Z) == there.predict(Z)) > 0.95  # or else the order does not matter


# ── arrays of other libraries ──


def kind(a):
    return type(a), getattr(a, "device", None)


@pytest.fixture
def transfers(monkeypatch):
    "The sizes of all arrays of other libraries that become NumPy's."
    sizes, original = [0], arrays.to_numpy

    def counted(a):
        if not isinstance(a, np.ndarray) and hasattr(a, "shape"):
            sizes.append(int(np.prod(tuple(a.shape))))
        return original(a)

    for name, module in list(sys.modules.items()):
        if name.startswith("capslit.") and "to_numpy" in vars(module):
            monkeypatch.setattr(module, "to_numpy", counted)
    return sizes


@together("dtype", [np.float32, np.float64])
@together("there", [strict_of, torch_of])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tensors_in_and_tensors_out(architecture, there, dtype, transfers):
    x, y, w = Z.astype(dtype), 3 * GROUP - 2, WEIGHT.astype(dtype)
    wanted = kind(there(x))
    here = quick(architecture).fit(x, y, w)
    transfers[:] = [0]
    model = quick(architecture).fit(there(x), there(y), there(w))
    learning = max(transfers)
    results = (getattr(model, name)(there(x)) for name in METHODS if hasattr(model, name))
    for a in (model.coef_, model.intercept_, model.classes_, *results):
        assert kind(a) == wanted
    assert str(model.coef_.dtype).endswith(np.dtype(dtype).name)
    assert max(transfers) == learning  # predictions ask for nothing but weights
    most = max(model.coef_.shape[0] * 2 * 4 * 7, 6 * 4 * 7 * 7)
    assert learning <= max(most, N if architecture == "ovo" else 0)
    assert same(here.coef_, model.coef_, 1e-9 if dtype == np.float64 else 2e-2)
    assert model.score(there(x), there(y)) == pytest.approx(here.score(x, y), abs=0.01)
    if architecture == "multiclass" and dtype == np.float64:
        assert np.array_equal(model.prototypes(there(x), there(y)), here.prototypes(x, y))
        assert kind(model.posterior_mean(there(x), there(y))) == wanted


@together("there", [strict_of, torch_of])
def test_learning_on_a_device_moves_no_data(there, transfers):
    "However many examples there are, what comes to the host has the size of parameters."
    x, y = map(there, groups(3000, 4, 3))
    model = quick(early_stopping=False, acceleration="squarem").fit(x, y, X_val=x, y_val=y)
    model.predict(x), model.predict_proba(x), model.score(x, y)
    assert 0 < max(transfers) <= 3 * 5 * 5  # the Gram matrices of three classes


@together("place", ["memory map", "strict", "torch"])
@together("online", [Stepwise(), Incremental(), PassiveAggressive()])
def test_partial_fit_elsewhere(place, online, tmp_path):
    here, model = quick(online=online), quick(online=online)
    for name in "aba":
        part = slice(0, 350) if name == "a" else slice(350, N)
        options = {"classes": [0, 1, 2, 3]}
        if isinstance(online, Incremental):
            options["batch"] = name
        x, y, _ = PLACES[place](tmp_path, Z[part], GROUP[part], None)
        here.partial_fit(Z[part], GROUP[part], **options)
        model.partial_fit(x, y, **options)
    assert place == "memory map" or kind(model.coef_) == kind(x)
    assert same(here.coef_, model.coef_, 1e-8)


def test_a_model_of_tensors_can_be_saved_and_used_elsewhere(tmp_path):
    model = quick().fit(strict_of(Z), strict_of(GROUP))
    model.save(tmp_path / "model.npz")
    again = CapsuleClassifier.load(tmp_path / "model.npz")
    found = arrays.to_numpy(model.predict(strict_of(Z)))
    assert isinstance(again.coef_, np.ndarray) and np.array_equal(again.predict(Z), found)
    assert np.array_equal(model.predict_proba(Z), again.predict_proba(Z))  # and the other way round
    assert kind(again.predict_proba(strict_of(Z))) == kind(strict_of(Z))


ARRAY_API = """
import itertools, warnings
from sklearn.utils.estimator_checks import check_array_api_input, check_array_api_mixed_inputs
from sklearn.utils._array_api import NamespaceAndDevice
from capslit import CapsuleClassifier

warnings.simplefilter("ignore")
places = [("array_api_strict", "CPU_DEVICE"), ("array_api_strict", "device1")] + [
    ("torch", "cpu")
] * TORCH
make = lambda: CapsuleClassifier.paper(2, thresholds=(0,), patience=(4,), n_jobs=1)
for name, device in places:
    check_array_api_input(
        "CapsuleClassifier",
        make(),
        array_namespace=name,
        device_name=device,
        dtype_name="float64",
        check_values=True,
    )
for other, here in itertools.permutations(
    [NamespaceAndDevice(*place) for place in [*places[1:], ("numpy", None)]], 2
):
    check_array_api_mixed_inputs(
        "CapsuleClassifier", make(), other_ns_and_device=other, X_ns_and_device=here
    )
"""


def test_scikit_learns_own_checks_of_arrays_of_other_libraries():
    "In a process of its own, for they need the variable before SciPy is imported."
    script = ARRAY_API.replace("TORCH", str(int(find_spec("torch") is not None)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
