"""Sources: bit-identical wherever the data live, every batch checked, and little memory."""

import os
import pickle
import subprocess
import sys
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from conftest import PATIENCE, examples, together
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from capslit import em
from capslit.data import sources
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.data.datasets import project, svd_projection
from capslit.em.statistics import BatchError
from capslit.data.open import as_source
from capslit.data.sources import array_source

rng = np.random.default_rng(0)
X, Y, W = (
    rng.standard_normal((3000, 37)).astype(np.float32),
    rng.integers(0, 4, 3000),
    rng.random(3000),
)
CUTS = [0, 1, 500, 501, 1800, 3000]


class Moments(NamedTuple):
    gram: np.ndarray
    label: np.ndarray


def moments(block):
    x, y, w = block
    w = np.ones(len(x), x.dtype) if w is None else w
    return Moments((x * w[:, None]).T @ x, np.sum(np.zeros(len(x)) if y is None else y))


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


def stream(x=X, y=Y, w=None):
    for start, stop in pairwise(CUTS):
        part = slice(start, stop)
        yield (x[part], y[part]) if w is None else (x[part], y[part], w[part])


class Anew:
    def __iter__(self):
        return stream()


def saved(folder, array, name="X.npy", mode="r"):
    np.save(folder / name, array)
    return np.load(folder / name, mmap_mode=mode)


KINDS = {
    "memory map": lambda folder: as_source(saved(folder, X), Y, labelled=True),
    "Fortran memory map": lambda folder: as_source(
        saved(folder, np.asfortranarray(X)), Y, labelled=True
    ),
    "private memory map": lambda folder: as_source(saved(folder, X, mode="c"), Y, labelled=True),
    "part of a memory map": lambda folder: as_source(
        saved(folder, np.pad(X, ((5, 3), (2, 1))))[5:-3, 2:-1], Y, labelled=True
    ),
    "view of a memory map": lambda folder: as_source(
        np.asarray(saved(folder, X)), Y, labelled=True
    ),
    "labels in a memory map": lambda folder: as_source(
        saved(folder, X), saved(folder, Y, "Y.npy"), labelled=True
    ),
    "stored array": lambda folder: as_source(Stored(X), Stored(Y), labelled=True),
    "stored array in chunks": lambda folder: as_source(
        Stored(X, 700), Stored(Y, 33), labelled=True
    ),
    "function": lambda folder: as_source(stream, labelled=True),
    "object": lambda folder: as_source(Anew(), labelled=True),
    "list": lambda folder: as_source(list(stream()), labelled=True),
    "list of lists": lambda folder: as_source([list(batch) for batch in stream()], labelled=True),
    "list of memory maps": lambda folder: as_source(
        [
            (saved(folder, X[:1000], "a.npy"), Y[:1000]),
            (saved(folder, X[1000:], "b.npy"), Y[1000:]),
        ],
        labelled=True,
    ),
    "source with labels": lambda folder: as_source(
        as_source(saved(folder, X), labelled=False), Y, labelled=True
    ),
}


@pytest.fixture(params=KINDS)
def source(request, tmp_path, monkeypatch):
    "Each kind of source, in chunks of about 100 rows."
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    return KINDS[request.param](tmp_path)


@pytest.mark.parametrize("rows", [1, 64, 1000, 5000])
def test_sums_have_the_bits_that_they_have_in_memory(source, rows):
    with em.threads(2) as pool:
        expected = em.accumulate(moments, (X, Y, None), rows)
        for found in (em.accumulate(moments, source, rows), source.accumulate(moments, rows, pool)):
            assert found.gram.tobytes() == expected.gram.tobytes() and found.label == expected.label


def test_batches_are_the_examples_in_order(source):
    batches = list(source)
    assert (np.concatenate([x for x, _, _ in batches]) == X).all()
    assert (np.concatenate([y for _, y, _ in batches]) == Y).all()
    assert all(w is None for _, _, w in batches) and all(
        type(x) is np.ndarray for x, _, _ in batches
    )
    assert (source.n_samples, source.n_features, source.dtype) == (3000, 37, np.float32)


