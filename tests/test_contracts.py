"""What every estimator promises: any form of array, poor data, wrong arguments named before
anything changes, units, weights and copies.

The table of `estimators.py` says how each is made, in which ways it is tried, what it learns from,
and what it refuses. (Files: `test_saving`; functions and tables: `test_robustness`.)
"""

import inspect
import os
import pickle
import re
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import FORMS, examples
from estimators import BINARY, BITS, DISCRETE, ESTIMATORS, METHODS, NAN, N, P, X, Y
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

import capslit
from capslit import (
    CapsuleClassifier,
    ClassConditionalClassifier,
    CompositionalModel,
    FactorialHMM,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
)
from capslit.em.checkpoint import Checkpoint, CheckpointWarning
from capslit.mixtures.tangents import TangentDistanceClassifier

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings(f"error::{CheckpointWarning.__module__}.CheckpointWarning"),
]
QUANTIZERS = (FactorialVectorQuantizer, FactorialHMM)


def rows(only=ESTIMATORS, ways=None):
    "A case for each estimator in each of (the first) ways: test(entry, model), a model unfitted."
    return pytest.mark.parametrize(
        "entry, way",
        [
            pytest.param(ESTIMATORS[name], way, id=f"{name}{way or ''}")
            for name in only
            for way in ESTIMATORS[name].ways[:ways]
        ],
    )


@pytest.fixture
def model(entry, way):
    return clone(entry.estimator).set_params(**way)


@contextmanager
def noted(what):
    try:
        yield
    except BaseException as error:
        error.add_note(f"with {what!r}"[:300])
        raise


def outputs(model, X, but=()):
    "What all methods give for X, by name."
    found = {}
    for method in METHODS:
        if hasattr(model, method) and method not in but:
            parts = getattr(model, method)(X)
            parts = parts if isinstance(parts, tuple) else (parts,)
            found |= {f"{method} {i}": part for i, part in enumerate(parts)}
    return found


def assert_close(found, wanted, rtol=1e-6, atol=1e-8, but=()):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if name.split()[0] not in but:
            np.testing.assert_allclose(found[name], value, rtol, atol, err_msg=name)


def state(model):
    return pickle.dumps(sorted(vars(model).items()))


def takes(model, argument, method="fit"):
    return argument in inspect.signature(getattr(model, method)).parameters


def having(argument):
    return [name for name, entry in ESTIMATORS.items() if takes(entry.estimator, argument)]


def test_every_estimator_has_its_entry():
    names = {type(entry.estimator).__name__ for entry in ESTIMATORS.values()}
    assert {name for name in capslit.__all__ if hasattr(getattr(capslit, name), "fit")} <= names


@rows()
def test_every_fitted_attribute_is_documented(entry, model):
    model.fit(pd.DataFrame(entry.X, columns=list("abcd")), entry.y)
    section = inspect.getdoc(type(model)).partition("Attributes\n---")[2].partition("\nNotes\n")[0]
    heads = " ".join(re.findall(r"^\w.*?(?= :|$)", section, re.MULTILINE))
    fitted = {name for name in vars(model) if re.fullmatch(r"[a-z]\w*_", name)}
    assert fitted and fitted <= set(re.findall(r"\w+", heads))


# ── any form of array


@rows(ways=1)
def test_form_and_type_of_an_array_do_not_matter(entry, model):
    wanted = outputs(clone(model).fit(entry.X, entry.y), entry.X)
    for form, change in FORMS.items():
        with noted(form):
            given = change(entry.X)
            before = np.array(given, dtype=float)
            assert_close(outputs(clone(model).fit(given, entry.y), given), wanted)
            assert np.array_equal(np.array(given, dtype=float), before)  # not changed in place
    whole = np.rint(6 * entry.X / np.abs(entry.X).max()) if entry.X is X else entry.X
    for dtype in (np.int64, np.uint8, bool, np.float16, np.float32):
        with noted(dtype):
            numbers = np.abs(whole) if dtype is np.uint8 else whole
            given = (whole > 0 if dtype is bool else numbers).astype(dtype)
            found, wanted = (
                outputs(clone(model).fit(a, entry.y), a) for a in (given, given.astype(float))
            )
            assert all(np.all(np.isfinite(value)) for value in found.values())
            half = given.dtype.kind == "f"
            assert_close(found, wanted, *(0.02, 0.02, DISCRETE) if half else (1e-6, 1e-6))


