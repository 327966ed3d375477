"""Release a noisy statistic in one charged call, with a receipt."""

from __future__ import annotations

import importlib.metadata
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar, Unpack

import numpy as np

from neyman.accounting.charges import charge
from neyman.analysis.estimators.shared_arguments import Shared
from neyman.ledger.records import Account, LedgerError
from neyman.ledger.throwaway import NOTICE
from neyman.mechanisms.base import Mechanism
from neyman.noise.bits import Bits, SecureBits
from neyman.numerics.relation import Neighboring
from neyman.publishing.release.charged_call import ChargedCall, Payer, call_guarantee, opened
from neyman.publishing.release.receipt_format import (
    RECEIPT,
    EstimateReceipt,
    LedgerPart,
    TestReceipt,
)

CONDITIONS = (
    "Each person has at most one record.",
    "All arguments but the records are chosen without the private data, or are paid for.",
    "No one sees the records, the exact statistics, or the noise.",
)
UNPAID = LedgerPart(
    charged="nothing",
    note="No ledger was given: nothing was charged, and nothing limits what other releases of "
    "these records reveal.",
)
Noisy = TypeVar("Noisy")


@dataclass(frozen=True)
class Statistic(Generic[Noisy]):
    """Represent a noisy statistic that can be released.

    Args:
        arguments: the public arguments, as JSON types.
        draw: a function from random bits to the noisy statistic. It reads the private data.
        published: a function from the noisy statistic to the receipt's content, as JSON types. It
            reads only the noisy statistic.
        proof: name of the page of certificates that proves the guarantee.
        kind: the kind of the release. A test has a public n, so its relation is "replace-one".
    """

    name: str
    arguments: Mapping[str, object]
    mechanism: Mechanism
    draw: Callable[[Bits], Noisy]
    published: Callable[[Noisy], Mapping[str, object]]
    proof: str = "estimators"
    kind: Literal["estimate", "test"] = "estimate"

    def release(self, **paid: Unpack[Shared]) -> tuple[Noisy, dict[str, Any]]:
        """Check the arguments and charge the ledger. Then read the data and draw the noise [EM-1].

        Args:
            **paid: the ledger, the paying dataset and account, and the relation of the
                sensitivities.

        Raises:
            ValueError: only one of ledger and dataset is given, the dataset has another relation or
                number of rows, or its currency cannot pay for this release.
            LedgerError, BudgetRefused: nothing was charged.
            ChargedError: the computation failed after its charge, which stands. Without a ledger it
                is a RuntimeError. Neither message contains any data.
        """
        payer, price = self._check_price(paid)
        receipt = self._draft(paid)
        bits = SecureBits()
        entry = None
        if payer is not None:
            plan = receipt.to_dict()
            del plan["ledger"], plan["result"]
            entry = payer.reserve(
                *price,
                # Each call is its own charge with new noise.
                key=f"{self.kind} {self.name} {secrets.token_hex(16)}",
                mechanisms=[{"mechanism": self.mechanism.to_dict(), "count": 1}],
                plan=json.dumps(plan, sort_keys=True),
            )
        stands = f"(entry {entry.id} of {entry.dataset})" if entry else ""

        def message(kind: str, _: str) -> str:
            if not stands:
                return f"{self.name}: the {self.kind} failed ({kind})"
            return f"{self.name}: failed after the charge, which stands {stands}: {kind}"

        with ChargedCall(payer, entry, message, unchanged_errors=(LedgerError,)) as call:
            noisy = self.draw(bits)
            update: dict[str, object] = {"result": dict(self.published(noisy))}
            if payer is not None and entry is not None:
                part = payer.ledger_part(entry)
                note = {"note": NOTICE} if part.throwaway else {}
                update["ledger"] = part.model_copy(update=note)
            receipt = receipt.model_copy(update=update)
            call.finish({RECEIPT: receipt.to_bytes()})
        return noisy, receipt.to_dict()

    def _check_price(self, paid: Shared) -> tuple[Payer | None, tuple[Fraction, Fraction]]:
        """Return the payer, or None without a ledger, and the price. Refuse a price over the cap.

        Charge nothing.
        """
        ledger, dataset, to = paid.get("ledger"), paid.get("dataset"), paid.get("account")
        neighboring = paid.get("neighboring", "replace-one")
        if ledger is None:
            if dataset is not None or to is not None:
                raise ValueError(
                    f"dataset = {dataset!r}, account = {to!r} go with a ledger; give ledger= "
                    "too, or leave them out"
                )
            return None, (Fraction(0), Fraction(0))
        if dataset is None:
            raise ValueError(
                "dataset = None: with a ledger, give the dataset= that pays, such as 'survey@1'"
            )
        book = opened(ledger)
        Payer(book, dataset, "person", neighboring, 1).register()
        account = book.account(dataset, to or "")
        self._check_unit(account, neighboring)
        price = charge(self.mechanism, account.currency)
        payer = Payer.of(book, account)
        payer.check(*price)
        return payer, price

    def _check_unit(self, account: Account, neighboring: Neighboring) -> None:
        """Refuse a dataset with another neighboring relation, or several rows per privacy unit."""
        if account.neighboring != neighboring:
            if self.kind == "test":
                raise ValueError(
                    f"dataset = {account.dataset!r} is registered under {account.neighboring!r}; "
                    f"this test needs one under {neighboring!r}, because n is public"
                )
            raise ValueError(
                f"neighboring = {neighboring!r}, and {account.dataset} is registered under "
                f"{account.neighboring!r}; give neighboring={account.neighboring!r}"
            )
        if account.rows != 1:
            raise ValueError(
                f"{account.dataset} has up to {account.rows} rows per {account.protects}; this "
                "release protects one record. Register a dataset with one row per unit"
            )

    def _draft(self, paid: Shared) -> EstimateReceipt | TestReceipt:
        """Return the receipt before the result and the charge. It does not depend on the data."""
        content: dict[str, Any] = {
            "arguments": dict(self.arguments),
            "dataset": paid.get("dataset"),
            "neighboring": paid.get("neighboring", "replace-one"),
            "mechanism": self.mechanism.to_dict(),
            "guarantee": call_guarantee(self.mechanism),
            "proof": f"docs/certificates/{self.proof}.md",
            "conditions": CONDITIONS,
            "ledger": UNPAID,
            "result": {},
            "seeds": None,
            "versions": {"neyman": importlib.metadata.version("neyman"), "numpy": np.__version__},
        }
        if self.kind == "test":
            return TestReceipt(schema=TestReceipt.SCHEMA, test=self.name, **content)
        return EstimateReceipt(schema=EstimateReceipt.SCHEMA, estimator=self.name, **content)
