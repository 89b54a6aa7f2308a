"""Figure 5: joint stopping."""

import warnings

import numpy as np
import pytest
from conftest import together

from capslit.capsules.engine import CapsuleParameters
from capslit.capsules.classifier import CapsuleClassifier
from capslit.capsules.problems import capsule_targets
from capslit.experiments.figure5 import _Committee, _JointlyStopped

SHORT = {"thresholds": (0.6, 0.0), "patience": (3, 2), "n_jobs": 1}


def problem(seed, n=120, m=4, p=5):
    "Inputs (n, p) around the centres of m classes, and labels."
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    return rng.normal(size=(n, p)) + 0.6 * rng.normal(size=(m, p))[y], y, rng


@together("dtype", [np.float32, np.float64])
@together("fit_intercept", [False, True])
@together("architecture", ["ovr", "ovo"])
def test_a_committee_counts_the_errors_of_the_classifier(architecture, fit_intercept, dtype):
    settings = {"architecture": architecture, "fit_intercept": fit_intercept, **SHORT}
    for seed, dim in enumerate((1, 2, {0: 2, 1: 2, 2: 1, 3: 2})):
        X, y, rng = problem(seed)
        X = X.astype(dtype)
        w = rng.uniform(0, 2, len(y)).astype(dtype)
        model = CapsuleClassifier.paper(dim, early_stopping=False, **settings).fit(X, y)
        weights = model.coef_
        if fit_intercept:
            weights = np.concatenate([weights, model.intercept_[..., None]], axis=-1)
        targets = capsule_targets(4, architecture)
        committee = _Committee(targets, model.capsule_dims_, affine=fit_intercept)
        wrong = model.predict(X) != y
        assert 0 < wrong.sum() < 0.7 * len(y)
        parameters = CapsuleParameters(weights.astype(float))
        for weight, unit in ((w, w), (None, np.ones(len(y)))):
            found = committee.count_errors(parameters, (X, y, weight))
            expected = [[unit @ wrong] * len(targets), [unit.sum()] * len(targets)]
            assert np.shape(found) == np.shape(expected) and np.allclose(found, expected)


@together("architecture", ["ovr", "ovo"])
def test_all_problems_stop_together_at_the_best_joint_error(architecture):
    X, y, rng = problem(7, n=300)
    train, held = np.arange(300) < 200, np.arange(300) >= 200
    w = rng.uniform(0.5, 2, 100)
    model = _JointlyStopped.paper(2, architecture=architecture, **SHORT).fit(
        X[train], y[train], X_val=X[held], y_val=y[held], sample_weight_val=w
    )
    seen = model.history_["validation_error"]
    assert np.all(seen == seen[:, :1])
    assert seen.min() == pytest.approx(w @ (model.predict(X[held]) != y[held]) / w.sum())


def test_one_problem_has_no_committee():
    X, y, _ = problem(3, m=2)
    for architecture, labels in (("ovr", y), ("ovo", y), ("multiclass", np.arange(len(y)) % 3)):
        settings = {"architecture": architecture, "early_stopping": False, **SHORT}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a, b = (
                kind.paper(2, **settings).fit(X[:80], labels[:80], X_val=X[80:], y_val=labels[80:])
                for kind in (_JointlyStopped, CapsuleClassifier)
            )
        assert np.array_equal(a.coef_, b.coef_)
