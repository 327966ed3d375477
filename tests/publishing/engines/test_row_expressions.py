"""Row expressions: one answer on DuckDB, on Spark, and in plain Python, and none that can raise."""

import bisect
import datetime as dt
import itertools
import json
import math
import operator
import random
import re
import sqlite3
import unicodedata
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neyman.publishing import (
    COLUMN_LIMIT,
    DataError,
    Plan,
    PlanError,
    aggregate_cells,
    check_schema,
    columns_read,
    open_table,
    prepared,
    words,
)
from plain_engine import canonical, exact
from random_laws import examples

BASE = {
    "schema": 2, "name": "p", "dataset": "d@1", "table": "t",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {
        "n": {"type": "whole"}, "m": {"decimals": 2}, "s": {"type": "text"},
        "b": {"type": "boolean"}, "d": {"type": "date"}, "k": {"keys": ["x", "y"]},
    },
    "budget": {"zcdp": 1}, "query": [{"name": "q", "measure": "count", "by": ["k"], "share": 1}],
}  # fmt: skip


def a_plan(**sections):
    return Plan.from_dict(BASE | sections)


# ---- plain Python ------------------------------------------------------------------------------


def read(value, reading):
    if reading.type == "text":
        return canonical(value)
    if reading.type == "boolean":
        return {"true": True, "false": False}.get(canonical(value, "boolean"))
    if reading.type == "date":
        return day(value)
    if isinstance(value, str):
        value = exact(value)
    if value is None or value != value:
        return None
    if value in (math.inf, -math.inf):
        return COLUMN_LIMIT if value > 0 else -COLUMN_LIMIT
    if isinstance(value, float):
        scaled = value * 10.0**reading.scale if abs(value) < 1e300 else value
        near = math.floor(scaled + 0.5)
        close = abs(near - scaled) <= abs(scaled) * 2.0**-50 and abs(scaled) < 2.0**49
        number = near if close else math.floor(scaled)
    else:
        number = math.floor(Fraction(value) * 10**reading.scale)
    return min(max(number, -COLUMN_LIMIT), COLUMN_LIMIT)


def on_clocks(value, zone):
    """A timestamp on the clocks of a zone; None where its year is outside 1 to 9999."""
    if getattr(value, "tzinfo", None) is None:
        return value
    try:
        return value.astimezone(ZoneInfo(zone))
    except OverflowError:
        return None


def hour(value):
    """The hour of a timestamp, or of a text that has a day and a time."""
    if isinstance(value, str):
        return int(value[11:13]) if day(value) is not None and len(value) > 10 else None
    return None if value is None else value.hour


def is_time(text):
    """Whether a text is a time of day: HH:MM, perhaps with seconds, a fraction and an offset."""
    clock, offset = re.fullmatch(r"(.*?)(Z|z|[+-].*)?", text, re.DOTALL).groups()
    digits = re.fullmatch(r"[+-](\d\d):?(\d\d)?", offset or "+00", re.ASCII)
    parts = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?", clock, re.ASCII)
    if parts is None or (digits is None and offset not in ("Z", "z")) or (offset or "")[-1:] == ":":
        return False
    limits = (24, 60, 60)
    fits = all(int(part or 0) < most for part, most in zip(parts.groups(), limits, strict=True))
    return fits and (digits is None or (int(digits[1]) < 24 and int(digits[2] or 0) < 60))


def day(value):
    """A date, a timestamp, or a text that is a day."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{4}-[0-9]{2}-[0-9]{2})([T ].*)?", value, re.DOTALL)
        if match and match[2] and not is_time(match[2][1:]):
            return None
        try:
            value = dt.date.fromisoformat(match[1]) if match else None
        except ValueError:
            return None
    return None if value is None else value.year * 10000 + value.month * 100 + value.day


def calendar(number):
    return dt.date(number // 10000, number // 100 % 100, number % 100)


COMPARED = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


CASED = {chr(point) for point in (*range(0x41, 0x590), *range(0x1E00, 0x2000))}
PICTURES = {chr(point) for point in (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00))}


def in_case(text, change):
    """Letters of Latin, Greek, Cyrillic and Armenian, each replaced by one of them, if by one."""
    changed = [(c, getattr(c, change)() if c in CASED else c) for c in text]
    return "".join(other if other in CASED else c for c, other in changed)


def normal(text):
    """The form NFC; a text with a character that Unicode 3.2 did not have stays."""
    old = unicodedata.ucd_3_2_0.category
    settled = all(
        (c > "\0" and ord(c) < 0x30000 and old(c) not in ("Cn", "Cs")) or c in PICTURES
        for c in text
    )
    return unicodedata.normalize("NFC", text) if settled else text


def text_of_period(day, unit):
    form = {"day": "%m-%d", "month": "%m", "quarter": f"Q{-(-day.month // 3)}", "year": ""}[unit]
    return f"{day.year:04d}-{day.strftime(form)}".rstrip("-")


def value_of(node, row):
    """An expression's value by the rules of the language, one row at a time."""
    if node.op == "literal":
        return node.value
    if node.op == "none":
        return None
    if node.op == "column":
        return row[node.value]
    if node.op == "hour":
        return row["hour of", node.parts[0].value]
    values = [value_of(part, row) for part in node.parts]
    if node.op == "missing":
        return values[0] is None
    if node.op in ("and", "or"):
        settles = node.op == "or"
        if settles in values:
            return settles
        return None if None in values else not settles
    if node.op == "choose":
        return values[1] if values[0] is True else values[2]
    if None in values:
        return None
    first = values[0]
    result = {
        "not": lambda: not first, "compare": lambda: COMPARED[node.value](first, values[-1]),
        "member": lambda: first in node.value, "add": lambda: first + values[1],
        "subtract": lambda: first - values[1], "multiply": lambda: first * values[1],
        "divide": lambda: first // node.value, "modulo": lambda: first % node.value,
        "clip": lambda: min(max(first, node.value[0]), node.value[1]),
        "starts": lambda: first.startswith(node.value), "year": lambda: calendar(first).year,
        "quarter": lambda: (calendar(first).month + 2) // 3, "month": lambda: calendar(first).month,
        "day": lambda: calendar(first).day, "weekday": lambda: calendar(first).isoweekday(),
        "period": lambda: text_of_period(calendar(first), node.value),
        "ordinal": lambda: calendar(first).toordinal(), "lower": lambda: in_case(first, "lower"),
        "upper": lambda: in_case(first, "upper"), "strip": lambda: first.strip() or None,
        "normalize": lambda: normal(first),
    }[node.op]()  # fmt: skip
    if node.type == "number":
        assert node.low <= result <= node.high
        assert abs(result) <= 2**53
    return result


