// Formulas inside a sentence that are wider than the column get a scrollbar of their own; the others stay on the line's baseline.
(() => {
  const mark = () => {
    for (const formula of document.querySelectorAll("mjx-container:not([display])")) {
      formula.classList.remove("capslit-wide");
      const block = formula.closest("p, li, td, dd, figcaption, h1, h2, h3");
      if (block && formula.getBoundingClientRect().width > block.getBoundingClientRect().width) formula.classList.add("capslit-wide");
    }
  };
  window.addEventListener("load", () => {
    if (window.MathJax && MathJax.startup) MathJax.startup.promise.then(mark);
  });
  window.addEventListener("resize", mark);
})();
