"""Replace a published release by a corrected one, and copy the tables that were right.

A copied table has the bytes of the published one. Nothing reads its values, so public facts alone
decide what is copied. A table that is computed again gets new noise, and is charged in full. No
part adds published noise to other data: the difference of the two tables would be the exact change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neyman.ledger.ledger import Ledger
from neyman.ledger.published_files import StoredFiles
from neyman.ledger.records import LedgerError
from neyman.publishing.consistency.published_forms import FOLDER
from neyman.publishing.engines.data_schema import columns_read
from neyman.publishing.plan.field_types import PlanError, suggest
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import CorrectsPart
from neyman.publishing.release.folder import LIMITS, Release, Staging
from neyman.publishing.release.receipt import mechanism_list
from neyman.publishing.release.receipt_format import RECEIPT, MechanismPart, Receipt, ReceiptTable
from neyman.storage.reading import read_file, read_json

_FREE = ("name", "publisher", "dataset", "budget", "corrects", "consistency")
"""The fields of a plan that do not decide what a query counts."""


def correcting(
    plan: Plan, release: Release | str | Path | None, why: str, copied: Sequence[str] = ()
) -> Plan:
    """Return the plan of a release that replaces a published one.

    Args:
        plan: the corrected plan, of all tables.
        release: the folder of the release to replace. None returns the plan.
        why: what was wrong.
        copied: names of queries whose tables are copied.

    Raises:
        PlanError: the section cannot be made of these.
    """
    if release is None:
        if why or copied:
            raise ValueError("corrects is missing: why and copied are about the release to replace")
        return plan
    old = release if isinstance(release, Release) else Release.load(release)
    digest = hashlib.sha256(read_file(old.folder / RECEIPT, LIMITS.receipt_bytes)).hexdigest()
    section = {"entry": int(old.receipt.ledger.entry), "receipt": digest, "why": why}
    content = {**plan.canonical(), "corrects": section | {"copied": [*copied]}}
    return Plan.from_dict(content)


@dataclass(frozen=True)
class Replaced:
    """Hold the published release that a plan corrects, as the ledger stores it."""

    corrects: CorrectsPart
    receipt: Receipt
    files: StoredFiles

    @classmethod
    def of(cls, plan: Plan, ledger: Ledger) -> Replaced | None:
        """Return the release that the plan corrects, or None if it corrects none.

        Raises:
            LedgerError: it is of another dataset or ledger, or is corrected or withdrawn already.
            PlanError: a table that should be copied is not the one that the plan makes.
        """
        if plan.corrects is None:
            return None
        entry = ledger.correctable(plan.corrects.entry)
        published = ledger.published(entry.dataset, entry.key)
        if published is None or published[1].hashes.get(RECEIPT) != plan.corrects.receipt:
            raise LedgerError(
                f"corrects.receipt = {plan.corrects.receipt[:12]}... is not the receipt of entry "
                f"{entry.id}: the release is of another ledger, or its receipt was changed. Name "
                "the folder and the ledger that it was published with"
            )
        own, other = ledger.account(plan.dataset), ledger.account(entry.dataset)
        if own.dataset != other.dataset and not (
            own.population and own.population == other.population
        ):
            raise LedgerError(
                f"the release to correct is of {other.dataset}, and the plan is of {own.dataset}: "
                "corrected data are the same dataset, or an edition of the same population "
                "(`neyman ledger join`)"
            )
        old = cls(plan.corrects, Receipt.read(read_json(published[1][RECEIPT])), published[1])
        if plan.corrects.copied:
            old._check_copies(plan)
        return old

    def _check_copies(self, plan: Plan) -> None:
        """Refuse a copied table that is not, cell by cell and noise by noise, the plan's."""
        before = Plan.from_dict(self.receipt.plan)
        names = [query.name for query in plan.queries]
        if plan.disjoint or before.disjoint or any(query.searched for query in plan.queries):
            raise PlanError(
                "corrects.copied: a plan with disjoint, or with bounds from the data, is charged "
                "as a whole: copy nothing"
            )
        own_noise = mechanism_list(plan, plan.calibrated())
        for name in self.corrects.copied:
            if name not in names or name not in {query.name for query in before.queries}:
                raise PlanError(
                    f"corrects.copied: {name!r} is a query of only one of the two plans; "
                    f"{suggest(name, names)}"
                )
            own, other = _definition(plan, name), _definition(before, name)
            differ = [key for key in sorted({*own, *other}) if own.get(key) != other.get(key)]
            if not differ and _noise(own_noise, name) != _noise(self.receipt.mechanisms, name):
                differ = ["noise: give the plan the budget and the shares of the release"]
            if differ:
                raise PlanError(
                    f"corrects.copied: {name!r} is not the published table: the two plans differ "
                    f"in {', '.join(differ)}; leave it out of copied, and it is computed again"
                )

    def has_all_of(self, plan: Plan) -> bool:
        """Return True if every table of the plan is copied, so that no data are read."""
        return {query.name for query in plan.queries} <= {*self.corrects.copied}

    def copy(self, stage: Staging) -> list[ReceiptTable]:
        """Write the copied tables. Return their part of the receipt."""
        listed = [
            one
            for one in self.receipt.tables
            if one.query in self.corrects.copied and not one.path.startswith(FOLDER)
        ]
        for one in listed:
            with stage.writing(one.path) as file:
                for piece in self.files.chunks(one.path):
                    file.write(piece)
        return listed


def _noise(mechanisms: Sequence[MechanismPart], name: str) -> list[dict[str, Any]]:
    return [part.to_dict() for part in mechanisms if part.query == name]


def _definition(plan: Plan, name: str) -> dict[str, Any]:
    """Return everything that decides what one query counts, as JSON types."""
    alone = plan.changed(queries=(plan.query(name),), fixed=(), totals=())
    content = {key: value for key, value in alone.canonical().items() if key not in _FREE}
    # A title is only what a report prints.
    content["query"] = [{**query, "title": None} for query in content["query"]]
    columns = content["columns"]
    read = {name for query in content["query"] for name in query.get("by", ())}
    read |= {*columns_read(alone, [*columns])}
    return content | {"columns": {key: columns[key] for key in columns if key in read}}
