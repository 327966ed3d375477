// Lets a reader walk along the curve. Every word shown is already in the page, in the figure's table.
"use strict";
(() => {
  const figure = document.querySelector("svg.tradeoff");
  const panel = document.querySelector(".reading");
  const rows = [...document.querySelectorAll("tr[data-level]")].map((row) => ({
    level: Number(row.dataset.level),
    power: Number(row.dataset.power),
    says: row.dataset.says,
  }));
  if (!figure || !panel || rows.length === 0) return;

  const [left, top, right, bottom] = figure.dataset.frame.split(" ").map(Number);
  const slider = panel.querySelector("input");
  const output = panel.querySelector("output");
  const reader = figure.querySelector(".reader");
  slider.max = String(rows.length - 1);
  panel.hidden = false;

  const show = (index) => {
    const { level, power, says } = rows[index];
    const x = left + level * (right - left);
    const y = bottom - power * (bottom - top);
    reader.querySelector("path").setAttribute("d", `M${x} ${top}V${bottom}`);
    reader.querySelector("circle").setAttribute("cx", x);
    reader.querySelector("circle").setAttribute("cy", y);
    reader.removeAttribute("hidden");
    slider.value = String(index);
    slider.setAttribute("aria-valuetext", says);
    output.textContent = says;
  };

  slider.addEventListener("input", () => show(Number(slider.value)));
  figure.addEventListener("pointermove", (event) => {
    const box = figure.getBoundingClientRect();
    const scale = figure.viewBox.baseVal.width / box.width;
    const level = ((event.clientX - box.left) * scale - left) / (right - left);
    let nearest = 0;
    rows.forEach((row, index) => {
      if (Math.abs(row.level - level) < Math.abs(rows[nearest].level - level)) nearest = index;
    });
    show(nearest);
  });
  const start = rows.findIndex((row) => row.level >= Number(panel.dataset.start));
  slider.value = String(Math.max(start, 0));
  output.textContent = rows[Number(slider.value)].says;
})();
