"""Run the demo: tables of 42,008,942 people, and the risk that they reveal."""

from neyman.extras import require

require("demonstrations", "duckdb", "pyarrow")
