// Starts the report: draws its figures, and lets a reader move level and prior. The levels are
// those of the receipt, whose powers are certified: nothing is read between two of them.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("tr[data-level]")].map((row) => ({
    level: Number(row.dataset.level),
    power: Number(row.dataset.power),
    says: row.dataset.says,
    right: row.dataset.right.split(" "),
    texts: [...row.cells].map((cell) => cell.textContent),
  }));
  const figures = [];
  const beside = document.querySelector("[data-beside]");
  if (beside) {
    const { curves, last } = JSON.parse(beside.dataset.beside);
    const whole = curves.map(({ points, ...more }) => ({ ...more, points: [[0, points[0][1]], ...points] }));
    figures.push(() => charts.beside(beside, whole, last));
  }

  const host = document.querySelector("[data-tradeoff]");
  const panel = document.querySelector(".reading");
  if (host && panel && rows.length) {
    const { level, limit } = JSON.parse(host.dataset.tradeoff);
    const priors = JSON.parse(panel.dataset.priors);
    const points = rows.map((row) => [row.level, row.power]);
    const walk = document.getElementById("walk"), prior = document.getElementById("prior");
    const output = panel.querySelector("output");
    let at = rows.find((row) => row.level === level);
    const draw = () =>
      charts.tradeoff(host, { points, x: at.level, y: at.power, x_text: at.texts[0], y_text: at.texts[1] }, {
        lines: limit.length ? [{ kind: "limit", points: limit }] : [],
        on: { pick: (x) => nearest(x) },
      });
    const tell = () => {
      const k = Number(prior.value), right = at.right[k];
      prior.setAttribute("aria-valuetext", priors[k].text);
      walk.setAttribute("aria-valuetext", at.texts[0]);
      output.textContent = `${at.says} ${right ? priors[k].finding.replace("{right}", right) : ""}`;
      draw();
    };
    const nearest = (x) => {
      const far = (row) => Math.abs(row.level - x);
      at = rows.reduce((a, b) => (far(b) < far(a) ? b : a));
      walk.value = String(rows.indexOf(at));
      tell();
    };
    walk.max = String(rows.length - 1);
    walk.value = String(rows.indexOf(at));
    prior.max = String(priors.length - 1);
    prior.value = String(priors.findIndex(({ text }) => text === "50%"));
    walk.addEventListener("input", () => {
      at = rows[Number(walk.value)];
      tell();
    });
    prior.addEventListener("input", tell);
    panel.hidden = false;
    figures.push(draw);
    tell();
  }

  const all = () => figures.forEach((draw) => draw());
  all();
  // A figure in a section that was closed had no width.
  for (const fold of document.querySelectorAll(".fold > details")) fold.addEventListener("toggle", all);
  const reveal = () => {
    const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = named?.closest(".fold > details");
    if (!fold) return;
    fold.open = true;
    named.scrollIntoView();
  };
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    link.addEventListener("click", () => setTimeout(reveal)); // the address is the new one by then
  }
  window.addEventListener("hashchange", reveal);
  reveal();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) all();
    width = window.innerWidth;
  });
})();
