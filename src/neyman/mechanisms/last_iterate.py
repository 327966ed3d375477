"""Describe noisy gradient descent that releases only the last iterate.

One step contracts distances by the factor c, and adds noise of standard deviation eta sigma to each
coordinate, for step size eta. Replacing one of n records changes the gradient of a step by at most
L / n (full gradients) or L / b (batches of b records). Eta cancels, so one step has the curve G(s),
s = L / (n sigma) or L / (b sigma). The contraction, or a bounded constraint set, hides what earlier
steps revealed. So more steps need not cost more.

Source: Bok, Su and Altschuler 2024, "Shifted interpolation for differential privacy".
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from scipy.special import ndtr

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism, StandIn
from neyman.mechanisms.description import COUNT, POSITIVE, form, rational
from neyman.numerics import check
from neyman.numerics.rounding import below, down, up


@dataclass(frozen=True)
class Limits:
    """Limit the decimal digits, the mu of the first factor, and the number of splits to try."""

    digits: int = 60  # of a result
    # 1 - c and 1 - c^t each lose 20 digits (see `NEAR_ONE`), and the cyclic scheme squares one.
    computed_digits: int = 120
    least_gap: float = 1e-140  # of the first factor: a smaller gap would underflow


LIMITS = Limits()
NEAR_ONE = Decimal("1e-20")  # smaller 1 - c is read as 0, or 1 - c^t would lose its digits


def _factor_up_to_one(name: str, value: object) -> float | Fraction:
    check.between(name, value, 0.0, 1.0)
    return check.number(name, value)


FACTOR = form(_factor_up_to_one)


def contraction(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """Return c = max(|1 - eta m|, |1 - eta M|), the contraction factor of a gradient step.

    Args:
        step_size: eta, above 0 and at most 2 / M.
        strong_convexity: m, at least 0: the smallest curvature of the average loss in a step. With
            batches, it must hold for each batch, not only for all records together.
        smoothness: M, the largest curvature, above 0 and at least m. With clipped gradients, the
            clipped loss must be convex and smooth, such as for a generalized linear model.

    Returns:
        c in [0, 1], rounded up. It is 1 if the loss is convex but not, or hardly, strongly convex.

    Raises:
        ValueError: the step is too long to contract.
    """
    eta, m = check.positive("step_size", step_size), check.positive("smoothness", smoothness)
    check.between("strong_convexity", strong_convexity, 0.0, m)
    if eta * m > 2:
        raise ValueError(
            f"step_size = {step_size!r} must be at most 2 / smoothness = {2 / m:g}: a longer step "
            "drives points apart, and nothing is forgotten"
        )
    step = check.exact("step_size", step_size)
    ends = check.exact("strong_convexity", strong_convexity), check.exact("smoothness", smoothness)
    exact = max(abs(1 - step * end) for end in ends)
    c = float(exact)
    while c < 1 and check.exact("contraction", c) < exact:
        c = up(c, 1)  # only 1 - c matters, and a float near 1 has few digits of 1 - c
    return min(c, 1.0)


class LastIterate(Mechanism):
    """Represent noisy gradient descent if the attacker sees only the last iterate."""

    RELATION = "replace-one"
    OWN_STEPS = True

    n: int
    sigma: float | Fraction
    sensitivity: float | Fraction
    contraction: float | Fraction | None
    diameter: float | Fraction | None
    step_size: float | Fraction | None

    @abstractmethod
    def all_iterates(self) -> Mechanism:
        """Return the composition in which the attacker sees every iterate, for comparison."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contraction is None and (self.diameter is None or self.step_size is None):
            raise ValueError(
                "give contraction=, below 1 for a strongly convex loss and 1 for a convex one, "
                "or diameter= (of the constraint set) and step_size= for a convex one"
            )
        if self.contraction is not None and (self.diameter or self.step_size):
            raise ValueError("give either contraction= or diameter= and step_size=, not both")


class _Gaussian(LastIterate):
    """Represent a gradient descent whose last iterate has a Gaussian curve."""

    @abstractmethod
    def _mu_squared(self) -> Decimal:
        """Return mu squared of the curve, more exactly than `LIMITS.digits` digits."""

    def losses(self) -> tuple[Composition, ...]:
        return (Composition.of([(GaussianLoss(float(self._precise())), 1)]),)

    def rho(self) -> Fraction:
        """Return mu^2 / 2, rounded up in the last of 60 digits."""
        return Fraction(self._precise()) / 2

    def _precise(self) -> Decimal:
        with localcontext() as context:
            context.prec, context.rounding = LIMITS.computed_digits, ROUND_CEILING
            value = self._mu_squared() * (1 + Decimal(10) ** (10 - LIMITS.digits))
            context.prec = LIMITS.digits
            return +value


