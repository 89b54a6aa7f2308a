// The list of a claim's mutants comes when it is opened: one script holds those of a page.
(() => {
  let lists = null;
  const fill = () => {
    for (const element of document.querySelectorAll("details[data-evidence][open]")) {
      element.insertAdjacentHTML("beforeend", lists[element.dataset.evidence]);
      delete element.dataset.evidence;
    }
    window.dispatchEvent(new Event("resize"));  // what it shows may have to scroll
  };
  window.capslitEvidence = data => {
    lists = data;
    fill();
  };
  document.addEventListener("toggle", event => {
    const element = event.target;
    if (!element.dataset.evidence || !element.open) return;
    if (lists) fill();
    else if (!document.querySelector("script[data-evidence]")) {
      const script = document.createElement("script");
      script.dataset.evidence = "";
      script.src = element.dataset.file;
      document.head.append(script);
    }
  }, true);
})();
