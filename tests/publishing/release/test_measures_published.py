"""Every measure as it is published: near the truth, with its keys, and it verifies."""

import random
import shutil
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from forging import rewrite
from neyman import Ledger
from neyman.display import page
from neyman.publishing import Plan, create_key, errors, verify
from plans import release

# Ibis still calls DuckDB by a name that newer versions of DuckDB announce to go away.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

PLAN = {
    "schema": 2, "name": "shop", "dataset": "shop@1", "table": "sales",
    "unit": {"protects": "customer", "neighboring": "add-remove", "rows": 1},
    "columns": {
        "shop": {"keys": ["north", "south"]}, "product": {"discover": True},
        "price": {"decimals": 2},
    },
    "budget": {"zcdp": "20", "delta": "1e-3"},
    "query": [
        {"name": "buyers", "measure": "units", "by": ["shop"], "share": "1/8"},
        {"name": "sales", "measure": "sum", "column": "price", "clip": [0, "10.50"],
         "by": ["shop"], "share": "1/8"},
        {"name": "spread", "measure": "variance", "column": "price", "clip": [0, 10],
         "share": "1/8"},
        {"name": "usual", "measure": "mean", "column": "price", "clip": ["2.50", "12.51"],
         "by": ["shop"], "share": "1/8"},
        {"name": "prices", "measure": "histogram", "column": "price", "edges": [0, "2.50", 5, 10],
         "by": ["shop"], "share": "1/8"},
        {"name": "typical", "measure": "quantiles", "column": "price",
         "edges": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "quantiles": ["1/4", "1/2"], "by": ["shop"],
         "share": "1/8"},
        {"name": "products", "measure": "units", "by": ["product", "shop"], "delta": "1e-5",
         "share": "1/4"},
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=["discrete-gaussian", "rounded-gaussian"])
def released(tmp_path_factory, request):
    place = tmp_path_factory.mktemp("shop")
    draws = random.Random(1)
    rows = [
        {
            "customer": i // 2,
            "shop": ("north", "south")[i // 2 % 2],
            "product": ("=tea", "coffee", "Öl")[i // 2 % 3] if i else "a secret",
            "price": Decimal(draws.randrange(1000)).scaleb(-2),
        }
        for i in range(6000)
    ]
    table = pa.Table.from_pylist(
        rows,
        pa.schema([
            ("customer", pa.int64()), ("shop", pa.string()), ("product", pa.string()),
            ("price", pa.decimal128(9, 2)),
        ]),
    )  # fmt: skip
    Ledger(place / "ledger.db").create(
        "shop@1",
        protects="customer",
        neighboring="add-remove",
        rows=1,
        currency="zcdp",
        cap=1000,
        delta_cap="1/100",
    )
    key, _ = create_key(place / "key.pem")
    plan = Plan.from_dict(PLAN | {"noise": request.param})
    out = release(
        plan, table, place / "ledger.db", place / "out", sign=place / "key.pem",
        pages={"report.html": page},
    )  # fmt: skip
    return rows, out, key


def clipped(rows, shop=None):
    return [float(row["price"]) for row in rows if shop in (None, row["shop"])]


def test_counts_of_units_and_fixed_point_sums_are_near_the_truth(released):
    rows, out, _ = released
    buyers = out.tables["buyers.all"].to_pylist()
    assert [row["shop"] for row in buyers] == ["north", "south"]
    assert all(abs(row["value"] - 3000) < 30 for row in buyers)
    sales = out.tables["sales.all"].to_pylist()
    for row in sales:
        assert isinstance(row["value"], Decimal)
        assert row["value"].as_tuple().exponent == -2
        assert abs(float(row["value"]) - sum(clipped(rows, row["shop"]))) < 100
        assert row["value"] - row["lower"] == row["upper"] - row["value"]


def test_a_histogram_has_the_edges_of_its_bins_and_quantiles_their_level(released):
    rows, out, _ = released
    bins = out.tables["prices.all"].to_pylist()
    edges = [(row["shop"], row["at_least"], row["below"]) for row in bins]
    sides = [Decimal(x) for x in ("0", "2.50", "5", "10")]
    assert edges == [
        (shop, sides[i], sides[i + 1]) for shop in ("north", "south") for i in range(3)
    ]
    for row in bins:
        within = [x for x in clipped(rows, row["shop"]) if row["at_least"] <= x < row["below"]]
        assert abs(row["value"] - len(within)) < 60
    typical = out.tables["typical.all"].to_pylist()
    assert [(row["shop"], row["quantile"]) for row in typical] == [
        ("north", 0.25), ("north", 0.5), ("south", 0.25), ("south", 0.5),
    ]  # fmt: skip
    for row in typical:
        truth = float(np.quantile(clipped(rows, row["shop"]), row["quantile"]))
        assert abs(float(row["value"]) - truth) < 0.5
        assert row["lower"] <= row["value"] <= row["upper"]


def test_a_variance_is_near_that_of_the_data(released):
    rows, out, _ = released
    (row,) = out.tables["spread.all"].to_pylist()
    assert abs(row["value"] - float(np.var(clipped(rows)))) < 0.5
    assert row["lower"] <= row["value"] <= row["upper"]


def test_a_mean_is_as_near_that_of_the_data_as_the_plan_says(released):
    rows, out, _ = released
    (answer,) = (e for e in errors(Plan.from_dict(PLAN), rows=(2900,)) if e.query == "usual")
    ((_, most, half),) = answer.by_rows
    for row in out.tables["usual.all"].to_pylist():
        truth = float(np.mean([max(x, 2.5) for x in clipped(rows, row["shop"])]))
        assert abs(row["value"] - truth) < 8 * most
        assert row["lower"] <= row["value"] <= row["upper"]
        assert 0 < row["standard_error"] <= most
        assert row["upper"] - row["lower"] <= 2 * half + 1e-9


def test_keys_that_were_found_are_sorted_and_one_of_a_single_unit_is_not_among_them(released):
    """Keys come by their bytes; false alarms 1e-5, the plan's own delta, of noise far smaller."""
    _, out, _ = released
    result = out.tables["products.all"].to_pylist()
    keys = [(row["product"], row["shop"]) for row in result]
    assert keys == sorted(
        [(product, shop) for product in ("=tea", "coffee", "Öl") for shop in ("north", "south")],
        key=lambda key: tuple(part.encode() for part in key),
    )
    assert all(abs(row["value"] - 1000) < 40 for row in result)
    listed = [one for one in out.receipt["tables"] if one["query"] == "products"]
    assert [one["cells"] for one in listed] == [6, 6]
    assert b"'=tea" in out.files["tables/products.all.csv"]


def test_all_of_it_verifies_and_is_signed(released):
    _, out, key = released
    checks = verify(out.folder, {"report.html": page}, key=key)
    assert [check for check in checks if not check.ok] == []
    assert "receipt.sig" in out.files
    assert "report.html" in out.files


def test_where_no_key_is_found_often_enough_an_empty_table_is_published(tmp_path):
    plan = PLAN | {"query": [PLAN["query"][-1] | {"share": 1}]}
    Ledger(tmp_path / "l.db").create(
        "shop@1", protects="customer", neighboring="add-remove", cap=1000, delta_cap="1/100"
    )
    table = pa.table({"shop": ["north"], "product": ["rare"]})
    out = release(
        Plan.from_dict(plan), table, tmp_path / "l.db", tmp_path / "out",
        pages={"report.html": page},
    )  # fmt: skip
    assert out.tables["products.all"].to_pylist() == []
    assert "report.html" in out.files
    assert [c for c in verify(tmp_path / "out", {"report.html": page}) if not c.ok] == []


@pytest.mark.parametrize(("name", "change"), [
    ("products.all", lambda t: t.slice(1)),
    ("products.all", lambda t: t.take(list(range(len(t)))[::-1])),
    ("products.all", lambda t: pa.concat_tables([t, t])),
    ("products.all", lambda t: t.set_column(2, "value", [[1] * len(t)])),
    ("products.all", lambda t: t.set_column(1, "shop", [["east"] * len(t)])),
    ("prices.all", lambda t: t.set_column(3, "value", [[7] * len(t)])),
    ("prices.all", lambda t: t.set_column(1, "at_least", t.column("below"))),
    ("typical.all", lambda t: t.set_column(1, "quantile", [[0.3] * len(t)])),
    ("typical.all", lambda t: t.set_column(4, "lower", t.column("upper"))),
    ("sales.all", lambda t: t.set_column(3, "lower", t.column("value"))),
    ("usual.all", lambda t: t.set_column(3, "lower", t.column("upper"))),
    ("usual.all", lambda t: t.set_column(1, "value", [[2.4] * len(t)])),
])  # fmt: skip
def test_what_cannot_be_is_found_in_every_kind_of_table(released, tmp_path, name, change):
    shutil.copytree(released[1].folder, tmp_path / "out")
    rewrite(tmp_path / "out", name, change)
    failed = [check.name for check in verify(tmp_path / "out") if not check.ok]
    assert f"tables/{name}.parquet" in failed
