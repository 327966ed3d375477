"""One ledger under two names: mounted, moved, copied and restored, really and in processes.

Each attack asks a ledger whose cap is 1 for a charge of 1 by each of its names. This file is also
the script that the processes run (see `own_process`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from commands import answered, neyman
from ledger_entries import NAME, UNIT, reserve
from neyman import Ledger
from neyman.ledger import BudgetRefused, Checkpoint, LedgerError
from own_process import answer, main

WAIT = 0.2  # seconds
HOLDER = """
import sys
from ledger_entries import reserve
from neyman.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
reserve(ledger, 1, "held")
print("spent", flush=True)
sys.stdin.read()
"""


def new(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(path) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
    return path


def asked(path: Path) -> str:
    """What a ledger at a path says to a charge of 1."""
    try:
        with Ledger(path, wait=WAIT) as ledger:
            reserve(ledger, 1)
        return "granted"
    except LedgerError as error:
        return str(error)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as error:
        call()
    return str(error.value)


def moved(path: Path) -> str:
    """What an operator who confirms the location of a ledger is told, if it is refused."""
    return refused(lambda: Ledger(path, wait=WAIT).confirm_location())


@pytest.fixture
def holder(tmp_path: Path):
    """Start a process that spends all of a ledger, and stays connected until it is let go."""
    processes: list[subprocess.Popen[str]] = []

    def start(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "spent\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


# The three attacks


def mounted(folder: str) -> object:
    """A ledger's file, mounted into another folder as a container does: what each name grants."""
    here, there = new(Path(folder) / "here" / "ledger.db"), Path(folder) / "there" / "ledger.db"
    there.parent.mkdir()
    there.touch()
    subprocess.run(["mount", "--bind", str(here), str(there)], check=True)
    book = Ledger(here)
    book.account(NAME)  # stays connected, as a process on the host may
    said = [answer(__file__, "granted", there)]
    try:
        reserve(book, 1)
        said.append("granted")
    except LedgerError as error:
        said.append(str(error))
    said.append(answer(__file__, "granted", there))
    said.append(answer(__file__, "confirmed", there))
    return said


def granted(path: str) -> object:
    """What its own process is told by a ledger that it asks for a charge of 1."""
    return asked(Path(path))


def confirmed(path: str) -> object:
    """What its own process is told that confirms a location."""
    try:
        return str(Ledger(path, wait=WAIT).confirm_location())
    except LedgerError as error:
        return str(error)


def mounted_folder(folder: str) -> object:
    here, there = new(Path(folder) / "here" / "ledger.db"), Path(folder) / "there"
    there.mkdir()
    subprocess.run(["mount", "--bind", str(here.parent), str(there)], check=True)
    reserve(Ledger(here), 1)
    return [answer(__file__, "granted", path) for path in (there / "ledger.db", here)]


@pytest.mark.needs("mount")
def test_a_file_that_is_mounted_by_itself_grants_its_cap_once(tmp_path: Path):
    """By the name that is a mount point nothing is granted, whoever else is connected."""
    first, here, second, third = answer(__file__, "mounted", tmp_path, before=("unshare", "-m"))
    assert [first, here, second].count("granted") == 1
    assert here == "granted"
    for text in (first, second, third):
        assert "is a mount point" in text
        assert "Mount its folder instead" in text


@pytest.mark.needs("mount")
def test_a_folder_that_is_mounted_elsewhere_holds_one_ledger(tmp_path: Path):
    for text in answer(__file__, "mounted_folder", tmp_path, before=("unshare", "-m")):
        assert "0 of 1 is left" in text


def test_a_ledger_that_is_moved_while_a_process_is_connected_grants_its_cap_once(tmp_path, holder):
    path, elsewhere = new(tmp_path / "a" / "ledger.db"), tmp_path / "b" / "ledger.db"
    elsewhere.parent.mkdir()
    process = holder(path)
    for to in (path.with_name("new.db"), elsewhere):
        path.rename(to)
        assert "is not where this ledger belongs" in asked(to)
        assert "is in use" in moved(to)
        to.rename(path)
    process.communicate()
    assert "0 of 1 is left" in asked(path)
    assert Ledger(path).verify().ok


