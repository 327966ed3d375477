"""Making a release: a plan, the private data, exact noise, a ledger, and the receipt.

Public: `Plan` (plan), `Ledger` (ledger), `release` (run), `Release` (folder), `verify`. What
a plan may say is in document and resolve; what may change when one unit does is in shifts.
"""

from neyman.extras import require

require(
    "plans, ledgers and releases",
    "apsw",
    "cryptography",
    "duckdb",
    "ibis",
    "pyarrow",
    "pydantic",
)
