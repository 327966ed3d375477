"""The command line as tests ask it: in a process of its own, or in this one, which is faster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from neyman.cli.main import app

NEYMAN = [sys.executable, "-m", "neyman"]


def neyman(
    *args: object, cwd: Path, check: int | None = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a process of its own says; its exit code is the one given, and it has no traceback."""
    done = subprocess.run(
        [*NEYMAN, *map(str, args)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if check is not None:
        assert done.returncode == check, done.stderr + done.stdout
    assert check == 1 or "Traceback" not in done.stderr
    return done


def answered(*args: object, code: int = 0) -> str:
    """What a command of this process prints; its exit code is the one given."""
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == code, done.output
    return done.stdout
