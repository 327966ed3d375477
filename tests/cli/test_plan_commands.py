"""The commands of plans and data: `calibrate`, `plan ...`, and `data check`."""

import datetime
import gzip
import json
import math
import re
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import answered as asked
from commands import neyman
from mixed_plan import MIXED
from neyman.publishing import NOTICE, SQL_RULE, Plan, first_plan, schema_of, threshold


def document(*words, **more):
    return json.loads(asked(*words, "--json", **more))


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(MIXED.replace("[unit]", "[unit]\nrows = 1"))
    return path


def test_a_wanted_error_and_the_promise_that_it_costs_are_each_other_s_way_back(plan):
    there = json.loads(asked("calibrate", plan, "--error", "county total", 25, "--json"))
    assert there["error"] == pytest.approx(25, rel=1e-6)
    back = json.loads(
        asked("calibrate", plan, "--power", there["power"], "--level", 0.05, "--json")
    )
    county = next(e for e in back["errors"] if e["table"] == "total.county")
    assert county["standard_error"] == pytest.approx(25, rel=1e-3)
    errors = [point["error"] for point in there["curve"]]
    powers = [point["power"] for point in there["curve"]]
    assert errors == sorted(errors)
    assert powers == sorted(powers, reverse=True)
    exact = json.loads(asked("calibrate", plan, "--zcdp", 0.5, "--json"))
    assert exact["zcdp"] == "1/2"


def test_what_a_plan_leaves_is_left_when_it_is_calibrated(tmp_path):
    query = '[[query]]\nname = "race"\nmeasure = "count"\nby = ["race"]\nshare = "4/5"\n'
    text = MIXED[: MIXED.index("[consistency]")].replace("[budget]", '[budget]\nunspent = "1/5"')
    (tmp_path / "plan.toml").write_text(text + query)
    there = document("calibrate", tmp_path / "plan.toml", "--error", "race", 25)
    # One person moves two cells by one.
    assert float(Fraction(there["zcdp"])) == pytest.approx(2 / (2 * 0.8 * 625), rel=1e-3)
    budget = ("--power", there["power"], "--level", 0.05)
    back = document("calibrate", tmp_path / "plan.toml", *budget)
    assert back["errors"][0]["standard_error"] == pytest.approx(25, rel=1e-3)
    assert ', unspent = "0.2"' in asked("calibrate", tmp_path / "plan.toml", *budget)
    content = document("plan", "check", tmp_path / "plan.toml")
    assert content["mechanisms"][0]["zcdp"] == "2/25"
    assert "race" in asked("plan", "check", tmp_path / "plan.toml")


def test_the_curve_of_a_calibration_is_drawn(plan, tmp_path):
    assert "error of race.county" in asked(
        "calibrate", plan, "--error", "race", 10, "--out", tmp_path / "c.svg"
    )
    words = {text.strip() for text in ET.parse(tmp_path / "c.svg").getroot().itertext()}
    assert "standard error of a cell of race.county" in words
    assert any(word.startswith("10: epsilon ") for word in words)


def test_the_budget_that_is_printed_is_one_that_the_plan_takes(tmp_path):
    result = MIXED[: MIXED.index("[[query]]")].replace("[hierarchy", "[columns.word]\n[hierarchy")
    result = result.replace("[columns.word]", "[columns.word]\ndiscover = true")
    result = result.replace('[consistency]\nmethod = "least-squares"\n', "")
    result += """
[[query]]
name = "words"
measure = "units"
by = ["word"]
share = 1
delta = "1e-8"
"""
    path = tmp_path / "plan.toml"
    path.write_text(result.replace('zcdp = "1/10"', 'zcdp = "1/10"\ndelta = "1e-7"'))
    said = asked("calibrate", path, "--error", "words", 5)
    budget = next(line for line in said.splitlines() if line.startswith("[budget]"))
    assert budget == '[budget] zcdp = "0.04", delta = "0.00000001"'
    taken = budget.removeprefix("[budget] ").replace(", ", "\n")
    path.write_text(result.replace('zcdp = "1/10"', taken))
    assert "5 " in asked("plan", "check", path)


def test_a_plan_of_ratios_has_a_curve_at_a_number_of_rows(tmp_path):
    head, *queries = MIXED.split("[[query]]")
    mean = next(part for part in queries if "mean" in part).replace('"1/8"', "1")
    path = tmp_path / "plan.toml"
    path.write_text(
        head.replace('[consistency]\nmethod = "least-squares"\n', "") + "[[query]]" + mean
    )
    content = json.loads(asked("calibrate", path, "--zcdp", 0.1, "--json"))
    assert content["rows"] == 1000
    (own,) = content["errors"]
    middle = next(row for row in own["by_rows"] if row["rows"] == 1000)
    assert content["error"] == middle["standard_error"]
    assert "1,000 rows" in asked(
        "calibrate", path, "--zcdp", 0.1, "--out", tmp_path / "c.svg"
    ).replace("\n rows", " rows")
    assert "at 1,000 rows" in (tmp_path / "c.svg").read_text()


