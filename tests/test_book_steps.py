"""The live parts that take steps of an algorithm: their numbers are the package's, and their
buttons do what they say.
"""

import pytest
from built_book import Reader, needs_built_book, state

pytestmark = needs_built_book

FARTHEST = """(a, b) => { [a, b] = [a, b].map(x => [x].flat(Infinity).map(Number));
    return a.length === b.length ? Math.max(...a.map((value, k) => Math.abs(
        value - b[k]))) : Infinity; }"""


@pytest.fixture(scope="module")
def reader(browser, site):
    reader = Reader(browser, site, reduced_motion="reduce")
    reader.context.add_init_script(f"window.farthest = {FARTHEST}")
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
            const {x, y} = data.examples[examples], X = x.map(row => [...row, 1]),
                L = part.factorise(X), path = [];
            let W = data.start.slice(0, weights.length).map(capsule => capsule.slice(0, dim));
            for (let k = 0; ; k++) {
                const {means, logLikelihood} = part.eStep(W, X, y);
                path.push(logLikelihood);
                if (path.length === log_likelihood.length) return Math.max(farthest(W, weights),
                    farthest(path, log_likelihood));
                W = part.mStep(L, means, X);
            }
        });
    }""")
    assert len(gaps) == 8 and max(gaps) < 1e-6


def test_buttons_take_the_steps_of_capsule_regression(reader):
    page = reader.open("nbs/capsules/em_steps.html")
    begun = state(page, "em-plane")
    (first,) = begun["path"]
    assert not begun["means"]
    assert page.locator("#live-em-plane button", has_text="M-step").is_disabled()
    press(page, "em-plane", "E-step")
    waiting = state(page, "em-plane")
    assert waiting["path"] == [first] and waiting["means"]
    press(page, "em-plane", "M-step")
    done = state(page, "em-plane")
    assert not done["means"] and len(done["path"]) == 2 and done["path"][1] > first
    press(page, "em-plane", "Run")
    path = state(page, "em-plane")["path"]
    assert len(path) > 10 and all(after > before for before, after in zip(path, path[1:]))
    page.locator("#live-em-plane select").first.select_option("1")
    assert len(state(page, "em-plane")["path"]) == 1


# A Gaussian mixture


def test_steps_of_a_mixture_are_the_package_s(reader):
    page = reader.open("nbs/mixtures/estimator.html")
    gaps = page.evaluate("""() => {
        const {eStep, mStep} = capslit.parts["gaussian-steps"], {points, added,
            check} = capslit.data["gaussian-steps"];
        return check.map(({kind, means, after, path}) => {
            let components = means.map(mean => ({weight: 1 / means.length, mean, covariance: [[1,
                0], [0, 1]]}));
            const heights = [];
            for (let k = 0; ; k++) {
                const {shares, logDensity} = eStep(components, points);
                heights.push(logDensity);
                if (heights.length === path.length) break;
                components = mStep(components, shares, points, kind === "diag", added);
            }
            return Math.max(farthest(heights, path), farthest(components.map(c => c.weight),
                after.weights),
                            farthest(components.map(c => c.mean), after.means), farthest(
                                components.map(c => c.covariance), after.covariances));
        });
    }""")
    assert len(gaps) == 6 and max(gaps) < 1e-6


def test_a_mean_is_moved_by_the_arrow_keys(reader):
    page = reader.open("nbs/mixtures/estimator.html")
    press(page, "gaussian-steps", "E-step")
    before = state(page, "gaussian-steps")
    page.locator("#live-gaussian-steps .handle").nth(1).focus()
    page.keyboard.press("ArrowUp")
    after = state(page, "gaussian-steps")
    assert before["shares"] and after["shares"] is None
    first, second, third = (
        [c["mean"] for c in pair] for pair in zip(before["components"], after["components"])
    )
    assert first[0] == first[1] and third[0] == third[1] and second[1][1] > second[0][1]
    press(page, "gaussian-steps", "Run")
    path = state(page, "gaussian-steps")["path"]
    assert len(path) > 5 and path[-1] > path[0]


# A table of one's own


def test_learning_from_iris_is_the_package_s(reader):
    page = reader.open("nbs/practice/more.html")
    gaps = page.evaluate("""() => {
        const part = capslit.parts["your-data"], {tables, check} = capslit.data["your-data"];
        const {X: raw, y} = part.encode(part.readTable(tables.iris), "class"), X = part.standardise(
            raw, raw.map((_, l) => l));
        return [farthest(X.slice(0, 3), check.inputs), farthest(part.learn(X, y, check.start,
            check.alpha, check.steps), check.weights)];
    }""")
    assert max(gaps) < 1e-6


def choose(page, text):
    "The words of the part after a file has been read: what it showed before is marked as old."
    page.evaluate(
        "() => { for (const shown of document.querySelectorAll("
        "'#live-your-data :is(.capslit-complaint, table)')) shown.dataset.old = 'yes'; }"
    )
    page.locator("#live-your-data input[type=file]").set_input_files(
        {"name": "table.csv", "mimeType": "text/csv", "buffer": text.encode()}
    )
    page.wait_for_function(
        "() => document.querySelector("
        "'#live-your-data :is(.capslit-complaint, table):not([data-old])')"
    )
    assert page.locator("#live-your-data select").first.input_value() == ""
    return page.locator("#live-your-data").inner_text()


def rows(n, *columns):
    return "\n".join(",".join(str(column(k)) for column in columns) for k in range(n))


def test_built_in_tables_are_learned(reader):
    page = reader.open("nbs/practice/more.html")
    for name in ("iris", "wine"):
        page.locator("#live-your-data select").first.select_option(name)
        found = page.evaluate("() => capslit.parts['your-data'].result()")
        assert found["error"] < 0.1 and 0 < found["loss"] < 0.4 and len(found["confusion"]) == 3
        train, test = len(found["train"]), len(found["test"])
        assert sum(map(sum, found["confusion"])) == test and abs(test - train / 3) < 3
        assert page.locator("#live-your-data svg.capslit-plot").count() == 3


def test_a_file_is_read_and_stays_here(reader):
    page = reader.open("nbs/practice/more.html")
    reader.requests.clear()
    shown = choose(
        page,
        "a;b;colour;kind;same\n"
        + rows(
            60,
            lambda k: k % 7 + 10 * (k % 2),
            lambda k: "?" if k == 5 else k * k % 11,
            lambda k: ("red", "blue")[k // 2 % 2],
            lambda k: ("yes", "no")[k % 2],
            lambda k: 3,
        ).replace(",", ";"),
    )
    assert 'Column "same"' in shown or "choose another" in shown or "only one class" in shown
    page.locator("#live-your-data select").nth(1).select_option("kind")
    shown = page.locator("#live-your-data").inner_text()
    assert "1 row with gaps" in shown
    assert 'Column "colour" of words becomes 2 columns' in shown
    assert 'Column "same" is the same in all rows' in shown
    assert page.evaluate("() => capslit.parts['your-data'].result().error") == 0
    assert not reader.requests


@pytest.mark.parametrize(
    "text, complaint",
    [
        (
            "1,2,a\n3,4,b\n" + rows(40, lambda k: k, lambda k: k, lambda k: "ab"[k % 2]),
            "must hold the names of the columns",
        ),
        ("words without any structure", "No columns were found"),
        ("x,y,x\n" + rows(40, *3 * [lambda k: k]), "Two columns have the same name"),
        (
            "x,y\n1,2,3\n" + rows(40, *2 * [lambda k: k]),
            "Row 2 has 3 cells, but there are 2 columns",
        ),
        ("x,y\n" + rows(5, *2 * [lambda k: k]), "There are 5 rows of data"),
        ("x,y\n" + rows(40, lambda k: k, lambda k: "a"), "only one class"),
        ("x,y\n" + rows(40, lambda k: k, lambda k: k), "40 different values"),
        ("x,y\n" + rows(40, lambda k: f"word {k}", lambda k: "ab"[k % 2]), "No column is left"),
    ],
)
def test_what_cannot_be_learned_is_said_in_words(reader, text, complaint):
    page = reader.open("nbs/practice/more.html")
    assert complaint in choose(page, text)
    assert page.evaluate("() => capslit.parts['your-data'].result()") is None
    assert not reader.errors


# Votes


def test_routing_is_the_package_s(reader):
    page = reader.open("nbs/routing/procedure.html")
    gaps = page.evaluate("""() => {
        const {route} = capslit.parts["routing-votes"], {votes,
            check} = capslit.data["routing-votes"];
        return check.map(c => {
            const m = c.activations.length, {parents, R} = route(votes.map(row => row.slice(0, m)),
                c.active,
                {betaU: c.beta_u, betaA: c.beta_a, iterations: c.n_iterations,
                    final: c.inverse_temperature, floor: c.variance_floor});
            return Math.max(farthest(parents.map(p => p.mean), c.poses), farthest(parents.map(p =>
                p.activation), c.activations), farthest(R, c.assignments));
        });
    }""")
    assert len(gaps) == 4 and max(gaps) < 1e-6


def test_a_vote_that_is_moved_away_loses_its_child(reader):
    page = reader.open("nbs/routing/procedure.html")
    assert state(page, "routing-votes")["R"][0][0] > 0.8
    page.locator("#live-routing-votes .handle").first.focus()
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
    assert state(page, "routing-votes")["R"][0][0] < 0.5


# Templates


def test_rules_are_the_package_s(reader):
    page = reader.open("nbs/composition/rules.html")
    gaps = page.evaluate("""() => {
        const {RULES} = capslit.parts["rules-templates"], {opinions,
            composed} = capslit.data["rules-templates"].check;
        return Object.entries(composed).map(([name, values]) => farthest(opinions.map(RULES[name]),
            values));
    }""")
    assert len(gaps) == 7 and max(gaps) < 1e-6


def test_templates_are_moved_and_rules_chosen(reader):
    page = reader.open("nbs/composition/rules.html")
    part = page.locator("#live-rules-templates")
    image = "() => capslit.parts['rules-templates'].composed('maximum')"
    before = page.evaluate(image)
    part.locator(".handle").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate(image) != before
    part.get_by_role("button", name="maximum", exact=True).click()
    assert state(page, "rules-templates")["rule"] == "maximum"
    assert part.locator("select").input_value() == "maximum"


# Causes


def test_posterior_of_causes_is_the_package_s(reader):
    page = reader.open("nbs/factorial/quantizer.html")
    found = page.evaluate("""() => {
        const {posterior} = capslit.parts["causes-by-hand"], {components, priors, noise, targets,
            check} = capslit.data["causes-by-hand"];
        return check.map(({target, states, marginals}) => {
            const found = posterior(components, priors, noise, targets[target]);
            return [farthest(found.marginals, marginals), farthest(
                found.all[found.probabilities.indexOf(Math.max(...found.probabilities))], states)];
        });
    }""")
    gaps, wrong = zip(*found)
    assert len(found) == 3 and max(gaps) < 1e-6 and not any(wrong)


def test_most_probable_states_come_at_a_press(reader):
    page = reader.open("nbs/factorial/quantizer.html")
    part = page.locator("#live-causes-by-hand")
    part.get_by_role("button", name="image 4", exact=True).click()
    part.get_by_role("button", name="vector 2, state 3", exact=True).click()
    now = state(page, "causes-by-hand")
    assert now["states"] == [0, 2, 0, 0] and now["target"] == 3
    press(page, "causes-by-hand", "The most probable states")
    assert "number 1 of 256" in part.locator(".capslit-words").inner_text()
