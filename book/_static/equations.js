// A displayed formula that is a little too wide for its column is drawn smaller. A wider one is drawn in lines, which begin after wide
// spaces, else at relations too, else at plus and minus, and smaller if need be, at last also within brackets. What would become too small scrolls.
(() => {
  const SLIGHT = 0.88, SMALLEST = 0.75;  // of the size of the text
  const GAP = 350, INDENT = 1000, WIDE = 900;  // thousandths of an em
  const RELATIONS = /^(3[CDE]|2190|2192|21A6|21D[24]|27F9|27FA|2208|221D|223C|2243|2248|2260|2261|226[4-B]|22A5)$/i;  // characters
  const SUMS = /^(2B|2212|B1)$/i, OPENING = /^(28|5B|7B)$/i, CLOSING = /^(29|5D|7D)$/i;
  const BOXES = ["mrow", "mstyle", "TeXAtom", "mtable", "mtr", "mtd"].map(name => `[data-n=${name}]`).join();
  const drawn = new WeakMap();  // formula → its drawing in one line, and the width for which it was fitted

  const place = part => part.transform.baseVal.consolidate()?.matrix ?? {e: 0, f: 0};
  const offset = part => {  // in the formula, through the cells of a table
    let e = 0, f = 0;
    for (; !part.matches("[data-n=math]"); part = part.parentElement) e += place(part).e, f += place(part).f;
    return {e, f};
  };

  // The parts of a row, which may be one of a table: where each lies, and its rank as the beginning of a line, 0 for the best
  const ranked = cells => {
    let depth = 0, before = {};
    const parts = cells.flatMap(cell => [...cell.children]).filter(part => part.getBBox().width > 0);
    return parts.map(part => {
      const {e, f} = offset(part), box = part.getBBox(), base = part.matches("[data-n^=msu]") ? part.firstElementChild : part;  // of (…)²
      const glyph = base.matches("use") ? base : base.querySelector("use");
      const sign = base.matches("[data-n=mo]") && glyph?.getAttribute("href").split("-")[1];
      const now = {part, sign, left: e + box.x, right: e + box.x + box.width, low: f + box.y, high: f + box.y + box.height, rank: 9};
      if (!depth && now.left - before.right > WIDE) now.rank = 0;
      else if (!depth && RELATIONS.test(sign)) now.rank = 1;
      else if (SUMS.test(sign) && !RELATIONS.test(before.sign) && !OPENING.test(before.sign)) now.rank = depth ? 3 : 2;
      depth += OPENING.test(sign) - CLOSING.test(sign);
      return before = now;
    });
  };
  const indent = line => line[0].rank % 9 && INDENT;
  const extent = line => line.at(-1).right - line[0].left;

  // The lines of parts, at most so wide if parts of these ranks may begin a line
  const lines = (parts, rank, room) => {
    const found = [[]];
    for (let i = 0, next; i < parts.length; i = next) {
      for (next = i + 1; next < parts.length && parts[next].rank > rank;) next++;
      const line = found.at(-1);
      if (line.length && parts[next - 1].right - line[0].left + indent(line) > room) found.push([]);
      found.at(-1).push(...parts.slice(i, next));
    }
    return found;
  };

  const divide = (svg, room) => {
    let row = svg.querySelector("[data-n=math]");
    while (row.children.length === 1 && row.firstElementChild.matches(BOXES)) row = row.firstElementChild;
    const within = [...row.children], are = kind => within.every(part => part.dataset.n === kind);
    const cells = are("mtr") ? within.map(tr => [...tr.children]) : [are("mtd") ? within : [row]];
    const rows = cells.map(ranked).filter(parts => parts.length);
    // rather smaller than broken within brackets
    const ways = [[0, room], [1, room], [2, room], [2, room / SMALLEST], [3, room]];
    const found = rows.flatMap(parts => {
      let made;
      for (const [rank, most] of ways) {
        made = lines(parts, rank, most);
        if (made.every(line => extent(line) + indent(line) <= most)) break;
      }
      return made;
    });
    let y = 0, right = 0, low = null;
    for (const [i, line] of found.entries()) {
      if (i) y = low - GAP - Math.max(...line.map(part => part.high));
      const x = indent(line) - line[0].left;
      for (const {part} of line) part.setAttribute("transform", `translate(${place(part).e + x},${place(part).f + y})`);
      low = y + Math.min(...line.map(part => part.low));
      right = Math.max(right, line.at(-1).right + x);
    }
    const {x, y: top, width, height} = svg.viewBox.baseVal, unit = parseFloat(svg.getAttribute("width")) / width;
    const tall = Math.max(height, -low - top + 50);
    svg.setAttribute("viewBox", `${x} ${top} ${right} ${tall}`);
    svg.setAttribute("width", `${right * unit}ex`);
    svg.setAttribute("height", `${tall * unit}ex`);
  };

  const fit = (container, room) => {
    const known = drawn.get(container);
    if (known?.room === room) return;
    const whole = known?.whole ?? container.querySelector("svg").cloneNode(true), svg = whole.cloneNode(true);
    container.querySelector("svg").replaceWith(svg);
    drawn.set(container, {whole, room});
    const width = () => svg.getBoundingClientRect().width;
    if (width() * SLIGHT > room) divide(svg, svg.viewBox.baseVal.width * room / width());
    if (width() > room) Object.assign(svg.style, {width: `${Math.max(room, width() * SMALLEST)}px`, height: "auto"});
  };

  const sizes = new ResizeObserver(entries => {
    for (const {target} of entries)
      for (const container of target.querySelectorAll("mjx-container:has(> svg)")) if (target.clientWidth) fit(container, target.clientWidth);
  });
  for (const element of document.querySelectorAll("div.math, .claim-statement")) sizes.observe(element);
})();
