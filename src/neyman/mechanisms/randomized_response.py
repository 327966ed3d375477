"""Describe mechanisms that answer with one of finitely many categories."""

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
    """Report the true category, or a uniformly random other category.

    The true category has probability e^epsilon / (e^epsilon + k - 1).

    Args:
        epsilon: of pure DP, at least 0.
        categories: k, at least 2. With more categories, the same epsilon reveals less.

    Neighbors replace a person's answer by another answer, so the relation is replace-one.

    Examples:
        >>> import neyman as ny
        >>> f = ny.RandomizedResponse(1).tradeoff()
        >>> round(float(f.power(level=0.05)), 4), round(float(f.advantage()), 4)
        (0.1359, 0.4621)

    Source: Warner 1965; Kairouz, Oh and Viswanath 2016.
    """

    RELATION = "replace-one"

    epsilon: float | Fraction = field(metadata=EPSILON)
    categories: int = field(default=2, metadata=integer(2, MAX_CATEGORIES))

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss with the values epsilon, -epsilon and, for k > 2, 0."""
        epsilon = rational(self.epsilon)
        loss = [(response_loss(epsilon, self.categories), 1)] if epsilon else []
        return (Composition.of(loss),)

    def rho(self) -> Fraction:
        """Return the largest Renyi divergence divided by its order, rounded up [ZC-4]."""
        return response_rho(rational(self.epsilon), self.categories)


@dataclass(frozen=True)
class LocalRandomizer(Mechanism):
    """Represent any epsilon-DP mechanism that each person runs on their own record.

    Its curve is the curve of binary randomized response. Post-processing turns binary randomized
    response, itself epsilon-DP, into every other epsilon-DP mechanism.

    Args:
        epsilon: at least 0. Between two records, the probability of an answer changes by at most
            the factor e^epsilon.

    Neighbors replace a person's record by another record, so the relation is replace-one.

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
        """Return one loss with the values epsilon and -epsilon."""
        epsilon = rational(self.epsilon)
        return (Composition.of([(response_loss(epsilon), 1)] if epsilon else []),)

    def rho(self) -> Fraction:
        """Return epsilon tanh(epsilon / 2), rounded up [ZC-3]."""
        return pure_rho(rational(self.epsilon))
