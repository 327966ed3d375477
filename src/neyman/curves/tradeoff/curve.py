"""What the order, symmetry, and group functions need to know about a trade-off function."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Protocol

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.profile import Profile
from neyman.numerics.bound import Bound
from neyman.numerics.relation import Relation


class Curve(Protocol):
    """A trade-off function by its ordered pairs; `Tradeoff` is the one implementation."""

    @property
    def alternatives(self) -> tuple[Composition, ...]:
        """The possible losses, one composition for each possible change of the data."""
        ...

    @property
    def joined(self) -> bool:
        """True if the pairs are merged into one convex curve."""
        ...

    @property
    def neighboring(self) -> Relation:
        """The neighboring relation."""
        ...

    @property
    def ordered(self) -> bool:
        """True if the pairs count only in the order in which they stand."""
        ...

    @property
    def directions(self) -> tuple[Composition, ...]:
        """The losses of every ordered pair."""
        ...

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The privacy profile of every ordered pair, or the one of their convex hull."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """Other libraries whose numbers this curve rests on."""
        ...

    @property
    def method(self) -> str:
        """How the answers are computed, in words."""
        ...

    def part(self, composition: Composition) -> Curve:
        """The curve of one ordered pair alone."""
        ...

    def replace(self, alternatives: Iterable[Composition]) -> Any:
        """The curve of other pairs, under the same relation, unordered and not joined."""
        ...

    def inverse(self) -> Curve:
        """The curve of the reversed pairs."""
        ...

    def delta(self, epsilon: float) -> Bound:
        """The smallest delta that goes with epsilon."""
        ...

    def epsilon(self, delta: float) -> Bound:
        """The smallest epsilon that goes with delta."""
        ...

    def exact_pure(self) -> Fraction | float:
        """Return the pure epsilon as an exact rational, or inf."""
        ...

    def gdp_above(self) -> float:
        """A proven GDP parameter; inf if none is known."""
        ...

    def pure(self) -> Bound:
        """The smallest pure epsilon."""
        ...

    def log_delta(self, epsilon: float) -> Bound:
        """Natural logarithm of delta."""
        ...


class Described(Protocol):
    """Whatever has a trade-off function: a mechanism, a plan, a budget."""

    def tradeoff(self) -> Curve:
        """The trade-off function."""
        ...
