"""What every estimator promises: any form of array, poor data, wrong arguments named before
anything changes, units, weights, copies and files.

The table of `estimators.py` says how each is made, in which ways it is tried, what it learns from,
and which of its own settings and calls are refused. A test is a row of the contract. It has one
case for each estimator, which tries all its ways; a failure says with which.
"""

import functools
import inspect
import os
import pickle
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import FORMS, examples
from estimators import BINARY, BITS, DISCRETE, ESTIMATORS, METHODS, N, P, X, Y
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
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
    TableClassifier,
)
from capslit.em.checkpoint import Checkpoint, CheckpointWarning
from capslit.mixtures.tangents import TangentDistanceClassifier

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings(
        f"error::{CheckpointWarning.__module__}.{CheckpointWarning.__name__}"
    ),
]


def rows(*but, only=ESTIMATORS, ways=None):
    """A case for each estimator, `but` those named: test(entry, model) for an unfitted model in
    each of (the first) `ways`; it may ask for fixtures.
    """

    def decorate(test):
        @functools.wraps(test)
        def every(name, **fixtures):
            entry = ESTIMATORS[name]
            for way in entry.ways[:ways]:
                with noted(way):
                    test(entry, clone(entry.estimator).set_params(**way), **fixtures)

        left = [
            p
            for p in inspect.signature(test).parameters.values()
            if p.name not in ("entry", "model")
        ]
        every.__signature__ = inspect.Signature(
            [inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD), *left]
        )
        return pytest.mark.parametrize("name", [name for name in only if name not in but])(every)

    return decorate


@contextmanager
def noted(what):
    try:
        yield
    except BaseException as error:
        error.add_note(f"with {what!r}"[:300])
        raise


def outputs(model, X, but=()):
    "What all methods give for X, by name."
    said = {
        method: getattr(model, method)(X)
        for method in METHODS
        if hasattr(model, method) and method not in but
    }
    return {
        f"{method} {i}": part
        for method, parts in said.items()
        for i, part in enumerate(parts if isinstance(parts, tuple) else (parts,))
    }


def assert_close(found, wanted, rtol=1e-6, atol=1e-8):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if np.asarray(value).dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=name)
        else:
            assert np.array_equal(found[name], value), name


def state(model):
    return pickle.dumps(sorted(vars(model).items()))


def takes(model, argument, method="fit"):
    return argument in inspect.signature(getattr(model, method)).parameters


def test_every_estimator_has_its_entry():
    names = {type(entry.estimator).__name__ for entry in ESTIMATORS.values()}
    public = {name for name in capslit.__all__ if hasattr(getattr(capslit, name), "fit")}
    assert public <= names


# ── any form of array
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rows(ways=1)
def test_the_form_of_an_array_does_not_matter(entry, model):
    wanted = outputs(clone(model).fit(entry.X, entry.y), entry.X)
    for form, change in FORMS.items():
        with noted(form):
            given = change(entry.X)
            before = np.array(given, dtype=float)
            assert_close(outputs(clone(model).fit(given, entry.y), given), wanted)
            assert np.array_equal(
                np.array(given, dtype=float), before
            )  # nothing is changed in place


@rows(ways=1)
def test_the_type_of_the_numbers_does_not_matter(entry, model):
    whole = np.rint(6 * entry.X / np.abs(entry.X).max()) if entry.X is X else entry.X
    for dtype in (np.int64, np.int8, np.uint8, bool, np.float16, np.float32):
        with noted(dtype):
            given = (
                whole > 0
                if dtype is bool
                else (whole - whole.min() if dtype is np.uint8 else whole).astype(dtype)
            )
            exact = np.dtype(dtype).kind != "f"
            found, wanted = (
                outputs(clone(model).fit(a, entry.y), a) for a in (given, given.astype(float))
            )
            for method, value in wanted.items():
                assert np.all(np.isfinite(found[method])), method
                if exact:
                    np.testing.assert_allclose(
                        found[method], value, rtol=1e-6, atol=1e-8, err_msg=method
                    )
                elif method.split()[0] not in DISCRETE:
                    np.testing.assert_allclose(
                        found[method], value, rtol=0.02, atol=0.02, err_msg=method
                    )


