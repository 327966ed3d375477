"""Public keys: of a list, a range, or a file of the plan's folder, and of no data of the run."""

import datetime as dt
import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neyman as ny
from neyman import Ledger
from neyman.publishing import (
    Plan,
    PlanError,
    best_split,
    check_key_files,
    key_lists,
    key_warnings,
    open_table,
    prepared,
    rewritten,
    verify,
)
from plain_engine import aggregate
from plans import release

FILES = {
    "marked.csv": b"\xef\xbb\xbfcode,name\r\nIL,Illinois\r\nOH,Ohio\r\n",
    "twice.csv": b"code\nIL\nOH\nIL\n", "padded.csv": b"code\nIL\nIL \n",
    "missing.csv": b"code,name\nIL,Illinois\n,nowhere\n", "blank.csv": b"code,name\n  ,nowhere\n",
    "header.csv": b"code\n", "nothing.csv": b"", "numbers.csv": b"ward\n7\n-8\n",
    "same.csv": b"ward\n7\n007\n", "huge.csv": b"ward\n9999999999999999999\n",
    "latin.csv": "code\nK\xf6ln\n".encode("latin-1"), "ragged.csv": b"code\nIL,Illinois\n",
    "drop.csv": b"code\ndrop\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def written(keys, folder=None, **more):
    column = {"keys": keys, **more}
    return Plan.from_dict(
        {"schema": 2, "name": "p", "dataset": "d@1", "table": "t",
         "unit": {"protects": "person", "neighboring": "replace-one"}, "columns": {"ward": column},
         "budget": {"zcdp": 1},
         "query": [{"name": "q", "measure": "count", "by": ["ward"], "share": 1}]},
        folder=folder,
    )  # fmt: skip


@pytest.mark.parametrize(("text", "keys"), [
    ("{ from = 0, to = 3 }", (0, 1, 2, 3)),
    ("{ from = -5, to = 6, step = 5 }", (-5, 0, 5)),
    ("{ from = 5, to = 5 }", (5,)),
    ("{ from = 2024-02-28, to = 2024-03-01 }", ("2024-02-28", "2024-02-29", "2024-03-01")),
    ("{ from = '2023-12-31', to = 2024-01-01, step = 'month' }", ("2023-12", "2024-01")),
    ("{ from = 2023-12-31, to = 2024-04-01, step = 'quarter' }",
     ("2023-Q4", "2024-Q1", "2024-Q2")),
    ("{ from = 2023-12-31, to = 2024-01-01, step = 'year' }", ("2023", "2024")),
    ("{ from = 0001-01-01, to = 0001-01-31, step = 'year' }", ("0001",)),
    ("{ from = 9999-11-30, to = 9999-12-31, step = 'month' }", ("9999-11", "9999-12")),
    ("{ file = 'marked.csv', column = 'code' }", ("IL", "OH")),
    ("{ file = 'numbers.csv' }", ("7", "-8")),
    ("{ file = 'numbers.csv', integer = true }", (7, -8)),
    ("{ file = 'same.csv' }", ("7", "007")),
])  # fmt: skip
def test_a_range_or_a_file_is_the_plan_of_the_list(text, keys, folder):
    plan = written(tomllib.loads(f"x = {text}")["x"], folder)
    assert plan.column("ward").keys == keys
    assert plan == written(list(keys))
    assert plan.hash == written(list(keys)).hash == Plan.from_dict(plan.canonical()).hash


@pytest.mark.parametrize(("text", "reason"), [
    ("{ from = 1, to = 0 }", "columns.ward.keys: from = 1 must be at most to = 0"),
    ("{ from = 2024-02-01, to = 2024-01-31 }", "from = 2024-02-01 must be at most"),
    ("{ from = 0, to = 1_000_000_000_000 }", "lists 1000000000001 keys, and the most is"),
    ("{ from = -9_000_000_000_000_000_000, to = 9_000_000_000_000_000_000 }", "the most is"),
    ("{ from = 0001-01-01, to = 9999-12-31 }", "lists 3652059 keys"),
    ("{ from = 0, to = 2024-01-01 }", "both be numbers or both dates"),
    ("{ from = 0, to = 9223372036854775808 }", "columns.ward.keys.to = 9223372036854775808"),
    ("{ from = '2023-02-29', to = 2024-01-01 }", "keys.from = '2023-02-29': must be"),
    ("{ from = 2023-01-01T00:00:00, to = 2024-01-01 }", "keys.from"),
    ("{ from = 1.5, to = 2 }", "keys.from = 1.5"),
    ("{ from = true, to = 2 }", "keys.from = true"),
    ("{ from = 1, to = 2, step = 0 }", "keys.step = 0: must be"),
    ("{ from = 1, to = 2, step = 'month' }", "step = 'month' is for dates"),
    ("{ from = 2023-01-01, to = 2024-01-01, step = 2 }", "step = 2 is for numbers"),
    ("{ from = 1 }", "columns.ward.keys.to is missing; give the last key"),
    ("{ from = 1, too = 2 }", "there is no field 'too'; did you mean 'to'?"),
    ("{}", "columns.ward.keys.from is missing"),
    ("{ file = 'marked.csv', from = 1 }", "there is no field 'from'"),
    ("{ file = 'marked.csv' }", "has no column 'ward'; its columns are ['code', 'name']"),
    ("{ file = 'twice.csv', column = 'code' }", "row 3 has code = 'IL', like row 1"),
    ("{ file = 'padded.csv', column = 'code' }", "row 2 has code = 'IL ' with blanks"),
    ("{ file = 'missing.csv', column = 'code' }", "row 2 has code = '': a key must not be"),
    ("{ file = 'blank.csv', column = 'code' }", "row 1 has code = '  ': a key must not be"),
    ("{ file = 'header.csv', column = 'code' }", "'header.csv' lists no key"),
    ("{ file = 'nothing.csv', column = 'code' }", "has no column 'code'"),
    ("{ file = 'same.csv', integer = true }", "row 2 has ward = '007', like row 1"),
    ("{ file = 'huge.csv', integer = true }", "must be a whole number of at most 18 digits"),
    ("{ file = 'latin.csv', column = 'code' }", "not UTF-8"),
    ("{ file = 'ragged.csv', column = 'code' }", "row 1 has 2 values"),
    ("{ file = 'drop.csv', column = 'code' }", "the key 'drop' is the same as"),
    ("{ file = 'absent.csv', column = 'code' }", "cannot read 'absent.csv'"),
    ("{ file = '/etc/hostname', column = 'code' }", "is not in the plan's folder"),
    ("{ file = '..', column = 'code' }", "is not in the plan's folder"),
])  # fmt: skip
def test_a_range_or_a_file_that_lists_no_keys_is_one_error(text, reason, folder):
    with pytest.raises(PlanError) as error:
        written(tomllib.loads(f"x = {text}")["x"], folder)
    assert reason in str(error.value)
    assert len(error.value.problems) == 1 or text == "{}" or "too" in text


FORMS = {
    "day": dt.date.isoformat,
    "month": lambda day: f"{day.year:04}-{day.month:02}",
    "quarter": lambda day: f"{day.year:04}-Q{(day.month + 2) // 3}",
    "year": lambda day: f"{day.year:04}",
}


@given(st.dates(), st.integers(0, 4000), st.sampled_from(sorted(FORMS)))
def test_the_periods_of_a_range_are_those_of_its_days(first, days, unit):
    last = min(dt.date.max.toordinal(), first.toordinal() + days)
    every = [dt.date.fromordinal(day) for day in range(first.toordinal(), last + 1)]
    plan = written({"from": first, "to": every[-1], "step": unit})
    assert plan.column("ward").keys == tuple(dict.fromkeys(map(FORMS[unit], every)))


def test_a_range_of_the_most_keys_is_one_plan():
    plan = written({"from": 1, "to": 10**6})
    assert len(plan.column("ward").keys) == 10**6 == plan.entries()[0].cells
    with pytest.raises(PlanError, match="the most is 1000000"):
        written({"from": 0, "to": 10**6})


def test_unknown_must_be_a_key_of_the_range():
    assert written({"from": 1, "to": 3}, unknown=2).column("ward").unknown == 1
    with pytest.raises(PlanError, match=r"unknown = 4: must be 'drop' or one of the keys"):
        written({"from": 1, "to": 3}, unknown=4)


def test_python_writes_the_same_keys(folder):
    def plan(values):
        return ny.Plan(
            name="p", dataset="d@1", table="t",
            unit=ny.Unit("person", neighboring="replace-one", rows=1),
            columns={"ward": ny.keys(values)}, queries=[ny.query.count(by="ward", name="q")],
            budget={"zcdp": 1}, folder=folder,
        )  # fmt: skip

    assert plan(range(7, 10)).hash == plan({"from": 7, "to": 9}).hash == written([7, 8, 9]).hash
    months = {"from": dt.date(2024, 1, 1), "to": dt.date(2024, 2, 1), "step": "month"}
    assert plan(months).hash == written(["2024-01", "2024-02"]).hash
    file = {"file": "numbers.csv", "integer": True}
    assert plan(file).hash == written([7, -8]).hash
    with pytest.raises(ValueError, match="at most 1000000 keys"):
        ny.keys(range(10**12))


def test_another_content_of_a_key_file_is_another_plan(folder):
    keys = {"file": "marked.csv", "column": "code"}
    before = written(keys, folder)
    (folder / "marked.csv").write_bytes(FILES["marked.csv"] + b"IN,Indiana\n")
    assert written(keys, folder).hash != before.hash


def test_a_key_file_may_not_be_data_of_the_run(folder):
    plan = written({"file": "marked.csv", "column": "code"}, folder)
    check_key_files(plan, {"t": str(folder / "numbers.csv")})
    with pytest.raises(PlanError, match=r"columns\.ward\.keys = 'marked\.csv' is also data"):
        check_key_files(plan, {"t": str(folder)})


@pytest.mark.parametrize("keys", [{"from": 0, "to": 1}, {"file": "marked.csv"}])
def test_a_receipt_lists_its_keys(keys, folder):
    ledger = ny.throwaway(9)
    ledger.register("d@1", protects="person", neighboring="replace-one", rows=1)
    release(written([0, 1]), pa.table({"ward": [0]}), ledger, folder / "out")
    path = folder / "out" / "receipt.json"
    receipt = json.loads(path.read_text())
    receipt["plan"]["columns"]["ward"]["keys"] = keys
    path.write_text(json.dumps(receipt))
    failed = [check.detail for check in verify(path) if not check.ok]
    assert any("does not list its public keys" in detail for detail in failed)


@pytest.mark.parametrize("kind", ["text", "date"])
def test_months_of_a_date_column_are_counted_by_their_keys(kind):
    plan = Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {
            "admitted": {"type": "date"},
            "month": {"keys": {"from": "2023-12-15", "to": "2024-02-01", "step": "month"}},
        },
        "derive": {"month": {"expression": "period(admitted, 'month')"}}, "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "by": ["month"], "share": 1}],
    })  # fmt: skip
    days = ["2023-11-30", "2023-12-01", "2024-01-31", "2024-01-01", "2024-02-29", "2024-03-01"]
    values = days if kind == "text" else [dt.date.fromisoformat(day) for day in days]
    opened = open_table(pa.table({"admitted": [*values, None]}), "duckdb", ["admitted"])
    with prepared(plan, opened) as rows:
        (counts,) = aggregate(plan, rows).values()
    assert counts.tolist() == [1, 2, 1]


