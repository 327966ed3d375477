"""Read the derived columns and the filters of a plan, which apply to each row before it is counted.

Each is a function of one row alone. So a row counts in at most one cell by a derived column, as by
a column of the data, and `shifts` bounds both. A filter only removes rows. It comes before the
bounds on a unit's rows, which apply to the rows that remain.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from neyman.accounting.semantics.digits import exact_text, plain
from neyman.publishing.plan.column import Column, scaled
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import PlanError, show
from neyman.publishing.plan.hierarchy import Hierarchy, HierarchyError, KeyFile, read_rows
from neyman.publishing.plan.listed_keys import is_period
from neyman.publishing.plan.plan_fields import ColumnPart, DerivePart, LookupPart
from neyman.publishing.plan.row_expression import (
    NUMBER_LIMIT,
    ColumnType,
    ColumnTypes,
    ExpressionError,
    Node,
    condition,
    hours_read,
    mentioned,
    named_columns,
    read,
    sources,
)

Reading = Literal["number", "boolean", "date", "day"]
"""How a text is read: "day" for the text of a date, to compare with keys."""

ISO_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"  # the pattern of a date's text, as keys write it
# The most values of an integer that count as public keys without a list.
MAX_LISTED_VALUES = 1000

_FIELDS_OF_RULES = {
    "expression": ["range"],
    "cut": ["edges", "labels", "unknown"],
    "map": ["to", "unknown"],
    "case": ["unknown"],
}
"""The rules of a derived column, each with the fields that it takes."""


@dataclass(frozen=True)
class Derived:
    """Represent a column computed from other columns of a row.

    Args:
        rule: "expression", "cut", "map", "case" or "lookup".
        text: the expression of the value, of the number to cut, or of the text to replace or look
            up; blank for cases.
        value: ``text`` parsed; None for cases.
        ends: the clip of an expression's number, scaled by the number's decimals.
        edges: the edges of a cut, scaled by the number's decimals.
        further: for a lookup by several columns, each expression after the first, as written and
            parsed.
        pairs: each text of a map, or each key of a lookup (one text per expression), followed by
            its label.
        cases: each condition as written, the parsed condition, and its label.
        unknown: the label of a row that no other label fits; None for no label.
    """

    name: str
    rule: str
    text: str
    value: Node | None
    ends: tuple[int, int] | None = None
    edges: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    further: tuple[tuple[str, Node], ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    cases: tuple[tuple[str, Node, str], ...] = ()
    unknown: str | None = None
    file: KeyFile | None = field(default=None, compare=False)
    measurement_unit: str | None = None

    @property
    def type(self) -> ColumnType:
        """Return the type as which other expressions read the column."""
        if self.rule == "expression" and self.value is not None:
            return ColumnType(self.value.type, self.value.scale)
        return ColumnType("text")

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the column's parsed expressions."""
        value = () if self.value is None else (self.value,)
        further = (node for _, node in self.further)
        return (*value, *further, *(node for _, node, _ in self.cases))

    @property
    def sources(self) -> frozenset[str]:
        """Return the columns that the expressions read, including derived ones."""
        return frozenset(name for node in self.nodes for name in sources(node))

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts that the column can have, in order; () for an expression."""
        given = [*self.labels, *(label for *_, label in self.pairs)]
        given += [label for *_, label in self.cases]
        given += [self.unknown] if self.unknown is not None else []
        return tuple(dict.fromkeys(given))

    def can_give(self, key: str | int) -> bool:
        """Return False if the column has the value ``key`` in no row of any data."""
        if self.rule != "expression" or self.value is None:
            return key in self.texts
        return _can_give(self.value, key)

    @property
    def column(self) -> Column | None:
        """Return the column as queries use it, or None if the rule does not determine its keys."""
        node = self.value
        if self.rule != "expression" or node is None:
            keys = self.texts
            return Column(
                self.name, keys, None if self.unknown is None else keys.index(self.unknown)
            )
        if node.type == "boolean":
            return Column(self.name, (True, False), None)
        if node.type == "text":
            labels = _labels(node)
            return None if labels is None else Column(self.name, tuple(dict.fromkeys(labels)), None)
        if node.type != "number":
            return None
        if self.ends is not None:
            return Column(self.name, (), None, node.scale, measurement_unit=self.measurement_unit)
        if node.high - node.low >= MAX_LISTED_VALUES:
            return None
        return Column(self.name, tuple(range(node.low, node.high + 1)), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON types, for the canonical plan."""
        unknown = {} if self.unknown is None else {"unknown": self.unknown}
        if self.rule == "expression":
            scale = 10 ** (self.value.scale if self.value else 0)
            numbers = [plain_number(Fraction(end, scale)) for end in self.ends or ()]
            ends = {"range": numbers} if numbers else {}
            unit = self.measurement_unit
            return {"expression": self.text, **ends, **({"measurement_unit": unit} if unit else {})}
        if self.rule == "cut":
            scale = 10 ** (self.value.scale if self.value else 0)
            edges = [_number_text(Fraction(edge, scale)) for edge in self.edges]
            return {"cut": self.text, "edges": edges, "labels": list(self.labels), **unknown}
        if self.rule == "map":
            return {"map": self.text, "to": {row[0]: row[1] for row in self.pairs}, **unknown}
        if self.rule == "case":
            return {"case": [[text, label] for text, _, label in self.cases], **unknown}
        column = [self.text, *(text for text, _ in self.further)] if self.further else self.text
        return {"column": column, "keys": [list(pair) for pair in self.pairs], **unknown}


