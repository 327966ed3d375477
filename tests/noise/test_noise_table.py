"""Tables, weights, and rounded normal noise have exactly the distribution they should."""

from __future__ import annotations

import threading
import tracemalloc
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from fractions import Fraction as F
from functools import cached_property
from itertools import accumulate, pairwise

import mpmath
import numpy as np
import pytest
from exact_noise import assert_counts, magnitude, real, survival, total, weight
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import SIZE
from neyman.noise import (
    Bits,
    RoundedWeights,
    SecureBits,
    discrete_gaussian,
    lookup_table,
    rounded_gaussian,
    weights,
)
from neyman.noise.lookup_table import OPEN, Table
from neyman.noise.weights import Weights
from random_laws import examples


class OutOfBits(Exception):
    """More bits were asked for than the test has spelled out."""


class Spelled(Bits):
    """One draw's bits, stage by stage: ``(how many, which)`` each, and no more."""

    def __init__(self, *stages):
        self.stages = list(stages)
        self.begun = False

    def words(self, n):
        assert n == 1, "one draw asks for one word at a time"
        if not self.stages:
            raise OutOfBits
        length, value = self.stages.pop(0)
        if self.begun:
            return np.array([value << 64 - length], np.uint64)
        self.begun = True  # the first stage reads the first half-word
        return np.array([value << 16 - length, 0, 0, 0], np.uint16).view(np.uint64)


@dataclass(frozen=True)
class Known:
    """A distribution of magnitudes with rational F(0), F(1), ..., of which the last is 1."""

    steps: tuple

    def place(self, value, length):
        k = bisect_right(self.steps, Fraction(value, 2**length))
        return k if Fraction(value + 1, 2**length) <= self.steps[k] else None


@dataclass(frozen=True)
class Enclosed:
    """A distribution of `Weights`, with F(k) as fractions within 2^-200 below the truth."""

    weights: Weights
    law: str
    parameter: Fraction

    def place(self, value, length):
        return self.weights.place(value, length)

    @cached_property
    def steps(self):
        with mpmath.workprec(260):
            tails = [survival(self.law, self.parameter, k + 1) for k in range(80)]
            return tuple(Fraction(int(mpmath.ldexp(1 - t, 220)), 2**220) for t in tails)


def table_of(law, lead, precision, further, slack=1):
    """A table with thresholds as low as the slack allows, and what is beyond 14 left out."""
    floors = [int(step * 2**precision) for step in law.steps[:14]]
    low = [max(0, floor - (slack - 1)) for floor in floors]
    return Table(law, np.array(low, np.uint64), slack, lead, precision, further)


def enumerated(product, deepest):
    """Every string of bits that is read: ``(draw or None, bits read, sign, value, length)``."""
    widths = [product.lead, product.precision - product.lead + 1, *[product.further] * deepest]
    strings = [()]
    for width in widths:
        undecided = []
        for string in strings:
            for piece in range(2**width):
                stages = (*string, (width, piece))
                read = sum(w for w, _ in stages)
                bits = 0
                for w, p in stages:
                    bits = bits << w | p
                sign, value = bits >> read - 1, bits & (1 << read - 1) - 1
                out = np.empty(1, np.int64)
                source = Spelled(*stages)
                try:
                    product.fill(out, source)
                except OutOfBits:
                    undecided.append(stages)
                    continue
                assert not source.stages
                yield int(out[0]), read, sign, value, read - 1
        strings = undecided
    for stages in strings:
        read = sum(w for w, _ in stages)
        bits = 0
        for w, p in stages:
            bits = bits << w | p
        yield None, read, bits >> read - 1, bits & (1 << read - 1) - 1, read - 1


def assert_exact(law, product, deepest):
    """All strings of bits together have the distribution, up to what is still undecided."""
    mass, remainder, depths = {}, Fraction(0), set()
    steps = (Fraction(0), *law.steps)
    for x, read, sign, value, length in enumerated(product, deepest):
        start, end = Fraction(value, 2**length), Fraction(value + 1, 2**length)
        depths.add(read)
        if x is None:
            # Some F(k) lies within, or the tail beyond all that is listed.
            assert any(start <= step < end for step in steps[1:]) or end > steps[-1]
            remainder += Fraction(1, 2**read)
            continue
        k = abs(x)
        assert steps[k] <= start
        assert end <= steps[k + 1]
        assert k == 0 or (x < 0) == (sign == 1)
        mass[x] = mass.get(x, 0) + Fraction(1, 2**read)
    assert sum(mass.values()) + remainder == 1
    for x, observation in mass.items():
        k = abs(x)
        exact = (steps[k + 1] - steps[k]) / (1 if k == 0 else 2)
        assert observation <= exact + Fraction(1, 2**200)
        assert exact <= observation + remainder
    return remainder, depths


