"""Store the ledger in a schema of a PostgreSQL database."""

from neyman.extras import require

require("ledgers on PostgreSQL", "psycopg")
