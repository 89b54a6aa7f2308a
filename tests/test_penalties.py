"""Dropout and ℓ₁ penalties: objectives that never fall, exact zeros, indifference to units and to
how poses are turned, the options of the classifier, and the experiment.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import test_em
from conftest import together
from sklearn.exceptions import ConvergenceWarning

from functools import partial

from sklearn.base import clone
from capslit import CapsuleClassifier
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.engine import CapsuleRegression, LeastSquares, second_moments
from capslit.capsules.penalties import (
    GROUPS,
    _coordinate_sweep,
    dropout_precision,
    _group_norms,
    masked_copies,
    _mixture_step,
    with_lasso,
    zeros_settled,
)
from capslit.capsules.problems import least_squares
from capslit.experiments.penalties import (
    STRENGTHS,
    _divided,
    _means_of_four,
    _most_varied,
    _penalty_parts,
)
from capslit.experiments.records import load_record
from capslit.capsules.settings import Dropout, Lasso, Schedule

SHORT = {
    "architecture": "multiclass",
    "kernel": None,
    "alpha": 0.0,
    "sharpness": 1.0,
    "early_stopping": False,
    "n_jobs": 1,
    "max_iter": 40,
}


def table(seed=0, n=240, p=8):
    "Three classes that differ in the first three of p inputs."
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, p))
    X[np.arange(n), y] *= 3
    return X, y


def with_norms(seed):
    "A random multiclass problem of `test_em`, with a penalty on norms."
    model, start, data = test_em.problem(
        seed,
        architecture="multiclass",
        weighted=seed % 3 == 0,
        affine=seed % 2 == 0,
        alpha=[0, 0.3][seed % 2],
        mixed=seed % 4 == 0,
    )
    gram = second_moments(data, range(model.targets.shape[1]), model.affine).gram.sum(axis=0)
    return with_lasso(model, 10.0 ** (seed % 4 - 2), GROUPS[seed % 3], gram), start, data


def with_dropout(seed):
    "A random problem of any architecture under the ridge of dropout."
    model, start, data = test_em.problem(
        seed,
        architecture=["multiclass", "ovr", "ovo"][seed % 3],
        weighted=seed % 5 == 0,
        affine=seed % 2 == 0,
    )
    grams = second_moments(data, range(model.targets.shape[1]), model.affine).gram
    alpha = 0.1 + dropout_precision([0.01, 0.3, 0.9][seed % 3], model.targets, grams, model.affine)
    solver = least_squares(model.targets, grams, alpha, model.affine)
    return CapsuleRegression(model.targets, model.dims, solver, alpha, model.affine), start, data


def test_a_step_that_forgets_the_norms_is_noticed():
    fallen = 0
    for seed in range(12):
        model, parameters, data = with_norms(seed)
        for _ in range(20):
            parameters = model.m_step(parameters, model.e_step(parameters, data))
        statistics = model.e_step(parameters, data)
        plain = CapsuleRegression.m_step(model, parameters, statistics)
        fallen += (
            model.objective(plain, model.e_step(plain, data))[0]
            < model.objective(parameters, statistics)[0] - 1e-6
        )
    assert fallen > 0


def test_settled_zeros_are_exact_and_do_not_lower_the_objective():
    zeros = 0
    for seed in range(12):
        model, parameters, data = with_norms(seed)
        for _ in range(30):
            parameters = model.m_step(parameters, model.e_step(parameters, data))
        before = model.objective(parameters, model.e_step(parameters, data))[0]
        settled = zeros_settled(model, parameters, data, 1)
        after = model.objective(settled, model.e_step(settled, data))[0]
        assert after >= before - 1e-9 * (abs(before) + len(data[0])), seed
        norms = _group_norms(settled.weights[0], model.lasso_groups)
        zeros += int(np.sum(norms == 0))
        rows = np.arange(settled.weights.shape[2])[:, None] < model.dims[0][:, None, None]
        assert not settled.weights[0][~np.broadcast_to(rows, settled.weights[0].shape)].any()
    assert zeros > 5


@together("groups", GROUPS)
def test_the_sweep_ends_where_the_norms_say(groups):
    """Repeated sweeps find the one maximum of the bound: slopes of the groups that are left
    balance, those of the others are short.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    A, M, strength = X.T @ X, 5 * rng.normal(size=(3, 2, 5)), np.array([4.0, 4.0, 16.0, 4.0, 0.0])
    W = rng.normal(size=(3, 2, 5))
    for _ in range(300):
        W = _coordinate_sweep(_mixture_step(W, M, A, strength, groups), M, A, strength, groups)
    slopes, norms = _group_norms(M - W @ A, groups), _group_norms(W, groups)
    assert np.all(slopes <= strength + 1e-6) and np.allclose(
        (slopes * np.sign(norms))[norms > 0], (strength + 0 * norms)[norms > 0], atol=1e-6
    )
    assert np.any(norms == 0) and np.all(norms[:, 4] > 0)


