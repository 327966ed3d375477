"""Compute published tables from noisy integers: estimates, errors, and the keys to show."""

from neyman.extras import require

require("tables", "pyarrow", "pydantic")
