"""What has a trade-off function.

A type checker takes `Curve` for `Tradeoff`. The files below that class name it for types alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neyman.curves.tradeoff.tradeoff import Tradeoff as Curve


class Described(Protocol):
    """Whatever has a trade-off function: a mechanism, a plan, a budget."""

    def tradeoff(self) -> Curve:
        """Return the trade-off function."""
        ...
