"""Plant faults in the code, one at a time, and count those that the tests find (`make mutants`).

A fault changes one place of src/neyman. Its class follows from the file and the place (`CLASSES`).
The seed draws the same number of faults of each class, each from another package while there is
one. For each fault the tests up to 3 seconds that reach its line run, the cheapest first and of
equal cost the nearest, until one fails. A fault is undecided if a limit leaves out a test: then it
counts as not found. Faults of files that import torch run in the environment with torch. A comment
above a line, `# same: OLD -> NEW: REASON`, says that a fault changes no answer: none such is drawn,
and no slack whose mark says that its roundings are counted, as no point shows it.
A run goes on where it was stopped. With `--append` it adds its score to a file.

Each fault, and each folder of tests, has a process of its own, which starts as a copy of this one:
with the libraries, and without neyman. The tests run on a copy of the source. Those that fail
without a fault find none.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

import tiers

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "neyman"
BUILD = ROOT / "build" / "mutants"
TORCH = ROOT / os.environ.get("TORCH", ".venv-torch") / "bin" / "python"
CPU_SECONDS = 400
"""The limit of a fault, with the processes that its tests start."""
SUM_SECONDS = 150
"""The limit of the measured times of its tests together."""
TEST_SECONDS = 20
"""The limit of a test, after which the next one runs."""
Stage = tuple[float, float]
STAGES: tuple[Stage, ...] = ((-1, 0.3), (0.3, 3))
"""The CPU times of the tests of a stage, above the first and up to the second: of the cheapest case
of each. A stage has the faults that no test of the stage before it finds."""
PROCESSES = 2
LIBRARIES = (
    "hypothesis.strategies", "mpmath", "numpy", "pandas", "scipy.fft", "scipy.integrate",
    "scipy.interpolate", "scipy.linalg", "scipy.optimize", "scipy.signal", "scipy.sparse.linalg",
    "scipy.special", "scipy.stats", "duckdb", "pyarrow.parquet", "cryptography.x509", "jsonschema",
    "torch",
)  # fmt: skip
"""What every process has from its start."""

# ---- faults --------------------------------------------------------------------------------------


def _both_ways(pairs: str) -> dict[str, str]:
    sides = [pair.split(" | ") for pair in pairs.split("; ")]
    return {one: other for a, b in sides for one, other in ((a, b), (b, a))}


CLASSES = (
    "rounding", "sign", "off by one", "missing values", "SQL text", "cache keys", "dropped checks",
    "dropped durability", "noise", "sensitivity", "order of a pair", "sentences", "torch", "other",
)  # fmt: skip
"""A fault of a file that imports torch is of that class, and one inside a text of its class. Where
the line has a word about noise or sensitivity, a sign, a number, or a factor is of that class.
Other factors, logic, and dropped calls are "other"."""
WORDS = {
    "noise": re.compile(r"^noise/|noise|scale|sigma|variance|deviation|draws?\b"),
    "sensitivity": re.compile(r"sensitivit|(?<!np\.)\bclip|norm\b|contribution"),
}
OPERATORS: dict[type, tuple[type, str]] = {
    one: (new, kind)
    for kind, *pair in (
        ("off by one", ast.Lt, ast.LtE), ("off by one", ast.Gt, ast.GtE),
        ("sign", ast.Add, ast.Sub), ("missing values", ast.Is, ast.IsNot),
        ("other", ast.Eq, ast.NotEq), ("other", ast.Mult, ast.Div), ("other", ast.And, ast.Or),
    )
    for one, new in (pair, pair[::-1])
}  # fmt: skip
NAMES = {
    "rounding": _both_ways(
        "up | down; above | below; exp_up | exp_down; upper | lower; max | min; floor | ceil; "
        "maximum | minimum; log_up | log_down"),
    "missing values": _both_ways(
        "isnan | isinf; isnull | notnull; is_null | is_valid; nan | inf; nanmax | max"),
}  # fmt: skip
CHECK = re.compile(r"_?(check|require|refuse|reject|verify|ensure|need|expect)")
DURABLE = {"fsync", "flush", "sync_folder", "rename", "replace", "commit"}
EASY = {"max", "min", "maximum", "minimum", "isinstance", "getattr", "hasattr", "hypot", "cast"}
"""Calls whose two arguments commute, or fail at once in the other order."""
CACHE, KEY = re.compile("cache|known|memo|entries"), re.compile("(^|_)(key|identity)$")
SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|WHERE|JOIN|GROUP BY|ORDER BY|PRAGMA|CAST|"
    r"CASE WHEN|COALESCE|CHECK \(|VALUES|ON CONFLICT|TRIGGER)\b"
)
SENTENCE = re.compile(r"[a-z]+ [a-z]+ [a-z]+|[a-z]+ \S* ?(of|at|per|with|than) ")
TEXTS = {
    "SQL text": {"DISTINCT": "", "NOT NULL": "", "FOR UPDATE": "", "UNIQUE": "", "SUM": "MAX"}
    | _both_ways(
        "= | <>; < | <=; > | >=; AND | OR; MAX | MIN; max | min; ASC | DESC; + | -; IN | NOT IN; "
        "IS NULL | IS NOT NULL; UNION ALL | UNION; LEFT JOIN | JOIN; floor | ceil"),
    "sentences": {"not ": "", "cannot": "can"} | _both_ways(
        "at most | at least; lower | upper; above | below; largest | smallest; more | less; "
        "true | false; before | after; wrongly | correctly; up | down; every | no; first | last; "
        "with | without; and | or"),
}  # fmt: skip
ATOMS = (
    ast.Tuple, ast.Constant, ast.JoinedStr, ast.Name, ast.Attribute, ast.Call, ast.Subscript,
    ast.AugAssign,
)  # fmt: skip
"""What needs no parentheses."""


class Mutant(NamedTuple):
    """A change of one place: another text from a byte of a file to another byte."""

    file: str
    line: int
    start: int
    end: int
    text: str
    kind: str

    @property
    def package(self) -> str:
        return "/".join(Path(self.file).parts[:-1][:2]) or "neyman"

    def applied(self) -> str:
        """Return the source with the change."""
        source = (SOURCE / self.file).read_bytes()
        return (source[: self.start] + self.text.encode() + source[self.end :]).decode()

    def described(self) -> str:
        """Return the class, the place, and the text before and after the change."""
        before = (SOURCE / self.file).read_bytes()[self.start : self.end].decode()
        joins = re.compile(r"""\\n|\s+|['"]+\s+f?["']""")  # of the parts of a text, too
        old, new = (joins.sub(" ", text).replace("'", '"') for text in (before, self.text))
        same = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
        near = slice(max(len([*same]) - 40, 0), None)
        line = (SOURCE / self.file).read_text(encoding="utf-8").splitlines()[self.line - 1].strip()
        change = f"{old[near][:100]}  ->  {new[near][:100]}  in  {line}"
        return f"{self.kind:18} {self.file}:{self.line}  {change}"

    def has_effect(self) -> bool:
        """Return whether the change gives another program, and no comment denies that."""
        lines = (SOURCE / self.file).read_text(encoding="utf-8").splitlines()
        above, line = lines[: self.line - 1], lines[self.line - 1]
        comments = [*takewhile(lambda text: text.lstrip()[:1] == "#", reversed(above))]
        slack = ", ".join(re.findall("# slack: (.+)", "\n".join([*comments, line])))
        if self.text == "0.0" and slack and not re.sub("counted|open|[;, ]", "", slack):
            return False
        marks = (re.search("# same: (.+?) -> (.+?): ", text) for text in comments)
        same = [line, *(line.replace(*mark.groups()) for mark in marks if mark)]
        programs = ["\n".join((*above, one, *lines[self.line :])) for one in same]
        with suppress(SyntaxError):
            changed, *unchanged = (ast.dump(ast.parse(p)) for p in (self.applied(), *programs))
            return changed not in unchanged
        return False


def mutants(file: str) -> list[Mutant]:
    """Return every change of a file that this tool makes."""
    source = (SOURCE / file).read_bytes()
    torch = re.search(rb"^\s*(import|from) torch\b", source, re.M) is not None
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    changes: set[Mutant] = set()
    for node, function, text in _nodes(ast.parse(source)):
        for place, new, kind in _variants(node, function):
            if not function and kind not in TEXTS:
                continue
            line = file.rpartition("/")[0] + "/ " + lines[place.lineno - 1].decode()
            about = [each for each, words in WORDS.items() if words.search(line)]
            plain = kind if kind not in ("sign", "off by one", "other") else (*about, kind)[0]
            plain = "torch" if torch else (text and _class_of_text(text)) or plain
            before, expression = (place.__class__, place.__dict__), text or place
            if text:  # whose parts have no places
                place.__class__, place.__dict__ = new.__class__, new.__dict__
            with suppress(ValueError):  # an f-string with a backslash
                after = ast.unparse(text or new)
                after = after if isinstance(text or new, ATOMS) else f"({after})"
                start = starts[expression.lineno - 1] + expression.col_offset
                end = starts[expression.end_lineno - 1] + expression.end_col_offset
                changes.add(Mutant(file, expression.lineno, start, end, after, plain))
            place.__class__, place.__dict__ = before
    return sorted(changes)


def _nodes(node: Any, function: str = "", text: Any = None) -> Iterator[tuple[Any, str, Any]]:
    """The nodes, the function of each, and the f-string around it.

    Annotations, defaults, docstrings, and refusals have no faults.
    """
    below: Iterable[Any] = ast.iter_child_nodes(node)
    match node:
        case ast.Raise() | ast.Assert() | ast.Expr(ast.Constant()):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ExceptHandler():
            function = function if isinstance(node, ast.ExceptHandler) else node.name
            below = node.body
        case ast.Call(ast.Attribute(value, "lower" | "upper"), given):  # of a text
            below = [value, *given]
        case ast.AnnAssign(value=value):
            below = [value] if value else []
        case ast.JoinedStr(values):
            below = [each for each in values if isinstance(each, ast.FormattedValue)]
    yield node, function, text
    text = text or (node if isinstance(node, ast.JoinedStr) else None)
    for child in below:
        yield from _nodes(child, function, text)


def _class_of_text(node: Any) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(str(each.value) if isinstance(each, ast.Constant) else "9" for each in parts)
    return "SQL text" if SQL.search(text) else "sentences" if SENTENCE.search(text) else ""


@functools.cache
def _pattern(kind: str) -> re.Pattern[str]:
    """A pattern of the words of a class of texts, the longest first, and of numbers."""
    words = sorted(TEXTS[kind], key=len, reverse=True)
    edges = [rf"\b{word}\b" if word[0].isalpha() else f"(?<= )[{word}](?= )" for word in words]
    return re.compile("|".join([*edges, r"(?<![\w.-])\d+(?![\w.])"]).replace(r" \b", " "))


def _with(node: Any, **fields: Any) -> Any:
    new = copy.copy(node)
    new.__dict__ = {**node.__dict__, **fields}
    return new


def _in_text(node: Any) -> Iterator[tuple[Any, Any, str]]:
    """Another word, comparison, or number of SQL or a sentence, or two values in other places."""
    if not (kind := _class_of_text(node)):
        return
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    values = [at for at, each in enumerate(parts) if isinstance(each, ast.FormattedValue)]
    changes = [{a: parts[b], b: parts[a]} for a, b in pairwise(values)]
    for at, each in enumerate(parts):
        for m in _pattern(kind).finditer(each.value) if isinstance(each, ast.Constant) else ():
            word = str(int(m[0]) + 1) if m[0].isdigit() else TEXTS[kind][m[0]]
            new = each.value[: m.start()] + word + each.value[m.end() :]
            changes.append({at: _with(each, value=new)})
    for change in changes:
        new = [change.get(at, each) for at, each in enumerate(parts)]
        yield node, _with(node, values=new) if isinstance(node, ast.JoinedStr) else new[0], kind


def _variants(node: Any, function: str) -> Iterator[tuple[Any, Any, str]]:  # noqa: C901
    """The place of a change, the expression that takes it, and the class."""
    key = None
    kinds = [*getattr(node, "ops", [getattr(node, "op", None)])]
    for at, kind in enumerate(kinds):
        if type(kind) in OPERATORS:
            new, of = OPERATORS[type(kind)]
            yield node, _with(node, op=new(), ops=[*kinds[:at], new(), *kinds[at + 1 :]]), of
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub()):
            yield node, left, "sign"
        case ast.UnaryOp(ast.Not() | ast.USub() as kind, operand):
            yield node, operand, "sign" if isinstance(kind, ast.USub) else "other"
        case ast.Constant(int(value)) if not isinstance(value, bool):
            yield node, ast.Constant(value + 1), "off by one"
        case ast.Constant(float(value)):
            yield node, ast.Constant(1.001 * value or 1e-3), "other"
        case ast.Constant(str()) | ast.JoinedStr():
            yield from _in_text(node)
        case ast.Name("UNIT"):
            yield node, ast.Constant(0.0), "rounding"
        case ast.Name(name, ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            field = "id" if isinstance(node, ast.Name) else "attr"
            for kind, names in NAMES.items():
                if name in names:
                    yield node, _with(node, **{field: names[name]}), kind
        case ast.If(test, [ast.Raise(), *_]):
            yield test, ast.Constant(False), "dropped checks"
        case ast.Expr(ast.Call(called) as call):
            parts = ast.unparse(called).split(".")
            kind = "dropped durability" if parts[-1] in DURABLE and "stdout" not in parts else ""
            kind = kind or ("dropped checks" if any(map(CHECK.match, parts)) else "other")
            yield call, ast.Constant(None), kind
        case ast.Tuple([one, two], ast.Load()) if not isinstance(one, ast.Slice):
            yield node, _with(node, elts=[two, one]), "order of a pair"
        case ast.Subscript(value, each) if CACHE.search(ast.unparse(value)):
            key = each
        case ast.Assign([ast.Name(name)], each) if KEY.search(name):
            key = each
        case ast.Return(each) if KEY.search(function):
            key = each
        case ast.Call(called, [first, *rest], named):
            name = ast.unparse(called)
            if len(rest) == 1 and not named and name.rpartition(".")[2] not in EASY:
                yield node, _with(node, args=[*rest, first]), "order of a pair"
            if re.search(r"\.(get|put|setdefault)$", name) and CACHE.search(name):
                key = first
    for left_out in key.elts if isinstance(key, ast.Tuple) else ():
        yield key, _with(key, elts=[e for e in key.elts if e is not left_out]), "cache keys"


def sample(seed: int, number: int) -> list[Mutant]:
    """Return mutants drawn by a seed: as many of each class, each from another package."""
    draw = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(SOURCE.rglob("*.py")):
        for mutant in mutants(str(path.relative_to(SOURCE))):
            left[mutant.kind][mutant.package].append(mutant)
    turns: dict[str, list[str]] = defaultdict(list)  # packages, until a class returns to one
    result: list[Mutant] = []
    while any(left.values()) and len(result) < number:
        kinds = [mutant.kind for mutant in result]
        kind = min((each for each in CLASSES if left[each]), key=kinds.count)
        turn = turns[kind] = turns[kind] or draw.sample(sorted(left[kind]), len(left[kind]))
        inside = left[kind][package := turn.pop()]
        if (mutant := inside.pop(draw.randrange(len(inside)))).has_effect():
            result.append(mutant)
        if not inside:
            del left[kind][package]
    return result


# ---- processes -----------------------------------------------------------------------------------


Work = tuple[Any, Callable[[Path], int], float]
"""A name, what a process does with a copy of the source for an exit code, and its CPU seconds."""


def results(works: Iterable[Work]) -> Iterator[tuple[Any, int]]:
    """Do each work in its own process, some at a time: its name, and its code."""
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    places = [BUILD / f"source-{slot}" for slot in range(PROCESSES)]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(ROOT / "src", place, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(place, quiet=2)
    running: dict[Any, tuple[Any, float, Path, float]] = {}
    waiting = iter(works)
    try:
        while True:
            while places and (work := next(waiting, None)) is not None:
                name, do, limit = work
                inside = functools.partial(_inside, do, place := places.pop())
                process = multiprocessing.get_context("fork").Process(target=inside)
                process.start()
                running[process] = (name, limit, place, time.monotonic())
            if not running:
                return
            for process, (name, limit, place, start) in list(running.items()):
                spent = max(tiers.cpu_seconds(process.pid), (time.monotonic() - start) / 10)
                if not process.is_alive() or spent > limit:
                    _end(process)
                    del running[process]
                    places.append(place)
                    yield name, process.exitcode
            time.sleep(0.02)
    finally:
        for process in running:
            _end(process)


def _end(process: Any) -> None:
    """End a process and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _inside(do: Callable[[Path], int], place: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.dup2(os.open(place.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    os.dup2(1, 2)
    os.environ.update(PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="1")
    sys.path.insert(0, str(place))
    sys.exit(do(place))


def _pytest(tests: Iterable[str], *plugins: object) -> int:
    ignored = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is there already
    return int(pytest.main(["-x", "-p", "no:xdist", "-W", ignored, *tests], list(plugins)))


# ---- tests that reach a line ---------------------------------------------------------------------

EVERYTHING = re.compile(r"tests/(browser|fuzz|golden|shelf|typing|test_docs)\b")
"""Tests that compare or draw everything at once: a property must find a fault."""


class Recorder:
    """A plugin that records the lines of each test that passes: of its cheapest case."""

    def __init__(self, measured: coverage.Coverage, stage: Stage) -> None:
        self.coverage, self.stage = measured, stage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        durations = tiers.Durations.read()
        cheapest: dict[str, tuple[float, pytest.Item]] = {}
        for item in items:
            test, seconds = item.nodeid.partition("[")[0], durations.of(item.nodeid)
            seconds = 1.0 if seconds is None else seconds
            seconds += tiers.group_of(item) == "spark"  # the start of Java
            if seconds < cheapest.get(test, (4.0, item))[0]:
                cheapest[test] = seconds, item
        low, high = self.stage
        here = [(seconds, item) for seconds, item in cheapest.values() if low < seconds <= high]
        items[:] = [item for _, item in here]
        self.seconds = {item.nodeid: seconds for seconds, item in here}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        for name, module in list(sys.modules.items()):  # a cache would hide lines
            for value in list(vars(module).values()) if name.startswith("neyman") else ():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
                elif type(value).__name__ == "ArrayCache":
                    value.__init__(value.most)
        self.coverage.switch_context(item.nodeid)
        answer = yield
        self.coverage.switch_context("")
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.seconds.pop(report.nodeid, None)


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()


def recorded(records: dict[str, Path], place: Path, stage: Stage) -> int:
    """Record which lines the tests of some files reach, and the files that they import."""
    measured = coverage.Coverage(data_file=None, include=[f"{place}/*"], config_file=False)
    recorder = Recorder(measured, stage)
    measured.start()
    _pytest([*records, "--maxfail=1000"], recorder)
    measured.stop()
    data = measured.get_data()
    for file, record in records.items():
        seconds = {t: s for t, s in recorder.seconds.items() if t.partition("::")[0] == file}
        data.set_query_contexts([f"^{re.escape(file)}::"])
        lines: dict[str, list[tuple[list[int], list[str]]]] = {}
        for path in data.measured_files():
            same: dict[tuple[str, ...], list[int]] = defaultdict(list)
            for line, tests in data.contexts_by_lineno(path).items():
                same[tuple(sorted(seconds.keys() & tests))].append(line)
            lines[path.removeprefix(f"{place}/neyman/")] = [(at, [*t]) for t, at in same.items()]
        record.write_text(json.dumps({"seconds": seconds, "lines": lines}))
    return 0


def measure(stage: Stage, torch: bool) -> list[Path]:
    """Return the records of the lines that tests reach, after those that are missing or old."""
    folder = BUILD / f"reached-{stage[1]}{'-torch' * torch}"
    folder.mkdir(parents=True, exist_ok=True)
    every = _digest(*SOURCE.rglob("*.py"), *{*(ROOT / "tests").glob("*.py")} - {Path(__file__)})
    records: list[Path] = []
    works: dict[Path, dict[str, Path]] = defaultdict(dict)  # by folder
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT))
        if not EVERYTHING.match(file) and (not torch or b"torch" in path.read_bytes()):
            name = f"{file.replace('/', '.')}-{every[:12]}-{_digest(path)[:12]}.json"
            records.append(record := folder / name)
            if not record.exists():
                works[path.parent][file] = record
    do = functools.partial(recorded, stage=stage)
    runs = ((at.name, functools.partial(do, of), 600.0 + 60 * len(of)) for at, of in works.items())
    for number, (name, code) in enumerate(results(runs), 1):
        print(f"{number:4} of {len(works)}  {name}" + (f"  {code}" if code else ""), flush=True)
    return [record for record in records if record.exists()]


class Reached:
    """The tests that reach a line, the cheapest first."""

    def __init__(self, records: list[Path]) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for record in records:
            known = json.loads(record.read_text())
            self.seconds |= known["seconds"]
            for file, groups in known["lines"].items():
                self.lines[file][0].update(known["seconds"])
                for lines, tests in groups:
                    for line in lines:
                        self.lines[file][line].update(tests)

    def tests(self, mutant: Mutant) -> tuple[list[str], bool]:
        """Return the tests of the line, or of the nearest above it, and whether these are all.

        Where no test reaches a line above, they are those that import the file.
        """
        by_line = self.lines[mutant.file]
        line = max((at for at in by_line if by_line[at] and at <= mutant.line), default=0)
        own = (f"/{mutant.package}/", Path(mutant.file).stem)

        def order(test: str) -> tuple[float, bool, float]:
            seconds = self.seconds[test]
            return max(round(seconds, 1), 0.1), not any(part in test for part in own), seconds

        tests = sorted(by_line[line], key=order)
        spent = accumulate(self.seconds[test] for test in tests)
        within = [test for test, so_far in zip(tests, spent, strict=True) if so_far < SUM_SECONDS]
        return within, len(within) == len(tests)


# ---- judgment ------------------------------------------------------------------------------------


class Limit:
    """A plugin that ends a test at its limit."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        signal.signal(signal.SIGPROF, lambda *_: pytest.skip("at the limit"))
        signal.setitimer(signal.ITIMER_PROF, TEST_SECONDS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def judged(mutant: Mutant, tests: list[str], tier: str, place: Path) -> int:
    """Run tests on a source with the change, until one fails; then other cases of their files."""
    changed = place / "changed"  # by the last mutant
    if changed.exists():
        file = changed.read_text()
        shutil.copy2(SOURCE / file, place / "neyman" / file)  # with its time, as its bytecode says
    changed.write_text(mutant.file)
    (place / "neyman" / mutant.file).write_text(mutant.applied(), encoding="utf-8")
    sys.dont_write_bytecode = True
    reaching = Counter(test.partition("::")[0] for test in tests)
    files = ["--tier=fast", *(file for file, _ in reaching.most_common(8))]
    functions = [test.partition("[")[0] for test in tests if "[" in test][:100]
    more = [tests and files, functions and ["--tier=test", *functions]]
    for batch in filter(None, (tests[:8], tests[8:], *more)):
        code = _pytest([f"--tier={tier}", *batch], Limit())
        if code == pytest.ExitCode.USAGE_ERROR:  # a file has no such test, or is not imported
            code = _pytest(files, Limit())
        if code not in (0, 5):
            return code
    return 0


def main() -> None:
    """Draw mutants, run the tests on each, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--append", type=Path, help="the file to which the score is added")
    parser.add_argument("--torch", action="store_true", help="those of torch, in this environment")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with the processes that run
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"seed-{asked.seed}.jsonl"
    chosen = sample(asked.seed, asked.number)
    here = [mutant for mutant in chosen if (mutant.kind == "torch") == asked.torch]
    for number, stage in enumerate(STAGES):
        lives = [m for m in here if len(s := _states(log, m)) == number and "killed" not in s]
        if lives:
            reached = Reached(measure(stage, asked.torch))
            judge(lives, reached, "ci" if number else "test", log)
    if not asked.torch and len(here) < len(chosen) and TORCH.exists():
        library = BUILD / "library"  # the environment with torch has no coverage of its own
        library.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (library / "coverage").symlink_to(Path(coverage.__file__).parent)
        options = [f"--seed={asked.seed}", f"--number={asked.number}", "--torch"]
        environment = {**os.environ, "PYTHONPATH": str(library)}
        subprocess.run([TORCH, __file__, *options], env=environment, check=True, cwd=ROOT)
    if not asked.torch:
        _summary(asked, {mutant: _states(log, mutant) for mutant in chosen})


def _states(log: Path, mutant: Mutant) -> list[str]:
    """What came of a mutant in each stage."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [state for *each, state in lines if each == [*mutant]]


def judge(chosen: list[Mutant], reached: Reached, tier: str, log: Path) -> None:
    """Run the tests of a stage on each mutant, at the size of a tier, and log what they found."""
    tests = {mutant: reached.tests(mutant) for mutant in chosen}
    works = ((m, functools.partial(judged, m, tests[m][0], tier), CPU_SECONDS) for m in chosen)
    for number, (mutant, code) in enumerate(results(works), 1):
        # Codes of pytest: a test failed, and a file of tests could not be imported.
        state = "killed" if code in (1, 2) else "undecided"
        state = "survived" if code == 0 and tests[mutant][1] else state
        with log.open("a") as stream:
            stream.write(json.dumps([*mutant, state]) + "\n")
        print(f"{number:4} {state:10} {mutant.described()}", flush=True)


def _summary(asked: argparse.Namespace, states: dict[Mutant, list[str]]) -> None:
    """Print the score by package and by class, and append it to a file."""
    killed = {mutant: "killed" in came for mutant, came in states.items()}
    for name in ("package", "kind"):
        print(f"\n{name:24}   killed    of")
        for row in (*sorted({getattr(mutant, name) for mutant in killed}), "all"):
            of = [was for mutant, was in killed.items() if row in (getattr(mutant, name), "all")]
            print(f"{row:24}{sum(of):8}{len(of):6}")
    lives = [f"{' '.join(states[m]):20} {m.described()}" for m, was in killed.items() if not was]
    print("", *lives, sep="\n")
    if asked.append:
        score = {
            "seed": asked.seed,
            "killed": sum(killed.values()),
            "of": len(killed),
            "lives": lives,
        }
        with asked.append.open("a") as stream:
            stream.write(json.dumps({"date": time.strftime("%Y-%m-%d"), **score}) + "\n")


if __name__ == "__main__":
    main()
