"""Fitted estimators in files: the same bits come back, nothing runs, whatever else is in a file is
one clear error, and files of earlier releases stay readable.

`python tests/test_saving.py` writes to tests/saved what is not there yet: a file for each
estimator, and what is expected from it.
"""

import os
import pickle
import shutil
import warnings
from collections import UserDict
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from conftest import together
from estimators import ESTIMATORS
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KernelDensity

import capslit
from capslit import (
    CapsuleClassifier,
    ClassConditionalClassifier,
    CompositionalModel,
    FactorialHMM,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    TableClassifier,
    storage,
)
from capslit.composition import GaussianCompositionalModel, Transforms
from capslit.deeper.patches import PatchFeatures
from capslit.deeper.sharing import SharedCapsuleClassifier
from capslit.estimator.persistence import Saved
from capslit.storage import StorageError, load_arrays, save_arrays
from capslit.mixtures.tangents import TangentDistanceClassifier
from capslit.capsules.settings import Schedule

SAVED = Path(__file__).parent / "saved"
METHODS = ("predict", "predict_proba", "decision_function", "transform", "score_samples")
QUICK = {"patience": (4, 3), "thresholds": (0.5, 0), "random_state": 0}

rng = np.random.default_rng(2021)
LABELS = rng.permutation(np.arange(60) % 3)
X = (rng.standard_normal((60, 6)) + 2.5 * rng.standard_normal((3, 6))[LABELS]).round(3)
NAMES = np.array(["ant", "bee", "wasp"])[LABELS]
FRAME = pd.DataFrame(X.astype(np.float32), columns=list("abcdef"))
BITS = (X > X.mean(axis=0)).astype(float)
IMAGES = np.roll(np.kron(np.eye(4)[[0, 3]], np.ones((1, 4))), 1, axis=1)[rng.integers(2, size=30)]
IMAGES = np.stack(
    [
        np.roll(row.reshape(4, 4), step, axis=0).ravel()
        for row, step in zip(IMAGES, rng.integers(-1, 2, size=30))
    ]
)

