"""The samplers have exactly the stated law.

Statistical tests run on repeatable bits and would raise a false alarm with probability at most
1e-6 each if the bits were fresh: every cell's count is held to the Chernoff bound
P(n KL(count / n, p) >= c) <= 2 exp(-c), the whole to Dvoretzky, Kiefer, Wolfowitz and Massart.
"""

import ast
import math
from fractions import Fraction
from functools import cache
from itertools import accumulate, product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman.noise
from neyman.noise import Bits, discrete_gaussian, discrete_laplace, rejection, table

ALARM = 1e-6

ENGINES = {
    ("gaussian", "table"): table.discrete_gaussian,
    ("gaussian", "rejection"): rejection.discrete_gaussian,
    ("laplace", "table"): table.discrete_laplace,
    ("laplace", "rejection"): rejection.discrete_laplace,
}
PARAMETERS = [
    Fraction(1, 100),
    Fraction(1, 3),
    Fraction(1),
    Fraction("8.4959"),
    Fraction(10**30 + 7, 3 * 10**29 + 1),
    Fraction(200),
]


def real(x):
    return mpmath.mpf(x.numerator) / x.denominator


def weight(law, parameter, k):
    exponent = abs(k) / real(parameter) if law == "laplace" else k**2 / (2 * real(parameter))
    return mpmath.exp(-exponent)


def total(law, parameter):
    if law == "laplace":
        return mpmath.coth(1 / (2 * real(parameter)))
    return mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * real(parameter))))


def survival(law, parameter, k):
    """P(|X| >= k), from sums that share nothing with the code under test."""
    return _survival(law, parameter, k, mpmath.mp.prec)


@cache
def _survival(law, parameter, k, precision):
    if k == 0:
        return mpmath.mpf(1)
    with mpmath.workprec(precision + 32):
        first = weight(law, parameter, k)
        if law == "laplace":
            return 2 * first / (1 - weight(law, parameter, 1)) / total(law, parameter)
        terms, j, term = mpmath.mpf(0), k, first
        while term > mpmath.ldexp(first, -precision - 32):
            terms, j = terms + term, j + 1
            term = weight(law, parameter, j)
        return 2 * terms / total(law, parameter)


def assert_counts(counts, probabilities):
    """Each count within the Chernoff bound of its cell."""
    n = sum(counts)
    allowed = math.log(2 * len(counts) / ALARM)
    for seen, p in zip(counts, probabilities, strict=True):
        share = mpmath.mpf(int(seen)) / n
        divergence = mpmath.mpf(0)
        if share > 0:
            divergence += share * mpmath.log(share / p)
        if share < 1:
            divergence += (1 - share) * mpmath.log((1 - share) / (1 - p))
        assert n * divergence <= allowed, (seen, float(n * p))


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{float(p):.4g}")
@pytest.mark.parametrize("engine", ENGINES, ids="-".join)
def test_counts_follow_the_exact_probabilities(engine, parameter, injected):
    law = engine[0]
    n = 200_000 if parameter > Fraction(1, 10) else 50_000
    drawn = ENGINES[engine](parameter, n, injected(20240101))
    assert drawn.shape == (n,)
    assert drawn.dtype == np.int64
    reach = 3 + math.ceil(3 * (parameter if law == "laplace" else math.sqrt(parameter)))
    inside = np.abs(drawn) <= reach
    counts = [*np.bincount(drawn[inside] + reach, minlength=2 * reach + 1)]
    counts += [np.sum(drawn < -reach), np.sum(drawn > reach)]
    z, tail = total(law, parameter), survival(law, parameter, reach + 1) / 2
    exact = [weight(law, parameter, k) / z for k in range(-reach, reach + 1)] + [tail, tail]
    assert_counts(counts, exact)
    steps = np.cumsum([float(p) for p in exact[:-2]]) + float(tail)
    seen = (np.cumsum(counts[:-2]) + counts[-2]) / n
    assert np.max(np.abs(steps - seen)) < math.sqrt(math.log(2 / ALARM) / (2 * n))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("parameter", [Fraction(1, 2), Fraction(7, 2), Fraction(250)])
def test_both_engines_have_the_same_law(law, parameter, injected):
    n = 300_000
    one = np.sort(ENGINES[law, "table"](parameter, n, injected(1)))
    two = np.sort(ENGINES[law, "rejection"](parameter, n, injected(2)))
    points = np.union1d(one, two)
    gap = np.searchsorted(one, points, "right") - np.searchsorted(two, points, "right")
    assert np.max(np.abs(gap)) / n < 2 * math.sqrt(math.log(4 / ALARM) / (2 * n))


