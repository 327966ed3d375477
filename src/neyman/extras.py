"""Name the extra that installs each optional package, and keep the packages' warnings harmless."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

EXTRAS = {
    "anywidget": "notebook",
    "apsw": "release",
    "cryptography": "release",
    "dp_accounting": "dp-accounting",
    "duckdb": "release",
    "grpc": "spark-connect",
    "ibis": "release",
    "jax": "jax-privacy",
    "jax_privacy": "jax-privacy",
    "matplotlib": "release",
    "opacus": "opacus",
    "optax": "jax-privacy",
    "psycopg": "postgres",
    "pandas": "release",
    "pyarrow": "release",
    "pydantic": "release",
    "pyspark": "spark",
    "sklearn": "sklearn",
    "sqlglot": "release",
    "tomlkit": "release",
    "torch": "torch",
}
"""The extra that installs each package, by the package's import name."""


def require(purpose: str, *packages: str) -> None:
    """Raise an error that names the extra if a package is not installed. Import nothing.

    Args:
        purpose: the feature that needs the packages, in the plural.
        packages: names in ``EXTRAS``, all of one extra.

    Raises:
        ModuleNotFoundError: the missing packages, and the command that installs them.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{purpose} need {', '.join(missing)}: pip install 'neyman[{EXTRAS[missing[0]]}]'",
            name=missing[0],
        )


def advice(error: ImportError) -> str:
    """Return the message of an import error, with the command that installs the missing package."""
    text = str(error)
    if "pip install" in text:
        return text
    return (
        f"{text}: pip install 'neyman[{EXTRAS.get((error.name or '').partition('.')[0], 'all')}]'"
    )


@contextmanager
def library_warnings() -> Generator[None]:
    """Print warnings even if Python is set to raise them (``python -W error``).

    A release calls libraries that warn about each other. Such a warning says nothing about the
    data, and must not stop a release after its charge. A warning can also depend on values, and no
    value may decide if an error occurs. Without ``-W error`` this changes nothing.
    """
    with warnings.catch_warnings():
        warnings.filters = [
            ("default", *rest) if action == "error" else (action, *rest)
            for action, *rest in warnings.filters
        ]
        yield
