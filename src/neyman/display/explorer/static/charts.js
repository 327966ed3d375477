// Figures as inline SVG, drawn to the width of their place. The explorer and the report share them.
"use strict";
const charts = (() => {
  const holder = document.createElement("template");
  holder.innerHTML = "<svg></svg>";
  const NAMESPACE = holder.content.firstChild.namespaceURI;
  const node = (kind, attributes, ...inside) => {
    const made = document.createElementNS(NAMESPACE, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  };
  const fixed = (x) => x.toFixed(2);

  // An axis: {from, to, log, label, ticks, text}.
  const part = (axis, value) => {
    if (!axis.log) return (value - axis.from) / (axis.to - axis.from);
    const low = Math.log(axis.from);
    return (Math.log(Math.max(value, axis.from * 1e-9)) - low) / (Math.log(axis.to) - low);
  };
  const at = (axis, share) =>
    axis.log ? axis.from * (axis.to / axis.from) ** share : axis.from + share * (axis.to - axis.from);
  const ticks = (axis, most) => {
    if (axis.log) {
      const low = Math.ceil(Math.log10(axis.from) - 1e-9), high = Math.floor(Math.log10(axis.to) + 1e-9);
      const step = Math.max(1, Math.ceil((high - low) / most));
      const found = [];
      for (let k = high; k >= low; k -= step) found.push(Number(`1e${k}`));
      return found;
    }
    const rough = (axis.to - axis.from) / most;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((s) => s * unit >= rough * (1 - 1e-9));
    const found = [];
    for (let k = Math.ceil(axis.from / step - 1e-9); k * step <= axis.to * (1 + 1e-9); k++) {
      found.push(Number((k * step).toPrecision(12)));
    }
    return found;
  };

  // Heights near the given ones, in the same order, no two nearer than a line of text.
  const spread = (heights, top, bottom, apart) => {
    const order = heights.map((_, k) => k).sort((a, b) => heights[a] - heights[b]);
    const found = [];
    let least = top;
    for (const k of order) least = (found[k] = Math.max(heights[k], least)) + apart;
    let most = bottom;
    for (const k of order.reverse()) most = (found[k] = Math.min(found[k], most)) - apart;
    return found;
  };

  // What is drawn: {title, x, y, height, named, lines: [{kind, points, name, area}], mark: {x, y,
  // text}, diagonal: text, pick: function of x while the pointer drags}.
  const draw = (host, what) => {
    // In letters of the page's size: on a wall of pixels the letters grow, and so does the chart.
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const width = Math.max(260, Math.round((host.clientWidth || 560) / Math.max(1, size)));
    const narrow = width < 380;
    const height = what.height ?? Math.round(Math.min(430, Math.max(250, width * 0.74)));
    const named = what.named ? (narrow ? 96 : Math.min(174, 0.36 * width)) : 0;
    const left = narrow ? 46 : 54, top = 32, right = width - 14 - named, bottom = height - 54;
    const X = (value) => left + Math.min(1.02, Math.max(-0.02, part(what.x, value))) * (right - left);
    const Y = (value) => bottom - Math.min(2, Math.max(-1, part(what.y, value))) * (bottom - top);
    const path = (points) => "M" + points.map(([x, y]) => `${fixed(X(x))} ${fixed(Y(y))}`).join("L");
    const text = (words, attributes) => node("text", attributes, words);

    const svg = node("svg", {
      class: "drawn-chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": what.title,
    });
    for (const tick of ticks(what.x, narrow ? 3 : 5)) {
      svg.append(node("path", { class: "grid", d: `M${fixed(X(tick))} ${top}V${bottom}` }));
      const label = { class: "tick", x: fixed(X(tick)), y: bottom + 18, "text-anchor": "middle" };
      svg.append(text(what.x.text(tick), label));
    }
    for (const tick of ticks(what.y, 5)) {
      svg.append(node("path", { class: "grid", d: `M${left} ${fixed(Y(tick))}H${right}` }));
      const label = { class: "tick", x: left - 8, y: fixed(Y(tick)), dy: "0.35em", "text-anchor": "end" };
      svg.append(text(what.y.text(tick), label));
    }
    svg.append(node("path", { class: "frame", d: `M${left} ${top}H${right}V${bottom}H${left}Z` }));
    svg.append(text(what.y.label, { class: "axis", x: 2, y: 16 }));
    const middle = { class: "axis", x: (left + right) / 2, y: height - 10, "text-anchor": "middle" };
    svg.append(text(what.x.label, middle));
    if (what.diagonal) {
      const ends = [what.x.from, what.x.to];
      svg.append(node("path", { class: "guessing", d: path(ends.map((x) => [x, x])) }));
    }
    // A nested picture cuts off what runs out of the frame.
    const [x0, y0, w, h] = [left - 2, top - 2, right - left + 4, bottom - top + 4];
    const curves = node("svg", { x: x0, y: y0, width: w, height: h, viewBox: `${x0} ${y0} ${w} ${h}` });
    svg.append(curves);
    for (const line of what.lines) {
      if (line.area) {
        const end = line.points.at(-1);
        const shape = what.diagonal ? path([...line.points, [what.x.from, what.x.from]]) :
          `${path(line.points)}V${bottom}H${fixed(X(line.points[0][0]))}`;
        if (end) curves.append(node("path", { class: "given-away", d: shape + "Z" }));
      }
      if (line.points.length > 1) curves.append(node("path", { class: line.kind, d: path(line.points) }));
    }
    if (what.diagonal) {
      const turn = (-Math.atan2(bottom - top, right - left) * 180) / Math.PI;
      const spot = at(what.x, what.mark && part(what.x, what.mark.x) > 0.25 ? 0.3 : 0.62);
      const place = `translate(${fixed(X(spot))} ${fixed(Y(spot))})`;
      const label = { class: "guessing-label", "text-anchor": "middle", dy: "1.3em" };
      if (!named) svg.append(text(what.diagonal, { ...label, transform: `${place} rotate(${turn.toFixed(2)})` }));
    }
    if (named) {
      const told = what.lines.filter((line) => line.name);
      const ends = told.map((line) => Y(line.points.at(-1)[1]));
      spread(ends, top, bottom + 8, 18).forEach((spot, k) => {
        const d = `M${right + 2} ${fixed(ends[k])}L${right + 13} ${fixed(spot)}`;
        svg.append(node("path", { class: "leader", d }));
        const most = Math.floor((named - 4) / 6.9), name = told[k].name;
        const label = { class: `${told[k].kind}-name`, x: right + 17, y: fixed(spot), dy: "0.35em" };
        const short = name.length > most ? `${name.slice(0, most - 1)}…` : name;
        svg.append(text(short, label));
      });
    }
    if (what.mark) {
      const x = X(what.mark.x), y = Y(what.mark.y);
      svg.append(node("path", { class: "drop", d: `M${left} ${fixed(y)}H${fixed(x)}V${bottom}` }));
      svg.append(node("circle", { class: "chosen", cx: fixed(x), cy: fixed(y), r: 6 }));
      // Under a rising curve, above a falling one to its right, below it to its left.
      const after = x < left + 0.62 * (right - left);
      const low = y > bottom - 24, high = y < top + 20;
      const under = what.mark.below || !after;
      const label = text(what.mark.text, {
        class: "chosen-label", x: fixed(x + (after ? 13 : -13)),
        y: fixed(y + (low ? -10 : high || under ? 22 : -8)), "text-anchor": after ? "start" : "end",
      });
      svg.append(label);
    }
    if (what.pick) {
      const pick = (event) => {
        const box = host.getBoundingClientRect(); // it stays, while the picture is drawn anew
        const across = ((event.clientX - box.left) * width) / box.width;
        what.pick(at(what.x, Math.min(1, Math.max(0, (across - left) / (right - left)))));
      };
      svg.classList.add("picked");
      svg.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        pick(event);
        const stop = () => {
          window.removeEventListener("pointermove", pick);
          what.picked?.();
        };
        window.addEventListener("pointermove", pick);
        window.addEventListener("pointerup", stop, { once: true });
      });
    }
    host.replaceChildren(svg);
  };

  const share = (x) => `${Number((100 * x).toPrecision(6))}%`;
  const axis = (label, from, to, more) => ({ label, from, to, text: share, ...more });
  const power = (x) => (x === 1 ? "1" : `10${String(Math.round(Math.log10(x))).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]))}`);

  // Each of these takes {points, x, y, x_text, y_text}: a curve, and the marked point as numbers and as text.

  // Power against level, and where the reader stands.
  const tradeoff = (host, { points, x, y, x_text, y_text }, more) =>
    draw(host, {
      title: `Trade-off curve. At a false positive rate of ${x_text}, the true positive rate is at most ${y_text}`,
      x: axis("False positive rate", 0, 1),
      y: axis("True positive rate (at most)", 0, 1),
      diagonal: "guessing: perfect privacy",
      lines: [
        { kind: "release", points: [[0, points[0]?.[1] ?? 0], ...points, [1, 1]], area: true },
        ...(more?.lines ?? []),
      ],
      mark: { x, y, text: `at most ${y_text}`, below: true },
      ...more?.on,
    });

  // Correct positive results, by the prior.
  const posterior = (host, { points, x, y, y_text }) =>
    draw(host, {
      title: `Correct positive results by prior. Here at most ${y_text}`,
      x: axis("Prior", 0, 1),
      y: axis("Correct positive results (at most)", 0, 1),
      diagonal: "perfect privacy",
      lines: [{ kind: "release", points, area: true }],
      mark: { x, y, text: `at most ${y_text}`, below: true },
    });

  // Delta against epsilon, down to the least delta that is drawn.
  const profile = (host, { points, x, y, x_text, y_text }, least) =>
    draw(host, {
      title: `Delta against epsilon. At delta ${y_text}, epsilon ${x_text}`,
      x: { label: "Epsilon", from: 0, to: points.at(-1)[0], text: String },
      y: { label: "Delta (at most)", from: least, to: 1, log: true, text: power },
      lines: [{ kind: "release", points }],
      mark: { x, y, text: `epsilon ${x_text}` },
    });

  // Several curves over small levels, each named where it ends.
  const beside = (host, curves, last) => {
    const top = Math.max(last, ...curves.map((c) => c.points.at(-1)[1]));
    draw(host, {
      title: "Trade-off curves of the whole record and of single attributes",
      x: axis("False positive rate", 0, last),
      y: axis("True positive rate (at most)", 0, Math.min(1, Math.ceil(top * 10 + 0.2) / 10)),
      diagonal: "guessing", named: true, height: 330,
      lines: [...curves, { kind: "guessing", name: "guessing", points: [[0, 0], [last, last]] }],
    });
  };

  return { tradeoff, posterior, profile, beside };
})();
