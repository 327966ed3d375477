"""A default record, or none, in place of a person's: enumerated worlds never exceed a bound."""

import math
from fractions import Fraction as F
from itertools import product

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff, posterior_ratio
from neyman.accounting import posterior_distance, posterior_ratios

laws_of = settings(max_examples=3)


@st.composite
def worlds(draw):
    """A joint prior of record and rest, distributions of the output, and distributions without the
    record.
    """
    records, rests, outputs = (draw(st.integers(*x)) for x in ((2, 3), (1, 2), (2, 3)))
    weight = st.sampled_from([1, 1, 2, 5, 30, 2000])

    def law(n):
        total = draw(st.lists(weight, min_size=n, max_size=n))
        return tuple(F(x, sum(total)) for x in total)

    prior = law(records * rests)
    prior = dict(zip(product(range(records), range(rests)), prior, strict=True))
    without = {s: law(outputs) for s in range(rests)}
    return prior, {key: law(outputs) for key in prior}, without


def curve(actual, without):
    """The curve of the pairs of a record and the default record, in both orders."""
    pairs = [(law, without[s]) for (_, s), law in actual.items()]
    both = [
        c for p, q in pairs for f in (ny.between(p, q), ny.between(q, p)) for c in f.alternatives
    ]
    return Tradeoff.of(both)


def marginal(prior, laws):
    """The distribution of the output."""
    outputs = range(len(next(iter(laws.values()))))
    return [sum(prior[key] * laws[key][t] for key in prior) for t in outputs]


def ratios(prior, actual, other):
    """(probability, ratio of the posteriors of the true record) of every record and output."""
    before, after = marginal(prior, actual), marginal(prior, other)
    for r in {r for r, _ in prior}:
        own = {key: p if key[0] == r else F(0) for key, p in prior.items()}
        one, two = marginal(own, actual), marginal(own, other)
        for t, (a, b) in enumerate(zip(one, two, strict=True)):
            yield a, (a / before[t]) / (b / after[t])


@laws_of
@given(worlds())
def test_no_world_exceeds_the_bound_with_a_default_record(world):
    prior, actual, without = world
    other = {(r, s): without[s] for r, s in prior}
    cases = list(ratios(prior, actual, other))
    asked = sorted({max(round(math.log(x), 6) - 1e-6, 0.0) for _, x in cases if x > 1})[-2:] or [1]
    f = curve(actual, without)
    bounds = posterior_ratios(f, asked, "arbitrary-prior", "default-record")
    for epsilon, bound in zip(asked, bounds, strict=True):
        factor = F(math.exp(epsilon)) * (1 + F(1, 10**14))
        assert sum(p for p, x in cases if x > factor) <= bound.upper


@laws_of
@given(worlds(), st.sampled_from([F(1, 100), F(1, 10), F(1, 2)]))
def test_no_world_exceeds_the_bound_on_the_distance_of_posteriors(world, chance):
    prior, actual, without = world
    other = {(r, s): without[s] for r, s in prior}
    before, after = marginal(prior, actual), marginal(prior, other)
    most = posterior_distance(curve(actual, without), chance).upper
    farther = F(0)
    for t, mass in enumerate(before):
        gaps = (p * abs(actual[k][t] / mass - other[k][t] / after[t]) for k, p in prior.items())
        if sum(gaps) / 2 > most:
            farther += mass
    assert farther <= chance


def test_twice_the_pure_epsilon_is_reached_with_a_default_record():
    """A rare record whose rest is unlike all others [PO-11]: the factor is near 9, not 3."""
    rare = F(1, 10**6)
    prior = {(0, 0): rare, (1, 1): 1 - rare}  # e^epsilon = 3
    actual = {(0, 0): (F(3, 4), F(1, 4)), (1, 1): (F(1, 4), F(3, 4))}
    other = {(0, 0): (F(1, 4), F(3, 4)), (1, 1): (F(3, 4), F(1, 4))}
    worst = max(x for _, x in ratios(prior, actual, other))
    assert 9 * (1 - F(1, 10**4)) < worst <= 9
    f = ny.pure(math.nextafter(math.log(3), 2))
    assert posterior_ratio(f, 2.197, counterfactual="default-record").upper >= rare * F(3, 4)
    assert posterior_ratio(f, 2.198, counterfactual="default-record").upper == 0


