"""Random SELECT statements: a plan's exact cells are what DuckDB computes from the same text."""

import random
from datetime import date

import duckdb
import pyarrow as pa
import pytest

from neyman.publishing import (
    Plan,
    PlanError,
    aggregate_cells,
    open_table,
    parse,
    prepared,
    translate,
)
from random_laws import examples

BASE = {
    "schema": 2,
    "name": "sql",
    "dataset": "d@1",
    "table": "t",
    "unit": {"protects": "row", "neighboring": "replace-one"},
    "columns": {
        "g": {"keys": ["a", "b", "ü"]},
        "k": {"keys": [1, 2, 3]},
        "x": {"integer": True},
        "y": {"type": "whole"},
        "p": {"decimals": 1},
        "b": {"type": "boolean"},
        "d": {"type": "date"},
        "s": {"type": "text"},
    },
    "budget": {"zcdp": 1},
    "query": [{"measure": "count", "share": 1}],
}
CLIPS = {"x": (-9, 9), "y": (-9, 9), "z": (-20_000, 20_000), "p": (-9, 9)}
STATEMENTS = examples(16, least=3)
FILTERS = 6
TENTHS = "SUM(COALESCE(p, 1))", "SUM(CASE WHEN g = 'a' THEN p ELSE 0 END)", "SUM(x * p)"
# A plan counts the listed keys of a column.
LISTED = "COUNT(DISTINCT g)", "COUNT(DISTINCT g) FILTER (WHERE g IN ('a', 'b', 'ü'))"


def a_table(draw, rows):
    """Rows with NULL in each column, keys that no plan lists, and both signs."""

    def column(values, kind):
        return pa.array([draw.choice([*values, None]) for _ in range(rows)], kind)

    days = [f"2024-{month:02}-{day:02}" for month in (1, 2, 12) for day in (1, 28)]
    return pa.table(
        {
            "g": column(["a", "b", "ü", "A", "a "], pa.string()),
            "k": column([1, 2, 3, 4], pa.int64()),
            "x": column(range(-9, 10), pa.int64()),
            "y": column(range(-3, 4), pa.int64()),
            "p": column([-2.5, 0.0, 0.5, 7.0], pa.float64()),
            "b": column([True, False], pa.bool_()),
            "d": column(map(date.fromisoformat, days), pa.date32()),
            "s": column(["I10", "J1", "j1", "é", "e"], pa.string()),
        }
    )


def a_number(draw, depth=2):
    one = lambda: a_number(draw, depth - 1)  # noqa: E731
    leaves = ["x", "y", "k", "t.x", '"y"', str(draw.randrange(-3, 9)), "MONTH(d)", "-y"]
    if depth <= 0:
        return draw.choice(leaves)
    return draw.choice(
        [
            *leaves,
            f"{one()} + {one()}",
            f"({one()} - {one()})",
            f"{one()} - {one()}",
            f"{draw.choice(['y', 'k'])} * {draw.randrange(-2, 3)}",
            f"{draw.choice(leaves[:5])} // {draw.randrange(1, 5)}",
            f"{draw.choice(leaves[:5])} % {draw.randrange(1, 5)}",
            f"ABS({one()})",
            f"COALESCE({one()}, {one()})",
            f"NULLIF({one()}, {one()})",
            f"CASE WHEN {a_condition(draw, depth - 1)} THEN {one()} ELSE {one()} END",
            f"CASE WHEN {a_condition(draw, depth - 1)} THEN {one()} END",
            "EXTRACT(year FROM d) - 2020",
            "(d - DATE '2024-01-15')",
            "ISODOW(d)",
        ]
    )


def a_condition(draw, depth=2):
    one = lambda: a_condition(draw, depth - 1)  # noqa: E731
    n = lambda: a_number(draw, min(depth, 1))  # noqa: E731
    sign = draw.choice(["=", "<>", "!=", "<", "<=", ">", ">="])
    leaves = [
        f"{n()} {sign} {n()}",
        f"{n()} BETWEEN {n()} AND {n()}",
        f"{n()} NOT BETWEEN {n()} AND {n()}",
        f"x IN ({', '.join(str(draw.randrange(-3, 9)) for _ in range(3))})",
        f"y NOT IN (1, {draw.randrange(-3, 3)})",
        f"p {sign} {draw.choice(['0.5', '.5', '7', '-2.5', '1e0'])}",
        f"g {draw.choice(['=', '<>'])} '{draw.choice(['a', 'A', 'b', 'ü'])}'",
        "g IN ('a', 'a ', 'b')",
        "s NOT IN ('é', 'J1')",
        f"{draw.choice('xy')} {draw.choice(['<', '<=', '>', '>='])} {draw.choice(['2.5', '-.5'])}",
        f"{draw.choice(['2.5', '-0.5'])} {draw.choice(['<', '<=', '>', '>='])} {draw.choice('xy')}",
        f"d {sign} '2024-02-01'",
        "d BETWEEN DATE '2024-01-28' AND '2024-02-28'",
        f"{draw.choice(['x', 'g', 'b', 'd', 'p'])} IS {draw.choice(['', 'NOT '])}NULL",
        "b",
        "b = TRUE",
        "STARTS_WITH(s, 'J')",
        "LOWER(s) = 'j1'",
    ]
    if depth <= 0:
        return draw.choice(leaves)
    return draw.choice(
        [
            *leaves,
            *[f"{one()} AND {one()}", f"{one()} OR {one()}", f"NOT {one()}"] * 3,
            *[f"({one()} OR {one()})", f"NOT ({one()} AND {one()})"] * 3,
        ]
    )