def test_the_ridge_of_dropout_is_that_of_many_masks():
    rng = np.random.default_rng(1)
    X, y = table(1)
    masked, repeated, weight = masked_copies(X, y, 0.3, 400, rng)
    assert (
        masked.shape == (400 * len(X), 8)
        and np.array_equal(repeated[: len(y)], y)
        and weight.sum() == pytest.approx(len(y))
    )
    precision = dropout_precision(0.3, np.arange(3)[None], (X.T @ X)[None])[0]
    assert np.allclose(
        (masked * weight[:, None]).T @ masked,
        X.T @ X + np.diag(precision),
        atol=0.06 * np.trace(X.T @ X) / 8,
    )
    assert masked_copies(X.astype(np.float32), y, 0.5, 2, rng)[0].dtype == np.float32
    pairs = dropout_precision(
        0.5, np.array([[0, 1, -1]]), np.stack([k * np.eye(3) for k in (1.0, 2.0, 4.0)]), affine=True
    )
    assert pairs.tolist() == [[3.0, 3.0, 0.0]]


@together("architecture", ["multiclass", "ovr", "ovo"])
def test_dropout_is_indifferent_to_units(architecture):
    X, y = table(2)
    units = 10.0 ** np.arange(-3, 5)
    settings = SHORT | {
        "architecture": architecture,
        "penalty": Dropout(0.05),
        "tol": 0.0,
    }
    plan = partial(Schedule, patience=(99,), momentum=0.0)
    with pytest.warns(ConvergenceWarning):
        start = (
            CapsuleClassifier(2, **SHORT | {"architecture": architecture, "max_iter": 1})
            .fit(X, y)
            .coef_
        )
        first = CapsuleClassifier(2, schedule=plan(init=start), **settings).fit(X, y)
        other = CapsuleClassifier(2, schedule=plan(init=start / units), **settings)
        other.fit(X * units, y)
    assert np.allclose(first.predict_proba(X), other.predict_proba(X * units), atol=1e-6)
    assert np.all(np.diff(first.history_["objective"], axis=0) > -1e-9)


@together("groups", GROUPS)
def test_the_lasso_keeps_what_tells_the_classes_apart(groups):
    X, y = table(3, 600)
    made = [
        CapsuleClassifier(2, **SHORT | {"penalty": Lasso(strength, groups), "max_iter": 300}).fit(
            X, y
        )
        for strength in (1e-9, 0.01, 0.03)
    ]
    safe = Schedule(acceleration="safe-momentum")
    plain = CapsuleClassifier(2, **SHORT | {"schedule": safe, "max_iter": 300}).fit(X, y)
    counts = [np.count_nonzero(model.coef_) for model in made]
    assert counts[0] == plain.coef_.size and counts[0] >= counts[1] > counts[2] > 0
    assert np.allclose(made[0].predict_proba(X), plain.predict_proba(X), atol=0.02)
    assert made[2].coef_[:, :, :3].any() and not made[2].coef_[:, :, 3:].any()
    assert made[2].intercept_.all()  # the constant input is spared
    assert made[2].score(X, y) > 0.6


def test_lasso_with_other_inputs(tmp_path):
    X, y = table(4)
    settings = SHORT | {"penalty": Lasso(0.01), "alpha": 1e-3, "max_iter": 300}
    model = CapsuleClassifier(2, **settings).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = CapsuleClassifier.load(tmp_path / "model.npz")
    assert again.penalty.get_params() == {"strength": 0.01, "groups": "features"}
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    sparse = CapsuleClassifier(2, **settings).fit(sp.csr_array(X), y)
    assert np.allclose(sparse.predict_proba(sp.csr_array(X)), model.predict_proba(X), atol=1e-4)
    names = np.array(["a", "b", "c"])[y]
    frame = CapsuleClassifier({"a": 1, "b": 2, "c": 1}, **settings).fit(
        X.astype(np.float32), names, sample_weight=1 + y
    )
    assert (
        not frame.coef_[[0, 2], 1].any()
        and frame.coef_[1, 1].any()
        and frame.coef_.dtype == np.float32
    )
    with pytest.warns(UserWarning, match="strength 10 has made all weights zero"):
        assert not CapsuleClassifier(2, **settings | {"penalty": Lasso(10)}).fit(X, y).coef_.any()


