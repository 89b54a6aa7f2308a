"""The search finds sections, forgives misspellings, and works from files, where Sphinx's does not.

The text of the pages, without code and formulas, goes into one script that the search page loads.
MiniSearch (`book/_static/minisearch.js`) indexes it in the browser.
"""

import base64
import gzip
import html
import json
import re
from pathlib import Path

import yaml
from names import PLAIN
from pages import on_every_page
from project import contents

# what a reader would type and a chapter's text does not say, or says less often than others
KEYWORDS = yaml.safe_load(Path(__file__).with_name("keywords.yml").read_text(encoding="utf-8"))
GUIDE = ("nbs/practice/more", "nbs/practice/scale")
LEFT_OUT = (
    r"<(script|style|svg|pre|summary)\b.*?</\1>"
    r'|<a class="headerlink".*?</a>|<p class="capslit-reference">.*?</p>'
    r'|<details class="claim-trials".*?</details>|<dl class="field-list.*?</dl>'
    r'|<details class="capslit-fold" data-kind="solution">.*?</details>'
    r'|<table class="autosummary.*?</table>'
    r"|<td\b[^>]*>[^a-zA-Z]*</td>"
)
FORMULA = r"<mjx-container.*?</mjx-container>"


def words(markup):
    """The text of a piece of HTML, without code, formulas, pictures and cells of numbers."""
    text = re.sub(FORMULA, " … ", markup, flags=re.DOTALL)
    text = re.sub(LEFT_OUT, " ", text, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return re.sub(r"\s+", " ", text).strip()


def sections(name, page):
    """The sections of a page as records for the index; the first has the page's own fields."""
    article = re.search(r"<article\b.*?</article>", page, re.DOTALL)
    pieces = re.split(r'<section\b[^>]*?\bid="([^"]+)"[^>]*>', article[0] if article else "")
    subtitle = re.search(r"</h1>\s*<blockquote>(.*?)</blockquote>", page, re.DOTALL)
    title = ""
    for anchor, markup in zip(pieces[1::2], pieces[2::2]):
        heading, _, text = re.sub("<dl class=.py.*", "", markup, flags=re.DOTALL).partition("</h")
        heading = re.sub(r"^[\d.]+ ", "", words(heading))
        record = {"page": name, "anchor": anchor, "text": words(text.partition(">")[2])}
        if title:
            record["heading"] = heading
        else:
            title = heading
            record |= {"anchor": "", "title": title, "keywords": KEYWORDS.get(name, "")}
            record["subtitle"] = words(subtitle[1]) if subtitle else ""
        yield record | {"of": title}


def weight(page):
    """How much a page counts: the course and the guide before other chapters, these before the
    experiments and the reference.
    """
    if page in {*contents()[1][1], *GUIDE}:
        return 2
    return 0.5 if page.startswith(("nbs/experiments/", "nbs/api/")) else 1


def equations(app):
    """The papers' equations, which a reader finds by their numbers."""
    for label, (docname, number) in app.env.get_domain("math").equations.items():
        if number[0].isalpha():
            of = app.env.titles[docname].astext()
            yield {"page": docname, "anchor": f"equation-{label}", "name": number, "of": of}


def entries(app):
    """The entries of the reference, those of the plain form last."""
    objects = app.env.get_domain("py").get_objects()
    for full, _, kind, docname, anchor, _ in sorted(objects, key=lambda o: o[0].startswith(PLAIN)):
        if kind in ("class", "function", "method", "exception"):
            last = full.rpartition(".")[2]
            yield {"page": docname, "anchor": anchor, "name": last, "of": full}


def write_index(app, exception):
    """Write the sections of all pages, the papers' equations and the entries of the reference."""
    if exception is not None or app.builder.format != "html":
        return
    records = []
    for name in sorted(app.env.found_docs):
        path = Path(app.outdir, f"{name}.html")
        if path.is_file():
            records += sections(name, path.read_text(encoding="utf-8"))
    records += [*equations(app), *entries(app)]
    for record in records:
        record["weight"] = weight(record["page"])
    data = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()
    target = Path(app.outdir, "_static", "search-data.js")
    target.write_text(f'capslitSearch("{packed}");\n', encoding="utf-8")


def replace_search(app, name, page):
    """Leave Sphinx's search out of all pages, and load this one where it is used."""
    sphinx = r'<script [^>]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>\s*'
    page = re.sub(sphinx, "", page)
    if name == "search":
        files = ("minisearch.js", "search.js", "search-data.js")
        scripts = "".join(f'<script defer src="_static/{file}"></script>\n' for file in files)
        page = page.replace("</head>", f"{scripts}</head>")
        results = '<div id="search-results"'
        page = page.replace(f"{results}>", f'{results} aria-live="polite">')
    return page


def setup(app):
    on_every_page(app, replace_search)
    app.connect("build-finished", write_index)
