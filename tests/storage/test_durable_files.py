"""What survives a loss of power: content is on the disk before its name, and the name at the end.

A kill cannot show this, since the page cache survives it. So a recorder notes what each `fsync`
made durable, and compares it with what the files and folders hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neyman as ny
from neyman import Release
from neyman.analysis.training.checkpoint import CHECKPOINT, State, save
from neyman.ledger import Checkpoint
from neyman.ledger.chain import write_checkpoint
from neyman.publishing import create_key
from neyman.publishing.release.folder import staging, sweep
from neyman.storage import make_folder, replace_file

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
    (root / ".check.new").write_bytes(b"left by a killed writer")
    for events in (1, 2):
        write_checkpoint(root / "check", Checkpoint("0" * 32, events, str(events) * 64))


def training_saved(root: Path) -> None:
    save(root, State("key", 1, 0, 1, 0), np.ones(3))
    assert (root / CHECKPOINT).exists()


def key_created(root: Path) -> None:
    create_key(root / "custodian")


def release_published(root: Path) -> None:
    with staging(root / "a" / "b" / "release") as stage:
        stage.write("receipt.json", b"{}")
        stage.write("tables/all.csv", b"1")
        with stage.writing("tables/more/deep.csv") as file:
            file.write(b"2")
        stage.publish()


def release_copied(root: Path) -> None:
    with staging(root / "release") as stage:
        stage.write("receipt.json", b"{}")
        stage.replace(Earlier())
        stage.publish()


class Earlier:
    def __iter__(self):
        return iter(("receipt.json", "tables/all.csv"))

    def chunks(self, path: str):
        yield from (path.encode(), b"\n")


def ledger_created(root: Path) -> None:
    ledger = ny.Ledger(root / "ledger.db")
    ledger.create("d@1", protects="person", neighboring="add-remove", cap=1)


def ledger_moved(root: Path) -> None:
    ledger_created(root)
    (root / "ledger.db").rename(root / "moved.db")
    ny.Ledger(root / "moved.db").confirm_location("moved")


def trained(root: Path) -> None:
    ledger = ny.Ledger(root / "ledger.db")
    terms = {"currency": "renyi:8", "cap": 1000}
    ledger.create("toy@1", protects="person", neighboring="add-remove", **terms)
    ny.train(
        lambda parameters, rows: parameters - np.ones((len(rows), 2)),
        start=np.zeros(2),
        rows=20,
        mechanism=ny.DPSGD(20, 5, 2, 2),
        clip=1,
        step_size=0.5,
        dataset="toy@1",
        ledger=ledger,
        out=root / "a" / "out",
    )


@pytest.mark.parametrize(("work", "renames"), [
    (replaced, 1), (new_folders, 0), (checkpoint_written, 2), (training_saved, 1),
    (key_created, 0), (release_published, 1), (release_copied, 1), (ledger_created, 1),
    (ledger_moved, 2), (trained, 4),
])  # fmt: skip
def test_content_is_durable_before_its_name_and_the_name_at_the_end(work, renames, disk):
    handles = len(os.listdir("/dev/fd"))
    work(disk.root)
    disk.check(disk.root)
    assert len(os.listdir("/dev/fd")) <= handles
    assert disk.renames >= renames
    assert disk.syncs > 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_folder_above_the_output_that_is_locked_by_others_is_an_error_in_words(tmp_path):
    import fcntl

    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (
            pytest.raises(ValueError, match=r"locked the folder above it for 0.1 s"),
            staging(tmp_path / "out", wait=0.1),
        ):
            pass
        assert not (tmp_path / "out").exists()
        sweep(tmp_path / "out")  # what cannot be swept now is left for later
    finally:
        os.close(handle)


def test_files_appear_together_and_a_second_set_takes_the_place_of_the_first(tmp_path):
    out = tmp_path / "out"
    with staging(out) as stage:
        stage.write("tables/a.csv", b"1")
        with stage.writing("b") as file:
            file.write(b"2")
            file.write(b"3")
        assert file.hexdigest() == hashlib.sha256(b"23").hexdigest()
        assert not out.exists()
        first = Release(stage.folder, {}).files
        assert dict(first) == {"tables/a.csv": b"1", "b": b"23"}
        with pytest.raises(FileExistsError):
            stage.write("b", b"4")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "c").write_bytes(b"5")
        stage.replace(Release(tmp_path / "other", {}).files)
        stage.publish()
    assert dict(Release(out, {}).files) == {"c": b"5"}
