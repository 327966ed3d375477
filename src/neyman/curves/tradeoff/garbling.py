"""Decide Blackwell's order of finite experiments: return a channel, or a test that refutes it.

A channel T turns (P, Q) into (P', Q') if and only if no test of P' against Q' has more power at its
level than the best test of P against Q. Either answer is constructed, in exact fractions:

- Both powers are concave, and linear between corners, so it is enough to compare them at the
  corners of (P', Q').
- Each outcome has the ratio r = p / (p + q). A channel gives outcome j of (P', Q') the mass p'_j +
  q'_j of outcomes of (P, Q), whose ratios have the mean p'_j / (p'_j + q'_j) (a martingale). If a
  channel exists, outcome j can take a window: an interval of the remaining outcomes of (P, Q) in
  the order of their ratios (the "shadow"). A channel for the rest then still exists.

Source: Blackwell 1951 and 1953; Strassen 1965; Beiglböck and Juillet 2016, section 4 (shadows).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from neyman.curves.tradeoff.from_data import FLOAT_TOLERANCE, law
from neyman.numerics.rounding import above

Law = tuple[Fraction, ...]
Rows = tuple[Law, ...]


@dataclass(frozen=True)
class Test:
    """Represent a test of (P', Q') that no test of (P, Q) matches: a proof that no channel exists.

    Args:
        weights: for each outcome of (P', Q'), the probability that the test decides for P'.
        level: false positive rate of the test, sum of weights times q'.
        power: true positive rate of the test, sum of weights times p'.
        matched: the largest power of any test of P against Q at this level; below ``power``.
    """

    __test__ = False  # not one of pytest's

    weights: Law
    level: Fraction
    power: Fraction
    matched: Fraction


@dataclass(frozen=True)
class Garbling:
    """Hold the answer of `garbling`: a channel from (p, q) to (p2, q2), a test against it, or both.

    Args:
        p, q: the first pair, exact.
        p2, q2: the pair to produce from it, exact.
        exact: the channel as rows of fractions, one row for each outcome of (p, q), each with the
            sum 1; None if there is none.
        test: the proof that no exact channel exists; None if one exists.

    Examples:
        >>> import neyman as ny
        >>> from neyman.curves.tradeoff.garbling import garbling
        >>> made = garbling([0.8, 0.2], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6])
        >>> made.exists, made.exact
        (True, ((Fraction(2, 3), Fraction(1, 3)), (Fraction(1, 3), Fraction(2, 3))))
    """

    p: Law
    q: Law
    p2: Law
    q2: Law
    exact: Rows | None
    test: Test | None = None

    @cached_property
    def exists(self) -> bool | None:
        """Return True if a channel exists, False if not, or None if float rounding decides.

        True is computed from the channel: it turns (p, q) into exactly (p2, q2).
        """
        if self.exact is None:
            return False
        return True if self._garbling_error(self.exact) == 0 else None

    @cached_property
    def channel(self) -> NDArray[np.float64] | None:
        """Return the channel as a matrix of floats: p @ channel is p2, and q @ channel is q2."""
        if self.exact is None:
            return None
        matrix = np.array([[float(x) for x in row] for row in self.exact])
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def error(self) -> float:
        """Bound the error of `channel` in p2 and q2: the larger total variation distance.

        The floats count at their exact values. Return inf if there is no channel.
        """
        if self.channel is None:
            return math.inf
        rows = tuple(tuple(Fraction(float(x)) for x in row) for row in self.channel)
        return above(self._garbling_error(rows))

    def _garbling_error(self, rows: Rows) -> Fraction:
        pairs = (self.p, self.p2), (self.q, self.q2)
        return max(_distance(_through(before, rows), after) for before, after in pairs)

    def __matmul__(self, other: Garbling) -> Garbling:
        """Return both channels, one after the other. The second begins with the first one's result.

        Raises:
            ValueError: if one of them has no channel, or the pairs in the middle differ.
        """
        if not isinstance(other, Garbling):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if (self.p2, self.q2) != (other.p, other.q):
            raise ValueError(
                "the second garbling must begin with the pair that the first one makes"
            )
        if self.exact is None or other.exact is None:
            which = "first" if self.exact is None else "second"
            raise ValueError(f"the {which} garbling has no channel; its test proves that")
        rows = tuple(_through(row, other.exact) for row in self.exact)
        return Garbling(self.p, self.q, other.p2, other.q2, rows)


def garbling(
    p: Iterable[object], q: Iterable[object], p2: Iterable[object], q2: Iterable[object]
) -> Garbling:
    """Return a channel from (p, q) to (p2, q2), or a test that proves that none exists.

    If a channel exists, passing the outcome of (p, q) through it reveals all that (p2, q2) can
    reveal. So (p2, q2) is at least as private (Blackwell's order).

    Args:
        p, q: probabilities of the same outcomes under the two hypotheses: integers, fractions,
            decimals, or floats (read as the decimal that they print), at least 0, each with the sum
            1 (to within 1e-12 for floats).
        p2, q2: probabilities of the other pair, in the same form; the number of outcomes may
            differ.

    Returns:
        A `Garbling`. Its ``exists`` is True with a channel that is exact in fractions, or False
        with a test. ``exists`` is None if an input is a float and the largest gain of a test is
        above 0 but at most 1e-12. The result then has both this test, for the numbers as read, and
        a channel with a stated error.

    Raises:
        ValueError: if an entry is negative, a sum is not 1, or the outcomes of a pair differ in
            number.

    Examples:
        >>> import neyman as ny
        >>> from neyman.curves.tradeoff.garbling import garbling
        >>> garbling([0.8, 0.2], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6]).channel.round(3)
        array([[0.667, 0.333],
               [0.333, 0.667]])
        >>> back = garbling([0.6, 0.4], [0.4, 0.6], [0.8, 0.2], [0.2, 0.8])
        >>> back.exists, back.test.power, back.test.matched
        (False, Fraction(4, 5), Fraction(3, 10))

    Source: Blackwell 1953.
    """
    read = [law(n, x) for n, x in (("p", p), ("q", q), ("p2", p2), ("q2", q2))]
    a, b, a2, b2 = (tuple(masses) for masses, _ in read)
    for names, first, second in (("p and q", a, b), ("p2 and q2", a2, b2)):
        if len(first) != len(second):
            raise ValueError(
                f"{names} have {len(first)} and {len(second)} outcomes; they must have the same"
            )
    test = _best_test(a, b, a2, b2)
    gain = test.power - test.matched
    if gain <= 0:
        return Garbling(a, b, a2, b2, _channel(a, b, a2, b2))
    if gain > FLOAT_TOLERANCE or not any(rounded for _, rounded in read):
        return Garbling(a, b, a2, b2, None, test)
    return Garbling(a, b, a2, b2, _channel(a, b, a2, b2), test)


def _ratio(p: Fraction, q: Fraction) -> Fraction:
    """Return an outcome's ratio p / (p + q), or 0 if the outcome never happens."""
    return p / (p + q) if p + q else Fraction(0)


