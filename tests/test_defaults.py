"""`CapsuleClassifier` with its defaults: what it chooses, what its choices do not depend on, and
what they are worth.
"""

import warnings
from functools import partial
from itertools import product

import array_api_strict as strict
import numpy as np
import pytest
from conftest import together
from estimators import each
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
from sklearn.model_selection import StratifiedKFold, cross_validate, train_test_split
from sklearn.preprocessing import StandardScaler

from capslit import CapsuleClassifier, em
from capslit.arrays import to_numpy
from capslit.capsules import cross_validate as side_by_side
from capslit.capsules.features import _polynomial
from capslit.capsules.settings import (
    RBF,
    Custom,
    Incremental,
    PassiveAggressive,
    Polynomial,
    Search,
    Stepwise,
)

X, Y = (a[::2] for a in load_iris(return_X_y=True))
MOONS = make_moons(200, noise=0.2, random_state=0)
FIXED = {"kernel": None, "alpha": 0.01, "sharpness": 1.0}
# settings in units of the inputs, which are then left as they are
IN_UNITS = (
    {"alpha": 1.0},
    {"kernel": None, "alpha": (0.1, 1.0)},
    {"kernel": Search(1.0)},
    {"kernel": partial(_polynomial, gamma=1e-6)},
)


def spread(model):
    return getattr(model.kernel_features_, "spread", None)


def tails(model):
    return getattr(model.kernel_features_, "tails", None)


def reloaded(model, folder):
    model.save(folder / "model.npz")
    return CapsuleClassifier.load(folder / "model.npz")


def least(model, *names):
    "These settings of the candidate with the least log loss."
    tried = model.cv_results_
    best = np.argmin(tried["log_loss"])
    return tuple(tried[name][best] for name in names)


# ── what is chosen


