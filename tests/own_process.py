"""Functions of a test file, called in processes of their own: such a file is also a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["answer", "called", "children", "main"]


def called(
    file: str, *arguments: object, before: tuple[str, ...] = (), seconds: float = 900
) -> subprocess.CompletedProcess[str]:
    """What came of ``file`` as a script: the name of a function, and texts that it is given."""
    command = [*before, sys.executable, "-W", "ignore", file, *map(str, arguments)]
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )


def answer(
    file: str, *arguments: object, before: tuple[str, ...] = (), seconds: float = 900
) -> Any:
    """What the function said, if it came to its end."""
    done = called(file, *arguments, before=before, seconds=seconds)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def children(process: int) -> list[int]:
    """All processes below a process; none if it has ended."""
    results: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                results += [child, *children(child)]
    return results


def main(names: Mapping[str, Any]) -> None:
    """Call the function that the script was asked for, and say its answer as JSON."""
    print(json.dumps(names[sys.argv[1]](*sys.argv[2:])))
