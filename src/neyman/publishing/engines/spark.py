"""Open a Spark session for one private table, with settings that fix the result of expressions.

The settings of the session, with reasons:

- `ansi.enabled`: decimals are written without an exponent. No data can cause an error, since no
  cast or sum can overflow (see `expressions`).
- `caseSensitive`: columns whose names differ only in case are distinct.
- `timeZone` UTC, and dates read as written: no date moves.
- No user interface, no event log: nothing of the work is served or stored.
- `io.encryption`: data that do not fit in memory are encrypted on disk, with a key in memory.

An address ``sc://host:15002`` names a Spark Connect server, which Neyman does not start. Data that
do not fit in memory go to folders that the server's operator chose. Neyman ends its sessions, not
the server.

The Java process prints to an unnamed file that is deleted with the process, because an error of a
task could show a value of the data. If Spark does not start, no row has been read, so the error
repeats the last lines of this output.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import ibis
import pyarrow as pa
from ibis.formats.pyarrow import PyArrowType

from neyman.publishing.engines.column_types import plain_form, plain_type
from neyman.publishing.engines.csv_reader import DataError, cause, fault
from neyman.publishing.engines.duckdb import Opening, check_memory, quoted, spill_folder, untaken
from neyman.storage.private_folder import PrivateFolder

_OURS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_CONTEXT = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.log.level": "ERROR",
}
# On a cluster the workers must reach the driver, and the operator sets the number of shuffle parts.
# With 16 parts, more than 16 cores would be idle.
_LOCAL = {
    "spark.sql.shuffle.partitions": "16",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_MASTER = "local[2]"
_CONNECT = "sc://"
_ANSWER_SECONDS = 10
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
# Spark expands every name that it gets, except characters after a backslash.
_WILDCARD, _ESCAPED = re.compile(r"[*?\[\]{}\\]"), r"\\\g<0>"
# For each unsigned type, which Spark lacks: a signed type with all of its values.
_SIGNED: dict[Any, Any] = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_SIGNED[pa.uint64()] = pa.decimal128(20, 0)

# Spark allows one context per process. Ours stops with the last table on it.
_tables: weakref.WeakSet[Any] = weakref.WeakSet()


def installed() -> None:
    """Raise ImportError if Spark is not installed."""
    if find_spec("pyspark") is None:
        raise ImportError(
            "engine = 'spark': PySpark is not installed; pip install 'neyman[spark]', which also "
            "needs Java 17",
            name="pyspark",
        )


def shown_master(master: str) -> str:
    """Return the text of a master for an error, without its value if that may contain a token."""
    is_address = "://" in master and not master.strip().startswith("spark://")
    return "master" if is_address or ";" in master else f"master = {master!r}"


def connect(memory: str | None = None, master: str | None = None) -> Any:
    """Return a new Spark session as an Ibis connection, on a Spark of this process if one runs.

    Args:
        memory: the memory of the driver, such as "4GB", if Spark is not running yet.
        master: the Spark master, "local[2]" by default; ``sc://...`` for Spark Connect.
    """
    installed()
    from pyspark.sql import SparkSession

    master, active = (master or "").strip() or _MASTER, None
    is_remote = master[:5].casefold() == _CONNECT
    try:
        if is_remote:
            session = _remote(_CONNECT + master[5:], memory)
        else:
            active = getattr(SparkSession, "_instantiatedSession", None) or _start_spark(
                master, memory
            )
            session = active.newSession()
        for name, value in _OURS.items():
            session.conf.set(name, value)
        connection = ibis.pyspark.connect(session)  # pyright: ignore[reportAttributeAccessIssue]
    except (DataError, ImportError, TimeoutError):
        raise
    except Exception as error:  # a server's message can repeat a part of its address
        said = type(error).__name__ if is_remote else cause(error)
        raise fault(error, f"engine = 'spark': no session ({said})") from None
    ours = active if hasattr(active, "neyman_folder") else None
    if ours is not None:
        _tables.add(connection)
    connection.neyman_close = weakref.finalize(
        connection, _close_spark, ours, active is None and session
    )
    return connection


def _remote(address: str, memory: str | None) -> Any:
    """Return a session of a Spark Connect server. No error shows the address and its token."""
    if memory is not None:
        raise DataError("memory is for a Spark of this machine; leave it out for Spark Connect")
    if find_spec("grpc") is None:
        # Guards against an install without gRPC.
        raise ImportError(
            "Spark Connect needs gRPC; pip install 'neyman[spark-connect]'", name="grpc"
        )
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    try:
        with DefaultChannelBuilder(address).toChannel() as channel:
            grpc.channel_ready_future(channel).result(_ANSWER_SECONDS)
        return SparkSession(address)
    except grpc.FutureTimeoutError:
        raise DataError(
            "engine = 'spark': no server answers at the address of master; is it right, and does "
            "the server run?"
        ) from None
    except TimeoutError:  # the caller's own
        raise
    except Exception as error:  # its message can repeat a part of the address
        text = "engine = 'spark': no session; an address is sc://host:15002/;name=value"
        raise fault(error, f"{text} ({type(error).__name__})") from None


def _start_spark(master: str, memory: str | None) -> Any:
    """Start Spark, and return its session. Data that exceed memory go to its own private folder."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    settings = _CONTEXT | (_LOCAL if master.startswith("local") else {})
    if memory is not None:
        settings["spark.driver.memory"] = check_memory(memory).replace("i", "").removesuffix("B")
    # A Java process uses its first folder, so the folder stays as long as the process.
    existing: PrivateFolder | None = getattr(_gateway(), "neyman_folder", None)
    wanted = os.environ.get(_LOCAL_DIRS, "").split(",")[0] or None  # which Spark would prefer
    folder = existing or spill_folder(wanted)
    settings["spark.local.dir"] = settings["spark.sql.warehouse.dir"] = str(folder.path)
    conf = SparkConf().setMaster(master).setAppName("neyman").setAll(list(settings.items()))
    builder: Any = SparkSession.builder
    with tempfile.TemporaryFile() as said:
        try:
            if _gateway() is None:
                _launch(conf, said, folder)
            session = builder.config(conf=conf).getOrCreate()
        except Exception as error:
            if getattr(_gateway(), "neyman_folder", None) is not folder:
                folder.remove()
            said.seek(0)
            raise DataError(
                f"engine = 'spark': Spark could not be started on {shown_master(master)} "
                f"({type(error).__name__}); it needs Java 17 or later, and JAVA_HOME or java on "
                f"PATH{_last(said.read().decode(errors='replace'))}"
            ) from None
    session.neyman_folder = folder
    _check_folder(session, folder)
    return session


