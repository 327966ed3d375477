"""A database server of the tests' own: its folder, its user, and its process."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

LIBC = ctypes.CDLL(None)
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux: no server outlives a run that was killed


def roomy() -> str:
    """A folder in memory with a GiB to spare, or /tmp."""
    memory = "/dev/shm"
    try:
        return memory if shutil.disk_usage(memory).free > 1 << 30 else "/tmp"
    except OSError:
        return "/tmp"


class DatabaseServer:
    """A server in a new folder; a context manager.

    Args:
        prefix: how the name of its folder begins.
        user: the name it has for root; "nobody" where the machine lacks it.
        above: the folder that its own is made in; in memory if there is room, because the server
            is killed in tests, but never the machine. A path of a socket has to be short.
    """

    def __init__(self, prefix: str, user: str, above: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=above or roomy()))
        self.log = self.folder / "log"
        self.user: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        try:
            if os.geteuid() == 0:
                names = {one.pw_name for one in pwd.getpwall()}
                owner = pwd.getpwnam(user if user in names else "nobody")
                os.chown(self.folder, owner.pw_uid, owner.pw_gid)
                self.user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": ()}
            self.create()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self) -> None:
        """Make its files."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        raise NotImplementedError

    def close(self) -> None:
        """End the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL to the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def run_as_user(self, *command: object) -> None:
        """Run a program to its end."""
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self.user,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def launch(
        self, command: Sequence[object], largest: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the process, which writes to the log.

        No file of its grows past ``largest`` bytes, as if the disk were full.
        """

        def limit() -> None:
            LIBC.prctl(END_WITH_PARENT, signal.SIGKILL)
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

        with open(self.log, "wb") as stream:
            self.process = subprocess.Popen(
                [*map(str, command)],
                stdout=stream,
                stderr=stream,
                cwd=self.folder,
                preexec_fn=limit,  # noqa: PLW1509  # it calls the system, and nothing else
                **self.user,
            )
        return self.process
