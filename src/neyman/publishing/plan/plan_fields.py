"""Define the fields of a plan's file, check their types and ranges, and report all errors."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args
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
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from neyman.accounting.semantics.digits import plain
from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch
from neyman.publishing.plan.query import (
    SYNONYMS,
    ConsistencyMethod,
    Duplicates,
    Measure,
    NoiseKind,
    QuantileMethod,
)
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


class Origin(NamedTuple):
    """Name the query of the author's plan that an error is about.

    Args:
        where: its place in the plan, such as "query[0]".
    """

    where: str
    name: str


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
    return _key(value)


def _day_text(value: object) -> object:
    """Return the key of a day, as TOML writes days; any other value unchanged."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return value


def _key(value: object) -> str | int | bool:
    value = _day_text(value)
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
    PlainValidator(_key),
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
PublicRows = Several[Several[Annotated[str, BeforeValidator(_day_text)]]]
RowCount = Annotated[int, Field(ge=1, le=SHIFTS_LIMITS.rows)]


# fmt: off
Encoding = Literal[
    "utf-8", "latin-1", "iso-8859-2", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1257",
]
# fmt: on


def _choices(words: object) -> str:
    """Return the words of a Literal as a list for a field's description."""
    *most, last = map(repr, get_args(words))
    return f"{', '.join(most)} or {last}"


