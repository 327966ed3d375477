"""What samples are made from: plans of every field, a table, and dp_accounting events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from neyman.numerics.relation import Neighboring

__all__ = ["DATA", "DP_EVENTS", "MORE_MECHANISMS", "PLANS", "RELEASED", "table", "write_plans"]

MORE_MECHANISMS = [
    "ny.Staircase(F(3, 2), 2, cost='squared') * 2 + ny.Staircase(1, gamma=F(1, 3))",
    "ny.InverseSensitivity(F(1, 4), [(1, 1), (2,)], draws=2) + ny.Gaussian(3)",
    "CircularGaussian(361, F(81, 2), 30) * 2",
    "ny.Federated(clients=10, sigma=2, rounds=9, record_rate=.1, records=50, local_steps=2)",
    "ny.Federated(clients=20, client_rate=F(1, 4), sigma=F(3, 2), rounds=9, protects='client', "
    "against='public', least_participants=5, colluding=1)",
    "ny.Federated(clients=20, sigma=1, rounds=9, secure_aggregation=True, least_participants=15)",
    "ny.PosteriorSample(lipschitz=F(1, 3), convexity=4)",
    "ny.PosteriorSample(lipschitz=1, convexity=4, exact=False, total_variation=1e-9)",
    "ny.PosteriorSample(lipschitz=1, convexity=4, exact=False, wasserstein=.01, sigma=.1) * 2",
    "from_dp_event(ev.TruncatedSubsampledGaussianDpEvent(100, 0.3, 20, 1.0), 'add-remove')",
    "ny.select_best(ny.Gaussian(4), runs=ny.Runs.negative_binomial(5, F(-1, 2))) + ny.Laplace(9)",
    "ny.select_best(ny.Laplace(4), runs=ny.Runs.poisson(3)) * 2",
    "ny.PersonalBudgets(ny.Laplace(1), (F(1, 3), 0.5, 2)) * 3",
    "ny.ProposeTestRelease(ny.DiscreteLaplace(F(3, 2)), ny.DiscreteLaplace(4, 2), 1e-6) * 2",
    "ny.ProposeTestRelease(ny.Laplace(2), None, F(1, 1000))",
    "ny.SmoothNoise('student', 3, 0.1, F(3, 10)) * 2",
    "ny.Laplace(scale=F('0.1'), sensitivity=3) * 2 + ny.NonPrivate(F(1, 1000), 'add-remove')",
    "ny.Mechanism.from_dict({'type': 'Alternatives', 'mechanisms': [ny.Gaussian(2).to_dict(), "
    "(ny.Gaussian(3) + ny.Laplace(4)).to_dict()]}) + ny.Gaussian(5)",
]
"""Mechanisms of which the golden file has no case."""

_HEAD = """\
schema = 2
name = "{name}"
dataset = "{name}@1"
table = "t"
[unit]
protects = "person"
neighboring = "{relation}"
"""

_MEASURES = """\
[columns.race]
keys = ["a", "b", "c"]
unknown = "c"
[columns.age]
integer = true
unknown = 0
[columns.pay]
decimals = 2
unknown = 12.5
[hierarchy.place]
levels = ["state", "county"]
keys = "places.csv"
unknown = "9"
integer = ["county"]
[budget]
zcdp = "1/10"
[consistency]
method = "nonnegative"
[[query]]
name = "total"
measure = "count"
at = ["state", "county"]
share = "1/4"
split = { state = "1/3", county = "2/3" }
weight = { county = 3 }
[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["county"]
share = "1/4"
weight = 2
[[query]]
name = "mean age"
measure = "mean"
column = "age"
clip = [-20, 100]
share = "1/8"
[[query]]
name = "spread"
measure = "variance"
column = "pay"
clip = [0, 500.25]
share = "1/8"
[[query]]
name = "pay"
measure = "sum"
column = "pay"
clip = [0, 500]
at = ["state"]
share = "1/16"
[[query]]
name = "bins"
measure = "histogram"
column = "pay"
edges = [0, 100, 500]
share = "1/16"
[[query]]
name = "ages"
measure = "quantiles"
column = "age"
edges = [0, 20, 40, 60, 80, 100]
quantiles = [0.25, 0.5]
share = "1/8"
"""

_UNITS = """\
rows = 4
id = "who"
[columns.race]
keys = ["a", "b", "c"]
[columns.town]
discover = true
[budget]
zcdp = 1
delta = "1/1000"
[[query]]
name = "people"
measure = "units"
by = ["race"]
groups = 2
share = "1/2"
[[query]]
name = "rows"
measure = "count"
by = ["race"]
groups = 2
rows_per_group = 3
share = "1/4"
[[query]]
name = "towns"
measure = "units"
by = ["town"]
groups = 1
delta = "1/2000"
share = "1/4"
"""

_POWER = """\
[columns.sex]
keys = [true, false]
unknown = "drop"
[hierarchy.place]
levels = ["country", "state"]
keys = [["US", "A"], ["US", "B"]]
[source]
delimiter = ";"
encoding = "latin-1"
compression = "gzip"
[budget]
power = 0.25
level = 0.05
[consistency]
method = "integer"
[[query]]
name = "all"
measure = "count"
at = ["country", "state"]
public = { country = 60 }
share = "1/2"
[[query]]
name = "sex"
measure = "count"
by = ["sex"]
share = "1/2"
"""

_SMALL = """\
[columns.race]
keys = ["a", "b", "c"]
[budget]
{budget}
[consistency]
method = "least-squares"
[[query]]
name = "race"
measure = "count"
by = ["race"]
share = 1
"""


def _plan(name: str, relation: str, rest: str, top: str = "") -> str:
    head = _HEAD.format(name=name, relation=relation)
    return head.replace("[unit]", f"{top}[unit]") + rest


_ROWS = """
[columns.age]
type = "whole"

[columns.pay]
decimals = 1

[columns.town]
type = "text"

[derive.band]
cut = "age"
edges = [0, 30, "64.0", 120]
labels = ["young", "middle", "old"]
unknown = "old"

[derive.twice]
expression = "age * 2"
range = [0, 200]

[derive.site]
map = "town"
to = { x = "main", y = "other" }
unknown = "other"

[derive.kind]
case = [["band == 'old' and pay > 150.5", "a"], ["not (age < 40)", "b"]]

[lookup.part]
column = "column('town')"
on = "town"
keys = "parts.csv"
unknown = "elsewhere"

[budget]
zcdp = 1

[[query]]
name = "bands"
measure = "count"
where = "twice >= 50"
by = ["band", "site", "kind", "part"]
share = "1/2"

[[query]]
name = "twice"
measure = "sum"
column = "twice"
clip = [0, 150]
share = "1/2"
"""

_MORE = """
[columns.pay]
decimals = 1

[columns.age]
integer = true

[columns.town]
discover = true

[budget]
zcdp = 1

[[query]]
name = "rate"
measure = "ratio"
column = "pay"
clip = [0, "100.5"]
over = "age"
clip_over = [1, 100]
share = "1/2"

[[query]]
name = "spread"
measure = "standard_deviation"
column = "pay"
clip = [0, 100]
share = "1/10"

[[query]]
name = "towns"
measure = "distinct"
column = "town"
share = "1/10"

[[query]]
name = "middle"
measure = "median"
column = "age"
method = "inverse-sensitivity"
clip = [0, 100]
share = "1/10"

[[query]]
name = "least"
measure = "min"
method = "bins"
column = "age"
edges = [0, 50, 100]
share = "1/10"

[[query]]
name = "most"
measure = "max"
column = "age"
edges = [0, 50, 100]
share = "1/10"
"""

_KEYS = """\
rows = 3
id = "id"
[columns.age]
keys = { from = 0, to = 100, step = 10 }
[columns.month]
keys = { from = 2023-12-01, to = 2024-02-01, step = "month" }
[columns.town]
keys = { file = "places.csv", column = "county", integer = true }
[columns.admitted]
type = "date"
[columns.pay]
integer = true
[columns.word]
discover = true
[derive.month]
expression = "period(admitted, 'month')"
[budget]
zcdp = 1
delta = "1e-6"
[[query]]
measure = "count"
by = ["age", "month"]
share = "1/4"
[[query]]
measure = "units"
by = ["town"]
share = "1/4"
[[query]]
name = "words"
measure = "count"
by = ["word"]
delta = "1e-8"
share = "1/4"
[[query]]
measure = "sum"
column = "pay"
clip = [0, 10]
by = ["word"]
delta = "1e-8"
share = "1/4"
"""

_JOINED = """schema = 2
name = "joined"
dataset = "clinic@1"
table = "visits"

[unit]
protects = "patient"
neighboring = "add-remove"
id = "patient"
rows = 3

[tables.people]
id = "id"
join = ["sex"]
duplicates = "drop"

[tables.bills]
rows = 2

[columns]
sex = { keys = ["f", "m"] }
paid = { integer = true }

[budget]
zcdp = "1/2"

[[query]]
name = "visits"
measure = "count"
by = ["sex"]
share = "1/2"

[[query]]
name = "bills"
table = "bills"
measure = "sum"
column = "paid"
clip = [0, 100]
share = "1/2"
"""

_DISCOVERED = """schema = 2
name = "discovered"
noise = "rounded-gaussian"
dataset = "shop@1"
table = "sales"

[unit]
protects = "customer"
neighboring = "replace-one"
id = "customer"
rows = "discover"
rows_share = "1/10"
rows_above = "1/50"

[columns]
paid = { integer = true }

[budget]
zcdp = "1/2"

[[query]]
measure = "sum"
column = "paid"
clip = "discover"
clip_share = "1/5"
clip_above = "1/100"
share = "1"
"""

_PUBLISHED = """
[columns.pay]
integer = true
measurement_unit = "US dollars"
[derive.double]
expression = "2 * pay"
range = [0, 100]
measurement_unit = "US dollars"
[budget]
zcdp = "1/2"
[[query]]
measure = "sum"
column = "double"
clip = [0, 100]
share = 1
"""

_MISSING = """\
[columns.pay]
decimals = 2
[columns.age]
integer = true
unknown = "drop"
[columns.race]
keys = ["a", "b", "c"]
[budget]
zcdp = "1/2"
[[query]]
name = "pay"
measure = "mean"
column = "pay"
clip = [0, 400]
by = ["race"]
share = "1/2"
[[query]]
name = "pay by age"
measure = "ratio"
column = "pay"
clip = [0, 400]
over = "age"
clip_over = [1, 99]
complete = true
share = "1/2"
"""

_WRITTEN = """\
[source]
delimiter = ";"
decimal = ","
thousands = "."
dates = "%d.%m.%Y"
[columns.pay]
decimals = 2
unknown = "drop"
parse = true
[columns.admitted]
type = "date"
[columns.seen]
keys = { from = 2024-01-01, to = 2024-01-31 }
zone = "Europe/Berlin"
[derive.days]
expression = "admitted - date('2024-01-01')"
range = [0, 400]
[budget]
zcdp = "1/2"
[[query]]
name = "pay"
measure = "sum"
column = "pay"
clip = [0, 400]
by = ["seen"]
share = "1/2"
[[query]]
name = "days"
measure = "mean"
column = "days"
clip = [0, 400]
share = "1/2"
"""

_DISJOINT = """\
[columns.race]
keys = ["a", "b", "c"]
unknown = "c"

[columns.age]
integer = true

[hierarchy.place]
levels = ["state", "county"]
keys = [["A", "7"], ["A", "8"], ["B", "9"]]

[budget]
zcdp = "1/10"

[[query]]
name = "ages"
measure = "mean"
column = "age"
clip = [0, 100]
partition = "race"
at = ["state"]
share = "1/2"

[query.parts.a]
at = ["state", "county"]
clip = [0, 80]
share = 2

[[query]]
name = "young"
measure = "count"
where = "age < 40"
share = "1/4"

[[query]]
name = "old"
measure = "count"
where = "age >= 40"
share = "1/4"
"""

_TOTALS = """\
[columns.race]
keys = ["a", "b", "c"]
unknown = "c"

[columns.sex]
keys = ["f", "m"]
unknown = "f"

[[totals]]
by = ["sex"]
values = [["f", 40], ["m", 20]]

[budget]
zcdp = "1/2"

[[query]]
name = "count"
measure = "count"
by = ["race", "sex"]
share = 1
"""

_DETAIL = """\
[columns.race]
keys = ["a", "b", "c"]

[columns.town]
keys = ["x", "y"]

[budget]
zcdp = "1/2"

[[query]]
name = "count"
measure = "count"
by = ["race"]
detail = [[], ["town"]]
thresholds = [10]
first_share = "1/5"
share = 1
"""

_PAIRS = """\
[hierarchy.place]
levels = ["state", "county"]
keys = [["A", "7"], ["A", "8"], ["B", "9"]]

[hierarchy.job]
levels = ["sector"]
keys = [["x"], ["y"]]

[budget]
zcdp = "1/2"

[[query]]
name = "count"
measure = "count"
at = ["state x sector", "county x sector"]
share = 1
"""

_TITLES = """
[columns.race]
keys = ["a", "b", "c"]

[budget]
zcdp = "1/2"

[[query]]
name = "count"
title = "Number of people, by race"
measure = "count"
by = ["race"]
share = 1
"""

PLANS = {
    "titles": _plan("titles", "replace-one", _TITLES),
    "totals": _plan("totals", "replace-one", _TOTALS),
    "detail": _plan("detail", "replace-one", _DETAIL),
    "pairs": _plan("pairs", "add-remove", _PAIRS),
    "disjoint": _plan("disjoint", "replace-one", _DISJOINT, "disjoint = true\n"),
    "written": _plan("written", "replace-one", _WRITTEN),
    "missing": _plan("missing", "replace-one", _MISSING),
    "discovered": _DISCOVERED,
    "joined": _JOINED,
    "keys": _plan("keys", "add-remove", _KEYS),
    "more": _plan("more", "replace-one", _MORE, 'noise = "rounded-gaussian"\n'),
    "published": _plan("published", "replace-one", _PUBLISHED, 'publisher = "Office"\n'),
    "rows": _plan("rows", "replace-one", _ROWS, 'where = "age < 75 or town is None"\n'),
    "measures": _plan("measures", "replace-one", _MEASURES),
    "units": _plan("units", "add-remove", _UNITS),
    "power": _plan("power", "replace-one", _POWER, "most_rows = 1000\n"),
    "success": _plan(
        "success", "replace-one", _SMALL.format(budget='success = "1/4"\nbaseline = "1/20"')
    ),
    "gdp": _plan("gdp", "replace-one", _SMALL.format(budget='gdp = "1/2"'), 'part = "west"\n'),
    "approximate": _plan(
        "approximate", "add-remove", _SMALL.format(budget="epsilon = 1\ndelta = 1e-6")
    ),
}
"""Plans as text. Together they state every field, measure, and budget of a plan."""

RELEASED = {"measures": "zcdp", "units": "zcdp", "gdp": "gdp"}
"""The plans that are released, each with the currency of its account."""

_PARTS = "town,part\nx,north\ny,south\n"
_PLACES = "state,county\nA,7\nA,8\nB,9\n"

DATA: dict[str, Any] = {
    "who": [f"p{number // 2}" for number in range(60)],
    "race": ["a", "b", "c"] * 20,
    "town": ["x"] * 50 + ["y"] * 10,
    "age": list(range(20, 80)),
    "pay": [float(number) for number in range(100, 400, 5)],
    "state": ["A"] * 40 + ["B"] * 20,
    "county": [7] * 20 + [8] * 20 + [9] * 20,
}
"""A made-up table."""


def write_plans(folder: Path) -> None:
    """Write each plan, and the key files that two of them name, into a folder."""
    folder.mkdir()
    (folder / "places.csv").write_text(_PLACES)
    (folder / "parts.csv").write_text(_PARTS)
    for name, text in PLANS.items():
        (folder / f"{name}.toml").write_text(text)


def table() -> pa.Table:
    """The table as Arrow has it."""
    return pa.table(DATA)


_GAUSS = {"type": "GaussianDpEvent", "noise_multiplier": 1.5}
_SAMPLED = {"sampling_probability": 0.01, "event": _GAUSS}

DP_EVENTS: list[tuple[dict[str, Any], Neighboring]] = [
    ({"type": "NoOpDpEvent"}, "add-remove"),
    ({"type": "NonPrivateDpEvent"}, "replace-one"),
    (_GAUSS, "add-remove"),
    (_GAUSS, "replace-one"),
    ({"type": "LaplaceDpEvent", "noise_multiplier": 2.0}, "replace-one"),
    ({"type": "RepeatAndSelectDpEvent", "event": _GAUSS, "mean": 3.0, "shape": 1.0}, "add-remove"),
    ({"type": "DiscreteLaplaceDpEvent", "noise_parameter": 0.5, "sensitivity": 2}, "add-remove"),
    (
        {"type": "RandomizedResponseDpEvent", "noise_parameter": 0.25, "num_buckets": 4},
        "replace-one",
    ),
    (
        {
            "type": "MixtureOfGaussiansDpEvent",
            "standard_deviation": 1.0,
            "sensitivities": [0.0, 1.0],
            "sampling_probs": [0.75, 0.25],
        },
        "add-remove",
    ),
    (
        {"type": "SingleEpochTreeAggregationDpEvent", "noise_multiplier": 4.0, "step_counts": 8},
        "replace-one",
    ),
    ({"type": "PoissonSampledDpEvent", **_SAMPLED}, "add-remove"),
    ({"type": "PoissonSampledDpEvent", **_SAMPLED}, "replace-one"),
    (
        {
            "type": "SampledWithoutReplacementDpEvent",
            "source_dataset_size": 100,
            "sample_size": 10,
            "event": _GAUSS,
        },
        "replace-one",
    ),
    (
        {
            "type": "TruncatedSubsampledGaussianDpEvent",
            "dataset_size": 100,
            "sampling_probability": 0.3,
            "truncated_batch_size": 20,
            "noise_multiplier": 1.0,
        },
        "add-remove",
    ),
    (
        {
            "type": "SelfComposedDpEvent",
            "count": 10,
            "event": {
                "type": "ComposedDpEvent",
                "events": [_GAUSS, {"type": "LaplaceDpEvent", "noise_multiplier": 2.0}],
            },
        },
        "add-remove",
    ),
]
"""Events of dp_accounting as JSON types, each with the relation under which it is read."""
