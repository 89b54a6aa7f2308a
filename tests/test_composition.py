"""Compositional models: the engine's model against plain loops, what each rule learns, the
estimator, and data of every kind.
"""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from capslit.composition import model as module
from capslit.composition.estimator import CompositionalModel, _add_statistics, pose_moments
from capslit.composition.exact import (
    Charge,
    _Others,
    _StillExperts,
    _best_opinions,
    _best_start,
    exact_templates,
    extremes_of,
    _factor_templates,
    find_experts,
    _newcomer,
    small_sets,
)
from capslit.composition.model import (
    Compositions,
    Experts,
    ExpertStatistics,
    active_experts,
    append_expert,
    description_length,
    learn_online,
    misfit,
    new_expert,
    no_experts,
    owners,
)
from capslit.composition.rules import bernoulli_log_likelihood
from capslit.composition.pursuit import Transforms, matching_pursuit

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
RULES = pytest.mark.parametrize("rule", ["max_minus_min", "maximum"])
SHIFTS = Transforms((4, 5), shifts=1)
TURNS = Transforms((4, 5), shifts=(1, 0), rotations=(-20.0, 0.0, 20.0))
POSES = pytest.mark.parametrize(
    "transforms", [None, SHIFTS, TURNS], ids=["fixed", "shifts", "turns"]
)


def problem(seed=0, n=20, K=3, D=20):
    "Images, and templates near some of them."
    rng = np.random.default_rng(seed)
    X = (rng.random((n, D)) < 0.5).astype(float)
    return X, 0.1 + 0.8 * X[:K] + rng.uniform(-0.1, 0.1, (K, D))


def make(rule="max_minus_min", transforms=None, **settings):
    return Compositions(
        rule,
        0.5 if rule == "max_minus_min" else 0.02,
        transforms,
        truncated=rule == "maximum",
        **settings,
    )


def stacked(*templates):
    return Experts(np.stack(templates), np.full((len(templates), *templates[0].shape), 2.0))


def bars(n, seed=0, size=8, noise=0.0):
    "A horizontal and a vertical bar, each moved by up to a pixel."
    rng = np.random.default_rng(seed)
    images = np.zeros((n, size, size))
    for image, (a, b, c, d) in zip(images, rng.integers(-1, 2, (n, 4))):
        image[1 + a, 1 + b : 7 + b] = 1
        image[2 + c : 7 + c, 4 + d] = 1
    return np.abs(images.reshape(n, -1) - (rng.random((n, size**2)) < noise))


