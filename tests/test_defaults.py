"""`CapsuleClassifier` with its defaults: what it chooses, what its choices do not depend on, and
what they are worth.
"""

import functools
import warnings
from functools import partial

import array_api_strict as strict
import numpy as np
import pytest
from conftest import together
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_circles,
    make_moons,
)
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.model_selection import cross_validate as theirs
from sklearn.preprocessing import StandardScaler

from capslit import CapsuleClassifier, em
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.features import KernelFeatures, _polynomial
from capslit.capsules.settings import (
    Custom,
    Incremental,
    PassiveAggressive,
    Polynomial,
    RBF,
    Search,
    Stepwise,
)

X, Y = (a[::2] for a in load_iris(return_X_y=True))
MOONS = make_moons(200, noise=0.2, random_state=0)
FIXED = {"kernel": None, "alpha": 0.01, "sharpness": 1.0}


def halves(load, size=None):
    X, y = load(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X[:size], y[:size], test_size=0.5, stratify=y[:size], random_state=0
    )
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), y_train, scaler.transform(X_test), y_test


@together("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_defaults_are_worth_having(load):
    """Without a word of advice: no warning, as few errors as logistic regression up to a standard
    error, and a log loss that can be used.
    """
    X, y, X_test, y_test = halves(load, 700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CapsuleClassifier().fit(X, y)
    other = LogisticRegression(max_iter=1000).fit(X, y)
    errors, theirs = (1 - m.score(X_test, y_test) for m in (model, other))
    assert errors <= theirs + np.sqrt(max(theirs, 0.01) / len(y_test))
    assert (
        log_loss(y_test, model.predict_proba(X_test))
        < log_loss(y_test, other.predict_proba(X_test)) + 0.05
    )
    confidence = model.predict_proba(X_test).max(axis=1).mean()
    assert (
        abs(confidence - (1 - errors)) < 0.05
    )  # the paper's protocol: 0.41 at an accuracy of 0.96


def test_a_kernel_is_found_where_it_pays():
    X, y = make_circles(400, factor=0.6, noise=0.12, random_state=0)
    turned = np.c_[X, np.sin(5 * X[:, 0])]
    both = [
        CapsuleClassifier(kernel=kernel).fit(turned[:200], y[:200]).score(turned[200:], y[200:])
        for kernel in ("auto", None)
    ]
    assert both[0] > 0.85 and CapsuleClassifier().fit(*MOONS).kernel_features_ is not None
    planes = np.random.default_rng(0).standard_normal((300, 5))
    model = CapsuleClassifier().fit(planes, planes[:, 0] > 0)
    tried = model.cv_results_
    assert (
        len(tried["kernel"]) == 12
        and tried["kernel"].count(None) == 4
        and model.alpha_ in tried["alpha"]
    )
    assert (
        min(tried["log_loss"])
        == dict(zip(zip(tried["gamma"], tried["alpha"]), tried["log_loss"]))[
            model.kernel_features_ and model.kernel_features_.gamma, model.alpha_
        ]
    )


def test_one_may_say_what_is_to_be_tried():
    model = CapsuleClassifier(alpha=(0.5, 1e-3), kernel=RBF([0.1, 1.0, 10.0])).fit(*MOONS)
    assert (
        model.cv_results_["alpha"] == [0.5, 1e-3] * 3
        and model.cv_results_["gamma"] == [0.1, 0.1, 1.0, 1.0, 10.0, 10.0]
        and model.alpha_ == 1e-3
    )
    with pytest.raises(ValueError, match="alpha must be at least 0"):
        CapsuleClassifier(alpha=(0.5, -1)).fit(*MOONS)


def test_choices_do_not_depend_on_units():
    one, other = (CapsuleClassifier().fit(MOONS[0] * unit, MOONS[1]) for unit in (1.0, 2.0**20))
    np.testing.assert_allclose(
        one.predict_proba(MOONS[0]), other.predict_proba(MOONS[0] * 2.0**20), rtol=1e-6
    )


def test_the_same_choices_each_time():
    one, other, seeded = (
        CapsuleClassifier(random_state=s).fit(*MOONS).predict_proba(MOONS[0])
        for s in (None, None, 1)
    )
    assert np.array_equal(one, other) and not np.array_equal(one, seeded)


@together("architecture", ["multiclass", "ovr", "ovo"])
def test_alpha_is_per_example(architecture):
    one, other = (
        CapsuleClassifier(2, architecture=architecture, **FIXED).fit(
            np.tile(X, (n, 1)), np.tile(Y, n)
        )
        for n in (1, 3)
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-8)


@together("architecture", ["multiclass", "ovr", "ovo"])
def test_sharpness_changes_no_decision(architecture):
    plain = CapsuleClassifier(2, architecture=architecture, **FIXED).fit(X, Y)
    sharp = CapsuleClassifier(2, architecture=architecture, **FIXED | {"sharpness": 3.0}).fit(X, Y)
    p, q = plain.predict_proba(X), sharp.predict_proba(X)
    np.testing.assert_allclose(q, p**3 / np.sum(p**3, axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(np.exp(sharp.predict_log_proba(X)), q, rtol=1e-10)
    assert np.array_equal(plain.predict(X), sharp.predict(X))
    two = [
        CapsuleClassifier(2, **FIXED | {"sharpness": s})
        .fit(X[Y > 0], Y[Y > 0])
        .decision_function(X)
        for s in (1.0, 3.0)
    ]
    np.testing.assert_allclose(two[1], 3 * two[0], rtol=1e-10)


def test_held_out_examples_tell_the_sharpness():
    X, y = make_moons(700, noise=0.2, random_state=0)
    noisy = np.where(np.random.default_rng(0).random(600) < 0.3, 1 - y[100:], y[100:])
    kind, cruel = (
        CapsuleClassifier(alpha=0.01, kernel=None).fit(
            X[:100], y[:100], X_val=X[100:], y_val=labels
        )
        for labels in (y[100:], noisy)
    )
    assert np.array_equal(kind.coef_, cruel.coef_) and cruel.sharpness_ < 0.7 * kind.sharpness_
    assert (
        CapsuleClassifier(alpha=0.01, kernel=None, sharpness=2.0)
        .fit(X[:100], y[:100], X_val=X[100:], y_val=noisy)
        .sharpness_
        == 2
    )


def test_a_few_held_out_examples_do_not_flatten_the_probabilities():
    X, y = load_iris(return_X_y=True)
    train, test = np.arange(150) % 5 > 1, np.arange(150) % 5 <= 1
    plain = CapsuleClassifier().fit(X[train], y[train])
    told = CapsuleClassifier().fit(X[train], y[train], X_val=X[test][::12], y_val=y[test][::12])
    assert told.sharpness_ == plain.sharpness_ > 1


@pytest.mark.parametrize("kernel", ["auto", None, "rbf"])
def test_inputs_may_lie_far_from_zero(kernel):
    "Coordinates in metres, seconds since 1970: what tells examples apart is in their last digits."
    rng = np.random.default_rng(0)
    X, y = (
        np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 3]),
        np.repeat([0, 1], 200),
    )
    near, far = (
        CapsuleClassifier(kernel=kernel).fit(X[::2] + shift, y[::2]).score(X[1::2] + shift, y[1::2])
        for shift in (0.0, 5.8e6)
    )
    assert near > 0.95 and abs(near - far) < 0.02


@together(
    "load, kernel",
    [
        (load_wine, "auto"),
        (load_wine, None),
        (load_wine, "rbf"),
        (load_breast_cancer, "auto"),
        (load_breast_cancer, "rbf"),
    ],
)
def test_columns_in_different_units_need_no_scaler(load, kernel, tmp_path):
    X, y = load(return_X_y=True)
    X = X.astype(np.float32)
    told, new = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    model, scaler = (
        CapsuleClassifier(kernel=kernel).fit(X[told], y[told]),
        StandardScaler().fit(X[told]),
    )
    other = CapsuleClassifier(kernel=kernel).fit(scaler.transform(X[told]), y[told])
    loss, least = (
        log_loss(y[new], model.predict_proba(X[new])),
        log_loss(y[new], other.predict_proba(scaler.transform(X[new]))),
    )
    assert (
        loss < least + 0.03
        and set(model.cv_results_["scaled"]) == {True, False}
        and other.cv_results_["scaled"] == other.cv_results_["compressed"]
    )
    assert model.kernel_features_.spread is not None and model.coef_.dtype == np.float32
    model.save(tmp_path / "scaled.npz")
    assert np.array_equal(
        CapsuleClassifier.load(tmp_path / "scaled.npz").predict_proba(X), model.predict_proba(X)
    )
    given = (
        {"alpha": 1.0},
        {"kernel": Search(1.0)},
        {"kernel": None, "alpha": (0.1, 1.0)},
        {"kernel": partial(_polynomial, gamma=1e-6)},
    )
    kept = [CapsuleClassifier(**settings).fit(X[told], y[told]) for settings in given]
    assert all(
        getattr(one.kernel_features_, "spread", None) is None for one in kept
    )  # what is given is in units of the inputs


def test_heavy_tails_need_no_logarithm(tmp_path):
    """Exponentials, counts and outliers, also in other units, in single precision and in streams;
    and nothing of it where something is given in units of the inputs.
    """
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1200, 5))
    y, told, new = (Z[:, 0] > Z[:, 1] * Z[:, 2]).astype(int), slice(0, 400), slice(400, None)
    X = np.exp(1.5 * Z) * [1, 1e3, 1e-3, 1, 1]
    model, known = (
        CapsuleClassifier().fit(X[told], y[told]),
        CapsuleClassifier().fit(Z[told], y[told]),
    )
    assert (
        model.kernel_features_.tails is not None
        and {True, False} == set(model.cv_results_["compressed"])
        and not any(known.cv_results_["compressed"])
    )
    assert (
        log_loss(y[new], model.predict_proba(X[new]))
        < log_loss(y[new], known.predict_proba(Z[new])) + 0.1
    )
    small = CapsuleClassifier().fit(X[told].astype(np.float32), y[told])
    assert (
        small.coef_.dtype == np.float32
        and np.mean(small.predict(X[new].astype(np.float32)) == model.predict(X[new])) > 0.98
    )
    stream = CapsuleClassifier().fit([(X[:150], y[:150]), (X[150:400], y[150:400])])
    assert np.mean(stream.predict(X[new]) == model.predict(X[new])) > 0.97
    there = strict.asarray(X, device=strict.Device("device1"))
    tensors = CapsuleClassifier().fit(there[:400, :], y[told])
    labels = strict.asarray(tensors.predict(there[400:, :]), device=strict.Device("CPU_DEVICE"))
    assert np.mean(np.asarray(labels) == model.predict(X[new])) > 0.97
    model.save(tmp_path / "tails.npz")
    assert np.array_equal(
        CapsuleClassifier.load(tmp_path / "tails.npz").predict_proba(X), model.predict_proba(X)
    )
    wrong = rng.random(Z.shape) < 0.01
    spoilt = CapsuleClassifier().fit(np.where(wrong, 1e4 * Z, Z)[told], y[told])
    assert spoilt.score(Z[new], y[new]) > known.score(Z[new], y[new]) - 0.03
    kept = [
        CapsuleClassifier(**given).fit(X[told], y[told])
        for given in (
            {"alpha": 1.0},
            {"kernel": Search(1.0)},
            {"kernel": partial(_polynomial, gamma=1e-6)},
        )
    ]
    kept.append(CapsuleClassifier.paper(max_iter=5).fit(X[told], y[told]))
    assert all(getattr(one.kernel_features_, "tails", None) is None for one in kept)


