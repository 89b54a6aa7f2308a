"""The reference: a line "% modules capslit.em" becomes the entries of all modules of the package.

Modules come in the order of their chapters. An estimator comes first, under its shortest name and
with inherited methods.
"""

import ast
import re
from functools import cache

from project import ROOT, contents

PLUMBING = "set_output, get_params, set_params, fit_transform, get_feature_names_out, score"


def _module(chapter):
    """The module that a chapter exports, or None."""
    path = ROOT / f"{chapter.replace('nbs', 'capslit', 1)}.py"
    return ".".join(path.relative_to(ROOT).with_suffix("").parts) if path.is_file() else None


def _shortest(module, name):
    """The name under which the packages above the module import one of its classes."""
    parts = module.split(".")
    for depth in range(1, len(parts)):
        stub = ROOT.joinpath(*parts[:depth], "__init__.pyi")
        names = stub.read_text(encoding="utf-8") if stub.is_file() else ""
        if f"import {name} as {name}\n" in names:
            return ".".join([*parts[:depth], name])
    return f"{module}.{name}"


@cache
def _estimators(module):
    """Names of the public classes of a module that are estimators.

    A package imports them, and they have a method `fit`, or inherit it and add arguments.
    """
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8"))
    names = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            bases = {ast.unparse(base) for base in node.bases} - {"BaseEstimator"}
            imported = _shortest(module, node.name) != f"{module}.{node.name}"
            if imported and ("fit" in methods or ("__init__" in methods and bases)):
                names.append(node.name)
    return names


def documented(module, name):
    """The full name under which the reference documents a function or class of a module."""
    return _shortest(module, name) if name in _estimators(module) else f"{module}.{name}"


def entries(modules):
    """The entries of the modules, as blocks of reStructuredText in Markdown."""
    for module in modules:
        names = _estimators(module)
        for name in names:
            options = ["members:", "inherited-members:", f"exclude-members: {PLUMBING}"]
            yield _block(f"autoclass:: {_shortest(module, name)}", options)
        excluded = [f"exclude-members: {', '.join(names)}"] if names else []
        yield _block(f"automodule:: {module}", ["members:", *excluded])


def _block(directive, options):
    lines = [f".. {directive}", *(f"   :{option}" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def modules_of(package):
    """The modules of a package, or a module, in the order of the book."""
    chapters = [page for _, pages in contents() for page in pages]
    modules = filter(None, map(_module, chapters))
    return [module for module in modules if f"{module}.".startswith(f"{package}.")]


def write_entries(app, docname, source):
    """Replace the lines "% modules …" of a page."""
    source[0] = re.sub(
        r"^% modules (\S+)$",
        lambda line: "\n\n".join(entries(modules_of(line[1]))),
        source[0],
        flags=re.MULTILINE,
    )


def setup(app):
    app.connect("source-read", write_entries)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
