"""Exact tables from private rows, before any noise, on DuckDB or Spark.

Public: `as_source`, `open_table` and `close_table` (source: where rows come from; files, frames:
what can be given; types: how columns are read; duckdb, spark: engines), `matches` (files: what a
pattern names), `check_schema` (schema), `rehearse`, `aggregate_cells`, `aggregate` and `discover`
(aggregate: tables from rows), `Cells`, `DataError`. Rows become whole numbers in coding, by the few
expressions of expressions; bounding keeps at most so many rows of a unit; CSV files are read in
lines.
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
