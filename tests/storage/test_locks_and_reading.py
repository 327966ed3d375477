"""Locks that end with their handle, turns that pass on, and files that are read to their end."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neyman.ledger import LedgerError, file_turn
from neyman.storage import lock, names, open_file, read_file

LONG = 60.0  # seconds, of which a test waits for almost none


@pytest.fixture(autouse=True)
def no_wait_without_an_end() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise RuntimeError("a wait does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONG / 2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def no_handle_left() -> Iterator[None]:
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


@contextmanager
def soon(work: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(0.1, work)
    timer.start()
    yield
    timer.join()


def refused(code: int, ask: Callable[[], object]) -> OSError:
    with no_handle_left(), pytest.raises(OSError, match=rf"\[Errno {code}\]") as caught:
        ask()
    return caught.value


def test_one_holder_at_a_time_has_a_lock(tmp_path: Path):
    with no_handle_left():
        handle = lock(tmp_path)
        assert handle is not None
        refused(errno.EAGAIN, lambda: lock(tmp_path))
        refused(errno.EAGAIN, lambda: lock(tmp_path, 0.05))
        with soon(lambda: os.close(handle)):
            second = lock(tmp_path, LONG)
        assert second is not None
        os.close(second)


def test_a_lock_makes_a_private_file_only_if_asked_and_follows_no_link(tmp_path: Path):
    file, link = tmp_path / "file", tmp_path / "link"
    refused(errno.ENOENT, lambda: lock(file))
    handle = lock(file, create=True)
    assert handle is not None
    os.close(handle)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    link.symlink_to(file)
    refused(errno.ELOOP, lambda: lock(link))


def test_a_name_is_that_of_an_open_file_until_another_has_it(tmp_path: Path):
    file, link = tmp_path / "file", tmp_path / "link"
    handle = lock(file, create=True)
    assert handle is not None
    link.symlink_to(file)
    assert names(file, handle)
    assert not names(link, handle)
    file.rename(tmp_path / "moved")
    assert not names(file, handle)
    file.write_bytes(b"")
    assert not names(file, handle)
    os.close(handle)


def test_a_turn_passes_on_and_leaves_no_file(tmp_path: Path):
    ledger = tmp_path / "ledger.db"
    with no_handle_left():
        first = file_turn(ledger, "plan", 0.0)
        first.__enter__()
        (file,) = tmp_path.iterdir()
        with file_turn(ledger, "another plan", 0.0):
            assert len(list(tmp_path.iterdir())) == 2
        with pytest.raises(
            LedgerError, match=r"not ended within 0.05 s, and this run spent nothing"
        ):
            file_turn(ledger, "plan", 0.05).__enter__()
        # The second waits for a file that the first removes, and makes it anew.
        with soon(lambda: first.__exit__(None, None, None)):
            second = file_turn(ledger, "plan", LONG)
            second.__enter__()
        assert list(tmp_path.iterdir()) == [file]
        refused(errno.EAGAIN, lambda: lock(file))
        second.__exit__(None, None, None)
        assert list(tmp_path.iterdir()) == []


def test_a_turn_where_no_file_can_be_made_is_an_error_in_words(tmp_path: Path):
    with pytest.raises(LedgerError, match="cannot be made beside the ledger: No such file"):
        file_turn(tmp_path / "nowhere" / "ledger.db", "plan", 0.0).__enter__()


def test_a_file_is_read_up_to_a_size(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    with no_handle_left():
        assert read_file(file, 5) == b"12345"
    assert "more than 4 bytes" in str(refused(errno.EFBIG, lambda: read_file(file, 4)))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no file that says no size")
def test_a_file_with_more_than_its_size_is_being_written():
    with pytest.raises(OSError, match="it is being written"):
        read_file("/proc/self/status")


def test_what_is_no_ordinary_file_is_refused_without_waiting(tmp_path: Path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"1")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert "a folder" in str(refused(errno.EISDIR, lambda: open_file(tmp_path)))
    assert "not an ordinary" in str(refused(errno.EINVAL, lambda: open_file(pipe)))
    assert "a symbolic link" in str(refused(errno.ELOOP, lambda: open_file(link, links=False)))
    assert read_file(link) == b"1"
    refused(errno.ENOENT, lambda: open_file(tmp_path / "nothing", links=False))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "a symbolic link" not in str(refused(errno.ELOOP, lambda: open_file(loop)))
