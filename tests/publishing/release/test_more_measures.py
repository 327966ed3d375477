"""Ratios, deviations, distinct values, medians, and extremes: near the truth, and verified."""

import random
import statistics
from fractions import Fraction
from typing import get_args

import pyarrow as pa
import pytest

from neyman import Ledger
from neyman.display import page
from neyman.publishing import MEASURES, Measure, Plan, PlanError, errors, verify
from plans import release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

PAID = {"column": "paid", "clip": [0, 10]}
EDGES = {"column": "paid", "edges": list(range(11))}
PLAN = {
    "schema": 2, "name": "shop", "dataset": "shop@1", "table": "sales",
    "unit": {"protects": "customer", "neighboring": "add-remove"},
    "columns": {
        "shop": {"keys": ["north", "south"]}, "product": {"discover": True},
        "size": {"keys": [1, 2, 3, 4]}, "paid": {"decimals": 2, "parse": True},
        "items": {"integer": True}, "note": {"type": "text"},
    },
    "budget": {"zcdp": 50},
    "query": [
        {"name": "price", "measure": "ratio", **PAID, "over": "items", "clip_over": [1, 5]},
        {"name": "spread", "measure": "standard_deviation", **PAID, "by": ["shop"]},
        {"name": "products", "measure": "distinct", "column": "product", "by": ["shop"]},
        {"name": "sizes", "measure": "distinct", "column": "size"},
        {"name": "middle", "measure": "median", **EDGES, "by": ["shop"]},
        {"name": "least", "measure": "min", **EDGES},
        {"name": "most", "measure": "max", **EDGES},
    ],
}  # fmt: skip
PLAN["query"] = [{**query, "share": "1/7"} for query in PLAN["query"]]


def a_plan(**changes):
    first = {**PLAN["query"][0], "share": 1, **changes}
    return {**PLAN, "query": [{name: value for name, value in first.items() if value is not None}]}


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    place = tmp_path_factory.mktemp("shop")
    draws = random.Random(1)
    rows = {
        "shop": [("north", "south")[i % 2] for i in range(6000)],
        "product": [f"{i % 2}-{i % 40}" if i % 7 else None for i in range(6000)],
        "size": [(1, 2, 4, 9)[i % 4] for i in range(6000)],
        "paid": [f"{draws.randrange(1000) / 100:.2f}" for _ in range(6000)],
        "items": [1 + i % 5 for i in range(6000)],
    }
    Ledger(place / "ledger.db").create(
        "shop@1", protects="customer", neighboring="add-remove", rows=1, cap=1000
    )
    out = release(
        Plan.from_dict(PLAN), pa.table(rows), place / "ledger.db", place / "out",
        pages={"report.html": page},
    )  # fmt: skip
    return rows, out


def test_each_measure_is_near_that_of_the_data(released):
    rows, out = released
    paid = [float(x) for x in rows["paid"]]
    (price,) = out.tables["price.all"].to_pylist()
    assert price["value"] == pytest.approx(sum(paid) / sum(rows["items"]), rel=0.02)
    assert price["lower"] < price["value"] < price["upper"]
    for row in out.tables["spread.all"].to_pylist():
        own = [x for x, shop in zip(paid, rows["shop"], strict=True) if shop == row["shop"]]
        assert row["value"] == pytest.approx(statistics.pstdev(own), rel=0.05)
        assert row["lower"] < row["value"] < row["upper"]
    for row in out.tables["products.all"].to_pylist():
        assert abs(row["value"] - 20) < 8
    (sizes,) = out.tables["sizes.all"].to_pylist()
    assert abs(sizes["value"] - 3) < 8
    middle = out.tables["middle.all"]
    assert middle.column_names == ["shop", "value", "standard_error", "lower", "upper"]
    assert all(abs(row["value"] - 5) < 1 for row in middle.to_pylist())
    (least,), (most,) = (out.tables[f"{name}.all"].to_pylist() for name in ("least", "most"))
    assert (least["value"], most["value"]) < (1, 10)
    assert most["value"] > 9


def test_the_release_verifies_with_its_report(released):
    _, out = released
    assert [c for c in verify(out.folder, {"report.html": page}) if not c.ok] == []
    parts = [(m["query"], m["measure"]) for m in out.receipt["mechanisms"]]
    assert ("price", "over") in parts
    assert ("products", "distinct") in parts
    assert Plan.from_dict(out.receipt["plan"]).hash == Plan.from_dict(PLAN).hash


def test_the_errors_that_are_computed_beforehand_are_met(released):
    _, out = released
    by_query = {error.query: error for error in errors(Plan.from_dict(PLAN), rows=(3000, 6000))}
    for name, number in (("price", 1), ("spread", 0)):
        _, most, half = by_query[name].by_rows[number]
        for row in out.tables[f"{name}.all"].to_pylist():
            assert 0 < row["standard_error"] <= 1.1 * most
            assert row["upper"] - row["lower"] <= 2.2 * half
    assert by_query["middle"].by_rank
    assert by_query["products"].standard_error is not None


@pytest.mark.parametrize(("changes", "words"), [
    ({"over": None}, "query[0].over (of query 'price') is missing; a ratio needs one"),
    ({"over": "shop"}, "is not a column with integer = true or decimals"),
    ({"clip_over": None}, "needs clip_over = [low, high]"),
    ({"clip_over": [-1, 5]}, "the low end must be at least 0, as the sum divides"),
    ({"clip_over": [5, 5]}, "the low end must be below the high end"),
    ({"clip_over": [0, "1.5"]}, "must be whole numbers, as the column 'items' has"),
    ({"clip_over": [0, 2**40]}, "the largest value, 1099511627776, times"),
    ({"measure": "sum"}, "query[0].over (of query 'price') = 'items': a sum takes none"),
    ({"measure": "distinct"}, "clip (of query 'price') = [0, 10]: a distinct takes none"),
    (
        {"measure": "distinct", "clip": None, "over": None, "clip_over": None},
        "is not a column with keys or discover = true",
    ),
    ({"measure": "medain"}, "did you mean 'median'?"),
    ({"over": "note"}, "is not a column with integer = true or decimals"),
    ({"by": ["note"]}, "by[0] (of query 'price') = 'note': is not a column with keys"),
])  # fmt: skip
def test_what_does_not_fit_a_measure_is_refused(changes, words):
    with pytest.raises(PlanError) as error:
        Plan.from_dict(a_plan(**changes))
    assert words in str(error.value)


def test_a_ratio_needs_no_more_than_its_sums():
    above, over = Plan.from_dict(a_plan()).entries()
    assert (above.measure, above.shifts, above.share) == ("sum", ((1000,),), Fraction(1, 2))
    assert (over.measure, over.shifts, over.share) == ("over", ((5,),), Fraction(1, 2))


def test_each_measure_has_a_class():
    assert tuple(sorted(MEASURES)) == tuple(sorted(get_args(Measure)))
