"""Test a privacy claim by the errors of an attack: `ny.audit`.

`counts` uses the errors of an attack on many runs, `scores` its scores, and `one_run` its guesses
about canaries in one run. `search` searches for an attack. `attack_curve` simulates a fixed attack.
Each returns an `Evidence`. `canaries` builds rows for an audit of training. `lira` and
`likelihood_ratio` score runs and outputs.

Examples:
    >>> import neyman as ny
    >>> shown = ny.audit.counts(false_positives=5, negatives=1000,
    ...                         false_negatives=400, positives=1000, confidence=0.95)
    >>> shown.refutes(ny.gdp(2)), shown.refutes(ny.gdp(3))
    (True, False)
"""

from neyman.auditing.audits import attack_curve, counts, one_run, scores, search
from neyman.auditing.canaries import canaries
from neyman.auditing.evidence import Evidence
from neyman.auditing.scores import likelihood_ratio, lira

__all__ = [
    "Evidence",
    "attack_curve",
    "canaries",
    "counts",
    "likelihood_ratio",
    "lira",
    "one_run",
    "scores",
    "search",
]
