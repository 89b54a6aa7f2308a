"""Dropout, ℓ₁ and reconstruction penalties: exact zeros, indifference to units, resumed runs, and
what is refused. The chapters compare the M-steps with their formulas.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import test_em
from conftest import together
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from capslit import CapsuleClassifier
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.engine import CapsuleRegression, LeastSquares, second_moments
from capslit.capsules.penalties import (
    GROUPS,
    _coordinate_sweep,
    _group_norms,
    _mixture_step,
    dropout_precision,
    masked_copies,
    with_lasso,
    zeros_settled,
)
from capslit.capsules.problems import least_squares
from capslit.capsules.reconstruction import _reconstruction_errors, decoders, with_penalty
from capslit.capsules.settings import Dropout, Lasso, Reconstruction, Schedule
from capslit.experiments.poses import _chosen_strength, _told, _traverse, slant_and_ink
from capslit.experiments.records import Record

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


def multiclass(seed):
    "A random multiclass problem, and its matrices Σ x xᵀ."
    model, start, data = test_em.problem(
        seed,
        architecture="multiclass",
        weighted=seed % 3 == 0,
        affine=seed % 2 == 0,
        alpha=[0, 0.3][seed % 2],
        mixed=seed % 4 == 0,
    )
    grams = second_moments(data, range(model.targets.shape[1]), model.affine).gram
    return model, start, data, grams


def with_norms(seed):
    "A random problem with a penalty on norms."
    model, start, data, grams = multiclass(seed)
    penalised = with_lasso(model, 10.0 ** (seed % 4 - 2), GROUPS[seed % 3], grams.sum(axis=0))
    return penalised, start, data


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


def test_the_objective_with_decoders_never_falls():
    for seed in range(40):
        model, parameters, data, grams = multiclass(seed)
        model, path = with_penalty(model, 10.0 ** (seed % 5 - 2), grams), []
        for _ in range(12):
            statistics = model.e_step(parameters, data)
            path.append(float(model.objective(parameters, statistics)[0]))
            parameters = model.m_step(parameters, statistics)
        assert np.all(np.diff(path) >= -1e-9 * (abs(path[0]) + len(data[0]))), seed
        assert path[-1] > path[0], seed


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
        weights = settled.weights[0]
        zeros += int(np.sum(_group_norms(weights, model.lasso_groups) == 0))
        rows = np.arange(weights.shape[1])[:, None] < model.dims[0][:, None, None]
        assert not weights[~np.broadcast_to(rows, weights.shape)].any()
    assert zeros > 5


@together("groups", GROUPS)
def test_the_sweep_ends_at_the_one_maximum_of_the_bound(groups):
    "There the slopes of nonzero groups balance the penalty, and those of the others are smaller."
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    A = X.T @ X
    M, W = 5 * rng.normal(size=(3, 2, 5)), rng.normal(size=(3, 2, 5))
    strength = np.array([4.0, 4.0, 16.0, 4.0, 0.0])
    for _ in range(300):
        W = _coordinate_sweep(_mixture_step(W, M, A, strength, groups), M, A, strength, groups)
    slopes, norms = _group_norms(M - W @ A, groups), _group_norms(W, groups)
    limits = strength + 0 * norms
    assert np.all(slopes <= strength + 1e-6)
    assert np.allclose(slopes[norms > 0], limits[norms > 0], atol=1e-6)
    assert np.any(norms == 0) and np.all(norms[:, 4] > 0)


def test_the_ridge_of_dropout_is_that_of_the_classes_of_a_problem():
    X, y = table(1)
    masked, labels, weight = masked_copies(X, y, 0.3, 4, np.random.default_rng(1))
    assert masked.shape == (4 * len(X), 8) and np.array_equal(labels[: len(y)], y)
    assert weight.sum() == pytest.approx(len(y))
    grams = np.stack([k * np.eye(3) for k in (1.0, 2.0, 4.0)])
    pairs = dropout_precision(0.5, np.array([[0, 1, -1]]), grams, affine=True)
    assert pairs.tolist() == [[3.0, 3.0, 0.0]]


@together("architecture", ["ovr", "ovo"])
def test_dropout_is_indifferent_to_units(architecture):
    X, y = table(2)
    units = 10.0 ** np.arange(-3, 5)
    settings = SHORT | {"architecture": architecture}
    with pytest.warns(ConvergenceWarning):
        start = CapsuleClassifier(2, **settings | {"max_iter": 1}).fit(X, y).coef_
        settings |= {"penalty": Dropout(0.05), "tol": 0.0}
        plan = Schedule(patience=(99,), momentum=0.0)
        first, other = (
            CapsuleClassifier(
                2, schedule=clone(plan).set_params(init=start / unit), **settings
            ).fit(X * unit, y)
            for unit in (1.0, units)
        )
    assert np.allclose(first.predict_proba(X), other.predict_proba(X * units), atol=1e-6)
    assert np.all(np.diff(first.history_["objective"], axis=0) > -1e-9)


@together("groups", GROUPS)
def test_the_lasso_keeps_what_distinguishes_the_classes(groups):
    X, y = table(3, 600)
    model = CapsuleClassifier(2, **SHORT | {"max_iter": 300})
    weak, middle, strong = (
        clone(model).set_params(penalty=Lasso(strength, groups)).fit(X, y)
        for strength in (1e-9, 0.01, 0.03)
    )
    plain = model.set_params(schedule=Schedule(acceleration="safe-momentum")).fit(X, y)
    counts = [np.count_nonzero(model.coef_) for model in (weak, middle, strong)]
    assert plain.coef_.size == counts[0] >= counts[1] > counts[2] > 0
    assert np.allclose(weak.predict_proba(X), plain.predict_proba(X), atol=0.02)
    assert strong.coef_[:, :, :3].any() and not strong.coef_[:, :, 3:].any()
    assert strong.intercept_.all()  # the constant input is not penalised
    assert strong.score(X, y) > 0.6


@together("penalty", [Lasso(0.01), Reconstruction(0.1)])
def test_penalties_are_saved_and_serve_other_inputs(penalty, tmp_path):
    X, y = table(4)
    settings = SHORT | {"penalty": penalty, "alpha": 1e-3, "max_iter": 300}
    model = CapsuleClassifier(2, **settings).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = CapsuleClassifier.load(tmp_path / "model.npz")
    assert again.penalty.get_params() == penalty.get_params()
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    if isinstance(penalty, Lasso):
        sparse = CapsuleClassifier(2, **settings).fit(sp.csr_array(X), y)
        assert np.allclose(sparse.predict_proba(sp.csr_array(X)), model.predict_proba(X), atol=1e-4)
    names = np.array(["a", "b", "c"])[y]
    named = CapsuleClassifier({"a": 1, "b": 2, "c": 1}, **settings)
    named.fit(X.astype(np.float32), names, sample_weight=1 + y)
    assert not named.coef_[[0, 2], 1].any() and named.coef_[1, 1].any()
    assert named.coef_.dtype == np.float32


@together("penalty, another", [(Lasso(0.005), Dropout(0.02)), (Reconstruction(0.5), Lasso(0.1))])
def test_penalties_resume_to_the_same_bits(penalty, another, tmp_path):
    X, y = table(5, 90)
    settings = SHORT | {"schedule": Schedule(patience=(99,)), "max_iter": 12}
    whole = CapsuleClassifier(2, **settings, penalty=penalty)
    stronger = clone(penalty).set_params(strength=2 * penalty.strength)
    with pytest.warns(ConvergenceWarning):
        whole.fit(X, y)
        clone(whole).set_params(max_iter=5).fit(X, y, checkpoint=tmp_path / "c")
        resumed = clone(whole).fit(X, y, checkpoint=tmp_path / "c")
        assert np.array_equal(resumed.coef_, whole.coef_)
        for other in (stronger, another):
            with pytest.raises(ValueError, match="checkpoint"):
                clone(whole).set_params(penalty=other).fit(X, y, checkpoint=tmp_path / "c")


def test_what_does_not_go_together_is_refused():
    X, y = table(6, 60)

    def fit(penalty, **settings):
        return CapsuleClassifier(2, **SHORT | {"penalty": penalty} | settings).fit(X, y)

    with pytest.warns(UserWarning, match="strength 10 has made all weights zero"):
        assert not fit(Lasso(10)).coef_.any()
    one, cases = (
        "needs one capsule.*penalty=None",
        [
            (Lasso(0.1), {"schedule": Schedule(init="random")}, "small random.*init='subspace'"),
            (Dropout(0.1), {"kernel": "rbf"}, "dropout leaves out inputs.*kernel=None"),
            *((Dropout(value), {}, "rate") for value in (-0.1, 1.0, np.nan)),
            *((Lasso(groups=value), {}, "groups") for value in ("rows", None)),
            *((value, {}, "penalty") for value in ("lasso", 0.1)),
        ],
    )
    for kind in (Lasso, Reconstruction):
        cases += [(kind(value), {}, "strength") for value in (-1, np.nan, "much")]
        cases += [
            (kind(0.1), wrong, f"{kind.__name__.lower()} {one}")
            for wrong in (
                {"architecture": "ovo"},
                {"architecture": "auto"},
                {"kernel": "rbf"},
                {"schedule": Schedule(parameter_expansion=True)},
            )
        ]
    for penalty, settings, said in cases:
        with pytest.raises(ValueError, match=said):
            fit(penalty, **settings)
    for penalty in (Lasso(0.1), Dropout(0.1), Reconstruction(0.1)):
        model = CapsuleClassifier(2, **SHORT, penalty=penalty)
        with pytest.raises(ValueError, match="penalty=.* is for fit.*set it to None"):
            model.partial_fit(X, y, classes=[0, 1, 2])
        with pytest.raises(ValueError, match="penalty=.*, which folds cannot share"):
            cross_validate(model, X, y)


def test_a_precision_for_each_column_fits_the_model():
    targets, dims = np.arange(2)[None], np.full((1, 2), 1)
    with pytest.raises(ValueError, match="alpha"):
        CapsuleRegression(targets, dims, alpha=np.ones((2, 3)))
    solver = LeastSquares.from_gram(np.array([np.diag([2.0, 3.0])]))
    model = CapsuleRegression(targets, dims, solver, np.array([[1.0, 5.0]]))
    parameters = test_em.CapsuleParameters(np.ones((1, 2, 1, 2)))
    statistics = model.e_step(parameters, (np.ones((3, 2)), np.array([0, 1, 0]), None))
    assert model.objective(parameters, statistics) == statistics.log_likelihood - (1 + 5) * 2 / 2


def test_decoders_with_a_constant_input_are_regressions_of_the_others():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(50, 4)), np.ones(50)]
    W, gram = rng.normal(size=(1, 2, 5)), (x.T @ x)[None]
    (B,) = decoders(W, gram, affine=True)
    (error,) = _reconstruction_errors(W, gram, affine=True)
    expected, left, *_ = np.linalg.lstsq(x @ W[0].T, x[:, :4])
    assert np.allclose(B[:4], expected.T) and not B[4].any() and np.isclose(error, left.sum())
    padded = np.zeros((1, 3, 5))  # rows beyond a capsule's dimension
    padded[:, :2] = W
    assert np.allclose(decoders(padded, gram, affine=True)[0, :, :2], B)
    assert np.isclose(_reconstruction_errors(padded, gram, affine=True)[0], error)


@together("fit_intercept", [False, True])
def test_poses_reconstruct_more_with_a_penalty(fit_intercept):
    rng, y = np.random.default_rng(1), np.arange(300) % 3
    X = rng.normal(size=(300, 8)) * np.linspace(3, 0.3, 8) + rng.normal(size=(3, 8))[y]
    plan = {"thresholds": (0.5, 0.0), "patience": (4, 3), "early_stopping": False}

    def left(strength):
        "What a linear decoder of the poses of the true class leaves."
        penalty = {"penalty": Reconstruction(strength), "fit_intercept": fit_intercept}
        model = CapsuleClassifier.paper(2, random_state=0, **plan, **penalty).fit(X, y)
        poses = model.transform(X).reshape(300, 3, 2)[np.arange(300), y]
        return sum(np.linalg.lstsq(poses[y == c], X[y == c])[1].sum() for c in range(3))

    assert left(1.0) < 0.9 * left(0.0) and np.isclose(left(1e-9), left(0.0), rtol=1e-3)


def test_slants_are_predicted_on_unseen_images_of_each_class():
    assert np.isfinite(slant_and_ink(np.zeros((1, 5, 5)))).all()
    rng, y = np.random.default_rng(5), np.arange(400) % 2
    x, q = rng.normal(size=(400, 2)), rng.normal(size=(400, 1))
    q[y == 1] = 3 * x[y == 1, :1] - 7
    shares, errors = _told((x[:200], q[:200], y[:200]), (x[200:], q[200:], y[200:]))
    assert shares[1] == pytest.approx(1) and errors[1] < 1e-12 and shares[0] < 0.1
    q[y == 0] = 2
    assert np.isnan(_told((x, q, y), (x, q, y))).tolist() == [[[True], [False]]] * 2


def test_the_standard_error_of_a_share_is_its_spread_over_samples_of_unseen_images():
    rng, n, repeats = np.random.default_rng(8), 300, 400

    def draw(n):
        x, noise = rng.normal(size=(n, 2)), rng.normal(size=(n, 1))
        return x, x[:, :1] + noise, np.zeros(n)

    learned = draw(20_000)
    shares, errors = np.array([_told(learned, draw(n)) for _ in range(repeats)]).reshape(-1, 2).T
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert errors.mean() == pytest.approx(shares.std(), rel=0.15)


def test_traversals_are_principal_axes_of_the_drawings():
    rng = np.random.default_rng(6)
    decoder, poses = rng.normal(size=(7, 3)), rng.normal(size=(50, 3)) * [1, 5, 2] + 1
    path, drawn = _traverse(decoder, poses, 2), poses @ decoder.T
    assert np.allclose(path[:, 2], drawn.mean(axis=0))
    spread = np.sort(np.linalg.eigvalsh(np.cov(drawn.T)))[:-3:-1]
    assert np.allclose(((path[:, 4] - path[:, 0]) ** 2).sum(axis=1), 16 * spread)
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]  # rotating the poses changes nothing
    assert np.allclose(_traverse(decoder @ turned.T, poses @ turned.T, 2), path)


@together("change, chosen", [({}, 0.1), ({"10": (0.053, 0.9)}, 10), ({"0": (0.01, 0.5)}, 0.1)])
def test_the_strength_is_chosen_by_validation_images(change, chosen):
    rates = {"0": (0.05, 0.5), "0.1": (0.053, 0.7), "1": (0.052, 0.6), "10": (0.06, 0.9)}
    parts = {
        f"poses-4-{strength}": {"metrics": {"validation_error": e, "slant_validation": s}}
        for strength, (e, s) in (rates | change).items()
    }
    record = Record("poses", "digits", "paper", 0, {}, {}, {}, "", parts, {})
    assert _chosen_strength(record, 4, (0.1, 1, 10)) == chosen
