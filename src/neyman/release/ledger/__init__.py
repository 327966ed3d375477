"""What has been spent on each dataset, durably, and what is refused.

Public: `Ledger` (book), its records and refusals (account). Each store has a file of its own.
"""

from neyman.release.ledger.account import (
    Account,
    BudgetRefused,
    ChargedError,
    Entry,
    LedgerError,
)
from neyman.release.ledger.book import Ledger

__all__ = ["Account", "BudgetRefused", "ChargedError", "Entry", "Ledger", "LedgerError"]
