"""Start the command line. Ctrl-C while it loads ends it with one line and the exit code."""

from __future__ import annotations

import signal

from neyman.cli.interrupt import end


def main() -> None:
    """Load the command line, run it, and exit with its code."""
    # If Ctrl-C is ignored, as in a background job of a shell, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    from neyman.cli.main import main as commands

    commands()
