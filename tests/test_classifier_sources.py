"""`CapsuleClassifier` on files, streams, Dask and tensors: the same numbers wherever the data are,
and clear words where they cannot be used.
"""

import os
import pickle
import subprocess
import sys
import warnings
from functools import partial
from importlib.util import find_spec

import array_api_strict as strict
import numpy as np
import pytest
from conftest import PATIENCE, classes as groups, together
from sklearn.exceptions import ConvergenceWarning

from capslit import CapsuleClassifier, arrays, em
from capslit.capsules.problems import initial_weights
from capslit.estimator.training_data import TrainingData
from capslit.capsules.settings import Incremental, PassiveAggressive, Stepwise

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed|dask|zarr"),
]
ARCHITECTURES = ["multiclass", "ovr", "ovo"]
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
NAMES = np.array(["ant", "bee", "cat", "dog"])
FAR = strict.Device("device1")
RESULTS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "squash",
)


def quick(architecture="multiclass", **parameters):
    return CapsuleClassifier.paper(2, **QUICK | {"architecture": architecture} | parameters)


def examples(n=700, p=6, m=4, dtype=np.float64, spread=1.0):
    X, y = groups(n, p, m)
    return (X * 0.8).astype(dtype), NAMES[y], np.random.default_rng(1).random(n)


def stream(X, y=None, w=None, cuts=(0, 1, 40, 333, 600)):
    "Uneven batches."
    cuts, columns = [*cuts, len(X)], [a for a in (X, y, w) if a is not None]
    return [tuple(a[i:j] for a in columns) for i, j in zip(cuts, cuts[1:])]


def mapped(path, a):
    np.save(path, a)
    return np.load(path, mmap_mode="r")


def from_file(tmp_path, X, y, w):
    return mapped(tmp_path / "X.npy", X), y, w


def from_files(tmp_path, X, y, w):
    return tuple(mapped(tmp_path / f"{i}.npy", a) for i, a in enumerate((X, y, w)))


def from_zarr(tmp_path, X, y, w):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed; pip install capslit[zarr]")
    array = zarr.create_array(
        str(tmp_path / "X.zarr"), shape=X.shape, dtype=X.dtype, chunks=(100, X.shape[1])
    )
    array[:] = X
    return array, y, w


def from_batches(tmp_path, X, y, w):
    return (stream(X, y, w),)


def from_function(tmp_path, X, y, w):
    return (lambda: iter(stream(X, y, w, cuts=(0, 500))),)


def from_dask(tmp_path, X, y, w):
    da = pytest.importorskip(
        "dask.array", reason="Dask is not installed; pip install capslit[dask]"
    )
    return tuple(da.from_array(a, chunks=(256, *a.shape[1:])) for a in (X, y, w))


def from_delayed(tmp_path, X, y, w):
    dask = pytest.importorskip("dask", reason="Dask is not installed; pip install capslit[dask]")
    return ([dask.delayed(batch) for batch in stream(X, y, w, cuts=(0, 256, 512))],)


SOURCES = [from_file, from_files, from_zarr, from_batches, from_function, from_dask, from_delayed]


CLUSTERED = (
    from_dask,
    from_delayed,
)  # whose partitions are smaller here than a block in memory: sums in another order


def same(a, b, place=None):
    """Whether two classifiers have the same weights and history: to the bit, but for rounding on a
    cluster with small partitions.
    """
    equal = (
        partial(np.array_equal, equal_nan=True)
        if place not in CLUSTERED
        else partial(np.allclose, rtol=1e-7, atol=1e-9, equal_nan=True)
    )
    return (
        equal(a.coef_, b.coef_)
        and equal(a.intercept_, b.intercept_)
        and all(equal(a.history_[name], b.history_[name]) for name in a.history_)
    )


# ── the same numbers wherever the data are
# ───────────────────────────────────────────────────────────────────────────────────


@together("architecture", ARCHITECTURES)
@pytest.mark.parametrize("place", SOURCES)
def test_the_same_bits_from_everywhere(place, architecture, tmp_path):
    X, y, w = examples(dtype=np.float64 if place in CLUSTERED else np.float32)
    held = {"X_val": X[:90], "y_val": y[:90]}
    here, there = (
        quick(architecture).fit(X, y, w, **held),
        quick(architecture).fit(*place(tmp_path, X, y, w), **held),
    )
    assert (
        same(here, there, place)
        and there.coef_.dtype == X.dtype
        and there.classes_.tolist() == NAMES.tolist()
    )
    assert there.n_features_in_ == 6 and there.n_iter_ == here.n_iter_


