"""`FactorialVectorQuantizer` as a demanding user of scikit-learn meets it, and against
brute force.
"""

import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from capslit.factorial import Exact, Gibbs, MeanField, Truncated
from capslit.storage import load_arrays, save_arrays
from capslit.factorial.quantizer import FactorialVectorQuantizer, _origin_and_unit

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
E_STEPS = ("exact", "truncated", "mean_field", "gibbs")
e_steps = pytest.mark.parametrize("e_step", E_STEPS)


def quantizer(d=2, k=3, **settings):
    return FactorialVectorQuantizer(
        d, k, **{"random_state": 0, "n_init": 2, "n_jobs": 1} | settings
    )


def sums(n=60, p=5, shape=(2, 3), noise=0.1, seed=0):
    "Sums of random causes, and the causes (n, d)."
    rng = np.random.default_rng(seed)
    causes, states = rng.standard_normal((*shape, p)), rng.integers(shape[1], size=(n, shape[0]))
    return np.sum(causes[np.arange(shape[0]), states], axis=1) + noise * rng.standard_normal(
        (n, p)
    ), states


BASE = sums()[0]
BITS = (BASE > 0).astype(float)


def every_state(model):
    "All configurations, one-hot (k^d, d·k), and their log-priors (k^d,)."
    d, k = model.priors_.shape
    states = np.array(list(itertools.product(range(k), repeat=d)))
    return np.eye(k)[states].reshape(len(states), -1), np.sum(
        np.log(model.priors_)[np.arange(d), states], axis=1
    )


def outputs(model, X):
    return [
        model.transform(X),
        model.predict(X),
        model.inverse_transform(model.transform(X)),
        model.score_samples(X),
        *model.sample(7),
    ]


def state(model):
    return pickle.dumps(vars(model))


# ── scikit-learn's own checks
# ────────────────────────────────────────────────────────────────────────────────────────────────


def test_states_by_number_are_states():
    model = quantizer().fit(BASE)
    d, k = model.priors_.shape
    states = model.predict(BASE)
    assert np.allclose(
        model.inverse_transform(states),
        model.inverse_transform(np.eye(k)[states].reshape(len(BASE), d * k)),
    )
    with pytest.raises(ValueError, match=f"whole numbers from 0 to {k - 1}"):
        model.inverse_transform(states + k)


# ── by definition
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("priors", ["equal", "learned"])
@pytest.mark.parametrize("observable", ["gaussian", "bernoulli", "poisson"])
def test_densities_and_states_by_definition(observable, priors):
    X = {"gaussian": BASE, "bernoulli": BITS, "poisson": np.round(3 + BASE).clip(0)}[observable]
    model = quantizer(priors=priors, observable=observable).fit(X)
    S, log_priors = every_state(model)
    eta = (S @ model.components_.reshape(6, 5))[None]
    x = X[:, None]
    terms = {
        "gaussian": lambda: (
            -0.5
            * ((x - eta) ** 2 / model.noise_variance_ + np.log(2 * np.pi * model.noise_variance_))
        ),
        "bernoulli": lambda: np.log(np.where(x == 1, expit(eta), expit(-eta))),
        "poisson": lambda: x * eta - np.exp(eta) - gammaln(x + 1),
    }[observable]()
    joint = np.sum(terms, axis=2) + log_priors
    total = logsumexp(joint, axis=1)
    assert (
        np.allclose(model.score_samples(X), total)
        and np.isclose(model.score(X), total.mean())
        and model.exact_scores_
    )
    assert np.allclose(model.transform(X), np.exp(joint - total[:, None]) @ S, atol=1e-8)
    mean = {"gaussian": lambda e: e, "bernoulli": expit, "poisson": np.exp}[observable](eta[0])
    assert np.allclose(model.inverse_transform(S), mean)
    assert np.isclose(model.lower_bound_, model.score(X), atol=1e-3) and np.isclose(
        model.history_["log_likelihood"].max() / 60, model.score(X), atol=1e-6
    )


