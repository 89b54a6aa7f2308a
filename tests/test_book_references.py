"""The built book's references: from equations to claims, from cells to the reference and back, and
the ledger, which is filtered and opened in a browser.

Skipped where no Chromium is installed or the book has not been built (`make book`).
"""

import ast
import html
import json
import re
import sys
from pathlib import Path

import pytest
from built_book import BOOK, CHAPTERS, VIEWS, Reader, needs_built_book

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


def test_equations_carry_their_numbers(pages):
    for page in pages.values():
        for label in re.findall(r'id="equation-saul-([a\d]+-\d+)"', page):
            number = re.escape(label.upper().replace("-", "."))
            assert re.search(rf'<span class="eqno"><a [^>]*>\(Saul {number}\)', page)


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
    from names import chapters

    missing = []
    backs = {
        link
        for api in APIS
        for link in re.findall(
            r'<a class="reference external" href="\.\./([^"]*#def-[^"]+)"', pages[api]
        )
    }
    entries = {
        entry
        for api in APIS
        for entry in re.findall(r'<dt class="sig[^>]*? id="([^"]+)"', pages[api])
    }
    for module, name in exported():
        page = f"{chapters()[module][0]}.html"
        links = re.findall(r'<p class="capslit-reference">(.*?)</p>', pages[page], re.DOTALL)
        there = [
            entry
            for line in links
            for entry in re.findall(r'href="[^"]*api(?:_experiments)?\.html#([^"]+)"', line)
            if entry.rpartition(".")[2] == name
        ]
        back = f"../{page}#def-{name}"
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


def test_cards_say_what_was_checked_and_lead_on(pages):
    anchors = {name: set(re.findall(r'\sid="([^"]+)"', page)) for name, page in pages.items()}
    entries = re.split(r'(?=<details class="claim-card")', pages[LEDGER])[1:]
    script = (BOOK / "_static/evidence/nbs-proofs-ledger.js").read_text(encoding="utf-8")
    evidence = json.loads(re.search(r"\((.*)\);", script, re.DOTALL)[1])
    entries = [
        entry.replace("</dl>", rest + "</dl>", 1)
        for entry, rest in zip(entries, evidence, strict=True)
    ]
    for entry in entries:
        anchor = re.search(r'id="([^"]+)"', entry)[1]
        assert re.sub(r"<[^>]+>", "", html.unescape(re.search(r"<summary.*?</summary>", entry)[0]))
        for term in ("Derivation", "Checks", "Mutants"):
            assert f"<dt>{term}</dt>" in entry, anchor
        for page, place in re.findall(
            r'href="(?:\.\./)?([\w/.]*)#([^"]+)"', entry.split("</dl>")[0]
        ):
            assert place in anchors[f"nbs/{page}" if page else LEDGER], f"{anchor}: {page}#{place}"
    (card,) = (entry for entry in entries if 'id="claim-saul-2-16"' in entry)
    assert "def-class_probabilities" in card and "49 of 49 rejected" in card
    assert 'href="#claim-saul-2-19"' in card.split("Used by")[1].split("</dl>")[0]


def test_where_scripts_do_not_run_the_ledger_is_a_list_of_links(pages, cards):
    entries = re.split(r'(?=<details class="claim-card")', pages[LEDGER])[1:]
    assert {re.search(r'id="([^"]+)"', entry)[1] for entry in entries} == cards
    for entry in entries:
        anchor = re.search(r'id="([^"]+)"', entry)[1]
        name = re.search(r"<summary.*?</summary>", entry, re.DOTALL)[0]
        assert html.unescape(re.sub("<[^>]+>", "", name)).strip(), anchor
        page = re.search(rf'href="\.\./([^"#]+)#{re.escape(anchor)}"', entry)[1]
        assert f'id="{anchor}"' in pages[f"nbs/{page}"], anchor


# The ledger in a browser


@pytest.fixture(params=VIEWS.values(), ids=VIEWS)
def reader(request, browser, site):
    reader = Reader(browser, site, *request.param)
    yield reader
    assert not reader.errors and not reader.requests
    reader.context.close()


def test_ledger_filters(reader):
    page = reader.open(LEDGER)
    shown = page.locator(".claim-card:visible")
    everything = shown.count()
    page.locator("select[name=source]").select_option("saul")
    said = page.locator(".claim-filter output").inner_text()
    assert shown.count() == 52 and said == f"52 of {everything} claims"
    page.locator("input[name=words]").fill("posterior mean")
    ids = shown.evaluate_all("cards => cards.map(card => card.id)")
    assert {"claim-saul-2-8", "claim-saul-2-19"} <= set(ids) and len(ids) < 10
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
    page.wait_for_function("document.querySelector('#claim-saul-2-16[open] mjx-container > svg')")
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


def test_no_formula_of_a_card_is_clipped_or_red(reader):
    page = reader.open(LEDGER)
    wrong = page.evaluate(
        """async () => {
      const cards = [...document.querySelectorAll('.claim-card')];
      for (const card of cards) card.open = true;
      await MathJax.startup.document.lazyTypesetAll();
      await new Promise(done => setTimeout(done, 500));
      return cards.flatMap(card => {
        const box = card.querySelector('.claim-statement');
        const red = '[data-mml-node="mtext"][fill="red"], mjx-merror, [data-mjx-error]';
        if (!box.querySelector('mjx-container > svg')) return [card.id + ' is not typeset'];
        if (box.querySelector(red)) return [card.id + ' has an unknown command'];
        const wide = box.scrollWidth > box.clientWidth + 1;
        const cut = wide && !box.querySelector('[tabindex="0"]');
        if (cut && box.tabIndex !== 0) return [card.id + ' is cut'];
        if (wide && innerWidth > 1000) return [card.id + ' is too wide'];
        return box.scrollHeight > box.clientHeight + 1 ? [card.id + ' is too tall'] : [];
      });
    }"""
    )
    assert not wrong
