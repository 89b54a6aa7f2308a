"""Begin a model from the skeleton: make chapter NB=nbs/mixtures/coins.ipynb

Writes three files: the notebook, its line in _toc.yml, and its estimator's entry in
tests/estimators.py. The module, the page and its part of the reference follow from these.
"""

import sys
from pathlib import Path

from project import ROOT

SKELETON = Path(__file__).parent / "skeleton.ipynb"
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
    toc = contents.read_text(encoding="utf-8")
    lines = toc.splitlines(keepends=True)
    chapters = [i for i, line in enumerate(lines) if f"file: nbs/{package}/" in line]
    if not chapters:
        raise SystemExit(f"_toc.yml has no chapter of nbs/{package}; add the part first")
    last = chapters[-1]
    lines.insert(last + 1, lines[last].split("file:")[0] + f"file: nbs/{package}/{module}\n")
    skeleton = SKELETON.read_text(encoding="utf-8")
    table = estimators.read_text(encoding="utf-8")
    imports = table.index("from capslit.capsules.settings import")
    end = table.index("\n}\n", table.index("\nESTIMATORS = {")) + 1
    texts = {
        root / notebook: skeleton.replace("PACKAGE.MODULE", f"{package}.{module}"),
        contents: "".join(lines),
        estimators: "".join(
            [
                table[:imports],
                f"from capslit.{package}.{module} import BernoulliMixture\n",
                table[imports:end],
                ENTRY,
                table[end:],
            ]
        ),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    begin(*sys.argv[1:])
