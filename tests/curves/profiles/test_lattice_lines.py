"""Losses on a lattice: lines over a period against all masses of the sum, in fifty digits."""

from collections import defaultdict
from fractions import Fraction

import mpmath as mp
import pytest

import neyman as ny

F = Fraction
SUMS = [
    (("gaussian", F(9, 4), 1, 7),),
    (("gaussian", F(1, 3), 1, 5),),
    (("gaussian", F(4), 3, 2), ("gaussian", F(8), 1, 2)),
    (("gaussian", F(2), 1, 4), ("laplace", F(3, 2), 2, 3)),
    (("gaussian", F(1), 1, 1), ("response", F(1, 2), 5, 6)),
    (("gaussian", F(40), 1, 2),),
    (("gaussian", F(5873, 5000), 1, 9), ("laplace", F(5419, 2500), 1, 3)),
]
MECHANISMS = {
    "gaussian": lambda v, d: ny.DiscreteGaussian(sigma_squared=v, sensitivity=d),
    "laplace": lambda v, d: ny.DiscreteLaplace(v, sensitivity=d),
    "response": ny.RandomizedResponse,
}
FARTHEST = 200  # beyond it, masses are below 1e-80


def masses(kind, value, other):
    """The masses under P of each exact loss."""
    result = defaultdict(mp.mpf)
    if kind == "response":
        total = mp.exp(mp.mpf(value.numerator) / value.denominator) + other - 1
        for loss, count in ((value, 1), (-value, 1), (F(0), other - 2)):
            result[loss] = count * (mp.exp(mp.mpf(1) / 2) if loss > 0 else 1) / total
        return result
    for x in range(-FARTHEST, FARTHEST + 1):
        if kind == "gaussian":
            exponent, loss = F(-x * x, 2) / value, F(other * (other - 2 * x), 2) / value
        else:
            exponent, loss = -abs(x) / value, (abs(x - other) - abs(x)) / value
        if exponent > -190:
            result[loss] += mp.exp(mp.mpf(exponent.numerator) / exponent.denominator)
    total = mp.fsum(result.values())
    return {loss: mass / total for loss, mass in result.items()}


def sum_of(parts):
    """The masses of the sum of all losses, but for what is below 1e-70."""
    total = {F(0): mp.mpf(1)}
    for kind, value, other, count in parts:
        one = masses(kind, value, other)
        for _ in range(count):
            longer = defaultdict(mp.mpf)
            for loss, mass in total.items():
                for more, p in one.items():
                    if mass * p > 1e-70:
                        longer[loss + more] += mass * p
            total = longer
    return sorted(total.items(), reverse=True)


def exact_delta(law, epsilon):
    return mp.fsum(p * -mp.expm1(epsilon - mp.mpf(x.numerator) / x.denominator) for x, p in law
                   if x > epsilon)  # fmt: skip


def exact_power(law, level):
    power, left = mp.mpf(0), mp.mpf(level)
    for x, p in law:
        ratio = mp.exp(mp.mpf(x.numerator) / x.denominator)
        if p / ratio >= left:
            return power + left * ratio
        power, left = power + p, left - p / ratio
    return power


@pytest.mark.parametrize("parts", SUMS)
def test_a_sum_on_a_lattice_has_its_exact_delta_and_power(parts):
    mechanism = sum(
        (MECHANISMS[kind](v, d) * n for kind, v, d, n in parts[1:]),
        MECHANISMS[parts[0][0]](*parts[0][1:3]) * parts[0][3],
    )
    f = mechanism.tradeoff()
    with mp.workdps(50):
        law = sum_of(parts)
        top = float(law[0][0])
        places = [float(law[len(law) // k][0]) for k in (3, 4)]
        for epsilon in (0.0, 0.3, 4.0, 0.2 * top, *places):
            truth, bound = exact_delta(law, epsilon), f.delta(epsilon)
            if truth > 1e-40:
                assert bound.lower <= truth <= bound.upper, epsilon
                assert bound.upper - bound.lower <= 1e-9 * bound.upper, epsilon
        listed = parts == SUMS[-1]  # on two lattices: a search among bends
        for level in (1e-20, 1e-6, 0.01, 0.3, 0.8, 0.95):
            truth, bound, miss = exact_power(law, level), f.power(level), f(level)
            assert bound.lower <= truth <= bound.upper, level
            assert bound.upper - bound.lower <= (1e-8 if listed else 1e-9) * bound.upper, level
            if 1 - truth > 1e-30:
                assert miss.lower <= 1 - truth <= miss.upper, level
                assert miss.upper - miss.lower <= (1e-4 if listed else 1e-6) * miss.upper, level
        for delta in (1e-3, 1e-12, 1e-25):
            epsilon = f.epsilon(delta)
            assert exact_delta(law, epsilon.upper) <= delta <= exact_delta(law, epsilon.lower)
            assert epsilon.upper - epsilon.lower <= 1e-9 * epsilon.upper + 1e-12


@pytest.mark.parametrize(
    "mechanism",
    [ny.DiscreteGaussian(F(1, 4)) * 100, ny.DiscreteLaplace(F(1, 2), sensitivity=8) * 70],
)
def test_a_power_at_a_tiny_level_is_at_least_delta(mechanism):
    """Few large steps, whose sum is far from normal: power(e^-x) >= delta(x)."""
    f = mechanism.tradeoff()
    for x in (1.0, 20.0, 100.0, 300.0, 700.0):
        power, delta = f.log_power(log_level=-x), f.log_delta(x)
        assert delta.lower <= power.upper
        assert power.lower <= power.upper