@dataclass(frozen=True)
class NoisyGradientDescent(_Gaussian):
    """Run noisy gradient descent with full gradients, and release the last iterate.

    The curve is G_mu with mu = s sqrt((1 - c^t)(1 + c) / ((1 + c^t)(1 - c))), s = L / (n sigma).
    This is exact: quadratic losses attain it. For c = 1, mu is s sqrt(t), as if every iterate were
    seen. With a constraint set of diameter D instead of a contraction, mu^2 = (3 L
    D / (eta n) + (L / n)^2 ceil(D n / (eta L))) / sigma^2 if t >= D n / (eta L), or s^2 t if this
    is smaller.

    Args:
        n: number of records.
        steps: t, at least 1.
        sigma: noise scale, above 0. A step adds normal noise of standard deviation eta sigma to
            each coordinate.
        sensitivity: L, the largest l2 change of a record's gradient if the record is replaced.
        contraction: c in [0, 1], see `contraction`.
        diameter, step_size: D and eta, instead of a contraction, for convex smooth losses with eta
            at most 2 / smoothness.

    Examples:
        >>> import neyman as ny
        >>> last = ny.NoisyGradientDescent(1000, 50, sigma=0.1, sensitivity=20, contraction=0.9)
        >>> round(float(last.tradeoff().gdp()), 4)
        0.8673

    Source: Bok, Su and Altschuler 2024 (the strongly convex case and the constrained one).
    """

    n: int = field(metadata=COUNT)
    steps: int = field(metadata=COUNT)
    sigma: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(metadata=POSITIVE)
    contraction: float | Fraction | None = field(default=None, metadata=FACTOR)
    diameter: float | Fraction | None = field(default=None, metadata=POSITIVE)
    step_size: float | Fraction | None = field(default=None, metadata=POSITIVE)

    @classmethod
    def langevin(
        cls,
        *,
        n: int,
        steps: int,
        step_size: float,
        temperature: float | Fraction,
        sensitivity: float | Fraction,
        strong_convexity: float,
        smoothness: float,
    ) -> NoisyGradientDescent:
        """Return unadjusted Langevin dynamics that releases the last point.

        One step is w -> w - eta (mean gradient) + sqrt(2 eta T) N(0, I). This is noisy gradient
        descent with sigma = sqrt(2 T / eta). The curve holds for every number of steps: the chain
        need not be near its limit or a posterior. The start must not depend on the data.

        Args:
            n: number of records.
            steps: t, at least 1.
            step_size: eta, above 0 and at most 2 / smoothness.
            temperature: T, above 0. The posterior e^{-(sum of losses)} has T = 1 / n.
            sensitivity: L, the largest l2 change of a record's gradient if the record is replaced.
            strong_convexity, smoothness: of the mean loss, see `contraction`.

        Raises:
            ValueError: the step is too long to contract.

        Examples:
            >>> import neyman as ny
            >>> chain = ny.NoisyGradientDescent.langevin(
            ...     n=100, steps=500, step_size=0.1, temperature=0.01, sensitivity=2,
            ...     strong_convexity=0.5, smoothness=1,
            ... )
            >>> round(float(chain.tradeoff().gdp()), 4)
            0.2793
        """
        factor = contraction(step_size, strong_convexity, smoothness)
        check.positive("temperature", temperature)
        ratio = 2 * check.exact("temperature", temperature) / check.exact("step_size", step_size)
        if not Fraction(10) ** -300 <= ratio <= Fraction(10) ** 300:
            raise ValueError(
                f"temperature = {temperature!r}: temperature / step_size must be between 1e-300 "
                "and 1e300"
            )
        return cls(n, steps, down(math.sqrt(below(ratio))), sensitivity, factor)

    def _mu_squared(self) -> Decimal:
        s = _decimal(self.sensitivity) / (_decimal(self.sigma) * self.n)
        t = Decimal(self.steps)
        if self.contraction is not None:
            return s * s * _contraction(_factor(self.contraction), t)
        reach = _reach(self, self.n)
        if t < reach:
            return s * s * t
        return s * s * min(t, 3 * reach + math.ceil(reach))

    def all_iterates(self) -> Mechanism:
        """Return the composition of all steps."""
        return _step(self, self.n) * self.steps


