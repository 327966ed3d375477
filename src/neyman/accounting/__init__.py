"""Using curves: budgets, the least noise that keeps one, and charges that add up.

Public: `at_most` (target), `calibrate` and `calibrate_exact` (calibrate), `charge` (charge),
`Filter` and `Odometer` (filters), conversions and estimates by limit theorems (literature), and
dp-accounting's events, accountant and loss distributions (dp_accounting).
"""
