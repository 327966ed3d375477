"""Build the dictionary of a plan's TOML file, from the file or from the arguments of `Plan`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from neyman.accounting.semantics.budget import budget_from
from neyman.numerics import check
from neyman.publishing.plan.plan_fields import PlanError
from neyman.publishing.plan.sections import Section, Unit, listed
from neyman.storage.reading import read_file


def sections_of(text: str) -> Section:
    """Return the dictionary of a plan's TOML, with numbers as exact decimals.

    Raises:
        ValueError, ArithmeticError, RecursionError: as `tomllib.loads` does.
    """
    return tomllib.loads(text, parse_float=Decimal)


def read_sections(path: Path) -> Section:
    """Return the dictionary of a plan's TOML file, with numbers as exact decimals.

    Raises:
        PlanError: the file cannot be read, or is not TOML.
    """
    try:
        return sections_of(read_file(path).decode("utf-8-sig"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "is not text in UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason = f"is not TOML: {error}"
    except RecursionError:
        reason = "is nested too deep to be a plan"
    except (ValueError, ArithmeticError):
        # Python reads integers of up to 4300 digits, and decimals below 10^18.
        reason = "has a number of too many digits"
    raise PlanError(f"plan = {str(path)!r} {reason}")


def plan_sections(fields: Mapping[str, Any]) -> Section:
    """Return the dictionary of a plan's TOML file for the arguments of `Plan`.

    Args:
        fields: the given arguments. Shares are relative: Neyman divides each share by their sum,
            and multiplies it by the part of the budget that is not unspent.

    Raises:
        PlanError: the unit, the budget, or the queries have a wrong type.
    """
    data: Section = {"schema": 2, **{name: listed(value) for name, value in fields.items()}}
    unit, method = fields["unit"], fields.get("consistency")
    if isinstance(unit, Unit):
        data["unit"] = {name: value for name, value in vars(unit).items() if value is not None}
    if isinstance(method, str):
        data["consistency"] = {"method": method}
    if not isinstance(fields["budget"], Mapping):
        try:
            data["budget"] = budget_from(fields["budget"]).numbers
        except TypeError as error:
            raise PlanError(str(error)) from None
    queries = fields["queries"]
    if isinstance(queries, (str, Mapping)) or not isinstance(queries, Iterable):
        raise PlanError(f"queries = {queries!r}: must be a list, such as [ny.query.count(share=1)]")
    del data["queries"]
    given = cast("Iterable[object]", queries)
    data["query"] = [dict(query) if check.is_mapping(query) else query for query in given]
    _divide_shares(data["query"], _spent(data["budget"]))
    return data


def _spent(budget: Mapping[str, Any]) -> Fraction:
    """Return the part of a budget that queries take; 1 if the budget's own check refuses it."""
    try:
        spent = 1 - check.exact("unspent", budget.get("unspent", 0))
    except (TypeError, ValueError):
        return Fraction(1)
    return spent if 0 < spent <= 1 else Fraction(1)


def _divide_shares(queries: Sequence[object], spent: Fraction) -> None:
    """Scale the queries' shares so that their sum is ``spent``. The default share is 1."""
    measured: list[dict[str, Any]] = [query for query in queries if isinstance(query, dict)]
    for query in measured:
        if "public" not in query:
            query.setdefault("share", 1)
    shared = [query for query in measured if "share" in query]
    try:
        shares = [check.exact("share", query["share"]) for query in shared]
    except (TypeError, ValueError):
        return  # the plan's own check names the share that is none
    if shares and min(shares) > 0:
        total = sum(shares)
        for query, share in zip(shared, shares, strict=True):
            query["share"] = spent * share / total
