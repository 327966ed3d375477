"""Limit the memory of this process, if the system can."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from neyman.publishing.release.verify.size_limits import MemoryLimit

try:
    import resource
except ImportError:  # Windows
    resource = None

_STATUS = Path("/proc/self/status")


@contextmanager
def at_most(memory: str) -> Generator[None]:
    """Limit the memory that this process may add. Beyond it, the process fails, not the machine.

    The limit is set only on Linux.

    Args:
        memory: an amount of memory, such as "4GB".

    Raises:
        ValueError: the text is not an amount of memory.
    """
    size = MemoryLimit.of(memory).size
    try:
        used = re.search(r"^VmData:\s*([0-9]+) kB", _STATUS.read_text(encoding="ascii"), re.M)
    except OSError:
        used = None
    if resource is None or used is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = size + 1024 * int(used[1])
    most = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
