"""Define the loss of random allocation: a record enters one of T batches, which have noise.

With the record, the outcome x has the distribution P, the mean over t of N(mu e_t, I) in T
coordinates; without it, Q = N(0, I) [RA-1]. With Y_t = e^{mu x_t - mu^2 / 2} and S = Y_1 + ... +
Y_T, the loss is log(S / T). Under Q the Y_t are independent, each lognormal with mean 1, and

    delta of (P, Q) = E_Q[(S / T - e^epsilon)+],    delta of (Q, P) = E_Q[(1 - e^epsilon S / T)+]

are means of convex functions of S. Therefore, spreading the distribution of Y without moving its
mean gives an upper bound, and merging intervals into their means gives a lower bound. Both survive
addition. S is computed by repeated doubling. After each sum, its distribution is spread onto grid
points, or merged between them. The points are dense where S has most of its mass and sparse
elsewhere. All numbers are positive, so nothing cancels.

If a record enters k of T batches, each test is a lower bound. The test here compares the sum over t
of f(x_t) with thresholds, f a step function near log(1 + z e^{mu x}). Its terms are independent:
under Q all are alike, and under P k of them are shifted [RA-8].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr, ndtr

from neyman.curves.losses.bracket import ComposedLattice, LossBracket
from neyman.curves.losses.finite import PERFECT, OffLatticeLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import WIDE_NODES, WIDE_WEIGHTS, Loss, Part
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, Atoms, compose, repeated
from neyman.numerics.canonical_order import order_key
from neyman.numerics.discretization import Discretization
from neyman.numerics.rounding import below


@dataclass(frozen=True)
class Limits:
    """Limits on the range of x for a batch, on masses, and on mu."""

    reach_deviations: float = 26.0  # standard deviations of x: the mass beyond is below 1e-147
    least_mass: float = 1e-200  # smaller masses are dropped
    mu: float = 10.0  # a larger mu overflows
    # Outside, the test is the sum of all releases.
    test_mu: tuple[float, float] = (0.01, 4.0)
    test_batches: int = 10**5
    test_delta: float = 1e-5  # delta at which two tests are compared
    test_error: float = 5e-3  # largest relative error of a mass
    test_reach: float = 9.0  # standard deviations of x between which the test's f varies
    test_steps: int = 1 << 17  # most values of f
    test_cells: int = 4000  # most values of the sum, after neighbors are merged


LIMITS = Limits()


@dataclass(frozen=True)
class RandomAllocationLoss(Loss):
    """Represent a finite loss above or below the loss of random allocation.

    Args:
        distance: mu, the shift of a batch in standard deviations of its noise, above 0 and at most
            `LIMITS.mu`.
        batches: T, at least 2.
        side: 1 for a loss that dominates random allocation's, -1 for a loss that it dominates.
        removed: True for (P, Q), P with the record; False for (Q, P).
        times: k, the batches that a record enters, below T. Above 1, the side is -1.
    """

    distance: float
    batches: int
    side: int
    removed: bool
    times: int = 1

    @property
    def costly(self) -> bool:
        return True

    @property
    def _law(self) -> _AllocationDistribution:
        if self.times > 1:
            return _tested(self.distance, self.batches, self.times)
        return _law(self.distance, self.batches, self.side)

    @property
    def _base(self) -> OffLatticeLoss:
        return self._law.removed if self.removed else self._law.added

    @property
    def _shift(self) -> float:
        return self.side * self._law.apart

    @property
    def _log_factor(self) -> float:
        return self.side * self._law.relative

    @property
    def infinite(self) -> float:
        """Return the mass of infinite loss: the omitted mass if ``side`` is 1, else 0."""
        return self._base.infinite

    @property
    def supremum(self) -> float:
        """Return the largest stored value, rounded up."""
        top = float(self._base.supremum)
        # Moved by `apart`. The second `apart` covers the sum: it is at least 16 units of top.
        return top + 2 * self._law.apart + 4 * UNIT * abs(top)  # slack: counted

    @property
    def rho(self) -> float:
        """Return rho = k mu^2 / 2: revealing the batches can only increase the loss."""
        return self.times * self.distance**2 / 2

    @property
    def mu(self) -> float:
        """Return sqrt(k) mu: revealing the batches can only increase the loss."""
        return math.sqrt(self.times) * self.distance

    def reverse(self) -> RandomAllocationLoss:
        return replace(self, removed=not self.removed)

    def log_mgf(self, z: Array) -> Array:
        """Return K, moved to the safe side by the rounding errors of values and masses."""
        z = np.atleast_1d(z)
        return self._base.log_mgf(z) + self._shift * z + self._log_factor

    def mgf_rounding(self, z: Array) -> Array:
        # The base counts 12 units of |z| times its largest value and 4 of log p. It needs 6 and 3.
        # The difference covers two more sums and a product.
        return self._base.mgf_rounding(z) + 4 * UNIT  # slack: counted

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        k, mean, variance = self._base.moments(tilts)
        return k + self._shift * tilts + self._log_factor, mean + self._shift, variance

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        return self._base.decay(tilt, edges, enough)

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        return self._base.value_count if count == 1 else math.inf

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        return self.dots(tilt, 1.0)

    def dots(self, tilt: float, step: float) -> Discretization:
        # The values, moved to the safe side by their rounding errors.
        dots = self._base.dots(tilt, step)
        scale = dots.log_scale + tilt * self._shift + self._log_factor
        return replace(dots, loss=dots.loss + self._shift, log_scale=scale)


def allocated(mu: float, batches: int) -> LossBracket:
    """Return the loss of (P, Q), P with the record, as a bracket of two finite losses.

    Args:
        mu: the shift of a batch in standard deviations of its noise, above 0 and at most
            `LIMITS.mu`.
        batches: T, at least 2.
    """
    lower, upper = (RandomAllocationLoss(mu, batches, side, True) for side in (-1, 1))
    return LossBracket(lower, upper, "allocated at random, between two finite distributions")


def allocated_often(mu: float, batches: int, times: int) -> list[tuple[LossBracket, int]]:
    """Return parts whose sum is the loss of (P, Q) if a record enters k of T batches [RA-5].

    Args:
        mu, batches: as in `allocated`.
        times: k, at least 2 and below T.
    """
    size, rest = divmod(batches, times)
    groups = [(size + 1, rest), (size, times - rest)]
    uppers = [
        (allocated(mu, bins).upper if bins > 1 else GaussianLoss(mu**2), count)
        for bins, count in groups
        if count
    ]
    (first, count), *others = uppers
    lower, how = _best_lower(mu, batches, times), "between a test and k passes"
    # A bracket of a part alone may be wrong. The sum of all is right.
    hidden = [(first, count - 1), *others]
    return [
        (LossBracket(lower, first, how), 1),
        *((LossBracket(PERFECT, upper, how), n) for upper, n in hidden if n),
    ]


def equicorrelated(diagonal: float, other: float, bins: int, side: int) -> Part:
    """Return a loss on a side of that of a Gram matrix with equal entries off the diagonal.

    It is the sum of a Gaussian loss with mu^2 = ``other`` and of a loss of random allocation with
    mu^2 = ``diagonal`` - ``other`` [RA-7].

    Args:
        diagonal, other: the entries of the matrix, at least 0. A larger ``other`` counts as
            ``diagonal``. Below, that is a smaller matrix. Above, only rounding makes it larger.
        bins: its size.
        side: 1 for a loss that dominates, -1 for one that is dominated.
    """
    other = min(other, diagonal)
    apart = math.sqrt(diagonal - other) * (1 + side * 4 * UNIT)  # slack: counted
    parts: list[tuple[Part, int]] = [(GaussianLoss(other), 1)] if other > 0 else []
    if bins > 1 and apart > 0:
        parts.append((RandomAllocationLoss(apart, bins, side, True), 1))
    elif side > 0:
        return GaussianLoss(diagonal)
    if len(parts) == 1:
        return parts[0][0]
    return ComposedLattice(tuple(sorted(parts, key=order_key)), side)


def _best_lower(mu: float, batches: int, times: int) -> Loss:
    """Return a loss below that of k of T batches, with the larger epsilon at delta 1e-5 [RA-5]."""
    exact = Fraction(mu) ** 2 * times**2 / batches
    summed = GaussianLoss(below(exact * (1 - Fraction(16, 2**53))))
    if batches > LIMITS.test_batches or not LIMITS.test_mu[0] <= mu <= LIMITS.test_mu[1]:
        return summed
    test = _tested(mu, batches, times)
    if test.relative > LIMITS.test_error:
        return summed
    base = test.removed
    value, p = np.array(base.values), np.exp(base.log_p)
    tails = [np.cumsum(mass[::-1])[::-1] for mass in (p, p * np.exp(-value))]
    few = tails[0] - np.exp(value) * tails[1] <= LIMITS.test_delta
    left, right = (float(mass[few.argmax()]) for mass in tails)
    epsilon, m = max(math.log(left - LIMITS.test_delta) - math.log(right), 0.0), summed.mu
    terms = log_ndtr([m / 2 - epsilon / m, -m / 2 - epsilon / m]) + np.array([0.0, epsilon])
    if np.exp(terms) @ [1, -1] > LIMITS.test_delta:
        return summed
    return RandomAllocationLoss(mu, batches, -1, True, times)


@dataclass(frozen=True, eq=False)
class _AllocationDistribution:
    """Hold the finite losses of both orders, and bounds on their errors.

    Args:
        removed, added: losses of (P, Q) and (Q, P), as computed.
        relative: bound on the relative error of a mass.
        apart: bound on the absolute error of a value.
    """

    removed: OffLatticeLoss
    added: OffLatticeLoss
    relative: float
    apart: float


@dataclass(frozen=True, eq=False)
class _Sum:
    """Hold a distribution of the sum S of ``count`` batches, under Q.

    Args:
        place, weight: values of S, increasing, and their masses.
        relative: bound on the relative error of each weight.
        apart: bound on the relative error of each entry of ``place``.
    """

    count: int
    place: Array
    weight: Array
    relative: float
    apart: float


@array_cache
def _law(mu: float, batches: int, side: int) -> _AllocationDistribution:
    total = _added_up(mu, batches, side)
    mask = total.weight * np.maximum(total.place / batches, 1.0) > LIMITS.least_mass
    place, weight = total.place[mask], total.weight[mask]
    value, log_q = np.log(place / batches), np.log(weight)
    # Omitted mass per batch: tails and products that underflow [RA-4].
    lost = (batches + 1) * 1e-135 if side > 0 else 0.0
    removed = OffLatticeLoss(tuple(value.tolist()), tuple((log_q + value).tolist()), lost, lost)
    added = OffLatticeLoss(tuple((-value[::-1]).tolist()), tuple(log_q[::-1].tolist()), lost, lost)
    # A quotient errs by one unit, and a logarithm by 2 relative units. log q errs by 2. log p, its
    # sum with the value, errs by one more and by `apart`.
    apart = total.apart + 16 * UNIT * (1 + float(np.abs(value).max()))  # slack: counted
    relative = total.relative + apart + 16 * UNIT * float(np.abs(log_q).max())  # slack: counted
    return _AllocationDistribution(removed, added, relative, apart)


@array_cache
def _tested(mu: float, batches: int, times: int) -> _AllocationDistribution:
    """Return losses of the test's sum, below those of a record in k of T batches [RA-8]."""
    z, step = _test_weight(mu, batches, times)
    low, high = (
        math.log1p(z * math.exp(mu * x)) for x in (-LIMITS.test_reach, LIMITS.test_reach + mu)
    )
    first, last = math.floor(low / step), math.ceil(high / step)
    places: Array = np.arange(first + 1, last)
    edges = np.log(np.expm1((places - 0.5) * step) / z) / mu
    sums: list[tuple[float, Atoms, Atoms]] = []
    for tilt in (0.0, 1.0, 2.0):
        still, moved = (_test_steps(edges, shift, first, step, tilt) for shift in (0.0, mu))
        p = compose([(still, batches - times), (moved, times)])
        sums.append((tilt, p, compose([(still, batches)])))
    every = [atoms for _, *both in sums for atoms in both]
    start = min(a.start for a in every)
    size = max(a.start + len(a) for a in every) - start
    width = -(-size // LIMITS.test_cells)
    under_p = [_test_cells(p, tilt, start, width, size) for tilt, p, _ in sums]
    under_q = [_test_cells(q, tilt, start, width, size) for tilt, _, q in sums]
    relative = max(error for _, _, error in under_p + under_q)
    (p_low, p_high), (q_low, q_high) = (
        (
            np.maximum.reduce([low for low, _, _ in cells]),
            np.minimum.reduce([high for _, high, _ in cells]),
        )
        for cells in (under_p, under_q)
    )
    removed, moved_1 = _finite_below(p_low, q_high)
    added, moved_2 = _finite_below(q_low, p_high)
    more = max(moved_1, moved_2) + 2 * relative
    return _AllocationDistribution(removed, added, relative + more, more)


def _finite_below(p: Array, q: Array) -> tuple[OffLatticeLoss, float]:
    """Return a loss with masses of at most ``p``, and values of at most log p / q, up to an error.

    The error bounds both that of a value and that of the logarithm of a mass.
    """
    good = (p > LIMITS.least_mass) & (q > LIMITS.least_mass)
    group = np.maximum(np.cumsum(good) - 1, 0)  # a cell without mass is merged with a neighbor
    p, q = np.bincount(group, p), np.bincount(group, q)
    totals = np.array([p.sum(), q.sum()])
    p, q = p / totals[0], q / totals[1]
    value, at = np.unique(np.log(p / q), return_inverse=True)
    log_p = np.log(np.bincount(at, p))
    error = float(np.abs(np.log(totals)).sum())
    # slack: counted
    error += UNIT * (64 + 2 * len(group) + 16 * float(np.abs([*value, *log_p]).max()))
    return OffLatticeLoss(tuple(value.tolist()), tuple(log_p.tolist())), error


def _test_steps(edges: Array, shift: float, first: int, step: float, tilt: float) -> Atoms:
    """Return the tilted law of f(x), x ~ N(shift, 1): f is (first + i) step between two edges."""
    x = np.concatenate([[-math.inf], edges - shift, [math.inf]])
    low, high = x[:-1], x[1:]
    near, far = np.where(low > 0, -low, high), np.where(low > 0, -high, low)
    mass = ndtr(near) - ndtr(far)
    exponent = np.log(mass) + tilt * step * (first + np.arange(len(mass)))
    top = float(np.logaddexp.reduce(exponent))
    # ndtr(x) errs by 64 + x^2 units, and by x^2 from the rounding of x.
    # slack: counted
    each = 2 * UNIT * (64 + 2 * np.minimum(near, 0.0) ** 2) * ndtr(near) / mass
    sizes = 8 + abs(top) + float(np.abs(exponent).max())
    relative = float(each.max()) + 8 * UNIT * sizes  # slack: counted
    weight = np.exp(exponent - top)
    return Atoms(Fraction(step), Fraction(0), first, weight, top, relative=relative)


def _test_cells(
    a: Atoms, tilt: float, start: int, width: int, size: int
) -> tuple[Array, Array, float]:
    """Return the least and the largest mass of each cell of ``width`` places, without the tilt.

    The third result is a relative error of both.
    """
    step = float(a.step)
    index = a.start - start + np.arange(len(a))
    cells = -(-size // width)
    exponent = a.log_scale - tilt * step * (start + index)
    place = a.log_scale - tilt * step * (start + width * np.arange(cells))
    most = np.exp(np.clip(place, -700.0, 700.0))
    mass = np.bincount(index // width, a.weight * np.exp(np.clip(exponent, -700.0, 700.0)), cells)
    # Weights below 1e-290 lose digits. The last factor is for the relative error of the rest.
    error = (a.absolute + 1e-290) * width * most * 1.01
    # slack: counted
    relative = a.relative + UNIT * (64 + width + 8 * float(np.abs([*exponent, a.log_scale]).max()))
    return np.maximum(mass - error, 0.0), mass + error + a.tail * most, relative


def _test_weight(mu: float, batches: int, times: int) -> tuple[float, float]:
    """Return z of the test with the largest epsilon at small delta, by a guess, and a step of f.

    The level at a power of e^-10 is guessed by Chernoff's bound.
    """
    x = np.linspace(-LIMITS.test_reach, LIMITS.test_reach + 3 * mu, 600)
    log_p = [-((x - shift) ** 2) / 2 for shift in (0.0, mu)]
    log_q, log_p = (v - np.logaddexp.reduce(v) for v in log_p)
    best = -math.inf, 0.0, 0.0
    for z in np.geomspace(0.01, 1.2, 30) * times / (batches - times) * math.exp(-mu * mu / 2):
        f = np.log1p(z * np.exp(mu * x))
        mean = float(np.exp(log_q) @ f)
        deviation = math.sqrt(float(np.exp(log_q) @ (f - mean) ** 2))
        tilts = np.geomspace(1e-4, 1.0, 200) * (4 + 10 / (deviation * math.sqrt(batches)))
        rates: list[Array] = []
        means: list[Array] = []
        for law in (log_q, log_p):
            exponent = np.multiply.outer(tilts, f - mean) + law
            k = np.logaddexp.reduce(exponent, axis=1)
            means.append(np.exp(exponent - k[:, None]) @ (f - mean))
            rates.append(tilts * means[-1] - k)
        power = (batches - times) * rates[0] + times * rates[1]
        place = np.interp(10.0, power, (batches - times) * means[0] + times * means[1])
        level = float(np.interp(place, batches * means[0], batches * rates[0]))
        best = max(best, (level, float(z), deviation))
    _, z, deviation = best
    return z, max(
        deviation / 4, math.log1p(z * math.exp(mu * (LIMITS.test_reach + mu))) / LIMITS.test_steps
    )


def _added_up(mu: float, batches: int, side: int) -> _Sum:
    """Return the distribution of S for all ``batches``, spread (side 1) or merged (side -1)."""
    return repeated(_single_loss(mu, side), batches, lambda a, b: _sum(a, b, mu, side))


def _places(mu: float, count: int) -> Array:
    """Return grid points for the sum of ``count`` batches.

    They are dense where log(S / count) is within a standard deviation of 0, and sparser elsewhere.
    """
    deviation = _deviation(mu, count)
    ends = mu * np.array([-LIMITS.reach_deviations, LIMITS.reach_deviations + mu]) - mu * mu / 2
    low, high = (float(x) for x in np.arcsinh(ends / deviation))
    number = math.ceil((high - low) * 250) + 1  # 250 in a deviation
    # Room for the rounding of sums at both ends.
    logs = deviation * np.sinh(np.linspace(low, high, number))
    logs[0], logs[-1] = ends[0] - 1e-9, ends[1] + 1e-9
    return count * np.exp(logs)


def _deviation(mu: float, count: int) -> float:
    """Estimate the standard deviation of log(S / count)."""
    square = mu * mu
    log_variance = square + math.log(-math.expm1(-square)) - math.log(count)
    return math.sqrt(np.logaddexp(0.0, log_variance))


def _single_loss(mu: float, side: int) -> _Sum:
    """Return the distribution of the Y of one batch on grid points.

    Mass between grid points is split between them (side 1) or put at its mean (side -1).
    """
    place = _places(mu, 1)
    x = (np.log(place) + mu * mu / 2) / mu
    width = np.diff(x)
    nodes = x[:-1, None] + width[:, None] * WIDE_NODES
    mass = np.exp(-nodes * nodes / 2) * (width[:, None] * WIDE_WEIGHTS) / math.sqrt(math.tau)
    y = np.exp(mu * nodes - mu * mu / 2)
    # slack: counted
    units = 1000 * UNIT  # of a mass and of a place [RA-3]
    if side > 0:
        share = np.clip((y - place[:-1, None]) / np.diff(place)[:, None], 0.0, 1.0)
        weight = np.zeros(len(place))
        weight[1:] += (mass * share).sum(axis=1)
        weight[:-1] += (mass * (1 - share)).sum(axis=1)
        return _Sum(1, place, weight, units, units)
    weight = mass.sum(axis=1)
    return _Sum(1, (mass * y).sum(axis=1) / weight, weight, units, units)


def _sum(a: _Sum, b: _Sum, mu: float, side: int) -> _Sum:
    """Return the distribution of the sum of independent a and b on few points [RA-2].

    ``side``: 1 splits each value between the two points of the grid around it. -1 merges the values
    between two points of the grid into their mean.
    """
    count = a.count + b.count
    edges = _places(mu, count)
    bins = len(edges) - 1
    width = np.diff(edges)
    first, second = np.zeros(bins), np.zeros(bins)
    most = 0
    same = a is b
    together = 8  # rows of sums
    for start in range(0, len(a.place), together):
        rows = slice(start, start + together)
        columns = slice(start, None) if same else slice(None)
        place = (a.place[rows, None] + b.place[columns]).ravel()
        weight = np.multiply.outer(a.weight[rows], b.weight[columns])
        if same:  # each pair of different rows occurs once and counts twice
            shape = int(weight.shape[0]), int(weight.shape[1])
            twice = np.subtract.outer(-np.arange(shape[0]), -np.arange(shape[1]))
            weight = weight * (1.0 + np.sign(twice))
        weight = weight.ravel()
        at = np.clip(np.searchsorted(edges, place, side="right") - 1, 0, bins - 1)
        if side > 0:
            share = np.clip((place - edges[at]) / width[at], 0.0, 1.0)
            second += np.bincount(at, weight * share, bins)
            first += np.bincount(at, weight * (1 - share), bins)
        else:
            second += np.bincount(at, weight * place, bins)
            first += np.bincount(at, weight, bins)
        most = max(most, int(np.bincount(at).max()))
    terms = most + len(a.place) / together + 32
    # A sum errs by a unit per term in a block of rows, plus a unit per block. Products and shares
    # err by fewer than 32 [RA-3].
    relative = a.relative + b.relative + 1.1 * terms * UNIT  # slack: counted
    apart = max(a.apart, b.apart)
    if side > 0:
        split = np.zeros(bins + 1)
        split[1:] += second
        split[:-1] += first
        # A place, its distance from the edge, the width, and the share err by one unit each.
        return _Sum(count, edges, split, relative, apart + 16 * UNIT)  # slack: counted
    mask = first > LIMITS.least_mass
    first, second = first[mask], second[mask]
    # A place is a quotient of two such sums.
    # slack: counted
    return _Sum(count, second / first, first, relative, apart + 2.2 * terms * UNIT)