def fit(*args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return CompositionalModel(*args, random_state=0, n_jobs=1, **settings).fit(problem()[0])


def state(model):
    return pickle.dumps(vars(model))


# ── the model on the engine
# ──────────────────────────────────────────────────────────────────────────────────────────────────


@RULES
@POSES
def test_counts_are_those_of_owners_and_bounded(rule, transforms):
    X, templates = problem(1)
    model = make(rule, transforms)
    sums = model.e_step(stacked(templates), (X, None))
    assert np.all(sums.ink >= -1e-12) and np.all(sums.ink <= sums.counts + 1e-9)
    active = np.diagonal(sums.together[0])
    assert np.all(sums.counts[0] <= active[:, None] + 1e-9) and np.any(sums.counts > 0)
    new = model.m_step(stacked(templates), sums)
    assert np.all((new.templates > 0) & (new.templates < 1)) and np.all(new.counts >= 2)


def test_whole_shifts_of_the_image_shift_the_poses_alone():
    T = Transforms((8, 8), shifts=2)
    mu = np.clip(bars(1, 7), 0.1, 0.9)
    moved = T.transform(mu, [int(np.flatnonzero((T.poses == [1, -1, 0]).all(axis=1))[0])], 0.5)
    model = make(transforms=T)
    sums = model.e_step(stacked(mu), ((moved > 0.5).astype(float), None))
    assert np.array_equal(sums.first[0, 0, 0], [1, -1, 0]) and np.array_equal(
        sums.second[0, :2, :2], [[1, -1], [-1, 1]]
    )
    outside = (sums.counts[0, 0] == 0).reshape(8, 8)
    assert np.all(outside[-1]) and np.all(outside[:, 0]) and not np.any(outside[:-1, 1:])


def test_templates_move_to_the_mean_of_their_places():
    T = Transforms((8, 8), shifts=3)
    x = bars(1)
    shifted = T.transform(x, [int(np.flatnonzero((T.poses == [0, 1, 0]).all(axis=1))[0])])
    model = make("maximum", T)
    start = stacked(0.1 + 0.8 * x)
    new = model.m_step(start, model.e_step(start, (np.repeat(shifted, 4, axis=0), None)))
    again = model.e_step(new, (np.repeat(shifted, 4, axis=0), None))
    assert np.array_equal(again.first[0, 0, 0], [0, 0, 0])


def test_a_template_moves_as_it_sees_its_places_before_it_is_turned():
    T = Transforms((9, 9), shifts=3, rotations=(0.0, 90.0))
    x = np.zeros((9, 9))
    x[3:6, 4] = x[5, 4:7] = 1
    turned = T.transform(
        x.reshape(1, 81), [int(np.flatnonzero((T.poses == [1, -2, 90]).all(axis=1))[0])]
    )
    both = np.concatenate(
        [turned] * 3
        + [
            T.transform(
                x.reshape(1, 81), [int(np.flatnonzero((T.poses == [-3, 2, 0]).all(axis=1))[0])]
            )
        ]
    )
    for images, place in ((turned, [-2, -1, 0]), (both, [-2.25, -0.25, 0])):
        model = make("maximum", T)
        start = stacked(0.1 + 0.8 * x.reshape(1, 81))
        sums = model.e_step(start, (images, None))
        assert np.allclose(sums.places[0, 0] / len(images), place)
        again = model.e_step(model.m_step(start, sums), (images, None))
        assert np.allclose(again.places[0, 0] / len(images), place - np.rint(place))
    oblique = Transforms((15, 15), shifts=6, rotations=(-40.0, 0.0, 40.0))
    mu = np.full((15, 15), 0.02)
    mu[6:8, 3:12] = mu[3:12, 4] = 0.95
    pose = int(np.flatnonzero((oblique.poses == [0, 4, 40]).all(axis=1))[0])
    images = (oblique.transform(mu.reshape(1, 225), [pose], 0.02) > 0.5).astype(float)
    model = make("maximum", oblique)
    start = stacked(mu.reshape(1, 225))
    new = model.m_step(start, model.e_step(start, (np.repeat(images, 5, axis=0), None)))
    again = model.e_step(new, (images, None))
    assert np.array_equal(again.first[0, 0, 0], [0, 0, 40])


@pytest.mark.parametrize(
    "rule, q", [("max_minus_min", 0.5), ("max_minus_min", 0.3), ("maximum", 0.02), ("maximum", 0.4)]
)
def test_online_equals_batch_while_nothing_changes_hands(rule, q):
    X, model = np.repeat(problem()[0][:1], 6, axis=0), Compositions(rule, q)
    online = learn_online(model, no_experts(20), X, 3)
    assert online.templates.shape[1] == 1
    batch = model.m_step(online, model.e_step(online, (X, None)))
    assert np.allclose(online.templates, batch.templates) and np.allclose(
        online.counts, batch.counts
    )


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("start", ["abstains", "not sure"])
def test_online_goes_on_from_a_pixel_that_nobody_had_owned(share, start):
    model = Compositions("maximum", 0.02)
    rng = np.random.default_rng(0)
    total, none = np.zeros((2, 1, 1, 5)), np.zeros((1, 1, 1))
    experts = Experts(
        np.full((1, 1, 5), 0.02 if start == "abstains" else 0.5), np.full((1, 1, 5), 2.0)
    )
    for _ in range(7):
        ink = share * rng.integers(0, 2, (1, 1, 5))
        one = ExpertStatistics(
            ink, np.full((1, 1, 5), share), none, none[..., None], none, none[0, 0], none[0, 0]
        )
        experts, total = model.update(experts, one), total + [ink, one.counts]
        batch = model.m_step(experts, one._replace(ink=total[0], counts=total[1]))
        assert np.allclose(experts.templates, batch.templates) and np.allclose(
            experts.counts, batch.counts
        )


def test_a_new_expert_and_the_misfit_by_definition():
    x, mu = np.array([1.0, 1, 0, 0]), np.array([0.9, 0.2, 0.9, 0.1])
    template, counts = new_expert(x, mu)
    assert np.allclose(template, [0.5, 2 / 3, 1 / 3, 0.5]) and np.array_equal(counts, [2, 3, 3, 2])
    template, counts = new_expert(x, mu, "maximum")
    assert np.allclose(template, [0.5, 2 / 3, 1 / 3, 1 / 3]) and np.array_equal(
        counts, [2, 3, 3, 3]
    )
    assert np.allclose(misfit(x[None], mu[None]), np.log(0.5 / 0.2) + np.log(0.5 / 0.1))
    assert np.allclose(misfit(x[None], mu[None], "maximum"), np.log(0.5 / 0.2))
    assert np.isfinite(misfit(np.ones((1, 3)), np.zeros((1, 3))))[0]


@RULES
def test_a_new_expert_learns_from_its_example_and_leaves_the_rest_to_the_others(rule):
    X, templates = problem(5)
    model, before = make(rule), stacked(templates)
    found = model.explain(templates, X[9:10])
    after = append_expert(model, before, X[9:10], found)
    mu, N = new_expert(X[9], found.composed[0], rule, q=model.q)
    assert np.array_equal(after.templates[0, 3], mu) and np.array_equal(after.counts[0, 3], N)
    idle = np.setdiff1d(np.arange(3), found.experts)
    assert np.array_equal(after.templates[0, idle], templates[idle]) and np.array_equal(
        before.templates[0], templates
    )


@RULES
def test_no_expert_at_all_is_a_model(rule):
    X, _ = problem()
    model = make(rule)
    sums = model.e_step(no_experts(20), (X, None))
    q = 0.5 if rule == "max_minus_min" else 0.02
    assert np.isclose(sums.log_likelihood[0], np.sum(bernoulli_log_likelihood(X, np.full(20, q))))
    assert np.isclose(description_length(model, no_experts(20), sums)[0], -sums.log_likelihood[0])


def test_pruning_silences_opinions_that_do_not_pay():
    """An opinion that only breaks even abstains: of one example, with ε = 1 and q = ½, the mixture
    and abstention give it the same probability, ½, to the bit.
    """

    def learned(S, N, *kind, **how):
        none = np.zeros((1, 1, 1))
        counted = ExpertStatistics(
            np.array([[S]]), np.array([[N]]), none, none[..., None], none, none[0, 0], none[0, 0]
        )
        return make(*kind, **how).m_step(None, counted).templates[0, 0]

    S, N = [10.0, 5, 2, 0], [10.0, 10, 3, 0]
    assert np.allclose(learned(S, N, prune=True), [11 / 12, 0.5, 0.5, 0.5]) and np.allclose(
        learned(S, N), [11 / 12, 0.5, 0.6, 0.5]
    )
    assert all(module._mixed(on, 1 - on, 1.0) == np.log(0.5) for on in (0.0, 1.0))
    assert np.array_equal(learned([1.0, 0.0, 2.0], [1.0, 1.0, 2.0], prune=True), [0.5, 0.5, 0.75])
    assert (
        learned([0.0], [5000.0], "maximum", prune=True)[0] == 0.02
    )  # below the background it is the background


@RULES
def test_silencing_a_pixel_changes_the_length_by_what_the_m_step_compares(rule):
    model, X = make(rule), np.ones((12, 40))
    X[:3, 0], X[:5, 1], X[:9, 2], X[:11, 3] = 0, 0, 0, 0
    S, N = X.sum(axis=0), 12
    mixed, silent = (
        module._mixed(S, N - S, 1.0),
        S * np.log(model.q) + (N - S) * np.log(1 - model.q),
    )
    templates = (S / N)[None]
    whole = stacked(templates)
    sums = model.e_step(whole, (X, None))
    kept = model.m_step(whole, sums)
    pruned = make(rule, prune=True).m_step(whole, sums)
    assert np.array_equal(pruned.templates[0, 0] != model.q, mixed > silent) and np.all(
        kept.templates != model.q
    )
    for d in range(6):
        fewer = stacked(np.where(np.arange(40) == d, model.q, templates))
        lengths = [
            description_length(model, e, model.e_step(e, (X, None)))[0] for e in (whole, fewer)
        ]
        assert np.isclose(lengths[1] - lengths[0], mixed[d] - silent[d])


def test_experts_of_the_maximum_are_found_and_their_number():
    rng = np.random.default_rng(1)
    X = np.zeros((20, 8, 8))
    X[:, ::2, 1:7] = (rng.random((20, 4)) < 0.5)[:, :, None]
    X = np.abs(X.reshape(20, 64) - (rng.random((20, 64)) < 0.02))
    model = CompositionalModel(rule="maximum", random_state=0, n_jobs=1).fit(X)
    assert len(model.templates_) == 4 and np.all(np.sum(model.templates_ > 0.5, axis=1) == 6)


def test_random_starts_are_alive_or_warned_about():
    X = bars(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = CompositionalModel(3, rule="maximum", init="random", random_state=0, n_jobs=1).fit(
            X
        )
    assert model.score(X) > np.mean(bernoulli_log_likelihood(X, np.full(64, 0.01))) + 10 and np.all(
        model.active_sets_.any(axis=0)
    )
    with pytest.warns(ConvergenceWarning, match="no expert is active in any of the images"):
        dead = CompositionalModel(2, init="random", random_state=0, n_jobs=1).fit(X)
    assert np.isclose(dead.score(X), -64 * np.log(2))
    with pytest.warns(ConvergenceWarning, match="no expert is active in any of the images"):
        CompositionalModel(2, rule="maximum", n_jobs=1).fit(np.zeros((3, 4)))


def test_misuse_of_the_model_is_explained():
    X, templates = problem()
    for batch, message in [
        ((X[:, 1:], None), "x has shape"),
        ((X, np.ones(3)), "weight has shape"),
        ((None, None), "x is None"),
        ((X + 0.5, None), "X must hold zeros and ones"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            make().e_step(stacked(templates), batch)


# ── poses
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_moments_of_poses_and_their_sums():
    images, T = bars(12, noise=0.01), Transforms((8, 8), shifts=2)
    model = make("maximum", T)
    templates = np.zeros((2, 8, 8)) + 0.02
    templates[0, 1, 1:7] = templates[1, 2:7, 4] = 0.95
    templates = templates.reshape(2, 64)
    whole, left, right = (
        model.count(templates, x, np.ones(len(x)), model.explain(templates, x))
        for x in (images, images[:5], images[5:])
    )
    assert all(np.allclose(a, b) for a, b in zip(_add_statistics(left, right), whole))
    mean, covariance = pose_moments(whole)
    found = model.explain(templates, images)
    rows = np.stack(
        [
            T.poses[found.poses[np.arange(12), np.argmax(found.experts == k, axis=1)]]
            for k in (0, 1)
        ],
        axis=1,
    )
    assert np.all(np.sort(found.experts, axis=1) == [0, 1])
    assert np.allclose(mean, rows.mean(axis=0)) and np.allclose(
        covariance, np.cov(rows.reshape(12, 6).T, ddof=0)
    )
    one = model.count(templates[:1], images, np.ones(12), model.explain(templates[:1], images))
    grown = _add_statistics(one, whole)
    assert (
        grown.together.shape == (2, 2)
        and grown.weight == 24
        and np.isclose(grown.together[0, 0], one.together[0, 0] + 12)
    )


def test_active_experts():
    experts = np.array([[2, 0, -1], [-1, -1, -1]])
    assert np.array_equal(active_experts(experts, 3), [[True, False, True], [False] * 3])
    assert active_experts(np.empty((2, 0), int), 2).shape == (2, 2)


def test_a_step_with_turns_by_definition():
    X, templates = problem(8)
    for rule in ("max_minus_min", "maximum"):
        model = make(rule, TURNS)
        found = model.explain(templates, X)
        highest, lowest = model.owners(found, templates)
        S, N = np.zeros((2, *templates.shape))
        places = np.zeros((3, 3))
        for n, j in np.argwhere(found.experts >= 0):
            k, pose = found.experts[n, j], found.poses[n, j]
            R = ((highest[n] == j) | (lowest[n] == j)).astype(float)
            S[k] += TURNS.pull_back((R * X[n])[None], [pose])[0]
            N[k] += TURNS.pull_back(R[None], [pose])[0]
            (down, right), angle = TURNS.poses[pose, :2], np.deg2rad(TURNS.poses[pose, 2])
            places[k, :2] += np.array(
                [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
            ) @ (down, right)
        sums = model.count(templates, X, np.ones(len(X)), found)
        assert np.any(TURNS.poses[found.poses[found.experts >= 0], 2])
        assert (
            np.allclose(sums.ink, S)
            and np.allclose(sums.counts, N)
            and np.allclose(sums.places, places)
        )


def test_a_turned_bar_is_found_with_its_angles():
    T = Transforms((11, 11), shifts=2, rotations=(-45.0, 0.0, 45.0))
    bar = np.zeros((11, 11))
    bar[4:7, 1:10] = 1
    poses = np.array(
        [[0, 0, 0], [0, 0, 45], [0, 0, -45], [1, 1, 45], [1, 0, 0], [0, 1, -45]] * 2, float
    )
    index = [int(np.flatnonzero((T.poses == pose).all(axis=1))[0]) for pose in poses]
    X = (T.transform(bar.reshape(1, 121), index) > 0.5).astype(float)
    model = CompositionalModel(1, rule="maximum", transforms=T, n_jobs=1).fit(X)
    assert np.array_equal(model.transform(X)[:, 3], poses[:, 2])
    assert np.mean((model.templates_[0] > 0.5) == bar.ravel()) > 0.95


def test_what_comes_in_from_outside_is_nobodys():
    T = Transforms((1, 3), shifts=(0, 1))
    found = matching_pursuit(np.array([[1.0, 1, 1]]), np.array([[0.9, 0.9, 0.9]]), transforms=T)
    moved = found._replace(poses=np.array([[2]]))
    highest, lowest = owners(moved, np.array([[0.9, 0.9, 0.9]]), T)
    assert highest.tolist() == [[-1, 0, 0]] and lowest.tolist() == [[-1, -1, -1]]


def test_the_length_by_hand():
    counted = ExpertStatistics(
        np.array([[[2.0]]]),
        np.array([[[3.0]]]),
        np.array([[[4.0]]]),
        *np.zeros((2, 1, 1, 1)),
        np.array([-7.0]),
        np.array([5.0]),
    )
    regret = np.log(12) + np.log((2 / 3) ** 2 / 3)
    for transforms, n in ((None, 1), (SHIFTS, 9)):
        model = make(transforms=transforms)
        length = regret + 4 * np.log(n) + 5 * np.log(2) + 7
        assert np.isclose(description_length(model, stacked(np.array([[0.6]])), counted)[0], length)
        assert np.isclose(
            make(transforms=transforms, prune=True).objective(stacked(np.array([[0.6]])), counted)[
                0
            ],
            -length,
        )
        assert model.objective(stacked(np.array([[0.6]])), counted)[0] == -7


def test_a_new_expert_must_be_worth_its_announcement():
    wide = Transforms((4, 5), shifts=1, rotations=(0.0, 10.0, 20.0, 30.0))
    start = stacked(np.full((1, 20), 0.9))
    X = np.ones((1, 20))
    X[0, 3] = 0
    for transforms, n in ((None, 2), (wide, 1)):
        worth = misfit(X, make(transforms=transforms).explain(start.templates[0], X).composed)[0]
        assert np.log(2) < worth < np.log(2 * 36)
        assert learn_online(make(transforms=transforms), start, X, 5).templates.shape[1] == n


def test_idle_experts_are_nowhere_and_places_between_the_pixels_are_mixtures():
    model = fit(2, init="online", transforms=SHIFTS)
    assert np.array_equal(model.inverse_transform(np.zeros((1, 8))), np.full((1, 20), 0.5))
    half = model.inverse_transform([[1, 0, 0, 0.5, 0, 0, 0, 0]]).reshape(4, 5)
    mu = model.templates_[0].reshape(4, 5)
    assert np.allclose(half[:, 1:], (mu[:, 1:] + mu[:, :-1]) / 2)
    model.active_sets_, model.active_set_counts_ = np.array([[True, False]]), np.array([1.0])
    model.pose_mean_ = np.ones((2, 3))
    drawn = model.sample(5)[1]
    assert np.all(drawn[:, :2] == [1, 0]) and np.all(drawn[:, 5:] == 0) and np.any(drawn[:, 2:5])


# ── experts that stay where they are
# ─────────────────────────────────────────────────────────────────────────────────────────


def planted(seed, side=16, n=60, K=3):
    """Images (n, side²) of some bars, each in half of the images, one pixel in a hundred flipped;
    and the bars.
    """
    rng, parts = np.random.default_rng([side, seed]), np.zeros((K, side, side))
    length, width = 3 * side // 4, max(1, side // 8)
    for part in parts:
        along, across = rng.integers(0, side - length + 1), rng.integers(0, side - width + 1)
        (part if rng.random() < 0.5 else part.T)[
            along : along + length, across : across + width
        ] = 1
    parts = parts.reshape(K, -1)
    shown = (rng.random((n, K)) < 0.5) @ parts > 0
    return (shown ^ (rng.random(shown.shape) < 0.01)).astype(float), parts


def aim(templates, active, X, charge):
    "Log-likelihood of each pixel with the prior of all experts."
    U, L = extremes_of(templates, active, charge.q)
    mu = np.clip(U + L - charge.q, 1e-9, 1 - 1e-9)
    return np.sum(np.log(np.where(X == 1, mu, 1 - mu)), axis=0) + np.sum(
        charge.prior(templates), axis=0
    )


@pytest.mark.parametrize(
    "rule, q", [("maximum", 0.02), ("max_minus_min", 0.5), ("max_minus_min", 0.3)]
)
def test_the_exact_step_never_goes_down_and_rests_where_no_opinion_is_better(rule, q):
    rng, charge, above = np.random.default_rng(0), Charge(q, 1.0, None), rule == "maximum"
    for _ in range(5):
        X, active = (rng.random((30, 10)) < 0.4).astype(float), rng.random((30, 4)) < 0.5
        course = [rng.uniform(q if above else 0.05, 0.95, (4, 10))]
        for _ in range(30):
            course.append(exact_templates(course[-1], active, X, charge, above))
        scores = np.array([aim(templates, active, X, charge) for templates in course])
        assert np.all(np.diff(scores, axis=0) > -1e-8) and np.all(
            course[-1] >= q if above else course[-1] > 0
        )
        for v in np.linspace(q, 0.99, 60) if above else ():
            other = course[-1].copy()
            other[1] = v
            assert np.all(aim(other, active, X, charge) <= scores[-1] + 1e-7)


def test_a_lone_expert_is_a_count_and_must_pay_for_what_it_says():
    X = np.repeat([[1.0, 0, 1, 0]], 40, axis=0)
    X[:20, 2] = 0
    for rule, q in (("maximum", 0.02), ("max_minus_min", 0.5)):
        free, charge = Charge(q, 1.0, None), Charge(q, 1.0, np.log(4))
        start, everybody = np.full((1, 4), max(q, 0.3)), np.ones((40, 1), bool)
        counted = exact_templates(start, everybody, X, free, rule == "maximum")[0]
        assert np.allclose(
            counted, np.maximum((X.sum(axis=0) + 2 * q) / 42, q if rule == "maximum" else 0)
        )
        priced = exact_templates(start, everybody, X, charge, rule == "maximum")[0]
        assert priced[2] == 0.5 if q == 0.5 else priced[2] == counted[2]
        pays = module._mixed(40, 0, 1.0) - 40 * np.log(q) - np.log(4)
        assert pays > 0 and priced[0] == counted[0]
        assert (priced[1] == q) == (rule == "maximum")
        idle = exact_templates(start, np.zeros((40, 1), bool), X, charge)
        assert np.all(idle == q)
    assert charge.price(40, 40) == pytest.approx(
        40 * np.log(41 / 42) + charge.prior(41 / 42) - module._mixed(40, 0, 1.0) + np.log(4)
    )


def test_opinions_are_the_same_with_black_and_white_exchanged():
    rng, charge = np.random.default_rng(1), Charge(0.4, 1.0, 1.0)
    U, L, ink = 0.4 + 0.6 * rng.random((6, 9)), 0.4 * rng.random((6, 9)), rng.integers(0, 9, (6, 9))
    others, now = _Others(U, L, ink, np.full((6, 1), 9)), rng.random(9)
    assert np.allclose(
        _best_opinions(others, now, charge),
        1 - _best_opinions(others.mirrored(), 1 - now, charge.mirrored()),
    )


def test_small_sets():
    assert small_sets(3).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
        [1, 0, 1],
        [0, 1, 1],
        [1, 1, 1],
    ]
    assert (
        small_sets(0).shape == (1, 0) and len(small_sets(10)) == 1024 and len(small_sets(3, 1)) == 4
    )
    assert (
        len(small_sets(20)) == 1 + 20 + 190
        and small_sets(20).sum(axis=1).max() == 2
        and len(small_sets(2000)) == 2001
    )


def test_planted_bars_are_found():
    """At least nine of ten problems, with images of 16 × 16 and of 6 × 6 pixels, and their number
    in most.
    """
    for side, least in ((16, 9), (6, 9)):
        found, numbers = 0, 0
        for seed in range(10):
            X, parts = planted(seed, side)
            model = CompositionalModel(3, rule="maximum", random_state=0, n_jobs=1).fit(X)
            found += all(np.any(np.all((model.templates_ > 0.5) == part, axis=1)) for part in parts)
            if side == 16 and seed < 5:
                numbers += (
                    len(
                        CompositionalModel(rule="maximum", random_state=0, n_jobs=1)
                        .fit(X)
                        .templates_
                    )
                    == 3
                )
        assert found >= least
        assert numbers >= 4 or side == 6


def test_eight_quadrants_are_found_without_a_hint():
    from capslit.data.datasets import draw_quadrants, quadrant_templates

    truth = quadrant_templates().reshape(8, 36)
    for seed in range(2):
        X = draw_quadrants(100, np.random.RandomState(seed))[0].reshape(100, 36)
        model = CompositionalModel(8, prune=True, random_state=0, n_jobs=1).fit(X)
        apart = [np.min(np.sum(np.abs(model.templates_ - mu), axis=1)) for mu in truth]
        assert max(apart) < 2 and np.all(model.counts_ >= 2) and np.any(model.counts_ > 10)


def test_more_starts_are_never_worse_and_the_search_is_repeatable():
    X, _ = planted(3)
    search = _StillExperts(make("maximum"), X, 4)
    few, many = (_best_start(search, np.random.RandomState(0), n, 20).objective for n in (1, 4))
    assert many >= few
    one, other = (find_experts(make(), X[:, :20], 3, np.random.RandomState(1)) for _ in range(2))
    assert np.array_equal(one.templates, other.templates) and one.objective == other.objective


def test_the_search_of_many_experts_and_of_few_images():
    X, _ = planted(1, 6)
    model = CompositionalModel(12, rule="maximum", random_state=0, n_jobs=1, max_iter=5).fit(X)
    assert model.templates_.shape == (12, 36) and model.score(X) > -6
    assert CompositionalModel(2, random_state=0, n_jobs=1).fit(X[:1]).templates_.shape == (2, 36)
    assert (
        CompositionalModel(3, rule="maximum", max_active=1, random_state=0, n_jobs=1)
        .fit(X)
        .transform(X)
        .sum(axis=1)
        .max()
        == 1
    )
    with pytest.raises(ValueError, match="init='search' is for experts that stay where they are"):
        CompositionalModel(2, init="search", transforms=Transforms((6, 6), 1)).fit(X)


def test_a_cost_silences_experts_and_is_part_of_the_objective():
    X = as_rows_of_halves()
    counts = []
    for cost in (0.0, 2.0, 1e3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = CompositionalModel(
                4, expert_cost=cost, init="random", prune=False, random_state=0, n_jobs=1
            ).fit(X)
        active = model.transform(X).sum()
        counts.append(active)
        if cost == 1e3:
            assert active == 0 and np.allclose(model.score_samples(X), -X.shape[1] * np.log(2))
        best = np.argmax(model.history_["objective"])
        assert (model.history_["objective"][best] < model.history_["log_likelihood"][best]) == (
            cost > 0 and active > 0
        )
    assert counts[0] > counts[1] >= counts[2]


def as_rows_of_halves(n=60):
    "Images (n, 36) of two halves, each black, white or noise."
    rng = np.random.default_rng(0)
    level = rng.choice([0, 1, 0.5, 0.5], (n, 2))
    return (
        (rng.random((n, 6, 6)) < np.repeat(level, 3, axis=1)[:, None]).reshape(n, 36).astype(float)
    )


def test_a_newcomer_speaks_where_nobody_has():
    X, parts = planted(2)
    q = np.full(X.shape, 0.01)
    covered = (X @ parts[0] > 0.8 * parts[0].sum())[:, None] * 0.9 * parts[0]
    new = _newcomer(
        X, np.maximum(covered, q), q, Charge(0.01, 1.0, np.log(3)), True, np.random.RandomState(0)
    )
    assert np.any(new > 0.5) and np.all((new == 0.01) | (new > 0.5))
    search = _StillExperts(make("maximum"), X, 3)
    H = _factor_templates(search, np.random.RandomState(0))
    assert H.shape == (3, 256) and np.all((H >= 0.02) & (H <= 0.95))


# ── the estimator
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_bars_are_found_and_their_number():
    T = Transforms((8, 8), shifts=2)
    X, others = bars(16, 1), bars(50, 2)
    model = CompositionalModel(rule="maximum", transforms=T, random_state=0, n_jobs=1).fit(X)
    assert len(model.templates_) == 2 and model.converged_ and -model.score(others) < 3
    ink = sorted(np.round(model.templates_).sum(axis=1).tolist())
    assert ink == [5, 6]
    codes = model.transform(others)
    assert codes.shape == (50, 8) and np.all(codes[:, :2] == 1)
    assert np.allclose(
        bernoulli_log_likelihood(others, model.inverse_transform(codes)),
        model.score_samples(others),
    )
    images, drawn = model.sample(200)
    assert (
        images.shape == (200, 64) and np.all(np.isin(images, [0, 1])) and np.all(drawn[:, :2] == 1)
    )
    assert np.allclose(drawn[:, 2:].mean(axis=0), model.pose_mean_.ravel(), atol=0.3)
    assert np.allclose(np.cov(drawn[:, 2:].T), model.pose_covariance_, atol=0.3)
    mean, covariance = model.pose_distribution([1])
    assert np.array_equal(mean, model.pose_mean_[1]) and np.array_equal(
        covariance, model.pose_covariance_[3:, 3:]
    )
    assert list(model.get_feature_names_out()) == [
        "expert0",
        "expert1",
        *(f"expert{k}_{c}" for k in (0, 1) for c in ("row", "column", "angle")),
    ]


def test_experts_of_the_other_rule_and_what_they_tell():
    rng = np.random.default_rng(0)
    level = rng.choice([0, 1, 0.5, 0.5], (100, 2))
    X = (
        (rng.random((100, 4, 4)) < np.repeat(level, 2, axis=1)[:, None])
        .reshape(100, 16)
        .astype(float)
    )
    model = CompositionalModel(4, init="random", n_init=3, random_state=0, n_jobs=1).fit(X)
    assert model.templates_.shape == model.counts_.shape == (4, 16) and model.score(X) > -11
    assert np.isclose(model.score(X), model.history_["log_likelihood"].max() / 100)
    assert np.array_equal(model.pose_covariance_, np.zeros((12, 12))) and np.all(model.counts_ >= 2)
    assert np.all(model.active_set_counts_ > 0) and len(
        np.unique(model.active_sets_, axis=0)
    ) == len(model.active_sets_)
    assert model.active_set_counts_.sum() == 100 and np.isclose(
        model.transform(X).sum(), model.active_set_counts_ @ model.active_sets_.sum(axis=1)
    )
    one = CompositionalModel(4, init="random", n_init=1, random_state=0, n_jobs=1).fit(X)
    assert model.score(X) >= one.score(X) - 1e-9
    pruned = CompositionalModel(4, init=model.templates_, prune=True, n_jobs=1).fit(X)
    assert np.sum(pruned.templates_ != 0.5) <= np.sum(model.templates_ != 0.5)
    assert pruned.lower_bound_ < pruned.score(X)


def test_partial_fit_goes_on_where_it_was():
    X = bars(12, 4)
    settings = {"rule": "maximum", "transforms": Transforms((8, 8), shifts=1), "n_jobs": 1}
    whole = CompositionalModel(2, **settings).partial_fit(X)
    parts = CompositionalModel(2, **settings)
    for x in X:
        parts.partial_fit(x[None])
    assert np.array_equal(whole.templates_, parts.templates_) and np.array_equal(
        whole.counts_, parts.counts_
    )
    assert (
        all(np.array_equal(a, b) for a, b in zip(whole.statistics_, parts.statistics_))
        and whole.statistics_.weight == 12
    )
    assert np.array_equal(whole.active_sets_, parts.active_sets_) and np.array_equal(
        whole.active_set_counts_, parts.active_set_counts_
    )
    batch = CompositionalModel(2, init="online", **settings).fit(X)
    before = batch.templates_.copy()
    batch.partial_fit(X[:1])
    assert batch.statistics_.weight == 13 and not np.array_equal(before, batch.templates_)
    assert len(CompositionalModel(**settings).partial_fit(X[:1]).templates_) == 1
    with pytest.raises(
        ValueError,
        match="n_experts must be a whole number of at least 1, not None; init='random' needs it",
    ):
        CompositionalModel(init="random").partial_fit(X)


def test_grey_images_are_binarised():
    X = problem()[0]
    model = CompositionalModel(2, init="online", n_jobs=1).fit(X)
    grey = CompositionalModel(2, init="online", binarize=100, n_jobs=1).fit(255 * X)
    assert np.array_equal(grey.templates_, model.templates_) and list(
        model.get_feature_names_out()
    ) == ["expert0", "expert1"]
    assert np.array_equal(grey.score_samples(255 * X), model.score_samples(X))
    strict = CompositionalModel(2, init="online", binarize=None, n_jobs=1)
    assert np.array_equal(strict.fit(X).templates_, model.templates_)
    for factor, message in (
        (0.5, "X must hold zeros and ones, but holds 0.5; pass binarize=0.25"),
        (255, "holds 255; pass binarize=127.5"),
        (-1, "X must hold zeros and ones"),
    ):
        with pytest.raises(ValueError, match=message):
            strict.fit(factor * X)


def test_each_rule_has_its_background():
    X = problem()[0]
    for rule, background in (("maximum", 0.01), ("max_minus_min", 0.5)):
        model = CompositionalModel(2, rule=rule, n_jobs=1, random_state=0).fit(X)
        same = clone(model).set_params(background=background).fit(X)
        assert np.array_equal(model.templates_, same.templates_), rule
        assert np.all(model.inverse_transform(np.zeros((1, 2))) == background), rule


def test_no_noise_no_second_expert():
    X = np.repeat(problem()[0][:1], 10, axis=0)
    model = CompositionalModel(n_jobs=1).fit(X)
    assert len(model.templates_) == 1 and np.array_equal(np.round(model.templates_), X[:1])


def test_owners_take_the_first_of_equals_and_nobody_at_q():
    templates = np.array([[0.9, 0.5, 0.2], [0.9, 0.5, 0.2]])
    found = matching_pursuit(np.array([[1.0, 1, 0]]), templates)
    found = found._replace(experts=np.array([[1, 0]]), poses=np.array([[0, 0]]))
    highest, lowest = owners(found, templates)
    assert highest.tolist() == [[0, -1, -1]] and lowest.tolist() == [[-1, -1, 0]]
    assert owners(found, templates, q=0.0)[0].tolist() == [[0, 0, 0]]
