"""Live parts: JavaScript written in chapters, shown folded, and written to _static/live with the
data that a cell hands over.

    ```{live} NAME            a block of JavaScript; the blocks of one name are joined in the order
    of the chapter :uses: OTHER …            scripts of other names, from any chapter, that are
    loaded before this one capslit.plotting.live(NAME, data, …)      a cell that shows the part; its
    page loads live.js, NAME.data.js and NAME.js

A part has no block of its own if its data say which common script starts it: {"starts": [SCRIPT,
FUNCTION], …}.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

KINDS = ("code", "data", "uses")
MIME = "application/vnd.capslit.live+json"
logger = logging.getLogger(__name__)


class folded(nodes.General, nodes.Element):
    """Something that a reader opens; its attribute `summary` says what it is."""


def open_folded(self, node):
    self.body.append(
        f'<details class="capslit-live-code"><summary>{self.encode(node["summary"])}</summary>\n'
    )


def close_folded(self, node):
    self.body.append("</details>\n")


def nothing(self, node):
    """Where nothing can be folded, the content stands open."""


class Live(SphinxDirective):
    """A block of JavaScript: kept for the script of its part, and shown folded."""

    required_arguments = 1
    has_content = True
    option_spec = {"uses": str.split}

    def run(self):
        (name,), code = self.arguments, "\n".join(self.content)
        parts(self.env, "uses").setdefault(self.env.docname, {}).setdefault(name, []).extend(
            self.options.get("uses", [])
        )
        blocks = parts(self.env, "code").setdefault(self.env.docname, {}).setdefault(name, [])
        blocks.append(code)
        listing = nodes.literal_block(code, code, language="javascript")
        self.set_source_info(listing)
        summary = "The code of this live part" + ", continued" * (len(blocks) > 1)
        return [folded("", listing, summary=summary)]


def parts(env, kind):
    """What has been read so far, {docname: {name: …}}: blocks of code, data as JSON, or names of
    scripts that are used.
    """
    if not hasattr(env, "capslit_live"):
        env.capslit_live = {kind: {} for kind in KINDS}
    return env.capslit_live[kind]


def take_data(app, docname, source):
    """Keep the data of a page's live parts, and take them out of the outputs."""
    if Path(app.env.doc2path(docname)).suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    found = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            part = output.get("data", {}).pop(MIME, None)
            if part:
                found[part["name"]] = json.dumps(part["data"], separators=(",", ":"))
                if "starts" in part["data"]:
                    start_by_script(app.env, docname, part["name"], *part["data"]["starts"])
    if found:
        parts(app.env, "data")[docname] = found
        source[0] = json.dumps(notebook)


def start_by_script(env, docname, name, script, function):
    """Keep one line as the code of a part that a script of several parts starts."""
    parts(env, "uses").setdefault(docname, {})[name] = [script]
    parts(env, "code").setdefault(docname, {})[name] = [
        f'capslit.live("{name}", capslit.{function});'
    ]


def forget(app, env, docname):
    """A page is about to be read again."""
    for kind in KINDS:
        parts(env, kind).pop(docname, None)


def merge(app, env, docnames, other):
    """Bring together what the processes have read."""
    for kind in KINDS:
        for docname in docnames:
            if docname in parts(other, kind):
                parts(env, kind)[docname] = parts(other, kind)[docname]


def scripts(env):
    """The script of each part, {name: JavaScript}, in a scope of its own."""
    return {
        name: '(() => {\n"use strict";\n' + "\n\n".join(blocks) + "\n})();\n"
        for page in parts(env, "code").values()
        for name, blocks in page.items()
    }


def write_files(app, env):
    """Write NAME.js and NAME.data.js, before the pages that name them."""
    if app.builder.format != "html":
        return []
    folder = Path(app.outdir) / "_static" / "live"
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.js": code for name, code in scripts(env).items()}
    for page in parts(env, "data").values():
        files |= {
            f"{name}.data.js": f"capslit.data[{json.dumps(name)}] = {data};\n"
            for name, data in page.items()
        }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return []


def needed(env, name):
    """The scripts that a part needs, in the order of loading, its own last."""
    used = [other for page in parts(env, "uses").values() for other in page.get(name, [])]
    return list(dict.fromkeys([script for other in used for script in needed(env, other)] + [name]))


def check_parts(app, env):
    """Every part that is shown has a script, and the other way round; a page built alone does not
    know the others.
    """
    shown = {name: docname for docname, page in parts(env, "data").items() for name in page}
    written = {name: docname for docname, page in parts(env, "code").items() for name in page}
    used = {script: docname for name, docname in shown.items() for script in needed(env, name)}
    for name in used.keys() - written.keys():
        logger.warning(
            f"the live part {name} has no code: no {{live}} {name} in any chapter",
            location=used[name],
        )
    for name in written.keys() - used.keys():
        logger.warning(
            f"the code of the live part {name} is used on no page: no cell calls live({name!r}, …)",
            location=written[name],
        )


def load_files(app, pagename, templatename, context, doctree):
    """Let a page with live parts load the common script and those of its parts, and no
    other page.
    """
    folder = (
        Path(app.outdir) / "_static" / "live"
    )  # where the last build has left what another page defines
    names = {
        name
        for name in parts(app.env, "data").get(pagename, {})
        if (folder / f"{name}.js").is_file()
    }
    if names:
        for common in ("live.js", "live-marks.js"):
            app.add_js_file(common, priority=700, loading_method="defer")
    for name in sorted(names):
        app.add_js_file(f"live/{name}.data.js", priority=701, loading_method="defer")
    for name in dict.fromkeys(script for name in sorted(names) for script in needed(app.env, name)):
        app.add_js_file(f"live/{name}.js", priority=702, loading_method="defer")


def setup(app):
    app.add_node(
        folded, html=(open_folded, close_folded), latex=(nothing, nothing), text=(nothing, nothing)
    )
    app.add_directive("live", Live)
    app.connect("source-read", take_data, priority=600)  # after the outputs have been brought in
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", write_files)
    app.connect("env-check-consistency", check_parts)
    app.connect("html-page-context", load_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
