"""Seconds of choosing the noise of marginals, and how far from the best it provably is.

`python benchmarks/strategies.py` prints a line for each workload.
"""

from __future__ import annotations

import time
from itertools import combinations

from neyman import optimal_marginals

MIXED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
WORKLOADS = (
    ("15 of 10 values, 2-way", (10,) * 15, (2,)),
    ("20 of 10 values, 1- to 3-way", (10,) * 20, (1, 2, 3)),
    ("20 of 2 to 12 values, 1- to 3-way", MIXED, (1, 2, 3)),
)


def main() -> None:
    """Print the table."""
    print(f"{'attributes':<36}{'relation':<13}{'objective':<11}{'choose s':>9}{'check s':>9}  gap")
    for said, values, ways in WORKLOADS:
        sizes = {f"a{i}": n for i, n in enumerate(values)}
        workload = [of for k in ways for of in combinations(sizes, k)]
        for relation in ("add-remove", "replace-one"):
            for objective in ("total", "largest"):
                start = time.process_time()
                result = optimal_marginals(
                    sizes, workload, objective=objective, neighboring=relation
                )
                chosen = time.process_time()
                gap = result.gap()
                checked = time.process_time()
                print(
                    f"{said:<36}{relation:<13}{objective:<11}{chosen - start:>9.2f}"
                    f"{checked - chosen:>9.2f}  {gap:.1e}"
                )


if __name__ == "__main__":
    main()
