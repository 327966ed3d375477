"""What a plan's sections say of each other: names resolved, shares added up, all problems told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from neyman.release.plan.document import (
    BudgetPart,
    PlanDocument,
    PlanError,
    QueryPart,
    show,
    suggest,
)
from neyman.release.plan.hierarchy import Hierarchy, HierarchyError, read_rows
from neyman.semantics.digits import plain

__all__ = [
    "MOST_CELLS",
    "WHOLE",
    "Column",
    "Query",
    "budget_fields",
    "exact_text",
    "key_text",
    "resolve",
    "short_text",
]

MOST_CELLS = 10_000_000
"""The most cells of one table."""

WHOLE = "all"
"""The level name of a table over everything."""

_BUDGETS = {
    "power": ("1e-12", "1"),
    "level": ("1e-12", "1"),
    "zcdp": ("1e-15", "1e4"),
    "gdp": ("1e-9", "1e4"),
    "epsilon": ("1e-9", "1e4"),
    "delta": ("1e-300", "1"),
}
"""The range of each number of a budget; outside it hardly any or no usable noise would be drawn."""

_VALUES = ("value", "standard_error", "lower", "upper")


@dataclass(frozen=True)
class Column:
    """A column that queries use: public ``keys`` to group by, or whole numbers to sum.

    ``unknown`` is the position of the key that unlisted values go to (None drops the row), or the
    number that stands in for what is no number in a column to sum.
    """

    name: str
    keys: tuple[str | int | bool, ...]
    unknown: int | None

    @property
    def integer(self) -> bool:
        """Whether the column is one to sum."""
        return not self.keys


@dataclass(frozen=True)
class Query:
    """One measure by public columns at some levels, with its exact part of the budget.

    ``split`` has the part of ``share`` of each level that is measured; ``public`` the declared
    totals of the levels that are not.
    """

    name: str
    measure: str
    column: str | None
    clip: tuple[int, int] | None
    by: tuple[str, ...]
    at: tuple[str, ...]
    share: Fraction
    split: tuple[tuple[str, Fraction], ...]
    public: tuple[tuple[str, int], ...]

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of its tables, ``("all",)`` if it names none."""
        return self.at or (WHOLE,)


