"""Sources: faults come with the number of their batch, only what is wanted is read, and little of
it stays in memory. `test_places` holds what is the same wherever the data live.
"""

import os
import pickle
import subprocess
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from conftest import PATIENCE, examples, together
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from test_em import problem
from test_places import Stored, W, X, Y, inputs, mapped, moments, numbered, stream

from capslit import em
from capslit.data import sources
from capslit.data.datasets import project, svd_projection
from capslit.data.open import as_source
from capslit.data.sources import array_source
from capslit.em.statistics import BatchError


@pytest.fixture
def small_reads(monkeypatch):
    "Arrays are read in chunks of 100 rows."
    monkeypatch.setattr(sources, "READ_BYTES", 100 * 37 * 4)


def test_only_what_is_wanted_is_read_ahead_of_time_by_threads(small_reads):
    stored = Stored(X, 70)
    source = array_source(stored, Y)
    source.take(np.array([80, 2995]))
    source.select(np.arange(3000) < 10).inspect()
    assert stored.reads == [(70, 140), (2940, 3000), (0, 70)]
    stored = Stored(X)
    with em.threads(3) as pool:  # as many pieces as there are threads
        walk = sources._prefetched(array_source(stored).chunks(), pool)
        next(walk)
        walk.close()
    assert sorted(stored.reads) == [(0, 100), (100, 200), (200, 300), (300, 400)]


@together("labels", [Y, Y.astype(str), Y > 1, Y.tolist()])
def test_labels_are_not_taken_for_weights(labels):
    said = (
        r"^batch 0: X comes in batches \(X, weight\) whose weights are not floating-point"
        " numbers; leave labels out"
    )
    with pytest.raises(BatchError, match=said):
        as_source([(X[:9], labels[:9])], labelled=False).inspect()
    assert as_source([(X[:9], labels[:9])], labelled=None).inspect().n_samples == 9
    assert as_source([(X[:9], W[:9])], labelled=False).inspect().weight.shape == (1,)


def test_what_lies_in_memory_is_no_source():
    pandas, scipy = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    few = X[:3, :3]
    for x in (
        *(X, few.tolist(), [], (), [(1.0, 2.0)], b"bytes", None, 3, {"a": X}, memoryview(few)),
        *(range(5), np.float64(3), [X[0], X[1]], pandas.DataFrame(few), scipy.csr_array(few)),
    ):
        assert as_source(x, Y, labelled=True) is None and as_source(x, labelled=False) is None


def labelled(*args, **options):
    return as_source(*args, labelled=True, **options)


WRONG = {
    "X_val is a one-shot": lambda t: labelled(iter(stream(X, Y)), names=("X_val", "y_val", "w")),
    r"sample_weight belongs in the batches of X; .* X, \(X,\) or \(X, weight\)$": lambda t: (
        as_source(lambda: iter([X]), None, W, labelled=False)
    ),
    r"y has shape \(2999,\), but shape \(3000,\) is": lambda t: labelled(mapped(t, X), Y[:-1]),
    "sample_weight has shape": lambda t: labelled(mapped(t, X), Y, W[:, None]),
    r"y has shape \(3001,\)": lambda t: labelled(
        as_source(mapped(t, X), labelled=False), np.append(Y, 1)
    ),
    r"X has shape \(0, 37\), but .* with no length of 0": lambda t: labelled(Stored(X[:0]), Y[:0]),
    "X must hold real numbers": lambda t: labelled(mapped(t, X.astype("S4")), Y),
    r"batch 0: y has shape \(3000,\), but shape \(700,\)": lambda t: labelled(
        [(Stored(X[:700]), Y)]
    ).inspect(),
    r"batch 0: sample_weight has shape \(3000,\)": lambda t: as_source(
        [(mapped(t, X[:700]), W)], labelled=False
    ).inspect(),
}


@together("said", WRONG)
def test_misuse_is_explained(said, tmp_path):
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        WRONG[said](tmp_path)


def collapse(x, y):
    raise ConnectionError("no route to host")


def with_first(value):
    def change(x, y):
        x = x.copy()
        x[len(x) // 2, 5] = value
        return x, y

    return change


FAULTS = {  # what is said, and what has become of a batch
    "X contains NaN": with_first(np.nan),
    r"X has shape \(37,\)": lambda x, y: (x[0], y),
    "X must hold real numbers": lambda x, y: (x.astype(str), y),
    "X is None|X comes in": lambda x, y: None,
    "X holds float64, but the batches before it hold float32": lambda x, y: (x.astype(float), y),
    r"y has shape \(1298,\), but shape \(1299,\) is needed": lambda x, y: (x, y[1:]),
    "y is None": lambda x, y: (x, None),
    "y contains NaN": lambda x, y: (x, np.where(y == 2, np.nan, y)),
    "sample_weight must come with every batch or with none": lambda x, y: (x, y, np.ones(len(x))),
    "X comes in a batch of 4 entries": lambda x, y: (x, y, None, None),
    r"X comes in a batch that is a dict; let each batch be \(X, y\) or": lambda x, y: {"x": x},
    "ConnectionError: no route to host": collapse,
}


def broken(change):
    "The stream, with batch number 3 changed."
    for index, (x, y) in enumerate(stream(X, Y)):
        yield change(x, y) if index == 3 else (x, y)


def delayed_broken(change):
    dask = pytest.importorskip("dask")
    batches = [dask.delayed(batch) for batch in stream(X, Y)]
    batches[3] = dask.delayed(lambda batch: change(*batch))(batches[3])
    return batches


@together("said", FAULTS)
@together("place", ["one thread", "two threads", "Dask"])
def test_a_bad_batch_is_an_error_with_its_number(said, place):
    batches = partial(broken, FAULTS[said])
    if place == "Dask":
        batches = delayed_broken(FAULTS[said])
    with (
        em.threads(1 + (place == "two threads")) as pool,
        pytest.raises(BatchError, match=f"^batch 3: ({said})") as caught,
    ):
        labelled(batches).accumulate(moments, 64, pool)
    assert caught.value.index == 3 and isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.index, again.fit) == (str(caught.value), 3, None)


