"""Equations carry the numbers of their sources, and each number leads to the claim that checks it.

Sphinx numbers equations by itself; here `saul-2-16` is "Saul 2.16", and the others are numbered
within their chapters, without gaps.
"""

import re
import sys
from functools import cache
from html import escape
from pathlib import Path

import yaml
from dependencies import notebooks
from docutils.nodes import Text, emphasis, inline, make_id, math_block
from execute import stored_path
from pages import on_every_page
from paths import ROOT
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(ROOT))  # the package beside the notebooks

from capslit.proofs.ledger import Ledger, recorded_reports  # noqa: E402

LEDGER = "nbs/proofs/ledger"
NUMBER = r'<span class="eqno">(\([^<]*\))(?=<a class="headerlink" href="#(equation-[^"]+)")'
CLAIM = r'(id="(claim-[^"]+)"><div class="claim-head"><b>)([^<]+)</b>'
# equations whose label is not that of their claim
CLAIMS = yaml.safe_load(Path(__file__).with_name("claims.yml").read_text(encoding="utf-8"))


def source_number(label):
    """'Saul 2.16' for the label saul-2-16, None for a label of our own."""
    match = re.fullmatch(r"saul-([a-z]|\d+)-(\d+)", label, re.IGNORECASE)
    return match and f"Saul {match[1].upper()}.{match[2]}"


def number_equations(app, env):
    """Give each labelled equation its number, by which references name it too."""
    equations = env.get_domain("math").equations
    counts = {}  # docname → how many equations of our own so far
    for label, (docname, _) in equations.items():
        number = source_number(label)
        if not number:
            counts[docname] = counts.get(docname, 0) + 1
            number = str(counts[docname])
        equations[label] = docname, number
    ledger()  # read once, before the pages are written by several processes
    return []


def show_numbers(app, doctree, docname):
    """Write the numbers beside the equations."""
    for equation in doctree.findall(math_block):
        if equation.get("label"):
            _, equation["number"] = app.env.get_domain("math").equations[equation["label"]]


def resolve_equation(app, env, node, contnode):
    """References to equations, whether a label is written saul-a-8 or saul-A-8. One from another
    chapter names the chapter: in words, if the number is not that of the paper.
    """
    if node.get("reftype") != "eq":
        return None
    for label, (docname, number) in env.get_domain("math").equations.items():
        if label.lower() == node["reftarget"].lower():
            anchor = make_id(f"equation-{label}")
            title = env.titles[docname].astext() if docname in env.titles else ""
            words = inline("", f"({number})")
            if docname == node["refdoc"]:
                title = ""
            elif title and not source_number(label):
                words += [Text(" in "), emphasis("", title.split(":")[0])]
            hint = title and f"in the chapter “{title}”"
            return make_refnode(app.builder, node["refdoc"], docname, anchor, words, hint)
    return None


@cache
def labels():
    """The chapter and the anchor of each equation of the first source, by its number, as files
    have it before any page is read.
    """
    found = {}
    for path in notebooks():
        docname = path.relative_to(ROOT).with_suffix("").as_posix()
        for label in re.findall(r"\$\$ \((saul-[\w-]+)\)", path.read_text(encoding="utf-8")):
            found[source_number(label)] = docname, make_id(f"equation-{label}")
    return found


@cache
def ledger():
    """The reports of all claims whose chapters have been executed."""
    executed = [path for path in notebooks() if stored_path(path).is_file()]
    return Ledger(
        report for path in executed for report in recorded_reports(path, stored_path(path))
    )


@cache
def claims_by_name():
    """The claims by the names that a label may give them: saul-2-16, or 2-16 without the source."""
    named = {r.anchor.removeprefix("claim-").lower(): r for r in ledger().values()}
    return {name.partition("-")[2]: r for name, r in named.items()} | named


def claim_of(label):
    """The report of the claim that an equation belongs to: the one of its name, with or without its
    source or its chapter; None if there is none.
    """
    if label in CLAIMS:
        return ledger().get(CLAIMS[label])
    source, *rest = label.lower().split("-")
    without_chapter = "-".join([source, *rest[1:]])
    return claims_by_name().get(label.lower()) or claims_by_name().get(without_chapter)


def link_claims(app, name, page):
    """The number beside an equation, and the name of a claim in its chapter, become links to the
    claim's card in the ledger.
    """
    home = app.builder.get_relative_uri(name, LEDGER) if name in app.env.found_docs else ""
    equations = app.env.get_domain("math").equations
    claims = {
        make_id(f"equation-{label}"): claim_of(label)
        for label, (docname, _) in equations.items()
        if docname == name
    }
    cards = {report.anchor for report in ledger().values()}  # examples of claims have none

    def link_number(match):
        number, anchor = match.groups()
        report = claims.get(anchor)
        if not report:
            return match[0]
        title = escape(f"The claim: {report.title}")
        link = f'<a class="capslit-claim" href="{home}#{report.anchor}" title="{title}">'
        return f'<span class="eqno">{link}{number}</a>'

    def link_name(match):
        start, anchor, text = match.groups()
        return f'{start}<a href="{home}#{anchor}">{text}</a></b>' if anchor in cards else match[0]

    return re.sub(CLAIM, link_name, re.sub(NUMBER, link_number, page))


def setup(app):
    app.connect("env-updated", number_equations)
    app.connect("doctree-resolved", show_numbers)
    app.connect("missing-reference", resolve_equation)
    on_every_page(app, link_claims)
