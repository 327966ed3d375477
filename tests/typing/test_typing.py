"""The types that users see, and that a wrong use is a type error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def errors(folder: Path, code: str) -> list[dict[str, Any]]:
    """The errors that pyright finds in a file of this code, against this checkout's package."""
    (folder / "code.py").write_text(code)
    settings = folder / "pyrightconfig.json"
    settings.write_text(json.dumps({"extraPaths": [str(ROOT / "src")]}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", settings], check=False, capture_output=True, text=True, timeout=280
    )
    content = json.loads(done.stdout)
    assert content["summary"]["filesAnalyzed"] == 1
    return [one for one in content["generalDiagnostics"] if one["severity"] == "error"]


def test_the_public_api_has_the_types_that_are_promised(tmp_path):
    pytest.importorskip("pyright")
    assert errors(tmp_path, (HERE / "public_api.py").read_text()) == []


WRONG = """\
import neyman as ny

ny.Gaussian(1).tradeoff().epsilon(delta="small")
ny.gdp(1) < ny.gdp(2) + 1
ny.gdp(1).epsilon(1e-6) + 1
ny.posterior_ratio(ny.gdp(1), 1, attacker="me")
ny.Gaussian(1) * 0.5
ny.Gaussan(1)
ny.run("plan.toml", {}, "ledger.db")
"""


def test_a_wrong_use_is_a_type_error(tmp_path):
    pytest.importorskip("pyright")
    lines = {one["range"]["start"]["line"] for one in errors(tmp_path, WRONG)}
    assert lines == set(range(2, len(WRONG.splitlines())))
