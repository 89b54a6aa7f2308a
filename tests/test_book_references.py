"""The built book's references: from equations to claims, from cells to the reference and back, and
the ledger, which is filtered and opened in a browser.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import ast
import json
import re
from html import unescape

import pytest
from built_book import BOOK, CHAPTERS, VIEWS, anchors, html, needs_built_book

pytestmark = needs_built_book

LEDGER = "nbs/proofs/ledger.html"
INDEX = "nbs/practice/api.html"  # of the reference, whose pages follow
APIS = [name for name in CHAPTERS if name.startswith("nbs/api/")]
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


def everywhere(pattern, names=CHAPTERS):
    """What a pattern finds in pages."""
    return [found for name in names for found in re.findall(pattern, html(name), re.DOTALL)]


@pytest.fixture(scope="module")
def cards():
    """The claims' cards: {anchor: HTML}, evidence included."""
    script = html("_static/evidence/nbs-proofs-ledger.js")
    evidence = json.loads(re.search(r"\((.*)\);", script, re.DOTALL)[1])
    found = re.split(r'(?=<details class="claim-card" id=")', html(LEDGER))[1:]
    return {
        card.split('"')[3]: statement + card.replace("</dl>", f"{rest}</dl>", 1)
        for card, (statement, rest) in zip(found, evidence, strict=True)
    }


def test_every_equation_of_a_source_leads_to_its_claim(cards):
    seen = set()
    for number in everywhere(r'<span class="eqno">(.*?)</span>'):
        label = re.search(r'href="#equation-([^"]+)"', number)[1]
        link = re.search(r'<a class="capslit-claim" href="([^"]*)#([^"]+)"', number)
        assert link is None or link[2] in cards, label
        if re.match(SOURCES, label) and label not in WITHOUT_CLAIM:
            assert link and link[1] == "../proofs/ledger.html", label
            seen.add(label)
    assert len([label for label in seen if label.startswith("saul-")]) == 52 and len(seen) > 110


def test_equations_carry_their_numbers():
    for name in CHAPTERS:
        for label in everywhere(r'id="equation-saul-([a\d]+-\d+)"', [name]):
            number = re.escape(label.upper().replace("-", "."))
            assert re.search(rf'<span class="eqno"><a [^>]*>\(Saul {number}\)', html(name))


def test_claims_in_chapters_lead_to_their_cards(cards):
    head = r'class="claim-head"><b><a href="\.\./proofs/ledger\.html#([^"]+)"'
    assert sorted(everywhere(head)) == sorted(cards)


def exported():
    """The public functions and classes of the package with a docstring, by module: what the
    reference lists.
    """
    from dependencies import modules, tree

    for module, path in modules().items():
        for node in tree(path).body if path.name != "__init__.py" else []:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"
            if public and ast.get_docstring(node):
                yield module, node.name


ENTRY = r'href="[^"]*api/\w+\.html#([^"]+)"'


def test_each_public_name_has_its_cell_its_entry_and_the_way_back():
    from names import chapters

    missing = []
    backs = set(everywhere(r'<a class="reference external" href="\.\./([^"]*#def-[^"]+)"', APIS))
    entries = set(everywhere(r'<dt class="sig[^>]*? id="([^"]+)"', APIS)) & set(
        everywhere(ENTRY, [INDEX])
    )
    for module, name in exported():
        page = f"{chapters()[module][0]}.html"
        lines = everywhere(r'<p class="capslit-reference">.*?</p>', [page])
        links = [entry for line in lines for entry in re.findall(ENTRY, line)]
        entry = next((entry for entry in links if entry.rpartition(".")[2] == name), None)
        defined = f'id="def-{name}"' in html(page)
        if entry not in entries or not defined or f"../{page}#def-{name}" not in backs:
            missing.append(f"{module}.{name}")
    assert not missing


@pytest.mark.parametrize(
    "anchor", ["capslit.em.loop.fit", "capslit.CapsuleClassifier.fit", "module-capslit.em.loop"]
)
def test_addresses_from_when_the_reference_was_one_page_lead_on(readers, anchor):
    reader = readers(site=f"{BOOK.as_uri()}/")
    reader.page.goto(f"{reader.site}{INDEX}#{anchor}")
    reader.page.wait_for_url(f"**/nbs/api/*.html#{anchor}")
    assert reader.page.locator(f"[id='{anchor}']").count() == 1


def test_names_in_the_text_lead_to_the_reference():
    link = rf'<a class="reference internal" {ENTRY}[^>]*><code'
    assert len(everywhere(link)) > len(list(exported()))  # public names
    assert "capslit.CapsuleClassifier" in everywhere(link, ["nbs/practice/use.html"])
    headings = everywhere(r"<h[1-6]>.*?</h[1-6]>")
    assert not [heading for heading in headings if re.search(ENTRY, heading)]


