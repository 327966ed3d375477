"""Noise of large scales has the exact distribution: its parts in mpmath, its draws in counts."""

from __future__ import annotations

import math
from fractions import Fraction as F
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from exact_noise import assert_counts, real
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import SIZE
from neyman.noise import Bits, SecureBits, discrete_gaussian, rounded_gaussian
from neyman.noise.large_gaussian import (
    CELLS,
    FIXED_POINT_ONE,
    LEAST_SIGMA_SQUARED,
    TAIL_SIGMAS,
    Strips,
    strips,
)
from random_laws import examples

SIGMAS = st.one_of(
    st.fractions(128, 2000, max_denominator=50),
    st.integers(128, 2**53 - 1),
    st.sampled_from([128, 255, 256, 2**31, 2**38, 2**38 + 1, 2**53 - 1]),
).map(F)
REACHES = st.sampled_from([TAIL_SIGMAS, F(6), F(7)])
PLACES = st.tuples(SIGMAS, st.booleans(), st.randoms(use_true_random=False))


def acceptance(law, x):
    """C w(x) / n for the strip of a place x, as a number of mpmath."""
    strip = int(x) >> law.width
    w = mpmath.exp(-(real(F(x)) ** 2) / (2 * real(law.sigma_squared)))
    return real(law.most) * w / law.counts[strip]


@settings(max_examples=examples(120))
@given(SIGMAS, st.booleans(), REACHES)
def test_cells_cover_the_weights_of_their_strips_and_the_tail(sigma, rounded, reach):
    """No acceptance exceeds 1, so that the distribution is that of the weights."""
    law = Strips(sigma**2, rounded, reach)
    assert sum(law.counts) == CELLS
    assert law.number < 1024
    assert len(law.counts) == law.number + 1
    with mpmath.workprec(200):
        for h in range(law.number):
            assert law.counts[h] >= 1
            assert acceptance(law, h << law.width) <= 1
        start = law.number << law.width
        ratio = mpmath.exp(-start / real(sigma) ** 2)
        top = mpmath.exp(-(mpmath.mpf(start) ** 2) / (2 * real(sigma) ** 2)) * real(law.most)
        room = (law.counts[-1] << law.width) * (1 - ratio)
        assert top <= room
        assert (
            top * FIXED_POINT_ONE / room <= law.tail_most < 1.001 * top * FIXED_POINT_ONE / room + 2
        )


@settings(max_examples=examples(60))
@given(SIGMAS, st.booleans(), REACHES)
def test_each_cell_picks_its_strip_and_accepts_no_more_than_is_right(sigma, rounded, reach):
    law = Strips(sigma**2, rounded, reach)
    for sign in (0, 1):
        side = law.guide[sign * CELLS : (sign + 1) * CELLS]
        picked, sure = side >> 16, side & 0xFFFF
        assert np.bincount(picked, minlength=law.number + 1).tolist() == list(law.counts)
        with mpmath.workprec(200):
            for h in range(law.number):
                most = int(sure[picked == h].max())
                assert most == int(sure[picked == h].min())
                end = F((h + 1) << law.width)
                w = mpmath.exp(-(real(end) ** 2) / (2 * real(sigma) ** 2))
                truth = 65536 * real(law.most) * w / law.counts[h]
                assert most <= truth
                if (h, sign, rounded) != (0, 1, False):
                    assert most > truth - 2
        assert not sure[picked == law.number].any()
    if not rounded:  # minus zero must be looked at
        assert not law.guide[CELLS : CELLS + law.counts[0]].any()


