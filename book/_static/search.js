// The search page: MiniSearch ranks sections, equations and names; here they are gathered by pages and shown.
(() => {
  const FIELDS = ["name", "keywords", "title", "subtitle", "heading", "text"];
  const BOOST = {name: 12, keywords: 6, title: 6, subtitle: 2, heading: 2};
  const MOST = 30;  // pages
  // Words of questions that say nothing of their matter
  const EMPTY = new Set("a an are at can do does from how i in is it my of the to too what when why with".split(" "));
  const tokenize = text => text.toLowerCase().split(/[^\p{L}\p{N}_.]+|\.(?!\d)|(?<!\d)\./u).filter(Boolean);
  const root = (document.documentElement.dataset.content_root || "").replace(/^\.\//, "");

  const make = (name, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(name), attributes);
    element.append(...children);
    return element;
  };
  const address = record => `${root}${record.page}.html${record.anchor ? "#" + record.anchor : ""}`;

  // A piece of text around the first word that was found, the words marked
  const excerpt = ({text, terms}) => {
    const parts = text.split(/([^\p{L}\p{N}_]+)/u);
    const found = part => terms.includes(part.toLowerCase());
    const from = Math.max(0, parts.findIndex(found) - 30);
    const shown = parts.slice(from, from + 80).map(part => found(part) ? make("mark", {}, part) : part);
    return make("p", {className: "context"}, from ? "… " : "", ...shown, from + 80 < parts.length ? " …" : "");
  };

  const item = found => {
    const [best] = found;
    const page = found.find(one => one.title) || best;
    const named = best.name !== undefined;
    const entry = make("li", {}, make("a", {href: named ? address(best) : `${root}${best.page}.html`},
      named ? `${best.name}: ${best.of}` : best.of));
    if (named) return entry;
    if (page.subtitle) entry.append(make("p", {className: "subtitle"}, page.subtitle));
    entry.append(excerpt(best));
    const places = found.filter(one => one.heading).slice(0, 3).flatMap(one => [" · ", make("a", {href: address(one)}, one.heading)]);
    if (places.length) entry.append(make("p", {className: "places"}, "In: ", ...places.slice(1)));
    return entry;
  };

  const search = (records, query) => {
    const index = new MiniSearch({fields: FIELDS, storeFields: [...FIELDS, "page", "anchor", "of"], tokenize, processTerm: term => EMPTY.has(term) ? null : term,
      searchOptions: {boost: BOOST, boostDocument: id => records[id].weight, prefix: term => term.length > 3, fuzzy: term => term.length > 5 ? 0.2 : false, weights: {prefix: 0.4, fuzzy: 0.2}}});
    index.addAll(records.map((record, id) => ({id, ...record})));
    const pages = new Map();
    for (const one of index.search(query)) {
      const key = one.name === undefined ? one.page : address(one);
      pages.set(key, [...pages.get(key) || [], one]);
    }
    // Pages that have all words come first, be it in different sections
    const count = found => new Set(found.flatMap(one => one.queryTerms)).size;
    return [...pages.values()].sort((a, b) => count(b) - count(a));
  };

  // The data call this function: JSON, compressed by gzip, in base 64
  window.capslitSearch = async packed => {
    const bytes = Uint8Array.from(atob(packed), character => character.charCodeAt(0));
    const records = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
    const query = (new URLSearchParams(location.search).get("q") || "").trim();
    for (const input of document.querySelectorAll('input[name="q"]')) input.value = query;
    if (!query) return;
    const pages = search(records, query);
    const hint = "No page has these words. Try one word, or look at the contents and the index.";
    document.getElementById("search-results").replaceChildren(
      make("p", {className: "found"}, pages.length ? `${pages.length} found` : "Nothing found"),
      pages.length ? make("ul", {className: "search"}, ...pages.slice(0, MOST).map(item)) : make("p", {}, hint));
  };
})();
