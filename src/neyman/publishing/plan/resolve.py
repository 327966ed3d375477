"""Resolve the names in a plan's document, check its sections together, and report all problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from neyman.accounting.semantics.budget import budget_of
from neyman.accounting.semantics.digits import short_text
from neyman.publishing.plan.column import Column, key_text, scaled
from neyman.publishing.plan.derived import (
    Rows,
    check_columns,
    check_marks,
    derived_columns,
    read_filters,
    readings_of,
    rows_of,
)
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import PlanError, show, suggest
from neyman.publishing.plan.hierarchy import (
    ALL,
    CROSSED,
    Hierarchy,
    HierarchyError,
    KeyFile,
    read_rows,
)
from neyman.publishing.plan.listed_keys import Listed, file_keys, range_keys
from neyman.publishing.plan.measures import INVERSE_SENSITIVITY_METHODS, RankMeasure
from neyman.publishing.plan.plan_fields import ColumnPart, KeyFilePart, KeyRangePart
from neyman.publishing.plan.plan_queries import read_queries, split_queries
from neyman.publishing.plan.query import Query, names_with_histograms, with_histograms
from neyman.publishing.plan.query_part import Origin, QueryContext, QueryPart
from neyman.publishing.plan.row_expression import ColumnTypes, Node
from neyman.publishing.plan.tables import PrivateTable, read_tables
from neyman.publishing.plan.totals import Total, read_totals

Resolution = tuple[
    tuple[Column, ...],
    tuple[Hierarchy, ...],
    tuple[Query, ...],
    Rows,
    tuple[PrivateTable, ...],
    tuple[Total, ...],
    tuple[frozenset[str], ...],  # the names of the queries of each partition
]

ALL_PAIRS = "all pairs"  # each level of one of two hierarchies with each of the other


def resolve(document: PlanDocument, folder: Path | None) -> Resolution:
    """Return the resolved sections of a document, or raise a `PlanError` with all problems."""
    problems = list(document.foreign)
    document, files = _list_keys(document, folder, problems)
    tables = read_tables(document, problems)
    types, derived = derived_columns(document, folder, problems)
    columns = _columns(document, files, problems)
    check_columns(derived, columns, problems)
    computed = [one.column for one in derived if one.name not in document.columns]
    levels = {level for part in document.hierarchy.values() for level in part.levels}
    columns += tuple(one for one in computed if one is not None and one.name not in levels)
    known = {column.name: column for column in columns}
    _twins(document, problems)
    _check_column_types(document, problems)
    hierarchies = _hierarchies(document, folder, problems)
    _unit_and_budget(document, problems)
    failed = {*document.derive, *document.lookup} - {one.name for one in derived}
    queries, origins, filters = _split(document, known, types, failed, problems)
    rows = rows_of(document, types, derived, filters, problems)
    queries = _with_pairs(queries, hierarchies)
    check_marks(document, readings_of(columns, hierarchies, rows), problems)
    context = QueryContext(document, queries, known, hierarchies)
    resolved = read_queries(context, origins, problems)
    totals: tuple[Total, ...] = ()
    if not problems:
        totals = read_totals(document, known, hierarchies, resolved, folder, problems)
    if problems:
        raise PlanError(problems)
    every = with_histograms(resolved, document.unit)
    partitions = tuple(
        names_with_histograms(
            query for query, own in zip(resolved, origins, strict=True) if own == one
        )
        for one, times in Counter(origins).items()
        if times > 1
    )
    return columns, hierarchies, every, rows, tables, totals, partitions


def _split(
    document: PlanDocument,
    columns: Mapping[str, Column],
    types: ColumnTypes,
    failed: Collection[str],
    problems: list[str],
) -> tuple[tuple[QueryPart, ...], Sequence[Origin], Mapping[str, Node]]:
    """Return the queries, split by their partitions, with their origins, and the parsed filters."""
    queries = document.query
    origins = [Origin(f"query[{index}]", part.name) for index, part in enumerate(queries)]
    places = [("where", document.where), *_filter_places(origins, queries)]
    filters = read_filters(places, types, failed, problems)
    if not problems:
        # A filter of the author is an expression before a key's condition is added to it.
        queries, origins = split_queries(document, columns, problems)
        places = [place for place in _filter_places(origins, queries) if place[1] not in filters]
        filters |= read_filters(places, types, failed, problems)
        used = {document.where, *(part.where for part in queries)}
        filters = {text: node for text, node in filters.items() if text in used}
    return queries, origins, filters


def _filter_places(
    origins: Sequence[Origin], queries: Sequence[QueryPart]
) -> Iterable[tuple[str, str | None]]:
    """Yield the place of each query's filter in the author's plan, and its text."""
    for origin, part in zip(origins, queries, strict=True):
        yield f"{origin.where}.where (of query {origin.name!r})", part.where


def _list_keys(
    document: PlanDocument, folder: Path | None, problems: list[str]
) -> tuple[PlanDocument, Mapping[str, KeyFile | None]]:
    """Replace ranges and files by their keys. Also return each valid column's file."""
    columns, files = dict(document.columns), dict[str, KeyFile | None]()
    for name, part in document.columns.items():
        are_integers = False
        try:
            match part.keys:
                case KeyRangePart() as keys:
                    are_integers = type(keys.from_) is int
                    listed = range_keys(keys.from_, keys.to, keys.step)
                case KeyFilePart() as keys:
                    are_integers = keys.integer
                    column = name if keys.column is None else keys.column
                    listed = file_keys(keys.file, column, folder or Path(), integer=are_integers)
                case _:
                    files[name] = None
                    continue
            files[name] = listed.file
        except HierarchyError as error:
            problems.append(f"columns.{name}.keys: {error}")
            listed = Listed((0,) if are_integers else ())  # expressions read its type
        columns[name] = part.model_copy(update={"keys": listed.keys})
    return document.model_copy(update={"columns": columns}), files


