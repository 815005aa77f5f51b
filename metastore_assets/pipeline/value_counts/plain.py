"""Plain files of value counts: Parquet files for other tools, with one row per column and value.

One file has the values of each column by decreasing frequency. The other file has the values in ascending order, with
their ranks. Each column has a section: consecutive row groups that are read without the rest of the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np
import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.pipeline.profiles.states_writer import value_encodings
from metastore_assets.statistics.profile_tables import build_value_counts_table
from metastore_assets.statistics.typed_union import union_type
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionOptions, SectionReader, SectionWriter
from metastore_assets.value_counts import TableValueCounts, ValueCountReader
from metastore_assets.values.columns import Column
from metastore_assets.values.json import scalar_text
from metastore_assets.values.types import class_named

_FOLDER = "table"
_NO_ROWS = pa.table({"value": pa.nulls(0), "frequency": pa.array([], pa.int64()), "rank": pa.array([], pa.int64())})


def write_frequencies(store: ObjectStore, value_counts: TableValueCounts, columns: Sequence[Column]) -> str:
    """Write a file with the values of each column by decreasing frequency, then by value.

    Return its path.

    The file has the columns `column`, `value` and `frequency`.

    Args:
        store: The folder of the table.
        value_counts: The value counts of the table.
        columns: The columns to write. A fingerprinted column (stored as short hashes) has only values that occur at
            least twice.
    """
    reader = ValueCountReader(store, value_counts)

    def rows(column: Column) -> Iterable[pa.Table]:
        least = 2 if column.field_id in value_counts.fingerprinted.columns else 1
        return reader.by_frequency(column.field_id, reader.columns[column.field_id], least)

    return _write(store, "frequencies", reader, columns, rows)


def write_ranks(store: ObjectStore, value_counts: TableValueCounts, columns: Sequence[Column]) -> str:
    """Write a file with the values of each column in increasing order, with their ranks.

    Return its path.

    The file has the columns `column`, `value`, `frequency` and `rank`. The rank of a value is the number of rows with a
    smaller non-null value.

    Args:
        store: The folder of the table.
        value_counts: The value counts of the table.
        columns: The columns to write. Fingerprinted columns (stored as short hashes) must be left out: their ranks
            would be wrong, because values that occur once are not stored. This is not checked.
    """
    reader = ValueCountReader(store, value_counts)

    def rows(column: Column) -> Iterable[pa.Table]:
        """Yield the value counts of a column with the rank of each value."""
        smaller = 0
        for batch in reader.batches(column.field_id, reader.columns[column.field_id]):
            counts = batch["frequency"].to_numpy()
            ends = smaller + np.cumsum(counts)
            yield pa.Table.from_batches([batch]).append_column("rank", pa.array(ends - counts))
            smaller = int(ends[-1])

    return _write(store, "ranks", reader, columns, rows)


def plain_file_columns(store: ObjectStore, path: str) -> set[str]:
    """Return the field ids of the columns in a plain file; none if the file is missing or damaged."""
    if not path:
        return set()
    try:
        with SectionReader(store, path) as reader:
            return set(reader.sections)
    except (ObjectNotFoundError, CorruptionError):
        return set()


def plain_file_differences(
    store: ObjectStore, path: str, scratch: ObjectStore, expected: str, columns: Sequence[Column]
) -> Iterator[tuple[str, str, str]]:
    """Yield (column, stored row, expected row) for the first difference of each column of plain files.

    If only one file has the column, the row of this file is the text "a section", and the other row is "none".

    Args:
        store: The folder of the table.
        path: The path of the stored file.
        scratch: The folder of the expected file.
        expected: The path of the expected file, written from recomputed value counts.
        columns: The columns of the expected file.

    Raises:
        CorruptionError: A file is damaged.
    """
    with (
        parquet_errors(store.uri(path)),
        SectionReader(store, path) as stored_reader,
        SectionReader(scratch, expected) as expected_reader,
    ):
        paths = {column.field_id: column.path for column in columns}
        for field_id in sorted(stored_reader.sections.keys() ^ expected_reader.sections.keys()):
            texts = ("a section", "none") if field_id in stored_reader.sections else ("none", "a section")
            yield (paths.get(field_id, field_id), *texts)
        for field_id in sorted(stored_reader.sections.keys() & expected_reader.sections.keys()):
            tables = stored_reader.read_section(field_id), expected_reader.read_section(field_id)
            if not tables[0].equals(tables[1]):
                yield from _first_difference(paths[field_id], *tables)


def _first_difference(column: str, stored_table: pa.Table, expected_table: pa.Table) -> Iterator[tuple[str, str, str]]:
    """Yield (column, stored row, expected row) for the first position at which the rows differ.

    Nothing is yielded if there is no such position. Rows are texts. If one table ends first, its row is "nothing".
    """
    for stored_row, expected_row in zip_longest(_texts(stored_table), _texts(expected_table), fillvalue="nothing"):
        if stored_row != expected_row:
            yield column, stored_row, expected_row
            return


def _texts(table: pa.Table) -> Iterator[str]:
    for column, value, *numbers in zip(*table.columns, strict=True):
        members = [scalar_text(member) for member in value.values() if member.is_valid] if value.is_valid else ["null"]
        yield ", ".join([str(column), *members, *map(str, numbers)])


def _write(
    store: ObjectStore,
    kind: str,
    reader: ValueCountReader,
    columns: Sequence[Column],
    rows: Callable[[Column], Iterable[pa.Table]],
) -> str:
    """Write a plain file with one section per column.

    Return its path.

    Args:
        store: The folder of the table.
        kind: `frequencies` or `ranks`. It becomes part of the file's name.
        reader: The value counts of the table.
        columns: The columns to write.
        rows: Returns the rows of a column as tables: value, frequency and, for `ranks`, the rank.
    """
    union = union_type(class_named(reader.columns[column.field_id]) for column in columns)
    has_ranks = kind == "ranks"
    numbers = ["frequency", "rank"] if has_ranks else ["frequency"]
    schema = pa.schema([("column", pa.string()), ("value", union), *((name, pa.int64()) for name in numbers)])
    encodings = {**value_encodings("value", union), **dict.fromkeys(numbers, "DELTA_BINARY_PACKED")}
    path = f"{_FOLDER}/{uuid.uuid4().hex}.{kind}.parquet"
    # Bounds let readers of one column, or of a range of its order, skip the other row groups.
    with SectionWriter(store, path, schema, SectionOptions(encodings, ["column", numbers[-1]])) as writer:
        for column in columns:
            # A column without values gets an empty section, which records that it is enumerated.
            for batch in chain([_NO_ROWS], rows(column)):
                table = build_value_counts_table(
                    column.path, batch["value"].combine_chunks(), batch["frequency"].combine_chunks(), union
                )
                writer.write_section(
                    column.field_id, table.append_column("rank", batch["rank"]) if has_ranks else table
                )
    return path