@together("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_defaults_are_worth_having(load):
    """Without a word of advice: no warning, as few errors as logistic regression up to a standard
    error, and probabilities that can be used.
    """
    X, y = (a[:700] for a in load(return_X_y=True))
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    with warnings.catch_warnings(action="error"):
        model = CapsuleClassifier().fit(X, y)
    other = LogisticRegression(max_iter=1000).fit(X, y)
    errors, theirs = (1 - m.score(X_test, y_test) for m in (model, other))
    assert errors <= theirs + np.sqrt(max(theirs, 0.01) / len(y_test))
    P, others = (m.predict_proba(X_test) for m in (model, other))
    assert log_loss(y_test, P) < log_loss(y_test, others) + 0.05
    # the paper's protocol: 0.41 at an accuracy of 0.96
    assert abs(P.max(axis=1).mean() - (1 - errors)) < 0.05


def test_a_kernel_is_found_where_it_pays():
    X, y = make_circles(400, factor=0.6, noise=0.12, random_state=0)
    X = np.c_[X, np.sin(5 * X[:, 0])]
    assert CapsuleClassifier().fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.85
    assert CapsuleClassifier().fit(*MOONS).kernel_features_ is not None
    X = np.random.default_rng(0).standard_normal((300, 5))
    model = CapsuleClassifier().fit(X, X[:, 0] > 0)
    kernels = model.cv_results_["kernel"]
    assert (len(kernels), kernels.count(None)) == (12, 4)
    gamma = model.kernel_features_ and model.kernel_features_.gamma
    assert least(model, "gamma", "alpha") == (gamma, model.alpha_)


def test_what_is_chosen_has_the_least_loss_of_all_that_was_tried():
    "Also where the first choice falls behind while it goes on learning."
    model = CapsuleClassifier(alpha=(0.5, 1e-3), kernel=RBF([0.1, 1.0, 10.0])).fit(*MOONS)
    assert model.cv_results_["alpha"] == [0.5, 1e-3] * 3 and model.alpha_ == 1e-3
    assert model.cv_results_["gamma"] == [0.1, 0.1, 1.0, 1.0, 10.0, 10.0]
    X, y = load_breast_cancer(return_X_y=True)
    for part, _ in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        model = CapsuleClassifier(kernel=None, random_state=0).fit(X[part], y[part])
        assert least(model, "scaled", "alpha") == (spread(model) is not None, model.alpha_)
    X, y = load_iris(return_X_y=True)
    model = CapsuleClassifier((1, 3), kernel=None, alpha=(0.01, 0.1)).fit(X, y)
    assert model.cv_results_["capsule_dim"] == [1, 1, 3, 3]
    assert model.coef_.shape[-2] == model.capsule_dim_
    assert least(model, "capsule_dim", "alpha") == (model.capsule_dim_, model.alpha_)


def test_more_examples_than_choose_have_a_second_look():
    """Where 6,000 examples can tell more than 2,000, the prior is weaker than a share of what these
    chose; what is given stays; landmarks of all examples keep the spreads.
    """
    X, y = make_moons(6000, noise=0.1, random_state=0)
    turns = np.c_[np.sin(4 * X[:, 0]) + X[:, 1], np.cos(3 * X[:, 1]) * X[:, 0]]
    labels = (np.sin(3 * turns[:, 0]) * np.cos(3 * turns[:, 1]) > 0) ^ (y > 0)
    model = CapsuleClassifier().fit(turns, labels)
    share = np.array(model.cv_results_["alpha"]) / 3
    assert model.alpha_ < 0.2 * min(share)
    given = CapsuleClassifier(alpha=share[1], kernel=RBF(1.0)).fit(turns, labels)
    assert (given.alpha_, given.kernel_features_.gamma) == (share[1], 1.0)
    uneven = CapsuleClassifier().fit(turns * [1, 1e4], labels)
    assert spread(uneven) is not None
    assert len(model.kernel_features_.landmarks) == len(uneven.kernel_features_.landmarks) == 300
    new = turns[::3] + 1e-3
    score = model.score(new, labels[::3])
    assert score >= given.score(new, labels[::3]) - 0.02
    assert uneven.score(new * [1, 1e4], labels[::3]) >= score - 0.02


def test_landmarks_are_doubled_where_that_pays():
    "Single precision of many rows' features changes no answer, and predictions are in double."
    rng, told = np.random.default_rng(0), slice(24_000)
    X = rng.uniform(-1, 1, (26_000, 2))
    half = (X[:, 0] + 0.1 * rng.standard_normal(26_000) > 0).astype(int)
    board = (np.sin(18 * X[:, 0]) * np.sin(18 * X[:, 1]) > 0).astype(int)
    model = CapsuleClassifier(max_iter=20).fit(X[told], half[told])
    features = model.kernel_features_
    assert features is None or len(features.landmarks) <= 500
    model.fit(X[told], board[told])
    assert 500 < len(model.kernel_features_.landmarks) <= 21_600 // 20
    assert model.score(X[24_000:], board[24_000:]) > 0.9
    assert model.predict_proba(X[:3]).dtype == np.float64


def test_held_out_examples_tell_the_sharpness():
    "Also that of a kernel; a few of them do not flatten the probabilities."
    X, y = make_moons(700, noise=0.2, random_state=0)
    noisy = np.where(np.random.default_rng(0).random(600) < 0.3, 1 - y[100:], y[100:])
    model = CapsuleClassifier(alpha=0.01, kernel=None)

    def told(model, labels):
        return clone(model).fit(X[:100], y[:100], X_val=X[100:], y_val=labels)

    kind, cruel = told(model, y[100:]), told(model, noisy)
    assert np.array_equal(kind.coef_, cruel.coef_)
    assert cruel.sharpness_ < 0.7 * kind.sharpness_
    assert told(model.set_params(sharpness=2.0), noisy).sharpness_ == 2
    X, y = load_iris(return_X_y=True)
    train = np.arange(150) % 5 > 1
    plain = CapsuleClassifier().fit(X[train], y[train])
    few = {"X_val": X[~train][::12], "y_val": y[~train][::12]}
    assert CapsuleClassifier().fit(X[train], y[train], **few).sharpness_ == plain.sharpness_ > 1
    X, y = make_moons(1800, noise=0.3, random_state=0)
    for kernel in (None, RBF(1.0, 50)):
        model = CapsuleClassifier(kernel=kernel, alpha=1e-3)
        best = model.fit(X[:900], y[:900], X_val=X[900:], y_val=y[900:]).sharpness_
        losses = []
        for factor in (0.8, 1.0, 1.25):
            model.sharpness_ = factor * best
            losses.append(log_loss(y[900:], model.predict_proba(X[900:])))
        assert np.argmin(losses) == 1, kernel


@together("architecture", ["multiclass", "ovr", "ovo"])
def test_sharpness_changes_no_decision(architecture):
    plain, sharp = (
        CapsuleClassifier(2, architecture=architecture, **FIXED | {"sharpness": s}).fit(X, Y)
        for s in (1.0, 3.0)
    )
    cubes = plain.predict_proba(X) ** 3
    found = sharp.predict_proba(X)
    np.testing.assert_allclose(found, cubes / cubes.sum(axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(np.exp(sharp.predict_log_proba(X)), found, rtol=1e-10)
    assert np.array_equal(plain.predict(X), sharp.predict(X))
    one, three = (
        clone(model).fit(X[Y > 0], Y[Y > 0]).decision_function(X) for model in (plain, sharp)
    )
    np.testing.assert_allclose(three, 3 * one, rtol=1e-10)


# ── what the choices do not depend on


def test_the_same_choices_each_time():
    one, other, seeded = (
        CapsuleClassifier(random_state=seed).fit(*MOONS).predict_proba(MOONS[0])
        for seed in (None, None, 1)
    )
    assert np.array_equal(one, other)
    assert not np.array_equal(one, seeded)


@together("load", [load_wine, load_breast_cancer])
@together("kernel", ["auto", "rbf"])
def test_columns_in_different_units_need_no_scaler(load, kernel, tmp_path):
    X, y = load(return_X_y=True)
    X = X.astype(np.float32)
    new = np.arange(len(y)) % 3 == 0
    model = CapsuleClassifier(kernel=kernel).fit(X[~new], y[~new])
    Z = StandardScaler().fit(X[~new]).transform(X)
    other = CapsuleClassifier(kernel=kernel).fit(Z[~new], y[~new])
    loss = log_loss(y[new], model.predict_proba(X[new]))
    assert loss < log_loss(y[new], other.predict_proba(Z[new])) + 0.03
    assert set(model.cv_results_["scaled"]) == {True, False}
    assert other.cv_results_["scaled"] == other.cv_results_["compressed"]
    assert spread(model) is not None
    assert model.coef_.dtype == np.float32
    assert np.array_equal(reloaded(model, tmp_path).predict_proba(X), model.predict_proba(X))


def test_small_principal_components_are_not_enlarged():
    X, y = load_digits(return_X_y=True)
    X = PCA().fit_transform(X)[:600, :60]
    model = CapsuleClassifier(architecture="multiclass").fit(X, y[:600])
    assert True in model.cv_results_["scaled"]
    assert spread(model) is None


def test_heavy_tails_need_no_logarithm(tmp_path):
    """Exponentials, counts and outliers, also in other units, in single precision, in streams and
    on devices.
    """
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1200, 5))
    y = (Z[:, 0] > Z[:, 1] * Z[:, 2]).astype(int)
    told, new = slice(0, 400), slice(400, None)
    X = np.exp(1.5 * Z) * [1, 1e3, 1e-3, 1, 1]
    model = CapsuleClassifier().fit(X[told], y[told])
    known = CapsuleClassifier().fit(Z[told], y[told])
    assert tails(model) is not None
    assert set(model.cv_results_["compressed"]) == {True, False}
    assert not any(known.cv_results_["compressed"])
    loss = log_loss(y[new], model.predict_proba(X[new]))
    assert loss < log_loss(y[new], known.predict_proba(Z[new])) + 0.1
    assert np.array_equal(reloaded(model, tmp_path).predict_proba(X), model.predict_proba(X))
    device = strict.asarray(X, device=strict.Device("device1"))
    parts = [(X[:150], y[:150]), (X[150:400], y[150:400])]
    for fit, inputs, least in (
        ((X[told].astype(np.float32), y[told]), X.astype(np.float32)[new], 0.98),
        ((parts,), X[new], 0.97),
        ((device[:400, :], y[told]), device[400:, :], 0.97),
    ):
        found = to_numpy(CapsuleClassifier().fit(*fit).predict(inputs))
        assert np.mean(found == model.predict(X[new])) > least
    wrong = rng.random(Z.shape) < 0.01
    spoilt = CapsuleClassifier().fit(np.where(wrong, 1e4 * Z, Z)[told], y[told])
    assert spoilt.score(Z[new], y[new]) > known.score(Z[new], y[new]) - 0.03
    assert spread(model) is not None
    for settings in IN_UNITS:
        as_they_are = CapsuleClassifier(**settings).fit(X[told], y[told])
        assert spread(as_they_are) is tails(as_they_are) is None


@together("stream", [False, True])
def test_columns_far_from_zero(stream):
    """Log loss on half of wine is what it is without an offset: the mean is taken off before
    anything is squared.
    """
    X, y = load_wine(return_X_y=True)
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y)

    def loss(X):
        parts = [(X[part], y[part]) for part in np.array_split(train, 3)]
        model = CapsuleClassifier().fit(*([parts] if stream else (X[train], y[train])))
        return log_loss(y[test], model.predict_proba(X[test]))

    assert abs(loss(X + 1e9) - loss(X)) < 0.01
    single = (X + 1e5).astype(np.float32)
    assert abs(loss(single) - loss(single.astype(np.float64))) < 0.01


