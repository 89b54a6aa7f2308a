"""The live parts that explore records: what they show is what the records hold, by pointer and by
keyboard.
"""

import base64
import json
import re

import numpy as np
import pytest
from built_book import BOOK, CHAPTERS, Reader, needs_built_book
from conftest import together
from sklearn.metrics import confusion_matrix

from capslit.experiments.calibration import COVERAGES
from capslit.experiments.contest import matrix, tables_in
from capslit.experiments.figure2 import UPDATES_SEEN
from capslit.experiments.records import RESULTS, load_record
from capslit.experiments.scenes import BACKGROUNDS

pytestmark = needs_built_book


def recorded(name):
    return load_record(RESULTS / f"{name}.json")


def state(page, part):
    return page.evaluate("part => capslit.parts[part].state()", part)


# Images behind points


@together(
    "figure, kept", [("figure2-mnist", "points2-mnist"), ("figure3-fashion", "points3-fashion")]
)
def test_points_have_the_record_s_classes_and_images(reader, figure, kept):
    images = recorded(kept)
    squashed = recorded(figure).array("multiclass-2", "squashed")
    lengths = np.sum(squashed[images.array("images", "rows")].astype(float) ** 2, axis=2)
    name = figure.partition("-")[0]
    page = reader.open(f"nbs/experiments/{name}.html")
    part = f"{name}-points"
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
    image = images.array("images", "images")[23].ravel().astype(int)
    assert np.max(np.abs(sheet - image)) <= 16


def test_points_are_chosen_by_class_by_arrow_keys_and_by_a_cell_of_the_matrix(reader):
    page = reader.open("nbs/experiments/figure2.html")
    record = recorded("figure2-mnist")
    confusion = record.array("multiclass-2", "confusion")
    part = page.locator("#live-figure2-points")
    words = part.locator(".capslit-words").first
    cell = part.locator(".capslit-confusion tbody tr").nth(4).locator("td").nth(9)
    assert cell.inner_text() == str(confusion[4, 9])
    cell.click()
    assert words.inner_text().startswith(f"{confusion[4, 9]} of the 10000 test images")
    for menu, digit in ((1, "9"), (2, "4")):
        part.locator("select").nth(menu).select_option(digit)
    assert words.inner_text().startswith(f"{confusion[9, 4]} of the 10000 test images")
    shown = state(page, "figure2-points")
    kept = record.array("multiclass-2", "labels")[recorded("points2-mnist").array("images", "rows")]
    assert len(shown["shown"]) > 1
    assert all(kept[k] == 9 and shown["taken"][k] == 4 for k in shown["shown"])
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    assert state(page, "figure2-points")["chosen"] not in (shown["chosen"], None)


# Curves and matrices: the page reads them from the drawn figures, the tests from the records


def data_of(part):
    text = (BOOK / "_static" / "live" / f"{part}.data.js").read_text(encoding="utf-8")
    return json.loads(text.partition(" = ")[2].rstrip(";\n"))


MOUNT = r'</summary>\s*<div class="capslit-live" id="live-[\w-]+" data-live="([\w-]+)"'
EXPLORERS = {
    part: page
    for page in CHAPTERS
    for part in re.findall(MOUNT, (BOOK / page).read_text(encoding="utf-8"))
}


def errors(names):
    "Test errors in per cent of the parts with these names, {x: name}."
    return lambda record: [100 * record.metrics(name)["test_error"] for name in names.values()]


def array(name, factor=1):
    "An array, named part/array, times a factor."
    return lambda record: factor * record.arrays[name].astype(float)


