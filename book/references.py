"""The book's references: an equation's number leads to its claim, a function's cell to its entry in
the reference and back, a name in the text to its entry.
"""

import ast
import json
import re
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path

from dependencies import below, modules, notebooks, public, tree
from docutils import nodes
from docutils.nodes import make_id
from execute import stored_path
from sphinx.addnodes import desc, pending_xref
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from capslit.proofs.claims import REPORT_MIME, claims_named  # noqa: E402
from capslit.proofs.ledger import Ledger, card, is_claim_cell, recorded_reports  # noqa: E402

LEDGER = "nbs/proofs/ledger"
PLAIN = "capslit.capsules.plain."


# Equations: a label names its source and number, `saul-2-16` → "Saul 2.16"; the others are numbered
# by chapter

NUMBERED = {"saul": "Saul"}


def source_number(label):
    """'Saul 2.16' for the label saul-2-16, None for a label of our own."""
    match = re.fullmatch(rf"({'|'.join(NUMBERED)})-([a-z]|\d+)-(\d+)", label, re.IGNORECASE)
    return match and f"{NUMBERED[match[1].lower()]} {match[2].upper()}.{match[3]}"


def restore_numbers(app, env):
    """Sphinx compares its numbers with those of the last build, to see which pages must be written
    anew: give it back its own.
    """
    env.toc_fignumbers = getattr(env, "capslit_fignumbers", env.toc_fignumbers)
    return []


def number_equations(app, env):
    """Give each labelled equation its source's number, and number the rest of each chapter without
    gaps.
    """
    env.capslit_fignumbers = deepcopy(env.toc_fignumbers)
    own = {}  # docname → how many equations of our own so far
    for label, (docname, _) in env.get_domain("math").equations.items():
        numbers = env.toc_fignumbers.get(docname, {}).get("displaymath", {})
        node_id = make_id(f"equation-{label}")
        if node_id not in numbers:
            continue
        if source_number(label):
            numbers[node_id] = (source_number(label),)
        else:
            own[docname] = own.get(docname, 0) + 1
            numbers[node_id] = (*numbers[node_id][:1], own[docname])
    return []


def collect_labels(app, env, docnames):
    """Labels of the papers' equations in the chapters of this book, known before any page
    is read.
    """
    env.capslit_labels = set()  # in lower case
    for docname in env.found_docs:
        text = Path(env.doc2path(docname)).read_text(encoding="utf-8")
        env.capslit_labels.update(
            label.lower() for label in re.findall(r"\$\$ \((saul-[\w-]+)\)", text)
        )


def saul_role(name, rawtext, text, lineno, inliner, options=None, content=None):
    """`Saul 2.16` in a docstring → a link to the equation, under the name that stands there."""
    env = inliner.document.settings.env
    label = "saul-" + text.split()[1].replace(".", "-").lower()
    if label not in env.capslit_labels:
        return [nodes.Text(text)], []
    return [
        pending_xref(
            "",
            nodes.inline("", text),
            refdomain="",
            reftype="saul",
            reftarget=label,
            refdoc=env.docname,
            refexplicit=True,
            refwarn=True,
        )
    ], []


def resolve_equation(app, env, node, contnode):
    """References to the papers' equations, whether their label is written saul-a-8 or saul-A-8."""
    target = node.get("reftarget", "").lower()
    if node.get("reftype") not in ("eq", "saul") or not source_number(target):
        return None
    for label, (docname, _) in env.get_domain("math").equations.items():
        if label.lower() == target:
            text = (
                contnode if node["reftype"] == "saul" else nodes.Text(f"({source_number(label)})")
            )
            return make_refnode(
                app.builder, node["refdoc"], docname, make_id(f"equation-{label}"), text
            )
    return None


# Claims: what the executed notebooks report, and which of them an equation belongs to

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


@cache
def ledger():
    """The reports of all claims whose chapters have been executed."""
    return Ledger(
        report
        for path in notebooks()
        if stored_path(path).is_file()
        for report in recorded_reports(path, stored_path(path))
    )