def test_what_is_chosen_has_the_least_loss_of_all_that_was_tried():
    "Also where the first choice falls behind while it goes on learning."
    X, y = load_breast_cancer(return_X_y=True)
    for part, _ in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        model = CapsuleClassifier(kernel=None, random_state=0).fit(X[part], y[part])
        best = np.argmin(model.cv_results_["log_loss"])
        scaled = getattr(model.kernel_features_, "spread", None) is not None
        assert (scaled, model.alpha_) == (
            model.cv_results_["scaled"][best],
            model.cv_results_["alpha"][best],
        )


def test_small_principal_components_are_not_enlarged():
    X, y = load_digits(return_X_y=True)
    X = PCA().fit_transform(X)[:600, :60]
    model = CapsuleClassifier(architecture="multiclass").fit(X, y[:600])
    assert (
        True in model.cv_results_["scaled"]
        and getattr(model.kernel_features_, "spread", None) is None
    )


def test_folds_choose_among_capsule_dimensions():
    X, y = load_iris(return_X_y=True)
    model = CapsuleClassifier(capsule_dim=(1, 3), kernel=None, alpha=(0.01, 0.1)).fit(X, y)
    tried = model.cv_results_
    assert (
        tried["capsule_dim"] == [1, 1, 3, 3]
        and model.capsule_dim_ in (1, 3)
        and model.coef_.shape[-2] == model.capsule_dim_
    )
    assert (model.capsule_dim_, model.alpha_) == min(
        zip(tried["log_loss"], zip(tried["capsule_dim"], tried["alpha"]))
    )[1]
    alone = CapsuleClassifier(
        model.capsule_dim_, kernel=None, alpha=model.alpha_, sharpness=model.sharpness_
    ).fit(X, y)
    assert np.mean(alone.predict(X) == model.predict(X)) > 0.98
    for wrong, word in (
        ((), "empty sequence"),
        ((2, 0), r"capsule_dim\[1\]"),
        ((1.5,), r"capsule_dim\[0\]"),
    ):
        with pytest.raises((ValueError, TypeError), match=word):
            CapsuleClassifier(capsule_dim=wrong).fit(X, y)


