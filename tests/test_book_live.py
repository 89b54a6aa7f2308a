"""The live parts of the built book: they start, agree with the package, obey keyboard and theme, and leave still figures where scripts do not run."""
import re

import numpy as np
import pytest
from built_book import BOOK, CHAPTERS, Reader, needs_built_book

pytestmark = needs_built_book


def parts_of(name):
    """The live parts of a page, in order."""
    return re.findall(r'class="capslit-live" id="live-[\w-]+" data-live="([\w-]+)"', (BOOK / name).read_text(encoding="utf-8"))


PARTS = {part: page for page in CHAPTERS for part in parts_of(page)}


@pytest.fixture(scope="module")
def reader(browser, site):
    reader = Reader(browser, site, 1280, "light")
    yield reader
    reader.context.close()


def test_there_are_live_parts():
    assert {"sine"} <= PARTS.keys()


@pytest.mark.parametrize("part", PARTS)
def test_part_runs_without_complaint(reader, part):
    reader.errors.clear()
    reader.requests.clear()
    page = reader.open(PARTS[part])
    assert not reader.errors and not reader.requests
    assert page.evaluate("name => name in capslit.parts", part)
    assert page.locator(f"#live-{part} .capslit-live-stage").is_visible()
    assert not page.locator(f"#live-{part} img.only-light:not(.capslit-live-stage img)").count()


@pytest.mark.parametrize("part", PARTS)
def test_part_runs_from_a_file(browser, part):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((BOOK / PARTS[part]).as_uri(), wait_until="load")
    assert not errors and page.evaluate("name => name in capslit.parts", part)
    page.close()


@pytest.mark.parametrize("part", PARTS)
def test_still_figure_stays_without_scripts(browser, site, part):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + PARTS[part])
    mount = page.locator(f"#live-{part}")
    assert mount.locator("figcaption").is_visible()
    assert mount.locator("img:visible, .capslit-live-only:visible").count() == 1
    assert not mount.locator(".capslit-live-stage").count()
    context.close()


@pytest.mark.parametrize("part", PARTS)
def test_files_of_a_part_are_light(part):
    for name in (f"{part}.js", f"{part}.data.js"):
        assert (BOOK / "_static" / "live" / name).stat().st_size < 301_000


@pytest.mark.parametrize("part", PARTS)
def test_controls_have_names(reader, part):
    page = reader.open(PARTS[part])
    unnamed = page.evaluate("""name => [...document.querySelectorAll(`#live-${name} :is(input, select, button, [tabindex], svg.capslit-plot, canvas)`)]
        .filter(e => !(e.labels && e.labels.length && e.labels[0].textContent.trim()) && !e.getAttribute('aria-label') && !e.textContent.trim()
                     && !e.closest('[aria-hidden]')).map(e => e.outerHTML.slice(0, 120))""", part)
    assert not unnamed


@pytest.mark.parametrize("width", [1280, 390])
def test_stage_stays_within_the_column(browser, site, width):
    reader = Reader(browser, site, width, "dark")
    for page_name in sorted(set(PARTS.values())):
        page = reader.open(page_name)
        wide = page.evaluate("""() => [...document.querySelectorAll('.capslit-live-stage')].flatMap(stage => [...stage.querySelectorAll('*')]
            .filter(e => e.getBoundingClientRect().right > stage.getBoundingClientRect().right + 1 && !e.closest('svg *, .visually-hidden'))
            .map(e => e.outerHTML.slice(0, 100)))""")
        assert not wide, (page_name, wide)
    reader.context.close()


def test_pages_without_live_parts_load_none_of_the_files():
    without = [name for name in CHAPTERS if name not in PARTS.values()]
    assert all("live.js" not in (BOOK / name).read_text(encoding="utf-8") for name in without)


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
    assert line.get_attribute("d") != before and page.locator("#live-sine output").inner_text() == "1.01"
