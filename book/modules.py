"""The reference: a line "% modules capslit.em" becomes the entries of all modules of the package.

Modules come in the order of their chapters. An estimator comes first, under its shortest name and
with inherited methods.
"""

import ast
import re
from functools import cache

from dependencies import modules, public
from project import contents

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


def entry(directive, *options):
    """An entry as a block of reStructuredText in Markdown."""
    lines = [f".. {directive}", *(f"   :{option}" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def modules_of(package):
    """The modules of a package, or a module, in the order of the book."""
    chapters = [chapter for _, part in contents() for chapter in part]
    names = [chapter.replace("nbs", "capslit", 1).replace("/", ".") for chapter in chapters]
    return [name for name in names if name in modules() and f"{name}.".startswith(f"{package}.")]


def entries(package):
    """The entries of the modules of a package, or of a module."""
    for module in modules_of(package):
        for full in estimators(module).values():
            excluded = f"exclude-members: {PLUMBING}"
            yield entry(f"autoclass:: {full}", "members:", "inherited-members:", excluded)
        names = ", ".join(estimators(module))
        excluded = [f"exclude-members: {names}"] if names else []
        yield entry(f"automodule:: {module}", "members:", *excluded)


def write_entries(app, docname, source):
    """Replace the lines "% modules …" of a page."""
    line = re.compile(r"^% modules (\S+)$", re.MULTILINE)
    source[0] = line.sub(lambda match: "\n\n".join(entries(match[1])), source[0])


def setup(app):
    app.connect("source-read", write_entries)
