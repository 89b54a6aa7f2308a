"""Put the whole site together: python book/publish.py FOLDER [ARCHIVES]

The built book goes to FOLDER/latest. Each archive of a release (capslit-X.Y.Z-book.zip, see
archive.py) in the folder ARCHIVES goes to FOLDER/vX.Y.Z. At the root are a page that leads to
latest, the list of versions, the page for addresses that lead nowhere, and what search engines ask
for.
"""

import re
import shutil
import sys
import zipfile
from pathlib import Path

from paths import HTML
from project import LATEST, SETTINGS, SITE

KEPT = 10  # versions, the newest patch of each minor version: a site may have 1 GB
ROOT_FILES = ("404.html", "robots.txt", "sitemap.xml")
PAGE = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{SETTINGS["title"]}</title>
"""
REDIRECT = f"""{PAGE}<link rel="canonical" href="{LATEST}nbs/index.html">
<meta http-equiv="refresh" content="0; url=latest/nbs/index.html">
<p><a href="latest/nbs/index.html">The book</a></p>
"""


def versions(folder):
    """The archives to publish, newest first: {(X, Y, Z): path}, the newest of each X.Y."""
    newest = {}
    for path in folder.glob(f"{SETTINGS['lib_name']}-*-book.zip"):
        if match := re.search(r"-(\d+)\.(\d+)\.(\d+)-book\.zip$", path.name):
            version = tuple(map(int, match.groups()))
            newest[version[:2]] = max(newest.get(version[:2], ()), (version, path))
    return dict(sorted(newest.values(), reverse=True)[:KEPT])


def unpack(path, target):
    """Unpack an archive without the folder that it has at its root."""
    with zipfile.ZipFile(path) as file:
        file.extractall(target.parent)
        (home,) = {name.split("/")[0] for name in file.namelist()}
    (target.parent / home).rename(target)


def publish(site, archives=None, html=HTML):
    """Write the site into a folder, which is emptied before."""
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(html, site / "latest")
    for name in ROOT_FILES:
        shutil.copyfile(html / name, site / name)
    links = ['<li><a href="latest/nbs/index.html">latest</a>, the main branch</li>']
    for version, path in versions(archives).items() if archives else ():
        name = "v{}.{}.{}".format(*version)
        unpack(path, site / name)
        links.append(f'<li><a href="{name}/nbs/index.html">{name}</a></li>')
    (site / "index.html").write_text(REDIRECT, encoding="utf-8")
    page = f"{PAGE}<h1>Versions of the book</h1>\n<ul>{''.join(links)}</ul>\n"
    (site / "versions.html").write_text(page, encoding="utf-8")
    (site / ".nojekyll").touch()  # folders that begin with _ are served as they are


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None)
    print(f"{sys.argv[1]}, to be served at {SITE}")