@rows(ways=1)
def test_names_of_columns(entry, model):
    frame = pd.DataFrame(entry.X, columns=list("abcd"), index=np.arange(N) + 100)
    if hasattr(model, "transform"):
        model.set_output(transform="pandas")
    model.fit(frame, entry.y)
    assert model.feature_names_in_.tolist() == list("abcd") and model.n_features_in_ == P
    if hasattr(model, "transform"):
        out = model.transform(frame)
        assert (
            isinstance(out, pd.DataFrame)
            and out.index.equals(frame.index)
            and out.columns.tolist() == model.get_feature_names_out().tolist()
        )
    for method in ("predict", "score_samples", "transform"):
        if isinstance(model, TableClassifier):  # finds the columns by their names
            reordered = frame[frame.columns[::-1]]
            assert np.array_equal(model.predict(reordered), model.predict(frame))
        elif hasattr(model, method):
            with pytest.raises(ValueError, match="feature names"):
                getattr(model, method)(frame[frame.columns[::-1]])
    assert not hasattr(model.fit(entry.X, entry.y), "feature_names_in_")


@rows(ways=1)
def test_pipelines_and_searches(entry, model):
    own = model.fit(entry.X, entry.y)
    pipeline = make_pipeline(FunctionTransformer(), clone(model)).fit(entry.X, entry.y)
    assert_close(
        outputs(pipeline, entry.X),
        {
            name: value
            for name, value in outputs(own, entry.X).items()
            if hasattr(pipeline, name.split()[0])
        },
    )
    parameter = sorted(own.get_params(deep=False))[0]
    search = GridSearchCV(clone(model), {parameter: [own.get_params()[parameter]]}, cv=2).fit(
        entry.X, entry.y
    )
    assert np.isfinite(search.best_score_)


# ── poor data
# ─────────────────────────────────────────────────────────────────────────────────────────────────


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
    "integers": (8 * X).astype(int),
}
POOR_BITS = {
    "constant columns": np.c_[BITS, np.zeros(N), np.ones(N), np.ones(N), np.zeros(N)],
    "blank": np.zeros((10, P)),
    "full": np.ones((10, P)),
    "one example": BITS[:1],
    "two examples": BITS[:2],
    "one feature": BITS[:, :1],
    "boolean": BITS > 0,
    "small integers": BITS.astype(np.int8),
}


@rows()
def test_poor_data_are_learned_from(entry, model):
    for name, data in (POOR if entry.X is X else POOR_BITS).items():
        if (
            len(data) < entry.least
            or name in entry.refuses
            or getattr(model, "transforms", None)
            and data.shape[1] != P
        ):
            continue
        with noted(name):
            y = None if entry.y is None else np.arange(len(data)) % (3 if len(data) >= 6 else 2)
            if isinstance(model, TangentDistanceClassifier):
                model = clone(model).set_params(n_neighbors=min(3, len(data)))
            learned = clone(model).fit(data, y)
            for method, value in outputs(learned, data).items():
                assert np.all(np.isfinite(value)), method
            if hasattr(learned, "predict_proba"):
                assert np.allclose(learned.predict_proba(data).sum(axis=-1), 1, atol=1e-5)
            if hasattr(learned, "sample"):
                assert np.all(np.isfinite(learned.sample(6)[0])) and learned.sample(6)[0].shape == (
                    6,
                    data.shape[1],
                )
            if hasattr(learned, "inverse_transform"):
                assert learned.inverse_transform(learned.transform(data)).shape == data.shape
            if hasattr(learned, "history_"):
                assert np.all(np.isfinite(learned.history_["objective"][0]))


