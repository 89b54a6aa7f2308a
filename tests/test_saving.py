"""Fitted estimators in files: the same bits come back, nothing runs, whatever else is in a file is
one clear error, and files of earlier releases stay readable.

`python tests/test_saving.py` writes to tests/saved what is not there yet: a file for each
estimator, and what is expected from it.
"""

import os
import pickle
import warnings
from collections import UserDict
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from conftest import together
from estimators import BITS, ESTIMATORS, X, Y
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KernelDensity

import capslit
from capslit import (
    CapsuleClassifier,
    ClassConditionalClassifier,
    CompositionalModel,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
)
from capslit.composition import Transforms
from capslit.deeper.patches import PatchFeatures
from capslit.estimator.persistence import Saved
from capslit.mixtures.tangents import TangentDistanceClassifier
from capslit.storage import StorageError, load_arrays, save_arrays

SAVED = Path(__file__).parent / "saved"
METHODS = ("predict", "predict_proba", "decision_function", "transform", "score_samples")
NAMES = np.array(["ant", "bee", "wasp"])[Y]
FRAME = pd.DataFrame(X.astype(np.float32), columns=list("abcd"))


def paper(dim=2, **settings):
    quick = {"patience": (4, 3), "thresholds": (0.5, 0), "random_state": 0}
    return CapsuleClassifier.paper(dim, **quick | settings)


GAUSSIAN = (GaussianMixture(2, n_init=2, random_state=0), X, None)
EXPERTS = (CompositionalModel(2, transforms=Transforms((2, 2), 1, (0.0, 90.0))), BITS, None)
DEFAULT = (ClassConditionalClassifier(priors=[0.2, 0.3, 0.5], cv=3), X, Y)
MANIFOLDS = (ClassConditionalClassifier(MixtureOfPCA(2, random_state=0)), FRAME, NAMES)
# every estimator in the table, and kinds of parameters and attributes that are not there
CASES = {name: (entry.estimator, entry.X, entry.y) for name, entry in ESTIMATORS.items()} | {
    "GaussianMixture": GAUSSIAN,
    "experts with transforms": EXPERTS,
    "default density": DEFAULT,
    "manifolds of classes": MANIFOLDS,
    "dictionary": (paper(UserDict({"ant": 1, "bee": 3, "wasp": 2}), alpha=0.1), FRAME, NAMES),
    "object labels": (paper(init=np.ones((3, 2, 4))), X, NAMES.astype(object)),
    "bool labels": (paper(random_state=np.random.RandomState(0)), X, Y > 0),
    "ovr": (paper({0: 1, 1: 3, 2: 2}, architecture="ovr", warm_start=True), FRAME, Y),
    "ovo": (paper(architecture="ovo", fit_intercept=False), X, Y * 7 - 3),
    "means as a list": (GaussianMixture(2, means_init=X[:2].tolist()), X, None),
    "means as a frame": (GaussianMixture(2, means_init=FRAME[:2]), X, None),
    "one covariance": (MixtureOfFactorAnalyzers(2, 1, noise="auto", tied="auto"), FRAME, None),
    "infinite score": (
        CompositionalModel(2, init="random", random_state=np.int64(8), binarize=0.5),
        BITS,
        None,
    ),
    "patches": (
        PatchFeatures(2, n_factors=1, pooling=[1, 1], random_state=np.random.RandomState(0)),
        FRAME,
        None,
    ),
    "one image, one row": (
        TangentDistanceClassifier(1, sides=0, kinds=["vertical shift"], image_shape=[1, 4]),
        FRAME,
        Y,
    ),
}


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


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_come_back_and_nothing_runs(name, made, tmp_path, monkeypatch):
    estimator, path = made(name)

    def refuse(*_, **__):
        raise AssertionError("a pickle was opened")

    with monkeypatch.context() as patch:
        for what in ("load", "loads", "Unpickler"):
            patch.setattr(pickle, what, refuse)
        patch.setattr(joblib, "load", refuse)
        again, inputs = type(estimator).load(path), CASES[name][1]
    for key, value in known(estimator).items():
        if key in estimator.get_params(deep=False) or key.endswith("_") and key[0] != "_":
            assert_same(value, getattr(again, key), key)
    for method in METHODS:
        if hasattr(estimator, method):
            assert_same(getattr(estimator, method)(inputs), getattr(again, method)(inputs), method)
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[key].dtype.kind in "biufU" for key in arrays)
    _, meta = load_arrays(path)
    assert meta["schema"] == f"capslit.{type(estimator).__name__}/{estimator._layout}"
    assert meta["version"] == capslit.__version__ and isinstance(estimator, Saved)


