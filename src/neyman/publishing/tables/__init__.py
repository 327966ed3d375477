"""Compute published tables: estimates, errors, and the keys that a release may show."""

from neyman.extras import require

require("tables", "pyarrow", "pydantic")
