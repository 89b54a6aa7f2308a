"""Figure 4: prototypes in other coordinates."""

import numpy as np
from scipy.stats import special_ortho_group

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.experiments.figure4 import (
    LOOKS,
    _coordinates,
    _explained,
    _principal_axes,
    _prototypes_along,
    _shuffled,
    _spread_of,
    _squashed_by_class,
)
from capslit.experiments.records import load_protocol


def test_prototypes_along_their_own_and_along_principal_axes():
    "The latter belong to the model, however its capsules are turned."
    digits = datasets.load_digits()
    X, y = digits.images[:600].reshape(600, -1) / 16.0, digits.labels[:600]
    settings = {"thresholds": (0.4,), "patience": (3,), "fit_intercept": False}
    model = CapsuleClassifier.paper(3, early_stopping=False, **settings).fit(X, y)
    turn = special_ortho_group.rvs(3, size=10, random_state=1)
    plain, turned = (_squashed_by_class(W, X, y) for W in (model.coef_, turn @ model.coef_))
    which, share, probability = _prototypes_along(np.stack([np.eye(3)] * 10), plain)
    assert np.array_equal(which, model.prototypes(X, y))
    squares = model.squash(X[which.ravel()]).reshape(10, 3, 10, 3) ** 2
    own = np.einsum("iaib->iab", squares)  # of the class's own capsule
    assert np.allclose(share, np.einsum("iaa->ia", own), rtol=1e-6, atol=0)
    assert np.allclose(probability, own.sum(axis=2), rtol=1e-6, atol=0)
    (moments, axes), (turned_moments, turned_axes) = map(_principal_axes, (plain, turned))
    assert np.all(np.diff(moments, axis=1) <= 0) and np.allclose(moments, turned_moments)
    cosines = np.einsum("iab,icb->iac", axes, turned_axes @ turn)
    assert np.allclose(np.abs(cosines), np.eye(3), atol=1e-6)
    found = _prototypes_along(axes, plain)
    again = _prototypes_along(turned_axes, turned)
    assert np.array_equal(found[0], again[0]) and np.allclose(found[1], again[1])
    assert not np.array_equal(found[0], which)


def test_looks_are_those_of_each_image_alone():
    digits = datasets.load_digits()
    images = np.kron(digits.images[:40] / 16.0, np.ones((1, 3, 3)))
    for describe, names in LOOKS.values():
        looks = describe(images)
        assert looks.shape == (40, len(names)) and np.isfinite(looks).all()
        assert np.allclose(np.vstack([describe(image[None]) for image in images]), looks)


def test_explained_looks_are_those_of_the_pose_and_no_order_of_other_images_explains_them():
    protocol = load_protocol(datasets.load_digits())
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(10, 3, protocol.n_components))
    # An element, a product of two, a share of the squared length, and noise
    looks = []
    for name in ("training", "test"):
        X, y = protocol.sets[name]
        of = _coordinates(weights, X.astype(float), y)
        product = of["pose"][:, 0] * of["pose"][:, 1]
        columns = (of["pose"][:, 1], product, of["direction"][:, 2], rng.normal(size=len(y)))
        looks.append(np.stack(columns, axis=1))
    shares = {k: v[0] for k, v in _explained(weights, protocol, *looks, rng).items()}
    means = {name: share.mean(axis=0) for name, share in shares.items()}
    assert np.allclose(shares["pose"][:, 0], 1) and np.allclose(shares["element"][:, 0], 1)
    assert np.allclose(shares["products"][:, :2], 1) and means["pose"][1] < 0.9
    assert np.allclose(shares["direction"][:, 2], 1) and means["pose"][2] < 0.95
    assert means["turned"][0] < 0.9 and means["components"][0] < 0.9
    assert means["permuted"].max() < 0.05 and max(share[3] for share in means.values()) < 0.05


def test_a_shuffle_stays_within_classes_and_spread_has_its_rank():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    rows = _shuffled(np.arange(200), y, rng)
    assert np.array_equal(y[rows], y) and sorted(rows) == list(range(200))
    assert np.sum(rows == np.arange(200)) < 20
    values = np.column_stack([rng.normal(size=5000), np.ones(5000)])
    random = [_spread_of(values[rng.integers(5000, size=8)], values, rng) for _ in range(100)]
    ratio, rank = np.array(random).mean(axis=0)
    assert abs(ratio[0] - 0.965) < 0.1 and abs(rank[0] - 0.5) < 0.1  # 0.965: of eight normal ones
    assert ratio[1] == 0 and rank[1] == 0.5
    assert _spread_of(3 * values[:8], values, rng)[1][0] > 0.95
