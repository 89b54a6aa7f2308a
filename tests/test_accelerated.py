"""Accelerations on the engine, the expanded model, and the ways to learn batch by batch."""

import functools

import numpy as np
import pytest
from conftest import together
from sklearn.exceptions import ConvergenceWarning
from test_em import PLAIN, problem

from capslit import CapsuleClassifier, em
from capslit.em.acceleration import Anderson, SafeMomentum, Squarem
from capslit.capsules.engine import CapsuleParameters
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.capsules.settings import Incremental, PassiveAggressive, Stepwise

METHODS = [Squarem(), Squarem(1.5), Anderson(), Anderson(1), SafeMomentum(), SafeMomentum(0.99)]
NAMES = [repr(method) for method in METHODS]
SCHEDULE = [em.Round(6, {"threshold": 0.5}), em.Round(3, {"threshold": 0.0})]


def largest_fall(history):
    "By how much the objective falls at most between accepted points, as a share of its size."
    worst = 0.0
    for path, accepted in zip(history["objective"].T, history["accepted"].T):
        steps = np.diff(path[accepted == 1])
        worst = max(worst, -np.min(steps, initial=0) / np.abs(path[0]))
    return worst


@together("method", METHODS, ids=NAMES)
@together("seed", range(4))
def test_accepted_points_never_lower_the_objective(method, seed):
    options = dict(
        architecture=["multiclass", "ovr", "ovo"][seed % 3],
        weighted=seed % 5 == 0,
        affine=seed % 4 == 0,
        alpha=[0, 0, 0.3, 10][seed % 4],
        mixed=seed % 7 == 0,
    )
    model, start, data = problem(seed, **options)
    run = em.fit(model, start, data, rounds=PLAIN, max_iter=40, n_threads=1, acceleration=method)
    assert largest_fall(run.history) < 1e-10
    assert np.all(-run.score >= -np.inf) and np.all(
        run.history["objective"].max(axis=0) > run.history["objective"][0]
    )


@functools.cache
def reached(seed, method):
    "The objective per example after at most 60 iterations."
    model, start, data = problem(seed, n=200)
    return (
        em.fit(model, start, data, rounds=PLAIN, max_iter=60, n_threads=1, acceleration=method)
        .history["objective"]
        .max()
        / 200
    )


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_no_acceleration_is_worse_than_em(method):
    """Over many problems the accelerated runs end higher than EM on the whole; another local
    maximum may be a little lower.
    """
    gains = [reached(seed, method) - reached(seed, None) for seed in range(20)]
    assert np.mean(gains) > 0.02 and np.min(gains) > -0.1


def test_the_first_leap_is_discarded_when_it_falls():
    """A model whose objective punishes every step beyond those of EM: SQUAREM must come back to the
    path of EM.
    """

    class Punished:
        def __init__(self, model, path):
            self.model, self.path = model, path

        def __getattr__(self, name):
            return getattr(self.model, name)

        def objective(self, parameters, statistics):
            known = any(
                np.allclose(parameters.weights, weights, rtol=1e-9) for weights in self.path
            )
            return self.model.objective(parameters, statistics) if known else np.array([-np.inf])

    model, start, data = problem(7, n=100, m=3, d=2, p=4)
    path = [start.weights]
    for _ in range(30):
        here = CapsuleParameters(path[-1])
        path.append(model.m_step(here, model.e_step(here, data)).weights)
    for method in (Squarem(), Anderson(), SafeMomentum()):
        run = em.fit(
            Punished(model, path),
            start,
            data,
            rounds=PLAIN,
            max_iter=12,
            n_threads=1,
            acceleration=method,
        )
        accepted = run.history["accepted"][:, 0] == 1
        assert 0 < np.sum(~accepted) <= 6
        plain = em.fit(model, start, data, rounds=PLAIN, max_iter=12, n_threads=1).history[
            "objective"
        ][:, 0]
        assert np.allclose(
            run.history["objective"][accepted, 0], plain[: np.sum(accepted)], rtol=1e-9
        )


@together("method", METHODS, ids=NAMES)
def test_stacked_problems_equal_problems_alone(method):
    models = [problem(seed, n=200, m=3, d=2, p=4)[:2] for seed in (1, 2, 3)]
    model, _, data = problem(1, n=200, m=3, d=2, p=4)
    stack = type(model)(np.tile(model.targets, (3, 1)), np.tile(model.dims, (3, 1)), model.solver)
    starts = np.concatenate([start.weights for _, start in models])
    schedule = dict(
        rounds=SCHEDULE, monitor="error", max_iter=200, acceleration=method, n_threads=1
    )
    together = em.fit(stack, CapsuleParameters(starts), data, **schedule)
    for q in range(3):
        single = em.fit(model, CapsuleParameters(starts[q : q + 1]), data, **schedule)
        length = np.count_nonzero(np.isfinite(together.history["threshold"][:, q]))
        assert length == single.n_iter and together.score[q] == single.score[0]
        assert np.array_equal(
            together.history["accepted"][:length, q], single.history["accepted"][:, 0]
        )


