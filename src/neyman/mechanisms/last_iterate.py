"""The last iterate of noisy gradient descent: all that is released is where it ends.

One step is x -> c-contraction(x) + noise of standard deviation eta sigma on each coordinate, eta
the step size; a record that is replaced moves a step's gradient by at most L / n (full gradients)
or L / b (batches). Both cancel eta, so that a step alone has the curve of G(s), s = L / (n sigma)
or L / (b sigma). What earlier steps told is forgotten by the contraction, or by the constraint
set's diameter: more steps need not cost more.

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
    """Where a scheme is cut."""

    digits: int = 60
    least_gap: float = 1e-140  # of what is forgotten: less would leave the floats
    splits: int = 400  # how many places are tried at which the stochastic scheme may be cut


LIMITS = Limits()
NEAR_ONE = Decimal("1e-20")  # of 1 - c: below it is 0, lest the digits of 1 - c^t be lost


def _factor_up_to_one(name: str, value: object) -> float | Fraction:
    check.between(name, value, 0.0, 1.0)
    return check.number(name, value)


FACTOR = form(_factor_up_to_one)


def contraction(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """Return the factor c by which a gradient step brings two points closer: max |1 - eta m|, |1 -
    eta M|.

    Args:
        step_size: eta, above 0 and at most 2 / M.
        strong_convexity: m, at least 0: the least curvature of the average loss that a step
            follows. With batches it must hold for each batch, not only for all records together.
        smoothness: M, the largest curvature, above 0 and at least m. A gradient that is clipped
            keeps the contraction only where the clipped loss is itself convex and smooth, such as
            a generalized linear model's.

    Returns:
        c in [0, 1], never below what the three numbers say as decimals; 1 where the loss is convex
        only, or hardly more.

    Raises:
        ValueError: where the step is too long to contract.
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
        c = up(c, 1)  # 1 - c is what counts, and a float near 1 has few digits of it
    return min(c, 1.0)


class LastIterate(Mechanism):
    """Noisy gradient descent of which only the last iterate is seen."""

    RELATION = "replace-one"

    n: int
    sigma: float | Fraction
    sensitivity: float | Fraction
    contraction: float | Fraction | None
    diameter: float | Fraction | None
    step_size: float | Fraction | None

    @abstractmethod
    def all_iterates(self) -> Mechanism:
        """Return the same descent with every iterate released:
        plain composition, for comparison.
        """

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
    """A descent whose last iterate has a Gaussian curve."""

    @abstractmethod
    def _mu_squared(self) -> Decimal:
        """Return the square of mu, to `LIMITS.digits` digits."""

    def losses(self) -> tuple[Composition, ...]:
        return (Composition.of([(GaussianLoss(float(self._precise())), 1)]),)

    def rho(self) -> Fraction:
        """mu^2 / 2, rounded up in the last of 60 digits."""
        return Fraction(self._precise()) / 2

    def _precise(self) -> Decimal:
        with localcontext() as context:
            context.prec, context.rounding = LIMITS.digits, ROUND_CEILING
            return +(self._mu_squared() * (1 + Decimal(10) ** (10 - LIMITS.digits)))


@dataclass(frozen=True)
class NoisyGradientDescent(_Gaussian):
    """Full gradients: mu = s sqrt((1 - c^t)(1 + c) / ((1 + c^t)(1 - c))), s = L / (n sigma).

    It is exact: quadratic losses attain it. For c = 1 that is s sqrt(t), as if all were seen. With
    a constraint set of diameter D in place of a contraction,
    mu^2 = (3 L D / (eta n) + (L / n)^2 ceil(D n / (eta L))) / sigma^2 once t >= D n / (eta L), or
    s^2 t where that is less.

    Args:
        n: number of records.
        steps: t, at least 1.
        sigma: a step adds normal noise of standard deviation eta sigma to each coordinate, above 0.
        sensitivity: L, how far one record's gradient can move, in l2, when it is replaced.
        contraction: c in [0, 1], see `contraction`.
        diameter, step_size: D and eta, in place of a contraction, for convex smooth losses with
            eta at most 2 / smoothness.

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
        """Return unadjusted Langevin dynamics, of which the last point is released.

        One step is w -> w - eta (mean gradient) + sqrt(2 eta T) N(0, I). That is noisy gradient
        descent with sigma = sqrt(2 T / eta). The curve holds at every number of steps: the chain
        need not be near its limit, and no distance from a posterior is needed. The start must not
        depend on the data.

        Args:
            n: number of records.
            steps: t, at least 1.
            step_size: eta, above 0 and at most 2 / smoothness.
            temperature: T, above 0. The posterior e^{-(sum of losses)} has T = 1 / n.
            sensitivity: L, how far one record's gradient can move, in l2, when it is replaced.
            strong_convexity, smoothness: of the mean loss, see `contraction`.

        Raises:
            ValueError: for a step that is too long to contract.

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
        """Return the mechanism in which the attacker sees every iterate."""
        return _step(self, self.n) * self.steps


