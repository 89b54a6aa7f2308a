"""What Jupyter Book needs to know about this project: nbdev's directives, docstrings."""

import json
import os
import re
from pathlib import Path

import joblib
import nbformat
import sphinx.builders
from dependencies import ROOT, has_torch, runs_here
from equations import labels
from execute import clean_cell, stored, stored_path
from names import chapters
from sphinx.errors import SphinxParallelError
from sphinx.util import logging

from capslit.proofs.claims import REPORT_MIME

logger = logging.getLogger(__name__)


def imitate_torch(app, config):
    """Without PyTorch, the reference is made from the modules that need it all the same."""
    if not has_torch():
        config.autodoc_mock_imports = [*config.autodoc_mock_imports, "torch"]


def work_in_parallel(app, config):
    """As many chapters are read at a time as there are cores, one for each process: they differ too
    much in length for Sphinx's batches.
    """
    # these work only after all are read, but do not say so
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        app.extensions[name].parallel_read_safe = True
    app.parallel = joblib.cpu_count()
    sphinx.builders.make_chunks = lambda names, count: [[name] for name in names]
    # what went wrong, not only in which chapter
    SphinxParallelError.__str__ = lambda error: error.traceback


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
                for output in cell["outputs"]:  # data for the ledger, not for readers
                    output.get("data", {}).pop(REPORT_MIME, None)
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
    """Prose of a docstring, safe in reStructuredText: `code` is code, $maths$ is maths, `Saul 2.16`
    leads to the equation, stars and trailing underscores are themselves.
    """

    def piece(match):
        code, maths, paper, char = match.group("code", "maths", "paper", "char")
        if char:
            return "\\" + char
        if code:
            markup = f"``{code.strip('`')}``"
        elif maths:
            markup = f":math:`{maths}`"
        elif paper in labels():
            docname, anchor = labels()[paper]
            markup = f"`{paper} <../../{docname}.html#{anchor}>`__"
        else:
            return paper
        # markup must stand apart
        if match.start() > 0 and not text[match.start() - 1].isspace():
            markup = "\\ " + markup
        if match.end() < len(text) and not text[match.end()].isspace():
            markup += "\\ "
        return markup

    parts = (
        r"(?P<code>``[^`]+``|(?<!:)`[^`]+`(?!_))",
        r"(?<!\\)\$(?P<maths>[^$\n]+)\$",
        r"(?P<paper>Saul [A\d]+\.\d+)",
        r"(?P<char>[*|]|(?<=\w)_(?!\w))",
    )
    return re.sub("|".join(parts), piece, text)


def rewrite_docstring(app, what, name, obj, options, lines):
    """Turn Markdown habits into reStructuredText and add a link to the cell of the chapter; runs
    before napoleon.
    """
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or re.fullmatch(r"\s*[-=~]{3,}\s*", line):
            continue
        # "n_iter_ : int": the name belongs to napoleon
        field = re.match(r"[\w*, ]+ : |\w+_?$", line)
        name_end = field.end() if field else 0
        lines[i] = line[:name_end] + _escape(line[name_end:])
    chapter = chapters().get(getattr(obj, "__module__", None))
    if what in ("function", "class", "exception") and chapter:
        docname, title = chapter
        link = f"`{title} <../../{docname}.html#def-{obj.__qualname__}>`__"
        # after the first paragraph
        first = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
        container = ["", ".. container:: capslit-chapter", "", f"   Chapter: {link}", ""]
        lines[first:first] = container


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
    # set by Jupyter Book for an extension that we leave out
    app.add_config_value("comments_config", {}, "html")
    app.connect("config-inited", imitate_torch)
    app.connect("config-inited", work_in_parallel)
    app.connect("env-get-outdated", read_one)
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=100)
    app.connect("autodoc-process-docstring", mend_attributes, priority=900)
    app.connect("autodoc-skip-member", skip_member)
    # MathJax also where mathematics comes only from a cell's output
    app.set_html_assets_policy("always")
    static = ROOT / "book" / "_static"
    app.config.html_static_path.append(str(static))
    for sheet in sorted(static.glob("*.css")):
        app.add_css_file(sheet.name, priority=900)
    app.add_js_file("ledger.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
