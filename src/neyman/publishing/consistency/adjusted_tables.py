"""Adjust noisy tables so that they add up. Anyone can repeat this from the noisy tables alone.

The plan decides which tables must add up (`families`). Least squares moves a cell less if its noise
is smaller. Declared totals are taken as true, and the guarantee does not cover them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

import numpy as np

from neyman.numerics.arrays import Array, Floats, Integers
from neyman.publishing.consistency.families import Family, Name, families, without_part
from neyman.publishing.consistency.integer_rounding import rounded_tables
from neyman.publishing.consistency.nonnegative import nonnegative
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import ConsistencyMethod
from neyman.publishing.tables.estimates import standard_error

METHODS = get_args(ConsistencyMethod)
Z90 = 1.6448536269514722
"""A normal variable is within this many standard deviations with probability 90%."""


@dataclass(frozen=True)
class ConsistentTable:
    """Represent one consistent table. Arrays are flat, in declared order.

    Args:
        value: the estimates; int64 for the method "integer", else float64.
        standard_error: the standard error of the least-squares estimate; 0 for an exact value.
        lower, upper: an interval around the least-squares estimate, designed to contain the truth
            with probability at least 90%. It treats the adjusted noise as normal and adds half an
            integer step on each side. For the other methods, it is also cut at 0 (unless true
            values can be negative), and widened to contain ``value``.
    """

    value: Array
    standard_error: Floats
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Consistent:
    """Represent a release's consistent tables of counts and sums.

    Args:
        tables: the tables, by (query, level).
        families: for each family, the names of the tables that add up to each other.
        invariants: the names of declared totals, which the guarantee does not cover.
        left_out: for each table that was not adjusted, the reason.
        residual: for the method "nonnegative" (and "integer", before rounding), the largest
            violation of the optimality conditions by any cell, in units of a cell; 0 for least
            squares.
    """

    method: ConsistencyMethod
    tables: Mapping[Name, ConsistentTable]
    families: tuple[tuple[Name, ...], ...]
    invariants: tuple[Name, ...]
    left_out: Mapping[Name, str]
    residual: float


def consistent_tables(
    plan: Plan,
    noisy: Mapping[tuple[str, str, str], tuple[Integers, Fraction]],
    method: ConsistencyMethod = "least-squares",
) -> Consistent:
    """Return the tables of counts and sums, adjusted to add up, from the published tables alone.

    Least squares minimizes the sum of (x - y)^2 / sigma^2 over all noisy cells y and all x that add
    up. It is unbiased, and no linear unbiased estimate of any cell has a smaller variance.

    "nonnegative" is the nearest such x in the same norm without a negative cell. For any noise, it
    is never farther from the truth in this norm. But it is biased if true cells are near 0: they go
    up, and cells that share a total with them go down. "integer" rounds it to integers that add up.
    Unless the plan has exact totals, each cell of the finest table moves by less than 1, and so
    does each sum of these cells over the places below one place.

    Args:
        noisy: a dict from (query, level, measure) to the noisy integers, flat in declared order,
            and the exact sigma squared of their noise (0 for declared values). It may contain more
            than counts and sums.

    Returns:
        The tables. Standard errors are exact for least squares, if the noise is independent with
        variance sigma^2 or less on each cell. An interval is the least-squares estimate -+ (1.645
        standard errors + 1/2). The 1/2 allows for integer steps of the noise. A family is left out
        if the values of one of its tables add up to more than 2^53 in size, which doubles cannot
        count.

    Raises:
        PlanError: `check_consistency` refuses the plan, before any data are read.
        KeyError: a table of the plan is missing.
    """
    check_consistency(plan, method)
    tables: dict[Name, ConsistentTable] = {}
    left_out = dict(without_part(plan))
    residual = 0.0
    names: list[tuple[Name, ...]] = []
    for family in families(plan):
        pairs = {
            m.name: noisy[*m.name, m.measure]
            if m.total is None
            else (m.total.table.ravel(), Fraction(0))
            for m in family.members
        }
        sizes = (float(np.abs(values.astype(float)).sum()) for values, _ in pairs.values())
        if max(sizes) > 2.0**53:
            left_out |= dict.fromkeys(pairs, "its values add up to more than doubles can count")
            continue
        fitted, rest = _fit_family(family, pairs, method, plan.rounded)
        tables |= fitted
        residual = max(residual, rest)
        names.append(tuple(m.name for m in family.members if m.total is None))
    order = [(query.name, level) for query in plan.queries for level in query.levels]
    declared = {(query.name, level) for query in plan.queries for level, _ in query.public}
    return Consistent(
        method,
        {name: tables[name] for name in order if name in tables},
        tuple(names),
        tuple(name for name in order if name in declared and name in tables),
        {name: left_out[name] for name in order if name in left_out},
        residual,
    )


def check_consistency(plan: Plan, method: str) -> None:
    """Check that a plan's tables can be adjusted to add up. No data are needed.

    Raises:
        PlanError: the method is unknown, the plan has no count or sum, declared totals contradict
            each other, or, for integers, the tables have no finest one.
    """
    problems: list[str] = []
    if method not in METHODS:
        problems.append(f"consistency.method = {method!r}: must be one of {', '.join(METHODS)}")
    groups = families(plan)
    if not groups:
        problems.append("consistency: no query is a count, histogram or sum; leave the section out")
    for family in groups:
        declared = {m.public: m.name for m in family.members if m.public is not None}
        if len(declared) > 1:
            listed = ", ".join(f"{q}.public.{level} = {v}" for v, (q, level) in declared.items())
            problems.append(f"consistency: {listed}: these are one total and must be equal")
        margins = family.margins({m.name: 1.0 for m in family.members})
        finest = margins.finest()
        if method == "integer" and len(finest) > 1:
            names = " and ".join(repr(".".join(family.members[i].name)) for i in finest)
            problems.append(
                f"consistency.method = 'integer': {names} are each a margin of no other table, and "
                "whole numbers need one table of which all others are margins; measure one, or "
                "take 'nonnegative'"
            )
    if problems:
        raise PlanError(problems)


def consistent_variances(plan: Plan, variances: Mapping[Name, float]) -> dict[Name, Floats]:
    """Return the variance of each table's cells after least squares, one number per place.

    Args:
        variances: by (query, level), the variance of the noise on each cell; 0 for declared values.
    """
    by_table: dict[Name, Floats] = {}
    for family in families(plan):
        own = {m.name: variances[m.name] if m.total is None else 0.0 for m in family.members}
        pairs = zip(family.members, family.margins(own).variances, strict=True)
        by_table |= {
            member.name: family.turned(member, after, back=True)
            for member, after in pairs
            if member.total is None
        }
    return by_table


def _fit_family(
    family: Family,
    pairs: Mapping[Name, tuple[Integers, Fraction]],
    method: ConsistencyMethod,
    rounded: bool,
) -> tuple[dict[Name, ConsistentTable], float]:
    variances = {
        name: max(standard_error(noise, rounded=rounded) ** 2, 1e-60) if noise else 0.0
        for name, (_, noise) in pairs.items()
    }
    margins = family.margins(variances)
    values = [family.shaped(m, pairs[m.name][0].astype(np.float64)) for m in family.members]
    least = margins.fit(values)
    estimates: list[Array] = [*least]
    residual = 0.0
    moved = method != "least-squares" and not family.signed
    if moved and any(float(table.min(initial=0.0)) < 0 for table in least):
        positive = nonnegative(margins, values)
        estimates, residual = [*positive.values], positive.residual
    if method == "integer":
        exact = [
            (m, family.shaped(member, member.total.table))
            for m, member in zip(margins.margins, family.members, strict=True)
            if member.total is not None
        ]
        estimates = [*rounded_tables(margins, estimates, exact)]
    tables: dict[Name, ConsistentTable] = {}
    for member, first, estimate, by_place in zip(
        family.members, least, estimates, margins.variances, strict=True
    ):
        error = np.sqrt(by_place)
        half = np.where(error > 0, Z90 * error + 0.5, 0.0)
        half = half.reshape(-1, *(1,) * (first.ndim - 1))
        lower, upper = first - half, first + half
        if moved:
            lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
        if method == "integer":
            # An integer true value in an interval is among the integers of this interval.
            lower, upper = np.ceil(lower - 1e-9), np.floor(upper + 1e-9)
            lower, upper = lower.astype(np.int64), upper.astype(np.int64)
        if method != "least-squares":
            lower, upper = np.minimum(lower, estimate), np.maximum(upper, estimate)
        errors = np.broadcast_to(error.reshape(half.shape), first.shape)
        tables[member.name] = ConsistentTable(
            *(family.flat(member, table) for table in (estimate, errors, lower, upper))
        )
    return tables, residual
