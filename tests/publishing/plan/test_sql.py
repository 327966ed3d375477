"""SELECT as queries of a plan: what each becomes, and where and why others are refused."""

import random

import pytest

from neyman.publishing import Plan, PlanError, parse, translate

BASE = {
    "schema": 2,
    "name": "people",
    "dataset": "people@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one", "id": "id", "rows": 3},
    "tables": {"visits": {"id": "person", "rows": 5}},
    "columns": {
        "sex": {"keys": ["f", "m"]},
        "word": {"discover": True},
        "age": {"type": "whole"},
        "income": {"integer": True},
        "pay": {"decimals": 2},
        "children": {"integer": True, "unknown": 0},
        "member": {"type": "boolean"},
        "born": {"type": "date"},
        "name": {"type": "text"},
        "Ward No": {"keys": [1, 2]},
    },
    "derive": {"years": {"expression": "2025 - year(born)", "range": [0, 100]}},
    "hierarchy": {"place": {"levels": ["state", "county"], "keys": [["IL", "Cook"]]}},
    "budget": {"zcdp": 1},
    "query": [{"measure": "count", "share": 1}],
}
CLIPS = {"income": (0, 100), "age": (0, 120)}


def queries(text, **given):
    """The queries of a statement, in a plan that holds."""
    statement = translate(text, parse(BASE), **given)
    share = {"share": f"1/{len(statement.queries)}"}
    derive = {**BASE["derive"], **statement.derive}
    written = [{**query, **share} for query in statement.queries]
    budget = {"zcdp": 1, "delta": "1e-6"} if "word" in text else {"zcdp": 1}
    Plan.from_dict({**BASE, "tables": {}, "derive": derive, "query": written, "budget": budget})
    return statement


ONE = [
    ("COUNT(*)", {"name": "count", "measure": "count"}),
    ("COUNT(id)", {"name": "count_id", "measure": "count"}),
    ("COUNT(1) AS n", {"name": "n", "measure": "count"}),
    ("COUNT(name)", {"name": "count_name", "measure": "count", "where": "name is not None"}),
    ("COUNT(DISTINCT people.id) u", {"name": "u", "measure": "units"}),
    ("COUNT(DISTINCT sex) AS s", {"name": "s", "measure": "distinct", "column": "sex"}),
    ("COUNT_IF(age > 17) AS a", {"name": "a", "measure": "count", "where": "age > 17"}),
    (
        'COUNT(*) FILTER (WHERE "Ward No" = 1) AS w',
        {"name": "w", "measure": "count", "where": "column('Ward No') == 1"},
    ),
    ("AVG(income)", {"name": "avg_income", "measure": "mean", "column": "income"}),
    ("SUM(years) AS y", {"name": "y", "measure": "sum", "column": "years", "clip": [0, 100]}),
    ("VAR_POP(income) v", {"name": "v", "measure": "variance", "column": "income"}),
    ("STDDEV_POP(income) v", {"name": "v", "measure": "standard_deviation", "column": "income"}),
    ("AVG(age)", {"name": "avg_age", "measure": "mean", "column": "age_2", "clip": [0, 120]}),
    (
        "SUM(CASE WHEN member THEN 1 ELSE 0 END) AS members",
        {"name": "members", "measure": "sum", "column": "members", "clip": [0, 1]},
    ),
]
"""A column of SELECT, and its query."""


@pytest.mark.parametrize(("column", "query"), ONE)
def test_an_aggregate_becomes_a_query(column, query):
    clips = {name: clip for name, clip in CLIPS.items() if f"({name})" in column}
    if query.get("column") == "income":
        query = {**query, "clip": [0, 100]}
    assert queries(f"SELECT {column} FROM people", clips=clips).queries == (query,)


QUANTILES = [
    ("MEDIAN(income)", {"measure": "median"}),
    ("MIN(income)", {"measure": "min"}),
    ("QUANTILE_CONT(income, 0.25)", {"measure": "quantiles", "quantiles": ["0.25"]}),
    (
        "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY income)",
        {"measure": "quantiles", "quantiles": ["0.9"]},
    ),
    ("MAX(income)", {"measure": "max"}),
]


