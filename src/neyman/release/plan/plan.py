"""A release plan: what will be published, from which public keys, and what it may reveal."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neyman.release.plan.document import (
    BudgetPart,
    PlanDocument,
    PlanError,
    UnitPart,
    parse,
    suggest,
)
from neyman.release.plan.hierarchy import Hierarchy
from neyman.release.plan.resolve import (
    WHOLE,
    Column,
    Query,
    budget_fields,
    exact_text,
    resolve,
    short_text,
)
from neyman.release.plan.shifts import shift_vectors, squared_norm

if TYPE_CHECKING:
    from neyman.mechanisms.algebra import Mechanism

__all__ = ["Entry", "Plan", "PlanError"]


@dataclass(frozen=True)
class Entry:
    """One table of integers to publish: a query at a level, or one of the two parts of a mean.

    Args:
        query, level: which table.
        measure: "count" or "sum"; a mean has an entry of each.
        cells: number of cells.
        share: exact part of the whole budget; 0 where the value is declared.
        shifts: the maximal absolute shifts when one unit changes.
        public: the declared value of a table that is not computed from data.
    """

    query: str
    level: str
    measure: str
    cells: int
    share: Fraction
    shifts: tuple[tuple[int, ...], ...]
    public: int | None = None

    @property
    def squared(self) -> int:
        """The largest squared l2 norm of a shift."""
        return squared_norm(self.shifts) if self.shifts else 0

    def sigma_squared(self, scale: Fraction) -> Fraction:
        """squared * scale / (2 share): at a ``scale`` of 1/rho the entry spends share * rho."""
        return self.squared * scale / (2 * self.share)


@dataclass(frozen=True)
class Plan:
    """A release plan, read and checked; it has no noise until it is calibrated.

    Made by ``Plan.load(path)`` or ``Plan.from_dict(data)``.
    """

    name: str
    dataset: str
    table: str
    unit: UnitPart
    budget: BudgetPart
    columns: tuple[Column, ...]
    hierarchy: Hierarchy | None
    queries: tuple[Query, ...]

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a TOML file; numbers are read as exact decimals.

        Raises:
            PlanError: the file cannot be read, or what it says does not make a plan.
        """
        path = Path(path)
        try:
            text = path.read_bytes().decode("utf-8-sig")
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
        """The plan in a dictionary of the TOML file's shape, or of ``canonical()``.

        Args:
            data: the sections; a float counts as the decimal it prints as.
            folder: what the path of a hierarchy's keys is relative to.

        Raises:
            PlanError: with every problem found.
        """
        document = parse(data)
        columns, hierarchy, queries = resolve(document, Path(folder) if folder else None)
        return cls(
            document.name,
            document.dataset,
            document.table,
            document.unit,
            document.budget,
            columns,
            hierarchy,
            queries,
        )

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON schema of a plan."""
        return PlanDocument.model_json_schema(by_alias=True)

    def column(self, name: str) -> Column:
        """The declared column of that name."""
        return next(column for column in self.columns if column.name == name)

    def query(self, name: str) -> Query:
        """The query of that name.

        Raises:
            KeyError: there is none.
        """
        for query in self.queries:
            if query.name == name:
                return query
        raise KeyError(
            f"no query {name!r}; {suggest(name, [query.name for query in self.queries])}"
        )

    def key_columns(self, query: Query, level: str) -> tuple[str, ...]:
        """Names of a table's key columns: the levels down to its own, then ``by``."""
        above: tuple[str, ...] = ()
        if self.hierarchy and level != WHOLE:
            above = self.hierarchy.levels[: self.hierarchy.depth(level) + 1]
        return (*above, *query.by)

    def shape(self, query: Query, level: str) -> tuple[int, ...]:
        """A table's size: places of the level (1 without levels), then keys of each ``by``."""
        by_level = self.hierarchy and query.at
        places = len(self.hierarchy.paths(level)) if self.hierarchy and by_level else 1
        return (places, *(len(self.column(name).keys) for name in query.by))

    def entries(self) -> tuple[Entry, ...]:
        """Every table of integers that the plan publishes, in declared order."""
        return self._entries

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        found = []
        for query in self.queries:
            split, public = dict(query.split), dict(query.public)
            for level in query.levels:
                cells = math.prod(self.shape(query, level))
                if level in public:
                    declared = Entry(query.name, level, "count", cells, Fraction(0), ())
                    found.append(Entry(**{**vars(declared), "public": public[level]}))
                    continue
                parts = {"mean": ("sum", "count")}.get(query.measure, (query.measure,))
                for measure in parts:
                    low, high = query.clip if measure == "sum" and query.clip else (0, 1)
                    shifts = shift_vectors(
                        cells=cells,
                        neighboring=self.unit.neighboring,
                        rows=self.unit.rows,
                        low=low,
                        high=high,
                    )
                    share = query.share * split[level] / len(parts)
                    found.append(Entry(query.name, level, measure, cells, share, shifts))
        return tuple(found)

    def at_scale(self, scale: Fraction) -> Mechanism:
        """The plan's mechanism with sigma^2 = squared * scale / (2 share) in each entry.

        ``scale`` is 1/rho, where rho is what the plan spends in zCDP.
        """
        from neyman.mechanisms.additive import DiscreteGaussian

        parts = [
            DiscreteGaussian(sigma_squared=entry.sigma_squared(scale), sensitivity=entry.shifts)
            for entry in self.entries()
            if entry.public is None
        ]
        whole: Mechanism = parts[0]
        for part in parts[1:]:
            whole = whole + part
        return whole

    def mechanism(self, scale: Fraction | None = None) -> Mechanism:
        """The mechanism that the plan comes to, with the least noise that the budget admits.

        Args:
            scale: 1/rho in place of the calibrated one.
        """
        return self._calibrated if scale is None else self.at_scale(scale)

    def concerning(self, *attributes: str, within: str | None = None) -> Mechanism:
        """What the release tells of some attributes of one record: the tables they can move.

        ``plan.concerning("race").tradeoff()`` is what an attacker can learn of a person's race who
        knows all else of the person; ``plan.concerning("county", within="state")`` of which county
        of a state; ``plan.concerning("race", "county", within="state")`` of both together. The
        noise is that of `mechanism()`.

        The neighbors are two data sets in which one record differs in these attributes alone:
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
        from neyman.release.plan.scenarios import concerning

        _ = self._calibrated  # refuses noise that cannot be drawn
        return concerning(self, attributes, within, self.scale)

    @cached_property
    def _calibrated(self) -> Mechanism:
        with self._told_by_budget():
            return self.at_scale(self.scale)

    @contextmanager
    def _told_by_budget(self) -> Iterator[None]:
        """What cannot be met is told by the plan's own fields."""
        try:
            yield
        except PlanError:
            raise
        except (ValueError, ArithmeticError):
            numbers = budget_fields(self.budget)
            told = " and ".join(f"budget.{n} = {short_text(v)}" for n, v in numbers.items())
            raise PlanError(
                [
                    f"{told}: no noise that can be drawn (sigma^2 from 1e-4 to 1e30) just meets it "
                    "with these shares and clips; take a less extreme budget"
                ]
            ) from None

    @cached_property
    def scale(self) -> Fraction:
        """1/rho of the calibrated plan: exact for a budget in zCDP, else the least certified."""
        numbers = budget_fields(self.budget)
        if "zcdp" in numbers:
            return 1 / numbers["zcdp"]
        from neyman.accounting.calibrate import calibrate_exact

        with self._told_by_budget():
            return calibrate_exact(self.at_scale, self.target)

    @cached_property
    def target(self) -> Any:
        """The budget as something that admits mechanisms or refuses them."""
        from neyman.accounting.target import at_most
        from neyman.core.families import approximate, gdp, zcdp

        numbers = budget_fields(self.budget)
        if "zcdp" in numbers:
            return zcdp(numbers["zcdp"])
        if "gdp" in numbers:
            return gdp(_below(numbers["gdp"]))
        if "power" in numbers:
            return at_most(power=numbers["power"], level=numbers["level"])
        return approximate(numbers["epsilon"], _below(numbers["delta"]))

    def admits(self, mechanism: Mechanism) -> bool:
        """Whether the budget certainly admits a mechanism; one in zCDP is compared exactly."""
        numbers = budget_fields(self.budget)
        if "zcdp" in numbers:
            return mechanism.rho() <= numbers["zcdp"]
        return bool(self.target.admits(mechanism))

    def calibrated(self) -> tuple[tuple[Entry, Fraction], ...]:
        """Every entry with its exact sigma squared (0 where the value is declared)."""
        _ = self._calibrated  # refuses noise that cannot be drawn
        return tuple(
            (entry, Fraction(0) if entry.public is not None else entry.sigma_squared(self.scale))
            for entry in self.entries()
        )

    def budget_dict(self) -> dict[str, str]:
        """The budget as its kind and its exact numbers in text."""
        numbers = {name: exact_text(value) for name, value in budget_fields(self.budget).items()}
        if "zcdp" in numbers:
            return {"kind": "zcdp", "rho": numbers["zcdp"]}
        if "gdp" in numbers:
            return {"kind": "gdp", "mu": numbers["gdp"]}
        return {"kind": "at_most" if "power" in numbers else "approximate", **numbers}

    def canonical(self) -> dict[str, Any]:
        """The plan in JSON types: defaults written out, exact numbers as text, public keys inline.

        ``Plan.from_dict(plan.canonical())`` is the same plan, with the same hash.
        """
        found: dict[str, Any] = {
            "schema": 1,
            "name": self.name,
            "dataset": self.dataset,
            "table": self.table,
            "unit": self.unit.model_dump(exclude_none=True),
            "columns": {column.name: _column_dict(column) for column in self.columns},
        }
        if self.hierarchy:
            rows, unknown = self.hierarchy.rows, self.hierarchy.unknown
            found["hierarchy"] = {
                self.hierarchy.name: {
                    "levels": list(self.hierarchy.levels),
                    "keys": [list(row) for row in rows],
                    "unknown": "drop" if unknown is None else list(rows[unknown]),
                }
            }
        numbers = budget_fields(self.budget)
        found["budget"] = {name: exact_text(value) for name, value in numbers.items()}
        found["query"] = [_query_dict(query) for query in self.queries]
        return found

    @cached_property
    def hash(self) -> str:
        """``"sha256:..."`` of the canonical plan, public keys included."""
        return hash_of(self.canonical())


def _below(value: Fraction) -> float:
    """The largest double that is not above an exact number."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)


def hash_of(canonical: Mapping[str, Any]) -> str:
    """SHA-256 of a canonical plan as JSON with sorted keys and no blanks."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _column_dict(column: Column) -> dict[str, Any]:
    if column.integer:
        return {"integer": True, "unknown": column.unknown}
    unknown = "drop" if column.unknown is None else column.keys[column.unknown]
    return {"keys": list(column.keys), "unknown": unknown}


def _query_dict(query: Query) -> dict[str, Any]:
    found: dict[str, Any] = {"name": query.name, "measure": query.measure}
    if query.column is not None and query.clip is not None:
        found |= {"column": query.column, "clip": list(query.clip)}
    found |= {"by": list(query.by), "at": list(query.at)}
    if query.split:
        found["share"] = str(query.share)
        found["split"] = {level: str(part) for level, part in query.split}
    if query.public:
        found["public"] = dict(query.public)
    return found
