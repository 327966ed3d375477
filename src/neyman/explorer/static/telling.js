// What pages are made of, and what is told above everything: of the server, of a receipt's checks.
"use strict";
const telling = (() => {
  const $ = (id) => document.getElementById(id);
  const made = (kind, attributes = {}, ...inside) => {
    const element = document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) element.setAttribute(name, "");
      else if (value !== false) element.setAttribute(name, value);
    }
    element.append(...inside);
    return element;
  };

  const grid = (head, rows, label) => {
    const top = made("tr", {}, ...head.map((text) => made("th", { scope: "col" }, text)));
    const body = rows.map(([first, ...cells]) =>
      made("tr", {}, made("th", { scope: "row" }, first),
        ...cells.map((cell, k) => made("td", k === 1 ? { class: "now" } : {}, cell))));
    return made("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      made("table", {}, made("thead", {}, top), made("tbody", {}, ...body)));
  };
  // Delta as it is drawn: through the point that is marked, and down to 0 no sooner than it is 0.
  const fallen = (points, epsilon, delta) => {
    const inside = points.length && epsilon < points.at(-1)[0] ? [[epsilon, delta]] : [];
    const all = [...points, ...inside].sort(([a, p], [b, q]) => a - b || q - p);
    return all.flatMap(([e, d], k) => (d === 0 && k && all[k - 1][1] > 0 ? [[e, all[k - 1][1]], [e, d]] : [[e, d]]));
  };

  const copied = async (button, text) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it and copy";
    }
    setTimeout(() => (button.textContent = before), 1500);
  };

  const notices = {};
  const notice = (name, element) => {
    notices[name]?.remove();
    notices[name] = element;
    if (element) $("notices").append(element);
  };

  const checks = async () => {
    const told = await (await fetch("/checks")).json();
    if (told.state === "none") return;
    const lines = (list) => made("ul", {}, ...list.map((each) => made("li", {}, `${each.name}: ${each.detail}`)));
    const box = (kind, head, ...rest) => notice("checks", made("div", { class: `notice ${kind}`, id: "checks" }, made("p", {}, made("strong", {}, head)), ...rest));
    if (told.state === "checking") {
      box("", "The receipt is being checked …");
      setTimeout(checks, 400);
    } else if (told.state === "failed") {
      box("bad", "The receipt could not be checked.", made("p", {}, told.problem));
    } else {
      const failed = told.checks.filter((each) => !each.ok);
      if (failed.length) {
        const what = "This receipt does not stand: do not rely on it. What is shown below follows from its plan alone.";
        box("bad", what, lines(failed));
      } else {
        const all = made("details", {}, made("summary", {}, `All ${told.checks.length} checks`), lines(told.checks));
        const who = told.checks.find((each) => each.name === "signature");
        box("good", "This receipt follows from its own plan, and the files beside it are those that it lists.",
          made("p", {}, who ? `Who made it: ${who.detail}.` : ""), all);
      }
    }
  };

  return { $, made, grid, fallen, copied, notice, checks };
})();
