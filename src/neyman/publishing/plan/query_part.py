"""Define the fields of a query that every measure takes, and check them against the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from neyman.accounting.semantics.digits import short_text
from neyman.numerics import check
from neyman.publishing.plan.clip_search import ClipSearch
from neyman.publishing.plan.column import Column
from neyman.publishing.plan.field_types import (
    LIMITS,
    Clip,
    Exact,
    FileName,
    Line,
    Names,
    RowCount,
    Strict,
    Text,
    Texts,
    Weights,
    choices,
    show,
    suggest,
)
from neyman.publishing.plan.hierarchy import ALL, CROSSED, Hierarchy, is_above, parts_of
from neyman.publishing.plan.measurement import fitting_delta
from neyman.publishing.plan.plan_fields import ColumnPart, PlanSections
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS

Measure = Literal[
    "count", "units", "distinct", "sum", "mean", "variance", "standard_deviation", "ratio",
    "histogram", "quantiles", "median", "min", "max",
]  # fmt: skip
"""The measure of a query."""

Scaled = dict[str, tuple[int, ...]]
"""The clips and the edges of a query by field, in units of the last decimal of their column."""

# Stands for the name of the query in `QueryPart.problems`: no plan has half of a surrogate pair.
NAME = "\ud800"
VALUE_COLUMNS = (
    *("printed", "value", "standard_error", "lower", "upper"),
    *("at_least", "below", "quantile"),
)


class Origin(NamedTuple):
    """Name the query of the author's plan that a query is, or is a part of.

    Args:
        where: its place in the plan, such as "query[0]".
    """

    where: str
    name: str


@dataclass(frozen=True)
class QueryContext:
    """Hold what the fields of a query can refer to.

    Args:
        sections: the plan's sections other than its queries.
        queries: the plan's queries.
        columns: the plan's valid columns, by name.
        hierarchies: the plan's valid hierarchies.
        where: the place of the query in the author's plan, such as "query[0]".
    """

    sections: PlanSections
    queries: Sequence[QueryPart]
    columns: Mapping[str, Column]
    hierarchies: Sequence[Hierarchy]
    where: str = ""

    def at(self, where: str) -> QueryContext:
        """Return the context of the query at another place."""
        return replace(self, where=where)

    def spot(self, field: str) -> str:
        """Return the name of a field for error messages, as "query[0].clip (of query 'pay')"."""
        return f"{self.where}.{field} (of query {NAME})"

    @cached_property
    def failed_columns(self) -> frozenset[str]:
        """Return the columns with errors of their own. Their queries report no second error."""
        declared = self.sections.columns.items()
        return frozenset(
            name for name, one in declared if one.type is None and name not in self.columns
        )

    @cached_property
    def lost_hierarchies(self) -> bool:
        """Return True if a hierarchy has errors of its own."""
        return len(self.hierarchies) < len(self.sections.hierarchy)

    def is_level(self, level: str) -> bool:
        """Return True if the name is a level, or a pair of levels."""
        try:
            return bool(parts_of(self.hierarchies, level))
        except KeyError:
            return False

    def levels_above(self, level: str) -> Iterator[str]:
        """Yield the levels that are columns of a table at ``level``: its own and those above.

        Yield none if ``level`` is no level.
        """
        if self.is_level(level):
            for one, name in parts_of(self.hierarchies, level):
                yield from one.levels[: one.depth(name) + 1]


class KeyPart(Strict):
    """Replace some fields of a partitioned query for one key."""

    at: Names | None = Field(None, description="levels of the hierarchy")
    clip: Clip | None = Field(None, description="[low, high], or 'discover' or 'discover-signed'")
    share: Exact | None = Field(
        None,
        description="this key's share relative to the others, 1 if not given; the worst set of "
        "disjoint keys takes the query's share",
    )


class QueryPart(Strict):
    """Define the fields of a query that every measure takes. Each measure is a subclass.

    Attributes:
        noun: the name of the measure in a plan.
        synonyms: other words for the measure. An error message for them gives its name.
        tables: the measures of the integer tables that make up the query.
        unit_power: the power of the column's unit in which the values are: 0 for counts, 2 for a
            variance.
        column_kind: how a plan declares a column for this measure.
        unknown_keys: True if keys may be discovered.
        is_total: True if public totals can state the measure.
    """

    noun: ClassVar[Measure | Literal["rows"]]
    synonyms: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ("count",)
    unit_power: ClassVar[int] = 0
    column_kind: ClassVar[str] = "integer = true or decimals"
    unknown_keys: ClassVar[bool] = False
    is_total: ClassVar[bool] = False

    name: FileName = Field("", description="a name for the tables of this query")
    title: Line | None = Field(
        None, description="what a report calls its tables, such as 'People by county and sex'"
    )
    table: Text | None = Field(
        None, description="the private table that it reads; the plan's table if not given"
    )
    measure: Measure = Field(description=choices(Measure))
    groups: RowCount | None = Field(
        None, description=f"the most cells that one unit's rows fall in, 1 to {SHIFTS_LIMITS.rows}"
    )
    rows_per_group: RowCount | None = Field(
        None, description=f"the most rows of one unit in one cell, 1 to {SHIFTS_LIMITS.rows}"
    )
    delta: Exact | None = Field(
        None, description="the chance that a key of a single unit is published, below 1"
    )
    where: Text | None = Field(
        None, description="a condition on a row, as 'age >= 18'; the other rows take no part"
    )
    partition: Text | None = Field(
        None, description="a column with listed keys, each of which gets its own table"
    )
    parts: dict[str, KeyPart] | None = Field(
        None, description="the levels, the clip, and the share of a key, where they are its own"
    )
    by: Texts = Field((), description="columns with keys, or to discover, to group by")
    at: Names = Field(
        (),
        description="levels of the hierarchy; of several, also pairs such as 'state x sector', or "
        "'all pairs'",
    )
    share: Exact | None = Field(None, description="this query's exact part of the budget")
    split: dict[str, Exact] | None = Field(
        None, description="the parts of the share by level, which sum to 1"
    )
    weight: Weights | None = Field(
        None,
        description="a number above 0, how much its error counts when shares are chosen, or one "
        "by level: { county = 3 }",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_name(cls, data: object) -> object:
        """Name a query after its measure if it has no name."""
        if check.is_mapping(data) and isinstance(data.get("measure"), str) and "name" not in data:
            return {"name": data["measure"], **data}
        return data

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the columns that the measure reads."""
        return ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the key columns of the query's tables."""
        return self.by

    @property
    def public_levels(self) -> Mapping[str, int]:
        """Return the declared total of each level that has one."""
        return {}

    def is_fixed(self, sections: PlanSections) -> bool:
        """Return True if each cell is a cell of one table of totals, or a sum of its cells.

        Rows are units in a plan with totals, and every row counts in each cell of a total.
        """
        if not self.is_total or self.where is not None or self.partition is not None:
            return False
        chains = [one.levels for one in sections.hierarchy.values()]
        names = _with_levels_above(chains, (*self.at, *self.key_names))
        return any(names <= _with_levels_above(chains, total.by) for total in sections.totals)

    def levels(self, sections: PlanSections) -> tuple[tuple[str, ...], list[str], str]:
        """Return the levels of the query's tables, the measured ones, and what the others are."""
        names = self.at or (ALL,)
        if self.is_fixed(sections):
            return names, [], "fixed by the totals"
        return names, [level for level in names if level not in self.public_levels], "public"

    def uses_failed_parts(self, context: QueryContext) -> bool:
        """Return True if a hierarchy, or a column that the query uses, has errors."""
        used = {*self.key_names, *self.column_names}
        return context.lost_hierarchies or not used.isdisjoint(context.failed_columns)

    def search(self, context: QueryContext) -> ClipSearch | None:
        """Return the search for a clip to discover; None for a declared clip."""
        del context
        return None

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return the query's clips and edges as scaled integers, and add their problems."""
        del context, problems
        return {}

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the fields of `Query` that this measure has beyond those of every query."""
        del scaled
        return {}

    def given(self, context: QueryContext, field: str) -> str:
        """Return the name and the value of a field for error messages."""
        return f"{context.spot(field)} = {show(getattr(self, field))}"

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields. `NAME` stands for the query's name."""
        yield from self._key_problems(context)
        yield from self._bound_problems(context)
        yield from self._discovery_problems(context)
        yield from self._share_problems(context)

    def _key_problems(self, context: QueryContext) -> Iterator[str]:
        keyed = [column.name for column in context.columns.values() if not column.integer]
        levels = [level for one in context.hierarchies for level in one.levels]
        levels += [at for at in self.at if at not in levels and context.is_level(at)]
        lost = self.at if self.uses_failed_parts(context) else ()
        crossed = CROSSED if len(context.hierarchies) > 1 else None
        yield from _name_problems(
            context, "by", None, self.by, keyed, "a column with keys", context.failed_columns
        )
        yield from _name_problems(
            context, "at", crossed, self.at, levels, "a level of the hierarchy", lost
        )
        if self.at and {*self.at} <= {*levels}:
            yield from self._finest_problems(context)

    def _finest_problems(self, context: QueryContext) -> Iterator[str]:
        hierarchies = context.hierarchies
        if not any(all(is_above(hierarchies, up, low) for up in self.at) for low in self.at):
            names = CROSSED.join(_deepest(hierarchies, self.at))
            yield (
                f"{context.spot('at')} = {list(self.at)}: has no finest level, of which each row "
                f"has one place; add {names!r}, or give each level its own query"
            )

    def _bound_problems(self, context: QueryContext) -> Iterator[str]:
        for field in ("groups", "rows_per_group"):
            if getattr(self, field) is not None and context.sections.unit.id is None:
                yield (
                    f"{self.given(context, field)}: needs unit.id, the column that names the unit "
                    "whose rows are bounded"
                )

    def discovers(self, columns: Mapping[str, Column | ColumnPart]) -> bool:
        """Return True if the query groups by keys that are discovered."""
        return any(columns[name].discover for name in self.by if name in columns)

    def _discovery_problems(self, context: QueryContext) -> Iterator[str]:
        """Yield errors of discovered keys, or of a delta without discovered keys."""
        delta, discovers = self.delta, self.discovers(context.columns)
        if discovers and not self.unknown_keys:
            yield (
                f"{self.given(context, 'measure')}: must be 'units', 'count' or 'sum' for keys "
                "that are discovered; list the keys for another measure"
            )
        if discovers and delta is None:
            yield (
                f"{context.spot('delta')} is missing; keys that are discovered need one: the "
                f"chance that a key of a single unit is published{_fitting(context)}"
            )
        elif not discovers and delta is not None:
            yield f"{self.given(context, 'delta')}: is for keys that are discovered; leave it out"
        elif delta is not None and not Fraction(1, 10**300) <= delta <= Fraction(1, 2):
            yield f"{self.given(context, 'delta')}: must be from 1e-300 to 1/2"

    def _share_problems(self, context: QueryContext) -> Iterator[str]:
        names, measured, others = self.levels(context.sections)
        for level, value in self.weight.items() if isinstance(self.weight, dict) else ():
            spot = f"{context.spot(f'weight.{level}')} = {show(value)}"
            if level not in names:
                yield f"{spot}: must be a level of this query; {suggest(level, names)}"
            elif level not in measured:
                yield f"{spot}: the level is {others} and has no error that could count"
        split = self.split or {}
        if self.split is not None and set(split) != set(measured):
            yield (
                f"{context.spot('split')} is over {sorted(split)}: must be over the levels that "
                f"are measured, {measured}"
            )
        elif self.split is not None and sum(split.values()) != 1:
            yield f"{context.spot('split')}: {sum_text(split.values())}"
        if measured and self.share is None:
            yield (
                f"{context.spot('share')} is missing; give its exact part of the budget"
                f"{_unused_share(context)}"
            )
        if not measured and self.share is not None:
            reason = f"all its levels are {others}, so it takes no share; leave it out"
            yield f"{self.given(context, 'share')}: {reason}"
        if not measured and isinstance(self.weight, Fraction):
            yield f"{context.spot('weight')}: all its levels are {others}, so it has no error"


