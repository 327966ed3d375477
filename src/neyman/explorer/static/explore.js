// The explorer: a state, moved by controls, kept in the address; everything else is drawn from it.
"use strict";
(() => {
  const { $, made, grid, fallen, copied, notice, checks } = telling;
  const { FIELDS, KINDS, PROMISES, ABOUT, inRange, place, valueAt, shared } = dials;
  let opening = { plan: null };
  const firsts = () => {
    const found = { about: opening.plan ? "plan" : "mechanism", kind: "gaussian", promise: "approximate" };
    for (const [name, field] of Object.entries(FIELDS)) found[name] = field.first;
    found.weights = opening.plan ? opening.plan.weights : null;
    return found;
  };
  let state = firsts();

  // ---- the address ----------------------------------------------------------------------------

  const fragment = () => {
    const first = firsts(), found = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) {
      if (String(value) !== String(first[name])) found.set(name, String(value));
    }
    return found.toString();
  };
  const stateOf = (text) => {
    const found = firsts();
    for (const [name, value] of new URLSearchParams(text.replace(/^#/, ""))) {
      if (name === "about" && value in ABOUT && (value !== "plan" || opening.plan)) found.about = value;
      if (name === "kind" && Object.hasOwn(KINDS, value)) found.kind = value;
      if (name === "promise" && Object.hasOwn(PROMISES, value)) found.promise = value;
      if (Object.hasOwn(FIELDS, name) && value !== "" && inRange(name, Number(value))) found[name] = Number(value);
      if (name === "weights" && opening.plan) {
        const weights = value.split(",").map(Number);
        const good = weights.length === opening.plan.weights.length &&
          weights.every((w) => Number.isInteger(w) && w > 0) && weights.reduce((a, b) => a + b) === 1000;
        if (good) found.weights = weights;
      }
    }
    return found;
  };
  const past = [];
  let now = "", future = [], saving;
  const keep = () => {
    clearTimeout(saving);
    saving = setTimeout(() => {
      const next = fragment();
      if (next !== now) {
        past.push(now);
        future = [];
        now = next;
        history.replaceState(null, "", `#${next}`);
      }
      tools();
    }, 200);
  };
  const move = (from, to) => {
    if (!from.length) return;
    to.push(now);
    now = from.pop();
    state = stateOf(now);
    history.replaceState(null, "", `#${now}`);
    controls();
    changed();
    tools();
  };
  const tools = () => {
    $("undo").disabled = !past.length;
    $("redo").disabled = !future.length;
  };

  // ---- what an attacker learns ----------------------------------------------------------------

  const closed = () => {
    const { about, kind, promise, steps } = state;
    if (about === "mechanism" && kind === "gaussian") return numbers.gaussian(Math.sqrt(steps) / state.sigma);
    if (about === "mechanism" && kind === "laplace" && steps === 1) return numbers.laplace(1 / state.scale);
    if (about === "mechanism" && kind === "response" && steps === 1) return numbers.response(state.loss, state.categories);
    if (about === "guarantee" && promise === "gdp") return numbers.gaussian(state.mu);
    if (about === "guarantee" && promise === "approximate") return numbers.approximate(state.epsilon, state.chance);
    return null;
  };
  const subject = () => (state.about === "plan" ? opening.plan.protects : "person");
  const claim = () => {
    if (state.about === "plan") return opening.plan.claim;
    return (opening.claims ?? {})[state.about === "mechanism" ? KINDS[state.kind].neighboring ?? "" : ""] ?? "";
  };
  const base = () => {
    const { about } = state;
    const question = { about };
    if (about === "mechanism") {
      question.kind = state.kind;
      for (const name of KINDS[state.kind].fields) question[name] = state[name];
    } else if (about === "guarantee") {
      question.promise = state.promise;
      for (const name of PROMISES[state.promise].fields) question[name] = state[name];
    } else {
      question.rho = state.budget;
      question.weights = state.weights;
    }
    return question;
  };
  const upto = (epsilon) => Math.max(0.05, Number((1.5 * (Number.isFinite(epsilon) ? epsilon : 8)).toPrecision(2)));
  const questions = () => {
    const whole = base(), found = {}, planned = state.about === "plan", told = answers.curve?.answer;
    const here = { ...whole, level: state.level, delta: state.delta };
    if (!closed()) found.curve = { ask: "curve", ...here };
    if (planned) found.tables = { ask: "tables", ...whole };
    if (!closed() && told && !told.exact) found.headline = { ask: "headline", ...here };
    if (planned) found.scenarios = { ask: "scenarios", ...whole, level: state.level };
    if (!closed() && told) found.profile = { ask: "profile", ...whole, upto: upto(told.epsilon === "inf" ? Infinity : told.epsilon) };
    if (planned) found.toml = { ask: "toml", ...whole };
    return found;
  };

  // ---- asking the server ----------------------------------------------------------------------

  const me = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16)).join("");
  const answers = {};
  let counted = 0, asking = null, waiting;
  const ask = async (question, signal, page = me) => {
    const body = JSON.stringify({ page, number: counted, question });
    const reply = await fetch("/answer", {
      method: "POST", headers: { "Content-Type": "application/json" }, body, signal,
    });
    reached(reply.status);
    return reply.ok ? reply.json() : { problem: "The explorer refused to answer." };
  };
  // Every question whose answer is not there yet, one after the other; a newer change ends this.
  const refresh = () => {
    clearTimeout(waiting);
    asking?.abort();
    waiting = setTimeout(async () => {
      asking = new AbortController();
      const { signal } = asking;
      counted++;
      const done = new Set();
      try {
        for (;;) {
          const next = Object.entries(questions()).find(
            ([name, question]) => !done.has(name) && answers[name]?.key !== JSON.stringify(question),
          );
          if (!next || signal.aborted) break;
          const [name, question] = next;
          done.add(name);
          const said = await ask(question, signal);
          if (signal.aborted || said.outdated) return;
          answers[name] = { key: JSON.stringify(question), ...said };
          draw();
        }
      } catch (error) {
        if (error.name !== "AbortError") reached(0);
      }
    }, 12);
  };
  const answered = (name) => {
    const wanted = questions()[name], found = answers[name];
    if (!found) return { late: true };
    return { late: !wanted || found.key !== JSON.stringify(wanted), ...found };
  };
  let reachable = true;
  const reached = (status) => {
    const said = status === 403 ? "again" : status === 0 ? "gone" : "here";
    if ((said === "here") === reachable && said === "here") return;
    if (said === "here") {
      reachable = true;
      notice("server", null);
      refresh();
    } else {
      reachable = false;
      const what = said === "gone"
        ? "The explorer behind this page has stopped. What the page works out itself goes on; the rest waits."
        : "The explorer was started again, and does not know this page.";
      const kept = "Your settings are kept in the address of this page: run neyman explore again, open what it prints, and put the part from # on behind it.";
      notice("server", made("div", { class: "notice bad" }, made("p", {}, made("strong", {}, what)), made("p", {}, kept)));
    }
    draw();
  };
  setInterval(async () => {
    if (document.hidden) return;
    try {
      reached((await fetch("/alive")).status);
    } catch {
      reached(0);
    }
  }, 4000);

  // ---- drawing --------------------------------------------------------------------------------

  const model = () => {
    const { level, delta } = state;
    const form = closed();
    if (form) {
      const curve = [], profile = [], epsilon = form.epsilon(delta);
      for (let k = 1; k < 80; k++) {
        const a = 0.5 - 0.5 * Math.cos((Math.PI * k) / 80);
        curve.push([a, form.power(a)]);
      }
      curve.push(...(form.corners ?? []));
      curve.sort(([a, p], [b, q]) => a - b || p - q);
      const far = upto(epsilon);
      for (let k = 0; k <= 80; k++) profile.push([(far * k) / 80, form.delta((far * k) / 80)]);
      return { level, delta, power: form.power(level), epsilon, curve, profile, more: form, late: false };
    }
    // A bound for all levels comes first; where it is not the closest, that of the level follows.
    const curve = answered("curve"), head = answered("headline"), profile = answered("profile");
    if (!curve.answer) return { late: true, problem: curve.problem };
    const asked = JSON.parse(curve.key), { points, power, epsilon, exact } = curve.answer;
    const closer = !exact && !curve.late && !head.late ? head.answer : null;
    return {
      level: asked.level, delta: asked.delta, late: curve.late || (!exact && head.late),
      power: Math.max(asked.level, closer ? closer.power.upper : power), epsilon: epsilon === "inf" ? Infinity : epsilon,
      curve: points, profile: profile.answer ?? [], lateCurve: curve.late, lateProfile: profile.late, more: {},
      problem: [curve, profile].find((each) => each.problem && !each.late)?.problem,
      closest: exact || !head.problem || head.late,
    };
  };

  let speaking;
  const draw = () => {
    const found = model();
    $("words").classList.toggle("late", found.late);
    $("figures").classList.toggle("late", found.late);
    if (found.problem) {
      $("how").textContent = `${found.problem} ${/^Too slow/.test(found.problem) ? "Take fewer steps, or another mechanism." : ""}`;
    } else if (closed()) {
      $("how").textContent = "Worked out in this page, in closed form, and rounded up.";
    } else {
      const bounds = found.closest === false ? "Certified upper bounds; closer ones take too long." : "Certified upper bounds, worked out by the library.";
      $("how").textContent = reachable ? bounds : "The last answer before the explorer stopped.";
    }
    if (found.power === undefined) {
      $("sentence").textContent = found.problem ? "There is no answer for these settings." : "Working it out …";
      $("finding").textContent = "";
      $("figures").replaceChildren();
      for (const chart of ["tradeoff", "posterior", "profile"]) $(chart).replaceChildren();
    } else {
      const { level, power, epsilon, delta } = found;
      const sentence = words.power(level, power, subject());
      const finding = words.finding(level, power, state.prior);
      $("sentence").textContent = sentence;
      $("finding").textContent = finding;
      clearTimeout(speaking);
      speaking = setTimeout(() => ($("spoken").textContent = `${sentence} ${finding}`), 700);
      figures(found);
      $("tradeoff").classList.toggle("late", Boolean(found.lateCurve));
      $("profile").classList.toggle("late", Boolean(found.lateProfile));
      const before = state.about === "plan" && own.curve && fragmentOfPlan() ? [{ kind: "before", points: own.curve }] : [];
      charts.tradeoff($("tradeoff"), found.curve, level, power, {
        lines: before,
        on: { pick: (a) => set("level", valueAt(FIELDS.level, place(FIELDS.level, Math.min(0.5, Math.max(0.0001, a))))), picked: keep },
      });
      charts.posterior($("posterior"), level, power, state.prior);
      const shown = `epsilon ${words.number(epsilon)}`;
      charts.draw($("profile"), {
        title: `Delta against epsilon. At delta ${words.delta(delta)}, ${shown}`,
        x: { label: "Epsilon", from: 0, to: found.profile.at(-1)?.[0] ?? upto(epsilon), text: (x) => String(x) },
        y: { label: "Delta, at most", from: Math.min(1e-12, delta / 100), to: 1, log: true, text: (y) => (y === 1 ? "1" : words.delta(y)) },
        lines: [{ kind: "release", points: fallen(found.profile, epsilon, delta) }],
        mark: { x: epsilon, y: delta, text: shown },
      });
    }
    $("how").textContent += ` ${claim()}`;
    plan(found);
    $("python").textContent = dials.python(state);
  };

  const figures = ({ level, power, epsilon, delta, more }) => {
    const right = words.percent(words.posterior(level, power, state.prior));
    const found = [
      ["True claims found out, at most", words.percent(power), `guessing: ${words.percent(level, false)}`],
      ["A finding is right, at most", right, `before: ${words.percent(state.prior, false)}`],
      [`Epsilon at delta ${words.delta(delta)}`, words.number(epsilon), more.pure ? `at delta 0: ${words.number(more.pure)}` : ""],
    ];
    if (more.mu) found.push(["Mu (Gaussian)", words.number(more.mu), `rho (zCDP): ${words.number(more.rho)}`]);
    if (state.about === "plan") found.push(["Rho (zCDP)", words.number(state.budget ?? opening.plan.rho), "of all tables together"]);
    $("figures").replaceChildren(
      ...found.map(([what, value, note]) => made("div", {}, made("dt", {}, what), made("dd", {}, value, made("small", {}, note)))),
    );
  };

  // ---- of a plan ------------------------------------------------------------------------------

  const own = {};
  const fragmentOfPlan = () => state.budget !== null || String(state.weights) !== String(opening.plan.weights);
  const margin = (table) => {
    if (!table) return "–";
    if (table.standard_error === 0) return "exact: declared";
    if (table.half_width_90 !== null) return `±\u00a0${words.number(table.half_width_90)}`;
    const each = table.by_rows.at(-1);
    return each ? `±\u00a0${words.number(each.half_width_90)} (of ${words.number(each.rows)} rows)` : "–";
  };
  const adding = ({ adding_up: half }) => (half === null ? "–" : half === 0 ? "exact" : `±\u00a0${words.number(half)}`);
  const plan = () => {
    const shown = state.about === "plan";
    for (const name of ["tables", "scenarios", "toml-part", "beside-figure"]) $(name).hidden = !shown;
    if (!shown) return;
    const tables = answered("tables"), told = answered("scenarios"), toml = answered("toml");
    $("tables-body").classList.toggle("late", tables.late);
    $("scenarios-body").classList.toggle("late", told.late);
    $("beside").classList.toggle("late", told.late);
    if (tables.answer) {
      const before = Object.fromEntries((own.tables ?? []).map((table) => [table.table, table]));
      const twice = tables.answer.some((table) => table.adding_up !== null);
      const rows = tables.answer.map((table) => [
        table.table.replace(/\.all$/, " (in all)").replace(".", " by "), table.cells === null ? "found in the data" : words.number(table.cells),
        margin(table), ...(twice ? [adding(table)] : []), margin(before[table.table]),
      ]);
      const head = ["Table", "Cells", "Margin of error (90%)", ...(twice ? ["Made to add up (90%)"] : []), "As the plan has it"];
      const note = "This plan publishes its tables twice: with their noise, and made to add up, which costs no privacy and makes no cell less accurate on average. A half is added to those margins for safety, so some look wider. The last column is of the noisy ones.";
      $("tables-body").replaceChildren(grid(head, rows, "Margins of error of the tables"), ...(twice ? [made("p", { class: "note" }, note)] : []));
    } else if (tables.problem) {
      $("tables-body").textContent = tables.problem;
    }
    if (told.answer) {
      const name = (each) => each.attributes.join(" and ") + (each.within === null ? "" : ` within a known ${each.within}`);
      const level = JSON.parse(told.key).level;
      const rows = told.answer.map((each) => [`The ${subject()}’s ${name(each)}`, words.percent(level, false), words.percent(each.power)]);
      const whole = model();
      if (whole.power !== undefined && opening.plan.neighboring === "replace-one") {
        rows.push([`Anything in the ${subject()}’s record`, words.percent(whole.level, false), words.percent(whole.power)]);
      }
      const head = ["A claim about", "Guessing finds", "Found out, at most"];
      $("scenarios-body").replaceChildren(grid(head, rows, "Attributes side by side"));
      const most = [...told.answer].sort((a, b) => b.curve.at(-1)[1] - a.curve.at(-1)[1]).slice(0, 6);
      const curves = most.map((each) => ({ kind: "scenario", name: name(each).replace(" within a known ", " in "), points: each.curve }));
      if (curves.length) charts.beside($("beside"), curves, 0.2);
    } else if (told.problem) {
      $("scenarios-body").textContent = told.problem;
    }
    $("toml").classList.toggle("late", toml.late);
    if (toml.answer) $("toml").textContent = toml.answer;
  };

  // ---- controls -------------------------------------------------------------------------------

  const set = (name, value) => {
    state[name] = value;
    const shown = $(`${name}-value`);
    if (shown) {
      if (document.activeElement !== shown) shown.value = value;
      $(`${name}-slider`).value = place(FIELDS[name], value);
      spoken(name);
    }
    changed();
  };
  const spoken = (name) => {
    const value = state[name] ?? opening.plan?.rho;
    $(`${name}-slider`).setAttribute("aria-valuetext", ["level", "prior"].includes(name) ? words.percent(value, false) : words.number(value));
  };
  const changed = () => {
    draw();
    refresh();
  };
  const field = (name) => {
    const each = FIELDS[name], value = state[name] ?? opening.plan.rho;
    const slider = made("input", {
      type: "range", id: `${name}-slider`, min: 0, max: 1000, step: 1, value: place(each, value), "aria-label": each.says,
    });
    const exact = made("input", {
      type: "number", id: `${name}-value`, min: each.from, max: each.to, step: each.whole ? 1 : "any", required: true,
      value: state[name] ?? Number(value.toPrecision(4)), "aria-describedby": `${name}-wrong`,
    });
    const wrong = made("p", { class: "wrong", id: `${name}-wrong` });
    slider.addEventListener("input", () => set(name, valueAt(each, Number(slider.value))));
    slider.addEventListener("change", keep);
    exact.addEventListener("input", () => {
      const good = exact.value !== "" && inRange(name, Number(exact.value));
      wrong.textContent = good ? "" : `Give ${each.whole ? "a whole number" : "a number"} from ${words.number(each.from)} to ${words.number(each.to)}.`;
      if (!good) return;
      set(name, Number(exact.value));
      keep();
    });
    const label = made("label", { for: `${name}-value` }, each.says);
    return made("div", { class: "field" }, made("div", {}, label, slider, exact), wrong);
  };
  const choice = (name, options, rebuild) => {
    const select = made("select", { id: name, "aria-label": name === "kind" ? "Mechanism" : "Guarantee" },
      ...Object.entries(options).map(([value, { says }]) => made("option", { value, selected: value === state[name] }, says)));
    select.addEventListener("change", () => {
      state[name] = select.value;
      rebuild();
    });
    return select;
  };
  const split = () => {
    const { queries } = opening.plan;
    const bar = made("div", { class: "stack", "aria-hidden": "true" }, ...queries.map((_, k) => made("i", { class: `hue-${k % 4}` })));
    const rows = queries.map((query, k) => {
      const slider = made("input", { type: "range", id: `weight-${k}`, min: 1, max: 1001 - queries.length, step: 1, "aria-label": `Share of ${query}` });
      const text = made("span");
      const label = made("label", { for: `weight-${k}` }, made("i", { class: `swatch hue-${k % 4}` }), text);
      slider.addEventListener("input", () => {
        state.weights = shared(state.weights, k, Number(slider.value));
        show();
        changed();
      });
      slider.addEventListener("change", keep);
      return { text, slider, element: made("div", { class: "field" }, label, slider) };
    });
    const show = () => rows.forEach(({ text, slider }, k) => {
      const percent = `${state.weights[k] / 10}%`;
      slider.value = state.weights[k];
      slider.setAttribute("aria-valuetext", percent);
      text.textContent = `Share of ${queries[k]}: ${percent}`;
      bar.children[k].style.flexGrow = state.weights[k];
    });
    show();
    return queries.length > 1 ? [bar, ...rows.map((row) => row.element)] : [];
  };
  const controls = () => {
    const rebuild = () => {
      controls();
      changed();
      keep();
    };
    const options = Object.entries(ABOUT).filter(([name]) => name !== "plan" || opening.plan);
    const abouts = options.map(([name, says]) => {
      const button = made("input", { type: "radio", name: "about", value: name, checked: name === state.about });
      button.addEventListener("change", () => {
        state.about = name;
        rebuild();
        document.querySelector("input[name=about]:checked").focus();
      });
      return made("label", {}, button, says);
    });
    const chooser = made("div", { class: "choices", role: "radiogroup", "aria-label": "What is released" }, ...abouts);
    const parts = {
      mechanism: () => [choice("kind", KINDS, rebuild), ...KINDS[state.kind].fields.map(field)],
      guarantee: () => [choice("promise", PROMISES, rebuild), ...PROMISES[state.promise].fields.map(field)],
      plan: () => [field("budget"), ...split()],
    };
    const held = document.activeElement?.id;
    $("released").replaceChildren($("released").firstElementChild, chooser, ...parts[state.about]());
    $("looked").replaceChildren($("looked").firstElementChild, ...["level", "prior", "delta"].map(field));
    for (const name of Object.keys(FIELDS)) if ($(`${name}-slider`)) spoken(name);
    if (held && $(held)) $(held).focus();
  };
  const start = async () => {
    opening = await (await fetch("/opening")).json();
    if (opening.plan) {
      FIELDS.budget.from = Math.min(FIELDS.budget.from, opening.plan.rho / 10);
      FIELDS.budget.to = Math.max(FIELDS.budget.to, opening.plan.rho * 10);
      $("title").textContent = `What could an attacker find out from “${opening.plan.name}”?`;
      $("eyebrow").textContent = `Neyman explorer · ${opening.receipt ? "receipt" : "plan"} ${opening.file}`;
    }
    if (opening.problem) {
      notice("problem", made("div", { class: "notice bad" }, made("p", {}, `${opening.file}: ${opening.problem}`)));
    }
    now = location.hash.slice(1);
    state = stateOf(now);
    now = fragment();
    controls();
    changed();
    tools();
    if (opening.plan) {
      const mine = { about: "plan", rho: null, weights: opening.plan.weights };
      own.tables = (await ask({ ask: "tables", ...mine }, undefined, `${me}-own`)).answer;
      own.curve = (await ask({ ask: "curve", ...mine, level: state.level, delta: state.delta }, undefined, `${me}-own`)).answer?.points;
      draw();
    }
    await checks();
  };

  $("undo").addEventListener("click", () => move(past, future));
  $("redo").addEventListener("click", () => move(future, past));
  $("reset").addEventListener("click", () => {
    state = firsts();
    controls();
    changed();
    keep();
  });
  $("link").addEventListener("click", () => copied($("link"), location.href));
  $("copy-python").addEventListener("click", () => copied($("copy-python"), $("python").textContent));
  $("copy-toml").addEventListener("click", () => copied($("copy-toml"), $("toml").textContent));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.type === "number") return;
    const key = event.key.toLowerCase();
    if (key === "z" || key === "y") {
      event.preventDefault();
      if (key === "z" && !event.shiftKey) move(past, future);
      else move(future, past);
    }
  });
  window.addEventListener("hashchange", () => {
    const next = location.hash.slice(1);
    if (next === now) return;
    past.push(now);
    state = stateOf(next);
    now = fragment();
    controls();
    changed();
    tools();
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    draw();
  });
  start().catch(() => reached(0));
})();
