"""The built book as one file that is read without a network: python book/archive.py [FILE.zip].
Unpack it and open capslit-X.Y.Z-book/index.html.
"""

import sys
import zipfile
from pathlib import Path

from paths import HTML, ROOT, whole
from project import SETTINGS, VERSION

NAME = f"{SETTINGS['lib_name']}-{VERSION}-book"
DAY = (1980, 1, 1, 0, 0, 0)  # the same pages give the same file


def archive(target, html=HTML):
    """Write the book to a zip file; SystemExit if it is not built."""
    if not (html / "nbs" / "index.html").is_file():
        sys.exit("the book is not built: make book")
    files = (path for path in sorted(html.rglob("*")) if path.is_file())
    with whole(target) as scratch, zipfile.ZipFile(scratch, "w", compresslevel=9) as archive:
        for path in files:
            if path.name not in (".buildinfo", "404.html"):
                entry = zipfile.ZipInfo(f"{NAME}/{path.relative_to(html).as_posix()}", DAY)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


if __name__ == "__main__":
    target = archive(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / f"{NAME}.zip")
    print(f"{target} ({target.stat().st_size / 2**20:.1f} MiB)")
