"""The protocol, records, and the recorded full-scale runs."""
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capslit import datasets
from capslit.experiments import (EXPERIMENTS, PAPER, RESULTS, Record, describe_code, describe_machine, load_protocol, load_record,
                                 record_path, reproduce, save_record)
from capslit.storage import StorageError, load_json, save_json


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return load_record(reproduce("figure2", profile="quick", out=folder))


def synthetic(n_train, n_test, size=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n_train + n_test, size, size), dtype=np.uint8)
    return datasets.ImageData("synthetic", images, np.arange(len(images)) % 10, datasets.DIGITS, n_train, 255.0, {})


def test_the_protocol_of_the_paper():
    protocol = load_protocol(synthetic(60000, 10000, 4))
    assert (len(protocol.X), len(protocol.X_val), len(protocol.X_test)) == (50000, 10000, 10000) and protocol.n_components == 4
    assert np.array_equal(protocol.y_val, np.arange(50000, 60000) % 10)
    quick = load_protocol(synthetic(60000, 10000, 4), "quick")
    assert (len(quick.X), len(quick.X_val), len(quick.X_test)) == (5000, 1000, 1000)
    assert np.array_equal(quick.X_val, protocol.X_val[:1000]) and np.array_equal(quick.test_images, protocol.test_images[:1000])


def test_the_test_images_do_not_influence_the_projection():
    data = synthetic(100, 50)
    other = replace(data, images=np.concatenate([data.train_images, 255 - data.test_images]))
    assert np.array_equal(load_protocol(data).X, load_protocol(other).X)


def test_what_cannot_be_an_experiment(tmp_path):
    with pytest.raises(ValueError, match="profile"):
        load_protocol(datasets.load_digits(), "full")
    with pytest.raises(ValueError, match="synthetic is not"):
        load_protocol(synthetic(100, 0))
    for words, match in ((dict(name="figure9"), "figure9.*figure2"), (dict(name="figure2", data="cats"), "cats.*mnist"),
                         (dict(name="figure2", profile="full"), "profile.*quick")):
        with pytest.raises(ValueError, match=match):
            reproduce(**words, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_record_comes_back(tmp_path, record):
    path = tmp_path / "new" / "folder" / "record.json"
    save_record(path, record)
    again = load_record(path)
    assert {k: v for k, v in vars(again).items() if k != "arrays"} == {k: v for k, v in vars(record).items() if k != "arrays"}
    assert all(np.array_equal(again.arrays[k], record.arrays[k]) for k in record.arrays)
    assert list(json.loads(path.read_text())) == sorted(json.loads(path.read_text()))


def test_damaged_records_are_refused(tmp_path, record):
    path = tmp_path / "record.json"

    def fresh():
        save_record(path, record)
        return load_json(path)

    fresh()
    path.with_suffix(".npz").unlink()
    with pytest.raises(StorageError, match="record.npz.*no such file"):
        load_record(path)
    for change, words in (({"schema": "capslit.record/99"}, "capslit.record/99"), ({"arrays_sha256": "0"}, "belongs to another run"),
                          ({"surplus": 1}, "surplus")):
        save_json(path, fresh() | change)
        with pytest.raises(StorageError, match=f"record.json.*{words}"):
            load_record(path)
    entries = fresh()
    del entries["metrics"]
    save_json(path, entries)
    with pytest.raises(StorageError, match="record.json.*metrics"):
        load_record(path)


def test_a_run_twice_gives_the_same_arrays(tmp_path, record):
    path = reproduce("figure2", profile="quick", out=tmp_path, seed=0)
    again = load_record(path)
    assert again.metrics == record.metrics and all(np.array_equal(again.arrays[k], record.arrays[k]) for k in record.arrays)


def test_a_record_says_where_it_comes_from(record):
    assert record.code["version"] and record.sha256 == datasets.load_digits().sha256 and record.seed == 0
    assert record.parameters == PAPER | {"n_components": 16}
    assert set(record.seconds) == {"load", "project", "fit", "measure"} and re.fullmatch(r"\d{4}-\d\d-\d\d", record.date)
    import socket
    assert socket.gethostname() not in json.dumps(describe_machine())


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
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path):
    checkpoint = record_path("figure2", "digits", "quick", tmp_path).with_suffix(".checkpoint")
    checkpoint.write_bytes(b"something else")
    with pytest.raises(StorageError, match="figure2-digits-quick.checkpoint"):
        reproduce("figure2", profile="quick", out=tmp_path)
    assert checkpoint.read_bytes() == b"something else"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_the_recorded_runs(path):
    record = load_record(path)
    source = EXPERIMENTS[record.experiment].source[record.data]
    assert abs(record.metrics["test_error"] - source) <= 0.003
    assert record.profile == "paper" and record.metrics["n_train"] == 50000 and record.metrics["n_test"] == 10000 and record.parameters["n_components"] == 196
    assert np.trace(record.arrays["confusion"]) == round((1 - record.metrics["test_error"]) * 10000)
    assert sum(p.stat().st_size for p in (path, path.with_suffix(".npz"))) < 1_200_000
    assert isinstance(record, Record) and Path(path).stem == f"{record.experiment}-{record.data}"
    assert (record.arrays["labels"][record.arrays["surest"]] == range(10)).all()
    assert record.arrays["history.validation_error"].min() == record.metrics["validation_error"]


def test_both_figures_are_recorded():
    if not RESULTS.is_dir():
        pytest.skip("not in a checkout")
    assert {p.stem for p in RESULTS.glob("*.json")} >= {"figure2-mnist", "figure3-fashion"}


def test_the_tables_and_figures_of_a_record(record):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    from capslit.figures import compare_error, describe_run, draw_learning, draw_squashed
    published = replace(record, data="mnist", metrics=record.metrics | {"test_error": 0.0721, "n_test": 10000})
    table = compare_error(published)
    assert "6.21 %" in table and "7.21 %" in table and "+1.00" in table and "4.1 standard errors" in table
    assert "| none |" in compare_error(replace(published, metrics=published.metrics | {"test_error": 0.0621}))
    assert "301" in describe_run(record) and "ν = 0.8" in describe_run(record)
    a = record.arrays
    panels = draw_squashed(a["squashed"], a["labels"], a["class_names"].tolist(), a["surest_images"])
    assert len([axis for axis in panels.axes if axis.get_title()]) == 10
    few = draw_squashed(a["squashed"][:, :3], a["labels"] % 3, ["a", "b", "c"], columns=2)
    assert [axis.get_title() for axis in few.axes[:3]] == ["a", "b", "c"]
    assert len(draw_learning(record).axes) == 2
    plt.close("all")