def _twins(document: PlanDocument, problems: list[str]) -> None:
    """Report columns whose names differ only in case, because SQL takes them for one column."""
    by_folded_name: dict[str, tuple[str, str]] = {}
    sections = {"columns": document.columns, "derive": document.derive, "lookup": document.lookup}
    names = [(where, name) for where, section in sections.items() for name in section]
    names += [
        (f"hierarchy.{name}.levels", level)
        for name, part in document.hierarchy.items()
        for level in part.levels
    ]
    names += [("unit.id", document.unit.id)] if document.unit.id is not None else []
    own = (document.unit.id or "").casefold()
    names += [
        (f"tables.{name}.id", part.id)
        for name, part in document.tables.items()
        if part.id is not None and part.id.casefold() != own  # in its own table
    ]
    names += [
        (f"tables.{name}.join", column)
        for name, part in document.tables.items()
        for column in part.join
    ]
    for where, name in names:
        other, twin = by_folded_name.setdefault(name.casefold(), (where, name))
        if twin != name:
            problems.append(
                f"{where}: {name!r} differs from {twin!r} (in {other}) in case only, and the "
                "engine cannot tell such columns apart; rename one in the data and here"
            )


def _check_column_types(document: PlanDocument, problems: list[str]) -> None:
    for name, part in document.columns.items():
        first = part.listed[0] if part.listed else None
        numbers = part.integer or part.decimals is not None or type(first) is int
        calculated = name in document.derive or name in document.lookup
        if part.parse and (calculated or not (numbers or part.type in ("whole", "date"))):
            problems.append(
                f"columns.{name}.parse = true: is for texts of the data that are read as numbers "
                "or dates; beside discover, other keys, and other types, leave it out"
            )


def _columns(
    document: PlanDocument, files: Mapping[str, KeyFile | None], problems: list[str]
) -> tuple[Column, ...]:
    return tuple(
        replace(column, file=files[name])
        for name, part in document.columns.items()
        if name in files
        for column in _column(
            name, part, name in document.derive or name in document.lookup, problems
        )
    )


def _column(name: str, part: ColumnPart, is_derived: bool, problems: list[str]) -> Iterable[Column]:
    where = f"columns.{name}"
    measured = part.integer or part.decimals is not None
    kinds = (part.keys is not None, part.integer, part.decimals is not None, part.discover)
    if part.type is not None:
        problems += _type_problems(where, part, is_derived)
    elif part.measurement_unit is not None and not measured:
        problems.append(
            f"{where}.measurement_unit = {show(part.measurement_unit)}: is for a column to "
            "sum; give integer = true or decimals = 2, or leave it out"
        )
    elif sum(kinds) != 1:
        problems.append(
            f"{where}: give either keys = [...], or integer = true or decimals = 2 for a "
            "column to sum, or discover = true for keys that are not known"
        )
    elif measured:
        yield from _numeric(where, name, part, problems)
    elif part.keys is not None:
        yield from _keyed_columns(where, name, part, problems)
    elif part.unknown in (None, "drop"):
        yield Column(name, (), None, discover=True)
    else:
        problems.append(
            f"{where}.unknown = {show(part.unknown)}: must be 'drop' where keys are "
            "discovered: each value is a key, and rows without one are dropped"
        )


