"""Define the arguments that estimators and tests share: signature, documentation, and checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import ParamSpec, TypeVar

from neyman.numerics import check
from neyman.numerics.relation import NEIGHBORING, Neighboring
from neyman.publishing.release.charged_call import Payment

LEAST_RADIUS, MOST_RADIUS = Fraction(1, 10**100), Fraction(10**100)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Shared(Payment, total=False):
    """Hold the arguments that every estimator takes in addition to its own."""

    neighboring: Neighboring


DEFAULTS = {"neighboring": "replace-one", "ledger": None, "dataset": None, "account": None}
TEXTS = {
    "budget": """what the release may reveal: a curve such as ``ny.gdp(1)``, ``ny.zcdp``,
        ``ny.approximate``, or ``ny.at_most``.""",
    "neighboring": '"replace-one" or "add-remove".',
    "ledger": """a `Ledger`, or its path; without one nothing is charged, and the receipt says
        so.""",
    "dataset": '"name@version" in the ledger, registered with one row per unit.',
    "account": "the allocation of the dataset's account that pays.",
}
TEXTS_OF_TESTS = TEXTS | {
    "dataset": '"name@version" in the ledger, registered under replace-one with one row per unit.'
}
RAISES = """Raises:
    TypeError, ValueError: an argument is wrong. No content of the data raises an error.
    LedgerError, BudgetRefused: the dataset is not registered so, or too little is left. In all of
        these cases nothing is charged.
    ChargedError: the computation failed after its charge, which stands."""


def shares_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Replace a function's last parameter ``**paid`` by the shared arguments.

    The docstring gets a text for each shared argument that it lacks. A call with another name is
    refused.
    """
    signature = inspect.signature(function)
    *own, paid = signature.parameters.values()
    shared = Shared if "Shared" in str(paid.annotation) else Payment
    names = [name for name in DEFAULTS if name in shared.__annotations__]
    listed = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULTS[name],
            annotation=shared.__annotations__[name].__forward_arg__,
        )
        for name in names
    ]
    known = {*names, *signature.parameters} - {paid.name}

    @wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}"
                )
        return function(*args, **kwargs)

    checked.__signature__ = signature.replace(parameters=[*own, *listed])  # pyright: ignore[reportAttributeAccessIssue]
    checked.__doc__ = _docstring_with(inspect.cleandoc(function.__doc__ or ""), known)
    return checked


def _docstring_with(text: str, names: set[str]) -> str:
    """Add texts on ``names``, shared arguments, to a docstring that lacks them, and on errors."""
    texts = TEXTS if "neighboring" in names else TEXTS_OF_TESTS  # tests have a public n
    missing = [
        f"    {name}: {about}"
        for name, about in texts.items()
        if name in names and f"\n    {name}: " not in text
    ]
    text = text.replace("\n\nReturns:", "\n".join(["", *missing, "", "Returns:"]), 1)
    for place in ("\n\nExamples:", "\n\nSource:"):
        if place in text:
            return text.replace(place, f"\n\n{RAISES}{place}", 1)
    return f"{text}\n\n{RAISES}"


def relation_of(
    paid: Shared, *, valid: tuple[Neighboring, ...] = NEIGHBORING, why: str = ""
) -> Neighboring:
    """Return the neighboring relation. Refuse one that is not in ``valid``.

    ``why``: sentence for the error.
    """
    neighboring = paid.get("neighboring", "replace-one")
    return check.one_of("neighboring", neighboring, valid, f". {why}" if why else "")


def radius_of(radius: object, name: str = "radius") -> Fraction:
    """Return the exact radius of a ball, from 1e-100 to 1e100."""
    exact = check.exact(name, radius)
    if not LEAST_RADIUS <= exact <= MOST_RADIUS:
        raise ValueError(
            f"{name} = {radius!r} must be from 1e-100 to 1e100; state the records in another unit"
        )
    return exact
