"""The contest on tables: places and differences by hand, folds, and the quick run."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from capslit.data.tables import PENGUINS, TABLES, load_table
from capslit.experiments import contest
from capslit.experiments.contest import (
    CONTEST,
    GRIDS,
    OTHERS,
    OURS,
    RESTS,
    RIVALS,
    ROWS,
    TIMES,
    against,
    critical_difference,
    folds_of,
    load_collection,
    matrix,
    mean_ranks,
    signed_rank,
    tables_in,
    times_of,
)
from capslit.experiments.records import Record, load_record


def made(errors, n, seconds=()):
    "A record with the errors of folds, {table: {model: errors}}, and CPU seconds by table."
    parts = {}
    arrays = {}
    for table, models in errors.items():
        for model, folds in models.items():
            name = f"{table}.{model}"
            metrics = {"error": float(np.mean(folds)), "n": n}
            parts[name] = {"parameters": {"table": table}, "metrics": metrics}
            arrays[f"{name}/folds"] = np.array(folds)[:, None]
            if seconds:
                times = np.array([np.full(5, 9.0), seconds[table]])
                arrays[f"{name}/seconds"] = np.repeat(times[:, None], len(folds), axis=1)
    return Record("tables", "tables", "paper", 0, {}, {}, {}, "2026-01-01", parts, arrays)


def test_equal_numbers_of_errors_share_their_places_and_places_differ_as_printed():
    """Folds of 4, 3 and 3 rows: three, three and four errors, though the mean rates differ; and
    Demšar 2006, Table 5 (a).
    """
    wrong = {"logistic": [1, 0, 2], "svm": [0, 2, 1], "forest": [2, 2, 0]}
    folds = {model: np.array(counts) / [4, 3, 3] for model, counts in wrong.items()}
    errors = matrix(made({"a": folds}, 10), list(wrong))
    assert errors.tolist() == [[0.3, 0.3, 0.4]]
    assert mean_ranks(errors).tolist() == [1.5, 1.5, 3]
    for n_models, q in ((2, 1.960), (4, 2.569), (5, 2.728), (10, 3.164)):
        difference = q * np.sqrt(n_models * (n_models + 1) / 84)
        assert critical_difference(n_models, 14) == pytest.approx(difference, rel=5e-4)


def test_signed_rank_by_hand():
    base = np.random.default_rng(0).uniform(0.1, 0.4, 38)
    even = base + np.repeat([0.03, -0.03], 19)
    left, within, right = signed_rank(base, even)
    # Half of the pairs cancel, a quarter is on either side
    assert abs(left - right) < 0.01
    assert within > 0.9
    assert signed_rank(base, even) == (left, within, right) != signed_rank(base, even, seed=1)
    assert signed_rank(base, base, rope=0.001) == (0, 1, 0)
    wide, narrow = (signed_rank(base, base + 0.02, rope=rope)[0] for rope in (0.03, 0.01))
    assert wide < 0.01 < 0.99 < narrow
    # Better unless w² > 1/2, where w ~ Beta(1/2, 1) is the weight of the pseudo-observation
    better, _, worse = signed_rank(np.array([0.1]), np.array([0.2]))
    assert better == pytest.approx(0.5 ** (1 / 4), abs=0.01)
    assert worse == 0


def test_folds_learn_nothing_from_what_they_are_tested_on():
    table = load_table("wine")
    (fold, *_), (other, *_) = (list(folds_of(table, 5, ROWS, seed)) for seed in (0, 1))
    assert not np.allclose(fold.X_test.mean(axis=0), 0, atol=1e-3)
    _, test = next(StratifiedKFold(5, shuffle=True, random_state=0).split(table.X, table.y))
    shifted = replace(table, X=table.X.copy())
    shifted.X[test] += 100
    moved = next(folds_of(shifted, 5, ROWS, 0))
    assert np.array_equal(moved.X, fold.X)
    assert moved.X_test.mean() > 1
    assert not np.array_equal(other.X, fold.X)


def test_the_calibration_error_is_that_of_all_folds_together():
    "Five rows each, all sure to 0.6, of which five and one are right."
    labels = [(np.arange(5) >= n_right).astype(int) for n_right in (5, 1)]
    folds = [contest._Fold(None, None, None, y_test) for y_test in labels]
    run = np.zeros(5, int), np.log(np.tile([0.6, 0.4], (5, 1))), np.zeros((2, len(TIMES))), None
    metrics, arrays = contest._collect([run, run], folds)
    assert metrics["calibration"] == pytest.approx(0)
    assert metrics["n"] == 10
    assert metrics["error"] == pytest.approx(0.4)
    brier = (0.16 + 0.16 + 4 * (0.36 + 0.36)) / 5  # of the second fold
    assert arrays["folds"][1, 2] == pytest.approx(brier)


def test_settings_are_chosen_within_the_training_part():
    fold = next(folds_of(load_table("iris"), 3, ROWS, 0))
    parameters = {"model": "svm", "settings": {}, "grid": [{"C": [1e-6, 1.0], "gamma": [1]}]}
    predicted, logs, _, chosen = contest._run_fold(parameters, fold, 0)
    assert logs is None
    assert np.mean(predicted != fold.y_test) < 0.2
    again = contest._run_fold(parameters, fold._replace(y_test=fold.y_test[::-1]), 0)
    assert again[3] == chosen == 1
    assert np.array_equal(again[0], predicted)


def test_penguins_are_left_out_where_their_package_is_missing(monkeypatch):
    monkeypatch.setattr("capslit.data.tables.find_spec", lambda name: None)
    collection = load_collection(tables=("iris", *PENGUINS))
    assert list(collection.sha256) == ["iris"]
    assert set(collection.left_out) == set(PENGUINS)
    record = made({"iris": {"logistic": [0.1]}}, 10)
    metrics = {"left_out": collection.left_out["penguins_sex"]}
    assert "not installed" in metrics["left_out"]
    record.parts["sex.logistic"] = {"parameters": {"table": "sex"}, "metrics": metrics}
    assert tables_in(record) == ["iris"]
    assert contest._present(record) == ["logistic"]


def test_the_quick_records(quick_record):
    record = load_record(quick_record("tables", "embedded"))
    assert tables_in(record) == ["iris"]
    for suffix in ("", "-tuned"):
        assert contest._present(record, suffix, RIVALS) == list(RIVALS)
    for name, part in record.parts.items():
        metrics = part["metrics"]
        folds = record.array(name, "folds")
        seconds = record.array(name, "seconds")[0].T
        assert metrics["error"] == folds[:, 0].mean() < 0.6
        assert metrics["n"] == 120
        assert (seconds[1:] > 0).all()
        tuned = bool(part["parameters"]["grid"])
        assert ("chosen" in metrics) == tuned == (seconds[0] > 0).all()
        probable = part["parameters"]["model"] != "svm"
        assert np.isnan(folds[:, 1:]).all() != probable
    images = load_record(quick_record("tables", "digits"))
    assert {part["metrics"]["n"] for part in images.parts.values()} == {257}  # of the protocol


def test_counts_and_times_against_logistic_regression_by_hand():
    same = [0.2, 0.2, 0.2, 0.2]
    errors = {
        "a": {"logistic": same, "svm": [0.1, 0.1, 0.1, 0.2]},  # gain 0.075 ± 0.025
        "b": {"logistic": same, "svm": [0.3, 0.1, 0.2, 0.3]},  # −0.025 ± 0.048
        "c": {"logistic": same, "svm": [0.3, 0.3, 0.3, 0.3]},  # −0.1 ± 0
        "d": {"logistic": [0.2, 0.1, 0.2, 0.1], "svm": [0.1, 0.2, 0.1, 0.2]},  # the same
    }
    units = {"a": 3.0, "b": 1.5, "c": 0.3, "d": 0.03}  # a fit is 2, 4, 20 and 200 of these
    record = made(errors, 40, {table: [0.0, 6.0, 0.1, 0.2, unit] for table, unit in units.items()})
    assert against(record, "svm") == (1, 1, 2, 1)
    expected = {"search": 0, "fit": 12, "predict_one": 0.1, "predict": 0.2}
    assert times_of(record, "svm") == pytest.approx(expected)


def test_the_parts_are_those_that_the_chapter_states():
    "Their settings are those of the records."
    parts = CONTEST.parts("tables", "paper")
    models = {*RIVALS, *OURS, "svm-platt", *(f"{model}-tuned" for model in GRIDS)}
    assert {part.name for part in parts} == {f"{t}.{model}" for t in TABLES for model in models}
    others = CONTEST.parts("others", "paper")
    tables = {part.parameters["table"] for part in others}
    assert tables == {f"{name}-rest" for name in RESTS} | set(OTHERS)
    for part in (*parts, *others):
        assert part.independent and part.files == (part.parameters["table"],)
