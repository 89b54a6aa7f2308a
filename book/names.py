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

from dependencies import ROOT, module_of, modules, notebooks, public, tree
from docutils import nodes
from modules import documented
from sphinx.addnodes import desc, pending_xref

PLAIN = "capslit.capsules.plain."


def definitions(body):
    """The public functions and classes among the statements of a module or cell."""
    kinds = ast.FunctionDef | ast.ClassDef
    names = [node.name for node in body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")]


def note_definitions(app, docname, source):
    """Note which public names each code cell defines; runs before nbdev's lines are dropped."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and re.match(r"#\|\s*exports?\b", code):
            cell["metadata"]["capslit_names"] = definitions(ast.parse(code).body)
    source[0] = json.dumps(notebook)


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
    first, _, rest = text.partition(".")
    known = entries().get(first, set())
    # the plain reference repeats names of the engine: elsewhere the engine's are meant
    fast = [name for name in known if not name.startswith(PLAIN)]
    # words such as `mean` have meanings of their own
    telling = "_" in first or re.search(r"[a-z][A-Z]", first)
    own = documented(module, first) if module else ""
    if own in known:
        full = own
    elif len(fast) == 1 and telling:
        (full,) = fast
    else:
        return None
    return f"{full}.{rest}" if rest else full


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


def link_names(app, doctree):
    """Turn names in the text and definitions in cells into references."""
    path = Path(app.env.doc2path(app.env.docname))
    module = module_of(path) if path.suffix == ".ipynb" else None
    linked = set()
    for literal in list(doctree.findall(nodes.literal)):
        above = ancestors(literal)
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


def ancestors(node):
    """The nodes above a node, nearest first."""
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def look_once(app, env, docnames):
    """Look at all modules and notebooks before the pages are read, each by its own process."""
    entries(), chapters()


def setup(app):
    app.connect("env-before-read-docs", look_once)
    app.connect("source-read", note_definitions, priority=400)
    app.connect("doctree-read", link_names, priority=400)  # before cells are folded
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
