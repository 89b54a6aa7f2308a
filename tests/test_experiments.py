"""The protocol, records, and the recorded full-scale runs."""

import json
import re
import socket
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import together

from capslit.data import datasets
from capslit.experiments import records
from capslit.experiments.figure2 import PLANES
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
)
from capslit.experiments.summary import EXPERIMENTS, reproduce
from capslit.storage import StorageError, load_json, save_json


@pytest.fixture(scope="module")
def record(quick_record):
    return load_record(quick_record("figure2"))


def test_the_protocol_of_the_paper():
    "The projection is that of the training images."
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (70_000, 4, 4), dtype=np.uint8)
    labels = np.arange(70_000) % 10
    data = datasets.ImageData("synthetic", images, labels, datasets.DIGITS, 60_000, 255.0, {})
    protocol = load_protocol(data)
    sizes = [len(y) for _, y in protocol.sets.values()]
    assert sizes == [50000, 10000, 10000] and protocol.n_components == 4
    assert np.array_equal(protocol.y_val, labels[50_000:60_000])
    quick = load_protocol(data, "quick")
    assert [len(y) for _, y in quick.sets.values()] == [5000, 1000, 1000]
    assert np.array_equal(quick.X_val, protocol.X_val[:1000])
    assert np.array_equal(quick.test_images, protocol.test_images[:1000])
    other = replace(data, images=np.concatenate([data.train_images, 255 - data.test_images]))
    assert np.array_equal(load_protocol(other).X, protocol.X)
    with pytest.raises(ValueError, match="synthetic is not"):
        load_protocol(replace(data, n_train=70_000))


