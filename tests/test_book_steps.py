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


# A Gaussian mixture

def test_steps_of_a_mixture_are_the_package_s(reader):
    page = reader.open("nbs/mixtures/gaussian.html")
    gaps = page.evaluate("""() => {
        const {eStep, mStep} = capslit.parts["gaussian-steps"], {points, added, check} = capslit.data["gaussian-steps"];
        return check.map(({kind, means, after, path}) => {
            let components = means.map(mean => ({weight: 1 / means.length, mean, covariance: [[1, 0], [0, 1]]}));
            const heights = [];
            for (let k = 0; ; k++) {
                const {shares, logDensity} = eStep(components, points);
                heights.push(logDensity);
                if (heights.length === path.length) break;
                components = mStep(components, shares, points, kind === "diag", added);
            }
            return Math.max(farthest(heights, path), farthest(components.map(c => c.weight), after.weights),
                            farthest(components.map(c => c.mean), after.means), farthest(components.map(c => c.covariance), after.covariances));
        });
    }""")
    assert len(gaps) == 6 and max(gaps) < 1e-6


def test_a_mean_is_moved_by_the_arrow_keys(reader):
    page = reader.open("nbs/mixtures/gaussian.html")
    state = "() => capslit.parts['gaussian-steps'].state()"
    press(page, "gaussian-steps", "E-step")
    before = page.evaluate(state)
    assert before["shares"] and len(before["components"]) == 3
    handle = page.locator("#live-gaussian-steps .handle").nth(1)
    handle.focus()
    page.keyboard.press("ArrowUp")
    after = page.evaluate(state)
    assert after["shares"] is None
    assert [b["mean"] for b in before["components"][::2]] == [a["mean"] for a in after["components"][::2]]
    assert after["components"][1]["mean"][1] > before["components"][1]["mean"][1]
    press(page, "gaussian-steps", "Run")
    path = page.evaluate(state)["path"]
    assert len(path) > 5 and path[-1] > path[0]


# A table of one's own

def test_learning_from_iris_is_the_package_s(reader):
    page = reader.open("nbs/practice/use.html")
    gaps = page.evaluate("""() => {
        const part = capslit.parts["your-data"], {tables, check} = capslit.data["your-data"];
        const {X: raw, y} = part.encode(part.readTable(tables.iris), "class"), X = part.standardise(raw, raw.map((_, l) => l));
        return [farthest(X.slice(0, 3), check.inputs), farthest(part.learn(X, y, check.start, check.alpha, check.steps), check.weights)];
    }""")
    assert max(gaps) < 1e-6


def choose(page, text):
    page.locator("#live-your-data input[type=file]").set_input_files({"name": "table.csv", "mimeType": "text/csv", "buffer": text.encode()})
    page.wait_for_function("() => document.querySelector('#live-your-data select').value === ''")
    page.wait_for_function("() => document.querySelector('#live-your-data :is(.capslit-complaint, table)')")
    return page.locator("#live-your-data").inner_text()


def rows(n, *columns):
    return "\n".join(",".join(str(column(k)) for column in columns) for k in range(n))


def test_built_in_tables_are_learned(reader):
    page = reader.open("nbs/practice/use.html")
    for name, classes, most in (("iris", 3, 0.1), ("wine", 3, 0.1)):
        page.locator("#live-your-data select").first.select_option(name)
        found = page.evaluate("() => { const {error, loss, confusion, train, test} = capslit.parts['your-data'].result(); return {error, loss, confusion, train: train.length, test: test.length}; }")
        assert found["error"] < most and 0 < found["loss"] < 0.4 and len(found["confusion"]) == classes
        assert sum(map(sum, found["confusion"])) == found["test"] and abs(found["test"] - found["train"] / 3) < 3
        assert page.locator("#live-your-data svg.capslit-plot").count() == classes


def test_a_file_is_read_and_stays_here(reader):
    page = reader.open("nbs/practice/use.html")
    reader.requests.clear()
    shown = choose(page, "a;b;colour;kind;same\n" + rows(60, lambda k: k % 7 + 10 * (k % 2), lambda k: "?" if k == 5 else k * k % 11, lambda k: ("red", "blue")[k // 2 % 2],
                                                        lambda k: ("yes", "no")[k % 2], lambda k: 3).replace(",", ";"))
    assert 'Column "same"' in shown or "choose another" in shown or "only one class" in shown
    page.locator("#live-your-data select").nth(1).select_option("kind")
    shown = page.locator("#live-your-data").inner_text()
    assert "1 row with gaps" in shown and 'Column "colour" of words becomes 2 columns' in shown and 'Column "same" is the same in all rows' in shown
    assert page.evaluate("() => capslit.parts['your-data'].result().error") == 0
    assert not reader.requests


@pytest.mark.parametrize("text, complaint", [
    ("1,2,a\n3,4,b\n" + rows(40, lambda k: k, lambda k: k, lambda k: "ab"[k % 2]), "must hold the names of the columns"),
    ("words without any structure", "No columns were found"),
    ("x,y,x\n" + rows(40, *3 * [lambda k: k]), "Two columns have the same name"),
    ("x,y\n1,2,3\n" + rows(40, *2 * [lambda k: k]), "Row 2 has 3 cells, but there are 2 columns"),
    ("x,y\n" + rows(5, *2 * [lambda k: k]), "There are 5 rows of data"),
    ("x,y\n" + rows(40, lambda k: k, lambda k: "a"), "only one class"),
    ("x,y\n" + rows(40, lambda k: k, lambda k: k), "40 different values"),
    ("x,y\n" + rows(40, lambda k: f"word {k}", lambda k: "ab"[k % 2]), "No column is left"),
])
def test_what_cannot_be_learned_is_said_in_words(reader, text, complaint):
    page = reader.open("nbs/practice/use.html")
    assert complaint in choose(page, text)
    assert page.evaluate("() => capslit.parts['your-data'].result()") is None
    assert not reader.errors
