"""Novel viewpoints: what is shown to the networks, what is kept of them, and whether the comparison
is a fair one.
"""

import numpy as np
import pytest

from capslit.data.datasets import load_digits
from capslit.experiments.records import load_record, record_path
from capslit.experiments.viewpoints import (
    AMOUNTS,
    CAPSULES,
    KINDS,
    VIEWPOINTS,
    _judged,
    _moved,
    network,
    _run_viewpoints,
)

IMAGES = np.float32(load_digits().images) / 16


def centre(images):
    "Centres of gravity (n, 2), in pixels from the middle of the image."
    n, height, width = images.shape
    rows, columns = np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    return (
        np.stack([(images.sum(2) * rows).sum(1), (images.sum(1) * columns).sum(1)], axis=1)
        / images.sum((1, 2))[:, None]
    )


@pytest.mark.parametrize("kind", AMOUNTS)
def test_nothing_moved_is_nothing_changed(kind):
    assert AMOUNTS[kind][0] == 0 and np.allclose(
        _moved(IMAGES[:20], kind, 0), IMAGES[:20], atol=1e-5
    )


def test_moved_moves_by_the_amount_one_way_and_the_other():
    square = np.zeros((8, 28, 28), np.float32)
    square[:, 9:13, 15:19] = 1
    shift = centre(_moved(square, "translation", 10)) - centre(square)
    turn = 2 * np.pi * np.arange(8) / 8
    assert np.allclose(shift, 2.8 * np.stack([np.sin(turn), np.cos(turn)], 1), atol=0.1)
    before, after = centre(square), centre(_moved(square, "rotation", 30))
    angle = np.rad2deg(
        np.arctan2(after[:, 0], after[:, 1]) - np.arctan2(before[:, 0], before[:, 1])
    )
    assert np.allclose(angle[::2], -angle[1::2], atol=0.1) and np.allclose(
        np.abs(angle), 30, atol=2
    )
    assert np.allclose(np.linalg.norm(after, axis=1), np.linalg.norm(before, axis=1), atol=0.15)
    size = np.linalg.norm(centre(_moved(square, "scaling", 50)), axis=1) / np.linalg.norm(
        before, axis=1
    )
    assert np.allclose(size[1::2], 1.5, atol=0.05) and np.allclose(size[::2], 1 / 1.5, atol=0.05)
    slant = centre(_moved(square, "shear", 50))
    way = np.where(np.arange(8) % 2, 1, -1)
    assert np.allclose(
        slant,
        before + 0.5 * way[:, None] * np.stack([0 * before[:, 0], before[:, 0]], axis=1),
        atol=0.1,
    )


def test_the_networks_are_of_equal_size():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import count_parameters

    class Data:
        n_classes = 10

    for name, side in (("mnist", 28), ("digits", 8)):
        Data.name, Data.images = name, np.zeros((1, side, side))
        sizes = [count_parameters(network(kind, Data, 0)[0]) for kind in KINDS["viewpoints"]]
        assert max(sizes) / min(sizes) < 1.1
        one, other = (network("capsules", Data, 3)[0].state_dict() for _ in range(2))
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def quick(everything):
    pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")
    return {
        name: load_record(record_path(name, "digits", "quick", everything[0]))
        for name in ("capsules", "viewpoints")
    }


def rebuilt(record, kind):
    "A network with the weights that a record holds."
    import torch

    net, _ = network(kind, load_digits(), 1)  # another seed: all weights must come from the record
    net.load_state_dict(
        {
            key.removeprefix(f"{kind}-0/network."): torch.as_tensor(array)
            for key, array in record.arrays.items()
            if key.startswith(f"{kind}-0/network.")
        }
    )
    return net


@pytest.mark.parametrize("kind", KINDS["capsules"])
def test_the_record_holds_the_network_that_was_tested(quick, kind):
    from capslit.routing.network import predict

    data = load_digits()
    test, labels = np.float32(data.images[data.n_train :]) / data.scale, data.labels[data.n_train :]
    predicted = predict(rebuilt(quick["capsules"], kind), test)
    assert np.array_equal(predicted, quick["capsules"].array(f"{kind}-0", "predicted"))
    assert (
        np.mean(predicted != labels) == quick["capsules"].metrics(f"{kind}-0")["test_error"] < 0.5
    )
    metrics, arrays = _judged(
        rebuilt(quick["viewpoints"], kind), test, labels, {"rotation": (0, 30)}
    )
    recorded = quick["viewpoints"].metrics(f"{kind}-0")
    assert {name: recorded[name] for name in metrics} == metrics
    assert np.array_equal(
        arrays["rotation"], quick["viewpoints"].array(f"{kind}-0", "rotation")[[0, 3]]
    )
    assert np.array_equal(arrays["novel"], quick["viewpoints"].array(f"{kind}-0", "novel"))


def test_experiments_say_what_they_need(monkeypatch, tmp_path):
    import importlib.util

    from capslit.experiments.records import perform

    assert CAPSULES.extra == VIEWPOINTS.extra == "torch" and VIEWPOINTS.run is _run_viewpoints
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else find(name, *rest),
    )
    with pytest.raises(ValueError, match="viewpoints needs a package.*capslit\\[torch\\]"):
        perform("viewpoints", VIEWPOINTS, "digits", profile="quick", out=tmp_path)
    assert not list(tmp_path.iterdir())
