"""Write and read a release folder, which appears at once or not at all, and replaces nothing."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet

from neyman import notebook
from neyman.accounting.semantics.digits import many
from neyman.accounting.semantics.sentences import known, power
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.elements import Node
from neyman.ledger.published_files import inside
from neyman.ledger.throwaway import NOTICE
from neyman.numerics import check
from neyman.publishing.plan.plan import Plan
from neyman.publishing.release.receipt import mechanism_of
from neyman.publishing.release.receipt_format import Receipt
from neyman.storage.durable import make_folder, sync_folder
from neyman.storage.locks import lock
from neyman.storage.reading import open_file, read_file, read_json
from neyman.storage.visible_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKER = "neyman-staging"


@dataclass(frozen=True)
class Limits:
    """Limit the reading of a folder, and its view in a notebook."""

    sentence_level: float = 0.05  # level of the sentence in a notebook
    receipt_bytes: int = 2**31  # the most bytes of a receipt


LIMITS = Limits()


class OutputError(ValueError):
    """Report that an output folder cannot take the release. Nothing was spent."""


class Contents(Protocol):
    """Represent files by their path in a folder, with forward slashes, and read them in pieces."""

    def __iter__(self) -> Iterator[str]: ...

    def chunks(self, path: str, /) -> Iterator[bytes]:
        """Return the content of one file, piece by piece."""
        ...


class FolderFiles(Mapping[str, bytes]):
    """Map the path of each file below a folder to its bytes. A file is read on request only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return tuple(sorted(file.relative_to(self.folder).as_posix() for file in files))

    def __getitem__(self, path: str) -> bytes:
        if path not in self._paths:
            raise KeyError(path)
        with open_file(self.folder / path) as file:
            return file.read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of one file, one MiB at a time."""
        with open_file(self.folder / path) as file:
            while piece := file.read(1 << 20):
                yield piece


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Represent a published release: values with their errors, and a receipt of the guarantee.

    Each request for a table or file reads the folder again.

    Args:
        folder: the release folder.
        receipt: the content of ``receipt.json``.
        published_before: True if an earlier run made the release, so that this run charged nothing.
        known: the plan in the receipt, if it has been read.
    """

    folder: Path
    receipt: Receipt
    published_before: bool = False
    known: Plan | None = None

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        receipt: Receipt | None = None,
        published_before: bool = False,
        plan: Plan | None = None,
    ) -> Release:
        """Load the release in a folder.

        Args:
            folder: the folder.
            receipt: the content of ``receipt.json``, if it has been read.
            published_before: True if an earlier run made the release.
            plan: the plan in the receipt, if it has been read. A large plan takes seconds.

        Raises:
            OutputError: the folder holds no release.
        """
        folder = Path(check.path("folder", folder))
        try:
            if receipt is None:
                content = read_file(folder / "receipt.json", LIMITS.receipt_bytes)
                receipt = Receipt.read(read_json(content))
            release = cls(folder, receipt, published_before, plan)
            for path in release._file_paths.values():
                (folder / path).stat()
            return release
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputError(
                f"folder = {str(folder)!r} holds no release that can be read ({error}); give the "
                "folder that has receipt.json and tables/"
            ) from None

    def __repr__(self) -> str:
        tables = many(len(self._file_paths), "table")
        return visible(f"<Release of {self.receipt.dataset}: {tables} in {str(self.folder)!r}>")

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """Yield the parts of the notebook's view."""
        receipt = self.receipt
        yield notebook.title(f"Release of {receipt.dataset}")
        if receipt.ledger.throwaway:
            yield notebook.paragraph(NOTICE)
        for point in receipt.guarantee.power:
            if point.level == LIMITS.sentence_level:
                said = power(
                    LIMITS.sentence_level,
                    point.upper,
                    known(receipt.unit.protects, receipt.guarantee.held),
                    receipt.neighboring,
                )
                yield notebook.paragraph(said)
        shown_tables = 6  # in a notebook
        for name in list(self._file_paths)[:shown_tables]:
            with self.parquet(name) as file:
                batches = file.iter_batches(6, use_threads=False)  # in a notebook
                batch = next(batches, None)
                cells = file.metadata.num_rows
            rows = [] if batch is None else [row.values() for row in batch.to_pylist()]
            head = [] if batch is None else batch.schema.names
            caption = f"{name}: {many(cells, 'row')}"
            caption += f", of which {len(rows)} are here" if cells > len(rows) else ""
            yield notebook.table(head, [list(row) for row in rows], caption=caption)
        left = len(self._file_paths) - shown_tables
        if left > 0:
            yield notebook.paragraph(f"{many(left, 'more table')}: .tables")
        yield notebook.paragraph(
            "The sentence is what the receipt states. `neyman verify` recomputes it."
        )

    def plot(self, *, axes: Axes | None = None) -> Axes:
        """Draw the trade-off curve with `neyman.display.plots.figures.tradeoff`.

        Args:
            axes: the axes to draw on. Default: a new figure.

        Returns:
            The axes. The curve is the lower bound on each type II error, the conservative side.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return self.tradeoff().plot(axes=axes)

    @cached_property
    def plan(self) -> Plan:
        """Return the released plan, as stored in the receipt.

        Raises:
            PlanError: the receipt's plan is invalid.
        """
        return self.known or Plan.from_dict(self.receipt.plan)

    @cached_property
    def _file_paths(self) -> dict[str, str]:
        paths: dict[str, str] = {}
        for listed in self.receipt.tables:
            path = PurePosixPath(listed.path)
            if not inside(listed.path):
                raise ValueError(f"its receipt lists {listed.path!r}, outside the folder")
            if path.suffix == ".parquet":
                paths[str(path.relative_to("tables").with_suffix(""))] = str(path)
        return paths

    @property
    def files(self) -> FolderFiles:
        """Return the bytes of every file by its path in the folder."""
        return FolderFiles(self.folder)

    @property
    def tables(self) -> Mapping[str, pa.Table]:
        """Return the published tables by ``"query.level"``. Read a large table with `parquet`.

        The consistent tables have names ``"consistent/query.level"``.
        """
        return _Tables(self)

    def parquet(self, name: str) -> pyarrow.parquet.ParquetFile:
        """Open a table's file, to read it in parts: ``.iter_batches(columns=...)``.

        Args:
            name: ``"query.level"``.

        Raises:
            KeyError: there is no such table.
            OutputError: the table's file is no Parquet file.
        """
        if name not in self._file_paths:
            raise KeyError(f"there is no table {name!r}: the release has {[*self._file_paths]}")
        path = self.folder / self._file_paths[name]
        open_file(path).close()  # a named pipe would block
        try:
            return pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise OutputError(
                f"file = {str(path)!r} must be the Parquet file that the release published "
                f"({error}); get the release again from its publisher"
            ) from None

    def tradeoff(self) -> Tradeoff:
        """Recompute the trade-off curve from the receipt's mechanisms."""
        return mechanism_of(self.receipt).tradeoff()


