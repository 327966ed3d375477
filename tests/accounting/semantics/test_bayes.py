"""Posterior against posterior: worlds small enough to enumerate never exceed a bound.

A world is a prior over (record, rest), as correlated as it likes, and a mechanism: one law of the
output for each pair. All of it is in fractions, so that the probability of a ratio above e^epsilon
is exact, and epsilon is put just below the ratios that occur, where a bound is most easily broken.
"""

import math
from dataclasses import dataclass
from fractions import Fraction as F
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff, posterior_ratio, renyi
from neyman.accounting import (
    membership_success,
    positive_predictive_value,
    posterior_chance,
    posterior_ratios,
)
from random_laws import examples

Law = tuple[F, ...]
ATTACKERS = "knows-the-rest", "true-record", "arbitrary-prior"
ORDERS = [1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0]


@dataclass(frozen=True)
class World:
    """``prior[r][s]`` of record and rest, ``outputs[r][s]`` the distribution of the output."""

    prior: tuple[Law, ...]
    outputs: tuple[tuple[Law, ...], ...]

    @property
    def records(self):
        return range(len(self.prior))

    @property
    def rests(self):
        return range(len(self.prior[0]))

    def neighbors(self):
        """Every ordered pair of distributions whose data differ in the record."""
        for s, r, other in product(self.rests, self.records, self.records):
            if r != other:
                yield self.outputs[r][s], self.outputs[other][s]

    def curve(self):
        """The curve of the mechanism: the worst of all pairs."""
        pairs = [ny.between(p, q) for p, q in self.neighbors()]
        return Tradeoff.of(c for f in pairs for c in f.alternatives)

    def pure(self):
        return max(
            float(mpmath.log(a / b)) for p, q in self.neighbors() for a, b in zip(p, q, strict=True)
        )

    def divergence(self, order):
        """An upper bound, by a hair, of D_order over all pairs."""
        return max(divergence(p, q, order) for p, q in self.neighbors()) * (1 + 1e-9) + 1e-12

    def rho(self):
        """An upper bound of D_a / a over every order: D_a grows with a."""
        grid = [*np.geomspace(1, 300, 160), math.inf]
        results = [self.divergence(a) if a < math.inf else self.pure() for a in grid]
        return max(d / a for d, a in zip(results[1:], grid[:-1], strict=True))


def divergence(p, q, order):
    p, q = np.array(p, float), np.array(q, float)
    if order == 1:
        return float(np.sum(p * np.log(p / q)))
    moments = order * np.log(p) + (1 - order) * np.log(q)
    return float(np.logaddexp.reduce(moments)) / (order - 1)


def mix(weights, laws):
    """The mixture of distributions, scaled."""
    total = sum(weights)
    return tuple(
        sum(w * law[i] for w, law in zip(weights, laws, strict=True)) / total
        for i in range(len(laws[0]))
    )


def mass_above(world_law, numerator, denominator, factor):
    """Probability under the first distribution that the ratio exceeds the factor; and falls below
    1/it.
    """
    above = sum(
        (m for m, a, b in zip(world_law, numerator, denominator, strict=True) if a > factor * b),
        F(0),
    )
    below = sum(
        (m for m, a, b in zip(world_law, numerator, denominator, strict=True) if factor * a < b),
        F(0),
    )
    return above, below


