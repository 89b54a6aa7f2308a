"""The ablation of the capsule network: fair sizes, exact motions, and measures that measure."""

import itertools

import numpy as np
import pytest

from capslit.experiments.ablation import (
    NETWORKS,
    _factorial,
    _inside,
    _made,
    shifted,
)


@pytest.mark.parametrize("down, right", [(0, 0), (1, 0), (-1, 0), (0, 2), (2, -1)])
def test_moved_images_lose_what_leaves_the_picture(down, right):
    images = np.random.default_rng(0).random((3, 5, 4))
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3)))
    expected = np.roll(padded, (down, right), axis=(1, 2))[:, 3:-3, 3:-3]
    assert np.array_equal(shifted(images, down, right), expected)


def test_the_factorial_has_each_combination_once():
    keys = ("n_iterations", "weighted", "coordinates", "shared")
    cells = {tuple(settings[key] for key in keys) for settings in _factorial().values()}
    assert (
        cells == set(itertools.product((1, 2, 3), *[(True, False)] * 3))
        and len(_factorial()) == len(cells) == 24
    )
    assert {settings["e_step"] for settings in _factorial().values()} == {"factor"}
    assert all(
        (key in name) != settings[value]
        for name, settings in _factorial().items()
        for key, value in (("alike", "weighted"), ("nowhere", "coordinates"), ("own", "shared"))
    )


@pytest.mark.parametrize("side", [8, 14])
def test_the_networks_are_of_equal_size_and_differ_in_what_they_are_named_for(side):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )
    from capslit.routing.network import count_parameters

    nets = {name: _made(name, side, 0)[0] for name in NETWORKS}
    sizes = [count_parameters(net) for net in nets.values()]
    assert max(sizes) / min(sizes) < 1.05
    X = torch.rand(8, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        told = {name: net(X).numpy() for name, net in nets.items()}
    names = list(told)
    assert all(
        not np.allclose(told[a], told[b], atol=1e-4) for i, a in enumerate(names) for b in names[:i]
    )


def test_a_pose_that_follows_is_found():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; pip install capslit[torch]"
    )

    class Ruler:
        "A network whose pose holds the centre of gravity, in entries (1, 4) and (2, 4), and noise."

        generator = torch.Generator().manual_seed(0)
        hidden = _made("t2", 8, 0)[0].hidden

        def capsules(self, images):
            from capslit.routing.network import _Capsules

            poses = torch.randn(len(images), 10, 4, 4, generator=self.generator)
            x = images.numpy()
            poses[:, :, :2, 3] *= 1e-4
            poses[:, :, 0, 3] += torch.as_tensor((x.sum(2) @ np.arange(8.0)) / x.sum((1, 2)))[
                :, None
            ]
            poses[:, :, 1, 3] += torch.as_tensor((x.sum(1) @ np.arange(8.0)) / x.sum((1, 2)))[
                :, None
            ]
            return _Capsules(poses, None)

        def parts(self, images):
            from capslit.routing.network import _Capsules

            return _Capsules(
                None, torch.arange(12.0).reshape(1, 1, 2, 6).expand(len(images), 1, 2, 6) / 12
            )

    images = np.zeros((20, 8, 8), np.float32)
    images[:, 3:5, 2:5] = 1
    metrics, arrays = _inside(Ruler(), images, np.arange(20) % 10)
    assert np.isclose(metrics["hidden_level"], 5.5 / 12) and np.isclose(
        metrics["hidden_deviation"], 0.25
    )
    assert np.allclose(arrays["follows"][[0, 1], [3, 7]], 1, atol=1e-3) and np.allclose(
        arrays["rise"][[0, 1], [3, 7]], 1, atol=1e-3
    )
    assert arrays["follows"].argmax(axis=1).tolist() == [3, 7]
