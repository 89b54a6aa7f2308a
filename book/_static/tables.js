// Tables that cells print from records: a head orders the rows, first as they stand, then upwards, then downwards; long tables have a filter.
(() => {
  const LEAST = 4, LONG = 12;  // rows of a table that can be ordered, and of one that has a filter
  const ORDERS = ["none", "ascending", "descending"];
  const words = cell => (cell ? cell.textContent.trim() : "");
  const number = text => {
    const plain = text.replace(/[\s\u202f\u00a0,]/g, "").replace(/[\u2212\u2013]/g, "-").replace("½", ".5").match(/^[<>≤≥≈~]?([-+]?\d*\.?\d+)(?:[e×]\S*|[%±x(/\u2013].*|[a-zA-Zµ]{0,3})?$/);
    return plain ? Number(plain[1]) : NaN;
  };

  const compare = (rows, column, sign) => {
    const keys = new Map(rows.map(row => [row, words(row.cells[column])]));
    const numbers = new Map(rows.map(row => [row, number(keys.get(row))]));
    const known = rows.filter(row => !Number.isNaN(numbers.get(row))).length;
    return 2 * known > rows.length  // what is no number comes last
      ? (a, b) => { const x = numbers.get(a), y = numbers.get(b); return Number.isNaN(x) ? (Number.isNaN(y) ? 0 : 1) : Number.isNaN(y) ? -1 : sign * (x - y); }
      : (a, b) => sign * keys.get(a).localeCompare(keys.get(b), undefined, { numeric: true });
  };

  const orderable = table => {
    const body = table.tBodies[0], head = table.tHead && table.tHead.rows.length === 1 ? [...table.tHead.rows[0].cells] : [];
    const rows = body ? [...body.rows] : [];
    return rows.length >= LEAST && head.length && rows.every(row => row.cells.length === head.length) && !table.querySelector("[rowspan], [colspan]") ? { body, head, rows } : null;
  };

  const begin = ({ body, head, rows }) => {
    head.forEach((cell, column) => {
      if (!words(cell)) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "capslit-order";
      button.title = "Order the rows by this column";
      button.append(...cell.childNodes);
      cell.append(button);
      cell.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const order = ORDERS[(ORDERS.indexOf(cell.getAttribute("aria-sort")) + 1) % ORDERS.length];
        head.forEach(other => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
        cell.setAttribute("aria-sort", order);
        body.append(...(order === "none" ? rows : [...rows].sort(compare(rows, column, order === "ascending" ? 1 : -1))));
      });
    });
  };

  const filter = (table, { rows }) => {
    const line = document.createElement("label"), field = document.createElement("input"), count = document.createElement("output");
    line.className = "capslit-filter";
    field.type = "search";
    line.append("Rows with ", field, count);
    const show = () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !wanted.every(word => words(row).toLowerCase().includes(word));
      count.textContent = wanted.length ? ` ${rows.filter(row => !row.hidden).length} of ${rows.length}` : "";
    };
    field.addEventListener("input", show);
    (table.closest(".pst-scrollable-table-container, .table-wrapper") || table).before(line);
  };

  for (const table of document.querySelectorAll(".bd-article table.table")) {  // the last column is prose: the style sheet leaves it room
    const last = [...table.rows].map(row => words(row.cells[row.cells.length - 1]).length);
    table.classList.toggle("capslit-prose", Math.max(0, ...last) > 30);
  }

  for (const table of document.querySelectorAll("div.cell_output table")) {
    const found = table.closest(".capslit-live, .claim") ? null : orderable(table);
    if (!found) continue;
    begin(found);
    if (found.rows.length >= LONG) filter(table, found);
  }
})();
