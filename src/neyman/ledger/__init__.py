"""Record the privacy budget of each dataset durably, and refuse charges over the cap.

`Ledger` is the only entry point. `database` defines the interface of a store. `sqlite` and
`postgres` are stores. Functions here refuse a request with a `LedgerError`. Functions that read
rows raise `Damage` for content that no ledger writes.
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
