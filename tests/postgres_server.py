"""A PostgreSQL server of the tests' own: made from the machine's binaries, gone when they end.

It listens on a Unix socket in a temporary folder and nowhere else. PostgreSQL refuses to run as
root, so for root it runs as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

LIBC = ctypes.CDLL(None)
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux: no server outlives a run that was killed
INSTALL = (
    "these tests start a PostgreSQL server, and found no `initdb` and `postgres` on PATH or under"
    " /usr/lib/postgresql: install them (Debian: apt-get install postgresql), or leave these tests"
    " out with -k 'not postgres'"
)
SHARED = "dynamic_shared_memory_type=mmap"  # in its folder: nothing is left of a killed server
HBA = "local all guarded,sentinel scram-sha-256\nlocal all all trust\nlocal replication all trust\n"


def roomy() -> str:
    """A folder in memory with a GiB to spare, or /tmp."""
    memory = "/dev/shm"
    try:
        return memory if shutil.disk_usage(memory).free > 1 << 30 else "/tmp"
    except OSError:
        return "/tmp"


def binaries() -> Path:
    """The folder of the newest `initdb` and `postgres`."""
    results = [Path(os.path.realpath(path)).parent for path in (shutil.which("postgres"),) if path]
    results += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: -float(p.parent.name or 0)
    )
    for folder in results:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError(INSTALL)


class PostgresServer:
    """A server and its one database cluster; a context manager.

    Args:
        copy_of: a running server to be the standby of; otherwise an empty cluster is made.
        above: the folder that its own is made in; in memory if there is room, because the server
            is killed in tests, but never the machine. A path of a socket has to be short.
    """

    def __init__(self, copy_of: PostgresServer | None = None, above: str | None = None) -> None:
        self.bin = binaries()
        self.copy_of = copy_of
        self.folder = Path(tempfile.mkdtemp(prefix="neyman-pg-", dir=above or roomy()))
        self.log = self.folder / "log"
        self.user: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        try:
            if os.geteuid() == 0:
                names = {one.pw_name for one in pwd.getpwall()}
                owner = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
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
        """Make an empty cluster, or a copy of another server's."""
        self.data = self.folder / "data"
        if self.copy_of is None:
            names = ["-U", "neyman", "-A", "trust", "-E", "UTF8", "--locale=C"]
            quick = ["--no-sync", "--no-instructions"]
            self.run_as_user(self.bin / "initdb", "-D", self.data, *names, *quick)
            (self.data / "pg_hba.conf").write_text(HBA)
        else:
            source = ["-h", self.copy_of.folder, "-U", "neyman"]
            how = ["-R", "-c", "fast", "-N"]
            self.run_as_user(self.bin / "pg_basebackup", "-D", self.data, *how, *source)

    def close(self) -> None:
        """End the server in an instant, with its backends, and remove its folder."""
        if self.process and self.process.poll() is None:
            self.stop("immediate")
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL to the server and its processes, which would end what they began without it."""
        if self.process is not None:
            pid, children = self.process.pid, list[str]()
            with suppress(FileNotFoundError):  # it has ended already
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
            self.process.kill()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            self.process.wait()

    def run_as_user(self, *command: object) -> None:
        """Run a program to its end."""
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, cwd=self.folder, check=False,
            **self.user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def url(self, schema: str = "", **parameters: str) -> str:
        """The URL of a ledger on this server, in its own schema."""
        given = {"host": str(self.folder), "user": "neyman", **parameters}
        if schema:
            given["schema"] = schema
        return "postgresql:///postgres?" + "&".join(f"{k}={quote(v)}" for k, v in given.items())

    def start(self, *settings: str, largest: int | None = None) -> None:
        """Start it, with settings such as "fsync=off", and return when it takes connections.

        No file of its grows past ``largest`` bytes, as if the disk were full.
        """
        command: list[object] = [self.bin / "postgres", "-D", self.data, "-k", self.folder]
        for setting in ("listen_addresses=", "shared_buffers=32MB", SHARED, *settings):
            command += ["-c", setting]
        deadline = time.monotonic() + 60
        while True:
            process = self._launch(command, largest)
            while process.poll() is None:
                if self._ready():
                    return
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"PostgreSQL is not ready after 60 s:\n{self.log.read_text()}"
                    )
                time.sleep(0.02)
            # Backends of a server that was killed live on for a moment, and hold its memory.
            again = re.search("shared memory block|lock file", self.log.read_text())
            if not again or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start:\n{self.log.read_text()}")
            time.sleep(0.1)

    def stop(self, mode: str) -> None:
        """Stop it: "fast" in order, "immediate" as if the power failed."""
        assert self.process
        self.process.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        self.process.wait(60)

    def _launch(self, command: list[object], largest: int | None) -> subprocess.Popen[bytes]:
        """Start the process, which writes to the log."""

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

    def _ready(self) -> bool:
        asked = [self.bin / "pg_isready", "-q", "-h", self.folder, "-U", "neyman", "-d", "postgres"]
        return subprocess.run(asked, check=False).returncode == 0
