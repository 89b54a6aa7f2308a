"""A model begun from the skeleton is complete: it runs, and it keeps the promises of estimators."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("book", "capslit", "tests", "_toc.yml", "settings.ini", "pyproject.toml")
PROGRAM = """
import json
from nbdev.export import nb_export
nb_export("nbs/mixtures/coins.ipynb")
from capslit.mixtures.coins import BernoulliMixture
for cell in json.load(open("nbs/mixtures/coins.ipynb"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]))
"""


@pytest.mark.first
def test_a_model_begun_from_the_skeleton_is_complete(tmp_path):
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "saved", "mutants-*.json")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "nbs" / "mixtures").mkdir(parents=True)

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("book/new_chapter.py", "nbs/mixtures/coins.ipynb")
    contents = (tmp_path / "_toc.yml").read_text(encoding="utf-8")
    assert contents.count("          - file: nbs/mixtures/coins\n") == 1
    assert "one component" in run("-c", PROGRAM)
    run("-m", "ruff", "format", "--check", "nbs", "tests/estimators.py")
    run("-m", "ruff", "check", "nbs", "tests/estimators.py")
    promises = ["tests/test_contracts.py", "tests/test_conventions.py"]
    words = run(
        "-m", "pytest", "-n0", "-k", "BernoulliMixture", "-p", "no:cacheprovider", *promises
    )
    assert "failed" not in words and int(re.search(r"(\d+) passed", words)[1]) >= 10