# Part of the page: panel, curve, record, its x (by default 0, 1, 2 …), and its y
JOINT = {d: f"ovr-joint-{d}" for d in (2, 8)}
STRENGTHS = {s: f"strength-{s:g}" for s in (0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.5)}
STATES = (1, 2, 3, 4, 6, 8, 10, 12, *[None] * 6)
PASSES = "stepwise-200-momentum-thresholded/test_error"
CURVES = {
    "figure2-learning": (
        "error / %",
        "training error",
        "figure2-mnist",
        None,
        array("multiclass-2/history.training_error", 100),
    ),
    "figure2-radii": (
        "Fashion-MNIST",
        "ν = 0.4",
        "radii-fashion",
        UPDATES_SEEN,
        array("threshold-0.4/median"),
    ),
    "figure4-shares": (
        "MNIST",
        "principal, mean over all images",
        "axes-mnist",
        range(1, 9),
        lambda record: 100 * record.array("principal", "principal_moments").mean(axis=0),
    ),
    "figure5-curves:joint": (
        "MNIST, test",
        "ovr, stopped jointly",
        "figure5-mnist",
        JOINT,
        errors(JOINT),
    ),
    "million-search": ("error / %", "test images", "million-mnist", STRENGTHS, errors(STRENGTHS)),
    "updates-passes": (
        "momentum and threshold",
        "stepwise, 200",
        "passes-mnist",
        range(1, 11),
        array(PASSES, 100),
    ),
    "figure8-curves": (
        "MNIST",
        "noise 0.1",
        "figure8-mnist",
        None,
        lambda record: 100 * np.median(record.array("noise-0.1", "training_error"), axis=0),
    ),
    "calibration-rejection": (
        "MNIST",
        "support vectors",
        "calibration-mnist",
        COVERAGES,
        array("svm/rejection_before", 100),
    ),
    "causes-costs": (
        "microseconds per image, vectors of 4 states",
        "truncated",
        "causes-digits",
        STATES,
        array("cost/seconds truncated", 1e6),
    ),
    "scenes-sweeps": (
        "%, background b",
        "soft: digits found",
        "scenes-mnist",
        BACKGROUNDS,
        array("mean, own, 5 digits, noise 0.1/original found", 100),
    ),
}


@together("part", CURVES)
def test_explored_curves_are_the_record_s(part):
    title, name, record, x, read = CURVES[part]
    panels = data_of(part.partition(":")[0])["panels"]
    (panel,) = (panel for panel in panels if panel["title"].startswith(title))
    (series,) = (series for series in panel["series"] if series["name"] == name)
    y = read(recorded(record))
    held = dict(zip(x or range(len(y)), y, strict=True))
    shown = {point["x"]: point["y"] for point in series["values"]}
    assert len(shown) >= min(len(held), 6)
    nearest = {x: min(held, key=lambda at: abs((at or 0) - x)) for x in shown}
    assert shown == pytest.approx({x: held[at] for x, at in nearest.items()}, rel=6e-5)
    assert max(shown) == pytest.approx(max(filter(None, held)), rel=0.02)


def unpacked(packed):
    counts = np.frombuffer(base64.b64decode(packed["base64"]), packed["dtype"])
    return counts.reshape(packed["shape"])


def test_error_rates_are_those_of_the_matrices_behind_them():
    found = 0
    for part in EXPLORERS:
        data = data_of(part)
        panels = data.get("panels", [])
        series = [series for panel in panels for series in panel["series"]]
        for point in (point for one in series for point in one["values"] if "counts" in point):
            counts = unpacked(point["counts"])
            error = 100 * (1 - np.trace(counts) / counts.sum())
            assert error == pytest.approx(point["y"], abs=1e-3), part
            assert len(data["classes"][point["classes"]]) == len(counts)
            found += 1
        found += len(data.get("matrices", []))
    assert found > 150


# Part of the page: record, and where it holds the predictions behind a matrix
MATRICES = {
    "million-readings": ("readings-mnist", {}),  # all of its parts
    "heads-errors": (
        "heads-mnist",
        {
            "the network itself": "heads/network",
            "logistic regression, hidden capsules": "heads/logistic-hidden",
        },
    ),
    "figure2-thresholds": (
        "radii-fashion",
        {"Fashion-MNIST, ν = 0.4": "threshold-0.4/predicted"},
    ),
}


@together("part", MATRICES)
def test_matrices_count_the_record_s_predictions(part):
    name, places = MATRICES[part]
    record = recorded(name)
    shown = {matrix["name"]: unpacked(matrix["counts"]) for matrix in data_of(part)["matrices"]}
    for words, place in (places or {name: f"{name}/predicted" for name in record.parts}).items():
        predicted = record.arrays[place]
        labels = record.arrays.get(f"{place.partition('/')[0]}/labels")
        if labels is None:
            labels = recorded("figure3-fashion").array("multiclass-2", "labels")
        assert np.array_equal(shown[words], confusion_matrix(labels, predicted))


