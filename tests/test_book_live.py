"""The live parts of the built book: they start, agree with the package, obey keyboard and theme,
and leave still figures where scripts do not run.
"""

import re

import numpy as np
import pytest
from built_book import BOOK, CHAPTERS, VIEWS, Reader, needs_built_book
from conftest import together

pytestmark = needs_built_book


def parts_of(name):
    """The live parts of a page, in order; those that start when they are opened are tried in
    test_book_records.
    """
    return re.findall(
        r'(?<!</summary>)(?<!</summary>\n)<div class="capslit-live" id="live-[\w-]+"'
        r' data-live="([\w-]+)"',
        (BOOK / name).read_text(encoding="utf-8"),
    )


PARTS = {part: page for page in CHAPTERS for part in parts_of(page)}


def test_there_are_live_parts():
    assert {"sine"} <= PARTS.keys()


@pytest.mark.parametrize("part", PARTS)
def test_part_runs_without_complaint(visits, part):
    page = visits("desk-light", PARTS[part])
    assert not page["errors"] and not page["requests"]
    (found,) = [found for found in page["live"] if found["part"] == part]
    assert found["started"] and found["visible"] and not found["still"]
    assert not found["unnamed"]


@pytest.mark.parametrize("name", sorted(set(PARTS.values())))
def test_parts_run_from_a_file_and_without_scripts_their_still_figures_stay(browser, site, name):
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((BOOK / name).as_uri(), wait_until="load")
    assert not errors and page.evaluate(
        "parts => parts.every(part => part in capslit.parts)", parts_of(name)
    )
    page.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + name)
    for part in parts_of(name):
        mount = page.locator(f"#live-{part}")
        assert mount.locator("figcaption").is_visible()
        assert mount.locator("img:visible, .capslit-live-only:visible").count() == 1
        assert not mount.locator(".capslit-live-stage").count()
    context.close()


@together("part", PARTS)
def test_files_of_a_part_are_light(part):
    for name in (f"{part}.js", f"{part}.data.js"):
        assert (BOOK / "_static" / "live" / name).stat().st_size < 301_000


@together("view, name", [(view, name) for view in VIEWS for name in sorted(set(PARTS.values()))])
def test_stage_stays_within_the_column(visits, view, name):
    assert not [wide for part in visits(view, name)["live"] for wide in part["wide"]]


def test_pages_without_live_parts_load_none_of_the_files():
    without = [
        name
        for name in CHAPTERS
        if 'class="capslit-live"' not in (BOOK / name).read_text(encoding="utf-8")
    ]
    assert without and all(
        "live.js" not in (BOOK / name).read_text(encoding="utf-8") for name in without
    )


def test_code_is_folded_beside_the_mathematics(reader):
    page = reader.open("nbs/plotting.html")
    code = page.locator("details.capslit-live-code")
    assert code.count() == 2 and not code.first.locator("pre").is_visible()
    code.first.locator("summary").click()
    assert "Math.sin" in code.first.locator("pre").inner_text()


# The parts, one by one: what a script computes is what the package computes


def test_sine_agrees_and_obeys_the_keyboard(reader):
    page = reader.open("nbs/plotting.html")
    found, wanted = page.evaluate("""() => {
        const {x, phase, values} = capslit.data.sine.check;
        return [x.map((x, i) => capslit.parts.sine.wave(x, phase[i])), values];
    }""")
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    slider, line = page.locator("#live-sine input"), page.locator("#live-sine path.line")
    before = line.get_attribute("d")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert (
        line.get_attribute("d") != before
        and page.locator("#live-sine output").inner_text() == "1.01"
    )


def drawn(page):
    return page.evaluate("() => Array.from(capslit.parts.draw.image()).reduce((a, b) => a + b, 0)")


