"""Priors from folds and from the evidence: learning as the classifier does, what is chosen, counts
by hand, resumed runs, the quick record.
"""

import numpy as np
import pytest
from conftest import classes, together
from sklearn.model_selection import StratifiedKFold

from capslit.capsules.classifier import CapsuleClassifier
from capslit.capsules.evidence import fit_evidence
from capslit.data.tables import load_table
from capslit.experiments.contest import folds_of
from capslit.experiments.priors import (
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
from capslit.experiments.records import load_record


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("priors", "embedded"))


@together("n, m, alpha", [(90, 2, 0.5), (1000, 4, 0.1)])
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
    begun = _begin(design, X, y, np.random.default_rng(0))
    chosen = fit_evidence(*begun, **settings, **_between_updates(design)).precision[-1]
    sizes = np.array([np.sum(y != k) for k in (2, 1, 0)])  # of the pairs
    assert len(set(sizes)) == 3 and np.array_equal(_mass_of(design, y).ravel(), sizes)
    assert np.allclose(model.alpha_ * sizes[:, None, None], chosen)
    assert _typical_alpha(model) == np.median(model.alpha_[..., :-1]) > 0
    P = model.predict_proba(X)
    assert np.allclose(P.sum(axis=1), 1)
    assert np.array_equal(model.predict(X), np.array(["a", "b", "c"])[P.argmax(axis=1)])


def test_without_folds_none_are_asked():
    X, y = classes(n=120, p=3, m=3, seed=1)
    typical, integrated = (
        _classifier_of(way, 0, **WAYS[way]).fit(X, y)
        for way in ("evidence-typical", "evidence-integrated")
    )
    assert typical.predictor_.sharpness == integrated.predictor_.sharpness == 1
    tau = typical.predictor_.weights / integrated.predictor_.weights
    assert np.allclose(tau, tau[:, :1, :1, :1]) and np.all(tau > 1)  # one factor for each pair
    assert typical.predict_proba(X).max() > integrated.predict_proba(X).max()
    halves, thirds = (
        _EvidenceClassifier(cv=cv).fit(X, y).predictor_.sharpness for cv in (StratifiedKFold(2), 3)
    )
    assert halves != thirds


def test_settings_that_make_no_sense():
    X, y = classes(n=30, m=2)
    for name in ("information", "share", "length"):
        with pytest.raises(ValueError, match=f"{name} must be.*not 'none'"):
            _EvidenceClassifier(**{name: "none"}).fit(X, y)
    with pytest.raises(ValueError, match="way must be.*'folds'.*not 'nobody'"):
        _classifier_of("nobody", 0)
    with pytest.raises(ValueError, match="data must be.*not 'digits'"):
        _prior_parts("digits", "quick")


def test_all_ways_have_the_same_inner_folds_as_the_classifier(record):
    "The part of the record is what a classifier makes of the folds of the contest."
    inner = StratifiedKFold(3, shuffle=True, random_state=0)
    model, wrong, alpha = CapsuleClassifier(kernel=None, cv=inner, random_state=0), [], []
    for fold in folds_of(load_table("iris"), 2, 120, 0):
        wrong.append(np.mean(model.fit(fold.X, fold.y).predict(fold.X_test) != fold.y_test))
        alpha.append(model.alpha_)
    part = "iris.folds"
    assert np.array_equal(record.array(part, "folds")[:, 0], wrong)
    assert np.array_equal(record.array(part, "alpha"), alpha)
    X, y = classes(n=60)
    ours, theirs = (_classifier_of(w, 5, **WAYS[w]).cv.split(X, y) for w in ("evidence", "folds"))
    for one, other in zip(ours, theirs, strict=True):
        assert all(map(np.array_equal, one, other))
