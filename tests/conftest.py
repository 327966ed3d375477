"""What holds for every test."""

import mpmath


def pytest_runtest_setup() -> None:
    """Each test starts with the same digits, whatever the test before it has set."""
    mpmath.mp.dps = 60
