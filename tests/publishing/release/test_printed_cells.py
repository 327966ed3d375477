"""Small cells are printed as a text without any number, and negative ones as 0, after the noise."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neyman as ny
from commands import answered
from ledger_entries import UNIT
from neyman import Ledger, publishing
from neyman.publishing import PlanError
from plans import SMALL

KEYS = [f"k{number}" for number in range(60)]
PEOPLE = pa.table({"key": [KEYS[n % 20] for n in range(2000)], "pay": [1.25] * 2000})
COLUMNS = {"key": {"keys": KEYS}, "pay": {"decimals": 2}}
QUERY = {"name": "n", "measure": "count", "by": ["key"], "share": "1"}
MEASURED = ("value", "standard_error", "lower", "upper")


def plan(*queries: dict[str, Any], **more: Any) -> ny.Plan:
    share = {"share": f"1/{len(queries)}"}
    asked = [QUERY | share | query for query in queries]
    return ny.Plan.from_dict(SMALL | {"columns": COLUMNS, "query": asked} | more)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    book = Ledger("ledger.db")
    book.create("people@1", cap=9, **UNIT)
    return book


RULE = {"print": {"below": 5, "as": "<5"}}
SUM = {"name": "pay", "measure": "sum", "column": "pay", "clip": [0, 2]}


def test_a_printed_cell_has_a_text_and_no_number_in_either_file(ledger: Ledger):
    pay = SUM | {"print": {"below": "25/2", "as": "*"}, "nonnegative": True}
    ny.run(plan(RULE, pay), PEOPLE, ledger, "out")
    release = ny.Release.load("out")
    for name, below, text in (("n.all", 5, "<5"), ("pay.all", 12.5, "*")):
        table = release.tables[name]
        rows = table.to_pylist()
        hidden = [row for row in rows if row["printed"] is not None]
        # 40 cells are 0 in the data. All 40 above 5 times the scale: probability below 1e-9.
        assert hidden
        assert len(hidden) < len(rows)
        assert all(row["printed"] == text for row in hidden)
        assert all(row[column] is None for row in hidden for column in MEASURED)
        assert all(row["value"] >= below for row in rows if row["printed"] is None)
        plain = ny.Plan.from_dict(SMALL | {"columns": COLUMNS, "query": [QUERY]})
        assert table["value"].type in (pa.int64(), pa.decimal128(19, 2)), plain
        with open(f"out/tables/{name}.csv", newline="") as file:
            written = list(csv.DictReader(file))
        assert [row["printed"] for row in written] == [row["printed"] or "" for row in rows]
        assert all((row["printed"] == "") == (row["lower"] != "") for row in written)
    assert all(check.ok for check in publishing.verify("out", {}, ledger="ledger.db"))
    report = Path("out/report.html").read_text()
    assert "this protects nothing: the noise does" in report
    assert "about 0.4 standard errors" in report
    assert "printed" not in json.loads(Path("out/receipt.json").read_text())["mechanisms"][0]


def test_values_below_zero_are_zero_and_their_intervals_still_cover(ledger: Ledger):
    release = ny.run(plan({"nonnegative": True}), PEOPLE, ledger, "out", pages={})
    rows = release.tables["n.all"].to_pylist()
    assert min(row["value"] for row in rows) == 0 == min(row["lower"] for row in rows)
    zeros = [row for row in rows if row["value"] == 0]
    assert all(row["lower"] == 0 < row["upper"] for row in zeros)
    truth = {key: 100 if number < 20 else 0 for number, key in enumerate(KEYS)}
    covered = sum(row["lower"] <= truth[row["key"]] <= row["upper"] for row in rows)
    # 60 cells are covered with probability .9 each: 41 and fewer with probability below 1e-6.
    assert covered > 41
    assert all(check.ok for check in publishing.verify("out", {}))


def test_the_mean_rise_of_an_empty_cell_is_what_the_report_says(ledger: Ledger):
    """0.399 standard errors: the mean of 40 cells is within 5 of its standard errors of it."""
    release = ny.run(plan({"nonnegative": True}), PEOPLE, ledger, "out", pages={})
    rows = [row for row in release.tables["n.all"].to_pylist() if int(row["key"][1:]) >= 20]
    error = rows[0]["standard_error"]
    mean = sum(row["value"] for row in rows) / len(rows)
    # The variance of max(0, Z) is (1 - 1/pi)/2 of that of Z. False alarms: 1e-6.
    spread = math.sqrt((1 - 1 / math.pi) / 2 / len(rows))
    assert abs(mean / error - 1 / math.sqrt(2 * math.pi)) < 5 * spread + 0.1


def test_a_forged_number_in_a_printed_cell_is_found(ledger: Ledger):
    import hashlib

    import pyarrow.parquet as parquet

    release = ny.run(plan(RULE), PEOPLE, ledger, "out", pages={})
    table = release.tables["n.all"]
    place = table["printed"].to_pylist().index("<5")
    for column, value in (("value", 3), ("upper", 9), ("value", 70)):
        own = table[column].to_pylist()
        own[place] = value
        forged = table.set_column(
            table.column_names.index(column), column, pa.array(own, table[column].type)
        )
        path = Path("out/tables/n.all.parquet")
        parquet.write_table(forged, path, store_schema=False)
        receipt = json.loads(Path("out/receipt.json").read_text())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        next(t for t in receipt["tables"] if t["path"].endswith("parquet"))["sha256"] = digest
        Path("out/receipt.json").write_text(json.dumps(receipt))
        checks = {check.name: check for check in publishing.verify("out", {})}
        assert not checks["tables/n.all.parquet"].ok, column


@pytest.mark.parametrize(("query", "more", "refused"), [
    ({"print": {"below": 5}}, {}, "print is missing; give { below = 10, as = '<10' }"),
    ({"print": {"as": "<5"}}, {}, "print is missing; give { below = 10, as = '<10' }"),
    ({"print": {"below": 5, "as": "4"}}, {}, "reads as a number"),
    ({"print": {"below": 5, "as": "1 000,5"}}, {}, "reads as a number"),
    ({"print": {"below": 0, "as": "none"}}, {}, "must be above 0"),
    ({"measure": "mean", "column": "pay", "clip": [0, 2], "nonnegative": True}, {}, "a mean takes"),
    ({"measure": "quantiles", "column": "pay", "clip": [0, 2], "quantiles": ["1/2"], **RULE}, {},
     "a quantiles takes none"),
    (SUM | {"clip": [-1, 2], "nonnegative": True}, {}, "this sum can be negative"),
    (SUM | {"clip": [-1, 2], **RULE}, {}, "this sum can be negative"),
    (RULE, {"consistency": {"method": "least-squares"}}, "one subtraction returns the number"),
    ({"nonnegative": True}, {"consistency": {"method": "least-squares"}}, "method = 'nonnegative'"),
])  # fmt: skip
def test_rules_that_cannot_hold_are_refused(query: dict[str, Any], more: Any, refused: str):
    with pytest.raises(PlanError) as error:
        plan(query, **more)
    assert refused in str(error.value)


def test_a_plan_with_rules_keeps_its_hash_through_its_canonical_form():
    own = plan(RULE | {"nonnegative": True})
    assert ny.Plan.from_dict(own.canonical()).hash == own.hash
    assert own.hash != plan({}).hash
    assert own.mechanism() == plan({}).mechanism()


def test_the_rule_is_read_from_a_file(ledger: Ledger):
    Path("plan.toml").write_text(
        'schema = 2\nname = "p"\ndataset = "people@1"\ntable = "people"\n'
        'unit = { protects = "person", neighboring = "replace-one", rows = 1 }\n'
        'columns.key = { keys = ["a", "b"] }\nbudget = { zcdp = "1/2" }\n'
        'query = [{ name = "n", measure = "count", by = ["key"], share = 1,'
        ' print = { below = 10, as = "<10" }, nonnegative = true }]\n'
    )
    assert '"ok"' not in answered("plan", "check", "plan.toml", "--json")
    assert ny.Plan.load("plan.toml").canonical()["query"][0]["print"] == {
        "below": "10",
        "as": "<10",
    }


def test_cells_of_discovered_keys_and_of_groups_with_detail_follow_the_rule(ledger: Ledger):
    rule = {"print": {"below": 102, "as": "few"}}
    deep = {"name": "deep", "by": [], "detail": [[], ["key"]], "thresholds": [100]}
    listed = {"name": "listed", "delta": 1e-6}
    split = ny.run(plan(deep | rule), PEOPLE, ledger, "deep", pages={})
    more = {
        "columns": COLUMNS | {"key": {"discover": True}},
        "budget": {"zcdp": "1/2", "delta": 1e-5},
    }
    book = Ledger("other.db")
    book.create("people@1", cap=9, delta_cap="1/1000", **UNIT)
    free = ny.run(plan(listed | rule, **more), PEOPLE, book, "listed", pages={})
    for table in (split.tables["deep.all"], free.tables["listed.all"]):
        rows = table.to_pylist()
        hidden = [row for row in rows if row["printed"] == "few"]
        assert hidden
        assert all(row[column] is None for row in hidden for column in MEASURED)
        assert all(row["value"] >= 102 for row in rows if row["printed"] is None)
    for folder in ("deep", "listed"):
        assert all(check.ok for check in publishing.verify(folder, {}))
