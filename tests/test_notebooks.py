"""Every notebook runs from its first cell to its last.

What `make book` has executed, and what has not changed since, is not executed again; what is
executed here is kept for the book.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))

import execute  # noqa: E402
import kernels  # noqa: E402
from conftest import WORKER  # noqa: E402
from dependencies import notebooks, runs_here  # noqa: E402


@pytest.mark.first
@pytest.mark.parametrize("notebook", notebooks(), ids=execute.short)
def test_notebook(notebook):
    if not runs_here(notebook):
        pytest.skip("PyTorch is not installed; pip install capslit[torch]")
    if not execute.is_current(notebook):
        execute.execute(notebook, **(execute.ONE_THREAD if WORKER else {}))


class Project:
    """A book of our own with a few notebooks, given as lists of cells, and a package, given as the
    text of its modules.
    """

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(
            ROOT / "book", folder / "book", ignore=shutil.ignore_patterns("__pycache__")
        )

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            cells = [
                (
                    nbformat.v4.new_markdown_cell(text[2:])
                    if text.startswith("# ")
                    else nbformat.v4.new_code_cell(text)
                )
                for text in content
            ]
            nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        else:
            path.write_text(content, encoding="utf-8")

    def execute(self):
        """Exit status, what was said, and which notebooks were executed to the end."""
        done = subprocess.run(
            [sys.executable, "book/execute.py"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=os.environ | execute.ONE_THREAD | {"PYTHONPATH": ""},
        )
        executed = [
            line.split()[-1]
            for line in done.stdout.splitlines()
            if line.startswith("[") and "FAILED" not in line
        ]
        return (
            done.returncode,
            done.stdout + done.stderr,
            sorted(Path(name).stem for name in executed),
        )


def outputs(folder, name):
    cells = nbformat.read(
        folder / "_build" / "executed" / "nbs" / f"{name}.ipynb", as_version=4
    ).cells
    return [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]


def test_only_what_has_changed_is_executed_and_no_result_is_lost(tmp_path):
    project = Project(tmp_path)
    project.write(
        "capslit/__init__.py",
        "import lazy_loader as lazy\n__getattr__, __dir__, __all__ = lazy.attach_stub(__name__,"
        " __file__)\n",
    )
    project.write("capslit/__init__.pyi", "from .deep import depth as depth\n")
    project.write("capslit/deep.py", "from .deeper import least\ndepth = least + 1\n")
    project.write("capslit/deeper.py", "least = 1\n")
    project.write("results/a.json", "1")
    draws = (
        "import random, numpy\nassert numpy.random.rand() == numpy.random.RandomState(0).rand()"
        "\nassert random.random() == random.Random(0).random()"
    )
    project.write("nbs/free.ipynb", ["# Words", draws])  # without a seed, yet the same each time
    project.write("nbs/part/user.ipynb", ["#| hide\nfrom capslit import depth", "depth"])
    project.write(
        "nbs/record.ipynb", ["from pathlib import Path\nPath('../results/a.json').read_text()"]
    )
    project.write(
        "nbs/reader.ipynb",
        [
            "import os\nfrom pathlib import Path\nsorted(p.stem for p in"
            " Path(os.environ['CAPSLIT_EXECUTED']).rglob('*.ipynb'))"
        ],
    )
    project.write("nbs/wrong.ipynb", ["1 + 1", "1 / 0", "2 + 2"])
    project.write("nbs/warns.ipynb", ["import warnings\nwarnings.warn('beware of the dog')"])
    project.write("nbs/dies.ipynb", ["import os\nos._exit(1)"])

    status, said, executed = project.execute()
    assert status == 1 and executed == ["free", "reader", "record", "user"]
    assert "nbs/wrong.ipynb, cell " in said and "ZeroDivisionError" in said and "2 + 2" not in said
    assert "beware of the dog" in said and "nbs/dies.ipynb, cell " in said and "\x1b[" not in said
    assert outputs(tmp_path, "part/user")[0].data["text/plain"] == "2"
    assert outputs(tmp_path, "reader")[0].data["text/plain"] == "['free', 'record', 'user']"

    for name in ("wrong", "warns", "dies"):
        project.write(f"nbs/{name}.ipynb", ["1 + 1"])
    assert project.execute()[::2] == (0, ["dies", "reader", "warns", "wrong"])
    project.write("nbs/free.ipynb", ["# Other words", draws])
    assert project.execute()[::2] == (0, [])
    project.write("capslit/deeper.py", "least = 10\n")
    assert project.execute()[::2] == (0, ["reader", "user"])
    assert outputs(tmp_path, "part/user")[0].data["text/plain"] == "11"
    project.write("results/a.json", "2")
    assert project.execute()[::2] == (0, ["record"])
    for name in ("wrong", "warns", "dies", "reader"):
        (tmp_path / "nbs" / f"{name}.ipynb").unlink()
    project.write("requirements.lock", "numpy==2.0")
    assert project.execute()[::2] == (0, ["free", "record", "user"])


@pytest.mark.skipif(not kernels.AVAILABLE, reason="kernels are forked on Linux only")
def test_forked_kernels_share_nothing_but_what_is_imported(tmp_path):
    """Each notebook begins as if it were alone, and may leave what it likes; one that dies harms
    none.
    """
    project = Project(tmp_path)
    begin = (
        "import os, random, subprocess, sys\n"
        "assert 'sympy' in sys.modules, 'not forked'\n"
        "assert len(os.listdir(f'/proc/{os.getppid()}/task')) == 1, 'threads'\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "apart = {'capslit', 'kernels', 'execute', 'numba', 'torch', 'distributed'}\n"
        "assert not loaded & apart, loaded & apart\n"
        "assert 'matplotlib.pyplot' not in sys.modules and not hasattr(random, 'left')\n"
        "import numpy\n"
        "assert numpy.random.rand() == numpy.random.RandomState(0).rand()\n"
        "assert random.random() == random.Random(0).random()\n"
        "assert subprocess.run(['false']).returncode == 1\n"
        "assert 'LEFT' not in os.environ and os.environ['OMP_NUM_THREADS'] == '1'\n"
        "assert not any(path.endswith('book') for path in sys.path)\n"
        "os.environ['LEFT'] = random.left = 'a trace'\n"
        "os.path.basename(os.getcwd())"
    )
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
    for i in range(execute.FEW):
        project.write(f"nbs/part/free{i}.ipynb", [begin, figure])
    project.write("nbs/dies.ipynb", ["import os\nos._exit(1)"])
    project.write("nbs/wrong.ipynb", ["1 / 0"])
    status, said, executed = project.execute()
    assert status == 1 and executed == [f"free{i}" for i in range(execute.FEW)], said
    assert "nbs/dies.ipynb, cell " in said and "ZeroDivisionError" in said
    shown = [outputs(tmp_path, f"part/{name}") for name in executed]
    assert {folder.data["text/plain"] for folder, _ in shown} == {"'part'"}
    assert all("image/png" in figure.data for _, figure in shown)


@pytest.mark.skipif(not kernels.AVAILABLE, reason="kernels are forked on Linux only")
def test_a_warning_at_import_appears_in_the_chapter_that_imports_the_module(tmp_path):
    project = Project(tmp_path)
    project.write("sympy.py", "import warnings\nwarnings.warn('sympy is too new')\n")
    for i in range(execute.FEW):
        project.write(f"nbs/free{i}.ipynb", ["1"])
    project.write("nbs/warns.ipynb", ["import sympy"])
    status, said, executed = project.execute()
    assert status == 1 and executed == [f"free{i}" for i in range(execute.FEW)], said
    assert "nbs/warns.ipynb, cell " in said and "UserWarning: sympy is too new" in said
