// The shares of a plan's queries: a bar, and a table with a slider and a number per query.
"use strict";
const shares = (() => {
  const { element } = notices;
  const { shared } = controls;
  const MARKED = 8; // queries with a mark of their own: four colors, filled and outlined
  let sought = "";

  // No two marks are alike: beyond the colors, a query has its number alone.
  const mark = (k, count) => {
    if (count > MARKED) return element("i", { class: "mark", "aria-hidden": "true" }, String(k + 1));
    return element("i", { class: `mark hue-${k % 4} ${k < 4 ? "filled" : "outlined"}`, "aria-hidden": "true" }, String(k + 1));
  };

  // {queries, weights: their thousandths now, move: of new ones, moved: after a drag}
  const table = ({ queries, weights, move, moved }) => {
    const count = queries.length, most = 1001 - count;
    if (count < 2) return [];
    const bar = element("div", { class: "stack", "aria-hidden": "true" }, ...queries.map((_, k) => mark(k, count)));
    const lines = queries.map((query, k) => {
      const slider = element("input", { type: "range", id: `weight-${k}`, min: 1, max: most, step: 1, "aria-label": `Share of ${query}` });
      const exact = element("input", {
        type: "number", id: `weight-${k}-value`, min: 0.1, max: most / 10, step: 0.1, required: true, "aria-label": `Share of ${query}, in percent`,
      });
      const set = (weight) => {
        move(shared(weights(), k, weight));
        show();
      };
      slider.addEventListener("input", () => set(Number(slider.value)));
      slider.addEventListener("change", moved);
      exact.addEventListener("input", () => {
        if (exact.value === "" || !exact.checkValidity()) return;
        set(Math.round(10 * Number(exact.value)));
        moved();
      });
      exact.addEventListener("change", () => show(true));
      const name = element("label", { for: `weight-${k}` }, mark(k, count), element("span", {}, query));
      const row = element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, slider), element("td", {}, exact));
      return { query, slider, exact, row };
    });
    const show = (all = false) => lines.forEach(({ slider, exact, row }, k) => {
      const weight = weights()[k];
      slider.value = weight;
      slider.setAttribute("aria-valuetext", `${weight / 10}%`);
      if (all || root.activeElement !== exact) exact.value = weight / 10;
      bar.children[k].style.flexGrow = weight;
    });
    show(true);
    const head = ["Query", "Share", "%"].map((text) => element("th", { scope: "col" }, text));
    const grid = element("table", { class: "shares" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines.map(({ row }) => row)));
    const region = { class: "shares-region", tabindex: "0", role: "region", "aria-label": "Shares of the budget" };
    if (count <= MARKED) return [bar, grid];
    const found = element("p", { class: "note", id: "shares-found", role: "status" });
    const search = element("input", { type: "search", id: "shares-search", "aria-label": "Search queries", placeholder: "Search queries", value: sought });
    const sift = () => {
      sought = search.value;
      const wanted = sought.trim().toLowerCase();
      let left = 0;
      for (const { query, row } of lines) {
        row.hidden = !query.toLowerCase().includes(wanted);
        if (!row.hidden) left++;
      }
      found.textContent = wanted ? `${left} of ${count} queries` : `${count} queries. Their shares add up to 100%.`;
    };
    search.addEventListener("input", sift);
    sift();
    return [element("div", { class: "search" }, search, found), element("div", region, grid)];
  };

  return { table };
})();
