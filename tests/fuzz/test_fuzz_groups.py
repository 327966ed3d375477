"""Groups, bounded probability, canonical noise, and filters, against fractions and enumeration."""

from __future__ import annotations

import math
import random
from fractions import Fraction as F
from itertools import pairwise

import mpmath as mp
import numpy as np
from truth import Array, Tally, cases, delta, draws, log_uniform, power, renyi, tally

import neyman as ny
from neyman.accounting import Filter, Odometer

__all__ = ["tally"]

Corners = list[tuple[F, F]]  # (level, power), from level 0 to (1, 1)


def law(draw: random.Random, outcomes: int) -> list[F]:
    weights = [draw.randint(1, 60) for _ in range(outcomes)]
    return [F(w, sum(weights)) for w in weights]


def corners(p: list[F], q: list[F]) -> Corners:
    """The power of the best test of q against p, by its corners."""
    places = [(F(0), F(0))]
    for a, b in sorted(zip(p, q, strict=True), key=lambda v: -v[0] / v[1]):
        places.append((places[-1][0] + b, places[-1][1] + a))
    return places


def at(m: Corners, level: F) -> F:
    for (x0, y0), (x1, y1) in pairwise(m):
        if x0 < level <= x1:
            return y0 + (y1 - y0) * (level - x0) / (x1 - x0)
    return m[0][1]


def hull(places: Corners) -> Corners:
    """The least concave function above the places."""
    result: Corners = []
    for x, y in sorted(set(places)):
        if result and result[-1][0] == x:
            result.pop()
        while len(result) > 1 and (result[-1][1] - result[-2][1]) * (x - result[-2][0]) <= (
            y - result[-2][1]
        ) * (result[-1][0] - result[-2][0]):
            result.pop()
        result.append((x, y))
    return result


def test_groups_of_finite_laws_against_fractions(tally: Tally):
    """The power of the hull of both orders, applied again and again."""
    draw = draws("groups")
    for _ in cases(25):
        outcomes, size = draw.randint(2, 6), draw.randint(2, 6)
        p, q = law(draw, outcomes), law(draw, outcomes)
        m = hull(corners(p, q) + corners(q, p))
        f = ny.between(p, q).symmetric().group(size)
        for _ in range(4):
            start = F(log_uniform(draw, 1e-7, 0.7))
            level = start
            for _ in range(size):
                level = at(m, level)
            case = f"group of {size}, {p} and {q}, level {float(start)}"
            tally.holds(f.power(float(start)), _mp(level), _mp(level), case)


def test_groups_of_closed_forms_against_mpmath(tally: Tally):
    """Laplace noise, whose power is known, and sampled groups as an attack."""
    draw = draws("groups of noise")
    for _ in cases(2):
        e, size = F(log_uniform(draw, 0.05, 3)).limit_denominator(100), draw.randint(2, 5)
        f = ny.Laplace(1 / e).tradeoff().group(size)
        grown = mp.exp(_mp(e))
        for _ in range(2):
            start = log_uniform(draw, 1e-8, 0.5)
            level = mp.mpf(start)
            for _ in range(size):
                if level <= 1 / (2 * grown):
                    level = grown * level
                elif level <= mp.mpf(1) / 2:
                    level = 1 - 1 / (4 * grown * level)
                else:
                    level = 1 - (1 - level) / grown
            tally.holds(f.power(start), level, level, f"Laplace {e}, group of {size}, {start}")


def test_bounded_probability_against_fractions(tally: Tally):
    """A pair's own delta at epsilon is found, and the curve of that guarantee covers the pair."""
    draw = draws("bounded probability")
    for _ in cases(40):
        outcomes = draw.randint(2, 7)
        p, q = law(draw, outcomes), law(draw, outcomes)
        if p == q:
            continue
        e = draw.choice([0.0, draw.random(), 2 * draw.random()])
        t = F(math.exp(e))  # next to e^epsilon: the truth is between both neighbors
        ends = [
            max(_crossing(corners(a, b), t * (1 + F(s, 10**13))) for a, b in ((p, q), (q, p)))
            for s in (1, -1)
        ]
        f = ny.between(p, q)
        tally.holds(f.pbdp(e), _mp(ends[0]), _mp(ends[1]), f"pbdp of {p} and {q} at {e}")
        guarantee = ny.pbdp(e, ends[1])
        x, y = np.array(p, float), np.array(q, float)
        for level in (1e-4, 0.1, draw.random()):
            attained = power(x, y, level) * (1 - 1e-12) - 1e-15
            tally.holds(guarantee.power(level), attained, math.inf, ("pbdp guarantee", p, q, e))


def _crossing(m: Corners, t: F) -> F:
    """sup of the power where it is above t times the level."""
    best = F(0)
    for (x0, y0), (x1, y1) in pairwise(m):
        if y1 > t * x1:
            best = y1
        elif y0 > t * x0:
            # y0 + s (x - x0) = t x
            s = (y1 - y0) / (x1 - x0)
            x = (y0 - s * x0) / (t - s)
            best = max(best, t * x)
    return best


def _mp(x: F) -> mp.mpf:
    return mp.mpf(x.numerator) / x.denominator


# Canonical noise: 1 - F(x) = f(F(x - 1)) beyond 1/2, and a line in the middle


