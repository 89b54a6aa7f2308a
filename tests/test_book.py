"""The built book in a browser whose network is cut off: every page, as a reader meets it.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import re
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest
from built_book import BOOK, CHAPTERS, HTML, PAGES, VIEWS, anchors, html, needs_built_book
from conftest import together

pytestmark = needs_built_book


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(visits, name):
    for view, (_, theme) in VIEWS.items():
        found = visits(view, name)
        assert not found["requests"], f"asks for addresses outside the book: {found['requests']}"
        assert not found["errors"], found["errors"]
        assert found["theme"] == theme
        assert not found["troubles"], "\n".join([view, *found["troubles"]])


@together("name", PAGES)
def test_links_lead_somewhere(name):
    broken = []
    for link in re.findall(r"""<a\s[^>]*?href=["']([^"']*)["']""", html(name)):
        link = link.replace("&amp;", "&")
        address, fragment = urldefrag(urljoin("http://book/" + name, link))
        where = urlparse(address)
        target = unquote(where.path).lstrip("/")
        if where.netloc != "book":
            assert where.scheme in ("https", "http", "mailto", "javascript"), link
        elif target not in HTML:
            broken += [] if (BOOK / target).is_file() else [link]
        elif fragment and unquote(fragment) not in anchors(target):
            broken.append(f"{link} (no such anchor)")
    assert not broken, broken


@together("name", CHAPTERS)
def test_nothing_is_loaded_from_elsewhere(name):
    script = r"""<(?:script|img|iframe|source)\b[^>]*?\ssrc=["'](https?:[^"']+)"""
    sheet = r"""<link\b(?![^>]*rel=["']canonical)[^>]*?\shref=["'](https?:[^"']+)"""
    assert not re.findall(f"{script}|{sheet}", html(name))


def test_code_can_be_copied(reader):
    page = reader.open("nbs/plotting.html")
    assert page.locator("div.cell_input button.copybtn").count() >= 5


def test_theme_button_exchanges_the_figures(reader):
    page = reader.open("nbs/plotting.html")
    light, dark = (
        page.locator(f"figure.capslit-figure img.only-{theme}").first for theme in ("light", "dark")
    )
    assert light.is_visible() and not dark.is_visible()
    for _ in range(3):  # light, dark, automatic
        page.locator("button.theme-switch-button:visible").first.click()
        if page.locator("html").get_attribute("data-theme") == "dark":
            break
    assert dark.is_visible() and not light.is_visible()
