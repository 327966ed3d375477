"""``neyman plan init``: a plan that is valid at once, from names and types, never from a row."""

from __future__ import annotations

import datetime
import gzip
import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import answered as asked
from commands import neyman
from neyman.publishing import SQL_RULE, Plan, first_plan, schema_of
from neyman.publishing.planning.first_plan import Schema

PEOPLE = pa.table(
    {
        "person_id": ["p1", "p2"],
        "age": [40, 50],
        "pay": pa.array([1.5, 2.5]),
        "rent": pa.array([1, 2], pa.decimal128(9, 2)),
        "member": [True, False],
        "born": [datetime.date(1980, 1, 1)] * 2,
        "seen": pa.array([0, 1], pa.timestamp("us", "Asia/Tokyo")),
        "sex": pa.array(["f", "m"]).dictionary_encode(),
        "birth place": ["Ort", "Vila"],
        "tags": [["a"], ["b"]],
    }
)
KINDS = [None, pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.bool_()]
KINDS += [pa.date32(), pa.timestamp("ns"), pa.decimal128(38, 0), pa.decimal128(20, 12), pa.null()]
KINDS += [
    pa.decimal256(50, 2),
    pa.binary(),
    pa.list_(pa.int8()),
    pa.struct([("a\n[x]", pa.int8())]),
]


def test_a_parquet_file_gives_a_plan_that_is_valid_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(PEOPLE, "people.parquet")
    said = json.loads(
        asked("plan", "init", "people.parquet", "--id", "person_id", "--out", "plan.toml", "--json")
    )
    assert said.pop("missing") == SQL_RULE
    assert said == {"plan": "plan.toml", "columns": 10, "typed": True, "warnings": []}
    asked("plan", "check", "plan.toml")
    plan = Plan.load("plan.toml")
    assert (plan.name, plan.dataset, plan.unit.id) == ("people", "people@1", "person_id")
    assert {column.name: column.decimals for column in plan.columns if column.integer} == {
        "age": 0,
        "pay": 2,
        "rent": 2,
    }
    assert dict(plan.rows.types) == {
        "born": "date",
        "seen": "date",
        "sex": "text",
        "birth place": "text",
    }
    text = Path("plan.toml").read_text()
    assert dict(plan.rows.zones) == {"seen": "UTC"}
    assert "# tags: of type list" in text
    asked("ledger", "create", "ledger.db", "--plan", "plan.toml")
    run = ("run", "plan.toml", "--data", "people=people.parquet", "--ledger", "ledger.db")
    neyman(*run, "--out", "out", cwd=tmp_path)


def test_a_csv_file_gives_names_alone_and_says_so(tmp_path):
    path = tmp_path / "visits.csv.gz"
    path.write_bytes(gzip.compress('Stadt;"a ""b"";c";größe\n1;2;3\n'.encode()))
    said = asked("plan", "init", path, "--out", tmp_path / "plan.toml")
    assert "no row was read" in said
    plan = Plan.load(tmp_path / "plan.toml")
    assert dict(plan.rows.types) == {"Stadt": "text", 'a "b";c': "text", "größe": "text"}
    assert (plan.source.delimiter, plan.source.compression) == (";", "gzip")
    assert "A CSV file does not say what its columns hold" in (tmp_path / "plan.toml").read_text()


def test_no_row_is_read(tmp_path):
    for name, content in (("a", b"age,sex\n1,f\n"), ("b", b"age,sex\n\xff\xfe\x00\x00" * 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "people.csv").write_bytes(content)
    one, other = (schema_of(tmp_path / name / "people.csv") for name in "ab")
    assert one == other
    path = tmp_path / "people.parquet"
    pq.write_table(PEOPLE.append_column("secret", [["Xaver Unikat"] * 2]), path)
    before = first_plan("people", schema_of(path))
    footer = pq.read_metadata(path).serialized_size + 8
    content = path.read_bytes()
    path.write_bytes(b"\0" * (len(content) - footer) + content[-footer:])
    assert first_plan("people", schema_of(path)) == before
    assert b"Xaver" in content
    assert "Xaver" not in before


@pytest.mark.parametrize(
    "line",
    ["17,f,Ann", "Ann,1980-05-01", "Ann,,x", "Ann,12.5", "Ann,true", "Ann,1980-05-01 12:00", ""],
)
def test_a_first_line_that_may_be_a_row_is_refused_and_not_shown(tmp_path, line):
    (tmp_path / "people.csv").write_text(line + "\n")
    out = tmp_path / "plan.toml"
    failure = json.loads(
        asked("plan", "init", tmp_path / "people.csv", "--out", out, "--json", code=2)
    )
    assert "no column names" in failure["error"]
    assert "Ann" not in failure["error"]
    assert not out.exists()


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "people.csv").write_text("age\n")
    out = tmp_path / "plan.toml"
    out.write_text("mine")
    init = ("plan", "init", tmp_path / "people.csv", "--out")
    assert "already exists" in json.loads(asked(*init, out, "--json", code=2))["error"]
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("file", "more", "says"),
    [
        ("people.json", (), "ends in .parquet, .csv"),
        ("people.csv", ("--id", "who"), "--id 'who': the file has 0 columns of that name"),
        ("none.csv", (), "No such file"),
        ("none.parquet", (), "No such file"),
        ("broken.parquet", (), "not a Parquet file"),
        ("latin.csv", (), "give --encoding"),
        ("latin.csv", ("--encoding", "nothing"), "encoding = 'nothing'"),
        ("people.csv", ("--delimiter", "x"), "delimiter = 'x'"),
        ("people.csv", ("--neighboring", "near"), "--neighboring 'near'"),
        ("people.csv", ("--protects", " "), "--protects"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, file, more, says):
    (tmp_path / "people.json").write_text("{}")
    (tmp_path / "people.csv").write_text("age,sex\n")
    (tmp_path / "latin.csv").write_bytes("größe\n".encode("latin-1"))
    (tmp_path / "broken.parquet").write_text("x")
    init = ("plan", "init", tmp_path / file, "--out", tmp_path / "plan.toml")
    assert says in json.loads(asked(*init, *more, "--json", code=2))["error"]


@settings(max_examples=150)
@given(
    st.text(max_size=80),
    st.lists(st.tuples(st.text(max_size=9), st.sampled_from(KINDS)), max_size=6),
    st.text(min_size=1, max_size=9).filter(lambda text: text.strip()),
    st.sampled_from(["replace-one", "add-remove"]),
)
def test_any_schema_gives_a_valid_plan(name, columns, protects, neighboring):
    schema = Schema(tuple(columns), {"delimiter": "\t"})
    text = first_plan(name, schema, protects=protects, neighboring=neighboring)
    plan = Plan.from_dict(tomllib.loads(text))
    assert plan.unit.protects == protects
    assert len(plan.entries()) == 1
