"""Opening of data files by kind."""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.extras import extra
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.reader import FileColumns
from metastore_assets.storage.corrupt_input import UnsupportedError

KINDS = ("parquet", "orc", "avro")


def open_columns(kind: str, source: pa.NativeFile, *, rebases: bool = True) -> FileColumns:
    """Open the columns of a data file.

    Fields have the file's field ids under `PARQUET:field_id` at every depth. The result owns `source` and closes it;
    `source` is also closed when opening fails.

    Args:
        kind: `parquet`, `orc` or `avro`.
        source: The file's content.
        rebases: Whether days that Spark stored in the Julian calendar become Gregorian days. Iceberg readers leave them
            as stored.

    Raises:
        OSError, ArrowException, UnicodeError: The file is corrupt.
        UnsupportedError: The kind, or a feature of the file, is not supported.
    """
    try:
        if kind == "parquet":
            return ParquetColumns(source, rebases=rebases)
        if kind == "orc":
            from metastore_assets.formats.readers.orc import OrcColumns

            return OrcColumns(source)
        if kind == "avro":
            with extra("avro", "an Avro file"):
                from metastore_assets.formats.readers.avro import AvroColumns

            return AvroColumns(source, rebases=rebases)
        raise UnsupportedError(f"files of the kind {kind!r} are not supported")
    except BaseException:
        source.close()
        raise