@dataclass(frozen=True)
class NoisyCyclicGradientDescent(_Gaussian):
    """Batches in a fixed order, s = L / (b sigma), l = n / b batches an epoch, E epochs.

    mu = s sqrt(1 + c^(2l-2) (1 - c^2) / (1 - c^l)^2 (1 - c^(l(E-1))) / (1 + c^(l(E-1)))), whose
    limit for c = 1 is s sqrt(1 + (E - 1) / l). With a constraint set of diameter D in place of a
    contraction, mu^2 = ((L / b)^2 + 3 L D / (eta b l) + (L^2 / (b^2 l)) ceil(D b / (eta L))) /
    sigma^2 once E >= D b / (eta L), or what c = 1 gives where that is less.

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
        """Return the mechanism in which the attacker sees every iterate."""
        return _step(self, self.batch) * self.epochs


@dataclass(frozen=True)
class NoisyStochasticGradientDescent(StandIn, LastIterate):
    """Batches drawn afresh at each step, of fixed size, without replacement: p = b / n.

    f = G(2 sqrt(2) s c^(v+1) / (1 - c)) (x) C_p(G(2 s))^(v+1), s = L / (b sigma), for whichever
    v < t is best; or C_p(G(s))^t, every iterate seen, where that is better. It is composed
    exactly; v is chosen by the Gaussian limit of the product, and any v is a proven curve. With a
    constraint set of diameter D the first factor is G(2 sqrt(2) D / (eta sigma sqrt(v + 1))).

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
        """v + 1 to try: all, or evenly spread in the logarithm; ``steps`` stands for no cut."""
        t = self.steps
        if t <= LIMITS.splits:
            return list(range(1, t + 1))
        spread = {round(t ** (i / LIMITS.splits)) for i in range(LIMITS.splits + 1)}
        return sorted(spread | {t})

    def _gap(self, last: int) -> float:
        """2 sqrt(2) times how far apart the iterates may have been, over the noise; rounded up."""
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
        """About mu squared, by the central limit."""
        if last == self.steps:
            return last * _limit(self._s, self.batch / self.n)
        gap = self._gap(last)
        return gap * gap + last * _limit(2 * self._s, self.batch / self.n)

    def all_iterates(self) -> Mechanism:
        """Return the mechanism in which the attacker sees every iterate."""
        step = _step(self, self.batch)
        return step.subsample(size=self.batch, population=self.n) * self.steps


def _decimal(value: float | Fraction) -> Decimal:
    exact = rational(value)
    with localcontext() as context:
        context.prec = LIMITS.digits
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def _factor(contraction: float | Fraction) -> Decimal:
    """Return a contraction, or 1 where it is as good as that: every bound rises with it."""
    c = _decimal(contraction)
    return c if 1 - c >= NEAR_ONE else Decimal(1)


def _contraction(c: Decimal, t: Decimal) -> Decimal:
    """(1 - c^t)(1 + c) / ((1 + c^t)(1 - c)), t at c = 1."""
    if c == 1:
        return t
    far = c**t
    return (1 - far) * (1 + c) / ((1 + far) * (1 - c))


def _reach(descent: LastIterate, size: int) -> Decimal:
    """D size / (eta L): how many steps may take a point across the constraint set."""
    assert descent.diameter is not None
    assert descent.step_size is not None
    step = rational(descent.step_size) * rational(descent.sensitivity)
    return _decimal(rational(descent.diameter) * size / step)


def _step(descent: LastIterate, size: int, times: int = 1) -> Mechanism:
    """One step, seen: G(times L / (size sigma))."""
    return Gaussian(rational(descent.sigma), rational(descent.sensitivity) * times / size)


def _limit(mu: float, p: float) -> float:
    """Return the mu squared that each of many C_p(G_mu) adds in
    the limit (Dong, Roth and Su 2022).
    """
    if mu > 25:
        return math.inf
    grown = math.exp(mu * mu) * float(ndtr(1.5 * mu)) + 3 * float(ndtr(-0.5 * mu)) - 2
    return 2 * p * p * max(grown, 0.0)
