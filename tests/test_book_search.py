"""The search of the built book: what a reader, a data scientist and a contributor would type, and
the page that should come first.
"""

import pytest
from built_book import BOOK, needs_built_book
from conftest import together

pytestmark = needs_built_book

FIRST = {
    "capsule regression": "nbs/capsules/definition",
    "Saul 2.16": "nbs/capsules/inference#equation-saul-2-16",
    "GPU": "nbs/practice/scale",
    "CapsuleClassifier": "nbs/capsules/classifier",
    "predict_proba calibration": "nbs/experiments/calibration",
    "momentum": "nbs/experiments/updates",
    "missing values": "nbs/mixtures/missing",
    "sparse": "nbs/estimator/training_data",
    "cross-validation": "nbs/capsules/cross_validation",
    "kernel": "nbs/capsules/features",
    "Parquet": "nbs/data/arrow",
    "Dask": "nbs/data/dask",
    "resume interrupted run": "nbs/em/checkpoint",
    "EM routing": "nbs/routing/procedure",
    "tangent distance": "nbs/mixtures/tangents",
    "noisy or": "nbs/composition/rules",
    "factorial HMM": "nbs/factorial/hmm",
    "MNIST error": "nbs/experiments/figure5",
    "install": "nbs/index",
    "cite": "nbs/index",
    "save model": "nbs/estimator/persistence",
    "posterior": "nbs/capsules/inference",
    "mutation testing": "nbs/proofs/mutants",
    "interpolating_integral": "nbs/practice/api#capslit.capsules.special.interpolating_integral",
}


def results(reader, query):
    page = reader.open("search.html?q=" + query.replace(" ", "+"))
    page.wait_for_selector("#search-results li > a")
    return page


@pytest.mark.parametrize("query", FIRST)
def test_the_right_page_comes_first(reader, query):
    page = results(reader, query)
    found = page.eval_on_selector_all(
        "#search-results li > a", "links => links.map(link => link.getAttribute('href'))"
    )
    name, _, anchor = FIRST[query].partition("#")
    assert found[0] == f"{name}.html" + (f"#{anchor}" if anchor else ""), found[:5]


@pytest.mark.parametrize("query", ["momentum", "posterior", "tangent distance", "routing"])
def test_excerpts_are_readable(reader, query):
    page = results(reader, query)
    text = page.locator("#search-results").inner_text()
    assert "\\" not in text and "mathbf" not in text
    assert page.locator("#search-results p.context").count() >= 3
    words = page.eval_on_selector_all(
        "#search-results p.context mark",
        "marks => marks.map(mark => mark.textContent.toLowerCase())",
    )
    assert query.split()[0] in words


def test_misspelt_words_are_forgiven(reader):
    assert "mixtures/tangents" in results(reader, "tangnts").locator("#search-results").inner_html()


def test_search_works_from_files(browser):
    page = browser.new_page()
    page.goto(f"{BOOK.as_uri()}/search.html?q=GPU")
    page.wait_for_selector("#search-results li > a")
    assert page.locator("#search-results li").first.inner_text().strip()
    page.close()


def test_nothing_found_says_so(reader):
    page = reader.open("search.html?q=xyzzyplugh")
    page.wait_for_selector("#search-results p.found")
    assert "Nothing found" in page.locator("#search-results").inner_text()


@together("name", [f"{name.partition('#')[0]}.html" for name in FIRST.values()])
def test_the_index_is_loaded_by_the_search_page_alone(name):
    page = (BOOK / name).read_text(encoding="utf-8")
    assert "searchindex.js" not in page and "search-data.js" not in page
    assert "search-data.js" in (BOOK / "search.html").read_text(encoding="utf-8")
