"""Every notebook runs from its first cell to its last in nbdev's own runner, each in a process of its own.

Where tests run side by side, so do notebooks, and each keeps to one thread (the book runs them with as many as there are).
"""
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
NOTEBOOKS = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
sys.path.insert(0, str(ROOT / "book"))

from capslit_book import needs_torch  # noqa: E402

from conftest import WORKER  # noqa: E402

RUN = """
import sys
from pathlib import Path
from nbdev.test import test_nb
passed, seconds = test_nb(Path(sys.argv[1]), skip_flags=["notest"])
sys.exit(not passed)
"""


@pytest.mark.first
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_notebook(notebook):
    if needs_torch(ROOT / notebook) and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed; pip install capslit[torch]")
    done = subprocess.run([sys.executable, "-c", RUN, str(ROOT / notebook)], cwd=ROOT, capture_output=True, text=True,
                          timeout=600, env=os.environ | {"MPLBACKEND": "agg"} | (THREADS if WORKER else {}))
    assert done.returncode == 0, f"{notebook} failed\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