@dataclass(frozen=True)
class Rows:
    """Hold what a plan computes from each row before counting: derived columns and filters.

    Args:
        types: the columns of the data that only expressions read, with their declared types.
        derived: the derived columns, each after its sources.
        filters: the text and the parsed form of each filter: the table's and the queries'.
        readings: the type as which expressions read each column of the data that they use.
        parsed: the text columns whose values the plan reads as numbers or dates, one by one.
    """

    types: tuple[tuple[str, str], ...] = ()
    derived: tuple[Derived, ...] = ()
    where: str | None = None
    filters: tuple[tuple[str, Node], ...] = ()
    readings: tuple[tuple[str, ColumnType], ...] = ()
    zones: tuple[tuple[str, str], ...] = ()
    parsed: tuple[str, ...] = ()

    @property
    def nodes(self) -> Iterator[Node]:
        """Yield every parsed expression of the plan."""
        for one in self.derived:
            yield from one.nodes
        for _, node in self.filters:
            yield node

    @property
    def hours(self) -> frozenset[str]:
        """Return the columns of the data whose time of day an expression reads."""
        return frozenset(name for node in self.nodes for name in hours_read(node))

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the derived columns."""
        return frozenset(derived.name for derived in self.derived)

    def bases(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns of the data that these columns are, or are computed from."""
        by_name = {derived.name: derived for derived in self.derived}
        left, bases = list(names), set[str]()
        visited = set[str]()
        while left:
            name = left.pop()
            if name in visited:
                continue
            visited.add(name)
            if name in by_name:
                left += by_name[name].sources
            else:
                bases.add(name)
        return frozenset(bases)

    def following(self, names: Iterable[str]) -> frozenset[str]:
        """Return these columns of the data, and each derived column that depends on one of them."""
        result = set(names)
        for derived in self.derived:
            if not result.isdisjoint(derived.sources):
                result.add(derived.name)
        return frozenset(result)

    def read_by(self, text: str | None) -> frozenset[str]:
        """Return the columns that a filter reads, including derived ones; none for no ``text``."""
        return frozenset(sources(self.filter(text))) if text is not None else frozenset()

    def filter(self, text: str) -> Node:
        """Return the parsed form of the plan's filter with this text."""
        return dict(self.filters)[text]


NO_ROWS = Rows()  # a plan without derived columns and filters


def derived_columns(
    document: PlanDocument, folder: Path | None, problems: list[str]
) -> tuple[dict[str, ColumnType], tuple[Derived, ...]]:
    """Return the type of each column that expressions can read, and the derived columns.

    Add the problems of the derived columns to ``problems``.
    """
    types = dict(_declared_types(document))
    derived = _derive_columns(document, types, folder, problems)
    return types, tuple(derived)


