"""What a reader sees of the code: imports, checks, plots and what surrounds the models are folded,
the models' code is open.

The rule is `reading` below. A cell's tag overrides it: `open` keeps a cell open, `check` folds it
as a check. Consecutive cells with one of the tags of PASSAGES, Markdown or code, are one fold. A
fold is a plain `<details>`, whose summary says what is in it.
"""

import ast
import re
from html import escape
from itertools import groupby

from docutils import nodes
from IPython.core.inputtransformer2 import TransformerManager

# The folders of chapters whose exported code is never folded
MODELS = ("capsules", "deeper", "mixtures", "factorial", "routing", "composition", "em")
# Chapters whose code is what the reader came for: only plots, imports and assertions are folded
GUIDES = ("practice", "index")
# Tags of cells that are one fold, and what is in it
PASSAGES = {"solution": "the solution", "method": "how this is checked"}
EXERCISES = "exercises"  # the tag of exercises that are one fold, with their solutions in it


def statements(source):
    """The statements of a cell, in which lines for IPython are calls, without its docstring."""
    try:
        body = ast.parse(TransformerManager().transform_cell(source)).body
    except SyntaxError:
        return []

    def is_text(node):
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

    return [node for node in body if not is_text(node)]


def called(node):
    """The names of what a piece of code calls: `f` for f(…) and a.f(…)."""
    functions = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def asserts(node):
    """Whether a statement checks something: an assertion, or an error that must be raised."""
    names = called(node)
    checked = "raises" in names or any(name.startswith("test_") for name in names)
    return checked or any(isinstance(part, ast.Assert) for part in ast.walk(node))


def is_import(node):
    return isinstance(node, ast.Import | ast.ImportFrom)