@together("dtype", ["f2", "i1", "u2", "?", ">f4", ">f8"])
@together("place", SOURCES)
def test_other_numbers_are_learned_in_the_precision_that_memory_gives_them(place, dtype, tmp_path):
    X, y, w = examples()
    X = (
        X > 0
        if dtype == "?"
        else np.clip(20 * np.abs(X), 0, 100)
        if dtype == "u2"
        else np.clip(20 * X, -100, 100)
    ).astype(dtype)
    here, there = quick().fit(X, y, w), quick().fit(*place(tmp_path, X, y, w))
    assert same(here, there, place) and there.coef_.dtype == here.coef_.dtype == np.float64


@together("place", SOURCES)
def test_early_stopping_holds_the_same_examples_out(place, tmp_path, monkeypatch):
    X, y, w = examples()
    w[::7] = 0
    options = {"early_stopping": 0.3, "random_state": 3}
    here = quick(**options).fit(X, y, w)
    assert np.isfinite(here.history_["validation_error"]).all()
    for limit in (2**29, 0):  # held-out examples in memory, and streamed
        monkeypatch.setattr(TrainingData, "IN_MEMORY", limit)
        (tmp_path / str(limit)).mkdir()
        assert same(here, quick(**options).fit(*place(tmp_path / str(limit), X, y, w)), place)


@together("place", SOURCES)
def test_validation_examples_from_everywhere(place, tmp_path):
    X, y, w = examples()
    here = quick("ovr").fit(X[:300], y[:300], X_val=X, y_val=y, sample_weight_val=w)
    given = dict(zip(("X_val", "y_val", "sample_weight_val"), place(tmp_path, X, y, w)))
    assert same(here, quick("ovr").fit(X[:300], y[:300], **given), place)


def test_large_data_are_cut_into_the_same_blocks(tmp_path):
    """More examples than one block, more batches than one, several threads; so many that early
    stopping is the default.
    """
    X, y = groups(11_000, 5, 3)
    w, options = (
        np.random.default_rng(0).random(len(X)).astype(X.dtype),
        {"patience": (2, 1), "random_state": 0},
    )
    for architecture in ARCHITECTURES:
        here = quick(architecture, **options).fit(X, y, w)
        for threads in (1, 2):
            there = quick(architecture, **options | {"n_jobs": threads}).fit(
                stream(X, y, w, cuts=(0, 5000, 5001))
            )
            assert same(here, there) and np.isfinite(there.history_["validation_error"][0]).all()


def test_a_cluster_with_large_partitions_has_the_same_bits():
    da = pytest.importorskip(
        "dask.array", reason="Dask is not installed; pip install capslit[dask]"
    )
    X, y = groups(40_000, 5, 3)
    chunked = da.from_array(X, chunks=(16384, 5)), da.from_array(y, chunks=16384)
    for architecture in ARCHITECTURES:
        here, there = (
            quick(architecture, patience=(2, 1), early_stopping=False).fit(*given)
            for given in ((X, y), chunked)
        )
        assert same(here, there)


@pytest.mark.parametrize("place", SOURCES)
@together("architecture", ARCHITECTURES)
def test_predictions_from_everywhere(place, architecture, tmp_path):
    X, y, w = examples()
    model, given = quick(architecture).fit(X, y), place(tmp_path, X, y, w)
    for name in RESULTS:
        here, there = getattr(model, name)(X), getattr(model, name)(given[0])
        assert there.shape == here.shape or place is from_delayed  # whose lengths nobody knows yet
        if place in CLUSTERED:
            assert (
                type(there).__module__.startswith("dask")
                and there.dtype == here.dtype
                and there.shape[1:] == here.shape[1:]
            )
            there = there.compute()
        if name == "predict":
            assert np.array_equal(here, there)
        else:
            np.testing.assert_allclose(there, here, rtol=1e-12, atol=1e-14)
    assert model.score(*given) == pytest.approx(model.score(X, y, w), abs=1e-12)
    assert isinstance(model.score(*given), float)


