"""Formulas are typeset when the book is built, so that a browser shows them at once and loads no
program for them: MathJax, which runs here in V8, draws each as SVG, with MathML for screen readers.
"""

import importlib.util
import json
import os
import re
from functools import cache
from html import unescape
from pathlib import Path

from py_mini_racer import MiniRacer
from sphinx.errors import ExtensionError
from pages import on_every_page

PARTS = (
    "core adaptors/liteDOM input/tex input/tex/extensions/boldsymbol output/svg"
    " output/svg/fonts/tex a11y/assistive-mml"
).split()
CONFIGURATION = {
    "startup": {"typeset": False},
    "tex": {"packages": {"[+]": ["boldsymbol"], "[-]": ["noundefined", "noerrors"]}},
    "svg": {"fontCache": "global"},
}
# formulas [[TeX, whether it is displayed], …] → their drawings, and the glyphs that these share
TYPESET = """formulas => {
  const {adaptor, output} = MathJax.startup;
  output.fontCache.clearCache();
  const drawings = formulas.map(
    ([tex, display]) => adaptor.outerHTML(MathJax.tex2svg(tex, {display})));
  return JSON.stringify([drawings, adaptor.outerHTML(output.fontCache.getCache())]);
}"""
SCRIPTS = r"<script[^>]*(?:>window\.MathJax|mathjax).*?</script>"
# tags, and what MathJax must not read; formulas in the line, and displayed
PIECES = re.compile(
    r"<(script|style|pre|code|title|textarea)\b.*?</\1>|<[^>]*>"
    r"|\\\((?P<inline>[^<]+?)\\\)|\\\[(?P<display>[^<]+?)\\\]",
    re.DOTALL,
)
# In this order: what browsers do not need, and groups that hold one glyph, or nothing
SHORTER = {
    r' (?:xmlns(?::xlink)?|focusable|role|jax|class|data-c|data-mjx-\w+)="[^"]*"': "",
    r' (?:stroke|fill|stroke-width)="(?:currentColor|0)"| style="position: relative;"': "",
    r' xlink:href="#MJX-TEX-([^"]*)"': r' href="#\1"',
    r"(<(use|rect)\b[^>]*)></\2>": r"\1/>",
    r"(?<=[(, ])(-?\d+)\.\d(?=[), \"])": r"\1",  # a ten thousandth of an em
    r"(?<=\d),0(?=\))|(?<=\d),(?=-)|(?<=:) | (?=scale)|(?<=\()0(?=\.)|;(?=\")": "",
    r' data-mml-node="(?!math|mrow|mstyle|TeXAtom|mt[^"]|mo|msu)\w+"': "",
    r"<g[^>]*></g>": "",
    r"<g([^>]*)><use((?:(?! transform)[^>])*)/></g>": r"<use\1\2/>",
    r'(?<=<use)([^>]*) transform="translate\((-?\d+)\)"': r'\1 x="\2"',
    r'(?<=<use)([^>]*) transform="translate\((-?\d+),?(-?\d+)\)"': r'\1 x="\2" y="\3"',
    " data-mml-node=": " data-n=",
}
# the same for MathML: how it would look
LOOKS = re.compile(
    r' (?:xmlns|unselectable|data-mjx-\w+|fence|stretchy|\w+spacing|columnalign)="[^"]*"|<mi></mi>'
)
LEAVES = re.compile(r"<g>((?:<(?:use|rect)\b[^>]*/>)*)</g>")  # groups without a place of their own


@cache
def engine(process):
    """MathJax in V8, once for each process, for V8 does not outlive a fork."""
    package = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
    v8 = MiniRacer()
    v8.eval(f"var window, MathJax = {json.dumps(CONFIGURATION)}")
    for part in ["startup", *PARTS]:
        v8.eval((package / "static" / "mathjax" / f"{part}.js").read_text(encoding="utf-8"))
    v8.eval(f"MathJax.loader.preLoad(...{json.dumps(PARTS)})")
    v8.eval(f"MathJax.startup.getComponents(); MathJax.startup.makeMethods(); typeset = {TYPESET}")
    return v8


def typeset(formulas):
    """Drawings {(TeX, whether it is displayed): HTML}, and the glyphs that they share, as HTML;
    ValueError if MathJax cannot read a formula.
    """
    drawings, glyphs = json.loads(engine(os.getpid()).call("typeset", formulas))
    drawn = {}
    for (tex, display), drawing in zip(formulas, drawings, strict=True):
        if error := re.search('data-mjx-error="([^"]*)"', drawing):
            raise ValueError(f"MathJax cannot read {tex}: {error[1]}")
        drawn[tex, display] = shorter(drawing, tex, display)
    glyphs = glyphs.replace('id="MJX-TEX-', 'id="')
    return drawn, f'<svg class="capslit-glyphs" aria-hidden="true">{glyphs}</svg>'


def shorter(drawing, tex, display):
    """A drawing with what a browser needs: if it is displayed, also the names of the nodes between
    which a wide formula is broken into lines.
    """
    svg, tag, spoken = drawing.partition("<mjx-assistive-mml")
    for pattern, rest in SHORTER.items():
        svg = re.sub(pattern, rest, svg)
    if not display and not tex.startswith(r"\displaystyle"):
        svg, count = re.sub(' data-n="[^"]*"', "", svg), 1
        while count:
            svg, count = LEAVES.subn(r"\1", svg)
    return svg + tag + LOOKS.sub("", spoken)


def draw_formulas(app, name, page):
    """Replace each formula of a page by its drawing."""

    def key(match):
        return unescape(match["inline"] or match["display"]), bool(match["display"])

    def draw(match):
        return drawn[key(match)] if match["inline"] or match["display"] else match[0]

    page = re.sub(SCRIPTS, "", page, flags=re.DOTALL)
    found = [m for m in PIECES.finditer(page) if m["inline"] or m["display"]]
    if not found:
        return page
    try:
        drawn, glyphs = typeset(list(dict.fromkeys(map(key, found))))
    except ValueError as error:
        raise ExtensionError(f"{name}: {error}") from None
    return PIECES.sub(draw, page).replace("</article>", f"{glyphs}</article>", 1)


def setup(app):
    on_every_page(app, draw_formulas)
