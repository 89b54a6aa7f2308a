"""Tables in files and the estimator that learns from them: whatever can be written can be read, and
nothing depends on what happens to be installed.
"""

import csv
import gzip
import io
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from capslit import CapsuleClassifier
from capslit.capsules import TableClassifier
from capslit.capsules.table_classifier import compare, cross_validated
from capslit.data import read_table
from capslit.data.table_files import (
    MISSING_WORDS,
    decimal_points,
    labels_of,
    read_columns,
    read_features,
)
from capslit.storage import StorageError, load_arrays, save_arrays

TEXT = "a,b,y\n1,red,yes\n,blue,no\n3,red,yes\n4,?,no\n"


@examples(60)
@given(
    st.lists(
        st.lists(st.text("ab1 .,;\t\"'\n[]é?", max_size=5), min_size=3, max_size=3),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(",;\t"),
)
def test_whatever_is_written_is_read(tmp_path_factory, rows, separator):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([["first", "second", "third"], *rows])
    path = tmp_path_factory.mktemp("written") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    wanted = [
        [None if word.strip().lower() in MISSING_WORDS else word.strip() for word in row]
        for row in rows
    ]
    assert read_columns(path) == (
        dict(zip(["first", "second", "third"], map(list, zip(*wanted)))),
        0,
        separator == ";",
    )


@together(
    "content",
    [
        TEXT,
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.replace(",", ";"),
        TEXT.replace(",", "\t"),
        TEXT.replace("red", '"red"'),
        TEXT.replace(",", " , "),
        "\n" + TEXT + "\n\n",
        TEXT.replace("?", "nan").replace("\n,", "\nN/A,"),
        TEXT.rstrip("\n"),
    ],
)
def test_one_table_in_many_forms(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content.encode())
    table, notes = read_table(tmp_path / "t.csv", "y")
    assert (
        np.array_equal(table.X, [[1, 1], [np.nan, 0], [3, 1], [4, np.nan]], equal_nan=True)
        and notes == []
    )
    assert (
        table.categories == {1: ("blue", "red")}
        and table.feature_names == ("a", "b")
        and labels_of(table).tolist() == ["yes", "no", "yes", "no"]
    )


@together(
    "content, said",
    [
        (b"", "no rows"),
        (b"\n\n", "no rows"),
        (b"a,y\n", "no rows"),
        (b"\xff\xfe\x00a", "not UTF-8"),
        (b'a,y\n1,"x\n', "check its quotes"),
        (b"a,y\n1,x,2\n", "line 2 has 3 entries"),
        (b"a,a\n1,2\n", "2 columns are called 'a'"),
        (b"a,y\n1,\n2,\n", "'y' has no entry"),
    ],
)
def test_what_is_no_table(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(StorageError, match=f"cannot read .*t.csv: .*{said}"):
        read_table(tmp_path / "t.csv", "y")


def put(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@examples(100)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=6), st.integers(0, 6))
def test_decimal_commas_mean_what_points_mean(numbers, digits):
    points = [f"{number / 1000:.{digits}f}" for number in numbers]
    plain = [word.replace(".", ",") for word in points]
    divided = [
        f"{number / 1000:,.{digits}f}".translate(str.maketrans(",.", ".,")) for number in numbers
    ]
    for words in (plain, divided):
        assert decimal_points(words) == (points if digits else words)


def test_a_table_with_decimal_commas_is_the_same_table(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        [
            f"{1000 * x:.2f}",
            f"{z:.3e}",
            "NA" if k % 7 == 0 else str(k % 5),
            "pq"[k % 2],
            "nm"[k % 2],
        ]
        for k, (x, z) in enumerate(rng.standard_normal((40, 2)))
    ]
    for name, separator, comma in (("points.csv", ",", "."), ("commas.csv", ";", ",")):
        put(
            tmp_path / name,
            "\n".join(separator.join(row).replace(".", comma) for row in [list("abcdy"), *rows]),
        )
    (points, notes), (commas, said) = (
        read_table(tmp_path / name, "y") for name in ("points.csv", "commas.csv")
    )
    assert (
        np.array_equal(points.X, commas.X, equal_nan=True)
        and points.categories == commas.categories == {3: ("p", "q")}
        and notes == said == []
    )
    assert np.array_equal(
        read_features(tmp_path / "commas.csv", commas.feature_names, commas.categories),
        points.X,
        equal_nan=True,
    )


@together(
    "words, because",
    [
        (["5,1", "5.1", "6"] * 3, "'5,1'"),
        (["1.234,5", "1.234", "7"] * 3, "'1.234,5'"),
        (["1 234", "17", "9"] * 3, "'1 234'"),
    ],
)
def test_marks_that_may_mean_two_things_are_not_guessed(tmp_path, words, because):
    path = put(
        tmp_path / "t.csv",
        "\n".join(["a;y", *(f"{word};{'pq'[k % 2]}" for k, word in enumerate(words))]),
    )
    table, (note,) = read_table(path, "y")
    assert (
        table.categories == {0: tuple(sorted(set(words)))}
        and f"column 'a' is read as categories because of {because}; if that is a number" in note
    )


def test_commas_within_quotes_are_no_decimal_commas(tmp_path):
    path = put(tmp_path / "t.csv", 'a,y\n"1,5",p\n"2,5",q\n"1,5",p\n"2,5",q\n')
    assert read_table(path, "y")[0].categories == {0: ("1,5", "2,5")}


def test_a_quantity_with_decimal_commas_is_no_class(tmp_path):
    path = put(tmp_path / "t.csv", "a;y\n" + "".join(f"{k % 4};{k // 2},5\n" for k in range(60)))
    with pytest.raises(
        StorageError, match="holds 30 different numbers, which is a quantity and no class"
    ):
        read_table(path, "y")
    path = put(tmp_path / "t.csv", "a;y\n" + "".join(f"{k % 4};{k % 2},5\n" for k in range(8)))
    assert read_table(path, "y")[0].class_names == (
        "0,5",
        "1,5",
    )  # classes are called what the file calls them


@together(
    "values, looks",
    [
        (range(30), True),
        (range(7, 37), True),
        (range(0, 90, 3), True),
        (np.random.default_rng(0).permutation(30), True),
        (range(4), False),
        ([0, 1, 2, 2, 3, 4], False),
        ([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], False),
        ([5, 1, 9, 3, 20, 11], False),
    ],
)
def test_row_numbers_are_used_and_pointed_out(tmp_path, values, looks):
    path = put(
        tmp_path / "t.csv",
        "my id,y\n" + "".join(f"{value},{'pq'[k % 2]}\n" for k, value in enumerate(values)),
    )
    table, notes = read_table(path, "y")
    assert (
        table.feature_names == ("my id",)
        and [
            note.startswith("column 'my id' looks like row numbers")
            and note.endswith("--drop 'my id'")
            for note in notes
        ]
        == [True] * looks
    )


def test_a_compressed_table(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(packed := gzip.compress(TEXT.encode()))
    assert read_columns(tmp_path / "t.csv.gz") == read_columns(put(tmp_path / "t.csv", TEXT))
    for broken in (packed[:-9], packed[:20] + b"x" + packed[21:], packed[:-8] + bytes(8)):
        (tmp_path / "t.csv.gz").write_bytes(broken)
        with pytest.raises(StorageError, match="t.csv.gz: it is damaged .*; compress it again"):
            read_columns(tmp_path / "t.csv.gz")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04\xff\xfe\x00")
    with pytest.raises(StorageError, match="not UTF-8 text; unpack it if it is compressed"):
        read_columns(tmp_path / "t.xlsx")


def test_the_target_cannot_be_dropped(tmp_path):
    with pytest.raises(ValueError, match="column 'y' is the target and cannot be left out"):
        read_table(put(tmp_path / "t.csv", TEXT), "y", drop=["b", "y"])


def test_nothing_is_left_and_why(tmp_path):
    path = put(tmp_path / "t.csv", "a;y\n" + "".join(f"{k}/{k};{'pq'[k % 2]}\n" for k in range(30)))
    with pytest.raises(
        StorageError,
        match=(
            "no column is left to learn from; column 'a' is left out: 30 different words in 30 rows"
        ),
    ):
        read_table(path, "y")


def test_parquet_gives_what_csv_gives(tmp_path, monkeypatch):
    frame = pd.DataFrame(
        {
            "whole": [1, 2, 3, 4],
            "gap": [1.0, None, 3.0, 0.1],
            "word": ["x", None, "y", "x"],
            "kind": pd.Categorical(["p", "q", "p", "q"]),
            "true": [True, False, True, True],
            "large": [1e300, -1e-300, 1 / 3, 0.0],
            "y": [2, 10, 10, 2],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    (plain, notes), (typed, said) = (
        read_table(tmp_path / f"t.{kind}", "y") for kind in ("csv", "parquet")
    )
    assert (
        np.array_equal(plain.X, typed.X, equal_nan=True)
        and plain.categories == typed.categories
        and notes == said
    )
    assert labels_of(typed).tolist() == [2, 10, 10, 2] == labels_of(
        plain
    ).tolist() and typed.class_names == ("2", "10")
    assert np.array_equal(
        read_features(tmp_path / "t.parquet", typed.feature_names, typed.categories),
        typed.X,
        equal_nan=True,
    )


def mixed(n=120, seed=0):
    "Coded features with gaps, two columns of categories, and three classes."
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = np.column_stack(
        [
            y + rng.standard_normal(n),
            (y + (rng.random(n) < 0.3)) % 3,
            100 * rng.standard_normal(n),
            rng.integers(0, 4, n),
        ]
    )
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, np.array(["low", "mid", "high"])[y], {1: ("p", "q", "r"), 3: tuple("abcd")}


def test_encoding_is_that_of_scikit_learn():
    X, y, categories = mixed()
    model = TableClassifier(tuple("wxyz"), categories).fit(X[:80], y[:80])
    onehot = OneHotEncoder(categories=[np.arange(3.0), np.arange(4.0)], sparse_output=False)
    reference = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), [0, 2]),
            ("c", make_pipeline(SimpleImputer(strategy="most_frequent"), onehot), [1, 3]),
        ]
    ).fit(X[:80])
    assert np.array_equal(model.encode(X), reference.transform(X))
    other = LogisticRegression().fit(reference.transform(X[:80]), y[:80])
    same = TableClassifier(tuple("wxyz"), categories, classifier=LogisticRegression()).fit(
        X[:80], y[:80]
    )
    assert np.array_equal(same.predict_proba(X), other.predict_proba(reference.transform(X)))


