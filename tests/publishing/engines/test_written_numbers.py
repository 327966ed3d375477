"""Numbers and dates as people write them: the marks that [source] declares for texts."""

import itertools
import math
import random
import re
import sqlite3
from datetime import date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal

import duckdb
import numpy as np
import pandas as pd
import polars
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Ledger
from neyman.publishing import (
    DataError,
    PlanError,
    Source,
    SourcePart,
    close_table,
    open_table,
    prepared_tables,
)
from plain_engine import aggregate, fetched
from plans import SMALL, release
from random_laws import examples

MOST = 10**11  # in hundredths: beyond every number below that has an end
NUMBER_MARKS = [*({"decimal": d, "thousands": t} for d in ".," for t in (*".,' ", None) if d != t)]
FORMS = [
    "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d%m%Y", "%d. %m. %Y", "%Y-%m-%d", "%Y-%d-%m", "%m%d.%Y",
]  # fmt: skip
BLANKS, APOSTROPHES = " \u00a0\u202f", "'\u2019"


def formed(source, unlisted="drop", **more):
    """A plan with a column of each reading, and the key of unlisted days."""
    return ny.Plan.from_dict({
        **SMALL, "schema": 2, "most_rows": 1000, "source": source,
        "columns": {
            "x": {"decimals": 2, "parse": True},
            "n": {"keys": [0, 1, 1000, 2500, -1000], "parse": True},
            "b": {"keys": [True, False]},
            "day": {
                "keys": ["2024-01-31", "2024-02-01", "0999-12-31", "unknown"], "unknown": unlisted
            },
            "at": {"type": "date"},
        },
        "derive": {
            "year": {"cut": "year(at)", "edges": [1, 2000, 10000], "labels": ["old", "new"]}
        },
        "query": [
            {"name": "x", "measure": "sum", "column": "x", "clip": [-10**9, 10**9], "share": "1/5"},
            *({"name": name, "measure": "count", "by": [name], "share": "1/5"}
              for name in ("n", "b", "day", "year")),
        ],
        **more,
    })  # fmt: skip


def counted(plan, data, engine="duckdb"):
    """The exact tables of a plan, by the way of a run."""
    source = Source.of(plan, data, engine, None, None)
    tables = source.open_tables(plan, source.rehearse(plan))
    try:
        with prepared_tables(plan, tables) as prepared:
            results = {}
            for own, rows in prepared:
                results |= {key[0]: cells.tolist() for key, cells in aggregate(own, rows).items()}
            return results
    finally:
        for table in tables.values():
            close_table(table)


# ---- plain Python ------------------------------------------------------------------------------


def number_of(text, decimal=".", thousands=None):
    """The number that a text is by some marks; None for any other text."""
    if text is None:
        return None
    digits = text.removeprefix("-")
    if digits.lower() in ("inf", "infinity") and digits[0] in "iI" and digits[1:].islower():
        return Decimal(text)
    digits, e, exponent = digits.replace("E", "e").partition("e")
    before, _, part = digits.partition(decimal)
    alike = {" ": BLANKS, "'": APOSTROPHES}.get(thousands, thousands)
    for one in alike or "":
        before = before.replace(one, "_")
    groups = before.split("_") if "_" not in text else [text]
    plain = all(re.fullmatch("[0-9]*", one) for one in (*groups, part))
    if len(groups) > 1:
        sizes = [len(group) for group in groups]
        plain &= sizes[0] in (1, 2, 3) and set(sizes[1:]) == {3} and groups[0][0] != "0"
    plain &= bool(before or part) and max(len("".join(groups)), len(part)) <= 120
    plain &= not e or re.fullmatch("[-+]?[0-9]{1,4}", exponent) is not None
    if not plain:
        return None
    exact = text[:1] * text.startswith("-") + "".join(groups) + "." * bool(part) + part
    return Decimal(exact + "e" * bool(e) + exponent)


def hundredths(text, **marks):
    number = number_of(text, **marks)
    if number is None or number.is_infinite():
        return None if number is None else MOST if number > 0 else -MOST
    floor = int((number * 100).to_integral_value(ROUND_FLOOR))
    return min(max(floor, -MOST), MOST)