def test_an_offset_is_stored_with_the_model(tmp_path):
    X, y = load_iris(return_X_y=True)
    for model in (CapsuleClassifier.paper(2), CapsuleClassifier(2, **FIXED)):
        plain = clone(model).fit(X, y)
        far = model.fit(X + 1e8, y)
        assert plain.kernel_features_ is None
        assert far.kernel_features_.kernel is None
        assert far.coef_.shape == plain.coef_.shape
        assert far.score(X + 1e8, y) > plain.score(X, y) - 0.02
        P = reloaded(far, tmp_path).predict_proba(X + 1e8)
        assert np.array_equal(P, far.predict_proba(X + 1e8))
    online = CapsuleClassifier(2, kernel=None).partial_fit(X + 1e8, y, classes=[0, 1, 2])
    assert online.partial_fit(X + 1e8, y).score(X + 1e8, y) > 0.95


# ── rare classes


def rare_table(n=2500, share=-4.6):
    "Two positives in a hundred, beyond a plane through columns of very different units."
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((2 * n, 8))
    log_odds = 0.6 * Z.sum(axis=1) + share
    y = (rng.random(2 * n) < 1 / (1 + np.exp(-log_odds))).astype(int)
    inputs = 1.6e9 * (np.arange(8) == 3) + Z * np.geomspace(1e-3, 1e7, 8)
    return inputs[:n], y[:n], inputs[n:], y[n:]