def _groups(p: Law, q: Law) -> list[list[int]]:
    """Return groups of outcomes with equal ratios, by decreasing ratio.

    Omit impossible outcomes.
    """
    ratios = [_ratio(x, y) for x, y in zip(p, q, strict=True)]
    possible = [i for i in range(len(p)) if p[i] + q[i]]
    order = sorted(possible, key=lambda i: ratios[i], reverse=True)
    return [list(group) for _, group in groupby(order, key=lambda i: ratios[i])]


def _corners(p: Law, q: Law) -> list[tuple[Fraction, Fraction]]:
    """Return (level, power) of the tests that decide for P at the largest ratios."""
    corners = [(Fraction(0), Fraction(0))]
    for group in _groups(p, q):
        level, power = corners[-1]
        corners.append((level + sum(q[i] for i in group), power + sum(p[i] for i in group)))
    return corners


def _best_test(p: Law, q: Law, p2: Law, q2: Law) -> Test:
    """Return the test of (p2, q2) with the most power above that of (p, q), even if negative."""
    corners, at = _corners(p, q), 0
    best: tuple[Fraction, int, Fraction, Fraction, Fraction] | None = None
    for k, (level, power) in enumerate(_corners(p2, q2)):
        while at + 1 < len(corners) and corners[at + 1][0] <= level:
            at += 1
        matched = corners[at][1]
        if at + 1 < len(corners):
            (x0, y0), (x1, y1) = corners[at : at + 2]
            matched += (y1 - y0) * (level - x0) / (x1 - x0)
        if best is None or power - matched > best[0]:
            best = (power - matched, k, level, power, matched)
    assert best is not None
    _, k, level, power, matched = best
    taken = {i for group in _groups(p2, q2)[:k] for i in group}
    weights = tuple(Fraction(i in taken) for i in range(len(p2)))
    return Test(weights, level, power, matched)


