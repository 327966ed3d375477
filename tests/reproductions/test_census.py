"""The 2020 Census: every printed figure, each scenario; its page: test_docs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import neyman as ny
from reproductions.census_2020 import dhc
from reproductions.census_2020 import printed_figures as printed
from reproductions.census_2020 import redistricting as census
from reproductions.census_2020.figures import decade, few_digits, nearest
from reproductions.facts import ALLOCATION, PUBLISHED

TABLES = (
    "power_of_pure_dp",
    "power_of_2020_redistricting_release",
    "power_in_scenario_A",
    "redistricting_epsilon_at_delta_1e-10",
    "dhc_f_dp",
)
SCENARIOS = {scenario.name: scenario for scenario in census.SCENARIOS}


@pytest.fixture(scope="module")
def cells():
    return list(printed.cells())


# ---- printed figures --------------------------------------------------------------------------


def test_every_printed_figure_is_ours_but_for_the_misprints_that_the_facts_name(cells):
    wrong = {cell.place: cell for cell in cells if not cell.agrees}
    named = {}
    for key, text in PUBLISHED["power_of_pure_dp"]["misprints"].items():
        level, epsilon = key.split(",")
        named[f"level {level}", f"epsilon {epsilon}"] = [
            float(text.split()[0]),
            float(text.split()[-1]),
        ]
    assert {place: [cell.printed, cell.ours] for place, cell in wrong.items()} == named
    assert all(cell.why for cell in wrong.values())
    assert not [cell.place for cell in cells if cell.agrees and cell.why]


def test_no_printed_figure_is_left_out(cells):
    certificates = PUBLISHED["redistricting_epsilon_at_delta_1e-10"]
    nested = [
        len(v) if isinstance(v, dict) else 1 for k, v in certificates.items() if k != "source"
    ]
    expected = [15, 9, 9, sum(nested), 2 + 2 + 2]
    assert sum(nested) == 16
    assert [sum(cell.table == table for cell in cells) for table in TABLES] == expected


def test_the_certificates_are_named_as_the_facts_name_them():
    facts = PUBLISHED["redistricting_epsilon_at_delta_1e-10"]
    for certificate in census.certificates():
        result = facts
        for key in certificate.name.split("."):
            result = result[key]
        assert isinstance(result, float)


# ---- the allocation ---------------------------------------------------------------------------


def test_the_budgets_are_spent_to_the_last_fraction():
    for budget in (census.ROUNDED, census.PRODUCTION):
        asked = census.queries(budget)
        assert len(asked) == 71
        assert sum(q.rho for q in asked if q.persons) == budget.persons
        assert sum(q.rho for q in asked if not q.persons) == budget.housing
        assert census.release(asked).rho() == budget.persons + budget.housing


def test_the_exact_budgets_of_production_are_those_of_its_global_scales():
    scales = ALLOCATION["rho"]
    assert census.PRODUCTION.persons == Fraction(scales["global_scale_persons"]) ** -2
    assert census.PRODUCTION.housing == Fraction(scales["global_scale_units"]) ** -2


def moved(attributes, within):
    """The queries whose cell differs between two records, by tabulating both."""
    depth = census.PLACES.index(within) if within else len(census.PLACES) - 1
    one = {"place": (0,) * 6, **dict.fromkeys(census.ATTRIBUTES, 0)}
    other = dict(one, place=(0,) * (depth + 1) + (1,) * (5 - depth))
    other.update({a: 1 for a in attributes if a in census.ATTRIBUTES})

    def cell(record, query):
        where = record["place"][: census.PLACES.index(query.place) + 1]
        return (*where, *(record[a] for a in sorted(query.attributes)))

    return {q for q in census.queries() if cell(one, q) != cell(other, q)}


@pytest.mark.parametrize("size", range(5))
def test_a_concern_has_exactly_the_queries_that_tell_two_such_records_apart(size):
    for personal in itertools.combinations(census.ATTRIBUTES, size):
        for within in (None, *census.PLACES[:-1]):
            attributes = (*personal, "block") if within else personal
            if attributes:
                result = census.concerning(*attributes, within=within)
                assert set(result) == moved(attributes, within), (attributes, within)


def test_the_scenarios_have_the_sums_of_rho_of_their_queries():
    persons, housing = Fraction("2.56"), Fraction("0.07")
    block = persons * Fraction(165, 4099) + housing * Fraction(99, 820)
    group = persons * Fraction(1256, 4099) + housing * Fraction(1759, 4100)
    assert SCENARIOS["A"].release().rho() == block
    assert SCENARIOS["B"].release().rho() == block + group
    known = {
        "all": 2.63,
        "A": 0.111501,
        "B": 0.925958,
        "C": 1.010290,
        "D": 1.002151,
        "E": 1.378684,
        "F": 0.611591,
        "G": 1.026511,
        "H": 1.025785,
    }
    assert {n: round(float(s.release().rho()), 6) for n, s in SCENARIOS.items()} == known


@pytest.mark.parametrize(
    ("attributes", "within", "says"),
    [
        (("income",), None, "race, hhgq|race.*ethnicity"),
        (("block",), None, "us, state, county, tract, block_group"),
        (("block",), "village", "us, state, county, tract, block_group"),
        (("tract",), "block", "us, state, county"),
        (("us",), "us", "within nothing"),
        (("race",), "tract", "needs a place"),
        ((), None, "at least one"),
        (("block", "tract"), "us", "one place at most"),
    ],
)
def test_a_concern_that_makes_no_sense_is_told_what_there_is(attributes, within, says):
    with pytest.raises(ValueError, match=says):
        census.concerning(*attributes, within=within)


# ---- powers -----------------------------------------------------------------------------------


def best_test(sigma_squared, levels):
    """Power of the likelihood ratio test where both of two cells move by one, by enumeration."""
    x = np.arange(-60, 61)
    mass = np.exp(-(x**2) / (2 * sigma_squared))
    mass /= mass.sum()
    total = np.convolve(mass, mass)  # the ratio depends on the sum of both cells alone
    at = np.arange(-120, 121)
    null, other = total, total * np.exp((2 * at - 2) / (2 * sigma_squared))
    alarm, result = np.cumsum(null[::-1]), np.cumsum(other[::-1])
    return np.interp(levels, alarm, result)


def test_where_one_query_takes_all_the_exact_powers_are_not_the_gaussian_ones():
    mechanism = ny.DiscreteGaussian(sigma_squared=Fraction(100, 263), sensitivity=[(1, 1)])
    result = census.Powers.of(mechanism)
    assert [round(b.upper, 4) for b in result.exact] == [0.3834, 0.7533, 0.8033]
    assert [round(b.lower, 4) for b in result.exact] == [0.3834, 0.7533, 0.8033]
    assert [round(b.upper, 4) for b in result.gaussian] == [0.4869, 0.7417, 0.8442]
    by_hand = best_test(100 / 263, census.TESTED)
    assert np.allclose([b.upper for b in result.exact], by_hand, rtol=1e-9)


def test_the_exact_power_of_every_scenario_is_certified_and_within_what_its_rho_allows():
    for scenario in census.SCENARIOS:
        result = census.Powers.of(scenario.release())
        for exact, normal, most in zip(result.exact, result.gaussian, result.zcdp, strict=True):
            assert exact.width < 1e-6
            assert abs(exact.upper - normal.upper) < 1e-6
            assert exact.upper < most.lower


def test_points_of_the_true_record_are_those_of_pbdp():
    curve = SCENARIOS["F"].release().tradeoff()
    for epsilon, delta in census.true_record(curve, [1e-9, 1e-4, 0.02, 0.4]):
        bound = curve.pbdp(epsilon)
        assert bound.lower <= delta <= bound.upper * (1 + 1e-4)


# ---- the characteristics ----------------------------------------------------------------------


def test_the_national_level_is_worth_less_partly_because_the_baseline_was_loose():
    us = dhc.ALLOCATIONS["march_2022"].levels[0].epsilons
    assert us.exact.upper < us.optimal.lower <= us.canonne_kamath_steinke.upper + 1e-12
    assert us.canonne_kamath_steinke.upper < us.bun_steinke.lower
    assert round(us.optimal.upper, 2) == 2.42
    assert 0.6 < us.by_conversion < 0.7
    assert round(us.two_cells.lower, 2) == round(us.two_cells.upper, 2) == 3.35


def test_the_shares_of_the_eight_levels_sum_to_one():
    for allocation in dhc.ALLOCATIONS.values():
        assert len(allocation.levels) == 8
        assert sum(level.share for level in allocation.levels) == 1
        assert sum(level.rho for level in allocation.levels) == allocation.rho


@pytest.mark.parametrize(("when", "queries"), [("march_2022", 72), ("august_2022", 80)])
def test_the_release_of_all_levels_costs_more_than_any_level_and_less_than_its_rho(when, queries):
    allocation = dhc.ALLOCATIONS[when]
    assert allocation.count == queries
    total = allocation.epsilons
    assert total.exact.width < 1e-6
    assert max(level.epsilons.exact.upper for level in allocation.levels) < total.exact.lower
    assert total.exact.upper < total.optimal.lower <= total.canonne_kamath_steinke.upper
    assert total.optimal.width < 1e-6
    assert total.canonne_kamath_steinke.upper < total.bun_steinke.lower
    # Noise this wide is close to a Gaussian, whose composition has a closed form.
    normal = ny.gdp(math.sqrt(2 * allocation.rho)).epsilon(dhc.DELTA)
    assert total.exact.upper == pytest.approx(normal.upper, rel=1e-4)


def test_the_noise_that_is_saved_can_be_saved_and_no_more():
    march = dhc.ALLOCATIONS["march_2022"]
    for noise in (march.levels[0], march):
        epsilon = noise.epsilons.bun_steinke.upper
        left = Fraction(1 - noise.noise_saved(epsilon) / 100)
        enough = noise.release(noise=left * Fraction(1_000_001, 1_000_000))
        less = noise.release(noise=left * Fraction(999, 1000))
        assert enough.tradeoff().delta(epsilon).upper <= dhc.DELTA
        assert less.tradeoff().delta(epsilon).lower > dhc.DELTA


# ---- the page ---------------------------------------------------------------------------------


def test_what_is_shown_is_never_below_the_truth_where_its_ends_differ():
    assert nearest(ny.Bound(0.12346, 0.12354), 4) == "0.1235"
    assert nearest(ny.Bound(0.12349, 0.12356), 4) == "0.1236"
    assert few_digits(0.07001) == "0.071"
    assert few_digits(0.35) == "0.35"
    assert few_digits(1.01e-7) == "1.1×10⁻⁷"
    assert few_digits(9.99e-12) == "1.0×10⁻¹¹"
    assert few_digits(0.0) == "0"
    assert decade(2.5e-7) == "10⁻⁶"
    assert decade(0.3) == "1"
