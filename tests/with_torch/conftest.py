"""These tests need torch and Opacus (6 GB): `make test-torch`. Elsewhere they are not collected."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("opacus") and find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True)
def a_secret_seed():
    """The seed of torch that one test sets is not that of the next, which Opacus would refuse."""
    import torch

    torch.seed()
