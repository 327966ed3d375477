"""Describe and draw the noise whose unit shift has exactly a given trade-off curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.zcdp_parameters import laplace_rho
from neyman.curves.tradeoff.guarantees import approximate
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.canonical.distribution import MOST, CanonicalLaw, composes_as, own_loss
from neyman.mechanisms.description import POSITIVE, exact_above_zero, from_json_number, to_json
from neyman.noise.parameters import secure_unless
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import up

if TYPE_CHECKING:
    from neyman.noise.bits import Bits

UNIFORM_BITS = 54  # significant bits of a uniform number in a float


@dataclass(frozen=True, init=False, repr=False)
class CanonicalNoise(Mechanism):
    """Add to a number the noise Z for which T(Z, Z + 1) is exactly the given curve f.

    With c = f(c), the distribution function F of Z is linear in the middle and follows from f
    elsewhere:

        F(x) = c (1/2 - x) + (1 - c) (x + 1/2)    for |x| <= 1/2
        F(x) = f(1 - F(x + 1))                    for x < -1/2
        F(x) = 1 - f(F(x - 1))                    for x > 1/2

    Then F(F^-1(1 - alpha) - 1) = f(alpha), and a shift by less than 1 is never easier to
    detect. Z is in units of the sensitivity.

    Args:
        tradeoff: f, a curve that is its own inverse: a `Tradeoff` of one symmetric pair, a joined
            curve (`f.symmetric()`), or a mechanism with such a curve.
        sensitivity: the largest shift of the number between neighbors, above 0. It is the shift of
            one number: the shift of a vector is *not* covered.

    Raises:
        TypeError: ``tradeoff`` is neither a curve nor a mechanism.
        ValueError: there are several curves, the curve is not its own inverse (give its
            `symmetric()`), it is perfect privacy (no noise is enough), it hides nothing, or it is
            only known to be between two other curves, as for `ReportNoisyMax`.

    Special cases: `approximate(epsilon, delta)` gives the truncated uniform-Laplace distribution
    (Tulap), `approximate(0, delta)` the uniform distribution of width 1 / delta, and
    `pure(epsilon)` a smoothed discrete Laplace distribution. `gdp(mu)` does *not* give the normal
    distribution of standard deviation 1 / mu, though both have the curve G_mu: their distribution
    functions differ by .0030 at mu = 1, .021 at 2 and .057 at 3. A curve may have many noise
    distributions.

    Proven: canonical noise exists for every symmetric curve except perfect privacy. For
    (epsilon, delta)-DP, Tulap noise on a sum of coin flips gives uniformly most powerful private
    tests of their probability. In general, canonical noise does not have the smallest variance.

    `cdf`, `pdf`, `ppf`, `isf` and `sample` return floats, the middle of a certified interval. The
    interval is about 1e-12 wide for `gdp`, `pure`, `approximate`
    and a Laplace or exponential mechanism (also relative to tails), and 1e-9 to 1e-8 for sums of
    finite pairs. For other curves, it is as wide as the bounds on the curve (1e-3 to 1e-9). `law`
    gives both ends, at sensitivity 1. Without a closed form, tails are computed step by step.

    The accounted curve of this mechanism is f itself. Do not release floating-point noise: round
    the sum of noise and number to a grid, or use integer noise (`DiscreteGaussian`).

    Examples:
        >>> import neyman as ny
        >>> noise = ny.CanonicalNoise(ny.gdp(1))
        >>> round(float(noise.cdf(0)), 6), round(float(noise.ppf(0.975)), 4)
        (0.5, 1.9583)
        >>> round(float(noise.variance()), 4)
        1.0

    Source: Awan and Vadhan 2023, definition 3.7 and theorem 3.9 (the construction), Awan and
    Slavkovic 2018 (Tulap, tests for (epsilon, delta)).
    """

    RELATION = "any"

    given: Tradeoff | Mechanism
    sensitivity: float | Fraction = field(metadata=POSITIVE)

    def __init__(self, tradeoff: Tradeoff | Mechanism, sensitivity: float | Fraction = 1) -> None:
        if not isinstance(tradeoff, (Tradeoff, Mechanism)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"tradeoff = {tradeoff!r} must be a Tradeoff, such as ny.gdp(1), or a mechanism"
            )
        self._keep(given=tradeoff, sensitivity=sensitivity)
        _ = self.law

    @property
    def curve(self) -> Tradeoff:
        """Return the given curve f, or the curve of the given mechanism."""
        return self.given.tradeoff()

    @property
    def law(self) -> CanonicalLaw:
        """Return the distribution at sensitivity 1, with certified bounds on each number."""
        return _law(self.curve)

    # The distribution

    def cdf(self, x: ArrayLike) -> float | Array:
        """Return F(x), the probability that the noise is at most x.

        Args:
            x: in the units of the answer; a number or an array of any shape.

        Returns:
            A float for a number, else an array. Small F have relative accuracy.
        """

        def inside(y: Array) -> Array:
            low, high = self.law.log_tail(np.abs(y))
            tail = 0.5 * (np.exp(low) + np.exp(high))
            return np.where(y > 0, 1 - tail, tail)

        return _ask_elementwise(
            "x", x, lambda y: _ask_finite(y, self.sensitivity, inside, (0.0, 1.0))
        )

    def pdf(self, x: ArrayLike) -> float | Array:
        """Return the density of the noise.

        At a jump, the result is one of the two one-sided values, or between them.

        Args:
            x: in the units of the answer; a number or an array of any shape.
        """
        scale = float(self.sensitivity)

        def inside(y: Array) -> Array:
            low, high = self.law.log_density(np.abs(y))
            low = np.where(np.isfinite(low), low, high)
            with np.errstate(over="ignore"):
                return np.exp(np.where(np.isfinite(high), 0.5 * (low + high), low)) / scale

        return _ask_elementwise(
            "x", x, lambda y: _ask_finite(y, self.sensitivity, inside, (0.0, 0.0))
        )

    def ppf(self, u: ArrayLike) -> float | Array:
        """Return the quantile: the x with F(x) = u. At u = 0 and 1, bounded noise has its ends.

        Args:
            u: in [0, 1]; a number or an array of any shape. Small u keep full relative accuracy.
        """
        return _ask_elementwise(
            "u", u, lambda v: np.where(v <= 0.5, -1.0, 1.0) * self._isf(_beyond(v)) + 0.0
        )

    def isf(self, u: ArrayLike) -> float | Array:
        """Return the x with upper tail probability u: -ppf(u), accurate for small u.

        Args:
            u: in [0, 1]; a number or an array of any shape.
        """
        return 0.0 - self.ppf(u)

    def _isf(self, log_u: Array) -> Array:
        low, high = self.law.place(log_u)
        middle = np.where(np.isfinite(high), 0.5 * (low + high), low)
        middle = np.where(log_u >= -math.log(2), 0.0, middle)
        with np.errstate(over="ignore"):
            return float(self.sensitivity) * middle

    def variance(self) -> Bound:
        """Return certified bounds on the variance, in squared units of the answer.

        For (epsilon, delta), exact sums give the variance. For other curves, two sums enclose an
        integral, which may take about a second.
        """
        variance, scale = self.law.variance(), float(self.sensitivity)
        low, high = variance.lower * scale * scale, variance.upper * scale * scale
        return _wider(low, high, variance.method)

    def standard_deviation(self) -> Bound:
        """Return certified bounds on the standard deviation, in the units of the answer."""
        variance, scale = self.law.variance(), float(self.sensitivity)
        low, high = math.sqrt(variance.lower) * scale, math.sqrt(variance.upper) * scale
        return _wider(low, high, variance.method)

    def sample(self, size: int, bits: Bits | None = None) -> NDArray[np.float64]:
        """Draw independent samples for simulation: quantiles of uniform reals from secure bits.

        Each draw is +-isf(U) for a uniform real U in (0, 1/2). U has 54 significant bits, however
        small it is, so no tail is cut off. The float has the error of `isf`, plus the last bit of
        U. Do not use samples as protective noise: see the class.

        Args:
            size: number of samples, at least 0.
            bits: the source of randomness, for tests; `SecureBits()` if omitted.

        Returns:
            An array of shape ``(size,)``.
        """
        source = secure_unless(bits)
        words = source.words(check.integer("size", size, 0, 1 << 40))
        leading = words >> np.uint64(1)
        with np.errstate(divide="ignore"):
            log_u = np.log(leading.astype(float) + 0.5) - 64 * math.log(2)
        for i in np.flatnonzero(leading < np.uint64(1 << (UNIFORM_BITS - 1))):
            value, length = int(leading[i]), 64
            while value.bit_length() < UNIFORM_BITS:
                value, length = value << 64 | int(source.words(1)[0]), length + 64
            log_u[i] = math.log(2 * value + 1) - (length + 1) * math.log(2)
        minus = words & np.uint64(1) == 1
        noise = self._isf(log_u) if len(log_u) else np.zeros(0)
        return np.where(minus, -noise, noise)

    # The mechanism

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss of a pair with this curve. If none is known, bracket it by two polygons.

        A joined curve is not the curve of any given pair. A curve implied by a bare zCDP or Renyi
        guarantee, or by a bounded range, composes differently than the guarantee.
        """
        return (composes_as(self.curve),)

    def rho(self) -> Fraction:
        """Return a proven zCDP parameter of f, as a fraction: the sum over the parts of its loss.

        Raises:
            ValueError: no parameter is proven, because some loss is infinite or the curve is known
                only by its shape (joined curves, zCDP or Renyi guarantees).
        """
        curve = self.curve
        if own_loss(curve) is not None and not any(c.infinite for c in curve.directions):
            if isinstance(self.given, Mechanism):
                return self.given.rho()
            rhos = [(_rho(loss), n) for loss, n in curve.alternatives[0].parts]
            if all(rho is not None for rho, _ in rhos):
                return sum((n * rho for rho, n in rhos if rho is not None), Fraction(0))
        raise ValueError(
            f"tradeoff = {curve!r}: no zCDP parameter is proven for its canonical noise; account "
            "for it by its curve, in one plan, or give a curve such as ny.gdp(...)"
        )

    def _fields(self) -> dict[str, Any]:
        return {"of": _describe(self.given), "sensitivity": to_json(self.sensitivity)}

    @classmethod
    def _from_fields(cls, given: Mapping[str, Any]) -> Self:
        return cls(_read(given["of"]), from_json_number(given["sensitivity"]))

    def __repr__(self) -> str:
        scaled = "" if self.sensitivity == 1 else f", sensitivity={self.sensitivity!r}"
        return f"CanonicalNoise({self.given!r}{scaled})"


