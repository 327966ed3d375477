"""The canonical form of a plan, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from neyman.publishing.plan.column import Section
from neyman.publishing.plan.document import PLAIN_SOURCE
from neyman.publishing.plan.plan_model import PlanModel
from neyman.publishing.plan.query_resolution import declared_share


def canonical(plan: PlanModel) -> Section:
    """Return a plan as JSON types: defaults filled in, numbers as text, public keys inline."""
    columns = {column.name: column for column in plan.columns}
    content: Section = {
        "schema": schema_version(plan),
        "name": plan.name,
        "dataset": plan.dataset,
        "table": plan.table,
        "publisher": plan.publisher,
        "part": plan.part,
        "most_rows": plan.most_rows,
        "noise": plan.noise if plan.rounded else None,
        "where": plan.rows.where,
        "source": plan.source.to_dict() if plan.source != PLAIN_SOURCE else None,
        "consistency": {"method": plan.consistency} if plan.consistency else None,
        "unit": plan.unit.to_dict(),
        "tables": {table.name: table.to_dict() for table in plan.tables} or None,
        "columns": _columns(plan),
    }
    for section, rule in (("derive", False), ("lookup", True)):
        parts = [one for one in plan.rows.derived if (one.rule == "lookup") == rule]
        content[section] = {one.name: one.to_dict() for one in parts} or None
    if plan.hierarchy is not None:
        content["hierarchy"] = {plan.hierarchy.name: plan.hierarchy.to_dict()}
    content["budget"] = plan.budget.to_fields()
    content["query"] = [
        query.to_dict(columns, declared_share(query, plan.unit))
        for query in plan.queries
        if not query.searched
    ]
    # A field that is not given is left out, so that older plans keep their hash.
    return {name: value for name, value in content.items() if value is not None}


def schema_version(plan: PlanModel) -> int:
    """Return the version of a plan's format: 2 if a row without a number can take no part."""
    drops = any(column.integer and column.unknown is None for column in plan.columns)
    return 2 if drops else 1


def hash_of(canonical: Mapping[str, object]) -> str:
    """SHA-256 of a canonical plan as JSON with sorted keys and no blanks."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _columns(plan: PlanModel) -> dict[str, Section]:
    sections = {column.name: column.to_dict() for column in plan.columns}
    sections |= {name: {"type": kind} for name, kind in plan.rows.types}
    for name in sections.keys() & set(plan.rows.parsed):
        sections[name]["parse"] = True
    for name, zone in plan.rows.zones:
        sections[name]["zone"] = zone
    return sections
