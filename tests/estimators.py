"""Every public estimator, once: how it is made, what it learns from, what it promises.

The contracts (`test_contracts`), scikit-learn's checks (`test_conventions`), files (`test_saving`)
and the depth of calls (`test_depth`) read this table. A new estimator needs one entry here.
"""

import operator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy import inf, nan

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
from capslit.factorial import Gibbs, MeanField, Truncated
from capslit.composition import GaussianCompositionalModel, Transforms
from capslit.deeper.patches import PatchFeatures
from capslit.deeper.sharing import SharedCapsuleClassifier
from capslit.mixtures import Noise
from capslit.mixtures.tangents import TangentDistanceClassifier
from capslit.capsules.settings import RBF, Schedule

rng = np.random.default_rng(3)
N, P = 30, 4
Y = rng.permutation(np.arange(N) % 3)
X = rng.standard_normal((N, P)) + 2.5 * rng.standard_normal((3, P))[Y]
BITS = (X > X.mean(axis=0)).astype(float)
METHODS = """predict predict_proba predict_log_proba decision_function transform score_samples
    squash codes reconstruct log_densities predict_joint_log_proba kneighbors decode""".split()
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
    another_run: dict | None = None  # settings that its checkpoint does not serve
    # settings in which scikit-learn checks it; and others, with {check: why it cannot hold}
    conventions: tuple = ({},)
    excused: tuple = ()


def each(**wrong):
    "The settings {name: value} for each value of each name; the error must say its last part."
    return tuple(
        ({name: value}, name.rpartition("__")[2]) for name in wrong for value in wrong[name]
    )


EM = each(tol=[-1, nan], max_iter=[0, 2.5], random_state=["now"])
SEVERAL = each(patience=[0], n_init=[0], n_jobs=["two"])
MIXTURE = (
    *EM,
    *SEVERAL,
    *each(init_params=["best", None], warm_start=["yes"], n_components=[0, N + 1]),
)
MANIFOLD = (*MIXTURE, *each(responsibilities=["firm"], acceleration=["fast"]))
T = np.zeros((N, 3, P))
TANGENTS = each(tangents=[T[:-1], T[:, :, :2], T[:, 0], T * nan, "many"])
TOO_SMALL = (({"X": (1e-30 * X).astype(np.float32)}, "X"),)
SKEW = np.stack([np.eye(P) + np.triu(np.ones((P, P)), 1)] * 2)
NAN = X.copy()
NAN[3, 2] = nan
SAMPLE = tuple(("sample", (n,), "n_samples") for n in (0, 2.5))
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
    ({"capsule_dim": True}, "capsule_dim must be a whole number .* not True"),
    *each(
        capsule_dim=[0, 2.5, "two", None, [], [1, 0], {0: 1, 1: 2}, {0: 1, 1: 2, 2: 0}, {}],
        schedule__thresholds=[(0.5,), (), 0.5, ("a", "b"), (nan, 0), (1.5, 0), (-0.1, 0)],
        schedule__patience=[(0, 1), (2.5, 1), ("x", 1), (inf, 1), (4, 4, 4), 3],
        schedule__init=["best", None, [["a"]], np.full((3, 2, P), nan), np.ones((3, 3, P))],
        schedule__monitor=["loss"],
        schedule__init_scale=[0],
        schedule__momentum=[1],
        schedule=["paper"],
        alpha=[-1, nan, inf],
    ),
    ({"alpha": []}, "alpha is empty; pass a number"),
    *each(
        architecture=["pairs"],
        penalty=[0.1],
        online=["stepwise"],
        max_iter=[0],
        tol=[-1.0],
        n_jobs=[0],
        fit_intercept=["yes"],
        random_state=["seed"],
        verbose=[-1],
        early_stopping=["often", 0.995],
        warm_start=[2.0],
    ),
    ({"kernel": RBF(())}, "gamma is empty"),
    ({"kernel": operator.is_}, "kernel: its result .* not an object of the type bool"),
    ({"cv": []}, "cv is empty; pass a number of folds"),
    ({"class_weight": {0: 1e200}}, "class_weight must be at most"),
    ({"schedule__init": "random", "schedule__init_scale": 1e200}, "parameters"),
)
QUANTIZER = (
    *EM,
    *SEVERAL,
    *each(
        init=["best"],
        n_vectors=[0],
        n_states=[1.5],
        e_step=["quick"],
        observable=["normal"],
        noise=[0, "fixed", inf, nan, 1e300],
        priors=["some"],
    ),
    ({"e_step": Gibbs(0)}, "n_samples"),
    ({"e_step": Gibbs(burn_in=-1)}, "burn_in"),
    ({"e_step": MeanField(0)}, "n_sweeps"),
    ({"e_step": Truncated(0)}, "n_configurations"),
    *each(ridge=[-1, inf], min_noise=[0], acceleration=["fast"]),
    ({"acceleration": "squarem", "e_step": "gibbs"}, "acceleration"),
    (
        {"n_vectors": 10, "n_states": 10, "e_step": "exact"},
        "use 'truncated', 'mean_field' or 'gibbs'",
    ),
    ({"observable": "bernoulli", "e_step": "gibbs"}, "needs e_step='exact'"),
)
LENGTHS = ([5, 5], [20.0, 10], [0, N], [-1, N + 1], [[N]], [], "30", N)
LABELLED = tuple(
    (method, (X, y), "y")
    for method in ("posterior_mean", "prototypes")
    for y in (Y[:9], np.c_[Y, Y], Y + 1, Y + 0.5, np.array(list("abc"))[Y], None, 0, Y * nan)
)

