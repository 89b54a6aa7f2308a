"""What Jupyter Book needs to know about this project: nbdev's directives, the papers' equation numbers, a local MathJax, docstrings."""
import importlib.util
import json
import re
from pathlib import Path

from docutils.nodes import make_id
from sphinx.util.fileutil import copy_asset_file

ROOT = Path(__file__).resolve().parent.parent
TAGS = {  # what a directive of nbdev means to the book
    "hide": "remove-cell", "default_exp": "remove-cell", "hide_input": "remove-input", "hide_output": "remove-output",
}


def clean_cell(cell):
    """Drop the `#|` lines from a code cell and turn those that concern display into the book's cell tags."""
    lines = "".join(cell["source"]).splitlines(keepends=True)
    directives = [line.strip()[2:].split() for line in lines if line.startswith("#|")]
    tags = cell["metadata"].setdefault("tags", [])
    for name, *args in filter(None, directives):
        if name in TAGS:
            tags.append(TAGS[name])
        if name == "eval:" and args == ["false"]:
            tags.append("skip-execution")
    source = "".join(line for line in lines if not line.startswith("#|")).strip("\n")
    if not source:  # nothing but directives
        tags.append("remove-cell")
    cell["source"] = source


def read_notebook(app, docname, source):
    """Clean the code cells of a notebook as it is read; what is executed and shown is the rest."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            clean_cell(cell)
    source[0] = json.dumps(notebook)


# Equations: a label names its source and number, `saul-2-16` → "Saul 2.16"; the others are numbered by chapter

SOURCES = {"saul": "Saul"}


def source_number(label):
    """'Saul 2.16' for the label saul-2-16, None for a label of our own."""
    match = re.fullmatch(rf"({'|'.join(SOURCES)})-([a-z]|\d+)-(\d+)", label, re.IGNORECASE)
    return match and f"{SOURCES[match[1].lower()]} {match[2].upper()}.{match[3]}"


def number_equations(app, env):
    """Give each labelled equation its source's number, and number the rest of each chapter without gaps."""
    own = {}  # docname → how many equations of our own so far
    for label, (docname, _) in env.get_domain("math").equations.items():
        numbers = env.toc_fignumbers.get(docname, {}).get("displaymath", {})
        node_id = make_id(f"equation-{label}")
        if node_id not in numbers:
            continue
        if source_number(label):
            numbers[node_id] = (source_number(label),)
        else:
            own[docname] = own.get(docname, 0) + 1
            numbers[node_id] = (*numbers[node_id][:1], own[docname])
    return []


# Scripts: nothing is fetched from elsewhere

def use_local_mathjax(app, config):
    """One file, fonts included (as SVG paths), copied into the book."""
    config.mathjax_path = "mathjax/tex-svg-full.js"
    options = dict(config.mathjax3_config or {})
    options["svg"] = {"fontCache": "global", "mtextInheritFont": True}
    options["options"] = {"enableMenu": False, "processHtmlClass": "tex2jax_process|mathjax_process|math|output_area",
                          "ignoreHtmlClass": "tex2jax_ignore|mathjax_ignore|document"}
    config.mathjax3_config = options


def copy_mathjax(app, exception):
    if exception is None and app.builder.format == "html":
        package = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
        target = Path(app.outdir) / "_static" / "mathjax"
        target.mkdir(parents=True, exist_ok=True)
        copy_asset_file(str(package / "static" / "mathjax" / "tex-svg-full.js"), str(target))


# API page: docstrings as reStructuredText, linked to the chapters

def chapter_of(module):
    """The chapter ('nbs/capsules/inference') that a generated module came from."""
    path = ROOT / (module.replace(".", "/") + ".py")
    match = re.search(r"File to edit: \.\./(\S+)\.ipynb", path.read_text(encoding="utf-8")) if path.is_file() else None
    return match and match[1]


def _escape(text):
    """Prose of a docstring, safe in reStructuredText: `code` is code, $maths$ is maths, stars and trailing underscores are themselves."""
    def piece(match):
        code, maths, paper, number, char = match.group("code", "maths", "paper", "number", "char")
        if code:
            return f"``{code.strip('`')}``"
        if maths:
            return f":math:`{maths}`"
        if paper:
            return f":saul:`{paper}`"
        return "\\" + char
    return re.sub(r"(?P<code>``[^`]+``|(?<!:)`[^`]+`(?!_))|(?<!\\)\$(?P<maths>[^$\n]+)\$|(?P<paper>Saul (?P<number>[A\d]+\.\d+))|(?P<char>[*|]|(?<=\w)_(?!\w))",
                  piece, text)


def rewrite_docstring(app, what, name, obj, options, lines):
    """Turn Markdown habits into reStructuredText and end with a link to the chapter; runs before napoleon."""
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        field = re.match(r"^[\w*, ]+ : ", line)  # "n_samples : int" belongs to napoleon
        if not in_example and not field and not re.match(r"^\s*[-=~]{3,}\s*$", line):
            bare_name = re.fullmatch(r"\**\w+_?", line) and i + 1 < len(lines) and lines[i + 1].startswith("    ")
            if not bare_name:
                lines[i] = _escape(line)
    chapter = chapter_of(getattr(obj, "__module__", None) or "") if what in ("function", "class", "exception") else None
    if chapter:
        lines[:] = [*lines[:1], "", f"Chapter: :doc:`/{chapter}`.", "", *lines[1:]] if lines else [f"Chapter: :doc:`/{chapter}`."]


def saul_role(name, rawtext, text, lineno, inliner, options=None, content=None):
    """`Saul 2.16` in a docstring → a link to the equation, under the name that stands there."""
    from docutils import nodes
    from sphinx.addnodes import pending_xref

    label = "saul-" + text.split()[1].replace(".", "-")
    env = inliner.document.settings.env
    known = {key.lower(): key for key in env.capslit_labels}
    if label.lower() not in known:
        return [nodes.Text(text)], []
    xref = pending_xref("", nodes.inline("", text), refdomain="capslit", reftype="equation",
                        reftarget=known[label.lower()], refdoc=env.docname, refexplicit=True, refwarn=True)
    return [xref], []


def resolve_saul(app, env, node, contnode):
    from sphinx.util.nodes import make_refnode

    if node.get("refdomain") != "capslit":
        return None
    found = env.get_domain("math").equations.get(node["reftarget"])
    return found and make_refnode(app.builder, node["refdoc"], found[0], make_id(f"equation-{node['reftarget']}"), contnode)


def collect_labels(app, env, docnames):
    """Labels of the papers' equations in the chapters of this book, known before any page is read."""
    env.capslit_labels = set()
    for docname in env.found_docs:
        text = Path(env.doc2path(docname)).read_text(encoding="utf-8")
        env.capslit_labels.update(re.findall(r"\$\$ \((saul-[\w-]+)\)", text))


def setup(app):
    app.add_config_value("comments_config", {}, "html")  # set by Jupyter Book for an extension that we leave out
    app.connect("config-inited", use_local_mathjax)
    app.connect("env-before-read-docs", collect_labels)
    app.connect("source-read", read_notebook)
    app.connect("env-get-updated", number_equations, priority=900)  # after Sphinx has numbered them its way
    app.connect("missing-reference", resolve_saul)
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=100)
    app.connect("build-finished", copy_mathjax)
    app.add_role("saul", saul_role)
    app.config.html_static_path.append(str(ROOT / "book" / "_static"))
    app.add_css_file("capslit.css", priority=900)
    app.add_css_file("claims.css", priority=901)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
