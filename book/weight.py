"""The weight of the pages: what a reader's browser loads before it shows one.

The theme serves every book, so it brings 1,500 icons, the styles of a thousand components and the
index of the search with each page. Here the icons are drawn into the page, styles that nothing in
the book uses are left out, and the search is loaded by the page that searches.
"""

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path

from pages import on_every_page

ICON = re.compile(r'<(i|span) class="([^"]*\bfa[sb]?\b[^"]*|fa-[^"]*)"([^>]*)></\1>')
NOT_AN_ICON = {"fa-lg", "fa-solid", "fa-regular", "fa-brands", "fa-fw"}


@cache
def icons(outdir):
    """Name → (width, height, path) of the theme's icons, its brands left out."""
    import pydata_sphinx_theme

    script = (
        Path(pydata_sphinx_theme.__file__).parent
        / "theme/pydata_sphinx_theme/static/scripts/fontawesome.js"
    )
    found = {}
    for names, width, height, aliases, path in re.findall(
        r'"?([a-z0-9-]+)"?:\[(\d+),(\d+),\[([^]]*)\],"\w+","([^"]+)"\]',
        script.read_text(encoding="utf-8"),
    ):
        for name in [names, *re.findall(r'"([a-z0-9-]+)"', aliases)]:
            found[name] = width, height, path  # the solid style comes last
    return found


def draw_icons(app, name, page):
    """Draw the icons that the theme's script would draw in the browser."""

    def draw(match):
        tag, classes, attributes = match.groups()
        wanted = [
            word for word in classes.split() if word.startswith("fa-") and word not in NOT_AN_ICON
        ]
        if not wanted or wanted[0][3:] not in icons(app.outdir):
            return match[0]
        width, height, path = icons(app.outdir)[wanted[0][3:]]
        title = re.sub(r'\stitle="[^"]*"', "", attributes)
        return (
            f'<svg class="svg-inline--fa {classes}" aria-hidden="true" focusable="false" viewBox="0'
            f' 0 {width} {height}"{title}><path fill="currentColor" d="{path}"></path></svg>'
        )

    page = ICON.sub(draw, page)
    return re.sub(r'<script defer src="[^"]*/fontawesome\.js[^"]*"></script>', "", page)


def without_search(app, name, page):
    """Leave the search's scripts and index to the page that searches."""
    return (
        page
        if name == "search"
        else re.sub(
            r'<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>\s*',
            "",
            page,
        )
    )


def shorter_signatures(app, name, page):
    """Leave out of a thousand signatures what nothing reads: the words of their links' tooltips,
    and second names of classes.
    """
    for long, short in (
        (' title="Link to this definition"', ""),
        ("sig-prename descclassname", "sig-prename"),
        ("sig-name descname", "sig-name"),
        ('class="sig sig-object py"', 'class="sig"'),
    ):
        page = page.replace(long, short)
    if name.startswith("nbs/practice/api"):
        page = page.replace(
            '<code class="docutils literal notranslate">', '<code class="literal notranslate">'
        )
    return page


