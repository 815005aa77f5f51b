"""A reader of the live rows of a data file, with the column names and types of the table.

Live rows are those that the table format has not deleted. A fragment is a data file with its deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.batching import group_rows
from metastore_assets.errors import FragmentError
from metastore_assets.formats.readers.chunks import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    can_concatenate,
    cast_dictionary,
    decode_dictionary,
    saves_memory,
)
from metastore_assets.formats.readers.columns import FileColumns
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema, field_default, identity
from metastore_assets.formats.values import Constant, repeat_constant
from metastore_assets.storage.corrupt_input import (
    CORRUPTION_ERRORS,
    error_reason,
    is_unsupported,
    with_redacted_message,
)
from metastore_assets.storage.object_store import OverwrittenError
from metastore_assets.tasks.in_flight import record_in_flight

_CONSTANT_ROWS = 16_384
"""Maximum rows in a chunk of a constant that is not null. If the constant is long, chunks have fewer rows."""


@dataclass(frozen=True)
class ColumnMapping:
    """The columns of one data file, and constants, that provide the values of the table's fields."""

    matcher: FieldMatcher
    """Matches a field of the table with a column of the file, by name or by field id."""
    constants: Mapping[str, Constant]
    """Constant values, such as partition values, by the identity of a field. They replace the values in the file."""


class FileFragmentReader:
    """A FragmentReader of the live rows of one data file.

    Args:
        columns: the opened data file. Leaving the context of the reader closes it.
        path: path of the data file, for messages.
        mapping: the columns of the file, or constants, that provide the values of the table's fields.
        deleted_positions: ascending positions of deleted rows; None if there are none.
        verify: a function that raises an error if the file was changed after it was opened.
    """

    def __init__(
        self,
        columns: FileColumns,
        *,
        path: str,
        mapping: ColumnMapping,
        deleted_positions: npt.NDArray[np.uint64] | None = None,
        verify: Callable[[], None] = lambda: None,
    ) -> None:
        self._columns = columns
        self._path = path
        self._matcher = mapping.matcher
        self._column_index = mapping.matcher.index_finder(columns.fields)
        self._constants = mapping.constants
        self._deleted = np.empty(0, np.uint64) if deleted_positions is None else deleted_positions
        self._verify = verify

    @property
    def row_count(self) -> int:
        return self._columns.row_count - len(self._deleted)

    @property
    def stored_columns(self) -> frozenset[str]:
        """Identities (field ids or names) of the columns in the file and of columns with a constant value."""
        stored_identities = {self._matcher.identity(field) for field in self._columns.fields}
        return frozenset(name for name in stored_identities if name is not None) | frozenset(self._constants)

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """Yield the values of a column of the table in the live rows of the file.

        If the `mapping` of the reader has a constant for the column, such as a partition value, every value is this
        constant. Otherwise, if the file lacks the column, every value is the default of `field`.

        Args:
            field: the column in the table's schema. The values have its type.
            encoded: whether the yielded arrays may be dictionary arrays.

        Raises:
            FragmentError: the column cannot be read.
        """
        key = identity(field)
        if key in self._constants:
            yield from _repeat_constant(self._constants[key].cast(field.type), self.row_count)
            return
        with fragment_errors(self._path, f"column {field.name!r}"):
            index = self._column_index(field)
        if index is None:
            yield from _repeat_constant(field_default(field), self.row_count)
            return
        with fragment_errors(self._path, f"column {field.name!r}"):
            yield from _concatenate_small(
                _decode_long_dictionaries(_concatenate_small(self._read_live(field, index, encoded=encoded)))
            )
            self._verify()

    def __enter__(self) -> FileFragmentReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._columns.close()

    def _read_live(self, field: pa.Field, index: int, *, encoded: bool) -> Iterator[pa.Array]:
        """Yield the live rows of the file's column at position `index`, cast to the type of `field`.

        With `encoded`, chunks may be dictionary arrays.

        Raises ArrowInvalid if the column has another number of rows than the file.
        """
        start = 0
        for chunk in self._columns.read(index):
            cast_chunk = cast_dictionary(chunk, field.type, self._matcher) if encoded else None
            # The cast comes before the filter, because Arrow cannot filter arrays of some stored types.
            parts = (
                (cast_to_schema(part, field.type, self._matcher) for part in decode_dictionary(chunk))
                if cast_chunk is None
                else (cast_chunk,)
            )
            for part in parts:
                yield self._filter_live(part, start)
                start += len(part)
        if start != self._columns.row_count:
            raise pa.ArrowInvalid(f"it has {start} rows, the file {self._columns.row_count}")

    def _filter_live(self, chunk: pa.Array, start: int) -> pa.Array:
        """Return the live rows of a chunk that starts at position `start` in the file."""
        first, last = np.searchsorted(self._deleted, np.array([start, start + len(chunk)], np.uint64))
        if first == last:
            return chunk
        mask = np.ones(len(chunk), bool)
        mask[(self._deleted[first:last] - np.uint64(start)).astype(np.int64)] = False
        return chunk.filter(pa.array(mask))


@contextmanager
def fragment_errors(path: str, what: str = "the file", other_file: str | None = None) -> Iterator[None]:
    """Convert errors in the `with` block, such as corrupt bytes or a missing file, to a FragmentError.

    Record the file while it is read. If this is a child process that crashes, its parent can name the file.

    Args:
        path: the data file, which the error names.
        what: the part of the file that is read, such as a column.
        other_file: the file that is read instead of the data file, such as a delete file; None for the data file.
    """
    part = path if what == "the file" else f"{path} ({what})"
    try:
        with record_in_flight(part if other_file is None else f"{other_file} ({what} of {path})"):
            yield
    except FragmentError:
        raise
    except (FileNotFoundError, OverwrittenError) as error:
        fate = "has been overwritten" if isinstance(error, OverwrittenError) else "is gone"
        consequence = "" if other_file is None else f": {path} cannot be read without it"
        raise FragmentError(
            f"{other_file or path} {fate} since the table was listed{consequence}", path=path, missing=True
        ) from error
    except CORRUPTION_ERRORS as error:
        where = "" if other_file is None else f" in {other_file}"
        is_unsupported_file = is_unsupported(error)
        summary = f"{path}: {what}{where} {'is not supported' if is_unsupported_file else 'cannot be read'}"
        fragment_error = FragmentError(f"{summary}: {error_reason(error)}", path=path, unsupported=is_unsupported_file)
        raise with_redacted_message(fragment_error, summary, error) from error


def _decode_long_dictionaries(pieces: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the arrays, with dictionary arrays decoded unless they save memory."""
    for piece in pieces:
        if isinstance(piece, pa.DictionaryArray) and not saves_memory(piece):
            yield from decode_dictionary(piece)
        else:
            yield piece


def _concatenate_small(pieces: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the non-empty arrays, with adjacent small ones concatenated.

    A concatenated array has at most `CHUNK_ROWS` rows and `CHUNK_BYTES` bytes. Dictionary arrays are concatenated only
    if they have equal dictionaries.
    """
    for group in group_rows(pieces, CHUNK_ROWS, CHUNK_BYTES, can_concatenate):
        yield pa.concat_arrays(group) if len(group) > 1 else group[0]


def _repeat_constant(value: Constant, count: int) -> Iterator[pa.Array]:
    max_rows = CHUNK_ROWS if value.null_count else _CONSTANT_ROWS
    rows = max(1, min(max_rows, CHUNK_BYTES // max(1, value.nbytes)))
    for start in range(0, count, rows):
        yield repeat_constant(value, min(rows, count - start))
