"""The whole book as one PDF: python book/pdf.py [FILE.pdf] [PAGE …]

Jupyter Book prints one HTML page or goes through LaTeX. Here the articles of the built pages become
one long page, in the order of _toc.yml, which Chromium prints with links that stay within the file.
Then it is known where each page begins: the numbers in the contents, which are printed a second
time, and the bookmarks. With PAGEs (nbs/capsules/definition), only these.
"""

import re
import shutil
import sys
from html import escape, unescape
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urldefrag

from playwright.sync_api import sync_playwright
from paths import HTML, ROOT, whole
from project import LATEST, SETTINGS, SITE, VERSION, commit, contents
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Fit

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STYLE_OF_NUMBER = "width: 100%; font: 8px sans-serif; text-align: center"
PRINT = {
    "format": "A4",
    "margin": {"top": "20mm", "bottom": "20mm", "left": "18mm", "right": "18mm"},
    "print_background": True,
    "display_header_footer": True,
    "header_template": "<span></span>",
    "footer_template": f'<div style="{STYLE_OF_NUMBER}" class="pageNumber"></div>',
    "tagged": True,
}
STYLE = """<style>
.headerlink, .prev-next-footer { display: none !important }
article { break-before: page } .cover { padding-top: 40mm } .cover h1 { font-size: 42pt }
.contents a { display: flex }
.contents a::after { content: attr(data-page); margin-left: auto; padding-left: 2em }
</style>"""
READY = """async () => {
  for (const image of document.images) image.loading = 'eager';
  await Promise.all([...document.images].map(image => image.decode().catch(() => 0)));
  await document.fonts.ready;
}"""
NUMBER = """places => document.querySelectorAll('.contents a').forEach(entry => {
  entry.dataset.page = places[entry.hash.slice(1)][0] + 1;
})"""
NUMBERS = """article:not(.contents) { display: none !important }
.cover, .contents { visibility: hidden } .contents a::after { visibility: visible }"""
HEADING = re.compile(r'<h[12]>(.*?)<a class="headerlink" href="#([^"]+)"')


def headings(name):
    """Title of a page and its sections: [(title, id), …]."""
    html = (HTML / f"{name}.html").read_text(encoding="utf-8")
    return [(unescape(re.sub("<.*?>", "", title)), id) for title, id in HEADING.findall(html)]


def anchor(name, place=""):
    """The id in the long page of a place in a page."""
    return f"{name.replace('/', '-')}--{place}"


def with_files(path, html, attributes="src"):
    """HTML of a page, with the whole addresses of the files that attributes name."""

    def whole_address(match):
        file = (path.parent / unquote(match[2].partition("?")[0])).resolve()
        return f'{match[1]}="{file.as_uri()}"'

    return re.sub(rf'\b({attributes})="(?!data:|https?:)([^"]+)"', whole_address, html)


def article(name, names):
    """The article of a page as a part of the long one: its ids are its own, pictures are found, and
    links lead to pages of the file where they are there, else to the published book.
    """
    path = HTML / f"{name}.html"
    html = path.read_text(encoding="utf-8")
    body = with_files(path, re.search(r"<article\b.*?</article>", html, re.DOTALL)[0])
    body = re.sub(r'(<[^>]*?\s)id="([^"]+)"', rf'\1id="{anchor(name)}\2"', body)

    def link(match):
        address, place = urldefrag(match[1])
        if "://" in address or address.startswith("mailto:"):
            return match[0]
        target = (path.parent / unquote(address)).resolve() if address else path
        page = target.relative_to(HTML).with_suffix("").as_posix()
        if page in names:
            return f'href="#{anchor(page, place)}"'
        fragment = f"#{place}" if place else ""
        return f'href="{LATEST}{target.relative_to(HTML).as_posix()}{fragment}"'

    body = re.sub(r'href="([^"]*)"', link, body)
    return body.replace("<article", f'<article id="{anchor(name)}"', 1)


