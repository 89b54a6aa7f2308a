"""Pages load less: the theme's icons are drawn into them, for its script of 1,500 icons weighs more
than a page, and in code only keywords, strings, comments and names that are defined have spans.
"""

import re
from functools import cache
from pathlib import Path

import pydata_sphinx_theme
from pages import on_every_page

STATIC = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
SCRIPT = r'<script [^>]*/fontawesome\.js[^"]*"></script>'
ICON = r'<(i|span) class="([^"]*\bfa-([a-z-]+)[^"]*)"([^>]*)></\1>'
ENTRY = r'"?([a-z0-9-]+)"?:\[(\d+),(\d+),\[([^]]*)\],"\w+","([^"]+)"\]'
PLAIN = r'<span class="(?:n|nx|nn|nb|bp|kc|mi|mf|sa|si|p|w|o|pre)">([^<]*)</span>'
STYLE = {"lg", "solid", "regular", "brands", "fw"}  # words that say how an icon looks


@cache
def icons():
    """Name → (width, height, path) of the theme's icons; the solid style comes last."""
    script = (STATIC / "scripts" / "fontawesome.js").read_text(encoding="utf-8")
    found = {}
    for name, width, height, aliases, path in re.findall(ENTRY, script):
        for alias in [name, *re.findall(r'"([a-z0-9-]+)"', aliases)]:
            found[alias] = width, height, path
    return found


def lighten(app, name, page):
    """Draw the icons that the theme's script would draw in the browser; take spans out."""

    def draw(match):
        _, classes, _, attributes = match.groups()
        names = set(re.findall(r"\bfa-([a-z0-9-]+)", classes)) - STYLE
        icon = names & icons().keys()
        if not icon:
            return match[0]
        width, height, path = icons()[icon.pop()]
        attributes = re.sub(r'\stitle="[^"]*"', "", attributes)
        return (
            f'<svg class="svg-inline--fa {classes}" aria-hidden="true" focusable="false"'
            f' viewBox="0 0 {width} {height}"{attributes}>'
            f'<path fill="currentColor" d="{path}"></path></svg>'
        )

    page = re.sub(PLAIN, r"\1", page)
    return re.sub(SCRIPT, "", re.sub(ICON, draw, page))


def setup(app):
    on_every_page(app, lighten)