@together("architecture", ARCHITECTURES)
def test_what_is_done_with_batches_can_be_sent_to_other_processes(architecture, monkeypatch):
    da = pytest.importorskip(
        "dask.array", reason="Dask is not installed; pip install capslit[dask]"
    )
    from capslit.data.dask import DaskSource

    sent = []

    def travelling(original):
        def method(self, function, *args):
            sent.append(type(function).__name__)
            return original(self, pickle.loads(pickle.dumps(function)), *args)

        return method

    for name in ("accumulate", "apply", "map", "collect"):
        monkeypatch.setattr(DaskSource, name, travelling(getattr(DaskSource, name)))
    X, y, w = examples()
    given = [da.from_array(a, chunks=(256, *a.shape[1:])) for a in (X, y, w)]
    here, there = (
        quick(architecture, early_stopping=True, random_state=0).fit(*three)
        for three in ((X, y, w), given)
    )
    assert same(here, there, from_dask) and np.array_equal(
        there.predict(given[0]).compute(), here.predict(X)
    )
    assert there.score(*given) == pytest.approx(here.score(X, y, w)) and len(sent) > 10


def test_predictions_of_a_large_file_are_those_in_memory_to_the_bit(tmp_path):
    X, y = groups(9000, 5, 3)
    model, file = quick("ovo").fit(X[:500], y[:500]), mapped(tmp_path / "X.npy", X)
    for name in RESULTS:
        assert np.array_equal(getattr(model, name)(file), getattr(model, name)(X))


def test_predictions_on_a_cluster_are_made_in_blocks():
    dask, (X, y, _) = pytest.importorskip("dask.array"), examples(40_000, 40, dtype=np.float32)
    model = quick().fit(X[:900], y[:900])
    with em.threads(1):  # products by two threads round otherwise
        for name in RESULTS:
            there = getattr(model, name)(dask.from_array(X, chunks=(16384, 40))).compute(
                scheduler="synchronous"
            )
            assert np.array_equal(there, getattr(model, name)(X))


def test_a_stream_of_inputs_alone_can_be_judged():
    X, y, _ = examples()
    model = quick().fit(X, y)
    assert np.array_equal(model.predict([X[:50], X[50:]]), model.predict(X))
    assert np.array_equal(model.predict(lambda: iter([X[:50], X[50:]])), model.predict(X))


def test_batches_for_partial_fit_may_lie_on_a_disk(tmp_path):
    X, y, _ = examples()
    here, there = quick(), quick()
    for i in (0, 350):
        part = slice(i, i + 350)
        here.partial_fit(X[part], y[part], classes=NAMES)
        there.partial_fit(mapped(tmp_path / f"{i}.npy", X[part]), y[part], classes=NAMES)
    assert np.array_equal(here.coef_, there.coef_)


# ── what is wrong with a source
# ──────────────────────────────────────────────────────────────────────────────────────────────


class Flaky:
    "Batches that are good until the pass number `good`; then `spoil` has changed the third."

    def __init__(self, batches, spoil, good):
        self.batches, self.spoil, self.good, self.passes = batches, spoil, good, 0

    def __call__(self):
        self.passes += 1
        for i, batch in enumerate(self.batches):
            yield self.spoil(batch) if i == 2 and self.passes > self.good else batch


def broken(batch):
    raise OSError("the disk is gone")


def with_nan(batch):
    X = batch[0].copy()
    X[5, 1] = np.nan
    return X, batch[1]


SPOILED = {
    "raises": broken,
    "empty": lambda b: (b[0][:0], b[1][:0]),
    "width": lambda b: (b[0][:, :3], b[1]),
    "NaN": with_nan,
    "labels": lambda b: (b[0], b[1][:5]),
}


