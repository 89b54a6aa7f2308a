"""Tables in files and the estimator that learns from them: whatever can be written can be read, and
files and data frames follow one set of rules.
"""

import csv
import gzip
import io
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from capslit import TableClassifier
from capslit.capsules.table_classifier import compare, reason_for_failure
from capslit.data import read_table
from capslit.data.table_files import MISSING_WORDS, _with_decimal_points, read_frame
from capslit.storage import StorageError, load_arrays, save_arrays

TEXT = "a,b,y\n1,red,yes\n,blue,no\n3,red,yes\n4,?,no\n"
PACKED = gzip.compress(TEXT.encode(), mtime=0)


def noted(function, *args, **kwargs):
    "What a function returns, and the texts of its warnings."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    return result, [str(warning.message) for warning in caught]


def plain(**options):
    "A table classifier that learns fast."
    return TableClassifier(LogisticRegression(**options))


@pytest.fixture
def put(tmp_path):
    "put(content, name): the path of a file with this content."

    def write(content, name="t.csv"):
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


# ── files ──


@examples(60)
@given(
    st.lists(
        st.lists(st.text("ab1 .,;\t\"'\n[]é?", max_size=5), min_size=3, max_size=3),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(",\t|"),
)
def test_whatever_is_written_is_read(tmp_path_factory, rows, separator):
    text, header = io.StringIO(), ["first", "second", "third"]
    csv.writer(text, delimiter=separator).writerows([header, *rows])
    path = tmp_path_factory.mktemp("written") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    words = [[word.strip() for word in row] for row in rows]
    wanted = [[None if word.lower() in MISSING_WORDS else word for word in row] for row in words]
    frame = read_frame(path)
    assert list(frame) == header and frame.to_numpy().tolist() == wanted


@together(
    "content",
    [
        TEXT,
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        *(TEXT.replace(",", separator) for separator in (";", " , ")),
        "\n" + TEXT + "\n\n",
        TEXT.replace("?", "nan").replace("\n,", "\nN/A,"),
        TEXT.rstrip("\n"),
        PACKED,
    ],
)
def test_one_table_in_many_forms(put, content):
    (frame, labels), notes = noted(read_table, put(content), "y")
    assert frame.to_dict("list") == {"a": ["1", None, "3", "4"], "b": ["red", "blue", "red", None]}
    assert labels.tolist() == ["yes", "no", "yes", "no"] and notes == []


DAMAGED = "it is damaged .*; compress it again"


@together(
    "content, said",
    [
        (b"", "no rows"),
        (b"\xff\xfe\x00a", "not UTF-8 text; unpack it if it is compressed"),
        (b'a,y\n1,"x\n', "check its quotes"),
        (b"a,y\n1,x,2\n", "no CSV file .*line 2, saw 3"),
        (PACKED[:-9], DAMAGED),
        (PACKED[:20] + b"x" + PACKED[21:], DAMAGED),
        (PACKED[:-8] + bytes(8), DAMAGED),
    ],
)
def test_what_is_no_table(put, content, said):
    with pytest.raises(StorageError, match=f"cannot read .*t.csv: .*{said}"):
        read_table(put(content), "y")


@examples(100)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=6), st.integers(1, 6))
def test_decimal_commas_mean_what_points_mean(numbers, digits):
    points = [f"{number / 1000:.{digits}f}" for number in numbers]
    commas = [word.replace(".", ",") for word in points]
    turn = str.maketrans(",.", ".,")
    divided = [f"{number / 1000:,.{digits}f}".translate(turn) for number in numbers]
    for words in (commas, divided):
        assert _with_decimal_points(pd.DataFrame({"a": words}))["a"].tolist() == points