def test_the_first_pass(source):
    found = source.inspect()
    assert (found.n_samples, found.largest) == (3000, np.abs(X).max())
    assert (
        found.classes.tolist() == [0, 1, 2, 3]
        and found.counts.tolist() == found.weight.tolist() == np.bincount(Y).tolist()
    )
    assert (found.labels == Y).all() and found.labels.dtype == np.uint8 and found.weights is None
    assert source.inspect() is found
    wider = source.inspect([3, 7, 0, 1, 2])
    assert wider.counts.tolist() == [found.counts[3], 0, *found.counts[:3]]
    assert (wider.classes[wider.labels] == Y).all()
    with pytest.raises(ValueError, match=r"labels \[3\]"):
        source.inspect([0, 1, 2])


def doubled(batch, start, offset=0):
    return 2 * batch[0], start + offset + np.arange(len(batch[0]))


def test_sources_from_sources(source):
    mask = rng.random(3000) < 0.3
    mask[:600] = False  # whole batches without an example
    chosen = np.flatnonzero(mask)
    part = source.select(mask)
    assert (part.collect(lambda b: b[0]) == X[mask]).all() and part.n_samples == mask.sum()
    assert (part.inspect().labels == Y[mask]).all()
    assert (source.apply(doubled).select(mask).collect(lambda b: b[1]) == chosen).all()
    applied = part.apply(partial(doubled, offset=5))
    assert (applied.collect(lambda b: b[1]) == np.arange(len(chosen)) + 5).all()
    assert (applied.collect(lambda b: b[0]) == 2 * X[mask]).all() and (
        applied.n_features,
        applied.dtype,
    ) == (37, np.float32)
    x, y, w = source.take(chosen)
    assert (x == X[mask]).all() and (y == Y[mask]).all() and w is None and x.dtype == np.float32
    even = list(source.rebatch(256))
    assert [len(b[0]) for b in even] == [256] * 11 + [184] and (
        np.concatenate([b[0] for b in even]) == X
    ).all()
    assert (source.rebatch(256).take(chosen)[0] == X[mask]).all()
    expected = em.accumulate(moments, (X[mask], Y[mask], None), 64)
    assert np.allclose(part.accumulate(moments, 64).gram, expected.gram, rtol=1e-5)
    for wrong in ([5, 3000], [], [7, 5]):
        with pytest.raises(ValueError, match="index has shape|sorted whole numbers from 0 to 2999"):
            source.take(np.array(wrong, int))
    for wrong in (mask[:-1], mask.astype(int)):
        with pytest.raises(ValueError, match="mask"):
            source.select(wrong)


def test_what_is_collected(source):
    out = np.empty((3000, 37))
    assert source.collect(lambda b: b[0], out=out) is out and (out == X).all()
    lengths = source.collect(lambda b: np.full(len(b[0]), len(b[0])), rows=700)
    assert lengths.tolist() == [700] * 2800 + [200] * 200


def test_only_what_is_wanted_is_read(monkeypatch):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    stored = Stored(X, 70)
    source = array_source(stored, Y)
    source.take(np.array([80, 2995]))
    assert stored.reads == [(70, 140), (2940, 3000)]
    source.select(np.arange(3000) < 10).inspect()
    assert stored.reads[2:] == [(0, 70)]


def test_threads_read_ahead_of_time_by_as_many_pieces_as_there_are_threads(monkeypatch):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    stored = Stored(X)
    with em.threads(3) as pool:
        walk = sources._prefetched(array_source(stored).chunks(), pool)
        next(walk)
        walk.close()
    assert sorted(stored.reads) == [(0, 100), (100, 200), (200, 300), (300, 400)]


@pytest.mark.parametrize(
    "dtype, wanted",
    [
        ("f2", "f8"),
        ("f4", "f4"),
        ("f8", "f8"),
        ("u1", "f8"),
        ("i8", "f8"),
        ("?", "f8"),
        (">f4", "f8"),
        (">f8", "f8"),
    ],
)
def test_numbers_become_what_they_become_in_memory(tmp_path, dtype, wanted):
    values = (100 * X[:50]).astype(dtype)
    for source in (
        as_source(saved(tmp_path, values), labelled=False),
        as_source(lambda: iter([values[:9], values[9:]]), labelled=False),
    ):
        assert (
            source.dtype == wanted
            and (source.collect(lambda b: b[0]) == values.astype(wanted)).all()
        )


