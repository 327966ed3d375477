"""Rounded normal noise is drawn by its exact distribution: against erf in mpmath, in bits and
counts.
"""

from __future__ import annotations

from fractions import Fraction as F
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from exact_noise import assert_counts, real
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.noise import RoundedWeights, SecureBits, rounded_gaussian
from neyman.noise.lookup_table import Table

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
    """For every word of nine bits; those within rounding of a threshold may ask for more."""
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
    """From below, and within the slack from above; they do not fall."""
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


@pytest.mark.parametrize(
    ("sigma_squared", "error"), [(1.0, TypeError), (0, ValueError), (F(2) ** 106, ValueError)]
)
def test_what_cannot_be_drawn_is_refused(sigma_squared, error):
    with pytest.raises(error, match="sigma_squared"):
        rounded_gaussian(sigma_squared, 1, SecureBits())