def test_more_examples_than_choose_have_a_second_look():
    """Where 6,000 examples can tell more than 2,000, the prior is weaker than a share of what these
    chose; and what is given stays.
    """
    X, y = make_moons(6000, noise=0.1, random_state=0)
    turns = np.c_[np.sin(4 * X[:, 0]) + X[:, 1], np.cos(3 * X[:, 1]) * X[:, 0]]
    labels = (np.sin(3 * turns[:, 0]) * np.cos(3 * turns[:, 1]) > 0) ^ (y > 0)
    model = CapsuleClassifier().fit(turns, labels)
    share = np.array(model.cv_results_["alpha"]) / 3
    assert model.alpha_ < 0.2 * min(share) and len(model.kernel_features_.landmarks) == 300
    given = CapsuleClassifier(alpha=share[1], kernel=RBF(1.0)).fit(turns, labels)
    assert given.alpha_ == share[1] and given.kernel_features_.gamma == 1.0
    new, truth = turns[::3] + 1e-3, labels[::3]
    assert model.score(new, truth) >= given.score(new, truth) - 0.02
    uneven = CapsuleClassifier().fit(
        turns * [1, 1e4], labels
    )  # landmarks of all examples keep the spreads
    assert (
        uneven.kernel_features_.spread is not None and len(uneven.kernel_features_.landmarks) == 300
    )
    assert uneven.score(new * [1, 1e4], truth) >= model.score(new, truth) - 0.02