def renderings(day, form):
    """The texts that a date may have in a form: a day or a month of one digit beside a mark."""
    plain = f"{day.year:04d}", f"{day.month:02d}", f"{day.day:02d}"
    short = plain if re.search("%.%", form) else (plain[0], f"{day.month}", f"{day.day}")
    for parts in itertools.product(*zip(plain, short, strict=True)):
        text = form
        for name, part in zip(("%Y", "%m", "%d"), parts, strict=True):
            text = text.replace(name, part)
        yield text


def day_of(text, form):
    """The date that a text is by a form; None for any other text."""
    try:
        day = datetime.strptime(text, form).date()  # noqa: DTZ007  (a day has no zone)
    except (TypeError, ValueError):
        return None
    return day if text in renderings(day, form) else None


NUMBERS = [
    None, "", "0", "7", "-7", "+7", " 7", "7 ", "70,5", "70.5", "-70,5", "-70.5", ",5", ".5",
    "5,", "5.", "1,5e3", "1.5E-1", "1e3", "1.000", "1,000", "1 000", "1'000", "1\u00a0000",
    "1\u202f000", "1\u2019000", "1.000,5", "1,000.5", "1 000,5", "1'000.5", "-1.234.567,891",
    "-1,234,567.891", "12.34", "1.0000", "0.123", "0,123", "001.000", "1.00.000", ".000",
    "1..000", "1,,000", "1.000.", "1234.567", "1234,567", "12 345 678,90",
    "12\u00a0345\u202f678,90", "1.000e3", "1.000,5e-2", "inf", "-Infinity", "NaN", "n/a",
    "70,5 kg", "12 %", "\u20ac5", "1_000", "\u0663", "1.000\n", "--5", "9" * 40, "9" * 41,
    "9" * 120, "9" * 121, "0." + "1" * 120, "0." + "1" * 121, "5.e1", "5,e1", ".", ",", "-.",
    "1" + ".000" * 39, "1" + ".000" * 40, "1,5,5", "0x10", "1.000 000", "-.5", "-,5",
]  # fmt: skip
DAYS = [
    None, "", "31.01.2024", "1.2.2024", "01.2.2024", "2024-01-31", "2024-31-01", "20240131",
    "31012024", "1/31/2024", "31/1/2024", "29.02.2024", "29.02.2023", "31.04.2024", "0.1.2024",
    "1.0.2024", "1.13.2024", "31.12.0999", "31.12.999", "31.12.0000", "31.12.24", "31. 1. 2024",
    "31.1. 2024", " 31.01.2024", "31.01.2024 ", "31.01.20245", "031.01.2024",
    "\u0663\u0661.01.2024", "31.01.2024\n", "0131.2024", "n/a",
]  # fmt: skip


# ---- numbers -----------------------------------------------------------------------------------