def files(name):
    """Style sheets and scripts that a page loads, as tags with whole addresses."""
    path = HTML / f"{name}.html"
    head = path.read_text(encoding="utf-8").partition("</head>")[0]
    tags = re.findall(r'<link [^>]*rel="stylesheet"[^>]*>|<script.*?</script>', head, re.DOTALL)
    return [with_files(path, tag, "src|href") for tag in tags]


def cover(parts):
    """Title and contents."""
    lines = []
    for part, names in parts:
        lines += [f"<h3>{escape(part)}</h3>"] if part else []
        for name in names:
            title, _ = headings(name)[0]
            lines.append(f'<a href="#{anchor(name)}">{escape(title)}</a>')
    version = f"Version {VERSION}" + (f", commit {commit()[0][:10]}" if commit() else "")
    picture = (ROOT / "nbs" / "images" / "poses.png").as_uri()
    return (
        f'<div class="cover"><h1>{SETTINGS["title"]}</h1><p>{escape(SETTINGS["description"])}</p>'
        f'<img src="{picture}" alt=""><p>{version}<br>{SETTINGS["author"]}<br>{SITE}</p></div>'
        f'<article class="contents"><h1>Contents</h1>{"".join(lines)}</article>'
    )


def places(book):
    """Places in a PDF that links lead to: {id: (index of the page, height on it)}."""
    return {
        name.removeprefix("/"): (book.get_destination_page_number(place), place.top)
        for name, place in book.named_destinations.items()
    }


def add_bookmarks(book, parts, known):
    """Bookmarks of the parts, their pages, and the sections of these."""

    def add(title, place, parent=None):
        number, top = known[place]
        options = {"parent": parent, "is_open": not parent, "fit": Fit.xyz(top=top)}
        return book.add_outline_item(title=title, page_number=number, **options)

    for part, names in parts:
        above = add(part, anchor(names[0])) if part else None
        for name in names:
            (title, _), *sections = headings(name)
            chapter = add(title, anchor(name), above)
            for title, id in sections:
                add(title, anchor(name, id), chapter)


def build(target, names=None):
    """Print the book, or the pages with these names, into a file."""
    parts = [
        (part, [name for name in pages if names is None or name in names])
        for part, pages in contents()
    ]
    parts = [(part, pages) for part, pages in parts if pages]
    pages = [name for _, names in parts for name in names]
    head = "".join(dict.fromkeys(file for name in pages for file in files(name)))
    body = cover(parts) + "".join(article(name, pages) for name in pages)
    title = f"{SETTINGS['title']} {VERSION}"
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{head}'
    with TemporaryDirectory() as folder:
        scratch = Path(folder, "book.html")
        scratch.write_text(f"{page}{STYLE}<body>{body}", encoding="utf-8")
        print_page(scratch, target, parts)


def print_page(scratch, target, parts):
    """Print the long page into a file, and again for the page numbers in the contents."""
    with sync_playwright() as playwright, whole(target) as file:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = browser.new_page(viewport={"width": 900, "height": 1200}, color_scheme="light")
        page.set_default_timeout(0)  # nothing has a time limit
        page.goto(scratch.as_uri(), wait_until="load")
        page.emulate_media(media="print", color_scheme="light")
        page.evaluate(READY)
        book = PdfWriter(clone_from=BytesIO(page.pdf(**PRINT)))
        known = places(book)
        page.evaluate(NUMBER, known)
        page.add_style_tag(content=NUMBERS)
        numbers = PdfReader(BytesIO(page.pdf(**PRINT)))
        browser.close()
        for front, overlay in zip(book.pages[1:], numbers.pages[1:]):
            front.merge_page(overlay)
            front.compress_content_streams()
        add_bookmarks(book, parts, known)
        book.page_mode = "/UseOutlines"
        book.add_metadata({"/Author": SETTINGS["author"]})
        book.write(file)


if __name__ == "__main__":
    words = sys.argv[1:]
    target = ROOT / "_build" / f"{SETTINGS['lib_name']}-{VERSION}.pdf"
    if words and words[0].endswith(".pdf"):
        target = Path(words.pop(0))
    if not (HTML / "nbs" / "index.html").is_file():
        sys.exit("the book is not built: make book")
    build(target, words or None)
    print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")
