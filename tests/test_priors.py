"""Priors from folds and from the evidence: learning as the classifier does, what is chosen, counts
by hand, resumed runs, the quick record.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import classes, together
from sklearn.model_selection import StratifiedKFold

from capslit.capsules.classifier import CapsuleClassifier
from capslit.capsules.evidence import fit_evidence
from capslit.data.tables import PENGUINS, TABLES, load_table
from capslit.experiments import priors
from capslit.experiments.contest import OTHERS, RESTS, folds_of, load_collection
from capslit.experiments.priors import (
    PRIORS,
    WAYS,
    _EvidenceClassifier,
    _begin,
    _between_updates,
    _classifier_of,
    _default_pairs,
    _learn_with_sharpness,
    _mass_of,
    _prior_parts,
    _typical_alpha,
)
from capslit.experiments.records import load_record, perform


def few(*names):
    "The experiment with these parts only."
    return replace(
        PRIORS,
        parts=lambda data, profile: tuple(
            part for part in _prior_parts(data, profile) if part.name in names
        ),
    )


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("priors", "embedded"))


@together("n, m, alpha", [(90, 2, 0.5), (150, 4, 0.02), (1000, 3, 0.1)])
def test_under_a_given_prior_learning_is_that_of_the_classifier(n, m, alpha):
    "Of 1,000 examples two folds of the three are asked."
    X, y = classes(n=n, p=4, m=m, seed=n)
    design, inner = _default_pairs(m), StratifiedKFold(3, shuffle=True, random_state=0)
    precision = np.append(np.full(4, alpha), 0) * np.ones((len(design.dims), 1, 1))
    found = _learn_with_sharpness(design, precision, X, y, inner, np.random.default_rng(0))
    model = CapsuleClassifier(kernel=None, alpha=alpha, cv=inner, random_state=0).fit(X, y)
    assert found.sharpness == pytest.approx(model.sharpness_, rel=0.02)
    assert np.allclose(found.probabilities(X), model.predict_proba(X), atol=0.02)
    other = _learn_with_sharpness(design, precision / 30, X, y, inner, np.random.default_rng(0))
    assert not np.allclose(found.probabilities(X), other.probabilities(X), atol=0.02)


@together("way", [way for way in WAYS if way != "folds"])
def test_the_prior_is_the_one_that_the_evidence_chooses(way):
    X, y = classes(n=120, p=3, m=3, seed=1)
    y = np.where(y == 2, 2, y * (np.arange(120) % 3 > 0))  # of unequal size
    model = _classifier_of(way, 0, **WAYS[way]).fit(X, np.array(["a", "b", "c"])[y])
    design = _default_pairs(3)
    settings = {name: WAYS[way][name] for name in ("share", "information")}
    chosen = fit_evidence(
        *_begin(design, X, y, np.random.default_rng(0)), **settings, **_between_updates(design)
    ).precision[-1]
    sizes = np.array([np.sum(y != k) for k in (2, 1, 0)])  # of the pairs
    assert len(set(sizes)) == 3 and np.array_equal(_mass_of(design, y).ravel(), sizes)
    assert (
        np.allclose(model.alpha_ * sizes[:, None, None], chosen)
        and _typical_alpha(model) == np.median(model.alpha_[..., :-1]) > 0
    )
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1) and set(model.predict(X)) <= {
        "a",
        "b",
        "c",
    }
    assert np.array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])


def test_without_folds_none_are_asked():
    X, y = classes(n=120, p=3, m=3, seed=1)
    typical, integrated = (
        _classifier_of(f"evidence-{length}", 0, **WAYS[f"evidence-{length}"]).fit(X, y)
        for length in ("typical", "integrated")
    )
    assert typical.predictor_.sharpness == integrated.predictor_.sharpness == 1
    tau = typical.predictor_.weights / integrated.predictor_.weights
    assert np.allclose(tau, tau[:, :1, :1, :1]) and np.all(tau > 1)  # one factor for each pair
    assert typical.predict_proba(X).max() > integrated.predict_proba(X).max()
    assert (
        _EvidenceClassifier(cv=StratifiedKFold(2)).fit(X, y).predictor_.sharpness
        != _EvidenceClassifier(cv=3).fit(X, y).predictor_.sharpness
    )


def test_settings_that_make_no_sense():
    X, y = classes(n=30, m=2)
    for name in ("information", "share", "length"):
        with pytest.raises(ValueError, match=f"{name} must be.*not 'none'"):
            _EvidenceClassifier(**{name: "none"}).fit(X, y)
    with pytest.raises(ValueError, match="way must be.*'folds'.*not 'nobody'"):
        _classifier_of("nobody", 0)
    with pytest.raises(ValueError, match="data must be.*not 'digits'"):
        _prior_parts("digits", "quick")


def test_the_parts_are_those_that_the_chapter_states():
    parts = _prior_parts("tables", "paper")
    assert {part.name for part in parts} == {f"{table}.{way}" for table in TABLES for way in WAYS}
    assert all(
        part.independent
        and part.files == (part.parameters["table"],)
        and part.parameters["folds"] == 5
        and part.parameters["rows"] == 1500
        for part in parts
    )
    assert {part.parameters["table"] for part in _prior_parts("others", "paper")} == {
        f"{name}-rest" for name in RESTS
    } | set(OTHERS)


def test_all_ways_have_the_same_inner_folds_as_the_classifier(record):
    "The part of the record is what a classifier makes of the folds of the contest."
    model, wrong, alpha = (
        CapsuleClassifier(
            kernel=None, cv=StratifiedKFold(3, shuffle=True, random_state=0), random_state=0
        ),
        [],
        [],
    )
    for fold in folds_of(load_table("breast_cancer"), 3, 120, 0):
        wrong.append(np.mean(model.fit(fold.X, fold.y).predict(fold.X_test) != fold.y_test))
        alpha.append(model.alpha_)
    assert np.array_equal(
        record.array("breast_cancer.folds", "folds")[:, 0], wrong
    ) and np.array_equal(record.array("breast_cancer.folds", "alpha"), alpha)
    ours, theirs = (_classifier_of(way, 5, **WAYS[way]) for way in ("evidence", "folds"))
    X, y = classes(n=60)
    assert all(
        np.array_equal(a, b)
        for one, other in zip(ours.cv.split(X, y), theirs.cv.split(X, y))
        for a, b in zip(one, other)
    )


def test_a_run_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    made, classifier, stop = [], priors._classifier_of, [3]

    def interrupted(way, seed, **parameters):
        if len(made) == stop[0]:
            raise KeyboardInterrupt
        made.append(way)
        return classifier(way, seed, **parameters)

    monkeypatch.setattr(priors, "_classifier_of", interrupted)
    experiment = few("iris.folds", "iris.evidence")
    with pytest.raises(KeyboardInterrupt):
        perform("priors", experiment, "embedded", profile="quick", out=tmp_path)
    assert made == ["folds"] * 3 and not (tmp_path / "priors-embedded-quick.json").exists()
    stop[0] = None
    again = load_record(perform("priors", experiment, "embedded", profile="quick", out=tmp_path))
    assert made == ["folds"] * 3 + ["evidence"] * 3 and set(again.parts) == {
        "iris.folds",
        "iris.evidence",
    }
    more = load_record(
        perform(
            "priors",
            few("iris.folds", "iris.evidence", "wine.folds"),
            "embedded",
            profile="quick",
            out=tmp_path,
        )
    )
    assert made[6:] == ["folds"] * 3 and np.array_equal(
        more.array("iris.evidence", "seconds"), again.array("iris.evidence", "seconds")
    )
    whole = load_record(
        perform("priors", experiment, "embedded", profile="quick", out=tmp_path / "whole")
    )
    assert whole.digest() == again.digest()


def test_penguins_are_left_out_where_their_package_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("capslit.data.tables.find_spec", lambda name: None)
    collection = load_collection(tables=("iris", *PENGUINS))
    experiment = replace(
        few("iris.folds", "penguins_sex.folds"), loaders={"tables": lambda: collection}
    )
    found = load_record(perform("priors", experiment, "tables", profile="quick", out=tmp_path))
    assert "not installed" in found.metrics("penguins_sex.folds")["left_out"]
    assert list(found.arrays) == [
        f"iris.folds/{name}" for name in ("alpha", "folds", "seconds", "seconds_begun")
    ]


def test_the_quick_record(record):
    assert set(record.parts) == {
        f"{table}.{way}" for table in ("iris", "wine", "breast_cancer") for way in WAYS
    }
    for name, part in record.parts.items():
        assert (
            part["metrics"]["n"] == 120
            and record.array(name, "alpha").shape == (3,)
            and (record.array(name, "alpha") > 0).all()
        )
        assert {"log_loss", "brier", "calibration"} <= set(part["metrics"])
    assert all(
        record.metrics(f"{table}.{way}")["error"] < 0.2
        for table in ("iris", "wine", "breast_cancer")
        for way in WAYS
        if way != "latent"
    )
    alpha = {
        way: [
            np.median(record.array(f"{table}.{way}", "alpha"))
            for table in ("iris", "wine", "breast_cancer")
        ]
        for way in ("latent", "evidence")
    }
    assert min(alpha["latent"]) > 5 * max(alpha["evidence"])
