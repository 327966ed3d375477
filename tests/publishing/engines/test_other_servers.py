"""The SQL that would run on BigQuery, Snowflake, and Trino: no server runs it.

It is compiled, parsed in the server's dialect, and run on DuckDB after a translation by sqlglot.
docs/howto/sources.md lists what would have to be solved first; each line stands here.
"""

from contextlib import contextmanager

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import pyarrow as pa
import pytest
import sqlglot
import sqlglot.expressions as sge
from ibis.common.exceptions import OperationNotDefinedError
from test_databases import ROWS, a_plan, twice, wide

import neyman as ny
from neyman.publishing.engines import backends
from neyman.publishing.engines.backends import Backend, DuckDB, Spark
from neyman.publishing.engines.expressions import bin_of, digest, key_bytes, scaled_integer, total
from plain_engine import Plain, counted

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


def named(name, *given):
    def own(a, b): ...

    return ibis.udf.scalar.builtin(name=name, signature=(given, dt.binary))(own)


UTF8 = {
    "bigquery": lambda text: text.cast("binary"),
    "snowflake": lambda text: named("to_binary", dt.string, dt.string)(text, "UTF-8"),
    "trino": named("to_utf8", dt.string),
}
"""The function of each server that gives the bytes of a text."""


def extracting(node, changed):
    """A pattern that does not match extracts NULL on these servers: here the empty text."""
    node = node.__recreate__(changed) if changed else node
    if isinstance(node, ops.RegexExtract):
        text = node.to_expr().coalesce("")
        return ibis.cases((node.arg.to_expr().notnull(), text)).op()
    return node


def server_sql(rows, dialect):
    """The SQL that would run: sums are wide enough, and an extracted text is never NULL."""
    sql = str(ibis.to_sql(rows.op().replace(extracting).to_expr(), dialect=dialect))
    return sql.replace("AS NUMERIC)", "AS BIGNUMERIC)")


def translated(sql, dialect):
    """The SQL of DuckDB. What sqlglot leaves as it is: a cast to bytes, and its wide decimals."""

    def own(node):
        if not isinstance(node, sge.Cast):
            return node
        if node.to.this in (sge.DataType.Type.BINARY, sge.DataType.Type.VARBINARY):
            name = "unhex" if node.args.get("format") else "encode"
            return sge.Anonymous(this=name, expressions=[node.this])
        if node.to.this == sge.DataType.Type.BIGDECIMAL:
            node.set("to", sge.DataType.build("DECIMAL(38, 0)", dialect="duckdb"))
        return node

    return sqlglot.parse_one(sql, read=dialect).transform(own).sql("duckdb")


@pytest.mark.parametrize("of_texts", [False, True])
@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino"])
def test_the_sql_of_each_server_gives_the_cells_of_our_engine_on_duckdb(
    dialect, of_texts, monkeypatch
):
    """One row per unit, with every kind of column as keys and as numbers; keys are literals.

    Sums of texts and of decimals are apart: sqlglot makes a megabyte of their patterns.
    """
    queries = []

    class Server(DuckDB):
        encode = staticmethod(UTF8[dialect])
        barrier = Backend.barrier

        @contextmanager
        def put(self, rows):
            kinds = {
                f.name: "binary" if pa.types.is_binary(f.type) else "int64" for f in rows.schema
            }
            listed = [
                [ibis.literal(value, kinds[name]).name(name) for name, value in row.items()]
                for row in rows.to_pylist()
            ]
            yield ibis.union(*(first.as_table().mutate(*more) for first, *more in listed))

        def arrow(self, rows):
            queries.append(server_sql(rows, dialect))
            return self.connection.con.sql(translated(queries[-1], dialect)).to_arrow_table()

    document = a_plan().canonical()
    asked = [one for one in document["query"] if (one["name"] in ("sum_t", "sum_d")) == of_texts]
    plan = ny.Plan.from_dict(
        {**document, "query": [{**one, "share": f"1/{len(asked)}"} for one in asked]}
    )
    right = counted(plan, wide())
    monkeypatch.setitem(backends._KINDS, "duckdb", Server)
    assert counted(plan, wide(), rehearsed=True) == right
    assert right == Plain(plan, twice(ROWS)).tables()
    if not of_texts:
        word = {"bigquery": "BIGNUMERIC", "snowflake": "TO_BINARY", "trino": "TO_UTF8"}[dialect]
        assert word in queries[0]
