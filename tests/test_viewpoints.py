"""Novel viewpoints: what is shown to the networks, what is kept of them, and whether the comparison
is a fair one.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import together

from capslit.data.datasets import load_digits
from capslit.experiments.records import load_record
from capslit.experiments.viewpoints import AMOUNTS, KINDS, _judged, _moved, divided, network


def centre(images):
    "Centres of gravity column + i row (n,), in pixels from the middle of the image."
    axis = np.arange(images.shape[1]) - (images.shape[1] - 1) / 2
    return np.sum(images * (axis + 1j * axis[:, None]), axis=(1, 2)) / images.sum((1, 2))


def test_moved_moves_by_the_amount_one_way_and_the_other():
    square = np.zeros((8, 28, 28), np.float32)
    square[:, 9:13, 15:19] = 1
    before = centre(square)
    for kind in AMOUNTS:
        assert AMOUNTS[kind][0] == 0 and np.allclose(_moved(square, kind, 0), square, atol=1e-5)
    shift = centre(_moved(square, "translation", 10)) - before
    assert np.allclose(shift, 2.8 * np.exp(2j * np.pi * np.arange(8) / 8), atol=0.1)
    turn = centre(_moved(square, "rotation", 30)) / before
    angle = np.angle(turn, deg=True)
    assert np.allclose(angle[::2], -angle[1::2], atol=0.1)
    assert np.allclose(np.abs(angle), 30, atol=2)
    assert np.allclose(np.abs(turn * before), np.abs(before), atol=0.15)
    size = np.abs(centre(_moved(square, "scaling", 50)) / before)
    assert np.allclose(size[1::2], 1.5, atol=0.05) and np.allclose(size[::2], 1 / 1.5, atol=0.05)
    slant = before + 0.5 * (-1.0) ** np.arange(1, 9) * before.imag
    assert np.allclose(centre(_moved(square, "shear", 50)), slant, atol=0.1)


def test_the_networks_are_of_equal_size():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import count_parameters

    for name, side in (("mnist", 28), ("digits", 8)):
        data = SimpleNamespace(name=name, images=np.zeros((1, side, side)), n_classes=10)
        sizes = [count_parameters(network(kind, data, 0)[0]) for kind in KINDS["viewpoints"]]
        assert max(sizes) / min(sizes) < 1.1
        one, other = (network("capsules", data, 3)[0].state_dict() for _ in range(2))
        assert all(torch.equal(one[key], other[key]) for key in one)


@together("kind", KINDS["capsules"])
def test_the_record_holds_the_network_that_was_tested(quick_record, kind):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import predict

    data = load_digits()
    _, (test, labels) = divided(data, "quick")
    records = [load_record(quick_record(name)) for name in ("capsules", "viewpoints")]
    nets = []
    for record in records:
        net, _ = network(kind, data, 1)  # another seed: all weights must come from the record
        weights = {key: record.array(f"{kind}-0", f"network.{key}") for key in net.state_dict()}
        net.load_state_dict({key: torch.as_tensor(array) for key, array in weights.items()})
        nets.append(net)
    capsules, viewpoints = records
    predicted = predict(nets[0], test)
    assert np.array_equal(predicted, capsules.array(f"{kind}-0", "predicted"))
    assert np.mean(predicted != labels) == capsules.metrics(f"{kind}-0")["test_error"] < 0.5
    metrics, arrays = _judged(nets[1], test, labels, {"rotation": (0, 30)})
    assert metrics.items() <= viewpoints.metrics(f"{kind}-0").items()
    rotation = viewpoints.array(f"{kind}-0", "rotation")
    assert np.array_equal(arrays["rotation"], rotation[[0, 3]])
    assert np.array_equal(arrays["novel"], viewpoints.array(f"{kind}-0", "novel"))
