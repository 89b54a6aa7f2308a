"""The built book for everyone: axe finds nothing, in either theme; what scrolls can be reached with
the keyboard.
"""

import pytest
from built_book import PAGES, audit, needs_built_book
from conftest import together

pytest.importorskip(
    "axe_playwright_python", reason="axe is not installed: pip install axe-playwright-python"
)
pytestmark = needs_built_book

# Colours come from a few style sheets, so a few pages have them all; measuring every word of a page
# takes a minute.
COLOURFUL = [
    "nbs/index.html",
    "nbs/plotting.html",
    "nbs/cli.html",
    "nbs/practice/bibliography.html",
    "nbs/proofs/mutants.html",
    "search.html?q=momentum",
]


@together("name", PAGES)
def test_no_rule_is_broken(visits, name):
    findings = visits("phone-dark", name)["axe"]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", COLOURFUL)
def test_contrast_is_enough(readers, theme, name):
    findings = audit(readers(1280, theme).open(name), "color-contrast")
    assert not findings, "\n".join(findings)


def test_axe_finds_what_is_wrong(readers):
    page = readers(390).open("nbs/cli.html")
    page.evaluate(
        """() => document.querySelector('article').insertAdjacentHTML('beforeend',
        '<table><tr><th></th><td>1</td></tr></table><button></button>'
        + '<p style="color: #999; background: #aaa">pale</p>'
        + '<p>Words, and among them <a href="#" style="text-decoration: none; font: inherit; '
        + 'border: 0; color: #d00">a link</a> told by its colour.</p>')"""
    )
    rules = {finding.split(":")[0] for finding in audit(page) + audit(page, "color-contrast")}
    assert {"empty-table-header", "button-name", "color-contrast", "link-in-text-block"} <= rules


def test_what_scrolls_can_be_reached(readers):
    page = readers(390).open("nbs/factorial/chains.html")
    formula = page.locator("div.math[tabindex='0']").first
    formula.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("formula => formula.scrollLeft > 0", arg=formula.element_handle())
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelectorAll(\"div.math[tabindex='0']\").length < 3")
