"""The live parts that explore records: what they show is what the records hold, by pointer and by
keyboard.
"""

import base64
import json
import re

import numpy as np
import pytest
from built_book import CHAPTERS, html, needs_built_book, state
from conftest import together
from sklearn.metrics import confusion_matrix

from capslit.experiments.calibration import COVERAGES
from capslit.experiments.figure2 import UPDATES_SEEN
from capslit.experiments.records import RESULTS, load_record
from capslit.experiments.scenes import BACKGROUNDS

pytestmark = needs_built_book


def record(name):
    return load_record(RESULTS / f"{name}.json")


def words(part):
    return part.locator(".capslit-words").first.inner_text()


# Images behind points


@pytest.mark.parametrize("figure, data", [("figure2", "mnist"), ("figure3", "fashion")])
def test_points_have_the_record_s_classes_and_images(reader, figure, data):
    images = record(f"{figure.replace('figure', 'points')}-{data}")
    squashed = record(f"{figure}-{data}").array("multiclass-2", "squashed").astype(float)
    lengths = np.sum(squashed[images.array("images", "rows")] ** 2, axis=2)
    page, part = reader.open(f"nbs/experiments/{figure}.html"), f"{figure}-points"
    assert state(page, part)["taken"] == lengths.argmax(axis=1).tolist()
    shares = page.evaluate("part => capslit.parts[part].shares", part)
    assert np.allclose(shares, lengths, atol=2e-3)
    sheet = page.evaluate(
        """async part => {
        const {sprite} = capslit.data[part], image = new Image();
        image.src = `data:image/png;base64,${sprite.png}`;
        await image.decode();
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        const side = image.width / sprite.columns, {data} = context.getImageData(
            23 % sprite.columns * side, Math.floor(23 / sprite.columns) * side, side, side);
        return [...data].filter((_, k) => k % 4 === 0);
    }""",
        part,
    )
    image = images.array("images", "images")[23].astype(int)
    assert np.max(np.abs(np.reshape(sheet, image.shape) - image)) <= 16


def test_points_are_chosen_by_class_and_by_arrow_keys(reader):
    page = reader.open("nbs/experiments/figure2.html")
    names = ("confusion", "labels")
    confusion, labels = (record("figure2-mnist").array("multiclass-2", name) for name in names)
    part = page.locator("#live-figure2-points")
    part.locator("select").nth(1).select_option("4")
    part.locator("select").nth(2).select_option("9")
    before = state(page, "figure2-points")
    kept = labels[record("points2-mnist").array("images", "rows")]
    assert {(kept[k], before["taken"][k]) for k in before["shown"]} == {(4, 9)}
    assert words(part).startswith(f"{confusion[4, 9]} of the 10000 test images")
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    after = state(page, "figure2-points")["chosen"]
    assert len(before["shown"]) > 1 and after not in (before["chosen"], None)


# Curves and matrices: the page reads them from the drawn figures, the tests from the records


def data_of(part):
    script = html(f"_static/live/{part}.data.js")
    return json.loads(script.partition(" = ")[2].rstrip(";\n"))


MOUNT = r'</summary>\s*<div class="capslit-live" id="live-[\w-]+" data-live="([\w-]+)"'
EXPLORERS = {part: page for page in CHAPTERS for part in re.findall(MOUNT, html(page))}


def metrics(names, key):
    "A metric in per cent of the parts with these names, {x: name}."
    return lambda record: (
        list(names),
        [100 * record.metrics(name)[key] for name in names.values()],
    )


def array(part, name, factor=1, x=None):
    "An array of a part, against the numbers from 0 on or others."
    return lambda record: (
        range(len(record.array(part, name))) if x is None else x,
        factor * record.array(part, name).astype(float),
    )


def median_course(record):
    course = 100 * np.median(record.array("noise-0.1", "training_error"), axis=0)
    return range(len(course)), course


def by_strength(record):
    names = [name for name in record.parts if name.startswith("strength-")]
    return metrics({record.metrics(name)["strength"]: name for name in names}, "test_error")(record)


