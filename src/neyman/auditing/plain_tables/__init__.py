"""Compute what tables without noise reveal about the people whom they count."""

from neyman.extras import require

require("tables without noise", "duckdb", "ibis", "pyarrow", "pydantic")
