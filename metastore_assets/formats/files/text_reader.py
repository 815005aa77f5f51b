"""Files whose values have no types of their own: what a reader of CSV or JSON lines answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.formats.base import TypeReason
from metastore_assets.storage.compression import Stream

OpenStream = Callable[[], Stream]
"""Opens a file's content, decompressed, from its beginning: it is read more than once."""


class TextReader(Protocol):
    """How the files of a table are read. A small picklable value."""

    def __hash__(self) -> int: ...

    def summarize(self, open_stream: OpenStream) -> Any:
        """Read a whole file and say what all its values have in common. Raises ArrowInvalid."""

    @staticmethod
    def encode(summary: Any, /) -> bytes:
        """A summary as bytes."""

    @staticmethod
    def decode(data: bytes, /) -> Any:
        """What `encode` made. Raises ValueError, LookupError or TypeError for anything else."""

    @staticmethod
    def without_values(summary: Any, is_hidden: Callable[[str], bool], /) -> Any:
        """Return a summary without any value of the hidden columns, given by name; the same object if it has none."""

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, Any, Any]]
    ) -> tuple[list[PlannedFile], list[pa.Field], list[TypeReason]]:
        """How to read each (path, reader, summary), the columns of all with types that fit every value, and why.

        Raises TableFormatError where there is no such type.
        """

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a file, with those types by column name."""


@dataclass(frozen=True)
class PlannedFile:
    """One file of a table, after all were looked at."""

    row_count: int
    reader: TextReader
