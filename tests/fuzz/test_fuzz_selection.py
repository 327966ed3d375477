"""Choices between candidates with random scores, all outcomes enumerated or integrated."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from truth import Array, Tally, cases, delta, draws, log_uniform, power, renyi, tally

import neyman as ny

__all__ = ["tally"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
SLACK = 1e-12
Laws = tuple[Array, Array]


def asked(tally: Tally, f: ny.Tradeoff, laws: Laws, tilts: list[float], case: object) -> None:
    """No test of the pair beats what the curve allows."""
    p, q = laws
    for e in tilts:
        tally.holds(f.delta(e), delta(p, q, e) - SLACK, math.inf, case)
    for level in (1e-6, 0.01, 0.3):
        tally.holds(f.power(level), power(p, q, level) * (1 - 1e-10) - SLACK, math.inf, case)
    tally.holds(f.renyi(2.5), renyi(p, q, 2.5) - 1e-9, math.inf, case)


def softmax(scores: Array) -> Array:
    weight = np.exp(scores - scores.max())
    return weight / weight.sum()


def joined(one: Laws, other: Laws) -> Laws:
    return np.outer(one[0], other[0]).ravel(), np.outer(one[1], other[1]).ravel()


def test_exponential_mechanisms_never_exceed_their_range(tally: Tally):
    """One to five choices, each between random candidates whose scores move at random."""
    draw = draws("exponential mechanisms")
    for _ in cases(12):
        epsilon = Fraction(log_uniform(draw, 0.05, 4)).limit_denominator(100)
        times, monotone = draw.choice([1, 1, 2, 3, 5]), draw.random() < 0.5
        laws: Laws = (np.ones(1), np.ones(1))
        for _ in range(times):
            scores = np.array([draw.uniform(-6, 6) for _ in range(draw.randint(2, 4))])
            moves = np.array([draw.choice([0, 1, draw.random()]) for _ in scores])
            if not monotone:
                moves = moves * np.array([draw.choice([-1, 1]) for _ in scores])
            rate = float(epsilon) if monotone else float(epsilon) / 2
            laws = joined(laws, (softmax(rate * scores), softmax(rate * (scores + moves))))
        f = (ny.ExponentialMechanism(epsilon) * times).tradeoff()
        tilts = [0.0, draw.random() * float(epsilon) * times]
        asked(tally, f, laws, tilts, ("exponential", epsilon, times, monotone))


def winner(scores: Array, scale: float, noise: str) -> Array:
    """The chance that each candidate wins: its noise integrated against the others'."""
    ends = np.sort(np.concatenate([scores, [scores.min() - 45 * scale, scores.max() + 45 * scale]]))
    cuts = np.concatenate(
        [np.linspace(a, b, 1 + math.ceil((b - a) / scale)) for a, b in pairwise(ends)]
    )
    half = np.diff(cuts)[:, None] / 2
    x = (cuts[:-1, None] + half * (1 + NODES)).ravel()
    w = (half * WEIGHTS).ravel()
    y = (x - scores[:, None]) / scale
    if noise == "laplace":
        density = np.exp(-np.abs(y)) / 2
        below = np.where(y < 0, density, 1 - density)
    else:
        density = np.where(y > 0, np.exp(-np.maximum(y, 0)), 0.0)
        below = np.where(y > 0, -np.expm1(-np.maximum(y, 0)), 0.0)
    rest = [np.prod(np.delete(below, i, 0), axis=0) for i in range(len(scores))]
    return np.array([(w * d / scale * r).sum() for d, r in zip(density, rest, strict=True)])


def test_noisy_maxima_never_exceed(tally: Tally):
    """Two to four candidates; what is claimed from below, two that change places attain."""
    draw = draws("noisy maxima")
    for _ in cases(15):
        scale = Fraction(log_uniform(draw, 0.3, 10)).limit_denominator(100)
        noise, monotone = draw.choice(["laplace", "exponential"]), draw.random() < 0.5
        scores = np.array([draw.uniform(-3, 3) for _ in range(draw.randint(2, 4))])
        moves = np.array([draw.choice([0, 1, draw.random()]) for _ in scores])
        if not monotone:
            moves = moves * np.array([draw.choice([-1, 1]) for _ in scores])
        laws = tuple(winner(s, float(scale), noise) for s in (scores, scores + moves))
        assert abs(laws[0].sum() - 1) < 1e-12
        mechanism = ny.ReportNoisyMax(scale, noise=noise, monotone=monotone)
        f, epsilon = mechanism.tradeoff(), float(mechanism.epsilon())
        asked(tally, f, (laws[0], laws[1]), [0.0, draw.random() * epsilon], mechanism)
        gap = 0.5 if monotone else 1.0
        ends = [winner(np.array(s), float(scale), noise) for s in ([gap, 0.0], [0.0, gap])]
        for e in (0.0, 0.5 * epsilon):
            below = delta(ends[0], ends[1], e)
            bound = f.delta(e)
            assert bound.lower <= below + SLACK, mechanism  # what is claimed is attained
            tally.holds(bound, below - SLACK, math.inf, mechanism)


def vector(queries: Array, first: float, each: float, answers: int) -> Array:
    """The distribution of the answers, by an integral over the threshold's noise."""
    ends = np.sort(np.concatenate([queries, [-45 * first, 0.0, 45 * first]]))
    pieces = [
        np.linspace(a, b, 1 + math.ceil((b - a) / min(first, each))) for a, b in pairwise(ends)
    ]
    cuts = np.unique(np.concatenate(pieces))
    half = np.diff(cuts)[:, None] / 2
    x = (cuts[:-1, None] + half * (1 + NODES)).ravel()
    mass = (half * WEIGHTS).ravel() * np.exp(-np.abs(x) / first) / (2 * first)
    y = (x - queries[:, None]) / each
    above = np.where(y < 0, 1 - np.exp(-np.abs(y)) / 2, np.exp(-np.abs(y)) / 2)
    laws: dict[tuple[bool, ...], Array] = {(): mass}
    for chance in above:
        following = {}
        for verdicts, law in laws.items():
            if sum(verdicts) == answers:
                following[verdicts] = law
                continue
            following[(*verdicts, True)], following[(*verdicts, False)] = (
                law * chance,
                law * (1 - chance),
            )
        laws = following
    return np.array([law.sum() for _, law in sorted(laws.items())])


def test_sparse_vectors_never_exceed(tally: Tally):
    """Up to six queries and three answers, moved at random between neighbors."""
    draw = draws("sparse vectors")
    for _ in cases(15):
        first, each = (Fraction(log_uniform(draw, 0.5, 10)).limit_denominator(10) for _ in "ab")
        answers, monotone = draw.randint(1, 3), draw.random() < 0.5
        queries = np.array([draw.uniform(-4, 4) for _ in range(draw.randint(1, 6))])
        moves = np.array([draw.choice([0, 1, 1, draw.random()]) for _ in queries])
        if not monotone:
            moves = moves * np.array([draw.choice([-1, 1]) for _ in queries])
        known = float(first), float(each), answers
        laws = vector(queries, *known), vector(queries + moves, *known)
        mechanism = ny.SparseVector(first, each, answers, monotone=monotone)
        tilts = [0.0, draw.random() * float(mechanism.epsilon())]
        asked(tally, mechanism.tradeoff(), laws, tilts, mechanism)
        # A single query half below the threshold or above it is what the lower end claims.
        ends = [vector(np.array([s]), known[0], known[1], 1) for s in (0.5, -0.5)]
        assert mechanism.tradeoff().delta(0).lower <= delta(ends[0], ends[1], 0.0) + SLACK
