"""What a release plan may say, and what it comes to: tables, shifts, noise.

Public: `Plan`, `Entry`, `PlanError`. The written form is in document, its reading in resolve and
measured (the numbers of one query), what comes of it in query, public places in hierarchy; entry is
one table of integers with its noise; what may change when one unit does is in shifts, one attribute
at a time in scenarios.
"""

from neyman.plan.document import PlanError
from neyman.plan.measurement import Entry
from neyman.plan.plan import Plan, hash_of

__all__ = ["Entry", "Plan", "PlanError", "hash_of"]
