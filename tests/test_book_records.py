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
from capslit.experiments.figure2 import UPDATES_SEEN
from capslit.experiments.records import RESULTS, load_record
from capslit.experiments.scenes import BACKGROUNDS

pytestmark = needs_built_book


def state(page, part):
    return page.evaluate("part => capslit.parts[part].state()", part)


# Images behind points


@pytest.mark.parametrize("figure, data", [("figure2", "mnist"), ("figure3", "fashion")])
def test_points_have_the_record_s_classes_and_images(reader, figure, data):
    record, images = (
        load_record(RESULTS / f"{figure}-{data}.json"),
        load_record(RESULTS / f"{figure.replace('figure', 'points')}-{data}.json"),
    )
    rows = images.array("images", "rows")
    lengths = np.sum(record.array("multiclass-2", "squashed")[rows].astype(float) ** 2, axis=2)
    page = reader.open(f"nbs/experiments/{figure}.html")
    assert state(page, f"{figure}-points")["taken"] == lengths.argmax(axis=1).tolist()
    assert np.allclose(
        page.evaluate("part => capslit.parts[part].shares", f"{figure}-points"), lengths, atol=2e-3
    )
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
        f"{figure}-points",
    )
    assert (
        np.max(
            np.abs(np.reshape(sheet, (28, 28)) - images.array("images", "images")[23].astype(int))
        )
        <= 16
    )


def test_points_are_chosen_by_class_and_by_arrow_keys(reader):
    page = reader.open("nbs/experiments/figure2.html")
    confusion, labels = (
        load_record(RESULTS / "figure2-mnist.json").array("multiclass-2", name)
        for name in ("confusion", "labels")
    )
    part = page.locator("#live-figure2-points")
    part.locator("select").nth(1).select_option("4")
    part.locator("select").nth(2).select_option("9")
    shown = state(page, "figure2-points")
    kept = labels[load_record(RESULTS / "points2-mnist.json").array("images", "rows")]
    assert shown["shown"] and all(kept[k] == 4 and shown["taken"][k] == 9 for k in shown["shown"])
    assert (
        part.locator(".capslit-words")
        .first.inner_text()
        .startswith(f"{confusion[4, 9]} of the 10000 test images")
    )
    first = shown["chosen"]
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    assert len(shown["shown"]) > 1 and state(page, "figure2-points")["chosen"] not in (first, None)


# Curves and matrices: the page reads them from the drawn figures, the tests from the records


def data_of(part):
    return json.loads(
        (BOOK / "_static" / "live" / f"{part}.data.js")
        .read_text(encoding="utf-8")
        .partition(" = ")[2]
        .rstrip(";\n")
    )


MOUNT = r'</summary>\s*<div class="capslit-live" id="live-[\w-]+" data-live="([\w-]+)"'
EXPLORERS = {
    part: page
    for page in CHAPTERS
    for part in re.findall(MOUNT, (BOOK / page).read_text(encoding="utf-8"))
}


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
    title, name, record, read = CURVES[part]
    (panel,) = (
        panel
        for panel in data_of(part.partition(":")[0])["panels"]
        if panel["title"].startswith(title)
    )
    (series,) = (series for series in panel["series"] if series["name"] == name)
    held = dict(zip(*read(load_record(RESULTS / f"{record}.json")), strict=True))
    shown = {point["x"]: point["y"] for point in series["values"]}
    assert len(shown) >= min(len(held), 6)
    assert shown == pytest.approx(
        {x: held[min(held, key=lambda at: abs((at or 0) - x))] for x in shown}, rel=6e-5
    )
    assert max(shown) == pytest.approx(max(filter(None, held)), rel=0.02)


def test_error_rates_are_those_of_the_matrices_behind_them():
    found = 0
    for part in EXPLORERS:
        data = data_of(part)
        for panel in data.get("panels", []):
            for point in (
                point
                for series in panel["series"]
                for point in series["values"]
                if "counts" in point
            ):
                counts = unpacked(point["counts"])
                assert 100 * (1 - np.trace(counts) / counts.sum()) == pytest.approx(
                    point["y"], abs=1e-3
                ), (part, panel["title"])
                assert len(data["classes"][point["classes"]]) == len(counts)
                found += 1
        found += len(data.get("matrices", []))
    assert found > 150


def unpacked(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), packed["dtype"]).reshape(
        packed["shape"]
    )


MATRICES = {
    "million-readings": ("readings-mnist", lambda name: (name, "predicted")),
    "heads-errors": (
        "heads-mnist",
        {
            "the network itself": ("heads", "network"),
            "logistic regression, hidden capsules": ("heads", "logistic-hidden"),
        }.get,
    ),
    "figure2-thresholds": (
        "radii-fashion",
        {"Fashion-MNIST, ν = 0.4": ("threshold-0.4", "predicted")}.get,
    ),
}


