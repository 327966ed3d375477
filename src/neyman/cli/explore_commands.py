"""``neyman explore``: the local page on which to move the noise and see what an attacker gains."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from neyman.cli.terminal import failing, out, working


def explore(
    file: Annotated[
        Path | None, typer.Argument(help="A plan.toml, or a receipt.json or its folder.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1. If not given, a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option(help="Public key that must have signed the receipt.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="The ledger, which must have been charged for the receipt's files."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint that the ledger must have passed.")
    ] = None,
) -> None:
    """Open a mechanism, plan, or receipt in the browser."""
    from neyman.display.explorer.server import Explorer

    with failing(False, "the explorer was stopped; nothing was charged"):
        given = {"key": key, "ledger": ledger, "checkpoint": checkpoint}
        witness = {name: str(value) for name, value in given.items() if value is not None}
        if checkpoint is not None and ledger is None:
            raise ValueError("--checkpoint needs a ledger: add --ledger")
        if port is not None and not 0 <= port <= 65535:
            raise ValueError(f"--port {port} must be from 0 (any free one) to 65535")
        with working("opening"):
            explorer = Explorer(None if file is None else str(file), port=port, witness=witness)
        out.say(f"Open {explorer.address}")
        out.say("once, in a browser on this machine. Ctrl-C stops it.")
        if not no_browser and not _opened(explorer.address):
            out.say("No browser could be started: open the address yourself.")
        explorer.serve()


def _opened(address: str) -> bool:
    import webbrowser

    screen = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & set(os.environ)
    if sys.platform.startswith("linux") and not screen:
        return False  # a browser of the terminal would take it over
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