# Part of the page: panel, curve, record, and what the curve holds, (x, y)
CURVES = {
    "figure2-learning": (
        "error / %",
        "training error",
        "figure2-mnist",
        array("multiclass-2", "history.training_error", 100),
    ),
    "figure2-radii": (
        "Fashion-MNIST",
        "ν = 0.4",
        "radii-fashion",
        array("threshold-0.4", "median", x=UPDATES_SEEN),
    ),
    "figure4-shares": (
        "MNIST",
        "principal, mean over all images",
        "axes-mnist",
        lambda record: (
            range(1, 9),
            100 * record.array("principal", "principal_moments").mean(axis=0),
        ),
    ),
    "figure5-curves:joint": (
        "MNIST, test",
        "ovr, stopped jointly",
        "figure5-mnist",
        metrics({d: f"ovr-joint-{d}" for d in (2, 8)}, "test_error"),
    ),
    "million-search": ("error / %", "test images", "million-mnist", by_strength),
    "updates-passes": (
        "momentum and threshold",
        "stepwise, 200",
        "passes-mnist",
        array("stepwise-200-momentum-thresholded", "test_error", 100, range(1, 11)),
    ),
    "figure8-curves": ("MNIST", "noise 0.1", "figure8-mnist", median_course),
    "calibration-rejection": (
        "MNIST",
        "support vectors",
        "calibration-mnist",
        array("svm", "rejection_before", 100, COVERAGES),
    ),
    "causes-costs": (
        "microseconds per image, vectors of 4 states",
        "truncated",
        "causes-digits",
        array("cost", "seconds truncated", 1e6, (1, 2, 3, 4, 6, 8, 10, 12, *[None] * 6)),
    ),
    "scenes-sweeps": (
        "%, background b",
        "soft: digits found",
        "scenes-mnist",
        array("mean, own, 5 digits, noise 0.1", "original found", 100, BACKGROUNDS),
    ),
}


@pytest.mark.parametrize("part", CURVES)
def test_explored_curves_are_the_record_s(part):
    title, name, source, read = CURVES[part]
    (series,) = (
        series
        for panel in data_of(part.partition(":")[0])["panels"]
        for series in panel["series"]
        if panel["title"].startswith(title) and series["name"] == name
    )
    held = dict(zip(*read(record(source)), strict=True))
    shown = {point["x"]: point["y"] for point in series["values"]}
    assert len(shown) >= min(len(held), 6)
    wanted = {x: held[min(held, key=lambda at: abs((at or 0) - x))] for x in shown}
    assert shown == pytest.approx(wanted, rel=6e-5)
    assert max(shown) == pytest.approx(max(filter(None, held)), rel=0.02)


def test_error_rates_are_those_of_the_matrices_behind_them():
    found = 0
    for part in EXPLORERS:
        data = data_of(part)
        series = [series for panel in data.get("panels", []) for series in panel["series"]]
        points = [point for one in series for point in one["values"] if "counts" in point]
        for point in points:
            counts = unpacked(point["counts"])
            error = 100 * (1 - np.trace(counts) / counts.sum())
            assert error == pytest.approx(point["y"], abs=1e-3), part
            assert len(data["classes"][point["classes"]]) == len(counts)
        found += len(points) + len(data.get("matrices", []))
    assert found > 150


def unpacked(packed):
    values = np.frombuffer(base64.b64decode(packed["base64"]), packed["dtype"])
    return values.reshape(packed["shape"])


# Part of the page: record, and where it has the predictions of a matrix, if not under its name
MATRICES = {
    "million-readings": ("readings-mnist", {}),
    "heads-errors": (
        "heads-mnist",
        {
            "the network itself": ("heads", "network"),
            "logistic regression, hidden capsules": ("heads", "logistic-hidden"),
        },
    ),
    "figure2-thresholds": (
        "radii-fashion",
        {"Fashion-MNIST, ν = 0.4": ("threshold-0.4", "predicted")},
    ),
}


@pytest.mark.parametrize("part", MATRICES)
def test_matrices_count_the_record_s_predictions(part):
    name, of = MATRICES[part]
    held = record(name)
    of = of or {name: (name, "predicted") for name in held.parts}
    shown = {matrix["name"]: unpacked(matrix["counts"]) for matrix in data_of(part)["matrices"]}
    for matrix, (where, predicted) in of.items():
        radii = name.startswith("radii")
        source, place = (record("figure3-fashion"), "multiclass-2") if radii else (held, where)
        counts = confusion_matrix(source.array(place, "labels"), held.array(where, predicted))
        assert np.array_equal(shown[matrix], counts)


