"""Independent references: mpmath sums over the outcomes of small pairs, no code of the library's.

A loss distribution is a dict {loss: P-mass}; its Q-mass is p e^-loss, and outcomes that only P has
are kept apart by the caller.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Law = dict[Any, Any]


def exact(x: Fraction | int | str | float) -> Any:
    """A rational as a 60-digit number; a float is taken as the binary number that it is."""
    x = Fraction(x)
    return mp.mpf(x.numerator) / x.denominator


def response(epsilon: Fraction, categories: int = 2) -> Law:
    """Randomized response, summed over its outcomes."""
    e = mp.exp(exact(epsilon))
    total = e + categories - 1
    law = {exact(epsilon): e / total, -exact(epsilon): 1 / total}
    if categories > 2:
        law[mp.mpf(0)] = (categories - 2) / total
    return law


def discrete_laplace(scale: Fraction, shift: int) -> Law:
    """Outcome by outcome; the geometric tails beyond either center are summed in closed form."""
    b = exact(1 / Fraction(scale))
    r = mp.exp(-b)
    law: Law = defaultdict(mp.mpf)
    law[shift * b] += 1 / (1 + r)  # x <= 0
    law[-shift * b] += r**shift / (1 + r)  # x >= shift
    for x in range(1, shift):
        law[(shift - 2 * x) * b] += (1 - r) / (1 + r) * r**x
    return dict(law)


def discrete_gaussian(sigma_squared: Fraction, shift: int, reach: int = 45) -> Law:
    """Outcome by outcome within ``reach`` sigma; what is left out is below e^{-reach^2 / 2}."""
    s2 = exact(sigma_squared)
    edge = int(reach * mp.sqrt(s2)) + shift + 2
    weight = {x: mp.exp(-mp.mpf(x * x) / (2 * s2)) for x in range(-edge, edge + 1)}
    total = mp.fsum(weight.values())
    return {exact(shift * (shift - 2 * x)) / (2 * s2): w / total for x, w in weight.items()}


def together(*laws: Law) -> Law:
    """Independent losses added, by full enumeration."""
    result: Law = {mp.mpf(0): mp.mpf(1)}
    for law in laws:
        product: Law = defaultdict(mp.mpf)
        for a, p in result.items():
            for b, q in law.items():
                product[a + b] += p * q
        result = dict(product)
    return result


def delta(law: Law, epsilon: float) -> Any:
    e = mp.mpf(epsilon)
    return mp.fsum(p * -mp.expm1(e - v) for v, p in law.items() if v > e)


def power(law: Law, level: float) -> Any:
    """Neyman and Pearson: outcomes in falling order of their loss, the last one by lot."""
    result = spent = mp.mpf(0)
    for v in sorted(law, reverse=True):
        q = law[v] * mp.exp(-v)
        if spent + q >= level:
            return result + law[v] * (mp.mpf(level) - spent) / q
        result, spent = result + law[v], spent + q
    return mp.mpf(1)


def renyi(law: Law, order: float) -> Any:
    if order == 1:
        return mp.fsum(p * v for v, p in law.items())
    a = mp.mpf(order) - 1
    return mp.log(mp.fsum(p * mp.exp(a * v) for v, p in law.items())) / a


def pbdp(law: Law, epsilon: float) -> Any:
    """sup { power : power > e^epsilon level }, along the corners and the last crossing."""
    e, result, spent, best = mp.exp(mp.mpf(epsilon)), mp.mpf(0), mp.mpf(0), mp.mpf(0)
    for v in sorted(law, reverse=True):
        p, q = law[v], law[v] * mp.exp(-v)
        if result + p <= e * (spent + q):
            room = result - e * spent
            return max(best, result + p * min(room / (e * q - p), 1)) if room > 0 else best
        result, spent = result + p, spent + q
        best = result
    return best


def quantile(log_p: Any) -> Any:
    """z with Phi(z) = p, by Newton steps on log Phi."""
    z = -mp.sqrt(-2 * log_p) if log_p < -2 else mp.mpf(0)
    for _ in range(80):
        tail = mp.erfc(-z / mp.sqrt(2)) / 2
        step = (mp.log(tail) - log_p) * tail / mp.npdf(z)
        z -= step
        if abs(step) < mp.mpf(10) ** -40 * (1 + abs(z)):
            break
    return z


def mu(law: Law) -> Any:
    """Largest z(power) - z(level) over the corners; each tail is summed from its own end."""
    places = sorted(law, reverse=True)
    best = mp.mpf(0)
    p_above = [mp.mpf(0)]
    q_above = [mp.mpf(0)]
    for v in places:
        p_above.append(p_above[-1] + law[v])
        q_above.append(q_above[-1] + law[v] * mp.exp(-v))
    p_below, q_below = [mp.mpf(0)], [mp.mpf(0)]
    for v in reversed(places):
        p_below.append(p_below[-1] + law[v])
        q_below.append(q_below[-1] + law[v] * mp.exp(-v))
    n = len(places)
    for k in range(1, n):

        def z(above: Any, below: Any) -> Any:
            return quantile(mp.log(above)) if above < 0.5 else -quantile(mp.log(below))

        best = max(best, z(p_above[k], p_below[n - k]) - z(q_above[k], q_below[n - k]))
    return best


def gaussian_delta(shift: Any, epsilon: Any) -> Any:
    m, e = mp.mpf(shift), mp.mpf(epsilon)
    root = mp.sqrt(2)
    return (mp.erfc((e / m - m / 2) / root) - mp.exp(e) * mp.erfc((e / m + m / 2) / root)) / 2


def gaussian_power(shift: Any, level: float) -> Any:
    z = quantile(mp.log(mp.mpf(level)))
    return mp.erfc(-(z + mp.mpf(shift)) / mp.sqrt(2)) / 2


def gaussian_miss(shift: Any, level: float) -> Any:
    """1 - power, with its own digits."""
    z = quantile(mp.log(mp.mpf(level)))
    return mp.erfc((z + mp.mpf(shift)) / mp.sqrt(2)) / 2


def sampled_delta(shift: Any, rate: Any, epsilon: Any, removed: bool) -> Any:
    """One Gaussian step on a Poisson sample, in either order, at any epsilon."""
    m, q, t = mp.mpf(shift), mp.mpf(rate), mp.exp(mp.mpf(epsilon))
    ratio = t if removed else 1 / t
    if ratio <= 1 - q:
        return 1 - t if removed else mp.mpf(0)
    y, side = mp.log((ratio - 1 + q) / q) / m + m / 2, -1 if removed else 1
    plain = mp.ncdf(side * y)
    mixed = (1 - q) * plain + q * mp.ncdf(side * (y - m))
    return mixed - t * plain if removed else plain - t * mixed


def sampled_law(shift: float, rate: float, removed: bool) -> tuple[Any, Any]:
    """Losses and P-masses of a sampled Gaussian step, at the nodes of a trapezoid sum over y."""
    m, q = np.longdouble(shift), np.longdouble(rate)
    y = np.arange(-15, 45, np.longdouble(0.1))
    log_r = np.log1p(q * np.expm1(m * y - m * m / 2))
    mass = np.exp(-y * y / 2 + (log_r if removed else 0)) * np.longdouble(0.1)
    return (log_r if removed else -log_r), mass / np.sqrt(2 * np.arccos(np.longdouble(-1)))


def log_on_a_line(loss: Any, mass: Any, count: int, x: float, tail: bool = False) -> float:
    """log delta(x), or log P(L > x), of a sum of ``count`` losses: inversion in long doubles.

    The integral of e^{K(z) - z x} / (z (z + 1)), or / z, over the line through its saddle.
    """
    loss, mass = (np.array([np.longdouble(str(v)) for v in side]) for side in (loss, mass))

    def exponent(z: Any) -> Any:
        k = np.log1p(np.expm1(np.multiply.outer(z, loss)) @ mass)
        return count * k - z * x - np.log(z) - (0 if tail else np.log1p(z))

    grid = np.geomspace(np.longdouble(1e-3), 1e3, 400)
    with np.errstate(all="ignore"):
        c = grid[np.nanargmin(exponent(grid))]
    h, top, total = c / 40, exponent(c), -0.5
    for first in range(0, 40_000, 250):
        terms = np.exp(exponent(c + 1j * h * np.arange(first, first + 250)) - top).real
        total += terms.sum()
        if np.abs(terms).max() < 1e-17:
            break
    else:
        raise AssertionError("the line is too short")
    total *= h / np.arccos(np.longdouble(-1))
    return float(np.log(total) + top)


def ends(bound: Any) -> tuple[Any, Any]:
    return (bound.lower, bound.upper) if hasattr(bound, "lower") else bound


def holds(bound: Any, truth: Any, width: float = 2e-8) -> bool:
    """Whether the interval contains the truth, and is at most so wide, relative to its size."""
    low, high = map(mp.mpf, ends(bound))
    return low <= truth <= high and high - low <= width * abs(high) + 1e-9


def meet(one: Any, other: Any, slack: float = 0.0) -> bool:
    """Whether two intervals have a number in common."""
    (low, high), (below, above) = ends(one), ends(other)
    return low <= above + slack and below <= high + slack