def _gateway() -> object:
    from pyspark import SparkContext

    return SparkContext._gateway  # pyright: ignore[reportPrivateUsage]


def _launch(conf: Any, said: Any, folder: PrivateFolder) -> None:
    """Start Java, which prints to ``said`` and writes only to ``folder``, for this user alone."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    wanted = os.environ.pop(_LOCAL_DIRS, None)
    try:
        java: Any = launch_gateway(conf, {"stdout": said, "stderr": said, "umask": 0o077})
    finally:
        if wanted is not None:
            os.environ[_LOCAL_DIRS] = wanted
    java.neyman_folder = folder
    java.neyman_close = weakref.finalize(java, folder.remove)
    SparkContext._ensure_initialized(gateway=java)  # pyright: ignore[reportPrivateUsage]


def _check_folder(session: Any, folder: PrivateFolder) -> None:
    """Raise DataError if a Spark that we started would write private rows to another folder."""
    context = session.sparkContext
    if getattr(context._gateway, "neyman_folder", None) is not folder:
        return  # the caller started Java, and chose where it writes
    where = context._jvm.org.apache.spark.util.Utils.getLocalDir(context._jsc.sc().conf())
    if not Path(where).resolve().is_relative_to(folder.path.resolve()):
        session.stop()
        raise DataError(
            f"engine = 'spark': Spark would write private rows to {where!r}; remove "
            f"{_LOCAL_DIRS} from spark-env.sh, and set it as a variable of the environment"
        )


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines()]
    errors = [line for line in lines if line and line[:3] != "at " and " WARN " not in line]
    return "".join(f"\n  {line[:200]}" for line in errors[-3:])


def _close_spark(ours: Any, remote: Any) -> None:
    if remote:
        with suppress(Exception):  # the server may be gone
            remote.stop()
    # If a table is being deleted, the set may still count it but not list it.
    if ours is not None and not list(_tables):
        ours.stop()
        ours.neyman_folder.clear()


def close(connection: Any) -> None:
    """Close a connection of `connect`, and Spark with the last one. Leave others open."""
    finish = getattr(connection, "neyman_close", None)
    if finish is not None and finish.alive:
        _tables.discard(connection)
        finish()


def accept(table: ibis.Table) -> ibis.Table:
    """Return a caller's table, see `_with_zones`. Raise DataError if settings change results."""
    session: Any = table.get_backend()._session  # pyright: ignore[reportAttributeAccessIssue]
    wrong = [
        f"{name} = {value}"
        for name, value in _OURS.items()
        if "arrow" not in name and (session.conf.get(name) or "").lower() != value.lower()
    ]
    if wrong:
        raise DataError(
            "data is a table on a Spark session with other settings than counting needs; set "
            f"{', '.join(wrong)}, or give the files"
        )
    return _with_zones(table)