@pytest.mark.parametrize(("column", "fields"), QUANTILES)
def test_quantiles_take_a_clip_and_leave_the_method_to_the_plan(column, fields):
    (query,) = queries(f"SELECT {column} AS q FROM people", clips={"q": (0, 100)}).queries
    assert query == {"name": "q", "column": "income", **fields, "clip": [0, 100]}


WHERE = [
    ("age BETWEEN 18 AND 64 AND NOT member", "(18 <= age <= 64) and (not member)"),
    ("sex IN ('f') OR income IS NOT NULL", "(sex in ['f']) or (not (income is None))"),
    ("born >= '2000-01-31'", "born >= date('2000-01-31')"),
    ("born = DATE '2000-01-31'", "born == date('2000-01-31')"),
    ("pay > 10.50 AND income < 1e3", "(pay > 10.50) and (income < 1000)"),
    ("name = 'O''Hara; DROP TABLE people --'", 'name == "O\'Hara; DROP TABLE people --"'),
    ('name = \'__import__("os").system("id")\'', 'name == \'__import__("os").system("id")\''),
    ("COALESCE(income, 0) > 1", "(income if income is not None else 0) > 1"),
    ("income % 2 = 1", "(income % 2 if income >= 0 else -(-income % 2)) == 1"),
    ("MONTH(born) // 3 = 1", "(month(born) // 3) == 1"),
    ("EXTRACT(ISODOW FROM p.born) = 7", "weekday(born) == 7"),
    ("income < 55.5", "income < 55.5"),
    ("LOWER(name) <> 'x' /* OR TRUE */ -- OR TRUE", "lower(name) != 'x'"),
]


@pytest.mark.parametrize(("condition", "expression"), WHERE)
def test_a_condition_becomes_a_row_expression(condition, expression):
    """A text is a value, whatever it holds, and a comment is nothing."""
    (query,) = queries(f"SELECT COUNT(*) FROM people p WHERE {condition}").queries
    assert query["where"] == expression


def test_groups_come_from_the_plan_by_name_by_position_and_by_alias():
    """Levels of a hierarchy are a level, and an expression with public keys is derived."""
    text = (
        "SELECT sex AS gender, state, MONTH(born) AS month, born > '2000-01-01', COUNT(*) AS n, "
        "AVG(income) FROM people WHERE age > 17 GROUP BY 1, state, month, born > '2000-01-01'"
    )
    statement = queries(text, clips={"income": (0, 100)})
    assert statement.derive == {
        "month": {"expression": "month(born)"},
        "born_2000_01_01": {"expression": "born > date('2000-01-01')"},
    }
    for query in statement.queries:
        assert query["by"] == ["sex", "month", "born_2000_01_01"]
        assert (query["at"], query["where"]) == (["state"], "age > 17")
    assert [name for name, _, _ in statement.selection.columns] == [
        *("gender", "state", "month", "born_2000_01_01", "n", "avg_income")
    ]


def test_the_notes_state_what_differs_from_sql():
    """Groups, rows of a unit, sums over no rows, extremes, and clauses on published numbers."""
    text = (
        "SELECT sex, COUNT(*), SUM(income), MIN(income), AVG(children) FROM people GROUP BY sex "
        "ORDER BY 2"
    )
    notes = " ".join(queries(text, clips={"income": (0, 100), "children": (0, 9)}).notes)
    assert "missing income" not in notes
    for part in (
        "SQL has a group for NULL, and none for a key without rows",
        "COUNT counts rows, at most 3 rows per person",
        "SUM over no rows is 0 with noise, and NULL in SQL",
        "MIN publishes the 1% quantile",
        "act on published numbers alone",
        "A missing children counts as a number that the plan declares",
    ):
        assert part in notes
    (words,) = queries("SELECT word, COUNT(*) FROM people GROUP BY word", delta="1e-9").queries
    assert words["delta"] == "1e-9"
    (visits,) = translate("SELECT COUNT(DISTINCT person) FROM visits", parse(BASE)).queries
    assert (visits["table"], visits["measure"]) == ("visits", "units")