# ── poor data

POOR = {
    "constant column": np.c_[X, np.full(N, 3.0)],
    "collinear columns": np.c_[X, 2 * X[:, 0]],
    "duplicated columns": np.c_[X, X],
    "rows of zeros": np.r_[X, np.zeros((20, P))],
    "constant": np.full((N, P), 7.3),
    "zero": np.zeros((N, P)),
    "duplicates": np.repeat(X[:3], 10, axis=0),
    "one example": X[:1],
    "two examples": X[:2],
    "wide": np.random.default_rng(0).standard_normal((6, 30)),
    "one feature": X[:, :1],
    "an outlier": np.r_[X, np.full((1, P), 1e12)],
    "boolean": X > 0,
    "tiny": 1e-100 * X,
    "enormous": 1e100 * X,
    "at the limit": X / np.abs(X).max() * 1e150,
    "offset": X + 1e8,
    "units": X * [1e-8, 1, 1e8, 1],
    "single precision": X.astype(np.float32),
    "large in single precision": (1e15 * X).astype(np.float32),
}
POOR_BITS = {
    "constant columns": np.c_[BITS, np.zeros(N), np.ones(N), np.ones(N), np.zeros(N)],
    "blank": np.zeros((10, P)),
    "full": np.ones((10, P)),
    "one example": BITS[:1],
    "two examples": BITS[:2],
    "one feature": BITS[:, :1],
    "boolean": BITS > 0,
}


@rows()
def test_poor_data_are_learned_from(entry, model):
    for name, data in (POOR if entry.X is X else POOR_BITS).items():
        n, p = data.shape
        whole = getattr(model, "transforms", None) is None or p == P
        if n < entry.least or name in entry.refuses or not whole:
            continue
        with noted(name):
            y = None if entry.y is None else np.arange(n) % (3 if n >= 6 else 2)
            if isinstance(model, TangentDistanceClassifier):
                model.set_params(n_neighbors=min(3, n))
            learned = clone(model).fit(data, y)
            assert all(np.all(np.isfinite(value)) for value in outputs(learned, data).values())
            if hasattr(learned, "predict_proba"):
                assert np.allclose(learned.predict_proba(data).sum(axis=-1), 1, atol=1e-5)
            if hasattr(learned, "sample"):
                drawn = learned.sample(6)[0]
                assert np.all(np.isfinite(drawn)) and drawn.shape == (6, p)
            if hasattr(learned, "inverse_transform"):
                assert learned.inverse_transform(learned.transform(data)).shape == data.shape
            if hasattr(learned, "history_"):
                assert np.all(np.isfinite(learned.history_["objective"][0]))


@rows([name for name in ESTIMATORS if name not in BINARY])
def test_units_do_not_matter(entry, model):
    # that of a Gaussian mixture is in the units of the inputs, as in scikit-learn
    absolute = {"reg_covar", "density__reg_covar"} & model.get_params().keys()
    model.set_params(**dict.fromkeys(absolute, 0))
    plain = clone(model).fit(X, entry.y)
    origin = 3 if isinstance(model, FactorialHMM) else 0
    for unit in (1e-140, 1e-3, 1e3, 1e140):
        with noted(unit):
            other = unit * (X + origin)
            scaled = clone(model).fit(other, entry.y)
            if hasattr(model, "predict_proba"):
                found = scaled.predict_proba(other)
                assert np.allclose(found, plain.predict_proba(X), atol=1e-3)
            if isinstance(model, QUANTIZERS):
                assert np.allclose(scaled.transform(other), plain.transform(X), atol=1e-3)
                assert np.isclose(scaled.score(other) + P * np.log(unit), plain.score(X), atol=1e-3)
            # the directions of a mixture of PCA have no unit
            turned = isinstance(model, MixtureOfPCA)
            for name in ("means_", "components_", "weights_")[: 1 if turned else 3]:
                value = getattr(plain, name, None)
                if isinstance(value, np.ndarray) and value.shape[-1] == P:
                    assert np.allclose(getattr(scaled, name) / unit, value, atol=1e-2)


