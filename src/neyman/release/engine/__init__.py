"""Exact tables from private rows, before any noise.

Public: `open_table` (source: where rows come from), `check_schema`, `rehearse` and `aggregate`
(aggregate: tables from rows), `DataError`. CSV files are read in lines; bounding keeps at most so
many rows of a unit.
"""

from neyman.release.engine.aggregate import aggregate, check_schema, columns_needed, rehearse
from neyman.release.engine.lines import DataError
from neyman.release.engine.source import open_table

__all__ = ["DataError", "aggregate", "check_schema", "columns_needed", "open_table", "rehearse"]
