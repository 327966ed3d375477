"""Plant faults in the code, one at a time, and count those that the tests find (`make mutants`).

A fault changes one operator, number, direction of rounding, check, or call. The seed draws the same
number of faults in each package. For each fault the tests that reach its line run, the cheapest
first, until one fails. A fault is killed if a test fails, and undecided at the limit of CPU time:
then it counts as not killed. A comment above a line, `# same: OLD -> NEW: REASON`, says that a
fault changes no answer. A run goes on where it was stopped, and prints the counts by package.

Each fault, and each file of tests, has a process of its own, which starts as a copy of this one:
with the libraries, and without neyman. The tests run on a copy of the source. Those that fail
without a fault find none.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import functools
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from coverage import Coverage, CoverageData

import tiers

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "neyman"
BUILD = ROOT / "build" / "mutants"
SAME = re.compile(r"# same: (.+?) -> (.+?): ")
PACKAGES = (
    "accounting", "accounting/optimality", "accounting/semantics", "analysis/estimators",
    "analysis/hypothesis_tests", "analysis/training", "auditing", "curves/divergences",
    "curves/losses", "curves/profiles", "curves/tradeoff", "ledger", "mechanisms",
    "mechanisms/canonical", "mechanisms/matrix_mechanism", "mechanisms/shuffling",
    "mechanisms/stability", "mechanisms/tuning", "noise", "numerics", "publishing/consistency",
    "publishing/engines", "publishing/plan", "publishing/release", "publishing/tables", "storage",
)  # fmt: skip
"""The certified core, the noise, the ledger, and the release."""
CPU_SECONDS = 60
"""The limit of a fault, with the processes that its tests start."""
TEST_SECONDS = 5
"""The limit of a test, after which the next one runs."""
DEAREST_SECONDS = 0.3
"""The CPU time of a test whose lines are recorded; the cheapest case of each test counts."""
PROCESSES = 2
LIBRARIES = (
    "hypothesis.strategies", "mpmath", "numpy", "pandas", "scipy.fft", "scipy.integrate",
    "scipy.interpolate", "scipy.linalg", "scipy.optimize", "scipy.signal", "scipy.sparse.linalg",
    "scipy.special", "scipy.stats", "duckdb", "pyarrow.parquet", "cryptography.x509", "jsonschema",
)  # fmt: skip
"""What every process has from its start."""
OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
NAMES = {
    a: b
    for pair in (
        ("up", "down"), ("above", "below"), ("exp_up", "exp_down"), ("upper", "lower"),
        ("max", "min"), ("maximum", "minimum"), ("floor", "ceil"), ("log_up", "log_down"),
    )
    for a, b in (pair, pair[::-1])
}  # fmt: skip
"""Names of directions, and their opposites."""


def _package(file: str) -> str:
    """Return the package of a file: the innermost one that is listed."""
    return max((name for name in PACKAGES if file.startswith(f"{name}/")), key=len)


State = Literal["killed", "survived", "undecided", "equivalent"]


class Mutant(NamedTuple):
    """A change of one place: of the text from ``start`` to ``end`` on a line of a file."""

    file: str
    line: int
    start: int
    end: int
    text: str

    @property
    def package(self) -> str:
        return _package(self.file)

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.splitlines(keepends=True)
        content = lines[self.line - 1].encode()
        changed = content[: self.start] + self.text.encode() + content[self.end :]
        lines[self.line - 1] = changed.decode()
        return "".join(lines)

    def described(self, source: str) -> str:
        """Return the line before and after the change."""
        before = source.splitlines()[self.line - 1].strip()
        after = self.applied(source).splitlines()[self.line - 1].strip()
        return f"{before}  ->  {after}"


def mutants(file: str) -> list[Mutant]:
    """Return every change of a file that this tool makes."""
    source = (SOURCE / file).read_text(encoding="utf-8")
    lines = [line.encode() for line in source.splitlines()]
    changes: list[Mutant] = []
    for node in _executed(ast.parse(source)):
        for left, kind, right in _operands(node):
            if kind in OPERATORS and left.end_lineno == right.lineno:
                start, (old, new) = left.end_col_offset or 0, OPERATORS[kind]
                between = lines[right.lineno - 1][start : right.col_offset].decode()
                if between.strip("() ") == old:
                    at = start + between.index(old)
                    changes.append(Mutant(file, right.lineno, at, at + len(old), new))
        if (change := _replacement(node)) is not None:
            place, text = change
            end = place.end_col_offset or 0
            if place.end_lineno == place.lineno:
                changes.append(Mutant(file, place.lineno, place.col_offset, end, text))
    return changes


def _operands(node: ast.AST) -> Iterator[tuple[ast.expr, type, ast.expr]]:
    """The operators of a node, each between its operands."""
    match node:
        case ast.Compare(left, kinds, rights):
            for one, kind, right in zip([left, *rights], kinds, rights, strict=False):
                yield one, type(kind), right
        case ast.BinOp(left, kind, right):
            yield left, type(kind), right
        case ast.BoolOp(kind, values):
            for left, right in pairwise(values):
                yield left, type(kind), right


def _replacement(node: ast.AST) -> tuple[ast.expr, str] | None:
    """A part of a node, and the text that takes its place."""
    match node:
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            return node, f"({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add() | ast.Sub(), _):
            return node, f"({ast.unparse(left)})"
        case ast.Constant(value) if type(value) is int:
            return node, repr(value + 1)
        case ast.Constant(value) if type(value) is float:
            return node, repr(1.001 * value or 1e-3)
        case ast.Name("UNIT"):
            return node, "0.0"
        case ast.Name(name) if name in NAMES:
            return node, NAMES[name]
        case ast.Attribute(value, name) if name in NAMES:
            return node, f"{ast.unparse(value)}.{NAMES[name]}"
        case ast.If(test, [ast.Raise(), *_]):
            return test, "False"
        case ast.Expr(ast.Call() as call):
            return call, "None"
    return None


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a function is called: no annotations, defaults, or texts."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if not isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Raise):
                        yield node


def sample(seed: int, number: int) -> list[Mutant]:
    """Return as many mutants of each package, drawn by a seed."""
    draw = random.Random(seed)
    result: list[Mutant] = []
    for index, package in enumerate(PACKAGES):
        paths = (str(path.relative_to(SOURCE)) for path in (SOURCE / package).rglob("*.py"))
        files = sorted(path for path in paths if _package(path) == package)
        every = sorted({mutant for file in files for mutant in mutants(file)})
        share = number // len(PACKAGES) + (index < number % len(PACKAGES))
        result += draw.sample(every, min(share, len(every)))
    return result


# ---- processes -----------------------------------------------------------------------------------


class Work(NamedTuple):
    """What a process does with a copy of the source: it returns an exit code."""

    name: Any
    do: Callable[[Path], int]
    limit: float


def results(works: Iterable[Work]) -> Iterator[tuple[Any, int | None]]:
    """Do each work in its own process, some at a time: its name, and None at its limit."""
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    copies = [_copy(BUILD / f"source-{slot}") for slot in range(PROCESSES)]
    running: dict[int, tuple[Work, Path, float]] = {}
    waiting = iter(works)
    try:
        while True:
            while copies and (work := next(waiting, None)) is not None:
                copy = copies.pop()
                running[_forked(work, copy)] = (work, copy, time.monotonic())
            if not running:
                return
            for process, (work, copy, start) in list(running.items()):
                code = None
                spent = tiers.cpu_seconds(process)
                if spent < work.limit and time.monotonic() - start < 10 * work.limit:
                    done, status = os.waitpid(process, os.WNOHANG)
                    if not done:
                        continue
                    code = os.waitstatus_to_exitcode(status)
                _end(process)
                if code is None:
                    os.waitpid(process, 0)
                del running[process]
                copies.append(copy)
                yield work.name, code
            time.sleep(0.02)
    finally:
        for process in running:
            _end(process)


def _end(process: int) -> None:
    """End a process and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _copy(folder: Path) -> Path:
    """A copy of the source with its bytecode."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=2)
    return folder


def _forked(work: Work, copy: Path) -> int:
    sys.stdout.flush()
    if process := os.fork():
        with suppress(OSError):  # it has done so, or has ended
            os.setpgid(process, process)
        return process
    code = 3
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.dup2(os.open(copy.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.dup2(1, 2)
        os.environ.update(PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE="1")
        sys.path.insert(0, str(copy))
        code = work.do(copy)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _pytest(tests: Iterable[str], *plugins: object) -> int:
    ignored = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is there already
    return int(pytest.main(["-x", "-p", "no:xdist", "-W", ignored, *tests], list(plugins)))


# ---- tests that reach a line ---------------------------------------------------------------------

EVERYTHING = (
    "browser/", "fuzz/", "golden/", "shelf/", "show/", "studies/", "typing/", "with_", "test_docs",
    "test_notebooks",
)  # fmt: skip
"""Tests that compare or draw everything at once: a property must find a fault."""


class Recorder:
    """A plugin that records the lines of each test that passes: of its cheapest case."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.failed: set[str] = set()
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        durations = tiers.Durations.read()
        cheapest: dict[str, tuple[float, pytest.Item]] = {}
        for item in items:
            test = item.nodeid.partition("[")[0]
            seconds = durations.of(item.nodeid) or 0.0
            if not tiers.group_of(item).startswith("spark"):
                cheapest[test] = min(
                    cheapest.get(test, (DEAREST_SECONDS, item)),
                    (seconds, item),
                    key=lambda at: at[0],
                )
        items[:] = [item for seconds, item in cheapest.values() if seconds < DEAREST_SECONDS]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        _forget()
        self.coverage.switch_context(item.nodeid)
        start = tiers.cpu_seconds()
        answer = yield
        self.seconds[item.nodeid] = tiers.cpu_seconds() - start
        self.coverage.switch_context("")
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def _forget() -> None:
    """Empty the caches of functions, which would hide lines from the tests after the first."""
    for name, module in list(sys.modules.items()):
        if name.startswith("neyman"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def recorded(file: str, record: Path, copy: Path) -> int:
    """Record which lines the tests of a file reach."""
    coverage = Coverage(data_file=record, source=[str(copy / "neyman")], config_file=False)
    recorder = Recorder(coverage)
    coverage.start()
    _pytest([f"tests/{file}", "--maxfail=1000"], recorder)
    coverage.stop()
    coverage.save()
    passed = {test: recorder.seconds[test] for test in recorder.seconds.keys() - recorder.failed}
    record.with_suffix(".json").write_text(json.dumps(passed))
    return 0


def measure() -> list[Path]:
    """Return the records of the lines that tests reach, after those that are missing or old."""
    folder = BUILD / "reached"
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCE.rglob("*.py"))
    records: list[Path] = []
    works: list[Work] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT / "tests"))
        if file.startswith(EVERYTHING):
            continue
        records.append(record := folder / f"{path.stem}.coverage")
        passed = record.with_suffix(".json")
        if not passed.exists() or passed.stat().st_mtime < max(newest, path.stat().st_mtime):
            record.unlink(missing_ok=True)
            works.append(Work(file, functools.partial(recorded, file, record), 10 * CPU_SECONDS))
    for number, (file, code) in enumerate(results(works), 1):
        print(f"{number:4} of {len(works)}  {file}" + (f"  {code}" if code else ""), flush=True)
    return [record for record in records if record.exists()]


