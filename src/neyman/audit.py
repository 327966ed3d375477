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

import sys
import warnings
from types import ModuleType

from neyman.auditing.audits import attack_curve, counts, one_run, scores, search
from neyman.auditing.canaries import canaries
from neyman.auditing.evidence import Evidence, ManyRuns
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


class _Module(ModuleType):
    """Let callers still call the module, because `ny.audit` was once a function."""

    def __call__(self, *args: object, **kwargs: object) -> ManyRuns:
        message = "ny.audit(...) is now ny.audit.counts(...)"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return counts(*args, **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


sys.modules[__name__].__class__ = _Module
