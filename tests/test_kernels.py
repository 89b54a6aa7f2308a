"""Compiled E-steps and predictions: what arrays give, for every kind of problem; and who gets
them.
"""

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
from capslit.em.compiling import compiled

pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
KINDS = [{}, {"mixed": True}, {"affine": True}, {"mixed": True, "affine": True}]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SHORT = {"thresholds": (0,), "patience": (12,), "max_iter": 12}


def close(found, known, dtype=np.float64):
    for a, b in zip(found, known, strict=True):
        rtol, atol = (1e-11, 1e-11) if dtype == np.float64 else (2e-5, 1e-3 * np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def both(arrays, method, *arguments):
    "What loops and arrays give."
    return [
        getattr(model, method)(*arguments) for model in (replace(arrays, compiled=True), arrays)
    ]


@together("kind", KINDS)
@DTYPES
@pytest.mark.parametrize("architecture", ["multiclass", "ovr", "ovo"])
def test_loops_give_what_arrays_give(architecture, dtype, kind):
    """With weights for all problems or for each, with and without thresholds, for blocks of one
    example, of a tile and of parts of tiles.
    """
    for seed, n in enumerate((1, kernels.TILE, 3 * kernels.TILE + 7)):
        options = {"architecture": architecture, "weighted": True, "dtype": dtype} | kind
        arrays, parameters, (X, y, w) = problem(seed, n=n, **options)
        k = len(arrays.targets)
        for weight in (None, w, np.random.default_rng(seed).random((n, k)).astype(dtype)):
            batch = arrays.prepare((X, y, weight))
            for threshold in (None, np.linspace(0, 0.9, k)):
                close(*both(arrays, "e_step", parameters, batch, threshold), dtype)
            close(*both(arrays, "count_errors", parameters, batch), dtype)


@together("power", [-150, -30, 30, 150])
def test_loops_give_what_arrays_give_at_any_scale(power):
    arrays, parameters, (X, y, _) = problem(1, n=300)
    loops, known = both(arrays, "e_step", parameters, (X * 10.0**power, y, None))
    close(loops[1:], known[1:])


@together("compiled", [False, True])
def test_the_threshold_itself_counts_as_sure(compiled):
    """Where two classes are equally probable, r = 1, and a threshold of 1 leaves the prior means as
    they are.
    """
    model, parameters, (X, y, _) = problem(4, m=2, d=2, p=3, n=20, compiled=compiled)
    weights = parameters.weights[:, :1].repeat(2, axis=1)
    parameters = parameters._replace(weights=weights)
    prior = np.einsum("qmdp,np,nr->qmdr", weights, X, X)
    at, below = (
        model.e_step(parameters, (X, y, None), threshold=np.array([nu])).moments
        for nu in (1.0, 0.99)
    )
    assert np.allclose(at, prior)
    assert not np.allclose(below, prior)


@together("value", [np.nan, np.inf, 1e200])
def test_what_overflows_is_noticed(value):
    "The engine stops; and no entry outside the table is read."
    arrays, parameters, (X, y, _) = problem(1, n=300)
    X[7] = value
    batch, loops = (X, y, None), replace(arrays, compiled=True)
    with np.errstate(all="ignore"):
        assert not np.isfinite(loops.e_step(parameters, batch).log_likelihood).any()
        assert np.isnan(loops.count_errors(parameters, batch).errors).all()
        with pytest.raises(FloatingPointError, match="objective"):
            em.fit(loops, parameters, batch, max_iter=3)


@pytest.mark.parametrize("architecture", ["multiclass", "ovr", "ovo"])
def test_a_large_fit_is_compiled(architecture, monkeypatch):
    """The classifier asks whether it is worth while; with loops it learns what it learns with
    arrays, and plain EM never lowers its objective.
    """
    X, y = load_digits(return_X_y=True)
    plain = {"architecture": architecture, "momentum": 0, "monitor": "likelihood"}
    model = CapsuleClassifier.paper(2, **plain | SHORT)

    def learned():
        with pytest.warns(UserWarning, match="max_iter"):
            model.fit(X, y)
        return model.coef_, model.history_["objective"]

    coef, history = learned()
    asked, called = [], []
    monkeypatch.setattr(learning, "worth_compiling", lambda *sizes: asked.append(sizes) or True)
    monkeypatch.setattr(
        "capslit.capsules.engine.compiled_sums",
        lambda: called.append(0) or kernels.compiled_sums(),
    )
    by_loops, found = learned()
    capsules = {"multiclass": 10, "ovr": 20, "ovo": 18}[architecture]  # that see an example
    assert np.isclose(np.prod(asked), X.shape[0] * 65 * 2 * capsules) and called
    np.testing.assert_allclose(by_loops, coef, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found, history, rtol=1e-9)
    assert np.all(np.diff(found, axis=0) >= -1e-9 * np.abs(history[1:]))


@together("kind", ["classes", "pairs", "rest", "capsules that differ", "a constant input"])
@DTYPES
def test_loops_predict_what_arrays_predict(kind, dtype):
    "For blocks of one example, of a tile and of parts of them."
    rng = np.random.default_rng(5)
    dims = np.full((10, 2) if kind in ("pairs", "rest") else (1, 5), 3)
    if kind == "capsules that differ":
        dims[:, 0] = 1
    weights = rng.standard_normal((*dims.shape, 3, 8))
    weights *= np.arange(3)[:, None] < dims[..., None, None]
    arrays = prediction.Predictor(weights, dims, pairs=kind == "pairs")
    loops = replace(arrays, compiled=True)
    rtol = 100 * np.finfo(dtype).eps
    for n in (1, kernels.TILE, 2 * kernels.TILE + 65):
        x = rng.standard_normal((n, 8 - (kind == "a constant input"))).astype(dtype)
        x[0] *= 0
        assert loops._shares_by_loops(x) is not None
        P = loops.probabilities(x)
        assert P.dtype == dtype
        np.testing.assert_allclose(P, arrays.probabilities(x), rtol=rtol, atol=rtol / 10)
        np.testing.assert_allclose(loops.scores(x), arrays.scores(x), rtol=rtol, atol=rtol)
        assert np.array_equal(loops.labels(x), arrays.labels(x))
        # of a row of zeros all classes are equally probable
        assert np.array_equal(loops.labels(x)[1:], P.argmax(axis=1)[1:])


@together("scale", [1e-30, 1e13, 1e18])
def test_loops_predict_at_any_scale(scale):
    """Where squared lengths overflow in single precision, arrays take over; where pose vectors do,
    the message says so.
    """
    rng = np.random.default_rng(0)
    arrays = prediction.Predictor(rng.standard_normal((1, 4, 2, 6)), np.full((1, 4), 2))
    x = (rng.standard_normal((300, 6)) * scale).astype(np.float32)
    loops = replace(arrays, compiled=True)
    assert (loops._shares_by_loops(x) is None) == (scale == 1e18)
    assert np.allclose(loops.probabilities(x), arrays.probabilities(x), rtol=1e-5)
    with pytest.raises(ValueError, match="X is too large for this model"):
        loops.probabilities(np.sign(x) * np.float32(3e38))


@together("value", [np.nan, np.inf])
@together("method", ["predict", "predict_proba", "decision_function", "transform"])
def test_what_is_not_finite_is_named_although_it_is_looked_for_last(method, value):
    "Even where the weights of the feature are zero, which nothing but NaN and infinity survives."
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6))
    X[:, 2] = 0
    model = CapsuleClassifier.paper(2, **SHORT | {"patience": (2,)}).fit(X, np.arange(400) % 3)
    model.coef_[..., 2] = 0
    X[350, 2] = value
    with pytest.raises(ValueError, match="X contains"):
        getattr(model, method)(X)


