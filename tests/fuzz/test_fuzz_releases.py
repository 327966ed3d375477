"""Plans, data, folders and receipts at random: `make fuzz` tries 50,000 inputs, CI 1,000.

Never a traceback out of `run`, `verify` or the command line, never a spend by what is refused,
never a file outside the output folder.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hostile import changed, fuzzed, mutated, named_errors, texts, toml_of
from hypothesis import strategies as st
from typer.testing import CliRunner

from neyman import Ledger, Mechanism, Release, explore, run
from neyman.analysis import Trained
from neyman.cli import app
from neyman.display import page
from neyman.publishing import Plan, PlanError, check_signature, verify
from plans import SMALL

UNIT = {"protects": "person", "neighboring": "replace-one"}
PLAN: dict[str, Any] = {
    "schema": 2,
    "name": "small",
    "dataset": "people@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
    "columns": {"race": {"keys": ["white", "black"], "unknown": "drop"}, "age": {"integer": True}},
    "hierarchy": {"place": {"levels": ["state", "county"], "keys": [["IL", "A"], ["IN", "B"]]}},
    "budget": {"zcdp": "1/2"},
    "query": [
        {"name": "total", "measure": "count", "at": ["state", "county"], "share": "1/2"},
        {"name": "race", "measure": "count", "by": ["race"], "share": "1/4"},
        {
            "name": "age",
            "measure": "mean",
            "column": "age",
            "clip": [0, 10],
            "at": ["state"],
            "share": "1/4",
        },
    ],
}
DATA = {
    "race": ["white", "black"] * 5,
    "age": list(range(10)),
    "state": ["IL", "IN"] * 5,
    "county": ["A", "B"] * 5,
}


@cache
def _template() -> Path:
    """A folder that each input gets a copy of: a ledger, and one release that it has published."""
    folder = Path(tempfile.mkdtemp(prefix="neyman-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with Ledger(folder / "ledger.db") as book:
        book.create("people@1", cap=9, **UNIT)
        run(Plan.from_dict(SMALL), pa.table(DATA), book, folder / "made")
    # A copy is refused while the ledger is in its place, so this one is in none.
    (folder / "ledger.db").rename(folder / "template.db")
    return folder


@contextmanager
def copied() -> Iterator[Path]:
    """The template, and a look afterwards at whether anything else has come to be there."""
    with tempfile.TemporaryDirectory(prefix="neyman-fuzz-") as name:
        folder = Path(name) / "above" / "here"  # two steps up is still nobody else's
        shutil.copytree(_template(), folder)
        (folder / "template.db").rename(folder / "ledger.db")
        with Ledger(folder / "ledger.db") as book:
            book.confirm_location("copied by a test")
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def spent(folder: Path) -> Fraction:
    """What the template's account has spent."""
    with Ledger(folder / "ledger.db") as book:
        return book.account("people@1").spent


def around(folder: Path) -> set[str]:
    """What is there beside the output folder and the ledger, and above."""
    values = {path.name for path in folder.iterdir()}
    own = ("ledger.db", ".ledger.db.")  # the second: files of the turns of plans
    values = {name for name in values if name != "out" and not name.startswith(own)}
    above = [*folder.parent.iterdir(), *folder.parent.parent.iterdir()]
    astray = [*above, *(path for path in (Path("/etc/escaped"),) if path.exists())]
    return values | {str(path) for path in astray if path not in (folder, folder.parent)}


def said(*arguments: object) -> int:
    """The exit code of a command, which never shows a traceback and never is 1."""
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    ended = done.exception is None or isinstance(done.exception, SystemExit)
    assert ended, f"{arguments}: {done.exception!r}"
    assert "Traceback" not in done.output, done.output
    assert done.exit_code in (0, 2, 3, 5), (arguments, done.output)
    return done.exit_code


def released(folder: Path, plan: Any, data: Any) -> bool:
    """Run a plan; whether it was released. What is refused costs nothing and leaves nothing."""
    before, there = spent(folder), around(folder)
    try:
        release = run(plan, data, folder / "ledger.db", folder / "out")
    except named_errors():
        assert spent(folder) == before
        assert not (folder / "out").exists()
        assert around(folder) == there
        return False
    assert around(folder) == there
    listed = {one["path"] for one in release.receipt["tables"]}
    assert set(release.files) == {*listed, "receipt.json", "report.html"}
    charged = Fraction(release.receipt["ledger"]["charged"])
    assert spent(folder) == before + (0 if release.published_before else charged)
    return True


@fuzzed(0.30)
def test_any_text_is_a_plan_or_refused_in_words(draw: Callable[[Any], Any]) -> None:
    """A plan's bytes, changed: `Plan.load` returns a plan or raises `PlanError`."""
    content = mutated(draw, toml_of(draw(st.sampled_from([PLAN, SMALL]))).encode())
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(content)
        file.flush()
        try:
            plan = Plan.load(file.name)
        except PlanError:
            return
    assert Plan.from_dict(plan.canonical()).hash == plan.hash


