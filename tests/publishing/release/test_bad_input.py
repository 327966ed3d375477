"""Mistakes in a plan's public parts, or in the data's form: named before anything is spent."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from function_calls import function_calls
from neyman import Ledger, check_data
from neyman.publishing import DataError, Plan, PlanError
from plans import SMALL, release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

LOOKUP: dict[str, Any] = {
    **SMALL,
    "columns": {"code": {"type": "text"}, "pay": {"integer": True}},
    "lookup": {"region": {"column": "code", "keys": "regions.csv"}},
    "query": [{"name": "regions", "measure": "count", "by": ["region"], "share": "1"}],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, a lookup's file, and a ledger."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"code": ["a", "b", "c"] * 50, "pay": [1] * 150}), "people.parquet")
    Path("regions.csv").write_text("code,region\na,North\nb,South\n")
    with Ledger("ledger.db") as book:
        book.create("people@1", protects="person", neighboring="replace-one", cap=1)
    return tmp_path


def spent() -> Fraction:
    with Ledger("ledger.db") as book:
        assert book.verify().ok
        return book.account("people@1").spent


def read(**change: Any) -> Plan:
    return Plan.from_dict({**LOOKUP, **change}, folder=".")


@pytest.mark.parametrize("rows", ["a,North\na,South\n", "a,North\nb,South\na,North\n"])
def test_a_lookup_with_two_rows_for_a_key_is_refused(place, rows):
    Path("regions.csv").write_text("code,region\n" + rows)
    with pytest.raises(PlanError, match=r"lookup\.region\.column: row \d of keys repeats 'a'"):
        read()


@pytest.mark.parametrize("way", ["path", "link", "parent"])
def test_a_lookup_outside_the_plan_s_folder_is_refused(place, way, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere") / "regions.csv"
    other.write_text("code,region\na,North\n")
    (place / "link.csv").symlink_to(other)
    keys = {"path": str(other), "link": "link.csv", "parent": f"../{other.parent.name}/regions.csv"}
    lookup = {"region": {"column": "code", "keys": keys[way]}}
    with pytest.raises(PlanError, match="not in the plan's folder or below"):
        read(lookup=lookup)


def test_a_lookup_s_file_that_is_data_of_the_run_is_refused(place):
    Path("people.csv").hardlink_to("regions.csv")
    Path("other.csv").symlink_to("people.csv")
    for data in ("regions.csv", "people.csv", "other.csv", ["people.csv"], "*.csv"):
        with pytest.raises(PlanError, match=r"regions\.csv"):
            release(read(), data, "ledger.db", "out")
    assert spent() == 0
    release(read(), "people.parquet", "ledger.db", "out")
    assert spent() == Fraction(1, 2)


@pytest.mark.parametrize(("change", "says"), [
    ({"pay": pa.array(["1"] * 150).cast("binary"), "code": ["a"] * 150}, "column 'pay' has type"),
    ({"pay": pa.array([0] * 150, pa.timestamp("s")), "code": ["a"] * 150}, "'pay' holds dates"),
    ({"pay": [1] * 150, "code": [1.5] * 150}, "column 'code' has type float64"),
    ({"pay": [1] * 150}, "no column 'code'"),
])  # fmt: skip
def test_a_table_whose_type_changed_since_the_check_is_refused_before_the_charge(
    place, change, says
):
    query = {"name": "pay", "measure": "sum", "column": "pay", "clip": [0, 9], "share": "1/2"}
    plan = read(query=[{**LOOKUP["query"][0], "share": "1/2"}, query])
    assert check_data(plan, "people.parquet").rows == 150
    pq.write_table(pa.table(change), "people.parquet")
    with pytest.raises(DataError, match=says):
        release(plan, "people.parquet", "ledger.db", "out")
    assert spent() == 0
    assert not Path("out").exists()


def test_a_column_that_became_text_is_refused_and_parsed_only_if_the_plan_says_so(place):
    query = {"name": "pay", "measure": "sum", "column": "pay", "clip": [0, 9], "share": "1"}
    pq.write_table(pa.table({"pay": ["1"] * 150, "code": ["a"] * 150}), "people.parquet")
    with pytest.raises(DataError, match=r"'pay' has type string.*parse = true"):
        release(read(query=[query]), "people.parquet", "ledger.db", "out")
    assert not Path("out").exists()
    columns = {**LOOKUP["columns"], "pay": {"integer": True, "parse": True}}
    plan = read(query=[query], columns=columns)
    table = release(plan, "people.parquet", "ledger.db", "out").tables["pay.all"]
    assert abs(table["value"][0].as_py() - 150) < 9 * 40


@pytest.mark.parametrize("text", [
    "not " * 5000 + "(pay > 1)", "not " * 400 + "(pay > 1)", " and ".join(["pay > 1"] * 150),
    "(" * 300 + "pay" + ")" * 300 + " > 1", " and ".join(["pay > 1"] * 3000),
    "1 + " * 3000 + "pay > 1",
])  # fmt: skip
def test_an_expression_that_is_too_long_or_too_deep_is_refused_after_few_calls(place, text):
    def refusal():
        with pytest.raises(PlanError, match=r"where = .*(too deep|steps|characters|nested)"):
            read(where=text)

    assert function_calls(refusal) < 400_000
