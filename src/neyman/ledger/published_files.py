"""Store published files in the ledger in pieces of at most 1 MiB, and read them back."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from neyman.ledger import chain
from neyman.ledger.records import LedgerError
from neyman.storage.reading import open_file
from neyman.storage.visible_text import visible

if TYPE_CHECKING:
    from neyman.ledger.database import Store, Transaction

PIECE_BYTES = 1 << 20


class StoredFiles(Mapping[str, bytes]):
    """Read the files of a release from the ledger on demand, and check their hashes.

    Args:
        hashes: the SHA-256 of each file by its path, from the chain. It is also an attribute.
    """

    def __init__(self, store: Store, entry: int, attempt: str, hashes: Mapping[str, str]) -> None:
        self._store, self._of = store, (entry, attempt)
        self.hashes: Mapping[str, str] = dict(hashes)

    def __getitem__(self, path: str) -> bytes:
        return b"".join(self.chunks(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self.hashes)

    def __len__(self) -> int:
        return len(self.hashes)

    def __repr__(self) -> str:
        return visible(f"<{len(self)} files of entry {self._of[0]}: {', '.join(self)}>")

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's contents in pieces of at most 1 MiB.

        Raises:
            LedgerError: at the end of the file, if it is not the published file.
        """
        expected, digest = self.hashes[path], hashlib.sha256()
        for number in count():
            with self._store.reading() as db:
                content = stored(db, *self._of, path, number)
            if content is None:
                break
            digest.update(content)
            yield content
        if digest.hexdigest() != expected:
            raise LedgerError(
                f"{path} of entry {self._of[0]} is not what was published:"
                f" {self._store.where} is damaged; run `neyman ledger verify` for details"
            )


def stored(db: Transaction, entry: int, attempt: str, path: str, number: int) -> bytes | None:
    """Return the content of one piece of a file, or None if no piece has this number."""
    query = (
        "SELECT zipped, content FROM piece"
        " WHERE entry = ? AND attempt = ? AND path = ? AND number = ?"
    )
    rows = db.rows(query, entry, attempt, path, number)
    return _decompress(*rows[0]) if rows else None


def _decompress(zipped: int, content: bytes) -> bytes:
    """Decompress a piece, up to one byte more than it can hold. Return b"" if it is damaged."""
    if not isinstance(content, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        return b""
    try:
        return zlib.decompressobj().decompress(content, PIECE_BYTES + 1) if zipped else content
    except zlib.error:
        return b""


def inside(path: str) -> bool:
    """Return True if a path with forward slashes stays inside a folder, wherever the folder is."""
    strange = "\\" in path or "\0" in path
    return not strange and not any(part in ("", ".", "..") for part in path.split("/"))


def check_files(files: Mapping[str, bytes | Path]) -> None:
    """Refuse paths outside the release, and invalid contents, before anything is stored."""
    if not isinstance(files, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"files must be contents by path, not {type(files).__name__}")
    if not files:
        raise ValueError("files is empty: a release has at least one file")
    for path, content in files.items():
        if not isinstance(path, str) or not inside(path):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"files has {path!r}: paths are inside the release, as 'tables/a.csv'")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise ValueError(f"files has {path!r}, which is not text in UTF-8") from None
        if not isinstance(content, (bytes, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(content).__name__
            raise TypeError(f"files[{path!r}] must be bytes or a Path, not {kind}")


def pieces(
    files: Mapping[str, bytes | Path], hashes: dict[str, str]
) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield path, number, zipped (0 or 1), and content of each piece. Fill ``hashes`` by path."""
    for path, content in files.items():
        digest, zips = hashlib.sha256(), True
        for number, piece in enumerate(_cut(content)):
            digest.update(piece)
            packed = zlib.compress(piece, 1) if zips else piece
            # A compressed file (Parquet) is not zipped after its first piece.
            zips = zips and len(packed) < 0.9 * len(piece)
            yield (path, number, 1, packed) if zips else (path, number, 0, piece)
        hashes[path] = digest.hexdigest()


def _cut(content: bytes | Path) -> Iterator[bytes]:
    """Yield a file's contents in pieces. An empty file has one empty piece."""
    try:
        with BytesIO(content) if isinstance(content, bytes) else open_file(content) as file:
            yield file.read(PIECE_BYTES)
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise LedgerError(f"{os.fspath(content)} cannot be read: {error.strerror}") from error


def digest_of(hashes: Mapping[str, str]) -> str:
    """Return the hash of a publication: SHA-256 of the JSON object of all files' hashes."""
    return chain.digest(chain.canonical_json(dict(hashes)))