def test_a_ledger_that_is_moved_after_a_kill_grants_its_cap_once(tmp_path: Path, holder):
    path, to = new(tmp_path / "a" / "ledger.db"), tmp_path / "b" / "new.db"
    to.parent.mkdir()
    process = holder(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    log = path.with_name("ledger.db-wal")
    assert log.stat().st_size
    path.rename(to)
    assert "is not where this ledger belongs" in asked(to)
    assert "ledger.db-wal holds the newest spends" in moved(to)
    # In the folder, and under a name, where nobody looks for it.
    log.rename(to.with_name("ledger.db-wal"))
    assert "ledger.db-wal holds the newest spends" in moved(to)
    to.with_name("ledger.db-wal").rename(to.with_name("new.db-wal"))
    assert "is not where this ledger belongs" in asked(to)
    with Ledger(to) as ledger:
        ledger.confirm_location()
        assert ledger.account(NAME).left == 0
        assert ledger.verify().ok
    assert "0 of 1 is left" in asked(to)
    assert sorted(os.listdir(to.parent)) == ["new.db"]


# Other ways to two names


def test_a_ledger_moved_back_after_a_kill_is_whole(tmp_path: Path, holder):
    path = new(tmp_path / "ledger.db")
    process = holder(path)
    process.kill()
    process.wait()
    for _ in range(2):
        path.rename(tmp_path / "new.db")
        asked(tmp_path / "new.db")
        (tmp_path / "new.db").rename(path)
    assert "0 of 1 is left" in asked(path)


def test_a_copy_is_refused_and_cannot_be_confirmed_while_the_ledger_is_there(tmp_path: Path):
    path = new(tmp_path / "a" / "ledger.db")
    shutil.copy(path, tmp_path / "a" / "copy.db")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for copy in (tmp_path / "a" / "copy.db", tmp_path / "b" / "ledger.db"):
        assert "is not where this ledger belongs" in asked(copy)
        assert "is a copy: the ledger is at" in moved(copy)
    assert asked(path) == "granted"


def test_a_backup_put_in_the_place_of_the_ledger_is_refused_until_it_is_confirmed(tmp_path: Path):
    path, backup = new(tmp_path / "ledger.db"), tmp_path / "backup.db"
    shutil.copy(path, backup)
    assert asked(path) == "granted"
    selection = Ledger(path).keep_checkpoint(tmp_path / "kept")
    backup.replace(path)
    text = asked(path)
    assert "as after a backup was restored" in text
    assert f"neyman ledger confirm-location {path}" in text
    behind = refused(lambda: Ledger(path, checkpoint=tmp_path / "kept").confirm_location())
    assert "rolled back or restored from a backup" in behind
    with Ledger(path) as ledger:
        product = ledger.confirm_location("restored")
        assert product.events == selection.events
        assert product.head != selection.head
        assert not ledger.verify(selection).ok


def test_a_ledger_swapped_for_a_copy_while_a_process_is_connected_is_refused(tmp_path, holder):
    path, copy = new(tmp_path / "ledger.db"), tmp_path / "copy.db"
    shutil.copy(path, copy)
    content = copy.read_bytes()
    holder(path)
    log = (tmp_path / "ledger.db-wal").read_bytes()
    path.rename(tmp_path / "aside.db")
    copy.rename(path)
    assert "is not where this ledger belongs" in asked(path)
    assert path.read_bytes() == content
    assert (tmp_path / "ledger.db-wal").read_bytes() == log


def test_a_folder_that_is_renamed_takes_its_ledger_with_it(tmp_path: Path, holder):
    path = new(tmp_path / "a" / "ledger.db")
    process = holder(path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert "0 of 1 is left" in asked(tmp_path / "b" / "ledger.db")
    process.communicate()
    assert "0 of 1 is left" in asked(tmp_path / "b" / "ledger.db")


def test_a_link_left_at_the_old_place_leads_to_the_ledger(tmp_path: Path):
    path, to = new(tmp_path / "ledger.db"), tmp_path / "b" / "ledger.db"
    to.parent.mkdir()
    path.rename(to)
    path.symlink_to(to)
    assert "is not where this ledger belongs" in asked(path)
    Ledger(path).confirm_location()
    assert asked(path) == "granted"
    assert "0 of 1 is left" in asked(to)


def test_a_log_that_stayed_behind_beside_a_link_or_another_file_is_found(tmp_path: Path, holder):
    path, to = new(tmp_path / "a" / "ledger.db"), tmp_path / "b" / "ledger.db"
    to.parent.mkdir()
    process = holder(path)
    process.kill()
    process.wait()
    path.rename(to)
    path.symlink_to(to)
    for name in (path, to):
        assert "ledger.db-wal holds the newest spends" in moved(name)
    path.unlink()
    path.write_text("not a ledger")
    assert "ledger.db-wal holds the newest spends" in moved(to)
    to.rename(path)
    assert "0 of 1 is left" in asked(path)


def test_a_ledger_may_move_where_another_was(tmp_path: Path):
    path, to = new(tmp_path / "ledger.db"), tmp_path / "to.db"
    path.rename(to)
    new(path)
    Ledger(to).confirm_location()
    assert [asked(to), asked(path)] == ["granted", "granted"]  # two ledgers, each with its cap
    third = tmp_path / "third.db"
    to.rename(third)
    to.write_text("not a ledger")
    assert Ledger(third).confirm_location().events == 5
    assert to.read_text() == "not a ledger"


# Confirming


def test_confirming_is_an_event_and_once_is_enough(tmp_path: Path):
    path, to = new(tmp_path / "ledger.db"), tmp_path / "to.db"
    with Ledger(path) as ledger:
        before = ledger.checkpoint()
        assert ledger.confirm_location() == before
    path.rename(to)
    with Ledger(to) as ledger:
        after = ledger.confirm_location("a new disk")
        assert after.events == before.events + 1
        assert ledger.confirm_location() == after
        content = json.loads(list(ledger.lines())[-1])
        assert (content["kind"], content["why"]) == ("location", "a new disk")
        assert ledger.verify(before).ok
        assert str(tmp_path) not in "".join(ledger.lines())  # the export shows no path
        with pytest.raises(ValueError, match="why"):
            ledger.confirm_location("")


def test_a_damaged_ledger_is_not_confirmed(tmp_path: Path):
    path, to = new(tmp_path / "ledger.db"), tmp_path / "to.db"
    raw = apsw.Connection(str(path))
    raw.execute("DROP TRIGGER account_no_update; UPDATE account SET currency = 'pure'")
    raw.close()
    path.rename(to)
    before = to.read_bytes()
    assert "does not verify" in moved(to)
    assert to.read_bytes() == before
    assert os.listdir(tmp_path) == ["to.db"]


def killed(folder: str, share: str) -> object:
    """Confirm a move, killed at each step in turn, or at one of ``share``; the number of steps."""
    from itertools import count

    from kill_points import forked

    for number in count(1, int(share)):
        own = Path(folder) / str(number)
        path, to = new(own / "a" / "ledger.db"), own / "ledger.db"
        with Ledger(path) as ledger:
            reserve(ledger, 1)
        path.rename(to)
        said = forked(lambda _, to=to: Ledger(to).confirm_location(), number, own)
        assert asked(to) == "granted" or said.killed or "0 of 1 is left" in asked(to), said.lines
        with Ledger(to) as ledger:
            ledger.confirm_location()
            assert ledger.verify().ok
            assert ledger.checkpoint().events == 4
            assert ledger.account(NAME).left == 0
        if not said.killed:
            assert said.done, said.lines
            return number - 1
    raise AssertionError


@pytest.mark.parametrize("share", [12, 1])
def test_confirming_killed_at_each_step_is_done_or_not(tmp_path, share):
    assert answer(__file__, "killed", tmp_path, share) > 5


def confirming(folder: str) -> object:
    """Eight processes confirm a move at once; what became of each."""
    path, to = new(Path(folder) / "ledger.db"), Path(folder) / "to.db"
    path.rename(to)
    children = []
    for _ in range(8):
        if not (child := os.fork()):
            try:
                Ledger(to).confirm_location()
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_racing_operators_confirm_once(tmp_path: Path):
    assert answer(__file__, "confirming", tmp_path) == [0] * 8
    with Ledger(tmp_path / "to.db") as ledger:
        assert ledger.checkpoint().events == 3
        assert ledger.verify().ok


def test_the_command_confirms_and_says_what_to_compare(tmp_path: Path):
    path, to = new(tmp_path / "ledger.db"), tmp_path / "to.db"
    Ledger(path).keep_checkpoint(tmp_path / "kept")
    path.rename(to)
    shown = neyman("ledger", "show", to, cwd=tmp_path, check=2)
    assert "confirm-location" in shown.stderr
    confirm = ("ledger", "confirm-location")
    release = answered(*confirm, to, "--why", "moved")
    assert "belongs here" in release
    assert "checkpoint" in release
    answered("ledger", "show", to)
    assert "location" in answered("ledger", "history", to)
    assert json.loads(answered(*confirm, to, "--json"))["events"] == 3
    answered(*confirm, to, "--checkpoint", tmp_path / "kept")
    assert Checkpoint.load(tmp_path / "kept").events == 3
    nowhere = neyman(*confirm, path, cwd=tmp_path, check=2)
    assert "there is no ledger at" in " ".join(nowhere.stderr.split())


@pytest.mark.parametrize("statement", [
    "DELETE FROM location", "UPDATE location SET place = '{}'", "UPDATE location SET event = 2",
    "UPDATE location SET event = 3, id = 2", "INSERT INTO location VALUES (2, 3, '{}', '')",
    "INSERT OR REPLACE INTO location VALUES (1, 3, '{}', '')",
])  # fmt: skip
def test_the_file_itself_keeps_its_location(tmp_path: Path, statement: str):
    path = new(tmp_path / "ledger.db")
    with Ledger(path) as ledger:
        reserve(ledger, "1/2")
    raw = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError):
        raw.execute(statement)
    raw.close()
    with Ledger(path) as ledger:
        assert ledger.verify().ok
        with pytest.raises(BudgetRefused):
            reserve(ledger, 1)


def test_a_ledger_on_postgresql_has_no_location(postgres):
    with Ledger(postgres.url(schema="nofile")) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        with pytest.raises(LedgerError, match="has no file"):
            ledger.confirm_location()


if __name__ == "__main__":
    main(globals())
