"""Compute profiles of sums of losses with finitely many values by lines.

Losses of discrete noise on a sample are unevenly spaced. Their characteristic function is a short
sum that returns near 1 far out. But the mean of its squared size over any window is at most the
mean around 0. So sums over cells bound the nodes beyond the last one of a line. Rare large losses
are split off by size, as for Gaussian steps (`bracket_sum`). See
docs/certificates/finite-values.md for the derivation.
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
from neyman.curves.profiles.contour.contour import LIMITS as CONTOUR_LIMITS
from neyman.curves.profiles.contour.contour import ContourLines, ContourProfile
from neyman.curves.profiles.contour_line import LIMITS, Line, Telescope, line_at, rough, tilts_of
from neyman.curves.profiles.duality import log_power_near
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.lattice.lattice import tilt_of_level
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.profiles.selection import register
from neyman.numerics.arrays import Array, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, rounding, wave_sum
from neyman.numerics.operations import CALL, charge, in_question
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above

WINDOWS = (1 + math.pi**2 / 6) / math.pi  # factor of a window's mean, over its end squared [FV-3]
GOOD_WIDTH = 1e-8  # width of log delta at which one line suffices


@dataclass(frozen=True)
class FiniteSum:
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
    def listed(self) -> bool:
        return True

    @property
    def span(self) -> float:
        return 0.0

    @property
    def _has_levels(self) -> bool:
        return self.low > -math.inf or self.high < math.inf

    def places(self, tilt: float, height: float) -> float:
        return self.losses.places(tilt, height)

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        if self._has_levels:
            return np.zeros(len(edges))  # `end` bounds the nodes
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
        if not self._has_levels:
            return self.losses.mgf(z, log_rest)
        if z.dtype.kind == "c":
            return self._on_line(float(z[0].real), np.imag(z))
        each = [self._on_line(c, np.zeros(1)) for c in z.tolist()]
        log_f, error = np.real(np.array(each))[:, :, 0].T
        return log_f, error

    @np.errstate(all="ignore")  # a NaN gives a trivial bound
    def _on_line(self, tilt: float, u: Array) -> tuple[Array, Array]:
        total, gain = np.zeros(len(u), complex), np.zeros(len(u), complex)
        worst, inside, size, missing = np.zeros(len(u)), np.zeros(len(u)), np.ones(len(u)), 0.0
        for law in self.laws(tilt):
            n = law.count
            below, within = law.waves(u)
            error, more = law.errors(u)
            if self.low == -math.inf:
                moved, error = _log1p(within), np.zeros(len(u))
            else:
                moved = _log1p(below - law.alpha)
                ratio = log1p((law.alpha + within) * np.exp(-moved))
                gain, missing = gain + n * ratio, missing + n * law.log_share
                size = size + n * np.abs(ratio)
            total, size = total + n * (law.log_mgf + moved), size + n * np.abs(moved)
            worst, inside = worst + n * (error + more + law.error), inside + n * more
        if self.low > -math.inf:
            near = np.real(gain) < 30
            moved = np.where(near, np.log(np.expm1(np.where(near, gain, 1.0))), gain)
            far = gain + np.log1p(-np.exp(-np.where(near, 30.0, gain)))
            total = total + np.where(near, moved, far)
            inside = inside / -math.expm1(missing)
            worst = worst + inside
        # |F| over its value at u = 0, which it does not exceed.
        phi = np.exp(np.minimum(real_part(total) - total[0].real, 0.0))
        error = worst * np.exp(worst) + 16 * UNIT * (size * phi + 1)  # slack: counted
        return total, np.where(np.isfinite(error), error, math.inf)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return log F, and mean and variance of the measure under each tilt; uncertified."""
        if not self._has_levels:
            return self.losses.moments(tilts)
        with np.errstate(all="ignore"):
            return self._moments(tilts)

    def _moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        k, mean, variance, missing, rises, bends = np.zeros((6, len(tilts)))
        for law, n in self.losses.laws:
            values = law.tilted_values(0.0)
            assert values is not None
            place = values.place[values.place <= self.high]
            charge(CALL + 100 * len(tilts) * len(place))
            p = np.multiply.outer(tilts, place) + values.log_p[values.place <= self.high]
            top = p.max(axis=1)
            p = np.exp(p - top[:, None])
            total = p.sum(axis=1)
            k = k + n * (top + np.log(total))
            p /= total[:, None]
            split = self.low > -math.inf
            inside, below = (p * (place > self.low), p * (place <= self.low)) if split else (p, p)
            m = below @ place / below.sum(axis=1)
            away = (place - m[:, None]) ** 2
            v = (below * away).sum(axis=1) / below.sum(axis=1)
            mean, variance = mean + n * m, variance + n * v
            if split:
                alpha = inside.sum(axis=1)
                far = (inside * (place - m[:, None])).sum(axis=1)
                square = (inside * away).sum(axis=1)
                missing, rises = missing + n * np.log1p(-np.minimum(alpha, 1.0)), rises + n * far
                bends = bends + n * (square - alpha * v - far * far)
        if self.low == -math.inf:
            return k, mean, variance
        scale = -np.expm1(missing)
        move = rises / scale
        spread = variance + (bends + rises * rises) / scale - move * move
        return k + np.log(scale), mean + move, np.maximum(spread, 1e-300)

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
        split = self.low > -math.inf
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
        affordable = np.searchsorted(u, step * min(LIMITS.nodes, LIMITS.wave_terms / terms)) - 2
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


