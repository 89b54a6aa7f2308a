"""What several test modules share, and how tests are distributed among processes (`pytest -n`)."""

import functools
import inspect
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

WORKER = "PYTEST_XDIST_WORKER" in os.environ
# a process for each core, so one thread for each: a test of threads says how many it needs
if WORKER:
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # a thread that waits leaves its core to another process
    os.environ.setdefault(
        "OPENBLAS_THREAD_TIMEOUT", "4"
    )  # also OpenBLAS's: else 45 small eigenproblems take eleven times the processor's time

import hypothesis  # noqa: E402
import joblib  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
from built_book import browser, reader, readers, site, visits  # noqa: E402, F401
from hypothesis.internal.constants_ast import Constants  # noqa: E402
from hypothesis.internal.conjecture.providers import HypothesisProvider  # noqa: E402

PATIENCE = 3600  # seconds: a bound against hanging on the busiest machine, not a measurement

# Warnings that end a test: but not those of what others have left, which is collected at any time.
NO_WARNINGS = (
    "error",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

# Hypothesis draws the same examples on every run; `make fuzz` draws others, and many more.
UNTIMED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("fixed", derandomize=True, database=None, **UNTIMED)
hypothesis.settings.register_profile(
    "fuzz", max_examples=2000, database=None, print_blob=True, **UNTIMED
)
hypothesis.settings.load_profile("fixed")
# Otherwise it also draws constants from whichever modules of the package are loaded by then.
HypothesisProvider._local_constants = Constants()

SCRIPT = Path(sys.executable).with_name("capslit")
ALL = ("reproduce", "all", "--profile", "quick", "--quiet")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    "As many processes as there are cores that we may use."
    return joblib.cpu_count()


def pytest_collection_modifyitems(config, items):
    """Every process begins with its share of the items marked `first`, and goes on to the rest,
    file by file.

    Those that read what the longest of the first ones writes come at the end, so that no process
    waits for it. `--dist worksteal` cuts the list into equal parts, one for each process; whoever
    is done first takes from the end of another's part.
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    first = [item for item in items if item.get_closest_marker("first")]
    rest = [item for item in items if not item.get_closest_marker("first")]
    rest = iter(
        sorted(rest, key=lambda item: bool({"everything", "quick_record"} & set(item.fixturenames)))
    )  # by then these records are there
    ends = [len(items) * (i + 1) // count for i in range(count)]
    items[:] = []
    for i, end in enumerate(ends):
        items += first[i::count]
        items += [item for _, item in zip(range(end - len(items)), rest)]
    items += rest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    "What a test draws from the generators that all share does not depend on the tests before it."
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def examples(number):
    "Settings of a hypothesis test of so many examples; `make fuzz` tries twenty times as many."
    usual = hypothesis.settings.get_profile("fixed").max_examples
    return hypothesis.settings(max_examples=number * hypothesis.settings().max_examples // usual)


def together(names, values, ids=None):
    """As `pytest.mark.parametrize`, but all values in one case, for they take the same path; the
    error says which value it was.

    Each value has a `tmp_path` of its own, and what it does with `monkeypatch` is undone after it.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test):
        @functools.wraps(test)
        def every(*args, **kwargs):
            skipped = []
            for i, value in enumerate(values):
                given = (
                    getattr(value, "values", value)
                    if type(value).__name__ == "ParameterSet"
                    else value
                )
                given = (
                    given[:1]
                    if len(names) == 1 and type(value).__name__ == "ParameterSet"
                    else (given,)
                    if len(names) == 1
                    else given
                )
                try:
                    for mark in getattr(value, "marks", ()):
                        if mark.name == "skip":
                            pytest.skip(mark.kwargs["reason"])
                    with pytest.MonkeyPatch.context() as patch:
                        own = {"monkeypatch": patch} if "monkeypatch" in kwargs else {}
                        if "tmp_path" in kwargs:
                            own["tmp_path"] = kwargs["tmp_path"] / str(i)
                            own["tmp_path"].mkdir()
                        test(*args, **kwargs | own, **dict(zip(names, given, strict=True)))
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:
                    error.add_note(f"with {', '.join(names)} = {value!r}")
                    raise
            if values and len(skipped) == len(values):
                raise skipped[0]

        left = [p for p in inspect.signature(test).parameters.values() if p.name not in names]
        every.__signature__ = inspect.Signature(left)
        return every

    return decorate