def _name_problems(
    context: QueryContext,
    field: str,
    mark: str | None,
    names: Sequence[str],
    known: Sequence[str],
    kind: str,
    failures: Collection[str],
) -> Iterator[str]:
    """Yield an error for each name that a field cannot list. A ``mark`` is between two levels."""
    before: list[frozenset[str]] = []
    for position, value in enumerate(names):
        spot = f"{context.spot(f'{field}[{position}]')} = {value!r}"
        own = frozenset(value.split(mark) if mark else [value])
        if own in before:
            yield f"{spot}: is listed twice"
        elif value not in known and value not in failures:
            yield f"{spot}: is not {kind}; {suggest(value, known)}"
        elif names_used := {value, *context.levels_above(value)} & {*VALUE_COLUMNS}:
            yield (
                f"{spot}: the tables use the name {min(names_used)!r} for what is measured; "
                "rename it"
            )
        elif mark and len(value) > (most := LIMITS.name_letters):
            yield f"{spot}: has more than {most} characters, and files are named after it"
        before.append(own)


def _with_levels_above(chains: Iterable[Sequence[str]], names: Iterable[str]) -> frozenset[str]:
    """Return the names of columns and levels, and the levels above these levels."""
    above = {up for name in names for c in chains if name in c for up in c[: c.index(name)]}
    return frozenset({*names, *above})


