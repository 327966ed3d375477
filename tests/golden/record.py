"""Compute the golden record: every certified number of the cases, bit by bit."""

import json
import os
import platform
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import scipy
from cases import CASES, CURVES, DELTAS, EPSILONS

import neyman as ny
from neyman.mechanisms import square_root

FILE = Path(__file__).with_name("numbers.json")


ENVIRONMENT = {
    "python": platform.python_version(),
    "numpy": np.__version__,
    "scipy": scipy.__version__,
    "machine": platform.machine(),
}
"""What can move the last bits of a number: other builds sum in another order."""


def baseline():
    """Return the environment in which libraries use what every x86-64 processor has, and no more.

    They pick their loops by the processor, and other loops sum in another order. With this one
    the numbers are the same bits on processors with and without AVX, FMA, and AVX-512.
    """
    features = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4,-AVX512F",
    }


def recorded():
    """Return every case's answers, from a process in that environment."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=baseline(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _ends(bound):
    """Both ends as hexadecimal floats, and the method."""
    return f"{bound.lower.hex()} {bound.upper.hex()} {bound.method}"


def answers(expression):
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


def _is_number(rho):
    try:
        rho()
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        content = {"environment": ENVIRONMENT, "cases": recorded()}
        FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        print(json.dumps({expression: answers(expression) for expression in [*CASES, *CURVES]}))
