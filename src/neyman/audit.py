"""Tests of a privacy claim, by the errors of an attack: `ny.audit`.

`counts` takes the errors of an attack on many runs, `scores` its scores, and `one_run` its guesses
about canaries in one run. `search` looks for an attack, and `attack_curve` simulates one that is
fixed. Each returns an `Evidence`. `canaries` makes rows for an audit of training. `lira` and
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
    """A module that can be called, as `ny.audit` could before it was a module."""

    def __call__(self, *args: object, **kwargs: object) -> ManyRuns:
        message = "ny.audit(...) is now ny.audit.counts(...)"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return counts(*args, **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


sys.modules[__name__].__class__ = _Module
