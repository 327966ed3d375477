"""Refuse a plan whose public keys come from a file that is private data of the same run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from neyman.numerics import check
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.data_files import matches
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan


def check_key_files(plan: Plan, data: object) -> None:
    """Raise PlanError if a key file is also data of the run, even under another name.

    Files are compared by device and inode, so a link or another path to a file counts as this file.

    Args:
        data: the private data, as for `release`: a path, a pattern, a folder (with all files below
            it), several of these, or a mapping of names to them. Other data have no file.
    """
    lists = [(f"lookup.{one.name}.keys", one.file) for one in plan.rows.derived]
    lists += [(f"columns.{column.name}.keys", column.file) for column in plan.columns]
    lists += [(f"totals by {total.name}", total.file) for total in plan.totals]
    lists += [(f"hierarchy.{one.name}.keys", one.file) for one in plan.hierarchies]
    files = {(file.device, file.inode): (where, file) for where, file in lists if file is not None}
    if not files:
        return
    for path in _files(data):
        if (identity := _identity(path)) in files:
            where, file = files[identity]
            raise PlanError(
                f"{where} = {file.path!r} is also data of this "
                f"run ({str(path)!r}), and a release publishes each name in it; give a list of "
                "public keys, outside the folder of the data"
            )


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, with links resolved; None if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _files(data: object) -> Iterator[str]:
    if check.is_mapping(data):
        data = list(data.values())
    if isinstance(data, (list, tuple, set, frozenset)):
        for part in cast("Iterable[object]", data):
            yield from _files(part)
    elif isinstance(data, (str, Path)):
        places = {str(data)}
        with suppress(DataError):  # the run refuses such data
            places.update(matches(str(data)))
        for place in places:
            yield place
            yield from _files_below(place)
    else:
        files = getattr(data, "files", None)  # of a dataset of Arrow
        if isinstance(files, (list, tuple)):
            yield from _files(cast("object", files))


def _files_below(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder. Follow links, and enter each folder once."""
    identities: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        yield from (os.path.join(place, name) for name in names)
        for name in tuple(folders):
            folder_identity = _identity(os.path.join(place, name))
            if folder_identity is None or folder_identity in identities:
                folders.remove(name)
            else:
                identities.add(folder_identity)
