"""Releases: run a plan, write a folder with a receipt, and verify it without the data."""

from neyman.extras import require

require("releases", "apsw", "cryptography", "duckdb", "ibis", "pyarrow", "pydantic")
