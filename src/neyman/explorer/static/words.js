// Numbers as digits and guarantees in sentences, as neyman.semantics.digits and .words have them:
// exact fractions of the shortest decimal, and no rounded number favors the release.
"use strict";
const words = (() => {
  const NAMES = {};
  for (const [size, name] of [[6, "million"], [9, "billion"], [12, "trillion"]]) {
    NAMES[size] = `a ${name}`;
    NAMES[size + 1] = `10 ${name}`;
    NAMES[size + 2] = `100 ${name}`;
  }
  const raised = (n) => String(n).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  const ten = (n) => 10n ** BigInt(n);

  const fraction = (x) => {
    if (Array.isArray(x)) return x;
    const [, sign, whole, part = "", power = "0"] = /^(-?)(\d+)\.?(\d*)(?:e([+-]\d+))?$/.exec(String(x));
    const size = Number(power) - part.length;
    const digits = BigInt(sign + whole + part);
    return size >= 0 ? [digits * ten(size), 1n] : [digits, ten(-size)];
  };
  const times = ([a, b], [c, d]) => [a * c, b * d];
  const plus = ([a, b], [c, d]) => [a * d + c * b, b * d];
  const less = ([a, b], [c, d]) => a * d < c * b;
  const same = (x, y) => !less(x, y) && !less(y, x);
  const one = [1n, 1n];
  const rest = ([a, b]) => [b - a, b];
  const floor = ([a, b]) => (a >= 0n ? a / b : -((-a + b - 1n) / b));
  const rounded = (x, up) => (up ? -floor([-x[0], x[1]]) : floor(x));
  const magnitude = ([a, b]) => {
    const top = a < 0n ? -a : a;
    const size = String(top).length - String(b).length;
    return (size >= 0 ? top >= b * ten(size) : top * ten(-size) >= b) ? size : size - 1;
  };
  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
  const plain = (x, places, up) => {
    const whole = rounded([x[0] * ten(places), x[1]], up);
    const digits = String(whole < 0n ? -whole : whole).padStart(places + 1, "0");
    const front = digits.slice(0, digits.length - places);
    const back = digits.slice(digits.length - places).replace(/0+$/, "");
    return (whole < 0n ? "−" : "") + grouped(front) + (back ? `.${back}` : "");
  };

  const number = (x, digits = 3, up = true) => {
    if (x === Infinity || x === "inf") return "∞";
    const exact = fraction(x);
    if (exact[0] === 0n) return "0";
    let size = magnitude(exact);
    if (size > -5 && size < 15) return plain(exact, Math.max(0, digits - 1 - size), up);
    const scaled = size > 0 ? [exact[0], exact[1] * ten(size)] : [exact[0] * ten(-size), exact[1]];
    let mantissa = plain(scaled, digits - 1, up);
    if (mantissa === "10") [mantissa, size] = ["1", size + 1];
    return `${mantissa} × 10${raised(size)}`;
  };
  const delta = (x) => number(x).replace(/^1 × /, "");
  const percent = (x, up = true) => {
    const exact = fraction(x);
    const other = rest(exact);
    const gap = times(less(exact, other) ? exact : other, [100n, 1n]);
    if (gap[0] === 0n) return exact[0] === 0n ? "0%" : "100%";
    const places = Math.min(9, Math.max(1, 1 - magnitude(gap)));
    return plain(times(exact, [100n, 1n]), places, up) + "%";
  };

  const cases = (x, size) => rounded([x[0] * ten(size), x[1]], true);
  const outOf = (size) =>
    size < 6 ? `of ${grouped(String(ten(size)))}` : NAMES[size] ? `in ${NAMES[size]}` : `in 10${raised(size)}`;
  const counted = (x, size) => {
    const found = cases(x, size);
    return found === 1n ? "1 case" : `${grouped(String(found))} cases`;
  };
  const you = /^(?:u(?:ni(?!n|m|d)|[st](?=[aei])|biq|ran[iu]|rolog|kr|ku)|eu|ewe|onc?e\b)/i;
  const article = (noun) => {
    const first = /^[\p{L}\p{N}_]*/u.exec(noun)[0];
    if (/^\p{N}+$/u.test(first)) return first[0] === "8" || ["11", "18"].includes(first) ? "an" : "a";
    const letters = first.length > 1 || noun.length === 1;
    if (letters && first === first.toUpperCase() && first !== first.toLowerCase()) {
      return /^[AEFHILMNORSX]/.test(first) ? "an" : "a";
    }
    if (you.test(first)) return "a";
    return /^(?:[aeiou]|hour|hono|hones|heir)/i.test(first) ? "an" : "a";
  };

  // A level cut to four digits: power at a smaller level is no greater.
  const given = (level) => {
    const a = fraction(level);
    const size = magnitude(a) - 3;
    const unit = size >= 0 ? [ten(size), 1n] : [1n, ten(-size)];
    return times([floor([a[0] * unit[1], a[1] * unit[0]]), 1n], unit);
  };
  const power = (level, found, subject = "person") => {
    const a = given(level), b = fraction(found);
    let size = 2;
    while ((a[0] * ten(size)) % a[1] !== 0n) size++;
    let fine = 2;
    while (less(times(b, [ten(fine) * 21n, 20n]), [cases(b, fine), 1n])) fine++;
    while (less(b, one) && fine < 4 && cases(b, fine) === ten(fine)) fine++;
    const both = Math.max(size, fine);
    let of = "", tells;
    if (both > 4 && cases(b, both) > 1000n) {
      of = ` ${outOf(size)}`;
      tells = `${grouped(String(cases(b, fine)))} ${outOf(fine)}`;
    } else {
      size = both;
      tells = grouped(String(cases(b, both)));
    }
    tells = `finds out in at most ${tells}`;
    if (cases(b, fine) === ten(fine)) tells = "may find out every time";
    else if (same(a, b)) tells = "finds out just as rarely";
    return (
      `Where a claim about ${article(subject)} ${subject} is false, the best test says otherwise ` +
      `in ${counted(a, size)} ${outOf(size)}; where it is true, it ${tells}. ` +
      `Guessing finds ${grouped(String(cases(a, size)))}${of}.`
    );
  };

  const posterior = (level, found, prior) => {
    const p = fraction(prior);
    const right = times(fraction(found), p);
    const all = plus(right, times(fraction(level), rest(p)));
    return all[0] === 0n ? p : [right[0] * all[1], right[1] * all[0]];
  };
  const odds = (prior) => {
    const [n, d] = fraction(prior);
    if (2n * n === d) return "at even odds beforehand";
    if (d % n === 0n) return `where 1 in ${grouped(String(d / n))} such claims is true beforehand`;
    return `where ${percent(prior)} of such claims are true beforehand`;
  };
  const finding = (level, found, prior) => {
    const right = percent(posterior(level, found, prior));
    const text = `${odds(prior)}, a finding of this test is right at most ${right} of the time.`;
    return text[0].toUpperCase() + text.slice(1);
  };

  return { number, percent, delta, power, posterior, finding };
})();
