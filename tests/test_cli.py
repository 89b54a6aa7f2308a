"""The command line as its users meet it: in a process of its own, interrupted, killed, without
data, without a place to write, and with tables of all kinds.
"""

import csv
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import ALL, PATIENCE, SCRIPT, together
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import capslit
from capslit import cli
from capslit.capsules.table_classifier import TableClassifier
from capslit.data import read_table
from capslit.experiments.records import load_record
from capslit.experiments.summary import EXPERIMENTS

QUICK = ("reproduce", "figure2", "--profile", "quick")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and links of POSIX")

# The same program, but it writes a checkpoint after every iteration and sends itself a signal after
# the first one by which so many parts are finished and so many checkpoints have been written.
SIGNALLED = """
import os, signal, sys
from pathlib import Path
import capslit.em.checkpoint as checkpoint
from capslit.cli import main

sent, parts, checkpoints = getattr(signal, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
begin, save, written = checkpoint.Checkpoint.__init__, checkpoint.save_state, []

def begin_and_write_always(self, path, every, settings):
    begin(self, path, 0.0, settings)

def save_and_signal(path, *args):
    save(path, *args)
    written.append(path)
    if len(written) >= checkpoints and len(list(Path(path).parent.glob("*.npz"))) >= parts:
        checkpoint.save_state = save
        os.kill(os.getpid(), sent)

checkpoint.Checkpoint.__init__ = begin_and_write_always
checkpoint.save_state = save_and_signal
sys.exit(main(sys.argv[4:]))
"""


def run_python(program, *words, **environ):
    "Run a program of Python; result with returncode, stdout and stderr."
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environ,
    )


@pytest.mark.parametrize("module", ["capslit", "capslit.cli"])
def test_a_module_is_the_command(module):
    command = [sys.executable, "-m", module]
    named = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=PATIENCE)
    assert named.returncode == 0 and named.stdout.startswith("usage: capslit")
    wrong = subprocess.run([*command, "fit", "none.csv", "--target", "y"], timeout=PATIENCE)
    assert wrong.returncode == 2


def capslit_command(*words, **environ):
    "Run the installed command; result as of `run_python`."
    if SCRIPT.exists():
        program = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
        return run_python(program, SCRIPT, *words, **environ)
    program = "import sys; from capslit.cli import main; sys.exit(main())"
    return run_python(program, *words, **environ)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    "run(command, *words): the status and the two outputs of a command in a folder of its own."
    monkeypatch.chdir(tmp_path)

    def run(*words):
        try:
            status = cli.main(list(map(str, words)))
        except SystemExit as end:  # of argparse
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


def assert_refused(result, said):
    "One line on the error stream, below notes and progress, that says what is wrong."
    status, out, err = result
    lines = [line for line in err.splitlines() if not line.startswith(("note: ", "figure2: "))]
    assert status == 2 and out == "" and said in lines[-1], err
    assert lines[-1].startswith("capslit") and (len(lines) == 1 or lines[0].startswith("usage"))


# ── experiments


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = capslit_command(*QUICK, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_quick_run_from_end_to_end(undisturbed):
    folder, done = undisturbed
    assert names(folder) == ["figure2-digits-quick.json", "figure2-digits-quick.npz"]
    (part,) = load_record(folder / "figure2-digits-quick.json").parts.values()
    error = part["metrics"]["test_error"]
    assert f"test error {100 * error:.2f} %" in done.stdout and "loading digits" in done.stderr
    assert error < 0.15 and not part["resumed"]


@pytest.mark.first
def test_all_experiments_in_one_command_and_then_nothing_more_to_do(everything):
    folder, said = everything
    runs = [
        f"{name} on {data}"
        for name, experiment in EXPERIMENTS.items()
        for data in experiment.quick
        if not experiment.lacks()
    ]
    lines = [line for line in said.splitlines() if "is left out" not in line]
    assert len(lines) == len(runs) and all(run in said for run in runs)
    times = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    done = capslit_command(*ALL, "--out", folder)
    assert done.returncode == 0 and done.stdout == said
    assert times == {p: p.stat().st_mtime_ns for p in folder.iterdir()}


@posix
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, undisturbed):
    name = "figure2-digits-quick"
    checkpoint = tmp_path / f"{name}.parts" / "multiclass-2.checkpoint"
    for sent, count in (("SIGKILL", 1), ("SIGINT", 4)):
        words = (sent, 0, count, *QUICK, "--out", tmp_path, "--quiet")
        stopped = run_python(SIGNALLED, *words)
        assert checkpoint.exists() and not (tmp_path / f"{name}.json").exists()
        assert stopped.returncode == (-signal.SIGKILL if sent == "SIGKILL" else 130)
    assert stopped.stdout == "" and "Traceback" not in stopped.stderr
    assert "same command goes on" in stopped.stderr
    done = capslit_command(*QUICK, "--out", tmp_path)
    assert done.returncode == 0 and "going on from the checkpoint" in done.stderr
    assert names(tmp_path) == [f"{name}.json", f"{name}.npz"]
    whole, resumed = (load_record(f / f"{name}.json") for f in (undisturbed[0], tmp_path))
    assert resumed.parts["multiclass-2"]["resumed"]
    assert resumed.metrics("multiclass-2") == whole.metrics("multiclass-2")
    bits = (undisturbed[0] / f"{name}.npz").read_bytes()
    assert (tmp_path / f"{name}.npz").read_bytes() == bits


