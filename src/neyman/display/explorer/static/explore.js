// The explorer: a state, moved by controls and kept in the address. The server answers what it means.
"use strict";
(() => {
  const { $, element, grid, copied, notice, checks } = notices;
  const { FIELDS, KINDS, PROMISES, ABOUT, inRange, place, valueAt, text, spoken } = controls;
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
        link.save(next, state);
      }
      tools();
    }, 200);
  };
  const move = (from, to) => {
    if (!from.length) return;
    to.push(now);
    now = from.pop();
    state = stateOf(now);
    link.save(now, state);
    build();
    changed();
    tools();
  };
  const tools = () => {
    $("undo").disabled = !past.length;
    $("redo").disabled = !future.length;
  };

  // ---- what the page asks ---------------------------------------------------------------------

  const subject = () => {
    const { about } = state;
    const pick = (fields) => Object.fromEntries(fields.map((name) => [name, state[name]]));
    if (about === "mechanism") return { about, kind: state.kind, ...pick(KINDS[state.kind].fields) };
    if (about === "guarantee") return { about, promise: state.promise, ...pick(PROMISES[state.promise].fields) };
    return { about, rho: state.budget, weights: state.weights };
  };
  // In this order. A bound for all levels comes first; where it is not the closest, that of the level follows.
  const questions = () => {
    const whole = subject(), planned = state.about === "plan", { level, prior, delta } = state;
    const asked = { risk: { ask: "risk", ...whole, level, prior, delta } };
    if (planned) asked.tables = { ask: "tables", ...whole };
    asked.profile = { ask: "profile", ...whole, delta };
    if (answers.risk?.answer?.exact === false) asked.closer = { ...asked.risk, ask: "closer" };
    if (planned) asked.scenarios = { ask: "scenarios", ...whole, level };
    asked.attacks = { ask: "attacks", ...whole, level };
    return asked;
  };

  // ---- asking the server ----------------------------------------------------------------------

  const answers = {};
  let counted = 0, asking = null;
  const ask = async (question, signal) => {
    const [status, said] = await link.ask(counted, question, signal);
    reached(status);
    return said;
  };
  // Every question whose answer is missing, one after the other, always with the newest settings. While a
  // slider moves, each answer that comes is drawn; one that takes longer than PATIENCE is given up.
  const PATIENCE = 400; // milliseconds
  const work = async () => {
    const control = new AbortController(), { signal } = control;
    try {
      for (;;) {
        const next = Object.entries(questions()).find(([name, question]) => answers[name]?.key !== JSON.stringify(question));
        if (!next) break;
        const [name, question] = next, key = JSON.stringify(question);
        asking = { control, name, key };
        counted++;
        const said = await ask(question, signal);
        if (signal.aborted) return;
        if (said.outdated) continue;
        answers[name] = { key, ...said };
        draw();
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      reached(0);
    }
    asking = null;
  };
  const refresh = () => {
    const slow = asking;
    if (!slow) work();
    else if (JSON.stringify(questions()[slow.name]) !== slow.key) {
      setTimeout(() => {
        if (asking !== slow) return;
        slow.control.abort();
        work();
      }, PATIENCE);
    }
  };
  const answered = (name) => {
    const wanted = JSON.stringify(questions()[name]), answer = answers[name];
    return { late: !answer || answer.key !== wanted, ...answer };
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
        ? link.gone
        : "The explorer was restarted and does not know this page.";
      notice("server", element("div", { class: "notice bad" }, element("p", {}, element("strong", {}, what)), element("p", {}, link.again)));
    }
    // Nothing on the screen can be computed any more: all of it is faded.
    $("body").classList.toggle("stopped", !reachable);
    draw();
  };
  link.watch(reached);

  // ---- drawing --------------------------------------------------------------------------------

  let speaking;
  const draw = () => {
    const risk = answered("risk"), closer = answered("closer"), profile = answered("profile");
    const closest = closer.late || closer.problem ? null : closer.answer;
    const shown = closest ?? risk.answer;
    const late = risk.late || (!closest && !closer.problem && risk.answer?.exact === false);
    $("words").classList.toggle("late", late);
    $("figures").classList.toggle("late", late);
    $("tradeoff").classList.toggle("late", risk.late);
    $("posterior").classList.toggle("late", late);
    $("before-name").hidden = !shown?.before.length;
    $("profile").classList.toggle("late", profile.late);
    const attacks = answered("attacks");
    $("attacks-body").classList.toggle("late", attacks.late);
    if (attacks.answer) {
      const { sentences, conditions, scale } = attacks.answer;
      $("attacks-body").replaceChildren(
        element("ul", {}, ...sentences.map((each) => element("li", {}, each))),
        element("p", { class: "note" }, conditions), element("p", {}, scale));
    } else if (attacks.problem) {
      $("attacks-body").textContent = attacks.problem;
    }
    const problem = [risk, profile].find((each) => each.problem && !each.late)?.problem;
    if (problem) $("how").textContent = problem;
    else if (!reachable) $("how").textContent = "The last answer before the explorer stopped.";
    else $("how").textContent = `${shown?.how ?? ""} ${closer.problem && !closer.late ? "Tighter bounds take too long." : ""}`;
    if (!shown) {
      $("sentence").textContent = problem ? "No answer for these settings." : "Computing …";
      for (const name of ["finding", "figures", "tradeoff", "posterior", "profile"]) $(name).replaceChildren();
    } else {
      $("sentence").textContent = shown.sentence;
      $("finding").textContent = shown.finding;
      $("python").textContent = shown.python;
      clearTimeout(speaking);
      speaking = setTimeout(() => ($("spoken").textContent = `${shown.sentence} ${shown.finding}`), 700);
      $("figures").replaceChildren(...shown.figures.map(([what, value, note]) =>
        element("div", {}, element("dt", {}, what), element("dd", {}, value, element("small", {}, note)))));
      charts.tradeoff($("tradeoff"), shown.tradeoff, {
        lines: shown.before.length ? [{ kind: "before", points: shown.before }] : [],
        on: { pick: (a) => set("level", valueAt(FIELDS.level, place(FIELDS.level, Math.min(0.5, Math.max(0.0001, a))))), picked: keep },
      });
      charts.posterior($("posterior"), shown.posterior);
      if (profile.answer) charts.profile($("profile"), profile.answer.curve, profile.answer.least);
    }
    plan();
  };

  // ---- of a plan ------------------------------------------------------------------------------

  const plan = () => {
    const shown = state.about === "plan";
    for (const name of ["tables", "scenarios", "toml-part", "beside-figure"]) $(name).hidden = !shown;
    if (!shown) return;
    const tables = answered("tables"), scenarios = answered("scenarios");
    for (const name of ["tables-body", "toml"]) $(name).classList.toggle("late", tables.late);
    for (const name of ["scenarios-body", "beside"]) $(name).classList.toggle("late", scenarios.late);
    if (tables.answer) {
      const { head, rows, note, toml } = tables.answer;
      const below = note ? [element("p", { class: "note" }, note)] : [];
      $("tables-body").replaceChildren(grid(head, rows, "Margins of error of the tables"), ...below);
      $("toml").textContent = toml;
    } else if (tables.problem) {
      $("tables-body").textContent = tables.problem;
    }
    if (scenarios.answer) {
      const { head, rows, curves, last } = scenarios.answer;
      $("scenarios-body").replaceChildren(grid(head, rows, "Attributes side by side"));
      if (curves.length) charts.beside($("beside"), curves, last);
    } else if (scenarios.problem) {
      $("scenarios-body").textContent = scenarios.problem;
    }
  };

  // ---- controls -------------------------------------------------------------------------------

  const set = (name, value) => {
    state[name] = value;
    const shown = $(`${name}-value`);
    if (shown) {
      if (root.activeElement !== shown) shown.value = value;
      $(`${name}-slider`).value = place(FIELDS[name], value);
      speak(name);
    }
    changed();
  };
  const speak = (name) => $(`${name}-slider`).setAttribute("aria-valuetext", spoken(name, state[name] ?? opening.plan?.rho));
  const changed = () => {
    draw();
    refresh();
  };
  const field = (name) => {
    const each = FIELDS[name], value = state[name] ?? opening.plan.rho;
    const slider = element("input", {
      type: "range", id: `${name}-slider`, min: 0, max: 1000, step: 1, value: place(each, value), "aria-label": each.says,
    });
    const exact = element("input", {
      type: "number", id: `${name}-value`, min: each.from, max: each.to, step: each.whole ? 1 : "any", required: true,
      value: state[name] ?? Number(value.toPrecision(4)), "aria-describedby": `${name}-wrong`,
    });
    const wrong = element("p", { class: "wrong", id: `${name}-wrong` });
    slider.addEventListener("input", () => set(name, valueAt(each, Number(slider.value))));
    slider.addEventListener("change", keep);
    exact.addEventListener("input", () => {
      const good = exact.value !== "" && inRange(name, Number(exact.value));
      wrong.textContent = good ? "" : `Give ${each.whole ? "a whole number" : "a number"} from ${text(each.from)} to ${text(each.to)}.`;
      if (!good) return;
      set(name, Number(exact.value));
      keep();
    });
    const label = element("label", { for: `${name}-value` }, each.says);
    return element("div", { class: "field" }, element("div", {}, label, slider, exact), wrong);
  };
  const choice = (name, options, rebuild) => {
    const select = element("select", { id: name, "aria-label": name === "kind" ? "Mechanism" : "Guarantee" },
      ...Object.entries(options).map(([value, { says }]) => element("option", { value, selected: value === state[name] }, says)));
    select.addEventListener("change", () => {
      state[name] = select.value;
      rebuild();
    });
    return select;
  };
  const split = () => shares.table({
    queries: opening.plan.queries,
    weights: () => state.weights,
    move: (weights) => {
      state.weights = weights;
      changed();
    },
    moved: keep,
  });
  const build = () => {
    const rebuild = () => {
      build();
      changed();
      keep();
    };
    const options = Object.entries(ABOUT).filter(([name]) => name !== "plan" || opening.plan);
    const abouts = options.map(([name, says]) => {
      const button = element("input", { type: "radio", name: "about", value: name, checked: name === state.about });
      button.addEventListener("change", () => {
        state.about = name;
        rebuild();
        root.querySelector("input[name=about]:checked").focus();
      });
      return element("label", {}, button, says);
    });
    const chooser = element("div", { class: "choices", role: "radiogroup", "aria-label": "Release" }, ...abouts);
    const parts = {
      mechanism: () => [choice("kind", KINDS, rebuild), ...KINDS[state.kind].fields.map(field)],
      guarantee: () => [choice("promise", PROMISES, rebuild), ...PROMISES[state.promise].fields.map(field)],
      plan: () => [field("budget"), ...split()],
    };
    const held = root.activeElement?.id;
    $("released").replaceChildren($("released").firstElementChild, chooser, ...parts[state.about]());
    $("looked").replaceChildren($("looked").firstElementChild, ...["level", "prior", "delta"].map(field));
    for (const name of Object.keys(FIELDS)) if ($(`${name}-slider`)) speak(name);
    if (held && $(held)) $(held).focus();
  };
  const start = async () => {
    opening = await link.opening();
    if (opening.plan) {
      FIELDS.budget.from = Math.min(FIELDS.budget.from, opening.plan.rho / 10);
      FIELDS.budget.to = Math.max(FIELDS.budget.to, opening.plan.rho * 10);
      $("title").textContent = `What can an attacker learn from “${opening.plan.name}”?`;
      $("eyebrow").textContent = `Neyman explorer · ${opening.receipt ? "receipt" : "plan"} ${opening.file}`;
    }
    if (opening.problem) {
      notice("problem", element("div", { class: "notice bad" }, element("p", {}, `${opening.file}: ${opening.problem}`)));
    }
    now = link.settings();
    state = stateOf(now);
    now = fragment();
    build();
    changed();
    tools();
    await checks();
  };

  $("undo").addEventListener("click", () => move(past, future));
  $("redo").addEventListener("click", () => move(future, past));
  $("reset").addEventListener("click", () => {
    state = firsts();
    build();
    changed();
    keep();
  });
  $("link").hidden = !link.share;
  $("link").addEventListener("click", () => copied($("link"), link.share()));
  $("copy-python").addEventListener("click", () => copied($("copy-python"), $("python").textContent));
  $("copy-toml").addEventListener("click", () => copied($("copy-toml"), $("toml").textContent));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  root.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.type === "number") return;
    const key = event.key.toLowerCase();
    if (key === "z" || key === "y") {
      event.preventDefault();
      if (key === "z" && !event.shiftKey) move(past, future);
      else move(future, past);
    }
  });
  link.moved((next) => {
    if (next === now) return;
    past.push(now);
    state = stateOf(next);
    now = fragment();
    build();
    changed();
    tools();
  });
  link.resized(draw);
  start().catch(() => reached(0));
})();
