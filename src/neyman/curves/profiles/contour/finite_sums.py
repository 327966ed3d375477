"""Compute profiles of sums of losses with finitely many values by lines.

Losses of discrete noise on a sample are unevenly spaced. Their characteristic function is a short
sum that returns near 1 far out. But the mean of its squared size over any window is at most the
mean around 0. So sums over cells bound the nodes beyond the last one of a line. Rare large losses
are split off by size, as for Gaussian steps (`brackets`). See
docs/certificates/contour-parts.md for the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import TiltedValues
from neyman.curves.losses.piecewise_analytic import PiecewiseAnalyticLoss
from neyman.curves.profiles.combination import CascadeProfile
from neyman.curves.profiles.contour.brackets import (
    RATIO,
    BracketSum,
    CutTransform,
    CutWeights,
    LargestTermProfile,
)
from neyman.curves.profiles.contour.contour import LIMITS as CONTOUR_LIMITS
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import Profile
from neyman.curves.profiles.selection import register
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import rounding, wave_sum
from neyman.numerics.operations import CALL, charge, in_question

WINDOWS = (1 + math.pi**2 / 6) / math.pi  # factor of a window's mean, over its end squared [FV-3]


@dataclass(frozen=True)
class FiniteSum(BracketSum):
    """Represent a sum of losses that each have finitely many values.

    With levels, it is a bracket [FV-1]: the sums of which no term is above ``high``, less those of
    which no term is above ``low``, a positive measure.

    Args:
        losses: the sum.
        low, high: the levels.
    """

    losses: Composition
    low: float = -math.inf
    high: float = math.inf

    @property
    def _has_levels(self) -> bool:
        return self.split or self.high < math.inf

    @property
    def wave_nodes(self) -> int:
        return 1 << 16

    def places(self, tilt: float, height: float) -> float:
        return self.losses.places(tilt, height)

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        if self._has_levels:
            return super().log_decay(tilt, edges, need)
        return self.losses.log_decay(tilt, edges, need)

    def laws(self, tilt: float) -> list[_CutValues]:
        """Return the values of each loss under a tilt, up to ``high``."""
        laws: list[_CutValues] = []
        for loss, count in self.losses.laws:
            # Values up to a level need no larger tilt to be listed, at which all else has the mass.
            known = tilt if self.high == math.inf else 0.0
            values = loss.tilted_values(known)
            assert values is not None
            law = _CutValues.of(values, tilt - known, count, self.low, self.high)
            laws.append(law if known else law.with_k(*_k_near_zero(values, tilt, self.high)))
        return laws

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return log F(z), and a bound on the error of F(z) relative to F(Re z) [FV-1]."""
        return super().mgf(z) if self._has_levels else self.losses.mgf(z, log_rest)

    def transforms(self, tilt: float, u: Array) -> list[tuple[int, CutTransform]]:
        return [(law.count, law.transform(u, split=self.split)) for law in self.laws(tilt)]

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return log F, and mean and variance of the measure under each tilt; uncertified."""
        return super().moments(tilts) if self._has_levels else self.losses.moments(tilts)

    def weights(self) -> list[CutWeights]:
        each: list[CutWeights] = []
        for loss, count in self.losses.laws:
            values = loss.tilted_values(0.0)
            assert values is not None
            place, log_p = (v[values.place <= self.high] for v in (values.place, values.log_p))
            low = np.where(place <= self.low, log_p, -math.inf) if self.split else None
            inside = np.where(place > self.low, log_p, -math.inf)
            each.append(CutWeights(count, place, low, inside))
        return each

    def end(self, tilt: float, need: float, step: float) -> tuple[float, float] | None:
        """Return a height, and the log of a bound on the nodes beyond it [FV-3].

        The bound is on the sum of |F| h / (pi u^2) over all nodes u = j h beyond the height, over
        F at u = 0.

        Args:
            tilt: the c of the line.
            need: e-folds by which the bound should be below 1.
            step: the distance h of nodes.

        Returns:
            Both numbers; None if the bound is more than e^15 times too large.
        """
        laws = self.laws(tilt)
        spread = math.sqrt(max(law.moments[1] for law in laws))
        if not spread > 0:
            return None
        sharp = math.sqrt(math.fsum(law.count * law.moments[1] for law in laws))
        far = math.sqrt(10 * WINDOWS / sharp) * math.exp(min(0.5 * need, 300.0))
        terms = sum(len(law.low) + len(law.inside) for law in laws)
        most = min(4e7 / terms, 1 << 18)
        # There |phi|^2 of a loss differs from its chord by less than width^2 V / 4 <= .01.
        widest = min(max(1 / sharp, far / most), 0.2 / spread)
        # Cells of a deviation around 0, where the mean is; then each at most an eighth of its
        # height; then as wide as work and chords permit.
        stretches: list[Array] = [np.arange(65) / sharp]
        while (first := float(stretches[-1][-1])) < 8 * widest:
            stretches.append(first * (1 + 0.125 * np.arange(57)))
        count = math.ceil(min(max(far - first, widest) / widest, most))
        stretches.append(first + widest * np.arange(count + 1))
        charge(CALL + count * (300.0 * len(laws) + 10 * terms), count)
        split = self.split
        each = [[law.sizes(x, split=split) for x in stretches] for law in laws]
        size = np.ones(sum(map(len, each[0])))
        for sizes in each:
            size *= np.concatenate(sizes)
        u = np.concatenate([stretches[0], *(x[1:] for x in stretches[1:])])
        if split:  # n a (m + a)^(n - 1) over (m + a)^n - m^n
            missing = math.fsum(law.count * law.log_share for law in laws)
            share = math.fsum(law.count * law.alpha for law in laws)
            size = size * (share / -math.expm1(missing))
        with np.errstate(over="ignore"):
            cells = size * (np.diff(u) + step)
        beyond = WINDOWS * 2 * float(cells.sum()) / max(float(u[-1]) - step, step) ** 2
        cells = cells[1:] / (math.pi * u[1:-1] ** 2)
        rest = np.cumsum(np.append(beyond, cells[::-1]))[::-1] * (1 + 1e-9)
        affordable = np.searchsorted(u, step * min(self.wave_nodes, 3e8 / terms)) - 2
        k = min(int(np.argmax(rest <= max(math.exp(-need), 2 * beyond))), max(int(affordable), 0))
        if not rest[k] < math.exp(15 - need):
            return None
        return float(u[k + 1]), math.log(float(rest[k]))


@dataclass(frozen=True, eq=False)
class _CutValues:
    """Hold the values of a loss under a tilt, below a bracket and inside.

    Args:
        low, low_p: values below the bracket, and their shares of all values up to its top.
        inside, inside_p: values in the bracket, and their shares.
        low_error, inside_error: (e, f, s, m): at a height u, the sum below or inside errs by at
            most e + min(f, s u) + m u.
        log_mgf, error: K of the values up to the top, and a bound on its error.
        count: number of copies.
    """

    low: Array
    low_p: Array
    inside: Array
    inside_p: Array
    low_error: tuple[float, float, float, float]
    inside_error: tuple[float, float, float, float]
    log_mgf: float
    error: float
    count: int

    @staticmethod
    def of(values: TiltedValues, tilt: float, count: int, low: float, high: float) -> _CutValues:
        place = values.place
        log_p = values.log_p + tilt * place
        below, beyond = place <= low, place > high
        within = ~(below | beyond)
        cut = float(np.logaddexp.reduce(log_p[~beyond]))
        p = np.where(beyond, 0.0, np.exp(np.minimum(log_p - cut, 0.0)))
        # The exponents are rounded again, and K of the values up to the top is a sum.
        sizes = np.abs(values.log_p) + np.abs(tilt * place) + abs(cut)
        rounded = 4 * UNIT * (sizes + len(p) + 8)  # slack: counted
        units = p * (values.units + rounded)
        moves = p * (values.moves + 8 * UNIT) * np.abs(place)  # slack: counted
        share = 2 * float(units[within].sum()) if low > -math.inf else 0.0  # error of alpha
        parts: list[Array] = []
        errors: list[tuple[float, float, float, float]] = []
        for part, start, end in ((below, -math.inf, low), (within, low, high)):
            used = part & (p > math.exp(-60) * p.max(where=part, initial=0.0))
            lost = [a + tilt * x - cut for a, x in values.lost if start < x <= end]
            left = float(p[part & ~used].sum()) * (1 + 1e-9) + share
            left += math.fsum(math.exp(min(log_share, 700.0)) for log_share in lost)
            # An error of a share, and of the sum of all, moves p (e^{iul} - 1) by as much.
            flat, sway = 4 * float(units[part].sum()), 2 * float(units @ np.abs(place * part))
            errors.append((left, flat, sway, float(moves[part].sum())))
            parts += [place[used], p[used]]
        error = float(units.sum()) + errors[0][0] + errors[1][0]
        error += 4 * UNIT * (abs(values.log_mgf) + abs(cut))  # slack: counted
        log_mgf = values.log_mgf + cut
        lower, lower_p, inside, inside_p = parts
        return _CutValues(
            lower, lower_p, inside, inside_p, errors[0], errors[1], log_mgf, error, count
        )

    def with_k(self, log_mgf: float, error: float) -> _CutValues:
        """Return these values with another bound on K, if it is narrower."""
        return replace(self, log_mgf=log_mgf, error=error) if error < self.error else self

    @property
    def alpha(self) -> float:
        """Return the share of the values in the bracket."""
        return float(self.inside_p.sum())

    @property
    def log_share(self) -> float:
        """Return log(1 - alpha)."""
        return math.log1p(-self.alpha) if self.alpha < 1 else -math.inf

    @property
    def wave(self) -> tuple[Array, Array]:
        """Return the values whose wave decays: those below the bracket, or all without one."""
        return (self.low, self.low_p) if len(self.low) else (self.inside, self.inside_p)

    @property
    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of these values."""
        place, p = self.wave
        total = float(p.sum()) or math.nan
        mean = float(p @ place) / total
        return mean, float(p @ (place - mean) ** 2) / total

    def waves(self, u: Array) -> tuple[Array, Array]:
        """Return the sums of p (e^{iul} - 1) below the bracket and inside."""
        none = np.zeros(len(u), complex)
        return (
            wave_sum(self.low, self.low_p, u) if len(self.low) else none,
            wave_sum(self.inside, self.inside_p, u) if len(self.inside) else none,
        )

    def errors(self, u: Array) -> tuple[Array, Array]:
        """Return bounds on the errors of both sums of waves, relative to M."""
        low, high = (
            e + np.minimum(f, s * u) + m * u for e, f, s, m in (self.low_error, self.inside_error)
        )
        if len(self.low):
            low = low + rounding(self.low, self.low_p, u)
        if len(self.inside):
            high = high + rounding(self.inside, self.inside_p, u)
        return low, high

    @np.errstate(all="ignore")
    def transform(self, u: Array, *, split: bool) -> CutTransform:
        """Return the transforms of this loss below the bracket and inside."""
        below, within = self.waves(u)
        (error, more), own = self.errors(u), self.error
        if not split:
            return CutTransform(-math.inf, self.log_mgf, below, within, error, more + own)
        alpha = max(self.alpha, 1e-300)
        rest = math.exp(self.log_share)
        log_low, log_inside = self.log_mgf + self.log_share, self.log_mgf + math.log(alpha)
        low, inside = below / rest, within / alpha
        return CutTransform(
            log_low, log_inside, low, inside, error / rest + own, more / alpha + own
        )

    def sizes(self, u: Array, *, split: bool) -> Array:
        """Return bounds on |phi| to the power n in each cell between two heights [FV-2].

        chi^2 has a second derivative of at most 2 V, so it is at most its larger end plus
        V width^2 / 4. (chi + a)^2 <= (1 + a)(chi^2 + a), and x^n <= (x^(n - 1) + x^(n + 1)) / 2
        for an odd n. So every bound is a polynomial in chi^2 with positive coefficients: a
        characteristic function, too. For a bracket, n is one less.
        """
        place, p = self.wave
        error = 2 * float(max(e[-1] for e in self.errors(u)))
        # The heights are evenly spaced, so that few waves give all.
        step = float(u[-1] - u[0]) / (len(u) - 1)
        turned = p * np.exp(1j * float(u[0]) * place)
        wave = turned.sum() + wave_sum(place, turned, step * np.arange(len(u)))
        chi = np.abs(wave) + error
        a = self.alpha if split else 0.0
        even, odd = divmod(self.count - split, 2)
        with np.errstate(over="ignore"):  # an infinite bound is no bound
            square = np.maximum(chi[1:], chi[:-1]) ** 2
            square += 0.25 * self.moments[1] * float(p.sum()) ** 2 * step**2 * (1 + 1e-6)
            square = (1 + a) * (square + a)
            size = np.exp(even * (np.log(square) + 8 * UNIT) + 1e-9) + 1e-290  # slack: counted
            return size * (0.5 * (1 + square)) if odd else size


