"""Chapters that run elsewhere: what they import can be installed, their copies begin by installing
it, and records are fetched where there is no checkout.
"""

import functools
import http.server
import importlib.metadata
import json
import re
import subprocess
import sys
import threading

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_house import NOTEBOOKS, ROOT, named, requirements

sys.path.insert(0, str(ROOT / "book"))
import elsewhere  # noqa: E402
import project  # noqa: E402
import registry  # noqa: E402
from dependencies import reads_notebooks  # noqa: E402

from capslit.data.datasets import DatasetError  # noqa: E402
from capslit.experiments import records  # noqa: E402
from capslit.storage import load_json  # noqa: E402


@functools.cache
def extras():
    "What the copy of each chapter installs: {path: extras}. The syntax of all chapters is read."
    copies = {path: elsewhere.portable(path) for path in NOTEBOOKS if not reads_notebooks(path)}
    first = {path: json.loads(copy)["cells"][0]["source"] for path, copy in copies.items()}
    return {path: re.search(r"\[(.*?)]", source)[1].split(",") for path, source in first.items()}


def names(*extras):
    return named(requirements(*extras))


def brought_by(dist):
    "What a distribution cannot do without; nothing where it is not installed."
    try:
        found = map(Requirement, importlib.metadata.requires(dist) or [])
    except importlib.metadata.PackageNotFoundError:
        return set()
    return named(r for r in found if "extra" not in str(r.marker))


def test_a_chapter_imports_only_what_its_copy_installs():
    known = importlib.metadata.packages_distributions()
    for path, installed in extras().items():
        allowed = names("", *(f"{extra}_" for extra in installed)) | {"capslit"}
        allowed |= {name for dist in allowed - {"capslit"} for name in brought_by(dist)}
        for name in elsewhere.imports(path) - set(sys.stdlib_module_names):
            found = set(map(canonicalize_name, known.get(name, [name])))
            assert found & allowed, f"{path}: {name} is in none of the extras {installed}"


def test_no_tool_of_the_developers_is_needed():
    "What only the book, the tests and the tools need."
    tools = names("book_", "test_", "dev_")
    tools -= names("", "chapters_", "torch_", "dask_", "parquet_")
    assert {"nbdev", "pytest", "hypothesis", "jupyter-book", "ruff"} <= tools
    for extra in set().union(*extras().values()):
        assert not names(f"{extra}_") & tools, extra


def test_copies_are_notebooks_that_begin_by_installing(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "version_folder", lambda: "latest")
    latest = tmp_path / "latest"
    (latest / "nbs").mkdir(parents=True)
    (latest / "nbs" / "gone.ipynb").touch()
    (tmp_path / "v0.1.0").mkdir()
    elsewhere.write(tmp_path)
    copies = sorted(latest.rglob("*.ipynb"))
    assert [p.relative_to(latest) for p in copies] == [p.relative_to(ROOT) for p in extras()]
    assert (tmp_path / "v0.1.0").is_dir() and list((latest / "nbs" / "images").iterdir())
    for path in copies:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        top = notebook.cells[0].source
        assert top == elsewhere.INSTALL.format(requirement=top.split('"')[-2])
        assert f"git+{project.SOURCE}@" in top
        for cell in notebook.cells:
            if cell.cell_type == "code":
                assert not any(line.startswith("#|") for line in cell.source.splitlines())
    binder = (tmp_path / "binder" / "requirements.txt").read_text()
    assert Requirement(binder.strip()).name == "capslit"
    monkeypatch.setattr(elsewhere, "version_folder", lambda: "v1.2.3")
    assert elsewhere.requirement(["chapters"]) == f"capslit[chapters]=={project.VERSION}"


def test_the_first_cell_installs_only_where_capslit_is_missing():
    from IPython.core.interactiveshell import InteractiveShell

    shell, asked = InteractiveShell(), []
    shell.register_magic_function(asked.append, magic_name="pip")
    cell = elsewhere.INSTALL.format(requirement="capslit[chapters]==1.0")
    shell.run_cell(cell)
    assert not asked
    shell.run_cell(cell.replace('find_spec("capslit")', 'find_spec("capslit_that_is_not_there")'))
    assert asked == ['install --quiet "capslit[chapters]==1.0"']


