"""The reconstruction penalty: decoders, an M-step that solves its equations, an objective that
never falls, and the classifier's option.
"""

import numpy as np
import pytest
import test_em
from conftest import together
from sklearn.exceptions import ConvergenceWarning

from sklearn.base import clone
from capslit import CapsuleClassifier
from capslit.capsules.cross_validation import cross_validate
from capslit.capsules.engine import CapsuleRegression, second_moments
from capslit.capsules.reconstruction import decoders, _reconstruction_errors, with_penalty
from capslit.experiments.poses import _chosen_strength, slant_and_ink, _told, _traverse
from capslit.experiments.records import Record
from capslit.capsules.settings import Reconstruction

SHORT = {
    "architecture": "multiclass",
    "thresholds": (0.5, 0.0),
    "patience": (4, 3),
    "n_jobs": 1,
    "early_stopping": False,
}


def problem(seed, strength):
    "A random multiclass problem of `test_em`, with a penalty."
    model, start, (x, y, w) = test_em.problem(
        seed,
        architecture="multiclass",
        weighted=seed % 3 == 0,
        affine=seed % 2 == 0,
        alpha=[0, 0.3][seed % 2],
        mixed=seed % 4 == 0,
    )
    grams = second_moments((x, y, w), range(model.targets.shape[1]), model.affine).gram
    return with_penalty(model, strength, grams), start, (x, y, w)


def test_the_objective_never_falls():
    for seed in range(40):
        model, parameters, data = problem(seed, 10.0 ** (seed % 5 - 2))
        path = []
        for _ in range(12):
            statistics = model.e_step(parameters, data)
            now = float(model.objective(parameters, statistics)[0])
            assert not path or now >= path[-1] - 1e-9 * (abs(now) + len(data[0])), seed
            path.append(now)
            parameters = model.m_step(parameters, statistics)
        assert path[-1] > path[0], seed


def test_a_step_that_forgets_the_decoder_is_noticed():
    """Without what the decoder adds to the equations the objective falls on some problem: the test
    above can fail.
    """
    fallen = 0
    for seed in range(10):
        model, parameters, data = problem(seed, 10.0)
        statistics = model.e_step(parameters, data)
        plain = CapsuleRegression.m_step(model, parameters, statistics)
        fallen += (
            model.objective(plain, model.e_step(plain, data))[0]
            < model.objective(parameters, statistics)[0] - 1e-6
        )
    assert fallen > 0


def test_strength_zero_is_the_plain_step():
    for seed in range(10):
        model, parameters, data = problem(seed, 0.0)
        statistics = model.e_step(parameters, data)
        assert np.allclose(
            model.m_step(parameters, statistics).weights,
            CapsuleRegression.m_step(model, parameters, statistics).weights,
            rtol=1e-6,
            atol=1e-9,
        )
        assert np.array_equal(
            model.objective(parameters, statistics),
            CapsuleRegression.objective(model, parameters, statistics),
        )


def test_decoders_with_a_constant_input_are_regressions_of_the_others():
    rng = np.random.default_rng(0)
    x, W = np.c_[rng.normal(size=(50, 4)), np.ones(50)], rng.normal(size=(1, 2, 5))
    gram = (x.T @ x)[None]
    (B,), (error,) = decoders(W, gram, affine=True), _reconstruction_errors(W, gram, affine=True)
    expected, left, *_ = np.linalg.lstsq(x @ W[0].T, x[:, :4])
    assert np.allclose(B[:4], expected.T) and not B[4].any() and np.isclose(error, left.sum())
    flat = np.zeros((1, 3, 5))  # rows beyond a capsule's dimension
    flat[:, :2] = W
    assert np.allclose(decoders(flat, gram, affine=True)[0, :, :2], B) and np.isclose(
        _reconstruction_errors(flat, gram, affine=True)[0], error
    )


@together("fit_intercept", [False, True])
def test_the_classifier_draws_more_with_a_penalty(fit_intercept, tmp_path):
    rng = np.random.default_rng(1)
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 8)) * np.linspace(3, 0.3, 8) + rng.normal(size=(3, 8))[y]
    settings = SHORT | {"fit_intercept": fit_intercept, "random_state": 0}
    made = {
        rho: CapsuleClassifier.paper(2, penalty=Reconstruction(rho), **settings).fit(X, y)
        for rho in (0.0, 1e-9, 1.0)
    }
    of = lambda model: model.transform(X).reshape(300, 3, 2)[np.arange(300), y]
    left = {
        rho: sum(np.linalg.lstsq(of(m)[y == c], X[y == c])[1].sum() for c in range(3))
        for rho, m in made.items()
    }
    assert left[1.0] < 0.9 * left[0.0] and np.isclose(left[1e-9], left[0.0], rtol=1e-3)
    made[1.0].save(tmp_path / "model.npz")
    again = CapsuleClassifier.load(tmp_path / "model.npz")
    assert again.penalty.strength == 1.0 and np.array_equal(
        again.predict_proba(X), made[1.0].predict_proba(X)
    )
    names = np.array(["a", "b", "c"])[y]
    frame = CapsuleClassifier.paper(
        {"a": 1, "b": 2, "c": 1}, penalty=Reconstruction(0.1), **settings
    ).fit(X.astype(np.float32), names, sample_weight=1 + y)
    assert not frame.coef_[[0, 2], 1].any() and frame.coef_[1, 1].any()


