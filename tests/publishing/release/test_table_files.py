"""Tables as files: any part of a table can be made alone, CSV is safe, and nothing goes missing."""

import csv
import hashlib
import json
import os
import re
import unicodedata
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neyman import Ledger, Release
from neyman.display import page
from neyman.publishing import Plan, csv_form, forms, listing, parts, verify
from neyman.publishing.release import table_files
from neyman.publishing.release.folder import staging, sweep
from plans import release

# Ibis still calls DuckDB by a name that newer versions of DuckDB announce to go away.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

RACES = ["=1+1", "-x", "a", "@b", "+c", "'=d", "'t Zand", "-1", "+2.5", "\te"]
TURNING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
PLAN = {
    "schema": 2, "name": "awkward", "dataset": "people@1", "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {
        "=race": {"keys": RACES}, "old": {"keys": [True, False]}, "code": {"keys": [-3, 0, 7]},
        "age": {"integer": True},
    },
    "hierarchy": {
        "place": {"levels": ["state", "county"], "keys": [["IL", "A"], ["IL", "B"], ["IN", "A"]]},
    },
    "budget": {"zcdp": "0.5"},
    "query": [
        {"name": "all", "measure": "count", "by": ["=race", "old", "code"],
         "at": ["state", "county"], "share": "1/2"},
        {"name": "age", "measure": "mean", "column": "age", "clip": [-90, 90], "by": ["=race"],
         "share": "1/2"},
    ],
}  # fmt: skip


