"""A MariaDB server of the tests' own: made from the machine's binaries, gone when they end.

It listens on a Unix socket in a temporary folder and nowhere else. For root it runs as the user
`mysql` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import MySQLdb

from postgres_server import END_WITH_PARENT, LIBC, roomy

SETTINGS = (
    "skip-networking",
    "skip-log-bin",
    "innodb-buffer-pool-size=32M",
    "innodb-log-file-size=4M",
    "innodb-flush-log-at-trx-commit=0",
    "lock-wait-timeout=5",
)


class MariaServer:
    """A server with a user `root` without a password; a context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="neyman-maria-", dir=roomy()))
        self.socket = self.folder / "socket"
        self.user: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        try:
            if os.geteuid() == 0:
                names = {user.pw_name for user in pwd.getpwall()}
                user = pwd.getpwnam("mysql" if "mysql" in names else "nobody")
                os.chown(self.folder, user.pw_uid, user.pw_gid)
                self.user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
            command = ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data"]
            command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            command += ["--skip-name-resolve", "--innodb-log-file-size=4M"]
            subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self.user)
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        command = [shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults"]
        command += [f"--datadir={self.folder}/data", f"--socket={self.socket}"]
        command += [f"--pid-file={self.folder}/pid", *(f"--{one}" for one in SETTINGS)]
        log = self.folder / "log"
        with open(log, "wb") as stream:
            self.process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                cwd=self.folder,
                preexec_fn=lambda: LIBC.prctl(END_WITH_PARENT, signal.SIGKILL),  # noqa: PLW1509
                **self.user,
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.connect().close()
            except MySQLdb.Error:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"MariaDB does not start:\n{log.read_text()}")

    def connect(self, **given: Any) -> Any:
        """Return a connection of root that commits each statement."""
        settings = {"user": "root", "unix_socket": str(self.socket), "charset": "utf8mb4"}
        return MySQLdb.connect(**(settings | given), autocommit=True)

    def run(self, *statements: str) -> None:
        """Run statements as root."""
        connection = self.connect()
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()

    def kill(self) -> None:
        """SIGKILL to the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def url(self, database: str, table: str, user: str = "root") -> str:
        """The address of a table."""
        return f"mariadb://{user}@/{database}?table={quote(table)}&socket={self.socket}"
