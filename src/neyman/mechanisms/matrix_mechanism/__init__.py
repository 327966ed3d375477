"""What to measure of a stream, so that its sums come out well: factorizations of the workload.

Public: `Strategy` and `square_root` (strategy), `Tree` and `Binned` (blocks), `optimized`
(factorization), `optimized_band` (bands). participation says how far one record can move them.
"""