def test_weights():
    source = as_source(partial(stream, w=W), labelled=True)
    found = source.inspect()
    assert (found.weights == W.astype(np.float32)).all() and np.allclose(
        found.weight, np.bincount(Y, W)
    )
    assert (source.inspect([3, 2, 1, 0]).weight == found.weight[::-1]).all()
    expected = em.accumulate(moments, (X, Y, W.astype(np.float32)), 100)
    assert (source.accumulate(moments, 100).gram == expected.gram).all()
    alone = as_source([(X[:9], W[:9]), (X[9:], W[9:])], labelled=False)
    assert (
        alone.inspect().weights == W.astype(np.float32)
    ).all() and alone.inspect().weight.shape == (1,)


@pytest.mark.parametrize(
    "labels", [Y, Y.astype(str), Y > 1, Y.tolist()], ids=["integers", "text", "bool", "list"]
)
def test_labels_are_not_taken_for_weights(labels):
    with pytest.raises(
        BatchError,
        match=(
            r"^batch 0: X comes in batches \(X, weight\) whose weights are not floating-point"
            r" numbers; leave labels out"
        ),
    ):
        as_source([(X[:9], labels[:9])], labelled=False).inspect()
    assert as_source([(X[:9], labels[:9])], labelled=None).inspect().n_samples == 9


def test_labels_of_any_kind():
    names = np.array(["b", "a", "ccc"], dtype=object)[Y % 3]
    found = as_source(
        lambda: ((X[a:b], list(names[a:b])) for a, b in pairwise(CUTS)), labelled=True
    ).inspect()
    assert (
        found.classes.tolist() == ["a", "b", "ccc"] and (found.classes[found.labels] == names).all()
    )


def test_batches_of_other_libraries():
    xp = pytest.importorskip("array_api_strict")
    source = as_source(
        [(xp.asarray(X[:9]), xp.asarray(Y[:9])), (xp.asarray(X[9:]), xp.asarray(Y[9:]))],
        labelled=True,
    )
    assert (source.collect(lambda b: b[0]) == X).all() and (
        source.collect(lambda b: b[1]) == Y
    ).all()


def test_a_stream_may_fill_the_same_array_again_and_again():
    def careless():
        x, y = np.empty((300, 37), np.float32), np.empty(300, int)
        for start in range(0, 3000, 300):
            x[:], y[:] = X[start : start + 300], Y[start : start + 300]
            yield x, y

    with em.threads(2) as pool:
        found = as_source(careless, labelled=True).accumulate(moments, 128, pool)
    assert found.gram.tobytes() == em.accumulate(moments, (X, Y, None), 128).gram.tobytes()


