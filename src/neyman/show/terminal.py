"""What every command shares: progress on stderr, answers on stdout, errors as exit codes."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from neyman.numerics.bound import Bound

__all__ = ["CODES", "Json", "answer", "ends", "failing", "out", "progress", "working"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

CODES = {
    0: "done",
    1: "an error of ours",
    2: "bad input",
    3: "refused by the budget",
    4: "interrupted",
    5: "verification failed",
}

out = Console(highlight=False, soft_wrap=True)
_errors = Console(stderr=True, highlight=False, soft_wrap=True)


def answer(value: dict[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """The answer of a command: one JSON document on stdout, or its readable form."""
    if as_json:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    else:
        show()


def ends(bound: Bound) -> dict[str, Any]:
    """A bound as JSON types; infinities as text."""

    def number(x: float) -> float | str:
        return x if abs(x) != float("inf") else ("inf" if x > 0 else "-inf")

    return {
        "lower": number(bound.lower),
        "upper": number(bound.upper),
        "safe": bound.safe,
        "method": bound.method,
    }


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr: call it with a stage's name and the part done."""
    with Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(40),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=_errors,
        transient=not _errors.is_terminal,
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda stage, part: bar.update(task, description=stage, completed=part)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A turning wheel on stderr, for what takes a while and cannot say how long."""
    with _errors.status(what):
        yield


@contextmanager
def failing(as_json: bool) -> Iterator[None]:
    """Turn what goes wrong inside into one message and the exit code that it stands for."""
    with _terminable():
        try:
            yield
        except KeyboardInterrupt:
            _fail(4, "interrupted; what had been reserved in a ledger stays spent", as_json)
        except ImportError as error:
            _fail(2, str(error), as_json)
        except Exception as error:
            code, charged = _code(error), _charged()
            if code == 1 and isinstance(error, charged):
                _fail(1, str(error), as_json)
            if code == 1:
                traceback.print_exception(error)
                _fail(1, f"{type(error).__name__}: {error} (this is an error of ours)", as_json)
            _fail(code, _text(error), as_json)


def _code(error: Exception) -> int:
    refused, bad = _kinds()
    return 3 if isinstance(error, refused) else 2 if isinstance(error, bad) else 1


def _kinds() -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    # The ledger's errors exist only where its library does.
    try:
        from neyman.release.ledger.account import BudgetRefused, LedgerError
    except ImportError:
        return (), (ValueError, OSError)
    return (BudgetRefused,), (ValueError, OSError, LedgerError)


def _charged() -> tuple[type[Exception], ...]:
    try:
        from neyman.release.ledger.account import ChargedError
    except ImportError:
        return ()
    return (ChargedError,)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file'}: {error.strerror}"
    return str(error)


def _fail(code: int, message: str, as_json: bool) -> NoReturn:
    if as_json:
        failure = {"error": message, "exit_code": code, "meaning": CODES[code]}
        sys.stdout.write(json.dumps(failure, ensure_ascii=False, indent=1) + "\n")
    _errors.print(f"[bold red]{CODES[code]}:[/] ", end="")
    _errors.print(message, markup=False)
    raise SystemExit(code)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, so that it can clean up."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
