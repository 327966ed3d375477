"""Let former names of arguments, fields, and public names still work, with a warning.

Signatures, `help`, `dir`, and the type checker show only the new names.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

_T = TypeVar("_T")
_MODULES = {
    "accounting.dp_accounting.accountant": ("NeymanAccountant",),
    "accounting.dp_accounting.privacy_loss": ("from_dp_event", "from_pld", "to_pld"),
    "accounting.filters": ("Filter", "Odometer"),
    "accounting.literature.approximations": ("central_limit", "edgeworth"),
    "accounting.personal_filter": ("PersonalFilter",),
    "accounting.semantics.bayes": ("posterior_chance", "posterior_ratios"),
    "accounting.semantics.statistical_distance": ("posterior_distance",),
    "analysis.hypothesis_tests.binomial_test": ("BinomialTest",),
    "analysis.hypothesis_tests.goodness_of_fit_test": ("GoodnessOfFitTest",),
    "analysis.hypothesis_tests.mean_test": ("MeanTest",),
    "analysis.hypothesis_tests.proportions_test": ("ProportionsTest",),
    "analysis.hypothesis_tests.released_test": ("TestResult",),
    "analysis.training.result": ("Trained",),
    "audit": ("Evidence",),
    "curves.tradeoff.garbling": ("Garbling", "garbling"),
    "curves.tradeoff.loss_variable": ("PrivacyLoss",),
    "curves.tradeoff.nearest_gaussian": ("NearestGaussian",),
    "estimate": ("Estimate",),
    "publishing.release.data_check": ("DataCheck",),
    "query": (
        "count",
        "distinct",
        "histogram",
        "max",
        "mean",
        "median",
        "min",
        "quantiles",
        "ratio",
        "standard_deviation",
        "sum",
        "units",
        "variance",
    ),
}
FORMER_NAMES: dict[str, str] = {
    name: f"neyman.{module}" for module, names in _MODULES.items() for name in names
}
"""The module of each name that `import neyman` used to export."""


def current_value(name: str) -> object:
    """Return the value of a former public name, and warn with its new place."""
    from importlib import import_module

    module = FORMER_NAMES[name]
    message = f"neyman.{name} is now {module}.{name}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), name)


def former_arguments(**current: str) -> Callable[[_T], _T]:
    """Let a function, or a class's constructor, accept former names of arguments.

    Instances of the class also have the former names of their fields.

    Args:
        current: the new name of each argument, by its former name.

    Examples:
        >>> @former_arguments(target="budget")
        ... def calibrate(budget): return budget
        >>> import inspect
        >>> str(inspect.signature(calibrate))
        '(budget)'
    """

    def decorate(subject: _T) -> _T:
        if isinstance(subject, type):
            _rename_fields(subject, current)
            return subject
        return cast("_T", _with_former_names(cast("Callable[..., object]", subject), current))

    return decorate


def _with_former_names(
    function: Callable[..., object], current: dict[str, str]
) -> Callable[..., object]:
    """Return a function that also accepts the former names."""

    @functools.wraps(function)
    def call(*args: object, **arguments: object) -> object:
        for former in current.keys() & arguments.keys():
            new = current[former]
            if new in arguments:
                raise TypeError(f"{former}= is now {new}=: give one of them")
            warnings.warn(f"{former}= is now {new}=", DeprecationWarning, stacklevel=2)
            arguments[new] = arguments.pop(former)
        return function(*args, **arguments)

    return call


def _rename_fields(subject: type, current: dict[str, str]) -> None:
    """Let a class accept the former names, and give its instances the former fields."""

    def field(instance: object, name: str) -> object:
        if name not in current:
            kind = type(instance).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name)
        warnings.warn(f".{name} is now .{current[name]}", DeprecationWarning, stacklevel=2)
        return getattr(instance, current[name])

    parts: dict[str, Any] = {
        "__init__": _with_former_names(vars(subject)["__init__"], current),
        "__getattr__": field,
    }
    for name, part in parts.items():
        setattr(subject, name, part)
