"""The capsule network as an estimator: scikit-learn's conventions, images in any form, files
without code, and PyTorch only when it is needed.
"""

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import PATIENCE, together
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import check_estimator

from capslit.routing import CapsuleNetworkClassifier
from capslit.storage import StorageError, load_arrays

SMALL = {"features": ((8, 2, 1),), "primary": 2, "capsules": (), "epochs": 8, "random_state": 0}
ABLE = SMALL | {
    "features": ((3, 2, 1),),
    "capsules": ((2, 2, 1),),
    "epochs": 6,
    "batch_size": 10,
}
LAYERED = SMALL | {
    "capsules": ((2, 2, 1),),
    "e_step": "exponent",
    "n_iterations": 3,
    "weighted": False,
    "shared": False,
    "coordinates": False,
    "epochs": 2,
}


def bars(n=120, seed=0):
    "Images with a bright row that tells the class, and the names of the classes."
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n)
    X = 0.2 * rng.random((n, 5, 5))
    X[np.arange(n), codes] += 0.8
    return X, np.array(["bottom", "middle", "top"])[codes]


WITHOUT_TORCH = """
import sys
class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Without())
from sklearn.base import clone
from capslit.routing import CapsuleNetworkClassifier
model = clone(CapsuleNetworkClassifier(primary=3))
try:
    model.fit([[0.0] * 16, [1.0] * 16] * 4, [0, 1] * 4)
except ImportError as error:
    print(error)
print(model.primary, sorted(vars(model)) == sorted(model.get_params()))
"""


def test_the_class_needs_no_torch_and_fit_says_what_is_missing():
    said = subprocess.check_output(
        [sys.executable, "-c", WITHOUT_TORCH], text=True, timeout=PATIENCE
    )
    assert said == "capslit.routing.network needs PyTorch: pip install capslit[torch]\n3 True\n"


torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.fixture(scope="module")
def model():
    return CapsuleNetworkClassifier(**ABLE).fit(*bars())


def test_conventions_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(CapsuleNetworkClassifier(**SMALL), on_fail=None, on_skip=None)
    bad = {(r["check_name"], repr(r["exception"])) for r in results if r["status"] != "passed"}
    assert len(results) > 50 and {name for name, _ in bad} <= {"check_array_api_input"}, bad


def test_it_learns_and_says_how_sure_it_is(model):
    X, y = bars(seed=1)
    P = model.predict_proba(X)
    assert model.score(X, y) > 0.9 and log_loss(y, P) < 0.4
    assert np.allclose(P.sum(axis=1), 1) and np.allclose(np.log(P), model.predict_log_proba(X))
    a = model.decision_function(X)
    assert np.all((a >= 0) & (a <= 1))
    assert np.array_equal(model.classes_[a.argmax(axis=1)], model.predict(X))
    ratios = np.log(P[:, 0] / P[:, 1]) / (a[:, 0] - a[:, 1])
    assert np.allclose(ratios, model.sharpness_) and model.poses(X[:4]).shape == (4, 3, 4, 4)


@together("settings", [SMALL, LAYERED])
def test_the_settings_reach_the_network(settings):
    X, y = bars()
    model = CapsuleNetworkClassifier(**settings).fit(X[:40], y[:40])
    found = json.loads(json.dumps(model.network().settings))
    given = json.loads(json.dumps(settings))
    assert all(found[name] == value for name, value in given.items() if name in found)
    assert found["side"] == 5 and found["n_classes"] == 3
    assert len(model.history_["loss"]) == settings["epochs"]


def test_images_in_any_form_say_the_same(model):
    X, y = bars()
    told = model.predict_proba(X)
    assert np.array_equal(told, model.predict_proba(X.reshape(len(X), -1)))
    assert np.allclose(told[5:9], model.predict_proba(X[5:9]), rtol=0, atol=1e-9)
    # a power of two: to the bit
    scaled = CapsuleNetworkClassifier(**ABLE).fit(256 * X, y)
    assert np.array_equal(scaled.predict_proba(256 * X), told)
    frame = pd.DataFrame(X.reshape(120, -1), columns=[f"p{i}" for i in range(25)])
    named = CapsuleNetworkClassifier(**ABLE).fit(frame, y)
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    assert np.array_equal(named.predict(frame), model.predict(X))


def test_a_seed_decides_all_and_the_global_generator_stays(model):
    X, y = bars()
    before = torch.get_rng_state()
    again = CapsuleNetworkClassifier(**ABLE).fit(X, y)
    other = CapsuleNetworkClassifier(**ABLE | {"random_state": 1}).fit(X, y)
    assert torch.equal(before, torch.get_rng_state())
    assert all(np.array_equal(a, again.weights_[name]) for name, a in model.weights_.items())
    assert not np.array_equal(model.decision_function(X), other.decision_function(X))


@together(
    "settings, batches",
    [({"validation_fraction": 0.5, "batch_size": 1000}, 1), ({"validation_fraction": 0.0}, 3)],
)
def test_held_out_examples_are_not_learned_from(settings, batches):
    model = CapsuleNetworkClassifier(**SMALL | {"epochs": 1} | settings).fit(*bars())
    assert model.weights_["features.1.num_batches_tracked"] == batches and model.sharpness_ > 0


def test_a_file_holds_all_as_plain_arrays(model, tmp_path):
    X, _ = bars(seed=3)
    path, copy = tmp_path / "model.npz", tmp_path / "again.npz"
    model.save(path)
    again = CapsuleNetworkClassifier.load(path)
    assert np.array_equal(again.poses(X), model.poses(X))
    again.save(copy)
    assert copy.read_bytes() == path.read_bytes()
    arrays, meta = load_arrays(path)
    assert meta["schema"] == "capslit.CapsuleNetworkClassifier/1"
    assert all(array.dtype.kind in "biufU" for array in arrays.values())
    with pytest.raises(NotFittedError):
        CapsuleNetworkClassifier().save(tmp_path / "none.npz")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(StorageError):
        CapsuleNetworkClassifier.load(path)


@together(
    "settings, words",
    [
        ({"epochs": 0}, "epochs"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"features": ((8, 9, 1),)}, "too small for windows of 9 × 9"),
    ],
)
def test_settings_that_make_no_sense_change_nothing(settings, words):
    model = CapsuleNetworkClassifier(**SMALL | settings)
    with pytest.raises(ValueError, match=words):
        model.fit(*bars())
    assert sorted(vars(model)) == sorted(model.get_params())
