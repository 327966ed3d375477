"""A release plan: what will be published, from which public keys, and what it may reveal."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman import notebook
from neyman.accounting.calibrate import Budget, calibrate_exact
from neyman.accounting.semantics.budget import PlanBudget, Zcdp, budget_of
from neyman.accounting.semantics.digits import exact_text, plain
from neyman.accounting.semantics.unchecked_claims import one_row_each, rows_not_stated
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.elements import Node
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.gaussian_mixture import NonPrivate
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.derived import NO_ROWS, Rows
from neyman.publishing.plan.document import (
    PLAIN_SOURCE,
    PlanError,
    SourcePart,
    UnitPart,
    json_schema,
    parse,
    suggest,
)
from neyman.publishing.plan.hierarchy import Hierarchy
from neyman.publishing.plan.measurement import Entry, fitting_delta, together
from neyman.publishing.plan.plan_sections import plan_sections
from neyman.publishing.plan.query import (
    ALL,
    Column,
    ConsistencyMethod,
    NoiseKind,
    Query,
    measures_of,
    range_of,
)
from neyman.publishing.plan.resolve import resolve
from neyman.publishing.plan.scenarios import concerning
from neyman.publishing.plan.sections import Unit
from neyman.publishing.plan.shifts import MOST_VECTORS, Shifts, shifts
from neyman.publishing.plan.tables import PrivateTable, read_by_queries, unit_in
from neyman.storage.reading import read_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Entry", "Plan", "PlanError", "declared_share", "hash_of", "unscaled"]

_COPIED = (
    *("name", "dataset", "table", "unit", "part", "most_rows", "source", "noise"),
    "publisher",
)
"""The fields of a document that a plan has as they are."""
_MOST_SHOWN = 6  # queries in a text


@dataclass(frozen=True, init=False, repr=False)
class Plan:
    """A validated release plan. Calibration sets its noise.

    Made by ``Plan.load(path)``, by ``Plan.from_dict(data)``, or from its sections.

    Args:
        name: a name for the plan.
        dataset: declared name@version of the data, as in the ledger.
        table: the table that the queries read.
        unit: a `Unit`: who is protected.
        queries: such as ``ny.count(by=["sex"])``. Their shares are relative: each is divided by
            their sum. A query without a name is called after its measure.
        budget: `at_most`, `zcdp`, `gdp`, or `approximate`; or fields, such as ``{"zcdp": "1/10"}``.
        columns: the section of each column, such as `keys`, or ``{"decimals": 2}``. A column to sum
            that is not declared has whole numbers.
        tables: further private tables by name, such as
            ``{"people": {"id": "id", "join": ["sex"]}}``.
        derive, lookup, hierarchy: sections by name, as the TOML file has them.
        where: a condition on a row.
        part, most_rows, source, publisher: as in the TOML file.
        noise: "discrete-gaussian" or "rounded-gaussian"; the former if left out.
        consistency: the method, such as "least-squares".
        folder: what the path of a key file is relative to.

    Raises:
        PlanError: with every problem found.

    Warns:
        UserWarning: the unit is not a row by its name, and neither its ``id`` nor its ``rows`` is
            given. The guarantee then assumes that each unit has at most one row.

    Examples:
        >>> import neyman as ny
        >>> plan = ny.Plan(
        ...     name="survey", dataset="survey@1", table="people",
        ...     unit=ny.Unit("person", neighboring="replace-one", rows=1),
        ...     columns={"sex": ny.keys(["m", "f"], unknown="drop")},
        ...     queries=[ny.count(by=["sex"]), ny.mean("income", clip=(0, 200_000))],
        ...     budget=ny.at_most(power=0.25, level=0.05),
        ... )
        >>> [query.name for query in plan.queries]
        ['count', 'mean']
        >>> import neyman as ny
        >>> plan = ny.Plan.from_dict({
        ...     "schema": 2, "name": "survey", "dataset": "survey@1", "table": "people",
        ...     "unit": {"protects": "person", "neighboring": "replace-one"},
        ...     "columns": {"sex": {"keys": ["male", "female"]}},
        ...     "budget": {"power": 0.25, "level": 0.05},
        ...     "query": [{"name": "sex", "measure": "count", "by": ["sex"], "share": 1}],
        ... })
        >>> round(float(plan.mechanism().tradeoff().power(level=0.05)), 2)
        0.25
    """

    name: str
    dataset: str
    table: str
    unit: UnitPart
    budget: PlanBudget
    columns: tuple[Column, ...]
    hierarchy: Hierarchy | None
    queries: tuple[Query, ...]
    part: str | None = None
    most_rows: int | None = None
    consistency: ConsistencyMethod | None = None
    source: SourcePart = PLAIN_SOURCE
    rows: Rows = NO_ROWS
    noise: NoiseKind = "discrete-gaussian"
    tables: tuple[PrivateTable, ...] = ()
    publisher: str | None = None

    def __init__(
        self,
        *,
        name: str,
        dataset: str,
        table: str,
        unit: Unit | Mapping[str, Any],
        queries: Sequence[Mapping[str, Any]],
        budget: PlanBudget | Tradeoff | Mapping[str, Any],
        columns: Mapping[str, Any] | None = None,
        tables: Mapping[str, Any] | None = None,
        derive: Mapping[str, Any] | None = None,
        lookup: Mapping[str, Any] | None = None,
        hierarchy: Mapping[str, Any] | None = None,
        where: str | None = None,
        part: str | None = None,
        most_rows: int | None = None,
        source: Mapping[str, Any] | None = None,
        noise: NoiseKind | None = None,
        publisher: str | None = None,
        consistency: str | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        needed = ("unit", "queries", "budget")  # an error names it if it is None
        given = {k: v for k, v in locals().items() if v is not None or k in needed}
        for word in ("self", "folder", "needed"):
            given.pop(word, None)
        same = type(self).from_dict(plan_sections(given), folder=folder)
        if same.rows_not_stated:
            warnings.warn(same.rows_not_stated, stacklevel=2)
        for field in fields(self):
            object.__setattr__(self, field.name, getattr(same, field.name))

    @classmethod
    def _of(cls, parts: Mapping[str, Any]) -> Plan:
        plan = object.__new__(cls)
        for name, value in parts.items():
            object.__setattr__(plan, name, value)
        return plan

    def changed(self, **parts: Any) -> Plan:
        """Return the plan with other resolved parts, which are not checked: `Query`, `Column`."""
        return self._of({field.name: getattr(self, field.name) for field in fields(self)} | parts)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Load a plan from a TOML file, with numbers as exact decimals.

        Raises:
            PlanError: the file cannot be read, or what it says does not make a plan.
        """
        path = Path(path)
        try:
            text = read_file(path).decode("utf-8-sig")
            data = tomllib.loads(text, parse_float=Decimal)
        except OSError as error:
            raise PlanError([f"plan = {str(path)!r} cannot be read: {error.strerror}"]) from None
        except UnicodeDecodeError:
            raise PlanError([f"plan = {str(path)!r} is not text in UTF-8"]) from None
        except tomllib.TOMLDecodeError as error:
            raise PlanError([f"plan = {str(path)!r} is not TOML: {error}"]) from None
        except RecursionError:
            raise PlanError([f"plan = {str(path)!r} is nested too deep to be a plan"]) from None
        except (ValueError, ArithmeticError):
            # Python reads whole numbers of up to 4300 digits, and decimals of less than 10^18.
            raise PlanError([f"plan = {str(path)!r} has a number of too many digits"]) from None
        return cls.from_dict(data, folder=path.parent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, folder: str | Path | None = None) -> Plan:
        """Read a plan from a dictionary in the shape of the TOML file or of ``canonical()``.

        Args:
            data: the sections; a float counts as the decimal it prints as.
            folder: what the path of a hierarchy's keys is relative to.

        Raises:
            PlanError: with every problem found.
        """
        document = parse(data)
        resolution = resolve(document, Path(folder) if folder else None)
        columns, hierarchy, queries, rows, tables = resolution
        parts = {name: getattr(document, name) for name in _COPIED}
        method = document.consistency.method if document.consistency else None
        resolved = {"columns": columns, "hierarchy": hierarchy, "queries": queries, "rows": rows}
        resolved |= {"tables": tables, "budget": budget_of(document.budget.numbers)}
        plan = cls._of({**parts, **resolved, "consistency": method})
        problems = [*plan._outright(), *plan._unlisted()]
        if problems:
            raise PlanError(problems)
        return plan

    @property
    def assumption(self) -> str:
        """What the guarantee assumes about the rows of one unit, in a sentence; "" for nothing."""
        return one_row_each(self.unit.protects, self.unit.id)

    @property
    def rows_not_stated(self) -> str:
        """The warning for a unit without ``id`` and ``rows``; "" for none.

        A canonical plan states ``rows``. So a plan from a receipt has no warning.
        """
        given = "rows" in self.unit.model_fields_set
        return rows_not_stated(self.unit.protects, self.unit.id, rows_given=given)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of a plan."""
        return json_schema()

    @property
    def rounded(self) -> bool:
        """Return True if the noise is rounded Gaussian, and False if it is discrete Gaussian."""
        return self.noise == "rounded-gaussian"

    def column(self, name: str) -> Column:
        """Return the declared column of that name."""
        return next(column for column in self.columns if column.name == name)

    def query(self, name: str) -> Query:
        """Return the query of that name.

        Raises:
            KeyError: there is none.
        """
        for query in self.queries:
            if query.name == name:
                return query
        raise KeyError(
            f"no query {name!r}; {suggest(name, [query.name for query in self.queries])}"
        )

    def further_table(self, name: str | None) -> PrivateTable | None:
        """Return the further private table of that name; None for the plan's table."""
        return next((table for table in self.tables if table.name == name), None)

    def rows_of(self, query: Query) -> int:
        """Return the most rows of one unit that count in the table of a query."""
        table = self.further_table(query.table)
        return self.unit.rows if table is None else table.rows

    @property
    def unit_rows(self) -> int:
        """The most rows of one unit that count in one table: what the ledger holds."""
        return max((self.unit.rows, *(table.rows for table in self.tables)))

    @property
    def unit_rows_in_all(self) -> int:
        """The most rows of one unit that count in all tables together."""
        return sum((self.unit.rows, *(table.rows for table in self.tables)))

    def table_plans(self) -> tuple[Plan, ...]:
        """Return for each table the plan of the queries that read it [UN-8].

        A plan of one table is its own. The others' tables, queries, and filters are left out, and
        the unit is as the table has it.
        """
        if not self.tables:
            return (self,)
        plans: list[Plan] = []
        for table in (None, *self.tables):
            name = None if table is None else table.name
            queries = [query for query in self.queries if query.table == name]
            if not queries:
                continue
            own: dict[str, Any] = {"where": self.rows.where}
            if table is not None:
                own = {"where": None, "table": table.name, "unit": unit_in(self.unit, table)}
            where = own.pop("where")
            rows = read_by_queries(self.rows, queries, where, self.hierarchy)
            alone = tuple(replace(query, table=None) for query in queries)
            plans.append(self.changed(queries=alone, rows=rows, tables=(), **own))
        return tuple(plans)

    def key_columns(self, query: Query, level: str) -> tuple[str, ...]:
        """Return the names of a table's key columns: levels down to its own, then ``by``."""
        above: tuple[str, ...] = ()
        if self.hierarchy and level != ALL:
            above = self.hierarchy.levels[: self.hierarchy.depth(level) + 1]
        return (*above, *query.by)

    def shape(self, query: Query, level: str) -> tuple[int, ...]:
        """Return a table's shape: places (1 without levels), keys of each ``by``, then bins if any.

        A column whose keys are unknown has 0 of them.
        """
        by_level = self.hierarchy and query.at
        places = len(self.hierarchy.paths(level)) if self.hierarchy and by_level else 1
        bins = (len(query.bins) - 1,) if query.bins else ()
        return (places, *(len(self.column(name).keys) for name in query.by), *bins)

    def cells(self, query: Query, level: str) -> int:
        """Return how many integers a table has: of quantiles that are drawn, one for each."""
        shape = self.shape(query, level)
        return math.prod(
            (*shape[:-1], len(query.quantiles)) if query.inverse_sensitivity else shape
        )

    def entries(self) -> tuple[Entry, ...]:
        """Return every table of integers that the plan publishes, in declared order."""
        return self._entries

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        entries = []
        for query in self.queries:
            split, public = dict(query.split), dict(query.public)
            for level in query.levels:
                cells = None if query.delta is not None else self.cells(query, level)
                if level in public:
                    entries.append(
                        Entry(query.name, level, "count", cells, Fraction(0), (), public[level])
                    )
                    continue
                parts = measures_of(query)
                for measure in parts:
                    shifts = self.shifts(query, level, measure)
                    draws = len(query.quantiles) if query.inverse_sensitivity else 1
                    selection = measure == "keys"
                    entry = Entry(
                        query.name,
                        level,
                        measure,
                        cells,
                        query.share * split[level] / len(parts),
                        shifts.vectors,
                        squared=draws * shifts.squared,
                        draws=draws,
                        keys=self._keys_of_unit(query) if selection else 0,
                        delta=query.delta if selection else None,
                        relation=self.unit.neighboring if selection else "any",
                        rounded=self.rounded and not query.inverse_sensitivity,
                        searched=self._searched(query, measure),
                    )
                    entries.append(entry)
        return tuple(entries)

    def _searched(self, query: Query, measure: str) -> bool:
        """Whether the shifts of a table, and so its noise, follow from a histogram."""
        if self.unit.search is not None and not query.searched:
            return True
        return query.search is not None and measure != "count"

    def with_clips(self, clips: Mapping[str, tuple[int, int]]) -> Plan:
        """Return the plan with declared clips in place of those that histograms lead to.

        Args:
            clips: by the name of a query with a clip to discover, scaled; and by `ROWS_TABLE` the
                rows of a unit, as the high end.
        """
        unit = self.unit
        if ROWS_TABLE in clips:
            unit = unit.model_copy(update={"rows": clips[ROWS_TABLE][1]})
        queries = (
            replace(query, clip=clips[query.name]) if query.name in clips else query
            for query in self.queries
        )
        return self.changed(queries=tuple(queries), unit=unit)

    def shifts(
        self, query: Query, level: str, measure: str, *, relation: Neighboring | None = None
    ) -> Shifts:
        """Return how far one unit can move one table if all of its rows may change.

        Args:
            query, level, measure: which table, as its `Entry` has them.
            relation: in place of the plan's own.
        """
        low, high = range_of(query, measure)
        rows = self.rows_of(query)
        bounds: dict[str, Any] = {"rows": rows, "groups": query.groups}
        if measure == "rows":
            bounds = {"rows": 1, "rows_per_group": 1}
        elif measure in ("units", "keys"):
            bounds = {"rows": min(rows, query.groups or rows), "rows_per_group": 1}
        else:
            bounds["rows_per_group"] = query.rows_per_group
            bounds["finer"] = self._finer(query, level) if rows > 1 else 1
        shape = self.shape(query, level)
        known = query.delta is None
        return shifts(
            cells=math.prod(shape[:-1] if query.inverse_sensitivity else shape)
            if known
            else 2 * rows,
            neighboring=relation or self.unit.neighboring,
            low=low,
            high=high,
            **bounds,
        )

    def _finer(self, query: Query, level: str) -> int:
        """The most places of a query's lowest level that one of a level contains."""
        if self.hierarchy is None or not query.at:
            return 1
        lowest = max(query.at, key=self.hierarchy.depth)
        return int(np.bincount(self.hierarchy.parents(lowest, level)).max())

    def _keys_of_unit(self, query: Query) -> int:
        rows = self.rows_of(query)
        return min(rows, query.groups or rows)

    def _outright(self) -> Iterator[str]:
        """What may be revealed outright, where that is more than the budget has a delta for."""
        chances = [(entry, entry.failure) for entry in self.entries() if entry.delta is not None]
        total = sum((chance for _, chance in chances), Fraction(0))
        shortage = self.budget.shortage(total)
        if chances and shortage:
            text = "; ".join(
                f"{entry.query} at {entry.level}: {entry.keys} keys a unit, {plain(chance)}"
                for entry, chance in chances
            )
            most = self.budget.outright or Fraction(0)
            yield (
                f"query[].delta: a key of a single unit is published with probability up to "
                f"{plain(total)} ({text}), and {shortage}; "
                "take a smaller delta in the query, such as "
                + fitting_delta(most, sum(entry.keys for entry, _ in chances))
            )

    def _unlisted(self) -> Iterator[str]:
        """A budget that needs a curve, where only rho is claimed."""
        if not self.bare or not self.budget.curve_needed:
            return
        yield (
            f"{self.budget.text()}: the shifts of one {self.unit.protects} of unit.rows = "
            f"{self.unit_rows} allow too many combinations to list (a table's more than "
            f"{MOST_VECTORS}, or all tables' together more than 256), and rho alone implies no "
            "such promise; give the budget as zcdp, or as epsilon with delta, or take noise = "
            "'rounded-gaussian', which needs no list, or bound groups and "
            "rows_per_group of the queries"
        )

    @cached_property
    def bare(self) -> bool:
        """Whether only rho is claimed, and the curve that it implies: shifts are too many."""
        # Rounded noise has a curve for every shift of one norm.
        measured = [e for e in self.entries() if e.public is None and not e.rounded]
        if not measured:
            return False
        if any(not entry.shifts for entry in measured):
            return True
        if math.prod(len(entry.shifts) for entry in measured) <= MOST_VECTORS:
            return False
        least = max(2 * entry.share / entry.squared for entry in measured)  # sigma from 1 on
        return any(composition.bare is not None for composition in self.at_scale(least).losses())

    def at_scale(self, scale: Fraction) -> Mechanism:
        """Return the plan's mechanism with sigma^2 = squared * scale / (2 share) for each entry.

        ``scale`` is 1/rho, where rho is what the plan spends in zCDP.
        """
        measured = [entry for entry in self.entries() if entry.public is None]
        return together([(entry, entry.sigma_squared(scale)) for entry in measured])

    def mechanism(self, scale: Fraction | None = None) -> Mechanism:
        """Return the plan's mechanism with the least noise that the budget admits.

        Args:
            scale: 1/rho in place of the calibrated one.
        """
        return self._calibrated if scale is None else self.at_scale(scale)

    def concerning(self, *attributes: str, within: str | None = None) -> Mechanism:
        """Return the mechanism of the tables that some attributes of one record can move.

        ``plan.concerning("race").tradeoff()`` is what an attacker can learn of a person's race who
        knows all else of the person; ``plan.concerning("county", within="state")`` of which county
        of a state; ``plan.concerning("race", "county", within="state")`` of both together. The
        noise is that of `mechanism()`.

        The neighbors are two datasets in which one record differs in these attributes alone:
        replace-one, restricted, whatever relation the plan has, so under add-remove it may tell
        more than that the record is there. An attribute may also change to what is unknown, which
        drops the record from tables by it; a place that stays within another one is listed. Where
        ``unit.id`` names the units, a change of one attribute may change which of a unit's rows are
        kept, so every table that the unit can move takes part.

        Args:
            attributes: columns, levels of the hierarchy (with all that is below them), or the
                hierarchy by its name (to anywhere).
            within: the level whose place stays. Needed for levels below the top one.

        Returns:
            Exactly the tables whose answers can change, each with the shifts that can happen to it;
            `Mechanism.nothing()` where none can. All of them together are taken to move at once,
            which is the safe side.

        Raises:
            ValueError: an attribute that the plan does not have, or ``within`` that does not fit.
        """
        _ = self._calibrated  # refuses noise that cannot be drawn
        return concerning(self, attributes, within, self.scale)

    @cached_property
    def _calibrated(self) -> Mechanism:
        with self._budget_named():
            return self.at_scale(self.scale)

    @contextmanager
    def _budget_named(self) -> Iterator[None]:
        """An error about what cannot be met names the plan's own fields."""
        try:
            yield
        except PlanError:
            raise
        except (ValueError, ArithmeticError):
            raise PlanError(
                [
                    f"{self.budget.text()}: no noise that can be drawn (sigma^2 from 1e-4 to 1e30) "
                    "just meets it with these shares and clips; take a less extreme budget"
                ]
            ) from None

    @cached_property
    def scale(self) -> Fraction:
        """1/rho of the calibrated plan: exact for a budget in zCDP, else the least certified."""
        scale = self.normal_scale
        if isinstance(self.budget, Zcdp):
            return scale
        with self._budget_named():
            step = Fraction(1, 10**9)  # the two curves are rounded by different steps
            while self._normal and not self.target.admits(self.at_scale(scale)):
                scale, step = scale * (1 + step), 2 * step
            return scale

    @cached_property
    def normal_scale(self) -> Fraction:
        """`scale` but for a last digit: that of normal noise, where noise is rounded normal noise.

        The curve of rounded noise is at least that of the normal noise that it is made of [RG-1],
        which takes less time.
        """
        if isinstance(self.budget, Zcdp):
            return 1 / self.budget.rho
        with self._budget_named():
            make = self._normal_at_scale if self._normal else self.at_scale
            return calibrate_exact(make, self.target)

    @property
    def _normal(self) -> bool:
        """Whether rounded noise is calibrated as normal noise: not that of one listed shift."""
        measured = [entry for entry in self.entries() if entry.public is None]
        single = [len(v) for e in measured for v in e.shifts] == [1]
        return not single and any(entry.rounded for entry in measured)

    def _normal_at_scale(self, scale: Fraction) -> Mechanism:
        """Return the mechanism with normal noise in place of rounded noise [RG-1]."""
        measured = [entry for entry in self.entries() if entry.public is None]
        share = sum((entry.share for entry in measured if entry.rounded), Fraction(0))
        total: Mechanism = Gaussian(sigma=math.sqrt(scale / (2 * share)))
        for entry in measured:
            if not entry.rounded:
                total = total + together([(entry, entry.sigma_squared(scale))])
            elif entry.delta is not None:
                total = total + NonPrivate(entry.failure, entry.relation)
        return total

    @cached_property
    def target(self) -> Budget:
        """What noise is calibrated to."""
        return self.budget.target

    def admits(self, mechanism: Mechanism) -> bool:
        """Return True if the budget certainly admits a mechanism. zCDP budgets compare exactly."""
        return self.budget.admits(mechanism)

    def errors(self) -> pd.DataFrame:
        """Return the error of every table, as `neyman plan check` prints it, before any data.

        Returns:
            A data frame with a row per table: query, level, measure, cells, share, standard_error,
            and half_width_90, in the plan's units. The last two are missing where the error depends
            on the number of rows in a cell; then ``standard_error_at_1000`` bounds it for 1,000.
        """
        return import_module("neyman.publishing.planning.error_frame").error_frame(self)

    def __repr__(self) -> str:
        names = [query.name for query in self.queries]
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        return (
            f"<Plan {self.name} of {self.dataset}: {', '.join(names[:_MOST_SHOWN])}{more}; "
            f"{self.unit.protects}, {self.unit.neighboring}; {self._budget_text()}>"
        )

    def _budget_text(self) -> str:
        """The budget as its numbers by name."""
        fields = self.budget_dict()
        return ", ".join(f"{name} {value}" for name, value in fields.items() if name != "kind")

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """The parts of the notebook's view: what is protected, and the error of each table."""
        yield notebook.title(f"Plan {self.name}")
        rows = [
            ["Dataset", self.dataset],
            ["Privacy unit", self.unit.protects],
            ["Neighboring datasets", self.unit.neighboring],
            ["Budget", self._budget_text()],
        ]
        yield notebook.table(["Field", "Value"], rows)
        yield import_module("neyman.publishing.planning.error_frame").error_table(self)

    def calibrated(self) -> tuple[tuple[Entry, Fraction], ...]:
        """Return every entry with its exact sigma squared (0 for a declared value)."""
        _ = self._calibrated  # refuses noise that cannot be drawn
        return tuple(
            (entry, Fraction(0) if entry.public is not None else entry.sigma_squared(self.scale))
            for entry in self.entries()
        )

    def budget_dict(self) -> dict[str, Any]:
        """Return the budget's kind and its exact numbers as text."""
        return dict(self.budget.to_dict())

    def canonical(self) -> dict[str, Any]:
        """Return the plan as JSON types: defaults filled in, numbers as text, public keys inline.

        ``Plan.from_dict(plan.canonical())`` is the same plan, with the same hash.
        """
        content: dict[str, Any] = {
            "schema": self.schema_version,
            "name": self.name,
            "dataset": self.dataset,
            "table": self.table,
            **self._optional(),
            "unit": self.unit.to_dict(),
            **self._tables(),
            "columns": {column.name: _column_dict(column) for column in self.columns}
            | {name: {"type": kind} for name, kind in self.rows.types},
        }
        for name in content["columns"].keys() & set(self.rows.parsed):
            content["columns"][name]["parse"] = True
        for name, zone in self.rows.zones:
            content["columns"][name]["zone"] = zone
        for section, rule in (("derive", False), ("lookup", True)):
            parts = {one.name: one for one in self.rows.derived if (one.rule == "lookup") == rule}
            if parts:
                content[section] = {name: one.to_dict() for name, one in parts.items()}
        if self.hierarchy:
            rows, unknown = self.hierarchy.rows, self.hierarchy.unknown
            integer = {"integer": list(self.hierarchy.integer)} if self.hierarchy.integer else {}
            content["hierarchy"] = {
                self.hierarchy.name: {
                    "levels": list(self.hierarchy.levels),
                    "keys": [list(row) for row in rows],
                    "unknown": "drop" if unknown is None else list(rows[unknown]),
                    **integer,
                }
            }
        content["budget"] = self.budget.to_fields()
        content["query"] = [_query_dict(self, q) for q in self.queries if not q.searched]
        return content

    def _tables(self) -> dict[str, Any]:
        tables = {table.name: table.to_dict() for table in self.tables}
        return {"tables": tables} if tables else {}

    def _optional(self) -> dict[str, Any]:
        """Fields that are left out where they are not given: older plans keep their hash."""
        content: dict[str, Any] = {"publisher": self.publisher}
        content |= {"part": self.part, "most_rows": self.most_rows}
        content["noise"] = self.noise if self.rounded else None
        content["where"] = self.rows.where
        if self.source != PLAIN_SOURCE:
            content["source"] = self.source.to_dict()
        if self.consistency is not None:
            content["consistency"] = {"method": self.consistency}
        return {name: value for name, value in content.items() if value is not None}

    @property
    def schema_version(self) -> int:
        """The version of the plan's format: 2 if a row without a number can take no part."""
        drops = any(column.integer and column.unknown is None for column in self.columns)
        return 2 if drops else 1

    @cached_property
    def hash(self) -> str:
        """``"sha256:..."`` of the canonical plan, public keys included."""
        return hash_of(self.canonical())


