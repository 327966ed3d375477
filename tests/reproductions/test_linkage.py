"""Linkage: two k-anonymous tables give people away; the release keeps what it promised."""

import math
import re
from collections import Counter
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.publishing import Plan
from reproductions.linkage import attack as linkage
from reproductions.linkage.definitions import anonymity, closeness, difference, diversity
from seeded import Seeded

PAGE = Path(__file__).parents[2] / "docs" / "linkage.md"


@pytest.fixture(scope="module")
def counts():
    return linkage.people()


@pytest.fixture(scope="module")
def plan():
    return linkage.demo_plan()


def masses(sigma_squared, half=60):
    """The noise's probabilities on -half, ..., half, by their definition."""
    weights = [math.exp(-x * x / (2 * sigma_squared)) for x in range(-half, half + 1)]
    return {x: w / math.fsum(weights) for x, w in zip(range(-half, half + 1), weights, strict=True)}


def noise_of(plan):
    return float({(e.query, e.level): s for e, s in plan.calibrated()}["race", "county"])


def test_each_table_alone_keeps_what_k_anonymity_promises(counts):
    for table in (linkage.merged_races(counts), linkage.merged_counties(counts)):
        assert min(group.people for group in table) >= linkage.K
        assert sum(group.people for group in table) == sum(counts.values())
        cells = [cell for group in table for cell in group.cells]
        assert sorted(cells) == sorted(counts)
        assert linkage.subtracted(counts, table).recovered == 0


def test_both_together_do_not(counts):
    tables = (linkage.merged_races(counts), linkage.merged_counties(counts))
    result = linkage.subtracted(counts, *tables)
    assert result == linkage.Subtracted(hidden=51, recovered=25, right=25, exposed=61, alone=4)
    page = " ".join(PAGE.read_text().split())
    for said in ("25 of the 51", "61 people", "4 of them alone"):
        assert said in page


RACES = ("a", "b", "c")
SMALL = st.lists(st.integers(0, 12), min_size=12, max_size=12)


@settings(max_examples=200)
@given(SMALL, st.integers(2, 6))
def test_whatever_follows_by_subtraction_is_true(numbers, k):
    cells = [(s, c, r) for s in "XY" for c in "12" for r in RACES]
    small = dict(zip(cells, numbers, strict=True))
    tables = linkage.merged_races(small, k), linkage.merged_counties(small, k)
    for table, family in zip(tables, ((0, 1), (0, 2)), strict=True):
        for group in table:
            (name,) = {tuple(cell[i] for i in family) for cell in group.cells}
            total = sum(small[c] for c in cells if tuple(c[i] for i in family) == name)
            assert group.people >= min(k, total)
    known = linkage.differenced(*tables)
    assert all(small[cell] == count for cell, count in known.items())
    result = linkage.subtracted(small, *tables, k=k)
    assert result.right == result.recovered <= result.hidden


def test_who_knows_all_the_rest_reads_a_record_off_one_k_anonymous_table(counts):
    result = linkage.claims_against_tables(counts)
    assert (result.tried, result.level, result.power) == (46, 0.0, 1.0)


def test_the_attack_on_the_release_is_the_best_one_and_the_promise_holds_exactly(plan):
    one, total = masses(noise_of(plan)), {0: 1.0}
    for _ in range(6):
        summed: dict[int, float] = {}
        for x, p in total.items():
            for y, q in one.items():
                summed[x + y] = summed.get(x + y, 0.0) + p * q
        total = summed
    result = linkage.claims_against_release(plan, Fraction(1, 20), 10, Seeded(1))
    levels = {t: math.fsum(p for x, p in total.items() if x >= t) for t in range(40)}
    threshold = min(t for t, level in levels.items() if level <= 0.05)
    assert result.exact_level == pytest.approx(levels[threshold], rel=1e-9)
    power = math.fsum(p for x, p in total.items() if x + 6 >= threshold)
    assert result.promised == pytest.approx(power, rel=1e-9)
    assert result.promised < plan.concerning("race").tradeoff().power(0.05).upper < 0.25


def test_measured_success_is_what_the_guarantee_says(plan):
    """Level and power over 400,000 releases each, within a deviation of chance 1e-6 (Hoeffding)."""
    releases = 400_000
    result = linkage.claims_against_release(plan, Fraction(1, 20), releases, Seeded(2))
    slack = math.sqrt(math.log(4 / 1e-6) / (2 * releases))
    assert abs(result.level - result.exact_level) < slack
    assert result.promised is not None
    assert abs(result.power - result.promised) < slack
    assert result.tried == releases


def test_small_counts_are_read_no_better_than_guessed(plan, counts):
    """The share of right readings is its exact expectation, below the commonest count's share.

    Readings of one release are independent: 2,000 * 51 of them, chance of a false alarm 1e-6.
    """
    result = linkage.readings_of_release(plan, counts, 2_000, Seeded(3))
    one = masses(noise_of(plan))
    at_end, inside = math.fsum(p for x, p in one.items() if x <= 0), one[0]
    truth = [counts[cell] for cell in linkage.small_cells(counts)]
    expected = sum(at_end if n in (0, linkage.K - 1) else inside for n in truth) / len(truth)
    slack = math.sqrt(math.log(2 / 1e-6) / (2 * 2_000 * len(truth)))
    assert abs(result.right - expected) < slack
    assert expected < result.guessing == 14 / 51


def test_a_plan_whose_races_are_noised_unequally_is_refused(plan):
    data = plan.canonical()
    data["query"][1]["split"] = {"region": "1/2", "state": "1/4", "county": "1/4"}
    with pytest.raises(ValueError, match="one and the same noise"):
        linkage.claims_against_release(Plan.from_dict(data), Fraction(1, 20), 10)


def test_the_page_has_the_promise_of_the_plan(plan):
    page = PAGE.read_text()
    result = linkage.claims_against_release(plan, Fraction(1, 20), 1, Seeded(4))
    assert f"{result.promised:.2%}" in page
    assert f"{result.exact_level:.2%}" in page
    assert re.search(rf"guessing the commonest: {14 / 51:.1%}", page)


# ---- k-anonymity, l-diversity, and t-closeness of small tables


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=12)


@settings(max_examples=60)
@given(ROWS)
def test_each_property_is_what_its_definition_says_of_every_group(rows):
    towns = {town for town, _ in rows}
    inside = {town: [value for place, value in rows if place == town] for town in towns}
    assert anonymity(rows) == min(map(len, inside.values()))
    assert diversity(rows) == min(len(set(values)) for values in inside.values())

    def share(values, event):
        return Fraction(sum(v in event for v in values), len(values))

    everyone = [value for _, value in rows]
    events = [set(e) for n in range(4) for e in combinations("xyz", n)]
    gaps = [abs(share(v, e) - share(everyone, e)) for v in inside.values() for e in events]
    assert closeness(rows) == max(gaps)


@settings(max_examples=30)
@given(ROWS, st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")))
def test_the_difference_of_two_tables_is_the_newcomer(rows, newcomer):
    assert difference(rows, [*rows, newcomer]) == {newcomer[:1]: Counter([newcomer[1]])}


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        anonymity([])