def without_space(app, name, page):
    """Leave out the comments, the indentation and the line ends between blocks of the theme's
    templates; code and scripts stay as they are.
    """
    blocks = (
        r"\n(?=</?(?:div|section|article|main|aside|nav|header|footer|p|h\d|[uod]l|li|d[td]"
        r"|table|t[rdh]|thead|tbody|figure|link|meta)\b)"
    )
    kept = r"(<(pre|script|style|textarea)\b.*?</\2>)"
    pieces = re.split(kept, page, flags=re.DOTALL)
    pieces[::3] = [
        re.sub(
            blocks, "", re.sub(r"\s*\n\s*", "\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
        )
        for text in pieces[::3]
    ]
    del pieces[2::3]
    return "".join(pieces)


def without_unused(app, name, page):
    """Leave out the script of tabs where there are none, and let the picture in the menu of
    launchers wait until the menu is opened.
    """
    if "sd-tab-set" not in page:
        page = re.sub(r'<script src="[^"]*design-tabs\.js[^"]*"></script>\s*', "", page)
    return re.sub(r"<img (?=[^>]*/images/logo_\w+\.png)", '<img loading="lazy" ', page)


def scripts_wait(app, name, page):
    """Have scripts wait until the page is there, but for the options that lines of the page change
    at once, and where one searches.
    """
    return (
        page
        if name == "search"
        else re.sub(
            r"<script (?=[^>]*\bsrc=)(?![^>]*(?:\bdefer\b|\basync\b|documentation_options))",
            '<script defer="defer" ',
            page,
        )
    )


def without_plain_spans(app, name, page):
    """Unwrap what is marked in code without need: names, numbers, constants, punctuation,
    operators, half of many a page; and the parts of a signature.
    """
    plain = re.compile(
        r'<span class="(?:n|nx|nb|bp|kc|mi|mf|sa|si|p|w|o|pre|sig-paren)">([^<>]*)</span>'
    )
    page, count = (
        page.replace("<span></span>", "").replace(
            'class="math notranslate nohighlight"', 'class="math notranslate"'
        ),
        1,
    )
    page = page.replace('class="capslit-chapter docutils container"', 'class="capslit-chapter"')
    while count:
        page, count = plain.subn(r"\1", page)
    return re.sub(
        r'<em class="sig-param">(.*?)</em>',
        lambda match: re.sub("</?span[^>]*>", "", match[1]),
        page,
    )


# Evidence: what became of a claim's mutants is loaded when a reader asks for it


def without_evidence(app, name, page):
    """Move the lists of mutants to a script that `weight.js` loads when one of them is opened."""
    lists = []

    def move(match):
        lists.append(match[2])
        return (
            f'<details class="claim-trials" data-evidence="{len(lists) - 1}"'
            f' data-file="{root}{file}">{match[1]}</details>'
        )

    root, file = "../" * name.count("/"), f"_static/evidence/{name.replace('/', '-')}.js"
    page = re.sub(
        r'<details class="claim-trials">(<summary>.*?</summary>)(.*?)</details>',
        move,
        page,
        flags=re.DOTALL,
    )
    if lists:
        target = Path(app.outdir) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            f"capslitEvidence({json.dumps(lists, ensure_ascii=False)});\n", encoding="utf-8"
        )
    return page


# Styles: rules whose classes and elements stand in no page and no script


def words_of_book(outdir):
    """All words that stand in pages and scripts, among them the names of all classes, elements and
    attributes that they may use.
    """
    words = set()
    for path in [
        *outdir.glob("*.html"),
        *outdir.glob("nbs/**/*.html"),
        *outdir.glob("_static/*.js"),
        *outdir.glob("_static/scripts/*.js"),
        *outdir.glob("_static/evidence/*.js"),
        *outdir.glob("_static/live/*.js"),
    ]:
        if path.name not in ("fontawesome.js",):
            words.update(re.findall(r"(?:--)?[A-Za-z_][\w-]*", path.read_text(encoding="utf-8")))
    return words


def used(selector, words):
    """Whether all classes and ids that a selector names are among the words; what it excludes does
    not count.
    """
    selector = re.sub(r":not\([^)]*\)", "", selector)
    return all(
        name.replace("\\", "") in words
        for name in re.findall(r"[.#]((?:[\w-]|\\.)+)", re.sub(r"\[[^]]*\]", "", selector))
    )


def purged(css, words):
    """A style sheet without the rules that select nothing; blocks like @media are kept with the
    rules in them.
    """
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    out, position = [], 0
    for match in re.finditer(r"([^{}]*)(\{|\})", css):
        head, brace = match.groups()
        if match.start() < position:
            continue
        if brace == "}" or head.lstrip().startswith(
            ("@media", "@supports", "@layer", "@container")
        ):
            out.append(match[0])
            continue
        statements, _, selectors = head.rpartition(";")  # @charset and @import end with a semicolon
        end = (
            css.index("}", match.end()) + 1
            if not selectors.lstrip().startswith("@keyframes")
            else end_of_block(css, match.end())
        )
        position = end
        kept = (
            selectors
            if selectors.lstrip().startswith("@")
            else ",".join(one for one in split_selectors(selectors) if used(one, words))
        )
        if statements.strip():
            out.append(statements + ";")
        if kept.strip():
            out.append(kept + css[match.end() - 1 : end])
    out.append(css[css.rfind("}") + 1 :])
    return re.sub(r"@(?:media|supports)[^{}]*\{\s*\}", "", "".join(out))