class _Tables(Mapping[str, pa.Table]):
    def __init__(self, release: Release) -> None:
        self._release = release

    def __getitem__(self, name: str) -> pa.Table:
        # Without threads: if a process ends while Arrow starts threads, it is sometimes aborted.
        with self._release.parquet(name) as file:
            return file.read(use_threads=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._release._file_paths)  # pyright: ignore[reportPrivateUsage]

    def __len__(self) -> int:
        return len(self._release._file_paths)  # pyright: ignore[reportPrivateUsage]


def resolved(out: str | Path) -> Path:
    """Return the path of the output folder without symbolic links."""
    try:
        path = Path(out).resolve()
        if path.is_symlink():  # from Python 3.13 on a circle is not an error
            raise OSError("its links go in a circle")
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"out = {str(out)!r} is not a path for a folder: {error}") from None
    return path


def check_folder(out: Path, files: Contents | None) -> None:
    """Raise OutputError if an output folder holds something else than these published files."""
    try:
        if not out.is_dir():
            if out.exists():
                raise OutputError(f"out = {str(out)!r} is a file; give a new or an empty folder")
        elif any(out.iterdir()):
            if files is not None and _same(FolderFiles(out), files):
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
        raise OutputError(f"out = {str(out)!r} cannot be read: {error.strerror}") from None