REFUSED = [
    ("SELECT * FROM people", 8, "rows themselves are private"),
    ("SELECT name FROM people", 8, "is not grouped"),
    ("SELECT sex, name, COUNT(*) FROM people GROUP BY sex", 13, "is not grouped"),
    ("SELECT sex FROM people GROUP BY sex", 8, "publishes no number"),
    ("SELECT DISTINCT sex FROM people", 17, "DISTINCT lists values of private rows"),
    ("SELECT COUNT(*) FROM people WHERE name LIKE 'x%'", 35, "patterns"),
    ("SELECT COUNT(*) FROM people WHERE age / income > 1", 35, "division can fail"),
    ("SELECT COUNT(*) FROM people WHERE age // income > 1", 35, "divide by a whole number"),
    ("SELECT COUNT(*) FROM people WHERE age % 0 > 1", 35, "divide by a whole number"),
    ("SELECT COUNT(*) FROM people WHERE born < now()", 42, "changes from run to run"),
    ("SELECT COUNT(*) FROM people WHERE born < CURRENT_DATE", 35, "changes from run to run"),
    ("SELECT COUNT(*) FROM people WHERE age < random()", 41, "changes from run to run"),
    ("SELECT COUNT(*) FROM people WHERE my_func(age)", 35, "not a known function"),
    ("SELECT my_agg(age) FROM people", 8, "not a known function"),
    ("SELECT COUNT(*) FROM people WHERE CAST(name AS INT) = 1", 35, "a cast can fail"),
    ("SELECT COUNT(*) FROM people WHERE TRY_CAST(name AS INT) = 1", 35, "a cast can fail"),
    ("SELECT COUNT(*) FROM people WHERE name::DATE > '2020-01-01'", 35, "a cast can fail"),
    ("SELECT COUNT(*) OVER () FROM people", 8, "window function"),
    ("SELECT COUNT(*) FROM people QUALIFY COUNT(*) > 1", 37, "QUALIFY"),
    ("SELECT COUNT(*) FROM (SELECT * FROM people) q", 30, "subquery"),
    ("SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM people)", 50, "subquery"),
    ("SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM people)", 50, "subquery"),
    ("SELECT (SELECT COUNT(*) FROM people) FROM people", 16, "subquery"),
    ("SELECT COUNT(*) FROM people a JOIN people b ON a.id = b.id", 36, "join would read private"),
    ("SELECT COUNT(*) FROM people, people b", 30, "join would read private"),
    ("SELECT COUNT(*) FROM people UNION ALL SELECT 1", 8, "union"),
    ("SELECT COUNT(*) FROM people EXCEPT SELECT 1", 8, "difference"),
    ("WITH q AS (SELECT 1) SELECT COUNT(*) FROM q", 1, "only a SELECT"),
    ("DROP TABLE people", 1, "only a SELECT"),
    ("SELECT COUNT(*) FROM people; DELETE FROM people", 30, "second statement"),
    ("SELECT COUNT(*) FROM read_csv('x.csv')", 22, "needs FROM with a table"),
    ("SELECT COUNT(*) FROM peple", 22, "did you mean 'people'"),
    ("SELECT AVG(Income) FROM people", 12, "names match with their case; did you mean 'income'"),
    ("SELECT AVG(incme) FROM people", 12, "did you mean 'income'"),
    ('SELECT COUNT(*) FROM people WHERE sex = "f"', 41, "a text has single quotes"),
    ("SELECT COUNT(*) FROM people WHERE q.sex = 'f'", 35, "is of another table"),
    ("SELECT COUNT(*) FROM people WHERE sex = ''", 41, "write IS NULL for = ''"),
    ("SELECT COUNT(*) FROM people WHERE sex NOT IN ('f', '')", 52, "write IS NULL"),
    ("SELECT COUNT(*) FROM people WHERE date_trunc('year', born) = 1", 35, "period.day, 'month'"),
    ("SELECT strftime(born, '%Y') AS y, COUNT(*) FROM people GROUP BY y", 8, "period.day, 'month'"),
    ("SELECT YEAR(born) AS y, COUNT(*) FROM people GROUP BY y", 8, "period.day, 'month'"),
    ("SELECT EXTRACT(YEAR FROM born), COUNT(*) FROM people GROUP BY 1", 26, "period.day, 'month'"),
    (
        "SELECT SUM(income * pay) FROM people",
        12,
        "give clips={'income': .low, high., 'pay': .low, high.}, or --clip income=LOW,HIGH --clip",
    ),
    ("SELECT SUM(income // 2) FROM people", 12, "give clips={'income': .low, high.}"),
    ("SELECT COUNT(*) FROM people WHERE sex = NULL", 35, "write x IS NULL"),
    ("SELECT COUNT(*) FROM people WHERE sex NOT IN ('f', NULL)", 35, "NULL"),
    ("SELECT COUNT(*) FROM people WHERE sex < 'm'", 35, "has no order"),
    ("SELECT COUNT(*) FROM people WHERE member IS TRUE", 35, "only NULL may follow IS"),
    ("SELECT COUNT(*) FROM people WHERE sex IS DISTINCT FROM 'f'", 35, "not in the language"),
    ("SELECT COUNT(*) FROM people WHERE age", 35, "is not a condition"),
    ("SELECT COUNT(*) FROM people WHERE income * income * 9 > 1", 35, "2.53"),
    ("SELECT COUNT(*) FROM people WHERE born > '2023-02-29'", 42, "must be a date"),
    ("SELECT COUNT(*) FROM people WHERE AVG(income) > 1", 35, "is about many rows"),
    ("SELECT AVG(income) FROM people", 12, "needs a clip"),
    ("SELECT COUNT(NULL) FROM people", 8, "NULL has no type"),
    ("SELECT LISTAGG(3) WITHIN GROUP (ORDER BY income) FROM people", 8, "is not a measure"),
    ("SELECT MODE() WITHIN GROUP (ORDER BY income) FROM people", 8, "is not a measure"),
    ("SELECT QUANTILE_CONT(income, [0.1, 0.2]) FROM people", 8, "takes one quantile"),
    ("SELECT AVG(income ORDER BY age) FROM people", 12, "not in the language"),
    ("SELECT COUNT(*) AS n FROM people AS p (a)", 40, "COLUMNS"),
    ("SELECT COUNT(*) FROM people LIMIT 1 + 1", None, "takes a whole number"),
    ("SELECT SUM(DISTINCT income) FROM people", 21, "DISTINCT"),
    ("SELECT SUM(pay * 2) FROM people", 12, "needs a clip"),
    ("SELECT AVG(name) FROM people", 12, "must be a number"),
    ("SELECT VARIANCE(income) FROM people", 8, "VAR_POP"),
    ("SELECT STDDEV(income) FROM people", 8, "STDDEV_POP"),
    ("SELECT SUM(income) / COUNT(*) FROM people", 8, "Compute with published numbers"),
    ("SELECT CORR(income, age) FROM people", 8, "is not a measure of a plan"),
    ("SELECT COUNT(DISTINCT name) FROM people", 23, "has no keys to count"),
    ("SELECT COUNT(DISTINCT sex, word) FROM people", 23, "takes one column"),
    ("SELECT name, COUNT(*) FROM people GROUP BY name", 8, "has no public keys"),
    ("SELECT age * 2 AS a, COUNT(*) FROM people GROUP BY a", 8, "has no public keys of its own"),
    ("SELECT county, COUNT(*) FROM people GROUP BY county", 46, "needs those above"),
    ("SELECT sex, COUNT(*) FROM people GROUP BY sex, 1", 48, "twice"),
    ("SELECT sex, COUNT(*) FROM people GROUP BY 3", 43, "not the number of a column"),
    ("SELECT sex, COUNT(*) FROM people GROUP BY ROLLUP (sex)", 51, "one statement for each"),
    ("SELECT COUNT(*) n, COUNT(*) n FROM people", 20, "second column 'n'"),
    ("SELECT COUNT(*) FROM people HAVING SUM(income) > 1", 36, "is about many rows"),
    ("SELECT COUNT(*) n FROM people HAVING n = 'x'", 38, "mixes a number and text"),
    ("SELECT COUNT(*) n FROM people HAVING n + 1 > 1", 38, "is not a comparison"),
    ("SELECT COUNT(*) n FROM people ORDER BY age", 40, "is not a column"),
    ("SELECT COUNT(*) n FROM people LIMIT -1", 38, "takes a whole number"),
    ("SELECT COUNT(*) n FROM people LIMIT 1 PERCENT", 37, "LIMIT OPTIONS"),
    ("SELECT word, AVG(income) FROM people", 8, "is not grouped"),
    ("SELECT COUNT(*) FROM people TABLESAMPLE (10 PERCENT)", 42, "SAMPLE"),
    ("SELECT COUNT() FROM people", 8, "takes . or a column"),
    ("SELECT COUNT(DISTINCT) FROM people", 8, "takes one column"),
    ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP () FROM people", 8, "is not a measure"),
    ("SELECT COUNT(*) FROM people ORDER BY ALL", 8, "name the columns"),
    ("SELECT COUNT(*) c FROM people HAVING c > 52.3456", 42, "at most 3 decimals"),
    ("SELECT COUNT(*) FROM people WHERE income = 55.5", 35, "derive a clipped column in the plan"),
    ("SELECT COUNT(*) AS age FROM people ORDER BY people.age", 45, "is not grouped"),
    (
        "SELECT COUNT(*) AS sex FROM people GROUP BY people.sex HAVING sex > 2",
        63,
        "is grouped, and not a column of SELECT",
    ),
    ("SELECT COUNT(* FROM people", 16, "is not a SQL"),
    ("SELECT COUNT(*) FROM people WHERE name = 'x", None, "quote or a comment that does not end"),
    ("SELECT COUNT(*) FROM people WHERE name = 'a\\b'", 42, "backslash"),
    ("SELECT COUNT(*) FROM people WHERE name = 'a\"''b'", 42, "both kinds of quotes"),
    ("SELECT COUNT(*) FROM people WHERE age = ?", 35, "is a parameter"),
    ("", None, "only a SELECT"),
]
"""A statement, the column of its first line that the error names, and the reason."""