@together(
    "words, match",
    [
        ({"name": "figure9"}, "figure2.*figure9"),
        ({"name": "figure2", "data": "cats"}, "mnist.*cats"),
        ({"name": "figure2", "data": "embedded"}, "mnist.*not 'embedded'"),  # tables of another
        ({"name": "figure2", "profile": "full"}, "profile.*quick"),
    ],
)
def test_what_is_no_experiment_leaves_nothing(tmp_path, words, match):
    with pytest.raises(ValueError, match=match):
        reproduce(**words, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_ends_a_run_with_one_error(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("capslit.storage.os.fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        reproduce("figure2", profile="quick", out=tmp_path)
    assert not any(p.is_file() for p in tmp_path.rglob("*"))


def test_a_record_comes_back_and_damage_is_refused(tmp_path, record):
    path = tmp_path / "record.json"

    def fresh():
        records._save_record(path, record)
        return load_json(path)

    entries = fresh()
    again = load_record(path)
    assert list(entries) == sorted(entries) and again.digest() == record.digest()
    assert replace(again, arrays={}) == replace(record, arrays={})
    path.with_suffix(".npz").unlink()
    with pytest.raises(StorageError, match="record.npz.*no such file"):
        load_record(path)
    entries = fresh()
    damaged = {
        "capslit.record/99": entries | {"schema": "capslit.record/99"},
        "surplus": entries | {"surplus": 1},
        "parts": {key: entries[key] for key in entries.keys() - {"parts"}},
    }
    for words, changed in damaged.items():
        save_json(path, changed)
        with pytest.raises(StorageError, match=f"record.json.*{words}"):
            load_record(path)


QUICK = [
    (name, data)
    for name, experiment in EXPERIMENTS.items()
    for data in experiment.quick
    if not experiment.lacks()
]
# What the recorded runs hold and quick ones do not
LACKING = {"peers": {"bytes"}, "tables": {"chosen"}, "manifolds-fine": {"k"}}


def held(record, parts):
    "Names of the metrics and arrays of some parts of a record, but for the weights of networks."
    names = {part.name for part in parts}
    arrays = [name.rsplit("/", 1) for name in record.arrays if "/network." not in name]
    return {array for part, array in arrays if part in names}.union(*map(record.metrics, names))


@pytest.mark.parametrize("name, data", QUICK)
def test_every_experiment_twice_gives_the_same_record(tmp_path, everything, name, data):
    """Once as the installed command wrote it, and once in this process, whatever ran in it before;
    with all that the chapters read from the recorded runs.
    """
    folder, _ = everything
    experiment = EXPERIMENTS[name]
    record = load_record(record_path(name, data, "quick", folder))
    assert (record.experiment, record.profile, record.seed) == (name, "quick", 0)
    parts = experiment.parts(data, "quick")
    assert set(record.parts) == {part.name for part in parts} != set()
    for full in experiment.data:
        recorded = load_record(record_path(name, full, "paper", RESULTS))
        lacking = held(recorded, experiment.parts(full, "paper")) - held(record, parts)
        assert lacking <= LACKING.get(name, set())
    for part in record.parts:
        predicted, labels = (
            record.arrays.get(f"{part}/{name}") for name in ("predicted", "labels")
        )
        if np.ndim(predicted) == np.ndim(labels) == 1:
            assert record.metrics(part)["test_error"] == pytest.approx(np.mean(predicted != labels))
            assert record.metrics(part)["n_test"] == len(labels)
    for need in experiment.needs:
        for suffix in (".json", ".npz"):
            source = record_path(need, data, "quick", folder).with_suffix(suffix)
            (tmp_path / source.name).write_bytes(source.read_bytes())
    again = load_record(*reproduce(name, data, profile="quick", out=tmp_path))
    assert again.machine == record.machine  # the number of threads, too
    assert list(again.arrays) == list(record.arrays) and again.digest() == record.digest()


def test_all_is_in_the_folder_and_nothing_else(everything):
    folder, _ = everything
    names = {record_path(name, data, "quick", folder).stem for name, data in QUICK}
    suffixes = (".json", ".npz")
    assert {p.name for p in folder.iterdir()} == {f"{n}{end}" for n in names for end in suffixes}


def test_another_seed_gives_another_record(tmp_path, quick_record):
    (path,) = reproduce("figure8", profile="quick", out=tmp_path, seed=1)
    assert load_record(path).digest() != load_record(quick_record("figure8")).digest()


def test_a_record_says_where_it_comes_from_and_its_digest_what_was_found(record):
    part = record.parts[PLANES]
    assert record.code["version"] and record.sha256 == datasets.load_digits().sha256
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record.date)
    assert part["parameters"] == PAPER | {"capsule_dim": 2}
    steps = [record.seconds(PLANES, step) for step in ("fit", "measure")]
    assert record.seconds(PLANES) == pytest.approx(sum(steps)) and len(part["seconds"]) == 2
    assert record.seconds(PLANES, "fit", "cpu_seconds") > 0
    assert socket.gethostname() not in json.dumps(describe_machine())
    arrays = record.arrays
    labels = f"{PLANES}/labels"
    for equal, change in (
        (True, {"date": "2001-01-01"}),
        (True, {"arrays": arrays | {f"{PLANES}/seconds": np.ones(2)}}),
        (False, {"arrays": arrays | {labels: arrays[labels][::-1]}}),
    ):
        assert (replace(record, **change).digest() == record.digest()) == equal


def counting(failing=None):
    """An experiment of three parts that counts how often each of them is run, and the counts; the
    part `failing` is interrupted once.
    """
    runs = {"a": 0, "b": 0, "c": 0}

    def run(part, bench):
        runs[part.name] += 1
        if part.name == failing and runs[part.name] == 1:
            bench.checkpoint.write_text("half")
            raise KeyboardInterrupt
        assert list(bench.finished) == [name for name in runs if name < part.name]
        number = part.parameters["number"]
        return {"number": number, "before": bench.finished}, {"n": np.arange(number)}

    def parts(data, profile):
        return tuple(Part(name, {"number": i}) for i, name in enumerate(runs))

    return Experiment("Counting", ("digits",), parts, run), runs


def test_finished_parts_are_not_run_again(tmp_path, monkeypatch):
    "Each part names the commit that ran it; records without these have one for all."
    experiment, runs = counting(failing="b")

    def commit(digit):
        code = {"version": "9", "commit": digit * 40, "modified": False}
        monkeypatch.setattr(records, "describe_code", lambda: code)

    commit("1")
    with pytest.raises(KeyboardInterrupt):
        perform("counting", experiment, "digits", out=tmp_path)
    left = {p.name for p in (tmp_path / "counting-digits.parts").iterdir()}
    assert left == {"a.npz", "b.checkpoint"}
    with pytest.raises(ValueError, match="counting-digits.parts was written by.*delete it"):
        perform("counting", experiment, "digits", out=tmp_path, seed=1)
    commit("2")
    words = []
    path = perform("counting", experiment, "digits", out=tmp_path, report=words.append)
    record = load_record(path)
    assert runs == {"a": 1, "b": 2, "c": 1} and "going on from the checkpoint" in words
    assert [part["resumed"] for part in record.parts.values()] == [False, True, False]
    assert record.metrics("c")["before"]["b"]["before"]["a"]["number"] == 0
    assert record.array("c", "n").tolist() == [0, 1]
    assert {p.name for p in tmp_path.iterdir()} == {"counting-digits.json", "counting-digits.npz"}
    assert [part["code"]["commit"][0] for part in record.parts.values()] == ["1", "2", "2"]
    assert "| code | version 9, parts of 2 commits, " in describe_run(record)
    for part in record.parts.values():
        del part["code"]
    records._save_record(path, record)
    assert "| code | version 9, commit 2222222222, " in describe_run(load_record(path))


def test_a_record_is_completed(tmp_path, monkeypatch):
    "Independent parts that are unchanged are kept, with their machine and day."
    runs = []

    def run(part, bench):
        runs.append(part.name)
        return {}, {"seconds": np.random.default_rng().random(3)}

    def completed(*parts, files="11", **options):
        del runs[:]
        data = SimpleNamespace(sha256=dict(zip("xy", files)))
        loaders = {"made": lambda: data}
        experiment = Experiment("", ("made",), lambda *_: parts, run, loaders=loaders)
        return load_record(perform("some", experiment, "made", out=tmp_path, **options))

    a = Part("a", {"n": 0}, independent=True, files=("x",))
    b = replace(a, name="b", files=("y",))
    c = replace(b, name="c", reads=("a",))
    first = completed(a, b)
    machine = {"processor": "another", "cores": 1}
    monkeypatch.setattr(records, "describe_machine", lambda: machine)
    second = completed(a, b, c)
    assert runs == ["c"] and second.machine["processor"] == "another"
    assert "machine" not in second.parts["c"]
    for name in ("a", "b"):
        origin = {"machine": first.machine, "date": first.date}
        assert second.parts[name] == first.parts[name] | origin
        assert np.array_equal(second.array(name, "seconds"), first.array(name, "seconds"))
    changed = replace(b, parameters={"n": 1})
    d = replace(b, name="d")
    alone = replace(a, independent=False)
    for parts, options, expected in (
        ([a, b, c], {}, ""),
        ([a, changed, c], {}, "b"),
        ([a, changed, c, d], {"files": "21"}, "acd"),  # c reads a
        ([a, changed, c, d], {"files": "21", "again": True}, "abcd"),
        ([a, changed], {"files": "21", "seed": 1}, "ab"),
        ([changed], {"files": "21", "seed": 1, "again": True}, "b"),
        ([alone], {"files": "21", "seed": 1}, ""),  # parts that are no longer planned stay
        ([alone, d], {"files": "21", "seed": 1}, "ad"),
    ):
        record = completed(*parts, **options)
        assert "".join(runs) == expected
    assert record.parts.keys() == set("abd")


def test_an_experiment_says_what_it_needs(tmp_path):
    lacking = replace(counting()[0], extra="absent")
    with pytest.raises(ValueError, match=r"needs a package.*capslit\[absent\]"):
        perform("counting", lacking, "digits", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    extras = {name: experiment.extra for name, experiment in EXPERIMENTS.items()}
    networks = dict.fromkeys(("capsules", "viewpoints", "ablation", "overlaps"), "torch")
    assert dict.fromkeys(extras, "") | networks | {"scaling": "dask"} == extras


def test_a_record_is_made_again_when_one_that_it_was_made_from_has_changed(tmp_path, monkeypatch):
    "Which is made first where it is not there."
    counted, _ = counting()

    def read(part, bench):
        return {"seen": bench.records["counting"].array(part.name, "n").tolist()}, {}

    reader = replace(counted, run=read, needs=("counting",))
    monkeypatch.setattr(
        "capslit.experiments.summary.EXPERIMENTS", {"counting": counted, "reader": reader}
    )
    (path,) = reproduce("reader", "digits", out=tmp_path)
    source = tmp_path / "counting-digits.json"
    first = load_record(source)
    assert load_record(path).needs == {"counting": first.digest()} and first.needs == {}

    def remade(record):
        "What is reported, and whether the text has changed, when the source becomes `record`."
        before = path.read_text()
        records._save_record(source, record)
        words = []
        perform("reader", reader, "digits", out=tmp_path, report=words.append)
        return words[0].removeprefix(f"{path} "), path.read_text() != before

    kept = ("is there already; --again repeats the run", False)
    assert remade(replace(first, date="2001-01-01")) == kept
    changed = replace(first, arrays=first.arrays | {"c/n": np.array([7])})
    assert remade(changed) == ("was made from another record of counting; it is made again", True)
    assert load_record(path).metrics("c")["seen"] == [7]
    assert load_record(path).needs == {"counting": changed.digest()}
    # Where a record does not say what it was made from, it is left alone
    unknown = load_json(path)
    del unknown["needs"]
    save_json(path, unknown)
    assert remade(first) == kept


def test_outside_a_checkout_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr("capslit.__file__", str(tmp_path / "site" / "capslit" / "__init__.py"))
    assert describe_code()["commit"] is None
    (tmp_path / "site" / ".git").mkdir(parents=True)  # broken: git answers with an error
    assert describe_code()["commit"] is None


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path):
    checkpoint = tmp_path / "figure2-digits-quick.parts" / f"{PLANES}.checkpoint"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"something else")
    with pytest.raises(StorageError, match=f"{PLANES}.checkpoint"):
        reproduce("figure2", profile="quick", out=tmp_path)
    assert checkpoint.read_bytes() == b"something else"


RECORDED = [(name, data) for name, experiment in EXPERIMENTS.items() for data in experiment.data]
# Of experiments that are no longer repeated; chapters are drawn from them
RETIRED = (
    "inference-digits passes-mnist passes-fashion causes-digits starts-mnist starts-fashion"
    " axes-mnist axes-fashion overlaps-fashion densities-photographs densities-mnist"
    " densities-fashion densities-usps heads-mnist"
).split()


@together("name, data", RECORDED)
def test_every_experiment_is_recorded_at_full_size(name, data):
    path = record_path(name, data, "paper", RESULTS)
    record = load_record(path)
    assert (record.experiment, record.data, record.profile, record.seed) == (name, data, "paper", 0)
    for code in (record.code, *(part["code"] for part in record.parts.values())):
        assert code["commit"] and not code["modified"]
    for other, digest in record.needs.items():
        assert load_record(record_path(other, data, "paper", RESULTS)).digest() == digest
    experiment = EXPERIMENTS[name]
    for part in experiment.parts(data, "paper"):
        assert record.parts[part.name]["parameters"] == json.loads(json.dumps(part.parameters))
    for key, published in experiment.source.get(data, {}).items():
        part, metric = key.rsplit("/", 1)
        if metric == "test_error":
            assert abs(record.metrics(part)[metric] - published) <= 0.003
            assert record.metrics(part)["n_test"] == 10_000
            if name in ("figure2", "figure3"):
                assert record.metrics(part)["n_train"] == 50_000
    assert sum(p.stat().st_size for p in (path, path.with_suffix(".npz"))) < 2_500_000


def test_nothing_else_is_recorded_and_all_can_be_read():
    names = {f"{name}-{data}" for name, data in RECORDED}
    assert {p.stem for p in RESULTS.glob("*")} == {*names, *RETIRED, "bench", "large-tables"}
    recorded = sum(len(load_json(RESULTS / f"{name}.json")["parts"]) for name in names)
    planned = sum(len(EXPERIMENTS[name].parts(data, "paper")) for name, data in RECORDED)
    assert recorded - planned == 199  # parts that experiments no longer have
    for name in RETIRED:
        record = load_record(RESULTS / f"{name}.json")
        assert (f"{record.experiment}-{record.data}", record.profile) == (name, "paper")
        assert record.parts and all(part["code"]["commit"] for part in record.parts.values())


def test_the_tables_of_a_record(record):
    for error, words in (
        (0.0721, "6.21 %.*7.21 %.*\\+1.00.*4.1 standard errors"),
        (0.0621, "none"),
    ):
        metrics = record.metrics(PLANES) | {"test_error": error, "n_test": 10000}
        parts = {PLANES: record.parts[PLANES] | {"metrics": metrics}}
        published = replace(record, data="mnist", parts=parts)
        assert re.search(words, compare_errors(published, EXPERIMENTS["figure2"]))
    assert "quick profile, seed 0" in describe_run(record)
    assert describe_machine()["processor"] in describe_run(record)
    for threads, words in (
        (1, "2 cores, matrix products with 1 thread, NumPy"),
        (2, "2 cores, NumPy"),
    ):
        machine = record.machine | {"cores": 2, "threads": threads}
        assert words in describe_run(replace(record, machine=machine))