@fuzzed(0.30)
def test_any_document_is_a_plan_or_refused_in_words(draw: Callable[[Any], Any]) -> None:
    """A plan's fields, changed: a plan, which its canonical form makes again, or `PlanError`."""
    document = changed(draw, draw(st.sampled_from([PLAN, SMALL])))
    try:
        plan = Plan.from_dict(document)
    except PlanError:
        return
    assert Plan.from_dict(plan.canonical()).hash == plan.hash
    assert plan.entries()


@fuzzed(0.025)
def test_a_run_of_any_plan_is_a_release_or_refused_at_no_cost(draw: Callable[[Any], Any]) -> None:
    """Fields of the plan, or what the data hold, are changed; half of it by the command line."""
    document = changed(draw, PLAN, 1) if draw(st.booleans()) else PLAN
    data = {name: list(values) for name, values in DATA.items()}
    for name in list(data):
        if draw(st.integers(0, 5)) == 0:
            data[name] = [draw(texts()) for _ in range(10)]
    with copied() as folder:
        by_command = draw(st.booleans())
        try:
            table = pa.table(data)
            (folder / "plan.toml").write_bytes(toml_of(document).encode("utf-8", "surrogatepass"))
            if by_command:
                pyarrow.csv.write_csv(table, folder / "people.csv")
        except UnicodeEncodeError:  # Arrow holds no half characters
            return
        if by_command:
            before = spent(folder)
            code = said(
                "run",
                "plan.toml",
                "--data",
                "people=people.csv",
                "--ledger",
                "ledger.db",
                "--out",
                "out",
            )
            assert code in (0, 2, 3)
            assert (code == 0) == (folder / "out").exists()
            assert code == 0 or spent(folder) == before
            return
        try:
            plan = Plan.from_dict(document)
        except PlanError:
            return
        released(folder, plan, table)


@fuzzed(0.025)
def test_hostile_names_and_keys_are_published_as_they_are_or_refused(
    draw: Callable[[Any], Any],
) -> None:
    """Paths, SQL and formulas as names and keys: only in the folder, as text, and it verifies."""
    keys = draw(st.lists(_keys(), min_size=2, max_size=6, unique=True))
    column, query = draw(_keys()), draw(texts())
    plan = json.loads(json.dumps(SMALL))
    plan["name"] = draw(st.sampled_from(["small", query]))
    which = draw(st.sampled_from(["keys", "keys", "column", "levels", "query", "table", "dataset"]))
    name = column if which == "column" else "race"
    plan["columns"] = {name: {"keys": keys}}
    plan["query"][0]["by"] = [name]
    if which == "query":
        plan["query"][0]["name"] = query
    if which in ("table", "dataset"):
        plan[which] = query
    if which == "levels":
        plan["hierarchy"] = {"place": {"levels": [column], "keys": [[key] for key in keys]}}
        plan["query"][0]["at"] = [column]
    data = {name: keys * 5, column: keys * 5}
    with copied() as folder:
        try:
            table, product = pa.table(data), Plan.from_dict(plan)
        except (PlanError, UnicodeEncodeError):
            return
        if not released(folder, product, table):
            return
        checks = verify(folder / "out", {"report.html": page}, ledger=folder / "ledger.db")
        assert all(check.ok for check in checks), [c for c in checks if not c.ok]
        for path in (folder / "out" / "tables").glob("*.csv"):
            options = pyarrow.csv.ParseOptions(newlines_in_values=True)
            shown = pyarrow.csv.read_csv(path, parse_options=options)
            for cells in (shown.column_names, *(c.to_pylist() for c in shown.columns)):
                for cell in cells:
                    formula = isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r\n") and cell
                    assert not formula or _number(cell), cell


def _keys() -> st.SearchStrategy[str]:
    """Hostile texts that a table can hold."""
    return texts().filter(_is_integer)


def _is_integer(text: str) -> bool:
    return text != "" and not any("\ud800" <= character <= "\udfff" for character in text)


def _number(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).isdigit()


