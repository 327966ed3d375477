"""The samplers have exactly the stated law.

Statistical tests run on repeatable bits and would raise a false alarm with probability at most
1e-6 each if the bits were fresh: every cell's count is held to the Chernoff bound
P(n KL(count / n, p) >= c) <= 2 exp(-c), the whole to Dvoretzky, Kiefer, Wolfowitz and Massart.
"""

import ast
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from exact_noise import ALARM, assert_counts, real, survival, total, weight
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import SIZE
from neyman.noise import Bits, discrete_gaussian, discrete_laplace, integer_noise, rejection, source
from neyman.noise.lookup_table import weights_table
from neyman.noise.parameters import positive_rational

ZERO = Fraction(0)


def engine(fill):
    """A function that draws ``n`` numbers by filling a new array."""

    def draw(parameter, n, bits):
        out = np.full(n, 77, np.int64)
        fill(parameter, out, bits)
        return out

    return draw


ENGINES = {
    ("gaussian", "table"): engine(
        lambda v, *rest: weights_table(Fraction(0), 1 / (2 * v)).fill(*rest)
    ),
    ("gaussian", "rejection"): engine(rejection.discrete_gaussian),
    ("laplace", "table"): engine(lambda v, *to: weights_table(1 / v, ZERO).fill(*to)),
    ("laplace", "rejection"): engine(rejection.discrete_laplace),
}
PARAMETERS = [
    Fraction(1, 100),
    Fraction(1, 3),
    Fraction(1),
    Fraction("8.4959"),
    Fraction(10**30 + 7, 3 * 10**29 + 1),
    Fraction(200),
]


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{float(p):.4g}")
@pytest.mark.parametrize("engine", ENGINES, ids="-".join)
def test_counts_follow_the_exact_probabilities(engine, parameter, injected, attempts):
    law = engine[0]
    n = (200_000 if parameter > Fraction(1, 10) else 50_000) * SIZE
    attempts(n)
    draws = ENGINES[engine](parameter, n, injected(20240101))
    assert draws.shape == (n,)
    assert draws.dtype == np.int64
    reach = 3 + math.ceil(3 * (parameter if law == "laplace" else math.sqrt(parameter)))
    inside = np.abs(draws) <= reach
    counts = [*np.bincount(draws[inside] + reach, minlength=2 * reach + 1)]
    counts += [np.sum(draws < -reach), np.sum(draws > reach)]
    z, tail = total(law, parameter), survival(law, parameter, reach + 1) / 2
    exact = [weight(law, parameter, k) / z for k in range(-reach, reach + 1)] + [tail, tail]
    assert_counts(counts, exact)
    steps = np.cumsum([float(p) for p in exact[:-2]]) + float(tail)
    observation = (np.cumsum(counts[:-2]) + counts[-2]) / n
    assert np.max(np.abs(steps - observation)) < math.sqrt(math.log(2 / ALARM) / (2 * n))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "parameter", [Fraction(1, 2), Fraction(7, 2), Fraction(250), Fraction(50_000)]
)
def test_both_engines_have_the_same_law(law, parameter, injected, attempts):
    n = 300_000 * SIZE
    attempts(2 * n)
    one = np.sort(ENGINES[law, "table"](parameter, n, injected(1)))
    two = np.sort(ENGINES[law, "rejection"](parameter, n, injected(2)))
    points = np.union1d(one, two)
    gap = np.searchsorted(one, points, "right") - np.searchsorted(two, points, "right")
    assert np.max(np.abs(gap)) / n < 2 * math.sqrt(math.log(4 / ALARM) / (2 * n))


@pytest.mark.parametrize("sigma", [1000, 10**4, 10**6, 10**9, 10**15])
def test_a_wide_gaussian_has_the_moments_and_quantiles_and_even_last_digits(
    sigma, injected, attempts
):
    n = 200_000 * SIZE
    attempts(n)
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


@pytest.mark.parametrize("scale", [10**4, 10**6, 10**15, 2**53, Fraction(10**20 + 1, 10**5)])
def test_a_wide_laplace_has_the_quantiles_and_even_last_digits(scale, injected, attempts):
    n = 200_000 * SIZE
    attempts(n)
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
    draws = rejection.uniform(m, 20, injected(seed))
    assert draws.shape == (20,)
    assert all(0 <= int(v) < m for v in draws)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 37])
