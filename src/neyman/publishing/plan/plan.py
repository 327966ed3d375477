"""Read, check, and calibrate a release plan: queries, public keys, and a privacy budget."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from neyman import notebook
from neyman.accounting.calibrate import Budget, calibrate_exact
from neyman.accounting.semantics.budget import PlanBudget, Zcdp, budget_of
from neyman.accounting.semantics.digits import exact_text, plain
from neyman.accounting.semantics.unchecked_claims import one_row_each, rows_not_stated
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.elements import Node
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.choice import Alternatives
from neyman.numerics import check
from neyman.publishing.plan.column import Section
from neyman.publishing.plan.derived import readings_of
from neyman.publishing.plan.document import (
    PlanDocument,
    divide_shares,
    json_schema,
    parse,
    read_sections,
)
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.measurement import (
    Entry,
    at_scale,
    calibrates_as_normal,
    claims_rho_alone,
    fitting_delta,
    normal_at_scale,
)
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, NoiseKind
from neyman.publishing.plan.plan_model import PlanModel
from neyman.publishing.plan.plan_queries import LIMITS as QUERY_LIMITS
from neyman.publishing.plan.query import Query, declared_share, in_bins, interval_ranks
from neyman.publishing.plan.resolve import resolve
from neyman.publishing.plan.scenarios import concerning, keeping_totals, unmoved
from neyman.publishing.plan.sections import Unit, document_of
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS
from neyman.publishing.plan.totals import held, held_names, rows_sorted, totals_sections
from neyman.storage.visible_text import visible

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

_COPIED = (
    *("name", "dataset", "table", "unit", "part", "most_rows", "source", "noise"),
    *("publisher", "disjoint", "corrects"),
)
"""The fields that a plan copies unchanged from its document."""
_MAX_QUERIES_SHOWN = 6  # queries in a text
_TYPICAL_ROWS = 1000  # rows of a cell for which a method of quantiles is chosen


@dataclass(frozen=True, init=False, repr=False)
class Plan(PlanModel):
    """Represent a validated release plan. Calibration sets its noise.

    Create a plan with ``Plan.load(path)``, ``Plan.from_dict(data)``, or from its sections.

    Args:
        name: a name for the plan.
        dataset: declared name@version of the data, as in the ledger.
        table: the table that the queries read.
        unit: a `Unit`: the privacy unit.
        queries: such as ``ny.query.count(by=["sex"])``. Shares are relative: Neyman divides each
            share by their sum. A query without a name takes the name of its measure.
        budget: `at_most`, `zcdp`, `gdp`, or `approximate`; or fields, such as ``{"zcdp": "1/10"}``.
            With ``{"zcdp": "1/10", "unspent": "1/5"}``, the queries take 4/5 of the budget.
        columns: the section of each column: `keys`, or ``{"integer": True}`` or
            ``{"decimals": 2}`` for a column to sum. Its numbers are rounded down to these digits.
        tables: further private tables by name, such as
            ``{"people": {"id": "id", "join": ["sex"]}}``.
        derive, lookup, hierarchy: sections by name, as in the TOML file.
        where: a condition on a row.
        part, most_rows, source, publisher, corrects: as in the TOML file.
        noise: "discrete-gaussian" (the default) or "rounded-gaussian".
        disjoint: True to charge queries with disjoint filters for the worst of them, instead of for
            their sum.
        totals: exact public totals, such as
            ``[{"by": ["sex"], "values": [["m", 40], ["f", 60]]}]``.
        consistency: the method, such as "least-squares".
        folder: the folder to which the paths of key files are relative.

    Raises:
        PlanError: with every problem found.

    Warns:
        UserWarning: the name of the unit does not say that it is a row, and the unit has neither
            ``id`` nor ``rows``. The guarantee then assumes that each unit has at most one row.

    Examples:
        >>> import neyman as ny
        >>> plan = ny.Plan(
        ...     name="survey", dataset="survey@1", table="people",
        ...     unit=ny.Unit("person", neighboring="replace-one", rows=1),
        ...     columns={
        ...         "sex": ny.keys(["m", "f"], unknown="drop"),
        ...         "income": {"integer": True},
        ...     },
        ...     queries=[ny.query.count(by=["sex"]), ny.query.mean("income", clip=(0, 200_000))],
        ...     budget=ny.at_most(power=0.25, level=0.05),
        ... )
        >>> [query.name for query in plan.queries]
        ['count', 'mean']
        >>> ny.Plan.from_dict(plan.canonical()).hash == plan.hash
        True
        >>> round(float(plan.mechanism().tradeoff().power(level=0.05)), 2)
        0.25
    """

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
        corrects: Mapping[str, Any] | None = None,
        disjoint: bool | None = None,
        totals: Sequence[Mapping[str, Any]] | None = None,
        consistency: str | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        given: dict[str, Any] = {"name": name, "dataset": dataset, "table": table, "where": where}
        given |= {"columns": columns, "tables": tables, "derive": derive, "lookup": lookup}
        given |= {"hierarchy": hierarchy, "part": part, "most_rows": most_rows, "source": source}
        given |= {"noise": noise, "publisher": publisher, "consistency": consistency}
        given |= {"disjoint": disjoint, "totals": totals, "corrects": corrects}
        given = {field: value for field, value in given.items() if value is not None}
        # An error names these three if they are None.
        given |= {"unit": unit, "queries": queries, "budget": budget}
        document = divide_shares(parse(document_of(given)))
        same = type(self)._from_document(document, folder)
        if same.rows_not_stated:
            warnings.warn(same.rows_not_stated, stacklevel=2)
        for field in fields(self):
            object.__setattr__(self, field.name, getattr(same, field.name))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Load a plan from a TOML file. Read numbers as exact decimals.

        Raises:
            PlanError: the file cannot be read, or its content is not a valid plan.
        """
        file = Path(check.path("plan", path))
        return cls.from_dict(read_sections(file), folder=file.parent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, folder: str | Path | None = None) -> Plan:
        """Read a plan from a dictionary with the fields of the TOML file or of ``canonical()``.

        Args:
            data: the sections. A float counts as the decimal that Python prints for it.
            folder: the folder to which the paths of key files are relative.

        Raises:
            PlanError: with every problem found.
        """
        return cls._from_document(parse(data), folder)

    @classmethod
    def _from_document(cls, document: PlanDocument, folder: str | Path | None) -> Plan:
        names = ("columns", "hierarchies", "queries", "rows", "tables", "totals")
        *resolution, partitions = resolve(
            document, None if folder is None else Path(check.path("folder", folder))
        )
        parts: dict[str, Any] = dict(zip(names, resolution, strict=True))
        queries: tuple[Query, ...] = parts["queries"]
        parts["fixed"] = tuple(query for query in queries if not (query.split or query.public))
        parts["queries"] = tuple(query for query in queries if query.split or query.public)
        parts |= {name: getattr(document, name) for name in _COPIED}
        parts["disjoint"] |= any(part.partition is not None for part in document.query)
        parts["consistency"] = document.consistency.method if document.consistency else None
        parts["budget"] = budget_of(document.budget.numbers)
        parts["unspent"] = document.budget.unspent
        plan = cls._of(parts).with_partitions(partitions)._with_methods()
        problems = [*unmoved(plan)] or [*plan._outright(), *plan._curve_problems()]
        if problems:
            raise PlanError(problems)
        return plan

    def _with_methods(self) -> Self:
        """Return the plan with a method for each query of quantiles with a clip and no method.

        It is the method with the narrower interval at 1,000 rows per cell, or at ``most_rows`` if
        that is less: two more draws for the ends, or 64 equal bins [IS-5]. The canonical plan
        states it.
        """
        if not any(query.undecided for query in self.queries):
            return self
        decided = tuple(replace(query, undecided=False) for query in self.queries)
        equal = tuple(in_bins(q) if q.undecided else q for q in self.queries)
        by_draws, by_bins = (self.changed(queries=queries) for queries in (decided, equal))
        if self.unit.search is not None:
            return by_bins  # draws do not go with it
        try:
            scale = self._scale_alone()
        except (ValueError, ArithmeticError):
            return by_draws  # no Gaussian noise meets the budget
        wide, narrow = by_draws._widest_intervals(scale), by_bins._widest_intervals(scale)
        few = {e.query for e in by_bins.entries() if (e.cells or 0) <= QUERY_LIMITS.cells}
        return self.changed(
            queries=tuple(
                other if one.name in few and narrow[one.name] < wide[one.name] else one
                for one, other in zip(decided, equal, strict=True)
            )
        )

    def _widest_intervals(self, scale: Fraction) -> Mapping[str, float]:
        """Return the largest `interval_ranks` of each query of quantiles, and 0 for others."""
        rows, widest = min(_TYPICAL_ROWS, self.most_rows or _TYPICAL_ROWS), dict[str, float]()
        for entry in self.entries():
            query = self.query(entry.query)
            wide = interval_ranks(query, entry.sigma_squared(scale), rows) if query.ranked else 0
            widest[query.name] = max(wide, widest.get(query.name, 0.0))
        return widest

    def _scale_alone(self) -> Fraction:
        """Return 1/rho of normal noise that takes the whole budget."""
        if isinstance(self.budget, Zcdp):
            return 1 / self.budget.rho
        return calibrate_exact(lambda scale: Gaussian(sigma=math.sqrt(scale / 2)), self.target)

    @property
    def assumption(self) -> str:
        """Return a sentence about the rows of one unit that the guarantee assumes; "" for none."""
        return one_row_each(self.unit.protects, self.unit.id)

    @property
    def rows_not_stated(self) -> str:
        """Return the warning for a unit that has neither ``id`` nor ``rows``; "" for other units.

        A canonical plan states ``rows``. So a plan from a receipt has no warning.
        """
        given = "rows" in self.unit.model_fields_set
        return rows_not_stated(self.unit.protects, self.unit.id, rows_given=given)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of a plan."""
        return json_schema()

    def _declared_entries(self) -> tuple[Entry, ...]:
        """Return the entries, with the shifts of one-row changes that keep all totals [UN-14]."""
        entries = super()._declared_entries()
        return keeping_totals(self, entries) if self.totals else entries

    @property
    def totals_hash(self) -> str:
        """Return the hash that identifies the totals in a ledger; "" for a plan without totals.

        The hash covers the totals and everything that decides in which of their cells a row counts.
        So plans with the same hash state the same scenarios.
        """
        if not self.totals:
            return ""
        level, names = held(self.totals, self.hierarchy)
        levels = self.hierarchy.levels if self.hierarchy and level else ()
        names |= {*levels}
        derived: dict[str, Section] = {}
        for one in reversed(self.rows.derived):  # each column comes after its sources
            if one.name in names:
                names |= one.sources
                derived[one.name] = one.to_dict()
        columns = {
            name: rows_sorted(section)
            for name, section in self._column_sections().items()
            if name in names
        }
        # Only rows read a level that a total does not list: as a text, number, or day.
        others = {level for one in self.hierarchies for level in one.levels} - {*levels}
        forms = readings_of(self.columns, self.hierarchies, self.rows)
        readings: Section = {
            name: {**asdict(kind), "form": forms.get(name)}
            for name, kind in self.rows.readings
            if name in names & others
        }
        content: Section = {
            "totals": sorted(map(json.dumps, map(rows_sorted, self._totals_sections()))),
            "columns": columns,
            "derived": derived,
            "hierarchy": rows_sorted(self.hierarchy.to_dict()) if self.hierarchy and level else {},
            "source": self.source.to_dict(),
        }
        return hash_of(content | ({"levels": readings} if readings else {}))

    @property
    def held(self) -> tuple[str, ...]:
        """Return the attributes that the totals fix: the lowest level, and the columns."""
        return held_names(self.totals, self.hierarchy) if self.totals else ()

    def _totals_sections(self) -> list[Section]:
        if not self.totals:
            return []
        columns = {column.name: column for column in self.columns}
        return totals_sections(self.totals, columns, self.hierarchy)

    def _outright(self) -> Iterator[str]:
        """Yield an error if a one-unit key may be published with more than the budget's delta."""
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

    def _curve_problems(self) -> Iterator[str]:
        """Yield an error if the budget needs a trade-off curve but the plan claims only rho."""
        if not self.bare or not self.budget.curve_needed:
            return
        yield (
            f"{self.budget.text()}: the shifts of one {self.unit.protects} of unit.rows = "
            f"{self.unit_rows} allow too many combinations to list (a table's more than "
            f"{SHIFTS_LIMITS.vectors}, or all tables' together more than 256), and rho alone "
            "implies no such guarantee; give the budget as zcdp, or as epsilon with delta, or take "
            "noise = 'rounded-gaussian', which needs no list, or bound groups and "
            "rows_per_group of the queries"
        )

    @cached_property
    def bare(self) -> bool:
        """Return True if the plan has too many shifts to claim more than rho and its curve."""
        return claims_rho_alone(self.cases)

    def at_scale(self, scale: Fraction) -> Mechanism:
        """Return the plan's mechanism: with what is unspent, it costs rho = 1 / ``scale`` in zCDP.

        An integer table with largest squared shift ``squared`` and share ``share`` of the budget
        gets sigma^2 = squared * scale / (2 share).
        """
        return Alternatives.of(at_scale(case, scale) for case in self.cases)

    def mechanism(self, scale: Fraction | None = None) -> Mechanism:
        """Return the plan's mechanism with the least noise that the budget admits.

        Args:
            scale: 1/rho to use instead of the calibrated one.
        """
        return self._calibrate if scale is None else self.at_scale(scale)

    def concerning(self, *attributes: str, within: str | None = None) -> Mechanism:
        """Return the mechanism of the tables that a change of one record's attributes can move.

        ``plan.concerning("race").tradeoff()`` bounds what an attacker can learn about a person's
        race if they know everything else about the person.
        ``plan.concerning("race", "county", within="state")`` is about race and county together, in
        a known state. The noise is the noise of `mechanism()`.

        The neighbors are two datasets in which one record differs in these attributes alone. This
        is a restricted replace-one relation, whatever relation the plan has. So under add-remove it
        may reveal more than the presence of the record. An attribute may also change to an unknown
        value, which drops the record from tables by this attribute. A place that stays within
        another place is listed. If ``unit.id`` names the units, a changed attribute may change
        which rows of a unit count. Then the mechanism includes every table that the unit can move.

        Args:
            attributes: columns, levels of a hierarchy (with all levels below), or a hierarchy by
                its name (a change to any place).
            within: the level whose place stays. Needed for levels below the top one. If places of
                several hierarchies change, a level of each: "state x sector".

        Returns:
            Exactly the tables whose answers can change, each with its possible shifts. All are
            assumed to move at once, which is conservative. `Mechanism.nothing()` if no answer can
            change; `NonPrivate` if the change can move an exact total.

        Raises:
            ValueError: the plan does not have an attribute, or ``within`` does not fit.
        """
        _ = self._calibrate  # raises if the noise cannot be drawn
        return concerning(self, attributes, within, self.scale)

    @cached_property
    def _calibrate(self) -> Mechanism:
        with self._budget_named():
            return self.at_scale(self.scale)

    @contextmanager
    def _budget_named(self) -> Generator[None]:
        """Replace a numerical error by a PlanError that names the budget, which cannot be met."""
        try:
            yield
        except PlanError:
            raise
        except (ValueError, ArithmeticError):
            raise PlanError(
                f"{self.budget.text()}: no noise that can be drawn (sigma^2 from 1e-4 to 1e30) "
                "just meets it with these shares and clips; take a less extreme budget"
            ) from None

    @cached_property
    def scale(self) -> Fraction:
        """Return 1/rho of the calibrated plan: exact for zCDP, else the least certified value."""
        scale = self.normal_scale
        if isinstance(self.budget, Zcdp):
            return scale
        with self._budget_named():
            normal, step = any(map(calibrates_as_normal, self.cases)), Fraction(1, 10**9)
            # The two curves are rounded by different steps.
            while normal and not self.target.admits(self.at_scale(scale) + self.rest(scale)):
                scale, step = scale * (1 + step), 2 * step
            return scale

    @cached_property
    def normal_scale(self) -> Fraction:
        """Return 1/rho of the plan, calibrated with normal noise in place of rounded noise.

        It agrees with `scale` except for the last digits. The curve of rounded normal noise is at
        least the curve of normal noise [RG-1], which is faster to compute.
        """
        if isinstance(self.budget, Zcdp):
            return 1 / self.budget.rho
        with self._budget_named():
            make = normal_at_scale if any(map(calibrates_as_normal, self.cases)) else at_scale
            return calibrate_exact(
                lambda scale: (
                    Alternatives.of(make(case, scale) for case in self.cases) + self.rest(scale)
                ),
                self.target,
            )

    @cached_property
    def target(self) -> Budget:
        """Return the guarantee to which the noise is calibrated."""
        return self.budget.target

    def admits(self, mechanism: Mechanism) -> bool:
        """Return True if a mechanism certainly meets the budget. zCDP budgets compare exactly."""
        return self.budget.admits(mechanism)

    def errors(self) -> pd.DataFrame:
        """Return the error of every table before any data, as `neyman plan check` prints it.

        Returns:
            A data frame with a row per table: query, level, measure, cells, share, standard_error,
            and half_width_90, in the plan's units. If the error depends on the number of rows in a
            cell, a further column bounds the standard error for 1,000 rows instead.
        """
        return _error_tables().error_frame(self)

    def __repr__(self) -> str:
        names = [query.name for query in self.queries]
        left = len(names) - _MAX_QUERIES_SHOWN
        more = f" and {left} more" if left > 0 else ""
        return visible(
            f"<Plan {self.name} of {self.dataset}: {', '.join(names[:_MAX_QUERIES_SHOWN])}{more}; "
            f"{self.unit.protects}, {self._relation_text()}; {self._budget_text()}>"
        )

    def _relation_text(self) -> str:
        same = f" with the same {' and '.join(self.held)}" if self.totals else ""
        return f"{self.unit.neighboring}{same}"

    def _budget_text(self) -> str:
        fields = self.budget_dict() | self.unspent_field()
        return ", ".join(f"{name} {value}" for name, value in fields.items() if name != "kind")

    def unspent_field(self) -> dict[str, str]:
        """Return the field of a plan's budget that states what is unspent; none without it."""
        return {"unspent": exact_text(self.unspent)} if self.unspent else {}

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """Yield the parts of the notebook's view."""
        yield notebook.title(f"Plan {self.name}")
        rows = [
            ["Dataset", self.dataset],
            ["Privacy unit", self.unit.protects],
            ["Neighboring datasets", self._relation_text()],
            ["Budget", self._budget_text()],
        ]
        if self.fixed:
            rows.append(["Fixed by the totals", ", ".join(query.name for query in self.fixed)])
        yield notebook.table(["Field", "Value"], rows)
        yield _error_tables().error_table(self)

    def calibrated(self) -> tuple[tuple[Entry, Fraction], ...]:
        """Return every entry with its exact sigma squared (0 for a declared value)."""
        _ = self._calibrate  # raises if the noise cannot be drawn
        return tuple((entry, entry.sigma_squared(self.scale)) for entry in self.entries())

    def budget_dict(self) -> dict[str, Any]:
        """Return the budget's kind and its exact numbers as text."""
        return dict(self.budget.to_dict())

    def canonical(self) -> dict[str, Any]:
        """Return the plan as JSON types: defaults filled in, numbers as text, public keys inline.

        ``Plan.from_dict(plan.canonical())`` is the same plan, with the same hash.
        """
        columns = {column.name: column for column in self.columns}
        content: dict[str, Any] = {
            "schema": 2,
            "name": self.name,
            "dataset": self.dataset,
            "table": self.table,
            "publisher": self.publisher,
            "part": self.part,
            "most_rows": self.most_rows,
            "noise": self.noise if self.rounded else None,
            "disjoint": self.disjoint or None,
            "where": self.rows.where,
            "source": self.source.to_dict() if self.source != PLAIN_SOURCE else None,
            "consistency": {"method": self.consistency} if self.consistency else None,
            "corrects": self.corrects and self.corrects.to_dict(),
            "unit": self.unit.to_dict(),
            "tables": {table.name: table.to_dict() for table in self.tables} or None,
            "columns": self._column_sections(),
            "derive": self._derived_sections(lookup=False),
            "lookup": self._derived_sections(lookup=True),
        }
        if self.hierarchies:
            content["hierarchy"] = {one.name: one.to_dict() for one in self.hierarchies}
        content["totals"] = self._totals_sections() or None
        content["budget"] = self.budget.to_fields() | self.unspent_field()
        content["query"] = [
            query.to_dict(columns, declared_share(query, self.unit))
            for query in (*self.queries, *self.fixed)
            if not query.searched
        ]
        # A canonical plan states what its author chose, and no field that the author left out.
        return {name: value for name, value in content.items() if value is not None}

    def _derived_sections(self, *, lookup: bool) -> dict[str, Section] | None:
        parts = [one for one in self.rows.derived if (one.rule == "lookup") == lookup]
        return {one.name: one.to_dict() for one in parts} or None

    def _column_sections(self) -> dict[str, Section]:
        sections = {column.name: column.to_dict() for column in self.columns}
        sections |= {name: {"type": kind} for name, kind in self.rows.types}
        for name in sections.keys() & set(self.rows.parsed):
            sections[name]["parse"] = True
        for name, zone in self.rows.zones:
            sections[name]["zone"] = zone
        return sections

    @cached_property
    def hash(self) -> str:
        """Return ``"sha256:..."`` of the canonical plan, public keys included."""
        return hash_of(self.canonical())


def hash_of(canonical: Mapping[str, object]) -> str:
    """Return the SHA-256 of a canonical plan as JSON with sorted keys and no blanks."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _error_tables():  # its type is the module's
    from neyman.publishing.planning import error_frame

    return error_frame
