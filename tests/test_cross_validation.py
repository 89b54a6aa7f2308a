"""Folds that are learned side by side give what each gives alone."""

import array_api_strict as strict
import numpy as np
import pandas as pd
import pytest
import sklearn
import sklearn.model_selection as selection
from conftest import classes as groups, together
from sklearn.linear_model import LogisticRegression

from capslit import CapsuleClassifier, em
from capslit.arrays import to_numpy
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.settings import RBF

pytestmark = pytest.mark.filterwarnings("error")
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}
NAMES = np.array(["ant", "bee", "cat", "dog"])


def examples(n=240, m=4):
    X, y = groups(n, 5, m)
    return (
        X * 0.7,
        NAMES[y],
        np.random.default_rng(1).integers(1, 9, n) / 4,
    )  # whose sums are exact: no decision hangs on rounding


def alike(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours.keys() & {"test_score", "train_score"}:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9)
    for one, other in zip(ours["estimator"], theirs["estimator"], strict=True):
        assert one.n_iter_ == other.n_iter_ and one.classes_.tolist() == other.classes_.tolist()
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-6, atol=1e-8)
        assert repr(one) == repr(other) and vars(one).keys() == vars(other).keys()
        for name in one.history_:
            np.testing.assert_allclose(one.history_[name], other.history_[name], rtol=1e-7)


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
    ids=lambda options: "-".join(options) or "plain",
)
@together("weighted", [False, True])
def test_folds_side_by_side_are_folds_one_by_one(architecture, options, weighted):
    X, y, w = examples()
    w[::5] = 0
    params = {"params": {"sample_weight": w}} if weighted else {}
    model = CapsuleClassifier.paper(2, architecture=architecture, **QUICK | options)
    wanted = {"cv": 3, "return_estimator": True, "return_train_score": True}
    alike(
        cross_validate(model, X, y, **wanted, **params),
        selection.cross_validate(model, X, y, **wanted, **params),
    )


@together(
    "cv",
    [
        selection.KFold(4, shuffle=True, random_state=0),
        selection.ShuffleSplit(3, test_size=0.4, random_state=0),
        selection.RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        [(np.arange(100), np.arange(100, 240))],
    ],
    ids=str,
)
def test_any_splitter(cv):
    X, y, _ = examples()
    model = CapsuleClassifier.paper(
        {"ant": 1, "bee": 3, "cat": 2, "dog": 1},
        **QUICK | {"early_stopping": True, "random_state": 0},
    )
    wanted = {"cv": cv, "return_estimator": True, "return_indices": True, "scoring": "neg_log_loss"}
    ours, theirs = (
        cross_validate(model, X, y, **wanted),
        selection.cross_validate(model, X, y, **wanted),
    )
    assert all(
        np.array_equal(a, b)
        for side in ("train", "test")
        for a, b in zip(ours["indices"][side], theirs["indices"][side], strict=True)
    )
    alike(ours, theirs)


@together(
    "scoring",
    [
        ["accuracy", "neg_log_loss"],
        {"right": "accuracy"},
        lambda model, X, y: {"n": len(X), "right": model.score(X, y)},
    ],
    ids=["names", "dict", "function"],
)
def test_several_scores_have_their_names(scoring):
    X, y, _ = examples()
    model, wanted = (
        CapsuleClassifier.paper(2, **QUICK),
        {"scoring": scoring, "return_train_score": True},
    )
    ours, theirs = (
        cross_validate(model, X, y, **wanted),
        selection.cross_validate(model, X, y, **wanted),
    )
    assert ours.keys() == theirs.keys() and len(ours) > 3
    for name in ours.keys() - {"fit_time", "score_time"}:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-7)


def test_groups_frames_and_names():
    X, y, _ = examples()
    frame, labels, group = (
        pd.DataFrame(X, columns=list("abcde"), index=np.arange(240) * 2),
        pd.Series(y),
        np.arange(240) // 60,
    )
    model, wanted = (
        CapsuleClassifier.paper(2, **QUICK),
        {"cv": selection.GroupKFold(4), "groups": group, "return_estimator": True},
    )
    ours = cross_validate(model, frame, labels, **wanted)
    alike(ours, selection.cross_validate(model, frame, labels, **wanted))
    assert (
        ours["estimator"][0].feature_names_in_.tolist() == list("abcde")
        and (ours["fit_time"] > 0).all()
    )
    assert not any(name.endswith("_") for name in vars(model))


