"""Compute the errors of a plan's tables, and the best shares of its budget, without data."""

from neyman.extras import require

require("plans", "pydantic", "pyarrow", "tomlkit")
