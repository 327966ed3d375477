"""Read how tables without noise follow from rows: ``method.toml``.

A table counts rows by columns, whose values a public map may put into categories. Then at most one
of these changes the counts:

- ``round``: each count becomes a multiple of this base: the nearest one, and the larger of two that
  are equally near. With ``random = true``, a count of q base + r becomes (q + 1) base with
  probability r / base, and q base otherwise, independently of all other counts.
- ``suppress``: a count from 1 to ``suppress`` - 1 becomes empty, and so does such a total. If then
  exactly one cell of a line is empty, and its total is not, the smallest count above 0 of the other
  cells becomes empty too: the complementary cell. Of equal counts it is the first, in the order of
  the categories.
- ``swap`` names a column. Each row is drawn with probability ``rate``, independently. Among the
  drawn rows of one category in each of the columns ``match``, the values of the column change
  places by a random permutation, and all permutations are equally likely. Then rows are counted.

``total`` names a column. The table then also has, for all values of its other columns, the count
over all values of this column: the total of a line. Totals are rounded and suppressed themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from neyman.publishing.plan.document import read_sections
from neyman.publishing.plan.field_types import Exact, PlanError, Several, Strict, show, suggest


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
Texts = Several[Text]
Base = Annotated[int, Field(ge=2, le=10**6)]


class TableMethod(Strict):
    """Define how one table follows from the rows."""

    by: Texts
    count: Text = "count"
    total: Text | None = None
    total_label: Text = "total"
    map: dict[str, dict[Text, Texts]] = Field(default={})
    round: Base | None = None
    random: bool = False
    suppress: Base | None = None
    swap: Text | None = None
    match: Texts = ()
    rate: Exact | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse fields that do not fit together."""
        named, swaps = {*self.map, *self.match, self.total, self.swap}, self.swap is not None
        for rule, met in {
            "by and count must name each column once": len({*self.by, self.count}) > len(self.by),
            f"map, match, total, and swap must name columns of by: {', '.join(self.by)}": (
                named <= {*self.by, None}
            ),
            "give one of round, suppress, and swap; random needs round, and match needs swap": (
                bool(self.round) + bool(self.suppress) + swaps < 2
                and self.random <= bool(self.round)
                and bool(self.match) <= swaps
            ),
            "swap needs a rate up to 1, takes no total, and must not be in match": (
                0 < self.rate <= 1 and not self.total and self.swap not in self.match
                if self.rate and swaps
                else not self.rate and not swaps
            ),
        }.items():
            if not met:
                raise ValueError(rule)
        return self

    @property
    def columns(self) -> Texts:
        """Return the columns in the order of the cells: ``match`` first, and lines along the last.

        The last column is the one of totals, or the one of swaps.
        """
        last = self.total or self.swap
        middle = (name for name in self.by if name not in {last, *self.match})
        return (*self.match, *middle, *filter(None, [last]))


class Method(Strict):
    """Define how tables about the same people follow from their rows.

    Args:
        attribute: the column that an attacker wants to know.
        values: the public values of columns. By default these are those of the maps, and those in
            tables without a map. A missing value is the empty text.
        table: one section [[table]] per table, in the order of the command line.
    """

    attribute: Text
    values: dict[str, Texts] = Field(default={})
    table: Several[TableMethod]

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = {name for table in self.table for name in table.by}
        for name in (self.attribute, *self.values):
            if name not in known:
                raise ValueError(f"no table counts by {name!r}; {suggest(name, sorted(known))}")
        return self


def read_method(path: Path) -> Method:
    """Read a method from a TOML file.

    Raises:
        ValueError: with each field that is unknown, missing, or wrong.
    """
    try:
        return Method.model_validate(read_sections(path))
    except PlanError as error:
        raise ValueError(f"--made-by{str(error).removeprefix('plan')}") from None
    except ValidationError as error:
        text = f"--made-by = {str(path)!r}:"
        for each in error.errors(include_url=False):
            loc, value = [*map(str, each["loc"])], each["input"]
            wrong = each["msg"].removeprefix("Value error, ").replace("tuple", "list")
            if each["type"] == "extra_forbidden":
                fields = (TableMethod if len(loc) > 1 else Method).model_fields
                wrong = f"there is no such field; {suggest(loc[-1], fields)}"
            given = "" if isinstance(value, dict) else f" = {show(value)}"
            text += f"\n  - {'.'.join(loc) or 'the method'}{given}: {wrong}"
        raise ValueError(text) from None
