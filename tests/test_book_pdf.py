"""Four pages of the built book as a PDF: title page, contents, numbers, bookmarks, links within
the file.
"""

import re
import runpy
import sys

import pytest
from built_book import BOOK, ROOT, needs_built_book

pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
import paths  # noqa: E402
import pdf  # noqa: E402
import project  # noqa: E402

pytestmark = needs_built_book
PAGES = [
    "nbs/index",
    "nbs/practice/notation",
    "nbs/capsules/definition",
    "nbs/practice/bibliography",
]  # not in the book's order


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    target = tmp_path_factory.mktemp("pdf") / "book.pdf"
    pdf.build(target, PAGES)
    reader = pypdf.PdfReader(target)
    assert target.stat().st_size < 100_000 * len(reader.pages), "pages are not compressed"
    assert [path.name for path in target.parent.iterdir()] == ["book.pdf"]
    return reader


def outline(reader, entries=None, depth=0):
    "Bookmarks as (depth, title, page)."
    for entry in reader.outline if entries is None else entries:
        if isinstance(entry, list):
            yield from outline(reader, entry, depth + 1)
        else:
            yield depth, entry.title, reader.get_destination_page_number(entry)


def numbered(book):
    "Bookmarks of chapters as (title, page); sections of the first page have no number."
    return [
        (title, page)
        for depth, title, page in outline(book)
        if depth == 1 and re.match(r"[\d.]+ ", title)
    ]


def test_the_pages_are_in_the_order_of_the_book_with_bookmarks(book):
    found = list(outline(book))
    parts = [title for depth, title, _ in found if depth == 0]
    assert parts == ["capslit", "The course", "Appendices"]  # the first page has no part
    (model, first), (notation, second), (bibliography, _) = numbered(book)
    assert "model" in model.lower() and "Notation" in notation and "Bibliography" in bibliography
    sections = [page for depth, _, page in found if depth == 2 and first <= page < second]
    assert len(sections) >= 4 and sections == sorted(sections) and len(set(sections)) > 2
    for title, page in numbered(book):
        assert title.split(". ")[-1].split(":")[0][:12] in words(book, page), title


def words(book, page):
    return " ".join(book.pages[page].extract_text().split())


def test_title_contents_and_numbers(book):
    assert f"Version {project.VERSION}" in words(book, 0)
    assert book.metadata.title == f"capslit {project.VERSION}"
    for title, page in numbered(book):
        assert title.split(". ")[-1] in words(book, 1) and f" {page + 1}" in words(book, 1)
    for page in range(1, len(book.pages)):
        assert words(book, page).split()[-1] == str(page + 1)


def links(book, page):
    return [reference.get_object() for reference in book.pages[page].get("/Annots", ())]


def test_links_stay_within_the_file(book):
    (last,) = {page for _, title, page in outline(book) if "Bibliography" in title}
    inside = outside = 0
    cited = set()
    for number in range(len(book.pages)):
        for link in links(book, number):
            assert link["/Rect"][3] - link["/Rect"][1] > 2
            if "/Dest" in link:
                place = book.named_destinations[link["/Dest"]]
                assert place.page.get_object()["/Type"] == "/Page"
                inside += 1
                if number < last and book.get_destination_page_number(place) >= last:
                    cited.add(place.top)
            else:
                address = link["/A"]["/URI"]
                assert address.startswith(("https://", "http://", "mailto:"))
                assert "file:" not in address
                outside += address.startswith(project.LATEST)
    assert inside > 10 and outside > 3
    assert len(cited) > 1, "citations lead to their very place in the bibliography"


def test_a_book_that_is_not_built_is_said(monkeypatch, capsys):
    assert (BOOK / "nbs" / "index.html").is_file()
    monkeypatch.setattr(paths, "HTML", ROOT / "nowhere")
    monkeypatch.setattr(sys, "argv", ["pdf.py"])
    with pytest.raises(SystemExit, match="make book"):
        runpy.run_path(str(ROOT / "book" / "pdf.py"), run_name="__main__")
