"""The SQL that would run on BigQuery, Snowflake, and Trino: it is compiled, and nothing runs.

docs/howto/other-servers.md lists what would have to be solved first; each line stands here.
"""

import ibis
import pytest
from ibis.common.exceptions import OperationNotDefinedError

from neyman.publishing.engines.backends import Spark
from neyman.publishing.engines.expressions import bin_of, digest, key_bytes, scaled_integer, total

PEOPLE = ibis.table({"s": "string", "n": "int64", "f": "float64", "d": "date"}, name="people")
S, N, F, D = (PEOPLE[name] for name in PEOPLE.columns)
SPARK = Spark()


def compiled(dialect, **columns):
    return " ".join(str(ibis.to_sql(PEOPLE.select(**columns), dialect=dialect)).split())


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino"])
def test_keys_numbers_and_sums_compile_and_the_digest_of_rows_does_not(dialect):
    """One row per unit has SQL on each; bounding several rows of a unit has none."""
    every = {
        "text": key_bytes(S, SPARK),
        "date": key_bytes(D, SPARK),
        "whole": key_bytes(S, SPARK, "whole"),
        "integer": scaled_integer(N, SPARK, 0, -9, 9, 0),
        "double": scaled_integer(F, SPARK, 2, -9, 9, 0),
        "number": scaled_integer(S, SPARK, 2, -9, 9, 0),
        "bin": bin_of(N, [0, 3, 6]),
    }
    assert all(f"{name}" in compiled(dialect, **every) for name in every)
    sums = PEOPLE.group_by(k=key_bytes(S, SPARK)).aggregate(rows=PEOPLE.count(), sum=total(N))
    assert "GROUP BY" in ibis.to_sql(sums, dialect=dialect)
    with pytest.raises(OperationNotDefinedError, match="HexDigest"):
        compiled(dialect, rank=digest(S, [N], S.cast("binary")))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "CAST('a' AS BYTES)"),
        ("snowflake", "CAST('a' AS VARBINARY)"),
        ("trino", "CAST('a' AS VARBINARY)"),
    ],
)
def test_a_text_is_cast_to_bytes_which_is_not_its_utf8_on_each_server(dialect, text):
    """BigQuery takes UTF-8; Snowflake reads hexadecimal digits; Trino has no such cast."""
    assert text in compiled(dialect, b=SPARK.bytes_of("a"))


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [("bigquery", "NUMERIC"), ("snowflake", "DECIMAL(38, 0)"), ("trino", "DECIMAL(38, 0)")],
)
def test_sums_are_of_a_type_that_can_be_too_narrow(dialect, kind):
    """BigQuery's NUMERIC has 29 digits before the point, and 2^63 rows of 2^62 need 38."""
    sql = ibis.to_sql(PEOPLE.aggregate(s=total(N)), dialect=dialect)
    assert f"AS {kind}" in " ".join(str(sql).split())