@together("method", METHODS, ids=NAMES)
@together("architecture", ["multiclass", "ovo"])
def test_a_killed_run_resumes_to_the_same_bits(method, architecture, tmp_path):
    model, start, data = problem(9, n=400, m=4, d=2, p=5, architecture=architecture)
    schedule = dict(rounds=SCHEDULE, monitor="error", acceleration=method)
    whole = em.fit(model, start, data, max_iter=60, **schedule)
    path = tmp_path / "run.npz"
    for stop in (1, 2, 3, 5, 11, 12, 60):
        resumed = em.fit(
            model, start, data, max_iter=stop, checkpoint=path, checkpoint_every=0, **schedule
        )
    assert resumed.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert all(
        np.array_equal(resumed.history[name], whole.history[name], equal_nan=True)
        for name in whole.history
    )
    with pytest.raises(ValueError, match="other settings"):
        em.fit(model, start, data, rounds=SCHEDULE, monitor="error", checkpoint=path)


def test_a_round_begins_at_rest():
    """After a round the acceleration starts anew from the best parameters: its first step is the EM
    step.
    """
    model, start, data = problem(8, n=300, m=4, d=2, p=5)
    for method in METHODS:
        run = em.fit(
            model,
            start,
            data,
            rounds=SCHEDULE,
            monitor="error",
            max_iter=500,
            acceleration=method,
            n_threads=1,
        )
        errors, threshold = run.history["training_error"][:, 0], run.history["threshold"][:, 0]
        first = np.count_nonzero(threshold == 0.5)
        assert (
            run.converged.all()
            and errors[first] == errors[:first].min()
            and run.history["accepted"][first, 0] == 1
        )


def test_an_array_library_other_than_numpy():
    import array_api_strict as xp

    model, start, (X, y, _) = problem(11, n=300, m=3, d=2, p=4)
    solver = type(model.solver)(
        xp.asarray(model.solver.root), model.solver.which, model.solver.rank
    )
    there = type(model)(model.targets, model.dims, solver)
    for method in (Squarem(), Anderson(3), SafeMomentum()):
        ours = em.fit(model, start, (X, y, None), rounds=PLAIN, max_iter=15, acceleration=method)
        run = em.fit(
            there,
            CapsuleParameters(xp.asarray(start.weights)),
            (xp.asarray(X), xp.asarray(y), None),
            rounds=PLAIN,
            max_iter=15,
            acceleration=method,
        )
        assert np.allclose(run.history["objective"], ours.history["objective"], rtol=1e-6)


def test_wrong_settings_are_named():
    model, start, data = problem(1)
    with pytest.raises(ValueError, match="momentum"):
        em.fit(model, start, data, rounds=PLAIN, momentum=0.5, acceleration=Squarem())
    with pytest.raises(TypeError, match="acceleration"):
        em.fit(model, start, data, rounds=PLAIN, acceleration="squarem")
    for wrong, name in (
        (lambda: Squarem(1), "growth"),
        (lambda: Anderson(0), "order"),
        (lambda: Anderson(2.5), "order"),
        (lambda: SafeMomentum(1), "rate"),
    ):
        with pytest.raises(ValueError, match=name):
            wrong()


# ── the expanded model and the classifier
# ────────────────────────────────────────────────────────────────────────────────────


def test_the_expanded_step_is_the_plain_one_times_one_number():
    model, start, data = problem(3, m=4, d=3, p=5, n=200, architecture="ovo", weighted=True)
    expanded = ExpandedCapsuleRegression(model.targets, model.dims, model.solver)
    plain = model.m_step(start, model.e_step(start, data)).weights
    ratio = expanded.m_step(start, expanded.e_step(start, data)).weights / plain
    assert np.allclose(ratio, ratio[:, :1, :1, :1], rtol=1e-10) and np.all(ratio != 1)


