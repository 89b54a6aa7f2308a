// The ledger: its entries are filtered, and open into cards that are drawn on demand.
(() => {
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  const ready = new Promise(done => window.addEventListener("load", () => done(window.MathJax && MathJax.startup ? MathJax.startup.promise : null)));

  const make = (name, attributes = {}, ...children) => {
    const svg = ["svg", "g", "rect", "path", "text", "tspan"].includes(name) || attributes.svg;
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (key !== "svg") element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  let queue = ready;  // MathJax does one thing at a time
  const later = task => queue = queue.then(task).catch(error => console.error(error));
  // A statement is typeset, and broken into lines that fit, by the script for wide equations
  const typeset = async statement => {
    if (!window.MathJax) return;
    await MathJax.typesetPromise([statement]);
    window.capslitFit([statement]);
    statement.dataset.room = statement.clientWidth;
    if (statement.scrollWidth > statement.clientWidth + 1)
      for (const [key, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", "Formula"]]) statement.setAttribute(key, value);
  };

  // The ledger

  const ledger = () => document.querySelector(".claim-ledger");
  const anchor = id => "claim-" + id.replace(/\W+/g, "-");
  const named = id => {
    const entry = document.getElementById(anchor(id));
    return entry ? entry.querySelector("summary").textContent : id;
  };
  const link = (text, href) => make("a", {href}, text);
  const listed = items => make("ul", {}, ...items.map(item => make("li", {}, ...[item].flat())));

  const loading = new Map();
  const load = chapter => {
    if (!loading.has(chapter)) loading.set(chapter, new Promise((done, failed) => {
      const script = make("script", {src: `${folder}live/claims-${chapter.replaceAll("/", "-")}.js`});
      script.onload = done;
      script.onerror = failed;
      document.head.append(script);
    }));
    return loading.get(chapter);
  };

  const lines = (text, length, most) => {  // words in lines of a box
    const found = [""];
    for (const word of text.split(" ")) {
      if (found.at(-1) && (found.at(-1) + " " + word).length > length) found.push("");
      found[found.length - 1] = `${found.at(-1)} ${word}`.trim();
    }
    return found.length > most ? [...found.slice(0, most - 1), found[most - 1].slice(0, length - 1) + "…"] : found;
  };

  // The claim between those that it rests on and those that rest on it; one below the other where there is little room
  const neighbourhood = (id, claim, room) => {
    const MOST = 7, narrow = room < 640;
    const sides = [claim.rests.slice(0, MOST), [id], claim.users.slice(0, MOST)];
    const gap = 44, columns = sides.filter(side => side.length).length;
    const wide = narrow ? room - 30 : Math.min(260, (room - gap * (columns - 1) - 4) / columns);
    const place = new Map();
    let x = 2, bottom = 0;
    const size = one => 10 + 16 * lines(named(one), Math.floor(wide / 7.1), 3).length;
    const tall = side => side.reduce((sum, one) => sum + size(one) + 10, -10);
    const highest = Math.max(...sides.map(tall));
    for (const side of sides.filter(side => side.length)) {
      let y = narrow ? bottom + 2 : 2 + (highest - tall(side)) / 2;
      for (const one of side) {
        place.set(one + (side === sides[1] ? "" : side === sides[0] ? "<" : ">"), {id: one, x: narrow ? 28 : x, y, high: size(one)});
        y += size(one) + 10;
      }
      bottom = Math.max(bottom, y + (narrow ? 14 : 0));
      x += wide + gap;
    }
    const own = place.get(id), middle = box => box.y + box.high / 2;
    const path = ([key, box]) => {
      if (box === own) return "";
      const before = key.endsWith("<"), [from, to] = before ? [box, own] : [own, box];
      if (narrow) return make("path", {d: `M${from.x} ${middle(from)}H${before ? 18 : 8}V${middle(to)}H${to.x}`});
      const [a, b] = [from.x + wide, to.x], c = (a + b) / 2;
      return make("path", {d: `M${a} ${middle(from)}C${c} ${middle(from)} ${c} ${middle(to)} ${b} ${middle(to)}`});
    };
    const box = ({id: one, x, y, high}) => {
      const words = lines(named(one), Math.floor(wide / 7.1), 3).map((line, i) => make("tspan", {x: x + 8, y: y + 18 + 16 * i}, line));
      return make("a", {svg: true, href: `#${anchor(one)}`, "aria-label": named(one), ...(one === id ? {class: "claim-own", "aria-current": "true"} : {})},
        make("rect", {x, y, width: wide, height: high, rx: 5}), make("text", {}, ...words));
    };
    const right = narrow ? room : x - gap + 2, [first, last] = narrow ? ["above", "below"] : ["left", "right"];
    const hidden = Math.max(0, claim.rests.length - MOST) + Math.max(0, claim.users.length - MOST);
    const caption = [claim.rests.length && `${first}: what it rests on`, claim.users.length && `${last}: what rests on it`, hidden && `${hidden} more in the lists`];
    const drawing = make("svg", {viewBox: `0 0 ${right} ${bottom}`, width: right, height: bottom, role: "group", "aria-label": "Its neighbours among the claims"},
      ...[...place].map(path), ...[...place.values()].map(box));
    return make("figure", {}, drawing, make("figcaption", {}, caption.filter(Boolean).join("; ")));
  };

  const mutants = claim => {
    const table = make("table", {}, ...claim.mutants.map(([name, fate]) => make("tr", {}, make("td", {}, name), make("td", {}, fate))));
    return make("div", {class: "claim-scroll", tabindex: "0", role: "group", "aria-label": "Mutants and how they were rejected"}, table);
  };

  const draw = async card => {
    if (card.dataset.drawn) return;
    card.dataset.drawn = "yes";
    await load(card.dataset.chapter);
    const id = card.dataset.id, claim = window.capslitClaims[id];
    const statement = make("div", {class: "claim-statement"}, make("span", {class: "math notranslate nohighlight"}, `\\(\\displaystyle ${claim.tex}\\)`));
    let facts = make("dl");
    const fact = (name, ...content) => facts.append(make("dt", {}, name), make("dd", {}, ...content));
    const claims = ids => ids.length ? listed(ids.map(one => link(named(one), `#${anchor(one)}`))) : "nothing else";
    const [title, home] = claim.chapter;
    fact("Derivation", link(title, claim.equations.length ? claim.equations[0][1] : home),
      ...claim.equations.flatMap(([number, place], i) => [i ? ", " : ": equation ", link(number, place)]));
    if (claim.code.length) fact("Code", listed(claim.code.map(([name, cell, entry]) =>
      [make("code", {}, name), " ", ...(cell ? [link("in its chapter", cell), ", "] : []), link("in the reference", entry)])));
    const checks = claim.checks.map(([name, about, evidence, holds, count]) =>
      [make("b", {class: holds ? "claim-ok" : "claim-fail"}, `${holds ? "✓" : "✗"} ${name}`), ` ${about}: ${evidence}${count ? `; ${count.replace("/", " of ")} mutants rejected` : ""}`]);
    fact("Checks", listed(checks), link("Run in the chapter", home), ...claim.problems.map(problem => make("div", {class: "claim-problem"}, problem)));
    const altered = make("details", {class: "claim-trials"}, make("summary", {}, `${claim.killed} of ${claim.tried} rejected`));
    altered.addEventListener("toggle", () => altered.open && altered.childElementCount < 2 && altered.append(mutants(claim)));
    fact("Mutants", altered);
    const body = make("div", {class: "claim-body"}, ...(claim.tex ? [statement] : []), facts);
    card.querySelector("summary + a").replaceWith(body);
    if (claim.rests.length || claim.users.length) body.append(neighbourhood(id, claim, body.clientWidth));
    facts = body.appendChild(make("dl"));
    fact("Rests on", claims(claim.rests));
    fact("Used by", claims(claim.users));
    if (claim.mentions.length) fact("Referred to in", listed(claim.mentions.map(([page, place]) => link(page, place))));
    if (claim.tex) await later(() => typeset(statement));
  };

  const filters = cards => {
    const field = (label, name, control) => make("label", {}, label, Object.assign(control, {name}));
    const choice = (label, name, options) => field(label, name, make("select", {}, make("option", {value: ""}, "all"), ...options.map(([value, text]) => make("option", {value}, text))));
    const chapters = new Map(cards.map(card => [card.dataset.chapter, card.querySelector("summary + a").textContent.replace(/^[^:]*: /, "")]));
    const kinds = [...new Set(cards.flatMap(card => card.dataset.checks.split("|")))];
    const sources = [...ledger().querySelectorAll("section")].map(section => [section.dataset.source, section.querySelector("h3").textContent.replace(/:[^:]*$/, "")]);
    const count = make("output", {"aria-live": "polite"});
    const form = make("form", {class: "claim-filter", role: "search", "aria-label": "Claims"},
      field("Words", "words", make("input", {type: "search", placeholder: "2.16, posterior mean, …"})),
      choice("Source", "source", sources), choice("Chapter", "chapter", [...chapters].sort((a, b) => a[1].localeCompare(b[1]))),
      choice("Evidence", "kind", kinds.map(kind => [kind, kind])), count);
    const texts = new Map(cards.map(card => [card, `${card.dataset.id} ${card.textContent} ${card.querySelector("summary").dataset.kind}`.toLowerCase()]));
    const sieve = () => {
      const words = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const card of cards) {
        const {chapter, checks} = card.dataset, source = card.parentElement.dataset.source;
        card.hidden = !(words.every(word => texts.get(card).includes(word)) && (!form.source.value || form.source.value === source)
          && (!form.chapter.value || form.chapter.value === chapter) && (!form.kind.value || checks.split("|").includes(form.kind.value)));
      }
      for (const section of ledger().querySelectorAll("section")) section.hidden = !section.querySelector(".claim-card:not([hidden])");
      const shown = cards.filter(card => !card.hidden).length;
      count.textContent = shown === cards.length ? `${shown} claims` : `${shown} of ${cards.length} claims`;
    };
    form.addEventListener("input", sieve);
    form.addEventListener("submit", event => event.preventDefault());
    sieve();
    ledger().prepend(form);
    return () => { form.reset(); sieve(); };
  };

  const start = () => {
    if (!ledger()) return;
    const cards = [...ledger().querySelectorAll(".claim-card")], showAll = filters(cards);
    const arrive = async () => {
      const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!card || !card.matches(".claim-card")) return;
      if (card.hidden) showAll();
      card.open = true;
      await draw(card);
      card.scrollIntoView();
      card.querySelector("summary").focus({preventScroll: true});
    };
    for (const card of cards) card.addEventListener("toggle", () => {
      if (!card.open) return;
      draw(card);
      if (location.hash !== `#${card.id}`) history.replaceState(null, "", `#${card.id}`);
    });
    ledger().addEventListener("click", event => {
      const to = event.target.closest("a");
      if (to && to.getAttribute("href") === location.hash) arrive();
    });
    window.addEventListener("hashchange", arrive);
    arrive();
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
