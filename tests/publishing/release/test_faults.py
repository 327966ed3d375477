"""Releases under races, full disks, closed folders and a dying Spark, all of them real: nothing is
overspent, nothing is half-published, and the message says what to do.

This file is also the script that its processes run (see `own_process`).
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import CHARGE, DATA, Place, files_of, imported, new, release, sqlite_places

from kill_points import forked
from ledger_entries import UNIT
from neyman import Ledger
from neyman.ledger import BudgetRefused, ChargedError, LedgerError
from own_process import answer, children, main

# Races


def racing(works: list[Callable[[Callable[[object], None]], object]], folder: Path) -> list[Any]:
    """What each child told, all of them starting at once."""
    gate_out, gate_in = os.pipe()
    children = []
    for number, work in enumerate(works):
        said = folder / f"said-{number}"
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(gate_in)
                os.read(gate_out, 1)
                with said.open("w") as file:
                    work(lambda line, file=file: file.write(f"{line}\n"))
                status = 0
            finally:
                os._exit(status)
        children.append((child, said))
    os.close(gate_in)  # opens the gate: each reader sees the end of the pipe
    os.close(gate_out)
    ends = [os.waitpid(child, 0)[1] for child, _ in children]
    assert ends == [0] * len(works), ends
    return [said.read_text().splitlines() for _, said in children]


def last_of_it(folder: str, url: str, processes: str) -> object:
    """Processes that spend what is left, a third of a unit each, until they are refused."""
    count, above = int(processes), Path(folder)
    cap = Fraction(count + 1, 3)  # not enough for two each
    with Ledger(url) as book:
        book.create("people@1", cap=cap, **UNIT)
        book.allocate("people@1", "team", cap=cap)

    def work(number: int, tell: Callable[[object], None]) -> None:
        book = Ledger(url)
        for turn in range(3):
            key, fields = f"{number}.{turn}", {"mechanisms": [], "plan": "{}", **UNIT}
            to = "team" if turn % 2 else ""
            try:
                entry = book.reserve("people@1", key=key, charge="1/3", account=to, **fields)
                book.begin(entry.id)
                book.finish(entry.id, {"a": key.encode()})
                tell(entry.id)
            except BudgetRefused:
                tell("refused")
                return

    works = [lambda tell, n=n: work(n, tell) for n in range(count)]
    said = [line for own in racing(works, above) for line in own]
    granted = [line for line in said if line != "refused"]
    assert len(set(granted)) == len(granted) == count + 1, said
    with Ledger(url) as book:
        account = book.account("people@1")
        assert (account.spent, account.left) == (cap, 0)
        assert book.account("people@1", "team").spent <= cap
        assert {e.state for e in book.entries("people@1")} == {"released"}
        assert book.verify().problems == ()
    return said.count("refused")


@pytest.mark.parametrize("processes", [2, 3, 5, 8, 16])
def test_processes_racing_for_the_last_of_the_budget_get_all_of_it_and_no_more(
    tmp_path: Path, place: str, processes: int, attempts
):
    attempts(processes)
    assert answer(__file__, "last_of_it", tmp_path, place, processes) > 0


def same_plan(folder: str, url: str, processes: str) -> object:
    """Whole runs of one plan at once, the first two into one folder, each other into its own."""
    above = Path(folder)
    first = new(above, url)
    works = []
    places = [str(max(number, 1)) for number in range(int(processes))]
    for number in places:
        own = Path(folder) / number
        own.mkdir(exist_ok=True)
        here = Place(own, url, first.plan)
        works.append(lambda tell, here=here: here.run(tell))
    said = [own[-1] for own in racing(works, above)]
    with Ledger(url) as book:
        states = [e.state for e in book.entries("people@1")]
        assert states == ["released"]
        assert book.account("people@1").spent == CHARGE
        assert book.verify().problems == ()
        published = book.published("people@1", first.plan.hash)
        assert published
        for number in places:
            assert files_of(above / number / "out") == dict(published[1])
    assert sorted(said) == ["before"] * (len(said) - 1) + ["made"]
    return said


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_processes_racing_with_the_same_plan_are_charged_once_and_publish_the_same(
    tmp_path: Path, place: str, processes: int, attempts
):
    attempts(processes)
    answer(__file__, "same_plan", tmp_path, place, processes)


# Full disks


def filled(folder: str, what: str) -> object:
    """Releases onto ever larger disks, until one is large enough; how each went.

    Args:
        folder: on an ordinary disk.
        what: what lies on the small one: "out" or "ledger".
    """
    warnings.simplefilter("ignore")
    above, by_key = Path(folder), {"nothing spent": 0, "charged": 0}
    template = next(sqlite_places(above))
    imported(template)
    shutil.rmtree(template.out)
    size_of_ledger = os.path.getsize(template.url)
    small = above / "small"
    small.mkdir()
    data = pa.table(DATA)
    for pages in range(1, 400):
        size = pages * 4096 + (size_of_ledger if what == "ledger" else 0)
        subprocess.run(["mount", "-t", "tmpfs", "none", str(small)], check=True)
        try:
            other = above / f"ordinary-{pages}"
            other.mkdir()
            folders = {"out": other, "ledger": other} | {what: small}
            url = str(folders["ledger"] / "ledger.db")
            with Ledger(url) as book:
                book.create("people@1", cap=9, **UNIT)
            resized(small, str(size))
            here = Place(folders["out"], url, template.plan)

            def work(tell: Callable[[object], None], here: Place = here) -> None:
                try:
                    release(here.plan, data, here.url, here.out)
                    tell("made")
                except (ValueError, LedgerError, ChargedError) as error:
                    tell(f"{type(error).__name__} {error}")

            said = forked(work, None, here.folder)
            assert said.done, said.lines
            (line,) = said.messages
            assert line.startswith(("made", "OutputError ", "LedgerError ", "ChargedError "))
            resized(small, "64m")  # so that it can be looked at
            here.checked()
            if line == "made":
                assert here.states() == ["released"]
                return {"pages": pages, **by_key}
            assert not here.out.exists(), line
            assert not any(p.name.startswith(".out") for p in here.folder.iterdir()), line
            states = here.states()
            if line.startswith("ChargedError"):
                # At the end it may have come into the ledger, and then the same plan gives it.
                assert states in (["reading"], ["released"]), (states, line)
                assert "charge stands" in line
                assert "run the same plan" in line or "charged again" in line, line
            else:
                assert states in ([], ["reserved"]), (states, line)
                assert "disk" in line or "No space" in line, line
            by_key["charged" if line.startswith("ChargedError") else "nothing spent"] += 1
        finally:
            subprocess.run(["umount", str(small)], check=True)
    raise AssertionError("it never fitted")


def resized(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", "none", str(folder)], check=True)


@pytest.mark.needs("mount")
@pytest.mark.parametrize("what", ["out", "ledger"])
def test_a_disk_that_is_full_at_any_moment_publishes_nothing_by_halves(tmp_path, what, attempts):
    result = answer(__file__, "filled", tmp_path, what, before=("unshare", "-m"))
    attempts(result["pages"])
    assert result["nothing spent"] or what == "out"
    assert result["charged"], result


def limited(folder: str) -> object:
    """Releases whose files may grow to ever more bytes each."""
    warnings.simplefilter("ignore")
    places = sqlite_places(Path(folder))
    first = next(places)
    imported(first)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    results = []
    for step, given in zip(range(40), places, strict=False):
        here = Place(given.folder, given.url, given.plan)  # without a checkpoint
        most = 512 * 2**step

        def work(tell: Callable[[object], None], here: Place = here, most: int = most) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            try:
                release(here.plan, pa.table(DATA), here.url, here.out)
                tell("made")
            except (ValueError, LedgerError, ChargedError) as error:
                tell(f"{type(error).__name__} {error}")

        said = forked(work, None, here.folder)
        assert said.done, said.lines
        here.checked()
        (line,) = said.messages
        results.append(line.split()[0])
        if line == "made":
            return results
        assert not here.out.exists()
        expected = (["reading"], ["released"]) if "charge stands" in line else ([], ["reserved"])
        assert here.states() in expected, line
    raise AssertionError


def test_files_that_may_not_grow_publish_nothing_by_halves(tmp_path: Path, attempts):
    runs = len(answer(__file__, "limited", tmp_path))
    attempts(runs)
    assert runs > 3


# Folders without permission


def unprivileged(folder: str) -> object:
    """What a user who is not root is told of folders that are closed; then all are opened."""
    warnings.simplefilter("ignore")
    above = Path(folder)
    open_place = new(above)
    imported(open_place)
    shutil.rmtree(open_place.out)
    os.rename(open_place.url, above / "used.db")
    said = []
    for selection in ("out", "ledger"):
        here = above / selection
        for part in ("out", "ledger"):
            (here / part).mkdir(parents=True)
        place = new(here / "ledger")
        place.book().close()
        if os.geteuid() == 0:
            for path in [here, *here.rglob("*")]:
                os.chown(path, 65534, 65534)
        os.chmod(here / selection, 0o555)

        def work(tell: Callable[[object], None], place: Place = place, here: Path = here) -> None:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            try:
                release(place.plan, pa.table(DATA), place.url, here / "out" / "new")
                tell("made")
            except (ValueError, LedgerError, ChargedError) as error:
                tell(f"{type(error).__name__} {error}")

        result = forked(work, None, here)
        assert result.done, result.lines
        os.chmod(here / selection, 0o755)
        assert place.states() == []
        assert list((here / "out").iterdir()) == []
        said.append(result.messages[-1])
    return said


def test_folders_that_may_only_be_read_cost_nothing():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other users
        os.chmod(folder, 0o755)
        out, ledger = answer(__file__, "unprivileged", folder)
    assert out.startswith("OutputError")
    assert "cannot be written: Permission denied" in out
    assert ledger.startswith("LedgerError")
    assert "write permission on the file and its folder" in ledger


# Spark


def spark_killed(folder: str) -> object:
    """A run on Spark whose Java is killed as it begins to count."""
    warnings.simplefilter("ignore")
    above = Path(folder)
    place = new(above)
    pq.write_table(pa.table(DATA), above / "people.parquet")

    def killing(stage: str, _: float) -> None:
        if stage == "counting":
            for child in children(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    try:
        given = {"engine": "spark", "master": "local[1]", "memory": "1GB"}
        release(
            place.plan, above / "people.parquet", place.url, place.out, progress=killing, **given
        )
    except ChargedError as error:
        said = str(error)
    else:
        raise AssertionError("made without Spark")
    place.checked()
    assert place.states() == ["reading"]
    assert not place.out.exists()
    assert not any(path.name.startswith(".out") for path in above.iterdir())
    return said


@pytest.mark.needs("java")
def test_a_spark_driver_that_is_killed_fails_the_run_as_charged(tmp_path: Path):
    said = answer(__file__, "spark_killed", tmp_path)
    assert "charge stands" in said
    assert "running the plan again is refused" in said


if __name__ == "__main__":
    main(globals())
