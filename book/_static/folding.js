// Folds: one switch for a page, remembered; links into a fold open it.
(() => {
  const CODE = 'details.capslit-fold:not([data-kind="solution"]), details.capslit-live-code';
  const KEY = "capslit-code";
  const remembered = () => { try { return localStorage.getItem(KEY) === "shown"; } catch { return false; } };
  const remember = shown => { try { localStorage.setItem(KEY, shown ? "shown" : "folded"); } catch { /* not remembered, then */ } };

  const openAround = target => {
    const own = target.closest(".cell") === target ? target.querySelectorAll(":scope > details.capslit-fold") : [];
    const folds = [...own];
    for (let e = target.closest("details"); e; e = e.parentElement.closest("details")) folds.push(e);
    if (!folds.some(fold => !fold.open)) return;
    for (const fold of folds) fold.open = true;
    target.scrollIntoView();
  };
  const openTarget = () => {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no anchor of ours */ }
    if (target) openAround(target);
  };

  const addSwitch = folds => {
    const title = document.querySelector("article h1");
    if (!title || !folds.length) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "capslit-fold-switch";
    const name = () => { button.textContent = folds.every(fold => fold.open) ? "Hide all code" : "Show all code"; };
    const set = open => { for (const fold of folds) fold.open = open; name(); };
    button.addEventListener("click", () => {
      const open = !folds.every(fold => fold.open);
      set(open);
      remember(open);
    });
    for (const fold of folds) fold.addEventListener("toggle", name);
    const subtitle = title.nextElementSibling;
    (subtitle && subtitle.matches("blockquote") ? subtitle : title).after(button);
    if (remembered()) set(true); else name();
  };

  addSwitch([...document.querySelectorAll(CODE)]);
  openTarget();
  addEventListener("hashchange", openTarget);
  document.addEventListener("click", event => {  // a link to the anchor where one already is changes nothing else
    const link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) openTarget();
  });
})();
