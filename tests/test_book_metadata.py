"""What the built book says of its pages, to search engines and passers-by; the page for addresses
that lead nowhere; the site and the archive.
"""

import functools
import http.server
import json
import re
import sys
import threading
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from built_book import BOOK, CHAPTERS, Reader, needs_built_book
from conftest import together
from test_house import ROOT, read

sys.path.insert(0, str(ROOT / "book"))
import project  # noqa: E402
from archive import NAME, archive  # noqa: E402
from dependencies import notebooks, reads_notebooks  # noqa: E402
from publish import publish, unpack  # noqa: E402

pytestmark = needs_built_book


def tags(name):
    "The meta tags of a page: {name or property: content}."
    page = (BOOK / name).read_text(encoding="utf-8")
    found = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)" ?/>', page)
    keys = [key for key, _ in found if key != "viewport" and not key.startswith("docsearch:")]
    assert len(set(keys)) == len(keys), f"{name}: a tag twice: {keys}"
    return {key: unescape(content) for key, content in found} | {
        "canonical": re.findall(r'<link rel="canonical" href="([^"]+)"', page)
    }


@together("name", CHAPTERS)
def test_a_page_says_what_it_is(name):
    said = tags(name)
    address = project.LATEST + name
    assert said["canonical"] == [address] and said["og:url"] == address
    assert said["description"] == said["og:description"] and 20 < len(said["description"]) < 300
    assert (
        said["og:title"]
        and said["og:site_name"] == "capslit"
        and said["twitter:card"] == "summary_large_image"
    )
    assert said["og:image"] == f"{project.LATEST}_static/social.png" and said["og:image:alt"]


def test_descriptions_are_the_subtitles_of_the_chapters():
    found = {name: tags(name)["description"] for name in CHAPTERS}
    assert len(set(found.values())) == len(found), "two pages with the same description"
    letters = lambda text: re.sub(r"[^a-z]+", "", text.lower())
    for path in notebooks():
        subtitle = (
            "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
            .splitlines()[2]
            .removeprefix("> ")
        )
        said = found[path.relative_to(ROOT).with_suffix(".html").as_posix()]
        if not re.search(r"[`$*{\\]", subtitle):
            assert letters(said) == letters(subtitle), path.name


def test_the_social_picture_has_the_size_that_sites_want():
    data = (BOOK / "_static" / "social.png").read_bytes()
    assert (
        data[:8] == b"\x89PNG\r\n\x1a\n"
        and [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)] == [1200, 630]
        and len(data) < 300_000
    )


@together("name", [*CHAPTERS, "search.html", "genindex.html", "404.html"])
def test_a_page_says_which_version_it_is(name):
    (line,) = re.findall(
        r'<p class="capslit-build">(.*?)</p>', (BOOK / name).read_text(encoding="utf-8")
    )
    assert line.startswith(f"capslit {project.VERSION}")
    if project.commit():
        assert re.search(r'/commit/[0-9a-f]{40}">[0-9a-f]{10}</a> of \d+ \w+ 20\d\d · ', line)


def test_the_site_map_lists_every_chapter():
    tree = ElementTree.parse(BOOK / "sitemap.xml")
    found = [
        element.text for element in tree.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")
    ]
    assert sorted(found) == sorted(project.LATEST + name for name in CHAPTERS)
    robots = (BOOK / "robots.txt").read_text()
    assert f"Sitemap: {project.LATEST}sitemap.xml\n" in robots and "Disallow" not in robots


@together("name", CHAPTERS)
def test_a_page_can_be_edited_and_run(name):
    page = (BOOK / name).read_text(encoding="utf-8")
    (edit,) = set(re.findall(rf'<a href="{re.escape(project.SOURCE)}/edit/main/([^"]+)"', page))
    assert (
        (ROOT / edit).is_file()
        and Path(edit).with_suffix(".html").as_posix() == name
        and "Edit this page" in page
    )
    runs = re.findall(
        r'<a href="https://(colab\.research\.google\.com|mybinder\.org)/[^"]*/(?:latest|v[\d.]+)/(nbs/[^"]+)"',
        page,
    )
    path = ROOT / edit
    expected = (
        []
        if path.suffix == ".md" or reads_notebooks(path)
        else [("colab.research.google.com", edit), ("mybinder.org", edit)]
    )
    assert runs == expected, "Colab and Binder open the copy that book/elsewhere.py writes"


class Pages(http.server.SimpleHTTPRequestHandler):
    """A site under /capslit/, as the pages of a forge are served: an address that leads nowhere is
    answered by the page 404.html at its root.
    """

    def translate_path(self, path):
        return (
            super().translate_path(path.removeprefix("/capslit"))
            if path.startswith("/capslit/")
            else "/nowhere"
        )

    def send_error(self, code, message=None, explain=None):
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    publish(folder / "site")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Pages, directory=str(folder / "site"))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(
    "address",
    ["capslit/none.html", "capslit/latest/nbs/none.html", "capslit/v9.9.9/nbs/deep/er/none.html"],
)
def test_an_address_that_leads_nowhere_is_answered_helpfully(browser, published, address):
    reader = Reader(browser, published, 390, "dark")
    page = reader.open(address)
    assert [error for error in reader.errors if "Failed to load resource" not in error] == [
        f"404 {published}{address}"
    ]
    assert not reader.requests and page.locator("article h1").inner_text().startswith(
        "Page not found"
    )
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
    reader.context.close()


def test_the_root_leads_to_the_book(browser, published):
    reader = Reader(browser, published, 1280, "light")
    reader.page.goto(f"{published}capslit/")
    reader.page.wait_for_url("**/capslit/latest/nbs/index.html")
    reader.context.close()


def test_the_archive_opens_from_the_disk(browser, tmp_path):
    """Three pages of the unpacked archive: formulas are drawn, pictures are there, the search finds
    something, and nothing is asked of any server.
    """
    unpack(archive(tmp_path / f"{NAME}.zip"), tmp_path / "book")
    reader = Reader(browser, f"{(tmp_path / 'book').as_uri()}/", 1280, "light")
    reader.page.goto(f"{reader.site}index.html")
    reader.page.wait_for_url("**/nbs/index.html")
    for name in ("nbs/index.html", "nbs/capsules/definition.html", "nbs/practice/use.html"):
        page = reader.open(name)
        page.wait_for_selector("article h1")
        assert page.evaluate(
            "() => [...document.images].every(image => image.loading === 'lazy' ||"
            " image.naturalWidth > 0)"
        )
        if page.locator("span.math, div.math").count():
            assert page.locator("mjx-container").count()
    assert not reader.errors and not reader.requests
    page = reader.open("search.html?q=capsule")
    page.wait_for_selector("#search-results li a")
    assert not reader.requests
    reader.context.close()


def test_the_configuration_names_no_address():
    "They are all in settings.ini."
    assert (
        not re.search(r"https?://", read("_config.yml"))
        and "metadata" in yaml.safe_load(read("_config.yml"))["sphinx"]["config"]["extensions"]
    )
