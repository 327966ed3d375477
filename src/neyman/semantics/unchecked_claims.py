"""What no command checks, in one sentence each: the custodian answers for it."""

from __future__ import annotations

__all__ = ["dataset_names", "disjoint_parts"]


def disjoint_parts(dataset: str, subject: str) -> str:
    """Return the sentence for a dataset with parts.

    Args:
        dataset: its name.
        subject: what one privacy unit is, such as "person".
    """
    return (
        f"Nothing checks that the parts of {dataset} are disjoint. If two parts contain the same"
        f" {subject}, the risks of their releases add up. The custodian is responsible for that."
    )


def dataset_names(subject: str) -> str:
    """Return the sentence for a ledger or a release with a dataset's name.

    Args:
        subject: what one privacy unit is, such as "person".
    """
    return (
        f"Nothing checks that two dataset names hold different data. If they contain the same"
        f" {subject}, the risks of their releases add up. The custodian is responsible for that."
    )
