"""Compositional models: the steps against plain loops, online learning, exact steps and their
search, and the estimator.
"""

import pickle
import warnings

import numpy as np
import pytest
from conftest import together
from sklearn.exceptions import ConvergenceWarning

from capslit.composition.estimator import CompositionalModel, _add_statistics, pose_moments
from capslit.composition.exact import (
    Charge,
    _best_opinions,
    _Others,
    exact_templates,
    small_sets,
)
from capslit.composition.model import (
    Compositions,
    Experts,
    ExpertStatistics,
    _mixed,
    append_expert,
    description_length,
    learn_online,
    misfit,
    new_expert,
    owners,
)
from capslit.composition.pursuit import Transforms, matching_pursuit
from capslit.composition.rules import bernoulli_log_likelihood
from capslit.data.datasets import draw_quadrants, quadrant_templates

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
RULES = together("rule", ["max_minus_min", "maximum"])
SHIFTS = Transforms((4, 5), shifts=1)
TURNS = Transforms((4, 5), shifts=(1, 0), rotations=(-20.0, 0.0, 20.0))


def problem(seed=0, n=20, K=3, D=20):
    "Images, and templates near some of them."
    rng = np.random.default_rng(seed)
    X = (rng.random((n, D)) < 0.5).astype(float)
    return X, 0.1 + 0.8 * X[:K] + rng.uniform(-0.1, 0.1, (K, D))


def make(rule="max_minus_min", transforms=None, **settings):
    maximum = rule == "maximum"
    q = 0.02 if maximum else 0.5
    return Compositions(rule, q, transforms, truncated=maximum, **settings)


def stacked(*templates):
    return Experts(np.stack(templates), np.full((len(templates), *templates[0].shape), 2.0))


def counted(ink, counts):
    "ExpertStatistics of one expert with this ink in so many examples."
    none = np.zeros((1, 1, 1))
    ink, counts = (np.array(part, float).reshape(1, 1, -1) for part in (ink, counts))
    return ExpertStatistics(ink, counts, none, none[..., None], none, none[0, 0], none[0, 0])


def bars(n, seed=0, noise=0.0):
    "Images (n, 64) of a horizontal and a vertical bar, each moved by up to a pixel."
    rng = np.random.default_rng(seed)
    images = np.zeros((n, 8, 8))
    for image, (a, b, c, d) in zip(images, rng.integers(-1, 2, (n, 4))):
        image[1 + a, 1 + b : 7 + b] = 1
        image[2 + c : 7 + c, 4 + d] = 1
    return np.abs(images.reshape(n, -1) - (rng.random((n, 64)) < noise))


def fitted(X, n_experts=None, **settings):
    return CompositionalModel(n_experts, n_jobs=1, **{"random_state": 0} | settings).fit(X)


def pose_number(transforms, pose):
    return int(np.flatnonzero((transforms.poses == pose).all(axis=1))[0])


# The steps


@RULES
def test_a_step_with_turns_by_definition(rule):
    X, templates = problem(8)
    model = make(rule, TURNS)
    found = model.explain(templates, X)
    highest, lowest = model.owners(found, templates)
    S, N = np.zeros((2, *templates.shape))
    places = np.zeros((3, 3))
    for n, j in np.argwhere(found.experts >= 0):
        k, pose = found.experts[n, j], found.poses[n, j]
        owned = ((highest[n] == j) | (lowest[n] == j)).astype(float)
        S[k] += TURNS.pull_back((owned * X[n])[None], [pose])[0]
        N[k] += TURNS.pull_back(owned[None], [pose])[0]
        *place, angle = TURNS.poses[pose]
        cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        places[k, :2] += [[cos, sin], [-sin, cos]] @ np.array(place)
    sums = model.count(templates, X, found)
    assert np.any(TURNS.poses[found.poses[found.experts >= 0], 2])
    assert np.allclose(sums.ink, S) and np.allclose(sums.counts, N)
    assert np.allclose(sums.places, places)