class FiniteSumProfile(LargestTermProfile):
    """Compute the profile of a sum of finitely many values by lines."""

    def __init__(self, losses: Composition) -> None:
        reverse = losses.reverse()

        def backward() -> Profile:
            return in_question(("finite sum", reverse), lambda: FiniteSumProfile(reverse))

        each = [loss.tilted_values(0.0) for loss, _ in losses.laws]
        # Below e^-600, a share of a value could leave the floats.
        places = np.unique(np.concatenate([v.place[v.log_p > -600] for v in each if v is not None]))
        spread = math.sqrt(float(losses.moments(np.zeros(1))[2][0]))
        super().__init__(FiniteSum(losses), FiniteSum(losses), losses, backward, spread)
        self._places = places

    def brackets(self, epsilon: float, ratio: float = RATIO) -> list[FiniteSum]:
        """Return brackets for an epsilon. Levels far below it are one."""
        levels = in_question((self, ratio), lambda: self._levels(ratio))
        low = next((x for x in levels if x > epsilon / ratio), levels[-1])
        levels = [-math.inf, *(x for x in levels if x >= low)]
        return [FiniteSum(self._composition, a, b) for a, b in pairwise(levels)]

    def _levels(self, ratio: float) -> list[float]:
        """Return levels between values, from about the spread up, and one just above all values."""
        top = float(self._places[-1])
        levels = [top + 1e-9 * abs(top) + 1e-300]
        positive, level = self._places[self._places > 0], top / ratio
        while level > 0.03 * self._spread and len(levels) < 40:
            k = int(np.searchsorted(positive, level))
            if k == 0:
                break
            levels.append(0.5 * float(positive[k - 1] + positive[k]))
            level /= ratio
        return sorted({*levels})

    def beyond(self, last: float) -> list[tuple[float, float]]:
        """Bound values above the last level: F <= n E[e^{cL}; L beyond] M^(n - 1) [FV-1]."""
        # Here c = 1, as a large tilt makes values likely that are below e^-600.
        c, more = 1.0, 0.0
        for loss, n in self._composition.laws:
            values = loss.tilted_values(c)
            assert values is not None
            logs = values.log_p[values.place > last].tolist()
            logs += [log_share for log_share, x in values.lost if x > last]
            more += n * math.fsum(math.exp(min(log_share, 700.0)) for log_share in logs)
        k, error = (float(v[0]) for v in self._composition.mgf(np.array([c])))
        log_f = k + math.log1p(error) + math.log(more + 1e-300)
        return [(c, log_f + 16 * UNIT * (1 + abs(k)))]  # slack: counted