@together("spoil", SPOILED.values(), ids=SPOILED)
def test_a_batch_that_goes_bad_leaves_the_last_good_weights(spoil, tmp_path):
    X, y, _ = examples()
    model = quick(early_stopping=False, momentum=0).fit(X[:100], y[:100])
    before = model.coef_
    for good in (0, 9):  # in the first pass, and in the middle of learning
        with pytest.raises(em.BatchError, match=r"^batch 2") as caught:
            model.fit(
                Flaky(stream(X, y), spoil, good),
                checkpoint=tmp_path / f"{good}.npz",
                checkpoint_every=0,
            )
        assert caught.value.index == 2 and model.coef_ is before
        if good == 0:
            assert caught.value.estimator is None
            continue
        kept = caught.value.estimator
        assert (
            kept.score(X, y) > 0.6
            and kept.n_iter_ >= 1
            and kept.n_features_in_ == 6
            and len(kept.history_["objective"]) == kept.n_iter_
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            shorter = quick(momentum=0, max_iter=kept.n_iter_).fit(X, y)
        assert np.array_equal(kept.coef_, shorter.coef_)
    resumed = quick(momentum=0).fit(stream(X, y), checkpoint=tmp_path / "9.npz")
    assert same(resumed, quick(momentum=0).fit(X, y))


def test_a_bad_batch_of_validation_examples_is_named():
    X, y, _ = examples()
    with pytest.raises(em.BatchError, match="(?s)batch 2.*X_val") as caught:
        quick().fit(X, y, X_val=Flaky(stream(X, y), with_nan, 0))
    assert caught.value.index == 2


@together(
    "args, kwargs, name",
    [
        ((iter([]),), {}, "X"),
        ((stream(*examples()[:2]), examples()[1]), {}, "y"),
        (([np.ones((3, 2))],), {}, "X|y"),
        (([(np.ones((3, 2)), np.zeros(3, int))],), {}, "y"),
        ((stream(examples()[0] * np.nan, examples()[1]),), {}, "batch 0"),
        ((*examples()[:2],), {"X_val": stream(examples()[0][:, :2], examples()[1])}, "X"),
        (
            (*examples()[:2],),
            {"X_val": stream(examples()[0], np.where(examples()[1] == "ant", "emu", "bee"))},
            "y_val.*emu",
        ),
        ((stream(examples()[0], examples()[1], 0 * examples()[2]),), {}, "sample_weight"),
        ((stream(examples()[0] * 1e200, examples()[1]),), {}, "X"),
        ((stream(examples()[0], examples()[2]),), {}, "y"),
        ((*examples()[:2],), {"y_val": examples()[1]}, "X_val"),
    ],
    ids=[
        "one-shot",
        "labels twice",
        "no labels",
        "one class",
        "NaN",
        "width",
        "unknown label",
        "weights of zero",
        "too large",
        "numbers for labels",
        "half",
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_wrong_with_a_source_is_said(args, kwargs, name):
    model = quick()
    with pytest.raises((TypeError, ValueError), match=rf"(?s)({name})"):
        model.fit(*args, **kwargs)
    assert not any(key.endswith("_") for key in vars(model))


def test_features_of_sources_are_checked(tmp_path):
    X, y, _ = examples()
    model = quick().fit(stream(X, y))
    for bad in (stream(X[:, :4]), mapped(tmp_path / "X.npy", X[:, :4])):
        with pytest.raises(ValueError, match="features"):
            model.predict(bad)
        with pytest.raises(ValueError, match="features"):
            model.transform(bad)


def test_prototypes_need_arrays(tmp_path):
    X, y, _ = examples()
    model = quick().fit(X, y)
    assert np.array_equal(
        model.prototypes(mapped(tmp_path / "X.npy", X), y), model.prototypes(X, y)
    )
    for method in (model.prototypes, model.posterior_mean):
        with pytest.raises(TypeError, match="X is a stream"):
            method(stream(X, y), y)


# ── arrays of other libraries
# ────────────────────────────────────────────────────────────────────────────────────────────────


def strict_there(a):
    return strict.asarray(a, device=FAR)


def torch_there(a):
    return pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    ).asarray(np.array(a))


def kind(a):
    return type(a), getattr(a, "device", None)


@pytest.fixture
def transfers(monkeypatch):
    "The sizes of all arrays of other libraries that become NumPy's."
    sizes, original = [], arrays.to_numpy

    def counted(a):
        if not isinstance(a, np.ndarray) and hasattr(a, "shape"):
            sizes.append(int(np.prod(tuple(a.shape))))
        return original(a)

    for name, module in list(sys.modules.items()):
        if name.startswith("capslit.") and "to_numpy" in vars(module):
            monkeypatch.setattr(module, "to_numpy", counted)
    return sizes


@pytest.mark.parametrize("there", [strict_there, torch_there])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_in_and_tensors_out(there, architecture, dtype, transfers):
    X, _, w = examples(dtype=dtype)
    y = groups(700, 6, 4)[1] * 3 - 2
    wanted = kind(there(X))
    here = quick(architecture).fit(X, y, w.astype(dtype))
    model = quick(architecture).fit(there(X), there(y), there(w.astype(dtype)))
    learning = max(transfers)
    for a in (
        model.coef_,
        model.intercept_,
        model.classes_,
        *(getattr(model, name)(there(X)) for name in RESULTS),
    ):
        assert kind(a) == wanted
    assert str(model.coef_.dtype).endswith(np.dtype(dtype).name)
    tolerance = 1e-9 if dtype == np.float64 else 2e-2
    np.testing.assert_allclose(
        arrays.to_numpy(model.coef_), here.coef_, rtol=tolerance, atol=tolerance
    )
    assert max(transfers) == learning  # predictions ask for nothing but weights
    assert learning <= max(
        700 if architecture == "ovo" else 0, model.coef_.shape[0] * 2 * 4 * 7, 6 * 4 * 7 * 7
    )
    for name in RESULTS if dtype == np.float64 else ():
        np.testing.assert_allclose(
            arrays.to_numpy(getattr(model, name)(there(X))),
            getattr(here, name)(X),
            rtol=1e-6,
            atol=1e-8,
        )
    assert model.score(there(X), there(y)) == pytest.approx(here.score(X, y), abs=0.01)
    if architecture == "multiclass" and dtype == np.float64:
        assert np.array_equal(model.prototypes(there(X), there(y)), here.prototypes(X, y))
        assert kind(model.posterior_mean(there(X), there(y))) == wanted


@together("there", [strict_there, torch_there])
def test_learning_on_a_device_moves_no_data(there, transfers):
    "However many examples there are, what comes to the host has the size of parameters."
    X, y = groups(3000, 4, 3)
    model = quick(early_stopping=False, acceleration="squarem").fit(
        there(X), there(y), X_val=there(X), y_val=there(y)
    )
    model.predict(there(X)), model.predict_proba(there(X)), model.score(there(X), there(y))
    assert transfers and max(transfers) <= 3 * 5 * 5  # the Gram matrices of three classes


@together("there", [strict_there, torch_there])
def test_early_stopping_on_a_device_holds_the_same_examples_out(there):
    X, y = groups(400, 4, 3)
    options = {"early_stopping": True, "random_state": 1}
    here, model = quick(**options).fit(X, y), quick(**options).fit(there(X), there(y))
    assert np.array_equal(model.history_["validation_error"], here.history_["validation_error"])


@together("there", [strict_there, torch_there])
def test_names_as_labels_of_tensors(there):
    X, y, _ = examples()
    model, here = quick().fit(there(X), y), quick().fit(X, y)
    assert isinstance(model.classes_, np.ndarray) and np.array_equal(
        model.predict(there(X)), here.predict(X)
    )
    assert model.score(there(X), y) == here.score(X, y) and kind(
        model.predict_proba(there(X))
    ) == kind(there(X))


@together("there", [strict_there, torch_there])
def test_partial_fit_on_tensors(there):
    X, y = groups(300, 4, 3)
    for online, names in (
        (Stepwise(), [None] * 3),
        (Incremental(), "aba"),
        (PassiveAggressive(), [None] * 3),
    ):
        here, model = quick(online=online), quick(online=online)
        for i, name in enumerate(names):
            part = slice(0, 150) if name == "a" or i == 0 else slice(150, 300)
            here.partial_fit(X[part], y[part], classes=[0, 1, 2], batch=name)
            model.partial_fit(there(X[part]), there(y[part]), classes=[0, 1, 2], batch=name)
        assert kind(model.coef_) == kind(there(X))
        np.testing.assert_allclose(arrays.to_numpy(model.coef_), here.coef_, rtol=1e-8, atol=1e-10)


def test_a_model_of_tensors_can_be_saved_and_used_elsewhere(tmp_path):
    X, y = groups(300, 4, 3)
    model = quick().fit(strict_there(X), strict_there(y))
    model.save(tmp_path / "model.npz")
    again = CapsuleClassifier.load(tmp_path / "model.npz")
    assert isinstance(again.coef_, np.ndarray) and np.array_equal(
        again.predict(X), arrays.to_numpy(model.predict(strict_there(X)))
    )
    assert np.array_equal(model.predict_proba(X), again.predict_proba(X))  # and the other way round
    assert kind(again.predict_proba(strict_there(X))) == kind(strict_there(X))


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
        env=os.environ
        | {
            "SCIPY_ARRAY_API": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr


def test_gradients_are_neither_needed_nor_kept():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    X, y = groups(200, 4, 3)
    model = quick().fit(torch.asarray(X).requires_grad_(), y)
    assert not model.coef_.requires_grad and np.array_equal(
        model.coef_.numpy(), quick().fit(torch.asarray(X), y).coef_.numpy()
    )


TENSOR, LABELS = strict_there(np.eye(6)), strict_there(np.arange(6) % 2)
INFINITE = strict_there(np.full((6, 6), np.inf))


@together(
    "args, kwargs, name",
    [
        ((TENSOR[0, :], LABELS), {}, "X"),
        ((INFINITE, LABELS), {}, "X"),
        ((TENSOR[:, :0], LABELS), {}, "X"),
        ((TENSOR[:0, :], LABELS[:0]), {}, "X"),
        ((TENSOR * 1e200, LABELS), {}, "X"),
        ((TENSOR, LABELS[:3]), {}, "y"),
        ((TENSOR, TENSOR[:, 0]), {}, "y"),
        ((TENSOR, None), {}, "y"),
        ((TENSOR, LABELS * 0), {}, "y"),
        ((TENSOR, LABELS, TENSOR), {}, "sample_weight"),
        ((TENSOR, LABELS, -TENSOR[:, 0]), {}, "sample_weight"),
        ((TENSOR, LABELS, TENSOR[:, 0] * 0), {}, "sample_weight"),
        ((TENSOR, LABELS), {"X_val": np.eye(6), "y_val": np.arange(6) % 2}, "X_val"),
        ((TENSOR, LABELS), {"X_val": TENSOR, "y_val": LABELS + 1}, "y_val"),
        ((TENSOR, LABELS), {"X_val": TENSOR[:, :2], "y_val": LABELS}, "X_val"),
        ((np.eye(6), np.arange(6) % 2), {"X_val": TENSOR, "y_val": LABELS}, "X_val"),
        ((TENSOR, np.linspace(0, 1, 6)), {}, "y"),
    ],
    ids=[str(i) for i in range(17)],
)
def test_what_is_wrong_with_tensors_is_said(args, kwargs, name):
    model = quick()
    with pytest.raises((TypeError, ValueError), match=rf"(?s)(^|\W){name}(\W|$)"):
        model.fit(*args, **kwargs)
    assert not any(key.endswith("_") for key in vars(model))


# ── starts side by side
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_restarts_are_single_fits_side_by_side(architecture, monkeypatch):
    X, y, w = examples(n=300, spread=0.5)
    options = {
        "init": "random",
        "init_scale": 0.5,
        "monitor": "likelihood",
        "tol": 1e-4,
        "random_state": 0,
    }
    several = quick(architecture, n_init=4, **options).fit(X, y, w)
    seeds = np.random.default_rng(np.random.RandomState(0).randint(2**31))

    def next_weights(targets, dims, moments, *_):
        "One start, with the random numbers that come next."
        weights, short = initial_weights(
            targets, dims, moments, init="random", init_scale=0.5, affine=True, rng=seeds
        )
        return weights[None], short

    with monkeypatch.context() as patch:
        patch.setattr("capslit.capsules.learning.drawn_weights", next_weights)
        alone = [quick(architecture, **options).fit(X, y, w) for _ in range(4)]
    reached = np.array(
        [np.nanmax(np.atleast_2d(one.history_["objective"].T), axis=1) for one in alone]
    )
    best = np.argmax(reached, axis=0)
    assert len(np.unique(best)) > 1 or best[0] > 0  # or else the test would say nothing
    wanted = (
        alone[best[0]].coef_
        if architecture == "multiclass"
        else np.stack([alone[b].coef_[q] for q, b in enumerate(best)])
    )
    np.testing.assert_allclose(several.coef_, wanted, rtol=1e-6, atol=1e-8)
    assert (
        len(several.history_["objective"]) == several.n_iter_
        and not np.isnan(several.history_["objective"][-1]).all()
    )
    assert np.array_equal(
        quick(architecture, n_init=1, **options).fit(X, y, w).coef_, alone[0].coef_
    )


def test_starts_that_have_no_alternative_are_made_once():
    X, y, _ = examples()
    assert np.array_equal(quick(n_init=5).fit(X, y).coef_, quick().fit(X, y).coef_)
    with pytest.raises(ValueError, match="n_init"):
        quick(n_init=0).fit(X, y)


def test_early_stopping_notices_batches_in_another_order():
    X, y, w = examples()
    order = np.random.default_rng(0)

    def shuffled():
        rows = order.permutation(len(X))
        return iter(stream(X[rows], y[rows], w[rows]))

    with pytest.raises(ValueError, match="^X brings its examples in another order"):
        quick(early_stopping=True).fit(shuffled)
    here, there = (quick(early_stopping=False).fit(*given) for given in ((X, y, w), (shuffled,)))
    assert (
        np.mean(here.predict(X) == there.predict(X)) > 0.95
    )  # otherwise the order does not matter


@together("missing", [None, np.nan, 3])
def test_a_missing_name_among_labels_is_named(missing, tmp_path):
    X, y, w = examples()
    y = y.astype(object)
    y[500] = missing
    with pytest.raises(
        em.BatchError,
        match=f"^batch 3: y holds {missing}, but labels that are objects must be text",
    ):
        quick().fit(stream(X, y, w))
    with pytest.raises(em.BatchError, match=f"^batch 0: y holds {missing}"):
        quick().fit(mapped(tmp_path / "X.npy", X), y)


def test_names_of_columns_are_those_of_frames_in_memory():
    pandas = pytest.importorskip("pandas")
    X, y, _ = examples()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    turned, here = frame.iloc[:, ::-1], quick().fit(frame, y)
    there = quick().fit(lambda: iter(stream(frame, y)))
    assert same(here, there) and there.feature_names_in_.tolist() == list("abcdef")
    for model in (here, there):
        assert np.array_equal(model.predict(stream(frame)), here.predict(frame))  # and no warning
        assert model.score(stream(frame, y)) == here.score(frame, y)
        with pytest.raises(ValueError, match="(?s)^X: The feature names should match.*same order"):
            model.predict([turned])
        with pytest.raises(
            em.BatchError,
            match=(
                "^batch 1: X has the column 'f' where the batches before it have 'a'; bring all"
                " columns in one order"
            ),
        ):
            model.predict([frame, turned])
    with pytest.raises(em.BatchError, match="^batch 1: X has the column 'f'"):
        quick().fit([(frame[:350], y[:350]), (turned[350:], y[350:])])
    with pytest.raises(ValueError, match="^X_val: The feature names should match"):
        quick().fit(frame, y, X_val=[(turned, y)])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        there.predict(stream(X))
    assert not hasattr(there.fit(stream(X, y)), "feature_names_in_")


def test_validation_examples_that_do_not_fit_are_named(tmp_path):
    X, y, _ = examples()
    for narrow in (stream(X[:, :3], y), mapped(tmp_path / "X.npy", X[:, :3])):
        with pytest.raises(ValueError, match="^X_val: X has 3 features"):
            quick().fit(X, y, X_val=narrow, y_val=y if isinstance(narrow, np.ndarray) else None)
    with pytest.raises(ValueError, match="^X_val: X has .* as its largest magnitude"):
        quick().fit(X, y, X_val=mapped(tmp_path / "large.npy", X * 1e155), y_val=y)


@together("place", [from_file, from_batches, from_dask])
def test_labels_of_another_kind_cannot_be_scored(place, tmp_path):
    X, y, w = examples()
    index = np.searchsorted(NAMES, y)
    with pytest.raises(ValueError, match="y holds labels of the type int64"):
        quick().fit(X, y).score(*place(tmp_path, X, index, w))
    with pytest.raises(ValueError, match="y holds labels of the type <U3"):
        quick().fit(X, index).score(*place(tmp_path, X, y, w))
