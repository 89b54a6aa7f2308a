"""What every model of the engine promises: sums add up, weights count, stacked problems are
problems alone, other types and libraries give the same.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_composition
import test_factor_analysis
import test_factorial_hmm
import test_factorial_model
import test_mixtures
from test_em import other_namespaces

from capslit import em
from capslit.composition.gaussian import RULES, GaussianCompositions, _Means
from capslit.em.stack import Running
from capslit.factorial.chains import FactorialChains

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


class Case(NamedTuple):
    """A model, parameters of three stacked problems, and data; tolerances of sums of parts and of
    stacks.
    """

    model: Any
    parameters: Any
    data: tuple
    close: float = 1e-10
    alone: float = 1e-9


def gaussians(kind):
    start, data = test_mixtures.problem(3, kind, k=3, weighted=True)
    return Case(test_mixtures.Mixtures(kind, reg_covar=1e-3), start, data, alone=1e-10)


def manifolds(noise, hard):
    return Case(
        *test_factor_analysis.problem(
            3, noise, k=3, n=90, weighted=True, tangents=True, hard=hard, added=0.1
        )
    )


def vectors(e_step):
    model, parameters, y = test_factorial_model.problem(1, q=3, n=60, d=3, k=3, inference=e_step)
    return Case(
        model,
        parameters,
        (y, np.random.default_rng(0).integers(0, 4, 60).astype(float), np.arange(60)),
    )


def chains(model):
    rng = np.random.default_rng(3)
    parameters = test_factorial_hmm.random_parameters(rng, 2, 3, 2, s=3)
    return Case(
        model,
        parameters,
        (rng.normal(size=(6, 7, 2)), np.array([7, 3, 1, 5, 7, 2]), None),
        1e-6,
        1e-6,
    )


def templates(rule, transforms):
    "The stack to the last bit."
    (X, one), others = (
        test_composition.problem(),
        [test_composition.problem(seed)[1] for seed in (3, 4)],
    )
    times = np.random.default_rng(0).integers(0, 3, len(X))
    return Case(
        test_composition.make(rule, transforms),
        test_composition.stacked(one, *others),
        (X, times),
        alone=0,
    )


def means(rule):
    rng = np.random.default_rng(0)
    return Case(
        GaussianCompositions(rule),
        _Means(2 * rng.normal(size=(3, 4, 5)), np.ones(3)),
        (2 * rng.normal(size=(60, 5)), None),
    )


SMOOTH = {  # that take other libraries and single precision
    **{f"Gaussians, {kind}": lambda kind=kind: gaussians(kind) for kind in test_mixtures.TYPES},
    **{
        f"manifolds, {noise}{', hard' * hard}": lambda noise=noise, hard=hard: manifolds(
            noise, hard
        )
        for noise in test_factor_analysis.NOISES
        for hard in (False, True)
    },
}
MODELS = SMOOTH | {
    **{
        f"vectors, {name}": lambda e_step=e_step: vectors(e_step)
        for name, e_step in test_factorial_model.E_STEPS.items()
    },
    "chains": lambda: chains(FactorialChains()),
    "chains, mean field": lambda: chains(FactorialChains("mean_field", n_sweeps=500, sweep_tol=0)),
    **{
        f"templates, {rule}, {name}": lambda rule=rule, moves=moves: templates(rule, moves)
        for rule in ("max_minus_min", "maximum")
        for name, moves in (
            ("fixed", None),
            ("shifts", test_composition.SHIFTS),
            ("turns", test_composition.TURNS),
        )
    },
    **{f"means, {rule}": lambda rule=rule: means(rule) for rule in RULES},
}
every = pytest.mark.parametrize("name", MODELS)
smooth = pytest.mark.parametrize("name", SMOOTH)


def part(data, rows):
    return tuple(None if a is None else a[rows] for a in data)


def assert_close(found, wanted, rtol, atol=None):
    for leaf, a, b in zip(wanted._fields, found, wanted):
        assert np.allclose(a, b, rtol=rtol, atol=rtol if atol is None else atol), leaf


@every
def test_statistics_of_parts_add_up_in_any_order(name):
    model, parameters, data, close, _ = MODELS[name]()
    whole, n = model.e_step(parameters, data), len(data[0])
    parts = [
        model.e_step(parameters, part(data, rows))
        for rows in (slice(n // 2, n), slice(0, 1), slice(1, n // 2))
    ]
    assert_close(reduce(em.add, parts), whole, close)
    assert_close(
        model.e_step(parameters, part(data, slice(None, None, -1))), whole, max(close, 1e-9)
    )


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.split(",")[0] not in ("chains", "means")]
)
def test_weights_count_examples(name):
    model, parameters, data, *_ = MODELS[name]()
    times = np.random.default_rng(0).integers(0, 4, len(data[0]))
    again = np.repeat(np.arange(len(times)), times)
    weighed = model.e_step(parameters, (data[0], times.astype(float), *data[2:]))
    x, _, *more = part(data, again)
    assert_close(model.e_step(parameters, (x, None, *more)), weighed, 1e-10)
    if name in SMOOTH:  # without priors that count as examples
        light = model.e_step(parameters, (data[0], 1e-14 * times, *data[2:]))
        scaled = model.m_step(parameters, light)
        assert_close(scaled, model.m_step(parameters, weighed), 1e-5, 1e-8)


@every
def test_stacked_problems_equal_problems_alone(name):
    model, parameters, data, _, alone = MODELS[name]()
    whole, rounds = (
        model.e_step(parameters, data),
        {"rounds": [em.Round(9)], "max_iter": 9, "n_threads": 1},
    )
    together = em.fit(model, parameters, data, **rounds).history["objective"]
    for q in range(3):
        one, own = (
            Running(np.arange(3) == q).select(model),
            type(parameters)(*(leaf[q : q + 1] for leaf in parameters)),
        )
        assert_close(
            one.e_step(own, data), type(whole)(*(leaf[q : q + 1] for leaf in whole)), alone
        )
        path = em.fit(one, own, data, **rounds).history["objective"][:, 0]
        assert np.allclose(path, together[: len(path), q], rtol=alone, atol=0)


@smooth
def test_float32_follows_float64(name):
    model, parameters, data, *_ = MODELS[name]()
    runs = [
        em.fit(
            model,
            parameters,
            tuple(None if a is None else a.astype(t) for a in data),
            rounds=[em.Round(10)],
            max_iter=10,
            n_threads=1,
        )
        for t in (np.float32, np.float64)
    ]
    assert np.allclose(
        runs[0].history["objective"],
        runs[1].history["objective"],
        rtol=1e-4,
        atol=1e-2 if name.startswith("Gaussians") else 1e-8,
    )
    assert runs[0].parameters.means.dtype == np.float64


@pytest.mark.parametrize("xp", list(other_namespaces()))
@smooth
def test_other_array_libraries_agree_with_numpy(xp, name):
    model, parameters, data, *_ = MODELS[name]()
    for given in (data, (data[0], *[None] * (len(data) - 1))):
        there = (
            type(parameters)(*map(xp.asarray, parameters)),
            tuple(None if a is None else xp.asarray(a) for a in given),
        )
        ours, run = (
            em.fit(model, *start, rounds=[em.Round(6)], max_iter=6)
            for start in ((parameters, given), there)
        )
        assert (
            type(run.parameters.means).__module__.split(".")[0]
            == xp.__name__.replace("array_api_compat.", "").split(".")[0]
        )
        assert np.allclose(run.history["objective"], ours.history["objective"], rtol=1e-8)
        assert_close(
            type(parameters)(*map(np.asarray, run.parameters)), ours.parameters, 1e-6, 1e-8
        )
    if hasattr(model, "recognition"):
        assert np.allclose(
            np.asarray(model.recognition(there[0])[0]), model.recognition(parameters)[0]
        )
