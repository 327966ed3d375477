"""Import the public names of a package at their first use, from the type stub beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


def exports(package: str, path: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose public names its stub imports.

    So ``neyman --help`` needs no NumPy. The stub is read only when a name is asked for. A
    relative import of the stub exports a module, and another import a name of a module.

    Args:
        package: the package's ``__name__``.
        path: the package's ``__file__``; the stub stands beside it.
    """

    @cache
    def homes() -> dict[str, tuple[str, bool]]:
        import ast
        from pathlib import Path

        stub = ast.parse(Path(path).with_suffix(".pyi").read_text(encoding="utf-8"))
        modules: dict[str, tuple[str, bool]] = {}
        for node in stub.body:
            if isinstance(node, ast.ImportFrom):
                home = ".".join(filter(None, (node.level * package, node.module)))
                modules |= {name.name: (home, node.level == 1) for name in node.names}
        return modules

    def names() -> list[str]:
        return sorted(homes())

    def value(name: str) -> object:
        if name == "__all__":
            return names()
        if name not in homes():
            from difflib import get_close_matches

            near = get_close_matches(name, homes(), 1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            message = f"module {package!r} has no attribute {name!r}{hint}"
            # without obj Python adds no second hint
            raise AttributeError(message, name=name, obj=None)
        import sys
        from importlib import import_module

        home, is_module = homes()[name]
        result = (
            import_module(f"{home}.{name}") if is_module else getattr(import_module(home), name)
        )
        setattr(sys.modules[package], name, result)
        return result

    return value, names
