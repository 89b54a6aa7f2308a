"""What the project says of itself, once for all scripts: settings.ini, _toc.yml and git."""

import subprocess
from configparser import ConfigParser
from functools import cache

import yaml
from paths import ROOT

_config = ConfigParser(delimiters=["="])
_config.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = _config["DEFAULT"]
VERSION = SETTINGS["version"]
SOURCE = SETTINGS["git_url"]  # the repository
SITE = SETTINGS["doc_host"] + SETTINGS["doc_baseurl"]  # with the folders of all versions
LATEST = f"{SITE}latest/"  # the book of the main branch, whose addresses stay


@cache
def contents():
    """Parts and pages of the book: [(part, [page, …]), …]; the first part has no name."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [(part["caption"], _pages(part["chapters"])) for part in toc["parts"]]
    return [("", [toc["root"]]), *parts]


def _pages(entries):
    below = (_pages(entry.get("sections", [])) for entry in entries)
    return [page for entry, more in zip(entries, below) for page in (entry["file"], *more)]


def git(*words):
    """What git says, or "" where there is no checkout."""
    try:
        return subprocess.run(
            ["git", "-C", ROOT, *words], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def commit():
    """Hash and date (2026-11-24) of the commit that is checked out; None without git."""
    words = git("log", "-1", "--format=%H %cs").split()
    return tuple(words) if len(words) == 2 else None


@cache
def version_folder():
    """The folder of this version on the site: vX.Y.Z where that tag is checked out, else latest."""
    tag = f"v{VERSION}"
    return tag if tag in git("tag", "--points-at", "HEAD").split() else "latest"