@together("architecture, latent", [("multiclass", 9), ("ovo", 18)])
def test_large_predictions_are_compiled_and_shared_out(architecture, latent, monkeypatch):
    "Which changes nothing but the last bits."
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 40), dtype=np.float32)
    y = rng.integers(0, 3, 500)
    model = CapsuleClassifier.paper(3, architecture=architecture, **SHORT | {"patience": (2,)})
    P = model.fit(X[:500], y).predict_proba(X)
    labels = model.predict(X)
    for i in (0, 8_150, 19_910):
        assert np.allclose(P[i : i + 90], model.predict_proba(X[i : i + 90]), atol=1e-5)
    asked, loops = [], kernels.compiled_shares
    monkeypatch.setattr(prediction, "worth_compiling", lambda *sizes, **_: asked.append(sizes) or 1)
    monkeypatch.setattr(prediction, "compiled_shares", lambda: asked.append(loops) or loops())
    assert np.mean(model.predict(X) != labels) < 1e-3
    one, *others = (model.set_params(n_jobs=n).predict_proba(X) for n in (1, 2, 3))
    assert np.allclose(one, P, atol=1e-5)
    assert all(np.array_equal(one, other) for other in others)
    assert asked[0] == (20_000, 41, latent) and asked.count(loops) > 4


@pytest.fixture
def compiled_anew():
    compiled.cache_clear()
    yield
    compiled.cache_clear()


@together("absent", ["installed", "on"])
def test_without_numba_arrays_are_used(absent, monkeypatch, compiled_anew):
    import numba

    compiled.cache_clear()
    if absent == "installed":
        monkeypatch.setitem(sys.modules, "numba", None)
    else:
        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert kernels.compiled_sums() is None
    arrays, *arguments = problem(2)
    assert all(map(np.array_equal, *both(arrays, "e_step", *arguments)))


@pytest.mark.parametrize("when", ["at the beginning", "at the end"])
def test_a_disk_that_keeps_nothing_does_not_matter(when, monkeypatch, compiled_anew):
    "Neither a folder that cannot be written to, nor a disk that is full after compiling."
    from numba.core import caching

    def no_folder(*_):
        raise RuntimeError("cannot cache function: no locator available")

    def full(*_):
        raise OSError(28, "No space left on device")

    if when == "at the beginning":
        monkeypatch.setattr(caching.CacheImpl, "__init__", no_folder)
    else:
        monkeypatch.setattr(caching.FunctionCache, "load_overload", lambda *_: None)
        monkeypatch.setattr(caching.FunctionCache, "save_overload", full)
    assert kernels.compiled_sums() is not None
    arrays, *arguments = problem(2)
    close(*both(arrays, "e_step", *arguments))


def test_a_small_fit_does_not_wait_for_numba():
    program = """
import sys
import numpy as np
from capslit import CapsuleClassifier
X = np.random.default_rng(0).standard_normal((150, 4))
CapsuleClassifier.paper(2).fit(X, np.arange(150) % 3)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=PATIENCE)