@rows([name for name in ESTIMATORS if name not in BINARY])
def test_far_from_everything_nothing_is_nan(entry, model):
    "A density is zero where squared distances leave the range of numbers."
    far = np.array([[1e150, -1e150, 1e150, 1], [1e40] * P])
    model.fit(entry.X, entry.y)
    for method, value in outputs(model, far, ("decode", "kneighbors")).items():
        assert not np.any(np.isnan(value)), method
    if hasattr(model, "predict_proba"):
        assert np.allclose(model.predict_proba(far).sum(axis=-1), 1)
    if isinstance(model, (GaussianMixture, MixtureOfFactorAnalyzers, MixtureOfPCA)):
        assert np.all(model.score_samples(far) < -1e6)
        assert np.allclose(model.predict_proba(1e50 * far)[0], 0.5)
    if hasattr(model, "score_samples") and not isinstance(model, FactorialHMM):
        assert np.all(model.score_samples(1e150 * far) == -np.inf)
    log_density = getattr(model, "score_samples", getattr(model, "log_densities", None))
    for value in (1e200, -1e200, 1e308, -1e308) if log_density else ():
        far = entry.X[:4].copy()
        far[1, 0] = value
        with noted(value):
            assert np.all(log_density(far)[1] == -np.inf)
            assert np.all(np.isfinite(log_density(far)[0]))
    for value in (1e-300, 5e-324) if log_density else ():
        assert np.all(np.isfinite(log_density(np.full((3, P), value))))


SHIFTABLE = """CapsuleClassifier GaussianMixture MixtureOfFactorAnalyzers MixtureOfPCA
    ClassConditionalClassifier FactorialVectorQuantizer FactorialHMM"""


@rows(SHIFTABLE.split())
@pytest.mark.parametrize("dtype, offset", [(np.float64, 1e6), (np.float64, 1e9), (np.float32, 3e4)])
def test_the_origin_does_not_matter(entry, model, dtype, offset):
    "What remains of the inputs beside an offset decides: the spacing of numbers near it."
    if model.get_params().get("fit_intercept") is False:
        return
    shifted = (entry.X + offset).astype(dtype)
    left = shifted.astype(np.float64) - offset
    left += 1e3 * (np.ptp(left) if isinstance(model, CapsuleClassifier) else 1)
    wanted = outputs(clone(model).fit(left, entry.y), left)
    found = outputs(model.fit(shifted, entry.y), shifted)
    tolerance = 1e-3 if dtype == np.float64 else 2e-2
    names = {"predict_proba 0", "score_samples 0", "transform 0"} & wanted.keys()
    assert_close(*({name: o[name] for name in names} for o in (found, wanted)), *[tolerance] * 2)


# ── the same again


@rows()
def test_the_same_seed_makes_the_same_bits(entry, model, tmp_path):
    "In a clone, with more threads, after another fit, and in a file."
    wanted = outputs(model.fit(entry.X, entry.y), entry.X)
    assert repr(clone(model)) == repr(model)
    model.save(tmp_path / "model.npz")
    elsewhere = clone(model).fit(entry.X[10:], None if entry.y is None else entry.y[10:])
    others = {
        "clone": clone(model).fit(entry.X, entry.y),
        "file": type(model).load(tmp_path / "model.npz"),
        "fitted again": elsewhere.fit(entry.X, entry.y),
    }
    if "n_jobs" in model.get_params():
        others["threads"] = clone(model).set_params(n_jobs=2).fit(entry.X, entry.y)
    for name, other in others.items():
        with noted(name):
            assert_close(outputs(other, entry.X), wanted, rtol=0, atol=0)
            if hasattr(model, "sample"):
                assert all(map(np.array_equal, other.sample(5), model.sample(5)))


