"""The live parts of the built book: they start, agree with the package, obey keyboard and theme,
and leave still figures where scripts do not run.
"""

import re

import numpy as np
import pytest
from built_book import BOOK, CHAPTERS, VIEWS, html, needs_built_book, state
from conftest import together

pytestmark = needs_built_book

# those that start when they are opened are tried in test_book_records
MOUNT = (
    r'(?<!</summary>)(?<!</summary>\n)<div class="capslit-live" id="live-[\w-]+"'
    r' data-live="([\w-]+)"'
)
PARTS = {part: page for page in CHAPTERS for part in re.findall(MOUNT, html(page))}
LIVELY = sorted(set(PARTS.values()))
INDEX, PLOTTING = "nbs/index.html", "nbs/plotting.html"
DRAWING, EXACT = "nbs/experiments/drawing.html", "nbs/course/exact_inference.html"
CALIBRATED = "nbs/course/probabilities.html"
POSES, SPECIAL = "nbs/capsules/definition.html", "nbs/capsules/special.html"


def test_there_are_live_parts():
    assert {"sine"} <= PARTS.keys()


@pytest.mark.parametrize("part", PARTS)
def test_part_runs_without_complaint(visits, part):
    page = visits("desk-light", PARTS[part])
    assert not page["errors"] and not page["requests"]
    (found,) = [found for found in page["live"] if found["part"] == part]
    assert found["started"] and found["visible"] and not found["still"]
    assert not found["unnamed"]


@pytest.mark.parametrize("name", LIVELY)
def test_parts_run_from_a_file_and_without_scripts_their_still_figures_stay(readers, name):
    parts = [part for part in PARTS if PARTS[part] == name]
    reader = readers(site=f"{BOOK.as_uri()}/")
    reader.page.goto(reader.site + name, wait_until="load")
    assert not [error for error in reader.errors if error.startswith("exception")]
    assert reader.page.evaluate("parts => parts.every(part => part in capslit.parts)", parts)
    still = readers(java_script_enabled=False)
    still.page.goto(still.site + name)
    for part in parts:
        mount = still.page.locator(f"#live-{part}")
        assert mount.locator("figcaption").is_visible()
        assert mount.locator("img:visible, .capslit-live-only:visible").count() == 1
        assert not mount.locator(".capslit-live-stage").count()


@together("part", PARTS)
def test_files_of_a_part_are_light(part):
    for name in (f"{part}.js", f"{part}.data.js"):
        assert (BOOK / "_static" / "live" / name).stat().st_size < 301_000


@together("view, name", [(view, name) for view in VIEWS for name in LIVELY])
def test_stage_stays_within_the_column(visits, view, name):
    assert not [wide for part in visits(view, name)["live"] for wide in part["wide"]]


def test_pages_without_live_parts_load_none_of_the_files():
    without = [name for name in CHAPTERS if 'class="capslit-live"' not in html(name)]
    assert without and not [name for name in without if "live.js" in html(name)]


def test_code_is_folded_beside_the_mathematics(reader):
    code = reader.open(PLOTTING).locator("details.capslit-live-code")
    assert code.count() == 2 and not code.first.locator("pre").is_visible()
    code.first.locator("summary").click()
    assert "Math.sin" in code.first.locator("pre").inner_text()


# Handles, also of parts that start when they are opened

ANY = r'class="capslit-live" id="live-[\w-]+" data-live="([\w-]+)"'
ALL = {part: page for page in CHAPTERS for part in re.findall(ANY, html(page))}
WITH_HANDLES = [
    part for part in ALL if re.search(r"\.(handle|drag)\(", html(f"_static/live/{part}.js"))
]
MOUSE, FINGER = 12, 20  # pixels around a handle from which it is taken

