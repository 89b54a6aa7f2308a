"""The relatives learn from files, streams of batches and Dask what they learn from the same
examples in memory.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pytest
from conftest import together
from sklearn.base import clone

from capslit import (
    CompositionalModel,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
    Noise,
    em,
)
from capslit.estimator import training_data as estimators
from capslit.composition import Transforms
from capslit.em.statistics import BatchError

rng = np.random.default_rng(1)
GROUPS = rng.integers(3, size=700)
X = (
    rng.standard_normal((700, 5)) @ rng.standard_normal((5, 5))
    + 4 * rng.standard_normal((3, 5))[GROUPS]
)
WEIGHT = rng.random(700)
BITS = np.array([[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0]])[GROUPS] ^ (
    rng.random((700, 6)) < 0.05
)
BITS = BITS.astype(float)
CUTS = (1, 130, 131, 500)  # batches of lengths that fit no block

CASES = {
    "GaussianMixture": (GaussianMixture(3, n_init=2, random_state=0), X),
    "GaussianMixture of variances": (
        GaussianMixture(3, covariance_type="diag", init_params="k-means++", random_state=0),
        X,
    ),
    "MixtureOfFactorAnalyzers": (
        MixtureOfFactorAnalyzers(3, 2, noise=Noise(added=0.01), random_state=0),
        X,
    ),
    "MixtureOfPCA": (MixtureOfPCA(3, 2, explained_variance=0.9, random_state=0), X),
    "FactorialVectorQuantizer": (FactorialVectorQuantizer(2, 3, n_init=2, random_state=0), X),
    "FactorialVectorQuantizer, sampled": (
        FactorialVectorQuantizer(2, 2, e_step="gibbs", n_init=1, max_iter=8, random_state=0),
        X,
    ),
    "FactorialVectorQuantizer of bits": (
        FactorialVectorQuantizer(2, 2, observable="bernoulli", n_init=2, random_state=0),
        BITS,
    ),
    "CompositionalModel": (CompositionalModel(2, max_iter=10, random_state=0), BITS[:80]),
    "CompositionalModel of any number": (
        CompositionalModel(max_active=2, binarize=0.5, max_iter=3, random_state=0),
        BITS[:40],
    ),
    "CompositionalModel in places": (
        CompositionalModel(1, transforms=Transforms((2, 3), 1), max_iter=5, random_state=0),
        BITS[:60],
    ),
}
WEIGHED = [name for name in CASES if not name.startswith("Compositional")]
METHODS = ("predict", "predict_proba", "score_samples", "transform", "codes", "reconstruct")


def learned(estimator, inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(inputs, **options)


def parts(x):
    return np.split(x, [cut for cut in CUTS if cut < len(x)])


def as_file(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def as_zarr(x, folder):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(
        str(folder / "x.zarr"), shape=x.shape, chunks=(90, x.shape[1]), dtype=x.dtype
    )
    array[:] = x
    return array


SOURCES = {
    "file": as_file,
    "zarr": as_zarr,
    "list": lambda x, folder: parts(x),
    "function": lambda x, folder: lambda: iter([(part,) for part in parts(x)]),
}


def same(a, b):
    "Whether two values have the same bits."
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return all(map(same, a, b))
    return np.array_equal(a, b)


def assert_same(one, other):
    for name, value in vars(one).items():
        if name.endswith("_"):
            assert same(value, getattr(other, name)), name


def assert_close(one, other, tolerance=1e-6):
    for name, value in vars(one).items():
        if (
            name.endswith("_")
            and name not in ("history_", "statistics_", "feature_names_in_")
            and value is not None
        ):
            if isinstance(value, str):
                assert getattr(other, name) == value, name
            else:
                np.testing.assert_allclose(
                    getattr(other, name), value, rtol=tolerance, atol=tolerance, err_msg=name
                )


@pytest.fixture(scope="module")
def known():
    "known(name): the estimator that learned in memory."
    done = {}

    def get(name):
        if name not in done:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(estimators, "FEWEST", 2**13)
                done[name] = learned(*CASES[name])
        return done[name]

    return get


# ── the same bits
# ─────────────────────────────────────────────────────────────────────────────────────────────────
@together("source", SOURCES)
@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_wherever_examples_lie(name, source, known, tmp_path):
    estimator, inputs = CASES[name]
    elsewhere = SOURCES[source](inputs, tmp_path)
    model = learned(estimator, elsewhere)
    assert_same(known(name), model)
    for method in (method for method in METHODS if hasattr(model, method)):
        want = getattr(known(name), method)(inputs)
        np.testing.assert_allclose(getattr(model, method)(elsewhere), want, rtol=1e-10, atol=1e-12)
    assert np.isclose(model.score(elsewhere), model.score(inputs), rtol=1e-12)


@together(
    "name",
    ["GaussianMixture", "MixtureOfFactorAnalyzers", "MixtureOfPCA", "FactorialVectorQuantizer"],
)
def test_the_same_bits_in_single_precision(name, tmp_path):
    estimator, inputs = CASES[name][0], X.astype(np.float32)
    assert_same(learned(estimator, inputs), learned(estimator, as_file(inputs, tmp_path)))


@together("name", WEIGHED)
def test_weights_come_with_the_batches_or_beside_the_file(name, tmp_path):
    estimator, inputs = CASES[name]
    weight = 8 * WEIGHT
    model = learned(estimator, inputs, sample_weight=weight)
    assert_same(model, learned(estimator, list(zip(parts(inputs), parts(weight)))))
    assert_same(model, learned(estimator, as_file(inputs, tmp_path), sample_weight=weight))


def test_all_sources_are_predicted_in_the_same_blocks(tmp_path):
    x = np.tile(X, (160, 1))
    model, file = learned(*CASES["GaussianMixture of variances"]), as_file(x, tmp_path)
    for method in ("score_samples", "predict_proba"):
        predict = getattr(model, method)
        assert np.array_equal(predict(parts(X)), predict(X)) and np.array_equal(
            predict(parts(x)), predict(file)
        )


def test_other_results_of_densities():
    model = learned(*CASES["GaussianMixture"])
    batches = parts(X)
    assert np.isclose(model.bic(batches), model.bic(X)) and np.isclose(
        model.aic(batches), model.aic(X)
    )
    assert np.array_equal(clone(model).fit_predict(batches), clone(model).fit_predict(X))


def test_a_checkpoint_of_a_file_is_resumed(tmp_path):
    estimator, file = (
        MixtureOfFactorAnalyzers(3, 2, tol=0, patience=99, max_iter=12, random_state=0),
        as_file(X, tmp_path),
    )
    learned(clone(estimator).set_params(max_iter=5), file, checkpoint=tmp_path / "run.npz")
    assert_same(learned(estimator, X), learned(estimator, file, checkpoint=tmp_path / "run.npz"))


# ── starts from a sample
# ─────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def small_samples(monkeypatch):
    monkeypatch.setattr(estimators, "SAMPLE", 1)
    monkeypatch.setattr(estimators, "FEWEST", 60)


@together("name", CASES)
def test_a_start_from_a_sample_is_the_same_everywhere(name, known, small_samples, tmp_path):
    estimator, inputs = CASES[name]
    model = learned(estimator, inputs)
    assert_same(model, learned(estimator, as_file(inputs, tmp_path)))
    assert_same(model, learned(estimator, parts(inputs)))
    if name in WEIGHED:  # another start, but no other problem
        assert model.history_["objective"][0] != known(name).history_["objective"][0]
        assert abs(model.lower_bound_ - known(name).lower_bound_) < 0.5


def test_a_sample_is_drawn_by_random_state(small_samples):
    data = estimators.read_training_data(GaussianMixture(), parts(X), labelled=False)
    drawn = [data.sample(seed)[0] for seed in (0, 0, 1)]
    assert (
        drawn[0].shape == (60, 5)
        and np.array_equal(drawn[0], drawn[1])
        and not np.array_equal(drawn[0], drawn[2])
    )
    rows = [np.flatnonzero((X == x).all(axis=1)).item() for x in drawn[0]]
    assert rows == sorted(set(rows))
    assert data.sample(0, 200)[0].shape == (200, 5)


def test_what_is_measured_is_measured_on_all_examples(small_samples):
    data = estimators.read_training_data(GaussianMixture(), parts(X), labelled=False)
    origin, variance = data.spread()
    assert np.allclose(origin, X.mean(axis=0)) and np.isclose(variance, X.var(axis=0).mean())
    model = learned(
        MixtureOfFactorAnalyzers(
            1, 4, noise=Noise(added=0.1), random_state=0, max_iter=300, tol=1e-9
        ),
        parts(X),
    )
    S = np.cov(X.T, ddof=0) + 0.1 * X.var(axis=0).mean() * np.eye(5)
    np.testing.assert_allclose(model.get_covariance()[0], S, rtol=0.02, atol=0.02 * S.max())


def test_tangents_of_a_sample_go_with_its_examples(small_samples, monkeypatch):
    T = 0.1 * rng.standard_normal((700, 2, 5))
    few = learned(MixtureOfFactorAnalyzers(2, 1, random_state=0), X, tangents=T)
    monkeypatch.setattr(estimators, "FEWEST", 700)
    all_of_them = learned(MixtureOfFactorAnalyzers(2, 1, random_state=0), X, tangents=T)
    assert abs(few.lower_bound_ - all_of_them.lower_bound_) < 0.5
    assert few.history_["objective"][0] != all_of_them.history_["objective"][0]


@pytest.mark.parametrize(
    "model", [GaussianMixture(2, random_state=0), FactorialVectorQuantizer(2, 2, random_state=0)]
)
def test_examples_of_a_source_without_weight_count_nowhere(small_samples, model):
    "The sample from which EM starts holds none of them, though nearly all weigh nothing."
    weight = np.where(np.arange(700) % 20 < 1, 1.0, 0.0)
    far = np.where(weight[:, None] > 0, X, 1e9)
    stream = learned(model, list(zip(parts(far), parts(weight))))
    memory = learned(model, X[weight > 0])
    np.testing.assert_allclose(stream.history_["objective"], memory.history_["objective"], 1e-9)
    np.testing.assert_allclose(stream.score(X), memory.score(X), rtol=1e-7)


# ── what is wrong is named
# ─────────────────────────────────────────────────────────────────────────────────────────────────
BAD = {
    "NaN": lambda b: np.where(np.arange(5) == 2, np.nan, b),
    "infinity": lambda b: b + np.inf,
    "width": lambda b: b[:, :3],
    "no examples": lambda b: b[:0],
    "text": lambda b: b.astype(str),
}


@together("fault", BAD)
def test_a_bad_batch_is_named_and_changes_nothing(fault):
    batches = parts(X)
    model = learned(GaussianMixture(2, random_state=0), batches)
    before = dict(vars(model))
    batches[2] = BAD[fault](batches[2])
    with pytest.raises(BatchError, match="^batch 2: ") as caught:
        model.fit(batches)
    assert caught.value.index == 2 and vars(model) == before
    with pytest.raises(BatchError, match="^batch 2: "):
        model.predict(batches)


def test_a_batch_that_goes_bad_later_leaves_what_was_learned():
    passes = []

    def stream():
        passes.append(0)
        for i, batch in enumerate(parts(X)):
            if len(passes) > 8 and i == 3:
                raise OSError("the disk is gone")
            yield batch

    with pytest.raises(BatchError, match="^batch 3.*the disk is gone") as caught:
        learned(GaussianMixture(3, tol=0, patience=99, random_state=0), stream)
    assert isinstance(caught.value.fit, em.Fit) and caught.value.fit.parameters.means.shape == (
        1,
        3,
        5,
    )


WRONG = {
    "one-shot": (GaussianMixture(), lambda: iter(parts(X)), "one-shot iterator"),
    "too few": (
        GaussianMixture(),
        lambda: [X[:1]],
        "number of examples in X must be a number of at least 2",
    ),
    "fewer than components": (
        GaussianMixture(9),
        lambda: [X[:3], X[3:8]],
        "n_components must be .* at most 8, not 9",
    ),
    "features": (
        MixtureOfPCA(1, 6),
        lambda: parts(X),
        "n_dims must be a whole number of at most 5",
    ),
    "size": (GaussianMixture(), lambda: parts(X * 1e155), "divide X by its largest magnitude"),
    "weight": (
        GaussianMixture(),
        lambda: list(zip(parts(X), parts(-WEIGHT))),
        "^batch 0: sample_weight must be at least 0",
    ),
    "no weight": (
        FactorialVectorQuantizer(),
        lambda: list(zip(parts(X), parts(0 * WEIGHT))),
        "sample_weight is zero for every example",
    ),
    "range": (
        FactorialVectorQuantizer(observable="bernoulli"),
        lambda: parts(X),
        "X must lie between 0 and 1",
    ),
    "range of a later batch": (
        FactorialVectorQuantizer(observable="bernoulli", init="random"),
        lambda: [BITS, 2 * BITS],
        "X must lie between 0 and 1",
    ),
    "no ink": (
        CompositionalModel(1, binarize=None),
        lambda: parts(X),
        "^batch 0: X must hold zeros and ones",
    ),
    "weights of images": (
        CompositionalModel(1),
        lambda: list(zip(parts(BITS), parts(WEIGHT))),
        "^batch 0: .*leave the weights out",
    ),
}


@together("name", WRONG)
def test_what_cannot_be_learned_from_is_refused(name):
    estimator, make, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message):
        estimator.fit(make())


def test_tangents_and_widths_that_do_not_fit():
    with pytest.raises(ValueError, match="^tangents can be given only with X in memory"):
        MixtureOfFactorAnalyzers(1, 1).fit(parts(X), tangents=np.zeros((700, 1, 5)))
    for name in ("GaussianMixture", "MixtureOfPCA", "FactorialVectorQuantizer"):
        with pytest.raises(ValueError, match="X has 6 features, but .* is expecting 5"):
            learned(*CASES[name]).score_samples(parts(BITS))


# ── Dask
# ─────────────────────────────────────────────────────────────────────────────────────────────────
def dask_of(x, chunks=(20, 200, 30, 300)):
    da = pytest.importorskip("dask.array")
    edges = [0, *(end for end in np.cumsum(chunks) if end < len(x)), len(x)]
    return da.from_array(x, chunks=(tuple(np.diff(edges).tolist()), x.shape[1]))


@together("name", CASES)
def test_dask_arrays(name, known):
    dask = pytest.importorskip("dask")
    estimator, inputs = CASES[name]
    with dask.config.set(scheduler="synchronous"):
        elsewhere = dask_of(inputs)
        model = learned(estimator, elsewhere)
        assert_close(known(name), model)
        for method in (method for method in METHODS if hasattr(model, method)):
            said, want = getattr(model, method)(elsewhere), getattr(model, method)(inputs)
            assert (
                said.dtype == want.dtype
                and said.shape == want.shape
                and said.numblocks[0] == elsewhere.numblocks[0]
            )
            np.testing.assert_allclose(said.compute(), want, rtol=1e-8, atol=1e-10)
        assert np.isclose(model.score(elsewhere), model.score(inputs))


def test_delayed_batches_with_weights():
    dask = pytest.importorskip("dask")
    estimator = CASES["GaussianMixture"][0]
    batches = [dask.delayed((x, w)) for x, w in zip(parts(X), parts(WEIGHT))]
    with dask.config.set(scheduler="synchronous"):
        assert_close(learned(estimator, X, sample_weight=WEIGHT), learned(estimator, batches))


def test_lazy_predictions_are_those_of_the_model_that_was_asked():
    dask = pytest.importorskip("dask")
    model, elsewhere = learned(*CASES["GaussianMixture"]), dask_of(X)
    want, lazy = model.predict_proba(X), model.predict_proba(elsewhere)
    model.set_params(n_components=5).fit(X)
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_allclose(lazy.compute(), want, rtol=1e-8, atol=1e-10)


def test_criteria_on_a_cluster():
    dask = pytest.importorskip("dask")
    model, some = learned(*CASES["GaussianMixture"]), X[:, 1] > 0.2
    with dask.config.set(scheduler="synchronous"):
        for criterion in (model.bic, model.aic, model.score):
            for elsewhere in (dask_of(X)[dask_of(X)[:, 1] > 0.2], [dask.delayed(X[some])]):
                assert criterion(elsewhere) == pytest.approx(criterion(X[some]))


@pytest.mark.filterwarnings("error")
def test_names_of_columns():
    pandas = pytest.importorskip("pandas")
    dask, frame = pytest.importorskip("dask"), pandas.DataFrame(X, columns=list("abcde"))
    frames = [frame[start:stop] for start, stop in pairwise((0, *CUTS, 700))]
    for name in ("GaussianMixture", "MixtureOfPCA", "FactorialVectorQuantizer"):
        here, there = (clone(CASES[name][0]).fit(given) for given in (frame, frames))
        assert here.feature_names_in_.tolist() == there.feature_names_in_.tolist() == list("abcde")
        for model in (here, there):
            want = model.score_samples(frame)
            np.testing.assert_allclose(model.score_samples(frames), want, rtol=1e-10)
            with dask.config.set(scheduler="synchronous"):
                np.testing.assert_allclose(
                    model.score_samples([dask.delayed(frame)]).compute(), want, rtol=1e-10
                )
            with pytest.raises(ValueError, match="X: The feature names should match"):
                model.score_samples([frame[list("edcba")]])
        with pytest.raises(BatchError, match="^batch 1: X has the column 'e' where"):
            there.fit([frame, frame[list("edcba")]])


def test_whoever_is_faster_changes_no_bit(small_samples):
    dask = pytest.importorskip("dask")
    estimator, found = MixtureOfFactorAnalyzers(3, 2, max_iter=8, random_state=0), []
    for scheduler in ("synchronous", "threads", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=4):
            found.append(learned(estimator, dask_of(X, (90,) * 7)))
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


def test_all_that_travels_can_travel():
    "What processes of Dask exchange is pickled."
    dask = pytest.importorskip("dask")
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        for name in (
            "GaussianMixture",
            "FactorialVectorQuantizer",
            "MixtureOfPCA",
            "CompositionalModel in places",
        ):
            estimator, inputs = CASES[name]
            estimator = clone(estimator).set_params(max_iter=1, patience=1)
            elsewhere = dask_of(inputs[:40], (20,))
            model = learned(estimator, elsewhere)
            assert_close(learned(estimator, inputs[:40]), model)
            np.testing.assert_allclose(
                model.score_samples(elsewhere).compute(), model.score_samples(inputs[:40])
            )
