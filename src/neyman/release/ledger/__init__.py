"""What has been spent on each dataset, durably, and what is refused.

Public: `Ledger` (book), its records and refusals (account), `Checkpoint` (chain), `Audit` (audit).
Each store has a file of its own.
"""

from neyman.release.ledger.account import (
    Account,
    BudgetRefused,
    ChargedError,
    Entry,
    LedgerError,
    Part,
)
from neyman.release.ledger.audit import Audit
from neyman.release.ledger.book import Ledger
from neyman.release.ledger.chain import Checkpoint

__all__ = [
    "Account",
    "Audit",
    "BudgetRefused",
    "ChargedError",
    "Checkpoint",
    "Entry",
    "Ledger",
    "LedgerError",
    "Part",
]
