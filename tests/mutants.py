"""Plant faults in the code, one at a time, and count those that the tests find (`make mutants`).

A fault changes one operator, number, direction of rounding, check, or call. The seed draws the same
number of faults in each package. For each fault the tests that reach its line run, the cheapest
first, until one fails. A fault is killed if a test fails, and undecided at the limit of CPU time:
then it counts as not killed. `equivalent_mutants.json` lists faults that change no answer, each
with the reason. A run goes on where it was stopped, and prints the counts by package.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "neyman"
BUILD = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
PACKAGES = (
    "accounting", "auditing", "canonical", "consistency", "divergences", "engines", "estimators",
    "hypothesis_tests", "ledger", "losses", "matrix_mechanism", "mechanisms", "noise", "numerics",
    "optimality", "plan", "profiles", "release", "semantics", "shuffling", "stability", "storage",
    "tables", "tradeoff", "training", "tuning",
)  # fmt: skip
"""The certified core, the noise, the ledger, and the release."""
CPU_SECONDS = 60
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

State = Literal["killed", "survived", "undecided"]


class Mutant(NamedTuple):
    """A change of one place: of the text from ``start`` to ``end`` on a line of a file."""

    file: str
    line: int
    start: int
    end: int
    text: str

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]

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
        files = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / package).rglob("*.py"))
        every = sorted({mutant for file in files for mutant in mutants(file)})
        share = number // len(PACKAGES) + (index < number % len(PACKAGES))
        result += draw.sample(every, min(share, len(every)))
    return result


# ---- tests that reach a line ---------------------------------------------------------------------


def measure() -> Path:
    """Run the tests of a contributor once, and return the record of the lines that each reaches."""
    record = BUILD / "reached.coverage"
    if not record.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        settings = BUILD / "coverage.ini"
        settings.write_text(
            f"[run]\nsource = {SOURCE}\ndynamic_context = test_function\nbranch = false\n"
            f"data_file = {record}\nparallel = true\nrelative_files = true\n"
        )
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
        run = [*command, "--tier", "test", "-k", "not spark", *IGNORED]
        subprocess.run(run, cwd=ROOT, env=_environment(ROOT / "src"), check=False)
        combine = [sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", str(BUILD)]
        subprocess.run(combine, cwd=ROOT, check=True)
    return record


IGNORED = ("--ignore=tests/golden", "--ignore=tests/browser", "--ignore=tests/test_docs.py")
"""Tests that compare everything at once: a property must find a fault."""


class Reached:
    """The tests that reach a line, the cheapest first."""

    def __init__(self, record: Path) -> None:
        self.record = sqlite3.connect(record)
        times = json.loads((ROOT / "tests" / "durations.json").read_text())
        self.nodes: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for file, tests in times.items():
            for test, seconds in tests.items():
                least = min(seconds.values()) if isinstance(seconds, dict) else seconds
                name = f"{Path(file).stem}.{test}"
                self.nodes[name].append((least, f"tests/{file}::{test}"))

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the names of the tests, for pytest."""
        from coverage.numbits import numbits_to_nums

        rows = self.record.execute(
            "SELECT context.context, line_bits.numbits FROM line_bits"
            " JOIN context ON context.id = context_id JOIN file ON file.id = file_id"
            " WHERE file.path LIKE ?",
            (f"%src/neyman/{mutant.file}",),
        )
        names = [name for name, bits in rows if mutant.line in numbits_to_nums(bits)]
        nodes = {
            node for name in names for node in self.nodes.get(".".join(name.split(".")[-2:]), ())
        }
        return [node for _, node in sorted(nodes)]


def _environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def state(mutant: Mutant, tests: list[str]) -> State:
    """Run tests on a copy of the source with the change, until one fails or the time is over."""
    with tempfile.TemporaryDirectory(prefix="neyman-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "neyman" / mutant.file
        file.write_text(mutant.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "--tier", "test", "-p", "no:xdist", *tests]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(copy),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)),  # noqa: PLW1509
        )
        try:
            code = process.wait(10 * CPU_SECONDS)  # a test that waits for ever
        except subprocess.TimeoutExpired:
            code = -signal.SIGXCPU
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code in (0, 5):
        return "survived"
    return "undecided" if code < 0 else "killed"


def main() -> None:
    """Draw mutants, run the tests on each, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=200)
    asked = parser.parse_args()
    reached = Reached(measure())
    log = BUILD / f"seed-{asked.seed}.jsonl"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    states: dict[Mutant, State] = {Mutant(*each["mutant"]): each["state"] for each in done}
    chosen = sample(asked.seed, asked.number)
    for number, mutant in enumerate(chosen, 1):
        if mutant in states:
            continue
        tests = reached.tests(mutant)
        states[mutant] = state(mutant, tests) if tests else "survived"
        said = mutant.described((SOURCE / mutant.file).read_text(encoding="utf-8"))
        entry = {"mutant": mutant, "state": states[mutant], "tests": len(tests), "change": said}
        with log.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
        print(f"{number:4} {states[mutant]:9} {mutant.file}:{mutant.line}  {said}", flush=True)
    _summary(asked.seed, {mutant: states[mutant] for mutant in chosen})


def _summary(seed: int, states: dict[Mutant, State]) -> None:
    equivalent = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in states.items():
        said = mutant.described((SOURCE / mutant.file).read_text(encoding="utf-8"))
        same = outcome != "killed" and said in equivalent.get(mutant.file, {})
        counts[mutant.package]["equivalent" if same else outcome] += 1
    titles = ("killed", "survived", "undecided", "equivalent")
    print(f"\nseed {seed}\n{'package':18}" + "".join(f"{title:>11}" for title in titles))
    for package, by_state in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{package:18}" + "".join(f"{by_state[title]:11}" for title in titles))


if __name__ == "__main__":
    main()
