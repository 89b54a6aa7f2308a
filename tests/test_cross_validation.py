"""Folds that are learned side by side give what each gives alone, and those in which a fit chooses
are those that were passed.
"""

import array_api_strict as strict
import numpy as np
import pandas as pd
import pytest
import sklearn
import sklearn.model_selection as selection
from conftest import NO_WARNINGS, classes as groups, together
from sklearn.linear_model import LogisticRegression

from capslit import CapsuleClassifier, em
from capslit.arrays import to_numpy
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.settings import RBF

pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS)
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
NAMES = np.array(["ant", "bee", "cat", "dog"])
X, Y = groups(240, 5, 4)
X = 0.7 * X
NAMED = NAMES[Y]
SORTED = np.argsort(NAMED, kind="stable")
# whose sums are exact: no decision hangs on rounding
WEIGHT = np.random.default_rng(1).integers(1, 9, 240) / 4


def quick(dim=2, **settings):
    return CapsuleClassifier.paper(dim, **QUICK | settings)


def alike(model, X=X, y=NAMED, **wanted):
    "Our cross-validation, after it was compared with that of scikit-learn."
    wanted = {"return_estimator": True, "return_indices": True} | wanted
    ours = cross_validate(model, X, y, **wanted)
    theirs = selection.cross_validate(model, X, y, **wanted)
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"fit_time", "score_time", "estimator", "indices"}:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-7)
    for side, numbers in ours["indices"].items():
        for one, other in zip(numbers, theirs["indices"][side], strict=True):
            assert np.array_equal(one, np.arange(len(y))[other])
    for one, other in zip(ours["estimator"], theirs["estimator"], strict=True):
        assert one.n_iter_ == other.n_iter_
        assert one.classes_.tolist() == other.classes_.tolist()
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-6, atol=1e-8)
        assert repr(one) == repr(other)
        assert vars(one).keys() == vars(other).keys()
        for name in one.history_:
            np.testing.assert_allclose(one.history_[name], other.history_[name], rtol=1e-7)
    return ours


@together("architecture", ["multiclass", "ovr", "ovo"])
@together(
    "options",
    [
        {},
        {"early_stopping": True, "random_state": 0},
        {"init": "random", "n_init": 3, "random_state": 1},
        {"parameter_expansion": True, "acceleration": "squarem", "alpha": 0.1},
        {"fit_intercept": False},
    ],
)
@together("weighted", [False, True])
def test_folds_side_by_side_are_folds_one_by_one(architecture, options, weighted):
    weight = WEIGHT * (np.arange(240) % 5 > 0)
    params = {"params": {"sample_weight": weight}} if weighted else {}
    alike(quick(architecture=architecture, **options), cv=3, return_train_score=True, **params)


@together(
    "cv",
    [
        selection.ShuffleSplit(3, test_size=0.4, random_state=0),
        selection.RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        [(np.arange(100), np.arange(100, 240))],
        [(np.arange(240) >= 80, np.arange(240) < 80)],
        [(np.arange(-160, 0), np.arange(80)), (range(160), range(-80, 0))],
        # a fold lacks a class, and is fitted alone
        [(SORTED[40:], SORTED[:40]), (SORTED[60:], SORTED[60:90])],
    ],
)
def test_any_splitter(cv):
    dims = {"ant": 1, "bee": 3, "cat": 2, "dog": 1}
    alike(quick(dims, early_stopping=True, random_state=0), cv=cv)


def test_scores_groups_frames_and_names():
    for scoring in (
        ["accuracy", "neg_log_loss"],
        {"right": "accuracy"},
        lambda model, X, y: {"n": len(X), "right": model.score(X, y)},
    ):
        assert len(alike(quick(), scoring=scoring, return_train_score=True)) > 5
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(240) * 2)
    model, group = quick(), np.arange(240) // 60
    ours = alike(model, frame, pd.Series(NAMED), cv=selection.GroupKFold(4), groups=group)
    assert ours["estimator"][0].feature_names_in_.tolist() == list("abcde")
    assert (ours["fit_time"] > 0).all()
    assert not any(name.endswith("_") for name in vars(model))


def test_all_folds_are_one_run(monkeypatch):
    runs = []
    original = em.fit

    def fit(model, *args, **settings):
        runs.append(len(model.targets))
        return original(model, *args, **settings)

    monkeypatch.setattr(em, "fit", fit)
    cross_validate(quick(architecture="ovo"), X, NAMED, cv=4)
    assert runs == [4 * 6]


def test_tensors():
    there = [strict.asarray(a, device=strict.Device("device1")) for a in (X, Y)]
    ours, here = (cross_validate(quick(), *data, return_estimator=True) for data in (there, (X, Y)))
    assert np.array_equal(ours["test_score"], here["test_score"])
    for one, other in zip(ours["estimator"], here["estimator"]):
        assert one.coef_.device == there[0].device
        np.testing.assert_allclose(to_numpy(one.coef_), other.coef_, rtol=1e-7, atol=1e-9)


FIRST = np.arange(80)
ZERO = {"sample_weight": np.repeat([0, 1], [80, 160])}