class Reached:
    """The tests that reach a line, the cheapest first."""

    def __init__(self, records: list[Path]) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for record in records:
            passed = json.loads(record.with_suffix(".json").read_text())
            self.seconds |= passed
            data = CoverageData(str(record))
            data.read()
            for file in data.measured_files():
                for line, tests in data.contexts_by_lineno(file).items():
                    self.lines[file.rpartition("/neyman/")[2]][line].update(passed.keys() & tests)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the names of the tests, for pytest: of the line, or of the nearest above it."""
        by_line = self.lines[mutant.file]
        line = max((at for at in by_line if by_line[at] and at <= mutant.line), default=0)
        own = (f"/{mutant.package}/", Path(mutant.file).stem)

        def order(test: str) -> tuple[float, bool, float]:
            seconds = self.seconds[test]
            return max(round(seconds, 1), 0.1), not any(part in test for part in own), seconds

        tests = sorted(by_line.get(line, ()), key=order)
        spent = accumulate(self.seconds[test] for test in tests)
        return [test for test, until in zip(tests, spent, strict=True) if until < CPU_SECONDS / 3]


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


def judged(mutant: Mutant, tests: list[str], copy: Path) -> int:
    """Run tests on a source with the change, until one fails; then other cases of their files."""
    changed = copy / "changed"  # by the last mutant
    if changed.exists():
        file = changed.read_text()
        shutil.copy2(SOURCE / file, copy / "neyman" / file)  # with its time, as its bytecode says
    changed.write_text(mutant.file)
    source = mutant.applied((SOURCE / mutant.file).read_text(encoding="utf-8"))
    (copy / "neyman" / mutant.file).write_text(source, encoding="utf-8")
    sys.dont_write_bytecode = True
    reaching = Counter(test.partition("::")[0] for test in tests)
    files = [file for file, _ in reaching.most_common(8)]
    functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))
    for tier, batch in (
        ("test", tests[:8]),
        ("test", tests[8:]),
        ("fast", files),
        ("test", functions[:20]),
    ):
        if not batch:
            continue
        code = _pytest(["--tier", tier, *batch], Limit())
        if code == pytest.ExitCode.USAGE_ERROR:  # a file has no such test, or is not imported
            code = _pytest(["--tier", tier, *files], Limit())
        if code not in (0, 5):
            return code
    return 0


def main() -> None:
    """Draw mutants, run the tests on each, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=200)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with the processes that run
    reached = Reached(measure())
    log = BUILD / f"seed-{asked.seed}.jsonl"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    states: dict[Mutant, State] = {Mutant(*each["mutant"]): each["state"] for each in done}
    chosen = sample(asked.seed, asked.number)
    works: list[Work] = []
    for mutant in chosen:
        if _equivalent(mutant):
            states[mutant] = "equivalent"
        elif mutant not in states:
            run = functools.partial(judged, mutant, reached.tests(mutant))
            works.append(Work(mutant, run, CPU_SECONDS))
    for number, (mutant, code) in enumerate(results(works), len(chosen) - len(works) + 1):
        # Codes of pytest: a test failed, and a file of tests could not be imported.
        states[mutant] = "survived" if code == 0 else "killed" if code in (1, 2) else "undecided"
        said = mutant.described((SOURCE / mutant.file).read_text(encoding="utf-8"))
        with log.open("a") as stream:
            entry = {"mutant": mutant, "state": states[mutant], "change": said}
            stream.write(json.dumps(entry) + "\n")
        print(f"{number:4} {states[mutant]:9} {mutant.file}:{mutant.line}  {said}", flush=True)
    _summary(asked.seed, {mutant: states[mutant] for mutant in chosen})


def _equivalent(mutant: Mutant) -> bool:
    """Whether a comment above the line says that the fault changes no answer."""
    source = (SOURCE / mutant.file).read_text(encoding="utf-8")
    after = mutant.applied(source).splitlines()[mutant.line - 1]
    *above, line = source.splitlines()[: mutant.line]
    comments = takewhile(lambda text: text.lstrip().startswith("#"), reversed(above))
    marks = (SAME.search(text) for text in comments)
    return any(line.replace(*mark.groups()) == after for mark in marks if mark)


def _summary(seed: int, states: dict[Mutant, State]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in states.items():
        counts[mutant.package][outcome] += 1
    titles = ("killed", "survived", "undecided", "equivalent")
    print(f"\nseed {seed}\n{'package':18}" + "".join(f"{title:>11}" for title in titles))
    for package, by_state in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{package:18}" + "".join(f"{by_state[title]:11}" for title in titles))


if __name__ == "__main__":
    main()
