"""Define the types of the fields of a plan, the errors of a plan, and how errors show values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias, TypeVar, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from neyman.accounting.semantics.digits import plain
from neyman.numerics import check
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS


@dataclass(frozen=True)
class Limits:
    """Limit the sizes in a plan's document."""

    searched_rows: int = 512  # the largest candidate for the rows of a unit
    decimals: int = 9  # the most decimals of a fixed-point column
    name_letters: int = 64  # the most characters of a name, as files are named after it
    # The most characters of a publisher and of a unit of measurement, which a report prints.
    text_letters: int = 100
    table_rows: int = 2**40  # the most rows that a table may be declared to have
    error_weight: int = 10**60  # the largest weight of a table's error; the least is its inverse


LIMITS = Limits()


class PlanError(ValueError):
    """Report that a plan cannot be used.

    ``problems`` lists every problem with its field, its value, and a valid alternative.
    """

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"the plan has {len(self.problems)} problems:{lines}")


def suggest(word: object, known: Iterable[object]) -> str:
    """Return the end of an error message: the known name nearest to ``word``, if any, then all."""
    names = [str(name) for name in known]
    if not names:
        return "none is declared"
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    shown = ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")
    listed = f"there {'is' if len(names) == 1 else 'are'} {shown}"
    return f"did you mean {near[0]!r}? {listed}" if near else listed


def _exact(value: object) -> Fraction:
    try:
        return check.exact("value", value)
    except (TypeError, ValueError):
        raise ValueError(
            "must be a finite number such as 0.25, '0.25' or '1/4', of a size from 1e-300 to 1e300"
        ) from None


def _positive(value: object) -> Fraction:
    number = _exact(value)
    if number <= 0:
        raise ValueError("must be above 0")
    return number


def _unspent(value: object) -> Fraction:
    number = _positive(value)
    if number >= 1:
        raise ValueError("must be below 1, as the queries take the rest of the budget")
    return number


def _weight(value: object) -> Fraction:
    number = _positive(value)
    if not Fraction(1, LIMITS.error_weight) <= number <= LIMITS.error_weight:
        raise ValueError("must be between 1e-60 and 1e60")
    return number


def _number(value: object) -> Fraction:
    if isinstance(value, bool):  # Python counts it as an integer
        raise ValueError("must be a finite number, not true/false")
    return _exact(value)


def _unknown(value: object) -> str | int | bool | Fraction:
    if isinstance(value, (float, Decimal)):
        return _exact(value)
    return plan_key(value)


def day_text(value: object) -> object:
    """Return the key of a day, as TOML writes days; any other value unchanged."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return value


def plan_key(value: object) -> str | int | bool:
    """Return a key of a plan: text, a whole number of 64 bits, true/false, or a day as text."""
    value = day_text(value)
    if not isinstance(value, (str, int)):
        raise ValueError("must be text, a whole number, true/false, or a day such as 2024-12-31")
    if value == "":
        raise ValueError("must not be blank: a blank looks like a missing value")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("must fit in 64 bits; write the keys as text")
    return value


def _end(value: object) -> int | date:
    match value:
        case bool() | datetime():
            pass
        case int() if abs(value) < 2**63:
            return value
        case date():
            return value
        case str() if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
            with suppress(ValueError):
                return date.fromisoformat(value)
        case _:
            pass
    raise ValueError("must be a whole number of 64 bits, or a date such as 2024-12-31")


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_ -]*", value) or len(value) > LIMITS.name_letters:
        raise ValueError(
            f"must be 1 to {LIMITS.name_letters} letters, digits, '_', '-' or blanks, since "
            "files are named after it"
        )
    return value


def is_reserved(name: str) -> bool:
    """Return True if Windows takes a name for a device, with any extension."""
    return re.fullmatch(r"(con|prn|aux|nul|(com|lpt)[0-9]) *", name, re.IGNORECASE) is not None


def _portable(value: str) -> str:
    if is_reserved(value):
        raise ValueError(
            f"is the name of a device on Windows, and files are named after it; add a word, such "
            f"as '{value.strip()} 1'"
        )
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _line(value: str) -> str:
    if (
        value != value.strip()
        or not value.isprintable()
        or not 1 <= len(value) <= LIMITS.text_letters
    ):
        raise ValueError(
            f"must be one line of 1 to {LIMITS.text_letters} printable characters, without "
            "blanks around it"
        )
    return value


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError(
            "must be a time zone of the IANA database that this machine has, such as "
            "'America/New_York' or 'UTC'"
        ) from None
    return value


def _dataset(value: str) -> str:
    part = "[A-Za-z0-9][A-Za-z0-9._-]*"
    if not re.fullmatch(f"{part}@{part}", value) or len(value) > 200:
        raise ValueError("must be name@version, of letters, digits and ._- , as 'census@1'")
    return value


def _date_format(value: str) -> str:
    parts = re.fullmatch(r"%([Ymd])([-./ ,]{0,2})%([Ymd])([-./ ,]{0,2})%([Ymd])", value)
    if not parts or len({parts[1], parts[3], parts[5]}) < 3:
        raise ValueError(
            "must have %Y, %m and %d once each, with '-', '.', '/', ',' or blanks between them, "
            "such as '%d.%m.%Y'. A year has four digits. A time of day after the date needs no "
            "declaration"
        )
    return value


def as_tuple(value: object) -> object:
    """Return a list as a tuple, because Pydantic's strict mode accepts no list."""
    return tuple(value) if check.is_list(value) else value


