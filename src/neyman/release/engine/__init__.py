"""Exact tables from private rows, before any noise, on DuckDB or Spark.

Public: `as_source`, `open_table` and `close_table` (source: where rows come from; files, frames:
what can be given; types: how columns are read; duckdb, spark: engines), `matches` (files: what a
pattern names), `check_schema` (schema), `rehearse`, `aggregate_cells`, `aggregate` and `discover`
(aggregate: tables from rows), `Cells`, `DataError`. Rows become whole numbers in coding, by the few
expressions of expressions; bounding keeps at most so many rows of a unit; CSV files are read in
lines.
"""

from neyman.release.engine.aggregate import aggregate, aggregate_cells, discover, rehearse
from neyman.release.engine.cells import Cells
from neyman.release.engine.files import matches
from neyman.release.engine.lines import DataError
from neyman.release.engine.schema import check_schema, columns_needed
from neyman.release.engine.source import as_source, close_table, open_table

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
