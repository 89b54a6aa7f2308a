"""Parquet files and Arrow tables: the bits of the same numbers in memory, names, categories, and
words for what cannot be used.
"""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from conftest import PATIENCE, together
from sklearn.preprocessing import OneHotEncoder

from capslit import CapsuleClassifier, GaussianMixture, em
from capslit.data import arrow_source, as_source
from capslit.em.statistics import BatchError

pytestmark = pytest.mark.filterwarnings("error", "ignore:X does not have valid feature names")


@pytest.fixture(scope="module")
def pa():
    pa = pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed; pip install capslit[parquet]"
    )
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
X = np.column_stack(
    [HEIGHT, WIDTH, OneHotEncoder(sparse_output=False).fit_transform(KIND[:, None])]
).astype(np.float32)
FEATURES = ["height", "width", "kind=flat", "kind=round", "kind=square"]
GIVEN = {"target": "label", "weight": "importance"}
QUICK = {"thresholds": (0.5, 0.0), "patience": (4, 4), "n_jobs": 1}


def table(pa, rows=slice(None), **more):
    columns = {
        "label": Y[rows],
        "height": HEIGHT[rows],
        "importance": WEIGHT[rows],
        "width": WIDTH[rows],
        "kind": KIND[rows],
    }
    return pa.table(columns | more)


def one_file(pa, folder):
    pa.parquet.write_table(table(pa), folder / "all.parquet", row_group_size=170)
    return folder / "all.parquet"


def many_files(pa, folder):
    for number, rows in enumerate(np.array_split(np.arange(N), 7)):
        pa.parquet.write_table(table(pa, rows), folder / f"{number:02}.parquet", row_group_size=50)
    return folder


def with_dictionary(pa, folder):
    "Dictionaries that differ from batch to batch, and hold a value that does not occur."
    whole = table(pa)
    encoded = pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                pa.array([names.index(k) for k in KIND[rows]], pa.int32()), names
            )
            for rows, names in (
                (slice(400), ["square", "flat", "round"]),
                (slice(400, None), ["round", "none", "flat", "square"]),
            )
        ]
    )
    return whole.set_column(whole.column_names.index("kind"), "kind", encoded)


PLACES = {
    "path": one_file,
    "ParquetFile": lambda pa, folder: pa.parquet.ParquetFile(one_file(pa, folder)),
    "folder": many_files,
    "list of paths": lambda pa, folder: sorted(many_files(pa, folder).iterdir()),
    "dataset": lambda pa, folder: pa.dataset.dataset(many_files(pa, folder)),
    "table": lambda pa, folder: table(pa),
    "dictionary": with_dictionary,
    "record batch": lambda pa, folder: table(pa).combine_chunks().to_batches()[0],
}


def same(a, b):
    return np.array_equal(a.coef_, b.coef_) and all(
        np.array_equal(a.history_[name], b.history_[name], equal_nan=True) for name in a.history_
    )


@pytest.fixture(scope="module")
def known():
    return CapsuleClassifier.paper(2, **QUICK).fit(X, Y, WEIGHT, X_val=X[:90], y_val=Y[:90])


class Moments(NamedTuple):
    gram: np.ndarray


def moments(block):
    return Moments(block[0].T @ block[0])


@together("place", PLACES)
def test_the_same_bits_as_in_memory(place, pa, known, tmp_path):
    source = arrow_source(PLACES[place](pa, tmp_path), **GIVEN, batch_rows=64)
    assert (source.n_samples, source.n_features, source.dtype) == (N, 5, np.float32) and sum(
        1 for _ in source
    ) > 10
    model = CapsuleClassifier.paper(2, **QUICK).fit(source, X_val=X[:90], y_val=Y[:90])
    assert (
        same(known, model)
        and model.classes_.tolist() == ["ant", "bee", "cat"]
        and model.feature_names_in_.tolist() == FEATURES
    )
    assert np.array_equal(model.predict_proba(source), known.predict_proba(X))


