"""Search for counterexamples to axioms of a new privacy definition, over small channels.

A channel is a matrix of probabilities with one row per dataset and one column per output. A
definition accepts or rejects a channel. Kifer and Lin require two axioms: if a channel satisfies
the definition, so does every function of its output. If two channels satisfy it, so does a random
choice between them. Composition states what two releases satisfy together. A search enumerates
channels with small denominators, then draws random channels, in exact rationals. A counterexample
disproves the property. A search without one proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from neyman.numerics import check
from neyman.numerics.arrays import generator_of

Channel = tuple[tuple[Fraction, ...], ...]
"""One row per dataset, one column per output. Each row has sum 1."""

Definition = Callable[[Channel], bool]


@dataclass(frozen=True)
class Limits:
    """Limit the numbers and sizes of the channels that a search tries."""

    denominator: int = 24  # largest denominator of a random row
    maps: int = 256  # deterministic garblings; if there are more, random ones
    channels: int = 10**6
    datasets: int = 8
    outputs: int = 6


LIMITS = Limits()
ENUMERATED = (1, 2, 3, 4, 5, 6)  # denominators of the enumerated channels
ZERO, HALF, ONE = Fraction(0), Fraction(1, 2), Fraction(1)


@dataclass(frozen=True, repr=False)
class Counterexample:
    """Represent channels that satisfy a definition, and a derived channel that does not.

    Args:
        satisfied: the channels that satisfy the definition.
        violated: the derived channel.
        step: how the violated channel is derived.
        garbling: the channel that processes the output, with one row per output that it processes;
            None for other axioms.
    """

    satisfied: tuple[Channel, ...]
    violated: Channel
    step: str
    garbling: Channel | None = None

    def __repr__(self) -> str:
        named = [("satisfies", channel) for channel in self.satisfied]
        if self.garbling is not None:
            named.append((self.step, self.garbling))
        named.append(("does not" if self.garbling else f"{self.step}: does not", self.violated))
        return "\n".join(f"{name}:\n{_text(channel)}" for name, channel in named)


@dataclass(frozen=True, repr=False)
class AxiomSearch:
    """Represent the result of a search for a counterexample.

    Args:
        axiom: "post-processing", "convexity", or "composition".
        channels: number of tested channels.
        satisfied: number of channels that satisfy the definition.
        checks: number of derived channels tested.
        counterexample: the first one, or None. None proves nothing.
    """

    axiom: str
    channels: int
    satisfied: int
    checks: int
    counterexample: Counterexample | None

    def __repr__(self) -> str:
        asked = f"among {self.channels} channels, {self.satisfied} of which satisfy the definition"
        if self.counterexample is None:
            return f"<{self.axiom}: no counterexample {asked}; {self.checks} checks, no proof>"
        return f"<{self.axiom}: a counterexample {asked}>\n{self.counterexample!r}"


@dataclass
class _AxiomSearch:
    axiom: str
    datasets: int
    outputs: int
    most: int
    generator: np.random.Generator
    asked: int = 0
    satisfied: int = 0
    checks: int = 0
    earlier_channels: list[Channel] = field(default_factory=list[Channel])

    @classmethod
    def of(
        cls, axiom: str, size: tuple[int, int], channels: int, generator: np.random.Generator | None
    ) -> _AxiomSearch:
        datasets, outputs = (
            check.integer(name, value, 2)
            for name, value in zip(("datasets", "outputs"), size, strict=True)
        )
        most = check.integer("channels", channels, 1)
        for name, number, limit in (
            ("datasets", datasets, LIMITS.datasets),
            ("outputs", outputs, LIMITS.outputs),
            ("channels", most, LIMITS.channels),
        ):
            if number > limit:
                raise ValueError(f"{name} = {number} must be at most {limit}")
        # Seed without a generator: a search is no release, and repeats.
        return cls(axiom, datasets, outputs, most, generator_of(generator, 1))

    def result(self, counterexample: Counterexample | None = None) -> AxiomSearch:
        return AxiomSearch(self.axiom, self.asked, self.satisfied, self.checks, counterexample)

    def channels(self) -> Iterator[Channel]:
        """Yield up to half of the channels by enumeration. Then yield random channels."""
        for channel in itertools.islice(self._small_channels(), self.most // 2):
            self.asked += 1
            yield channel
        while self.asked < self.most:
            self.asked += 1
            yield self._random()

    def satisfying(self, definition: Definition) -> Iterator[Channel]:
        for channel in self.channels():
            if definition(channel):
                self.satisfied += 1
                yield channel

    def partners(self, channel: Channel) -> list[Channel]:
        """Return ``channel`` and some earlier ones at random, and store it for later calls."""
        size = len(self.earlier_channels)
        # Earlier channels to combine each channel with.
        chosen = self.generator.integers(0, size, 12) if size else ()
        partners = [channel, *(self.earlier_channels[i] for i in {int(i) for i in chosen})]
        self.earlier_channels.append(channel)
        return partners

    def fails(self, definition: Definition, channel: Channel) -> bool:
        self.checks += 1
        return not definition(channel)

    def _small_channels(self) -> Iterator[Channel]:
        known: set[Channel] = set()
        for denominator in ENUMERATED:
            rows = list(_compositions(denominator, self.outputs))
            size = len(rows)
            total = int(size**self.datasets)
            # Step in jumps, so that a long list is sampled evenly.
            jump = _coprime(total, self.generator)
            for i in range(min(total, self.most)):
                place = i * jump % total
                digits = (place // int(size**k) % size for k in range(self.datasets))
                channel = tuple(rows[digit] for digit in digits)
                if channel not in known:
                    known.add(channel)
                    yield channel

    def _random(self) -> Channel:
        """Return a random channel. Each other row is unrelated to the first, near it, or tilted."""
        first = self._row()
        ways = (self._row, lambda: self._neighbor_row(first), lambda: self._tilt_row(first))
        others = self.generator.integers(0, len(ways), self.datasets - 1)
        return (first, *(ways[int(way)]() for way in others))

    def _row(self) -> tuple[Fraction, ...]:
        denominator = int(self.generator.integers(1, LIMITS.denominator + 1))
        chances = self.generator.dirichlet([1] * self.outputs)
        counts = self.generator.multinomial(denominator, chances)
        return tuple(Fraction(int(x), denominator) for x in counts)

    def _neighbor_row(self, row: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        away, to = (int(i) for i in self.generator.choice(self.outputs, 2, replace=False))
        part = row[away] * Fraction(int(self.generator.integers(0, 5)), 4)
        return tuple(x - part * (i == away) + part * (i == to) for i, x in enumerate(row))

    def _tilt_row(self, row: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        factors = self.generator.integers(1, 4, (2, self.outputs))
        tilted = [x * Fraction(int(a), int(b)) for x, a, b in zip(row, *factors, strict=True)]
        return tuple(x / sum(tilted) for x in tilted)

    def garblings(self) -> Iterator[tuple[str, Channel]]:
        """Yield channels that process an output, each with a name: maps, then random ones."""
        places = range(self.outputs)
        unit = [tuple(ONE if i == j else ZERO for j in places) for i in places]
        maps: Iterable[Iterable[int]] = itertools.product(places, repeat=self.outputs)
        if self.outputs**self.outputs > LIMITS.maps:
            maps = self.generator.integers(0, self.outputs, (LIMITS.maps, self.outputs)).tolist()
        for to in maps:
            yield "after this map of outputs", tuple(unit[j] for j in to)
        for _ in range(8):  # random garblings of a channel, besides the deterministic ones
            yield "after this channel", tuple(self._row() for _ in range(self.outputs))


def post_processing(
    definition: Definition,
    *,
    datasets: int = 2,
    outputs: int = 3,
    channels: int = 2000,
    generator: np.random.Generator | None = None,
) -> AxiomSearch:
    """Search for a channel that satisfies a definition although processing its output breaks it.

    Args:
        definition: function that returns True if a channel satisfies the definition at its
            parameters. A channel is a tuple of rows, one per dataset, of fractions, one per output.
        datasets: number of rows, from 2 to 8.
        outputs: number of columns, from 2 to 6.
        channels: number of tested channels, at most 10^6.
        generator: random generator; by default a fixed seed, so a search repeats.

    Examples:
        >>> from fractions import Fraction
        >>> from neyman.accounting.semantics.axioms import post_processing
        >>> def rare_loss(channel):  # the loss is above log 2 with a chance of at most 1/3
        ...     p, q = channel
        ...     return sum(a for a, b in zip(p, q) if a > 2 * b) <= Fraction(1, 3)
        >>> found = post_processing(rare_loss)
        >>> p, q = found.counterexample.violated
        >>> sum(a for a, b in zip(p, q) if a > 2 * b) > Fraction(1, 3)
        True

    Source: Kifer and Lin 2010 (axiom of transformation invariance).
    """
    search = _AxiomSearch.of("post-processing", (datasets, outputs), channels, generator)
    for channel in search.satisfying(definition):
        for step, garbling in search.garblings():
            result = garbled(channel, garbling)
            if search.fails(definition, result):
                return search.result(Counterexample((channel,), result, step, garbling))
    return search.result()


def convexity(
    definition: Definition,
    *,
    datasets: int = 2,
    outputs: int = 3,
    channels: int = 2000,
    generator: np.random.Generator | None = None,
) -> AxiomSearch:
    """Search for two channels that satisfy a definition although a random choice of one does not.

    The output hides the choice, or shows it.

    Args:
        definition, datasets, outputs, channels, generator: as for `post_processing`. If the choice
            is shown, the channel has twice the number of outputs.

    Examples:
        >>> from neyman.accounting.semantics.axioms import convexity
        >>> def blank(channel):  # some output has one chance under all datasets
        ...     return any(len(set(column)) == 1 and column[0] for column in zip(*channel))
        >>> print(convexity(blank))
        <convexity: a counterexample among 17 channels, 6 of which satisfy the definition>
        satisfies:
          1/2 1/2   0
            0 1/2 1/2
        satisfies:
          1/2   0 1/2
            0 1/2 1/2
        the first with chance 1/2, by a hidden coin: does not:
          1/2 1/4 1/4
            0 1/2 1/2

    Source: Kifer and Lin 2010 (axiom of convexity).
    """
    search = _AxiomSearch.of("convexity", (datasets, outputs), channels, generator)
    for channel in search.satisfying(definition):
        for other in search.partners(channel):
            share = Fraction(int(search.generator.integers(1, 10)), 10)
            for weight in (HALF, share):
                for coin, result in (
                    ("hidden", secret_choice(channel, other, weight)),
                    ("seen", open_choice(channel, other, weight)),
                ):
                    if search.fails(definition, result):
                        step = f"the first with chance {weight}, by a {coin} coin"
                        return search.result(Counterexample((channel, other), result, step))
    return search.result()


def composition(
    first: Definition,
    second: Definition,
    together: Definition,
    *,
    datasets: int = 2,
    outputs: int = 3,
    channels: int = 2000,
    generator: np.random.Generator | None = None,
) -> AxiomSearch:
    """Search for two channels that satisfy a definition although both outputs together do not.

    Args:
        first: the definition of the first channel, at its parameters.
        second: the definition of the second channel.
        together: the claimed definition of both together, for channels with outputs^2 outputs.
        datasets, outputs, channels, generator: as for `post_processing`. Both channels have the
            same datasets as rows, and independent randomness.

    Examples:
        >>> from fractions import Fraction
        >>> from neyman.accounting.semantics.axioms import composition
        >>> def approximate(t, delta):  # of (log t, delta)
        ...     def holds(channel):
        ...         return all(sum(max(a - t * b, 0) for a, b in zip(p, q)) <= delta
        ...                    for p, q in (channel, channel[::-1]))
        ...     return holds
        >>> one, d = approximate(2, Fraction(1, 10)), Fraction(2, 10)
        >>> composition(one, one, approximate(4, d), channels=500).counterexample is None
        True
        >>> composition(one, one, approximate(4, d / 2)).counterexample is None
        False
    """
    search = _AxiomSearch.of("composition", (datasets, outputs), channels, generator)
    for channel in search.satisfying(lambda c: first(c) or second(c)):
        for other in search.partners(channel):
            for one, two in ((channel, other), (other, channel)):
                if first(one) and second(two):
                    result = both(one, two)
                    if search.fails(together, result):
                        step = "both outputs together"
                        return search.result(Counterexample((one, two), result, step))
    return search.result()


def garbled(channel: Channel, garbling: Channel) -> Channel:
    """Return the channel whose output is processed by another channel."""
    columns = list(zip(*garbling, strict=True))
    return tuple(
        tuple(sum((x * y for x, y in zip(row, column, strict=True)), ZERO) for column in columns)
        for row in channel
    )


def secret_choice(first: Channel, second: Channel, weight: Fraction) -> Channel:
    """Return the channel that runs one of two channels and hides the choice."""
    return tuple(
        tuple(weight * x + (1 - weight) * y for x, y in zip(*rows, strict=True))
        for rows in zip(first, second, strict=True)
    )


def open_choice(first: Channel, second: Channel, weight: Fraction) -> Channel:
    """Return the channel that runs one of two channels and reveals the choice."""
    return tuple(
        (*(weight * x for x in one), *((1 - weight) * y for y in two))
        for one, two in zip(first, second, strict=True)
    )


def both(first: Channel, second: Channel) -> Channel:
    """Return the channel that runs two channels independently and releases both outputs."""
    return tuple(
        tuple(x * y for x in one for y in two) for one, two in zip(first, second, strict=True)
    )


def _compositions(total: int, parts: int) -> Iterator[tuple[Fraction, ...]]:
    """Yield all tuples of ``parts`` fractions with denominator ``total`` and sum 1."""
    for bars in itertools.combinations(range(total + parts - 1), parts - 1):
        ends = (-1, *bars, total + parts - 1)
        yield tuple(Fraction(b - a - 1, total) for a, b in itertools.pairwise(ends))


def _coprime(total: int, generator: np.random.Generator) -> int:
    while True:
        step = int(generator.integers(1, total))
        if math.gcd(step, total) == 1:
            return step


def _text(channel: Channel) -> str:
    cells = [[str(x) for x in row] for row in channel]
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join("  " + " ".join(cell.rjust(width) for cell in row) for row in cells)
