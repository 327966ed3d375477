// Elements of the page, and the notices above everything: of the server, and of a receipt's checks.
"use strict";
const notices = (() => {
  const $ = (id) => root.getElementById(id);
  const element = (kind, attributes = {}, ...inside) => {
    const node = document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) node.setAttribute(name, "");
      else if (value !== false) node.setAttribute(name, value);
    }
    node.append(...inside);
    return node;
  };

  const grid = (head, rows, label) => {
    const top = element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)));
    const body = rows.map(([first, ...cells]) =>
      element("tr", {}, element("th", { scope: "row" }, first),
        ...cells.map((cell, k) => element("td", k === 1 ? { class: "now" } : {}, cell))));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      element("table", {}, element("thead", {}, top), element("tbody", {}, ...body)));
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

  const shown = {};
  const notice = (name, node) => {
    shown[name]?.remove();
    shown[name] = node;
    if (node) $("notices").append(node);
  };

  const checks = async () => {
    const receipt = await link.checks();
    if (receipt.state === "none") return;
    const lines = (list) => element("ul", {}, ...list.map((each) => element("li", {}, `${each.name}: ${each.detail}`)));
    const box = (kind, head, ...rest) => notice("checks", element("div", { class: `notice ${kind}`, id: "checks" }, element("p", {}, element("strong", {}, head)), ...rest));
    if (receipt.state === "checking") {
      box("", "Checking the receipt …");
      setTimeout(checks, 400);
    } else if (receipt.state === "failed") {
      box("bad", "The receipt could not be checked.", element("p", {}, receipt.problem));
    } else {
      const failed = receipt.checks.filter((each) => !each.ok);
      if (failed.length) {
        const what = "This receipt fails verification. Do not rely on it. The numbers below follow from its plan alone.";
        box("bad", what, lines(failed));
      } else {
        const all = element("details", {}, element("summary", {}, `All ${receipt.checks.length} checks`), lines(receipt.checks));
        const who = receipt.checks.find((each) => each.name === "signature");
        box("good", "This receipt follows from its plan, and the files beside it are the ones it lists.",
          element("p", {}, who ? `Who made it: ${who.detail}.` : ""), all);
      }
    }
  };

  return { $, element, grid, copied, notice, checks };
})();