@pytest.fixture
def place(tmp_path):
    size = 600
    people = {
        "=race": [RACES[i % len(RACES)] for i in range(size)],
        "old": [i % 3 == 0 for i in range(size)], "code": [(-3, 0, 7)[i % 3] for i in range(size)],
        "state": ["IL"] * size, "county": ["A", "B"] * (size // 2),
        "age": [-(i % 90) for i in range(size)],
    }  # fmt: skip
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    Ledger(tmp_path / "ledger.db").create(
        "people@1", protects="person", neighboring="replace-one", cap="2"
    )
    return tmp_path


def make(place, plan=PLAN, out="out"):
    data = place / "people.parquet"
    plan = Plan.from_dict(plan)
    return release(plan, data, place / "ledger.db", place / out, pages={"report.html": page})


def failed(folder):
    return [check.name for check in verify(folder, {"report.html": page}) if not check.ok]


def test_a_part_of_a_table_is_that_part_of_the_whole():
    plan = Plan.from_dict(PLAN)
    for form in forms(plan, plan.calibrated()):
        random = np.random.Generator(np.random.Philox(1))
        noisy = {e.measure: random.integers(-9, 900, form.cells) for e, _ in form.entries}
        total = form.build(noisy).cast(form.published)
        for start, stop in ((0, 1), (2, 7), (form.cells - 3, form.cells)):
            some = {name: values[start:stop] for name, values in noisy.items()}
            part = form.build(some, start).cast(form.published)
            assert part.equals(total.slice(start, stop - start))


def test_keys_come_in_declared_order_places_first_and_the_last_column_fastest():
    plan = Plan.from_dict(PLAN)
    form = forms(plan, plan.calibrated())[1]
    table = form.build({"count": np.zeros(form.cells, dtype=np.int64)})
    rows = [tuple(row.values())[:5] for row in table.to_pylist()]
    assert rows == [
        (*path, race, old, code)
        for path in (("IL", "A"), ("IL", "B"), ("IN", "A"))
        for race in RACES
        for old in (True, False)
        for code in (-3, 0, 7)
    ]


def test_tables_written_in_parts_hold_every_cell_once_and_verify(place, monkeypatch):
    monkeypatch.setattr(table_files, "LIMITS", replace(table_files.LIMITS, chunk_cells=7))
    product = make(place)
    file = product.parquet("all.county")
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (180, 26)
    keys = (
        product.tables["all.county"].select(["state", "county", "=race", "old", "code"]).to_pylist()
    )
    assert len({tuple(row.values()) for row in keys}) == 180
    for listed in product.receipt["tables"]:
        content = (place / "out" / listed["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == listed["sha256"]
    assert failed(place / "out") == []


def test_a_spreadsheet_takes_no_key_for_a_formula_and_numbers_stay_numbers(place):
    product = make(place)
    assert product.tables["all.state"].column("=race").unique().to_pylist() == RACES
    with (place / "out" / "tables" / "age.all.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "'=race"
    assert [row[0] for row in rows] == [
        "'=1+1", "'-x", "a", "'@b", "'+c", "''=d", "'t Zand", "-1", "+2.5", "\\u0009e",
    ]  # fmt: skip
    assert any(float(row[1]) < 0 and row[1].startswith("-") for row in rows)
    assert failed(place / "out") == []


@given(st.text(alphabet="'=+-@\t\r\n1.a \\u005c\x1b\x9b\x7f\u202e", max_size=9))
@example("\\u001b\x1b\\\\u001b\\u")
@example("'")
@example("'''=")
@example("-1.")
def test_what_csv_shows_of_a_key_tells_which_key_it_is(key):
    shown = csv_form(pa.table({"key": [key]})).column("key")[0].as_py()
    stripped = shown.lstrip("'")
    formula = stripped[:1] in tuple("=+-@")
    number = shown.lstrip("+-").replace(".", "", 1).isdigit()
    assert shown.startswith("'") or not formula or number
    assert not any(unicodedata.category(letter) == "Cc" for letter in shown)
    assert not set(shown) & set(TURNING)
    plain = shown[1:] if formula and shown.startswith("'") else shown
    assert key == re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), plain)


def test_a_table_too_large_for_csv_says_so_everywhere(place, monkeypatch):
    monkeypatch.setattr(table_files, "LIMITS", replace(table_files.LIMITS, csv_cells=100))
    product = make(place)
    assert not (place / "out" / "tables" / "all.state.csv").exists()
    assert (place / "out" / "tables" / "age.all.csv").exists()
    listed = [one for one in product.receipt["tables"] if "without_csv" in one]
    assert [one["path"] for one in listed] == [
        "tables/all.state.parquet",
        "tables/all.county.parquet",
    ]
    assert listed[0]["without_csv"] == "more than 100 cells"
    assert failed(place / "out") == []
    assert (
        "all, by state; all, by county) are published as" in product.files["report.html"].decode()
    )
    answer = dict(product.receipt) | {"tables": [dict(one) for one in product.receipt["tables"]]}
    del answer["tables"][0]["without_csv"]
    (place / "out" / "receipt.json").write_text(json.dumps(answer))
    assert "tables" in failed(place / "out")


def test_parts_cover_all_cells_and_files_are_listed_with_them(monkeypatch):
    plan = Plan.from_dict(PLAN)
    monkeypatch.setattr(table_files, "LIMITS", replace(table_files.LIMITS, chunk_cells=50))
    for form in forms(plan, plan.calibrated()):
        results = list(parts(form))
        assert [cell for part in results for cell in part] == list(range(form.cells))
        assert max(map(len, results)) <= 50
    assert [one.path for one in listing("q", "l", 10**6)] == [
        "tables/q.l.parquet",
        "tables/q.l.csv",
    ]
    assert [one.path for one in listing("q", "l", 10**6 + 1)] == ["tables/q.l.parquet"]


@pytest.mark.parametrize(("change", "check"), [
    (lambda t: t.set_column(2, "=race", [["a"] * len(t)]), "tables/all.county.parquet"),
    (lambda t: t.slice(1), "tables/all.county.parquet"),
    (lambda t: t.set_column(5, "value", [[0] * len(t)]), "tables/all.county.parquet"),
])  # fmt: skip
def test_a_change_in_any_part_of_a_table_is_found(place, monkeypatch, change, check):
    monkeypatch.setattr(table_files, "LIMITS", replace(table_files.LIMITS, chunk_cells=50))
    make(place)
    path = place / "out" / "tables" / "all.county.parquet"
    pq.write_table(change(pq.read_table(path)), path, store_schema=False)
    content = json.loads((place / "out" / "receipt.json").read_text())
    for one in content["tables"]:
        if one["path"] == check:
            one["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (place / "out" / "receipt.json").write_text(json.dumps(content))
    assert check in failed(place / "out")


def test_a_receipt_cannot_lead_out_of_its_folder(place):
    make(place)
    content = json.loads((place / "out" / "receipt.json").read_text())
    for path in ("../people.parquet", str(place / "people.parquet"), "tables/../../people.parquet"):
        content["tables"][0]["path"] = path
        (place / "out" / "receipt.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="outside"):
            Release.load(place / "out")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_folder_above_the_output_that_is_locked_by_others_is_an_error_in_words(tmp_path):
    import fcntl

    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (
            pytest.raises(ValueError, match=r"locked the folder above it for 0.1 s"),
            staging(tmp_path / "out", wait=0.1),
        ):
            pass
        assert not (tmp_path / "out").exists()
        sweep(tmp_path / "out")  # what cannot be swept now is left for later
    finally:
        os.close(handle)


def test_files_appear_together_and_a_second_set_takes_the_place_of_the_first(tmp_path):
    out = tmp_path / "out"
    with staging(out) as stage:
        stage.write("tables/a.csv", b"1")
        with stage.writing("b") as file:
            file.write(b"2")
            file.write(b"3")
        assert file.hexdigest() == hashlib.sha256(b"23").hexdigest()
        assert not out.exists()
        first = Release(stage.folder, {}).files
        assert dict(first) == {"tables/a.csv": b"1", "b": b"23"}
        with pytest.raises(FileExistsError):
            stage.write("b", b"4")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "c").write_bytes(b"5")
        stage.replace(Release(tmp_path / "other", {}).files)
        stage.publish()
    assert dict(Release(out, {}).files) == {"c": b"5"}
