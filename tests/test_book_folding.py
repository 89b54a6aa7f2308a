"""The code of the built book as a reader meets it: what is folded and what is open, in words that
are true; nothing is cut on a screen or on paper.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import json
import re
import statistics
import sys
from pathlib import Path

import pytest
from built_book import BOOK, CHAPTERS, VIEWS, Reader, needs_built_book

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))

pytestmark = needs_built_book

MODEL = "nbs/capsules/inference.html"  # mathematics, claims, figures, exported code
MODELS = ("capsules", "mixtures", "factorial", "routing", "composition", "em")
LINES_PER_100_WORDS = 13  # visible on the average page
WORST = 60


@pytest.fixture(scope="module", params=VIEWS)
def pages(request, visits):
    """Code, formulas and words of each chapter's page in one view: {page: findings}."""
    return {name: visits(request.param, name)["reading"] for name in CHAPTERS}


def test_code_is_not_cut(pages):
    cut = {name: found["cut"] for name, found in pages.items() if found["cut"]}
    assert not cut


def test_a_page_is_read_before_its_code(pages):
    density = {
        name: 100 * found["lines"] / found["words"]
        for name, found in pages.items()
        if found["cells"]
    }
    worst = sorted(density, key=density.get)[-3:]
    assert len(density) < 30 or statistics.mean(density.values()) <= LINES_PER_100_WORDS, {
        name: density[name] for name in worst
    }
    assert max(density.values()) < WORST, {name: density[name] for name in worst}


def test_equations_fit_or_can_be_reached(pages):
    assert not {name: found["unreachable"] for name, found in pages.items() if found["unreachable"]}
    assert sum(found["scrolling"] for found in pages.values()) <= len(pages) / 6


@pytest.mark.parametrize("fault", ["unreachable", "beheaded", "raised"])
def test_formulas_are_seen_from_their_beginning_in_line_with_the_text(pages, fault):
    assert not {name: found[fault] for name, found in pages.items() if found[fault]}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CHAPTERS
        if (source := ROOT / name.replace(".html", ".ipynb")).is_file()
        and source.parent.name in MODELS
    ],
)
def test_model_code_is_open(name):
    """Every exported cell of a model's chapter stands open, unless its author tagged it otherwise,
    and mathematics is in no fold but a solution or the description of a check.
    """
    source = ROOT / name.replace(".html", ".ipynb")
    html = (BOOK / name).read_text(encoding="utf-8")
    folds = re.findall(
        r'<details class="capslit-fold" data-kind="(\w+)">(.*?)</details>', html, re.DOTALL
    )
    folded = [plain(body) for kind, body in folds if kind not in ("imports", "solution", "method")]
    for cell in json.loads(source.read_text(encoding="utf-8"))["cells"]:
        code = "".join(cell["source"])
        if "hide-input" in cell["metadata"].get("tags", []):
            continue
        if (
            cell["cell_type"] == "code"
            and re.search(r"^#\|\s*export\b", code, re.MULTILINE)
            and re.search(r"^(def|class|@)", code, re.MULTILINE)
        ):
            code = re.sub(r"^#\|.*\n?", "", code, flags=re.MULTILINE).strip()
            assert plain(code, "") in plain(html), code[:200]
            assert not any(plain(code, "") in body for body in folded), code[:200]
    assert not [
        body for kind, body in folds if kind not in ("solution", "method") and 'class="math' in body
    ]


def plain(html, tags=r"<[^>]*>"):
    """The text of a piece of HTML, without spaces."""
    from html import unescape

    return re.sub(r"\s+", "", unescape(re.sub(tags, "", html)) if tags else html)


def test_summaries_are_read_as_they_are_written(reader):
    """What a summary shows is its name; it says what a press would do."""
    page = reader.open(MODEL)
    for word in ("Show", "Hide"):
        summaries = page.locator("details.capslit-fold > summary")
        texts = {re.sub(r"\s+", " ", text).strip() for text in summaries.all_inner_texts()}
        assert {
            f"{word} the check",
            f"{word} the imports",
            f"{word} the code of the figure",
        } <= texts
        assert all(text.startswith(f"{word} ") for text in texts)
        snapshot = page.locator("article").aria_snapshot()
        for text in texts:
            assert text in re.sub(r'\\"', '"', snapshot), text
        assert page.locator("details.capslit-fold > summary[aria-label]").count() == 0
        page.evaluate(
            "() => { for (const fold of document.querySelectorAll('details.capslit-fold'))"
            " fold.open = true; }"
        )


def test_one_switch_by_keyboard(reader):
    page = reader.open(MODEL)
    switch = page.locator("button.capslit-fold-switch")
    folds = page.locator("details.capslit-fold:not([data-kind=solution])")
    opens = page.locator("details.capslit-fold[open]:not([data-kind=solution])")
    assert switch.inner_text() == "Show all code" and opens.count() == 0 and folds.count() > 10
    switch.focus()
    page.keyboard.press("Enter")
    assert switch.inner_text() == "Hide all code" and opens.count() == folds.count()
    page = reader.open("nbs/capsules/special.html")  # remembered on the next page
    assert opens.count() == folds.count() > 0
    switch.focus()
    page.keyboard.press("Space")
    assert switch.inner_text() == "Show all code" and opens.count() == 0


