"""The true digits of every row, by mpmath, independent of Neyman: writes `references.json`.

    python benchmarks/references.py [row ...]

The contour of `precise.py`, and where there is another way (a closed form, a finite sum), that way
instead or beside it. The digits that issue B gives are checked on the way.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mpmath as mp
import numpy as np
from cases import (
    CALIBRATED,
    CURVE,
    DELTA,
    DISCRETE,
    GAUSSIANS,
    LAPLACES,
    LEVELS,
    POISSON,
    SAMPLED,
    Poisson,
)
from precise import (
    AGREED,
    Lattice,
    Line,
    Number,
    Parts,
    Sampled,
    Steering,
    agreed,
    epsilon,
    gaussian,
    laplace,
    mpf,
    newton,
    number,
    power,
    rational,
)

WHERE = Path(__file__).with_name("references.json")


def training(case: Poisson, removed: bool) -> Parts:
    """A training run, one direction."""
    return [(Sampled(1 / number(case.sigma), number(case.rate), removed), case.steps)]


DIRECTIONS = {"remove": True, "add": False}


def poisson(case: Poisson) -> dict[str, str]:
    """Epsilon, both directions."""
    return {
        name: epsilon(training(case, removed), number(case.delta))
        for name, removed in DIRECTIONS.items()
    }


def many() -> dict[str, str]:
    """300 mechanisms, both directions."""
    smooth: Parts = [(gaussian(mp.fsum(1 / number(s) ** 2 for s in GAUSSIANS)), 1)]
    smooth += [(laplace(1 / number(b)), 1) for b in LAPLACES]
    return {
        name: epsilon(
            smooth + [(Sampled(1 / number(s), number(q), removed), 1) for s, q in SAMPLED],
            number(DELTA),
        )
        for name, removed in DIRECTIONS.items()
    }


def gaussian_epsilon(mu: Number, delta: Number) -> Number:
    """From the closed form of Balle and Wang 2018."""

    def excess(eps):
        first, second = mp.ncdf(mu / 2 - eps / mu), mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)
        return first - second - delta, -second

    return newton(excess, mu * mp.sqrt(-2 * mp.log(delta)) / 2)


def discrete() -> dict[str, str]:
    """72 discrete Gaussians: the contour over their lattices, and the closed form it comes to.

    K of each is the Gaussian's plus log (theta(z) / theta(0)), theta(z) = 1 + 2 sum over k > 0 of
    e^{-2 pi^2 sigma^2 k^2} cos(2 pi k z): less than 1e-100 off for |Im z| <= 12, where phi of the
    sum has fallen to e^-117, and it falls below e^-1900 at 50. Beyond, it has recurrences. By
    Wiener's lemma its mean square over the line is the probability that 72 pairs of draws all tie,
    about 1e-101, and a scan to 10^5 shows none above e^-1900.
    """
    result = epsilon([(Lattice(s), 1) for s in DISCRETE], number(DELTA))
    closed = gaussian_epsilon(mp.sqrt(mp.fsum(1 / rational(s**2) for s in DISCRETE)), number(DELTA))
    return {
        "both": agreed(mpf(result), closed, AGREED - 1),
        "log |phi| is below, from u = 50 to 1e5": f"{_recurrence(1e5):.0f}",
    }


def _recurrence(far: float) -> float:
    """A bound on log |phi| (untilted) of the 72 discrete Gaussians, scanned from 50 to far.

    By Poisson summation |phi| of one is within a factor of 2 of its nearest Gaussian bump.
    """
    u = np.arange(50.0, far, 0.02)
    total = np.full(u.shape, len(DISCRETE) * math.log(2))
    for sigma in DISCRETE:
        s = float(sigma**2)
        turn = u / s - math.tau * np.round(u / s / math.tau)
        total -= s * turn**2 / 2
    return float(total.max())


def response() -> str:
    """30 randomized responses of epsilon 0.1: a finite sum."""
    e, n, delta = mp.exp(mpf("0.1")), 30, number(DELTA)
    mass = [mp.binomial(n, k) * e**k / (1 + e) ** n for k in range(n + 1)]  # loss (2k - n) / 10
    for k in range(n, 0, -1):
        # Between the losses of k - 1 and k, delta = sum of P - e^eps * sum of Q over k and above.
        p = mp.fsum(mass[k:])
        q = mp.fsum(mass[j] * mp.exp(-mpf(2 * j - n) / 10) for j in range(k, n + 1))
        if p > delta and mp.log((p - delta) / q) >= mpf(2 * (k - 1) - n) / 10:
            return mp.nstr(mp.log((p - delta) / q), AGREED, strip_zeros=False)
    raise ArithmeticError("no epsilon")


def six() -> str:
    """6 discrete Gaussians of sigma 3: the mass of their sum by direct convolution."""
    variance, delta = 9, number(DELTA)
    one = [mp.exp(-mpf(x * x) / (2 * variance)) for x in range(-80, 81)]
    total = mp.fsum(one)
    single = np.array([x / total for x in one], object)
    mass = single
    for _ in range(5):
        mass = np.convolve(mass, single)
    center = len(mass) // 2 - 6  # index of the sum 0, where the noise is about (1, ..., 1)
    losses = [mpf(2 * (i - center) - 6) / (2 * variance) for i in range(len(mass))]
    p = q = mpf(0)
    for i in range(len(mass) - 1, 0, -1):
        p, q = p + mass[i], q + mass[i] * mp.exp(-losses[i])
        if p > delta and mp.log((p - delta) / q) >= losses[i - 1]:
            return mp.nstr(mp.log((p - delta) / q), AGREED, strip_zeros=False)
    raise ArithmeticError("no epsilon")


def mixed() -> str:
    """20 Laplace mechanisms of scale 10 and a Gaussian of sigma 5."""
    return epsilon([(laplace(mpf(1) / 10), 20), (gaussian(mpf(1) / 25), 1)], number(DELTA))


def curve() -> dict[str, dict[str, str]]:
    """Powers at some levels, both directions."""
    return {
        level: {
            name: power(training(CURVE, removed), number(level))
            for name, removed in DIRECTIONS.items()
        }
        for level in LEVELS
    }


def calibrated() -> dict[str, str]:
    """The sigma whose epsilon at delta is the one asked for; the removal is the worse direction."""
    goal, rate, steps = CALIBRATED
    delta = number(DELTA)

    def parts(sigma: Number, removed: bool = True) -> Parts:
        return [(Sampled(1 / sigma, number(rate), removed), steps)]

    low, high = 0.4, 40.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        rough = Steering(parts(mpf(middle))).start(float(mp.log(delta)), 0)
        low, high = (middle, high) if rough > float(goal) else (low, middle)
    answers = []
    steering = Steering(parts(mpf(low)))
    avoid = 0.0
    for _ in range(2):
        where = steering.place(float(goal), float(mp.log(delta)), 0, avoid)
        avoid = where[0]

        def excess(sigma, where=where):
            return mp.log(Line(parts(sigma), *where)("delta", number(goal))) - mp.log(delta)

        answers.append(mp.findroot(excess, (mpf(low), mpf(high)), solver="secant", tol=1e-80))
    sigma = agreed(*answers)
    add = epsilon(parts(mpf(sigma), False), delta)
    if not mpf(add) < number(goal):
        raise ArithmeticError("the addition is the worse direction")
    return {"sigma": sigma}


KNOWN = {
    ("poisson 1", "remove"): "1.8282366665165768730736",
    ("poisson 1", "add"): "1.416661948036175132250912",
    ("poisson 2", "remove"): "4.5498387256971616018860",
}

ROWS: dict[str, Callable[[], object]] = {
    **{name: (lambda case=case: poisson(case)) for name, case in POISSON.items()},
    "300 mechanisms": many,
    "72 discrete Gaussians": discrete,
    "curve": curve,
    "calibrate": calibrated,
    "30 responses": response,
    "6 discrete Gaussians": six,
    "20 Laplace, 1 Gaussian": mixed,
}


def main() -> None:
    """Compute the rows that are named (all, if none is) and write them beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}")
    wanted = parser.parse_args().rows or list(ROWS)
    known = json.loads(WHERE.read_text()) if WHERE.exists() else {}
    for name in wanted:
        start = time.process_time()
        result = ROWS[name]()
        known[name] = {"value": result, "cpu_seconds": round(time.process_time() - start, 1)}
        print(name, known[name], file=sys.stderr)
        if isinstance(result, dict):
            for (row, side), digits in KNOWN.items():
                if row == name and abs(mpf(result[side]) - mpf(digits)) > mpf(10) ** -20:
                    raise ArithmeticError(f"{name}: {result[side]} is not {digits}")
        ordered = {row: known[row] for row in ROWS if row in known}
        WHERE.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