THEMES = re.compile(
    r"(--(?:bs|pst|sbt|sd|fa)-[\w-]+)\s*:(?:[^;{}\"']|\"[^\"]*\"|'[^']*')*;?"
)  # a property that a theme sets


def without_unread(sheets, words):
    """Style sheets without the properties of the theme that no rule reads and no page or script
    names.
    """
    before = None
    while before != sheets:
        before = sheets
        read = words.union(*(re.findall(r"var\(\s*(--[\w-]+)", css) for css in sheets))
        sheets = [
            THEMES.sub(lambda match: match[0] if match[1] in read else "", css) for css in sheets
        ]
    return sheets


def split_selectors(selectors):
    """Selectors separated by commas that are not inside brackets."""
    depth, parts = 0, [""]
    for sign in selectors:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def end_of_block(css, position):
    """Where a block that contains blocks ends."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(css[position], 0)
        position += 1
    return position


def purge_styles(app, exception):
    """Leave out of the style sheets what nothing in the book uses, and what only serves those who
    debug the theme.
    """
    if exception is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    words = words_of_book(Path(app.outdir))
    sheets = [*static.glob("*.css"), *static.glob("styles/*.css")]
    for sheet, css in zip(
        sheets,
        without_unread(
            [purged(sheet.read_text(encoding="utf-8"), words) for sheet in sheets], words
        ),
    ):
        css = re.sub(r"/\*# sourceMappingURL=.*?\*/", "", css)
        sheet.write_text(re.sub(r"\s*\n\s*", "\n", css), encoding="utf-8")  # without indentation
    for debugging in [*static.glob("**/*.map"), static / "scripts/fontawesome.js"]:
        debugging.unlink(missing_ok=True)


# One style sheet for a page instead of twenty

STYLE_SHEET = re.compile(
    r'<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="((?:\.\./)*)(_static/[^"?]*\.css)[^"]*"[^>]*>\s*'
)


def moved(sheet, folder):
    """The rules of a style sheet, and of those that it imports, as they are written in another
    folder.
    """
    css = re.sub(
        r'@import "([^"]+)";',
        lambda match: moved(sheet.parent / match[1], sheet.parent),
        sheet.read_text(encoding="utf-8"),
    )
    return re.sub(
        r"url\((?![\"']?(?:data:|#|/|https?:))[\"']?([^)\"']+)[\"']?\)",
        lambda match: f"url({os.path.relpath(sheet.parent / match[1], folder)})",
        css,
    )


def join_styles(app, exception):
    """Write the style sheets of each page one after the other into one file."""
    if exception is not None or app.builder.format != "html":
        return
    outdir = Path(app.outdir)
    for path in [*outdir.glob("*.html"), *outdir.glob("nbs/**/*.html")]:
        page = path.read_text(encoding="utf-8")
        found = list(STYLE_SHEET.finditer(page))
        if len(found) < 2:
            continue
        sheets = list(dict.fromkeys(outdir / match[2] for match in found))
        css = '@charset "utf-8";\n' + "\n".join(
            moved(sheet, outdir / "_static/styles") for sheet in sheets
        ).replace('@charset "utf-8";', "")
        name = f"_static/styles/book-{hashlib.sha256(css.encode()).hexdigest()[:12]}.css"
        (outdir / name).write_text(css, encoding="utf-8")
        first, *others = found
        for match in reversed(others):
            page = page[: match.start()] + page[match.end() :]
        path.write_text(
            page[: first.start()]
            + f'<link rel="stylesheet" href="{first[1]}{name}" />\n'
            + page[first.end() :],
            encoding="utf-8",
        )


def setup(app):
    on_every_page(app, draw_icons)
    on_every_page(app, without_search)
    on_every_page(app, without_unused)
    on_every_page(app, scripts_wait)
    on_every_page(app, without_plain_spans)
    on_every_page(app, without_evidence)
    on_every_page(app, shorter_signatures)
    on_every_page(app, without_space)
    app.add_js_file("weight.js", loading_method="defer")
    app.config.toc_object_entries = (
        False  # a thousand functions would stand twice in the contents of the reference
    )
    app.connect("build-finished", purge_styles, priority=900)
    app.connect("build-finished", join_styles, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
