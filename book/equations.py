"""Equations carry the numbers of their sources, and each number leads to the claim that checks it.

Sphinx numbers equations by itself; here `saul-2-16` is "Saul 2.16", and the others are numbered by
chapter without gaps.
"""

import re
import sys
from functools import cache
from html import escape

from dependencies import ROOT, notebooks
from docutils.nodes import Text, make_id, math_block
from execute import stored_path
from pages import on_every_page
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(ROOT))  # the package beside the notebooks

from capslit.proofs.ledger import Ledger, recorded_reports  # noqa: E402

LEDGER = "nbs/proofs/ledger"
# Equations whose label is not that of their claim
CLAIMS = {
    "goessling-rules-share": "goessling:share-integral",
    "goessling-rules-landscape": "goessling:figure-2-limit",
    "goessling-rules-squeeze": "goessling:figure-2-limit",
    "goessling-rules-quadrants": "goessling:figure-2",
    "goessling-rules-gradient": "goessling:figure-2-gradient",
    "goessling-pursuit-carry": "goessling:extremes",
    "goessling-pursuit-linear": "capslit:pursuit-bounds",
    "goessling-pursuit-gain": "capslit:pursuit-bounds",
    "goessling-new-expert": "goessling:initialisation",
    "goessling-new-expert-maximum": "goessling:initialisation-maximum",
    "ghahramani-field": "ghahramani:1",
    "ghahramani-bound": "ghahramani:mean-field-divergence",
    "ghahramani-expected": "ghahramani:4",
    "ghahramani-hmm-output": "ghahramani:hmm-joint",
    "ghahramani-hmm-backward": "ghahramani:hmm-posteriors",
    "ghahramani-hmm-product": "ghahramani:hmm-bound",
    "hinton-pythagoras": "hinton:reconstruction",
    "hinton-factor-analysis": "hinton:covariance",
    "routing-log-density": "routing:3",
    "routing-expected": "routing:6",
    "routing-maximum": "routing:9",
    "routing-shortfall": "routing:9",
    "routing-moments": "capslit:moments-about-any-point",
    "routing-activation-energy": "routing:11",
    "routing-votes": "capslit:routing",
    "routing-corrected": "capslit:routing",
    "routing-free-energy": "capslit:routing-descent",
    "routing-joint-energy": "capslit:routing-joint-energy",
    "bridge-agreement": "bridge:shares",
    "capslit-scaled": "capslit:scaled-weights",
    "capslit-moment-recursion": "capslit:moments",
    "jensen": "capslit:em-bound",
    "mean-and-spread": "saul:2.9",
    "whitened": "saul:2.28",
    "evidence-lower-bound": "capslit:evidence-inequality",
    "expanded-variance": "capslit:expanded-step",
    "expanded-update": "capslit:expanded-step",
    "label-gram": "capslit:label-information",
    "likelihood-discrepancy": "capslit:discrepancy",
    "whitened-codes": "capslit:factor-step",
    "probabilistic-pca": "capslit:ppca-fixed-point",
    "inference-l1": "capslit:l1-votes",
    "freed": "capslit:freed-density",
    "tangents-both-sides": "hinton:reconstruct-tangents",
    "tangent-schur": "hinton:tangent-distance",
}


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
            chapter = env.toc_secnumbers.get(docname, {}).get("", ())
            number = ".".join(map(str, [*chapter, counts[docname]]))
        equations[label] = docname, number
    ledger()  # read once, before the pages are written by several processes
    return []


def show_numbers(app, doctree, docname):
    """Write the numbers beside the equations."""
    for equation in doctree.findall(math_block):
        if equation.get("label"):
            _, equation["number"] = app.env.get_domain("math").equations[equation["label"]]


def resolve_equation(app, env, node, contnode):
    """References to the papers' equations, whether their label is written saul-a-8 or saul-A-8."""
    if node.get("reftype") != "eq":
        return None
    for label, (docname, number) in env.get_domain("math").equations.items():
        if label.lower() == node["reftarget"].lower():
            anchor = make_id(f"equation-{label}")
            return make_refnode(app.builder, node["refdoc"], docname, anchor, Text(f"({number})"))
    return None


@cache
def labels():
    """The chapter and the anchor of each equation of the first source, by its number, as files
    have it before any page is read.
    """
    found = {}
    for path in notebooks():
        text = path.read_text(encoding="utf-8")
        for label in re.findall(r"\$\$ \((saul-[\w-]+)\)", text):
            docname = path.relative_to(ROOT).with_suffix("").as_posix()
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
    equations = app.env.get_domain("math").equations.items()
    claims = {
        make_id(f"equation-{label}"): claim_of(label)
        for label, (docname, _) in equations
        if docname == name
    }

    def link(match):
        number, anchor = match.groups()
        report = claims.get(anchor)
        if not report:
            return match[0]
        address = f"{home}#{report.anchor}"
        title = escape(f"The claim: {report.title}")
        return (
            '<span class="eqno">'
            f'<a class="capslit-claim" href="{address}" title="{title}">{number}</a>'
        )

    number = r'<span class="eqno">(\([^<]*\))(?=<a class="headerlink" href="#(equation-[^"]+)")'
    page = re.sub(number, link, page)
    cards = {r.anchor for r in ledger().values()}  # examples of claims have none

    def name(match):
        start, anchor, text = match.groups()
        return f'{start}<a href="{home}#{anchor}">{text}</a></b>' if anchor in cards else match[0]

    return re.sub(r'(id="(claim-[^"]+)"><div class="claim-head"><b>)([^<]+)</b>', name, page)


def look_once(app, env, docnames):
    """Look at all notebooks before the pages are read, each by its own process."""
    labels()


def setup(app):
    app.connect("env-before-read-docs", look_once)

    app.connect("env-updated", number_equations)
    app.connect("doctree-resolved", show_numbers)
    app.connect("missing-reference", resolve_equation)
    on_every_page(app, link_claims)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
