"""The search of the built book: what a reader, a data scientist and a contributor would type, and
the page that should come first.
"""

import pytest
from built_book import BOOK, html, needs_built_book
from conftest import together

pytestmark = needs_built_book

FIRST = {
    "capsule regression": "nbs/capsules/definition",
    "Saul 2.16": "nbs/capsules/inference#equation-saul-2-16",
    "GPU": "nbs/practice/scale",
    "CapsuleClassifier": "nbs/capsules/classifier",
    "predict_proba calibration": "nbs/course/probabilities",
    "momentum": "nbs/course/learning",
    "missing values": "nbs/practice/more",
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
    "save model": "nbs/practice/more",
    "posterior": "nbs/course/exact_inference",
    "what is a capsule": "nbs/capsules/definition",
    "EM step": "nbs/course/learning",
    "overfitting": "nbs/course/dimensions_and_pairs",
    "one-versus-one": "nbs/course/dimensions_and_pairs",
    "regularisation": "nbs/course/kernels_and_priors",
    "class weight": "nbs/practice/use",
    "imbalanced classes": "nbs/practice/use",
    "early stopping": "nbs/practice/use",
    "predict_proba too slow": "nbs/practice/more",
    "fit is slow": "nbs/practice/use",
    "how to install": "nbs/index",
    "how to get started": "nbs/practice/use",
    "save a model": "nbs/practice/more",
    "class imbalance": "nbs/practice/use",
    "multiclass": "nbs/practice/use",
    "calibration": "nbs/course/probabilities",
    "feature importance": "nbs/practice/more",
    "sample weights": "nbs/practice/use",
    "incomplete data": "nbs/mixtures/missing",
    "capsule": "nbs/capsules/definition",
    "EM": "nbs/course/learning",
    "mutation testing": "nbs/proofs/mutants",
    "interpolating_integral": "nbs/api/capsules#capslit.capsules.special.interpolating_integral",
}


def results(reader, query):
    page = reader.open("search.html?q=" + query.replace(" ", "+"))
    page.wait_for_selector("#search-results li > a")
    return page.locator("#search-results")


@pytest.mark.parametrize("query", FIRST)
def test_the_right_page_comes_first(reader, query):
    found = results(reader, query).locator("li > a").first.get_attribute("href")
    assert found.replace(".html", "", 1) == FIRST[query]


@pytest.mark.parametrize("query", ["momentum", "posterior", "tangent distance", "routing"])
def test_excerpts_are_readable(reader, query):
    found = results(reader, query)
    assert "\\" not in found.inner_text() and "mathbf" not in found.inner_text()
    assert found.locator("p.context").count() >= 3
    marked = " ".join(found.locator("p.context mark").all_text_contents()).lower()
    assert query.split()[0] in marked.split()


def test_misspelt_words_are_forgiven(reader):
    assert "mixtures/tangents" in results(reader, "tangnts").inner_html()


def test_search_works_from_files(readers):
    assert results(readers(site=f"{BOOK.as_uri()}/"), "GPU").locator("li").first.inner_text()


def test_nothing_found_says_so(reader):
    page = reader.open("search.html?q=xyzzyplugh")
    page.wait_for_selector("#search-results p.found")
    assert "Nothing found" in page.locator("#search-results").inner_text()


@together("name", [f"{name.partition('#')[0]}.html" for name in FIRST.values()])
def test_the_index_is_loaded_by_the_search_page_alone(name):
    assert "searchindex.js" not in html(name) and "search-data.js" not in html(name)
    assert "search-data.js" in html("search.html")
