"""What has been spent on each dataset, durably, and what is refused."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neyman.numerics import check
from neyman.release.ledger.account import (
    Account,
    BudgetRefused,
    Entry,
    LedgerError,
    describe_unit,
)
from neyman.release.ledger.sqlite import SQLiteFile

if TYPE_CHECKING:
    import apsw

__all__ = ["Account", "BudgetRefused", "Entry", "Ledger", "LedgerError"]

_NEIGHBORING = ("add-remove", "replace-one")
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*")
_CHUNK = 1 << 20
_MOST_CAP = 10**30


class Ledger:
    """What has been spent on each registered dataset, kept in a file that several may use at once.

    Every method is one transaction, on the disk when it returns; any number of threads and
    processes may race. What is reserved is spent, whatever happens next: there is no refund.
    The ledger holds no data and no hash of data, only plans, charges and published files.

    Args:
        url: the path of a SQLite file on a local disk; opened when it is first asked something.
        wait: seconds to wait for other writers before giving up.

    Raises:
        ValueError: the url is not a path.
        LedgerError: from any method, where there is no ledger or it cannot be used.
    """

    def __init__(self, url: str | os.PathLike[str], *, wait: float = 30.0) -> None:
        path = os.fspath(url)
        if not isinstance(path, str) or not path or path == ":memory:" or "\0" in path:
            raise ValueError(f"url = {url!r} must be the path of a file, such as 'ledger.db'")
        if "://" in path:
            raise ValueError(
                f"url begins with {path.partition('://')[0]!r}: supported is the path of a SQLite"
                " file, such as 'ledger.db' (PostgreSQL is not supported yet)"
            )
        self._store = SQLiteFile(
            Path(os.path.realpath(path)), check.between("wait", wait, 0.0, 86_400.0)
        )

    def __repr__(self) -> str:
        return f"Ledger({str(self._store.path)!r})"

    def exists(self) -> bool:
        """Whether there is a file at the ledger's path."""
        return self._store.exists()

    def create(
        self,
        dataset: str,
        *,
        protects: str,
        neighboring: str,
        rows: int = 1,
        currency: str = "zcdp",
        cap: Any,
        delta_cap: Any = 0,
    ) -> Account:
        """Register a dataset version, and make the ledger if there is none.

        The same terms again change nothing; there is no way to change them.

        Args:
            dataset: "name@version", of letters, digits and ``._-``.
            protects: what one unit is, such as "person".
            neighboring: "add-remove" or "replace-one".
            rows: the most rows that one unit has.
            currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:<order>"
                (epsilon at that order).
            cap: the most that all charges may add up to; above 0, at most 1e30, taken exactly.
            delta_cap: the same for delta, in [0, 1).

        Raises:
            LedgerError: the dataset is registered with other terms.
        """
        terms = (
            _dataset(dataset),
            _text("protects", protects),
            neighboring,
            check.whole("rows", rows, 1),
            _currency(currency),
            _amount("cap", cap),
            _amount("delta_cap", delta_cap),
        )
        if neighboring not in _NEIGHBORING:
            raise ValueError(f"neighboring = {neighboring!r} must be one of {_NEIGHBORING}")
        if not terms[-2]:
            raise ValueError(f"cap = {cap!r} must be above 0")
        if terms[-2] > _MOST_CAP:
            raise ValueError(f"cap = {cap!r} must be at most 1e30: that much protects nobody")
        if terms[-1] >= 1:
            raise ValueError(f"delta_cap = {delta_cap!r} must be below 1")
        self._store.create()
        with self._store.writing() as db:
            if _rows(db, "SELECT 1 FROM account WHERE dataset = ?", dataset):
                account = _account(db, dataset)
                names = ("protects", "neighboring", "rows", "currency", "cap", "delta_cap")
                for name, asked in zip(names, terms[1:], strict=True):
                    if (has := getattr(account, name)) != asked:
                        raise LedgerError(
                            f"{dataset} is registered with {name} = {has}, not {asked}: terms do"
                            " not change; a new version of the data is a new name@version"
                        )
                return account
            db.execute(
                "INSERT INTO account VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*terms[:-2], _ratio(terms[-2]), _ratio(terms[-1]), _now()),
            )
            return _account(db, dataset)

    def datasets(self) -> tuple[Account, ...]:
        """All accounts, by name."""
        with self._store.reading() as db:
            return tuple(_account(db, name) for name in _registered(db))

    def account(self, dataset: str) -> Account:
        """The account of a registered dataset."""
        with self._store.reading() as db:
            return _account(db, dataset)

    def entries(self, dataset: str) -> tuple[Entry, ...]:
        """All spends of a registered dataset, oldest first."""
        with self._store.reading() as db:
            _account(db, dataset)
            return _entries(db, "dataset = ?", dataset)

    def check(
        self,
        dataset: str,
        *,
        protects: str,
        neighboring: str,
        rows: int,
        charge: Any,
        delta: Any = 0,
    ) -> Account:
        """The account, if ``reserve`` would grant this now; writes nothing and promises nothing.

        Raises:
            LedgerError: the dataset is not registered, or for another unit of privacy.
            BudgetRefused: the charge or the delta is more than what is left.
        """
        charge, delta = _amount("charge", charge), _amount("delta", delta)
        with self._store.reading() as db:
            return _admit(db, dataset, (protects, neighboring, rows), charge, delta)

    def reserve(
        self,
        dataset: str,
        *,
        key: str,
        protects: str,
        neighboring: str,
        rows: int,
        charge: Any,
        delta: Any = 0,
        mechanisms: Any,
        plan: str,
    ) -> Entry:
        """Spend, before anything private is read: when this returns, the charge is on the disk.

        A key that is reserved already (by a run that crashed, or one that is still going) gets a
        further entry with a charge of its own, because its noise may be out; ask `published`
        first, which answers once an entry of the key has finished.

        Args:
            dataset: a registered "name@version".
            key: hash of the plan and of the dataset version, as the caller computes it.
            protects: what one unit is; this and the next two must be as registered.
            neighboring: "add-remove" or "replace-one".
            rows: the most rows that one unit has.
            charge: in the account's currency, at least 0, taken exactly.
            delta: the probability that the plan's steps fail outright, in [0, 1].
            mechanisms: the mechanism list, as JSON can hold it: the guarantee is recomputed of it.
            plan: the plan, as JSON text.

        Raises:
            LedgerError: the dataset is not registered, or for another unit of privacy.
            BudgetRefused: the charge or the delta is more than what is left.
        """
        charge, delta = _amount("charge", charge), _amount("delta", delta)
        try:
            listed = json.dumps(mechanisms, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"mechanisms must be what JSON can hold: {error}") from None
        try:
            json.loads(plan)
        except (TypeError, ValueError) as error:
            raise ValueError(f"plan must be JSON text: {error}") from None
        row = (dataset, _text("key", key), _ratio(charge), _ratio(delta), listed, plan, _now())
        with self._store.writing() as db:
            _admit(db, dataset, (protects, neighboring, rows), charge, delta)
            db.execute(
                "INSERT INTO entry (dataset, key, state, charge, delta, mechanisms, plan, created)"
                " VALUES (?, ?, 'reserved', ?, ?, ?, ?, ?)",
                row,
            )
            return _entry(db, db.last_insert_rowid())

    def finish(self, entry_id: int, files: Mapping[str, bytes]) -> Entry:
        """Store a release's files and mark its entry finished, both or neither.

        Args:
            entry_id: of an entry that is reserved.
            files: contents by path inside the release's folder (with ``/``); at least one.

        Returns:
            The entry whose files are published: this one, or the one of the same key that
            finished first; then this one's files are not kept, and it is finished all the same.

        Raises:
            LedgerError: there is no such entry, or it is finished.
        """
        pieces = _pack(files)
        with self._store.writing() as db:
            entry = _entry(db, check.whole("entry_id", entry_id))
            if entry.state == "finished":
                raise LedgerError(f"entry {entry_id} of {entry.dataset} is finished already")
            first = _publisher(db, entry.dataset, entry.key)
            if first is None:
                first = entry.id
                db.execute(
                    "INSERT INTO publication VALUES (?, ?, ?)", (entry.dataset, entry.key, first)
                )
                db.executemany(
                    "INSERT INTO piece VALUES (?, ?, ?, ?)", ((first, *piece) for piece in pieces)
                )
            db.execute(
                "UPDATE entry SET state = 'finished', finished = ? WHERE id = ?", (_now(), entry.id)
            )
            return _entry(db, first)

    def published(self, dataset: str, key: str) -> tuple[Entry, dict[str, bytes]] | None:
        """The finished entry of a key and its files, so that a retry gets the same bytes.

        Returns None where no entry of the key has finished.
        """
        with self._store.reading() as db:
            _account(db, dataset)
            first = _publisher(db, dataset, key)
            if first is None:
                return None
            files: dict[str, bytearray] = {}
            query = "SELECT path, packed FROM piece WHERE entry = ? ORDER BY path, number"
            for path, packed in db.execute(query, (first,)):
                files.setdefault(path, bytearray()).extend(zlib.decompress(packed))
            return _entry(db, first), {path: bytes(content) for path, content in files.items()}


