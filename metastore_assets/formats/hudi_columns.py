"""Columns of Hudi's files that some writes hold as texts though the table was made with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.formats.reader import FileColumns


class NumbersOutOfTexts:
    """The columns of a file, where those given by name and type are parsed when the file holds them as texts."""

    def __init__(self, columns: FileColumns, types: Mapping[str, pa.DataType]) -> None:
        self._columns = columns
        self._parsed = {
            index: types[field.name]
            for index, field in enumerate(columns.fields)
            if field.name in types and pa.types.is_string(field.type)
        }
        self.fields = [
            field.with_type(self._parsed[index]) if index in self._parsed else field
            for index, field in enumerate(columns.fields)
        ]
        self.row_count = columns.row_count

    def read(self, index: int) -> Iterator[pa.Array]:
        """All values of the column at that index. Raises ArrowInvalid for a text that is no such number."""
        for chunk in self._columns.read(index):
            yield pc.cast(chunk, self._parsed[index]) if index in self._parsed else chunk

    def close(self) -> None:
        """Let go of the file."""
        self._columns.close()
