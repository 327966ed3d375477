"""Using curves: budgets, the least noise that keeps one, and charges that add up.

Public: `at_most` (target), `calibrate` and `calibrate_exact` (calibrate), `charge` (adaptive).
"""
