"""The display of pose vectors: what it draws is what the capsules say, for every architecture, and
drawing leaves nothing behind.
"""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
from conftest import classes, together  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from capslit import CapsuleClassifier  # noqa: E402
from capslit.capsules import PoseDisplay, plot_poses  # noqa: E402
from capslit.plotting import CYCLES, style  # noqa: E402

NAMES = np.array(["ash", "birch", "cedar", "elm", "fir"])
WAYS = [
    (m, d, architecture)
    for m in (2, 3, 5)
    for d in (1, 3)
    for architecture in ("multiclass", "ovr", "ovo")
]


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    plt.close("all")


def fitted(m, d=2, architecture="multiclass", n=90):
    X, y = classes(n, 4, m, seed=m)
    return (
        CapsuleClassifier.paper(d, architecture=architecture, patience=(4, 4, 4, 4, 4)).fit(
            X, NAMES[y]
        ),
        X + 0.4,
        NAMES[y],
    )


def by_hand(model, x, label, architecture):
    """Own and rival length of one example, and the squared length of its own class's squashed pose,
    from its pose vectors alone.
    """
    names, m = model.classes_.tolist(), len(model.classes_)
    shape = model.intercept_.shape
    i, squares = (
        names.index(label),
        np.sum(
            model.transform(x[None]).reshape(shape if len(shape) == 3 else (1, *shape)) ** 2,
            axis=-1,
        ),
    )
    if m == 2 or architecture == "multiclass":
        pairs, share = (
            [(squares[0, i], max(np.delete(squares[0], i)))],
            squares[0, i] / squares[0].sum(),
        )
    elif architecture == "ovr":
        pairs, share = [(squares[i, 1], squares[i, 0])], squares[i, 1] / squares[i].sum()
    else:
        order = [(a, b) for a in range(m) for b in range(a + 1, m)]
        pairs = [
            (squares[q, int(b == i)], squares[q, int(a == i)])
            for q, (a, b) in enumerate(order)
            if i in (a, b)
        ]
        share = np.mean([own / (own + rival) for own, rival in pairs])
    own, rival = max(pairs, key=lambda pair: pair[1] / pair[0])
    return np.sqrt(own), np.sqrt(rival), share


@together("m, d, architecture", WAYS)
def test_what_is_drawn_is_what_the_capsules_say(m, d, architecture):
    model, X, y = fitted(m, d, architecture)
    display = PoseDisplay.from_estimator(model, X, y)
    assert display.classes.tolist() == NAMES[:m].tolist() and len(display.axes_) == m + 1
    assert (display.classes[display.y] == y).all() and (
        display.classes[display.predicted] == model.predict(X)
    ).all()
    for k in range(0, len(X), 7):
        own, rival, share = by_hand(model, X[k], y[k], architecture)
        drawn = display.lengths[k, ::-1] if m == 2 and y[k] == NAMES[1] else display.lengths[k]
        np.testing.assert_allclose(drawn, [own, rival], rtol=1e-8)
        np.testing.assert_allclose(np.sum(display.poses[display.y[k]][k] ** 2), share, rtol=1e-8)


@together("m, d, architecture", WAYS)
def test_points_and_rings(m, d, architecture):
    model, X, y = fitted(m, d, architecture)
    display = plot_poses(model, X, y)
    for i, ax in enumerate(display.axes_[1:]):
        rings = sum(
            len(line.get_xdata()) for line in ax.lines if line.get_markerfacecolor() == "none"
        )
        assert (
            rings == np.sum((display.y == i) & (display.predicted != i))
            and ax.get_title() == NAMES[i]
        )
        assert sum(len(line.get_xdata()) for line in ax.lines) == len(X) + rings
        x, z = np.concatenate([line.get_xydata() for line in ax.lines]).T
        assert d == 1 or (x**2 + z**2 < 1 + 1e-9).all()  # within the disc
    assert any(line.get_markerfacecolor() == "none" for line in display.axes_[0].lines)
    colour = display.axes_[0].lines[1].get_color()
    assert colour == CYCLES["light"][0]