class Strict(BaseModel):
    """Define a section of a file: frozen, strictly typed, and without unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class KeyRangePart(Strict):
    """List the keys between two ends, both included."""

    from_: End = Field(alias="from", description="the first key, a whole number or a date")
    to: End = Field(description="the last key, of the same type, at least 'from'")
    step: Annotated[int, Field(ge=1)] | Literal["day", "month", "quarter", "year"] | None = Field(
        None,
        description="how far the next key is: a whole number, 1 if not given; of dates 'day' (if "
        "not given), 'month', 'quarter' or 'year'",
    )


class KeyFilePart(Strict):
    """Read the keys from a column of a public CSV file."""

    file: Text = Field(description="a CSV file in the plan's folder, with a header")
    column: str | None = Field(
        None, description="the file's column; the one with the name of the plan's if not given"
    )
    integer: bool = Field(False, description="true for keys that are whole numbers")


def _kind_of_keys(value: object) -> str:
    if isinstance(value, KeyFilePart) or (check.is_mapping(value) and "file" in value):
        return "file"
    return "range" if isinstance(value, (KeyRangePart, Mapping)) else "list"


Keys = Annotated[
    Annotated[Several[Key], Tag("list")]
    | Annotated[KeyRangePart, Tag("range")]
    | Annotated[KeyFilePart, Tag("file")],
    Discriminator(_kind_of_keys),
]


class UnitPart(Strict):
    """Define the privacy unit, and what may change about it."""

    protects: Text = Field(description="who is protected, such as 'person'")
    neighboring: Neighboring = Field(description="'replace-one' or 'add-remove'")
    rows: Annotated[
        int,
        Field(ge=1, le=SHIFTS_LIMITS.rows),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "discover"}]}),
    ] = Field(
        1,
        description=f"rows per unit, 1 to {SHIFTS_LIMITS.rows}; or 'discover' for a power of two, "
        f"at most {LIMITS.searched_rows}, that follows from a noisy histogram",
    )
    rows_share: Exact | None = Field(
        None,
        description="the part of the budget that the histogram of rows to discover takes, below 1; "
        "1/20 if not given",
    )
    rows_above: Exact | None = Field(
        None,
        description="the part of the units that may have more rows than are discovered, below 1; "
        "1/100 if not given",
    )
    id: Text | None = Field(None, description="the column that names the unit, if rows are several")

    @model_validator(mode="before")
    @classmethod
    def _with_search(cls, data: object) -> object:
        """Replace rows = 'discover' by the largest candidate. Fill in rows_share and rows_above."""
        if not check.is_mapping(data):
            return data
        if data.get("rows") == "discover":
            terms = {"rows_share": Fraction(1, 20), "rows_above": Fraction(1, 100)}
            return {**terms, **data, "rows": LIMITS.searched_rows}
        if "rows_share" in data or "rows_above" in data:
            raise ValueError("rows_share and rows_above are for rows = 'discover'")
        return data

    @property
    def search(self) -> ClipSearch | None:
        """Return the search for the rows of a unit; None if they are declared."""
        if self.rows_share is None or self.rows_above is None:
            return None
        most = LIMITS.searched_rows.bit_length() - 1
        return ClipSearch(ROWS_TABLE, self.rows_share, self.rows_above, False, most)

    def to_dict(self) -> dict[str, Any]:
        """Return this part as a section of the canonical plan."""
        content = self.model_dump(exclude_none=True, exclude={"rows_share", "rows_above"})
        if self.search is not None:
            content["rows"] = "discover"
            content["rows_share"] = str(self.rows_share)
            content["rows_above"] = str(self.rows_above)
        return content


class ColumnPart(Strict):
    """Define a column: keys to group by, public or unknown, or numbers to sum."""

    keys: Keys | None = Field(
        None,
        description="the public keys: a list of texts, whole numbers or true/false; "
        "{ from = 0, to = 120 }; or { file = 'states.csv', column = 'code' }",
    )
    integer: bool = Field(False, description="true for a column of whole numbers to sum")
    decimals: int | None = Field(
        None,
        ge=0,
        le=LIMITS.decimals,
        description=f"digits after the point of a column to sum, 0 to {LIMITS.decimals}",
    )
    discover: bool = Field(False, description="true for keys that are found in the data")
    unknown: Unknown | None = Field(
        None,
        description="'drop' or a key; for a column to sum, 'drop' or the number that replaces a "
        "missing one",
    )
    measurement_unit: Line | None = Field(
        None, description="the unit of a column to sum, such as 'USD', which the report prints"
    )
    type: Literal["text", "whole", "boolean", "date"] | None = Field(
        None, description="'text', 'whole', 'boolean' or 'date', for a column for expressions alone"
    )
    parse: bool = Field(
        False,
        description="true for a text column whose texts are read as numbers or dates, one by one; "
        "a text that is none is missing",
    )
    zone: Zone | None = Field(
        None,
        description="the time zone, such as 'America/New_York', in which a timestamp with a time "
        "zone, or a text with an offset, has its day and its hour",
    )

    @property
    def listed(self) -> tuple[str | int | bool, ...]:
        """Return the keys if they are a list; none for a range or a file."""
        return self.keys if isinstance(self.keys, tuple) else ()


class DerivePart(Strict):
    """Define a column that one of four rules computes from others, row by row."""

    expression: Text | None = Field(None, description="an expression, as 'month(admitted)'")
    range: Annotated[tuple[Number, Number], BeforeValidator(as_tuple)] | None = Field(
        None,
        description="[low, high], numbers that the value of an expression is clipped to, for a "
        "column to sum",
    )
    measurement_unit: Line | None = Field(
        None,
        description="the unit of a column with a range, such as 'years', which the report prints",
    )
    cut: Text | None = Field(None, description="an expression whose number is cut into labels")
    edges: Numbers | None = Field(
        None, description="rising edges of a cut; a label holds edge <= x < next edge"
    )
    labels: Texts | None = Field(
        None, description="the labels of a cut, a list of texts, one fewer than edges"
    )
    map: Text | None = Field(None, description="an expression whose text is replaced")
    to: dict[str, Text] | None = Field(
        None, description="the texts of a map: { M = 'male', m = 'male' }"
    )
    case: (
        Annotated[
            tuple[Annotated[tuple[Text, Text], BeforeValidator(as_tuple)], ...],
            BeforeValidator(as_tuple),
        ]
        | None
    ) = Field(None, description="a list of [condition, label]; the first that is true counts")
    unknown: Text | None = Field(
        None, description="'drop' or the label of a row that no edge, text or condition takes"
    )


class LookupPart(Strict):
    """Define a column that looks up the values of other columns in a public list."""

    column: Text | Texts = Field(
        description="an expression whose text is looked up, as 'county', or a list of those whose "
        "texts are looked up together, as ['state', 'county']"
    )
    keys: Text | PublicRows = Field(
        description="a CSV file in the plan's folder with a column for each text that is looked up "
        "and one with the lookup's name, or the rows themselves, [[text, value], ...]"
    )
    on: Text | Texts | None = Field(
        None,
        description="the file's column of the text that is looked up, or a list with one for each; "
        "'column' if not given",
    )
    unknown: Text | None = Field(
        None, description="'drop' or the value of a row that no key of the list matches"
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the expressions whose texts are looked up together."""
        return (self.column,) if isinstance(self.column, str) else self.column