MAKERS = {  # what is written by this release: an unfitted estimator, its inputs, its labels
    "CapsuleClassifier": (
        CapsuleClassifier.paper(UserDict({"ant": 1, "bee": 3, "wasp": 2}), alpha=0.1, **QUICK),
        FRAME,
        NAMES,
    ),
    "TableClassifier": (
        TableClassifier(ClassConditionalClassifier(GaussianMixture(1, random_state=0))),
        FRAME,
        NAMES,
    ),
    "GaussianMixture": (GaussianMixture(2, n_init=2, random_state=0), X, None),
    "MixtureOfFactorAnalyzers": (MixtureOfFactorAnalyzers(2, 2, random_state=0), FRAME, None),
    "MixtureOfPCA": (MixtureOfPCA(2, 3, explained_variance=0.9, random_state=0), X, None),
    "ClassConditionalClassifier": (
        ClassConditionalClassifier(GaussianMixture(2, covariance_type="diag", random_state=0)),
        FRAME,
        NAMES,
    ),
    "FactorialVectorQuantizer": (FactorialVectorQuantizer(2, 3, n_init=2, random_state=0), X, None),
    "FactorialHMM": (FactorialHMM(2, 2, n_init=2, max_iter=20, random_state=0), X, None),
    "CompositionalModel": (
        CompositionalModel(2, transforms=Transforms((4, 4), 1, (0.0, 90.0))),
        IMAGES,
        None,
    ),
    "TangentDistanceClassifier": (TangentDistanceClassifier(3, image_shape=(2, 3)), X, NAMES),
}
MORE = {  # further kinds of parameters and attributes
    "object labels": (
        CapsuleClassifier.paper(2, init=np.ones((3, 2, 6)), **QUICK),
        X,
        NAMES.astype(object),
    ),
    "bool labels": (
        CapsuleClassifier.paper(2, **QUICK | {"random_state": np.random.RandomState(0)}),
        X,
        LABELS > 0,
    ),
    "ovr": (
        CapsuleClassifier.paper({0: 1, 1: 3, 2: 2}, architecture="ovr", warm_start=True, **QUICK),
        FRAME,
        LABELS,
    ),
    "ovo": (
        CapsuleClassifier.paper(2, architecture="ovo", fit_intercept=False, **QUICK),
        X,
        LABELS * 7 - 3,
    ),
    "means as a list": (
        GaussianMixture(2, means_init=X[:2].tolist(), covariance_type="diag"),
        X,
        None,
    ),
    "means as a frame": (GaussianMixture(2, means_init=FRAME[:2]), X, None),
    "shared covariance": (
        MixtureOfFactorAnalyzers(2, 1, noise="auto", tied="auto", random_state=1),
        X,
        None,
    ),
    "isotropic noise": (MixtureOfFactorAnalyzers(3, 2, noise="isotropic", random_state=1), X, None),
    "default density": (ClassConditionalClassifier(priors=[0.2, 0.3, 0.5], cv=3), X, LABELS),
    "manifolds of classes": (
        ClassConditionalClassifier(MixtureOfPCA(2, random_state=0), priors="uniform"),
        FRAME,
        NAMES.astype(object),
    ),
    "parts of classes": (
        ClassConditionalClassifier(CompositionalModel(2, transforms=Transforms((2, 3)))),
        BITS,
        LABELS,
    ),
    "bits": (
        FactorialVectorQuantizer(2, 2, observable="bernoulli", n_init=2, random_state=0),
        BITS,
        None,
    ),
    "given experts": (
        CompositionalModel(2, init=np.clip(IMAGES[:2], 0.1, 0.9), rule="maximum"),
        IMAGES,
        None,
    ),
    "infinite score": (
        CompositionalModel(
            2, init="random", random_state=np.random.default_rng(0).integers(9), binarize=0.5
        ),
        IMAGES,
        None,
    ),
    "means of experts": (
        GaussianCompositionalModel(3, rule="max_minus_min", max_active=2, random_state=0),
        FRAME,
        None,
    ),
    "given means": (GaussianCompositionalModel(2, rule="sum", noise=0.5, init=X[:2]), X, None),
    "shared weights": (
        SharedCapsuleClassifier(
            2,
            image_shape=(2, 3),
            shifts=(0, 1),
            window=2,
            stride=1,
            schedule=Schedule((0.5, 0), (4, 3), monitor="error"),
            random_state=0,
        ),
        FRAME,
        NAMES,
    ),
    "maps of patches": (
        SharedCapsuleClassifier(
            2,
            shifts=0,
            window=1,
            stride=1,
            n_maps=1,
            schedule=Schedule((0.5, 0), (4, 3), monitor="error"),
            random_state=0,
        ),
        X,
        LABELS,
    ),
    "patches": (
        PatchFeatures(
            2, patch_size=2, pooling=[2, 1], image_shape=(2, 3), n_outputs=3, random_state=0
        ),
        X,
        None,
    ),
    "patches and factors": (
        PatchFeatures(2, n_factors=1, random_state=np.random.RandomState(0)),
        FRAME,
        None,
    ),
    "one image, one row": (
        TangentDistanceClassifier(1, sides=0, kinds=["vertical shift"], image_shape=[1, 6]),
        FRAME,
        LABELS,
    ),
}
# every estimator in the table has a file, in its settings there, if it has none above
CASES = {name: (entry.estimator, entry.X, entry.y) for name, entry in ESTIMATORS.items()}
CASES |= MAKERS | MORE


def fitted(estimator, inputs, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(inputs, labels)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "made(name): a fitted estimator and the file that it wrote."
    folder, done = tmp_path_factory.mktemp("made"), {}

    def make(name):
        if name not in done:
            done[name] = fitted(*CASES[name])
            done[name].save(folder / f"{name}.npz")
        return done[name], folder / f"{name}.npz"

    return make


def assert_same(a, b, where=""):
    "Types, values, precision, and the order of axes in memory."
    if isinstance(a, UserDict):
        a = dict(a)
    if isinstance(a, pd.DataFrame):
        a = a.to_numpy()
    a, b = (part.item() if isinstance(part, np.generic) else part for part in (a, b))
    assert type(a) is type(b), f"{where}: {type(a)} became {type(b)}"
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), where
        assert (
            np.argsort([-s for s in a.strides], kind="stable").tolist()
            == np.argsort([-s for s in b.strides], kind="stable").tolist()
        ), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, pair in enumerate(zip(a, b)):
            assert_same(*pair, f"{where}.{i}")
    elif isinstance(a, BaseEstimator):
        assert_same(known(a), known(b), where)
    else:
        assert a == b or a != a and b != b, where


