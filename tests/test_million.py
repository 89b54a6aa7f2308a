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
from capslit.experiments.million import MILLION, NAMED_CONSTRUCTIONS, READINGS
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
    assert n == 1283
    assert len(data.images) == 1540 + len(protocol.X_test)
    larger = million._enlarge(protocol, deformations, 2000, n_ancestors)
    assert larger.X.shape == (n + 2000, 16)
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


def test_the_parts_are_those_that_the_chapter_states():
    "Their settings are those of the records."
    names = [part.name for part in MILLION.parts("mnist", "paper")]
    assert names[-5:] == [f"ovo-{d}" for d in (1, 2, 4, 8, 16)]
    assert {name[:9] for name in names[:-5]} == {"strength-"}  # the search comes first
    sizes = (50_000, 110_000, 150_000, 500_000, 1_000_000)
    expected = {f"tangents-16-{size}" for size in sizes} | {f"weak-16-{size}" for size in sizes[1:]}
    for word in NAMED_CONSTRUCTIONS:
        for stopping in million.STOPPING:
            expected |= {f"{word}-{stopping}-{n}" for n in (50_000, 60_000)}
    parts = READINGS.parts("mnist", "paper")
    assert {part.name for part in parts} == expected and len(parts) == len(expected)
    assert all(part.independent for part in parts)


def test_the_gallery_shows_members_of_the_stream(protocol):
    n = len(protocol.X)
    shown = million._gallery(protocol, Deformations(seed=4))
    assert shown.shape == (6, 10, 8, 8)
    assert shown.dtype == np.uint8
    stream = DeformedImages(load_digits().images[:n], protocol.y, 6 * n, Deformations(seed=4))
    seven = 3 * n + int(np.flatnonzero(protocol.y == 7)[0])
    images, labels = stream.part(seven, seven + 1)
    assert labels[0] == 7
    assert np.array_equal(shown[3, 7], np.rint(255 / 16 * images[0]).astype(np.uint8))


def test_the_experiment_on_the_embedded_digits(quick_record):
    record = load_record(quick_record("million"))
    strength = million._choose_strength({name: record.metrics(name) for name in record.parts})
    for name in ("ovo-1", "ovo-2"):
        metrics = record.metrics(name)
        assert metrics["strength"] == strength
        assert metrics["n_train"] == 1283 + 2566
        assert len(metrics["iterations"]) == 45
        wrong = record.array(name, "predicted") != record.array(name, "labels")
        assert wrong.mean() == pytest.approx(metrics["test_error"])
        assert set(record.parts[name]["seconds"]) == {"generate", "fit", "measure"}


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


def test_readings_of_the_embedded_digits(quick_record):
    record = load_record(quick_record("readings"))
    for name, part in record.parts.items():
        metrics = part["metrics"]
        assert metrics["n_train"] == 1283 + part["parameters"]["n_extra"]
        assert record.array(name, "pair_errors").shape == (metrics["n_iter"], 45)
        wrong = record.array(name, "predicted") != record.array(name, "labels")
        assert wrong.mean() == pytest.approx(metrics["test_error"])
    fixed, joint, separate = (
        record.metrics(f"weak-{stopping}-1283") for stopping in ("fixed", "joint", "separate")
    )
    assert fixed["training_error"] < 0.1 * separate["training_error"]
    assert len(set(joint["iterations"])) == 1 < len(set(separate["iterations"]))


@together("capsule_dim", [1, 3])
def test_another_device_learns_the_same(protocol, tmp_path, monkeypatch, capsule_dim):
    pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")
    monkeypatch.setattr(million._OnDevice, "device", "cpu")
    larger = million._enlarge(protocol, Deformations(), 1000)
    data = {
        "X": larger.X.astype(np.float64),
        "y": larger.y,
        "X_val": larger.X_val.astype(np.float64),
        "y_val": larger.y_val,
    }
    settings = QUICK | {"capsule_dim": capsule_dim}
    ours = million._LargeData.paper(**settings).fit(**data)
    there = million._OnDevice.paper(**settings).fit(**data, checkpoint=tmp_path / "state.npz")
    assert np.allclose(there.coef_, ours.coef_, rtol=1e-6, atol=1e-9)
    errors = [model.history_["validation_error"] for model in (there, ours)]
    assert np.array_equal(*errors, equal_nan=True)
    assert np.array_equal(there.predict(larger.X_test), ours.predict(larger.X_test))


def test_a_graphics_card_is_used_where_there_is_one(protocol, tmp_path, monkeypatch):
    "The record says what the fit ran on."

    class Elsewhere(CapsuleClassifier):
        pass

    monkeypatch.setattr(million, "_find_estimator", lambda: (Elsewhere, "a card"))
    part = MILLION.parts("digits", "quick")[0]
    part = replace(part, parameters=part.parameters | QUICK | {"capsule_dim": 1})
    checkpoint = tmp_path / "checkpoint"
    bench = Bench(protocol.data, "quick", 0, checkpoint, prepare=lambda data, profile: protocol)
    metrics, arrays = million._run_million(part, bench)
    assert metrics["device"] == "a card"
    assert metrics["strength"] == 0
    assert metrics["n_train"] == 1283
    assert "gallery" in arrays