def _rows(db: apsw.Connection, query: str, *bindings: Any) -> list[Any]:
    return db.execute(query, bindings).fetchall()


def _registered(db: apsw.Connection) -> list[str]:
    return [name for (name,) in _rows(db, "SELECT dataset FROM account ORDER BY dataset")]


def _account(db: apsw.Connection, dataset: str) -> Account:
    query = (
        "SELECT protects, neighboring, rows, currency, cap, delta_cap FROM account"
        " WHERE dataset = ?"
    )
    found = _rows(db, query, dataset)
    if not found:
        names = ", ".join(_registered(db)) or "none"
        raise LedgerError(
            f"{dataset} is not registered; registered: {names}. The custodian of the data"
            " registers it with `neyman ledger create`"
        )
    protects, neighboring, rows, currency, cap, delta_cap = found[0]
    spent = spent_delta = Fraction(0)
    entries = 0
    query = "SELECT charge, delta, count(*) FROM entry WHERE dataset = ? GROUP BY charge, delta"
    for charge, delta, times in db.execute(query, (dataset,)):
        spent += Fraction(charge) * times
        spent_delta += Fraction(delta) * times
        entries += times
    return Account(
        dataset=dataset,
        protects=protects,
        neighboring=neighboring,
        rows=rows,
        currency=currency,
        cap=Fraction(cap),
        delta_cap=Fraction(delta_cap),
        spent=spent,
        spent_delta=spent_delta,
        entries=entries,
    )