@posix
def test_an_experiment_of_many_parts_killed_again_and_again(tmp_path, quick_record):
    folder = tmp_path / "new"  # which the command makes
    words = ("reproduce", "figure8", "--profile", "quick", "--quiet", "--out", folder)
    whole = quick_record("figure8")
    record, parts = folder / whole.name, folder / "figure8-digits-quick.parts"
    for done in (1, 3):  # killed when so many parts are finished, and the next is under way
        killed = run_python(SIGNALLED, "SIGKILL", done, 1, *words)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(list(parts.glob("*.npz"))) == done and not record.exists()
    assert capslit_command(*words).returncode == 0
    assert names(folder) == [record.name, record.with_suffix(".npz").name]
    assert record.with_suffix(".npz").read_bytes() == whole.with_suffix(".npz").read_bytes()


@together(
    "words, said",
    [
        ("reproduce figure22", "figure22"),
        ("reproduce figure2 --data cats", "cats"),
        ("reproduce figure2 --profile huge", "huge"),
        ("reproduce figure2 --data alphadigits", "alphadigits"),
        (f"reproduce figure2 --profile quick --out {__file__}", "test_cli.py"),
        ("reproduce figure2 --profile quick --seed -1", "seed"),
        ("reproduce figure2 --profile quick --seed one", "one"),
        ("fly", "fly"),
        ("", "COMMAND"),
        ("reproduce", "NAME"),
    ],
)
def test_user_errors(tmp_path, run, words, said):
    assert_refused(run(*words.split()), said)
    assert names(tmp_path) == []


def test_no_data_and_no_network(tmp_path):
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    environ = dict.fromkeys(proxies, "http://127.0.0.1:9")
    environ |= {"CAPSLIT_DATA": "", "NO_PROXY": "", "no_proxy": ""}
    words = ("reproduce", "figure2", "--quiet", "--out", tmp_path / "out")
    done = capslit_command(*words, XDG_CACHE_HOME=str(tmp_path), **environ)
    assert_refused((done.returncode, done.stdout, done.stderr), "network")
    assert "mnist/train-images-idx3-ubyte.gz" in done.stderr and "CAPSLIT_DATA" in done.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b broken")
    done = capslit_command(*words, "--data-home", tmp_path)
    assert_refused((done.returncode, done.stdout, done.stderr), "train-images-idx3-ubyte.gz")


def test_version_and_list(run):
    assert capslit_command("--version").stdout.strip() == f"capslit {capslit.__version__}"
    status, out, _ = run("list")
    words = ("figure2", "figure3", "mnist", "fashion", "digits", "quick")
    assert status == 0 and all(word in out for word in words)


# ── tables


HEADER = ["", "age", "colour", "who", "size", "level"]


def mixed_rows(n=90, seed=0):
    """Rows of a table with a row number, numbers and categories with gaps, names, and three
    classes; separators and quotes within entries.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        c = k % 3
        age, size = (
            f"{20 + 6 * c + 4 * rng.standard_normal():.1f}",
            f"{c + rng.standard_normal():.3e}",
        )
        colour = ["red", "green; dark", 'the "blue" one'][(c + int(rng.random() < 0.3)) % 3]
        rows.append(
            [
                str(k),
                "NA" if k % 11 == 0 else age,
                "" if k % 13 == 0 else colour,
                f"Person {k}",
                "?" if k == 7 else size,
                ["low", "mid", "high"][c],
            ]
        )
    return rows


def write(path, header, rows, separator=";"):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with mixed.csv, and model.npz that the installed command has fitted to it, and what
    it said.
    """
    folder = tmp_path_factory.mktemp("tables")
    write(folder / "mixed.csv", HEADER, mixed_rows())
    words = ("--target", "level", "--report", "--out", folder / "model.npz")
    done = capslit_command("fit", folder / "mixed.csv", *words)
    assert done.returncode == 0, done.stderr
    notes = done.stderr.splitlines()
    assert len(notes) == 2 and "columns without a name are left out: 1" in notes[0]
    assert "column 'who' is left out: 90 different words in 90 rows" in notes[1]
    return folder, done.stdout


