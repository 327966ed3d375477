"""A process of its own that works out answers: one that takes too long is ended, not waited for."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Literal

resource: ModuleType | None
try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

__all__ = ["Source", "Stopped", "TooSlow", "Worker"]

START_SECONDS = 60.0
_MEMORY = 6 * 2**30

Task = Literal["opening", "answer", "checks"]
Source = str | dict[str, Any] | None


class TooSlow(Exception):
    """An answer was not there in time."""


class Stopped(Exception):
    """Someone wanted the answer no longer."""


class Worker:
    """Asks a process that holds one opened file; used by one thread at a time.

    Args:
        source: path of a plan or receipt, the sections of a plan, or nothing.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._running: tuple[Any, Connection] | None = None
        self._unwanted = False

    def ask(self, task: Task, content: Any, seconds: float) -> Any:
        """What the process answers.

        Args:
            task: "opening", "answer" or "checks".
            content: what belongs to it, in JSON types.
            seconds: how long it may take; the process is ended then. A start counts apart.

        Raises:
            TooSlow: it took longer.
            Stopped: `stop` was called meanwhile.
            ValueError: the question or the file will not do; in words.
        """
        with self._lock:
            if self._unwanted:  # stopped when it had just answered
                self._end()
                self._unwanted = False
            if self._running is None:
                self._start()
            assert self._running is not None
            _, line = self._running
            try:
                line.send((task, content))
                if not line.poll(seconds):
                    self._end()
                    raise TooSlow
                good, said = line.recv()
            except (EOFError, OSError):
                self._end()
                if self._unwanted:
                    raise Stopped from None
                raise ValueError("working it out took more memory than there is") from None
        if not good:
            raise ValueError(said)
        return said

    def stop(self) -> None:
        """End what is being worked out; the next question starts the process again."""
        running = self._running
        if running is not None:
            self._unwanted = True
            running[0].kill()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._source), daemon=True)
        process.start()
        theirs.close()
        self._running = process, ours
        if not ours.poll(START_SECONDS):
            self._end()
            raise TooSlow
        try:
            good, said = ours.recv()
        except EOFError:
            good, said = False, "the process that works out answers did not start"
        if not good:
            self._end()
            raise ValueError(said)

    def _end(self) -> None:
        if self._running is not None:
            process, line = self._running
            self._running = None
            line.close()
            process.kill()
            process.join(5)


def _work(line: Connection, source: Source) -> None:
    """The process: opens the file, then answers until nobody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    with contextlib.suppress(ValueError, OSError):
        if resource is not None:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        # Here and not above: the server needs no NumPy, and mechanisms need no extra.
        if source is None:
            from neyman.display.explorer.answers import Desk

            desk = Desk()
        else:
            from neyman.display.explorer.plan_desk import PlanDesk, opened_from

            desk = PlanDesk(opened_from(source))
        line.send((True, None))
    except Exception as error:
        line.send((False, str(error)))
        return
    with contextlib.suppress(EOFError, OSError):
        while True:
            task, content = line.recv()
            try:
                line.send((True, desk.done(task, content)))
            except (EOFError, OSError):
                return
            except Exception as error:
                line.send((False, " ".join(str(error).split())[:500] or type(error).__name__))
