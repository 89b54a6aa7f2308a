"""The figures of the book: pictures in files of their own, loaded when they are seen, and numbers
in the captions.

A notebook carries its pictures with it; the page takes them out. Each is written once, without loss
or at a quality that does not show, whichever is smaller, under a name made from its content. The
page says how large it is, so that nothing moves when it comes.
"""

import base64
import hashlib
import io
import re
from pathlib import Path

from docutils import nodes
from pages import on_every_page
from PIL import Image
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxRole
from sphinx.util.nodes import make_refnode

FOLDER = "_static/figures"
LARGE = 50_000  # bytes
PICTURE = re.compile(r'(<img\b[^>]*?)\ssrc="data:image/png;base64,([A-Za-z0-9+/=]+)"')
FIGURE = re.compile(r'<figure class="capslit-figure" id="([^"]+)">')
CAPTION = re.compile(
    r'(<figure class="capslit-figure" id="([^"]+)">.*?<figcaption[^>]*>)', re.DOTALL
)


def compressed(png):
    """The picture as WebP: without loss, or, if that is large, at quality 90 where that is smaller;
    small ones nearly never are.
    """
    image = Image.open(io.BytesIO(png))

    def encoded(**options):
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", **options)
        return buffer.getvalue()

    exact = encoded(lossless=True)
    return exact if len(exact) < LARGE else min(exact, encoded(quality=90), key=len)


def write_picture(folder, png):
    """Write a picture under the name of its content, unless it is there; return the name."""
    name = hashlib.sha256(png).hexdigest()[:20] + ".webp"
    target = folder / name
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(f".{id(png)}.tmp")
        scratch.write_bytes(compressed(png))
        scratch.replace(target)
    return name


def take_out_pictures(app, name, page):
    """Replace pictures inside the page by files that are loaded when they come near the window."""
    root = "../" * name.count("/")
    folder = Path(app.outdir) / FOLDER

    def replace(match):
        address = f"{root}{FOLDER}/{write_picture(folder, base64.b64decode(match[2]))}"
        return f'{match[1]} loading="lazy" decoding="async" src="{address}"'

    return PICTURE.sub(replace, page)


def remove_strays(app, exception):
    """Remove pictures that no page shows any more."""
    if exception is None and app.builder.format == "html":
        shown = set()
        for page in Path(app.outdir).glob("nbs/**/*.html"):
            shown.update(re.findall(rf"{FOLDER}/(\w+\.webp)", page.read_text(encoding="utf-8")))
        for picture in (Path(app.outdir) / FOLDER).glob("*"):
            if picture.name not in shown:
                picture.unlink()


# Numbers: the third figure of chapter 31 is Figure 31.3


def collect_figures(app, doctree):
    """Keep the anchors of a chapter's figures, in order."""
    if not hasattr(app.env, "capslit_figures"):
        app.env.capslit_figures = {}
    raw = (node.astext() for node in doctree.findall(nodes.raw))
    app.env.capslit_figures[app.env.docname] = [
        anchor for text in raw for anchor in FIGURE.findall(text)
    ]


def forget_figures(app, env, docname):
    getattr(env, "capslit_figures", {}).pop(docname, None)


def merge_figures(app, env, docnames, other):
    env.capslit_figures = getattr(env, "capslit_figures", {}) | {
        name: other.capslit_figures[name] for name in docnames if name in other.capslit_figures
    }


def figure_number(env, docname, anchor):
    """'31.3' for an anchor of a chapter, None if there is no such figure."""
    anchors = getattr(env, "capslit_figures", {}).get(docname, [])
    if anchor not in anchors:
        return None
    chapter = env.toc_secnumbers.get(docname, {}).get("", ())
    return ".".join(map(str, [*chapter, anchors.index(anchor) + 1]))


def number_captions(app, name, page):
    """Put 'Figure 31.3' before each caption, as a link to the figure."""

    def replace(match):
        number = figure_number(app.env, name, match[2])
        return match[1] + (
            f'<a class="capslit-figure-number" href="#{match[2]}">Figure {number}</a> '
            if number
            else ""
        )

    return CAPTION.sub(replace, page)


class FigureRole(SphinxRole):
    """`fig-anchor` → the figure's number as a link, wherever in the book it is."""

    def run(self):
        return [
            pending_xref(
                "",
                nodes.inline("", self.text),
                refdomain="",
                reftype="figure",
                reftarget=self.text,
                refdoc=self.env.docname,
                refexplicit=False,
                refwarn=True,
            )
        ], []


def resolve_figure(app, env, node, contnode):
    """Resolve the role `figure`: the figure of this chapter first, then that of another."""
    if node.get("reftype") != "figure":
        return None
    here, target = node["refdoc"], node["reftarget"]
    for docname in [here, *sorted(getattr(env, "capslit_figures", {}))]:
        if number := figure_number(env, docname, target):
            return make_refnode(
                app.builder, here, docname, target, nodes.inline("", f"Figure {number}")
            )
    return None


def setup(app):
    on_every_page(app, take_out_pictures)
    on_every_page(app, number_captions)
    app.connect("doctree-read", collect_figures)
    app.connect("env-purge-doc", forget_figures)
    app.connect("env-merge-info", merge_figures)
    app.connect("missing-reference", resolve_figure)
    app.connect("build-finished", remove_strays)
    app.add_role("figure", FigureRole())
    app.add_js_file("figures.js")
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
        "env_version": 1,
    }
