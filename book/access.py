"""Pages for everyone: what screen readers need beyond what the theme and the notebooks give."""

import re

from pages import on_every_page

FORMULA_AS_HEADER = (
    r'(<th\b[^>]*>\s*(?:<p>)?\s*<span class="math[^"]*")'
    r"(>\\\((.*?)\\\)</span>)(?=\s*(?:</p>)?\s*</th>)"
)
MENDED = {
    # the bar at the side has the logo and the search too: a region with a name
    r'<div id="pst-primary-sidebar" class="': (
        r'<div id="pst-primary-sidebar" role="region" aria-label="Book" class="'
    ),
    # a header cell without words is no header
    r"<th\b([^>]*)>\s*(?:<p>\s*</p>)?\s*</th>": r"<td\1></td>",
    # whoever has chosen no theme gets that of the system, at once
    r'(dataset\.theme = localStorage\.getItem\("theme"\) \|\| )"auto"': (
        r'\1(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")'
    ),
    # ARIA 1.3 gives up the role of entries in a bibliography: they are items of a list
    r'role="doc-biblioentry"': r'role="listitem"',
}


def read_formula(match):
    """A header that is a formula alone is read in letters: browsers take no formula for a name."""
    start, formula, tex = match.groups()
    letters = " ".join(re.findall(r"[A-Za-z0-9]+", tex))
    return f'{start} aria-hidden="true"{formula}<span class="visually-hidden">{letters}</span>'


def mend(app, name, page):
    """Mend what the theme and the notebooks' outputs leave open."""
    for pattern, replacement in MENDED.items():
        page = re.sub(pattern, replacement, page)
    return re.sub(FORMULA_AS_HEADER, read_formula, page)


def setup(app):
    on_every_page(app, mend)