def derived(one, row):
    if one.rule == "case":
        true = (label for _, node, label in one.cases if value_of(node, row) is True)
        return next(true, one.unknown)
    values = tuple(value_of(node, row) for node in one.nodes)
    value = values[0]
    if one.rule == "cut":
        inside = (
            label
            for low, high, label in zip(one.edges, one.edges[1:], one.labels, strict=False)
            if value is not None and low <= value < high
        )
        return next(inside, one.unknown)
    if one.pairs:
        return {tuple(key): label for *key, label in one.pairs}.get(values, one.unknown)
    if one.ends is not None and value is not None:
        return min(max(value, one.ends[0]), one.ends[1])
    return value


def plain(plan, rows):
    """Each row that the plan's filter takes, with its derived columns and filters."""
    results = []
    for values in rows:
        zones = dict(plan.rows.zones)
        source = {name: on_clocks(value, zones.get(name)) for name, value in values.items()}
        row = {("hour of", name): hour(source[name]) for name in plan.rows.hours}
        row |= {name: read(source[name], reading) for name, reading in plan.rows.readings}
        for one in plan.rows.derived:
            row[one.name] = derived(one, row)
        if plan.rows.where is None or value_of(plan.rows.filter(plan.rows.where), row) is True:
            results.append({one.name: row[one.name] for one in plan.rows.derived})
    return results


def on_engine(plan, table, engine="duckdb"):
    form = open_table(table, engine, rows=False)
    columns = columns_read(plan, list(form.columns))
    check_schema(plan, form)
    opened = open_table(table, engine, columns or None)
    with prepared(plan, opened) as rows:
        names = [one.name for one in plan.rows.derived]
        backend = rows.get_backend()
        selected = rows.select(*names)
        if engine == "duckdb":
            answer = selected.to_pyarrow()
        else:
            backend._run_pre_execute_hooks(selected)
            answer = backend._session.sql(backend.compile(selected)).toArrow()
        return [
            {name: v.decode() if isinstance(v, bytes) else v for name, v in row.items()}
            for row in answer.to_pylist()
        ]


def agree(plan, table, engine="duckdb"):
    def ordered(rows):
        return sorted(rows, key=lambda row: [(v is None, str(v)) for v in row.values()])

    assert ordered(on_engine(plan, table, engine)) == ordered(plain(plan, table.to_pylist()))


# ---- hostile rows ------------------------------------------------------------------------------

