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
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from capslit import CapsuleClassifier  # noqa: E402
from capslit.capsules import PoseDisplay, plot_poses  # noqa: E402
from capslit.plotting import CYCLES, style  # noqa: E402

NAMES = np.array(["ash", "birch", "cedar", "elm", "fir"])


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    plt.close("all")


def fitted(m=3, d=2, architecture="multiclass", n=90):
    X, y = classes(n, 4, m, seed=m)
    model = CapsuleClassifier.paper(d, architecture=architecture, patience=(4, 4, 4, 4, 4))
    return model.fit(X, NAMES[y]), X + 0.4, NAMES[y]


def competitors(m, architecture, i):
    "Of class i: each problem, its capsule there, and the others."
    if m == 2 or architecture == "multiclass":
        return [(0, i, [j for j in range(m) if j != i])]
    if architecture == "ovr":
        return [(i, 1, [0])]
    order = [(a, b) for a in range(m) for b in range(a + 1, m)]
    return [(q, int(b == i), [int(a == i)]) for q, (a, b) in enumerate(order) if i in (a, b)]


@together("m", (2, 3, 5))
@together("d", (1, 3))
@together("architecture", ("multiclass", "ovr", "ovo"))
def test_what_is_drawn_is_what_the_capsules_say(m, d, architecture):
    model, X, y = fitted(m, d, architecture)
    display = PoseDisplay.from_estimator(model, X, y)
    assert (display.classes[display.y] == y).all()
    assert (display.classes[display.predicted] == model.predict(X)).all()
    shape = model.intercept_.shape
    squares = (model.transform(X).reshape(len(X), *(1,) * (3 - len(shape)), *shape) ** 2).sum(-1)
    for k in range(0, len(X), 7):
        i = display.y[k]
        own, rival, share = np.transpose(
            [
                (s[j], s[others].max(), s[j] / s.sum())
                for q, j, others in competitors(m, architecture, i)
                for s in [squares[k, q]]
            ]
        )
        hardest = np.argmax(rival / own)
        drawn = display.lengths[k, ::-1] if m == 2 and i == 1 else display.lengths[k]
        np.testing.assert_allclose(drawn**2, [own[hardest], rival[hardest]], rtol=1e-8)
        np.testing.assert_allclose(np.sum(display.poses[i][k] ** 2), share.mean(), rtol=1e-8)
    for i, ax in enumerate(display.axes_[1:]):
        assert ax.get_title() == NAMES[i]
        sizes = [len(line.get_xdata()) for line in ax.lines]
        is_ring = [line.get_markerfacecolor() == "none" for line in ax.lines]
        rings = np.dot(sizes, is_ring)
        assert rings == np.sum((display.y == i) & (display.predicted != i))
        assert sum(sizes) == len(X) + rings
        points = np.concatenate([line.get_xydata() for line in ax.lines])
        assert d == 1 or ((points**2).sum(1) < 1 + 1e-9).all()  # within the disc
    assert any(line.get_markerfacecolor() == "none" for line in display.axes_[0].lines)


def test_in_both_themes_twice_and_in_a_given_place():
    display = PoseDisplay.from_estimator(*fitted())
    first = display.figure_
    assert display.axes_[0].lines[1].get_color() == CYCLES["light"][0]
    with style("dark"):
        assert display.plot() is display
    assert display.figure_ is not first
    assert display.axes_[0].lines[1].get_color() == CYCLES["dark"][0]
    figure, axes = plt.subplots(2, 2)
    place = axes[1, 1].get_position()
    display.plot(axes[1, 1], classes=["cedar", "ash"])
    assert display.figure_ is figure and len(figure.axes) == 3 + 3
    assert [ax.get_title() for ax in display.axes_[1:]] == ["cedar", "ash"]
    for ax in display.axes_:
        position = ax.get_position(original=True)
        assert position.x0 >= place.x0 - 1e-9 and position.y1 <= place.y1 + 1e-9


def test_pipelines_frames_and_many_examples():
    _, X, y = fitted(n=300)
    frame = pd.DataFrame(X, columns=list("abcd"))
    classifier = CapsuleClassifier.paper(2, patience=(4, 4, 4, 4, 4))
    pipeline = make_pipeline(StandardScaler(), classifier).set_output(transform="pandas")
    pipeline.fit(frame, y)
    display = PoseDisplay.from_estimator(pipeline, frame, pd.Series(y), max_samples=100)
    bare = PoseDisplay.from_estimator(pipeline[-1], pipeline[:-1].transform(frame), y)
    rows = np.linspace(0, 299, 100).astype(int)
    np.testing.assert_allclose(display.lengths, bare.lengths[rows])
    assert len(display.y) == 100


def test_of_many_classes_those_with_most_mistakes():
    rng = np.random.default_rng(0)
    y = np.arange(280) % 14
    X = rng.standard_normal((280, 6)) + 2.5 * rng.standard_normal((14, 6))[y]
    model = CapsuleClassifier.paper(1, patience=(1, 1, 1, 1, 1)).fit(X, y)
    display = PoseDisplay.from_estimator(model, X, y)
    mistakes = np.bincount(y[display.predicted != y], minlength=14)
    shown = [int(ax.get_title()) for ax in display.axes_[1:]]
    assert len(shown) == 12 and shown == sorted(shown)
    assert mistakes[shown].min() >= np.delete(mistakes, shown).max()


def test_zero_rows_and_classes_without_examples():
    X, y = classes(60, 4, 3)
    model = CapsuleClassifier.paper(2, fit_intercept=False, patience=(4, 4, 4, 4, 4)).fit(X, y)
    some = y != 1
    display = PoseDisplay.from_estimator(model, np.r_[X[some], 0 * X[:1]], np.r_[y[some], 0])
    assert np.isfinite(display.lengths).all()
    assert (display.lengths > 0).all()
    assert all(np.isfinite(poses).all() for poses in display.poses)
    display.figure_.canvas.draw()


def test_wrong_arguments_are_named():
    model, X, y = fitted()
    other = LogisticRegression().fit(X, y)
    for change, error, said in (
        ({"y": ["oak"] * 90}, ValueError, "y must be labels among the classes of the model"),
        ({"y": ["ash"]}, ValueError, "inconsistent"),
        ({"classes": ["oak"]}, ValueError, "classes must be labels"),
        ({"classes": []}, ValueError, "classes must be labels"),
        ({"max_samples": 0}, ValueError, "max_samples must be a whole number of at least 1"),
        ({"X": np.ones((90, 3))}, ValueError, "features"),
        ({"model": CapsuleClassifier()}, NotFittedError, "not fitted"),
        ({"model": other}, TypeError, "ends in one, but LogisticRegression has no pose vectors"),
        ({"model": make_pipeline(other)}, TypeError, "LogisticRegression has no pose vectors"),
    ):
        with pytest.raises(error, match=said):
            plot_poses(**{"model": model, "X": X, "y": y} | change)
    assert not plt.get_fignums()
    for ax in (plt.subplots(1, 2)[1], plt.figure(), plt.figure().add_axes([0, 0, 1, 1])):
        with pytest.raises(TypeError, match=f"not an object of the type {type(ax).__name__}"):
            plot_poses(model, X, y, ax=ax)
