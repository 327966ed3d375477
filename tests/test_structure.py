"""The tree keeps its shape: few delayed imports, none in strings, and names that exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import neyman

PACKAGE = Path(neyman.__file__).parent
MOST_DELAYED = 16  # outside the command line, which answers --help quickly; 4 are for torch
IMPORTS_BY_STRING = {
    "exports.py": "a public name is imported at its first use; the stub types it",
    "mechanisms/registry.py": "a stored type is imported at its first use; the results are typed",
}
OTHERS = {
    "BatchMemoryManager", "CHECK", "PLDAccountant", "TRY_CAST", "True", "calibrate_dp_mechanism",
    "enable_progress_bar", "eps_error", "font", "load_checkpoint", "make_private", "nn", "ny",
    "pg_catalog", "size", "zoneinfo",
}  # fmt: skip
"""Names of Python, SQL, and other libraries that docstrings put into backticks."""
MOST_REPEATED = 4  # file names: two files of one name are one idea, as the two stores of a ledger


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """All nodes of each file of the package."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    return {p.relative_to(PACKAGE).as_posix(): list(ast.walk(tree)) for p, tree in trees.items()}


def is_own_import(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith("neyman")
    return isinstance(node, ast.Import) and any(n.name.startswith("neyman") for n in node.names)


def test_few_imports_are_delayed_outside_the_command_line():
    results = {
        f"{file}:{node.lineno}"
        for file, every in nodes().items()
        if not file.startswith("cli/")
        for function in every
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if is_own_import(node)
    }
    assert len(results) <= MOST_DELAYED, results


def test_no_own_module_is_imported_by_a_string():
    by_string = {
        file
        for file, every in nodes().items()
        for node in every
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and not (isinstance(node.args[0], ast.Constant) and "neyman" not in node.args[0].value)
    }
    # dp_accounting and its modules: one function imports them, and names the extra.
    assert by_string == {*IMPORTS_BY_STRING, "accounting/dp_accounting/privacy_loss.py"}


def names(node: ast.AST) -> Iterator[str]:
    """Names that a node defines or uses, and those in a string that is a name."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            yield name
        case ast.alias(name=name) | ast.keyword(arg=str(name)):
            yield from name.split(".")
        case ast.Constant(value=str(text)) if re.fullmatch(r"[\w./-]+( [\w./-]+)?", text):
            yield from re.findall(r"\w+", text)


def test_each_name_in_backticks_in_a_docstring_exists():
    known, shown = set(OTHERS), list[tuple[str, str]]()
    for file, every in nodes().items():
        known |= {*Path(file).with_suffix("").parts}
        for node in every:
            known |= {*names(node)}
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                words = re.findall(r"(?<!`)`{1,2}([A-Za-z_][\w.]*)`{1,2}(?!`)", text)
                shown += [(file, word) for word in words]
    assert [(file, word) for file, word in shown if not {*word.split(".")} <= known] == []


def test_at_most_four_file_names_repeat():
    public = [PACKAGE / f"{name}.py" for name in ("audit", "estimate", "opacus", "query")]
    paths = [path for path in PACKAGE.rglob("*.py") if path not in public]
    names = Counter(path.name for path in paths if path.name != "__init__.py")
    repeated = sorted(name for name, files in names.items() if files > 1)
    assert len(repeated) <= MOST_REPEATED, repeated


def test_markup_is_written_in_one_place():
    tags = re.compile(r"</|<!|<\w+ [\w-]+=|<(br|hr|img|p)\b|&(amp|lt|gt|quot|#\w+);")
    results = {"tags": set[str](), "escape": set[str](), "Element": set[str]()}
    for file, every in nodes().items():
        documents = {id(node.value) for node in every if isinstance(node, ast.Expr)}
        for node in every:
            if isinstance(node, ast.Constant) and id(node) not in documents:
                if isinstance(node.value, str) and tags.search(node.value):
                    results["tags"].add(file)
            elif isinstance(node, ast.ImportFrom) and node.module == "html":
                results["escape"].add(file)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Element"):
                results["Element"].add(file)
    assert results == {
        "tags": {"elements.py", "display/report/html.py", "display/explorer/widget.py"},
        "escape": {"elements.py"},
        "Element": {"elements.py"},
    }


def test_no_script_makes_markup_from_a_text():
    makes = re.compile(r".*(?:innerHTML|outerHTML|HTML\(|document\.write|\beval\(|Function\().*")
    lines = [
        line.strip() for path in PACKAGE.rglob("*.js") for line in makes.findall(path.read_text())
    ]
    assert sorted(lines) == ['holder.innerHTML = "<svg></svg>";', "page.innerHTML = PAGE;"]


def test_no_two_test_files_share_a_name():
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py"))
    assert [name for name, files in names.items() if files > 1] == ["conftest.py"]


def test_no_test_asserts_how_long_its_work_takes():
    """No assertion compares a difference of clock readings with an upper limit.

    Deadlines of what waits for another process are no such limits.
    """
    clocks = r"(process_time|perf_counter|thread_time|time\.time|monotonic)\(\)"
    late = [
        f"{path.name}:{number}"
        for path in sorted(Path(__file__).parent.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"assert .*{clocks} - [\w.]+ <", line)
    ]
    assert late == []


def test_a_project_above_a_limit_of_its_weight_is_refused_with_the_number(tmp_path):
    for name in ("src/neyman/noise", "tests", "docs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "CONTRIBUTING.md").write_text("three short words")
    (tmp_path / "src/neyman/noise/one.py").write_text('"""Say this."""\nx = 1; y = "a" "b"\n')
    limits = "# Why.\n[tokens]\nnoise = {}\ntests = 0\ntop = 0\n[words]\ndocumentation = 9\n"
    limits += "[complex_functions]\n"

    def check(most: int, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "weight.toml").write_text(limits.format(most))
        command = [sys.executable, PACKAGE.parents[1] / ".ci/weight.py", *options]
        return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)

    done = check(7)
    assert (done.returncode, done.stdout) == (
        1, "weight.toml: tokens.noise is 8, above its limit 7\n"
    )  # fmt: skip
    assert check(9).returncode == 0
    assert "noise = 9" in (tmp_path / "weight.toml").read_text()
    assert check(9, "--lower").returncode == 0
    assert tomllib.loads((tmp_path / "weight.toml").read_text())["tokens"]["noise"] == 8
