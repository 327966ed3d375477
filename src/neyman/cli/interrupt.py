"""Handle Ctrl-C before a command begins its work."""

from __future__ import annotations

import os
import sys

_MESSAGE = "before anything was done"
_DOCUMENT = f'{{"error": "{_MESSAGE}", "exit_code": 4, "meaning": "interrupted"}}\n'


def end(*_: object) -> None:
    """End the process with exit code 4. An exception inside an import could be lost."""
    if "--json" in sys.argv:
        os.write(1, _DOCUMENT.encode())
    os.write(2, f"interrupted: {_MESSAGE}\n".encode())
    os._exit(4)
