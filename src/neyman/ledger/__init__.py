"""What has been spent on each dataset, durably, and what is refused.

Public: `Ledger` (book), its records and refusals (account), `Checkpoint` (chain), `Audit` (audit).
Each store has a file of its own.
"""

from neyman.ledger.audit import Audit
from neyman.ledger.chain import Checkpoint
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, BudgetRefused, ChargedError, Entry, LedgerError, Part

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
