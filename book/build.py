"""Build the book: execute the notebooks that are out of date, then read and write the pages that
have changed.

python book/build.py                the whole book; any warning is an error
python book/build.py NOTEBOOK       that notebook and its page alone
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import execute
from dependencies import notebooks
from paths import BUILD, HTML, ROOT, STORE

ENVIRONMENT = BUILD / ".doctrees" / "environment.pickle"  # what Sphinx remembers of the last build
JUPYTER_BOOK = Path(sys.executable).with_name("jupyter-book")


def jupyter_book(*options, **environ):
    """Run Jupyter Book on what has changed; return its exit status."""
    return subprocess.run(
        [JUPYTER_BOOK, "build", ROOT, "-n", "--keep-going", *options], env=os.environ | environ
    ).returncode


def remove_strays():
    """Remove pages and executed notebooks whose source is gone."""
    for built in [*(HTML / "nbs").rglob("*.html"), *STORE.rglob("*.ipynb")]:
        source = ROOT / built.relative_to(HTML if built.suffix == ".html" else STORE)
        if not (source.with_suffix(".ipynb").is_file() or source.with_suffix(".md").is_file()):
            built.unlink()


def build_all():
    """Build the whole book; return the exit status. After warnings, all is read again next time:
    they are shown until they are mended.
    """
    remove_strays()
    failed = jupyter_book("-W")
    if failed:
        shutil.rmtree(ENVIRONMENT.parent, ignore_errors=True)
    return failed


def build_page(path):
    """Build one page, and leave what Sphinx remembers as it was: the next build of the book reads
    the page again, and insists on no warnings.
    """
    known = ENVIRONMENT.read_bytes() if ENVIRONMENT.is_file() else None
    page = path.relative_to(ROOT).with_suffix("")
    try:  # without the other pages, warnings of links between them mean nothing
        failed = jupyter_book("-q" if known else "-qq", CAPSLIT_PAGE=page.as_posix())
    finally:
        if known:
            ENVIRONMENT.write_bytes(known)
        else:
            shutil.rmtree(ENVIRONMENT.parent, ignore_errors=True)
    print(f"The page: {HTML / page}.html")
    return failed


if __name__ == "__main__":
    paths = [execute.notebook(name) for name in sys.argv[1:]]
    execute.main(paths or notebooks())
    sys.exit(build_page(paths[0]) if paths else build_all())
