"""Ledgers changed at random, byte by byte and row by row: what was changed is found, or is nothing.

See `test_fuzz_releases` for how many inputs there are.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
from hostile import fuzzed, mutated, texts
from hypothesis import strategies as st
from test_fuzz_releases import DATA, SMALL, said

from neyman import Ledger, run
from neyman.ledger import BudgetRefused, Checkpoint, LedgerError, digest
from neyman.publishing import Plan

UNIT = {"protects": "person", "neighboring": "replace-one", "rows": 1}
FIELDS = {"mechanisms": [], "plan": "{}", **UNIT}


@cache
def _template_folder() -> tempfile.TemporaryDirectory[str]:
    """The template's folder, which exists as long as the process.

    A ledger knows its place by inodes. If the folder were deleted, the folder of a copy could get
    its inode. Then the copy would belong there already, and would have one event fewer than others.
    """
    return tempfile.TemporaryDirectory()


@cache
def _template() -> bytes:
    """A ledger with some of everything, which does not lie where it belongs."""
    path = Path(_template_folder().name) / "ledger.db"
    with Ledger(path) as book:
        book.create("people@1", cap=1, delta_cap="1e-6", parts=("north", "south"), **UNIT)
        book.create("other@1", cap="1/3", currency="pure", **UNIT)
        book.allocate("people@1", "team", cap="1/2")
        book.allocate("people@1", "alice", cap="1/4", of="team")
        book.reserve("other@1", key="waiting", charge="1/10", **FIELDS)
        unfinished = book.reserve(
            "people@1",
            key="read",
            charge="1/7",
            delta="1e-9",
            part="north",
            account="team",
            **FIELDS,
        )
        book.begin(unfinished.id)
        void = book.reserve("people@1", key="void", charge="1/8", account="alice", **FIELDS)
        book.void(void.id)
        done = book.reserve("people@1", key="done", charge="1/9", account="alice", **FIELDS)
        book.begin(done.id)
        book.finish(done.id, {"a.csv": b"1,2\n" * 300, "tables/b.bin": bytes(range(256)) * 9})
    content = path.read_bytes()
    path.unlink()
    return content


def _put(folder: str) -> tuple[Path, str, str]:
    """A copy of the template that belongs in a folder; what it says, and its checkpoint."""
    path = Path(folder) / "ledger.db"
    path.write_bytes(_template())
    with Ledger(path) as book:
        text = str(book.confirm_location())
        return path, address(book), text


def address(book: Ledger) -> str:
    """All that a ledger says."""
    results: list[Any] = [list(book.lines())]
    for one in book.datasets():
        results += [one, book.allocations(one.dataset), book.entries(one.dataset)]
        for entry in book.entries(one.dataset):
            published = book.published(one.dataset, entry.key)
            results.append(published and (published[0], dict(published[1])))
    return repr(results)


def looked_at(draw: Callable[[Any], Any], path: Path, total: str, selection: str) -> None:
    """What is changed is found by `verify`, and no method fails in any way but in words."""
    try:
        with Ledger(path) as book:
            report = book.verify(Checkpoint.parse(selection))
            ok = report.ok
            says = address(book)
            assert not ok or says == total, "changed, and verified"
            before = sum(one.spent for one in book.datasets())
            asked = draw(st.sampled_from(["people@1", "other@1"]))
            try:
                entry = book.reserve(asked, key="new", charge="1/20", **FIELDS)
                book.begin(entry.id)
                book.finish(entry.id, {"new": b"new"})
                book.checkpoint()
            except BudgetRefused:
                pass
            after = sum(one.spent for one in book.datasets())
            assert not ok or before <= after
    except (LedgerError, ValueError):
        pass
    if draw(st.integers(0, 19)) == 0:
        for command in (["show"], ["history"], ["verify"], ["export"], ["checkpoint"]):
            more = ["--json"] if command != ["export"] and draw(st.booleans()) else []
            said("ledger", *command, path, *more)


@fuzzed(0.12)
def test_a_ledger_of_any_bytes_is_refused_or_found_out(draw: Callable[[Any], Any]) -> None:
    """Bits flipped, pages zeroed, the end cut off: it says the same, or `verify` says what not."""
    with tempfile.TemporaryDirectory() as folder:
        path, total, selection = _put(folder)
        # Most of what is cut or lengthened is no database at all.
        path.write_bytes(mutated(draw, path.read_bytes(), in_place=draw(st.integers(0, 9)) > 0))
        looked_at(draw, path, total, selection)


@fuzzed(0.06)
def test_a_ledger_of_any_rows_is_found_out(draw: Callable[[Any], Any]) -> None:
    """A value changed or a row removed behind the triggers' back; then they are back."""
    with tempfile.TemporaryDirectory() as folder:
        path, total, selection = _put(folder)
        raw = apsw.Connection(str(path))
        rules = list(raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
        for name, _ in rules:
            raw.execute(f'DROP TRIGGER "{name}"')
        raw.execute("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF")
        for _ in range(draw(st.integers(1, 2))):
            _disturb(draw, raw)
        for _, rule in rules:
            raw.execute(rule)
        raw.close()
        looked_at(draw, path, total, selection)


def _disturb(draw: Callable[[Any], Any], raw: apsw.Connection) -> None:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    tables = [name for (name,) in raw.execute(query)]
    table = draw(st.sampled_from(tables))
    columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
    keys = [row[1] for row in raw.execute(f"PRAGMA table_info({table})") if row[5]]
    rows = list(raw.execute(f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)}"))
    if not rows:
        return
    row, column = draw(st.sampled_from(rows)), draw(st.sampled_from(columns))
    here = f"WHERE {' AND '.join(f'{key} = ?' for key in keys)}"
    how = draw(st.sampled_from(["set", "set", "set", "less", "gone", "edit"]))
    numbers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**63 - 1])
    texts_that_fit = texts().filter(lambda text: not re.search("[\ud800-\udfff]", text))
    value = draw(st.none() | numbers | texts_that_fit | st.binary(max_size=9) | st.floats())
    try:
        if how == "gone":
            raw.execute(f"DELETE FROM {table} {here}", row)
        elif how == "less":
            raw.execute(f"UPDATE {table} SET {column} = {column} - 1 {here}", row)
        elif how == "edit":
            # One character of a text, such as a digit of a charge in the chain.
            at = draw(st.integers(1, 400))
            change = f"substr({column}, 1, {at - 1}) || '7' || substr({column}, {at + 1})"
            raw.execute(f"UPDATE {table} SET {column} = {change} {here}", row)
        else:
            raw.execute(f"UPDATE {table} SET {column} = ? {here}", (value, *row))
    except (apsw.ConstraintError, apsw.MismatchError):
        return  # a key that already exists, or a text as a rowid