@settings(max_examples=examples(300))
@given(PLACES, REACHES)
def test_bounds_of_the_second_stage_hold_at_both_ends_of_what_is_known(case, reach):
    sigma, rounded, random = case
    law = Strips(sigma**2, rounded, reach)
    length = law.width + law.fine
    lows = [0, (1 << length) - 1, *(random.getrandbits(length) for _ in range(6))]
    hs = [0, law.number - 1, *(random.randrange(law.number) for _ in range(6))]
    least, most = law._bounds(np.array(hs, np.int64), np.array(lows, np.int64))
    with mpmath.workprec(200):
        for h, low, a, b in zip(hs, lows, least.tolist(), most.tolist(), strict=True):
            first = F((h << length) + low, 1 << law.fine)
            last = first + F(1, 1 << law.fine) if rounded else first
            w = mpmath.exp(-(real(last) ** 2) / (2 * real(sigma) ** 2))
            assert a <= FIXED_POINT_ONE * real(law.most) * w / law.counts[h]
            assert FIXED_POINT_ONE * acceptance(law, first) <= b
            assert b - a < 2000
    tail = law._bounds(np.array([law.number]), np.array([lows[-1]]))
    assert [int(x[0]) for x in tail] == [0, 0]


@settings(max_examples=examples(200))
@given(PLACES, st.sampled_from([-1, 0, 1]))
def test_the_last_stage_decides_next_to_the_truth(case, beside):
    sigma, rounded, random = case
    law = strips(sigma**2, rounded=rounded)
    h = random.randrange(law.number + 1)
    x = (h << law.width + law.fine) + random.getrandbits(law.width + law.fine)
    taken, g = F(0), 0
    with mpmath.workprec(400):
        if h == law.number:
            g = (x >> law.fine) - (law.number << law.width)
            taken = g * F(law.number << law.width) / sigma**2
        more = SecureBits()
        scale = real(law.most) / law.counts[h]
        if h == law.number:
            ratio = mpmath.exp(-(law.number << law.width) / real(sigma) ** 2)
            scale /= (1 - ratio) * (1 << law.width)

        def chance(place):
            return scale * mpmath.exp(-(real(place) ** 2) / (2 * real(sigma) ** 2) + real(taken))

        truth, end = (chance(F(x + k, 1 << law.fine)) for k in (0, 1))
        slack = int(2**64 * (truth - end)) + 2 if rounded else 1
        value = int(mpmath.floor(truth * 2**64))
        if beside < 0 and value > slack:
            assert law._is_below(value - slack - 1, law.counts[h], taken, x, more)
        if beside > 0 and value < 2**64 - 2:
            assert not law._is_below(value + 1, law.counts[h], taken, x, more)
        if beside == 0 and not rounded:
            # What follows the 64 bits decides; the bits of the truth itself are refused.
            digits = int(mpmath.floor(truth * 2**128)) % 2**64
            assert not law._is_below(value, law.counts[h], taken, x, Prescribed([digits + 1]))
            assert law._is_below(value, law.counts[h], taken, x, Prescribed([digits - 1]))
        if beside == 0 and rounded:
            # The next 64 bits of the place come after those of V.
            word = random.getrandbits(64)
            for k, off, accepted in ((0, 2, False), (1, -2, True)):
                truth = chance(F((x << 64) + word + k, 1 << law.fine + 64))
                value, digits = divmod(int(mpmath.floor(truth * 2**128)) + off, 2**64)
                more = Prescribed([digits, word])
                assert law._is_below(value, law.counts[h], taken, x, more) is accepted


class Prescribed(Bits):
    """Words that a test spells out."""

    def __init__(self, words):
        self.left = list(words)

    def words(self, n):
        return np.array([self.left.pop(0) for _ in range(n)], np.uint64)


class Picking(Bits):
    """Seeded words whose last 16 bits, which pick a sign and a cell, are one of a few."""

    def __init__(self, seed, cells):
        self.generator, self.cells = np.random.Philox(seed), np.array(cells, np.uint64)

    def words(self, n):
        words = np.atleast_1d(self.generator.random_raw(n))
        chosen = self.cells[words % np.uint64(len(self.cells))]
        return (np.atleast_1d(self.generator.random_raw(n)) & ~np.uint64(0xFFFF)) | chosen


