"""Compute a receipt, which states what a release may reveal, without the data."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr  # pyright: ignore[reportMissingTypeStubs]

from neyman.accounting.charges import charge
from neyman.accounting.semantics.bayes import posterior_ratios
from neyman.accounting.semantics.budget import PlanBudget, within_limit
from neyman.curves.tradeoff.guarantees import zcdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics.bound import Bound, directed
from neyman.numerics.operations import LIMITS as OPERATIONS_LIMITS
from neyman.numerics.operations import question_meter
from neyman.numerics.roots import bisect
from neyman.publishing.plan.measurement import Calibrated, Entry, listed
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.scenarios import concerning, moved, moves_total, usual
from neyman.publishing.release import receipt_format as parts
from neyman.publishing.tables.estimates import half_width, rank_error, standard_error
from neyman.publishing.tables.key_selection import threshold

DELTAS = (1e-3, 1e-6, 1e-9, 1e-12)
LEVELS = (0.01, 0.05, 0.10)
NEAR = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2)
EPSILONS = (0.693, 2.302, 4.605)
"""Logarithms of the factors 2, 10, and 100, rounded down.

If a ratio exceeds the factor, its logarithm exceeds the entry.
"""
BELIEVERS = ("arbitrary-prior", "knows-the-rest")


def draft(
    plan: Plan, calibrated: Calibrated, currency: str, *, throwaway: bool = False
) -> parts.Receipt:
    """Return the receipt that follows from the plan, without its files and the ledger's entry."""
    mechanism = plan.mechanism()
    listed = mechanism_list(plan, calibrated)
    charged, charged_delta = charge(new_part(plan, listed, mechanism), currency)
    receipt = parts.Receipt(
        schema=parts.SCHEMA,
        plan=plan.canonical(),
        plan_hash=plan.hash,
        dataset=plan.dataset,
        unit=parts.ReceiptUnit(protects=plan.unit.protects, rows=plan.unit_rows),
        neighboring=plan.unit.neighboring,
        mechanisms=listed,
        guarantee=guarantee(mechanism, plan, plan.scale),
        budget=plan.budget,
        tables=(),
        ledger=parts.LedgerPart.of(
            plan.dataset, currency, charged, charged_delta, throwaway=throwaway
        ).model_copy(update={"date": ""}),
        versions=versions(),
    )
    more = {"mechanism": mechanism.to_dict()} if plan.disjoint else {}
    return receipt.model_copy(update=more)


def new_part(plan: Plan, listed: Sequence[parts.MechanismPart], mechanism: Mechanism) -> Mechanism:
    """Return what a release is charged for: its mechanism without copied tables."""
    if not (plan.corrects and plan.corrects.copied):
        return mechanism
    return composed((part.mechanism, part.count) for part in computed(plan, listed))


def computed(plan: Plan, listed: Sequence[parts.MechanismPart]) -> tuple[parts.MechanismPart, ...]:
    """Return the parts of the tables that are computed from the data, and not copied."""
    copied = plan.corrects.copied if plan.corrects else ()
    return tuple(part for part in listed if part.query not in copied)


def guarantee(
    mechanism: Mechanism, plan: Plan | None = None, scale: Fraction | None = None
) -> parts.Guarantee:
    """Compute what an attacker can learn from the release. Each number has both certified bounds.

    If the budget admits the mechanism, no number is above the budget's. A plan adds three parts.
    ``zcdp_route`` is the noise that accounting by zCDP alone needs for the same guarantee.
    ``posterior`` is the probability that a posterior exceeds its counterfactual (only under
    replace-one). ``scenarios`` has the same numbers for some attributes of one record. For
    discovered keys, ``outright`` has the delta that a key is revealed, and the rho of everything
    else. ``scale`` is 1/rho of the plan, which sets the noise. The mechanism's own rho can be
    slightly smaller, because drawn quantiles cost less than their share.
    """
    replaced = plan is not None and plan.unit.neighboring == "replace-one"
    answers = _answers(mechanism, replaced)
    met = plan.budget if plan is not None and plan.admits(mechanism) else None
    known = {mechanism: answers.findings} if replaced else {}
    rho, outright = charge(mechanism, "zcdp")
    total = rho if plan is None or scale is None else rho + plan.left / scale
    route = plan and not outright and _zcdp_route(plan.budget, total)
    part = parts.OutrightPart(rho=str(rho), delta=str(outright))
    more: dict[str, Any] = {"outright": part} if outright else {}
    more |= {"held": plan.held} if plan and plan.totals else {}
    return parts.Guarantee(
        epsilon=tuple(
            parts.EpsilonPoint(delta=d, **_ends(within_limit(met, "epsilon", epsilon, d)))
            for d, epsilon in zip(DELTAS, answers.epsilons, strict=True)
        ),
        mu=parts.Ends(**_ends(within_limit(met, "mu", answers.mu))),
        rho=parts.Ends(**_ends(within_limit(met, "rho", answers.rho))),
        total_variation=parts.Ends(**_ends(answers.total_variation)),
        power=_points(
            (a, within_limit(met, "power", power, a))
            for a, power in zip(LEVELS, answers.powers, strict=True)
        ),
        curve=answers.curve,
        zcdp_route=route or None,
        posterior=answers.posterior,
        scenarios=tuple(
            scenario(plan, concerning(plan, *asked, scale), *asked, known=known)
            for asked in usual(plan)
        )
        if plan and scale
        else (),
        **more,
    )


