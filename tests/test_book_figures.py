"""Figures and weight of the built book: what a browser loads before a reader sees a page, and what
it waits with.
"""

import re

import pytest
from built_book import BOOK, CHAPTERS, PAGES, Reader, needs_built_book
from conftest import together

pytestmark = needs_built_book

FIRST_VIEW = 1.5 * 2**20  # bytes, not compressed


@together("name", CHAPTERS)
def test_figures_are_numbered_files_of_known_size(name):
    page = (BOOK / name).read_text(encoding="utf-8")
    assert "data:image/png;base64,iVBOR" not in page
    figures = re.findall(
        r'<figure class="capslit-figure" id="([^"]+)">(.*?)</figure>', page, re.DOTALL
    )
    chapter = re.search(r'<h1><span class="section-number">(\d+)\. </span>', page)
    for i, (anchor, figure) in enumerate(figures, start=1):
        number = f"{chapter[1]}.{i}" if chapter else f"{i}"
        assert f'<a class="capslit-figure-number" href="#{anchor}">Figure {number}</a>' in figure, (
            anchor,
            number,
        )
        for image in re.findall(r"<img\b[^>]*>", figure):
            assert re.search(r'\bwidth="\d+" height="\d+"', image) and 'loading="lazy"' in image, (
                image
            )
            source = re.search(r'src="([^"]+)"', image)[1]
            assert (BOOK / name).parent.joinpath(source).resolve().is_file() and source.endswith(
                ".webp"
            )


def test_downloaded_notebooks_keep_their_pictures():
    notebook = (BOOK / "_sources" / "nbs" / "plotting.ipynb").read_text(encoding="utf-8")
    assert "figures/" not in notebook.replace("capslit_figures", "")


class Weigher(Reader):
    """A reader who has never been here, and counts what is loaded."""

    def __init__(self, browser, site, theme="light"):
        super().__init__(browser, site, 1280, theme)
        self.loaded = {}
        self.page.on(
            "response",
            lambda response: self.loaded.update(
                {response.url.removeprefix(site): int(response.headers.get("content-length", 0))}
            ),
        )


HEAVIEST = sorted(PAGES, key=lambda name: (BOOK / name).stat().st_size)[-12:]


@together("name", ["nbs/index.html", "search.html", *HEAVIEST])
def test_first_view_is_light(browser, site, name):
    reader = Weigher(browser, site)
    reader.open(name)
    weight = sum(reader.loaded.values())
    heaviest = sorted(reader.loaded.items(), key=lambda item: -item[1])[:5]
    reader.context.close()
    assert weight <= FIRST_VIEW, f"{weight / 2**20:.2f} MiB: {heaviest}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_loaded_when_they_are_seen_in_the_theme_that_is_seen(browser, site, theme):
    name = "nbs/experiments/letters.html"
    shown = {
        which: set(
            re.findall(
                rf'class="only-{which}"[^>]*src="[^"]*/(\w+\.webp)"',
                (BOOK / name).read_text(encoding="utf-8"),
            )
        )
        for which in ("light", "dark")
    }
    other = shown["dark" if theme == "light" else "light"] - shown[theme]
    reader = Weigher(browser, site, theme)
    page = reader.open(name)

    def pictures():
        return {
            address.rpartition("/")[2] for address in reader.loaded if address.endswith(".webp")
        }

    assert len(shown[theme]) >= 4 and len(pictures()) < len(shown[theme])
    for figure in page.locator("figure.capslit-figure").all():
        figure.scroll_into_view_if_needed()
        image = figure.locator(f"img.only-{theme}").element_handle()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image)
    for _ in range(600):  # news of the last response may come after the picture
        if not pictures() >= shown[theme]:
            page.wait_for_timeout(100)
    reader.context.close()
    assert pictures() == shown[theme] and not pictures() & other


@together(
    "name",
    [name for name in CHAPTERS if "capslit-pan" in (BOOK / name).read_text(encoding="utf-8")],
)
def test_type_of_figures_can_be_read_on_a_phone(visits, name):
    found = visits("phone-dark", name)["type"]
    small = [(anchor, round(size, 2)) for anchor, size, _, _ in found if size < 7.95]
    assert found and not small
    assert all(reached == 0 for _, _, hidden, reached in found if hidden > 0)  # by the tab key


def test_evidence_is_loaded_when_it_is_opened(browser, site):
    reader = Weigher(browser, site)
    page = reader.open("nbs/capsules/inference.html")
    evidence = page.locator("details.claim-trials[data-evidence]").first
    assert (
        not any("evidence/" in address for address in reader.loaded)
        and evidence.locator("td").count() == 0
    )
    page.evaluate(
        "details => { for (let e = details; e; e = e.parentElement) if (e.tagName === 'DETAILS')"
        " e.open = true }",
        evidence.element_handle(),
    )
    page.wait_for_function("() => document.querySelectorAll('details.claim-trials td').length > 5")
    reader.context.close()


def test_what_appears_under_the_pointer_has_its_style(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("nbs/plotting.html")
    page.locator("[data-bs-toggle=tooltip]:visible").first.hover()
    words = page.locator(".tooltip-inner")
    words.wait_for()
    colour = words.evaluate("words => getComputedStyle(words).backgroundColor")
    arrow = page.locator(".tooltip-arrow").bounding_box()
    assert colour != "rgba(0, 0, 0, 0)" and arrow["width"] > 0
    reader.context.close()


def test_nothing_moves_when_a_picture_comes(browser, site):
    reader = Weigher(browser, site)
    page = reader.open("nbs/experiments/letters.html")
    last = page.locator("figure.capslit-figure").last
    before = last.evaluate("figure => figure.offsetTop")
    for figure in page.locator("figure.capslit-figure").all():
        figure.scroll_into_view_if_needed()
        page.wait_for_function(
            "image => image.complete", arg=figure.locator("img.only-light").element_handle()
        )
    assert abs(last.evaluate("figure => figure.offsetTop") - before) <= 1
    reader.context.close()