@fuzzed(0.01)
def test_hostile_words_in_a_ledger_s_commands_change_nothing(draw: Callable[[Any], Any]) -> None:
    """SQL, paths and markup as names, amounts and files: an answer in words, and the same chain."""
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = _put(folder)
        word = texts().filter(lambda text: not text.startswith("-") and "\0" not in text)
        commands: list[list[object]] = [
            ["show", path, draw(word)],
            ["allocate", path, draw(word), draw(word), "--cap", draw(word)],
            ["create", path, draw(word), "--cap", draw(word)],
            ["create", path, "new@1", "--cap", draw(word), "--protects", draw(word)],
            ["create", path, "new@2", "--cap", "1", "--currency", draw(word)],
            ["verify", path, "--checkpoint", draw(word)],
            ["void", path, "1", "--why", draw(word)],
            ["confirm-location", path, "--why", draw(word)],
        ]
        spent = "SELECT dataset, holder, part, spent, entries FROM purse ORDER BY 1, 2, 3"
        command = draw(st.sampled_from(commands))
        raw = apsw.Connection(str(path))
        before = {(d, h, p): rest for d, h, p, *rest in raw.execute(spent)}
        raw.close()
        code = said("ledger", *command)
        raw = apsw.Connection(str(path))
        after = {(d, h, p): rest for d, h, p, *rest in raw.execute(spent)}
        raw.close()
        if command[0] != "void" or code:
            assert {key: after.get(key) for key in before} == before
        with Ledger(path) as book:
            assert book.verify().problems == ()
        assert {one.name for one in Path(folder).iterdir()} <= {
            "ledger.db",
            "ledger.db-wal",
            "ledger.db-shm",
        }


@pytest.mark.parametrize("path", ["../escaped", "{here}/escaped", "a/../../escaped", "a\\b"])
def test_a_forged_ledger_puts_no_file_outside_the_folder(tmp_path: Path, path: str):
    """A chain written anew, consistent to its last hash, in which such a file was published."""
    path, plan = path.format(here=tmp_path), Plan.from_dict(SMALL)
    with Ledger(tmp_path / "ledger.db") as book:
        book.create("people@1", cap=1, **UNIT)
        entry = book.reserve("people@1", key=plan.hash, charge="1/2", **FIELDS)
        book.begin(entry.id)
        book.finish(entry.id, {"honest": b"content"})
    raw = apsw.Connection(str(tmp_path / "ledger.db"))
    for (name,) in list(raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
        raw.execute(f'DROP TRIGGER "{name}"')
    ((number, line),) = raw.execute("SELECT max(number), line FROM event")
    content = json.loads(line)
    content["files"] = {path: content["files"]["honest"]}
    text = partial(json.dumps, sort_keys=True, separators=(",", ":"))
    line = text(content | {"digest": digest(text(content["files"]))})
    raw.execute(
        "UPDATE event SET line = ?, hash = ? WHERE number = ?", (line, digest(line), number)
    )
    raw.execute("UPDATE piece SET path = ?", (path,))
    raw.close()
    with pytest.raises(ValueError, match="not a path in its folder"):
        run(plan, pa.table(DATA), tmp_path / "ledger.db", tmp_path / "out")
    assert {one.name.partition("-")[0] for one in tmp_path.iterdir()} == {"ledger.db"}
