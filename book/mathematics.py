"""Mathematics in the browser: one MathJax file made of the parts and the glyphs that the book uses,
loaded where there is mathematics.

Nothing is fetched from elsewhere. The parts come from the package that carries MathJax, and are
joined in the order in which MathJax itself joins them. A command that MathJax does not know is an
error on the page, which the tests of the built book find. Formulas are typeset when they come near
the window, those of a print at once, and all others when the page has been open for a while.
"""

import importlib.util
import re
from pathlib import Path

from pages import on_every_page

PARTS = [
    "core",
    "input/tex",
    "input/tex/extensions/boldsymbol",
    "output/svg",
    "output/svg/fonts/tex",
    "a11y/assistive-mml",
]
FILE = "_static/mathjax/mathjax.js"
CONFIGURATION = {
    "loader": {"load": []},  # all is in the one file
    "startup": {"ready": None},  # replaced by a function: started at the end of the file
    "tex": {"packages": {"[+]": ["boldsymbol"], "[-]": ["noundefined", "require", "autoload"]}},
    "svg": {"fontCache": "global", "mtextInheritFont": True},
    "options": {
        "processHtmlClass": "tex2jax_process|mathjax_process|math|output_area",
        "ignoreHtmlClass": "tex2jax_ignore|mathjax_ignore|document",
    },
}
START = """
// what is near the window first, in pieces so small that the page stays responsive
MathJax.config.startup.pageReady = () => {
  const kinds = ".math, .tex2jax_process, .mathjax_process, .output_area";
  const rest = new Set([...document.querySelectorAll(kinds)].filter(
    element => !element.parentElement.closest(kinds)));
  const near = [], seen = new Set();  // `seen`: what stands in the window at first
  const reveal = () => seen.size || document.documentElement.classList.add("typeset");
  let count = 1, all = false, hurry = false, working = null;
  const tell = part => document.dispatchEvent(new CustomEvent("typeset", { detail: part }));
  const work = async () => {
    await null;  // so that `working` is set before it is taken back
    while (near.length || (all && rest.size)) {
      const start = performance.now();
      const part = (near.length ? near : [...rest]).splice(0, hurry ? 100 : count);
      part.forEach(element => rest.delete(element));
      await MathJax.typesetPromise(part);
      part.forEach(element => seen.delete(element));
      reveal();
      tell(part);
      const inTime = Math.floor(count * SLICE / (performance.now() - start));
      count = Math.max(1, Math.min(8, 2 * count, inTime));
      await new Promise(done => near.length || hurry || !window.requestIdleCallback
        ? setTimeout(done) : requestIdleCallback(done));
    }
    working = null;
  };
  const go = () => working ||= work();
  window.typesetAll = () => { all = hurry = true; return go(); };  // a promise
  setTimeout(() => { all = true; go(); }, LATER);
  addEventListener("beforeprint", () => {
    const part = [...rest];
    rest.clear();
    near.length = 0;
    MathJax.typeset(part);
    seen.clear();
    reveal();
    tell(part);
  });
  return new Promise(done => {
    const distance = ({ boundingClientRect: box }) =>
      Math.max(0, box.top - innerHeight, -box.bottom);
    let first = true;
    const watch = new IntersectionObserver(entries => {
      const found = entries
        .filter(entry => entry.isIntersecting && rest.has(entry.target))
        .sort((a, b) => distance(a) - distance(b));
      found.forEach(entry => watch.unobserve(entry.target));
      near.push(...found.map(entry => entry.target));
      if (first) found.filter(entry => !distance(entry)).forEach(entry => seen.add(entry.target));
      first = false;
      reveal();
      go().then(done);
    }, { rootMargin: "100% 0px" });
    rest.forEach(element => watch.observe(element));
    if (!rest.size) reveal(), done();
  });
};
MathJax.startup.defaultReady();
""".replace("SLICE", "8").replace("LATER", "4000")  # milliseconds