@pytest.mark.parametrize(("text", "column", "reason"), REFUSED)
def test_what_cannot_be_translated_is_refused_with_its_place(text, column, reason):
    with pytest.raises(PlanError, match=reason) as refused:
        translate(text, parse(BASE))
    if column is not None:
        assert str(refused.value).startswith(f"line 1, column {column}, ")


def test_a_place_has_its_line_and_an_error_of_the_plan_has_one():
    with pytest.raises(PlanError, match=r"line 3, column 9, .name like .x%..: patterns"):
        translate("SELECT COUNT(*)\nFROM people -- é\n  WHERE name like 'x%'", parse(BASE))
    text, clips = "SELECT COUNT(*), AVG(income) FROM people", {"income": (5, 1)}
    statement = translate(text, parse(BASE), clips=clips)
    written = [{**query, "share": "1/2"} for query in statement.queries]
    with pytest.raises(PlanError) as refused:
        Plan.from_dict({**BASE, "tables": {}, "query": written})
    placed = statement.placed(refused.value)
    assert placed.problems[0].startswith("line 1, column 18, 'AVG(income)': query[1].clip")
    text = "SELECT COUNT(*) FROM people HAVING SUM(income) > 3"
    with pytest.raises(PlanError, match=r"line 1, column 36, .SUM\(income\)"):
        translate(text, parse(BASE), clips={"income": (0, 1)})


