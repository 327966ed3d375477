"""The privacy budget of each dataset, stored durably, and what is refused.

`Ledger` is the one entry point. `database` says what a store must do. `sqlite` and `postgres` are
stores. What a function here refuses, it refuses with a `LedgerError`; the functions of `rows` and
what reads by them raise `Damage` for what a ledger does not write.
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
