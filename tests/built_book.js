// What the tests find out in a page of the built book (`Visits` in built_book.py asks for all of it at one visit)
({
  // Pictures wait until they are seen: have those of this theme come now
  fetch: () => Promise.all([...document.images].filter(image => image.getClientRects().length > 0).map(image => {
    image.loading = 'eager';
    return image.decode().catch(() => 0);
  })),

  theme: () => document.documentElement.dataset.theme,

  // What a reader would stumble over, found in the page itself
  troubles: () => {
    const seen = [];
    const shown = e => e.getClientRects().length > 0;
    const content = document.querySelector('article') || document.body;
    for (const e of document.querySelectorAll('span.math, div.math'))
      if (shown(e) && !e.querySelector('mjx-container')) seen.push('mathematics not rendered: ' + e.textContent.slice(0, 80));
    for (const e of document.querySelectorAll('mjx-container svg text'))
      if (!/^[\p{Script=Latin}\p{N}\s_.,;:’‘–—…-]*$/u.test(e.textContent)) seen.push('a glyph that MathJax does not draw: ' + e.textContent);
    const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement, text = node.nodeValue;
      if (parent.closest('mjx-container, script, style')) continue;
      if (parent.closest('pre') && /^\s*#\|/m.test(text)) seen.push('directive of nbdev: ' + text.trim().slice(0, 80));
      if (parent.closest('pre, code')) continue;
      if (/\$\$|\\\(|\\\[|\\begin\{|\\frac/.test(text)) seen.push('raw TeX: ' + text.trim().slice(0, 80));
      if (/\{(eq|cite|func|ref|doc)\}/.test(text)) seen.push('raw role: ' + text.trim().slice(0, 80));
    }
    for (const image of document.images) {
      if (!(image.getAttribute('alt') || '').trim()) seen.push('image without alternative text: ' + image.src.slice(0, 80));
      if (shown(image) && !(image.complete && image.naturalWidth)) seen.push('image that does not load: ' + image.src.slice(0, 80));
    }
    for (const figure of document.querySelectorAll('figure.capslit-figure')) {
      const images = [...figure.querySelectorAll('img')];
      if (images.length && images.filter(shown).length !== 1) seen.push('figure ' + figure.id + ' shows not just one of its images');
      const caption = figure.querySelector('figcaption');
      if (!caption || !shown(caption) || !caption.textContent.trim()) seen.push('figure ' + figure.id + ' has no visible caption');
    }
    const ids = [...document.querySelectorAll('[id]')].filter(e => !e.closest('mjx-container, svg')).map(e => e.id);
    for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) seen.push('anchor given twice: ' + id);
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) {
      const wide = [...content.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1
        && !e.closest('mjx-container, pre, svg')).slice(0, 3).map(e => e.tagName + '.' + e.className);
      seen.push('page wider than its window by ' + (root.scrollWidth - root.clientWidth) + ' px: ' + wide.join(', '));
    }
    return seen;
  },

  // Each visible piece of code and formula, and how many words can be read
  reading: () => {
    const article = document.querySelector('article') || document.body;
    const shown = e => e.checkVisibility() && !e.closest('details:not([open])');
    const code = [...article.querySelectorAll('div.cell_input pre')].filter(shown);
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    let words = 0;
    while (walker.nextNode()) {
      const parent = walker.currentNode.parentElement;
      if (!parent.closest('script, style, div.cell_input, mjx-container, svg') && shown(parent)) words += (walker.currentNode.nodeValue.match(/\S+/g) || []).length;
    }
    return {
      words,
      lines: code.reduce((total, pre) => total + pre.textContent.replace(/\n$/, '').split('\n').length, 0),
      cut: code.filter(pre => pre.scrollWidth > pre.clientWidth + 1).map(pre => pre.textContent.slice(0, 80)),
      cells: article.querySelectorAll('div.cell_input').length,
      unreachable: [...article.querySelectorAll('div.math, span.math')].filter(e => shown(e) && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).overflowX === 'auto' && e.tabIndex !== 0).length,
      scrolling: [...article.querySelectorAll('div.math')].filter(e => shown(e) && e.scrollWidth > e.clientWidth + 1).length,
      beheaded: [...article.querySelectorAll('div.math:has(svg)')].filter(e => shown(e)
        && e.querySelector('svg').getBoundingClientRect().left < e.getBoundingClientRect().left - 1).map(e => e.id),
      // a box in a line that hides its overflow stands on the line with its lower edge
      raised: [...article.querySelectorAll('span.math:not(.capslit-scrolls)')].filter(e => shown(e) && getComputedStyle(e).overflowY !== 'visible').length,
    };
  },

  // How long a page is, where its pictures and live figures are, in screens of 800 px, and how many words its longest paragraph has (a formula is one)
  extent: () => {
    const article = document.querySelector('article') || document.body, SCREEN = 800;
    const shown = e => e.checkVisibility() && !e.closest('details:not([open])');
    const place = e => [e.getBoundingClientRect().top + scrollY, e.getBoundingClientRect().bottom + scrollY].map(y => y / SCREEN);
    const [top, end] = place(article);
    const pictures = [...article.querySelectorAll('img, canvas, .capslit-live, svg.capslit-plot')].filter(e => shown(e) && e.getBoundingClientRect().height > 80)
      .map(place).sort((a, b) => a[0] - b[0]);
    let seen = top, gap = 0, count = 0;
    for (const [start, stop] of [...pictures, [end, end]]) {
      if (start >= seen && start < end) count++;  // what lies beside or within another is the same picture
      gap = Math.max(gap, start - seen);
      seen = Math.max(seen, stop);
    }
    const words = p => {
      const copy = p.cloneNode(true);
      for (const formula of copy.querySelectorAll('mjx-container')) formula.replaceWith('x');
      return copy.textContent.trim().split(/\s+/).length;
    };
    const paragraphs = [...article.querySelectorAll('p')].filter(shown).map(p => [words(p), p.textContent.slice(0, 60)]);
    return {
      screens: end - top,
      pictures: count,
      first: pictures.length ? pictures[0][0] : Infinity,
      gap,
      longest: paragraphs.sort((a, b) => b[0] - a[0])[0],
    };
  },

  // The type of each figure that may be wider than its window
  type: () => [...document.querySelectorAll('.capslit-pan')].map(frame => {
    const image = [...frame.querySelectorAll('img')].find(image => image.getClientRects().length);
    if (!image) return null;
    const size = Number(image.dataset.type) * image.getBoundingClientRect().width / (image.naturalWidth / 2);
    return [frame.closest('figure').id, image.dataset.type === '0' ? Infinity : size, frame.scrollWidth - frame.clientWidth, frame.tabIndex];
  }).filter(Boolean),

  // Each live part that starts by itself: whether it did, controls without a name, what is wider than its stage
  live: () => [...document.querySelectorAll('.capslit-live')].map(mount => {
    const stage = mount.querySelector('.capslit-live-stage');
    const named = e => e.labels && e.labels.length && e.labels[0].textContent.trim() || e.getAttribute('aria-label') || e.textContent.trim();
    return {
      part: mount.dataset.live,
      started: mount.dataset.live in capslit.parts,
      visible: Boolean(stage && stage.getClientRects().length && stage.checkVisibility({visibilityProperty: true})),
      still: mount.querySelectorAll('img.only-light:not(.capslit-live-stage img)').length,
      unnamed: [...mount.querySelectorAll(':is(input, select, button, [tabindex], svg.capslit-plot, canvas)')]
        .filter(e => !named(e) && !e.closest('[aria-hidden]')).map(e => e.outerHTML.slice(0, 120)),
      wide: !stage ? [] : [...stage.querySelectorAll('*')]
        .filter(e => e.getBoundingClientRect().right > stage.getBoundingClientRect().right + 1
          && !e.closest('svg *, .visually-hidden, .capslit-tall > *, .capslit-scroll > *')).map(e => e.outerHTML.slice(0, 100)),
    };
  }),

  // Opens the parts that start when they are opened: which did not, what is wider than its fold, controls without a name
  explored: async () => {
    const folds = [...document.querySelectorAll('details.capslit-explore')];
    const waiting = folds.flatMap(fold => [...fold.querySelectorAll('.capslit-live')].map(mount => mount.dataset.live));
    for (const fold of folds) fold.open = true;
    const missing = () => waiting.filter(part => !(part in capslit.parts));
    for (let i = 0; i < 12000 && missing().length; i++) await new Promise(done => setTimeout(done, 50));  // ten minutes: a bound against hanging
    return missing().map(part => 'does not start: ' + part).concat(...folds.map(fold => [...fold.querySelectorAll('*')].filter(e =>
      e.getBoundingClientRect().right > fold.getBoundingClientRect().right + 1 && !e.closest('svg *, .visually-hidden, .capslit-scroll > *')
      || e.matches('input, select, button, [tabindex]') && !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim())
      .map(e => e.outerHTML.slice(0, 120))));
  },

  // axe looks at every element. Taken out before are the strokes of formulas, which no screen reader sees, the tags within their words, which it has no rule for,
  // and the spans that colour code
  axe: async only => {
    for (const drawing of document.querySelectorAll("mjx-container > svg")) drawing.replaceChildren();
    for (const spoken of document.querySelectorAll("mjx-assistive-mml > math")) spoken.textContent = spoken.textContent;
    for (const code of document.querySelectorAll("div.highlight pre")) if (!only && !code.querySelector("a, button")) code.textContent = code.textContent;
    // A link in a text must be told apart by its form; whether its colour would do as well takes axe half of its time to measure
    axe.configure({rules: [{id: "link-in-text-block", any: ["link-in-text-block-style"]}]});
    const options = {resultTypes: ["violations"]};
    if (only) options.runOnly = [only];
    else options.rules = {"color-contrast": {enabled: false}};
    const found = await axe.run(document, options);
    return found.violations.flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.html.slice(0, 120)}`));
  },
})
