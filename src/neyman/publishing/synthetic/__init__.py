"""Make synthetic rows from the published tables of a release. No code here reads private data."""

from neyman.extras import require

require("rows from tables", "pyarrow", "pydantic")
