"""The workflows of the public forge: what they run exists, is pinned, may do no more than it must,
and does what it is meant to where it can run here.
"""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import PATIENCE, together
from test_house import ROOT, read

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WRITES = {  # all that any job may write, and why
    ("book.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("book.yml", "notebooks"): {"contents": "write"},  # pushes a branch
    ("release.yml", "index"): {"id-token": "write"},  # trusted publishing
    ("release.yml", "release"): {"contents": "write"},  # makes a release
    ("release.yml", "book"): {
        "contents": "write",
        "pages": "write",
        "id-token": "write",
    },  # calls book.yml
}
TARGETS = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def load(name):
    return yaml.load(
        (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"), Loader=yaml.BaseLoader
    )  # "on" stays a word


def jobs():
    return [
        (path.name, name, job)
        for path in WORKFLOWS
        for name, job in load(path.name)["jobs"].items()
    ]


def steps():
    return [(name, job, step) for name, job, entry in jobs() for step in entry.get("steps", [])]


def script(name, job, text):
    "The commands of the step of a job that mention a text."
    (found,) = [
        step["run"]
        for n, j, step in steps()
        if (n, j) == (name, job) and text in step.get("run", "")
    ]
    return found


def bash(commands, folder, **environ):
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", commands],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_there_is_a_workflow_for_each_purpose():
    assert [path.name for path in WORKFLOWS] == ["book.yml", "ci.yml", "links.yml", "release.yml"]
    assert {"push", "pull_request"} <= set(load("ci.yml")["on"]) and load("release.yml")["on"] == {
        "push": {"tags": ["v*"]}
    }
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", load("links.yml")["on"]["schedule"][0]["cron"]), (
        "once a week"
    )


def test_actions_are_named_by_the_hash_of_a_commit():
    for path in WORKFLOWS:
        for used, version in re.findall(
            r"uses: (\S+)(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if used.startswith("./"):
                assert (ROOT / used).is_file()
            else:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used) and re.fullmatch(
                    r"  # v\d+\.\d+\.\d+", version
                ), f"{path.name}: {used}{version}"
    hashes = [used for _, _, step in steps() if (used := step.get("uses"))]
    assert len(set(hashes)) == len({used.split("@")[0] for used in hashes}), (
        "one action, two versions"
    )


def test_jobs_end_and_may_do_no_more_than_they_must():
    for path in WORKFLOWS:
        assert load(path.name)["permissions"] == {"contents": "read"}
    found = {
        (name, job): entry["permissions"] for name, job, entry in jobs() if "permissions" in entry
    }
    assert found == WRITES
    assert all("timeout-minutes" in entry for _, _, entry in jobs() if "uses" not in entry)
    for name, job, step in steps():
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] == (
                "true" if (name, job) == ("book.yml", "notebooks") else "false"
            )


@together("name, job, step", [s for s in steps() if "run" in s[2]])
def test_what_a_step_runs_exists(name, job, step):
    commands = step["run"]
    assert bash(f"set -n\n{commands}", ROOT).returncode == 0, "not the syntax of bash"
    assert "${{" not in commands, "an expression within a command is a hole: hand it over in env"
    for line in commands.splitlines():
        program, *words = line.replace("&&", " ").split()
        if program == "make":
            targets = [word for word in words if "=" not in word]
            assert targets and set(targets) <= TARGETS, line
        elif program.endswith("/python"):
            assert program == ".venv/bin/python" and (ROOT / words[0]).is_file(), line
        elif "/" in program:
            assert os.access(ROOT / program, os.X_OK), line
        else:
            assert program in ("gh", "git", "mkdir", "pipx", "done"), line


def test_versions_of_python_are_the_same_everywhere():
    versions = load("ci.yml")["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert versions == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', read("setup.py"))
    assert f"{versions[0]} to {versions[-1]}" in read(
        "README.md"
    ) and f"{versions[0]} to {versions[-1]}" in read("Makefile")


def test_the_check_runs_on_the_python_that_it_is_told(tmp_path):
    said = bash("make -n venv", ROOT, PYTHON="python3.99", VENV=str(tmp_path / "venv")).stdout
    assert f"python3.99 -m venv --clear {tmp_path}/venv" in said
    assert not re.search(r"^\s*python3", read(".ci/run"), re.MULTILINE), (
        ".ci/run uses only make and the environment that it made"
    )


def test_actionlint_finds_nothing():
    if not shutil.which("actionlint"):
        pytest.skip("actionlint is not installed; the job `workflows` of ci.yml runs it")
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


GH = """#!/usr/bin/env bash
echo "$@" >> "$CALLS"
case "$1 $2" in
  "release list") printf 'v0.3.0\\nv0.2.0\\nv0.1.0\\n' ;;
  "release download") [ "$3" != v0.1.0 ] || exit 1; touch "$5/capslit-${3#v}-book.zip" ;;
esac
"""


@pytest.fixture
def gh(tmp_path):
    "A folder with a program `gh` that notes what it is asked, and the file of its notes."
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(GH)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}


def test_the_books_of_all_releases_are_fetched(tmp_path, gh):
    done = bash(script("book.yml", "build", "gh release"), tmp_path, **gh)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "archives").iterdir()) == [
        "capslit-0.2.0-book.zip",
        "capslit-0.3.0-book.zip",
    ]
    assert "v0.1.0 has no book" in done.stdout


def test_a_release_has_notes_distribution_and_book(tmp_path, gh):
    kept = {f"release/_build/capslit-9.{kind}" for kind in ("zip", "pdf")}
    kept |= {"dist/a.whl", "dist/a.tar.gz", "release/notes.md"}
    for name in kept:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    commands = script("release.yml", "release", "gh release create")
    assert bash(commands, tmp_path, GITHUB_REF_NAME="v9.9.9", **gh).returncode == 0
    said = Path(gh["CALLS"]).read_text().split()
    assert said[:3] == ["release", "create", "v9.9.9"] and "9.9.9" in said and kept <= set(said)
