"""MathJax lies in the book, where Jupyter Book loads it from the network; formulas are typeset as
they are seen.
"""

import importlib.util
import re
from pathlib import Path

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


# Each of MathJax's modules has copies of what old browsers lack: how these end, and what stands for
# them in today's
HELPERS = {
    "extends": (
        r"new \w\)\}\)",
        "(c,b)=>{function C(){this.constructor=c}Object.setPrototypeOf(c,b);"
        "c.prototype=b===null?Object.create(b):(C.prototype=b.prototype,new C)}",
    ),
    "assign": (r"\.apply\(this,arguments\)\}", "Object.assign"),
    "values": (r'not defined\."\)\}', "a=>a[Symbol.iterator]?.()??[].values.call(a)"),
    "read": (
        r"\.error\}\}return \w\}",
        "(a,n=1/0)=>{if(!a[Symbol.iterator])return a;const r=[];"
        "if(n>0)for(const v of a)if(r.push(v)>=n)break;return r}",
    ),
    "spreadArray": (r"slice\.call\(\w\)\)\}", "(a,b)=>a.concat([].slice.call(b))"),
}


def with_shared_helpers(script):
    """A script of MathJax, a seventh smaller: its modules share the helpers of startup.js."""
    for name, (end, _) in HELPERS.items():
        copy = rf"this&&this\.__{name}\|\|(?:(?!this&&this).)*?{end}"
        script = re.sub(copy, f"mathjaxHelpers.{name}", script)
    return script


def copy_parts(app, exception):
    """Copy the parts of MathJax that are loaded from the package that carries it."""
    if exception is None and app.builder.format == "html":
        package = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
        helpers = ",".join(f"{name}:{code}" for name, (_, code) in HELPERS.items())
        before = f"const mathjaxHelpers={{{helpers}}};"  # of the first, which is loaded first
        for part in FILES:
            file = part.replace("[tex]", "input/tex/extensions") + ".js"
            target = Path(app.outdir, "_static", "mathjax", file)
            target.parent.mkdir(parents=True, exist_ok=True)
            script = (package / "static" / "mathjax" / file).read_text(encoding="utf-8")
            target.write_text(before + with_shared_helpers(script), encoding="utf-8")
            before = ""


def configure(app, config):
    config.mathjax_path = "mathjax/startup.js"
    config.mathjax3_config = CONFIGURATION


def setup(app):
    app.connect("config-inited", configure)
    app.connect("build-finished", copy_parts)