@together(
    "text, wanted, note",
    [  # one convention for a file, whose dates stay
        (
            "a;b;c;y\n1.200;19,47;5.25;p\n2.345;3,2e1;6.5;q\n",
            [["1200", "19.47", "5.25"], ["2345", "3.2e1", "6.5"]],
            "column 'b' has decimal commas, but 'c' decimal points",
        ),
        (
            "a;y\n1.200;p\n2.345;q\n",
            [["1.200"], ["2.345"]],
            "column 'a': the points may divide thousands, but are read as decimal points",
        ),
        ('a,y\n"1,5",p\n"2,5",q\n', [["1,5"], ["2,5"]], None),  # a comma divides entries here
    ],
)
def test_marks_in_numbers(put, text, wanted, note):
    header, *rows = text.splitlines(keepends=True)
    (frame, _), notes = noted(read_table, put(header + 2 * "".join(rows)), "y")
    assert frame[:2].to_numpy().tolist() == wanted
    assert [text[: len(note or "")] for text in notes] == ([note] if note else [])


@together("odd", ["5,1", "1 234", "n.a."])
def test_marks_that_may_mean_two_things_are_not_guessed(put, odd):
    words = [odd, "5.1", "6"] * 3
    lines = ["a;y", *(f"{word};{'pq'[k % 2]}" for k, word in enumerate(words))]
    model, (note,) = noted(plain().fit, *read_table(put("\n".join(lines)), "y"))
    assert model.columns_[0].form == tuple(sorted(set(words)))
    assert note.startswith(f"column 'a' is read as words because of {odd!r}; if that")


@together(
    "values, looks",
    [
        (range(7, 37), True),
        (range(0, 90, 3), True),
        (np.random.default_rng(0).permutation(30), True),
        (range(4), False),
        ([0, 1, 2, 2, 3, 4], False),
        ([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], False),
        ([5, 1, 9, 3, 20, 11], False),
    ],
)
def test_row_numbers_are_used_and_pointed_out(put, values, looks):
    text = "my id,y\n" + "".join(f"{value},{'pq'[k % 2]}\n" for k, value in enumerate(values))
    frame, y = read_table(put(text), "y")
    for table in (frame, frame.astype(float)):
        model, notes = noted(plain().fit, table, y)
        assert [column.name for column in model.columns_] == ["my id"]
        assert [note[:36] for note in notes] == ["column 'my id' looks like row number"] * looks


