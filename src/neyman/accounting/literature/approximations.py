"""Estimate the privacy of many releases by the central limit theorem and corrections: no bounds.

The privacy loss of many releases is a sum of independent losses, so it is approximately normal. The
normal distribution (order 0) and Edgeworth's corrections (orders 1 to 3) need only a few cumulants
and are cheap. If a few large losses decide, these estimates can be far too low, and they give no
guarantee. Compare them with the certified curves of `Mechanism.tradeoff`.

Each estimate still has a proven bound, `within`, on its distance to the truth. It comes from the
characteristic function (`edgeworth_error`), or from Berry and Esseen if that is smaller. On a
lattice, as for randomized response, the distribution has steps, which a smooth expansion never
matches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from scipy.special import eval_hermitenorm, ndtr

from neyman.accounting.literature.cumulants import cumulants, normal_band
from neyman.accounting.literature.edgeworth_error import expansion_band
from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.curve import Described
from neyman.numerics import check
from neyman.numerics.roots import bisect

REACH_DEVIATIONS = 40.0  # standard deviations
MAX_STEPS = 4096
NAMES = ("central limit theorem", *(f"Edgeworth expansion of order {k}" for k in (1, 2, 3)))


@dataclass(frozen=True)
class Estimate:
    """Represent an estimate, which is not a bound. It does not convert to a float.

    Args:
        value: the estimate.
        method: "estimate: " and the name of the method.
        order: order of the expansion; 0 is the central limit theorem.
        within: a proven distance to the truth, up to rounding; None if nothing is proven.
    """

    value: float
    method: str
    order: int
    within: float | None = None


@dataclass(frozen=True)
class _LossSum:
    """Represent the sum of the losses of one ordered pair, by its cumulants.

    Args:
        infinite: probability of infinite loss.
        mean, deviation: mean and standard deviation of the finite part.
        terms: (n, a) for each correction a He_n(x) phi(x) of the normal density, with x in standard
            units.
        order: number of groups of corrections.
        losses: the sum itself; None if only a limit is known.
    """

    infinite: float
    mean: float
    deviation: float
    terms: tuple[tuple[int, float], ...] = ()
    order: int = 0
    losses: Composition | None = None

    @cached_property
    def band(self) -> float | None:
        """Bound the distance between the finite part's distribution and its expansion.

        Return None if nothing is proven.
        """
        if self.losses is None:
            return None
        simple = normal_band(self.losses)
        if self.deviation == 0:
            return simple
        band = expansion_band(self.losses, self.mean, self.deviation, self.terms)
        if band is not None and simple is not None and self.order < 2:
            # The first correction is at most |a| phi(0) / 6.
            first = sum(abs(a) for n, a in self.terms if n == 3)
            band = min(band, simple + self.order * first / math.sqrt(math.tau), 1.0)
        return band

    def below(self, t: float) -> float:
        """Estimate P(loss < t): P(loss finite) (Phi(x) - phi(x) sum of a He_{n-1}(x)).

        x is t in standard units, and the sum is over (n, a) in `terms`.
        """
        if self.deviation == 0:
            step = 0.5 * ((t > self.mean) + (t >= self.mean))  # an atom counts half on both sides
            return (1 - self.infinite) * step
        x = (t - self.mean) / self.deviation
        density = math.exp(-x * x / 2) / math.sqrt(math.tau)
        terms = (a * float(eval_hermitenorm(n - 1, x)) for n, a in self.terms)
        value = float(ndtr(x)) - (density * math.fsum(terms) if density else 0.0)
        return (1 - self.infinite) * min(max(value, 0.0), 1.0)

    def above(self, t: float) -> float:
        """Estimate P(loss > t). Infinite losses are above every t."""
        return 1 - self.below(t)


@dataclass(frozen=True)
class Expansion:
    """Estimate a trade-off curve from an expansion of the loss. Each answer is an `Estimate`.

    Build it with `edgeworth` or `normal`.

    Args:
        order: 0 (normal) to 3.
        pairs: for each ordered pair (P, Q), the sum of its losses and the sum for (Q, P).
    """

    order: int
    pairs: tuple[tuple[_LossSum, _LossSum], ...]

    def delta(self, epsilon: float) -> Estimate:
        """Estimate P(L > epsilon) - e^epsilon Q(L > epsilon), for the worst ordered pair.

        Args:
            epsilon: at least 0.
        """
        e = check.non_negative("epsilon", epsilon)
        value = self._delta(e)
        return self._said(value, self._away(e, value))

    def epsilon(self, delta: float) -> Estimate:
        """Estimate epsilon: the smallest at which the estimated delta falls to ``delta``.

        Args:
            delta: in [0, 1].
        """
        target = check.probability("delta", delta)
        if max(p.infinite for p, _ in self.pairs) > target:
            return self._said(math.inf)
        last = max(p.mean + REACH_DEVIATIONS * p.deviation for p, _ in self.pairs)
        step = max(max(p.deviation for p, _ in self.pairs) / 16, last / MAX_STEPS)
        low, high = 0.0, 0.0
        while self._delta(high) > target:
            if high > last:
                return self._said(math.inf)
            low, high = high, high + step
        return self._said(bisect(lambda e: self._delta(e) <= target, high, low, rounds=60)[0])

    def power(self, level: float) -> Estimate:
        """Estimate P(L > t) for the t with Q(L > t) = level, for the worst ordered pair.

        Args:
            level: in [0, 1].
        """
        alpha = check.probability("level", level)
        value = max(self._power(p, q, alpha) for p, q in self.pairs)
        apart: list[tuple[float, float]] = []
        for p, q in self.pairs:
            ahead, behind = p.band, q.band
            if ahead is None or behind is None:
                return self._said(value)
            high = self._power(p, q, min(alpha + behind, 1.0)) + ahead
            low = self._power(p, q, max(alpha - behind, 0.0)) - ahead
            apart.append((max(low, alpha), min(high, 1.0)))
        low, high = max(a for a, _ in apart), max(b for _, b in apart)
        return self._said(value, max(high - value, value - low, 0.0))

    def _said(self, value: float, within: float | None = None) -> Estimate:
        return Estimate(value, f"estimate: {NAMES[self.order]}", self.order, within)

    def _delta(self, epsilon: float) -> float:
        factor = math.exp(min(epsilon, 700.0))
        # Under Q, the loss is the negative of the loss of (Q, P).
        bounds = (p.above(epsilon) - factor * q.below(-epsilon) for p, q in self.pairs)
        return max(0.0, *bounds)

    def _away(self, epsilon: float, value: float) -> float | None:
        """Bound the distance between delta and its estimate ``value``; None if it is unknown."""
        factor = math.exp(min(epsilon, 700.0))
        away = 0.0
        for p, q in self.pairs:
            ahead, behind = p.band, q.band
            if ahead is None or behind is None:
                return None
            away = max(away, ahead + factor * behind)
        return min(away, max(value, 1 - value))

    def _power(self, p: _LossSum, q: _LossSum, level: float) -> float:
        """Estimate P(L > t) with Q(L > t) = level, for one ordered pair (P, Q).

        ``p`` is the loss under P, and ``q`` is the loss of (Q, P).
        """
        if level == 0:
            return p.infinite
        ahead, behind = REACH_DEVIATIONS * p.deviation, REACH_DEVIATIONS * q.deviation
        high = max(p.mean + ahead, behind - q.mean) + 1.0
        low = min(p.mean - ahead, -behind - q.mean) - 1.0
        high, low = bisect(lambda t: q.below(-t) <= level, high, low, rounds=100)
        left, right = p.above(low), p.above(high)
        if q.deviation or p.deviation:
            return max(right, level)
        # If the distribution is one point, the test randomizes there.
        size = q.below(-low)
        return max(right + (left - right) * (level / size if size > level else 1.0), level)


def edgeworth(mechanism: Described, order: int = 3) -> Expansion:
    """Estimate the distribution F of the composed loss by Edgeworth's series, under P and under Q.

    F(x) = Phi(x) - phi(x) [a He2/6 + (b He3/24 + a^2 He5/72) + (c He4/120 + a b He6/144 + a^3
    He8/1296)], where a, b and c are the third to fifth standardized cumulants. Order k uses the
    first k groups.

    Args:
        mechanism: a mechanism or a curve with known losses.
        order: 0 (the normal distribution) to 3.

    Raises:
        ValueError: there is no distribution to expand, as for a bare zCDP guarantee, a stated pair,
            or a release without noise.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.literature.approximations import edgeworth
        >>> found = edgeworth(ny.Laplace(20) * 400)
        >>> round(found.delta(epsilon=2).value, 4)
        0.0198

    Source: Zheng, Dong, Long and Su 2020; Wang, Gao, Zhang, Shen and Su 2022.
    """
    number = check.integer("order", order)
    if number > 3:
        raise ValueError(f"order = {order!r} must be 0, 1, 2 or 3")
    curve = check.described("mechanism", mechanism).tradeoff()
    pairs = [(_sum_losses(c, number), _sum_losses(c.reverse(), number)) for c in curve.alternatives]
    if not curve.ordered:
        pairs += [(q, p) for p, q in pairs]
    return Expansion(number, tuple(dict.fromkeys(pairs)))


def central_limit(mechanism: Described) -> Estimate:
    """Estimate the mu of the Gaussian curve that many releases approach. It is no bound.

    mu = (E_P L - E_Q L) / s, where s^2 is the mean of the variances of L under P and under Q. For
    symmetric pairs, in the source's notation, mu = 2 ||kl|| / sqrt(||kappa_2|| - ||kl||_2^2). The
    curve is `normal(mu)`.

    Args:
        mechanism: as for `edgeworth`.

    Returns:
        An estimate of mu, not a bound. It is inf if an outcome has infinite loss, or if the loss is
        a nonzero constant.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.literature.approximations import central_limit
        >>> mu = central_limit(ny.Laplace(20) * 400)
        >>> round(mu.value, 4)
        0.9919

    Source: Dong, Roth and Su 2022.
    """
    worst = 0.0
    for p, q in edgeworth(mechanism, 0).pairs:
        apart = p.mean + q.mean
        if p.infinite or q.infinite or (apart > 0 and not p.deviation and not q.deviation):
            worst = math.inf
        elif apart > 0:
            worst = max(worst, apart / math.hypot(p.deviation, q.deviation) * math.sqrt(2))
    return Estimate(worst, f"estimate: {NAMES[0]}", 0)


def sampled_gaussian(sigma: float, rate: float, steps: int) -> Estimate:
    """Estimate the mu of many Poisson-sampled Gaussian steps: q sqrt(T (e^{1/sigma^2} - 1)).

    The limit holds rate sqrt(steps) fixed, for sigma not small. The estimate can be far too low: at
    rate .001, sigma .5 and 100 steps, it gives epsilon .243 at delta 1e-5, but the truth is above
    2.09.

    Args:
        sigma: noise over sensitivity, above 0.
        rate: q, in [0, 1].
        steps: T, at least 0.

    Source: Bu, Dong, Long and Su 2020.
    """
    s, q = check.positive("sigma", sigma), check.probability("rate", rate)
    count = check.integer("steps", steps)
    try:
        value = q * math.sqrt(count * math.expm1(1 / s / s)) if q and count else 0.0
    except OverflowError:
        value = math.inf
    return Estimate(value, f"estimate: {NAMES[0]}", 0)


def high_dimensional(information: float, norm: float) -> Estimate:
    """Estimate the mu of independent noise on an answer with many coordinates. It is no bound.

    mu = |v| sqrt(I), for a shift v that is not concentrated on a few coordinates.

    Args:
        information: I, the Fisher information of one coordinate's noise about its location, above
            0. It is the mean square of the slope of the log density: 1 / b^2 for Laplace noise of
            scale b, and 1 / (3 s^2) for logistic noise.
        norm: |v|, the l2 norm of the shift, at least 0.

    Returns:
        An estimate of mu, not a bound. Do not use it for a shift of one coordinate: Laplace noise
        then has its own curve, and this estimate may be too high or too low.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.literature.approximations import high_dimensional, normal
        >>> mu = high_dimensional(information=1, norm=1)      # 100 coordinates, each moves by .1
        >>> exact = (ny.Laplace(1, sensitivity=0.1) * 100).tradeoff()
        >>> round(normal(mu).delta(1).value, 3), round(float(exact.delta(1)), 3)
        (0.127, 0.121)

    Source: Dong, Su and Zhang 2021.
    """
    i, size = check.positive("information", information), check.non_negative("norm", norm)
    return Estimate(math.sqrt(i) * size, f"estimate: {NAMES[0]} in many dimensions", 0)


def normal(mu: Estimate | float) -> Expansion:
    """Return the Gaussian curve of a limit, as an estimate.

    Args:
        mu: at least 0, for example from `central_limit` or `sampled_gaussian`.
    """
    value = check.non_negative("mu", mu.value if isinstance(mu, Estimate) else mu)
    law = _LossSum(0.0, value * value / 2, value)
    return Expansion(0, ((law, law),))


def _sum_losses(losses: Composition, order: int) -> _LossSum:
    mean, variance, *higher = cumulants(losses)
    deviation = math.sqrt(max(variance, 0.0))
    if deviation == 0:
        return _LossSum(losses.infinite, mean, 0.0, losses=losses)
    a, b, c = (h / deviation ** (3 + i) for i, h in enumerate(higher))
    groups = (
        ((3, a / 6),),
        ((4, b / 24), (6, a * a / 72)),
        ((5, c / 120), (7, a * b / 144), (9, a**3 / 1296)),
    )
    terms = tuple(term for group in groups[:order] for term in group if term[1])
    return _LossSum(losses.infinite, mean, deviation, terms, order, losses)
