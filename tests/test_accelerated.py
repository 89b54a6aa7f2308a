"""Accelerations on the engine, the expanded model, and the ways to learn batch by batch."""

import numpy as np
import pytest
from test_em import PLAIN, problem

from capslit import em
from capslit.acceleration import Anderson, SafeMomentum, Squarem
from capslit.capsules import CapsuleParameters

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


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("seed", range(25))
def test_accepted_points_never_lower_the_objective(method, seed):
    options = dict(architecture=["multiclass", "ovr", "ovo"][seed % 3], weighted=seed % 5 == 0, affine=seed % 4 == 0,
                   alpha=[0, 0, 0.3, 10][seed % 4], mixed=seed % 7 == 0)
    model, start, data = problem(seed, **options)
    run = em.fit(model, start, data, rounds=PLAIN, max_iter=40, n_threads=1, acceleration=method)
    assert largest_fall(run.history) < 1e-10
    assert np.all(-run.score >= -np.inf) and np.all(run.history["objective"].max(axis=0) > run.history["objective"][0])


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_no_acceleration_is_worse_than_em(method):
    "Over many problems the accelerated runs end higher than EM on the whole; another local maximum may be a little lower."
    gains = []
    for seed in range(20):
        model, start, data = problem(seed, n=200)
        ends = [em.fit(model, start, data, rounds=PLAIN, max_iter=60, n_threads=1, acceleration=a).history["objective"].max() / 200 for a in (None, method)]
        gains.append(ends[1] - ends[0])
    assert np.mean(gains) > 0.02 and np.min(gains) > -0.1


def test_the_first_leap_is_discarded_when_it_falls():
    "A model whose objective punishes every step beyond those of EM: SQUAREM must come back to the path of EM."
    class Punished:
        def __init__(self, model, path):
            self.model, self.path = model, path

        def __getattr__(self, name):
            return getattr(self.model, name)

        def objective(self, parameters, statistics):
            known = any(np.allclose(parameters.weights, weights, rtol=1e-9) for weights in self.path)
            return self.model.objective(parameters, statistics) if known else np.array([-np.inf])

    model, start, data = problem(7, n=100, m=3, d=2, p=4)
    path = [start.weights]
    for _ in range(30):
        path.append(model.m_step(model.e_step(CapsuleParameters(path[-1]), data)).weights)
    for method in (Squarem(), Anderson(), SafeMomentum()):
        run = em.fit(Punished(model, path), start, data, rounds=PLAIN, max_iter=12, n_threads=1, acceleration=method)
        accepted = run.history["accepted"][:, 0] == 1
        assert 0 < np.sum(~accepted) <= 6
        plain = em.fit(model, start, data, rounds=PLAIN, max_iter=12, n_threads=1).history["objective"][:, 0]
        assert np.allclose(run.history["objective"][accepted, 0], plain[: np.sum(accepted)], rtol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_stacked_problems_equal_problems_alone(method):
    models = [problem(seed, n=200, m=3, d=2, p=4)[:2] for seed in (1, 2, 3)]
    model, _, data = problem(1, n=200, m=3, d=2, p=4)
    stack = type(model)(np.tile(model.targets, (3, 1)), np.tile(model.dims, (3, 1)), model.solver)
    starts = np.concatenate([start.weights for _, start in models])
    schedule = dict(rounds=SCHEDULE, monitor="error", max_iter=200, acceleration=method, n_threads=1)
    together = em.fit(stack, CapsuleParameters(starts), data, **schedule)
    for q in range(3):
        single = em.fit(model, CapsuleParameters(starts[q:q + 1]), data, **schedule)
        length = np.count_nonzero(np.isfinite(together.history["threshold"][:, q]))
        assert length == single.n_iter and together.score[q] == single.score[0]
        assert np.array_equal(together.history["accepted"][:length, q], single.history["accepted"][:, 0])


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("architecture", ["multiclass", "ovo"])
def test_a_killed_run_resumes_to_the_same_bits(method, architecture, tmp_path):
    model, start, data = problem(9, n=400, m=4, d=2, p=5, architecture=architecture)
    schedule = dict(rounds=SCHEDULE, monitor="error", acceleration=method)
    whole = em.fit(model, start, data, max_iter=60, **schedule)
    path = tmp_path / "run.npz"
    for stop in (1, 2, 3, 5, 11, 12, 60):
        resumed = em.fit(model, start, data, max_iter=stop, checkpoint=path, checkpoint_every=0, **schedule)
    assert resumed.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert all(np.array_equal(resumed.history[name], whole.history[name], equal_nan=True) for name in whole.history)
    with pytest.raises(ValueError, match="other settings"):
        em.fit(model, start, data, rounds=SCHEDULE, monitor="error", checkpoint=path)


def test_a_round_begins_at_rest():
    "After a round the acceleration starts anew from the best parameters: its first step is the EM step."
    model, start, data = problem(8, n=300, m=4, d=2, p=5)
    for method in METHODS:
        run = em.fit(model, start, data, rounds=SCHEDULE, monitor="error", max_iter=500, acceleration=method, n_threads=1)
        errors, threshold = run.history["training_error"][:, 0], run.history["threshold"][:, 0]
        first = np.count_nonzero(threshold == 0.5)
        assert run.converged.all() and errors[first] == errors[:first].min() and run.history["accepted"][first, 0] == 1


def test_an_array_library_other_than_numpy():
    import array_api_strict as xp

    model, start, (X, y, _) = problem(11, n=300, m=3, d=2, p=4)
    solver = type(model.solver)(xp.asarray(model.solver.root), model.solver.which, model.solver.rank)
    there = type(model)(model.targets, model.dims, solver)
    for method in (Squarem(), Anderson(3), SafeMomentum()):
        ours = em.fit(model, start, (X, y, None), rounds=PLAIN, max_iter=15, acceleration=method)
        run = em.fit(there, CapsuleParameters(xp.asarray(start.weights)), (xp.asarray(X), xp.asarray(y), None), rounds=PLAIN, max_iter=15,
                     acceleration=method)
        assert np.allclose(run.history["objective"], ours.history["objective"], rtol=1e-6)


def test_wrong_settings_are_named():
    model, start, data = problem(1)
    with pytest.raises(ValueError, match="momentum"):
        em.fit(model, start, data, rounds=PLAIN, momentum=0.5, acceleration=Squarem())
    with pytest.raises(TypeError, match="acceleration"):
        em.fit(model, start, data, rounds=PLAIN, acceleration="squarem")
    for wrong, name in ((lambda: Squarem(1), "growth"), (lambda: Anderson(0), "order"), (lambda: Anderson(2.5), "order"), (lambda: SafeMomentum(1), "rate")):
        with pytest.raises(ValueError, match=name):
            wrong()
