"""Forty tables in one form: what is no table is refused, what is missing is named, and every table
can be made ready for a classifier.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.base import clone

from capslit.data import TABLES, datasets, encoder, load_table, tables
from capslit.data.datasets import DatasetError

REAL = os.environ.get("CAPSLIT_DATA")
needs_data = pytest.mark.skipif(
    not REAL or not os.path.isdir(os.path.join(REAL, "tables")),
    reason="set CAPSLIT_DATA to a folder with tables/ to test the real files",
)
CONTENT = b"1.5, red, ?, 10\n-2e1,<null>,x,9\n?, blue, y, 10\n3,red,x,2\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SHAPES = """
sonar           208 60  2  0   phoneme         5404  5  2  0   bupa            345  6  2  0
vehicle         846 18  4  0   spambase        4597 57  2  0   movement_libras 360 90 15  0
vowel           990 13 11  0   banana          5300  2  2  0   contraceptive  1473  9  3  0
ionosphere      351 33  2  0   ring            7400 20  2  0   mammographic    830  5  2  0
pima            768  8  2  0   twonorm         7400 20  2  0   letter        20000 16 26  0
saheart         462  9  2  1   splice          3190 60  3 60   texture        5500 40 11  0
german         1000 20  2 13   tic-tac-toe      958  9  2  9   magic         19020 10  2  0
heart           270 13  2  0   titanic         2201  3  2  0   wisconsin       683  9  2  0
segment        2310 19  7  0   australian       690 14  2  0   monk-2          432  6  2  0
satimage       6435 36  6  0
""".split()  # rows, features, classes, columns of categories
SHAPES = {SHAPES[k]: tuple(map(int, SHAPES[k + 1 : k + 5])) for k in range(0, len(SHAPES), 5)}


@pytest.fixture
def home(tmp_path, monkeypatch):
    "A data folder with tables/ in it, nothing in the cache, no CAPSLIT_DATA, and no network."
    monkeypatch.delenv("CAPSLIT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "_get", lambda address: pytest.fail(f"{address} was asked"))
    monkeypatch.setitem(tables.KEEL, "sonar", SHA256)
    (tmp_path / "tables").mkdir()
    return tmp_path


def check_encoded(table):
    "Finite numbers in as many columns as there must be, whatever the encoder is fitted to."
    transformer = encoder(table)
    numbers = table.X.shape[1] - len(table.categories)
    width = numbers + sum(map(len, table.categories.values()))
    encoded = clone(transformer).fit_transform(table.X)
    part = clone(transformer).fit(table.X[:3]).transform(table.X)
    for found in (encoded, part):  # the second has words and values that it has not seen
        assert found.shape == (len(table.X), width) and found.dtype == np.float64
        assert np.isfinite(found).all()
    assert np.abs(encoded[:, :numbers].mean(axis=0)).max(initial=0) < 1e-6


def archive(name, content):
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return buffer.getvalue()


HEADER = b"@relation sonar\r\n@attribute a real [0, 1]\r\n@inputs a, b, c\r\n@data\r\n"
HEADED = HEADER + CONTENT.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "delivered",
    [
        HEADED,
        archive("sonar.dat", HEADED),
        archive("sonar/sonar.dat", CONTENT),
        gzip.compress(CONTENT, mtime=0),
    ],
    ids=("with a header", "archive", "archive of a folder", "gzip"),
)
def test_a_download_is_kept_as_the_known_bytes(home, monkeypatch, delivered):
    monkeypatch.setattr(datasets, "_get", lambda address: delivered)
    table, nan = load_table("sonar", data_home=home), np.nan
    expected = [[1.5, 1, nan], [-20, nan, 0], [nan, 0, 1], [3, 1, 0]]
    assert np.array_equal(table.X, expected, equal_nan=True) and table.X.dtype == np.float64
    assert table.class_names == ("2", "9", "10") and table.y.tolist() == [2, 1, 2, 0]
    assert table.sha256 == {"sonar.dat": SHA256}
    check_encoded(table)
    monkeypatch.setattr(datasets, "_get", lambda address: pytest.fail("it is on the disk now"))
    assert gzip.decompress((home / "tables" / "sonar.dat.gz").read_bytes()) == CONTENT
    assert np.array_equal(load_table("sonar", data_home=home).X, table.X, equal_nan=True)


def test_tables_that_are_not_there(home):
    said = "cannot find tables/monk-2.dat.gz, and download=False.*CAPSLIT_DATA"
    with pytest.raises(DatasetError, match=said):
        load_table("monk-2", download=False)
    for name in ("Iris", "", 7, None):
        with pytest.raises(ValueError) as caught:
            load_table(name)
        assert all(repr(word) in str(caught.value) for word in (*TABLES, name))


def test_tables_that_need_no_file(home):
    for name in TABLES[:10]:
        table = load_table(name)
        assert table.name == name and not table.categories and np.isfinite(table.X).all()
        assert table.X.shape == (len(table.y), len(table.feature_names))
        assert set(table.y) == set(range(len(table.class_names)))
        assert {type(word) for word in (*table.class_names, *table.feature_names)} == {str}
        assert load_table(name).sha256 == table.sha256


PENGUINS = (
    b"species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,sex,year\n"
    b"Adelie,Torgersen,39.1,18.7,181,3750,male,2007\nAdelie,Dream,NA,NA,NA,NA,NA,2007\n"
    b"Gentoo,Biscoe,46.1,13.2,211,4500,female,2008\nGentoo,Biscoe,50,16.3,230,5700,NA,2008\n"
)


@pytest.fixture
def penguins(tmp_path, monkeypatch):
    "A stand-in for the package palmerpenguins, which must not be imported; the path of its file."
    folder = tmp_path / "palmerpenguins"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "data" / "penguins.csv").write_bytes(PENGUINS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tables, "PENGUINS_SHA256", hashlib.sha256(PENGUINS).hexdigest())
    return folder / "data" / "penguins.csv"


def test_penguins(penguins, monkeypatch):
    species, sex = load_table("penguins_species"), load_table("penguins_sex")
    assert species.X.shape == (4, 5) and np.isnan(species.X).sum() == 4
    assert species.class_names == ("Adelie", "Gentoo") and species.feature_names[-1] == "island"
    assert species.categories == {4: ("Biscoe", "Dream", "Torgersen")}
    assert sex.X[:, :4].tolist() == [[39.1, 18.7, 181, 3750], [46.1, 13.2, 211, 4500]]
    assert sex.class_names == ("female", "male") and sex.y.tolist() == [1, 0]
    assert sex.categories == {4: ("Adelie", "Gentoo")}
    check_encoded(species)
    advice = "pip install --force-reinstall"
    penguins.write_bytes(PENGUINS.replace(b"39.1", b"39.2"))
    said = f"penguins.csv of the package palmerpenguins: it has the hash.*{advice}"
    with pytest.raises(DatasetError, match=said):
        load_table("penguins_species")
    penguins.unlink()
    with pytest.raises(DatasetError, match=f"penguins.csv: there is no such file.*{advice}"):
        load_table("penguins_sex")
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    said = "penguins_sex is read from the package palmerpenguins.*pip install"
    with pytest.raises(DatasetError, match=said):
        load_table("penguins_sex")


@needs_data
@pytest.mark.parametrize("name", tables.KEEL)
def test_the_real_files(name):
    table = load_table(name, data_home=REAL, download=False)
    assert (*table.X.shape, len(table.class_names), len(table.categories)) == SHAPES[name]
    assert np.isfinite(table.X).all() and set(table.y) == set(range(len(table.class_names)))
    for k, words in table.categories.items():
        assert set(table.X[:, k]) == set(range(len(words)))
    check_encoded(table)


WITHOUT_PANDAS = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from capslit.data import encoder, load_table, tables
tables.PENGUINS_SHA256 = sys.argv[1]
sys.path.insert(0, sys.argv[2])
table = load_table("penguins_species")
print(encoder(table).fit_transform(table.X).shape, load_table("iris").X.shape)
"""


def test_pandas_is_not_needed(penguins):
    command = [sys.executable, "-c", WITHOUT_PANDAS, tables.PENGUINS_SHA256, penguins.parents[2]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "(4, 7) (150, 4)", done.stderr