def test_estimators_open_a_path_or_table_by_themselves(pa, known, tmp_path):
    features = table(pa).select(["height", "width", "kind"])
    pa.parquet.write_table(features, tmp_path / "features.parquet")
    for inputs in (tmp_path / "features.parquet", str(tmp_path / "features.parquet"), features):
        assert same(
            known,
            CapsuleClassifier.paper(2, **QUICK).fit(
                inputs, Y, WEIGHT, X_val=features.slice(0, 90), y_val=Y[:90]
            ),
        )
    mixture = GaussianMixture(2, random_state=0).fit(features.select(["height", "width"]))
    assert np.array_equal(mixture.means_, GaussianMixture(2, random_state=0).fit(X[:, :2]).means_)
    assert mixture.feature_names_in_.tolist() == ["height", "width"]


def test_every_pass_and_every_thread_reads_the_same_rows(pa, tmp_path):
    for place in ("folder", "ParquetFile"):
        source = arrow_source(PLACES[place](pa, tmp_path), **GIVEN, batch_rows=40)

        def everything(_):
            return source.collect(lambda batch: np.column_stack([batch[0], batch[2]]))

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(everything, range(12)))
        want = np.column_stack([X, WEIGHT.astype(np.float32)])
        assert all(np.array_equal(each, want) for each in found), place
        with em.threads(3) as pool:
            assert np.array_equal(
                source.accumulate(moments, 128, pool).gram,
                em.accumulate(moments, (X, None, None), 128).gram,
            ), place


def test_examples_are_held_out_and_taken_by_their_numbers(pa, tmp_path):
    source = arrow_source(many_files(pa, tmp_path), **GIVEN, batch_rows=32)
    assert np.array_equal(source.take([0, 5, 300, N - 1])[0], X[[0, 5, 300, N - 1]])
    learn = {"early_stopping": True, "random_state": 0}
    assert same(
        CapsuleClassifier.paper(2, **QUICK, **learn).fit(X, Y, WEIGHT),
        CapsuleClassifier.paper(2, **QUICK, **learn).fit(source),
    )


def test_a_source_of_files_can_be_sent_to_another_process(pa, tmp_path):
    source = pickle.loads(pickle.dumps(arrow_source(many_files(pa, tmp_path), **GIVEN)))
    assert np.array_equal(source.collect(lambda batch: batch[0]), X)


def test_names_of_folders_and_filters(pa, tmp_path):
    for year, rows in ((2023, slice(500)), (2024, slice(500, N))):
        (tmp_path / f"year={year}").mkdir()
        pa.parquet.write_table(table(pa, rows), tmp_path / f"year={year}" / "part.parquet")
    source = arrow_source(tmp_path, columns=["year", "height"], categories={"year": [2024, 2023]})
    assert (
        source.frame.column_names == ["year=2024", "year=2023", "height"]
        and source.dtype == np.float32
    )
    assert source.collect(lambda batch: batch[0])[:, 0].sum() == N - 500
    few = arrow_source(
        pa.dataset.dataset(tmp_path).filter(pa.compute.field("label") == "bee"),
        "label",
        columns=["width", "height"],
        batch_rows=10,
    )
    assert few.n_samples == (Y == "bee").sum() and np.array_equal(
        few.collect(lambda batch: batch[0]), X[Y == "bee"][:, [1, 0]]
    )


@together(
    "name, kind, want",
    [
        ("b", "bool_", "f8"),
        ("i", "int64", "f8"),
        ("u", "uint8", "f8"),
        ("d", "float64", "f8"),
        ("f", "float32", "f4"),
        ("h", "float16", "f8"),
    ],
)
def test_numbers_of_every_type(name, kind, want, pa):
    values = [1, 0, 1, 1]
    column = (
        pa.array(np.array(values, np.float16))
        if kind == "float16"
        else pa.array(values).cast(getattr(pa, kind)())
    )
    source = arrow_source(pa.table({name: column}))
    ((x, _, _),) = source
    assert x.dtype == source.dtype == np.dtype(want) and x.ravel().tolist() == values
    assert arrow_source(
        pa.table({name: column, "single": pa.array(np.zeros(4, np.float32))})
    ).dtype == ("f4" if kind == "bool_" else want)


