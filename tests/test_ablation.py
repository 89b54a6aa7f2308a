"""The ablation of the capsule network: fair sizes, exact motions, and measures that measure."""

import itertools

import numpy as np
import pytest
from conftest import together

from capslit.experiments.ablation import NETWORKS, _inside, _made, shifted


@together("down, right", [(0, 0), (1, 0), (-1, 0), (0, 2), (2, -1)])
def test_moved_images_lose_what_leaves_the_picture(down, right):
    images = np.random.default_rng(0).random((3, 5, 4))
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3)))
    expected = np.roll(padded, (down, right), axis=(1, 2))[:, 3:-3, 3:-3]
    assert np.array_equal(shifted(images, down, right), expected)


@together("side", [8, 14])
def test_the_networks_are_of_equal_size_and_differ_in_what_they_are_named_for(side):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import count_parameters

    nets = [_made(name, side, 0)[0] for name in NETWORKS]
    sizes = list(map(count_parameters, nets))
    assert max(sizes) / min(sizes) < 1.05
    X = torch.rand(8, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = [net(X).numpy() for net in nets]
    assert not any(np.allclose(*pair, atol=1e-4) for pair in itertools.combinations(scores, 2))


def test_a_pose_that_follows_is_found():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import _Capsules

    class Ruler:
        "A network whose pose holds the centre of gravity, in entries (1, 4) and (2, 4), and noise."

        generator = torch.Generator().manual_seed(0)
        hidden = _made("t2", 8, 0)[0].hidden

        def capsules(self, images):
            poses = torch.randn(len(images), 10, 4, 4, generator=self.generator)
            poses[:, :, :2, 3] *= 1e-4
            for entry, across in enumerate((2, 1)):
                ink = images.sum(across)
                centre = ink @ torch.arange(8.0) / ink.sum(1)
                poses[:, :, entry, 3] += centre[:, None]
            return _Capsules(poses, None)

        def parts(self, images):
            activations = torch.arange(12.0).reshape(1, 1, 2, 6) / 12
            return _Capsules(None, activations.expand(len(images), 1, 2, 6))

    images = np.zeros((20, 8, 8), np.float32)
    images[:, 3:5, 2:5] = 1
    metrics, arrays = _inside(Ruler(), images, np.arange(20) % 10)
    assert np.isclose(metrics["hidden_level"], 5.5 / 12)
    assert np.isclose(metrics["hidden_deviation"], 0.25)
    for name in ("follows", "rise"):
        assert np.allclose(arrays[name][[0, 1], [3, 7]], 1, atol=1e-3)
    assert arrays["follows"].argmax(axis=1).tolist() == [3, 7]