def test_copies_are_pushed_to_their_branch(tmp_path, monkeypatch):
    """To a repository on this machine: the branch is made, and then added to; nothing is committed
    when nothing has changed.
    """
    work, origin = tmp_path / "work", tmp_path / "origin.git"

    def git(*words, cwd=work):
        return subprocess.check_output(["git", "-C", cwd, *words], text=True).strip()

    git("init", "--quiet", "--bare", "origin.git", cwd=tmp_path)
    git("clone", "--quiet", "origin.git", "work", cwd=tmp_path)
    for key, value in (("user.name", "a"), ("user.email", "a@b.c")):
        git("config", key, value)
    (work / "a.txt").write_text("a")
    git("add", "a.txt")
    git("commit", "--quiet", "--message", "one")
    monkeypatch.setattr(elsewhere, "ROOT", work)
    monkeypatch.setattr(elsewhere, "git", git)

    def write(version):
        def one(folder):
            assert not (folder / "a.txt").exists()
            (folder / version).mkdir(exist_ok=True)
            (folder / version / "x.ipynb").write_text("{}")

        return one

    for version, count in (("latest", 1), ("v1.0.0", 2), ("v1.0.0", 2)):
        monkeypatch.setattr(elsewhere, "write", write(version))
        elsewhere.push()
        commits = git("log", "--format=%h", "notebooks", cwd=origin).splitlines()
        assert len(commits) == count
    files = git("ls-tree", "-r", "--name-only", "notebooks", cwd=origin).split()
    assert files == ["latest/x.ipynb", "v1.0.0/x.ipynb"] and (work / "a.txt").is_file()
    assert len(git("worktree", "list").splitlines()) == 1


# Records without a checkout


@pytest.fixture
def without_checkout(tmp_path, monkeypatch):
    """A package that was installed without one: its cache, and a server of the repository with the
    folders that it was asked for.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_):
            pass

    asked, served = [], tmp_path / "served"
    (served / "main").mkdir(parents=True)
    (served / "main" / "results").symlink_to(ROOT / "results")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setattr(records, "RESULTS", records._results_folder())
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(served))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(records, "ADDRESS", f"http://127.0.0.1:{server.server_port}")
        server.asked, server.served = asked, served
        yield server
        server.shutdown()


def test_records_are_fetched_once(without_checkout):
    assert str(records.RESULTS).endswith(f"capslit/results-{project.VERSION}")
    record = records.load_record(records.RESULTS / "figure2-mnist.json")
    assert record.digest() == records.load_record(ROOT / "results" / "figure2-mnist.json").digest()
    assert without_checkout.asked == [
        f"/{branch}/results/figure2-mnist.{kind}"
        for kind in ("json", "npz")
        for branch in (f"v{project.VERSION}", "main")
    ]
    records.load_record(records.RESULTS / "figure2-mnist.json")
    assert len(without_checkout.asked) == 4
    assert load_json(records.result_file(records.RESULTS / "bench.json"), schema="capslit.bench/1")


def test_a_record_of_another_version_or_no_network_is_one_error(without_checkout, monkeypatch):
    path = records.RESULTS / "figure2-mnist.json"
    served = without_checkout.served / "main" / "results"
    served.unlink()
    served.mkdir()
    (served / "figure2-mnist.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"figure2-mnist.json.*has the hash .* instead of"):
        records.load_record(path)
    assert not path.exists()
    monkeypatch.setattr(records, "ADDRESS", "http://127.0.0.1:9")
    words = f"cannot find results-{project.VERSION}/figure2-mnist.json"
    remedy = "Put the file into one of .*or connect to the network"
    with pytest.raises(DatasetError, match=f"{words}.*{remedy}"):
        records.load_record(path)


def test_other_files_are_not_asked_for(without_checkout, tmp_path):
    for path in (records.RESULTS / "none.json", tmp_path / "figure2-mnist.json"):
        assert records.result_file(path) == path
    assert not without_checkout.asked


def test_the_package_knows_the_records_of_the_checkout():
    text = registry.REGISTRY.read_text("utf-8")
    assert text == registry.lines(), "python book/registry.py"
    assert records.ADDRESS == project.SOURCE.replace("github.com", "raw.githubusercontent.com")
    assert records.RESULTS == ROOT / "results"