def test_a_template_moves_as_it_sees_its_places_before_it_is_turned():
    T = Transforms((9, 9), shifts=3, rotations=(0.0, 90.0))
    x = np.zeros((9, 9))
    x[3:6, 4] = x[5, 4:7] = 1
    x = x.reshape(1, 81)
    poses = [pose_number(T, pose) for pose in ([1, -2, 90], [-3, 2, 0])]
    turned, shifted = T.transform(x, poses)
    model = make("maximum", T)
    start = stacked(0.1 + 0.8 * x)
    for images, place in (
        ([turned], [-2, -1, 0]),
        ([turned, turned, turned, shifted], [-2.25, -0.25, 0]),
    ):
        sums = model.e_step(start, (np.array(images), None))
        assert np.allclose(sums.places[0, 0] / len(images), place)
        again = model.e_step(model.m_step(start, sums), (np.array(images), None))
        assert np.allclose(again.places[0, 0] / len(images), place - np.rint(place))


def test_owners_at_the_edges():
    templates = np.array([[0.9, 0.5, 0.2], [0.9, 0.5, 0.2]])
    found = matching_pursuit(np.array([[1.0, 1, 0]]), templates)
    # of equals the first in the order of the search, and nobody at q
    found = found._replace(experts=np.array([[1, 0]]), poses=np.array([[0, 0]]))
    highest, lowest = owners(found, templates)
    assert highest.tolist() == [[0, -1, -1]] and lowest.tolist() == [[-1, -1, 0]]
    assert owners(found, templates, q=0.0)[0].tolist() == [[0, 0, 0]]
    # what comes in from outside is nobody's
    T = Transforms((1, 3), shifts=(0, 1))
    full = np.full((1, 3), 0.9)
    moved = matching_pursuit(np.ones((1, 3)), full, transforms=T)._replace(poses=np.array([[2]]))
    highest, lowest = owners(moved, full, T)
    assert highest.tolist() == [[-1, 0, 0]] and lowest.tolist() == [[-1, -1, -1]]


def test_online_goes_on_from_a_pixel_that_nobody_had_owned():
    model, rng = Compositions("maximum", 0.02), np.random.default_rng(0)
    experts = Experts(np.array([[[0.02, 0.5, 0.02, 0.5]]]), np.full((1, 1, 4), 2.0))
    ink = np.zeros(4)
    for step in range(1, 8):
        x = 0.3 * rng.integers(0, 2, 4)
        ink += x
        experts = model.update(experts, counted(x, np.full(4, 0.3)))
        batch = model.m_step(experts, counted(ink, np.full(4, 0.3 * step)))
        assert np.allclose(experts, batch)


@RULES
def test_a_new_expert_learns_from_its_example_and_leaves_the_rest_to_the_others(rule):
    X, templates = problem(5)
    model = make(rule)
    before = stacked(templates)
    found = model.explain(templates, X[9:10])
    after = append_expert(model, before, X[9:10], found)
    mu, N = new_expert(X[9], found.composed[0], rule, q=model.q)
    assert np.array_equal(after.templates[0, 3], mu) and np.array_equal(after.counts[0, 3], N)
    idle = np.setdiff1d(np.arange(3), found.experts)
    assert np.array_equal(after.templates[0, idle], templates[idle])
    assert np.array_equal(before.templates[0], templates)


def test_the_misfit_is_what_coins_would_gain():
    x, mu = np.array([[1.0, 1, 0, 0]]), np.array([[0.9, 0.2, 0.9, 0.1]])
    assert np.allclose(misfit(x, mu), -np.log([0.4, 0.2]).sum())
    assert np.allclose(misfit(x, mu, "maximum"), -np.log(0.4))
    assert np.isfinite(misfit(np.ones((1, 3)), np.zeros((1, 3))))[0]


def test_a_new_expert_must_be_worth_its_announcement():
    wide = Transforms((4, 5), shifts=1, rotations=(0.0, 10.0, 20.0, 30.0))
    start = stacked(np.full((1, 20), 0.9))
    X = np.ones((1, 20))
    X[0, 3] = 0
    for transforms, n in ((None, 2), (wide, 1)):
        model = make(transforms=transforms)
        composed = model.explain(start.templates[0], X).composed
        assert np.log(2) < misfit(X, composed)[0] < np.log(2 * 36)
        assert learn_online(model, start, X, 5).templates.shape[1] == n


