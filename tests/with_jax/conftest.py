"""These tests need jax_privacy: `make test-jax`. Elsewhere they are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("jax_privacy") else ["test_*.py"]