@rows(*BINARY)
def test_units_do_not_matter(entry, model):
    given = model.get_params()
    absolute = [name for name in ("reg_covar", "density__reg_covar") if name in given]
    model.set_params(
        **dict.fromkeys(absolute, 0)
    )  # of a Gaussian mixture: in the units of the inputs, as in scikit-learn
    plain, origin = clone(model).fit(X, entry.y), 3 if isinstance(model, FactorialHMM) else 0
    for unit in (1e-140, 1e-3, 1e3, 1e140):
        with noted(unit):
            other = unit * (X + origin)
            scaled = clone(model).fit(other, entry.y)
            for method in (
                "predict_proba",
                *(
                    ["transform"]
                    if isinstance(model, (FactorialVectorQuantizer, FactorialHMM))
                    else []
                ),
            ):
                if hasattr(model, method):
                    assert np.allclose(
                        getattr(scaled, method)(other), getattr(plain, method)(X), atol=1e-3
                    )
            for name in (
                ("means_", "components_", "weights_")
                if not isinstance(model, MixtureOfPCA)
                else ("means_",)
            ):
                value = getattr(plain, name, None)
                if isinstance(value, np.ndarray) and value.shape[-1] == P:
                    assert np.allclose(getattr(scaled, name) / unit, value, atol=1e-2)
            if isinstance(model, (FactorialVectorQuantizer, FactorialHMM)):
                assert np.isclose(scaled.score(other) + P * np.log(unit), plain.score(X), atol=1e-3)


@rows(*BINARY)
def test_far_from_everything_nothing_is_nan(entry, model):
    far = np.array([[1e150, -1e150, 1e150, 1], [1e40] * P])
    model.fit(entry.X, entry.y)
    for method, value in outputs(model, far, ("decode", "kneighbors")).items():
        assert not np.any(np.isnan(value)), method
    if hasattr(model, "predict_proba"):
        assert np.allclose(model.predict_proba(far).sum(axis=-1), 1)
    if isinstance(model, (GaussianMixture, MixtureOfFactorAnalyzers, MixtureOfPCA)):
        assert np.all(model.score_samples(far) < -1e6) and np.allclose(
            model.predict_proba(1e50 * far)[0], 0.5
        )
    if hasattr(model, "score_samples") and not isinstance(model, FactorialHMM):
        assert np.all(model.score_samples(1e150 * far) == -np.inf)


@rows("FactorialHMM")
def test_each_example_is_judged_by_itself(entry, model):
    model.fit(entry.X, entry.y)
    whole, order = outputs(model, entry.X, ("kneighbors",)), np.random.default_rng(0).permutation(N)
    assert_close(
        outputs(model, entry.X[order], ("kneighbors",)),
        {name: value[order] for name, value in whole.items()},
        atol=1e-10,
    )
    single = [outputs(model, x[None], ("kneighbors",)) for x in entry.X]
    assert_close(
        {name: np.concatenate([one[name] for one in single]) for name in whole}, whole, atol=1e-10
    )


# ── the same again
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@rows()
def test_the_same_seed_makes_the_same_bits(entry, model, tmp_path):
    "In a clone, with more threads, after another fit, in a pickle and in a file."
    wanted = outputs(model.fit(entry.X, entry.y), entry.X)
    assert clone(model).get_params().keys() == model.get_params().keys() and repr(
        clone(model)
    ) == repr(model)
    model.save(tmp_path / "model.npz")
    others = {
        "clone": clone(model).fit(entry.X, entry.y),
        "pickle": pickle.loads(pickle.dumps(model)),
        "file": type(model).load(tmp_path / "model.npz"),
        "fitted again": clone(model)
        .fit(entry.X[::-1][:20], None if entry.y is None else entry.y[::-1][:20])
        .fit(entry.X, entry.y),
    }
    if "n_jobs" in model.get_params():
        others["threads"] = clone(model).set_params(n_jobs=2).fit(entry.X, entry.y)
    for name, other in others.items():
        with noted(name):
            found = outputs(other, entry.X)
            assert (
                all(np.array_equal(found[method], value) for method, value in wanted.items())
                and found.keys() == wanted.keys()
            )
            if hasattr(model, "sample"):
                assert all(map(np.array_equal, other.sample(5), model.sample(5)))
    (tmp_path / "model.npz").unlink()


