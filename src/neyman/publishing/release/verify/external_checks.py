"""Check a release against outside evidence: the signature, the ledger, and another program."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from neyman.accounting.semantics.digits import many
from neyman.ledger.chain import Checkpoint
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import LedgerError, Sequel
from neyman.publishing.consistency.published_forms import FOLDER
from neyman.publishing.plan.plan_fields import CorrectsPart
from neyman.publishing.release.approval import UNSIGNED, check_approval
from neyman.publishing.release.field_comparison import Differs, same, short
from neyman.publishing.release.receipt_format import RECEIPT, LedgerPart, Receipt
from neyman.publishing.release.signing import SIGNATURE, SignatureError, check_signature
from neyman.publishing.release.ssh_signature import SSH_SIGNATURE, check_ssh_signature
from neyman.publishing.release.verify.case import Case
from neyman.storage.reading import read_file

Check = Callable[[bytes, bytes, "str | Path | None"], str]
"""A function from the bytes of a receipt and of its signature, and a public key, to the signer."""
_UNSIGNED = (
    "unsigned: what follows from the receipt was checked, and a forgery that is consistent would"
    " pass; only a signature by a key that you know shows who made it"
)


def check_signed(case: Case, key: str | Path | None) -> str:
    """Check that the receipt is signed, by ``key`` if given. Return who signed it."""
    text = _signer(case, key, SIGNATURE, check_signature)
    ssh = _signer(case, key, SSH_SIGNATURE, check_ssh_signature)
    if text and ssh and text != ssh:
        raise Differs(
            f"its two signatures are by two keys: {SIGNATURE} is {text}; {SSH_SIGNATURE} is {ssh}"
        )
    if text is None and key is not None:
        raise Differs(f"there is no {SIGNATURE}: {key} has not signed this release")
    return text or ssh or _UNSIGNED


def _signer(case: Case, key: str | Path | None, name: str, check: Check) -> str | None:
    """Return who signed in one of the signature files; None if the file is missing."""
    file = case.folder / name
    if not os.path.lexists(file):
        return None
    try:
        return check(case.content, read_file(file, links=False), key)
    except SignatureError as error:
        where = "" if name == SIGNATURE else f"{name}: "
        raise Differs(f"{where}{error}") from None


def check_ledger(ledger: str | Path, checkpoint: str | Path | None = None) -> str:
    """Check the ledger's chain and all numbers that follow from it, and a checkpoint if given."""
    try:
        saved = None if checkpoint is None else Checkpoint.load(checkpoint)
        with Ledger(ledger) as book:
            report = book.verify(saved)
    except (LedgerError, ValueError) as error:
        raise Differs(str(error)) from None
    if report.problems:
        raise Differs("; ".join(report.problems[:3]))
    more = report.events - (saved.events if saved else 0)
    since = f", {more} of them since the checkpoint" if saved else ""
    return f"ledger {report.ledger} stands: a chain of {many(report.events, 'event')}{since}"


def check_published(case: Case, ledger: str | Path) -> str:
    """Check that the ledger published these files in this entry, at the stated charge."""
    plan, said = case.plan, case.receipt["ledger"]
    try:
        with Ledger(ledger) as book:
            entry_and_files = book.published(plan.dataset, plan.hash)
            after = sequel_text(book.sequels(entry_and_files[0])) if entry_and_files else ""
            approval = _check_approval(case, book)
            if plan.corrects:
                old = book.entry(plan.corrects.entry)
                before = book.published(old.dataset, old.key)
                _check_copied(case, plan.corrects, before and before[1].hashes)
    except (LedgerError, ValueError) as error:
        raise Differs(str(error)) from None
    if entry_and_files is None:
        raise Differs(f"the ledger has published nothing of plan {plan.hash[:12]}")
    entry, files = entry_and_files
    same("ledger.entry", str(entry.id), said["entry"])
    for name, own in (("charged", entry.charge), ("charged_delta", entry.delta)):
        if Fraction(str(said[name])) != own:
            # Guards against a ledger with other numbers than the receipt.
            raise Differs(f"ledger.{name} is {short(said[name])}, and was {own}")
    same("ledger.date", entry.created[:10], said["date"])
    hashes = {"receipt.json": hashlib.sha256(case.content).hexdigest()}
    hashes |= {one["path"]: one["sha256"] for one in case.receipt["tables"]}
    for path, own in hashes.items():
        if files.hashes.get(path) != own:
            raise Differs(f"{short(path)} is not the file that entry {entry.id} published")
    done = f"entry {entry.id} has published these files, and was charged {entry.charge}"
    return ". ".join(filter(None, (done, approval, after)))