class HierarchyPart(Strict):
    """Define nested public levels."""

    levels: Names = Field(description="level names, top first", min_length=1)
    keys: Text | PublicRows = Field(
        description="a CSV file with a column for each level, or the rows themselves; '' on the "
        "levels below a place that ends above the lowest one"
    )
    unknown: Text | Texts = Field(
        "drop", description="'drop', the name of a lowest-level place, or its path"
    )
    integer: Names = Field(
        (),
        description="levels whose names are whole numbers, read as numbers: 7, 7.0 and 007 are one",
    )


class BudgetPart(Strict):
    """Limit what an attacker may learn, by exactly one kind of guarantee."""

    power: Exact | None = Field(None, description="power of the best attacker, with level")
    level: Exact | None = Field(None, description="level (type I error) that power refers to")
    success: Exact | None = Field(
        None,
        description="largest chance of a right guess about one record, with baseline; the same "
        "budget as power with level, and kept as that",
    )
    baseline: Exact | None = Field(
        None, description="best chance of a right guess without the release, with success"
    )
    zcdp: Exact | None = Field(None, description="rho of zero-concentrated DP")
    gdp: Exact | None = Field(None, description="mu of Gaussian DP")
    epsilon: Exact | None = Field(None, description="epsilon, with delta")
    delta: Exact | None = Field(
        None, description="delta, with epsilon; with zcdp for keys that are found in the data"
    )
    unspent: Unspent = Field(
        Fraction(0), description="the exact part of the budget that no query takes, below 1"
    )

    @property
    def numbers(self) -> dict[str, Fraction]:
        """Return the given numbers. A success with its baseline becomes a power with its level."""
        given = {name: value for name, value in self if value is not None and name != "unspent"}
        if set(given) == {"success", "baseline"}:
            return {"power": given["success"], "level": given["baseline"]}
        return given


class TablePart(Strict):
    """Define a further private table with rows of the same units, named by their ids."""

    id: Text | None = Field(
        None, description="the table's column that names the unit; unit.id if not given"
    )
    rows: int = Field(
        1,
        ge=1,
        le=SHIFTS_LIMITS.rows,
        description=f"rows per unit in this table, 1 to {SHIFTS_LIMITS.rows}",
    )
    join: Several[Text] = Field(
        (), description="columns that are joined to the rows of the plan's table by the unit's id"
    )
    duplicates: Duplicates | None = Field(
        None,
        description="'drop' or 'least', which row a unit with several rows has: none, or the "
        "least; 'drop' if not given and columns are joined",
    )


class KeyPart(Strict):
    """Replace some fields of a partitioned query for one key."""

    at: Names | None = Field(None, description="levels of the hierarchy")
    clip: Clip | None = Field(None, description="[low, high], or 'discover' or 'discover-signed'")
    share: Exact | None = Field(
        None,
        description="this key's share relative to the others, 1 if not given; the worst set of "
        "disjoint keys takes the query's share",
    )


class PrintPart(Strict):
    """Print a text in the place of each small cell."""

    below: Exact = Field(
        description="cells with a noisy value below this number are printed as a text"
    )
    as_: Line = Field(alias="as", description="the text, such as '<10', which is no number")

    @model_validator(mode="after")
    def _is_no_number(self) -> PrintPart:
        number = None
        with suppress(ArithmeticError):
            number = Decimal(re.sub("[, ']", "", self.as_))
        if number is not None:
            raise ValueError(f"as = {self.as_!r} reads as a number; give a text such as '<10'")
        return self


