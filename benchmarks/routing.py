"""EM routing beside the same iterations written with broadcasting, and beside the least that any
version could cost.

The time of `em_routing` as a ratio to that of the straightforward version, forward and with
gradients, and to two bounds. One is the sum of the votes, all of which must be read once. The
other, the floor, is the slower of this and of the arithmetic: in each iteration a vote is
multiplied and added for a mean, squared, multiplied and added for a variance, and, but in the last,
for an exponent of the E-step; and each assignment of an E-step takes an exponential of ten
multiplications. The time of so many multiplications and additions is taken from a large matrix
product in the same precision and on the same threads. This is the fastest arithmetic that the
machine has, and it reads each of its numbers hundreds of times where routing must fetch them; so no
version can reach this floor. Where Numba is installed, another row has the sums alone, as the loops
take them, of votes that never leave the fastest cache: no reading, no transposition, no E-step. On
PyTorch if it is installed, and on NumPy. All versions are checked to agree. 32 × 32 children, 10
parents, poses of 16 numbers, a batch of 64.
"""

import importlib.util
import math

import numpy as np
from _table import Row, alone, in_turns

from capslit.em.compiling import compiled
from capslit.em.parallel import ordered_map, threads
from capslit.routing.kernels import add_exponents, moments
from capslit.routing.procedure import corrected_procedure, em_routing, inverse_temperatures


def broadcast(torch, V, a, beta_u, beta_a, iterations=3):
    "Routing as anybody would write it in PyTorch: R (b, n, m), everything else (b, n or 1, m, d)."
    b, n, m, d = V.shape
    R = V.new_full((b, n, m), 1 / m)
    for t, lam in enumerate(inverse_temperatures(iterations)):
        weights = (R * a[..., None])[..., None]
        mass = weights.sum(dim=1, keepdim=True)
        M = (weights * V).sum(dim=1, keepdim=True) / mass
        variance = (weights * (V - M) ** 2).sum(dim=1, keepdim=True) / mass + 1e-9
        cost = ((beta_u + 0.5 * torch.log(variance)) * mass).sum(dim=-1)
        active = torch.sigmoid(lam * (beta_a - cost))
        if t < iterations - 1:
            log_p = -0.5 * ((V - M) ** 2 / variance + torch.log(2 * math.pi * variance)).sum(dim=-1)
            R = torch.softmax(torch.log(active) + log_p, dim=-1)
    return M[:, 0], active[:, 0], R


def plain(V, a, beta_u, beta_a, iterations=3):
    "The same on NumPy, by the corrected procedure of the chapter."
    after = np.full(V.shape[:-1], 1 / V.shape[-2], V.dtype)
    for lam in inverse_temperatures(iterations):
        R = after
        parents, after = corrected_procedure(V, a, R, beta_u, beta_a, lam)
    return parents.poses, parents.activations, R


def arithmetic(shape, iterations=3):
    """Matrix products of as many multiplications and additions as routing votes of a shape (b, n,
    m, d) takes at least.
    """
    votes, assignments = math.prod(shape), math.prod(shape[:-1])
    multiplications = votes * (3 * iterations + iterations - 1) + 10 * assignments * (
        iterations - 1
    )
    A = np.ones((1024, 1024), np.float32)
    B = np.ones((1024, multiplications // 1024**2), np.float32)
    return lambda: A @ B


def sums(x, share, exponents, rows, rows_at_last):
    """The means, variances and exponents of so many rows of votes, all of them the same, and of
    more without exponents.
    """
    found, four = x[0], np.full((2, 4), x[0])
    same = np.ascontiguousarray(np.broadcast_to(x, (4, len(x))))
    for t in range(rows):
        shift, spread = moments(share, x, x[t % len(x)])
        found += shift + spread
        if t % 4 == 3:
            add_exponents(same, four[0], four[1], exponents)
    for t in range(rows_at_last):
        shift, spread = moments(share, x, x[t % len(x)])
        found += shift + spread
    return found


def sums_from_the_cache(shape, iterations=3):
    """The sums of all iterations for votes of a shape (b, n, m, d), on all threads.

    None without Numba.
    """
    b, n, m, d = shape
    loops = compiled(sums, add_exponents, reordered=(moments,))
    x, share, exponents = np.random.default_rng(0).random((3, n), dtype=np.float32)

    def run():
        with threads() as pool:
            hands = pool._max_workers if pool else 1
            rows = b * m * d // hands
            return list(
                ordered_map(
                    lambda found: loops(x, share / n, found, rows * (iterations - 1), rows),
                    [exponents.copy() for _ in range(hands)],
                    pool,
                )
            )

    return run if loops else None


def compare(name, ours, theirs, *floors, in_cache=None):
    """Rows of ours beside theirs and, if there are such, beside reading the votes and the
    arithmetic, and beside the sums alone.
    """
    mine, other, *least, loops = in_turns(ours, theirs, *floors, in_cache or (lambda: None))
    yield Row(f"EM routing, {name}", mine / other, "the same with broadcasting", 1.0)
    if least:
        yield Row(f"EM routing, {name}", mine / least[0], "reading the votes once")
        yield Row(f"EM routing, {name}", mine / max(least), "its floor, reading or arithmetic", 1.5)
    if in_cache:
        yield Row(f"EM routing, {name}", mine / loops, "its sums alone, from the cache")
        yield Row(
            "EM routing, its sums alone, from the cache",
            loops / max(least),
            "its floor, reading or arithmetic",
        )


def on_torch(V, a, prices):
    import torch

    V, a, *prices = map(torch.tensor, (V, a, *prices))
    with_grad = V.clone().requires_grad_()

    def backward(route):
        poses, active, _ = route(with_grad, a, *prices)
        return torch.autograd.grad((poses**2).sum() + active.sum(), with_grad)[0]

    ours, theirs = em_routing, lambda *given: broadcast(torch, *given)
    exact = broadcast(torch, V.double(), a.double(), *(x.double() for x in prices))
    for found in (ours(V, a, *prices), theirs(V, a, *prices)):
        assert all(torch.allclose(x.double(), y, atol=1e-4) for x, y in zip(found, exact))
    assert torch.allclose(backward(ours), backward(theirs), rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        yield from compare(
            "PyTorch, forward",
            lambda: ours(V, a, *prices),
            lambda: theirs(V, a, *prices),
            V.sum,
            arithmetic(V.shape),
        )
    yield from compare("PyTorch, with gradients", lambda: backward(ours), lambda: backward(theirs))


def rows():
    rng = np.random.default_rng(0)
    V = rng.standard_normal((64, 32 * 32, 10, 16), dtype=np.float32)
    a, prices = rng.random((64, 32 * 32), dtype=np.float32), (np.float32(0.5), np.float32(1.0))
    if importlib.util.find_spec("torch"):
        yield from on_torch(V, a, prices)
    assert all(
        np.allclose(x, y, atol=1e-4)
        for x, y in zip(em_routing(V, a, *prices), plain(V, a, *prices))
    )
    yield from compare(
        "NumPy",
        lambda: em_routing(V, a, *prices),
        lambda: plain(V, a, *prices),
        V.sum,
        arithmetic(V.shape),
        in_cache=sums_from_the_cache(V.shape),
    )


if __name__ == "__main__":
    alone(rows)
