"""Read how tables without noise follow from rows: ``method.toml``.

A table counts rows by columns, whose values a public map may put into categories. Then at most one
of these changes the counts:

- ``round``: each count becomes a multiple of the base. The nearest one, and the larger of two that
  are equally near. With ``random``, a count of q base + r becomes (q + 1) base with probability
  r / base, and q base otherwise, independently of all other counts.
- ``suppress``: a count from 1 to below - 1 becomes empty, and so does such a total. If a line with a
  total that is not empty then has exactly one empty cell, the smallest count above 0 of its other
  cells becomes empty too: the complementary cell. Of equal counts it is the first, in the order of
  the categories.
- ``swap``: each row is drawn with probability ``rate``, independently. Among the drawn rows that
  agree in the columns ``match``, the values of ``column`` change places by a random permutation,
  and all permutations are equally likely. Then the rows are counted.

``total`` names a column. The table then also has, for all values of its other columns, the count
over all values of this column. Totals are rounded and suppressed by themselves.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from neyman.publishing.plan.document import read_sections
from neyman.publishing.plan.field_types import Exact, PlanError, Several, Strict, show, suggest


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text), Field(min_length=1)]
Texts = Annotated[Several[Text], Field(min_length=1)]


class Rounding(Strict):
    """Define the rounding of each count."""

    base: int = Field(ge=2, le=10**6, description="a whole number from 2 to 1,000,000")
    random: bool = Field(default=False, description="true for random rounding")


class Suppression(Strict):
    """Define which small counts are left empty."""

    below: int = Field(ge=2, le=10**6, description="a whole number from 2 to 1,000,000")


class Swaps(Strict):
    """Define which values of rows change places."""

    column: Text = Field(description="the column of 'by' whose values change places")
    match: Several[Text] = Field(default=(), description="columns of 'by' in which rows agree")
    rate: Exact = Field(description="the probability above 0, up to 1, that a row is drawn")


class TableMethod(Strict):
    """Define how one table follows from the rows."""

    by: Texts = Field(description="the columns by which the table counts, such as ['county']")
    count: Text = Field(default="count", description="the name of the column of counts")
    total: Text | None = Field(default=None, description="a column of 'by' with a total")
    total_label: Text = Field(default="total", description="the text that stands for the total")
    map: dict[str, dict[Text, Texts]] = Field(
        default={}, description="for columns, lists of values by category"
    )
    round: Rounding | None = Field(default=None, description="a section with base and random")
    suppress: Suppression | None = Field(default=None, description="a section with below")
    swap: Swaps | None = Field(default=None, description="a section with column, match and rate")

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse parts that do not fit together."""
        swap, changes = self.swap, ("round", "suppress", "swap")
        if len({*self.by, self.count}) <= len(self.by):
            raise ValueError("'by' and 'count' must name each column once")
        given = [name for name in changes if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both given; one table takes one of them")
        named = [*self.map, *filter(None, [self.total])]
        named += [swap.column, *swap.match] if swap else []
        for name in named:
            if name not in self.by:
                raise ValueError(f"{name!r} is no column of 'by'; {suggest(name, self.by)}")
        if swap and (self.total or swap.rate > 1 or swap.column in swap.match):
            raise ValueError(
                "swap takes a rate up to 1, a column that is not in match, and no total, which "
                "the counts add up to"
            )
        for column, categories in self.map.items():
            times = Counter(value for values in categories.values() for value in values)
            if twice := [value for value, number in times.items() if number > 1]:
                raise ValueError(
                    f"the map of {column!r} lists {show(twice)} twice; list each value once"
                )
        return self


class Method(Strict):
    """Define how tables about the same people follow from their rows."""

    attribute: Text = Field(description="the column that an attacker wants to know")
    missing: Text | None = Field(default=None, description="the text that stands for no value")
    values: dict[str, Texts] = Field(
        default={}, description="for columns without a map, the public list of values"
    )
    table: Annotated[Several[TableMethod], Field(min_length=1)] = Field(
        description="one section [[table]] per table, in the order of the command line"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = {name for table in self.table for name in table.by}
        for name in (self.attribute, *self.values):
            if name not in known:
                raise ValueError(f"no table counts by {name!r}; {suggest(name, sorted(known))}")
        return self


_MODELS: dict[str, type[BaseModel]] = {
    "table": TableMethod,
    "round": Rounding,
    "suppress": Suppression,
    "swap": Swaps,
}


def read_method(path: Path) -> Method:
    """Read a method from a TOML file.

    Raises:
        ValueError: with each field that is unknown, missing, or wrong.
    """
    try:
        return Method.model_validate(read_sections(path))
    except PlanError as error:
        raise ValueError(f"--made-by{str(error).removeprefix('plan =')}") from None
    except ValidationError as error:
        found = "\n  - ".join(
            _describe(problem["loc"], problem["type"], problem["input"], problem.get("ctx", {}))
            for problem in error.errors(include_url=False)
        )
        raise ValueError(f"--made-by {str(path)!r}:\n  - {found}") from None


def _describe(
    loc: tuple[int | str, ...], kind: str, value: object, context: dict[str, object]
) -> str:
    """Describe a problem: the field, its value, and what is valid."""
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).strip(".")
    names = [step for step in loc if isinstance(step, str)]
    model = next((_MODELS[name] for name in reversed(names[:-1]) if name in _MODELS), Method)
    if kind == "extra_forbidden":
        return f"{where} = {show(value)}: no such field; {suggest(names[-1], model.model_fields)}"
    if kind == "value_error" and "error" in context and isinstance(value, dict):
        return f"{where or 'the method'}: {context['error']}"
    field = next((model.model_fields[name] for name in names if name in model.model_fields), None)
    right = (field.description if field else None) or "a section"
    return (
        f"{where} is missing; give {right}"
        if kind == "missing"
        else (f"{where} = {show(value)}: must be {right}")
    )
