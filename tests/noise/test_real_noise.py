"""Numbers of runs, staircase noise, and Student noise have their exact distributions: against
mpmath.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
from exact_noise import real
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

import neyman as ny
from exact_draws import assert_shares
from neyman.noise import SecureBits, draw_negative_binomial, draw_poisson
from neyman.noise.enclosures import Enclosures
from neyman.noise.real_noise import StudentMagnitude, UniformReal, _before_edge, nearest
from neyman.noise.run_count import _inverse
from random_laws import examples

LAWS = [(F(10), F(1)), (F(4), F(0)), (F(3), F(-1, 2)), (F(7), F(5, 2)), (F(2), F(1, 10**9))]


def chances(mean, shape, *, count):
    """P(K = k) for k = 1, ..., from definition 1 of Papernot and Steinke, at the right mean."""
    m, eta = real(mean), real(shape)

    def law(gamma, most):
        norm = gamma**-eta - 1 if eta else -mpmath.log(gamma)
        term = (1 - gamma) * (eta or 1) / norm
        terms = [term]
        for k in range(1, most):
            terms.append(terms[-1] * (1 - gamma) * (k + eta) / (k + 1))
        return terms

    gamma = mpmath.findroot(
        lambda g: ((1 - g) / g * (eta / (1 - g**eta) if eta else -1 / mpmath.log(g))) - m,
        (mpmath.mpf(1) / 1000, 0.999),
        solver="anderson",
    )
    terms = law(gamma, count)
    assert abs(mpmath.fsum(k * p for k, p in enumerate(terms, 1)) - m) < 1e-12
    return terms


def after(terms, u):
    """The index of the term in whose part of [0, 1) a number lies."""
    total = mpmath.mpf(0)
    for i, term in enumerate(terms):
        total += term
        if u < total:
            return i
    raise AssertionError


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_a_number_of_runs_is_the_quantile_of_its_bits(injected, mean, shape):
    with mpmath.workdps(60):
        terms = chances(mean, shape, count=6000)
        for byte in range(0, 254, 2):
            for rest in (0, 2**57 - 1):
                word = byte << 56 | rest
                k = draw_negative_binomial(mean, shape, injected(1, [word]))
                assert k == 1 + after(terms, mpmath.mpf(word) / 2**64)


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_a_word_on_a_threshold_asks_for_more_bits(injected, mean, shape):
    with mpmath.workdps(60):
        terms = chances(mean, shape, count=6000)
        for k in (1, 2, 5):
            word = int(mpmath.floor(mpmath.fsum(terms[:k]) * 2**64))
            low = draw_negative_binomial(mean, shape, injected(1, [word, 0]))
            high = draw_negative_binomial(mean, shape, injected(1, [word, 2**64 - 1]))
            assert (low, high) == (k, k + 1)


def test_few_digits_give_no_answer_or_the_right_one(injected):
    """Of two numbers with chances 1/3 and 2/3, where two digits leave some bytes open."""
    numbers, answers = Enclosures(2), []
    first, ratio = numbers.of(F(1, 3)), numbers.of(F(2))
    for byte in range(256):
        uniform = UniformReal(injected(1, [byte << 56]))
        answer = _inverse(numbers, first, lambda _: ratio, 1, uniform)
        assert answer in (None, 1 if byte < 256 / 3 else 2)
        answers.append(answer)
    assert 1 <= answers.count(None) <= 8


def test_a_poisson_number_of_runs_is_the_quantile_of_its_bits(injected):
    with mpmath.workdps(60):
        mean = F(5, 2)
        terms = [mpmath.exp(-real(mean)) * real(mean) ** k / mpmath.factorial(k) for k in range(99)]
        for byte in range(255):
            word = byte << 56 | 12345
            assert draw_poisson(mean, injected(1, [word])) == after(terms, mpmath.mpf(word) / 2**64)


@pytest.mark.parametrize(
    "runs",
    [
        ny.Runs.geometric(mean=3),
        ny.Runs.logarithmic(mean=2.5),
        ny.Runs.negative_binomial(mean=2, shape=-0.9),
        ny.Runs.negative_binomial(mean=1 + 1e-9, shape=1e-12),
        ny.Runs.negative_binomial(mean=30, shape=10**6),
        ny.Runs.poisson(mean=40),
        ny.Runs.geometric(mean=1),
    ],
)
def test_numbers_of_runs_have_the_law_of_the_curve(runs):
    draws = [runs.draw() for _ in range(400)]
    with mpmath.workdps(40):
        mean = mpmath.mpf(str(runs.mean))
        if runs.poisson_law:
            terms = [mpmath.exp(-mean) * mean**k / mpmath.factorial(k) for k in range(60)]
        else:
            gamma, eta = mpmath.mpf(runs.halting), mpmath.mpf(str(float(runs.shape)))
            terms = [mpmath.mpf(0), mean * gamma ** (1 + eta)]
            for k in range(1, 60):
                terms.append(terms[-1] * (1 - gamma) * (k + eta) / (k + 1))
    counts = [draws.count(k) for k in range(len(terms))]
    assert_shares([*counts, 400 - sum(counts)], [*terms, max(1 - mpmath.fsum(terms), 0)])


EDGES = [(F(1, 10), F(1, 3)), (F(2), F(1, 4)), (F(30), F(1, 10**9)), (F(700), F(1, 2))]


@pytest.mark.parametrize(("epsilon", "gamma"), EDGES)
def test_the_part_of_a_stair_is_decided_at_the_exact_chance(injected, epsilon, gamma):
    with mpmath.workdps(400):
        chance = real(gamma) / (real(gamma) + mpmath.exp(-real(epsilon)) * real(1 - gamma))
        for byte in range(256):
            word = byte << 56 | 1
            answer = _before_edge(epsilon, gamma, injected(1, [word]))
            assert answer == (mpmath.mpf(word) / 2**64 < chance)
        word = int(mpmath.floor(chance * 2**64))
        if word < 2**64 - 1:
            assert _before_edge(epsilon, gamma, injected(1, [word, 0]))
            assert not _before_edge(epsilon, gamma, injected(1, [word, 2**64 - 1]))


def staircase_cells(noise, value, step, reach):
    """P(round((value + Z) / step) = k), |k| <= reach, by the distribution function of Z."""
    b = mpmath.exp(-mpmath.mpf(str(noise.epsilon)))
    gamma, unit = real(noise.gamma), mpmath.mpf(str(noise.sensitivity))
    top = gamma + b * (1 - gamma)

    def below(x):
        x = x / unit
        k = mpmath.floor(abs(x))
        rest = abs(x) - k
        part = rest if rest < gamma else gamma + b * (rest - gamma)
        inside = (1 - b**k + (1 - b) * b**k * part / top) / 2
        return mpmath.mpf(1) / 2 + (inside if x > 0 else -inside)

    places = [below((k - mpmath.mpf(1) / 2) * step - value) for k in range(-reach, reach + 2)]
    return [high - low for low, high in itertools.pairwise(places)]


@pytest.mark.parametrize("noise", [ny.Staircase(1), ny.Staircase(3, 2, gamma="1/10")])
@pytest.mark.parametrize(("value", "step"), [(0, F(1)), (F(7, 10), F(3, 10))])
def test_staircase_draws_have_the_exact_law_on_the_grid(noise, value, step):
    """1000 draws; false-alarm rate below 1e-6."""
    reach, size = math.ceil(12 / step), 1000
    draws = [int(noise.draw(value, step=step) / step) for _ in range(size)]
    cells = staircase_cells(noise, real(F(value)), real(step), reach)
    counts = [draws.count(k) for k in range(-reach, reach + 1)]
    rest = max(1 - mpmath.fsum(cells), mpmath.mpf(10) ** -30)
    assert_shares([*counts, size - sum(counts)], [*cells, rest])


@pytest.mark.parametrize("step", [F(3, 10), F(1), F(17, 10)])
def test_rounded_staircase_noise_is_as_private_as_its_curve(step):
    noise = ny.Staircase(2, gamma="1/5")
    f, reach = noise.tradeoff(), math.ceil(20 / step)
    p, q = (staircase_cells(noise, mpmath.mpf(x), real(step), reach) for x in (0, 1))
    for epsilon in (0, 0.5, 1, 1.9):
        got = mpmath.fsum(max(a - mpmath.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True))
        assert got <= f.delta(epsilon).upper + 1e-12


@settings(max_examples=examples(300))
@given(
    degrees=st.fractions(F(1, 10), 1000, max_denominator=50),
    ring=st.integers(0, 300),
    word=st.integers(0, 2**64 - 1),
)
def test_the_chance_of_acceptance_is_enclosed_and_at_most_one(injected, degrees, ring, word):
    """Half the density over the proposal's, in mpmath; the ends are nearly the same."""
    onward = max(F(1, 2), 1 - degrees / 2)
    size = StudentMagnitude(degrees, ring, UniformReal(injected(1, [word])))
    low, high = size.exponent(onward, Enclosures(size.place.digits))
    with mpmath.workdps(60):
        for u in (mpmath.mpf(word) / 2**64, mpmath.mpf(word + 1) / 2**64):
            width = mpmath.mpf(2) ** max(ring - 1, 0)
            x = width * (u + (ring > 0))
            density = (1 + x**2 / real(degrees)) ** (-(real(degrees) + 1) / 2)
            exact = -mpmath.log(density * width / real(onward) ** ring / 2)
            room = mpmath.mpf(10) ** -45 * (1 + abs(exact))  # of mpmath
            assert exact >= -room
            assert mpmath.mpf(str(low)) - room <= exact <= mpmath.mpf(str(high)) + room
    assert float(high - low) <= 1e-15 * float(degrees + 1)


