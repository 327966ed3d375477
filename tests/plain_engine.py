"""The engine's rules in plain Python, one row at a time: what DuckDB and Spark are held to."""

import base64
import hashlib
import itertools
import math
import re
from collections import Counter, defaultdict
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from neyman.publishing import (
    aggregate_cells,
    backend_of,
    check_schema,
    columns_read,
    discover,
    key_text,
    open_table,
    rehearse,
)

KEY = bytes(range(18))
NUMBER = re.compile(r"-?([0-9]{1,120}(\.[0-9]{0,120})?|\.[0-9]{1,120})([eE][-+]?[0-9]{1,4})?")
INFINITE = ("inf", "Inf", "infinity", "Infinity")
BOOLEAN = {
    "true": ("true", "True", "TRUE", "t", "T"),
    "false": ("false", "False", "FALSE", "f", "F"),
}


def exact(text):
    """The number that a text is; None if it is none."""
    if text.removeprefix("-") in INFINITE:
        return -math.inf if text.startswith("-") else math.inf
    return Fraction(text) if NUMBER.fullmatch(text) else None


def canonical(value, kind="text"):
    """The text of the key that a value stands for; None if it stands for none."""
    if value is None or value == "":
        return None
    if kind != "text" and not isinstance(value, bool):
        if kind == "boolean" and isinstance(value, str):
            for key, texts in BOOLEAN.items():
                if value in texts:
                    return key
        number = exact(value) if isinstance(value, str) else value
        if number is None or (isinstance(number, float) and not math.isfinite(number)):
            return None
        if number != int(number):
            return None
        digits = str(int(number)) if abs(number) < 2**64 else None
        return {"0": "false", "1": "true"}.get(digits) if kind == "boolean" else digits
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return str(int(value)) if value == int(value) else None
    if isinstance(value, date):
        return f"{value:%Y-%m-%d}".rjust(10, "0")
    return str(value)


def number(value, decimals, low, high, unknown):
    """The whole number in [low, high] that a value stands for."""
    if isinstance(value, float):
        value = None if math.isnan(value) else _of_float(value, decimals, low, high)
    elif isinstance(value, str):
        value = exact(value)
        if value in (math.inf, -math.inf):
            value = high if value > 0 else low
        elif value is not None:
            value = math.floor(value * 10**decimals)
    elif value is not None:
        value = math.floor(Fraction(value) * 10**decimals)
    if value is None and unknown is None:
        return low - 1  # what no number becomes
    return min(max(unknown if value is None else value, low), high)


def _of_float(value, decimals, low, high):
    scaled = value * 10.0**decimals if abs(value) < 1e300 else value
    if abs(scaled) >= 2.0**60:
        return high if scaled > 0 else low
    near = math.floor(scaled + 0.5)
    close = abs(near - scaled) <= abs(scaled) * 2.0**-50 and abs(scaled) < 2.0**49
    return near if close else math.floor(scaled)


