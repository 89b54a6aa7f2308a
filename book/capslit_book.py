"""The book's extension of Sphinx: it reads notebooks with their outputs, makes docstrings
reStructuredText, and sets up the other extensions of this folder, one concern each.
"""

import json
import os
import re
from pathlib import Path

import access
import equations
import figures
import folding
import icons
import joblib
import live
import mathematics
import metadata
import modules
import names
import questions
import search
import sphinx.builders
import weight
from dependencies import has_torch, runs_here
from execute import clean_cell, directives, stored, stored_path
from paths import ROOT
from sphinx.errors import SphinxParallelError
from sphinx.util import logging

from capslit.proofs.claims import REPORT_MIME

# in the order in which they change a finished page
EXTENSIONS = (
    modules,
    live,
    questions,
    metadata,
    folding,
    equations,
    names,
    access,
    icons,
    mathematics,
    weight,
    figures,
    search,
)
UNEXECUTED = (
    "```{note}\nThis book was built where PyTorch is not installed. The cells of this chapter are"
    " shown, but were not run.\n```"
)
logger = logging.getLogger(__name__)


def imitate_torch(app, config):
    """Without PyTorch, the reference is made from the modules that need it all the same."""
    if not has_torch():
        config.autodoc_mock_imports = [*config.autodoc_mock_imports, "torch"]


def work_in_parallel(app, config):
    """As many chapters are read at a time as there are cores, one for each process: they differ too
    much in length for Sphinx's batches, in which they are written.
    """
    # these work only after all are read, but do not say so
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        app.extensions[name].parallel_read_safe = True
    app.parallel = joblib.cpu_count()
    batches = sphinx.builders.make_chunks
    sphinx.builders.make_chunks = lambda names, count: [[name] for name in names]
    app.connect("env-updated", lambda app, env: setattr(sphinx.builders, "make_chunks", batches))
    # what went wrong, not only in which chapter
    SphinxParallelError.__str__ = lambda error: error.traceback


def look_once(app, env, docnames):
    """Look at all modules and notebooks here, before several processes read and write the pages."""
    for look in (equations.labels, names.entries, names.chapters, metadata.portable):
        look()


def read_one(app, env, added, changed, removed):
    """`make book NB=…`: of all that is out of date, read that page alone."""
    only = os.environ.get("CAPSLIT_PAGE")
    configuration_changed = added & env.all_docs.keys()  # then everything is out of date
    if only and not configuration_changed:
        added &= {only, env.config.root_doc}
        changed &= {only}
    return []


def read_notebook(app, docname, source):
    """All that changes a notebook before it is read, in this order."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code:
        cell["metadata"]["capslit_directives"] = [name for name, *_ in directives(cell)]
        names.note_definitions(cell)
        clean_cell(cell)
    if runs_here(path):
        app.env.note_dependency(str(stored_path(path)))
        if not take_outputs(notebook, code, stored(path)):
            logger.warning(
                "has not been executed since it was changed: make book", location=docname
            )
    else:
        notebook["cells"].insert(
            1, {"cell_type": "markdown", "id": "unexecuted", "metadata": {}, "source": UNEXECUTED}
        )
    live.take_data(app.env, docname, notebook)
    folding.mark_cells(docname, notebook)
    source[0] = json.dumps(notebook)


def take_outputs(notebook, code, executed):
    """Show the outputs of the execution; return False if it was that of other code."""
    done = [cell for cell in executed.cells if cell.cell_type == "code"] if executed else []
    if [cell["source"] for cell in code] != [cell.source for cell in done]:
        return False
    notebook["metadata"] = executed.metadata if executed else {}
    for cell, result in zip(code, done):
        cell.update(outputs=result.outputs, execution_count=result.execution_count)
        for output in cell["outputs"]:  # data for the ledger, not for readers
            output.get("data", {}).pop(REPORT_MIME, None)
    return True


# The reference: docstrings as reStructuredText, linked to the chapters

MARKUP = "|".join(
    (
        r"(?P<code>``[^`]+``|(?<!:)`[^`]+`(?!_))",
        r"(?<!\\)\$(?P<maths>[^$\n]+)\$",
        r"(?P<paper>Saul [A\d]+\.\d+)",
        r"(?P<char>[*|]|(?<=\w)_(?!\w))",
    )
)


def restructured(text):
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
        elif paper in equations.labels():
            docname, anchor = equations.labels()[paper]
            markup = f"`{paper} <../../{docname}.html#{anchor}>`__"
        else:
            return paper
        # markup must stand apart
        before = "\\ " if re.search(r"\S$", text[: match.start()]) else ""
        after = "\\ " if re.match(r"\S", text[match.end() :]) else ""
        return before + markup + after

    return re.sub(MARKUP, piece, text)


def rewrite_docstring(app, what, name, obj, options, lines):
    """Turn Markdown habits into reStructuredText and add a link to the cell of the chapter; runs
    before napoleon. That of a module is in the text of the page.
    """
    if what == "module":
        lines.clear()
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or re.fullmatch(r"\s*[-=~]{3,}\s*", line):
            continue
        # "n_iter_ : int": the name belongs to napoleon
        field = re.match(r"[\w*, ]+ : |\w+_?$|", line)[0]
        lines[i] = field + restructured(line.removeprefix(field))
    chapter = names.chapters().get(getattr(obj, "__module__", None))
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
    added = re.fullmatch(r"set_\w+_request|get_metadata_routing", name)
    return True if added or type(obj).__name__ == "_tuplegetter" else None


def setup(app):
    # set by Jupyter Book for an extension that we leave out
    app.add_config_value("comments_config", {}, "html")
    app.connect("config-inited", imitate_torch)
    app.connect("config-inited", work_in_parallel)
    app.connect("env-get-outdated", read_one)
    app.connect("env-before-read-docs", look_once)
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=100)
    app.connect("autodoc-process-docstring", mend_attributes, priority=900)
    app.connect("autodoc-skip-member", skip_member)
    static = ROOT / "book" / "_static"
    app.config.html_static_path.append(str(static))
    for sheet in sorted(static.glob("*.css")):
        app.add_css_file(sheet.name, priority=900)
    for script in ("ledger", "folding", "equations", "scroll", "weight"):
        app.add_js_file(f"{script}.js", loading_method="defer")
    for extension in EXTENSIONS:
        extension.setup(app)
    return {
        "version": "2",
        "env_version": 2,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