class _Answers(NamedTuple):
    """Hold bounds on a mechanism's guarantee, at the deltas and levels of a receipt."""

    curve: tuple[parts.PowerPoint, ...]
    epsilons: tuple[Bound, ...]
    mu: Bound
    rho: Bound
    total_variation: Bound
    powers: tuple[Bound, ...]
    posterior: tuple[parts.PosteriorPoint, ...]
    near: tuple[parts.PowerPoint, ...]

    @property
    def findings(self) -> dict[str, Any]:
        """Return the fields of a `Scenario` that moves every table as far as any change can."""
        return {
            "rho": parts.Ends(**_ends(self.rho)),
            "power": _points(zip(LEVELS, self.powers, strict=True)),
            "curve": self.near,
            "posterior": self.posterior,
        }


@lru_cache(maxsize=16)
def _answers(mechanism: Mechanism, replaced: bool) -> _Answers:
    """Compute bounds on a guarantee, once for both a run and a verification of one release.

    ``replaced`` is True under replace-one, which adds bounds on posteriors.
    """
    with question_meter(OPERATIONS_LIMITS.batches):  # one question: its parts share their engines
        curve = mechanism.tradeoff()
        # Levels are dense at both ends, since the curve is steep there.
        levels = ndtr(np.linspace(-3.75, 3.75, 60)).tolist()
        powers = dict(zip(asked := [*LEVELS, *NEAR, *levels], curve.powers(asked), strict=True))
        return _Answers(
            _points((level, powers[level]) for level in levels),
            tuple(curve.epsilon(delta=d) for d in DELTAS),
            curve.gdp(),
            curve.zcdp(),
            curve.advantage(),
            tuple(powers[level] for level in LEVELS),
            _posterior(curve) if replaced else (),
            _points((level, powers[level]) for level in NEAR),
        )


def _points(powers: Iterable[tuple[float, Bound]]) -> tuple[parts.PowerPoint, ...]:
    return tuple(parts.PowerPoint(level=level, **_ends(power)) for level, power in powers)


def scenario(
    plan: Plan,
    mechanism: Mechanism,
    attributes: Sequence[str],
    within: str | None,
    *,
    known: Mapping[Mechanism, Mapping[str, Any]] | None = None,
) -> parts.Scenario:
    """Return a scenario as stored in the receipt.

    ``known`` has findings by mechanism, which are not computed again.
    """
    asked = tuple(attributes)
    content = dict((known or {}).get(mechanism) or _findings(mechanism))
    if moves_total(plan, asked, within):
        content["no_limit"] = True
    entries = moved(plan, asked, within)
    tables = tuple(dict.fromkeys(f"{entry.query}.{entry.level}" for entry in entries))
    return parts.Scenario(attributes=asked, within=within, tables=tables, **content)


@lru_cache(maxsize=64)  # with unit ids, most attributes move the same tables
def _findings(mechanism: Mechanism) -> Mapping[str, Any]:
    with question_meter(OPERATIONS_LIMITS.batches):
        curve = mechanism.tradeoff()
        levels = (*LEVELS, *NEAR)
        points = _points(zip(levels, curve.powers(levels), strict=True))
        return {
            "rho": parts.Ends(**_ends(curve.zcdp())),
            "power": points[: len(LEVELS)],
            "curve": points[len(LEVELS) :],
            "posterior": _posterior(curve),
        }


