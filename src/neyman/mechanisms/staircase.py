"""Describe staircase noise, which minimizes the expected cost of pure DP on one number."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Literal

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.zcdp_parameters import pure_rho
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import (
    EPSILON,
    POSITIVE,
    exact_above_zero,
    form,
    private_rational,
    rational,
)
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.noise.real_noise import rounded_staircase
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import down, up

Cost = Literal["absolute", "squared"]


@dataclass(frozen=True)
class Limits:
    """Limit epsilon, and the decimal digits of computations."""

    digits: int = 60
    epsilon: int = 700  # above, a step of the density underflows


LIMITS = Limits()


@dataclass(frozen=True, init=False)
class Staircase(Mechanism):
    """Add staircase noise to one number: pure epsilon-DP with the least expected cost.

    The density falls by the factor e^-epsilon at every (k + gamma) sensitivity, k = 0, 1, ..., on
    both sides of 0, and is constant between these points. With the gamma of a cost (absolute or
    squared value), no other additive noise with this epsilon and sensitivity has a smaller expected
    cost, if the noise does not depend on the number.

    Args:
        epsilon: of pure DP, from 1e-6 to 700.
        sensitivity: largest shift of the number between neighbors, above 0, in units of the answer.
            It is the shift of *one* number. Describe each coordinate of a vector by its own shift.
        cost: "absolute" or "squared": the cost that ``gamma`` minimizes.
        gamma: width of the top step on one side of 0, divided by the sensitivity, from 0 to 1. Give
            it instead of a cost. Every gamma meets epsilon.

    The loss is epsilon, 0, or -epsilon, so the curve has three straight pieces. The curve is exact,
    and above the curve of `pure`, except at gamma = 1/2. Do not release floating-point noise:
    `draw` rounds the exact real release to a grid.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or both cost and
            gamma are given.

    Examples:
        >>> import neyman as ny
        >>> noise = ny.Staircase(1)
        >>> f"{float(noise.absolute_error()):.6f}", f"{float(noise.tradeoff().pure()):.6f}"
        ('0.959517', '1.000000')
        >>> f"{float(ny.Staircase(3, cost='squared').variance()):.6f}"  # Laplace noise: 0.222222
        '0.152674'

    Source: Geng and Viswanath 2014; the curve is proven in [SC-1] and [SC-2], costs in [SC-3].
    """

    RELATION = "any"

    epsilon: float | Fraction = field(metadata=EPSILON)
    sensitivity: float | Fraction = field(metadata=POSITIVE)
    gamma: Fraction = field(metadata=form(read=lambda width: check.exact("gamma", width)))

    def __init__(
        self,
        epsilon: float | Fraction,
        sensitivity: float | Fraction = 1,
        *,
        cost: Cost | None = None,
        gamma: float | Fraction | str | None = None,
    ) -> None:
        self._keep(epsilon=epsilon)
        exact = rational(self.epsilon)
        if not Fraction(1, 10**6) <= exact <= LIMITS.epsilon:  # least epsilon
            raise ValueError(f"epsilon = {epsilon!r} must be from 1e-6 to {LIMITS.epsilon}")
        self._keep(sensitivity=sensitivity)
        if gamma is not None and cost is not None:
            raise ValueError("give at most one of cost= and gamma=")
        if gamma is None:
            width = _best(exact, "absolute" if cost is None else cost)
        else:
            width = check.exact("gamma", gamma)
            if not 0 <= width <= 1:
                raise ValueError(f"gamma = {gamma!r} must be from 0 to 1")
        self._keep(gamma=width)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss with the values epsilon, 0, and -epsilon [SC-1]."""
        exact = rational(self.epsilon)
        with localcontext(_context()):
            b, gamma = (-_decimal(exact)).exp(), _decimal(self.gamma)
            top = gamma + b * (1 - gamma)
            middle = abs(2 * gamma - 1) * (1 - b) / (2 * top)
            if gamma < Decimal("0.5"):
                middle *= b
            high = (1 - middle) / (1 + b)
            masses = [high * b, middle, high] if middle else [high * b, high]
            log_p = tuple(float(mass.ln()) for mass in masses)
        index = (-1, 0, 1) if len(log_p) == 3 else (-1, 1)
        return (Composition.of([(FiniteLoss(exact, index, log_p), 1)]),)

    def rho(self) -> Fraction:
        """Return epsilon tanh(epsilon / 2), rounded up [ZC-3]."""
        return pure_rho(rational(self.epsilon))

    def draw(
        self, value: float | Fraction, *, step: float | Fraction | str, bits: Bits | None = None
    ) -> Fraction:
        """Draw the exact noisy value, and round it to the nearest grid point [RN-1, RN-2].

        The rounding of the exact real release is post-processing, so the curve holds for every
        step. This method reads private data but charges no ledger: charge the mechanism first.

        Args:
            value: the exact number, private. A float is taken bit by bit.
            step: grid step, above 0 and public, in the units of the answer. Rounding adds about
                step^2 / 12 to the variance.
            bits: the source of randomness, by default `SecureBits`.

        Raises:
            TypeError: value is not a finite number. The message does not show it.
            ValueError: step is not above 0.

        Examples:
            >>> import neyman as ny
            >>> noisy = ny.Staircase(1).draw(102, step="0.01")
            >>> (100 * noisy).denominator
            1
        """
        grid = exact_above_zero("step", step)
        place = private_rational("value", value) / grid
        width = rational(self.sensitivity) / grid
        source = secure_unless(bits)
        return grid * rounded_staircase(place, rational(self.epsilon), self.gamma, width, source)

    def absolute_error(self) -> Bound:
        """Return certified bounds on the expected absolute value, in the units of the answer."""
        return self._cost(1)

    def variance(self) -> Bound:
        """Return certified bounds on the variance, in squared units of the answer."""
        return self._cost(2)

    def _cost(self, power: int) -> Bound:
        with localcontext(_context()):
            b, gamma = (-_decimal(rational(self.epsilon))).exp(), _decimal(self.gamma)
            one, two, three = (gamma**k + b * (1 - gamma**k) for k in (1, 2, 3))
            if power == 1:
                value = b / (1 - b) + two / (2 * one)
            else:
                value = b * (1 + b) / (1 - b) ** 2 + two * b / ((1 - b) * one) + three / (3 * one)
            result = float(value * _decimal(rational(self.sensitivity)) ** power)
        return Bound(down(result, 1), up(result, 1), "upper", "closed form")


def _best(epsilon: Fraction, cost: Cost) -> Fraction:
    """Return the gamma that minimizes the expected cost, to 15 digits [SC-3]."""
    check.one_of("cost", cost, ("absolute", "squared"))
    with localcontext(_context()):
        b = (-_decimal(epsilon)).exp()
        # The value of b + (1 - b) gamma with the least cost.
        top = b.sqrt() if cost == "absolute" else (b * (1 + b) / 2) ** (Decimal(1) / 3)
        value = (top - b) / (1 - b)
        return Fraction(Context(prec=15).plus(value))


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def _context() -> Context:
    return Context(prec=LIMITS.digits)
