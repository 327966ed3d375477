"""A person's own curve under sampling by budget, by enumeration of every sample."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from seeded import Seeded


def released(budgets, present, rates, t):
    """The distribution of a noisy parity of the sample's size: randomized response, which
    is t-DP.
    """
    truth = math.exp(t) / (1 + math.exp(t))
    odd = 0.0
    for entered in product((0, 1), repeat=len(budgets)):
        chance = math.prod(
            rates[b] * p if e else 1 - rates[b] * p
            for e, b, p in zip(entered, budgets, present, strict=True)
        )
        odd += chance * (truth if sum(entered) % 2 else 1 - truth)
    return np.array([odd, 1 - odd])


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=4), st.data())
def test_no_attack_on_every_sample_beats_a_persons_own_curve(budgets, data):
    t = 1.0
    personal = ny.PersonalBudgets(ny.Laplace(1), budgets=[0.25, 0.5, 1.0, 2.0])
    rates = {b: personal.rate(b) for b in budgets}
    present = data.draw(st.lists(st.integers(0, 1), min_size=len(budgets), max_size=len(budgets)))
    for i, budget in enumerate(budgets):
        p, q = (
            released(budgets, [*present[:i], there, *present[i + 1 :]], rates, t)
            for there in (1, 0)
        )
        own = personal.mechanism.subsample(rate=rates[budget]) if budget < t else ny.Laplace(1)
        assert own == (personal.of(budget) if budget < t else personal.mechanism)
        for first, second in ((p, q), (q, p)):
            assert np.all(first <= math.exp(min(budget, t)) * second + 1e-12)
        # The sampled curve of any t-DP mechanism: pi delta_t at log(1 + (e^eps - 1) / pi).
        for epsilon in (0.0, 0.1, 0.3):
            inner = math.log1p(math.expm1(epsilon) / rates[budget])
            allowed = rates[budget] * float(ny.pure(t).delta(inner))
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= allowed + 1e-12


def test_the_chance_is_the_formulas_and_never_above_it():
    personal = ny.PersonalBudgets(ny.Laplace(1), budgets=[0.5, 1, 2, Fraction(1, 3)])
    exact = math.expm1(0.5) / math.expm1(1)
    assert exact * (1 - 1e-15) <= personal.rate(0.5) <= exact * (1 + 1e-16)
    assert personal.rate(1) == personal.rate(2) == 1.0
    for budget in (0.5, 1, Fraction(1, 3)):
        assert float(personal.of(budget).tradeoff().pure()) == pytest.approx(
            float(budget), rel=1e-9
        )
    assert personal.tradeoff().delta(0.3) == personal.of(2).tradeoff().delta(0.3)
    assert ny.Mechanism.from_json(personal.to_json()) == personal
    twice = (personal * 2).tradeoff().pure().upper
    assert twice == pytest.approx(2, rel=1e-9)
    assert personal.rho() == ny.Laplace(1).rho()
    assert ny.PersonalBudgets(ny.Laplace(1), (0.1,)).rho() == Fraction(1, 200)


def test_the_sample_has_the_chances_of_the_budgets():
    personal = ny.PersonalBudgets(ny.Laplace(1), budgets=[0.1, 0.5, 1])
    budgets = [0.1, 0.5, 1] * 20_000
    rows = personal.draw(budgets, Seeded(1))
    assert personal.draw([Fraction(1, 10), 0.1, 1] * 50).size <= 150  # one budget, written twice
    assert len(set(personal.draw([1, Fraction(1)] * 50))) == 100
    assert np.all(np.diff(rows) > 0)
    for i, budget in enumerate((0.1, 0.5, 1)):
        rate = personal.rate(budget)
        share = np.count_nonzero(rows % 3 == i) / 20_000
        assert abs(share - rate) <= 5 * math.sqrt(rate * (1 - rate) / 20_000)


@pytest.mark.parametrize("most", [Fraction(1), Fraction(1, 3), Fraction(5, 2), Fraction(30)])
def test_a_rate_is_the_float_below_the_exact_one(most):
    owners = [most * Fraction(k, 17) for k in range(1, 18)] + [2 * most, most / 10**9]
    people = ny.PersonalBudgets(ny.Laplace(1 / most), budgets=owners)
    pure = people.mechanism.tradeoff().exact_pure()
    with mpmath.workdps(80):

        def grown(x):
            return mpmath.expm1(mpmath.mpf(x.numerator) / x.denominator)

        for own in owners:
            rate = people.rate(own)
            if own >= pure:
                assert rate == 1
            else:
                exact = grown(own) / grown(pure)
                assert rate <= exact < math.nextafter(rate, 1)