def test_rare_classes_are_learned_in_any_units(tmp_path):
    X, y, X_new, y_new = rare_table()
    scaler = StandardScaler().fit(X)
    model = CapsuleClassifier().fit(X, y)
    scaled = CapsuleClassifier().fit(scaler.transform(X), y)
    linear = LogisticRegression().fit(scaler.transform(X), y)
    P, Z_new = model.predict_proba(X_new), scaler.transform(X_new)
    found, same, right = (
        log_loss(y_new, p) for p in (P, scaled.predict_proba(Z_new), linear.predict_proba(Z_new))
    )
    assert found < 1.03 * right and found < 1.01 * same
    assert set(model.cv_results_["balanced"]) == {True, False}
    np.testing.assert_allclose(model.balance_, len(y) / (2 * np.bincount(y)))
    assert np.isclose(P[:, 1].mean(), y_new.mean(), rtol=0.2)
    np.testing.assert_array_equal(model.predict(X_new), P.argmax(axis=1))
    assert np.array_equal(reloaded(model, tmp_path).predict_proba(X_new), P)
    # neither common classes are balanced, nor weights and probabilities that were asked for
    common = CapsuleClassifier(kernel=None).fit(X, X[:, 0] > 0)
    assert common.balance_ is None and not any(common.cv_results_["balanced"])
    asked = CapsuleClassifier(kernel=None, sharpness=1.0).fit(X, y)
    even = CapsuleClassifier(kernel=None, class_weight="balanced").fit(X, y)
    assert asked.balance_ is even.balance_ is None
    assert even.predict_proba(X_new)[:, 1].mean() > 5 * y_new.mean()


def test_rare_classes_of_several():
    X, y, X_new, _ = rare_table()
    X, X_new = X - X.mean(axis=0), X_new - X.mean(axis=0)
    y[(X[:, 0] > 0) & (y == 0)] = 2
    model = CapsuleClassifier(kernel=None).fit(X, y)
    P = model.predict_proba(X_new)
    assert model.balance_.argmax() == 1
    np.testing.assert_array_equal(model.predict(X_new), P.argmax(axis=1))
    np.testing.assert_array_equal(model.decision_function(X_new).argmax(axis=1), P.argmax(axis=1))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X_new)), P, atol=1e-12)
    tensors = model._predictor(strict.asarray(X_new)).probabilities(strict.asarray(X_new))
    np.testing.assert_allclose(to_numpy(tensors), P, atol=1e-12)
    single = model.predict_proba(X_new.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, P, atol=1e-3)
    # the rest of all classes but one mixes several weights
    assert CapsuleClassifier(kernel=None, architecture="ovr").fit(X, y).balance_ is None


