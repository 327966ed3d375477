"""Construct the attacker's best test: the outcomes where it says yes, and its tie-breaking."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from neyman.curves.tradeoff.from_data import law
from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import rational
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.numerics import check


@dataclass(frozen=True)
class Limits:
    """Limit the outcomes of an experiment and their precision."""

    digits: int = 60  # digits of e^x, which is no fraction
    outcomes: int = 10_000


LIMITS = Limits()
_WIDE = Context(prec=LIMITS.digits, Emax=10**17, Emin=-(10**17))


@dataclass(frozen=True)
class BestTest:
    """Represent the most powerful test of one distribution against another, at a level.

    The test says yes if the likelihood ratio (alternative over null) exceeds ``threshold``. If the
    ratio equals ``threshold``, it says yes with probability ``tie``.

    Args:
        outcomes: names of the possible outcomes.
        threshold: a likelihood ratio; inf if the test says yes only to outcomes impossible under
            the null.
        tie: probability of yes at the threshold, in [0, 1].
        yes: the probability of yes at each outcome.
        level: probability of yes under the null, exactly the requested level.
        power: probability of yes under the alternative.
    """

    outcomes: tuple[str, ...]
    threshold: Fraction | float
    tie: Fraction
    yes: tuple[Fraction, ...]
    level: Fraction
    power: Fraction

    def __str__(self) -> str:
        pairs = list(zip(self.outcomes, self.yes, strict=True))
        sure = [name for name, p in pairs if p == 1]
        if len(sure) > 6:  # names printed one by one
            sure = [*sure[:2], "...", sure[-1]]
        maybe = [f"{name} (with probability {float(p):.6g})" for name, p in pairs if 0 < p < 1]
        return f"say yes to: {', '.join([*maybe, *sure]) or 'nothing'}"


@dataclass(frozen=True)
class Experiment:
    """Represent two distributions of the same outcomes, one of which is observed.

    Args:
        outcomes: names of the outcomes.
        null: probabilities if the claim is false, with sum 1.
        alternative: probabilities if the claim is true, with sum 1.
    """

    outcomes: tuple[str, ...]
    null: tuple[Fraction, ...]
    alternative: tuple[Fraction, ...]

    def best_test(self, level: float | Fraction | str) -> BestTest:
        """Return the most powerful test of `alternative` against `null`; see `best_test`."""
        return best_test(self.null, self.alternative, level, outcomes=self.outcomes)


def best_test(
    null: Iterable[object],
    alternative: Iterable[object],
    level: float | Fraction | str,
    *,
    outcomes: Sequence[str] | None = None,
) -> BestTest:
    """Return the most powerful test of two finite distributions, in exact fractions.

    The likelihood ratio test says yes to outcomes in falling order of alternative / null, until
    their mass under the null is the level. It says yes to the outcomes with the last ratio with a
    probability that makes the level exact. No test of this level is more powerful (the lemma of
    Neyman and Pearson), so its power is a point of the curve. ``ny.between(null,
    alternative).power(level)`` is the larger of this power and the power with the two roles
    exchanged.

    Args:
        null, alternative: probabilities of the same outcomes, each with sum 1; see ``ny.between``.
        level: probability of yes under the null, in [0, 1]; a float is read as the decimal that it
            prints.
        outcomes: names of the outcomes; by default "0", "1", ...

    Returns:
        The test. Its level and power are exact fractions.

    Raises:
        ValueError: a distribution or the level is not valid, or the numbers of outcomes differ.

    Examples:
        >>> import neyman as ny
        >>> found = ny.best_test([0.5, 0.5], [0.9, 0.1], level=0.05)
        >>> found.power, found.level
        (Fraction(9, 100), Fraction(1, 20))

    Source: Neyman and Pearson 1933.
    """
    q, p = law("null", null)[0], law("alternative", alternative)[0]
    if len(p) != len(q):
        raise ValueError(
            f"null and alternative have {len(q)} and {len(p)} outcomes; they must have the same "
            "(give an outcome that one of them lacks the probability 0)"
        )
    named = range(len(p)) if outcomes is None else check.several("outcomes", outcomes, '["a", "b"]')
    names = tuple(map(str, named))
    if len(names) != len(p):
        raise ValueError(f"outcomes has {len(names)} names for {len(p)} outcomes")
    left = check.exact("level", level)
    check.probability("level", left)
    # An outcome with probability 0 under both never happens.
    ratios = [b / a if a else math.inf if b else Fraction(-1) for a, b in zip(q, p, strict=True)]
    yes, threshold, tie = [Fraction(0)] * len(p), math.inf, Fraction(1)
    for ratio in sorted(set(ratios) - {Fraction(-1)}, reverse=True):
        at = [i for i, r in enumerate(ratios) if r == ratio]
        mass = sum((q[i] for i in at), Fraction(0))
        threshold, tie = ratio, min(Fraction(1), left / mass) if mass else Fraction(1)
        for i in at:
            yes[i] = tie
        left -= tie * mass
        if not left and mass:
            break
    size = sum((a * w for a, w in zip(q, yes, strict=True)), Fraction(0))
    power = sum((b * w for b, w in zip(p, yes, strict=True)), Fraction(0))
    return BestTest(names, threshold, tie, tuple(yes), size, power)


def experiment(mechanism: Mechanism) -> Experiment:
    """Return the outcomes of one release, with their probabilities for two values of the record.

    Args:
        mechanism: `RandomizedResponse` (the answer was "first" or "second"), or `DiscreteLaplace`
            or `DiscreteGaussian` with one changing coordinate (the count was 0 or the sensitivity).
            Then a threshold on the likelihood ratio is a threshold on the output.

    Returns:
        The outcomes with their probabilities, computed to 50 digits (e^x is no fraction) and scaled
        to sum 1. Outcomes with the same likelihood ratio are merged. For the discrete Gaussian,
        outcomes in tails of mass about 1e-50 are merged too, which lowers the power by a similar
        amount.

    Raises:
        TypeError: the mechanism is of another kind (use ``tradeoff().power``).
        ValueError: several coordinates change, or there are too many outcomes to list.
    """
    if isinstance(mechanism, RandomizedResponse):
        truth, one = _exp(rational(mechanism.epsilon)), Fraction(1)
        rest = [Fraction(mechanism.categories - 2)] if mechanism.categories > 2 else []
        names = ["first", "second", *["another"] * len(rest)]
        return _scale_weights(names, [truth, one, *rest], [one, truth, *rest])
    if isinstance(mechanism, DiscreteLaplace):
        shift = mechanism.sensitivity
        _few(shift)
        q = _exp(-1 / mechanism.scale)
        tail = q / (1 - q)  # total mass below the peak, which has mass 1
        inner = [q**x for x in range(1, shift)]
        ends = (1 + tail, q**shift * (1 + tail)) if shift else (1 + tail, tail)
        null = [ends[0], *inner, ends[1]]
        names = ["at most 0", *map(str, range(1, shift)), f"at least {max(shift, 1)}"]
        return _scale_weights(names, null, null[::-1] if shift else null)
    if isinstance(mechanism, DiscreteGaussian):
        vectors = mechanism.sensitivity
        if len(vectors) != 1 or len(vectors[0]) != 1:
            raise ValueError(
                f"sensitivity = {vectors!r} must be one number, so that the test is one on the "
                "output; for vectors ask tradeoff().power"
            )
        (shift,) = vectors[0]
        # Factors e below the largest mass. Beyond, outcomes are not separated.
        reach = math.isqrt(math.ceil(2 * 120 * mechanism.sigma_squared)) + 1
        _few(2 * reach + shift)
        places = range(-reach, shift + reach + 1)
        twice = 2 * mechanism.sigma_squared
        mass = {x: _exp(-(x * x) / twice) for x in range(shift + reach + 1)}
        names = [f"at most {places[0]}", *map(str, places[1:-1]), f"at least {places[-1]}"]
        return _scale_weights(
            names, [mass[abs(x)] for x in places], [mass[abs(x - shift)] for x in places]
        )
    raise TypeError(
        f"mechanism = {mechanism!r} must be RandomizedResponse, DiscreteLaplace or "
        "DiscreteGaussian; for others give best_test two finite distributions, or ask "
        "tradeoff().power"
    )


def _few(outcomes: int) -> None:
    if outcomes > LIMITS.outcomes:
        raise ValueError(
            f"the output has about {outcomes:,} values, more than {LIMITS.outcomes:,}: count in "
            "larger units, or ask tradeoff().power"
        )


def _exp(x: Fraction) -> Fraction:
    """Return e^x to about 60 digits."""
    return Fraction(_WIDE.exp(_WIDE.divide(Decimal(x.numerator), Decimal(x.denominator))))


def _scale_weights(
    names: list[str], null: list[Fraction], alternative: list[Fraction]
) -> Experiment:
    first, second = (tuple(m / sum(masses) for m in masses) for masses in (null, alternative))
    return Experiment(tuple(names), first, second)