def test_uniform_integers_are_uniform(m, injected):
    draws = rejection.uniform(m, 100_000, injected(3))
    assert_counts(np.bincount(draws, minlength=m), [mpmath.mpf(1) / m] * m)


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
    selection = rejection._alternating_series(
        np.full(n, low), np.full(n, high), lambda i: gamma, Grid()
    )
    odd = sum(
        gamma ** (k - 1) / math.factorial(k - 1) - gamma**k / math.factorial(k) for k in (1, 3)
    )
    assert selection.sum() == n * odd


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
        low, high = (low // 2, rejection.NO_BOUND) if loose else (low, high)
        selection = rejection.bernoulli_exp(
            np.full(n, low), np.full(n, high), lambda i, g=gamma: g, injected(4)
        )
        if gamma == 0:
            assert selection.all()
            continue
        p = mpmath.exp(-real(gamma))
        assert_counts([selection.sum(), n - selection.sum()], [p, 1 - p])


def test_each_lane_has_its_own_probability(injected):
    gammas = [Fraction(j, 3) for j in range(1, 13)]
    lanes = np.tile(np.arange(12), 20_000)
    low = np.array([math.floor(g * 2**32) for g in gammas])[lanes]
    selection = rejection.bernoulli_exp(low, low + 1, lambda i: gammas[lanes[i]], injected(5))
    for j, gamma in enumerate(gammas):
        observation, p = int(selection[lanes == j].sum()), mpmath.exp(-real(gamma))
        assert_counts([observation, 20_000 - observation], [p, 1 - p])


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
    if sigma_squared > rejection.LIMITS.sigma_squared:
        sigma_squared = Fraction(rejection.LIMITS.sigma_squared)
    t = math.isqrt(math.floor(sigma_squared)) + 1
    near = st.integers(0, min(20 * t, 2**63 - 1))
    y = data.draw(st.one_of(near, st.integers(0, 2**63 - 1)))
    bounds = rejection._gaussian_exponent(np.array([y]), sigma_squared, t)
    low, high = (int(b[0]) for b in bounds)
    exact = (y - sigma_squared / t) ** 2 / (2 * sigma_squared) * 2**32
    assert 0 <= low <= exact
    assert exact <= high <= rejection.NO_BOUND or high == rejection.NO_BOUND
    if y <= 4 * t and sigma_squared >= 1:
        assert high - low < 2**14


def test_the_exponent_of_each_proposal_lies_within_its_bounds(injected, monkeypatch):
    bernoulli_exp = rejection.bernoulli_exp

    def checked(low, high, exact, bits):
        for i in range(low.size):
            assert int(low[i]) <= exact(i) * 2**32 <= int(high[i])
        return bernoulli_exp(low, high, exact, bits)

    monkeypatch.setattr(rejection, "bernoulli_exp", checked)
    rejection.discrete_gaussian(Fraction("8.4959"), np.empty(200, np.int64), injected(3))


def test_undecided_lanes_and_loose_bounds_give_the_same_answers_as_tight_ones(injected):
    # The answer is a function of the words, so without bounds it must come out the same.
    gamma = Fraction(5, 7)
    low, high = math.floor(gamma * 2**32), math.ceil(gamma * 2**32)
    n = 5_000
    tight, loose = (
        rejection._alternating_series(np.full(n, a), np.full(n, b), lambda i: gamma, injected(6))
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
        rejection._alternating_series(
            np.array([a]), np.array([b]), lambda i: gamma, injected(6, words)
        )
        for a, b in ((low, high), (0, 2**32))
    )
    assert tight == loose


def test_wide_bounds_around_a_large_gamma_do_not_change_its_probability(injected):
    n, gamma = 20_000, Fraction(3, 2)
    for low, high in ((1, 3), (0, 2), (1, 2)):
        selection = rejection.bernoulli_exp(
            np.full(n, low * 2**32), np.full(n, high * 2**32), lambda i: gamma, injected(4)
        )
        p = mpmath.exp(-real(gamma))
        assert_counts([selection.sum(), n - selection.sum()], [p, 1 - p])


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_law_does_not_depend_on_the_bounds(law, injected, monkeypatch):
    def nothing(most):
        return lambda u, *_: (np.zeros(u.size, np.int64), np.full(u.size, most))

    monkeypatch.setattr(rejection, "_quotient", nothing(rejection.FIXED_POINT_ONE))
    monkeypatch.setattr(rejection, "_gaussian_exponent", nothing(rejection.NO_BOUND))
    parameter, n = Fraction("8.4959"), 20_000
    draws = ENGINES[law, "rejection"](parameter, n, injected(10))
    counts = np.bincount(np.minimum(np.abs(draws), 12), minlength=13)
    exact = [survival(law, parameter, k) for k in range(13)] + [mpmath.mpf(0)]
    assert_counts(counts, [exact[k] - exact[k + 1] for k in range(13)])


# The public functions


def test_the_largest_parameter_is_accepted_and_only_bits_are_a_source(injected):
    assert positive_rational("x", Fraction(7, 2), Fraction(7, 2)) == Fraction(7, 2)
    with pytest.raises(ValueError, match=r"x = .* must be at most 3: beyond it, noise"):
        positive_rational("x", Fraction(7, 2), 3)
    bits = injected(0)
    assert source(bits) is bits
    with pytest.raises(TypeError, match="bits is a Generator"):
        source(np.random.default_rng())


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
def test_an_array_to_write_to_is_filled_and_a_wrong_one_refused_by_name(draw, injected):
    """``out`` is returned, holds what a new array would hold, and is checked before any draw."""
    for parameter in (Fraction(9), Fraction(10**12), Fraction(10**15)):
        for size in (0, 1, 70_000):
            out = np.full(size, 77, np.int64)
            assert draw(parameter, size, injected(3), out) is out
            assert np.array_equal(out, draw(parameter, size, injected(3)))
    every_other = np.zeros(20, np.int64)
    draw(Fraction(9), 10, injected(4), out=every_other[::2])
    assert np.array_equal(every_other[::2], draw(Fraction(9), 10, injected(4)))
    assert not every_other[1::2].any()
    fixed = np.zeros(5, np.int64)
    fixed.flags.writeable = False
    for wrong, error in [
        (np.zeros(5, np.int32), TypeError),
        (np.zeros(5), TypeError),
        ([0] * 5, TypeError),
        (np.zeros(4, np.int64), ValueError),
        (np.zeros((5, 1), np.int64), ValueError),
        (fixed, ValueError),
    ]:
        with pytest.raises(error, match=r"^out "):
            draw(Fraction(9), 5, injected(0), wrong)


def asked_engines(monkeypatch):
    """The list to which each engine adds its name instead of drawing."""
    asked = []

    class Asked:
        def __init__(self, name):
            self.name = name

        def fill(self, *_):
            asked.append(self.name)

    monkeypatch.setattr(integer_noise, "weights_table", lambda *_: Asked("table"))
    monkeypatch.setattr(integer_noise, "strips", lambda *_, **__: Asked("strips"))
    for law in ("discrete_laplace", "discrete_gaussian"):
        monkeypatch.setattr(rejection, law, Asked("rejection").fill)
    return asked


@pytest.mark.parametrize(
    ("law", "sigma", "size", "engine"),
    [
        ("laplace", 1000, 1, "table"),
        ("laplace", 1001, 1, "rejection"),
        ("laplace", 1001, 10_010, "table"),
        ("laplace", 10**5, 999_999, "rejection"),
        ("laplace", 10**5, 10**6, "table"),
        ("laplace", 10**5 + 1, 2 * 10**6, "rejection"),
        ("gaussian", 1000, 1, "table"),
        ("gaussian", 1000, 10**5, "table"),
        ("gaussian", 1001, 9999, "rejection"),
        ("gaussian", 1001, 10_000, "strips"),
        ("gaussian", 10**15, 10_000, "strips"),
    ],
)
def test_tables_and_strips_are_made_where_they_are_worth_it(
    law, sigma, size, engine, monkeypatch, injected
):
    asked = asked_engines(monkeypatch)
    draw, parameter = (
        (discrete_laplace, sigma) if law == "laplace" else (discrete_gaussian, sigma**2)
    )
    draw(Fraction(parameter), size, injected(0), np.empty(size, np.int64))
    assert asked == [engine]


def test_tiny_parameters_draw_zeros_and_the_largest_stay_in_range(injected):
    for draw in (discrete_gaussian, discrete_laplace):
        for tiny in (Fraction(1, 100), Fraction(1, 10**4), Fraction(1, 10**300)):
            assert not draw(tiny, 20_000, injected(1)).any()  # else below 10^-17 a draw
    wide = discrete_gaussian(Fraction(rejection.LIMITS.sigma_squared), 5000, injected(2))
    assert 2**54 < np.abs(wide).max() < 2**57  # outside with probability below 1e-9
    wide = discrete_laplace(Fraction(rejection.LIMITS.scale), 5000, injected(2))
    assert 2**55 < np.abs(wide).max() < 2**58


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
@pytest.mark.parametrize("parameter", [Fraction(1, 10**30), 3, np.int64(9), Fraction(10**13, 7)])
@pytest.mark.parametrize("size", [0, 1, 5, 200_000])
def test_draws_have_the_size_asked_for(draw, parameter, size, injected):
    draws = draw(parameter, size, injected(9))
    assert draws.shape == (size,)
    assert draws.dtype == np.int64


def test_a_draw_outside_64_bits_raises_rather_than_wraps(injected, monkeypatch):
    monkeypatch.setattr(
        rejection, "_geometric", lambda gamma, size, bits: np.full(size, 1023, np.int64)
    )
    with pytest.raises(OverflowError, match="64-bit"):
        rejection.discrete_laplace(Fraction(2**53), np.empty(3, np.int64), injected(0))


@given(st.fractions(Fraction(1, 1000), 2000), st.integers(0, 300), st.integers(0, 2**32))
def test_equal_bits_give_equal_noise_of_both_signs(injected, parameter, size, seed):
    for draw in ENGINES.values():
        one = draw(parameter, size, injected(seed))
        assert np.array_equal(one, draw(parameter, size, injected(seed)))


@pytest.mark.parametrize(
    "name", ["rejection", "lookup_table", "weights", "large_gaussian", "parameters", "bits"]
)
def test_the_samplers_hold_no_floating_point(name):
    folder = Path(integer_noise.__file__).parent
    for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not (isinstance(node, ast.Name) and node.id == "float")
        assert not (isinstance(node, ast.Attribute) and node.attr.startswith("float"))
