"""Describe objects that have a trade-off function.

Type checkers read `Curve` as `Tradeoff`. Modules that `Tradeoff` imports use it only for types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neyman.curves.tradeoff.tradeoff import Tradeoff as Curve


class Described(Protocol):
    """Represent an object that has a trade-off function: a mechanism, a plan, or a budget."""

    def tradeoff(self) -> Curve:
        """Return the trade-off function."""
        ...