@pytest.mark.parametrize("columns", [(0, 2), (1, 3)])
def test_only_numbers_and_only_categories(tmp_path, columns):
    X, y, categories = mixed()
    X, categories = (
        X[:, columns],
        {k: categories[j] for k, j in enumerate(columns) if j in categories},
    )
    y = np.where(y == "low", 7, 12)
    model = TableClassifier(("a", "b"), categories, classifier=CapsuleClassifier.paper(1)).fit(X, y)
    model.save(tmp_path / "m.npz")
    again = TableClassifier.load(tmp_path / "m.npz")
    assert (
        np.array_equal(again.predict_proba(X), model.predict_proba(X))
        and again.classes_.tolist() == [7, 12]
        and again.predict(X).dtype == y.dtype
    )
    assert again.score(X, y) == model.score(X, y) > 0.6


def test_a_file_that_was_changed_is_refused(tmp_path):
    X, y, categories = mixed()
    TableClassifier(tuple("wxyz"), categories).fit(X, y).save(tmp_path / "m.npz")
    arrays, meta = load_arrays(tmp_path / "m.npz")
    assert not any(array.dtype.hasobject for array in arrays.values())
    for change in (
        {"attributes": {"fit": "x"}},
        {"attributes": {"classifier_": {"estimator": ["TableClassifier", 1, {}]}}},
        {"schema": "capslit.GaussianMixture/1"},
    ):
        save_arrays(tmp_path / "c.npz", arrays, meta | change)
        with pytest.raises(StorageError, match="c.npz"):
            TableClassifier.load(tmp_path / "c.npz")


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    X, y, categories = mixed()
    model = TableClassifier(tuple("wxyz"), categories).fit(X, y)
    before = model.predict_proba(X)
    for bad in (X + 0.5, np.where(np.isnan(X), np.inf, X), X[:5], X[:, :2]):
        with pytest.raises(ValueError, match="X|column 'w'"):
            model.fit(bad, y)
    assert (
        np.array_equal(model.predict_proba(X), before)
        and clone(model).fit(X, y).classes_.tolist() == model.classes_.tolist()
    )