@pytest.mark.parametrize("degrees", [F(1, 10), F(1), F(3), F(1000)])
def test_magnitudes_of_student_noise_have_the_exact_law(degrees):
    """200 draws in 20 cells of equal chance; false-alarm rate below 1e-6."""
    ends = student.isf(np.arange(1, 20) / 40, float(degrees))[::-1]
    draws = [float(StudentMagnitude.draw(degrees, SecureBits()).ends[0]) for _ in range(200)]
    counts = np.bincount(np.searchsorted(ends, draws), minlength=20)
    assert_shares(counts, np.full(20, 0.05))


def test_student_draws_are_the_rounded_statistic_with_noise_of_its_smooth_sensitivity():
    """900 draws beside SciPy's distribution; false-alarm rate below 1e-6."""
    noise = ny.SmoothNoise("student", degrees=3, smoothness=0.5, scale=2)
    ages = [23, 25, 31, 34, 38, 41, 44, 52, 67]
    s = ny.smooth_sensitivity.median(ages, lower=0, upper=120, smoothness=0.5)
    step, size = F(9, 2), 900
    draws = [int(noise.draw(s, step=step) / step) for _ in range(size)]
    k = np.arange(-20, 41)
    places = ((np.append(k, 41) - 0.5) * float(step) - float(s.value)) * 2 / float(s)
    cells = np.diff(student.cdf(places, 3))
    counts = [draws.count(i) for i in k]
    assert_shares([*counts, size - sum(counts)], [*cells, 1 - cells.sum()])


