"""What a reader sees of the code: imports, checks, plots and what surrounds the models are folded,
the models' code is open; long lines wrap.

The rule is `reading` below. A cell's tag overrides it: `open` keeps a cell open, `check` folds it
as a check. Consecutive cells with one of the tags of PASSAGES, Markdown or code, are one fold. A
fold is a plain `<details>`, whose summary says what is in it.
"""

import ast
import dis
import html
import json
import re
from pathlib import Path

from docutils import nodes
from IPython.core.inputtransformer2 import TransformerManager
from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

MODELS = (
    "capsules",
    "deeper",
    "mixtures",
    "factorial",
    "routing",
    "composition",
    "em",
)  # the folders of chapters whose exported code is never folded
PASSAGES = {
    "solution": "the solution",
    "method": "how this is checked",
}  # tags of cells that are one fold, and what is in it
GUIDES = (
    "practice",
    "index",
)  # their code is what the reader came for: only plots, imports and bare assertions are folded


# The rule


def syntax_tree(source):
    """The syntax tree of a cell, in which lines for IPython are calls."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.parse(TransformerManager().transform_cell(source))


def parsed(source):
    """The statements of a cell, without its docstring and comments."""
    try:
        body = syntax_tree(source).body
    except SyntaxError:
        return []
    return [
        node
        for node in body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def called(node):
    """The names of what a piece of code calls: `f` for f(…) and a.f(…)."""
    functions = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def asserts(node):
    """Whether a statement checks something: an assertion, or an error that must be raised."""
    return any(isinstance(part, ast.Assert) for part in ast.walk(node)) or any(
        name == "raises" or name.startswith("test_") for name in called(node)
    )


def is_bare_check(node):
    """Whether a statement does nothing but check."""
    return asserts(node) and not isinstance(node, ast.FunctionDef | ast.ClassDef)


def is_import(node):
    return isinstance(node, ast.Import | ast.ImportFrom)


def defined(body):
    """The names that a cell defines: of functions and classes, or of values if there are none."""
    names = [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    targets = [
        target
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in getattr(node, "targets", None) or [node.target]
    ]
    return names or [
        part.id
        for target in targets
        for part in ast.walk(target)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    ]


def listed(names):
    """Names in words: a, b and c; of more than three, the first two and how many more."""
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def shown(outputs):
    """What a cell shows: figure, table, claim, result or nothing."""
    html = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    markdown = ["".join(output.get("data", {}).get("text/markdown", "")) for output in outputs]
    if any("<figure" in text or "capslit-live" in text for text in html):
        return "figure"
    if any('class="claim' in text for text in html):
        return "claim"
    if any("<table" in text for text in html) or any(
        re.search(r"^\|", text, re.MULTILINE) for text in markdown
    ):
        return "table"
    return "result" if outputs else None


def reading(page, source, directives=(), tags=(), outputs=()):
    """How a code cell of a page (`capsules/inference`) is read: (kind, what is folded, in words),
    or None if it stays open.

    `source` is its code without directives, `directives` are nbdev's (`export`, `claim`), `outputs`
    those of its execution.
    """
    folder, body, output = page.split("/")[0], parsed(source), shown(outputs)
    if "open" in tags or not body:
        return None
    if "check" in tags:
        return "check", "the check"
    code = f"the code of {listed(defined(body))}" if defined(body) else "the code"
    code = f"the code of the {output}" if output in ("figure", "table", "result") else code
    if "hide-input" in tags or "hide-cell" in tags:
        return output or "code", code
    if all(map(is_import, body)):
        return "imports", "the imports"
    if "export" in directives:
        if folder in MODELS:
            return None
        drawing = (
            all(re.match(r"_?(draw|plot)_", name) for name in defined(body))
            and defined(body)
            and folder == "experiments"
        )
        return ("figure", "the code of the figure") if drawing else ("code", code)
    if any("Derivation" in called(node) for node in body):
        return "result", "the code of the steps"
    if "claim" in directives:
        return "check", (
            "the check"
            if any("claim" in called(node) for node in body)
            else "the helpers of the checks"
        )
    if output == "figure" and re.search(r"\bplt\.|\bax(is|es)?\.|matplotlib", source):
        return "figure", code
    statements = [node for node in body if not is_import(node)]
    if folder in GUIDES:
        return (
            ("check", "the check") if not output and all(map(is_bare_check, statements)) else None
        )
    if output == "table":
        return "table", code
    return ("check", "the check") if any(map(asserts, body)) else None


# Checks of text against records: what an experiment's chapter states was measured once, and is not
# measured again when the book is built

IN_STEP = "the check that keeps the text in step with the record"
COMPUTES = re.compile(
    r"load_(?!record)|fit|run_|train_|small_record$|perform$|default_rng$"
)  # calls that make values anew


def globals_of(code):
    """The global names that compiled code reads and those that it sets."""
    steps = list(dis.get_instructions(code))
    read = {step.argval for step in steps if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
    inner = [globals_of(part)[0] for part in code.co_consts if hasattr(part, "co_code")]
    return read.union(*inner), {step.argval for step in steps if step.opname == "STORE_NAME"}


def checks_of_records(sources):
    """The numbers of those cells that check nothing but values read from records; `sources` are all
    code cells of a chapter, by number.
    """
    recorded, computed, found = set(), set(), set()
    for number, source in sources.items():
        body, seen = parsed(source), set()
        for node in body:
            read, names = globals_of(compile(ast.Module([node], []), "cell", "exec"))
            seen |= read - names | called(node)
            loaded = "load_record" in called(node)
            if not loaded and (any(map(COMPUTES.match, called(node))) or (read - names) & computed):
                computed, recorded = computed | names, recorded - names
            elif loaded or read & recorded:
                computed, recorded = computed - names, recorded | names
        if (
            any(map(asserts, body))
            and seen & (recorded | {"load_record"})
            and not seen & computed
            and not any(map(COMPUTES.match, seen))
        ):
            found.add(number)
    return found


# Cells: directives are noted before they are dropped, the rule is applied once the outputs are
# there


def is_notebook(app, docname):
    return Path(app.env.doc2path(docname)).suffix == ".ipynb"


def note_directives(app, docname, source):
    """Keep the names of nbdev's directives in each code cell's metadata."""
    if not is_notebook(app, docname):
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            found = re.findall(r"^#\|\s*(\w+)", "".join(cell["source"]), re.MULTILINE)
            cell["metadata"]["capslit_directives"] = found
    source[0] = json.dumps(notebook)


def joined(cells, cell):
    """Whether the imports of a cell have gone into the imports that a reader sees right
    before it.
    """
    before = next(
        (
            other
            for other in reversed(cells)
            if "remove-cell" not in other["metadata"].get("tags", [])
        ),
        None,
    )
    if (
        not before
        or before["metadata"].get("capslit_fold", [None])[0] != "imports"
        or cell["outputs"]
    ):
        return False
    before["source"] = "\n\n".join("".join(part["source"]) for part in (before, cell))
    return True


def mark_cells(app, docname, source):
    """Write into each code cell's metadata how it is read, and set marks around passages."""
    if not is_notebook(app, docname):
        return
    notebook = json.loads(source[0])
    cells, inside = [], None
    code = {
        number: "".join(cell["source"])
        for number, cell in enumerate(notebook["cells"])
        if cell["cell_type"] == "code"
    }
    in_step = checks_of_records(code) if docname.startswith("nbs/experiments/") else set()
    for number, cell in enumerate(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        kind = next((kind for kind in PASSAGES if kind in tags), None)
        if kind != inside:
            cells += [
                mark(number, side, of) for side, of in (("end", inside), ("begin", kind)) if of
            ]
            inside = kind
        if cell["cell_type"] == "code":
            directives = cell["metadata"].pop("capslit_directives", [])
            fold = (
                None
                if inside
                else reading(
                    docname.removeprefix("nbs/"),
                    "".join(cell["source"]),
                    directives,
                    tags,
                    cell["outputs"],
                )
            )
            if fold and fold[0] == "imports" and joined(cells, cell):
                continue
            if fold:
                kind, words = fold
                passed = (
                    words == "the check"
                    and not cell["outputs"]
                    and bool(cell.get("execution_count"))
                )
                words = IN_STEP if words == "the check" and number in in_step else words
                cell["metadata"]["capslit_fold"] = [kind, words, passed]
            cell["metadata"]["tags"] = [
                tag for tag in tags if tag not in ("hide-input", "hide-cell")
            ]
        cells.append(cell)
    if inside:
        cells.append(mark(len(cells), "end", inside))
    notebook["cells"] = cells
    source[0] = json.dumps(notebook)


def mark(number, side, kind):
    """A cell that says where a passage of this kind begins or ends."""
    return {
        "cell_type": "markdown",
        "id": f"{kind}-{number}-{side}",
        "metadata": {},
        "source": f"```{{capslit-passage}} {side} {kind}\n```",
    }


class passage_mark(nodes.Element):
    """Where a passage begins or ends; gone once the page is read."""


class PassageMark(SphinxDirective):
    required_arguments = 2

    def run(self):
        side, kind = self.arguments
        return [passage_mark(side=side, kind=kind)]


# Folds


class fold(nodes.General, nodes.Element):
    """Something that a reader opens: `kind`, `words` for what is in it, `passed` if it is a check
    that says so itself.
    """


def fold_cells(app, doctree):
    """Fold the code of the cells that are marked, and the passages."""
    for cell in list(doctree.findall(nodes.container)):
        marked = (cell.get("cell_metadata") or {}).get("capslit_fold")
        source = next(
            (
                node
                for node in cell.children
                if isinstance(node, nodes.container)
                and node.get("nb_element") == "cell_code_source"
            ),
            None,
        )
        if marked and source is not None:
            kind, words, passed = marked
            place = cell.index(source)
            cell.remove(source)
            cell.insert(place, fold("", source, kind=kind, words=words, passed=passed))
    for begin in list(
        doctree.findall(lambda node: isinstance(node, passage_mark) and node["side"] == "begin")
    ):
        parent, start = begin.parent, begin.parent.index(begin)
        end = next(
            (
                i
                for i, node in enumerate(parent.children)
                if i > start and isinstance(node, passage_mark)
            ),
            None,
        )
        if end is None:
            logger.warning("a passage holds a heading: it cannot be folded", location=begin)
            continue
        content = parent.children[start + 1 : end]
        parent.children[start : end + 1] = []
        parent.insert(
            start,
            fold("", *content, kind=begin["kind"], words=PASSAGES[begin["kind"]], passed=False),
        )
    for left in list(doctree.findall(passage_mark)):
        left.parent.remove(left)


def open_fold(self, node):
    words, passed = (
        self.encode(node["words"]),
        ' <span class="capslit-passed">(passed)</span>' if node["passed"] else "",
    )
    self.body.append(
        f'<details class="capslit-fold" data-kind="{node["kind"]}"><summary><span'
        ' class="when-closed">Show</span><span class="when-open">Hide</span>'
        f' {words}{passed}</summary>\n<div class="capslit-folded">\n'
    )


def close_fold(self, node):
    self.body.append("</div>\n</details>\n")


def nothing(self, node):
    """Where nothing can be folded, the content stands open."""


# Lines that wrap: each line of code is an element of its own, which knows how far it is indented

SHORT = 30  # characters of a line that fits everywhere
INDENTS = (4, 8, 12, 16, 20)  # those that have a class; a style for each line would be heavy


class LineFormatter(HtmlFormatter):
    """Code whose lines wrap with a hanging indent; what is copied has no other line breaks than the
    code.
    """

    def wrap(self, source):
        return super().wrap(self._lines(source))

    def _lines(self, source):
        for is_line, text in source:
            if is_line:
                plain = html.unescape(re.sub(r"<[^>]*>", "", text)).rstrip("\n")
                indent = len(plain) - len(plain.lstrip(" "))
                kind = f"ln i{indent}" if indent in INDENTS else "ln"
                style = f' style="--indent:{indent}"' if indent and kind == "ln" else ""
                text = (
                    f'<span class="{kind}"{style}>{text.removesuffix(chr(10))}</span>\n'
                    if len(plain) > SHORT
                    else text
                )
            yield is_line, text


def setup(app):
    PygmentsBridge.html_formatter = LineFormatter
    app.add_node(
        fold, html=(open_fold, close_fold), latex=(nothing, nothing), text=(nothing, nothing)
    )
    app.add_directive("capslit-passage", PassageMark)
    app.connect("source-read", note_directives, priority=400)  # before nbdev's lines are dropped
    app.connect("source-read", mark_cells, priority=600)  # after the outputs have been brought in
    app.connect("doctree-read", fold_cells)
    app.add_js_file("folding.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