@cache
def claims_by_name():
    """The ids of the claims by the names that a label may give them: saul-2-16, and 2-16 without
    the source.
    """
    named = {report.anchor.removeprefix("claim-").lower(): id for id, report in ledger().items()}
    return {name.partition("-")[2]: id for name, id in named.items()} | named


def claim_of(label):
    """The id of the claim that an equation belongs to: the one of its name, with or without its
    source or its chapter; None if there is none.
    """
    source, *rest = label.lower().split("-")
    names = label.lower(), "-".join([source, *rest[1:]])
    return next(
        (id for id in (CLAIMS.get(label), *map(claims_by_name().get, names)) if id in ledger()),
        None,
    )


def docname_of(report):
    """The page of a claim's chapter."""
    return f"nbs/{report.chapter}"


def link_equation_numbers(app, pagename, templatename, context, doctree):
    """On the written page, an equation's number becomes a link to its claim; the ledger has a
    script.
    """
    claims = {
        make_id(f"equation-{label}"): claim_of(label)
        for label, (docname, _) in app.env.get_domain("math").equations.items()
        if docname == pagename
    }

    def link(match):
        report = ledger().get(claims.get(match[2]))
        if not report:
            return match[0]
        address = f"{app.builder.get_relative_uri(pagename, LEDGER)}#{report.anchor}"
        return (
            f'<span class="eqno"><a class="capslit-claim" href="{address}" title="The claim:'
            f' {escape_title(report.title)}">{match[1]}</a>{match[3]}'
        )

    if claims and "body" in context:
        context["body"] = re.sub(
            r'<span class="eqno">(\([^<]*\))(?=<a class="headerlink" href="#(equation-[^"]+)")()',
            link,
            context["body"],
        )
    if pagename == LEDGER:
        app.add_js_file("references.js")


def escape_title(text):
    """A text that stands between double quotes in HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


# Cells: which cell of a chapter defines a public name


def definitions(source):
    """The public functions and classes that a cell defines at its top level."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a line for IPython
        return []
    return [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]


def is_exported(source):
    """Whether a cell goes into the module."""
    return bool(re.search(r"^#\|\s*exports?\b", source, re.MULTILINE))


@cache
def module_name(path):
    """The module 'capslit.x' that a notebook defines; None if it defines none."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.suffix == ".ipynb" else []
    found = re.search(
        r"^#\|\s*default_exp\s+([\w.]+)",
        "\n".join("".join(cell["source"]) for cell in cells),
        re.MULTILINE,
    )
    return found and f"capslit.{found[1]}"


def read_cells(app, docname, source):
    """Note in each code cell which public names it defines, keep where they are, and let each claim
    lead to its card; runs after the outputs are in.
    """
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    raw = {cell["id"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}
    home = app.builder.get_relative_uri(docname, LEDGER)
    for cell in notebook["cells"]:
        given = raw.get(cell["id"], cell)
        text = "".join(given["source"])
        if cell["cell_type"] == "code":
            names = definitions(text) if is_exported(text) and module_name(path) else []
            cell["metadata"]["capslit_names"] = [f"{module_name(path)}.{name}" for name in names]
            app.env.capslit_cells.update(
                {f"{module_name(path)}.{name}": (docname, f"def-{name}") for name in names}
            )
            for output in cell["outputs"]:
                report = output.get("data", {}).pop(
                    REPORT_MIME, None
                )  # data for the ledger, not for readers
                if report and is_claim_cell(given):
                    output["data"]["text/html"] = linked_claim(
                        report, output["data"]["text/html"], home
                    )
    source[0] = json.dumps(notebook)


def linked_claim(report, html, home):
    """The display of a claim, its name linked to the claim's card in the ledger."""
    (anchor,) = re.findall(r'id="(claim-[^"]+)"', "".join(html))
    name = f"<b>{report['id']}</b>"
    return "".join(html).replace(name, f'<b><a href="{home}#{anchor}">{report["id"]}</a></b>', 1)


def forget_cells(app, env, docname):
    """Drop what is known of a page before it is read again."""
    env.capslit_cells = {
        name: place
        for name, place in getattr(env, "capslit_cells", {}).items()
        if place[0] != docname
    }
    env.capslit_mentions = {
        page: labels
        for page, labels in getattr(env, "capslit_mentions", {}).items()
        if page != docname
    }