# Where the handles of a part are, and the frames of their plots, in the window
HANDLES = """part => [...document.querySelectorAll(`#live-${part} .handle`)].map(handle => {
    const {left, right, top, bottom} = handle.getBoundingClientRect(),
        frame = handle.closest("svg").querySelector(".axis").getBoundingClientRect();
    return [[(left + right) / 2, (top + bottom) / 2], [frame.left, frame.top],
        [frame.right, frame.bottom]];
})"""
SCROLLED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
    () => done(scrollY))))"""


def stroke(page, points, touch=None):
    """Press at the first point, move through the others, and let go: by mouse, or by a finger
    through a session of the browser's protocol.
    """
    first, *others = np.asarray(points).tolist()
    if touch is None:
        page.mouse.move(*first)
        page.mouse.down()
        for point in others:
            page.mouse.move(*point)
        return page.mouse.up()
    steps = [("touchStart", [first]), *(("touchMove", [at]) for at in others), ("touchEnd", [])]
    for kind, at in steps:
        fingers = [{"x": x, "y": y} for x, y in at]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})


def within_reach(places, k, reach):
    "A point `reach` away from handle k and farther from all others, or its middle."
    turns = np.exp(0.25j * np.pi * np.arange(8))
    around = places[k] + reach * np.column_stack([turns.real, turns.imag])
    nearest = np.linalg.norm(around[:, None] - places, axis=2).argmin(axis=1)
    return next((point for point, one in zip(around, nearest) if one == k), places[k])


def test_there_are_handles():
    assert {"gaussian-steps", "poses", "routing-votes", "rules-templates"} <= set(WITH_HANDLES)


@pytest.mark.parametrize("part", WITH_HANDLES)
def test_handles_follow_mouse_and_finger(readers, part):
    reader = readers(390, has_touch=True)
    page = reader.open(ALL[part])
    page.locator(f"#live-{part}").evaluate("e => e.closest('details')?.setAttribute('open', '')")
    page.wait_for_function("part => part in capslit.parts", arg=part)
    handles, touch = page.locator(f"#live-{part} .handle"), page.context.new_cdp_session(page)
    for finger, reach, height in ((None, MOUSE, -0.2), (touch, FINGER, 0.7)):
        for k in range(handles.count()):
            handles.nth(k).evaluate(
                "e => e.closest('svg').scrollIntoView({block: 'center', behavior: 'instant'})"
            )
            before = page.evaluate(SCROLLED)
            places, low, high = np.array(page.evaluate(HANDLES, part)).swapaxes(0, 1)
            low, high = low[k], high[k]
            end = low + (high - low) * [(k % 8 + 1) / 9, height]  # by mouse above the frame
            stroke(page, np.linspace(within_reach(places, k, reach - 1), end, 8), finger)
            assert page.evaluate(SCROLLED) == before, (k, reach)
            at = page.evaluate(HANDLES, part)[k][0]
            np.testing.assert_allclose(at, np.clip(end, low, high), atol=1, err_msg=(k, reach))
    places, low, high = np.array(page.evaluate(HANDLES, part)).swapaxes(0, 1)
    grid = np.stack(np.meshgrid(*np.linspace(low[-1], high[-1], 9).T), axis=-1).reshape(-1, 2)
    far = np.linalg.norm(grid[:, None] - places, axis=2).min(axis=1)
    empty = grid[far.argmax()]
    assert far.max() > FINGER and page.evaluate(SCROLLED) == before
    stroke(page, np.linspace(empty, empty - [0, 120], 8), touch)
    page.wait_for_function("before => scrollY > before", arg=before)
    assert not reader.errors


# The parts, one by one: what a script computes is what the package computes


def test_sine_agrees_and_obeys_the_keyboard(reader):
    page = reader.open(PLOTTING)
    found, wanted = page.evaluate("""() => {
        const {x, phase, values} = capslit.data.sine.check;
        return [x.map((x, i) => capslit.parts.sine.wave(x, phase[i])), values];
    }""")
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    slider, line = page.locator("#live-sine input"), page.locator("#live-sine path.line")
    before = line.get_attribute("d")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert line.get_attribute("d") != before
    assert page.locator("#live-sine output").inner_text() == "1.01"


def drawn(page):
    return page.evaluate("() => Array.from(capslit.parts.draw.image()).reduce((a, b) => a + b, 0)")


@pytest.fixture
def pad(readers):
    page = readers().open(INDEX)
    page.locator("#live-draw button").first.click()  # stops the example that is being drawn
    return page


def test_pad_agrees_with_the_package(pad):
    found, drawings, check = pad.evaluate("""() => {
        const {probabilities, render, examples} = capslit.parts.draw, n = 784,
            data = capslit.data.draw;
        const images = data.labels.map((_, i) => Array.from(examples.subarray(i * n, (i + 1) * n),
            z => z / 255));
        return [images.map(probabilities), data.strokes.map(strokes =>
            probabilities(render(strokes))), data.check];
    }""")
    calibrated = pad.evaluate("""() => {
        const {calibrated, render} = capslit.parts.draw;
        return capslit.data.draw.strokes.map(strokes => calibrated(render(strokes)));
    }""")
    np.testing.assert_allclose(calibrated, check["calibrated"], atol=1e-6)
    assert np.shape(check["probabilities"]) == (20, 10)
    np.testing.assert_allclose(found, check["probabilities"], atol=1e-6)
    np.testing.assert_allclose(drawings, check["drawn"], atol=1e-6)
    assert np.argmax(drawings, axis=1).tolist() == list(range(10))


def pull(page, *points):
    """Draw one stroke on the pad; the points are shares of its width and height."""
    box = page.locator("#live-draw canvas").first.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()


ONE = (0.5, 0.2), (0.5, 0.8)
UNCLEAR = (0.35, 0.8), (0.35, 0.35), (0.65, 0.65), (0.2, 0.2), (0.35, 0.8)
ANSWER = "#live-draw .capslit-draw-answer"


def test_pad_draws_by_mouse_and_clears(pad):
    assert drawn(pad) == 0
    pull(pad, *ONE)
    assert 30 < drawn(pad) < 80
    assert pad.locator("#live-draw [data-best] b").inner_text() == "1"
    pad.locator("#live-draw button").first.click()
    assert drawn(pad) == 0 and not pad.locator("#live-draw [data-best]").count()
    assert pad.locator(ANSWER).inner_text() == "The pad is empty."


def test_pad_is_not_always_sure(pad):
    pull(pad, (0.5, 0.5), (0.52, 0.52))
    assert pad.locator(ANSWER).inner_text() == "Too little ink."
    pad.locator("#live-draw button").first.click()
    pull(pad, *UNCLEAR)
    assert re.match(r"Not sure\. Perhaps \d, [1-4]?\d\s%\.", pad.locator(ANSWER).inner_text())
    assert not pad.locator("#live-draw [data-best]").count()


def test_first_stroke_replaces_the_example_and_a_button_returns_it(readers):
    page = readers(reduced_motion="reduce").open(INDEX)
    example = drawn(page)
    pull(page, *ONE)
    assert 30 < drawn(page) < 80 < example
    page.get_by_role("button", name="Example").click()
    assert drawn(page) == example
    assert page.locator("#live-draw [data-best] b").inner_text() == "3"


def test_pad_obeys_the_keyboard_and_speaks(pad):
    pad.locator("#live-draw select").focus()
    pad.keyboard.press("7")  # the first option that begins with it
    pad.wait_for_function(
        "() => document.querySelector('#live-draw [data-best] b')?.textContent === '7'",
    )
    pad.wait_for_function(
        "() => /^Most likely 7, (> )?\\d+\\s%/.test(document.querySelector('#live-draw"
        " [role=status]').textContent)",
    )


def test_pad_draws_at_once_for_readers_who_want_no_motion(readers):
    page = readers(reduced_motion="reduce").open(INDEX)
    page.evaluate("() => { capslit.parts.draw.choose('stroke-8'); }")
    assert drawn(page) > 80


def test_pad_draws_by_finger(readers):
    page = readers(390, has_touch=True).open(INDEX)
    page.locator("#live-draw button").first.tap()
    page.locator("#live-draw canvas").first.tap()
    assert 3 < drawn(page) < 600


def seen(page, part):
    """Bring a part into view that loads the pad's data then; wait for its first result."""
    page.locator(f"#live-{part}").scroll_into_view_if_needed()
    page.wait_for_function(f"() => capslit.parts['{part}'].state()?.{RESULT[part]}?.length")
    return page.locator(f"#live-{part}")


