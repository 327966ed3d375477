"""One release: check everything, charge, then read the data and draw the noise."""

from __future__ import annotations

import importlib.metadata
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from neyman.accounting.charge import charge
from neyman.extras import library_warnings
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import ChargedError, LedgerError
from neyman.ledger.records import Entry as LedgerEntry
from neyman.ledger.throwaway import NOTICE, Throwaway
from neyman.mechanisms.base import Mechanism
from neyman.noise import Bits, SecureBits
from neyman.numerics import check
from neyman.numerics.relation import Neighboring

__all__ = ["Release", "radius_of", "relation_of"]

RECEIPT = "receipt.json"
DELTAS = (1e-5, 1e-6, 1e-9)
LEVELS = (0.001, 0.01, 0.05, 0.1)
CONDITIONS = (
    "Each person has at most one record.",
    "All arguments but the records are chosen without the private data, or are paid for.",
    "Nobody sees the records, the exact statistics, or the noise.",
)
Kind = Literal["estimate", "test"]
NAMED = {"estimate": "estimator", "test": "test"}
RELATIONS: tuple[Neighboring, ...] = ("replace-one", "add-remove")
LEAST_RADIUS, MOST_RADIUS = Fraction(1, 10**100), Fraction(10**100)
Outcome = TypeVar("Outcome")


def relation_of(
    neighboring: Neighboring, *, valid: tuple[Neighboring, ...] = RELATIONS, why: str = ""
) -> Neighboring:
    """Return the relation; refuse one that the estimator has no guarantee for.

    Args:
        neighboring: what the caller gave.
        valid: the relations of the estimator.
        why: the reason, where only some are valid.
    """
    if neighboring not in valid:
        also = f". {why}" if why and neighboring in RELATIONS else ""
        raise ValueError(
            f"neighboring = {neighboring!r} must be {' or '.join(map(repr, valid))}{also}"
        )
    return neighboring


def radius_of(radius: object, name: str = "radius") -> Fraction:
    """Return the radius of a ball, exact."""
    exact = check.exact(name, radius)
    if not LEAST_RADIUS <= exact <= MOST_RADIUS:
        raise ValueError(
            f"{name} = {radius!r} must be from 1e-100 to 1e100; state the records in another unit"
        )
    return exact