def key_text(key: str | int | bool) -> str:
    """The text that a key is compared as: ``true``/``false``, decimal digits, or itself."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def resolve(
    document: PlanDocument, folder: Path | None
) -> tuple[tuple[Column, ...], Hierarchy | None, tuple[Query, ...]]:
    """Columns, hierarchy and queries of a document.

    Raises:
        PlanError: every name that is not declared, number that does not fit, or share that does
            not add up.
    """
    problems: list[str] = []
    columns = _columns(document, problems)
    _twins(document, problems)
    hierarchy = _hierarchy(document, folder, problems)
    _unit_and_budget(document, problems)
    known = {column.name: column for column in columns}
    queries = []
    for index, part in enumerate(document.query):
        where = f"query[{index}]"
        found = _query(part, where, document, known, hierarchy)
        problems += [problem for problem in found if isinstance(problem, str)]
        queries += [query for query in found if isinstance(query, Query)]
    names = Counter(part.name.casefold() for part in document.query)
    for index, part in enumerate(document.query):
        if names[part.name.casefold()] > 1:
            problems.append(
                f"query[{index}].name = {part.name!r}: queries need names that differ in more "
                "than case, since files are named after them"
            )
    if not problems:
        _shares(queries, problems)
    if problems:
        raise PlanError(problems)
    return columns, hierarchy, tuple(queries)


def _twins(document: PlanDocument, problems: list[str]) -> None:
    """Columns whose names differ in case only: SQL takes them for one and answers wrongly."""
    seen: dict[str, tuple[str, str]] = {}
    names = [("columns", name) for name in document.columns]
    names += [
        (f"hierarchy.{name}.levels", level)
        for name, part in document.hierarchy.items()
        for level in part.levels
    ]
    names += [("unit.id", document.unit.id)] if document.unit.id is not None else []
    for where, name in names:
        other, twin = seen.setdefault(name.casefold(), (where, name))
        if twin != name:
            problems.append(
                f"{where}: {name!r} differs from {twin!r} (in {other}) in case only, and the "
                "engine cannot tell such columns apart; rename one in the data and here"
            )


def _columns(document: PlanDocument, problems: list[str]) -> tuple[Column, ...]:
    columns = []
    for name, part in document.columns.items():
        where = f"columns.{name}"
        if (part.keys is None) == (not part.integer):
            problems.append(f"{where}: give either keys = [...] or integer = true")
            continue
        if part.keys is None:
            stands = 0 if part.unknown is None else part.unknown
            if isinstance(stands, bool) or not isinstance(stands, int):
                problems.append(
                    f"{where}.unknown = {show(stands)}: must be the whole number that stands in "
                    "for a missing value, such as 0"
                )
                continue
            columns.append(Column(name, (), stands))
            continue
        texts = [key_text(key) for key in part.keys]
        twice = [text for text, times in Counter(texts).items() if times > 1]
        unknown = "drop" if part.unknown is None else key_text(part.unknown)
        if not texts:
            problems.append(f"{where}.keys = []: must list at least one public key")
        elif twice:
            problems.append(f"{where}.keys: {twice[0]!r} is listed more than once")
        elif len({type(key) for key in part.keys}) > 1:
            problems.append(
                f"{where}.keys = {show(list(part.keys))}: must all be texts, all whole numbers or "
                "all true/false"
            )
        elif "drop" in texts:
            problems.append(
                f"{where}.keys: the key 'drop' cannot be told from unknown = 'drop'; rename it"
            )
        elif unknown != "drop" and unknown not in texts:
            problems.append(
                f"{where}.unknown = {show(part.unknown)}: must be 'drop' or one of the keys; "
                f"{suggest(unknown, ['drop', *texts])}"
            )
        else:
            position = None if unknown == "drop" else texts.index(unknown)
            columns.append(Column(name, part.keys, position))
    return tuple(columns)


def _hierarchy(
    document: PlanDocument, folder: Path | None, problems: list[str]
) -> Hierarchy | None:
    for name, part in document.hierarchy.items():
        where = f"hierarchy.{name}"
        twice = [level for level, times in Counter(part.levels).items() if times > 1]
        if twice:
            problems.append(f"{where}.levels: {twice[0]!r} is listed more than once")
            return None
        for level in part.levels:
            if level in document.columns:
                problems.append(f"{where}.levels: {level!r} is also in [columns]; name it once")
        try:
            keys = part.keys
            if isinstance(keys, str):
                keys = read_rows((folder or Path()) / keys, part.levels)
            hierarchy = Hierarchy(name, part.levels, keys)
        except HierarchyError as error:
            problems.append(f"{where}.keys: {error}")
            return None
        if part.unknown == "drop":
            return hierarchy
        length = 1 if isinstance(part.unknown, str) else len(part.levels)
        wanted = (part.unknown,) if isinstance(part.unknown, str) else part.unknown
        found = [i for i, row in enumerate(hierarchy.rows) if row[-length:] == wanted]
        if len(found) == 1:
            return Hierarchy(name, part.levels, hierarchy.rows, found[0])
        level = part.levels[-1]
        reason = (
            f"names {len(found)} places; give its path, a list with a name for each level"
            if found
            else f"must be 'drop' or a place of the level {level!r}; "
            + suggest(
                (wanted or ("",))[-1], ["drop", *dict.fromkeys(row[-1] for row in hierarchy.rows)]
            )
        )
        problems.append(f"{where}.unknown = {show(part.unknown)}: {reason}")
        return hierarchy
    return None


def _unit_and_budget(document: PlanDocument, problems: list[str]) -> None:
    unit, budget = document.unit, document.budget
    if unit.rows > 1 and unit.id is None:
        problems.append(
            f"unit.rows = {unit.rows}: more than 1 needs unit.id, the column that names the unit"
        )
    given = budget_fields(budget)
    kinds = [{"power", "level"}, {"zcdp"}, {"gdp"}, {"epsilon", "delta"}]
    if set(given) not in kinds:
        told = ", ".join(f"{name} = {short_text(value)}" for name, value in given.items())
        problems.append(
            f"budget has {told or 'nothing'}: must be exactly one of power with level, zcdp, gdp, "
            "or epsilon with delta"
        )
        return
    if "power" in given and not given["level"] < given["power"] < 1:
        problems.append(
            f"budget.power = {short_text(given['power'])}: must be above the level "
            f"{short_text(given['level'])} (which guessing reaches) and below 1"
        )
    if "delta" in given and not given["delta"] < 1:
        problems.append(f"budget.delta = {short_text(given['delta'])}: must be below 1")
    for name, value in given.items():
        low, high = _BUDGETS[name]
        if not Fraction(low) <= value <= Fraction(high):
            problems.append(
                f"budget.{name} = {short_text(value)}: must be between {low} and {high}"
            )


def budget_fields(budget: BudgetPart) -> dict[str, Fraction]:
    """The numbers of a budget that are given."""
    return {name: value for name, value in budget if value is not None}


def exact_text(value: Fraction) -> str:
    """A rational as a decimal where that is exact and short, else as ``p/q``."""
    for digits in range(19):
        if (10**digits) % value.denominator == 0:
            scaled = abs(value.numerator) * 10**digits // value.denominator
            sign = "-" if value < 0 else ""
            whole, part = divmod(scaled, 10**digits)
            return f"{sign}{whole}.{part:0{digits}d}" if digits else f"{sign}{whole}"
    return str(value)


def short_text(value: Fraction) -> str:
    """A rational to read in a message: exact where that is short, else "about" so much."""
    text = exact_text(value) if value.denominator < 10**40 and value < 10**40 else ""
    return text if 0 < len(text) <= 40 else plain(value)


def _query(
    part: QueryPart,
    where: str,
    document: PlanDocument,
    columns: Mapping[str, Column],
    hierarchy: Hierarchy | None,
) -> Iterable[str | Query]:
    name = f"(of query {part.name!r})"
    keyed = [column.name for column in columns.values() if not column.integer]
    levels = hierarchy.levels if hierarchy else ()
    # A column or hierarchy that failed itself has been told of: no second error for its users.
    failed = [name for name in document.columns if name not in columns]
    broken = bool(
        (not hierarchy and document.hierarchy) or {*part.by, part.column}.intersection(failed)
    )
    told: list[str] = []
    for field, names, known in (("by", part.by, keyed), ("at", part.at, levels)):
        for position, value in enumerate(names):
            spot = f"{where}.{field}[{position}] {name} = {value!r}"
            if value in names[:position]:
                told.append(f"{spot}: is listed twice")
            elif value not in known and not (value in failed if field == "by" else broken):
                kind = "a column with keys" if field == "by" else "a level of the hierarchy"
                told.append(f"{spot}: is not {kind}; {suggest(value, known)}")
            elif value in _VALUES:
                told.append(f"{spot}: the tables use that name for what is measured; rename it")
    told += _measure(part, where, name, columns, document.columns)
    measured_levels = part.at or (WHOLE,)
    public = part.public or {}
    for level in public:
        spot = f"{where}.public.{level} {name}"
        if level not in measured_levels:
            told.append(f"{spot}: must be a level of this query; {suggest(level, measured_levels)}")
        elif part.measure != "count" or part.by:
            told.append(f"{spot}: only the total of a count without 'by' can be declared public")
        elif document.unit.neighboring != "replace-one":
            told.append(f"{spot}: a total is not public under add-remove, which changes it")
        elif document.unit.rows > 1 or document.unit.id is not None:
            told.append(
                f"{spot}: a total is public only where each unit has exactly one row; with "
                f"unit.rows = {document.unit.rows} and unit.id = {document.unit.id!r} it may change"
            )
        elif hierarchy and level in levels and len(hierarchy.paths(level)) > 1:
            number = len(hierarchy.paths(level))
            told.append(f"{spot}: the level has {number} places; only one total can be public")
    measured = [level for level in measured_levels if level not in public]
    split = part.split
    if split is not None and set(split) != set(measured):
        told.append(
            f"{where}.split {name} is over {sorted(split)}: must be over the levels that are "
            f"measured, {measured}"
        )
    elif split is not None and sum(split.values()) != 1:
        told.append(f"{where}.split {name}: {_sum_text(split.values())}")
    if measured and part.share is None:
        told.append(f"{where}.share {name} is missing; give its exact part of the budget: '1/2'")
    if not measured and part.share is not None:
        told.append(f"{where}.share {name}: all its levels are public, so it takes no share")
    if not told and not broken:
        told += _cells(part, where, name, columns, hierarchy)
    if told or broken:
        return told
    equal = {level: Fraction(1, len(measured)) for level in measured}
    return [
        Query(
            part.name,
            part.measure,
            part.column,
            part.clip,
            part.by,
            part.at,
            part.share or Fraction(0),
            tuple((level, (split or equal)[level]) for level in measured),
            tuple((level, public[level]) for level in measured_levels if level in public),
        )
    ]


def _measure(
    part: QueryPart,
    where: str,
    name: str,
    columns: Mapping[str, Column],
    declared: Container[str],
) -> Iterable[str]:
    if part.measure == "count":
        for field in ("column", "clip"):
            value = getattr(part, field)
            if value is not None:
                yield f"{where}.{field} {name} = {show(value)}: a count takes none; leave it out"
        return
    sums = [column.name for column in columns.values() if column.integer]
    if part.column is None:
        yield f"{where}.column {name} is missing; a {part.measure} needs one; {suggest('', sums)}"
    elif part.column not in sums and (part.column in columns or part.column not in declared):
        yield (
            f"{where}.column {name} = {part.column!r}: is not a column with integer = true; "
            f"{suggest(part.column, sums)}"
        )
    if part.clip is None:
        yield f"{where}.clip {name} is missing; a {part.measure} needs clip = [low, high]"
    elif part.clip[0] >= part.clip[1]:
        yield f"{where}.clip {name} = {list(part.clip)}: the low end must be below the high end"


def _cells(
    part: QueryPart,
    where: str,
    name: str,
    columns: Mapping[str, Column],
    hierarchy: Hierarchy | None,
) -> Iterable[str]:
    by = 1
    for column in part.by:
        by *= len(columns[column].keys)
    places = max((len(hierarchy.paths(level)) for level in part.at), default=1) if hierarchy else 1
    if by * places > MOST_CELLS:
        yield f"{where} {name} has {by * places} cells; the most is {MOST_CELLS}: group by less"


def _shares(queries: Iterable[Query], problems: list[str]) -> None:
    shares = {query.name: query.share for query in queries if query.split}
    if not shares:
        problems.append("query: every table is declared public, so nothing is measured; add one")
    elif sum(shares.values()) != 1:
        told = ", ".join(f"{name} {share}" for name, share in shares.items())
        problems.append(f"query[].share: {_sum_text(shares.values())} ({told})")


def _sum_text(parts: Iterable[Fraction]) -> str:
    total = sum(parts, Fraction(0))
    off = total - 1
    return (
        f"the parts add up to {short_text(total)}, which is {short_text(abs(off))} too "
        f"{'much' if off > 0 else 'little'}; they must add up to exactly 1"
    )
