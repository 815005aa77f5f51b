"""Statistics of a path, a data frame or a query, without a configuration, like `SUMMARIZE` in DuckDB."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.duckdb_queries import query_connection
from metastore_assets.errors import MetastoreError
from metastore_assets.lookup import Table
from metastore_assets.messages import is_uri
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.pyspark_compat import require_pyspark
from metastore_assets.storage.temporary_folders import TemporaryFolder
from metastore_assets.values.columns import map_child_types, plain_array, plain_type
from metastore_assets.values.physical import canonical
from metastore_assets.values.types import type_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_ROWS = 1 << 20
_VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""For each type of views, a type with the same values. Arrow can write a dictionary of this type to Parquet."""


def profile(data: object, *, spark: SparkSession | None = None, **settings: Any) -> Table:
    """Compute the statistics of a table, file or data frame, and return a `Table` with them.

    Large tables are read on Spark. All rows of a Spark data frame pass through this process.

    A data frame is written to a temporary folder. The folder is deleted when the returned object and all its answers
    are garbage-collected, even if a dataset from `Table.dataset` is still in use.

    Args:
        data: A path or URI of a table of any format, or an object with Arrow data: a table, reader or dataset of
            pyarrow, a data frame of Polars, pandas or Spark, or a relation of DuckDB.
        spark: The session to read large tables with. Default: a new one, if it is needed.
        settings: Keys of a table in `metastore.yaml`, such as `at`, `options`, `storage_options` and `columns`.

    Raises:
        MetastoreError: The data cannot be read.
        ConfigError: A setting is invalid.
    """
    return _profile(lambda folder: _location(data, folder), spark, settings)


def profile_query(
    query: str, *, spark: SparkSession | None = None, unrestricted: bool = False, **settings: Any
) -> Table:
    """Compute the statistics of the result of a query in DuckDB's SQL, and return a `Table` with them.

    The result of the query is written to a temporary folder. The folder is deleted when the returned object and all its
    answers are garbage-collected, even if a dataset from `Table.dataset` is still in use.

    Args:
        query: One query, such as SELECT.
        spark: As for `profile`.
        unrestricted: Whether the query may read and write files and load extensions. Use it for trusted queries only.
            By default the query reads neither files nor the network. It never reads variables of Python.
        settings: As for `profile`.

    Raises:
        QueryError: The query is not allowed, or fails.
        MetastoreError: The result cannot be profiled.
        ConfigError: A setting is invalid.
    """
    return _profile(lambda folder: _write_query_result(query, folder, unrestricted), spark, settings)


def _profile(locate: Callable[[Path], str], spark: SparkSession | None, settings: Mapping[str, Any]) -> Table:
    """Profile a table, and return it with its statistics.

    The statistics are stored in a temporary folder. The folder exists as long as the result is in use, or any of its
    answers that reads files later, such as a filtered view.

    Args:
        locate: Returns the location of the table. Its argument is the path of a temporary folder that does not exist
            yet. `locate` can create this folder, and write the table to it.
        spark: The session to read large tables with; None for a new one, if it is needed.
        settings: Keys of the table in the configuration.
    """
    folder = TemporaryFolder("profile")
    try:
        uri = locate(Path(folder.path) / "data")
        table = TableConfig.model_validate({"name": table_name(uri), "uri": uri, **settings})
        profiled_table = profile_table(table, f"{folder.path}/root", lambda: _session(spark))
    except BaseException:
        folder.remove()
        raise
    # Answers that read files later hold the store, not the table.
    weakref.finalize(profiled_table.objects, folder.remove)
    return profiled_table


