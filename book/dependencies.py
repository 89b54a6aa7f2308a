"""What an executed notebook depends on: its code, the modules that it imports (and what these
import), lock files, records, other notebooks.

`key(path)` is a hash of all of it: as long as it stays the same, the notebook need not be executed
again.
"""

import ast
import hashlib
import importlib.util
import json
import platform
import re
import warnings
from functools import cache

from IPython.core.inputtransformer2 import TransformerManager
from paths import ROOT

PACKAGE = "capslit"


def notebooks():
    """The notebooks of the book, in the order of their names."""
    paths = sorted((ROOT / "nbs").rglob("*.ipynb"))
    return [path for path in paths if ".ipynb_checkpoints" not in path.parts]


@cache
def code_cells(path):
    """Source and tags of each code cell of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        ("".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def code(path):
    """The code of a notebook."""
    return "\n".join(source for source, _ in code_cells(path))


@cache
def modules():
    """Path of each module of the package: {"capslit.x": …/capslit/x.py}."""
    paths = sorted((ROOT / PACKAGE).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


# Imports, as the syntax tree has them


def tree(path):
    """The syntax tree of a module, or of all code cells of a notebook together."""
    if path.suffix == ".py":
        return ast.parse(path.read_text(encoding="utf-8"))
    source = code(path)
    if re.search(r"^\s*[%!?]|\?$", source, re.MULTILINE):  # magics become calls
        transform = TransformerManager().transform_cell
        source = "\n".join(transform(source) for source, _ in code_cells(path))
    with warnings.catch_warnings(action="ignore"):  # the cells give their own when they run
        return ast.parse(source)


@cache
def nodes(path):
    """The parts of a syntax tree that tell what it depends on: imports, attributes, and string
    constants that are not docstrings.
    """
    every = list(ast.walk(tree(path)))
    docstrings = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    kinds = ast.Import | ast.ImportFrom | ast.Attribute
    return [
        node
        for node in every
        if isinstance(node, kinds) or (is_string(node) and id(node) not in docstrings)
    ]


def is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def at_once(node):
    """The nodes below `node` that run when it is imported: no function's body, no attempt that may
    fail, nothing for type checkers.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Try) and not any(
            isinstance(n, ast.Raise) for handler in child.handlers for n in ast.walk(handler)
        ):
            continue
        yield child
        yield from at_once(child)


def package_of(path):
    """Where the relative imports of a module begin; notebooks have none."""
    return ".".join(path.parent.relative_to(ROOT).parts) if path.suffix == ".py" else ""


def sources(node, package):
    """Where the names of an import statement come from: {name: dotted name}."""
    home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    return {alias.name: f"{home}.{alias.name}" for alias in node.names} | {None: home}


def imported(found, package=""):
    """Dotted names that import statements, `capslit.x` in code and code in strings ask for."""
    names = set()
    for node in found:
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                names |= set(sources(node, package).values())
            case ast.Attribute() if ast.unparse(node).startswith(f"{PACKAGE}."):
                names.add(ast.unparse(node))
            case ast.Constant(value=str(text)) if re.search(rf"\b(from|import) {PACKAGE}\b", text):
                try:
                    names |= imported(ast.walk(ast.parse(text)), package)
                except SyntaxError:
                    pass
    return names


@cache
def public(package):
    """Where the names come from that a package passes on, by its stub: {"CapsuleClassifier":
    "capslit.capsules.classifier.CapsuleClassifier"}.
    """
    stub = modules()[package].with_suffix(".pyi")
    body = ast.parse(stub.read_text(encoding="utf-8")).body if stub.is_file() else []
    found = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            found |= sources(node, package)
    # a module of the package is where its name says, and is not passed on
    return {name: source for name, source in found.items() if name and source not in modules()}


def resolve(name):
    """The modules of the package that a dotted name leads to: the last that it names, the packages
    above, the home of what a package passes on.
    """
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return set()
    chain = [".".join(parts[:i]) for i in range(1, len(parts) + 1)]
    found = {module for module in chain if module in modules()}
    rest = parts[len(found)] if len(found) < len(parts) else None
    return found | resolve(public(chain[len(found) - 1]).get(rest, ""))


@cache
def uses(path):
    """The modules of the package that a module or notebook imports itself, anywhere in it."""
    found = at_once(tree(path)) if path.name == "__init__.py" else nodes(path)
    return frozenset().union(*map(resolve, imported(found, package_of(path))))


@cache
def reach(path):
    """The paths of all modules that a module or notebook imports, directly or through others."""
    found, todo = set(), [path]
    while todo:
        new = {modules()[name] for name in uses(todo.pop())} - found - {path}
        found |= new
        todo += new
    return frozenset(found)


# What a notebook needs


@cache
def needs_torch(path):
    """Whether a notebook (or module) cannot run without PyTorch."""
    names = imported(at_once(tree(path)), package_of(path))
    below = {modules()[module] for name in names for module in resolve(name)} - {path}
    return any(name.split(".")[0] == "torch" for name in names) or any(map(needs_torch, below))


@cache
def has_torch():
    """Whether PyTorch is installed, which is not to be had everywhere."""
    return importlib.util.find_spec("torch") is not None


def runs_here(path):
    """Whether a notebook can be executed with what is installed."""
    return has_torch() or not needs_torch(path)


@cache
def mentions(path, pattern):
    """Whether a string in a notebook or module, docstrings left out, matches a pattern."""
    return any(re.search(pattern, node.value) for node in nodes(path) if is_string(node))


def reads_notebooks(path):
    """Whether a notebook, or a module that it imports, reads other notebooks, as the ledger of the
    claims does.
    """
    return any(mentions(file, r"\.ipynb$") for file in (path, *reach(path)))


def reads_records(path):
    """Whether a notebook, or a module that it imports, reads the records in results/."""
    return any(mentions(file, r"(^|/)results(/|$)") for file in (path, *reach(path)))


@cache
def digest(path):
    """Hash of one file, or of the code cells of a notebook."""
    data = json.dumps(code_cells(path)).encode() if path.suffix == ".ipynb" else path.read_bytes()
    return hashlib.sha256(data).hexdigest()


@cache
def key(path):
    """The hash of all that the outputs of a notebook depend on."""
    files = {path, *reach(path), *ROOT.glob("requirements*.lock")}
    if reads_notebooks(path):
        files |= {file for notebook in notebooks() for file in (notebook, *reach(notebook))}
    if reads_records(path):
        files |= {file for file in (ROOT / "results").iterdir() if file.is_file()}
    digests = sorted((file.relative_to(ROOT).as_posix(), digest(file)) for file in files)
    parts = [platform.python_version(), has_torch(), *digests]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def module_of(path):
    """The module that a notebook defines, "capslit.x"; None if it defines none."""
    line = re.search(r"^#\|\s*default_exp\s+([\w.]+)", code(path), re.MULTILINE)
    return line and f"{PACKAGE}.{line[1]}"


def tests_of(path):
    """The test files that import the module which a notebook defines."""
    tests = sorted((ROOT / "tests").glob("test_*.py"))
    return [test for test in tests if module_of(path) in uses(test)]
