"""Figures and weight of the built book: what a browser loads before a reader sees a page, and what
it waits with.
"""

import re

import pytest
from built_book import BOOK, CHAPTERS, PAGES, Reader, html, needs_built_book
from conftest import together

pytestmark = needs_built_book

FIRST_VIEW = 2**20  # bytes, not compressed
# those with hundreds of formulas in sight may load half as much again
LONG = ("nbs/capsules/inference.html", "nbs/capsules/special.html")
LETTERS = "nbs/experiments/letters.html"
FIGURE = r'<figure class="capslit-figure" id="([^"]+)">(.*?)</figure>'


@together("name", CHAPTERS)
def test_figures_are_numbered_files_of_known_size(name):
    assert "data:image/png;base64,iVBOR" not in html(name)
    chapter = re.search(r'<h1><span class="section-number">([\d.]+) </span>', html(name))
    figures = re.findall(FIGURE, html(name), re.DOTALL)
    for i, (anchor, figure) in enumerate(figures, start=1):
        number = f"Figure {chapter[1] if chapter else ''}{i}"
        assert f'<a class="capslit-figure-number" href="#{anchor}">{number}</a>' in figure
        for image in re.findall(r"<img\b[^>]*>", figure):
            assert re.search(r'\bwidth="\d+" height="\d+"', image) and 'loading="lazy"' in image
            source = re.search(r'src="([^"]+\.webp)"', image)[1]
            assert (BOOK / name).parent.joinpath(source).resolve().is_file()


def test_downloaded_notebooks_keep_their_pictures():
    assert "_static/figures/" not in html("_sources/nbs/plotting.ipynb")


HEAVIEST = sorted(PAGES, key=lambda name: (BOOK / name).stat().st_size)[-12:]


@together("name", ["nbs/index.html", "search.html", *HEAVIEST])
def test_first_view_is_light(browser, site, name):
    reader = Reader(browser, site)
    reader.open(name)
    reader.context.close()
    weight = sum(reader.loaded.values())
    heaviest = sorted(reader.loaded.items(), key=lambda item: -item[1])[:5]
    limit = 1.5 * FIRST_VIEW if name in LONG else FIRST_VIEW
    assert weight <= limit, f"{weight / 2**20:.2f} MiB: {heaviest}"


def scroll_through(page, theme):
    """Let each figure come into view, and its picture be drawn."""
    for figure in page.locator("figure.capslit-figure").all():
        figure.scroll_into_view_if_needed()
        image = figure.locator(f"img.only-{theme}").element_handle()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image)


@pytest.mark.parametrize("theme, other", [("light", "dark"), ("dark", "light")])
def test_pictures_are_loaded_when_they_are_seen_in_the_theme_that_is_seen(readers, theme, other):
    shown, hidden = (
        set(re.findall(rf'class="only-{which}"[^>]*src="[^"]*/(\w+\.webp)"', html(LETTERS)))
        for which in (theme, other)
    )
    reader = readers(1280, theme)
    page = reader.open(LETTERS)

    def pictures():
        return {name.rpartition("/")[2] for name in reader.loaded if name.endswith(".webp")}

    assert len(shown) >= 4 and len(pictures()) < len(shown)
    scroll_through(page, theme)
    for _ in range(600):  # news of the last response may come after the picture
        if not pictures() >= shown:
            page.wait_for_timeout(100)
    assert pictures() == shown and not pictures() & (hidden - shown)


@together("name", [name for name in CHAPTERS if "capslit-pan" in html(name)])
def test_type_of_figures_can_be_read_on_a_phone(visits, name):
    found = visits("phone-dark", name)["type"]
    small = [(anchor, round(size, 2)) for anchor, size, _, _ in found if size < 7.95]
    assert found and not small
    assert all(reached == 0 for _, _, hidden, reached in found if hidden > 0)  # by the tab key


def test_evidence_is_loaded_when_it_is_opened(readers):
    reader = readers()
    page = reader.open("nbs/capsules/inference.html")
    evidence = page.locator("details.claim-trials[data-evidence]").first
    assert not any("evidence/" in name for name in reader.loaded)
    assert evidence.locator("td").count() == 0
    page.evaluate(
        "details => { for (let e = details; e; e = e.parentElement) if (e.tagName === 'DETAILS')"
        " e.open = true }",
        evidence.element_handle(),
    )
    page.wait_for_function("() => document.querySelectorAll('details.claim-trials td').length > 5")


def test_what_appears_under_the_pointer_has_its_style(reader):
    page = reader.open("nbs/plotting.html")
    page.locator("[data-bs-toggle=tooltip]:visible").first.hover()
    words = page.locator(".tooltip-inner")
    words.wait_for()
    colour = words.evaluate("words => getComputedStyle(words).backgroundColor")
    arrow = page.locator(".tooltip-arrow").bounding_box()
    assert colour != "rgba(0, 0, 0, 0)" and arrow["width"] > 0


def test_nothing_moves_when_a_picture_comes(readers):
    page = readers().open(LETTERS)
    last = page.locator("figure.capslit-figure").last
    before = last.evaluate("figure => figure.offsetTop")
    scroll_through(page, "light")
    assert abs(last.evaluate("figure => figure.offsetTop") - before) <= 1
