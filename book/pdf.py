"""The whole book as one PDF: python book/pdf.py [FILE.pdf] [PAGE …]

Chromium prints the built pages in the order of _toc.yml, as their print style wants them; they are
joined behind a title page and the contents, with bookmarks, page numbers, and links that stay
within the file. With PAGEs (nbs/capsules/definition), only these.
"""

import io
import shutil
import sys
from base64 import b64encode
from contextlib import contextmanager
from datetime import date
from html import escape
from pathlib import Path
from urllib.parse import unquote, urldefrag

import yaml
from links import Anchors
from playwright.sync_api import sync_playwright
from project import HTML, LATEST, ROOT, SETTINGS, SITE, VERSION, commit
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, FloatObject, NameObject, NullObject, TextStringObject

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MARGIN = {"top": "20mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
STYLE = """#jb-print-docs-body, .bd-footer-content, .prev-next-footer, .headerlink {
  display: none !important }
article h1 { display: block !important }"""  # the theme's own title and list of sections
HEAD = (
    '<div style="width: 100%; font: 8px sans-serif; color: #666; text-align: right; padding-right:'
    ' 18mm">{}</div>'
)
READY = """async () => {
  document.querySelectorAll('img[loading=lazy]').forEach(image => { image.loading = 'eager'; });
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise.then(typesetAll);
  await Promise.all([...document.images].map(image => image.decode().catch(() => 0)));
  await document.fonts.ready;
}"""
HEADINGS = """() => {
  const words = heading => {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll('.headerlink').forEach(e => e.remove());
    return copy.textContent.replace(/\\s+/g, ' ').trim();
  };
  const article = document.querySelector('article');
  const sections = [...article.querySelectorAll('section > h2')].map(
    h => [h.parentElement.id, words(h)]);
  return [words(article.querySelector('h1')), sections];
}"""
NAME = """ids => {  // Chromium names a place only if a link in the page leads to it
  const box = document.createElement('div');
  box.style = 'position: absolute; top: 0; left: 0; font-size: 1px; line-height: 1px; '
    + 'color: transparent';
  for (const id of ids.filter(id => document.getElementById(id))) {
    const link = document.createElement('a');
    link.href = '#' + id;
    link.textContent = '.';
    link.style = 'color: transparent; text-decoration: none';
    box.append(link);
  }
  document.querySelector('article').prepend(box);
}"""
ENTRY = '<div class="entry"><a href="{}.html">{}</a><span class="dots"></span><span>{}</span></div>'
FRONT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font-family: sans-serif; color: #222; margin: 0 }}
.cover {{ box-sizing: border-box; height: 250mm; padding-top: 40mm; break-after: page }}
.cover h1 {{ font-size: 42pt; margin: 0 0 4mm }}
.cover p {{ font-size: 13pt; line-height: 1.5 }}
.cover img {{ width: 100%; margin: 12mm 0 }}
h2 {{ font-size: 20pt }} h3 {{ font-size: 12pt; margin: 6mm 0 1mm; break-after: avoid }}
.entry {{ display: flex; font-size: 10pt; line-height: 1.5; break-inside: avoid }}
.entry a {{ color: inherit; text-decoration: none }}
.entry .dots {{ flex: 1; border-bottom: 1px dotted #999; margin: 0 2mm 1.2mm }}
</style></head><body>
<section class="cover"><h1>{title}</h1><p>{subtitle}</p>
<img src="data:image/png;base64,{picture}" alt="">
<p>Version {version}{commit}<br>{authors}<br>{site}<br>Licence: Apache-2.0</p></section>
<h2>Contents</h2>
{contents}
</body></html>"""
NUMBERS = """<!DOCTYPE html><html lang="en"><head><style>body {{ margin: 0 }}
div {{ height: 296.9mm; position: relative; break-after: page; font: 9px sans-serif;
  color: #444 }}
div:last-child {{ break-after: auto }}
span {{ position: absolute; bottom: 10mm; width: 100%; text-align: center }}</style></head>
<body>{}</body></html>"""


def contents():
    """Parts and pages of the book: [(part, [page, …]), …]; the first page stands in a part without
    a name.
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [
        (part["caption"], [chapter["file"] for chapter in part["chapters"]])
        for part in toc["parts"]
    ]


def links_between():
    """Places within pages that other pages link to: {page: {id, …}}."""
    found = {}
    for path in sorted((HTML / "nbs").rglob("*.html")):
        for address in Anchors(path.read_text(encoding="utf-8")).found:
            where, place = urldefrag(address)
            if place and where and "://" not in where:
                found.setdefault((path.parent / where).resolve(), set()).add(unquote(place))
    return found


class Printer:
    """A browser that prints pages to PDF."""

    def __init__(self, browser):
        self.page = browser.new_page(viewport={"width": 900, "height": 1200}, color_scheme="light")
        self.page.set_default_timeout(0)  # nothing has a time limit
        self.page.add_init_script(
            "localStorage.setItem('mode', 'light'); localStorage.setItem('theme', 'light')"
        )

    def chapter(self, path, places):
        """A page of the book: its title, its sections [(id, heading), …] and its PDF, in which
        `places` and sections are named.
        """
        self.page.goto(path.as_uri(), wait_until="load")
        self.page.emulate_media(media="print", color_scheme="light")
        self.page.add_style_tag(content=STYLE)
        self.page.evaluate(READY)
        title, sections = self.page.evaluate(HEADINGS)
        self.page.evaluate(NAME, [*(id for id, _ in sections), *sorted(places)])
        options = {
            "display_header_footer": True,
            "header_template": HEAD.format(escape(title)),
            "footer_template": "<span></span>",
        }
        return title, sections, self.print(**options)

    def text(self, html, margin=MARGIN):
        """A page that is made here."""
        self.page.set_content(html, wait_until="load")
        return self.print(margin=margin)

    def print(self, margin=MARGIN, **options):
        return PdfReader(
            io.BytesIO(self.page.pdf(format="A4", margin=margin, print_background=True, **options))
        )


def front(printer, parts, titles, first):
    """Title page and contents, whose entries link to the addresses of the pages; `first` is the
    number of each page.
    """
    lines = []
    for part, names in parts:
        lines += [f"<h3>{escape(part)}</h3>"] if part else []
        lines += [
            ENTRY.format((HTML / name).as_uri(), escape(titles[name]), first[name])
            for name in names
        ]
    name, day = commit() or ("", "1970-01-01")
    picture = b64encode((ROOT / "nbs" / "images" / "poses.png").read_bytes()).decode()
    return printer.text(
        FRONT.format(
            title=SETTINGS["title"],
            subtitle=escape(SETTINGS["description"]),
            picture=picture,
            version=VERSION,
            commit=f", commit {name[:10]} of {date.fromisoformat(day):%-d %B %Y}" if name else "",
            authors=SETTINGS["author"],
            site=SITE,
            contents="\n".join(lines),
        )
    )


def place(page, top=None):
    """The target of a link: a page of the file, and a height on it."""
    return ArrayObject(
        [
            page.indirect_reference,
            NameObject("/XYZ"),
            NullObject(),
            NullObject() if top is None else FloatObject(top),
            NullObject(),
        ]
    )


def targets(writer, reader, offset, path):
    """What links may lead to in a printed page: {(path, id): target}; the id of its beginning is
    "".
    """
    found = {(path, ""): place(writer.pages[offset])}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        if number is not None and number >= 0:
            found[path, name.lstrip("/")] = place(writer.pages[offset + number], destination.top)
    return found


def link(writer, known, offset, count, path):
    """Let the links of a printed page lead to places in the file, if they are there, else to the
    published book; drop those that only gave names.
    """
    for page in writer.pages[offset : offset + count]:
        kept = ArrayObject()
        for reference in page.get("/Annots", ()):
            annotation = reference.get_object()
            low, high = annotation["/Rect"][1], annotation["/Rect"][3]
            if high - low < 2:
                continue
            if "/Dest" in annotation:
                where, name = path, str(annotation["/Dest"]).lstrip("/")
            else:
                address, name = urldefrag(str(annotation.get("/A", {}).get("/URI", "")))
                where, name = Path(unquote(address.removeprefix("file://"))), unquote(name)
            if target := known.get((where, name)) or known.get((where, "")):
                annotation.pop("/A", None)
                annotation[NameObject("/Dest")] = target
            elif where.is_relative_to(HTML):
                annotation["/A"][NameObject("/URI")] = TextStringObject(
                    f"{LATEST}{where.relative_to(HTML).as_posix()}#{name}".rstrip("#")
                )
            kept.append(reference)
        if "/Annots" in page:
            page[NameObject("/Annots")] = kept


def number(writer, printer):
    """Write its number on each page but the first."""
    stamps = printer.text(
        NUMBERS.format(
            "".join(f"<div><span>{i}</span></div>" for i in range(1, len(writer.pages) + 1))
        ),
        dict.fromkeys(MARGIN, "0"),
    )
    for page, stamp in list(zip(writer.pages, stamps.pages))[1:]:
        page.merge_page(stamp)
    for page in writer.pages:
        page.compress_content_streams()  # which merging unpacks


def build(target, names=None):
    """Print the book, or the pages with these names, into a file; return its number of pages."""
    parts = [
        (part, [name for name in pages if names is None or name in names])
        for part, pages in contents()
    ]
    parts = [(part, pages) for part, pages in parts if pages]
    names = [name for _, pages in parts for name in pages]
    wanted, printed = links_between(), {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--disable-gpu"],
        )
        printer = Printer(browser)
        for name in names:
            path = HTML / f"{name}.html"
            printed[name] = printer.chapter(path, wanted.get(path, ()))
            print(f"{len(printed[name][2].pages):4} pages  {name}", flush=True)
        titles = {name: title for name, (title, _, _) in printed.items()}
        first, cover = {}, None
        for _ in range(
            2
        ):  # the contents say on which pages the chapters begin, and take pages themselves
            start = len(cover.pages) if cover else 1
            for name in names:
                first[name], start = start + 1, start + len(printed[name][2].pages)
            cover = front(printer, parts, titles, first)
        writer = PdfWriter()
        writer.append(cover, import_outline=False)
        known = {}
        for name in names:
            writer.append(printed[name][2], import_outline=False)
            known |= targets(writer, printed[name][2], first[name] - 1, HTML / f"{name}.html")
        link(writer, known, 0, len(cover.pages), HTML)
        for name in names:
            link(writer, known, first[name] - 1, len(printed[name][2].pages), HTML / f"{name}.html")
        number(writer, printer)
        browser.close()
    writer._root_object.pop(
        "/Dests", None
    )  # the names of places, which are the same in many chapters; links know their places
    for part, pages in parts:
        above = (
            writer.add_outline_item(title=part, page_number=first[pages[0]] - 1) if part else None
        )
        for name in pages:
            title, sections, _ = printed[name]
            item = writer.add_outline_item(
                title=title, page_number=first[name] - 1, parent=above, is_open=False
            )
            for id, heading in sections:
                if at := known.get((HTML / f"{name}.html", id)):
                    writer.add_outline_item(
                        title=heading,
                        page_number=at[0].get_object().page_number,
                        parent=item,
                        fit=Fit.xyz(top=at[3]),
                    )
    writer.add_metadata(
        {
            "/Title": f"{SETTINGS['title']} {VERSION}",
            "/Author": SETTINGS["author"],
            "/Subject": SETTINGS["description"],
            "/Keywords": SETTINGS["keywords"],
        }
    )
    writer._root_object[NameObject("/Lang")] = TextStringObject("en")
    writer.page_mode = "/UseOutlines"
    writer.compress_identical_objects()
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic(target) as file:
        writer.write(file)
    return len(writer.pages)


@contextmanager
def atomic(target):
    """A file that is there only when it is whole."""
    scratch = target.with_suffix(".tmp")
    with scratch.open("wb") as file:
        yield file
    scratch.replace(target)


if __name__ == "__main__":
    words = sys.argv[1:]
    target = (
        Path(words.pop(0))
        if words and words[0].endswith(".pdf")
        else ROOT / "_build" / f"{SETTINGS['lib_name']}-{VERSION}.pdf"
    )
    if not (HTML / "nbs" / "index.html").is_file():
        sys.exit("the book is not built: make book")
    pages = build(target, words or None)
    print(f"{target}: {pages} pages, {target.stat().st_size / 2**20:.1f} MiB")
