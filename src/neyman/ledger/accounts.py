"""Read accounts and allocations from the tables, and check whether a charge fits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from neyman.ledger.database import Transaction
from neyman.ledger.events import Writer, checkpoint_of
from neyman.ledger.records import (
    KEEPING,
    Account,
    Balance,
    BudgetRefused,
    Entry,
    LedgerError,
    Part,
    describe_unit,
)
from neyman.ledger.rows import Damage, one_row, texts, typed_rows
from neyman.ledger.units import DELTA, UNIT, units_up
from neyman.ledger.validation import names, replacement
from neyman.numerics.relation import NEIGHBORING, neighboring_of


class AccountTerms(NamedTuple):
    """Hold the terms with which a dataset version is registered."""

    protects: str
    relation: str
    rows: int
    currency: str
    parts: str
    approval: str


class Purse(NamedTuple):
    """Hold the caps and charges of an account or allocation for one part of the data [LE-2].

    ``holder`` is the allocation's name, or "" for the account. Amounts are in `ledger.units`.
    Of the population of an edition, ``spent`` is what it would have spent if no part of the edition
    had spent more than the part that is asked for. So its balance is that of a charge to this part.
    """

    dataset: str
    holder: str
    part: str
    parent: str | None
    cap: int
    delta_cap: int
    spent: int
    spent_delta: int
    entries: int


@dataclass(frozen=True, slots=True)
class Situation:
    """Hold everything that decides whether a charge is granted, read at one moment.

    Args:
        purses: the purses to which the charge would be added.
        number: number of the last event.
        head: hash of the last event.
        last: id of the last entry.
        tries: number of entries that have the key.
    """

    terms: AccountTerms
    purses: tuple[Purse, ...]
    number: int
    head: str
    last: int
    tries: int


_TERMS = (str, str, int, str, str, str)
_PURSE = (str, str, str, str | None, int, int, int, int, int)
_KINDS = (*_TERMS, *_PURSE, int, str, int, int)
_SITUATION = """SELECT a.protects, a.neighboring, a.rows, a.currency, a.parts, a.approval,
    p.dataset, p.holder, p.part, p.parent, p.cap, p.delta_cap, p.spent, p.spent_delta, p.entries,
    (SELECT max(number) FROM event), (SELECT hash FROM event ORDER BY number DESC LIMIT 1),
    (SELECT coalesce(max(id), 0) FROM entry),
    (SELECT count(*) FROM entry WHERE dataset = ? AND key = ?)
FROM account a JOIN above u ON u.dataset = a.dataset AND u.holder = ?
    JOIN purse p ON p.dataset = a.dataset AND p.holder = u.ancestor
WHERE a.dataset = ?"""
_LAG = (
    "(SELECT max({0}) - max(CASE WHEN ? IN ('', part) THEN {0} END) FROM purse"
    " WHERE dataset = n.dataset AND holder = '')"
)
_POPULATION = f"""SELECT p.dataset, p.holder, p.part, p.parent, p.cap, p.delta_cap,
    p.spent - {_LAG.format("spent")}, p.spent_delta - {_LAG.format("spent_delta")}, p.entries
