"""Each fast form computes what its plain twin computes, to rounding error.

The plain form of capsule regression is `capslit.capsules.plain`. The others are cells of the
chapters, under the formulas that they compute; they are read from the notebooks.
"""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from test_matching_pursuit import problem as pursuit_problem
from test_routing import plainly as plain_routing
from test_routing import problem as routing_problem

from capslit import em
from capslit.capsules import inference, plain, prediction, special
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.capsules.features import kernel_features
from capslit.capsules.initialisation import subspace
from capslit.composition.exact import small_sets
from capslit.composition.gaussian import GaussianCompositions
from capslit.composition.model import Compositions, Experts
from capslit.composition.pursuit import matching_pursuit, plain_pursuit
from capslit.factorial.chains import ChainParameters, FactorialChains
from capslit.factorial.e_steps import Exact, Truncated, _gaussian_field
from capslit.mixtures.factor_analysis import LinearManifolds, ManifoldParameters
from capslit.mixtures.gaussian import Mixtures, _recentred, log_sum, mixture_parameters
from capslit.mixtures.missing import with_gaps
from capslit.routing import kernels
from capslit.routing.procedure import em_routing, inverse_temperatures

CHAPTERS = Path(__file__).resolve().parent.parent / "nbs"


def on_page(chapter, name):
    "The function `name` of a chapter, made from the cell that defines it."
    cells = json.loads((CHAPTERS / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (source,) = (text for text in sources if f"def {name}(" in text)
    names = {"np": np}
    exec(compile(source, f"{chapter}.ipynb", "exec"), names)
    return names[name]


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


def plain_factors(norms, y, dims):
    "What the engine needs of an example: the ratio of other capsules, what is added, log P."
    right = np.eye(len(dims), dtype=bool)[y]
    ratios = plain.posterior_ratios(norms, y, dims)
    shared = ratios[~right].reshape(len(y), -1)[:, 0]
    log_probability = np.log(plain.class_probabilities(norms, dims)[right])
    return shared, ratios[right] - shared, log_probability


def fast_factors(norms, y, dims):
    own = norms[np.arange(len(y)), y]
    return inference.posterior_factors(own, norms.sum(1), dims[y], dims.sum())


def labelled_poses(rng):
    W, x, y, dims, _, _ = capsule_problem(rng)
    return plain.pose_vectors(W, x)[0], y, dims


def plain_means(poses, y, dims):
    return plain.posterior_ratios((poses**2).sum(2), y, dims)[:, :, None] * poses


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


def steps(model, start, data, count, options=None, **settings):
    "The state of the loop of `em.fit` after some steps."
    rounds = (em.Round(1000, options or {}),)
    states = em.iterate(model, em.State.start(start), data, rounds, **settings)
    return [state for state, _ in zip(states, range(count))][-1]


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
    options = {"threshold": threshold}
    return steps(model, start, (x, y, weight), 1, options).parameters.weights[0]


def fit_plain(x, y, dims, weight):
    return plain.fit(x, y, dims, weight, threshold=0.8, momentum=0.9, n_iter=20)


def fit_engine(x, y, dims, weight):
    "Twenty steps from the plain initial weights."
    start = CapsuleParameters(plain._initial_weights(x, y, dims, weight)[None])
    model, options = engine(x, dims, weight), {"threshold": 0.8}
    return steps(model, start, (x, y, weight), 20, options, momentum=0.9).parameters.weights[0]


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


# Mixtures


def mixture_problem(rng):
    "Examples, their weights, and a mixture, in small and large units."
    k, p, unit = rng.integers(1, 4), rng.integers(1, 5), 10 ** rng.uniform(-3, 2)
    roots = rng.normal(size=(k, p, p + 2))
    S = unit**2 * roots @ roots.transpose(0, 2, 1)
    x, means = 2 * unit * rng.normal(size=(50, p)), unit * rng.normal(size=(k, p))
    return x, rng.random(50), rng.dirichlet(np.ones(k)), means, S


def diagonal_mixture_problem(rng):
    x, w, weights, means, S = mixture_problem(rng)
    return x, w, weights, means, S * np.eye(S.shape[1])


def diagonal_step(*arguments):
    "The plain step, of which only the variances are kept."
    weights, means, S, likelihood = on_page("mixtures/gaussian", "plain_mixture_step")(*arguments)
    return weights, means, np.diagonal(S, axis1=1, axis2=2), likelihood


def engine_mixture_step(kind):
    def step(x, w, weights, means, S):
        S = np.diagonal(S, axis1=1, axis2=2) if kind == "diag" else S
        start = mixture_parameters(weights[None], means[None], S[None])
        state = steps(Mixtures(kind), start, (x, w), 1)
        new = state.parameters
        likelihood = state.history["log_likelihood"][0][0]
        return np.exp(new.log_weights[0]), new.means[0], new.covariances[0], likelihood

    return step


def manifold_problem(rng):
    "Examples, and the weights, means, loadings and noise of a mixture of factor analysers."
    m, p = rng.integers(1, 4), rng.integers(3, 6)
    loadings = rng.normal(size=(m, p, rng.integers(1, 3)))
    x = 2 * rng.normal(size=(60, p))
    noise = rng.uniform(0.5, 2, (m, p))
    return x, rng.dirichlet(np.ones(m)), rng.normal(size=(m, p)), loadings, noise


def engine_factor_step(x, weights, means, loadings, noise):
    parts = np.log(weights), means, loadings, np.log(noise)
    start = ManifoldParameters(*(part[None] for part in parts))
    state = steps(LinearManifolds(), start, (x, None, None), 1)
    log_weights, means, loadings, log_noise = (leaf[0] for leaf in state.parameters)
    likelihood = state.history["log_likelihood"][0][0]
    return np.exp(log_weights), means, loadings, np.exp(log_noise), likelihood


def with_holes(x, rng):
    "Examples of which a third of the values are missing, of one all."
    x = np.where(rng.random(x.shape) < 1 / 3, np.nan, x)
    x[0] = np.nan
    return x


def gappy_mixture(rng):
    x, *rest = mixture_problem(rng)
    return with_holes(x, rng), *rest


def plain_gappy_variances(x, w, weights, means, S):
    "The plain sums, of which only the squares are kept."
    sums = on_page("mixtures/missing", "plain_gappy_sums")
    mass, first, second, likelihood = sums(x, w, weights, means, S * np.eye(S.shape[1]))
    return mass, first, np.diagonal(second, axis1=1, axis2=2), likelihood


def engine_gappy_sums(kind):
    "The sums of the plain form, from those about the means."

    def sums(x, w, weights, means, S):
        S = np.diagonal(S, axis1=1, axis2=2) if kind == "diag" else S
        start = mixture_parameters(weights[None], means[None], S[None])
        found = with_gaps(Mixtures(kind)).e_step(start, (x, w))
        moments = found.mass[0], found.first[0], found.second[0]
        first, second = _recentred(*moments, means)
        return moments[0], first, second, found.log_likelihood[0]

    return sums


def gappy_analysers(rng):
    x, *rest = manifold_problem(rng)
    return with_holes(x, rng), *rest


def plain_gappy_factor_sums(x, weights, means, loadings, noise):
    "All sums of the M-step, with codes z = Vᵀ(x − μ), from moments under dense covariances."
    S = loadings @ np.swapaxes(loadings, 1, 2) + noise[:, :, None] * np.eye(x.shape[1])
    plain_sums = on_page("mixtures/missing", "plain_gappy_sums")
    mass, first, second, likelihood = plain_sums(x, np.ones(len(x)), weights, means, S)
    scaled = loadings / noise[:, :, None]
    inner = np.swapaxes(loadings, 1, 2) @ scaled + np.eye(loadings.shape[2])
    V = scaled @ np.swapaxes(np.linalg.inv(np.linalg.cholesky(inner)), 1, 2)
    cross = (second - first[:, :, None] * means[:, None]) @ V
    codes = np.swapaxes(V, 1, 2) @ (first - mass[:, None] * means)[:, :, None]
    offset = np.swapaxes(V, 1, 2) @ means[:, :, None]
    inner = np.swapaxes(V, 1, 2) @ cross - offset @ np.swapaxes(codes, 1, 2)
    squares = np.diagonal(second, axis1=1, axis2=2)
    return mass, first, squares, codes[:, :, 0], cross, inner, likelihood


def engine_gappy_factor_sums(x, weights, means, loadings, noise):
    parts = np.log(weights), means, loadings, np.log(noise)
    start = ManifoldParameters(*(part[None] for part in parts))
    found = with_gaps(LinearManifolds()).e_step(start, (x, None, None))
    return tuple(leaf[0] for leaf in found[:7])


def planes(rng):
    "Examples, means, loadings and temperature of a mixture of PCA."
    x, _, means, loadings, _ = manifold_problem(rng)
    return x, means, loadings, rng.uniform(0.5, 2)


def engine_pca_responsibilities(x, means, loadings, temperature):
    log_noise = np.full_like(means, np.log(temperature))
    parameters = ManifoldParameters(
        np.zeros((1, len(means))), means[None], loadings[None], log_noise[None]
    )
    model = LinearManifolds("none", temperature=temperature)
    scores, q = log_sum(model.log_joint(parameters, x))
    return q[0], scores[0]


# Factorial models


def causes(rng):
    "Examples, and the weights, priors and noise variance of d vectors with k states."
    d, k, p = rng.integers(1, 4), rng.integers(2, 4), rng.integers(1, 4)
    y, W = 2 * rng.normal(size=(20, p)), rng.normal(size=(d, k, p))
    return y, W, rng.dirichlet(np.ones(k), d), rng.uniform(0.5, 2)


def engine_posterior(e_step):
    def posterior(y, W, priors, variance):
        field = _gaussian_field(y, W, np.log(priors), np.log(variance))
        found = e_step(field, np.ones(len(y)))
        return found.means, found.moments, found.bound

    return posterior


def sequence(rng):
    "A sequence of four observations, and the parameters of chains."
    d, k, p = rng.integers(1, 3), rng.integers(2, 4), rng.integers(1, 4)
    initial, transitions = rng.dirichlet(np.ones(k), d), rng.dirichlet(np.ones(k), (d, k))
    y, W = 2 * rng.normal(size=(4, p)), rng.normal(size=(d, k, p))
    return y, initial, transitions, W, rng.uniform(0.5, 2)


def engine_path_sums(y, initial, transitions, W, variance):
    d, k, p = W.shape
    logs = np.log(initial)[None], np.log(transitions)[None]
    parameters = ChainParameters(*logs, W.reshape(1, d * k, p), np.log([variance]))
    sums = FactorialChains().e_step(parameters, (y[None], None, None))
    return tuple(
        part[0]
        for part in (sums.initial, sums.transitions, sums.second, sums.cross, sums.log_likelihood)
    )


# Routing


def routing_case(rng):
    "Votes of a batch of problems, activations of the children, both betas, temperatures."
    votes, a, beta_u, beta_a = routing_problem(int(rng.integers(2**32)), 2, n=rng.integers(8, 40))
    return votes, a, beta_u, beta_a, inverse_temperatures(3, 0.1)


def fast_routing(loops):
    def route(votes, a, beta_u, beta_a, temperatures):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "worth_compiling", lambda *sizes: loops)
            settings = {"inverse_temperature": temperatures, "variance_floor": 0}
            return tuple(em_routing(votes, a, beta_u, beta_a, 3, **settings))

    return route


# Compositional models


def pursuit_case(rng):
    return pursuit_problem(int(rng.integers(2**32)))


def search(function):
    def found(X, templates, options):
        result = function(X, templates, **options)
        return result.experts + 2, result.poses + 2, result.log_likelihood

    return found


def composition_case(rule):
    def draw(rng):
        "Images, templates near some of them, and a model of the rule."
        X = (rng.random((20, 15)) < 0.5).astype(float)
        templates = 0.1 + 0.8 * X[:3] + rng.uniform(-0.1, 0.1, (3, 15))
        q = 0.02 if rule == "maximum" else rng.choice([0.3, 0.5])
        model = Compositions(rule, q, truncated=rule == "maximum", pseudocount=rng.choice([0.5, 1]))
        return X, templates, model

    return draw


def counted(x, templates, model):
    found = model.explain(templates, x)
    active = [[k for k in experts if k >= 0] for experts in found.experts.tolist()]
    owned_above = 0 if model.rule == "maximum" else model.q
    settings = owned_above, model.q, model.pseudocount
    return on_page("composition/model", "plain_count")(x, templates, active, *settings)


def engine_count(x, templates, model):
    start = Experts(templates[None], np.full((1, *templates.shape), 2.0))
    sums = model.e_step(start, (x, None))
    return sums.ink[0], sums.counts[0], steps(model, start, (x, None), 1).parameters.templates[0]


def numbers(rng):
    "Examples, experts, variance, abstention, rule and cost of an expert."
    rule = rng.choice(["maximum", "max_minus_min", "sum"])
    x, templates = 2 * rng.normal(size=(40, 5)), 2 * rng.normal(size=(4, 5))
    return x, templates, rng.uniform(0.5, 2), rng.normal(), rule, rng.uniform(0, 3)


def engine_best_sets(x, templates, variance, q, rule, cost):
    model = GaussianCompositions(rule, q, cost)
    best, mu = model.explain(templates, variance, x)
    sets = small_sets(len(templates))[best]
    return sets.astype(int), model.log_likelihood(x, mu, variance) - cost * sets.sum(1)


# Prediction


def kernel_case(rng):
    "Inputs, the features of a radial kernel, weights and dimensions of capsules."
    x, dims = rng.normal(size=(30, 4)), rng.integers(1, 4, 3)
    features = kernel_features(x, "rbf", 0.3, 12, 1.0, rng)
    width = 4 + features.root.shape[1]
    mask = np.arange(max(dims)) < dims[:, None]
    W = rng.normal(size=(3, max(dims), width)) * mask[:, :, None]
    return rng.normal(size=(50, 4)), features, W, dims


def plain_kernel(x, features, W, dims):
    function = on_page("capsules/features", "plain_kernel_probabilities")
    return function(x, features.landmarks, features.gamma, features.root, W, dims)


def fast_kernel(compiled, folded=False):
    def probabilities(x, features, W, dims):
        if folded:
            features, W = features.folded(W)
            assert features.root is None
        predictor = prediction.Predictor(W[None], dims[None], compiled=compiled, features=features)
        assert (predictor._shares_by_loops(x) is not None) == compiled
        return predictor.probabilities(x)

    return probabilities


def pairs_of_classes(rng):
    m = rng.integers(3, 8)
    return (rng.uniform(0.01, 0.99, (40, m * (m - 1) // 2)),)


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
    "posterior factors": (plain_factors, fast_factors, labelled_lengths, 1e-11),
    "posterior means": (plain_means, inference.posterior_mean, labelled_poses, 1e-12),
    "capsules, E-step": (plain.e_step, engine_e_step(False), capsule_problem, 1e-12),
    "capsules, compiled E-step": (plain.e_step, engine_e_step(True), capsule_problem, 1e-12),
    "capsules, M-step": (plain_m_step, engine_m_step, capsule_problem, 1e-12),
    "capsules, initial weights": (
        lambda *arguments: projectors(plain._initial_weights(*arguments)),
        engine_start,
        digits,
        1e-12,
    ),
    "capsules, 20 steps on digits": (fit_plain, fit_engine, digits, 1e-12),
    "Gaussian mixture, EM step": (
        on_page("mixtures/gaussian", "plain_mixture_step"),
        engine_mixture_step("full"),
        mixture_problem,
        1e-11,
    ),
    "Gaussian mixture, variances": (
        diagonal_step,
        engine_mixture_step("diag"),
        diagonal_mixture_problem,
        1e-11,
    ),
    "Gaussian mixture, missing values": (
        on_page("mixtures/missing", "plain_gappy_sums"),
        engine_gappy_sums("full"),
        gappy_mixture,
        1e-10,
    ),
    "Gaussian mixture, variances, missing values": (
        plain_gappy_variances,
        engine_gappy_sums("diag"),
        gappy_mixture,
        1e-10,
    ),
    "factor analysers, missing values": (
        plain_gappy_factor_sums,
        engine_gappy_factor_sums,
        gappy_analysers,
        1e-10,
    ),
    "factor analysers, EM step": (
        on_page("mixtures/factor_analysis", "plain_factor_step"),
        engine_factor_step,
        manifold_problem,
        1e-11,
    ),
    "mixture of PCA, responsibilities": (
        on_page("mixtures/factor_analysis", "plain_pca_responsibilities"),
        engine_pca_responsibilities,
        planes,
        1e-11,
    ),
    "factorial model, exact E-step": (
        on_page("factorial/e_steps", "plain_exact_posterior"),
        engine_posterior(Exact()),
        causes,
        1e-11,
    ),
    "factorial model, truncated E-step of few configurations": (
        engine_posterior(Truncated(27)),  # room for all
        engine_posterior(Truncated()),
        causes,
        1e-11,
    ),
    "factorial HMM, exact E-step": (
        on_page("factorial/chains", "plain_path_sums"),
        engine_path_sums,
        sequence,
        1e-11,
    ),
    "EM routing": (
        lambda *case: tuple(plain_routing(*case)),
        fast_routing(False),
        routing_case,
        1e-10,
    ),
    "EM routing, compiled": (
        lambda *case: tuple(plain_routing(*case)),
        fast_routing(True),
        routing_case,
        1e-10,
    ),
    "matching pursuit": (search(plain_pursuit), search(matching_pursuit), pursuit_case, 1e-12),
    "compositional model, EM step": (
        counted,
        engine_count,
        composition_case("max_minus_min"),
        1e-12,
    ),
    "maximum of experts, EM step": (counted, engine_count, composition_case("maximum"), 1e-12),
    "sets of experts for numbers": (
        on_page("composition/gaussian", "plain_best_sets"),
        engine_best_sets,
        numbers,
        1e-12,
    ),
    "kernel prediction": (plain_kernel, fast_kernel(False), kernel_case, 1e-12),
    "kernel prediction, compiled": (plain_kernel, fast_kernel(True), kernel_case, 1e-12),
    "prediction with a kernel, root in the weights": (
        plain_kernel,
        fast_kernel(False, folded=True),
        kernel_case,
        1e-12,
    ),
    "coupled pairs": (
        lambda first: np.sort(on_page("capsules/prediction", "plain_coupled")(first)),
        lambda first: np.sort(prediction.coupled(first)),
        pairs_of_classes,
        1e-11,
    ),
}


def difference(a, b):
    "The largest relative error of positive arrays; of others, relative to their largest element."
    if isinstance(a, tuple):
        return np.max([difference(x, y) for x, y in zip(a, b, strict=True)])
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    unequal = a != b  # infinities may be equal
    scale = a[unequal] if (a > 0).all() else np.max(np.abs(a), initial=0)
    return np.max(np.abs(a[unequal] - b[unequal]) / scale, initial=0)


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
