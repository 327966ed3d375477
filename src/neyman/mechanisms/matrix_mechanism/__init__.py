"""Choose measurements of a stream for accurate sums: factorizations of the workload.

Public: `Strategy` and `square_root` (strategy), `Tree` and `Binned` (blocks), `optimized`
(factorization), `optimized_band` (banded). participation bounds how far a record moves them.
"""
