"""k-anonymity, l-diversity and t-closeness of small tables, and the attacks on them."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.linkage.definitions import anonymity, closeness, difference, diversity

ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=12)


@settings(max_examples=60)
@given(ROWS)
def test_each_property_is_what_its_definition_says_of_every_group(rows):
    """By counting again: sizes, distinct values, and the largest gap over all sets of values."""
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
    """Whatever the tables are, subtraction recovers the record with certainty."""
    assert difference(rows, [*rows, newcomer]) == {newcomer[:1]: Counter([newcomer[1]])}


def test_a_table_without_rows_is_refused():
    """A property of no group has no value."""
    with pytest.raises(ValueError, match="at least one row"):
        anonymity([])
