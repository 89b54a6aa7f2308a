"""How cost grows: what is counted is what is done, times are taken in turns; and the
table of benchmarks.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import together

from capslit.capsules.engine import CapsuleRegression
from capslit.experiments import scaling
from capslit.experiments.records import load_record
from capslit.experiments.scaling import AMOUNTS, MACHINE, SCALING, Case

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def test_functions_are_called_in_turns_and_the_shortest_time_counts(monkeypatch):
    clock = [0.0]
    called = ""
    monkeypatch.setattr(scaling.time, "perf_counter", lambda: clock[0])

    def takes(name, *seconds):
        left = list(seconds)

        def call():
            nonlocal called
            called += name
            clock[0] += left.pop(0)

        return call

    best = scaling.in_turns(takes("a", 3, 1, 2), takes("b", 5, 9, 7), rounds=3)
    assert best.tolist() == [1, 5]
    assert called == "ababab"


@together("n, hands", [(1_000, 1), (20_000, 1), (20_000, 2)])
def test_blocks_and_examples_are_those_of_the_engine(n, hands, monkeypatch):
    case = Case(n, p=6, d=2, m=3, hands=hands)
    seen = []
    plain = CapsuleRegression.e_step

    def watched(model, parameters, block, **options):
        seen.append(len(block[0]))
        return plain(model, parameters, block, **options)

    monkeypatch.setattr(CapsuleRegression, "e_step", watched)
    scaling._stepper(case, (*scaling._made_up(case), None))()
    done = scaling._amounts(case)
    assert sum(seen) == n
    assert done["blocks"] == -(-len(seen) // hands)
    assert done["capsules"] == 3 * min(n, max(seen) * done["blocks"])
    assert done["products"] == 2 * 2 * done["elements"] * 6
    assert done["read"] == 4 * 6 * done["capsules"] / 3


def test_a_cluster_leaves_the_environment_as_it_was():
    """What processes inherit that are started later, such as the number of threads, must not come
    from Dask.
    """
    pytest.importorskip("distributed", reason="Dask is not installed; pip install capslit[dask]")
    before = dict(os.environ)
    with scaling._local_cluster(1):
        pass
    assert dict(os.environ) == before


def test_the_checks_are_not_fitted_to_and_the_quick_record_is_complete(quick_record):
    parts = {part.name: part.parameters for part in SCALING.parts("digits", "paper")}
    checks = parts.pop("checks")["cases"]
    fitted = [case for settings in parts.values() for case in settings.get("cases", ())]
    assert len(fitted) > 35 and not any(case in fitted for case in checks)
    pytest.importorskip("distributed", reason="Dask is not installed; pip install capslit[dask]")
    record = load_record(quick_record("scaling"))
    # Times differ from run to run; all else must be the same again
    assert all(name.rsplit("/", 1)[1].startswith("seconds") for name in record.arrays)
    cases, seconds = scaling.measured(record)
    assert len(seconds) == len(cases)
    assert np.all(seconds > 0)
    assert {case.where for case in cases} == {"memory", "file", "cluster"}
    costs = scaling.fit_costs(record)
    assert list(costs) == list(AMOUNTS)
    assert min(costs.values()) >= 0 < max(costs.values())


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    if not BENCHMARKS.is_dir():
        pytest.skip("not in a checkout")
    import _table

    return _table


def test_rows_of_the_table(benchmarks, capsys):
    numbers = [("this", 0.5, "that", 1.0), ("more", 2.0, "less", 1.3), ("free", 7.0, "any")]
    rows = [benchmarks.Row(*row) for row in numbers]
    assert [row.met for row in rows] == [True, False, True]
    assert benchmarks.show(iter(rows)) == rows
    said = capsys.readouterr().out.splitlines()
    assert [k for k, line in enumerate(said) if "*" in line] == [2, 4]
    assert "1 of 2" in said[-1]
    benchmarks.show(rows[:1])
    assert "all aims met" in capsys.readouterr().out
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
    # With fewer the difference would be too small
    assert asked[:4] == [2, 10, 2, 10]
    assert max(asked) == 80
    with pytest.raises(RuntimeError, match="no more time than 2"):
        benchmarks.per_iteration(lambda steps: 1.0)


def test_every_benchmark_is_in_the_table_and_has_its_form(benchmarks, tmp_path):
    import _machine
    import run

    figures = _machine.machine_figures(tmp_path, size=64, megabytes=1, rounds=2)
    rates = scaling.machine_rates(*figures)
    assert rates.keys() == MACHINE.keys()
    assert min(rates.values()) > 0
    assert not any(tmp_path.iterdir())
    files = {path.stem: path.read_text() for path in BENCHMARKS.glob("[!_]*.py")}
    assert files.keys() == {*run.MODULES, "run", "gpu", "large_tables"}
    for name in run.MODULES:
        assert "\ndef rows(" in files[name]
        assert "alone(" in files[name]
        assert "from _table import Row" in files[name]
    command = [sys.executable, BENCHMARKS / "run.py", "cats"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no module cats; choose from em," in done.stderr
