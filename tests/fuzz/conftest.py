"""Warnings of libraries about each other are not what is looked for here."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for line in ("ignore:fetch_:DeprecationWarning", "ignore:The copy keyword:DeprecationWarning"):
        config.addinivalue_line("filterwarnings", line)