def test_a_fold_without_a_class_is_fitted_alone():
    X, y, _ = examples()
    order = np.argsort(y, kind="stable")
    model, wanted = (
        CapsuleClassifier.paper(2, **QUICK),
        {"cv": selection.KFold(5), "return_estimator": True},
    )
    ours, theirs = (
        cross(model, X[order], y[order], **wanted)
        for cross in (cross_validate, selection.cross_validate)
    )
    assert {len(one.classes_) for one in ours["estimator"]} == {4}
    alike(ours, theirs)
    few = order[40:]  # with the first fifth, all of a class
    alike(
        *(
            cross(
                model,
                X[few],
                y[few],
                cv=[(np.arange(40, 200), np.arange(40)), (np.arange(190), np.arange(190, 200))],
                return_estimator=True,
            )
            for cross in (cross_validate, selection.cross_validate)
        )
    )


def test_all_folds_are_one_run(monkeypatch):
    runs, original = [], em.fit
    monkeypatch.setattr(
        em,
        "fit",
        lambda model, *args, **settings: (
            runs.append(len(model.targets)),
            original(model, *args, **settings),
        )[1],
    )
    X, y, _ = examples()
    cross_validate(CapsuleClassifier.paper(2, architecture="ovo", **QUICK), X, y, cv=4)
    assert runs == [4 * 6]


def test_tensors():
    X, y = groups(240, 5, 3)
    there = [strict.asarray(a, device=strict.Device("device1")) for a in (X, y)]
    model = CapsuleClassifier.paper(2, **QUICK)
    ours, here = (
        cross_validate(model, *there, return_estimator=True),
        cross_validate(model, X, y, return_estimator=True),
    )
    assert np.array_equal(ours["test_score"], here["test_score"])
    for one, other in zip(ours["estimator"], here["estimator"]):
        assert one.coef_.device == strict.Device("device1")
        np.testing.assert_allclose(to_numpy(one.coef_), other.coef_, rtol=1e-7, atol=1e-9)