def read_filters(
    places: Iterable[tuple[str, str | None]],
    types: ColumnTypes,
    failed: Collection[str],
    problems: list[str],
) -> dict[str, Node]:
    """Parse filters, by their texts. Add their problems to ``problems``.

    Args:
        places: the place of each filter in the plan, and its text; None for no filter.
        types: the result of `derived_columns`.
        failed: derived columns with problems. Filters that read them are left out.
    """
    filters: dict[str, Node] = {}
    for where, text in places:
        if text is None or not mentioned(text).isdisjoint(failed):
            continue
        try:
            filters[text] = condition(text, types)
        except ExpressionError as error:
            problem = f"{where} = {show(text)}: {error}"
            problems += [] if problem in problems else [problem]  # keys of a partition may share it
    return filters


def rows_of(
    document: PlanDocument,
    types: ColumnTypes,
    derived: tuple[Derived, ...],
    filters: Mapping[str, Node],
    problems: list[str],
) -> Rows:
    """Return what a plan computes from each row. Add problems of time zones to ``problems``."""
    nodes = {name for node in filters.values() for name in sources(node)}
    used = nodes.union(*(one.sources for one in derived))
    names = {one.name for one in derived}
    return Rows(
        tuple((name, part.type) for name, part in document.columns.items() if part.type),
        derived,
        document.where,
        tuple(filters.items()),
        tuple((name, types[name]) for name in sorted(used - names) if name in types),
        tuple(_zones(document, problems)),
        tuple(sorted(name for name, part in document.columns.items() if part.parse)),
    )


def column_types(document: PlanDocument, folder: Path | None) -> ColumnTypes:
    """Return the type of each column that expressions can read: declared, derived, or a level."""
    problems: list[str] = []
    types, _ = derived_columns(document, folder, problems)
    if problems:
        raise PlanError(problems)
    return types


def _zones(document: PlanDocument, problems: list[str]) -> Iterator[tuple[str, str]]:
    for name, part in document.columns.items():
        if part.zone is None:
            continue
        if name in document.derive or name in document.lookup:
            right = "is for a column of the data; leave it out"
        elif part.type == "date" or part.discover or _are_texts(part.listed):
            yield name, part.zone
            continue
        else:
            right = "is for dates: a column with type = 'date', or with keys such as '2024-12-31'"
        problems.append(f"columns.{name}.zone = {show(part.zone)}: {right}")


def _are_texts(keys: tuple[str | int | bool, ...]) -> bool:
    return bool(keys) and all(isinstance(key, str) for key in keys)


def _declared_types(document: PlanDocument) -> Iterator[tuple[str, ColumnType]]:
    for part in document.hierarchy.values():
        for level in part.levels:
            yield level, ColumnType("number" if level in part.integer else "text")
    calculated = document.derive.keys() | document.lookup.keys()
    for name, part in document.columns.items():
        if name not in calculated:
            yield name, _type_of(part)


def _type_of(part: ColumnPart) -> ColumnType:
    if part.type == "date":
        return ColumnType("date", is_timed=True)
    if part.type is not None:
        return ColumnType("number" if part.type == "whole" else part.type)
    if part.integer or part.decimals is not None:
        return ColumnType("number", part.decimals or 0)
    first = part.listed[0] if part.listed else ""
    if isinstance(first, bool):
        return ColumnType("boolean")
    return ColumnType("number" if isinstance(first, int) else "text")


def _derive_columns(
    document: PlanDocument, types: dict[str, ColumnType], folder: Path | None, problems: list[str]
) -> list[Derived]:
    """Return the derived columns in dependency order. Add the type of each to ``types``."""
    parts: dict[str, DerivePart | LookupPart] = {**document.derive}
    for name, part in document.lookup.items():
        if name in parts:
            problems.append(f"lookup.{name}: is also in [derive]; name it once")
        parts[name] = part
    own = document.unit.id
    if own in parts:
        problems.append(f"unit.id = {own!r}: is a derived column; name a column of the data")
    result: list[Derived] = []
    failed: set[str] = set()
    left = parts
    while left:
        # A column that reads a remaining column waits for it.
        ready = [name for name, part in left.items() if not _waits(part, left.keys() - {name})]
        if not ready:
            names = ", ".join(repr(name) for name in left)
            problems.append(f"derive: {names} are computed from each other; one must come first")
            return result
        for name in ready:
            part = left.pop(name)
            if _waits(part, failed):
                failed.add(name)
                continue
            errors: list[str] = []
            one = _derived(name, part, types, folder, errors)
            if one is None or errors:
                failed.add(name)
                section = "lookup" if name in document.lookup else "derive"
                problems += [f"{section}.{name}{text}" for text in errors]
                continue
            types[name] = one.type
            result.append(one)
    return result


