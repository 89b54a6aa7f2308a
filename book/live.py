"""Live parts: JavaScript written in chapters, shown folded, and written to _static/live with the
data that a cell hands over.

    ```{live} NAME
    :uses: OTHER …

is a block of JavaScript; the blocks of one name are joined in the order of the chapter. The scripts
of the other names are loaded before. A cell that calls capslit.plotting.live(NAME, data, …) shows
the part. A part has no block if its data name the common script that starts it:
{"starts": [SCRIPT, FUNCTION], …}.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

MIME = "application/vnd.capslit.live+json"
FOLD = '<details class="capslit-live-code"><summary>The code of this live part{}</summary>'
logger = logging.getLogger(__name__)


def parts(env, docname):
    """Blocks of code, data, and names of the scripts used, by the names of a page's parts; kept
    with what Sphinx keeps of each page.
    """
    empty = {"code": {}, "data": {}, "uses": {}}
    return env.metadata[docname].setdefault("capslit_live", empty)


def gathered(env, kind):
    """What all pages say of their parts: {name: (page, what)}."""
    pages = sorted(env.found_docs)
    return {name: (page, what) for page in pages for name, what in parts(env, page)[kind].items()}


class Live(SphinxDirective):
    """A block of JavaScript: kept for the script of its part, and shown folded."""

    required_arguments = 1
    has_content = True
    option_spec = {"uses": str.split}

    def run(self):
        (name,), code = self.arguments, "\n".join(self.content)
        page = parts(self.env, self.env.docname)
        page["uses"].setdefault(name, []).extend(self.options.get("uses", []))
        blocks = page["code"].setdefault(name, [])
        blocks.append(code)
        listing = nodes.literal_block(code, code, language="javascript")
        self.set_source_info(listing)
        fold = FOLD.format(", continued" * (len(blocks) > 1))
        closing = nodes.raw("", "</details>", format="html")
        return [nodes.raw("", fold, format="html"), listing, closing]


def take_data(env, docname, notebook):
    """Keep the data of a page's live parts, and take them out of the outputs."""
    page = parts(env, docname)
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
        part = output.get("data", {}).pop(MIME, None)
        if part:
            name, data = part["name"], part["data"]
            page["data"][name] = json.dumps(data, separators=(",", ":"))
            if "starts" in data:
                script, function = data["starts"]
                page["uses"][name] = [script]
                page["code"][name] = [f'capslit.live("{name}", capslit.{function});']


def write_files(app, env):
    """Write NAME.js, in a scope of its own, and NAME.data.js, before the pages that name them."""
    if app.builder.format != "html":
        return []
    folder = Path(app.outdir) / "_static" / "live"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, blocks) in gathered(env, "code").items():
        code = "\n\n".join(blocks)
        script = f'(() => {{\n"use strict";\n{code}\n}})();\n'
        (folder / f"{name}.js").write_text(script, encoding="utf-8")
    for name, (_, data) in gathered(env, "data").items():
        script = f"capslit.data[{json.dumps(name)}] = {data};\n"
        (folder / f"{name}.data.js").write_text(script, encoding="utf-8")
    return []


def needed(env, name):
    """The scripts that a part needs, in the order of loading, its own last."""
    _, used = gathered(env, "uses").get(name, ("", []))
    return list(dict.fromkeys([script for other in used for script in needed(env, other)] + [name]))


def check_parts(app, env):
    """Every part that is shown has a script, and the other way round."""
    shown, written = gathered(env, "data"), gathered(env, "code")
    used = {script: page for name, (page, _) in shown.items() for script in needed(env, name)}
    for name in used.keys() - written.keys():
        text = f"the live part {name} has no code: no {{live}} {name} in any chapter"
        logger.warning(text, location=used[name])
    for name in written.keys() - used.keys():
        text = f"the code of the live part {name} is used on no page: no cell calls live({name!r})"
        logger.warning(text, location=written[name][0])


def load_files(app, pagename, templatename, context, doctree):
    """Let a page with live parts load the common script and those of its parts; a page that is
    built alone may lack what another page defines.
    """
    folder = Path(app.outdir) / "_static" / "live"
    names = sorted(parts(app.env, pagename)["data"])
    names = [name for name in names if (folder / f"{name}.js").is_file()]
    files = ["live.js", "live-marks.js"] if names else []
    files += [f"live/{name}.data.js" for name in names]
    files += [f"live/{script}.js" for name in names for script in needed(app.env, name)]
    for file in dict.fromkeys(files):
        app.add_js_file(file, priority=700, loading_method="defer")


def setup(app):
    app.add_directive("live", Live)
    app.connect("env-updated", write_files)
    app.connect("env-check-consistency", check_parts)
    app.connect("html-page-context", load_files)
