"""Reading of columns from Hudi's data files.

Numbers that files store as texts are parsed. Partition values that files lack are taken from the paths of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.partitions import PartitionPaths
from metastore_assets.formats.hudi.schema import is_added
from metastore_assets.formats.readers.chunks import decode_dictionary
from metastore_assets.formats.readers.columns import FileColumns
from metastore_assets.formats.values import Constant, cast_texts, constant
from metastore_assets.startup import pc
from metastore_assets.storage.location import Location


class HudiColumns:
    """The columns of a file.

    Columns that Hudi adds are omitted unless they are requested.

    `numbers` has the name and type of each column whose texts are parsed as numbers.
    """

    def __init__(self, columns: FileColumns, numbers: Mapping[str, pa.DataType], *, meta_columns: bool) -> None:
        self._columns = columns
        self._indices = [
            index for index, field in enumerate(columns.fields) if meta_columns or not is_added(field.name)
        ]
        stored_fields = [columns.fields[index] for index in self._indices]
        self._parsed = {
            number: numbers[field.name]
            for number, field in enumerate(stored_fields)
            if field.name in numbers and pa.types.is_string(field.type)
        }
        self.fields = [
            field.with_type(self._parsed.get(number, field.type)) for number, field in enumerate(stored_fields)
        ]
        self.row_count = columns.row_count

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the column `fields[index]`, in chunks.

        Texts are parsed as numbers if the constructor's `numbers` names the column. Raises ArrowInvalid if such a text
        is not a number.
        """
        for chunk in self._columns.read(self._indices[index]):
            if index in self._parsed:
                yield from (pc.cast(part, self._parsed[index]) for part in decode_dictionary(chunk))
            else:
                yield chunk

    def close(self) -> None:
        """Close the file."""
        self._columns.close()


class PartitionConstants:
    """The values of partition columns that data files do not store, taken from the paths of partitions."""

    def __init__(
        self, location: Location, paths: PartitionPaths, schema: pa.Schema, dropped_columns: Sequence[str]
    ) -> None:
        """Prepare to take the values from partition paths, without reading a file.

        Raises TableFormatError if columns are dropped, and their values cannot be read from partition paths.

        Args:
            location: the table's folder.
            paths: the layout of the partition paths.
            schema: the columns of the table, which include the dropped ones.
            dropped_columns: names of the partition columns that data files do not store.
        """
        self._location = location
        self.paths = paths
        self._types = {name: schema.field(name).type for name in dropped_columns}
        if dropped_columns and None in paths.depths and len(paths.columns) > 1:
            raise TableFormatError(f"{location.uri} drops partition columns that are dates, which has no reader")

    def partition_constants(self, path: str) -> tuple[tuple[str, Constant], ...]:
        """Return (column, value) for each column that the files in a partition folder do not store."""
        values = dict(self.paths.items(path)) if self._types else {}
        return tuple(
            (name, cast_texts(constant(values[name], pa.string()), type_)) for name, type_ in self._types.items()
        )
