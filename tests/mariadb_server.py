"""A MariaDB server of the tests' own: made from the machine's binaries, gone when they end.

It listens on a Unix socket in a temporary folder and nowhere else. For root it runs as the user
`mysql` or `nobody`.
"""

from __future__ import annotations

import shutil
import time
from typing import Any
from urllib.parse import quote

import MySQLdb

from database_server import DatabaseServer

SETTINGS = (
    "skip-networking",
    "skip-log-bin",
    "innodb-buffer-pool-size=32M",
    "innodb-log-file-size=4M",
    "innodb-flush-log-at-trx-commit=0",
    "lock-wait-timeout=5",
)


class MariaServer(DatabaseServer):
    """A server with a user `root` without a password; a context manager."""

    def __init__(self) -> None:
        super().__init__("neyman-maria-", "mysql")

    def create(self) -> None:
        """Make its system tables."""
        self.socket = self.folder / "socket"
        options = ["--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db"]
        options += ["--auth-root-authentication-method=normal"]
        options += ["--skip-name-resolve", "--innodb-log-file-size=4M"]
        self.run_as_user("mariadb-install-db", *options)

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        command = [shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults"]
        command += [f"--datadir={self.folder}/data", f"--socket={self.socket}"]
        command += [f"--pid-file={self.folder}/pid", *(f"--{one}" for one in SETTINGS)]
        process = self.launch(command)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            try:
                self.connect().close()
            except MySQLdb.Error:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"MariaDB does not start:\n{self.log.read_text()}")

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

    def url(self, database: str, table: str, user: str = "root") -> str:
        """The address of a table."""
        return f"mariadb://{user}@/{database}?table={quote(table)}&socket={self.socket}"
