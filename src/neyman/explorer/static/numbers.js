// Closed forms: the normal law, and what an attacker learns of the releases that have one.
// Each number that is shown is raised by MARGIN, far above the rounding in here.
"use strict";
const numbers = (() => {
  const MARGIN = 1e-9, ERROR = 1e-12, LEAST = 2 * Number.MIN_VALUE;
  const ROOT = Math.sqrt(2 * Math.PI);
  const density = (x) => Math.exp((-x * x) / 2) / ROOT;

  // P(Z > x) / density(x) for x >= 0: Laplace's continued fraction, or the series about 0.
  const mills = (x) => {
    if (x < 2.5) return 0.5 / density(x) - series(x);
    let tail = x;
    for (let k = x < 5 ? 160 : 60; k > 0; k--) tail = x + k / tail;
    return 1 / tail;
  };
  // (Phi(x) - 1/2) / density(x) = x + x^3/3 + x^5/15 + ...
  const series = (x) => {
    let term = x, sum = x;
    for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum); k += 2) sum += term *= (x * x) / k;
    return sum;
  };
  const cdf = (x) => (x > 0 ? 1 - density(x) * mills(x) : density(x) * mills(-x));
  const logCdf = (x) =>
    x < -5 ? (-x * x) / 2 - Math.log(ROOT) + Math.log(mills(-x)) : Math.log(cdf(x));
  // Newton on log Phi, which is concave: from the left it climbs to the root and never passes it.
  const quantile = (p) => {
    if (p > 0.5) return -quantile(1 - p);
    const goal = Math.log(p);
    let x = -Math.sqrt(-2 * goal);
    for (let k = 0; k < 60; k++) {
      const step = (goal - logCdf(x)) * mills(Math.max(-x, 0));
      x += step;
      if (Math.abs(step) <= 1e-15 * (1 + Math.abs(x))) break;
    }
    return Math.min(x, 0);
  };

  // The smallest x in [0, inf) at which a falling function is at most the goal.
  const least = (falls, goal) => {
    let low = 0, high = 1;
    if (falls(0) <= goal) return 0;
    while (falls(high) > goal) {
      if (high > 1e9) return Infinity;
      high *= 2;
    }
    for (let k = 0; k < 100 && high - low > 1e-13 * high; k++) {
      const middle = (low + high) / 2;
      if (falls(middle) > goal) low = middle;
      else high = middle;
    }
    return high;
  };

  const up = (x) => x * (1 + MARGIN);
  // What was given, or follows from it in a few digits, is exact: 1 is not to become 1.01.
  const exact = (x) => (String(x).length > 12 ? up(x) : x);
  const share = (x) => Math.min(1, Math.max(0, up(x)));

  // A curve of bounds: power at a level, delta at an epsilon, epsilon at a delta.
  const curve = (power, delta, more) => ({
    power: (level) => Math.max(level, share(power(level))),
    delta: (epsilon) => share(delta(epsilon)),
    epsilon: (at) => up(least(delta, at)),
    ...more,
  });

  const gaussian = (mu) => {
    const power = (a) => (a <= 0 ? 0 : a >= 1 ? 1 : cdf(quantile(a) + mu));
    // Phi(-a) - e^eps Phi(-b), a = eps/mu - mu/2, b = a + mu; e^eps density(b) = density(a).
    const delta = (epsilon) => {
      const a = epsilon / mu - mu / 2, b = a + mu;
      // What cancels may be off by ERROR of what stands there, so that much is added.
      if (a >= 0) return density(a) * (mills(a) * (1 + ERROR) - mills(b)) + LEAST;
      return cdf(-a) * (1 + ERROR) - density(a) * mills(b);
    };
    return curve(power, delta, { mu: exact(mu), rho: exact((mu * mu) / 2) });
  };

  const laplace = (loss) => {
    const power = (a) => {
      if (a <= Math.exp(-loss) / 2) return Math.exp(loss) * a;
      return a <= 0.5 ? 1 - Math.exp(-loss) / (4 * a) : 1 - Math.exp(-loss) * (1 - a);
    };
    const delta = (epsilon) => (epsilon >= loss ? 0 : -Math.expm1((epsilon - loss) / 2));
    return curve(power, delta, { pure: exact(loss) });
  };

  // A polygon through (level, power) points from (0, y) to (1, 1).
  const polygon = (points, pure) => {
    const power = (a) => {
      for (let k = 1; k < points.length; k++) {
        const [x0, y0] = points[k - 1], [x1, y1] = points[k];
        if (a <= x1 && x1 > x0) return y0 + ((y1 - y0) * (a - x0)) / (x1 - x0);
      }
      return 1;
    };
    const delta = (epsilon) =>
      Math.max(0, ...points.map(([x, y]) => (x === 0 ? y : y - Math.exp(epsilon) * x)));
    return curve(power, delta, { corners: points, ...(pure === undefined ? {} : { pure: exact(pure) }) });
  };
  const approximate = (epsilon, delta) => {
    const x = (1 - delta) / (1 + Math.exp(epsilon));
    const points = [[0, delta], [x, 1 - x], [1 - delta, 1], [1, 1]];
    const found = polygon(points);
    return { ...found, epsilon: (at) => (at === delta ? epsilon : found.epsilon(at)) };
  };
  const response = (epsilon, categories) => {
    const whole = Math.exp(epsilon) + categories - 1;
    const lied = 1 / whole, told = 1 - (categories - 1) / whole;
    return polygon([[0, 0], [lied, told], [1 - told, 1 - lied], [1, 1]], epsilon);
  };

  const posterior = (power, level, prior) => {
    const right = power * prior;
    return right + level * (1 - prior) === 0 ? 1 : right / (right + level * (1 - prior));
  };

  return { gaussian, laplace, approximate, response, posterior };
})();
