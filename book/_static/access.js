// What scrolls sideways can be reached and moved with the keyboard, and says what it is. Nothing else is on the way of the tab key.
(() => {
  const KINDS = [
    ["mjx-container", "Formula, wider than its column"],
    ["div.highlight pre, div.cell_output pre", "Code, wider than its column"],
    [".pst-scrollable-table-container, .table-wrapper, div.cell_output .text_html, .claim-ledger", "Table, wider than its column"],
    [".capslit-pan", "Figure, wider than its column"],
    [".claim-statement, .claim-tex, .claim-diagram, .claim-trials table", "Wider than its column"],
  ];

  const found = (elements, kind) => new Set(elements.flatMap(element => [element.closest && element.closest(kind), ...element.querySelectorAll(kind)]).filter(Boolean));
  const mark = elements => {
    for (const [kind, words] of KINDS) {
      for (const element of found(elements, kind)) {
        const style = getComputedStyle(element);
        const scrolls = (element.scrollWidth > element.clientWidth && style.overflowX !== "visible" && style.overflowX !== "hidden")
          || (element.scrollHeight > element.clientHeight && (style.overflowY === "auto" || style.overflowY === "scroll"));
        if (scrolls && element.getAttribute("tabindex") !== "0") {
          element.tabIndex = 0;
          element.setAttribute("data-scrolls", "");
          if (!element.hasAttribute("role") && element.tagName !== "TABLE") {
            element.setAttribute("role", "group");
            element.setAttribute("aria-label", words);
          }
        } else if (!scrolls && element.hasAttribute("data-scrolls")) {
          for (const name of ["tabindex", "data-scrolls"]) element.removeAttribute(name);
          if (element.getAttribute("aria-label") === words) for (const name of ["role", "aria-label"]) element.removeAttribute(name);
        }
      }
    }
  };

  let waiting = 0;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => mark([document]));
  };
  document.addEventListener("typeset", event => mark(event.detail));
  window.addEventListener("load", () => {
    soon();
    document.addEventListener("toggle", soon, true);  // what was folded has now a width
  });
  window.addEventListener("resize", soon);
})();