def test_without_storage_the_switch_still_works(browser, site):
    reader = Reader(browser, site, 1280, "light")
    reader.context.add_init_script(
        "for (const name of ['getItem', 'setItem']) { const given = Storage.prototype[name];"
        " Storage.prototype[name] = function (key, ...rest) { if (key === 'capslit-code') throw new"
        " Error('no'); return given.call(this, key, ...rest); }; }"
    )
    page = reader.open(MODEL)
    page.locator("button.capslit-fold-switch").click()
    assert (
        page.locator("details.capslit-fold:not([data-kind=solution]):not([open])").count() == 0
        and not reader.errors
    )
    reader.context.close()


def test_a_link_into_a_fold_opens_it(reader):
    page = reader.open(MODEL)
    page.evaluate(
        "() => { document.querySelectorAll('details.capslit-fold div.cell_input')[2].id = 'inside';"
        " location.hash = 'inside'; }"
    )
    page.wait_for_function("() => document.getElementById('inside').closest('details').open")
    assert page.locator("details.capslit-fold[open]").count() == 1


def test_copied_code_has_the_lines_of_the_notebook(reader):
    page = reader.open("nbs/practice/use.html")
    page.set_viewport_size({"width": 390, "height": 900})
    cells = [
        cell
        for cell in json.loads((ROOT / "nbs/practice/use.ipynb").read_text(encoding="utf-8"))[
            "cells"
        ]
        if cell["cell_type"] == "code"
    ]
    code = "".join(cells[0]["source"])
    shown = page.locator("div.cell_input pre").first
    assert shown.text_content().rstrip("\n") == shown.inner_text().rstrip("\n") == code
    assert (
        shown.evaluate(
            "pre => pre.getBoundingClientRect().height /"
            " parseFloat(getComputedStyle(pre).lineHeight)"
        )
        > code.count("\n") + 2
    )  # it does wrap


@pytest.mark.parametrize("name", [MODEL, "nbs/practice/use.html", "nbs/factorial/hmm.html"])
def test_paper_cuts_nothing(browser, site, name):
    reader = Reader(browser, site, 680, "dark")  # as wide as a sheet
    page = reader.open(name)
    page.emulate_media(media="print")
    wide = page.evaluate(
        """() => [...document.querySelectorAll(
            'article pre, article table, article figure, article .cell_output')]
        .filter(e => e.getClientRects().length && !e.closest('details:not([open])'))
        .filter(e => (e.getBoundingClientRect().right > innerWidth + 1 ||
            e.scrollWidth > e.clientWidth + 1 && e.matches('pre')))
        .map(e => e.outerHTML.slice(0, 120))"""
    )
    assert not wide
    assert (
        not page.locator(
            ".bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-footer,"
            " button.capslit-fold-switch"
        )
        .filter(visible=True)
        .count()
    )
    assert page.locator("details.capslit-fold[open]").count() == 0
    assert (
        not page.locator(
            "details:is(.capslit-fold:not([data-kind=solution]), .capslit-live-code) > summary"
        )
        .filter(visible=True)
        .count()
    )
    assert (
        page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    reader.context.close()


# The rule itself


@pytest.mark.parametrize(
    "page, source, given, kind",
    [
        ("capsules/inference", "import numpy as np\nfrom sympy import Eq", {}, "imports"),
        ("capsules/inference", "import numpy as np", {"directives": ["export"]}, "imports"),
        (
            "capsules/inference",
            "def f(x):\n    assert x\n    return x",
            {"directives": ["export"]},
            None,
        ),
        ("data/sources", "def f(x):\n    return x", {"directives": ["export"]}, "code"),
        (
            "experiments/figure2",
            "def draw_errors(record):\n    return 1",
            {"directives": ["export"]},
            "figure",
        ),
        (
            "capsules/inference",
            "def f():\n    return 1\n\nclaim('saul:2.3', f)",
            {"directives": ["claim"]},
            "check",
        ),
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
    from types import SimpleNamespace

    from folding import mark_cells

    codes = [
        ("import a", []),
        ("hidden = 1", ["remove-cell"]),
        ("from b import c\nimport d", []),
        ("def f():\n    return a", []),
        ("import e", []),
    ]
    cells = [
        {
            "cell_type": "code",
            "source": code,
            "outputs": [],
            "metadata": {"tags": tags, "capslit_directives": []},
        }
        for code, tags in codes
    ]
    app, source = (
        SimpleNamespace(env=SimpleNamespace(doc2path=lambda name: f"{name}.ipynb")),
        [json.dumps({"cells": cells})],
    )
    mark_cells(app, "nbs/capsules/inference", source)
    found = [cell for cell in json.loads(source[0])["cells"] if "capslit_fold" in cell["metadata"]]
    assert [cell["source"] for cell in found] == [
        "import a\n\nfrom b import c\nimport d",
        "import e",
    ]
