"""Mechanisms that answer with one of finitely many categories."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import response_loss
from neyman.curves.losses.zcdp_parameters import pure_rho, response_rho
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import EPSILON, integer, rational

MAX_CATEGORIES = 10**15


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """The truth with probability e^epsilon / (e^epsilon + k - 1), else any of the k - 1 others.

    Args:
        epsilon: at least 0; it is pure epsilon-DP.
        categories: k, at least 2. With more of them the same epsilon reveals less.

    A person's answer is replaced by another, so the relation is replace-one.

    Examples:
        >>> import neyman as ny
        >>> f = ny.RandomizedResponse(1).tradeoff()
        >>> round(float(f.power(level=0.05)), 4), round(float(f.advantage()), 4)
        (0.1359, 0.4621)

    Source: Warner 1965; Kairouz, Oh and Viswanath 2016.
    """

    RELATION = "replace-one"

    epsilon: float | Fraction = field(metadata=EPSILON)
    categories: int = field(default=2, metadata=integer(2))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categories > MAX_CATEGORIES:
            raise ValueError(f"categories = {self.categories!r} must be at most {MAX_CATEGORIES}")

    def losses(self) -> tuple[Composition, ...]:
        """One loss with the values epsilon, -epsilon and, for k > 2, 0."""
        epsilon = rational(self.epsilon)
        if not epsilon:
            return (Composition(),)
        return (Composition.of([(response_loss(epsilon, self.categories), 1)]),)

    def rho(self) -> Fraction:
        """Return the largest D_a / a over the orders a, rounded up [ZC-4]."""
        return response_rho(rational(self.epsilon), self.categories)


@dataclass(frozen=True)
class LocalRandomizer(Mechanism):
    """Any epsilon-DP mechanism that each person runs on their own record.

    Its curve is that of binary randomized response, which can be garbled into every other
    epsilon-DP mechanism, and is one itself.

    Args:
        epsilon: at least 0: no answer is more than e^epsilon times as likely with one record as
            with another.

    A person's record is replaced by another, so the relation is replace-one.

    Examples:
        >>> import neyman as ny
        >>> f = ny.LocalRandomizer(2).shuffle(users=10_000).tradeoff()
        >>> round(float(f.epsilon(delta=1e-6)), 3)
        0.114

    Source: Kairouz, Oh and Viswanath 2015; Kasiviswanathan et al. 2011.
    """

    RELATION = "replace-one"

    epsilon: float | Fraction = field(metadata=EPSILON)

    def losses(self) -> tuple[Composition, ...]:
        """One loss with the values epsilon and -epsilon."""
        epsilon = rational(self.epsilon)
        return (Composition.of([(response_loss(epsilon), 1)] if epsilon else []),)

    def rho(self) -> Fraction:
        """epsilon tanh(epsilon / 2), rounded up [ZC-3]."""
        return pure_rho(rational(self.epsilon))