def _type_problems(where: str, part: ColumnPart, calculated: bool) -> list[str]:
    if part.measurement_unit is not None:
        return [
            f"{where}.measurement_unit = {show(part.measurement_unit)}: does not go with type; "
            "leave one of them out"
        ]
    if part.model_fields_set <= {"type", "parse", "zone"}:
        derived = f"{where}.type: a derived column has a type; leave it out"
        return [derived] if calculated else []
    return [
        f"{where}.type = {part.type!r}: is for a column that expressions alone read; "
        "beside keys, integer, decimals or discover, leave it out"
    ]


def _numeric(where: str, name: str, part: ColumnPart, problems: list[str]) -> Iterable[Column]:
    decimals = part.decimals or 0
    given = "drop" if part.unknown is None else part.unknown
    value = None if isinstance(given, bool) else scaled(given, decimals)
    if given != "drop" and (value is None or abs(value) >= 2**63):
        right = f"number of at most {decimals} decimals" if decimals else "whole number"
        problems.append(
            f"{where}.unknown = {show(given)}: must be the {right} that replaces a missing "
            "one, such as 0; or 'drop', so that rows without a number take no part"
        )
    else:
        yield Column(name, (), value, decimals, measurement_unit=part.measurement_unit)


def _keyed_columns(
    where: str, name: str, part: ColumnPart, problems: list[str]
) -> Iterable[Column]:
    keys = part.listed
    texts = [key_text(key) for key in keys]
    twice = [text for text, times in Counter(texts).items() if times > 1]
    default = part.unknown
    unknown = "drop" if default is None else str(default)
    if isinstance(default, bool):
        unknown = key_text(default)
    if not texts:
        problems.append(f"{where}.keys = []: must list at least one public key")
    elif twice:
        problems.append(f"{where}.keys: {twice[0]!r} is listed more than once")
    elif len({type(key) for key in keys}) > 1:
        problems.append(
            f"{where}.keys = {show(list(keys))}: must all be texts, all whole numbers or "
            "all true/false"
        )
    elif "drop" in texts:
        problems.append(f"{where}.keys: the key 'drop' is the same as unknown = 'drop'; rename it")
    elif isinstance(default, Fraction) or (unknown != "drop" and unknown not in texts):
        problems.append(
            f"{where}.unknown = {show(part.unknown)}: must be 'drop' or one of the keys; "
            f"{suggest(unknown, ['drop', *texts])}"
        )
    else:
        yield Column(name, keys, None if unknown == "drop" else texts.index(unknown))


def _hierarchies(
    document: PlanDocument, folder: Path | None, problems: list[str]
) -> tuple[Hierarchy, ...]:
    """Return the valid hierarchies. Report the problems of others."""
    owners: dict[str, str] = {}
    hierarchies: list[Hierarchy] = []
    for name, part in document.hierarchy.items():
        before = len(problems)
        others = {
            n for other, one in document.hierarchy.items() if other != name for n in one.levels
        }
        if len(document.hierarchy) > 1 and name in {*document.columns, *document.derive, *others}:
            problems.append(
                f"hierarchy.{name}: a column or a level of another hierarchy has this name; rename "
                "the hierarchy"
            )
        for level in dict.fromkeys(part.levels):
            spot = f"hierarchy.{name}.levels: {level!r}"
            if owners.setdefault(level, name) != name:
                problems.append(f"{spot} is also in [hierarchy.{owners[level]}]; name it once")
            if CROSSED in level and len(document.hierarchy) > 1:
                problems.append(f"{spot} has {CROSSED!r}, which is between two levels; rename it")
            if level == ALL and len(document.hierarchy) > 1:
                problems.append(f"{spot} is the level over everything; rename it")
        clashes = len(problems) > before
        hierarchy = _hierarchy(document, name, folder, problems)
        hierarchies += [] if hierarchy is None or clashes else [hierarchy]
    return tuple(hierarchies)


def _with_pairs(
    queries: Sequence[QueryPart], hierarchies: tuple[Hierarchy, ...]
) -> tuple[QueryPart, ...]:
    """Replace "all pairs" by the levels that it stands for, if there are two hierarchies."""
    if len(hierarchies) != 2:
        return tuple(queries)
    first, second = (one.levels for one in hierarchies)
    pairs = [f"{upper}{CROSSED}{lower}" for upper in first for lower in second]
    return tuple(
        part.model_copy(
            update={"at": tuple(n for at in part.at for n in (pairs if at == ALL_PAIRS else [at]))}
        )
        for part in queries
    )


