"""The protocol, records, and the recorded full-scale runs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import together

from capslit.data import datasets
from capslit.experiments.figure2 import PLANES, draw_learning, draw_squashed
from capslit.experiments.records import (
    PAPER,
    RESULTS,
    Experiment,
    Part,
    compare_errors,
    describe_code,
    describe_machine,
    describe_run,
    load_protocol,
    load_record,
    perform,
    record_path,
    _save_record,
)
from capslit.experiments.summary import EXPERIMENTS, reproduce
from capslit.storage import StorageError, load_json, save_json


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return load_record(reproduce("figure2", profile="quick", out=folder)[0])


def synthetic(n_train, n_test, size=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n_train + n_test, size, size), dtype=np.uint8)
    return datasets.ImageData(
        "synthetic", images, np.arange(len(images)) % 10, datasets.DIGITS, n_train, 255.0, {}
    )


def test_the_protocol_of_the_paper():
    protocol = load_protocol(synthetic(60000, 10000, 4))
    assert (len(protocol.X), len(protocol.X_val), len(protocol.X_test)) == (
        50000,
        10000,
        10000,
    ) and protocol.n_components == 4
    assert np.array_equal(protocol.y_val, np.arange(50000, 60000) % 10)
    quick = load_protocol(synthetic(60000, 10000, 4), "quick")
    assert (len(quick.X), len(quick.X_val), len(quick.X_test)) == (5000, 1000, 1000)
    assert np.array_equal(quick.X_val, protocol.X_val[:1000]) and np.array_equal(
        quick.test_images, protocol.test_images[:1000]
    )


def test_the_test_images_do_not_influence_the_projection():
    data = synthetic(100, 50)
    other = replace(data, images=np.concatenate([data.train_images, 255 - data.test_images]))
    assert np.array_equal(load_protocol(data).X, load_protocol(other).X)


def test_what_cannot_be_an_experiment(tmp_path):
    with pytest.raises(ValueError, match="profile"):
        load_protocol(datasets.load_digits(), "full")
    with pytest.raises(ValueError, match="synthetic is not"):
        load_protocol(synthetic(100, 0))
    for words, match in (
        (dict(name="figure9"), "figure2.*figure9"),
        (dict(name="figure2", data="cats"), "mnist.*cats"),
        (dict(name="figure2", profile="full"), "profile.*quick"),
    ):
        with pytest.raises(ValueError, match=match):
            reproduce(**words, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_record_comes_back(tmp_path, record):
    path = tmp_path / "new" / "folder" / "record.json"
    _save_record(path, record)
    again = load_record(path)
    assert {k: v for k, v in vars(again).items() if k != "arrays"} == {
        k: v for k, v in vars(record).items() if k != "arrays"
    }
    assert all(np.array_equal(again.arrays[k], record.arrays[k]) for k in record.arrays)
    assert list(json.loads(path.read_text())) == sorted(json.loads(path.read_text()))


def test_damaged_records_are_refused(tmp_path, record):
    path = tmp_path / "record.json"

    def fresh():
        _save_record(path, record)
        return load_json(path)

    fresh()
    path.with_suffix(".npz").unlink()
    with pytest.raises(StorageError, match="record.npz.*no such file"):
        load_record(path)
    for change, words in (
        ({"schema": "capslit.record/99"}, "capslit.record/99"),
        ({"arrays_sha256": "0"}, "belongs to another run"),
        ({"surplus": 1}, "surplus"),
    ):
        save_json(path, fresh() | change)
        with pytest.raises(StorageError, match=f"record.json.*{words}"):
            load_record(path)
    entries = fresh()
    del entries["parts"]
    save_json(path, entries)
    with pytest.raises(StorageError, match="record.json.*parts"):
        load_record(path)


QUICK = [
    (name, data)
    for name, experiment in EXPERIMENTS.items()
    for data in experiment.quick
    if not experiment.lacks()
]


def same_bits(one, other):
    "Whether two records hold the same arrays to the bit, but for times."
    names = [name for name in one.arrays if not name.rsplit("/", 1)[1].startswith("seconds")]
    return all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in names)


def same(one, other):
    """Whether two records hold the same metrics and the same arrays, but for times.

    Objectives may differ by rounding: no matrix library guarantees the last bit of a sum from one
    process to another.
    """
    if list(one.arrays) != list(other.arrays):
        return False
    for name, array in one.arrays.items():
        again = other.arrays[name]
        if array.dtype != again.dtype or array.shape != again.shape:
            return False
        if name.endswith("objective"):
            if not np.allclose(array, again, rtol=1e-13, atol=0, equal_nan=True):
                return False
        elif "/seconds" not in name and array.tobytes() != again.tobytes():
            return False
    metrics, again = (
        {name: part["metrics"] for name, part in record.parts.items()} for record in (one, other)
    )
    return metrics == again


@pytest.mark.parametrize("name, data", QUICK)
def test_every_experiment_twice_gives_the_same_record(tmp_path, everything, name, data):
    everything, _ = everything
    path = record_path(name, data, "quick", everything)
    record = load_record(path)
    assert (
        record.experiment == name
        and record.parts
        and record.seed == 0
        and record.profile == "quick"
    )
    assert set(record.parts) == {part.name for part in EXPERIMENTS[name].parts(data, "quick")}
    for need in EXPERIMENTS[name].needs:
        for suffix in (".json", ".npz"):
            source = record_path(need, data, "quick", everything).with_suffix(suffix)
            (tmp_path / source.name).write_bytes(source.read_bytes())
    (again,) = reproduce(
        name, data, profile="quick", out=tmp_path
    )  # in this process, whatever ran in it before
    assert load_record(again).machine == record.machine  # the number of threads, too
    assert same(record, load_record(again))
    same_digest = record.digest() == load_record(again).digest()
    assert same_digest == same_bits(record, load_record(again))


def test_all_is_in_the_folder_and_nothing_else(everything):
    assert {p.name for p in everything[0].iterdir()} == {
        f"{name}-{data}-quick{suffix}" for name, data in QUICK for suffix in (".json", ".npz")
    }


def test_another_seed_gives_another_record(tmp_path, everything):
    (path,) = reproduce("figure8", profile="quick", out=tmp_path, seed=1)
    assert not same(load_record(path), load_record(everything[0] / "figure8-digits-quick.json"))


def test_needed_experiments_run_first(tmp_path):
    reproduce("figure7", profile="quick", out=tmp_path)
    assert (tmp_path / "figure6-digits-quick.json").exists()


def test_a_record_says_where_it_comes_from(record):
    assert (
        record.code["version"]
        and record.sha256 == datasets.load_digits().sha256
        and record.seed == 0
    )
    assert record.parts[PLANES]["parameters"] == PAPER | {"capsule_dim": 2}
    assert set(record.parts[PLANES]["seconds"]) == {"fit", "measure"} and re.fullmatch(
        r"\d{4}-\d\d-\d\d", record.date
    )
    assert record.seconds(PLANES) == pytest.approx(
        record.seconds(PLANES, "fit") + record.seconds(PLANES, "measure")
    )
    assert record.seconds(PLANES, "fit", "cpu_seconds") > 0
    import socket

    assert socket.gethostname() not in json.dumps(describe_machine())


def counting(failing=None):
    """An experiment of three parts that counts how often each of them is run, and the counts; the
    part `failing` raises an error.
    """
    runs = {"a": 0, "b": 0, "c": 0}

    def run(part, bench):
        runs[part.name] += 1
        if part.name == failing and runs[part.name] == 1:
            bench.checkpoint.write_text("half")
            raise KeyboardInterrupt
        assert list(bench.finished) == [name for name in runs if name < part.name]
        return {"number": part.parameters["number"], "before": bench.finished}, {
            "n": np.arange(part.parameters["number"])
        }

    return Experiment(
        "Counting",
        ("digits",),
        lambda data, profile: tuple(Part(name, {"number": i}) for i, name in enumerate(runs)),
        run,
    ), runs


def test_finished_parts_are_not_run_again(tmp_path):
    experiment, runs = counting(failing="b")
    with pytest.raises(KeyboardInterrupt):
        perform("counting", experiment, "digits", out=tmp_path)
    assert {p.name for p in (tmp_path / "counting-digits.parts").iterdir()} == {
        "a.npz",
        "b.checkpoint",
    }
    words = []
    record = load_record(
        perform("counting", experiment, "digits", out=tmp_path, report=words.append)
    )
    assert runs == {"a": 1, "b": 2, "c": 1} and "going on from the checkpoint" in words
    assert [part["resumed"] for part in record.parts.values()] == [False, True, False]
    assert record.metrics("c")["before"]["b"]["before"]["a"]["number"] == 0 and record.array(
        "c", "n"
    ).tolist() == [0, 1]
    assert {p.name for p in tmp_path.iterdir()} == {"counting-digits.json", "counting-digits.npz"}


def test_a_record_is_not_made_twice_unless_asked_for(tmp_path):
    experiment, runs = counting()
    for again, seed, total in ((False, 0, 1), (False, 0, 1), (True, 0, 2), (False, 5, 3)):
        perform("counting", experiment, "digits", out=tmp_path, again=again, seed=seed)
        assert runs["a"] == total


def test_a_record_is_made_again_when_one_that_it_was_made_from_has_changed(tmp_path):
    counted, runs = counting()
    reader = replace(
        counted,
        run=lambda part, bench: (
            {"seen": bench.records["counting"].array(part.name, "n").tolist()},
            {},
        ),
        needs=("counting",),
    )
    source = perform("counting", counted, "digits", out=tmp_path)
    first = load_record(source)
    path = perform("reader", reader, "digits", out=tmp_path)
    assert load_record(path).needs == {"counting": first.digest()} and first.needs == {}

    def text_after(record):
        _save_record(source, record)
        assert perform("reader", reader, "digits", out=tmp_path, report=words.append) == path
        return path.read_text()

    before, words = path.read_text(), []
    assert text_after(replace(first, date="2001-01-01")) == before and words == [
        f"{path} is there already; --again repeats the run"
    ]
    changed = replace(first, arrays=first.arrays | {"c/n": np.array([7])})
    assert (
        text_after(changed) != before
        and f"{path} was made from another record of counting; it is made again" in words
    )
    assert load_record(path).metrics("c")["seen"] == [7] and load_record(path).needs == {
        "counting": changed.digest()
    }
    old = load_json(path)
    del old[
        "needs"
    ]  # of before there were digests: what it was made from is unknown, and it is left alone
    save_json(path, old)
    assert json.loads(text_after(first)) == old


def test_a_digest_is_of_what_was_found_not_of_how_long_it_took(record):
    part = record.parts[PLANES]
    for same, change in (
        (True, {"date": "2001-01-01"}),
        (True, {"parts": {PLANES: part | {"seconds": {"fit": 1.0}}}}),
        (True, {"arrays": record.arrays | {f"{PLANES}/seconds": np.ones(2)}}),
        (
            False,
            {"arrays": record.arrays | {f"{PLANES}/labels": record.array(PLANES, "labels")[::-1]}},
        ),
        (False, {"parts": {PLANES: part | {"metrics": part["metrics"] | {"test_error": 0.5}}}}),
    ):
        assert (replace(record, **change).digest() == record.digest()) == same


def test_parts_that_ran_at_different_commits_say_so(tmp_path, monkeypatch):
    experiment, _ = counting(failing="b")
    at = lambda digit: monkeypatch.setattr(
        "capslit.experiments.records.describe_code",
        lambda: {"version": "9", "commit": digit * 40, "modified": False},
    )
    at("1")
    with pytest.raises(KeyboardInterrupt):
        perform("counting", experiment, "digits", out=tmp_path)
    at("2")
    record = load_record(perform("counting", experiment, "digits", out=tmp_path))
    assert [part["code"]["commit"][0] for part in record.parts.values()] == ["1", "2", "2"]
    assert "| code | version 9, parts of 2 commits, " in describe_run(record)
    parts = {
        name: {k: v for k, v in part.items() if k != "code"} for name, part in record.parts.items()
    }
    _save_record(tmp_path / "old.json", replace(record, parts=parts))
    old = load_record(tmp_path / "old.json")
    assert "| code | version 9, commit 2222222222, " in describe_run(old)


def test_parts_that_an_experiment_no_longer_has_stay_in_its_record(tmp_path):
    experiment, runs = counting()
    perform("counting", experiment, "digits", out=tmp_path)
    fewer = replace(experiment, parts=lambda data, profile: (Part("a", {"number": 0}),))
    words = []
    path = perform("counting", fewer, "digits", out=tmp_path, report=words.append)
    assert words == [f"{path} is there already; --again repeats the run"]
    before = load_record(path)
    record = load_record(perform("counting", fewer, "digits", out=tmp_path, again=True))
    assert runs == {"a": 2, "b": 1, "c": 1} and record.digest() == before.digest()


def test_parts_of_another_run_are_refused(tmp_path):
    experiment, _ = counting(failing="c")
    with pytest.raises(KeyboardInterrupt):
        perform("counting", experiment, "digits", out=tmp_path)
    with pytest.raises(
        ValueError,
        match="counting-digits.parts was written by a run with other settings; delete it",
    ):
        perform("counting", experiment, "digits", out=tmp_path, seed=1)


def test_outside_a_checkout_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr("capslit.__file__", str(tmp_path / "site" / "capslit" / "__init__.py"))
    assert describe_code()["commit"] is None
    (tmp_path / "site" / ".git").mkdir(parents=True)  # broken: git answers with an error
    assert describe_code()["commit"] is None


def test_a_full_disk_ends_a_run_with_one_error(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("capslit.storage.os.fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        reproduce("figure2", profile="quick", out=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path):
    checkpoint = tmp_path / "figure2-digits-quick.parts" / f"{PLANES}.checkpoint"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"something else")
    with pytest.raises(StorageError, match=f"{PLANES}.checkpoint"):
        reproduce("figure2", profile="quick", out=tmp_path)
    assert checkpoint.read_bytes() == b"something else"


RECORDED = [(name, data) for name, experiment in EXPERIMENTS.items() for data in experiment.data]


@together("name, data", RECORDED)
def test_every_experiment_is_recorded_at_full_size(name, data):
    path = record_path(name, data, "paper", RESULTS)
    record, experiment = load_record(path), EXPERIMENTS[name]
    assert (record.experiment, record.data, record.profile, record.seed) == (name, data, "paper", 0)
    for code in (record.code, *(part["code"] for part in record.parts.values())):
        assert code["commit"] and not code["modified"]
    for other, digest in record.needs.items():
        assert load_record(record_path(other, data, "paper", RESULTS)).digest() == digest
    settings = {
        part.name: json.loads(json.dumps(part.parameters))
        for part in experiment.parts(data, "paper")
    }
    recorded = {part: entry["parameters"] for part, entry in record.parts.items()}
    # Parts that an experiment no longer has stay in its record.
    assert {part: recorded[part] for part in settings} == settings
    assert sum(p.stat().st_size for p in (path, path.with_suffix(".npz"))) < 2_500_000
    for entry in record.parts.values():
        for metric, value in entry["metrics"].items():
            if metric in ("test_error", "validation_error", "training_error"):
                most = 0.75 if name == "overlaps" else 0.5  # of 45 pairs, chance names one
                assert (
                    0 <= np.min(value) and np.max(value) < most
                )  # of one classifier, or of one for each strength


def test_nothing_else_is_recorded():
    assert {p.stem for p in RESULTS.glob("*")} == {f"{name}-{data}" for name, data in RECORDED} | {
        "bench"
    }


@together("name", ["figure2", "figure3"])
def test_the_planes_have_the_published_error(name):
    (data,) = EXPERIMENTS[name].data
    record = load_record(record_path(name, data, "paper", RESULTS))
    metrics, of = record.metrics(PLANES), lambda array: record.array(PLANES, array)
    assert (
        abs(metrics["test_error"] - EXPERIMENTS[name].source[data][f"{PLANES}/test_error"]) <= 0.003
    )
    assert (
        metrics["n_train"] == 50000
        and metrics["n_test"] == 10000
        and of("coef").shape == (10, 2, 196)
    )
    assert np.trace(of("confusion")) == round((1 - metrics["test_error"]) * 10000)
    assert (of("labels")[of("surest")] == range(10)).all()
    assert of("history.validation_error").min() == metrics["validation_error"]


def test_the_tables_and_figures_of_a_record(record):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    part = record.parts[PLANES] | {
        "metrics": record.metrics(PLANES) | {"test_error": 0.0721, "n_test": 10000}
    }
    published = replace(record, data="mnist", parts={PLANES: part})
    table = compare_errors(published, EXPERIMENTS["figure2"])
    assert (
        "6.21 %" in table
        and "7.21 %" in table
        and "+1.00" in table
        and "4.1 standard errors" in table
    )
    part["metrics"]["test_error"] = 0.0621
    assert "| none |" in compare_errors(published, EXPERIMENTS["figure2"])
    assert "quick profile, seed 0" in describe_run(record) and describe_machine()[
        "processor"
    ] in describe_run(record)
    of = lambda name: record.array(PLANES, name)
    panels = draw_squashed(
        of("squashed"), of("labels"), of("class_names").tolist(), of("surest_images")
    )
    assert len([axis for axis in panels.axes if axis.get_title()]) == 10
    for machine, words in (
        ({"cores": 2, "threads": 1}, "2 cores, matrix products with 1 thread, NumPy"),
        ({"cores": 2, "threads": 2}, "2 cores, NumPy"),
    ):
        assert words in describe_run(replace(record, machine=record.machine | machine))
    few = draw_squashed(of("squashed")[:, :3], of("labels") % 3, ["a", "b", "c"], columns=2)
    assert [axis.get_title() for axis in few.axes[:3]] == ["a", "b", "c"]
    assert len(draw_learning(record).axes) == 2
    plt.close("all")
