"""Tables in files and the estimator that learns from them: whatever can be written can be read, and nothing depends on what happens to be installed."""
import csv
import io

import numpy as np
import pandas as pd
import pytest
from conftest import together
from hypothesis import given, settings
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
from capslit.data.table_files import MISSING_WORDS, labels_of, read_columns, read_features
from capslit.storage import StorageError, load_arrays, save_arrays

TEXT = "a,b,y\n1,red,yes\n,blue,no\n3,red,yes\n4,?,no\n"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text("ab1 .,;\t\"'\n[]é?", max_size=5), min_size=3, max_size=3), min_size=1, max_size=5), st.sampled_from(",;\t"))
def test_whatever_is_written_is_read(tmp_path_factory, rows, separator):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([["first", "second", "third"], *rows])
    path = tmp_path_factory.mktemp("written") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    wanted = [[None if word.strip().lower() in MISSING_WORDS else word.strip() for word in row] for row in rows]
    assert read_columns(path) == (dict(zip(["first", "second", "third"], map(list, zip(*wanted)))), 0)


@together("content", [TEXT, "\ufeff" + TEXT, TEXT.replace("\n", "\r\n"), TEXT.replace(",", ";"), TEXT.replace(",", "\t"), TEXT.replace("red", '"red"'),
                      TEXT.replace(",", " , "), "\n" + TEXT + "\n\n", TEXT.replace("?", "nan").replace("\n,", "\nN/A,"), TEXT.rstrip("\n")])
def test_one_table_in_many_forms(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content.encode())
    table, notes = read_table(tmp_path / "t.csv", "y")
    assert np.array_equal(table.X, [[1, 1], [np.nan, 0], [3, 1], [4, np.nan]], equal_nan=True) and notes == []
    assert table.categories == {1: ("blue", "red")} and table.feature_names == ("a", "b") and labels_of(table).tolist() == ["yes", "no", "yes", "no"]


@together("content, said", [(b"", "no rows"), (b"\n\n", "no rows"), (b"a,y\n", "no rows"), (b"\xff\xfe\x00a", "not UTF-8"), (b'a,y\n1,"x\n', "check its quotes"),
                            (b"a,y\n1,x,2\n", "line 2 has 3 entries"), (b"a,a\n1,2\n", "2 columns are called 'a'"), (b"a,y\n1,\n2,\n", "'y' has no entry")])
def test_what_is_no_table(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(StorageError, match=f"cannot read .*t.csv: .*{said}"):
        read_table(tmp_path / "t.csv", "y")


def test_parquet_gives_what_csv_gives(tmp_path, monkeypatch):
    frame = pd.DataFrame({"whole": [1, 2, 3, 4], "gap": [1.0, None, 3.0, 0.1], "word": ["x", None, "y", "x"], "kind": pd.Categorical(["p", "q", "p", "q"]),
                          "true": [True, False, True, True], "large": [1e300, -1e-300, 1 / 3, 0.0], "y": [2, 10, 10, 2]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    (plain, notes), (typed, said) = (read_table(tmp_path / f"t.{kind}", "y") for kind in ("csv", "parquet"))
    assert np.array_equal(plain.X, typed.X, equal_nan=True) and plain.categories == typed.categories and notes == said
    assert labels_of(typed).tolist() == [2, 10, 10, 2] == labels_of(plain).tolist() and typed.class_names == ("2", "10")
    assert np.array_equal(read_features(tmp_path / "t.parquet", typed.feature_names, typed.categories), typed.X, equal_nan=True)


def mixed(n=120, seed=0):
    "Coded features with gaps, two columns of categories, and three classes."
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = np.column_stack([y + rng.standard_normal(n), (y + (rng.random(n) < 0.3)) % 3, 100 * rng.standard_normal(n), rng.integers(0, 4, n)])
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, np.array(["low", "mid", "high"])[y], {1: ("p", "q", "r"), 3: tuple("abcd")}


def test_encoding_is_that_of_scikit_learn():
    X, y, categories = mixed()
    model = TableClassifier(tuple("wxyz"), categories).fit(X[:80], y[:80])
    onehot = OneHotEncoder(categories=[np.arange(3.0), np.arange(4.0)], sparse_output=False)
    reference = ColumnTransformer([("n", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), [0, 2]),
                                   ("c", make_pipeline(SimpleImputer(strategy="most_frequent"), onehot), [1, 3])]).fit(X[:80])
    assert np.array_equal(model.encode(X), reference.transform(X))
    other = LogisticRegression().fit(reference.transform(X[:80]), y[:80])
    same = TableClassifier(tuple("wxyz"), categories, classifier=LogisticRegression()).fit(X[:80], y[:80])
    assert np.array_equal(same.predict_proba(X), other.predict_proba(reference.transform(X)))


@pytest.mark.parametrize("columns", [(0, 2), (1, 3)])
def test_only_numbers_and_only_categories(tmp_path, columns):
    X, y, categories = mixed()
    X, categories = X[:, columns], {k: categories[j] for k, j in enumerate(columns) if j in categories}
    y = np.where(y == "low", 7, 12)
    model = TableClassifier(("a", "b"), categories, classifier=CapsuleClassifier.paper(1)).fit(X, y)
    model.save(tmp_path / "m.npz")
    again = TableClassifier.load(tmp_path / "m.npz")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X)) and again.classes_.tolist() == [7, 12] and again.predict(X).dtype == y.dtype
    assert again.score(X, y) == model.score(X, y) > 0.6


def test_a_file_that_was_changed_is_refused(tmp_path):
    X, y, categories = mixed()
    TableClassifier(tuple("wxyz"), categories).fit(X, y).save(tmp_path / "m.npz")
    arrays, meta = load_arrays(tmp_path / "m.npz")
    assert not any(array.dtype.hasobject for array in arrays.values())
    for change in ({"attributes": {"fit": "x"}}, {"attributes": {"classifier_": {"estimator": ["TableClassifier", 1, {}]}}}, {"schema": "capslit.GaussianMixture/1"}):
        save_arrays(tmp_path / "c.npz", arrays, meta | change)
        with pytest.raises(StorageError, match="c.npz"):
            TableClassifier.load(tmp_path / "c.npz")


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    X, y, categories = mixed()
    model = TableClassifier(tuple("wxyz"), categories).fit(X, y)
    before = model.predict_proba(X)
    for bad in (X + 0.5, np.where(np.isnan(X), np.inf, X), X[:5], X[:, :2]):
        with pytest.raises(ValueError, match="X"):
            model.fit(bad, y)
    assert np.array_equal(model.predict_proba(X), before) and clone(model).fit(X, y).classes_.tolist() == model.classes_.tolist()


def test_comparison_is_on_rows_not_learned_from():
    X, _, categories = mixed()
    y = np.random.default_rng(1).permutation(np.arange(len(X)) % 2)                     # nothing to be learned
    results = compare(TableClassifier(tuple("wxyz"), categories), X, y)
    assert results["capsule regression"].error > 0.35 and results["most frequent class"].log_loss == pytest.approx(np.log(2), rel=1e-6)
    model = TableClassifier(tuple("wxyz"), categories)
    rare = np.where(np.arange(len(X)) < 2, 2, y)                                        # a class of two is in every training part
    assert cross_validated(model, X, rare).probabilities.shape == (len(X), 3)


@pytest.mark.filterwarnings("ignore")
def test_conventions_of_scikit_learn():
    model = TableClassifier(classifier=CapsuleClassifier.paper(2, thresholds=(0,), patience=(4,)))
    results = check_estimator(model, on_fail=None, on_skip=None)
    assert len(results) > 50 and [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