@rows(only=[name for name, entry in ESTIMATORS.items() if takes(entry.estimator, "checkpoint")])
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
    straight, resumed = (
        clone(model).fit(entry.X, entry.y),
        clone(model).fit(entry.X, entry.y, checkpoint=path),
    )
    found, wanted = outputs(resumed, entry.X), outputs(straight, entry.X)
    assert resumed.n_iter_ == straight.n_iter_ > 2 and all(
        np.array_equal(found[method], value) for method, value in wanted.items()
    )
    other = 1 - entry.X if entry.X is BITS else entry.X[::-1] * [1, 2, 1, 1]
    with pytest.raises(ValueError, match="checkpoint"):
        clone(model).fit(other, entry.y, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint .* other settings"):
        clone(model).set_params(**entry.another_run).fit(entry.X, entry.y, checkpoint=path)
    path.unlink()


WEIGHED = [name for name, entry in ESTIMATORS.items() if takes(entry.estimator, "sample_weight")]


@rows(only=WEIGHED)
def test_weights_of_any_size_are_shares(entry, model):
    w = np.random.default_rng(1).random(N)
    wanted = outputs(clone(model).fit(entry.X, entry.y, sample_weight=w), entry.X)
    for factor in (2.0**-700, 2.0**700):
        with noted(factor):
            assert_close(
                outputs(clone(model).fit(entry.X, entry.y, sample_weight=factor * w), entry.X),
                wanted,
            )
    ones = outputs(clone(model).fit(entry.X, entry.y, sample_weight=np.ones(N)), entry.X)
    assert_close(ones, outputs(clone(model).fit(entry.X, entry.y), entry.X))


@rows(only=WEIGHED)
def test_examples_without_weight_have_no_say(entry, model):
    w = (np.arange(N) < 24) * 1.0
    spoiled = np.where(w[:, None] > 0, entry.X, 1 - entry.X if entry.X is BITS else -3 * entry.X)
    one, other = (clone(model).fit(a, entry.y, sample_weight=w) for a in (entry.X, spoiled))
    if isinstance(model, CapsuleClassifier):
        assert_close(outputs(other, entry.X), outputs(one, entry.X))
    elif hasattr(model, "lower_bound_"):
        assert np.isfinite(other.lower_bound_)


@rows(only=WEIGHED)
def test_rows_of_weight_zero_count_nowhere(entry, model):
    "A fit without them is the same, whatever they hold, also a label that no other row has."

    @examples(4)
    @given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=N, max_size=N).map(np.array))
    def same(w):
        kept = w > 0
        assume(np.all(np.bincount(Y[kept], minlength=3) > 3) and not kept.all())
        far = 1 - entry.X if entry.X is BITS else 1e3 * entry.X
        inputs = np.where(kept[:, None], entry.X, far)
        labels = entry.y if entry.y is None else np.where(kept, entry.y, 9)
        whole = clone(model).fit(inputs, labels, sample_weight=w)
        part = clone(model).fit(
            entry.X[kept], entry.y if entry.y is None else entry.y[kept], sample_weight=w[kept]
        )
        assert_close(outputs(whole, entry.X), outputs(part, entry.X), rtol=1e-12, atol=1e-14)

    same()


SHIFTABLE = (
    "CapsuleClassifier",
    "GaussianMixture",
    "MixtureOfFactorAnalyzers",
    "MixtureOfPCA",
    "ClassConditionalClassifier",
    "FactorialVectorQuantizer",
    "FactorialHMM",
)


