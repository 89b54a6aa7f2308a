"""The figures of the book are numbered, and their pictures are files that are loaded when seen.

A notebook carries its pictures as text inside its outputs, which every reader of the page would
have to load. Each is written once, without loss, under a name made from its content.
"""

import base64
import hashlib
import io
import re
from pathlib import Path

from docutils import nodes
from pages import on_every_page
from PIL import Image
from paths import whole
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxRole
from sphinx.util.nodes import make_refnode

FOLDER = "_static/figures"
PICTURE = r'(<img\b[^>]*?)\ssrc="data:image/png;base64,([A-Za-z0-9+/=]+)"'
FIGURE = r'<figure class="capslit-figure" id="([^"]+)">'
CAPTION = re.compile(rf"({FIGURE}.*?<figcaption[^>]*>)", re.DOTALL)


def write_picture(folder, png):
    """Write a picture under the name of its content, unless it is there; return the name."""
    name = hashlib.sha256(png).hexdigest()[:20] + ".webp"
    if not (folder / name).is_file():
        with whole(folder / name) as scratch:
            Image.open(io.BytesIO(png)).save(scratch, "WEBP", lossless=True)
    return name


def mend(app, name, page):
    """Replace pictures inside the page by files, and put 'Figure 31.3' before each caption."""
    root = "../" * name.count("/")
    folder = Path(app.outdir) / FOLDER

    def file(match):
        address = f"{root}{FOLDER}/{write_picture(folder, base64.b64decode(match[2]))}"
        return f'{match[1]} loading="lazy" decoding="async" src="{address}"'

    def numbered(match):
        caption, anchor = match.groups()
        number = figure_number(app.env, name, anchor)
        link = f'<a class="capslit-figure-number" href="#{anchor}">Figure {number}</a> '
        return caption + link if number else caption

    return CAPTION.sub(numbered, re.sub(PICTURE, file, page))


def collect(app, doctree):
    """Keep the anchors of a page's figures, in order, with what Sphinx keeps of each page."""
    raw = "\n".join(node.astext() for node in doctree.findall(nodes.raw))
    app.env.metadata[app.env.docname]["capslit_figures"] = re.findall(FIGURE, raw)


def figure_number(env, docname, anchor):
    """'31.3' for the third figure of chapter 31, None if there is no such figure."""
    anchors = env.metadata[docname].get("capslit_figures", [])
    if anchor not in anchors:
        return None
    chapter = env.toc_secnumbers.get(docname, {}).get("", ())
    return ".".join(map(str, [*chapter, anchors.index(anchor) + 1]))


class FigureRole(SphinxRole):
    """`fig-anchor` → the figure's number as a link, wherever in the book it is."""

    def run(self):
        node = pending_xref(
            "", reftype="figure", reftarget=self.text, refdoc=self.env.docname, refwarn=True
        )
        node += nodes.inline("", self.text)
        return [node], []


def resolve(app, env, node, contnode):
    """Resolve the role `figure`: the figure of this chapter first, then that of another."""
    if node.get("reftype") == "figure":
        here, target = node["refdoc"], node["reftarget"]
        for docname in [here, *sorted(env.found_docs)]:
            if number := figure_number(env, docname, target):
                text = nodes.inline("", f"Figure {number}")
                return make_refnode(app.builder, here, docname, target, text)


def setup(app):
    on_every_page(app, mend)
    app.connect("doctree-read", collect)
    app.connect("missing-reference", resolve)
    app.add_role("figure", FigureRole())
