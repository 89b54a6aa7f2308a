"""Learning where the arrays are: on a device that refuses to hand its arrays to NumPy, and with
PyTorch; several problems side by side.
"""

import importlib
import importlib.util
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
from conftest import NO_WARNINGS, together
from test_em import METHODS, problem
from test_places import ARCHITECTURES, FAR, GROUP, PLACES, Z, quick, strict_of, torch_of

from capslit import CapsuleClassifier, GaussianMixture, em
from capslit.arrays import to_numpy
from capslit.capsules.engine import (
    CapsuleParameters,
    CapsuleRegression,
    LeastSquares,
    second_moments,
)
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.capsules.problems import initial_weights
from capslit.em import loop

needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"),
    reason="PyTorch is not installed; pip install capslit[torch]",
)
SCHEDULE = dict(
    rounds=[em.Round(3, {"threshold": 0.5}), em.Round(2, {"threshold": 0.0})],
    monitor="validation",
    max_iter=8,
)
NUMBERS = ("__bool__", "__int__", "__float__", "__index__", "__complex__")


def moved(model, start, batch, there=strict_of):
    "The model, its parameters and a batch on a device."
    solver = LeastSquares(there(model.solver.root), model.solver.which, model.solver.rank)
    parameters = CapsuleParameters(there(start.weights))
    return replace(model, solver=solver), parameters, tuple(map(there, batch))


def assert_close(found, expected):
    for name, ours in expected._asdict().items():
        assert np.allclose(to_numpy(getattr(found, name)), ours, rtol=1e-9, atol=1e-9), name


@contextmanager
def refusing(names):
    "Inside, arrays on the device have none of these methods."

    def refuse(*_, **__):
        raise AssertionError("something went from the device to the host")

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(type(array_api_strict.asarray(0)), name, refuse)
        yield


@together("architecture", ARCHITECTURES)
@together("options", [{}, {"mixed": True, "affine": True, "weighted": True}])
def test_an_e_step_asks_the_device_nothing(architecture, options):
    model, start, data = problem(11, n=60, m=3, d=2, p=4, architecture=architecture, **options)
    nu = np.linspace(0.3, 0.9, len(model.targets))
    e_step = model.e_step(start, data, threshold=nu)
    moments = second_moments(data, range(3), model.affine)
    there, parameters, batch = moved(model, start, data)
    prepared = there.prepare(batch)
    with refusing([*NUMBERS, "to_device"]):
        found = there.e_step(parameters, prepared, threshold=nu)
        counted = there.count_errors(parameters, prepared)
        there.m_step(parameters, found)
        part = em.accumulate(
            lambda block: there.e_step(parameters, block, threshold=nu), prepared, 7
        )
    on_device = second_moments(batch, range(3), model.affine)
    pairs = [(found, e_step), (part, e_step), (counted, model.count_errors(start, data))]
    for theirs, ours in (*pairs, (on_device, moments)):
        assert theirs[0].device == parameters.weights.device == FAR
        assert_close(theirs, ours)
    with pytest.raises((RuntimeError, TypeError)):
        np.asarray(parameters.weights)  # the device does refuse


@together("architecture", ARCHITECTURES)
def test_an_iteration_asks_the_device_once(architecture, monkeypatch):
    """For the numbers by which it is judged, all together, whatever the number of problems; and
    never number by number.
    """
    model, start, data = problem(12, n=60, m=3, d=2, p=4, architecture=architecture)
    there, parameters, batch = moved(model, start, data)
    prepared = there.prepare(batch)
    asked, to_host = [], loop.to_numpy
    monkeypatch.setattr(loop, "to_numpy", lambda a: asked.append(a.shape) or to_host(a))

    def third(model, start, data):
        settings = {"momentum": 0.9, "validation": data, "monitor": "validation"}
        rounds = (em.Round(9, {"threshold": 0.5}),)
        states = em.iterate(model, em.State.start(start), data, rounds, **settings)
        return list(islice(states, 3))[-1]

    with refusing(NUMBERS[:4]):
        last = third(there, parameters, prepared)
    assert asked == [(6, len(model.targets))] * 3
    here = third(model, start, data)
    errors = [state.history["validation_error"] for state in (last, here)]
    assert np.allclose(*errors) and np.allclose(to_host(last.best.weights), here.best.weights)


RATE = {"momentum": 0.5}
MIXED = {"mixed": True, "affine": True, "weighted": True}
WAYS = [  # kinds of models, of problems, and settings of learning
    *((CapsuleRegression, MIXED | {"architecture": name}, RATE) for name in ARCHITECTURES),
    *(
        (ExpandedCapsuleRegression, {"architecture": name, "weighted": True}, RATE)
        for name in ARCHITECTURES
    ),
    *((CapsuleRegression, {}, {"acceleration": method}) for method in METHODS[::2]),
]