@dataclass(frozen=True)
class Release:
    """A release that has passed every check and has not been charged.

    Args:
        name: of the estimator.
        arguments: the public arguments, as JSON types.
        mechanism: what is released.
        neighboring: the relation that the mechanism's shifts are stated for.
        ledger: what is charged; None where nothing is.
        dataset: "name@version"; "" without a ledger.
        terms: what `Ledger.reserve` gets.
        proof: the page of certificates.
        kind: of the release: an estimate, or a test.
    """

    name: str
    arguments: Mapping[str, Any]
    mechanism: Mechanism
    neighboring: Neighboring
    ledger: Ledger | None
    dataset: str
    terms: Mapping[str, Any]
    proof: str = "estimators"
    kind: Kind = "estimate"

    @classmethod
    def of(
        cls,
        name: str,
        arguments: Mapping[str, Any],
        mechanism: Mechanism,
        neighboring: Neighboring,
        ledger: Ledger | str | Path | None,
        dataset: str | None,
        account: str | None,
        proof: str = "estimators",
        *,
        kind: Kind = "estimate",
    ) -> Release:
        """Check a release and that its charge would be granted; charge nothing.

        Args:
            name, arguments, mechanism, neighboring: as the class has them.
            ledger: a `Ledger`, its path, or None: then nothing is charged, and the receipt says so.
            dataset: "name@version", with a ledger.
            account: the allocation of the dataset's account that pays.
            proof: as the class has it.
            kind: of the release: an estimate, or a test.

        Raises:
            ValueError: ledger and dataset do not come together, the dataset's relation or number of
                rows is another one, or its currency pays for no such release.
            LedgerError, BudgetRefused: the dataset is not registered, or too little is left.
        """
        if ledger is None:
            if dataset is not None or account is not None:
                raise ValueError(
                    f"dataset = {dataset!r}, account = {account!r} go with a ledger; give ledger= "
                    "too, or leave them out"
                )
            return cls(name, arguments, mechanism, neighboring, None, "", {}, proof, kind)
        if dataset is None:
            raise ValueError(
                "dataset = None: with a ledger, give the dataset= that pays, such as 'survey@1'"
            )
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if isinstance(book, Throwaway):
            book.register(dataset, protects="person", neighboring=neighboring, rows=1)
        paid = book.account(dataset, account or "")
        if paid.neighboring != neighboring:
            if kind == "test":
                raise ValueError(
                    f"dataset = {dataset!r} is registered under {paid.neighboring!r}; this test "
                    f"needs one under {neighboring!r}, because n is public"
                )
            raise ValueError(
                f"neighboring = {neighboring!r}, and {dataset} is registered under "
                f"{paid.neighboring!r}; give neighboring={paid.neighboring!r}"
            )
        if paid.rows != 1:
            raise ValueError(
                f"{dataset} has up to {paid.rows} rows per {paid.protects}; this release protects"
                " one record. Register a dataset with one row per unit"
            )
        amount, delta = charge(mechanism, paid.currency)
        unit = {"protects": paid.protects, "neighboring": neighboring, "rows": 1, "to": paid.to}
        book.check(dataset, **unit, charge=amount, delta=delta)
        terms = {**unit, "charge": amount, "delta": delta, "currency": paid.currency}
        return cls(name, arguments, mechanism, neighboring, book, dataset, terms, proof, kind)

    @classmethod
    def of_test(
        cls,
        name: str,
        arguments: Mapping[str, Any],
        mechanism: Mechanism,
        ledger: Ledger | str | Path | None,
        dataset: str | None,
        account: str | None,
    ) -> Release:
        """Check a private test as `of` does: under replace-one, because n is public."""
        return cls.of(
            name,
            arguments,
            mechanism,
            "replace-one",
            ledger,
            dataset,
            account,
            proof="private-tests",
            kind="test",
        )

    def draw(
        self, compute: Callable[[Bits], Outcome], published: Callable[[Outcome], Mapping[str, Any]]
    ) -> tuple[Outcome, dict[str, Any]]:
        """Charge, and only then read the data and draw the noise [EM-1].

        Args:
            compute: random bits -> the noisy result. It reads the private data.
            published: the result -> what of it the receipt has, as JSON types; of the noisy result
                alone.

        Returns:
            The result, and the receipt.

        Raises:
            LedgerError, BudgetRefused: nothing was charged.
            ChargedError: the computation failed after its charge, which stands. Without a ledger a
                RuntimeError. Neither has anything of the data.
        """
        receipt = self._draft()
        bits = SecureBits()
        entry = self._charged(receipt)
        failure = ""
        try:
            with library_warnings():
                outcome = compute(bits)
            receipt["result"] = dict(published(outcome))
            receipt["ledger"] = self._ledger_part(entry)
            if self.ledger is not None and entry is not None:
                text = json.dumps(receipt, indent=2, sort_keys=True) + "\n"
                self.ledger.finish(entry, {RECEIPT: text.encode()})
            return outcome, receipt
        except LedgerError:
            raise
        except Exception as error:
            failure = type(error).__name__  # the message may hold something of the data
        # Raised out here so that nothing leads back from it to the error and its values.
        if entry is None:
            raise RuntimeError(f"{self.name}: the {self.kind} failed ({failure})")
        raise ChargedError(
            f"{self.name}: failed after the charge, which stands (entry {entry.id} of "
            f"{self.dataset}): {failure}"
        )

    def _charged(self, receipt: Mapping[str, Any]) -> LedgerEntry | None:
        """Charge the release, durably, and mark its entry as reading."""
        if self.ledger is None:
            return None
        terms = {name: value for name, value in self.terms.items() if name != "currency"}
        entry = self.ledger.reserve(
            self.dataset,
            # Each call is a charge of its own with new noise.
            key=f"{self.kind} {self.name} {secrets.token_hex(16)}",
            mechanisms=[{"mechanism": self.mechanism.to_dict(), "count": 1}],
            plan=json.dumps(receipt, sort_keys=True),
            **terms,
        )
        return self.ledger.begin(entry)

    def _draft(self) -> dict[str, Any]:
        """Return the receipt without a result: nothing of it depends on the data."""
        return {
            "schema": f"neyman-{self.kind}/1",
            NAMED[self.kind]: self.name,
            "arguments": dict(self.arguments),
            "dataset": self.dataset or None,
            "neighboring": self.neighboring,
            "mechanism": self.mechanism.to_dict(),
            "guarantee": json.loads(_guarantee(self.mechanism)),
            "proof": f"docs/certificates/{self.proof}.md",
            "conditions": list(CONDITIONS),
            "seeds": None,
            "versions": {"neyman": importlib.metadata.version("neyman"), "numpy": np.__version__},
        }

    def _ledger_part(self, entry: LedgerEntry | None) -> dict[str, Any]:
        if entry is None or self.ledger is None:
            return {
                "charged": "nothing",
                "note": "No ledger was given: nothing was charged, and nothing limits what other "
                "releases of these records reveal.",
            }
        part: dict[str, Any] = {
            "account": self.dataset,
            "entry": str(entry.id),
            "currency": self.terms["currency"],
            "charged": str(entry.charge),
            "charged_delta": str(entry.delta),
        }
        if self.ledger.throwaway:
            part |= {"throwaway": True, "note": NOTICE}
        return part


@lru_cache(maxsize=64)
def _guarantee(mechanism: Mechanism) -> str:
    """Return what the release reveals as JSON, each number with both ends."""
    curve = mechanism.tradeoff()
    epsilons = [(d, curve.epsilon(delta=d)) for d in DELTAS]
    powers = [(a, curve.power(level=a)) for a in LEVELS]
    guarantee = {
        "epsilon": [
            {"delta": d, "lower": _finite(e.lower), "upper": _finite(e.upper)} for d, e in epsilons
        ],
        "power": [{"level": a, "lower": b.lower, "upper": b.upper} for a, b in powers],
    }
    return json.dumps(guarantee)


def _finite(epsilon: float) -> float | None:
    """Return an epsilon as JSON has it: null where no finite one holds."""
    return epsilon if epsilon < math.inf else None