def _admit(
    db: apsw.Connection, dataset: str, unit: tuple[str, str, int], charge: Fraction, delta: Fraction
) -> Account:
    account = _account(db, dataset)
    registered = (account.protects, account.neighboring, account.rows)
    if unit != registered:
        raise LedgerError(
            f"{dataset} is registered for {describe_unit(*registered)}, and this release is"
            f" for {describe_unit(*unit)}: give the release the registered unit"
        )
    if charge > account.left:
        raise BudgetRefused(dataset, account.currency, charge, account.left, account.cap)
    if delta > account.left_delta:
        raise BudgetRefused(dataset, "delta", delta, account.left_delta, account.delta_cap)
    return account


def _entries(db: apsw.Connection, where: str, value: Any) -> tuple[Entry, ...]:
    query = (
        "SELECT id, dataset, key, state, charge, delta, mechanisms, plan, created, finished"
        f" FROM entry WHERE {where} ORDER BY id"
    )
    entries = []
    for row in db.execute(query, (value,)):
        number, name, key, state, charge, delta, listed, plan, created, finished = row
        charge, delta, mechanisms = Fraction(charge), Fraction(delta), json.loads(listed)
        entry = Entry(number, name, key, state, charge, delta, mechanisms, plan, created, finished)
        entries.append(entry)
    return tuple(entries)


def _entry(db: apsw.Connection, number: int) -> Entry:
    found = _entries(db, "id = ?", number)
    if not found:
        raise LedgerError(f"there is no entry {number} in this ledger")
    return found[0]


def _publisher(db: apsw.Connection, dataset: str, key: str) -> int | None:
    found = _rows(db, "SELECT entry FROM publication WHERE dataset = ? AND key = ?", dataset, key)
    return found[0][0] if found else None


def _pack(files: Mapping[str, bytes]) -> list[tuple[str, int, bytes]]:
    if not files:
        raise ValueError("files is empty: a release has at least one file")
    pieces = []
    for path, content in files.items():
        outside = not isinstance(path, str) or "\\" in path or "\0" in path
        if outside or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"files has {path!r}: paths are inside the release, as 'tables/a.csv'")
        if not isinstance(content, bytes):
            raise TypeError(f"files[{path!r}] must be bytes, not {type(content).__name__}")
        for number, start in enumerate(range(0, len(content) or 1, _CHUNK)):
            pieces.append((path, number, zlib.compress(content[start : start + _CHUNK])))
    return pieces


def _dataset(value: str) -> str:
    if not isinstance(value, str) or len(value) > 200 or not _DATASET.fullmatch(value):
        raise ValueError(
            f"dataset = {value!r} must be name@version, of letters, digits and ._- , as 'census@1'"
        )
    return value


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.strip()) <= 200:
        raise ValueError(f"{name} = {value!r} must be a text of 1 to 200 characters, on one line")
    return value


def _currency(value: str) -> str:
    name, separator, order = value.partition(":") if isinstance(value, str) else ("", "", "")
    if name in ("pure", "zcdp", "gdp") and not separator:
        return name
    if name == "renyi":
        number = check.exact("the order in currency", order)
        if number > 1:
            return f"renyi:{number}"
    raise ValueError(
        f"currency = {value!r} must be 'pure', 'zcdp', 'gdp' or 'renyi:<order>' with an order"
        " above 1, as 'renyi:8'"
    )


def _amount(name: str, value: Any) -> Fraction:
    number = check.exact(name, value)
    if number < 0:
        raise ValueError(f"{name} = {value!r} must be at least 0")
    if "delta" in name and number > 1:
        raise ValueError(f"{name} = {value!r} must be at most 1")
    # Python turns no more than 4300 digits into text.
    if max(number.numerator, number.denominator).bit_length() > 4000:
        raise ValueError(f"{name} has more than 1200 digits: round it up to a simpler number")
    return number


def _ratio(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
