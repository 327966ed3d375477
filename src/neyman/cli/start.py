"""The start of the command line: Ctrl-C while it loads ends it with one line and its code."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]

MESSAGE = "before anything was done"
_DOCUMENT = f'{{"error": "{MESSAGE}", "exit_code": 4, "meaning": "interrupted"}}\n'


def main() -> None:
    """Load the command line, run it, and exit with its code."""
    # Where Ctrl-C is ignored, as in a background job of a shell, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from neyman.cli.main import main as commands

    commands()


def _end(*_: object) -> None:
    """End the process: an exception inside an import can be lost, or print a traceback."""
    if "--json" in sys.argv:
        os.write(1, _DOCUMENT.encode())
    os.write(2, f"interrupted: {MESSAGE}\n".encode())
    os._exit(4)