# Glyphs: alphabets of the font that the book's formulas take letters from, and ranges that are kept
# whole
ALPHABETS = {
    "normal",
    "bold",
    "italic",
    "boldItalic",
    "doubleStruck",
    "smallop",
    "largeop",
    "texCalligraphic",
    "texSize3",
    "texSize4",
    "texVariant",
}
KEPT = [
    (0x20, 0x36F),
    (0x2000, 0x20FF),
    (0x2308, 0x230B),
    (0x239B, 0x23FF),
    (0xE000, 0xEFFF),
    (0x1D400, 0x1D467),
    (0x1D7CE, 0x1D7D7),
]
MATHEMATICAL_GREEK = dict(
    zip("ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡϴΣΤΥΦΧΨΩ∇αβγδεζηθικλμνξοπρςστυφχψω∂ϵϑϰϕϱϖ", range(0x1D6A8, 0x1D6E2))
)  # bold; italic and bold italic follow
ALWAYS = {
    0x2026,
    0x2190,
    0x2192,
    0x21D0,
    0x21D2,
    0x2200,
    0x2203,
    0x2208,
    0x2211,
    0x220F,
    0x221A,
    0x221D,
    0x221E,
    0x222B,
    0x2223,
    0x2225,
    0x2212,
    0x2217,
    0x2218,
    0x223C,
    0x2248,
    0x2260,
    0x2264,
    0x2265,
    0x22A4,
    0x22C5,
    0x22EF,
    0x27E8,
    0x27E9,
    0x2500,
    0x25A1,
    0x21D4,
    0x27F5,
    0x27F6,
    0x27F7,
    0x27F8,
    0x27F9,
    0x27FA,
    0x27FC,  # long arrows, which macros use
    0x2102,
    0x210D,
    0x210E,
    0x2115,
    0x2119,
    0x211A,
    0x211D,
    0x2124,
}  # letters that have no place of their own among the alphabets


def package():
    """The folder of MathJax in the package that carries it."""
    return (
        Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
        / "static"
        / "mathjax"
    )


LETTERS = {
    "boldsymbol": 0x1D468,
    "bm": 0x1D468,
    "mathbb": 0x1D538,
}  # commands whose alphabets are kept only as far as they are used, and where they begin


def letters_of(text):
    """Code points of the letters that the commands of LETTERS set."""
    for command, one, several in re.findall(
        rf"\\({'|'.join(LETTERS)})(?![A-Za-z])\s*(?:([A-Za-z])|\{{([^{{}}]*)\}})", text
    ):
        for letter in one or re.sub(r"\\[A-Za-z]+", "", several):
            if letter.isascii() and letter.isalpha():
                yield LETTERS[command] + ord(letter.upper()) - ord("A") + 26 * letter.islower()


def symbols_of(texts, definitions):
    """Code points that the TeX commands in the texts stand for, by MathJax's own tables, and those
    that stand there themselves.
    """
    commands, drawn, letters = set(), set(), set()
    for text in texts:
        letters.update(letters_of(text))
        commands.update(re.findall(r"\\([A-Za-z]+)", text))
        drawn.update(re.findall(r"[\u0370-\u03ff\u2100-\u2fff]", text))
    for name, codes in re.findall(r'\b([A-Za-z]+):\[?"((?:\\u[0-9a-f]{4})+)"', definitions):
        if name in commands:
            drawn.update(chr(int(code, 16)) for code in codes.split(r"\u")[1:])
    return (
        {ord(char) for char in drawn}
        | {
            MATHEMATICAL_GREEK[char] + shift
            for char in drawn & MATHEMATICAL_GREEK.keys()
            for shift in (0, 58, 116)
        }
        | letters
        | ALWAYS
    )


