"""Build the sections of a plan in Python. Each section is the dictionary that TOML would give."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, TypeAlias, TypedDict, Unpack, cast

from neyman.accounting.semantics.budget import budget_from
from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.listed_keys import MAX_RANGE_KEYS

Section: TypeAlias = dict[str, Any]
Exact: TypeAlias = int | float | str | Fraction
Pair: TypeAlias = Sequence[Exact]


@dataclass(frozen=True)
class Unit:
    """Define the privacy unit, and what may change about it.

    Args:
        protects: the privacy unit, such as "person".
        neighboring: "replace-one" or "add-remove".
        rows: the largest number of rows of one unit that count. More than 1 needs ``id``.
            "discover" takes a power of two from a noisy histogram. None stands for 1, and without
            ``id`` a plan warns of this assumption, unless the unit's name says that it is a row.
        id: the column that names the unit.
        rows_share: the part of the budget for this histogram.
        rows_above: the part of the units that may have more rows.

    Examples:
        >>> import neyman as ny
        >>> ny.Unit("patient", neighboring="add-remove", rows=5, id="patient_id").rows
        5
    """

    protects: str
    _: KW_ONLY
    neighboring: Neighboring
    rows: int | str | None = None
    id: str | None = None
    rows_share: Exact | None = None
    rows_above: Exact | None = None


class QueryOptions(TypedDict, total=False):
    """Define the fields that every query takes. The plan's page in the docs describes them."""

    name: str
    table: str
    by: str | Sequence[str]
    detail: Sequence[Sequence[str]]
    thresholds: Sequence[int]
    first_share: Exact
    at: str | Sequence[str]
    where: str
    groups: int
    rows_per_group: int
    delta: Exact
    clip_share: Exact
    clip_above: Exact
    share: Exact
    split: Mapping[str, Exact]
    weight: Exact | Mapping[str, Exact]
    public: Mapping[str, int]
    partition: str
    parts: Mapping[str, Mapping[str, Any]]


class QuantileOptions(QueryOptions, total=False):
    """Define the additional fields of a query for quantiles."""

    edges: Sequence[Exact]
    clip: Pair | str | Mapping[str, object]
    method: str


def keys(values: object, unknown: object = None) -> Section:
    """Return a column of public keys to group by.

    Args:
        values: a list of texts, integers, or true/false; a range of integers or of dates, such as
            ``{"from": 0, "to": 120}`` or ``{"from": "2023-01-01", "to": "2024-12-31", "step":
            "month"}``, both ends included; or a column of a public file, ``{"file": "states.csv",
            "column": "code"}``.
        unknown: "drop" (the default), or the key for rows with another value.

    Raises:
        TypeError: ``values`` is none of these, or a set. A plan's hash depends on the order of its
            keys, and a set's order changes between Python processes.
        ValueError: a Python range has more than a million numbers.

    Examples:
        >>> import neyman as ny
        >>> ny.keys(["m", "f"], unknown="drop")
        {'keys': ['m', 'f'], 'unknown': 'drop'}
        >>> ny.keys({"from": 0, "to": 120})
        {'keys': {'from': 0, 'to': 120}}
    """
    given = cast("Iterable[object]", values)
    if isinstance(values, range) and len(values[: MAX_RANGE_KEYS + 1]) > MAX_RANGE_KEYS:
        raise ValueError(f"values = {values!r} must list at most {MAX_RANGE_KEYS} keys")
    if isinstance(values, AbstractSet) and not isinstance(values, KeysView):
        raise TypeError(
            f"values is a {type(given).__name__} and must be a list of keys: a set has another "
            "order in each process, and so the plan another hash; give sorted(values)"
        )
    try:
        plain = given if isinstance(values, (str, Mapping)) else list(given)
    except TypeError:
        raise TypeError(f"values = {values!r} must be a list of keys, such as ['m', 'f']") from None
    return {"keys": plain} if unknown is None else {"keys": plain, "unknown": unknown}


def count(**options: Unpack[QueryOptions]) -> Section:
    """Return a query for the number of rows in each cell.

    Args:
        **options: the fields of a query, such as ``by``, ``at``, ``where``, ``share``, ``name``.

    Examples:
        >>> import neyman as ny
        >>> ny.query.count(by=["sex"], share="1/2")
        {'measure': 'count', 'by': ['sex'], 'share': '1/2'}
    """
    return _query("count", options)


def units(**options: Unpack[QueryOptions]) -> Section:
    """Return a query for the number of distinct units in each cell.

    Args:
        **options: the fields of a query. Discovered keys need ``delta``.

    Examples:
        >>> import neyman as ny
        >>> ny.query.units(by="word", delta="1e-9")
        {'measure': 'units', 'by': ['word'], 'delta': '1e-9'}
    """
    return _query("units", options)


def sum(column: str, *, clip: Pair | str, **options: Unpack[QueryOptions]) -> Section:  # noqa: A001
    """Return a query for the sum of a column's clipped values.

    Args:
        column: the column to sum.
        clip: [low, high], in the column's units; "discover" for [0, B]; or "discover-signed" for
            [-B, B]. B is a power of two from a noisy histogram.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.sum("pay", clip=(0, 100))
        {'measure': 'sum', 'column': 'pay', 'clip': [0, 100]}
    """
    return _query("sum", options, column=column, clip=clip)


