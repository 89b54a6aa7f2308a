"""The built book in a browser whose network is cut off: every page, as a reader meets it.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""
import re
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest
from built_book import BOOK, CHAPTERS, PAGES, Reader, needs_built_book
from conftest import together

pytestmark = needs_built_book


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["desk-light", "phone-dark"])
def reader(request, browser, site):
    reader = Reader(browser, site, *request.param)
    reader.width, reader.theme = request.param
    yield reader
    reader.context.close()


# What a reader would stumble over, found in the page itself
INSPECT = """() => {
  const seen = [];
  const shown = e => e.getClientRects().length > 0;
  const content = document.querySelector('article') || document.body;
  if (!document.documentElement.matches('.typeset') && document.querySelector('script[src*="mathjax.js"]')) seen.push('the text waits for its formulas');
  for (const e of document.querySelectorAll('mjx-merror, [data-mjx-error]'))
    seen.push('mathematics that MathJax refuses: ' + (e.getAttribute('data-mjx-error') || e.textContent));
  for (const e of document.querySelectorAll('[data-mml-node="mtext"][fill="red"]'))
    seen.push('a command that MathJax does not know: ' + e.textContent);
  for (const e of document.querySelectorAll('span.math, div.math'))
    if (shown(e) && !e.querySelector('mjx-container')) seen.push('mathematics not rendered: ' + e.textContent.slice(0, 80));
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, text = node.nodeValue;
    if (parent.closest('mjx-container, script, style')) continue;
    if (parent.closest('pre') && /^\\s*#\\|/m.test(text)) seen.push('directive of nbdev: ' + text.trim().slice(0, 80));
    if (parent.closest('pre, code')) continue;
    if (/\\$\\$|\\\\\\(|\\\\\\[|\\\\begin\\{|\\\\frac/.test(text)) seen.push('raw TeX: ' + text.trim().slice(0, 80));
    if (/\\{(eq|cite|func|ref|doc)\\}/.test(text)) seen.push('raw role: ' + text.trim().slice(0, 80));
  }
  for (const image of document.images) {
    if (!(image.getAttribute('alt') || '').trim()) seen.push('image without alternative text: ' + image.src.slice(0, 80));
    if (shown(image) && !(image.complete && image.naturalWidth)) seen.push('image that does not load: ' + image.src.slice(0, 80));
  }
  for (const figure of document.querySelectorAll('figure.capslit-figure')) {
    const images = [...figure.querySelectorAll('img')];
    if (images.length && images.filter(shown).length !== 1) seen.push('figure ' + figure.id + ' shows not just one of its images');
    const caption = figure.querySelector('figcaption');
    if (!caption || !shown(caption) || !caption.textContent.trim()) seen.push('figure ' + figure.id + ' has no visible caption');
  }
  const ids = [...document.querySelectorAll('[id]')].filter(e => !e.closest('mjx-container, svg')).map(e => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) seen.push('anchor given twice: ' + id);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...content.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1
      && !e.closest('mjx-container, pre, svg')).slice(0, 3).map(e => e.tagName + '.' + e.className);
    seen.push('page wider than its window by ' + (root.scrollWidth - root.clientWidth) + ' px: ' + wide.join(', '));
  }
  return seen;
}"""


# Pictures wait until they are seen: have those of this theme come now
FETCH = """() => Promise.all([...document.images].filter(image => image.getClientRects().length > 0).map(image => {
  image.loading = 'eager';
  return image.decode().catch(() => 0);
}))"""


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(reader, name):
    reader.errors.clear()
    reader.requests.clear()
    page = reader.open(name)
    assert not reader.requests, f"asks for addresses outside the book: {reader.requests}"
    assert not reader.errors, reader.errors
    assert page.locator("html").get_attribute("data-theme") == reader.theme
    page.evaluate(FETCH)
    findings = page.evaluate(INSPECT)
    assert not findings, "\n".join(findings)


def anchors_and_links(html):
    anchors = set(re.findall(r"""\s(?:id|name)=["']([^"']+)["']""", html))
    return anchors, re.findall(r"""<a\s[^>]*?href=["']([^"']*)["']""", html)


@pytest.fixture(scope="module")
def contents():
    return {p.relative_to(BOOK).as_posix(): anchors_and_links(p.read_text(encoding="utf-8"))
            for p in BOOK.rglob("*.html") if "_static" not in p.parts}


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
    loaded += re.findall(r"""<link\b(?![^>]*rel=["']canonical)[^>]*?\shref=["'](https?:[^"']+)""", html)
    assert not loaded


def test_equations_carry_their_numbers(contents):
    text = "".join((BOOK / name).read_text(encoding="utf-8") for name in CHAPTERS)
    labels = set(re.findall(r'id="equation-saul-([a\d]+-\d+)"', text))
    for label in labels:
        assert re.search(rf'<span class="eqno">(<a [^>]*>)?\(Saul {re.escape(label.upper().replace("-", "."))}\)', text)


def test_text_is_shown_even_if_mathematics_fails(browser, site):
    reader = Reader(browser, site, 1280, "light")
    reader.context.route("**/mathjax.js", lambda route: route.abort())
    reader.page.goto(f"{site}nbs/capsules/definition.html", wait_until="load")
    reader.page.locator("article h1").wait_for(state="visible")
    assert reader.page.locator("html.typeset, mjx-container").count() == 0
    reader.context.close()


def test_search_finds_a_chapter(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("search.html?q=alternative+text")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    assert page.locator("#search-results li a").count() >= 1
    reader.context.close()


def test_code_can_be_copied(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("nbs/plotting.html")
    assert page.locator("div.cell_input button.copybtn").count() >= 5
    reader.context.close()


def test_theme_button_exchanges_the_figures(browser, site):
    reader = Reader(browser, site, 1280, "light")
    page = reader.open("nbs/plotting.html")
    light, dark = (page.locator(f"figure.capslit-figure img.only-{theme}").first for theme in ("light", "dark"))
    assert light.is_visible() and not dark.is_visible()
    for _ in range(3):  # light, dark, automatic
        page.locator("button.theme-switch-button:visible").first.click()
        if page.locator("html").get_attribute("data-theme") == "dark":
            break
    assert dark.is_visible() and not light.is_visible()
    reader.context.close()
