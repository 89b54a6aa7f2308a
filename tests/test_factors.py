"""Lines and shapes: the data, the measure of what is recovered, and the quick experiments."""

import numpy as np
from conftest import together

from capslit.data.datasets import load_lines, load_shapes
from capslit.experiments import lines_and_shapes as factors
from capslit.experiments.lines_and_shapes import (
    SIZES,
    _follow,
    _inference_of,
    _judged,
    _measured,
    _resemblance,
    _true_templates,
)
from capslit.experiments.records import load_record

MADE = {
    "lines": (load_lines, "e10596a4ed52cad2bbfa5590cdf0265afab98c28106f6484b973a75b3d897319"),
    "shapes": (load_shapes, "3594d6c18223764c593cc8b0c2138a9601c1a3a16b0f367ebc19b998fde53044"),
}


# the data


@together("name", MADE)
def test_made_data_are_always_the_same(name):
    load, digest = MADE[name]
    data = load()
    assert data.sha256 == {name: digest}
    assert np.array_equal(data.images, load().images)
    assert data.images.dtype == np.uint8
    assert data.n_train == len(data.images)
    number, words = {
        "lines": (4 * 2 + 1, "row 3, column 2"),
        "shapes": (2 * 256 + 16, "cross 3, diagonal 2, square 1"),
    }[name]
    assert data.class_names[number] == words


# what is recovered


def test_each_correlation_stands_at_its_own_template():
    rng, templates = np.random.default_rng(0), _true_templates("shapes")
    planted = templates[[2, 0, 1]][:, rng.permutation(16)].copy()
    planted[1, :3] = rng.normal(size=(3, 36))  # three of the crosses are spoiled
    found = _resemblance(planted, templates)
    assert np.sum(found[0] > 0.9) == 13
    assert np.all(found[1:] > 0.99)
    whole = _judged([found, np.ones((3, 16))])
    assert whole == {"found": [45 / 48, 1.0], "mostly": [3, 3], "wholly": [2, 3]}


@together("name", SIZES)
def test_wrong_causes_are_not_found(name):
    templates, rng = _true_templates(name), np.random.default_rng(1)
    mixed = np.swapaxes(templates, 0, 1).reshape(templates.shape)  # states of all causes
    for wrong in (mixed, rng.normal(size=templates.shape), 0 * templates, -templates):
        metrics = _judged([_resemblance(wrong, templates)])
        assert metrics["wholly"] == [0]
        assert metrics["found"][0] < 0.75


# learning


def test_names_of_e_steps():
    gibbs, field = _inference_of("gibbs 3", 5), _inference_of("mean field 2")
    assert (gibbs.n_samples, gibbs.seed, field.n_sweeps, field.tol) == (3, 5, 2, 0.0)
    assert _inference_of("mean field").n_sweeps == 100


LINES = _measured(load_lines().images, 16.0)


@together("e_step", ["exact", "gibbs 2", "mean field"])
def test_following_em_is_deterministic_and_learns(e_step):
    first, second = (_follow(LINES, (2, 4), e_step, 3, 12, 0) for _ in range(2))
    assert all(map(np.array_equal, first, second))
    errors, own, weights = first
    assert (errors.shape, weights.shape) == ((3, 12), (3, 2, 4, 16))
    assert np.all((1.1 < errors[:, -1]) & (errors[:, -1] < errors[:, 0]))
    assert e_step != "exact" or np.allclose(own, errors[:, -1])
    assert not np.array_equal(errors, _follow(LINES, (2, 4), e_step, 3, 12, 1)[0])


def test_the_error_is_that_of_the_expected_reconstruction():
    errors, _, weights = _follow(LINES, (2, 4), "exact", 2, 3, 0)
    for w, error in zip(weights, errors[:, -1]):
        made = w[0][:, None] + w[1][None, :]  # (4, 4, 16)
        share = np.exp(-0.5 * np.sum((LINES[:, None, None] - made) ** 2, axis=-1))
        share /= share.sum(axis=(1, 2), keepdims=True)
        expected = np.einsum("nij,ijp->np", share, made)
        assert np.isclose(np.mean((LINES - expected) ** 2), error)


# the experiments


def test_metrics_of_lines_are_within_sense(quick_record):
    record = load_record(quick_record("lines", "lines"))
    for part in record.parts.values():
        found = part["metrics"]
        assert all(0 <= share <= 1 for share in found["found"])
        assert all(w <= m <= 2 for w, m in zip(found["wholly"], found["mostly"]))
        assert all(1.1 < error < 4.5 for error in found["error"])
        pairs = zip(found["error"], found["wholly"])
        assert all(error < 1.25 for error, whole in pairs if whole == 2)
    found = record.metrics("course, exact")
    good, bad = found["shown"]
    assert min(found["error"]) == found["error"][good] < found["error"][bad]


def test_metrics_of_shapes_are_within_sense(quick_record):
    record = load_record(quick_record("shapes", "shapes"))
    assert set(factors.QUICK_VARIANTS) <= record.parts.keys() & factors.VARIANTS.keys()
    for name in factors.QUICK_VARIANTS:
        found = record.metrics(name)
        assert all(0 <= share <= 1 for share in found["found"])
        assert all(np.isfinite(found["bound"]))
        assert record.array(name, "correlations").shape == (2, 3, 16)
