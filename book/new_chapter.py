"""Begin a model from the skeleton: make chapter NB=nbs/mixtures/coins.ipynb

Writes three files: the notebook, its line in _toc.yml, and its estimator's entry in
tests/estimators.py. The module, the page and its part of the reference follow from these.
"""

import re
import sys
from pathlib import Path

from paths import ROOT

SKELETON = Path(__file__).parent / "skeleton.ipynb"
BEFORE = "from capslit.capsules.settings import"  # the line before which an import is put
ENTRY = """    "BernoulliMixture": Entry(
        BernoulliMixture(2, n_init=2, random_state=0),
        X=BITS,
        settings=(*EM, *each(n_components=[0], pseudocount=[0], n_init=[0])),
        calls=SAMPLE,
        another_run={"pseudocount": 2.0},
    ),
"""


def begin(notebook, root=ROOT):
    """Write the notebook `notebook`, a path in nbs/PACKAGE below `root`, and make it known."""
    notebook = Path(notebook)
    package, module = notebook.parent.name, notebook.stem
    if notebook.parts[:-2] != ("nbs",) or not module.isidentifier():
        raise SystemExit(f"NB is {notebook}; pass a path such as nbs/mixtures/coins.ipynb")
    if (root / notebook).exists():
        raise SystemExit(f"{notebook} exists; choose another name")
    contents, estimators = root / "_toc.yml", root / "tests" / "estimators.py"
    *before, after = re.split(
        rf"(.*file: nbs/{package}/.*\n)", contents.read_text(encoding="utf-8")
    )
    if not before:
        raise SystemExit(f"_toc.yml has no chapter of nbs/{package}; add the part first")
    line = before[-1].split("file:")[0] + f"file: nbs/{package}/{module}\n"
    table = estimators.read_text(encoding="utf-8")
    imported = f"from capslit.{package}.{module} import BernoulliMixture\n"
    table = table.replace(BEFORE, imported + BEFORE, 1)
    head, start, entries = table.partition("\nESTIMATORS = {")
    entries = entries.replace("\n}\n", f"\n{ENTRY}}}\n", 1)
    skeleton = SKELETON.read_text(encoding="utf-8")
    for path, text in {
        root / notebook: skeleton.replace("PACKAGE.MODULE", f"{package}.{module}"),
        contents: "".join([*before, line, after]),
        estimators: head + start + entries,
    }.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    begin(*sys.argv[1:])
