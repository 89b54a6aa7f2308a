"""Parquet files and Arrow tables: names, categories, what is missing, and words for what cannot be
used. `test_places` holds what is the same wherever the data live.
"""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from conftest import NO_WARNINGS, PATIENCE, together
from sklearn.preprocessing import OneHotEncoder
from test_places import inputs, quick

from capslit import GaussianMixture, TableClassifier
from capslit.data import arrow_source, as_source
from capslit.em.statistics import BatchError

pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS, "ignore:X does not have valid feature names")


@pytest.fixture(scope="module")
def pa():
    pa = pytest.importorskip("pyarrow", reason="pip install capslit[parquet]")
    pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("pyarrow.dataset")
    return pa


rng = np.random.default_rng(0)
N = 900
Y = np.array(["ant", "bee", "cat"])[rng.integers(0, 3, N)]
HEIGHT = (rng.standard_normal(N) + (Y == "bee")).astype(np.float32)
WIDTH = (rng.standard_normal(N) - 2 * (Y == "cat")).astype(np.float32)
KIND = np.array(["flat", "round", "square"])[rng.integers(0, 3, N)]
WEIGHT = rng.random(N)
INDICATORS = OneHotEncoder(sparse_output=False).fit_transform(KIND[:, None])
X = np.column_stack([HEIGHT, WIDTH, INDICATORS]).astype(np.float32)
GIVEN = {"target": "label", "weight": "importance"}


def table(pa, rows=slice(None)):
    columns = {"label": Y, "height": HEIGHT, "importance": WEIGHT, "width": WIDTH, "kind": KIND}
    return pa.table({name: column[rows] for name, column in columns.items()})


def one_file(pa, folder):
    pa.parquet.write_table(table(pa), folder / "all.parquet", row_group_size=170)
    return folder / "all.parquet"


def with_dictionary(pa):
    "Dictionaries that differ from batch to batch, and hold a value that does not occur."
    parts = []
    for rows, names in (
        (slice(400), ["square", "flat", "round"]),
        (slice(400, None), ["round", "none", "flat", "square"]),
    ):
        codes = pa.array([names.index(kind) for kind in KIND[rows]], pa.int32())
        parts.append(pa.DictionaryArray.from_arrays(codes, names))
    return table(pa).drop_columns("kind").append_column("kind", pa.chunked_array(parts))


def test_categories_are_indicators_in_the_order_of_their_names(pa):
    known = quick().fit(X, Y, WEIGHT)
    source = arrow_source(with_dictionary(pa), **GIVEN, batch_rows=64)
    assert (source.n_samples, source.n_features, source.dtype) == (N, 5, np.float32)
    model = quick().fit(source)
    names = ["height", "width", "kind=flat", "kind=round", "kind=square"]
    assert model.feature_names_in_.tolist() == names
    assert np.array_equal(model.coef_, known.coef_)
    assert np.array_equal(model.predict_proba(source), known.predict_proba(X))


def test_estimators_open_a_path_or_table_by_themselves(pa, tmp_path):
    known = quick().fit(X, Y, WEIGHT, X_val=X[:90], y_val=Y[:90])
    features = table(pa).select(["height", "width", "kind"])
    path = tmp_path / "features.PARQUET"  # in any spelling
    pa.parquet.write_table(features, path)
    for given in (path, str(path), features):
        held = {"X_val": features.slice(0, 90), "y_val": Y[:90]}
        assert np.array_equal(quick().fit(given, Y, WEIGHT, **held).coef_, known.coef_)
    mixture = GaussianMixture(2, random_state=0).fit(features.select(["height", "width"]))
    assert np.array_equal(mixture.means_, GaussianMixture(2, random_state=0).fit(X[:, :2]).means_)
    assert mixture.feature_names_in_.tolist() == ["height", "width"]


def test_every_thread_and_process_reads_the_same_rows(pa, tmp_path):
    path = one_file(pa, tmp_path)
    for given in (path, pa.parquet.ParquetFile(path)):
        source = arrow_source(given, **GIVEN, batch_rows=40)
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: source.collect(inputs), range(8)):
                assert np.array_equal(found, X)
    source = pickle.loads(pickle.dumps(arrow_source(path, **GIVEN)))
    assert np.array_equal(source.collect(inputs), X)


