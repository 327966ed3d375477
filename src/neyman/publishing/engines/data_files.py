"""List the files that a path, a folder, or a pattern names, each once.

Readers get these exact names and never expand them again.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from neyman.publishing.engines.csv_reader import DataError

_Identity = tuple[int, int] | str
_PARQUET = ".parquet"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


Paths: TypeAlias = str | Path | Sequence[str | Path]


def data_files(source: Paths) -> list[str]:
    """List the regular files that a source names, each once, in the order of their names.

    If several names lead to one file (a link, a hard link, two entries of a list), the file is
    listed once. Below a folder, or below the part of a pattern without wildcards, names that begin
    with ``_`` or ``.`` are skipped: Spark's leftovers have such names. No file is opened.

    Args:
        source: a file, a folder of ``.parquet`` files at any depth, a pattern, or a list of these.

    Raises:
        DataError: nothing has this name; a file is a pipe, a socket, or a device; a folder cannot
            be listed; or a link leads out of the folder or the pattern.
    """
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise DataError("data = []: must name at least one file")
    identities: set[_Identity] = set()
    names: list[str] = []
    for path in map(str, paths):
        if "\0" in path:
            raise DataError("data: a path has a null character in it; give the path of a file")
        files = list(_files_of_path(path))
        if not files:
            raise DataError(
                f"data = {path!r}: there is no such file, or no Parquet file in the folder; names "
                "below it that begin with '_' or '.' are skipped"
            )
        for file in files:
            identity = _identity(file, _regular(file, path))
            if identity not in identities:
                identities.add(identity)
                names.append(file)
    return names


def _files_of_path(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from _Search(path, path).files(path)
    elif os.path.lexists(path):
        yield path
    else:
        yield from _matches(path)


def _matches(path: str) -> Iterator[str]:
    """Yield the files that a pattern matches, and the files below a folder that it matches."""
    for match in matches(path):
        if not os.path.isdir(match):
            yield match
        elif Path(path).name != "**":
            yield from _Search(path, match).files(match)


def matches(path: str) -> Iterator[str]:
    """Yield the files and folders that a pattern matches.

    The part ``**`` matches folders at any depth, each once, even if links form a cycle.
    """
    parts = Path(path).parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    top = str(Path(*parts[:fixed]))
    yield from _Search(path, top).matches(top, parts[fixed:])


class _Search:
    """Walk below the folder ``top``. Enter each folder once, and never leave ``top``."""

    def __init__(self, path: str, top: str) -> None:
        self._path, self._root = path, os.path.realpath(top)

    def files(self, folder: str) -> Iterator[str]:
        for below in self._folders(folder, set()):
            for file in self._entries(below):
                if Path(file).suffix.lower() == _PARQUET and not os.path.isdir(file):
                    self._check_link(file)
                    yield file

    def matches(self, folder: str, parts: Sequence[str]) -> Iterator[str]:
        if not parts:
            yield folder
        elif parts[0] == "**":
            for below in self._folders(folder, set()):
                yield from self.matches(below, parts[1:] or ["*"])
        elif not glob.has_magic(parts[0]):
            if os.path.lexists(file := os.path.join(folder, parts[0])):
                yield from self.matches(file, parts[1:])
        elif os.path.isdir(folder):
            pattern = re.compile(fnmatch.translate(os.path.normcase(parts[0])))
            for file in self._entries(folder, parts[0][0]):
                if pattern.match(os.path.normcase(os.path.basename(file))):
                    self._check_link(file)
                    yield from self.matches(file, parts[1:])

    def _folders(self, folder: str, visited: set[_Identity]) -> Iterator[str]:
        identity = _identity(folder, _status(folder, self._path))
        if identity in visited or not os.path.isdir(folder):
            return
        visited.add(identity)
        yield folder
        for file in self._entries(folder):
            if os.path.isdir(file):
                self._check_link(file)
                yield from self._folders(file, visited)

    def _entries(self, folder: str, begin: str = "") -> list[str]:
        """List a folder, sorted. Skip names that begin with ``_`` or ``.``, except ``begin``."""
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            # Guards against a folder that only some may list.
            raise DataError(
                f"data = {self._path!r}: {folder!r} cannot be listed: {error.strerror}"
            ) from None
        return [os.path.join(folder, n) for n in names if n[0] not in "_." or n[0] == begin]

    def _check_link(self, file: str) -> None:
        """Raise DataError for a link that leads out of the folder ``top``."""
        if os.path.commonpath([os.path.realpath(file), self._root]) != self._root:
            raise DataError(
                f"data = {self._path!r}: {file!r} is a link that leads out of the folder; move it "
                "away, or name the file that it leads to in a list of paths"
            )


def _status(file: str, path: str) -> os.stat_result:
    try:
        return os.stat(file)
    except OSError as error:
        raise DataError(f"data = {path!r}: {file!r} cannot be read: {error.strerror}") from None


def _regular(file: str, path: str) -> os.stat_result:
    status = _status(file, path)
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise DataError(
            f"data = {path!r}: {file!r} is {kind}; rows are read more than once, so copy them to a "
            "file and give its path"
        )
    return status


def _identity(file: str, status: os.stat_result) -> _Identity:
    """Return an identity that all names of one file share, with or without inode numbers."""
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(file)
