"""A release killed at its steps, one after the other: see `kill_points` for what one is.

At size 1 runs are killed at one of three steps (of twenty in `make test`), one of the next three,
and so on, drawn with a fixed seed. At larger sizes they are killed at each step.

This file is also the script that does it (see `own_process`). It only imports, and forks; each run
is in a child of its own, real but for its end.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from places import CHARGE, Place, imported, postgres_places, sqlite_places

from kill_points import Said, forked
from ledger_entries import UNIT
from neyman import Ledger
from neyman.ledger import Checkpoint
from own_process import answer, main

MOST = 2000
"""Steps that are known to be more than there are."""


def steps(share: int) -> Iterator[int]:
    """One step of 1, ..., share, one of the next ``share``, and so on."""
    draws = random.Random(share)
    return (first + draws.randrange(share) for first in range(1, MOST, share))


def killed_everywhere(
    places: Iterator[Place],
    begin: str,
    kinds: tuple[str, ...] = ("",),
    share: int = 1,
    others: frozenset[int] = frozenset(),
) -> dict[str, int]:
    """Kill runs at one step after the other until one comes to its end; check what each leaves.

    Args:
        places: a new one for each run.
        begin: what an earlier run has left: "nothing", or an entry "reserved", "reading" (then
            this run is to be charged again) or "released" (into another folder).
        kinds: of steps, as for `forked`; if it is not all, then places share a ledger, which is
            verified at the end.
        share: as for `steps`.

    Returns:
        How many runs were killed, and how many of them left each state.
    """
    by_key: Counter[str] = Counter()
    visited: set[tuple[str, frozenset[str]]] = set()
    total = kinds == ("",)
    options: dict[str, Any] = {"charge_again": True} if begin == "reading" else {}
    # From there on it is the same as with nothing to begin with.
    until = "counting" if begin in ("reserved", "reading") else ""
    for number, place in zip(steps(share), places, strict=False):
        before = start(place, begin)
        said = forked(
            lambda tell, p=place: p.run(tell, until, **options), number, place.folder, kinds
        )
        settled(place.url, others)
        states = place.states()
        selection, new = states[: len(before)], states[len(before) :]
        assert selection == before or (begin == "reserved" and selection == ["void"]), (
            states,
            said.lines,
        )
        assert len(new) <= 1, states
        if "counting" in said.messages:
            assert [*selection, *new][-1] in ("reading", "released"), (
                "read without a durable charge"
            )
        place.checked(complete=total)
        state, n = new[-1] if new else "none", len(str(place.folder))
        if not said.killed:
            assert said.done, said.lines
            assert until or place.out.exists()
            return {"killed": by_key.total(), **by_key}
        by_key[f"{state}{', in place' if place.out.exists() else ''}"] += 1
        # What lies there, but for the random end of a hidden folder's name.
        lies = frozenset(re.sub("neyman-.{8}", "", str(p)[n:]) for p in place.folder.rglob("*"))
        go_on(place, selection, state, said, paid=(state, lies) not in visited)
        if (state, lies) not in visited:
            assert left(place) == [], said.lines
        visited.add((state, lies))
        place.checked(complete=total)
        shutil.rmtree(place.folder)
    raise AssertionError(f"not at its end after {MOST} steps")


def start(place: Place, begin: str) -> list[str]:
    if begin == "nothing":
        return []
    if begin == "released":
        place.again(place.folder)
        shutil.rmtree(place.out)
        return ["released"]
    with place.book() as book:
        fields = {"mechanisms": [], "plan": "{}", "charge": CHARGE, **UNIT}
        entry = book.reserve(place.plan.dataset, key=place.plan.hash, **fields)
        if begin == "reading":
            book.begin(entry.id)
    return [begin]


def go_on(place: Place, selection: list[str], state: str, said: Said, *, paid: bool) -> None:
    """The same plan again: replaced, refused until it is to be charged again, or the same bytes.

    It is ``paid`` for a second time once for each set of files that a kill can leave.
    """
    pending = [one for one in (*selection, state) if one in ("reserved", "reading")]
    spent = sum(one in ("reserved", "reading", "released") for one in (*selection, state))
    if "released" in (*selection, state):
        assert place.again(place.folder).messages[-1] == "before"
    elif "reading" in pending:
        there = place.out.exists()
        refused = place.again(place.folder).messages[-1]
        assert refused.startswith("refused: "), refused
        assert "charge-again" in refused, refused
        assert "entry" in refused or "run" in refused, refused
        assert place.out.exists() == there
        place.checked(complete=False)
        if not paid:
            return
        assert place.again(place.folder, charge_again=True).messages[-1] == "made"
        # What had not begun is replaced, and what had is charged once more.
        spent += 1 - pending.count("reserved")
    else:
        assert place.again(place.folder).messages[-1] == "made", said.lines
        spent = max(spent, 1)
    now = place.states()
    assert len(now) - now.count("void") == spent, (selection, state, now)
    assert place.out.exists()


def sessions(url: str) -> frozenset[int]:
    """The processes of a PostgreSQL server that serve a ledger."""
    import psycopg

    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as look:
        query = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'neyman'"
            " AND pid <> pg_backend_pid()"
        )
        return frozenset(pid for (pid,) in look.execute(query))


def settled(url: str, others: frozenset[int]) -> None:
    """Wait until a server has noticed that its client is gone, and done what it was asked.

    Args:
        url: of the ledger.
        others: sessions of other tests, which may stay.
    """
    if url.startswith("postgresql:"):
        for _ in range(5000):
            if sessions(url) <= others:
                return
            time.sleep(0.01)
        raise AssertionError(f"the server still serves {sessions(url) - others}")


def left(place: Place) -> list[str]:
    # The next one to write a checkpoint takes its unfinished file over.
    known = {"out", "ledger.db", "ledger.db-wal", "ledger.db-shm", "checkpoint", ".checkpoint.new"}
    return sorted({path.name for path in place.folder.iterdir()} - known)


def kills(folder: str, begin: str, share: str, url: str = "") -> object:
    """`killed_everywhere` on SQLite, or on PostgreSQL if a URL is given."""
    warnings.simplefilter("ignore")
    above = Path(folder)
    places = postgres_places(above, url) if url else sqlite_places(above)
    first = next(places)
    imported(first)
    others = sessions(url) if url else frozenset()
    result = killed_everywhere(places, begin, ("SQL",) if url else ("",), int(share), others)
    with first.book() as book:
        assert book.verify().problems == ()
    return result


def test_a_release_killed_at_each_step_is_charged_once_or_never_and_is_whole_or_not_there(
    tmp_path: Path, share: int, attempts
):
    result = answer(__file__, "kills", tmp_path, "nothing", share)
    attempts(result["killed"])
    if share == 1:  # a kill at each step: some fall into each stage, however long it takes
        stages = {"none", "reserved", "reading", "released", "released, in place"}
        assert stages <= set(result), result
    assert result["killed"] > 100 / share, result


@pytest.mark.parametrize("begin", ["reserved", "reading", "released"])
def test_a_second_run_killed_at_each_step_leaves_what_the_first_left_or_what_it_made(
    tmp_path: Path, begin: str, share: int, attempts
):
    result = answer(__file__, "kills", tmp_path, begin, share)
    attempts(result["killed"])
    assert result["killed"] > 20 / share, result


@pytest.mark.parametrize("begin", ["nothing", "reading"])
def test_a_release_on_postgresql_killed_at_each_step(tmp_path, postgres, begin, share, attempts):
    url = postgres.url(schema=f"killed_{begin}")
    result = answer(__file__, "kills", tmp_path, begin, share, url)
    attempts(result["killed"])
    assert result["killed"] > 50 / share, result


# What an operator does


OPERATIONS: dict[str, Callable[[str, Path], object]] = {
    "create": lambda url, _: Ledger(url).create("more@1", cap="1/3", **UNIT),
    "allocate": lambda url, _: Ledger(url).allocate("people@1", "team", cap="1/3"),
    "void": lambda url, _: Ledger(url).void(1),
    "checkpoint": lambda url, folder: Ledger(url).keep_checkpoint(folder / "checkpoint"),
}


def operated(folder: str, name: str, product: str) -> object:
    """Kill an operation at each step, in a new ledger or in one that is there."""
    above, operation = Path(folder), OPERATIONS[name]
    for number in itertools.count(1):
        own = above / str(number)
        own.mkdir()
        url = str(own / "ledger.db")
        if product:
            with Ledger(url) as book:
                book.create("people@1", cap=1, **UNIT)
                book.reserve("people@1", key="k", mechanisms=[], plan="{}", charge="1/3", **UNIT)
        said = forked(lambda _, u=url, o=own: operation(u, o), number, own)
        if os.path.exists(url):
            with Ledger(url) as book:
                assert book.verify().problems == (), said.lines
                assert not product or book.account("people@1").spent in (0, Fraction(1, 3))
                for selection in own.glob("checkpoint"):
                    assert book.verify(Checkpoint.load(selection)).problems == ()
        if not said.killed:
            assert said.done, said.lines
            return number - 1
        operation(url, own)
        with Ledger(url) as book:
            assert book.verify().problems == (), said.lines
            expected = {"create": 2 if product else 1}.get(name, 1)
            assert len(book.datasets()) == expected
    raise AssertionError


@pytest.mark.parametrize(
    ("name", "content"),
    [("create", ""), ("create", "y"), ("allocate", "y"), ("void", "y"), ("checkpoint", "y")],
)
def test_an_operation_killed_at_each_step_is_done_or_not(tmp_path, name, content, attempts):
    points = answer(__file__, "operated", tmp_path, name, content)
    attempts(points)
    assert points > 5


if __name__ == "__main__":
    main(globals())
