"""The files that a path, a folder, or a pattern names, each once.

Every name is resolved here. What reads the files afterwards gets exact names, and never expands
them again.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from neyman.release.engine.lines import DataError

__all__ = ["data_files"]

_PARQUET = ".parquet"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def data_files(source: str | Path | Sequence[str | Path]) -> list[str]:
    """List the regular files that a source names, each once, in the order of their names.

    A file that several names lead to (a link, a hard link, two entries of a list) is listed once.
    Below a folder, or below the part of a pattern that has no wildcard, names that begin with
    ``_`` or ``.`` are skipped, as Spark's own leftovers begin. No file is opened.

    Args:
        source: a file, a folder of ``.parquet`` files at any depth, a pattern, or a list of these.

    Raises:
        DataError: nothing has this name; a file is a pipe, a socket, or a device; a folder cannot
            be listed; or a link leads out of the folder or the pattern.
    """
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise DataError("data = []: must name at least one file")
    seen: set[tuple[int, int] | str] = set()
    found: list[str] = []
    for path in map(str, paths):
        if "\0" in path:
            raise DataError("data: a path has a null character in it; give the path of a file")
        files = list(_named(path, set()))
        if not files:
            raise DataError(
                f"data = {path!r}: there is no such file, or no Parquet file in the folder; names "
                "below it that begin with '_' or '.' are skipped"
            )
        for file in files:
            identity = _identity(file, _status(file, path))
            if identity not in seen:
                seen.add(identity)
                found.append(file)
    return found


def _named(path: str, visited: set[tuple[int, int] | str]) -> Iterator[str]:
    """The files that one path names, each under at least one name."""
    if os.path.isdir(path):
        yield from _below(path, path, os.path.realpath(path), visited)
    elif os.path.lexists(path):
        yield path
    else:
        yield from _matches(path, visited)


def _below(path: str, folder: str, root: str, visited: set[tuple[int, int] | str]) -> Iterator[str]:
    """The Parquet files below a folder whose links stay inside the root."""
    identity = _identity(folder, _status(folder, path, regular=False))
    if identity in visited:
        return
    visited.add(identity)
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"data = {path!r}: {folder!r} cannot be listed: {error.strerror}") from None
    for name in names:
        file = os.path.join(folder, name)
        if name[0] in "_.":
            continue
        if os.path.isdir(file):
            _check_link(path, file, root)
            yield from _below(path, file, root, visited)
        elif Path(name).suffix.lower() == _PARQUET:
            _check_link(path, file, root)
            yield file


def _matches(path: str, visited: set[tuple[int, int] | str]) -> Iterator[str]:
    """The files that a pattern names: what it matches, and what is below a folder it matches."""
    parts = Path(path).parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    root = os.path.realpath(Path(*parts[:fixed]) if fixed else ".")
    begins = {part[0] for part in parts[fixed:]}
    for match in sorted(glob.glob(path, recursive=True, include_hidden=bool(begins & {"_", "."}))):
        if any(part[0] in "_." and part[0] not in begins for part in Path(match).parts[fixed:]):
            continue
        _check_link(path, match, root)
        if not os.path.isdir(match):
            yield match
        elif "**" not in parts:
            yield from _below(path, match, root, visited)


def _check_link(path: str, file: str, root: str) -> None:
    """Refuse a link that leads out of the root: nobody named what is there."""
    real = os.path.realpath(file)
    if os.path.commonpath([real, root]) != root:
        raise DataError(
            f"data = {path!r}: {file!r} is a link that leads out of the folder; move it away, or "
            "name the file that it leads to in a list of paths"
        )


def _status(file: str, path: str, *, regular: bool = True) -> os.stat_result:
    try:
        status = os.stat(file)
    except OSError as error:
        raise DataError(f"data = {path!r}: {file!r} cannot be read: {error.strerror}") from None
    if regular and not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise DataError(
            f"data = {path!r}: {file!r} is {kind}; rows are read more than once, so copy them to a "
            "file and give its path"
        )
    return status


def _identity(file: str, status: os.stat_result) -> tuple[int, int] | str:
    """What two names of one file share; some file systems have no number for it."""
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(file)
