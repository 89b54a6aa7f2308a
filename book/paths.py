"""Where things are, and how a file is written whole or not at all."""

import os
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
HTML = BUILD / "html"  # the built book
STORE = BUILD / "executed"  # the executed notebooks


@contextmanager
def whole(target):
    """A path to write to, which becomes the target when all is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_suffix(f".{os.getpid()}.tmp")
    yield scratch
    scratch.replace(target)
