from collections.abc import Iterator, Sequence
from typing import Any, Self

from . import RecordBatch, Schema, Table

class ColumnChunkMetaData:
    compression: str
    total_compressed_size: int
    total_uncompressed_size: int

class RowGroupMetaData:
    num_columns: int
    num_rows: int
    def column(self, number: int) -> ColumnChunkMetaData: ...

class FileMetaData:
    num_rows: int
    num_row_groups: int
    def row_group(self, number: int) -> RowGroupMetaData: ...
    def __getattr__(self, name: str) -> Any: ...

class ParquetFile:
    metadata: FileMetaData
    schema_arrow: Schema
    def __init__(
        self,
        source: object,
        *,
        metadata: FileMetaData | None = None,
        read_dictionary: Sequence[str] | None = None,
        coerce_int96_timestamp_unit: str | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def read(self, columns: Sequence[str] | None = None, use_threads: bool = True) -> Table: ...
    def read_row_group(self, i: int) -> Table: ...
    def iter_batches(
        self,
        batch_size: int = 65536,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
    ) -> Iterator[RecordBatch]: ...

class ParquetWriter:
    def __init__(
        self, file: object, schema: Schema, *, store_schema: bool = True, **options: Any
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def write_table(self, table: Table, row_group_size: int | None = None) -> None: ...
    def close(self) -> None: ...

def read_schema(source: object) -> Schema: ...
def read_table(
    source: object,
    columns: Sequence[str] | None = None,
    use_threads: bool = True,
    partitioning: object = "hive",
) -> Table: ...
def write_table(table: Table, where: object, **options: Any) -> None: ...