def _posterior(curve: Tradeoff) -> tuple[parts.PosteriorPoint, ...]:
    """Bound the probability that a posterior exceeds e^epsilon times its counterfactual.

    The counterfactual is the posterior if a draw from the attacker's prediction replaces the
    target's record. Each attacker of `BELIEVERS` has one bound per epsilon of `EPSILONS`.
    """
    return tuple(
        parts.PosteriorPoint(attacker=attacker, epsilon=epsilon, **_ends(bound))
        for attacker in BELIEVERS
        for epsilon, bound in zip(
            EPSILONS, posterior_ratios(curve, EPSILONS, attacker), strict=True
        )
    )


def _ends(bound: Bound) -> dict[str, Any]:
    return {"lower": _json_number(bound.lower), "upper": _json_number(bound.upper)}


def _json_number(x: float) -> float | str:
    return float(x) if math.isfinite(x) else "inf" if x > 0 else "-inf"


def _zcdp_route(budget: PlanBudget, own: Fraction) -> parts.RoutePart | None:
    """Return the largest rho that alone implies the budget's guarantee, and the noise it needs.

    ``own`` is the rho of the release and of what it leaves, for comparison. zCDP implies no GDP, so
    a budget in mu has no such rho: return None.
    """
    if not budget.claim:
        return None
    low, high = own / 4096, own * 2
    if not _meets_zcdp(budget, low):
        return None
    low, _ = bisect(
        lambda rho: _meets_zcdp(budget, rho), low, high, tolerance=Fraction(1, 10**5 + 1)
    )
    rho = Fraction(directed(float(low), 6, up=False))
    ratio = round(float(own / low), 4)
    return parts.RoutePart(rho=str(rho), variance_ratio=ratio, promise=budget.claim)


def _meets_zcdp(budget: PlanBudget, rho: Fraction) -> bool:
    """Return True if rho-zCDP alone implies the budget's guarantee."""
    return budget.claimed_by(zcdp(Fraction(float(rho))))


def mechanism_list(plan: Plan, calibrated: Calibrated) -> tuple[parts.MechanismPart, ...]:
    """Return each entry of the plan with its exact noise, as in the receipt and the ledger."""
    curves = listed(entry for entry, _ in calibrated)
    return tuple(
        _mechanism_part(plan, entry, sigma_squared, curves) for entry, sigma_squared in calibrated
    )


def _mechanism_part(
    plan: Plan, entry: Entry, sigma_squared: Fraction, curves: bool
) -> parts.MechanismPart:
    content: dict[str, Any] = {
        "query": entry.query,
        "level": entry.level,
        "measure": entry.measure,
        "count": 1,
        "share": str(entry.share),
        "cells": entry.cells,
    }
    if entry.public is not None:
        zero: dict[str, Any] = {
            "zcdp": "0",
            "standard_error": 0,
            "half_width_90": 0,
            "mechanism": None,
        }
        return parts.MechanismPart(**content, **zero, public=True)
    error = standard_error(sigma_squared, rounded=entry.rounded)
    half = half_width(sigma_squared, rounded=entry.rounded)
    if entry.measure == "rank":
        error, half = rank_error(plan.query(entry.query), sigma_squared)
    content |= {
        "zcdp": str(Fraction(entry.squared) / (2 * sigma_squared)),
        "standard_error": error,
        "half_width_90": half,
        "mechanism": entry.noise(sigma_squared, listed=curves).to_dict(),
    }
    if entry.delta is not None:
        content |= {
            "keys": entry.keys,
            "delta": str(entry.delta),
            "threshold": threshold(sigma_squared, entry.delta, rounded=entry.rounded),
            "outright": str(entry.failure),
        }
    return parts.MechanismPart(**content)


def mechanism_of(receipt: parts.Receipt) -> Mechanism:
    """Return the receipt's mechanism if stated, else the composition of its tables' mechanisms."""
    if receipt.mechanism is not None:
        return Mechanism.from_dict(receipt.mechanism)
    return composed((part.mechanism, part.count) for part in receipt.mechanisms)


def composed(parts: Iterable[tuple[Mapping[str, Any] | None, int]]) -> Mechanism:
    """Compose mechanisms, given as JSON types (None for a declared table) with a count each."""
    mechanisms = (Mechanism.from_dict(mechanism) * count for mechanism, count in parts if mechanism)
    return reduce(add, mechanisms, Mechanism.nothing())


def versions() -> dict[str, str]:
    """Return the versions of all software that affects the numbers."""
    names = ("numpy", "scipy", "ibis-framework", "duckdb", "pyarrow")
    versions_of = {"neyman": _version("neyman"), "python": platform.python_version()}
    return versions_of | {name: _version(name) for name in names}


_version = cache(importlib.metadata.version)
"""Return the version of an installed package. Cached, because each call parses a file."""
