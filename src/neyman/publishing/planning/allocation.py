"""Find the shares of a plan's budget, one per table, that give the least weighted error.

Errors are relative to the largest shift of one unit. The error of a table is the mean over its
cells of variance / squared shift, times the table's weight.

- Without consistency the best shares are proportional to sqrt(weight * number of integer tables),
  by Cauchy-Schwarz.
- With consistency the variances are those after least squares, which are convex in the shares. The
  gradient gives a lower bound [MA-7]. Here it is an estimate, because difference quotients replace
  derivatives.
- For disjoint queries, each case of a change may take at most the whole budget [UN-11]. A weighted
  mean of the cases replaces the worst one, and gives a lower bound on the error as a single case
  does.

Shares are positive multiples of 1/1000 (finer for over 50 tables) that sum to 1 exactly. If none
are better than the plan's by more than the accuracy of the search, the result is the plan's shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.semantics.digits import plain
from neyman.numerics import check
from neyman.publishing.consistency.adjusted_tables import consistent_variances
from neyman.publishing.plan.field_types import LIMITS as DOCUMENT_LIMITS
from neyman.publishing.plan.field_types import suggest
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.accuracy import entries_by_table, table_named

Name = tuple[str, str]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """Limit the search for shares, and set its tolerances."""

    parts: int = 1000  # a share is a multiple of 1 divided by this number
    steps: int = 400
    relative_width: float = 1e-4
    least_share: float = 1e-4  # least share during the search
    error_share: float = 0.01  # smaller changes of the squared error do not justify other shares
    # Tolerance of numbers that are rounded for display: machines differ in their last digits.
    rounding_share: float = 1e-6
    quick_operations: int = 2 * 10**7  # for a waiting user: under half a second


LIMITS = Limits()


@dataclass(frozen=True)
class SharePart:
    """Describe one table's part of the declared shares.

    Args:
        share: exact declared share: the fraction of the budget unless queries are disjoint.
        before: the same fraction in the plan as given.
        error: the standard error of the cells (root of their mean variance) at rho = 1, divided by
            the largest l2 norm of a unit's shift; after least squares if the split is consistent.
        error_before: the same error in the plan as given.
        made_of: the number of integer tables. Each gets an equal part of the share.
    """

    query: str
    level: str
    weight: Fraction
    share: Fraction
    before: Fraction
    error: float
    error_before: float
    made_of: int


@dataclass(frozen=True)
class Split:
    """Represent the best split that the search found.

    Args:
        parts: each table's part, in declared order. With what is unspent, shares sum to 1.
        consistent: True for errors after least squares.
        value, before, equal: the weighted error with these shares, the plan's, and equal ones.
        gap: the largest relative excess of ``value`` above the least possible one (an estimate if
            ``consistent``); infinite if it takes too long to compute.
        cases: the number of cases of a change; 1 unless queries are disjoint.
    """

    parts: tuple[SharePart, ...]
    consistent: bool
    value: float
    before: float
    equal: float
    gap: float
    cases: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the split as JSON types."""
        return {
            "shares": [
                {
                    "table": f"{part.query}.{part.level}",
                    "weight": str(part.weight),
                    "share": str(part.share),
                    "before": str(part.before),
                    "error_ratio": part.error / part.error_before,
                }
                for part in self.parts
            ],
            "consistent": self.consistent,
            "squared_error": self.value,
            "squared_error_before": self.before,
            "squared_error_equal": self.equal,
            "gap": self.gap if math.isfinite(self.gap) else None,
        }

    def standing(self) -> list[str]:
        """Return sentences that say how good the plan's own shares are for the weights."""
        if len(self.parts) == 1:
            return ["There is one table, so no other share is possible."]
        least = self.value / (1 + self.gap)
        saved, most = 1 - self.value / self.before, 1 - least / self.before
        if most < LIMITS.error_share + LIMITS.rounding_share:
            text = "No other shares would lower it by as much as 1%."
        elif saved > LIMITS.error_share - LIMITS.rounding_share:
            text = (
                f"Other shares would lower it by {_up(saved)}% at the same cost: "
                "neyman plan split finds them."
            )
        else:
            upto = f", by at most {_up(most)}%" if math.isfinite(self.gap) else ""
            text = f"Use neyman plan split to check if other shares would lower it{upto}."
        return [
            "The weight of a table, which the plan states, says how much its errors count.",
            f"So counted, the sum of squared errors is {self._beside_equal()}.",
            text,
        ]

    def measured(self, protects: str) -> str:
        """Return a sentence that defines a squared error, for a unit such as "person"."""
        after = " after the tables are made consistent," if self.consistent else ""
        summed = any(part.made_of > 1 for part in self.parts)
        return (
            f"A squared error is the mean over a table’s cells,{after} in units of the most that "
            f"one {protects} can change the table."
            + " A mean or a variance adds up those of the sums and counts in it."
            * summed
        )

    def _beside_equal(self) -> str:
        ratio = self.before / self.equal
        if all(part.before == self.parts[0].before for part in self.parts):
            return "that of equal shares, which these are"
        if ratio > 10**6:
            return "over a million times that of equal shares"
        if ratio > 2 - LIMITS.rounding_share:
            times = f"{math.ceil(10 * ratio - LIMITS.rounding_share) / 10:,.1f}".removesuffix(".0")
            return f"{times} times that of equal shares"
        if abs(1 - ratio) < LIMITS.error_share - LIMITS.rounding_share:
            return "that of equal shares, to less than 1%"
        if ratio > 1:
            return f"{_up(ratio - 1)}% more than with equal shares"
        return (
            f"{math.floor(100 * (1 - ratio) + LIMITS.rounding_share)}% less than with equal shares"
        )

    def explained(self) -> list[str]:
        """Return sentences that say who gets which share, why, and how much error it saves."""
        total = sum((part.weight for part in self.parts), Fraction(0))
        budget = "the budget" if self.cases == 1 else "the declared shares"
        which = "after least squares" if self.consistent else "table by table"
        lines = [
            f"The shares minimize the weighted sum of the tables' mean squared errors, {which}, at "
            "the same guarantee."
        ]
        lines += [
            f"{part.query}.{part.level} gets {_percent(part.share)} of {budget} (before: "
            f"{_percent(part.before)}): its weight is {plain(part.weight)} of {plain(total)}, "
            f"and its standard error becomes {part.error / part.error_before:.2f} times as large."
            for part in sorted(self.parts, key=lambda part: -part.share)
        ]
        for name, other in (("equal shares", self.equal), ("the plan's own shares", self.before)):
            saved = 100 * (1 - self.value / other)
            way = f"falls by {saved:.1f}%" if saved >= 0 else f"rises by {-saved:.1f}%"
            if abs(saved) < 0.05:
                way = "is the same"
            lines.append(f"Compared with {name}, the weighted squared error {way}.")
        return lines


