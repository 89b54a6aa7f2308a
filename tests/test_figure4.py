"""Figure 4: prototypes in other coordinates."""

import numpy as np
from scipy.stats import special_ortho_group

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.experiments.figure4 import _principal_axes, _prototypes_along, _squashed_by_class


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