@dataclass(frozen=True)
class NoisyCyclicGradientDescent(_Gaussian):
    """Run noisy gradient descent on batches in a fixed order, and release the last iterate.

    With s = L / (b sigma), l = n / b batches per epoch, and E epochs, the curve is G_mu with
    mu = s sqrt(1 + c^(2l-2) (1 - c^2) / (1 - c^l)^2 (1 - c^(l(E-1))) / (1 + c^(l(E-1)))). The
    limit for c = 1 is s sqrt(1 + (E - 1) / l). With a constraint set of diameter D instead of a
    contraction, mu^2 = ((L / b)^2 + 3 L D / (eta b l) + (L^2 / (b^2 l)) ceil(D b / (eta L))) /
    sigma^2 if E >= D b / (eta L), or the value for c = 1 if it is smaller.

    Args:
        n: number of records, a multiple of ``batch``.
        batch: b, records in a batch.
        epochs: E, at least 1.
        sigma, sensitivity, contraction, diameter, step_size: as for `NoisyGradientDescent`.

    Examples:
        >>> import neyman as ny
        >>> last = ny.NoisyCyclicGradientDescent(
        ...     60_000, batch=1500, epochs=50, sigma=0.01, sensitivity=10, contraction=0.9999
        ... )
        >>> round(float(last.tradeoff().epsilon(delta=1e-5)), 2)
        4.34

    Source: Bok, Su and Altschuler 2024.
    """

    n: int = field(metadata=COUNT)
    batch: int = field(metadata=COUNT)
    epochs: int = field(metadata=COUNT)
    sigma: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(metadata=POSITIVE)
    contraction: float | Fraction | None = field(default=None, metadata=FACTOR)
    diameter: float | Fraction | None = field(default=None, metadata=POSITIVE)
    step_size: float | Fraction | None = field(default=None, metadata=POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % self.batch:
            raise ValueError(
                f"batch = {self.batch} must divide n = {self.n}: the cyclic scheme visits every "
                "record once an epoch"
            )

    def _mu_squared(self) -> Decimal:
        s = _decimal(self.sensitivity) / (_decimal(self.sigma) * self.batch)
        batches, later = self.n // self.batch, Decimal(self.epochs - 1)
        c = Decimal(1) if self.contraction is None else _factor(self.contraction)
        if batches == 1:
            factor = _contraction(c, later + 1)
        elif c == 1:
            factor = 1 + later / batches
        else:
            round_ = c**batches
            tail = (1 - round_**later) / (1 + round_**later) if later else Decimal(0)
            factor = 1 + c ** (2 * batches - 2) * (1 - c * c) / (1 - round_) ** 2 * tail
        if self.contraction is None:
            reach = _reach(self, self.batch)
            if self.epochs >= reach:
                factor = min(factor, 1 + (3 * reach + math.ceil(reach)) / batches)
        return s * s * factor

    def all_iterates(self) -> Mechanism:
        """Return the composition of all epochs."""
        return _step(self, self.batch) * self.epochs


@dataclass(frozen=True)
class NoisyStochasticGradientDescent(StandIn, LastIterate):
    """Run noisy gradient descent on fresh batches of fixed size, and release the last iterate.

    Each step draws b of the n records without replacement: p = b / n, with C_p of `FixedSize`. With
    s = L / (b sigma), the curve is f = G(2 sqrt(2) s c^(v+1) / (1 - c)) (x) C_p(G(2 s))^(v+1) for
    the best v < t. C_p(G(s))^t (every iterate seen) replaces it if better. The composition is
    exact. The Gaussian limit of the product selects v, and every v is proven. With a constraint set
    of diameter D, the first factor is G(2 sqrt(2) D / (eta sigma sqrt(v + 1))).

    Args:
        n: number of records.
        batch: b, records in a batch, at most n.
        steps: t, at least 1.
        sigma, sensitivity, contraction, diameter, step_size: as for `NoisyGradientDescent`.

    Examples:
        >>> import neyman as ny
        >>> last = ny.NoisyStochasticGradientDescent(
        ...     1000, batch=10, steps=200, sigma=1, sensitivity=10, contraction=0.9
        ... )
        >>> round(float(last.tradeoff().epsilon(delta=1e-5)), 2)
        1.01

    Source: Bok, Su and Altschuler 2024; [LI-1], [LI-2] (the constrained case).
    """

    n: int = field(metadata=COUNT)
    batch: int = field(metadata=COUNT)
    steps: int = field(metadata=COUNT)
    sigma: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(metadata=POSITIVE)
    contraction: float | Fraction | None = field(default=None, metadata=FACTOR)
    diameter: float | Fraction | None = field(default=None, metadata=POSITIVE)
    step_size: float | Fraction | None = field(default=None, metadata=POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.n:
            raise ValueError(f"batch = {self.batch} must be at most n = {self.n}")

    def made_of(self) -> Mechanism:
        """Return the composition whose curve bounds this mechanism."""
        best = min(self._cuts(), key=self._about)
        if best == self.steps:
            return self.all_iterates()
        rest = self._gap(best)
        first = Gaussian(1, rest) if rest else Mechanism.nothing()
        return (
            first + _step(self, self.batch, 2).subsample(size=self.batch, population=self.n) * best
        )

    def _cuts(self) -> list[int]:
        """Return the values of v + 1 to try (see the class). The value ``steps`` means no split."""
        t = self.steps
        splits = 400  # number of points at which the stochastic scheme is tentatively split
        if t <= splits:
            return list(range(1, t + 1))
        spread = {round(t ** (i / splits)) for i in range(splits + 1)}
        return sorted(spread | {t})

    def _gap(self, last: int) -> float:
        """Return the mu of the curve's first factor for v + 1 = ``last``, rounded up."""
        if self.contraction is None:
            apart = float(_reach(self, self.batch)) * self._s / math.sqrt(last)
        else:
            c = _factor(self.contraction)
            if c == 1:
                return math.inf
            with localcontext() as context:
                context.prec = LIMITS.digits
                apart = float(c**last / (1 - c)) * self._s
        return 2 * math.sqrt(2) * max(apart, LIMITS.least_gap) * (1 + 1e-14)

    @property
    def _s(self) -> float:
        return float(self.sensitivity) / (self.batch * float(self.sigma))

    def _about(self, last: int) -> float:
        """Estimate the curve's mu squared for v + 1 = ``last``, by the central limit theorem."""
        if last == self.steps:
            return last * _limit(self._s, self.batch / self.n)
        gap = self._gap(last)
        return gap * gap + last * _limit(2 * self._s, self.batch / self.n)

    def all_iterates(self) -> Mechanism:
        """Return the composition of all steps."""
        step = _step(self, self.batch)
        return step.subsample(size=self.batch, population=self.n) * self.steps


def _decimal(value: float | Fraction) -> Decimal:
    exact = rational(value)
    with localcontext() as context:
        context.prec = LIMITS.computed_digits
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def _factor(contraction: float | Fraction) -> Decimal:
    """Return c, or 1 if c is nearly 1. This is safe: every bound grows with c."""
    c = _decimal(contraction)
    return c if 1 - c >= NEAR_ONE else Decimal(1)


def _contraction(c: Decimal, t: Decimal) -> Decimal:
    """Return mu^2 / s^2: (1 - c^t)(1 + c) / ((1 + c^t)(1 - c)), or t for c = 1."""
    if c == 1:
        return t
    far = c**t
    return (1 - far) * (1 + c) / ((1 + far) * (1 - c))


def _reach(descent: LastIterate, size: int) -> Decimal:
    """Return D size / (eta L), the number of steps in which two iterates can move D apart.

    ``size`` is the number of records in a step.
    """
    assert descent.diameter is not None
    assert descent.step_size is not None
    step = rational(descent.step_size) * rational(descent.sensitivity)
    return _decimal(rational(descent.diameter) * size / step)


def _step(descent: LastIterate, size: int, times: int = 1) -> Mechanism:
    """Return one step on ``size`` records that the attacker sees: G(times L / (size sigma))."""
    return Gaussian(rational(descent.sigma), rational(descent.sensitivity) * times / size)


def _limit(mu: float, p: float) -> float:
    """Estimate the mu squared that each of many sampled steps C_p(G_mu) adds, in the limit.

    Source: Dong, Roth and Su 2022.
    """
    if mu > 25:
        return math.inf
    grown = math.exp(mu * mu) * float(ndtr(1.5 * mu)) + 3 * float(ndtr(-0.5 * mu)) - 2
    return 2 * p * p * max(grown, 0.0)
