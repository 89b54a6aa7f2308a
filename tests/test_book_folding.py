"""The code of the built book as a reader meets it: what is folded and what is open, in words that
are true; nothing is cut on a screen or on paper.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import json
import re
import statistics
from html import unescape

import pytest
import yaml
from built_book import CHAPTERS, ROOT, VIEWS, html, needs_built_book
from conftest import together

pytestmark = needs_built_book

MODEL = "nbs/deeper/joint.html"  # mathematics, claims, a figure, exported code
MODELS = ("capsules", "mixtures", "factorial", "routing", "composition", "em")
LINES_PER_100_WORDS = 13  # visible on the average page
WORST = 60
TEXTS = ("solution", "method", "exercises")  # the folds that hold mathematics
FOLDS = "details.capslit-fold:not([data-kind=solution])"


@pytest.fixture(scope="module", params=VIEWS)
def pages(request, visits):
    """Code, formulas and words of each chapter's page in one view: {page: findings}."""
    return {name: visits(request.param, name)["reading"] for name in CHAPTERS}


@together("fault", ["cut", "unreachable", "beheaded", "raised"])
def test_nothing_is_cut_and_formulas_are_seen_in_line_with_the_text(pages, fault):
    assert not {name: found[fault] for name, found in pages.items() if found[fault]}


def test_most_formulas_fit(pages):
    assert sum(found["scrolling"] for found in pages.values()) <= len(pages) / 6


def test_a_page_is_read_before_its_code(pages):
    density = {
        name: 100 * found["lines"] / found["words"]
        for name, found in pages.items()
        if found["cells"]
    }
    worst = sorted((lines, name) for name, lines in density.items())[-3:]
    mean = statistics.mean(density.values())
    assert (len(density) < 30 or mean <= LINES_PER_100_WORDS) and worst[-1][0] < WORST, worst


# The course: its chapters are short, begin with a picture, and have more of them on the way
SCREENS, COURSE_SCREENS, COURSE_WORDS = 12, 130, 45_000
BETWEEN_PICTURES = 3.5  # screens without a picture; on the average of a chapter, three
PARAGRAPH = 110  # words


@pytest.fixture(scope="module")
def course(visits):
    """The findings in each chapter of the course, the epilogue the last."""
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    names = [f"{chapter['file']}.html" for chapter in parts[0]["chapters"]]
    assert len(names) == 13
    return {name: visits("desk-light", name) for name in names if name in CHAPTERS}


@together(
    "fault, holds",
    [
        ("long", lambda extent: extent["screens"] <= SCREENS),
        ("no picture on the first screen", lambda extent: extent["first"] < 1),
        ("few pictures", lambda extent: 3 * extent["pictures"] >= extent["screens"]),
        ("far between pictures", lambda extent: extent["gap"] <= BETWEEN_PICTURES),
        ("a long paragraph", lambda extent: extent["longest"][0] <= PARAGRAPH),
    ],
)
def test_chapters_of_the_course_are_short_and_have_pictures(course, fault, holds):
    extents = {name: found["extent"] for name, found in course.items()}
    assert not {name: extent for name, extent in extents.items() if not holds(extent)}, fault


def test_the_course_is_short(course):
    numbered = list(course.values())[:12]
    assert sum(found["extent"]["screens"] for found in numbered) <= COURSE_SCREENS
    assert sum(found["reading"]["words"] for found in course.values()) <= COURSE_WORDS