def test_an_error_that_a_check_limits_is_never_rounded_down(plan):
    said = asked("plan", "check", plan).partition("at most, if")[2]
    errors = json.loads(asked("plan", "check", plan, "--json"))["errors"]
    exact = [
        (row["standard_error"], row["half_width_90"])
        for error in errors
        for row in error["by_rows"]
    ]
    shown = re.findall(r"([\d.,]+)\s+\(±\s+([\d.,]+)\)", said)
    for texts, numbers in zip(shown, exact, strict=True):
        for text, number in zip(texts, numbers, strict=True):
            assert number <= float(text.replace(",", "")) <= 1.01 * number


def test_a_check_says_what_each_named_attack_can_reach(plan):
    (first, *others) = document("plan", "check", plan)["attacks"]
    assert len(others) == 2
    curve = Plan.load(plan).mechanism().tradeoff()
    assert first["upper"] == curve.success("1/20").upper
    said = " ".join(asked("plan", "check", plan).split())
    assert said.count("An attacker who knows everyone else’s record and would") == 3


def test_a_check_lists_the_key_file_and_warns_about_keys_that_look_private(plan, tmp_path):
    assert document("plan", "check", plan)["warnings"] == []
    rows = "".join(f"{n},{1000 + n}\n" for n in range(40))
    (tmp_path / "places.csv").write_text("state,ssn\n" + rows)
    keys = MIXED[MIXED.index("keys = [[") : MIXED.index("[budget]")]
    text = MIXED.replace(keys, 'keys = "places.csv"\n').replace("county", "ssn")
    plan.write_text(text.replace("[unit]", "most_rows = 50\n[unit]\nrows = 1"))
    content = document("plan", "check", plan)
    assert content["keys"] == [
        {"hierarchy": "place", "file": "places.csv", "places": {"state": 40, "ssn": 40}}
    ]
    levels = [warning.split("'")[1] for warning in content["warnings"]]
    assert levels == ["state", "ssn", "ssn"]
    assert "Warning: The level 'ssn' is named like an identifier of a person" in asked(
        "plan", "check", plan
    )


def test_a_split_is_written_beside_the_plan_and_explained_by_its_weights(plan, tmp_path):
    assert "split" not in document("plan", "check", plan)
    said = document("plan", "split", plan, "--weight", "race=4")
    new = tmp_path / "split.toml"
    asked("plan", "split", plan, "--weight", "race=4", "--out", new)
    got = {}
    for entry in Plan.load(new).entries():
        name = f"{entry.query}.{entry.level}"
        got[name] = got.get(name, 0) + entry.share
    assert {name: str(share) for name, share in got.items()} == {
        s["table"]: s["share"] for s in said["shares"]
    }
    content = document("plan", "check", new)["split"]
    assert content == document("plan", "split", new)
    assert {s["table"]: s["weight"] for s in content["shares"]}["race.county"] == "4"
    shown = " ".join(asked("plan", "check", new).split())
    assert "less than with equal shares. No other shares would lower it" in shown


DISCOVERY = """
schema = 2
name = "words"
dataset = "d@1"
table = "t"
[unit]
rows = 1
protects = "person"
neighboring = "add-remove"
[columns.word]
discover = true
[budget]
epsilon = 100
delta = 1e-6
[[query]]
name = "words"
measure = "units"
by = ["word"]
delta = 1e-9
share = "1"
"""


@pytest.mark.parametrize("measure", ["units", "count"])
def test_plan_check_prints_how_many_people_a_discovered_key_needs(measure, tmp_path):
    path = tmp_path / "plan.toml"
    text = DISCOVERY.replace("epsilon = 100", "epsilon = 1")
    path.write_text(text.replace('"units"', f'"{measure}"'))
    ((entry, sigma_squared),) = Plan.load(path).calibrated()
    least = threshold(sigma_squared, entry.delta)
    (error,) = json.loads(asked("plan", "check", path, "--json"))["errors"]
    assert error["threshold"] == least
    noise = range(-10_000, 10_001)
    weights = [math.exp(-k * k / (2 * sigma_squared)) for k in noise]
    beyond = error["published_from"] - least + 1
    passed = sum(w for k, w in zip(noise, weights, strict=True) if k >= beyond) / sum(weights)
    assert 0.95 <= 1 - passed < 0.97
    said = asked("plan", "check", path)
    assert f"a key is published if its noisy number reaches {least}" in said
    assert "Warning" not in said


