"""The built book in a browser whose network is cut off: where it lies, who serves it, and a reader
with one window.
"""

import functools
import http.server
import importlib.util
import json
import re
import shutil
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))
BOOK = ROOT / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)


PATHS = (path.relative_to(BOOK).as_posix() for path in sorted(BOOK.rglob("*.html")))
HTML = [name for name in PATHS if not name.startswith("_static")]
PAGES = [name for name in HTML if name not in ("index.html", "404.html")]
CHAPTERS = [name for name in PAGES if name.startswith("nbs/")]


@functools.cache
def html(name):
    """The text of a page."""
    return (BOOK / name).read_text(encoding="utf-8")


@functools.cache
def anchors(name):
    """The places in a page that links may lead to."""
    return set(re.findall(r"""\sid=["']([^"']+)["']""", html(name)))


needs_built_book = [
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
    pytest.mark.skipif(not PAGES, reason="the book is not built: make book"),
]

# no other machine is reached, and none but the browser is in the way of what a page loads
WAIT = 600_000  # milliseconds for whatever a page does: a bound against hanging, not a measurement
CUT_OFF = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served(folder, handler=Handler):
    """The address of a server of a folder on this machine."""
    handler = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def site():
    with served(BOOK) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", CUT_OFF], timeout=WAIT
        )
        yield browser
        browser.close()


# all is drawn
REST = """() => document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(() => setTimeout(done, 0)))))"""


class Reader:
    """One window, in which everything may take as long as on a busy machine; keeps what is loaded,
    and what goes wrong. Options are those of the browser's context.
    """

    def __init__(self, browser, site, width=1280, theme="light", **options):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, **options
        )
        self.context.set_default_timeout(WAIT)
        self.context.add_init_script(
            f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')"
        )
        self.site, self.errors, self.requests, self.loaded = site, [], [], {}
        self.page = self.context.new_page()
        self.page.on("request", self.hear_request)
        self.page.on("console", self.hear_console)
        self.page.on("pageerror", lambda e: self.errors.append(f"exception: {e}"))
        self.page.on("response", self.hear_response)

    def hear_request(self, request):
        if not request.url.startswith((self.site, "data:", "blob:")):
            self.requests.append(request.url)

    def hear_console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def hear_response(self, response):
        size = int(response.headers.get("content-length", 0))
        self.loaded[response.url.removeprefix(self.site)] = size
        if response.status >= 400:
            self.errors.append(f"{response.status} {response.url}")

    def show(self, width, theme):
        """Make the window as wide, and the page light or dark, as if it had been opened so."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=theme)
        self.page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        self.page.evaluate(REST)

    def open(self, name):
        """A page when it has come to rest."""
        self.page.goto(self.site + name, wait_until="load")
        self.page.evaluate(REST)
        return self.page


CHECKS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
AXE = importlib.util.find_spec("axe_playwright_python")
VIEWS = {"desk-light": (1280, "light"), "phone-dark": (390, "dark")}


class Visits:
    """visits(view, name): what is found in a page, in one of two views. Each page is opened once,
    whichever test asks first, in whichever process, and then the window becomes narrow and dark.
    """

    def __init__(self, browser, site, once):
        self.once, self.reader = once, Reader(browser, site, *VIEWS["desk-light"])

    def __call__(self, view, name):
        folder = self.once(
            f"visit-{name.replace('/', '-')}",
            lambda folder: (folder / "found.json").write_text(json.dumps(self.visit(name))),
        )
        return json.loads((folder / "found.json").read_text())[view]

    def visit(self, name):
        reader, found = self.reader, {}
        reader.page.goto("about:blank")  # so that the last page is not laid out once more
        reader.show(*VIEWS["desk-light"])
        reader.errors.clear()
        reader.requests.clear()
        page = reader.open(name)
        for view, (width, theme) in VIEWS.items():
            reader.show(width, theme)
            found[view] = {
                check: page.evaluate(f"() => ({CHECKS}).{check}()")
                for check in ("fetch", "theme", "troubles", "reading", "extent", "type", "live")
            }
        found[view]["explored"] = page.evaluate(f"() => ({CHECKS}).explored()")
        seen = {"errors": list(reader.errors), "requests": list(reader.requests)}
        if AXE:  # last, for it changes the page, and asks for style sheets in its own way
            found[view]["axe"] = audit(page)
        return {view: found[view] | seen for view in VIEWS}


def audit(page, only=None):
    """What axe finds in a page, or what one of its rules finds."""
    page.evaluate(REST)
    page.add_script_tag(path=Path(AXE.origin).with_name("axe.min.js"))
    return page.evaluate(f"only => ({CHECKS}).axe(only)", only)


@pytest.fixture(scope="module")
def visits(browser, site, once):
    visits = Visits(browser, site, once)
    yield visits
    visits.reader.context.close()


@pytest.fixture(scope="module")
def reader(browser, site):
    "A reader at a desk."
    reader = Reader(browser, site)
    yield reader
    reader.context.close()


@pytest.fixture
def readers(browser, site):
    """readers(options): another reader, who has never been here; gone after the test."""
    made = []

    def make(*view, site=site, **options):
        made.append(Reader(browser, site, *view, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.context.close()


def state(page, part):
    """What a live part says of itself."""
    return page.evaluate("part => capslit.parts[part].state()", part)