def test_classes_are_weighted():
    factors = {0: 1.0, 1: 5.0, 2: 0.5}
    one = CapsuleClassifier(2, class_weight=factors, **FIXED).fit(X, Y, np.arange(1, len(Y) + 1.0))
    other = CapsuleClassifier(2, **FIXED).fit(
        X, Y, np.arange(1, len(Y) + 1.0) * np.array([1, 5, 0.5])[Y]
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-10)
    few = np.r_[np.arange(60), 60:64]
    balanced = CapsuleClassifier(2, class_weight="balanced", **FIXED).fit(X[few], Y[few])
    by_hand = CapsuleClassifier(2, **FIXED).fit(
        X[few], Y[few], (64 / (3 * np.bincount(Y[few])))[Y[few]]
    )
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, rtol=1e-10)
    with pytest.raises(ValueError, match=r"class_weight has entries for \[7\]"):
        CapsuleClassifier(class_weight={7: 1.0}).fit(X, Y)
    with pytest.raises(ValueError, match="class_weight must be at least 0"):
        CapsuleClassifier(class_weight={0: -1.0}).fit(X, Y)
    with pytest.raises(ValueError, match="class_weight='balanced' needs all examples"):
        CapsuleClassifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])
    online = CapsuleClassifier(2, class_weight=factors, **FIXED).partial_fit(
        X, Y, classes=[0, 1, 2]
    )
    other = CapsuleClassifier(2, **FIXED).partial_fit(
        X, Y, classes=[0, 1, 2], sample_weight=np.array([1, 5, 0.5])[Y]
    )
    np.testing.assert_allclose(online.coef_, other.coef_, rtol=1e-10)