def test_names_of_folders_are_columns(pa, tmp_path):
    for year, rows in ((2023, slice(500)), (2024, slice(500, N))):
        (tmp_path / f"year={year}").mkdir()
        pa.parquet.write_table(table(pa, rows), tmp_path / f"year={year}" / "part.parquet")
    source = arrow_source(tmp_path, columns=["year", "height"], categories={"year": [2024, 2023]})
    assert source.frame.column_names == ["year=2024", "year=2023", "height"]
    assert source.dtype == np.float32
    assert source.collect(inputs)[:, 0].sum() == N - 500


@together("kind, want", [("bool_", "f4"), ("int64", "f8"), ("float64", "f8"), ("float32", "f4")])
def test_columns_of_several_types(kind, want, pa):
    numbers = pa.array([1, 0, 1]).cast(getattr(pa, kind)())
    alone = arrow_source(pa.table({"a": numbers})).dtype
    assert alone == ("f8" if kind == "bool_" else want)
    source = arrow_source(pa.table({"a": numbers, "single": pa.array([0.5] * 3, pa.float32())}))
    assert source.dtype == want and source.collect(inputs)[:, 0].tolist() == [1, 0, 1]


def test_what_is_missing_is_filled_or_named(pa):
    town = pa.array(["x", None, "y"])
    given = pa.table({"age": [1, None, 3], "town": town, "size": [0.5, float("nan"), 1.5]})
    fill = {"age": 7, "size": 2.5, "town": "z"}
    source = arrow_source(given, fill=fill)
    assert source.categories == {"town": ("x", "y", "z")}
    rows = [[1, 1, 0, 0, 0.5], [7, 0, 0, 1, 2.5], [3, 0, 1, 0, 1.5]]
    assert source.collect(inputs).tolist() == rows
    said = "batch 0: the column 'size' is null or NaN in 1 of the rows; pass fill={'size'"
    with pytest.raises(BatchError, match=said):
        list(arrow_source(given, fill={"age": 7, "town": "z"}))
    with pytest.raises(ValueError, match="X: the column 'town' is null or NaN in 1 of the rows"):
        arrow_source(given, fill={"age": 1, "size": 2})
    for role, said in (("target", "labels are needed"), ("weight", "the column 'age' is null")):
        with pytest.raises(BatchError, match=said):
            arrow_source(given, columns=["size"], fill={"size": 0}, **{role: "age"}).inspect()


@together(
    "said, options",
    [
        ("columns holds 'height', which", {"columns": ["height", "height"]}),
        ("columns is empty", {"columns": []}),
        ("columns must be a list", {"columns": "height"}),
        (r"categories: \[3\] cannot stand in the column 'kind'", {"categories": {"kind": [3]}}),
        (r"fill\['height'\] must be a number", {"fill": {"height": "tall"}}),
        ("batch_rows must be a whole number of at least 1", {"batch_rows": 0}),
    ],
)
def test_wrong_arguments_are_named(said, options, pa):
    with pytest.raises((TypeError, ValueError), match=said):
        list(arrow_source(table(pa), **options))


def test_other_tables_are_refused(pa, tmp_path):
    when = pa.table({"when": pa.array([1], pa.timestamp("s")), "a": [1.0]})
    one_shot = pa.RecordBatchReader.from_batches(when.schema, when.to_batches())
    (tmp_path / "no.parquet").write_bytes(b"no such thing")
    model = quick().fit(arrow_source(table(pa), **GIVEN))
    turned = table(pa).select(["width", "height", "kind"])
    renamed = turned.rename_columns(["width", "depth", "kind"])
    for said, use in {
        "the column 'when' holds timestamp.*neither": lambda: arrow_source(when),
        "'a' is the name of 2 columns": lambda: arrow_source(pa.table([[1.0], [2.0]], ["a", "a"])),
        "only 2 of 3 features have distinct names": lambda: arrow_source(
            pa.table({"a": ["b", "c"], "a=b": [1.0, 2.0]})
        ),
        "one-shot iterator": lambda: as_source(one_shot, labelled=False),
        "y is None, but labels are needed": lambda: quick().fit(arrow_source(table(pa))),
        "X.*Parquet": lambda: arrow_source(tmp_path / "no.parquet"),
        "(?s)feature names.*same order": lambda: model.predict(turned),
        "(?s)feature names.*depth": lambda: model.predict(renamed),
        "feature names": lambda: model.predict(renamed.select(["width", "kind"])),
    }.items():
        with pytest.raises((TypeError, ValueError), match=said):
            use()
    with pytest.raises(FileNotFoundError, match="gone.parquet"):
        arrow_source(tmp_path / "gone.parquet")


