"""Shuffled reports against all data of the others, and against many others who are alike."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import gammaln
from truth import Array, Tally, cases, delta, draws, log_uniform, power, renyi, tally

import neyman as ny

__all__ = ["tally"]

SLACK = 2e-13  # of sums over some thousands of outcomes in floats


def counts(laws: list[Array]) -> dict[tuple[int, ...], float]:
    """The distribution of how often each report was sent, by all outcomes."""
    law = {(0,) * len(laws[0]): 1.0}
    for report in laws:
        following: dict[tuple[int, ...], float] = {}
        for outcome, mass in law.items():
            for i, p in enumerate(report):
                key = (*outcome[:i], outcome[i] + 1, *outcome[i + 1 :])
                following[key] = following.get(key, 0.0) + mass * float(p)
        law = following
    return law


def pair(first: Array, second: Array, others: list[Array]) -> tuple[Array, Array]:
    """The distributions of the counts if one person holds either of two values."""
    p, q = counts([first, *others]), counts([second, *others])
    keys = sorted({*p, *q})
    return np.array([p.get(k, 0.0) for k in keys]), np.array([q.get(k, 0.0) for k in keys])


def response(epsilon: float, categories: int) -> Array:
    """Randomized response: a row for each value."""
    other = 1 / (math.expm1(epsilon) + categories)
    table = np.full((categories, categories), other)
    np.fill_diagonal(table, math.exp(epsilon) * other)
    return table


def repeated(p: Array, times: int) -> Array:
    law = p
    for _ in range(times - 1):
        law = np.multiply.outer(law, p).ravel()
    return law


def test_responses_of_few_people_against_all_data_of_the_others(tally: Tally):
    """The worst data are between both ends. Slow questions are rare."""
    draw = draws("shuffled responses")
    for number in cases(5):
        categories, users = draw.choice([(2, 2), (2, 5), (2, 9), (3, 2), (3, 4), (4, 3), (5, 3)])
        epsilon = Fraction(log_uniform(draw, 0.02, 8)).limit_denominator(1000)
        times = 2 if number % 8 == 6 and users < 4 else 1
        table = response(float(epsilon), categories)
        pairs = [
            tuple(repeated(law, times) for law in pair(table[0], table[1], [*table[list(held)]]))
            for held in combinations_with_replacement(range(categories), users - 1)
        ]
        f = (ny.RandomizedResponse(epsilon, categories).shuffle(users=users) * times).tradeoff()
        case = f"response({epsilon}, {categories}) x {users} x {times}"
        for share in (0.0, draw.random(), draw.random() * times):
            e = share * float(epsilon)
            worst = max(delta(p, q, e) for p, q in pairs)
            tally.holds(f.delta(e), worst - SLACK, worst + SLACK, f"{case} delta {e}", worst > 1e-9)
        level = log_uniform(draw, 1e-6, 0.9)
        worst = max(power(p, q, level) for p, q in pairs)
        tally.holds(f.power(level), worst - SLACK, worst + SLACK, f"{case} power {level}")
        if number % 8 != 5:
            continue
        order = draw.choice([1.5, 2.0, 8.0])
        worst = max(renyi(p, q, order) for p, q in pairs)
        slack = 1e-12 + 1e-9 * worst
        tally.holds(f.renyi(order), worst - slack, worst + slack, f"{case} renyi {order}")


def test_channels_of_few_people_tell_no_more_than_is_claimed(tally: Tally):
    """Any channel whose distributions are within e^epsilon of each other, from any data of the
    others.
    """
    draw = draws("shuffled channels")
    for _ in cases(12):
        outcomes, values, users = draw.randint(2, 4), draw.randint(2, 3), draw.randint(2, 4)
        epsilon = Fraction(log_uniform(draw, 0.1, 5)).limit_denominator(100)
        base = np.array([draw.random() + 0.01 for _ in range(outcomes)])
        # Each law is a multiple of the base between 1 and e^epsilon, divided by the sum: scaled
        # so that the sums agree, ratios of two of them stay within e^epsilon.
        rows: list[Array] = []
        for _ in range(values):
            high = np.array([draw.random() < 0.5 for _ in range(outcomes)])
            rows.append(base * np.where(high, math.exp(float(epsilon) / 2), 1.0))
        table = np.array([row / row.sum() for row in rows])
        ratio = max(float(np.log(a / b).max()) for a in table for b in table)
        assert ratio <= float(epsilon) + 1e-12
        others = [table[draw.randrange(values)] for _ in range(users - 1)]
        p, q = pair(table[0], table[1], others)
        f = ny.LocalRandomizer(epsilon).shuffle(users=users).tradeoff()
        for e in (0.0, draw.random() * float(epsilon)):
            tally.holds(f.delta(e), delta(p, q, e) - SLACK, math.inf, ("channel", epsilon, users))
        level = log_uniform(draw, 1e-4, 0.9)
        bound = f.power(level)
        tally.holds(bound, power(p, q, level) - SLACK, math.inf, ("channel", epsilon, users))


def binomial(n: int, p: float) -> Array:
    k = np.arange(n + 1)
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(logs + k * math.log(p) + (n - k) * math.log1p(-p))


def test_many_people_against_others_who_are_alike(tally: Tally):
    """Others who all hold one value, or a third one, tell no more than the upper end allows."""
    draw = draws("shuffled crowds")
    for _ in cases(8):
        users = round(log_uniform(draw, 3, 4000))
        epsilon = Fraction(log_uniform(draw, 0.05, 7)).limit_denominator(100)
        categories = draw.choice([2, 2, 3, 6])
        b = 1 / (math.expm1(float(epsilon)) + categories)
        a = math.exp(float(epsilon)) * b
        # Seen are the reports of the two values that the one may hold.
        if categories == 2:
            rest = binomial(users - 1, b)
            p = np.convolve(rest, [1 - a, a])
            q = np.convolve(rest, [1 - b, b])
        else:
            size = min(users - 1, 150)
            users = size + 1
            both, law = binomial(size, 2 * b), np.zeros((size + 1, size + 1))
            for m in range(size + 1):
                half = binomial(m, 0.5)
                law[np.arange(m + 1), m - np.arange(m + 1)] = both[m] * half
            grown = np.zeros((size + 2, size + 2))
            none = (categories - 2) * b
            grown[:-1, :-1] += none * law
            first, second = grown.copy(), grown
            first[1:, :-1] += a * law
            first[:-1, 1:] += b * law
            second[1:, :-1] += b * law
            second[:-1, 1:] += a * law
            p, q = first.ravel(), second.ravel()
        f = ny.RandomizedResponse(epsilon, categories).shuffle(users=users).tradeoff()
        g = ny.LocalRandomizer(epsilon).shuffle(users=users).tradeoff()
        case = ("crowd", epsilon, categories, users)
        for e in (0.0, draw.random() * min(float(epsilon), 3 / math.sqrt(users))):
            truth = delta(p, q, e)
            slack = 1e-11 * truth + SLACK
            tally.holds(f.delta(e), truth - slack, math.inf, case)
            tally.holds(g.delta(e), truth - slack, math.inf, case)
        level = log_uniform(draw, 1e-6, 0.5)
        tally.holds(f.power(level), power(p, q, level) * (1 - 1e-10) - SLACK, math.inf, case)
