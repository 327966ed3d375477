"""Run the command line. Answers go to stdout (``--json`` for machines), progress to stderr.

Exit codes: 0 success, 1 internal error, 2 invalid input, 3 over budget, 4 interrupted, 5
verification failed.
"""

# Modules that register commands are imported for that alone.
# pyright: reportUnusedImport=false

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

import neyman.cli.data_commands
import neyman.cli.ledger_commands
import neyman.cli.measure_commands
import neyman.cli.plan_commands
import neyman.cli.release_commands
import neyman.cli.risk_commands
from neyman.cli.commands import app
from neyman.cli.terminal import failed, standard_streams
from neyman.extras import advice

_Usage: Any = typer.BadParameter.__base__  # raised by typer for invalid arguments
_INTERRUPT_STATUS = 130  # typer's exit status after Ctrl-C


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"neyman {neyman.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Measure, calibrate, publish, and verify differential privacy."""


def main() -> None:
    """Run the command line and exit with its code.

    The process ends immediately after its registered exit functions. Otherwise, threads that the
    engines are still starting would abort it in one case of fifty.
    """
    standard_streams()
    try:
        code = _done()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a failed print was already reported
            # same: stream.flush() -> None: Commands flush what they print, as Typer and Rich do.
            stream.flush()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def _word(_context: object, value: object) -> object:
    return value


def _keep_words(command: Any) -> None:
    """Use the words of a shell completion as they are. To convert them, Typer loads pydantic."""
    parameters = command.get_params

    def unread(context: Any) -> list[Any]:
        options = parameters(context)
        for parameter in options:
            parameter.process_value = _word
        return options

    command.get_params = unread
    for part in getattr(command, "commands", {}).values():
        _keep_words(part)


def _done() -> int:
    """Run the command. Handle typer's own exits like all other exits."""
    as_json = "--json" in sys.argv
    command = typer.main.get_command(app)
    if "_NEYMAN_COMPLETE" in os.environ:
        _keep_words(command)
    try:
        code = command(prog_name="neyman", standalone_mode=False)
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        command = error.ctx.command_path if error.ctx else "neyman"
        message = error.format_message().removesuffix(".")
        failed(2, f"{message}; see {command} --help", as_json)
    except ImportError as error:
        failed(2, advice(error), as_json)
    except typer.Abort:
        code = _INTERRUPT_STATUS
    if code == _INTERRUPT_STATUS:
        failed(4, "before anything was done", as_json)
    return code or 0
