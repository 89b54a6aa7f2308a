"""Figure 4: prototypes in other coordinates."""

import numpy as np
import pytest
from scipy.stats import special_ortho_group

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.experiments.figure4 import (
    _principal_axes,
    _prototypes_along,
    _squashed_by_class,
)


@pytest.fixture(scope="module")
def fitted():
    digits = datasets.load_digits()
    X, y = digits.images[:600].reshape(600, -1) / 16.0, digits.labels[:600]
    return (
        CapsuleClassifier.paper(
            3, thresholds=(0.4,), patience=(3,), fit_intercept=False, early_stopping=False
        ).fit(X, y),
        X,
        y,
    )


def test_along_the_own_axes_they_are_the_prototypes_of_the_classifier(fitted):
    model, X, y = fitted
    which, share, probability = _prototypes_along(
        np.stack([np.eye(3)] * 10), _squashed_by_class(model.coef_, X, y)
    )
    assert np.array_equal(which, model.prototypes(X, y))
    squares = model.squash(X[which.ravel()]).reshape(10, 3, 10, 3) ** 2
    for (i, a), _ in np.ndenumerate(which):
        assert share[i, a] == pytest.approx(squares[i, a, i, a]) and probability[
            i, a
        ] == pytest.approx(squares[i, a, i].sum())


def test_principal_axes_belong_to_the_model(fitted):
    model, X, y = fitted
    turn = special_ortho_group.rvs(3, size=10, random_state=1)
    assert np.allclose(turn @ turn.transpose(0, 2, 1), np.eye(3))
    (share, axes), (turned_share, turned_axes) = (
        _principal_axes(_squashed_by_class(weights, X, y))
        for weights in (model.coef_, turn @ model.coef_)
    )
    assert np.all(np.diff(share, axis=1) <= 0) and np.allclose(share, turned_share)
    assert np.allclose(
        np.abs(np.einsum("iab,icb->iac", axes, turned_axes @ turn)), np.eye(3), atol=1e-6
    )
    found = [
        _prototypes_along(a, _squashed_by_class(w, X, y))
        for a, w in ((axes, model.coef_), (turned_axes, turn @ model.coef_))
    ]
    assert np.array_equal(found[0][0], found[1][0]) and np.allclose(found[0][1], found[1][1])
    assert not np.array_equal(found[0][0], model.prototypes(X, y))
