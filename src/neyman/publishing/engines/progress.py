"""Report the completed part of a run's queries, with DuckDB's own progress inside a query."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Progress = Callable[[float], None]

_INTERVAL_SECONDS = 0.1


class Steps:
    """Run ``number`` queries, and report the completed part. Each query counts as an equal part."""

    def __init__(self, number: int, tell: Progress | None) -> None:
        self._number, self._tell, self._done = number, tell, 0

    def run(
        self,
        follow: Callable[[Callable[[], Answer], Progress], Answer],
        query: Callable[[], Answer],
    ) -> Answer:
        """Run the next query, and return its answer. ``follow`` is `Backend.follow`."""
        tell, done = self._tell, self._done
        if tell is None:
            return query()
        tell(done / self._number)
        result = follow(query, lambda part: tell((done + part) / self._number))
        self._done += 1
        tell(self._done / self._number)
        return result


def followed(connection: Any, query: Callable[[], Answer], tell: Progress) -> Answer:
    """Run a query in a thread, and return its answer.

    The completed part, 0 to 1, is reported to ``tell``. Progress bars must be enabled on the DuckDB
    connection. If this thread is interrupted, so is the query.
    """
    with ThreadPoolExecutor(1) as thread:
        # same: 0.0 -> 0.001: Only the first progress message differs: one of at most a thousandth
        # is not reported.
        answer, most = thread.submit(query), 0.0
        try:
            while wait([answer], _INTERVAL_SECONDS).not_done:
                part = min(connection.query_progress() / 100, 1.0)  # below 0 while not known
                if part > most:
                    tell(most := part)
        except BaseException:
            while not answer.done():
                connection.interrupt()
                wait([answer], _INTERVAL_SECONDS)
            raise
        return answer.result()