@together(
    "X",
    [
        X,
        X.tolist(),
        [],
        (),
        X[:3, :3].tolist(),
        [(1.0, 2.0)],
        b"bytes",
        None,
        3,
        {"a": X},
        memoryview(X),
        range(5),
        np.float64(3),
        [X[0], X[1]],
        np.load,
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_lies_in_memory_is_no_source(X):
    if X is np.load:
        pandas, scipy = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
        assert (
            as_source(pandas.DataFrame([[1.0]]), [1], labelled=True)
            is as_source(scipy.csr_array([[1.0]]), [1], labelled=True)
            is None
        )
    else:
        assert as_source(X, Y, labelled=True) is None and as_source(X, labelled=False) is None


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda t: as_source(stream(), labelled=True), TypeError, "^X is a one-shot iterator"),
        (
            lambda t: as_source(stream(), labelled=True, names=("X_val", "y_val", "w")),
            TypeError,
            "^X_val is a one-shot iterator",
        ),
        (
            lambda t: (
                list(as_source(lambda it=stream(): it, labelled=True))
                + list(as_source(stream, Y, labelled=True))
            ),
            ValueError,
            "belong in the",
        ),
        (lambda t: as_source(saved(t, X), labelled=True), ValueError, "^y is None"),
        (
            lambda t: as_source(saved(t, X), Y[:-1], labelled=True),
            ValueError,
            r"^y has shape \(2999,\), but shape \(3000,\) is needed",
        ),
        (
            lambda t: as_source(saved(t, X), Y, W[:, None], labelled=True),
            ValueError,
            "^sample_weight has shape",
        ),
        (
            lambda t: as_source(
                as_source(saved(t, X), labelled=False), np.append(Y, 1), labelled=True
            ),
            ValueError,
            r"^y has shape \(3001,\)",
        ),
        (
            lambda t: as_source(saved(t, X[0]), Y, labelled=True),
            ValueError,
            r"^X has shape \(37,\)",
        ),
        (
            lambda t: as_source(Stored(X[:0]), Y[:0], labelled=True),
            ValueError,
            r"^X has shape \(0, 37\), but .* with no length of 0",
        ),
        (
            lambda t: as_source(saved(t, X.astype("S4")), Y, labelled=True),
            TypeError,
            "^X must hold real numbers",
        ),
        (lambda t: as_source(list, labelled=True).inspect(), ValueError, "^X holds no batches"),
        (lambda t: as_source(list, labelled=True).n_features, ValueError, "^X holds no batches"),
        (
            lambda t: as_source(lambda: None, labelled=True).inspect(),
            TypeError,
            "^X is a function that returned None; it must return an iterator",
        ),
        (
            lambda t: as_source(stream, None, W, labelled=False),
            ValueError,
            r"^sample_weight belongs in the batches of X; .* X, \(X,\) or \(X, weight\)$",
        ),
        (
            lambda t: as_source([(Stored(X[:700]), Y)], labelled=True).inspect(),
            ValueError,
            r"^batch 0: y has shape \(3000,\), but shape \(700,\) is needed",
        ),
        (
            lambda t: as_source([(Stored(X[:700]), Y[:700], W)], labelled=True).inspect(),
            ValueError,
            r"^batch 0: sample_weight has shape \(3000,\)",
        ),
        (
            lambda t: as_source([(saved(t, X[:700]), W)], labelled=False).inspect(),
            ValueError,
            r"^batch 0: sample_weight has shape \(3000,\)",
        ),
    ],
    ids=range(17),
)
def test_misuse_is_explained(tmp_path, make, error, message):
    with pytest.raises(error, match=message):
        make(tmp_path)


def broken(change, at=3):
    "The stream, with batch number `at` changed."
    for index, (x, y) in enumerate(stream()):
        yield change(x, y) if index == at else (x, y)


