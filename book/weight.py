"""A page loads what it shows, where the theme brings what any book might need: scripts and styles
of parts that the page has, style rules that select something in the book. The evidence of claims
comes when a reader opens it.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

import tinycss2
from pages import on_every_page

# Files, and the words in a page that needs them
NEEDED = {
    r"<script [^>]*design-tabs\.js.*?</script>": "sd-tab-set",
    # Sphinx's search, which the book replaces, and the folds of the index of modules
    r"<script [^>]*/sphinx_highlight\.js.*?</script>": "/searchtools.js",
    r"<script [^>]*/doctools\.js.*?</script>": "modindextable|/searchtools.js",
    r"<link [^>]*sphinx-design[^>]*\.css[^>]*>": 'class="sd-',
    r"<link [^>]*/live\.css[^>]*>": "capslit-live",
    r"<link [^>]*/questions\.css[^>]*>": "capslit-question",
    r"<script [^>]*/ledger\.js.*?</script>": "claim-ledger",
}

# What became of a claim's mutants; the statement and the facts in the card of a claim, which keeps
# its name and where it is derived
EVIDENCE = (
    r'(<details class="claim-trials")(><summary>.*?</summary>)()()(.*?)(?=</details>)',
    r'(<details class="claim-card"[^>]*)(><summary[^>]*>.*?</summary><div class="claim-statement">)'
    r"(.*?)(</div><dl>.*?</dd>)(.*?)(?=</dl></details>)",
)


def lighten_page(app, name, page):
    """Take out files that the page does not need, and move evidence to a script."""
    for file, words in NEEDED.items():
        if not re.search(words, page, re.DOTALL):
            page = re.sub(file, "", page, flags=re.DOTALL)
    page = page.replace('class="math notranslate nohighlight"', 'class="math notranslate"')
    page = re.sub(r"<img (?=[^>]*/images/logo_)", '<img loading="lazy" ', page)  # in a closed menu
    lists = []
    root, file = "../" * name.count("/"), f"_static/evidence/{name.replace('/', '-')}.js"

    def move(match):
        start, summary, statement, derivation, rest = match.groups()
        address = f"#{len(lists)}" if lists else f"{root}{file}#0"  # the file's name once
        lists.append([statement, rest])
        return f'{start} data-evidence="{address}"{summary}{derivation}'

    for pattern in EVIDENCE:
        page = re.sub(pattern, move, page, flags=re.DOTALL)
    if lists:
        target = Path(app.outdir, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"capslitEvidence({json.dumps(lists)});\n", encoding="utf-8")
    return page


# Style sheets


def smaller_style(rules, words):
    """Style rules as text, without those that name a class or an id that is not among the words."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            parts = [part for part in selectors(rule.prelude) if named(part) <= words]
            if parts:
                block = tinycss2.serialize(rule.content)
                kept.append(f"{','.join(map(tinycss2.serialize, parts))}{{{block}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inner = smaller_style(tinycss2.parse_rule_list(rule.content), words)
            if inner:
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}")
        elif rule.type == "at-rule":
            kept.append(rule.serialize())
    return "".join(kept)


def selectors(prelude):
    """The selectors of a rule, which commas separate."""
    commas = [i for i, token in enumerate(prelude) if token == ","]
    return [prelude[i + 1 : j] for i, j in pairwise([-1, *commas, len(prelude)])]


def named(selector):
    """Classes and ids that an element must have; those in brackets, as of :not(), do not count."""
    ids = {token.value for token in selector if token.type == "hash"}
    return ids | {name.value for dot, name in pairwise(selector) if dot == "."}


def without_unread(css, read):
    """A style sheet without the theme's properties, and without animations, that no rule reads."""
    value = r"(?:[^;{}\"']|\"[^\"]*\"|'[^']*')*"
    theme = rf"(--(?:bs|pst|sbt|sd|fa)-[\w-]+)\s*:{value};?"
    css = re.sub(theme, lambda match: match[0] if match[1] in read else "", css)
    frames = r"@(?:-webkit-)?keyframes ([\w-]+)\s*\{(?:[^{}]*\{[^{}]*\})*\s*\}"
    bare = re.sub(frames, "", css)
    return re.sub(frames, lambda match: match[0] if match[1] in bare else "", css)


def lighten_files(app, exception):
    """Write the style sheets again, with what the pages use."""
    if exception is not None or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    pages = [path for path in Path(app.outdir).rglob("*.html") if static not in path.parents]
    whole = ("fontawesome.js", "bootstrap.js")
    scripts = [path for path in static.rglob("*.js") if path.name not in whole]
    book = "\n".join(path.read_text(encoding="utf-8") for path in [*pages, *scripts])
    words = set(re.findall(r"(?:--)?[A-Za-z_][\w-]*", book))
    # what Bootstrap adds when it shows a tooltip; menus are in the pages
    words |= {"bs-tooltip-auto", "tooltip-inner", "tooltip-arrow"}
    sheets = {}
    for path in static.rglob("*.css"):
        rules = tinycss2.parse_stylesheet(path.read_text(encoding="utf-8"), skip_comments=True)
        sheets[path] = smaller_style(rules, words)
    read = words.union(*(re.findall(r"var\(\s*(--[\w-]+)", css) for css in sheets.values()))
    for path, css in sheets.items():
        path.write_text(without_unread(css, read), encoding="utf-8")


def setup(app):
    on_every_page(app, lighten_page)
    app.connect("build-finished", lighten_files, priority=900)
