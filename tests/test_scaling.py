"""How cost grows: what is counted is what is done, times are taken in turns, memory in processes of
their own; and the table of benchmarks.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import together

from capslit import em
from capslit.experiments import scaling
from capslit.experiments.records import load_record, perform
from capslit.experiments.scaling import (
    AMOUNTS,
    CHECKS,
    FITTED,
    MACHINE,
    SCALING,
    Case,
    Cluster,
    _amounts,
    _cost_model,
    _curves,
    _fit_apart,
    fit_costs,
    forecast,
    foretell,
    _forget,
    in_turns,
    machine_figures,
    machine_rates,
    _made_up,
    measured,
    _read_file,
    _resident,
    _scaling_parts,
    _stepper,
    _time_local,
    _write_examples,
)

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def test_functions_are_called_in_turns_and_the_shortest_time_counts(monkeypatch):
    clock, called = [0.0], []
    monkeypatch.setattr(scaling.time, "perf_counter", lambda: clock[0])

    def takes(name, *seconds):
        left = list(seconds)

        def call():
            called.append(name)
            clock[0] += left.pop(0)

        return call

    assert in_turns(takes("a", 3, 1, 2), takes("b", 5, 9, 7), rounds=3).tolist() == [1, 5]
    assert "".join(called) == "ababab"


@together("n, hands", [(1_000, 1), (20_000, 1), (20_000, 2)])
def test_blocks_and_examples_are_those_of_the_engine(n, hands, monkeypatch):
    case, seen = Case(n, p=6, d=2, m=3, hands=hands), []
    plain = em.BoundStep.__call__
    monkeypatch.setattr(
        em.BoundStep,
        "__call__",
        lambda work, block: seen.append(len(block[0])) or plain(work, block),
    )
    _stepper(case, (*_made_up(case), None))()
    done = _amounts(case)
    assert sum(seen) == n and done["blocks"] == -(-len(seen) // hands)
    assert done["capsules"] == 3 * min(n, max(seen) * done["blocks"])
    assert (
        done["products"] == 2 * 2 * done["elements"] * 6
        and done["read"] == 4 * 6 * done["capsules"] / 3
    )


def test_what_is_counted_where():
    case = Case(10_000, 50, 3, 7)
    here, file, there = (
        _amounts(replace(case, where=where, partitions=4))
        for where in ("memory", "file", "cluster")
    )
    assert (
        list(here) == list(AMOUNTS)
        and here["checked"] == here["copied"] == here["sent"] == here["tasks"] == here["calls"] == 0
    )
    assert file["checked"] == file["copied"] == 4 * 50 * 10_000 and file["sent"] == 0
    assert (
        there["checked"] == 4 * 50 * 10_000
        and there["copied"] == 0
        and there["tasks"] == 4
        and there["sent"] == 16 * 3 * 7 * 50
    )
    assert here["solution"] == 4 * 3 * 7 * 50**2


def test_files_of_examples_do_not_depend_on_their_pieces(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    _write_examples(tmp_path / "a", 1000, 10)
    _write_examples(tmp_path / "b", 1000, 10, rows=128)
    for name in ("X.npy", "y.npy"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    X = np.load(tmp_path / "a" / "X.npy", mmap_mode="r")
    assert len(np.unique(X, axis=0)) == 1000 and np.array_equal(
        scaling._read_rows(tmp_path / "a" / "X.npy", 77), X[:77]
    )


def test_files_are_timed_like_memory_and_leave_nothing(tmp_path):
    cases = [
        Case(500, 4, 1, 2),
        Case(500, 4, 1, 2, where="file"),
        Case(300, 4, 1, 2, hands=2, where="file"),
    ]
    seconds = _time_local(cases, tmp_path, rounds=2)
    assert seconds.shape == (3,) and (seconds > 0).all()
    figures = machine_rates(*machine_figures(tmp_path, size=64, megabytes=1, rounds=2))
    assert figures.keys() == MACHINE.keys() and min(figures.values()) > 0
    assert not (tmp_path / "machine").exists() and _forget(tmp_path / "500.npy") in (True, False)
    _read_file(tmp_path / "500.npy", buffer=100)


def test_the_highest_memory_is_noticed():
    before = _resident(highest=True)
    held = np.ones(
        max(0, before - _resident()) // 8 + 50_000_000
    )  # 400 MB more, of which others may free some meanwhile
    assert _resident(highest=True) - before > 40_000_000 and held[-1] == 1
    del held
    assert _resident(highest=True) >= before


def test_a_fit_in_a_process_of_its_own(tmp_path):
    _write_examples(tmp_path, 3000, 8)
    file, here = (
        _fit_apart(tmp_path, 2500, False, FITTED),
        _fit_apart(tmp_path, 2500, True, FITTED, apart=False),
    )
    assert (
        file["weights"] == here["weights"]
        and file["n_iter"] == 5
        and 0 < file["before"] <= file["peak"] < 2**30
    )
    assert _fit_apart(tmp_path, 2400, False, FITTED, apart=False)["weights"] != file["weights"]
    with pytest.raises(RuntimeError, match="fit of 10 examples.*capsule_dim"):
        _fit_apart(tmp_path, 10, False, FITTED | {"capsule_dim": 0})


def test_the_cost_model_finds_the_costs_of_noisy_times_and_none_is_negative():
    rng, true = (
        np.random.default_rng(0),
        dict(
            zip(AMOUNTS, (1e-11, 0, 8e-9, 2e-10, 3e-10, 3e-10, 5e-4, 1e-10, 4e-4, 1e-8, 3e-3, 3e-2))
        ),
    )
    cases = [case for name, some in _curves(False).items() if name != "checks" for case in some]
    seconds = [foretell(true, case, 2) * rng.uniform(0.97, 1.03) for case in cases]
    found = _cost_model(cases, seconds, 2)
    assert min(found.values()) >= 0 and all(
        0.8 < found[name] / true[name] < 1.25 for name in ("products", "sent", "tasks")
    )
    assert all(0.9 < foretell(found, case, 2) / foretell(true, case, 2) < 1.1 for case in CHECKS)


def test_a_cluster_computes_reads_sends_and_schedules():
    costs = dict.fromkeys(AMOUNTS, 0.0) | {
        "products": 1e-11,
        "copied": 1e-9,
        "sent": 1.0,
        "tasks": 1e-3,
        "calls": 0.5,
    }
    case, cluster = (
        Case(10**6, 100, 2, 5),
        Cluster(8, cores=4, memory=1e9, disk=1e8, bandwidth=1e6, latency=0.25),
    )
    found = forecast(costs, case, cluster)
    assert (
        found["compute"] == pytest.approx(1e-11 * 4 * 10**6 * 100 * 10 / 32) and found["read"] == 0
    )
    assert found["send"] == pytest.approx(6 * (0.25 + 8 * 1000 / 1e6)) and found[
        "schedule"
    ] == pytest.approx(0.5 + 32e-3)
    small = forecast(costs, case, replace(cluster, memory=1e7))
    assert small["read"] == pytest.approx(4e8 / 8 / 1e8) and small["compute"] > found["compute"]
    assert small["total"] == pytest.approx(
        max(small["compute"], small["read"]) + small["send"] + small["schedule"]
    )


def test_the_checks_are_not_fitted_to():
    parts = {part.name: part for part in _scaling_parts("digits", "paper")}
    fitted = [
        case
        for name, part in parts.items()
        if name != "checks"
        for case in part.parameters.get("cases", ())
    ]
    assert len(fitted) > 35 and not any(
        case in fitted for case in parts["checks"].parameters["cases"]
    )
    assert parts["large"].parameters["n"] * parts["large"].parameters["p"] * 4 == 3_920_000_000
    assert all(
        json.loads(json.dumps(part.parameters)) == part.parameters
        for part in parts.values()
        if part.name != "memory"
    )


def test_a_cluster_leaves_the_environment_as_it_was():
    """What processes inherit that are started later, such as the number of threads, must not come
    from Dask.
    """
    pytest.importorskip("distributed", reason="Dask is not installed; pip install capslit[dask]")
    before = dict(os.environ)
    with scaling._local_cluster(1):
        pass
    assert dict(os.environ) == before


def test_the_experiment_in_seconds(tmp_path):
    pytest.importorskip("distributed", reason="Dask is not installed; pip install capslit[dask]")
    record = load_record(perform("scaling", SCALING, "digits", profile="quick", out=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {
        "scaling-digits-quick.json",
        "scaling-digits-quick.npz",
    }
    assert all(
        name.rsplit("/", 1)[1].startswith("seconds") for name in record.arrays
    )  # for the rest must be the same again
    assert record.metrics("large")["same_weights"] and record.metrics("memory")["same_weights"] == [
        True,
        True,
    ]
    cases, seconds = measured(record)
    assert (
        len(cases)
        == len(seconds)
        == sum(len(some) for name, some in _curves(True).items() if name != "checks")
    )
    assert np.all(seconds > 0) and {case.where for case in cases} == {"memory", "file", "cluster"}
    costs = fit_costs(record)
    assert list(costs) == list(AMOUNTS) and min(costs.values()) >= 0 < max(costs.values())


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    if not BENCHMARKS.is_dir():
        pytest.skip("not in a checkout")
    import _table

    return _table


def test_rows_of_the_table(benchmarks, capsys):
    rows = [
        benchmarks.Row("this", 0.5, "that", 1.0),
        benchmarks.Row("more", 2.0, "less", 1.3),
        benchmarks.Row("free", 7.0, "any"),
    ]
    assert [row.met for row in rows] == [True, False, True] and benchmarks.show(iter(rows)) == rows
    said = capsys.readouterr().out.splitlines()
    assert [("*" in line) for line in said] == [
        False,
        False,
        True,
        False,
        True,
    ] and "1 of 2" in said[-1]
    benchmarks.show([rows[0]])
    assert "all aims met" in capsys.readouterr().out


def test_ratios_are_positive(benchmarks):
    for ratio in (0.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="^this: the ratio is"):
            benchmarks.show([benchmarks.Row("this", ratio, "that")])


def test_iterations_are_told_from_what_a_fit_does_once(benchmarks, monkeypatch):
    monkeypatch.setattr(benchmarks, "cpu_seconds", lambda function: function())
    asked = []

    def fit(steps):
        asked.append(steps)
        return 3.0 + 0.02 * steps

    assert benchmarks.per_iteration(fit) == pytest.approx(0.02)
    assert (
        asked[:4] == [2, 10, 2, 10] and max(asked) == 80
    )  # with fewer the difference would be too small
    with pytest.raises(RuntimeError, match="no more time than 2"):
        benchmarks.per_iteration(lambda steps: 1.0)


def test_every_benchmark_is_in_the_table_and_has_its_form(benchmarks):
    import run

    files = {path.stem for path in BENCHMARKS.glob("[!_]*.py")} - {"run", "gpu"}
    assert files == set(run.MODULES)
    for name in run.MODULES:
        text = (BENCHMARKS / f"{name}.py").read_text()
        assert (
            re.search(r"^def rows\(", text, re.MULTILINE)
            and "alone(" in text
            and "from _table import Row" in text
        )
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "run.py", "cats"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "no module cats; choose from em," in done.stderr
