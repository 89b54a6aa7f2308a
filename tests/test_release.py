"""What a release is made of: notes, distribution, archive, site; citation and metadata in step with
settings.ini; the check of outside links.
"""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import PATIENCE
import yaml
from packaging.metadata import Metadata
from test_house import ROOT, read

sys.path.insert(0, str(ROOT / "book"))
import archive  # noqa: E402
import notes  # noqa: E402
import project  # noqa: E402
import publish  # noqa: E402

SETTINGS = project.SETTINGS


# Notes


def test_changelog_has_the_common_form():
    text = read("CHANGELOG.md")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]" and all(
        re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", h) for h in headings[1:]
    ), headings
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
    for heading in re.findall(r"^## \[([^]]+)\]", text, re.MULTILINE):
        assert f"\n[{heading}]: {project.SOURCE}/" in text, f"{heading} has no address at the end"
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert len(set(kinds)) == len(kinds)


def test_notes_of_the_next_release_are_what_stands_under_unreleased():
    text = read("CHANGELOG.md")
    with pytest.raises(ValueError, match=r"0 sections '## \[9.9.9\] - DATE'"):
        notes.notes("9.9.9", text)
    released = text.replace("## [Unreleased]", "## [9.9.9] - 2030-01-31")
    said = notes.notes("9.9.9", released)
    assert (
        "### Added\n\n* " in said
        and "\n[Unreleased]" not in said
        and "## [" not in said.replace("### ", "")
    )
    body = text.split("## [Unreleased]\n", 1)[1].split("\n[Unreleased]:")[0].split("\n## ")[0]
    assert said.strip() == body.strip(), "all of it, and nothing else"
    with pytest.raises(ValueError, match="the date of 9.9.9 must be like"):
        notes.notes("9.9.9", text.replace("## [Unreleased]", "## [9.9.9] - soon"))
    with pytest.raises(ValueError, match="says nothing"):
        notes.notes(
            "1.0.0", "# Changes\n\n## [1.0.0] - 2030-01-31\n\n## [0.9.0] - 2029-01-31\n\n* it\n"
        )


