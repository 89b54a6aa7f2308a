// Marks for the plots of live parts: points, segments, curves and an image behind them; buttons that run a computation step by step.
(() => {
  "use strict";
  const {element, shape, set} = capslit;

  // The children of a layer of a plot, as many as there are marks: made once, changed afterwards
  const layers = new WeakMap();
  const layer = (plot, name, tag, count) => {
    if (!layers.has(plot)) layers.set(plot, {});
    const known = layers.get(plot);
    const group = known[name] = known[name] || plot.svg.appendChild(shape("g", {"aria-hidden": "true"}));
    while (group.children.length > count) group.lastChild.remove();
    while (group.children.length < count) group.append(shape(tag));
    return [...group.children];
  };

  // Outlines of about the same area, so that classes differ by more than their colour
  const OUTLINES = [
    r => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`,
    r => `M${-0.9 * r} ${-0.9 * r}H${0.9 * r}V${0.9 * r}H${-0.9 * r}Z`,
    r => `M0 ${-1.3 * r}L${1.2 * r} ${0.8 * r}H${-1.2 * r}Z`,
    r => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
    r => `M${-1.1 * r} ${-0.4 * r}H${-0.4 * r}V${-1.1 * r}H${0.4 * r}V${-0.4 * r}H${1.1 * r}V${0.4 * r}H${0.4 * r}V${1.1 * r}H${-0.4 * r}V${0.4 * r}H${-1.1 * r}Z`,
  ];

  // Points {x, y, kind, size, colour, ring, opacity} of a plot; kinds are outlines, sizes radii in the units of the viewBox
  capslit.points = (plot, name, points) => layer(plot, name, "path", points.length).forEach((mark, k) => {
    const {x, y, kind = 0, size = 4, colour = "var(--capslit-ink)", ring = "none", opacity = 1} = points[k];
    set(mark, {d: OUTLINES[kind % OUTLINES.length](size), transform: `translate(${plot.X(x).toFixed(2)} ${plot.Y(y).toFixed(2)})`,
      fill: colour, "fill-opacity": opacity, stroke: ring, "stroke-width": 1.6});
  });

  // Segments {from: [x, y], to: [x, y], colour, width}
  capslit.segments = (plot, name, segments) => layer(plot, name, "path", segments.length).forEach((mark, k) => {
    const {from, to, colour = "var(--capslit-ink)", width = 1.2, opacity = 1} = segments[k];
    set(mark, {d: `M${plot.X(from[0])} ${plot.Y(from[1])}L${plot.X(to[0])} ${plot.Y(to[1])}`, stroke: colour, "stroke-width": width, "stroke-opacity": opacity, fill: "none"});
  });

  // Curves {points: [[x, y], …], colour, width, dash}
  capslit.curves = (plot, name, curves) => layer(plot, name, "path", curves.length).forEach((mark, k) => {
    const {points, colour = "var(--capslit-ink)", width = 2, dash = null, opacity = 1} = curves[k];
    set(mark, {d: points.map(([x, y], i) => `${i ? "L" : "M"}${plot.X(x).toFixed(2)} ${plot.Y(y).toFixed(2)}`).join("") || "M0 0",
      stroke: colour, "stroke-width": width, "stroke-dasharray": dash, "stroke-opacity": opacity, fill: "none"});
  });

  // A handle of a plot to drag, or to move by the arrow keys: moved(x, y) is told where it is; place(x, y) puts it elsewhere, `face` is what is seen
  capslit.handle = (plot, {label, x, y, colour, outline = 0, size = 8, step, moved}) => {
    const face = shape("path", {d: OUTLINES[outline](size), fill: colour, stroke: "var(--capslit-ink)", "stroke-width": 1.5});
    const mark = shape("g", {class: "handle", tabindex: 0, role: "slider", "aria-label": label}, shape("circle", {class: "reach"}), face);
    const ends = [[plot.left, plot.right].map(plot.X.invert), [plot.bottom, plot.top].map(plot.Y.invert)];
    let at = [x, y];
    const place = (...to) => {
      at = to.map((value, k) => capslit.clamp(value, ...ends[k]));
      set(mark, {transform: `translate(${plot.X(at[0]).toFixed(2)} ${plot.Y(at[1]).toFixed(2)})`, "aria-valuenow": at[0].toFixed(2),
        "aria-valuemin": ends[0][0], "aria-valuemax": ends[0][1], "aria-valuetext": at.map(value => capslit.number(value)).join(", ")});
    };
    const go = (...to) => { place(...to); moved(...at); };
    capslit.drag(mark, {svg: plot.svg, to: (u, v) => go(plot.X.invert(u), plot.Y.invert(v)),
      key: (u, v) => go(...[u, v].map((steps, k) => at[k] + steps * (step || (ends[k][1] - ends[k][0]) / 60)))});
    place(x, y);
    plot.svg.append(mark);
    return {mark, face, place};
  };

  // A plot with the same unit on both axes, whose ranges are equally long
  capslit.square = (parent, {width, margin, ...options}) => {
    const [top, right, bottom, left] = margin, style = getComputedStyle(parent);
    width = Math.min(width, Math.max(parent.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight), 240));
    return capslit.plot(parent, {width, height: width - left - right + top + bottom, margin, ...options});
  };

  // The curve at two standard deviations about the mean of a Gaussian in the plane, S = [[a, b], [b, c]]
  capslit.ellipse = (mean, [[a, b], [, c]], deviations = 2) => {
    const l = Math.sqrt(Math.max(a, 1e-300)), m = b / l, n = Math.sqrt(Math.max(c - m * m, 0));  // the Cholesky factor
    return Array.from({length: 61}, (_, k) => {
      const u = Math.cos(k * Math.PI / 30) * deviations, v = Math.sin(k * Math.PI / 30) * deviations;
      return [mean[0] + l * u, mean[1] + m * u + n * v];
    });
  };

  // Red, green and blue of a colour of the page
  const paint = document.createElement("canvas").getContext("2d");
  capslit.rgb = colour => {
    paint.fillStyle = colour;
    return [1, 3, 5].map(k => parseInt(paint.fillStyle.slice(k, k + 2), 16));
  };

  // An image behind a plot: colour(x, y) gives [red, green, blue, opacity between 0 and 1] in the middle of each of size × size cells
  capslit.backdrop = (plot, colour, size = 56) => {
    const canvas = element("canvas", {width: size, height: size}), context = canvas.getContext("2d"), picture = context.createImageData(size, size);
    const {left, top, right, bottom} = plot;
    for (let row = 0, k = 0; row < size; row++)
      for (let column = 0; column < size; column++, k += 4) {
        const [r, g, b, a] = colour(plot.X.invert(left + (column + 0.5) / size * (right - left)), plot.Y.invert(top + (row + 0.5) / size * (bottom - top)));
        picture.data.set([r, g, b, 255 * a], k);
      }
    context.putImageData(picture, 0, 0);
    plot.image = plot.image || plot.svg.insertBefore(shape("image", {x: left, y: top, width: right - left, height: bottom - top, preserveAspectRatio: "none"}), plot.svg.firstChild);
    plot.image.setAttribute("href", canvas.toDataURL());
  };

  // A small image of rows × columns pixels; paint(values, colour) fills it, colour(value) gives [red, green, blue, opacity between 0 and 1]
  capslit.pixels = (parent, {rows, columns, label, side = "4rem"}) => {
    const canvas = element("canvas", {width: columns, height: rows, role: "img", "aria-label": label, class: "capslit-pixels", style: `--side: ${side}`});
    parent.append(canvas);
    return {canvas, paint(values, colour) {
      const context = canvas.getContext("2d"), picture = context.createImageData(columns, rows);
      values.forEach((value, k) => { const [r, g, b, a] = colour(value); picture.data.set([r, g, b, 255 * a], 4 * k); });
      context.putImageData(picture, 0, 0);
    }};
  };
  capslit.inInk = most => { const ink = capslit.rgb(capslit.colours().ink); return value => [...ink, capslit.clamp(value / most, 0, 1)]; };
  capslit.signed = most => {
    const [less, more] = capslit.colours().cycle.map(capslit.rgb);
    return value => [...(value < 0 ? less : more), capslit.clamp(Math.abs(value) / most, 0, 1)];
  };

  // A button that takes step() again and again, until it returns false or the button is pressed again. For readers who want no motion,
  // step(true), which need not draw, is taken at once as often as needed, and then finish()
  capslit.runner = (parent, {label = "Run", step, finish = () => {}, pause = 220, most = 100}) => {
    let timer = 0, left = 0;
    const stop = () => {
      clearTimeout(timer);
      timer = 0;
      button.textContent = label;
      button.setAttribute("aria-pressed", "false");
    };
    const next = () => {
      if (left-- > 0 && step() !== false) timer = setTimeout(next, pause);
      else stop();
    };
    const button = capslit.button(parent, label, () => {
      if (timer) return stop();
      left = most;
      if (capslit.calm()) {
        while (left-- > 0 && step(true) !== false);
        return finish();
      }
      button.textContent = "Pause";
      button.setAttribute("aria-pressed", "true");
      next();
    });
    button.setAttribute("aria-pressed", "false");
    return {button, stop};
  };

  // A box to tick
  capslit.toggle = (parent, label, value, changed) => {
    const box = element("input", {type: "checkbox"});
    box.checked = value;
    box.addEventListener("change", () => changed(box.checked));
    parent.append(element("label", {class: "capslit-toggle"}, box, " ", label));
    return box;
  };

  // A table of words and numbers with a caption; the first row and the first column are heads
  capslit.table = (parent, caption, [head, ...rows]) => {
    const cells = (row, first, rest, scope) => row.map((value, k) => element(k ? rest : first, k && rest === "td" ? {} : {scope: k ? "col" : scope}, String(value)));
    const table = element("table", {class: "capslit-table"}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...cells(head, "th", "th", "col"))),
      element("tbody", {}, ...rows.map(row => element("tr", {}, ...cells(row, "th", "td", "row")))));
    parent.append(element("div", {class: "capslit-scroll", tabindex: 0, role: "region", "aria-label": caption}, table));
    return table;
  };

  capslit.count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  // On a phone, plots are smaller, so that controls and effect are seen together
  capslit.narrow = stage => stage.clientWidth < 480;

  // Plots side by side where each has room for its least width
  capslit.beside = (parent, least = "14rem") => parent.appendChild(element("div", {class: "capslit-beside", style: `--least: ${least}`}));
})();