@contextmanager
def staging(out: Path, wait: float = 30.0) -> Generator[Staging]:  # seconds
    """Open a hidden folder beside ``out`` to write in. Remove it unless it is published.

    The folder is locked and marked as Neyman's. Folders of killed runs are removed. While one run
    writes to ``out``, another run is refused. If another process has locked the parent folder, this
    call waits up to ``wait`` seconds.
    """
    held = None
    missing: list[Path] = []
    try:
        missing = make_folder(out.parent)
        # Only one process at a time lists the sibling folders and makes its own.
        parent = lock(out.parent, wait)
        try:
            if _others(out):
                raise OutputError(
                    f"out = {str(out)!r}: another run is writing there; nothing was spent by this"
                    " one"
                )
            folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.neyman-", dir=out.parent))
            held = lock(folder)
            try:
                (folder / _MARKER).write_text("A run of neyman is writing here, or was killed.\n")
                (folder / "release").mkdir()
            except OSError:
                _remove(folder)
                raise
        finally:
            if parent is not None:
                os.close(parent)
    except BlockingIOError:
        raise OutputError(
            f"out = {str(out)!r}: another process has locked the folder above it for {wait:g} s; "
            "nothing was spent: end that process, or give a folder elsewhere"
        ) from None
    except OSError as error:
        raise OutputError(f"out = {str(out)!r} cannot be written: {error.strerror}") from None
    try:
        yield Staging(folder / "release", out)
    finally:
        _remove(folder)
        if held is not None:
            os.close(held)
        for parent in missing:
            with suppress(OSError):  # it holds the release, or something of another run
                parent.rmdir()


@dataclass(frozen=True)
class Staging:
    """Represent a release folder while it is written. ``out`` is its later place."""

    folder: Path
    out: Path

    @contextmanager
    def writing(self, path: str) -> Generator[Hashed]:
        """Open a new file of the release. It is hashed during writing and durable afterwards."""
        if not inside(path):
            raise OutputError(f"the release has a file {path!r}, which is not a path in its folder")
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as handle:
            yield Hashed(handle)
            handle.flush()
            os.fsync(handle.fileno())

    def write(self, path: str, content: bytes) -> None:
        """Write one entire file of the release."""
        with self.writing(path) as file:
            file.write(content)

    def files(self) -> dict[str, Path]:
        """Return the current path of each file by its path in the release."""
        return {path: self.folder / path for path in FolderFiles(self.folder)}

    def replace(self, files: Contents) -> None:
        """Replace all written files with these files."""
        for old in list(self.folder.iterdir()):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for path in files:
            with self.writing(path) as file:
                for piece in files.chunks(path):
                    file.write(piece)

    def publish(self) -> None:
        """Rename the folder to ``out`` in one durable step. Raise OutputError if it now exists."""
        for folder in (self.folder, *self.folder.rglob("*")):
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


class Hashed:
    """Represent a file that is being written, with the SHA-256 of the bytes written so far."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._digest = hashlib.sha256()
        self.closed = False  # read by Arrow's writers

    def write(self, content: bytes) -> int:
        """Write and hash all bytes of ``content``."""
        self._digest.update(content)
        return self._handle.write(content)

    def flush(self) -> None:
        """Do nothing. The content becomes durable at the end."""

    def hexdigest(self) -> str:
        """Return the SHA-256 of all bytes written so far."""
        return self._digest.hexdigest()


def _same(these: Contents, those: Contents) -> bool:
    if sorted(these) != sorted(those):
        return False
    return all(_digest(these.chunks(path)) == _digest(those.chunks(path)) for path in these)


def _digest(pieces: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _sync(folder: Path) -> None:
    # Some systems cannot open folders. Their file system then decides the order of writes.
    with suppress(OSError):
        sync_folder(folder)


def sweep(out: Path) -> None:
    """Remove leftovers of killed runs for this ``out``, unless a lock is held."""
    with suppress(OSError):
        parent = lock(out.parent)
        try:
            _others(out)
        finally:
            if parent is not None:
                os.close(parent)


def _others(out: Path) -> bool:
    """Remove leftovers of killed runs for this ``out``. Return True if a run is still active."""
    ours = re.compile(re.escape(f".{out.name}.neyman-") + "[a-z0-9_]{8}")
    going = False
    for folder in out.parent.iterdir():
        if not ours.fullmatch(folder.name) or folder.is_symlink():
            continue
        if not (folder / _MARKER).is_file():
            with suppress(OSError):  # killed before it was marked, it is empty
                folder.rmdir()
            continue
        try:
            held = lock(folder)
        except BlockingIOError:
            going = True
            continue
        if held is not None:  # without locks leftovers stay until someone removes them
            _remove(folder)
            os.close(held)
    return going


def _remove(folder: Path) -> None:
    """Remove a folder of Neyman. Remove the mark last, so a killed removal stays recognizable."""
    shutil.rmtree(folder / "release", ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
