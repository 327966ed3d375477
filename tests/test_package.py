"""What a package index and a reader see: metadata, the long description, and versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import neyman

ROOT = Path(__file__).parents[1]
FILE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = FILE["project"]
RELATIVE = re.compile(r"\]\((?![a-z]+:)[^)]*\)|(?:src|href)=\"(?![a-z]+:)[^\"]*\"")


def long_description(text: str) -> str:
    """The README as the build writes it into the metadata."""
    for change in FILE["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_the_long_description_has_no_relative_link_or_image():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert RELATIVE.search(readme)
    assert not RELATIVE.findall(long_description(readme))


@pytest.mark.parametrize(("text", "left"), [
    ("See [the page](docs/a.md#b) and [home](https://example.org/).", None),
    ("![A picture](docs/a.svg)\nText", "Text"),
    ("[![Badge](docs/a.svg)](docs/a.md)\nText", "Text"),
    ('<img alt="A" src="docs/a.png" width="200">\nText', "Text"),
    ('<img alt="A" src="https://example.org/a.png">\nText', '<img alt="A" src="https://example'),
])  # fmt: skip
def test_the_long_description_has_the_text_of_a_link_and_no_local_image(text, left):
    wanted = "See the page and [home](https://example.org/)." if left is None else left
    assert long_description(text).startswith(wanted)


def test_every_file_states_the_same_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert PROJECT["version"] == neyman.__version__
    assert re.findall(r"^version: (.*)$", citation, re.M) == [neyman.__version__]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(neyman.__version__)}\b", changes, re.M)


def test_every_dependency_of_a_release_declares_a_lowest_version():
    command = [sys.executable, ROOT / ".ci" / "lowest.py"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "numpy==2" in lines
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["release"]]
    assert len(lines) == len({re.split(r"[\[>]", line)[0] for line in declared})


def test_the_constraints_pin_every_dependency_and_name_no_host():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", pin) for pin in pins)
    pinned = {pin.partition("==")[0].lower().replace("_", "-") for pin in pins}
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["release"], *extras["spark"], *extras["postgres"]]
    names = {re.split(r"[\[><=]", line)[0].lower() for line in needed} - {"neyman"}
    assert names <= pinned
    assert "://" not in text