FROM note n JOIN purse p ON p.dataset = n.subject AND p.holder = ''
WHERE n.kind = 'edition' AND n.dataset = ?"""


def situation(db: Transaction, dataset: str, account: str, part: str, key: str = "") -> Situation:
    """Return the state of the ledger that decides whether a charge is granted [LE-3].

    Raises:
        LedgerError: the dataset, allocation, or part does not exist.
    """
    names(dataset=dataset, account=account, part=part)
    query = f"{_SITUATION} AND p.part = ?" if part else _SITUATION
    own = (part,) if part else ()
    rows = typed_rows(db, _KINDS, query, dataset, key, account, dataset, *own)
    if not rows:
        raise LedgerError(_unknown(db, dataset, account, part))
    population = typed_rows(db, _PURSE, _POPULATION, part, part, dataset)
    purses = tuple(Purse(*row) for row in (*(row[6:15] for row in rows), *population))
    number, head, last, tries = rows[0][15:]
    return Situation(AccountTerms(*rows[0][:6]), purses, number, head, last, tries)


def registered(db: Transaction) -> list[str]:
    """Return the names of all datasets."""
    query = "SELECT dataset FROM account ORDER BY dataset"
    return [name for (name,) in typed_rows(db, (str,), query)]


def _unknown(db: Transaction, dataset: str, account: str, part: str) -> str:
    names = registered(db)
    if dataset not in names:
        return (
            f"{dataset} is not registered; registered: {', '.join(names) or 'none'}. The custodian"
            " of the data registers it with `neyman ledger create`"
        )
    query = "SELECT DISTINCT holder FROM purse WHERE dataset = ? AND holder <> '' ORDER BY holder"
    holders = [name for (name,) in typed_rows(db, (str,), query, dataset)]
    if account and account not in holders:
        return (
            f"{dataset} has no allocation {account!r}; it has: {', '.join(holders) or 'none'}. Make"
            " one with `neyman ledger allocate`"
        )
    (row_parts,) = one_row(db, (str,), "SELECT parts FROM account WHERE dataset = ?", dataset)
    parts = ", ".join(texts(row_parts)) or "none"
    return f"{dataset} has no part {part!r}; declared when it was registered: {parts}"


def account_of(db: Transaction, dataset: str, account: str = "") -> Account:
    """Return the account of a dataset, or one of its allocations."""
    now = situation(db, dataset, account, "")
    mine = (p for p in now.purses if (p.dataset, p.holder) == (dataset, account))
    own = sorted(mine, key=lambda p: p.part)
    if not own:
        raise Damage(f"{_label(dataset, account)} has no purse")
    terms = now.terms
    relation, _, totals = terms.relation.partition(KEEPING)
    if relation not in NEIGHBORING:
        # Guards against a relation that no version wrote.
        raise Damage(f"{dataset} is registered for the relation {relation[:40]!r}")
    return Account(
        dataset=dataset,
        protects=terms.protects,
        neighboring=neighboring_of(relation),
        rows=terms.rows,
        currency=terms.currency,
        cap=Fraction(own[0].cap, UNIT),
        delta_cap=Fraction(own[0].delta_cap, DELTA),
        spent=Fraction(max(purse.spent for purse in own), UNIT),
        spent_delta=Fraction(max(purse.spent_delta for purse in own), DELTA),
        left=Fraction(min(purse.cap - purse.spent for purse in now.purses), UNIT),
        left_delta=Fraction(min(p.delta_cap - p.spent_delta for p in now.purses), DELTA),
        entries=max(purse.entries for purse in own),
        to=account,
        of=own[0].parent,
        parts=tuple(
            Part(p.part, Fraction(p.spent, UNIT), Fraction(p.spent_delta, DELTA), p.entries)
            for p in own
            if p.part
        ),
        totals=totals,
        population=next((p.dataset for p in now.purses if p.dataset != dataset), ""),
        editions=_editions(db, dataset),
        approval="required" if terms.approval else "",
        approvers=tuple(texts(terms.approval)) if terms.approval else (),
    )


def balance_of(db: Transaction, entry: Entry) -> Balance:
    """Return the budget of the people of a charged entry, as `Ledger.balance` does."""
    own, payer = account_of(db, entry.dataset), account_of(db, entry.dataset, entry.to)
    people = account_of(db, own.population) if own.population else own
    charge = Fraction(units_up(entry.charge), UNIT)
    others = [part.spent - charge * (entry.part in ("", part.name)) for part in own.parts]
    spent = people.spent - own.spent + max(others or [own.spent - charge])
    return Balance(people.dataset, spent, payer.left, people.cap, checkpoint_of(db).events)


def _editions(db: Transaction, dataset: str) -> tuple[str, ...]:
    query = "SELECT dataset FROM note WHERE kind = 'edition' AND subject = ? ORDER BY event"
    return tuple(name for (name,) in typed_rows(db, (str,), query, dataset))


def join(write: Writer, dataset: str, population: str) -> None:
    """Make a dataset an edition of a population, as `Ledger.join` does."""
    edition, total = account_of(write.db, dataset), account_of(write.db, population)
    if edition.population == population:
        return
    why = ""
    if edition.population:
        why = f"{dataset} is an edition of {edition.population} and stays one"
    elif total.population or dataset == population:
        named = total.population or "another dataset"
        why = f"{population} is an edition itself: name {named}"
    elif edition.editions:
        why = f"{dataset} has editions of its own, and a population is no edition"
    for name in ("protects", "relation", "currency"):
        has, asked = getattr(edition, name), getattr(total, name)
        if not why and has != asked:
            why = (
                f"{dataset} has {name} = {has!r}, and {population} has {asked!r}: an edition has"
                " its population's unit, relation, and currency"
            )
    if why:
        raise LedgerError(why)
    for currency, spent, left, cap in (
        (total.currency, edition.spent, total.left, total.cap),
        ("delta", edition.spent_delta, total.left_delta, total.delta_cap),
    ):
        if spent > left:
            raise BudgetRefused(population, currency, spent, left, cap)
    write.note("edition", dataset, population)


def admit(
    dataset: str, unit: tuple[str, str, int], charge: Fraction, delta: Fraction, now: Situation
) -> tuple[int, int]:
    """Return a charge and a delta in integer units, if every purse of ``now`` has room for them.

    Raises:
        LedgerError: the dataset is registered for another unit of privacy.
        BudgetRefused: a purse has too little left. The message names the one with the least left.
    """
    has = now.terms[:3]
    if unit != has:
        raise LedgerError(
            f"{dataset} is registered for {describe_unit(*has)}, and this release is"
            f" for {describe_unit(*unit)}: {_other_unit(dataset, unit, now)}"
        )
    units, delta_units = units_up(charge), units_up(delta, DELTA)
    least = min(now.purses, key=lambda p: (p.cap - p.spent, p.holder != "", p.part))
    if units > least.cap - least.spent:
        left, cap = Fraction(least.cap - least.spent, UNIT), Fraction(least.cap, UNIT)
        raise BudgetRefused(
            _label(least.dataset, least.holder, least.part),
            *(now.terms.currency, charge, left, cap),
        )
    least = min(now.purses, key=lambda p: (p.delta_cap - p.spent_delta, p.holder != "", p.part))
    if delta_units > least.delta_cap - least.spent_delta:
        left = Fraction(least.delta_cap - least.spent_delta, DELTA)
        cap = Fraction(least.delta_cap, DELTA)
        label = _label(least.dataset, least.holder, least.part)
        raise BudgetRefused(label, "delta", delta, left, cap)
    return units, delta_units


def _other_unit(dataset: str, unit: tuple[str, str, int], now: Situation) -> str:
    """Return advice for a release whose privacy unit is not the dataset's."""
    right = "give the release the registered unit"
    if KEEPING in now.terms.relation:
        right = "publish by plans with the registered [[totals]] alone"
    elif KEEPING in unit[1]:
        right = "leave the totals out of the plan, because its other releases do not state them"
    unused = not any(purse.entries for purse in now.purses)
    if unused:
        return f"{right}; or, {replacement(dataset)}"
    return f"{right}: charges were made on its terms, and only the custodian can decide otherwise"


def _label(dataset: str, holder: str, part: str = "") -> str:
    allocation = f", allocation {holder}" if holder else ""
    return f"{dataset}{allocation}{f', part {part}' if part else ''}"