def linear(x, z):
    return x @ z.T


@together("kernel", [RBF(0.5, 30), Polynomial(0.5, 30), Custom(linear, 30)])
def test_kernels_in_memory_from_streams_and_on_devices(kernel):
    X, y = MOONS
    model = CapsuleClassifier(2, kernel=kernel, alpha=1e-3, sharpness=1.5).fit(X, y)
    assert isinstance(model.kernel_features_, KernelFeatures) and model.coef_.shape[-1] > 2
    stream = CapsuleClassifier(2, kernel=kernel, alpha=1e-3, sharpness=1.5).fit(
        [(X[:70], y[:70]), (X[70:], y[70:])]
    )
    np.testing.assert_allclose(stream.predict_proba(X), model.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([model.predict_proba(row[None]) for row in X[:5]]),
        model.predict_proba(X[:5]),
        rtol=1e-9,
    )
    there = strict.asarray(X, device=strict.Device("device1"))
    tensors = CapsuleClassifier(
        2,
        kernel=Custom(lambda x, z: x @ z.mT, 30) if isinstance(kernel, Custom) else kernel,
        alpha=1e-3,
    ).fit(there, y)
    assert tensors.coef_.device == there.device and np.asarray(
        strict.asarray(tensors.predict(there), device=strict.Device("CPU_DEVICE"))
    ).shape == (200,)
    assert model.transform(X).shape == (200, 4) and model.squash(X).shape == (200, 2, 2)


def test_a_kernel_is_kept_in_the_file(tmp_path):
    model = CapsuleClassifier().fit(*MOONS)
    model.save(tmp_path / "moons.npz")
    again = CapsuleClassifier.load(tmp_path / "moons.npz")
    assert (
        np.array_equal(again.predict_proba(MOONS[0]), model.predict_proba(MOONS[0]))
        and again.cv_results_ == model.cv_results_
    )
    with pytest.raises(TypeError, match="cannot be stored as numbers and text"):
        CapsuleClassifier(kernel=linear, alpha=0.1).fit(*MOONS).save(tmp_path / "callable.npz")


def test_folds_of_ones_own_do_not_keep_a_model_from_the_file(tmp_path):
    for cv in (StratifiedKFold(4), iter(list(StratifiedKFold(4).split(*MOONS)))):
        model = CapsuleClassifier(2, kernel=None, alpha=(1e-3, 1e-2), cv=cv).fit(*MOONS)
        model.save(tmp_path / "folds.npz")
        again = CapsuleClassifier.load(tmp_path / "folds.npz")
        assert again.cv == 3 and np.array_equal(
            again.predict_proba(MOONS[0]), model.predict_proba(MOONS[0])
        )
    CapsuleClassifier(cv=5, **FIXED).fit(*MOONS).save(tmp_path / "five.npz")
    assert CapsuleClassifier.load(tmp_path / "five.npz").cv == 5


def test_learning_goes_on_with_the_same_features():
    with pytest.warns(ConvergenceWarning):
        model = CapsuleClassifier(warm_start=True, max_iter=5).fit(*MOONS)
    features, before = model.kernel_features_, model.score(*MOONS)
    model.set_params(max_iter=60).fit(*MOONS)
    assert model.kernel_features_ is features
    model.partial_fit(*MOONS)
    assert model.kernel_features_ is features and model.score(*MOONS) > before - 0.05
    online = CapsuleClassifier(kernel=RBF(2.0), random_state=0)
    for rows in np.array_split(np.arange(200), 4) * 3:
        online.partial_fit(MOONS[0][rows], MOONS[1][rows], classes=[0, 1])
    assert online.kernel_features_ is not None and online.alpha_ > 0 and online.score(*MOONS) > 0.85