def registered(data: pa.Table, opening: Opening) -> ibis.Table:
    """Return an Arrow table as a table on Spark."""
    connection = connect(opening.memory, opening.master)
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        plain = pa.table({name: _plain_column(data[name]) for name in data.column_names})
        # Spark Connect cannot infer a schema from an Arrow table without rows.
        form = (plain,) if plain.num_rows else ([], from_arrow_schema(plain.schema))
        frame = connection._session.createDataFrame(*form)
        for field in plain.schema:
            if pa.types.is_timestamp(field.type) and field.type.tz is None:
                # Spark reads it as an instant in the session's zone, UTC.
                column = frame[quoted(field.name, "`")]
                frame = frame.withColumn(field.name, column.cast("timestamp_ntz"))
        frame.createOrReplaceTempView("people")
        return _with_zones(connection.table("people"))
    except Exception as error:
        # Guards against tables that Spark cannot hold.
        raise untaken(error, "Spark", data.schema) from None


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind: Any = column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string()
    return column.cast(_SIGNED.get(kind, kind))


def parquet(files: Sequence[str], schema: pa.Schema, opening: Opening) -> ibis.Table:
    """Return Parquet files with one schema as a table on Spark."""
    from pyspark.sql.types import StructField, StructType

    odd = [file for file in files if Path(file).name[:1] in ("_", ".")]
    if odd:
        raise DataError(
            f"data = {odd[0]!r}: Spark skips files whose names begin with '_' or '.'; rename it"
        )
    for name in opening.columns or ():
        kind = schema.field(name).type
        if not _readable(kind):
            times = pa.types.is_timestamp(kind)
            instead = "timestamps of microseconds" if times else "float or double"
            raise DataError(
                f"data column {name!r} has type {kind}, which Spark does not read from Parquet: "
                f"make it {instead}, or count on DuckDB"
            )
    if not opening.rows:
        table = registered(plain_form(schema), opening)
        _read(table.get_backend(), files, StructType([]))
        return table
    usable = [field for field in schema if _readable(field.type)]
    # Parquet stores an all-null column as numbers, which Spark does not read as text.
    empty = [field.name for field in usable if pa.types.is_null(field.type)]
    fields = [
        StructField(field.name, _spark_type(field.type), True)
        for field in usable
        if field.name not in empty
    ]
    connection = connect(opening.memory, opening.master)
    frame = _read(connection, files, StructType(fields))
    added = [f"CAST(NULL AS STRING) AS {quoted(name, '`')}" for name in empty]
    frame = frame.selectExpr("*", *added, *([] if usable else ["1 AS one"]))
    frame.createOrReplaceTempView("people")
    return _with_zones(connection.table("people"))


def _with_zones(table: ibis.Table) -> ibis.Table:
    """Return the table with UTC in the type of each timestamp that is an instant.

    Spark has two types of timestamps, instants and local times, and Ibis gives both one type.
    """
    if not any(kind.is_timestamp() for kind in table.schema().values()):
        return table
    backend: Any = table.get_backend()
    fields = backend._session.sql(backend.compile(table)).schema.fields
    instants = [field.name for field in fields if field.dataType.typeName() == "timestamp"]
    return table.mutate(**{name: table[name].cast("timestamp('UTC')") for name in instants})


def _readable(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return False  # some conversions from milliseconds fail
    return plain_type(kind) is not None and not pa.types.is_float16(kind)


def _spark_type(kind: pa.DataType) -> Any:
    from ibis.backends.pyspark.datatypes import PySparkType
    from pyspark.sql.types import TimestampNTZType

    if pa.types.is_timestamp(kind) and kind.tz is None:
        return TimestampNTZType()
    plain: Any = plain_type(kind)
    return PySparkType.from_ibis(PyArrowType.to_ibis(_SIGNED.get(plain, plain)))


def _read(connection: Any, files: Sequence[str], schema: Any) -> Any:
    """Return these Parquet files, and no other, as a Spark frame. No row is read."""
    paths = {
        path: f"file://{_WILDCARD.sub(_ESCAPED, path)}" for path in map(os.path.abspath, files)
    }
    reader = connection._session.read.schema(schema)
    try:
        frame = reader.parquet(*paths.values())
        right = _files(frame) == sorted(paths)
        for path in filter(_WILDCARD.search, paths):
            # Spark lists each name of several paths only once, so each pattern is tested
            # separately.
            right = right and _files(reader.parquet(paths[path])) == [path]
    except Exception as error:
        # Guards against files that go after they were listed.
        raise fault(
            error, f"data = {files[0]!r}: Spark cannot read the files ({type(error).__name__})"
        ) from None
    if not right:
        raise DataError(
            f"data = {files[0]!r}: Spark takes a name of the {len(files)} files for another, or "
            "for a pattern; rename it"
        )
    return frame


def _files(frame: Any) -> list[str]:
    return sorted(unquote(urlsplit(path).path) for path in frame.inputFiles())