def reduced_font(font, symbols):
    """MathJax's font without the glyphs that are in no kept alphabet, range or set of symbols. A
    browser's own font stands in for them.
    """
    composed = {int(code) for code in re.findall(r'(\d+):"[^"\\]?\\u', font)}  # of other glyphs

    def reduced(match):
        start, name, entries = match.groups()
        kept = [
            entry
            for entry, code in re.findall(r'((\d+):(?:\[[^]]*\]|"[^"]*"))', entries)
            if int(code) in composed
            or name in ALPHABETS
            and (
                int(code) in symbols
                and name != "bold"
                or any(low <= int(code) <= high for low, high in KEPT)
            )
        ]
        return start + ",".join(kept)

    return re.sub(
        r'(T\.(\w+)=(?:\(0,H\.AddPaths\)\(V\.\w+,)?\{)((?:\d+:(?:\[[^]]*\]|"[^"]*"),?)+)',
        reduced,
        font,
    )


def end_of_expression(script, position):
    """Where an expression ends that starts at the position: at a comma, semicolon or bracket that
    is not inside of it.
    """
    depth, quote = 0, None
    while True:
        char = script[position]
        if quote:
            position += char == "\\"
            quote = None if char == quote else quote
        elif char in "\"'":
            quote = char
        elif depth == 0 and char in ",;)]}":
            return position
        else:
            depth += (char in "([{") - (char in ")]}")
        position += 1


def share_helpers(script):
    """Let the modules of MathJax share five functions of which each has its own copy: an eighth of
    the file.
    """
    pieces, helpers, last = [], {}, 0
    for match in re.finditer(r"this&&this\.__(extends|assign|values|read|spreadArray)\|\|", script):
        end = end_of_expression(script, match.end())
        helpers.setdefault(match[1], script[match.end() : end])
        pieces += [script[last : match.start()], f"_mj.{match[1]}"]
        last = end
    own = {
        name: re.search(r"(\w+)=Object\.(?:assign|setPrototypeOf)\|\|", helper)
        for name, helper in helpers.items()
    }
    shared = ",".join(
        f"{name}:(function(){{{f'var {own[name][1]};' if own[name] else ''}return {helper}}})()"
        for name, helper in helpers.items()
    )
    return f"var _mj={{{shared}}};\n" + "".join(pieces) + script[last:]


def write_mathjax(app, exception):
    """Join MathJax's parts, with the glyphs of the commands that stand in pages and scripts of the
    book.
    """
    if exception is not None or app.builder.format != "html":
        return
    parts = {part: (package() / f"{part}.js").read_text(encoding="utf-8") for part in PARTS}
    book = [
        path.read_text(encoding="utf-8")
        for pattern in ("*.html", "nbs/**/*.html", "_static/*.js", "_static/live/*.js")
        for path in Path(app.outdir).glob(pattern)
    ]
    symbols = symbols_of(book, parts["input/tex"])
    parts["output/svg/fonts/tex"] = reduced_font(parts["output/svg/fonts/tex"], symbols)
    target = Path(app.outdir) / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    script = "\n".join(
        [(package() / "startup.js").read_text(encoding="utf-8"), *parts.values(), START]
    )
    target.write_text(share_helpers(script), encoding="utf-8")


def configure(app, config):
    config.mathjax_path = FILE.removeprefix("_static/")
    config.mathjax3_config = CONFIGURATION


# a formula, or a caption with one
TYPESET = (
    r'class="(?:[^"]*\s)?'
    r"(?:math\b|tex2jax_process\b[^>]*>(?:(?!</(?:div|figcaption)>).)*(?:\$|\\[(\[]))"
)


def only_with_mathematics(app, name, page):
    """Leave MathJax out of pages without mathematics; have it wait with starting until all of its
    file is there.
    """
    if not re.search(TYPESET, page, re.DOTALL):
        return re.sub(
            r"<script[^>]*>window\.MathJax ="
            r" .*?</script>|<script[^>]*mathjax/mathjax\.js[^>]*></script>",
            "",
            page,
        )
    return page.replace('"ready": null', '"ready": () => {}')


def setup(app):
    on_every_page(app, only_with_mathematics)
    app.connect("config-inited", configure)
    app.connect("build-finished", write_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