def test_a_tag_of_another_version_is_refused():
    done = subprocess.run(
        [sys.executable, ROOT / "book" / "notes.py", "--check", "v9.9.9"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and f"the tag v9.9.9 is not v{SETTINGS['version']}" in done.stderr


# Distribution


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution, built from a copy, the wheel from the source
    distribution.
    """
    copy, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("capslit", "book", "nbs", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, copy],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))


def test_the_distribution_says_what_it_is(built):
    wheel, source = built
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (where,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(file.read(where), validate=True)
    assert (metadata.name, str(metadata.version), metadata.license_expression) == (
        SETTINGS["lib_name"],
        SETTINGS["version"],
        "Apache-2.0",
    )
    assert list(metadata.project_urls) == ["Documentation", "Source", "Changelog", "Issues"]
    assert all(
        address.startswith((project.SITE, project.SOURCE))
        for address in metadata.project_urls.values()
    )
    assert (
        str(metadata.requires_python) == f">={SETTINGS['min_python']}"
        and "Typing :: Typed" in metadata.classifiers
    )
    assert metadata.description_content_type == "text/markdown"
    assert {
        "capslit/py.typed",
        "capslit/__init__.pyi",
        "capslit/experiments/results.sha256",
    } <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [
        name
        for name in names
        if not name.startswith(("capslit/", f"capslit-{SETTINGS['version']}.dist-info/"))
    ]
    with tarfile.open(source) as file:
        assert f"capslit-{SETTINGS['version']}/settings.ini" in file.getnames()


def test_links_of_the_readme_lead_somewhere_from_the_index(monkeypatch):
    import setuptools

    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    targets = re.findall(r"\]\(([^)\s]+)\)", given["long_description"])
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", read("README.md"))) and all(
        target.startswith("https://") for target in targets
    ), targets
    tag = f"v{SETTINGS['version']}"
    for target in targets:
        if target.startswith(f"{project.SITE}{tag}/"):
            assert (
                (ROOT / target.removeprefix(f"{project.SITE}{tag}/"))
                .with_suffix(".ipynb")
                .is_file()
            ), target
        elif f"/{tag}/" in target:
            assert (ROOT / target.split(f"/{tag}/")[1]).is_file(), target
    assert any(target.endswith("nbs/images/poses.png") and "raw" in target for target in targets)


def test_badges_are_those_of_this_project():
    badges = re.findall(r"\[!\[([^]]+)\]\(([^)]+)\)\]\(([^)]+)\)", read("README.md"))
    assert [name for name, _, _ in badges] == [
        "CI",
        "Book",
        "Python 3.11 to 3.13",
        "Licence: Apache-2.0",
    ]
    for _, picture, target in badges:
        if found := re.fullmatch(
            rf"{re.escape(project.SOURCE)}/actions/workflows/(\w+\.yml)/badge.svg", picture
        ):
            assert (ROOT / ".github" / "workflows" / found[1]).is_file()
        assert target.startswith((project.SOURCE, project.SITE))


# Citation


def test_citation_and_deposit_are_in_step():
    citation, deposit = yaml.safe_load(read("CITATION.cff")), json.loads(read(".zenodo.json"))
    assert citation["cff-version"] == "1.2.0" and {
        "message",
        "title",
        "authors",
        "abstract",
    } <= set(citation)
    assert citation["version"] == deposit["version"] == SETTINGS["version"]
    assert citation["license"] == deposit["license"] == "Apache-2.0" and "Apache License" in read(
        "LICENSE"
    )
    assert citation["title"] == deposit["title"] and citation["keywords"] == deposit["keywords"]
    assert (
        [author["name"] for author in citation["authors"]]
        == [author["name"] for author in deposit["creators"]]
        == [SETTINGS["author"]]
    )
    assert citation["repository-code"] == project.SOURCE and citation["url"] == project.SITE
    related = {entry["identifier"] for entry in deposit["related_identifiers"]}
    assert {citation["references"][0]["doi"], project.SOURCE, project.SITE} == related


# Archive and site


def tiny_book(folder, word):
    for name in (
        "nbs/index.html",
        "nbs/capsules/definition.html",
        "404.html",
        "robots.txt",
        "sitemap.xml",
        "index.html",
        "_static/a.css",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{word} {name}")
    return folder


def test_an_archive_holds_the_book_and_is_the_same_each_time(tmp_path):
    html = tiny_book(tmp_path / "html", "book")
    one, two = (
        archive.archive(tmp_path / "one.zip", html),
        archive.archive(tmp_path / "deep" / "two.zip", html),
    )
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as file:
        assert f"{archive.NAME}/nbs/index.html" in file.namelist() and not any(
            name.endswith("404.html") for name in file.namelist()
        )
    with pytest.raises(SystemExit, match="make book"):
        archive.archive(tmp_path / "none.zip", tmp_path / "nothing")


def test_a_site_has_a_folder_for_each_version(tmp_path, monkeypatch):
    archives = tmp_path / "archives"
    for version in ("0.2.0", "0.2.1", "0.10.0", "1.0.0"):
        monkeypatch.setattr(archive, "NAME", f"capslit-{version}-book")
        archive.archive(
            archives / f"capslit-{version}-book.zip", tiny_book(tmp_path / version, version)
        )
    (archives / "capslit-x-book.zip").touch()
    site = tmp_path / "site"
    (site / "v0.0.1").mkdir(parents=True)
    publish.publish(site, archives, tiny_book(tmp_path / "html", "newest"))
    assert sorted(p.name for p in site.iterdir()) == [
        ".nojekyll",
        "404.html",
        "index.html",
        "latest",
        "robots.txt",
        "sitemap.xml",
        "v0.10.0",
        "v0.2.1",
        "v1.0.0",
        "versions.html",
    ]
    assert (site / "v0.2.1" / "nbs" / "index.html").read_text().startswith("0.2.1") and (
        site / "latest" / "nbs" / "index.html"
    ).read_text().startswith("newest")
    assert 'url=latest/nbs/index.html"' in (site / "index.html").read_text()
    listed = re.findall(r'href="([^"]+)"', (site / "versions.html").read_text())
    assert [path.split("/")[0] for path in listed] == [
        "latest",
        "v1.0.0",
        "v0.10.0",
        "v0.2.1",
    ] and all((site / path).is_file() for path in listed)
    publish.publish(tmp_path / "alone", html=tmp_path / "html")
    assert (tmp_path / "alone" / "latest" / "nbs" / "index.html").is_file()