def test_what_is_missing_is_filled_or_named(pa):
    numbers, words = pa.array([1, None, 3]), pa.array(["x", None, "y"])
    given = pa.table({"age": numbers, "town": words, "size": [0.5, float("nan"), 1.5]})
    fill = {"age": 7, "size": 2.5, "town": "z"}
    source = arrow_source(given, fill=fill)
    assert source.categories == {"town": ("x", "y", "z")}
    assert source.collect(lambda batch: batch[0]).tolist() == [
        [1, 1, 0, 0, 0.5],
        [7, 0, 0, 1, 2.5],
        [3, 0, 1, 0, 1.5],
    ]
    for name in ("age", "size"):
        with pytest.raises(
            BatchError,
            match=(
                f"batch 0: the column '{name}' is null or NaN in 1 of the rows; pass"
                f" fill={{'{name}'"
            ),
        ):
            list(arrow_source(given, fill={k: v for k, v in fill.items() if k != name}))
    with pytest.raises(ValueError, match="X: the column 'town' is null or NaN in 1 of the rows"):
        arrow_source(given, fill={"age": 1, "size": 2})
    for column, named in (("town", "labels are needed"), ("age", "labels are needed")):
        with pytest.raises(BatchError, match=named):
            arrow_source(
                given,
                column,
                columns=["age" if column == "town" else "size"],
                fill={"age" if column == "town" else "size": 0},
            ).inspect()
    with pytest.raises(BatchError, match="batch 0: the column 'age' is null"):
        list(arrow_source(given, weight="age", columns=["size"], fill={"size": 1}))