def epsilons(pairs):
    """Just below the logarithms of the ratios that occur, where the probability jumps."""
    ratios = {a / b for p, q in pairs for a, b in zip(p, q, strict=True) if a > b}
    return [
        max(round(math.log(r), 6) - 1e-6, 0.0) for r in sorted(ratios)[:: max(len(ratios) // 4, 1)]
    ]


def known_rest(world):
    """(prior over records, their distributions) for each rest that the attacker may know."""
    for s in world.rests:
        weights = [world.prior[r][s] for r in world.records]
        if all(weights):
            yield [w / sum(weights) for w in weights], [world.outputs[r][s] for r in world.records]


def uncertain(world):
    """For each true record: the distribution of the output, and that of its counterfactual."""
    for r in world.records:
        weights = [world.prior[r][s] for s in world.rests]
        actual = mix(weights, [world.outputs[r][s] for s in world.rests])
        others = [
            mix(
                [world.prior[k][s] for k in world.records],
                [world.outputs[k][s] for k in world.records],
            )
            for s in world.rests
        ]
        yield actual, mix(weights, others)


def cases(world, attacker):
    """What the attacker compares: (distribution of the world, numerator, denominator) of each
    ratio.
    """
    if attacker == "knows-the-rest":
        for prior, laws in known_rest(world):
            total = mix(prior, laws)
            for size in range(1, len(prior)):  # any statement: a set of records
                for chosen in (range(size), range(len(prior) - size, len(prior))):
                    yield total, mix([prior[i] for i in chosen], [laws[i] for i in chosen]), total
    elif attacker == "true-record":
        for prior, laws in known_rest(world):
            total = mix(prior, laws)
            for law in laws:
                yield law, law, total
    else:
        for actual, counterfactual in uncertain(world):
            yield actual, actual, counterfactual


@st.composite
def worlds(draw):
    """Two or three records, one to three rests, two to four outputs; no mass is 0."""
    records, rests, outputs = (draw(st.integers(*x)) for x in ((2, 3), (1, 3), (2, 4)))
    weight = st.sampled_from([1, 1, 2, 5, 30])

    def law(n):
        total = draw(st.lists(weight, min_size=n, max_size=n))
        return tuple(F(x, sum(total)) for x in total)

    joint = law(records * rests)
    prior = tuple(joint[r * rests : (r + 1) * rests] for r in range(records))
    return World(prior, tuple(tuple(law(outputs) for _ in range(rests)) for _ in range(records)))


def check(world, guarantee, attacker, both=False):
    """No ratio in this world is above e^epsilon more probably than the guarantee allows."""
    compared = list(cases(world, attacker))
    asked = epsilons([(a, b) for _, a, b in compared]) or [0.1]
    if attacker == "true-record" and guarantee.bare_rho() is not None:
        asked = asked[-1:]  # each takes a search over all orders
    bounds = posterior_ratios(guarantee, asked, attacker)
    for epsilon, bound in zip(asked, bounds, strict=True):
        factor = F(mpmath.exp(epsilon).__float__()) * (1 + F(1, 10**14))
        for law, numerator, denominator in compared:
            above, below = mass_above(law, numerator, denominator, factor)
            assert above <= bound.upper
            if both:
                assert below <= bound.upper


laws_of = settings(max_examples=25)


def divergences_of(world, attacker):
    orders = ORDERS[1:] if attacker == "true-record" else ORDERS
    return renyi({a: world.divergence(a) for a in orders[:4]})


GUARANTEES = {
    "curve": lambda world, attacker: world.curve(),
    "rho": lambda world, attacker: ny.zcdp(world.rho()),
    "divergences": divergences_of,
}


@pytest.mark.parametrize("kind", GUARANTEES)
@laws_of
@given(worlds(), st.sampled_from(ATTACKERS))
def test_no_world_exceeds_the_bound_of_a_guarantee_that_its_mechanism_has(kind, world, attacker):
    check(world, GUARANTEES[kind](world, attacker), attacker)


@laws_of
@given(worlds(), st.sampled_from(ATTACKERS))
def test_no_world_exceeds_the_bound_of_its_pure_epsilon_on_either_side(world, attacker):
    epsilon = world.pure() * (1 + 1e-12)
    check(world, ny.pure(epsilon), attacker)
    factor = F(math.exp(epsilon)) * (1 + F(1, 10**12))
    for law, numerator, denominator in cases(world, attacker):
        assert mass_above(law, numerator, denominator, factor) == (0, 0)
    assert posterior_ratio(ny.pure(epsilon), epsilon, attacker).upper == 0


@laws_of
@given(worlds())
def test_the_pbdp_curve_bounds_the_true_record_on_both_sides(world):
    check(world, world.curve(), "true-record", both=True)


@laws_of
@given(worlds())
def test_approximate_dp_bounds_posteriors_through_its_own_curve(world):
    start = world.pure() / 2
    delta = world.curve().delta(start).upper
    if delta < 1:
        check(world, ny.approximate(start, delta), "arbitrary-prior")
        ratio = posterior_ratio(ny.approximate(start, delta), start + 1)
        assert ratio.upper <= delta / -math.expm1(-1.0) * (1 + 1e-8)


@settings(max_examples=examples(16))
@given(worlds(), st.floats(0.01, 0.99))
def test_no_independent_world_exceeds_the_chance_of_a_posterior(world, share):
    f = world.curve()
    for _, laws in known_rest(world):
        for first, second in product(laws, laws):
            prior = F(str(round(share, 6)))
            posteriors = [
                prior * a / (prior * a + (1 - prior) * b)
                for a, b in zip(first, second, strict=True)
            ]
            for q in {p for p in posteriors if p > prior}:
                level = F(str(float(q) - 1e-9))
                if not prior <= level < 1:
                    continue
                total = mix([prior, 1 - prior], [first, second])
                result = sum(m for m, p in zip(total, posteriors, strict=True) if p > level)
                assert result <= posterior_chance(f, prior, level).upper


# ---- the formulas -----------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.07, 1, 2.63])
@pytest.mark.parametrize("epsilon", [0.05, 0.9, 2.63, 3, 11])
def test_zcdp_is_the_published_formula(rho, epsilon):
    far = epsilon > rho
    arbitrary = math.exp(-((epsilon - rho) ** 2) / (4 * rho)) if far else 1.0
    known = math.exp(-((epsilon + rho) ** 2) / (4 * rho)) if far else math.exp(-epsilon)
    for attacker, expected in (("arbitrary-prior", arbitrary), ("knows-the-rest", known)):
        bound = posterior_ratio(ny.zcdp(rho), epsilon, attacker)
        assert bound.lower <= bound.upper
        assert bound.upper == pytest.approx(expected, rel=1e-13)
        assert bound.upper >= expected * (1 - 1e-15)


@pytest.mark.parametrize("epsilon", [0.3, 1.5, 4, 9])
def test_renyi_takes_the_best_order(epsilon):
    by_key = {2: 0.3, 4: 0.9, 16: 5.0}
    bound = posterior_ratio(renyi(by_key), epsilon)
    best = min([1.0, *(math.exp((a - 1) * (g - epsilon)) for a, g in by_key.items())])
    assert bound.upper <= best * (1 + 1e-12)
    # Between stated orders the moments lie below their chords, whose least is at a corner.
    assert bound.upper == pytest.approx(best, rel=1e-9)
    known = posterior_ratio(renyi(by_key), epsilon, "knows-the-rest")
    assert known.upper == pytest.approx(math.exp(-epsilon) * best, rel=1e-9)


MECHANISMS = [
    ny.Gaussian(0.8),
    ny.Laplace(1),
    ny.DiscreteGaussian(2, sensitivity=[(1, 1)]) * 3,
    ny.RandomizedResponse(1.2, 4),
    ny.DiscreteLaplace(1.5) + ny.Gaussian(2),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_mechanism_is_bounded_by_its_pbdp_curve(mechanism):
    f = mechanism.tradeoff()
    for epsilon in (0.2, 0.75, 1.1):
        pbdp = f.pbdp(epsilon)
        for attacker, factor in zip(ATTACKERS, (math.exp(-epsilon), 1, 1), strict=True):
            bound = posterior_ratio(mechanism, epsilon, attacker)
            assert bound.lower <= factor * pbdp.upper * (1 + 1e-12)
            assert bound.upper >= factor * pbdp.lower * (1 - 1e-12)
            assert bound.upper == pytest.approx(factor * pbdp.upper, rel=2e-4)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_curve_is_never_worse_than_the_best_order(mechanism):
    f = mechanism.tradeoff()
    for epsilon in (0.5, 1.1, 2.5):
        tail = posterior_ratio(f, epsilon).upper
        for order in (1.3, 2, 3.7, 8):
            moment = math.exp((order - 1) * (f.renyi(order).upper - epsilon))
            assert tail <= moment * (1 + 1e-9)


def test_the_gaussians_tail_is_that_of_two_normal_laws():
    mu, epsilon = mpmath.mpf("1.25"), mpmath.mpf(3)
    z = mpmath.findroot(lambda z: mpmath.log(mpmath.ncdf(z + mu) / mpmath.ncdf(z)) - epsilon, -2.5)
    expected = float(mpmath.ncdf(z + mu))
    bound = posterior_ratio(ny.gdp(1.25), 3)
    assert bound.lower <= expected <= bound.upper
    assert bound.upper == pytest.approx(expected, rel=1e-8)


def test_the_bound_for_who_knows_the_rest_is_nearly_attained():
    null, alternative = [F(6, 10), F(3, 10), F(1, 10)], [F(1, 10), F(3, 10), F(6, 10)]
    f = ny.between(null, alternative)
    rare = F(1, 10**6)
    level, power = F(1, 10), F(6, 10)  # publish whether the third outcome was seen
    ratio = power / (rare * power + (1 - rare) * level)
    epsilon = math.log(ratio) - 1e-9
    probability = rare * power + (1 - rare) * level
    bound = posterior_ratio(f, epsilon, "knows-the-rest")
    assert float(probability) <= bound.upper <= float(probability) * 1.0001


def test_a_mixed_release_adds_divergences_order_by_order():
    mixed = ny.zcdp(0.5) @ ny.gdp(1)
    for attacker in ("knows-the-rest", "arbitrary-prior"):
        expected = posterior_ratio(ny.zcdp(1), 4, attacker).upper
        assert posterior_ratio(mixed, 4, attacker).upper == pytest.approx(expected, rel=1e-8)
    laplace = posterior_ratio(ny.zcdp(0.5) @ ny.Laplace(1).tradeoff(), 3).upper
    assert laplace < posterior_ratio(ny.zcdp(1), 3).upper


def test_a_failure_beside_a_bare_guarantee_is_never_lost():
    f = ny.zcdp(0.1) @ ny.total_variation(0.02)
    for attacker in ("true-record", "arbitrary-prior"):
        assert posterior_ratio(f, 30, attacker).upper >= 0.02


def test_the_ends():
    for attacker in ATTACKERS:
        assert posterior_ratio(ny.perfect(), 0, attacker).upper == 0
        assert posterior_ratio(ny.gdp(1), 0, attacker).upper == 1
    assert posterior_ratio(ny.total_variation(1), 5).upper == 1
    assert posterior_ratio(ny.pure(0.3), 0.3).upper == 0
    assert posterior_ratio(ny.pure(0.3), 0.2999).lower > 0
    far = posterior_ratio(ny.gdp(1), 60)
    assert 0 < far.upper < 1e-300


def test_a_curve_of_posteriors_falls_and_who_knows_less_is_bounded_by_more():
    f = (ny.DiscreteGaussian(3, [(1, 1)]) * 5).tradeoff()
    asked = np.linspace(0, 6, 25)
    curves = {a: [b.upper for b in posterior_ratios(f, asked, a)] for a in ATTACKERS}
    for a, curve in curves.items():
        assert all(x >= y * (1 - 1e-6) for x, y in pairwise(curve))
        assert curve[7] == pytest.approx(posterior_ratio(f, asked[7], a).upper, rel=1e-9)
    for known, true, arbitrary in zip(*curves.values(), strict=True):
        assert known <= true <= arbitrary * (1 + 1e-9)


def test_a_posterior_curve_of_seventy_queries_is_narrow():
    mechanism = ny.DiscreteGaussian(sigma_squared=20, sensitivity=[(1, 1)])
    for i in range(1, 70):
        mechanism += ny.DiscreteGaussian(sigma_squared=20 + i, sensitivity=[(1, 1)])
    bounds = posterior_ratios(mechanism, np.linspace(0.2, 12, 60), "arbitrary-prior")
    assert all(b.upper <= b.lower * 1.001 for b in bounds)


# ---- the conditions matter --------------------------------------------------------------------


def counts(center, sigma_squared, window):
    """The masses of a discrete Gaussian count, in floats."""
    mass = np.exp(-((np.asarray(window) - center) ** 2) / (2 * sigma_squared))
    return mass / mass.sum()


def test_under_a_wrong_prior_the_ratio_may_be_large_every_time():
    """Ninety-nine others are thought to say no, and all say yes: the ratio is nearly 100.

    rho-zCDP promises less than a thousandth to who knows the rest, but this attacker does not, and
    the output is not drawn from his prior. Pure DP keeps its promise even then.
    """
    rho, prior, outputs = 0.05, 0.01, np.arange(40, 160)

    def perceived(ratio):
        return ratio / (prior * ratio + 1 - prior)

    law = np.exp(-rho * (outputs - 100.0) ** 2)  # all hundred say yes, in truth
    ratio = np.exp(rho * (2.0 * outputs - 1))  # of a count of 1 over a count of 0
    happens = law[perceived(ratio) > 50].sum() / law.sum()
    assert happens > 0.999
    assert posterior_ratio(ny.zcdp(rho), math.log(50), "knows-the-rest").upper < 1e-3
    laplace = np.exp(0.5 * np.ones(len(outputs)))  # the ratio of a discrete Laplace count, scale 2
    assert perceived(laplace).max() <= math.exp(0.5)


def test_a_fixed_true_record_is_not_drawn_from_the_prior():
    mu, rare, epsilon, grid = 1.0, 1e-9, 2.0, np.linspace(-12, 14, 200_001)
    ratio = np.exp(mu * grid - mu**2 / 2)
    density = np.exp(-((grid - mu) ** 2) / 2)
    chance = density[ratio / (1 - rare + rare * ratio) > math.exp(epsilon)].sum() / density.sum()
    known = posterior_ratio(ny.gdp(mu), epsilon, "knows-the-rest").upper
    assert chance > known
    assert chance <= posterior_ratio(ny.gdp(mu), epsilon, "true-record").upper


def test_over_the_prior_the_other_side_has_more_probability():
    mu, epsilon, grid = 1.0, 2.0, np.linspace(-12, 14, 200_001)
    ratio = np.exp(mu * grid - mu**2 / 2)
    density = np.exp(-(grid**2) / 2)  # a rare record: the world is that of the others
    below = density[ratio < math.exp(-epsilon)].sum() / density.sum()
    assert below > posterior_ratio(ny.gdp(mu), epsilon, "knows-the-rest").upper
    assert below <= posterior_ratio(ny.gdp(mu), epsilon, "true-record").upper


def test_the_chance_of_a_posterior_needs_others_that_do_not_depend_on_the_statement():
    window = range(-40, 60)
    mechanism = ny.DiscreteGaussian(2)
    no, yes = counts(0, 4, window), counts(11, 4, window)
    prior = 0.1
    posterior = prior * yes / (prior * yes + (1 - prior) * no)
    surprising = (prior * yes + (1 - prior) * no)[posterior > 0.9].sum()
    assert surprising > 0.09
    assert posterior_chance(mechanism, prior, 0.9).upper < 0.001


def test_a_prior_at_the_end_of_the_floats_has_an_answer():
    result = posterior_chance(ny.gdp(1), prior=5e-324, posterior=0.5)
    assert 0 <= result.lower <= result.upper < 1e-300


@pytest.mark.parametrize("number", [1, 3, 10, 33, 65, 129, 257, 513, 700])
def test_a_ratio_that_divergences_do_not_bound_lies_between_the_ends_of_one_number(number):
    between = [F(number) + F(math.ulp(number)) * k / 16 for k in range(17)]
    bounds = posterior_ratios(ny.zcdp(1000), between, attacker="knows-the-rest")
    with mpmath.workdps(60):
        for epsilon, bound in zip(between, bounds, strict=True):
            exact = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
            slack = (6 * number + 8) * 2.0**-53
            assert bound.lower <= exact <= bound.upper
            assert (1 - slack) * bound.upper <= exact <= (1 + slack) * bound.lower


masses = st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(any)
shares = st.fractions(F(1, 10**6), 1 - F(1, 10**6), max_denominator=10**6)


@settings(max_examples=examples(300))
@given(masses, masses, shares, shares)
def test_a_membership_attack_succeeds_as_often_as_the_enumerated_best_one(
    first, second, prior, way
):
    p, q = (tuple(F(w, sum(v)) for w in v) for v in (first, second))

    def best(p, q):
        return sum(max(prior * a, (1 - prior) * b) for a, b in zip(p, q, strict=True))

    both = ny.between(p, q)
    success = membership_success(both, prior)
    assert success.lower <= max(best(p, q), best(q, p)) <= success.upper
    assert success.width < 1e-11
    one = membership_success(Tradeoff(both.alternatives, ordered=True), prior)
    assert one.lower <= best(p, q) <= one.upper
    posterior = prior + way * (1 - prior)  # from the prior up
    for a, b in ((p, q), (q, p)):
        mixed = [(prior * x, prior * x + (1 - prior) * y) for x, y in zip(a, b, strict=True)]
        chance = sum(total for part, total in mixed if part > posterior * total)
        assert chance <= posterior_chance(both, prior, posterior, claim="membership").upper


def test_membership_success_is_another_number_than_the_power_at_that_baseline():
    f = ny.gdp(1)
    assert abs(float(membership_success(f)) - 0.6914624612740131) < 1e-12
    assert abs(1 - f(0.5).lower - 0.8413447460685429) < 1e-12
    run = ny.Gaussian(1).subsample(rate=0.01) * 1000
    for prior in (0.02, 0.5, 0.7):
        levels = [k / 400 for k in range(1, 400)]
        powers = zip(levels, run.tradeoff().powers(levels), strict=True)
        grid = max(prior * b.lower + (1 - prior) * (1 - a) for a, b in powers)
        success = membership_success(run, prior)
        assert max(grid, prior, 1 - prior) <= success.upper <= max(grid, prior, 1 - prior) + 2e-5
    assert membership_success(ny.perfect(), 0.3).upper == math.nextafter(0.7, 1)
    assert membership_success(ny.NonPrivate(), 0.3).lower > 1 - 1e-14


def test_a_posterior_of_membership_needs_no_replacement():
    run = ny.Gaussian(1).subsample(rate=0.01) * 1000
    chance = posterior_chance(run, 0.01, 0.05, claim="membership")
    assert (
        chance.upper <= 0.01 / 0.05 * run.tradeoff().pbdp(math.log(0.05 * 99 / 0.95)).upper * 1.001
    )
    with pytest.raises(ValueError, match="claim='membership'"):
        posterior_chance(run, 0.01, 0.05)
    with pytest.raises(ValueError, match="claim = 'person' must be 'record' or 'membership'"):
        posterior_chance(run, 0.01, 0.05, claim="person")  # pyright: ignore[reportArgumentType]
    for prior in (0, 1, math.nan):
        with pytest.raises(ValueError, match="prior"):
            membership_success(run, prior)
    with pytest.raises(TypeError, match="guarantee"):
        membership_success(0.5)  # pyright: ignore[reportArgumentType]


# ---- posteriors of a test, against counting and against Bayes in odds


proportions = st.fractions(0, 1, max_denominator=1000)
inner = st.fractions(F(1, 1000), F(999, 1000), max_denominator=1000)


def test_positive_predictive_value_counts_cases():
    assert positive_predictive_value(0.25, 0.05, 0.5) == pytest.approx(250 / 300)
    exact = positive_predictive_value(F(1, 4), F(1, 20), F(1, 2))
    assert exact == F(5, 6)
    assert isinstance(exact, F)


@given(inner, inner, inner)
def test_odds_and_probability_agree(power, level, prior):
    right = positive_predictive_value(power, level, prior)
    assert right / (1 - right) == prior / (1 - prior) * power / level


@given(inner, inner, inner, inner)
def test_an_upper_bound_of_the_power_bounds_the_posterior(power, more, level, prior):
    low, high = sorted((power, more))
    assert positive_predictive_value(low, level, prior) <= positive_predictive_value(
        high, level, prior
    )


@given(inner, proportions)
def test_guessing_leaves_the_prior(level, prior):
    assert positive_predictive_value(level, level, prior) == prior


def test_extremes():
    assert positive_predictive_value(1e-200, 0.0, 1e-200) == 1.0
    assert positive_predictive_value(0.5, 0.1, 0.0) == 0.0
    assert positive_predictive_value(0.5, 0.1, 1.0) == 1.0
