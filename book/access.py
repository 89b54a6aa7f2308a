"""Pages for everyone: what screen readers, keyboards and weak eyes need beyond what the theme
gives.

`book/_static/access.js` does what is known only when the page is laid out: what scrolls can be
reached with the keyboard.
"""

import re
from functools import cache

from pages import on_every_page
from search import plain, symbols

characters = cache(symbols)
FORMULA_AS_HEADER = (
    r"(<th\b[^>]*>\s*(?:<p>)?\s*<span"
    r' class="math[^"]*")(>\\\((.*?)\\\)</span>)(\s*(?:</p>)?\s*</th>)'
)

MENDED = [
    # the bar at the side has the logo and the search beside the table of contents: a region with a
    # name
    (
        r'<div id="pst-primary-sidebar" class="',
        r'<div id="pst-primary-sidebar" role="region" aria-label="Book" class="',
    ),
    # a header cell without words is no header
    (r"<th\b([^>]*)>\s*(?:<p>\s*</p>)?\s*</th>", r"<td\1></td>"),
    # whoever has chosen no theme gets that of the system, at once
    (r'(dataset\.mode = localStorage\.getItem\("mode"\) \|\| )""', r'\1"auto"'),
    (
        r'(dataset\.theme = localStorage\.getItem\("theme"\) \|\| )""',
        r'\1(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")',
    ),
    (r'data-default-mode=""', r'data-default-mode="auto"'),
    # ARIA 1.3 gives up the role of entries in a bibliography: they are items of a list
    (r'role="doc-biblioentry"', r'role="listitem"'),
]


def mend(app, name, page):
    """Mend what the theme and the notebooks' outputs leave open."""
    for pattern, replacement in MENDED:
        page = re.sub(pattern, replacement, page)
    return re.sub(FORMULA_AS_HEADER, read_formula, page)


def read_formula(match):
    """A header that is a formula alone is read in letters: browsers do not take a formula for a
    name.
    """
    start, formula, tex, end = match.groups()
    return (
        f'{start} aria-hidden="true"{formula}<span'
        f' class="visually-hidden">{plain(tex, characters()).strip()}</span>{end}'
    )


def setup(app):
    on_every_page(app, mend)
    app.add_js_file("access.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
