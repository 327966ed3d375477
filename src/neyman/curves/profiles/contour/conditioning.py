"""Compute the profile of a sum, given the outcomes of its parts with listed atoms [CD-1].

    delta(epsilon) = sum over k of p_k delta_rest(epsilon - l_k) + infinite mass of listed parts

The atoms (l_k, p_k) are the losses and masses of the sum of the listed parts. Nothing is
discretized, so the result is as accurate as the profile of the rest. Atoms with a tiny weight under
a tilt are replaced by a Chernoff bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import Loss
from neyman.curves.profiles.contour.continuous_parts import near_thresholds, newton_epsilon
from neyman.curves.profiles.contour.contour import ContourProfile
from neyman.curves.profiles.contour_line import log_kernel, saddle
from neyman.curves.profiles.profile import Engine, Profile
from neyman.curves.profiles.selection import select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.power_sums import added
from neyman.numerics.rounding import above, known


@dataclass(frozen=True)
class Limits:
    """Limits on the atoms to list, and on the tilts. All values give valid bounds."""

    least_weight: float = 1e-18  # least tilted weight of an atom, relative to the largest
    power_width: float = 1e-10  # relative width of a power at which the search stops
    least_reach: float = 1e-9  # least deviation of the sums of the listed parts
    tilt_reach: float = 1e4  # largest tilt times deviation, for accurate exponents


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class _Given:
    """Hold the atoms of the sum of the listed parts.

    Args:
        loss, log_p: losses and log masses of the atoms.
        place: bound on the error of a loss.
        slack: bounds on the errors of log masses.
        log_rest: log of a number R: the omitted atoms add at most R e^{-tilt epsilon} to delta.
        tilt: the tilt under which atoms are selected.
    """

    loss: Array
    log_p: Array
    place: float
    slack: Array
    log_rest: float
    tilt: float


class ConditionedProfile(ContourProfile):
    """Compute the profile of a sum, from listed atoms and the profile of the rest.

    Args:
        losses: the sum.
        listed: parts whose sums are available atom by atom.
        rest: all other parts, without infinite losses.
        profile: profile of the rest.
        limits: decides which atoms to list.
    """

    patient = False

    def __init__(
        self,
        losses: Composition,
        listed: Composition,
        rest: Composition,
        profile: Profile,
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        backward, infinite = losses.reverse(), listed.infinite
        largest = above(losses.supremum)
        super().__init__(losses, lambda: select(backward), infinite, largest, losses.log_top)
        self._listed, self.rest, self._profile = listed, rest, profile
        self.method = f"{self._profile.method}, given the listed parts"
        self.engine = Engine.CONTOUR
        self._given: dict[float, _Given] = {}
        self._log_infinite = math.log(infinite) if infinite else -math.inf
        variance = float(listed.moments(np.zeros(1))[2][0])
        self._largest = self._limits.tilt_reach / max(math.sqrt(variance), self._limits.least_reach)

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        low, high = np.full((2, len(epsilons)), self._log_infinite)
        inside = np.flatnonzero(epsilons < self._supremum)
        if len(inside):
            middle = float(np.median(epsilons[inside]))
            given = self._atoms(saddle(self._losses, middle, self._largest))
            low[inside], high[inside] = self._sums(given, epsilons[inside])
        return low, high

    def _atoms(self, tilt: float) -> _Given:
        """Return the atoms selected under about this tilt. Any tilt is valid."""
        tilt = 2.0 ** round(math.log2(tilt))
        if tilt not in self._given:
            self._given[tilt] = self._new_atoms(tilt)
        return self._given[tilt]

    def _new_atoms(self, tilt: float) -> _Given:
        parts = [
            x.sum_atoms(n, tilt, 0.01 * self._limits.least_weight) for x, n in self._listed.laws
        ]
        atoms = added(parts, tilt)
        used = atoms.weight > self._limits.least_weight * float(atoms.weight.max())
        lost = float(atoms.weight[~used].sum()) * (1 + 1e-9) + atoms.tail + 1e-300
        place = 4 * UNIT * float(np.abs(atoms.loss).max()) + atoms.place  # slack: counted
        loss, weight = atoms.loss[used], atoms.weight[used]
        log_p = np.log(weight) + atoms.log_scale - tilt * loss
        size = np.abs(np.log(weight)) + abs(atoms.log_scale) + tilt * np.abs(loss)
        relative = np.broadcast_to(atoms.relative, atoms.loss.shape)[used]
        slack = 2 * relative + tilt * place + 4 * UNIT * (size + 2)  # slack: counted
        c = np.array([tilt])
        k, error = (float(v[0]) for v in self.rest.mgf(c))
        # Each term errs by a few units of its size. Those of log kappa are about c log c.
        size = 4 + abs(k) + abs(math.log(lost)) + abs(atoms.log_scale) + 2 * tilt * tilt
        log_rest = (
            math.log(lost) + atoms.log_scale + k + math.log1p(error) + float(log_kernel(c)[0])
        )
        return _Given(loss, log_p, place, slack, log_rest + 8 * UNIT * size, tilt)  # slack: counted

    def _sums(self, given: _Given, epsilons: Array) -> tuple[Array, Array]:
        places = np.subtract.outer(epsilons, given.loss)
        # slack: counted
        error = given.place + 2 * UNIT * (np.abs(places) + np.abs(given.loss)) + 1e-300
        asked, index = np.unique([places + error, places - error], return_inverse=True)
        ends = self._profile.log_deltas(asked)
        index = np.asarray(index).reshape(2, *places.shape)
        # A sum of logarithms errs by a unit of each, and a sum of n terms by n units.
        # slack: counted
        slack = given.slack + UNIT * (len(given.loss) + 64 + 4 * np.abs(given.log_p))
        moved = -given.tilt * epsilons * (1 - 8 * UNIT * np.sign(epsilons))  # slack: counted
        rest = given.log_rest + moved
        low, high = ends[0][index[0]], ends[1][index[1]]
        low = low + given.log_p - slack - 4 * UNIT * known(low)  # slack: counted
        high = high + given.log_p + slack + 4 * UNIT * known(high)  # slack: counted
        infinite = np.full(len(epsilons), self._log_infinite)  # the mass errs by a few units
        # slack: counted
        moved = 16 * UNIT * (1 + abs(self._log_infinite)) if self._infinite else 0.0
        low = np.column_stack([low, infinite - moved])
        high = np.column_stack([high, infinite + moved, rest])
        with np.errstate(divide="ignore"):
            return logsumexp(low, axis=1), np.minimum(logsumexp(high, axis=1), 0.0)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        return near_thresholds(
            self, self._losses, log_levels, self._largest, self._limits.power_width
        )

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, by Newton's method."""
        return newton_epsilon(self, self._losses, log_delta, self._supremum)


def conditioned(
    losses: Composition, most: float, profile_of: Callable[[Composition], Profile] = select
) -> ConditionedProfile | None:
    """Return the profile of a sum, given all parts whose sums can be listed.

    Return None if no part or every part can be listed, if there are more than ``most`` atoms, or if
    another part has infinite loss.
    """
    listed: list[tuple[Loss, int]] = []
    rest: list[tuple[Loss, int]] = []
    size = 1.0
    for loss, count in losses.laws:
        ways = loss.sum_size(count, truncated=True)
        size *= ways if ways < math.inf else 1.0
        (listed if ways < math.inf else rest).append((loss, count))
    if not listed or not rest or size > most or any(loss.infinite for loss, _ in rest):
        return None
    others = Composition.of(rest)
    return ConditionedProfile(losses, Composition.of(listed), others, profile_of(others))
