"""Real tables that packages ship: what a release publishes is what plain SQL says."""

from __future__ import annotations

import os

import pytest
from shelf_comparison import SOURCES, Place, differences, groupings, plan_of, released
from shelf_tables import SHELF

import neyman as ny

EVERY = bool(os.environ.get("NEYMAN_SHELF"))
"""Whether all pairs of a table and a source are compared, with all rows (make test-shelf)."""
MOST = None if EVERY else 2_000
PAIRS = [
    (name, source)
    for name in SHELF
    for source in SOURCES
    if EVERY or source == "parquet" or name in ("penguins", "weather")
]


@pytest.fixture
def place(tmp_path, request):
    return Place(tmp_path, lambda: request.getfixturevalue("postgres"))


@pytest.mark.parametrize(("name", "source"), PAIRS)
def test_a_release_publishes_what_sql_says(name, source, place):
    compare(SHELF[name], source, place, "duckdb")


@pytest.mark.usefixtures("spark_running")
@pytest.mark.parametrize("name", ["penguins", "starwars", "weather"] if EVERY else ["penguins"])
def test_a_release_on_spark_publishes_what_sql_says(name, place):
    compare(SHELF[name], "parquet", place, "spark")


def compare(table, source, place, engine):
    frame = table.frame(MOST)
    for by in groupings(table)[: None if EVERY else 1]:
        plan = plan_of(table, by)
        published = released(table, plan, source, place, frame, engine)
        assert differences(table, plan, published, place.arrow(frame)) == []


def test_the_comparison_tells_a_plan_that_replaces_a_missing_number_from_sql(place):
    table = SHELF["weather"]
    frame, parts = table.frame(MOST), plan_of(table, ("origin",)).canonical()
    columns = {**parts["columns"]}
    for name, (decimals, _, _) in table.numbers.items():
        columns[name] = {"decimals": decimals} if decimals else {"integer": True}
        columns[name] |= {"unknown": 0}
    plan = ny.Plan.from_dict({**parts, "columns": columns})
    published = released(table, plan, "parquet", place, frame, "duckdb")
    lines = differences(table, plan, published, place.arrow(frame))
    assert any("wind_gust" in line for line in lines)
