"""After `pip install neyman` alone: accounting works, and all else names the extra that it needs.

The environment has Neyman and the packages that its metadata requires without an extra. Its files
are links to those of the environment that runs the tests, so that it needs no network. NEYMAN_BASE
names the Python of another one, such as one that pip has made (.ci/run).
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
import pytest
import typer
from packaging.requirements import Requirement

import neyman
from neyman.cli import app
from neyman.extras import EXTRAS
from neyman.publishing import toml_text
from plans import SMALL

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
QUESTION = {
    "about": "mechanism", "kind": "discrete", "sigma": 2, "steps": 10, "ask": "risk", "level": 0.05,
    "prior": 0.5, "delta": 1e-6,
}  # fmt: skip


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(lines: list[str]) -> dict[str, metadata.Distribution]:
    """The distributions that requirements bring, with all that these require, without extras."""
    by_key: dict[str, metadata.Distribution] = {}
    left = list(lines)
    while left:
        line = Requirement(left.pop())
        applies = line.marker is None or line.marker.evaluate({"extra": ""})
        if applies and normal(line.name) not in by_key:
            by_key[normal(line.name)] = metadata.distribution(line.name)
            left += by_key[normal(line.name)].requires or []
    return by_key


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the base install alone."""
    if "NEYMAN_BASE" in os.environ:
        return (ROOT / os.environ["NEYMAN_BASE"]).absolute()
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "neyman").symlink_to(ROOT / "src" / "neyman")
    for distribution in required(PROJECT["dependencies"]).values():
        for name in {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}:
            (packages / name).symlink_to(distribution.locate_file(name))
    return folder / "bin" / "python"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(toml_text(SMALL))
    (tmp_path / "people.csv").write_text("race\nwhite\nblack\n")
    return tmp_path


def run(base: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a Python of the base install says, away from the sources."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [base, "-W", "error", *map(str, arguments)], cwd=cwd, env=env, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the command line, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)  # pyright: ignore[reportArgumentType]
        else:
            yield (*above, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))  # pyright: ignore[reportArgumentType]
# What each command needs to begin. A new command gets its required parameters by their names.
GIVEN = {
    "plan": "plan.toml", "data": "people=people.csv", "ledger": "ledger.db", "out": "out",
    "receipt": "out", "folder": "out", "dataset": "people@1", "to": "team", "cap": "1",
    "file": "plan.toml", "who": "a person", "why": "a slip", "population": "people@all",
    "entry": "1", "path": "key.pem", "rows": "rows.parquet", "sql": "SELECT COUNT(*) FROM people",
    "tables": "ages.csv", "method": "method.toml",
}  # fmt: skip
ALONE = {
    ("account",): ["Gaussian(sigma=2) * 10"],
    ("calibrate",): ["Gaussian(x) * 10", "--gdp", "1"],
}
"""The commands that the base install is for, with their arguments."""


def given(command: click.Command) -> list[str]:
    words: list[str] = []
    for parameter in command.params:
        if parameter.required and parameter.name is not None:
            value = GIVEN[parameter.name]
            option = parameter.param_type_name == "option"
            words += [parameter.opts[0], value] if option else [value]
    return words


