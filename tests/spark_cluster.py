"""A Spark cluster of the tests' own: a standalone master, and workers of one core each."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from own_process import children
from postgres_server import END_WITH_PARENT, LIBC

HOST = "127.0.0.1"
START_SECONDS = 60.0


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


class SparkCluster:
    """A standalone master and its workers, each a process of its own; a context manager.

    Its settings are those of an operator: in a file for its processes, and for a driver that has
    the folder ``conf`` in the variable SPARK_CONF_DIR.

    Args:
        workers: how many there are, each with one core.
        settings: for ``spark-defaults.conf``.
        memory: of each worker, of which a run's executor takes 1 GB by default.
        above: the folder that its own is made in, to which the workers write rows.
    """

    def __init__(
        self,
        workers: int,
        settings: Mapping[str, str],
        memory: str = "2g",
        above: str | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="neyman-spark-", dir=above))
        self.conf = self.folder / "conf"
        self.conf.mkdir()
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self.conf / "spark-defaults.conf").write_text(lines)
        self.url = f"spark://{HOST}:{free_port()}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        port = self.url.rpartition(":")[2]
        master = ["master.Master", "--host", HOST, "--port", port, "--webui-port", "0"]
        worker = ["worker.Worker", "--host", HOST, "--webui-port", "0", "--cores", "1"]
        worker += ["--memory", memory, "--work-dir", str(self.folder / "work"), self.url]
        try:
            self._start(master, "elected leader")
            for _ in range(workers):
                self.workers.append(self._start(worker, "registered with master"))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, command: list[str], ready: str) -> subprocess.Popen[bytes]:
        """Start a process, and return when its log has the words."""
        import pyspark

        home = Path(str(pyspark.__file__)).parent
        log = self.folder / f"log{len(self._processes)}"
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_LOCAL_IP": HOST,  # nothing listens to other machines
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        kind, *rest = command
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *rest],
                stdout=stream,
                stderr=stream,
                env={**os.environ, **settings},
                preexec_fn=lambda: LIBC.prctl(END_WITH_PARENT, signal.SIGKILL),  # noqa: PLW1509
            )
        self._processes.append(process)
        end = time.monotonic() + START_SECONDS
        while ready not in (said := log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{kind} of Spark did not start:\n{said[-2000:]}")
            time.sleep(0.05)
        return process

    def signal_worker(self, number: int, sent: signal.Signals) -> None:
        """Send a signal to a worker and its executors: SIGKILL is as if their machine had died."""
        process = self.workers[number].pid
        for one in (process, *children(process)):
            with suppress(ProcessLookupError):
                os.kill(one, sent)

    def close(self) -> None:
        """End all processes, and remove the folder."""
        for number in range(len(self.workers)):
            self.signal_worker(number, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