@together("name", sorted(set(EXPLORERS.values())))
def test_explorers_start_when_they_are_opened(visits, name):
    found = visits("phone-dark", name)
    assert not found["errors"] and not found["explored"]


def test_explorers_are_not_there_without_scripts(readers):
    reader = readers(java_script_enabled=False)
    reader.page.goto(f"{reader.site}nbs/experiments/figure5.html")
    assert reader.page.locator("details.capslit-explore").count()
    assert not reader.page.locator("details.capslit-explore:visible").count()


def test_curves_are_read_by_arrow_keys_and_hidden_by_boxes(reader):
    page = reader.open("nbs/experiments/figure5.html")
    part, error = page.locator("#live-figure5-curves"), record("figure5-mnist").metrics("ovr-4")
    part.locator("svg[role=application]").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    now = state(page, "figure5-curves")
    assert now["at"] == [1, 2] and f"{100 * error['test_error']:.2f} %" in now["words"]
    part.locator("input[type=checkbox]").nth(1).uncheck()
    now = state(page, "figure5-curves")
    assert now["off"] == ["ovr"] and now["at"] == [0, 2] and now["words"].startswith("multiclass")


def test_a_curve_is_read_by_pointing_and_its_matrix_by_arrow_keys(reader):
    page = reader.open("nbs/experiments/figure5.html")
    part = page.locator("#live-figure5-curves")
    svg = part.locator("svg[role=application]")
    svg.scroll_into_view_if_needed()
    x, y = svg.evaluate("""svg => {  // the fifth point of the third curve
        const place = svg.querySelectorAll('g')[3].children[16].getAttribute('transform'),
            [x, y] = place.match(/[\\d.]+/g).map(Number),
            at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
        return [at.x, at.y];
    }""")
    page.mouse.move(x, y)
    assert state(page, "figure5-curves")["at"] == [2, 4]
    page.mouse.click(x, y)
    page.mouse.move(x - 150, y - 5)  # past other points
    now = state(page, "figure5-curves")
    assert now["at"] == [2, 4] and now["held"]
    labels, predicted = (
        record("figure5-mnist").array("ovo-16", n) for n in ("labels", "predicted")
    )
    counts = confusion_matrix(labels, predicted)
    part.locator("td[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    said = words(part.locator(".capslit-confusion"))
    assert said == f"{counts[2, 1]} of the {counts[2].sum()} of class 2 are taken for 1."


def test_a_cell_of_the_matrix_chooses_the_images(reader):
    page = reader.open("nbs/experiments/figure2.html")
    part = page.locator("#live-figure2-points")
    count = record("figure2-mnist").array("multiclass-2", "confusion")[4, 9]
    cell = part.locator(".capslit-confusion tbody tr").nth(4).locator("td").nth(9)
    assert cell.inner_text() == str(count)
    cell.click()
    assert words(part).startswith(f"{count} of the 10000 test images")


# The contest


def test_tables_are_sorted_filtered_and_pointed_at(reader):
    from capslit.experiments.contest import matrix, tables_in

    held = record("tables-tables")
    tables, (ours, theirs) = tables_in(held), 100 * matrix(held, ["capsules", "logistic"]).T
    by_ours = sorted(ours.tolist())
    page = reader.open("nbs/experiments/contest.html")
    now = lambda: state(page, "contest-tables")
    shown = lambda: [ours[tables.index(name)] for name in now()["shown"]]
    part = page.locator("#live-contest-tables")
    assert f"less on {(ours < theirs).sum()} of {len(tables)} tables" in now()["words"]
    part.get_by_role("button", name="capsules", exact=True).click()
    assert shown() == by_ours
    part.get_by_role("button", name="capsules ↑", exact=True).click()
    assert shown() == by_ours[::-1]
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    chosen = now()["chosen"]
    assert theirs[tables.index(chosen)] == min(theirs)
    assert now()["words"].startswith(f"{chosen}: ")
    part.locator("input[type=search]").fill("penguin")
    assert sorted(now()["shown"]) == sorted(name for name in tables if "penguin" in name)