@pytest.fixture
def pad(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("nbs/index.html")
    page.locator("#live-draw button").click()  # stops the example that is being drawn
    yield page
    reader.context.close()


def test_pad_agrees_with_the_package(pad):
    found = pad.evaluate("""() => {
        const {probabilities, render, examples} = capslit.parts.draw, n = 784,
            data = capslit.data.draw;
        const images = data.labels.map((_, i) => Array.from(examples.subarray(i * n, (i + 1) * n),
            z => z / 255));
        return {probabilities: images.map(probabilities), drawn: data.strokes.map(strokes =>
            probabilities(render(strokes))), check: data.check};
    }""")
    check = found.pop("check")
    assert np.shape(check["probabilities"]) == (20, 10)
    for name, values in found.items():
        np.testing.assert_allclose(values, check[name], atol=1e-6)
    assert np.argmax(found["drawn"], axis=1).tolist() == list(range(10))


def test_pad_draws_by_mouse_and_clears(pad):
    assert drawn(pad) == 0
    box = pad.locator("#live-draw canvas").first.bounding_box()
    at = lambda x, y: (box["x"] + x * box["width"], box["y"] + y * box["height"])
    pad.mouse.move(*at(0.5, 0.2))
    pad.mouse.down()
    pad.mouse.move(*at(0.5, 0.8), steps=8)
    pad.mouse.up()
    assert 30 < drawn(pad) < 80
    assert pad.locator("#live-draw [data-best] b").inner_text() == "1"
    pad.locator("#live-draw button").click()
    assert drawn(pad) == 0 and not pad.locator("#live-draw [data-best]").count()


def test_pad_obeys_the_keyboard_and_speaks(pad):
    select = pad.locator("#live-draw select")
    select.focus()
    pad.keyboard.press("7")  # the first option that begins with it
    pad.wait_for_function(
        "() => document.querySelector('#live-draw [data-best] b')?.textContent === '7'",
    )
    pad.wait_for_function(
        "() => /^Most likely 7, probability \\d+ %/.test(document.querySelector('#live-draw"
        " [role=status]').textContent)",
    )


def test_pad_draws_at_once_for_readers_who_want_no_motion(browser, site):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(site + "nbs/index.html", wait_until="load")
    calm = page.evaluate(
        "() => { capslit.parts.draw.choose('stroke-8'); return"
        " Array.from(capslit.parts.draw.image()).reduce((a, b) => a + b, 0); }"
    )
    assert calm > 80
    context.close()


def test_pad_draws_by_finger(browser, site):
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(site + "nbs/index.html", wait_until="load")
    page.locator("#live-draw button").tap()
    page.locator("#live-draw canvas").first.tap()
    assert 3 < drawn(page) < 600
    context.close()


def test_first_screen_holds_picture_install_and_ways(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("nbs/index.html")
    for selector in (
        "#live-draw canvas >> nth=0",
        "text=pip install capslit >> nth=0",
        ".capslit-ways",
    ):
        box = page.locator(selector).bounding_box()
        assert box["y"] + box["height"] <= 900, selector
    reader.context.close()


POSES, SPECIAL = "nbs/capsules/definition.html", "nbs/capsules/special.html"


def test_dragged_poses_agree_with_the_package(reader):
    page = reader.open(POSES)
    found = page.evaluate("""() => capslit.data.poses.check.map(({poses, sigma, y}) => {
        const {probabilities, ratios, doubt} = capslit.parts.poses;
        return {P: probabilities(poses, sigma), ratios: ratios(poses, sigma, y), doubt: doubt(poses,
            sigma)};
    })""")
    check = page.evaluate("() => capslit.data.poses.check")
    assert len(check) == 21
    for case, answer in zip(check, found):
        for name in ("P", "ratios", "doubt"):
            np.testing.assert_allclose(answer[name], case[name], atol=1e-6)


def test_poses_obey_keyboard_and_mouse(reader):
    page = reader.open(POSES)
    poses = lambda: page.evaluate("() => capslit.parts.poses.poses.map(pose => [...pose])")
    handle = page.locator("#live-poses .handle").nth(1)
    before, spoken = poses(), handle.get_attribute("aria-valuetext")
    handle.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowLeft")
    np.testing.assert_allclose(
        np.subtract(poses(), before), [[0, 0], [-0.5, 0.1], [0, 0]], atol=1e-9
    )
    assert handle.get_attribute("aria-valuetext") != spoken
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 100, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert poses()[1][0] > before[1][0] and abs(poses()[1][1] - before[1][1] - 0.1) < 0.05


def test_capsules_of_more_dimensions_are_less_certain(browser, site):
    """The slider for d, by keyboard: what is shown is what the package computes, and samples in all
    dimensions agree with it.
    """
    from capslit.capsules.inference import class_probabilities, posterior_ratios

    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(site + POSES, wait_until="load")
    shown = lambda: [
        float(text)
        for text in page.locator("#live-poses svg").nth(1).locator("text").all_text_contents()
        if re.fullmatch(r"0\.\d{3}", text)
    ]
    squared = (np.array(page.evaluate("() => capslit.parts.poses.poses")) ** 2).sum(axis=1)[
        None
    ] / 0.7**2
    slider = page.get_by_label("d, dimensions")
    slider.focus()
    for dim in (2, 4, 8, 16):
        assert page.evaluate(
            "() => capslit.parts.poses.state().dim"
        ) == dim and slider.get_attribute("aria-valuetext") == str(dim)
        np.testing.assert_allclose(shown(), class_probabilities(squared, dim)[0], atol=6e-4)
        ratios = ", ".join(f"{ratio:.3f}" for ratio in posterior_ratios(squared, [0], dim)[0])
        assert (
            f"multiplied by {ratios} (rings)"
            in page.locator("#live-poses .capslit-words").inner_text()
        )
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    for _ in range(5):
        page.locator("#live-poses button", has_text="Draw 200").click()
    found = re.search(
        r"1000 samples estimate ([\d., ]+)\.",
        page.locator("#live-poses .capslit-words").inner_text(),
    )[1]
    np.testing.assert_allclose(
        [float(value) for value in found.split(", ")],
        class_probabilities(squared, 16)[0],
        atol=0.015,
    )
    context.close()


def test_samples_estimate_the_probabilities_at_once_without_motion(browser, site):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(site + POSES, wait_until="load")
    for _ in range(5):
        page.locator("#live-poses button", has_text="Draw 200").click()
    assert page.evaluate("() => capslit.parts.poses.state().noise") == 1000
    text = page.locator("#live-poses .capslit-words").inner_text()
    found = [
        float(value)
        for value in re.search(r"1000 samples estimate ([\d., ]+)\.", text)[1].split(", ")
    ]
    exact = page.evaluate("() => capslit.parts.poses.probabilities(capslit.parts.poses.poses, 0.7)")
    np.testing.assert_allclose(found, exact, atol=0.05)
    page.locator("#live-poses button", has_text="Clear").click()
    assert "samples" not in page.locator("#live-poses .capslit-words").inner_text()
    context.close()


def test_interpolating_functions_agree_and_the_recursion_fails(reader):
    page = reader.open(SPECIAL)
    found, upward, check = page.evaluate("""() => {
        const {fraction, upward} = capslit.parts.interpolating,
            check = capslit.data.interpolating.check;
        return [check.s.map((s, i) => fraction(s, check.beta[i])), check.upward.s.map((s, i) =>
            upward(s, check.upward.beta[i])), check];
    }""")
    np.testing.assert_allclose(found, check["values"], atol=1e-6, rtol=1e-9)
    trusted = np.array(check["upward"]["beta"]) >= check["upward"]["s"]
    np.testing.assert_allclose(
        np.array(upward)[trusted], np.array(check["upward"]["values"])[trusted], atol=1e-6
    )
    page.evaluate(
        "() => { const {dim} = capslit.parts.interpolating; dim.input.value = 120;"
        " dim.input.dispatchEvent(new Event('input')); }"
    )
    assert (
        "no digit is right" in page.locator("#live-interpolating .capslit-words").last.inner_text()
    )
    page.evaluate(
        "() => { const {dim} = capslit.parts.interpolating; dim.input.value = 20;"
        " dim.input.dispatchEvent(new Event('input')); }"
    )
    assert re.search(
        "about 1[34] digits", page.locator("#live-interpolating .capslit-words").last.inner_text()
    )
    page.locator("#live-interpolating input").last.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#live-interpolating output").last.inner_text() == "21 (s = 10.5)"
