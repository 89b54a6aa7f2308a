"""Every notebook runs from its first cell to its last.

What `make book` has executed, and what has not changed since, is not executed again; what is executed here is kept for the book.
"""
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))

import execute  # noqa: E402
from conftest import WORKER  # noqa: E402
from dependencies import notebooks, runs_here  # noqa: E402


@pytest.mark.first
@pytest.mark.parametrize("notebook", notebooks(), ids=execute.short)
def test_notebook(notebook):
    if not runs_here(notebook):
        pytest.skip("PyTorch is not installed; pip install capslit[torch]")
    if not execute.is_current(notebook):
        execute.execute(notebook, **(execute.ONE_THREAD if WORKER else {}))