def merge_cells(app, env, docnames, other):
    """Bring together what parallel processes have read."""
    env.capslit_cells.update(
        {name: place for name, place in other.capslit_cells.items() if place[0] in docnames}
    )
    env.capslit_mentions.update(
        {page: labels for page, labels in other.capslit_mentions.items() if page in docnames}
    )


def begin(app, env, docnames):
    """The tables exist before the first page is read."""
    env.capslit_cells = getattr(env, "capslit_cells", {})
    env.capslit_mentions = getattr(env, "capslit_mentions", {})


def note_mentions(app, doctree):
    """Keep which equations a page refers to."""
    targets = {
        node["reftarget"].lower()
        for node in doctree.findall(pending_xref)
        if node.get("reftype") in ("eq", "saul")
    }
    app.env.capslit_mentions[app.env.docname] = sorted(targets)


# The reference: each documented name by the module in which it is defined


def canonical(name):
    """Where a dotted name is defined: capslit.CapsuleClassifier.fit →
    capslit.capsules.classifier.CapsuleClassifier.fit.
    """
    parts = name.split(".")
    package = max((i for i in range(1, len(parts)) if ".".join(parts[:i]) in modules()), default=0)
    home = ".".join(parts[:package])
    if home and parts[package] in public(home):
        return canonical(".".join([public(home)[parts[package]], *parts[package + 1 :]]))
    return name


def index_entries(app, env):
    """The entries of the reference, {name where it is defined: (page, anchor)}, and those of the
    functions and classes by their last name.
    """
    app.capslit_entries, app.capslit_short = {}, {}
    for name, entry in env.domaindata["py"]["objects"].items():
        full = canonical(name)
        app.capslit_entries.setdefault(full, (entry.docname, entry.node_id))
        if entry.objtype in ("function", "class", "exception"):
            app.capslit_short.setdefault(full.rpartition(".")[2], set()).add(full)
    ledger()  # read once, before the pages are written by several processes
    return []


def find_entry(app, text, module):
    """The entry that a name in the text of a chapter means, or None if it may mean
    several things.
    """
    text = text.removesuffix("()")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", text):
        return None
    if text.startswith("capslit."):
        return app.capslit_entries.get(canonical(text))
    first, _, rest = text.partition(".")
    own = f"{module}.{first}"
    telling = "_" in first or re.search(
        r"[a-z][A-Z]", first
    )  # words such as `mean` have meanings of their own
    known = app.capslit_short.get(first, ())
    # the plain reference repeats names of the engine: elsewhere the engine's are meant
    fast = [name for name in known if not name.startswith(PLAIN)]
    full = own if own in known else fast[0] if len(fast) == 1 and telling else None
    return full and app.capslit_entries.get(f"{full}.{rest}" if rest else full)


def link_names(app, doctree, docname):
    """Names of public functions and classes in the text lead to the reference, at their first
    mention in each section.
    """
    if app.builder.format != "html":
        return
    module, seen = module_name(Path(app.env.doc2path(docname))), set()
    for literal in list(doctree.findall(nodes.literal)):
        above = ancestors(literal)
        if any(
            isinstance(node, nodes.title | nodes.reference | nodes.term | pending_xref)
            or "sig" in node.get("classes", ())
            for node in above
        ):
            continue
        entry = find_entry(app, literal.astext(), module)
        part = next((node for node in above if isinstance(node, nodes.section | desc)), None)
        own = isinstance(part, desc) and any(
            entry and entry[1] in node["ids"]
            for sign in above
            if isinstance(sign, desc)
            for node in sign.children[:1]
        )
        if entry and not own and (id(part), entry) not in seen:
            seen.add((id(part), entry))
            literal.replace_self(make_refnode(app.builder, docname, *entry, literal.deepcopy()))