def numbers_on(source, texts, engine="duckdb", url=None):
    """The hundredths that a plan with these marks reads in each text."""
    plan = ny.Plan.from_dict({
        **SMALL, "schema": 2, "source": source, "columns": {"x": {"decimals": 2, "parse": True}},
        "derive": {"read": {"expression": "x", "range": [-MOST // 100, MOST // 100]}},
        "query": [{"name": "q", "measure": "sum", "column": "read", "clip": [0, 1], "share": 1}],
    })  # fmt: skip
    data = url or pa.table({"i": range(len(texts)), "x": pa.array(texts, pa.string())})
    table = open_table(data, engine)
    with prepared_tables(plan, {"people": table}) as ((_, rows),):
        answer = fetched(rows.select("i", "read")).to_pylist()
    close_table(table)
    numbers = {row["i"]: row["read"] for row in answer}
    return [numbers[i] for i in range(len(texts))]


@pytest.mark.parametrize("marks", NUMBER_MARKS, ids=str)
def test_texts_are_the_numbers_that_plain_python_reads_by_the_same_marks(marks):
    assert numbers_on(marks, NUMBERS) == [hundredths(text, **marks) for text in NUMBERS]


@pytest.mark.parametrize(("marks", "text", "number"), [
    ({}, "1.000", 100), ({}, "1.000,5", None), ({"decimal": ","}, "1.000", None),
    ({"decimal": ",", "thousands": "."}, "1.000", 100_000),
    ({"decimal": ",", "thousands": "."}, "1.000,5", 100_050),
    ({"decimal": ",", "thousands": "."}, "0.123", None), ({"decimal": ","}, "1,5e3", 150_000),
    ({"thousands": " "}, "1\u00a0000", 100_000),
])  # fmt: skip
def test_a_number_is_read_by_the_declared_marks_or_is_none(marks, text, number):
    assert numbers_on(marks, [text]) == [number]


@given(st.data())
@settings(max_examples=examples(50))
def test_a_number_that_is_written_with_marks_is_read_back_as_itself(data):
    marks = data.draw(st.sampled_from(NUMBER_MARKS))
    decimal, thousands = marks["decimal"], marks["thousands"]
    numbers = data.draw(st.lists(st.integers(-(10**11), 10**11), min_size=1, max_size=40))
    grouped = [f"{abs(n) // 100:,}".replace(",", thousands or "") for n in numbers]
    signs = ["-" if n < 0 else "" for n in numbers]
    texts = [
        f"{sign}{text}{decimal}{abs(n) % 100:02d}"
        for sign, text, n in zip(signs, grouped, numbers, strict=True)
    ]
    assert numbers_on(marks, texts) == numbers


# ---- dates -------------------------------------------------------------------------------------


def dates_on(form, texts, engine="duckdb", url=None):
    """The text of the date that expressions read in each text."""
    plan = ny.Plan.from_dict({
        **SMALL, "schema": 2, "source": {"dates": form}, "budget": {"zcdp": 1, "delta": "1e-5"},
        "columns": {"at": {"type": "date"}, "day": {"discover": True},
                    "i": {"type": "whole", "parse": True}},
        "derive": {"day": {"expression": "period(at, 'day')"}},
        "query": [{"name": "q", "measure": "count", "by": ["day"], "delta": "1e-6", "share": 1}],
    })  # fmt: skip
    data = url or pa.table({"i": range(len(texts)), "at": pa.array(texts, pa.string())})
    table = open_table(data, engine)
    with prepared_tables(plan, {"people": table}) as ((_, rows),):
        answer = fetched(rows.select("i", "day")).to_pylist()
    close_table(table)
    days = {row["i"]: row["day"] and row["day"].decode() for row in answer}
    return [days[i] for i in range(len(texts))]


def iso(day):
    return day and f"{day.year:04d}-{day:%m-%d}"


@pytest.mark.parametrize("form", FORMS)
def test_texts_are_the_dates_that_strptime_reads_by_the_same_form(form):
    right = [iso(day_of(text, form)) for text in DAYS]
    assert dates_on(form, DAYS) == right


@given(st.sampled_from(FORMS), st.lists(st.dates(), min_size=1, max_size=40), st.randoms())
@settings(max_examples=examples(50))
def test_a_date_that_is_written_in_a_form_is_read_back_as_itself(form, days, draw):
    texts = [draw.choice(sorted(renderings(day, form))) for day in days]
    times = [draw.choice(["", " 23:59", "T00:00:00"]) for _ in days]
    written = [text + time for text, time in zip(texts, times, strict=True)]
    assert dates_on(form, written) == list(map(iso, days))


def test_a_date_in_another_form_than_the_declared_one_is_missing():
    assert dates_on("%Y-%d-%m", ["2024-01-31", "2024-31-01"]) == [None, "2024-01-31"]
    assert dates_on("%d.%m.%Y", ["2024-01-31", "31.01.2024 noon"]) == [None, None]


def test_a_date_key_is_compared_with_the_declared_form_and_other_texts_stay_keys():
    days = ["31.01.2024", "1.2.2024 23:59", "01.02.2024T00:00:00", "31.12.0999", "unknown"]
    days += ["2024-01-31", "31.01.2024 25:00", "31.01.2024 noon", "30.02.2024", None, ""]
    plan = formed({"dates": "%d.%m.%Y"})
    data = a_table(day=days)
    assert counted(plan, data)["day"] == [1, 2, 1, 1]
    swapped = formed({"dates": "%Y-%d-%m"})
    assert counted(swapped, a_table(day=["2024-01-31", "2024-31-01"]))["day"] == [1, 0, 0, 0]


# ---- every reader ------------------------------------------------------------------------------


def a_table(**columns):
    size = max(map(len, columns.values()))
    every = {name: columns.get(name, [None] * size) for name in ("x", "n", "b", "day", "at")}
    return pa.table({name: pa.array(values, pa.string()) for name, values in every.items()})


EUROPEAN = {"decimal": ",", "thousands": ".", "dates": "%d.%m.%Y"}
ROWS = a_table(
    x=["70,5", "1.070,25", "1.000", "70.5", "-0,009", None],
    n=["1.000", "2.500,0", "1,0", "1.0", "-1.000", "1000"],
    b=["1,0", "true", "0", "1.0", "F", "x"],
    day=["31.01.2024", "1.2.2024", "unknown", "2024-01-31", "31.12.0999", "29.02.2023"],
    at=["31.01.1999", "1.2.2024 10:00", "2024-01-31", "31.12.0999", "29.02.2023", None],
)
RIGHT = {
    "x": 7050 + 107_025 + 100_000 - 1, "n": [0, 1, 2, 1, 1], "b": [2, 2], "day": [1, 1, 1, 1],
    "year": [2, 1],
}  # fmt: skip


def test_sums_keys_and_expressions_follow_the_marks():
    assert counted(formed(EUROPEAN), ROWS) == {**RIGHT, "x": [RIGHT["x"]]}


def test_spark_reads_the_same_numbers_and_dates(spark_running):
    assert counted(formed(EUROPEAN), ROWS, "spark") == {**RIGHT, "x": [RIGHT["x"]]}
    for marks in ({"decimal": ",", "thousands": "."}, {"thousands": " "}, {"thousands": "'"}):
        right = [hundredths(text, **{"decimal": ".", **marks}) for text in NUMBERS]
        assert numbers_on(marks, NUMBERS, "spark") == right


def test_a_server_reads_the_same_numbers_and_dates(postgres):
    columns = ", ".join(f"{name} text" for name in (*ROWS.column_names, "i"))
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE public.written ({columns})")
        connection.execute("CREATE TABLE public.numbers (i bigint, x text)")
        connection.execute("CREATE TABLE public.days (i bigint, at text)")
        for name, each in (
            ("written", [(*row.values(), "0") for row in ROWS.to_pylist()]),
            ("numbers", list(enumerate(NUMBERS))),
            ("days", list(enumerate(DAYS))),
        ):
            with connection.cursor().copy(f"COPY public.{name} FROM STDIN") as copy:
                for row in each:
                    copy.write_row(row)
    assert counted(formed(EUROPEAN), postgres.url(table="public.written")) == {
        **RIGHT,
        "x": [RIGHT["x"]],
    }
    url = postgres.url(table="public.numbers")
    for marks in NUMBER_MARKS:
        assert numbers_on(marks, NUMBERS, url=url) == [hundredths(t, **marks) for t in NUMBERS]
    url = postgres.url(table="public.days")
    for form in FORMS:
        assert dates_on(form, DAYS, url=url) == [iso(day_of(text, form)) for text in DAYS]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "duckdb", "sqlite", "pandas", "polars"])
def test_every_source_of_texts_gives_the_same_tables(kind, tmp_path):
    frame, path = ROWS.to_pandas().astype(object), tmp_path / f"people.{kind}"
    url = f"{kind}://{path}?table=people"
    source = {"duckdb": url, "sqlite": url, "pandas": frame, "polars": polars.from_arrow(ROWS)}
    if kind in ("csv", "tsv"):
        frame.to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "parquet":
        pq.write_table(ROWS, path)
    elif kind == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("given", ROWS)
            connection.execute("CREATE TABLE people AS FROM given")
    elif kind == "sqlite":
        with sqlite3.connect(path) as connection:
            frame.to_sql("people", connection, index=False)
    data = source.get(kind, str(path))
    assert counted(formed(EUROPEAN), data) == {**RIGHT, "x": [RIGHT["x"]]}


def test_numbers_and_dates_among_objects_are_themselves_and_their_texts_have_the_marks(tmp_path):
    """A float 1.5 in a column of objects, or of SQLite, is never read by the marks of texts."""
    x = ["1,5", 1.5, 1.234, np.float64(1.234), Decimal("1.234"), 7, 1.5e-7, "1.234", math.nan, None]
    at = ["31.01.2024", date(1999, 1, 31), pd.Timestamp(2024, 1, 31, 10).to_pydatetime()]
    at += [
        pd.NaT, "2024-01-31", None, pd.Timestamp(1999, 1, 31), np.datetime64("2024-01-31"), 7, "",
    ]  # fmt: skip
    none = [None] * len(x)
    frame = pd.DataFrame({"x": x, "n": none, "b": none, "day": at, "at": at}, dtype=object)
    result = counted(formed(EUROPEAN), frame)
    assert result["x"] == [150 + 150 + 123 * 3 + 700 + 0 + 123_400]
    assert (result["year"], result["day"]) == ([2, 3], [3, 0, 0, 0])
    with sqlite3.connect(tmp_path / "people.sqlite") as connection:
        connection.execute("CREATE TABLE people (x, n TEXT, b TEXT, day TEXT, at TEXT)")
        numbers = [(one,) for one in ("1,5", 1.5, 1.234, 7, 1.5e-7, "1.234", None)]
        connection.executemany("INSERT INTO people (x) VALUES (?)", numbers)
    result = counted(formed(EUROPEAN), f"sqlite://{tmp_path}/people.sqlite?table=people")
    assert result["x"] == [150 + 150 + 123 + 700 + 0 + 123_400]


def test_columns_with_types_have_no_marks():
    typed = pa.table({
        "x": [1.234, 70.5], "n": [1000, 1], "b": [True, False], "day": [date(2024, 1, 31)] * 2,
        "at": [date(1999, 1, 1), date(2024, 1, 1)],
    })  # fmt: skip
    right = {"x": [123 + 7050], "n": [0, 1, 1, 0, 0], "b": [1, 1], "day": [2, 0, 0, 0]}
    assert counted(formed(EUROPEAN, unlisted="unknown"), typed) == {**right, "year": [1, 1]}


def test_marks_hold_in_every_table_and_before_a_unit_has_one_row():
    plan = ny.Plan.from_dict({
        **SMALL, "schema": 2, "table": "visits", "source": EUROPEAN,
        "unit": {"protects": "person", "neighboring": "replace-one", "id": "id", "rows": 2},
        "tables": {"people": {"id": "id", "join": ["born"], "duplicates": "least"}},
        "columns": {"born": {"keys": ["2023-12-01", "2024-01-31"]},
                    "cost": {"decimals": 1, "parse": True}},
        "query": [
            {"name": "born", "measure": "count", "by": ["born"], "share": "1/2"},
            {"name": "cost", "measure": "sum", "column": "cost", "clip": [0, 9000], "share": "1/2"},
        ],
    })  # fmt: skip
    visits = pa.table({"id": ["a", "a", "b"], "cost": ["1.000,5", "0,5", "1.5"]})
    # The least text of "a" is 05.05.2025, and the least date is not.
    people = pa.table({"id": ["a", "a", "b"], "born": ["05.05.2025", "31.01.2024", "01.12.2023"]})
    result = counted(plan, {"visits": visits, "people": people})
    assert result == {"born": [1, 2], "cost": [10_010]}


# ---- the plan ----------------------------------------------------------------------------------


def test_marks_that_are_the_default_change_no_hash_and_others_are_part_of_the_plan():
    plan = ny.Plan.from_dict(SMALL)
    assert ny.Plan.from_dict({**SMALL, "source": {"decimal": "."}}).hash == plan.hash
    older = {"delimiter": ";", "encoding": "utf-8", "compression": "none"}
    assert ny.Plan.from_dict({**SMALL, "source": {"delimiter": ";"}}).canonical()["source"] == older
    hashes = {plan.hash}
    for more in ({"decimal": ","}, {"thousands": "'"}, {"dates": "%Y-%m-%d"}, EUROPEAN):
        one = ny.Plan.from_dict({**SMALL, "source": more})
        assert ny.Plan.from_dict(one.canonical()) == one
        hashes.add(one.hash)
    assert len(hashes) == 5


@pytest.mark.parametrize(("source", "said"), [
    ({"decimal": ";"}, "source.decimal = ';': must be '.' or ','"),
    ({"thousands": "."}, "thousands = '.' is the decimal mark too"),
    ({"decimal": ",", "thousands": ","}, "thousands = ',' is the decimal mark too"),
    ({"thousands": "_"}, "source.thousands = '_': must be '.', ',', ' ' or an apostrophe"),
    ({"dates": "%d.%m.%y"}, "source.dates = '%d.%m.%y': must have %Y, %m and %d once each"),
    ({"dates": "%d.%m"}, "must have %Y, %m and %d once each"),
    ({"dates": "%Y-%m-%m"}, "must have %Y, %m and %d once each"),
    ({"dates": "%d %b %Y"}, "must have %Y, %m and %d once each"),
    ({"dates": "%d.%m.%Y %H:%M"}, "A time of day after the date needs no declaration"),
    ({"dates": ""}, "must have %Y, %m and %d once each"),
])  # fmt: skip
def test_marks_that_could_not_be_read_are_refused(source, said):
    with pytest.raises(PlanError) as caught:
        formed(source)
    assert said in str(caught.value)


def test_an_id_that_the_marks_would_change_is_refused():
    unit = {"protects": "person", "neighboring": "replace-one", "id": "n"}
    with pytest.raises(PlanError) as caught:
        formed({"decimal": ","}, unit=unit)
    assert "unit.id = 'n': the plan reads this column as a number too" in str(caught.value)
    assert formed({"dates": "%d.%m.%Y"}, unit=unit).unit.id == "n"


def test_marks_go_with_any_source_and_a_delimiter_with_csv_files_alone(tmp_path):
    with pytest.raises(DataError) as caught:
        counted(formed({**EUROPEAN, "delimiter": ";"}), ROWS)
    assert "leave delimiter, encoding, and compression out of [source]" in str(caught.value)
    (tmp_path / "a.tsv").write_text("x\tn\n1,5\t2\n")
    marks = SourcePart(decimal=",")
    assert fetched(open_table(str(tmp_path / "a.tsv"), csv=marks)).to_pylist() == [
        {"x": "1,5", "n": "2"}
    ]


# ---- a European file ---------------------------------------------------------------------------


def test_a_european_file_is_published_as_pandas_reads_it(tmp_path):
    draw = random.Random(7)
    rows = [
        {
            "stadt": draw.choice(["Köln", "Nîmes", "Málaga"]),
            "gehalt": f"{draw.randint(0, 9_999_999) / 100:,.2f}".translate(
                str.maketrans(",.", ".,")
            ),
            "geboren": f"{date(1990, 1, 1) + timedelta(draw.randint(0, 1460)):%d.%m.%Y}",
        }
        for _ in range(400)
    ]
    path = tmp_path / "leute.csv"
    pd.DataFrame(rows).to_csv(path, sep=";", index=False, encoding="latin-1")
    plan = ny.Plan(
        name="gehalt", dataset="leute@1", table="leute",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"stadt": ny.keys(["Köln", "Málaga", "Nîmes"]), "gehalt": {"decimals": 2},
                 "geboren": {"type": "date"}},
        derive={"jahr": {"expression": "clip(year(geboren), 1990, 1993)"}},
        queries=[
            ny.query.mean("gehalt", clip=(0, 100_000), by=["stadt"]), ny.query.count(by=["jahr"]),
        ],
        source={"delimiter": ";", "encoding": "latin-1", **EUROPEAN},
        budget={"zcdp": 10_000}, most_rows=1000,
    )  # fmt: skip
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("leute@1", protects="person", neighboring="replace-one", cap=10_000)
    result = release(plan, str(path), ledger, tmp_path / "out")
    frame = pd.read_csv(
        path, sep=";", encoding="latin-1", decimal=",", thousands=".", parse_dates=["geboren"],
        date_format="%d.%m.%Y",
    )  # fmt: skip
    means = frame.groupby("stadt")["gehalt"].mean()
    counts = frame.groupby(frame["geboren"].dt.year).size()
    mean = result.tables["mean.all"].to_pandas().set_index("stadt")
    count = result.tables["count.all"].to_pandas().set_index("jahr")
    for town, value in means.items():
        assert mean.loc[town, "value"] == pytest.approx(value, abs=50)
    assert {int(year): round(value) for year, value in count["value"].items()} == counts.to_dict()


