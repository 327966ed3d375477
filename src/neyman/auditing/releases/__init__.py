"""Audit a plan: run its releases and compare them with their claims."""

from neyman.extras import require

require("audits of a plan", "apsw", "cryptography", "duckdb", "ibis", "pyarrow", "pydantic")