ARITHMETIC = [
    ("AVG(COALESCE(pay, 10))", "clip(pay, 0, 100) if clip(pay, 0, 100) is not None else 10", 100),
    (
        "SUM(CASE WHEN sex = 'm' THEN pay ELSE 0 END)",
        "clip(pay, 0, 100) if (sex == 'm') else 0",
        100,
    ),
    ("SUM(income * pay)", "clip(income, 0, 50) * clip(pay, 0, 100)", 5000),
    ("SUM(income // 2)", "clip(income, 0, 50) // 2", 25),
    ("SUM(CASE WHEN pay > 500 THEN pay END)", "clip(pay, 0, 100) if (pay > 500) else None", 100),
    ("SUM(NULLIF(pay, 500))", "None if pay == 500 else clip(pay, 0, 100)", 100),
    ("MAX(years * 0.25)", "clip(years, 0, 100) * 0.25", 25),
]
"""An aggregate of arithmetic, its row expression, and the high end of its clip."""


@pytest.mark.parametrize(("column", "expression", "high"), ARITHMETIC)
def test_arithmetic_is_clipped_by_the_clips_of_its_columns(column, expression, high):
    """Where values count, and not in conditions. A clip that nothing needs is no error."""
    clips = {"pay": (0, 100), "income": (0, 50), "other": (3, 4)}
    statement = queries(f"SELECT {column} AS z FROM people", clips=clips)
    assert statement.derive == {"z": {"expression": expression, "range": [0, high]}}
    assert (statement.queries[0]["column"], statement.queries[0]["clip"]) == ("z", [0, high])
    (query,) = queries(f"SELECT {column} AS z FROM people", clips={**clips, "z": (1, 2)}).queries
    assert query["clip"] == [1, 2]