class FiniteSumProfile(ContourProfile):
    """Compute the profile of a sum of finitely many values by lines.

    Where one line is wide, brackets by the largest term have a line each.
    """

    patient = False

    def __init__(self, losses: Composition) -> None:
        reverse = losses.reverse()

        def backward() -> Profile:
            return in_question(("finite sum", reverse), lambda: FiniteSumProfile(reverse))

        super().__init__(
            FiniteSum(losses), backward, losses.infinite, above(losses.supremum), losses.log_top
        )
        self._composition = losses
        each = [loss.tilted_values(0.0) for loss, _ in losses.laws]
        # Below e^-600, a share of a value could leave the floats.
        places = np.unique(np.concatenate([v.place[v.log_p > -600] for v in each if v is not None]))
        self._spread = math.sqrt(float(losses.moments(np.zeros(1))[2][0]))
        # Levels are between values, each an eighth of the next one, and just above these values.
        top = float(places[-1])
        levels = [top + 1e-9 * abs(top) + 1e-300]
        positive, level = places[places > 0], top / 8
        while level > 0.03 * self._spread and len(levels) < 40:
            k = int(np.searchsorted(positive, level))
            if k == 0:
                break
            levels.append(0.5 * float(positive[k - 1] + positive[k]))
            level /= 8
        levels = sorted({-math.inf, *levels})
        self._brackets = [FiniteSum(losses, a, b) for a, b in pairwise(levels)]

    def _line(self, epsilon: float) -> ContourLines | None:
        line = super()._line(epsilon)
        width = math.inf if line is None else line.width(epsilon)
        if width <= GOOD_WIDTH:
            return line
        # Levels far below epsilon are one bracket.
        low = next((x.high for x in self._brackets if x.high > epsilon / 8), math.inf)
        brackets = [FiniteSum(self._composition, -math.inf, low)]
        brackets += [x for x in self._brackets if x.low >= low]
        bounds = [_chernoff(x, epsilon) for x in brackets]
        most = max(bound for bound, _, _ in bounds)
        lines: list[Line] = []
        rest: list[tuple[float, float]] = []
        for bracket, (bound, tilt, log_f) in zip(brackets, bounds, strict=True):
            one = line_at(bracket, epsilon) if bound > most - 28 else None
            if one is None:
                rest.append((tilt, log_f))
            else:
                lines.append(one)
        # Values above the last level: F <= n E[e^{cL}; L beyond] M^(n - 1) [FV-1]. Here c = 1, as
        # a large tilt makes values likely that are below e^-600.
        c, beyond = 1.0, 0.0
        for loss, n in self._composition.laws:
            values = loss.tilted_values(c)
            assert values is not None
            logs = values.log_p[values.place > brackets[-1].high].tolist()
            logs += [log_share for log_share, x in values.lost if x > brackets[-1].high]
            beyond += n * math.fsum(math.exp(min(log_share, 700.0)) for log_share in logs)
        k, error = (float(v[0]) for v in self._composition.mgf(np.array([c])))
        log_f = k + math.log1p(error) + math.log(beyond + 1e-300)
        rest.append((c, log_f + 16 * UNIT * (1 + abs(k))))  # slack: counted
        split = Telescope(tuple(lines), tuple(rest))
        return split if lines and split.width(epsilon) < width else line

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon with this log delta by bisection, then by Newton's method."""
        top = min(self._supremum, 1e9)
        ends = math.log(1e-6 * self._spread), math.log(top)
        if not (ends[0] < ends[1] and self._rough(math.exp(ends[0])) > log_delta):
            return 1.0

        def above_delta(log_epsilon: float) -> bool:
            return self._rough(math.exp(log_epsilon)) > log_delta

        epsilon = math.exp(bisect(above_delta, *ends, width=0.05)[0])
        for _ in range(8):
            low, high = self.log_deltas(epsilon * np.array([1.0, 1 + 1e-5]))
            middle = 0.5 * (low + high)
            if not np.all(np.isfinite(middle)) or middle[1] >= middle[0]:
                break
            slope = float(middle[1] - middle[0]) / 1e-5
            move = (log_delta - float(middle[0])) / slope
            epsilon = min(epsilon * math.exp(min(max(move, -2.0), 2.0)), 0.999999 * top)
            if abs(move) < 1e-3:
                break
        return epsilon

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log powers by deltas near the threshold of the test, for each level."""
        ends: list[Interval] = []
        for level in log_levels.tolist():
            tilt = np.array([tilt_of_level(self._losses, level, 1e6)])
            _, star, variance = (float(v[0]) for v in self._losses.moments(tilt))
            scale = 0.3 * math.sqrt(variance)
            if star > 0:  # the place at which delta + e^epsilon level is about least
                epsilon = np.geomspace(1e-3, 1e3, 61) * self._spread
                epsilon = epsilon[epsilon < self._supremum]
                g = [np.logaddexp(self._rough(e), e + level) for e in epsilon.tolist()]
                k = int(np.argmin(g))
                star, scale = float(epsilon[k]), 0.2 * float(epsilon[k])
            near = log_power_near(self.log_deltas, level, star, scale)
            if near[0] == -math.inf:
                low, high = super()._by_duality(np.array([level]))
                near = float(low[0]), float(high[0])
            ends.append(near)
        low, high = np.array(ends).T
        return low, high

    def _rough(self, epsilon: float) -> float:
        """Estimate log delta, from the bell shapes of the integrands of all brackets."""
        each = np.array([rough(x, epsilon) for x in self._brackets])
        return float(np.logaddexp.reduce(np.where(np.isnan(each), -math.inf, each)))


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


def _log1p(m: Array) -> Array:
    """Return log(1 + m), and log 1e-16 where 1 + m is less."""
    return log1p(np.where(np.abs(1 + m) < 1e-16, 1e-16 - 1, m))


def _chernoff(bracket: FiniteSum, epsilon: float) -> tuple[float, float, float]:
    """Return Chernoff's bound on the log of a bracket's share of delta, its tilt, and log F."""
    c = math.exp(tilts_of(bracket, epsilon)[1])
    k, error = (float(v[0]) for v in bracket.mgf(np.array([c])))
    slack = 8 * UNIT * abs(k)  # slack: counted
    log_f = k + math.log1p(error) + slack if error < math.inf else math.inf
    return log_f - c * epsilon, c, log_f


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
