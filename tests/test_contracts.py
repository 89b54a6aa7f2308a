"""What every estimator promises: any form of array, poor data, wrong arguments named before
anything changes, units, weights, copies and files.

`ESTIMATORS` says how each is made, in which ways it is tried, what it learns from, and which of its
own settings and calls are refused. A test is a row of the contract. It has one case for each
estimator, which tries all its ways; a failure says with which.
"""

import functools
import inspect
import os
import pickle
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import FORMS, examples
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
)
from capslit.composition import GaussianCompositionalModel, Transforms
from capslit.deeper.patches import PatchFeatures
from capslit.deeper.sharing import SharedCapsuleClassifier
from capslit.em.checkpoint import Checkpoint, CheckpointWarning
from capslit.mixtures.tangents import TangentDistanceClassifier
from capslit.capsules.settings import Schedule

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings(
        f"error::{CheckpointWarning.__module__}.{CheckpointWarning.__name__}"
    ),
]
rng = np.random.default_rng(3)
N, P = 30, 4
Y = rng.permutation(np.arange(N) % 3)
X = rng.standard_normal((N, P)) + 2.5 * rng.standard_normal((3, P))[Y]
BITS = (X > X.mean(axis=0)).astype(float)
METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "score_samples",
    "squash",
    "codes",
    "reconstruct",
    "log_densities",
    "predict_joint_log_proba",
    "kneighbors",
    "decode",
)
DISCRETE = ("predict", "kneighbors", "decode")


class Entry(NamedTuple):
    """An estimator; ways: settings to try.

    X, y: what it learns from; settings, fits, calls: what it refuses, and a pattern for what is
    then said.
    """

    estimator: Any
    ways: tuple = ({},)
    X: np.ndarray = X
    y: np.ndarray | None = None
    least: int = 2  # examples
    refuses: tuple = ()  # of the poor data
    settings: tuple = ()  # (settings, pattern)
    fits: tuple = ()  # (named arguments of fit, pattern)
    calls: tuple = ()  # (method, arguments, pattern)


def each(name, *values):
    "The settings {name: value} for each value, and the last part of the name as what is said."
    return tuple(({name: value}, name.rpartition("__")[2]) for value in values)


