"""The interface of readers of CSV and JSON lines files, whose values have no types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.formats.base import TypeReason
from metastore_assets.storage.compression import Stream

OpenStream = Callable[[], Stream]
"""Opens the decompressed content of a file. It is called for each pass."""


class TextReader(Protocol):
    """A reader of files with the same options: a small value that can be pickled."""

    def __hash__(self) -> int: ...

    def summarize(self, open_stream: OpenStream) -> Any:
        """Read a file completely, and return a summary of the types of its values. Raises ArrowInvalid."""

    @staticmethod
    def encode(summary: Any, /) -> bytes:
        """Serialize a summary."""

    @staticmethod
    def decode(data: bytes, /) -> Any:
        """Parse a serialized summary. Raises ValueError, LookupError or TypeError for invalid bytes."""

    @staticmethod
    def without_values(summary: Any, is_hidden: Callable[[str], bool], /) -> Any:
        """Return a summary without values of hidden columns; the same object if it has none."""

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, Any, Any]]
    ) -> tuple[list[PlannedFile], list[pa.Field], list[TypeReason]]:
        """Decide how the files of a table are read.

        Args:
            table: URI of the table, for messages.
            files: path, reader and summary of each file.

        Returns:
            How each file is read; the columns of all files, of types that fit every value; and why columns are not of
            other types.

        Raises:
            TableFormatError: no type fits all values of a column.
        """

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows of a file. `types` are the types of columns by name."""


@dataclass(frozen=True)
class PlannedFile:
    """The plan for reading one file, decided from the summaries of all files."""

    row_count: int
    reader: TextReader