class QueryPart(Strict):
    """Define one measure, by public columns, at one or more levels."""

    name: FileName = Field("", description="a name for the tables of this query")
    title: Line | None = Field(
        None, description="what a report calls its tables, such as 'People by county and sex'"
    )
    table: Text | None = Field(
        None, description="the private table that it reads; the plan's table if not given"
    )
    measure: Measure = Field(description=_choices(Measure))
    column: Text | None = Field(
        None, description="the column that is summed, put into bins, or whose values are counted"
    )
    clip: Clip | None = Field(
        None,
        description="[low, high], numbers with no more decimals than the column; 'discover' or "
        "'discover-signed' for a power of two that follows from a noisy histogram",
    )
    clip_share: Exact | None = Field(
        None,
        description="the part of the share that the histogram of a clip to discover takes, below "
        "1; 1/10 if not given",
    )
    clip_above: Exact | None = Field(
        None,
        description="the part of the units whose value may be outside a clip to discover, below "
        "1; 1/100 if not given",
    )
    over: Text | None = Field(None, description="the column of the sum that a ratio divides by")
    clip_over: Annotated[tuple[Number, Number], BeforeValidator(as_tuple)] | None = Field(
        None, description="[low, high] of the column 'over', low at least 0"
    )
    complete: bool = Field(False, description="true for a ratio of the rows that have both numbers")
    edges: Numbers | None = Field(
        None, description="rising edges of the bins of a histogram or of quantiles, at least two"
    )
    method: QuantileMethod | None = Field(
        None,
        description="'bins', 'inverse-sensitivity', or 'inverse-sensitivity-interval', how "
        "quantiles are published; if not given, edges mean bins, and a clip the method with the "
        "narrower interval",
    )
    quantiles: Numbers | None = Field(
        None, description="which quantiles, each between 0 and 1, rising"
    )
    groups: RowCount | None = Field(
        None, description=f"the most cells that one unit's rows fall in, 1 to {SHIFTS_LIMITS.rows}"
    )
    rows_per_group: RowCount | None = Field(
        None, description=f"the most rows of one unit in one cell, 1 to {SHIFTS_LIMITS.rows}"
    )
    delta: Exact | None = Field(
        None, description="the chance that a key of a single unit is published, below 1"
    )
    print: PrintPart | None = Field(
        None, description="{ below = 10, as = '<10' }: how small cells are printed"
    )
    nonnegative: bool = Field(False, description="true to publish values below 0 as 0")
    where: Text | None = Field(
        None, description="a condition on a row, as 'age >= 18'; the other rows take no part"
    )
    partition: Text | None = Field(
        None, description="a column with listed keys, each of which gets its own table"
    )
    parts: dict[str, KeyPart] | None = Field(
        None, description="the levels, the clip, and the share of a key, where they are its own"
    )
    by: Texts = Field((), description="columns with keys, or to discover, to group by")
    detail: Several[Texts] | None = Field(
        None,
        description="for each level of detail the columns that a group of 'by' is split by: "
        "[[], ['sex'], ['sex', 'age']]; a first noisy count of the group decides",
    )
    thresholds: Several[Annotated[int, Field(ge=1, le=LIMITS.table_rows)]] | None = Field(
        None,
        description="rising whole numbers, one fewer than levels of detail: a first count that "
        "reaches k of them gives the group level k, from 0",
    )
    first_share: Exact | None = Field(
        None,
        description="the part of the share that the first counts take, below 1; 1/10 if not given",
    )
    at: Names = Field(
        (),
        description="levels of the hierarchy; of several, also pairs such as 'state x sector', or "
        "'all pairs'",
    )
    share: Exact | None = Field(None, description="this query's exact part of the budget")
    split: dict[str, Exact] | None = Field(
        None, description="the parts of the share by level, which sum to 1"
    )
    weight: Weights | None = Field(
        None,
        description="a number above 0, how much its error counts when shares are chosen, or one "
        "by level: { county = 3 }",
    )
    public: dict[str, Annotated[int, Field(ge=0)]] | None = Field(
        None,
        description="declared true totals of all rows, dropped ones too, of levels with one cell",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_name(cls, data: object) -> object:
        """Name a query after its measure if it has no name."""
        if check.is_mapping(data) and isinstance(data.get("measure"), str) and "name" not in data:
            return {"name": data["measure"], **data}
        return data


def _total_key(value: object) -> str | int | bool:
    return "" if value == "" else _key(value)  # the name below a place that ends above


class TotalsPart(Strict):
    """Declare exact public totals: the number of rows for each key of some columns."""

    by: Names = Field(description="columns with keys, and at most one level", min_length=1)
    values: Text | Several[Several[Annotated[Key, PlainValidator(_total_key)]]] = Field(
        description="a CSV file with a column for each key and a column 'total', or rows of keys "
        "and a total"
    )


class ConsistencyPart(Strict):
    """Request tables that add up, computed from the noisy tables and published beside them."""

    method: ConsistencyMethod = Field(description="'least-squares', 'nonnegative' or 'integer'")


class CorrectsPart(Strict):
    """Name the published release that a plan's release replaces."""

    entry: int = Field(ge=1, description="the ledger's entry of the release to replace")
    receipt: str = Field(pattern="^[0-9a-f]{64}$", description="the SHA-256 of its receipt.json")
    why: Line = Field(description="what was wrong")
    copied: Names = Field(
        (),
        description="the queries whose tables are copied from it: without reading the data, and "
        "without a charge",
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the section as in a canonical plan."""
        return self.model_dump(mode="json", exclude_defaults=True)


class SourcePart(Strict):
    """Describe the form of a CSV file, and how texts write numbers and dates.

    In each of these encodings, a byte below 128 is always the ASCII character. So line ends,
    delimiters, and quotes are the same bytes in all of them, and a value that cannot be decoded
    affects no other value.
    """

    delimiter: Literal[",", ";", "\t", "|"] = Field(
        default=",", description="',', ';', '\\t' (a tab) or '|', which separates the values"
    )
    encoding: Encoding = Field(default="utf-8", description=_choices(Encoding))
    compression: Literal["none", "gzip"] = Field(default="none", description="'none' or 'gzip'")
    decimal: Literal[".", ","] = Field(
        default=".", description="'.' or ',', which stands before the decimals of a number"
    )
    thousands: Literal[".", ",", " ", "'"] | None = Field(
        default=None,
        description="'.', ',', ' ' or an apostrophe, which stands between groups of three digits; "
        "none if not given",
    )
    dates: DateFormat | None = Field(
        default=None,
        description="how dates are written: '%d.%m.%Y', '%m/%d/%Y' or '%Y%m%d'; '%Y-%m-%d' if not "
        "given",
    )

    @model_validator(mode="after")
    def _distinct_marks(self) -> SourcePart:
        if self.thousands == self.decimal:
            raise ValueError(
                f"thousands = {self.thousands!r} is the decimal mark too; declare two different "
                "marks"
            )
        return self

    @property
    def form(self) -> SourcePart:
        """Return a copy with only the form of a CSV file."""
        return self.model_copy(update={"decimal": ".", "thousands": None, "dates": None})

    @property
    def marks(self) -> SourcePart:
        """Return a copy with only the marks of numbers and dates."""
        return SourcePart(decimal=self.decimal, thousands=self.thousands, dates=self.dates)

    def to_dict(self) -> dict[str, str]:
        """Return this part as a section of the canonical plan.

        It leaves out every field that is None, and the decimal mark if it is ".".
        """
        content = self.model_dump(exclude_none=True)
        if self.decimal == ".":
            del content["decimal"]
        return content


PLAIN_SOURCE = SourcePart()
"""The source of a plan without a [source]: commas, UTF-8, not compressed, decimal points."""


class PlanDocument(Strict):
    """Define a release plan."""

    schema_: Literal[2] = Field(alias="schema", description="2, the version of this format")
    name: FileName = Field(description="a name for the plan")
    dataset: Dataset = Field(description="declared name@version of the data, as in the ledger")
    table: Text = Field(description="the table that the queries read")
    publisher: Line | None = Field(
        None,
        description="the name of the publisher, such as 'Office of Statistics', which "
        "the report prints",
    )
    part: Name | None = Field(
        None, description="which of the dataset's disjoint parts the table is, as in the ledger"
    )
    most_rows: int | None = Field(
        None,
        ge=1,
        le=LIMITS.table_rows,
        description="the most rows that the table can have, public; 2^31 if not given",
    )
    source: SourcePart = Field(
        PLAIN_SOURCE,
        description="a [source] section: the form of a CSV file, and how texts write numbers and "
        "dates",
    )
    where: Text | None = Field(
        None, description="a condition on a row, as 'age >= 18'; the other rows take no part"
    )
    unit: UnitPart = Field(description="a [unit] section")
    tables: dict[str, TablePart] = Field(
        {}, description="a [tables.name] section for each further private table"
    )
    columns: dict[str, ColumnPart] = Field({}, description="a [columns.name] section for each")
    derive: dict[str, DerivePart] = Field({}, description="a [derive.name] section for each")
    lookup: dict[str, LookupPart] = Field({}, description="a [lookup.name] section for each")
    hierarchy: dict[str, HierarchyPart] = Field(
        {}, description="a [hierarchy.name] section for each"
    )
    budget: BudgetPart = Field(description="a [budget] section")
    noise: NoiseKind = Field(
        "discrete-gaussian",
        description="the kind of whole-number noise: 'discrete-gaussian' or 'rounded-gaussian'",
    )
    disjoint: bool = Field(False, description="true to charge the worst of disjoint queries")
    consistency: ConsistencyPart | None = Field(
        None, description="a [consistency] section with a method"
    )
    corrects: CorrectsPart | None = Field(
        None, description="a [corrects] section: the release that this one replaces"
    )
    totals: Several[TotalsPart] = Field(
        (), description="a [[totals]] section for each table of exact public totals"
    )
    query: Several[QueryPart] = Field(description="one or more [[query]] sections", min_length=1)

    def rows_of(self, query: QueryPart) -> int:
        """Return the largest number of rows of one unit that count in a query's table."""
        part = self.tables.get(query.table or self.table)
        return self.unit.rows if part is None else part.rows


PARTS: Mapping[str, type[BaseModel]] = {
    "source": SourcePart,
    "unit": UnitPart,
    "tables": TablePart,
    "columns": ColumnPart,
    "derive": DerivePart,
    "lookup": LookupPart,
    "hierarchy": HierarchyPart,
    "budget": BudgetPart,
    "consistency": ConsistencyPart,
    "corrects": CorrectsPart,
    "totals": TotalsPart,
    "query": QueryPart,
}
"""The sections of a plan. The page docs/plan.md and the JSON schema list their fields."""

KEYS: Mapping[str, type[BaseModel]] = {"range": KeyRangePart, "file": KeyFilePart}
"""The forms of a column's ``keys`` other than a list."""


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a plan, with the sections by their names in TOML."""
    schema = PlanDocument.model_json_schema(by_alias=True)
    for name, part in PARTS.items():
        schema["$defs"][part.__name__]["title"] = f"[{name}]"
    for part in KEYS.values():
        schema["$defs"][part.__name__]["title"] = "keys of [columns]"
    for part in (schema, *schema["$defs"].values()):
        for field in part["properties"].values():
            field.pop("title", None)
    del schema["$defs"]["QueryPart"]["properties"]["name"]["default"]  # the measure is the default
    return schema


def parse(data: Mapping[str, Any]) -> PlanDocument:
    """Read a plan's document from a dictionary.

    Raises:
        PlanError: with every field that is unknown, missing, or of the wrong type or range.
    """
    try:
        content = dict(data)
        json.dumps(content, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise PlanError("the plan holds half of a surrogate pair, which is not text") from None
    except (RecursionError, TypeError, ValueError):
        raise PlanError("the plan is nested too deep, or is not a dictionary of texts") from None
    if reason := other_schema(content.get("schema")):
        raise PlanError(reason)
    try:
        return PlanDocument.model_validate(content)
    except ValidationError as error:
        # The same field may fail as each member of a union. One line is enough.
        messages: dict[str, str] = {}
        for problem in error.errors(include_url=False):
            if problem["type"] == "too_short" and problem["input"]:
                continue  # only because each item failed, which another line reports
            where, model, field = _locate(problem["loc"])
            messages.setdefault(where, _describe(where, model, field, problem, data))
        raise PlanError(messages.values()) from None


def other_schema(schema: object) -> str:
    """Return why a plan of this schema is refused, and what to do; "" for schema 2."""
    if type(schema) is int and schema == 2:
        return ""
    if schema is None:
        return "schema is missing: this version reads plans of schema 2; write schema = 2"
    refused = (
        f"schema = {show(schema)}: this version reads plans of schema 2 only; write schema = 2"
    )
    if type(schema) is not int or schema != 1:
        return refused
    return (
        f"{refused}. A missing number then no longer counts as 0; add unknown = 0 to a column to "
        "keep that"
    )


def _locate(loc: tuple[int | str, ...]) -> tuple[str, type[BaseModel], str]:
    """Return the path of Pydantic's error as text, the model of its section, and the field."""
    model: type[BaseModel] = PlanDocument
    depth, path = 1, str(loc[0]) if loc else "plan"
    if len(loc) > 1 and loc[0] in PARTS:
        model = PARTS[str(loc[0])]
        nested = loc[0] in ("tables", "columns", "derive", "lookup", "hierarchy", "totals", "query")
        depth = 3 if nested else 2
        if nested:
            path += _step(loc[1])
        if len(loc) >= depth:
            path += f".{loc[depth - 1]}"
    field = str(loc[depth - 1]) if len(loc) >= depth else ""
    # Skip the name of the union's member.
    tagged = field in ("weight", "keys") or (
        field == "clip" and loc[depth:] and loc[depth] in _CLIP
    )
    below = loc[depth + 1 :] if tagged and model in _TAGGED else loc[depth:]
    if field == "keys" and below and loc[depth] in KEYS:
        model, field = KEYS[str(loc[depth])], str(below[0])
        return f"{path}.{field}", model, field
    named = field in ("split", "weight", "public", "parts")
    path += "".join(step for step in map(_step, below) if named or step.startswith("["))
    return path, model, field


_TAGGED = (ColumnPart, QueryPart)
_CLIP = ("ends", "search")


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def _describe(
    where: str, model: type[BaseModel], field: str, problem: ErrorDetails, data: Mapping[str, Any]
) -> str:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        return f"{where} = {show(value)}: there is no field {field!r}; {suggest(field, fields)}"
    right = fields[field].description if field in fields else ""
    right = right or f"a section with fields such as {', '.join(list(fields)[:4])}"
    if kind == "missing":
        return f"{where} is missing; give {right}"
    if kind == "value_error":
        reason = str(problem.get("ctx", {})["error"])
    elif kind == "literal_error":
        known = re.findall(r"'([^']+)'", right)
        near = difflib.get_close_matches(str(value), known, n=1)
        other = SYNONYMS.get(str(value).casefold().replace("_", " ")) if field == "measure" else ""
        near = [other] if other in known else near
        reason = (f"did you mean {near[0]!r}? " if near else "") + f"must be {right}"
    else:
        reason = f"must be {right}"
    at = re.match(r"query\[(\d+)\]", where)
    if at:
        name = data["query"][int(at[1])]
        name = name.get("name") if check.is_mapping(name) else None
        where += f" (of query {name!r})" if isinstance(name, str) and field != "name" else ""
    return f"{where} = {show(value)}: {reason}"


def show(value: object) -> str:
    """Return a value as its author wrote it, cut to 80 characters."""
    if isinstance(value, Fraction):
        text = plain(value)
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = str(value) if isinstance(value, (Decimal, date, time)) else repr(value)
    return check.shortened(text)