EM = (*each("tol", -1, np.nan), *each("max_iter", 0, 2.5), *each("random_state", "now"))
SEVERAL = (*each("patience", 0), *each("n_init", 0), *each("n_jobs", "two"))
MIXTURE = (
    *EM,
    *SEVERAL,
    *each("init_params", "best", None),
    *each("warm_start", "yes"),
    *each("n_components", 0, N + 1, 1.5),
)
MANIFOLD = (*MIXTURE, *each("responsibilities", "firm"), *each("acceleration", "fast"))
T = np.zeros((N, 3, P))
TANGENTS = each("tangents", T[:-1], T[:, :, :2], T[:, 0], T * np.nan, T.astype(str), "many")
TOO_SMALL = (({"X": (1e-30 * X).astype(np.float32)}, "X"),)
SKEW = np.stack([np.eye(P) + np.triu(np.ones((P, P)), 1)] * 2)
NAN = X.copy()
NAN[3, 2] = np.nan
SAMPLE = tuple(("sample", (n,), "n_samples") for n in (0, -1, 2.5, True, "three"))
VALIDATION = [
    ({"X_val": X}, "y_val"),
    ({"y_val": Y}, "X_val"),
    ({"sample_weight_val": Y}, "sample_weight_val"),
    ({"X_val": X, "y_val": Y + 1}, "y_val"),
    ({"X_val": X, "y_val": Y[:9]}, "y_val"),
    ({"X_val": X, "y_val": np.array(list("abc"))[Y]}, "y_val"),
    ({"X_val": X, "y_val": Y + 0.5}, "y_val"),
    ({"X_val": X, "y_val": Y, "sample_weight_val": np.zeros(N)}, "sample_weight_val"),
    ({"X": X * 1e-100, "X_val": X * 1e100, "y_val": Y}, "validation"),
    *(
        ({"X_val": bad, "y_val": Y[: len(bad)] if isinstance(bad, np.ndarray) else Y}, "X_val")
        for bad in (X[:, :2], NAN, X[:0], sp.csr_array(X[:, :2]))
    ),
]
CAPSULES = (
    *each(
        "capsule_dim",
        0,
        -1,
        2.5,
        "two",
        None,
        True,
        [],
        [1, 0],
        {0: 1, 1: 2},
        {0: 1, 1: 2, 2: 0},
        {0: 1, 1: 2, 2: 2.5},
        {},
    ),
    *each(
        "schedule__thresholds",
        (0.5,),
        (),
        0.5,
        "a",
        ("a", "b"),
        (np.nan, 0),
        (1.5, 0),
        (-0.1, 0),
        [[0.5], [0.0]],
    ),
    *each("schedule__patience", (0, 1), (2.5, 1), ("x", 1), (np.inf, 1), (4, 4, 4), 3),
    *each(
        "schedule__init",
        "best",
        None,
        np.ones((2, 2)),
        np.full((3, 2, P), np.nan),
        [["a"]],
        np.ones((3, 3, P)),
    ),
    *each("alpha", -1, np.nan, np.inf),
    *(
        (({name: value}, name.rpartition("__")[2]))
        for name, value in {
            "architecture": "pairs",
            "schedule__monitor": "loss",
            "schedule__init_scale": 0,
            "schedule__momentum": 1,
            "schedule": "paper",
            "penalty": 0.1,
            "online": "stepwise",
            "max_iter": 0,
            "tol": -1.0,
            "n_jobs": 0,
            "fit_intercept": "yes",
            "random_state": "seed",
            "verbose": -1,
            "early_stopping": "often",
            "warm_start": 2.0,
        }.items()
    ),
    ({"early_stopping": 0.995}, "early_stopping"),
    ({"schedule__init": "random", "schedule__init_scale": 1e200}, "parameters"),
)
QUANTIZER = (
    *EM,
    *SEVERAL,
    *each("init", "best"),
    *each("n_vectors", 0),
    *each("n_states", 1.5),
    *each("e_step", "quick"),
    *each("observable", "normal"),
    *each("noise", 0, "fixed", np.inf, np.nan, 1e300),
    *each("priors", "some"),
    *each("n_samples", 0),
    *each("burn_in", -1),
    *each("n_sweeps", 0),
    *each("n_configurations", 0),
    *each("ridge", -1, np.inf),
    *each("min_noise", 0),
    *each("acceleration", "fast"),
    ({"acceleration": "squarem", "e_step": "gibbs"}, "acceleration"),
    (
        {"n_vectors": 10, "n_states": 10, "e_step": "exact"},
        "use 'truncated', 'mean_field' or 'gibbs'",
    ),
    ({"observable": "bernoulli", "e_step": "gibbs"}, "needs e_step='exact'"),
)
LABELS = [Y[:9], np.c_[Y, Y], Y + 1, Y + 0.5, np.array(list("abc"))[Y], None, 0, Y * np.nan]

