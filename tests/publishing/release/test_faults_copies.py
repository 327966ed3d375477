"""Releases under swapped ledgers: a copy is exposed by its checkpoint, or by what it does not know.

This file is also the script that its processes run (see `own_process`).
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from places import CHARGE, DATA, Place, new, release, sqlite_places

from kill_points import forked
from ledger_entries import confirmed, reading
from neyman import Ledger
from neyman.ledger import ChargedError, LedgerError
from neyman.publishing import verify
from own_process import answer, main

# Copies of the ledger


def copied(folder: str) -> object:
    """A release is made, and then the ledger of before it is put back."""
    warnings.simplefilter("ignore")
    places = sqlite_places(Path(folder))
    place = next(places)
    before = place.folder.parent / "before.db"
    shutil.copy(place.url, before)
    said = place.again(place.folder)
    assert said.messages[-1] == "made"
    place.checked()
    for path in place.folder.glob("ledger.db-*"):
        path.unlink()
    os.replace(before, place.url)
    # With its checkpoint nothing is granted, whatever is run, and nothing is written.
    shutil.copytree(place.out, place.folder / "kept")
    shutil.rmtree(place.out)
    refused = place.again(place.folder).messages[-1]
    assert refused.startswith("refused: "), refused
    assert "is not where this ledger belongs" in refused, refused
    assert not place.out.exists()
    bare = Place(place.folder, place.url, place.plan)
    with pytest.raises(LedgerError, match="as after a backup was restored"):
        bare.states()
    with pytest.raises(LedgerError, match="rolled back or restored"):
        place.book().confirm_location()
    # An operator who confirms it without the checkpoint takes the older copy for the ledger.
    confirmed(Path(place.url))
    assert bare.states() == []
    # Without it the chain is whole, and only what was published tells: it is in no entry.
    checks = {check.name: check.ok for check in verify(place.folder / "kept", ledger=place.url)}
    assert checks.pop("published") is False
    assert all(checks.values()), checks
    with bare.book() as book:
        assert book.verify().problems == ()
    assert bare.again(place.folder).messages[-1] == "made"  # the budget is spent anew, in the dark
    bare.checked()
    text = (place.folder / "checkpoint").read_text()
    checks = verify(place.out, ledger=place.url, checkpoint=place.folder / "checkpoint")
    assert [check.name for check in checks if not check.ok] == ["ledger"]
    return [refused, text]


def test_a_stale_copy_in_place_of_the_ledger_is_exposed_by_its_checkpoint(tmp_path: Path):
    answer(__file__, "copied", tmp_path)


def swapped(folder: str) -> object:
    """The ledger is replaced by an older copy, used since, while a run is at work."""
    warnings.simplefilter("ignore")
    above = Path(folder)
    results = []
    for number, stage in enumerate(("reserving in the ledger", "counting", "keeping a copy")):
        own = above / str(number)
        own.mkdir()
        place = new(own)
        place.book().close()
        shutil.copy(place.url, own / "old.db")
        os.rename(place.url, own / "aside.db")
        with Ledger(confirmed(own / "old.db")) as other:
            # Here the number of this run's entry is that of another.
            reading(other, CHARGE, "another", dataset="people@1")
        os.rename(own / "aside.db", place.url)

        def work(tell: Callable[[object], None], place: Place = place, stage: str = stage) -> None:
            def swap(at: str, _: float) -> None:
                old = place.folder / "old.db"
                if at.startswith(stage) and old.exists():
                    # With its log beside it the older file would become the newer one again.
                    for end in ("-wal", "-shm"):
                        Path(place.url + end).unlink(missing_ok=True)
                    os.replace(old, place.url)
                    confirmed(Path(place.url))

            data = pa.table(DATA)
            try:
                release(place.plan, data, place.url, place.out, progress=swap)
                tell("made")
            except (LedgerError, ChargedError) as error:
                tell(f"{type(error).__name__} {error}")

        said = forked(work, None, own)
        assert said.done, said.lines
        results.append(said.messages[-1])
        assert place.out.exists() == (results[-1] == "made")
        place.checked()
    return results


def test_a_ledger_that_is_swapped_under_a_run_publishes_nothing_that_it_does_not_know(tmp_path):
    before, *after = answer(__file__, "swapped", tmp_path)
    assert before == "made"
    for line in after:
        assert line.startswith("ChargedError"), line
        assert "not the charge that was reserved" in line


if __name__ == "__main__":
    main(globals())