@together("there", [strict_of, torch_of])
@together("kind, options, settings", WAYS)
def test_a_fit_on_a_device_is_the_fit_on_the_host(there, kind, options, settings):
    model, start, data = problem(11, n=150, m=3, d=2, p=4, **options)
    if kind is ExpandedCapsuleRegression:
        model = kind(model.targets, model.dims, model.solver)

    def fit(model, start, data, held_out):
        return em.fit(model, start, data, validation=held_out, **SCHEDULE | settings)

    def part(data):
        return tuple(None if a is None else a[:80, ...] for a in data)

    here = fit(model, start, data, part(data))
    device_model, parameters, batch = moved(model, start, data, there)
    near = (1e-6, 1e-8) if "acceleration" in settings else (1e-8, 1e-10)
    for prepare in (device_model.prepare, lambda batch: batch):
        run = fit(device_model, parameters, prepare(batch), prepare(part(batch)))
        weights = run.parameters.weights
        assert type(weights) is type(parameters.weights)
        assert weights.device == parameters.weights.device
        np.testing.assert_allclose(to_numpy(weights), here.parameters.weights, *near)
        for name, rtol in (("objective", 1e-6), ("validation_error", 1e-12)):
            np.testing.assert_allclose(run.history[name], here.history[name], rtol)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_restarts_are_single_fits_side_by_side(architecture, monkeypatch):
    X, y = Z[:150] * 0.6, GROUP[:150]
    options = {"init": "random", "init_scale": 0.5, "monitor": "likelihood", "tol": 1e-4}
    options |= {"random_state": 0, "architecture": architecture}
    several = quick(n_init=4, **options).fit(X, y)
    seeds = np.random.default_rng(np.random.RandomState(0).randint(2**31))

    def next_weights(targets, dims, moments, *_):
        "One start, with the random numbers that come next."
        given = {"init": "random", "init_scale": 0.5, "affine": True, "rng": seeds}
        weights, short = initial_weights(targets, dims, moments, **given)
        return weights[None], short

    with monkeypatch.context() as patch:
        patch.setattr("capslit.capsules.learning.drawn_weights", next_weights)
        alone = [quick(**options).fit(X, y) for _ in range(4)]
    courses = [np.atleast_2d(one.history_["objective"].T) for one in alone]
    best = np.argmax([np.nanmax(course, axis=1) for course in courses], axis=0)
    assert len(np.unique(best)) > 1 or best[0] > 0  # or else the test would say nothing
    wanted = alone[best[0]].coef_
    if architecture != "multiclass":
        wanted = np.stack([alone[b].coef_[q] for q, b in enumerate(best)])
    np.testing.assert_allclose(several.coef_, wanted, rtol=1e-6, atol=1e-8)
    objective = several.history_["objective"]
    assert len(objective) == several.n_iter_ and not np.isnan(objective[-1]).all()
    assert np.array_equal(quick(n_init=1, **options).fit(X, y).coef_, alone[0].coef_)
    same = [quick(architecture, n_init=n).fit(X, y).coef_ for n in (1, 5)]
    assert np.array_equal(*same)  # other starts than random ones are made once


# ── tensors with a history, in another precision, or sparse ──

SHORT = {"early_stopping": False}


def tensors(n=120):
    "Labelled examples with weights, as tensors; bfloat16 holds them exactly."
    torch = pytest.importorskip("torch", reason="pip install capslit[torch]")
    weight = np.random.default_rng(1).integers(1, 9, n) / 4
    X = torch.asarray(np.rint(8 * Z[:n]) / 8).float()
    return torch, X, torch.asarray(GROUP[:n]), torch.asarray(weight).float()


@pytest.mark.filterwarnings(*NO_WARNINGS)
@together("change", ["requires_grad_", "bfloat16"])
@together("place", ["memory", "batches", "beside NumPy"])
def test_gradients_and_bfloat16_are_taken_everywhere(change, place):
    torch, X, y, w = tensors()

    def changed(a):
        return getattr(a.clone(), change)()

    parts = [slice(i, i + 50) for i in (0, 50, 100)]
    given = {
        "memory": (changed(X), y, changed(w)),
        "batches": ([(changed(X[part]), y[part], changed(w[part])) for part in parts],),
        "beside NumPy": (X.numpy(), y.numpy(), changed(w)),
    }[place]
    of_numpy = X.numpy(), y.numpy(), w.numpy()
    model = quick(**SHORT).fit(*of_numpy)
    found = quick(**SHORT).fit(*given)
    np.testing.assert_allclose(to_numpy(found.coef_), model.coef_, rtol=1e-4, atol=1e-5)
    assert str(found.coef_.dtype).endswith("float32")
    assert not getattr(found.coef_, "requires_grad", False)
    assert found.score(*given) == model.score(*given) == pytest.approx(model.score(*of_numpy))
    assert np.array_equal(to_numpy(model.predict(given[0])), model.predict(X.numpy()))
    again = quick(**SHORT, init=changed(torch.asarray(model.coef_))).fit(*given)
    assert np.isfinite(to_numpy(again.coef_)).all()