# ---- data check --------------------------------------------------------------------------------


def checked(source, **columns):
    """The texts that are no numbers or dates, by column."""
    check = ny.check_data(formed(source), a_table(**columns))
    return {one.column: one for one in check.readings}


@pytest.mark.parametrize(("source", "texts", "unread", "suggestions"), [
    ({}, ["70,5", "1", "70,5", None, ""], 2, [{"decimal": ","}]),
    ({}, ["70,5", "1.000"], 1, [{"decimal": ",", "thousands": "."}]),
    ({}, ["1.000,5"], 1, [{"decimal": ",", "thousands": "."}]),
    ({}, ["1'000.5"], 1, [{"decimal": ".", "thousands": "'"}]),
    ({}, ["1\u202f000,5"], 1, [{"decimal": ",", "thousands": " "}]),
    ({}, ["1,000", "2"], 1, [{"decimal": ","}, {"decimal": ".", "thousands": ","}]),
    ({}, ["1,5", "2.5", "3.5"], 1, []),
    ({}, ["n/a", "+5"], 2, []),
    ({"decimal": ","}, ["1.5", "2"], 1, [{"decimal": "."}]),
    ({"decimal": ","}, ["1.500", "2,5"], 1, [{"decimal": ",", "thousands": "."}]),
])  # fmt: skip
def test_a_check_suggests_the_marks_that_read_the_most_texts(source, texts, unread, suggestions):
    match = checked(source, x=texts)["x"]
    assert (match.reading, match.unread) == ("number", unread)
    assert list(match.suggestions) == suggestions


