"""Execute the book's notebooks: side by side, only those whose code has changed, each result kept
as soon as it is there.

    python book/execute.py [NOTEBOOK ...]      all of them, if none is named

A result is kept in _build/executed, together with the hash of what it was made from
(`dependencies.key`): Jupyter Book's own cache does not notice that a module has changed. Nothing
has a time limit.
"""

import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import joblib
import kernels
import nbformat
from dependencies import key, notebooks, reach, reads_notebooks, runs_here
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from paths import ROOT, STORE, whole

FOREVER = 10**9  # seconds, where nbclient insists on a limit
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
COMMON = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}
FEW = 8  # notebooks, for which nothing is imported in advance
# Estimators with their defaults draw from the generators that all share: the same in each run
SEED = "import random, numpy; random.seed(0); numpy.random.seed(0)"
ESCAPES = r"\x1b\[[0-9;]*m"  # colours of a terminal
TAGS = {  # what a directive of nbdev means to the book
    "hide": "remove-cell",
    "default_exp": "remove-cell",
    "hide_input": "remove-input",
    "hide_output": "remove-output",
}


class NotebookError(Exception):
    """A notebook could not be executed, or wrote to stderr; the text says where and why."""


def directives(cell):
    """The words of each of nbdev's lines in a code cell: [["export"], ["eval:", "false"], …]."""
    lines = "".join(cell["source"]).splitlines()
    return [words for line in lines if line.startswith("#|") and (words := line[2:].split())]


def clean_cell(cell):
    """Drop the `#|` lines from a code cell and turn those that concern display into the book's cell
    tags.
    """
    found = directives(cell)
    lines = "".join(cell["source"]).splitlines(keepends=True)
    cell["source"] = "".join(line for line in lines if not line.startswith("#|")).strip("\n")
    tags = cell["metadata"].setdefault("tags", [])
    tags += [TAGS[name] for name, *_ in found if name in TAGS]
    if ["eval:", "false"] in found:
        tags.append("skip-execution")
    if not cell["source"]:  # nothing but directives
        tags.append("remove-cell")


def short(path):
    """The name of a notebook as one types it."""
    return path.relative_to(ROOT).as_posix()


def stored_path(path):
    """Where the executed notebook is kept."""
    return STORE / path.relative_to(ROOT)


def stored(path):
    """The executed notebook, whatever it was made from; None if there is none."""
    try:
        return nbformat.read(stored_path(path), as_version=4)
    except (OSError, nbformat.reader.NotJSONError):
        return None


