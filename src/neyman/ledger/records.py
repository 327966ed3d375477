"""Represent the ledger's records and its refusals, independently of their storage."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple, cast

from neyman.accounting.currency import Currency
from neyman.accounting.semantics.digits import many, plain, plain_decimal
from neyman.numerics.relation import Neighboring
from neyman.storage.reading import read_json
from neyman.storage.visible_text import visible

_DELTA_CAP = (
    "The cap is the --delta-cap with which `neyman ledger create` or `neyman ledger allocate` "
    "registered it (delta_cap= in Python), and it does not change."
)


KEEPING = " keeping totals "
"""If a dataset has exact totals, this text is between its relation and their hash."""


class LedgerError(Exception):
    """Refuse an operation of the ledger. The message says why and what to do."""


def other_format(where: str, version: object, own: object) -> LedgerError:
    """Return the error that refuses a ledger of another format than ``own``."""
    return LedgerError(
        f"{where} has ledger format {version}, and this version of neyman reads {own}: nothing was"
        " changed; use the version of neyman that wrote it"
    )


class BudgetRefused(LedgerError):
    """Refuse a charge that exceeds the balance of its account.

    Args:
        currency: the currency of the amounts, or "delta" if too little delta is left.
        left: the balance. ``difference`` is ``requested - left``.
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
            most = f"A delta of at most {plain(self.left)}" if self.left > 0 else "No delta"
            return f"{most} would fit. {_DELTA_CAP}"
        if self.left <= 0:
            return "Nothing would fit."
        ratio = self.requested / self.left
        up = Context(prec=3, rounding=ROUND_CEILING)
        factor = plain_decimal(up.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))
        return f"{Currency.read(self.currency).larger_noise.format(factor)} would fit."


class ChargedError(RuntimeError):
    """Report a run that failed after its charge, which stands. The message contains no data.

    The original error may contain data, so it is logged at debug level only.
    """


@dataclass(frozen=True, slots=True)
class Part:
    """Hold the charges to one of an account's declared disjoint parts.

    Args:
        spent: total charge to this part, or to all the data, in the currency.
        spent_delta: total delta of these charges.
        entries: number of these charges.
    """

    name: str
    spent: Fraction
    spent_delta: Fraction
    entries: int


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """Hold the caps and charges of a registered dataset version, or of an allocation.

    Amounts are multiples of the ledger's unit (`ledger.units`). Caps are rounded down, and charges
    are rounded up.

    Args:
        dataset: "name@version".
        protects: what one unit is, such as "person".
        neighboring: "add-remove" or "replace-one".
        rows: the largest number of rows per unit.
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:<order>" (epsilon).
        cap: the largest total charge, in the currency.
        delta_cap: the largest total delta: the probability of steps that can fail outright.
        spent: total charge so far, including unfinished entries. With parts, it is the largest
            total of a part.
        spent_delta: total delta so far, like ``spent``.
        left: the balance for charges to all the data. It is at most the balance of each allocation,
            and of the account, that contains it.
        left_delta: the balance of delta, like ``left``.
        entries: number of charged entries. With parts, it is the largest number of a part.
        to: the allocation's name. "" for the account itself.
        of: the allocation that contains this one. "" if it is the account, and None for the account
            itself.
        parts: the declared disjoint parts, each with the cap of the account, or ().
        totals: the hash `Plan.totals_hash` of the exact totals that neighbors share, or "".
        population: the dataset whose cap this edition draws on, or "".
        editions: the datasets that draw on this one's cap.
        approval: "required" if a second person must approve each plan, or "".
        approvers: the public keys of which one must sign an approval, in hexadecimal digits.
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
    population: str = ""
    editions: tuple[str, ...] = ()
    approval: str = ""
    approvers: tuple[str, ...] = ()

    @property
    def relation(self) -> str:
        """Return the relation with the hash of its totals, as a text."""
        return f"{self.neighboring}{KEEPING}{self.totals}" if self.totals else self.neighboring

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON types, with exact amounts."""
        names = ("dataset", "to", "of", "protects", "neighboring", "rows", "currency")
        amounts = ("cap", "spent", "left", "delta_cap", "spent_delta", "left_delta")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: str(getattr(self, name)) for name in amounts},
            **({"totals": self.totals} if self.totals else {}),
            **({"population": self.population} if self.population else {}),
            **({"editions": list(self.editions)} if self.editions else {}),
            **({"approval": self.approval} if self.approval else {}),
            **({"approvers": list(self.approvers)} if self.approvers else {}),
            "count": self.entries,
            "parts": [
                asdict(part) | {"spent": str(part.spent), "spent_delta": str(part.spent_delta)}
                for part in self.parts
            ],
        }

    def __repr__(self) -> str:
        name = f"{self.dataset}{f' to {self.to}' if self.to else ''}"
        delta = f", {plain(self.left_delta)} of {plain(self.delta_cap)} delta"
        parts = f"; parts {', '.join(part.name for part in self.parts)}" if self.parts else ""
        edition = f"; an edition of {self.population}" if self.population else ""
        return visible(
            f"<Account {name}: {plain(self.left)} of {plain(self.cap)}"
            f" {_unit(self.currency)}{delta if self.delta_cap else ''} left after"
            f" {many(self.entries, 'entry')};"
            f" {describe_unit(self.protects, self.relation, self.rows)}{parts}{edition}>"
        )


