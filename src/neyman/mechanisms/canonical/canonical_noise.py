"""The noise that a curve prescribes: as private as the curve says, and no more."""

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
from neyman.noise.bits import SecureBits
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import up

if TYPE_CHECKING:
    from neyman.noise import Bits

UNIFORM_BITS = 54  # bits of a uniform number that a float can tell


@dataclass(frozen=True, init=False, repr=False)
class CanonicalNoise(Mechanism):
    """The noise Z on a number for which T(Z, Z + 1) is the given curve f, exactly.

    With c = f(c), its distribution function is linear in the middle and follows from f elsewhere:

        F(x) = c (1/2 - x) + (1 - c) (x + 1/2)    for |x| <= 1/2
        F(x) = f(1 - F(x + 1))                    for x < -1/2
        F(x) = 1 - f(F(x - 1))                    for x > 1/2

    so that F(F^-1(1 - alpha) - 1) = f(alpha), and a shift by less than 1 is never easier to
    detect. All is in units of the sensitivity: Z is scaled by it.

    Args:
        tradeoff: f, a curve that is its own inverse: a `Tradeoff` of one symmetric pair or a joined
            one (`f.symmetric()`); or a mechanism, whose curve is meant.
        sensitivity: the largest shift of the number between neighbors, above 0. It is the shift of
            one number: what a shift of a vector does is *not* covered.

    Raises:
        TypeError: if ``tradeoff`` is neither.
        ValueError: for several curves or one that is not its own inverse (give its `symmetric()`),
            for perfect privacy (no noise is enough), for a curve that hides nothing, and for one
            that is only known to be between two others, as that of `ReportNoisyMax`.

    What comes out: for `approximate(epsilon, delta)` the truncated uniform-Laplace distribution
    (Tulap), for `approximate(0, delta)` the uniform distribution of width 1 / delta, for
    `pure(epsilon)` a smoothed discrete Laplace distribution. For `gdp(mu)` it is *not* the normal
    distribution of standard deviation 1 / mu,
    though both have the curve G_mu: their distribution functions differ by .0030 at mu = 1, .021 at
    2 and .057 at 3. A curve may have many noises; this one exists for every curve.

    What is proven: existence for every symmetric curve but perfect privacy; and for (epsilon,
    delta)-DP that Tulap noise on a sum of coin flips leads to uniformly most powerful private tests
    of their probability. That it has the least variance is not claimed, nor true.

    `cdf`, `pdf`, `ppf`, `isf` and `sample` give floats, as statistical libraries do, at the
    middle of an interval that certainly holds the number: some 1e-12 wide for `gdp`, `pure`,
    `approximate` and a Laplace or exponential mechanism (relative to tails, too), 1e-9 to 1e-8 for
    sums of finite pairs, and for other curves as wide as the curve is known (1e-3 to 1e-9). Both
    ends are to be had from ``distribution``, at sensitivity 1. Far out, steps are taken one by one
    where there is no closed form.

    As a mechanism it is described by its curve; what is accounted for is f itself. Noise that is a
    float must not be released as it is: round what is released, noise and number together, to
    a grid, or use integer noise (`DiscreteGaussian`).

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
        """The curve f that was given, or that of the mechanism that was given."""
        return self.given.tradeoff()

    @property
    def law(self) -> CanonicalLaw:
        """The distribution at sensitivity 1, each number with both of its certified ends."""
        return _law(self.curve)

    # The distribution

    def cdf(self, x: ArrayLike) -> float | Array:
        """Return F(x), the probability that the noise is at most x.

        Args:
            x: in the units of the answer; a number or an array of any shape.

        Returns:
            A float for a number, else an array; relative accuracy where F is small.
        """

        def inside(y: Array) -> Array:
            low, high = self.law.log_tail(np.abs(y))
            tail = 0.5 * (np.exp(low) + np.exp(high))
            return np.where(y > 0, 1 - tail, tail)

        return _ask_elementwise(
            "x", x, lambda y: _ask_finite(y, self.sensitivity, inside, (0.0, 1.0))
        )

    def pdf(self, x: ArrayLike) -> float | Array:
        """Return the density: 1 - 2c in the middle, falling from unit to unit.

        Where it jumps it is one of its two values or between them.

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
        """Return the quantile: the x with F(x) = u. Bounded noise has its ends at u = 0 and 1.

        Args:
            u: in [0, 1]; a number or an array of any shape. Small ones keep all their digits.
        """
        return _ask_elementwise(
            "u", u, lambda v: np.where(v <= 0.5, -1.0, 1.0) * self._isf(_beyond(v)) + 0.0
        )

    def isf(self, u: ArrayLike) -> float | Array:
        """Return the x with upper tail probability u: -ppf(u), accurate for small u.

        Args:
            u: in [0, 1]; a number or an array of any shape.
        """
        return _ask_elementwise(
            "u", u, lambda v: np.where(v <= 0.5, 1.0, -1.0) * self._isf(_beyond(v)) + 0.0
        )

    def _isf(self, log_u: Array) -> Array:
        low, high = self.law.place(log_u)
        middle = np.where(np.isfinite(high), 0.5 * (low + high), low)
        middle = np.where(log_u >= -math.log(2), 0.0, middle)
        with np.errstate(over="ignore"):
            return float(self.sensitivity) * middle

    def variance(self) -> Bound:
        """Return certified bounds on the variance, in squared units of the answer.

        Exact sums for (epsilon, delta); for other curves an integral between two sums, which may
        take a second or so.
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
        """Draw independent samples: quantiles of uniform reals from secure random bits.

        Each draw is +-isf(U), U a uniform real in (0, 1/2) whose bits are drawn until 54 of them
        are significant, however small it is: no tail is cut off. The float that is returned errs
        as `isf` does, and by the last bit of U. It is for simulation and study; see the class on
        what may be released.

        Args:
            size: how many, at least 0.
            bits: the source of randomness, for tests; `SecureBits()` if none is named.

        Returns:
            An array of shape ``(size,)``.
        """
        source = SecureBits() if bits is None else bits
        words = source.words(check.integer("size", size))
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
        """Return the loss of the curve; where it has none of its own, one between two polygons.

        A joined curve is the curve of no pair that was given, and what a bare zCDP or Renyi
        guarantee or a bounded range implies composes otherwise than the guarantee does.
        """
        return (composes_as(self.curve),)

    def rho(self) -> Fraction:
        """Return a proven zCDP parameter of f, exact: the sum over the parts of its loss.

        Raises:
            ValueError: where none is proven: with outcomes of infinite loss, and for curves known
                by their shape alone (joined ones, those of zCDP or Renyi guarantees).
        """
        curve = self.curve
        if own_loss(curve) is not None and not any(c.infinite for c in curve.directions):
            if isinstance(self.given, Mechanism):
                return self.given.rho()
            total = Fraction(0)
            for loss, n in curve.alternatives[0].parts:
                rho = _rho(loss)
                if rho is None:
                    break
                total += n * rho
            else:
                return total
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
    """Return a question about an array of any shape, or about a number."""
    given = np.asarray(value)
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
    """Asked at finite places only, in units of the scale."""
    with np.errstate(over="ignore"):
        y = x / float(scale)
    result = np.where(y < 0, *ends)
    finite = np.isfinite(y)
    if finite.any():
        result[finite] = ask(y[finite])
    return result


def _beyond(u: Array) -> Array:
    """log of the smaller of u and 1 - u."""
    with np.errstate(divide="ignore"):
        return np.where(u <= 0.5, np.log(np.minimum(u, 0.5)), np.log1p(-np.maximum(u, 0.5)))


@singledispatch
def _rho(loss: Part) -> Fraction | None:
    """Return a proven rho of one loss, exact."""
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


# As JSON: a mechanism by its description, a curve by the name and the parameters of its family.


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