class Plain:
    """A plan's queries on rows that are dictionaries."""

    def __init__(self, plan, rows, key=KEY):
        self.plan, self.key = plan, key
        self.rows = list(rows)

    # Codes

    def place(self, row, level):
        hierarchy = self.plan.hierarchy
        kinds = ["whole" if name in hierarchy.integer else "text" for name in hierarchy.levels]
        path = [
            canonical(row.get(name, None), kind)
            for name, kind in zip(hierarchy.levels, kinds, strict=True)
        ]
        listed = [
            full
            for full in hierarchy.rows
            if all(
                canonical(a, kind) == b
                for a, b, n, kind in zip(full, path, hierarchy.levels, kinds, strict=True)
                if n in row
            )
        ]
        if not listed and hierarchy.unknown is not None:
            listed = [hierarchy.rows[hierarchy.unknown]]
        paths = hierarchy.paths(level)
        return paths.index(listed[0][: hierarchy.depth(level) + 1]) if listed else len(paths)

    def by(self, row, name):
        column = self.plan.column(name)
        first = column.keys[0] if column.keys else ""
        kind = {bool: "boolean", int: "whole"}.get(type(first), "text")
        text = canonical(row[name], kind)
        if column.discover:
            return None if text is None else text.encode("utf-8", "surrogateescape")
        keys = [key_text(key) for key in column.keys]
        if text in keys:
            return keys.index(text)
        return len(keys) if column.unknown is None else column.unknown

    def value(self, row, query, part="sum"):
        name, clip = query.measured(part)
        column = self.plan.column(name)
        return number(row[name], column.decimals, *clip, column.unknown)

    def has(self, row, query, part):
        """Whether a row has the numbers that it needs to take part in a part of the measure."""
        parts = ("sum", "over") if query.complete else ("over" if part == "over" else "sum",)
        measured = [query.measured(one) for one in parts]
        return all(
            self.plan.column(name).unknown is not None
            or number(row[name], self.plan.column(name).decimals, *clip, None) >= clip[0]
            for name, clip in measured
            if clip
        )

    def takes_part(self, row, query):
        """Whether a row adds something to some part of the measure."""
        if (query.delta is not None and query.measure != "sum") or not query.clip:
            return True
        parts = ("sum", "over") if query.clip_over else ("sum",)
        return query.delta is not None or any(self.has(row, query, part) for part in parts)

    def bin(self, row, query):
        column, edges = self.plan.column(query.column), query.bins
        low, high = edges[0], edges[-1] - 1
        x = number(row[query.column], column.decimals, low, high, column.unknown)
        if x < low:
            return len(edges) - 1
        return next(i for i in range(len(edges) - 1) if edges[i] <= x < edges[i + 1])

    def cell(self, row, query, level):
        """The axes of a query's cell at a level: name, code, number of keys."""
        results = []
        if level != "all":
            size = len(self.plan.hierarchy.paths(level))
            results.append((("place", level), self.place(row, level), size))
        for name in query.by:
            size = len(self.plan.column(name).keys) or math.inf
            code = self.by(row, name)
            results.append((("by", name), math.inf if code is None else code, size))
        if query.bins:
            code = self.bin(row, query)
            results.append((("bin", query.column, query.bins), code, len(query.bins) - 1))
        return results

    def lowest(self, query):
        return max(query.at, key=self.plan.hierarchy.depth) if query.at else "all"

    def needed(self, row, query):
        alone = query.measure in ("units", "distinct") or query.delta is not None
        levels = query.levels if alone else [self.lowest(query)]
        by_key = {}
        for level in levels:
            by_key |= {name: code for name, code, _ in self.cell(row, query, level)}
        if query.clip:
            by_key["value", query.column, query.clip] = self.value(row, query)
        if query.clip_over:
            by_key["value", query.over, query.clip_over] = self.value(row, query, "over")
        if query.measure == "distinct":
            code = self.by(row, query.column)
            by_key["by", query.column] = math.inf if code is None else code
        return dict(sorted(by_key.items(), key=lambda item: self.unlisted(item[0])))

    def unlisted_code(self, query):
        """The code of a value that is not a listed key."""
        return len(self.plan.column(query.column).keys) or None

    def unlisted(self, axis):
        """Whether the keys of an axis are unknown: such a key comes after the numbers of a row."""
        return axis[0] == "by" and self.plan.column(axis[1]).discover

    # Bounds

    def digest(self, label, numbers, unit):
        def digits(n):
            return n.hex().upper() if isinstance(n, bytes) else "-" if n == math.inf else str(n)

        texts = map(digits, (label, *numbers))
        message = base64.b64encode(self.key).decode() + "".join(f"{t}," for t in texts)
        message += ":" + unit.encode("utf-8", "surrogateescape").hex().upper()
        return hashlib.sha256(message.encode()).hexdigest()[:16]

    def first(self, rows, most, label, group=lambda row: ()):
        """At most so many of the rows of each unit and group; a row is (unit, numbers, cell)."""
        copies, ranked = Counter(), defaultdict(list)
        for row in rows:
            unit, numbers, _ = row
            copy = copies[unit, numbers]
            copies[unit, numbers] += 1
            rank = self.digest(label, (*numbers, copy), unit)
            ranked[unit, group(row)].append((rank, numbers, copy, row))
        return [
            row
            for result in ranked.values()
            for *_, row in sorted(result, key=lambda f: f[:3])[:most]
        ]

    def limited(self, queries, rows):
        """Rows that the unit's bound leaves, as needed by the queries: (unit, numbers, row)."""
        items = []
        for row in rows:
            unit = canonical(row[self.plan.unit.id])
            if unit is None:
                continue
            needed = {}
            for query in queries:
                needed |= self.needed(row, query)
            items.append((unit, tuple(needed.values()), row))
        return self.first(items, self.plan.unit.rows, 0)

    def restricted(self, query, selection, label):
        """Rows that the query's own bounds leave: (unit, row)."""
        rows = []
        for unit, _, row in selection:
            if not self.takes_part(row, query):
                continue
            cell = self.cell(row, query, self.lowest(query))
            known = all(code < size for _, code, size in cell if not isinstance(code, bytes))
            if query.inverse_sensitivity:  # values are no cells
                cell = [axis for axis in cell if axis[0][0] != "bin"]
            if known:
                ordered = sorted(cell, key=lambda axis: self.unlisted(axis[0]))
                codes = tuple(code for _, code, _ in ordered)
                rows.append((unit, tuple(self.needed(row, query).values()), (codes, row)))
        if query.groups is not None and rows and rows[0][2][0]:
            cells = defaultdict(set)
            for unit, _, (codes, _) in rows:
                cells[unit].add(codes)
            chosen = {
                (unit, codes)
                for unit, result in cells.items()
                for codes in sorted(result, key=lambda c: (self.digest(label, c, unit), c))[
                    : query.groups
                ]
            }
            rows = [row for row in rows if (row[0], row[2][0]) in chosen]
        if query.rows_per_group is not None:
            rows = self.first(rows, query.rows_per_group, label + 1, lambda row: row[2][0])
        return [(unit, row) for unit, _, (_, row) in rows]

    # Tables

    def tables(self, among=None):
        """Each table of known keys as a list; of some queries alone, if they are given."""
        asked = self.plan.queries if among is None else among
        queries = [query for query in asked if query.split and query.delta is None]
        named = self.plan.unit.id is not None
        shared = [query for query in queries if query.measure != "distinct"]
        every = self.limited(shared, self.rows) if named else []
        by_key = {}
        for query in queries:
            selection = every
            if named and query.measure == "distinct":
                selection = self.limited([query], self.rows)
            label = 1 + 2 * self.plan.queries.index(query)
            own = list(enumerate(self.rows))
            if named:
                alone = query.groups or query.rows_per_group
                own = [(unit, row) for unit, _, row in selection]
                own = self.restricted(query, selection, label) if alone else own
            for level, _ in query.split:
                by_key |= self.of(query, level, own)
        return by_key

    def of(self, query, level, own):
        shape = self.plan.shape(query, level)
        cells = {cell: [] for cell in itertools.product(*map(range, shape))}
        for unit, row in own:
            at = () if query.at else (0,)
            place = at + tuple(code for _, code, _ in self.cell(row, query, level))
            if place in cells:
                over = self.value(row, query, "over") if query.clip_over else 0
                if query.measure == "distinct":
                    over = self.by(row, query.column)
                value = self.value(row, query) if query.clip else 0
                cells[place].append((unit, value, over, row))
        middle = sum(query.clip) // 2 if query.clip else 0
        size = (query.clip[1] - middle) ** 2 if query.clip else 0
        unit = 1 if size < 2**31 else 2 ** (len(f"{size:b}") - 30)
        halves = 1 if query.clip and sum(query.clip) % 2 else 2
        parts = {
            "count": len,
            "units": lambda rows: len({unit for unit, *_ in rows}),
            "distinct": lambda rows: len(
                {y for *_, y, _ in rows} - {None, self.unlisted_code(query)}
            ),
            "sum": lambda rows: sum(x for _, x, _, _ in rows),
            "rank": len,
            "over": lambda rows: sum(y for *_, y, _ in rows),
            "offset": lambda rows: sum(
                (2 * x - sum(query.clip or ())) // halves for _, x, _, _ in rows
            ),
            "square": lambda rows: sum(
                math.floor(Fraction((x - middle) ** 2, unit) + Fraction(1, 2))
                for _, x, _, _ in rows
            ),
        }
        measures = {"mean": ["offset", "count"], "variance": ["offset", "square", "count"]}
        measures |= {"sum": ["sum"], "units": ["units"], "distinct": ["distinct"]}
        measures |= {query.measure: ["rank"]} if query.inverse_sensitivity else {}
        measures |= {"standard_deviation": measures["variance"], "ratio": ["sum", "over"]}
        return {
            (query.name, level, part): [
                parts[part]([one for one in rows if self.has(one[3], query, part)])
                for rows in cells.values()
            ]
            for part in measures.get(query.measure, ["count"])
        }

    def keys(self, query, level, measure="keys"):
        """Units of each key that is there, by its bytes; or its rows, or a sum of them."""
        own = list(enumerate(self.rows))
        if self.plan.unit.id is not None:
            own = self.restricted(query, self.limited([query], self.rows), 1)
        rows = defaultdict(list)
        for unit, row in own:
            cell = self.cell(row, query, level)
            if all(isinstance(code, bytes) or code < size for _, code, size in cell):
                rows[tuple(code for _, code, _ in cell)].append((unit, row))
        number = {
            "keys": lambda own: len({unit for unit, _ in own}),
            "count": len,
            "sum": lambda own: sum(
                self.value(row, query) for _, row in own if self.has(row, query, "sum")
            ),
        }[measure]
        return {codes: number(result) for codes, result in rows.items()}


