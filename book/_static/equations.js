// Displayed equations that are wider than the column are broken: between formulas, before relations, before sums and products, and if
// need be between words and within brackets.
// What is still too wide is set in smaller type; what would become too small scrolls, and can be reached by keyboard.
(() => {
  const SMALLEST = 0.7;
  const PARTS = ["between", "relation", "sum", "product", "word", "inner"];  // where to break first
  const RELATIONS = new Set(["=", "<", ">", ..."le leq ge geq ne neq approx propto to sim simeq equiv ll gg mapsto Rightarrow Longrightarrow Leftrightarrow iff".split(" ").map(name => "\\" + name)]);
  const SUMS = new Set(["+", "-", "\\pm", "\\mp"]);
  const PRODUCTS = new Set(["\\sum", "\\prod", "\\int", "\\cdot", "\\times", "\\max", "\\min"]);
  const OPENING = new Set(["{", "(", "[", "\\{", "\\lVert", "\\lvert", "\\langle", "\\lfloor", "\\lceil", "\\begin", "\\left"]);
  const BRACKETS = new Set(["(", "[", "\\{", ")", "]", "\\}"]);
  const CLOSING = new Set(["}", ")", "]", "\\}", "\\rVert", "\\rvert", "\\rangle", "\\rfloor", "\\rceil", "\\end", "\\right"]);
  const BARS = new Set(["|", "\\|", "\\vert", "\\Vert"]);
  const SPACES = /^(\s+|\\[,;:! ]|\\q?quad|\\displaystyle|\\textstyle)$/;

  // The places of a TeX formula where it may be broken: [{at, kind, skip}], or null if it has lines already or is not understood
  const places = tex => {
    const found = [], outer = [];
    let depth = 0, brackets = 0, bars = 0, before = "=", raised = false;
    for (const { 0: token, index: at } of tex.matchAll(/\\[A-Za-z]+|\\.|\s+|[^\\\s]/gs)) {
      if (depth === 0 && (token === "&" || token === "\\\\" || token === "\\tag")) return null;
      if (before === "\\left" || before === "\\right") { before = "."; continue; }  // the delimiter
      const soft = BRACKETS.has(token);
      if (OPENING.has(token) && soft) { brackets++; outer.push(bars); bars = 0; }
      else if (CLOSING.has(token) && soft) { brackets--; bars = outer.pop() ?? 0; }  // a single bar in brackets is a condition
      else if (OPENING.has(token)) depth++;
      else if (CLOSING.has(token)) depth--;
      else if (depth === 0 && brackets && !raised) {
        if (BARS.has(token)) bars = 1 - bars;
        else if (!bars && SUMS.has(token) && !RELATIONS.has(before) && !SUMS.has(before) && !OPENING.has(before) && before !== ",") found.push({ at, kind: "inner", skip: 0 });
      } else if (depth === 0 && !raised) {
        if (BARS.has(token)) bars = 1 - bars;
        else if (!bars) {
          if (token === "\\qquad" || token === "\\quad") found.push({ at, kind: "between", skip: token.length });
          else if (token === "\\text" && at > 0) found.push({ at, kind: "word", skip: 0 });
          else if (RELATIONS.has(token)) found.push({ at, kind: "relation", skip: 0 });
          else if (SUMS.has(token) && !RELATIONS.has(before) && !SUMS.has(before) && before !== ",") found.push({ at, kind: "sum", skip: 0 });
          else if (PRODUCTS.has(token) && !RELATIONS.has(before) && !SUMS.has(before) && !PRODUCTS.has(before) && before !== ",") found.push({ at, kind: "product", skip: 0 });
        }
      }
      if (depth < 0 || brackets < 0) return null;
      raised = token === "_" || token === "^";
      if (!SPACES.test(token)) before = token;
      else if (token === "\\qquad" || token === "\\quad") before = "=";
    }
    return depth || brackets || bars ? null : found;
  };

  const INDENT = "\\quad{}";

  // The text inside an environment that holds all of a formula, or null
  const inside = (tex, name) => {
    const found = tex.trim().match(new RegExp(`^\\\\begin\\{${name}\\}(.*)\\\\end\\{${name}\\}$`, "s"));
    return found && !found[1].includes(`\\begin{${name}}`) ? found[1] : null;
  };

  // The rows of aligned formulas without their marks: [{tex, continues}]
  const rows = tex => {
    const found = [{ tex: "", continues: false }];
    let depth = 0;
    for (const { 0: token } of tex.matchAll(/\\\\(\s*\[[^\]]*\])?|\\[A-Za-z]+|\\.|[^\\]/gs)) {
      const row = found.at(-1);
      if (OPENING.has(token) && !"([".includes(token)) depth++;
      if (CLOSING.has(token) && !")]".includes(token)) depth--;
      if (depth === 0 && token.startsWith("\\\\")) found.push({ tex: "", continues: false });
      else if (depth === 0 && token === "&") row.continues ||= found.length > 1 && !row.tex.trim();
      else row.tex += token;
    }
    return found;
  };

  // Lines of a formula that may have rows already
  const broken = (tex, fits) => {
    const whole = inside(tex, "split") ?? tex;
    const aligned = inside(whole, "aligned") ?? inside(whole, "gathered");
    const parts = aligned === null ? [{ tex: whole, continues: false }] : rows(aligned);
    const found = parts.map(part => lines(part.tex, line => fits(part.continues ? INDENT + line : line)));
    return found.every(Boolean) ? found.flatMap((written, i) => written.map((line, k) => (parts[i].continues && !k ? INDENT : "") + line)) : null;
  };

  // A formula whose large brackets and words may be broken: \\left( and \\right) as brackets of a fixed size, each word for itself
  const opened = tex => (/\\middle/.test(tex) ? tex : tex.replace(/\\left(?![a-z])/g, "\\bigl").replace(/\\right(?![a-z])/g, "\\bigr"))
    .replace(/\\text\{([^{}$\\]*)\}/g, (_, text) => text.match(/\S*\s*/g).filter(Boolean).map(word => `\\text{${word}}`).join(""));

  // Lines of a formula, each of which `fits`, as far as it can be broken: with the fewest kinds of breaks, and as few lines as they allow
  const lines = (tex, fits) => {
    const written = divided(tex, fits);
    return !written || written.every(fits) ? written : divided(opened(tex), fits) || written;
  };

  const divided = (tex, fits) => {
    const all = places(tex);
    if (!all) return null;
    const filled = (from, to, cuts, indent) => {
      const result = [], ends = [...cuts.filter(cut => cut.at > from && cut.at < to), { at: to, skip: 0 }];
      let start = from, end = null;
      for (const cut of ends) {
        if (!tex.slice(from, cut.at).trim()) continue;
        if (end && !fits((start > from ? indent : "") + tex.slice(start, cut.at))) {
          result.push({ from: start, to: end.at });
          start = end.at + end.skip;
        }
        end = cut;
      }
      result.push({ from: start, to });
      return result;
    };
    const whole = { from: 0, to: tex.length };
    const formulas = filled(whole.from, whole.to, all.filter(place => place.kind === "between"), "");
    return formulas.flatMap(({ from, to }) => {
      let written = null;
      for (const level of PARTS.keys()) {
        const cuts = all.filter(place => level && place.kind !== "between" && PARTS.indexOf(place.kind) <= level);
        written = filled(from, to, cuts, INDENT).map((line, i) => (i ? INDENT : "") + tex.slice(line.from, line.to));
        if (written.every(fits)) break;
      }
      return written;
    });
  };

  const svgOf = container => container.querySelector("svg");

  // The width of a displayed formula in the unit in which MathJax writes widths
  const widths = new Map();
  const widthOf = tex => {
    if (!widths.has(tex)) widths.set(tex, parseFloat(svgOf(MathJax.tex2svg(tex, { display: true, end: MathJax._.core.MathItem.STATE.TYPESET })).getAttribute("width")));
    return widths.get(tex);
  };

  const fit = item => {
    const whole = item.container;
    if (item.shown) { item.shown.replaceWith(whole); item.shown = null; }
    whole.classList.remove("capslit-scrolls");
    whole.removeAttribute("tabindex");
    if (svgOf(whole)) Object.assign(svgOf(whole).style, { width: "", height: "" });
    const room = (whole.closest(".claim-statement") || whole).clientWidth;
    const svg = svgOf(whole);
    if (!room || !svg) return;
    const width = svg.getBoundingClientRect().width;
    if (width <= room + 1) return;
    const unit = width / parseFloat(svg.getAttribute("width"));  // pixels
    const limits = [room, room / SMALLEST];
    let best = whole, narrow = width;
    for (const limit of limits) {
      const written = broken(item.tex, tex => widthOf("\\displaystyle " + tex) * unit <= limit);
      if (!written || written.length < 2) continue;
      const tex = "\\begin{aligned}" + written.map(line => "&" + line).join(" \\\\[0.35em] ") + "\\end{aligned}";
      const made = MathJax.tex2svg(tex, { display: true });
      const size = parseFloat(svgOf(made).getAttribute("width")) * unit;
      if (size < narrow) { best = made; narrow = size; }
      if (size <= room + 1) break;
    }
    if (best !== whole) {
      whole.replaceWith(best);
      item.shown = best;
    }
    const scale = Math.max(SMALLEST, Math.min(1, room / narrow));
    if (scale < 1) {
      const { width, height } = svgOf(best).getBoundingClientRect();
      Object.assign(svgOf(best).style, { width: `${width * scale}px`, height: `${height * scale}px` });
    }
    if (narrow * scale > room + 1) {
      best.classList.add("capslit-scrolls");
      best.tabIndex = 0;
    }
  };

  const items = [], known = new Set();  // what may be too wide: as MathJax has drawn it, its TeX, and what is shown in its place
  window.capslitFit = elements => {  // equations that MathJax has drawn within elements
    const taken = [...MathJax.startup.document.getMathItemsWithin(elements)]
      .filter(item => item.typesetRoot && item.typesetRoot.closest("div.math, .claim-statement") && !known.has(item.typesetRoot))
      .map(item => ({ container: item.typesetRoot, tex: item.math, shown: null }));
    for (const item of taken) {
      items.push(item);
      known.add(item.container);
      fit(item);
    }
  };
  document.addEventListener("typeset", event => capslitFit(event.detail));
  let seen = innerWidth, waiting = null;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (seen !== innerWidth) { seen = innerWidth; items.forEach(fit); } }, 150);
  });
  document.addEventListener("toggle", event => {  // equations in a fold have no width before it is opened
    if (event.target.open) for (const item of items) if (event.target.contains(item.shown || item.container)) fit(item);
  }, true);
})();
