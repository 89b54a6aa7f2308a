// What all live parts share. A part calls capslit.live(name, start); start(stage, data) builds it inside the element `stage` and
// returns what tests may call: capslit.parts[name]. Helpers: elements, controls, plots, canvases, dragging, motion, random numbers.
var capslit = window.capslit = window.capslit || {};

(() => {
  "use strict";
  capslit.data = capslit.data || {};
  capslit.parts = capslit.parts || {};

  // --- Starting a part: its stage takes the place of the still images, which come back if it cannot start

  const begin = (mount, name, start) => {
    const figure = mount.querySelector("figure") || mount;
    const still = [...figure.querySelectorAll("img, .capslit-live-only")];
    const stage = element("div", {class: "capslit-live-stage", role: "group", "aria-label": mount.dataset.label || name});
    figure.prepend(stage);
    try {
      capslit.parts[name] = start(stage, capslit.data[name] || {}) || {};
      still.forEach(image => image.remove());
      mount.dataset.running = "";
    } catch (error) {
      stage.remove();
      throw error;
    }
  };

  // What is folded has no width: such a part starts when it is opened
  const whenOpen = (mount, begin) => {
    const fold = mount.closest("details");
    if (!fold || fold.open) begin();
    else fold.addEventListener("toggle", begin, {once: true});
  };

  capslit.live = (name, start) => {
    for (const mount of document.querySelectorAll(".capslit-live"))
      if (mount.dataset.live === name) whenOpen(mount, () => begin(mount, name, start));
  };

  // The data of a part of another page, loaded when `stage` comes near the window
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  capslit.home = new URL("..", folder).href;
  capslit.whenSeen = (stage, name, use) => {
    const load = () => {
      if (name in capslit.data) return use(capslit.data[name]);
      const script = element("script", {src: `${folder}live/${name}.data.js`});
      script.addEventListener("load", () => use(capslit.data[name]));
      document.head.append(script);
    };
    new IntersectionObserver((entries, observer) => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      observer.disconnect();
      load();
    }, {rootMargin: "400px"}).observe(stage);
  };

  // --- Elements: element("p", {class: "note"}, "text", child), shape("circle", {r: 3})

  const fill = (made, attributes, children) => {
    set(made, attributes);
    made.append(...children);
    return made;
  };
  const set = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes || {}))
      if (value === null || value === false) element.removeAttribute(name);
      else element.setAttribute(name, value === true ? "" : value);
    return element;
  };
  const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const shape = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  Object.assign(capslit, {element, shape, set});

  // --- Numbers: with a minus for a minus, and a small random source that is the same every time

  capslit.number = (value, digits = 2) => (Object.is(value, -0) ? "0" : value.toFixed(digits)).replace(/^-(?=0\.?0*$)/, "").replace("-", "\u2212");
  capslit.clamp = (value, low, high) => Math.min(high, Math.max(low, value));

  capslit.random = seed => {  // mulberry32; random() in [0, 1), random.normal() standard normal
    let state = seed >>> 0;
    const random = () => {
      state = (state + 0x6D2B79F5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    random.normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    return random;
  };

  // Arrays that Python packed as base64: {dtype, shape, base64} → a typed array with a shape
  const TYPES = {uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, float32: Float32Array};
  capslit.array = packed => {
    const bytes = Uint8Array.from(atob(packed.base64), letter => letter.charCodeAt(0));
    const values = new TYPES[packed.dtype](bytes.buffer);
    values.shape = packed.shape;
    return values;
  };

  // --- Colours of the page, for what is drawn on a canvas; redrawn when the theme changes

  capslit.colours = () => {
    const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
    return {ink: of("--capslit-ink"), paper: of("--capslit-paper"), line: of("--capslit-line"), soft: of("--capslit-soft"),
      muted: of("--pst-color-text-muted"), accent: of("--capslit-accent"), cycle: [0, 1, 2, 3, 4, 5, 6].map(k => of(`--capslit-c${k}`))};
  };
  const themed = [];
  capslit.onTheme = redraw => themed.push(redraw);
  new MutationObserver(() => themed.forEach(redraw => redraw())).observe(document.documentElement, {attributeFilter: ["data-theme"]});

  // --- Motion: frame(t) for t from 0 to 1; readers who want none see the end at once. Returns a function that stops it.

  capslit.calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  capslit.animate = (milliseconds, frame, done = () => {}) => {
    if (capslit.calm()) {
      frame(1);
      done();
      return () => {};
    }
    let start = null, request = 0;
    const step = now => {
      start ??= now;
      const t = Math.min(1, (now - start) / milliseconds);
      frame(t);
      if (t < 1) request = requestAnimationFrame(step);
      else done();
    };
    request = requestAnimationFrame(step);
    return () => cancelAnimationFrame(request);
  };

  // --- Controls

  let count = 0;
  const labelled = (parent, label, control, shown) => {  // an <output> inside a <label> would take the label for itself
    control.id = `capslit-control-${++count}`;
    row(parent).append(element("div", {class: "capslit-control"}, element("label", {for: control.id}, label), shown, control));
  };
  const row = parent => parent.classList.contains("capslit-controls") ? parent : parent.appendChild(element("div", {class: "capslit-controls"}));
  capslit.controls = parent => parent.appendChild(element("div", {class: "capslit-controls"}));

  // A slider with a label and its value in words. With `log`, low, high and value are positive and equal steps are equal factors.
  capslit.slider = (parent, {label, low, high, step = null, value, log = false, format = x => capslit.number(x), onChange}) => {
    const to = log ? Math.log : x => x, from = log ? Math.exp : x => x;
    const increment = step ?? (to(high) - to(low)) / 600;
    const input = element("input", {type: "range", min: to(low), max: to(high), step: increment});
    const shown = element("output");
    labelled(parent, label, input, shown);
    const show = () => {
      shown.textContent = format(slider.value);
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    const slider = {
      input,
      get value() { return from(Number(input.value)); },
      set value(x) { input.value = to(x); show(); },
    };
    slider.value = value;
    input.addEventListener("input", () => { show(); onChange(slider.value); });
    return slider;
  };

  capslit.button = (parent, label, onClick) => {
    const button = element("button", {type: "button"}, label);
    button.addEventListener("click", onClick);
    parent.append(button);
    return button;
  };

  // A list to choose from: options are [value, words]
  capslit.choice = (parent, {label, options, value, onChange}) => {
    const select = element("select", {}, ...options.map(([key, words]) => element("option", {value: key}, words)));
    select.value = value;
    labelled(parent, label, select, element("span"));
    select.addEventListener("change", () => onChange(select.value));
    return select;
  };

  // What has changed, for readers who listen: the element speaks when its text changes (not more than twice a second)
  capslit.speaker = parent => {
    const line = parent.appendChild(element("p", {class: "visually-hidden", role: "status", "aria-live": "polite"}));
    let waiting = 0;
    return text => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { line.textContent = text; }, 500);
    };
  };

  // --- Dragging, by mouse, finger or pen, and by the arrow keys: to(x, y) in the units of the viewBox; key(dx, dy) in steps (y upward).
  // The svg listens and captures the pointer, for handles may be drawn anew while they move. The nearest handle within reach is taken.

  const MOUSE = 12, FINGER = 20;  // reach in pixels
  const targets = new WeakMap(), listening = new WeakSet();
  const nearest = (svg, {clientX, clientY}, reach) => {
    let best = null;
    for (const handle of svg.querySelectorAll(".handle")) {
      const {left, right, top, bottom} = handle.getBoundingClientRect(), far = Math.hypot(clientX - (left + right) / 2, clientY - (top + bottom) / 2);
      if (far <= reach) [best, reach] = [handle, far];
    }
    return best;
  };
  const listen = svg => {
    const held = new Map();  // pointer → where its handle is told to go
    const move = event => {
      if (!held.has(event.pointerId)) return;
      const {x, y} = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      held.get(event.pointerId)(x, y);
      event.preventDefault();
    };
    svg.addEventListener("pointerdown", event => {
      const handle = event.button === 0 && nearest(svg, event, event.pointerType === "mouse" ? MOUSE : FINGER);
      if (!handle) return;
      held.set(event.pointerId, targets.get(handle));
      svg.setPointerCapture(event.pointerId);
      svg.style.cursor = "grabbing";
      handle.focus({preventScroll: true});
      move(event);
    });
    svg.addEventListener("pointermove", move);
    svg.addEventListener("lostpointercapture", event => { held.delete(event.pointerId); svg.style.cursor = ""; });
    // A finger on a handle moves the handle; elsewhere it scrolls the page
    svg.addEventListener("touchstart", event => { if ([...event.changedTouches].some(touch => nearest(svg, touch, FINGER))) event.preventDefault(); }, {passive: false});
    listening.add(svg);
  };
  capslit.drag = (handle, {svg, to, key}) => {
    targets.set(handle, to);
    if (!listening.has(svg)) listen(svg);
    const STEPS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
    handle.addEventListener("keydown", event => {
      const step = STEPS[event.key];
      if (!step || !key) return;
      key(...step.map(s => event.shiftKey ? 5 * s : s));
      event.preventDefault();
    });
  };

  // --- A plot as SVG: axes, ticks, and lines that are drawn anew by plot.line(name, points)

  const linearTicks = (low, high, count = 6) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find(k => k * power >= raw * 0.999);
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(k * step);
    return ticks.map(x => [x, String(Number(x.toPrecision(6))).replace("-", "\u2212")]);
  };
  const SUPER = {"-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075", 6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079"};
  capslit.power = k => "10" + [...String(k)].map(letter => SUPER[letter]).join("");
  const logTicks = (low, high) => {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9), stride = Math.ceil((last - first + 1) / 7);
    const ticks = [];
    for (let k = first; k <= last; k += stride) ticks.push([10 ** k, Math.abs(k) < 2 ? String(10 ** k) : capslit.power(k)]);
    return ticks;
  };

  // x and y: {range: [low, high], label, log, linear, ticks}, with `linear` the size below which a logarithmic axis is linear;
  // the plot is as wide as there is room, at most `width`
  capslit.plot = (parent, {width = 700, height = 320, square = false, x, y, label, margin = [10, 14, 46, 56]}) => {
    const [top, right, bottom, left] = margin;
    const room = parent.clientWidth - parseFloat(getComputedStyle(parent).paddingLeft) - parseFloat(getComputedStyle(parent).paddingRight);
    width = Math.min(width, Math.max(room, 240));  // letters keep their size on a phone
    if (square) height = width;
    const svg = shape("svg", {class: "capslit-plot", viewBox: `0 0 ${width} ${height}`, width, role: "group", "aria-label": label});
    const bent = t => v => Math.abs(v) <= t ? v / t : Math.sign(v) * (1 + Math.log10(Math.abs(v) / t));
    const unbent = t => v => Math.abs(v) <= 1 ? v * t : Math.sign(v) * t * 10 ** (Math.abs(v) - 1);
    const scale = ({range: [low, high], log, linear}, from, to) => {
      const f = linear ? bent(linear) : log ? Math.log : v => v, g = linear ? unbent(linear) : log ? Math.exp : v => v, a = f(low), b = f(high);
      const map = v => from + (f(v) - a) / (b - a) * (to - from);
      map.invert = p => g(a + (p - from) / (to - from) * (b - a));
      return map;
    };
    const X = scale(x, left, width - right), Y = scale(y, height - bottom, top);
    const ticks = ({range, log, ticks}) => ticks || (log ? logTicks(...range) : linearTicks(...range));
    const axes = shape("g", {"aria-hidden": "true"});
    for (const [v, words] of ticks(x))
      axes.append(shape("path", {class: "grid", d: `M${X(v)} ${top}V${height - bottom}`}),
        shape("text", {x: X(v), y: height - bottom + 18, "text-anchor": "middle"}, words));
    for (const [v, words] of ticks(y))
      axes.append(shape("path", {class: "grid", d: `M${left} ${Y(v)}H${width - right}`}),
        shape("text", {x: left - 8, y: Y(v) + 4, "text-anchor": "end"}, words));
    axes.append(shape("path", {class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}`}));
    if (x.label) axes.append(shape("text", {x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"}, x.label));
    if (y.label) axes.append(shape("text", {transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, y.label));
    svg.append(axes);
    parent.append(svg);
    const lines = {};
    const plot = {svg, X, Y, left, top, right: width - right, bottom: height - bottom,
      // points are [x, y]; a gap where y is no finite number; values beyond the axes are cut at the frame's edge
      line(name, points, attributes = {}) {
        lines[name] = lines[name] || svg.appendChild(shape("path", {class: "line"}));
        let d = "", pen = "M";
        for (const [u, v] of points) {
          if (!Number.isFinite(v)) { pen = "M"; continue; }
          d += `${pen}${X(u).toFixed(2)} ${capslit.clamp(Y(v), -1e4, 1e4).toFixed(2)}`;
          pen = "L";
        }
        return set(lines[name], {d: d || "M0 0", ...attributes});
      },
      colour: k => `var(--capslit-c${k})`,
    };
    return plot;
  };

  // A canvas of `width` × `height` CSS pixels, sharp on dense screens; draw(context, width, height, colours)
  capslit.canvas = (parent, {width, height, label, draw, role = "img"}) => {
    const canvas = element("canvas", {role, "aria-label": label});
    parent.append(canvas);
    canvas.style.width = `${width}px`;
    canvas.style.aspectRatio = `${width} / ${height}`;
    const redraw = () => {
      const dense = Math.max(1, devicePixelRatio || 1);
      if (canvas.width !== Math.round(width * dense)) [canvas.width, canvas.height] = [Math.round(width * dense), Math.round(height * dense)];
      const context = canvas.getContext("2d");
      context.setTransform(dense, 0, 0, dense, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height, capslit.colours());
    };
    capslit.onTheme(redraw);
    addEventListener("resize", redraw);
    redraw();
    return {canvas, redraw};
  };
})();