def _percent(share: Fraction) -> str:
    return f"{100 * float(share):.1f}%"


def _up(part: float) -> int:
    """Return the fraction ``part`` in whole percent, rounded up."""
    return math.ceil(100 * part - LIMITS.rounding_share)


def best_split(
    plan: Plan,
    weights: Mapping[str, float | Fraction | str] | None = None,
    *,
    consistent: bool | None = None,
    work: int | None = None,
) -> Split:
    """Return the shares with the least weighted error.

    Args:
        plan: the plan. Its own shares serve only for comparison.
        weights: from 1e-60 to 1e60, by table (see `table_named`), or by query for all of its
            levels. The default is the plan's own weight, or 1.
        consistent: True to minimize the error after least squares; by default as in the plan.
        work: the largest number of places whose variances are computed (about 10^8 per second). By
            default, the search runs to its end. ``gap`` bounds the remaining error.

    Raises:
        ValueError: a weight names no measured table, or a table that has a weight already.
    """
    tables = _measured_tables(plan)
    names = list(tables)
    given = _weights(plan, names, weights or {})
    joint = plan.consistency is not None if consistent is None else consistent
    sums = [sum((entry.share for entry in own), Fraction(0)) for own in tables.values()]
    own, declared = np.array([float(share) for share in sums]), sum(sums, Fraction(0))
    spent = 1 - plan.unspent
    before_shares = [spent * share / declared for share in sums]
    cases = _cases(plan, dict(zip(names, sums, strict=True)))
    many = np.array([len(tables[name]) for name in names], dtype=float)
    weighing = np.array([float(given[name]) for name in names])

    def variances(shares: Floats) -> Floats:
        noise_variances = many / (2 * shares)
        return _after(plan, names, noise_variances) if joint else noise_variances

    def value(shares: Floats) -> float:
        return float(weighing @ variances(shares))

    apart = np.sqrt(weighing * many)
    best, lower = _spend_all(apart, cases), 0.0
    if joint or len(cases) > 1:
        each = (2 * len(names) + 1) * (_places(plan, names) if joint else 1)
        steps = LIMITS.steps if work is None else min(LIMITS.steps, work // each)
        best, lower = _search_shares(value, (own, best), steps, cases)
    else:
        lower = value(best)
    exact = [spent * share for share in _round_shares(best)]
    shares = _spend_all(np.array([float(share) for share in exact]), cases)
    if value(own) <= value(shares) * (1 + LIMITS.relative_width):
        exact, shares = before_shares, own
    after, before = np.sqrt(variances(shares)), np.sqrt(variances(own))
    parts = tuple(
        SharePart(*name, given[name], share, own_share, float(e), float(b), len(tables[name]))
        for name, share, own_share, e, b in zip(
            names, exact, before_shares, after, before, strict=True
        )
    )
    least = value(shares)
    equal = value(_spend_all(np.full(len(names), 1 / len(names)), cases))
    gap = max(0.0, least / lower - 1) if lower else math.inf
    return Split(parts, joint, least, value(own), equal, gap, len(cases))


def _measured_tables(plan: Plan) -> Mapping[Name, Sequence[Entry]]:
    if plan.has_detail:
        raise ValueError(
            "a query with detail: how much its first counts should take depends on the thresholds, "
            "and no shares are known to be best; choose your own"
        )
    tables = {name: own for name, own in entries_by_table(plan).items() if own[0].public is None}
    if not tables:
        raise ValueError("plan: all of its tables are declared, and none gets a share")
    return tables


def _spend_all(shares: Floats, cases: Floats) -> Floats:
    """Scale shares so that the largest entry of ``cases @ shares`` is 1, the whole budget."""
    return shares / float((cases @ shares).max())


def _cases(plan: Plan, shares: Mapping[Name, Fraction]) -> Floats:
    """Return the fraction of each table's share (column) that each case of a change (row) takes.

    What is unspent is a part of all shares. So it adds the same fraction of each one to each case.
    """
    entries = [entry for entry in plan.entries() if entry.public is None]
    left = plan.left / sum(shares.values(), Fraction(0))
    rows: list[list[Fraction]] = []
    for case in plan.every_case(entries, crossing=plan.unit.neighboring == "replace-one"):
        taken = dict.fromkeys(shares, Fraction(0))
        for entry in case:
            taken[entry.query, entry.level] += entry.share
        rows.append([taken[name] / share + left for name, share in shares.items()])
    return np.unique(np.array(rows, dtype=float), axis=0)


def _places(plan: Plan, names: list[Name]) -> int:
    """Return the number of places to visit to compute the variances of all tables once."""
    queries = ((plan.query(name), level) for name, level in names)
    # One more tree takes as long as this number of places.
    return sum(
        2 ** len(query.by) * (plan.shape(query, level)[0] + 3000) for query, level in queries
    )


def _weights(
    plan: Plan, names: list[Name], weights: Mapping[str, float | Fraction | str]
) -> dict[Name, Fraction]:
    queries = [query.name for query in plan.queries]
    by_table: dict[Name, Fraction] = {}
    for text, value in weights.items():
        weight = check.exact(f"weight of {text!r}", value)
        if weight <= 0:
            raise ValueError(f"weight of {text!r} = {value!r} must be above 0")
        if not Fraction(1, DOCUMENT_LIMITS.error_weight) <= weight <= DOCUMENT_LIMITS.error_weight:
            raise ValueError(f"weight of {text!r} = {value!r} must be between 1e-60 and 1e60")
        try:
            tables = [table_named(plan, text)]
        except ValueError:
            if text not in queries:
                known = [f"{name}.{level}" for name, level in names]
                raise ValueError(
                    f"weight of {text!r}: there is no such table or query; "
                    f"{suggest(text, [*known, *queries])}"
                ) from None
            tables = [name for name in names if name[0] == text]
        for table in tables:
            if table not in names:
                raise ValueError(f"weight of {text!r}: it is declared and gets no share")
            if table in by_table:
                raise ValueError(f"weight of {text!r}: {'.'.join(table)} has a weight already")
            by_table[table] = weight
    own = {(query.name, level): w for query in plan.queries for level, w in query.weight}
    return {name: by_table.get(name, own.get(name, Fraction(1))) for name in names}


def _after(plan: Plan, names: list[Name], alone: Floats) -> Floats:
    """Return each table's mean variance after least squares, given the variances ``alone`` before.

    All are divided by the table's squared shift.
    """
    squared = {(e.query, e.level): float(e.squared or 1) for e in plan.entries()}
    noise = dict.fromkeys(squared, 0.0)
    noise |= {n: v * squared[n] for n, v in zip(names, alone.tolist(), strict=True)}
    variances = consistent_variances(plan, noise)
    return np.array(
        [
            float(np.mean(variances[name])) / squared[name] if name in variances else v
            for name, v in zip(names, alone.tolist(), strict=True)
        ]
    )


def _search_shares(
    value: Callable[[Floats], float], starts: Iterable[Floats], steps: int, cases: Floats
) -> tuple[Floats, float]:
    """Minimize ``value``. Return the best shares found, and a lower bound on the minimum.

    The bound is 0 after no steps. No entry of ``cases @ shares`` may exceed 1. ``value`` is convex
    and inversely proportional to the shares. So for any allowed x and y, value(y) >= value(x)^2 /
    sum(slope * y), with slope = -gradient at x. Let p = weights @ cases, with weights of sum 1.
    Then sum(p * y) <= 1, so sum(slope * y) <= max(slope / p).
    """
    weights = np.full(len(cases), 1 / len(cases))
    floored = (_spend_all(np.maximum(start, LIMITS.least_share), cases) for start in starts)
    first = itemgetter(0)
    now, shares = min(((value(s), s) for s in floored), key=first)
    best, lower = (now, shares), 0.0
    difference_step = 1e-4  # relative step of the difference quotients
    for _ in range(steps):
        slope = np.empty(len(shares))
        for i, share in enumerate(shares):
            moved = shares.copy()
            moved[i] = share * (1 + difference_step)
            up = value(moved)
            moved[i] = share * (1 - difference_step)
            slope[i] = (value(moved) - up) / (2 * share * difference_step)
        prices = weights @ cases
        lower = max(lower, now**2 / float((slope / prices).max()))
        if best[0] <= lower * (1 + LIMITS.relative_width):
            break
        shares = _spend_all(shares * np.sqrt(np.maximum(slope, 0.0) / prices), cases)
        shares = _spend_all(np.maximum(shares, LIMITS.least_share), cases)
        weights = weights * (cases @ shares)
        weights /= weights.sum()
        now = value(shares)
        best = min(best, (now, shares), key=first)
    return best[1], lower


def _round_shares(shares: Floats) -> list[Fraction]:
    """Round shares to multiples of 1/1000 (finer for many tables), each above 0, with sum 1."""
    parts = LIMITS.parts
    while parts < 20 * len(shares):
        parts *= 10
    spare = parts - len(shares)
    wanted = shares / shares.sum() * parts
    over = np.maximum(wanted - 1, 0.0)
    over *= spare / over.sum() if over.sum() else 0.0
    floors = np.floor(over).astype(int)
    order = np.argsort(floors - over, kind="stable")
    floors[order[: spare - int(floors.sum())]] += 1
    return [Fraction(1 + int(n), parts) for n in floors]
