"""The conventions of scikit-learn, by its own checks: once for each estimator, in the settings that
lead to other code.
"""

import pytest

import capslit

DRAWN = {
    "check_sample_weight_equivalence_on_dense_data": (
        "the start is drawn, and so depends on the number and order of the examples (as that of"
        " KMeans does)"
    )
}
SEQUENCES = {
    "check_methods_sample_order_invariance": "the order of the examples is what the model is about",
    "check_methods_subset_invariance": "a part of a sequence is another sequence",
}
PIXELS = {
    "check_classifiers_train": (
        "the two columns are no pixels of a strip, whose weights could be shared"
    )
}
SHORT = {
    "n_init": 1,
    "max_iter": 10,
}  # the checks fit hundreds of times; what they check does not depend on how long
ROUNDS = {"thresholds": [0.5, 0], "patience": [4, 4], "monitor": "error"}
ONE = {"patience": [4], "monitor": "error"}
PLAIN = {"kernel": None, "alpha": 0.0, "sharpness": 1.0, "tol": 0.0}
CONVENTIONS = {
    "CapsuleClassifier": [
        ({}, {}),
        (PLAIN | {"architecture": "multiclass", "schedule": ROUNDS}, {}),
        (PLAIN | {"architecture": "ovr", "schedule": ONE}, {}),
        (PLAIN | {"schedule": ONE, "alpha": 0.1}, {}),
    ],
    "deeper.sharing.SharedCapsuleClassifier": [
        ({}, PIXELS),
        ({"shifts": 0}, {}),
        (
            {
                "shifts": 0,
                "window": 1,
                "stride": 1,
                "n_maps": 1,
                "schedule": ROUNDS,
            },
            {},
        ),
    ],
    "GaussianMixture": [
        ({}, {}),
        ({"covariance_type": "diag"}, {}),
        ({"covariance_type": "tied"}, {}),
        ({"covariance_type": "spherical"}, {}),
        ({"n_components": 2}, DRAWN),
    ],
    "MixtureOfFactorAnalyzers": [({}, {}), ({"n_components": 2}, DRAWN)],
    "MixtureOfPCA": [({}, {}), ({"n_components": 2}, DRAWN)],
    "ClassConditionalClassifier": [({}, {})],
    "mixtures.tangents.TangentDistanceClassifier": [
        ({}, {}),
        ({"n_neighbors": 3, "sides": 1, "n_candidates": 5}, {}),
    ],
    "deeper.patches.PatchFeatures": [
        ({"n_components": 2}, {}),
        ({"n_components": 2, "coding": "evidence", "n_outputs": 1}, {}),
    ],
    "FactorialVectorQuantizer": [
        (SHORT, {}),
        (SHORT | {"e_step": "truncated", "priors": "learned"}, {}),
        (SHORT | {"e_step": "mean_field"}, {}),
        (SHORT | {"e_step": "gibbs", "init": "points", "n_init": 2}, DRAWN),
        (SHORT | {"n_vectors": 3, "n_states": 3, "acceleration": "squarem"}, {}),
    ],
    "FactorialHMM": [
        (SHORT | {"e_step": e, "random_state": 0, "tol": 1e-2}, SEQUENCES)
        for e in ("exact", "mean_field")
    ],
    "CompositionalModel": [
        (SHORT | {"binarize": 0.0, "random_state": 0, "n_experts": 2, "init": "random"}, {}),
        (
            SHORT
            | {
                "binarize": 0.0,
                "random_state": 0,
                "n_experts": 2,
                "rule": "maximum",
                "init": "online",
            },
            {},
        ),
    ],
    "composition.GaussianCompositionalModel": [
        (SHORT | {"random_state": 0, "n_experts": 2}, {}),
        (SHORT | {"random_state": 0, "rule": "sum", "init": "examples"}, {}),
        (SHORT | {"random_state": 0, "n_experts": 2, "rule": "max_minus_min"}, {}),
    ],
}


@pytest.mark.first
@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions_of_scikit_learn(name, unpassed):
    for (parameters, _), (count, failures) in zip(
        CONVENTIONS[name], unpassed(name, CONVENTIONS[name]), strict=True
    ):
        assert count > 30 + 20 * (name == "CapsuleClassifier") and failures == [], parameters


def test_every_estimator_is_tried():
    tables = {"TableClassifier"}  # tried in tests/test_table_files.py
    assert {name.rpartition(".")[2] for name in CONVENTIONS} == {
        *set(capslit.__all__) - tables,
        "TangentDistanceClassifier",
        "PatchFeatures",
        "SharedCapsuleClassifier",
        "GaussianCompositionalModel",
    }