def test_a_comment_is_no_part_of_a_name():
    text = "SELECT /* a */ AVG(/* b */ income -- c\n) /* d */, MONTH(born) /* e */, COUNT(*) -- f\n"
    statement = queries(f"{text} FROM people /* g */ GROUP BY 2", clips=CLIPS)
    assert [query["name"] for query in statement.queries] == ["avg_income", "count"]
    assert list(statement.derive) == ["month_born"]


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        (None, {}, "statement = None: must be the text of a SELECT"),
        (3, {}, "statement = 3"),
        ("SELECT COUNT(*) FROM people", {"clips": "x"}, "clips = 'x': must be a mapping"),
        ("SELECT COUNT(*) FROM people", {"clips": [("x", 1)]}, "must be a mapping"),
        ("SELECT COUNT(*) FROM people", {"delta": "foo"}, "'foo': no group has keys to discover"),
        (
            "SELECT sex, COUNT(*) FROM people GROUP BY sex",
            {"delta": "1e-9"},
            r"key_delta \(--delta\) = '1e-9'",
        ),
    ],
)
def test_an_argument_of_another_type_or_without_use_is_refused_by_name(text, given, says):
    with pytest.raises(PlanError, match=says):
        translate(text, parse(BASE), **given)


def test_the_clip_of_an_alias_comes_before_the_clip_of_its_column():
    """Whatever the order of the clips is, and of a set of their names."""
    text = "SELECT AVG(income) AS pay, SUM(income) FROM people"
    for clips in ({"income": (0, 9), "pay": (0, 5)}, {"pay": (0, 5), "income": (0, 9)}):
        own, other = queries(text, clips=clips).queries
        assert (own["clip"], other["clip"]) == ([0, 5], [0, 9])


def test_an_alias_that_is_a_grouped_column_names_another_query():
    """A query with the name of a key would be taken for it."""
    (query,) = queries("SELECT sex AS x, COUNT(*) AS sex FROM people GROUP BY x").queries
    assert (query["name"], query["by"]) == ("sex_2", ["sex"])


