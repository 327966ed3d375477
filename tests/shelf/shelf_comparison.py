"""Each published cell of a table of the shelf beside what plain SQL says of the same rows."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import cycle, pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from shelf_tables import Table

import neyman as ny
from neyman import Release
from plans import release
from postgres_server import PostgresServer

__all__ = ["SOURCES", "Place", "differences", "groupings", "plan_of", "released"]

BINS = 40
QUANTILES = ("1/10", "3/4")
LEVELS = {"median": "1/2", "min": "1/100", "max": "99/100"}
SUMS = ("sum", "mean", "variance", "standard_deviation", "ratio")
MEASURES = (*SUMS, "count", "units", "distinct", "histogram", "quantiles", *LEVELS)
UNDEFINED = (*SUMS[1:], "quantiles", *LEVELS)  # of no rows
RHO = 10_000  # the largest budget of a plan
CERTAIN = 6.5  # standard errors: 1 in 10^10


# ---- the plan ---------------------------------------------------------------------------------


def groupings(table: Table) -> list[tuple[str, ...]]:
    """By what its tables are: the first two groups, none, and each group."""
    return [table.groups[:2], (), *((name,) for name in table.groups if table.groups[1:])]


def plan_of(table: Table, by: tuple[str, ...]) -> ny.Plan:
    """Every measure of the table, with its numbers in turn."""
    columns: dict[str, Any] = {name: {"type": "date"} for name in table.dates}
    columns |= {name: {"decimals": each[0]} for name, each in table.numbers.items()}
    columns |= {name: {"keys": table.listed(name)} for name in table.groups}
    names = cycle(table.numbers)
    queries = []
    for measure in MEASURES:
        query: dict[str, Any] = {"name": measure, "measure": measure}
        query["by"] = list(by)
        if measure == "distinct":
            query["column"] = table.groups[-1]
        elif measure not in ("count", "units"):
            query["column"] = next(name for name in names if _has(table, name, measure))
        if measure in SUMS:
            query["clip"] = _ends(table, query["column"])
        if measure == "ratio":
            over = [name for name, (_, low, _) in table.numbers.items() if low >= 0]
            query["over"] = next((o for o in over if o != query["column"]), query["column"])
            query["clip_over"] = _ends(table, query["over"])
        if measure in ("histogram", "quantiles", *LEVELS):
            query["edges"] = [str(edge) for edge in _edges(table, query["column"])]
        if measure == "quantiles":
            query["quantiles"] = list(QUANTILES)
        queries.append(query)
    # Counts that are off by 1 move quantiles, and sums that are off hide what one row adds.
    of_sum, of_count = (3, 1) if table.rows < 4 else (1, 3)
    weights = [of_sum if query["measure"] in SUMS else of_count for query in queries]
    for query, weight in zip(queries, weights, strict=True):
        query["share"] = f"{weight}/{sum(weights)}"
    unit: dict[str, Any] = {"protects": "person", "neighboring": "add-remove"}
    unit |= {"id": table.unit, "rows": table.rows} if table.unit else {}
    document = {
        "schema": 2, "name": "shelf", "dataset": "shelf@1", "table": "shelf",
        "most_rows": len(table.frame()), "unit": unit, "columns": columns,
        "derive": {name: {"expression": pair[0]} for name, pair in table.derived.items()},
        "budget": {"zcdp": RHO}, "query": queries,
    }  # fmt: skip
    return ny.Plan.from_dict(document)


def _has(table: Table, name: str, measure: str) -> bool:
    """Whether a plan takes the measure of this column: a person moves squares by at most 10^12."""
    decimals, low, high = table.numbers[name]
    square = ((high - low) * 10**decimals) ** 2 / 4 * table.rows
    return measure not in ("variance", "standard_deviation") or square <= 1e12


def _ends(table: Table, name: str) -> list[int]:
    return list(table.numbers[name][1:])


def _edges(table: Table, name: str) -> list[Fraction]:
    """Edges of about BINS equal bins from end to end, with no more decimals than the column."""
    decimals, low, high = table.numbers[name]
    scale = 10**decimals
    marks = {low * scale + (high - low) * scale * step // BINS for step in range(BINS + 1)}
    return [Fraction(mark, scale) for mark in sorted(marks)]


# ---- the sources ------------------------------------------------------------------------------


class Place:
    def __init__(self, folder: Path, server: Callable[[], PostgresServer]) -> None:
        self.folder, self.server = folder, server

    def parquet(self, frame: pd.DataFrame) -> str:
        path = self.folder / "shelf.parquet"
        pq.write_table(self.arrow(frame), path)
        return str(path)

    def arrow(self, frame: pd.DataFrame) -> pa.Table:
        return pa.Table.from_pandas(frame, preserve_index=False)

    def csv(
        self, frame: pd.DataFrame, delimiter: str = ",", encoding: str = "utf-8", decimal: str = "."
    ) -> str:
        path = self.folder / "shelf.csv"
        frame.to_csv(path, index=False, sep=delimiter, encoding=encoding, decimal=decimal)
        return str(path)

    def pandas(self, frame: pd.DataFrame) -> pd.DataFrame:
        days = {n: pd.to_datetime(frame[n]) for n in frame if self._is_date(frame, n)}
        return frame.assign(**days)

    def polars(self, frame: pd.DataFrame) -> pl.DataFrame:
        converted = pl.from_arrow(self.arrow(frame))
        assert isinstance(converted, pl.DataFrame)
        return converted

    def sqlite(self, frame: pd.DataFrame) -> str:
        table = self.arrow(frame)
        names = {pa.types.is_integer: "INTEGER", pa.types.is_floating: "REAL"}
        kinds = [
            next((name for is_kind, name in names.items() if is_kind(one.type)), "TEXT")
            for one in table.schema
        ]
        rows = [
            [value if isinstance(value, int | float | None) else str(value) for value in row]
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
        with sqlite3.connect(self.folder / "shelf.db") as connection:
            connection.execute("DROP TABLE IF EXISTS shelf")
            connection.execute(f"CREATE TABLE shelf ({_declared(table.column_names, kinds)})")
            marks = ", ".join("?" * len(kinds))
            connection.executemany(f"INSERT INTO shelf VALUES ({marks})", rows)
        connection.close()
        return f"sqlite://{self.folder}/shelf.db?table=shelf"

    def postgresql(self, frame: pd.DataFrame) -> str:
        table = self.arrow(frame)
        names = {
            pa.types.is_integer: "bigint", pa.types.is_floating: "double precision",
            pa.types.is_boolean: "boolean", pa.types.is_date: "date",
            pa.types.is_timestamp: "timestamptz",
        }  # fmt: skip
        kinds = [
            next((name for is_kind, name in names.items() if is_kind(one.type)), "text")
            for one in table.schema
        ]
        server = self.server()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS shelf")
            declared = _declared(table.column_names, kinds)
            connection.execute(f"CREATE TABLE shelf ({declared})".encode())
            with connection.cursor().copy("COPY shelf FROM STDIN") as copy:
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    copy.write_row(row)
        return f"{server.url()}&table=shelf"

    @staticmethod
    def _is_date(frame: pd.DataFrame, name: str) -> bool:
        return pd.api.types.infer_dtype(frame[name], skipna=True) == "date"


SOURCES = ("parquet", "csv", "arrow", "pandas", "polars", "sqlite", "postgresql")


def _declared(names: list[str], kinds: list[str]) -> str:
    return ", ".join(f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True))


def released(
    table: Table, plan: ny.Plan, source: str, place: Place, frame: pd.DataFrame, engine: str
) -> Release:
    """The release of a plan from the rows of a frame in one form."""
    folder = Path(mkdtemp(dir=place.folder))
    ledger = ny.Ledger(str(folder / "ledger.db"))
    unit = {"protects": "person", "neighboring": "add-remove", "rows": table.rows}
    ledger.create("shelf@1", cap=RHO, **unit)
    form = table.csv if source == "csv" else {}
    if form:
        plan = ny.Plan.from_dict({**plan.canonical(), "source": dict(form)})
    data = getattr(place, source)(frame, **form)
    return release(plan, {"shelf": data}, ledger, str(folder / "out"), engine)


# ---- SQL --------------------------------------------------------------------------------------


def _sql(table: Table, name: str) -> str:
    if name in table.finer:
        scale = 10 ** table.numbers[name][0]
        return f'floor("{name}" * {scale} + 1e-9) / {scale}'
    return table.derived[name][1] if name in table.derived else f'"{name}"'


def _wanted(table: Table, query: Mapping[str, Any]) -> str:
    """What a query publishes of one cell, in SQL: a list with an entry for each row."""
    measure = query["measure"]
    x = _sql(table, query["column"]) if "column" in query else ""
    if measure in ("histogram", "quantiles", *LEVELS):
        if measure == "histogram":
            edges = [float(edge) for edge in _edges(table, query["column"])]
            edges[0], edges[-1] = float("-inf"), float("inf")
            pairs = pairwise(edges)
            inside = (f"{x} >= '{low}'::double AND {x} < '{high}'::double" for low, high in pairs)
            parts = [f"count(*) FILTER (WHERE {one})" for one in inside]
        else:
            levels = QUANTILES if measure == "quantiles" else (LEVELS[measure],)
            parts = [
                f"[quantile_disc({x}, {float(q)}), -quantile_disc(-{x}, {float(1 - q)})]"
                for q in map(Fraction, levels)
            ]
        return f"[{', '.join(parts)}]"
    return {
        "count": "[count(*)]",
        "units": f'[count(DISTINCT "{table.unit}")]' if table.unit else "[count(*)]",
        "distinct": f"[count(DISTINCT {x})]", "sum": f"[coalesce(sum({x}), 0)]",
        "mean": f"[avg({x})]", "variance": f"[var_pop({x})]",
        "standard_deviation": f"[stddev_pop({x})]",
        "ratio": f"[[sum({x}), sum({_sql(table, query.get('over', 'x'))})]]",
    }[measure]  # fmt: skip


def _answers(
    table: Table, rows: pa.Table, queries: list[dict[str, Any]]
) -> Iterator[dict[tuple[str, ...], tuple[int, list[Any]]]]:
    """For each query its cells in SQL: the number of rows, and what is wanted."""
    with duckdb.connect() as connection:
        connection.register("shelf", rows)
        for query in queries:
            by = [_sql(table, name) for name in query["by"]]
            number = "count(*)"
            if "column" in query and query["measure"] != "distinct":
                number = f"count({_sql(table, query['column'])})"
            parts = [*by, number, _wanted(table, query)]
            asked = f"SELECT {', '.join(parts)} FROM shelf"
            asked += f" GROUP BY {', '.join(by)}" if by else ""
            yield {
                tuple(map(_key, row[:-2])): (row[-2], row[-1])
                for row in connection.execute(asked).fetchall()
                if None not in row[:-2]
            }


def _key(value: Any) -> str:
    """A key as text: 1.0 and 1 are one key."""
    return str(int(value)) if isinstance(value, float) else str(value)


# ---- the comparison ---------------------------------------------------------------------------


def differences(table: Table, plan: ny.Plan, published: Release, rows: pa.Table) -> list[str]:
    """Return a line for each published value that is not SQL's. It checks each cell of each key."""
    queries = [dict(query) for query in plan.canonical()["query"]]
    for entry, squared in plan.calibrated():
        query = next(query for query in queries if query["name"] == entry.query)
        query[f"noise of {entry.measure}"] = CERTAIN * math.sqrt(squared)
    lines: list[str] = []
    for query, cells in zip(queries, _answers(table, rows, queries), strict=True):
        by = query["by"]
        published_rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in published.tables[f"{query['name']}.all"].to_pylist():
            published_rows.setdefault(tuple(_key(row[name]) for name in by), []).append(row)
        listed = [set(map(_key, table.listed(name))) for name in by]
        lost = [key for key in cells if key not in published_rows and _is_listed(key, listed)]
        lines += [f"{query['name']} by {by} {key}: not published" for key in lost]
        for key, each in published_rows.items():
            number, wanted = cells.get(key, (0, []))
            if not number and query["measure"] in UNDEFINED:
                continue  # nothing is claimed of no rows
            wanted = wanted or [0] * len(each)
            assert len(each) == len(wanted), query
            for row, right in zip(each, wanted, strict=True):
                if right is not None and not _agrees(table, query, row, right, number):
                    lines.append(f"{query} {key}: published {row}, SQL says {right} of {number}")
    return lines


