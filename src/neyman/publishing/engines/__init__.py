"""Compute exact tables from private rows, before any noise, on each supported engine.

The engines are DuckDB, Spark, and PostgreSQL. `source` opens data. `data_files` and
`data_frames` define the accepted data, `column_types` how columns are read, and `csv_reader` how
lines are read. `data_schema` checks columns and types. `encoding` turns rows into integers with the
expressions of `expressions`. `bounding` limits each unit's rows as the plan states. `aggregate`
makes tables from the rows. `backends` has one class per engine.
"""

from neyman.extras import require

require("engines", "duckdb", "ibis", "pyarrow")