@pytest.mark.parametrize("sigma", [1000, 10**6, 10**9, 10**15])
def test_a_wide_gaussian_has_the_moments_and_quantiles_and_even_last_digits(sigma, injected):
    n = 200_000
    x = discrete_gaussian(Fraction(sigma**2), n, injected(7))
    scaled = np.sort(x / sigma)
    # A sub-Gaussian mean, and Laurent and Massart for the sum of squares.
    assert abs(scaled.mean()) < math.sqrt(2 * math.log(2 / ALARM) / n)
    t = math.log(2 / ALARM)
    assert abs(np.mean(scaled**2) - 1) < 2 * math.sqrt(t / n) + 2 * t / n
    # Discrete and continuous distribution functions differ by less than 1 / sigma.
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in scaled])
    gap = np.max(np.abs(normal - (np.arange(n) + 0.5) / n))
    assert gap < math.sqrt(math.log(2 / ALARM) / (2 * n)) + 1 / sigma + 1 / n
    for m in (2, 10, 97):  # residues are uniform to 1e-300 and better
        assert_counts(np.bincount(x % m, minlength=m), [mpmath.mpf(1) / m] * m)


@pytest.mark.parametrize("scale", [10**6, 10**15, 2**53, Fraction(10**20 + 1, 10**5)])
def test_a_wide_laplace_has_the_quantiles_and_even_last_digits(scale, injected):
    n = 200_000
    x = discrete_laplace(Fraction(scale), n, injected(8))
    scaled = np.sort(np.abs(x) / float(scale))
    gap = np.max(np.abs(-np.expm1(-scaled) - (np.arange(n) + 0.5) / n))
    assert gap < math.sqrt(math.log(2 / ALARM) / (2 * n)) + 2 / float(scale) + 1 / n
    assert_counts([np.sum(x > 0), np.sum(x <= 0)], [mpmath.mpf(1) / 2] * 2)
    # Residues are uniform to about m^2 / (10 scale^2), far below what counts can show.
    assert_counts(np.bincount(x % 97, minlength=97), [mpmath.mpf(1) / 97] * 97)


# The parts of the rejection sampler


@given(st.integers(1, 2**63), st.integers(0, 2**32))
def test_uniform_integers_stay_below_their_limit(injected, m, seed):
    drawn = rejection.uniform(m, 20, injected(seed))
    assert drawn.shape == (20,)
    assert all(0 <= int(v) < m for v in drawn)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 37])
def test_uniform_integers_are_uniform(m, injected):
    drawn = rejection.uniform(m, 100_000, injected(3))
    assert_counts(np.bincount(drawn, minlength=m), [mpmath.mpf(1) / m] * m)