def _check_approval(case: Case, ledger: Ledger) -> str:
    """Check a signed approval in the receipt. Return what the ledger says about it."""
    said = case.receipt["ledger"].get("approval")
    dataset, key = case.plan.dataset, case.plan.hash
    approval = ledger.approval(dataset, key)
    if said is None or approval is None:
        return "the approval was revoked since" if said else ""
    own = LedgerPart(charged="nothing").approved(approval).to_dict()["approval"]
    same("ledger.approval", own, said)
    check_approval(approval, ledger, dataset, key)
    return f"approved by {approval.who}, {'signed' if approval.public else UNSIGNED}"


def _check_copied(case: Case, corrects: CorrectsPart, old: Mapping[str, str] | None) -> None:
    """Check that the receipt names the release that it corrects, and copies its tables."""
    if old is None or old.get(RECEIPT) != corrects.receipt:
        raise Differs(f"plan.corrects is not the release that entry {corrects.entry} published")
    for one in case.receipt["tables"]:
        copied = one["query"] in corrects.copied and not one["path"].startswith(FOLDER)
        if copied and old.get(one["path"]) != one["sha256"]:
            raise Differs(f"{short(one['path'])} is not the file of entry {corrects.entry}")


def sequel(receipt: Receipt, ledger: str | Path) -> str:
    """Say what happened to a release after it was published, as a ledger has it; "" for nothing.

    Raises:
        LedgerError: the ledger has not published the release.
    """
    with Ledger(ledger) as book:
        published = book.published(receipt.dataset, receipt.plan_hash)
        if published is None:
            raise LedgerError(f"{ledger} has published nothing of plan {receipt.plan_hash[:12]}")
        return sequel_text(book.sequels(published[0]))


def sequel_text(sequels: Sequence[Sequel]) -> str:
    """Say what happened to a release after it was published; "" if it stands."""
    if not sequels:
        return ""
    first, newest = sequels[0], next((s.entry for s in sequels[::-1] if s.entry is not None), None)
    if first.entry is None:
        return f"WITHDRAWN on {first.when[:10]}: {first.why}. Its charge stands"
    ends = "" if sequels[-1].entry else f", which was withdrawn: {sequels[-1].why}"
    return f"SUPERSEDED on {first.when[:10]}: {first.why}. The newest is entry {newest}{ends}"


def check_independent(case: Case, program: str | Path) -> str:
    """Check the receipt's numbers by a program of Python, in a process of its own.

    The program gets the bytes of the receipt as its input, and "-" as its argument. Its last line
    counts the numbers: "71 proved, 0 refuted, 4 not covered". A line "refuted ..." names a number.
    """
    # -I: the program sees neither this package's folder nor the caller's variables.
    command = [sys.executable, "-I", str(program), "-"]
    done = subprocess.run(command, input=case.content, capture_output=True, check=False)
    lines = done.stdout.decode("utf-8", "replace").splitlines() or [""]
    counted = re.fullmatch(r"(\d+) proved, (\d+) refuted, (\d+) not covered", lines[-1])
    if counted is None:
        errors = done.stderr.decode("utf-8", "replace").splitlines()
        said = short((errors or lines)[-1])
        raise Differs(
            f"{str(program)!r} gave no verdict: {said}. The checker of Neyman's repository, "
            "checker/check.py, needs python-flint: pip install python-flint"
        )
    proved, refuted, uncovered = map(int, counted.groups())
    if refuted:
        first = next((line for line in lines if line.startswith("refuted")), "")
        raise Differs(f"{many(refuted, 'number')} refuted, such as {' '.join(first.split())[:200]}")
    if done.returncode or not proved:
        raise Differs(f"it covers none of the {many(uncovered, 'number')}, so nothing was checked")
    left = f"; {uncovered} not covered" if uncovered else ""
    return f"checked by an independent program: {many(proved, 'number')} proved{left}"
