from typing import Any

from . import Schema, Table

class Dataset:
    schema: Schema
    def to_table(self, columns: list[str] | None = None) -> Table: ...
    def __getattr__(self, name: str) -> Any: ...

class FileSystemDataset(Dataset):
    files: list[str]

class InMemoryDataset(Dataset): ...

class UnionDataset(Dataset):
    children: list[Dataset]

class Scanner:
    projected_schema: Schema
    def to_table(self) -> Table: ...

def dataset(source: object, schema: Schema | None = None, **options: Any) -> Dataset: ...
def __getattr__(name: str) -> Any: ...
