"""Lines and shapes: the data, the measure of what is recovered, and the experiments in their quick
form.
"""

import warnings
from itertools import permutations

import numpy as np
import pytest
from conftest import together

from capslit.data.datasets import (
    GREY,
    compose,
    line_templates,
    load_digits,
    load_lines,
    load_shapes,
    shape_templates,
)
from capslit.experiments import lines_and_shapes as factors
from capslit.experiments.lines_and_shapes import (
    SIZES,
    VARIANTS,
    _anneal,
    _follow,
    _inference_of,
    _judged,
    _measured,
    _operations,
    _resemblance,
    _resembling,
    _true_templates,
    _unseen,
)
from capslit.experiments.records import Bench, Part, load_record

QUICK = {"lines": "lines", "shapes": "shapes", "causes": "digits"}


# the data


def test_every_pair_of_lines_occurs_ten_times():
    data = load_lines()
    assert (
        data.images.shape == (160, 4, 4) and data.images.dtype == np.uint8 and data.n_train == 160
    )
    assert np.array_equal(np.bincount(data.labels), np.full(16, 10)) and len(data.class_names) == 16
    assert len(np.unique(data.images.reshape(160, -1), axis=0)) == 160
    for label in range(16):
        mean = np.full((4, 4), float(GREY["background"]))
        mean[label // 4] += GREY["line"]
        mean[:, label % 4] += GREY["line"]
        assert data.class_names[label] == f"row {label // 4 + 1}, column {label % 4 + 1}"
        assert np.all(
            np.abs(data.images[data.labels == label].mean(axis=0) - mean)
            < 5 * GREY["noise"] / 10**0.5
        )
    rest = data.images - (
        GREY["background"] + GREY["line"] * compose(line_templates(), data.labels)
    )
    assert abs(rest.std() / GREY["noise"] - 1) < 0.05 and abs(rest.mean()) < 2
    assert 0 < data.images.min() and data.images.max() < 255


def test_shapes_are_sums_of_three():
    data = load_shapes()
    assert (
        data.images.shape == (300, 6, 6) and data.images.dtype == np.uint8 and data.n_train == 300
    )
    assert (
        len(set(data.labels.tolist())) == 300
        and 0 <= data.labels.min()
        and data.labels.max() < 4096
    )
    assert np.all(data.images.sum(axis=(1, 2)) == 16) and data.images.max() <= data.scale == 3
    assert [t.sum() for t in shape_templates()] == [16 * 5, 16 * 3, 16 * 8]
    for image, label in zip(data.images[:40], data.labels):
        by_hand = np.zeros((6, 6), int)
        for shape, place in enumerate((label // 256, label // 16 % 16, label % 16)):
            r, c = place // 4, place % 4
            inside = {
                0: [(0, 1), (1, 0), (1, 1), (1, 2), (2, 1)],
                1: [(0, 0), (1, 1), (2, 2)],
                2: [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)],
            }[shape]
            for i, j in inside:
                by_hand[r + i, c + j] += 1
        assert np.array_equal(image, by_hand)
    first = data.labels[0]
    assert (
        data.class_names[first]
        == f"cross {first // 256 + 1}, diagonal {first // 16 % 16 + 1}, square {first % 16 + 1}"
    )


def test_made_data_are_always_the_same():
    for load in (load_lines, load_shapes):
        assert load().sha256 == load().sha256 and np.array_equal(load().images, load().images)
    assert load_lines().sha256 == {
        "lines": "e10596a4ed52cad2bbfa5590cdf0265afab98c28106f6484b973a75b3d897319"
    }
    assert load_shapes().sha256 == {
        "shapes": "3594d6c18223764c593cc8b0c2138a9601c1a3a16b0f367ebc19b998fde53044"
    }


def test_unseen_images_are_others():
    shapes = _unseen("shapes", load_shapes())
    together = np.concatenate([shapes, load_shapes().images]).reshape(4096, -1)
    assert shapes.shape == (3796, 6, 6)
    assert len(np.unique(together, axis=0)) == len(
        np.unique(compose(shape_templates(), np.arange(4096)).reshape(4096, -1), axis=0)
    )
    lines = _unseen("lines", load_lines())
    assert lines.shape == (1600, 4, 4)
    assert (
        len(np.unique(np.concatenate([lines, load_lines().images]).reshape(1760, -1), axis=0))
        == 1760
    )


# what is recovered


@together("name", SIZES)
@together("order", [0, 1])
def test_planted_causes_are_found_whatever_their_order_and_constants(name, order):
    rng, templates = np.random.default_rng(order), _true_templates(name)
    d, k, p = templates.shape
    vectors = list(permutations(range(d)))[order]
    planted = np.stack([3 * templates[v][rng.permutation(k)] + rng.normal(size=p) for v in vectors])
    found = _resemblance(planted, templates)
    assert found.shape == (d, k) and np.allclose(found, 1)
    noisy = _resemblance(planted + 0.1 * rng.normal(size=planted.shape), templates)
    assert np.all(noisy > 0.9) and np.all(noisy < 1)


def test_each_correlation_stands_at_its_own_template():
    rng, templates = np.random.default_rng(0), _true_templates("shapes")
    planted = templates[[2, 0, 1]][:, rng.permutation(16)].copy()
    planted[1, :3] = rng.normal(size=(3, 36))  # three of the crosses are spoiled
    found = _resemblance(planted, templates)
    assert np.sum(found[0] > 0.9) == 13 and np.all(found[1:] > 0.99)
    whole = _judged([found, np.ones((3, 16))])
    assert whole == {"found": [45 / 48, 1.0], "mostly": [3, 3], "wholly": [2, 3]}


@together("name", SIZES)
def test_wrong_causes_are_not_found(name):
    templates, rng = _true_templates(name), np.random.default_rng(1)
    d, k, p = templates.shape
    mixed = np.swapaxes(templates, 0, 1).reshape(d, k, p)  # each vector has states of all causes
    for wrong in (
        mixed,
        rng.normal(size=templates.shape),
        np.zeros_like(templates),
        np.ones_like(templates),
        -templates,
    ):
        metrics = _judged([_resemblance(wrong, templates)])
        assert metrics["wholly"] == [0] and metrics["found"][0] < 0.75
    assert np.all(np.isfinite(_resemblance(np.zeros_like(templates), templates)))


def test_components_without_vectors_are_matched_up_to_sign_and_offset():
    templates, rng = _true_templates("lines"), np.random.default_rng(2)
    components = (
        templates.reshape(8, 16)[rng.permutation(8)] * rng.choice([-2.0, 0.5], size=(8, 1)) + 7
    )
    assert np.allclose(_resembling(components, templates), 1)
    assert np.sum(_resembling(components[:5], templates) > 0.9) == 5  # the others have no partner
    assert np.all(_resembling(np.ones((8, 16)), templates) == 0)
    assert np.all(_resembling(rng.normal(size=(8, 16)), templates) < 0.95)


# learning


def test_names_of_e_steps():
    assert (
        _inference_of("gibbs 3", 5).n_samples,
        _inference_of("gibbs 3", 5).seed,
        _inference_of("gibbs 10").n_samples,
    ) == (3, 5, 10)
    assert (_inference_of("mean field 2").n_sweeps, _inference_of("mean field 2").tol) == (2, 0.0)
    assert (
        _inference_of("mean field").n_sweeps == 100
        and _inference_of("truncated 4").n_configurations == 4
    )
    assert type(_inference_of("exact")).__name__ == "Exact"


@together("e_step", ["exact", "gibbs 2", "mean field"])
def test_following_em_is_deterministic_and_learns(e_step):
    y = _measured(load_lines().images, 16.0)
    first, second = (_follow(y, (2, 4), e_step, 3, 12, 0) for _ in range(2))
    for a, b in zip(first, second):
        assert np.array_equal(a, b)
    errors, own, weights = first
    assert errors.shape == (3, 12) and own.shape == (3,) and weights.shape == (3, 2, 4, 16)
    assert np.all(errors[:, -1] < errors[:, 0]) and np.all(errors[:, -1] > 1.1)
    if e_step == "exact":
        assert np.allclose(own, errors[:, -1])
    assert not np.array_equal(errors, _follow(y, (2, 4), e_step, 3, 12, 1)[0])


def test_the_error_is_that_of_the_expected_reconstruction():
    from capslit.factorial.model import CauseParameters, FactorialVectorModel

    y = _measured(load_lines().images, 16.0)
    errors, _, weights = _follow(y, (2, 4), "exact", 2, 3, 0)
    for w, error in zip(weights, errors[:, -1]):
        made = w[0][:, None] + w[1][None, :]  # (4, 4, 16)
        log_joint = -0.5 * np.sum((y[:, None, None] - made) ** 2, axis=-1)
        share = np.exp(log_joint - log_joint.max(axis=(1, 2), keepdims=True))
        share /= share.sum(axis=(1, 2), keepdims=True)
        assert np.isclose(np.mean((y - np.einsum("nij,ijp->np", share, made)) ** 2), error)
    assert isinstance(FactorialVectorModel(2, 4).initialise(y), CauseParameters)


def test_annealing_ends_with_the_model_s_own_noise():
    X = _measured(load_shapes().images[:60], 0.5)
    settings = {"e_step": "gibbs", "n_samples": 2, "annealed": 4.0, "max_iter": 4}
    (weights, bound), again = _anneal(settings, X, (3, 16), 0), _anneal(settings, X, (3, 16), 0)
    assert (
        weights.shape == (3, 16, 36)
        and np.isfinite(bound)
        and np.array_equal(weights, again[0])
        and bound == again[1]
    )
    assert not np.allclose(weights, _anneal(settings | {"annealed": 1.0}, X, (3, 16), 0)[0])


@together("method", factors.METHODS)
def test_peers_reconstruct_what_they_have_seen(method):
    X = _measured(load_lines().images, 16.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"factorial": {"e_step": "exact"}, "dictionary": {"alpha": 1.0}}.get(method, {})
        components, reconstruct = factors.METHODS[method](X, (2, 4), 0, **options)
    made = reconstruct(X)
    assert made.shape == X.shape and np.mean((X - made) ** 2) < 0.7 * np.mean(np.var(X, axis=0))
    assert components.shape == (
        (2, 4, 16) if method == "factorial" else (16 if method == "k-means, k^d" else 8, 16)
    )


def test_operations_grow_as_they_must():
    for e_step in ("gibbs", "mean field", "truncated"):
        assert _operations(e_step, 6, 4) == 4 * _operations(e_step, 3, 4) and _operations(
            e_step, 3, 8
        ) == 4 * _operations(e_step, 3, 4)
    assert _operations("exact", 6, 4) == 64 * _operations("exact", 3, 4)


# the experiments


@pytest.fixture(scope="module")
def records(quick_record):
    return {name: load_record(quick_record(name, data)) for name, data in QUICK.items()}


@together("name", QUICK)
def test_times_are_no_metrics(records, name):
    assert not any(
        "second" in word for part in records[name].parts.values() for word in part["metrics"]
    )


def test_metrics_of_lines_are_within_sense(records):
    record = records["lines"]
    for name, part in record.parts.items():
        found = part["metrics"]
        if part["parameters"]["kind"] == "draws":
            errors, whole = record.array(name, "errors"), record.array(name, "whole")
            assert np.all(errors[..., 1:][~whole] > errors[..., :1].min()) and np.allclose(
                errors[..., 0].mean(axis=1), found["ceiling"]
            )
            continue
        assert all(0 <= share <= 1 for share in found["found"]) and all(
            w <= m <= 2 for w, m in zip(found["wholly"], found["mostly"])
        )
        if name.startswith("peer"):
            assert all(0 <= error < 1 for error in found["error"]) and all(
                e < u < 1.2 for e, u in zip(found["error"], found["unseen_error"])
            )
        else:
            assert all(1.1 < error < 4.5 for error in found["error"])
            assert all(
                error < 1.25 for error, whole in zip(found["error"], found["wholly"]) if whole == 2
            )
    good, bad = record.metrics("course, exact")["shown"]
    errors = record.metrics("course, exact")["error"]
    assert errors[good] == min(errors) and errors[bad] > errors[good]
    assert record.array("course, exact", "weights").shape == (2, 2, 4, 16)


def test_metrics_of_shapes_are_within_sense(records):
    record = records["shapes"]
    assert (
        set(factors.QUICK_VARIANTS) <= record.parts.keys()
        and set(factors.QUICK_VARIANTS) <= VARIANTS.keys()
    )
    for name in factors.QUICK_VARIANTS:
        found = record.metrics(name)
        assert all(0 <= share <= 1 for share in found["found"]) and all(np.isfinite(found["bound"]))
        assert record.array(name, "correlations").shape == (2, 3, 16) and record.array(
            name, "weights"
        ).shape == (2, 3, 16, 36)
    assert (
        record.metrics("peer, k-means, k^d")["n_components"] == 300
    )  # as many as there are images
    assert record.metrics("peer, k-means, k^d")["error"][0] < 1e-9


def test_metrics_of_causes_are_within_sense(records):
    record = records["causes"]
    for d, k in ((2, 4), (3, 4)):
        found = record.metrics(f"{d} × {k}")
        assert found["bits"] == d * np.log2(k) and all(
            0 < error < 1 for error in (*found["error"].values(), *found["unseen_error"].values())
        )
        assert found["error"]["factorial"] < found["error"]["k-means, d·k"]
        assert ("k-means, k^d" in found["error"]) == (k**d <= 1540)
        assert record.array(f"{d} × {k}", "weights").shape == (d, k, 64)
    seconds = [record.array("cost", f"seconds {name}") for name in factors.COST_STEPS]
    assert all(np.all(values > 0) for values in seconds)
    assert record.array("cost", "operations").shape == (
        4,
        len(record.parts["cost"]["parameters"]["grid"]),
    )


def test_the_exact_e_step_is_not_timed_where_it_cannot_be(tmp_path):
    bench = Bench(load_digits(), "quick", 0, tmp_path / "none")
    settings = {"grid": [[2, 2], [19, 2]], "n_images": 4, "repeats": 1}
    _, arrays = factors.CAUSES.run(Part("cost", settings, learner="cost"), bench)
    assert arrays["seconds exact"][0] > 0 and np.isnan(arrays["seconds exact"][1])
    assert all(
        np.all(arrays[f"seconds {name}"] > 0) for name in ("gibbs", "mean field", "truncated")
    )
