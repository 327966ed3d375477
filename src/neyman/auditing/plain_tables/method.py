"""Read how tables without noise follow from rows: ``method.toml``.

A table counts rows by columns, whose values a public map may put into categories. Then at most one
of these changes the counts:

- ``round``: each count becomes a multiple of this base: the nearest one, and the larger of two that
  are equally near. With ``random = true``, a count of q base + r becomes (q + 1) base with
  probability r / base, and q base otherwise, independently of all other counts.
- ``suppress``: a count from 1 to ``suppress`` - 1 becomes empty, and so does such a total. If a line
  whose total is not empty then has exactly one empty cell, the smallest count above 0 of its other
  cells becomes empty too: the complementary cell. Of equal counts it is the first, in the order of
  the categories.
- ``swap`` names a column. Each row is drawn with probability ``rate``, independently. Among the
  drawn rows that agree in the columns ``match``, the values of the column change places by a random
  permutation, and all permutations are equally likely. Then the rows are counted.

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


Text = Annotated[str, BeforeValidator(_text), Field(min_length=1)]
Texts = Annotated[Several[Text], Field(min_length=1)]
Base = Annotated[int, Field(ge=2, le=10**6)]


class TableMethod(Strict):
    """Define how one table follows from the rows."""

    by: Texts
    count: Text = "count"
    total: Text | None = None
    total_label: Text = "total"
    map: dict[str, dict[Text, Texts]] = {}
    round: Base | None = None
    random: bool = False
    suppress: Base | None = None
    swap: Text | None = None
    match: Several[Text] = ()
    rate: Exact | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse fields that do not fit together."""
        for name in (*self.map, *self.match, self.total, self.swap):
            if name is not None and name not in self.by:
                raise ValueError(f"{name!r} is no column of 'by'; {suggest(name, self.by)}")
        swap = self.swap is not None
        for wrong, right in (
            (len({*self.by, self.count}) <= len(self.by), "'by' and 'count' name a column once"),
            (
                sum(map(bool, (self.round, self.suppress, swap))) > 1,
                "a table takes one of round, suppress, and swap",
            ),
            (self.random and not self.round, "random = true needs round"),
            (
                swap != (self.rate is not None) or (self.match and not swap),
                "swap and rate need each other, and match needs them",
            ),
            (
                self.rate is not None and (self.total or self.rate > 1 or self.swap in self.match),
                "swap takes a rate up to 1, no total, and is not in match",
            ),
        ):
            if wrong:
                raise ValueError(f"must be changed: {right}")
        return self

    @property
    def is_exact(self) -> bool:
        """Return True if nothing changes the counts."""
        return not (self.round or self.suppress or self.swap)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns in the order of the cells: ``match`` first, and lines along the last.

        The last column is the one of totals, or the one of swaps.
        """
        last = self.total or self.swap
        middle = [name for name in self.by if name != last and name not in self.match]
        return (*self.match, *middle, *([last] if last else []))


class Method(Strict):
    """Define how tables about the same people follow from their rows.

    Args:
        attribute: the column that an attacker wants to know.
        missing: the text that stands for no value.
        values: the public values of columns. By default these are those of the maps, and those in
            tables without a map.
        table: one section [[table]] per table, in the order of the command line.
    """

    attribute: Text
    missing: Text | None = None
    values: dict[str, Texts] = {}
    table: Annotated[Several[TableMethod], Field(min_length=1)]

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
        problems = ""
        for each in error.errors(include_url=False):
            where, wrong = (
                ".".join(map(str, each["loc"])),
                each["msg"].removeprefix("Value error, "),
            )
            if each["type"] == "extra_forbidden":
                fields = (TableMethod if len(each["loc"]) > 1 else Method).model_fields
                wrong = f"there is no such field; {suggest(each['loc'][-1], fields)}"
            given = "" if isinstance(each["input"], dict) else f" = {show(each['input'])}"
            problems += f"\n  - {where or 'the method'}{given}: {wrong}"
        raise ValueError(f"--made-by = {str(path)!r}:{problems}") from None
