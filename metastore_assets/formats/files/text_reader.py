"""The interface of readers of CSV and JSON lines files, whose values are written without types.

A hidden column is one whose values the configuration hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.formats.base import TypeReason
from metastore_assets.storage.compression import Stream

OpenStream = Callable[[], Stream]
"""Opens the decompressed content of a file. It is called once for each pass over the file."""


class TextReader(Protocol):
    """The interface of a reader of CSV or JSON lines files.

    One object reads files of one of these kinds, all with the same options. It is small, immutable and picklable.
    """

    def __hash__(self) -> int: ...

    def summarize(self, open_stream: OpenStream) -> Any:
        """Read a whole file, and return a summary of it: its row count, and which types its values fit.

        Raises ArrowInvalid if the file is malformed, or does not fit the reader's options.
        """

    @staticmethod
    def encode(summary: Any, /) -> bytes:
        """Serialize a summary for the cache."""

    @staticmethod
    def decode(data: bytes, /) -> Any:
        """Parse a serialized summary.

        Raises ValueError, LookupError or TypeError for invalid bytes.
        """

    @staticmethod
    def without_values(summary: Any, is_hidden: Callable[[str], bool], /) -> Any:
        """Return a summary without values of hidden columns.

        Args:
            summary: a result of `summarize`.
            is_hidden: returns whether the values of a column are hidden.

        Returns:
            The object `summary` itself if it has no values of hidden columns; otherwise another summary.
        """

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, Any, Any]]
    ) -> tuple[list[PlannedFile], list[pa.Field], list[TypeReason]]:
        """Decide how each file of a table is read, and which columns the table has.

        Args:
            table: URI of the table, for messages.
            files: path, reader and summary of each file.

        Returns:
            Three results: how each file is read, in the same order; the columns of all files, each with its declared
                type or a type that fits every value; and a reason for each type that a value of a column ruled out.

        Raises:
            TableFormatError: no type fits all values of a column, or it is ambiguous how a file is read.
        """

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows of a file.

        Args:
            open_stream: opens the file.
            types: types of the table's columns by name.
        """


@dataclass(frozen=True)
class PlannedFile:
    """The reader and the row count of one file, decided from the summaries of all files."""

    row_count: int
    reader: TextReader