@rows(having("checkpoint"))
def test_a_run_goes_on_from_its_checkpoint(entry, model, tmp_path, monkeypatch):
    "To the same bits, after it was stopped in its second iteration; and no other run does."
    path, write, written = tmp_path / "run.npz", Checkpoint.write, []

    def stop(self, found):
        write(self, found)
        written.append(found.n_iter)
        if len(written) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoint, "write", stop)
        clone(model).fit(entry.X, entry.y, checkpoint=path, checkpoint_every=0)
    straight = clone(model).fit(entry.X, entry.y)
    resumed = clone(model).fit(entry.X, entry.y, checkpoint=path)
    assert resumed.n_iter_ == straight.n_iter_ > 2
    assert_close(outputs(resumed, entry.X), outputs(straight, entry.X), rtol=0, atol=0)
    other = 1 - entry.X if entry.X is BITS else entry.X[::-1] * [1, 2, 1, 1]
    with pytest.raises(ValueError, match="checkpoint"):
        clone(model).fit(other, entry.y, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint .* other settings"):
        clone(model).set_params(**entry.another_run).fit(entry.X, entry.y, checkpoint=path)


@rows(having("sample_weight"))
def test_weights_are_shares_and_rows_without_weight_count_nowhere(entry, model):
    "Whatever those rows hold, also a label that no other row has."

    def fitted(X, y, weight=None):
        return outputs(clone(model).fit(X, y, sample_weight=weight), entry.X)

    w = np.random.default_rng(1).random(N)
    wanted = fitted(entry.X, entry.y, w)
    for factor in (2.0**-700, 2.0**700):
        assert_close(fitted(entry.X, entry.y, factor * w), wanted)
    assert_close(fitted(entry.X, entry.y, np.ones(N)), fitted(entry.X, entry.y))

    @examples(4)
    @given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=N, max_size=N).map(np.array))
    def same(w):
        kept = w > 0
        assume(np.all(np.bincount(Y[kept], minlength=3) > 3) and not kept.all())
        far = 1 - entry.X if entry.X is BITS else 1e3 * entry.X
        labels, few = None, None
        if entry.y is not None:
            labels, few = np.where(kept, entry.y, 9), entry.y[kept]
        whole = fitted(np.where(kept[:, None], entry.X, far), labels, w)
        assert_close(whole, fitted(entry.X[kept], few, w[kept]), rtol=1e-12, atol=1e-14)

    same()


# ── what is wrong is named, and changes nothing


def wrong_inputs(model, good):
    """Arrays that cannot be learned from or judged, less what the model takes, as its tags say; and
    what the error must say.
    """
    tags = get_tags(model).input_tags
    if not tags.allow_nan:
        yield good + 0 * NAN, "X contains NaN in the column 2 .*SimpleImputer"
    wrong = [np.where(np.arange(P) == 1, value, good) for value in (np.inf, -np.inf)]
    if not tags.sparse:
        wrong += [form(good) for form in (sp.csr_matrix, sp.csc_array, sp.coo_matrix)]
    wrong += [good[0], good[:0], good[:, :0], good + 1j, np.full((len(good), P), "one")]
    wrong += [{"a": good[:, 0]}, 3.0, np.array(3.0), good[0].tolist(), iter(good)]
    wrong += [pd.DataFrame(good)[[]], np.full((len(good), P), 10**400, dtype=object)]
    for bad in (*wrong, None, "text", [[1], [1, 2]]):
        yield bad, "X"
    yield good[:, :, None], r"pass X\.reshape"
    frame = pd.DataFrame(good)
    yield frame.iloc[0], r"pass frame\.iloc\[\[0\]\]"
    yield frame[0], r"X\.to_frame\(\)"


