"""The live parts that take steps of an algorithm: their numbers are the package's, and their buttons do what they say."""
import pytest
from built_book import Reader, needs_built_book

pytestmark = needs_built_book

FARTHEST = """(a, b) => { [a, b] = [a, b].map(x => [x].flat(Infinity).map(Number));
    return a.length === b.length ? Math.max(...a.map((value, k) => Math.abs(value - b[k]))) : Infinity; }"""


@pytest.fixture(scope="module")
def reader(browser, site):
    reader = Reader(browser, site, 1280, "light")
    reader.context.add_init_script(f"window.farthest = {FARTHEST}")
    reader.page.emulate_media(reduced_motion="reduce")
    yield reader
    reader.context.close()


def press(page, part, name):
    page.locator(f"#live-{part}").get_by_role("button", name=name, exact=True).click()


# Capsule regression in the plane

def test_steps_of_capsule_regression_are_the_package_s(reader):
    page = reader.open("nbs/capsules/em_steps.html")
    gaps = page.evaluate("""() => {
        const part = capslit.parts["em-plane"], data = capslit.data["em-plane"];
        return data.check.map(({examples, dim, weights, log_likelihood}) => {
            const {x, y} = data.examples[examples], X = x.map(row => [...row, 1]), L = part.factorise(X), path = [];
            let W = data.start.slice(0, weights.length).map(capsule => capsule.slice(0, dim));
            for (let k = 0; ; k++) {
                const {means, logLikelihood} = part.eStep(W, X, y);
                path.push(logLikelihood);
                if (path.length === log_likelihood.length) return Math.max(farthest(W, weights), farthest(path, log_likelihood));
                W = part.mStep(L, means, X);
            }
        });
    }""")
    assert len(gaps) == 8 and max(gaps) < 1e-6


def test_buttons_take_the_steps_of_capsule_regression(reader):
    page = reader.open("nbs/capsules/em_steps.html")
    state = "() => { const {path, means} = capslit.parts['em-plane'].state(); return [path, Boolean(means)]; }"
    (first,), waiting = page.evaluate(state)
    assert not waiting and page.locator("#live-em-plane button", has_text="M-step").is_disabled()
    press(page, "em-plane", "E-step")
    assert page.evaluate(state) == [[first], True]
    press(page, "em-plane", "M-step")
    path, waiting = page.evaluate(state)
    assert not waiting and len(path) == 2 and path[1] > first
    press(page, "em-plane", "Run")
    path, _ = page.evaluate(state)
    assert len(path) > 10 and all(after > before for before, after in zip(path, path[1:]))
    page.locator("#live-em-plane select").first.select_option("1")
    assert len(page.evaluate(state)[0]) == 1