def hash_of(canonical: Mapping[str, Any]) -> str:
    """SHA-256 of a canonical plan as JSON with sorted keys and no blanks."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _column_dict(column: Column) -> dict[str, Any]:
    if column.discover:
        return {"discover": True}
    if column.integer:
        unit = {"measurement_unit": column.measurement_unit} if column.measurement_unit else {}
        kind = {"decimals": column.decimals} if column.decimals else {"integer": True}
        goes = "drop" if column.unknown is None else unscaled(column.unknown, column)
        return {**kind, "unknown": goes, **unit}
    unknown = "drop" if column.unknown is None else column.keys[column.unknown]
    return {"keys": list(column.keys), "unknown": unknown}


def unscaled(value: int, column: Column) -> int | str:
    """A scaled whole number as the plan writes it: a whole number, or an exact decimal in text."""
    return exact_text(Fraction(value, 10**column.decimals)) if column.decimals else value


def _numbers_dict(column: Column, query: Query) -> dict[str, Any]:
    """The clip and the edges of a query."""
    if query.search is not None:
        return {
            "clip": "discover-signed" if query.search.signed else "discover",
            "clip_share": exact_text(query.search.share),
            "clip_above": exact_text(query.search.above),
        }
    ends, edges = query.clip, query.bins
    if query.inverse_sensitivity and query.bins:
        ends, edges = (query.bins[0], query.bins[-1] - 1), None
    return {
        field: [unscaled(number, column) for number in numbers]
        for field, numbers in (("clip", ends), ("edges", edges))
        if numbers is not None
    }


def declared_share(plan: Plan, query: Query) -> Fraction:
    """Return the share of a query with those of the histograms that it is bounded by."""
    terms = [search for search in (query.search, plan.unit.search) if search is not None]
    return query.share / math.prod((1 - search.share for search in terms), start=Fraction(1))


def _query_dict(plan: Plan, query: Query) -> dict[str, Any]:
    content: dict[str, Any] = {"name": query.name, "measure": query.measure}
    if query.table is not None:
        content["table"] = query.table
    if query.column is not None:
        content["column"] = query.column
        content |= _numbers_dict(plan.column(query.column), query)
    if query.over is not None:
        content["over"] = query.over
        content["clip_over"] = [
            unscaled(number, plan.column(query.over)) for number in query.clip_over or ()
        ]
    if query.complete:
        content["complete"] = True
    if query.inverse_sensitivity:
        content["method"] = "inverse-sensitivity"
    if query.measure == "quantiles":
        content["quantiles"] = [exact_text(level) for level in query.quantiles]
    if query.where is not None:
        content["where"] = query.where
    content |= {"by": list(query.by), "at": list(query.at)}
    for field in ("groups", "rows_per_group"):
        if getattr(query, field) is not None:
            content[field] = getattr(query, field)
    if query.delta is not None:
        content["delta"] = exact_text(query.delta)
    if query.split:
        content["share"] = str(declared_share(plan, query))
        content["split"] = {level: str(part) for level, part in query.split}
    if query.weight:
        content["weight"] = {level: exact_text(part) for level, part in query.weight}
    if query.public:
        content["public"] = dict(query.public)
    return content