@together("change", ["requires_grad_", "to_sparse", "bfloat16"])
def test_relatives_say_which_tensor_they_cannot_take(change):
    torch, X, _, w = tensors()
    model = GaussianMixture(2, random_state=0).fit(X)
    there, weight = (getattr(a.clone(), change)() for a in (X, w))
    for call, name in (
        (lambda: GaussianMixture(2).fit(there), "X"),
        (lambda: GaussianMixture(2).fit(X, sample_weight=weight), "sample_weight"),
        (lambda: model.predict(there), "X"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: .*"):
            call()


@together("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_are_refused_in_words(layout):
    torch, X, y, w = tensors()
    model, sparse = quick(**SHORT).fit(X, y), getattr(X, layout)()
    for call in (lambda: CapsuleClassifier.paper(2).fit(sparse, y), lambda: model.predict(sparse)):
        with pytest.raises(TypeError, match="X is a sparse tensor; pass a dense one"):
            call()
    with pytest.raises(TypeError, match="sample_weight is a sparse tensor"):
        quick().fit(X, y, w.to_sparse())


@together("place", ["memory map", "list", "strict", "torch"])
def test_a_score_needs_weights(place, tmp_path):
    model = quick(**SHORT).fit(Z, GROUP)
    there = {"strict": strict_of, "torch": torch_of}.get(place)
    for wrong in (0, -1, np.nan):
        columns = Z, GROUP, np.full(len(Z), float(wrong))
        given = map(there, columns) if there else PLACES[place](tmp_path, *columns)
        with pytest.raises(ValueError, match="sample_weight"):
            model.score(*given)


@pytest.fixture
def gpu(monkeypatch):
    "The benchmark of graphics cards as a module."
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("gpu")


def test_the_benchmark_of_cards_says_when_there_is_none(gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "find_card", lambda: None)
    assert gpu.main() == 0 and list(gpu.rows()) == []
    assert capsys.readouterr().out.startswith("no graphics card")


@needs_torch
def test_the_benchmark_of_cards_measures_a_processor_as_it_would_a_card(gpu, monkeypatch):
    card = gpu.torch_card("cpu")._replace(name="NVIDIA T4")
    monkeypatch.setattr(gpu, "peak", lambda card, measure=gpu.peak: measure(card, size=64))
    found = list(gpu.rows(card, dims=(2,), n=500, p=8, m=3))
    assert [row.to.split()[0] for row in found] == ["what", "its", "a", "what"]
    assert all(row.ratio > 0 for row in found)
    assert found[0].ratio * found[2].ratio == pytest.approx(found[3].ratio)  # parts of a part


@needs_torch
@together("d", [1, 3, 4])
def test_no_operation_of_an_iteration_makes_the_host_wait(gpu, d, monkeypatch):
    "Between the batch and the numbers by which the iteration is judged, which are asked for once."
    import torch

    asked, to_host = [], loop.to_numpy
    monkeypatch.setattr(loop, "to_numpy", lambda a: asked.append(a.shape) or to_host(a))
    operations, bytes_moved, least = gpu.counts(gpu.torch_card("cpu"), d, n=500, p=8, m=3)
    # of the first iteration, and of the one that was watched
    assert 0 < operations < 150 and bytes_moved > least and len(asked) == 2
    x = torch.arange(4.0)
    for waits in (
        lambda: float(x[0]),
        lambda: bool(x[0] > 1),
        lambda: x.nonzero(),
        lambda: x[x > 1],
        lambda: x.to("meta"),
    ):
        said = "wait for the device|one device to another"
        with gpu.watching(), pytest.raises(AssertionError, match=said):
            waits()


@together("architecture", ARCHITECTURES)
@together("weighted", [False, True])
def test_prepared_examples_have_the_same_bits(architecture, weighted):
    options = {"architecture": architecture, "weighted": weighted, "dtype": np.float32}
    model, start, data = problem(3, n=2000, m=4, d=3, p=5, **options)
    one, other = (
        em.fit(model, start, batch, validation=data, **SCHEDULE)
        for batch in (data, model.prepare(data))
    )
    assert one.parameters.weights.tobytes() == other.parameters.weights.tobytes()
    for name, values in one.history.items():
        assert np.array_equal(values, other.history[name], equal_nan=True), name
