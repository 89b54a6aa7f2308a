"""The built book in a browser whose network is cut off: every page, as a reader meets it.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import re
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest
from built_book import BOOK, CHAPTERS, PAGES, VIEWS, Reader, needs_built_book
from conftest import together

pytestmark = needs_built_book


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("view", VIEWS)
def test_page_reads_well(visits, view, name):
    found = visits(view, name)
    assert not found["requests"], f"asks for addresses outside the book: {found['requests']}"
    assert not found["errors"], found["errors"]
    assert found["theme"] == VIEWS[view][1]
    assert not found["troubles"], "\n".join(found["troubles"])


def anchors_and_links(html):
    anchors = set(re.findall(r"""\s(?:id|name)=["']([^"']+)["']""", html))
    return anchors, re.findall(r"""<a\s[^>]*?href=["']([^"']*)["']""", html)


@pytest.fixture(scope="module")
def contents():
    return {
        p.relative_to(BOOK).as_posix(): anchors_and_links(p.read_text(encoding="utf-8"))
        for p in BOOK.rglob("*.html")
        if "_static" not in p.parts
    }


@together("name", PAGES)
def test_links_lead_somewhere(contents, name):
    broken = []
    for link in contents[name][1]:
        link = link.replace("&amp;", "&")
        address, fragment = urldefrag(urljoin("http://book/" + name, link))
        where = urlparse(address)
        if where.netloc != "book":
            assert where.scheme in ("https", "http", "mailto", "javascript"), link
            continue
        target = unquote(where.path).lstrip("/")
        if target not in contents:
            if not (BOOK / target).is_file():
                broken.append(link)
        elif fragment and unquote(fragment) not in contents[target][0]:
            broken.append(f"{link} (no such anchor)")
    assert not broken, broken


@together("name", CHAPTERS)
def test_nothing_is_loaded_from_elsewhere(name):
    html = (BOOK / name).read_text(encoding="utf-8")
    loaded = re.findall(r"""<(?:script|img|iframe|source)\b[^>]*?\ssrc=["'](https?:[^"']+)""", html)
    loaded += re.findall(
        r"""<link\b(?![^>]*rel=["']canonical)[^>]*?\shref=["'](https?:[^"']+)""", html
    )
    assert not loaded


def test_text_is_shown_even_if_mathematics_fails(browser, site):
    reader = Reader(browser, site, 1280, "light")
    reader.context.route("**/mathjax/**", lambda route: route.abort())
    reader.page.goto(f"{site}nbs/capsules/definition.html", wait_until="load")
    reader.page.locator("article h1").wait_for(state="visible")
    assert reader.page.locator("html.typeset, mjx-container").count() == 0
    reader.context.close()


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