def test_comparison_is_on_rows_not_learned_from():
    X, _, categories = mixed()
    y = np.random.default_rng(1).permutation(np.arange(len(X)) % 2)  # nothing to be learned
    results = compare(TableClassifier(tuple("wxyz"), categories), X, y)
    assert results["capsule regression"].error > 0.35 and results[
        "most frequent class"
    ].log_loss == pytest.approx(np.log(2), rel=1e-6)
    model = TableClassifier(tuple("wxyz"), categories)
    rare = np.where(np.arange(len(X)) < 2, 2, y)  # a class of two is in every training part
    assert cross_validated(model, X, rare).probabilities.shape == (len(X), 3)


@pytest.mark.filterwarnings("ignore")
def test_conventions_of_scikit_learn():
    model = TableClassifier(classifier=CapsuleClassifier.paper(2, thresholds=(0,), patience=(4,)))
    results = check_estimator(model, on_fail=None, on_skip=None)
    assert (
        len(results) > 50
        and [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
    )


def frame_of(X, categories, names="wxyz"):
    "The frame whose codes are X."
    return pd.DataFrame(
        {
            names[k]: (
                [None if np.isnan(code) else categories[k][int(code)] for code in column]
                if k in categories
                else column
            )
            for k, column in enumerate(X.T)
        }
    )


@together("kind", [object, "string", "category"])
def test_a_frame_is_the_table_that_it_shows(tmp_path, kind):
    X, y, categories = mixed()
    frame = frame_of(X, categories).astype(dict.fromkeys("xz", kind))
    coded, model = (
        TableClassifier(tuple("wxyz"), categories).fit(X, y),
        TableClassifier().fit(frame, y),
    )
    assert (
        model.categories_ == categories
        and model.columns_ == tuple("wxyz") == tuple(model.feature_names_in_)
        and model.n_features_in_ == 4
    )
    expected = coded.predict_proba(X)
    model.save(tmp_path / "m.npz")
    for found in (
        model,
        TableClassifier.load(tmp_path / "m.npz"),
        coded,
    ):  # codes that have names take frames, too
        assert np.array_equal(found.predict_proba(frame), expected)
        assert np.array_equal(found.predict_proba(frame[list("zyxw")].assign(more="?")), expected)
    compared = compare(TableClassifier(), frame, y), compare(coded, X, y)
    assert all(
        np.array_equal(a.probabilities, b.probabilities)
        for a, b in zip(*(each.values() for each in compared))
    )


def test_what_the_columns_of_a_frame_are():
    n = 60
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "number": rng.standard_normal(n),
            "flag": y == 1,
            "Flag": pd.array([None, *(y[1:] == 1)], dtype="boolean"),
            "Int": pd.array([None, *y[1:]], dtype="Int64"),
            "objects": np.array([None, 1, 2.5] * 20, dtype=object),
            "code": pd.Categorical([3, 10, None] * 20),
            "range": pd.cut(rng.random(n), [0, 0.5, 1]),
            "mixed": ["a", 1, 2.0] * 20,
            "gaps": [None] * n,
            "sparse": pd.arrays.SparseArray(y.astype(float)),
        }
    )
    model = TableClassifier().fit(frame, y)
    assert model.categories_ == {
        1: ("False", "True"),
        2: ("False", "True"),
        5: ("10", "3"),
        6: ("(0.0, 0.5]", "(0.5, 1.0]"),
        7: ("1", "2", "a"),
    }
    assert (
        np.array_equal(
            model.predict_proba(frame),
            model.predict_proba(frame.assign(code=frame["code"].astype(float))),
        )
        and model.score(frame, y) == 1
    )
    numbered = frame[["number", "Int"]].set_axis([7, 8], axis=1)  # names need not be text
    assert TableClassifier().fit(numbered, y).columns_ == ("7", "8")
    with pytest.warns(UserWarning, match="column 'who' holds 60 different words in 60 rows"):
        TableClassifier().fit(frame.assign(who=[f"Ms {k}" for k in range(n)]), y)


