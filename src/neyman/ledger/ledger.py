"""Record charges to each dataset durably, and refuse charges over the cap."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, cast

from neyman import notebook
from neyman.accounting.semantics.digits import plain
from neyman.elements import Node
from neyman.ledger.accounts import account_of, admit, balance_of, join, registered, situation
from neyman.ledger.audit import Audit, audit, behind
from neyman.ledger.chain import (
    START,
    Checkpoint,
    canonical_json,
    digest,
    line_around,
    line_of,
    write_checkpoint,
)
from neyman.ledger.database import VERSION, Reservation, Store, Transaction
from neyman.ledger.entries import (
    approval_of,
    entries_of,
    entry_of,
    hashes_of,
    meant,
    publisher_of,
    refuse_sequel,
    refuse_unapproved,
    sequels_of,
)
from neyman.ledger.events import Writer, checkpoint_of, ledger_id, lines, settle
from neyman.ledger.publication import count_steps, publish, steps_of
from neyman.ledger.published_files import StoredFiles
from neyman.ledger.records import Account, Approval, Balance, Entry, LedgerError, Sequel
from neyman.ledger.rows import Damage, damaged, fields, fraction, texts, typed_field, typed_rows
from neyman.ledger.sqlite.store import SQLiteFile
from neyman.ledger.units import DELTA, MOST, UNIT
from neyman.ledger.validation import (
    account_terms,
    allocation_terms,
    amount,
    approval_terms,
    names,
    reservation_terms,
    same_terms,
    text,
    unit_of,
)
from neyman.numerics import check
from neyman.numerics.relation import Neighboring

_PAGE_EVENTS = 1000  # events read in one transaction


class Ledger:
    """Record the budget spent on each registered dataset, durably and shared by processes.

    Every method is one transaction, which is on the disk when the method returns. (`finish` first
    stores files in several transactions.) Any number of threads and processes may race. A reserved
    charge is spent, whatever happens next, unless its run never began to read data (`begin`). The
    ledger holds no data and no hash of data, only plans, charges, and published files. Everything
    that happens is an event in a hash chain. The order of events counts, and clocks do not.

    Args:
        url: the path of a SQLite file on a local disk, or ``postgresql://...``. It is opened at the
            first use.
        wait: seconds to wait for other writers before giving up.
        checkpoint: the path of a checkpoint file, stored elsewhere. Each write compares the ledger
            with the file and advances it. A ledger behind its checkpoint is refused.
            `keep_checkpoint` makes the first one.

    Raises:
        ValueError: the url is neither of these.
        LedgerError: from any method, if the ledger does not exist or cannot be used.
    """

    throwaway = False  # True in a temporary ledger, and stated in each output that it pays for

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        wait: float = 30.0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self._store = _store_at(url, check.between("wait", wait, 0.0, 86_400.0))
        self._checkpoint_path = (
            None if checkpoint is None else Path(check.path("checkpoint", checkpoint)).absolute()
        )

    def __repr__(self) -> str:
        return f"Ledger({self._store.where!r})"

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """Yield the parts of the notebook's view: each account. Write nothing. Ask no server."""
        yield notebook.title(repr(self))
        if not self._store.local:
            yield notebook.paragraph("Its accounts: .datasets(), which asks the server.")
            return
        if not self.exists():
            yield notebook.paragraph("There is no ledger there yet: .create() makes one.")
            return
        try:
            accounts = self.datasets()
        except LedgerError as error:
            yield notebook.paragraph(str(error))
            return
        rows = [
            [
                account.dataset,
                f"{account.protects}, {account.relation}",
                account.currency,
                plain(account.cap),
                plain(account.spent),
                plain(account.left),
                account.entries,
            ]
            for account in accounts
        ]
        head = ["Dataset", "Privacy unit", "Currency", "Cap", "Charged", "Balance", "Entries"]
        yield notebook.table(head, rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. The ledger can be used again."""
        self._store.close()

    def exists(self) -> bool:
        """Return True if the ledger exists, or something else has its name."""
        return self._store.exists()

    def create(
        self,
        dataset: str,
        *,
        protects: str,
        neighboring: Neighboring,
        rows: int = 1,
        currency: str = "zcdp",
        cap: object,
        delta_cap: object = 0,
        parts: tuple[str, ...] | list[str] = (),
        totals: str = "",
        population: str = "",
        approval: str = "",
        approvers: tuple[str, ...] | list[str] = (),
    ) -> Account:
        """Register a dataset version. Create the ledger if it does not exist.

        The same terms again change nothing. Terms can never be changed.

        Args:
            dataset: "name@version", of letters, digits and ``._-``.
            protects: what one unit is, such as "person".
            neighboring: "add-remove" or "replace-one".
            rows: the largest number of rows per unit.
            currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:<order>"
                (epsilon at that order).
            cap: the largest total charge, above 0 and at most a million, rounded down to a multiple
                of 1/720,720,000,000 (`ledger.units`).
            delta_cap: the largest total delta, in [0, 1), rounded down to a multiple of
                1/720,720,000,000,000,000.
            parts: names of disjoint parts of the data. The cap applies to each part. Changing one
                unit must change one part only. Under replace-one, a record's replacement must be in
                the same part.
            totals: `Plan.totals_hash` of a dataset with exact public totals, or "". Each later plan
                must declare these totals.
            population: the registered dataset on whose cap it draws, too (see `join`), or "".
            approval: "required" to refuse each charge whose key was not approved (see `approve`).
            approvers: public keys, in hexadecimal digits, of which one must sign an approval.

        Raises:
            LedgerError: the dataset is registered with other terms. The message says how to go on.
        """
        terms = account_terms(
            *(dataset, protects, neighboring, rows, currency, cap, delta_cap, parts, totals),
            *(approval, approvers),
        )
        names(population=population)
        line = line_of(1, START, "ledger", {"id": secrets.token_hex(16), "version": VERSION})
        self._store.create(line, digest(line))
        with self._write_transaction() as write:
            query = "SELECT e.line FROM account a JOIN event e ON e.number = a.event"
            existing = typed_rows(write.db, (str,), f"{query} WHERE a.dataset = ?", dataset)
            if existing:
                unused = not account_of(write.db, dataset).entries
                same_terms(dataset, _terms(existing[0][0], terms), terms, unused=unused)
            else:
                write.account(terms)
            if population:
                join(write, dataset, population)
            return account_of(write.db, dataset)

    def join(self, dataset: str, population: str) -> Account:
        """Make a dataset an edition of a population, with all that it has spent.

        A population is the people of several editions, such as years. Each charge to an edition is
        also charged to the population, by as much as it raises the largest total of a part of the
        edition. So the population has spent its own charges and, over editions, the sum of these
        largest totals [LE-5]. The same call again changes nothing. An edition stays one.

        Args:
            dataset: a registered "name@version".
            population: a registered dataset that is no edition, with the same unit, relation, and
                currency.

        Raises:
            LedgerError: one of them is not registered, or they do not go together.
            BudgetRefused: the dataset has spent more than is left of the population's cap.
        """
        names(dataset=dataset, population=population)
        with self._write_transaction() as write:
            join(write, dataset, population)
            return account_of(write.db, dataset)

    def allocate(
        self, dataset: str, account: str, *, cap: object, delta_cap: object = None, of: str = ""
    ) -> Account:
        """Allocate part of an account, or of an allocation, to a team or project.

        A charge to an allocation is also charged to the account and to each allocation that
        contains it, so no cap is exceeded. The caps of allocations may add up to more than the
        account's cap: first come, first served.

        Args:
            dataset: a registered "name@version".
            account: name of the new allocation, of letters, digits and ``._-``.
            cap: the largest total charge, at most the cap of ``of``.
            delta_cap: the largest total delta. The default is the delta cap of ``of``.
            of: the allocation that contains it. "" is the account.

        Raises:
            LedgerError: the name has other terms already, or the cap exceeds the cap of ``of``.
        """
        names(dataset=dataset, of=of)
        with self._write_transaction() as write:
            above = account_of(write.db, dataset, of)
            delta_cap = above.delta_cap if delta_cap is None else delta_cap
            terms = allocation_terms(dataset, account, of, cap, delta_cap)
            query = (
                "SELECT e.line FROM purse p JOIN event e ON e.number = p.event"
                " WHERE p.dataset = ? AND p.holder = ?"
            )
            rows = typed_rows(write.db, (str,), query, dataset, account)
            if rows:
                same_terms(f"{account} of {dataset}", _terms(rows[0][0], terms), terms)
            else:
                for word, units, most in (
                    ("cap", terms["units"], above.cap * UNIT),
                    ("delta_cap", terms["delta_units"], above.delta_cap * DELTA),
                ):
                    if units > most:
                        raise LedgerError(
                            f"{word} = {Fraction(terms[word])} of {account} must be at most that of"
                            f" {of or dataset}, which contains it: {getattr(above, word)}"
                        )
                write.allocation(terms)
            return account_of(write.db, dataset, account)

    def datasets(self) -> tuple[Account, ...]:
        """Return all accounts by name, without their allocations."""
        with self._reading() as db:
            return tuple(account_of(db, name) for name in registered(db))

    def account(self, dataset: str, account: str = "") -> Account:
        """Return the account of a registered dataset, or one of its allocations."""
        with self._reading() as db:
            return account_of(db, dataset, account)

    def allocations(self, dataset: str) -> tuple[Account, ...]:
        """Return all allocations of a registered dataset, oldest first."""
        with self._reading() as db:
            account_of(db, dataset)
            query = (
                "SELECT holder FROM purse WHERE dataset = ? AND holder <> ''"
                " GROUP BY holder ORDER BY min(event)"
            )
            holders = typed_rows(db, (str,), query, dataset)
            return tuple(account_of(db, dataset, to) for (to,) in holders)

    def entries(self, dataset: str, last: int | None = None) -> tuple[Entry, ...]:
        """Return a dataset's entries, oldest first, including void ones, or only the last few."""
        last = None if last is None else check.integer("last", last, 1)
        with self._reading() as db:
            account_of(db, dataset)
            return entries_of(db, dataset, last)

    def entry(self, number: int) -> Entry:
        """Return the entry with a number."""
        number = check.integer("number", number)
        with self._reading() as db:
            return entry_of(db, number)

    def check(
        self,
        dataset: str,
        *,
        protects: str,
        neighboring: Neighboring,
        rows: int,
        charge: object,
        delta: object = 0,
        account: str = "",
        part: str = "",
        totals: str = "",
    ) -> Account:
        """Return the account if ``reserve`` would grant this charge now. Write nothing.

        Raises:
            LedgerError: the dataset is not registered, or has another privacy unit.
            BudgetRefused: the charge or the delta is larger than its balance.
        """
        asked = amount("charge", charge), amount("delta", delta)
        unit = unit_of(protects, neighboring, rows, totals)
        with self._reading(self._checkpoint_path) as db:
            now = situation(db, dataset, account, part)
            admit(dataset, unit, *asked, now)
            return account_of(db, dataset, account)

    def turn(self, key: str, wait: float) -> AbstractContextManager[None]:
        """Hold a plan's turn, so that one process at a time runs it on this ledger.

        The turn ends with its process. The budget does not depend on turns.

        Args:
            key: any text that identifies the plan.
            wait: largest number of seconds to wait for another run of the plan.

        Raises:
            LedgerError: the other run has not ended.
        """
        return self._store.turn(text("key", key), check.between("wait", wait, 0.0, 604_800.0))

    def reserve(
        self,
        dataset: str,
        *,
        key: str,
        protects: str,
        neighboring: Neighboring,
        rows: int,
        charge: object,
        delta: object = 0,
        mechanisms: object,
        plan: str,
        account: str = "",
        part: str = "",
        again: bool = False,
        totals: str = "",
    ) -> Entry:
        """Reserve a charge durably, before any private data is opened.

        If an earlier entry of the key never began reading, it is made void, and its run cannot
        begin anymore. If it did begin, someone may have seen its noise. Then the reservation is
        refused, unless ``again``.

        Args:
            dataset: a registered "name@version".
            key: hash of the plan and of the dataset version, computed by the caller.
            protects, neighboring, rows, totals: the privacy unit, as registered by `create`.
            charge: exact amount in the account's currency, at least 0. It counts rounded up.
            delta: the probability that the plan's steps fail outright, in [0, 1].
            mechanisms: the mechanism list, as JSON types. The guarantee is recomputed from it.
            plan: the plan, as JSON text.
            account: the allocation that pays. "" is the account itself.
            part: the only declared part that is read. "" is all the data.
            again: if True, charge although an earlier run of the key is unfinished.

        Raises:
            LedgerError: the dataset is not registered or has another privacy unit, or the key is
                unfinished or published.
            BudgetRefused: the charge or the delta is larger than its balance.
        """
        terms = reservation_terms(dataset, account, part, key, charge, delta, mechanisms, plan)
        asked = Fraction(terms["charge"]), Fraction(terms["delta"])
        unit = unit_of(protects, neighboring, rows, totals)
        number = None if self._checkpoint_path else self._reserve_fast(terms, unit)
        if number is None:
            with self._write_transaction() as write:
                now = situation(write.db, dataset, account, part, key)
                write.at(now.number, now.head)
                if now.tries and settle(write, dataset, key, again):
                    now = situation(write.db, dataset, account, part, key)
                admit(dataset, unit, *asked, now)
                if now.terms.approval:
                    refuse_unapproved(write.db, dataset, key, plan)
                number = now.last + 1
                write.reserve(number, terms)
        return Entry(
            id=number,
            dataset=dataset,
            key=key,
            state="reserved",
            charge=asked[0],
            delta=asked[1],
            mechanisms=json.loads(terms["mechanisms"]),
            plan=plan,
            created=terms["when"],
            finished=None,
            to=account,
            part=part,
        )

    def begin(self, entry: Entry | int) -> Entry:
        """Mark an entry as reading, which makes its charge permanent.

        Args:
            entry: a reserved entry, or its number. The entry that `reserve` returned also detects a
                copy of the ledger in which the number belongs to another charge.

        Raises:
            LedgerError: the entry does not exist, has begun, or is void.
        """
        asked = _entry_or_number(entry)
        with self._write_transaction() as write:
            entry = meant(write.db, asked)
            if entry.state != "reserved":
                why = {
                    "void": "is void: a later run of the same plan, or the operator, has taken its"
                    " place; run the plan again",
                    "reading": "has begun already, in another run; reserve another entry",
                    "released": "is released already; the same plan gives its files at no charge",
                }
                raise LedgerError(f"entry {entry.id} of {entry.dataset} {why[entry.state]}")
            write.begin(entry.id)
            return entry_of(write.db, entry.id)

    def balance(self, entry: Entry | int) -> Balance:
        """Return what the ledger says about the budget of the people of a charged entry.

        Args:
            entry: an entry that is not void, or its number.
        """
        asked = _entry_or_number(entry)
        with self._reading(self._checkpoint_path) as db:
            return balance_of(db, meant(db, asked))

    def steps(self, entry: Entry | int) -> int | None:
        """Return how many steps of an entry have begun, or None before the first count.

        Args:
            entry: a reading entry, or its number. A released entry has no count.
        """
        asked = _entry_or_number(entry)
        with self._reading(self._checkpoint_path) as db:
            return steps_of(db, meant(db, asked).id)

    def count_steps(self, entry: Entry | int, before: int | None, after: int) -> None:
        """Count steps of an entry durably, before their first random bit is drawn.

        A run of many steps, such as a training run, stores its state in a folder. Only one copy of
        the folder can match the ledger's number, so no step is drawn twice.

        Args:
            entry: a reading entry, or its number.
            before: the result of `steps`, or the last count.
            after: the new number of steps that have begun, above ``before``.

        Raises:
            LedgerError: the entry is not reading, or the ledger's number is not ``before``. Then
                nothing is counted.
        """
        asked = _entry_or_number(entry)
        least = 1 if before is None else check.integer("before", before) + 1
        number = check.integer("after", after, least, 2**62)
        with self._write_transaction() as write:
            count_steps(write, asked, before, number)

    def void(self, entry: Entry | int, why: str = "by the operator") -> Entry:
        """Cancel an entry that never began reading and restore its charge.

        Args:
            entry: a reserved entry, or its number.
            why: the reason, which the chain records.

        Raises:
            LedgerError: the entry does not exist, or it began reading, which makes its charge
                permanent.
        """
        asked = _entry_or_number(entry)
        with self._write_transaction() as write:
            entry = meant(write.db, asked)
            if entry.state == "void":
                return entry
            if entry.state != "reserved":
                raise LedgerError(
                    f"entry {entry.id} of {entry.dataset} is {entry.state}: data were read, or may"
                    " have been, so its charge is permanent"
                )
            write.void(entry.id, text("why", why))
            return entry_of(write.db, entry.id)

    def finish(
        self,
        entry: Entry | int,
        files: Mapping[str, bytes | Path],
        *,
        corrects: int | None = None,
        why: str = "",
    ) -> Entry:
        """Store a release's files, and then mark its entry as released in one transaction.

        Args:
            entry: a reading entry, or its number (see `begin`).
            files: at least one file: contents, or paths of files that have them, by path inside the
                release's folder (with ``/``). They are stored in pieces of 1 MiB.
            corrects: the number of the published entry that this one replaces, or None.
            why: the reason of the correction, which the chain records.

        Returns:
            The entry whose files are published. If another entry of the key finished first, it is
            that one. This entry is then released without its files.

        Raises:
            LedgerError: the entry does not exist, or is not reading.
        """
        if corrects is not None:
            corrects, why = check.integer("corrects", corrects, 1), text("why", why)
        asked = _entry_or_number(entry)
        return publish(self._write_transaction, asked, files, corrects, why)

    def approve(
        self,
        dataset: str,
        key: str,
        *,
        plan: str,
        who: str,
        purpose: str = "",
        until: str = "",
        public: str = "",
        signature: str = "",
    ) -> None:
        """Record that a second person approved a plan.

        Args:
            dataset: a registered "name@version".
            key: the key of its entries: the hash of the plan.
            plan: the plan's name.
            who, purpose, until, public, signature: as for `Approval`. The caller checks the
                signature.

        Raises:
            LedgerError: the dataset is not registered, or the plan is approved already.
        """
        key = text("key", key)
        terms = approval_terms(key, plan, who, purpose, until, public, signature)
        with self._write_transaction() as write:
            account_of(write.db, dataset)
            if before := approval_of(write.db, dataset, key):
                raise LedgerError(
                    f"{plan} of {dataset} is approved already, by {before.who} on"
                    f" {before.when[:10]}: revoke that first, to approve it on other terms"
                )
            write.note("approve", dataset, key, **terms)

    def revoke(self, dataset: str, key: str, *, who: str) -> None:
        """Take an approval back, for the future. What was charged and published stays.

        Raises:
            LedgerError: the plan is not approved.
        """
        key, who = text("key", key), text("who", who)
        with self._write_transaction() as write:
            account_of(write.db, dataset)
            if approval_of(write.db, dataset, key) is None:
                raise LedgerError(f"{key} of {dataset} is not approved, so nothing is taken back")
            write.note("revoke", dataset, key, who=who)

    def approval(self, dataset: str, key: str) -> Approval | None:
        """Return the approval of a key that stands, or None."""
        key = text("key", key)
        with self._reading(self._checkpoint_path) as db:
            account_of(db, dataset)
            return approval_of(db, dataset, key)

    def approval_text(self, dataset: str, key: str, who: str, purpose: str, until: str) -> bytes:
        """Return what an approver signs: the ledger, dataset, plan's hash, and terms."""
        terms = {"dataset": dataset, "plan_hash": key, "who": who, "purpose": purpose}
        terms |= {"ledger": self.checkpoint().ledger, "until": until}
        return f"neyman-approval/1 {canonical_json(terms)}".encode()

    def withdraw(self, entry: Entry | int, why: str) -> Entry:
        """Record that a published release was taken back. Its charge stands.

        Args:
            entry: a released entry, or its number.
            why: the reason, which the chain records.

        Raises:
            LedgerError: the entry is not published, or is corrected or withdrawn already.
        """
        asked, why = _entry_or_number(entry), text("why", why)
        with self._write_transaction() as write:
            entry = meant(write.db, asked)
            refuse_sequel(write.db, entry)
            write.note("withdraw", entry.dataset, str(entry.id), why=why)
            return entry

    def sequels(self, entry: Entry | int) -> tuple[Sequel, ...]:
        """Return what happened to a published release, and to each release that replaced it.

        Args:
            entry: a released entry, or its number.

        Returns:
            () if the release stands. If the last `Sequel` has no entry, nothing stands.
        """
        asked = _entry_or_number(entry)
        with self._reading(self._checkpoint_path) as db:
            return sequels_of(db, meant(db, asked))

    def correctable(self, entry: Entry | int) -> Entry:
        """Return a published entry that a correction may replace.

        Raises:
            LedgerError: the entry is not published, or is corrected or withdrawn already.
        """
        asked = _entry_or_number(entry)
        with self._reading(self._checkpoint_path) as db:
            entry = meant(db, asked)
            refuse_sequel(db, entry)
            return entry

    def published(self, dataset: str, key: str) -> tuple[Entry, StoredFiles] | None:
        """Return the released entry of a key with its files, so a retry gets the same bytes.

        Return None if no entry of the key is released. Each file is read at its first use.
        """
        key = text("key", key)
        with self._reading(self._checkpoint_path) as db:
            account_of(db, dataset)
            first = publisher_of(db, dataset, key)
            if first is None:
                return None
            files = StoredFiles(self._store, *first, hashes_of(db, first[0]))
            return entry_of(db, first[0]), files

    def checkpoint(self) -> Checkpoint:
        """Return a one-line checkpoint. Store it where the ledger's writers cannot change it."""
        with self._reading() as db:
            return checkpoint_of(db)

    def keep_checkpoint(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Write a checkpoint to a file, or advance the file's checkpoint.

        Raises:
            LedgerError: the file has the checkpoint of another ledger, or this ledger is behind it.
        """
        path = Path(check.path("path", path)).absolute()
        with self._reading(path if path.exists() else None) as db:
            checkpoint = checkpoint_of(db)
        write_checkpoint(path, checkpoint)
        return checkpoint

    def confirm_location(self, why: str = "moved by the operator") -> Checkpoint:
        """Record the current location of a SQLite ledger as an event.

        A ledger is only accepted in the folder, under the name, and in the file in which it was
        made or last confirmed. Elsewhere it would have a second log, which could grant its cap
        twice. Use this after you moved the ledger or restored a backup, if no other copy is used.

        Args:
            why: the reason, which the chain records.

        Returns:
            The ledger's newest checkpoint. Compare it with a checkpoint that was stored elsewhere,
            because a backup lacks later charges.

        Raises:
            LedgerError: another process is connected to the file, the ledger or its log still
                exists in the old place, the ledger does not verify, or it is not stored in SQLite.
        """
        why = text("why", why)
        with _sound(self._store.where), self._store.relocating() as db:
            if db is not None:
                self._refuse_rollback(db)
                Writer(db).append("location", {"why": why})
        path = self._checkpoint_path
        return self.keep_checkpoint(path) if path else self.checkpoint()

    def verify(self, checkpoint: Checkpoint | None = None) -> Audit:
        """Recompute the hash chain and every balance that follows from it.

        Args:
            checkpoint: a checkpoint that this ledger must continue.
        """
        if not isinstance(checkpoint, Checkpoint | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"checkpoint = {checkpoint!r} must be a Checkpoint, or None")
        with _sound(self._store.where):
            problems = self._store.problems()
        with self._reading() as db:
            report = audit(db, problems, self._store.failures)
            if checkpoint is not None and (why := behind(db, checkpoint)):
                report = report.with_problem(why)
            return report

    def lines(self, after: int = 0) -> Iterator[str]:
        """Yield the lines of all events after a number, in order, for independent checks."""
        after = check.integer("after", after)
        while True:
            with self._reading() as db:
                page = list(lines(db, after, _PAGE_EVENTS))
            if not page:
                return
            for number, line in page:
                after = number
                yield line

    def _reserve_fast(self, terms: Mapping[str, Any], unit: tuple[str, str, int]) -> int | None:
        """Return the new entry's id if the store grants the charge in one step, else None."""
        units = terms["units"], terms["delta_units"]
        if max(units) > MOST:
            return None
        line = line_around("reserve", terms)
        whose = terms["dataset"], terms["to"], terms["part"], terms["key"]
        with _sound(self._store.where):
            return self._store.reserve_fast(Reservation(*whose, *unit, *units, line))

    @contextmanager
    def _reading(self, saved: Path | None = None) -> Generator[Transaction]:
        # Read the checkpoint before the transaction: a later checkpoint would be ahead of it.
        had = saved and Checkpoint.load(saved)
        with _sound(self._store.where), self._store.reading() as db:
            if had:
                _refuse_behind(db, had, saved)
            yield db

    @contextmanager
    def _write_transaction(self) -> Generator[Writer]:
        path = self._checkpoint_path
        with _sound(self._store.where), self._store.writing() as db:
            self._refuse_rollback(db)
            write = Writer(db)
            yield write
            own = ledger_id(db) if path and write.number else ""
        if path and own:
            write_checkpoint(path, Checkpoint(own, write.number, write.head))

    def _refuse_rollback(self, db: Transaction) -> None:
        """Refuse a ledger that is behind its checkpoint file."""
        if self._checkpoint_path:
            _refuse_behind(db, Checkpoint.load(self._checkpoint_path), self._checkpoint_path)


def _entry_or_number(entry: Entry | int) -> Entry | int:
    return entry if isinstance(entry, Entry) else check.integer("entry", entry)


def _terms(line: str, like: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms in an event's line. Check that they have the types of those in ``like``."""
    has = fields(line)
    for name, value in like.items():
        if name.endswith("cap"):
            fraction(has, name)
        elif isinstance(value, list):
            texts(has.get(name))
        else:
            typed_field(has, name, type(cast(object, value)))
    return has


@contextmanager
def _sound(where: str) -> Generator[None]:
    """Turn `Damage` inside the context into the `LedgerError` that refuses this ledger."""
    try:
        yield
    except Damage as damage:
        raise damaged(where, damage) from damage


def _refuse_behind(db: Transaction, checkpoint: Checkpoint, path: Path | None) -> None:
    if why := behind(db, checkpoint):
        raise LedgerError(f"{why} (checkpoint {path})")


def _store_at(url: str | os.PathLike[str], wait: float) -> Store:
    """Return the store that a url names, without opening it."""
    path = check.path("url", url)
    if path == ":memory:":
        raise ValueError("url = ':memory:' must be the path of a file, such as 'ledger.db'")
    if path.startswith(("postgresql://", "postgres://")):
        from neyman.ledger.postgres.store import PostgreSQL

        return PostgreSQL(path, wait)
    if "://" in path:
        raise ValueError(
            f"url begins with {path.partition('://')[0]!r}: supported are the path of a SQLite"
            " file, such as 'ledger.db', and postgresql://..."
        )
    return SQLiteFile(Path(os.path.realpath(path)), wait)
