"""These tests need other libraries (`make test-audits`). Elsewhere they are not collected."""

import os

collect_ignore_glob = [] if os.environ.get("NEYMAN_PEERS") else ["test_*.py"]
