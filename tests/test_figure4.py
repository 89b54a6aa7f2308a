"""Figure 4: prototypes in other coordinates."""

import numpy as np
import pytest

from capslit import CapsuleClassifier
from capslit.data import datasets
from capslit.experiments.figure4 import (
    AXES,
    EIGHT,
    FIGURE4,
    _principal_axes,
    _prototypes_along,
    _random_axes,
    _squashed_by_class,
)
from capslit.experiments.records import load_record, perform


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
    turn = _random_axes(10, 3, seed=1)[0]
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


def test_quick_runs_are_the_same_twice(tmp_path):
    for name in "ab":
        perform("figure4", FIGURE4, "digits", profile="quick", out=tmp_path / name)
    first, second = (
        load_record(perform("axes", AXES, "digits", profile="quick", out=tmp_path / name))
        for name in "ab"
    )
    assert first.array("random", "shares").shape == (100, 10, 8) and set(first.arrays) == set(
        second.arrays
    )
    assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)
    trained = load_record(tmp_path / "a" / "figure4-digits-quick.json")
    assert all((trained.array(EIGHT, "prototypes")[i] < 1283).all() for i in range(10))
    for part in first.parts:
        assert np.all(
            first.array(part, "share") <= first.array(part, "probability") + 1e-12
        ) and np.all(first.array(part, "probability") <= 1)
