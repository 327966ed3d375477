"""A search refutes public releases of other libraries that are known to be wrong.

`make test-audits` installs each release in an environment of its own, below NEYMAN_PEERS.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import neyman as ny

WORKER = Path(__file__).with_name("worker.py")
# The folder of the environment, and the number of runs.
CASES = {
    "diffprivlib_regression": ("diffprivlib-0.6.6", 1000),
    "diffprivlib_laplace": ("diffprivlib-0.1.1", 20_000),
    "datasynthesizer_tables": ("datasynthesizer-0.1.4", 1000),
}


@pytest.mark.parametrize("program", CASES)
def test_a_release_that_is_known_to_be_wrong_is_refuted(program):
    """At confidence 1 - 1e-7. Each claims epsilon = 1; neighbors differ by one row or number."""
    folder, runs = CASES[program]
    python = Path(os.environ["NEYMAN_PEERS"]) / folder / "bin" / "python"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with subprocess.Popen(
        [python, WORKER, program],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as peer:  # fmt: skip
        assert peer.stdin
        assert peer.stdout

        def run(letter: str) -> object:
            peer.stdin.write(letter + "\n")
            peer.stdin.flush()
            return json.loads(peer.stdout.readline())

        shown = ny.audit.search(
            run, "d", "n", claim=ny.pure(1), runs=runs, confidence="0.9999999", seed=1
        )
        peer.stdin.close()
    print(f"{program}: {shown.test}; {shown}")
    assert shown.refuted, shown
