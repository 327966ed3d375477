"""Approve a plan as a second person, and check the approval before a charge."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Approval, LedgerError
from neyman.ledger.validation import day
from neyman.publishing.plan.plan import Plan
from neyman.publishing.release.signing import SignatureError, check_signer, fingerprint, sign_bytes

UNSIGNED = "not signed: anyone who can write the ledger can enter it"


def approve(
    plan: Plan,
    ledger: Ledger,
    *,
    who: str,
    purpose: str = "",
    until: str = "",
    key: str | Path | None = None,
) -> Approval:
    """Record in the ledger that a second person approved exactly this plan.

    Args:
        plan: the plan, with its public keys as they are now.
        who: who approves it.
        purpose: what the release is for, which its report prints.
        until: the last day on which it may be run, such as 2027-12-31, by the machine's clock.
        key: the approver's private key in PEM. Needed if the dataset names approvers.

    Raises:
        LedgerError: the dataset names approvers, and the key is none of theirs; or the plan is
            approved already.
        ValueError: the last day is over.
    """
    public, signature = "", ""
    if until and day("until", until) < _today():
        raise ValueError(f"until = {until!r} is over: today is {_today()}; give a later day")
    if key is not None:
        text = ledger.approval_text(plan.dataset, plan.hash, who, purpose, until)
        public, signature = (part.hex() for part in sign_bytes(text, key))
    terms = {"who": who, "purpose": purpose, "until": until}
    terms |= {"public": public, "signature": signature}
    check_approval(Approval(plan.name, when="", **terms), ledger, plan.dataset, plan.hash)
    ledger.approve(plan.dataset, plan.hash, plan=plan.name, **terms)
    return Approval(plan.name, when=datetime.now(UTC).isoformat(), **terms)


def checked_approval(
    ledger: Ledger, dataset: str, key: str, sign: str | Path | None = None
) -> Approval | None:
    """Return the approval of a charge, or None if it has none.

    The ledger itself refuses a charge without an approval that its dataset needs.

    Args:
        key: the key of the entry: the hash of the plan.
        sign: the private key that signs the release.

    Raises:
        LedgerError: the last day of the approval is over, it is not signed by an approver, or the
            same key signs the release.
    """
    approval = ledger.approval(dataset, key)
    if approval is None:
        return None
    if approval.until and date.fromisoformat(approval.until) < _today():
        raise LedgerError(
            f"the approval by {approval.who} ended on {approval.until}, and today is {_today()} by "
            "this machine's clock: let it be revoked and approved again"
        )
    check_approval(approval, ledger, dataset, key)
    if sign is not None and sign_bytes(b"", sign)[0].hex() == approval.public:
        raise LedgerError(
            f"the key {fingerprint(bytes.fromhex(approval.public))} approved the plan and would "
            "sign its release: these are two people, with two keys"
        )
    return approval


def check_approval(approval: Approval, ledger: Ledger, dataset: str, key: str) -> None:
    """Raise LedgerError unless an approval has the signature that its dataset needs."""
    approvers = ledger.account(dataset).approvers
    if approvers and approval.public not in approvers:
        named = ", ".join(fingerprint(bytes.fromhex(one)) for one in approvers)
        raise LedgerError(
            f"an approval for {dataset} is signed by one of its approvers ({named}), and this one "
            f"is {'by another key' if approval.public else 'not signed'}: give --key"
        )
    if approval.public:
        said = ledger.approval_text(dataset, key, approval.who, approval.purpose, approval.until)
        try:
            check_signer(bytes.fromhex(approval.public), bytes.fromhex(approval.signature), said)
        except (SignatureError, ValueError):
            raise LedgerError(
                f"the approval by {approval.who} has a signature of something else: it was changed "
                "after it was signed. Let it be revoked and approved again"
            ) from None


def _today() -> date:
    return datetime.now(UTC).date()
