// Starts the report: draws its figures, and lets a reader move level and prior. The levels are
// those of the receipt, whose powers are certified: nothing is read between two of them.
"use strict";
(() => {
  const PRIORS = [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999];
  const rows = [...document.querySelectorAll("tr[data-level]")].map((row) => ({
    level: Number(row.dataset.level),
    power: Number(row.dataset.power),
    says: row.dataset.says,
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
    const { level, power, limit } = JSON.parse(host.dataset.tradeoff);
    const points = rows.map((row) => [row.level, row.power]);
    const walk = document.getElementById("walk"), prior = document.getElementById("prior");
    const output = panel.querySelector("output");
    let at = { level, power };
    const draw = () =>
      charts.tradeoff(host, points, at.level, at.power, {
        lines: limit.length ? [{ kind: "limit", points: limit }] : [],
        on: { pick: (x) => nearest(x) },
      });
    const tell = () => {
      const before = PRIORS[Number(prior.value)];
      prior.setAttribute("aria-valuetext", words.percent(before, false));
      walk.setAttribute("aria-valuetext", words.percent(at.level, false));
      const sure = at.level > 0 && at.level < 1;
      const says = sure ? words.power(at.level, at.power, panel.dataset.subject) : (at.says ?? "");
      output.textContent = `${says} ${sure ? words.finding(at.level, at.power, before) : ""}`;
      draw();
    };
    const nearest = (x) => {
      const far = (row) => Math.abs(row.level - x);
      at = rows.reduce((a, b) => (far(b) < far(a) ? b : a));
      walk.value = String(rows.indexOf(at));
      tell();
    };
    walk.max = String(rows.length - 1);
    walk.value = String(Math.max(0, rows.findIndex((row) => row.level >= level)));
    prior.max = String(PRIORS.length - 1);
    prior.value = String(PRIORS.indexOf(0.5));
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
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) all();
    width = window.innerWidth;
  });
})();
