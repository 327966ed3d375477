"""Provide what commands share: progress on stderr, answers on stdout, errors as exit codes."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from neyman.cli.interrupt import end
from neyman.extras import advice
from neyman.numerics.bound import Bound
from neyman.storage.visible_text import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

CODES = {
    0: "done",
    1: "an error of ours",
    2: "bad input",
    3: "refused by the budget",
    4: "interrupted",
    5: "verification failed",
}


@cache
def console(*, stderr: bool = False) -> Console:
    """Return a console that escapes control characters, and whose reader may leave (``| head``).

    It is made at its first use, because ``--help`` and ``--version`` do not need it.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Paper(Console):
        def on_broken_pipe(self) -> None:
            _unread(self.file)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else visible(segment.text)
                yield segment._replace(text=text)

    # Do not turn ":b:" in a key or an address into an emoji, or brackets into a style.
    options: Any = {"highlight": False, "soft_wrap": True, "emoji": False, "markup": False}
    return Paper(stderr=stderr, **options)


def standard_streams() -> None:
    """Let stdout and stderr accept any text. "?" replaces characters that they cannot encode."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        else:
            stream.reconfigure(errors="replace")


@dataclass(frozen=True)
class Answer:
    """Hold what a command answers.

    Args:
        content: the answer for machines, as JSON types.
        lines: the answer for readers: texts and tables. If None, it is the JSON document.
        code: the exit code.
        serve: what the command does after its answer, until it is stopped.
    """

    content: Mapping[str, Any]
    lines: Iterable[RenderableType] | None = None
    code: int = 0
    serve: Callable[[], None] | None = None


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer: one JSON document on stdout, or a readable form. Exit with its code.

    The command has already done its work. So a failure to print is not bad input, and does not show
    that nothing was charged.
    """
    try:
        if as_json or answer.lines is None:
            _document(answer.content)
        else:
            for line in answer.lines:
                console().print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        _unread(sys.stdout)
    except OSError as error:
        message = f"the answer could not be printed ({error.strerror}); what was done stands"
        failed(1, message, as_json=False)
    if answer.serve is not None:
        answer.serve()
    if answer.code:
        raise SystemExit(answer.code)


def _document(value: object) -> None:
    plain = (sys.stdout.encoding or "").lower() != "utf-8"
    text = json.dumps(value, ensure_ascii=plain, indent=1, allow_nan=False)
    sys.stdout.write(visible(text) + "\n")


def _unread(stream: IO[str]) -> None:
    """Discard the remaining text after its reader has left. The work is already done."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def bound_tables(data: Sequence[str]) -> dict[str, str]:
    """Return the path of each table, from TABLE=PATH."""
    sources: dict[str, str] = {}
    for text in data:
        name, mark, path = text.partition("=")
        if "://" in name:
            # Do not repeat the URL: it can hold a password.
            raise ValueError(
                "--data begins with a URL: must be TABLE=URL, such as "
                "people=postgresql://role@host/db?table=people"
            )
        if not (name and mark and path):
            raise ValueError(f"--data {text!r} must be TABLE=PATH, such as people=people.parquet")
        if name in sources:
            raise ValueError(f"--data names the table {name!r} twice; give each table once")
        sources[name] = path
    return sources


def columns(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table. In a narrow terminal, its text wraps."""
    from rich.table import Table

    table = Table(box=None)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def marked(mark: str, style: str, text: str) -> Text:
    """Return a text behind a colored word."""
    from rich.text import Text

    return Text.assemble((mark, style), text)


def warn(text: str) -> None:
    """Print a warning on stderr before the command does anything."""
    console(stderr=True).print(marked("Warning:", "bold yellow", f" {text}"))


