"""Exact tables from private rows, before any noise, on DuckDB, Spark, PostgreSQL, or MariaDB.

`source` opens data, of which `data_files` and `data_frames` say what can be given, `column_types`
how columns are read, and `csv_reader` what a line is. `data_schema` checks the form. `aggregate`
makes tables from rows, which `encoding` makes whole numbers by the expressions of `expressions`,
and of which `bounding` keeps at most the plan's of each unit. `backends` has one class per engine.
"""

from neyman.extras import require

require("engines", "duckdb", "ibis", "pyarrow")