RESULT = {"drawn-poses": "own", "drawn-label": "ratios", "drawn-sharpness": "own"}
FOLLOWERS = {"drawn-poses": DRAWING, "drawn-label": EXACT, "drawn-sharpness": CALIBRATED}


@pytest.mark.parametrize("part, name", FOLLOWERS.items())
def test_example_drawings_agree_with_the_package(reader, part, name):
    page = reader.open(name)
    mount, check = seen(page, part), page.evaluate(f"() => capslit.data['{part}'].check")
    for k in range(10):
        mount.get_by_label("drawing", exact=True).select_option(str(k))
        if part == "drawn-label":
            mount.get_by_label("label", exact=True).select_option(str(check["labels"][k]))
        found = state(page, part)
        for key in found.keys() & check.keys():
            np.testing.assert_allclose(found[key], check[key][k], atol=1e-6)
        assert len(found.keys() & check.keys()) == {"drawn-poses": 3}.get(part, 2 - ("s" in found))
        if part == "drawn-sharpness":
            np.testing.assert_allclose(found["now"], check["sharpened"][3][k], atol=1e-6)
            powers = "([own, s]) => s.map(s => capslit.parts['drawn-sharpness'].sharpened(own, s))"
            powers = page.evaluate(powers, [found["own"], check["exponents"]])
            np.testing.assert_allclose(powers, np.array(check["sharpened"])[:, k], atol=1e-6)


