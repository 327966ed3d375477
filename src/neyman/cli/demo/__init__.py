"""The demo: tables of 42,008,942 people, and what they reveal."""

from neyman.extras import require

require("demonstrations", "duckdb", "pyarrow")
