"""The ledger's records, and its refusals in words: nothing here knows how they are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

from neyman.accounting.currency import Currency
from neyman.accounting.semantics.digits import many, plain, plain_decimal
from neyman.numerics.relation import Neighboring

_DELTA_CAP = (
    "The cap is the --delta-cap with which `neyman ledger create` or `neyman ledger allocate` "
    "registered it (delta_cap= in Python), and it does not change."
)


KEEPING = " keeping totals "
"""What stands between the relation of a dataset with exact totals, and their hash."""


class LedgerError(Exception):
    """The ledger cannot do what was asked; the message says why and what to do."""


class BudgetRefused(LedgerError):
    """The account does not hold what was asked.

    Args:
        currency: what it is counted in, or "delta" where that is what runs short.
        left: what is left; ``difference`` is what is missing, ``requested - left``.
    """

    def __init__(
        self, dataset: str, currency: str, requested: Fraction, left: Fraction, cap: Fraction
    ) -> None:
        self.dataset, self.currency = dataset, currency
        self.requested, self.left, self.cap = requested, left, cap
        self.difference = requested - left
        super().__init__(
            f"{dataset}: asked for {plain(requested)} {_unit(currency)}, and"
            f" {plain(left)} of {plain(cap)} is left: {plain(self.difference)} too much."
            f" {self._what_fits()}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.dataset, self.currency, self.requested, self.left, self.cap)

    def _what_fits(self) -> str:
        if self.currency == "delta":
            return f"{self._delta_fits()} {_DELTA_CAP}"
        if self.left <= 0:
            return "Nothing would fit."
        ratio = self.requested / self.left
        up = Context(prec=3, rounding=ROUND_CEILING)
        factor = plain_decimal(up.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))
        size = Currency.read(self.currency).noise_size
        return f"Noise with {size} {factor} times as large would fit."

    def _delta_fits(self) -> str:
        if self.left <= 0:
            return "No delta would fit."
        return f"A delta of at most {plain(self.left)} would fit."


class ChargedError(RuntimeError):
    """A run that failed after its charge, which stands; the message holds nothing of the data.

    What went wrong may: it is logged at debug level only.
    """


@dataclass(frozen=True, slots=True)
class Part:
    """What was spent in one of the disjoint parts that an account was declared with.

    Args:
        spent: what was, on this part alone or on all the data, in the currency.
        spent_delta: the same for delta.
        entries: how many entries that was.
    """

    name: str
    spent: Fraction
    spent_delta: Fraction
    entries: int


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """A registered dataset version, or an allocation of one: what may be spent, and has been.

    Amounts are whole multiples of the ledger's unit (`ledger.units`): caps rounded down, spends up.

    Args:
        dataset: "name@version".
        protects: what one unit is, such as "person".
        neighboring: "add-remove" or "replace-one".
        rows: the most rows that one unit has.
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:<order>" (epsilon).
        cap: the most that all charges may add up to, in the currency.
        delta_cap: the same for the probability of steps that can fail outright.
        spent: all charges so far, those of unfinished entries included; with parts, in the part
            where they are most.
        spent_delta: the same for delta.
        left: what may still be spent on all the data: no more than is left of anything that an
            allocation is part of.
        left_delta: the same for delta.
        entries: how many entries are spent; with parts, the most that are in one part.
        to: the allocation's name; "" for the account itself.
        of: the name of what the allocation is part of; "" is the account, None for the account.
        parts: the declared disjoint parts, each with the cap of the whole; () if there are none.
        totals: the mark of the exact totals that neighbors keep, `Plan.totals_hash`; "" for none.
    """

    dataset: str
    protects: str
    neighboring: Neighboring
    rows: int
    currency: str
    cap: Fraction
    delta_cap: Fraction
    spent: Fraction
    spent_delta: Fraction
    left: Fraction
    left_delta: Fraction
    entries: int
    to: str = ""
    of: str | None = None
    parts: tuple[Part, ...] = ()
    totals: str = ""

    @property
    def relation(self) -> str:
        """Return the relation with its totals, as a text."""
        return f"{self.neighboring}{KEEPING}{self.totals}" if self.totals else self.neighboring

    def __repr__(self) -> str:
        name = f"{self.dataset}{f' to {self.to}' if self.to else ''}"
        delta = f", {plain(self.left_delta)} of {plain(self.delta_cap)} delta"
        parts = f"; parts {', '.join(part.name for part in self.parts)}" if self.parts else ""
        return (
            f"<Account {name}: {plain(self.left)} of {plain(self.cap)}"
            f" {_unit(self.currency)}{delta if self.delta_cap else ''} left after"
            f" {many(self.entries, 'entry')};"
            f" {describe_unit(self.protects, self.relation, self.rows)}{parts}>"
        )


State = Literal["reserved", "reading", "released", "void"]


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One spend: reserved before the data are read, released once its files are published.

    Args:
        id: its number in the ledger.
        dataset: the account it is charged to.
        key: hash of the plan and of the dataset version.
        state: "reserved", before anything private was opened; "reading", from then on, for ever if
            the run crashed; "released"; or "void", which never read and is not spent. All others
            are spent.
        charge: in the account's currency, exactly as it was asked.
        delta: the probability that its steps fail outright.
        mechanisms: the mechanism list, from JSON.
        plan: the plan, as JSON text.
        created: when it was reserved, UTC, ISO 8601, by the clock of then.
        finished: when it was released or made void, or None.
        to: the allocation it is charged to; "" is the account itself.
        part: the part of the data that it reads; "" is all.
        digest: the hash of what was published, or None.
    """

    id: int
    dataset: str
    key: str
    state: State
    charge: Fraction
    delta: Fraction
    mechanisms: Any = field(hash=False)
    plan: str
    created: str
    finished: str | None
    to: str = ""
    part: str = ""
    digest: str | None = None

    def __repr__(self) -> str:
        delta = f" and delta {plain(self.delta)}" if self.delta else ""
        return (
            f"<Entry {self.id} of {self.dataset}: {plain(self.charge)}{delta},"
            f" {self.state} {self.finished or self.created}, key {self.key[:12]}>"
        )


def _unit(currency: str) -> str:
    return currency if currency == "delta" else Currency.read(currency).unit


def describe_unit(protects: str, relation: str, rows: int) -> str:
    """Return the unit of privacy in words, with the first digits of a hash of totals."""
    neighboring, keeping, mark = relation.partition(KEEPING)
    relation = f"{neighboring}{keeping}{mark[:19]}"
    return f"{protects}, {relation}, at most {many(rows, 'row')}"