def law_of(sigma_squared, rounded, ends):
    """P(a <= X <= b) for each pair of ends, in mpmath."""
    sigma = mpmath.sqrt(real(sigma_squared))
    if rounded:
        return [
            mpmath.ncdf((b + mpmath.mpf(1) / 2) / sigma)
            - mpmath.ncdf((a - mpmath.mpf(1) / 2) / sigma)
            for a, b in ends
        ]
    # The sums of a theta function of this width are those of integrals, to 1e-1000.
    total = sigma * mpmath.sqrt(2 * mpmath.pi)
    return [
        mpmath.fsum(mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * sigma**2)) for k in range(a, b + 1))
        / total
        for a, b in ends
    ]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("sigma_squared", [F(LEAST_SIGMA_SQUARED) + F(1, 7), F(40_000)])
def test_draws_have_the_exact_law(sigma_squared, rounded, injected, attempts):
    n = 3_000_000 * SIZE
    attempts(n)
    law = Strips(sigma_squared, rounded)
    out = np.empty(n, np.int64)
    law.fill(out, injected(5))
    start = law.number << law.width
    ends = [(k, k) for k in range(-20, 21)]
    for sign in (-1, 1):
        for first in range(21, start + 60, 37):
            a, b = sorted((sign * first, sign * min(first + 36, start + 59)))
            ends.append((a, b))
    counts = [int(np.count_nonzero((out >= a) & (out <= b))) for a, b in ends]
    with mpmath.workprec(120):
        probabilities = law_of(sigma_squared, rounded, ends)
        counts.append(n - sum(counts))
        probabilities.append(1 - mpmath.fsum(probabilities))
        assert_counts(counts, probabilities)


@pytest.mark.parametrize("rounded", [False, True])
def test_the_tail_has_its_law(rounded, injected):
    sigma_squared = F(130**2)
    law = Strips(sigma_squared, rounded)
    start = law.number << law.width
    n = 20_000
    out = np.empty(n, np.int64)
    cells = np.flatnonzero(law.guide[:CELLS] >> 16 == law.number)
    law.fill(out, Picking(3, cells))
    with mpmath.workprec(120):
        sigma = mpmath.sqrt(real(sigma_squared))
        if rounded:
            edges = [mpmath.mpf(start), *(start + k + mpmath.mpf(1) / 2 for k in range(60))]
            below = [mpmath.ncdf(-e / sigma) for e in edges]
            exact = [(a - b) / below[0] for a, b in pairwise(below)]
        else:
            weights = [
                mpmath.exp(-(mpmath.mpf(start + k) ** 2) / (2 * sigma**2)) for k in range(2000)
            ]
            exact = [w / mpmath.fsum(weights) for w in weights[:60]]
        counts = [int(np.count_nonzero(out == start + k)) for k in range(60)]
        counts.append(n - sum(counts))
        exact.append(1 - mpmath.fsum(exact))
        assert_counts(counts, exact)


@pytest.mark.parametrize("sigma", [10**6, 2**38 + 5, 2**53 - 1])
def test_wide_rounded_noise_has_the_quantiles_and_even_last_digits(sigma, injected, attempts):
    n = 200_000 * SIZE
    attempts(n)
    x = rounded_gaussian(F(sigma) ** 2, n, injected(7))
    scaled = np.sort(x / sigma)
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in scaled])
    gap = np.max(np.abs(normal - (np.arange(n) + 0.5) / n))
    assert gap < math.sqrt(math.log(2e6) / (2 * n)) + 1 / sigma + 1 / n
    for m in (2, 97):
        assert_counts(np.bincount(x % m, minlength=m), [mpmath.mpf(1) / m] * m)


def test_few_draws_and_many_have_one_law(injected):
    few = np.concatenate([discrete_gaussian(F(10**8), 5000, injected(k)) for k in range(40)])
    many = discrete_gaussian(F(10**8), 200_000, injected(100))
    points = np.union1d(few, many)
    gap = np.searchsorted(np.sort(few), points, "right") - np.searchsorted(
        np.sort(many), points, "right"
    )
    assert np.max(np.abs(gap)) / 200_000 < 2 * math.sqrt(math.log(4e6) / 400_000)
