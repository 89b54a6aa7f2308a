"""Figure 5: joint stopping, the parts of the experiment, paired comparisons."""

import warnings

import numpy as np
import pytest
from conftest import together
from scipy.stats import binom

from capslit.capsules.engine import CapsuleParameters
from capslit.capsules.classifier import CapsuleClassifier
from capslit.capsules.problems import capsule_targets
from capslit.experiments.figure5 import _Committee, _JointlyStopped, compare_predictions
from capslit.experiments.records import Record

SHORT = {"thresholds": (0.6, 0.0), "patience": (3, 2), "n_jobs": 1}


def problem(seed, n=120, m=4, p=5):
    "Inputs (n, p) around the centres of m classes, and labels."
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    return rng.normal(size=(n, p)) + 0.6 * rng.normal(size=(m, p))[y], y, rng


@together("dtype", [np.float32, np.float64])
@together("fit_intercept", [False, True])
@together("weighted", [False, True])
@together("architecture", ["ovr", "ovo"])
def test_a_committee_counts_the_errors_of_the_classifier(
    architecture, fit_intercept, weighted, dtype
):
    for seed, dim in enumerate((1, 2, {0: 2, 1: 2, 2: 1, 3: 2})):
        X, y, rng = problem(seed)
        X, w = X.astype(dtype), rng.uniform(0, 2, len(y)).astype(dtype) if weighted else None
        model = CapsuleClassifier.paper(
            dim,
            architecture=architecture,
            fit_intercept=fit_intercept,
            early_stopping=False,
            **SHORT,
        ).fit(X, y)
        weights = (
            model.coef_
            if not fit_intercept
            else np.concatenate([model.coef_, model.intercept_[..., None]], axis=-1)
        )
        committee = _Committee(
            capsule_targets(4, architecture), model.capsule_dims_, affine=fit_intercept
        )
        errors, weight = committee.count_errors(CapsuleParameters(weights.astype(float)), (X, y, w))
        wrong = model.predict(X) != y
        assert 0 < wrong.sum() < 0.7 * len(y)
        assert errors.shape == weight.shape == (len(committee.targets),)
        assert np.allclose(errors, np.sum(wrong if w is None else w[wrong])) and np.allclose(
            weight, len(y) if w is None else w.sum()
        )


@together("architecture", ["ovr", "ovo"])
def test_all_problems_stop_together_at_the_best_joint_error(architecture):
    X, y, rng = problem(7, n=300)
    train, held = np.arange(300) < 200, np.arange(300) >= 200
    w = rng.uniform(0.5, 2, 100)
    model = _JointlyStopped.paper(2, architecture=architecture, **SHORT).fit(
        X[train], y[train], X_val=X[held], y_val=y[held], sample_weight_val=w
    )
    seen = model.history_["validation_error"]
    assert (
        np.array_equal(seen, np.repeat(seen[:, :1], seen.shape[1], axis=1))
        and not np.isnan(seen).any()
    )
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


def test_a_paired_comparison_by_hand():
    labels = np.zeros(40, np.uint8)
    first, second = labels.copy(), labels.copy()
    second[:8], first[8:10], first[30:], second[30:] = (
        1,
        1,
        2,
        3,
    )  # 8 right in the first only, 2 in the second only, 10 wrong in both
    record = Record(
        "x",
        "x",
        "quick",
        0,
        {},
        {},
        {},
        "",
        {},
        {"a/predicted": first, "b/predicted": second, "a/labels": labels, "b/labels": labels},
    )
    difference, p = compare_predictions(record, "a", "b")
    assert difference == pytest.approx(6 / 40) and p == pytest.approx(2 * binom.cdf(2, 10, 0.5))
    assert compare_predictions(record, "b", "a") == (pytest.approx(-6 / 40), pytest.approx(p))
    assert compare_predictions(record, "a", "a") == (0.0, 1.0)
