"""Compute 1 - delta by an integral over a line between the poles -1 and 0, for powers near 1.

1 - delta(eps) = E_P min(1, e^{eps - L}), whose transform in eps is -1 / (z (z + 1)) for -1 < Re z <
0. The type II error at a level is the maximum over eps of 1 - delta(eps) - e^eps level, a concave
function of e^eps. Its value at any eps is a lower bound, and values at three eps give an upper
bound [C-10].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from neyman.curves.profiles.contour_line import LIMITS as LINE_LIMITS
from neyman.curves.profiles.contour_line import Line, LineSum, end_of, line_of, nodes
from neyman.curves.profiles.duality import between_chords, chord_ratio
from neyman.curves.profiles.profile import Interval, Profile
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import zero


@dataclass(frozen=True)
class Limits:
    """Limits on the position and accuracy of lines for 1 - delta and type II errors."""

    lines: int = 4  # lines to try for one question
    zooms: int = 16  # most zooms into a grid of epsilons
    line_width: float = 1e-9  # relative width at which no other line is tried
    error_width: float = 1e-8  # the same for a type II error
    nodes: int = 1 << 15
    high_log_level: float = math.log(0.89)  # above it, the reversed pair is more accurate


LIMITS = Limits()
SHARES = np.array([0.3, 0.6, 0.85, 1.0])  # positions between line and pole, for aliases
TILT_GRID = np.linspace(-1, 1, 41)
CLOSER = (1e-2, 1e-3, 1e-4)  # distances between the points of a parabola
POINT_DISTANCES = 10.0 ** np.arange(-7, 0)  # distances between the three points
# Distances from a bend, on both sides.
BEND_DISTANCES = np.concatenate([-POINT_DISTANCES[::-1], [0.0], POINT_DISTANCES])
UNKNOWN = -math.inf, 0.0

Gain = Callable[[Array], tuple[Array, Array]]
"""A function that returns bounds on 1 - delta - e^eps level, scaled, at each epsilon."""


class ComplementLine(Line):
    """Represent a line with -1 < c < 0, whose sum is 1 - delta."""

    def log_complement(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log(1 - delta) at each epsilon, shape (m,)."""
        return self.log_delta(epsilon)

    def near(self, epsilon: float) -> float:
        """Estimate log(1 - delta), as a scale for floats; 0 if unknown."""
        value = float(self.log_complement(np.array([epsilon]))[1][0])
        return value if value > -1e300 else 0.0


