"""Calibrate noise to a privacy budget, and add up the privacy costs of releases.

Public: `at_most` (target), `calibrate` and `calibrate_exact` (calibrate), `charge` (charge),
`Filter` and `Odometer` (filters), conversions and estimates by limit theorems (literature), and
dp-accounting's events, accountant and loss distributions (dp_accounting).
"""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