ESTIMATORS = {
    "CapsuleClassifier": Entry(
        CapsuleClassifier.paper(
            2, thresholds=(0.5, 0.0), patience=(4, 4), n_jobs=1, random_state=0
        ),
        ({}, {"architecture": "ovr", "fit_intercept": False}, {"architecture": "ovo"}),
        y=Y,
        settings=CAPSULES,
        fits=(
            *VALIDATION,
            ({"y": Y * 0}, "y"),
            ({"sample_weight": np.full(N, 5e307)}, "sample_weight"),
            ({"X": (X * 1e37).astype(np.float32)}, "X"),
        ),
        calls=tuple(
            (method, (X, y), "y") for method in ("posterior_mean", "prototypes") for y in LABELS
        ),
    ),
    "SharedCapsuleClassifier": Entry(
        SharedCapsuleClassifier(
            2,
            schedule=Schedule((0.5, 0.0), (4, 4), monitor="error"),
            n_jobs=1,
            random_state=0,
        ),
        (
            {},
            {"window": 1, "shifts": (0, 1), "fit_intercept": False},
            {"window": (1, 1), "shifts": 0, "stride": 1, "n_maps": 1},
        ),
        y=Y,
        settings=(
            *each("capsule_dim", 0, 2.5, "two", None, True, [2]),
            *each("image_shape", (8, 9), (4,), (2.0, 2.0), "square"),
            *each("shifts", -1, 1.5, (1, 2, 3), "far"),
            *each("window", 3, 0, (1, 1, 1), "all"),
            *each("stride", 0),
            *each("n_maps", 0, 1),
            *each("alpha", -1, np.nan, "some"),
            *each("sharpness", 0),
            *each("schedule__thresholds", (0.5,), "a"),
            *each("schedule__patience", (0, 1)),
            *each("schedule__momentum", 1),
            *each("max_iter", 0),
            *each("schedule__monitor", "loss"),
            *each("n_jobs", 0),
        ),
        fits=(*VALIDATION, ({"y": Y * 0}, "y")),
        calls=tuple(
            (method, (X, y), "y") for method in ("posterior_mean", "prototypes") for y in LABELS
        ),
    ),
    "GaussianMixture": Entry(
        GaussianMixture(2, n_jobs=1, random_state=0),
        (
            {},
            {"covariance_type": "diag"},
            {"covariance_type": "tied"},
            {"covariance_type": "spherical"},
        ),
        settings=(
            *MIXTURE,
            *each("covariance_type", "round"),
            *each("reg_covar", -1),
            *each("weights_init", [0.5, 0.6], [1.5, -0.5], [1.0], [np.nan, 1], "even"),
            *each("means_init", X[:3], X[:2, :3], NAN[2:4]),
            *each(
                "precisions_init",
                np.ones((2, 3)),
                -np.ones((2, 4)),
                SKEW,
                np.zeros((2, 4, 4)),
                np.ones((2, 4, 4)),
                np.full((2, 4), np.inf),
            ),
        ),
        fits=TOO_SMALL,
        calls=SAMPLE,
    ),
    "MixtureOfFactorAnalyzers": Entry(
        MixtureOfFactorAnalyzers(2, 2, n_jobs=1, random_state=0),
        ({}, {"noise": "isotropic"}, {"tied": True}),
        settings=(
            *MANIFOLD,
            *each("n_factors", P + 1, -1, "many"),
            *each("n_components", "some"),
            *each("noise", "loud"),
            *each("added_noise", -1, "much"),
            *each("tied", "loosely"),
            *each("min_noise", -1),
            *each("noise_unit", 0),
            *each("weights_init", [0.5, 0.6], [1.0], "even"),
            *each("means_init", X[:3], NAN[2:4]),
        ),
        fits=(*TANGENTS, *TOO_SMALL),
        calls=SAMPLE,
        refuses=("one feature",),
    ),
    "MixtureOfPCA": Entry(
        MixtureOfPCA(2, 2, n_jobs=1, random_state=0),
        ({}, {"responsibilities": "hard"}),
        settings=(
            *MANIFOLD,
            *each("n_dims", P + 1),
            *each("temperature", 0, "hot"),
            *each("explained_variance", 2),
            *each("init_params", "pca"),
            *each("means_init", X[:3]),
        ),
        fits=(*TANGENTS, *TOO_SMALL),
        calls=SAMPLE,
        refuses=("one feature",),
    ),
    "ClassConditionalClassifier": Entry(
        ClassConditionalClassifier(GaussianMixture(reg_covar=1e-3, random_state=0)),
        ({}, {"density": MixtureOfPCA(1, 1, random_state=0), "priors": "uniform"}),
        y=Y,
        least=6,
        refuses=("an outlier", "large in single precision"),
        settings=(
            *each("priors", [0.5, 0.5], [0.5, 0.5, 0.5], [1.0, 0, 0], "equal", [np.nan, 0.5, 0.5]),
            *each("density", 3, GaussianMixture),
            *each("cv", 1),
        ),
        fits=(
            *each("tangents", T, "many"),
            ({"y": np.where(np.arange(N) == 0, 7, Y)}, "class 7"),
            ({"y": Y * 0}, "y"),
        ),
        calls=(
            *(
                ("add_class", args, said)
                for args, said in (
                    ((X, 1), "label"),
                    ((X, "new"), "label"),
                    ((X, [4, 5]), "label"),
                    ((X, 0.5), "label"),
                    ((X, None), "label"),
                    ((X[:, :3], 5), "X"),
                    ((X * np.nan, 5), "X"),
                    ((X[:1], 5), "class 5"),
                )
            ),
            *(
                ("rejects", {"X": X, name: value}, name)
                for name, value in (
                    ("density", -0.1),
                    ("density", 2),
                    ("probability", "much"),
                    ("probability", np.nan),
                )
            ),
        ),
    ),
    "TangentDistanceClassifier": Entry(
        TangentDistanceClassifier(3),
        ({}, {"sides": 1, "n_candidates": 5}, {"sides": 0, "sigma": 0}),
        y=Y,
        settings=(
            ({"image_shape": (8, 9)}, "image_shape is .8, 9."),
            *each("image_shape", (4,), (2.0, 2.0)),
            ({"n_neighbors": N + 1}, "n_neighbors must be a whole number of at most 30"),
            ({"n_neighbors": 5, "n_candidates": 4}, "n_candidates must be a whole number"),
            *each("n_neighbors", 0),
            *each("sides", 3),
            *each("spring", -1),
            *each("mode", "round"),
            *each("sigma", -1, 100),
            *each("kinds", ("twist",)),
        ),
        calls=tuple(("kneighbors", (X, k), "n_neighbors") for k in (0, N + 1, 2.5, True)),
    ),
    "PatchFeatures": Entry(
        PatchFeatures(2, n_jobs=1, random_state=0),
        (
            {},
            {"coding": "evidence", "n_outputs": 1},
            {"n_factors": 1, "patch_size": 1},
            {"temperature": 0, "whitening": None},
        ),
        settings=(
            *EM,
            *each("n_components", 0, N + 1, "many"),
            *each("n_factors", -1),
            *each("patch_size", 0, 3, "large"),
            *each("stride", 0),
            *each("pooling", 0, 2, (), "all"),
            *each("coding", "both"),
            *each("temperature", -1, np.nan),
            *each("contrast", -1),
            *each("whitening", -1),
            *each("n_outputs", 0, 3),
            *each("n_patches", 1),
            *each("image_shape", (3, 3), (4,), (-2, -2), "square", (2.5, 1.6)),
            *each("patience", 0),
            *each("n_jobs", "two"),
        ),
    ),
    "FactorialVectorQuantizer": Entry(
        FactorialVectorQuantizer(2, 3, n_init=2, max_iter=5, n_jobs=1, random_state=0),
        tuple({"e_step": e} for e in ("exact", "truncated", "mean_field", "gibbs")),
        least=1,
        settings=(
            *QUANTIZER,
            *(
                (
                    {"observable": name, "e_step": "exact"},
                    "X must (lie between 0 and 1|be at least 0)",
                )
                for name in ("bernoulli", "poisson")
            ),
        ),
        calls=(
            *SAMPLE,
            *(
                ("inverse_transform", (S,), "X")
                for S in (np.eye(5), np.full((2, 6), np.nan), np.ones(6), np.full((2, 6), "one"))
            ),
        ),
    ),
    "FactorialVectorQuantizer of bits": Entry(
        FactorialVectorQuantizer(2, 2, n_init=2, max_iter=5, n_jobs=1, random_state=0),
        ({"observable": "bernoulli"}, {"observable": "poisson", "priors": "learned"}),
        BITS,
        least=1,
        fits=(
            ({"X": BITS - 1}, "X must lie between 0 and 1"),
            ({"X": 2 * BITS}, "X must lie between 0 and 1"),
        ),
    ),
    "FactorialHMM": Entry(
        FactorialHMM(2, 2, n_init=2, max_iter=5, tol=1e-3, random_state=0),
        ({"e_step": "exact"}, {"e_step": "mean_field"}),
        settings=(
            *EM,
            *each("n_chains", 0),
            *each("n_states", 1.5),
            *each("e_step", "gibbs"),
            *each("n_init", 0),
            *each("min_noise", -1),
            *each("n_sweeps", 0),
            ({"n_chains": 7, "n_states": 4, "e_step": "exact"}, "e_step='mean_field'"),
        ),
        fits=(
            *(
                ({"lengths": lengths}, "lengths must be whole numbers")
                for lengths in ([5, 5], [20.0, 10], [0, N], [-1, N + 1], [[N]], [], "30", N)
            ),
            ({"y": [15, 15]}, "by name"),
        ),
        calls=(
            *SAMPLE[:4],
            *(
                ("transform", (X, lengths), "lengths must be whole numbers")
                for lengths in ([5, 5], [20.0, 10], [0, N], [-1, N + 1], [[N]], [], "30", N)
            ),
            ("inverse_transform", (X[:, :3],), "states has shape"),
        ),
    ),
    "CompositionalModel": Entry(
        CompositionalModel(2, n_jobs=1, random_state=0, max_iter=3),
        (
            {},
            {"init": "online", "rule": "maximum"},
            {"init": "random", "expert_cost": 0.5},
            {"transforms": Transforms((2, 2), shifts=1), "rule": "maximum"},
        ),
        BITS,
        least=1,
        settings=(
            *each("n_experts", 0),
            *each("rule", "mean"),
            *each("q", 0),
            *each("background", 0),
            *each("pseudocount", 0),
            *each("transforms", 3),
            *each("tol", -1),
            *each("init", "best", np.zeros((3, 3)), np.full((2, P), 2.0)),
            ({"init": "random", "n_experts": None}, "n_experts must be a whole number"),
            (
                {"transforms": Transforms((4, 4))},
                r"transforms is for images of shape \(4, 4\), but X has 4",
            ),
            *each("max_active", 0),
            *each("n_init", 0),
            *each("expert_cost", -1, np.nan, np.inf),
            (
                {"transforms": Transforms((2, 2), rotations=(5.0,))},
                "transforms must have the angle 0",
            ),
            *each("binarize", "yes", True, np.nan, np.inf),
        ),
        fits=(
            ({"X": BITS / 2}, "X must hold zeros and ones, but holds 0.5; pass binarize=0.25"),
            ({"X": 255 * BITS}, "holds 255; pass binarize=127.5"),
            ({"X": -BITS}, "X must hold zeros and ones"),
        ),
        calls=(
            *SAMPLE[:4],
            ("inverse_transform", (np.ones((2, 17)),), "X"),
            ("inverse_transform", (np.full((1, 2), np.nan),), "X"),
            *(
                ("pose_distribution", (experts,), "experts must hold whole numbers from 0 to 1")
                for experts in ([2], [-1], [0.5])
            ),
        ),
    ),
    "GaussianCompositionalModel": Entry(
        GaussianCompositionalModel(3, n_jobs=1, n_init=2, max_iter=5, random_state=0),
        (
            {},
            {"rule": "sum", "init": "examples"},
            {"rule": "max_minus_min", "expert_cost": 0.5, "background": 0.1},
            {"max_active": 1, "n_experts": 20},
        ),
        least=1,
        settings=(
            *EM,
            *SEVERAL,
            *each("n_experts", 0, 2.5),
            *each("rule", "mean"),
            *each("background", np.nan, np.inf, "dark"),
            *each("noise", 0, "fixed", np.inf, np.nan, 1e300),
            *each("min_noise", 0),
            *each("expert_cost", -1, np.nan, np.inf),
            *each("max_active", 0),
            *each("init", "best", X[:2], X[:3, :2], NAN[2:5]),
        ),
        calls=(
            *SAMPLE,
            *(
                ("inverse_transform", (S,), "X")
                for S in (
                    np.ones((2, 4)),
                    np.full((2, 3), np.nan),
                    np.ones(3),
                    np.full((2, 3), "one"),
                )
            ),
        ),
    ),
}
BINARY = ("FactorialVectorQuantizer of bits", "CompositionalModel")


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
    tables = {"TableClassifier"}  # takes data frames: tests/test_table_files.py
    assert {
        *set(capslit.__all__) - tables,
        "TangentDistanceClassifier",
        "PatchFeatures",
        "SharedCapsuleClassifier",
        "GaussianCompositionalModel",
    } == {type(entry.estimator).__name__ for entry in ESTIMATORS.values()}


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
        if hasattr(model, method):
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


ANOTHER_RUN = {  # settings that a checkpoint does not serve
    "CapsuleClassifier": {"alpha": 0.5},
    "SharedCapsuleClassifier": {"alpha": 0.5},
    "GaussianMixture": {"reg_covar": 1e-3},
    "MixtureOfFactorAnalyzers": {"added_noise": 0.3},
    "MixtureOfPCA": {"temperature": 2.0},
    "FactorialVectorQuantizer": {"ridge": 0.1},
    "FactorialHMM": {"min_noise": 0.1},
    "CompositionalModel": {"pseudocount": 0.5},
    "GaussianCompositionalModel": {"expert_cost": 0.7},
}


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
        clone(model).set_params(**ANOTHER_RUN[type(model).__name__]).fit(
            entry.X, entry.y, checkpoint=path
        )
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
    "Whether inputs are sparse and the model takes such."
    return sp.issparse(bad) and get_tags(model).input_tags.sparse


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
