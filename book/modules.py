"""The reference: a line "% modules capslit.em" becomes the entries of the modules of the package
that no other page names; the line "% names", the index of all pages.

Modules come in the order of their chapters. An estimator comes first, under its shortest name and
with inherited methods.
"""

import ast
import re
from functools import cache

from dependencies import modules, public, tree
from paths import ROOT
from project import contents

LINE = re.compile(r"^% modules (\S+)$", re.MULTILINE)
INDEX = "nbs/practice/api"
PLUMBING = "set_output, get_params, set_params, fit_transform, get_feature_names_out, score"


@cache
def estimators(module):
    """The estimators among the public classes of a module, with the shortest names under which the
    packages above import them: {name: full name}. They have a method `fit`, or inherit it and add
    arguments.
    """
    found = {}
    for node in ast.parse(modules()[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            bases = {ast.unparse(base) for base in node.bases} - {"BaseEstimator"}
            package = next((p for p in packages(module) if node.name in public(p)), None)
            if package and ("fit" in methods or ("__init__" in methods and bases)):
                found[node.name] = f"{package}.{node.name}"
    return found


def packages(module):
    """The packages above a module, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def documented(module, name):
    """The full name under which the reference documents a function or class of a module."""
    return estimators(module).get(name, f"{module}.{name}")


def definitions(body):
    """The public functions and classes among the statements of a module or cell."""
    kinds = ast.FunctionDef | ast.ClassDef
    names = [node.name for node in body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")]


def directive(name, *options, content=()):
    """A directive of reStructuredText in Markdown."""
    lines = [f".. {name}", *(f"   :{option}" for option in options), ""]
    return "\n".join(["```{eval-rst}", *lines, *(f"   {line}" for line in content), "```"])


@cache
def pages():
    """The packages and modules that each page of the reference names: {"nbs/api/em": […], …}."""
    names = [name for _, part in contents() for name in part if name.startswith("nbs/api/")]
    return {name: LINE.findall((ROOT / f"{name}.md").read_text(encoding="utf-8")) for name in names}


def modules_of(package):
    """A module, or the modules of a package that no page names, in the order of the book."""
    chapters = [chapter for _, part in contents() for chapter in part]
    names = [chapter.replace("nbs", "capslit", 1).replace("/", ".") for chapter in chapters]
    named = set().union(*pages().values()) - {package}
    below = [name for name in names if f"{name}.".startswith(f"{package}.")]
    return [name for name in below if name in modules() and name not in named]


def entries(package):
    """The entries of the modules of a package, or of a module."""
    for module in modules_of(package):
        yield f"## {module.removeprefix('capslit.')}"
        yield ast.get_docstring(tree(modules()[module]))
        for full in estimators(module).values():
            excluded = f"exclude-members: {PLUMBING}"
            yield directive(f"autoclass:: {full}", "members:", "inherited-members:", excluded)
        names = ", ".join(estimators(module))
        excluded = [f"exclude-members: {names}"] if names else []
        yield directive(f"automodule:: {module}", "members:", *excluded)


def index():
    """The names of each page of the reference, with the first sentences of their entries."""
    yield directive("currentmodule:: capslit")
    for page, packages in pages().items():
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        title, subtitle = re.match("# (.*)\n\n> (.*)\n", text).groups()
        names = {
            documented(module, name).removeprefix("capslit."): None
            for package in packages
            for module in modules_of(package)
            for name in [*estimators(module), *definitions(tree(modules()[module]).body)]
        }
        yield f"## {title}\n\n[{subtitle}](/{page}.md)"
        yield directive("autosummary::", "nosignatures:", content=names)


def write_entries(app, docname, source):
    """Replace the lines "% modules …" and "% names" of a page."""
    if docname in pages():
        source[0] = LINE.sub(lambda match: "\n\n".join(entries(match[1])), source[0])
    elif docname == INDEX:
        source[0] = source[0].replace("\n% names\n", "\n\n".join(index()))


def setup(app):
    app.connect("source-read", write_entries)
