"""Neyman: differential privacy as a hypothesis test.

Describe what you release. Learn how well the best attacker could test a claim about one person,
certified on both sides. Find the least noise that keeps every attacker below a limit. Release
tables, and never spend more than the budget.
"""

from __future__ import annotations

import ast
import builtins
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _modules() -> dict[str, str]:
    """The module of each public name, read from the type stub beside this file."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}


_MODULES = _modules()
# A star import shadows no built-in: `ny.sum`, `ny.min`, and `ny.max` are measures of a plan.
__all__ = sorted(set(_MODULES) - set(dir(builtins)))  # noqa: PLE0605 - the stub lists the names


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `neyman --help` needs no NumPy."""
    if name not in _MODULES:
        near = get_close_matches(name, _MODULES, 1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        message = f"module 'neyman' has no attribute {name!r}{hint}"
        raise AttributeError(message, name=name, obj=None)  # without obj Python adds no second hint
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(_MODULES)
