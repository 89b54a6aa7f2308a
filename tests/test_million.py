"""The million digits: what is added and what stays as it is, how the strength is chosen, and the
same fit on another device.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import together

from capslit.capsules.classifier import CapsuleClassifier
from capslit.data.datasets import load_digits, project, svd_projection
from capslit.data.deformations import DeformedImages, Deformations, TangentDeformations
from capslit.experiments import million
from capslit import em
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression
from capslit.capsules.problems import capsule_targets
from capslit.experiments.million import (
    CHOSEN,
    MILLION,
    READINGS,
    _FixedUpdates,
    _LargeData,
    _OnDevice,
    _choose_strength,
    _enlarge,
    _gallery,
    _go_on,
    _pair_solver,
)
from capslit.experiments.figure5 import _JointlyStopped
from capslit.experiments.records import PAPER, Bench, load_protocol, load_record

QUICK = PAPER | {"architecture": "ovo", "patience": [8, 4, 2, 1, 1]}


@pytest.fixture(scope="module")
def protocol():
    return load_protocol(load_digits())


def test_only_the_training_images_are_joined_by_others(protocol):
    settings, n = Deformations(0.5, 3), len(protocol.X)
    larger = _enlarge(protocol, settings, 2000)
    assert larger.X.shape == (n + 2000, 16) and larger.X.dtype == np.float32
    assert np.array_equal(larger.X[:n], protocol.X) and np.array_equal(
        larger.y, protocol.y[np.arange(n + 2000) % n]
    )
    for name in ("X_val", "y_val", "X_test", "y_test", "test_images"):
        assert getattr(larger, name) is getattr(protocol, name)
    images, _ = DeformedImages(load_digits().images[:n], protocol.y, 2000, settings).part(
        1500, 1510
    )
    projection = svd_projection(load_digits().train_images, 16)
    assert np.allclose(larger.X[n + 1500 : n + 1510], project(images, projection, 16.0), atol=1e-6)
    assert not np.allclose(larger.X[n : 2 * n][:700], protocol.X[:700], atol=0.05)


def test_no_deformed_image_comes_from_validation_or_test(protocol, monkeypatch):
    seen = []
    monkeypatch.setattr(
        million,
        "DeformedImages",
        lambda images, labels, *rest: (
            seen.append((images, labels)) or DeformedImages(images, labels, *rest)
        ),
    )
    _enlarge(protocol, Deformations(seed=77), 10)
    (images, labels), n = seen[0], len(protocol.X)
    assert np.array_equal(images, load_digits().images[:n]) and np.array_equal(
        labels, load_digits().labels[:n]
    )
    assert n == 1283 and len(load_digits().images) == n + len(protocol.X_val) + len(protocol.X_test)


def test_ancestors_may_be_validation_images(protocol):
    """With all 1,540 images a sixth of the deformations descends from those that decide when to
    stop; none from test images.
    """
    n, data = len(protocol.X), load_digits()
    larger = _enlarge(protocol, TangentDeformations(0.5, 1), 1540, 1540)
    assert np.array_equal(larger.y[n:], data.labels[:1540]) and np.array_equal(
        larger.X[:n], protocol.X
    )
    images = TangentDeformations(0.5, 1).apply(data.images[1500:1540], 1500)
    projection = svd_projection(data.train_images, 16)
    assert np.allclose(larger.X[n + 1500 :], project(images, projection, 16.0), atol=1e-6)
    assert larger.X_val is protocol.X_val
    assert _enlarge(protocol, TangentDeformations(), 0) is protocol
    assert _enlarge(protocol, Deformations(0), 100) is protocol


def test_the_strength_is_chosen_on_the_validation_images():
    def part(strength, validation, test):
        return {"strength": strength, "validation_error": validation, "test_error": test}

    finished = {
        "strength-0": part(0, 0.01, 0.01),
        "strength-2": part(2.0, 0.02, 0.01),
        "strength-1": part(1.0, 0.02, 0.05),
        "strength-4": part(4.0, 0.03, 0.0),
        "ovo-1": part(4.0, 0.0, 0.0),
    }
    assert _choose_strength(finished) == 1.0


@together("profile", ["quick", "paper"])
def test_the_search_comes_first(profile):
    parts = MILLION.parts("mnist", profile)
    chosen = [part.parameters["strength"] == CHOSEN for part in parts]
    assert sorted(chosen) == chosen and any(chosen) and not all(chosen)
    assert [part.name for part, fit in zip(parts, chosen) if fit] == [
        f"ovo-{d}" for d in ((1, 2, 4, 8, 16) if profile == "paper" else (1, 2))
    ]
    if profile == "paper":
        assert {part.parameters["n_extra"] for part, fit in zip(parts, chosen) if fit} == {950_000}
        assert all(
            part.parameters[name] == value for part in parts for name, value in PAPER.items()
        )


def test_the_gallery_shows_members_of_the_stream(protocol):
    shown, n = _gallery(protocol, Deformations(seed=4)), len(protocol.X)
    assert shown.shape == (6, 10, 8, 8) and shown.dtype == np.uint8 and shown.max() > 200
    stream = DeformedImages(load_digits().images[:n], protocol.y, 6 * n, Deformations(seed=4))
    seven = int(np.flatnonzero(protocol.y == 7)[0])
    images, labels = stream.part(3 * n + seven, 3 * n + seven + 1)
    assert labels[0] == 7 and np.array_equal(
        shown[3, 7], np.rint(255 / 16 * images[0]).astype(np.uint8)
    )


def test_the_experiment_on_the_embedded_digits(quick_record):
    record = load_record(quick_record("million"))
    found = _choose_strength({name: record.metrics(name) for name in record.parts})
    for d in (1, 2):
        metrics = record.metrics(f"ovo-{d}")
        assert (
            metrics["strength"] == found
            and metrics["n_train"] == 1283 + 2566
            and len(metrics["iterations"]) == 45
        )
        assert np.mean(
            record.array(f"ovo-{d}", "predicted") != record.array(f"ovo-{d}", "labels")
        ) == pytest.approx(metrics["test_error"])
        assert set(record.parts[f"ovo-{d}"]["seconds"]) == {"generate", "fit", "measure"}


def test_fixed_updates_look_at_no_validation_image(protocol):
    """As many updates as were asked for, whatever the validation images are; of each pair the
    weights with the fewest errors.
    """
    settings = QUICK | {
        "capsule_dim": 1,
        "thresholds": [0.8],
        "patience": [7],
        "max_iter": 7,
        "early_stopping": False,
    }
    X, y = protocol.X.astype(np.float64), protocol.y
    models = [
        _FixedUpdates.paper(**settings).fit(X, y, X_val=X[:n], y_val=y[:n]) for n in (20, 900)
    ]
    assert np.array_equal(models[0].coef_, models[1].coef_) and models[0].n_iter_ == 7
    assert np.isnan(models[0].history_["validation_error"]).all()
    errors = models[0].history_["training_error"]
    for k, (a, b) in enumerate((a, b) for a in range(10) for b in range(a + 1, 10)):
        rows = (y == a) | (y == b)
        lengths = np.sum(np.einsum("mdp,np->nmd", models[0].coef_[k], X[rows]) ** 2, axis=2)
        wrong = np.mean(np.where(lengths[:, 0] >= lengths[:, 1], a, b) != y[rows])
        assert wrong == pytest.approx(np.nanmin(errors[:, k]))


@together("stopping", ["fixed", "joint", "separate"])
def test_learned_examples_are_spared_without_any_change(protocol, stopping):
    "The history is that of a classifier which multiplies all examples twice."
    fixed = {"thresholds": [0.8], "patience": [9], "max_iter": 9, "early_stopping": False}
    settings = QUICK | {"capsule_dim": 3} | (fixed if stopping == "fixed" else {"max_iter": 12})
    data = dict(
        X=protocol.X.astype(float),
        y=protocol.y,
        X_val=protocol.X_val.astype(float),
        y_val=protocol.y_val,
    )
    plain = {"fixed": PlainFixed, "joint": _JointlyStopped, "separate": _LargeData}[stopping]
    ours, theirs = (
        kind.paper(**settings).fit(**data) for kind in (million.STOPPING[stopping], plain)
    )
    assert np.allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    for name, values in theirs.history_.items():
        assert np.allclose(ours.history_[name], values, equal_nan=True), name


class PlainFixed(_LargeData):
    def fit(self, X, y, **validation):
        return super().fit(X, y)


@pytest.fixture(scope="module")
def pairs(protocol):
    """Inputs of each class, targets, weights of the pairs after five updates, and 33 more of EM
    from there, at rest.
    """
    X, y, targets = protocol.X.astype(float), protocol.y, capsule_targets(10, "ovo")
    of = [X[y == c] for c in range(10)]
    start = (
        PlainFixed.paper(
            **QUICK
            | {
                "capsule_dim": 2,
                "thresholds": [0.8],
                "patience": [5],
                "max_iter": 5,
                "early_stopping": False,
            }
        )
        .fit(X, y)
        .coef_
    )
    model = CapsuleRegression(targets, np.full((45, 2), 2), _pair_solver(of, targets))
    states = em.iterate(
        model,
        em.State.start(CapsuleParameters(start)),
        (X, y, None),
        [em.Round(99, {"threshold": 0.8})],
        momentum=0.9,
    )
    return of, targets, start, [next(states) for _ in range(34)]


def test_working_sets_of_all_examples_are_em(pairs):
    X, targets, start, states = pairs
    best, errors, counts = _go_on(start, X, targets, 33, 0.9, 0.8, -1.0, 10)
    looks = [0, 10, 20, 30, 33]
    assert (
        np.allclose(errors, np.array(states[-1].history["training_error"])[looks], atol=1e-12)
        and (counts[:, 1] == 0).all()
    )
    weights = [start, *(state.parameters.weights for state in states)]
    for q, lowest in enumerate(errors.argmin(axis=0)):
        assert np.allclose(best[q], weights[looks[lowest]][q], rtol=1e-5, atol=1e-8)
    assert len(set(errors.argmin(axis=0))) > 2


def test_unlearned_examples_outside_the_working_sets_are_counted(pairs):
    X, targets, start, _ = pairs
    near, far = (_go_on(start, X, targets, 20, 0.9, 0.8, bound, 10)[2] for bound in (0.5, 0.95))
    assert (
        near[0, 1] == far[0, 1] == 0
        and near[1:, 1].sum() < 0.1 * near[1:, 0].sum()
        and far[1, 1] > 0.3 * far[1, 0]
    )
    assert np.array_equal(near[0], far[0])


@together("profile", ["quick", "paper"])
def test_the_grid_has_all_combinations(profile):
    parts = READINGS.parts("mnist", profile)
    grid = [p.parameters for p in parts if not re.fullmatch(r"[a-z]+-\d+-\d+", p.name)]
    keys = ("construction", "strength", "stopping", "n_ancestors")
    assert len({tuple(p[key] for key in keys) for p in grid}) == len(grid) == 18
    common = {key for key in grid[0] if key not in keys}
    assert all(
        p[key] == grid[0][key]
        for p in grid
        for key in common - {"thresholds", "patience", "max_iter", "early_stopping"}
        if key in p
    )
    assert all(p.independent for p in parts) and len({p.name for p in parts}) == len(parts)
    for p in (part.parameters for part in parts):
        assert (
            (p["stopping"] == "fixed")
            == (p["thresholds"] == [0.8])
            == (p.get("early_stopping") is False)
        )
    if profile == "paper":
        assert all(p["patience"] == PAPER["patience"] for p in grid if p["stopping"] != "fixed")
        sizes = sorted(
            50_000 + part.parameters["n_extra"]
            for part in parts
            if part.name.startswith("tangents-16-")
        )
        assert sizes == [50_000, 110_000, 150_000, 500_000, 1_000_000]


def test_readings_of_the_embedded_digits(quick_record):
    record = load_record(quick_record("readings"))
    for name, part in record.parts.items():
        metrics, n = part["metrics"], part["parameters"]["n_extra"]
        more = part["parameters"].get("working_sets", [0])[0]
        assert metrics["n_train"] == 1283 + n and record.array(name, "pair_errors").shape == (
            metrics["n_iter"] - more,
            45,
        )
        assert np.mean(
            record.array(name, "predicted") != record.array(name, "labels")
        ) == pytest.approx(metrics["test_error"])
    assert (
        record.metrics("weak-fixed-1283")["training_error"]
        < 0.1 * record.metrics("weak-separate-1283")["training_error"]
    )
    assert (
        len(set(record.metrics("weak-joint-1283")["iterations"]))
        == 1
        < len(set(record.metrics("weak-separate-1283")["iterations"]))
    )


@together("capsule_dim", [1, 3])
def test_another_device_learns_the_same(protocol, tmp_path, monkeypatch, capsule_dim):
    pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")
    monkeypatch.setattr(_OnDevice, "device", "cpu")
    larger = _enlarge(protocol, Deformations(), 1000)
    settings = QUICK | {"capsule_dim": capsule_dim}
    data = (larger.X.astype(np.float64), larger.y)
    validation = dict(X_val=larger.X_val.astype(np.float64), y_val=larger.y_val)
    ours = _LargeData.paper(**settings).fit(*data, **validation)
    there = _OnDevice.paper(**settings).fit(
        *data, **validation, checkpoint=tmp_path / "checkpoint.npz"
    )
    assert np.allclose(there.coef_, ours.coef_, rtol=1e-6, atol=1e-9)
    assert np.array_equal(
        there.history_["validation_error"], ours.history_["validation_error"], equal_nan=True
    )
    assert np.array_equal(there.predict(larger.X_test), ours.predict(larger.X_test))


def test_a_graphics_card_is_used_where_there_is_one(protocol, tmp_path, monkeypatch):
    "The record says what the fit ran on."

    class Elsewhere(CapsuleClassifier):
        pass

    monkeypatch.setattr(million, "_find_estimator", lambda: (Elsewhere, "a card"))
    part = MILLION.parts("digits", "quick")[0]
    part = replace(part, parameters=part.parameters | QUICK | {"capsule_dim": 1})
    metrics, arrays = million._run_million(
        part,
        Bench(
            protocol.data,
            "quick",
            0,
            tmp_path / "checkpoint",
            prepare=lambda data, profile: protocol,
        ),
    )
    assert (
        metrics["device"] == "a card"
        and metrics["strength"] == 0
        and metrics["n_train"] == 1283
        and "gallery" in arrays
    )