class Approval(NamedTuple):
    """Record that a second person approved a plan.

    Args:
        plan: the plan's name.
        who: who approved it, as they say.
        purpose: what the release is for, or "".
        until: the last day on which the plan may be run, such as 2027-12-31, or "".
        public: the public key that signed the approval, in hexadecimal digits, or "".
        signature: the signature of `Ledger.approval_text`, in hexadecimal digits, or "".
        when: the time by the writer's clock, UTC, ISO 8601.
    """

    plan: str
    who: str
    purpose: str
    until: str
    public: str
    signature: str
    when: str


class Sequel(NamedTuple):
    """Record what happened to a published release.

    Args:
        entry: the entry that replaces it, or None if it was taken back.
        why: the reason given.
        when: the time by the writer's clock, UTC, ISO 8601.
    """

    entry: int | None
    why: str
    when: str


class Balance(NamedTuple):
    """State the budget of the people of an entry at one moment of the ledger.

    Args:
        account: the dataset of the entry, or the population of an edition.
        spent: its total charge without this entry, in the currency.
        left: what the payer of the entry may still be charged.
        cap: the account's cap.
        events: the number of the ledger's events at that moment.
    """

    account: str
    spent: Fraction
    left: Fraction
    cap: Fraction
    events: int


State = Literal["reserved", "reading", "released", "void"]


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """Record one charge: reserved before data are read, and released once its files are published.

    Args:
        id: the number of the entry in the ledger.
        dataset: the account that is charged.
        key: hash of the plan and of the dataset version.
        state: "reserved" before private data are opened, "reading" afterwards (forever if the run
            crashed), "released", or "void". A void entry never read data and is not charged. All
            other entries are charged.
        charge: the exact amount requested, in the account's currency.
        delta: the probability that the plan's steps fail outright.
        mechanisms: the mechanism list, from JSON.
        plan: the plan, as JSON text.
        created: the time of the reservation by the writer's clock, UTC, ISO 8601.
        finished: the time of its release or cancellation, or None.
        to: the allocation that is charged. "" is the account itself.
        part: the part of the data that is read. "" is all the data.
        digest: the hash of the published files, or None.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON types, without the mechanisms, and of the plan its name."""
        names = ("id", "state", "to", "part", "created", "finished", "key", "digest")
        try:
            plan = read_json(self.plan)
        except ValueError:
            plan = None
        return {
            **{name: getattr(self, name) for name in names},
            "charge": str(self.charge),
            "delta": str(self.delta),
            "plan": cast(dict[str, Any], plan).get("name") if isinstance(plan, dict) else None,
        }

    def __repr__(self) -> str:
        delta = f" and delta {plain(self.delta)}" if self.delta else ""
        return visible(
            f"<Entry {self.id} of {self.dataset}: {plain(self.charge)}{delta},"
            f" {self.state} {self.finished or self.created}, key {self.key[:12]}>"
        )


def _unit(currency: str) -> str:
    return currency if currency == "delta" else Currency.read(currency).unit


def describe_unit(protects: str, relation: str, rows: int) -> str:
    """Describe the privacy unit in words. Cut the hash of totals, if the relation has one."""
    neighboring, keeping, mark = relation.partition(KEEPING)
    relation = f"{neighboring}{keeping}{mark[:19]}"
    return f"{protects}, {relation}, at most {many(rows, 'row')}"