def a_statement(draw):
    """One SELECT with filters of its own for each aggregate."""
    aggregates = ["COUNT(*)", "COUNT(x)", "SUM(x)", "AVG(x)", "VAR_POP(y)", "SUM(p)"]
    columns = [f"{aggregate} AS a{number}" for number, aggregate in enumerate(aggregates)]
    columns += [f"{aggregate} AS t{i}" for i, aggregate in enumerate(TENTHS)]
    columns += ["SUM(x // 2) AS h", "COUNT(DISTINCT g) AS a6", f"SUM(({a_number(draw)}) + 0) AS z"]
    columns += [f"COUNT_IF({a_condition(draw)}) AS c"]
    columns += [f"COUNT(*) FILTER (WHERE {a_condition(draw)}) AS f{i}" for i in range(FILTERS)]
    group = draw.choice(["", "", "g", "k", "b OR k = 1", "MONTH(d)", "x > 3 AND b"])
    where = f" WHERE {a_condition(draw)}" if draw.random() < 0.7 else ""
    text = f"SELECT {', '.join(columns + ([f'{group} AS key'] if group else []))} FROM t{where}"
    return text + (f" GROUP BY {group}" if group else "")


def exact_cells(statement, table):
    """What each aggregate of a statement publishes before noise, by the text of the key."""
    queries = [{**query, "share": f"1/{len(statement.queries)}"} for query in statement.queries]
    plan = Plan.from_dict({**BASE, "derive": dict(statement.derive), "query": queries})
    with prepared(plan, open_table(table)) as rows:
        cells = {name: c.dense().ravel() for name, c in aggregate_cells(plan, rows).items()}
    results = {}
    for query in plan.queries:
        keys = plan.column(query.by[0]).keys if query.by else (None,)
        parts = {part: values for (name, _, part), values in cells.items() if name == query.name}
        for number, key in enumerate(keys):
            results[query.name, key] = {part: int(v[number]) for part, v in parts.items()}
    return results


def expected(name, value, parts):
    """Whether the integers of a plan are the value that SQL has."""
    if name == "a3":  # AVG, whose clip has the middle 0
        return value is None if not parts["count"] else value == parts["offset"] / parts["count"]
    if name == "a4":
        n = parts["count"]
        right = parts["square"] / n - (parts["offset"] / n) ** 2 if n else None
        return value is None if right is None else value == pytest.approx(right)
    (number,) = parts.values()
    if name in ("a5", "t0", "t1", "t2"):  # in tenths
        return round(10 * (value or 0)) == number
    return (value or 0) == number  # SUM over no rows is NULL in SQL


@pytest.mark.random
def test_random_statements_have_the_cells_that_duckdb_computes():
    """Filters, cases, and arithmetic with NULL: several conditions in each of the statements."""
    draw, done, refused = random.Random(20261127), 0, 0
    while done < STATEMENTS:
        table, text = a_table(draw, draw.choice([0, 3, 60])), a_statement(draw)
        try:
            statement = translate(text, parse(BASE), clips=CLIPS)
        except PlanError as error:
            refused += 1
            # At most a third are refused. Of the first few, all may be.
            if refused <= 12 + done and ("steps" in str(error) or "2^53" in str(error)):
                continue
            raise
        cells = exact_cells(statement, table)
        with duckdb.connect() as connection:
            connection.register("t", table)
            rows = connection.sql(text.replace(*LISTED)).to_arrow_table().to_pylist()
        answers = {row.get("key"): row for row in rows}
        for (name, key), parts in cells.items():
            value = answers.get(key, {}).get(name)
            assert expected(name, value, parts), (text, name, key, value, parts)
        done += 1


def a_selection(draw):
    """A SELECT, and its clauses on published numbers; an alias may be the name of a column."""
    names = draw.sample(["k", "x", "y", "d", "n", "m"], 4)
    forms = ["t.k", "MONTH(d)", "COUNT(*)", "SUM(x)"]
    items = [f"{form} AS {name}" for form, name in zip(forms, names, strict=True)]
    draw.shuffle(items)
    spots = [*names, *forms, "k", "MONTH(t.d)"]
    conditions = [f"{draw.choice(spots)} {sign} {draw.randrange(4)}" for sign in (">", "<=", "<>")]
    having = draw.choice(["", f" HAVING {conditions[0]} OR NOT ({' AND '.join(conditions[1:])})"])
    order = f" ORDER BY {draw.choice(spots)} {draw.choice(['', 'DESC'])}, t.k, MONTH(t.d)"
    where = "WHERE k IS NOT NULL AND d IS NOT NULL GROUP BY t.k, MONTH(d)"
    return f"SELECT {', '.join(items)} FROM t {where}", f"{having}{order} LIMIT {draw.randrange(9)}"


@pytest.mark.random
def test_random_clauses_on_published_numbers_select_what_duckdb_selects():
    """A name in HAVING and ORDER BY is the column that SQL takes, of several with this name."""
    draw, done, refused = random.Random(20261127), 0, 0
    with duckdb.connect() as connection:
        connection.register("t", a_table(draw, 60))
        while done < examples(120):
            text, clauses = a_selection(draw)
            try:
                selected = translate(text + clauses, parse(BASE), clips={"x": (-9, 9)}).selection
            except PlanError:
                refused += 1
                assert refused <= 12 + done  # at most a quarter are refused
                continue
            every, few = (
                connection.sql(sql).to_arrow_table().to_pylist() for sql in (text, text + clauses)
            )
            assert selected.rows(every) == few, text + clauses
            done += 1
