"""What several test modules share."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(sys.executable).with_name("capslit")
ALL = ("reproduce", "all", "--profile", "quick", "--quiet")


CHECKS = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import capslit
warnings.simplefilter("ignore")
name, parameters, expected = json.loads(sys.argv[1])
results = check_estimator(getattr(capslit, name)(**parameters), on_fail=None, on_skip=None, expected_failed_checks=expected)
good = ("passed", "xfail") if expected else ("passed",)
print(len(results), [(r["check_name"], repr(r["exception"])) for r in results if r["status"] not in good])
"""


@pytest.fixture(scope="session")
def unpassed():
    "unpassed(name, parameters, expected): how many checks scikit-learn made of an estimator, and which failed or were skipped, as text."
    def run(name, parameters, expected=None):
        "In a process of its own, for the array-API checks need the variable before SciPy is imported."
        done = subprocess.run([sys.executable, "-c", CHECKS, json.dumps([name, parameters, expected])], capture_output=True, text=True, timeout=600,
                              env=os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        count, failures = done.stdout.split(" ", 1)
        return int(count), failures.strip()
    return run


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    "The folder with the records of all experiments on the embedded digits, as the installed command wrote them, and what it said."
    folder = tmp_path_factory.mktemp("everything") / "new"
    command = [SCRIPT] if SCRIPT.exists() else [sys.executable, "-c", "import sys; from capslit.cli import main; sys.exit(main())"]
    done = subprocess.run([*command, *ALL, "--out", folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return folder, done.stdout


def blobs(n=120, p=5, seed=0):
    "Two correlated groups, in mixed order."
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) + 4 * rng.permutation(np.arange(n) % 2)[:, None]


def classes(n=150, p=5, m=3, seed=0):
    "m groups of labelled examples."
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + 2.5 * rng.standard_normal((m, p))[y], y
