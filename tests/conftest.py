"""What several test modules share."""
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("capslit")
ALL = ("reproduce", "all", "--profile", "quick", "--quiet")


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    "The folder with the records of all experiments on the embedded digits, as the installed command wrote them, and what it said."
    folder = tmp_path_factory.mktemp("everything") / "new"
    command = [SCRIPT] if SCRIPT.exists() else [sys.executable, "-c", "import sys; from capslit.cli import main; sys.exit(main())"]
    done = subprocess.run([*command, *ALL, "--out", folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return folder, done.stdout
