"""Answer several pages about one opened file: each page's newest question, within a time limit.

The server and the widget share this module. A separate process answers one question after the
other. If an answer takes too long, the process is ended and restarted.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neyman.display.explorer.answers import Task

resource: ModuleType | None
try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None


@dataclass(frozen=True)
class Limits:
    """Limit the time and memory of a process that answers questions."""

    answer_seconds: float = 6.0
    check_seconds: float = 300.0
    pages: int = 64  # pages whose newest question is remembered


LIMITS = Limits()
_RARE = (
    "Few steps at a small sampling rate take the longest. More steps, a larger sampling rate, or "
    "more noise are often faster."
)
_OTHER = "Try other settings or another mechanism."

Source = str | dict[str, Any] | None


class TooSlow(Exception):
    """Report an answer that took too long."""


class Stopped(Exception):
    """Report a question that was canceled."""


class Outdated(Exception):
    """Report that the page has asked a newer question."""


class Worker:
    """Send questions to a process that has opened one file. One thread at a time may use it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._running: tuple[Any, Connection] | None = None
        self._unwanted = False

    def ask(self, task: Task, content: object, seconds: float) -> Any:
        """Return the answer of the process.

        Args:
            task: "opening", "answer" or "checks".
            seconds: largest number of seconds, after which the process is ended. A start counts
                separately.

        Raises:
            TooSlow: the answer took longer.
            Stopped: `stop` was called meanwhile.
            ValueError: the question or the file is not valid. The message says why.
        """
        with self._lock:
            if self._unwanted:  # stopped just after an answer
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
                # Guards against a question that fills the memory.
                raise ValueError("the answer needs more memory than this process may use") from None
        if not good:
            raise ValueError(said)
        return said

    def stop(self) -> None:
        """Cancel the current work. The next question restarts the process."""
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
        if not ours.poll(60.0):  # seconds for its start
            self._end()
            raise TooSlow
        try:
            good, said = ours.recv()
        except EOFError:
            good, said = False, "the process that computes answers did not start"
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


class Answering:
    """Answer pages about one plan, one receipt, or only mechanisms.

    Args:
        witness: the options for checking a receipt: ``key``, ``ledger``, ``checkpoint`` as for
            `verify`.
        seconds: largest number of seconds per answer.
    """

    def __init__(
        self,
        source: Source = None,
        witness: Mapping[str, str] | None = None,
        seconds: float = LIMITS.answer_seconds,
    ) -> None:
        self.seconds = seconds
        self.checks: dict[str, Any] = {"state": "none"}
        self._source = source
        self._worker = Worker(source)
        self._turn = threading.Condition()
        self._busy: tuple[str, float] | None = None  # the page, and the start time
        self._newest: dict[str, int] = {}
        try:
            self.opening: dict[str, Any] = self._worker.ask("opening", None, LIMITS.check_seconds)
        except TooSlow:
            # Guards against a file that takes minutes to read.
            raise ValueError(f"{source!r} takes too long to open") from None
        except BaseException:
            self.close()
            raise
        if self.opening["receipt"]:
            self.checks = {"state": "checking"}
            threading.Thread(target=self._check, args=(dict(witness or {}),), daemon=True).start()

    def close(self) -> None:
        """End the worker process."""
        self._worker.close()

    def reply(self, page: str, number: int, question: Mapping[str, object]) -> dict[str, Any]:
        """Return an answer, the reason for no answer, or a note that the question is outdated.

        Args:
            number: number of the question. Newer questions of the page have larger numbers.
        """
        try:
            return {"answer": self.answer(page, number, question)}
        except Outdated:
            return {"outdated": True}
        except TooSlow:
            # Sums of many sampled steps are faster than sums of few: never advise fewer.
            advice = _RARE if question.get("kind") == "sampled" else _OTHER
            limit = f"Too slow: this takes more than {self.seconds:g} seconds."
            return {"problem": f"{limit} {advice}"}
        except ValueError as error:
            return {"problem": str(error)}

    def answer(self, page: str, number: int, question: Mapping[str, object]) -> Any:
        """Return the answer to a page's question.

        Raises:
            Outdated: the page has asked a newer question meanwhile.
            TooSlow: the answer takes longer than the limit.
            ValueError: the question has no answer.
        """
        with self._turn:
            self._newest[page] = max(number, self._newest.pop(page, 0))
            while len(self._newest) > LIMITS.pages:
                del self._newest[next(iter(self._newest))]
            self._turn.notify_all()
            while self._busy:
                if self._newest.get(page, number) > number:
                    raise Outdated
                busy, since = self._busy
                # Seconds to wait for an outdated answer, about the time of starting a new process.
                if busy == page and time.monotonic() - since > 1.0:
                    self._worker.stop()
                self._turn.wait(0.2)
            if self._newest.get(page, number) > number:
                raise Outdated
            self._busy = page, time.monotonic()
        try:
            return self._worker.ask("answer", question, self.seconds)
        except Stopped:
            raise Outdated from None
        finally:
            with self._turn:
                self._busy = None
                self._turn.notify_all()

    def _check(self, witness: dict[str, str]) -> None:
        worker = Worker(self._source)
        try:
            results = worker.ask("checks", witness, LIMITS.check_seconds)
            self.checks = {"state": "done", "checks": results}
        except TooSlow:
            self.checks = {"state": "failed", "problem": "checking the receipt takes too long"}
        except ValueError as error:
            self.checks = {"state": "failed", "problem": str(error)}
        finally:
            worker.close()


def _work(line: Connection, source: Source) -> None:
    """Open the file ``source``, and answer questions until the connection ``line`` closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    memory_bytes = 6 * 2**30
    with contextlib.suppress(ValueError, OSError):
        if resource is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        # Imported here, because the server needs no NumPy, and mechanisms need no extra.
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
