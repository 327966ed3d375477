"""These tests need torch and Opacus (6 GB): `make test-torch`. Elsewhere they are not collected."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("opacus") and find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True)
def secret_seed():
    """Opacus is refused with a seed that another test has set."""
    import torch

    torch.seed()