def test_a_drawing_is_carried_through_the_course(readers):
    reader = readers(reduced_motion="reduce")
    page = reader.open(INDEX)
    pull(page, *ONE)
    pose = "() => capslit.parts.draw.poses(capslit.parts.draw.image()).map(h => Math.hypot(...h))"
    lengths = page.evaluate(pose)
    for part, name in FOLLOWERS.items():
        page = reader.open(name)
        mount = seen(page, part)
        assert mount.get_by_label("drawing", exact=True).input_value() == "mine"
        found = state(page, part)
        kept = found.get("lengths") or found.get("before")
        if kept:
            np.testing.assert_allclose(kept, lengths, atol=1e-6)
        assert "1" in mount.locator(".capslit-words").inner_text()
    mount.get_by_role("link", name="Draw again").click()
    page.wait_for_function("() => capslit.parts?.draw?.image().some(z => z > 0)")
    np.testing.assert_allclose(page.evaluate(pose), lengths, atol=1e-6)
    page.locator("#live-draw button").first.click()
    seen(reader.open(EXACT), "drawn-label")
    assert page.get_by_label("drawing", exact=True).input_value() == "3"


def test_without_storage_the_pad_works_and_the_course_has_an_example(readers):
    reader = readers(reduced_motion="reduce")
    reader.context.add_init_script(
        "Object.defineProperty(Storage.prototype, 'getItem', {value: key => { throw key; }});"
        "Object.defineProperty(Storage.prototype, 'setItem', {value: key => { throw key; }});"
    )
    page = reader.open(INDEX)
    page.locator("#live-draw canvas").first.wait_for()
    pull(page, *ONE)
    assert page.locator("#live-draw [data-best] b").inner_text() == "1"
    page = reader.open(DRAWING)
    mount = seen(page, "drawn-poses")
    assert mount.get_by_label("drawing", exact=True).input_value() == "3"


def test_exponent_obeys_the_keyboard(reader):
    page = reader.open(CALIBRATED)
    slider = seen(page, "drawn-sharpness").get_by_role("slider")
    learned = state(page, "drawn-sharpness")
    slider.focus()
    page.keyboard.press("Home")
    np.testing.assert_allclose(state(page, "drawn-sharpness")["now"], 0.1)
    page.get_by_role("button", name="Learned").click()
    assert state(page, "drawn-sharpness") == learned


def test_posterior_agrees_with_the_package_and_with_its_grid(reader):
    page = reader.open(EXACT)
    found, check = page.evaluate("""() => {
        const {exact, onGrid} = capslit.parts.posterior, {check} = capslit.data.posterior;
        return [check.map(({mu, label}) => [exact(mu, label), onGrid(mu, label)]), check];
    }""")
    assert len(check) == 8
    for case, answers in zip(check, found):
        for answer in answers:
            np.testing.assert_allclose(answer["P"], case["P"], atol=1e-6)
            np.testing.assert_allclose(answer["mean"], case["mean"], atol=1e-6)


def test_posterior_obeys_keyboard_and_mouse(reader):
    page = reader.open(EXACT)
    mount, handle = page.locator("#live-posterior"), page.locator("#live-posterior .handle")
    before = state(page, "posterior")
    handle.focus()
    page.keyboard.press("ArrowLeft")
    moved = state(page, "posterior")
    assert moved["mu"][0] < before["mu"][0] and moved["mean"] != before["mean"]
    mount.locator("select").select_option("2")
    unlabelled = state(page, "posterior")
    assert unlabelled["mean"] == unlabelled["mu"] == moved["mu"]
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 40, steps=4)
    page.mouse.up()
    assert state(page, "posterior")["mu"][1] > moved["mu"][1] + 0.5
    assert "less than 0.000001" in mount.inner_text()


@together(
    "selector",
    ["#live-draw canvas >> nth=0", "text=pip install . >> nth=0", ".capslit-ways"],
)
def test_first_screen_holds_picture_install_and_ways(readers, selector):
    box = readers().open(INDEX).locator(selector).bounding_box()
    assert box["y"] + box["height"] <= 900


AGREEMENTS = {
    "poses": """({probabilities, ratios, doubt}, {poses, sigma, y}) => ({
        P: probabilities(poses, sigma), ratios: ratios(poses, sigma, y),
        doubt: doubt(poses, sigma)})""",
    "two-digits": "({check}, known) => check(known)",
}


