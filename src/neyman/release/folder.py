"""A release on disk: it appears whole or not at all, and replaces nothing."""

from __future__ import annotations

import io
import json
import os
import re
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

__all__ = [
    "OutputError",
    "Release",
    "check_folder",
    "read_files",
    "read_parquet",
    "resolved",
    "staging",
]

_MARKER = "neyman-staging"


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
        published_before: whether an earlier run made it, so that this one charged nothing and
            did not look at the data.
    """

    folder: Path
    files: Mapping[str, bytes]
    receipt: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    published_before: bool = False

    @classmethod
    def of_files(
        cls, folder: Path, files: Mapping[str, bytes], *, published_before: bool = False
    ) -> Release:
        """The release that some files are."""
        receipt = json.loads(files["receipt.json"])
        tables = {
            f"{listed['query']}.{listed['level']}": read_parquet(files[listed["path"]])
            for listed in receipt["tables"]
            if listed["path"].endswith(".parquet")
        }
        return cls(folder, files, receipt, tables, published_before)

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


def read_parquet(content: bytes) -> pa.Table:
    """The table in a Parquet file's bytes.

    Without threads: a process that ends while Arrow is starting them is now and then aborted.
    """
    return pyarrow.parquet.ParquetFile(io.BytesIO(content)).read(use_threads=False)


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it with forward slashes."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def resolved(out: str | Path) -> Path:
    """The output folder's own path: symbolic links lead to where the release will be.

    Raises:
        OutputError: the links go in a circle, or the path cannot be one.
    """
    try:
        found = Path(out).resolve()
        if found.is_symlink():  # from Python 3.13 on a circle is not an error
            raise OSError("its links go in a circle")
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"out = {str(out)!r} is no path for a folder: {error}") from None
    return found


def check_folder(out: Path, files: Mapping[str, bytes] | None) -> None:
    """Refuse an output folder that the release could not be put in place of.

    Args:
        out: resolved.
        files: of the release, if it is published already; then a folder that holds them will do.

    Raises:
        OutputError: it holds something, is a file, or cannot be renamed onto.
    """
    try:
        if not out.is_dir():
            if out.exists():
                raise OutputError(f"out = {str(out)!r} is a file; give a new or an empty folder")
        elif any(out.iterdir()):
            if files is not None and read_files(out) == dict(files):
                return
            what = "something" if files is None else "something else than this release"
            raise OutputError(
                f"out = {str(out)!r} holds {what}; give a new or an empty folder, nothing is "
                "replaced"
            )
        elif os.path.ismount(out):
            raise OutputError(
                f"out = {str(out)!r} is the root of a file system; give a folder inside it"
            )
    except OSError as error:
        raise OutputError(f"out = {str(out)!r} cannot be looked at: {error.strerror}") from None


@contextmanager
def staging(out: Path) -> Iterator[Staging]:
    """A hidden folder beside ``out`` to write in, which vanishes unless it is published.

    It is locked and marked as ours. What killed runs left is removed, if it is marked so; nothing
    else is. While one run has the name ``out``, another is refused.

    Raises:
        OutputError: nothing can be written there, or another run is about to write there.
    """
    lock = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # Only one process at a time looks at its siblings and makes its own folder.
        parent = _lock(out.parent, wait=True)
        try:
            _refuse_others(out)
            folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.neyman-", dir=out.parent))
            lock = _lock(folder)
            (folder / _MARKER).write_text("A run of neyman is writing here, or was killed.\n")
            (folder / "release").mkdir()
        finally:
            if parent is not None:
                os.close(parent)
    except OSError as error:
        raise OutputError(f"out = {str(out)!r} cannot be written: {error.strerror}") from None
    try:
        yield Staging(folder / "release", out)
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
        for folder in {self.folder, *(parent for parent in self.folder.rglob("*"))}:
            if folder.is_dir():
                _sync(folder)
        try:
            if os.name == "nt" and self.out.is_dir():
                self.out.rmdir()
            os.rename(self.folder, self.out)
        except OSError as error:
            raise OutputError(
                f"out = {str(self.out)!r} cannot be put in place ({error.strerror})"
            ) from None
        _sync(self.out.parent)


def _sync(folder: Path) -> None:
    # Folders cannot be opened everywhere; there the file system keeps its own order.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(folder: Path, *, wait: bool = False) -> int | None:
    """A lock that ends with this process; None where folders cannot be locked or it is taken."""
    try:
        import fcntl
    except ImportError:  # Windows: leftovers stay until somebody removes them
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _refuse_others(out: Path) -> None:
    """Remove what killed runs left of this ``out``, and refuse if a run is still going."""
    ours = re.compile(re.escape(f".{out.name}.neyman-") + "[a-z0-9_]{8}")
    for folder in out.parent.iterdir():
        if not ours.fullmatch(folder.name) or folder.is_symlink():
            continue
        if not (folder / _MARKER).is_file():
            continue
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        elif os.name != "nt":
            raise OutputError(
                f"out = {str(out)!r}: another run is writing there; nothing was spent by this one"
            )