@e_steps
def test_states_sum_to_one_and_one_hot_states_make_the_components(e_step):
    model = quantizer(e_step=e_step).fit(BASE)
    states = model.transform(BASE)
    assert (
        states.shape == (60, 6)
        and np.allclose(states.reshape(60, 2, 3).sum(axis=2), 1)
        and np.all(states >= 0)
    )
    assert np.array_equal(model.predict(BASE), states.reshape(60, 2, 3).argmax(axis=2))
    assert np.allclose(
        model.inverse_transform(np.eye(6)), model.components_.reshape(6, 5), atol=1e-12
    )
    assert np.allclose(model.inverse_transform(states), states @ model.components_.reshape(6, 5))
    assert model.get_feature_names_out().tolist() == [
        f"vector{i}_state{j}" for i in range(2) for j in range(3)
    ]
    means = model.components_.mean(axis=1)
    assert np.allclose(means, means[0], atol=1e-6)  # constants are shared out


@e_steps
@pytest.mark.parametrize("priors", ["equal", "learned"])
def test_causes_are_recovered(e_step, priors):
    X, made_by = sums(200, 16, (3, 3))
    model = quantizer(3, 3, e_step=e_step, priors=priors, n_init=5).fit(X)
    found, tables = model.predict(X), np.zeros((3, 3, 3, 3))
    for i, l in itertools.product(range(3), repeat=2):
        np.add.at(tables[i, l], (found[:, i], made_by[:, l]), 1)
    best = max(
        sum(tables[i, order[i]].max(axis=1).sum() for i in range(3))
        for order in itertools.permutations(range(3))
    )
    assert best / 600 > 0.98 and 0.005 < model.noise_variance_ < 0.015


def test_lines_are_recovered_with_the_defaults():
    rows, columns = np.divmod(np.arange(16), 4)
    images = np.zeros((16, 4, 4))
    images[np.arange(16), rows] += 1
    images[np.arange(16), :, columns] += 1
    model = FactorialVectorQuantizer(2, 4, random_state=0).fit(
        np.tile(images.reshape(16, 16), (10, 1))
    )
    parts = model.components_.reshape(2, 4, 4, 4)
    parts = parts if np.ptp(parts[0], axis=2).max() < 0.1 else parts[::-1]  # rows first
    shares = parts[0].mean(axis=2), parts[1].mean(axis=1)
    assert np.allclose(parts[0], shares[0][:, :, None], atol=1e-2) and np.allclose(
        parts[1], shares[1][:, None, :], atol=1e-2
    )
    for share in shares:
        assert np.allclose(np.sort(share, axis=1), [0, 0, 0, 1], atol=1e-2) and np.array_equal(
            np.sort(share.argmax(axis=1)), range(4)
        )


@pytest.mark.parametrize("e_step", [Truncated(4), "mean_field", "gibbs"], ids=str)
def test_bounds_do_not_exceed_log_densities(e_step):
    X = sums(80, 4, (3, 3), noise=0.7)[0]
    model = quantizer(3, 3, e_step=e_step, max_iter=10).fit(X)
    engine, parameters = model._fitted()
    origin, unit = model._frame()
    bound = engine.bound(parameters, (X - origin) / unit)[0] - 4 * np.log(unit)
    exact = model.score_samples(X)
    assert np.all(bound <= exact + 1e-9) and np.mean(exact - bound) > 1e-6


def test_scores_beyond_enumeration_are_bounds():
    X = sums(50, 6, (3, 3))[0]
    for e_step in ("mean_field", "truncated", "gibbs"):
        model = quantizer(20, 3, e_step=e_step, max_iter=3).fit(X)
        assert not model.exact_scores_ and np.all(np.isfinite(model.score_samples(X)))
        assert all(np.all(np.isfinite(a)) for a in outputs(model, X))


def test_samples_have_the_moments_of_the_model():
    model = quantizer(priors="learned").fit(BASE)
    drawn, states = model.sample(40_000)
    S, log_priors = every_state(model)
    means, share = model.inverse_transform(S), np.exp(log_priors)
    mean = share @ means
    C = (share[:, None] * (means - mean)).T @ (means - mean) + model.noise_variance_ * np.eye(5)
    assert (
        drawn.shape == (40_000, 5)
        and states.shape == (40_000, 2)
        and np.array_equal(model.sample(5)[0], model.sample(5)[0])
    )
    assert np.allclose(drawn.mean(axis=0), mean, atol=0.03) and np.allclose(
        np.cov(drawn.T), C, atol=0.06
    )
    assert np.allclose(
        np.var(drawn - model.inverse_transform(states), axis=0), model.noise_variance_, rtol=0.05
    )
    assert all(
        np.allclose(np.bincount(states[:, i], minlength=3) / 40_000, model.priors_[i], atol=0.01)
        for i in range(2)
    )
    for observable in ("bernoulli", "poisson"):
        model = quantizer(observable=observable).fit(BITS)
        S, log_priors = every_state(model)
        assert np.allclose(
            model.sample(20_000)[0].mean(axis=0),
            np.exp(log_priors) @ model.inverse_transform(S),
            atol=0.03,
        )


