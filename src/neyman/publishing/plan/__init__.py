"""Describe a release plan: what is published, for which privacy unit, within which budget.

`plan_fields` defines the written form, `resolve` reads it, and `plan` is the result. `shifts`
bounds how far one unit can move a table, and `scenarios` how far one attribute can.
"""

from neyman.extras import require

require("plans", "pydantic")

from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.plan import Plan, hash_of

__all__ = ["Entry", "Plan", "PlanError", "hash_of"]