def _derived(
    name: str,
    part: DerivePart | LookupPart,
    types: ColumnTypes,
    folder: Path | None,
    errors: list[str],
) -> Derived | None:
    is_lookup = isinstance(part, LookupPart)
    try:
        if any(name in named_columns(text) for text in _texts_of(part)):
            what = "lookup" if is_lookup else "derived column"
            raise ExpressionError(f"reads itself; give the {what} another name")
        if is_lookup:
            return _of_lookup(name, part, types, folder)
        return _of_part(name, part, types, errors)
    except (ExpressionError, HierarchyError) as error:
        rules = ("column",) if is_lookup else _FIELDS_OF_RULES
        rule = next(rule for rule in rules if getattr(part, rule) is not None)
        errors[:] = [f".{rule}: {error}"]
        return None


def _waits(part: DerivePart | LookupPart, names: Collection[str]) -> bool:
    return any(not mentioned(text).isdisjoint(names) for text in _texts_of(part))


def _texts_of(part: DerivePart | LookupPart) -> list[str]:
    """Return the expressions of a derived column, as written."""
    if isinstance(part, LookupPart):
        return list(part.columns)
    texts = [part.expression, part.cut, part.map, *(text for text, _ in part.case or ())]
    return [text for text in texts if text is not None]


def _of_part(name: str, part: DerivePart, types: ColumnTypes, errors: list[str]) -> Derived | None:
    misfit = _misfit(part)
    if misfit is not None:
        errors.append(misfit)
        return None
    unknown = None if part.unknown == "drop" else part.unknown
    if part.expression is not None:
        one = _of_expression(name, part.expression, part.range, types, errors)
        return replace(one, measurement_unit=part.measurement_unit)
    if part.cut is not None:
        return _of_cut(name, part, unknown, types, errors)
    if part.map is not None:
        value = read(part.map, types)
        if value.type != "text":
            errors.append(f".map = {show(part.map)}: must be text; cut takes numbers")
        if not part.to:
            errors.append(".to: list the texts of the map, as { M = 'male', m = 'male' }")
        pairs = tuple((part.to or {}).items())
        _check_labels([label for _, label in pairs], errors)
        return Derived(name, "map", part.map, value, pairs=pairs, unknown=unknown)
    cases = tuple((text, condition(text, types), label) for text, label in part.case or ())
    if not cases:
        errors.append(".case: list at least one [condition, label]")
    _check_labels([label for *_, label in cases], errors)
    return Derived(name, "case", "", None, cases=cases, unknown=unknown)


def _misfit(part: DerivePart) -> str | None:
    given = [rule for rule in _FIELDS_OF_RULES if getattr(part, rule) is not None]
    if len(given) != 1:
        return ": give exactly one of expression, cut, map, or case"
    (rule,) = given
    for name in ("range", "edges", "labels", "to", "unknown"):
        if getattr(part, name) is not None and name not in _FIELDS_OF_RULES[rule]:
            return f".{name}: does not go with {rule}; leave it out"
    if part.measurement_unit is not None and part.range is None:
        return (
            f".measurement_unit = {show(part.measurement_unit)}: is for a column to sum; give its "
            "range, or leave it out"
        )
    return None


