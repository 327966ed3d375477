"""Local reports: their curves and estimates, and one among many that come in random order."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

import neyman as ny
from neyman import Laplace, LocalRandomizer, RandomizedResponse
from seeded import Seeded


def shuffled_law(laws):
    """The distribution of the counts of each category, by all outcomes."""
    by_key = {(0,) * len(laws[0]): Fraction(1)}
    for law in laws:
        more = {}
        for counts, mass in by_key.items():
            for i, p in enumerate(law):
                key = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                more[key] = more.get(key, 0) + mass * p
        by_key = more
    return by_key


def worst(users, categories, odds, t):
    """The largest delta over all data of the others, by enumeration."""
    other = Fraction(1, odds + categories - 1)
    truth = [
        [odds * other if i == v else other for i in range(categories)] for v in range(categories)
    ]
    result = Fraction(0)
    for others in combinations_with_replacement(range(categories), users - 1):
        rest = [truth[v] for v in others]
        p, q = shuffled_law([truth[0], *rest]), shuffled_law([truth[1], *rest])
        result = max(result, sum(max(p[x] - t * q[x], 0) for x in p))
    return result


@pytest.mark.parametrize(
    ("users", "categories"), [(1, 3), (2, 2), (4, 2), (2, 3), (4, 3), (6, 3), (3, 4), (4, 5)]
)
@pytest.mark.parametrize("odds", [Fraction(3, 2), 3, 20])
def test_delta_covers_all_data_of_the_others(users, categories, odds):
    f = RandomizedResponse(math.log(odds), categories).shuffle(users=users).tradeoff()
    for t in (1, Fraction(11, 10), Fraction(7, 5), Fraction(5, 2), 10):
        true, delta = worst(users, categories, odds, t), f.delta(epsilon=math.log(t))
        assert delta.lower * (1 - 1e-11) - 1e-15 <= true <= delta.upper * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize(
    "local",
    [LocalRandomizer(1.5), RandomizedResponse(2.0), RandomizedResponse(1.0, 3), Laplace(scale=1)],
)
def test_more_people_hide_better(local):
    alone = local.shuffle(users=1).tradeoff()
    assert alone.delta(epsilon=0.5).upper >= local.tradeoff().delta(epsilon=0.5).lower
    results = [local.shuffle(users=n).tradeoff() for n in (1, 10, 1000, 30_000)]
    for asked in (lambda f: f.delta(epsilon=0.01), lambda f: f.power(level=0.05)):
        answers = [asked(f) for f in results]
        assert all(a.upper > b.upper for a, b in pairwise(answers))
        assert all(b.lower <= b.upper for b in answers)


def test_only_what_is_attained_is_claimed_from_below():
    laplace = Laplace(scale=1).shuffle(users=1000).tradeoff().delta(epsilon=0.1)
    worst_report = LocalRandomizer(1).shuffle(users=1000).tradeoff().delta(epsilon=0.1)
    assert laplace.upper == worst_report.upper
    assert laplace.lower == 0 < worst_report.lower


def test_releases_compose_between_both_sides():
    shuffled = LocalRandomizer(4.0).shuffle(users=2000)
    one, three = shuffled.tradeoff(), (shuffled * 3).tradeoff()
    for epsilon in (0.1, 0.5, 1.0):
        delta = three.delta(epsilon=epsilon)
        assert one.delta(epsilon=epsilon).lower <= delta.lower * (1 + 1e-3)
        assert delta.lower <= delta.upper
        assert delta.upper <= 3 * one.delta(epsilon=epsilon / 3).upper
    assert three.epsilon(delta=1e-6).upper < 3 * one.epsilon(delta=1e-6 / 3).upper


# --- the pairs between which the curve of one report lies


def shuffled(users, epsilon, categories=2):
    """The curve whose upper end is that of the clones, or whose lower end has a third category."""
    local = RandomizedResponse(epsilon, categories) if categories > 2 else LocalRandomizer(epsilon)
    return local.shuffle(users=users).tradeoff()


def assert_end(delta, truth, categories, rel):
    """The upper end is on the truth for the clones, and the lower end with a third category."""
    if categories == 2:
        assert truth * (1 - 1e-11) <= delta.upper <= truth * (1 + rel) + 1e-15
    else:
        assert truth * (1 - rel) - 1e-15 <= delta.lower <= truth * (1 + 1e-11)


def enumerated(users, p, own, other, t):
    """delta by all outcomes, in fractions."""
    laws = {}
    for c in range(users):
        w = comb(users - 1, c) * p**c * (1 - p) ** (users - 1 - c)
        for x in range(c + 1):
            mass = w * comb(c, x) / Fraction(2) ** c
            for place, a, b in (
                ((x + 1, c - x), own, other),
                ((x, c - x + 1), other, own),
                ((x, c - x), 1 - own - other, 1 - own - other),
            ):
                first, second = laws.get(place, (0, 0))
                laws[place] = first + a * mass, second + b * mass
    return sum(max(a - t * b, 0) for a, b in laws.values())


@pytest.mark.parametrize("users", [2, 3, 17])
@pytest.mark.parametrize("odds", [Fraction(3, 2), 7, 50])
@pytest.mark.parametrize("categories", [2, 3, 9])
def test_few_users_are_enumerated(users, odds, categories):
    other = Fraction(1, odds + categories - 1)
    curve = shuffled(users, math.log(odds), categories)
    for t in (1, Fraction(11, 10), Fraction(7, 5), 5, 45):
        truth = float(enumerated(users, 2 * other, odds * other, other, t))
        assert_end(curve.delta(math.log(t)), truth, categories, 1e-10)


def summed(users, top, categories, epsilon):
    """delta as a sum of positive terms over both counts, in logarithms."""
    n, b = users - 1, 1 / (math.exp(top) + categories - 1)
    a, p = math.exp(top) * b, 2 * b
    t, total = math.exp(epsilon), 0.0
    c = np.arange(n + 1)
    w = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1) + c * math.log(p)
    w = np.exp(w + (n - c) * math.log1p(-p))
    for m in range(1, n + 2):
        if w[m - 1] < 1e-60:
            continue
        x = np.arange(m + 1)
        law = np.exp(gammaln(m + 1) - gammaln(x + 1) - gammaln(m - x + 1) - m * math.log(2))
        none = (1 - a - b) * w[m] if m <= n else 0.0
        first = 2 * w[m - 1] * (a * x + b * (m - x)) / m + none
        second = 2 * w[m - 1] * (b * x + a * (m - x)) / m + none
        total += float((law * np.maximum(first - t * second, 0)).sum())
    return total


@pytest.mark.parametrize(("users", "local"), [(300, 0.5), (1000, 2.0), (3000, 4.0)])
@pytest.mark.parametrize("categories", [2, 3])
def test_more_users_are_summed(users, local, categories):
    curve = shuffled(users, local, categories)
    for epsilon in (0.0, 1e-3, 0.1, 0.3, 0.45):
        truth = summed(users, local, categories, epsilon)
        if truth > 1e-13:
            assert_end(curve.delta(epsilon), truth, categories, 2e-9)


@pytest.mark.parametrize("users", [10**7, 10**8, 10**9])
def test_many_users_are_nearly_normal(users):
    """The loss has the deviation 2 (a - b) / sqrt(n p)."""
    bound = shuffled(users, 4.0).delta(1e-3)
    for end, categories in ((bound.upper, 2), (bound.lower, 3)):
        b = 1 / (math.exp(4) + categories - 1)
        mu = 2 * b * math.expm1(4) / math.sqrt(users * 2 * b)
        assert end == pytest.approx(ny.gdp(mu).delta(1e-3).upper, rel=0.01)


@settings(max_examples=40)
@given(users=st.integers(1, 10**6), local=st.floats(0.01, 20), share=st.floats(0, 1))
def test_a_crowd_only_hides(users, local, share):
    epsilon = share * local
    alone = (math.exp(local) - math.exp(epsilon)) / (1 + math.exp(local))
    any_, three = (shuffled(users, local, k).delta(epsilon) for k in (2, 3))
    assert any_.upper <= alone * (1 + 1e-6) + 1e-12
    assert three.lower <= any_.upper * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0, 3.0])
def test_far_out_the_bounds_stay_bounds(epsilon):
    """Where deltas leave the floats the interval is wide but holds: n = 10^5 against Stirling."""
    users, local = 10**5, 4.0
    bound = shuffled(users, local).log_delta(epsilon)
    # the largest single term, to the first order in its exponent, is below; n of them above
    p, t = 2 / (math.exp(local) + 1), math.exp(epsilon)
    r = (t * math.exp(local) - 1) / ((math.exp(local) - 1) * (1 + t))
    answer = r * math.log(2 * r) + ((1 - r) * math.log(2 * (1 - r)) if r < 1 else 0)
    rate = math.log(1 - p + p * math.exp(-answer))
    assert bound.lower <= users * rate + 10
    assert bound.upper >= users * rate - 60
    assert bound.lower <= bound.upper <= 0


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


def best_power(p, q, level):
    """The power of the best test of Q against P, by Neyman and Pearson."""
    total, power, left = sum(q), Fraction(0), Fraction(level)
    for x, y in sorted(zip(p, q, strict=True), key=lambda pair: -Fraction(*pair)):
        share = min(Fraction(1), left * total / y)
        power, left = power + share * x / total, left - share * y / total
    return float(power)


@pytest.mark.parametrize("users", [2, 5, 40, 300])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_the_lower_end_of_bits_is_that_of_equal_others(users, epsilon):
    curve = RandomizedResponse(epsilon).shuffle(users=users).tradeoff()
    one, none = laws(users, Fraction(math.exp(epsilon)))  # correct to a unit
    for x in np.array([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0, 1.1]) * epsilon:
        truth = float(larger_delta(one, none, Fraction(math.exp(x))))
        lower = curve.delta(float(x)).lower
        assert lower <= truth * (1 + 1e-12) + 1e-15
        if x < 0.9995 * epsilon and truth > 1e-200:
            assert lower >= truth * (1 - 1e-6)
    for level in (Fraction(1, 20), Fraction(4, 5)):
        best = max(best_power(*pair, level) for pair in ((one, none), (none, one)))
        assert best * (1 - 1e-2) <= curve.power(float(level)).lower <= best * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "users"), [(1, 5), (1, 2), (2, 3), (3, 6), (0.5, 20)])
def test_a_divergence_of_shuffled_bits_encloses_the_largest_over_all_data(epsilon, users):
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


KINDS = (
    ny.CategoryResponse,
    ny.HadamardResponse,
    ny.UnaryEncoding,
    lambda e, k: ny.UnaryEncoding(e, k, optimised=True),
)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1.0, 4, 20])
def test_no_more_than_epsilon_is_told(make, epsilon):
    answer = make(epsilon, 5).tradeoff().pure()
    assert answer.upper <= float(epsilon) * (1 + 1e-12)
    assert answer.lower >= float(epsilon) * (1 - 1e-9)
    assert make(epsilon, 5).tradeoff().delta(epsilon=0.05).upper <= ny.pure(epsilon).delta(
        epsilon=0.05
    ).upper * (1 + 1e-9)


def test_curves_are_those_of_their_pairs():
    for level in (0.01, 0.2):
        ours = ny.CategoryResponse(1.5, 4).tradeoff().power(level=level)
        other = ny.RandomizedResponse(1.5, 4).tradeoff().power(level=level)
        assert math.isclose(ours.upper, other.upper, rel_tol=1e-9)
        ours = ny.UnaryEncoding(1.5, 4).tradeoff().power(level=level)
        other = (ny.RandomizedResponse(0.75) * 2).tradeoff().power(level=level)
        assert math.isclose(ours.upper, other.upper, rel_tol=1e-9)
    # one report of the Hadamard entry: half of the columns tell nothing
    e = math.exp(1.5)
    delta = ny.HadamardResponse(1.5, 4).tradeoff().delta(epsilon=0.0)
    assert math.isclose(delta.upper, 0.5 * (e - 1) / (e + 1), rel_tol=1e-9)


def assert_spread(make, categories, runs):
    """Means are within 5.5 standard errors (false alarm below 1e-6 in all)."""
    mechanism, people = make(1.2, categories), 60
    held = np.minimum(np.arange(people) % 4, categories - 1)
    reports = mechanism.report(np.tile(held, runs), Seeded(20_261_120))
    result = np.array([mechanism.frequencies(r) for r in np.split(reports, runs)])
    shares = np.bincount(held, minlength=categories) / people
    assert np.allclose(result.sum(axis=1).mean(), 1, atol=0.2)
    for v, share in enumerate(shares):
        variance = mechanism.variance(float(share), people)
        assert abs(result[:, v].mean() - share) < 5.5 * math.sqrt(variance / runs)
        # the variance of a variance is about 2 variance^2 / runs: six deviations, and twelve
        allowed = max(0.12, 6 * math.sqrt(2 / runs))
        assert math.isclose(result[:, v].var(), variance, rel_tol=allowed)


def test_a_thousand_estimates_of_each_kind_spread_as_they_say():
    for make in KINDS:
        assert_spread(make, 3, 1000)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("categories", [2, 3, 8])
def test_estimates_are_unbiased_and_spread_as_they_say(make, categories):
    assert_spread(make, categories, 20_000)


@pytest.mark.parametrize("make", KINDS)
def test_one_report_has_the_stated_law(make):
    mechanism, n = make(1.0, 2), 200_000
    bits = Seeded(7)
    zero, one = (mechanism.report(np.full(n, v), bits).reshape(n, -1) for v in (0, 1))
    keys = np.unique(np.concatenate([zero, one]), axis=0)
    p = np.array([(zero == key).all(axis=1).mean() for key in keys])
    q = np.array([(one == key).all(axis=1).mean() for key in keys])
    variation = 0.5 * np.abs(p - q).sum()
    # each of at most 4 outcomes errs by less than 6 deviations, each at most sqrt(1 / 2n)
    assert abs(variation - mechanism.tradeoff().delta(epsilon=0.0).upper) < 4 * 6 / math.sqrt(4 * n)


def test_descriptions_and_refusals():
    for make in KINDS:
        mechanism = make(Fraction(3, 2), 9)
        assert ny.Mechanism.from_json(mechanism.to_json()) == mechanism
        with pytest.raises(ValueError, match="values"):
            mechanism.report([0, 9], Seeded(1))
        with pytest.raises(TypeError, match="values"):
            mechanism.report([0.5], Seeded(1))
        for epsilon in (0, -1, 41):
            with pytest.raises(ValueError, match="epsilon"):
                make(epsilon, 3)
        assert len(mechanism.report([], Seeded(1))) == 0
        assert mechanism.frequencies(mechanism.report([1] * 50)).shape == (9,)  # on secure bits


def test_a_mean_is_that_of_the_frequencies():
    mechanism = ny.CategoryResponse(30, 3)
    reports = mechanism.report(np.array([0, 0, 1, 2]), Seeded(3))
    assert math.isclose(mechanism.mean(reports, [1.0, 2.0, 4.0]), 2.0, rel_tol=1e-6)
