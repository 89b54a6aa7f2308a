"""What the built book says of its pages, to search engines and passers-by; the page for addresses
that lead nowhere; the site and the archive.
"""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import project
import pytest
import yaml
from archive import NAME, archive
from built_book import BOOK, CHAPTERS, ROOT, Handler, html, needs_built_book, served
from conftest import together
from dependencies import notebooks, reads_notebooks
from publish import publish, unpack

pytestmark = needs_built_book


def tags(name):
    "The meta tags of a page: {name or property: content}."
    found = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)" ?/>', html(name))
    keys = [key for key, _ in found if key != "viewport" and not key.startswith("docsearch:")]
    assert len(set(keys)) == len(keys), f"{name}: a tag twice: {keys}"
    return {key: unescape(content) for key, content in found}


@together("name", CHAPTERS)
def test_a_page_says_what_it_is(name):
    said = tags(name)
    address = project.LATEST + name
    assert re.findall(r'<link rel="canonical" href="([^"]+)"', html(name)) == [address]
    assert said["og:url"] == address and said["og:site_name"] == "capslit" and said["og:title"]
    assert said["description"] == said["og:description"] and 20 < len(said["description"]) < 300
    assert said["twitter:card"] == "summary_large_image" and said["og:image:alt"]
    assert said["og:image"] == f"{project.LATEST}_static/social.png"


def test_descriptions_are_the_subtitles_of_the_chapters():
    found = {name: tags(name)["description"] for name in CHAPTERS}
    assert len(set(found.values())) == len(found), "two pages with the same description"
    letters = lambda text: re.sub(r"[^a-z]+", "", text.lower())
    for path in notebooks():
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
        subtitle = "".join(first["source"]).splitlines()[2].removeprefix("> ")
        said = found[path.relative_to(ROOT).with_suffix(".html").as_posix()]
        if not re.search(r"[`$*{\\]", subtitle):
            assert letters(said) == letters(subtitle), path.name


def test_the_social_picture_has_the_size_that_sites_want():
    data = (BOOK / "_static" / "social.png").read_bytes()
    size = [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)]
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and size == [1200, 630] and len(data) < 300_000


@together("name", [*CHAPTERS, "search.html", "genindex.html", "404.html"])
def test_a_page_says_which_version_it_is(name):
    (line,) = re.findall(r'<p class="capslit-build">(.*?)</p>', html(name))
    assert line.startswith(f"capslit {project.VERSION}")
    commit = r'/commit/[0-9a-f]{40}">[0-9a-f]{10}</a> of \d+ \w+ 20\d\d · '
    assert re.search(commit, line) or not project.commit()


def test_the_site_map_lists_every_chapter():
    tree = ElementTree.parse(BOOK / "sitemap.xml")
    found = tree.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")
    assert sorted(e.text for e in found) == sorted(project.LATEST + name for name in CHAPTERS)
    robots = html("robots.txt")
    assert f"Sitemap: {project.LATEST}sitemap.xml\n" in robots and "Disallow" not in robots


@together("name", CHAPTERS)
def test_a_page_can_be_edited_and_run(name):
    address = rf'<a href="{re.escape(project.SOURCE)}/edit/main/([^"]+)"'
    (edit,) = set(re.findall(address, html(name)))
    assert (ROOT / edit).is_file() and Path(edit).with_suffix(".html").as_posix() == name
    assert "Edit this page" in html(name)
    places = ("colab.research.google.com", "mybinder.org")
    hosts = "|".join(map(re.escape, places))
    address = rf'<a href="https://({hosts})/[^"]*/(?:latest|v[\d.]+)/(nbs/[^"]+)"'
    runs = not edit.endswith(".md") and not reads_notebooks(ROOT / edit)
    expected = [(place, edit) for place in places if runs]
    assert re.findall(address, html(name)) == expected, "the copy that book/elsewhere.py writes"


class Pages(Handler):
    """A site under /capslit/, as the pages of a forge are served: an address that leads nowhere is
    answered by the page 404.html at its root.
    """

    def translate_path(self, path):
        ours = path.startswith("/capslit/")
        return super().translate_path(path.removeprefix("/capslit")) if ours else "/nowhere"

    def send_error(self, code, message=None, explain=None):
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "site"
    publish(folder)
    with served(folder, Pages) as address:
        yield address


@pytest.mark.parametrize(
    "address",
    ["capslit/none.html", "capslit/latest/nbs/none.html", "capslit/v9.9.9/nbs/deep/er/none.html"],
)
def test_an_address_that_leads_nowhere_is_answered_helpfully(readers, published, address):
    reader = readers(390, "dark", site=published)
    page = reader.open(address)
    errors = [error for error in reader.errors if "Failed to load resource" not in error]
    assert errors == [f"404 {published}{address}"] and not reader.requests
    assert page.locator("article h1").inner_text().startswith("Page not found")
    assert page.evaluate(
        "() => getComputedStyle(document.body).getPropertyValue('--pst-color-text-base') !== ''"
    ), "the style is not there"
    assert page.evaluate(
        "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    for target in page.evaluate(
        "() => [...document.querySelectorAll('article a, nav a')].map(a => a.href)"
    ):
        path = urlsplit(target).path
        if target.startswith(published) and path != f"/{address}":
            assert (BOOK / path.removeprefix("/capslit/latest/")).is_file(), target
    page.fill("article input[name=q]", "capsule")
    page.click("article form button")
    page.wait_for_url("**/capslit/latest/search.html?q=capsule")
    page.wait_for_selector("#search-results li a")


def test_the_root_leads_to_the_book(readers, published):
    page = readers(site=published).page
    page.goto(f"{published}capslit/")
    page.wait_for_url("**/capslit/latest/nbs/index.html")


def test_the_archive_opens_from_the_disk(readers, tmp_path):
    """Three pages of the unpacked archive: formulas are drawn, pictures are there, the search finds
    something, and nothing is asked of any server.
    """
    unpack(archive(tmp_path / f"{NAME}.zip"), tmp_path / "book")
    reader = readers(site=f"{(tmp_path / 'book').as_uri()}/")
    reader.page.goto(f"{reader.site}index.html")
    reader.page.wait_for_url("**/nbs/index.html")
    for name in ("nbs/index.html", "nbs/capsules/definition.html", "nbs/practice/use.html"):
        page = reader.open(name)
        page.wait_for_selector("article h1")
        assert page.evaluate(
            "() => [...document.images].every(image => image.loading === 'lazy' ||"
            " image.naturalWidth > 0)"
        )
        formulas = page.locator("span.math, div.math").count()
        assert not formulas or page.locator("mjx-container").count()
    assert not reader.errors
    page = reader.open("search.html?q=capsule")
    page.wait_for_selector("#search-results li a")
    assert not reader.requests


def test_the_configuration_names_no_address():
    "They are all in settings.ini."
    text = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert not re.search(r"https?://", text)
    assert "capslit_book" in yaml.safe_load(text)["sphinx"]["config"]["extensions"]
