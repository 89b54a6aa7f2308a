"""The built book in a browser whose network is cut off: where it lies, who serves it, and a reader
with one window.
"""

import functools
import http.server
import importlib.util
import json
import shutil
import threading
from pathlib import Path

import pytest

BOOK = Path(__file__).resolve().parent.parent / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PAGES = sorted(
    p.relative_to(BOOK).as_posix()
    for p in BOOK.rglob("*.html")
    if "_static" not in p.parts and p.name not in ("index.html", "404.html")
) + [p.relative_to(BOOK).as_posix() for p in BOOK.glob("nbs/index.html")]
CHAPTERS = [p for p in PAGES if p.startswith("nbs/")]

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


@pytest.fixture(scope="module")
def site():
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(BOOK))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", CUT_OFF], timeout=WAIT
        )
        yield PatientBrowser(browser)
        browser.close()


class PatientBrowser:
    "A browser in whose windows everything may take as long as on a busy machine."

    def __init__(self, browser):
        self.browser = browser

    def new_context(self, **options):
        context = self.browser.new_context(**options)
        context.set_default_timeout(WAIT)
        return context

    def new_page(self):
        page = self.browser.new_page()
        page.set_default_timeout(WAIT)
        return page


class Reader:
    """One page opened in one window; keeps what went wrong while it loaded."""

    def __init__(self, browser, site, width, theme):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme
        )
        self.context.add_init_script(
            f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')"
        )
        self.site, self.errors, self.requests = site, [], []
        self.page = self.context.new_page()
        self.page.on(
            "request",
            lambda r: (
                self.requests.append(r.url)
                if not r.url.startswith((site, "data:", "blob:"))
                else None
            ),
        )
        self.page.on(
            "console",
            lambda m: (
                self.errors.append(f"{m.type}: {m.text}")
                if m.type in ("error", "warning")
                else None
            ),
        )
        self.page.on("pageerror", lambda e: self.errors.append(f"exception: {e}"))
        self.page.on(
            "response",
            lambda r: self.errors.append(f"{r.status} {r.url}") if r.status >= 400 else None,
        )

    def open(self, name):
        self.page.goto(self.site + name, wait_until="load")
        self.page.evaluate(
            "() => window.MathJax && MathJax.startup"
            " && MathJax.startup.promise.then(() => MathJax.startup.document.lazyTypesetAll())"
        )
        self.page.evaluate(
            "() => document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() =>"
            " setTimeout(done, 0))))"
        )
        return self.page


CHECKS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
AXE = importlib.util.find_spec("axe_playwright_python")
VIEWS = {"desk-light": (1280, "light"), "phone-dark": (390, "dark")}


class Visits:
    """visits(view, name): what is found in a page, in one of two views. Each page is opened once in
    each, whichever test asks first, in whichever process.
    """

    def __init__(self, browser, site, once):
        self.browser, self.site, self.once, self.readers = browser, site, once, {}

    def __call__(self, view, name):
        folder = self.once(
            f"visit-{view}-{name.replace('/', '-')}",
            lambda folder: self.visit(view, name, folder / "found.json"),
        )
        return json.loads((folder / "found.json").read_text(encoding="utf-8"))

    def visit(self, view, name, path):
        if view not in self.readers:
            self.readers[view] = Reader(self.browser, self.site, *VIEWS[view])
        reader = self.readers[view]
        reader.errors.clear()
        reader.requests.clear()
        page = reader.open(name)
        found = {
            "errors": list(reader.errors),
            "requests": list(reader.requests),
            "theme": page.locator("html").get_attribute("data-theme"),
        }
        for check in ("fetch", "troubles", "reading", "type", "live"):
            found[check] = page.evaluate(f"() => ({CHECKS}).{check}()")
        if AXE and view == "phone-dark":  # last, for it changes the page
            found["axe"] = audit(page)
        path.write_text(json.dumps(found), encoding="utf-8")


def audit(page, only=None):
    """What axe finds in a page, or what one of its rules finds."""
    page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    page.add_script_tag(path=Path(AXE.origin).with_name("axe.min.js"))
    return page.evaluate(f"only => ({CHECKS}).axe(only)", only)


@pytest.fixture(scope="module")
def visits(browser, site, once):
    visits = Visits(browser, site, once)
    yield visits
    for reader in visits.readers.values():
        reader.context.close()


@pytest.fixture(scope="module")
def reader(browser, site):
    "A reader at a desk."
    reader = Reader(browser, site, 1280, "light")
    yield reader
    reader.context.close()
