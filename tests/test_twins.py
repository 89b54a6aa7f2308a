"""Each fast form computes what its plain twin computes, to rounding error."""

import ast
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from capslit import em
from capslit.capsules import inference, plain, special
from capslit.capsules.em_steps import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.capsules.initialisation import subspace


# Generators: the arguments of both functions, from a random number generator


def orders_and_arguments(rng):
    "An order 1/2, 1, 3/2, … and arguments from far below it to far above."
    s = rng.integers(1, 200) / 2
    return s, np.concatenate([10 ** rng.uniform(-9, 4, 100), s * rng.uniform(0.5, 1.5, 100)])


def squared_lengths(rng):
    "Squared lengths (n, m) and capsule dimensions (m,)."
    m = rng.integers(2, 8)
    return 10 ** rng.uniform(-4, 3, (40, m)), rng.integers(1, 6, m)


def labelled_lengths(rng):
    norms, dims = squared_lengths(rng)
    return norms, rng.integers(0, len(dims), len(norms)), dims


def capsule_problem(rng):
    "Weights, inputs, labels, dimensions, weights of the examples and a threshold."
    m, p = rng.integers(2, 6), rng.integers(2, 7)
    dims = rng.integers(1, 4, m)
    x, y = rng.normal(size=(60, p)), rng.integers(0, m, 60)
    W = 2 * rng.normal(size=(m, max(dims), p)) * (np.arange(max(dims)) < dims[:, None])[:, :, None]
    return W, x, y, dims, rng.integers(0, 3, 60) * 1.0, rng.choice([0, 0.5, 0.8])


def digits(rng):
    "Half of the digits on 20 principal directions, and dimensions from 1 to 4."
    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(y))[: len(y) // 2]
    x = X[rows] / 16
    projection = np.linalg.svd(x, full_matrices=False)[2][:20].T
    return x @ projection, y[rows], rng.integers(1, 5, 10), rng.integers(1, 3, len(rows)) * 1.0


# The engine's side of capsule regression, in the shapes of the plain functions


def engine(x, dims, weight, compiled=False):
    "The model of one problem, ready for E- and M-steps."
    gram = x.T * weight @ x
    m = len(dims)
    return CapsuleRegression(
        np.arange(m)[None], dims[None], LeastSquares.from_gram(gram[None]), compiled=compiled
    )


def engine_e_step(compiled):
    def step(W, x, y, dims, weight, threshold):
        model = engine(x, dims, weight, compiled)
        statistics = model.e_step(CapsuleParameters(W[None]), (x, y, weight), np.array([threshold]))
        return statistics.moments[0], statistics.log_likelihood[0]

    return step


def plain_m_step(W, x, y, dims, weight, threshold):
    moments, _ = plain.e_step(W, x, y, dims, weight, threshold)
    return moments @ np.linalg.pinv(x.T * weight @ x, hermitian=True)


def engine_m_step(W, x, y, dims, weight, threshold):
    model, start = engine(x, dims, weight), CapsuleParameters(W[None])
    statistics = model.e_step(start, (x, y, weight), np.array([threshold]))
    return model.m_step(start, statistics).weights[0]


def fit_plain(x, y, dims, weight):
    return plain.fit(x, y, dims, weight, threshold=0.8, momentum=0.9, n_iter=20)


def fit_engine(x, y, dims, weight):
    "Twenty steps of the loop of `em.fit`, from the plain initial weights."
    state = em.State.start(CapsuleParameters(plain.initial_weights(x, y, dims, weight)[None]))
    rounds = (em.Round(1000, {"threshold": 0.8}),)
    steps = em.iterate(engine(x, dims, weight), state, (x, y, weight), rounds, momentum=0.9)
    for state, _ in zip(steps, range(20)):
        pass
    return state.parameters.weights[0]


def projectors(rows):
    "Rows of weights enter only through WᵀW, which does not depend on the signs of eigenvectors."
    return np.einsum("mdp,mdq->mpq", rows, rows)


def engine_start(x, y, dims, weight):
    def moment(own):
        return x.T * own @ x / own.sum()

    rows = [
        subspace(moment(weight * (y == i)), d, moment(weight), np.random.default_rng(0))[0]
        for i, d in enumerate(dims)
    ]
    return np.stack([row.T @ row for row in rows])


CASES = {  # name: (plain function, fast function, generator of inputs, tolerance)
    "interpolating integral": (
        plain.interpolating_integral,
        special.interpolating_integral,
        orders_and_arguments,
        1e-14,
    ),
    "class probabilities": (
        plain.class_probabilities,
        inference.class_probabilities,
        squared_lengths,
        1e-12,
    ),
    "posterior ratios": (
        plain.posterior_ratios,
        inference.posterior_ratios,
        labelled_lengths,
        1e-12,
    ),
    "capsules, E-step": (plain.e_step, engine_e_step(False), capsule_problem, 1e-12),
    "capsules, compiled E-step": (plain.e_step, engine_e_step(True), capsule_problem, 1e-12),
    "capsules, M-step": (plain_m_step, engine_m_step, capsule_problem, 1e-12),
    "capsules, initial weights": (
        lambda *arguments: projectors(plain.initial_weights(*arguments)),
        engine_start,
        digits,
        1e-12,
    ),
    "capsules, 20 steps on digits": (fit_plain, fit_engine, digits, 1e-12),
}


def difference(a, b):
    "The largest relative error of positive arrays; of others, relative to their largest element."
    if isinstance(a, tuple):
        return max(difference(x, y) for x, y in zip(a, b, strict=True))
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    scale = a if (a > 0).all() else np.max(np.abs(a))
    return np.max(np.abs(a - b) / scale)


@pytest.mark.parametrize("name", CASES)
def test_the_fast_form_computes_what_the_plain_one_does(name):
    if "compiled" in name:
        pytest.importorskip("numba", reason="Numba is not installed; pip install capslit[fast]")
    slow, fast, draw, tolerance = CASES[name]
    for seed in range(10):
        arguments = draw(np.random.default_rng(seed))
        error = difference(slow(*arguments), fast(*arguments))
        assert error <= tolerance, f"seed {seed}: {error:.1e}"


def test_the_whole_model_has_at_most_sixty_lines():
    "Without docstrings and comments; the chapter's title says so."
    source = ast.unparse(ast.parse(Path(plain.__file__).read_text(encoding="utf-8")))
    docstrings = [node.__doc__ for node in (plain, *map(vars(plain).get, plain.__all__))]
    lines = [line for line in source.splitlines() if line.strip() and "__all__" not in line]
    assert len(lines) - len(docstrings) <= 60
