"""Compiled E-steps: what arrays give, for every kind of problem; and who gets them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import PATIENCE, together
from sklearn.datasets import load_digits
from test_em import problem

import capslit.capsules.learning as learning
from capslit import CapsuleClassifier, em
from capslit.capsules import kernels, prediction
from capslit.capsules.special import ratio_rows
from capslit.em.compiling import compiled, read_only

pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
KINDS = [{}, {"mixed": True}, {"affine": True}, {"mixed": True, "affine": True}]


def close(found, known, dtype):
    return all(
        np.allclose(
            a,
            b,
            rtol=1e-11 if dtype == np.float64 else 2e-5,
            atol=1e-11 if dtype == np.float64 else 1e-3 * np.abs(b).max(),
        )
        for a, b in zip(found, known)
    )


@together("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("architecture", ["multiclass", "ovr", "ovo"])
def test_loops_give_what_arrays_give(architecture, dtype, kind):
    """With weights for all problems or for each, with and without thresholds, for blocks of one
    example, of a tile and of parts of tiles.
    """
    for seed, n in enumerate((1, kernels.TILE, 3 * kernels.TILE + 7)):
        arrays, parameters, (X, y, w) = problem(
            seed, n=n, architecture=architecture, weighted=True, dtype=dtype, **kind
        )
        loops, k = replace(arrays, compiled=True), len(arrays.targets)
        for weight in (None, w, np.random.default_rng(seed).random((n, k)).astype(dtype)):
            for options in ({}, {"threshold": np.linspace(0, 0.9, k)}):
                batch = arrays.prepare((X, y, weight))
                assert close(
                    loops.e_step(parameters, batch, **options),
                    arrays.e_step(parameters, batch, **options),
                    dtype,
                )
            assert close(
                loops.count_errors(parameters, batch), arrays.count_errors(parameters, batch), dtype
            )


@together("power", [-150, -30, 30, 150])
def test_loops_give_what_arrays_give_at_any_scale(power):
    arrays, parameters, (X, y, _) = problem(1, n=300)
    batch = X * 10.0**power, y, None
    assert close(
        replace(arrays, compiled=True).e_step(parameters, batch)[1:],
        arrays.e_step(parameters, batch)[1:],
        np.float64,
    )


@together("compiled", [False, True])
def test_the_threshold_itself_counts_as_sure(compiled):
    """Where two classes are equally probable, r = 1, and a threshold of 1 leaves the prior means as
    they are.
    """
    model, parameters, (X, y, _) = problem(4, m=2, d=2, p=3, n=20, compiled=compiled)
    weights = parameters.weights[:, :1].repeat(2, axis=1)
    prior = np.einsum("qmdp,np,nr->qmdr", weights, X, X)
    found = [
        model.e_step(
            parameters._replace(weights=weights), (X, y, None), threshold=np.array([nu])
        ).moments
        for nu in (1.0, 0.99)
    ]
    assert np.allclose(found[0], prior) and not np.allclose(found[1], prior)


@together("value", [np.nan, np.inf, 1e200])
def test_what_overflows_is_noticed(value):
    """The engine, which looks at the objective and at the errors, stops; and no entry outside the
    table is read.
    """
    arrays, parameters, (X, y, _) = problem(1, n=300)
    X[7] = value
    loops = replace(arrays, compiled=True)
    with np.errstate(all="ignore"):
        assert (
            not np.isfinite(loops.e_step(parameters, (X, y, None)).log_likelihood).any()
            and np.isnan(loops.count_errors(parameters, (X, y, None)).errors).all()
        )
        with pytest.raises(FloatingPointError, match="objective"):
            em.fit(loops, parameters, (X, y, None), max_iter=3)


@together("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 20])
def test_the_loops_are_plain_python(dtype, d):
    """As Python they give what they give when compiled; with few rows of weights and with many, and
    with a constant input.
    """
    rng = np.random.default_rng(0)
    weights, x, sizes = (
        rng.standard_normal((2, 3, d, 5)).astype(dtype),
        rng.standard_normal((600, 4)).astype(dtype),
        np.array([d, d, 1], dtype),
    )
    weights[:, 2, 1:] = 0
    capsules, nu, w = (
        rng.integers(0, 3, (2, 600)).astype(np.int32),
        np.array([0.5, -np.inf], dtype),
        rng.random((2, 600)).astype(dtype),
    )
    arguments = (
        *kernels.weights_for(weights, 4),
        read_only(x),
        capsules,
        sizes,
        ratio_rows(sizes.sum() / 2, np.dtype(dtype)),
        nu,
        w,
    )
    assert (2 * 3 * d > kernels.FEW) == (d == 20)
    for learn in (True, False):
        (moments, sums), (known, totals) = (
            function(*arguments, learn)
            for function in (kernels.compiled_sums(), kernels.block_sums)
        )
        assert (
            np.allclose(sums, totals, rtol=1e-12 if dtype == np.float64 else 1e-6)
            and bool(np.any(moments)) == learn
        )
        assert np.allclose(
            moments,
            known,
            rtol=1e-9 if dtype == np.float64 else 1e-4,
            atol=1e-12 if dtype == np.float64 else 1e-3,
        )


@pytest.mark.parametrize("architecture", ["multiclass", "ovr", "ovo"])
def test_a_large_fit_is_compiled(architecture, monkeypatch):
    """The classifier asks whether it is worth while; with loops it learns what it learns with
    arrays, and plain EM never lowers its objective.
    """
    X, y = load_digits(return_X_y=True)
    model = CapsuleClassifier.paper(
        2,
        architecture=architecture,
        max_iter=12,
        patience=(12,),
        thresholds=(0,),
        momentum=0,
        monitor="likelihood",
    )
    with pytest.warns(UserWarning, match="max_iter"):
        arrays = model.fit(X, y)
    plain, history = arrays.coef_, arrays.history_["objective"]
    asked = []
    monkeypatch.setattr(learning, "worth_compiling", lambda *sizes: asked.append(sizes) or True)
    called = []
    monkeypatch.setattr(
        "capslit.capsules.engine.compiled_sums",
        lambda: called.append(0) or kernels.compiled_sums(),
    )
    with pytest.warns(UserWarning, match="max_iter"):
        loops = model.fit(X, y)
    capsules = {"multiclass": 10, "ovr": 20, "ovo": 18}[architecture]  # that see an example
    assert len(asked) == 1 and np.isclose(np.prod(asked), X.shape[0] * 65 * 2 * capsules) and called
    assert np.allclose(loops.coef_, plain, rtol=1e-6, atol=1e-9) and np.allclose(
        loops.history_["objective"], history, rtol=1e-9
    )
    assert np.all(np.diff(loops.history_["objective"], axis=0) >= -1e-9 * np.abs(history[1:]))


@together("kind", ["classes", "pairs", "capsules that differ", "a constant input"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_predict_what_arrays_predict(kind, dtype):
    """For blocks of one example, of a strip, of a tile and of parts of them; the elected class is
    the most probable one.
    """
    rng, k, d = np.random.default_rng(5), 10 if kind == "pairs" else 1, 3
    dims = np.full((k, 2 if k > 1 else 5), d)
    dims[:, 0] = 1 if kind == "capsules that differ" else d
    weights = rng.standard_normal((*dims.shape, d, 8)) * (
        np.arange(d)[:, None] < dims[..., None, None]
    )
    arrays = prediction.Predictor(weights, dims, pairs=k > 1)
    loops, eps = replace(arrays, compiled=True), np.finfo(dtype).eps
    for n in (
        1,
        kernels.STRIP,
        kernels.STRIP + 3,
        kernels.TILE,
        2 * kernels.TILE + kernels.STRIP + 1,
    ):
        x = rng.standard_normal((n, 8 - (kind == "a constant input"))).astype(dtype)
        x[0] *= 0
        p, known = loops.probabilities(x), arrays.probabilities(x)
        assert (
            loops._looped(x) is not None
            and p.dtype == dtype
            and np.allclose(p, known, rtol=100 * eps, atol=10 * eps)
        )
        assert np.array_equal(loops.labels(x), arrays.labels(x)) and np.array_equal(
            loops.labels(x), p.argmax(axis=1)
        )
        assert np.allclose(loops.scores(x), arrays.scores(x), rtol=100 * eps, atol=100 * eps)


@together("scale", [1e-30, 1e13, 1e18])
def test_loops_predict_at_any_scale(scale):
    """Where squared lengths overflow in single precision, arrays take over; where pose vectors do,
    the message says so.
    """
    rng = np.random.default_rng(0)
    arrays = prediction.Predictor(rng.standard_normal((1, 4, 2, 6)), np.full((1, 4), 2))
    x = (rng.standard_normal((300, 6)) * scale).astype(np.float32)
    loops = replace(arrays, compiled=True)
    assert (loops._looped(x) is None) == (scale == 1e18)
    assert np.allclose(loops.probabilities(x), arrays.probabilities(x), rtol=1e-5)
    with pytest.raises(ValueError, match="X is too large for this model"):
        loops.probabilities(np.sign(x) * np.float32(3e38))


@together("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "transform"])
def test_what_is_not_finite_is_named_although_it_is_looked_for_last(method, value):
    "Even where the weights of the feature are zero, which nothing but NaN and infinity survives."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 6)), np.arange(400) % 3
    X[:, 2] = 0
    model = CapsuleClassifier.paper(2, max_iter=3, patience=(2,), thresholds=(0,)).fit(X, y)
    model.coef_[..., 2] = 0
    X[350, 2] = value
    with pytest.raises(ValueError, match="X contains"):
        getattr(model, method)(X)


def test_large_predictions_are_compiled_and_shared_out(monkeypatch):
    "Which changes nothing but the last bits."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20_000, 40), dtype=np.float32), rng.integers(0, 3, 20_000)
    for architecture in ("multiclass", "ovo"):
        model = CapsuleClassifier.paper(
            3, architecture=architecture, max_iter=2, patience=(2,), thresholds=(0,)
        ).fit(X[:500], y[:500])
        p, labels = model.predict_proba(X), model.predict(X)
        assert p.shape == (20_000, 3) and all(
            np.allclose(p[i : i + 90], model.predict_proba(X[i : i + 90]), atol=1e-5)
            for i in (0, 8_150, 19_910)
        )
        asked, loops = [], kernels.compiled_probabilities
        with monkeypatch.context() as patch:
            patch.setattr(
                prediction, "worth_compiling", lambda *sizes, **passes: asked.append(sizes) or True
            )
            patch.setattr(
                prediction,
                "compiled_probabilities",
                lambda several: asked.append(several) or loops(several),
            )
            assert (
                np.allclose(model.predict_proba(X), p, atol=1e-5)
                and np.mean(model.predict(X) != labels) < 1e-3
            )
            one, two, three = (
                model.set_params(n_jobs=threads).predict_proba(X) for threads in (1, 2, 3)
            )
            assert np.array_equal(one, two) and np.array_equal(two, three)
        assert (
            asked[0] == (20_000, 41, 9 if architecture == "multiclass" else 18)
            and asked.count(architecture == "ovo") > 4
        )


@together("absent", ["installed", "on"])
def test_without_numba_arrays_are_used(absent, monkeypatch):
    import numba

    compiled.cache_clear()
    try:
        if absent == "installed":
            monkeypatch.setitem(sys.modules, "numba", None)
        else:
            monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
        assert kernels.compiled_sums() is None
        arrays, parameters, batch = problem(2)
        found = (
            replace(arrays, compiled=True).e_step(parameters, batch),
            arrays.e_step(parameters, batch),
        )
        assert all(np.array_equal(*pair) for pair in zip(*found))
    finally:
        compiled.cache_clear()


@together("when", ["at the beginning", "at the end"])
def test_a_disk_that_keeps_nothing_does_not_matter(when, monkeypatch):
    """Neither a folder that cannot be written to, nor a disk that is full once the loops are
    compiled.
    """
    from numba.core import caching

    def full(*_):
        raise OSError(28, "No space left on device")

    if when == "at the beginning":
        monkeypatch.setattr(
            caching.CacheImpl,
            "__init__",
            lambda *_: (_ for _ in ()).throw(
                RuntimeError("cannot cache function: no locator available")
            ),
        )
    else:
        monkeypatch.setattr(caching.FunctionCache, "load_overload", lambda *_: None)
        monkeypatch.setattr(caching.FunctionCache, "save_overload", full)
    compiled.cache_clear()
    try:
        arrays, parameters, batch = problem(2)
        assert kernels.compiled_sums() is not None
        assert close(
            replace(arrays, compiled=True).e_step(parameters, batch),
            arrays.e_step(parameters, batch),
            np.float64,
        )
    finally:
        compiled.cache_clear()


def test_a_small_fit_does_not_wait_for_numba():
    program = (
        "import sys\nfrom capslit import CapsuleClassifier\nimport numpy as np\nrng ="
        " np.random.default_rng(0)\nCapsuleClassifier.paper(2).fit(rng.standard_normal((150, 4)),"
        " np.arange(150) % 3)\nassert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=PATIENCE)
