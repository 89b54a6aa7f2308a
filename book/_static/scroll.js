// What is wider than its column scrolls, can be reached with the keyboard, and says what it is. Nothing else is on the way of the tab key.
(() => {
  const KINDS = {
    "div.math, span.math": "Formula, wider than its column",
    "div.highlight pre, div.cell_output pre": "Code, wider than its column",
    ".pst-scrollable-table-container, .table-wrapper, div.cell_output .text_html": "Table, wider than its column",
    ".capslit-pan": "Figure, wider than its column",
    ".claim-statement": "Formula, wider than its column",
  };

  // An inline formula has what only screen readers see beside it: its drawing is measured, less what rounding may add
  const width = element => element.matches("span.math") ? (element.querySelector("svg")?.getBoundingClientRect().width ?? 0) - 1 : element.scrollWidth;
  // Whether something is left to see at the right
  const goesOn = element => element.classList.toggle("capslit-more", element.scrollLeft + element.clientWidth < element.scrollWidth - 2);
  const mark = element => {
    const scrolls = element.clientWidth > 0 && width(element) > element.clientWidth;
    element.classList.toggle("capslit-scrolls", scrolls);
    goesOn(element);
    if (!scrolls) {
      if (element.dataset.scrolls) for (const name of ["tabindex", "role", "aria-label", "data-scrolls"]) element.removeAttribute(name);
      return;
    }
    const [, words] = Object.entries(KINDS).find(([kind]) => element.matches(kind));
    element.dataset.scrolls = "yes";
    element.tabIndex = 0;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", words);
  };

  // Called at first, when the window changes, when a fold opens, and when evidence comes
  const sizes = new ResizeObserver(entries => entries.forEach(entry => mark(entry.target)));
  for (const element of document.querySelectorAll(Object.keys(KINDS).join(", "))) sizes.observe(element);
  document.addEventListener("scroll", event => { if (event.target.matches?.(".capslit-scrolls")) goesOn(event.target); }, {capture: true, passive: true});

  // On paper nothing waits until it is seen
  addEventListener("beforeprint", () => {
    for (const image of document.querySelectorAll("img[loading=lazy]")) image.loading = "eager";
  });
})();
