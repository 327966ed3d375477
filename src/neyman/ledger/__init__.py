"""Record the privacy budget of each dataset durably, and refuse charges over the cap.

`Ledger` is the only entry point. `database` defines the interface of a store. `sqlite` and
`postgres` are stores. Functions here refuse a request with a `LedgerError`. Functions that read
rows raise `Damage` for content that no ledger writes.
"""

from neyman.exports import exports
from neyman.extras import require

require("ledgers", "apsw")

__getattr__, __dir__ = exports(__name__, __file__)
