"""The tree keeps its shape: few delayed imports, folders one can read at a glance, clear names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import neyman

PACKAGE = Path(neyman.__file__).parent
MOST_DELAYED = 10  # outside the command line, which delays imports to answer --help quickly
MOST_FILES = 22  # in one folder
MOST_TYPE_CHECKS = 9  # calls of isinstance in one file
# The one file over this limit: any Python object may arrive there.
READS_USER_INPUT = {"numerics/check.py"}
MOST_REPEATED = 4  # file names: two files of one name are one idea, as the two stores of a ledger


def delayed(path: Path) -> list[str]:
    """Imports of the package's own modules inside functions of a file."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return [
        f"{path.relative_to(PACKAGE)}:{line}"
        for line in sorted(
            {
                node.lineno
                for function in functions
                for node in ast.walk(function)
                if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neyman"))
                or (
                    isinstance(node, ast.Import)
                    and any(name.name.startswith("neyman") for name in node.names)
                )
            }
        )
    ]


def type_checks(path: Path) -> int:
    """Number of calls of isinstance in a file."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_few_imports_are_delayed_outside_the_command_line():
    files = [path for path in PACKAGE.rglob("*.py") if "cli" not in path.parts]
    results = [place for path in sorted(files) for place in delayed(path)]
    assert len(results) <= MOST_DELAYED, results


def test_no_folder_has_more_than_22_files():
    folders = Counter(path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    assert {str(name): files for name, files in folders.items() if files > MOST_FILES} == {}


def test_at_most_four_file_names_repeat():
    """Public modules have the names that users give, and do not count."""
    public = [PACKAGE / "audit.py", PACKAGE / "estimate.py"]
    paths = [path for path in PACKAGE.rglob("*.py") if path not in public]
    names = Counter(path.name for path in paths if path.name != "__init__.py")
    repeated = sorted(name for name, files in names.items() if files > 1)
    assert len(repeated) <= MOST_REPEATED, repeated


def texts(tree: ast.Module) -> Iterator[str]:
    """Texts of a file, without what documents it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_markup_is_written_in_one_place():
    """`elements` escapes every text. Only the frames of whole pages are texts with tags."""
    tags = re.compile(r"</|<!|<\w+ [\w-]+=|<(br|hr|img|p)\b|&(amp|lt|gt|quot|#\w+);")
    results = {"tags": set[str](), "escape": set[str](), "Element": set[str]()}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(PACKAGE).as_posix()
        if any(map(tags.search, texts(tree))):
            results["tags"].add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "html":
                results["escape"].add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Element"):
                results["Element"].add(name)
    assert results == {
        "tags": {"elements.py", "display/report/html.py", "display/explorer/widget.py"},
        "escape": {"elements.py"},
        "Element": {"elements.py"},
    }


def test_no_script_makes_markup_from_a_text():
    """The two lines that do have no text of a plan: an empty picture, and the explorer's page."""
    makes = re.compile(r".*(?:innerHTML|outerHTML|HTML\(|document\.write|\beval\(|Function\().*")
    lines = [
        line.strip() for path in PACKAGE.rglob("*.js") for line in makes.findall(path.read_text())
    ]
    assert sorted(lines) == ['holder.innerHTML = "<svg></svg>";', "page.innerHTML = PAGE;"]


def test_no_two_test_files_share_a_name():
    """Pytest imports files of tests by their name, all into one process."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py"))
    assert [name for name, files in names.items() if files > 1] == ["conftest.py"]


def test_few_files_check_types_at_run_time():
    results = {
        str(path.relative_to(PACKAGE)): checks
        for path in PACKAGE.rglob("*.py")
        if (checks := type_checks(path)) > MOST_TYPE_CHECKS
    }
    assert results.keys() == READS_USER_INPUT, results


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
