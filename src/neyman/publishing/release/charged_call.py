"""Charge a ledger before private data are read, and store what the call published afterward.

`Payer.check` confirms that the ledger would grant the charge. `Payer.reserve` makes the charge
durable. Entering a `ChargedCall` durably marks the entry as reading. Only this block reads private
data and draws randomness. `ChargedCall.finish` stores the receipt and marks the entry as released.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict

from neyman.extras import library_warnings
from neyman.ledger.ledger import Ledger
from neyman.ledger.published_files import StoredFiles
from neyman.ledger.records import Account, ChargedError, Entry
from neyman.ledger.throwaway import Throwaway
from neyman.mechanisms.base import Mechanism
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.plan_fields import CorrectsPart
from neyman.publishing.release import receipt_format as parts
from neyman.publishing.release.approval import checked_approval

DELTAS = (1e-5, 1e-6, 1e-9)
LEVELS = (0.001, 0.01, 0.05, 0.1)
_log = logging.getLogger("neyman")


class Payment(TypedDict, total=False):
    """Define the public arguments that name the account to charge. A dataset is "name@version"."""

    ledger: Ledger | str | Path | None
    dataset: str | None
    account: str | None


def opened(ledger: Ledger | str | Path) -> Ledger:
    """Return the ledger. Open it if its path is given."""
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


@dataclass(frozen=True)
class Payer:
    """Describe the account that pays, and the privacy unit it must have. An empty text is none."""

    ledger: Ledger
    dataset: str
    protects: str
    neighboring: Neighboring
    rows: int
    account: str = ""
    part: str = ""
    currency: str = ""
    totals: str = ""

    @classmethod
    def of(cls, ledger: Ledger, account: Account, part: str = "", totals: str = "") -> Payer:
        """Return the payer for an account, with the privacy unit of the account's registration.

        ``totals`` is the `totals_hash` of the release's plan. An account that is registered with
        totals refuses a charge with another hash, or without one.
        """
        unit = account.protects, account.neighboring, account.rows
        return cls(ledger, account.dataset, *unit, account.to, part, account.currency, totals)

    def register(self) -> None:
        """Register the dataset with this unit if the ledger is a throwaway ledger."""
        if isinstance(self.ledger, Throwaway):
            self.ledger.register(
                self.dataset,
                protects=self.protects,
                neighboring=self.neighboring,
                rows=self.rows,
                totals=self.totals,
            )

    def check(self, charge: Fraction | int, delta: Fraction | int = 0) -> Account:
        """Return the account if the ledger would grant this charge now; see `Ledger.check`."""
        return self.ledger.check(
            self.dataset,
            protects=self.protects,
            neighboring=self.neighboring,
            rows=self.rows,
            charge=charge,
            delta=delta,
            account=self.account,
            part=self.part,
            totals=self.totals,
        )

    def reserve(
        self,
        charge: Fraction,
        delta: Fraction,
        *,
        key: str,
        mechanisms: Sequence[Mapping[str, object]],
        plan: str,
        again: bool = False,
    ) -> Entry:
        """Reserve a charge durably; see `Ledger.reserve`."""
        checked_approval(self.ledger, self.dataset, key)
        return self.ledger.reserve(
            self.dataset,
            key=key,
            protects=self.protects,
            neighboring=self.neighboring,
            rows=self.rows,
            charge=charge,
            delta=delta,
            mechanisms=mechanisms,
            plan=plan,
            account=self.account,
            part=self.part,
            again=again,
            totals=self.totals,
        )

    def ledger_part(self, entry: Entry) -> parts.LedgerPart:
        """Return the part of a receipt about the charge."""
        return parts.LedgerPart.of(
            self.dataset,
            self.currency,
            entry.charge,
            entry.delta,
            entry=entry.id,
            throwaway=self.ledger.throwaway,
        )


@dataclass(frozen=True)
class ChargedCall:
    """Run the block that reads private data and draws randomness, after its charge.

    Entering durably marks the entry as reading, unless an earlier process did. An error inside the
    block may hold values of the data. A `ChargedError` replaces the error and holds no reference to
    it. Without an entry, a RuntimeError replaces the error.

    Args:
        payer: the payer; None if no one pays.
        entry: the charge, reserved or reading; None if nothing is charged.
        message: a function from the name of the error's type and its public message, or "", to the
            message of the `ChargedError`.
        public_errors: errors whose messages hold nothing from the data.
        unchanged_errors: errors that hold nothing from the data and are not replaced.
        logs_errors: True to log other errors at debug level.
    """

    payer: Payer | None
    entry: Entry | None
    message: Callable[[str, str], str]
    public_errors: tuple[type[Exception], ...] = ()
    unchanged_errors: tuple[type[Exception], ...] = ()
    logs_errors: bool = False
    _warnings: AbstractContextManager[None] = field(default_factory=library_warnings, repr=False)

    def __enter__(self) -> Self:
        if self.payer is not None and self.entry is not None and self.entry.state != "reading":
            self.payer.ledger.begin(self.entry)
        self._warnings.__enter__()
        return self

    def finish(
        self, files: Mapping[str, bytes | Path], corrects: CorrectsPart | None = None
    ) -> StoredFiles | None:
        """Store the files and mark the entry as released; see `Ledger.finish`.

        If an earlier call has published its files for this charge, return those files, else None.
        """
        if self.payer is None or self.entry is None:
            return None
        book, entry = self.payer.ledger, self.entry
        old: dict[str, Any] = {"corrects": corrects.entry, "why": corrects.why} if corrects else {}
        if book.finish(entry, files, **old).id == entry.id:
            return None
        first = book.published(entry.dataset, entry.key)
        return first[1] if first else None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self._warnings.__exit__(None, None, None)
        if not isinstance(error, Exception) or isinstance(error, self.unchanged_errors):
            return False
        text = str(error) if isinstance(error, self.public_errors) else ""
        if self.logs_errors and not text:
            _log.debug("failed after the charge", exc_info=error)
        charged = RuntimeError if self.entry is None else ChargedError
        hidden = charged(self.message(type(error).__name__, text))
        del error, trace  # the frame of the new error must not hold the old one
        try:
            raise hidden
        finally:
            hidden.__context__ = None  # nothing leads back to the error and its values


@lru_cache(maxsize=64)
def call_guarantee(mechanism: Mechanism) -> parts.CallGuarantee:
    """Return what one mechanism reveals, with lower and upper bounds on each number."""
    curve = mechanism.tradeoff()
    epsilons = [(delta, curve.epsilon(delta=delta)) for delta in DELTAS]
    powers = [(level, curve.power(level=level)) for level in LEVELS]
    return parts.CallGuarantee(
        epsilon=tuple(
            parts.FiniteEpsilon(delta=d, lower=_finite(e.lower), upper=_finite(e.upper))
            for d, e in epsilons
        ),
        power=tuple(parts.PowerPoint(level=a, lower=p.lower, upper=p.upper) for a, p in powers),
    )


def _finite(epsilon: float) -> float | None:
    """Return an epsilon for JSON: None, which becomes null, if it is infinite."""
    return float(epsilon) if epsilon < math.inf else None