@together(
    "change, name",
    [
        ({"estimator": LogisticRegression()}, "estimator"),
        ({"params": {"groups": 1}}, "params"),
        ({"y": np.zeros(240)}, "y|class"),
        ({"cv": 1}, "cv"),
        ({"cv": 200}, "cv"),
        ({"cv": selection.GroupKFold(3)}, "groups"),
        ({"cv": []}, "the number of folds that cv gives"),
        *(
            ({"cv": [(rows, np.arange(40))]}, "cv")
            for rows in (np.arange(241), FIRST / 1, [], np.ones(80, bool), [FIRST], [-241])
        ),
        ({"cv": [(FIRST, np.arange(200, 300))]}, "cv"),
        ({"cv": [(FIRST, FIRST, FIRST)]}, "cv"),
        ({"cv": [(FIRST, FIRST + 80)], "params": ZERO}, "sample_weight of a fold is zero"),
        ({"estimator": CapsuleClassifier.paper(0)}, "capsule_dim"),
        ({"y": np.zeros(3)}, "y|samples"),
    ],
)
def test_wrong_arguments_are_named(change, name):
    with pytest.raises((TypeError, ValueError), match=rf"(?s)({name})"):
        cross_validate(**{"estimator": quick(), "X": X, "y": NAMED} | change)


# ── the folds in which a fit chooses


def chosen(model):
    return {name: model.cv_results_[name] for name in ("alpha", "gamma", "log_loss", "error")}


def choosing(cv, **settings):
    return CapsuleClassifier(2, kernel=None, cv=cv, random_state=0, **settings)


def test_folds_are_of_the_rows_that_were_passed():
    "Also where 2,000 of the rows choose, and for pairs that hold small numbers alone."
    X, y = groups(2_001, 6, 3, seed=2)
    splitter = selection.StratifiedKFold(3)
    by_pairs = choosing(list(splitter.split(X, y))).fit(X, y)
    assert chosen(by_pairs) == chosen(choosing(splitter).fit(X, y))
    # the first rows are judged wrong, and no others
    spoiled = np.where(np.arange(len(y)) < 150, (y + 1) % 3, y)
    part = np.full(len(y), -1)
    part[:150] = np.arange(150) % 2
    few = choosing(selection.PredefinedSplit(part))
    rows = list(few.cv.split())
    few.fit(X, spoiled)
    # of all pairs with the wrong class, half have the right one
    assert min(few.cv_results_["error"]) > 0.4
    assert chosen(few) == chosen(choosing(rows).fit(X, spoiled))
    good = choosing([(rows[0][0], np.arange(1000, 1300))]).fit(X, spoiled)
    assert min(good.cv_results_["error"]) < 0.1


def test_folds_are_restricted_to_rows_of_positive_weight():
    X, y = groups(120, 6, 3, seed=2)
    w = (np.arange(120) % 4 > 0) * 1.0
    pairs = list(selection.StratifiedKFold(3).split(X, y))
    number = np.cumsum(w > 0) - 1
    own = [tuple(number[rows[w[rows] > 0]] for rows in pair) for pair in pairs]
    whole = CapsuleClassifier(2, cv=pairs).fit(X, y, w)
    part = CapsuleClassifier(2, cv=own).fit(X[w > 0], y[w > 0], w[w > 0])
    assert chosen(whole) == chosen(part)
    assert np.array_equal(whole.predict_proba(X), part.predict_proba(X))
    batches = [(X[:50], y[:50], w[:50]), (X[50:], y[50:], w[50:])]
    streamed = CapsuleClassifier(2, cv=pairs).fit(batches)
    np.testing.assert_allclose(streamed.predict_proba(X), whole.predict_proba(X), rtol=1e-9)
    with pytest.raises(ValueError, match="cv leaves none of the examples that choose in a test"):
        CapsuleClassifier(2, cv=[(np.arange(120), np.flatnonzero(w == 0))]).fit(X, y, w)


def test_groups_reach_the_splitter():
    "Rows of one group are copies: folds that tear groups apart find errors far too small."
    rng, group = np.random.default_rng(0), np.tile(np.arange(60), 4)
    X = rng.standard_normal((60, 5))[group] + 1e-3 * rng.standard_normal((240, 5))

    def fit(cv=3, **groups):
        model = CapsuleClassifier(2, cv=cv, kernel=RBF(1.0), random_state=0)
        return min(model.fit(X, group % 2, **groups).cv_results_["error"])

    assert fit() < 0.1
    for cv in (selection.GroupKFold(3), 3):
        assert fit(cv, groups=group) > 0.25
    with pytest.raises(ValueError, match="groups"):
        fit(selection.GroupKFold(3))
    with pytest.raises(ValueError, match="groups has shape"):
        fit(groups=group[:-1])


def test_groups_are_routed():
    X, y = groups(90, 6, 3, seed=2)
    group = np.arange(90) // 3
    cv = selection.GroupKFold(2)
    model = choosing(selection.GroupKFold(3))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = choosing(selection.GroupKFold(3)).set_fit_request(groups=True)
        search = selection.GridSearchCV(routed, {"capsule_dim": [2]}, cv=cv)
        search.fit(X, y, groups=group)
    ours = cross_validate(model, X, y, groups=group, cv=cv, params={"groups": group})
    assert np.all(ours["test_score"] > 0.5)
    assert chosen(search.best_estimator_) == chosen(model.fit(X, y, groups=group))
