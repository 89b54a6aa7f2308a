"""The million digits: what is added and what stays as it is, how the strength is chosen, and the
same fit on another device.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import together

from capslit.capsules.classifier import CapsuleClassifier
from capslit.data.datasets import load_digits, project, svd_projection
from capslit.data.deformations import DeformedImages, Deformations, TangentDeformations
from capslit.experiments import million
from capslit.experiments.million import MILLION, READINGS
from capslit.experiments.records import PAPER, Bench, load_protocol, load_record

QUICK = PAPER | {"architecture": "ovo", "patience": [8, 4, 2, 1, 1]}


@pytest.fixture(scope="module")
def protocol():
    return load_protocol(load_digits())


@together(
    "deformations, n_ancestors", [(Deformations(0.5, 3), None), (TangentDeformations(), 1540)]
)
def test_only_training_images_are_joined_by_deformations(protocol, deformations, n_ancestors):
    "All 1,540 ancestors include the validation images, which decide when to stop; none the test."
    data = load_digits()
    n = len(protocol.X)
    larger = million._enlarge(protocol, deformations, 2000, n_ancestors)
    assert larger.X.dtype == np.float32
    assert np.array_equal(larger.X[:n], protocol.X)
    of = np.arange(2000) % (n_ancestors or n)
    assert np.array_equal(larger.y, np.concatenate([protocol.y, data.labels[of]]))
    for name in ("X_val", "y_val", "X_test", "y_test", "test_images"):
        assert getattr(larger, name) is getattr(protocol, name)
    rows = slice(1500, 1540)
    images = deformations.apply(data.images[of[rows]], 1500)
    projected = project(images, svd_projection(data.train_images, 16), 16.0)
    assert np.allclose(larger.X[n:][rows], projected, atol=1e-6)
    assert million._enlarge(protocol, deformations, 0) is protocol
    assert million._enlarge(protocol, replace(deformations, strength=0), 100) is protocol


def test_the_strength_is_chosen_on_the_validation_images():
    rows = {
        "strength-0": (0, 0.01, 0.01),
        "strength-2": (2.0, 0.02, 0.01),
        "strength-1": (1.0, 0.02, 0.05),
        "strength-4": (4.0, 0.03, 0.0),
        "ovo-1": (4.0, 0.0, 0.0),
    }
    keys = ("strength", "validation_error", "test_error")
    finished = {name: dict(zip(keys, row)) for name, row in rows.items()}
    assert million._choose_strength(finished) == 1.0


def test_the_gallery_shows_members_of_the_stream(protocol):
    n = len(protocol.X)
    shown = million._gallery(protocol, Deformations(seed=4))
    assert shown.dtype == np.uint8
    stream = DeformedImages(load_digits().images[:n], protocol.y, 6 * n, Deformations(seed=4))
    seven = 3 * n + int(np.flatnonzero(protocol.y == 7)[0])
    images, labels = stream.part(seven, seven + 1)
    assert labels[0] == 7
    assert np.array_equal(shown[3, 7], np.rint(255 / 16 * images[0]).astype(np.uint8))


def test_the_quick_records(quick_record):
    record = load_record(quick_record("million"))
    strength = million._choose_strength({name: record.metrics(name) for name in record.parts})
    for name in ("ovo-1", "ovo-2"):
        metrics = record.metrics(name)
        assert metrics["strength"] == strength
        assert metrics["n_train"] == 1283 + 2566
        assert set(record.parts[name]["seconds"]) == {"generate", "fit", "measure"}
    assert all(part.independent for part in READINGS.parts("mnist", "paper"))
    readings = load_record(quick_record("readings"))
    for part in READINGS.parts("digits", "quick"):
        assert part.independent
        assert readings.metrics(part.name)["n_train"] == 1283 + part.parameters["n_extra"]
    fixed, joint, separate = (
        readings.metrics(f"weak-{stopping}-1283") for stopping in ("fixed", "joint", "separate")
    )
    assert fixed["training_error"] < 0.1 * separate["training_error"]
    assert len(set(joint["iterations"])) == 1 < len(set(separate["iterations"]))


def test_fixed_updates_look_at_no_validation_image(protocol):
    "Of each pair the weights with the fewest errors among all updates."
    (part,) = [p for p in READINGS.parts("digits", "quick") if p.name == "weak-fixed-1540"]
    settings = {key: part.parameters[key] for key in (*PAPER, "architecture", "early_stopping")}
    settings |= {"capsule_dim": 1, "patience": [7], "max_iter": 7}
    X = protocol.X.astype(np.float64)
    y = protocol.y
    fixed = million.STOPPING["fixed"]
    few, model = (fixed.paper(**settings).fit(X, y, X_val=X[:n], y_val=y[:n]) for n in (20, 900))
    assert np.array_equal(few.coef_, model.coef_)
    assert model.n_iter_ == 7
    assert np.isnan(model.history_["validation_error"]).all()
    lowest = np.nanmin(model.history_["training_error"], axis=0)
    for k, (a, b) in enumerate(zip(*np.triu_indices(10, 1))):
        rows = (y == a) | (y == b)
        lengths = np.sum(np.einsum("mdp,np->nmd", model.coef_[k], X[rows]) ** 2, axis=2)
        wrong = np.mean(np.where(lengths[:, 0] >= lengths[:, 1], a, b) != y[rows])
        assert wrong == pytest.approx(lowest[k])


@together("capsule_dim", [1, 3])
def test_another_device_learns_the_same(protocol, tmp_path, monkeypatch, capsule_dim):
    pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")
    monkeypatch.setattr(million._OnDevice, "device", "cpu")
    X, X_val = (inputs.astype(np.float64) for inputs in (protocol.X, protocol.X_val))
    data = {"X": X, "y": protocol.y, "X_val": X_val, "y_val": protocol.y_val}
    settings = QUICK | {"capsule_dim": capsule_dim}
    ours = million._LargeData.paper(**settings).fit(**data)
    there = million._OnDevice.paper(**settings).fit(**data, checkpoint=tmp_path / "state.npz")
    assert np.allclose(there.coef_, ours.coef_, rtol=1e-6, atol=1e-9)
    errors = [model.history_["validation_error"] for model in (there, ours)]
    assert np.array_equal(*errors, equal_nan=True)
    assert np.array_equal(there.predict(protocol.X_test), ours.predict(protocol.X_test))


def test_a_graphics_card_is_used_where_there_is_one(protocol, tmp_path, monkeypatch):
    "The record says what the fit ran on."
    monkeypatch.setattr(million, "_find_estimator", lambda: (CapsuleClassifier, "a card"))
    part = MILLION.parts("digits", "quick")[0]
    part = replace(part, parameters=part.parameters | QUICK | {"capsule_dim": 1})
    bench = Bench(protocol.data, "quick", 0, tmp_path / "checkpoint")
    metrics, _ = million._run_million(part, bench)
    assert metrics["device"] == "a card"
