"""Opened data files by kind: the formats whose columns have types of their own."""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.extras import extra
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.reader import FileColumns
from metastore_assets.storage.corrupt_input import UnsupportedError

KINDS = ("parquet", "orc", "avro")


def open_columns(kind: str, source: pa.NativeFile, *, rebases: bool = True) -> FileColumns:
    """The columns of an opened file of that kind: `parquet`, `orc` or `avro`.

    Fields have the file's field ids under `PARQUET:field_id` at every depth. The source belongs to what is returned,
    and is closed when opening fails. With `rebases` days that Spark counted in the Julian calendar become those of the
    Gregorian calendar; Iceberg's readers take them as they are stored. Raises OSError, ArrowException or UnicodeError
    for a file that is broken.
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