def mean(column: str, *, clip: Pair | str, **options: Unpack[QueryOptions]) -> Section:
    """Return a query for the mean of a column's clipped values.

    Args:
        column: the column to average.
        clip: as for `sum`.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.mean("pay", clip=(0, 100))["measure"]
        'mean'
    """
    return _query("mean", options, column=column, clip=clip)


def variance(column: str, *, clip: Pair, **options: Unpack[QueryOptions]) -> Section:
    """Return a query for the variance of a column's clipped values.

    Args:
        column: the column to measure.
        clip: [low, high], in the column's units.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.variance("age", clip=(0, 120))["clip"]
        [0, 120]
    """
    return _query("variance", options, column=column, clip=clip)


def standard_deviation(column: str, *, clip: Pair, **options: Unpack[QueryOptions]) -> Section:
    """Return a query for the standard deviation of a column's clipped values.

    Args:
        column: the column to measure.
        clip: [low, high], in the column's units.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.standard_deviation("age", clip=(0, 120))["measure"]
        'standard_deviation'
    """
    return _query("standard_deviation", options, column=column, clip=clip)


def ratio(
    column: str,
    *,
    over: str,
    clip: Pair,
    clip_over: Pair,
    complete: bool = False,
    **options: Unpack[QueryOptions],
) -> Section:
    """Return a query for the sum of a column divided by the sum of another.

    Args:
        column: the column of the numerator.
        over: the column of the denominator.
        clip: [low, high] of ``column``.
        clip_over: [low, high] of ``over``, low at least 0.
        complete: True to count only rows with both numbers. Otherwise a missing number adds nothing
            to its own sum, as in SQL's SUM(a) / SUM(b).
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.ratio("paid", over="items", clip=(0, 1000), clip_over=(1, 50))["over"]
        'items'
    """
    ends = {"clip": clip, "over": over, "clip_over": clip_over}
    both = check.truth("complete", complete) or None
    return _query("ratio", options, column=column, **ends, complete=both)


def distinct(column: str, **options: Unpack[QueryOptions]) -> Section:
    """Return a query for the number of distinct values of a column in each cell.

    Args:
        column: the column whose values are counted. It has keys, or ``discover``.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.distinct("product", by="shop")
        {'measure': 'distinct', 'column': 'product', 'by': ['shop']}
    """
    return _query("distinct", options, column=column)


def median(column: str, **fields: Unpack[QuantileOptions]) -> Section:
    """Return a query for the median of a column.

    Args:
        column: the column to measure.
        **fields: ``edges`` of the bins, or ``clip`` and perhaps a ``method``; and the
            fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.median("age", edges=[0, 40, 80, 120])["measure"]
        'median'
    """
    return _query("median", fields, column=column)


def min(column: str, **fields: Unpack[QuantileOptions]) -> Section:  # noqa: A001
    """Return a query for the 1% quantile of a column, which is near its least value.

    Args:
        column: the column to measure.
        **fields: as for `median`.

    Examples:
        >>> import neyman as ny
        >>> ny.query.min("age", edges=[0, 40, 80, 120])["measure"]
        'min'
    """
    return _query("min", fields, column=column)


def max(column: str, **fields: Unpack[QuantileOptions]) -> Section:  # noqa: A001
    """Return a query for the 99% quantile of a column, which is near its largest value.

    Args:
        column: the column to measure.
        **fields: as for `median`.

    Examples:
        >>> import neyman as ny
        >>> ny.query.max("age", edges=[0, 40, 80, 120])["measure"]
        'max'
    """
    return _query("max", fields, column=column)


def histogram(column: str, *, edges: Sequence[Exact], **options: Unpack[QueryOptions]) -> Section:
    """Return a query for the number of rows in each bin of a column.

    Args:
        column: the column to put into bins.
        edges: rising edges of the bins, at least two.
        **options: the fields of a query.

    Examples:
        >>> import neyman as ny
        >>> ny.query.histogram("age", edges=[0, 18, 65, 120])["edges"]
        [0, 18, 65, 120]
    """
    return _query("histogram", options, column=column, edges=edges)


def quantiles(
    column: str, *, quantiles: Sequence[Exact], **fields: Unpack[QuantileOptions]
) -> Section:
    """Return a query for quantiles of a column.

    Args:
        column: the column to measure.
        quantiles: rising numbers between 0 and 1. 0.5 is the median.
        **fields: as for `median`.

    Examples:
        >>> import neyman as ny
        >>> ny.query.quantiles("age", edges=[0, 40, 80, 120], quantiles=["0.5"])["quantiles"]
        ['0.5']
    """
    return _query("quantiles", fields, column=column, quantiles=quantiles)


def _query(measure: str, options: Mapping[str, object], **more: object) -> Section:
    fields: Section = {"measure": measure, **more, **options}
    for name in ("by", "at"):
        if isinstance(fields.get(name), str):
            fields[name] = [fields[name]]
    return {name: listed(value) for name, value in fields.items() if value is not None}


def listed(value: object) -> object:
    """Return the value with lists instead of tuples, as in a TOML file."""
    if check.is_mapping(value):
        return {name: listed(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [listed(part) for part in cast("Iterable[object]", value)]
    return value


def document_of(fields: Mapping[str, Any]) -> Section:
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