def test_a_row_is_sorted_and_taken_by_the_expression_that_groups_it():
    text = "SELECT MONTH(born), COUNT(*) n FROM people GROUP BY MONTH(born) "
    text += "HAVING MONTH(people.born) > 1 ORDER BY MONTH(born) DESC"
    rows = [{"month_born": month, "n": 9 - month} for month in (1, 2, 3)]
    assert queries(text).selection.rows(rows) == rows[:0:-1]


def test_a_column_that_the_plan_derives_from_the_same_expression_is_used():
    """It keeps its name, and is not derived a second time; another range is another column."""
    base = {**BASE, "derive": {**BASE["derive"], "old": {"expression": "age >= 65"}}}
    text = "SELECT age >= 65 AS old, SUM(2025 - YEAR(born)) AS y FROM people GROUP BY 1"
    statement = translate(text, parse(base), clips={"y": (0, 100)})
    assert statement.derive == {}
    (query,) = statement.queries
    assert (query["by"], query["column"]) == (["old"], "years")
    other = translate(text, parse(base), clips={"y": (0, 99)})
    assert other.derive == {"y": {"expression": "2025 - year(born)", "range": [0, 99]}}


HOSTILE = [
    "SELECT COUNT(*) FROM people WHERE " + "(" * 4000 + "age = 1" + ")" * 4000,
    "SELECT COUNT(*) FROM people WHERE " + "NOT " * 4000 + "member",
    "SELECT COUNT(*) FROM people WHERE age = " + "- " * 4000 + "1",
    "SELECT COUNT(*) FROM people WHERE " + " OR ".join(["age = 1"] * 1500),
    "SELECT COUNT(*) FROM people WHERE " + "CASE WHEN member THEN " * 900 + "1" + " END" * 900,
    "SELECT " + "COUNT(*), " * 1500 + "COUNT(*) FROM people",
    "SELECT COUNT(*) FROM people WHERE name = '" + "x" * 5000 + "'",
    "SELECT COUNT(*) FROM people WHERE age = 1" + "0" * 5000,
    "SELECT COUNT(*) FROM people WHERE age = 1e999999999",
    "SELECT COUNT(*) FROM people LIMIT 9" + "9" * 5000,
    "SELECT COUNT(*) FROM people WHERE name = '\ud800'",
    "SELECT COUNT(*) FROM people WHERE \u202e age = 1",
    "SELECT COUNT(*) FROM people WHERE name = 'a\x00b'",
    "SELECT /* \x00 " + "/*" * 3000,
    "SELECT ﬁ FROM people",
    "x" * 20_001,
    "{{ people }}",
    "SELECT COUNT(*) FROM people $1 AT ROLLUP",
    "SELECT COUNT(*) FROM people WHERE @",
    "SELECT COUNT(*) FROM people WHERE ${x}",
    "PRAGMA foreign_keys",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused(text):
    with pytest.raises(PlanError):
        translate(text, parse(BASE))


WORDS = """
SELECT FROM people WHERE GROUP BY HAVING ORDER LIMIT COUNT(*) AVG ( ) , . * 'x' "sex" sex age 1 0.5
NOT AND OR IN IS NULL BETWEEN CASE WHEN THEN ELSE END AS x = <> < + - / // % DISTINCT FILTER OVER
UNION ALL JOIN ON :: INT DATE '2024-01-01' [ ] { } ; @ $1 ? :n -- /* */ EXTRACT YEAR INTERVAL LIKE
ESCAPE SUM COALESCE LATERAL PIVOT UNNEST ROLLUP é \\ ` -1
"""


def test_text_of_random_tokens_is_translated_or_refused():
    """No other error comes, and what is translated is a plan or is refused by it."""
    words = WORDS.split()
    draw, opening = random.Random(43), ["SELECT COUNT(*) FROM people", "SELECT sex, AVG(age)", ""]
    refused = 0
    for _ in range(2000):
        text = " ".join([draw.choice(opening), *draw.choices(words, k=draw.randrange(1, 9))])
        try:
            translate(text, parse(BASE), clips={"age": (0, 9)} if "age" in text else None)
        except PlanError:
            refused += 1
    assert 1500 < refused < 2000
