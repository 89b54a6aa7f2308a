"""EM routing beside the same iterations written with broadcasting, and beside reading the votes.

The time of `em_routing` as a ratio to that of the straightforward version, forward and with gradients, and to the floors: the sum of the votes, read once, and
the products that no version can do without (three means, three variances, two exponents). On PyTorch if it is installed, and on NumPy. All versions are
checked to agree. 32 × 32 children, 10 parents, poses of 16 numbers, a batch of 64.
"""
import importlib.util
import math

import numpy as np
from _table import Row, alone, in_turns

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


def products(by_parent, iterations=3):
    "The matrix products alone, of votes (b, m, n, d) that already lie side by side, a problem at a time."
    b, m, n, d = by_parent.shape
    share, inverse = by_parent[:1, :, :1, :1] + 0 * by_parent[:1, :, :, :1].swapaxes(2, 3), 1 + 0 * by_parent[0, :, 0, :, None]

    def once():
        for V in by_parent:
            for t in range(2 * iterations):
                share[0] @ V
            for t in range(iterations - 1):
                V @ inverse
    return once


def compare(name, ours, theirs, *floors):
    "Rows of ours beside theirs and the floors."
    mine, other, *least = in_turns(ours, theirs, *floors)
    yield Row(f"EM routing, {name}", mine / other, "the same with broadcasting", 1.0)
    for to, seconds in zip(("reading the votes once", "its matrix products"), least):
        yield Row(f"EM routing, {name}", mine / seconds, to)


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
    by_parent = V.transpose(1, 2).contiguous()
    with torch.no_grad():
        yield from compare("PyTorch, forward", lambda: ours(V, a, *prices), lambda: theirs(V, a, *prices), V.sum, products(by_parent))
    yield from compare("PyTorch, with gradients", lambda: backward(ours), lambda: backward(theirs))


def rows():
    rng = np.random.default_rng(0)
    V = rng.standard_normal((64, 32 * 32, 10, 16), dtype=np.float32)
    a, prices = rng.random((64, 32 * 32), dtype=np.float32), (np.float32(0.5), np.float32(1.0))
    if importlib.util.find_spec("torch"):
        yield from on_torch(V, a, prices)
    assert all(np.allclose(x, y, atol=1e-4) for x, y in zip(em_routing(V, a, *prices), plain(V, a, *prices)))
    by_parent = np.ascontiguousarray(V.swapaxes(1, 2))
    yield from compare("NumPy", lambda: em_routing(V, a, *prices), lambda: plain(V, a, *prices), V.sum, products(by_parent))


if __name__ == "__main__":
    alone(rows)
