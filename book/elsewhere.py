"""Copies of the notebooks that run elsewhere: each begins with a cell that installs capslit where
it is missing.

python book/elsewhere.py FOLDER writes them into FOLDER/latest/nbs, or FOLDER/vX.Y.Z/nbs where that
tag is checked out. python book/elsewhere.py --push commits them to the branch `notebooks` of
origin, which Colab and Binder open: the theme's launch buttons would open the sources, which do not
install what they import.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dependencies import imported, nodes, notebooks, reads_notebooks
from execute import clean_cell
from paths import ROOT
from project import LATEST, SETTINGS, SOURCE, VERSION, commit, git, version_folder

BRANCH = "notebooks"
EXTRAS = dict(  # of what only few chapters import
    dask="dask", distributed="dask", pyarrow="parquet", skrub="tables", zarr="zarr", torch="torch"
)
BINDER = ["chapters", "dask", "parquet"]
README = (
    f"Copies of the notebooks of [{SETTINGS['title']}]({LATEST}) that install it where they are"
    " run. They are written by a program: edit [the"
    f" sources]({SOURCE}/tree/{SETTINGS['branch']}/nbs).\n"
)
INSTALL = """# This cell installs capslit where it is missing, such as on Colab, Kaggle or Binder
import importlib.util

if importlib.util.find_spec("capslit") is None:
    %pip install --quiet "{requirement}\""""


def imports(path):
    """The packages that a notebook imports."""
    return {name.split(".")[0] for name in imported(nodes(path))}


def requirement(extras):
    """What pip installs: this version, or where it is not released, this commit."""
    name = f"{SETTINGS['lib_name']}[{','.join(extras)}]"
    if version_folder() != "latest":
        return f"{name}=={VERSION}"
    return f"{name} @ git+{SOURCE}@{commit()[0] if commit() else SETTINGS['branch']}"


def portable(path):
    """A notebook as JSON, without nbdev's directives and with a first cell that installs what it
    needs.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            clean_cell(cell)
    extras = sorted({EXTRAS[name] for name in EXTRAS.keys() & imports(path)})
    first = {
        "cell_type": "code",
        "id": "install",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": INSTALL.format(requirement=requirement(["chapters", *extras])),
    }
    notebook["cells"] = [first, *(cell for cell in notebook["cells"] if cell["source"])]
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write(folder):
    """Write the copies of this version, their pictures, and what Binder installs, into a folder
    that may hold other versions.
    """
    home = folder / version_folder()
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(ROOT / "nbs" / "images", home / "nbs" / "images")
    texts = {
        home / path.relative_to(ROOT): portable(path)
        for path in notebooks()
        if not reads_notebooks(path)  # the ledger reads the sources of all others
    }
    texts[folder / "binder" / "requirements.txt"] = f"{requirement(BINDER)}\n"
    texts[folder / "README.md"] = README
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def push():
    """Commit the copies to the branch of origin, which is made if it is not there, and push it."""

    def run(*words, folder=ROOT):
        subprocess.run(["git", "-C", folder, *words], check=True)

    exists = git("ls-remote", "--heads", "origin", BRANCH)
    remote = f"refs/remotes/origin/{BRANCH}"
    if exists:
        run("fetch", "--quiet", "--depth=1", "origin", f"+refs/heads/{BRANCH}:{remote}")
    with TemporaryDirectory() as parent:
        folder = Path(parent, BRANCH)
        start = [remote] if exists else []
        run("worktree", "add", "--quiet", "--detach", folder, *start)
        try:
            if not exists:
                run("checkout", "--quiet", "--orphan", BRANCH, folder=folder)
                run("rm", "-r", "--quiet", "--force", ".", folder=folder)
            write(folder)
            run("add", "--all", folder=folder)
            if git("-C", str(folder), "status", "--porcelain"):
                message = f"Notebooks of {commit()[0][:10]}"
                run("commit", "--quiet", "--message", message, folder=folder)
                run("push", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}", folder=folder)
        finally:
            run("worktree", "remove", "--force", folder)


if __name__ == "__main__":
    if sys.argv[1:] == ["--push"]:
        push()
    else:
        write(Path(sys.argv[1]))
