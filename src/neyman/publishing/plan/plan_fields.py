"""Define the sections of a plan other than its queries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch
from neyman.publishing.plan.field_types import (
    LIMITS,
    Dataset,
    DateFormat,
    Encoding,
    End,
    Exact,
    FileName,
    Key,
    Line,
    Name,
    Names,
    Number,
    Numbers,
    PublicRows,
    Several,
    Strict,
    Text,
    Texts,
    Unknown,
    Unspent,
    Zone,
    as_tuple,
    choices,
    plan_key,
)
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS

ConsistencyMethod = Literal["least-squares", "nonnegative", "integer"]
"""How noisy tables are adjusted so that they add up."""

NoiseKind = Literal["discrete-gaussian", "rounded-gaussian"]
"""The kind of integer noise of a plan's tables."""

Duplicates = Literal["drop", "least"]
"""Which row of a unit with several rows a joined table uses: no row, or the least row."""


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


def _total_key(value: object) -> str | int | bool:
    return "" if value == "" else plan_key(value)  # the name below a place that ends above


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
    encoding: Encoding = Field(default="utf-8", description=choices(Encoding))
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


class PlanSections(Strict):
    """Define the sections of a release plan other than its queries."""

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

    def rows_of(self, table: str | None) -> int:
        """Return the largest number of rows of one unit that count in a table."""
        part = self.tables.get(table or self.table)
        return self.unit.rows if part is None else part.rows
