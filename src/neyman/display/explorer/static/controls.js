// What can be moved, and how far.
"use strict";
const controls = (() => {
  const FIELDS = {
    sigma: { says: "Noise scale σ (sensitivity 1)", from: 0.1, to: 200, scale: "log", first: 2 },
    scale: { says: "Noise scale b (sensitivity 1)", from: 0.1, to: 200, scale: "log", first: 1 },
    loss: { says: "Epsilon per response", from: 0.01, to: 12, scale: "log", first: 1 },
    categories: { says: "Number of categories", from: 2, to: 1000, scale: "log", whole: true, first: 2 },
    rate: { says: "Sampling rate per record", from: 0.00001, to: 1, scale: "log", first: 0.01 },
    steps: { says: "Number of steps", from: 1, to: 1000000, scale: "log", whole: true, first: 1 },
    epsilon: { says: "Epsilon", from: 0.01, to: 20, scale: "log", first: 1 },
    chance: { says: "Delta of the guarantee", from: 1e-12, to: 0.1, scale: "log", first: 1e-6 },
    mu: { says: "Mu (GDP)", from: 0.01, to: 10, scale: "log", first: 1 },
    rho: { says: "Rho (zCDP)", from: 0.00001, to: 20, scale: "log", first: 0.5 },
    budget: { says: "Total privacy budget ρ (zCDP)", from: 0.00001, to: 20, scale: "log", first: null },
    level: { says: "False positive rate (level)", from: 0.0001, to: 0.5, scale: "log", first: 0.05 },
    prior: { says: "Prior probability of the claim", from: 0.001, to: 0.999, scale: "odds", first: 0.5 },
    delta: { says: "Delta at which to report epsilon", from: 1e-15, to: 0.1, scale: "log", first: 1e-6 },
  };
  const KINDS = {
    gaussian: { says: "Gaussian noise", fields: ["sigma", "steps"] },
    laplace: { says: "Laplace noise", fields: ["scale", "steps"] },
    discrete: { says: "Discrete Gaussian noise", fields: ["sigma", "steps"] },
    response: { says: "Randomized response", fields: ["loss", "categories", "steps"] },
    sampled: { says: "DP-SGD: Gaussian noise on random batches", fields: ["sigma", "rate", "steps"] },
  };
  const PROMISES = {
    approximate: { says: "(epsilon, delta)", fields: ["epsilon", "chance"] },
    gdp: { says: "mu: Gaussian differential privacy", fields: ["mu"] },
    zcdp: { says: "rho: zCDP", fields: ["rho"] },
  };
  const ABOUT = { mechanism: "Mechanism", guarantee: "Guarantee", plan: "Plan" };

  const inRange = (name, value) => {
    const { from, to, whole } = FIELDS[name];
    return Number.isFinite(value) && value >= from && value <= to && (!whole || Number.isInteger(value));
  };
  const stretch = {
    log: { to: (x) => Math.log(x), from: (y) => Math.exp(y) },
    odds: { to: (x) => Math.log(x / (1 - x)), from: (y) => 1 / (1 + Math.exp(-y)) },
  };
  const place = (field, value) => {
    const { to } = stretch[field.scale];
    return Math.round((1000 * (to(value) - to(field.from))) / (to(field.to) - to(field.from)));
  };
  const valueAt = (field, position) => {
    const { to, from } = stretch[field.scale];
    const exact = from(to(field.from) + (position / 1000) * (to(field.to) - to(field.from)));
    const short = field.whole ? Math.round(Number(exact.toPrecision(3))) : Number(exact.toPrecision(2 + (exact >= 0.1)));
    return Math.min(field.to, Math.max(field.from, short));
  };

  // One share moves, and the others give or take in proportion; thousandths that add up to 1000.
  const shared = (weights, moved, wanted) => {
    const rest = 1000 - wanted, before = 1000 - weights[moved];
    const exact = weights.map((w, k) => (k === moved ? wanted : (w * rest) / before));
    const whole = exact.map((w) => Math.max(1, Math.floor(w)));
    const order = exact.map((_, k) => k).filter((k) => k !== moved).sort((a, b) => exact[b] - whole[b] - (exact[a] - whole[a]));
    let missing = 1000 - whole.reduce((a, b) => a + b);
    for (let k = 0; missing !== 0; k = (k + 1) % order.length) {
      const change = Math.sign(missing);
      if (whole[order[k]] + change < 1) continue;
      whole[order[k]] += change;
      missing -= change;
    }
    return whole;
  };
  // A number as a reader types it.
  const text = (x) => (x < 1e-4 ? String(x) : x.toLocaleString("en-US", { maximumSignificantDigits: 6 }));
  const spoken = (name, x) => (["level", "prior"].includes(name) ? `${text(Number((100 * x).toPrecision(6)))}%` : text(x));

  return { FIELDS, KINDS, PROMISES, ABOUT, inRange, place, valueAt, shared, text, spoken };
})();