def is_definition(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def defined(body):
    """The names that a cell defines: of functions and classes, or of values if there are none."""
    names = [node.name for node in body if is_definition(node)]
    if names:
        return names
    values = [node for node in body if isinstance(node, ast.Assign | ast.AnnAssign)]
    parts = [part for node in values for part in ast.walk(node) if isinstance(part, ast.Name)]
    return [part.id for part in parts if isinstance(part.ctx, ast.Store)]


def listed(names):
    """Names in words: a, b and c; of more than three, the first two and how many more."""
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def shown(outputs):
    """What a cell shows: figure, claim, table, result or nothing."""
    data = [output.get("data", {}) for output in outputs]
    html = "".join("".join(part.get("text/html", "")) for part in data)
    markdown = "\n".join("".join(part.get("text/markdown", "")) for part in data)
    if "<figure" in html or "capslit-live" in html:
        return "figure"
    if 'class="claim' in html:
        return "claim"
    if "<table" in html or re.search(r"^\|", markdown, re.MULTILINE):
        return "table"
    return "result" if outputs else None


def reading(page, source, directives=(), tags=(), outputs=()):
    """How a code cell of a page (`capsules/inference`) is read: (kind, what is folded, in words),
    or None if it stays open.

    `source` is its code without directives, `directives` are nbdev's (`export`, `claim`), `outputs`
    those of its execution.
    """
    folder = page.split("/")[0]
    body = statements(source)
    output = shown(outputs)
    if "open" in tags or not body:
        return None
    if "check" in tags:
        return "check", "the check"
    code = f"the code of {listed(defined(body))}" if defined(body) else "the code"
    if output in ("figure", "table", "result"):
        code = f"the code of the {output}"
    if "hide-input" in tags or "hide-cell" in tags:
        return output or "code", code
    if all(map(is_import, body)):
        return "imports", "the imports"
    if "export" in directives:
        if folder in MODELS:
            return None
        draws = all(re.match(r"_?(draw|plot)_", name) for name in defined(body)) and defined(body)
        return ("figure", "the code of the figure") if draws else ("code", code)
    if any("Derivation" in called(node) for node in body):
        return "result", "the code of the steps"
    if "claim" in directives:
        is_check = any("claim" in called(node) for node in body)
        return "check", "the check" if is_check else "the helpers of the checks"
    if output == "figure" and re.search(r"\bplt\.|\bax(is|es)?\.|matplotlib", source):
        return "figure", code
    if folder in GUIDES:
        rest = [node for node in body if not is_import(node)]
        bare = all(asserts(node) and not is_definition(node) for node in rest)
        return ("check", "the check") if bare and not output else None
    if output == "table":
        return "table", code
    return ("check", "the check") if any(map(asserts, body)) else None


# The fold itself

CLOSING = "</div></details>"


def opening(kind, words, passed=False):
    """The beginning of a fold; a check that shows nothing says whether it has passed."""
    mark = ' <span class="capslit-passed">(passed)</span>' if passed else ""
    return (
        f'<details class="capslit-fold" data-kind="{kind}"><summary>'
        '<span class="when-closed">Show</span><span class="when-open">Hide</span>'
        f' {escape(words)}{mark}</summary><div class="capslit-folded">'
    )


def passage(cell):
    """The tag by which a cell belongs to a passage that is one fold, or None."""
    return next((tag for tag in PASSAGES if tag in cell["metadata"].get("tags", [])), None)


def place(cell):
    """Whether a cell is in the fold of the exercises, and its passage."""
    return EXERCISES in cell["metadata"].get("tags", []), passage(cell)


def html_cell(cells, html):
    """A Markdown cell that is a piece of HTML, to follow these cells."""
    return {"cell_type": "markdown", "id": f"fold{len(cells)}", "metadata": {}, "source": html}


def imports_before(cells):
    """The last cell that a reader sees of these, if it holds imports; else None."""
    visible = [cell for cell in cells if "remove-cell" not in cell["metadata"].get("tags", [])]
    fold = visible[-1]["metadata"].get("capslit_fold", [""]) if visible else [""]
    return visible[-1] if fold[0] == "imports" else None


def mark_cells(docname, notebook):
    """Write into each code cell's metadata how it is read, join imports, and fold passages."""
    cells = []
    inside = False  # the fold of the exercises
    for (folded, tag), group in groupby(notebook["cells"], place):
        if folded != inside:
            words = opening(EXERCISES, "the exercises") if folded else CLOSING
            cells.append(html_cell(cells, words))
            inside = folded
        if tag:
            cells.append(html_cell(cells, opening(tag, PASSAGES[tag])))
        for cell in group:
            if cell["cell_type"] == "code":
                fold = None if tag else mark(docname.removeprefix("nbs/"), cell)
                strip(cell)
                before = imports_before(cells) if not cell["outputs"] else None
                if fold == "imports" and before:
                    before["source"] = f"{''.join(before['source'])}\n\n{''.join(cell['source'])}"
                    continue
            cells.append(cell)
        if tag:
            cells.append(html_cell(cells, CLOSING))
    if inside:
        cells.append(html_cell(cells, CLOSING))
    notebook["cells"] = cells


def mark(page, cell):
    """Write into a code cell's metadata how it is read, and return the kind of its fold."""
    data, outputs = cell["metadata"], cell["outputs"]
    directives, tags = data.get("capslit_directives", []), data.get("tags", [])
    fold = reading(page, "".join(cell["source"]), directives, tags, outputs)
    if fold:
        kind, words = fold
        passed = words == "the check" and not outputs and bool(cell.get("execution_count"))
        data["capslit_fold"] = [kind, words, passed]
    return fold and fold[0]


def strip(cell):
    """Take out what says how a cell is read, for the theme would hide it too."""
    cell["metadata"].pop("capslit_directives", None)
    tags = cell["metadata"].get("tags", [])
    cell["metadata"]["tags"] = [tag for tag in tags if tag not in ("hide-input", "hide-cell")]


def fold_cells(app, doctree):
    """Fold the code of the cells that are marked."""
    for cell in list(doctree.findall(nodes.container)):
        fold = (cell.get("cell_metadata") or {}).get("capslit_fold")
        if fold:
            code = next(
                (p for p in cell.children if p.get("nb_element") == "cell_code_source"), None
            )
            if code is not None:
                place = cell.index(code)
                cell.insert(place + 1, nodes.raw("", CLOSING, format="html"))
                cell.insert(place, nodes.raw("", opening(*fold), format="html"))


def setup(app):
    app.connect("doctree-read", fold_cells)