def test_an_absurd_budget_is_named_by_check_by_run_and_in_the_report(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(DISCOVERY)
    says = "epsilon = 100 and delta = 0.000001 protects almost nothing"
    said = asked("plan", "check", path)
    assert f"Warning: The budget {says}" in said
    assert says in json.loads(asked("plan", "check", path, "--json"))["warnings"][0]
    asked("ledger", "create", tmp_path / "ledger.db", "--plan", path)
    (tmp_path / "t.csv").write_text("word\n" + "yes\n" * 50)
    done = neyman(
        "run", path, "--data", "t=t.csv", "--ledger", "ledger.db", "--out", "out", cwd=tmp_path
    )
    assert says in " ".join(done.stderr.split())
    assert says in (tmp_path / "out" / "report.html").read_text()


def test_sql_replaces_the_queries_of_a_plan(plan, tmp_path):
    new = tmp_path / "new.toml"
    text = "SELECT race,\tCOUNT(*) AS n, COUNT_IF(age > 17)\nFROM t GROUP BY race"
    said = asked("plan", "from-sql", plan, text, "--out", new)
    assert "n: count, 1/2 of the budget" in said
    assert "none for a key without rows" in said
    for line in ("# SELECT race, COUNT(*) AS n", "# FROM t GROUP BY race"):
        assert line in new.read_text()
    names = [query.name for query in Plan.load(new).queries]
    assert names == ["n", "count_if_age_17"]
    file = tmp_path / "one.sql"
    file.write_text("SELECT AVG(paid) FROM t")
    result = neyman("plan", "from-sql", plan, file, "--out", "x.toml", cwd=tmp_path, check=2)
    assert "line 1, column 12, 'paid': is not a column" in result.stderr
    clip = ("SELECT AVG(age) FROM t", "--clip", "age=--5,9", "--out", "x.toml")
    result = neyman("plan", "from-sql", plan, *clip, cwd=tmp_path, check=2)
    assert "clip" in result.stderr
    assert "literal" not in result.stderr
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize("first", [True, False])
def test_sql_beside_a_derived_column_at_the_top_gives_the_checked_plan_or_none(tmp_path, first):
    line, rest = 'derive.young.expression = "age < 30"\n', 'noise = "discrete-gaussian"\n'
    head, below = DISCOVERY[1:].split("[unit]")
    below = below.replace("[budget]", '[columns.age]\ntype = "whole"\n[budget]')
    path, new = tmp_path / "plan.toml", tmp_path / "new.toml"
    head = f"{line}{rest}{head}" if first else f"{rest}{head}{line}"
    path.write_text(f"{head}[unit]{below}")
    text = "SELECT age >= 65 AS old, COUNT(*) FROM t GROUP BY old"
    args = ["plan", "from-sql", path, text, "--out", new]
    if first:
        assert "as its own section" in neyman(*args, cwd=tmp_path, check=2).stderr
        assert not new.exists()
    else:
        asked(*args)
        assert [one.name for one in Plan.load(new).rows.derived] == ["young", "old"]


PEOPLE = pa.table({
    "person_id": ["p1", "p2"], "age": [40, 50], "pay": pa.array([1.5, 2.5]),
    "rent": pa.array([1, 2], pa.decimal128(9, 2)), "member": [True, False],
    "born": [datetime.date(1980, 1, 1)] * 2,
    "seen": pa.array([0, 1], pa.timestamp("us", "Asia/Tokyo")),
    "sex": pa.array(["f", "m"]).dictionary_encode(), "birth place": ["Ort", "Vila"],
    "tags": [["a"], ["b"]],
})  # fmt: skip


KINDS = [None, pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.bool_()]
KINDS += [pa.date32(), pa.timestamp("ns"), pa.decimal128(38, 0), pa.decimal128(20, 12), pa.null()]
KINDS += [pa.decimal256(50, 2), pa.binary(), pa.list_(pa.int8())]
KINDS.append(pa.struct([("a\n[x]", pa.int8())]))


def test_a_parquet_file_gives_a_plan_that_is_valid_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(PEOPLE, "people.parquet")
    said = document("plan", "init", "people.parquet", "--id", "person_id", "--out", "plan.toml")
    assert said.pop("missing") == SQL_RULE
    assert said == {"plan": "plan.toml", "columns": 10, "typed": True, "warnings": []}
    asked("plan", "check", "plan.toml")
    plan = Plan.load("plan.toml")
    assert (plan.name, plan.dataset, plan.unit.id) == ("people", "people@1", "person_id")
    assert {column.name: column.decimals for column in plan.columns if column.integer} == {
        "age": 0, "pay": 2, "rent": 2,
    }  # fmt: skip
    assert dict(plan.rows.types) == {
        "born": "date", "seen": "date", "sex": "text", "birth place": "text",
    }  # fmt: skip
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
    failure = document("plan", "init", tmp_path / "people.csv", "--out", out, code=2)
    assert "no column names" in failure["error"]
    assert "Ann" not in failure["error"]
    assert not out.exists()


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "people.csv"
    path.write_text("age\tsex\n")
    return schema_of(path, delimiter="\t")


@settings(max_examples=150)
@given(
    st.text(max_size=80),
    st.lists(st.tuples(st.text(max_size=9), st.sampled_from(KINDS)), max_size=6),
    st.text(min_size=1, max_size=9).filter(lambda text: text.strip()),
    st.sampled_from(["replace-one", "add-remove"]),
)
def test_any_schema_gives_a_valid_plan(schema, name, columns, protects, neighboring):
    schema = replace(schema, columns=tuple(columns))
    text = first_plan(name, schema, protects=protects, neighboring=neighboring)
    plan = Plan.from_dict(tomllib.loads(text))
    assert plan.unit.protects == protects
    assert len(plan.entries()) == 1


SURVEY = """
schema = 2
name = "survey"
dataset = "survey@1"
table = "people"

[source]
delimiter = ";"
encoding = "latin-1"

[unit]
protects = "person"
neighboring = "replace-one"
rows = 1
id = "id"

[columns]
race = { keys = ["blanc", "métis"] }
age = { integer = true, unknown = 0 }

[budget]
zcdp = "1/2"

[[query]]
name = "race"
measure = "count"
by = ["race"]
share = "1/2"

[[query]]
name = "age"
measure = "sum"
column = "age"
clip = [0, 90]
share = "1/2"
"""
DATA = 'id;race;age\n1;métis;95\n1;blanc;5\n2;"x\ny";1\n3;[red]\x1b[2J;x\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "plan.toml").write_text(SURVEY, encoding="utf-8")
    (tmp_path / "people.csv").write_bytes(DATA.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


CHECK = ("data", "check", "plan.toml", "--data", "people=people.csv")


def test_every_page_of_a_data_check_says_that_it_is_private(folder):
    said = asked(*CHECK)
    pages = said.split("\n\n")
    assert len(pages) == 5
    assert all(page.startswith(NOTICE) for page in pages)
    words = " ".join(said.split())
    for answer in (
        "survey, table people: 3 rows",
        "Lines: 5 read, 3 rows, 2 dropped",
        "people.csv line reason column 4 unclosed quote 5 bare quote",
        "Keys of race: 2 rows match, 0 have no value, 1 match no key",
        "Numbers of age: 2 rows have one, 0 have no value, 1 have another value",
        "age 0 <= x <= 90 0 1",
        "2 units with up to 2 rows; the bound unit.rows = 1 drops 1 rows of 1 unit.",
    ):
        assert answer in words, answer
    assert r"'[red]\x1b[2J'" in said
    assert "\x1b" not in said
    assert sorted(path.name for path in folder.iterdir()) == ["people.csv", "plan.toml"]


@pytest.mark.usefixtures("folder")
def test_a_data_check_for_machines_says_that_it_is_private_first():
    content = document(*CHECK, "--most", 1)
    assert next(iter(content.items())) == ("private", NOTICE)
    assert (content["rows"], content["lines"]["read"]) == (3, 5)
    assert content["queries"][0]["read"] == 2
    assert content["keys"][0]["frequent"] == [{"value": ["[red]\x1b[2J"], "rows": 1}]
    assert len(content["lines"]["listed"]) == 2
    source = document("plan", "check", "plan.toml")["source"]
    assert (source["delimiter"], source["encoding"]) == (";", "latin-1")
    assert source["compression"] == "none"


def test_the_custodian_learns_how_often_a_unit_has_more_rows_than_the_plan_assumes(folder):
    (folder / "plan.toml").write_text(SURVEY.replace('id = "id"\n', ""), encoding="utf-8")
    words = " ".join(asked(*CHECK, "--id", "id").split("\n\n")[-1].split())
    assert words.startswith(NOTICE)
    assert "1 of 2 values of id have more than 1 row. The largest number is 2 rows." in words
    assert document(*CHECK, "--id", "id")["assumed"]["over"] == 1