def wrong_fits(entry, model, method="fit"):
    "Named arguments, and what the error must say."
    for bad, said in wrong_inputs(model, entry.X):
        yield {"X": bad}, said
    sized = (TangentDistanceClassifier, CompositionalModel, ClassConditionalClassifier)
    if not isinstance(model, sized) and entry.X is X:
        yield {"X": 1e200 * X}, "X"
        yield {"X": 1e-200 * X}, "X"
    if method == "fit" and entry.least > 1:
        one = {} if entry.y is None else {"y": entry.y[:1]}
        yield {"X": entry.X[:1]} | one, "X|n_samples|y|class .*"
    if entry.y is not None:
        mixed = np.array([None, "a", 3], dtype=object)[Y]
        for bad in (Y[:-5], np.c_[Y, Y], None, X[:, 0], np.where(Y, np.nan, 1.0), mixed, 3):
            yield {"y": bad}, "y|label"
    one, pair = np.ones(N), np.ones((N, 2))
    for name, said, values in (
        ("sample_weight", "sample_weight", (one[1:], -one, one * np.nan, one * np.inf, 0 * one)),
        ("sample_weight", "sample_weight", (pair, "a")),
        ("checkpoint", "checkpoint", (3.5,)),
        ("checkpoint", "folder", (os.curdir, os.devnull + "/run.npz")),
    ):
        for bad in values if takes(model, name, method) else ():
            yield {name: bad}, said
    if method == "fit":
        yield from entry.fits


def refused(model, call, said):
    before = state(model)
    kinds = (TypeError, ValueError, FloatingPointError, OSError)
    with pytest.raises(kinds, match=rf"(?s)(^|\W)({said})(\W|$)") as caught:
        call()
    words = str(caught.value)
    assert "\n\n" not in words.strip() and len(words) > 15
    assert not isinstance(caught.value, np.exceptions.AxisError)
    assert state(model) == before


@rows(ways=1)
def test_a_fit_that_fails_names_the_argument_and_changes_nothing(entry, model):
    frame = pd.DataFrame(entry.X, columns=list("abcd"))
    for learned in (clone(model), clone(model).fit(frame, entry.y)):
        for arguments, said in wrong_fits(entry, model):
            with noted(arguments):
                refused(
                    learned, lambda: learned.fit(**{"X": entry.X, "y": entry.y} | arguments), said
                )


@rows([name for name in ESTIMATORS if hasattr(ESTIMATORS[name].estimator, "partial_fit")])
def test_a_batch_that_fails_names_the_argument_and_changes_nothing(entry, model):
    if isinstance(model, CompositionalModel):
        model.set_params(init="online")
    learned = model.fit(entry.X, entry.y).partial_fit(entry.X, entry.y)
    wrong = list(wrong_fits(entry, model, "partial_fit"))
    if entry.y is not None:
        wrong += [({"X": X[:, :3]}, "X"), ({"y": Y + 1}, "y"), ({"classes": [0, 1]}, "classes")]
    for arguments, said in wrong:
        with noted(arguments):
            refused(
                learned,
                lambda: learned.partial_fit(**{"X": entry.X, "y": entry.y} | arguments),
                said,
            )


@rows([name for name in ESTIMATORS if ESTIMATORS[name].settings], ways=1)
def test_wrong_settings_are_named_and_change_nothing(entry, model):
    learned = clone(entry.estimator).fit(entry.X, entry.y)
    for settings, said in entry.settings:
        with noted(settings):
            changed = deepcopy(learned).set_params(**settings)
            refused(changed, lambda: changed.fit(entry.X, entry.y), said)


@rows(ways=1)
def test_wrong_calls_are_named_by_every_method_and_change_nothing(entry, model, tmp_path):
    fresh = clone(model)
    learned = model.fit(entry.X, entry.y)
    with pytest.raises(NotFittedError):
        fresh.save(tmp_path / "nowhere.npz")
    for method in (*METHODS, "score", "bic", "aic"):
        if not hasattr(learned, method):
            continue
        labels = (entry.y,) if method == "score" and entry.y is not None else ()
        for wrong, said in (*wrong_inputs(model, entry.X), (entry.X[:, :3], "X")):
            with noted((method, wrong)):
                refused(learned, lambda: getattr(learned, method)(wrong, *labels), said)
        with pytest.raises(NotFittedError):
            getattr(fresh, method)(entry.X, *labels)
    right = {"sample": (3,), "inverse_transform": (np.eye(6),), "add_class": (X, 9)}
    for method, arguments, said in entry.calls:
        named = arguments if isinstance(arguments, dict) else {}
        unnamed = () if named else arguments
        with noted((method, arguments)):
            refused(learned, lambda: getattr(learned, method)(*unnamed, **named), said)
            if method not in ("posterior_mean", "prototypes"):
                with pytest.raises(NotFittedError):
                    getattr(fresh, method)(*right.get(method, (entry.X[:1],)))


