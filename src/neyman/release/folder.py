"""A release on disk: it appears whole or not at all, and replaces nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from neyman.release.receipt import composed

if TYPE_CHECKING:
    from neyman.core.tradeoff import Tradeoff

__all__ = ["OutputError", "Release", "read_files", "staging"]


class OutputError(ValueError):
    """An output folder that cannot take the release; nothing was spent."""


@dataclass(frozen=True, eq=False)
class Release:
    """Published values with their error, and the receipt of their guarantee.

    Args:
        folder: where it is.
        files: the bytes of every file by its path in the folder.
        receipt: what ``receipt.json`` says.
        tables: the published tables, by ``"query.level"``.
    """

    folder: Path
    files: Mapping[str, bytes]
    receipt: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    @classmethod
    def of_files(cls, folder: Path, files: Mapping[str, bytes]) -> Release:
        """The release that some files are."""
        receipt = json.loads(files["receipt.json"])
        tables = {
            f"{listed['query']}.{listed['level']}": _parquet(files[listed["path"]])
            for listed in receipt["tables"]
            if listed["path"].endswith(".parquet")
        }
        return cls(folder, files, receipt, tables)

    @classmethod
    def load(cls, folder: str | Path) -> Release:
        """The release in a folder.

        Raises:
            OutputError: the folder holds no release.
        """
        folder = Path(folder)
        try:
            return cls.of_files(folder, read_files(folder))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OutputError(
                f"folder = {str(folder)!r} holds no release that can be read ({error}); give the "
                "folder that has receipt.json and tables/"
            ) from None

    def tradeoff(self) -> Tradeoff:
        """What an observer can learn, recomputed from the receipt's mechanisms."""
        return composed(self.receipt["mechanisms"]).tradeoff()


def _parquet(content: bytes) -> pa.Table:
    return pyarrow.parquet.read_table(io.BytesIO(content))


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it with forward slashes."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@contextmanager
def staging(out: Path) -> Iterator[Staging]:
    """A hidden folder beside ``out`` to write in, which vanishes unless it is published.

    What earlier runs left when they were killed is removed; a folder in use is locked.

    Raises:
        OutputError: nothing can be written there.
    """
    prefix = f".{out.name}.neyman-"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f"{prefix}*"):
            _remove_if_left(left)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
        lock = _lock(folder)
    except OSError as error:
        raise OutputError(f"out = {str(out)!r} cannot be written: {error.strerror}") from None
    try:
        yield Staging(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@dataclass(frozen=True)
class Staging:
    """A folder in the making."""

    folder: Path
    out: Path

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Write the files, make them durable, and give them their name in one step.

        Raises:
            OutputError: the folder of that name holds something by now.
        """
        for path, content in files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
        # mkdtemp makes a folder that only its owner can enter; what is published may be read.
        os.chmod(self.folder, 0o777 & ~_umask())
        for folder in {self.folder, *(parent for parent in self.folder.rglob("*"))}:
            if folder.is_dir():
                _sync(folder)
        try:
            if os.name == "nt" and self.out.is_dir():
                self.out.rmdir()
            os.rename(self.folder, self.out)
        except OSError as error:
            raise OutputError(
                f"out = {str(self.out)!r} cannot be put in place ({error.strerror}); the release "
                "is in the ledger: run the same plan again with an empty folder, at no charge"
            ) from None
        _sync(self.out.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(folder: Path) -> None:
    # Folders cannot be opened everywhere; there the file system keeps its own order.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """A lock that ends with this process; None where folders cannot be locked or it is taken."""
    try:
        import fcntl
    except ImportError:  # Windows: leftovers stay until somebody removes them
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
