"""Three pages of the built book as a PDF: contents, numbers, bookmarks, links within the file."""

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


def test_pages_have_the_order_of_the_book_bookmarks_and_numbers(book):
    titles = [entry.title for entry in book.outline if not isinstance(entry, list)]
    places = [
        [word in title for title in titles].index(True)
        for word in ("capslit", "Contents", "model", "Notation", "Bibliography")
    ]
    assert places == sorted(places)
    assert f"Version {project.VERSION}" in book.pages[0].extract_text()
    assert book.metadata.title == f"capslit {project.VERSION}"
    assert all(
        page.extract_text().split()[-1] == str(i) for i, page in enumerate(book.pages, 1) if i > 1
    )


def test_links_stay_within_the_file(book):
    inside = 0
    for page in book.pages:
        for annotation in (reference.get_object() for reference in page.get("/Annots", ())):
            address = str(annotation.get("/A", {}).get("/URI", ""))
            inside += "/Dest" in annotation
            assert not address.startswith("file:"), address
    assert inside > 15


def test_a_book_that_is_not_built_is_said(monkeypatch, capsys):
    import runpy

    assert (BOOK / "nbs" / "index.html").is_file()
    monkeypatch.setattr(project, "HTML", ROOT / "nowhere")
    monkeypatch.setattr(sys, "argv", ["pdf.py"])
    with pytest.raises(SystemExit, match="make book"):
        runpy.run_path(str(ROOT / "book" / "pdf.py"), run_name="__main__")