@lru_cache(maxsize=64)
def _law(curve: Tradeoff) -> CanonicalLaw:
    return CanonicalLaw(curve)


def _wider(low: float, high: float, method: str) -> Bound:
    return Bound(min(low * (1 - 1e-15), MOST), up(high * (1 + 1e-15), 1), "upper", method)


def _ask_elementwise(name: str, value: ArrayLike, ask: Callable[[Array], Array]) -> float | Array:
    """Apply ``ask``, a function of flat arrays, to a number or to an array of any shape.

    Refuse NaN. If ``name`` is "u", also refuse values outside [0, 1].
    """
    try:
        given = np.asarray(value)
    except ValueError:  # rows of different lengths
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" and not isinstance(value, Fraction):
        raise TypeError(f"{name} = {value!r} must be a real number or an array of them")
    array = given.astype(float)
    if np.any(np.isnan(array)):
        raise ValueError(f"{name} = {value!r} must be real numbers, not nan")
    if name == "u" and np.any((array < 0) | (array > 1)):
        raise ValueError(f"u = {value!r} must be between 0 and 1")
    result = ask(array.ravel()).reshape(array.shape)
    return float(result) if array.ndim == 0 else result


def _ask_finite(
    x: Array, scale: float | Fraction, ask: Callable[[Array], Array], ends: tuple[float, float]
) -> Array:
    """Apply ``ask`` to finite x / scale. Return the ``ends`` at -inf and inf."""
    with np.errstate(over="ignore"):
        y = x / float(scale)
    result = np.where(y < 0, *ends)
    finite = np.isfinite(y)
    if finite.any():
        result[finite] = ask(y[finite])
    return result


