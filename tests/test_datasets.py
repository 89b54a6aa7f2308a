"""Data are found, fetched and checked; every fault of disk, network and content ends in one clear
error and no half-written file.
"""

import gzip
import hashlib
import http.server
import io
import os
import shutil
import struct
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest
from conftest import PATIENCE, together

from capslit.data import datasets
from capslit.data.datasets import DatasetError, RemoteFile, fetch
from capslit.storage import StorageError

REAL = os.environ.get("CAPSLIT_DATA")
needs_data = pytest.mark.skipif(
    not REAL, reason="set CAPSLIT_DATA to a folder with the data to test the real files"
)


def idx(array):
    return (
        b"\x00\x00\x08"
        + bytes([array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
CONTENT = gzip.compress(idx(ARRAY), mtime=0)
SHA256 = hashlib.sha256(idx(ARRAY)).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    "An empty cache, no CAPSLIT_DATA, and no proxy between the test and this machine."
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CAPSLIT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(datasets, "TIMEOUT", (PATIENCE, PATIENCE))
    import pooch

    return pooch.os_cache("capslit")


class Handler(http.server.BaseHTTPRequestHandler):
    "Answers as the first folder of the path says."

    files = {}

    def do_GET(self):
        self.server.asked.append(self.path)
        kind, name = self.path.strip("/").split("/", 1)
        content = self.server.files.get(name, CONTENT)
        if kind in ("404", "500"):
            return self.send_error(int(kind))
        if kind == "flaky" and len(self.server.asked) == 1:
            return self.connection.close()
        if kind == "slow":
            return self.server.closed.wait()
        body = {
            "corrupt": content[:-12] + b"x" + content[-11:],
            "other": gzip.compress(b"another file"),
            "html": b"<html>not found</html>",
            "empty": b"",
            "plain": gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content,
            "cut": content[:-10],
        }.get(kind, content)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if kind == "encoded":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body[:-9] if kind == "short" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.files, server.daemon_threads = [], {}, True
        server.closed = threading.Event()
        server.base = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.closed.set()
        server.shutdown()


@pytest.fixture
def impatient(monkeypatch):
    "A slow address has half a second to answer, others as long as needed."
    get = datasets._get

    def get_soon(address):
        with monkeypatch.context() as patch:
            if "/slow" in address:
                patch.setattr(datasets, "TIMEOUT", (PATIENCE, 0.5))
            return get(address)

    monkeypatch.setattr(datasets, "_get", get_soon)


def source(*mirrors):
    return datasets._idx("some/array.gz", mirrors, SHA256)


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("kind", ["good", "plain", "encoded", "flaky"])
def test_a_download_is_checked_and_kept(cache, server, kind):
    assert np.array_equal(fetch(source(f"{server.base}/{kind}")), ARRAY)
    assert files(cache) == ["some/array.gz"]
    asked = len(server.asked)
    assert np.array_equal(fetch(source(f"{server.base}/404")), ARRAY)
    assert len(server.asked) == asked  # now from the cache


@pytest.mark.parametrize(
    "bad, words",
    [
        ("404", "404"),
        ("500", "500"),
        ("corrupt", "truncated or corrupt|hash"),
        ("other", "hash"),
        ("html", "hash"),
        ("empty", "hash"),
        ("cut", "truncated"),
        ("short", "array.gz"),
        ("slow", "timed out"),
    ],
)
def test_wrong_bytes_are_neither_used_nor_kept(cache, server, impatient, bad, words):
    with pytest.raises(DatasetError, match=words) as caught:
        fetch(source(f"{server.base}/{bad}"))
    for word in ("some/array.gz", server.base, "CAPSLIT_DATA", str(cache)):
        assert word in str(caught.value)
    assert files(cache) == []
    # the second address helps
    assert np.array_equal(fetch(source(f"{server.base}/{bad}", f"{server.base}/good")), ARRAY)
    assert server.asked[-1].startswith("/good") and files(cache) == ["some/array.gz"]


def failing(error):
    def fail(*_):
        raise error

    return fail


def test_a_network_that_is_not_there_or_must_not_be_asked(cache, server, monkeypatch):
    good = source(f"{server.base}/good")
    said = "cannot find some/array.gz.*127.0.0.1:9.*CAPSLIT_DATA.*network"
    with pytest.raises(DatasetError, match=said):
        fetch(source("http://127.0.0.1:9", "http://127.0.0.1:9/again"))
    with pytest.raises(DatasetError, match="download=False"):
        fetch(good, download=False)
    assert server.asked == []
    with pytest.raises(DatasetError):  # final answers are not asked for again
        fetch(source(f"{server.base}/404", f"{server.base}/other"))
    assert len(server.asked) == 2
    monkeypatch.setattr(datasets, "_get", failing(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fetch(good)
    assert files(cache) == []
    monkeypatch.setenv("CAPSLIT_DATA", str(cache / "nowhere"))
    with pytest.raises(DatasetError, match="CAPSLIT_DATA names .*nowhere"):
        datasets.load_mnist()


def test_disks_that_are_full_and_folders_that_are_files(cache, server, monkeypatch):
    good = source(f"{server.base}/good")
    with monkeypatch.context() as patch:
        patch.setattr("capslit.storage.os.fsync", failing(OSError(28, "No space left on device")))
        with pytest.raises(StorageError, match="array.gz.*disk is full"):
            fetch(good)
    assert files(cache) == []
    asked = len(server.asked)
    shutil.rmtree(cache)
    cache.write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="array.gz.*choose another folder"):
        fetch(good)
    assert len(server.asked) == asked


def test_the_order_of_folders(cache, server, tmp_path, monkeypatch):
    home, named = tmp_path / "home", tmp_path / "named"
    monkeypatch.setenv("CAPSLIT_DATA", str(named))
    one = RemoteFile("some/file", (f"{server.base}/good/file",), lambda content: content)
    paths = [folder / "some" / "file" for folder in (cache, named, home)]
    named.mkdir()
    for content, path in zip((b"1", b"2", b"3"), paths):  # each goes before those so far
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        assert fetch(one, data_home=home) == content
    assert server.asked == []
    for path in paths:
        path.unlink()
    fetch(one, data_home=home)
    assert [path.exists() for path in paths] == [False, False, True]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "hash"),
        (CONTENT[:-5], "truncated"),
        (CONTENT[:20] + b"\x00" + CONTENT[21:], "corrupt|hash"),
        (gzip.compress(idx(ARRAY + 1), mtime=0), "hash"),
    ],
)
def test_a_damaged_file_is_an_error_and_stays(cache, server, tmp_path, content, words):
    path = tmp_path / "home" / "some" / "array.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"array.gz.*({words}).*delete it"):
        fetch(source(f"{server.base}/good"), data_home=tmp_path / "home")
    assert path.read_bytes() == content and server.asked == []


def test_a_whole_data_set_from_the_network(cache, server, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = [labels for n in (6, 3) for labels in (rng.integers(0, 256, (n, 4, 4)), np.arange(n))]
    content = dict(zip(datasets.IDX_FILES, map(idx, arrays)))
    server.files = {name: gzip.compress(whole) for name, whole in content.items()}
    hashes = {name: hashlib.sha256(whole).hexdigest() for name, whole in content.items()}
    monkeypatch.setattr(datasets, "MNIST", hashes)
    monkeypatch.setitem(datasets.MIRRORS, "mnist", (f"{server.base}/404", f"{server.base}/good"))
    for _ in range(2):
        data = datasets.load_mnist()
        assert np.array_equal(data.train_images, arrays[0]) and data.n_train == 6
        assert np.array_equal(data.test_labels, arrays[3])
    assert len(server.asked) == 8 and len(files(cache)) == 4


def test_usps_text(cache, server, monkeypatch):
    rng = np.random.default_rng(0)
    parts = {}
    for part, n in (("train", 5), ("test", 3)):
        levels, labels = rng.integers(0, 2001, (n, 256)), rng.integers(0, 10, n)
        text = io.BytesIO()
        np.savetxt(text, np.c_[labels, levels / 1000 - 1], "%.4f", newline=" \n")
        server.files[f"zip.{part}.gz"] = gzip.compress(text.getvalue())
        known = levels.astype("<u2").tobytes() + labels.astype(np.uint8).tobytes()
        name = f"usps/zip.{part}.gz"
        monkeypatch.setitem(datasets.OTHER_HASHES, name, hashlib.sha256(known).hexdigest())
        parts[part] = levels, labels
    monkeypatch.setitem(datasets.MIRRORS, "usps", (f"{server.base}/html", f"{server.base}/good"))
    data = datasets.load_usps()
    found = data.train_images.reshape(5, 256) * 2000
    np.testing.assert_allclose(found, parts["train"][0], atol=1e-3)
    assert data.images.dtype == np.float32
    assert np.array_equal(data.test_labels, parts["test"][1])
    monkeypatch.setitem(datasets.OTHER_HASHES, name, "0" * 64)
    with pytest.raises(DatasetError, match="zip.test.gz.*hash"):
        datasets.load_usps()


@needs_data
@together(
    "loader, train, test, size, classes",
    [
        ("mnist", 60000, 10000, (28, 28), 10),
        ("fashion_mnist", 60000, 10000, (28, 28), 10),
        ("usps", 7291, 2007, (16, 16), 10),
        ("alphadigits", 36 * 39, 0, (20, 16), 36),
        ("omniglot_latin", 26 * 20, 0, (105, 105), 26),
    ],
)
def test_the_real_files(loader, train, test, size, classes, cache):
    load = getattr(datasets, f"load_{loader}")
    with pytest.raises(DatasetError, match="cannot find .*CAPSLIT_DATA"):
        load(download=False)
    data = load(data_home=REAL, download=False)
    assert data.train_images.shape == (train, *size) and data.test_images.shape == (test, *size)
    assert set(data.labels) == set(range(classes)) and len(data.class_names) == classes
    assert len(data.labels) == len(data.images)
    assert data.images.min() == 0 and data.images.max() == data.scale
    if test == 0:
        assert len(set(np.bincount(data.labels))) == 1
    if loader == "fashion_mnist":
        assert abs(data.train_images.mean() / 255 - 0.2860) < 1e-4
        assert abs(data.train_images.std() / 255 - 0.3530) < 1e-4


@needs_data
def test_omniglot_pictures_agree_with_another_decoder():
    import matplotlib.image

    data = datasets.load_omniglot_latin(data_home=REAL)
    with zipfile.ZipFile(os.path.join(REAL, "omniglot/images_background_small1.zip")) as archive:
        names = sorted(n for n in archive.namelist() if "/Latin/" in n and n.endswith(".png"))
        for k in range(0, 520, 37):
            picture = matplotlib.image.imread(io.BytesIO(archive.read(names[k])), format="png")
            assert np.array_equal(picture < 0.5, data.images[k] > 0)


def test_projection_agrees_with_svd_for_every_type():
    images = datasets.load_digits().train_images
    flat = images.reshape(1540, 64)
    reference = np.linalg.svd(flat.astype(float), full_matrices=False)[2][:10].T
    for version in (images.astype(np.float32), images.astype(np.int64), np.asfortranarray(flat)):
        V = datasets.svd_projection(version, 10)
        assert np.allclose(np.abs(V.T @ reference), np.eye(10), atol=1e-9)
        assert np.all(V[np.abs(V).argmax(0), range(10)] > 0)


@together(
    "images, p, words",
    [
        (np.full((3, 4), np.inf), 2, "infinity"),
        (np.zeros(3), 1, r"train_images has shape \(3,\)"),
        (np.zeros((0, 4)), 1, "no length of 0"),
        (np.array([["a"]]), 1, "real numbers"),
        (np.zeros((3, 4)), 0, "n_components"),
    ],
)
def test_projection_of_bad_input(images, p, words):
    with pytest.raises((ValueError, TypeError), match=words):
        datasets.svd_projection(images, p)


def test_import_is_light():
    heavy = (
        "import capslit.data.datasets, sys;"
        " print({'matplotlib', 'pooch', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
