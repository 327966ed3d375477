"""The curve where all others hold the same bit, against its sum in fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

import neyman as ny
from neyman.mechanisms.shuffling.shuffled_profiles import BinaryShuffleProfile


def laws(users: int, odds: Fraction) -> tuple[list[int], list[int]]:
    """The chances of each number of ones with a 1 and with a 0, times (1 + odds) ** users."""
    a, b = odds.numerator, odds.denominator
    pmf = [math.comb(users - 1, k) * b**k * a ** (users - 1 - k) for k in range(users)]
    one = [b * mass + a * less for mass, less in zip([*pmf, 0], [0, *pmf], strict=True)]
    none = [a * mass + b * less for mass, less in zip([*pmf, 0], [0, *pmf], strict=True)]
    return one, none


def larger_delta(one: list[int], none: list[int], t: Fraction) -> Fraction:
    """The larger of the two orders, by the sum over all numbers of ones."""
    a, b = t.numerator, t.denominator
    return max(
        Fraction(sum(max(b * x - a * y, 0) for x, y in zip(p, q, strict=True)), b * sum(p))
        for p, q in ((one, none), (none, one))
    )


@pytest.mark.parametrize("users", [1, 2, 5, 40, 300])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_both_ends_enclose_the_sum_and_are_close(users, epsilon):
    profile = BinaryShuffleProfile(users, epsilon)
    at = np.array([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0, 1.1]) * epsilon
    at = np.concatenate([-at[1:], at])
    low, high = profile.log_deltas(at)
    odds = Fraction(math.exp(epsilon))  # correct to a unit: the slack below has room for it
    one, none = laws(users, odds)
    for x, below, above in zip(at, low, high, strict=True):
        truth = float(larger_delta(one, none, Fraction(math.exp(x))))
        assert math.exp(below) <= truth * (1 + 1e-12) + 1e-15
        assert truth <= math.exp(above) * (1 + 1e-12) + 1e-15
        if abs(x) < 0.9995 * epsilon and truth > 1e-200:
            assert above - below < 1e-6


@pytest.mark.parametrize(("epsilon", "users"), [(1, 5), (1, 2), (2, 3), (3, 6), (0.5, 20)])
def test_a_divergence_of_shuffled_bits_encloses_the_largest_over_all_data(epsilon, users):
    """The larger delta of two orders is not a pair's: its divergence was above the truth."""
    p = 1 / (1 + math.exp(epsilon))

    def count(bits: list[int]) -> np.ndarray:
        pmf = np.ones(1)
        for bit in bits:
            pmf = np.convolve(pmf, [1 - p, p] if bit == 0 else [p, 1 - p])
        return pmf

    truth = 0.0
    for ones in range(users):
        others = [1] * ones + [0] * (users - 1 - ones)
        one, none = count([*others, 1]), count([*others, 0])
        truth = max(truth, math.log(np.sum(one**2 / none)), math.log(np.sum(none**2 / one)))
    bound = ny.RandomizedResponse(epsilon).shuffle(users=users).tradeoff().renyi(2)
    assert bound.lower <= truth * (1 + 1e-12)
    assert truth <= bound.upper * (1 + 1e-12)
    assert bound.upper < 1.3 * truth
    assert bound.lower > 0.5 * truth
