"""Build the dictionary of a plan's TOML file, from the file or from the arguments of `Plan`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from neyman.accounting.semantics.budget import budget_from
from neyman.numerics import check
from neyman.publishing.plan.plan_fields import PlanDocument, PlanError
from neyman.publishing.plan.sections import Section, Unit, listed
from neyman.publishing.plan.totals import is_fixed
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
        fields: the given arguments. Shares are relative: see `divide_shares`.

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
    return data


def divide_shares(document: PlanDocument) -> PlanDocument:
    """Scale the queries' relative shares so that, with what is unspent, they sum to 1.

    A query without a share has the share 1, unless it is declared public or fixed by the totals.
    """
    free = [part.public is not None or is_fixed(document, part) for part in document.query]
    shares = [
        part.share or (Fraction(0) if none else Fraction(1))
        for part, none in zip(document.query, free, strict=True)
    ]
    factor = (1 - document.budget.unspent) / (sum(shares, Fraction(0)) or 1)
    queries = (
        part.model_copy(update={"share": share * factor or None})
        for part, share in zip(document.query, shares, strict=True)
    )
    return document.model_copy(update={"query": tuple(queries)})
