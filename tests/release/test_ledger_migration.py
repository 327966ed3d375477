"""A ledger of the first version is taken over whole, in one step, and nothing is forgotten.

That is done as an operator confirms where it is: until then it is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import apsw
import pytest
from entries import UNIT, confirmed

from neyman.ledger.ledger import Ledger
from neyman.ledger.records import BudgetRefused, LedgerError
from neyman.ledger.units import UNIT as ONE

DUMP = Path(__file__).with_name("ledger_version_1.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file as the first version made it."""
    path = tmp_path / "ledger.db"
    connection = apsw.Connection(str(path))
    connection.execute(DUMP.read_text(encoding="utf-8"))
    connection.pragma("journal_mode", "wal")
    connection.close()
    return path


def test_everything_is_there_after_the_migration(old: Path):
    """Accounts, entries, files; finished is released, what was reserved may have been reading."""
    ledger = Ledger(confirmed(old))
    assert [a.dataset for a in ledger.datasets()] == ["odd@1", "people@1", "tiny@1"]
    people = ledger.account("people@1")
    assert (people.cap, people.delta_cap) == (Fraction("2.63"), Fraction(1, 1000))
    assert (people.spent, people.spent_delta) == (Fraction(5, 3), Fraction(1, 3000))
    entries = ledger.entries("people@1")
    assert [(e.id, e.state, e.charge) for e in entries] == [
        (1, "released", Fraction(1, 3)),
        (2, "released", Fraction(1, 3)),
        (3, "reading", Fraction(1, 2)),
        (4, "reading", Fraction(1, 2)),
    ]
    assert entries[0].mechanisms == [{"sigma2": "4", "ü": 1}]
    assert json.loads(entries[0].plan) == {"name": "ä"}
    assert entries[0].created == "2026-11-20T19:23:32.679+00:00"
    published = ledger.published("people@1", "finished")
    assert published is not None
    assert published[0].id == 2
    assert published[1] == {"receipt.json": b"{}", "t/a.csv": b"a,b\n" * 300_000, "empty": b""}
    assert ledger.account("tiny@1").rows == 5


def test_the_chain_begins_at_the_migration_and_verifies(old: Path):
    """Its first event says where it comes from; the same terms register as before."""
    ledger = Ledger(confirmed(old))
    first = json.loads(next(ledger.lines()))
    assert (first["kind"], first["migrated"], first["version"]) == ("ledger", 1, 2)
    assert ledger.verify().problems == ()
    ledger.create("people@1", cap="2.63", delta_cap="1/1000", **UNIT)
    assert ledger.verify(ledger.checkpoint()).ok
    ledger.close()
    assert os.listdir(old.parent) == ["ledger.db"]
    connection = apsw.Connection(str(old))
    assert connection.pragma("user_version") == 3
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    assert not any("old_" in name for name in names)


def test_what_was_spent_to_the_brim_is_not_refunded_by_rounding(old: Path):
    """Seventeen seventeenths fill a cap of one, though none is a whole number of units."""
    ledger = Ledger(confirmed(old))
    odd = ledger.account("odd@1")
    assert (odd.spent, odd.left, odd.entries) == (1, 0, 17)
    with pytest.raises(BudgetRefused):
        ledger.check("odd@1", charge=Fraction(1, ONE), **UNIT)
    tiny = ledger.account("tiny@1")
    assert (tiny.cap, tiny.left) == (0, 0)


def test_unfinished_entries_of_before_are_not_charged_again_unawares(old: Path):
    ledger = Ledger(confirmed(old))
    more = {"charge": "0.1", "mechanisms": [], "plan": "{}", **UNIT}
    with pytest.raises(LedgerError, match="--charge-again"):
        ledger.reserve("people@1", key="crashed", **more)
    assert ledger.reserve("people@1", key="new", **more).id == 23


def test_what_cannot_be_counted_is_left_as_it_was(old: Path):
    """A spend above a million: refused in words, the file unchanged."""
    connection = apsw.Connection(str(old))
    connection.execute("DROP TRIGGER entry_fixed")
    connection.execute("UPDATE entry SET charge = '2000000/1' WHERE id = 22")
    connection.execute("CREATE TRIGGER entry_fixed BEFORE UPDATE ON entry BEGIN SELECT 1; END")
    connection.close()
    before = apsw.Connection(str(old)).execute("SELECT * FROM entry ORDER BY id").fetchall()
    for _ in range(2):
        with pytest.raises(LedgerError, match="more than 1,000,000 of tiny@1"):
            Ledger(old).confirm_location()
    connection = apsw.Connection(str(old))
    assert connection.pragma("user_version") == 1
    assert connection.execute("SELECT * FROM entry ORDER BY id").fetchall() == before


KILLED = """
import os, signal, sys
import neyman.ledger.migrate as migrate
from neyman.ledger.ledger import Ledger
append, left = migrate.Writer.append, [int(sys.argv[2])]
def counting(self, kind, what):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return append(self, kind, what)
migrate.Writer.append = counting
Ledger(sys.argv[1]).confirm_location()
"""


def test_a_kill_in_the_middle_leaves_the_old_ledger(old: Path):
    """Killed at an event of the migration, the next to open it begins anew."""
    for event in (1, 7, 40):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(old), str(event)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        connection = apsw.Connection(str(old))
        assert connection.pragma("user_version") == 1
        connection.close()
    assert Ledger(confirmed(old)).account("people@1").spent == Fraction(5, 3)


def test_processes_that_confirm_it_at_once_migrate_it_once(old: Path):
    """Both see one chain."""
    code = (
        "import sys; from neyman.ledger import Ledger;"
        " print(Ledger(sys.argv[1]).confirm_location())"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(old)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {child.communicate(timeout=60)[0] for child in both}
    assert len(said) == 1
    assert Ledger(old).verify().ok
