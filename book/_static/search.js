// The search page: ranks pages by where the words of a query stand in them, and shows the sections that say most about it.
(() => {
  const WEIGHTS = {title: 6, keywords: 5, subtitle: 2, headings: 2, text: 2.5};
  const root = (document.documentElement.dataset.content_root || "").replace(/^\.\//, "");
  const stemmer = new Stemmer(), stems = new Map();
  const stem = word => stems.get(word) || (stems.set(word, stemmer.stemWord(word)), stems.get(word));
  const split = text => text.toLowerCase().split(/[^\p{L}\p{N}_.]+|\.(?!\d)|(?<!\d)\./u).filter(word => word);
  const bag = text => {
    const counts = new Map();
    for (const word of split(text)) counts.set(stem(word), (counts.get(stem(word)) || 0) + 1);
    return counts;
  };

  let pages = [], equations = {}, objects = {};

  // The data call this function when they are there: JSON, compressed by gzip, in base 64.
  window.capslitSearch = async packed => {
    const bytes = Uint8Array.from(atob(packed), character => character.charCodeAt(0));
    const data = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
    ({equations, objects} = data);
    pages = data.pages.map(page => {
      const [first, ...others] = page.sections.length ? page.sections : [["", page.name, ""]];
      const fields = {title: bag(first[1]), keywords: bag(page.keywords.join(" ")), subtitle: bag(page.subtitle),
                      headings: bag(others.map(section => section[1]).join(" ")), text: bag(page.sections.map(section => section[2]).join(" "))};
      return {...page, title: first[1], fields, length: [...fields.text.values()].reduce((sum, n) => sum + n, 1)};
    });
    start();
  };

  const known = (page, word) => Object.values(page.fields).some(field => field.has(word));

  function score(page, words, query, rarity) {
    let total = 0;
    for (const word of words) {
      for (const [name, field] of Object.entries(page.fields)) {
        const count = field.get(word) || 0;
        const share = name === "text" ? count / (count + 1 + page.length / 1500) : Math.min(count, 1);
        total += WEIGHTS[name] * share * rarity.get(word);
      }
    }
    const title = page.title.toLowerCase();
    if (page.keywords.includes(query)) total += 25;
    if (title === query) total += 25;
    else if (words.length > 1 && title.includes(query)) total += 10;
    return total;
  }

  // Pages that have all words of a query; if there are none, those that have some.
  function rank(query) {
    const words = [...new Set(split(query).filter(word => !stopwords.includes(word)).map(stem))];
    const rarity = new Map(words.map(word => [word, Math.log(1 + pages.length / (1 + pages.filter(page => known(page, word)).length))]));
    const all = pages.filter(page => words.length && words.every(word => known(page, word)));
    const found = (all.length ? all : pages.filter(page => words.some(word => known(page, word))))
      .map(page => ({page, words, score: score(page, words, query, rarity)}));
    const number = query.replace(/[()]/g, "").replace(/^(eq\.|equation|formula)\s+/, "");
    const equation = equations[number] || (/^[a\d]+\.\d+$/.test(number) && equations["saul " + number]);
    if (equation) {
      const page = pages.find(one => one.name === equation[0]);
      found.push({page, words, score: Infinity, anchor: equation[1], title: `Equation ${number.replace(/^[a-z]/, letter => letter.toUpperCase())}: ${page.title}`});
    }
    const named = Object.entries(objects).flatMap(([name, places]) => Object.entries(places).flatMap(([before, all]) =>
      all.map(one => [name, `${before}.${[one].flat()[0]}`, [one].flat()[1]])));
    for (const [name, full, anchor = full] of named) {
      const last = full.split(".").pop().toLowerCase();
      if (last === query || full.toLowerCase() === query) {
        const page = pages.find(one => one.name === name);
        if (page && !found.some(one => one.anchor === anchor)) found.push({page, words: [], score: 24, anchor, title: full, text: "In the reference"});
      }
    }
    return found.sort((a, b) => b.score - a.score || a.page.title.localeCompare(b.page.title));
  }

  const hits = (text, words) => split(text).filter(word => words.includes(stem(word))).length;

  // The sections of a page that say most about the words.
  function best(page, words) {
    return page.sections.map(([anchor, heading, text], i) => ({anchor, heading, text, i,
      worth: 4 * hits(heading, words) * (i > 0) + new Set(split(text).map(stem).filter(word => words.includes(word))).size * 2
        + Math.min(hits(text, words), 5) / 5})).sort((a, b) => b.worth - a.worth || a.i - b.i);
  }

  // A piece of text around the first word that was asked for, its words marked.
  function excerpt(text, words) {
    const element = document.createElement("p");
    element.className = "context";
    const parts = text.split(/([^\p{L}\p{N}_]+)/u);
    const first = Math.max(0, parts.findIndex(part => words.includes(stem(part.toLowerCase()))));
    const from = Math.max(0, first - 30), to = from + 80;
    if (from > 0) element.append("… ");
    for (const part of parts.slice(from, to)) {
      if (part && words.includes(stem(part.toLowerCase()))) element.append(Object.assign(document.createElement("mark"), {textContent: part}));
      else element.append(part);
    }
    if (to < parts.length) element.append(" …");
    return element;
  }

  const link = (address, text) => Object.assign(document.createElement("a"), {href: address, textContent: text});

  function item({page, words, anchor, title, text}) {
    const element = document.createElement("li"), address = `${root}${page.name}.html`;
    element.append(link(anchor ? `${address}#${anchor}` : address, title || page.title));
    if (text || page.subtitle) element.append(Object.assign(document.createElement("p"), {className: "subtitle", textContent: text || page.subtitle}));
    if (!words.length || anchor) return element;
    const [first, ...others] = best(page, words).filter(section => section.worth > 0).slice(0, 3);
    if (first) element.append(excerpt(first.text, words));
    const places = [first, ...others].filter(section => section && section.i > 0);
    if (places.length) {
      const list = document.createElement("p");
      list.className = "places";
      places.forEach((section, i) => list.append(i ? " · " : "In: ", link(`${address}#${section.anchor}`, section.heading)));
      element.append(list);
    }
    return element;
  }

  function start() {
    const given = new URLSearchParams(location.search).get("q") || "";
    const output = document.getElementById("search-results"), query = given.toLowerCase().trim().replace(/\s+/g, " ");
    for (const input of document.querySelectorAll('input[name="q"]')) input.value = given;
    if (!query) return;
    const found = rank(query), list = document.createElement("ul");
    list.className = "search";
    const count = Object.assign(document.createElement("p"), {className: "found", textContent: found.length ? `${found.length} found` : "Nothing found"});
    const hint = "No page has these words. Try one word, or look at the contents and the index.";
    for (const one of found.slice(0, 30)) list.append(item(one));
    output.replaceChildren(count, found.length ? list : Object.assign(document.createElement("p"), {textContent: hint}));
  }
})();
