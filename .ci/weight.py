"""Refuse a project that is heavier than `weight.toml` allows: run it in the project's root.

    python .ci/weight.py            compare each number with its limit
    python .ci/weight.py --lower    write what was reached, where it is below the limit

The unit of code is the token: a name, an operator, a number, or a string that is no docstring. So
denser lines do not help. Documentation counts in words. Branches are counted per function.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

LIMITS = Path("weight.toml")
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
MOST_BRANCHES = 20


def tokens(text: str) -> int:
    """Count the tokens of a file of Python outside docstrings."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(one.type in COUNTED and one.start[0] not in skipped for one in found)


def branches(function: ast.AST) -> int:
    """Count 1 and each branch of a function, without those of functions inside it."""
    count, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, SCOPES):
            continue
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += len(node.ifs)
        waiting.extend(ast.iter_child_nodes(node))
    return count


def complex_functions(text: str) -> int:
    """Count the functions with more than 20 branches."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, functions))
    return sum(branches(node) > MOST_BRANCHES for node in nodes)


def weight() -> Iterator[tuple[str, str, int]]:
    """Yield the section, the name, and the value of each number of `weight.toml`."""
    source = Path("src/neyman")
    packages: dict[str, list[str]] = {"top": []}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).parts
        package = parts[0] if len(parts) > 1 else "top"
        packages.setdefault(package, []).append(path.read_text("utf-8"))
    for package, texts in sorted(packages.items()):
        yield "tokens", package, sum(map(tokens, texts))
    yield "tokens", "tests", sum(tokens(p.read_text("utf-8")) for p in Path("tests").rglob("*.py"))
    pages = [*Path("docs").rglob("*.md"), Path("CONTRIBUTING.md")]
    yield "words", "documentation", sum(len(page.read_text("utf-8").split()) for page in pages)
    for package, texts in sorted(packages.items()):
        yield "complex_functions", package, sum(map(complex_functions, texts))


def main() -> int:
    """Print each number above its limit, and return 1 if there is one."""
    text = LIMITS.read_text("utf-8")
    limits = tomllib.loads(text)
    head = text.partition("[")[0]
    above, lines, last = 0, [head.rstrip()], ""
    for section, name, value in weight():
        limit = limits[section].get(name, 0)
        if value > limit:
            above += 1
            print(f"weight.toml: {section}.{name} is {value}, above its limit {limit}")
        lines += [f"\n[{section}]"] * (section != last)
        lines.append(f"{name} = {min(value, limit)}")
        last = section
    if "--lower" in sys.argv:
        LIMITS.write_text("\n".join(lines) + "\n", "utf-8")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