BLOBS = (
    np.r_[
        np.random.default_rng(0).normal(size=(200, 2)),
        np.random.default_rng(1).normal(size=(200, 2)) + 3,
    ],
    np.repeat([0, 1], 200),
)
EASY = {
    "blobs": BLOBS,
    "iris": load_iris(return_X_y=True),
    "digits": tuple(a[:600] for a in load_digits(return_X_y=True)),
}


@functools.cache
def taught_at_once(name, architecture):
    "The share that is right after a fit without a kernel."
    X, y = EASY[name]
    return (
        CapsuleClassifier(kernel=None, sharpness=1.0, architecture=architecture)
        .fit(X, y)
        .score(X, y)
    )


@together("architecture", ["multiclass", "ovo"])
@together("online", [Stepwise(), Incremental(), PassiveAggressive()])
@together("name", EASY)
def test_batches_teach_from_the_first_pass_on(name, online, architecture):
    """One step from the subspaces leaves predictions far worse than chance, on iris none that are
    right; the examples with which classes begin are learned by some iterations.
    """
    X, y = EASY[name]
    for parts in (
        [np.arange(len(y))],
        np.array_split(np.random.default_rng(0).permutation(len(y)), 10),
    ):
        model, scores = CapsuleClassifier(online=online, architecture=architecture), []
        for _ in range(6):
            for number, rows in enumerate(parts):
                model.partial_fit(
                    X[rows],
                    y[rows],
                    classes=np.unique(y),
                    batch=number if isinstance(online, Incremental) else None,
                )
            scores.append(model.score(X, y))
        whole = taught_at_once(name, architecture)
        assert scores[0] > whole - 0.35 and scores[-1] > whole - 0.09, (scores, whole)


@together("online", [Stepwise(), PassiveAggressive()])
def test_a_class_that_begins_late_is_learned_and_the_others_are_not_forgotten(online):
    X, y = EASY["digits"]
    model, early, late = (
        CapsuleClassifier(online=online),
        np.flatnonzero(y < 9),
        np.flatnonzero(y == 9),
    )
    for rows in np.array_split(early, 3):
        model.partial_fit(X[rows], y[rows], classes=range(10))
    before = model.score(X[early], y[early])
    batch = np.r_[late[:30], early[:60]]
    model.partial_fit(X[batch], y[batch])
    assert model.score(X[late], y[late]) > 0.7 and model.score(X[early], y[early]) > before - 0.12


def test_only_the_protocol_of_the_paper_takes_one_step():
    X, y = EASY["iris"]
    short = CapsuleClassifier.paper(4, random_state=0).partial_fit(X, y, classes=[0, 1, 2])
    assert short.score(X, y) < 0.1
    for parameters in (
        FIXED,
        FIXED | {"alpha": 0, "sharpness": "auto"},
        FIXED | {"alpha": 0, "class_weight": {0: 2.0}},
    ):
        assert (
            CapsuleClassifier(architecture="multiclass", **parameters)
            .partial_fit(X, y, classes=[0, 1, 2])
            .score(X, y)
            > 0.8
        )
    given = np.ones((3, 4, 4))
    one, paper = (
        CapsuleClassifier.paper(4, init=given, alpha=alpha)
        .partial_fit(X, y, classes=[0, 1, 2])
        .coef_
        for alpha in (1e-9, 0.0)
    )
    np.testing.assert_allclose(
        one, paper, rtol=1e-4
    )  # weights that were given are where learning starts