def profile_table(
    table: TableConfig,
    root: str,
    spark: Callable[[], SparkSession],
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Table:
    """Compute the statistics of a table, publish them in an empty folder, and open them.

    Args:
        table: The table.
        root: The path of the folder.
        spark: Returns the session. It is called only for large tables.
        progress: Receives the progress of the refresh.

    Raises:
        MetastoreError: The refresh failed.
    """
    refresh(MetastoreConfig(root=root, tables=[table], engine="auto"), table, spark, progress=progress)
    locations = [table.uri, *table.path_mapping.values(), *table.allow]
    return Metastore(root, statistic_classes=table.named_statistics, table_locations=locations).table(table.name)


def table_name(uri: str) -> str:
    """Return a valid table name for a location, from the end of its path.

    Example: `t2024_sales` for `s3://b/2024.sales`.
    """
    last = re.sub(r"[^A-Za-z0-9_-]+", "_", uri.rstrip("/").rpartition("/")[2])
    return re.sub(r"^(?![A-Za-z])", "t", last)[:100]


def _session(spark: SparkSession | None) -> SparkSession:
    if spark is not None:
        return spark
    from metastore_assets.spark.session import get_spark_session

    return get_spark_session()


def _location(data: object, folder: Path) -> str:
    """Return the location of a path or URI.

    Write any other data to `folder`, and return the new location.
    """
    if isinstance(data, os.PathLike):
        data = os.fspath(data)
    if isinstance(data, str):
        return data if is_uri(data) else os.path.abspath(os.path.expanduser(data))
    return _write(_open_reader(data), folder)


def _write_query_result(text: str, folder: Path, unrestricted: bool) -> str:
    with query_connection(unrestricted=unrestricted) as session:
        session.parse(text)
        return _write(_open_reader(session.run(text)), folder)


def _open_reader(data: Any) -> pa.RecordBatchReader:
    """Return a reader of an object's data as Arrow batches.

    Raises MetastoreError for an object without columns of Arrow data, and for data that Arrow cannot represent.
    """
    try:
        return _arrow_reader(data)
    except pa.ArrowException as error:
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
        raise MetastoreError(f"a {kind} cannot be profiled, because Arrow cannot read it: {error}") from error


def _arrow_reader(data: Any) -> pa.RecordBatchReader:
    """Do the same as `_open_reader`, but raise ArrowException for data that Arrow cannot represent."""
    if not hasattr(data, "__arrow_c_stream__"):
        # Datasets of pyarrow, data frames of Spark, lazy frames of Polars.
        if hasattr(data, "scanner"):
            data = data.scanner().to_reader()
        elif hasattr(data, "toArrow"):
            data = data.toArrow()
        elif type(data).__module__.startswith("pyspark."):
            require_pyspark((4, 0), "the profile of a Spark data frame")
        elif hasattr(data, "collect_schema"):
            data = data.collect()
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        data = pa.table(dict(data))
    if not hasattr(data, "__arrow_c_stream__"):
        raise MetastoreError(
            f"a {type(data).__module__}.{type(data).__qualname__} cannot be profiled: give a path or URI, or an "
            "object with Arrow data, such as a table of pyarrow or a data frame of Polars, pandas or Spark"
        )
    return pa.RecordBatchReader.from_stream(data)


def _write(reader: pa.RecordBatchReader, folder: Path) -> str:
    """Create `folder`, write data to it as Parquet files, and return its path.

    Raises MetastoreError if Parquet cannot store the data, for example because two columns have the same name.
    """
    import pyarrow.parquet as pq

    names = reader.schema.names
    if not names:
        raise MetastoreError("data without a column cannot be profiled")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise MetastoreError(f"the data have two columns named {duplicate!r}: rename one")
    schema = pa.schema([field.with_type(_parquet_type(field.type)) for field in reader.schema])
    _check_types(schema)
    folder.mkdir()
    writer: pq.ParquetWriter | None = None
    rows = number = 0
    try:
        for batch in reader:
            if writer is None or rows >= _FILE_ROWS:
                if writer is not None:
                    writer.close()
                writer, rows, number = pq.ParquetWriter(folder / f"{number:05d}.parquet", schema), 0, number + 1
            writer.write_batch(pa.RecordBatch.from_arrays(list(map(_parquet_array, batch.columns)), schema=schema))
            rows += batch.num_rows
        if writer is None:
            writer = pq.ParquetWriter(folder / "00000.parquet", schema)
    except (pa.ArrowException, OSError) as error:
        raise MetastoreError(f"the data cannot be profiled: {error}") from error
    finally:
        if writer is not None:
            writer.close()
    return str(folder)


def _check_types(schema: pa.Schema) -> None:
    """Raise MetastoreError if Parquet does not support the type of a column."""
    import pyarrow.parquet as pq

    for field in schema:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowException, OSError) as error:
            raise MetastoreError(
                f"the data cannot be profiled: column {field.name!r} is of {field.type}, which Parquet does not "
                f"support ({error}): cast it, to text for instance, or leave it out"
            ) from error


def _parquet_type(type_: pa.DataType) -> pa.DataType:
    """Return a type that has the same values and that Parquet supports.

    Run ends, dictionaries of views and date64 are replaced, also inside structs, lists and maps. Other types stay.
    """
    if t.is_run_end_encoded(type_):
        return plain_type(type_)
    if t.is_dictionary(type_):  # Polars' categories are dictionaries of views.
        return pa.dictionary(type_.index_type, _VIEWED.get(type_.value_type, type_.value_type), type_.ordered)
    if t.is_date64(type_):  # Arrow's writer of Parquet wraps days beyond the range of date32 around.
        return pa.date32()
    return map_child_types(type_, _parquet_type)


def _parquet_array(array: pa.Array) -> pa.Array:
    """Convert an array, if necessary, to one that Arrow can cast to `_parquet_type(array.type)`.

    The values stay the same. An array is returned unchanged unless it has run ends, date64, or a dictionary with nulls.
    """
    if t.is_run_end_encoded(array.type):
        array = plain_array(array)
    if t.is_date64(array.type):
        return canonical(array, type_class(array.type))
    if t.is_dictionary(array.type) and array.dictionary.null_count:
        return plain_array(array).dictionary_encode().cast(_parquet_type(array.type))
    return array