def test_what_is_learned_later_goes_on_from_the_same_bits(made, tmp_path):
    model = CompositionalModel(2).partial_fit(BITS[:10])
    model.save(tmp_path / "model.npz")
    again = CompositionalModel.load(tmp_path / "model.npz").partial_fit(BITS[10:])
    assert_same(model.partial_fit(BITS[10:]), again)
    bayes = ClassConditionalClassifier.load(made("default density")[1]).set_params(priors="uniform")
    assert_same(bayes.predict(X), bayes.add_class(X + 50, 9).predict(X))


def test_not_finite_numbers_and_equal_names_come_back(tmp_path):
    model = fitted(*GAUSSIAN)
    model.lower_bound_ = -np.inf
    model.odd_ = {
        "a": {"b": X[0]},
        "a.b": X[1],
        3: (np.nan, np.inf),
        "a_b": [X[2], "ü\0ß"],
        (1, "x"): 10**30,
    }
    model.save(tmp_path / "model.npz")
    again = GaussianMixture.load(tmp_path / "model.npz")
    assert again.lower_bound_ == -np.inf
    assert_same(model.odd_, again.odd_)


def test_what_cannot_be_stored_is_named_and_nothing_is_written(tmp_path):
    path = tmp_path / "model.npz"

    class OfTheUser(GaussianMixture):
        pass

    strange = fitted(*GAUSSIAN)
    strange.hook_ = lambda: None
    for model, kind, said in (
        (GaussianMixture(), NotFittedError, ""),
        (strange, TypeError, "^hook_ is a function, which cannot be stored"),
        (
            fitted(ClassConditionalClassifier(KernelDensity()), X, Y),
            TypeError,
            "^parameters.density is a KernelDensity",
        ),
        (
            fitted(ClassConditionalClassifier(OfTheUser()), X, Y),
            TypeError,
            "^parameters.density is a OfTheUser, which cannot be stored inside another",
        ),
    ):
        with pytest.raises(kind, match=said):
            model.save(path)
    assert os.listdir(tmp_path) == []
    own = fitted(OfTheUser(), X, None)
    own.save(path)
    assert np.array_equal(OfTheUser.load(path).means_, own.means_)
    refused(path, "holds no GaussianMixture, but 'capslit.OfTheUser/2'")


# ── what is no such file


def refused(path, match, estimator=GaussianMixture):
    with pytest.raises(StorageError, match=match) as caught:
        estimator.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_foreign_files_are_refused(made, tmp_path):
    path, other = tmp_path / "file", tmp_path / "file.npz"
    refused(path, "there is no such file")
    refused(tmp_path, "folder")
    for content in (b"", b"GaussianMixture()", pickle.dumps(fitted(*GAUSSIAN))):
        path.write_bytes(content)
        refused(path, "truncated, corrupt or not ours")
    np.savez(other, means_=X)
    refused(other, "it was not written by capslit")
    np.savez(other, means_=np.array([{}], object))
    refused(other, "truncated, corrupt or not ours")
    fitted(*GAUSSIAN).fit(X, checkpoint=tmp_path / "run.npz")
    refused(tmp_path / "run.npz", "it holds no GaussianMixture, but 'capslit")
    said = "but 'capslit.MixtureOfPCA/2'; give a file that GaussianMixture.save"
    refused(made("MixtureOfPCA")[1], said)
    arrays, meta = load_arrays(made("manifolds of classes")[1])
    meta["parameters"]["density"]["estimator"][1] = 9  # a layout inside another estimator
    save_arrays(path.with_suffix(".new"), arrays, meta)
    refused(path.with_suffix(".new"), "a newer version of capslit", ClassConditionalClassifier)


