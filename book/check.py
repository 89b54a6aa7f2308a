"""Check one notebook: clean it, write its module, look for mistakes, execute it, run the tests that
import the module.

python book/check.py NOTEBOOK [options of pytest, such as -k or -n auto]
"""

import subprocess
import sys
from pathlib import Path

import dependencies
import execute
from paths import ROOT

BIN = Path(sys.executable).parent


def step(*command):
    """Run one command of the environment from the root of the project; stop here if it fails."""
    print("$", *command, flush=True)
    if failed := subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT).returncode:
        sys.exit(failed)


if __name__ == "__main__":
    path = execute.notebook(sys.argv[1])
    step("nbdev_clean", "--fname", execute.short(path))
    step("nbdev_export")
    module = dependencies.modules().get(dependencies.module_of(path))
    step("ruff", "check", "--quiet", *map(execute.short, filter(None, [path, module])))
    execute.main([path])
    if tests := dependencies.tests_of(path):
        step("pytest", "-x", *sys.argv[2:], *map(execute.short, tests))