def test_penalties_resume_to_the_same_bits(tmp_path):
    X, y = table(5, 90)
    patient = {"schedule": Schedule(patience=(99,)), "max_iter": 12}
    whole = CapsuleClassifier(2, **SHORT | patient, penalty=Lasso(0.005))
    with pytest.warns(ConvergenceWarning):
        whole.fit(X, y)
        clone(whole).set_params(max_iter=5).fit(X, y, checkpoint=tmp_path / "c")
        resumed = clone(whole).fit(X, y, checkpoint=tmp_path / "c")
        assert np.array_equal(resumed.coef_, whole.coef_)
        for other in (Lasso(0.006), Lasso(0.005, "weights"), Dropout(0.02)):
            with pytest.raises(ValueError, match="checkpoint"):
                clone(whole).set_params(penalty=other).fit(X, y, checkpoint=tmp_path / "c")


def test_what_does_not_go_together_is_refused():
    X, y = table(6, 60)
    for wrong in (
        {"architecture": "ovo"},
        {"architecture": "auto"},
        {"kernel": "rbf"},
        {"schedule": Schedule(parameter_expansion=True)},
    ):
        with pytest.raises(ValueError, match="lasso needs one capsule.*penalty=None"):
            CapsuleClassifier(2, **SHORT | {"penalty": Lasso(0.1)} | wrong).fit(X, y)
    with pytest.raises(
        ValueError, match="lasso draws small random weights to zero.*init='subspace'"
    ):
        drawn = {"penalty": Lasso(0.1), "schedule": Schedule(init="random")}
        CapsuleClassifier(2, **SHORT | drawn).fit(X, y)
    with pytest.raises(ValueError, match="dropout leaves out inputs.*kernel=None"):
        CapsuleClassifier(2, penalty=Dropout(0.1)).fit(X, y)
    for penalty in (Lasso(0.1), Dropout(0.1)):
        model = CapsuleClassifier(2, **SHORT, penalty=penalty)
        with pytest.raises(ValueError, match="penalty=.* is for fit.*set it to None"):
            model.partial_fit(X, y, classes=[0, 1, 2])
        with pytest.raises(ValueError, match="penalty=.*, which folds cannot share"):
            cross_validate(model, X, y)
    for name, values in {
        "rate": [Dropout(value) for value in (-0.1, 1.0, float("nan"))],
        "strength": [Lasso(value) for value in (-1, float("nan"), "much")],
        "groups": [Lasso(groups=value) for value in ("rows", None)],
        "penalty": ["lasso", 0.1],
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                CapsuleClassifier(2, **SHORT, penalty=value).fit(X, y)


def test_a_precision_for_each_column_fits_the_model():
    targets, dims = np.arange(2)[None], np.full((1, 2), 1)
    with pytest.raises(ValueError, match="alpha"):
        CapsuleRegression(targets, dims, alpha=np.ones((2, 3)))
    gram, W = np.array([np.diag([2.0, 3.0])]), np.ones((1, 2, 1, 2))
    model = CapsuleRegression(targets, dims, LeastSquares.from_gram(gram), np.array([[1.0, 5.0]]))
    batch = (np.ones((3, 2)), np.array([0, 1, 0]), None)
    parameters = test_em.CapsuleParameters(W)
    statistics = model.e_step(parameters, batch)
    assert model.objective(parameters, statistics) == statistics.log_likelihood - (1 + 5) * 2 / 2


def test_inputs_of_the_experiment():
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 251
    inputs = _means_of_four(images, 255)
    assert inputs.shape == (2, 196) and inputs[1, 15] == pytest.approx(
        images[1, 2:4, 2:4].mean() / 255
    )
    assert _means_of_four(images[:, :8, :8], 16).shape == (2, 64)
    assert _most_varied(np.array([[0.0, 1, 5], [0, 2, 1], [0, 3, 4]]), 2).tolist() == [
        False,
        True,
        True,
    ]
    data = type(
        "Data",
        (),
        {
            "images": np.arange(12.0)[:, None, None] * np.ones((1, 8, 8)),
            "labels": np.arange(12),
            "n_train": 6,
            "scale": 1.0,
        },
    )
    sets = _divided(data, 4)
    assert [labels.tolist() for _, labels in sets] == [[0, 1, 2, 3], [5], [6, 7, 8, 9, 10, 11]]


@together("profile", ["paper", "quick"])
def test_every_method_has_its_parts(profile):
    parts = _penalty_parts("mnist", profile)
    assert {part.parameters["method"] for part in parts} == set(STRENGTHS)
    assert any("alpha" in part.parameters for part in parts)
    assert len({part.name for part in parts}) == len(parts)


def test_the_experiment_counts_what_is_left(quick_record):
    record = load_record(quick_record("penalties"))
    (name,) = [part for part in record.parts if part.startswith("features-3")]
    metrics, used = record.metrics(name), record.array(name, "used")
    assert (
        metrics["inputs"] == used.sum(axis=1).tolist()
        and metrics["inputs"][1] < metrics["inputs"][0] <= 64
    )
    wrong = record.array(name, "predicted") != record.array(name, "labels")
    assert np.allclose(wrong.mean(axis=1), metrics["test_error"])