def _of_expression(
    name: str, text: str, ends: tuple[Fraction, ...] | None, types: ColumnTypes, errors: list[str]
) -> Derived:
    value = read(text, types)
    if value.op == "none":
        errors.append(f".expression = {show(text)}: None has no type")
    if ends is None:
        if value.type == "number" and value.scale:
            errors.append(
                f".expression = {show(text)}: gives {value.scale} decimals, and keys are whole; "
                "give a range to sum it, or use cut or a comparison"
            )
        return Derived(name, "expression", text, value)
    if value.type != "number":
        errors.append(f".range: is for numbers; {show(text)} gives another type")
    low, high = (scaled(end, value.scale) for end in ends)
    limit = plain(Fraction(NUMBER_LIMIT, 10**value.scale))
    if low is None or high is None or low > high or max(abs(low), abs(high)) > NUMBER_LIMIT:
        errors.append(
            f".range = {show([plain(end) for end in ends])}: must be [low, high] within +-{limit}, "
            f"with at most {value.scale} decimals"
        )
        return Derived(name, "expression", text, value)
    return Derived(name, "expression", text, value, (low, high))


def _of_cut(
    name: str, part: DerivePart, unknown: str | None, types: ColumnTypes, errors: list[str]
) -> Derived | None:
    text = part.cut or ""
    value = read(text, types)
    if value.type != "number":
        errors.append(f".cut = {show(text)}: must be a number; map takes text")
        return None
    edges, labels = part.edges or (), part.labels or ()
    if len(edges) < 2 or len(labels) != len(edges) - 1:
        errors.append(
            f": cut needs edges and one label fewer; there are {len(edges)} edges and "
            f"{len(labels)} labels"
        )
        return None
    exact = [scaled(edge, value.scale) for edge in edges]
    numbers = [number for number in exact if number is not None]
    if numbers != exact or any(a >= b for a, b in pairwise(numbers)):
        errors.append(
            f".edges = {show([plain(edge) for edge in edges])}: must rise, with at most "
            f"{value.scale} decimals"
        )
        return None
    if len(set(labels)) < len(labels):
        errors.append(f".labels = {show(list(labels))}: must differ")
    _check_labels(labels, errors)
    return Derived(name, "cut", text, value, edges=tuple(numbers), labels=labels, unknown=unknown)


def _of_lookup(name: str, part: LookupPart, types: ColumnTypes, folder: Path | None) -> Derived:
    texts = part.columns
    if not texts:
        raise ExpressionError("lists no expression; name at least one")
    values = [read(text, types) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value.type != "text":
            raise ExpressionError(f"{show(text)} is not text; declare the column's type as text")
    named = (part.on,) if isinstance(part.on, str) else part.on
    named = texts if named is None else named
    for section_field, names in (("column", texts), ("on", named)):
        if len(set(names)) < len(names):
            raise ExpressionError(f"{section_field} = {show(list(names))} names a column twice")
    if len(named) != len(texts):
        raise ExpressionError(
            f"on = {show(list(named))} must name one column of the file for each of {list(texts)}"
        )
    rows, file = part.keys, None
    if isinstance(rows, str):
        rows, file = read_rows(rows, (*named, name), folder or Path())
    elif part.on is not None:
        raise ExpressionError("on names columns of a file, and keys lists the rows; leave on out")
    _check_pairs(rows, len(texts))
    return Derived(
        name,
        "lookup",
        texts[0],
        values[0],
        further=tuple(zip(texts[1:], values[1:], strict=True)),
        pairs=tuple(rows),
        unknown=None if part.unknown == "drop" else part.unknown,
        file=file,
    )


def _check_pairs(rows: Sequence[tuple[str, ...]], texts: int) -> None:
    """Check the rows of a lookup: some texts, and the value that replaces them."""
    keys: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 1):
        if len(row) != texts + 1 or not all(row):
            form = ", ".join(["text"] * texts)
            raise ExpressionError(f"row {number} of keys must be [{form}, value], none blank")
        if row[:-1] in keys:
            shown = ", ".join(map(repr, row[:-1]))
            raise ExpressionError(f"row {number} of keys repeats {shown}; list each key once")
        keys.add(row[:-1])
    if not keys:
        raise ExpressionError("keys lists no row")
    problems: list[str] = []
    _check_labels((row[-1] for row in rows), problems)
    if problems:
        raise ExpressionError(problems[0])


