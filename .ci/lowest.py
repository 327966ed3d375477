"""Print constraints: the lowest version that pyproject.toml declares for each dependency."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)")


def lowest(project: dict) -> dict[str, str]:
    """The lowest version of each dependency of the base and of ``release``, by its name."""
    lines = [*project["dependencies"], *project["optional-dependencies"]["release"]]
    versions: dict[str, str] = {}
    for line in lines:
        found = REQUIREMENT.fullmatch(line)
        if found is None:
            raise ValueError(f"{line!r} declares no lowest version; write it as name>=version")
        versions[found[1]] = found[2]
    return versions


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "pyproject.toml"
    declared = lowest(tomllib.loads(path.read_text(encoding="utf-8"))["project"])
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(declared.items()))