def counted(plan, source, engine="duckdb", key=KEY, rehearsed=False):
    """The whole way from a source to dense tables as lists; on DuckDB with a rehearsal before it.

    Args:
        plan: what is counted.
        source: the data.
        engine: which counts.
        key: draws which rows of a unit are kept.
        rehearsed: leave the rehearsal out, as the plan had one with a source of these columns.
    """
    form = open_table(source, engine, rows=False)
    columns = columns_read(plan, list(form.columns))
    check_schema(plan, form)
    if engine == "duckdb" and not rehearsed:
        rehearse(plan, open_table(source, engine, columns or None, rows=False))
    result = aggregate_cells(plan, open_table(source, engine, columns or None), key)
    for cells in result.values():
        assert (cells.values != 0).all()
        assert (cells.index[1:] > cells.index[:-1]).all()
    return {name: cells.dense().tolist() for name, cells in result.items()}


def fetched(rows):
    """Rows of any engine as an Arrow table."""
    return backend_of(rows).arrow(rows)


def fits(away, room):
    """Whether cells that move fit into those of a shift, several in one or each by itself."""
    if not away or sum(away) > sum(room):
        return not away
    first, *rest = away
    return any(
        size >= first and fits(tuple(rest), (*room[:i], size - first, *room[i + 1 :]))
        for i, size in enumerate(room)
        if size not in room[:i]
    )