@pytest.mark.parametrize("part", MATRICES)
def test_matrices_count_the_record_s_predictions(part):
    name, of = MATRICES[part]
    record, seen = load_record(RESULTS / f"{name}.json"), 0
    for matrix in data_of(part)["matrices"]:
        if of(matrix["name"]):
            where, predicted = of(matrix["name"])
            labels = (
                load_record(RESULTS / "figure3-fashion.json").array("multiclass-2", "labels")
                if name.startswith("radii")
                else record.array(where, "labels")
            )
            assert np.array_equal(
                unpacked(matrix["counts"]), confusion_matrix(labels, record.array(where, predicted))
            )
            seen += 1
    assert seen >= (len(record.parts) if part == "million-readings" else 1)


@together("name", sorted(set(EXPLORERS.values())))
def test_explorers_start_when_they_are_opened(browser, site, name):
    reader = Reader(browser, site, 390, "dark")
    page, parts = reader.open(name), [part for part in EXPLORERS if EXPLORERS[part] == name]
    page.evaluate(
        "() => document.querySelectorAll('details.capslit-explore').forEach(fold => { fold.open ="
        " true; })"
    )
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
    assert (
        page.locator("details.capslit-explore").count()
        and not page.locator("details.capslit-explore:visible").count()
    )
    context.close()


def test_curves_are_read_by_arrow_keys_and_hidden_by_boxes(reader):
    page = reader.open("nbs/experiments/figure5.html")
    part, record = page.locator("#live-figure5-curves"), load_record(RESULTS / "figure5-mnist.json")
    part.locator("svg[role=application]").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    now = state(page, "figure5-curves")
    assert (
        now["at"] == [1, 2]
        and f"{100 * record.metrics('ovr-4')['test_error']:.2f} %" in now["words"]
    )
    part.locator("input[type=checkbox]").nth(1).uncheck()
    now = state(page, "figure5-curves")
    assert now["off"] == ["ovr"] and now["at"] == [0, 2] and now["words"].startswith("multiclass")


def test_a_curve_is_read_by_pointing_and_its_matrix_by_arrow_keys(reader):
    page = reader.open("nbs/experiments/figure5.html")
    svg = page.locator("#live-figure5-curves svg[role=application]")
    svg.scroll_into_view_if_needed()
    box, view = svg.bounding_box(), svg.evaluate("svg => svg.viewBox.baseVal.width")
    place = svg.evaluate(
        "svg => svg.querySelectorAll('g')[3].children[16].getAttribute('transform')"
    )  # the fifth point of the third curve
    x, y = (float(value) for value in place.removeprefix("translate(").removesuffix(")").split())
    at = (box["x"] + x * box["width"] / view, box["y"] + y * box["width"] / view)
    page.mouse.move(*at)
    assert state(page, "figure5-curves")["at"] == [2, 4]
    page.mouse.click(*at)
    page.mouse.move(at[0] - 150, at[1] - 5)  # past other points
    assert state(page, "figure5-curves")["at"] == [2, 4] and state(page, "figure5-curves")["held"]
    counts = confusion_matrix(
        *(
            load_record(RESULTS / "figure5-mnist.json").array("ovo-16", name)
            for name in ("labels", "predicted")
        )
    )
    page.locator("#live-figure5-curves td[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    words = page.locator("#live-figure5-curves .capslit-confusion .capslit-words").inner_text()
    assert words == f"{counts[2, 1]} of the {counts[2].sum()} of class 2 are taken for 1."


def test_a_cell_of_the_matrix_chooses_the_images(reader):
    page = reader.open("nbs/experiments/figure2.html")
    confusion = load_record(RESULTS / "figure2-mnist.json").array("multiclass-2", "confusion")
    cell = (
        page.locator("#live-figure2-points .capslit-confusion tbody tr").nth(4).locator("td").nth(9)
    )
    assert cell.inner_text() == str(confusion[4, 9])
    cell.click()
    assert (
        page.locator("#live-figure2-points .capslit-words")
        .first.inner_text()
        .startswith(f"{confusion[4, 9]} of the 10000 test images")
    )


# The contest


def test_tables_are_sorted_filtered_and_pointed_at(reader):
    from capslit.experiments.contest import matrix, tables_in

    record = load_record(RESULTS / "tables-tables.json")
    errors = dict(zip(tables_in(record), 100 * matrix(record, ["capsules", "logistic"])))
    page = reader.open("nbs/experiments/contest.html")
    part = page.locator("#live-contest-tables")
    better = sum(ours < theirs for ours, theirs in errors.values())
    assert f"less on {better} of {len(errors)} tables" in state(page, "contest-tables")["words"]
    part.get_by_role("button", name="capsules", exact=True).click()
    shown = state(page, "contest-tables")["shown"]
    assert [errors[name][0] for name in shown] == sorted(ours for ours, _ in errors.values())
    part.get_by_role("button", name="capsules ↑", exact=True).click()
    assert [errors[name][0] for name in state(page, "contest-tables")["shown"]] == sorted(
        (ours for ours, _ in errors.values()), reverse=True
    )
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    chosen = state(page, "contest-tables")["chosen"]
    assert errors[chosen][1] == min(theirs for _, theirs in errors.values()) and state(
        page, "contest-tables"
    )["words"].startswith(f"{chosen}: ")
    part.locator("input[type=search]").fill("penguin")
    assert sorted(state(page, "contest-tables")["shown"]) == sorted(
        name for name in errors if "penguin" in name
    )