def test_a_penalty_resumes_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(90, 5)), np.arange(90) % 3
    whole = CapsuleClassifier.paper(
        2, penalty=Reconstruction(0.5), max_iter=12, random_state=0, **SHORT
    )
    with pytest.warns(ConvergenceWarning):
        whole.set_params(schedule__patience=(9, 9)).fit(X, y)
        clone(whole).set_params(max_iter=5).fit(X, y, checkpoint=tmp_path / "c")
        resumed = clone(whole).fit(X, y, checkpoint=tmp_path / "c")
    assert np.array_equal(resumed.coef_, whole.coef_)
    with pytest.raises(ValueError, match="checkpoint"):
        clone(whole).set_params(penalty=Reconstruction(0.1)).fit(X, y, checkpoint=tmp_path / "c")


def test_where_there_is_no_pose_to_reconstruct_from():
    X, y = np.random.default_rng(3).normal(size=(60, 4)), np.arange(60) % 3
    for wrong in (
        {"architecture": "ovo"},
        {"architecture": "ovr"},
        {"architecture": "auto"},
        {"kernel": "rbf"},
        {"parameter_expansion": True},
    ):
        with pytest.raises(ValueError, match="reconstruction needs one capsule"):
            CapsuleClassifier.paper(2, penalty=Reconstruction(0.1), **SHORT | wrong).fit(X, y)
    for value in (-1, float("nan"), "much"):
        with pytest.raises(ValueError, match="strength"):
            CapsuleClassifier.paper(2, penalty=Reconstruction(value), **SHORT).fit(X, y)
    with pytest.raises(ValueError, match="penalty=Reconstruction.* is for fit"):
        CapsuleClassifier.paper(2, penalty=Reconstruction(0.1), **SHORT).partial_fit(
            X, y, classes=[0, 1, 2]
        )
    with pytest.raises(ValueError, match="penalty=Reconstruction.* folds cannot share"):
        cross_validate(CapsuleClassifier.paper(2, penalty=Reconstruction(0.1), **SHORT), X, y)


def test_slant_of_sheared_images():
    rng = np.random.default_rng(4)
    image = np.zeros((41, 41))
    image[13:28, 16:25] = rng.uniform(size=(15, 9))
    ((before, ink),) = slant_and_ink(image[None])
    for columns in (-1, 1):  # shifted by whole columns, row by row
        sheared = np.stack([np.roll(row, columns * (v - 20)) for v, row in enumerate(image)])
        ((after, same),) = slant_and_ink(sheared[None])
        assert after - before == pytest.approx(columns, abs=1e-9) and same == pytest.approx(ink)
    assert np.isfinite(slant_and_ink(np.zeros((1, 5, 5)))).all()


def test_what_is_told_is_judged_by_unseen_images_of_each_class():
    rng = np.random.default_rng(5)
    y = np.arange(400) % 2
    x, q = rng.normal(size=(400, 2)), rng.normal(size=(400, 1))
    q[y == 1] = 3 * x[y == 1, :1] - 7
    exact, noise = _told((x[:200], q[:200], y[:200]), (x[200:], q[200:], y[200:]))[[1, 0], 0]
    assert exact == pytest.approx(1) and noise < 0.1


def test_traversals_are_principal_axes_of_the_drawings():
    rng = np.random.default_rng(6)
    decoder, poses = rng.normal(size=(7, 3)), rng.normal(size=(50, 3)) * [1, 5, 2] + 1
    path, drawn = _traverse(decoder, poses, 2), poses @ decoder.T
    assert np.allclose(path[:, 2], drawn.mean(axis=0))
    spread = np.sort(np.linalg.eigvalsh(np.cov(drawn.T)))[:-3:-1]
    assert np.allclose(((path[:, 4] - path[:, 0]) ** 2).sum(axis=1), 16 * spread)
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]  # a pose may be turned without any change
    assert np.allclose(_traverse(decoder @ turned.T, poses @ turned.T, 2), path)


def test_the_strength_is_chosen_by_validation_images():
    def record(**found):
        parts = {
            f"poses-4-{rho}": {"metrics": {"validation_error": e, "slant_validation": s}}
            for rho, (e, s) in found.items()
        }
        return Record("poses", "digits", "paper", 0, {}, {}, {}, "", parts, {})

    of = {"0": (0.05, 0.5), "0.1": (0.053, 0.7), "1": (0.052, 0.6), "10": (0.06, 0.9)}
    assert _chosen_strength(record(**of), 4, (0.1, 1, 10)) == 0.1
    assert _chosen_strength(record(**of | {"10": (0.053, 0.9)}), 4, (0.1, 1, 10)) == 10
    assert _chosen_strength(record(**of | {"0": (0.01, 0.5)}), 4, (0.1, 1, 10)) == 0.1