def known(estimator):
    "Parameters and attributes by name, without the state of generators of random numbers."
    return {
        name: None if isinstance(value, np.random.RandomState) else value
        for name, value in sorted(vars(estimator).items())
    }


# ── what comes back
# ─────────────────────────────────────────────────────────────────────────────────────────────────
@together("name", CASES)
def test_the_same_bits_come_back(name, made, tmp_path):
    estimator, path = made(name)
    again, inputs = type(estimator).load(path), CASES[name][1]
    for key, value in known(estimator).items():
        if key in estimator.get_params(deep=False) or key.endswith("_") and key[0] != "_":
            assert_same(value, getattr(again, key), key)
    for method in (method for method in METHODS if hasattr(estimator, method)):
        assert_same(getattr(estimator, method)(inputs), getattr(again, method)(inputs), method)
    if hasattr(estimator, "sample") and isinstance(estimator.random_state, (int, np.integer)):
        assert_same(estimator.sample(5), again.sample(5), "sample")
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_every_estimator_is_tried():
    kinds = {type(case[0]) for case in CASES.values()}
    public = {getattr(capslit, name) for name in capslit.__all__}
    assert {kind for kind in public if hasattr(kind, "fit")} <= kinds
    assert all(issubclass(kind, Saved) for kind in kinds)


def test_what_is_learned_later_goes_on_from_the_same_bits(made, tmp_path):
    model = CompositionalModel(2, transforms=Transforms((4, 4), 1)).partial_fit(IMAGES[:10])
    model.save(tmp_path / "model.npz")
    again = CompositionalModel.load(tmp_path / "model.npz").partial_fit(IMAGES[10:])
    assert_same(model.partial_fit(IMAGES[10:]), again)
    bayes = ClassConditionalClassifier.load(made("default density")[1]).set_params(priors="uniform")
    assert_same(bayes.predict(X), bayes.add_class(X + 50, 9).predict(X))


def test_not_finite_numbers_and_equal_names_come_back(tmp_path):
    model = fitted(*CASES["GaussianMixture"])
    model.lower_bound_, model.odd_ = (
        -np.inf,
        {
            "a": {"b": X[0]},
            "a.b": X[1],
            3: (np.nan, np.inf),
            "a_b": [X[2], "ü\0ß"],
            (1, "x"): 10**30,
        },
    )
    model.save(tmp_path / "model.npz")
    again = GaussianMixture.load(tmp_path / "model.npz")
    assert again.lower_bound_ == -np.inf
    assert_same(model.odd_, again.odd_)


# ── what is in a file
# ─────────────────────────────────────────────────────────────────────────────────────────────────
@together("name", MAKERS)
def test_a_file_holds_plain_arrays_and_says_what_it_is(name, made):
    estimator, path = made(name)
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[key].dtype.kind in "biufU" for key in arrays)
    _, meta = load_arrays(path)
    assert (
        meta["schema"] == f"capslit.{name}/{estimator._layout}"
        and meta["version"] == capslit.__version__
    )


@together("name", MAKERS)
def test_nothing_is_unpickled(name, made, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pickle was opened")

    estimator, path = made(name)
    for where, what in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (joblib, "load"),
    ):
        monkeypatch.setattr(where, what, refuse)
    type(estimator).load(path)