def cells(name):
    """The code cells of a chapter's notebook, with their tags; none where it is a page of text."""
    path = ROOT / name.replace(".html", ".ipynb")
    found = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
    return [
        ("".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in found
        if cell["cell_type"] == "code"
    ]


def plain(text):
    """A text without spaces."""
    return re.sub(r"\s+", "", text)


def words(markup):
    """The text of a piece of HTML, without spaces."""
    return plain(unescape(re.sub(r"<[^>]*>", "", markup)))


@pytest.mark.parametrize("name", [name for name in CHAPTERS if name.split("/")[1] in MODELS])
def test_model_code_is_open(name):
    """Every exported cell of a model's chapter stands open, unless its author tagged it otherwise,
    and mathematics is in no fold but a solution or the description of a check.
    """
    fold = r'<details class="capslit-fold" data-kind="(\w+)">(.*?)</details>'
    folds = re.findall(fold, html(name), re.DOTALL)
    folded = [words(body) for kind, body in folds if kind not in ("imports", *TEXTS)]
    page = words(html(name))
    for code, tags in cells(name):
        exported = re.search(r"^#\|\s*export\b", code, re.MULTILINE)
        defines = re.search(r"^(def|class|@)", code, re.MULTILINE)
        if exported and defines and "hide-input" not in tags:
            code = plain(re.sub(r"^#\|.*\n?", "", code, flags=re.MULTILINE))
            assert code in page, code[:200]
            assert not any(code in body for body in folded), code[:200]
    for kind, body in folds:
        assert kind in TEXTS or 'class="math' not in body


def test_summaries_are_read_as_they_are_written(reader):
    """What a summary shows is its name; it says what a press would do."""
    page = reader.open(MODEL)
    summaries = page.locator("details.capslit-fold > summary")
    for word in ("Show", "Hide"):
        texts = {re.sub(r"\s+", " ", text).strip() for text in summaries.all_inner_texts()}
        kinds = ("the check", "the imports", "the code of the figure")
        assert {f"{word} {kind}" for kind in kinds} <= texts
        assert all(text.startswith(f"{word} ") for text in texts)
        snapshot = page.locator("article").aria_snapshot().replace('\\"', '"')
        assert not [text for text in texts if text not in snapshot]
        assert page.locator("details.capslit-fold > summary[aria-label]").count() == 0
        page.evaluate(
            "() => { for (const fold of document.querySelectorAll('details.capslit-fold'))"
            " fold.open = true; }"
        )


def test_one_switch_by_keyboard(readers):
    reader = readers()
    page = reader.open(MODEL)
    switch = page.locator("button.capslit-fold-switch")
    folds, opens = page.locator(FOLDS), page.locator(f"{FOLDS}[open]")
    assert switch.inner_text() == "Show all code" and opens.count() == 0 and folds.count() > 10
    switch.focus()
    page.keyboard.press("Enter")
    assert switch.inner_text() == "Hide all code" and opens.count() == folds.count()
    reader.open("nbs/capsules/definition.html")  # remembered on the next page
    assert opens.count() == folds.count() > 0
    switch.focus()
    page.keyboard.press("Space")
    assert switch.inner_text() == "Show all code" and opens.count() == 0


def test_without_storage_the_switch_still_works(readers):
    reader = readers()
    reader.context.add_init_script(
        "for (const name of ['getItem', 'setItem']) { const given = Storage.prototype[name];"
        " Storage.prototype[name] = function (key, ...rest) { if (key === 'capslit-code') throw new"
        " Error('no'); return given.call(this, key, ...rest); }; }"
    )
    page = reader.open(MODEL)
    page.locator("button.capslit-fold-switch").click()
    assert page.locator(f"{FOLDS}:not([open])").count() == 0 and not reader.errors


def test_a_link_into_a_fold_opens_it(reader):
    page = reader.open(MODEL)
    page.evaluate(
        "() => { document.querySelectorAll('details.capslit-fold div.cell_input')[2].id = 'inside';"
        " location.hash = 'inside'; }"
    )
    page.wait_for_function("() => document.getElementById('inside').closest('details').open")
    assert page.locator("details.capslit-fold[open]").count() == 1


def test_copied_code_has_the_lines_of_the_notebook(readers):
    name = "nbs/practice/use.html"
    shown = readers(390).open(name).locator("div.cell_input pre").first
    code, _ = cells(name)[0]
    assert shown.text_content().rstrip("\n") == shown.inner_text().rstrip("\n") == code
    lines = shown.evaluate(
        "pre => pre.getBoundingClientRect().height / parseFloat(getComputedStyle(pre).lineHeight)"
    )
    assert lines > code.count("\n") + 2  # it does wrap


UNPRINTED = (
    ".bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-footer, button.capslit-fold-switch,"
    " details:is(.capslit-fold:not([data-kind=solution]), .capslit-live-code) > summary"
)


@pytest.mark.parametrize(
    "name", ["nbs/capsules/inference.html", "nbs/practice/use.html", "nbs/factorial/hmm.html"]
)
def test_paper_cuts_nothing(readers, name):
    page = readers(680, "dark").open(name)  # as wide as a sheet
    page.emulate_media(media="print")
    wide = page.evaluate(
        """() => [...document.querySelectorAll(
            'article pre, article table, article figure, article .cell_output')]
        .filter(e => e.getClientRects().length && !e.closest('details:not([open])'))
        .filter(e => (e.getBoundingClientRect().right > innerWidth + 1 ||
            e.scrollWidth > e.clientWidth + 1 && e.matches('pre')))
        .map(e => e.outerHTML.slice(0, 120))"""
    )
    assert not wide and page.locator("details.capslit-fold[open]").count() == 0
    assert not page.locator(UNPRINTED).filter(visible=True).count()
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"


# The rule itself


@together(
    "page, source, given, kind",
    [
        ("capsules/inference", "import numpy as np\nfrom sympy import Eq", {}, "imports"),
        ("capsules/inference", "import numpy as np", {"directives": ["export"]}, "imports"),
        ("capsules/inference", "def f(x):\n    assert x", {"directives": ["export"]}, None),
        ("data/sources", "def f(x):\n    return x", {"directives": ["export"]}, "code"),
        ("experiments/figure2", "def draw_errors(): 1", {"directives": ["export"]}, "figure"),
        ("capsules/inference", "claim('saul:2.3', f)", {"directives": ["claim"]}, "check"),
        ("capsules/inference", "assert f(1) == 2", {}, "check"),
        ("capsules/inference", "assert f(1) == 2", {"tags": ["open"]}, None),
        ("capsules/inference", "Derivation(left, steps)", {}, "result"),
        ("capsules/inference", "run()", {}, None),
        ("capsules/inference", "run()", {"tags": ["check"]}, "check"),
        ("practice/use", "model.fit(X, y)\nassert model.score(X, y) > 0.9", {}, None),
        ("practice/use", "assert model.score(X, y) > 0.9", {}, "check"),
        ("practice/use", "%pip install capslit", {}, None),
    ],
)
def test_rule(page, source, given, kind):
    from folding import reading

    found = reading(page, source, **given)
    assert (found and found[0]) == kind


def test_imports_in_a_row_are_one_fold():
    from folding import mark_cells

    codes = {
        "import a": [],
        "hidden = 1": ["remove-cell"],
        "from b import c\nimport d": [],
        "def f():\n    return a": [],
        "import e": [],
    }
    cells = [
        {"cell_type": "code", "source": code, "outputs": [], "metadata": {"tags": tags}}
        for code, tags in codes.items()
    ]
    notebook = {"cells": cells}
    mark_cells("nbs/capsules/inference", notebook)
    found = [cell["source"] for cell in notebook["cells"] if "capslit_fold" in cell["metadata"]]
    assert found == ["import a\n\nfrom b import c\nimport d", "import e"]