Item = TypeVar("Item")
Several: TypeAlias = Annotated[tuple[Item, ...], BeforeValidator(as_tuple)]
"""Items that a list provides."""


def _number_schema(text: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["number", "string"], "description": text})


Exact = Annotated[Fraction, PlainValidator(_positive), _number_schema("exact: 0.25 or '1/4'")]
Unspent = Annotated[
    Fraction, PlainValidator(_unspent), _number_schema("exact, below 1: 0.2 or '1/5'")
]
Key = Annotated[
    str | int | bool,
    PlainValidator(plan_key),
    WithJsonSchema({"type": ["string", "integer", "boolean"]}),
]
End = Annotated[int | date, PlainValidator(_end), WithJsonSchema({"type": ["integer", "string"]})]
Unknown = Annotated[
    str | int | bool | Fraction,
    PlainValidator(_unknown),
    WithJsonSchema({"type": ["string", "integer", "boolean", "number"]}),
]
Weight = Annotated[
    Fraction, PlainValidator(_weight), _number_schema("exact, from 1e-60 to 1e60: 4 or '1/4'")
]
Weights = Annotated[
    Annotated[Weight, Tag("all")]
    | Annotated[dict[str, Weight], Field(min_length=1), Tag("levels")],
    Discriminator(lambda value: "levels" if isinstance(value, Mapping) else "all"),
]
Number = Annotated[Fraction, PlainValidator(_number), _number_schema("exact: 12.5 or '12.5'")]
Numbers = Several[Number]


Clip = Annotated[
    Annotated[tuple[Number, Number], BeforeValidator(as_tuple), Tag("ends")]
    | Annotated[Literal["discover", "discover-signed"], Tag("search")],
    Discriminator(lambda value: "search" if isinstance(value, str) else "ends"),
]
Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, AfterValidator(_text)]
DateFormat = Annotated[str, AfterValidator(_date_format)]
Line = Annotated[str, AfterValidator(_line)]
Dataset = Annotated[str, AfterValidator(_dataset)]
Zone = Annotated[str, AfterValidator(_zone)]
FileName = Annotated[Name, AfterValidator(_portable)]
Names = Several[Name]
Texts = Several[Text]
PublicRows = Several[Several[Annotated[str, BeforeValidator(day_text)]]]
RowCount = Annotated[int, Field(ge=1, le=SHIFTS_LIMITS.rows)]


# fmt: off
Encoding = Literal[
    "utf-8", "latin-1", "iso-8859-2", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1257",
]
# fmt: on


def choices(words: object) -> str:
    """Return the words of a Literal as a list for a field's description."""
    *most, last = map(repr, get_args(words))
    return f"{', '.join(most)} or {last}"


class Strict(BaseModel):
    """Define a section of a file: frozen, strictly typed, and without unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def show(value: object) -> str:
    """Return a value as its author wrote it, cut to 80 characters; of a list, its first 8 items."""
    if isinstance(value, Fraction):
        text = plain(value)
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (list, tuple)):
        values = cast("list[object] | tuple[object, ...]", value)
        text = f"[{', '.join(map(show, values[:8]))}{', ...' if len(values) > 8 else ''}]"
    else:
        text = str(value) if isinstance(value, (Decimal, date, time)) else repr(value)
    return check.shortened(text)
