"""Answer several pages about one opened file: the newest question of each, within a time limit.

The server and the widget share this. Work is done in a process of its own, for a few seconds at
most, one question after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from neyman.display.explorer.worker import Source, Stopped, TooSlow, Worker

__all__ = ["ANSWER_SECONDS", "Answering", "Outdated"]

ANSWER_SECONDS = 6.0
CHECK_SECONDS = 300.0
PATIENCE_SECONDS = 1.0  # that an outdated answer is waited for: about what a new process takes
_PAGES = 64  # whose newest question is remembered
_RARE = (
    "Few steps at a small sampling rate take the longest. More steps, a larger sampling rate, or "
    "more noise are often faster."
)
_OTHER = "Try other settings or another mechanism."


class Outdated(Exception):
    """The page has asked something newer."""


class Answering:
    """Answer pages about one plan, one receipt, or nothing but mechanisms.

    Args:
        source: path of a plan or receipt, the sections of a plan, or nothing.
        witness: how a receipt is checked: ``key``, ``ledger``, ``checkpoint`` as for `verify`.
        seconds: how long an answer may take.

    Raises:
        ValueError: the source is not valid.
    """

    def __init__(
        self,
        source: Source = None,
        witness: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.seconds = seconds
        self.checks: dict[str, Any] = {"state": "none"}
        self._source = source
        self._worker = Worker(source)
        self._turn = threading.Condition()
        self._busy: tuple[str, float] | None = None  # for which page, since when
        self._newest: dict[str, int] = {}
        try:
            self.opening: dict[str, Any] = self._worker.ask("opening", None, CHECK_SECONDS)
        except TooSlow:
            raise ValueError(f"{source!r} takes too long to open") from None
        except BaseException:
            self.close()
            raise
        if self.opening["receipt"]:
            self.checks = {"state": "checking"}
            threading.Thread(target=self._check, args=(dict(witness or {}),), daemon=True).start()

    def close(self) -> None:
        """End the process that works."""
        self._worker.close()

    def reply(self, page: str, number: int, question: Any) -> dict[str, Any]:
        """Return the answer to a question, why there is none, or that the page asked a newer one.

        Args:
            page: who asks.
            number: larger for each newer question of the page.
            question: as for `Desk.answer`, in JSON types.
        """
        try:
            return {"answer": self.answer(page, number, question)}
        except Outdated:
            return {"outdated": True}
        except TooSlow:
            # Sums of many sampled steps are faster than those of few: never advise fewer.
            advice = _RARE if question.get("kind") == "sampled" else _OTHER
            limit = f"Too slow: this takes more than {self.seconds:g} seconds."
            return {"problem": f"{limit} {advice}"}
        except ValueError as error:
            return {"problem": str(error)}

    def answer(self, page: str, number: int, question: Any) -> Any:
        """Return the answer to a page's question.

        Raises:
            Outdated: the page has asked a newer one meanwhile.
            TooSlow: it takes longer than the limit.
            ValueError: the question has no answer.
        """
        with self._turn:
            self._newest[page] = max(number, self._newest.pop(page, 0))
            while len(self._newest) > _PAGES:
                del self._newest[next(iter(self._newest))]
            self._turn.notify_all()
            while self._busy:
                if self._newest.get(page, number) > number:
                    raise Outdated
                busy, since = self._busy
                if busy == page and time.monotonic() - since > PATIENCE_SECONDS:
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
            results = worker.ask("checks", witness, CHECK_SECONDS)
            self.checks = {"state": "done", "checks": results}
        except TooSlow:
            self.checks = {"state": "failed", "problem": "checking the receipt takes too long"}
        except ValueError as error:
            self.checks = {"state": "failed", "problem": str(error)}
        finally:
            worker.close()
