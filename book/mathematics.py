"""MathJax lies in the book, where Jupyter Book loads it from the network; formulas are typeset as
they are seen.
"""

import importlib.util
from pathlib import Path

from sphinx.util.fileutil import copy_asset

PARTS = ["core", "input/tex", "[tex]/boldsymbol", "output/svg", "a11y/assistive-mml", "ui/lazy"]
FILES = ["startup", *PARTS, "output/svg/fonts/tex"]
CONFIGURATION = {
    "loader": {"load": PARTS},
    "tex": {"packages": {"[+]": ["boldsymbol"], "[-]": ["noundefined"]}},
    "svg": {"mtextInheritFont": True},
    "options": {
        "processHtmlClass": "tex2jax_process|mathjax_process|math|output_area",
        "ignoreHtmlClass": "tex2jax_ignore|mathjax_ignore|document",
    },
}


def copy_parts(app, exception):
    """Copy the parts of MathJax that are loaded from the package that carries it."""
    if exception is None and app.builder.format == "html":
        package = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
        for part in FILES:
            file = part.replace("[tex]", "input/tex/extensions") + ".js"
            target = Path(app.outdir, "_static", "mathjax", file)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_asset(package / "static" / "mathjax" / file, target.parent)


def configure(app, config):
    config.mathjax_path = "mathjax/startup.js"
    config.mathjax3_config = CONFIGURATION


def setup(app):
    app.connect("config-inited", configure)
    app.connect("build-finished", copy_parts)