# ── learning
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_best_of_several_starts_is_kept():
    X = sums(150, 6, (3, 3))[0]
    settings = {"init": "random", "random_state": 3}
    many = quantizer(3, 3, n_init=8, **settings).fit(X)
    chance = np.random.RandomState(3)
    chance.randint(2**31 - 1)  # as the fit does first
    alone = [
        quantizer(3, 3, n_init=1, init="random", random_state=seed).fit(X).lower_bound_
        for seed in range(8)
    ]
    first = quantizer(3, 3, n_init=1, **settings).fit(X)
    assert many.lower_bound_ >= first.lower_bound_ - 1e-9 and many.lower_bound_ > np.median(alone)
    assert len(np.unique(np.round(alone, 3))) > 1


@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
def test_accelerations_find_no_worse_and_stay_admissible(acceleration):
    X = sums(200, 4, (2, 3), noise=1.0)[0]
    plain, fast = (
        quantizer(priors="learned", tol=1e-7, max_iter=2000, acceleration=how).fit(X)
        for how in (None, acceleration)
    )
    assert fast.lower_bound_ > plain.lower_bound_ - 1e-3 and fast.n_iter_ < plain.n_iter_
    assert np.allclose(fast.priors_.sum(axis=1), 1, atol=1e-12) and np.isclose(
        fast.score(X), fast.lower_bound_, atol=1e-4
    )


class Forgetful(FactorialVectorQuantizer):
    "The estimator whose E-steps begin anew each time."

    def _remembered(self, data):
        return 0


@pytest.mark.parametrize(
    "settings",
    [
        {"e_step": "mean_field", "init": "random"},
        {"e_step": MeanField(1), "init": "random"},
        {"e_step": Truncated(3)},
        {"e_step": Truncated(8)},
    ],
    ids=str,
)
def test_with_a_memory_the_bound_never_falls_and_ends_higher(settings):
    d, p, noise = (4, 4, 0.5) if "init" in settings else (5, 5, 0.3)
    fell, gained = 0, []
    for seed in (1, 2, 3):
        X = sums(120, p, (d, 3), noise=noise, seed=seed)[0]
        model = quantizer(d, 3, max_iter=30, tol=0.0, patience=99, random_state=seed, **settings)
        kept, cold = clone(model).fit(X), Forgetful(**model.get_params(deep=False)).fit(X)
        path = kept.history_["objective"]
        assert np.all(np.diff(path) >= -1e-9 * np.abs(path[1:]))
        fell += np.sum(np.diff(cold.history_["objective"]) < -1e-6 * 120)
        gained.append(kept.lower_bound_ - cold.lower_bound_)
    assert np.mean(gained) > 0.01 and fell > 0  # of those without it


@pytest.mark.parametrize("e_step", ["mean_field", "truncated"])
@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
def test_a_leap_that_is_discarded_is_not_remembered(e_step, acceleration):
    from capslit import em
    from capslit.em.acceleration import Anderson, Squarem
    from capslit.factorial.model import FactorialVectorModel

    X, rejected = sums(100, 4, (3, 3), noise=0.7)[0], 0
    inference = {"mean_field": MeanField(1), "truncated": Truncated(2)}[e_step]
    model = FactorialVectorModel(3, 3, inference, noise="learned", priors="learned", n_examples=100)
    run = em.fit(
        model,
        model.initialise(X, 4, 0),
        (X, None, np.arange(100)),
        rounds=[em.Round(99)],
        max_iter=60,
        acceleration={"squarem": Squarem(), "anderson": Anderson()}[acceleration],
        n_threads=1,
    )
    for q in range(4):
        accepted = np.array(run.history["accepted"])[:, q].astype(bool)
        path, rejected = run.history["objective"][accepted, q], rejected + np.sum(~accepted)
        assert np.all(np.diff(path) >= -1e-9 * np.abs(path[1:]))
    assert rejected > 0