def test_batches_after_a_rare_class_are_weighted_alike():
    X, y, X_new, y_new = rare_table()
    model = CapsuleClassifier(kernel=None).fit(X, y)
    factors = model.balance_
    before = model.predict_proba(X_new)[:, 1]
    after = model.partial_fit(X, y).predict_proba(X_new)[:, 1]
    np.testing.assert_array_equal(model.balance_, factors)
    assert np.corrcoef(before, after)[0, 1] > 0.95
    assert np.isclose(after.mean(), y_new.mean(), rtol=0.3)


# ── weights


def test_classes_are_weighted():
    model = CapsuleClassifier(2, **FIXED)
    weighted = clone(model).set_params(class_weight={0: 1.0, 1: 5.0, 2: 0.5})
    factors = np.array([1, 5, 0.5])[Y]
    w = np.arange(1, len(Y) + 1.0)
    one, other = clone(weighted).fit(X, Y, w), clone(model).fit(X, Y, w * factors)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-10)
    one = weighted.partial_fit(X, Y, [0, 1, 2])
    other = clone(model).partial_fit(X, Y, [0, 1, 2], factors)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-10)
    few = np.r_[np.arange(60), 60:64]
    balanced = clone(model).set_params(class_weight="balanced").fit(X[few], Y[few])
    by_hand = model.fit(X[few], Y[few], (64 / (3 * np.bincount(Y[few])))[Y[few]])
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, rtol=1e-10)
    for wrong, said in (({7: 1.0}, r"has entries for \[7\]"), ({0: -1.0}, "must be at least 0")):
        with pytest.raises(ValueError, match=f"class_weight {said}"):
            CapsuleClassifier(class_weight=wrong).fit(X, Y)


@together("power", [-332, 332])
def test_weights_of_any_size_change_no_bit(power):
    w = np.random.default_rng(0).random(len(Y))
    heavy = w * 4.0**power
    told = CapsuleClassifier(2, kernel=None, alpha=0.01)
    with warnings.catch_warnings(action="error"):
        one, other = (
            clone(told).fit(X, Y, v, X_val=X, y_val=Y, sample_weight_val=v) for v in (w, heavy)
        )
        parts = [(X[rows], Y[rows], heavy[rows]) for rows in (slice(40), slice(40, None))]
        stream, whole = (CapsuleClassifier(2, **FIXED).fit(*a) for a in ([parts], [X, Y, w]))
        chosen, again = (CapsuleClassifier(2).fit(X, Y, v) for v in (w, heavy))
    assert np.array_equal(one.coef_, other.coef_)
    assert one.sharpness_ == other.sharpness_
    assert np.array_equal(stream.coef_, whole.coef_)
    assert np.array_equal(chosen.predict_proba(X), again.predict_proba(X))
    assert chosen.alpha_ == again.alpha_


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
    X, y = (a[::3] for a in load_wine(return_X_y=True))
    w = np.random.default_rng(0).integers(1, 4, len(y))
    fold = np.arange(len(y)) % 3

    def tried(fold, *examples):
        pairs = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(3)]
        model = CapsuleClassifier(cv=pairs, kernel=Search(n_landmarks=1000))
        return model.fit(*examples).cv_results_

    weighted = tried(fold, X, y, w)
    repeated = tried(*(np.repeat(a, w, axis=0) for a in (fold, X, y)))
    for name in ("alpha", "sharpness", "log_loss"):
        np.testing.assert_allclose(weighted[name], repeated[name], rtol=0.02)


# ── kernels, files and folds


def linear(x, z):
    return x @ z.T