def origin(path):
    """Key and seconds of the last execution, as the executed notebook states them; {} if there is
    none.
    """
    try:  # without nbformat's checks, which take as long again
        executed = json.loads(stored_path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return executed["metadata"].get("capslit", {})


def is_current(path):
    """Whether the executed notebook is there and was made from today's code."""
    return origin(path).get("key") == key(path)


def last_seconds(path):
    """How long the last execution took; before the first, notebooks that import much are taken to
    be long.
    """
    return origin(path).get("seconds", FOREVER + len(reach(path)))


@contextmanager
def current_results(paths):
    """A folder of the executed notebooks that are up to date, for a notebook that reads others."""
    with TemporaryDirectory() as folder:
        for path in filter(is_current, paths):
            copy = Path(folder, path.relative_to(ROOT / "nbs"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(stored_path(path))
        yield folder


def complaint(path, cell, text):
    """The report on a cell that went wrong."""
    return NotebookError(f"{short(path)}, cell {cell.get('id')}\n\n{text.rstrip()}\n")


def check_stderr(path, notebook):
    """A warning is a mistake on the page: raise NotebookError for the first cell that wrote to
    stderr.
    """
    for cell in notebook.cells:
        if "remove-stderr" not in cell.metadata.get("tags", []):
            for output in cell.get("outputs", []):
                if output.get("name") == "stderr":
                    text = f"{cell.source}\n\nwrote to stderr:\n{output.text}"
                    raise complaint(path, cell, text)


def execute(path, server=None, **environ):
    """Execute one notebook, in a kernel forked by `server` if one is given, and keep the result;
    return the seconds that it took.
    """
    made_from = key(path)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            clean_cell(cell)
    begun = [{}]  # the cells that have been begun
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        timeout=None,
        startup_timeout=FOREVER,
        iopub_timeout=FOREVER,
        extra_arguments=[
            "--log-level=ERROR",
            "--InteractiveShell.enable_tip=False",  # it draws from the generator that SEED seeds
            f"--IPKernelApp.exec_lines={SEED}",
        ],
        shutdown_kernel="immediate",  # what it holds need not be taken apart
        on_cell_start=lambda cell, cell_index: begun.append(cell),
    )
    if server:
        manager = client.create_kernel_manager()
        manager.provisioner = kernels.Forked(parent=manager, kernel_spec=manager.kernel_spec)
        manager.provisioner.server = server
    start = time.monotonic()
    try:
        with current_results(notebooks() if reads_notebooks(path) else []) as folder:
            client.execute(env=os.environ | COMMON | environ | {"CAPSLIT_EXECUTED": folder})
    except (CellExecutionError, DeadKernelError) as error:
        raise complaint(path, begun[-1], getattr(error, "traceback", str(error))) from None
    seconds = time.monotonic() - start
    check_stderr(path, notebook)
    notebook.metadata["capslit"] = {"key": made_from, "seconds": round(seconds, 1)}
    with whole(stored_path(path)) as scratch:
        nbformat.write(notebook, scratch)
    return seconds


def run_side_by_side(paths):
    """Execute notebooks, one for each core at a time, and say how long each took; return the
    errors.
    """
    errors = []
    jobs = min(joblib.cpu_count(), len(paths)) or 1
    environ = ONE_THREAD if jobs > 1 else {}
    many = kernels.AVAILABLE and jobs > 1 and len(paths) > FEW
    warm = kernels.Server(COMMON | environ) if many else nullcontext()
    with warm as server, ThreadPoolExecutor(jobs) as pool:
        if server and server.warned:  # which the chapters that import the module must show
            print(f"Nothing is imported in advance. Warnings: {'; '.join(server.warned)}")
            server = None
        running = {pool.submit(execute, path, server, **environ): path for path in paths}
        try:
            for number, future in enumerate(as_completed(running), 1):
                try:
                    outcome = f"{future.result():6.1f} s"
                except NotebookError as error:
                    errors.append(error)
                    outcome = "  FAILED"
                print(f"[{number}/{len(paths)}] {outcome}  {short(running[future])}", flush=True)
        except KeyboardInterrupt:
            # the kernels end with this process; what was executed is kept
            print("Interrupted.")
            os._exit(130)
    return errors


def execute_all(paths):
    """Execute the notebooks that are out of date, longest first; return the errors."""
    todo = [path for path in paths if runs_here(path) and not is_current(path)]
    todo.sort(key=last_seconds, reverse=True)
    readers = [path for path in todo if reads_notebooks(path)]  # of the others' results
    return run_side_by_side([p for p in todo if p not in readers]) + run_side_by_side(readers)


def notebook(name):
    """The path of a notebook of the book, named from here or from the root."""
    for path in (Path(name).resolve(), ROOT / name):
        if path in notebooks():
            return path
    sys.exit(f"{name} is not a notebook of the book; they are below {ROOT / 'nbs'}")


def main(paths):
    """Execute what is out of date and show what went wrong; exit if anything did."""
    errors = execute_all(paths)
    for error in errors:
        text = str(error) if sys.stdout.isatty() else re.sub(ESCAPES, "", str(error))
        print(f"\n{'=' * 80}\n{text}")
    if unexecuted := [short(path) for path in paths if not runs_here(path)]:
        print(f"PyTorch is not installed; shown without being run: {', '.join(unexecuted)}")
    if errors:
        sys.exit(
            f"{len(errors)} of {len(paths)} notebooks failed; the results of all others are kept."
        )


if __name__ == "__main__":
    main([notebook(name) for name in sys.argv[1:]] or notebooks())