@rows(only=SHIFTABLE)
def test_the_origin_does_not_matter(entry, model):
    "What remains of the inputs beside an offset decides: the spacing of numbers near it."
    if model.get_params().get("fit_intercept") is False:
        return
    for dtype, offsets in ((np.float64, (1e6, 1e9)), (np.float32, (3e4,))):
        for offset in offsets:
            with noted((dtype.__name__, offset)):
                shifted = (entry.X + offset).astype(dtype)
                left = shifted.astype(np.float64) - offset
                near = 1e3 * (np.ptp(left) if isinstance(model, CapsuleClassifier) else 1)
                wanted = clone(model).fit(left + near, entry.y)
                learned = clone(model).fit(shifted, entry.y)
                for method in ("predict_proba", "score_samples", "transform"):
                    if hasattr(learned, method):
                        np.testing.assert_allclose(
                            getattr(learned, method)(shifted),
                            getattr(wanted, method)(left + near),
                            atol=1e-3 if dtype == np.float64 else 2e-2,
                            rtol=1e-3 if dtype == np.float64 else 2e-2,
                            err_msg=method,
                        )


# ── what is wrong is named, and changes nothing
# ──────────────────────────────────────────────────────────────────────────────


def wrong_inputs(good):
    "Arrays that cannot be learned from or judged."
    yield from (np.where(np.arange(P) == 1, value, good) for value in (np.nan, np.inf, -np.inf))
    yield from (
        good[0],
        good[:, :, None],
        good[:0],
        good[:, :0],
        sp.csr_matrix(good),
        sp.csc_array(good),
        sp.coo_matrix(good),
        good + 1j,
        np.full((len(good), P), "one"),
        None,
        "text",
        [[1], [1, 2]],
    )


def taken(model, bad):
    "Whether the model takes such inputs, as its tags say: sparse ones, or gaps."
    tags = get_tags(model).input_tags
    if isinstance(bad, np.ndarray) and bad.dtype.kind == "f":
        return tags.allow_nan and bool(np.isnan(bad).any())
    return sp.issparse(bad) and tags.sparse


def wrong_fits(entry, model, method="fit"):
    "Named arguments, and what the error must say."
    for bad in wrong_inputs(entry.X):
        if not taken(model, bad):
            yield {"X": bad}, r"pass X\.reshape" if getattr(bad, "ndim", 2) == 3 else "X"
    if (
        not isinstance(model, (TangentDistanceClassifier, CompositionalModel))
        and entry.X is X
        and not isinstance(model, ClassConditionalClassifier)
    ):
        yield {"X": 1e200 * X}, "X"
        yield {"X": 1e-200 * X}, "X"
    if method == "fit" and entry.least > 1:
        yield (
            {"X": entry.X[:1], "y": None if entry.y is None else entry.y[:1]},
            "X|n_samples|y|class .*",
        )
    if entry.y is not None:
        for bad in (
            Y[:-5],
            np.c_[Y, Y],
            None,
            X[:, 0],
            np.where(Y, np.nan, 1.0),
            np.array([None, "a", 3], dtype=object)[Y],
            3,
        ):
            yield {"y": bad}, "y|label"
    if takes(model, "sample_weight", method):
        for bad in (
            np.ones(N - 1),
            -np.ones(N),
            np.full(N, np.nan),
            np.full(N, np.inf),
            np.zeros(N),
            np.ones((N, 2)),
            "heavy",
        ):
            yield {"sample_weight": bad}, "sample_weight"
    if takes(model, "checkpoint", method):
        for bad, said in (
            (3.5, "checkpoint"),
            (os.curdir, "folder|checkpoint"),
            (os.devnull + "/run.npz", "folder|checkpoint"),
        ):
            yield {"checkpoint": bad}, said
    if method == "fit":
        yield from entry.fits