@rows(ways=1)
def test_an_interruption_changes_nothing(entry, model, monkeypatch):
    model.fit(entry.X, entry.y)
    before = state(model)

    def stop(*_, **__):
        raise KeyboardInterrupt

    for place in ("capslit.em.loop.accumulate_all", "capslit.mixtures.tangents.tangent_vectors"):
        monkeypatch.setattr(place, stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(1 - entry.X if entry.X is BITS else 2 * entry.X, entry.y)
    assert state(model) == before


GAPPY = [name for name, entry in ESTIMATORS.items() if hasattr(entry.estimator, "impute")]
HOLES = np.where(np.random.default_rng(0).random((N, P)) < 0.3, np.nan, X)
HOLES[0] = np.nan


@rows(GAPPY)
def test_rows_with_gaps_are_learned_judged_weighed_and_filled(entry, model):
    model.fit(HOLES)
    for name, value in outputs(model, HOLES).items():
        assert np.all(np.isfinite(value)), name
    # of nothing the density is 1, and only the weights say where it comes from
    assert np.isclose(model.score_samples(HOLES)[0], 0, atol=1e-12)
    assert np.allclose(model.predict_proba(HOLES)[0], model.weights_)
    filled = model.impute(HOLES)
    seen = ~np.isnan(HOLES)
    assert np.array_equal(filled[seen], HOLES[seen]) and np.all(np.isfinite(filled))
    assert np.allclose(filled[0], model.weights_ @ model.means_)
    assert model.impute(HOLES.astype(np.float32)).dtype == np.float32
    assert np.array_equal(model.impute(X), X)
    mixed = np.r_[HOLES[:5], X[5:]]  # rows do not depend on one another
    apart = np.r_[model.score_samples(HOLES)[:5], model.score_samples(X[5:])]
    assert np.allclose(model.score_samples(mixed), apart, rtol=1e-12)
    weight = np.random.default_rng(1).integers(0, 3, N)
    model.set_params(means_init=X[:2], max_iter=5)
    weighed = clone(model).fit(HOLES, sample_weight=weight)
    repeated = model.fit(np.repeat(HOLES, weight, axis=0))
    assert np.allclose(weighed.score_samples(HOLES), repeated.score_samples(HOLES), rtol=1e-8)
    assert np.isclose(weighed.lower_bound_, repeated.lower_bound_, rtol=1e-6)


@rows(GAPPY, ways=1)
def test_gaps_that_cannot_be_learned_from_are_named(entry, model):
    infinite = HOLES.copy()
    infinite[4, 1] = np.inf
    infinity = r"X contains infinity .* in the column 1 \(from 0\)"
    empty = np.where(np.arange(P) == 2, np.nan, HOLES)
    frame = pd.DataFrame(empty, columns=list("abcd"))
    weight = np.isnan(HOLES[:, 2]).astype(float)  # what is seen there has no weight
    for X_, options, said in (
        (infinite, {}, infinity),
        (empty, {}, r"X has no value in the column 2 \(from 0\).*leave such columns out"),
        (frame, {}, "X has no value in the column 'c'"),
        (HOLES, {"sample_weight": weight}, "X has no value in the column 2"),
        ([(HOLES[:15],), (HOLES[15:],)], {}, "X contains NaN"),
    ):
        with noted(said), pytest.raises(ValueError, match=said):
            model.fit(X_, **options)
    with pytest.raises(ValueError, match=infinity):
        model.fit(HOLES).predict(infinite)
    if takes(model, "tangents"):
        for method in (model.fit, model.score_samples):
            with pytest.raises(ValueError, match="tangents are for complete examples"):
                method(HOLES, tangents=np.zeros((N, 1, P)))