@pytest.mark.parametrize("ratio", [1, math.exp(0.1)])
def test_rounded_student_noise_is_as_private_as_its_curve(ratio):
    f = ny.SmoothNoise("student", degrees=3, smoothness=0.1, scale=0.3).tradeoff()
    for step, epsilon in itertools.product((0.05, 0.4, 2), (0, 0.1, 0.3, 0.45)):
        places = (np.arange(-2000, 2001) - 0.5) * step
        p, q = (
            np.diff(student.cdf(np.concatenate([[-np.inf], (places - x) / s, [np.inf]]), 3))
            for x, s in ((0, 1), (0.3, ratio))
        )
        for one, other in ((p, q), (q, p)):
            got = np.maximum(one - math.exp(epsilon) * other, 0).sum()
            assert got <= f.delta(epsilon).upper + 1e-12


@settings(max_examples=examples(200))
@given(start=st.fractions(-50, 50, max_denominator=8), width=st.fractions(0, 3, max_denominator=9))
def test_the_nearest_whole_number_is_known_when_all_reals_inside_agree(start, width):
    place, asked = start + width / 3, []
    assume((place + F(1, 2)).denominator > 1 or not width)

    def ends():
        share = F(1, 2 ** len(asked))
        return place - (place - start) * share, place + (start + width - place) * share

    answer = nearest(ends, lambda: asked.append(1))
    assert abs(answer - place) <= F(1, 2)
    assert len(asked) <= 12


def test_a_place_half_way_is_rounded_to_the_side_where_all_of_the_interval_is():
    half, tiny = F(5, 2), F(1, 10**9)
    assert nearest(lambda: (half, half + tiny), lambda: pytest.fail("asked")) == 3
    assert nearest(lambda: (half - tiny, half), lambda: pytest.fail("asked")) == 2
    assert nearest(lambda: (half, half), lambda: pytest.fail("asked")) == 3


def test_enclosures_of_nothing_known_hold_every_number():
    e = Enclosures(20)
    assert e.over(e.of(F(1)), e.of(F(0), F(1))) == (0, math.inf)


@pytest.mark.parametrize("value", [math.nan, math.inf, "517x", None, [1]])
def test_an_error_about_a_private_value_has_its_type_alone(value):
    with pytest.raises(TypeError) as error:
        ny.Staircase(1).draw(value, step=1)
    assert str(error.value) == f"value is a {type(value).__name__}; it must be a finite number"
    assert error.value.__context__ is None
