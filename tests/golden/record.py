"""Compute the golden record: every certified number of the cases, bit by bit."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from cases import CASES, CURVES, DELTAS, EPSILONS

import neyman as ny
from neyman.matrix_mechanism.strategy import square_root

__all__ = ["ENVIRONMENT", "FILE", "answers", "record"]

FILE = Path(__file__).with_name("numbers.json")


def processor() -> str:
    """Return a digest of what the processor can do: libraries pick their loops by it."""
    lines = Path("/proc/cpuinfo")
    text = lines.read_text(encoding="utf-8") if lines.exists() else platform.processor()
    names = ("cpu family", "model", "flags")
    features = {line for line in text.splitlines() if line.startswith(names)}
    return hashlib.sha256("\n".join(sorted(features)).encode()).hexdigest()[:16]


ENVIRONMENT = {
    "python": platform.python_version(),
    "numpy": np.__version__,
    "scipy": scipy.__version__,
    "machine": platform.machine(),
    "processor": processor(),
}
"""What can move the last bits of a number: other builds and processors sum in another order."""


def _ends(bound: Any) -> str:
    """Both ends as hexadecimal floats, and the method."""
    return f"{bound.lower.hex()} {bound.upper.hex()} {bound.method}"


def answers(expression: str) -> dict[str, str]:
    """What a curve or a mechanism answers."""
    subject = eval(expression, {"ny": ny, "F": Fraction, "square_root": square_root})
    by_key: dict[str, str] = {}
    if isinstance(subject, ny.Mechanism):
        by_key["json"] = subject.to_json()
        by_key["rho"] = str(subject.rho()) if _is_number(subject.rho) else "none"
        f = subject.tradeoff()
    else:
        f = subject
    by_key["curve"] = f.neighboring
    by_key["engine"] = f.method
    for epsilon in EPSILONS:
        by_key[f"log_delta({epsilon})"] = _ends(f.log_delta(epsilon))
    for delta in DELTAS:
        by_key[f"epsilon({delta})"] = _ends(f.epsilon(delta))
    return by_key


def _is_number(rho: Any) -> bool:
    try:
        rho()
    except ValueError:
        return False
    return True


def record(verbose: bool = False) -> dict[str, dict[str, str]]:
    """Every case's answers."""
    by_key = {}
    for expression in [*CASES, *CURVES]:
        start = time.process_time()
        try:
            by_key[expression] = answers(expression)
        except Exception as error:
            if verbose:
                print("!!", expression, type(error).__name__, error)
            raise
        if verbose and time.process_time() - start > 1:
            print(f"{time.process_time() - start:6.1f} s  {expression}", flush=True)
    return by_key


if __name__ == "__main__":
    content = {"environment": ENVIRONMENT, "cases": record(verbose=True)}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"{FILE} written", file=sys.stderr)