@pytest.mark.parametrize("words", ALONE, ids=" ".join)
def test_accounting_works(base: Path, place: Path, words: tuple[str, ...]):
    done = run(base, "-m", "neyman", *words, *ALONE[words], "--json", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


# `plan schema` needs pydantic alone, which the newest typer brings.
LIGHT = {*ALONE, ("plan", "schema")}
NEEDY = [*(words for words in COMMANDS if words not in LIGHT), ("calibrate", "plan.toml")]


@pytest.mark.parametrize("words", NEEDY, ids=" ".join)
def test_a_command_that_needs_an_extra_names_it_and_does_nothing(base, place, words):
    command = COMMANDS.get(words)
    more = ["--gdp", "1"] if command is None else given(command)
    if words == ("explore",):
        more = ["plan.toml", "--no-browser"]
    as_json = command is None or any(each.name == "as_json" for each in command.params)
    more += ["--json"] if as_json else []
    before = sorted(place.iterdir())
    done = run(base, "-m", "neyman", *words, *more, cwd=place)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pip install 'neyman[release]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sorted(place.iterdir()) == before
    content = json.loads(done.stdout) if as_json else {"exit_code": 2, "error": done.stderr}
    assert content["exit_code"] == 2
    assert "pip install 'neyman[release]'" in content["error"]


def test_every_command_has_its_help(base: Path, tmp_path: Path):
    code = f"""
from neyman.cli.main import app
for words in {[*COMMANDS]}:
    app([*words, "--help"], prog_name="neyman", standalone_mode=False)
"""
    done = run(base, "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for words in COMMANDS:
        assert "Usage: neyman " + " ".join(words) + " " in done.stdout


def test_the_explorer_of_a_mechanism_opens_and_ends_in_words(base: Path, tmp_path: Path):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with subprocess.Popen(
        [base, "-u", "-m", "neyman", "explore", "--no-browser"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().split()[-1]
            cookies = urllib.request.HTTPCookieProcessor()
            opener = urllib.request.build_opener(cookies)
            with opener.open(address, timeout=60) as page:
                assert b"<html" in page.read()
            question = urllib.request.Request(
                address.partition("?")[0] + "answer",
                data=json.dumps({"page": "p", "number": 1, "question": QUESTION}).encode(),
                headers={"Content-Type": "application/json", "Origin": address.partition("/?")[0]},
            )
            with opener.open(question, timeout=60) as answer:
                assert 0 < json.load(answer)["answer"]["tradeoff"]["y"] < 1
        finally:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "Traceback" not in said


def test_every_module_can_be_imported_or_names_its_extra(base: Path, tmp_path: Path):
    code = """
import importlib, pkgutil, neyman
for module in pkgutil.walk_packages(neyman.__path__, "neyman.", lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            print(module.name, "|", error)
"""
    done = run(base, "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    # A tensor or a network is needed to reach these files; `neyman.torch` names the extra.
    of_torch = {name for name, error in answer.items() if error == "No module named 'torch'"}
    below = ("neyman.noise.", "neyman.analysis.training.", "neyman.accounting.integrations.")
    assert all(name.startswith(below) for name in of_torch)
    assert all("pip install 'neyman[" in answer[name] for name in answer.keys() - of_torch)
    light = (
        "neyman.numerics", "neyman.curves.losses", "neyman.curves.profiles",
        "neyman.curves.tradeoff", "neyman.mechanisms", "neyman.accounting.semantics",
    )  # fmt: skip
    assert [name for name in answer if name.startswith(light)] == []


def test_every_public_name_is_there_or_names_its_extra(base: Path, tmp_path: Path):
    code = """
import neyman
for name in dir(neyman):
    try:
        getattr(neyman, name)
    except ImportError as error:
        print(name, "|", error)
"""
    done = run(base, "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    of_releases = (
        "neyman.publishing.release", "neyman.publishing.plan.", "neyman.ledger", "neyman.api",
        "neyman.analysis.training", "neyman.torch", "neyman.estimate", "neyman.analysis.estimators",
        "neyman.analysis.hypothesis_tests",
    )  # fmt: skip
    light = {  # descriptions, which need no ledger
        "neyman.publishing.plan.sections",
        "neyman.analysis.estimators.estimate",
        "neyman.analysis.hypothesis_tests.released_test",
    }
    homes: list[tuple[str, str]] = []
    for node in ast.parse(Path(neyman.__file__).with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            homes += [(n.name, node.module or f"neyman.{n.name}") for n in node.names]
    needy = {name for name, home in homes if home.startswith(of_releases) and home not in light}
    assert set(answer) == needy
    assert all("pip install 'neyman[release]'" in said for said in answer.values())


def test_every_package_of_an_extra_is_known_by_the_extra_that_installs_it():
    of = metadata.packages_distributions()
    for extra in ("release", "spark", "postgres", "dp-accounting"):
        lines = map(Requirement, PROJECT["optional-dependencies"][extra])
        names = {normal(line.name) for line in lines} - {"neyman", "ibis-framework"}
        own = {package for package, result in EXTRAS.items() if result == extra} - {"ibis"}
        assert {normal(name) for package in own for name in of[package]} == names
