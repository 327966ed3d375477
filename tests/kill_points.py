"""Processes that kill themselves at their n-th step: fault points are counted, not sampled.

A step is whatever may change what others find after a SIGKILL: a file opened for writing, written,
synced, renamed, linked or removed, a folder made or removed, a lock; each write, sync, truncation
and removal that SQLite asks its file system for; each statement to PostgreSQL, and each time that
its client waits for the socket. Between two steps nothing outside of the process changes, so that
killing before each of them is killing everywhere.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

__all__ = ["Said", "forked"]

_CHANGES = frozenset(
    (
        "fcntl.flock", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
        "os.symlink", "os.truncate", "shutil.rmtree", "tempfile.mkdtemp", "tempfile.mkstemp",
    ),
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Said:
    """How a child ended, and the lines that it said: its steps, and whatever else it told."""

    def __init__(self, status: int, lines: list[str]) -> None:
        self.killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.done = status == 0
        self.steps = [line[5:] for line in lines if line.startswith("step ")]
        self.messages = [line[5:] for line in lines if line.startswith("told ")]
        self.lines = lines


def forked(
    work: Callable[[Callable[[object], None]], object],
    at: int | None,
    folder: Path,
    kinds: tuple[str, ...] = ("",),
) -> Said:
    """Do ``work(tell)`` in a child that kills itself before its step number ``at``.

    Args:
        work: may import and open what it likes; the parent must not have threads.
        at: from 1; None lets it come to its end.
        folder: files that are opened elsewhere do not count.
        kinds: what the names of the steps that count begin with.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)

            def say(line: str) -> None:
                os.write(writing, (line.replace("\n", " ") + "\n").encode())

            _count(at, str(folder), kinds, say)
            work(lambda line: say(f"told {line}"))
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().splitlines()
    return Said(os.waitpid(child, 0)[1], lines)


def _count(at: int | None, folder: str, kinds: tuple[str, ...], say: Callable[[str], None]) -> None:
    taken = 0

    def step(name: str) -> None:
        nonlocal taken
        if not name.startswith(kinds):
            return
        taken += 1
        if taken == at:
            say(f"step killed before {name}")
            os.kill(os.getpid(), signal.SIGKILL)
        if at is None:
            say(f"step {name}")

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES:
            step(event)
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, _, flags = arguments
            if os.fsdecode(path).startswith(folder) and flags & _WRITES:
                step(f"open {os.path.basename(os.fsdecode(path))}")

    sys.addaudithook(heard)
    sync = os.fsync

    def fsync(handle: int) -> None:
        step("fsync")
        sync(handle)

    os.fsync = fsync
    _count_writing(step)
    _count_sqlite(step)
    if "psycopg" in sys.modules:
        _count_postgres(step)


def _count_writing(step: Callable[[str], None]) -> None:
    from neyman.publishing.release.folder import Hashed

    write = Hashed.write

    def counted(self: Hashed, content: bytes) -> int:
        step("write")
        return write(self, content)

    Hashed.write = counted


_HELD: list[Any] = []  # a file system of SQLite's is needed until the end


def _count_sqlite(step: Callable[[str], None]) -> None:
    import apsw

    below = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: Any) -> None:
            super().__init__(below, name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            step("SQLite write")
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:
            step("SQLite sync")
            super().xSync(flags)

        def xTruncate(self, newsize: int) -> None:
            step("SQLite truncate")
            super().xTruncate(newsize)

        def xClose(self) -> None:
            step("SQLite close")
            super().xClose()

    class Files(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counted", below, makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> File:
            step("SQLite open")
            return File(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:
            step("SQLite delete")
            super().xDelete(filename, syncdir)

    _HELD.append(Files())


def _count_postgres(step: Callable[[str], None]) -> None:
    import psycopg

    execute, wait, last = psycopg.Connection.execute, psycopg.Connection.wait, ""

    def executed(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal last
        last = str(query)
        step(f"SQL {last[:60]}")
        return execute(self, query, *arguments, **named)

    def waited(self: Any, generator: Generator[Any, Any, Any], *arguments: Any) -> Any:
        ends = any(word in last for word in ("COMMIT", "settled", "CALL"))
        name = "SQL commits" if ends else "socket"
        return wait(self, _stepping(generator, lambda: step(name)), *arguments)

    psycopg.Connection.execute = executed
    psycopg.Connection.wait = waited


def _stepping(
    generator: Generator[Any, Any, Any], step: Callable[[], None]
) -> Generator[Any, Any, Any]:
    try:
        asked = next(generator)
        while True:
            step()
            ready = yield asked
            asked = generator.send(ready)
    except StopIteration as end:
        return end.value
