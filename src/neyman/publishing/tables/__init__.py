"""Published tables: estimates, their errors, and the keys that a release may show."""

from neyman.extras import require

require("tables", "pyarrow", "pydantic")