QUERIES = [
    {"measure": "count", "by": ["ward"], "share": "1/2"},
    {"measure": "units", "by": ["ward"], "share": "1/2"},
]


def with_queries(queries):
    return Plan.from_dict(written([1, 2]).canonical() | {"query": queries})


def test_a_query_without_a_name_is_called_after_its_measure():
    plan = with_queries(QUERIES)
    named = [{"name": query["measure"], **query} for query in QUERIES]
    assert plan.hash == with_queries(named).hash
    assert [query.name for query in plan.queries] == ["count", "units"]


def test_two_queries_of_one_measure_need_names():
    with pytest.raises(PlanError, match=r"query\[1\]\.name = 'count': queries need names"):
        with_queries([QUERIES[0], QUERIES[0]])
    with pytest.raises(PlanError, match=r"query\[0\]\.measure is missing"):
        with_queries([{"by": ["ward"], "share": 1}])
    with pytest.raises(PlanError, match=r"query\[0\]\.measure .* = 'rows'"):
        with_queries([{"measure": "rows", "share": 1}])


def test_shares_are_written_to_a_query_without_a_name():
    text = """
        schema = 2
        name = "p"
        dataset = "d@1"
        table = "t"
        unit = { protects = "person", neighboring = "replace-one" }
        budget = { zcdp = 1 }
        columns = { ward = { keys = { from = 1, to = 9 } } }
        [[query]]
        measure = "count"
        share = "1/2"
        [[query]]
        measure = "units"
        weight = 4
        by = ["ward"]
        share = "1/2"
    """
    plan = Plan.from_dict(tomllib.loads(text))
    other = Plan.from_dict(tomllib.loads(rewritten(text, best_split(plan))))
    assert abs(other.query("units").share - Fraction(2, 3)) < Fraction(1, 1000)
    assert other.query("count").share == 1 - other.query("units").share