def changes(meta, arrays):
    "Name → what to change in the description of a saved model, and the version that it then has."
    parameters, attributes = meta["parameters"], meta["attributes"]
    return {
        "newer": {
            "kind": (attributes, {"depth_": {"quaternion": [1, 2, 3, 4]}}, "0.2.1"),
            "field": (parameters["transforms"]["Transforms"], {"zoom": 2}, "1.0rc1"),
        },
        "other": {
            "parameter": (parameters, {"depth": 3}, None),
            "array": (arrays, {"templates_": None}, None),
            "axes": (attributes, {"templates_": {"array": ["templates_", [0, 0]]}}, None),
            "kind": (attributes, {"depth_": {"__class__": {}}}, None),
            "kinds": (attributes, {"depth_": {"tuple": [], "float": "1"}}, None),
            "estimator": (attributes, {"depth_": {"estimator": ["os", 1, {}]}}, None),
            "float": (attributes, {"depth_": {"float": "much"}}, None),
            "method": (attributes, {"predict": 1}, None),
            "private": (attributes, {"__dict__": 1}, None),
            "parameters": (meta, {"parameters": None}, None),
            "attributes": (meta, {"attributes": [1]}, None),
        },
    }


SAID = {
    "newer": f"written by a newer version of capslit, .*, than this one, {capslit.__version__}; up",
    "other": "it is not what capslit .* writes",
}


@together("kind", SAID)
def test_other_content_is_refused(kind, made, tmp_path):
    path = made("experts with transforms")[1]
    for name in changes(*reversed(load_arrays(path)))[kind]:
        arrays, meta = load_arrays(path)
        place, change, version = changes(meta, arrays)[kind][name]
        for key, value in change.items():
            place[key] = value
            if value is None:
                del place[key]
        meta["version"] = version or meta["version"]
        save_arrays(tmp_path / "model.npz", arrays, meta)
        refused(tmp_path / "model.npz", SAID[kind], CompositionalModel)


# ── files of earlier releases


def expected():
    with np.load(SAVED / "expected.npz") as arrays:
        return dict(arrays)


KEPT = sorted(path.stem for path in SAVED.glob("*-*.npz"))


@together("name", KEPT)
def test_files_of_earlier_releases_give_what_they_gave(name):
    kind, wanted = name.split("-")[0], expected()
    estimator = type(ESTIMATORS[kind].estimator).load(SAVED / f"{name}.npz")
    usual = wanted["images" if kind == "CompositionalModel" else "X"]
    inputs = wanted.get(f"{name}/inputs", usual)
    methods = [method for method in METHODS if f"{name}/{method}" in wanted]
    assert methods
    if hasattr(estimator, "feature_names_in_"):
        inputs = pd.DataFrame(inputs, columns=estimator.feature_names_in_).astype(np.float32)
    for method in methods:
        want = wanted[f"{name}/{method}"]
        if kind == "MixtureOfPCA" and method == "score_samples":
            method = "score_across"  # its name since `score_samples` is a log-density
        found = getattr(estimator, method)(inputs)
        if len(want) == 1 < len(found):  # of a sequence as a whole, in version 0.1
            found = found.sum(keepdims=True)
        if want.dtype.kind == "f":
            rtol = 1e-5 if found.dtype == np.float32 else 1e-9
            np.testing.assert_allclose(found, want, rtol=rtol, atol=1e-12)
        else:
            assert found.tolist() == want.tolist()


def test_every_public_estimator_has_a_kept_file():
    public = {name for name in capslit.__all__ if hasattr(getattr(capslit, name), "fit")}
    assert public <= {name.split("-")[0] for name in KEPT}


def write():
    "Add to tests/saved the files of this release that are not there."
    wanted = expected()
    for name in {name.split("-")[0] for name in KEPT} | set(capslit.__all__) & set(ESTIMATORS):
        case = CASES[name]
        path = SAVED / f"{name}-{case[0]._layout}.npz"
        if not path.exists():
            fitted(*case).save(path)
            estimator = type(case[0]).load(path)
            wanted[f"{path.stem}/inputs"] = np.asarray(case[1])
            for method in METHODS:
                if hasattr(estimator, method):
                    wanted[f"{path.stem}/{method}"] = getattr(estimator, method)(case[1])
    np.savez_compressed(SAVED / "expected.npz", **wanted)


if __name__ == "__main__":
    write()