@together(
    "options, error, said",
    [
        ({"target": "name"}, ValueError, "target: 'name' is the name of no column"),
        (
            {"columns": ["height", "nothing"]},
            ValueError,
            "columns: 'nothing' is the name of no column",
        ),
        ({"columns": ["height", "height"]}, ValueError, "columns holds 'height', which"),
        ({"columns": []}, ValueError, "columns is empty"),
        ({"columns": "height"}, TypeError, "columns must be a list"),
        (
            {"target": "height", "columns": ["height"]},
            ValueError,
            "columns holds 'height', which is the target",
        ),
        (
            {"categories": {"colour": ["red"]}},
            ValueError,
            "categories: 'colour' is none of the columns",
        ),
        (
            {"categories": {"kind": [3]}},
            ValueError,
            "categories: \\[3\\] cannot stand in the column 'kind', which holds string",
        ),
        (
            {"categories": {"kind": ["flat", "round"]}},
            ValueError,
            "the column 'kind' holds 'square', which is not among its categories",
        ),
        ({"fill": {"height": "tall"}}, ValueError, "fill\\['height'\\] must be a number"),
        ({"fill": {"kind": 3}}, ValueError, "fill: 3 cannot stand in the column 'kind'"),
        ({"batch_rows": 0}, ValueError, "batch_rows must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_named(options, error, said, pa):
    with pytest.raises(error, match=said):
        list(arrow_source(table(pa), **options))


def test_other_tables_are_refused(pa, known, tmp_path):
    when = pa.table({"when": pa.array([1], pa.timestamp("s")), "a": [1.0]})
    with pytest.raises(
        ValueError, match="the column 'when' holds timestamp.*neither a number nor a category"
    ):
        arrow_source(when)
    with pytest.raises(ValueError, match="'a' is the name of 2 columns"):
        arrow_source(pa.table([[1.0], [2.0]], names=["a", "a"]))
    with pytest.raises(ValueError, match="only 2 of 3 features have distinct names"):
        arrow_source(pa.table({"a": ["b", "c"], "a=b": [1.0, 2.0]}))
    with pytest.raises(TypeError, match="one-shot iterator"):
        as_source(pa.RecordBatchReader.from_batches(when.schema, when.to_batches()), labelled=False)
    with pytest.raises(ValueError, match="y is None, but labels are needed; name their column"):
        CapsuleClassifier.paper(2).fit(table(pa))
    with pytest.raises(ValueError, match="y is None, but labels are needed"):
        CapsuleClassifier.paper(2).fit(arrow_source(table(pa)))
    (tmp_path / "no.parquet").write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="X.*Parquet"):
        arrow_source(tmp_path / "no.parquet")
    with pytest.raises(FileNotFoundError, match="gone.parquet"):
        arrow_source(tmp_path / "gone.parquet")
    model = CapsuleClassifier.paper(2, **QUICK).fit(arrow_source(table(pa), **GIVEN))
    renamed = (
        table(pa).select(["height", "width", "kind"]).rename_columns(["height", "depth", "kind"])
    )
    for inputs in (
        renamed,
        renamed.select(["height", "kind"]),
        table(pa).select(["width", "height", "kind"]),
    ):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(inputs)


def test_a_file_that_changes_or_is_damaged_between_passes(pa, tmp_path):
    path = one_file(pa, tmp_path)
    source = arrow_source(path, **GIVEN, batch_rows=100)
    assert len(list(source)) >= 9 and source.n_samples == N
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
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.parquet")],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert float(found.stdout) < 2.5, found.stdout  # row groups, of which the file has 20


def test_pyarrow_is_asked_for_when_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: arrow_source("x.parquet"), lambda: GaussianMixture().fit("x.parquet")):
        with pytest.raises(ImportError, match="pip install 'capslit\\[parquet\\]'"):
            use()


def indexed_frame(index_name=None):
    "A table sorted by class and then shuffled by pandas, whose index still reveals the classes."
    import pandas as pd

    frame = pd.DataFrame({"noise": rng.standard_normal(300), "label": np.repeat(["a", "b"], 150)})
    frame.index.name = index_name
    return frame.sample(frac=1, random_state=0)


@pytest.mark.parametrize("index_name", [None, "row"])
def test_the_index_of_pandas_is_no_feature(pa, tmp_path, index_name):
    frame = indexed_frame(index_name)
    one, folder = tmp_path / "one.parquet", tmp_path / "many"
    folder.mkdir()
    frame.to_parquet(one)
    for number in range(3):
        frame[100 * number : 100 * (number + 1)].to_parquet(folder / f"{number}.parquet")
    tables = [
        one,
        folder,
        [one, folder / "0.parquet"],
        pa.parquet.ParquetFile(one),
        pa.dataset.dataset(one).filter(pa.compute.field("noise") > 0),
        pa.Table.from_pandas(frame),
        pa.Table.from_pandas(frame).to_batches()[0],
    ]
    for source in tables:
        assert arrow_source(source, target="label").columns == ("noise",)
    stored = index_name or "__index_level_0__"
    assert arrow_source(one, target="label", columns=["noise", stored]).n_features == 2
    bare = pa.Table.from_pandas(frame).replace_schema_metadata(None)
    assert ("row" in bare.column_names) == (len(arrow_source(bare, "label").columns) == 2)


def test_frames_of_arrow_do_not_bring_the_index_either(pa):
    from capslit.capsules.table_classifier import TableClassifier

    frame = pa.Table.from_pandas(indexed_frame())
    model = TableClassifier().fit(frame.drop_columns("label"), frame["label"].to_numpy(False))
    assert [column.name for column in model.columns_] == ["noise"]


def test_paths_of_parquet_files_in_any_spelling(pa, tmp_path):
    pa.parquet.write_table(table(pa).select(["height", "width"]), tmp_path / "A.PARQUET")
    assert as_source(tmp_path / "A.PARQUET", labelled=None).n_features == 2


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