@together("size", [1e-200, 1e-30, 1e30, 1e200])
def test_weights_of_any_size_change_no_bit(size):
    size = 4.0 ** np.round(np.log2(size) / 2)
    w = np.random.default_rng(0).random(len(Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = (
            CapsuleClassifier(2, kernel=None, alpha=0.01).fit(
                X, Y, weight, X_val=X, y_val=Y, sample_weight_val=weight
            )
            for weight in (w, w * size)
        )
        parts = [(X[rows], Y[rows], w[rows] * size) for rows in (slice(40), slice(40, None))]
        stream = CapsuleClassifier(2, **FIXED).fit(parts)
        chosen, heavy = (CapsuleClassifier(2).fit(X, Y, weight) for weight in (w, w * size))
    assert (
        np.array_equal(one.coef_, other.coef_)
        and one.sharpness_ == other.sharpness_
        and np.array_equal(stream.coef_, CapsuleClassifier(2, **FIXED).fit(X, Y, w).coef_)
    )
    assert (
        np.array_equal(chosen.predict_proba(X), heavy.predict_proba(X))
        and chosen.alpha_ == heavy.alpha_
    )


def test_too_few_iterations_are_told():
    for parameters in ({"max_iter": 1}, {"max_iter": 5}, FIXED | {"max_iter": 5}):
        with pytest.warns(
            ConvergenceWarning,
            match=(
                r"EM stopped at max_iter=\d, before the likelihood had stopped improving; raise"
                r" max_iter, for example to 60"
            ),
        ):
            CapsuleClassifier(**parameters).fit(X, Y)
    with pytest.warns(
        ConvergenceWarning,
        match="before the error rate had stopped improving for each of the thresholds",
    ):
        CapsuleClassifier.paper(max_iter=3, random_state=0).fit(X, Y)


def test_a_prior_makes_few_columns_harmless():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CapsuleClassifier(4, **FIXED).fit(X[:, :2], Y)
    with pytest.warns(UserWarning, match="span fewer directions than capsule_dim"):
        CapsuleClassifier(4, **FIXED | {"alpha": 0.0}).fit(X[:, :2], Y)


def test_an_interrupted_fit_chooses_the_same_again(tmp_path):
    def batches(count=[0]):
        count[0] += 1
        if count[0] == 12:
            raise OSError("the line is dead")
        yield MOONS[0][:90], MOONS[1][:90]
        yield MOONS[0][90:], MOONS[1][90:]

    model = CapsuleClassifier()
    with pytest.raises(em.BatchError, match="the line is dead"):
        model.fit(batches, checkpoint=tmp_path / "fit.npz", checkpoint_every=0)
    assert (tmp_path / "fit.npz").exists() and not hasattr(model, "coef_")
    resumed = model.fit(batches, checkpoint=tmp_path / "fit.npz").predict_proba(MOONS[0])
    assert np.array_equal(resumed, CapsuleClassifier().fit(batches).predict_proba(MOONS[0]))


def test_folds_of_folds_are_those_of_scikit_learn():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    ours, them = (
        run(CapsuleClassifier(2), X, Y, cv=folds, scoring="neg_log_loss")
        for run in (cross_validate, theirs)
    )
    np.testing.assert_allclose(ours["test_score"], them["test_score"], rtol=1e-9)


def spoiled(change):
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.repeat([0, 1], 20)
    return change(X), y


@together(
    "X, y",
    [
        spoiled(lambda X: X * [1, 0, 1]),
        spoiled(lambda X: np.c_[X, X]),
        spoiled(lambda X: X * 0),
        spoiled(lambda X: X[:, :1]),
        spoiled(lambda X: np.asfortranarray(X)),
        spoiled(lambda X: X.astype(np.float32)),
        spoiled(lambda X: X > 0),
        spoiled(lambda X: np.repeat(X, 30, axis=1)),
        spoiled(lambda X: X * 1e-150),
        spoiled(lambda X: X * 1e100),
        (X[[0, 30, 60]], Y[[0, 30, 60]]),
        (X[[0, 1, 30, 60, 61]], Y[[0, 1, 30, 60, 61]]),
        (X[:26], Y[:26]),
    ],
)
def test_poor_data_are_learned_from(X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CapsuleClassifier().fit(X, y)
    P = model.predict_proba(X)
    assert (
        np.all(np.isfinite(P))
        and np.allclose(P.sum(axis=1), 1, atol=1e-5)
        and np.all(np.isfinite(model.coef_))
    )


@together(
    "parameters, words",
    [
        ({"kernel": "cubic"}, "kernel"),
        ({"kernel": RBF(-1.0)}, "gamma"),
        ({"alpha": "some"}, "alpha"),
        ({"sharpness": 0.0}, "sharpness"),
        ({"cv": 1}, "cv"),
        ({"kernel": RBF(n_landmarks=0)}, "n_landmarks"),
        ({"kernel": lambda x, z: x}, "kernel: its result"),
        (
            {"kernel": lambda x, z: -(x @ z.T)},
            "kernel must be symmetric and positive semi-definite",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(parameters, words):
    with pytest.raises(ValueError, match=words):
        CapsuleClassifier(**parameters).fit(X, Y)


def test_the_protocol_of_the_paper_is_a_preset():
    model = CapsuleClassifier.paper(2, max_iter=30, thresholds=(0.5, 0.0), patience=(3, 3))
    assert (
        model.schedule.monitor == "error"
        and model.kernel is None
        and model.alpha == 0
        and model.sharpness == 1
    )
    model.fit(X, Y)
    assert (
        model.coef_.shape == (3, 2, 4)
        and model.sharpness_ == 1
        and model.cv_results_ == {}
        and model.architecture_ == "multiclass"
    )


# ── weights and origins ──────────────────────────────────────


def test_one_row_without_weight_does_not_change_the_prior():
    X, y = load_breast_cancer(return_X_y=True)
    w = np.ones(len(y))
    w[0] = 0
    model = CapsuleClassifier(random_state=0).fit(X, y, w)
    without = CapsuleClassifier(random_state=0).fit(X[1:], y[1:], w[1:])
    assert model.alpha_ == without.alpha_ > 10
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))


def test_weights_are_repetitions():
    """A row of weight 3 is three rows, where landmarks are all rows: for every candidate of the
    search.
    """
    X, y = load_wine(return_X_y=True)
    X, y = X[::3], y[::3]
    w = np.random.default_rng(0).integers(1, 4, len(y))
    folds = np.arange(len(y)) % 3
    pairs = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(3)]
    many = [
        tuple(np.flatnonzero(np.isin(np.repeat(np.arange(len(y)), w), part)) for part in p)
        for p in pairs
    ]
    weighted = CapsuleClassifier(cv=pairs, kernel=Search(n_landmarks=1000)).fit(X, y, w)
    repeated = CapsuleClassifier(cv=many, kernel=Search(n_landmarks=1000)).fit(
        np.repeat(X, w, axis=0), np.repeat(y, w)
    )
    for name in ("alpha", "sharpness", "log_loss"):
        np.testing.assert_allclose(
            weighted.cv_results_[name], repeated.cv_results_[name], rtol=0.02
        )


@pytest.mark.parametrize("form", ["array", "stream", "paper"])
def test_columns_far_from_zero(form):
    """Log loss on half of wine is what it is without an offset: the mean is taken off before
    anything is squared.
    """
    X, y = load_wine(return_X_y=True)
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y)

    def loss(X):
        model = CapsuleClassifier.paper() if form == "paper" else CapsuleClassifier()
        parts = np.array_split(train, 3)
        if form == "stream":
            model.fit([(X[part], y[part]) for part in parts])
        else:
            model.fit(X[train], y[train])
        return log_loss(y[test], model.predict_proba(X[test]))

    near = loss(X)
    for offset in (1e6, 1e9):
        assert abs(loss(X + offset) - near) < 0.01
    single = (X + 1e5).astype(np.float32)
    assert abs(loss(single) - loss(single.astype(np.float64))) < 0.01


def test_an_offset_is_stored_with_the_model(tmp_path):
    X, y = load_iris(return_X_y=True)
    for model in (
        CapsuleClassifier.paper(2),
        CapsuleClassifier(2, architecture="multiclass", kernel=None, alpha=1e-3, sharpness=1.0),
    ):
        plain, far = (clone(model).fit(X + offset, y) for offset in (0.0, 1e8))
        assert plain.kernel_features_ is None and far.kernel_features_.kernel is None
        assert far.coef_.shape == plain.coef_.shape
        assert far.score(X + 1e8, y) > plain.score(X, y) - 0.02
        far.save(tmp_path / "far")
        loaded = CapsuleClassifier.load(tmp_path / "far")
        assert np.array_equal(loaded.predict_proba(X + 1e8), far.predict_proba(X + 1e8))
    online = CapsuleClassifier(2, kernel=None).partial_fit(X + 1e8, y, classes=[0, 1, 2])
    assert online.partial_fit(X + 1e8, y).score(X + 1e8, y) > 0.95
