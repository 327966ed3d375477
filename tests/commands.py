"""The command line as tests ask it: in its own process, or in this one, which is faster."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from neyman.cli import app

NEYMAN = [sys.executable, "-m", "neyman"]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["neyman.cli.main", "neyman.publishing.release.run", "neyman.display.report.report"]
)


def neyman(
    *args: object, cwd: Path, check: int | None = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a process of its own says; its exit code is the one given, and it has no traceback.

    The process is a copy of one that has imported the library, which takes a second and more. With
    an environment of its own it is a new one, because Python reads the environment when it starts.
    """
    command = [*NEYMAN, *map(str, args)]
    if env is None:
        done = _copied(command, str(cwd))
    else:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
        )
    if check is not None:
        assert done.returncode == check, done.stderr + done.stdout
    assert check == 1 or "Traceback" not in done.stderr
    return done


def _copied(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        files = [DupFd(file.fileno()) for file in (out, errors)]
        process = _SERVER.Process(target=_command, args=(command, folder, dict(os.environ), files))
        process.start()
        process.join(120)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, 120)
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
        return subprocess.CompletedProcess(command, process.exitcode, *texts)


def _command(
    command: list[str], folder: str, environment: dict[str, str], files: list[Any]
) -> None:
    """Run `python -m neyman` in this process, with the streams that the test gave."""
    for stream, file in zip((1, 2), files, strict=True):
        os.dup2(file.detach(), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command[2:]
    runpy.run_module("neyman", run_name="__main__", alter_sys=True)


def answered(*args: object, code: int = 0) -> str:
    """What a command of this process prints; its exit code is the one given."""
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == code, done.output
    return done.stdout