def by_hand(train, test):
    "The features of a table as they should be encoded, by pandas and arithmetic."
    parts = [[], []]
    for name in ("age", "colour", "size"):
        for part, table in zip(parts, (train, test)):
            if name == "colour":
                filled = table[name].fillna(train[name].mode()[0])
                part += [filled == word for word in sorted(train[name].dropna().unique())]
            else:
                known = train[name].fillna(train[name].median())
                filled = table[name].fillna(train[name].median())
                part.append((filled - known.mean()) / known.std(ddof=0))
            part.append(table[name].isna())
    return [np.column_stack(part).astype(float) for part in parts]


def test_from_file_to_file_equals_the_model_in_memory(learned, tmp_path, run):
    folder, said = learned
    rows = mixed_rows(40, seed=1)
    order = [2, 0, 4, 3, 1]  # other columns, in another order, another separator, and no target
    new = [[row[k] for k in order] for row in rows]
    write(tmp_path / "new.csv", [HEADER[k] or "row" for k in order], new, ",")
    words = ("predict", folder / "model.npz", "new.csv", "--out", "found.csv")
    assert run(*words) == (0, "", "")
    train, test = (
        pd.DataFrame(part, columns=HEADER)
        .replace({"NA": None, "": None, "?": None})
        .astype({"age": float, "size": float})
        for part in (mixed_rows(), rows)
    )
    X_train, X_test = by_hand(train, test)
    model = capslit.CapsuleClassifier(random_state=0).fit(X_train, train["level"].to_numpy(str))
    found = pd.read_csv(tmp_path / "found.csv")
    assert found.columns.tolist() == ["prediction", "high", "low", "mid"]
    assert found["prediction"].tolist() == model.predict(X_test).tolist()
    np.testing.assert_allclose(found.iloc[:, 1:], model.predict_proba(X_test), rtol=1e-4)
    for line in (
        "90 rows; columns: 2 of numbers, 1 of words; 3 classes of 'level'",
        f"9 missing in column 'age': replaced by the median, {train['age'].median():.6g}",
        "1 missing in column 'size'",
        "7 missing in column 'colour'",
    ):
        assert line in said


def test_the_report_is_what_cross_validation_finds(learned):
    folder, said = learned
    y = np.array([row[-1] for row in mixed_rows()])
    X, _ = read_table(folder / "mixed.csv", "level")
    classifier = TableClassifier.load(folder / "model.npz").classifier
    split = StratifiedKFold(5, shuffle=True, random_state=0)
    lines = {}
    for line in said.splitlines():
        if "│" in line:
            head, *entries = (entry.strip() for entry in line.split("│")[1:-1])
            lines[head] = entries
    for name, model in (
        ("most frequent class", DummyClassifier()),
        ("capsule regression", TableClassifier(classifier)),
    ):
        predicted = cross_val_predict(model, X, y, cv=split)
        assert lines[name][0].split()[0] == f"{100 * np.mean(predicted != y):.1f}"
    assert lines["most frequent class"][1] == f"{np.log(3):.3f}"
    for a in ("high", "low", "mid"):
        counts = [np.sum((y == a) & (predicted == b)) for b in ("high", "low", "mid")]
        assert list(map(int, lines[a])) == counts


# A program in which packages are not installed at first, and are installed one after the other.
# Each call of the command names the extra of the first one that it lacks.
ABSENT = """
import sys
absent = ["pandas", "skrub", "pyarrow", "matplotlib"]
class Absent:
    def find_spec(self, name, *args):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from capslit.cli import main
folder = sys.argv[1] + "/"
common = ["--target", "level", "--out", folder + "m.npz"]
for words in (["mixed.csv"], ["mixed.csv"], ["a.parquet"], ["mixed.csv", "--plot", "a.png"]):
    print(main(["fit", folder + words[0], *common, *words[1:]]))
    del absent[0]
"""


