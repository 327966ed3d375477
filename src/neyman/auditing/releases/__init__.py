"""Audits of a plan's releases: the path from rows to files is run and held against its statements."""

from neyman.extras import require

require("audits of a plan", "apsw", "cryptography", "duckdb", "ibis", "pyarrow", "pydantic")