def _hierarchy(
    document: PlanDocument, name: str, folder: Path | None, problems: list[str]
) -> Hierarchy | None:
    part, where = document.hierarchy[name], f"hierarchy.{name}"
    twice = [level for level, times in Counter(part.levels).items() if times > 1]
    if twice:
        problems.append(f"{where}.levels: {twice[0]!r} is listed more than once")
        return None
    problems += [
        f"{where}.levels: {level!r} is also in [columns]; name it once"
        for level in part.levels
        if level in document.columns
    ]
    for level in part.integer:
        if level not in part.levels:
            known = suggest(level, part.levels)
            problems.append(f"{where}.integer: {level!r} is not one of the levels; {known}")
            return None
    try:
        keys, file = part.keys, None
        if isinstance(keys, str):
            keys, file = read_rows(keys, part.levels, folder or Path())
        hierarchy = Hierarchy(name, part.levels, keys, None, part.integer, file)
    except HierarchyError as error:
        problems.append(f"{where}.keys: {error}")
        return None
    return _with_unknown(where, hierarchy, part.unknown, problems)


def _with_unknown(
    where: str, hierarchy: Hierarchy, unknown: str | tuple[str, ...], problems: list[str]
) -> Hierarchy:
    if unknown == "drop":
        return hierarchy
    start = -1 if isinstance(unknown, str) else 0
    wanted = [unknown] if isinstance(unknown, str) else list(unknown)
    paths = [*map(hierarchy.path, range(len(hierarchy.rows)))]
    rows = [i for i, path in enumerate(paths) if path[start:] == wanted]
    if len(rows) == 1:
        return replace(hierarchy, unknown=rows[0])
    if rows:
        reason = f"names {len(rows)} places; give its path, a list of names from the top level"
    else:
        known = ["drop", *dict.fromkeys(path[-1] for path in paths)]
        reason = f"must be 'drop' or a place of the level {hierarchy.levels[-1]!r}; "
        reason += suggest((wanted or ("",))[-1], known)
    problems.append(f"{where}.unknown = {show(unknown)}: {reason}")
    return hierarchy


def _unit_and_budget(document: PlanDocument, problems: list[str]) -> None:
    unit = document.unit
    if unit.rows > 1 and unit.id is None:
        problems.append(
            f"unit.rows = {unit.rows}: more than 1 needs unit.id, the column that names the unit"
        )
    if unit.search is not None:
        problems += _searched_rows(document)
    discovers = any(query.discovers(document.columns) for query in document.query)
    given = document.budget.numbers
    success, baseline = document.budget.success, document.budget.baseline
    if success is not None and baseline is not None and not baseline < success < 1:
        problems.append(
            f"budget.success = {short_text(success)}: must be above budget.baseline = "
            f"{short_text(baseline)}, the best chance without the release, and below 1"
        )
        return
    try:
        problems += budget_of(given).problems(discovers=discovers)
    except ValueError:
        text = ", ".join(f"{name} = {short_text(value)}" for name, value in given.items())
        problems.append(
            f"budget has {text or 'nothing'}: must be exactly one of power with level, "
            "success with baseline, zcdp, gdp, or epsilon with delta; zcdp takes a delta beside it "
            "where keys are discovered"
        )


def _searched_rows(document: PlanDocument) -> Iterable[str]:
    """Yield an error for each setting that rules out unit.rows = "discover"."""
    unit = document.unit
    spot = "unit.rows = 'discover'"
    if document.noise != "rounded-gaussian":
        yield (
            f"{spot}: needs noise = 'rounded-gaussian' in the plan, whose curve is the same for "
            "each number of rows"
        )
    if document.consistency is not None:
        yield f"{spot}: its tables take no part in [consistency]; leave that out"
    for name in ("rows_share", "rows_above"):
        value = getattr(unit, name)
        if value is not None and value >= 1:
            yield f"unit.{name} = {show(value)}: must be below 1"
    if document.tables:
        yield f"{spot}: is for a plan of one table; with [tables], declare the rows"
    for index, part in enumerate(document.query):
        by_draws = isinstance(part, RankMeasure) and part.method in INVERSE_SENSITIVITY_METHODS
        if part.delta is not None or by_draws:
            field = "delta" if part.delta is not None else "method"
            yield (
                f"query[{index}].{field} (of query {part.name!r}): does not go with {spot}; "
                "declare the rows"
            )
