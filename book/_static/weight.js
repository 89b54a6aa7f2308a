// The evidence of claims comes when one of them is opened: one script holds that of a page.
(() => {
  const all = [...document.querySelectorAll("details[data-evidence]")];
  window.capslitEvidence = evidence => {
    for (const details of all) {
      const [statement, rest] = evidence[details.dataset.evidence.split("#")[1]];
      details.querySelector(".claim-statement")?.insertAdjacentHTML("beforeend", statement);
      (details.querySelector("dl") ?? details).insertAdjacentHTML("beforeend", rest);
    }
  };
  const load = () => {
    for (const details of all) details.removeEventListener("toggle", load);
    const script = document.createElement("script");
    script.src = all[0].dataset.evidence;
    document.head.append(script);
  };
  for (const details of all) details.addEventListener("toggle", load);
  if (all.some(details => details.open)) load();
})();