@fuzzed(0.01)
def test_whatever_lies_in_the_way_nothing_else_is_touched(draw: Callable[[Any], Any]) -> None:
    """Links and leftovers where the output folder is to be: what they lead to stays as it was."""
    with copied() as folder:
        treasure = folder / "treasure"
        (treasure / "tables").mkdir(parents=True)
        (treasure / "tables" / "race.all.csv").write_text("mine")
        out, hidden = folder / "out", folder / ".out.neyman-abcdefgh"
        for how in draw(st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True)):
            if how == 0 and not os.path.lexists(out):
                out.symlink_to(treasure)
            elif how == 1 and not os.path.lexists(out):
                out.symlink_to("out")
            elif how == 2 and not os.path.lexists(out):
                out.mkdir()
                (out / "tables").symlink_to(treasure / "tables")
            elif how == 3 and not os.path.lexists(hidden):
                hidden.symlink_to(treasure)
            elif how == 4 and not os.path.lexists(hidden):
                hidden.mkdir()
                (hidden / "neyman-staging").write_text("")
                (hidden / "release").symlink_to(treasure)
            elif how == 5 and not os.path.lexists(hidden):
                hidden.mkdir()
                (hidden / "neyman-staging").symlink_to(treasure / "tables" / "race.all.csv")
                (hidden / "release").mkdir()
                (hidden / "release" / "tables").symlink_to(treasure)
            elif how == 6 and not os.path.lexists(out):
                out.write_text("mine")
            elif how == 7 and not os.path.lexists(out):
                os.mkfifo(out)
            elif how == 8 and not os.path.lexists(out):
                out.symlink_to("gone")
        before = spent(folder)
        plan = Plan.from_dict({**SMALL, "name": draw(st.sampled_from(["small", "other"]))})
        try:
            run(plan, pa.table(DATA), folder / "ledger.db", out)
        except named_errors():
            assert spent(folder) == before
        assert (treasure / "tables" / "race.all.csv").read_text() == "mine"
        assert sorted(p.name for p in treasure.rglob("*")) == ["race.all.csv", "tables"]


@fuzzed(0.10)
def test_any_bytes_as_a_receipt_fail_in_words(draw: Callable[[Any], Any]) -> None:
    """A receipt's bytes, changed: `verify` says what is wrong, and so does the command."""
    with copied() as folder:
        path = folder / "made" / "receipt.json"
        content = path.read_bytes()
        path.write_bytes(mutated(draw, content, 2))
        checks = verify(path)
        product = _json(path.read_bytes())
        if all(check.ok for check in checks):
            assert _says_no_more(product, json.loads(content)), product
        if draw(st.integers(0, 9)) == 0:
            assert said("verify", path) in (0, 2, 5)
            assert said("report", folder / "made", "--out", folder / "ledger.db.html") in (0, 2)


@fuzzed(0.05)
def test_any_fields_of_a_receipt_fail_in_words(draw: Callable[[Any], Any]) -> None:
    """A receipt's fields, changed: it never verifies, unless it still says the same."""
    with copied() as folder:
        path = folder / "made" / "receipt.json"
        content = json.loads(path.read_bytes())
        product = changed(draw, content, 2)
        try:
            path.write_text(json.dumps(product, ensure_ascii=False))
        except (ValueError, UnicodeEncodeError):
            return
        checks = verify(path, {"report.html": page})
        good = all(check.ok for check in checks)
        assert not good or _says_no_more(product, content), (product, checks)
        assert said("verify", path, "--ledger", "ledger.db") in (0, 5)
        assert around(folder) == {"made"}


def _says_no_more(answer: Any, was: Any) -> bool:
    """Whether a receipt claims what another does, or less.

    Versions are told and not recomputed, and of the entry's number only the ledger knows.
    """
    free = {"versions": None, "ledger": None}
    entry = {"entry": None}
    same = {**answer["ledger"], **entry} == {**was["ledger"], **entry}
    return same and _weaker({**answer, **free}, {**was, **free})


def _weaker(answer: Any, was: Any) -> bool:
    """The same, but that intervals may be wider, which promises less; numbers nearly the same."""
    if isinstance(answer, dict) and isinstance(was, dict):
        wider = {}
        if {"lower", "upper"} <= answer.keys() & was.keys():
            low, high = _number_of(answer["lower"]), _number_of(answer["upper"])
            if not low <= _number_of(was["lower"]) * (1 + 1e-3):
                return False
            if not high >= _number_of(was["upper"]) * (1 - 1e-3):
                return False
            wider = {"lower", "upper"}
        return answer.keys() == was.keys() and all(
            name in wider or _weaker(answer[name], was[name]) for name in answer
        )
    if isinstance(answer, list) and isinstance(was, list):
        return len(answer) == len(was) and all(map(_weaker, answer, was))
    if isinstance(answer, int | float) and isinstance(was, int | float):
        return abs(answer - was) <= 1e-3 * abs(was)
    return answer == was


def _number_of(value: Any) -> float:
    return float("inf") if value == "inf" else float(value)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def test_values_inside_each_other_without_end_are_one_error_of_every_reader(tmp_path):
    """Python's parser of JSON raises RecursionError for them."""
    deep = "[" * 100_000
    for name in ("receipt.json", "parameters.npy", "report.md"):
        (tmp_path / name).write_text(deep)
    (tmp_path / "signature.json").write_text(deep)
    readers: list[Callable[[], object]] = [
        lambda: Mechanism.from_json(deep),
        lambda: Release.load(tmp_path),
        lambda: Trained.load(tmp_path),
        lambda: explore(tmp_path),
        lambda: check_signature(b"", deep.encode()),
    ]
    for reader in readers:
        with pytest.raises(ValueError, match="inside each other"):
            reader()
    for command in ("verify", "report", "synthesize", "explore"):
        done = CliRunner().invoke(app, [command, str(tmp_path)])
        assert done.exit_code > 0, command
        assert isinstance(done.exception, SystemExit), command
    assert [check.ok for check in verify(tmp_path)] == [False]