def refused(model, call, said):
    before = state(model)
    with pytest.raises(
        (TypeError, ValueError, FloatingPointError, OSError), match=rf"(?s)(^|\W)({said})(\W|$)"
    ) as caught:
        call()
    assert (
        "\n\n" not in str(caught.value).strip()
        and len(str(caught.value)) > 15
        and not isinstance(caught.value, np.exceptions.AxisError)
    )
    assert state(model) == before


@rows(ways=1)
def test_a_fit_that_fails_names_the_argument_and_changes_nothing(entry, model):
    for learned in (
        clone(model),
        clone(model).fit(pd.DataFrame(entry.X, columns=list("abcd")), entry.y),
    ):
        for arguments, said in wrong_fits(entry, model):
            with noted(arguments):
                arguments = {"X": entry.X} | ({} if entry.y is None else {"y": entry.y}) | arguments
                refused(learned, lambda: learned.fit(**arguments), said)


@rows(only=[name for name, entry in ESTIMATORS.items() if hasattr(entry.estimator, "partial_fit")])
def test_a_batch_that_fails_names_the_argument_and_changes_nothing(entry, model):
    model.set_params(**({"init": "online"} if isinstance(model, CompositionalModel) else {}))
    learned = model.fit(entry.X, entry.y).partial_fit(entry.X, entry.y)
    more = (
        []
        if entry.y is None
        else [({"X": X[:, :3]}, "X"), ({"y": Y + 1}, "y"), ({"classes": [0, 1]}, "classes")]
    )
    for arguments, said in (*wrong_fits(entry, model, "partial_fit"), *more):
        with noted(arguments):
            arguments = {"X": entry.X} | ({} if entry.y is None else {"y": entry.y}) | arguments
            refused(learned, lambda: learned.partial_fit(**arguments), said)


@pytest.mark.parametrize("name", [name for name, entry in ESTIMATORS.items() if entry.settings])
def test_wrong_settings_are_named_and_change_nothing(name):
    entry = ESTIMATORS[name]
    learned = clone(entry.estimator).fit(entry.X, entry.y)
    for settings, said in entry.settings:
        with noted(settings):
            changed = pickle.loads(pickle.dumps(learned)).set_params(**settings)
            refused(changed, lambda: changed.fit(entry.X, entry.y), said)


@rows(ways=1)
def test_wrong_inputs_are_named_by_every_method(entry, model):
    fresh = clone(model)
    learned = model.fit(entry.X, entry.y)
    for method in (*METHODS, "score", "bic", "aic"):
        if not hasattr(learned, method):
            continue
        labels = (entry.y,) if method == "score" and entry.y is not None else ()
        with noted(method):
            for wrong in (
                *(bad for bad in wrong_inputs(entry.X) if not taken(model, bad)),
                entry.X[:, :3],
            ):
                with noted(wrong):
                    refused(learned, lambda: getattr(learned, method)(wrong, *labels), "X")
            with pytest.raises(NotFittedError):
                getattr(fresh, method)(entry.X, *labels)


@rows(ways=1)
def test_wrong_calls_are_named_and_change_nothing(entry, model):
    fresh = clone(model)
    learned = model.fit(entry.X, entry.y)
    for method, arguments, said in entry.calls:
        if not hasattr(learned, method):  # not in this way
            continue
        with noted((method, arguments)):
            call = (
                (lambda: getattr(learned, method)(**arguments))
                if isinstance(arguments, dict)
                else (lambda: getattr(learned, method)(*arguments))
            )
            refused(learned, call, said)
    for method in {method for method, _, _ in entry.calls} - {"posterior_mean", "prototypes"}:
        arguments = {
            "sample": (3,),
            "inverse_transform": (np.eye(6),),
            "add_class": (X, 9),
            "pose_distribution": ([0],),
        }.get(method, (entry.X,))
        with pytest.raises(NotFittedError):
            getattr(fresh, method)(*arguments)
    with pytest.raises(NotFittedError):
        fresh.save("nowhere.npz")


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
    monkeypatch.undo()
