"""Compute with curves: calibrate noise to a budget, and add up charges.

Public: `at_most` (target), `calibrate` and `calibrate_exact` (calibrate), `charge` (charge),
`Filter` and `Odometer` (filters), conversions and estimates by limit theorems (literature), and
dp-accounting's events, accountant and loss distributions (dp_accounting).
"""
