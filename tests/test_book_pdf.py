"""Four pages of the built book as a PDF: title page, contents, numbers, bookmarks, links within
the file.
"""

import re
import sys

import pytest
from built_book import BOOK, needs_built_book
from test_house import ROOT

pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
sys.path.insert(0, str(ROOT / "book"))
import pdf  # noqa: E402
import project  # noqa: E402

pytestmark = needs_built_book
PAGES = [
    "nbs/index",  # which loads no MathJax
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
        if depth == 1 and re.match(r"\d+\. ", title)
    ]


def test_the_pages_are_in_the_order_of_the_book_with_bookmarks(book):
    found = list(outline(book))
    parts = [title for depth, title, _ in found if depth == 0]
    assert parts == ["capslit", "Capsule regression", "Practice"]  # the first page has no part
    chapters = numbered(book)
    assert [
        "model" in chapters[0][0].lower(),
        "Notation" in chapters[1][0],
        "Bibliography" in chapters[2][0],
    ] == [True] * 3
    sections = [
        page for depth, _, page in found if depth == 2 and chapters[0][1] <= page < chapters[1][1]
    ]
    assert len(sections) >= 4 and sections == sorted(sections) and len(set(sections)) > 2
    for title, page in chapters:
        assert title.split(". ")[-1].split(":")[0][:12] in " ".join(
            book.pages[page].extract_text().split()
        ), title


def test_title_contents_and_numbers(book):
    assert (
        f"Version {project.VERSION}" in book.pages[0].extract_text()
        and book.metadata.title == f"capslit {project.VERSION}"
    )
    chapters = numbered(book)
    contents = " ".join(book.pages[1].extract_text().split())
    for title, page in chapters:
        assert title.split(". ")[-1] in contents and f" {page + 1}" in contents
        assert book.pages[page].extract_text().split()[-1] == str(page + 1)
    assert all(
        page.extract_text().split()[-1] == str(i) for i, page in enumerate(book.pages, 1) if i > 1
    )


def test_links_stay_within_the_file(book):
    inside = outside = 0
    for page in book.pages:
        for annotation in (reference.get_object() for reference in page.get("/Annots", ())):
            assert annotation["/Rect"][3] - annotation["/Rect"][1] > 2
            if "/Dest" in annotation:
                place = book.named_destinations[annotation["/Dest"]]
                assert place.page.get_object()["/Type"] == "/Page"
                inside += 1
            else:
                address = annotation["/A"]["/URI"]
                assert (
                    address.startswith(("https://", "http://", "mailto:"))
                    and "file:" not in address
                )
                outside += address.startswith(project.LATEST)
    assert inside > 10 and outside > 3
    (number,) = {page for _, title, page in outline(book) if "Bibliography" in title}
    targets = [
        book.named_destinations[a["/Dest"]]
        for page in book.pages[:number]
        for a in (r.get_object() for r in page.get("/Annots", ()))
        if "/Dest" in a
    ]
    cited = [target for target in targets if book.get_destination_page_number(target) >= number]
    assert len(cited) > 1 and len({target.top for target in cited}) > 1, (
        "citations lead to their very place in the bibliography"
    )


def test_a_book_that_is_not_built_is_said(monkeypatch, capsys):
    import runpy

    assert (BOOK / "nbs" / "index.html").is_file()
    monkeypatch.setattr(project, "HTML", ROOT / "nowhere")
    monkeypatch.setattr(sys, "argv", ["pdf.py"])
    with pytest.raises(SystemExit, match="make book"):
        runpy.run_path(str(ROOT / "book" / "pdf.py"), run_name="__main__")