def marred(x, value):
    x = x.copy()
    x[len(x) // 2, 5] = value
    return x


def collapse(x, y):
    raise ConnectionError("no route to host")


FAULTS = {
    "NaN": (lambda x, y: (marred(x, np.nan), y), "X contains NaN"),
    "infinity": (lambda x, y: (marred(x, -np.inf), y), "X contains infinity"),
    "empty": (lambda x, y: (x[:0], y[:0]), r"X has shape \(0, 37\), but .* with no length of 0"),
    "width": (lambda x, y: (x[:, :-1], y), "X has 36 features, but the batches before it have 37"),
    "precision": (
        lambda x, y: (x.astype(float), y),
        "X holds float64, but the batches before it hold float32",
    ),
    "dimensions": (lambda x, y: (x[0], y), r"X has shape \(37,\)"),
    "text": (lambda x, y: (x.astype(str), y), "X must hold real numbers"),
    "labels": (lambda x, y: (x, y[1:]), r"y has shape \(1298,\), but shape \(1299,\) is needed"),
    "no labels": (lambda x, y: (x, None), "y is None"),
    "label": (lambda x, y: (x, np.where(y == 2, np.nan, y)), "y contains NaN"),
    "weights": (
        lambda x, y: (x, y, np.ones(len(x))),
        "sample_weight must come with every batch or with none",
    ),
    "entries": (lambda x, y: (x, y, None, None), "X comes in a batch of 4 entries"),
    "dict": (
        lambda x, y: {"x": x, "y": y},
        r"X comes in a batch that is a dict; let each batch be \(X, y\) or",
    ),
    "nothing": (lambda x, y: None, "X is None|X comes in"),
    "raised": (collapse, "ConnectionError: no route to host"),
}


@together("change, message", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_bad_batch_is_an_error_with_its_number(change, message, n_threads):
    source = as_source(partial(broken, change), labelled=True)
    with (
        em.threads(n_threads) as pool,
        pytest.raises(BatchError, match=f"^batch 3: ({message})") as caught,
    ):
        source.accumulate(moments, 64, pool)
    assert caught.value.index == 3 and isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.index, again.fit) == (str(caught.value), 3, None)


def test_a_bad_row_of_a_file_is_an_error_with_the_number_of_its_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    for values, message in (
        (marred(X, np.nan), "batch 15: X contains NaN"),
        (marred(X, np.inf), "batch 15: X contains infinity"),
    ):
        with pytest.raises(BatchError, match=message):
            as_source(saved(tmp_path, values), Y, labelled=True).inspect()
    for weights, message in (
        (np.where(np.arange(3000) == 1234, np.nan, W), "batch 12: sample_weight contains NaN"),
        (
            np.where(np.arange(3000) == 1234, -1, W),
            "batch 12: sample_weight must be at least 0, but its smallest value is -1",
        ),
    ):
        with pytest.raises(BatchError, match=message):
            as_source(saved(tmp_path, X), Y, weights, labelled=True).inspect()
    for rows in (1, 64, 700):  # whatever blocks are read
        with em.threads(2) as pool, pytest.raises(BatchError, match="^batch 15: X contains NaN"):
            as_source(saved(tmp_path, marred(X, np.nan)), Y, labelled=True).apply(
                doubled
            ).accumulate(size, rows, pool)


def size(block):
    return Moments(np.array(len(block[0])), np.zeros(()))


def no_seven(batch, start):
    if 1777 in range(start, start + len(batch[0])):
        raise ValueError("y holds the label 7")
    return batch


@pytest.mark.parametrize("rows", [1, 64, 700])
def test_a_label_that_is_refused_is_an_error_with_the_number_of_its_chunk(
    tmp_path, monkeypatch, rows
):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    with pytest.raises(BatchError, match="^batch 17: y holds the label 7"):
        as_source(saved(tmp_path, X), Y, labelled=True).apply(doubled).apply(no_seven).accumulate(
            size, rows
        )


def test_a_file_that_is_cut_off_is_an_error_and_not_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    source = as_source(saved(tmp_path, X), Y, labelled=True)
    os.truncate(tmp_path / "X.npy", 200_000)
    with pytest.raises(BatchError, match="batch 0: OSError: the file .*X.npy has become shorter"):
        source.accumulate(moments, 64)


def test_what_is_applied_may_fail_as_well(source):
    def fussy(batch, start):
        if start > 100:
            raise ValueError("y holds the label 9")
        return batch

    with pytest.raises(BatchError, match=r"^batch \d+: y holds the label 9"):
        source.apply(fussy).inspect()
    with pytest.raises(BatchError, match=r"^batch 0: the function that is applied makes"):
        source.apply(lambda batch, start: (batch[0][:0],)).inspect()


def test_enormous_numbers_are_finite():
    big = np.full((50, 4), np.finfo(np.float32).max)
    assert (
        as_source(lambda: iter([big]), labelled=False).inspect().largest == np.finfo(np.float32).max
    )


def test_each_pass_must_bring_the_same_examples():
    passes = iter([CUTS, CUTS[:-1]])
    source = as_source(lambda: ((X[a:b], Y[a:b]) for a, b in pairwise(next(passes))), labelled=True)
    source.inspect()
    with pytest.raises(
        ValueError, match="X had 3000 examples in the first pass, but 1800 in this one"
    ):
        source.accumulate(moments, 64)


def test_a_private_copy_of_a_map_keeps_what_was_written_to_it(tmp_path):
    np.save(tmp_path / "X.npy", X)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[5:9] = 7
    source = as_source(private, labelled=False)
    for _ in range(2):
        assert (source.collect(lambda batch: batch[0])[5:9] == 7).all() and (
            private[5:9] == 7
        ).all()


def test_a_fit_from_a_file_has_the_bits_of_a_fit_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)
    model = CapsuleRegression(
        np.arange(4)[None], np.full((1, 4), 2), LeastSquares.from_gram((X.T @ X)[None])
    )
    start = CapsuleParameters(0.1 * np.random.default_rng(1).standard_normal((1, 4, 2, 37)))
    schedule = dict(
        rounds=[em.Round(3, {"threshold": 0.5}), em.Round(2, {"threshold": 0.0})],
        momentum=0.9,
        monitor="validation",
        max_iter=20,
    )
    here = em.fit(model, start, (X, Y, None), validation=(X[:700], Y[:700], None), **schedule)
    mapped = saved(tmp_path, X)
    there = em.fit(
        model,
        start,
        as_source(mapped, Y, labelled=True),
        validation=as_source(mapped[:700], Y[:700], labelled=True),
        n_threads=2,
        **schedule,
    )
    assert there.parameters.weights.tobytes() == here.parameters.weights.tobytes()
    assert all(
        np.array_equal(here.history[name], there.history[name], equal_nan=True)
        for name in here.history
    )


