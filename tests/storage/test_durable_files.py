"""What survives a loss of power: content is on the disk before its name, and the name at the end.

A kill cannot show this, since the page cache survives it. So a recorder notes what each `fsync`
made durable, and compares it with what the files and folders hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.ledger import ChargedError
from neyman.publishing import create_key
from neyman.storage import make_folder, replace_file
from plans import SMALL, release

Content = bytes | dict[str, int] | None


class Disk:
    """A folder as a loss of power would leave it.

    Each rename and each link finds the content of what it makes visible on the disk.

    Args:
        root: the folder; what it holds now is durable.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.durable: dict[int, Content] = {}
        self.syncs = self.renames = 0
        for path in self._paths(root):
            self.durable[path.stat().st_ino] = self._state(path)
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("rename", "replace", "link"):
            monkeypatch.setattr(os, name, self.named(getattr(os, name)))

    @staticmethod
    def _paths(root: Path) -> list[Path]:
        return [root, *root.rglob("*")]

    @staticmethod
    def _state(path: Path) -> Content:
        """The content of a file, or the names in a folder; None of SQLite's own files."""
        if path.is_dir():
            return {each.name: each.stat().st_ino for each in path.iterdir()}
        return None if ".db" in path.name else path.read_bytes()

    def fsync(self, handle: int) -> None:
        self._sync(handle)
        number = os.fstat(handle).st_ino
        (path,) = {each for each in self._paths(self.root) if each.stat().st_ino == number}
        self.durable[number] = self._state(path)
        self.syncs += 1

    def named(self, real: Callable[..., None]) -> Callable[..., None]:
        def name(source: Any, target: Any, *rest: Any, **more: Any) -> None:
            self.check(Path(source))
            real(source, target, *rest, **more)
            self.renames += 1

        return name

    def check(self, top: Path) -> None:
        """Whether all that is at a path or below it survives."""
        for path in self._paths(top):
            now, durable = self._state(path), self.durable.get(path.stat().st_ino)
            if isinstance(now, dict):  # a name that comes back after it was removed is harmless
                assert not now or now.items() <= (durable or {}).items(), f"names in {path}"
            else:
                assert now == durable, f"content of {path}"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "old").write_bytes(b"before")
    return Disk(tmp_path, monkeypatch)


def test_the_recorder_finds_each_missing_step(disk: Disk):
    new, old = disk.root / "new", disk.root / "old"
    with new.open("wb") as file:
        file.write(b"after")
        os.fsync(file.fileno())  # the content is still in the process
    with pytest.raises(AssertionError, match="content"):
        new.replace(old)
    with new.open("r+b") as file:
        os.fsync(file.fileno())
    new.replace(old)
    with pytest.raises(AssertionError, match="names"):
        disk.check(disk.root)


def replaced(root: Path) -> None:
    (root / ".old.new").symlink_to(root / "elsewhere")  # what another left there is not followed
    replace_file(root / "old", b"after")


def new_folders(root: Path) -> None:
    make_folder(root / "a" / "b" / "c")


def checkpoint_written(root: Path) -> None:
    ledger = ledger_created(root)
    (root / ".check.new").write_bytes(b"left by a killed writer")
    ledger.keep_checkpoint(root / "check")
    ledger.allocate("d@1", "team", cap=1)
    ledger.keep_checkpoint(root / "check")


def key_created(root: Path) -> None:
    create_key(root / "custodian")


def ledger_created(root: Path) -> ny.Ledger:
    ledger = ny.Ledger(root / "ledger.db")
    ledger.create("d@1", protects="person", neighboring="replace-one", cap=1)
    return ledger


def release_published(root: Path, *folders: str) -> None:
    plan, data = ny.Plan.from_dict(SMALL | {"dataset": "d@1"}), pa.table({"race": ["white"]})
    ledger = ledger_created(root)
    for folder in folders or ["a/b/release"]:
        release(plan, {"people": data}, ledger, root / folder)


def release_copied(root: Path) -> None:
    release_published(root, "release", "copy")


def ledger_moved(root: Path) -> None:
    ledger_created(root)
    (root / "ledger.db").rename(root / "moved.db")
    ny.Ledger(root / "moved.db").confirm_location("moved")


def trained(root: Path, rows: int = 20) -> None:
    ledger = ny.Ledger(root / "ledger.db")
    terms = {"currency": "renyi:8", "cap": 1000}
    ledger.create("toy@1", protects="person", neighboring="add-remove", **terms)
    ny.train(
        lambda parameters, batch: parameters - np.ones((min(len(batch), rows), 2)),
        start=np.zeros(2),
        rows=20,
        mechanism=ny.DPSGD(20, 5, 2, 2),
        clip=1,
        step_size=0.5,
        dataset="toy@1",
        ledger=ledger,
        out=root / "a" / "out",
    )


def training_stopped(root: Path) -> None:
    with pytest.raises(ChargedError):
        trained(root, rows=0)
    assert any((root / "a" / "out").iterdir())


@pytest.mark.parametrize(("work", "renames"), [
    (replaced, 1), (new_folders, 0), (checkpoint_written, 3), (training_stopped, 2),
    (key_created, 0), (release_published, 2), (release_copied, 3), (ledger_created, 1),
    (ledger_moved, 2), (trained, 4),
])  # fmt: skip
def test_content_is_durable_before_its_name_and_the_name_at_the_end(work, renames, disk):
    handles = len(os.listdir("/dev/fd"))
    work(disk.root)
    disk.check(disk.root)
    assert len(os.listdir("/dev/fd")) <= handles
    assert disk.renames >= renames
    assert disk.syncs > 0