@together(
    "change, name",
    [
        ({"estimator": LogisticRegression()}, "estimator"),
        ({"params": {"groups": 1}}, "params"),
        ({"X": [(np.ones((3, 2)), np.ones(3))]}, "X"),
        ({"y": np.zeros(240)}, "y|class"),
        ({"cv": 1}, "cv"),
        ({"cv": 200}, "cv"),
        ({"cv": selection.GroupKFold(3)}, "groups"),
        ({"cv": []}, "the number of folds that cv gives"),
        *(
            ({"cv": [(rows, np.arange(40))]}, "cv")
            for rows in (
                np.arange(241),
                np.arange(80.0),
                [],
                np.ones(80, bool),
                np.arange(80).reshape(2, 40),
                [-241],
            )
        ),
        ({"cv": [(np.arange(80), np.arange(200, 300))]}, "cv"),
        ({"cv": [(np.arange(80), np.arange(80), np.arange(80))]}, "cv"),
        (
            {
                "cv": [(np.arange(80), np.arange(80, 90))],
                "params": {"sample_weight": np.repeat([0, 1], [80, 160])},
            },
            "sample_weight of a fold is zero",
        ),
        ({"estimator": CapsuleClassifier.paper(0)}, "capsule_dim"),
        ({"y": np.zeros(3)}, "y|samples"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(change, name):
    X, y, _ = examples()
    arguments = {"estimator": CapsuleClassifier.paper(2, **QUICK), "X": X, "y": y} | change
    with pytest.raises((TypeError, ValueError), match=rf"(?s)({name})"):
        cross_validate(
            arguments.pop("estimator"), arguments.pop("X"), arguments.pop("y"), **arguments
        )


def test_masks_in_place_of_numbers():
    X, y, _ = examples()
    masks = [
        (np.arange(240) >= 80, np.arange(240) < 80),
        (np.arange(240) < 160, np.arange(240) >= 160),
    ]
    model, wanted = CapsuleClassifier.paper(2, **QUICK), {"cv": masks, "return_estimator": True}
    alike(cross_validate(model, X, y, **wanted), selection.cross_validate(model, X, y, **wanted))


def test_numbers_from_the_end():
    X, y, w = examples()
    model, wanted = (
        CapsuleClassifier.paper(2, **QUICK),
        {
            "cv": [(np.arange(-160, 0), np.arange(80)), (range(160), range(-80, 0))],
            "return_estimator": True,
        },
    )
    ours, theirs = (
        cross(model, X, y, params={"sample_weight": w}, **wanted)
        for cross in (cross_validate, selection.cross_validate)
    )
    alike(ours, theirs)


# ── the folds in which a fit chooses ─────────────────────────


def table(n=2_001, p=6):
    X, y = groups(n, p, 3, seed=2)
    return X, y


def chosen(model):
    return {name: model.cv_results_[name] for name in ("alpha", "gamma", "log_loss", "error")}


def test_folds_are_of_the_rows_that_were_passed():
    "Also where 2,000 of the rows choose, and for pairs that hold small numbers alone."
    X, y = table()
    pairs = list(selection.StratifiedKFold(3).split(X, y))
    model = CapsuleClassifier(2, kernel=None, cv=pairs, random_state=0).fit(X, y)
    by_splitter = CapsuleClassifier(2, kernel=None, cv=selection.StratifiedKFold(3), random_state=0)
    assert chosen(model) == chosen(by_splitter.fit(X, y))
    # the first rows are judged wrong, and no others
    spoiled = np.where(np.arange(len(y)) < 150, (y + 1) % 3, y)
    part = np.full(len(y), -1)
    part[:150] = np.arange(150) % 2
    few = CapsuleClassifier(2, kernel=None, cv=selection.PredefinedSplit(part), random_state=0)
    rows = list(few.cv.split())
    few.fit(X, spoiled)
    assert (
        min(few.cv_results_["error"]) > 0.4
    )  # of all pairs with the wrong class, half have the right one
    same = CapsuleClassifier(2, kernel=None, cv=rows, random_state=0).fit(X, spoiled)
    assert chosen(few) == chosen(same)
    good = CapsuleClassifier(
        2, kernel=None, cv=[(rows[0][0], np.arange(1000, 1300))], random_state=0
    )
    assert min(good.fit(X, spoiled).cv_results_["error"]) < 0.1


def test_folds_are_restricted_to_rows_of_positive_weight():
    X, y = table(120)
    w = (np.arange(120) % 4 > 0) * 1.0
    pairs = list(selection.StratifiedKFold(3).split(X, y))
    number = np.cumsum(w > 0) - 1
    own = [tuple(number[rows[w[rows] > 0]] for rows in pair) for pair in pairs]
    whole = CapsuleClassifier(2, cv=pairs).fit(X, y, w)
    part = CapsuleClassifier(2, cv=own).fit(X[w > 0], y[w > 0], w[w > 0])
    assert chosen(whole) == chosen(part)
    assert np.array_equal(whole.predict_proba(X), part.predict_proba(X))
    streamed = CapsuleClassifier(2, cv=pairs).fit(
        [(X[:50], y[:50], w[:50]), (X[50:], y[50:], w[50:])]
    )
    np.testing.assert_allclose(streamed.predict_proba(X), whole.predict_proba(X), rtol=1e-9)
    with pytest.raises(
        ValueError, match="cv leaves none of the examples that choose in a test part"
    ):
        CapsuleClassifier(2, cv=[(np.arange(120), np.flatnonzero(w == 0))]).fit(X, y, w)


def test_groups_reach_the_splitter():
    "Rows of one group are copies: folds that tear groups apart find errors far too small."
    rng = np.random.default_rng(0)
    X, y, group = rng.standard_normal((60, 5)), np.arange(60) % 2, np.arange(60)
    X, y, group = (np.concatenate([a] * 4) for a in (X, y, group))
    X += 1e-3 * rng.standard_normal(X.shape)
    fit = {"kernel": RBF(1.0), "random_state": 0}
    torn = CapsuleClassifier(2, **fit).fit(X, y)
    whole = CapsuleClassifier(2, cv=selection.GroupKFold(3), **fit).fit(X, y, groups=group)
    numbered = CapsuleClassifier(2, cv=3, **fit).fit(X, y, groups=group)
    assert min(torn.cv_results_["error"]) < 0.1
    assert min(whole.cv_results_["error"]) > 0.25 and min(numbered.cv_results_["error"]) > 0.25
    with pytest.raises(ValueError, match="groups"):
        CapsuleClassifier(2, cv=selection.GroupKFold(3), **fit).fit(X, y)
    with pytest.raises(ValueError, match="groups has shape"):
        CapsuleClassifier(2, **fit).fit(X, y, groups=group[:-1])


def test_groups_are_routed():
    X, y = table(90)
    group = np.arange(90) // 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = CapsuleClassifier(2, kernel=None, cv=selection.GroupKFold(3))
        search = selection.GridSearchCV(
            model.set_fit_request(groups=True), {"capsule_dim": [2]}, cv=selection.GroupKFold(2)
        )
        search.fit(X, y, groups=group)
    direct = CapsuleClassifier(2, kernel=None, cv=selection.GroupKFold(3)).fit(X, y, groups=group)
    assert chosen(search.best_estimator_) == chosen(direct)
    ours = cross_validate(
        CapsuleClassifier(2, kernel=None, cv=selection.GroupKFold(3)),
        X,
        y,
        groups=group,
        cv=selection.GroupKFold(2),
        params={"groups": group},
    )
    assert np.all(ours["test_score"] > 0.5)
