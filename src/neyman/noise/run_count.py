"""Draw the secret number of runs of a search exactly, by inversion of its distribution function.

A uniform real is compared with cumulative probabilities that have decimal bounds. While its bits or
the digits leave two answers, more of both are computed, without floating-point arithmetic [BS-7].
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from neyman.noise.bits import Bits
from neyman.noise.enclosures import NOTHING_KNOWN, Enclosures, Pair
from neyman.noise.real_noise import UniformReal
from neyman.numerics.roots import bisect_integers


def draw_poisson(mean: Fraction, bits: Bits) -> int:
    """Draw a number of runs from the Poisson distribution, in a time proportional to the mean.

    Args:
        mean: E[K], above 0.
    """
    parts = -(-mean // 32)
    return sum(_draw(lambda e: _poisson(mean / parts, e), 0, bits) for _ in range(parts))


def draw_negative_binomial(mean: Fraction, shape: Fraction, bits: Bits) -> int:
    """Draw a number of runs from the truncated negative binomial distribution.

    The time is proportional to the number.

    Args:
        mean: E[K], at least 1.
        shape: eta, above -1. At 1 the distribution is geometric, and at 0 logarithmic.
    """
    if mean == 1:
        return 1
    return _draw(lambda e: _negative_binomial(mean, shape, e), 1, bits)


Law = tuple[Pair, Callable[[int], Pair]]
"""The probability of the smallest number, and a function for the ratio of P(k + 1) to P(k)."""


def _draw(law: Callable[[Enclosures], Law], start: int, bits: Bits) -> int:
    uniform, digits = UniformReal(bits), 40  # for 64 bits, and the loss over a million terms
    while True:
        numbers = Enclosures(digits)
        answer = _inverse(numbers, *law(numbers), start, uniform)
        if answer is not None:
            return answer
        uniform.refine()
        digits += 20


def _inverse(
    numbers: Enclosures, mass: Pair, ratio: Callable[[int], Pair], k: int, uniform: UniformReal
) -> int | None:
    """Return the k with F(k-1) <= U < F(k) for U = ``uniform``, or None if several are possible.

    ``mass`` and ``ratio`` are the `Law`, and the argument ``k`` is the smallest number.
    """
    low, high = numbers.of(*uniform.ends)
    total = mass
    while total[1] <= low:
        mass = numbers.times(mass, ratio(k))
        total = numbers.add(total, mass)
        k += 1
    return k if total[0] >= high else None


def _poisson(mean: Fraction, numbers: Enclosures) -> Law:
    return numbers.fall(numbers.of(mean)), lambda k: numbers.of(mean / (k + 1))


def _negative_binomial(mean: Fraction, shape: Fraction, numbers: Enclosures) -> Law:
    """Return P(K = 1) = mean gamma^(1 + eta) and the ratio of a `Law`, for eta = ``shape`` [BS-7].

    The ratio is (1 - gamma) (k + eta) / (k + 1).
    """
    rate = _rate(mean, shape, numbers.digits)
    first = numbers.fall(numbers.times(rate, numbers.of(1 + shape)))
    going_on = numbers.less(numbers.of(Fraction(1)), numbers.fall(rate))
    mass = numbers.times(numbers.of(mean), first)
    return mass, lambda k: numbers.times(going_on, numbers.of((k + shape) / (k + 1)))


@lru_cache(maxsize=64)
def _rate(mean: Fraction, shape: Fraction, digits: int) -> Pair:
    """Return bounds on log(1 / gamma), given the mean and eta = ``shape`` [BS-7].

    The bounds have ``digits`` decimal places.
    """
    fine = Enclosures(2 * digits + 20)  # for differences
    target = fine.of(mean)

    def at(n: int) -> Pair:
        place = Decimal(f"{n}e-{digits}")  # exact, unlike a product
        return _mean((place, place), shape, fine)

    reach = 10**digits
    while at(reach)[0] < target[1]:
        reach *= 2
    low = bisect_integers(lambda n: at(n)[1] <= target[0], 0, reach)
    away = 1
    while at(low + away)[0] < target[1]:
        away *= 2
    high = low + away
    return Decimal(f"{low}e-{digits}"), Decimal(f"{high}e-{digits}")


def _mean(rate: Pair, shape: Fraction, numbers: Enclosures) -> Pair:
    """Return bounds on the mean eta (e^x - 1) / (1 - e^(-eta x)), for eta = ``shape``.

    x = log(1 / gamma) has the bounds ``rate``. The mean rises with x.
    """
    one = numbers.of(Fraction(1))
    if not rate[0]:
        return one
    more = numbers.less(numbers.over(one, numbers.fall(rate)), one)
    if not shape:
        return numbers.over(more, rate)
    size = numbers.of(abs(shape))
    fallen = numbers.fall(numbers.times(rate, size))
    if shape < 0:  # both terms change sign
        fallen = numbers.over(one, fallen)
        loss = numbers.less(fallen, one)
    else:
        loss = numbers.less(one, fallen)
    if not loss[1]:
        return NOTHING_KNOWN
    return numbers.over(numbers.times(more, size), loss)