@RULES
def test_silencing_a_pixel_changes_the_length_by_what_the_m_step_compares(rule):
    X = np.ones((12, 40))
    for pixel, paper in enumerate((3, 5, 9, 11)):
        X[:paper, pixel] = 0
    model = make(rule)
    S = X.sum(axis=0)
    mixed = _mixed(S, 12 - S, 1.0)
    silent = S * np.log(model.q) + (12 - S) * np.log(1 - model.q)
    whole = stacked((S / 12)[None])
    sums = model.e_step(whole, (X, None))
    pruned = make(rule, prune=True).m_step(whole, sums).templates[0, 0]
    assert np.array_equal(pruned != model.q, mixed > silent)
    assert np.all(model.m_step(whole, sums).templates != model.q)
    before = description_length(model, whole, sums)[0]
    for d in range(6):
        fewer = whole._replace(templates=whole.templates.copy())
        fewer.templates[0, 0, d] = model.q
        after = description_length(model, fewer, model.e_step(fewer, (X, None)))[0]
        assert np.isclose(after - before, mixed[d] - silent[d])


def test_an_opinion_that_breaks_even_abstains():
    "One example, with ε = 1 and q = ½, has probability ½ either way."
    model = make(prune=True)
    learned = model.m_step(None, counted([1, 0, 2], [1, 1, 2])).templates[0, 0]
    assert np.array_equal(learned, [0.5, 0.5, 0.75])
    # with the maximum rule no opinion is below the background
    assert make("maximum", prune=True).m_step(None, counted([0], [5000])).templates == 0.02


def test_the_length_by_hand():
    sums = counted([2], [3])._replace(
        together=np.full((1, 1, 1), 4.0),
        log_likelihood=np.array([-7.0]),
        weight=np.array([5.0]),
    )
    experts = stacked(np.array([[0.6]]))
    regret = np.log(12) + np.log((2 / 3) ** 2 / 3)
    for transforms, n in ((None, 1), (SHIFTS, 9)):
        length = regret + 4 * np.log(n) + 5 * np.log(2) + 7
        model = make(transforms=transforms)
        assert np.isclose(description_length(model, experts, sums)[0], length)
        assert model.objective(experts, sums)[0] == -7
        pruning = make(transforms=transforms, prune=True)
        assert np.isclose(pruning.objective(experts, sums)[0], -length)


def test_moments_of_poses_and_their_sums():
    images = bars(12, noise=0.01)
    T = Transforms((8, 8), shifts=2)
    model = make("maximum", T)
    templates = np.full((2, 8, 8), 0.02)
    templates[0, 1, 1:7] = templates[1, 2:7, 4] = 0.95
    templates = templates.reshape(2, 64)

    def sums(templates, x):
        return model.count(templates, x, model.explain(templates, x))

    whole = sums(templates, images)
    halves = _add_statistics(sums(templates, images[:5]), sums(templates, images[5:]))
    assert all(np.allclose(a, b) for a, b in zip(halves, whole))
    found = model.explain(templates, images)
    order = np.argsort(found.experts, axis=1)
    experts, poses = (np.take_along_axis(part, order, axis=1) for part in found[:2])
    assert np.all(experts == [0, 1])
    rows = T.poses[poses]
    mean, covariance = pose_moments(whole)
    assert np.allclose(mean, rows.mean(axis=0))
    assert np.allclose(covariance, np.cov(rows.reshape(12, 6).T, ddof=0))
    # the second may have more experts
    one = sums(templates[:1], images)
    grown = _add_statistics(one, whole)
    assert grown.weight == 24 and grown.together.shape == (2, 2)
    assert np.isclose(grown.together[0, 0], one.together[0, 0] + 12)


# Experts that stay where they are


def test_a_lone_expert_is_a_count_and_must_pay_for_what_it_says():
    X = np.repeat([[1.0, 0, 1, 0]], 40, axis=0)
    X[:20, 2] = 0
    everybody = np.ones((40, 1), bool)
    for maximum, q in ((True, 0.02), (False, 0.5)):
        given = np.full((1, 4), max(q, 0.3)), everybody, X
        free = exact_templates(*given, Charge(q, 1.0, None), maximum)[0]
        assert np.allclose(free, np.maximum((X.sum(axis=0) + 2 * q) / 42, q * maximum))
        charge = Charge(q, 1.0, np.log(4))
        priced = exact_templates(*given, charge, maximum)[0]
        assert priced[0] == free[0] and priced[2] == (free[2] if maximum else 0.5)
        assert (priced[1] == q) == maximum
        assert np.all(exact_templates(given[0], ~everybody, X, charge) == q)
    told = 40 * np.log(41 / 42) + charge.prior(41 / 42) - _mixed(40, 0, 1.0) + np.log(4)
    assert charge.price(40, 40) == pytest.approx(told)