def test_what_cannot_be_stored_is_named_and_nothing_is_written(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(NotFittedError):
        GaussianMixture().save(path)
    foreign = fitted(ClassConditionalClassifier(KernelDensity()), X, LABELS)
    with pytest.raises(TypeError, match="^parameters.density is a KernelDensity"):
        foreign.save(path)
    strange = fitted(*CASES["GaussianMixture"])
    strange.hook_ = lambda: None
    with pytest.raises(TypeError, match="^hook_ is a function, which cannot be stored"):
        strange.save(path)

    class OfTheUser(GaussianMixture):
        pass

    with pytest.raises(
        TypeError, match="^parameters.density is a OfTheUser, which cannot be stored inside another"
    ):
        fitted(ClassConditionalClassifier(OfTheUser()), X, LABELS).save(path)
    assert os.listdir(tmp_path) == []
    own = fitted(OfTheUser(), X, None)
    own.save(path)
    assert np.array_equal(OfTheUser.load(path).means_, own.means_)
    with pytest.raises(StorageError, match="holds no GaussianMixture, but 'capslit.OfTheUser/2'"):
        GaussianMixture.load(path)


# ── what is no such file
# ─────────────────────────────────────────────────────────────────────────────────────────────────
def refused(path, match, estimator=GaussianMixture):
    with pytest.raises(StorageError, match=match) as caught:
        estimator.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_foreign_files_are_refused(made, tmp_path):
    path = tmp_path / "file"
    refused(path, "there is no such file")
    refused(tmp_path, "folder")
    path.write_bytes(b"")
    refused(path, "truncated, corrupt or not ours")
    path.write_text("GaussianMixture()")
    refused(path, "truncated, corrupt or not ours")
    pickle.dump(fitted(*CASES["GaussianMixture"]), open(path, "wb"))
    refused(path, "truncated, corrupt or not ours")
    np.savez(path.with_suffix(".npz"), means_=X)
    refused(path.with_suffix(".npz"), "it was not written by capslit")
    np.savez(path.with_suffix(".npz"), means_=np.array([{}], object))
    refused(path.with_suffix(".npz"), "truncated, corrupt or not ours")
    fitted(*CASES["GaussianMixture"]).fit(X, checkpoint=tmp_path / "run.npz")
    refused(tmp_path / "run.npz", "it holds no GaussianMixture, but 'capslit")
    refused(
        made("MixtureOfPCA")[1],
        "it holds no GaussianMixture, but 'capslit.MixtureOfPCA/2'; give a file that"
        " GaussianMixture.save",
    )


@together("name", MAKERS)
def test_a_file_that_ends_too_early_is_refused(name, made, tmp_path):
    estimator, path = made(name)
    whole, part = path.read_bytes(), tmp_path / "part.npz"
    for size in np.linspace(0, len(whole) - 1, 12).astype(int):
        part.write_bytes(whole[:size])
        refused(part, "truncated, corrupt or not ours", type(estimator))


@together("name", ["GaussianMixture", "CompositionalModel"])
def test_a_changed_byte_is_noticed_or_harmless(name, made, tmp_path):
    estimator, path = made(name)
    whole, other = path.read_bytes(), tmp_path / "other.npz"
    refusals = 0
    for place in np.random.default_rng(0).integers(len(whole), size=150):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        other.write_bytes(changed)
        try:
            again = type(estimator).load(other)
        except StorageError:
            refusals += 1
        else:  # such as a time stamp
            assert_same(known(estimator), known(again))
    assert refusals > 100


def rewritten(path, change):
    arrays, meta = load_arrays(path)
    change(arrays, meta)
    save_arrays(path, arrays, meta)


FUTURE = {
    "layout": lambda arrays, meta: meta.update(schema="capslit.CompositionalModel/9"),
    "parameter": lambda arrays, meta: (
        meta["parameters"].update(depth=3),
        meta.update(version="99.1"),
    ),
    "kind": lambda arrays, meta: (
        meta["attributes"].update(depth_={"quaternion": [1, 2, 3, 4]}),
        meta.update(version="0.2.1"),
    ),
    "field": lambda arrays, meta: (
        meta["parameters"]["transforms"]["Transforms"].update(zoom=2),
        meta.update(version="1.0rc1"),
    ),
}


@together("change", FUTURE.values(), ids=FUTURE)
def test_a_newer_file_says_so(change, made, tmp_path):
    path = shutil.copy(made("CompositionalModel")[1], tmp_path / "model.npz")
    rewritten(path, change)
    refused(
        path,
        f"it was written by a newer version of capslit, .*, than this one, {capslit.__version__};"
        " upgrade capslit",
        CompositionalModel,
    )


def test_a_newer_layout_of_an_estimator_inside_another_says_so(made, tmp_path):
    path = shutil.copy(made("ClassConditionalClassifier")[1], tmp_path / "model.npz")
    rewritten(
        path, lambda arrays, meta: meta["parameters"]["density"]["estimator"].__setitem__(1, 9)
    )
    refused(path, "a newer version of capslit", ClassConditionalClassifier)


WRONG = {
    "parameter": lambda arrays, meta: meta["parameters"].update(depth=3),
    "array": lambda arrays, meta: arrays.pop("templates_"),
    "axes": (
        lambda arrays, meta: meta["attributes"].update(templates_={"array": ["templates_", [0, 0]]})
    ),
    "kind": lambda arrays, meta: meta["attributes"].update(depth_={"__class__": {}}),
    "kinds": lambda arrays, meta: meta["attributes"].update(depth_={"tuple": [], "float": "1"}),
    "estimator": (
        lambda arrays, meta: meta["attributes"].update(depth_={"estimator": ["os", 1, {}]})
    ),
    "float": lambda arrays, meta: meta["attributes"].update(depth_={"float": "much"}),
    "method": lambda arrays, meta: meta["attributes"].update(predict=1),
    "private": lambda arrays, meta: meta["attributes"].update(__dict__=1),
    "parameters": lambda arrays, meta: meta.pop("parameters"),
    "attributes": lambda arrays, meta: meta.update(attributes=[1]),
}


@together("change", WRONG.values(), ids=WRONG)
def test_other_content_is_refused(change, made, tmp_path):
    path = shutil.copy(made("CompositionalModel")[1], tmp_path / "model.npz")
    rewritten(path, change)
    refused(path, "it is not what capslit .* writes", CompositionalModel)


# ── whole or not at all
# ─────────────────────────────────────────────────────────────────────────────────────────────────
@together("moment", [0, 3, "sync", "rename"])
def test_a_file_is_written_whole_or_not_at_all(moment, made, tmp_path, monkeypatch):
    path, (estimator, _) = tmp_path / "model.npz", made("GaussianMixture")
    write, count = storage._write_member, iter(range(100))

    def full(*_):
        raise OSError(28, "No space left on device")

    names = {"sync": "fsync", "rename": "replace"}
    if moment in names:
        monkeypatch.setattr(storage.os, names[moment], full)
    else:
        monkeypatch.setattr(
            storage,
            "_write_member",
            lambda *args: full() if next(count) == moment else write(*args),
        )
    for before in (None, b"PK what was there before"):
        count = iter(range(100))
        if before:
            path.write_bytes(before)
        with pytest.raises(StorageError, match="the disk is full"):
            estimator.save(path)
        assert os.listdir(tmp_path) == (["model.npz"] if before else [])
    assert path.read_bytes() == b"PK what was there before"


# ── files of earlier releases
# ────────────────────────────────────────────────────────────────────────────────────────────────
def expected():
    with np.load(SAVED / "expected.npz") as arrays:
        return dict(arrays)


KEPT = sorted(path.stem for path in SAVED.glob("*-*.npz"))


@together("name", KEPT)
def test_files_of_earlier_releases_give_what_they_gave(name):
    kind, wanted = name.split("-")[0], expected()
    estimator = {"TangentDistanceClassifier": TangentDistanceClassifier}.get(kind) or getattr(
        capslit, kind
    )
    estimator = estimator.load(SAVED / f"{name}.npz")
    methods = [key.split("/")[1] for key in wanted if key.startswith(f"{name}/")]
    assert methods
    inputs = wanted[{"CompositionalModel": "images"}.get(kind, "X")]
    if hasattr(estimator, "feature_names_in_"):
        inputs = pd.DataFrame(inputs, columns=estimator.feature_names_in_).astype(np.float32)
    for method in methods:
        found, want = getattr(estimator, method)(inputs), wanted[f"{name}/{method}"]
        if (kind, method, len(want)) == (
            "FactorialHMM",
            "score_samples",
            1,
        ):  # of the sequence, in version 0.1
            found = found.sum(keepdims=True)
        if want.dtype.kind == "f":
            np.testing.assert_allclose(
                found, want, rtol=1e-5 if found.dtype == np.float32 else 1e-9, atol=1e-12
            )
        else:
            assert found.tolist() == want.tolist()


def test_every_estimator_has_a_kept_file():
    assert {name.split("-")[0] for name in KEPT} == set(MAKERS)


def write():
    "Add to tests/saved the files of this release that are not there."
    wanted = expected() if (SAVED / "expected.npz").exists() else {"X": X, "images": IMAGES}
    for name, case in MAKERS.items():
        path = SAVED / f"{name}-{case[0]._layout}.npz"
        if not path.exists():
            fitted(*case).save(path)
            estimator = type(case[0]).load(path)
            for method in METHODS:
                if hasattr(estimator, method):
                    wanted[f"{path.stem}/{method}"] = getattr(estimator, method)(case[1])
    np.savez_compressed(SAVED / "expected.npz", **wanted)


if __name__ == "__main__":
    write()
