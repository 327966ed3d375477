"""Run a plan, write a release folder with a receipt, and verify the folder without the data."""

from neyman.extras import require

require("releases", "apsw", "cryptography", "duckdb", "ibis", "pyarrow", "pydantic")
