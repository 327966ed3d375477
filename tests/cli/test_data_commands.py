"""``neyman data check``: what the custodian is shown, and that each page says it is private."""

import json

import pytest

from commands import answered as asked
from commands import neyman
from neyman.publishing import NOTICE

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")  # Ibis on DuckDB

PLAN = """
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
def folder(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "people.csv").write_bytes(DATA.encode("latin-1"))
    return tmp_path


def test_every_page_of_the_answer_says_that_it_is_private(folder):
    said = asked("data", "check", folder / "plan.toml", "--data", f"people={folder}/people.csv")
    pages = said.split("\n\n")
    assert len(pages) == 5
    for page in pages:
        assert page.startswith(NOTICE)
    words = " ".join(said.split())
    for answer in (
        "survey, table people: 3 rows",
        "Lines: 5 read, 3 rows, 2 dropped",
        "people.csv line reason column 4 unclosed quote 5 bare quote",
        "Keys of race: 2 rows match, 0 have no value, 1 match no key",
        "Numbers of age: 2 rows have one, 0 have no value, 1 have another value",
        "age 0 <= x <= 90 0 1",
        "2 units with up to 2 rows; the bound unit.rows = 1 drops 1 rows of 1 unit.",
        "query level rows unit.rows",
    ):
        assert answer in words, answer
    assert r"'[red]\x1b[2J'" in said
    assert "\x1b" not in said


def test_the_answer_for_machines_says_that_it_is_private_first(folder):
    args = ("data", "check", folder / "plan.toml", "--data", f"people={folder}/people.csv")
    content = json.loads(asked(*args, "--json", "--most", 1))
    assert next(iter(content)) == "private"
    assert content["private"] == NOTICE
    assert (content["rows"], content["lines"]["read"]) == (3, 5)
    assert content["queries"][0]["read"] == 2
    assert content["keys"][0]["frequent"] == [{"value": ["[red]\x1b[2J"], "rows": 1}]
    assert len(content["lines"]["listed"]) == 2


def test_the_check_writes_no_file_and_needs_no_ledger(folder):
    neyman("data", "check", "plan.toml", "--data", "people=people.csv", cwd=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["people.csv", "plan.toml"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--data", "people"], "must be TABLE=PATH"),
        (["--data", "persons=people.csv"], "data has no table 'people'"),
        (["--data", "people=nothing.csv"], "'nothing.csv'"),
        (["--data", "people=people.csv", "--engine", "sqlite"], "engine = 'sqlite'"),
    ],
)
def test_what_a_run_refuses_the_check_refuses(folder, args, said):
    done = neyman("data", "check", "plan.toml", *args, cwd=folder, check=2)
    assert said in done.stderr


def test_the_check_of_a_plan_states_how_lines_are_read(folder):
    said = " ".join(asked("plan", "check", folder / "plan.toml").split())
    assert "latin-1, values separated by ';'" in said
    assert "reads each line by itself, and drops blank and ill-formed lines" in said
    assert "neyman data check" in said
    source = json.loads(asked("plan", "check", folder / "plan.toml", "--json"))["source"]
    assert (source["delimiter"], source["encoding"]) == (";", "latin-1")
    assert source["compression"] == "none"
    assert "each line by itself" in source["rule"]


def test_the_custodian_learns_how_often_a_unit_has_more_rows_than_the_plan_assumes(folder):
    path = folder / "plan.toml"
    path.write_text(PLAN.replace('id = "id"\n', ""), encoding="utf-8")
    args = ("data", "check", path, "--data", f"people={folder}/people.csv", "--id", "id")
    said = asked(*args)
    page = said.split("\n\n")[-1]
    assert page.startswith(NOTICE)
    words = " ".join(page.split())
    assert "The guarantee assumes that each person has at most 1 row." in words
    assert "1 of 2 values of id have more than 1 row. The largest number is 2 rows." in words
    assert "0 rows have no id." in words
    assert json.loads(asked(*args, "--json"))["assumed"]["over"] == 1