def blobs(n=120, p=5, m=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((m, p))[y], y


@together("acceleration", [None, "squarem", "anderson", "safe-momentum"])
@together("expansion", [False, True])
@together("architecture", ["multiclass", "ovr", "ovo"])
def test_the_classifier_is_hurried_by_all_of_them(acceleration, expansion, architecture, tmp_path):
    X, y = blobs()
    settings = dict(
        capsule_dim=2,
        architecture=architecture,
        acceleration=acceleration,
        parameter_expansion=expansion,
        thresholds=(0.5, 0),
        patience=(6, 4),
        n_jobs=1,
    )
    model = CapsuleClassifier.paper(**settings).fit(X, y)
    assert model.score(X, y) > 0.55 and ("accepted" in model.history_) == (acceleration is not None)
    model.save(tmp_path / "model.npz")
    loaded = CapsuleClassifier.load(tmp_path / "model.npz")
    assert repr(loaded) == repr(model) and np.array_equal(
        loaded.predict_proba(X), model.predict_proba(X)
    )


def test_a_checkpoint_of_the_plain_model_is_refused_by_the_expanded_one(tmp_path):
    X, y = blobs()
    settings = dict(capsule_dim=2, thresholds=(0,), patience=(4,), n_jobs=1)
    CapsuleClassifier.paper(**settings).fit(X, y, checkpoint=tmp_path / "run.npz")
    for other in ({"parameter_expansion": True}, {"acceleration": "squarem"}):
        with pytest.raises(ValueError, match="other settings"):
            CapsuleClassifier.paper(**settings, **other).fit(X, y, checkpoint=tmp_path / "run.npz")


# ── batch by batch
# ─────────────────────────────────────────────────────────────────────────────────────────────────

ONLINE = {"capsule_dim": 2, "n_jobs": 1, "fit_intercept": False}


def objective(model, X, y):
    return np.sum(model.predict_log_proba(X)[np.arange(len(y)), y])


def passes(model, X, y, batches, count):
    for _ in range(count):
        for name, rows in enumerate(batches):
            model.partial_fit(X[rows], y[rows], classes=np.arange(3), batch=name)
    return model


def test_incremental_em_with_one_batch_is_em():
    X, y = blobs()
    online = passes(
        CapsuleClassifier.paper(online=Incremental(), **ONLINE), X, y, [np.arange(120)], 3
    )
    with pytest.warns(ConvergenceWarning):
        whole = CapsuleClassifier.paper(
            thresholds=(0,), patience=(9,), momentum=0, monitor="likelihood", max_iter=4, **ONLINE
        ).fit(X, y)
    np.testing.assert_allclose(online.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


def test_incremental_em_keeps_the_sum_of_what_the_batches_left():
    X, y = blobs()
    batches = np.array_split(np.arange(120), 4)
    model = passes(CapsuleClassifier.paper(online=Incremental(), **ONLINE), X, y, batches, 5)
    moments, gram, weight = model._online.kept
    assert weight.tolist() == [120]
    np.testing.assert_allclose(
        moments, sum(left for _, _, left in model._online.batches), rtol=1e-10
    )
    np.testing.assert_allclose(gram[0], X.T @ X, rtol=1e-10)
    np.testing.assert_allclose(model.coef_, moments[0] @ np.linalg.inv(gram[0]), rtol=1e-8)


def test_incremental_em_climbs_faster_than_em_and_to_a_fixed_point_of_it():
    X, y = blobs(n=120)
    batches = np.array_split(np.arange(120), 4)
    online = passes(
        CapsuleClassifier.paper(online=Incremental(), alpha=1 / 120, **ONLINE), X, y, batches, 8
    )
    with pytest.warns(ConvergenceWarning):
        whole = CapsuleClassifier.paper(
            thresholds=(0,),
            patience=(9,),
            momentum=0,
            monitor="likelihood",
            alpha=1 / 120,
            max_iter=9,
            **ONLINE,
        ).fit(X, y)
    assert objective(online, X, y) > objective(whole, X, y)
    passes(online, X, y, batches, 300)
    E = online.posterior_mean(X, y)
    image = np.einsum("nid,np->idp", E, X) @ np.linalg.inv(X.T @ X + np.eye(5))
    np.testing.assert_allclose(
        image, online.coef_, rtol=1e-3, atol=1e-3 * np.abs(online.coef_).max()
    )


def test_incremental_em_never_lowers_what_it_climbs():
    """Neal and Hinton's function of posteriors and weights: each batch's bound, made at the weights
    of its own last E-step.
    """
    X, y = blobs(n=300)
    batches = np.array_split(np.arange(300), 6)
    model = passes(CapsuleClassifier.paper(online=Incremental(), **ONLINE), X, y, batches, 1)
    bounds, climbed = {}, []
    for _ in range(4):
        for name, rows in enumerate(batches):
            E, own = (
                model.posterior_mean(X[rows], y[rows]),
                model.predict_log_proba(X[rows])[np.arange(len(rows)), y[rows]].sum(),
            )
            left = np.sum((E - np.einsum("idp,np->nid", model.coef_, X[rows])) ** 2)
            bounds[name] = (E, rows, own + left / 2)
            model.partial_fit(X[rows], y[rows], batch=name)
            if len(bounds) == 6:
                climbed.append(
                    sum(
                        value
                        - np.sum((E - np.einsum("idp,np->nid", model.coef_, X[rows])) ** 2) / 2
                        for E, rows, value in bounds.values()
                    )
                )
                assert (
                    climbed[-1] <= objective(model, X, y) + 1e-8
                )  # and it is a lower bound of the likelihood
    assert len(climbed) == 19 and np.diff(climbed).min() > 0


@together("aggressiveness", [0.05, 1.0, 1e6])
def test_the_passive_aggressive_step_by_its_definition(aggressiveness):
    X, y = blobs()
    model = CapsuleClassifier.paper(online=PassiveAggressive(aggressiveness), **ONLINE).partial_fit(
        X, y, classes=np.arange(3)
    )
    W, x, label = model.coef_.copy(), X[:1], y[:1]
    residual = model.posterior_mean(x, label)[0] - np.einsum("idp,np->id", W, x)
    model.partial_fit(x, label)
    expected = W + residual[:, :, None] * x[0] / (x[0] @ x[0] * (1 + 1 / (2 * aggressiveness)))
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6, atol=1e-9)


def test_the_passive_aggressive_step_minimises_for_a_batch():
    X, y = blobs()
    model = CapsuleClassifier.paper(online=PassiveAggressive(0.3), **ONLINE).partial_fit(
        X, y, classes=np.arange(3)
    )
    W, E = model.coef_.copy(), model.posterior_mean(X[:20], y[:20])
    C = 0.3 / np.mean(np.sum(X[:20] ** 2, axis=1))
    cost = lambda V: (
        np.sum((V - W) ** 2) / 2 + C * np.sum((E - np.einsum("idp,np->nid", V, X[:20])) ** 2)
    )
    best = model.partial_fit(X[:20], y[:20]).coef_
    rng = np.random.default_rng(0)
    assert all(
        cost(best) < cost(best + 1e-4 * rng.standard_normal(W.shape)) for _ in range(50)
    ) and cost(best) < cost(W)


@together("online", [Stepwise(), Incremental(), PassiveAggressive(0.1)])
@together("architecture", ["multiclass", "ovr", "ovo"])
def test_learning_goes_on_after_loading(online, architecture, tmp_path):
    X, y = blobs()
    batches = np.array_split(np.arange(120), 4)
    model = CapsuleClassifier.paper(2, online=online, architecture=architecture, n_jobs=1)
    step = lambda m, b: m.partial_fit(
        X[batches[b]],
        y[batches[b]],
        classes=np.arange(3),
        batch=f"part {b}" if isinstance(online, Incremental) else None,
    )
    for b in (0, 1, 2, 3, 0):
        step(model, b)
    model.save(tmp_path / "model.npz")
    loaded = CapsuleClassifier.load(tmp_path / "model.npz")
    for b in (1, 2, 3, 0, 1):
        step(model, b)
        step(loaded, b)
    assert np.array_equal(model.coef_, loaded.coef_) and model.score(X, y) > 0.6


def test_batches_must_be_named_rightly():
    X, y = blobs()
    model = CapsuleClassifier.paper(online=Incremental(), **ONLINE).partial_fit(
        X[:60], y[:60], classes=np.arange(3), batch="first"
    )
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="batch must name"):
        model.partial_fit(X[60:], y[60:])
    with pytest.raises(TypeError, match="batch must be"):
        model.partial_fit(X[60:], y[60:], batch=1.5)
    with pytest.raises(ValueError, match="'first' came back with other examples"):
        model.partial_fit(X[60:], y[60:], batch="first")
    with pytest.raises(ValueError, match="batch must name"):
        CapsuleClassifier.paper(**ONLINE).partial_fit(X, y, classes=np.arange(3), batch=1)
    assert np.array_equal(model.coef_, before) and model._online.names == ["first"]
    model.set_params(online=Stepwise()).partial_fit(
        X, y
    )  # another way of learning begins anew, from the weights
    assert model._online.steps == 1 and not model._online.batches
