"""Read the document of a plan from TOML or from a dictionary, and report all errors."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, Tag, ValidationError
from pydantic_core import ErrorDetails

from neyman.numerics import check
from neyman.publishing.plan.field_types import PlanError, Several, show, suggest
from neyman.publishing.plan.measures import (
    MEASURES,
    SYNONYMS,
    Count,
    Distinct,
    Histogram,
    Maximum,
    Mean,
    Median,
    Minimum,
    Quantiles,
    Ratio,
    StandardDeviation,
    Sum,
    Units,
    Variance,
)
from neyman.publishing.plan.plan_fields import (
    BudgetPart,
    ColumnPart,
    ConsistencyPart,
    CorrectsPart,
    DerivePart,
    HierarchyPart,
    KeyFilePart,
    KeyRangePart,
    LookupPart,
    PlanSections,
    SourcePart,
    TablePart,
    TotalsPart,
    UnitPart,
)
from neyman.publishing.plan.query_part import QueryPart
from neyman.storage.reading import read_file


class NoMeasure(QueryPart):
    """Define a query without a known measure, whose other fields are checked as far as they can."""

    model_config = ConfigDict(extra="ignore")


def _measure_meant(word: object) -> str | None:
    """Return the measure that a word names, or comes near to; None if there is none."""
    if (named := next((noun for noun in MEASURES if noun == word), None)) is not None:
        return named
    other = SYNONYMS.get(str(word).casefold().replace("_", " "))
    near = difflib.get_close_matches(str(word), MEASURES, n=1)
    return other or (near[0] if near else None)


def _class_of(value: object) -> str:
    word = value.get("measure") if check.is_mapping(value) else None
    return _measure_meant(word) or "none"


AnyQuery: TypeAlias = Annotated[
    Annotated[Count, Tag(Count.noun)]
    | Annotated[Units, Tag(Units.noun)]
    | Annotated[Distinct, Tag(Distinct.noun)]
    | Annotated[Sum, Tag(Sum.noun)]
    | Annotated[Mean, Tag(Mean.noun)]
    | Annotated[Variance, Tag(Variance.noun)]
    | Annotated[StandardDeviation, Tag(StandardDeviation.noun)]
    | Annotated[Ratio, Tag(Ratio.noun)]
    | Annotated[Histogram, Tag(Histogram.noun)]
    | Annotated[Quantiles, Tag(Quantiles.noun)]
    | Annotated[Median, Tag(Median.noun)]
    | Annotated[Minimum, Tag(Minimum.noun)]
    | Annotated[Maximum, Tag(Maximum.noun)]
    | Annotated[NoMeasure, Tag("none")],
    Discriminator(_class_of),
]
"""A query, of the class of its measure."""


class PlanDocument(PlanSections):
    """Define a release plan."""

    query: Several[AnyQuery] = Field(description="one or more [[query]] sections", min_length=1)
    _foreign: tuple[str, ...] = PrivateAttr(())

    @property
    def foreign(self) -> tuple[str, ...]:
        """Return a problem for each field of a query that only other measures take."""
        return self._foreign

    @classmethod
    def of(cls, content: Mapping[str, Any], foreign: Iterable[str]) -> Self:
        """Return the document of a dictionary whose queries have no field of other measures."""
        document = cls.model_validate(content)
        document._foreign = tuple(foreign)
        return document


def _own_fields(queries: object, foreign: list[str]) -> object:
    """Return queries without the fields that only other measures take. Report each that is set."""
    if not check.is_list(queries):
        return queries
    every = {name for kind in MEASURES.values() for name in kind.model_fields}
    result: list[object] = []
    for index, query in enumerate(queries):
        kind = MEASURES.get(_class_of(query))
        if kind is None or not check.is_mapping(query):
            result.append(query)
            continue
        others = every - kind.model_fields.keys()
        result.append({name: value for name, value in query.items() if name not in others})
        for name, value in query.items():
            if name in others and value is not None and value is not False and value != {}:
                spot = f"query[{index}].{name} (of query {query.get('name', kind.noun)!r})"
                takers = [one.noun for one in MEASURES.values() if name in one.model_fields]
                alone = f", only a {takers[0]}" if len(takers) == 1 else ""
                problem = f"a {kind.noun} takes none{alone}; leave it out"
                foreign.append(f"{spot} = {show(value)}: {problem}")
    return result


PARTS: Mapping[str, Sequence[type[BaseModel]]] = {
    "source": [SourcePart],
    "unit": [UnitPart],
    "tables": [TablePart],
    "columns": [ColumnPart],
    "derive": [DerivePart],
    "lookup": [LookupPart],
    "hierarchy": [HierarchyPart],
    "budget": [BudgetPart],
    "consistency": [ConsistencyPart],
    "corrects": [CorrectsPart],
    "totals": [TotalsPart],
    "query": [QueryPart, *MEASURES.values()],
}
"""The sections of a plan. The page docs/plan.md and the JSON schema list their fields."""

KEYS: Mapping[str, type[BaseModel]] = {"range": KeyRangePart, "file": KeyFilePart}
"""The forms of a column's ``keys`` other than a list."""


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a plan, with the sections by their names in TOML."""
    schema = PlanDocument.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    del parts[NoMeasure.__name__]
    items = schema["properties"]["query"]["items"]
    items["oneOf"] = [one for one in items["oneOf"] if not one["$ref"].endswith(NoMeasure.__name__)]
    for name, kinds in PARTS.items():
        for kind in kinds:
            if kind is not QueryPart:
                parts[kind.__name__]["title"] = f"[{name}]"
    for kind in MEASURES.values():
        fields = parts[kind.__name__]["properties"]
        fields["measure"] = {"const": kind.noun, "description": "the measure"}
        del fields["name"]["default"]  # the measure is the default
    for part in KEYS.values():
        parts[part.__name__]["title"] = "keys of [columns]"
    for part in (schema, *parts.values()):
        for field in part["properties"].values():
            field.pop("title", None)
    return schema


def sections_of(text: str) -> dict[str, Any]:
    """Return the dictionary of a plan's TOML, with numbers as exact decimals.

    Raises:
        ValueError, ArithmeticError, RecursionError: as `tomllib.loads` does.
    """
    return tomllib.loads(text, parse_float=Decimal)


def read_sections(path: Path) -> dict[str, Any]:
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
    foreign: list[str] = []
    content["query"] = _own_fields(content.get("query"), foreign)
    try:
        return PlanDocument.of(content, foreign)
    except ValidationError as error:
        # The same field may fail as each member of a union. One line is enough.
        messages: dict[str, str] = {}
        for problem in error.errors(include_url=False):
            if problem["type"] == "too_short" and problem["input"]:
                continue  # only because each item failed, which another line reports
            where, model, field = _locate(problem["loc"])
            messages.setdefault(where, _describe(where, model, field, problem, data))
        raise PlanError([*foreign, *messages.values()]) from None


def divide_shares(document: PlanDocument) -> PlanDocument:
    """Scale the queries' relative shares so that, with what is unspent, they sum to 1.

    A query without a share has the share 1, unless it is declared public or fixed by the totals.
    """
    free = [bool(part.public_levels) or part.is_fixed(document) for part in document.query]
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
        model = PARTS[str(loc[0])][0]
        nested = loc[0] in ("tables", "columns", "derive", "lookup", "hierarchy", "totals", "query")
        depth = 3 if nested else 2
        if nested:
            path += _step(loc[1])
        if loc[0] == "query" and len(loc) > 2:
            model = MEASURES.get(str(loc[2]), NoMeasure)
            loc = (*loc[:2], *loc[3:])
        if len(loc) >= depth:
            path += f".{loc[depth - 1]}"
    field = str(loc[depth - 1]) if len(loc) >= depth else ""
    below = loc[depth + _has_tag(model, field, loc[depth : depth + 1]) :]
    if field == "keys" and below and loc[depth] in KEYS:
        model, field = KEYS[str(loc[depth])], str(below[0])
        return f"{path}.{field}", model, field
    named = field in ("split", "weight", "public", "parts")
    path += "".join(step for step in map(_step, below) if named or step.startswith("["))
    return path, model, field


def _has_tag(model: type[BaseModel], field: str, below: tuple[int | str, ...]) -> bool:
    """Return True if the name of a union's member comes after the field."""
    tagged = field in ("weight", "keys")
    tagged |= field == "clip" and not {*below}.isdisjoint({"ends", "search"})
    return tagged and issubclass(model, (ColumnPart, QueryPart))


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def _describe(
    where: str, model: type[BaseModel], field: str, problem: ErrorDetails, data: Mapping[str, Any]
) -> str:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    kind, value, at = problem["type"], problem["input"], re.match(r"query\[(\d+)\]", where)
    spot = where
    if at:
        query = data["query"][int(at[1])]
        name = query.get("name", query.get("measure")) if check.is_mapping(query) else None
        spot += f" (of query {name!r})" if isinstance(name, str) and field != "name" else ""
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
        meant = _measure_meant(value) if field == "measure" else None
        near = [meant] if meant else near
        reason = (f"did you mean {near[0]!r}? " if near else "") + f"must be {right}"
    else:
        reason = f"must be {right}"
    return f"{spot} = {show(value)}: {reason}"
