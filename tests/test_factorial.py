"""`FactorialVectorQuantizer`: against brute force, memories of E-steps, files of other releases."""

import numpy as np
import pytest
from conftest import together
from scipy.special import expit, gammaln, logsumexp

from capslit import em
from capslit.em.acceleration import Anderson, Squarem
from capslit.factorial import Exact, Gibbs, MeanField, Truncated
from capslit.factorial import model as module
from capslit.factorial.e_steps import configurations
from capslit.factorial.model import FactorialVectorModel
from capslit.factorial.quantizer import FactorialVectorQuantizer
from capslit.storage import load_arrays, save_arrays

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def quantizer(d=2, k=3, **settings):
    return FactorialVectorQuantizer(
        d, k, **{"random_state": 0, "n_init": 2, "n_jobs": 1} | settings
    )


def sums(n=60, p=5, shape=(2, 3), noise=0.1, seed=0):
    "Sums of random causes."
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((*shape, p))
    states = rng.integers(shape[1], size=(n, shape[0]))
    made = np.sum(causes[np.arange(shape[0]), states], axis=1)
    return made + noise * rng.standard_normal((n, p))


BASE = sums()
BITS = (BASE > 0).astype(float)


@pytest.mark.parametrize("priors", ["equal", "learned"])
@pytest.mark.parametrize("observable", ["gaussian", "bernoulli", "poisson"])
def test_densities_and_states_by_definition(observable, priors):
    X = {"gaussian": BASE, "bernoulli": BITS, "poisson": np.round(3 + BASE).clip(0)}[observable]
    model = quantizer(priors=priors, observable=observable).fit(X)
    S = configurations(2, 3)
    eta = S @ model.components_.reshape(6, 5)
    x = X[:, None]
    if observable == "gaussian":
        v, mean = model.noise_variance_, eta
        terms = -0.5 * ((x - eta) ** 2 / v + np.log(2 * np.pi * v))
    elif observable == "bernoulli":
        mean = expit(eta)
        terms = np.log(np.where(x == 1, mean, 1 - mean))
    else:
        mean = np.exp(eta)
        terms = x * eta - mean - gammaln(x + 1)
    joint = np.sum(terms, axis=2) + S @ np.log(model.priors_).ravel()
    total = logsumexp(joint, axis=1)
    states = model.transform(X)
    assert model.exact_scores_
    assert np.allclose(model.score_samples(X), total)
    assert np.isclose(model.score(X), total.mean())
    assert np.allclose(states, np.exp(joint - total[:, None]) @ S, atol=1e-8)
    assert np.array_equal(model.predict(X), states.reshape(60, 2, 3).argmax(axis=2))
    assert np.allclose(model.inverse_transform(S), mean)
    assert np.isclose(model.lower_bound_, model.score(X), atol=1e-3)
    assert len(model.history_["objective"]) == model.n_iter_
    assert np.isclose(model.history_["objective"].max() / len(X), model.lower_bound_)
    assert (model.noise_variance_ is None) == (observable != "gaussian")
    if observable == "gaussian":  # what all share is divided equally
        assert np.allclose(np.ptp(model.components_.mean(axis=1), axis=0), 0, atol=1e-6)


def test_scores_beyond_enumeration_are_bounds():
    X = sums(50, 6, (3, 3))
    for e_step in ("mean_field", "truncated", "gibbs"):
        model = quantizer(20, 3, e_step=e_step, max_iter=3).fit(X)
        assert not model.exact_scores_
        assert np.all(np.isfinite(model.score_samples(X)))


def test_the_best_of_several_starts_is_kept():
    X = sums(150, 6, (3, 3))
    settings = {"init": "random", "random_state": 3}
    many = quantizer(3, 3, n_init=8, **settings).fit(X)
    first = quantizer(3, 3, n_init=1, **settings).fit(X)
    assert many.lower_bound_ > first.lower_bound_ + 1e-3


def test_short_runs_are_for_several_default_starts(monkeypatch):
    kept, plain = [], FactorialVectorQuantizer._best_starts

    def counted(self, model, starts, batch, n_kept, n_steps):
        kept.append((len(starts.weights), n_kept))
        return plain(self, model, starts, batch, n_kept, n_steps)

    monkeypatch.setattr(FactorialVectorQuantizer, "_best_starts", counted)
    for settings in ({"n_init": 1}, {"init": "random"}, {"init": "kmeans"}, {}, {"n_init": 10}):
        quantizer(max_iter=3, **settings).fit(BASE)
    assert kept == [(6, 1), (30, 3)]