@pytest.mark.parametrize("e_step", ["mean_field", Truncated(3)], ids=str)
def test_a_run_that_is_interrupted_within_an_e_step_resumes_to_the_same_bits(
    e_step, tmp_path, monkeypatch
):
    "Some blocks have then already written where they end; that must not count."
    from capslit.factorial import model as module

    X, path, calls, plain = (
        sums(300, 6, (3, 3), noise=0.7)[0],
        tmp_path / "causes.npz",
        [0],
        module._posterior,
    )
    monkeypatch.setattr(module.FactorialVectorModel, "block_rows", lambda self, parameters: 64)
    settings = {"e_step": e_step, "tol": 0.0, "patience": 99, "max_iter": 12}
    straight = quantizer(3, 3, **settings).fit(X)

    def interrupted(*args):
        calls[0] += 1
        if calls[0] == 53:  # 10 calls to an iteration: within the sixth
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(module, "_posterior", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantizer(3, 3, **settings).fit(X, checkpoint=path)
    monkeypatch.setattr(module, "_posterior", plain)
    resumed = quantizer(3, 3, **settings).fit(X, checkpoint=path)
    assert np.array_equal(resumed.components_, straight.components_)
    assert np.array_equal(resumed.history_["objective"], straight.history_["objective"])


def test_noise_may_be_known():
    fixed = quantizer(noise=0.04).fit(BASE)
    assert np.isclose(fixed.noise_variance_, 0.04) and quantizer().fit(BASE).noise_variance_ < 0.02
    assert quantizer(observable="bernoulli").fit(BITS).noise_variance_ is None


# ── data of every kind
# ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scale", [1e-140, 1e-3, 1.0, 1e150])
def test_the_unit_is_the_root_of_the_mean_variance_at_every_scale(scale):
    X = scale * (BASE + 3)
    weight = np.arange(60.0)
    origin, unit = _origin_and_unit(
        SimpleNamespace(largest=np.abs(X).max(), n_samples=60), X, weight
    )
    mean = np.average(BASE + 3, axis=0, weights=weight)
    assert np.allclose(origin / scale, mean)
    assert np.isclose(
        unit / scale, np.sqrt(np.mean(np.average((BASE + 3 - mean) ** 2, axis=0, weights=weight)))
    )
    constant = np.full((60, 5), scale) * (1 + 1e-15 * np.arange(60) / 60)[:, None]
    assert (
        _origin_and_unit(SimpleNamespace(largest=scale, n_samples=60), constant, weight)[1] == scale
    )  # what varies is rounding


def test_settings_of_the_e_step_may_change_after_learning():
    model = quantizer().fit(BASE)
    exact = model.transform(BASE)
    near = model.set_params(e_step=Truncated(9), n_vectors=7).transform(BASE)
    assert np.allclose(exact, near)


def test_a_grid_search_reaches_the_settings_of_the_e_step():
    sizes = {"e_step__n_configurations": [1, 9]}
    search = GridSearchCV(quantizer(e_step=Truncated(4)), sizes, cv=2).fit(BASE)
    tried = [split["e_step__n_configurations"] for split in search.cv_results_["params"]]
    assert tried == [1, 9] and search.best_estimator_.e_step.n_configurations in tried


@pytest.mark.parametrize("e_step", [Truncated(9), MeanField(7), Gibbs(3, 1), Exact()], ids=str)
def test_files_with_the_settings_of_all_e_steps_as_parameters_are_read(e_step, tmp_path):
    path = tmp_path / "model.npz"
    model = quantizer(e_step=e_step, max_iter=2).fit(BASE)
    model.save(path)
    arrays, meta = load_arrays(path)
    meta = {name: meta[name] for name in ("parameters", "attributes", "version")}
    name = {Truncated: "truncated", MeanField: "mean_field", Gibbs: "gibbs", Exact: "exact"}
    settings = {"n_samples": 10, "burn_in": 5, "n_sweeps": 50, "n_configurations": 32}
    former = {key: getattr(e_step, key, value) for key, value in settings.items()}
    parameters = meta["parameters"] | former | {"e_step": name[type(e_step)]}
    schema = "capslit.FactorialVectorQuantizer/1"
    save_arrays(path, arrays, meta | {"schema": schema, "parameters": parameters})
    found = FactorialVectorQuantizer.load(path)
    assert found.e_step == e_step and np.array_equal(found.transform(BASE), model.transform(BASE))