def refused(batch, start):
    if 1777 in range(start, start + len(batch[0])):
        raise ValueError("y holds the label 7")
    return batch


def test_a_bad_row_of_a_file_is_an_error_with_the_number_of_its_chunk(tmp_path, small_reads):
    weights = [np.where(np.arange(3000) == 1234, value, W) for value in (np.nan, -1)]
    for arrays, said in (
        (with_first(np.nan)(X, Y), "batch 15: X contains NaN"),
        (with_first(np.inf)(X, Y), "batch 15: X contains infinity"),
        ((X, Y, weights[0]), "batch 12: sample_weight contains NaN"),
        ((X, Y, weights[1]), "batch 12: sample_weight must be at least 0, but its smallest"),
    ):
        with pytest.raises(BatchError, match=said):
            labelled(mapped(tmp_path, arrays[0]), *arrays[1:]).inspect()
    for rows in (1, 64, 700):  # whatever blocks are read
        with em.threads(2) as pool, pytest.raises(BatchError, match="^batch 15: X contains NaN"):
            bad = labelled(mapped(tmp_path, with_first(np.nan)(X, Y)[0]), Y, W)
            bad.apply(numbered).accumulate(moments, rows, pool)
        with pytest.raises(BatchError, match="^batch 17: y holds the label 7"):
            good = labelled(mapped(tmp_path, X), Y, W).apply(numbered)
            good.apply(refused).accumulate(moments, rows)


def test_a_file_that_is_cut_off_is_an_error_and_not_the_end(tmp_path, small_reads):
    source = labelled(mapped(tmp_path, X), Y)
    os.truncate(tmp_path / "X.npy", 200_000)
    with pytest.raises(BatchError, match="batch 0: OSError: the file .*X.npy has become shorter"):
        source.accumulate(moments, 64)


def test_a_private_copy_of_a_map_keeps_what_was_written_to_it(tmp_path):
    private = mapped(tmp_path, X, mode="c")
    private[5:9] = 7
    source = as_source(private, labelled=False)
    for _ in range(2):
        assert (source.collect(inputs)[5:9] == 7).all() and (private[5:9] == 7).all()


def test_a_stream_is_walked_once_per_iteration():
    model, start, (x, y, _) = problem(0, n=90)
    walks = []

    def counted():
        walks.append(1)
        return iter(stream(x, y, cuts=(50,)))

    em.fit(model, start, labelled(counted), max_iter=4)
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
    assert projected.dtype == expected.dtype
    assert projected.collect(inputs, rows).tobytes() == expected.tobytes()


def test_projected_images_keep_their_labels(tmp_path):
    images, y = load_digits(return_X_y=True)
    file = mapped(tmp_path, images.astype(np.uint8).reshape(-1, 8, 8))
    source = labelled(file, y, flat=True)
    train = project(source, svd_projection(source, 7), 16)
    assert (train.inspect().labels == y).all() and train.n_features == 7
    lengths = [len(x) for x, _, _ in project([X[:2500], X[2500:]] * 2, np.eye(37))]
    assert lengths == [4096, 1904]  # other cuts would change last bits
    with pytest.raises(ValueError, match="images have 64 pixels"):
        project(source, np.eye(60))
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
p = X.shape[1]
source = as_source(X, np.arange(len(X)) % 10, labelled=True)
solver = LeastSquares(np.eye(p)[None], (0,), (p,))
model = CapsuleRegression(np.arange(10)[None], np.full((1, 10), 2), solver)
start = CapsuleParameters(0.01 * np.random.default_rng(0).standard_normal((1, 10, 2, p)))
few = np.ones((9000, p), np.float32), np.zeros(9000, int), None
em.fit(model, start, few, max_iter=1, n_threads=2)
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
    path = tmp_path / "X.npy"
    out = np.lib.format.open_memmap(path, "w+", np.float32, (500_000, 49))
    out.reshape(50, 10_000, 49)[:] = np.random.default_rng(0).standard_normal((10_000, 49))
    mebibytes = out.nbytes / 2**20
    del out
    command = [sys.executable, "-c", MEMORY, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < mebibytes / 2
    path.unlink()
