// The ledger's filter: claims by words, source, chapter and kind of evidence.
(() => {
  const ledger = document.querySelector(".claim-ledger");
  if (!ledger) return;
  const cards = [...ledger.querySelectorAll(".claim-card")], sections = [...ledger.querySelectorAll("section")];
  const make = (name, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(name), attributes);
    element.append(...children);
    return element;
  };
  const choice = (label, name, options) => make("label", {}, label,
    make("select", {name}, new Option("all", ""), ...[...options].sort((a, b) => a[1].localeCompare(b[1])).map(([value, text]) => new Option(text, value))));
  const chapters = cards.map(card => [card.dataset.chapter, card.querySelector("dd a").textContent]);
  const sources = sections.map(section => [section.dataset.source, section.querySelector("h3").textContent.replace(/:[^:]*$/, "")]);
  const kinds = new Set(cards.flatMap(card => card.dataset.checks.split("|")));
  const count = make("output", {ariaLive: "polite"});
  const form = make("form", {className: "claim-filter", role: "search", ariaLabel: "Claims"},
    make("label", {}, "Words", make("input", {name: "words", type: "search", placeholder: "2.16, posterior mean, …"})),
    choice("Source", "source", sources), choice("Chapter", "chapter", new Map(chapters)),
    choice("Evidence", "kind", [...kinds].map(kind => [kind, kind])), count);

  const texts = new Map(cards.map(card => {
    const summary = card.querySelector("summary");
    return [card, `${card.id} ${summary.textContent} ${summary.dataset.kind}`.toLowerCase()];
  }));
  const fits = card => {
    const {words, source, chapter, kind} = form.elements;
    return words.value.toLowerCase().split(/\s+/).every(word => texts.get(card).includes(word))
      && ["", card.parentElement.dataset.source].includes(source.value)
      && ["", card.dataset.chapter].includes(chapter.value)
      && ["", ...card.dataset.checks.split("|")].includes(kind.value);
  };
  const sieve = () => {
    for (const card of cards) card.hidden = !fits(card);
    for (const section of sections) section.hidden = !section.querySelector(".claim-card:not([hidden])");
    const shown = cards.filter(card => !card.hidden).length;
    count.textContent = shown === cards.length ? `${shown} claims` : `${shown} of ${cards.length} claims`;
  };
  form.addEventListener("input", sieve);
  form.addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", () => {  // a link leads to its card, whatever the filter says
    const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (card?.hidden) { form.reset(); sieve(); card.scrollIntoView(); }
  });
  sieve();
  ledger.prepend(form);
})();