@pytest.mark.parametrize("attacker", ["knows-the-rest", "true-record"])
def test_a_default_record_changes_nothing_for_who_knows_all_others(attacker):
    f = ny.gdp(1)
    usual = posterior_ratio(f, 2, attacker)
    assert posterior_ratio(f, 2, attacker, "default-record") == usual
    dropped = posterior_ratio(f, 2, attacker, "no-record")
    assert dropped.upper == posterior_ratio(ny.gdp(2), 2, attacker).upper > usual.upper


def test_a_pure_guarantee_is_exhausted_at_once_or_twice_the_epsilon():
    pure = ny.pure(1)
    for attacker in ("knows-the-rest", "true-record", "arbitrary-prior"):
        for world in ("predicted-record", "default-record", "no-record"):
            doubled = world == "no-record" or (world, attacker) == (
                "default-record",
                "arbitrary-prior",
            )
            last, end = posterior_ratios(
                pure, [1.999, 2] if doubled else [0.999, 1], attacker, world
            )
            assert last.upper > 0 == end.upper
    assert posterior_ratio(pure, 1.5, counterfactual="no-record").lower == 0


def test_pure_privacy_bounds_the_distance_at_every_output():
    for chance in (F(1, 10**9), 1):
        assert posterior_distance(ny.pure(1), chance).upper == pytest.approx(math.tanh(0.5))
    assert posterior_distance(ny.perfect(), F(1, 10)).upper == 0


def test_the_neighbors_must_fit_the_counterfactual():
    sampled = ny.Gaussian(1).subsample(rate=0.1)
    with pytest.raises(ValueError, match="counterfactual='no-record'"):
        posterior_ratio(sampled, 1, counterfactual="default-record")
    with pytest.raises(ValueError, match="counterfactual='default-record'"):
        posterior_ratio(ny.RandomizedResponse(1), 1, counterfactual="no-record")
    with pytest.raises(ValueError, match="must be one of 'predicted-record'"):
        posterior_ratio(ny.gdp(1), 1, counterfactual="me")  # type: ignore[arg-type]
    for chance in (0, 2):
        with pytest.raises(ValueError, match="chance"):
            posterior_distance(ny.gdp(1), chance)
    assert posterior_ratio(sampled, 4, counterfactual="no-record").upper < 1


@pytest.mark.parametrize(
    ("f", "most"), [(ny.zcdp("0.1"), math.inf), (ny.zcdp(2), math.inf), (ny.pure("1/3"), F(1, 3))]
)
def test_two_factors_are_at_least_the_least_exact_sum_of_the_splits(f, most):
    epsilons = [F(1, 7), F(5, 9), F(2), F(9, 2), F(13), F(40)]
    bounds = posterior_ratios(f, epsilons, "arbitrary-prior", "default-record")
    for epsilon, bound in zip(epsilons, bounds, strict=True):
        heights = [epsilon * k / 24 for k in range(25)] + ([most] if most < epsilon else [])
        asked = [*heights, *(epsilon - h for h in heights)]
        tails = posterior_ratios(f, asked, "arbitrary-prior")
        with mpmath.workdps(60):
            exact = min(
                mpmath.mpf(one.upper)
                + mpmath.exp(-mpmath.mpf(rest.numerator) / rest.denominator) * other.upper
                for one, rest, other in zip(
                    tails[: len(heights)], asked[len(heights) :], tails[len(heights) :], strict=True
                )
            )
        assert bound.lower == 0
        assert min(exact, 1) <= bound.upper <= exact * (1 + 1e-12) + 1e-322


def test_a_distance_whose_best_height_is_the_largest_one_is_answered():
    assert math.tanh(12.5) <= posterior_distance(ny.pure(25), chance=1).upper < 1


def test_a_distance_with_a_tiny_delta_is_near_that_of_the_pure_epsilon():
    upper = posterior_distance(ny.approximate("0.2", 1e-15), chance=0.05).upper
    assert math.tanh(0.1) <= upper < 1.3 * math.tanh(0.1)


def test_a_distance_is_that_of_the_best_height():
    """[PO-14]: not less than the least of its formula, which leaves out few heights."""
    f, chance = ny.approximate("0.2", "1e-4"), 0.05

    def formula(h):
        tail = posterior_ratio(f, h, attacker="arbitrary-prior").upper
        rare = (1 + math.exp(-h)) * (1 + math.exp(h / 2)) ** 2 * tail / (chance - tail)
        return math.tanh(h / 2) + rare if tail < chance else 1.0

    least = min(formula(h / 100) for h in range(20, 80, 2))
    assert least * 0.995 < posterior_distance(f, chance).upper < least * 1.005
