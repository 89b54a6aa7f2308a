// Formulas inside a sentence that are wider than the column get a scrollbar of their own; the others stay on the line's baseline.
(() => {
  const mark = elements => {
    for (const formula of elements.flatMap(element => [...element.querySelectorAll("mjx-container:not([display])")])) {
      formula.classList.remove("capslit-wide");
      const block = formula.closest("p, li, td, dd, figcaption, h1, h2, h3");
      if (block && formula.getBoundingClientRect().width > block.getBoundingClientRect().width) formula.classList.add("capslit-wide");
    }
  };
  document.addEventListener("typeset", event => mark(event.detail));
  window.addEventListener("resize", () => mark([document]));
})();
