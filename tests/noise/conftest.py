"""Sources of bits that tests can repeat; nothing like them exists outside the tests."""

import pytest

from seeded import Prescribed


@pytest.fixture(scope="session")
def injected():
    return Prescribed