def _beyond(u: Array) -> Array:
    """Return the log of the smaller of u and 1 - u."""
    with np.errstate(divide="ignore"):
        return np.where(u <= 0.5, np.log(np.minimum(u, 0.5)), np.log1p(-np.maximum(u, 0.5)))


@singledispatch
def _rho(loss: Part) -> Fraction | None:
    """Return a proven zCDP parameter of one loss, exact, or None if there is none."""
    rho = loss.rho
    return Fraction(rho) * (1 + Fraction(1, 10**14)) if math.isfinite(rho) else None


@_rho.register
def _(loss: GaussianLoss) -> Fraction:
    return Fraction(loss.mu_squared) / 2


@_rho.register
def _(loss: LaplaceLoss) -> Fraction:
    return laplace_rho(loss.exact_epsilon)


@_rho.register
def _(loss: FiniteLoss) -> Fraction:
    return loss.exact_rho


# JSON stores a mechanism as its description, and a curve as the name and parameters of its family.


def _describe(given: Tradeoff | Mechanism) -> dict[str, Any]:
    if isinstance(given, Mechanism):
        return {"mechanism": given.to_dict()}
    if len(given.alternatives) == 1 and not given.joined and not given.ordered:
        families = [_family(loss, n) for loss, n in given.alternatives[0].parts]
        if all(families):
            described = {"neighboring": given.neighboring, "parts": families}
            if _read(described) == given:
                return described
    raise ValueError(
        f"tradeoff = {given!r} cannot be written as JSON: it is not a composition of gdp, "
        f"approximate (pure), zcdp and Laplace curves; give the mechanism that has the curve "
        f"instead of it"
    )