def _check_labels(labels: Iterable[str], errors: list[str]) -> None:
    if "drop" in labels:
        errors.append(": the label 'drop' is the same as unknown = 'drop'; rename it")


def _labels(node: Node) -> list[str] | None:
    """Return the texts that an expression can give; None if the plan does not determine them."""
    if node.op == "literal":
        return [node.value]
    if node.op == "none":
        return []
    if node.op == "choose":
        parts = [_labels(part) for part in node.parts[1:]]
        known = [part for part in parts if part is not None]
        return [label for part in known for label in part] if len(known) == len(parts) else None
    return None


def _can_give(node: Node, key: str | int) -> bool:
    if node.op in ("none", "literal"):
        return node.op == "literal" and node.value == key
    if node.op == "choose":
        return any(_can_give(part, key) for part in node.parts[1:])
    if node.type == "number":
        return node.low <= int(key) <= node.high
    if node.op in ("lower", "upper"):  # engines agree on the letters of ASCII
        other = string.ascii_uppercase if node.op == "lower" else string.ascii_lowercase
        return set(other).isdisjoint(str(key))
    return node.op != "period" or is_period(str(key), node.value)


def plain_number(number: Fraction) -> int | str:
    """Return a number as a plan writes it: an integer, or the text of an exact decimal."""
    return int(number) if number.denominator == 1 else exact_text(number)


def _number_text(number: Fraction) -> int | str:
    return int(number) if number.denominator == 1 else str(number)


def check_columns(
    derived: Iterable[Derived], columns: Iterable[Column], problems: list[str]
) -> None:
    """Add a problem for each declared column that disagrees with the derived column of its name."""
    by_name = {one.name: one for one in derived}
    for column in columns:
        one = by_name.get(column.name)
        if one is None:
            continue
        kind = "number" if column.integer or column.kind == "whole" else column.kind
        if kind != one.type.type or column.decimals != one.type.scale:
            problems.append(
                f"columns.{column.name}: is declared as {kind}, and derived as {one.type.type}; "
                "declare it as it is derived"
            )
            continue
        keys = (key for place, key in enumerate(column.keys) if place != column.unknown)
        problems += [
            f"columns.{column.name}: has the key {key!r}, which the derived column can never give; "
            "write the keys as the column has them"
            for key in keys
            if not one.can_give(key)
        ][:1]


def readings_of(
    columns: Iterable[Column], hierarchies: Iterable[Hierarchy], rows: Rows
) -> dict[str, Reading]:
    """Return, by name, how each column of the data is read. Leave out columns read as texts."""
    given: dict[str, Reading] = {}
    for name, kind in rows.readings:
        if kind.type != "text":
            given[name] = kind.type
    for column in columns:
        if column.integer or column.kind == "whole":
            given[column.name] = "number"
        elif column.kind == "boolean":
            given[column.name] = "boolean"
        elif any(re.fullmatch(ISO_DATE, str(key)) for key in column.keys):
            given[column.name] = "day"
    for one in hierarchies:
        for depth, level in enumerate(one.levels):
            if level in one.integer:
                given[level] = "number"
            elif any(re.fullmatch(ISO_DATE, row[depth]) for row in one.rows):
                given[level] = "day"
    return {name: reading for name, reading in given.items() if name not in rows.names}


def check_marks(
    document: PlanDocument, readings: Mapping[str, Reading], problems: list[str]
) -> None:
    """Add a problem for each id column that is also read as numbers or dates with declared marks.

    Marks are [source]'s decimal point, thousands separator, and date format. Ids compare as
    written, and numbers compare after the marks are applied. So one column cannot be both.
    """
    source, marked = document.source, set[str]()
    if (source.decimal, source.thousands) != (".", None):
        marked |= {"number", "boolean"}
    if source.dates is not None:
        marked |= {"date", "day"}
    ids = [("unit.id", document.unit.id)]
    ids += [(f"tables.{name}.id", part.id) for name, part in document.tables.items()]
    problems += [
        f"{where} = {show(name)}: the plan reads this column as a {readings[name]} too, with the "
        "marks that [source] declares, and compares ids as they are written; copy the column"
        for where, name in ids
        if name is not None and readings.get(name) in marked
    ]
