"""The structure is what the pages say: names, layers, packages, doors, and the picture."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import neyman as ny

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/neyman"
DESIGN = (ROOT / "docs/design.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text("utf-8")
CODE = {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_the_contract_names_every_public_name_and_no_other():
    """In the section of names, before those of modules, and the nouns above it."""
    section = DESIGN.partition("## Names")[2].partition("What fewer programs need")[0]
    table = DESIGN.partition("## Five nouns")[2].partition("## ")[0]
    nouns = re.findall(r"^\| `(\w+)` \|", table, re.M)
    reference = (ROOT / "docs/api/measuring.md", ROOT / "docs/api/publishing.md")
    below = re.findall(
        r"class:: neyman(?:\.\w+)+\.(\w+)\n", "".join(p.read_text() for p in reference)
    )
    named = {*re.findall(r"`(\w+)`", section), *nouns, "Bound"}
    assert named - set(below) == set(dir(ny)) - set(below)


def test_the_layers_of_the_contract_are_those_that_the_linter_checks():
    """In the same order, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    checked = [sorted(re.findall(r"\w+", layer)) for layer in layers]
    block = DESIGN.partition("## Layers")[2].partition("```\n")[2].partition("```")[0]
    columns = [re.split(r"\s{3,}", line)[0] for line in block.splitlines()]
    references = [sorted(re.findall(r"(\w+)(?:/|\.py)", column)) for column in columns]
    assert references == [
        layer for layer in checked if not {"__main__", "exports", "extras"} & {*layer}
    ]


def test_each_package_has_a_paragraph_and_no_other_has():
    """On the page of the architecture, by its name in bold."""
    assert set(re.findall(r"\*\*`(\w+)`\*\*", ARCHITECTURE)) == CODE


def test_each_part_of_a_package_is_named_in_its_paragraph():
    """The folders below a package, by their names."""
    for package in CODE - {"ledger"}:
        paragraph = re.split(r"\n\*\*`", ARCHITECTURE.partition(f"**`{package}`**")[2])[0]
        folders = {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}
        assert folders <= {*re.findall(r"`(\w+)`", paragraph)}, package


def test_each_file_that_the_architecture_names_is_there():
    """Written as a path, or as a module of the package that the paragraph is about."""
    for path in re.findall(r"`([\w/]+\.py)`", ARCHITECTURE):
        assert (SOURCE / path).exists(), path


def test_each_file_that_a_certificate_or_the_glossary_names_is_there():
    """In the line that says where the code is, and in the last column."""
    for page in (ROOT / "docs/certificates").glob("*.md"):
        match = re.search(r"^Code: (.*?)\.$", page.read_text("utf-8"), re.M | re.S)
        folder = ""
        for path in re.findall(r"`([\w./]+)`", match[1] if match else ""):
            folder = str(Path(path).parent) if "/" in path else folder
            assert (SOURCE / path).exists() or (SOURCE / folder / path).exists(), (page.name, path)
    for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines():
        for path in re.findall(r"`([\w/]+\.py)` \|$", line):
            assert (SOURCE / path).exists(), path


@cache
def imports_of(path):
    """The pairs (module, name) that a file imports from neyman; a whole module has no name."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    pairs = [(n.module, a.name) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
    modules = [(a.name, "") for n in nodes if isinstance(n, ast.Import) for a in n.names]
    return {
        (module, name) for module, name in pairs + modules if re.match(r"neyman\b", module or "")
    }


def folder_of(module):
    path = ROOT / "src" / module.replace(".", "/")
    return path if path.is_dir() else path.parent


def test_a_door_has_names_that_another_folder_imports_or_a_page_names():
    """And no package has a module of the same name, which would take its place.

    The command line imports a name where it needs it, as `publishing.errors`.
    """
    texts = ("docs/**/*.md", "docs/site/*.py", "examples/*.py", "src/neyman/cli/*.py")
    pages = "".join(page.read_text("utf-8") for text in texts for page in ROOT.glob(text))
    code = {path: imports_of(path) for path in SOURCE.glob("**/*.py")}
    for package in CODE:
        door = ast.parse((SOURCE / package / "__init__.pyi").read_text("utf-8")).body
        for node in (node for node in door if isinstance(node, ast.ImportFrom)):
            home = (
                f"neyman.{package}.{node.module or ''}".rstrip(".") if node.level else node.module
            )
            folder = folder_of(home)
            for name in (each.name for each in node.names):
                outside = any(
                    (home, name) in pairs for path, pairs in code.items() if path.parent != folder
                )
                in_code = rf"(`|[\w)]\.|import [^\n]*\b){name}\b"
                assert outside or re.search(in_code, pages), name
                module = SOURCE / package / name
                clash = module.is_dir() or module.with_suffix(".py").is_file()
                assert clash == (node.module is None), name


def test_tests_import_through_the_doors():
    """`neyman`, and the names of each package's stub; other imports are in `inner_imports.txt`."""
    listed = (ROOT / "tests/inner_imports.txt").read_text("utf-8").splitlines()
    allowed = {line.partition(": ")[0] for line in listed}
    assert all(line.partition(": ")[2] for line in listed), "each file has its reason"
    deep = set()
    for path in (ROOT / "tests").glob("**/*.py"):
        for module, name in imports_of(path):
            _, _, rest = module.partition(".")
            door = import_module(module).__all__ if rest in CODE else [name]
            if "." in rest or name.startswith("_") or name not in door:
                deep.add(str(path.relative_to(ROOT / "tests")))
    assert deep == allowed