def _deepest(hierarchies: Sequence[Hierarchy], levels: Iterable[str]) -> list[str]:
    """Return, for each hierarchy that these levels use, the lowest one among them."""
    depths: dict[str, int] = {}
    for level in levels:
        for one, name in parts_of(hierarchies, level):
            depths[one.name] = max(depths.get(one.name, 0), one.depth(name))
    return [one.levels[depths[one.name]] for one in hierarchies if one.name in depths]


def _fitting(context: QueryContext) -> str:
    """Return the end of an error message, with a delta that fits the budget; "" if none is."""
    budget = context.sections.budget
    limit = Fraction(1, 10**12) if budget.delta is None else budget.delta
    keys = 0
    for part in context.queries:
        if part.discovers(context.columns):
            rows = context.sections.rows_of(part.table)
            own = min(rows, part.groups or rows) * max(1, len(part.at))
            limit -= own * (part.delta or 0)
            keys += own if part.delta is None else 0
    known = budget.delta is not None or budget.power is not None
    return f", such as {fitting_delta(limit, keys)}" if known and limit > 0 else ""


def _unused_share(context: QueryContext) -> str:
    """Return the end of an error message, with the share left for each query without one, or ""."""
    given = (part.share or Fraction(0) for part in context.queries)
    left = 1 - sum(given, context.sections.budget.unspent)
    open_ = sum(
        bool(part.levels(context.sections)[1]) for part in context.queries if part.share is None
    )
    return f", such as '{left / open_}'" if left > 0 else ""


def sum_text(parts: Iterable[Fraction]) -> str:
    """Return the end of an error message about parts that do not add up to 1."""
    total = sum(parts, Fraction(0))
    off = total - 1
    return (
        f"the parts add up to {short_text(total)}, which is {short_text(abs(off))} too "
        f"{'much' if off > 0 else 'little'}; they must add up to exactly 1"
    )