@given(
    st.fractions(0, 1),
    st.integers(-1, 1),
    st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3),
)
def test_a_uniform_real_is_compared_with_a_rational_exactly(injected, p, off, more):
    first = (p.numerator << 64) // p.denominator + off
    first = min(max(first, 0), 2**64 - 1)
    value = first
    for word in more:
        value = value << 64 | word
    # The middle of the 256-bit interval; the denominators here are far below 2^255.
    expected = Fraction(2 * value + 1, 2**257) < p
    assert rejection.below(first, p, injected(0, first=more)) == expected


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2, 3)])
@pytest.mark.parametrize("loose", [False, True])
def test_bernoulli_exp_follows_the_alternating_series_over_all_words(gamma, loose):
    # 36 equal cells resolve gamma / k for k up to 3; each sequence of cells is one run, and the
    # runs that stop at k must number 36^3 (gamma^(k-1) / (k-1)! - gamma^k / k!).
    cells = 36
    words = [(2 * i + 1) * 2**63 // cells for i in range(cells)]
    low, high = math.floor(gamma * 2**32), math.ceil(gamma * 2**32)
    low, high = (0, 2**32) if loose else (low, high)
    first, second, third = np.array(list(product(words, repeat=3)), np.uint64).T

    class Grid(Bits):
        """Hands every lane its own sequence, in step with the lanes that are left."""

        def __init__(self):
            self.steps = iter((first, second, third))
            self.lanes = np.arange(cells**3)
            self.k = 0

        def words(self, n):
            self.k += 1
            if self.k > 3:
                return np.full(n, 2**64 - 1, np.uint64)  # an end: fails at k = 4
            words = next(self.steps)[self.lanes]
            assert words.size == n
            self.lanes = self.lanes[words < gamma / self.k * 2**64]
            return words

    n = cells**3
    kept = rejection._alternating(np.full(n, low), np.full(n, high), lambda i: gamma, Grid())
    odd = sum(
        gamma ** (k - 1) / math.factorial(k - 1) - gamma**k / math.factorial(k) for k in (1, 3)
    )
    assert kept.sum() == n * odd


@pytest.mark.parametrize("loose", [False, True])
def test_bernoulli_exp_has_probability_exp_minus_gamma(loose, injected):
    n = 20_000
    for gamma in [
        Fraction(0),
        Fraction(1, 7),
        Fraction(1),
        Fraction(7, 3),
        Fraction(10**20, 3**41),
    ]:
        low, high = math.floor(gamma * 2**32), math.ceil(gamma * 2**32)
        low, high = (low // 2, rejection.FAR) if loose else (low, high)
        kept = rejection.bernoulli_exp(
            np.full(n, low), np.full(n, high), lambda i, g=gamma: g, injected(4)
        )
        if gamma == 0:
            assert kept.all()
            continue
        p = mpmath.exp(-real(gamma))
        assert_counts([kept.sum(), n - kept.sum()], [p, 1 - p])


def test_each_lane_has_its_own_probability(injected):
    gammas = [Fraction(j, 3) for j in range(1, 13)]
    lanes = np.tile(np.arange(12), 20_000)
    low = np.array([math.floor(g * 2**32) for g in gammas])[lanes]
    kept = rejection.bernoulli_exp(low, low + 1, lambda i: gammas[lanes[i]], injected(5))
    for j, gamma in enumerate(gammas):
        seen, p = int(kept[lanes == j].sum()), mpmath.exp(-real(gamma))
        assert_counts([seen, 20_000 - seen], [p, 1 - p])


scales = st.one_of(
    st.integers(1, 2**53).map(Fraction),
    st.integers(0, 53).map(lambda e: Fraction(2**e)),
    st.builds(Fraction, st.integers(10**30, 10**40), st.integers(10**25, 10**30)),
)


@given(scales, st.data())
def test_the_bounds_of_a_quotient_hold_and_are_close(scale, data):
    u = data.draw(st.integers(0, math.floor(16 * scale)))
    low, high = (int(b[0]) for b in rejection._quotient(np.array([u]), scale))
    exact = u / scale * 2**32
    assert low <= exact <= high
    assert high - low < 2**12


@settings(max_examples=300)
@given(
    st.one_of(scales.map(lambda s: s**2 * Fraction(9, 10)), st.fractions(Fraction(1, 10**12), 2)),
    st.data(),
)
def test_the_bounds_of_the_gaussian_exponent_hold(sigma_squared, data):
    if sigma_squared > rejection.LARGEST_SIGMA_SQUARED:
        sigma_squared = Fraction(rejection.LARGEST_SIGMA_SQUARED)
    t = math.isqrt(math.floor(sigma_squared)) + 1
    near = st.integers(0, min(20 * t, 2**63 - 1))
    y = data.draw(st.one_of(near, st.integers(0, 2**63 - 1)))
    bounds = rejection._gaussian_exponent(np.array([y]), sigma_squared, t)
    low, high = (int(b[0]) for b in bounds)
    exact = (y - sigma_squared / t) ** 2 / (2 * sigma_squared) * 2**32
    assert 0 <= low <= exact
    assert exact <= high <= rejection.FAR or high == rejection.FAR
    if y <= 4 * t and sigma_squared >= 1:
        assert high - low < 2**14


def test_undecided_lanes_and_loose_bounds_give_the_same_answers_as_tight_ones(injected):
    # The answer is a function of the words, so without bounds it must come out the same.
    gamma = Fraction(5, 7)
    low, high = math.floor(gamma * 2**32), math.ceil(gamma * 2**32)
    n = 5_000
    tight, loose = (
        rejection._alternating(np.full(n, a), np.full(n, b), lambda i: gamma, injected(6))
        for a, b in ((low, high), (0, 2**32))
    )
    assert np.array_equal(tight, loose)


@given(st.fractions(0, 1), st.data())
def test_words_at_the_edge_of_the_bounds_are_decided_as_without_bounds(injected, gamma, data):
    low, high = math.floor(gamma * 2**32), math.ceil(gamma * 2**32)
    words = []
    for k in (1, 2, 3):
        leading = low // k + data.draw(st.integers(-2, 2))
        rest = data.draw(st.sampled_from([0, 1, 2**31, 2**32 - 1]))
        words.append(min(max(leading, 0), 2**32 - 1) << 32 | rest)
    tight, loose = (
        rejection._alternating(np.array([a]), np.array([b]), lambda i: gamma, injected(6, words))
        for a, b in ((low, high), (0, 2**32))
    )
    assert tight == loose


def test_wide_bounds_around_a_large_gamma_do_not_change_its_probability(injected):
    n, gamma = 20_000, Fraction(3, 2)
    for low, high in ((1, 3), (0, 2), (1, 2)):
        kept = rejection.bernoulli_exp(
            np.full(n, low * 2**32), np.full(n, high * 2**32), lambda i: gamma, injected(4)
        )
        p = mpmath.exp(-real(gamma))
        assert_counts([kept.sum(), n - kept.sum()], [p, 1 - p])


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_law_does_not_depend_on_the_bounds(law, injected, monkeypatch):
    def nothing(most):
        return lambda u, *_: (np.zeros(u.size, np.int64), np.full(u.size, most))

    monkeypatch.setattr(rejection, "_quotient", nothing(rejection.ONE))
    monkeypatch.setattr(rejection, "_gaussian_exponent", nothing(rejection.FAR))
    parameter, n = Fraction("8.4959"), 20_000
    drawn = ENGINES[law, "rejection"](parameter, n, injected(10))
    counts = np.bincount(np.minimum(np.abs(drawn), 12), minlength=13)
    exact = [survival(law, parameter, k) for k in range(13)] + [mpmath.mpf(0)]
    assert_counts(counts, [exact[k] - exact[k + 1] for k in range(13)])


# The parts of the table


@given(st.fractions(0, 300), st.sampled_from([64, 192, 256]))
def test_exponentials_are_enclosed_within_a_few_units(x, precision):
    low, high = table.exponential(x, precision)
    with mpmath.workprec(precision + 700):
        exact = mpmath.exp(-real(x)) * mpmath.ldexp(1, precision)
        assert low <= exact <= high
    assert high - low <= 3


@pytest.mark.parametrize(
    "parameter", [*PARAMETERS[:5], Fraction(120)], ids=lambda p: f"{float(p):.4g}"
)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_table_entries_enclose_the_exact_survival_function(law, parameter):
    made = make(law, parameter)
    low = made.low[::-1]
    with mpmath.workprec(200):
        for k in range(1, low.size + 1):
            exact = mpmath.floor(survival(law, parameter, k) * 2**63)
            assert int(low[k - 1]) <= exact <= int(made.high[k - 1])
            assert int(made.high[k - 1]) - int(low[k - 1]) <= 1
    assert made.high[-1] == 0


@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 3), Fraction(1, 64)])
@pytest.mark.parametrize("b", [Fraction(0), Fraction(1, 5000), Fraction(3)])
def test_tails_are_enclosed_beyond_the_last_weight_too(a, b):
    if a == b == 0:
        return
    tail = table._tail(a, b, 192)
    n = len(tail.low)
    with mpmath.workprec(300):
        terms = [mpmath.exp(-real(a) * j - real(b) * j * j) for j in range(6 * n)]
        exact = list(accumulate(reversed(terms)))[::-1]
        for k in (0, 1, n // 2, n - 1):
            assert tail.low[k] <= exact[k] * tail.unit <= tail.high[k]
    assert max(h - t for h, t in zip(tail.high, tail.low, strict=True)) < 2**64


def make(law, parameter):
    if law == "laplace":
        return table._table(1 / parameter, Fraction(0))
    return table._table(Fraction(0), 1 / (2 * parameter))


def magnitude(law, parameter, u):
    """The k with P(|X| >= k + 1) <= u < P(|X| >= k)."""
    k = 0
    while u < survival(law, parameter, k + 1):
        k += 1
    return k


@pytest.mark.parametrize("parameter", PARAMETERS[:4], ids=lambda p: f"{float(p):.4g}")
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_words_that_fall_on_an_entry_are_decided_as_exact_arithmetic_does(law, parameter, injected):
    made = make(law, parameter)
    with mpmath.workprec(800):
        for entry in {*made.high.tolist()[:40:3], *made.high.tolist()[-3:]}:
            nearest = min(
                range(1, made.high.size + 1), key=lambda k: abs(int(made.high[k - 1]) - entry)
            )
            exact = int(mpmath.ldexp(survival(law, parameter, nearest), 63 + 128))
            second, third = (exact >> 64) - (entry << 64), exact % 2**64
            edges = [(second, third + off) for off in (-1, 0, 1)]
            edges += [(second - 1, 0), (second + 1, 0)]
            for next_two in [(0, 0), (0, 5), (1, 0), (2**64 - 1, 2**64 - 1), *edges]:
                if not all(0 <= word < 2**64 for word in next_two):
                    continue
                for sign in (0, 1):
                    fourth = 12345 << 40
                    words = [entry << 1 | sign, *next_two, fourth, fourth, fourth]
                    bits = injected(0, first=words)
                    value = entry
                    for word in words[1:]:
                        value = value << 64 | word
                    u = mpmath.mpf(2 * value + 1) / mpmath.ldexp(1, 64 + 5 * 64)
                    k = magnitude(law, parameter, u)
                    assert made.draw(1, bits).tolist() == [-k if sign else k]
                    assert len(bits.first) < 5, "no further bits were asked for"


def test_words_next_to_an_entry_need_no_further_bits(injected):
    made = make("gaussian", Fraction("8.4959"))
    assert np.array_equal(made.low[::-1], made.high)
    for k, entry in enumerate(made.high.tolist()):
        for leading, expected in ((entry - 1, k + 1), (entry + 1, k)):
            if leading < 0 or leading in made.high:
                continue
            bits = injected(0, first=[leading << 1, 99])
            assert made.draw(1, bits).tolist() == [expected]
            assert bits.first == [99]


def test_the_far_tail_is_reached_through_words_of_zeros(injected):
    for law, parameter in (("gaussian", Fraction(4)), ("laplace", Fraction(2))):
        made = make(law, parameter)
        drawn = made.draw(1, injected(0, first=[0, 0, 0, 1]))[0]
        with mpmath.workprec(600):
            k = magnitude(law, parameter, mpmath.ldexp(mpmath.mpf("1.5"), -(63 + 3 * 64)))
        assert drawn == k
        assert k > made.high.size


# The public functions


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
def test_inexact_and_impossible_parameters_are_refused_by_name(draw, injected):
    name = "sigma_squared" if draw is discrete_gaussian else "scale"
    bits = injected(0)
    for wrong in (0.5, math.nan, math.inf, np.float64(2), "1/2", True, None, 1j):
        with pytest.raises(TypeError, match=f"{name} = "):
            draw(wrong, 3, bits)
    for wrong in (0, -1, Fraction(-1, 3), 10**33):
        with pytest.raises(ValueError, match=f"{name} = "):
            draw(wrong, 3, bits)
    with pytest.raises(ValueError, match="size = -1"):
        draw(1, -1, bits)
    with pytest.raises(ValueError, match="size = "):
        draw(1, 2.0, bits)


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
@pytest.mark.parametrize("parameter", [Fraction(1, 10**30), 3, np.int64(9), Fraction(10**13, 7)])
@pytest.mark.parametrize("size", [0, 1, 5, 200_000])
def test_draws_have_the_size_asked_for(draw, parameter, size, injected):
    drawn = draw(parameter, size, injected(9))
    assert drawn.shape == (size,)
    assert drawn.dtype == np.int64


def test_a_draw_outside_64_bits_raises_rather_than_wraps(injected, monkeypatch):
    monkeypatch.setattr(
        rejection, "_geometric", lambda gamma, size, bits: np.full(size, 1023, np.int64)
    )
    with pytest.raises(OverflowError, match="64-bit"):
        rejection.discrete_laplace(Fraction(2**53), 3, injected(0))


@settings(deadline=None)
@given(st.fractions(Fraction(1, 1000), 2000), st.integers(0, 300), st.integers(0, 2**32))
def test_equal_bits_give_equal_noise_of_both_signs(injected, parameter, size, seed):
    for draw in ENGINES.values():
        if draw is table.discrete_laplace and parameter > table.LARGEST_SCALE:
            continue
        one = draw(parameter, size, injected(seed))
        assert np.array_equal(one, draw(parameter, size, injected(seed)))


@pytest.mark.parametrize("name", ["rejection.py", "table.py", "parameters.py", "bits.py"])
def test_the_samplers_hold_no_floating_point(name):
    folder = Path(neyman.noise.__file__).parent
    for node in ast.walk(ast.parse((folder / name).read_text())):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not (isinstance(node, ast.Name) and node.id == "float")
        assert not (isinstance(node, ast.Attribute) and node.attr.startswith("float"))
