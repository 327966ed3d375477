"""Audits of a plan: its releases are run and held against what they state."""

from neyman.extras import require

require("audits of a plan", "apsw", "cryptography", "duckdb", "ibis", "pyarrow", "pydantic")