@together("name", sorted(set(EXPLORERS.values())))
def test_explorers_start_when_they_are_opened(browser, site, name):
    reader = Reader(browser, site, 390, "dark")
    page = reader.open(name)
    page.evaluate(
        "() => document.querySelectorAll('details.capslit-explore').forEach(fold => { fold.open ="
        " true; })"
    )
    parts = [part for part in EXPLORERS if EXPLORERS[part] == name]
    page.wait_for_function("parts => parts.every(part => part in capslit.parts)", arg=parts)
    troubles = page.evaluate(
        """() => [...document.querySelectorAll('details.capslit-explore')].flatMap(
            fold => [...fold.querySelectorAll('*')].filter(e =>
        e.getBoundingClientRect().right > fold.getBoundingClientRect().right + 1 && !e.closest(
            'svg *, .visually-hidden, .capslit-scroll > *')
        || e.matches('input, select, button, [tabindex]') && !(e.labels && e.labels.length) &&
            !e.getAttribute('aria-label') && !e.textContent.trim())
        .map(e => e.outerHTML.slice(0, 120)))"""
    )
    reader.context.close()
    assert not reader.errors and not troubles


def test_explorers_are_not_there_without_scripts(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + "nbs/experiments/figure5.html")
    assert page.locator("details.capslit-explore").count()
    assert not page.locator("details.capslit-explore:visible").count()
    context.close()


def test_curves_are_read_by_keys_and_by_pointing_and_hidden_by_boxes(reader):
    page = reader.open("nbs/experiments/figure5.html")
    part = page.locator("#live-figure5-curves")
    record = recorded("figure5-mnist")
    svg = part.locator("svg[role=application]")

    def now(key):
        return state(page, "figure5-curves")[key]

    svg.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    error = record.metrics("ovr-4")["test_error"]
    assert now("at") == [1, 2] and f"{100 * error:.2f} %" in now("words")
    part.locator("input[type=checkbox]").nth(1).uncheck()
    assert now("off") == ["ovr"] and now("at") == [0, 2] and now("words").startswith("multiclass")
    page = reader.open("nbs/experiments/figure5.html")
    svg.scroll_into_view_if_needed()
    frame = svg.bounding_box()
    scale = frame["width"] / svg.evaluate("svg => svg.viewBox.baseVal.width")
    place = svg.evaluate(
        "svg => svg.querySelectorAll('g')[3].children[16].getAttribute('transform')"
    )  # the fifth point of the third curve
    x, y = map(float, re.findall(r"[\d.]+", place))
    at = (frame["x"] + x * scale, frame["y"] + y * scale)
    page.mouse.move(*at)
    assert now("at") == [2, 4]
    page.mouse.click(*at)
    page.mouse.move(at[0] - 150, at[1] - 5)  # past other points
    assert now("at") == [2, 4] and now("held")
    labels, predicted = (record.array("ovo-16", name) for name in ("labels", "predicted"))
    counts = confusion_matrix(labels, predicted)
    part.locator("td[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    words = part.locator(".capslit-confusion .capslit-words").inner_text()
    assert words == f"{counts[2, 1]} of the {counts[2].sum()} of class 2 are taken for 1."


# The contest


def test_tables_are_sorted_filtered_and_pointed_at(reader):
    record = recorded("tables-tables")
    errors = dict(zip(tables_in(record), 100 * matrix(record, ["capsules", "logistic"])))
    ours, theirs = np.transpose([*errors.values()])
    page = reader.open("nbs/experiments/contest.html")
    part = page.locator("#live-contest-tables")

    def now(key):
        return state(page, "contest-tables")[key]

    assert f"less on {np.sum(ours < theirs)} of {len(errors)} tables" in now("words")
    for button, sign in (("capsules", 1), ("capsules ↑", -1)):
        part.get_by_role("button", name=button, exact=True).click()
        assert np.array_equal([errors[name][0] for name in now("shown")], np.sort(ours)[::sign])
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    chosen = now("chosen")
    assert errors[chosen][1] == min(theirs) and now("words").startswith(f"{chosen}: ")
    part.locator("input[type=search]").fill("penguin")
    assert sorted(now("shown")) == sorted(name for name in errors if "penguin" in name)
