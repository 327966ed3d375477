"""A small release, and places to make it: what the tests of kills and other faults share."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from kill_points import Said, forked
from ledger_entries import UNIT
from neyman import Ledger
from neyman.ledger import Checkpoint, LedgerError
from neyman.publishing import Plan, create_key, guarantee, toml_text, verify
from plans import SMALL, release

__all__ = [
    "CHARGE", "DATA", "PLAN", "Place", "files_of", "imported", "postgres_places", "release",
    "sqlite_places",
]  # fmt: skip

CHARGE = Fraction(1, 2)
DATA = {"race": ["white", "black"] * 50}
PLAN = toml_text(SMALL)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@dataclass(frozen=True)
class Place:
    """A ledger and an output folder, and how to release there."""

    folder: Path
    url: str
    plan: Plan
    checkpoint: Path | None = None
    key: Path | None = None

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def book(self) -> Ledger:
        return Ledger(self.url, checkpoint=self.checkpoint)

    def run(self, tell: Callable[[object], None], until: str = "", **more: Any) -> None:
        """Make the release, and tell how it went; end at a stage, if one is given."""

        def at(stage: str, _: float) -> None:
            tell(stage)
            if stage == until:
                os._exit(0)

        data = pa.table(DATA)
        pages = {"report.html": lambda item: f"<p>{item.receipt['plan_hash']}"}
        given = {"pages": pages, "progress": at, "sign": self.key, **more}
        try:
            product = release(self.plan, data, self.book(), self.out, **given)
            tell("before" if product.published_before else "made")
        except LedgerError as error:
            tell(f"refused: {error}")

    def states(self) -> list[str]:
        return [entry.state for entry in self.book().entries(self.plan.dataset)]

    def checked(self, *, complete: bool = True) -> None:
        with self.book() as book:
            if complete:
                selection = self.checkpoint and Checkpoint.load(self.checkpoint)
                assert book.verify(selection or None).problems == ()
            spent = [e for e in book.entries(self.plan.dataset) if e.state != "void"]
            assert book.account(self.plan.dataset).spent == CHARGE * len(spent)
            published = book.published(self.plan.dataset, self.plan.hash)
            if self.out.exists():
                assert published, "the folder is there, and the ledger does not know of it"
                assert files_of(self.out) == dict(published[1])
                assert all(check.ok for check in verify(self.out))

    def again(self, folder: Path, **more: Any) -> Said:
        said = forked(lambda tell: self.run(tell, **more), None, folder)
        assert said.done, said.lines
        return said


def imported(place: Place) -> None:
    """Import what a run imports, and compute its guarantee, so that no child has to."""

    def import_all(tell: Callable[[object], None]) -> None:
        place.run(tell)
        tell(json.dumps([name for name in sys.modules if not name.startswith("__")]))

    said = forked(import_all, None, place.folder)
    assert said.done, said.lines
    for name in json.loads(said.messages[-1]):
        if name.partition(".")[0] in ("neyman", "ibis", "duckdb", "scipy", "sqlglot", "pyarrow"):
            importlib.import_module(name)
    guarantee(place.plan.mechanism(), place.plan, place.plan.scale)


def sqlite_places(folder: Path) -> Iterator[Place]:
    """New ledgers, whose checkpoints are kept, each with its own folder."""
    create_key(folder / "key")
    (folder / "plan.toml").write_text(PLAN)
    plan = Plan.load(folder / "plan.toml")
    for number in itertools.count():
        own = folder / str(number)
        own.mkdir()
        with Ledger(own / "ledger.db") as book:
            book.create("people@1", cap=9, **UNIT)
            book.keep_checkpoint(own / "checkpoint")
        yield Place(own, str(own / "ledger.db"), plan, own / "checkpoint", folder / "key")


def postgres_places(folder: Path, url: str) -> Iterator[Place]:
    for number in itertools.count():
        dataset, own = f"people@{number}", folder / str(number)
        with Ledger(url) as book:
            book.create(dataset, cap=9, **UNIT)
        own.mkdir()
        (folder / "plan.toml").write_text(PLAN.replace("people@1", dataset))
        yield Place(own, url, Plan.load(folder / "plan.toml"))


def new(folder: Path, url: str = "", *, cap: Any = 9, dataset: str = "people@1") -> Place:
    """A place with a ledger in it, or with one that is at the url."""
    url = url or str(folder / "ledger.db")
    with Ledger(url) as book:
        book.create(dataset, cap=cap, **UNIT)
    (folder / "plan.toml").write_text(PLAN.replace("people@1", dataset))
    return Place(folder, url, Plan.load(folder / "plan.toml"))
