"""The columns of Hudi's files that belong to the table, with the types that it was made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.formats.hudi_schema import META_PREFIX
from metastore_assets.formats.reader import FileColumns


class HudiColumns:
    """The columns of a file without those that Hudi adds, unless they are asked for.

    Where `numbers` has a type for a column that the file holds as texts, they are parsed.
    """

    def __init__(self, columns: FileColumns, numbers: Mapping[str, pa.DataType], *, meta_columns: bool) -> None:
        self._columns = columns
        self._indices = [
            index
            for index, field in enumerate(columns.fields)
            if meta_columns or not field.name.startswith(META_PREFIX)
        ]
        stored = [columns.fields[index] for index in self._indices]
        self._parsed = {
            number: numbers[field.name]
            for number, field in enumerate(stored)
            if field.name in numbers and pa.types.is_string(field.type)
        }
        self.fields = [field.with_type(self._parsed.get(number, field.type)) for number, field in enumerate(stored)]
        self.row_count = columns.row_count

    def read(self, index: int) -> Iterator[pa.Array]:
        """All values of the column at that index. Raises ArrowInvalid for a text that is no such number."""
        for chunk in self._columns.read(self._indices[index]):
            yield pc.cast(chunk, self._parsed[index]) if index in self._parsed else chunk

    def close(self) -> None:
        """Let go of the file."""
        self._columns.close()