def test_in_both_themes_twice_and_in_a_place_of_its_own():
    model, X, y = fitted(3)
    display = PoseDisplay.from_estimator(model, X, y)
    first = display.figure_
    with style("dark"):
        assert display.plot() is display and display.figure_ is not first
        assert display.axes_[0].lines[1].get_color() == CYCLES["dark"][0]
    figure, axes = plt.subplots(2, 2)
    place = axes[1, 1].get_position()
    display.plot(axes[1, 1], classes=["cedar", "ash"])
    assert (
        display.figure_ is figure
        and [ax.get_title() for ax in display.axes_[1:]] == ["cedar", "ash"]
        and len(figure.axes) == 3 + 3
    )
    assert all(
        ax.get_position(original=True).x0 >= place.x0 - 1e-9
        and ax.get_position(original=True).y1 <= place.y1 + 1e-9
        for ax in display.axes_
    )


def test_pipelines_frames_and_many_examples():
    _, X, y = fitted(3, n=300)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = (
        make_pipeline(StandardScaler(), CapsuleClassifier.paper(2, patience=(4, 4, 4, 4, 4)))
        .set_output(transform="pandas")
        .fit(frame, y)
    )
    display = PoseDisplay.from_estimator(pipeline, frame, pd.Series(y), max_samples=100)
    bare = PoseDisplay.from_estimator(pipeline[-1], pipeline[:-1].transform(frame), y)
    rows = np.linspace(0, 299, 100).astype(int)
    np.testing.assert_allclose(display.lengths, bare.lengths[rows])
    assert len(display.y) == 100 and len(set(display.y)) == 3


def test_of_many_classes_those_with_most_mistakes():
    rng = np.random.default_rng(0)
    y = np.arange(280) % 14
    X = rng.standard_normal((280, 6)) + 2.5 * rng.standard_normal((14, 6))[y]
    display = PoseDisplay.from_estimator(
        CapsuleClassifier.paper(1, patience=(1, 1, 1, 1, 1)).fit(X, y), X, y
    )
    mistakes = np.bincount(y[display.predicted != y], minlength=14)
    shown = [int(ax.get_title()) for ax in display.axes_[1:]]
    assert (
        len(shown) == 12
        and shown == sorted(shown)
        and mistakes[shown].min() >= np.delete(mistakes, shown).max()
    )


def test_zero_rows_and_classes_without_examples():
    X, y = classes(60, 4, 3)
    model = CapsuleClassifier.paper(2, fit_intercept=False, patience=(4, 4, 4, 4, 4)).fit(X, y)
    display = PoseDisplay.from_estimator(
        model, np.vstack([X[y != 1], 0 * X[:1]]), np.append(y[y != 1], 0)
    )
    assert (
        np.isfinite(display.lengths).all()
        and (display.lengths > 0).all()
        and all(np.isfinite(p).all() for p in display.poses)
    )
    display.figure_.canvas.draw()


@together(
    "change, error, said",
    [
        ({"y": ["oak"] * 90}, ValueError, "y must be labels among the classes of the model"),
        ({"y": ["ash"]}, ValueError, "inconsistent"),
        ({"classes": ["oak"]}, ValueError, "classes must be labels"),
        ({"classes": []}, ValueError, "classes must be labels"),
        ({"max_samples": 0}, ValueError, "max_samples must be a whole number of at least 1"),
        ({"X": np.ones((90, 3))}, ValueError, "features"),
        ({"model": CapsuleClassifier()}, NotFittedError, "not fitted"),
    ],
)
def test_wrong_arguments(change, error, said):
    model, X, y = fitted(3)
    with pytest.raises(error, match=said):
        plot_poses(**{"model": model, "X": X, "y": y} | change)
    assert not plt.get_fignums()


def test_what_cannot_be_drawn_or_drawn_into_is_named():
    from sklearn.linear_model import LogisticRegression

    model, X, y = fitted(3)
    other = LogisticRegression().fit(X, y)
    for wrong in (other, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)):
        with pytest.raises(
            TypeError,
            match=(
                "model must be a CapsuleClassifier, or a pipeline that ends in one, but"
                " LogisticRegression has no pose vectors"
            ),
        ):
            plot_poses(wrong, X, y)
    for ax in (plt.subplots(1, 2)[1], plt.figure(), plt.figure().add_axes([0, 0, 1, 1])):
        with pytest.raises(
            TypeError,
            match=(
                "ax must be one Axes that stands in a grid, .* not an object of the type"
                f" {type(ax).__name__}"
            ),
        ):
            plot_poses(model, X, y, ax=ax)
