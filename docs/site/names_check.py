"""Check that names in the code are nouns of the field, not participles that say nothing.

A name such as `found` says that a value exists. `mask`, `posterior`, or `account` says what it
is. The check reads the code with `ast`, so strings, comments, and JSON keys are free.

Use: `python docs/site/names_check.py`, from the root of the repository. `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "reproductions", "tests", "benchmarks", "examples", "docs/site")
ALONE = {"either", "once", "stated"}  # refused as whole names only
WORDS = {"drawn", "found", "kept", "learned", "made", "seen", "told", "whole"}  # in any part

EXCEPTIONS = {
    ("src/neyman/accounting/calibrate.py", "whole"): "a public argument of `calibrate`",
    ("src/neyman/mechanisms/base.py", "made_of"): "a public method",
    ("src/neyman/mechanisms/dp_sgd.py", "made_of"): "a public method",
    ("src/neyman/mechanisms/federated.py", "made_of"): "a public method",
    ("src/neyman/mechanisms/last_iterate.py", "made_of"): "a public method",
    (
        "src/neyman/publishing/planning/allocation.py",
        "made_of",
    ): "a key of the JSON that `plan split` prints",
}
"""File and name of each exception, and its reason."""


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each definition, argument, and assigned variable."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield 0, node.asname
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.lineno, node.name


def refused(name: str) -> bool:
    """Return True if a name is, or contains, a word that says nothing. Tests are sentences."""
    if name.startswith("test_"):
        return False
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_")
    return plain in ALONE or not WORDS.isdisjoint(plain.split("_"))


def problems() -> list[str]:
    """Return one line for each refused name of a file or in a file."""
    lines = []
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        if refused(path.stem.removeprefix("test_")):
            lines.append(f"{relative}: rename the file by what it holds")
        for number, name in sorted(set(names(ast.parse(path.read_text(encoding="utf-8"))))):
            if refused(name) and (relative, name) not in EXCEPTIONS:
                lines.append(f"{relative}:{number}: {name}: name the value by what it is")
    return lines


if __name__ == "__main__":
    print(*(listed := problems()), sep="\n")
    sys.exit(bool(listed))