def ancestors(node):
    """The nodes above a node, nearest first."""
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def link_cells(app, doctree, docname):
    """A cell that defines public names has their anchors, and a line of links to their entries in
    the reference.
    """
    if app.builder.format != "html":
        return
    for cell in doctree.findall(nodes.container):
        names = (
            (cell.get("cell_metadata") or {}).get("capslit_names")
            if cell.get("nb_element") == "cell_code"
            else None
        )
        source = next(
            (
                node
                for node in cell.findall(nodes.container)
                if node.get("nb_element") == "cell_code_source"
            ),
            None,
        )
        if not names or source is None:
            continue
        cell["ids"] += [f"def-{name.rpartition('.')[2]}" for name in names]
        links = [
            make_refnode(
                app.builder,
                docname,
                *app.capslit_entries[name],
                nodes.literal("", name.rpartition(".")[2]),
            )
            for name in names
            if name in app.capslit_entries
        ]
        if links:
            spaced = [part for link in links for part in (nodes.Text(" "), link)]
            source += nodes.paragraph(
                "", "", nodes.Text("Reference:"), *spaced, classes=["capslit-reference"]
            )


def cell_role(name, rawtext, text, lineno, inliner, options=None, content=None):
    """In the reference: a function's name → the title of its chapter, as a link to the cell that
    defines it.
    """
    env = inliner.document.settings.env
    return [
        pending_xref(
            "",
            nodes.inline("", text),
            refdomain="",
            reftype="cell",
            reftarget=text,
            refdoc=env.docname,
            refexplicit=True,
            refwarn=True,
        )
    ], []


def resolve_cell(app, env, node, contnode):
    """The link from an entry of the reference to its cell."""
    if node.get("reftype") != "cell":
        return None
    docname, anchor = env.capslit_cells.get(node["reftarget"], (None, None))
    docname = docname or chapter_of(node["reftarget"].rpartition(".")[0])
    title = env.titles[docname].astext() if docname in env.titles else contnode.astext()
    return docname and make_refnode(app.builder, node["refdoc"], docname, anchor, nodes.Text(title))


@cache
def chapter_of(module):
    """The chapter ('nbs/capsules/inference') that a generated module came from."""
    path = ROOT / (module.replace(".", "/") + ".py")
    match = (
        re.search(r"File to edit: (?:\.\./)+(\S+)\.ipynb", path.read_text(encoding="utf-8"))
        if path.is_file()
        else None
    )
    return match and match[1]


# Cards: what the ledger shows of a claim, written as scripts that it loads when a card is opened


