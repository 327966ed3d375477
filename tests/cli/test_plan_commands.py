"""``neyman calibrate plan.toml`` and ``neyman plan split``: both ways, and what is refused."""

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from commands import answered as asked
from commands import neyman
from mixed_plan import MIXED
from neyman.publishing import Plan, threshold


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


def test_the_answer_can_be_read_and_drawn(plan, tmp_path):
    said = asked("calibrate", plan, "--error", "race", 10, "--out", tmp_path / "c.svg")
    assert '[budget] zcdp = "' in said
    assert "error of race.county" in said
    root = ET.parse(tmp_path / "c.svg").getroot()
    assert root.tag.endswith("svg")
    words = {text.strip() for text in root.itertext()}
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
    """The errors of means are told at 1,000 rows, and drawn there."""
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


def test_a_check_says_how_far_off_the_tables_will_be(plan):
    said = asked("plan", "check", plan)
    assert "10,000 rows" in said
    assert "% less: neyman plan split" in said
    assert "consistent" in said
    content = json.loads(asked("plan", "check", plan, "--json"))["errors"]
    assert {error["table"] for error in content} >= {"total.state", "mean age.all"}


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
    said = " ".join(asked("plan", "check", plan).split())
    assert said.count("An attacker who knows everyone else’s record and would") == 3
    assert said.count("after they know all other records") == 1
    assert "the data themselves 100%." in said
    (first, *_) = json.loads(asked("plan", "check", plan, "--json"))["attacks"]
    curve = Plan.load(plan).mechanism().tradeoff()
    assert first["upper"] == curve.success("1/20").upper
    assert any("default record" in each or "in the data" in each for each in first["conditions"])


def test_a_check_lists_the_key_file_and_warns_about_keys_that_look_private(plan, tmp_path):
    rows = "".join(f"{n},{1000 + n}\n" for n in range(40))
    (tmp_path / "places.csv").write_text("state,ssn\n" + rows)
    keys = MIXED[MIXED.index("keys = [[") : MIXED.index("[budget]")]
    text = MIXED.replace(keys, 'keys = "places.csv"\n').replace("county", "ssn")
    plan.write_text(text.replace("[unit]", "most_rows = 50\n[unit]\nrows = 1"))
    said = asked("plan", "check", plan)
    assert "Key file places.csv: 40 places (state 40, ssn 40)." in said
    assert "Warning: The level 'ssn' is named like an identifier of a person" in said
    assert "Warning: The level 'ssn' has 40 keys, and the plan declares 50 rows." in said
    content = json.loads(asked("plan", "check", plan, "--json"))
    assert content["keys"] == [
        {"hierarchy": "place", "file": "places.csv", "places": {"state": 40, "ssn": 40}}
    ]
    assert [warning.split(" has ")[0].split(" is ")[0] for warning in content["warnings"]] == [
        "The level 'state'",
        "The level 'ssn'",
        "The level 'ssn'",
    ]


def test_a_check_of_public_keys_in_the_plan_warns_about_nothing(plan):
    said = asked("plan", "check", plan)
    assert "Warning" not in said
    assert "Key file" not in said
    assert json.loads(asked("plan", "check", plan, "--json"))["warnings"] == []


def test_a_split_is_written_beside_the_plan(plan, tmp_path):
    said = json.loads(asked("plan", "split", plan, "--weight", "race=4", "--json"))
    asked("plan", "split", plan, "--weight", "race=4", "--out", tmp_path / "split.toml")
    product = Plan.load(tmp_path / "split.toml")
    got = {}
    for entry in product.entries():
        name = f"{entry.query}.{entry.level}"
        got[name] = got.get(name, 0) + entry.share
    assert {name: str(share) for name, share in got.items()} == {
        s["table"]: s["share"] for s in said["shares"]
    }


def test_a_plan_that_states_weights_is_explained_by_them(plan, tmp_path):
    said = " ".join(asked("plan", "check", plan).split())
    assert "weight" not in said
    assert "split" not in json.loads(asked("plan", "check", plan, "--json"))
    asked("plan", "split", plan, "--weight", "race=4", "--out", tmp_path / "split.toml")
    said = " ".join(asked("plan", "check", tmp_path / "split.toml").split())
    assert "less than with equal shares. No other shares would lower it" in said
    assert "race county 15 4" in said
    content = json.loads(asked("plan", "check", tmp_path / "split.toml", "--json"))["split"]
    assert content == json.loads(asked("plan", "split", tmp_path / "split.toml", "--json"))
    assert {s["table"]: s["weight"] for s in content["shares"]}["race.county"] == "4"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("calibrate", "PLAN"), "give --error"),
        (("calibrate", "PLAN", "--error", "race", "10", "--zcdp", "1"), "not both"),
        (("calibrate", "PLAN", "--zcdp", "1", "--interval"), "modify --error"),
        (("calibrate", "PLAN", "--error", "rase", "10"), "no such table"),
        (("calibrate", "PLAN", "--error", "race", "1e9"), "must be between 1e-15 and 1e4"),
        (("calibrate", "PLAN", "--error", "pay", "1"), "must be between 1e-15 and 1e4"),
        (("calibrate", "Gaussian(x)", "--error", "rase", "10"), "are for a plan"),
        (("calibrate", "PLAN", "--zcdp", "1", "--out", "curve.png"), "must end in .svg"),
        (("plan", "split", "PLAN", "--out", "split.json"), "must end in .toml"),
        (("plan", "split", "PLAN", "--weight", "race"), "must be TABLE=NUMBER"),
        (("plan", "split", "PLAN", "--out", "/nowhere/x.toml"), "in the folder of the plan"),
        (("plan", "split", "PLAN", "--out", "PLAN"), "already exists: name a new file"),
    ],
)
def test_what_cannot_be_meant_is_refused(plan, args, words):
    """Bad input is exit code 2, and the message says what would be right."""
    before = plan.read_bytes()
    answer = asked(*(plan if a == "PLAN" else a for a in args), "--json", code=2)
    assert words in json.loads(answer)["error"]
    assert plan.read_bytes() == before


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


def test_plan_check_prints_how_many_people_a_discovered_key_needs(tmp_path):
    """The threshold is the one that a run uses; a key of so many people passes 95% of the time."""
    path = tmp_path / "plan.toml"
    path.write_text(DISCOVERY.replace("epsilon = 100", "epsilon = 1"))
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
    """Epsilon 100 is allowed, but not without a word."""
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


@pytest.mark.parametrize(
    ("word", "right"),
    [("percentile", "quantiles"), ("avg", "mean"), ("unique", "distinct"), ("sums", "sum")],
)
def test_another_word_for_a_measure_is_answered_with_its_name(tmp_path, word, right):
    path = tmp_path / "plan.toml"
    path.write_text(DISCOVERY.replace('measure = "units"', f'measure = "{word}"'))
    failure = json.loads(asked("plan", "check", path, "--json", code=2))
    assert f"did you mean '{right}'?" in failure["error"]


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
    """A section for the new column would take the fields below it, which the plan needs."""
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