def test_what_to_install(learned, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "mixed.csv").write_bytes((learned[0] / "mixed.csv").read_bytes())
    done = run_python(ABSENT, tmp_path)
    assert done.stdout.split() == ["2"] * 4, done.stderr
    extras = ("tables", "tables", "parquet", "plots")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    for line, extra in zip(lines, extras, strict=True):
        assert line.startswith("capslit") and f"pip install 'capslit[{extra}]'" in line
    assert names(tmp_path) == ["a.parquet", "mixed.csv"]


@together("ending, begins", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_of_the_fit(learned, tmp_path, run, ending, begins):
    import matplotlib.pyplot as plt

    path = tmp_path / f"p.{ending}"
    table = learned[0] / "mixed.csv"
    assert (
        run("fit", table, "--target", "level", "--out", tmp_path / "m.npz", "--plot", path)[0] == 0
    )
    assert path.read_bytes().startswith(begins) and not plt.get_fignums()


A, B = "1.5;red;yes\n", "2.5;blue;no\n"
ROWS = "a;b;y\n" + 3 * (A + B)
NOISE = "x,z,y\n" + "".join(
    f"{x:.3f},{z:.3f},{'ab'[k % 5 == 0]}\n"
    for k, (x, z) in enumerate(np.random.default_rng(0).normal(size=(40, 2)))
)


@together(
    "table, words, said",
    [
        (ROWS, "--target z", "no column 'z'; its columns are 'a', 'b', 'y'"),
        (ROWS, "--target y --drop c", "no column 'c'"),
        (ROWS, "--target y --drop a --drop b", "X has shape (6, 0); pass at least one row and"),
        (
            ROWS,
            "--target y --drop y",
            "column 'y' is the target and cannot be left out; take it ou",
        ),
        (ROWS, "--target y --plot p.gif", "must name a file that ends in .png, .svg, .pdf, not p"),
        (ROWS, "--target y --capsule-dim 0", "--capsule-dim must be a whole number of at least 1,"),
        ("a;b;y\n" + 6 * A, "--target y", "the single class 'yes'"),
        ("a;b;y\n" + 6 * A + B, "--target y", "a single example of 'no'"),
        ("a;b;y\n" + 2 * ";;x\n;;y\n", "--target y", "X has no column that can be used"),
        (ROWS + "2.5;blue\n", "--target y", "row 7 below the header has 2 entries, but the header"),
        (ROWS.replace("b", "a", 1), "--target y", "2 columns are called 'a'"),
        (ROWS.replace("1.5", "inf"), "--target y", "column 'a' has inf as its largest magnitude"),
        (
            ROWS.replace(".5", "e200"),
            "--target y",
            "column 'a' has 2e+200 as its largest magnitude",
        ),
        ("a;b;y\n", "--target y", "no rows below its header"),
        (
            "a;b;y\n" + "".join(f"{k / 7};red;{k / 3}\n" for k in range(60)),
            "--target y",
            "a quantity and no class",
        ),
        (ROWS.replace("yes", "prediction"), "--target y", "rename the class"),
    ],
)
def test_tables_that_nothing_is_learned_from(tmp_path, run, table, words, said):
    path = tmp_path / "table.csv"
    path.write_text(table)
    assert_refused(run("fit", path, *words.split(), "--out", tmp_path / "model.npz"), said)
    assert names(tmp_path) == ["table.csv"]


@together(
    "table, said",
    [
        (
            "age;colour\n30;red\n",
            "no column 'size', which the model needs; its columns are 'age', 'colour'. Add what is"
            " missing, empty where nothing is known",
        ),
        (
            "age;colour;size\nold;red;1\n",
            "column 'age' must hold numbers, as it did in fit, but holds 'old'",
        ),
        ("age;colour;size\n1e999;red;1\n", "column 'age' has inf as its largest magnitude"),
        ("age;colour;size\n", "no rows"),
    ],
)
def test_new_rows_that_the_model_cannot_read(tmp_path, run, learned, table, said):
    path = tmp_path / "new.csv"
    path.write_text(table)
    words = ("predict", learned[0] / "model.npz", path, "--out", tmp_path / "found.csv")
    assert_refused(run(*words), said)
    assert names(tmp_path) == ["new.csv"]


def test_a_model_of_a_frame_reads_files_and_one_column_is_no_plural(tmp_path, run):
    sizes, colours = [1.5, 2.0, 8.5, 9.0] * 6, ["red", "red", "blue", None] * 6
    frame = pd.DataFrame({"size": sizes, "colour": colours})
    y = ["a", "a", "b", "b"] * 6
    model = TableClassifier().fit(frame, y)
    model.save("frame.npz")
    TableClassifier().fit(frame[["size"]].to_numpy(), y).save("bare.npz")
    new, one = tmp_path / "t.csv", tmp_path / "one.csv"
    new.write_text("colour;size\nblue;8,5\n;1,5\n")
    status, out, err = run("predict", "frame.npz", new)
    assert status == 0 and err == ""
    head, *lines = (line.split(",") for line in out.splitlines())
    assert [line[0] for line in (head, *lines)] == ["prediction", "b", "a"]
    probabilities = model.predict_proba(frame.iloc[[2, 0]].assign(colour=["blue", None]))
    np.testing.assert_allclose([list(map(float, line[1:])) for line in lines], probabilities)
    one.write_text("size;y\n" + "".join(f"{x};{c}\n" for x, c in zip(sizes, y)))
    out = run("fit", one, "--target", "y", "--out", "one.npz")[1]
    assert "24 rows; columns: 1 of numbers; 2 classes of 'y'" in out
    assert_refused(run("predict", "bare.npz", one), "has learned from an array: pass X.to_numpy()")


def test_files_that_are_no_models(tmp_path, run, learned):
    table = learned[0] / "mixed.csv"
    capslit.CapsuleClassifier(1).fit(np.eye(4), [0, 1, 0, 1]).save("other.npz")
    TableClassifier().fit(pd.DataFrame({"a": [1, 2, 8, 9]}), ["prediction", "b"] * 2).save("m.npz")
    for path, said in (
        ("other.npz", "it holds no TableClassifier"),
        ("none.npz", "no such file"),
        (table, "not ours"),
        ("m.npz", "rename the class"),
    ):
        assert_refused(run("predict", path, table), said)


@posix
def test_no_command_writes_over_what_it_reads_or_has_not_written(tmp_path, run, learned):
    content = {}
    for name, kept in (("t.csv", "mixed.csv"), ("m.npz", "model.npz")):
        content[name] = (learned[0] / kept).read_bytes()
        (tmp_path / name).write_bytes(content[name])
        os.link(name, f"hard-{name}")
        (tmp_path / f"link-{name}.png").symlink_to(tmp_path / name)
    fit, predict = ["fit", "t.csv", "--target", "level"], ["predict", "m.npz", "t.csv"]
    ways = ["{0}", f"../{tmp_path.name}/{{0}}", "hard-{0}", "link-{0}.png"]
    commands = [[*fit, "--out", way.format("t.csv")] for way in ways]
    commands += [[*predict, "--out", way.format(name)] for way in ways for name in content]
    commands += [[*fit, "--out", "p.png", "--plot", "p.png"]]
    commands += [[*fit, "--out", "new.npz", "--plot", "link-t.csv.png"]]
    there = names(tmp_path)
    for command in commands:
        assert_refused(run(*command), "it is the same file as")
    assert names(tmp_path) == there
    assert {name: (tmp_path / name).read_bytes() for name in content} == content
    (tmp_path / "notes.txt").write_text("keep")
    assert_refused(run(*fit, "--out", "notes.txt"), "a file that capslit has not written")
    assert (tmp_path / "notes.txt").read_text() == "keep"


def test_separators_parquet_files_by_any_spelling_and_noise(tmp_path, run):
    for separator in ",;\t|":
        rows = [[str(20 + k), "ab"[k % 2], "no"[k % 2]] for k in range(12)]
        path = write(tmp_path / "t.csv", ["age", "kind", "y"], rows, separator)
        out = run("fit", path, "--target", "y", "--out", "m.npz")[1]
        assert "12 rows; columns: 1 of numbers, 1 of words" in out
    (tmp_path / "noise.csv").write_text(NOISE)
    lines = run("fit", "noise.csv", "--target", "y", "--report", "--out", "m.npz")[1].splitlines()
    assert lines[1].startswith(
        "warning: capsule regression is worse than always predicting the most frequent class; a "
        "likely reason: class 'b' has 8 of 40 rows"
    )
    pytest.importorskip("pyarrow", reason="pip install capslit[parquet]")
    frame = pd.DataFrame(mixed_rows(), columns=["row", *HEADER[1:]]).set_index("row")
    frame = frame[["colour", "level"]].sample(frac=1, random_state=0)
    for name in ("A.PARQUET", "b.parquet", "c.Pq"):  # the index is no column
        frame.to_parquet(tmp_path / name)
        out = run("fit", name, "--target", "level", "--out", "m.npz")[1]
        assert "90 rows; columns: 1 of words" in out
