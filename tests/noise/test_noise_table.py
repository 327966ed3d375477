"""A table's draws have exactly the distribution they should, shown bit by bit."""

import threading
import tracemalloc
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from exact_noise import assert_counts, magnitude, survival, total, weight
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import SIZE
from neyman.noise import Bits, SecureBits, discrete_gaussian, lookup_table
from neyman.noise.lookup_table import OPEN, Table
from neyman.noise.weights import Weights


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
    """Every string of 4 + 4 + 4 + ... bits decides rightly, and the undecided rest dies out."""
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
    """Steps that fall on ends of cells and of words are no exception: ties are decided exactly."""
    law = Known((*sorted({step for step in steps if 0 < step < 1}), Fraction(1)))
    product = table_of(law, lead, lead - 1 + middle, further, slack)
    left, _ = assert_exact(law, product, 2)
    assert left <= Fraction(len(law.steps), 2 ** (lead - 2 + middle + 2 * further))


def test_a_tie_is_decided_by_exact_arithmetic_alone():
    """A U that begins as F(0) = 3/8 does is at least F(0): no bits of the third stage are read."""
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
    """A cell has an answer where one magnitude fills it by more than the slack, and only there."""
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
    """The 64 bits of F(k), and those next to them and at the ends of the slack, of either sign."""
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
    """Four draws to a word, one more for each cell that is open, none beyond clear of the slack."""
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
    """Magnitudes beyond the last threshold come out too, with the probability they should."""
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
    """Cells of equal width over 4.5 sigma and both tails, each held to its Chernoff bound."""
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
    """With the table at hand, a million draws allocate less than 2 MB beside the array."""
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
    """The second draw of a scale finds the table of the first; no more than KEPT are held."""
    lookup_table.weights_table.cache_clear()
    bits = SecureBits()
    for _ in range(3):
        discrete_gaussian(Fraction(49), 5, bits)
    info = lookup_table.weights_table.cache_info()
    assert (info.misses, info.hits, info.maxsize) == (1, 2, lookup_table.LIMITS.tables)


def test_threads_share_a_table_and_no_draws():
    """Arrays drawn at once from one source and one table are as independent as others."""
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
