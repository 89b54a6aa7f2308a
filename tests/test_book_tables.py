"""Tables of records in the built book: a reader orders their rows by a column and filters them,
with the keyboard alone.
"""

import pytest
from built_book import BOOK, Reader, browser, needs_built_book, reader, site  # noqa: F401

pytestmark = needs_built_book
PAGE = "nbs/experiments/contest.html"


@pytest.fixture(scope="module")
def table(reader):  # noqa: F811
    "The table of forty rows, each a data set, below the first filter of the page."
    page = reader.open(PAGE)
    found = page.locator(".capslit-filter + * table, .capslit-filter + table").first
    assert found.locator("tbody tr").count() == 40
    return found


def column(table, k):
    "The words of a column, in the order of the rows that are shown."
    return table.evaluate(
        "(table, k) => [...table.tBodies[0].rows].filter(row => row.offsetHeight).map(row =>"
        " row.cells[k].textContent.trim())",
        k,
    )


def test_a_head_orders_rows_upwards_downwards_and_as_they_stood(table):
    before, values = column(table, 0), [float(x) for x in column(table, 1)]
    assert values != sorted(values)
    head = table.locator("th").nth(1)
    for order, expected in (
        ("ascending", sorted(values)),
        ("descending", sorted(values, reverse=True)),
    ):
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
        assert [float(x) for x in column(table, 1)] == expected
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "none" and column(table, 0) == before


def test_words_are_ordered_as_words_and_only_one_column_counts(table):
    table.locator("th").nth(1).locator("button").press("Enter")
    table.locator("th").nth(0).locator("button").press("Enter")
    assert column(table, 0) == sorted(column(table, 0), key=str.lower)
    assert table.locator("th[aria-sort=ascending]").count() == 1


def test_a_filter_shows_the_rows_that_have_all_words(table):
    names = column(table, 0)
    field = table.page.locator(".capslit-filter input").first
    field.fill(names[3][:4].upper())
    assert column(table, 0) == [name for name in names if names[3][:4] in name]
    assert (
        table.page.locator(".capslit-filter output").first.text_content().strip()
        == f"{len(column(table, 0))} of 40"
    )
    field.fill("")
    assert column(table, 0) == names


def test_without_scripts_a_table_is_a_table(browser, site):  # noqa: F811
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + PAGE)
    assert (
        page.locator("div.cell_output table").count() > 5
        and page.locator(".capslit-order, .capslit-filter").count() == 0
    )
    context.close()


def test_tables_of_many_columns_are_set_smaller(reader):  # noqa: F811
    """The rule has brackets within brackets; no selector of the style sheets may be cut at a comma
    inside them.
    """
    page = reader.open("nbs/experiments/summary.html")
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('article table')].map(table =>
        [table.rows[0].cells.length, parseFloat(getComputedStyle(table.querySelector(
            'td')).fontSize)])"""
    )
    few, many = (
        {size for columns, size in sizes if (columns >= 6) == wide} for wide in (False, True)
    )
    assert few and many and max(many) < min(few)
    sheets = page.evaluate(
        "() => [...document.querySelectorAll('link[rel=stylesheet]')].map(link =>"
        " link.getAttribute('href').split('_static/')[1].split('?')[0])"
    )
    selectors = [
        rule.rpartition("{")[0]
        for name in sheets
        for rule in (BOOK / "_static" / name).read_text(encoding="utf-8").split("}")
    ]
    assert selectors and all(selector.count("(") == selector.count(")") for selector in selectors)