def _k_near_zero(plain: TiltedValues, tilt: float, high: float) -> tuple[float, float]:
    """Return K of the values up to ``high``, accurate near 0, and a bound on its error.

    M - 1 is the sum of p (e^{cl} - 1), less the mass above. ``plain``: the values at tilt 0.
    """
    inside = plain.place <= high
    place, p = plain.place[inside], np.exp(plain.log_p[inside])
    move = tilt * place
    if float(move.max()) > 300.0:
        return 0.0, math.inf
    gain = p * np.expm1(move)
    beyond = float(np.exp(plain.log_p[~inside]).sum())
    # A share errs with its mass and with the sum of all masses.
    units = plain.units + float(np.exp(plain.log_p) @ plain.units)
    excess = float(gain.sum()) - beyond
    if abs(excess) > 0.5:
        return 0.0, math.inf
    # e^x - 1 moves by at most |x| e^x times the relative error of x. Sums err by 40 units.
    moved = (p + np.abs(gain)) * np.abs(move) * (plain.moves[inside] + 8 * UNIT)  # slack: counted
    error = float((np.abs(gain) * (units[inside] + 48 * UNIT) + moved).sum())  # slack: counted
    error += beyond * (float(units.max()) + 48 * UNIT)  # slack: counted
    lost = math.fsum(math.exp(min(a + tilt * x, 0.0)) for a, x in plain.lost if x <= high)
    lost += math.fsum(math.exp(min(a, 0.0)) for a, _ in plain.lost)
    k = math.log1p(excess)
    # slack: counted
    return plain.log_mgf + k, plain.error + 2 * (error + lost) + 4 * UNIT * abs(k)


@register(96, "samples of discrete noise: lines that end where a mean over windows bounds the rest")
def _finite_sums(composition: Composition) -> Profile | None:
    parts = composition.parts
    if not any(isinstance(x, PiecewiseAnalyticLoss) for x, _ in parts):
        return None
    values = [loss.tilted_values(0.0) for loss, _ in composition.laws]
    if any(v is None or not 1 < len(v.place) <= 4_000 for v in values):
        return None
    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, lambda: FiniteSumProfile(composition))
    ]
    if sum(n for _, n in parts) <= CONTOUR_LIMITS.grid_releases:
        engines.append((1e-6, lambda: dots_profile(composition)))
    return CascadeProfile(engines, composition.log_total_variation)