def test_parquet_gives_what_csv_gives(tmp_path, monkeypatch):
    frame = pd.DataFrame(
        {
            "whole": [1, 2, 3, 4],
            "gap": [1.0, None, 3.0, 0.1],
            "word": ["x", None, "y", "x"],
            "kind": pd.Categorical(["p", "q", "p", "q"]),
            "day": pd.date_range("2024-03-17", periods=4),
            "large": [1e100, -1e-300, 1 / 3, 0.0],
            "y": [2, 10, 10, 2],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    (X, y), (typed, other) = (
        read_table(tmp_path / f"t.{kind}", "y") for kind in ("csv", "parquet")
    )
    assert y.tolist() == other.tolist() == [2, 10, 10, 2]
    models = [plain().fit(table, y) for table in (X, typed)]
    for model in models:
        for table in (X, typed):
            assert np.array_equal(model.encode(table), models[0].encode(X))


# ── columns ──


@together("form", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ"])
def test_dates_in_many_forms(form):
    times = pd.Series(pd.date_range("2023-01-09 06:00", periods=90, freq="37h"))
    timed = "%H" in form
    words = times.dt.strftime(form)
    model = plain().fit(words.to_frame("t"), np.arange(90) >= 45)
    (column,) = model.columns_
    assert column.kind == "date" and column.form[1] == timed
    days = column.encode(words)[:, 0] * column.scale[0] + column.mean[0]
    expected = (times if timed else times.dt.normalize()) - pd.Timestamp(0)
    np.testing.assert_allclose(days, expected / pd.Timedelta(days=1), rtol=1e-12)
    gap = model.encode(pd.DataFrame({"t": [None]}))
    assert gap.shape == (1, 4 if timed else 3) and np.isfinite(gap).all()
    with pytest.raises(ValueError, match="column 't' must hold dates, as it did in fit, but holds"):
        model.predict(pd.DataFrame({"t": ["soon"]}))


def test_words_that_repeat_gaps_and_digits_far_from_zero_count():
    rng = np.random.default_rng(0)
    jobs = [f"{level} {job}" for level in ("junior", "senior") for job in range(1000, 1030)]
    words = pd.Series(rng.choice(jobs, 600))
    model = plain().fit(words.to_frame("job"), words.str.startswith("senior").to_numpy())
    (column,) = model.columns_
    assert column.kind == "text" and len(column.fill) == 30
    assert model.predict(pd.DataFrame({"job": ["senior 2000", "junior 2000"]})).tolist() == [1, 0]
    far = pd.DataFrame({"x": 1e9 + np.arange(40) / 8})
    assert len(np.unique(plain().fit(far, np.arange(40) > 20).encode(far))) == 40
    y = np.arange(300) % 2
    x = np.where((y == 1) & (rng.random(300) < 0.8), np.nan, rng.standard_normal(300))
    for table in (pd.DataFrame({"x": x}), x[:, None]):
        assert TableClassifier(random_state=0).fit(table, y).score(table, y) > 0.85


def mixed(n=120, seed=0):
    "A frame with numbers, words and gaps, and three classes."
    rng = np.random.default_rng(seed)
    c = np.arange(n) % 3
    codes = (c + (rng.random(n) < 0.3)) % 3
    columns = {
        "w": c + rng.standard_normal(n),
        "x": np.array(["p", "q", "r"], dtype=object)[codes],
        "y": 100 * rng.standard_normal(n),
        "z": np.array(list("abcd"), dtype=object)[rng.integers(0, 4, n)],
    }
    frame = pd.DataFrame(columns)
    return frame.mask(rng.random(frame.shape) < 0.1), np.array(["low", "mid", "high"])[c]


def test_encoding_is_that_of_scikit_learn():
    frame, y = mixed()
    model = plain().fit(frame[:80], y[:80])
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    filled = SimpleImputer(strategy="most_frequent", missing_values=None)
    words = make_pipeline(filled, OneHotEncoder(sparse_output=False))
    steps = zip("wxyz", (numbers, words, numbers, words))
    reference = ColumnTransformer([(name, step, [name]) for name, step in steps])
    objects = frame.astype(object).where(frame.notna(), None).astype({"w": float, "y": float})
    expected = reference.fit(objects[:80]).transform(objects)
    parts = np.split(expected, [1, 4, 5], axis=1)
    marks = frame.isna().to_numpy().T
    expected = np.hstack([np.column_stack([part, mark]) for part, mark in zip(parts, marks)])
    np.testing.assert_allclose(model.encode(frame), expected, rtol=1e-12, atol=1e-12)
    other = LogisticRegression().fit(expected[:80], y[:80])
    np.testing.assert_allclose(model.predict_proba(frame), other.predict_proba(expected), rtol=1e-6)


def test_a_saved_model_holds_numbers_and_text(tmp_path):
    frame, y = mixed()
    jobs = np.random.default_rng(0).integers(0, 60, len(frame))
    days = pd.date_range("2024-01-01", periods=len(frame)).astype(str)
    frame = frame.assign(day=days, job=[f"job {k}" for k in jobs])
    model = TableClassifier(random_state=0).fit(frame, 7 + 5 * (y == "low"))
    assert {column.kind for column in model.columns_} == {"date", "number", "word", "text"}
    path = tmp_path / "m.npz"
    model.save(path)
    arrays, meta = load_arrays(path)
    assert not any(array.dtype.hasobject for array in arrays.values())
    assert path.stat().st_size < 1_000_000
    again = TableClassifier.load(path)
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.classes_.tolist() == [7, 12] and again.predict(frame).dtype == np.int64
    for change in (
        {"attributes": {"fit": "x"}},
        {"attributes": {"classifier_": {"estimator": ["TableClassifier", 1, {}]}}},
        {"schema": "capslit.TableClassifier/1"},
        {"schema": "capslit.GaussianMixture/1"},
    ):
        save_arrays(tmp_path / "c.npz", arrays, meta | change)
        with pytest.raises(StorageError, match="c.npz"):
            TableClassifier.load(tmp_path / "c.npz")


def test_comparison_is_on_rows_not_learned_from():
    X, _ = mixed()
    y = np.random.default_rng(1).permutation(np.arange(len(X)) % 2)  # nothing to be learned
    results = compare(TableClassifier(random_state=0), X, y)
    assert results["capsule regression"].error > 0.35
    assert results["most frequent class"].log_loss == pytest.approx(np.log(2), rel=1e-6)
    rare = np.where(np.arange(len(X)) < 2, 2, y)  # a class of two is in every training part
    results = compare(plain(), X, rare)
    assert results["capsule regression"].probabilities.shape == (len(X), 3)


def test_reasons_for_failure():
    frame, y = mixed()
    model = plain()
    assert "say little about the classes" in reason_for_failure(model.fit(frame, y), y)
    reason = reason_for_failure(model.fit(frame[:30], y[:30]), y[:30])
    assert "features for 30 rows, 5 of them from column 'z'; leave such columns out" in reason


def test_weights_count_rows():
    frame, y = mixed()
    model = plain(tol=1e-10)
    weights = np.arange(len(y)) // 3 % 3
    rows = np.repeat(np.arange(len(y)), weights)
    weighted = model.fit(frame, y, sample_weight=weights).predict_proba(frame)
    repeated = model.fit(frame.iloc[rows], y[rows]).predict_proba(frame)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)
    strange = frame.assign(w=np.where(weights == 0, 1e6, frame["w"]))  # rows that do not count
    ignored = model.fit(strange, y, sample_weight=weights).predict_proba(frame)
    np.testing.assert_allclose(weighted, ignored, rtol=1e-6)


@together("kind", [object, "string", "category", "polars", "pyarrow"])
def test_a_frame_is_the_table_that_it_shows(tmp_path, kind):
    frame, y = mixed()
    if kind in ("polars", "pyarrow"):
        package = pytest.importorskip(kind, reason=f"pip install {kind}")
        columns = frame.astype(object).where(frame.notna(), None).to_dict("list")
        typed = (package.DataFrame if kind == "polars" else package.table)(columns)
    else:
        typed = frame.astype(dict.fromkeys("xz", kind))
    model, other = (TableClassifier(random_state=0).fit(table, y) for table in (typed, frame))
    assert [c.form for c in model.columns_] == [c.form for c in other.columns_]
    assert model.feature_names_in_.tolist() == list("wxyz") and model.n_features_in_ == 4
    expected = other.predict_proba(frame)
    turned = frame[list("zyxw")].assign(more="?")
    for table in (typed, turned):
        assert np.array_equal(model.predict_proba(table), expected)
    assert np.array_equal(model.predict_log_proba(typed), other.predict_log_proba(frame))


def test_what_the_columns_of_a_frame_are():
    n = 60
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    columns = {
        "number": rng.standard_normal(n),
        "flag": y == 1,
        "Flag": pd.array([None, *(y[1:] == 1)], dtype="boolean"),
        "Int": pd.array([None, *y[1:]], dtype="Int64"),
        "objects": np.array([None, 1, 2.5] * 20, dtype=object),
        "code": pd.Categorical([3, 10, None] * 20),
        "range": pd.cut(rng.random(n), [0, 0.5, 1]),
        "mixed": ["a", 1, 2.0] * 20,
        "month": pd.period_range("2020-01", periods=n, freq="M"),
        "sparse": pd.arrays.SparseArray(y.astype(float)),
    }
    frame = pd.DataFrame(columns)
    model = TableClassifier().fit(frame, y)
    kinds = "number number number number number word word word date number".split()
    assert [column.kind for column in model.columns_] == kinds
    forms = [column.form for column in model.columns_ if column.kind == "word"]
    assert forms == [("10", "3"), ("(0.0, 0.5]", "(0.5, 1.0]"), ("1", "2", "a")]
    assert model.score(frame, y) == 1
    recoded = frame.assign(code=frame["code"].astype(float))
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(recoded))
    numbered = frame[["number", "Int"]].set_axis([7, 8], axis=1)  # names need not be text
    assert [column.name for column in plain().fit(numbered, y).columns_] == ["7", "8"]
    with pytest.warns(UserWarning, match="column 'gaps' is left out: it has no entry"):
        plain().fit(frame.assign(gaps=[None] * n), y)


@together(
    "change, said",
    [
        ({"t": [{"a": 1}] * 120}, "make a column of each of their parts"),
        ({"t": 1j}, "column 't' holds entries of the type complex"),
        ({"t": b"a"}, "column 't' holds entries of the type bytes"),
        ({"y": -np.inf}, "column 'y' has inf as its largest magnitude"),
        ({"y": "1e999"}, "column 'y' has inf as its largest magnitude"),
        ({"y": 10**400}, "column 'y' has inf as its largest magnitude"),
    ],
)
def test_columns_that_nothing_can_be_learned_from(change, said):
    "A fit that fails leaves the model as it was."
    frame, y = mixed()
    model = plain().fit(frame, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=said):
        model.fit(frame.assign(**change), y)
    assert vars(model) == before
    if "t" not in change:
        with pytest.raises(ValueError, match=said):
            model.predict(frame.assign(**change))


def test_new_frames():
    frame, y = mixed()
    days = pd.date_range("2026-01-01", periods=len(frame))
    frame = frame.assign(x=frame["x"].fillna("p"), day=days)  # no gap in fit
    model = plain().fit(frame, y)
    with pytest.raises(ValueError, match="2 columns of X are called 'w'"):
        model.predict(pd.concat([frame, frame[["w"]]], axis=1))
    first = np.arange(len(frame)) < 5
    said = (
        "column 'x' holds 5 entries that the model has not seen, 'new': counted as missing; it "
        "knows 'p', 'q', 'r'"
    )
    with pytest.warns(UserWarning, match=said):
        found = model.predict_proba(frame.assign(x=frame["x"].mask(first, "new")))
    known, notes = noted(model.predict_proba, frame.assign(x=frame["x"].mask(first, None)))
    assert np.array_equal(found, known) and notes == []
    shuffled = frame[frame.columns[::-1]].assign(more=1)
    assert np.array_equal(model.predict_proba(shuffled), model.predict_proba(frame))
    for kind in ("number", "date"):
        (name, *_) = (column.name for column in model.columns_ if column.kind == kind)
        for other in (pd.Timestamp(0), pd.Timedelta(1), 1j) if kind == "number" else (2024, 1.5):
            with pytest.raises(ValueError, match=f"column '{name}' must hold {kind}s"):
                model.predict(frame.assign(**{name: other}))
        empty = frame.assign(**{name: None})
        for nothing in (np.nan, pd.NaT):
            found = model.predict_proba(frame.assign(**{name: nothing}))
            assert np.array_equal(found, model.predict_proba(empty))
    for wrong in (frame[[]], frame[:0]):
        with pytest.raises(ValueError, match="X has shape .* at least one row"):
            model.predict(wrong)


def test_arrays_after_frames_and_frames_after_arrays():
    frame = pd.DataFrame({"a": [1.0, 2, 8, 9], "b": [2.0, 1, 9, 8]})
    y, array = [0, 0, 1, 1], frame.to_numpy()
    model = plain().fit(frame, y)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but TableClass"):
        assert np.array_equal(model.predict_proba(array), model.predict_proba(frame))
    levels = frame.set_axis(pd.MultiIndex.from_product([["a"], ["b", "c"]]), axis=1)
    assert plain().fit(levels, y).score(levels, y) == 1
    with pytest.raises(ValueError, match=r"'x0', .* an array: pass X\.to_numpy"):
        plain().fit(array, y).predict(frame)


def test_arrays_of_text_and_enormous_numbers_without_names():
    said = r"X holds text, such as 'v', in the column 0 .*TableClassifier, which takes frames"
    with pytest.raises(ValueError, match=said):
        TableClassifier().fit(np.array([["v", 1], ["w", 2]], dtype=object), [0, 1])
    with pytest.raises(ValueError, match=r"column 'x1' has 5e\+200 as its largest magnitude"):
        TableClassifier().fit([[k, k * 1e200] for k in range(6)], [0, 1] * 3)


@together("package", ["pandas", "skrub"])
def test_what_to_install(monkeypatch, package):
    frame, y = mixed()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'capslit\[tables\]'"):
        TableClassifier().fit(frame, y)