def test_opinions_are_the_same_with_black_and_white_exchanged():
    rng = np.random.default_rng(1)
    charge = Charge(0.4, 1.0, 1.0)
    U, L = 0.4 + rng.random((2, 6, 9)) * [[[0.6]], [[-0.4]]]
    others = _Others(U, L, rng.integers(0, 9, (6, 9)), np.full((6, 1), 9))
    now = rng.random(9)
    mirrored = _best_opinions(others.mirrored(), 1 - now, charge.mirrored())
    assert np.allclose(_best_opinions(others, now, charge), 1 - mirrored)


def test_small_sets():
    members = [np.flatnonzero(row).tolist() for row in small_sets(3)]
    assert members == [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    assert small_sets(0).shape == (1, 0) and len(small_sets(10)) == 1024
    assert len(small_sets(3, 1)) == 4 and len(small_sets(2000)) == 2001
    assert len(small_sets(20)) == 1 + 20 + 190


def planted(seed, side=16, n=60, K=3):
    "Images (n, side²) of bars, each in half of the images, one pixel in a hundred flipped; bars."
    rng = np.random.default_rng([side, seed])
    parts = np.zeros((K, side, side))
    length, width = 3 * side // 4, max(1, side // 8)
    for part in parts:
        along = rng.integers(0, side - length + 1)
        across = rng.integers(0, side - width + 1)
        bar = part if rng.random() < 0.5 else part.T
        bar[along : along + length, across : across + width] = 1
    parts = parts.reshape(K, -1)
    shown = (rng.random((n, K)) < 0.5) @ parts > 0
    return (shown ^ (rng.random(shown.shape) < 0.01)).astype(float), parts


def test_planted_bars_are_found_and_their_number():
    found = numbers = 0
    for seed in range(5):
        X, parts = planted(seed)
        model = fitted(X, 3, rule="maximum")
        found += all(np.any(np.all((model.templates_ > 0.5) == part, axis=1)) for part in parts)
        numbers += len(fitted(X, rule="maximum").templates_) == 3
    assert found == 5 and numbers >= 4


def test_eight_quadrants_are_found_without_a_hint():
    truth = quadrant_templates().reshape(8, 36)
    X = draw_quadrants(100, np.random.RandomState(0))[0].reshape(100, 36)
    model = fitted(X, 8, prune=True)
    apart = [np.min(np.sum(np.abs(model.templates_ - mu), axis=1)) for mu in truth]
    assert max(apart) < 2 and np.all(model.counts_ >= 2) and np.any(model.counts_ > 10)


def test_the_search_of_many_experts_and_of_few_images():
    X, _ = planted(1, 6)
    model = fitted(X, 12, rule="maximum", max_iter=5)
    assert model.templates_.shape == (12, 36) and model.score(X) > -6
    assert fitted(X[:1], 2).templates_.shape == (2, 36)
    alone = fitted(X, 3, rule="maximum", max_active=1)
    assert alone.transform(X).sum(axis=1).max() == 1
    with pytest.raises(ValueError, match="init='search' is for experts that stay where they are"):
        fitted(X, 2, init="search", transforms=Transforms((6, 6), 1))


# The estimator


def halves(n, side, seed=0):
    "Images (n, side²) of two halves, each black, white or noise."
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.choice([0, 1, 0.5, 0.5], (n, 2)), side**2 // 2, axis=1)
    return (rng.random(level.shape) < level).astype(float)


def test_what_bars_are_learned_and_drawn():
    model = fitted(bars(16, 1), rule="maximum", transforms=Transforms((8, 8), shifts=2))
    others = bars(50, 2)
    assert -model.score(others) < 3
    assert sorted(np.round(model.templates_).sum(axis=1).tolist()) == [5, 6]
    codes = model.transform(others)
    composed = model.inverse_transform(codes)
    assert np.allclose(bernoulli_log_likelihood(others, composed), model.score_samples(others))
    images, drawn = model.sample(200)
    assert np.all(np.isin(images, [0, 1]))
    assert np.all(codes[:, :2] == 1) and np.all(drawn[:, :2] == 1)
    assert np.allclose(drawn[:, 2:].mean(axis=0), model.pose_mean_.ravel(), atol=0.3)
    assert np.allclose(np.cov(drawn[:, 2:].T), model.pose_covariance_, atol=0.3)
    mean, covariance = model.pose_distribution([1])
    assert np.array_equal(mean, model.pose_mean_[1])
    assert np.array_equal(covariance, model.pose_covariance_[3:, 3:])
    names = [f"expert{k}_{c}" for k in (0, 1) for c in ("row", "column", "angle")]
    assert model.get_feature_names_out().tolist() == ["expert0", "expert1", *names]


def test_a_turned_bar_is_found_with_its_angles():
    T = Transforms((11, 11), shifts=2, rotations=(-45.0, 0.0, 45.0))
    bar = np.zeros((11, 11))
    bar[4:7, 1:10] = 1
    poses = [[0, 0, 0], [0, 0, 45], [0, 0, -45], [1, 1, 45], [1, 0, 0], [0, 1, -45]] * 2
    index = [pose_number(T, pose) for pose in poses]
    X = (T.transform(bar.reshape(1, 121), index) > 0.5).astype(float)
    model = fitted(X, 1, rule="maximum", transforms=T)
    assert np.array_equal(model.transform(X)[:, 3], np.array(poses)[:, 2])
    assert np.mean((model.templates_[0] > 0.5) == bar.ravel()) > 0.95


def test_idle_experts_are_nowhere_and_places_between_the_pixels_are_mixtures():
    model = fitted(problem()[0], 2, init="online", transforms=SHIFTS)
    assert np.array_equal(model.inverse_transform(np.zeros((1, 8))), np.full((1, 20), 0.5))
    half = model.inverse_transform([[1, 0, 0, 0.5, 0, 0, 0, 0]]).reshape(4, 5)
    mu = model.templates_[0].reshape(4, 5)
    assert np.allclose(half[:, 1:], (mu[:, 1:] + mu[:, :-1]) / 2)
    model.active_sets_ = np.array([[True, False]])
    model.active_set_counts_ = np.array([1.0])
    model.pose_mean_ = np.ones((2, 3))
    drawn = model.sample(5)[1]
    assert np.all(drawn[:, :2] == [1, 0]) and np.all(drawn[:, 5:] == 0) and np.any(drawn[:, 2:5])


def test_what_is_learned_from_random_starts():
    X = halves(100, 4)
    model = fitted(X, 4, init="random", n_init=3)
    assert model.score(X) > -11
    assert np.isclose(model.score(X), model.history_["log_likelihood"].max() / 100)
    assert np.array_equal(model.pose_covariance_, np.zeros((12, 12)))
    times, sets = model.active_set_counts_, model.active_sets_
    assert np.all(times > 0) and len(np.unique(sets, axis=0)) == len(sets)
    assert times.sum() == 100 and np.isclose(model.transform(X).sum(), times @ sets.sum(axis=1))
    assert model.score(X) >= fitted(X, 4, init="random").score(X) - 1e-9
    pruned = fitted(X, 4, init=model.templates_, prune=True)
    assert np.sum(pruned.templates_ != 0.5) <= np.sum(model.templates_ != 0.5)
    assert pruned.lower_bound_ < pruned.score(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_cost_silences_experts_and_is_part_of_the_objective():
    X = halves(60, 6)
    active = []
    for cost in (0.0, 2.0, 1e3):
        model = fitted(X, 4, expert_cost=cost, init="random", prune=False)
        active.append(model.transform(X).sum())
        objective, likelihood = (model.history_[k] for k in ("objective", "log_likelihood"))
        best = np.argmax(objective)
        assert (objective[best] < likelihood[best]) == (cost > 0 and active[-1] > 0)
    assert active[0] > active[1] >= active[2] == 0
    assert np.allclose(model.score_samples(X), -36 * np.log(2))


def test_starts_are_alive_or_warned_about():
    X = bars(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fitted(X, 3, rule="maximum", init="random")
    assert model.score(X) > np.mean(bernoulli_log_likelihood(X, np.full(64, 0.01))) + 10
    assert np.all(model.active_sets_.any(axis=0))
    with pytest.warns(ConvergenceWarning, match="no expert is active in any of the images"):
        dead = fitted(X, 2, init="random")
    assert np.isclose(dead.score(X), -64 * np.log(2))
    with pytest.warns(ConvergenceWarning, match="no expert is active in any of the images"):
        fitted(np.zeros((3, 4)), 2, rule="maximum")


def test_partial_fit_goes_on_where_it_was():
    X = bars(12, 4)
    settings = {"rule": "maximum", "transforms": Transforms((8, 8), shifts=1), "n_jobs": 1}
    whole = CompositionalModel(2, **settings).partial_fit(X)
    parts = CompositionalModel(2, **settings)
    for x in X:
        parts.partial_fit(x[None])
    assert pickle.dumps(vars(whole)) == pickle.dumps(vars(parts))
    assert whole.statistics_.weight == 12
    batch = CompositionalModel(2, init="online", **settings).fit(X)
    before = batch.templates_.copy()
    batch.partial_fit(X[:1])
    assert batch.statistics_.weight == 13 and not np.array_equal(before, batch.templates_)
    assert len(CompositionalModel(**settings).partial_fit(X[:1]).templates_) == 1
    with pytest.raises(ValueError, match="n_experts must be .*, not None; init='random' needs it"):
        CompositionalModel(init="random").partial_fit(X)


@together(
    "factor, message",
    [
        (0.5, "X must hold zeros and ones, but holds 0.5; pass binarize=0.25"),
        (255, "holds 255; pass binarize=127.5"),
        (-1, "X must hold zeros and ones"),
    ],
)
def test_grey_images_are_refused_without_a_threshold(factor, message):
    with pytest.raises(ValueError, match=message):
        fitted(factor * problem()[0], 2, init="online", binarize=None)


@together("rule, background", [("maximum", 0.01), ("max_minus_min", 0.5)])
def test_each_rule_has_its_background(rule, background):
    X = problem()[0]
    model = fitted(X, 2, rule=rule)
    same = fitted(X, 2, rule=rule, background=background)
    assert np.array_equal(model.templates_, same.templates_)
    assert np.all(model.inverse_transform(np.zeros((1, 2))) == background)


# The choice of the rule


def covered(n, seed):
    "Images (n, 64) of two squares that overlap, as often as not, and a little noise."
    rng = np.random.default_rng(seed)
    shapes = np.zeros((2, 8, 8))
    shapes[0, 1:5, 1:5] = shapes[1, 3:7, 3:7] = 1
    ink = (rng.random((n, 2)) < 0.5) @ shapes.reshape(2, -1) > 0
    return (ink ^ (rng.random(ink.shape) < 0.02)).astype(float), shapes.reshape(2, -1)


@together("n_experts", [2, None])
def test_the_rule_is_chosen_by_images_left_out(n_experts):
    X, shapes = covered(150, 0)
    ink = fitted(X, n_experts)
    assert ink.rule_ == "maximum"
    same = fitted(X, n_experts, rule="maximum")
    assert np.array_equal(ink.templates_, same.templates_)
    assert np.array_equal(ink.score_samples(X), same.score_samples(X))
    nearest = np.corrcoef(ink.templates_, shapes)[-2:, :-2].max(axis=1)
    assert len(ink.templates_) == 2 and nearest.min() > 0.98


def test_a_chosen_rule_is_kept_and_without_a_choice_it_is_max_minus_min(tmp_path):
    X = covered(150, 0)[0]
    model = fitted(X, 2)
    model.save(tmp_path / "model.npz")
    loaded = CompositionalModel.load(tmp_path / "model.npz")
    assert loaded.rule_ == "maximum"
    assert np.array_equal(loaded.score_samples(X), model.score_samples(X))
    assert model.partial_fit(X[:5]).rule_ == "maximum"
    for other in (
        model.fit(halves(100, 6, 3)),  # chosen anew
        fitted(X[:20], 2),
        fitted(X, 2, background=0.5),
        CompositionalModel(2).partial_fit(X[:5]),
    ):
        assert other.rule_ == "max_minus_min"