def check_suffix(path: Path | None, *suffixes: str) -> None:
    """Refuse an ``--out`` with a suffix of another format than the written one.

    Raises:
        ValueError: the name does not end in one of the suffixes.
    """
    if path is not None and path.suffix.lower() not in suffixes:
        known = " or ".join(suffixes)
        raise ValueError(f"--out {str(path)!r} must end in {known}, the format that is written")


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Report an ``--out`` that cannot be written, and what to give instead."""
    try:
        yield
    except FileExistsError:
        raise ValueError(f"--out {str(path)!r} already exists: name a new file") from None
    except OSError as error:
        raise ValueError(
            f"--out {str(path)!r} cannot be written ({error.strerror}): name a file in a folder "
            "that is there and can be written to"
        ) from None


def write(path: Path, text: str, mode: str = "x") -> None:
    """Write the text of an ``--out``, which is a new file if the mode is "x"."""
    with writing(path), path.open(mode, encoding="utf-8") as file:
        file.write(text)


def ends(bound: Bound) -> dict[str, Any]:
    """Return a bound as JSON types. Infinities are text."""
    lower, upper = (str(end) if math.isinf(end) else end for end in (bound.lower, bound.upper))
    return {"lower": lower, "upper": upper, "safe": bound.safe, "method": bound.method}


@contextmanager
def progress() -> Generator[Callable[[str, float], None]]:
    """Show a progress bar on stderr. Yield a function of a stage's name and the share done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    errors = console(stderr=True)
    with Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(40),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda stage, part: bar.update(task, description=stage, completed=part)


@contextmanager
def working(what: str) -> Generator[None]:
    """Show a spinner on stderr during work of unknown length."""
    with console(stderr=True).status(what):
        yield


@contextmanager
def failing(as_json: bool, interrupted: str) -> Generator[None]:
    """Turn an error inside the context into one message and its exit code.

    Args:
        interrupted: the message after Ctrl-C or SIGTERM.
    """
    signals: list[object] = []
    with _terminable(signals):
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            # A library whose import is interrupted may report another error.
            failed(*((4, interrupted) if signals else _failure(error, interrupted)), as_json)


def _failure(error: BaseException, interrupted: str) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    match error:
        case KeyboardInterrupt():
            return 4, interrupted
        case ImportError():
            return 2, advice(error)
        case OSError(strerror=str(reason)) if reason:
            return 2, f"{error.filename or 'file'}: {reason}"
        case ValueError() | OSError():
            return 2, str(error)
        case _:
            # The ledger's errors exist only if its library is installed.
            with suppress(ImportError):
                from neyman import ledger

                if isinstance(error, ledger.LedgerError):
                    return 3 if isinstance(error, ledger.BudgetRefused) else 2, str(error)
                if isinstance(error, ledger.ChargedError):
                    return 1, str(error)
    sys.stderr.write(visible("".join(traceback.format_exception(error))))
    return 1, f"{type(error).__name__}: {error} (this is an error of ours)"


def failed(code: int, message: str, as_json: bool) -> NoReturn:
    """Exit with a message on stderr, a JSON document on stdout if ``as_json``, and the code."""
    if as_json:
        failure = {"error": message, "exit_code": code, "meaning": CODES[code]}
        with suppress(OSError):  # the message and the code are reported anyway
            _document(failure)
            sys.stdout.flush()
    console(stderr=True).print(marked(f"{CODES[code]}:", "bold red", f" {message}"))
    raise SystemExit(code)


@contextmanager
def _terminable(signals: list[object]) -> Generator[None]:
    """Let Ctrl-C and SIGTERM interrupt a command, so that it can clean up.

    Before this context, Ctrl-C ends the process (``cli/interrupt.py``). After it, the command has
    done its work, and Ctrl-C changes nothing. If another program calls the command line in its own
    process, its handling of Ctrl-C stays unchanged. ``signals`` gets each signal.
    """

    def stop(number: object, _: object) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    ours = signal.getsignal(signal.SIGINT) is end
    try:
        before = signal.signal(signal.SIGTERM, stop)
        if ours:
            signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, before)