def test_canonical_noise_against_the_recursion(tally: Tally):
    """The tails of pure, approximate, and Gaussian curves, by the definition in 60 digits."""
    draw = draws("canonical noise")
    for number in cases(18):
        e, d = log_uniform(draw, 0.05, 4), log_uniform(draw, 1e-9, 0.3)
        if number % 3 == 2:
            curve, mu = ny.gdp(e), mp.mpf(e)

            def error(a: mp.mpf, mu: mp.mpf = mu) -> mp.mpf:
                z = mp.sqrt(2) * mp.erfinv(1 - 2 * a)
                return mp.ncdf(z - mu)

            c = mp.ncdf(-mu / 2)
        else:
            d = d if number % 3 else 0.0
            curve, t, share = ny.approximate(e, d), mp.exp(mp.mpf(e)), mp.mpf(d)

            def error(a: mp.mpf, t: mp.mpf = t, share: mp.mpf = share) -> mp.mpf:
                return max(mp.mpf(0), 1 - share - t * a, (1 - share - a) / t)

            c = (1 - share) / (1 + t)
        noise = ny.CanonicalNoise(curve)
        for _ in range(3):
            x = draw.uniform(0.5, 3.5 if number % 3 == 2 else 8)
            steps = math.ceil(x - 0.5)
            middle = mp.mpf(x) - steps
            tail = 1 - (c * (0.5 - middle) + (1 - c) * (middle + 0.5))
            for _ in range(steps):  # 1 - F(x) = f(F(x - 1)) = f(1 - tail)
                tail = error(1 - tail)
            low, high = (float(v[0]) for v in noise.law.log_tail(np.array([x])))
            bound = ny.Bound(low, high, "upper", "log tail")
            truth = mp.log(tail) if tail > 0 else mp.mpf("-inf")
            slack = mp.mpf(10) ** -40 * (1 + abs(truth)) if tail > 0 else 0
            if tail > mp.mpf(10) ** -30:
                tally.holds(bound, truth - slack, truth + slack, f"{curve!r} at {x}", False)
            # A unit shift: the test that rejects beyond x has the power that f allows.
            attained = 1 - error(tail) if 0 < tail < 1 else mp.mpf(0)
            if tail > 1e-15:
                allowed = curve.power(float(tail))
                near = abs(attained) * mp.mpf(10) ** -9
                tally.holds(
                    allowed, attained - near, attained + near, f"{curve!r} power at {x}", False
                )


# Filters: a tree of answers, each mechanism chosen by the answers before it


def answer(epsilon: F) -> tuple[Array, Array]:
    t = math.exp(float(epsilon))
    return np.array([t, 1.0]) / (1 + t), np.array([1.0, t]) / (1 + t)


def test_filters_cover_releases_that_are_chosen_by_answers(tally: Tally):
    """Responses of random epsilon as long as the filter admits them, all answers enumerated."""
    draw = draws("filters")
    for number in cases(8):
        currency = ("pure", "zcdp", "gdp", "renyi:3")[number % 4]
        budget = F(log_uniform(draw, 0.05, 4)).limit_denominator(1000)
        options = [F(log_uniform(draw, 0.05, 2)).limit_denominator(100) for _ in range(4)]
        outcomes: list[tuple[float, float]] = []

        def run(left: Filter, p: float, q: float, depth: int) -> None:
            fits = [e for e in options if left.admits(ny.RandomizedResponse(e))]  # noqa: B023
            if not depth or not fits:
                outcomes.append((p, q))  # noqa: B023
                return
            e = draw.choice(fits)
            following = left.after(ny.RandomizedResponse(e))
            assert following.spent + following.left == budget  # noqa: B023
            assert left.spent < following.spent <= budget  # noqa: B023
            for a, b in zip(*answer(e), strict=True):
                run(following, p * float(a), q * float(b), depth - 1)

        start = Filter(currency, budget)
        run(start, 1.0, 1.0, 7)
        p, q = np.array(outcomes).T
        f = start.tradeoff()
        case = (currency, budget, options)
        for e in (0.0, draw.random(), 2 * draw.random()):
            tally.holds(f.delta(e), delta(p, q, e) - 1e-13, math.inf, case)
        for level in (1e-3, 0.05, 0.5):
            tally.holds(f.power(level), power(p, q, level) * (1 - 1e-12), math.inf, case)
        if currency.startswith("renyi"):
            assert renyi(p, q, 3.0) <= float(budget) * (1 + 1e-12)
        if currency == "zcdp":
            worst = max(renyi(p, q, a) / a for a in (1.001, 1.5, 2.0, 8.0, 64.0))
            assert worst <= float(budget) * (1 + 1e-12)
        if currency == "pure":
            assert np.abs(np.log(p / q)).max() <= float(budget) * (1 + 1e-12)
        tally.count()


def test_odometers_read_what_the_charges_add_up_to(tally: Tally):
    """The reading is the least multiple of the step that covers the sum of exact charges."""
    draw = draws("odometers")
    for _ in cases(20):
        currency = draw.choice(["pure", "zcdp", "gdp"])
        step = F(log_uniform(draw, 0.01, 3)).limit_denominator(1000)
        read, spent = Odometer(currency, step), F(0)
        for _ in range(draw.randint(1, 12)):
            scale = F(log_uniform(draw, 0.3, 30)).limit_denominator(1000)
            if currency == "pure":
                read, spent = read.after(ny.Laplace(scale)), spent + 1 / scale
            else:
                square = 1 / scale**2
                spent += square / 2 if currency == "zcdp" else square
                read = read.after(ny.Gaussian(scale))
            assert read.spent == spent
            assert read.reading - step < spent <= read.reading
            assert (read.reading / step).denominator == 1
            tally.count()