NUMBERS = [
    "0", "-0", "7", "007", "7.0", "1e3", "-1.5", "1e400", "inf", "-Infinity", "nan", "", "9" * 40,
    "1e-9", ".5", "5.", " 7", "x", "٣", "1_000", "0x10", None,
]  # fmt: skip
DAYS = [
    "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "0001-01-01", "0000-01-01",
    "9999-12-31", "2024-13-01", "2024-00-10", "2024-04-31", "2024-1-1", "2024-12-31T23:59",
    "2024-12-31 00:00:00.000Z", "2024-12-31x",
    *(
        f"2024-12-31T{time}" for time in (
            *(
                "25:00", "24:00", "23:60", "23:59:60", "23:59:59", "7:00", "07", "07:5", "",
                "07:00 ",
            ),
            *("00:00:00.123456789012", "00:00:00.", "00:00:00,5", "00:00.5", "09:30z", "09:30Zx"),
            *("09:30+02", "09:30+0200", "09:30-02:00", "09:30+24:00", "09:30+02:60", "09:30+2"),
            *("07:00 ", "09:30+02:", "09:30:00.5+02:00", "09:30\n", "٠٩:30"),
        )
    ),
    "2023-02-29T10:00", "+2024-01-01", "", "é", None,
]  # fmt: skip
TEXTS = [
    "x", "y", "X", "", " x", "é", "e\u0301", "true", "it's", '"', "\\", "%", "\x00a", "\n", "drop",
    "🙂", None,
]  # fmt: skip
TRUTHS = ["true", "T", "1", "1.0", "false", "f", "0", "yes", "", None]
TABLE = pa.table({
    "n": pa.array([NUMBERS[i % len(NUMBERS)] for i in range(400)], pa.string()),
    "m": pa.array([NUMBERS[(i * 5 + 1) % len(NUMBERS)] for i in range(400)], pa.string()),
    "s": pa.array([TEXTS[(i * 3) % len(TEXTS)] for i in range(400)], pa.string()),
    "b": pa.array([TRUTHS[(i // 3) % len(TRUTHS)] for i in range(400)], pa.string()),
    "d": pa.array([DAYS[(i * 7) % len(DAYS)] for i in range(400)], pa.string()),
    "k": pa.array([TEXTS[(i // 7) % len(TEXTS)] for i in range(400)], pa.string()),
})  # fmt: skip
TYPED = pa.table({
    "n": pa.array([0, -1, 2**63 - 1, -(2**63), None, 17, 18, 64, 65], pa.int64()),
    "m": pa.array([0.29, -0.0, math.nan, math.inf, -math.inf, None, 1e308, 12.5, 1e15]),
    "s": pa.array(["x", "y", None, "", "é", "X", "it's", "J45", "K"]),
    "b": pa.array([True, False, None] * 3),
    "d": pa.array([
        dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2024, 2, 29), dt.date(2023, 1, 1),
        dt.date(1970, 1, 1), dt.date(1582, 10, 10), dt.date(2000, 12, 31), dt.date(1600, 3, 1),
    ]),
    "k": pa.array(["x", "y", "z", None, "x", "y", "x", "y", "x"]),
})  # fmt: skip
DERIVE = {
    "band": {"cut": "n", "edges": [0, 18, 65], "labels": ["minor", "adult"], "unknown": "old"},
    "cents": {"cut": "m", "edges": [0, "12.5", 1000], "labels": ["low", "high"]},
    "year": {"expression": "year(d)", "range": [0, 9999]}, "quarter": {"expression": "quarter(d)"},
    "month": {"expression": "month(d)"}, "dom": {"expression": "day(d)"},
    "weekday": {"expression": "weekday(d)"},
    **{
        f"by {unit}": {
            "expression": f"period(d, '{unit}')"
        } for unit in ("day", "month", "quarter", "year")
    },
    "age": {"expression": "d - date('2000-02-29')", "range": [-(10**6), 3 * 10**6]},
    "no days": {"expression": "d - d == 0 and date('2024-03-01') - date('2024-02-28') == 2"},
    "late": {"case": [["period(d, 'year') == '2024'", "late"]]},
    "mapped": {"map": "s", "to": {"x": "X", "é": "E", "it's": "q", '"': "q"}, "unknown": "else"},
    "cased": {"case": [["n >= 18 and b", "a"], ["d < date('2000-01-01')", "b"]]},
    "twice": {"expression": "n * 2 + 1", "range": [-10, 1000]},
    "halved": {"expression": "n // 7", "range": [-(10**15), 10**15]},
    "rest": {"expression": "n % 7"}, "negated": {"expression": "not b"},
    "known": {"expression": "n is not None or b"},
    "chosen": {"expression": "'p' if m > 12.5 else 'q' if s == 'x' else None"},
    "begins": {"expression": "starts(s, 'J')"}, "cleaned": {"expression": "lower(strip(s))"},
    "shouted": {"map": "upper(k)", "to": {"X": "x", "É": "e"}, "unknown": "else"},
    "decimals": {"expression": "clip(m, -100, 100) * 0.5", "range": ["-20.125", "49.5"]},
    "second": {"expression": "weekday + clip(n, -5, 5)", "range": [0, 99]},
}  # fmt: skip
LOOKUP = {
    "looked": {
        "column": "s",
        "keys": [["x", "1"], ["é", "2"], *([f"text {i}", "3"] for i in range(40))],
        "unknown": "none",
    },
    "open": {"column": "k", "keys": [["x", "1"], *([f"text {i}", "3"] for i in range(40))]},
    "both": {
        "column": ["s", "column('k')"],
        "keys": [[s, k, f"{s == k}"] for s in ("x", "é", " x", "X") for k in ("x", "y", "é", "X")],
        "unknown": "none",
    },
    "few": {"column": ["k", "s"], "keys": [["x", "x", "1"], ["y", "x", "2"], ["x", "é", "1"]]},
    "chained": {
        "column": ["both", "few", "looked"],
        "keys": [["True", "1", "1", "a"], ["none", "1", "1", "b"], ["False", "2", "1", "a"]],
        "unknown": "c",
    },
    "last": {"column": "chained", "keys": [["a", "A"], ["b", "B"]]},
}
TIMES = {"hour": {"expression": "hour(d)"}, "late": {"expression": "hour(d) >= 18 or n is None"}}
WHERE = "not (n == 17) or s in ['x', 'é'] or d is None"


def test_each_rule_gives_what_plain_python_gives():
    for table in (TABLE, TYPED):
        agree(a_plan(derive=DERIVE, lookup=LOOKUP), table)
        agree(a_plan(derive=DERIVE, lookup=LOOKUP, where=WHERE), table)
    assert len(on_engine(a_plan(derive=DERIVE, where="n >= 18"), TYPED)) == 4


def test_spark_gives_what_plain_python_gives(spark_running):
    for table in (TABLE, TYPED):
        agree(a_plan(derive=DERIVE, lookup=LOOKUP, where=WHERE), table, "spark")


# ---- times -------------------------------------------------------------------------------------

FIRST, LAST = -62_135_596_800, 253_402_300_799  # the seconds of the years 1 to 9999
SECONDS = [FIRST, LAST, -1, 0, 1, 951_782_400, None, -(10**9), FIRST - 1, LAST + 1]
SECONDS += [random.Random(0).randrange(FIRST, LAST) for _ in range(600)]
SECONDS += [random.Random(1).randrange(-5 * 10**9, 6 * 10**9) for _ in range(900)]


def timed(unit, zone=None, seconds=SECONDS):
    """A table of timestamps, a fraction of a second after each of some seconds where it fits."""
    size = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    least = {"ns": 9 * 10**9}.get(unit, 10**12)
    numbers = [s * size + size // 3 if s is not None and abs(s) < least else None for s in seconds]
    rows = list(range(len(numbers)))
    times = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, zone))
    return pa.table({"n": rows, "d": times, "k": pa.array(["x"] * len(rows))})


def by_time(zone=None):
    """A plan of the parts of a timestamp, and of the texts that they give."""
    date = {"type": "date"} | ({} if zone is None else {"zone": zone})
    read = ["year", "quarter", "month", "dom", "weekday", "by day", "age"]
    derive = {name: DERIVE[name] for name in read} | TIMES
    derive |= {"row": {"expression": "n", "range": [0, 10**6]}}
    return a_plan(columns=BASE["columns"] | {"d": date}, derive=derive)


def in_python(table):
    """The rows as Python has them: a timestamp outside the years 1 to 9999 is none of them."""
    rows = table.drop_columns("d").to_pylist()
    kind = table.schema.field("d").type
    size = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if kind.tz else None)
    for row, number in zip(rows, table["d"].cast(pa.int64()).to_pylist(), strict=True):
        micros = None if number is None else number * 10**6 // size
        inside = micros is not None and FIRST <= micros // 10**6 <= LAST
        row["d"] = epoch + dt.timedelta(microseconds=micros) if inside else None
    return rows


def times_agree(table, source, zone=None, engine="duckdb"):
    plan = by_time(zone)
    expected = {row["row"]: row for row in plain(plan, in_python(table))}
    assert {row["row"]: row for row in on_engine(plan, source, engine)} == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_timestamps_of_each_unit_have_the_days_and_hours_of_python(unit, zone, tmp_path):
    # Python has no date for an instant of another zone's years 1 and 9999.
    inside = [s for s in SECONDS if s is None or FIRST + 10**5 < s < LAST - 10**5]
    table = timed(unit, zone and "Asia/Tokyo", SECONDS if zone is None else inside)
    times_agree(table, table, zone)
    extremes = pa.array([2**63 - 1, -(2**63), 1 - 2**63], pa.int64()).cast(table["d"].type)
    far = pa.table({"n": [-1, -2, -3], "d": extremes, "k": ["x"] * 3})
    with_extremes = pa.concat_tables([table, far]) if unit != "s" else table
    pq.write_table(with_extremes, tmp_path / "times.parquet")
    plan, path = by_time(zone), str(tmp_path / "times.parquet")
    rows = {row["row"]: row for row in on_engine(plan, path)}
    expected = {row["row"]: row for row in plain(plan, in_python(table))}
    none = {row["dom"] for row in on_engine(plan, far)}
    assert {n: row for n, row in rows.items() if n > 0} == {
        n: row for n, row in expected.items() if n > 0
    }
    assert none == {None}
    frame = table.select(["n", "d", "k"]).to_pandas(coerce_temporal_nanoseconds=False)
    times_agree(table, frame, zone)
    if unit != "s":
        polars = pytest.importorskip("polars")
        times_agree(table, polars.from_arrow(table), zone)
    if zone is None or unit == "us":
        with duckdb.connect(str(tmp_path / "times.db")) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE people AS SELECT * FROM given")
        times_agree(table, f"duckdb://{tmp_path}/times.db?table=people", zone)


ZONES = ["UTC", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]
ZONES += ["Europe/Dublin", "America/Argentina/San_Luis", "Antarctica/Troll", "Asia/Gaza"]


def changes_of(zone):
    """The seconds before and at which the offset of a zone changes in Python, from 1880 to 2045."""
    ahead = lambda s: dt.datetime.fromtimestamp(s, ZoneInfo(zone)).utcoffset()  # noqa: E731
    weeks = range(-2_840_140_800, 2_366_841_600, 7 * 86_400)
    for low, high in itertools.pairwise(weeks):
        if ahead(low) != ahead(high):
            change = bisect.bisect(range(high - low), 0, key=lambda s: ahead(low + s) != ahead(low))
            yield from (low + change - 1, low + change)


@pytest.mark.parametrize("zone", ZONES)
def test_each_zone_has_the_clocks_of_python_in_every_century(zone):
    seconds = [s for s in SECONDS if s is not None and FIRST + 10**5 < s < LAST - 10**5]
    table = timed("us", "UTC", [*seconds, *changes_of(zone)])
    times_agree(table, table, zone)


OFFSETS = [("Z", 0), ("z", 0), ("+00", 0), ("+05:30", 330), ("-0930", -570), ("+14:00", 840)]
OFFSETS += [("-12", -720), ("+23:59", 1439), ("-23:59", -1439)]


def written(table):
    """The same instants as texts, each on the clock of another offset that the text names."""
    texts = []
    for number, row in enumerate(in_python(table)):
        name, minutes = OFFSETS[number % len(OFFSETS)]
        zone = dt.timezone(dt.timedelta(minutes=minutes))
        own = row["d"] and row["d"].astimezone(zone).isoformat("T "[number % 2])
        texts.append(own and own[: (26, 19)[number % 3 == 0]] + name)
    return table.set_column(table.column_names.index("d"), "d", [pa.array(texts, pa.string())])


def test_texts_with_an_offset_have_the_days_and_hours_of_their_instants(tmp_path):
    seconds = [s for s in SECONDS if s is None or FIRST + 2 * 10**5 < s < LAST - 2 * 10**5]
    table = timed("us", "UTC", seconds)
    frame = written(table).to_pandas()
    frame.to_csv(tmp_path / "times.csv", index=False)
    with sqlite3.connect(tmp_path / "times.sqlite") as connection:
        frame.to_sql("people", connection, index=False)
    with duckdb.connect(str(tmp_path / "times.duckdb")) as connection:
        connection.register("given", frame)
        connection.execute("CREATE TABLE people AS FROM given")
    urls = [f"{kind}://{tmp_path}/times.{kind}?table=people" for kind in ("sqlite", "duckdb")]
    for source in (written(table), str(tmp_path / "times.csv"), *urls):
        times_agree(table, source, "America/New_York")


def test_texts_without_an_offset_are_read_as_written_beside_a_zone():
    texts = ["2024-01-31", "2024-01-31 23:30", "2024-01-31T23:30Z", "2024-01-31T23:30+09:00"]
    texts += ["0001-01-01T00:00Z", "9999-12-31T23:00-05:00", "2023-02-29T10:00Z", "x", None, ""]
    table = pa.table({"d": texts, "k": ["x"] * len(texts)})
    derive = {"day": DERIVE["by day"], "hour": TIMES["hour"]}
    date = {"d": {"type": "date", "zone": "America/New_York"}}
    plan = a_plan(columns=BASE["columns"] | date, derive=derive)
    local = [(row["day"], row["hour"]) for row in on_engine(plan, table)]
    right = [("2024-01-31", None), ("2024-01-31", 23), ("2024-01-31", 18), ("2024-01-31", 9)]
    right += [(None, None), ("9999-12-31", 23), *[(None, None)] * 4]
    key = lambda pair: (str(pair[0]), str(pair[1]))  # noqa: E731
    assert sorted(local, key=key) == sorted(right, key=key)
    days = {"d": {"keys": ["2024-01-31", "9999-12-31"], "zone": "America/New_York"}}
    query = {"name": "q", "measure": "count", "by": ["d"], "share": 1}
    plan = a_plan(columns=days, query=[query])
    with prepared(plan, open_table(table, columns=["d"])) as rows:
        (cells,) = (one.dense() for one in aggregate_cells(plan, rows, bytes(18)).values())
    assert cells.tolist() == [4, 1]


def test_spark_gives_timestamps_the_days_and_hours_of_python(spark_running, tmp_path):
    inside = [s for s in SECONDS if s is None or FIRST + 10**5 < s < LAST - 10**5]
    for zone in (None, "America/New_York"):
        table = timed("us", zone and "UTC", inside)
        times_agree(table, table, zone, "spark")
        pq.write_table(table, tmp_path / "times.parquet")
        times_agree(table, str(tmp_path / "times.parquet"), zone, "spark")
    times_agree(table, written(table), zone, "spark")
    pq.write_table(timed("ms"), tmp_path / "times.parquet")
    with pytest.raises(DataError, match="make it timestamps of microseconds"):
        on_engine(by_time(), str(tmp_path / "times.parquet"), "spark")


def test_texts_have_hours_where_their_times_are_valid():
    agree(a_plan(derive=TIMES), TABLE)
    hours = {
        text: on_engine(
            a_plan(derive={"hour": TIMES["hour"]}), pa.table({"d": [text], "k": ["x"]})
        )[0]["hour"]
        for text in ("2024-01-31", "2024-01-31T25:00", "2024-01-31T23:59:59+02:00")
    }
    assert list(hours.values()) == [None, None, 23]


def test_a_range_of_days_counts_timestamps_by_their_days():
    days = {"from": "2024-03-09", "to": "2024-03-11"}
    begin = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    times = [begin + dt.timedelta(minutes=17 * i) for i in range(400)]
    for zone in (None, "America/New_York"):
        table = pa.table({"k": pa.array(times).cast(pa.timestamp("ns", zone and "UTC"))})
        columns = {"k": {"keys": days} | ({} if zone is None else {"zone": zone})}
        plan = a_plan(columns=columns)
        check_schema(plan, open_table(table, rows=False))
        with prepared(plan, open_table(table, columns=["k"])) as rows:
            (cells,) = (one.dense() for one in aggregate_cells(plan, rows, bytes(18)).values())
        local = table["k"].to_pandas()
        local = local if zone is None else local.dt.tz_convert(zone)
        counts = local.dt.strftime("%Y-%m-%d").value_counts()
        assert cells.tolist() == [counts.get(day, 0) for day in plan.column("k").keys]


ZONED = pa.table({"d": pa.array([0], pa.timestamp("us", "UTC")), "k": ["x"]})
UNZONED = pa.table({"d": pa.array([0], pa.timestamp("us")), "k": ["x"]})


@pytest.mark.parametrize(("table", "sections", "reason"), [
    (ZONED, {"where": "d is None"}, "write zone = 'UTC', or another zone"),
    (UNZONED, {"zone": "UTC", "where": "d is None"}, "leave zone out of [columns.d]"),
    (TYPED, {"zone": "UTC", "where": "d is None"}, "leave zone out of [columns.d]"),
    (TYPED, {"where": "hour(d) > 3"}, "a timestamp and a text have one"),
    (UNZONED, {"where": "d", "type": "boolean"}, "read it as 'boolean'"),
    (UNZONED, {"keys": ["2024-01-31T00:00"], "by": "d"}, "is not a day such as '2024-12-31'"),
    (TYPED, {"keys": ["2024-01"], "by": "d"}, "period(d, 'month')"),
    (TYPED, {"keys": ["2023-02-29"], "by": "d"}, "is not a day such as '2024-12-31'"),
    (TYPED, {"keys": [20240131], "by": "d"}, "'20240131' is not a day"),
    (UNZONED, {"integer": True, "sum": "d"}, "holds dates, which do not add up"),
    (UNZONED, {"id": "d"}, "has type timestamp"),
])  # fmt: skip
def test_what_a_timestamp_cannot_be_is_refused_by_its_type(table, sections, reason):
    names = ("type", "zone", "keys", "integer")
    own = {name: sections[name] for name in names if name in sections}
    if not {"keys", "integer"} & own.keys():
        own = {"type": "date"} | own
    query = {"name": "q", "measure": "count", "by": [sections.get("by", "k")], "share": 1}
    if "sum" in sections:
        query |= {"measure": "sum", "column": "d", "clip": [0, 1]}
    unit = BASE["unit"] | ({"id": "d", "rows": 2} if "id" in sections else {})
    columns = BASE["columns"] | {"d": own}
    if "id" in sections:
        del columns["d"]
    where = {"where": sections["where"]} if "where" in sections else {}
    plan = a_plan(columns=columns, query=[query], unit=unit, **where)
    with pytest.raises(DataError, match=re.escape(reason)):
        check_schema(plan, open_table(table, rows=False))


@pytest.mark.parametrize("table", [TYPED, UNZONED])
def test_a_key_that_is_no_day_may_stand_for_the_unlisted_days_alone(table):
    keys, level = ["2024-01-31", "other"], {"place": {"levels": ["d"]}}
    for unknown in ("other", "drop"):
        own = {"d": {"keys": keys, "unknown": unknown}}
        by = {"query": [{"name": "q", "measure": "count", "by": ["d"], "share": 1}]}
        at = {"query": [{"name": "q", "measure": "count", "at": ["d"], "share": 1}]}
        levels = {"place": {**level["place"], "keys": [[key] for key in keys], "unknown": unknown}}
        for plan in (a_plan(columns=own, **by), a_plan(columns={}, hierarchy=levels, **at)):
            if unknown == "other":
                check_schema(plan, open_table(table, rows=False))
                continue
            with pytest.raises(DataError, match="'other' is not a day such as '2024-12-31'"):
                check_schema(plan, open_table(table, rows=False))


def test_a_zone_is_a_part_of_the_plan_and_of_its_hash():
    zoned, plan = by_time("America/New_York"), by_time()
    assert zoned.canonical()["columns"]["d"] == {"type": "date", "zone": "America/New_York"}
    assert Plan.from_dict(zoned.canonical()).hash == zoned.hash != plan.hash
    for part, reason in (
        ({"type": "date", "zone": "Mars/Olympus"}, "must be a time zone of the IANA database"),
        ({"type": "date", "zone": "../UTC"}, "must be a time zone of the IANA database"),
        ({"type": "whole", "zone": "UTC"}, "is for dates"),
        ({"integer": True, "zone": "UTC"}, "is for dates"),
    ):
        with pytest.raises(PlanError, match=reason):
            a_plan(columns=BASE["columns"] | {"d": part})


# ---- texts -------------------------------------------------------------------------------------

POINTS = [chr(point) for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]
CHANGES = {
    "low": {"expression": "lower(s)"}, "high": {"expression": "upper(s)"},
    "bare": {"expression": "strip(s)"}, "both": {"expression": "lower(strip(s))"},
}  # fmt: skip
NORMAL = {
    "form": {"expression": "normalize(s)"},
    "every": {"expression": "upper(normalize(strip(s)))"},
}


def texts_of(characters):
    """Each character alone, and between others that combine with it."""
    texts = [*characters, *(f"A{c}\u0323\u0301" for c in characters), *TEXTS]
    return pa.table({"s": texts, "k": ["x"] * len(texts)})


@pytest.mark.parametrize(
    "points", [POINTS[:0x590:2], [*POINTS[:0x2200], *POINTS[0x2200::211]]], ids=["few", "many"]
)
def test_each_character_has_the_case_and_the_form_that_python_gives(points):
    agree(a_plan(derive=CHANGES | NORMAL), texts_of(points))


def test_the_form_of_a_text_does_not_depend_on_the_version_of_unicode():
    """What this Python and the engine have later than Unicode 3.2 stays as it is."""
    later = [c for c in POINTS if unicodedata.combining(c) and normal(c + "\u0323") == c + "\u0323"]
    plan = a_plan(derive={"form": NORMAL["form"]})
    agree(plan, texts_of(later))
    assert normal("e\u0301🙂") == "é🙂"
    assert normal("e\u0301\U0001e4ee") == "e\u0301\U0001e4ee"


def test_spark_gives_each_character_the_case_that_python_gives(spark_running):
    agree(a_plan(derive=CHANGES), texts_of(POINTS[:0x2100]), "spark")
    with pytest.raises(DataError, match="Spark does not compute"):
        on_engine(a_plan(derive=NORMAL), texts_of(["x"]), "spark")


def test_bytes_that_are_no_text_stay_as_they_are():
    parts = [b"\xff", "É".encode(), b"A\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b" x\xc0\x80"]
    places = [sum(map(len, parts[:i])) for i in range(len(parts) + 1)]
    buffers = [None, pa.array(places, pa.int32()).buffers()[1], pa.py_buffer(b"".join(parts))]
    texts = pa.Array.from_buffers(pa.string(), len(parts), buffers)
    plan = a_plan(derive=CHANGES | NORMAL)
    opened = open_table(pa.table({"s": texts, "k": ["x"] * len(parts)}), columns=["s", "k"])
    with prepared(plan, opened) as rows:
        changed = rows.select(*CHANGES, *NORMAL).to_pyarrow().to_pylist()
        for row, part in zip(changed, parts, strict=True):
            assert set(row.values()) <= {part, "é".encode()}


# ---- generated expressions ---------------------------------------------------------------------

integers = st.integers(-(10**4), 10**4).map(str)
leaves = {
    "number": st.sampled_from(["n", "n", "m", "12.5", "year(d)", "weekday(d)"]) | integers,
    "text": st.sampled_from(["s", "k", "lower(k)", "strip(s)", "'x'", "'é'", '"it\'s"']),
    "boolean": st.sampled_from(["b", "True", "False"]),
    "date": st.sampled_from(["d", "date('2024-02-29')", "date('1600-01-01')"]),
}


def expressions(kind, depth):
    if depth == 0:
        return leaves[kind]
    below = {name: expressions(name, depth - 1) for name in leaves}
    same = [
        st.tuples(below["boolean"], below[kind], below[kind]).map(
            lambda p: f"({p[1]} if {p[0]} else {p[2]})"
        ),
        st.tuples(below["boolean"], below[kind]).map(lambda p: f"({p[1]} if {p[0]} else None)"),
        leaves[kind],
    ]
    number = below["number"]
    clipped = number.map(lambda x: f"clip({x}, -90, 90)")
    more = {
        "text": [
            st.tuples(
                st.sampled_from(["lower", "upper", "strip", "normalize"]), below["text"],
            ).map(lambda p: f"{p[0]}({p[1]})")
        ],
        "date": [],
        "number": [
            st.tuples(
                number, st.sampled_from("+-"), number,
            ).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(clipped, clipped).map(lambda p: f"({p[0]} * {p[1]})"),
            st.tuples(
                expressions("number", 0), st.integers(1, 50),
            ).map(lambda p: f"({p[0]} // {p[1]})"),
            st.tuples(clipped, st.integers(1, 50)).map(lambda p: f"({p[0]} % {p[1]})"),
            st.sampled_from(["month(d)", "quarter(d)", "day(d)", "(d - date('2024-02-29'))"]),
            number.map(lambda x: f"(-{x})"), clipped,
        ],
        "boolean": [
            st.tuples(
                number, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), number,
            ).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(number, number, number).map(lambda p: f"({p[0]} <= {p[1]} < {p[2]})"),
            st.tuples(below["date"], below["date"]).map(lambda p: f"({p[0]} <= {p[1]})"),
            st.tuples(below["text"], below["text"]).map(lambda p: f"({p[0]} != {p[1]})"),
            below["text"].map(lambda x: f"({x} in ['x', 'é', \"it's\"])"),
            below["text"].map(lambda x: f"starts({x}, 'x')"),
            st.tuples(
                below["boolean"], st.sampled_from(["and", "or", "=="]), below["boolean"],
            ).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            below["boolean"].map(lambda x: f"(not {x})"), number.map(lambda x: f"({x} is None)"),
        ],
    }  # fmt: skip
    return st.one_of(*same, *more[kind])


def refused(text):
    """Why an expression is refused; None if it is not."""
    try:
        a_plan(derive={"c": {"expression": text}})
    except PlanError as error:
        return str(error)
    return None


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(st.lists(expressions("boolean", 3), min_size=3, max_size=6), expressions("number", 2))
def test_generated_expressions_have_one_answer_or_are_refused(texts, number):
    derive = {}
    for i, text in enumerate([*texts, f"clip({number}, -900, 900) == 1"]):
        refusal = refused(text)
        assert refusal is None or re.search(
            "steps|range|decimals|too deep|numbers|a whole number", refusal
        ), text
        if refusal is None:
            derive[f"c{i}"] = {"expression": text}
            assert words(text)
    if derive:
        plan = a_plan(derive=derive)
        assert Plan.from_dict(plan.canonical()).hash == plan.hash
        agree(plan, TABLE)
        agree(plan, TYPED)


# ---- refusals ----------------------------------------------------------------------------------

REFUSED = {
    "n": "gives a number", "n >": "is not an expression",
    "n > 3 # adults\nand n < 5": "has a comment before its last line",
    "n > 'x'": "mixes a number and text", "nn > 3": "'nn': is not a declared column",
    "\uff4e > 3": "would be read as 'n'; write column('...')", "n * n > 3": "could leave the range",
    "n / 2 > 1": "is not in the language", "n // 0 > 1": "a constant of at least 1",
    "n % n > 1": "a constant of at least 1", "d > '2020-01-01'": "date('2024-12-31')",
    "d > date('2020-02-30')": "must be a date", "d > date('2024-W52-1')": "must be a date",
    "(" * 300 + "n" + ")" * 300: "is not an expression", "not " * 400 + "b": "too deep",
    "n == n and " * 150 + "b": "steps", "lambda: 1": "is not in the language",
    "__import__('os')": "is not a function", "n.real == 1": "is not in the language",
    "n == None": "None has no type here", "s < 'a'": "has no order", "s == ''": "is blank",
    "s == '\\x41'": "backslash", "n in []": "must be a list", "n in [1, 'a']": "mixes",
    "n in [n]": "must be a number", "n if n else 1": "must be true or false",
    "n > 1e400": "at most 9 decimals", "n > 1.0000000001": "at most 9 decimals",
    "clip(n, 5, 1) > 0": "low end is above", "year(n) > 1": "takes a date",
    "year(d if b else None) > 1": "takes a column",
    "(d if b else None) - d > 1": "make its date a derived column",
    "d - 30 > date('2020-01-01')": "is a date, and must be a number",
    "hour(date('2020-01-01')) > 1": "hour takes a column of the data",
    "hour(s) > 1": "hour takes a column of the data", "lower(n) == 'x'": "lower takes a text",
    "n > 1j": "is not a number", "s == b'x'": "is not a number, text",
    "(n := 3) > 1": "is not in the language", "[b for b in [1]] == 1": "is not in the language",
    "n > 1e9999999999999999999": "is not a decimal number", "n > 1e99999999999": "within +-2^53",
    "n is 3": "only None may follow 'is'", "(None if b else None) == 1": "is None in each case",
    "~b": "is not in the language", "n * 0.000001 * 0.00001 > 1": "have more than 9 decimals",
    "clip(n, *n) > 1": "in order, without names",
    "clip(n, n, 3) > 1": "the ends of a clip", "clip(n, 0.5, 3) > 1": "may have 0 decimals",
    "starts(s, s)": "starts takes a text", "period(n, 'month') == 'a'": "period takes a date",
    "period(d, 'week') == 'a'": "one of day, month", "date(s) > d": "date takes one text",
    "n\x00 > 1": "has a control character", "x" * 2001: "has 2001 characters",
}  # fmt: skip


@pytest.mark.parametrize("text", ["n > 3 # a\n", "n > 3\nand n < 5 # a", "n > 3 and s != '#\nx'"])
def test_a_comment_at_the_end_of_an_expression_hides_nothing(text):
    assert a_plan(where=text).rows.where is not None


@pytest.mark.parametrize("text", REFUSED)
def test_an_expression_that_could_raise_is_refused_with_its_place(text):
    with pytest.raises(PlanError) as error:
        a_plan(where=text)
    assert str(error.value).startswith("where = ")
    assert REFUSED[text] in str(error.value)


@pytest.mark.parametrize(("sections", "reason"), [
    ({"derive": {"a": {"expression": "z"}, "z": {"expression": "a"}}}, "from each other"),
    ({"derive": {"a": {}}}, "exactly one of"),
    ({"derive": {"a": {"cut": "n", "edges": [0, 1], "labels": ["x", "y"]}}}, "one label fewer"),
    ({"derive": {"a": {"cut": "n", "edges": [1, 0], "labels": ["x"]}}}, "must rise"),
    ({"derive": {"a": {"cut": "n", "edges": [0, "0.5"], "labels": ["x"]}}}, "0 decimals"),
    ({"derive": {"a": {"cut": "s", "edges": [0, 1], "labels": ["x"]}}}, "must be a number"),
    ({"derive": {"a": {"map": "n", "to": {"x": "y"}}}}, "must be text"),
    ({"derive": {"a": {"map": "s", "to": {}}}}, "list the texts"),
    ({"derive": {"a": {"map": "s", "to": {"x": "drop"}}}}, "'drop'"),
    ({"derive": {"a": {"expression": "m"}}}, "2 decimals"),
    ({"derive": {"a": {"expression": "n", "unknown": "x"}}}, "does not go with"),
    ({"derive": {"a": {"expression": "s", "range": [0, 1]}}}, "is for numbers"),
    ({"lookup": {"r": {"column": "s", "keys": [["x", "1"], ["x", "2"]]}}}, "repeats 'x'"),
    ({"lookup": {"r": {"column": "n", "keys": [["x", "1"]]}}}, "is not text"),
    (
        {
            "lookup": {
                name: {"column": ["s", other], "keys": [["x", "y", "1"]]}
                for name, other in ("ab", "ba")
            }
        },
        "'a', 'b' are computed from each other",
    ),
    *(
        ({"lookup": {"r": {"column": ["s", "k"], "keys": [["x", "y", "1"]]} | part}}, reason)
        for part, reason in (
            ({"keys": [["x", "y", "1"], ["x", "z", "1"], ["x", "y", "1"]]}, "repeats 'x', 'y'"),
            ({"keys": [["x", "1"]]}, "row 1 of keys must be [text, text, value], none blank"),
            ({"keys": [["x", "y", "1"], ["", "y", "1"]]}, "row 2 of keys must be [text, text,"),
            ({"column": ["s", "n"]}, "'n' is not text"),
            ({"column": []}, "lists no expression"),
            ({"column": ["s", "s"]}, "names a column twice"),
            ({"column": ["s", 3]}, "lookup.r.column[1] = 3: must be"),
            ({"on": "s"}, "on = ['s'] must name one column of the file for each of"),
            ({"on": ["a", "a"]}, "on = ['a', 'a'] names a column twice"),
            ({"on": ["s", "k"]}, "lookup.r.column: on names columns of a file"),
            ({"keys": [["x", "y", "drop"]]}, "'drop'"),
            ({"column": ["s", "r"]}, "lookup.r.column: reads itself; give the lookup another"),
        )
    ),
    ({"lookup": {"z": {"column": "z", "keys": [["x", "1"]]}}}, "lookup.z.column: reads itself"),
    *(
        (
            {"derive": {"z": {rule: given, **more}}},
            f"derive.z.{rule}: reads itself; give the derived column another name",
        )
        for rule, given, more in (
            ("expression", "z + 1", {}),
            ("cut", "z", {"edges": [0, 1], "labels": ["x"]}),
            ("map", "lower(z)", {"to": {"x": "y"}}),
            ("case", [["column('z') == 'x'", "y"]], {}),
        )
    ),
    ({"lookup": {"r": {"column": "s", "keys": "/etc/passwd"}}}, "not in the plan's folder"),
    ({"columns": BASE["columns"] | {"n": {"type": "whole", "integer": True}}}, "alone read"),
])  # fmt: skip
def test_a_wrong_section_is_refused(sections, reason):
    with pytest.raises(PlanError, match=re.escape(reason)):
        a_plan(**sections)


def test_a_derived_column_can_have_the_name_of_a_function_or_of_a_text_that_it_reads():
    derive = {
        "lower": {"map": "lower(s)", "to": {"x": "y"}},
        "x": {"case": [["s == 'x'", "y"]]},
        "column": {"expression": "column('s') == 'column'"},
    }
    assert {one.name for one in a_plan(derive=derive).rows.derived} >= derive.keys()


SIGN_OF_WORDS = {
    " is at least ": " >= ", " is at most ": " <= ", " is above ": " > ", " is below ": " < ",
    " is not ": " != ", " is ": " == ", " plus ": " + ", " minus ": " - ", " times ": " * ",
    "\N{MINUS SIGN}": "-", ", else ": " else ",
}  # fmt: skip


def random_expression(rng, kind, depth):
    """A random expression of truth values or numbers, with parentheses around each part."""
    if depth == 0:
        return rng.choice(["a", "b"] if kind == "boolean" else ["m", "n", "2"])

    def part(kind):
        return f"({random_expression(rng, kind, depth - 1)})"

    if rng.random() < 0.2:
        return f"{part(kind)} if {part('boolean')} else {part(kind)}"
    if kind == "number":
        own = [f"{part(kind)} {sign} {part(kind)}" for sign in "+-*"]
        return rng.choice([*own, f"-{part(kind)}"])
    joined = [f"{part(kind)} {sign} {part(kind)}" for sign in ("and", "or", "==", "!=")]
    number = part("number")
    compared = [f"{number} {sign} {part('number')}" for sign in ("<", ">=", "==")]
    chain = f"{number} <= {part('number')} < {part('number')}"
    return rng.choice([*joined, *compared, chain, f"not {part(kind)}"])


def test_the_words_of_an_expression_group_its_parts_as_the_expression_does():
    rng = random.Random(1)
    values = [
        {"a": a, "b": b, "m": m, "n": n}
        for a, b in itertools.product((True, False), repeat=2)
        for m, n in itertools.product((-1, 1, 3), repeat=2)
    ]
    for _ in range(150):
        parts = [random_expression(rng, "boolean", 3) for _ in range(rng.choice([1, 2]))]
        said = words(*parts)
        for word, sign in SIGN_OF_WORDS.items():
            said = said.replace(word, sign)
        for row in values:
            meant = all(eval(part, {}, row) for part in parts)
            assert bool(eval(said, {}, row)) == meant, (parts, said)


def operators(selected, expression):
    """The plan by which DuckDB computes it: its operators' names and their details."""
    explained = f"EXPLAIN (FORMAT JSON) {ibis.to_sql(expression)}"
    ((_, plan),) = selected.get_backend().con.execute(explained).fetchall()
    waiting, result = json.loads(plan), []
    while waiting:
        node = waiting.pop()
        waiting += node["children"]
        result.append((node["name"], str(node["extra_info"])))
    return result


def test_the_engine_computes_the_costliest_expression_in_as_many_steps_as_are_counted():
    text, longer = "", "n == 0"
    while (refusal := refused(longer)) is None:
        text, longer = longer, f"(n % 7 if {longer} else 1) % 5 == 1"
    assert "200" in refusal
    table = pa.table({"n": list(range(1000)), "k": pa.array(["x"] * 1000)})
    plan = a_plan(where=text)
    opened = open_table(table, "duckdb", columns_read(plan, table.column_names))
    with prepared(plan, opened) as selected:
        plain = operators(selected, selected.count())
        (condition,) = [details for name, details in plain if name == "FILTER"]
        steps = re.findall(r"CASE|AND|OR|[^\w ]? [%=<>*+-]+ ", condition)
        assert 20 < len(steps) <= 200
        assert "CASE" not in "".join(details for name, details in plain if name != "FILTER")


def test_decimals_and_bytes_of_a_text_are_read_exactly():
    table = pa.table({
        "m": pa.array([Decimal("0.29"), Decimal("-0.01"), None], pa.decimal128(20, 2)),
        "k": ["x", "y", "x"],
    })  # fmt: skip
    plan = a_plan(derive={"a": {"expression": "m >= 0.29"}, "z": {"expression": "m == -0.01"}})
    agree(plan, table)
    assert [row["a"] for row in on_engine(plan, table)] == [True, False, None]


def test_texts_of_numbers_dates_and_truth_values_are_read_once_per_row():
    rows = 2000
    numbers = [f"{i % 90_000}.{i % 97:02}" for i in range(rows)]
    table = pa.table({
        "n": [f"{i % 1000 * 997}e+01" for i in range(rows)], "m": numbers,
        "d": [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(rows)],
        "b": [("true", "F", "1", "x")[i % 4] for i in range(rows)], "k": pa.array(["x"] * rows),
    })  # fmt: skip
    for text in ("n > 5", "m > 5", "month(d) > 1", "b"):
        derive = {"a": {"case": [[text, "a"]], "unknown": "b"}, "z": {"expression": text}}
        plan = a_plan(where=f"{text} or {text}", derive=derive)
        opened = open_table(table, "duckdb", columns_read(plan, table.column_names))
        with prepared(plan, opened) as selected:
            counts = selected.group_by("a", "z").aggregate(n=selected.count())
            plain = operators(selected, counts)
            assert "neyman:value:0" in str(plain), text
            assert "regexp" not in str(plain), text  # what reads a text is behind that name
            assert 0 < sum(counts.to_pyarrow()["n"].to_pylist()) <= rows


CODED = {
    "columns": {
        "n": {"type": "whole"}, "s": {"type": "text"}, "i": {"type": "text"},
        "band": {"keys": ["old", "child"], "unknown": "drop"},
        "word": {"keys": ["B", "none", "A"], "unknown": "none"},
    },
    "derive": {
        "band": {"cut": "n", "edges": [0, 2, 5], "labels": ["child", "old"]},
        "kind": {"case": [["n > 3", "many"], ["n > 1", "few"]], "unknown": "rest"},
        "word": {"map": "s", "to": {"a": "A", "b": "B"}},
        "state": {"map": "s", "to": {"a": "IL", "b": "OH"}, "unknown": "IN"},
    },
    "lookup": {"place": {"column": "s", "keys": [[f"k{i}", "xy"[i % 2]] for i in range(30)]}},
    "hierarchy": {"area": {"levels": ["state", "c"], "keys": [["OH", "b"], ["IL", "a"]]}},
    "query": [
        {"name": "1", "measure": "count", "by": ["band", "kind"], "share": "1/6"},
        {"name": "2", "measure": "units", "by": ["place", "word"], "share": "1/6"},
        {"name": "3", "measure": "count", "by": ["kind"], "at": ["state", "c"], "share": "1/6"},
        {"name": "4", "measure": "distinct", "column": "kind", "by": ["band"], "share": "1/6"},
        {"name": "5", "measure": "count", "by": ["place"], "where": "kind == 'few'",
         "share": "1/3"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("named", [False, True])
def test_codes_of_derived_texts_count_what_the_texts_count(engine, named, request):
    if engine == "spark":
        request.getfixturevalue("spark_running")
    unit = {"protects": "person", "neighboring": "replace-one"}
    plan = a_plan(**CODED, unit=unit | ({"id": "i", "rows": 3} if named else {}))
    texts = ["a", "b", "c", None, *(f"k{i}" for i in range(30))]
    table = pa.table({
        "n": pa.array([None, -1, 0, 1, 2, 3, 4, 5, 6] * 40, pa.int64()), "s": (texts * 11)[:360],
        "c": (texts * 11)[:360], "i": [str(i % 70) for i in range(360)],
    })  # fmt: skip
    opened = open_table(table, engine, columns_read(plan, table.column_names))
    with prepared(plan, opened) as rows:
        codes = [name for name in rows.columns if name.startswith("neyman:code:")]
        by_code = aggregate_cells(plan, rows, bytes(18))
        by_text = aggregate_cells(plan, rows.drop(*codes), bytes(18))
    assert len(codes) == 5
    assert by_code.keys() == by_text.keys()
    for key, cells in by_text.items():
        assert cells.dense().any(), key
        assert (by_code[key].dense() == cells.dense()).all(), key
