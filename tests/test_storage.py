"""Files are written whole or not at all, and damaged ones are refused: full disk, limits,
permissions, kills, damage.
"""

import builtins
import errno
import os
import pickle
import sys
import threading
import time
import traceback
import zipfile

import numpy as np
import pytest
from conftest import together

from capslit import storage
from capslit.storage import (
    StorageError,
    atomic_write,
    check_separate,
    load_arrays,
    load_json,
    remove,
    save_arrays,
    save_json,
)

META = {"schema": "capslit.test/1"}
OLD, NEW = {"a": np.arange(3)}, {"a": np.arange(1000.0)}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def load(path):
    "The arrays of a file of ours, beside which nothing was left."
    assert names(path.parent) == [path.name]
    return load_arrays(path, schema="capslit.test/1")[0]


@together("dtype", "f2 f4 f8 i1 u8 ? c16 U5 S3 >f8".split())
@together("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_come_back(tmp_path, dtype, shape):
    array = np.ones(shape).astype(dtype)
    for value in (array, np.asfortranarray(array)):
        save_arrays(tmp_path / "a.npz", {"a": value}, META)
        back, meta = load_arrays(tmp_path / "a.npz", schema="capslit.test/1")
        assert back["a"].dtype == array.dtype and np.array_equal(back["a"], value) and meta == META


@together("compress", [False, True])
def test_equal_content_gives_equal_bytes_that_numpy_reads(tmp_path, monkeypatch, compress):
    for name, now in (("a", 1e9), ("b", 2e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        save_arrays(tmp_path / name, NEW, META | {"x": 1.5}, compress=compress)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with np.load(tmp_path / "a", allow_pickle=False) as file:
        assert np.array_equal(file["a"], NEW["a"])


@together(
    "words, arrays, meta",
    [
        ("objects", {"a": np.array([object()])}, META),
        ("shape", {"a": [[1], [1, 2]]}, META),
        ("__meta__", {"__meta__": 1}, META),
        ("schema", OLD, {}),
        ("NaN", OLD, META | {"x": np.inf}),
        ("set", OLD, META | {"x": {1, 2}}),
    ],
)
def test_what_cannot_be_stored_is_refused_before_writing(tmp_path, words, arrays, meta):
    save_arrays(tmp_path / "a.npz", OLD, META)
    with pytest.raises((TypeError, ValueError), match=words):
        save_arrays(tmp_path / "a.npz", arrays, meta)
    assert np.array_equal(load(tmp_path / "a.npz")["a"], OLD["a"])


@together("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@together("function", ["fsync", "replace"])
def test_a_failure_at_the_last_moment_leaves_the_old_file(tmp_path, monkeypatch, code, function):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    save_arrays(tmp_path / "a.npz", OLD, META)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="a.npz") as caught:
        patch.setattr(storage.os, function, fail)
        save_arrays(tmp_path / "a.npz", NEW, META)
    assert storage.REMEDIES[code] in str(caught.value)
    assert np.array_equal(load(tmp_path / "a.npz")["a"], OLD["a"])


def test_paths_that_cannot_be(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    paths = {"file/a.json": "not a folder", "folder": "is a folder", "n" * 300: "too long"}
    paths |= {"new/a.json": "there is no such folder; make it first"}
    for path, words in (paths | {"\0": "null"}).items():
        with pytest.raises((StorageError, ValueError), match=words):
            save_json(tmp_path / path, 1)
    for read in (load_arrays, load_json):
        with pytest.raises(StorageError, match=tmp_path.name):
            read(tmp_path)
        with pytest.raises(FileNotFoundError) as caught:
            read(tmp_path / "new")
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert isinstance(error, StorageError) and isinstance(error, FileNotFoundError)
            assert (error.errno, error.filename) == (errno.ENOENT, str(tmp_path / "new"))
            assert str(error) == f"cannot read {error.filename}: " + (
                "there is no such file; check the name"
            )
            assert traceback.format_exception_only(error) == [
                f"capslit.storage.StorageError: {error}\n"
            ]
    with pytest.raises(FileNotFoundError):
        save_arrays(tmp_path / "new" / "a.npz", OLD, META)

    def refuse(path, mode="r", *args, **kwargs):
        if "x" in mode:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return builtins.open(path, mode, *args, **kwargs)

    monkeypatch.setattr(storage, "open", refuse, raising=False)  # root may write anywhere
    for save, value in ((save_json, [1]), (save_arrays, [OLD, META])):
        with pytest.raises(StorageError, match="a.file.*permission denied"):
            save(tmp_path / "a.file", *value)
    assert names(tmp_path) == ["file", "folder"]


def test_writers_at_the_same_time_do_not_mix(tmp_path):
    path = tmp_path / "a.npz"

    def write(i):
        for _ in range(20):
            save_arrays(path, {"a": np.full(5000, i)}, META | {"i": i})

    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    [w.start() for w in writers]
    while any(w.is_alive() for w in writers):
        if path.exists():
            arrays, meta = load_arrays(path)
            assert np.all(arrays["a"] == meta["i"])
    assert names(tmp_path) == ["a.npz"]


def test_errors_of_the_caller_pass_through(tmp_path):
    for error in (LookupError(), KeyboardInterrupt(), ConnectionError("reset")):
        with pytest.raises(type(error)):
            with atomic_write(tmp_path / "a") as file:
                file.write(b"half")
                raise error
    assert names(tmp_path) == []


def test_remove_takes_only_its_own_leftovers(tmp_path):
    for name in ("a.npz", ".a.npz.01234567.part", ".ab.npz.01234567.part", "[a].npz"):
        (tmp_path / name).write_bytes(b"")
    for name in ("a.npz", "[a].npz", "never"):
        remove(tmp_path / name)
    assert names(tmp_path) == [".ab.npz.01234567.part"]


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("evil",))


def test_no_code_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.npz").write_bytes(pickle.dumps(Evil()))
    np.savez(tmp_path / "b.npz", a=np.array([Evil()], dtype=object))
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("a.npy", pickle.dumps(Evil()))
    for name in "abc":
        with pytest.raises(StorageError, match=f"{name}.npz"):
            load_arrays(f"{name}.npz")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2", b"\xff\xfe", b'{"a": NaN}', b'{"a": Infinity}', b"[" * 100_000]
)
def test_damaged_json_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(StorageError, match="a.json"):
        load_json(tmp_path / "a.json")


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need privileges")
def test_one_file_under_several_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("absent", "nowhere")
    for one, other in (("nowhere", "absent"), ("t.csv", "./t.csv")):
        with pytest.raises(StorageError, match="it is the same file as .*choose another name"):
            check_separate(one, "other", other)
    check_separate("t.csv.npz", "t.csv", "absent")


@together("value", [1, [], {}, {"schema": 3}, {"schema": "capslit.other/1"}])
def test_foreign_schemas_are_refused(tmp_path, value):
    save_json(tmp_path / "a.json", value)
    with pytest.raises(StorageError, match="a.json"):
        load_json(tmp_path / "a.json", schema="capslit.test/1")
    save_arrays(tmp_path / "a.npz", OLD, {"schema": "capslit.other/1"})
    with pytest.raises(StorageError, match="capslit.other/1.*capslit.test/1"):
        load_arrays(tmp_path / "a.npz", schema="capslit.test/1")


def test_json_is_readable(tmp_path):
    path = tmp_path / "a.json"
    save_json(path, {"b": np.float32(0.5), "a": "ü"})
    with pytest.raises(ValueError, match="NaN"):
        save_json(path, [np.nan])
    assert path.read_text(encoding="utf-8").split() == ["{", '"a":', '"ü",', '"b":', "0.5", "}"]


def test_only_our_files_are_replaced_damaged_ones_too(tmp_path):
    path = tmp_path / "data"
    with open(tmp_path / "npy", "wb") as npy, open(tmp_path / "npz", "wb") as npz:
        np.save(npy, np.eye(3))
        np.savez(npz, X=np.eye(3))
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a.txt", "text")
    others = [(tmp_path / name).read_bytes() for name in ("npy", "npz", "zip")]
    for content in (b"a,b\n1,2\n", *others):
        path.write_bytes(content)
        with pytest.raises(StorageError, match="a file that capslit has not written"):
            save_arrays(path, NEW, META)
        assert path.read_bytes() == content
    path.write_bytes(b"")
    for size in (None, 100, 2):
        save_arrays(path, OLD, META)
        path.write_bytes(path.read_bytes()[:size])
    save_arrays(path, NEW, META)
    assert np.array_equal(load_arrays(path)[0]["a"], NEW["a"])