@together("kernel", [RBF(0.5, 30), Polynomial(0.5, 30), Custom(linear, 30)])
def test_kernels_in_memory_from_streams_and_on_devices(kernel):
    X, y = MOONS
    model = CapsuleClassifier(2, kernel=kernel, alpha=1e-3, sharpness=1.5)
    P = clone(model).fit(X, y).predict_proba(X)
    stream = clone(model).fit([(X[:70], y[:70]), (X[70:], y[70:])])
    np.testing.assert_allclose(stream.predict_proba(X), P, atol=1e-6)
    if isinstance(kernel, Custom):
        model.set_params(kernel=Custom(lambda x, z: x @ z.mT, 30))
    there = strict.asarray(X, device=strict.Device("device1"))
    model.fit(there, y)
    assert model.coef_.device == there.device
    assert model.coef_.shape[-1] > 2
    np.testing.assert_allclose(to_numpy(model.predict_proba(there)), P, atol=1e-6)
    assert model.transform(there).shape == (200, 4)


def test_kernels_and_folds_in_files(tmp_path):
    X, y = MOONS
    splitter = StratifiedKFold(4)
    for kernel, cv in (
        ("auto", 5),
        (None, splitter),
        (None, splitter.split(X, y)),
    ):
        model = CapsuleClassifier(2, kernel=kernel, cv=cv).fit(X, y)
        again = reloaded(model, tmp_path)
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.cv_results_ == model.cv_results_
        assert again.cv == (5 if cv == 5 else 3)
    with pytest.raises(TypeError, match="cannot be stored as numbers and text"):
        reloaded(CapsuleClassifier(kernel=linear, alpha=0.1).fit(X, y), tmp_path)


