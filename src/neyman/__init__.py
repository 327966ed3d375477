"""Analyze differential privacy as a hypothesis test.

Describe a release. Compute certified bounds on how well the best attacker can test a claim about
one person. Find the least noise that keeps every attacker below a limit. Release tables, and never
exceed the budget.
"""

from __future__ import annotations

from neyman.exports import exports

__version__ = "0.4.0.dev0"

__getattr__, __dir__ = exports(__name__, __file__)
