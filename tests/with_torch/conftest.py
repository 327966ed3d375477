"""These tests need torch and Opacus (6 GB): `make test-torch`. Elsewhere they are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("opacus") and find_spec("torch") else ["test_*.py"]
