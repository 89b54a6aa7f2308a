"""Ask whether the outside addresses that the built book and the texts link to still answer: python
book/links.py [--list]

An address is reported if it is gone (404, 410) or has no server, after three attempts; servers that
refuse programs (401, 403, 405, 429 …) say nothing of their pages. Exit status 1 if any is gone.
--list only names the addresses.
"""

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from urllib.error import HTTPError
from urllib.parse import urldefrag, urlsplit
from urllib.request import Request, urlopen

from project import HTML, ROOT, SITE, SOURCE

TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff")
MADE = (
    SITE,
    *(f"{SOURCE}/{what}" for what in ("edit/", "commit/", "issues/new", "compare/")),
    "https://colab.research.google.com/",
    "https://mybinder.org/",
)  # for each page, by a rule
GONE = (404, 410)
AGENT = {"User-Agent": f"Mozilla/5.0 (compatible; link check of {SOURCE})"}


class Anchors(HTMLParser):
    """Collects the addresses that a page links to."""

    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "a" and (address := dict(attributes).get("href")):
            self.found.add(address)


def outside(addresses):
    """Those that lead to other sites, without the place in the page."""
    found = {
        urldefrag(address)[0]
        for address in addresses
        if urlsplit(address).scheme in ("http", "https") and urlsplit(address).hostname
    }
    return {address for address in found if not address.startswith(MADE)}


def collect(html=HTML):
    """{address: pages that link to it}, of the built book and of the texts at the root."""
    found = {}
    for path in sorted(html.rglob("*.html")):
        if "_static" not in path.relative_to(html).parts:
            for address in outside(Anchors(path.read_text(encoding="utf-8")).found):
                found.setdefault(address, []).append(path.relative_to(html).as_posix())
    for name in TEXTS:
        for address in outside(
            re.findall(r"https?://[^\s)>\"'`\]]+", (ROOT / name).read_text(encoding="utf-8"))
        ):
            found.setdefault(address.rstrip(".,;"), []).append(name)
    return found


def problem(address, attempts=3, pause=5):
    """What is wrong with an address, "" if nothing is."""
    for attempt in range(attempts):
        try:
            with urlopen(Request(address, headers=AGENT), timeout=30):
                return ""
        except HTTPError as error:
            if error.code not in GONE and error.code < 500:
                return ""
            said = f"{error.code} {error.reason}"
        except (OSError, ValueError) as error:
            said = f"{type(error).__name__}: {getattr(error, 'reason', error)}"
        if attempt + 1 < attempts:
            time.sleep(pause * 2**attempt)
    return said


def check(found):
    """The lines of a report on the addresses that are gone."""
    with ThreadPoolExecutor(8) as pool:
        said = dict(zip(found, pool.map(problem, found)))
    return [
        f"{said[address]}: {address} (in {', '.join(pages[:3])}{' …' if len(pages) > 3 else ''})"
        for address, pages in sorted(found.items())
        if said[address]
    ]


if __name__ == "__main__":
    found = collect()
    if sys.argv[1:] == ["--list"]:
        print("\n".join(sorted(found)))
    else:
        report = check(found)
        print("\n".join(report or [f"{len(found)} addresses answer"]))
        sys.exit(bool(report))
