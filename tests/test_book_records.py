"""The live parts that explore records: what they show is what the records hold, by pointer and by keyboard."""
import numpy as np
import pytest
from built_book import needs_built_book

from capslit.experiments.records import RESULTS, load_record

pytestmark = needs_built_book


def state(page, part):
    return page.evaluate("part => capslit.parts[part].state()", part)


# Images behind points

@pytest.mark.parametrize("figure, data", [("figure2", "mnist"), ("figure3", "fashion")])
def test_points_have_the_record_s_classes_and_images(reader, figure, data):
    record, images = load_record(RESULTS / f"{figure}-{data}.json"), load_record(RESULTS / f"{figure.replace('figure', 'points')}-{data}.json")
    rows = images.array("images", "rows")
    lengths = np.sum(record.array("multiclass-2", "squashed")[rows].astype(float) ** 2, axis=2)
    page = reader.open(f"nbs/experiments/{figure}.html")
    assert state(page, f"{figure}-points")["taken"] == lengths.argmax(axis=1).tolist()
    assert np.allclose(page.evaluate("part => capslit.parts[part].shares", f"{figure}-points"), lengths, atol=2e-3)
    sheet = page.evaluate("""async part => {
        const {sprite} = capslit.data[part], image = new Image();
        image.src = `data:image/png;base64,${sprite.png}`;
        await image.decode();
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        const side = image.width / sprite.columns, {data} = context.getImageData(23 % sprite.columns * side, Math.floor(23 / sprite.columns) * side, side, side);
        return [...data].filter((_, k) => k % 4 === 0);
    }""", f"{figure}-points")
    assert np.max(np.abs(np.reshape(sheet, (28, 28)) - images.array("images", "images")[23].astype(int))) <= 16


def test_points_are_chosen_by_class_and_by_arrow_keys(reader):
    page = reader.open("nbs/experiments/figure2.html")
    confusion, labels = (load_record(RESULTS / "figure2-mnist.json").array("multiclass-2", name) for name in ("confusion", "labels"))
    part = page.locator("#live-figure2-points")
    part.locator("select").nth(1).select_option("4")
    part.locator("select").nth(2).select_option("9")
    shown = state(page, "figure2-points")
    kept = labels[load_record(RESULTS / "points2-mnist.json").array("images", "rows")]
    assert shown["shown"] and all(kept[k] == 4 and shown["taken"][k] == 9 for k in shown["shown"])
    assert part.locator(".capslit-words").inner_text().startswith(f"{confusion[4, 9]} of the 10000 test images")
    first = shown["chosen"]
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    assert len(shown["shown"]) > 1 and state(page, "figure2-points")["chosen"] not in (first, None)


# Curves

def test_curves_are_the_record_s(reader):
    page = reader.open("nbs/experiments/figure5.html")
    panels = page.evaluate("() => capslit.data['figure5-curves'].panels")
    for panel, (data, which) in zip(panels, ((data, which) for data in ("mnist", "fashion") for which in ("test", "validation", "training")), strict=True):
        record = load_record(RESULTS / f"figure5-{data}.json")
        for series in panel["series"]:
            assert [100 * record.metrics(f"{series['name']}-{v['x']}")[f"{which}_error"] for v in series["values"]] == pytest.approx([v["y"] for v in series["values"]], abs=1e-4)
    labels, predicted = (load_record(RESULTS / "figure5-mnist.json").array("ovr-8", name) for name in ("labels", "predicted"))
    true, taken, counts = panels[0]["series"][1]["values"][3]["pairs"]
    for a, b, count in zip(true[1:], taken[1:], counts[1:]):
        assert count == np.sum((labels == int(a)) & (predicted == int(b))) > 0


def test_curves_of_the_updates_are_the_record_s(reader):
    page = reader.open("nbs/experiments/updates.html")
    panels = page.evaluate("() => capslit.data['updates-curves'].panels")
    for panel, (data, quantity) in zip(panels, [(data, quantity) for data in ("mnist", "fashion") for quantity in ("training_error", "log_loss")], strict=True):
        record = load_record(RESULTS / f"figure6-{data}.json")
        for series in panel["series"]:
            expected = 100 * record.array(series["name"], quantity)[[point["x"] for point in series["values"]]]
            assert len(expected) > 20 and np.allclose([point["y"] for point in series["values"]], expected, atol=6e-4)
    assert state(page, "updates-curves")["at"] == [0, 0]


def test_curves_are_read_by_arrow_keys_and_hidden_by_boxes(reader):
    page = reader.open("nbs/experiments/figure5.html")
    part, record = page.locator("#live-figure5-curves"), load_record(RESULTS / "figure5-mnist.json")
    part.locator("svg[role=application]").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    now = state(page, "figure5-curves")
    assert now["at"] == [1, 2] and f"{100 * record.metrics('ovr-4')['test_error']:.2f} %" in now["words"]
    part.locator("input[type=checkbox]").nth(1).uncheck()
    now = state(page, "figure5-curves")
    assert now["off"] == [1] and now["at"] == [0, 2] and now["words"].startswith("multiclass")


def test_a_curve_is_read_by_pointing(reader):
    page = reader.open("nbs/experiments/figure5.html")
    svg = page.locator("#live-figure5-curves svg[role=application]")
    svg.scroll_into_view_if_needed()
    box, view = svg.bounding_box(), svg.evaluate("svg => svg.viewBox.baseVal.width")
    place = svg.evaluate("svg => svg.querySelectorAll('g')[2].children[16].getAttribute('transform')")  # the fifth point of the third curve
    x, y = (float(value) for value in place.removeprefix("translate(").removesuffix(")").split())
    page.mouse.move(box["x"] + x * box["width"] / view, box["y"] + y * box["width"] / view)
    assert state(page, "figure5-curves")["at"] == [2, 4]


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
    assert [errors[name][0] for name in state(page, "contest-tables")["shown"]] == sorted((ours for ours, _ in errors.values()), reverse=True)
    part.locator("svg[role=application]").focus()
    page.keyboard.press("ArrowRight")
    chosen = state(page, "contest-tables")["chosen"]
    assert errors[chosen][1] == min(theirs for _, theirs in errors.values()) and state(page, "contest-tables")["words"].startswith(f"{chosen}: ")
    part.locator("input[type=search]").fill("penguin")
    assert sorted(state(page, "contest-tables")["shown"]) == sorted(name for name in errors if "penguin" in name)