@together(
    "change, said",
    [
        (
            {"t": pd.Timestamp("2020-01-01")},
            "column 't' holds dates or times; make numbers or words of them",
        ),
        ({"t": pd.Timestamp("2020-01-01", tz="UTC")}, "column 't' holds dates"),
        ({"t": pd.Timedelta(days=1)}, "column 't' holds dates"),
        ({"t": pd.Period("2020-01", "M")}, "column 't' holds dates"),
        ({"t": [[1]] * 120}, "column 't' holds a list"),
        (
            {"t": [{"a": 1}] * 120},
            (
                "column 't' holds a dict, where a number or a word belongs; make a column of each"
                " of its parts"
            ),
        ),
        ({"t": 1j}, "column 't' holds a complex"),
        ({"y": 1e200}, r"column 'y' has 1e\+200 as its largest magnitude"),
        ({"y": 1e-200}, "column 'y' has 1e-200"),
        ({"y": -np.inf}, "column 'y' contains infinity"),
        ({"y": 10**400}, "column 'y' contains infinity"),
    ],
)
def test_columns_that_nothing_can_be_learned_from(change, said):
    X, y, categories = mixed()
    frame = frame_of(X, categories)
    model = TableClassifier().fit(frame, y)
    before = model.predict_proba(frame)
    with pytest.raises(ValueError, match=said):
        model.fit(frame.assign(**change), y)
    assert np.array_equal(model.predict_proba(frame), before)
    if "t" not in change and "1e-200" not in said:
        with pytest.raises(ValueError, match=said):
            model.predict(frame.assign(**change))


