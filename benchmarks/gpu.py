"""Capsule regression on a graphics card, through PyTorch or CuPy: is it as fast there as its matrix
products let it be?

Prints the ratio of an EM iteration to its two matrix products, the part of the card's speed in
matrix products that an iteration reaches (the speed of one large product in the same run, and the
one that its maker names), and how long the experiment with a million digits takes. Where there is
no card it says so.

    python benchmarks/gpu.py --count             # what an iteration asks of a card, counted on the
    processor: PyTorch's operations and the bytes they move
"""

import sys
import tempfile
import time
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from _table import Row, show
from array_api_compat import array_namespace

from capslit import em
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.experiments.million import MILLION
from capslit.experiments.records import perform

NOMINAL = {
    "H200": 67e12,
    "H100": 67e12,
    "GH200": 67e12,
    "A100": 19.5e12,
    "L40S": 91.6e12,
    "L4": 30.3e12,
    "V100": 15.7e12,
    "T4": 8.1e12,
}
# floating-point operations per second in single precision, as the makers' data sheets have them,
# the largest variant of each


class Card(NamedTuple):
    """Where to compute: a library of arrays, a device, its name, and a function that waits until
    the device has finished.
    """

    xp: object
    device: object
    name: str
    wait: object


def torch_card(device="cuda"):
    "PyTorch's `device`."
    import torch

    xp = array_namespace(torch.empty(0))
    if device == "cpu":
        return Card(xp, torch.device("cpu"), "the processor", lambda: None)
    return Card(
        xp, torch.device(device), torch.cuda.get_device_name(device), torch.cuda.synchronize
    )


def cupy_card():
    "CuPy's first card."
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return Card(
        array_namespace(cupy.empty(0)), cupy.cuda.Device(0), name, cupy.cuda.Device(0).synchronize
    )


def find_card():
    "A graphics card that PyTorch or CuPy can use, or None."
    if find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            return torch_card()
    if find_spec("cupy"):
        import cupy

        try:
            if cupy.cuda.runtime.getDeviceCount():
                return cupy_card()
        except cupy.cuda.runtime.CUDARuntimeError:  # the library without a driver
            pass
    return None


def seconds(card, function, repeats=10):
    "Best time of a few calls, each waited for."

    def once():
        card.wait()
        start = time.perf_counter()
        function()
        card.wait()
        return time.perf_counter() - start

    once()  # the first call loads and compiles
    return min(once() for _ in range(repeats))


def peak(card, size=8192):
    "Operations per second of one large product of single precision."
    a = card.xp.ones((size, size), dtype=card.xp.float32, device=card.device)
    return 2 * size**3 / seconds(card, lambda: a @ a)


def iterations(card, d, n=1_000_000, p=196, m=10):
    "Inputs X (n, p) on the card, weights of a start, and the states of EM from there."
    rng = np.random.default_rng(0)
    there = lambda a: card.xp.asarray(a, device=card.device)
    X, y = there(rng.standard_normal((n, p), dtype=np.float32)), there(rng.integers(0, m, n))
    gram = np.asarray(n * np.eye(p))[None]  # of such inputs, but for chance
    model = CapsuleRegression(
        np.arange(m)[None], np.full((1, m), d), LeastSquares.from_gram(gram, like=X)
    )
    parameters = CapsuleParameters(there(0.05 * rng.standard_normal((1, m, d, p))))
    states = em.iterate(
        model,
        em.State.start(parameters),
        model.prepare((X, y, None)),
        (em.Round(10**9, {"threshold": 0.5}),),
        momentum=0.9,
    )
    return X, parameters.weights, states


def iteration(card, d, m=10, **size):
    "Seconds of an EM iteration and of its two products, and the operations of these."
    X, weights, states = iterations(card, d, m=m, **size)
    n, p = X.shape
    W = card.xp.reshape(card.xp.astype(weights, card.xp.float32), (m * d, p))
    E = X @ W.T
    products = seconds(card, lambda: X @ W.T) + seconds(card, lambda: E.T @ X)
    return seconds(card, lambda: next(states)), products, 4 * n * m * d * p


def rows(card=None, dims=(4, 8, 16, 32), **size):
    "Lines of the table for `card`, by default the one that is found; none where there is none."
    card = card or find_card()
    if card is None:
        return
    measured = peak(card)
    nominal = next((speed for name, speed in NOMINAL.items() if name in card.name.split()), None)
    if nominal:
        yield Row(
            "a large matrix product: speed",
            measured / nominal,
            f"what the maker of {card.name} names",
        )
    for d in dims:
        ours, products, operations = iteration(card, d, **size)
        yield Row(
            f"EM iteration on the card, d = {d}", ours / products, "its two matrix products", 1.5
        )
        yield Row(
            f"EM iteration on the card, d = {d}: speed",
            operations / ours / measured,
            "a large matrix product",
        )
        if nominal:
            yield Row(
                f"EM iteration on the card, d = {d}: speed",
                operations / ours / nominal,
                "what the maker names",
            )


WAITING = {
    "_local_scalar_dense",
    "is_nonzero",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_dim",
    "bincount",
    "repeat_interleave",
}
# operations whose result, or its shape, the host must read before it goes on


def watching():
    """A mode of PyTorch that counts `operations` and the `bytes` they read and write, and refuses
    what makes the host wait for the device.
    """
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watching(TorchDispatchMode):
        operations = bytes = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
            masks = function.overloadpacket.__name__ == "index" and any(
                a.dtype.is_floating_point is False and a.element_size() == 1 for a in given[1:]
            )
            if function.overloadpacket.__name__ in WAITING or masks:
                raise AssertionError(f"{function} makes the host wait for the device")
            found = function(*args, **(kwargs or {}))
            made = [a for a in tree_leaves(found) if isinstance(a, Tensor)]
            if any(a.device != b.device for a in given for b in made):
                raise AssertionError(f"{function} moves numbers from one device to another")
            memory = {a.untyped_storage().data_ptr() for a in given}
            if function._schema.is_mutable or any(
                a.untyped_storage().data_ptr() not in memory for a in made
            ):  # no view
                self.operations += 1
                self.bytes += sum(a.numel() * a.element_size() for a in given + made)
            return found

    return Watching()


def counts(card, d, **size):
    """PyTorch's operations in one EM iteration, the bytes that they move, and those of two readings
    of the inputs.
    """
    X, _, states = iterations(card, d, **size)
    next(states)  # tables are made once
    with watching() as watched:
        next(states)
    return watched.operations, watched.bytes, 2 * X.numel() * X.element_size()


def count(dims=(1, 4, 8, 16, 32), n=100_000):
    "A line for each capsule size; on the processor, so that no card is needed."
    print(
        "EM iteration, operations of PyTorch that move numbers, and bytes they move beside two"
        " readings of the inputs"
    )
    for d in dims:
        operations, moved, least = counts(torch_card("cpu"), d, n=n)
        print(f"d = {d:2}: {operations} operations, {moved / least:.2f} times the bytes")


def million():
    "Minutes that the experiment with a million digits takes, from nothing to its record."
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        perform(
            "million", MILLION, "mnist", out=folder, report=lambda words: print(words, flush=True)
        )
    return (time.perf_counter() - start) / 60


def main(arguments=()):
    if "--count" in arguments:
        return count()
    card = find_card()
    if card is None:
        print("no graphics card that PyTorch or CuPy can use was found: nothing to measure")
        return 0
    print(f"on {card.name}, through {card.xp.__name__.split('.')[-1]}")
    show(rows(card))
    print(f"the experiment with a million digits: {million():.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
