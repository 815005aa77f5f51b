"""The top-level columns of data files: their interface, their opening, and checks of their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from metastore_assets.extras import extra
from metastore_assets.storage.corrupt_input import UnsupportedError, check_limit
from metastore_assets.storage.limits import FIELDS, FIXED_BYTES, NESTING

KINDS = ("parquet", "orc", "avro")


class FileColumns(Protocol):
    """The top-level columns of an opened Parquet, ORC or Avro file."""

    @property
    def fields(self) -> Sequence[pa.Field]:
        """The columns in file order, with the file's names, types and metadata."""

    @property
    def row_count(self) -> int:
        """The number of rows in the file, including rows that a table format has deleted."""

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the column with number `index`, in file order, in chunks of bounded size.

        Chunks of strings or bytes may be dictionary arrays.
        """

    def close(self) -> None:
        """Close the file."""


def open_columns(kind: str, source: pa.NativeFile, *, rebases: bool = True) -> FileColumns:
    """Open a data file, and return its columns.

    Field ids of the file are in the metadata of the fields, under `PARQUET:field_id`.

    Args:
        kind: `parquet`, `orc` or `avro`.
        source: content of the file. It is closed with the result, or if opening fails.
        rebases: whether to convert Spark's Julian days to Gregorian days; False for Iceberg.

    Raises:
        OSError, ArrowException, UnicodeError: the file is corrupt.
        UnsupportedError: the kind of file, or a feature that it uses, is not supported.
        LimitError: a limit is exceeded, such as the number of fields.
    """
    try:
        if kind == "parquet":
            from metastore_assets.formats.readers.parquet import ParquetColumns

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


def check_distinct(names: Sequence[str]) -> None:
    """Raise ArrowInvalid if two columns of a file have the same name."""
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise pa.ArrowInvalid(f"two columns are named {duplicates[0]!r}")


def check_types(fields: Iterable[pa.Field]) -> None:
    """Raise LimitError if types are nested too deeply, have too many fields, or have too wide values."""
    field_count = 0
    for field in fields:
        field_count += _count_fields(field.type, 1)
        check_limit(FIELDS, field_count, "fields in the file's schema")


def _count_fields(type_: pa.DataType, depth: int) -> int:
    """Return 1 plus the number of all types nested in a type.

    Raises LimitError if types are nested too deeply, or if values of a fixed size are too large.

    Args:
        type_: the type.
        depth: the number of types from the column's type down to `type_`: 1 for the column's type.
    """
    check_limit(NESTING, depth, "types inside of each other")
    if isinstance(type_, pa.BaseExtensionType):
        return _count_fields(type_.storage_type, depth)
    if pa.types.is_dictionary(type_):
        return _count_fields(type_.value_type, depth)
    if pa.types.is_fixed_size_binary(type_):
        check_limit(FIXED_BYTES, type_.byte_width, "bytes in a value of fixed width")
    if pa.types.is_fixed_size_list(type_):
        check_limit(FIXED_BYTES, type_.list_size, "items in a list of fixed size")
    if not pa.types.is_nested(type_):
        return 1
    return 1 + sum(_count_fields(type_.field(index).type, depth + 1) for index in range(type_.num_fields))