@pytest.mark.parametrize("column", ["at", "day"])
@pytest.mark.parametrize(("source", "texts", "unread", "suggestions"), [
    ({}, ["31.01.2024", "1.2.2024", "2024-01-31"], 2, [{"dates": "%d.%m.%Y"}]),
    ({}, ["1/31/2024"], 1, [{"dates": "%m/%d/%Y"}]),
    ({}, ["01/02/2024"], 1, [{"dates": "%d/%m/%Y"}, {"dates": "%m/%d/%Y"}]),
    ({}, ["20240131"], 1, [{"dates": "%Y%m%d"}]),
    ({"dates": "%d.%m.%Y"}, ["2024-01-31"], 1, [{"dates": "%Y-%m-%d"}]),
    ({"dates": "%d.%m.%Y"}, ["31.02.2024", "31.01.2024"], 1, []),
])  # fmt: skip
def test_a_check_suggests_the_form_of_dates(column, source, texts, unread, suggestions):
    match = checked(source, **{column: texts})[column]
    assert (match.reading, match.unread) == ("date", unread)
    assert list(match.suggestions) == suggestions


def test_a_check_names_texts_as_they_are_written_and_a_listed_key_is_no_mistake():
    source = {"decimal": ",", "dates": "%d.%m.%Y"}
    check = ny.check_data(formed(source), a_table(
        x=["1.000", "1,5"], n=["1.000", "0"], b=["1.0", "1"],
        day=["unknown", "2024-01-31"], at=["x", None],
    ))  # fmt: skip
    frequent = {one.column: [value.value for value in one.frequent] for one in check.readings}
    assert frequent == {
        "x": [("1.000",)], "n": [("1.000",)], "day": [("2024-01-31",)], "at": [("x",)],
    }  # fmt: skip
    (numbers,) = check.numbers
    assert (numbers.numbers, numbers.missing, numbers.unmatched) == (1, 0, 1)
    assert [value.value for value in numbers.frequent] == [("1.000",)]
    unmatched = {
        keys.columns[0]: (keys.matched, keys.missing, keys.unmatched) for keys in check.keys
    }
    assert unmatched == {"n": (1, 0, 1), "b": (1, 0, 1), "day": (1, 0, 1), "year": (0, 2, 0)}


def test_a_check_counts_the_rows_of_an_assumed_id_as_it_is_written():
    plan = formed({"decimal": ",", "thousands": "."})
    check = ny.check_data(plan, a_table(n=["1.000", "1000", "1000"]), id="n")
    assert (check.assumed.units, check.assumed.largest) == (2, 2)