def test_new_frames():
    X, y, categories = mixed()
    frame = frame_of(X, categories)
    model = TableClassifier().fit(frame, y)
    with pytest.raises(
        ValueError, match="X has no column 'x', 'z', which the model needs; add what is missing"
    ):
        model.predict(frame[["w", "y"]])
    with pytest.raises(
        ValueError, match="column 'w' must hold numbers, as it did in fit, but holds 'old'"
    ):
        model.predict(frame.assign(w="old"))
    with pytest.raises(ValueError, match="2 columns of X are called 'w'"):
        model.predict(pd.concat([frame, frame[["w"]]], axis=1))
    known = frame.assign(x=[None if k < 5 else word for k, word in enumerate(frame["x"])])
    with pytest.warns(
        UserWarning,
        match=(
            "column 'x' holds 5 entries that the model has not seen, 'new': counted as missing; it"
            " knows 'p', 'q', 'r'"
        ),
    ):
        found = model.predict_proba(
            frame.assign(x=["new" if k < 5 else word for k, word in enumerate(frame["x"])])
        )
    with warnings.catch_warnings(action="error"):
        assert np.array_equal(found, model.predict_proba(known))


def test_a_frame_of_codes_with_given_categories():
    X, y, categories = mixed()
    coded, frame = (
        TableClassifier(tuple("wxyz"), categories).fit(X, y),
        pd.DataFrame(X, columns=list("wxyz")),
    )
    model = TableClassifier(categories=categories).fit(frame, y)
    assert model.columns_ == tuple("wxyz") and np.array_equal(
        model.predict_proba(frame[list("zxyw")]), coded.predict_proba(X)
    )


class ArrowColumn(list):
    "A column of Arrow: its array takes a gap among categories for one of them."

    def __array__(self, dtype=None, copy=None):
        return np.array(["p" if entry is None else entry for entry in self], dtype=dtype)

    def to_pylist(self):
        return list(self)


class Frame(dict):
    "A frame that is none of pandas."

    columns = property(list)


def test_frames_of_other_libraries():
    X, y, categories = mixed()
    frame = frame_of(X, categories)
    expected = TableClassifier().fit(frame, y).predict_proba(frame)
    words = {
        name: [None if word is None or word != word else word for word in frame[name]]
        for name in "xz"
    }
    for kind in (ArrowColumn, lambda entries: np.array(entries, dtype=object)):
        other = Frame(
            {name: kind(words[name]) if name in words else frame[name].to_numpy() for name in frame}
        )
        assert np.array_equal(TableClassifier().fit(other, y).predict_proba(other), expected)
    for library, make in (("polars", "DataFrame"), ("pyarrow", "table")):
        try:
            other = getattr(__import__(library), make)(
                {name: words.get(name, frame[name].to_numpy()) for name in frame}
            )
        except ImportError:
            continue
        assert np.array_equal(TableClassifier().fit(other, y).predict_proba(other), expected)
    with pytest.raises(ValueError, match="column 'place' holds several values in each row"):
        TableClassifier().fit(Frame({"w": X[:, 0], "place": X[:, :2]}), y)


def test_arrays_of_text_and_enormous_numbers_without_names():
    with pytest.raises(
        ValueError,
        match=(
            r"X is an array that holds text \(could not convert string to float: 'v'\); pass a"
            r" frame"
        ),
    ):
        TableClassifier().fit(np.array([["v", 1], ["w", 2]], dtype=object), [0, 1])
    with pytest.raises(
        ValueError, match=r"column 1 \(from 0\) of X has 5e\+200 as its largest magnitude"
    ):
        TableClassifier().fit([[k, k * 1e200] for k in range(6)], [0, 1] * 3)
    with pytest.raises(ValueError, match="feature_names holds 1 names, but X has 2 columns"):
        TableClassifier(("a",)).fit(np.eye(4)[:, :2], [0, 1, 0, 1])
