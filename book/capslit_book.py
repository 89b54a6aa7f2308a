"""What Jupyter Book needs to know about this project: nbdev's directives, docstrings."""

import json
import os
import re
import sys
from pathlib import Path

import joblib
import nbformat
import sphinx.builders
from dependencies import has_torch, runs_here
from execute import clean_cell, stored, stored_path
from references import chapter_of
from sphinx.errors import SphinxParallelError
from sphinx.util import logging

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(
    0, str(ROOT)
)  # the reference is made from the modules that stand beside the notebooks
logger = logging.getLogger(__name__)


def imitate_torch(app, config):
    """Without PyTorch, the reference is made from the modules that need it all the same."""
    if not has_torch():
        config.autodoc_mock_imports = [*config.autodoc_mock_imports, "torch"]


def work_in_parallel(app, config):
    """As many chapters are read at a time as there are cores, one for each process: they differ too
    much in length for Sphinx's batches.
    """
    for name in (
        "sphinx_multitoc_numbering",
        "sphinx_jupyterbook_latex",
    ):  # at work only after all are read, but they do not say so
        app.extensions[name].parallel_read_safe = True
    app.parallel = joblib.cpu_count()
    sphinx.builders.make_chunks = lambda names, count: [[name] for name in names]
    SphinxParallelError.__str__ = lambda error: (
        error.traceback
    )  # what went wrong, not only in which chapter


UNEXECUTED = (
    "```{note}\nThis book was built where PyTorch is not installed. The cells of this chapter are"
    " shown, but were not run.\n```"
)


def read_notebook(app, docname, source):
    """Show a notebook with the outputs of its execution and without the lines that are meant for
    nbdev.
    """
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code:
        clean_cell(cell)
    if runs_here(path):
        app.env.note_dependency(str(stored_path(path)))
        executed = stored(path) or nbformat.v4.new_notebook()
        outputs = [cell for cell in executed.cells if cell.cell_type == "code"]
        if [cell["source"] for cell in code] == [cell.source for cell in outputs]:
            notebook["metadata"] = executed.metadata
            for cell, done in zip(code, outputs):
                cell.update(outputs=done.outputs, execution_count=done.execution_count)
        else:
            logger.warning(
                "has not been executed since it was changed: make book", location=docname
            )
    else:
        notebook["cells"].insert(
            1, {"cell_type": "markdown", "id": "unexecuted", "metadata": {}, "source": UNEXECUTED}
        )
    source[0] = json.dumps(notebook)


def read_one(app, env, added, changed, removed):
    """`make book NB=…`: of all that is out of date, read that page alone."""
    only = os.environ.get("CAPSLIT_PAGE")
    if (
        only and not added & env.all_docs.keys()
    ):  # if the configuration has changed, then everything is out of date
        added &= {only, env.config.root_doc}
        changed &= {only}
    return []


# API page: docstrings as reStructuredText, linked to the chapters


def _escape(text):
    """Prose of a docstring, safe in reStructuredText: `code` is code, $maths$ is maths, stars and
    trailing underscores are themselves.
    """

    def piece(match):
        code, maths, paper, char = match.group("code", "maths", "paper", "char")
        if char:
            return "\\" + char
        markup = (
            f"``{code.strip('`')}``"
            if code
            else f":math:`{maths}`"
            if maths
            else f":saul:`{paper}`"
        )
        before = (
            "" if match.start() == 0 or text[match.start() - 1].isspace() else "\\ "
        )  # markup must stand apart
        after = "" if match.end() == len(text) or text[match.end()].isspace() else "\\ "
        return before + markup + after

    return re.sub(
        r"(?P<code>``[^`]+``|(?<!:)`[^`]+`(?!_))|(?<!\\)\$(?P<maths>[^$\n]+)\$|(?P<paper>Saul"
        r" [A\d]+\.\d+)|(?P<char>[*|]|(?<=\w)_(?!\w))",
        piece,
        text,
    )


def rewrite_docstring(app, what, name, obj, options, lines):
    """Turn Markdown habits into reStructuredText and add a link to the cell of the chapter; runs
    before napoleon.
    """
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or re.fullmatch(r"\s*[-=~]{3,}\s*", line):
            continue
        field = re.match(
            r"[\w*, ]+ : |\w+_?$", line
        )  # "n_iter_ : int": the name belongs to napoleon
        name_end = field.end() if field else 0
        lines[i] = line[:name_end] + _escape(line[name_end:])
    module = getattr(obj, "__module__", None) or ""
    if what in ("function", "class", "exception") and chapter_of(module):
        first = next(
            (i for i, line in enumerate(lines) if not line.strip()), len(lines)
        )  # after the first paragraph
        lines[first:first] = [
            "",
            ".. container:: capslit-chapter",
            "",
            f"   Chapter: :cell:`{module}.{obj.__qualname__}`",
            "",
        ]


def mend_attributes(app, what, name, obj, options, lines):
    """`classes_` is a name, not a reference; runs after napoleon."""
    lines[:] = [re.sub(r"^(:(?:ivar|vartype) \w+)_:", r"\1\\_:", line) for line in lines]


def skip_member(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator, and the fields of named tuples (the
    signature has them).
    """
    foreign = (
        re.fullmatch(r"set_\w+_request|get_metadata_routing", name)
        or type(obj).__name__ == "_tuplegetter"
    )
    return True if foreign else None


def setup(app):
    app.add_config_value(
        "comments_config", {}, "html"
    )  # set by Jupyter Book for an extension that we leave out
    app.connect("config-inited", imitate_torch)
    app.connect("config-inited", work_in_parallel)
    app.connect("env-get-outdated", read_one)
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=100)
    app.connect("autodoc-process-docstring", mend_attributes, priority=900)
    app.connect("autodoc-skip-member", skip_member)
    app.set_html_assets_policy(
        "always"
    )  # MathJax also where mathematics comes only from a cell's output
    static = ROOT / "book" / "_static"
    app.config.html_static_path.append(str(static))
    for sheet in sorted(static.glob("*.css")):
        app.add_css_file(sheet.name, priority=900)
    app.add_js_file("capslit.js")
    app.add_css_file("claims.css", priority=901)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