@pytest.mark.parametrize("slack", [1, 3])
@pytest.mark.parametrize("parameter", [Fraction(1, 2), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_all_strings_of_few_bits_have_the_exact_law(law, parameter, slack):
    a, b = (1 / parameter, 0) if law == "laplace" else (0, 1 / (2 * parameter))
    exact = Enclosed(Weights(Fraction(a), Fraction(b)), law, parameter)
    product = table_of(exact, 4, 7, 4, slack)
    left, depths = assert_exact(exact, product, 2)
    # Of 15 bits of U at most one string is left for each F(k) and one for the tail, of either sign.
    assert left <= Fraction(len(exact.steps) + 1, 2**14)
    assert depths == {4, 8, 12, 16}, "every stage decides something"


@settings(max_examples=25)
@given(
    st.lists(st.fractions(0, 1, max_denominator=64), max_size=6),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_any_law_with_rational_steps_comes_out_exactly(steps, lead, middle, further, slack):
    law = Known((*sorted({step for step in steps if 0 < step < 1}), Fraction(1)))
    product = table_of(law, lead, lead - 1 + middle, further, slack)
    left, _ = assert_exact(law, product, 2)
    assert left <= Fraction(len(law.steps), 2 ** (lead - 2 + middle + 2 * further))


def test_a_tie_is_decided_by_exact_arithmetic_alone():
    law = Known((Fraction(3, 8), Fraction(1)))
    product = table_of(law, 3, 5, 4)
    for value, expected in ((0b01011, 0), (0b01100, 1), (0b01101, 1)):
        out = np.empty(1, np.int64)
        source = Spelled((3, value >> 3), (3, value & 7))
        product.fill(out, source)
        assert out.tolist() == [expected]


def table_for(law, parameter):
    if law == "laplace":
        return lookup_table.weights_table(1 / parameter, Fraction(0))
    return lookup_table.weights_table(Fraction(0), 1 / (2 * parameter))


@pytest.mark.parametrize("parameter", [Fraction(1, 10_000), Fraction("8.4959"), Fraction(100)])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_each_of_the_sixteen_bit_cells_is_right(law, parameter):
    product = table_for(law, parameter)
    guide, slack = product.guide, product.slack
    with mpmath.workprec(200):
        steps = [
            int(mpmath.ldexp(1 - survival(law, parameter, k + 1), 64))
            for k in range(product.thresholds.size)
        ]
    for cell in range(2**15):
        start, end = cell << 49, (cell + 1) << 49
        k = bisect_right(steps, start)
        clear = k < len(steps) and end <= steps[k]
        loose = clear and (k == 0 or start - steps[k - 1] > slack) and end + slack <= steps[k]
        for signed, sign in ((guide[cell], 1), (guide[cell + 2**15], -1)):
            if signed == OPEN:
                assert not loose
            else:
                assert clear
                assert signed == sign * k
    assert np.mean(guide == OPEN) < 0.05


@pytest.mark.parametrize("parameter", [Fraction(1, 100), Fraction("8.4959"), Fraction(30)])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_words_next_to_a_threshold_are_decided_as_exact_arithmetic_does(law, parameter, injected):
    product = table_for(law, parameter)
    with mpmath.workprec(500):
        for k in range(0, product.thresholds.size, max(1, product.thresholds.size // 7)):
            exact = int(mpmath.ldexp(1 - survival(law, parameter, k + 1), 128))
            t = int(product.thresholds[k])
            values = {exact >> 64, t - 1, t, t + 1, t + product.slack - 1, t + product.slack}
            for value in values:
                for third in (0, max(exact % 2**64 - 1, 0), exact % 2**64, 2**64 - 1):
                    if not 0 <= value < 2**64:
                        continue
                    for sign in (0, 1):
                        cell = sign << 15 | value >> 49
                        if product.guide[cell] != OPEN:
                            continue
                        first = int(np.array([cell, 0, 0, 0], np.uint16).view(np.uint64)[0])
                        second = (value & (1 << 49) - 1) << 15
                        fourth = 12345 << 40
                        words = [first, second, third, fourth, fourth]
                        out = np.empty(1, np.int64)
                        product.fill(out, injected(0, first=words))
                        u = (value << 64 | third) << 64 | fourth
                        result = magnitude(law, parameter, mpmath.ldexp(2 * u + 1, -193))
                        assert out.tolist() == [-result if sign else result]


def test_no_more_words_are_asked_for_than_are_needed(injected):
    product = table_for("gaussian", Fraction(100))

    class Counted(Bits):
        asked: list

        def __init__(self):
            self.asked, self.inner = [], injected(5)

        def words(self, n):
            self.asked.append(n)
            return self.inner.words(n)

    bits = Counted()
    product.fill(np.empty(10_001, np.int64), bits)
    cells = injected(5).words(2501).view(np.uint16)[:10_001]
    assert bits.asked == [2501, int(np.sum(product.guide[cells] == OPEN))]
    assert 0 < bits.asked[1] < 100


def test_the_far_tail_is_reached_through_words_of_ones(injected):
    ones = 2**64 - 1
    for law, parameter in (("gaussian", Fraction(4)), ("laplace", Fraction(2))):
        product = table_for(law, parameter)
        out = np.empty(1, np.int64)
        product.fill(out, injected(0, first=[ones >> 1 & ~(1 << 15), ones, ones, ones, 5]))
        with mpmath.workprec(600):
            left = mpmath.ldexp(2**64 - mpmath.mpf("5.5"), -64 - 64 - 128)
            k = magnitude(law, parameter, 1 - left)
        assert out[0] == k
        assert k > product.thresholds.size


@pytest.mark.parametrize("sigma", [10, 1000])
def test_two_million_draws_follow_the_exact_probabilities(sigma, injected, attempts):
    n, width = SIZE << 21, max(1, sigma // 15)
    attempts(n)
    parameter = Fraction(sigma**2)
    draws = discrete_gaussian(parameter, n, injected(31))
    reach = 9 * sigma // 2 // width * width + width // 2
    edges = np.arange(-reach, reach + 2, width) if width > 1 else np.arange(-reach, reach + 2)
    weights = [weight("gaussian", parameter, k) for k in range(edges[0], edges[-1])]
    z = total("gaussian", parameter)
    exact = [
        sum(weights[start - edges[0] : end - edges[0]]) / z
        for start, end in pairwise(edges.tolist())
    ]
    below = survival("gaussian", parameter, 1 - int(edges[0])) / 2
    above = survival("gaussian", parameter, int(edges[-1])) / 2
    places = np.searchsorted(edges, draws, "right")
    counts = np.bincount(places, minlength=edges.size + 1)
    assert_counts(counts, [below, *exact, above])


def test_drawing_into_an_array_needs_no_memory_of_its_size():
    bits, out = SecureBits(), np.empty(10**6, np.int64)
    discrete_gaussian(Fraction(100), 10, bits)
    tracemalloc.start()
    try:
        assert discrete_gaussian(Fraction(100), out.size, bits, out) is out
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert 9.8 < np.std(out) < 10.2


def test_tables_are_kept_and_few():
    lookup_table.weights_table.cache_clear()
    bits = SecureBits()
    for _ in range(3):
        discrete_gaussian(Fraction(49), 5, bits)
    info = lookup_table.weights_table.cache_info()
    assert (info.misses, info.hits, info.maxsize) == (1, 2, lookup_table.LIMITS.tables)


def test_threads_share_a_table_and_no_draws():
    bits, draws = SecureBits(), []
    parameter = Fraction(10**8)
    threads = [
        threading.Thread(target=lambda: draws.append(discrete_gaussian(parameter, 200_000, bits)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(draws) == 3
    for i in range(3):
        # Equal places agree with probability below 3e-5: 1e-6 is not reached by 60 of them.
        assert np.sum(draws[i] == draws[i - 1]) < 60


def test_a_table_cannot_be_written_to():
    """Its arrays are read-only, because all draws share them."""
    product = table_for("gaussian", Fraction(7))
    for array in (product.guide, product.first, product.thresholds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


PARAMETERS = [
    Fraction(1, 10**30),
    Fraction(1, 10_000),
    Fraction(1, 100),
    Fraction(1, 3),
    Fraction(1),
    Fraction("8.4959"),
    Fraction(10**30 + 7, 3 * 10**29 + 1),
    Fraction(120),
]


def weights_of(law, parameter):
    if law == "laplace":
        return Weights(1 / parameter, Fraction(0))
    return Weights(Fraction(0), 1 / (2 * parameter))


@given(st.fractions(0, 300), st.sampled_from([64, 192, 256]))
def test_exponentials_are_enclosed_within_a_few_units(x, precision):
    low, high = weights.exponential(x, precision)
    with mpmath.workprec(precision + 700):
        exact = mpmath.exp(-real(x)) * mpmath.ldexp(1, precision)
        assert low <= exact <= high
    assert high - low <= 3


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_leading_word_of_a_product_is_exact(x, y):
    one, other = np.array([x], np.uint64), np.array([y], np.uint64)
    assert weights._product(one, other).tolist() == [x * y >> 64]


@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 3), Fraction(1, 10**5)])
@pytest.mark.parametrize("b", [Fraction(0), Fraction(1, 10**9), Fraction(3)])
def test_powers_are_below_the_truth_by_what_they_may_be(a, b):
    powers = weights._powers(a, b, 3000).tolist()
    with mpmath.workprec(300):
        for j in (0, 1, 2, 7, 100, 2999):
            exact = mpmath.exp(-real(a) * j - real(b) * j * j) * mpmath.ldexp(1, 64)
            assert 0 <= exact - powers[j] <= weights.POWER_ERROR_UNITS


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{float(p):.4g}")
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_thresholds_enclose_the_exact_distribution_function(law, parameter):
    thresholds, slack = weights_of(law, parameter).thresholds()
    assert slack < 1100
    assert np.all(thresholds[1:] >= thresholds[:-1])
    with mpmath.workprec(250):
        for k, t in enumerate(thresholds.tolist()):
            exact = mpmath.ldexp(1 - survival(law, parameter, k + 1), 64)
            assert t <= exact <= t + slack
        assert survival(law, parameter, thresholds.size) < mpmath.ldexp(1, -57)


@pytest.mark.parametrize("scale", [1000, 10**4, 10**5])
def test_thresholds_of_wide_laws_enclose_the_exact_distribution_function(scale):
    with mpmath.workprec(300):
        sigma = mpmath.mpf(scale)

        def laplace(k):
            ratio = mpmath.exp(-1 / sigma)
            return 1 - 2 * ratio ** (k + 1) / (1 + ratio)

        def gaussian(k):
            # The sum over |j| <= k; what is left out is below sigma^-8, that is 10^-24.
            x, f = k / sigma, mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * sigma**2))
            first, third = -x * f / sigma, (3 * x - x**3) * f / sigma**3
            fifth = -(x**5 - 10 * x**3 + 15 * x) * f / sigma**5
            total = sigma * mpmath.sqrt(2 * mpmath.pi)  # all else is below exp(-2 pi^2 sigma^2)
            inside = total * mpmath.erf(x / mpmath.sqrt(2))
            return (inside + f + first / 6 - third / 360 + fifth / 15120) / total

        laws = [
            (weights_of("laplace", Fraction(scale)), laplace),
            (weights_of("gaussian", Fraction(scale**2)), gaussian),
        ]
        for law, exact in laws:
            thresholds, slack = law.thresholds()
            assert slack < 1100
            assert np.all(thresholds[1:] >= thresholds[:-1])
            n = thresholds.size
            for k in {*range(3), *range(1, n, n // 300), n - 2, n - 1}:
                assert int(thresholds[k]) <= mpmath.ldexp(exact(k), 64)
                assert mpmath.ldexp(exact(k), 64) <= int(thresholds[k]) + slack


@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 3), Fraction(1, 64)])
@pytest.mark.parametrize("b", [Fraction(0), Fraction(1, 5000), Fraction(3)])
def test_weights_are_enclosed_and_so_is_what_lies_beyond_the_last(a, b):
    if a == b == 0:
        return
    bounds = list(Weights(a, b)._weight_bounds(192))
    n = len(bounds)
    with mpmath.workprec(300):
        terms = [mpmath.exp(-real(a) * j - real(b) * j * j) for j in range(6 * n)]
        exact = list(accumulate(reversed(terms)))[::-1]
        for (low, high, _), term in zip(bounds, terms, strict=False):
            assert low <= mpmath.ldexp(term, 192) <= high
            assert high - low < 2**64
        assert mpmath.ldexp(exact[n], 192) <= bounds[-1][2] < 2**64


@settings(max_examples=examples(120))
@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from(PARAMETERS[2:]),
    st.integers(0, 20),
    st.integers(-2, 1),
    st.sampled_from([4, 15, 64, 128]),
)
def test_a_uniform_real_is_placed_as_exact_arithmetic_does(law, parameter, near, off, length):
    """Next to the exact P(|X| <= near) a placement is right, or None where the bits say too little.

    The next thresholds are more than 2^-300 away from any of these reals.
    """
    with mpmath.workprec(400):
        edge = int(mpmath.ldexp(1 - survival(law, parameter, near + 1), length))
        value = min(max(edge + off, 0), 2**length - 1)
        result = weights_of(law, parameter).place(value, length)
        u, unit = mpmath.ldexp(value, -length), mpmath.ldexp(1, -length)
        last = u + unit - mpmath.ldexp(1, -length - 200)
        low, high = magnitude(law, parameter, u), magnitude(law, parameter, last)
        assert result == (low if low == high else None)


VARIANCES = st.one_of(
    st.fractions(F(1, 1000), 100, max_denominator=1000), st.sampled_from([F(10**6), F(1, 10**6)])
)


def distribution(sigma_squared, k):
    """P(|round(Z)| <= k)."""
    return (
        mpmath.erf((2 * k + 1) / mpmath.sqrt(8 * real(sigma_squared))) if k >= 0 else mpmath.mpf(0)
    )


@settings(max_examples=100)
@given(VARIANCES, st.integers(0, 12_000), st.integers(2, 200))
def test_probabilities_are_enclosed_within_two_units(sigma_squared, k, precision):
    with mpmath.workprec(precision + 100):
        low, high = RoundedWeights(sigma_squared).enclosure(k, precision)
        truth = mpmath.ldexp(distribution(sigma_squared, k), precision)
        assert low <= truth <= high <= low + 2


@pytest.mark.parametrize("sigma_squared", [F(1, 9), F(1), F(37, 10), F(400)])
def test_bits_decide_exactly_where_all_reals_that_begin_with_them_agree(sigma_squared):
    law, decided = RoundedWeights(sigma_squared), 0
    with mpmath.workprec(200):
        for value in range(512):
            k = law.place(value, 9)
            if k is not None:
                decided += 1
                assert distribution(sigma_squared, k - 1) * 512 <= value
                assert value + 1 <= distribution(sigma_squared, k) * 512
    thresholds = sum(distribution(sigma_squared, k) < real(1 - F(1, 512)) for k in range(400))
    assert decided >= 512 - thresholds - 2


def test_thresholds_bound_the_distribution_function():
    for sigma_squared in (F(1, 100), F(2), F(10**4)):
        entries, slack = RoundedWeights(sigma_squared).thresholds()
        assert np.all(entries[1:] >= entries[:-1])
        with mpmath.workprec(160):
            for k in {0, 1, len(entries) // 2, len(entries) - 1}:
                truth = mpmath.ldexp(distribution(sigma_squared, k), 64)
                assert int(entries[min(k, len(entries) - 1)]) <= truth + (k >= len(entries))
                if k < len(entries):
                    assert truth <= int(entries[k]) + slack


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize("sigma_squared", [F(1, 10), F(9, 5), F(60)])
def test_draws_have_the_exact_law(sigma_squared, coarse):
    """Also of a table so coarse that every stage is used."""
    size = 20_000 if coarse else 1_000_000
    if coarse:
        law = RoundedWeights(sigma_squared)
        coarse_entries = np.array(
            [law.enclosure(k, 10)[0] for k in range(40) if law.enclosure(k, 10)[1] < 1024] or [0],
            np.uint64,
        )
        out = np.empty(size, np.int64)
        Table(law, coarse_entries, 2, lead=4, precision=10, further=3).fill(out, SecureBits())
    else:
        out = rounded_gaussian(sigma_squared, size, SecureBits())
    reach = 30
    with mpmath.workprec(120):
        at_most = [distribution(sigma_squared, k) for k in range(reach)]
        both = [at_most[0], *(b - a for a, b in pairwise(at_most))]
        laws = [both[abs(x)] / (2 if x else 1) for x in range(1 - reach, reach)]
        counts = [int(np.count_nonzero(out == x)) for x in range(1 - reach, reach)]
        laws.append(1 - mpmath.fsum(laws))
        counts.append(size - sum(counts))
        cells = [(n, p) for n, p in zip(counts, laws, strict=True) if p > mpmath.mpf("1e-30") or n]
        assert_counts([n for n, _ in cells], [p for _, p in cells])
