"""Bound how fast a characteristic function decays beyond the last node [C-4].

Let phi be this function. For increasing ``edges`` u_0 < ... < u_m, `by_moments` and `by_pieces`
return upper bounds on log |phi(u)|. Entry j holds for every u in [u_j, u_{j+1}], and the last one
for every u >= u_m.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import CALL, charge

SINC_KNEE = 2.5
MAX_EDGES = 120  # edges with their own cells; others share the cells of the next edge below
LOBES = math.sin(SINC_KNEE) / SINC_KNEE  # above every later lobe of |sin x / x|


def integer_distance(turns: Array) -> Array:
    """Return lower bounds on the distance of [turns_j, turns_{j+1}] from all integers.

    ``turns`` rises from 0 or above; each entry errs by a few units of itself.
    """
    low, high = turns[:-1], turns[1:]
    away = np.minimum(low - np.floor(low), np.ceil(high) - high) - 8 * UNIT * high  # slack: counted
    return np.where(np.ceil(low) <= np.floor(high), 0.0, np.maximum(away, 0.0)) * (1 - 1e-9)


@np.errstate(over="ignore", invalid="ignore")
def by_moments(variance: float, fourth: float, edges: Array) -> Array:
    """Bound log |phi(u)| by moments of the loss L.

    |phi|^2 = E cos(u (L - L')) <= 1 - u^2 Var(L) + u^4 E(L - L')^4 / 24, convex in u^2. L' is an
    independent copy of L.

    Args:
        variance: lower bound on Var(L).
        fourth: upper bound on E(L - L')^4.
        edges: u_0 < u_1 < ..., above 0.
    """
    square = edges * edges
    at = 1 - square * (variance - square * (fourth / 24))
    at = np.minimum(np.maximum(at, 1e-300), 1.0)
    at[np.isnan(at)] = 1.0
    np.maximum(at[:-1], at[1:], out=at[:-1])
    at[-1] = 1.0
    return 0.5 * np.log(at)


def by_pieces(places: Array, mass: Array, edges: Array, wanted: Array | None = None) -> Array:
    """Bound log |phi(u)|, using a part of the distribution that is uniform on each of n intervals.

    The caller ensures that the distribution has at least mass ``mass[k]``, spread evenly, on
    [places[k], places[k + 1]]. The intervals are grouped into blocks. A block of mass p adds at
    most one of these to |phi(u)|:

    - p (1 - u^2 (1 - u^2 d^2 / 12) V / 2), if the block has width d and variance V, as |L - L'| <=
      d;
    - p |sinc(u d / 2)|, if it is one interval;
    - the total variation of its density, divided by u.

    In the middle, blocks are about 2 / u wide. All intervals to their left may form one block, and
    so may those to their right. Mass outside all blocks adds at most itself.

    Args:
        places: increasing, shape (n + 1,).
        mass: shape (n,), at least 0.
        edges: shape (m,), above 0.
        wanted: True where a bound is useful, shape (m,). Elsewhere, nothing is claimed.
    """
    edges, repeat = _thin_edges(edges)
    if wanted is None or len(wanted) != len(edges):
        wanted = np.ones(len(edges), bool)
    if not wanted.any():
        return repeat(np.zeros(len(edges)))
    width = np.diff(places)
    middle = 0.5 * (places[1:] + places[:-1])
    center = float(mass @ middle) / max(float(mass.sum()), 1e-300)
    away = middle - center
    sums = np.zeros((3, len(places)))
    np.cumsum([mass, mass * away, mass * (away**2 + width**2 / 12)], axis=1, out=sums[:, 1:])
    # Differences of running sums: subtract the possible rounding.
    slack = 8 * len(places) * 2.0**-53 * sums[2, -1]
    density = mass / np.maximum(width, 1e-300)
    peak = middle[int(np.argmax(density))]
    bumps = np.abs(np.diff(density))
    variation = np.concatenate([[0.0], np.cumsum(bumps)])
    # Masses and variations left of a place, and right of it.
    before = sums[0], np.concatenate([[0.0], density[0] + variation + density])
    after = (
        sums[0, -1] - sums[0] - len(places) * 2.0**-53,
        np.append(variation[-1] - variation + density + density[-1], 0.0) * (1 + 1e-9),
    )
    turns = np.ones(len(places), bool)  # both ends bound a cell
    losses = np.zeros(len(edges))
    charge(int(np.count_nonzero(wanted)) * (5 * CALL + 120 * len(places)))
    for j, u in enumerate(edges):
        if not wanted[j]:
            continue
        alone = mass * (1 - _largest_sinc(0.5 * u * width))
        if j == len(edges) - 1:
            losses[j] = max(alone.sum(), sums[0, -1] - before[1][-1] / u)
            continue
        following = edges[j + 1]
        size = math.sqrt(12) / math.hypot(u, following)  # the gain is equal at both heights
        cell = np.floor((places - peak) / size + 0.5)
        turns[1:-1] = cell[1:-1] != cell[:-2]
        cuts = np.flatnonzero(turns)
        gain = _gain(np.diff(sums[:, cuts], axis=1), np.diff(places[cuts]), slack, u, following)
        gain = np.maximum(gain, np.add.reduceat(alone, cuts[:-1]))
        run = np.concatenate([[0.0], np.cumsum(gain)])
        left = before[0][cuts] - before[1][cuts] / u - run
        right = after[0][cuts] - after[1][cuts] / u - (run[-1] - run)
        a, b = int(np.argmax(left)), int(np.argmax(right))
        more = max(left[a], 0.0) + max(right[b], 0.0) if a <= b else max(left[a], right[b], 0.0)
        losses[j] = run[-1] + more
    return repeat(np.log1p(-np.minimum(losses * (1 - 1e-9), 1 - 1e-16)))


def _gain(sums: Array, width: Array, slack: float, u: float, following: float) -> Array:
    """Return a lower bound on how much each block lowers |phi(u)|, for all u in [u, following].

    Args:
        sums: mass and first two moments of each block, shape (3, n).
        width: their widths.
        slack: bound on the rounding of a second moment.
    """
    total, moment, second = sums
    if following > 1e150:  # squares overflow: nothing is claimed
        return np.zeros(len(width))
    spread = second - moment**2 / np.maximum(total, 1e-300) - slack
    square = width**2 / 12
    # u^2 (1 - u^2 d^2 / 12) is concave in u^2, so the minimum is at an end.
    worth = np.minimum(u**2 * (1 - u**2 * square), following**2 * (1 - following**2 * square))
    return np.maximum(spread, 0.0) * np.maximum(worth, 0.0) / 2


def _thin_edges(edges: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return at most `MAX_EDGES` edges, and a function that repeats their bounds for all edges."""
    if len(edges) <= MAX_EDGES:
        return edges, lambda bound: bound
    places = np.geomspace(float(edges[0]), float(edges[-1]), MAX_EDGES)
    index: Array = np.unique(np.searchsorted(edges, places))
    index[0] = 0
    index = np.unique(np.minimum(np.append(index, len(edges) - 1), len(edges) - 1))
    times = np.diff(np.append(index, len(edges)))
    return edges[index], lambda bound: np.repeat(bound, times)


def _largest_sinc(x: Array) -> Array:
    """Return the largest |sin v / v| over v >= x."""
    near = np.clip(x, 1e-9, SINC_KNEE)
    return np.where(
        x < SINC_KNEE, np.sin(near) / near, np.minimum(LOBES, 1 / np.maximum(x, SINC_KNEE))
    )
