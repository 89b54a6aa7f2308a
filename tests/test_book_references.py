"""The built book's references: from equations to claims, from cells to the reference and back, and
the ledger, which is opened in a browser.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import ast
import html
import json
import re
import sys
from pathlib import Path

import pytest
from built_book import BOOK, CHAPTERS, Reader, needs_built_book

pytestmark = needs_built_book

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))

LEDGER, APIS = (
    "nbs/proofs/ledger.html",
    ("nbs/practice/api.html", "nbs/practice/api_experiments.html"),
)
SOURCES = "saul|hinton|ghahramani|routing|goessling"
# Equations of the chapters on a source that no claim is about: what a model is, and how it is
# computed
WITHOUT_CLAIM = {
    "goessling-rules-likelihood",
    "goessling-pursuit-likelihood",
    "goessling-pursuit-step",
    "hinton-measurements",
    "routing-products",
}


@pytest.fixture(scope="module")
def pages():
    return {name: (BOOK / name).read_text(encoding="utf-8") for name in CHAPTERS}


@pytest.fixture(scope="module")
def cards(pages):
    return set(re.findall(r'<details class="claim-card" id="([^"]+)"', pages[LEDGER]))


@pytest.fixture(scope="module")
def data():
    """What the cards show, as the browser loads it."""
    found = {}
    for path in sorted((BOOK / "_static" / "live").glob("claims-*.js")):
        text = path.read_text(encoding="utf-8")
        found |= json.loads(text[text.index(", {") + 2 : text.rindex(");")])
    return found


def equations(page):
    """The numbered equations of a page: label → where its number leads, or None."""
    found = {}
    for number in re.findall(r'<span class="eqno">(.*?)</span>', page):
        label = re.search(r'href="#equation-([^"]+)"', number)[1]
        link = re.search(r'<a class="capslit-claim" href="([^"]+)"', number)
        found[label] = link and link[1]
    return found


def test_every_equation_of_a_source_leads_to_its_claim(pages, cards):
    wrong, seen = {}, set()
    for name, page in pages.items():
        for label, link in equations(page).items():
            if re.match(SOURCES, label) and label not in WITHOUT_CLAIM:
                seen.add(label)
                if (
                    not link
                    or link.rpartition("#")[2] not in cards
                    or not link.startswith("../proofs/ledger.html")
                ):
                    wrong[f"{name}#{label}"] = link
            else:
                assert link is None or link.rpartition("#")[2] in cards
    assert not wrong
    assert len([label for label in seen if label.startswith("saul-")]) == 52 and len(seen) > 110
    for label, anchor in (
        ("saul-2-16", "claim-saul-2-16"),
        ("saul-a-8", "claim-saul-A-8"),
        ("ghahramani-3", "claim-ghahramani-3"),
    ):
        (link,) = {equations(page)[label] for page in pages.values() if label in equations(page)}
        assert link.endswith("#" + anchor)


def test_claims_in_chapters_lead_to_their_cards(pages, cards):
    found = {
        name: re.findall(r'class="claim-head"><b><a href="\.\./proofs/ledger\.html#([^"]+)"', page)
        for name, page in pages.items()
    }
    linked = [anchor for anchors in found.values() for anchor in anchors]
    assert sorted(linked) == sorted(cards)


def exported():
    """The public functions and classes of the package with a docstring, by module: what the
    reference lists.
    """
    from dependencies import modules, tree

    for module, path in modules().items():
        if path.name == "__init__.py":
            continue
        names = [
            node.name
            for node in tree(path).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
        ]
        yield from ((module, name) for name in names if not name.startswith("_"))


def test_each_public_name_has_its_cell_its_entry_and_the_way_back(pages):
    from references import chapter_of

    missing = []
    backs = {
        link
        for api in APIS
        for link in re.findall(
            r'<a class="reference internal" href="([^"]*#def-[^"]+)"', pages[api]
        )
    }
    entries = {
        entry
        for api in APIS
        for entry in re.findall(r'<dt class="sig[^>]*? id="([^"]+)"', pages[api])
    }
    for module, name in exported():
        page = f"{chapter_of(module)}.html"
        links = re.findall(r'<p class="capslit-reference">(.*?)</p>', pages[page], re.DOTALL)
        there = [
            entry
            for line in links
            for entry in re.findall(r'href="[^"]*api(?:_experiments)?\.html#([^"]+)"', line)
            if entry.rpartition(".")[2] == name
        ]
        back = "../" + page.removeprefix("nbs/") + f"#def-{name}"
        if (
            not there
            or there[0] not in entries
            or f'id="def-{name}"' not in pages[page]
            or back not in backs
        ):
            missing.append(f"{module}.{name}")
    assert not missing


def test_names_in_the_text_lead_to_the_reference(pages):
    linked = {
        name: re.findall(
            r'<a class="reference internal"'
            r' href="[^"]*api(?:_experiments)?\.html#([^"]+)"[^>]*><code',
            page,
        )
        for name, page in pages.items()
    }
    assert (
        sum(map(len, linked.values())) > len(list(exported()))  # public names
        and "capslit.CapsuleClassifier" in linked["nbs/practice/use.html"]
    )
    for name, page in pages.items():
        for heading in re.findall(r"<h[1-6]>.*?</h[1-6]>", page, re.DOTALL):
            assert not re.search(r"api(?:_experiments)?\.html#capslit", heading), (
                f"{name}: {heading}"
            )


def test_cards_lead_somewhere_and_name_code(data, cards, pages):
    anchors = {name: set(re.findall(r'\sid="([^"]+)"', page)) for name, page in pages.items()}
    assert {"claim-" + re.sub(r"\W+", "-", id) for id in data} == cards
    for id, card in data.items():
        links = [
            card["chapter"][1],
            *(place for _, place in card["equations"] + card["mentions"]),
            *(place for _, *places in card["code"] for place in places),
        ]
        for link in filter(None, links):
            page, _, anchor = link.removeprefix("../").partition("#")
            page = (
                page
                if page.startswith("nbs/")
                else (
                    f"nbs/{page}" if "/" in page or f"nbs/{page}" in pages else f"nbs/proofs/{page}"
                )
            )
            assert page in pages and (not anchor or anchor in anchors[page]), f"{id}: {link}"
        assert all(id in data[used]["users"] for used in card["rests"]) and all(
            id in data[user]["rests"] for user in card["users"]
        )
        assert card["tried"] == len(
            [fate for _, fate in card["mutants"] if not fate.startswith("equivalent: ")]
        )
    assert len([id for id, card in data.items() if card["code"]]) > 110
    assert "class_probabilities" in [name for name, *_ in data["saul:2.16"]["code"]]
    assert data["saul:2.16"]["equations"] == [
        ["Saul 2.16", "../capsules/inference.html#equation-saul-2-16"]
    ]


def test_where_scripts_do_not_run_the_ledger_is_a_list_of_links(pages, cards):
    entries = re.findall(
        r'<details class="claim-card" id="([^"]+)".*?<summary[^>]*>(.*?)</summary><a'
        r' href="\.\./([^"]+)#([^"]+)">',
        pages[LEDGER],
    )
    assert {anchor for anchor, *_ in entries} == cards
    for anchor, name, page, target in entries:
        assert target == anchor and f'id="{anchor}"' in pages[f"nbs/{page}"], anchor
        assert re.sub(r"<[^>]+>", "", html.unescape(name)).strip()


# The ledger in a browser


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desk-light", "phone-dark"])
def reader(request, browser, site):
    reader = Reader(browser, site, *request.param)
    yield reader
    assert not reader.errors and not reader.requests
    reader.context.close()


DRAWN = (
    "id => document.getElementById(id).querySelector('.claim-statement mjx-container, .claim-body"
    " svg, .claim-body dl + dl')"
)
# An open card is scrolled into view and then given the focus.
REACHED = """id => {
    const card = document.getElementById(id);
    return card.open && card.contains(document.activeElement);
}"""


def test_ledger_opens_light(reader):
    page = reader.open(LEDGER)
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    assert (
        page.locator(".claim-ledger mjx-container").count() == 0
    )  # nothing is typeset before its card is opened
    assert (
        page.evaluate(
            "performance.getEntriesByType('resource').filter(r =>"
            " r.name.includes('/live/claims-')).length"
        )
        == 0
    )


def test_ledger_filters(reader):
    page = reader.open(LEDGER)
    shown = page.locator(".claim-card:visible")
    everything = shown.count()
    page.locator("select[name=source]").select_option("saul")
    assert (
        shown.count() == 52
        and page.locator(".claim-filter output").inner_text() == f"52 of {everything} claims"
    )
    page.locator("input[name=words]").fill("posterior mean")
    assert {"claim-saul-2-8", "claim-saul-2-19"} <= set(
        shown.evaluate_all("cards => cards.map(card => card.id)")
    )
    assert 0 < shown.count() < 10
    page.locator("input[name=words]").fill("2.16")
    assert shown.evaluate_all("cards => cards.map(card => card.id)") == ["claim-saul-2-16"]
    page.locator("input[name=words]").fill("")
    page.locator("select[name=source]").select_option("")
    page.locator("select[name=kind]").select_option("monte carlo")
    assert 0 < shown.count() < 5
    page.locator("input[name=words]").fill("no such words")
    assert shown.count() == 0 and page.locator(".claim-ledger h3:visible").count() == 0


def test_card_opens_by_keyboard_and_leads_on(reader):
    page = reader.open(LEDGER)
    page.locator("#claim-saul-2-16 > summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DRAWN, arg="claim-saul-2-16")
    card = page.locator("#claim-saul-2-16")
    for words in (
        "Derivation",
        "Code",
        "class_probabilities",
        "Checks",
        "numeric",
        "49 of 49 rejected",
        "Rests on",
        "Used by",
        "Saul 2.19",
    ):
        assert words in card.inner_text(), words
    page.wait_for_url("**#claim-saul-2-16")
    card.locator(".claim-trials summary").focus()
    page.keyboard.press("Enter")
    card.locator(".claim-trials tr").nth(48).wait_for()
    assert card.locator(".claim-trials tr").count() == 49
    neighbour = card.locator("svg a[href='#claim-saul-2-19']")
    assert "the posterior mean" in neighbour.get_attribute("aria-label")
    neighbour.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DRAWN, arg="claim-saul-2-19")
    page.wait_for_function(REACHED, arg="claim-saul-2-19")


def test_equation_number_opens_the_card(reader):
    page = reader.open("nbs/capsules/special.html")
    page.locator("#equation-saul-a-3 a.capslit-claim").click()
    page.wait_for_url("**/ledger.html#claim-saul-A-3")
    page.wait_for_function(DRAWN, arg="claim-saul-A-3")
    page.wait_for_function(REACHED, arg="claim-saul-A-3")
    top = page.locator("#claim-saul-A-3 > summary").bounding_box()["y"]
    assert 0 <= top < 300


def test_no_formula_of_a_card_is_clipped_or_red(reader):
    page = reader.open(LEDGER)
    ids = page.locator(".claim-card").evaluate_all("cards => cards.map(card => card.id)")
    wrong = page.evaluate(
        """async ids => {
      const wrong = [], pause = time => new Promise(done => setTimeout(done, time));
      const settled = async test => {
        for (let i = 0; i < 24_000 && !test(); i++) await pause(25); };
      for (const id of ids) {
        const card = document.getElementById(id);
        card.open = true;
        await settled(() => card.querySelector('dl + dl, figure + dl'));
        const box = card.querySelector('.claim-statement');
        if (!box) { wrong.push(id + ' has no formula'); continue; }
        await settled(() => box.dataset.room === String(box.clientWidth));
        const drawn = box.querySelector('mjx-container > svg');
        if (!drawn) wrong.push(id + ' is not typeset');
        else if (box.querySelector(
            '[data-mml-node="mtext"][fill="red"], mjx-merror, [data-mjx-error]')) wrong.push(id +
            ' has an unknown command');
        else if (box.scrollWidth > box.clientWidth + 1 && box.getAttribute(
            'tabindex') !== '0') wrong.push(id + ' is cut');
        else if (box.scrollWidth > box.clientWidth + 1 && innerWidth > 1000) wrong.push(id +
            ' is too wide');
        else if (box.scrollHeight > box.clientHeight + 1) wrong.push(id + ' is too tall');
        card.open = false;
        card.querySelector('.claim-body').replaceChildren();  // so that the page stays light
      }
      return wrong;
    }""",
        ids,
    )
    assert not wrong
