"""Store the ledger in an SQLite file."""