@pytest.mark.parametrize("part, cases", [("poses", 21), ("two-digits", 6)])
def test_what_is_dragged_agrees_with_the_package_and_obeys_the_keyboard(reader, part, cases):
    page = reader.open(PARTS[part])
    found, check = page.evaluate(
        f"""part => {{
        const answer = {AGREEMENTS[part]}, {{check}} = capslit.data[part];
        return [check.map(known => answer(capslit.parts[part], known)), check];
    }}""",
        part,
    )
    assert len(check) == cases
    for case, answer in zip(check, found):
        for name in answer:
            np.testing.assert_allclose(answer[name], case[name], atol=1e-6)
    handle = page.locator(f"#live-{part} .handle").nth(1)
    words = page.locator(f"#live-{part} .capslit-words")
    before, spoken = words.inner_text(), handle.get_attribute("aria-valuetext")
    handle.focus()
    page.keyboard.press("ArrowUp")
    assert words.inner_text() != before and handle.get_attribute("aria-valuetext") != spoken


def test_poses_obey_keyboard_and_mouse(reader):
    page = reader.open(POSES)
    poses = lambda: np.array(page.evaluate("() => capslit.parts.poses.poses"))
    handle = page.locator("#live-poses .handle").nth(1)
    before, spoken = poses(), handle.get_attribute("aria-valuetext")
    handle.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowLeft")
    np.testing.assert_allclose(poses() - before, [[0, 0], [-0.5, 0.1], [0, 0]], atol=1e-9)
    assert handle.get_attribute("aria-valuetext") != spoken
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    right, up = (poses() - before)[1]
    assert right > 0 and abs(up - 0.1) < 0.05


def sampled(page):
    """The estimates of 1000 samples, which are drawn at once."""
    for _ in range(5):
        page.locator("#live-poses button", has_text="Draw 200").click()
    said = page.locator("#live-poses .capslit-words").inner_text()
    found = re.search(r"1000 samples estimate ([\d., ]+)\.", said)[1]
    return [float(number) for number in found.split(", ")]


def test_capsules_of_more_dimensions_are_less_certain(readers):
    """The slider for d, by keyboard: what is shown is what the package computes, and samples in all
    dimensions agree with it.
    """
    from capslit.capsules.inference import class_probabilities, posterior_ratios

    page = readers(reduced_motion="reduce").open(POSES)
    poses = np.array(page.evaluate("() => capslit.parts.poses.poses"))
    squared = (poses**2).sum(axis=1)[None] / 0.7**2
    slider = page.get_by_label("d, dimensions")
    slider.focus()
    for dim in (2, 4, 8, 16):
        assert state(page, "poses")["dim"] == dim
        assert slider.get_attribute("aria-valuetext") == str(dim)
        texts = page.locator("#live-poses svg").nth(1).locator("text").all_text_contents()
        shown = [float(text) for text in texts if re.fullmatch(r"0\.\d{3}", text)]
        np.testing.assert_allclose(shown, class_probabilities(squared, dim)[0], atol=6e-4)
        ratios = ", ".join(f"{ratio:.3f}" for ratio in posterior_ratios(squared, [0], dim)[0])
        said = page.locator("#live-poses .capslit-words").inner_text()
        assert f"multiplied by {ratios} (rings)" in said
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    np.testing.assert_allclose(sampled(page), class_probabilities(squared, 16)[0], atol=0.015)
    assert state(page, "poses")["noise"] == 1000
    page.locator("#live-poses button", has_text="Clear").click()
    assert "samples" not in page.locator("#live-poses .capslit-words").inner_text()


def test_interpolating_functions_agree_and_the_recursion_fails(reader):
    page = reader.open(SPECIAL)
    found, upward, check = page.evaluate("""() => {
        const {fraction, upward} = capslit.parts.interpolating,
            check = capslit.data.interpolating.check;
        return [check.s.map((s, i) => fraction(s, check.beta[i])), check.upward.s.map((s, i) =>
            upward(s, check.upward.beta[i])), check];
    }""")
    np.testing.assert_allclose(found, check["values"], atol=1e-6, rtol=1e-9)
    beta, s, values = (np.array(check["upward"][name]) for name in ("beta", "s", "values"))
    np.testing.assert_allclose(np.array(upward)[beta >= s], values[beta >= s], atol=1e-6)
    for dim, said in ((120, "no digit is right"), (20, "about 1[34] digits")):
        page.evaluate(
            "dim => { const {input} = capslit.parts.interpolating.dim; input.value = dim;"
            " input.dispatchEvent(new Event('input')); }",
            dim,
        )
        words = page.locator("#live-interpolating .capslit-words").last.inner_text()
        assert re.search(said, words)
    page.locator("#live-interpolating input").last.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#live-interpolating output").last.inner_text() == "21 (s = 10.5)"