PLAN = """
schema = 2
name = "leak"
dataset = "people@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
[hierarchy.place]
levels = ["town", "street"]
keys = "KEYS"
[budget]
zcdp = "0.001"
[[query]]
name = "q"
measure = "count"
at = ["street"]
share = 1
"""
ROWS = "town,street\nA,x\nA,y\nB,x\n"


@pytest.fixture
def home(tmp_path):
    """A folder of a plan, and a private one beside it."""
    for name in ("plan", "plan/lists", "private"):
        (tmp_path / name).mkdir()
    (tmp_path / "plan" / "places.csv").write_text(ROWS)
    (tmp_path / "private" / "people.csv").write_text(ROWS)
    Ledger(tmp_path / "ledger.db").create(
        "people@1", protects="person", neighboring="replace-one", cap="1"
    )
    return tmp_path


def with_file(home, keys):
    path = home / "plan" / "plan.toml"
    path.write_text(PLAN.replace("KEYS", str(keys)))
    return path


def refused(home, keys, said):
    with pytest.raises(PlanError, match=said) as caught:
        Plan.load(with_file(home, keys))
    assert "\n" not in str(caught.value)


def test_keys_come_from_the_folder_of_the_plan_or_below(home, monkeypatch):
    shutil.copy(home / "plan" / "places.csv", home / "plan" / "lists" / "more.csv")
    (home / "plan" / "link.csv").symlink_to("lists/more.csv")
    ways = ["places.csv", "lists/more.csv", "lists/../places.csv", "link.csv"]
    for keys in [*ways, home / "plan" / "places.csv"]:
        assert Plan.load(with_file(home, keys)).hierarchy
    monkeypatch.chdir(home / "plan")
    assert Plan.load("plan.toml").hierarchy