def test_a_stream_is_walked_once_per_iteration():
    walks = []

    def counted():
        walks.append(1)
        return stream()

    model = CapsuleRegression(
        np.arange(4)[None], np.full((1, 4), 2), LeastSquares.from_gram((X.T @ X)[None])
    )
    start = CapsuleParameters(0.1 * np.random.default_rng(1).standard_normal((1, 4, 2, 37)))
    em.fit(model, start, as_source(counted, labelled=True), max_iter=4)
    assert len(walks) == 4


@examples(30)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=10), st.integers(1, 400))
def test_principal_components_and_projections_do_not_depend_on_the_cut(lengths, rows):
    images, y = load_digits(return_X_y=True)
    n = min(sum(lengths), len(images))
    images, cuts = images[:n].reshape(n, 8, 8), np.minimum(np.cumsum([0, *lengths]), n)
    batches = [images[a:b] for a, b in pairwise(cuts) if b > a]
    projection = svd_projection(images, 5)
    assert svd_projection(batches, 5).tobytes() == projection.tobytes()
    projected = project(lambda: iter(batches), projection, 16)
    expected = project(images, projection, 16)
    assert (
        projected.dtype == expected.dtype
        and projected.collect(lambda b: b[0], rows).tobytes() == expected.tobytes()
    )


def test_projected_images_keep_their_labels(tmp_path):
    images, y = load_digits(return_X_y=True)
    source = as_source(
        saved(tmp_path, images.astype(np.uint8).reshape(-1, 8, 8)), y, labelled=True, flat=True
    )
    projection = svd_projection(source, 7)
    assert (projection == svd_projection(images, 7)).all()
    train = project(source, projection, 16)
    assert (train.inspect().labels == y).all() and train.n_features == 7
    assert [len(x) for x, _, _ in project([X[:2500], X[2500:]] * 2, np.eye(37))] == [
        4096,
        1904,
    ]  # cuts would change last bits
    with pytest.raises(ValueError, match="images have 64 pixels"):
        project(source, projection[:60])
    with pytest.raises(BatchError, match="batch 0: train_images contains NaN"):
        svd_projection([np.full((3, 4), np.nan)], 2)


MEMORY = """
import resource, sys
import numpy as np
from capslit import em
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.data.open import as_source


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


X = np.load(sys.argv[1], mmap_mode="r")
source = as_source(X, np.arange(len(X)) % 10, labelled=True)
model = CapsuleRegression(
    np.arange(10)[None],
    np.full((1, 10), 2),
    LeastSquares(np.eye(X.shape[1])[None], (0,), (X.shape[1],)),
)
start = CapsuleParameters(0.01 * np.random.default_rng(0).standard_normal((1, 10, 2, X.shape[1])))
em.fit(
    model,
    start,
    (np.ones((9000, X.shape[1]), np.float32), np.zeros(9000, int), None),
    max_iter=1,
    n_threads=2,
)
before = peak()
source.inspect()
em.fit(model, start, source, validation=source, monitor="validation", max_iter=2, n_threads=2)
print(peak() - before)
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"),
    reason="the peak of resident memory is read from /proc, which only Linux has",
)
def test_resident_memory_does_not_grow_with_the_file(tmp_path):
    n, p = 1_000_000, 49
    out = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (n, p))
    block = np.random.default_rng(0).standard_normal((10_000, p), dtype=np.float32)
    for row in range(0, n, 10_000):
        out[row : row + 10_000] = block
    mebibytes = out.nbytes / 2**20
    del out
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "X.npy")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < mebibytes / 2
    (tmp_path / "X.npy").unlink()