def _channel(p: Law, q: Law, p2: Law, q2: Law) -> Rows:
    """Return a channel: each outcome of (p2, q2) takes a window, the nearest one if none fits."""
    sources, targets = _groups(p, q), _groups(p2, q2)
    ratio = [_ratio(p[g[0]], q[g[0]]) for g in sources]
    sums = [sum((p[i] + q[i] for i in g), Fraction(0)) for g in sources]
    left = list(sums)
    rows = [[Fraction(0)] * len(p2) for _ in p]
    for group in targets:
        masses = {j: p2[j] + q2[j] for j in group}
        need = sum(masses.values(), Fraction(0))
        for k, share in _window(ratio, left, need, sum((p2[j] for j in group), Fraction(0))):
            left[k] -= share
            for j, mass in masses.items():
                for i in sources[k]:
                    rows[i][j] = share / sums[k] * (mass / need)
    for i in range(len(p)):
        if not p[i] + q[i]:  # never happens, so any row is valid
            rows[i] = list(q2)
    return tuple(tuple(row) for row in rows)


def _window(
    ratio: Sequence[Fraction], left: Sequence[Fraction], need: Fraction, moment: Fraction
) -> list[tuple[int, Fraction]]:
    """Return a window of the remaining masses ``left``, as pairs (outcome, mass taken).

    The taken masses have the sum ``need``. The sum of mass times ratio should be ``moment``. The
    window begins at the largest ratios and slides down, which lowers this sum.
    """
    there = [k for k in range(len(left)) if left[k]]
    taken: dict[int, Fraction] = {}
    lacking, end = need, 0
    while lacking:
        taken[there[end]] = min(lacking, left[there[end]])
        lacking -= taken[there[end]]
        end += taken[there[end]] == left[there[end]]
    over = sum((ratio[k] * x for k, x in taken.items()), Fraction(0)) - moment
    start = 0
    while over > 0:
        end += start == end  # within one outcome nothing changes
        if end == len(there):
            break
        first, last = there[start], there[end]
        step = min(taken[first], left[last] - taken.get(last, Fraction(0)))
        step = min(step, over / (ratio[first] - ratio[last]))
        over -= step * (ratio[first] - ratio[last])
        taken[first] -= step
        taken[last] = taken.get(last, Fraction(0)) + step
        start += not taken[first]
        end += taken[last] == left[last]
    return [(k, x) for k, x in taken.items() if x]


def _through(masses: Sequence[Fraction], rows: Rows) -> Law:
    """Return a distribution (or a row of a channel) after it passes through a channel."""
    columns = range(len(rows[0]))
    return tuple(
        sum((m * r[j] for m, r in zip(masses, rows, strict=True)), Fraction(0)) for j in columns
    )


def _distance(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((abs(x - y) for x, y in zip(a, b, strict=True)), Fraction(0)) / 2