def used(node):
    """The names that a piece of code reads."""
    return {
        part.id
        for part in below(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    }


def defined(node):
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def imported_names(trees):
    """Where the names come from that some code imports from the package."""
    found = [
        node
        for tree in trees
        for node in below(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("capslit")
    ]
    return {
        alias.asname or alias.name: canonical(f"{node.module}.{alias.name}")
        for node in found
        for alias in node.names
    }


def parsed(source):
    """The syntax tree of a cell; an empty one if the cell holds a line for IPython."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.parse("")


def functions_of_claims(path):
    """{claim: functions of the package that its cell uses, directly or through the helpers of other
    claim cells}.
    """
    cells = [
        cell
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    claims = [cell["id"] for cell in cells if is_claim_cell(cell)]
    if not claims:
        return {}
    texts = {cell["id"]: "".join(cell["source"]) for cell in cells}
    trees = {id: parsed(text) for id, text in texts.items()}
    known = imported_names(trees.values()) | {
        name: f"{module_name(path)}.{name}"
        for text in texts.values()
        if is_exported(text)
        for name in definitions(text)
    }
    helpers = {
        name: used(node) for id in claims for node in trees[id].body for name in defined(node)
    }
    executed = json.loads(stored_path(path).read_text(encoding="utf-8"))["cells"]
    reports = {
        output["data"][REPORT_MIME]["id"]: cell["id"]
        for cell in executed
        if cell["id"] in claims
        for output in cell["outputs"]
        if REPORT_MIME in output.get("data", {})
    }
    found = {}
    for claim, id in reports.items():
        names, todo = set(), used(trees[id])
        while todo:
            names |= todo
            todo = {name for helper in todo for name in helpers.get(helper, ())} - names
        found[claim] = {
            known[name]
            for name in names & known.keys()
            if not known[name].startswith("capslit.proofs.")
        }
    return found


@cache
def functions_by_claim():
    """The functions and classes whose docstring names a claim: {'saul:2.16': [names]}."""
    found = {}
    for module, path in modules().items():
        for node in tree(path).body if not module.startswith("capslit.proofs") else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                for id in claims_named(ast.get_docstring(node) or ""):
                    found.setdefault(id, set()).add(f"{module}.{node.name}")
    return found


def equations_by_claim(env):
    """The equations of each claim: {claim: [(page, anchor, number)]}."""
    found = {}
    for label, (docname, _) in env.get_domain("math").equations.items():
        anchor = make_id(f"equation-{label}")
        number = env.toc_fignumbers.get(docname, {}).get("displaymath", {}).get(anchor)
        if number and claim_of(label):
            found.setdefault(claim_of(label), []).append(
                (docname, anchor, ".".join(map(str, number)), label)
            )
    return found


def write_cards(app, exception):
    """One script for each chapter that makes claims: {claim: its card}, with links that hold on the
    ledger's page.
    """
    if exception or app.builder.format != "html" or not hasattr(app, "capslit_entries"):
        return
    env, target = app.env, Path(app.outdir) / "_static" / "live"
    target.mkdir(parents=True, exist_ok=True)
    users, equations = ledger().users(), equations_by_claim(env)
    functions = {
        claim: names
        for path in notebooks()
        if stored_path(path).is_file()
        for claim, names in functions_of_claims(path).items()
    }

    def title(docname):
        return env.titles[docname].astext() if docname in env.titles else docname

    def link(docname, anchor):
        return f"{app.builder.get_relative_uri(LEDGER, docname)}#{anchor}"

    def code(names):
        rows = []
        for name in sorted(names & app.capslit_entries.keys()):
            rows.append(
                [
                    name.rpartition(".")[2],
                    link(*env.capslit_cells[name]) if name in env.capslit_cells else "",
                    link(*app.capslit_entries[name]),
                ]
            )
        return rows

    chapters = {}
    for id, report in ledger().items():
        own = equations.get(id, [])
        labels = {label.lower() for *_, label in own}
        names = functions.get(id, set()) | functions_by_claim().get(id, set())
        pages = [
            page
            for page, targets in sorted(env.capslit_mentions.items())
            if labels & set(targets) and page not in {page for page, *_ in own}
        ]
        chapters.setdefault(report.chapter, {})[id] = card(
            report, ledger().foundations(id), users[id]
        ) | {
            "chapter": [title(docname_of(report)), link(docname_of(report), report.anchor)],
            "equations": [[number, link(page, anchor)] for page, anchor, number, _ in own],
            "code": code(names),
            "mentions": [
                [title(page), app.builder.get_relative_uri(LEDGER, page)] for page in pages
            ],
        }
    for chapter, cards in chapters.items():
        text = json.dumps(cards, ensure_ascii=False, separators=(",", ":"))
        (target / f"claims-{chapter.replace('/', '-')}.js").write_text(
            f"window.capslitClaims = Object.assign(window.capslitClaims || {{}}, {text});\n",
            encoding="utf-8",
        )


def setup(app):
    app.connect("env-before-read-docs", collect_labels)
    app.connect("env-before-read-docs", begin)
    app.connect("env-purge-doc", forget_cells)
    app.connect("env-merge-info", merge_cells)
    app.connect("source-read", read_cells, priority=700)  # after the outputs are in
    app.connect("doctree-read", note_mentions)
    app.connect("env-get-updated", restore_numbers, priority=100)
    app.connect(
        "env-get-updated", number_equations, priority=900
    )  # after Sphinx has numbered them its way
    app.connect("env-updated", index_entries)
    app.connect("missing-reference", resolve_equation)
    app.connect("missing-reference", resolve_cell)
    app.connect("doctree-resolved", link_names)
    app.connect("doctree-resolved", link_cells)
    app.connect("html-page-context", link_equation_numbers)
    app.connect(
        "build-finished", write_cards, priority=100
    )  # before what looks through all that was written
    app.add_role("saul", saul_role)
    app.add_role("cell", cell_role)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
