"""Read ordinary files completely, up to a size, without waiting."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from typing import Any

MAX_TEXT_BYTES = 2**28
"""A plan, a page, or another text that is read into memory has at most this many bytes."""


def open_file(path: str | os.PathLike[str], *, links: bool = True) -> BufferedReader:
    """Open an ordinary file for reading.

    Opening a named pipe would wait for a writer, and reading a device may never end.

    Args:
        links: if True, follow a symbolic link.

    Raises:
        OSError: the file cannot be opened, or is not an ordinary file.
    """
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "" if links else "O_NOFOLLOW"):
        flags |= getattr(os, name, 0) if name else 0
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            what = "it is a folder" if stat.S_ISDIR(mode) else "it is not an ordinary file"
            raise OSError(code, what, str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(
    path: str | os.PathLike[str], most: int = MAX_TEXT_BYTES, *, links: bool = True
) -> bytes:
    """Return the content of an ordinary file.

    Args:
        most: the largest number of bytes of the file.
        links: if True, follow a symbolic link.

    Raises:
        OSError: the file cannot be read, is not an ordinary file, or has more bytes.
    """
    with open_file(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        # A read allocates the memory that it asks for, even if there is less to read.
        # same: 1 -> 2: A content of size + 1 bytes is refused already.
        content = file.read(size + 1) if size <= most else None
    if content is None or len(content) > size:
        what = f"it has more than {most:,} bytes" if size > most else "it is being written"
        raise OSError(errno.EFBIG, what, str(path))
    return content


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or has too many values inside each other.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many values inside each other") from None
