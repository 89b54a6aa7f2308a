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
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import capslit
from capslit import cli
from capslit.experiments.records import load_record
from capslit.experiments.summary import EXPERIMENTS
from capslit.capsules.table_classifier import TableClassifier
from capslit.data import read_table

from conftest import ALL, PATIENCE, SCRIPT, together

QUICK = ("reproduce", "figure2", "--profile", "quick")

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


def capslit_command(*words, **environment):
    "Run the installed command; result with returncode, stdout and stderr."
    command = (
        [SCRIPT]
        if SCRIPT.exists()
        else [sys.executable, "-c", "import sys; from capslit.cli import main; sys.exit(main())"]
    )
    return subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environment,
    )


def run_signalled(name, parts, checkpoints, *words):
    "Run the command until it has sent itself the signal; result as of `capslit_command`."
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, name, *map(str, (parts, checkpoints, *words))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


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
    assert (
        f"test error {100 * part['metrics']['test_error']:.2f} %" in done.stdout
        and "loading digits" in done.stderr
    )
    assert part["metrics"]["test_error"] < 0.15 and not part["resumed"]


@pytest.mark.first
def test_all_experiments_in_one_command_and_then_nothing_more_to_do(everything):
    folder, said = everything
    runs = [
        f"{name} on {data}"
        for name, experiment in EXPERIMENTS.items()
        for data in experiment.quick
        if not experiment.lacks()
    ]
    assert len([line for line in said.splitlines() if "is left out" not in line]) == len(
        runs
    ) and all(run in said for run in runs)
    times = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    done = capslit_command(*ALL, "--out", folder)
    assert (
        done.returncode == 0
        and done.stdout == said
        and times == {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, undisturbed):
    checkpoint = tmp_path / "figure2-digits-quick.parts" / "multiclass-2.checkpoint"
    for checkpoints in (1, 4):
        killed = run_signalled("SIGKILL", 0, checkpoints, *QUICK, "--out", tmp_path, "--quiet")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert checkpoint.exists() and not (tmp_path / "figure2-digits-quick.json").exists()
    done = capslit_command(*QUICK, "--out", tmp_path)
    assert done.returncode == 0 and "going on from the checkpoint" in done.stderr
    assert names(tmp_path) == ["figure2-digits-quick.json", "figure2-digits-quick.npz"]
    whole, resumed = (
        load_record(folder / "figure2-digits-quick.json") for folder in (undisturbed[0], tmp_path)
    )
    assert resumed.parts["multiclass-2"]["resumed"] and resumed.metrics(
        "multiclass-2"
    ) == whole.metrics("multiclass-2")
    assert (tmp_path / "figure2-digits-quick.npz").read_bytes() == (
        undisturbed[0] / "figure2-digits-quick.npz"
    ).read_bytes()
    assert np.array_equal(
        resumed.array("multiclass-2", "coef"), whole.array("multiclass-2", "coef")
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_experiment_of_many_parts_killed_again_and_again(tmp_path, quick_record):
    words, whole = (
        ("reproduce", "figure8", "--profile", "quick", "--quiet", "--out", tmp_path),
        quick_record("figure8"),
    )
    record, parts = tmp_path / whole.name, tmp_path / "figure8-digits-quick.parts"
    for done in (1, 3):  # killed when so many parts are finished, and the next is under way
        killed = run_signalled("SIGKILL", done, 1, *words)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(list(parts.glob("*.npz"))) == done and not record.exists()
    assert capslit_command(*words).returncode == 0
    assert names(tmp_path) == [record.name, record.with_suffix(".npz").name]
    assert record.with_suffix(".npz").read_bytes() == whole.with_suffix(".npz").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c(tmp_path):
    done = run_signalled("SIGINT", 0, 2, *QUICK, "--out", tmp_path, "--quiet")
    assert done.returncode == 130 and done.stdout == ""
    assert "same command goes on" in done.stderr and "Traceback" not in done.stderr


@together(
    "words, said",
    [
        (("reproduce", "figure22"), "figure22"),
        (("reproduce", "figure2", "--data", "cats"), "cats"),
        (("reproduce", "figure2", "--profile", "huge"), "huge"),
        (("reproduce", "figure2", "--data", "alphadigits"), "alphadigits"),
        ((*QUICK, "--out", __file__), "test_cli.py"),
        ((*QUICK, "--seed", "-1"), "seed"),
        ((*QUICK, "--seed", "one"), "one"),
        (("fly",), "fly"),
        ((), "COMMAND"),
        (("reproduce",), "NAME"),
    ],
)
def test_user_errors(tmp_path, capsys, words, said):
    if words[:4] == QUICK and "--out" not in words:
        words = (*words, "--out", str(tmp_path))
    try:
        status = cli.main(list(words))
    except SystemExit as end:  # of argparse
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2 and said in err and "Traceback" not in err and out == ""
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "words, said", [(("reproduce", "figure22"), "figure22"), (("fly",), "fly")]
)
def test_user_errors_in_a_process_of_its_own(words, said):
    done = capslit_command(*words)
    assert (
        done.returncode == 2
        and said in done.stderr
        and "Traceback" not in done.stderr
        and done.stdout == ""
    )


def test_no_data_and_no_network(tmp_path):
    nowhere = "http://127.0.0.1:9"
    environment = {
        name: nowhere for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    }
    done = capslit_command(
        "reproduce",
        "figure2",
        "--out",
        tmp_path / "out",
        "--quiet",
        XDG_CACHE_HOME=str(tmp_path),
        CAPSLIT_DATA="",
        NO_PROXY="",
        no_proxy="",
        **environment,
    )
    assert (
        done.returncode == 2
        and "Traceback" not in done.stderr
        and len(done.stderr.splitlines()) == 1
    )
    assert (
        "mnist/train-images-idx3-ubyte.gz" in done.stderr
        and "CAPSLIT_DATA" in done.stderr
        and "network" in done.stderr
    )
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_damaged_data(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b broken")
    done = capslit_command(
        "reproduce", "figure2", "--out", tmp_path / "out", "--data-home", tmp_path, "--quiet"
    )
    assert (
        done.returncode == 2
        and "train-images-idx3-ubyte.gz" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_version_and_list():
    assert capslit_command("--version").stdout.strip() == f"capslit {capslit.__version__}"
    done = capslit_command("list")
    assert done.returncode == 0 and all(
        word in done.stdout
        for word in ("figure2", "figure3", "mnist", "fashion", "digits", "quick")
    )


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
    done = capslit_command(
        "fit", folder / "mixed.csv", "--target", "level", "--report", "--out", folder / "model.npz"
    )
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


def test_from_file_to_file_equals_the_model_in_memory(learned, tmp_path):
    folder, said = learned
    rows = mixed_rows(40, seed=1)
    order = [5, 2, 0, 4, 3, 1]  # other columns, in another order, another separator, and no target
    write(
        tmp_path / "new.csv",
        [HEADER[k] or "row" for k in order[1:]],
        [[row[k] for k in order[1:]] for row in rows],
        ",",
    )
    done = capslit_command(
        "predict", folder / "model.npz", tmp_path / "new.csv", "--out", tmp_path / "found.csv"
    )
    assert done.returncode == 0 and done.stdout == done.stderr == ""
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
    np.testing.assert_allclose(
        found[["high", "low", "mid"]], model.predict_proba(X_test), rtol=1e-4
    )
    for line in (
        "90 rows; columns: 2 of numbers, 1 of words; 3 classes of 'level'",
        f"9 missing in column 'age': replaced by the median, {train['age'].median():.6g}",
        "1 missing in column 'size'",
        "7 missing in column 'colour'",
    ):
        assert line in said


def test_the_report_is_what_cross_validation_finds(learned):
    folder, said = learned
    model = TableClassifier.load(folder / "model.npz")
    y = np.array([row[-1] for row in mixed_rows()])
    X, _ = read_table(folder / "mixed.csv", "level")
    model = TableClassifier(model.classifier)
    split = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, X, y, cv=split)
    lines = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in said.splitlines()
        if "│" in line
    }
    assert lines["capsule regression"][0].split()[0] == f"{100 * np.mean(predicted != y):.1f}"
    assert (
        lines["most frequent class"][0].split()[0]
        == f"{100 * np.mean(cross_val_predict(DummyClassifier(), X, y, cv=split) != y):.1f}"
    )
    assert lines["most frequent class"][1].strip() == f"{np.log(3):.3f}"
    for a in ("high", "low", "mid"):
        assert [int(entry) for entry in lines[a]] == [
            np.sum((y == a) & (predicted == b)) for b in ("high", "low", "mid")
        ]


# The same program where a package is not installed.
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *args):
        if name.partition(".")[0] == "PACKAGE":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from capslit.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "package, table, words, extra",
    [
        ("pandas", "mixed.csv", [], "tables"),
        ("skrub", "mixed.csv", [], "tables"),
        ("pyarrow", "a.parquet", [], "parquet"),
        ("matplotlib", "mixed.csv", ["--plot", "a.png"], "plots"),
    ],
)
def test_what_to_install(learned, tmp_path, package, table, words, extra):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "mixed.csv").write_bytes((learned[0] / "mixed.csv").read_bytes())
    command = ["fit", tmp_path / table, "--target", "level", "--out", tmp_path / "m.npz", *words]
    done = subprocess.run(
        [sys.executable, "-c", ABSENT.replace("PACKAGE", package), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2 and f"pip install 'capslit[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "ending, begins", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_picture_of_the_fit(learned, tmp_path, capsys, ending, begins):
    import matplotlib.pyplot as plt

    assert (
        cli.main(
            [
                "fit",
                str(learned[0] / "mixed.csv"),
                "--target",
                "level",
                "--out",
                str(tmp_path / "m.npz"),
                "--plot",
                str(tmp_path / f"p.{ending}"),
            ]
        )
        == 0
    )
    assert (tmp_path / f"p.{ending}").read_bytes().startswith(begins) and not plt.get_fignums()


A, B = ["1.5", "red", "yes"], ["2.5", "blue", "no"]


@together(
    "header, rows, words, said",
    [
        (
            ["a", "b", "y"],
            [A, B] * 3,
            ["--target", "z"],
            "no column 'z'; its columns are 'a', 'b', 'y'",
        ),
        (["a", "b", "y"], [A, B] * 3, ["--target", "y", "--drop", "c"], "no column 'c'"),
        (["a", "b", "y"], [A] * 6, ["--target", "y"], "the single class 'yes'"),
        (["a", "b", "y"], [A] * 6 + [B], ["--target", "y"], "a single example of 'no'"),
        (
            ["a", "b", "y"],
            [[str(k / 7), "red", str(k / 3)] for k in range(60)],
            ["--target", "y"],
            "a quantity and no class",
        ),
        (
            ["a", "b", "y"],
            [["", "", word] for word in "xyxy"],
            ["--target", "y"],
            "X has no column that can be used",
        ),
        (
            ["a", "b", "y"],
            [A, B] * 3,
            ["--target", "y", "--drop", "a", "--drop", "b"],
            "X has no column that can be used",
        ),
        (
            ["a", "b", "y"],
            [A, B[:2]] * 3,
            ["--target", "y"],
            "row 2 below the header has 2 entries, but the header has 3",
        ),
        (["a", "a", "y"], [A, B] * 3, ["--target", "y"], "2 columns are called 'a'"),
        (
            ["a", "b", "y"],
            [["inf", "red", "yes"], B] * 3,
            ["--target", "y"],
            "column 'a' has inf as its largest magnitude",
        ),
        (["a", "b", "y"], [], ["--target", "y"], "no rows below its header"),
        (
            ["a", "b", "y"],
            [A, B] * 3,
            ["--target", "y", "--plot", "p.gif"],
            "--plot must name a file that ends in .png, .svg, .pdf, not p.gif",
        ),
        (
            ["a", "b", "y"],
            [A, B] * 3,
            ["--target", "y", "--drop", "y"],
            "column 'y' is the target and cannot be left out; take it out of drop (--drop)",
        ),
        (
            ["a", "b", "y"],
            [[f"{k}e200", *(A, B)[k % 2][1:]] for k in range(9)],
            ["--target", "y"],
            "column 'a' has 8e+200 as its largest magnitude",
        ),
        (
            ["a", "b", "y"],
            [A, B] * 3,
            ["--target", "y", "--capsule-dim", "0"],
            "--capsule-dim must be a whole number of at least 1, not 0",
        ),
    ],
)
def test_tables_that_nothing_is_learned_from(tmp_path, capsys, header, rows, words, said):
    path = write(tmp_path / "table.csv", header, rows)
    assert cli.main(["fit", str(path), *words, "--out", str(tmp_path / "model.npz")]) == 2
    out, err = capsys.readouterr()
    assert (
        said in err
        and [line for line in err.splitlines() if not line.startswith("note: ")]
        == err.splitlines()[-1:]
        and out == ""
        and names(tmp_path) == ["table.csv"]
    )


@together(
    "header, rows, said",
    [
        (
            ["age", "colour"],
            [["30", "red"]],
            (
                "no column 'size', which the model needs; its columns are 'age', 'colour'. Add what"
                " is missing, empty where nothing is known"
            ),
        ),
        (
            ["age", "colour", "size"],
            [["old", "red", "1"]],
            "column 'age' must hold numbers, as it did in fit, but holds 'old'",
        ),
        (
            ["age", "colour", "size"],
            [["1e999", "red", "1"]],
            "column 'age' has inf as its largest magnitude",
        ),
        (["age", "colour", "size"], [], "no rows"),
    ],
)
def test_new_rows_that_the_model_cannot_read(tmp_path, capsys, learned, header, rows, said):
    path = write(tmp_path / "new.csv", header, rows)
    assert (
        cli.main(
            [
                "predict",
                str(learned[0] / "model.npz"),
                str(path),
                "--out",
                str(tmp_path / "found.csv"),
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert (
        said.replace("\\", "") in err
        and len(err.splitlines()) == 1
        and out == ""
        and names(tmp_path) == ["new.csv"]
    )


def test_words_that_the_model_has_not_seen(tmp_path, capsys, learned):
    header, model = ["age", "colour", "size"], str(learned[0] / "model.npz")
    rows = [["30", "pink", "1"], ["25", "red", "NA"], ["31", "teal", "2"], ["32", "pink", "0"]]
    found = {}
    for name, table in {
        "new": rows,
        "gaps": [[a, c if c == "red" else "", s] for a, c, s in rows],
    }.items():
        assert (
            cli.main(["predict", model, str(write(tmp_path / f"{name}.csv", header, table))]) == 0
        )
        found[name] = capsys.readouterr()
    assert (
        found["new"].out == found["gaps"].out
        and len(found["new"].out.splitlines()) == 5
        and found["gaps"].err == ""
    )
    assert (
        found["new"].err
        == "note: column 'colour' holds 3 entries that the model has not seen, 'pink', 'teal':"
        " counted as missing; it knows 'green; dark', 'red', 'the \"blue\" one'\n"
    )


def test_a_folder_in_the_place_of_the_predictions(tmp_path, capsys, learned, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in (".", str(tmp_path), "/"):
        assert (
            cli.main(
                [
                    "predict",
                    str(learned[0] / "model.npz"),
                    str(learned[0] / "mixed.csv"),
                    "--out",
                    out,
                ]
            )
            == 2
        )
        assert (
            capsys.readouterr().err.splitlines()[-1]
            == f"capslit: cannot write {out}: this is a folder; give the name of a file"
            and names(tmp_path) == []
        )


def test_a_model_of_a_frame_reads_files_and_one_column_is_no_plural(tmp_path, capsys):
    frame = pd.DataFrame(
        {"size": [1.5, 2.0, 8.5, 9.0] * 6, "colour": ["red", "red", "blue", None] * 6}
    )
    model = TableClassifier().fit(frame, ["a", "a", "b", "b"] * 6)
    model.save(tmp_path / "frame.npz")
    path = write(tmp_path / "t.csv", ["colour", "size"], [["blue", "8,5"], ["", "1,5"]])
    assert cli.main(["predict", str(tmp_path / "frame.npz"), str(path)]) == 0
    out, err = capsys.readouterr()
    assert [line.split(",")[0] for line in out.splitlines()] == [
        "prediction",
        "b",
        "a",
    ] and err == ""
    np.testing.assert_allclose(
        [list(map(float, line.split(",")[1:])) for line in out.splitlines()[1:]],
        model.predict_proba(frame.iloc[[2, 0]].assign(colour=["blue", None])),
    )
    path = write(
        tmp_path / "one.csv",
        ["size", "y"],
        [[f"{x}".replace(".", ","), "ab"[x > 5]] for x in frame["size"]],
    )
    assert cli.main(["fit", str(path), "--target", "y", "--out", str(tmp_path / "one.npz")]) == 0
    assert "24 rows; columns: 1 of numbers; 2 classes of 'y'" in capsys.readouterr().out
    TableClassifier().fit(frame[["size"]].to_numpy(), ["a", "a", "b", "b"] * 6).save(
        tmp_path / "bare.npz"
    )
    assert (
        cli.main(["predict", str(tmp_path / "bare.npz"), str(path)]) == 2
        and "X has no column 'x0', which the model needs" in capsys.readouterr().err
    )


def test_files_that_are_no_models(tmp_path, capsys, learned):
    table = str(learned[0] / "mixed.csv")
    capslit.CapsuleClassifier(1).fit(np.eye(4), [0, 1, 0, 1]).save(tmp_path / "other.npz")
    for path, said in (
        (tmp_path / "other.npz", "holds no TableClassifier"),
        (tmp_path / "none.npz", "no such file"),
        (table, "not ours"),
    ):
        assert cli.main(["predict", str(path), table]) == 2
        out, err = capsys.readouterr()
        assert said in err and str(path) in err and len(err.splitlines()) == 1 and out == ""


def ways_to(path, folder):
    "Names of one file: its own, in another spelling, a hard link and a symbolic link."
    hard, symbolic = folder / "hard.csv", folder / "symbolic.csv"
    os.link(path, hard)
    symbolic.symlink_to(path)
    return [path, path.parent / ".." / path.parent.name / path.name, hard, symbolic]


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need privileges")
def test_no_command_writes_over_what_it_reads(tmp_path, capsys, learned):
    table, model = tmp_path / "t.csv", tmp_path / "m.npz"
    table.write_bytes((learned[0] / "mixed.csv").read_bytes())
    model.write_bytes((learned[0] / "model.npz").read_bytes())
    content = {path: path.read_bytes() for path in (table, model)}
    (tmp_path / "links").mkdir()
    (tmp_path / "more").mkdir()
    fit, predict = ["fit", table, "--target", "level"], ["predict", model, table]
    commands = [[*fit, "--out", name] for name in ways_to(table, tmp_path / "links")]
    commands += [[*predict, "--out", name] for name in ways_to(model, tmp_path / "more")]
    commands += [[*predict, "--out", name] for name in (table, tmp_path / "links" / "hard.csv")]
    picture = tmp_path / "p.png"
    commands += [[*fit, "--out", picture, "--plot", picture]]
    (tmp_path / "q.png").symlink_to(table)
    commands += [[*fit, "--out", tmp_path / "new.npz", "--plot", tmp_path / "q.png"]]
    for command in commands:
        assert cli.main(list(map(str, command))) == 2, command
        out, err = capsys.readouterr()
        assert "it is the same file as" in err and len(err.splitlines()) == 1 and out == ""
        assert {path: path.read_bytes() for path in (table, model)} == content
    assert not picture.exists() and not (tmp_path / "new.npz").exists()


def test_a_model_is_not_written_over_a_file_of_another_program(tmp_path, capsys, learned):
    other = tmp_path / "notes.txt"
    other.write_text("keep")
    words = ["fit", str(learned[0] / "mixed.csv"), "--target", "level", "--out", str(other)]
    assert cli.main(words) == 2 and other.read_text() == "keep"
    assert "a file that capslit has not written" in capsys.readouterr().err


def test_a_class_called_prediction(tmp_path, capsys, learned):
    rows = [[*row[:-1], {"low": "prediction"}.get(row[-1], row[-1])] for row in mixed_rows()]
    path = write(tmp_path / "t.csv", HEADER, rows)
    words = ["fit", str(path), "--target", "level", "--out", str(tmp_path / "m.npz")]
    assert cli.main(words) == 2
    assert "rename the class" in capsys.readouterr().err and names(tmp_path) == ["t.csv"]
    model = TableClassifier().fit(pd.DataFrame({"a": [1, 2, 8, 9]}), ["prediction", "b"] * 2)
    model.save(tmp_path / "m.npz")
    new = write(tmp_path / "new.csv", ["a"], [["1"]])
    assert cli.main(["predict", str(tmp_path / "m.npz"), str(new)]) == 2
    out, err = capsys.readouterr()
    assert "rename the class" in err and out == ""


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path, capsys, separator):
    rows = [[str(20 + k), "ab"[k % 2], "no"[k % 2]] for k in range(12)]
    path = write(tmp_path / "t.csv", ["age", "kind", "y"], rows, separator)
    assert cli.main(["fit", str(path), "--target", "y", "--out", str(tmp_path / "m.npz")]) == 0
    assert "12 rows; columns: 1 of numbers, 1 of words" in capsys.readouterr().out


def test_parquet_files_by_any_spelling_and_without_their_index(tmp_path, capsys):
    pytest.importorskip("pyarrow", reason="pip install capslit[parquet]")
    frame = pd.DataFrame(mixed_rows(), columns=["row", *HEADER[1:]]).set_index("row")
    frame = frame[["colour", "level"]].sample(frac=1, random_state=0)
    for name in ("A.PARQUET", "b.parquet", "c.Pq"):
        frame.to_parquet(tmp_path / name)
        words = ["fit", tmp_path / name, "--target", "level", "--out", tmp_path / "m.npz"]
        assert cli.main(list(map(str, words))) == 0
        assert "90 rows; columns: 1 of words" in capsys.readouterr().out


def test_a_report_worse_than_the_most_frequent_class_says_so_first(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [
        [f"{x:.3f}", f"{z:.3f}", "ab"[k % 5 == 0]]
        for k, (x, z) in enumerate(rng.normal(size=(40, 2)))
    ]
    path = write(tmp_path / "noise.csv", ["x", "z", "y"], rows, ",")
    words = ["fit", str(path), "--target", "y", "--report", "--out", str(tmp_path / "m.npz")]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(
        "warning: capsule regression is worse than always predicting the most frequent class; a "
        "likely reason: class 'b' has 8 of 40 rows"
    )
