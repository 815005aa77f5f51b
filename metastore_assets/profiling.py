"""The statistics of anything at once, kept nowhere: what SUMMARIZE is to a database."""

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
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.pyspark_compat import require_pyspark
from metastore_assets.storage.temporary_folders import TemporaryFolder
from metastore_assets.values.leaf_columns import plain_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY = re.compile(r"\s*(select|from|with|values|summarize|describe)\b.*\s", re.IGNORECASE | re.DOTALL)
_FILE_ROWS = 1 << 20


def profile(data: object, *, spark: SparkSession | None = None, unrestricted: bool = False, **settings: Any) -> Table:
    """Compute the statistics of a table, file or data frame; the answer is asked as what `open_table` opens.

    `data` is a path or URI of a table of any format; whatever gives Arrow data (a table, reader or dataset of pyarrow,
    a data frame of Polars, pandas or Spark, a relation of DuckDB); or a query in DuckDB's SQL. `settings` are those of
    a table in `metastore.yaml`, such as `at`, `options` or `storage_options` of a location, and `columns`.

    A query is one statement, and reads no file, no network and no variable: give a file as a path. With
    `unrestricted=True` it may read and write files and load extensions, as DuckDB does; only for queries of your own.

    What is large is read on Spark: in the session given, else in one that is started. Data that lie nowhere yet are
    written to a temporary folder, which goes with the answer; of a data frame of Spark they pass through this process.

    Raises MetastoreError for what cannot be read: says what.
    """
    folder = TemporaryFolder("profile")
    try:
        uri = _location(data, Path(folder.path) / "data", unrestricted)
        table = TableConfig.model_validate({"name": table_name(uri), "uri": uri, **settings})
        found = profile_table(table, f"{folder.path}/root", lambda: _session(spark))
    except BaseException:
        folder.remove()
        raise
    weakref.finalize(found, folder.remove)
    return found


def profile_table(
    table: TableConfig,
    root: str,
    spark: Callable[[], SparkSession],
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Table:
    """Publish the first version of a table below a root that has nothing of it, and open it. Small ones need no Spark.

    Raises what `refresh` does.
    """
    refresh(MetastoreConfig(root=root, tables=[table], engine="auto"), table, spark, progress=progress)
    locations = [table.uri, *table.path_mapping.values(), *table.allow]
    return Metastore(root, statistics=table.named_statistics, table_locations=locations).table(table.name)


def table_name(uri: str) -> str:
    """A table name that makes the messages about a location readable."""
    last = re.sub(r"[^A-Za-z0-9_-]+", "_", uri.rstrip("/").rpartition("/")[2])
    return re.sub(r"^(?![A-Za-z])", "t", last)[:100]


def _session(given: SparkSession | None) -> SparkSession:
    if given is not None:
        return given
    from metastore_assets.spark.session import get_spark_session

    return get_spark_session()


def _location(data: object, folder: Path, unrestricted: bool) -> str:
    """Where a table is; what is none yet becomes one there. Raises MetastoreError."""
    if isinstance(data, os.PathLike):
        data = os.fspath(data)
    if isinstance(data, str):
        if not _QUERY.match(data) or os.path.exists(data):
            return data if "://" in data else os.path.abspath(os.path.expanduser(data))
        return _queried(data, folder, unrestricted)
    return _written(_reader(data), folder)


def _queried(text: str, folder: Path, unrestricted: bool) -> str:
    with query_connection(unrestricted=unrestricted) as session:
        session.parse(text)
        return _written(_reader(session.run(text)), folder)


def _reader(data: Any) -> pa.RecordBatchReader:
    """The data as a stream of Arrow. Raises MetastoreError for what gives none."""
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
            f"a {type(data).__module__}.{type(data).__qualname__} cannot be profiled: give a path or URI, a query, or "
            "what gives Arrow data, such as a table of pyarrow or a data frame of Polars, pandas or Spark"
        )
    return pa.RecordBatchReader.from_stream(data)


def _written(reader: pa.RecordBatchReader, folder: Path) -> str:
    """The data as a folder of Parquet files. Raises MetastoreError."""
    import pyarrow.parquet as pq

    names = reader.schema.names
    if not names:
        raise MetastoreError("data without a column cannot be profiled")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MetastoreError(f"the data have two columns named {twice!r}: rename one")
    schema = pa.schema([own.with_type(_stored_type(own.type)) for own in reader.schema])
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
            writer.write_batch(pa.RecordBatch.from_arrays(list(map(_stored, batch.columns)), schema=schema))
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
    """Raise MetastoreError for a type that no Parquet file holds: names the column."""
    import pyarrow.parquet as pq

    for field in schema:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowException, OSError) as error:
            raise MetastoreError(
                f"the data cannot be profiled: column {field.name!r} is of {field.type}, of which Parquet files have "
                f"none ({error}): cast it, to text for instance, or leave it out"
            ) from error


def _stored_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if t.is_run_end_encoded(type_) else type_


def _stored(array: pa.Array) -> pa.Array:
    """The same values, encoded in a way that Parquet files have."""
    if t.is_run_end_encoded(array.type):
        return plain_array(array)
    if t.is_dictionary(array.type) and array.dictionary.null_count:
        return plain_array(array).dictionary_encode().cast(array.type)
    return array
