"""Analyze differential privacy as a hypothesis test.

Describe a release. Compute certified bounds on how well the best attacker can test a claim about
one person. Find the least noise that keeps every attacker below a limit. Release tables, and never
exceed the budget.
"""

from __future__ import annotations

from functools import cache

__version__ = "0.4.0.dev0"


@cache
def _modules() -> dict[str, str]:
    """Return the module of each public name, read from the type stub beside this file.

    A public module is listed under its own path.
    """
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    names = [(name.name, node.module) for node in imports for name in node.names]
    return {name: module or f"neyman.{name}" for name, module in names}


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so ``neyman --help`` needs no NumPy.

    The stub is also read only then. So this package loads fast, and the command line, which loads
    it first, can handle Ctrl-C soon.
    """
    if name == "__all__":
        return __dir__()
    if name not in _modules():
        from difflib import get_close_matches

        near = get_close_matches(name, _modules(), 1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        message = f"module 'neyman' has no attribute {name!r}{hint}"
        raise AttributeError(message, name=name, obj=None)  # without obj Python adds no second hint
    from importlib import import_module

    module = import_module(_modules()[name])
    is_public = module.__name__ == f"neyman.{name}"
    return globals().setdefault(name, module if is_public else getattr(module, name))


def __dir__() -> list[str]:
    return sorted(_modules())