class MissLine(Protocol):
    """Describe what bounds 1 - delta near an epsilon."""

    def log_complement(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log(1 - delta) at each epsilon, shape (m,)."""
        ...

    def near(self, epsilon: float) -> float:
        """Estimate log(1 - delta) to scale floats; 0 if unknown."""
        ...


@array_cache
def complement_line(losses: LineSum, epsilon: float) -> ComplementLine | None:
    """Return a line that suits an epsilon, or None if it needs too many nodes."""
    c = complement_saddle(losses, epsilon)
    log_m = min(_rough(losses, c, epsilon), 0.0)
    best, narrowest = None, math.inf
    for _ in range(LIMITS.lines):
        line = _built(losses, c, epsilon, log_m)
        if line is None:
            return best
        low, high = line.log_complement(np.array([epsilon]))
        width = float(high[0] - low[0]) if low[0] > -math.inf else math.inf
        if width < narrowest:
            best, narrowest = line, width
        if width < LIMITS.line_width or low[0] == -math.inf or abs(low[0] - log_m) < 0.5:
            break
        log_m = float(low[0])
    return best


def complement_saddle(losses: LineSum, epsilon: float) -> float:
    """Estimate the c in (-1, 0) at which the terms of 1 - delta have their saddle."""
    return _crossing(lambda c: epsilon - _mean(losses, c) + 1 / c + 1 / (c + 1))


LineAt = Callable[[float], MissLine | None]
BendNear = Callable[[float], float] | None


def log_type_two_error(
    losses: LineSum,
    log_level: float,
    reverse: Profile,
    lines: list[MissLine] | None = None,
    line_at: LineAt | None = None,
    bend_near: BendNear = None,
) -> Interval:
    """Bound log(1 - power) at a level [C-10].

    Args:
        losses: the sum.
        log_level: below 0, finite.
        reverse: profile of the reversed losses, for levels near 1.
        lines: lines of earlier levels, for reuse. New lines are appended.
        line_at: returns a line for an epsilon; a vertical line by default.
        bend_near: returns the epsilon next to another at which the profile has a bend, if any.
    """
    if log_level > LIMITS.high_log_level:
        missing = -math.expm1(min(float(losses.mgf(np.array([-1.0]))[0][0]), 0.0))
        return _from_reverse(reverse, log_level, missing, bend_near)
    lines = [] if lines is None else lines
    line_at = line_at or partial(complement_line, losses)
    c = _crossing(lambda c: _log_rejected(losses, c) - log_level)
    star, spread = _mean(losses, c), _deviation(losses, c)
    line = _suitable(lines, line_at, star)
    if line is None:
        return UNKNOWN
    base = line.near(star)
    star = _best(lambda e: _gain(line, e, log_level, base), star, 4 * spread)
    low, high = -math.inf, 0.0
    for width in (
        LIMITS.line_width,
        0.0,
    ):  # if 1 - delta and the level cancel, use the most accurate line
        closer = _suitable(lines, line_at, star, width)
        if closer is None:
            break
        least, most = _on_line(closer, star, log_level, bend_near)
        low, high = max(low, least), min(high, most)
        if high - low < LIMITS.error_width:
            break
    return low, high


def _on_line(line: MissLine, star: float, log_level: float, bend_near: BendNear = None) -> Interval:
    base = line.near(star)
    low, high = _largest(lambda e: _gain(line, e, log_level, base), star, bend_near)
    slack = 4 * UNIT * abs(base)  # slack: a_gain_that_gets_its_size_back
    return low + base - slack, high + base + slack


def _suitable(
    lines: list[MissLine], line_at: LineAt, epsilon: float, width: float = LIMITS.line_width
) -> MissLine | None:
    """Return a stored line whose bounds are narrower than ``width``, else a new line."""
    for line in reversed(lines):
        low, high = line.log_complement(np.array([epsilon]))
        if low[0] > -math.inf and high[0] - low[0] < width:
            return line
    line = line_at(epsilon)
    if line is not None:
        lines[: len(lines) + 1 - 4] = []  # lines to store
        lines.append(line)
    return line


def _from_reverse(
    reverse: Profile, log_level: float, missing: float, bend_near: BendNear = None
) -> Interval:
    """Bound log(1 - power) by the largest e^eps (1 - level - delta'(-eps)) of the reversed pair.

    ``missing`` is an estimate of the least delta', that of the reversed pair. A smaller 1 - level
    gives no bound.
    """
    share = -math.expm1(log_level)
    if share <= missing:
        return UNKNOWN

    def gain(epsilon: Array) -> tuple[Array, Array]:
        below, above = (np.exp(v) for v in reverse.log_deltas(-epsilon))
        # slack: a_miss_from_the_reversed_pair/a
        scale, error = np.exp(epsilon), 4 * UNIT * (share + above)
        low, high = scale * (share - above - error), scale * (share - below + error)
        # slack: a_miss_from_the_reversed_pair/b; counted
        return low - np.abs(low) * 4 * UNIT, high + np.abs(high) * 4 * UNIT

    near = reverse.epsilon_near(math.log(missing + (share - missing) / math.e))
    low, high = _largest(gain, _best(gain, -near, 0.5 * near), bend_near)
    return low, min(high, 0.0)


def _best(gain: Gain, star: float, scale: float) -> float:
    """Estimate the epsilon at which ``gain`` is largest, from a guess and a distance around it."""
    for _ in range(LIMITS.zooms):
        places = star + scale * TILT_GRID
        k = int(np.argmax(gain(places)[0]))
        inside = 0 < k < len(TILT_GRID) - 1
        star, scale = float(places[k]), scale / 8 if inside else 2 * scale
        if inside and scale < 0.02:  # half-width of a fine enough grid
            break
    return star


def _largest(gain: Gain, star: float, bend_near: BendNear = None) -> Interval:
    """Bound the log of the largest ``gain``, from values at ``star``, around it, and at a bend."""
    low, high = _largest_at(gain, star)
    if bend_near is not None and not high - low <= LIMITS.error_width:
        below, above = _largest_around(gain, bend_near(star))
        low, high = max(low, below), min(high, above)
    return low, high


def _largest_around(gain: Gain, bend: float) -> Interval:
    """Bound the log of the largest ``gain`` from chords on both sides of a bend [CP-7].

    Gain is concave in t = e^epsilon, so it is below its extended chords.
    """
    epsilon = bend + BEND_DISTANCES
    t = np.expm1(epsilon - bend)  # exact differences, over e^bend, less 1
    low, high = gain(epsilon)
    if not low.max() > 0:
        return -math.inf, math.inf
    rises, falls, inner, sizes = between_chords(-high, -low, np.diff(t))
    # If the second chords from the ends rise to the inside, gain is smaller beyond them.
    outer = float(max(high[1], high[-2])) if falls[1] <= 0 <= rises[-2] else math.inf
    # As in `Conjugate.chords`, differences of larger numbers err by units of these [DU-2].
    # slack: counted
    most, least = max(float((64 * UNIT * sizes - inner).max()), outer), float(low.max())
    rounding = 4 * UNIT * (1 + abs(math.log(least)))  # slack: counted
    return math.log(least) - rounding, math.log(most) + rounding if most < math.inf else math.inf


def _largest_at(gain: Gain, star: float) -> Interval:
    """Bound the log of the largest ``gain``, from its values at ``star`` and around it."""
    for distance in CLOSER:
        star = _vertex(gain, star, distance)
    low, high = (float(v[0]) for v in gain(np.array([star])))
    if not low > 0:
        return -math.inf, math.inf
    before, after = star - POINT_DISTANCES, star + POINT_DISTANCES
    left, right = gain(before), gain(after)
    sure = (left[1] <= low) & (right[1] <= low)
    # The chord through a neighbor and the point, extended to the other neighbor. The ratio errs by
    # 5 units (expm1 twice, and a quotient), the difference and the product by one each.
    ratio = chord_ratio(before, star, after)
    # slack: counted
    rise = np.maximum((high - left[0]) * ratio, (high - right[0]) / ratio) * (1 + 16 * UNIT)
    most = np.where(sure, high + rise, math.inf).min() * (1 + 4 * UNIT)  # slack: counted
    # slack: the_largest_gain, a_miss_from_the_reversed_pair/a, a_miss_from_the_reversed_pair/b
    log_low, slack = math.log(low), 4 * UNIT * (1 + abs(math.log(low)))
    return log_low - slack, math.log(most) + slack if most < math.inf else math.inf


def _vertex(gain: Gain, star: float, distance: float) -> float:
    """Return the vertex of a parabola through ``gain`` at ``star`` and ``distance`` on either side.

    Clip it to this range. Return ``star`` if there is no vertex.
    """
    low = gain(star + distance * np.array([-1.0, 0.0, 1.0]))[0]
    bend = float(low[0] - 2 * low[1] + low[2])
    move = 0.5 * float(low[0] - low[2]) / bend if bend < 0 else 0.0
    return star + distance * min(max(move, -1.0), 1.0)


def _gain(line: MissLine, epsilon: Array, log_level: float, base: float) -> tuple[Array, Array]:
    """Bound 1 - delta - e^eps level, divided by e^base."""
    below, above = (v - base for v in line.log_complement(epsilon))
    taken = np.exp(np.minimum(epsilon + log_level - base, 700.0))
    size = 2 + np.abs(epsilon) + abs(log_level) + abs(base)
    low = np.exp(np.minimum(below, 700.0))
    with np.errstate(over="ignore"):
        high = np.exp(above)
    error = 4 * UNIT * size * taken  # slack: a_gain_over_its_size
    # Differences of logarithms have relative rounding errors. Beyond 1e3, e^x is 0 or inf.
    # slack: a_gain_over_its_size
    down, up = (4 * UNIT * (1 + np.minimum(np.abs(v), 1e3)) for v in (below, above))
    return low * (1 - down) - taken - error, high * (1 + up) - taken + error


def _crossing(function: Callable[[float], float]) -> float:
    """Estimate the c in (-1, 0) at which a falling ``function`` crosses 0; an end if it does not.

    Lines are valid at any c. A better c needs fewer nodes.
    """
    farthest = math.log(1 / 1e-7)  # least distance of a line to a pole
    for end, side in ((-farthest, 1), (farthest, -1)):
        if not side * function(_tilt(end)) > 0:
            return _tilt(end)
    # Accuracy of a saddle's log-odds.
    return _tilt(zero(lambda s: function(_tilt(s)), -farthest, farthest, 1e-4))


def _tilt(s: float) -> float:
    """Return c = -1 / (1 + e^s), which rises from -1 to 0 with s."""
    return -1 / (1 + math.exp(s))


def _mean(losses: LineSum, c: float) -> float:
    return float(losses.moments(np.array([c]))[1][0])


def _deviation(losses: LineSum, c: float) -> float:
    return math.sqrt(max(float(losses.moments(np.array([c]))[2][0]), 1e-300))


def _rough(losses: LineSum, c: float, epsilon: float) -> float:
    """Estimate log(1 - delta), from the bell shape of the integrand around the saddle c."""
    k, _, variance = (float(v[0]) for v in losses.moments(np.array([c])))
    bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
    return k - c * epsilon - math.log(-c * (c + 1)) - 0.5 * math.log(math.tau * bend)


def _log_rejected(losses: LineSum, c: float) -> float:
    """Estimate log Q(L > t), where t is the mean loss under the tilt c."""
    k, mean, variance = (float(v[0]) for v in losses.moments(np.array([c])))
    return k - (c + 1) * mean - math.log(1 + (c + 1) * math.sqrt(math.tau * variance))


@np.errstate(over="ignore", invalid="ignore")  # an overflow gives a trivial bound
def _built(losses: LineSum, c: float, epsilon: float, log_m: float) -> ComplementLine | None:
    real = np.concatenate([[c], c * (1 - SHARES), c - (1 + c) * SHARES])
    k, k_error = losses.mgf(real)  # with 8 more units of its size
    safe = k + np.log1p(k_error) + 8 * UNIT * np.abs(k)  # slack: counted
    top = float(k[0])
    count, h = len(SHARES), math.inf
    sides = slice(1, count + 1), slice(count + 1, None)
    for part in sides:
        excess = safe[part] - real[part] * epsilon - log_m + LINE_LIMITS.error_efolds
        h = min(h, float(np.max(math.tau * np.abs(real[part] - c) / np.maximum(excess, 1e-3))))
    need = LINE_LIMITS.error_efolds + max(top - c * epsilon - log_m, 0.0)
    end, log_left = end_of(losses, c, h, need, _deviation(losses, c))
    if not end / h < LIMITS.nodes:
        return None
    places = losses.places(c, end)
    if places > LINE_LIMITS.terms or places * end / h > LINE_LIMITS.plain_node_terms:
        return None
    h, u, omitted = nodes(losses.span, c, h, end, log_left)
    gap = math.tau * np.abs(real - c) / h
    both = np.array([real, safe, gap, np.abs(safe) + gap])
    left, right = (both[:, part] for part in sides)
    return line_of(
        losses, c, u, omitted, top, float(k_error[0]), (left, right), losses.span, ComplementLine
    )
