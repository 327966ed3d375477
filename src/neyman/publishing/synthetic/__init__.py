"""Rows made from the published tables of a release. Nothing here reads private data."""

from neyman.extras import require

require("rows from tables", "pyarrow", "pydantic")