CHECKS = """
import json, sys, warnings
from importlib import import_module
from sklearn.utils.estimator_checks import check_estimator
from capslit.capsules.settings import Schedule

for line in sys.stdin:
    warnings.simplefilter("ignore")
    place, name, parameters, expected = json.loads(line)
    if "schedule" in parameters:
        parameters["schedule"] = Schedule(**parameters["schedule"])
    estimator = getattr(import_module(place), name)(**parameters)
    results = check_estimator(
        estimator, on_fail=None, on_skip=None, expected_failed_checks=expected
    )
    good = ("passed", "xfail") if expected else ("passed",)
    failed = [r for r in results if r["status"] not in good]
    answer = [len(results), [(r["check_name"], repr(r["exception"])) for r in failed]]
    print("answer", json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="session")
def unpassed():
    """unpassed(kind, parameters, expected failures): how many checks scikit-learn made of the
    estimator, and those that failed or were skipped.

    All run in a second process, for the array-API checks need the variable before SciPy is
    imported.
    """
    variables = {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHECKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )

    def run(kind, parameters, expected):
        process.stdin.write(
            json.dumps([kind.__module__, kind.__name__, parameters, expected]) + "\n"
        )
        process.stdin.flush()
        limit = threading.Timer(PATIENCE, process.kill)
        limit.start()
        try:
            answer = next((line for line in process.stdout if line.startswith("answer ")), None)
        finally:
            limit.cancel()
        assert answer, f"the process that checks has ended: {process.wait()}"
        return json.loads(answer.removeprefix("answer "))

    yield run
    process.stdin.close()
    process.wait()


class Once:
    """once(name, make): the folder `name` that make(folder) has filled, in whichever process wanted
    it first; the others wait for it.
    """

    def __init__(self, base):
        self.base = base

    def begun(self, name):
        return (self.base / name).exists()

    def __call__(self, name, make, timeout=2 * PATIENCE):
        folder, made, failed = (
            self.base / f"{name}{suffix}" for suffix in ("", ".made", ".failed")
        )
        try:
            folder.mkdir()
        except FileExistsError:
            deadline = time.monotonic() + timeout
            while not made.exists():
                assert not failed.exists(), (
                    f"{name} could not be made: see the test that wanted it first"
                )
                assert time.monotonic() < deadline, f"{name} was begun, but not finished"
                time.sleep(0.1)
        else:
            try:
                make(folder)
            except BaseException:
                failed.touch()
                raise
            made.touch()
        return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    return Once(base.parent if WORKER else base)


def run_everything(folder):
    command = (
        [SCRIPT]
        if SCRIPT.exists()
        else [sys.executable, "-c", "import sys; from capslit.cli import main; sys.exit(main())"]
    )
    done = subprocess.run(
        [*command, *ALL, "--out", folder / "new"], capture_output=True, text=True, timeout=PATIENCE
    )
    # Dask may report a connection that was slow to close, so stderr need not be empty
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    (folder / "said").write_text(done.stdout)


@pytest.fixture(scope="session")
def everything(once):
    """The folder with the records of all experiments on the embedded digits, as the installed
    command wrote them, and what it said.
    """
    folder = once("everything", run_everything)
    return folder / "new", (folder / "said").read_text()


@pytest.fixture(scope="session")
def quick_record(once):
    """quick_record(name, data): the path of an experiment's record on small data: one of
    `everything`, if that was begun, or of a run of its own.
    """

    def path(name, data="digits"):
        from capslit.experiments.records import record_path
        from capslit.experiments.summary import reproduce

        if once.begun("everything"):
            folder = once("everything", run_everything) / "new"
        else:
            folder = once(
                f"quick-{name}-{data}",
                lambda folder: reproduce(name, data, profile="quick", out=folder),
            )
        return record_path(name, data, "quick", folder)

    return path


def blobs(n=120, p=5, seed=0):
    "Two correlated groups, in mixed order."
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((n, p)) @ rng.standard_normal((p, p))
        + 4 * rng.permutation(np.arange(n) % 2)[:, None]
    )


def classes(n=150, p=5, m=3, seed=0):
    "m groups of labelled examples."
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    return rng.standard_normal((n, p)) + 2.5 * rng.standard_normal((m, p))[y], y


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def strided(a):
    "A view of every second entry on each axis of a larger array."
    big = np.full([2 * n for n in a.shape], np.nan)
    big[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return big[tuple(slice(None, None, 2) for _ in a.shape)]


FORMS = {  # of one and the same array
    "list": lambda a: a.tolist(),
    "Fortran": np.asfortranarray,
    "read-only": read_only,
    "strided": strided,
    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "object": lambda a: a.astype(object),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "frame": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a) if a.ndim == 1 else a,
    "nullable frame": lambda a: pd.DataFrame(a).astype("Float64") if a.ndim == 2 else a,
    "matrix of memory": lambda a: memoryview(np.ascontiguousarray(a)),
}