def test_folds_of_folds_are_those_of_scikit_learn():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    ours, theirs = (
        run(CapsuleClassifier(2), X, Y, cv=folds, scoring="neg_log_loss")["test_score"]
        for run in (side_by_side, cross_validate)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_an_interrupted_fit_chooses_the_same_again(tmp_path):
    X, y = MOONS
    passes = 0

    def batches():
        nonlocal passes
        passes += 1
        if passes == 12:
            raise OSError("the line is dead")
        yield X[:90], y[:90]
        yield X[90:], y[90:]

    model = CapsuleClassifier()
    with pytest.raises(em.BatchError, match="the line is dead"):
        model.fit(batches, checkpoint=tmp_path / "fit.npz", checkpoint_every=0)
    assert (tmp_path / "fit.npz").exists()
    assert not hasattr(model, "coef_")
    resumed = model.fit(batches, checkpoint=tmp_path / "fit.npz").predict_proba(X)
    assert np.array_equal(resumed, CapsuleClassifier().fit(batches).predict_proba(X))


# ── batches


def test_learning_goes_on_with_the_same_features():
    X, y = MOONS
    with pytest.warns(ConvergenceWarning):
        model = CapsuleClassifier(warm_start=True, max_iter=5).fit(X, y)
    features = model.kernel_features_
    before = model.score(X, y)
    for learn in (model.set_params(max_iter=60).fit, model.partial_fit):
        assert learn(X, y).kernel_features_ is features
    assert model.score(X, y) > before - 0.05
    online = CapsuleClassifier(kernel=RBF(2.0), random_state=0)
    for rows in np.array_split(np.arange(200), 4) * 3:
        online.partial_fit(X[rows], y[rows], classes=[0, 1])
    assert online.kernel_features_ is not None
    assert online.alpha_ > 0
    assert online.score(X, y) > 0.85


rng = np.random.default_rng(0)
EASY = {
    "blobs": (
        rng.normal(size=(400, 2)) + np.repeat([[0], [3]], 200, axis=0),
        np.arange(400) // 200,
    ),
    "iris": load_iris(return_X_y=True),
    "digits": tuple(a[:300] for a in load_digits(n_class=5, return_X_y=True)),
}


@together("architecture", ["multiclass", "ovo"])
@together("name", EASY)
def test_batches_teach_from_the_first_pass_on(name, architecture):
    """One step from the subspaces leaves predictions far worse than chance, on iris none that are
    right; the examples with which classes begin are learned by some iterations.
    """
    X, y = EASY[name]
    order = np.random.default_rng(0).permutation(len(y))
    plain = CapsuleClassifier(kernel=None, sharpness=1.0, architecture=architecture)
    whole = plain.fit(X, y).score(X, y)
    rules = Stepwise(), Incremental(), PassiveAggressive()
    for online, n_parts in product(rules, (1, 10)):
        model = CapsuleClassifier(online=online, architecture=architecture)
        scores = []
        for _ in range(6):
            for number, rows in enumerate(np.array_split(order, n_parts)):
                batch = number if isinstance(online, Incremental) else None
                model.partial_fit(X[rows], y[rows], classes=np.unique(y), batch=batch)
            scores.append(model.score(X, y))
        assert scores[0] > whole - 0.35, (online, scores, whole)
        assert scores[-1] > whole - 0.09, (online, scores, whole)


@together("online", [Stepwise(), PassiveAggressive()])
def test_a_class_that_begins_late_is_learned_and_the_others_are_not_forgotten(online):
    X, y = EASY["digits"]
    model = CapsuleClassifier(online=online)
    early, late = np.flatnonzero(y < 4), np.flatnonzero(y == 4)
    for rows in np.array_split(early, 3):
        model.partial_fit(X[rows], y[rows], classes=range(5))
    before = model.score(X[early], y[early])
    batch = np.r_[late[:30], early[:60]]
    model.partial_fit(X[batch], y[batch])
    assert model.score(X[late], y[late]) > 0.7
    assert model.score(X[early], y[early]) > before - 0.12


def test_only_the_protocol_of_the_paper_takes_one_step():
    "And weights that were given are where learning starts."
    X, y = EASY["iris"]

    def taught(make, **settings):
        return make(random_state=0, **settings).partial_fit(X, y, classes=[0, 1, 2])

    assert taught(CapsuleClassifier.paper).score(X, y) < 0.1
    for changes in ({}, {"alpha": 0, "sharpness": "auto"}, {"alpha": 0, "class_weight": {0: 2.0}}):
        model = taught(CapsuleClassifier, architecture="multiclass", **FIXED | changes)
        assert model.score(X, y) > 0.8
    one, paper = (
        taught(CapsuleClassifier.paper, init=np.ones((3, 4, 4)), alpha=alpha).coef_
        for alpha in (1e-9, 0.0)
    )
    np.testing.assert_allclose(one, paper, rtol=1e-4)


# ── what is said


def test_too_few_iterations_are_told():
    "A prior makes few columns harmless."
    with warnings.catch_warnings(action="error"):
        CapsuleClassifier(4, **FIXED).fit(X[:, :2], Y)
    said = r"EM stopped at max_iter=\d, before the likelihood had .*, for example to 60"
    paper = "before the error rate had stopped improving for each of the thresholds"
    for model, words in (
        (CapsuleClassifier(max_iter=1), said),
        (CapsuleClassifier(**FIXED, max_iter=5), said),
        (CapsuleClassifier.paper(max_iter=3, random_state=0), paper),
    ):
        with pytest.warns(ConvergenceWarning, match=words):
            model.fit(X, Y)


POOR = [
    lambda X: X * [1, 0, 1],
    lambda X: np.c_[X, X],
    lambda X: X * 0,
    lambda X: X[:, :1],
    lambda X: X > 0,
    lambda X: np.repeat(X, 30, axis=1),
    lambda X: X * 1e-150,
    lambda X: X * 1e100,
    lambda X: X[:3],
    lambda X: X[:21],
]


@together("change", POOR)
def test_poor_data_are_learned_from(change):
    X = change(np.random.default_rng(0).standard_normal((40, 3)))
    with warnings.catch_warnings(action="ignore"):
        # the second class has half of the examples, or one
        model = CapsuleClassifier().fit(X, np.arange(len(X)) >= min(20, len(X) - 1))
    assert np.all(np.isfinite(model.coef_))
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-5)


@together(
    "parameters, words",
    [
        *each(capsule_dim=[(1.5,)], kernel=["cubic"], alpha=["some"], sharpness=[0.0], cv=[1]),
        ({"capsule_dim": ()}, "empty sequence"),
        ({"capsule_dim": (2, 0)}, r"capsule_dim\[1\]"),
        ({"kernel": RBF(-1.0)}, "gamma"),
        ({"kernel": RBF(n_landmarks=0)}, "n_landmarks"),
        ({"alpha": (0.5, -1)}, "alpha must be at least 0"),
        ({"kernel": lambda x, z: x}, "kernel: its result"),
        ({"kernel": lambda x, z: -(x @ z.T)}, "kernel must be symmetric and positive semi-def"),
    ],
)
def test_what_makes_no_sense_is_refused(parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        CapsuleClassifier(**parameters).fit(X, Y)
