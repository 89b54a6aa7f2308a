"""Learning where the arrays are: on a device that refuses to hand its arrays to NumPy, and with
PyTorch.
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
from conftest import classes as groups, together
from test_em import problem

from capslit import CapsuleClassifier, GaussianMixture, em
from capslit.arrays import to_numpy
from capslit.capsules.engine import CapsuleParameters, LeastSquares, second_moments
from capslit.capsules.expansion import ExpandedCapsuleRegression
from capslit.em import loop

ARCHITECTURES = ["multiclass", "ovr", "ovo"]
SCHEDULE = dict(
    rounds=[em.Round(3, {"threshold": 0.5}), em.Round(2, {"threshold": 0.0})],
    momentum=0.5,
    monitor="validation",
    max_iter=8,
)


def places():
    "Libraries with a device: (namespace, device)."
    yield pytest.param(array_api_strict, array_api_strict.Device("device1"), id="strict")
    if importlib.util.find_spec("torch"):
        import array_api_compat.torch as torch

        yield pytest.param(torch, "cpu", id="torch")
    else:
        yield pytest.param(
            None,
            None,
            id="torch",
            marks=pytest.mark.skip(reason="PyTorch is not installed; pip install capslit[torch]"),
        )


def moved(xp, device, model, start, batch):
    "The model, its parameters and a batch on a device."
    there = lambda a: None if a is None else xp.asarray(a, device=device)
    solver = LeastSquares(there(model.solver.root), model.solver.which, model.solver.rank)
    return (
        replace(model, solver=solver),
        CapsuleParameters(there(start.weights)),
        tuple(map(there, batch)),
    )


def same(found, expected):
    for name, ours in expected._asdict().items():
        assert np.allclose(to_numpy(getattr(found, name)), ours, rtol=1e-9, atol=1e-9), name


def test_the_device_refuses():
    x = array_api_strict.asarray([1.0], device=array_api_strict.Device("device1"))
    with pytest.raises((RuntimeError, TypeError)):
        np.asarray(x)


@contextmanager
def no_transfer():
    "Inside, the way to the host is an error, array by array and number by number."

    def refuse(*_, **__):
        raise AssertionError("something went from the device to the host")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("__bool__", "__int__", "__float__", "__index__", "__complex__", "to_device"):
            patch.setattr(type(array_api_strict.asarray(0)), name, refuse)
        yield


@together("architecture", ARCHITECTURES)
@together(
    "options", [{}, {"mixed": True, "affine": True, "weighted": True}], ids=["plain", "everything"]
)
def test_an_e_step_asks_the_device_nothing(architecture, options):
    model, start, data = problem(11, n=60, m=3, d=2, p=4, architecture=architecture, **options)
    nu = np.linspace(0.3, 0.9, len(model.targets))
    expected = (
        model.e_step(start, data, threshold=nu),
        model.count_errors(start, data),
        second_moments(data, range(3), model.affine),
    )
    there, parameters, batch = moved(
        array_api_strict, array_api_strict.Device("device1"), model, start, data
    )
    prepared = there.prepare(batch)
    with no_transfer():
        found = (
            there.e_step(parameters, prepared, threshold=nu),
            there.count_errors(parameters, prepared),
        )
        part = em.accumulate(
            lambda block: there.e_step(parameters, block, threshold=nu), prepared, 7
        )
        there.m_step(parameters, found[0])
    found += (second_moments(batch, range(3), model.affine),)
    for ours, theirs in zip((*expected, expected[0]), (*found, part)):
        assert theirs[0].device == parameters.weights.device
        same(theirs, ours)


@together("architecture", ARCHITECTURES)
def test_an_iteration_asks_the_device_once(architecture, monkeypatch):
    """For the numbers by which it is judged, all together, whatever the number of problems; and
    never number by number.
    """
    model, start, data = problem(12, n=60, m=3, d=2, p=4, architecture=architecture)
    there, parameters, batch = moved(
        array_api_strict, array_api_strict.Device("device1"), model, start, data
    )
    asked, to_host = [], loop.to_numpy
    monkeypatch.setattr(loop, "to_numpy", lambda a: asked.append(a.shape) or to_host(a))
    settings = {"momentum": 0.9, "validation": there.prepare(batch), "monitor": "validation"}
    states = em.iterate(
        there,
        em.State.start(parameters),
        there.prepare(batch),
        (em.Round(9, {"threshold": 0.5}),),
        **settings,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("__bool__", "__int__", "__float__", "__index__"):
            patch.setattr(
                type(array_api_strict.asarray(0)),
                name,
                lambda *_: (_ for _ in ()).throw(AssertionError("asked for one number")),
            )
        last = [next(states) for _ in range(3)][-1]
    assert asked == [(6, len(model.targets))] * 3
    here = list(
        islice(
            em.iterate(
                model,
                em.State.start(start),
                data,
                (em.Round(9, {"threshold": 0.5}),),
                **settings | {"validation": data},
            ),
            3,
        )
    )[-1]
    assert np.allclose(
        last.history["validation_error"], here.history["validation_error"]
    ) and np.allclose(to_host(last.best.weights), here.best.weights)


@together("xp, device", list(places()))
@together("architecture", ARCHITECTURES)
@together("expanded", [False, True])
def test_a_fit_on_a_device_is_the_fit_on_the_host(xp, device, architecture, expanded):
    model, start, data = problem(7, n=300, m=3, d=2, p=4, architecture=architecture, weighted=True)
    if expanded:
        model = ExpandedCapsuleRegression(model.targets, model.dims, model.solver)
    held_out = tuple(a[:80] for a in data)
    ours = em.fit(model, start, model.prepare(data), validation=model.prepare(held_out), **SCHEDULE)
    there, parameters, batch = moved(xp, device, model, start, data)
    run = em.fit(
        there,
        parameters,
        there.prepare(batch),
        validation=there.prepare(tuple(a[:80, ...] for a in batch)),
        **SCHEDULE,
    )
    assert (
        type(run.parameters.weights) is type(parameters.weights)
        and run.parameters.weights.device == parameters.weights.device
    )
    assert np.allclose(
        to_numpy(run.parameters.weights), ours.parameters.weights, rtol=1e-8, atol=1e-10
    )
    assert np.allclose(
        run.history["validation_error"],
        ours.history["validation_error"],
        rtol=1e-12,
        equal_nan=True,
    )


@together("architecture", ARCHITECTURES)
@together("weighted", [False, True])
def test_prepared_examples_have_the_same_bits(architecture, weighted):
    model, start, data = problem(
        3, n=2000, m=4, d=3, p=5, architecture=architecture, weighted=weighted, dtype=np.float32
    )
    runs = [
        em.fit(model, start, batch, validation=data, **SCHEDULE)
        for batch in (data, model.prepare(data))
    ]
    assert runs[0].parameters.weights.tobytes() == runs[1].parameters.weights.tobytes()
    assert all(
        np.array_equal(runs[0].history[name], runs[1].history[name], equal_nan=True)
        for name in runs[0].history
    )


def test_pairs_are_sorted_within_blocks_once():
    model, start, (X, y, _) = problem(3, n=18_000, m=4, d=3, p=2, architecture="ovo")
    rows = model.block_rows(start)
    assert rows == 16384 and model.without_solver.solver is None
    x, labels, _ = model.prepare((X, y, None))
    for part in (slice(0, rows), slice(rows, None)):
        assert np.array_equal(labels[part], np.sort(y[part])) and np.array_equal(
            x[part], X[part][np.argsort(y[part], kind="stable")]
        )
    assert model.prepare((x, labels, None))[0].tobytes() == x.tobytes()


@together("architecture", ARCHITECTURES)
def test_folds_share_their_products(architecture):
    "Problems stacked with weights of their own are the same problems alone."
    model, start, (X, y, _) = problem(5, n=200, m=3, d=2, p=4, architecture=architecture)
    k, folds = len(model.targets), 3
    w = np.stack([np.arange(200) % folds != f for f in range(folds)], axis=1).astype(float)
    stack = replace(
        model,
        targets=np.tile(model.targets, (folds, 1)),
        dims=np.tile(model.dims, (folds, 1)),
        solver=None,
        columns=np.repeat(np.arange(folds), k),
    )
    together = CapsuleParameters(np.tile(start.weights, (folds, 1, 1, 1)))
    nu = np.full(folds * k, 0.4)
    stacked, counted = (
        stack.e_step(together, (X, y, w), threshold=nu),
        stack.count_errors(together, (X, y, 1 - w)),
    )
    chosen = np.arange(k, 2 * k)  # the problems of the second fold
    some = stack.select(chosen)
    same(
        some.e_step(CapsuleParameters(start.weights), stack.prepare((X, y, w)), threshold=nu[:k]),
        type(stacked)(*(a[chosen] for a in stacked)),
    )
    for f in range(folds):
        alone = model.e_step(start, (X, y, w[:, f]), threshold=nu[:k])
        same(type(stacked)(*(a[f * k : (f + 1) * k] for a in stacked)), alone)
        held = model.count_errors(start, tuple(a[w[:, f] == 0] for a in (X, y)) + (None,))
        same(type(counted)(*(a[f * k : (f + 1) * k] for a in counted)), held)


def test_one_column_of_weights_for_each_problem():
    model, start, (X, y, _) = problem(5, n=50, m=3, d=2, p=4, architecture="ovr")
    with pytest.raises(ValueError, match=r"weight has shape \(50, 2\)"):
        model.e_step(start, (X, y, np.ones((50, 2))))
    with pytest.raises(ValueError, match="y must lie between 0 and 2"):
        model.prepare((X, y + 1, None))


# ── tensors with a history, in another precision, or sparse
# ──────────────────────────────────────────────────────────────────

SHORT = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1, "early_stopping": False}


def tensors(n=120):
    "Labelled examples with weights, as tensors; bfloat16 holds them exactly."
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    X, y = groups(n, 5, 3)
    return (
        torch,
        torch.asarray(np.rint(8 * X) / 8).float(),
        torch.asarray(y),
        torch.asarray(np.random.default_rng(1).integers(1, 9, n) / 4).float(),
    )


@pytest.mark.filterwarnings("error")
@together("change", ["requires_grad_", "bfloat16"])
@together("place", ["memory", "batches", "beside NumPy"])
def test_gradients_and_bfloat16_are_taken_everywhere(change, place):
    torch, X, y, w = tensors()
    changed = lambda a: getattr(a.clone(), change)()
    given = {
        "memory": (changed(X), y, changed(w)),
        "batches": (
            [(changed(X[i : i + 50]), y[i : i + 50], changed(w[i : i + 50])) for i in (0, 50, 100)],
        ),
        "beside NumPy": (X.numpy(), y.numpy(), changed(w)),
    }[place]
    model = CapsuleClassifier.paper(2, **SHORT).fit(X.numpy(), y.numpy(), w.numpy())
    found = CapsuleClassifier.paper(2, **SHORT).fit(*given)
    assert np.allclose(to_numpy(found.coef_), model.coef_, rtol=1e-4, atol=1e-5) and str(
        found.coef_.dtype
    ).endswith("float32")
    assert (
        found.score(*given)
        == model.score(*given)
        == pytest.approx(model.score(X.numpy(), y.numpy(), w.numpy()))
    )
    assert np.array_equal(to_numpy(model.predict(given[0])), model.predict(X.numpy()))
    again = CapsuleClassifier.paper(2, **SHORT | {"init": changed(torch.asarray(model.coef_))}).fit(
        *given
    )
    assert np.isfinite(to_numpy(again.coef_)).all()


def test_an_array_of_numpy_has_no_history():
    torch, X, _, _ = tensors()
    there = X.requires_grad_() * 2
    assert np.array_equal(to_numpy(there), 2 * X.detach().numpy()) and there.requires_grad
    assert to_numpy(there.bfloat16()).dtype == np.float32 and to_numpy([1, 2]).tolist() == [1, 2]


@together("change", ["requires_grad_", "to_sparse", "bfloat16"])
def test_relatives_say_which_tensor_they_cannot_take(change):
    torch, X, _, w = tensors()
    changed = lambda a: getattr(a.clone(), change)()
    model = GaussianMixture(2, random_state=0).fit(X)
    for call, name in (
        (lambda: GaussianMixture(2).fit(changed(X)), "X"),
        (lambda: GaussianMixture(2).fit(X, sample_weight=changed(w)), "sample_weight"),
        (lambda: model.predict(changed(X)), "X"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: .*"):
            call()


@together("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_are_refused_in_words(layout):
    torch, X, y, w = tensors()
    model, sparse = CapsuleClassifier.paper(2, **SHORT).fit(X, y), getattr(X, layout)()
    for call in (lambda: CapsuleClassifier.paper(2).fit(sparse, y), lambda: model.predict(sparse)):
        with pytest.raises(TypeError, match="X is a sparse tensor; pass a dense one"):
            call()
    with pytest.raises(TypeError, match="sample_weight is a sparse tensor"):
        CapsuleClassifier.paper(2).fit(X, y, w.to_sparse())


@pytest.mark.filterwarnings("error")
@together("place", ["file", "batches", "strict", "torch"])
def test_a_score_needs_weights(place, tmp_path):
    X, y = groups(120, 5, 3)
    model = CapsuleClassifier.paper(2, **SHORT).fit(X, y)

    def score(w):
        if place == "batches":
            return model.score([(X[:50], y[:50], w[:50]), (X[50:], y[50:], w[50:])])
        if place == "file":
            np.save(tmp_path / "X.npy", X)
            return model.score(np.load(tmp_path / "X.npy", mmap_mode="r"), y, w)
        there = (
            array_api_strict.asarray if place == "strict" else pytest.importorskip("torch").asarray
        )
        return model.score(*map(there, (X, y, w)))

    w = np.arange(120) % 3 / 1.0
    assert score(w) == pytest.approx(model.score(X, y, w))
    for wrong in (w * 0, w * 0 - 1, w * np.nan):
        with pytest.raises(ValueError, match="sample_weight"):
            score(wrong)


@pytest.fixture
def gpu(monkeypatch):
    "The benchmark of graphics cards as a module."
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("gpu")


def test_the_benchmark_of_cards_says_when_there_is_none(gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "find_card", lambda: None)
    assert gpu.main() == 0 and list(gpu.rows()) == []
    assert capsys.readouterr().out.startswith("no graphics card")


@pytest.mark.skipif(
    not importlib.util.find_spec("torch"),
    reason="PyTorch is not installed; pip install capslit[torch]",
)
def test_the_benchmark_of_cards_measures_a_processor_as_it_would_a_card(gpu, monkeypatch):
    card = gpu.torch_card("cpu")._replace(name="NVIDIA T4")
    monkeypatch.setattr(gpu, "peak", lambda card, measure=gpu.peak: measure(card, size=64))
    found = list(gpu.rows(card, dims=(2,), n=500, p=8, m=3))
    assert [row.to.split()[0] for row in found] == ["what", "its", "a", "what"] and all(
        row.ratio > 0 for row in found
    )
    assert found[0].ratio * found[2].ratio == pytest.approx(found[3].ratio)  # parts of a part


@pytest.mark.skipif(
    not importlib.util.find_spec("torch"),
    reason="PyTorch is not installed; pip install capslit[torch]",
)
@pytest.mark.parametrize("d", [1, 3, 4])
def test_no_operation_of_an_iteration_makes_the_host_wait(gpu, d, monkeypatch):
    "Between the batch and the numbers by which the iteration is judged, which are asked for once."
    import torch

    asked, to_host = [], loop.to_numpy
    monkeypatch.setattr(loop, "to_numpy", lambda a: asked.append(a.shape) or to_host(a))
    operations, moved, least = gpu.counts(gpu.torch_card("cpu"), d, n=500, p=8, m=3)
    assert (
        0 < operations < 150 and moved > least and len(asked) == 2
    )  # of the first iteration, and of the one that was watched
    x = torch.arange(4.0)
    for waits in (
        lambda: float(x[0]),
        lambda: bool(x[0] > 1),
        lambda: x.nonzero(),
        lambda: x[x > 1],
        lambda: x.to("meta"),
    ):
        with (
            gpu.watching(),
            pytest.raises(AssertionError, match="wait for the device|one device to another"),
        ):
            waits()
