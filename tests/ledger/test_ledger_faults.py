"""The ledger under races, kills and failing disks; each fault is real, in processes of its own.

This file is also the script that those processes run (see `own_process`).
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest

from ledger_entries import NAME, UNIT, reading, reserve
from neyman import Ledger
from neyman.ledger import BudgetRefused, LedgerError
from own_process import answer, called, main


def files(key: str) -> dict[str, bytes]:
    """Files of a key: the same each time, and too big to be written in one go."""
    return {name: random.Random(key + name).randbytes(120_000) for name in ("a.csv", "b.csv")}


def forked(work: Callable[[Callable[[object], object]], object]) -> tuple[int, int]:
    """A child that does ``work(say)``; its id, and where to read the lines that it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            work(lambda line: os.write(writing, f"{line}\n".encode()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def lines(reading: int) -> list[str]:
    with os.fdopen(reading) as stream:
        return stream.read().splitlines()


# Races


def race(path: str, cap: str, plans: str) -> object:
    """One process for each list of charges, all starting at once; what was granted, by process."""
    gate_out, gate_in = os.pipe()

    def work(charges: list[str], say: Callable[[object], object]) -> None:
        os.close(gate_in)
        os.read(gate_out, 1)
        ledger = Ledger(path)
        ledger.create(NAME, cap=cap, **UNIT)
        for charge in charges:
            try:
                reserve(ledger, charge)
                say(charge)
            except BudgetRefused as refusal:
                say(f"refused {refusal.requested} {refusal.left}")

    children = [
        forked(lambda say, charges=charges: work(charges, say)) for charges in json.loads(plans)
    ]
    os.close(gate_in)  # opens the gate: every reader sees the end of the pipe
    said = [lines(reading) for _, reading in children]
    assert all(os.waitpid(child, 0)[1] == 0 for child, _ in children)
    return said


@pytest.mark.parametrize("processes", [2, 8, 16])
def test_racing_processes_never_exceed_the_cap(tmp_path: Path, processes: int, attempts, size: int):
    path, each = tmp_path / "ledger.db", 200 * size // processes
    attempts(processes * each)
    said = answer(__file__, "race", path, 1000 * size, json.dumps([["8"] * each] * processes))
    granted = [line for own in said for line in own if not line.startswith("refused")]
    assert [len(own) for own in said] == [each] * processes
    assert len(granted) == 125 * size
    account = Ledger(path).account(NAME)
    assert (account.spent, account.left, account.entries) == (1000 * size, 0, 125 * size)
    assert Ledger(path).verify().problems == ()


def test_racing_charges_of_all_sizes(tmp_path: Path):
    path, sizes = tmp_path / "ledger.db", ["1/3", "7", "22/7", "0.1", "100"]
    said = answer(
        __file__,
        "race",
        path,
        300,
        json.dumps([random.Random(i).choices(sizes, k=20) for i in range(8)]),
    )
    granted = Fraction(0)
    for line in (line for own in said for line in own):
        if line.startswith("refused"):
            asked, left = map(Fraction, line.split()[1:])
            assert asked > left
        else:
            granted += Fraction(line)
    account = Ledger(path).account(NAME)
    assert account.spent == granted <= 300
    assert sum(e.charge for e in Ledger(path).entries(NAME)) == granted


def creators(path: str) -> object:
    """Eight processes that register at once, four of them with another cap; what became of each."""

    def work(number: int, say: Callable[[object], object]) -> None:
        try:
            say(Ledger(path).create(NAME, cap=1 + number % 2, **UNIT).cap)
        except LedgerError as error:
            say(f"refused: {error}")

    children = [forked(lambda say, n=n: work(n, say)) for n in range(8)]
    said = [lines(reading)[0] for _, reading in children]
    assert all(os.waitpid(child, 0)[1] == 0 for child, _ in children)
    return said


def test_racing_creators_make_one_ledger(tmp_path: Path):
    for trial in range(5):
        path = tmp_path / f"{trial}.db"
        said = answer(__file__, "creators", path)
        cap = Ledger(path).account(NAME).cap
        assert sorted(said)[:4] == [str(cap)] * 4
        assert all(
            line.startswith(f"refused: {NAME} is registered with cap") for line in sorted(said)[4:]
        )
        assert os.listdir(tmp_path).count(f"{trial}.db") == 1
    assert len(os.listdir(tmp_path)) == 5


def test_two_threads_share_one_object(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create(NAME, cap=50, **UNIT)
    granted: list[int] = []

    def work() -> None:
        for _ in range(40):
            with suppress(BudgetRefused):
                granted.append(reserve(ledger, 1).id)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == [e.id for e in ledger.entries(NAME)]
    assert len(granted) == 50


def test_the_same_key_finished_by_racing_processes_is_published_once(tmp_path: Path):
    path = tmp_path / "ledger.db"
    said = answer(__file__, "finishers", path)
    ledger = Ledger(path)
    published = ledger.published(NAME, "k")
    assert published is not None
    assert set(said) == {str(published[0].id)}
    assert published[1] == files(str(published[0].id))
    assert [e.state for e in ledger.entries(NAME)] == ["released"] * 4


def finishers(path: str) -> object:
    """Four processes, each with a reservation of one key and other bytes."""
    Ledger(path).create(NAME, cap=4, **UNIT)
    entries = [reading(Ledger(path), 1, "k", again=True).id for _ in range(4)]
    children = [
        forked(lambda say, n=n: say(Ledger(path).finish(n, files(str(n))).id)) for n in entries
    ]
    said = [lines(reading)[0] for _, reading in children]
    assert all(os.waitpid(child, 0)[1] == 0 for child, _ in children)
    return said


# Kills


def write(path: str, trial: int, say: Callable[[object], object]) -> None:
    """Create, reserve, begin, finish, and so on, saying each thing once it has been granted."""
    ledger = Ledger(path)
    ledger.create(NAME, cap=10_000, **UNIT)
    for number in range(1000):
        key = f"{trial}-{number}"
        entry = reserve(ledger, Fraction(1, 3), key)
        say(f"reserved {entry.id}")
        ledger.begin(entry.id)
        say(f"reading {entry.id}")
        ledger.finish(entry.id, files(key))
        say(f"finished {entry.id}")


def kills(folder: str, trials: str) -> object:
    """Kill a writer at a random moment, look at what it left, and go on with the same ledger.

    Every tenth trial begins with a new ledger, so that its making is killed as well.
    """
    begin = time.monotonic()
    Ledger(f"{folder}/timed.db").create(NAME, cap=9, **UNIT)
    making = time.monotonic() - begin
    for key in "abc":
        Ledger(f"{folder}/timed.db").finish(reading(Ledger(f"{folder}/timed.db"), 1).id, files(key))
    working = time.monotonic() - begin
    moments = random.Random(1990)
    by_key = {"no ledger": 0, "unfinished": 0, "unreported": 0, "finished": 0}
    for trial in range(int(trials)):
        path = f"{folder}/{trial // 10}.db"
        child, pipe = forked(lambda say, p=path, t=trial: write(p, t, say))
        time.sleep(moments.uniform(0, working if trial % 10 else making))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said = [line.split() for line in lines(pipe)]
        granted = {int(number) for word, number in said if word == "reserved"}
        begun = {int(number) for word, number in said if word == "reading"}
        finished = {int(number) for word, number in said if word == "finished"}
        ledger = Ledger(path)
        if not ledger.exists():
            assert not said
            by_key["no ledger"] += 1
            continue
        entries = ledger.entries(NAME) if ledger.datasets() else ()
        own = [e for e in entries if e.key.startswith(f"{trial}-")]
        assert granted <= {e.id for e in own}, "a granted reservation is lost"
        assert len(own) <= len(granted) + 1
        assert begun <= {e.id for e in own if e.state != "reserved"}, "a beginning is lost"
        assert finished <= {e.id for e in own if e.state == "released"}, "a finish is lost"
        for entry in own:
            published = ledger.published(NAME, entry.key)
            if entry.state == "released":
                assert published == (entry, files(entry.key)), "files are half there"
            else:
                assert published is None
        if entries:
            assert ledger.account(NAME).spent == len(entries) * Fraction(1, 3)
        if trial % 10 == 9:
            assert ledger.verify().problems == ()
        ledger.close()
        by_key["unreported"] += len(own) - len(granted)
        by_key["unfinished"] += sum(e.state != "released" for e in own)
        by_key["finished"] += sum(e.state == "released" for e in own)
    return by_key


def test_a_writer_killed_at_any_moment_loses_nothing(tmp_path: Path, attempts, size: int):
    attempts(40 * size)
    observation = answer(__file__, "kills", tmp_path, 40 * size)
    # The kills did land in the making, between reserve and finish, and after both.
    assert observation["no ledger"]
    assert observation["unfinished"]
    assert observation["finished"]


def one_request(path: str, go_on: str = "") -> object:
    """Reserve and finish once, writing what was granted to standard error as it happens."""
    ledger = Ledger(path)
    try:
        ledger.join(NAME, "all@1")
        entry = reserve(ledger, 1, "k")
        os.write(2, b"RESERVED\n")
        ledger.begin(entry.id)
        os.write(2, b"READING\n")
        ledger.finish(entry.id, files("k"))
        os.write(2, b"FINISHED\n")
    except LedgerError as error:
        return str(error)
    return "done"


def inject(folder: Path, fault: str) -> tuple[subprocess.CompletedProcess[str], Ledger]:
    ledger = Ledger(tempfile.mkdtemp(dir=folder) + "/ledger.db")
    ledger.create(NAME, cap=10, **UNIT)
    ledger.create("all@1", cap=10, **UNIT)
    ledger.close()
    call = fault.partition(":")[0]
    tracer = ("strace", "-qq", "-f", "-e", f"trace={call}", "-e", f"inject={fault}")
    return called(
        __file__, "one_request", ledger._store.where, before=(*tracer, "-o", os.devnull)
    ), ledger


@pytest.mark.needs("strace")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64", "unlink"])
def test_killed_at_each_system_call(tmp_path: Path, call: str, attempts):
    states = set()
    for number in (1, 2, 3, 4, 5, 6, 8, 12, 20, 60, 130, 160, 190, 500):
        done, ledger = inject(tmp_path, f"{call}:signal=KILL:when={number}")
        attempts(1)
        entries = ledger.entries(NAME)
        states.add(entries[0].state if entries else "none")
        if "RESERVED" in done.stderr:
            assert len(entries) == 1
        if "READING" in done.stderr:
            assert entries[0].state in ("reading", "released")
        if "FINISHED" in done.stderr:
            assert entries[0].state == "released"
        assert ledger.verify().problems == ()
        published = ledger.published(NAME, "k")
        if entries and entries[0].state == "released":
            assert published == (entries[0], files("k"))
        else:
            assert published is None
        assert ledger.account(NAME).spent == len(entries) == ledger.account("all@1").spent
        if done.returncode == 0:
            break
    # Names are removed as the last connection closes, after all that is done.
    assert {"unlink": {"released"}}.get(call, {"reserved", "reading", "released"}) <= states


@pytest.mark.needs("strace")
@pytest.mark.parametrize(
    "fault",
    ["fdatasync:error=EIO:when=1", "fdatasync:error=EIO:when=3", "pwrite64:error=ENOSPC:when=1+"],
)
def test_a_failing_disk_grants_nothing(tmp_path: Path, fault: str):
    done, ledger = inject(tmp_path, fault)
    assert done.returncode == 0, done.stderr
    assert "could not be written" in json.loads(done.stdout)
    assert "RESERVED" not in done.stderr
    # Counting more than was granted is the safe side: a failed commit may yet be on the disk.
    assert ledger.account(NAME).spent <= 1
    reserve(ledger, 1, "k")


def full(path: str) -> object:
    """`once`, in a process whose files may not grow past 64 kB more than the ledger has."""
    limit = os.path.getsize(path) + 65_536
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return one_request(path)


def test_a_full_disk_finishes_nothing(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.db")
    for name in (NAME, "all@1"):
        ledger.create(name, cap=10, **UNIT)
    ledger.close()
    assert "could not be written" in str(answer(__file__, "full", ledger._store.where))
    (entry,) = ledger.entries(NAME)
    assert entry.state == "reading"
    assert ledger.published(NAME, "k") is None
    assert ledger.account(NAME).left == 9
    ledger.finish(entry.id, files("k"))
    assert ledger.published(NAME, "k") == (ledger.entries(NAME)[0], files("k"))


# Locks and permissions


def test_a_busy_ledger_is_waited_for(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create(NAME, cap=10, **UNIT)
    inside, leaving = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._store.writing():
            inside.set()
            time.sleep(0.3)
            leaving.set()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    assert ledger.account(NAME).spent == 0  # readers do not wait
    reserve(ledger, 1)
    assert leaving.is_set()
    holder.join()


def test_a_ledger_that_stays_busy_is_given_up_in_words(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.db", wait=0.2)
    ledger.create(NAME, cap=10, **UNIT)
    with ledger._store.writing():
        begin = time.monotonic()
        with pytest.raises(LedgerError, match=r"has been busy for 0\.2 s.*nothing was written"):
            reserve(ledger, 1)
        assert time.monotonic() - begin >= 0.2
    assert ledger.account(NAME).spent == 0


def unprivileged(path: str) -> object:
    ledger = Ledger(path)
    if os.geteuid() == 0:
        os.setuid(65534)
    said = []
    for call in (
        ledger.datasets,
        lambda: reserve(ledger, 1),
        lambda: ledger.create("new@1", cap=1, **UNIT),
        lambda: Ledger(f"{path}.new").create(NAME, cap=1, **UNIT),
    ):
        try:
            call()
            said.append("done")
        except LedgerError as error:
            said.append(str(error))
    return said


def test_a_ledger_without_permission_is_refused_in_words():
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"{folder}/ledger.db")
        ledger.create(NAME, cap=10, **UNIT)
        ledger.close()
        for file_mode, folder_mode in ((0o444, 0o555), (0o000, 0o555), (0o444, 0o000)):
            os.chmod(ledger._store.where, file_mode)
            os.chmod(folder, folder_mode)
            said = answer(__file__, "unprivileged", ledger._store.where)
            os.chmod(folder, 0o700)
            for line in said[:3]:
                assert "permission" in line.lower(), line
            assert "no ledger can be made in the folder" in said[3]
        assert os.listdir(folder) == ["ledger.db"]
        os.chmod(ledger._store.where, 0o600)
        assert ledger.account(NAME).entries == 0


if __name__ == "__main__":
    main(globals())
