"""Exact tables from private rows, before any noise, on DuckDB, Spark, or PostgreSQL.

`source` opens data, of which `data_files` and `data_frames` say what can be given, `column_types`
how columns are read, and `csv_reader` what a line is. `data_schema` checks the form. `aggregate`
makes tables from rows, which `encoding` makes whole numbers by the expressions of `expressions`,
and of which `bounding` keeps at most the plan's of each unit. `backends` has one class per engine.
"""

from neyman.extras import require

require("engines", "duckdb", "ibis", "pyarrow")

from neyman.publishing.engines.aggregate import aggregate, aggregate_cells, discover, rehearse
from neyman.publishing.engines.cells import Cells
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.data_files import matches
from neyman.publishing.engines.data_schema import check_schema, columns_needed
from neyman.publishing.engines.source import as_source, close_table, open_table

__all__ = [
    "Cells",
    "DataError",
    "aggregate",
    "aggregate_cells",
    "as_source",
    "check_schema",
    "close_table",
    "columns_needed",
    "discover",
    "matches",
    "open_table",
    "rehearse",
]
