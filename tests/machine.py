"""What some tests need from the machine beside Python. A test is skipped where it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from neyman.extras import EXTRAS

__all__ = ["NEEDS", "Need", "has", "lack", "need", "reason", "refused"]

INSTALL = "pip install 'neyman[dev]'"
REFUSE = os.environ.get("NEYMAN_SKIPS") == "refuse"
"""Whether a skip is a failure, as in CI."""


@dataclass(frozen=True)
class Need:
    """A program or a right of the machine."""

    what: str
    install: str
    there: Callable[[], bool]


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    if shutil.which(java) is None:
        return False
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', asked.stderr)
    return version is not None and int(version[1]) >= 17


def _postgresql() -> bool:
    folders = [Path(path).parent for path in (shutil.which("postgres"),) if path]
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    return any((folder / "initdb").exists() for folder in folders)


def _chromium() -> bool:
    return os.access("/usr/bin/chromium", os.X_OK)


def _strace() -> bool:
    return _runs("strace", "-o", os.devnull, "true")


def _mount() -> bool:
    """Mounts change only the name space of the trial."""
    trial = "mount -t tmpfs none /mnt && umount /mnt"
    return os.geteuid() == 0 and _runs("unshare", "-m", "sh", "-c", trial)


def _runs(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _release() -> bool:
    return all(find_spec(name) for name in EXTRAS if EXTRAS[name] == "release")


NEEDS: dict[str, Need] = {
    "release": Need("the extra neyman[release]", "pip install 'neyman[release]'", _release),
    "java": Need("Java 17 or later, for Spark", "apt-get install openjdk-17-jre-headless", _java),
    "postgresql": Need("a PostgreSQL server", "apt-get install postgresql", _postgresql),
    "chromium": Need("chromium", "apt-get install chromium", _chromium),
    "strace": Need("strace, and the right to trace", "apt-get install strace", _strace),
    "mount": Need("the right to mount a file system", "run as root where mounts work", _mount),
}


@cache
def has(name: str) -> bool:
    """Return True if this machine has what ``NEEDS`` lists under the name."""
    return NEEDS[name].there()


def need(name: str) -> None:
    """Skip the test that calls this if the machine lacks what ``NEEDS`` lists under the name."""
    if not has(name):
        pytest.skip(reason(name))


def reason(name: str) -> str:
    """Return the reason of such a skip."""
    return f"needs {NEEDS[name].what} ({NEEDS[name].install})"


def lack(error: BaseException | None) -> str | None:
    """Return the reason of a skip if an error says that a package is not installed, or None."""
    if not isinstance(error, ImportError):
        return None
    package = (error.name or "").partition(".")[0]
    own = package == "neyman" or any(Path(__file__).parent.rglob(f"{package}.py"))
    if package and not own and find_spec(package) is None:
        return f"needs the package {package} ({INSTALL})"
    if not has("release") and "pip install 'neyman[" in str(error):
        return reason("release")
    return None


def refused(answer: str) -> bool:
    """Return True if a skip for this reason is a failure: any in CI, except a forbidden mount."""
    return REFUSE and NEEDS["mount"].what not in answer