def test_cards_say_what_was_checked_and_lead_on(cards):
    link = r'href="(?:\.\./)?([\w/.]*)#([^"]+)"'
    for anchor, card in cards.items():
        assert all(f"<dt>{term}</dt>" in card for term in ("Derivation", "Checks", "Mutants"))
        for page, place in re.findall(link, card.split("</dl>")[0]):
            target = anchors(f"nbs/{page}" if page else LEDGER)
            assert place in target, f"{anchor}: {page}#{place}"
    card = cards["claim-saul-2-16"]
    assert "def-class_probabilities" in card and "49 of 49 rejected" in card
    assert 'href="#claim-saul-2-19"' in card.split("Used by")[1].split("</dl>")[0]


def test_where_scripts_do_not_run_the_ledger_is_a_list_of_links(cards):
    static = re.split(r'(?=<details class="claim-card" id=")', html(LEDGER))[1:]
    for anchor, card in zip(cards, static, strict=True):
        name = re.search(r"<summary.*?</summary>", card, re.DOTALL)[0]
        assert unescape(re.sub("<[^>]+>", "", name)).strip(), anchor
        page = re.search(rf'href="\.\./([^"#]+)#{re.escape(anchor)}"', card)[1]
        assert f'id="{anchor}"' in html(f"nbs/{page}"), anchor


# The ledger in a browser


@pytest.fixture(params=VIEWS.values(), ids=VIEWS)
def reader(request, readers):
    reader = readers(*request.param)
    yield reader
    assert not reader.errors and not reader.requests


def test_ledger_filters(reader):
    page = reader.open(LEDGER)
    shown = page.locator(".claim-card:visible")
    everything = shown.count()
    page.locator("select[name=source]").select_option("saul")
    said = page.locator(".claim-filter output").inner_text()
    assert shown.count() == 52 and said == f"52 of {everything} claims"
    page.locator("input[name=words]").fill("posterior mean")
    ids = lambda: shown.evaluate_all("cards => cards.map(card => card.id)")
    assert {"claim-saul-2-8", "claim-saul-2-19"} <= set(ids()) and len(ids()) < 10
    page.locator("input[name=words]").fill("2.16")
    assert ids() == ["claim-saul-2-16"]
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
    page.wait_for_function("document.querySelector('#claim-saul-2-16[open] mjx-container > svg')")
    page.locator("#claim-saul-2-16 dt").get_by_text("Checks").wait_for()  # evidence comes later
    words = page.locator("#claim-saul-2-16").inner_text()
    for part in ("Derivation", "Code", "class_probabilities", "Checks", "49 of 49 rejected"):
        assert part in words, part
    page.locator("#claim-saul-2-16 dd a[href='#claim-saul-2-19']").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#claim-saul-2-19[open]")


def test_equation_number_opens_the_card_which_leads_on(reader):
    page = reader.open("nbs/capsules/special.html")
    page.locator("#equation-saul-a-3 a.capslit-claim").click()
    page.wait_for_url("**/ledger.html#claim-saul-A-3")
    page.wait_for_function("document.querySelector('#claim-saul-A-3[open] mjx-container')")
    page.wait_for_function(
        "Math.abs(document.querySelector('#claim-saul-A-3').getBoundingClientRect().top) < 300"
    )
    link = page.locator("#claim-saul-A-3 dd a[href^='#claim-']").first
    target = link.get_attribute("href")
    link.click()
    page.wait_for_selector(f"{target}[open]")


def test_no_formula_of_a_card_is_clipped(readers):
    reader = readers()
    page = reader.open(LEDGER)
    page.evaluate(
        "() => { for (const card of document.querySelectorAll('.claim-card')) card.open = true; }"
    )
    page.wait_for_function(
        "[...document.querySelectorAll('.claim-card')]"
        ".every(card => card.querySelector('.claim-statement').childElementCount)"
    )
    for width, theme in VIEWS.values():
        reader.show(width, theme)
        wrong = page.evaluate(
            """() => [...document.querySelectorAll('.claim-card')].flatMap(card => {
            const box = card.querySelector('.claim-statement');
            if (!box.querySelector('mjx-container > svg')) return [card.id + ' is not typeset'];
            const wide = box.scrollWidth > box.clientWidth + 1;
            const cut = wide && !box.querySelector('[tabindex="0"]');
            if (cut && box.tabIndex !== 0) return [card.id + ' is cut'];
            if (wide && innerWidth > 1000) return [card.id + ' is too wide'];
            return box.scrollHeight > box.clientHeight + 1 ? [card.id + ' is too tall'] : [];
            })"""
        )
        assert not wrong