def _family(loss: Part, count: int) -> dict[str, Any] | None:
    if isinstance(loss, GaussianLoss):
        return {"gaussian": loss.mu_squared, "count": count}
    if isinstance(loss, LaplaceLoss):
        return {"laplace": str(loss.exact_epsilon), "count": count}
    if isinstance(loss, RenyiBound) and loss.quadratic:
        return {"zcdp": str(loss.exact_rho), "count": count}
    if isinstance(loss, FiniteLoss) and loss.index in ((-1, 1), (0,)):
        epsilon = loss.supremum if loss.index == (-1, 1) else Fraction(0)
        return {"approximate": [str(epsilon), loss.failure], "count": count}
    return None


def _read(described: Mapping[str, Any]) -> Tradeoff | Mechanism:
    if "mechanism" in described:
        return Mechanism.from_dict(described["mechanism"])
    parts: list[tuple[Part, int]] = []
    for part in described["parts"]:
        count = check.integer("count", part["count"], 1)
        if "gaussian" in part:
            loss: Part = GaussianLoss(check.positive("gaussian", part["gaussian"]))
        elif "laplace" in part:
            loss = LaplaceLoss(exact_above_zero("laplace", part["laplace"]))
        elif "zcdp" in part:
            loss = RenyiBound(exact_above_zero("zcdp", part["zcdp"]))
        else:
            epsilon, delta = part["approximate"]
            loss = approximate(epsilon, delta).alternatives[0].parts[0][0]
        parts.append((loss, count))
    return Tradeoff.of([Composition.of(parts)], described["neighboring"])