@pytest.mark.parametrize("acceleration", ["squarem", "anderson"])
def test_accelerations_find_no_worse_and_stay_admissible(acceleration):
    X = sums(200, 4, (2, 3), noise=1.0)
    plain, fast = (
        quantizer(priors="learned", tol=1e-7, max_iter=2000, acceleration=how).fit(X)
        for how in (None, acceleration)
    )
    assert fast.lower_bound_ > plain.lower_bound_ - 1e-3
    assert fast.n_iter_ < plain.n_iter_
    assert np.allclose(fast.priors_.sum(axis=1), 1, atol=1e-12)


@together("inference", [MeanField(1), Truncated(2)], ids=repr)
@together("acceleration", [Squarem(), Anderson()], ids=repr)
def test_a_leap_that_is_discarded_is_not_remembered(inference, acceleration):
    X = sums(100, 4, (3, 3), noise=0.7)
    settings = {"noise": "learned", "priors": "learned", "n_examples": 100}
    model = FactorialVectorModel(3, 3, inference, **settings)
    start, data = model.initialise(X, 4, 0), (X, None, np.arange(100))
    settings = {"rounds": [em.Round(99)], "max_iter": 60, "n_threads": 1}
    history = em.fit(model, start, data, acceleration=acceleration, **settings).history
    accepted = history["accepted"] == 1
    for path, kept in zip(history["objective"].T, accepted.T):
        assert np.all(np.diff(path[kept]) >= -1e-9 * np.abs(path[kept][1:]))
    assert not np.all(accepted)


@together("e_step", [MeanField(3), Truncated(3)])
def test_a_run_that_is_interrupted_within_an_e_step_resumes_to_the_same_bits(
    e_step, tmp_path, monkeypatch
):
    "Some blocks have then already written where they end; that must not count."
    X, path = sums(300, 6, (3, 3), noise=0.7), tmp_path / "causes.npz"
    monkeypatch.setattr(FactorialVectorModel, "block_rows", lambda self, parameters: 64)
    settings = {"e_step": e_step, "tol": 0.0, "patience": 99, "max_iter": 8}
    straight = quantizer(3, 3, **settings).fit(X)
    calls, plain = [], module._posterior

    def interrupted(*args):
        calls.append(None)
        if len(calls) == 53:  # 10 calls to an iteration: within the sixth
            raise KeyboardInterrupt
        return plain(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_posterior", interrupted)
        quantizer(3, 3, **settings).fit(X, checkpoint=path)
    resumed = quantizer(3, 3, **settings).fit(X, checkpoint=path)
    assert np.array_equal(resumed.components_, straight.components_)
    assert np.array_equal(resumed.history_["objective"], straight.history_["objective"])


def test_noise_may_be_known_and_the_e_step_changed_after_learning():
    assert np.isclose(quantizer(noise=0.04).fit(BASE).noise_variance_, 0.04)
    model = quantizer().fit(BASE)
    assert model.noise_variance_ < 0.02
    exact = model.transform(BASE)
    model.set_params(e_step=Truncated(9), n_vectors=7)
    assert np.allclose(exact, model.transform(BASE))


@together("e_step", [Truncated(9), MeanField(7), Gibbs(3, 1), Exact()])
def test_files_with_the_settings_of_all_e_steps_as_parameters_are_read(e_step, tmp_path):
    path = tmp_path / "model.npz"
    model = quantizer(e_step=e_step, max_iter=2).fit(BASE)
    model.save(path)
    arrays, meta = load_arrays(path)
    meta = {name: meta[name] for name in ("parameters", "attributes", "version")}
    name = {Truncated: "truncated", MeanField: "mean_field", Gibbs: "gibbs", Exact: "exact"}
    settings = {"n_samples": 10, "burn_in": 5, "n_sweeps": 50, "n_configurations": 32}
    former = {key: getattr(e_step, key, value) for key, value in settings.items()}
    meta["parameters"] |= former | {"e_step": name[type(e_step)]}
    save_arrays(path, arrays, meta | {"schema": "capslit.FactorialVectorQuantizer/1"})
    found = FactorialVectorQuantizer.load(path)
    assert found.e_step == e_step
    assert np.array_equal(found.transform(BASE), model.transform(BASE))