def _is_listed(key: tuple[str, ...], listed: list[set[str]]) -> bool:
    return all(each in keys for each, keys in zip(key, listed, strict=True))


def _agrees(
    table: Table, query: dict[str, Any], row: dict[str, Any], right: Any, number: int
) -> bool:
    """Whether a published value is SQL's, but for noise and the rules of docs/howto/data.md."""
    measure, value = query["measure"], float(row["value"])
    if measure in ("count", "units", "distinct", "histogram"):
        return (
            abs(value - right)
            <= query[f"noise of {'count' if measure == 'histogram' else measure}"]
        )
    noise = CERTAIN * row["standard_error"]
    decimals, low, high = table.numbers[query["column"]]
    if measure == "ratio":
        above, below = right
        off = query["noise of sum"] / 10**decimals
        off_below = query["noise of over"] / 10 ** table.numbers[query["over"]][0]
        if above is None or below is None or below <= off_below:
            return True
        return abs(value * below - above) <= off + abs(value) * off_below + 1e-9 * abs(above)
    if isinstance(right, list):  # between two neighbors in order, but for a bin
        edges = [float(edge) for edge in _edges(table, query["column"])]
        width = max(high - low for low, high in pairwise(edges))
        return right[0] - width - noise <= value <= right[1] + width + noise
    if measure != "sum" and (off := query["noise of count"]) > 1:  # a noisy count may be off by 1
        share, half = off / number, (high - low) / 2
        noise += {"mean": half * share, "variance": half**2 * share}.get(measure, half * share**0.5)
    if measure == "standard_deviation":  # a root is not linear near 0: the variances are compared
        squared = noise * max(2 * value, noise / CERTAIN)
        return abs(value**2 - right**2) <= squared + 1e-9 * right**2
    return abs(value - float(right)) <= noise + 1e-9 * abs(right)