# ── settings in which scikit-learn checks its conventions
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
DRAWN = {WEIGHTS: "the start depends on number and order of the examples, as that of KMeans does"}
INNER_FOLDS = {WEIGHTS: "folds that keep a repeated row together belong to the inner classifier"}
SEQUENCES = {
    "check_methods_sample_order_invariance": "the order of the examples is what the model is about",
    "check_methods_subset_invariance": "a part of a sequence is another sequence",
}
# the checks fit hundreds of times; what they check does not depend on how long
SHORT = {"n_init": 1, "max_iter": 10}
SEEDED = SHORT | {"random_state": 0}
KINDS = ({}, *({"covariance_type": kind} for kind in ("diag", "tied", "spherical")))
PAPER = {"thresholds": (0.5, 0.0), "patience": (4, 4), "random_state": 0}
ROUNDS = {"thresholds": [0.5, 0], "patience": [4, 4], "monitor": "error"}
ONE = {"patience": [4], "monitor": "error"}
PLAIN = {"kernel": None, "alpha": 0.0, "sharpness": 1.0, "tol": 0.0}

ESTIMATORS = {
    "CapsuleClassifier": Entry(
        CapsuleClassifier.paper(2, **PAPER, n_jobs=1),
        ({}, {"architecture": "ovr", "fit_intercept": False}, {"architecture": "ovo"}),
        y=Y,
        settings=CAPSULES,
        fits=(
            *VALIDATION,
            ({"y": Y * 0}, "y"),
            ({"sample_weight": np.full(N, 5e307)}, "sample_weight"),
            ({"X": (X * 1e37).astype(np.float32)}, "X"),
        ),
        calls=LABELLED,
        conventions=(
            {},
            PLAIN | {"architecture": "multiclass", "schedule": ROUNDS},
            PLAIN | {"architecture": "ovr", "schedule": ONE},
            PLAIN | {"schedule": ONE, "alpha": 0.1},
        ),
        another_run={"alpha": 0.5},
    ),
    "TableClassifier": Entry(
        TableClassifier(CapsuleClassifier.paper(2, **PAPER)),
        y=Y,
        settings=(({"classifier": "forest"}, "classifier"),),
        fits=(({"y": Y * 0}, "y"), ({"sample_weight": np.zeros(N)}, "sample_weight")),
        conventions=(),
        excused=(({}, INNER_FOLDS),),
    ),
    "SharedCapsuleClassifier": Entry(
        SharedCapsuleClassifier(
            2, schedule=Schedule((0.5, 0.0), (4, 4), monitor="error"), n_jobs=1, random_state=0
        ),
        (
            {},
            {"window": 1, "shifts": (0, 1), "fit_intercept": False},
            {"window": (1, 1), "shifts": 0, "stride": 1, "n_maps": 1},
        ),
        y=Y,
        settings=each(
            capsule_dim=[0, 2.5, "two", None, True, [2]],
            image_shape=[(8, 9), (4,), (2.0, 2.0), "square"],
            shifts=[-1, 1.5, (1, 2, 3), "far"],
            window=[3, 0, (1, 1, 1), "all"],
            stride=[0],
            n_maps=[0, 1],
            alpha=[-1, nan, "some"],
            sharpness=[0],
            schedule__thresholds=[(0.5,), "a"],
            schedule__patience=[(0, 1)],
            schedule__momentum=[1],
            max_iter=[0],
            schedule__monitor=["loss"],
            n_jobs=[0],
        ),
        fits=(*VALIDATION, ({"y": Y * 0}, "y")),
        calls=LABELLED,
        conventions=(
            {},
            {"shifts": 0},
            {"shifts": 0, "window": 1, "stride": 1, "n_maps": 1, "schedule": ROUNDS},
        ),
        another_run={"alpha": 0.5},
    ),
    "GaussianMixture": Entry(
        GaussianMixture(2, n_jobs=1, random_state=0),
        KINDS,
        settings=(
            *MIXTURE,
            *each(
                covariance_type=["round"],
                reg_covar=[-1],
                weights_init=[[0.5, 0.6], [1.5, -0.5], [1.0], [nan, 1], "even"],
                means_init=[X[:3], X[:2, :3], NAN[2:4]],
                precisions_init=[
                    np.ones((2, 3)),
                    -np.ones((2, 4)),
                    SKEW,
                    np.zeros((2, 4, 4)),
                    np.ones((2, 4, 4)),
                    np.full((2, 4), inf),
                ],
            ),
        ),
        fits=TOO_SMALL,
        calls=SAMPLE,
        conventions=KINDS,
        excused=(({"n_components": 2}, DRAWN),),
        another_run={"reg_covar": 1e-3},
    ),
    "MixtureOfFactorAnalyzers": Entry(
        MixtureOfFactorAnalyzers(2, 2, n_jobs=1, random_state=0),
        ({}, {"noise": "isotropic"}, {"tied": True}),
        settings=(
            *MANIFOLD,
            *each(n_factors=[P + 1, -1, "many"], n_components=["some"], noise=["loud"]),
            ({"noise": Noise("loud")}, "kind"),
            ({"noise": Noise(added=-1)}, "added"),
            ({"noise": Noise(minimum=-1)}, "minimum"),
            ({"noise": Noise(unit=0)}, "unit"),
            *each(
                tied=["loosely"],
                weights_init=[[0.5, 0.6], [1.0], "even"],
                means_init=[X[:3], NAN[2:4]],
            ),
        ),
        fits=(*TANGENTS, *TOO_SMALL),
        calls=SAMPLE,
        refuses=("one feature",),
        excused=(({"n_components": 2}, DRAWN),),
        another_run={"noise": Noise(added=0.3)},
    ),
    "MixtureOfPCA": Entry(
        MixtureOfPCA(2, 2, n_jobs=1, random_state=0),
        ({}, {"responsibilities": "hard"}),
        settings=(
            *MANIFOLD,
            *each(
                n_dims=[P + 1],
                temperature=[0, "hot"],
                explained_variance=[2],
                init_params=["pca"],
                means_init=[X[:3]],
            ),
        ),
        fits=(*TANGENTS, *TOO_SMALL),
        calls=SAMPLE,
        refuses=("one feature",),
        excused=(({"n_components": 2}, DRAWN),),
        another_run={"temperature": 2.0},
    ),
    "ClassConditionalClassifier": Entry(
        ClassConditionalClassifier(GaussianMixture(reg_covar=1e-3, random_state=0)),
        ({}, {"density": MixtureOfPCA(1, 1, random_state=0), "priors": "uniform"}),
        y=Y,
        least=6,
        refuses=("an outlier", "large in single precision"),
        settings=each(
            priors=[[0.5, 0.5], [0.5, 0.5, 0.5], [1.0, 0, 0], "equal", [nan, 0.5, 0.5]],
            density=[3, GaussianMixture],
            cv=[1, N],
        ),
        fits=(
            *each(tangents=[T, "many"]),
            ({"y": np.where(np.arange(N) == 0, 7, Y)}, "class 7"),
            ({"y": Y * 0}, "y"),
        ),
        calls=(
            *(("add_class", (X, label), "label") for label in (1, "new", [4, 5], 0.5, None)),
            ("add_class", (X[:, :3], 5), "X"),
            ("add_class", (X * nan, 5), "X"),
            ("add_class", (X[:1], 5), "class 5"),
            ("rejects", {"X": X, "density": -0.1}, "density"),
            ("rejects", {"X": X, "probability": nan}, "probability"),
        ),
    ),
    "TangentDistanceClassifier": Entry(
        TangentDistanceClassifier(3),
        ({}, {"sides": 1, "n_candidates": 5}, {"sides": 0, "sigma": 0}),
        y=Y,
        settings=(
            ({"image_shape": (8, 9)}, "image_shape is .8, 9."),
            *each(image_shape=[(4,), (2.0, 2.0)]),
            ({"n_neighbors": N + 1}, "n_neighbors must be a whole number of at most 30"),
            ({"n_neighbors": 5, "n_candidates": 4}, "n_candidates must be a whole number"),
            *each(
                n_neighbors=[0],
                sides=[3],
                spring=[-1],
                mode=["round"],
                sigma=[-1, 100],
                kinds=[("twist",)],
            ),
        ),
        calls=tuple(("kneighbors", (X, k), "n_neighbors") for k in (0, N + 1, 2.5, True)),
        conventions=({}, {"n_neighbors": 3, "sides": 1, "n_candidates": 5}),
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
            *each(
                n_components=[0, N + 1, "many"],
                n_factors=[-1],
                patch_size=[0, 3, "large"],
                stride=[0],
                pooling=[0, 2, (), "all"],
                coding=["both"],
                temperature=[-1, nan],
                contrast=[-1],
                whitening=[-1],
                n_outputs=[0, 3],
                n_patches=[1],
                image_shape=[(3, 3), (4,), (-2, -2), "square", (2.5, 1.6)],
                patience=[0],
                n_jobs=["two"],
            ),
        ),
        conventions=(
            {},
            {"n_components": 2},
            {"n_components": 2, "coding": "evidence", "n_outputs": 1},
        ),
    ),
    "FactorialVectorQuantizer": Entry(
        FactorialVectorQuantizer(2, 3, n_init=2, max_iter=5, n_jobs=1, random_state=0),
        tuple({"e_step": e} for e in ("exact", "truncated", "mean_field", "gibbs")),
        least=1,
        settings=(
            *QUANTIZER,
            ({"observable": "bernoulli", "e_step": "exact"}, "X must lie between 0 and 1"),
            ({"observable": "poisson", "e_step": "exact"}, "X must be at least 0"),
        ),
        calls=(
            *SAMPLE,
            ("inverse_transform", (np.eye(5),), "X"),
            ("inverse_transform", (np.full((2, 6), nan),), "X"),
            ("inverse_transform", (np.full((2, 6), "one"),), "X"),
        ),
        conventions=(
            SHORT,
            SHORT | {"e_step": "truncated", "priors": "learned"},
            SHORT | {"e_step": "mean_field"},
            SHORT | {"n_vectors": 3, "n_states": 3, "acceleration": "squarem"},
        ),
        excused=((SHORT | {"e_step": "gibbs", "init": "points", "n_init": 2}, DRAWN),),
        another_run={"ridge": 0.1},
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
        another_run={"ridge": 0.1},
    ),
    "FactorialHMM": Entry(
        FactorialHMM(2, 2, n_init=2, max_iter=5, tol=1e-3, random_state=0),
        ({"e_step": "exact"}, {"e_step": "mean_field"}),
        settings=(
            *EM,
            *each(
                n_chains=[0],
                n_states=[1.5],
                e_step=["gibbs"],
                n_init=[0],
                min_noise=[-1],
                n_sweeps=[0],
            ),
            ({"n_chains": 7, "n_states": 4, "e_step": "exact"}, "e_step='mean_field'"),
        ),
        fits=(
            *(({"lengths": lengths}, "lengths must be whole numbers") for lengths in LENGTHS),
            ({"y": [15, 15]}, "by name"),
        ),
        calls=(
            *SAMPLE,
            ("transform", (X, [5, 5]), "lengths must be whole numbers"),
            ("inverse_transform", (X[:, :3],), "states has shape"),
        ),
        conventions=(),
        excused=[(SEEDED | {"e_step": e, "tol": 1e-2}, SEQUENCES) for e in ("exact", "mean_field")],
        another_run={"min_noise": 0.1},
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
            *each(n_experts=[0], rule=["mean"], background=[0, 1, "white"]),
            ({"rule": "maximum", "background": 0.5}, "background must be a number below 0.5"),
            *each(
                pseudocount=[0],
                transforms=[3],
                tol=[-1],
                init=["best", np.zeros((3, 3)), np.full((2, P), 2.0)],
            ),
            ({"init": "random", "n_experts": None}, "n_experts must be a whole number"),
            (
                {"transforms": Transforms((4, 4))},
                r"transforms is for images of shape \(4, 4\), but X has 4",
            ),
            *each(max_active=[0], n_init=[0], expert_cost=[-1, nan, inf]),
            (
                {"transforms": Transforms((2, 2), rotations=(5.0,))},
                "transforms must have the angle 0",
            ),
            *each(binarize=["yes", True, nan, inf]),
        ),
        calls=(
            *SAMPLE,
            ("inverse_transform", (np.ones((2, 17)),), "X"),
            ("inverse_transform", (np.full((1, 2), nan),), "X"),
            ("pose_distribution", ([2],), "experts must hold whole numbers from 0 to 1"),
        ),
        conventions=(
            {},
            SEEDED | {"n_experts": 2, "init": "random"},
            SEEDED | {"n_experts": 2, "rule": "maximum", "init": "online"},
        ),
        another_run={"pseudocount": 0.5},
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
            *each(
                n_experts=[0, 2.5],
                rule=["mean"],
                background=[nan, inf, "dark"],
                noise=[0, "fixed", inf, nan, 1e300],
                min_noise=[0],
                expert_cost=[-1, nan, inf],
                max_active=[0],
                init=["best", X[:2], X[:3, :2], NAN[2:5]],
            ),
        ),
        calls=(
            *SAMPLE,
            ("inverse_transform", (np.ones((2, 4)),), "X"),
            ("inverse_transform", (np.full((2, 3), nan),), "X"),
            ("inverse_transform", (np.ones(3),), "X"),
        ),
        conventions=(
            SEEDED | {"n_experts": 2},
            SEEDED | {"rule": "sum", "init": "examples"},
            SEEDED | {"n_experts": 2, "rule": "max_minus_min"},
        ),
        another_run={"expert_cost": 0.7},
    ),
}
BINARY = tuple(name for name, entry in ESTIMATORS.items() if entry.X is BITS)