def test_a_file_that_is_damaged_between_passes(pa, tmp_path):
    path = one_file(pa, tmp_path)
    source = arrow_source(path, **GIVEN, batch_rows=100)
    assert len(list(source)) >= 9
    content = bytearray(path.read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
    path.write_bytes(content)
    with pytest.raises(BatchError):
        list(source)


def test_memory_is_that_of_a_row_group(pa, tmp_path):
    code = """
import sys, numpy as np, pyarrow as pa, pyarrow.parquet
from capslit.data import arrow_source
numbers = {f"c{k}": np.random.default_rng(k).random(200_000) for k in range(20)}
pa.parquet.write_table(pa.table(numbers), sys.argv[1], row_group_size=10_000, use_dictionary=False)
size, numbers = 20 * 10_000 * 8, None
held = pa.total_allocated_bytes()
print(max(pa.total_allocated_bytes() - held for _ in arrow_source(sys.argv[1])) / size)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "x.parquet")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert float(found.stdout) < 2.5, found.stdout  # row groups, of which the file has 20


def test_pyarrow_is_asked_for_when_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: arrow_source("x.parquet"), lambda: GaussianMixture().fit("x.parquet")):
        with pytest.raises(ImportError, match="pip install 'capslit\\[parquet\\]'"):
            use()


@together("index_name", [None, "row"])
def test_the_index_of_pandas_is_no_feature(pa, tmp_path, index_name):
    "A table sorted by class and then shuffled by pandas, whose index still reveals the classes."
    frame = pd.DataFrame({"noise": rng.standard_normal(300), "label": np.repeat(["a", "b"], 150)})
    frame.index.name = index_name
    frame = frame.sample(frac=1, random_state=0)
    one, folder = tmp_path / "one.parquet", tmp_path / "many"
    folder.mkdir()
    frame.to_parquet(one)
    for number in range(3):
        frame[100 * number : 100 * (number + 1)].to_parquet(folder / f"{number}.parquet")
    whole = pa.Table.from_pandas(frame)
    noise = pa.dataset.dataset(one).filter(pa.compute.field("noise") > 0)
    files = [one, folder / "0.parquet"]
    parts = (one, folder, files, pa.parquet.ParquetFile(one), noise, whole, whole.to_batches()[0])
    for given in parts:
        assert arrow_source(given, target="label").columns == ("noise",)
    stored = index_name or "__index_level_0__"
    assert arrow_source(one, target="label", columns=["noise", stored]).n_features == 2
    bare = whole.replace_schema_metadata(None)
    assert ("row" in bare.column_names) == (len(arrow_source(bare, "label").columns) == 2)
    if index_name is None:
        model = TableClassifier().fit(whole.drop_columns("label"), frame["label"].to_numpy())
        assert [column.name for column in model.columns_] == ["noise"]


def test_a_checkpoint_is_not_written_over_the_data(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, np.column_stack([HEIGHT, WIDTH]).astype(np.float64))
    before, mapped = path.read_bytes(), np.load(path, mmap_mode="r")
    model = GaussianMixture(2, random_state=0)
    with pytest.raises(OSError, match="X.npy"):
        model.fit(mapped, checkpoint=path)
    model.fit(mapped)
    with pytest.raises(OSError, match="a file that capslit has not written"):
        model.save(path)
    assert path.read_bytes() == before
