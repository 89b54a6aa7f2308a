"""The command line as its users meet it: in a process of its own, interrupted, killed, without data, without a place to write."""
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import capslit
from capslit import cli
from capslit.experiments.records import load_record
from capslit.experiments.summary import EXPERIMENTS

from conftest import ALL, SCRIPT, together

QUICK = ("reproduce", "figure2", "--profile", "quick")

# The same program, but with a checkpoint after every iteration and a pause, so that a signal hits it between two of them.
SLOW = """
import sys, time
import capslit.em.checkpoint as checkpoint
import capslit.em as em
from capslit.cli import main
em.fit.__kwdefaults__["checkpoint_every"] = 0.0
save = checkpoint.save_state
def slowly(*args):
    save(*args)
    time.sleep(0.005)
checkpoint.save_state = slowly
sys.exit(main(sys.argv[1:]))
"""


def capslit_command(*words, **environment):
    "Run the installed command; result with returncode, stdout and stderr."
    command = [SCRIPT] if SCRIPT.exists() else [sys.executable, "-c", "import sys; from capslit.cli import main; sys.exit(main())"]
    return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=300, env=os.environ | environment)


def heed_interrupts():
    "In the child: undo what a shell does to the jobs that it runs in the background, which is to ignore Ctrl-C."
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_slowly(*words):
    return subprocess.Popen([sys.executable, "-c", SLOW, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=heed_interrupts if sys.platform != "win32" else None)


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = capslit_command(*QUICK, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_quick_run_from_end_to_end(undisturbed):
    folder, done = undisturbed
    assert names(folder) == ["figure2-digits-quick.json", "figure2-digits-quick.npz"]
    record = load_record(folder / "figure2-digits-quick.json")
    (part,) = record.parts.values()
    assert f"test error {100 * part['metrics']['test_error']:.2f} %" in done.stdout and "loading digits" in done.stderr
    assert part["metrics"]["test_error"] < 0.15 and not part["resumed"]


@pytest.mark.first
def test_all_experiments_in_one_command_and_then_nothing_more_to_do(everything):
    folder, said = everything
    runs = [f"{name} on {data}" for name, experiment in EXPERIMENTS.items() for data in experiment.quick if not experiment.lacks()]
    assert len([line for line in said.splitlines() if "is left out" not in line]) == len(runs) and all(run in said for run in runs)
    times = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    done = capslit_command(*ALL, "--out", folder)
    assert done.returncode == 0 and done.stdout == said and times == {p: p.stat().st_mtime_ns for p in folder.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, undisturbed):
    checkpoint = tmp_path / "figure2-digits-quick.parts" / "multiclass-2.checkpoint"
    for wait in (0.0, 0.3):
        process = start_slowly(*QUICK, "--out", tmp_path, "--quiet")
        wait_for(checkpoint, process)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert checkpoint.exists() and not (tmp_path / "figure2-digits-quick.json").exists()
    done = capslit_command(*QUICK, "--out", tmp_path)
    assert done.returncode == 0 and "going on from the checkpoint" in done.stderr
    assert names(tmp_path) == ["figure2-digits-quick.json", "figure2-digits-quick.npz"]
    whole, resumed = (load_record(folder / "figure2-digits-quick.json") for folder in (undisturbed[0], tmp_path))
    assert resumed.parts["multiclass-2"]["resumed"] and resumed.metrics("multiclass-2") == whole.metrics("multiclass-2")
    assert (tmp_path / "figure2-digits-quick.npz").read_bytes() == (undisturbed[0] / "figure2-digits-quick.npz").read_bytes()
    assert np.array_equal(resumed.array("multiclass-2", "coef"), whole.array("multiclass-2", "coef"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_experiment_of_many_parts_killed_again_and_again(tmp_path, quick_record):
    words, whole = ("reproduce", "figure8", "--profile", "quick", "--quiet", "--out", tmp_path), quick_record("figure8")
    record, parts = tmp_path / whole.name, tmp_path / "figure8-digits-quick.parts"
    for done in (1, 3):                                       # killed when so many parts are finished, and the next is under way
        process = start_slowly(*words)
        while len(list(parts.glob("*.npz"))) < done:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not record.exists()
    assert capslit_command(*words).returncode == 0
    assert names(tmp_path) == [record.name, record.with_suffix(".npz").name]
    assert record.with_suffix(".npz").read_bytes() == whole.with_suffix(".npz").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c(tmp_path):
    process = start_slowly(*QUICK, "--out", tmp_path, "--quiet")
    wait_for(tmp_path / "figure2-digits-quick.parts" / "multiclass-2.checkpoint", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "same command goes on" in err and "Traceback" not in err and out == ""


@together("words, said", [
    (("reproduce", "figure22"), "figure22"), (("reproduce", "figure2", "--data", "cats"), "cats"),
    (("reproduce", "figure2", "--profile", "huge"), "huge"), (("reproduce", "figure2", "--data", "alphadigits"), "alphadigits"),
    ((*QUICK, "--out", __file__), "test_cli.py"), ((*QUICK, "--seed", "-1"), "seed"), ((*QUICK, "--seed", "one"), "one"),
    (("fly",), "fly"), ((), "COMMAND"), (("reproduce",), "NAME")])
def test_user_errors(tmp_path, capsys, words, said):
    if words[:4] == QUICK and "--out" not in words:
        words = (*words, "--out", str(tmp_path))
    try:
        status = cli.main(list(words))
    except SystemExit as end:                                 # of argparse
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2 and said in err and "Traceback" not in err and out == ""
    assert names(tmp_path) == []


@pytest.mark.parametrize("words, said", [(("reproduce", "figure22"), "figure22"), (("fly",), "fly")])
def test_user_errors_in_a_process_of_its_own(words, said):
    done = capslit_command(*words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


def test_no_data_and_no_network(tmp_path):
    nowhere = "http://127.0.0.1:9"
    environment = {name: nowhere for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    done = capslit_command("reproduce", "figure2", "--out", tmp_path / "out", "--quiet", XDG_CACHE_HOME=str(tmp_path), CAPSLIT_DATA="",
                           NO_PROXY="", no_proxy="", **environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert "mnist/train-images-idx3-ubyte.gz" in done.stderr and "CAPSLIT_DATA" in done.stderr and "network" in done.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_damaged_data(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b broken")
    done = capslit_command("reproduce", "figure2", "--out", tmp_path / "out", "--data-home", tmp_path, "--quiet")
    assert done.returncode == 2 and "train-images-idx3-ubyte.gz" in done.stderr and "Traceback" not in done.stderr


def test_version_and_list():
    assert capslit_command("--version").stdout.strip() == f"capslit {capslit.__version__}"
    done = capslit_command("list")
    assert done.returncode == 0 and all(word in done.stdout for word in ("figure2", "figure3", "mnist", "fashion", "digits", "quick"))
