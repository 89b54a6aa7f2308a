// Formulas inside a sentence that are wider than the column get a scrollbar of their own; the others stay on the line's baseline.
(() => {
  const mark = elements => {  // all are measured before any is changed: the page is laid out once
    const formulas = elements.flatMap(element => [...element.querySelectorAll("mjx-container:not([display])")]);
    for (const formula of formulas) formula.classList.remove("capslit-wide");
    const wide = formulas.filter(formula => {
      const block = formula.closest("p, li, td, dd, figcaption, h1, h2, h3");
      return block && formula.getBoundingClientRect().width > block.getBoundingClientRect().width;
    });
    for (const formula of wide) formula.classList.add("capslit-wide");
  };
  document.addEventListener("typeset", event => mark(event.detail));
  window.addEventListener("resize", () => mark([document]));
})();
