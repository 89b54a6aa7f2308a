"""Names in chapters lead to the reference, and the reference leads back to the cells.

Sphinx resolves references to Python objects, but only where they are written as such. Here each
cell that defines public names gets a line of such references, and so does the first mention of a
public name in each section of the text.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

from dependencies import module_of, modules, notebooks, public, tree
from docutils import nodes
from modules import definitions, documented
from paths import ROOT
from sphinx.addnodes import desc, pending_xref

PLAIN = "capslit.capsules.plain."  # repeats names of the engine: elsewhere the engine's are meant


def note_definitions(cell):
    """Note which public names a code cell defines, before nbdev's lines are dropped."""
    code = "".join(cell["source"])
    if re.match(r"#\|\s*exports?\b", code):
        cell["metadata"]["capslit_names"] = definitions(ast.parse(code).body)


@cache
def entries():
    """Where the reference documents each public function and class: {last name: {full names}}."""
    found = {}
    for module, path in modules().items():
        if path.name != "__init__.py":
            for name in definitions(tree(path).body):
                found.setdefault(name, set()).add(documented(module, name))
    return found


def entry(text, module):
    """The name in the reference that a name in the text of a chapter means, or None if it may mean
    several things.
    """
    text = text.removesuffix("()")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", text):
        return None
    if text.startswith("capslit."):
        package, _, last = text.rpartition(".")
        return public(package).get(last, text) if package in modules() else text
    first, dot, rest = text.partition(".")
    known = entries().get(first, set())
    if module and documented(module, first) in known:
        return documented(module, first) + dot + rest
    # words such as `mean` have meanings of their own
    telling = "_" in first or re.search(r"[a-z][A-Z]", first)
    engine = [name for name in known if not name.startswith(PLAIN)]
    return engine[0] + dot + rest if telling and len(engine) == 1 else None


@cache
def chapters():
    """The page ('nbs/capsules/inference') that each module comes from, and its title."""
    found = {}
    for path in notebooks():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        title = "".join(cells[0]["source"]).partition("\n")[0].lstrip("# ")
        found[module_of(path)] = path.relative_to(ROOT).with_suffix("").as_posix(), title
    return found


def reference(env, target, content):
    """A reference to a Python object, which stays plain text if there is none."""
    node = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refdoc=env.docname)
    node += content
    return node


def ancestors(node):
    """The nodes above a node, nearest first."""
    while (node := node.parent) is not None:
        yield node


def link_names(app, doctree):
    """Turn names in the text and definitions in cells into references."""
    path = Path(app.env.doc2path(app.env.docname))
    module = module_of(path) if path.suffix == ".ipynb" else None
    linked = set()
    for literal in list(doctree.findall(nodes.literal)):
        above = list(ancestors(literal))
        plain = nodes.title | nodes.reference | nodes.term | pending_xref
        if any(isinstance(node, plain) or "sig" in node.get("classes", ()) for node in above):
            continue
        part = next((node for node in above if isinstance(node, nodes.section | desc)), None)
        target = entry(literal.astext(), module)
        if target and (id(part), target) not in linked:
            linked.add((id(part), target))
            literal.replace_self(reference(app.env, target, literal.deepcopy()))
    for cell in doctree.findall(nodes.container):
        names = (cell.get("cell_metadata") or {}).get("capslit_names")
        if names and cell.get("nb_element") == "cell_code":
            cell["ids"] += [f"def-{name}" for name in names]
            line = nodes.paragraph("", "Reference:", classes=["capslit-reference"])
            for name in names:
                line += nodes.Text(" ")
                line += reference(app.env, documented(module, name), nodes.literal("", name))
            cell += line


def setup(app):
    app.connect("doctree-read", link_names, priority=400)  # before cells are folded