def test_keys_from_elsewhere_are_refused_also_behind_links(home):
    outside = home / "private" / "people.csv"
    refused(home, "../private/people.csv", "is not in the plan's folder or below")
    refused(home, outside, "is not in the plan's folder or below")
    (home / "plan" / "link.csv").symlink_to(outside)
    refused(home, "link.csv", "is not in the plan's folder or below")
    (home / "plan" / "way").symlink_to(home / "private", target_is_directory=True)
    refused(home, "way/people.csv", "is not in the plan's folder or below")
    (home / "plan_b.csv").write_text(ROWS)  # the same beginning, another folder
    refused(home, "../plan_b.csv", "is not in the plan's folder or below")


def test_a_pipe_a_socket_and_a_folder_are_refused_at_once(home):
    os.mkfifo(home / "plan" / "pipe.csv")
    (home / "plan" / "folder.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(home / "plan" / "socket.csv"))
        for keys in ("pipe.csv", "socket.csv", "folder.csv"):
            result = subprocess.run(
                [sys.executable, "-m", "neyman", "plan", "check", with_file(home, keys)],
                capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert (result.returncode, result.stdout) == (2, ""), result.stderr
            assert f"{keys!r} is not a regular file" in result.stderr


def test_a_device_is_refused_at_once():
    data = {
        "schema": 2, "name": "x", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "hierarchy": {"place": {"levels": ["town"], "keys": "zero"}}, "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "at": ["town"], "share": 1}],
    }  # fmt: skip
    code = (
        "from neyman.publishing.plan import Plan, PlanError\n"
        f"try: Plan.from_dict({data!r}, folder='/dev')\n"
        "except PlanError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert "'zero' is not a regular file" in result.stdout, result.stderr


def test_a_huge_file_is_refused_before_it_is_read(home):
    with (home / "plan" / "huge.csv").open("w") as file:
        os.truncate(file.fileno(), 2**40)
    refused(home, "huge.csv", "is larger than 256 MiB")


def test_what_cannot_be_a_path_is_refused(home):
    (home / "plan" / "loop.csv").symlink_to("loop.csv")
    for keys in (r"a\u0000b", "loop.csv", "nowhere.csv", "x" * 5000):
        refused(home, keys, "cannot read")


def test_a_key_file_that_is_data_of_the_run_is_refused_before_the_charge(home):
    private = home / "private" / "people.csv"
    os.link(private, home / "plan" / "places2.csv")
    plan = with_file(home, "places2.csv")
    pq.write_table(pa.table({"town": ["A"], "street": ["x"]}), home / "good.parquet")
    (home / "link.csv").symlink_to(private)
    (home / "way").symlink_to(home / "private")
    (home / "private" / "round").symlink_to(home / "private")
    (home / "deep" / "er").mkdir(parents=True)
    os.link(private, home / "deep" / "er" / "people.csv")
    good = home / "good.parquet"
    sources = [
        private, str(private), home / "link.csv", home / "private", home / "way", home / "deep",
        str(home / "priv*" / "*.csv"), str(home / "pri*"), str(home / "**" / "people.csv"),
        [good, private], (str(private),), {"people": private}, {"people": good, "other": private},
        {"people": [good, private]}, pa.dataset.dataset(str(private), format="csv"),
    ]  # fmt: skip
    for data in sources:
        with pytest.raises(PlanError, match=r"keys = 'places2\.csv' is also data of this run"):
            release(plan, data, home / "ledger.db", home / "out")
    assert Ledger(home / "ledger.db").account("people@1").spent == 0
    assert not (home / "out").exists()


def test_a_key_file_beside_the_data_is_public_and_is_used(home):
    private = home / "private" / "people.csv"
    product = release(with_file(home, "places.csv"), private, home / "ledger.db", home / "out")
    assert list(product.tables) == ["q.street"]


def warned(**changes):
    data = {
        "schema": 2, "name": "x", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"sex": {"keys": ["f", "m"]}},
        "hierarchy": {"place": {"levels": ["town"], "keys": [[f"t{i}"] for i in range(50)]}},
        "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "at": ["town"], "share": 1}],
    }  # fmt: skip
    level = changes.pop("level", "town")
    data["hierarchy"]["place"]["levels"] = data["query"][0]["at"] = [level]
    return tuple(key_warnings(Plan.from_dict(data | changes)))


def test_a_level_with_nearly_as_many_places_as_rows_is_warned_about():
    assert warned() == warned(most_rows=1000) == warned(most_rows=101) == ()
    (said,) = warned(most_rows=100)
    assert said.startswith("The level 'town' has 50 keys, and the plan declares 100 rows.")
    assert "column 'sex'" in warned(most_rows=4)[-1]


@pytest.mark.parametrize("name", [
    "name", "Name", "last_name", "FullName", "ssn", "SSN", "id", "person_id", "patient id",
    "email", "e_mail", "phone", "phone_number", "Telephone", "address", "date_of_birth", "dob",
    "passport_no", "user_name", "uuid", "mrn", "record_id", "address2",
])  # fmt: skip
def test_a_level_that_is_named_like_an_identifier_is_warned_about(name):
    (said,) = warned(level=name)
    assert said.startswith(f"The level {name!r} is named like an identifier of a person")


@pytest.mark.parametrize("name", ["county", "county_name", "state_id", "region", "tract", "valid"])
def test_names_of_places_are_not_warned_about(name):
    assert warned(level=name) == ()


def test_a_key_file_is_listed_with_its_numbers_of_places(home):
    (keys,) = key_lists(Plan.load(with_file(home, "places.csv")))
    assert (keys.file, keys.places) == ("places.csv", (("town", 2), ("street", 3)))
    assert keys.text().startswith("Key file places.csv: 3 places (town 2, street 3).")
    assert Path(home / "plan" / keys.file).exists()


IMPOSSIBLE = [
    ("period(t, 'month')", "2024-12", ["2024-13", "2024-1", "2024-02-01", "2024-00", "0000-01"]),
    ("period(t, 'year')", "2024", ["24", "02024", "２０２４", "2024 "]),
    ("period(t, 'quarter')", "2024-Q4", ["2024-Q5", "2024-4", "2024-q4", "2024"]),
    ("period(t, 'day')", "2024-02-29", ["2024-02-30", "2023-02-29", "2024-02"]),
    ("lower(s)", "ab", ["AB", "aB"]),
    ("upper(s)", "AB", ["ab", "Ab"]),
    ("'a' if s == 'x' else upper(s)", "a", ["b"]),
    ("month(t)", 12, [0, 13]),
]


@pytest.mark.parametrize(("text", "possible", "others"), IMPOSSIBLE)
def test_a_key_that_a_derived_column_can_never_give_is_an_error_of_the_plan(text, possible, others):
    def plan(key):
        columns = {"t": {"type": "date"}, "s": {"type": "text"}, "m": {"keys": [key]}}
        query = [{"measure": "count", "by": ["m"], "share": 1}]
        own = {"columns": columns, "derive": {"m": {"expression": text}}, "query": query}
        return Plan.from_dict(written([1, 2]).canonical() | own)

    assert plan(possible).column("m").keys == (possible,)
    for key in others:
        with pytest.raises(PlanError, match="can never give"):
            plan(key)
