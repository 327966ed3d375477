"""The privacy budget of each dataset, stored durably, and what is refused.

`Ledger` is the one entry point. `database` says what a store must do. `sqlite` and `postgres` are
stores.
"""

from neyman.extras import require

require("ledgers", "apsw")

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
