"""Folders for private rows that do not fit in memory. None of them outlives the next start."""

from __future__ import annotations

import tempfile
from pathlib import Path

from neyman.publishing.engines.csv_reader import DataError
from neyman.storage.private_folder import PrivateFolder, private_folder


def spill_folder(above: str | Path | None = None) -> PrivateFolder:
    """Make a folder for private rows; see `private_folder`."""
    above = Path(tempfile.gettempdir() if above is None else above).absolute()
    try:
        return private_folder("spill", above)
    except OSError as error:
        raise DataError(
            f"the temporary folder {str(above)!r} cannot hold rows that do not fit in memory "
            f"({error.strerror}); set TMPDIR to a folder that this user can write"
        ) from None
