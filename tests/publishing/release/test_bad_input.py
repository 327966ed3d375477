"""Mistakes in a plan's public parts, or in the data's form: named before anything is spent."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from function_calls import function_calls
from neyman import Ledger
from neyman.publishing import Plan, PlanError
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


def test_a_lookup_s_file_that_is_data_of_the_run_is_refused(place):
    Path("people.csv").hardlink_to("regions.csv")
    Path("other.csv").symlink_to("people.csv")
    for data in ("regions.csv", "people.csv", "other.csv", ["people.csv"], "*.csv"):
        with pytest.raises(PlanError, match=r"regions\.csv"):
            release(read(), data, "ledger.db", "out")
    assert spent() == 0
    release(read(), "people.parquet", "ledger.db", "out")
    assert spent() == Fraction(1, 2)


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
