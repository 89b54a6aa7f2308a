"""The notes of a release, from CHANGELOG.md, as Markdown: python book/notes.py [X.Y.Z]. Fails if
that version is not ready to be released.

With --check TAG: also fails if the tag is not that of the version in settings.ini.
"""

import re
import sys

from paths import ROOT
from project import VERSION


def notes(version, text):
    """The section of a version in a text in the form of Keep a Changelog; ValueError unless it is
    there once, dated and not empty.
    """
    heading = rf"^## \[{re.escape(version)}\] - (\S+)\n"
    sections = re.findall(rf"{heading}(.*?)(?=^## |^\[[^]]+\]: |\Z)", text, re.M | re.S)
    if len(sections) != 1:
        raise ValueError(
            f"CHANGELOG.md has {len(sections)} sections '## [{version}] - DATE': give the entries"
            " of [Unreleased] that heading"
        )
    day, body = sections[0]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        raise ValueError(f"CHANGELOG.md: the date of {version} must be like 2026-01-31, not {day}")
    if not body.strip():
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    return body.strip() + "\n"


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--check"] and words[1:] != [f"v{VERSION}"]:
        sys.exit(f"the tag {' '.join(words[1:])} is not v{VERSION}, the version in settings.ini")
    version = VERSION if words[:1] in ([], ["--check"]) else words[0]
    try:
        print(notes(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")), end="")
    except ValueError as error:
        sys.exit(str(error))