def moves(shifts, difference):
    """Whether the cells that move fit into those of one of the shifts."""
    away = tuple(sorted((abs(int(cell)) for cell in difference if cell), reverse=True))
    return any(fits(away, shift) for shift in shifts)


def maximal(shifts):
    """The shifts, sorted downward, that fit into no other one; largest norm first."""
    result = []
    for one in sorted(set(shifts), key=lambda v: (sum(x * x for x in v), v), reverse=True):
        if not any(fits(one, other) for other in result):
            result.append(one)
    return tuple(result)


def aggregate(plan, table):
    """The exact tables of a plan, zeros included."""
    return {key: cells.dense() for key, cells in aggregate_cells(plan, table).items()}


def check(plan, source, rows, engine="duckdb"):
    """The engine finds what plain Python finds, cell for cell."""
    result, right = counted(plan, source, engine), Plain(plan, rows).tables()
    assert set(result) == set(right)
    for key, values in result.items():
        assert values == right[key], key


def discovered(plan, source, engine, level="all", name="q", measure="keys"):
    """The keys of one query, as a dictionary from texts to units, or to another measure."""
    query = plan.query(name)
    table = open_table(source, engine)
    check_schema(plan, table)
    keys, exact = discover(plan, query, level, table, KEY)
    units = exact[measure]
    rows = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    assert rows == sorted(rows, key=lambda row: [text.encode() for text in row])
    assert keys.schema == pa.schema([(n, pa.string()) for n in plan.key_columns(query, level)])
    return dict(zip(rows, units.tolist(), strict=True))
