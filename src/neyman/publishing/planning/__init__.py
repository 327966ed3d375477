"""Compute the error of every table, and the split of the budget, before any data."""

from neyman.extras import require

require("plans", "pydantic", "pyarrow", "tomlkit")
