// Folds: one switch for a page, remembered; links into a fold open it.
(() => {
  const KEY = "capslit-code";
  const folds = [...document.querySelectorAll('details.capslit-fold:not([data-kind="solution"]), details.capslit-live-code')];
  const remembered = () => { try { return localStorage.getItem(KEY) === "shown"; } catch { return false; } };
  const remember = shown => { try { localStorage.setItem(KEY, shown ? "shown" : "folded"); } catch { /* not remembered, then */ } };

  const addSwitch = title => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "capslit-fold-switch";
    const allOpen = () => folds.every(fold => fold.open);
    const name = () => { button.textContent = allOpen() ? "Hide all code" : "Show all code"; };
    const set = open => { for (const fold of folds) fold.open = open; name(); };
    button.addEventListener("click", () => { set(!allOpen()); remember(allOpen()); });
    for (const fold of folds) fold.addEventListener("toggle", name);
    const subtitle = title.nextElementSibling;
    (subtitle?.matches("blockquote") ? subtitle : title).after(button);
    if (remembered()) set(true); else name();
  };

  const openTarget = () => {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no anchor of ours */ }
    if (!target) return;
    const closed = target.matches(".cell") ? [...target.querySelectorAll(":scope > details.capslit-fold:not([open])")] : [];
    for (let e = target; (e = e.closest("details:not([open])")); e = e.parentElement) closed.push(e);
    for (const fold of closed) fold.open = true;
    if (closed.length) target.scrollIntoView();
  };

  const title = document.querySelector("article h1");
  if (title && folds.length) addSwitch(title);
  openTarget();
  addEventListener("hashchange", openTarget);
  document.addEventListener("click", event => {  // a link to the anchor where one already is changes nothing else
    if (event.target.closest?.('a[href^="#"]')?.hash === location.hash) openTarget();
  });
})();
